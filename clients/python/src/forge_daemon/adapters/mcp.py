"""The tools of an MCP server as tools of an agent: for its card, and to call them through a turn."""

import asyncio
import functools
import json
import threading
from typing import Any

from forge_daemon.adapters import needs
from forge_daemon.tools import Tool
from forge_daemon.turn import ToolFailed

needs("mcp_tools", "mcp", "2.3", "3", "mcp")

import mcp

__all__ = ["mcp_tools"]

CONNECT_SECONDS = 30.0


def mcp_tools(server: Any, *, version: str = "") -> list[Tool[..., Any]]:
    """The tools of an MCP server, with their names, descriptions and schemas.

    `server` is what `mcp.Client` takes: a URL, a `StdioServerParameters` with the command that is one, or a server in
    this process. It is asked here, at start, and has half a minute. The first call of a tool connects again, and that
    connection is kept for the next ones. `version` is the version of all of its tools.

    Raises ConnectionError if the server cannot be asked.
    """
    connection = _Connection(server)
    return [
        Tool(
            functools.partial(connection.call, one.name),
            one.name,
            one.description or "",
            one.input_schema,
            version,
        )
        for one in _in_a_loop_of_its_own(server)
    ]


def _in_a_loop_of_its_own(server: Any) -> list[Any]:
    """Lists the tools. In a thread, because this may be called where an event loop runs."""
    found: list[Any] = []
    failed: list[BaseException] = []

    async def ask() -> None:
        async with mcp.Client(server) as client:
            cursor = None
            while True:
                page = await client.list_tools(cursor=cursor)
                found.extend(page.tools)
                cursor = page.next_cursor
                if not cursor:
                    return

    def run() -> None:
        try:
            asyncio.run(asyncio.wait_for(ask(), CONNECT_SECONDS))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="forge-mcp", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise ConnectionError(f"mcp_tools: {_named(server)} cannot be asked for its tools: {_cause(failed[0])}")
    return found


class _Connection:
    """Keeps a client for the event loop that calls, in a task of its own: MCP wants it closed where it was opened."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[Any] | None = None

    async def call(self, name: str, **arguments: Any) -> Any:
        """Calls a tool. Raises ToolFailed if it says that it failed."""
        client = await self._client()
        try:
            result = await client.call_tool(name, arguments)
        except mcp.MCPError as error:
            raise ToolFailed(str(error)) from error
        except Exception:
            if self._task is not None:
                self._task.cancel()  # Perhaps it is gone; the next call connects again.
            raise
        text = "\n".join(block.text for block in result.content if block.type == "text")
        if result.is_error:
            raise ToolFailed(text or f"{name} failed")
        if result.structured_content is not None:
            return result.structured_content
        return _json_or_text(text)

    async def _client(self) -> Any:
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done() or self._task.get_loop() is not loop:
            self._ready = loop.create_future()
            self._task = loop.create_task(self._hold(self._ready))
        assert self._ready is not None
        return await asyncio.wait_for(asyncio.shield(self._ready), CONNECT_SECONDS)

    async def _hold(self, ready: "asyncio.Future[Any]") -> None:
        try:
            async with mcp.Client(self._server) as client:
                if not ready.done():
                    ready.set_result(client)
                await asyncio.Event().wait()
        except Exception as error:
            if not ready.done():
                message = f"{_named(self._server)} cannot be reached: {_cause(error)}"
                ready.set_exception(ConnectionError(message))


def _json_or_text(text: str) -> Any:
    if text.lstrip()[:1] in ("{", "["):
        try:
            json.loads(text)
        except ValueError:
            return text
        return text.encode()
    return text


def _named(server: Any) -> str:
    if isinstance(server, mcp.StdioServerParameters):
        return f"the MCP server `{' '.join([server.command, *server.args])}`"
    return f"the MCP server {server if isinstance(server, str) else type(server).__name__}"


def _cause(error: BaseException) -> str:
    """What happened, below the groups of errors that tasks make of it."""
    while (inner := getattr(error, "exceptions", None)) and isinstance(inner, (list, tuple)):
        error = inner[0]
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
        return f"no answer in {CONNECT_SECONDS:g} s"
    return str(error) or type(error).__name__
