"""Takes an address for one server alone."""

import errno
import socket
from typing import Any

import grpc

__all__ = ["ALONE", "CannotListen", "listen_on"]

ALONE = ("grpc.so_reuseport", 0)
"""An option for a server. Without it a second server may listen on the same port, and calls go now to the one and now
to the other, which nobody is told."""


class CannotListen(OSError):
    """Nobody can listen there, or somebody does."""

    def __init__(self, listen: str, why: str) -> None:
        super().__init__(f"cannot listen on {listen}: {why}")


def listen_on(server: grpc.aio.Server, listen: str) -> int:
    """Makes the server listen, and gives the port. The server must have been made with the option `ALONE`.

    Raises CannotListen.
    """
    # gRPC says only that it could not, and takes a port beyond 65535 for another one.
    _check(listen)
    try:
        return server.add_insecure_port(listen)
    except RuntimeError as error:
        raise CannotListen(listen, str(error)) from error


def _check(listen: str) -> None:
    if listen.startswith("unix"):
        return
    host, _, port = listen.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise CannotListen(listen, "write it like 127.0.0.1:50051")
    try:
        found = socket.getaddrinfo(host.strip("[]") or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise CannotListen(listen, error.strerror or str(error)) from error
    failed = [failure for family, _, _, _, address in found if (failure := _bind(family, address))]
    taken = [one for one in failed if one.errno == errno.EADDRINUSE]
    # A name may stand for an address that this machine has not.
    if taken or len(failed) == len(found):
        first = (taken or failed)[0]
        raise CannotListen(listen, first.strerror or str(first)) from first


def _bind(family: int, address: Any) -> OSError | None:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error
    return None
