"""An agent of Google's Agent Development Kit behind the protocol, as it is.

A plugin of the ADK tells the turn what models do, and answers in place of a tool when a suite brings a stub for it.
"""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from forge_daemon.adapters import expects, needs
from forge_daemon.agent import CAPABILITIES, Agent
from forge_daemon.proto.agent_pb2 import TOOL_MODE_STUB
from forge_daemon.proto.values_pb2 import ROLE_ASSISTANT, ROLE_SYSTEM, ROLE_TOOL, Message, Part
from forge_daemon.tools import Tool
from forge_daemon.turn import InvocationFailed, ToolCall, ToolFailed, Turn
from forge_daemon.values import json_of, json_text

needs("from_google_adk", "google-adk", "2.13", "3", "google-adk")

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode  # type: ignore[attr-defined]
from google.adk.apps import App
from google.adk.events import Event
from google.adk.models import BaseLlm
from google.adk.plugins import BasePlugin
from google.adk.runners import InMemoryRunner
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.genai import types

__all__ = ["from_google_adk"]


def _declares_tools_as_known() -> bool:
    """Whether tools say what they are where the ADK itself asks them, for which there is no public name."""
    return FunctionTool(_declares_tools_as_known)._get_declaration().name == "_declares_tools_as_known"  # type: ignore[union-attr]


expects("from_google_adk", "google-adk", "2.13", "3", "2.13.0", _declares_tools_as_known)

USER = "user"
OF_THE_KIT = ("transfer_to_agent", "set_model_response", "exit_loop", "adk_")
"""Calls by which a model steers the ADK itself. They are no tools of the agent, and run in every mode."""

WITHOUT_MODES = tuple(one for one in CAPABILITIES if not one.startswith("tools."))


def from_google_adk(
    agent: "BaseAgent | App",
    *,
    stream: bool = False,
    state: "dict[str, Any] | None" = None,
    run_config: "RunConfig | None" = None,
    id: str = "",
    version: str = "0",
    tool_versions: str = "",
    **more: Any,
) -> Agent:
    """An agent of Google's ADK, or an app of one with its plugins, as it is, with the tools of all its agents.

    Each turn has a session of its own with the conversation in it, and nothing is remembered; `state` is the state with
    which it begins. `stream` asks models for streams, so that text is seen as it is produced. `run_config` is given to
    the ADK's runner. What else `Agent` takes is taken, too.

    The ADK wants results of tools to be objects: a stub that is none reaches the model as `{"result": …}`, and one that
    fails as `{"error": …}`. System messages of a suite are added to the agent's instruction. Tools that run at Google,
    such as its search, are not seen, and cannot be stubbed: an agent that has one declares neither stubs nor routing.
    """
    if not isinstance(agent, BaseAgent | App):
        raise TypeError(f"from_google_adk: an agent or an App of Google's ADK, not {type(agent).__name__}")
    plugin = _Reporting()
    root: Any = agent.root_agent if isinstance(agent, App) else agent
    app = App(name="forge", root_agent=root) if isinstance(agent, BaseAgent) else agent
    # Last, so that it stands where the tool itself does, within the app's own plugins.
    runner = InMemoryRunner(app=app.model_copy(update={"plugins": [*app.plugins, plugin]}))
    known = list(_reachable(root))
    settings = (run_config or RunConfig()).model_copy()

    async def answer(turn: Turn) -> str:
        messages, system = _split(turn.messages)
        names = {part.tool_use.call_id: part.tool_use.name for message in messages for part in message.parts}
        about = {"app_name": runner.app_name, "user_id": USER, "session_id": turn.start.invocation_id}
        session = await runner.session_service.create_session(**about, state=dict(state or {}))
        for message in messages[:-1]:
            await runner.session_service.append_event(session, _event(message, root.name, names))
        is_streamed = stream and turn.start.want_deltas
        plugin.runs[session.id] = _Run(turn, system, is_streamed)
        text, error = "", ""
        try:
            async for event in runner.run_async(
                user_id=USER,
                session_id=session.id,
                new_message=_content(messages[-1], names) if messages else types.Content(role="user", parts=[]),
                run_config=settings.model_copy(update={"streaming_mode": StreamingMode.SSE})
                if is_streamed
                else settings,
            ):
                said = _text(event)
                if event.partial:
                    turn.say(said)
                elif event.is_final_response():
                    text = said or text
                    error = "" if said else event.error_message or event.error_code or error
        finally:
            del plugin.runs[session.id]
            await runner.session_service.delete_session(**about)
        if error and not text:
            raise InvocationFailed(error, "MODEL_ERROR")
        return text

    more.setdefault("tools", _tools(known, tool_versions))
    more.setdefault("capabilities", CAPABILITIES if all(_is_local(one) for one in known) else WITHOUT_MODES)
    more.setdefault("name", root.name)
    more.setdefault("description", root.description)
    more.setdefault("model", _model_name(root))
    return Agent(answer, id=id or root.name, version=version, **more)


class _Run:
    """What is known of one turn while it runs."""

    def __init__(self, turn: Turn, system: list[str], is_streamed: bool) -> None:
        self.turn = turn
        self.system = system
        self.is_streamed = is_streamed
        self.calls: dict[str, ToolCall] = {}
        #: The calls of models that are under way, by the agent that made them.
        self.models: dict[str, tuple[Any, Any]] = {}

    def begin_model(self, agent_name: str) -> None:
        """A model is about to be called."""
        inside = self.turn.model_turn()
        self.models[agent_name] = inside, inside.__enter__()

    def end_model(self, agent_name: str, response: Any) -> None:
        """A model has answered: its calls are announced, in its order, before any of them runs."""
        if agent_name not in self.models:
            self.begin_model(agent_name)  # A plugin has answered in its place.
        inside, record = self.models.pop(agent_name)
        _fill(record, response)
        inside.__exit__(None, None, None)
        parts = response.content.parts or [] if response.content else []
        if not self.is_streamed:
            self.turn.partial_answer = "".join(part.text for part in parts if part.text and not part.thought)
        for part in parts:
            call = part.function_call
            if call is None or str(call.name).startswith(OF_THE_KIT):
                continue
            # The ADK would make one up itself, but only after this.
            call.id = call.id or f"adk-{uuid.uuid4()}"
            self.calls[call.id] = self.turn.start_tool(call.name or "", call.args, call.id)
        self.turn.stop_if_routing_only()


class _Reporting(BasePlugin):
    """Tells turns what runs do. It knows them by their sessions: of those of agents in tools it tells nothing."""

    def __init__(self) -> None:
        super().__init__(name="forge")
        self.runs: dict[str, _Run] = {}

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        """A model is about to be called."""
        if run := self.runs.get(callback_context.session.id):
            if run.system:
                llm_request.append_instructions(run.system)
            run.begin_model(callback_context.agent_name)

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        """A model has answered."""
        run = self.runs.get(callback_context.session.id)
        if run and not llm_response.partial:
            run.end_model(callback_context.agent_name, llm_response)

    async def before_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: Any) -> Any:
        """A tool is about to run; with stubs the daemon answers in its place."""
        call = self._call(tool, tool_args, tool_context)
        if call is None or call._turn.tool_mode != TOOL_MODE_STUB:
            return None
        try:
            return _object(await call.run(_unreachable))
        except ToolFailed as failure:
            return {"error": str(failure)}

    async def after_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: Any, result: Any) -> None:
        """A tool has run."""
        call = self._call(tool, tool_args, tool_context)
        if call is not None and call.is_open:
            call._succeeded(_reported(result))

    async def on_tool_error_callback(self, *, tool: Any, tool_args: Any, tool_context: Any, error: Any) -> None:
        """A tool has failed, or there is none of that name. What the ADK makes of it is the agent's own business."""
        call = self._call(tool, tool_args, tool_context)
        if call is None or not call.is_open or not isinstance(error, Exception):
            return
        if isinstance(error, ValueError) and str(error).startswith("Tool '") and type(tool) is BaseTool:
            call.fail(str(error).partition("\n")[0])
        else:
            call._failed(error)

    def _call(self, tool: Any, tool_args: Any, tool_context: Any) -> ToolCall | None:
        run = self.runs.get(tool_context.session.id)
        if run is None or tool.name.startswith(OF_THE_KIT):
            return None
        id = tool_context.function_call_id or ""
        if id not in run.calls:
            run.calls[id] = run.turn.start_tool(tool.name, tool_args, id)
        return run.calls[id]


def _reachable(agent: Any) -> Iterator[Any]:
    yield agent
    for one in agent.sub_agents:
        yield from _reachable(one)


def _own_tools(agent: Any) -> Iterator[Any]:
    """The tools that are known before anything runs; those of toolsets are not."""
    for one in agent.tools if isinstance(agent, LlmAgent) else ():
        if isinstance(one, BaseTool):
            yield one
        elif callable(one):
            yield FunctionTool(one)


def _is_local(agent: Any) -> bool:
    return all(one._get_declaration() is not None for one in _own_tools(agent))


def _tools(known: Sequence[Any], version: str) -> list[Tool[..., Any]]:
    found: dict[str, Tool[..., Any]] = {}
    for agent in known:
        for one in _own_tools(agent):
            declared = one._get_declaration()
            if declared is not None:
                schema = declared.parameters_json_schema
                if schema is None and declared.parameters is not None:
                    schema = declared.parameters.json_schema.model_dump(mode="json", exclude_none=True)
                run = getattr(one, "func", one.run_async)
                found.setdefault(one.name, Tool(run, one.name, declared.description or "", schema, version))
    return list(found.values())


def _model_name(agent: Any) -> str:
    model = getattr(agent, "model", "")
    return model.model if isinstance(model, BaseLlm) else str(model or "")


def _text(event: Any) -> str:
    parts = event.content.parts or [] if event.content else []
    return "".join(part.text for part in parts if part.text and not part.thought)


def _object(text: str) -> dict[str, Any]:
    """A stub as the ADK gives results to models."""
    try:
        value = json.loads(text) if text else None
    except ValueError:
        value = text
    return value if isinstance(value, dict) else {"result": value}


def _reported(result: Any) -> Any:
    """What a tool returned, as far as it is JSON; else as text."""
    try:
        json_of(result)
    except (TypeError, ValueError):
        return str(result)
    return result


def _fill(record: Any, response: Any) -> None:
    """What is known of a model's answer."""
    record.model = response.model_version or ""
    record.finish_reason = str(getattr(response.finish_reason, "value", response.finish_reason) or "")
    if usage := response.usage_metadata:
        if usage.prompt_token_count is not None:
            record.usage.input_tokens = usage.prompt_token_count
        if usage.candidates_token_count is not None:
            record.usage.output_tokens = usage.candidates_token_count + (usage.thoughts_token_count or 0)
        if usage.cached_content_token_count is not None:
            record.usage.cache_read_tokens = usage.cached_content_token_count
        if usage.thoughts_token_count is not None:
            record.usage.reasoning_tokens = usage.thoughts_token_count


def _split(messages: Sequence[Message]) -> tuple[list[Message], list[str]]:
    """The conversation, and the texts of its system messages: contents of the ADK have no role for those."""
    system = ["".join(part.text for part in one.parts) for one in messages if one.role == ROLE_SYSTEM]
    return [one for one in messages if one.role != ROLE_SYSTEM], system


def _event(message: Message, agent_name: str, names: Mapping[str, str]) -> Any:
    author = agent_name if message.role in (ROLE_ASSISTANT, ROLE_TOOL) else USER
    return Event(author=author, content=_content(message, names))


def _content(message: Message, names: Mapping[str, str]) -> Any:
    parts = [_part(part, names) for part in message.parts if part.WhichOneof("content") != "reasoning"]
    return types.Content(role="model" if message.role == ROLE_ASSISTANT else "user", parts=parts)


def _part(part: Part, names: Mapping[str, str]) -> Any:
    match part.WhichOneof("content"):
        case "text" | "data":
            return types.Part(text=part.text or json_text(part.data))
        case "tool_use":
            use = part.tool_use
            arguments = json.loads(json_text(use.arguments) or "{}")
            return types.Part(function_call=types.FunctionCall(id=use.call_id, name=use.name, args=arguments))
        case "tool_output":
            output = part.tool_output
            failed = {"error": output.error.message or "failed"}
            given = _object(json_text(output.result)) if output.HasField("result") else failed
            name = names.get(output.call_id, "")
            return types.Part(function_response=types.FunctionResponse(id=output.call_id, name=name, response=given))
        case "blob" if part.blob.WhichOneof("source") == "inline":
            return types.Part.from_bytes(data=part.blob.inline, mime_type=part.blob.media_type)
        case kind:
            message = f"this agent does not take {part.blob.media_type or kind} in this form"
            raise InvocationFailed(message, "UNSUPPORTED_MEDIA_TYPE")


async def _unreachable() -> Any:
    raise AssertionError("a stub never runs a tool")
