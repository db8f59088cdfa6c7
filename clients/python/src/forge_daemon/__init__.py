"""Put a Python agent under test with Forge.

Write an async function that takes a `Turn` and returns the answer, run its tools through `turn.call`, and give both to
`serve`. The generated messages are in `forge_daemon.proto`; everything here can also be done with them alone.
"""

from forge_daemon.endpoint import CAPABILITIES, SPANS_ONLY, AgentEndpoint, Answer, Server, serve
from forge_daemon.generator import Generator
from forge_daemon.listening import CannotListen
from forge_daemon.simulator import Simulator, UserTurn
from forge_daemon.snapshot import SnapshotProvider
from forge_daemon.turn import InvocationFailed, ToolCall, ToolFailed, Turn
from forge_daemon.validator import Validator, Verdict
from forge_daemon.values import json_of, json_text, text_of

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
