"""Sample agents on pydantic-ai, to try Forge with and to copy from.

`weather` and `portfolio` are agents; `bridge` is what puts any pydantic-ai agent behind the protocol; `offline` plays a
model by rules, so that both run without a network, without a key, and with the same answers every time.
"""
