"""Suites as tests of pytest: each case is a test of its own, and says why it did not pass.

The plugin `forge_daemon.pytest_plugin`, which pytest finds by itself, makes tests of what `forge_run` gives.
"""

import asyncio
import inspect
import json
import os
import shutil
import string
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from forge_daemon.agent import Agent, Answer
from forge_daemon.attached import Attached
from forge_daemon.dialling import CannotAttach
from forge_daemon.server import Server

__all__ = ["CannotRun", "CaseFailed", "ForgeRun", "attached", "forge_run", "serving"]

START_SECONDS = 30.0
CHECK_SECONDS = 60.0


class CannotRun(Exception):
    """The suite cannot be run: there is no forgectl, or it says why."""


class CaseFailed(AssertionError):
    """A case did not pass; the message says why."""


def forge_run(
    suite: "str | os.PathLike[str]",
    agent: Agent | Answer | str,
    *,
    daemon: str | None = None,
    args: Sequence[str] = (),
    timeout: float = 600.0,
) -> "ForgeRun":
    """Makes tests of the cases of a suite. Call it at the top of a test file, and give what it returns a name.

        weather = forge_run("weather.golden.json", agent)

    `suite` is an eval file or a test file, relative to the file that calls this. `agent` is what `serve` takes; it is
    served in this process, on a free port. Or it is the address of one that runs elsewhere, such as
    `grpc://127.0.0.1:50051`.

    `daemon` is a daemon that runs the suite, such as `http://127.0.0.1:7460`: the agent is attached to it by the id on
    its card, and a text is a name of an agent that it knows. Without it forgectl runs one of its own.

    `args` are further arguments of `forgectl run`, such as `["--snapshot", "values.json"]`, whose paths are relative to
    the same file. `timeout` is for the whole suite, in seconds.

    The suite runs once, before the first of its tests, with the cases that pytest has selected.
    """
    frame = inspect.stack()[1]
    return ForgeRun(Path(frame.filename).parent, Path(suite), agent, daemon, tuple(args), timeout)


@contextmanager
def serving(agent: Agent | Answer) -> Iterator[str]:
    """Serves an agent in a thread for as long as the block lasts, on a free port: gives its address."""

    def make() -> Server:
        return Server(agent, "127.0.0.1:0")

    with _in_thread(make, lambda: "the agent does not serve") as server:
        yield server.address


@contextmanager
def attached(agent: Agent | Answer, daemon: str) -> Iterator[str]:
    """Attaches an agent to a daemon in a thread for as long as the block lasts: gives its name."""
    away: list[str] = []

    class Telling(Attached):
        def _tell_away(self, why: str, pause: float) -> None:
            away[:] = [f": {why}"]

    def make() -> Attached:
        return Telling(agent, daemon)

    with _in_thread(make, lambda: "".join([f"the agent is not attached to {daemon}", *away])) as running:
        yield running.names[0]


S = TypeVar("S", Server, Attached)


@contextmanager
def _in_thread(make: Callable[[], S], why: Callable[[], str]) -> Iterator[S]:
    """Keeps what `make` gives going in a thread; `why` says what is wrong if that does not begin."""
    loop = asyncio.new_event_loop()
    ended: asyncio.Event | None = None
    is_up = threading.Event()
    running: list[S] = []
    failed: list[BaseException] = []

    async def main() -> None:
        nonlocal ended
        ended = asyncio.Event()
        one = make()
        await asyncio.wait_for(one.start(), START_SECONDS)
        try:
            running.append(one)
            is_up.set()
            await ended.wait()
        finally:
            await one.stop(0.1)

    def run() -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(main())
        except BaseException as error:
            failed.append(error)
        finally:
            is_up.set()
            loop.close()

    thread = threading.Thread(target=run, name="forge-agent", daemon=True)
    thread.start()
    is_up.wait(START_SECONDS + 5)
    if not running:
        thread.join(1)
        if not failed or isinstance(failed[0], asyncio.TimeoutError):
            raise CannotRun(f"{why()} after {START_SECONDS:g} s")
        raise CannotRun(str(failed[0])) if isinstance(failed[0], CannotAttach) else failed[0]
    try:
        yield running[0]
    finally:
        if ended is not None:
            loop.call_soon_threadsafe(ended.set)
        thread.join(START_SECONDS)


class ForgeRun:
    """A suite, and what came of it once it has run."""

    def __init__(
        self,
        folder: Path,
        suite: Path,
        agent: Agent | Answer | str,
        daemon: str | None,
        args: tuple[str, ...],
        timeout: float,
    ) -> None:
        self.folder = folder
        self.suite = suite
        #: The ids of the cases that shall run; None is all.
        self.selected: set[str] | None = None
        self._agent = agent
        self._daemon = daemon
        self._args = args
        self._timeout = timeout
        self._results: dict[str, list[dict[str, Any]]] | None = None
        self._failed: CannotRun | None = None
        self._said = ""
        self._code = 0

    def cases(self) -> list[dict[str, Any]]:
        """The cases of the suite, each with `id` and `name`. Raises CannotRun."""
        ended = self._forgectl("--dry-run", timeout=CHECK_SECONDS)
        if ended.returncode:
            raise CannotRun(_tail(ended.stderr))
        found = (json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{"))
        return list({str(one["id"]): one for one in found}.values())  # A case stands there once for each repetition.

    def check(self, id: str) -> None:
        """Does nothing if the case has passed. Raises CaseFailed or CannotRun."""
        if self._results is None and self._failed is None:
            try:
                self._results = self._run()
            except CannotRun as error:
                self._failed = error
        if self._failed is not None:
            raise self._failed
        results = (self._results or {}).get(id, [])
        if not results:
            raise CannotRun(f"{id} was not run: {_tail(self._said)}")
        wrong = [one for one in results if one["status"] != "passed"]
        # A gate such as --min-pass-rate judges the run as a whole. Without one, whatever did not pass is an exit code.
        if wrong and self._code:
            skipped = f"\n{_tail(self._said)}" if all(one["status"] == "skipped" for one in wrong) else ""
            raise CaseFailed("\n".join(_reason(one) for one in wrong) + skipped)
        if self._code and not any(
            one["status"] != "passed" for others in (self._results or {}).values() for one in others
        ):
            raise CaseFailed(_tail(self._said))

    def _run(self) -> dict[str, list[dict[str, Any]]]:
        with tempfile.TemporaryDirectory(prefix="forge-") as out:
            with self._reachable() as name:
                options = ["-n", name, "--output-dir", f"{out}/results", "-o", f"{out}/run.jsonl", *self._selection()]
                ended = self._forgectl(*options, timeout=self._timeout)
            self._code, self._said = ended.returncode, ended.stdout + ended.stderr
            found: dict[str, list[dict[str, Any]]] = {}
            result = Path(out, "run.jsonl")
            for line in result.read_text("utf-8").splitlines() if result.exists() else ():
                one = json.loads(line)
                found.setdefault(str(one.get("id")), []).append(one)
        if not found:
            raise CannotRun(_tail(self._said) or f"forgectl ended with code {ended.returncode}")
        return found

    @contextmanager
    def _reachable(self) -> Iterator[str]:
        """What forgectl calls the agent, which can be reached for as long as the block lasts."""
        agent = self._agent
        if isinstance(agent, str):
            yield agent if "://" in agent or self._daemon else f"grpc://{agent}"
        elif self._daemon:
            with attached(agent, self._daemon) as name:
                yield name
        else:
            with serving(agent) as address:
                yield f"grpc://{address}"

    def _selection(self) -> list[str]:
        if self.selected is None:
            return []
        return ["--run", "^(?:" + "|".join(_literal(id) for id in sorted(self.selected)) + ")$"]

    def _forgectl(self, *options: str, timeout: float) -> "subprocess.CompletedProcess[str]":
        program = os.environ.get("FORGECTL") or shutil.which("forgectl")
        if not program:
            raise CannotRun("forgectl is not on the PATH; install it, or name it with FORGECTL=/path/to/forgectl")
        # Another daemon could not reach an agent in this process, and another agent is not meant.
        environment = {name: value for name, value in os.environ.items() if name not in ("FORGE_DAEMON", "FORGE_AGENT")}
        where = ["--daemon", self._daemon] if self._daemon and "--dry-run" not in options else ["--daemon-free"]
        command = [program, "run", str(self.suite), *where, *options, *self._args]
        try:
            return subprocess.run(
                command,
                cwd=self.folder,
                env=environment | {"NO_COLOR": "1"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                encoding="utf-8",
                errors="replace",
                timeout=timeout,
            )
        except FileNotFoundError:
            raise CannotRun(f"FORGECTL: there is no {program}") from None
        except subprocess.TimeoutExpired:
            raise CannotRun(f"forgectl was not done after {timeout:g} s") from None


def _reason(result: dict[str, Any]) -> str:
    """Why a case did not pass, with the answer and the tool calls that led to it."""
    wrong = [one for one in result.get("assertions", []) if not one.get("passed") and one.get("outcome") != "skipped"]
    found = [f"{one.get('name') or one.get('type')}: {one.get('reason', '')}" for one in wrong]
    errors = [str(one) for one in (result.get("error"), *(found or result.get("assertion_errors", []))) if one]
    cause = result.get("cause")
    heading = str(result.get("outcome") or result["status"])
    if (repeat := result.get("repeat", 1)) > 1:
        heading = f"repetition {repeat} {heading}"
    if cause and cause != "assertion":
        heading += f" ({cause})"
    lines = [f"{heading}: {'; '.join(errors)}" if errors else heading]
    lines += [f"  {one['hint']}" for one in wrong if one.get("hint")]
    for call in result.get("tool_calls", []):
        lines.append(f"  → {call['name']} {json.dumps(call.get('params'), ensure_ascii=False)}")
    if result.get("response") is not None:
        lines.append(f"  answer: {result['response']}")
    return "\n".join(lines)


def _literal(text: str) -> str:
    """A text as a regular expression that matches it alone."""
    return "".join(f"\\{character}" if character in string.punctuation else character for character in text)


def _tail(text: str) -> str:
    """The end of what a program has said, where the reason stands."""
    lines = [line for line in text.strip().splitlines() if not line.startswith("no daemon given")]
    return "\n".join(lines[-20:])
