"""One turn of a conversation, as the code of an agent sees it."""

import asyncio
import json
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from grpc import StatusCode

from forge_daemon import functions
from forge_daemon.proto import agent_pb2, invoke_pb2
from forge_daemon.proto import values_pb2 as values
from forge_daemon.tools import Tool
from forge_daemon.values import code, duration, fault_of, json_of, json_of_result, json_text, text_of

__all__ = ["EndOfTurn", "InvocationFailed", "ToolCall", "ToolFailed", "Turn"]

_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")

MAX_TRACE = 16 * 1024
"""A longer traceback keeps its end, which says what happened."""

MAX_WAITING_BYTES = 64 * 1024 * 1024
"""What a turn has said and nobody has read yet. Daemons take no more of a whole call."""
MAX_WAITING_BYTES_OF_ALL = 256 * 1024 * 1024
"""The same of all turns together; when it is more, turns of which more than a share waits may say nothing else."""
SHARE_BYTES = 1024 * 1024


class ToolFailed(Exception):
    """A tool failed, or a stub says that it did. Give the text to the model, as you would with a real tool's error."""


class InvocationFailed(Exception):
    """Raise it to end the turn as failed with a reason that programs can compare."""

    def __init__(self, message: str, reason: str = "", status: StatusCode = StatusCode.UNKNOWN) -> None:
        super().__init__(message)
        self.fault = values.Fault(
            grpc_code=code(status), reason=reason, message=message, origin=values.FAULT_ORIGIN_AGENT
        )


class EndOfTurn(BaseException):
    """Leaves the agent's code when the protocol says that the turn is over.

    Not an Exception, because code that catches those around a tool call would tell its model of a failure and go on.
    """


@dataclass
class Waiting:
    """What all turns of an agent have said and nobody has read yet."""

    bytes: int = 0


@dataclass(frozen=True)
class Conclusion:
    """How a turn ends."""

    reason: int
    #: The answer; None is what has been said so far.
    text: str | None = None
    error: values.Fault | None = None
    #: Whether the daemon is known to have every span of the turn.
    spans_flushed: bool = False
    #: The last event as it shall be, in place of all that.
    finished: invoke_pb2.InvokeFinished | None = None


class Turn:
    """What to answer, and everything that can be reported while answering it.

    All of it belongs to the event loop. A plain function, which runs in a thread, is given a `BlockingTurn` instead.
    """

    def __init__(
        self,
        start: agent_pb2.InvokeStart,
        instance_id: str,
        trace_context: Mapping[str, str] | None = None,
        tools: Mapping[str, Tool[..., Any]] | None = None,
        waiting: Waiting | None = None,
    ) -> None:
        #: The frame that began the turn, for whatever has no name of its own here.
        self.start = start
        #: The W3C values `traceparent`, `tracestate` and `baggage`, as far as they came, for code that hands them on
        #: itself. OpenTelemetry, where it is installed, has read them already.
        self.trace_context = dict(trace_context or {})
        self._tools = tools or {}
        self._text = ""
        #: Where tools were called in the text, and in what was sent of it.
        self._cuts: list[int] = []
        #: Where the last model turn began in the text.
        self._model_turn_at = 0
        self._said = ""
        self._said_before_call = 0
        self._calls: dict[str, ToolCall] = {}
        self._model_turns = 0
        self._usage = values.Usage()
        self._ending: int | None = None
        self._results_may_come = True
        # Nobody waits for room in it: whoever reads slowly must not stop the agent from noticing a cancel.
        self._waiting_bytes, self._waiting_of_all = 0, waiting or Waiting()
        self._events: asyncio.Queue[invoke_pb2.InvokeResponse | None] = asyncio.Queue()
        self._seq = 0
        self._is_over = False
        self._accepted_at = time.monotonic()
        accepted = invoke_pb2.InvokeAccepted(invocation_id=start.invocation_id, instance_id=instance_id)
        self._emit(accepted=accepted)

    # What there is to answer.

    @property
    def messages(self) -> list[values.Message]:
        """The whole conversation, oldest first; the last message is the one to answer."""
        return list(self.start.messages)

    @property
    def user_text(self) -> str:
        """The text of the last message."""
        return text_of(self.start.messages[-1]) if self.start.messages else ""

    @property
    def tool_mode(self) -> int:
        """What happens to tool calls: a value of `ToolMode`. `call` and `ToolCall.run` already obey it."""
        return self.start.tool_mode

    @property
    def options(self) -> values.Options:
        """The options of the case."""
        return self.start.options

    @property
    def context(self) -> values.CallContext:
        """Run, suite, case, budget and trace context. For logs and traces: never answer differently because of it."""
        return self.start.context

    @property
    def partial_answer(self) -> str:
        """What to answer if the turn ends before the agent's code returns: what was said after the last tool call.

        `say` appends to it. Set it to what is the answer so far, whatever was said.
        """
        if self.tool_mode == agent_pb2.TOOL_MODE_ROUTING_ONLY:
            return self._text  # No call is run: they end the turn.
        # Who says nothing behind a call has said its answer before.
        cuts = [cut for cut in self._cuts if self._text[cut:].strip()]
        return self._text[cuts[-1] :] if cuts else self._text

    @partial_answer.setter
    def partial_answer(self, text: str) -> None:
        self._text, self._cuts, self._model_turn_at = text, [], 0

    # What can be reported.

    def say(self, text: str) -> None:
        """Adds a piece to the answer, and sends it at once if somebody watches."""
        self._check_room()
        self._say(text)

    def _say(self, text: str) -> None:
        if self.start.want_deltas and text:
            self._emit(text_delta=invoke_pb2.TextDelta(text=text, channel=invoke_pb2.TEXT_CHANNEL_ANSWER))
            self._said += text
        self._text += text

    def reason(self, text: str) -> None:
        """Sends a piece of the model's reasoning. It is no part of the answer, and nothing is judged by it."""
        self._check_room()
        if self.start.want_deltas and text:
            self._emit(text_delta=invoke_pb2.TextDelta(text=text, channel=invoke_pb2.TEXT_CHANNEL_REASONING))

    def log(self, message: str, level: str = "info") -> None:
        """Sends a line to people who debug the agent."""
        self._check_room()
        self._log(message, level)

    def _log(self, message: str, level: str) -> None:
        self._emit(log=invoke_pb2.LogLine(level=level, message=message.encode("utf-8", "replace").decode()))

    def usage(
        self,
        *,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cache_read_tokens: int | None = None,
        cache_write_tokens: int | None = None,
        reasoning_tokens: int | None = None,
        cost_usd: float | None = None,
    ) -> None:
        """Adds to what the whole turn has consumed, for what no `model_turn` says. What is None stays unmeasured."""
        measured = (input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens)
        cost = None if cost_usd is None else values.Cost(currency_code="USD", nano_units=round(cost_usd * 1e9))
        self._consume(values.Usage(**dict(zip(_TOKENS, measured, strict=True)), cost=cost))

    @contextmanager
    def model_turn(self) -> Iterator[invoke_pb2.ModelTurn]:
        """Put it around a call of the model, and fill in what is known: model, finish_reason, usage.

        It leaves the turn if no further model turn is allowed. A model that is called outside of it is not counted.
        """
        self._check_room()
        self._begin_model_turn()
        began = time.monotonic()
        record = invoke_pb2.ModelTurn(index=self._model_turns)
        yield record
        record.duration.CopyFrom(duration(time.monotonic() - began))
        self._consume(record.usage)
        self._emit(model_turn=record)

    def start_tool(
        self, name: str, params: Any = None, call_id: str = "", *, params_unknown: str | None = None
    ) -> "ToolCall":
        """Announces a call that the model has made, also of a tool that does not exist.

        The order of these announcements is the order that suites compare. So if the model makes several calls at
        once, announce all of them before running the first. `params` is as for `json_of`; None is a call without any,
        unless `params_unknown` says why this code cannot tell them, and who could: then suites say nothing about
        them.
        """
        self._check_room()
        call_id = call_id if call_id and call_id not in self._calls else uuid.uuid4().hex
        call = ToolCall(self, name, call_id, None if params is None else json_of(params))
        self._emit(
            tool_started=invoke_pb2.ToolCallStarted(
                call_id=call.call_id,
                name=name,
                params=call._params,
                params_unknown=params_unknown,
                awaits_result=self.tool_mode == agent_pb2.TOOL_MODE_STUB,
                model_turn=self._model_turns,
                type="function",
            )
        )
        self._calls[call.call_id] = call
        self._cuts.append(len(self._text))
        self._said_before_call = len(self._said)
        return call

    async def call(
        self,
        tool: str | Tool[..., Any],
        params: Any = None,
        run: Callable[[], Any] | None = None,
        call_id: str = "",
    ) -> str:
        """Announces a tool call and runs it: `start_tool` and `ToolCall.run` in one.

        Gives the result as the JSON text that the model should read. `tool` is a name, as the model wrote it, or a
        tool. Without `run` the agent's own tool of that name runs, with the arguments in `params`.
        """
        name = tool.name if isinstance(tool, Tool) else tool
        return await self.start_tool(name, params, call_id).run(tool if run is None and isinstance(tool, Tool) else run)

    def stop_if_routing_only(self) -> None:
        """Leaves the turn if its tools are only announced. Call it when all calls of a model turn are announced."""
        if self.tool_mode == agent_pb2.TOOL_MODE_ROUTING_ONLY and self._calls:
            raise self._end(invoke_pb2.FINISH_REASON_TOOL_CALLS)

    # For the endpoint.

    def _begin_model_turn(self) -> None:
        if self.start.HasField("max_model_turns") and self._model_turns >= self.start.max_model_turns:
            raise self._end(invoke_pb2.FINISH_REASON_MAX_MODEL_TURNS)
        self._model_turns += 1
        self._model_turn_at = len(self._text)

    def _emit(self, **event: Any) -> None:
        if self._is_over:
            return  # Code that ignores a cancel goes on talking; nobody listens.
        self._seq += 1
        elapsed = duration(time.monotonic() - self._accepted_at)
        message = invoke_pb2.InvokeResponse(seq=self._seq, elapsed=elapsed, **event)
        self._count(message.ByteSize())
        self._events.put_nowait(message)

    def _count(self, size: int) -> None:
        self._waiting_bytes += size
        self._waiting_of_all.bytes += size

    def _check_room(self) -> None:
        most = MAX_WAITING_BYTES if self._waiting_of_all.bytes <= MAX_WAITING_BYTES_OF_ALL else SHARE_BYTES
        if self._waiting_bytes > most and not self._is_over:
            message = f"more than {most >> 20} MiB of what the turn has said wait, and nobody reads them"
            raise InvocationFailed(message, "UNREAD", StatusCode.RESOURCE_EXHAUSTED)

    async def _next_event(self) -> invoke_pb2.InvokeResponse | None:
        """What is to be sent next; None behind the last one."""
        event = await self._events.get()
        if event is not None:
            self._count(-event.ByteSize())
        return event

    def _abandon(self) -> None:
        """Nobody reads the rest."""
        self._is_over = True
        self._count(-self._waiting_bytes)
        self._events = asyncio.Queue()

    def _log_trace(self, error: BaseException) -> None:
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__)).strip()
        self._log(trace if len(trace) <= MAX_TRACE else f"…{trace[-MAX_TRACE:]}", "error")

    def _consume(self, usage: values.Usage) -> None:
        for name in _TOKENS:
            if usage.HasField(name):
                setattr(self._usage, name, getattr(self._usage, name) + getattr(usage, name))
        if usage.HasField("cost"):
            cost = self._usage.cost
            cost.currency_code = usage.cost.currency_code or "USD"
            cost.nano_units += usage.cost.nano_units
            cost.estimated = cost.estimated or usage.cost.estimated

    def _end(self, reason: int) -> EndOfTurn:
        self._ending = reason
        return EndOfTurn()

    def _resolve(self, result: agent_pb2.ToolResult) -> None:
        call = self._calls.get(result.call_id)
        if call and not call._result.done():
            call._result.set_result(result)

    def _no_more_results(self) -> None:
        self._results_may_come = False
        for call in self._calls.values():
            self._resolve(call._missing_result())

    def _last_said(self, reason: int) -> str:
        if self.tool_mode == agent_pb2.TOOL_MODE_STUB and reason == invoke_pb2.FINISH_REASON_COMPLETED and self._cuts:
            # The model got the stub's answer; what it says then is its own, and may be nothing.
            return self._text[self._cuts[-1] :]
        if self.tool_mode == agent_pb2.TOOL_MODE_STUB and reason == invoke_pb2.FINISH_REASON_MAX_MODEL_TURNS:
            # The model's last word is what it said beside its last calls, and not what it announced at the beginning.
            return self._text[self._model_turn_at :]
        return self.partial_answer

    def _finish(self, end: Conclusion) -> None:
        """Ends the turn; what comes after it is not sent."""
        for call in self._calls.values():
            call._cancel()
        if end.finished is not None:
            self._emit(finished=end.finished)
            self._is_over = True
            return
        # Half an answer may be cut inside a character; a whole one is never changed.
        text = self._last_said(end.reason).encode("utf-8", "replace").decode() if end.text is None else end.text
        for said in (self._said, self._said[self._said_before_call :]):
            if text.startswith(said):
                self._say(text.removeprefix(said))
                break
        reason = end.reason
        if reason == invoke_pb2.FINISH_REASON_COMPLETED and self._ending is not None:
            reason = self._ending
        self._emit(
            finished=invoke_pb2.InvokeFinished(
                finish_reason=reason,  # type: ignore[arg-type]
                response=values.Message(role=values.ROLE_ASSISTANT, parts=[values.Part(text=text)] if text else []),
                usage=self._usage if self._usage.ByteSize() else None,
                error=end.error,
                tool_calls=len(self._calls),
                duration=duration(time.monotonic() - self._accepted_at),
                spans_flushed=end.spans_flushed,
            )
        )
        self._is_over = True


class ToolCall:
    """A call that the model has made and that has been announced."""

    def __init__(self, turn: Turn, name: str, call_id: str, params: values.Json | None) -> None:
        self.name = name
        self.call_id = call_id
        self._turn = turn
        self._params = params
        self._began = time.monotonic()
        self._is_closed = False
        self._result: asyncio.Future[agent_pb2.ToolResult] = asyncio.get_running_loop().create_future()

    async def run(self, run: Callable[[], Any] | Tool[..., Any] | None = None) -> str:
        """Gives the text for the model: what the tool returned, as JSON text.

        LIVE runs the function, async or plain, or without one the agent's own tool of that name. STUB does not; it
        waits for the daemon's answer, which is given unchanged. ROUTING_ONLY runs nothing and leaves the turn. Raises
        ToolFailed if the tool, or the stub in its place, failed.
        """
        self._turn.stop_if_routing_only()
        if self._turn.tool_mode == agent_pb2.TOOL_MODE_STUB:
            return await self._wait_for_stub()
        try:
            result = await functions.call(self._function(run))
        except Exception as error:
            raise self._failed(error) from error
        return self._succeeded(result)

    @property
    def is_open(self) -> bool:
        """Whether it has neither succeeded nor failed yet."""
        return not self._is_closed

    def succeed(self, result: Any) -> None:
        """Closes a call that something else has run, with what it returned."""
        self._close(result=json_of_result(result))

    def fail(self, message: str) -> None:
        """Closes a call that cannot be run, for example because its arguments are of no use."""
        self._close(error=values.Fault(grpc_code=code(StatusCode.UNKNOWN), message=message))

    def _function(self, run: Callable[[], Any] | Tool[..., Any] | None) -> Callable[[], Any]:
        """What runs. Raises ToolFailed if there is nothing, or the arguments are none."""
        if run is not None and not isinstance(run, Tool):
            return run
        tool = run or self._turn._tools.get(self.name)
        if tool is None:
            raise ToolFailed(f"there is no tool {self.name}")
        arguments = self._arguments()
        # Whatever it is made of, calling it is what may block, and that is known only from its own function.
        if functions.is_async(tool.run):

            async def run_async() -> Any:
                return await tool.run_with(arguments)

            return run_async
        return lambda: tool.run_with(arguments)

    def _arguments(self) -> dict[str, Any]:
        try:
            found = json.loads(json_text(self._params)) if self._params and self._params.WhichOneof("form") else {}
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ToolFailed(f"the arguments of {self.name} are no JSON object")
        return found

    def _succeeded(self, result: Any) -> str:
        """Closes the call with what its tool returned."""
        try:
            told = json_of_result(result)
        except Exception as error:
            raise self._failed(error) from error
        self._close(result=told)
        return json_text(told)

    def _failed(self, error: Exception) -> ToolFailed:
        """Closes the call with what its tool raised. One that says itself that it failed needs no traceback."""
        if isinstance(error, ToolFailed):
            self.fail(str(error))
            return error
        self._turn._log_trace(error)
        self._close(error=fault_of(error))
        return ToolFailed(str(error) or type(error).__name__)

    async def _wait_for_stub(self) -> str:
        if not self._turn._results_may_come and not self._result.done():
            self._result.set_result(self._missing_result())
        answer = await self._result
        if answer.WhichOneof("outcome") == "result":
            self._close(result=answer.result)
            return json_text(answer.result)
        error = answer.error if answer.HasField("error") else self._missing_result().error
        self._close(error=error)
        raise ToolFailed(error.message or error.reason or f"{self.name} failed")

    def _missing_result(self) -> agent_pb2.ToolResult:
        fault = values.Fault(
            grpc_code=code(StatusCode.UNAVAILABLE),
            reason="NO_RESULT",
            message=f"no result came for the call of {self.name}",
            origin=values.FAULT_ORIGIN_DAEMON,
        )
        return agent_pb2.ToolResult(call_id=self.call_id, error=fault)

    def _cancel(self) -> None:
        message = f"the turn ended before {self.name} did"
        self._close(error=values.Fault(grpc_code=code(StatusCode.CANCELLED), reason="CANCELLED", message=message))

    def _close(self, **outcome: Any) -> None:
        # In ROUTING_ONLY nothing runs, so nothing ends.
        if self._is_closed or self._turn.tool_mode == agent_pb2.TOOL_MODE_ROUTING_ONLY:
            return
        self._is_closed = True
        is_stub = self._turn.tool_mode == agent_pb2.TOOL_MODE_STUB
        self._turn._emit(
            tool_finished=invoke_pb2.ToolCallFinished(
                call_id=self.call_id,
                duration=duration(time.monotonic() - self._began),
                source=invoke_pb2.RESULT_SOURCE_STUB if is_stub else invoke_pb2.RESULT_SOURCE_LIVE,
                **outcome,
            )
        )
