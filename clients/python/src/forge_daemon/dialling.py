"""Where a daemon is, as people write it, and a connection to it."""

import os
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

import grpc

from forge_daemon.endpoint import MAX_MESSAGE_BYTES

__all__ = ["CannotAttach", "Daemon", "daemon_of"]

LOCAL = "http://127.0.0.1:7460"
MAX_FRAME_BYTES = MAX_MESSAGE_BYTES + 1024
"""A message, and what is around it."""
SCHEMES = {"http": False, "grpc": False, "https": True, "grpcs": True}
"""Each with whether it is encrypted."""

HINT = "write it like http://127.0.0.1:7460"


class CannotAttach(ValueError):
    """The agent is not attached, and trying again would change nothing."""

    def __init__(self, daemon: str, why: str) -> None:
        super().__init__(f"cannot attach to {daemon}: {why}")


@dataclass(frozen=True)
class Daemon:
    """A daemon that can be dialled."""

    #: HOST:PORT.
    authority: str
    is_encrypted: bool
    token: str | None

    def connect(self) -> grpc.aio.Channel:
        """A connection of its own, which is not there yet."""
        options = [
            ("grpc.max_receive_message_length", MAX_FRAME_BYTES),
            # gRPC would share connections, and with them the pause after one that failed; the pauses here are ours.
            ("grpc.use_local_subchannel_pool", 1),
            # As forgectl and the daemon, which dial straight.
            ("grpc.enable_http_proxy", 0),
        ]
        target = f"dns:///{self.authority}"
        if self.is_encrypted:
            return grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(), options)
        return grpc.aio.insecure_channel(target, options)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What says who we are."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()


def daemon_of(text: str | None, token: str | None) -> Daemon:
    """The daemon at an address, or that of FORGE_DAEMON. Raises CannotAttach."""
    text = text if text is not None else os.environ.get("FORGE_DAEMON", "")
    if not text.strip():
        raise CannotAttach("a daemon", f"none is named; give its address or set FORGE_DAEMON, {HINT}")
    scheme, separator, rest = (LOCAL if text == "local" else text).rpartition("://")
    scheme = scheme.lower() if separator else "http"
    shown = f"{scheme}://…@{rest.rpartition('@')[2]}" if "@" in rest else text  # Passwords have no place in a log.
    if scheme not in SCHEMES:
        raise CannotAttach(shown, f"only http:// and https:// are known; {HINT}")
    is_encrypted = SCHEMES[scheme]
    try:
        url = urlsplit(f"//{rest}")
        host, port = url.hostname, url.port or (443 if is_encrypted else None)
    except ValueError as error:
        raise CannotAttach(shown, f"{error}; {HINT}") from None
    if not host:
        raise CannotAttach(shown, f"there is no host; {HINT}")
    if "@" in rest or url.path not in ("", "/") or url.query or url.fragment:
        raise CannotAttach(shown, f"it must be a host and a port, and nothing else; {HINT}")
    if port is None:
        raise CannotAttach(shown, f"there is no port; {HINT}")
    _check_token(token, shown)
    if token and not is_encrypted and not _is_loopback(host):
        why = "the token would travel in plain text; use https://, or a tunnel such as `ssh -L 7460:127.0.0.1:7460`"
        raise CannotAttach(shown, why)
    return Daemon(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", is_encrypted, token)


def _check_token(token: str | None, shown: str) -> None:
    if token is None:
        return
    # It may come of an environment variable that is not set, or of a file with an end of line.
    if not isinstance(token, str) or not token or not all("!" <= character <= "~" for character in token):
        raise CannotAttach(shown, "the token is empty, or holds blanks or other characters that no header takes")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
