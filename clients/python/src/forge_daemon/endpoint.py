"""The server side of the protocol: turns an async function that answers into an AgentEndpoint.

The rules it keeps are written at `AgentEndpoint.Invoke` in agent.proto.
"""

import asyncio
import contextlib
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from forge_daemon.generator import SERVICE as GENERATOR_SERVICE
from forge_daemon.generator import Generator
from forge_daemon.listening import ALONE, CannotListen, listen_on
from forge_daemon.propagation import continued, trace_context
from forge_daemon.proto import (
    agent_pb2,
    agent_pb2_grpc,
    generator_pb2_grpc,
    invoke_pb2,
    simulator_pb2_grpc,
    snapshot_pb2_grpc,
    validator_pb2_grpc,
)
from forge_daemon.proto import values_pb2 as values
from forge_daemon.simulator import SERVICE as SIMULATOR_SERVICE
from forge_daemon.simulator import Simulator
from forge_daemon.snapshot import SERVICE as SNAPSHOT_SERVICE
from forge_daemon.snapshot import SnapshotProvider
from forge_daemon.turn import Conclusion, EndOfTurn, InvocationFailed, Turn
from forge_daemon.validator import SERVICE as VALIDATOR_SERVICE
from forge_daemon.validator import Validator
from forge_daemon.values import code, duration, fault_of, seconds

if TYPE_CHECKING:
    # Needs the extra `otel`, which an agent without spans has not.
    from forge_daemon.tracing import Tracing

__all__ = ["AgentEndpoint", "Answer", "Server", "serve"]

Answer = Callable[[Turn], Awaitable[str | None]]
"""An agent: gives the answer, or None if it has said everything with `turn.say`."""

REVISION = 1
SERVICE = agent_pb2.DESCRIPTOR.services_by_name["AgentEndpoint"].full_name
CAPABILITIES = ("tools.stub", "tools.routing", "text.delta", "cancel")
"""What every agent can do whose tool calls go through its `Turn`."""
FROM_SPANS = "tools.from_spans"
SPANS_EXPORT = "spans.export"
SPANS_ONLY = ("text.delta", "cancel", FROM_SPANS)
"""What an agent can do whose tool calls are known from its OpenTelemetry spans alone."""

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


class AgentEndpoint(agent_pb2_grpc.AgentEndpointServicer):
    """Serves one agent."""

    def __init__(
        self,
        card: agent_pb2.AgentCard,
        answer: Answer,
        *,
        capabilities: tuple[str, ...] = CAPABILITIES,
        max_concurrent_invocations: int = 0,
        tracing: "Tracing | None" = None,
    ) -> None:
        """`max_concurrent_invocations` is told to daemons, and further calls wait for their turn; 0 is no limit.

        `tracing` is asked, for an agent with the capability `tools.from_spans`, whether the daemon has all spans of a
        turn. Without it nobody knows, and the daemon waits for them.
        """
        #: What sends the spans.
        self.tracing = tracing
        self._answer = answer
        self._capabilities = capabilities
        self._instance_id = uuid.uuid4().hex
        self._slots = asyncio.Semaphore(max_concurrent_invocations) if max_concurrent_invocations else None
        self._invocations: dict[str, None] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._is_draining = False
        self._description = agent_pb2.DescribeResponse(
            revision=REVISION,
            instance_id=self._instance_id,
            card=card,
            capabilities=capabilities,
            limits=agent_pb2.Limits(
                max_message_bytes=MAX_MESSAGE_BYTES,
                max_concurrent_invocations=max_concurrent_invocations,
                cancel_grace=duration(CANCEL_GRACE_SECONDS),
            ),
        )

    @property
    def card(self) -> agent_pb2.AgentCard:
        """Who the agent is."""
        return self._description.card

    async def Describe(
        self, request: agent_pb2.DescribeRequest, context: grpc.aio.ServicerContext
    ) -> agent_pb2.DescribeResponse:
        """Says who the agent is. There is one agent here, so it answers to every agent_id."""
        # A request without a range comes from a person with a generic client.
        if request.max_revision and not request.min_revision <= REVISION <= request.max_revision:
            message = f"REVISION_UNSUPPORTED: this agent speaks revision {REVISION}"
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, message)
        if self.tracing is None or FROM_SPANS in self._capabilities:
            return self._description
        # The daemon then exports no spans of its own for what stands in the agent's.
        told = agent_pb2.DescribeResponse()
        told.CopyFrom(self._description)
        told.capabilities.append(SPANS_EXPORT)
        return told

    async def Invoke(self, frames: AsyncIterator[agent_pb2.InvokeRequest], context: grpc.aio.ServicerContext) -> None:
        """Answers one turn."""
        start = await self._accept(frames, context)
        turn = Turn(start, self._instance_id, trace_context(start.context, context.invocation_metadata()))
        stop: Stop = asyncio.get_running_loop().create_future()
        reader = asyncio.create_task(_read(frames, turn, stop))
        work = asyncio.create_task(self._work(turn, stop))
        self._running.add(work)
        work.add_done_callback(self._running.discard)
        work.add_done_callback(lambda _: turn._events.put_nowait(None))
        try:
            while event := await turn._events.get():
                await context.write(event)
            await work
        finally:
            # Still running if the stream was reset, and then nobody waits for the answer any more.
            reader.cancel()
            work.cancel()

    async def drain(self, grace_seconds: float) -> None:
        """Takes no further calls, and waits for the running ones."""
        self._is_draining = True
        if self._running:
            await asyncio.wait(self._running, timeout=grace_seconds)

    async def _accept(
        self, frames: AsyncIterator[agent_pb2.InvokeRequest], context: grpc.aio.ServicerContext
    ) -> agent_pb2.InvokeStart:
        """Gives the first frame of a call that can be answered. Refuses others, before anything is sent or done."""
        first = await anext(aiter(frames), None)
        if first is None or first.WhichOneof("frame") != "start":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "frame: the first must be `start`")
            raise AssertionError("abort has raised")
        start = first.start
        refusal = self._refusal(start)
        if refusal is not None:
            await context.abort(*refusal)
        self._invocations[start.invocation_id] = None
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
        if start.HasField("probe"):
            return grpc.StatusCode.FAILED_PRECONDITION, "start.probe: this agent follows no scripts"
        if start.attachments:
            return grpc.StatusCode.FAILED_PRECONDITION, "start.attachments: this agent takes none"
        if self._is_draining:
            return grpc.StatusCode.UNAVAILABLE, "DRAINING: the agent is shutting down"
        if start.invocation_id in self._invocations:
            return grpc.StatusCode.ALREADY_EXISTS, "start.invocation_id: was run before"
        return None

    async def _work(self, turn: Turn, stop: "Stop") -> None:
        """Runs the agent until it has answered, is told to stop, or has used up its time."""
        budget = seconds(turn.context.budget) if turn.context.HasField("budget") else None
        end, grace = Conclusion(invoke_pb2.FINISH_REASON_BUDGET_EXCEEDED), CANCEL_GRACE_SECONDS
        if budget is not None and budget <= 0:
            turn._finish(end)
            return
        answering = asyncio.create_task(self._conclude(turn, budget))
        try:
            await asyncio.wait({answering, stop}, timeout=budget, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                end = answering.result()
            else:
                if stop.done():
                    end, grace = stop.result()
                answering.cancel()
                # Code that does not react to its cancellation is left behind: the daemon does not wait for it either.
                await asyncio.wait({answering}, timeout=grace / 2)
                if answering.done() and not answering.cancelled():
                    end = replace(end, spans_flushed=answering.result().spans_flushed)
            turn._finish(end)
        finally:
            answering.cancel()

    async def _conclude(self, turn: Turn, budget: float | None) -> Conclusion:
        """Runs the agent within the call's trace, and sees that its spans are sent if the daemon reads them."""
        until = None if budget is None else time.monotonic() + budget
        tracing = self.tracing if FROM_SPANS in self._capabilities else None
        with continued(turn.trace_context):
            if tracing is None:
                return await self._conclusion(turn)
            with tracing.watch() as spans:
                end = await self._conclusion(turn)
                # The answer is there, and must not be lost because the spans used up its time.
                limit = None if until is None else max(until - time.monotonic(), 0) / 2
                try:
                    return replace(end, spans_flushed=await tracing.confirm(spans, limit))
                except asyncio.CancelledError:
                    return end

    async def _conclusion(self, turn: Turn) -> Conclusion:
        """Runs the agent; whatever it does, it comes to an end that can be reported."""
        try:
            async with self._slots or contextlib.nullcontext():
                text = await self._answer(turn)
            return Conclusion(invoke_pb2.FINISH_REASON_COMPLETED, _encodable(text))
        except InvocationFailed as error:
            return Conclusion(invoke_pb2.FINISH_REASON_FAILED, error=error.fault)
        except asyncio.CancelledError as error:
            # Either somebody asked for it, and then nobody looks at this, or the agent's code cancelled itself.
            return Conclusion(invoke_pb2.FINISH_REASON_FAILED, error=fault_of(error))
        except (Exception, EndOfTurn, BaseExceptionGroup) as error:
            # A task group may have wrapped the EndOfTurn, and a framework may have made an error of its own of it.
            if turn._ending is not None:
                return Conclusion(turn._ending)
            return Conclusion(invoke_pb2.FINISH_REASON_FAILED, error=fault_of(error))


Stop = asyncio.Future[tuple[Conclusion, float]]
"""Set when the daemon wants a turn to end: how it shall end, and within how many seconds."""


async def _read(frames: AsyncIterator[agent_pb2.InvokeRequest], turn: Turn, stop: Stop) -> None:
    """Reads what comes after `start`. The end of input is no cancel; only waiting for results makes no sense then."""
    async for frame in frames:
        match frame.WhichOneof("frame"):
            case "tool_result":
                turn._resolve(frame.tool_result)
            case "cancel" if not stop.done():
                stop.set_result(_cancelled(frame.cancel))
            case "start" | "attachment" as kind if not stop.done():
                message = f"frame: unexpected `{kind}`"
                fault = values.Fault(grpc_code=code(grpc.StatusCode.INVALID_ARGUMENT), message=message)
                stop.set_result((Conclusion(invoke_pb2.FINISH_REASON_FAILED, error=fault), CANCEL_GRACE_SECONDS))
            case _:
                pass  # Said before, or a kind of frame that a later revision knows.
    turn._no_more_results()


def _cancelled(cancel: agent_pb2.InvokeCancel) -> tuple[Conclusion, float]:
    is_budget = cancel.reason == agent_pb2.CANCEL_REASON_BUDGET
    reason = invoke_pb2.FINISH_REASON_BUDGET_EXCEEDED if is_budget else invoke_pb2.FINISH_REASON_CANCELLED
    return Conclusion(reason), seconds(cancel.grace) if cancel.HasField("grace") else CANCEL_GRACE_SECONDS


def _encodable(text: str | None) -> str | None:
    """Text with half a character cannot travel; better a clear failure here than an altered answer."""
    if text is not None:
        text.encode("utf-8")
    return text


class Server:
    """A gRPC server with the agent, health and reflection, and with those of the optional services that are given.

    It has its port for itself: CannotListen is raised where somebody else listens.
    """

    def __init__(
        self,
        endpoint: AgentEndpoint,
        listen: str,
        snapshot: SnapshotProvider | None = None,
        *,
        simulator: Simulator | None = None,
        validator: Validator | None = None,
        generator: Generator | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(options=[("grpc.max_receive_message_length", MAX_MESSAGE_BYTES), ALONE])
        agent_pb2_grpc.add_AgentEndpointServicer_to_server(endpoint, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = [SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME]
        if snapshot:
            snapshot_pb2_grpc.add_SnapshotProviderServicer_to_server(snapshot, self._server)
            names.append(SNAPSHOT_SERVICE)
        if simulator:
            simulator_pb2_grpc.add_SimulatorServicer_to_server(simulator, self._server)
            names.append(SIMULATOR_SERVICE)
        if validator:
            validator_pb2_grpc.add_ValidatorServicer_to_server(validator, self._server)
            names.append(VALIDATOR_SERVICE)
        if generator:
            generator_pb2_grpc.add_GeneratorServicer_to_server(generator, self._server)
            names.append(GENERATOR_SERVICE)
        reflection.enable_server_reflection(names, self._server)
        port = listen_on(self._server, listen)
        #: Where it can be reached, with the real port if 0 was asked for.
        self.address = f"{listen.rpartition(':')[0]}:{port}"

    async def start(self) -> None:
        """Begins to answer."""
        await self._health.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
        await self._server.start()

    async def stop(self, grace_seconds: float = 5) -> None:
        """Ends as a good neighbour: says so in health, refuses new calls, lets the running ones finish."""
        await self._health.enter_graceful_shutdown()
        await self._endpoint.drain(grace_seconds)
        # Long enough for the last answers to be written; whoever only watches health is cut off.
        await self._server.stop(0.2)


async def serve(
    endpoint: AgentEndpoint,
    listen: str,
    snapshot: SnapshotProvider | None = None,
    *,
    simulator: Simulator | None = None,
    validator: Validator | None = None,
    generator: Generator | None = None,
) -> None:
    """Serves the agent, and the other services that are given, until the process is asked to end (SIGINT, SIGTERM).

    The first line on stdout says where, so that whoever started the process with port 0 can read the port. If it cannot
    listen there, the process ends with a line on stderr.
    """
    try:
        server = Server(endpoint, listen, snapshot, simulator=simulator, validator=validator, generator=generator)
    except CannotListen as error:
        sys.exit(str(error))
    await server.start()
    print(f"listening on {server.address}", flush=True)
    asked_to_end = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, asked_to_end.set)
    await asked_to_end.wait()
    await server.stop()
