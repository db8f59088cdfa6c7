"""The server side of the protocol: serves an `Agent` as an AgentEndpoint.

The rules it keeps are written at `AgentEndpoint.Invoke` in agent.proto.
"""

import asyncio
import contextlib
import inspect
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import grpc

from forge_daemon import functions
from forge_daemon.agent import FROM_SPANS, PROBE, Agent
from forge_daemon.blocking import BlockingTurn
from forge_daemon.context import Context
from forge_daemon.probe import Crash, Host, Script
from forge_daemon.propagation import continued, trace_context
from forge_daemon.proto import agent_pb2, agent_pb2_grpc, invoke_pb2
from forge_daemon.proto import values_pb2 as values
from forge_daemon.turn import Conclusion, InvocationFailed, Turn, Waiting
from forge_daemon.values import code, duration, fault_of, seconds

__all__ = ["AgentEndpoint", "current_turn"]

REVISION = 1
SERVICE = agent_pb2.DESCRIPTOR.services_by_name["AgentEndpoint"].full_name

MODES = {
    agent_pb2.TOOL_MODE_LIVE: None,
    agent_pb2.TOOL_MODE_STUB: "tools.stub",
    agent_pb2.TOOL_MODE_ROUTING_ONLY: "tools.routing",
}
"""The known modes, each with the capability that it needs."""

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
CANCEL_GRACE_SECONDS = 2.0
REMEMBERED_INVOCATIONS = 10_000
"""Ids are refused when they come again. So many are kept, because a daemon repeats a call at once or never."""


_current: ContextVar[Turn | BlockingTurn | None] = ContextVar("forge_turn", default=None)


def current_turn() -> Turn | BlockingTurn | None:
    """The turn that runs here, for code that is not handed it, such as tools; None outside of one.

    It is a `BlockingTurn` below an agent that is a plain function.
    """
    return _current.get()


class AgentEndpoint(agent_pb2_grpc.AgentEndpointServicer):
    """Serves one agent."""

    def __init__(self, agent: Agent, drain: Callable[[], None] = lambda: None) -> None:
        """`drain` begins the graceful shutdown of the server; a probe script may ask for it."""
        self._agent = agent
        self._drain = drain
        self._capabilities = agent.capabilities
        self._is_async = agent.answer is not None and functions.is_async(agent.answer)
        #: The name of this process.
        self.instance_id = uuid.uuid4().hex
        self._slots = asyncio.Semaphore(agent.max_concurrent) if agent.max_concurrent else None
        # With the number of steps of a probe script that each has begun.
        self._invocations: dict[str, int] = {}
        self._waiting = Waiting()
        self._running: set[asyncio.Task[None]] = set()
        self._is_draining = False
        #: What it says of itself.
        self.description = agent_pb2.DescribeResponse(
            revision=REVISION,
            instance_id=self.instance_id,
            card=agent.card,
            capabilities=self._capabilities,
            limits=agent_pb2.Limits(
                max_message_bytes=MAX_MESSAGE_BYTES,
                max_concurrent_invocations=agent.max_concurrent,
                cancel_grace=duration(CANCEL_GRACE_SECONDS),
            ),
        )

    async def Describe(self, request: agent_pb2.DescribeRequest, context: Context) -> agent_pb2.DescribeResponse:
        """Says who the agent is. There is one agent here, so it answers to every agent_id."""
        # A request without a range comes from a person with a generic client.
        if request.max_revision and not request.min_revision <= REVISION <= request.max_revision:
            message = f"REVISION_UNSUPPORTED: this agent speaks revision {REVISION}"
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, message)
        return self.description

    async def Invoke(self, frames: AsyncIterator[agent_pb2.InvokeRequest], context: Context) -> None:
        """Answers one turn."""
        start = await self._accept(frames, context)
        metadata = context.invocation_metadata() or ()
        carried = trace_context(start.context, metadata)
        turn = Turn(start, self.instance_id, carried, self._agent.tools, self._waiting)
        stop: Stop = asyncio.get_running_loop().create_future()
        reader = asyncio.create_task(_read(frames, turn, stop))
        work = asyncio.create_task(self._work(turn, stop, metadata))
        self._running.add(work)
        work.add_done_callback(self._running.discard)
        work.add_done_callback(lambda _: turn._events.put_nowait(None))
        try:
            while event := await turn._next_event():
                await context.write(event)
            await work
        except Crash:
            await context.abort(grpc.StatusCode.INTERNAL, "crashed, as the probe script asked")
        finally:
            # Still running if the stream was reset, and then nobody waits for the answer any more.
            reader.cancel()
            work.cancel()
            turn._abandon()

    async def drain(self, grace_seconds: float) -> None:
        """Takes no further calls, and waits for the running ones."""
        self._is_draining = True
        if self._running:
            await asyncio.wait(self._running, timeout=grace_seconds)

    async def _accept(self, frames: AsyncIterator[agent_pb2.InvokeRequest], context: Context) -> agent_pb2.InvokeStart:
        """Gives the first frame of a call that can be answered. Refuses others, before anything is sent or done."""
        first = await anext(aiter(frames), None)
        if first is None or first.WhichOneof("frame") != "start":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "frame: the first must be `start`")
            raise AssertionError("abort has raised")
        start = first.start
        refusal = self._refusal(start)
        if refusal is not None:
            await context.abort(*refusal)
        self._invocations[start.invocation_id] = 0
        if len(self._invocations) > REMEMBERED_INVOCATIONS:
            del self._invocations[next(iter(self._invocations))]
        return start

    def _refusal(self, start: agent_pb2.InvokeStart) -> tuple[grpc.StatusCode, str] | None:
        if not start.invocation_id:
            return grpc.StatusCode.INVALID_ARGUMENT, "start.invocation_id: must not be empty"
        # Never a default: a mode that is misread as LIVE fires real tools.
        if start.tool_mode not in MODES:
            return grpc.StatusCode.INVALID_ARGUMENT, f"start.tool_mode: {start.tool_mode} is no known mode"
        needed = MODES[start.tool_mode]
        if needed is not None and needed not in self._capabilities:
            return grpc.StatusCode.FAILED_PRECONDITION, f"start.tool_mode: this agent lacks {needed}"
        if start.HasField("probe") and PROBE not in self._capabilities:
            message = "start.probe: this agent follows no scripts; FORGE_PROBE=1 lets it"
            return grpc.StatusCode.FAILED_PRECONDITION, message
        if self._agent.answer is None and not start.HasField("probe"):
            return grpc.StatusCode.UNIMPLEMENTED, "this process serves no agent, only other parts"
        if start.attachments:
            return grpc.StatusCode.FAILED_PRECONDITION, "start.attachments: this agent takes none"
        if self._is_draining:
            return grpc.StatusCode.UNAVAILABLE, "DRAINING: the agent is shutting down"
        if start.invocation_id in self._invocations:
            return grpc.StatusCode.ALREADY_EXISTS, "start.invocation_id: was run before"
        return None

    async def _work(self, turn: Turn, stop: "Stop", metadata: Any) -> None:
        """Runs the agent until it has answered, is told to stop, or has used up its time."""
        budget = seconds(turn.context.budget) if turn.context.HasField("budget") else None
        end, grace = Conclusion(invoke_pb2.FINISH_REASON_BUDGET_EXCEEDED), CANCEL_GRACE_SECONDS
        if budget is not None and budget <= 0:
            turn._finish(end)
            return
        answering = asyncio.create_task(self._conclude(turn, budget, metadata))
        # Of the three that end the wait, the first says so; `asyncio.wait` would cost a tenth of an empty turn.
        answering.add_done_callback(lambda _: _settle(stop, None))
        timer = None if budget is None else asyncio.get_running_loop().call_later(budget, _settle, stop, None)
        try:
            stopped = await stop
            if answering.done():
                end = answering.result()
            else:
                end, grace = stopped or (end, grace)
                answering.cancel()
                # Code that does not react to its cancellation is left behind: the daemon does not wait for it either.
                await asyncio.wait({answering}, timeout=grace / 2)
                if answering.done() and not answering.cancelled() and answering.exception() is None:
                    end = replace(end, spans_flushed=answering.result().spans_flushed)
            turn._finish(end)
        finally:
            answering.cancel()
            if timer:
                timer.cancel()

    async def _conclude(self, turn: Turn, budget: float | None, metadata: Any) -> Conclusion:
        """Runs the agent within the call's trace, and sees that its spans are sent if the daemon reads them."""
        until = None if budget is None else time.monotonic() + budget
        tracing = self._agent.tracing if FROM_SPANS in self._capabilities else None
        with continued(turn.trace_context):
            if tracing is None:
                return await self._conclusion(turn, metadata)
            with tracing.watch() as spans:
                end = await self._conclusion(turn, metadata)
                # The answer is there, and must not be lost because the spans used up its time.
                limit = None if until is None else max(until - time.monotonic(), 0) / 2
                try:
                    return replace(end, spans_flushed=await tracing.confirm(spans, limit))
                except asyncio.CancelledError:
                    return end

    async def _conclusion(self, turn: Turn, metadata: Any) -> Conclusion:
        """Runs the agent; whatever it does, it comes to an end that can be reported."""
        try:
            if turn.start.HasField("probe"):
                return await Script(turn, self._host(turn, metadata)).follow()
            async with self._slots or contextlib.nullcontext():
                return Conclusion(invoke_pb2.FINISH_REASON_COMPLETED, _text(await self._ask(turn)))
        except InvocationFailed as error:
            return Conclusion(invoke_pb2.FINISH_REASON_FAILED, error=error.fault)
        except asyncio.CancelledError as error:
            # Either somebody asked for it, and then nobody looks at this, or the agent's code cancelled itself.
            return Conclusion(invoke_pb2.FINISH_REASON_FAILED, error=fault_of(error))
        except (Crash, GeneratorExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            # A task group may have wrapped the EndOfTurn, and a framework may have made an error of its own of it.
            if turn._ending is not None:
                return Conclusion(turn._ending)
            turn._log_trace(error)
            return Conclusion(invoke_pb2.FINISH_REASON_FAILED, error=fault_of(error))

    async def _ask(self, turn: Turn) -> Any:
        """What the agent's function gives. A plain one has a thread, and a turn for it."""
        answer = self._agent.answer
        assert answer is not None  # Such calls are refused.
        # In the task of this turn alone, which ends with it.
        if self._is_async:
            _current.set(turn)
            result: Any = answer(turn)  # type: ignore[arg-type]
            return await result if inspect.isawaitable(result) else result
        blocking = BlockingTurn(turn)
        _current.set(blocking)
        try:
            return await functions.call(answer, blocking)
        finally:
            blocking._end()

    def _host(self, turn: Turn, metadata: Any) -> Host:
        def count() -> None:
            # The oldest ids are forgotten, also of calls that still run.
            if turn.start.invocation_id in self._invocations:
                self._invocations[turn.start.invocation_id] += 1

        return Host(count, lambda id: self._invocations.get(id, 0), self._drain, metadata)


Stop = asyncio.Future[tuple[Conclusion, float] | None]
"""Set when a turn ends: how the daemon wants it to end, and within how many seconds; None if it did not ask."""


async def _read(frames: AsyncIterator[agent_pb2.InvokeRequest], turn: Turn, stop: Stop) -> None:
    """Reads what comes after `start`. The end of input is no cancel; only waiting for results makes no sense then."""
    async for frame in frames:
        match frame.WhichOneof("frame"):
            case "tool_result":
                turn._resolve(frame.tool_result)
            case "cancel":
                _settle(stop, _cancelled(frame.cancel))
            case "start" | "attachment" as kind:
                message = f"frame: unexpected `{kind}`"
                fault = values.Fault(grpc_code=code(grpc.StatusCode.INVALID_ARGUMENT), message=message)
                _settle(stop, (Conclusion(invoke_pb2.FINISH_REASON_FAILED, error=fault), CANCEL_GRACE_SECONDS))
            case _:
                pass  # A kind of frame that a later revision knows.
    turn._no_more_results()


def _settle(stop: Stop, how: tuple[Conclusion, float] | None) -> None:
    if not stop.done():
        stop.set_result(how)


def _cancelled(cancel: agent_pb2.InvokeCancel) -> tuple[Conclusion, float]:
    is_budget = cancel.reason == agent_pb2.CANCEL_REASON_BUDGET
    reason = invoke_pb2.FINISH_REASON_BUDGET_EXCEEDED if is_budget else invoke_pb2.FINISH_REASON_CANCELLED
    return Conclusion(reason), seconds(cancel.grace) if cancel.HasField("grace") else CANCEL_GRACE_SECONDS


def _text(answer: Any) -> str | None:
    """The answer as it can travel. Better a clear failure here than an altered answer."""
    if answer is None:
        return None
    if not isinstance(answer, str):
        raise TypeError(f"an agent answers with a text or None, not {type(answer).__name__}")
    answer.encode("utf-8")  # Half a character cannot travel.
    return answer
