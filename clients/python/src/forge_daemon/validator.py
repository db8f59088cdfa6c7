"""The server side of `Validator`: judges answers by criteria in plain words."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc

from forge_daemon import functions
from forge_daemon.context import Context
from forge_daemon.party import ask
from forge_daemon.proto import validator_pb2, validator_pb2_grpc
from forge_daemon.proto import values_pb2 as values
from forge_daemon.turn import InvocationFailed

__all__ = ["Judge", "Validator", "Verdict"]

SERVICE = validator_pb2.DESCRIPTOR.services_by_name["Validator"].full_name


@dataclass(frozen=True)
class Verdict:
    """A judgement."""

    #: Whether the answer meets the criteria.
    passed: bool
    #: Why, for people who read reports.
    reason: str = ""
    #: How well it meets them, from 0 to 1; None is not measured.
    score: float | None = None
    #: A short name for the result, such as `off_topic`.
    label: str = ""
    #: What it consumed; None is not measured.
    usage: values.Usage | None = None


Judge = (
    Callable[[validator_pb2.ValidateRequest], Awaitable[Verdict]] | Callable[[validator_pb2.ValidateRequest], Verdict]
)
"""Judges one answer. What it reads in output, conversation and tool calls was written by whom it judges.

A plain function runs in a thread.
"""


class Validator(validator_pb2_grpc.ValidatorServicer):
    """Asks a function whether an answer meets the criteria.

    `request.context.agent_id` says which validator is asked, if the process has several; one that does not know it
    raises `InvocationFailed(message, status=StatusCode.NOT_FOUND)`. Any other exception is INTERNAL: the daemon then
    blames the validator, and takes it for neither "passed" nor "failed".
    """

    def __init__(self, judge: Judge) -> None:
        """`judge` is called once for every answer, and only if there are criteria."""
        self._judge = judge

    async def Validate(
        self, request: validator_pb2.ValidateRequest, context: Context
    ) -> validator_pb2.ValidateResponse:
        """Answers the daemon."""
        return await ask(self._validate, request, context)

    async def _validate(self, request: validator_pb2.ValidateRequest) -> validator_pb2.ValidateResponse:
        if not request.criteria.strip():
            raise InvocationFailed("criteria: there is nothing to judge by", status=grpc.StatusCode.INVALID_ARGUMENT)
        return _response(await functions.call(self._judge, request))


def _response(verdict: Any) -> validator_pb2.ValidateResponse:
    if not isinstance(verdict, Verdict):
        raise TypeError(f"a validator returns a Verdict, not {type(verdict).__name__}")
    # Protobuf would take 0 and 1 too, and a model's "no" is no judgement either.
    if not isinstance(verdict.passed, bool):
        raise TypeError(f"passed: {verdict.passed!r} is neither True nor False")
    if verdict.score is not None and not 0 <= verdict.score <= 1:
        raise ValueError(f"score: {verdict.score} is not between 0 and 1")
    return validator_pb2.ValidateResponse(
        passed=verdict.passed,
        reason=verdict.reason,
        score=verdict.score,
        label=verdict.label,
        usage=verdict.usage,
    )
