"""What code that answers a call may ask of it, whichever way the call came."""

from collections.abc import Iterable
from typing import Any, NoReturn, Protocol

import grpc

__all__ = ["Context"]


class Context(Protocol):
    """A call. Those of a gRPC server are that, and so are the calls of an attached stream."""

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]] | None:
        """What came beside the request."""

    async def write(self, message: Any) -> None:
        """Sends a message as soon as there is room for it."""

    async def abort(self, code: grpc.StatusCode, details: str = "") -> NoReturn:
        """Ends the call with a status other than OK, and raises."""
