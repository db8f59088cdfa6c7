"""A pydantic-ai agent behind the protocol, as it is.

A capability of pydantic-ai (its word for hooks around a run) tells the turn what the model does, and stands between
the model's calls and the real tools.
"""

from collections.abc import AsyncIterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from grpc import StatusCode

from forge_daemon import functions
from forge_daemon.adapters import needs
from forge_daemon.agent import CAPABILITIES, Agent
from forge_daemon.proto.agent_pb2 import TOOL_MODE_STUB
from forge_daemon.proto.values_pb2 import (
    ROLE_ASSISTANT,
    ROLE_SYSTEM,
    ROLE_TOOL,
    Message,
    Part,
    ToolOutput,
    Usage,
)
from forge_daemon.tools import Tool
from forge_daemon.turn import InvocationFailed, ToolCall, ToolFailed, Turn
from forge_daemon.values import json_text

needs("from_pydantic_ai", "pydantic-ai-slim", "2.68", "3", "pydantic-ai")

import pydantic_ai
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ToolFailed as ModelSeesFailure
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    SystemPromptPart,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolReturn,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset
from pydantic_ai.usage import RequestUsage
from pydantic_core import to_json

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

__all__ = ["from_pydantic_ai", "history", "instrument"]


def from_pydantic_ai(
    agent: "pydantic_ai.Agent[Any, Any]",
    *,
    deps: Any = None,
    stream: bool = False,
    id: str = "",
    version: str = "0",
    tool_versions: str = "",
    capabilities: tuple[str, ...] = CAPABILITIES,
    **more: Any,
) -> Agent:
    """An agent of pydantic-ai as it is, with its tools and output types. The conversation is its message history.

    `deps` is what the agent's `deps_type` asks for, or a function of the turn that gives it. `stream` asks the model
    for a stream, so that the text is seen as it is produced. Output that is no text is the JSON of it. `id` is the
    agent's name unless it says otherwise, and `tool_versions` is the version of all its tools; what else `Agent`
    takes is taken, too. Files reach the model if `input_media_types` says that the agent takes some.

    Tools that toolsets find out only while they run, such as those of an MCP server, are reported and stubbed like
    any other, and stand on the card if they are given as `tools`: see `forge_daemon.adapters.mcp`.
    """
    if not isinstance(agent, pydantic_ai.Agent | pydantic_ai.agent.WrapperAgent):
        raise TypeError(f"from_pydantic_ai: an Agent of pydantic-ai, not {type(agent).__name__}")
    model = agent.model if isinstance(agent.model, Model) else None
    named = agent.model if isinstance(agent.model, str) else ""
    takes_files = bool(more.get("input_media_types"))

    async def answer(turn: Turn) -> str:
        reporter = _Reporter(turn)
        result = await agent.run(
            message_history=history(turn.messages, takes_files=takes_files),
            deps=await functions.call(deps, turn) if callable(deps) and not isinstance(deps, type) else deps,
            capabilities=[reporter],
            event_stream_handler=reporter.hear if stream and turn.start.want_deltas else None,
        )
        # Only now is it known that this text is the answer: what a model says before it calls a tool is not.
        return result.output if isinstance(result.output, str) else to_json(result.output).decode()

    more.setdefault("tools", _tools(agent.toolsets, tool_versions))
    more.setdefault("name", agent.name or "")
    more.setdefault("provider", model.system if model else named.partition(":")[0] if ":" in named else "")
    more.setdefault("model", model.model_name if model else named.rpartition(":")[2])
    return Agent(answer, id=id or agent.name or "agent", version=version, capabilities=capabilities, **more)


def instrument(provider: "TracerProvider") -> None:
    """Lets every agent of this process write spans, with what its model said and what its tools got and gave."""
    from pydantic_ai.models.instrumented import InstrumentationSettings

    pydantic_ai.Agent.instrument_all(InstrumentationSettings(tracer_provider=provider, include_content=True))


@dataclass
class _Reporter(AbstractCapability[Any]):
    """Tells one turn what one run of an agent does."""

    turn: Turn
    calls: dict[str, ToolCall] = field(default_factory=dict)
    is_streamed: bool = False

    async def hear(self, ctx: Any, events: AsyncIterable[Any]) -> None:
        """Says the text of the model as it comes, and its reasoning apart from that."""
        self.is_streamed = True
        async for event in events:
            if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                self.turn.say(event.part.content)
            elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                self.turn.say(event.delta.content_delta)
            elif isinstance(event, PartStartEvent) and isinstance(event.part, ThinkingPart):
                self.turn.reason(event.part.content)
            elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, ThinkingPartDelta):
                self.turn.reason(event.delta.content_delta or "")

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
        if not self.is_streamed:
            self.turn.partial_answer = response.text or ""
        # A call of one of these is how the model gives structured output: the answer, and no tool.
        outputs = {tool.name for tool in request_context.model_request_parameters.output_tools}
        for part in response.tool_calls:
            if part.tool_name in outputs:
                continue
            # A text is what the model wrote. None and "" are how models call a tool without arguments.
            params = None if part.args in (None, "") else part.args
            self.calls[part.tool_call_id] = self.turn.start_tool(part.tool_name, params, part.tool_call_id)
        self.turn.stop_if_routing_only()
        return response

    async def wrap_tool_validate(self, ctx: Any, *, call: ToolCallPart, tool_def: Any, args: Any, handler: Any) -> Any:
        """With stubs no argument is wrong: the suite decides what comes back."""
        if self.turn.tool_mode == TOOL_MODE_STUB and call.tool_call_id in self.calls:
            return call.args_as_dict()
        return await handler(args)

    async def wrap_tool_execute(self, ctx: Any, *, call: ToolCallPart, tool_def: Any, args: Any, handler: Any) -> Any:
        """Runs the tool, or takes the stub's answer for it; then the model reads exactly the text of the stub."""
        announced = self.calls.get(call.tool_call_id)
        if announced is None:
            return await handler(args)  # Output, or a call that pydantic-ai has made up itself.
        given: list[Any] = []
        raised: list[Exception] = []

        async def tool() -> Any:
            try:
                given.append(await handler(args))
            except Exception as error:
                raised.append(error)
                if type(error).__module__.startswith("pydantic_ai"):
                    raise ToolFailed(str(error)) from error  # That is how a tool tells its model something.
                raise
            return _plain(given[0])

        try:
            text = await announced.run(tool)
        except ToolFailed as failure:
            if raised:
                raise raised[0] from None  # What pydantic-ai makes of it is the agent's own business.
            raise ModelSeesFailure(str(failure)) from failure
        return given[0] if given else text

    async def _settle_refused_calls(self, request: ModelMessage) -> None:
        """Closes calls that pydantic-ai answered itself: of unknown tools, or with arguments that do not fit."""
        part: Any
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


def history(messages: Sequence[Message], *, takes_files: bool = False) -> list[ModelMessage]:
    """A conversation in pydantic-ai's messages: same order, same roles, nothing left out."""
    tool_names = {part.tool_use.call_id: part.tool_use.name for message in messages for part in message.parts}
    return [
        ModelResponse(parts=[_said(part) for part in message.parts])
        if message.role == ROLE_ASSISTANT
        else ModelRequest(parts=[_heard(message.role, part, tool_names, takes_files) for part in message.parts])
        for message in messages
    ]


def _said(part: Part) -> TextPart | ToolCallPart | ThinkingPart:
    match part.WhichOneof("content"):
        case "tool_use":
            return ToolCallPart(part.tool_use.name, json_text(part.tool_use.arguments), part.tool_use.call_id)
        case "reasoning":
            return ThinkingPart(part.reasoning)
    return TextPart(_text(part))


def _heard(
    role: int, part: Part, tool_names: dict[str, str], takes_files: bool
) -> SystemPromptPart | UserPromptPart | ToolReturnPart:
    if part.WhichOneof("content") == "tool_output":
        return _tool_return(part.tool_output, tool_names.get(part.tool_output.call_id, ""))
    if role == ROLE_TOOL:
        raise InvocationFailed("a tool's message must hold its output", "INVALID_HISTORY", StatusCode.INVALID_ARGUMENT)
    if role == ROLE_SYSTEM:
        return SystemPromptPart(_text(part))
    if takes_files and part.WhichOneof("content") == "blob" and (found := _file(part)):
        return UserPromptPart([found])
    return UserPromptPart(_text(part))


def _file(part: Part) -> BinaryContent | ImageUrl | None:
    match part.blob.WhichOneof("source"):
        case "inline":
            return BinaryContent(part.blob.inline, media_type=part.blob.media_type)
        case "uri" if part.blob.media_type.startswith("image/"):
            return ImageUrl(part.blob.uri)
    return None


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


def _tools(toolsets: Sequence["AbstractToolset[Any]"], version: str) -> list[Tool[..., Any]]:
    """The tools of functions, which are known before anything runs."""
    found: dict[str, Tool[..., Any]] = {}

    def visit(toolset: "AbstractToolset[Any]") -> None:
        if isinstance(toolset, FunctionToolset):
            for name, tool in toolset.tools.items():
                definition = tool.tool_def
                schema = definition.parameters_json_schema
                found[name] = Tool(tool.function, name, definition.description or "", schema, version)

    for toolset in toolsets:
        toolset.apply(visit)
    return list(found.values())


def _plain(result: Any) -> bytes:
    """What a tool returned, as the JSON that the model reads."""
    return to_json(result.return_value if isinstance(result, ToolReturn) else result)


def _usage(usage: RequestUsage) -> Usage:
    # pydantic-ai has 0 for what a provider does not report, so only the totals can be taken at their word.
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens or None,
        cache_write_tokens=usage.cache_write_tokens or None,
        reasoning_tokens=usage.output_reasoning_tokens or None,
    )


async def _unreachable() -> Any:
    raise AssertionError("a stub never runs a tool")
