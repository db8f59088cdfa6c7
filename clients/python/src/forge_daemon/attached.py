"""An agent that dials the daemon, because it has no port that the daemon could dial, and a whole process of it."""

import asyncio
import logging
import random
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from forge_daemon.agent import Agent, Answer, agent_of
from forge_daemon.dialling import CannotAttach, daemon_of
from forge_daemon.endpoint import REVISION
from forge_daemon.parts import Parts
from forge_daemon.stream import OURS, Lost, Stream

__all__ = ["Attached", "attach"]

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.25, 30.0
"""The longest of the first pauses before the stream is opened again, and the longest of all."""
LEAVING_SECONDS = 30.0
"""How long calls that are open have to end when the agent leaves."""


class Attached:
    """An agent that is attached to a daemon, with the other parts that it brings, for as long as this lives.

    It is made inside of a running event loop, as in `async with Attached(agent, "http://127.0.0.1:7460"): …`, which
    begins as soon as the daemon has welcomed it, however long that takes. A stream that breaks is opened again.
    Raises CannotAttach for an address that is none, and when the daemon refuses the agent.
    """

    def __init__(
        self,
        agent: Agent | Answer,
        daemon: str | None = None,
        *,
        id: str | None = None,
        ids: Sequence[str] | None = None,
        token: str | None = None,
    ) -> None:
        """As for `attach`."""
        agent = agent_of(agent)
        #: The names by which runs find the agent.
        self.names = _names(agent, id, ids)
        self._daemon = daemon_of(daemon, token)
        #: Where the daemon is: HOST:PORT.
        self.daemon = self._daemon.authority
        self._parts = Parts(agent, self._begin_to_leave)
        self._previous_session_id = ""
        self._leave = asyncio.Event()
        self._grace_seconds = LEAVING_SECONDS
        self._is_welcome = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Dials the daemon until it is welcome there. Raises CannotAttach."""
        self._running = self._running or asyncio.create_task(self._run())
        welcome = asyncio.create_task(self._is_welcome.wait())
        try:
            await asyncio.wait({self._running, welcome}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            welcome.cancel()
        if self._running.done():
            self._running.result()

    async def stop(self, grace_seconds: float = LEAVING_SECONDS) -> None:
        """Leaves: takes no further calls, lets the running ones finish, and closes the stream."""
        self._grace_seconds = grace_seconds
        self._leave.set()
        if self._running:
            await asyncio.wait({self._running})

    async def wait_for_end(self) -> None:
        """Waits until it has left, whoever asked for that. Raises CannotAttach if the daemon refuses it."""
        if self._running:
            await asyncio.shield(self._running)

    async def __aenter__(self) -> "Attached":
        try:
            await self.start()
        except BaseException:
            await self._break_off()
            raise
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.stop(0.1)

    # For whoever wants to tell people.

    def _tell_attached(self) -> None:
        logger.info("attached to %s as %s", self.daemon, ", ".join(self.names))

    def _tell_away(self, why: str, pause: float) -> None:
        logger.warning("not attached, trying again in %d ms: %s", pause * 1000, why)

    def _begin_to_leave(self) -> None:
        self._leave.set()

    async def _break_off(self) -> None:
        if self._running:
            self._running.cancel()
            await asyncio.wait({self._running})

    async def _run(self) -> None:
        longest = FIRST_PAUSE_SECONDS
        leave = asyncio.create_task(self._leave.wait())
        try:
            while True:
                try:
                    stream = await _or_leave(Stream.open(self._daemon, self._hello(), self._parts, self.names), leave)
                    if stream is None:
                        return
                    self._previous_session_id = stream.session_id
                    longest = FIRST_PAUSE_SECONDS  # It is welcome, whatever happens next.
                    self._is_welcome.set()
                    self._tell_attached()
                    await stream.serve(self._daemon, self._leave, lambda: self._grace_seconds)
                    return
                except Lost as lost:
                    if self._leave.is_set():
                        return
                    pause = random.uniform(0, longest)
                    longest = min(longest * 2, LONGEST_PAUSE_SECONDS)
                    self._tell_away(str(lost), pause)
                await asyncio.wait({leave}, timeout=pause)
                if leave.done():
                    return
        finally:
            leave.cancel()

    def _hello(self) -> dict[str, Any]:
        description = self._parts.endpoint.description.SerializeToString()
        return {
            "min_revision": REVISION,
            "max_revision": REVISION,
            "agents": [{"agent_id": name, "describe": description} for name in self.names],
            "instance_id": self._parts.endpoint.instance_id,
            "previous_session_id": self._previous_session_id,
            "initial_window_bytes": OURS.call,
            "stream_window_bytes": OURS.stream,
        }


async def _or_leave(opening: Any, leave: "asyncio.Task[Any]") -> Stream | None:
    """The stream, or None if the agent shall leave before it is there."""
    opened: asyncio.Task[Stream] = asyncio.ensure_future(opening)
    try:
        await asyncio.wait({opened, leave}, return_when=asyncio.FIRST_COMPLETED)
        if opened.cancelled():
            raise Lost("the connection was given up")
        return opened.result() if opened.done() else None
    finally:
        opened.cancel()


def _names(agent: Agent, id: str | None, ids: Sequence[str] | None) -> list[str]:
    if id is not None and ids is not None:
        raise TypeError("attach: takes `id` or `ids`, and not both")
    if isinstance(ids, str):
        raise TypeError(f"ids: a list of names, not a text; for one name use id={ids!r}")
    names = [id] if id is not None else list(ids) if ids is not None else [agent.card.agent_id]
    if not names:
        raise ValueError("ids: empty; name the agent, or leave it out for the id on its card")
    if wrong := [one for one in names if not isinstance(one, str) or not one]:
        raise TypeError(f"{'ids' if id is None else 'id'}: a name is a text, not {wrong[0]!r}")
    return names


class _Process(Attached):
    """One that tells whoever started the process."""

    def _tell_attached(self) -> None:
        print(f"attached to {self.daemon} as {', '.join(self.names)}", flush=True)

    def _tell_away(self, why: str, pause: float) -> None:
        print(f"not attached, trying again in {pause * 1000:.0f} ms: {why}", file=sys.stderr, flush=True)


def attach(
    agent: Agent | Answer,
    daemon: str | None = None,
    *,
    id: str | None = None,
    ids: Sequence[str] | None = None,
    token: str | None = None,
) -> None:
    """Attaches the agent to a daemon until the process is asked to end (SIGINT, SIGTERM).

    The agent dials the daemon, and calls come over the connection that it opened: it needs no port of its own.
    `daemon` is `http://HOST:PORT`, `https://HOST`, `HOST:PORT`, or `local` for http://127.0.0.1:7460; left out it is
    what FORGE_DAEMON says. Runs find the agent by `id`, or by each of `ids`, else by the id on its card. `token` says
    to the daemon who it is.

    The first line on stdout says to what it is attached, and as what. While the daemon is away, it is tried again, and
    stderr says so. If the daemon refuses the agent, the process ends with a line on stderr and code 1. Asked to end,
    it takes no further calls and finishes those that it has, for 30 seconds at most; asked twice, it ends at once.

    In code that has an event loop of its own, use `Attached`.
    """
    agent = agent_of(agent)
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise TypeError("attach: blocks, and an event loop runs here; use `async with Attached(agent, daemon)`")
    try:
        asyncio.run(_attach(agent, daemon, id, ids, token))
    except CannotAttach as error:
        sys.exit(str(error))


async def _attach(agent: Agent, *where: Any) -> None:
    daemon, id, ids, token = where
    attached = _Process(agent, daemon, id=id, ids=ids, token=token)
    running = asyncio.current_task()
    assert running is not None

    def end() -> None:
        if attached._leave.is_set():
            running.cancel()
        attached._begin_to_leave()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, end)
    with suppress(asyncio.CancelledError):
        await attached.start()
        await attached.wait_for_end()
    await attached._break_off()
