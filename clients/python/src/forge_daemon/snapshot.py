"""The server side of `SnapshotProvider`: today's values for the `{{snapshot:path}}` tokens of a suite."""

from collections.abc import Callable
from typing import Any

import grpc

from forge_daemon import functions
from forge_daemon.context import Context
from forge_daemon.propagation import continued, trace_context
from forge_daemon.proto import snapshot_pb2, snapshot_pb2_grpc
from forge_daemon.values import fault_of, json_of, shortened

__all__ = ["Capture", "SnapshotProvider"]

Capture = Callable[[str], Any]
"""Gives the value at a path such as `prices.AAPL`; raises LookupError where there is none.

A plain function runs in a thread.
"""

SERVICE = snapshot_pb2.DESCRIPTOR.services_by_name["SnapshotProvider"].full_name


class SnapshotProvider(snapshot_pb2_grpc.SnapshotProviderServicer):
    """Asks a function for each path that a run needs.

    Any other exception than LookupError fails the capture, and then the run has no case run: better no result than one
    against values of nobody knows when.
    """

    def __init__(self, capture: Capture) -> None:
        """`capture` is called once for each path."""
        self._capture = capture

    async def Capture(self, request: snapshot_pb2.CaptureRequest, context: Context) -> snapshot_pb2.CaptureResponse:
        """Answers the daemon."""
        response = snapshot_pb2.CaptureResponse()
        values: dict[str, Any] = {}
        with continued(trace_context(request.context, context.invocation_metadata())):
            for path in request.paths:
                try:
                    put(values, path, await functions.call(self._capture, path))
                except LookupError as error:
                    response.unresolved[path].message = str(error)
                except Exception as error:
                    await context.abort(grpc.StatusCode.INTERNAL, shortened(f"{path}: {fault_of(error).message}"))
        response.data.CopyFrom(json_of(values))
        return response


def put(values: dict[str, Any], path: str, value: Any) -> None:
    """Puts a value where a token with this path looks for it: `a.b[1]` is the second element of the list `b` in `a`."""
    place: Any = values
    steps = _steps(path)
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        fresh: Any = value if following is None else [] if isinstance(following, int) else {}
        if isinstance(step, int):
            place.extend([None] * (step + 1 - len(place)))
            if following is None or place[step] is None:
                place[step] = fresh
        elif following is None:
            place[step] = fresh
        else:
            place.setdefault(step, fresh)
        place = place[step]


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    for segment in path.split("."):
        key, bracket, index = segment.removesuffix("]").partition("[")
        if bracket and segment.endswith("]") and index.isascii() and index.isdigit() and int(index) < 10_000:
            steps += [key, int(index)]
        else:
            steps.append(segment)
    return steps
