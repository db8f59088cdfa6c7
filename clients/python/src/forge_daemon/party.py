"""What Simulator, Validator and Generator share: budget, trace, and that every failure becomes a status."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc

from forge_daemon.context import Context
from forge_daemon.propagation import continued, trace_context
from forge_daemon.proto import generator_pb2, simulator_pb2, validator_pb2
from forge_daemon.turn import InvocationFailed
from forge_daemon.values import code, fault_of, seconds, shortened

__all__ = ["ask"]

Request = TypeVar(
    "Request", simulator_pb2.NextInputRequest, validator_pb2.ValidateRequest, generator_pb2.GenerateRequest
)
Response = TypeVar("Response")

GRACE_SECONDS = 1.0
"""How long a function that is cancelled has to end."""

STATUSES = {code(status): status for status in grpc.StatusCode if status is not grpc.StatusCode.OK}


async def ask(function: Callable[[Request], Awaitable[Response]], request: Request, context: Context) -> Response:
    """Awaits the function, within the call's trace and its budget. Whatever fails becomes a status.

    An exception is INTERNAL with its text, except for InvocationFailed, which says itself which status it is. The same
    goes for a CancelledError that is the function's own: gRPC would take it for a cancel of the call, and send nothing.
    """
    budget = seconds(request.context.budget) if request.context.HasField("budget") else None
    if budget is not None and budget <= 0:
        await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the budget of the call is used up")
    with continued(trace_context(request.context, context.invocation_metadata())):
        asked = asyncio.ensure_future(function(request))
    try:
        await asyncio.wait({asked}, timeout=budget)
    finally:
        is_late = not asked.done()
        if is_late:
            asked.cancel()
    if is_late:
        # Code that does not react to its cancellation is left behind.
        await asyncio.wait({asked}, timeout=GRACE_SECONDS)
        status, message = grpc.StatusCode.DEADLINE_EXCEEDED, f"not done within the budget of {budget:g} s"
    else:
        try:
            return asked.result()
        except InvocationFailed as error:
            status, message = STATUSES.get(error.fault.grpc_code, grpc.StatusCode.INTERNAL), error.fault.message
            if error.fault.reason:
                message = f"{error.fault.reason}: {message}"
        except (Exception, asyncio.CancelledError, SystemExit) as error:
            status, message = grpc.StatusCode.INTERNAL, fault_of(error).message
    await context.abort(status, shortened(message))
    raise AssertionError("abort has raised")
