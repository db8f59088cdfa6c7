"""The server side of `Simulator`: plays the user in dynamic cases."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from forge_daemon import functions
from forge_daemon.context import Context
from forge_daemon.party import ask
from forge_daemon.proto import simulator_pb2, simulator_pb2_grpc
from forge_daemon.proto import values_pb2 as values

__all__ = ["Play", "Simulator", "UserTurn"]

SERVICE = simulator_pb2.DESCRIPTOR.services_by_name["Simulator"].full_name


@dataclass(frozen=True)
class UserTurn:
    """What the user does next: says something, or ends the conversation."""

    #: What the user says; a message may hold more than text. Ignored if the conversation ends.
    input: str | values.Message = ""
    #: The user has got what they wanted: the conversation ends.
    goal_achieved: bool = False
    #: The user leaves without it: the conversation ends.
    gave_up: bool = False
    #: Why, for people who read reports.
    reasoning: str = ""
    #: What it consumed; None is not measured.
    usage: values.Usage | None = None


Said = UserTurn | str
"""A text alone is what the user says."""

Play = Callable[[simulator_pb2.NextInputRequest], Awaitable[Said]] | Callable[[simulator_pb2.NextInputRequest], Said]
"""Plays one turn of the user. `request.conversation` holds everything that was said; remember nothing else.

A plain function runs in a thread.
"""


class Simulator(simulator_pb2_grpc.SimulatorServicer):
    """Asks a function what the user says next.

    `request.context.agent_id` says which simulator is asked, if the process plays several; one that does not know it
    raises `InvocationFailed(message, status=StatusCode.NOT_FOUND)`. Any other exception is INTERNAL, and so is a turn
    with neither an input nor an end: the daemon then blames the simulator, and not the agent.
    """

    def __init__(self, play: Play) -> None:
        """`play` is called once before every turn."""
        self._play = play

    async def NextInput(
        self, request: simulator_pb2.NextInputRequest, context: Context
    ) -> simulator_pb2.NextInputResponse:
        """Answers the daemon."""
        return await ask(self._turn, request, context)

    async def _turn(self, request: simulator_pb2.NextInputRequest) -> simulator_pb2.NextInputResponse:
        return _response(await functions.call(self._play, request))


def _response(turn: Any) -> simulator_pb2.NextInputResponse:
    if isinstance(turn, str):
        turn = UserTurn(turn)
    if not isinstance(turn, UserTurn):
        raise TypeError(f"a simulator returns a UserTurn or a text, not {type(turn).__name__}")
    if turn.goal_achieved and turn.gave_up:
        raise ValueError("the simulator says both that the goal is achieved and that the user gave up")
    is_end = turn.goal_achieved or turn.gave_up
    return simulator_pb2.NextInputResponse(
        input=None if is_end else _message(turn.input),
        goal_achieved=turn.goal_achieved,
        gave_up=turn.gave_up,
        reasoning=turn.reasoning,
        usage=turn.usage,
    )


def _message(said: str | values.Message) -> values.Message:
    message = values.Message(role=values.ROLE_USER)
    if isinstance(said, values.Message):
        message.MergeFrom(said)
        message.role = values.ROLE_USER
    elif said.strip():
        message.parts.add(text=said)
    if not message.parts:
        raise ValueError("the simulator gave neither an input nor an end")
    return message
