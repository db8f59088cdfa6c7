"""Sample agents on pydantic-ai, to try Forge with and to copy from.

`weather`, `portfolio` and `expense` are agents; `expense_user` is a user who talks to the last one, `expense_validator`
judges its answers, and `expense_generator` writes cases for it. `bridge` is what puts any pydantic-ai agent behind the
protocol; `offline` plays a model by rules, so that all of them run without a network, without a key, and with the same
answers every time.
"""
