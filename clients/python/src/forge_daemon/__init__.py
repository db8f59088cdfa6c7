"""Put a Python agent under test with Forge.

Write a function that takes a turn and gives the answer, run its tools through `turn.call`, and hand it to `serve`. The
generated messages are in `forge_daemon.proto`; everything here can also be done with them alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from forge_daemon.agent import CAPABILITIES, SPANS_ONLY, Agent, Answer
from forge_daemon.attached import Attached, attach
from forge_daemon.blocking import BlockingToolCall, BlockingTurn
from forge_daemon.dialling import CannotAttach
from forge_daemon.endpoint import current_turn
from forge_daemon.listening import CannotListen
from forge_daemon.server import Server, serve
from forge_daemon.simulator import UserTurn
from forge_daemon.testing import ForgeRun, forge_run
from forge_daemon.tools import Tool, tool
from forge_daemon.turn import InvocationFailed, ToolCall, ToolFailed, Turn
from forge_daemon.validator import Verdict
from forge_daemon.values import json_of, json_text, text_of
from forge_daemon.wrapping import wrap_tools

if TYPE_CHECKING:
    from forge_daemon.adapters.google_adk import from_google_adk
    from forge_daemon.adapters.langgraph import from_langgraph
    from forge_daemon.adapters.mcp import mcp_tools
    from forge_daemon.adapters.openai_agents import from_openai_agents
    from forge_daemon.adapters.pydantic_ai import from_pydantic_ai

_ADAPTERS = {
    "from_google_adk": "google_adk",
    "from_langgraph": "langgraph",
    "from_openai_agents": "openai_agents",
    "from_pydantic_ai": "pydantic_ai",
    "mcp_tools": "mcp",
}
"""Each in a module that imports a framework, so only when it is asked for."""

__all__ = [
    "CAPABILITIES",
    "SPANS_ONLY",
    "Agent",
    "Answer",
    "Attached",
    "BlockingToolCall",
    "BlockingTurn",
    "CannotAttach",
    "CannotListen",
    "ForgeRun",
    "InvocationFailed",
    "Server",
    "Tool",
    "ToolCall",
    "ToolFailed",
    "Turn",
    "UserTurn",
    "Verdict",
    "attach",
    "current_turn",
    "forge_run",
    "from_google_adk",
    "from_langgraph",
    "from_openai_agents",
    "from_pydantic_ai",
    "json_of",
    "json_text",
    "mcp_tools",
    "serve",
    "text_of",
    "tool",
    "wrap_tools",
]


def __getattr__(name: str) -> Any:
    if name in _ADAPTERS:
        return getattr(import_module(f"forge_daemon.adapters.{_ADAPTERS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
