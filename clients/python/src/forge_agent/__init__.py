"""Put a Python agent under test with Forge.

Write an async function that takes a `Turn` and returns the answer, run its tools through `turn.call`, and give both to
`serve`. The generated messages are in `forge.agent.v1`; everything here can also be done with them alone.
"""

from forge_agent.endpoint import CAPABILITIES, SPANS_ONLY, AgentEndpoint, Answer, Server, serve
from forge_agent.generator import Generator
from forge_agent.listening import CannotListen
from forge_agent.simulator import Simulator, UserTurn
from forge_agent.snapshot import SnapshotProvider
from forge_agent.turn import InvocationFailed, ToolCall, ToolFailed, Turn
from forge_agent.validator import Validator, Verdict
from forge_agent.values import json_of, json_text, text_of

__all__ = [
    "CAPABILITIES",
    "SPANS_ONLY",
    "AgentEndpoint",
    "Answer",
    "CannotListen",
    "Generator",
    "InvocationFailed",
    "Server",
    "Simulator",
    "SnapshotProvider",
    "ToolCall",
    "ToolFailed",
    "Turn",
    "UserTurn",
    "Validator",
    "Verdict",
    "json_of",
    "json_text",
    "serve",
    "text_of",
]
