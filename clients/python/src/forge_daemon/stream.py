"""One attached stream, and the calls that are open on it. The rules are written in attach.proto."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError, Message

from forge_daemon.dialling import CannotAttach, Daemon
from forge_daemon.frames import METHOD, AttachRequest, AttachResponse
from forge_daemon.parts import Parts
from forge_daemon.proto import agent_pb2, generator_pb2, simulator_pb2, snapshot_pb2, validator_pb2
from forge_daemon.proto import values_pb2 as values
from forge_daemon.values import code, fault_of, seconds, shortened
from forge_daemon.windows import BrokenCredit, Sizes, Windows

__all__ = ["OURS", "Lost", "Stream"]

logger = logging.getLogger(__name__)

OURS = Sizes(call=256 << 10, stream=4 << 20)
"""Credit that the daemon has."""
MAX_CALLS = 256
MAX_REPLIES_WAITING = 1000
"""Messages of calls that wait to be written, however small. Calls that have more wait themselves."""
MAX_FRAMES_WAITING = 10_000
"""With what must not wait: a daemon that opens calls and pings, and does not read, is given up."""
PATIENCE_SECONDS = 10.0
"""Time for a connection, and for the daemon's welcome."""
PING_SECONDS = 20.0
"""How often the daemon sends a ping if it does not say."""
SILENT_INTERVALS = 3
"""After how many intervals of pings without a frame the stream is lost."""
CLOSING_SECONDS = 1.0
"""Time that the daemon has to take the last frames."""
STOPPING_SECONDS = 0.1
"""Time that calls have to notice that their stream is over. Nobody waits for what they do then."""

FINAL = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.ABORTED,
}
"""Statuses after which the same would happen again."""

REQUESTS: dict[str, type[Message]] = {
    "invoke": agent_pb2.InvokeRequest,
    "next_input": simulator_pb2.NextInputRequest,
    "validate": validator_pb2.ValidateRequest,
    "generate": generator_pb2.GenerateRequest,
    "capture": snapshot_pb2.CaptureRequest,
    "describe": agent_pb2.DescribeRequest,
}
"""The calls, each by its field in `open`, which is its field in `reply`, too."""


class Lost(Exception):
    """The stream is over, and may be opened again."""


class Stream:
    """A stream on which the agent is welcome."""

    def __init__(self, channel: grpc.aio.Channel, call: Any, welcome: Any, parts: Parts, names: list[str]) -> None:
        """Made by `open`."""
        self.session_id: str = welcome.session_id
        self._channel, self._call = channel, call
        self._ping_seconds = (
            max(seconds(welcome.ping_interval), 0.1) if welcome.HasField("ping_interval") else PING_SECONDS
        )
        self._max_message_bytes: int = welcome.max_message_bytes
        self._windows = Windows(OURS, Sizes(welcome.initial_window_bytes, welcome.stream_window_bytes))
        self._handlers = _handlers(parts)
        self._names = set(names)
        self._calls: dict[int, _Call] = {}
        self._last = 0
        # Bounded by the credit that the daemon gives, and by the two limits above.
        self._outgoing: asyncio.Queue[Any] = asyncio.Queue()
        self._room = asyncio.Event()
        self._work: set[asyncio.Task[None]] = set()
        self._heard = time.monotonic()
        self._may_close = False
        #: None if the agent has left, Lost if not.
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(cls, daemon: Daemon, hello: Any, parts: Parts, names: list[str]) -> "Stream":
        """Dials the daemon. Raises Lost or CannotAttach."""
        channel = daemon.connect()
        try:
            method = channel.stream_stream(METHOD, AttachRequest.SerializeToString, AttachResponse.FromString)
            call = method(metadata=daemon.metadata)
            frame = await asyncio.wait_for(_greet(call, hello), PATIENCE_SECONDS)
            if frame is grpc.aio.EOF:
                raise Lost("the daemon closed the stream")
            if frame.WhichOneof("frame") != "welcome":
                raise Lost("the daemon's first frame is no welcome")
            return cls(channel, call, frame.welcome, parts, names)
        except BaseException as error:
            await channel.close()
            if isinstance(error, asyncio.TimeoutError):
                raise Lost(f"no welcome within {PATIENCE_SECONDS:g} s") from None
            if isinstance(error, grpc.aio.AioRpcError):
                raise _read_status(daemon, error) from None
            raise

    async def serve(self, daemon: Daemon, leave: asyncio.Event, grace_seconds: Callable[[], float]) -> None:
        """Serves calls until the agent has left. Raises Lost or CannotAttach when the stream ends before."""
        reader, *others = (
            asyncio.create_task(self._guard(daemon, work))
            for work in (self._read(), self._write(), self._watch(), self._leave(leave, grace_seconds))
        )
        try:
            await self._ended
            self._outgoing.put_nowait(None)
            # Our side closes behind the frames that are queued, and then the daemon closes its own.
            await asyncio.wait({reader}, timeout=CLOSING_SECONDS)
        finally:
            self._ended.cancel()
            tasks = {reader, *others, *self._work}
            for task in tasks:
                task.cancel()
            await self._channel.close()
            await asyncio.wait(tasks, timeout=STOPPING_SECONDS)

    # What keeps the stream going, each a task.

    async def _guard(self, daemon: Daemon, work: Coroutine[Any, Any, None]) -> None:
        """Whatever ends one of them ends the stream."""
        try:
            await work
        except asyncio.CancelledError:
            self._fail(Lost("the connection was given up"))  # By gRPC, if the stream has not ended.
            raise
        except grpc.aio.AioRpcError as status:
            self._fail(_read_status(daemon, status))
        except BrokenCredit as broken:
            self._fail(_broken(str(broken)))
        except (Lost, CannotAttach) as lost:
            self._fail(lost)
        except asyncio.InvalidStateError:
            pass  # The call is over, which its reader knows.
        except Exception as unexpected:
            logger.exception("an attached stream ends by an error that nobody expected")
            self._fail(Lost(str(unexpected)))

    def _fail(self, error: Exception) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)

    async def _read(self) -> None:
        while (frame := await self._call.read()) is not grpc.aio.EOF:
            if frame is None:
                raise _broken("a frame cannot be read")
            self._heard = time.monotonic()
            self._take(frame)
        raise Lost("the daemon closed the stream")

    async def _write(self) -> None:
        while (frame := await self._outgoing.get()) is not None:
            await self._call.write(frame)
            if self._outgoing.qsize() <= MAX_REPLIES_WAITING // 2:
                self._room.set()
        await self._call.done_writing()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._ping_seconds)
            silence = time.monotonic() - self._heard
            if silence > self._ping_seconds * SILENT_INTERVALS:
                raise Lost(f"nothing was heard of the daemon for {silence:.0f} s")

    async def _leave(self, leave: asyncio.Event, grace_seconds: Callable[[], float]) -> None:
        await leave.wait()
        self._tell(drain={"reason": "the agent was asked to end"})
        await asyncio.sleep(grace_seconds())
        self._left()  # What still runs is broken off.

    def _left(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    # What the daemon says.

    def _take(self, frame: Any) -> None:
        match frame.WhichOneof("frame"):
            case "open":
                self._open(frame.open)
            case "send":
                self._receive(frame.send.call_no, frame.send.invoke)
            case "half_close":
                if (call := self._calls.get(frame.half_close.call_no)) and not call.is_half_closed:
                    call.is_half_closed = True
                    call.messages.put_nowait(None)
            case "reset":
                if call := self._forget(frame.reset.call_no):
                    call.stop()
            case "window":
                self._windows.granted(frame.window.call_no, frame.window.bytes)
                self._room.set()
            case "ping":
                self._tell(pong={"nonce": frame.ping.nonce})
            case "drain_ack":
                self._may_close = True
                self._close_if_idle()
            case "welcome":
                raise _broken("a second welcome")
            case _:
                pass  # A frame of a later revision.

    def _open(self, frame: Any) -> None:
        if frame.call_no <= self._last:
            raise _broken("the number of a call came again")
        self._last = frame.call_no
        kind = frame.WhichOneof("call")
        if kind is None:
            return self._refuse(frame.call_no, _status(grpc.StatusCode.UNIMPLEMENTED, "this call is not known"))
        message = getattr(frame, kind)
        self._give_back(0, self._windows.received(None, len(message)))
        handler = self._handlers.get(kind)
        if frame.agent_id not in self._names:
            status = _status(grpc.StatusCode.NOT_FOUND, f"agent_id: {frame.agent_id[:200]!r} is not attached here")
        elif handler is None:
            status = _status(grpc.StatusCode.UNIMPLEMENTED, "this process does not play that part")
        elif len(self._calls) >= MAX_CALLS:
            status = _status(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls are open")
        else:
            try:
                request = REQUESTS[kind].FromString(message)
            except DecodeError:
                return self._refuse(frame.call_no, UNREADABLE)
            timeout = seconds(frame.timeout) if frame.HasField("timeout") else None
            return self._begin(_Call(self, frame.call_no, kind), handler, request, timeout)
        return self._refuse(frame.call_no, status)

    def _begin(self, call: "_Call", handler: Any, request: Any, timeout: float | None) -> None:
        self._windows.open(call.number)
        self._calls[call.number] = call
        task = asyncio.create_task(self._run(call, handler, request))
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        call.task = task
        if timeout is not None:
            call.timer = asyncio.get_running_loop().call_later(max(timeout, 0), self._expire, call)

    def _receive(self, call_no: int, message: bytes) -> None:
        self._give_back(0, self._windows.received(call_no, len(message)))
        call = self._calls.get(call_no)
        if call is None or call.kind != "invoke" or call.is_half_closed:
            return
        try:
            call.messages.put_nowait((agent_pb2.InvokeRequest.FromString(message), len(message)))
        except DecodeError:
            self._end(call_no, UNREADABLE)
            call.stop()

    # The calls.

    async def _run(self, call: "_Call", handler: Any, request: Any) -> None:
        """Answers a call; however that goes, it gets its one end."""
        fault = None
        try:
            if call.kind == "invoke":
                await handler(_Messages(self, call, request), call)
            elif (response := await handler(request, call)) is not None:
                await call.write(response)
        except _Aborted as aborted:
            fault = aborted.fault
        except asyncio.CancelledError as error:
            if call.number not in self._calls or self._ended.done():
                raise
            fault = fault_of(error)  # The handler's own.
        except (Exception, SystemExit) as error:
            logger.exception("a call of %s failed", call.kind)
            fault = fault_of(error)
        self._end(call.number, fault)

    async def _reply(self, call: "_Call", message: bytes) -> None:
        """Sends a message as soon as there is credit and room for it."""
        while call.number in self._calls:
            if self._windows.may_send(call.number) and self._outgoing.qsize() < MAX_REPLIES_WAITING:
                self._windows.sent(call.number, len(message))
                self._outgoing.put_nowait(AttachRequest(reply={"call_no": call.number, call.kind: message}))
                return
            self._room.clear()
            await self._room.wait()

    def _taken(self, call: "_Call", size: int) -> None:
        self._give_back(call.number, self._windows.taken(call.number, size))

    def _expire(self, call: "_Call") -> None:
        self._end(call.number, _status(grpc.StatusCode.DEADLINE_EXCEEDED, "the time of the call is used up"))
        call.stop()

    def _forget(self, call_no: int) -> "_Call | None":
        self._windows.close(call_no)
        call = self._calls.pop(call_no, None)
        if call and call.timer:
            call.timer.cancel()
        self._room.set()
        self._close_if_idle()
        return call

    def _end(self, call_no: int, fault: values.Fault | None) -> None:
        """Ends a call, if it is open."""
        if call_no in self._calls:
            # First, because the end of the last call may be the end of the stream.
            self._refuse(call_no, fault)
            self._forget(call_no)

    def _refuse(self, call_no: int, fault: values.Fault | None) -> None:
        if fault:
            fault.message = shortened(fault.message)
        self._tell(end={"call_no": call_no, "fault": fault.SerializeToString() if fault else None})

    def _close_if_idle(self) -> None:
        if self._may_close and not self._calls:
            self._left()

    def _give_back(self, call_no: int, size: int) -> None:
        if size:
            self._tell(window={"call_no": call_no, "bytes": size})

    def _tell(self, **frame: Any) -> None:
        if self._outgoing.qsize() >= MAX_FRAMES_WAITING:
            return self._fail(_broken("it does not read"))
        return self._outgoing.put_nowait(AttachRequest(**frame))


class _Call:
    """A call that is open, as the code that answers it sees it: a `Context`."""

    def __init__(self, stream: Stream, number: int, kind: str) -> None:
        self.number, self.kind = number, kind
        #: Further messages of the daemon, each with its size; None: there are no more.
        self.messages: asyncio.Queue[tuple[Any, int] | None] = asyncio.Queue()
        self.is_half_closed = False
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self._stream = stream

    def invocation_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        """None come with a call of an attached stream; traces are in the request."""
        return ()

    async def write(self, message: Message) -> None:
        """Sends a message as soon as there is credit for it."""
        encoded = message.SerializeToString()
        most = self._stream._max_message_bytes
        if most and len(encoded) > most:
            why = f"a message has {len(encoded)} bytes, and the daemon takes {most}"
            await self.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, why)
        await self._stream._reply(self, encoded)

    async def abort(self, code: grpc.StatusCode, details: str = "") -> NoReturn:
        """Ends the call with a status."""
        raise _Aborted(_status(code, details))

    def stop(self) -> None:
        """Ends what it does."""
        if self.task:
            self.task.cancel()


class _Messages:
    """What the daemon sends in a call. What is taken of it gives credit back."""

    def __init__(self, stream: Stream, call: _Call, first: Any) -> None:
        self._stream, self._call, self._first = stream, call, first

    def __aiter__(self) -> "_Messages":
        return self

    async def __anext__(self) -> Any:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        found = await self._call.messages.get()
        if found is None:
            raise StopAsyncIteration
        message, size = found
        self._stream._taken(self._call, size)
        return message


class _Aborted(Exception):
    def __init__(self, fault: values.Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


def _handlers(parts: Parts) -> dict[str, Any]:
    handlers: dict[str, Any] = {"invoke": parts.endpoint.Invoke, "describe": parts.endpoint.Describe}
    if parts.simulator:
        handlers["next_input"] = parts.simulator.NextInput
    if parts.validator:
        handlers["validate"] = parts.validator.Validate
    if parts.generator:
        handlers["generate"] = parts.generator.Generate
    if parts.snapshot:
        handlers["capture"] = parts.snapshot.Capture
    return handlers


async def _greet(call: Any, hello: Any) -> Any:
    with suppress(asyncio.InvalidStateError):  # The call is over, and reading says why.
        await call.write(AttachRequest(hello=hello))
    return await call.read()


def _status(status: grpc.StatusCode, message: str) -> values.Fault:
    return values.Fault(grpc_code=code(status), message=message, origin=values.FAULT_ORIGIN_AGENT)


UNREADABLE = _status(grpc.StatusCode.INTERNAL, "a message of the call cannot be read")


def _broken(why: str) -> Lost:
    return Lost(f"the daemon broke the rules of the stream: {why}")


def _read_status(daemon: Daemon, error: grpc.aio.AioRpcError) -> "Lost | CannotAttach":
    status, details = error.code(), error.details() or ""
    is_overrun = status is grpc.StatusCode.RESOURCE_EXHAUSTED and details.startswith("WINDOW_")
    if status in FINAL or is_overrun:
        return CannotAttach(daemon.authority, f"{status.name}: {details}")
    return Lost(details.removeprefix("failed to connect to all addresses; last error: UNKNOWN: ") or status.name)
