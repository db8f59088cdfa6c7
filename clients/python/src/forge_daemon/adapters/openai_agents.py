"""An agent of the OpenAI Agents SDK behind the protocol, as it is.

Hooks of the SDK tell the turn what models do. The function tools of every agent that runs, those after a handoff and
those of MCP servers as well, ask the turn before they run.
"""

import asyncio
import functools
import json
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from forge_daemon import functions
from forge_daemon.adapters import expects, needs
from forge_daemon.agent import CAPABILITIES, Agent
from forge_daemon.proto.agent_pb2 import TOOL_MODE_STUB
from forge_daemon.proto.invoke_pb2 import FINISH_REASON_INPUT_REQUIRED, FINISH_REASON_REFUSED
from forge_daemon.proto.values_pb2 import ROLE_ASSISTANT, ROLE_SYSTEM, ROLE_TOOL, Json, Message, Part
from forge_daemon.tools import Tool
from forge_daemon.turn import InvocationFailed, ToolCall, ToolFailed, Turn
from forge_daemon.values import json_of, json_text

needs("from_openai_agents", "openai-agents", "0.24", "1", "openai-agents")

import agents
from agents.exceptions import InputGuardrailTripwireTriggered, OutputGuardrailTripwireTriggered
from agents.handoffs import Handoff
from agents.items import ItemHelpers
from agents.lifecycle import RunHooks
from agents.tool import FunctionTool

__all__ = ["from_openai_agents", "history"]


def _runs_tools_as_known() -> bool:
    """Whether a tool is called where `_let_tool_ask` stands, and a handoff knows its agent."""
    agent = agents.Agent(name="probe")
    made = agents.function_tool(_unreachable)
    return asyncio.iscoroutinefunction(made.on_invoke_tool._invoke_tool_impl) and (  # type: ignore[attr-defined]
        agents.handoff(agent)._agent_ref() is agent  # type: ignore[misc]
    )


WITHOUT_MODES = tuple(one for one in CAPABILITIES if not one.startswith("tools."))


def from_openai_agents(
    agent: "agents.Agent[Any]",
    *,
    context: Any = None,
    stream: bool = False,
    max_turns: int | None = agents.run.DEFAULT_MAX_TURNS,
    run_config: "agents.RunConfig | None" = None,
    id: str = "",
    version: str = "0",
    tool_versions: str = "",
    **more: Any,
) -> Agent:
    """An agent of the OpenAI Agents SDK, as it is, with its function tools and those of the agents that it hands off
    to.

    `context` is what the SDK calls so, or a function of the turn that gives it. `stream` asks the model for a stream,
    so that the text is seen as it is produced. `max_turns` and `run_config` are given to the SDK's `Runner`. Output
    that is no text is the JSON of it. What else `Agent` takes is taken, too.

    Tools that run at OpenAI, such as web search, are reported. They cannot be stubbed or left out: an agent that has
    one declares neither stubs nor routing.
    """
    if not isinstance(agent, agents.Agent):
        raise TypeError(f"from_openai_agents: an Agent of the OpenAI Agents SDK, not {type(agent).__name__}")
    known = list(_reachable(agent))

    async def answer(turn: Turn) -> str:
        reporter = _Reporter(turn)
        given: Any = history(turn.messages)
        options: dict[str, Any] = {
            "context": await functions.call(context, turn) if callable(context) else context,
            "max_turns": max_turns,
            "hooks": reporter,
            "run_config": run_config,
        }
        token = _reporter.set(reporter)
        try:
            if stream and turn.start.want_deltas:
                result: Any = await _streamed(turn, reporter, agents.Runner.run_streamed(agent, given, **options))
            else:
                result = await agents.Runner.run(agent, given, **options)
        except (InputGuardrailTripwireTriggered, OutputGuardrailTripwireTriggered) as refusal:
            turn.log(f"{refusal}", "warn")
            turn._ending = FINISH_REASON_REFUSED
            return ""
        finally:
            _reporter.reset(token)
        if result.interruptions:
            turn._ending = FINISH_REASON_INPUT_REQUIRED
            return "Approval needed: " + ", ".join(str(one.name) for one in result.interruptions)
        output = result.final_output
        return output if isinstance(output, str) else json_text(json_of(output))

    more.setdefault("tools", _tools(known, tool_versions))
    more.setdefault("capabilities", CAPABILITIES if all(_is_local(one) for one in known) else WITHOUT_MODES)
    more.setdefault("name", agent.name)
    more.setdefault("model", _model_name(agent))
    return Agent(answer, id=id or agent.name or "agent", version=version, **more)


async def _streamed(turn: Turn, reporter: "_Reporter", result: Any) -> Any:
    """Says the text of the model as it comes."""
    reporter.is_streamed = True
    try:
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                turn.say(event.data.delta)
    finally:
        result.cancel()
    return result


_reporter: ContextVar["_Reporter | None"] = ContextVar("forge_reporter", default=None)


class _Reporter(RunHooks[Any]):
    """Tells one turn what one run of an agent does."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.is_streamed = False
        self.calls: dict[str, ToolCall] = {}
        self._model: tuple[Any, Any] | None = None

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        """An agent begins: the first one, or one after a handoff."""
        _let_ask(agent)

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        """One agent hands off to another, which is no tool of either."""
        self.turn.log(f"{from_agent.name} hands off to {to_agent.name}")

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
        """A model is about to be called."""
        inside = self.turn.model_turn()
        self._model = inside, inside.__enter__()

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        """A model has answered: its calls are announced, in its order, before any of them runs."""
        if self._model is not None:
            inside, record = self._model
            self._model = None
            _fill(record, agent, response)
            inside.__exit__(None, None, None)
        texts = [ItemHelpers.extract_text(item) for item in response.output if item.type == "message"]
        if not self.is_streamed:
            self.turn.partial_answer = "".join(text for text in texts if text)
        handoffs = set(_handoff_names(agent))
        for item in response.output:
            if item.type == "function_call" and item.name not in handoffs:
                self.calls[item.call_id] = self.turn.start_tool(item.name, item.arguments or None, item.call_id)
            elif item.type.endswith("_call") and item.type != "function_call":
                _report_hosted(self.turn, item)
        self.turn.stop_if_routing_only()


def _let_ask(agent: "agents.Agent[Any]") -> None:
    """Lets the tools of an agent ask the turn under way before they run; without one they do what they always did.

    Tools of MCP servers are made anew whenever the agent lists its tools, so that is where they are met.
    """
    if getattr(agent.get_all_tools, "forge_asks", False):
        return
    list_tools = agent.get_all_tools

    @functools.wraps(list_tools)
    async def get_all_tools(*args: Any, **kwargs: Any) -> Any:
        tools = await list_tools(*args, **kwargs)
        for one in tools:
            if isinstance(one, FunctionTool):
                _let_tool_ask(one)
        return tools

    get_all_tools.forge_asks = True  # type: ignore[attr-defined]
    object.__setattr__(agent, "get_all_tools", get_all_tools)


def _let_tool_ask(tool: FunctionTool) -> None:
    """Stands within the SDK's handling of errors, where it has one, as the tool itself does.

    The public `on_invoke_tool` is all that a tool made by hand has. That of a decorated one gives the model a text in
    place of an error, in words of its author, and a failed call would be told as one that worked.
    """
    invoker: Any = tool.on_invoke_tool
    place, name = (invoker, "_invoke_tool_impl") if hasattr(invoker, "_invoke_tool_impl") else (tool, "on_invoke_tool")
    invoke = getattr(place, name)
    if getattr(invoke, "forge_asks", False):
        return

    @functools.wraps(invoke)
    async def ask(context: Any, arguments: str) -> Any:
        reporter = _reporter.get()
        if reporter is None:
            return await invoke(context, arguments)
        call = reporter.calls.get(getattr(context, "tool_call_id", ""))
        if call is None:
            call = reporter.turn.start_tool(tool.name, arguments or None)
        if reporter.turn.tool_mode == TOOL_MODE_STUB:
            try:
                return await call.run(_unreachable)
            except ToolFailed as failure:
                return str(failure)  # The SDK knows errors of tools as texts for the model.
        try:
            result = await invoke(context, arguments)
        except Exception as error:
            call._failed(error)
            raise  # What the SDK makes of it is the agent's own business.
        call._succeeded(_reported(result))
        return result

    ask.forge_asks = True  # type: ignore[attr-defined]
    setattr(place, name, ask)


def _reachable(agent: "agents.Agent[Any]") -> Iterator["agents.Agent[Any]"]:
    """The agent, and those that it is known to hand off to."""
    seen: list[Any] = []
    pending: list[Any] = [agent]
    while pending:
        one = pending.pop(0)
        if isinstance(one, Handoff):
            reference = getattr(one, "_agent_ref", None)
            one = reference() if callable(reference) else None
        if isinstance(one, agents.Agent) and not any(one is other for other in seen):
            seen.append(one)
            pending += one.handoffs
            yield one


def _is_local(agent: "agents.Agent[Any]") -> bool:
    return all(isinstance(one, FunctionTool) for one in agent.tools)


def _handoff_names(agent: Any) -> Iterator[str]:
    for one in agent.handoffs:
        yield one.tool_name if isinstance(one, Handoff) else Handoff.default_tool_name(one)


def _model_name(agent: Any) -> str:
    return agent.model if isinstance(agent.model, str) else str(getattr(agent.model, "model", "") or "")


def _tools(known: Sequence["agents.Agent[Any]"], version: str) -> list[Tool[..., Any]]:
    found: dict[str, Tool[..., Any]] = {}
    for agent in known:
        for one in agent.tools:
            if isinstance(one, FunctionTool):
                schema = one.params_json_schema
                found.setdefault(one.name, Tool(one.on_invoke_tool, one.name, one.description, schema, version))
    return list(found.values())


def _reported(result: Any) -> Any:
    """What a tool returned, as far as it is JSON; else the text that the SDK makes of it for the model."""
    try:
        json_of(result)
    except (TypeError, ValueError):
        return str(result)
    if isinstance(result, str) and result.lstrip()[:1] in ("{", "["):
        try:
            json.loads(result)
        except ValueError:
            return result
        return result.encode()  # JSON that the tool has printed itself.
    return result


def _report_hosted(turn: Turn, item: Any) -> None:
    """A tool that ran where the model is: what is known of it."""
    given = getattr(item, "arguments", None) or getattr(item, "action", None) or getattr(item, "queries", None)
    unknown = None if given is not None else "the model's host does not tell"
    name = getattr(item, "name", None) or item.type.removesuffix("_call")
    call = turn.start_tool(name, given, getattr(item, "id", "") or "", params_unknown=unknown)
    if error := getattr(item, "error", None):
        call.fail(str(error))
    elif (output := getattr(item, "output", None)) is not None:
        call._succeeded(output)
    else:
        call._close(result=Json())


def _fill(record: Any, agent: Any, response: Any) -> None:
    """What is known of a model's answer."""
    record.model = _model_name(agent)
    record.response_id = response.response_id or ""
    usage = response.usage
    if not usage.input_tokens and not usage.output_tokens:
        return  # The SDK has 0 for what nobody measured.
    record.usage.input_tokens, record.usage.output_tokens = usage.input_tokens, usage.output_tokens
    if cached := usage.input_tokens_details.cached_tokens:
        record.usage.cache_read_tokens = cached
    if reasoning := usage.output_tokens_details.reasoning_tokens:
        record.usage.reasoning_tokens = reasoning


def history(messages: Sequence[Message]) -> list[Any]:
    """A conversation in items of the Responses API: same order, same roles, tool calls with their results."""
    return [item for message in messages for part in message.parts for item in _items(message.role, part)]


def _items(role: int, part: Part) -> Iterator[dict[str, Any]]:
    match part.WhichOneof("content"):
        case "tool_use":
            use = part.tool_use
            arguments = json_text(use.arguments) or "{}"
            yield {"type": "function_call", "call_id": use.call_id, "name": use.name, "arguments": arguments}
        case "tool_output":
            output = part.tool_output
            text = json_text(output.result) if output.HasField("result") else output.error.message or "failed"
            yield {"type": "function_call_output", "call_id": output.call_id, "output": text}
        case "reasoning":
            return
        case "text" | "data" if role != ROLE_TOOL:
            speakers: dict[int, str] = {ROLE_ASSISTANT: "assistant", ROLE_SYSTEM: "system"}
            yield {"role": speakers.get(role, "user"), "content": part.text or json_text(part.data)}
        case kind:
            message = f"this agent takes text, not {part.blob.media_type or kind}"
            raise InvocationFailed(message, "UNSUPPORTED_MEDIA_TYPE")


async def _unreachable() -> Any:
    raise AssertionError("a stub never runs a tool")


expects("from_openai_agents", "openai-agents", "0.24", "1", "0.24.0", _runs_tools_as_known)
