"""Puts a pydantic-ai agent behind the protocol.

The agent stays as it is. A capability of pydantic-ai (its word for hooks around a run) tells the turn what the model
does, and stands between the model's calls and the real tools.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from grpc import StatusCode
from opentelemetry.trace import TracerProvider
from pydantic_ai import Agent, Tool
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ToolFailed as ModelSeesFailure
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.usage import RequestUsage
from pydantic_core import to_json

from forge_daemon import AgentEndpoint, InvocationFailed, ToolCall, ToolFailed, Turn, json_of, json_text
from forge_daemon.proto.agent_pb2 import TOOL_MODE_STUB, AgentCard, ToolSpec
from forge_daemon.proto.values_pb2 import (
    ROLE_ASSISTANT,
    ROLE_SYSTEM,
    ROLE_TOOL,
    Message,
    Part,
    ToolOutput,
    Usage,
)


def endpoint(agent: Agent[None, str], tools: Sequence[Tool], *, agent_id: str, version: str) -> AgentEndpoint:
    """Serves a pydantic-ai agent. `tools` are those that the agent was made with."""
    model = agent.model if isinstance(agent.model, Model) else None
    card = AgentCard(
        agent_id=agent_id,
        name=agent.name,
        version=version,
        provider_name=model.system if model else "",
        model=model.model_name if model else "",
        tools=[_tool_spec(tool) for tool in tools],
    )

    async def answer(turn: Turn) -> str:
        result = await agent.run(message_history=history(turn.messages), capabilities=[Reporter(turn)])
        # Only now is it known that this text is the answer: what a model says before it calls a tool is not.
        return result.output

    return AgentEndpoint(card, answer)


def instrument(provider: TracerProvider) -> None:
    """Lets every agent of this process write spans, with what its model said and what its tools got and gave."""
    Agent.instrument_all(InstrumentationSettings(tracer_provider=provider, include_content=True))


@dataclass
class Reporter(AbstractCapability[Any]):
    """Tells one turn what one run of an agent does."""

    turn: Turn
    calls: dict[str, ToolCall] = field(default_factory=dict)

    async def wrap_model_request(self, ctx: Any, *, request_context: Any, handler: Any) -> ModelResponse:
        """Reports the model turn and announces its calls, in its order, before any of them runs."""
        await self._settle_refused_calls(ctx.messages[-1])
        with self.turn.model_turn() as record:
            response: ModelResponse = await handler(request_context)
            record.model = response.model_name or ""
            record.response_id = response.provider_response_id or ""
            record.finish_reason = response.finish_reason or ""
            if not response.usage.unmeasured_requests:
                record.usage.CopyFrom(_usage(response.usage))
        self.turn.partial_answer = response.text or ""
        for part in response.tool_calls:
            # A text is what the model wrote. None and "" are how models call a tool without arguments.
            params = None if part.args in (None, "") else part.args
            self.calls[part.tool_call_id] = self.turn.start_tool(part.tool_name, params, part.tool_call_id)
        self.turn.stop_if_routing_only()
        return response

    async def wrap_tool_validate(self, ctx: Any, *, call: ToolCallPart, tool_def: Any, args: Any, handler: Any) -> Any:
        """With stubs no argument is wrong: the suite decides what comes back."""
        if self.turn.tool_mode == TOOL_MODE_STUB:
            return call.args_as_dict()
        return await handler(args)

    async def wrap_tool_execute(self, ctx: Any, *, call: ToolCallPart, tool_def: Any, args: Any, handler: Any) -> str:
        """Runs the tool, or takes the stub's answer for it; the model gets exactly the text that was reported."""

        async def tool() -> bytes:
            return to_json(await handler(args))

        try:
            return await self.calls[call.tool_call_id].run(tool)
        except ToolFailed as failure:
            raise ModelSeesFailure(str(failure)) from failure

    async def _settle_refused_calls(self, request: ModelMessage) -> None:
        """Closes calls that pydantic-ai answered itself: of unknown tools, or with arguments that do not fit."""
        for part in request.parts:
            call = self.calls.get(part.tool_call_id) if isinstance(part, ToolReturnPart) else None
            if call is None or not call.is_open:
                continue
            if self.turn.tool_mode != TOOL_MODE_STUB:
                call.fail(part.model_response_str(wrap_if_error=False))
                continue
            # The suite may have a stub for a tool that the agent does not have; then the model gets that.
            try:
                part.content, part.outcome = await call.run(_unreachable), "success"
            except ToolFailed as failure:
                part.content, part.outcome = str(failure), "failed"


def history(messages: Sequence[Message]) -> list[ModelMessage]:
    """A conversation in pydantic-ai's messages: same order, same roles, nothing left out."""
    tool_names = {part.tool_use.call_id: part.tool_use.name for message in messages for part in message.parts}
    return [
        ModelResponse(parts=[_said(part) for part in message.parts])
        if message.role == ROLE_ASSISTANT
        else ModelRequest(parts=[_heard(message.role, part, tool_names) for part in message.parts])
        for message in messages
    ]


def _said(part: Part) -> TextPart | ToolCallPart:
    if part.WhichOneof("content") == "tool_use":
        return ToolCallPart(part.tool_use.name, json_text(part.tool_use.arguments), part.tool_use.call_id)
    return TextPart(_text(part))


def _heard(role: int, part: Part, tool_names: dict[str, str]) -> SystemPromptPart | UserPromptPart | ToolReturnPart:
    if part.WhichOneof("content") == "tool_output":
        return _tool_return(part.tool_output, tool_names.get(part.tool_output.call_id, ""))
    if role == ROLE_TOOL:
        raise InvocationFailed("a tool's message must hold its output", "INVALID_HISTORY", StatusCode.INVALID_ARGUMENT)
    return SystemPromptPart(_text(part)) if role == ROLE_SYSTEM else UserPromptPart(_text(part))


def _tool_return(output: ToolOutput, name: str) -> ToolReturnPart:
    if output.HasField("result"):
        return ToolReturnPart(name, json_text(output.result), output.call_id)
    return ToolReturnPart(name, output.error.message or "failed", output.call_id, outcome="failed")


def _text(part: Part) -> str:
    match part.WhichOneof("content"):
        case "text":
            return part.text
        case "data":
            return json_text(part.data)
        case kind:
            message = f"this agent takes text, not {part.blob.media_type or kind}"
            raise InvocationFailed(message, "UNSUPPORTED_MEDIA_TYPE", StatusCode.INVALID_ARGUMENT)


def _tool_spec(tool: Tool) -> ToolSpec:
    definition = tool.tool_def
    return ToolSpec(
        name=definition.name,
        version="1.0.0",
        description=definition.description,
        input_schema=json_of(definition.parameters_json_schema),
        type="function",
    )


def _usage(usage: RequestUsage) -> Usage:
    # pydantic-ai has 0 for what a provider does not report, so only the totals can be taken at their word.
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens or None,
        cache_write_tokens=usage.cache_write_tokens or None,
        reasoning_tokens=usage.output_reasoning_tokens or None,
    )


async def _unreachable() -> None:
    raise AssertionError("a stub never runs a tool")
