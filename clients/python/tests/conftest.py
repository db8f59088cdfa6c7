from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from types import SimpleNamespace

import grpc
import pytest

from forge_daemon import AgentEndpoint, Answer, Server, Turn
from forge_daemon.proto.agent_pb2 import AgentCard
from forge_daemon.proto.agent_pb2_grpc import AgentEndpointStub
from forge_daemon.proto.generator_pb2_grpc import GeneratorStub
from forge_daemon.proto.simulator_pb2_grpc import SimulatorStub
from forge_daemon.proto.validator_pb2_grpc import ValidatorStub

Serve = Callable[[AgentEndpoint], Awaitable[AgentEndpointStub]]
Parties = Callable[..., Awaitable[SimpleNamespace]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serves endpoints on free ports, and gives a client for each."""
    async with AsyncExitStack() as stack:

        async def start(endpoint: AgentEndpoint) -> AgentEndpointStub:
            server = Server(endpoint, "127.0.0.1:0")
            await server.start()
            stack.push_async_callback(server.stop, 0.1)
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.address))
            return AgentEndpointStub(channel)

        yield start


@pytest.fixture
def serve_answer(serve: Serve) -> Callable[..., Awaitable[AgentEndpointStub]]:
    """Serves an agent that is only a function."""

    async def start(answer: Answer, **options: object) -> AgentEndpointStub:
        card = AgentCard(agent_id="test.agent", version="1")
        return await serve(AgentEndpoint(card, answer, **options))

    return start


@pytest.fixture
async def parties() -> AsyncIterator[Parties]:
    """Serves services beside an agent, and gives a client for each."""
    async with AsyncExitStack() as stack:

        async def start(**services: object) -> SimpleNamespace:
            async def answer(turn: Turn) -> str:
                return turn.user_text

            server = Server(AgentEndpoint(AgentCard(), answer), "127.0.0.1:0", **services)
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
