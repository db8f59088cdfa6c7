"""A weather agent that tells Forge nothing of its tool calls: they are known from its spans alone.

It runs on LangGraph (`graph`), and this file only puts its answer behind the protocol. Its spans go straight to the
daemon, which reads the calls from them:

    OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:7460 python -m forge_daemon.samples.spans_only --listen 127.0.0.1:50054
"""

import json
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolCall, ToolMessage
from langchain_core.tools import StructuredTool

from forge_daemon import SPANS_ONLY, Agent, Tool, Turn, json_text, text_of
from forge_daemon.proto.values_pb2 import ROLE_ASSISTANT, ROLE_SYSTEM, ROLE_TOOL, Message, ToolOutput, ToolUse
from forge_daemon.samples import command, graph


def history(messages: Sequence[Message]) -> list[AnyMessage]:
    """A conversation in LangChain's messages: same order, same roles, tool calls with their results."""
    return [said for message in messages for said in _said(message)]


def _said(message: Message) -> list[AnyMessage]:
    if message.role == ROLE_TOOL:
        return [_output(part.tool_output) for part in message.parts if part.WhichOneof("content") == "tool_output"]
    if message.role == ROLE_ASSISTANT:
        calls = [_call(part.tool_use) for part in message.parts if part.WhichOneof("content") == "tool_use"]
        return [AIMessage(text_of(message), tool_calls=calls)]
    return [SystemMessage(text_of(message)) if message.role == ROLE_SYSTEM else HumanMessage(text_of(message))]


def _call(use: ToolUse) -> ToolCall:
    return ToolCall(name=use.name, args=json.loads(json_text(use.arguments) or "{}"), id=use.call_id)


def _output(output: ToolOutput) -> ToolMessage:
    if output.HasField("result"):
        return ToolMessage(json_text(output.result), tool_call_id=output.call_id)
    return ToolMessage(output.error.message or "failed", tool_call_id=output.call_id, status="error")


def declared(tool: StructuredTool) -> Tool[..., Any]:
    """What a daemon is told about a tool."""
    schema = tool.tool_call_schema.model_json_schema()
    return Tool(tool.coroutine, tool.name, tool.description, schema, version="1.0.0")


def make(tool_delay: float = 0.0) -> Agent:
    """The agent, ready to be served."""
    own_tools = graph.tools(tool_delay)
    weather = graph.build(own_tools)

    async def answer(turn: Turn) -> str:
        return await graph.answer(weather, history(turn.messages))

    return Agent(
        answer,
        id="samples.spans_only",
        name="Weather on LangGraph",
        version="1.0.0",
        model=graph.MODEL,
        tools=[declared(tool) for tool in own_tools],
        capabilities=SPANS_ONLY,
    )


if __name__ == "__main__":
    command.run("Sample agent whose tool calls are known from its spans alone", make, instrument=graph.instrument)
