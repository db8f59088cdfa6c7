"""Everything that an agent's process answers, whichever way the calls come."""

from collections.abc import Callable
from typing import Any

from forge_daemon.agent import Agent
from forge_daemon.endpoint import SERVICE, AgentEndpoint
from forge_daemon.generator import SERVICE as GENERATOR_SERVICE
from forge_daemon.generator import Generator
from forge_daemon.proto import (
    agent_pb2_grpc,
    generator_pb2_grpc,
    simulator_pb2_grpc,
    snapshot_pb2_grpc,
    validator_pb2_grpc,
)
from forge_daemon.simulator import SERVICE as SIMULATOR_SERVICE
from forge_daemon.simulator import Simulator
from forge_daemon.snapshot import SERVICE as SNAPSHOT_SERVICE
from forge_daemon.snapshot import SnapshotProvider
from forge_daemon.validator import SERVICE as VALIDATOR_SERVICE
from forge_daemon.validator import Validator

__all__ = ["Parts"]


class Parts:
    """The agent, and the other parts that it brings."""

    def __init__(self, agent: Agent, drain: Callable[[], None]) -> None:
        """`drain` begins the graceful end of the process; a probe script may ask for it."""
        self.endpoint = AgentEndpoint(agent, drain)
        self.simulator = Simulator(agent.simulator) if agent.simulator else None
        self.validator = Validator(agent.validator) if agent.validator else None
        self.generator = Generator(agent.generator) if agent.generator else None
        self.snapshot = SnapshotProvider(agent.snapshot) if agent.snapshot else None

    def add_to(self, server: Any) -> list[str]:
        """Has a gRPC server serve them: the names of their services."""
        agent_pb2_grpc.add_AgentEndpointServicer_to_server(self.endpoint, server)
        names = [SERVICE]
        rest: list[tuple[Any, Callable[[Any, Any], None], str]] = [
            (self.snapshot, snapshot_pb2_grpc.add_SnapshotProviderServicer_to_server, SNAPSHOT_SERVICE),
            (self.simulator, simulator_pb2_grpc.add_SimulatorServicer_to_server, SIMULATOR_SERVICE),
            (self.validator, validator_pb2_grpc.add_ValidatorServicer_to_server, VALIDATOR_SERVICE),
            (self.generator, generator_pb2_grpc.add_GeneratorServicer_to_server, GENERATOR_SERVICE),
        ]
        for part, add, name in rest:
            if part is not None:
                add(part, server)
                names.append(name)
        return names
