"""A graph of LangGraph behind the protocol, as it is; an agent of LangChain's `create_agent` is one.

A handler of LangChain's callbacks tells the turn what models and tools do. The nodes that run tools (`ToolNode`) ask
the turn before they run one, so that a stub may stand in its place.
"""

import asyncio
import inspect
import json
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar
from uuid import UUID

from forge_daemon import functions
from forge_daemon.adapters import expects, needs
from forge_daemon.agent import CAPABILITIES, Agent
from forge_daemon.proto.agent_pb2 import TOOL_MODE_LIVE, TOOL_MODE_STUB
from forge_daemon.proto.invoke_pb2 import FINISH_REASON_INPUT_REQUIRED
from forge_daemon.proto.values_pb2 import ROLE_ASSISTANT, ROLE_SYSTEM, ROLE_TOOL, Message, Part, ToolUse
from forge_daemon.tools import Tool
from forge_daemon.turn import InvocationFailed, ToolCall, ToolFailed, Turn
from forge_daemon.values import json_of, json_text, text_of

if tuple(sys.version_info) < (3, 11):
    # Models and tools would run unseen.
    raise ImportError("from_langgraph needs Python 3.11: before it LangChain does not hand callbacks on to async code")
needs("from_langgraph", "langgraph", "1.2", "2", "langgraph")
needs("from_langgraph", "langgraph-prebuilt", "1.1.3", "2", "langgraph")

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages import ToolCall as LangChainCall
from langchain_core.outputs import LLMResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph.state import StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel

__all__ = ["from_langgraph", "history"]


def _runs_tools_as_known() -> bool:
    """Whether a tool node calls its tools where `_let_ask` stands."""
    found = [inspect.signature(one).parameters for one in (ToolNode._execute_tool_sync, ToolNode._execute_tool_async)]
    return all(list(one)[:2] == ["self", "request"] for one in found)


expects("from_langgraph", "langgraph-prebuilt", "1.1.3", "2", "1.1.3", _runs_tools_as_known)

T = TypeVar("T")

WITHOUT_STUBS = tuple(one for one in CAPABILITIES if one != "tools.stub")


def from_langgraph(
    graph: "Pregel[Any, Any, Any, Any]",
    *,
    input: Callable[[Turn], Any] | None = None,
    output: Callable[[Any], str] | None = None,
    config: Mapping[str, Any] | None = None,
    context: Any = None,
    stream: bool = False,
    id: str = "",
    version: str = "0",
    tool_versions: str = "",
    **more: Any,
) -> Agent:
    """A compiled graph of LangGraph, as it is, with the tools of its tool nodes.

    `input` makes the graph's input of the turn; left out it is `{"messages": …}` with the conversation. `output`
    makes the answer of the state in which the graph ends; left out it is the JSON of `structured_response`, if there
    is one, else the text of the last message. `config` and `context` are given to the graph, each run in a thread
    (LangGraph's word) of its own, so that a checkpointer remembers nothing. `stream` asks models for streams, so that
    text is seen as it is produced. What else `Agent` takes is taken, too.

    Tools that run elsewhere than in a `ToolNode` are reported. They cannot be stubbed, and a turn with stubs that
    comes to one fails; a graph without any tool node does not declare stubs.
    """
    if isinstance(graph, StateGraph):
        raise TypeError("from_langgraph: a compiled graph, not a StateGraph; call .compile() on it")
    if not isinstance(graph, Pregel):
        raise TypeError(f"from_langgraph: a compiled graph of LangGraph, not {type(graph).__name__}")
    nodes = list(_tool_nodes(graph))
    for node in nodes:
        _let_ask(node)

    async def answer(turn: Turn) -> str:
        reporter = _Reporter(turn, {name for node in nodes for name in node.tools_by_name})
        given = {"messages": history(turn.messages)} if input is None else await functions.call(input, turn)
        settings = _settings(config or {}, turn, reporter)
        token = _reporter.set(reporter)
        try:
            if stream and turn.start.want_deltas:
                reporter.is_streamed = True
                state: Any = None
                async for mode, chunk in graph.astream(
                    given, settings, context=context, stream_mode=["values", "messages"]
                ):
                    state = chunk if mode == "values" else state
            else:
                state = await graph.ainvoke(given, settings, context=context)
        finally:
            _reporter.reset(token)
        if isinstance(state, Mapping) and state.get("__interrupt__"):
            turn._ending = FINISH_REASON_INPUT_REQUIRED
            return "\n".join(_printed(one.value) for one in state["__interrupt__"])
        return _answer(state) if output is None else str(await functions.call(output, state))

    more.setdefault("tools", _tools(nodes, tool_versions))
    more.setdefault("capabilities", CAPABILITIES if nodes else WITHOUT_STUBS)
    more.setdefault("name", graph.name or "")
    return Agent(answer, id=id or graph.name or "agent", version=version, **more)


_reporter: ContextVar["_Reporter | None"] = ContextVar("forge_reporter", default=None)


class _Reporter(BaseCallbackHandler):
    """Tells one turn what one run of a graph does. Its methods are called on the event loop and in threads."""

    # Called where the thing happens, and before it goes on; what is raised here leaves the graph.
    run_inline = True
    raise_error = True

    def __init__(self, turn: Turn, wrapped: set[str]) -> None:
        self.turn = turn
        self.is_streamed = False
        self._wrapped = wrapped
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._models: dict[UUID, tuple[Any, Any]] = {}
        self._bound: dict[UUID, set[str]] = {}
        self._calls: dict[str, ToolCall] = {}
        #: Calls that run elsewhere than in a tool node, by the run of their tool.
        self._others: dict[UUID, ToolCall] = {}

    def do(self, action: Callable[[], T]) -> T:
        """Does something on the event loop, wherever this is called."""
        if threading.get_ident() == self._thread:
            return action()

        async def act() -> T:
            return action()

        return self.wait(act())

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits in a thread for something on the event loop."""
        if threading.get_ident() == self._thread:
            work.close()
            # An async graph calls a `wrap_tool_call` there, and what it waits for could never happen.
            raise InvocationFailed(
                "a ToolNode with wrap_tool_call cannot wait for a stub in an async graph; give it awrap_tool_call, too",
                "TOOL_NOT_WRAPPED",
            )

        async def kept() -> tuple[T | None, BaseException | None]:
            try:
                return await work, None
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                return None, error

        result, error = asyncio.run_coroutine_threadsafe(kept(), self._loop).result()
        if error is not None:
            raise error
        return result  # type: ignore[return-value]

    # Models.

    def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: UUID, **more: Any) -> None:
        """A model is about to be called."""
        self._begin(run_id, more)

    def on_llm_start(self, serialized: Any, prompts: Any, *, run_id: UUID, **more: Any) -> None:
        """A model that takes texts is about to be called."""
        self._begin(run_id, more)

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, **more: Any) -> None:
        """A model streams."""
        text = token if isinstance(token, str) else getattr(getattr(chunk, "message", None), "text", "")
        if self.is_streamed and text:
            self.do(lambda: self.turn.say(str(text)))

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **more: Any) -> None:
        """A model has answered: its calls are announced, in its order, before any of them runs."""
        inside, record = self._models.pop(run_id, (None, None))
        bound = self._bound.pop(run_id, set())
        message = getattr(response.generations[0][0], "message", None) if response.generations else None

        def report() -> None:
            if inside is not None:
                _fill(record, message)
                inside.__exit__(None, None, None)
            if not isinstance(message, AIMessage):
                return
            if not self.is_streamed:
                self.turn.partial_answer = str(message.text)
            for call in message.tool_calls:
                # What is bound and belongs to no tool node is how a model gives structured output.
                if call["name"] in self._wrapped or call["name"] not in bound:
                    self._announce(call["name"], _arguments(message, call), call["id"] or "")
            for broken in message.invalid_tool_calls:
                call_ = self._announce(broken["name"] or "", broken["args"], broken["id"] or "")
                call_.fail(broken["error"] or "the arguments are no JSON object")
            self.turn.stop_if_routing_only()

        self.do(report)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **more: Any) -> None:
        """A model has failed."""
        self._models.pop(run_id, None)

    def _begin(self, run_id: UUID, more: Mapping[str, Any]) -> None:
        bound = [one for one in (more.get("invocation_params") or {}).get("tools") or [] if isinstance(one, dict)]
        self._bound[run_id] = {str(one.get("function", one).get("name", "")) for one in bound}

        def begin() -> None:
            inside = self.turn.model_turn()
            self._models[run_id] = (inside, inside.__enter__())

        self.do(begin)

    def _announce(self, name: str, params: Any, call_id: str) -> ToolCall:
        call = self.turn.start_tool(name, params, call_id)
        self._calls[call_id] = call
        return call

    # Tools in tool nodes.

    def call_of(self, request: Any) -> ToolCall:
        """The call that a tool node is about to make; one that no model has announced is announced here."""
        call = self._calls.get(request.tool_call["id"])
        if call is None:
            name, params = request.tool_call["name"], request.tool_call["args"]
            call = self.do(lambda: self._announce(name, params, request.tool_call["id"]))
        return call

    async def stubbed(self, call: ToolCall, request: Any) -> ToolMessage:
        """What the daemon says in place of the tool."""
        about = {"name": request.tool_call["name"], "tool_call_id": request.tool_call["id"]}
        try:
            return ToolMessage(await call.run(_unreachable), **about)
        except ToolFailed as failure:
            return ToolMessage(str(failure), status="error", **about)

    def close(self, call: ToolCall, result: Any) -> None:
        """Reports what a tool gave."""
        if call.is_open:
            self.do(lambda: _close(call, result))

    def failed(self, call: ToolCall, error: Exception) -> None:
        """Reports what a tool raised."""
        if call.is_open:
            self.do(lambda: call._failed(error))

    # Tools that run elsewhere.

    def on_tool_start(self, serialized: Any, input_str: str, *, run_id: UUID, **more: Any) -> None:
        """A tool is about to run."""
        if _is_inside.get():
            return
        name = str((serialized or {}).get("name", ""))
        call_id, inputs = more.get("tool_call_id") or "", more.get("inputs")
        if self.turn.tool_mode != TOOL_MODE_LIVE:
            message = f"{name} runs outside of a ToolNode, where no stub can stand in its place"
            raise InvocationFailed(message, "TOOL_NOT_WRAPPED")
        call = self._calls.get(call_id)
        if call is None:
            params = inputs if isinstance(inputs, dict) else input_str
            call = self.do(lambda: self._announce(name, params, call_id))
        self._others[run_id] = call

    def on_tool_end(self, output: Any, *, run_id: UUID, **more: Any) -> None:
        """A tool has run."""
        if call := self._others.pop(run_id, None):
            self.close(call, output)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **more: Any) -> None:
        """A tool has failed."""
        if (call := self._others.pop(run_id, None)) and isinstance(error, Exception):
            self.failed(call, error)


_is_inside: ContextVar[bool] = ContextVar("forge_is_inside", default=False)
"""Whether a tool of a tool node runs. What it calls itself is its own business."""


def _let_ask(node: ToolNode) -> None:
    """Lets a tool node ask the turn under way before it runs a tool; without one it does what it always did.

    It stands where the tool itself is called, within the graph's own wrappers. There is no public way for a node that
    exists: `wrap_tool_call` is for who makes it, and a node that has one handles errors otherwise than one without.
    """
    if getattr(node, "_forge_asks", False):
        return
    execute, execute_async = node._execute_tool_sync, node._execute_tool_async

    def run(request: Any, *more: Any) -> Any:
        reporter = _reporter.get()
        if reporter is None:
            return execute(request, *more)
        call = reporter.call_of(request)
        if reporter.turn.tool_mode == TOOL_MODE_STUB:
            return reporter.wait(reporter.stubbed(call, request))
        with _inside(reporter, call):
            result = execute(request, *more)
        reporter.close(call, result)
        return result

    async def run_async(request: Any, *more: Any) -> Any:
        reporter = _reporter.get()
        if reporter is None:
            return await execute_async(request, *more)
        call = reporter.call_of(request)
        if reporter.turn.tool_mode == TOOL_MODE_STUB:
            return await reporter.stubbed(call, request)
        with _inside(reporter, call):
            result = await execute_async(request, *more)
        reporter.close(call, result)
        return result

    node._execute_tool_sync, node._execute_tool_async = run, run_async  # type: ignore[assignment]
    node._forge_asks = True  # type: ignore[attr-defined]


@contextmanager
def _inside(reporter: _Reporter, call: ToolCall) -> Iterator[None]:
    """Runs a tool; what it raises is reported, and is the graph's own business."""
    token = _is_inside.set(True)
    try:
        yield
    except Exception as error:
        reporter.failed(call, error)
        raise
    finally:
        _is_inside.reset(token)


def _tool_nodes(graph: "Pregel[Any, Any, Any, Any]") -> Iterator[ToolNode]:
    """The nodes that run tools, those of graphs inside of the graph as well."""
    for node in graph.nodes.values():
        pending: list[Any] = [node.bound, *node.subgraphs]
        while pending:
            one = pending.pop()
            if isinstance(one, ToolNode):
                yield one
            elif isinstance(one, Pregel):
                yield from _tool_nodes(one)
            else:
                pending += getattr(one, "steps", [])


def _tools(nodes: Sequence[ToolNode], version: str) -> list[Tool[..., Any]]:
    found: dict[str, Tool[..., Any]] = {}
    for node in nodes:
        for name, tool in node.tools_by_name.items():
            declared = convert_to_openai_tool(tool)["function"]
            found[name] = Tool(tool.invoke, name, declared.get("description", ""), declared.get("parameters"), version)
    return list(found.values())


def _settings(config: Mapping[str, Any], turn: Turn, reporter: _Reporter) -> Any:
    callbacks = config.get("callbacks") or []
    if not isinstance(callbacks, list):
        raise TypeError("from_langgraph: config.callbacks is a list")
    own = {"thread_id": turn.start.invocation_id, **(config.get("configurable") or {})}
    return {**config, "callbacks": [*callbacks, reporter], "configurable": own}


def _answer(state: Any) -> str:
    if isinstance(state, str):
        return state
    if isinstance(state, Mapping):
        if state.get("structured_response") is not None:
            return _printed(state["structured_response"])
        messages = state.get("messages")
        if messages:
            return str(messages[-1].text)
    raise TypeError("from_langgraph: the graph ends without `messages`; say with `output` what its answer is")


def _printed(value: Any) -> str:
    return value if isinstance(value, str) else json_text(json_of(value))


def _close(call: ToolCall, result: Any) -> None:
    message = result[-1] if isinstance(result, list) and result else result
    if isinstance(message, ToolMessage):
        if message.status == "error":
            call.fail(str(message.text))
        else:
            call._succeeded(_json_or_text(message))
    else:
        call._succeeded(None)  # A command of LangGraph, which gives the model nothing.


def _json_or_text(message: ToolMessage) -> Any:
    """What a tool returned. LangChain makes a text of it, from which only objects and lists can be told again."""
    content = message.content
    if not isinstance(content, str):
        return content
    if content.lstrip()[:1] in ("{", "["):
        try:
            json.loads(content)
        except ValueError:
            return content
        return content.encode()
    return content


def _arguments(message: AIMessage, call: Mapping[str, Any]) -> Any:
    """The arguments as the model wrote them, where LangChain has kept that; else what it has read from them."""
    for raw in message.additional_kwargs.get("tool_calls") or []:
        if isinstance(raw, Mapping) and raw.get("id") == call["id"]:
            written = (raw.get("function") or {}).get("arguments")
            if isinstance(written, str) and written:
                return written
    return call["args"]


def _fill(record: Any, message: Any) -> None:
    """What is known of a model's answer."""
    if not isinstance(message, AIMessage):
        return
    about = message.response_metadata
    record.model = str(about.get("model_name") or about.get("model") or "")
    record.finish_reason = str(about.get("finish_reason") or about.get("stop_reason") or "")
    record.response_id = str(about.get("id") or "")
    if usage := message.usage_metadata:
        record.usage.input_tokens, record.usage.output_tokens = usage["input_tokens"], usage["output_tokens"]
        details = {**(usage.get("input_token_details") or {}), **(usage.get("output_token_details") or {})}
        for name, key in [("cache_read", "cache_read"), ("cache_write", "cache_creation"), ("reasoning", "reasoning")]:
            if isinstance(tokens := details.get(key), int):
                setattr(record.usage, f"{name}_tokens", tokens)


def history(messages: Sequence[Message]) -> list[AnyMessage]:
    """A conversation in LangChain's messages: same order, same roles, tool calls with their results."""
    return [said for message in messages for said in _said(message)]


def _said(message: Message) -> list[AnyMessage]:
    if message.role == ROLE_TOOL:
        return [_output(part) for part in message.parts if part.WhichOneof("content") == "tool_output"]
    if message.role == ROLE_ASSISTANT:
        uses = [part.tool_use for part in message.parts if part.WhichOneof("content") == "tool_use"]
        return [AIMessage(text_of(message), tool_calls=[_call(use) for use in uses])]
    for part in message.parts:
        if part.WhichOneof("content") not in ("text", "data"):
            kind = part.blob.media_type or part.WhichOneof("content")
            raise InvocationFailed(f"this agent takes text, not {kind}", "UNSUPPORTED_MEDIA_TYPE")
    text = "".join(part.text or json_text(part.data) for part in message.parts)
    return [SystemMessage(text) if message.role == ROLE_SYSTEM else HumanMessage(text)]


def _call(use: ToolUse) -> LangChainCall:
    arguments = json.loads(json_text(use.arguments) or "{}")
    return LangChainCall(name=use.name, args=arguments, id=use.call_id, type="tool_call")


def _output(part: Part) -> ToolMessage:
    output = part.tool_output
    if output.HasField("result"):
        return ToolMessage(json_text(output.result), tool_call_id=output.call_id)
    return ToolMessage(output.error.message or "failed", tool_call_id=output.call_id, status="error")


async def _unreachable() -> Any:
    raise AssertionError("a stub never runs a tool")
