"""Suites as tests of pytest, with the real forgectl."""

import json
import os
import subprocess
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TARGET = Path(__file__).parents[3] / "target/debug/forgectl"

SUITE = [
    {"id": "a-1", "description": "echoes", "input": {"message": "ping"}, "expect": {"responseContains": ["ping"]}},
    {"id": "a-2", "description": "fails", "input": {"message": "ping"}, "expect": {"responseContains": ["pong"]}},
    {"id": "b.3 x", "description": "calls", "input": {"message": "look"}, "expect": {"toolsCalled": ["look"]}},
]

TESTS = '''
from forge_daemon import Agent, forge_run, tool

@tool
async def look() -> int:
    """Looks."""
    return 5

async def answer(turn):
    print("asked", turn.context.case_id)
    return await turn.call(look, {}) if turn.user_text == "look" else turn.user_text

echo = forge_run("evals/echo.golden.json", Agent(answer, id="echo", tools=[look]))
'''


@pytest.fixture
def forgectl(monkeypatch: pytest.MonkeyPatch) -> str:
    program = os.environ.get("FORGECTL") or str(TARGET)
    assert Path(program).exists(), f"{program} is missing: run `make build` (`make test` does), or set FORGECTL"
    monkeypatch.setenv("FORGECTL", program)
    return program


@pytest.fixture
def tests(pytester: pytest.Pytester) -> pytest.Pytester:
    """A test file beside a suite, as users have them."""
    pytester.mkdir("evals")
    Path(pytester.path, "evals/echo.golden.json").write_text(json.dumps(SUITE))
    pytester.makepyfile(test_echo=TESTS)
    return pytester


@pytest.mark.usefixtures("forgectl")
def test_each_case_is_a_test_and_says_why_it_failed(tests: pytest.Pytester):
    result = tests.runpytest_subprocess("-v")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*test_echo.py::echo::a-1 PASSED*",
            "*test_echo.py::echo::a-2 FAILED*",
            "*test_echo.py::echo::b.3 x PASSED*",
            "failed: responseContains: expected 'pong' in response but not found",
            "*answer: ping*",
        ]
    )
    assert "Traceback" not in result.stdout.str()


@pytest.mark.usefixtures("forgectl")
def test_only_what_is_selected_is_asked(tests: pytest.Pytester):
    result = tests.runpytest_subprocess("-s", "-q", "test_echo.py::echo::b.3 x")
    result.assert_outcomes(passed=1)
    assert [line for line in result.outlines if "asked" in line] == ["asked b.3 x"]


@pytest.mark.usefixtures("forgectl")
def test_arguments_of_forgectl(tests: pytest.Pytester):
    text = TESTS.replace("tools=[look]))", 'tools=[look]), args=["--runs", "2"])')
    tests.makepyfile(test_echo=text)
    result = tests.runpytest_subprocess("-s", "-k", "a-1")
    result.assert_outcomes(passed=1, deselected=2)
    assert result.stdout.str().count("asked a-1") == 2


def test_without_forgectl(tests: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("FORGECTL", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    result = tests.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    line = "*forgectl is not on the PATH; install it, or name it with FORGECTL=/path/to/forgectl"
    result.stdout.fnmatch_lines([line])
    monkeypatch.setenv("FORGECTL", "/nowhere/forgectl")
    tests.runpytest_subprocess().stdout.fnmatch_lines(["*FORGECTL: there is no /nowhere/forgectl"])


def test_a_daemon_runs_the_suite(tests: pytest.Pytester, forgectl: str, tmp_path: Path):
    program = Path(forgectl).with_name("forge-daemon")
    command = [program, "--listen", "127.0.0.1:0", "--data-dir", tmp_path, "--log", "error"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdout is not None
        url = f"http://{daemon.stdout.readline().split()[-1]}"
        tests.makepyfile(test_echo=TESTS.replace("tools=[look]))", f'tools=[look]), daemon="{url}")'))
        tests.runpytest_subprocess("-v").assert_outcomes(passed=2, failed=1)
        runs = subprocess.run([forgectl, "runs", "list", "--daemon", url], capture_output=True, text=True)
        assert "echo" in runs.stdout
        # A name that is another agent's.
        subprocess.run([forgectl, "agents", "add", "echo", "grpc://127.0.0.1:1", "--skip-probe", "--daemon", url])
        result = tests.runpytest_subprocess("-v")
        result.assert_outcomes(failed=3)
        result.stdout.fnmatch_lines(["cannot attach to *ALREADY_EXISTS*echo* is an agent that the daemon dials*"])
        assert "Traceback" not in result.stdout.str()
        daemon.terminate()


@pytest.mark.usefixtures("forgectl")
def test_a_suite_that_is_none(tests: pytest.Pytester):
    Path(tests.path, "evals/echo.golden.json").write_text(
        '[{"id": "a", "input": {"message": "x"}, "expect": {"x": 1}}]'
    )
    result = tests.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    assert "evals/echo.golden.json" in result.stdout.str()
    assert "INTERNALERROR" not in result.stdout.str()


@pytest.mark.usefixtures("forgectl")
def test_an_agent_that_runs_elsewhere_and_is_not_there(tests: pytest.Pytester):
    tests.makepyfile(
        test_echo='from forge_daemon import forge_run\necho = forge_run("evals/echo.golden.json", "grpc://127.0.0.1:9")'
    )
    result = tests.runpytest_subprocess()
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(["*grpc://127.0.0.1:9*"])


@pytest.mark.usefixtures("forgectl")
def test_a_case_that_the_suite_skips(tests: pytest.Pytester):
    lines = [{"id": "on", "input": "a", "assertions": [{"type": "contains", "value": "a"}]}]
    lines.append({**lines[0], "id": "off", "skip": True})
    Path(tests.path, "evals/echo.jsonl").write_text("\n".join(map(json.dumps, lines)))
    tests.makepyfile(test_echo=TESTS.replace("echo.golden.json", "echo.jsonl"))
    tests.runpytest_subprocess().assert_outcomes(passed=1, skipped=1)
