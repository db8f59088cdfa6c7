from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from types import SimpleNamespace

import grpc
import pytest

from forge_daemon import Agent, Answer, Server, Turn
from forge_daemon.proto.agent_pb2_grpc import AgentEndpointStub
from forge_daemon.proto.generator_pb2_grpc import GeneratorStub
from forge_daemon.proto.simulator_pb2_grpc import SimulatorStub
from forge_daemon.proto.validator_pb2_grpc import ValidatorStub

Serve = Callable[[Agent], Awaitable[AgentEndpointStub]]
Parties = Callable[..., Awaitable[SimpleNamespace]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serves endpoints on free ports, and gives a client for each."""
    async with AsyncExitStack() as stack:

        async def start(agent: Agent) -> AgentEndpointStub:
            server = Server(agent, "127.0.0.1:0")
            await server.start()
            stack.push_async_callback(server.stop, 0.1)
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.address))
            return AgentEndpointStub(channel)

        yield start


@pytest.fixture
def serve_answer(serve: Serve) -> Callable[..., Awaitable[AgentEndpointStub]]:
    """Serves an agent that is only a function."""

    async def start(answer: Answer, **options: object) -> AgentEndpointStub:
        return await serve(Agent(answer, id="test.agent", version="1", **options))

    return start


@pytest.fixture
async def parties() -> AsyncIterator[Parties]:
    """Serves services beside an agent, and gives a client for each."""
    async with AsyncExitStack() as stack:

        async def start(**services: object) -> SimpleNamespace:
            async def answer(turn: Turn) -> str:
                return turn.user_text

            server = Server(Agent(answer, id="a", **services), "127.0.0.1:0")
            await server.start()
            stack.push_async_callback(server.stop, 0.1)
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.address))
            return SimpleNamespace(
                simulator=SimulatorStub(channel),
                validator=ValidatorStub(channel),
                generator=GeneratorStub(channel),
                channel=channel,
            )

        yield start
