"""Tools of MCP servers: in this process, and as a command."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from client import LIVE, STUB, answering, invoke, start_frame
from mcp import StdioServerParameters
from mcp.server.mcpserver import MCPServer

from forge_daemon import Agent, ToolFailed, Turn, mcp_tools

SERVER = """
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("weather")


@server.tool()
def look(city: str) -> dict[str, int]:
    \"\"\"Looks up the weather of a city.\"\"\"
    if city == "nowhere":
        raise ToolError("no such city")
    return {"degrees": 17}


if __name__ == "__main__":
    server.run("stdio")
"""


def in_process() -> MCPServer:
    scope: dict[str, object] = {"__name__": "weather"}
    exec(SERVER, scope)
    server = scope["server"]
    assert isinstance(server, MCPServer)
    return server


async def answer(turn: Turn) -> str:
    try:
        return await turn.call("look", json.dumps({"city": turn.user_text}))
    except ToolFailed as failure:
        return f"failed: {failure}"


@pytest.mark.parametrize("kind", ["in process", "command"])
async def test_tools_on_the_card_and_in_turns(serve, tmp_path: Path, kind):
    (tmp_path / "server.py").write_text(SERVER)
    command = StdioServerParameters(command=sys.executable, args=[str(tmp_path / "server.py")])
    agent = Agent(answer, id="weather", tools=mcp_tools(in_process() if kind == "in process" else command))
    (declared,) = agent.card.tools
    assert (declared.name, declared.description) == ("look", "Looks up the weather of a city.")
    assert json.loads(declared.input_schema.raw)["required"] == ["city"]
    stub = await serve(agent)
    for _ in range(2):
        events = await invoke(stub, start_frame("Paris"))
        assert (json.loads(events.text), events.tools) == ({"degrees": 17}, ["look"])
    assert "no such city" in (await invoke(stub, start_frame("nowhere"))).text
    for mode, text in ((STUB, "5"), (LIVE, '{"degrees": 17}')):
        events = await invoke(stub, start_frame("Paris", mode=mode), on_event=answering({"look": 5}))
        assert events.text == text
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        if "_hold" in repr(task):
            task.cancel()


def test_a_server_that_does_not_start():
    with pytest.raises(ConnectionError, match="the MCP server `no-such-program` cannot be asked for its tools"):
        mcp_tools(StdioServerParameters(command="no-such-program"))
    with pytest.raises(ConnectionError, match=r"the MCP server http://127\.0\.0\.1:9/mcp cannot be asked"):
        mcp_tools("http://127.0.0.1:9/mcp")
