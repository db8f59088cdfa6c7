"""The daemon's side of attached streams, written by hand, frame by frame, with nothing but generated code."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from forge_daemon.proto import attach_pb2
from forge_daemon.proto.attach_pb2 import AttachResponse

SECONDS = 10
"""Nothing here takes so long unless it hangs."""
CODES = {status.value[0]: status for status in grpc.StatusCode}


class HandDaemon:
    """A server to which agents attach. `async with HandDaemon() as daemon: …; session = await daemon.session()`."""

    def __init__(
        self, address: str = "127.0.0.1:0", credentials: grpc.ServerCredentials | None = None, **welcome: Any
    ) -> None:
        self.welcome = {
            "revision": 1,
            "initial_window_bytes": 256 << 10,
            "stream_window_bytes": 4 << 20,
            "max_message_bytes": 4 << 20,
            **welcome,
        }
        self.server = grpc.aio.server(options=[("grpc.max_receive_message_length", 5 << 20), ("grpc.so_reuseport", 0)])
        handler = grpc.stream_stream_rpc_method_handler(
            self.attach,
            attach_pb2.AttachRequest.FromString,
            lambda frame: frame if isinstance(frame, bytes) else frame.SerializeToString(),
        )
        handlers = grpc.method_handlers_generic_handler("forge.attach.v1.AttachService", {"Attach": handler})
        self.server.add_generic_rpc_handlers((handlers,))
        if credentials:
            port = self.server.add_secure_port(address, credentials)
        else:
            port = self.server.add_insecure_port(address)
        self.address = f"127.0.0.1:{port}"
        self.metadata: dict[str, Any] = {}
        #: What the next hellos are refused with.
        self.refusals: list[tuple[grpc.StatusCode, str]] = []
        self._sessions: asyncio.Queue[Session] = asyncio.Queue()
        self._count = 0

    async def __aenter__(self) -> "HandDaemon":
        await self.server.start()
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.server.stop(0)

    async def session(self) -> "Session":
        """The next one that is opened."""
        return await asyncio.wait_for(self._sessions.get(), SECONDS)

    async def attach(self, frames: AsyncIterator[attach_pb2.AttachRequest], context: Any) -> None:
        self.metadata = dict(context.invocation_metadata())
        hello = (await anext(aiter(frames))).hello
        if self.refusals:
            await context.abort(*self.refusals.pop(0))
        self._count += 1
        session = Session(hello, f"session-{self._count}", context)
        await context.write(AttachResponse(welcome={**self.welcome, "session_id": session.id}))
        self._sessions.put_nowait(session)
        reader = asyncio.create_task(session.read(frames))
        try:
            await session.ending
        finally:
            reader.cancel()
        if session.status is not None:
            await context.abort(*session.status)


class Session:
    """One attached stream."""

    def __init__(self, hello: attach_pb2.Hello, id: str, context: Any) -> None:
        self.hello, self.id = hello, id
        self.context = context
        self.calls: dict[int, HandCall] = {}
        #: Frames that belong to no call, in order.
        self.said: asyncio.Queue[Any] = asyncio.Queue()
        #: Credit that the agent gave for the stream.
        self.granted = 0
        #: Whether it gives credit of the stream for what has come.
        self.gives_back = True
        self.is_closed = asyncio.Event()
        self.ending: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.status: tuple[grpc.StatusCode, str] | None = None
        self._last = 0
        self._writing = asyncio.Lock()

    async def read(self, frames: AsyncIterator[attach_pb2.AttachRequest]) -> None:
        async for frame in frames:
            match frame.WhichOneof("frame"):
                case "reply":
                    size = self.calls[frame.reply.call_no].arrived(frame.reply)
                    if self.gives_back:
                        await self.tell(window={"call_no": 0, "bytes": size})
                case "end":
                    self.calls[frame.end.call_no].ended(frame.end)
                case "window" if frame.window.call_no == 0:
                    self.granted += frame.window.bytes
                case "window":
                    self.calls[frame.window.call_no].granted += frame.window.bytes
                case kind:
                    self.said.put_nowait(getattr(frame, kind))
                    if kind == "drain":
                        await self.tell(drain_ack={"last_call_no": self._last})
        self.is_closed.set()
        self.end()

    async def heard(self) -> Any:
        """The next frame that belongs to no call."""
        return await asyncio.wait_for(self.said.get(), SECONDS)

    async def tell(self, **frame: Any) -> None:
        await self.write(AttachResponse(**frame))

    async def write(self, frame: Any) -> None:
        """Sends a frame, which may be bytes that no encoder writes."""
        # Of two that write at once, gRPC refuses the one.
        async with self._writing:
            if not self.is_closed.is_set():
                await self.context.write(frame)

    async def open(self, kind: str = "invoke", request: Any = None, **more: Any) -> "HandCall":
        """Begins a call of the first of its agents."""
        self._last += 1
        call = HandCall(self, self._last, kind, is_read=more.pop("is_read", True))
        self.calls[call.number] = call
        fields = {"call_no": call.number, "agent_id": self.hello.agents[0].agent_id, kind: request or {}, **more}
        await self.tell(open=fields)
        return call

    def end(self, status: tuple[grpc.StatusCode, str] | None = None) -> None:
        """Closes the stream."""
        if not self.ending.done():
            self.status = status
            self.ending.set_result(None)


class HandCall:
    """A call that was opened."""

    def __init__(self, session: Session, number: int, kind: str, is_read: bool) -> None:
        self.session, self.number, self.kind, self.is_read = session, number, kind, is_read
        self.granted = 0
        self.received = 0
        self._arriving: asyncio.Queue[Any] = asyncio.Queue()
        self._end: asyncio.Future[attach_pb2.EndCall] = asyncio.get_running_loop().create_future()

    def arrived(self, reply: attach_pb2.Reply) -> int:
        assert not self._end.done(), "a reply behind the end"
        assert reply.WhichOneof("payload") == self.kind
        message = getattr(reply, self.kind)
        size = message.ByteSize() + 64
        self.received += size
        self._arriving.put_nowait(message)
        return size

    def ended(self, end: attach_pb2.EndCall) -> None:
        assert not self._end.done(), "a second end"
        self._end.set_result(end)
        self._arriving.put_nowait(None)

    def __aiter__(self) -> "HandCall":
        return self

    async def __anext__(self) -> Any:
        message = await asyncio.wait_for(self._arriving.get(), SECONDS)
        if message is None:
            raise StopAsyncIteration
        if self.is_read:
            await self.session.tell(window={"call_no": self.number, "bytes": message.ByteSize() + 64})
        return message

    async def end(self) -> attach_pb2.EndCall:
        """How it ended."""
        return await asyncio.wait_for(asyncio.shield(self._end), SECONDS)

    async def code(self) -> grpc.StatusCode:
        return CODES[(await self.end()).fault.grpc_code]

    async def details(self) -> str:
        return (await self.end()).fault.message
