"""The snapshot provider, over a real server."""

import json

import grpc
import pytest

from forge_daemon import Agent, Server, Turn
from forge_daemon.proto import snapshot_pb2
from forge_daemon.proto.snapshot_pb2_grpc import SnapshotProviderStub


@pytest.fixture
async def provider():
    async def answer(turn: Turn) -> str:
        return turn.user_text

    async def capture(path: str) -> object:
        known = {"prices.AAPL": 178.5, "prices.MSFT": 9007199254740993, "items[1].name": "b", "items[0].name": "a"}
        if path == "broken":
            raise RuntimeError("the exchange is closed")
        if path not in known:
            raise LookupError(f"no {path}")
        return known[path]

    server = Server(Agent(answer, id="a", snapshot=capture), "127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield SnapshotProviderStub(channel)
    await server.stop()


async def test_values_stand_where_tokens_look_for_them(provider):
    paths = ["prices.AAPL", "items[1].name", "prices.MSFT", "prices.X", "items[0].name"]
    answer = await provider.Capture(snapshot_pb2.CaptureRequest(paths=paths))
    assert json.loads(answer.data.raw) == {
        "prices": {"AAPL": 178.5, "MSFT": 9007199254740993},
        "items": [{"name": "a"}, {"name": "b"}],
    }
    assert {path: fault.message for path, fault in answer.unresolved.items()} == {"prices.X": "no prices.X"}


async def test_a_capture_that_fails_says_so(provider):
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await provider.Capture(snapshot_pb2.CaptureRequest(paths=["broken"]))
    assert failed.value.code() == grpc.StatusCode.INTERNAL
    assert failed.value.details() == "broken: RuntimeError: the exchange is closed"
