"""Functions that go through a turn when they are called, for code that calls its tools itself."""

import functools
import inspect
import json
from collections.abc import Callable, Iterable
from typing import Any

from forge_daemon import functions
from forge_daemon.blocking import BlockingTurn
from forge_daemon.proto.agent_pb2 import TOOL_MODE_STUB
from forge_daemon.tools import Tool, tool_of
from forge_daemon.turn import Turn

__all__ = ["wrap_tools"]


def wrap_tools(
    turn: Turn | BlockingTurn, tools: Iterable[Tool[..., Any] | Callable[..., Any]]
) -> list[Callable[..., Any]]:
    """The tools as functions of the same names and signatures, each call of which goes through the turn.

    They give what the tool returned, or what its stub says, parsed; ToolFailed says that it failed. With a turn they
    are async, whatever the tool is; with a `BlockingTurn` they are plain.
    """
    return [_wrapped(turn, tool_of(one)) for one in tools]


def _wrapped(turn: Turn | BlockingTurn, tool: Tool[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(tool.run)

    def announced(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        arguments = signature.bind(*args, **kwargs)
        flat: dict[str, Any] = {}
        for name, value in arguments.arguments.items():
            flat |= value if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD else {name: value}
        return flat, []

    def text_of_stub(text: str) -> Any:
        try:
            return json.loads(text) if text else None
        except ValueError:
            return text

    if isinstance(turn, BlockingTurn):

        @functools.wraps(tool.run)
        def plain(*args: Any, **kwargs: Any) -> Any:
            flat, results = announced(args, kwargs)

            def run() -> Any:
                results.append(tool.run(*args, **kwargs))
                return results[0]

            text = turn.call(tool.name, flat, run)
            return text_of_stub(text) if turn.tool_mode == TOOL_MODE_STUB else results[0]

        return _named(plain, tool, signature)

    @functools.wraps(tool.run)
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        flat, results = announced(args, kwargs)

        async def run() -> Any:
            if functions.is_async(tool.run):
                results.append(await tool.run(*args, **kwargs))
            else:
                results.append(await functions.in_thread(functools.partial(tool.run, *args, **kwargs)))
            return results[0]

        text = await turn.call(tool.name, flat, run)
        return text_of_stub(text) if turn.tool_mode == TOOL_MODE_STUB else results[0]

    return _named(wrapped, tool, signature)


def _named(function: Callable[..., Any], tool: Tool[..., Any], signature: inspect.Signature) -> Callable[..., Any]:
    function.__name__, function.__doc__ = tool.name, tool.description or function.__doc__
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function
