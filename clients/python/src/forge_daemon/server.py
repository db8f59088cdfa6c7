"""A server for an agent and for what plays other parts beside it, and a whole process of it."""

import asyncio
import signal
import sys
from contextlib import suppress
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from forge_daemon.agent import Agent, Answer, agent_of
from forge_daemon.endpoint import MAX_MESSAGE_BYTES, SERVICE
from forge_daemon.listening import ALONE, CannotListen, listen_on
from forge_daemon.parts import Parts

__all__ = ["DEFAULT_LISTEN", "Server", "serve"]

DEFAULT_LISTEN = "127.0.0.1:50051"


class Server:
    """A gRPC server with the agent, health and reflection, and with the other parts that the agent brings.

    It is made inside of a running event loop, and has its port for itself: CannotListen is raised where somebody else
    listens. As in `async with Server(agent, "127.0.0.1:0") as server: …`.
    """

    def __init__(self, agent: Agent | Answer, listen: str = DEFAULT_LISTEN) -> None:
        agent = agent_of(agent)
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(options=[("grpc.max_receive_message_length", MAX_MESSAGE_BYTES), ALONE])
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        parts = Parts(agent, self._begin_to_end)
        self._endpoint = parts.endpoint
        names = [health.SERVICE_NAME, reflection.SERVICE_NAME, *parts.add_to(self._server)]
        reflection.enable_server_reflection(names, self._server)
        port = listen_on(self._server, listen)
        #: Where it can be reached, with the real port if 0 was asked for.
        self.address = f"{listen.rpartition(':')[0]}:{port}"
        self._ended = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None

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
        self._ended.set()

    async def wait_for_end(self) -> None:
        """Waits until it has stopped, whoever asked for that."""
        await self._ended.wait()

    async def __aenter__(self) -> "Server":
        await self.start()
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.stop(0.1)

    def _begin_to_end(self) -> None:
        self._ending = self._ending or asyncio.create_task(self.stop())


def serve(agent: Agent | Answer, listen: str | None = None) -> None:
    """Serves the agent until the process is asked to end (SIGINT, SIGTERM).

    `listen` is `HOST:PORT`, and port 0 takes any free one. Left out it is what follows `--listen` on the command
    line, else 127.0.0.1:50051. The first line on stdout says where it listens, so that whoever started the process
    can read the port. If it cannot listen there, the process ends with a line on stderr and code 1.

    In code that has an event loop of its own, use `Server`.
    """
    agent = agent_of(agent)
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise TypeError("serve: blocks, and an event loop runs here; use `async with Server(agent, listen)`")
    address = _from_command_line() if listen is None else listen
    try:
        asyncio.run(_serve(agent, address))
    except CannotListen as error:
        sys.exit(str(error))


async def _serve(agent: Agent, listen: str) -> None:
    server = Server(agent, listen)
    # Before anybody knows where it is: who reads that may ask it to end at once.
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, server._begin_to_end)
    await server.start()
    print(f"listening on {server.address}", flush=True)
    await server.wait_for_end()


def _from_command_line() -> str:
    arguments = sys.argv[1:]
    for position, argument in enumerate(arguments):
        if argument == "--listen":
            if position + 1 == len(arguments):
                sys.exit("--listen: expects an address, for example 127.0.0.1:50051")
            return arguments[position + 1]
        if argument.startswith("--listen="):
            return argument.removeprefix("--listen=")
    return DEFAULT_LISTEN
