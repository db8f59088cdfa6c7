"""Sample agents, to try Forge with and to copy from.

`weather`, `portfolio` and `expense` are agents on pydantic-ai; `expense_user` is a user who talks to the last one,
`expense_validator` judges its answers, and `expense_generator` writes cases for it.

`spans_only` is an agent on LangGraph (`graph`) whose tool calls Forge knows from its spans alone, and `liar` one that
says something else about them than its spans.

`offline` plays a model by rules, so that all of them run without a network, without a key, and with the same answers
every time.
"""
