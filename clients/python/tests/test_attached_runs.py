"""Agents that are attached to a real daemon: what runs of them say is what runs of dialled ones say."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from eval_files import EVALS
from test_behaviour import CASES, Scripted, has

from forge_daemon import Agent, Attached, CannotAttach, Server, Turn

ROOT = Path(__file__).parents[3]
PROGRAMS = Path(os.environ.get("FORGECTL") or ROOT / "target/debug/forgectl").parent


class RealDaemon:
    """A process of forge-daemon."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = "127.0.0.1:0"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Begins, or begins again at the same address with the same data."""
        program = PROGRAMS / "forge-daemon"
        assert program.exists(), f"{program} is missing: run `make build` (`make test` does)"
        options = ["--listen", self.address, "--data-dir", str(self.folder / "data"), "--log", "error"]
        self._process = await asyncio.create_subprocess_exec(
            str(program), *options, stdout=asyncio.subprocess.PIPE, cwd=self.folder
        )
        assert self._process.stdout is not None
        line = (await asyncio.wait_for(self._process.stdout.readline(), 30)).decode()
        self.address = line.removeprefix("listening on ").strip()

    async def kill(self) -> None:
        """Ends it as a crash would."""
        assert self._process is not None
        self._process.kill()
        await self._process.wait()

    async def forgectl(self, *arguments: str) -> tuple[int | None, str]:
        """What a command ends with, and says."""
        process = await asyncio.create_subprocess_exec(
            str(PROGRAMS / "forgectl"),
            *arguments,
            "--daemon",
            f"http://{self.address}",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=self.folder,
            env={name: value for name, value in os.environ.items() if not name.startswith("FORGE_")},
        )
        out, _ = await asyncio.wait_for(process.communicate(), 60)
        return process.returncode, out.decode()

    async def run(self, suite: str, agent: str, *more: str) -> tuple[int | None, str, list[dict[str, Any]]]:
        """What a run ends with, says, and finds of each case."""
        code, said = await self.forgectl("run", suite, "-n", agent, "-o", "r.json", *more)
        result = self.folder / "r.json"
        return code, said, json.loads(result.read_text("utf-8"))["cases"] if result.exists() else []


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[RealDaemon]:
    daemon = RealDaemon(tmp_path)
    await daemon.start()
    yield daemon
    await daemon.kill()


def write(daemon: RealDaemon, cases: list[dict[str, Any]]) -> str:
    (daemon.folder / "s.golden.json").write_text(json.dumps(cases), "utf-8")
    return "s.golden.json"


async def echo(turn: Turn) -> str:
    return turn.user_text


ECHO = [{"id": "a", "input": {"message": "Hello"}, "expect": {"responseContains": ["Hello"]}}]


def is_a_case(case: dict[str, Any]) -> bool:
    """Whether a suite can say it: the daemon does nothing in it that no run does."""
    start = case.get("start", {})
    return (
        not {"daemon", "env", "again", "tools"} & set(case)
        and start is not None
        and set(start) <= {"text", "want_deltas", "mode"}
        and start.get("mode") in (None, "STUB")
        and ("stubs" in case) == ("mode" in start)
        and all("result" in stub for stub in case.get("stubs", {}).values())
    )


SAID = [case for case in CASES if is_a_case(case)]


def table() -> tuple[list[dict[str, Any]], Agent]:
    """The cases as a suite, and an agent that follows the steps of the case whose name it is told."""
    scripts = {case["name"]: Scripted(case) for case in SAID}

    async def answer(turn: Turn) -> str | None:
        return await scripts[turn.user_text].follow(turn, scripts[turn.user_text].steps, [])

    suite = []
    for case in SAID:
        one = {"id": case["name"], "input": {"message": case["name"]}, "expect": {"toolsNotCalled": ["never"]}}
        if "stubs" in case:
            one["stubs"] = {name: json.loads(stub["result"]) for name, stub in case["stubs"].items()}
        suite.append(one)
    return suite, Agent(answer, id="shared", version="1")


def seen(result: dict[str, Any]) -> dict[str, Any]:
    """What does not change from run to run."""
    calls = [{name: call.get(name) for name in ("name", "params", "result", "error")} for call in result["toolCalls"]]
    kept = ("id", "outcome", "cause", "response", "error", "assertions", "usage")
    return {**{name: result.get(name) for name in kept}, "toolCalls": calls}


async def test_the_shared_table(daemon: RealDaemon):
    suite, agent = table()
    assert len(suite) >= 20
    assert len([one for one in suite if "stubs" in one]) >= 3
    name = write(daemon, suite)
    async with Server(agent, "127.0.0.1:0") as server:
        _, said, dialled = await daemon.run(name, f"grpc://{server.address}")
    async with Attached(agent, daemon.address):
        _, again, attached = await daemon.run(name, "shared")
    assert len(dialled) == len(suite), said
    assert [seen(one) for one in attached] == [seen(one) for one in dialled], again
    answers = {one["id"]: one.get("response") for one in attached}
    for case in SAID:
        text = case["see"].get("finished", {}).get("text")
        if text is not None and not has(case["agent"], "return"):
            assert answers[case["name"]] == text, case["name"]


async def test_who_is_there(daemon: RealDaemon):
    async with Attached(Agent(echo, id="card", version="7", max_concurrent=3), daemon.address, ids=["a", "b"]):
        _, listed = await daemon.forgectl("agents", "list")
        assert listed.count("1 process, 3 of 3 slots free") == 2, listed
        assert "version 7" in listed
    _, listed = await daemon.forgectl("agents", "list")
    assert listed.count("it left") == 2, listed


async def test_names_that_it_does_not_take(daemon: RealDaemon):
    await daemon.forgectl("agents", "add", "taken", "grpc://127.0.0.1:1", "--skip-probe")
    for name, why in [
        ("taken", 'ALREADY_EXISTS: hello.agents[0].agent_id: "taken" is an agent that the daemon dials'),
        ("a b", 'INVALID_ARGUMENT: hello.agents[0].agent_id: "a b" is no name for an agent: use letters'),
    ]:
        with pytest.raises(CannotAttach) as raised:
            async with Attached(echo, daemon.address, id=name):
                pass
        assert str(raised.value).startswith(f"cannot attach to {daemon.address}: {why}")


async def test_a_daemon_that_dies_and_comes_back(daemon: RealDaemon, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", "forge_daemon.attached")
    suite = write(daemon, ECHO)
    async with Attached(echo, daemon.address, id="echo"):
        assert (await daemon.run(suite, "echo"))[0] == 0
        await daemon.kill()
        await daemon.start()
        async with asyncio.timeout(20):
            while caplog.text.count("attached to") < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        code, said, _ = await daemon.run(suite, "echo")
        assert code == 0, said


async def test_an_instance_leaves_in_the_middle_of_a_run(daemon: RealDaemon):
    answered: dict[str, int] = {"stays": 0, "leaves": 0}
    leaving = asyncio.Event()

    def instance(name: str) -> Agent:
        async def answer(turn: Turn) -> str:
            await asyncio.sleep(0.05)
            answered[name] += 1
            if answered["leaves"] == 5:
                leaving.set()
            return turn.user_text

        return Agent(answer, id="echo", max_concurrent=2)

    cases = [
        {"id": f"c{n}", "input": {"message": f"m{n}"}, "expect": {"responseContains": [f"m{n}"]}} for n in range(40)
    ]
    suite = write(daemon, cases)
    async with Attached(instance("stays"), daemon.address):
        leaves = Attached(instance("leaves"), daemon.address)
        await leaves.start()
        run = asyncio.create_task(daemon.run(suite, "echo", "--parallel", "4"))
        await asyncio.wait_for(leaving.wait(), 20)
        await leaves.stop()
        code, said, results = await run
    assert code == 0, said
    assert {one["outcome"] for one in results} == {"passed"}
    # None was asked twice.
    assert sum(answered.values()) == 40
    assert answered["leaves"] < 20


async def test_a_process_that_plays_every_part(daemon: RealDaemon):
    names = ["expense", "expense.user", "expense.validator"]
    command = [sys.executable, "-m", "forge_daemon.samples.expense", "--attach", f"http://{daemon.address}"]
    for name in names:
        command += ["--id", name]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), 30)).decode()
        assert line == f"attached to {daemon.address} as {', '.join(names)}\n"
        code, said, results = await daemon.run(str(EVALS / "expense-dynamic.jsonl"), "expense")
        assert code == 0, said
        assert {one["outcome"] for one in results} == {"passed"}
    finally:
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 10) == 0


async def test_the_page(daemon: RealDaemon):
    page = (ROOT / "docs/attach.md").read_text("utf-8")
    (daemon.folder / "agent.py").write_text(page.split("```python\n")[1].partition("```")[0], "utf-8")
    environment = os.environ | {"FORGE_DAEMON": f"http://{daemon.address}"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "agent.py", cwd=daemon.folder, env=environment, stdout=asyncio.subprocess.PIPE
    )
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), 30)).decode()
        assert line == f"attached to {daemon.address} as hello\n"
        case = {"id": "a", "input": {"message": "Hello, I am Ada"}, "expect": {"responseContains": ["Hello Ada"]}}
        code, said, _ = await daemon.run(write(daemon, [case]), "hello")
        assert code == 0, said
    finally:
        process.terminate()
        await process.wait()
