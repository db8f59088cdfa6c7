"""A port that somebody has is refused: of two agents that share one, now the one answers and now the other."""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1]
SCAFFOLD = PACKAGE.parents[1] / "src/cli/init/python/agent.py"

AGENTS = [
    pytest.param(["-m", "forge_daemon.samples.weather", "--listen"], id="weather"),
    pytest.param(["-m", "forge_daemon.samples.portfolio", "--listen"], id="portfolio"),
    pytest.param(["-m", "forge_daemon.samples.expense", "--listen"], id="expense"),
    pytest.param(["-m", "forge_daemon.samples.liar", "--listen"], id="liar"),
    pytest.param(["-m", "forge_daemon.samples.spans_only", "--listen"], id="spans_only"),
    pytest.param([str(PACKAGE / "samples/minimal.py"), "--listen"], id="minimal"),
    pytest.param([str(SCAFFOLD), "--listen"], id="scaffold"),
]


@contextlib.contextmanager
def running(arguments: list[str], listen: str) -> Iterator[str]:
    """An agent, and where it says it listens."""
    with subprocess.Popen([sys.executable, *arguments, listen], stdout=subprocess.PIPE, text=True) as agent:
        try:
            yield agent.stdout.readline().removeprefix("listening on ").strip()
        finally:
            agent.kill()


@contextlib.contextmanager
def taken() -> Iterator[str]:
    """An address where somebody listens who would share it."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def refused(arguments: list[str], listen: str) -> None:
    ended = subprocess.run([sys.executable, *arguments, listen], capture_output=True, text=True, timeout=20)
    assert ended.returncode == 1, ended.stdout
    assert ended.stdout == ""
    # What has nothing but gRPC does not know why.
    why = "is the port taken?" if "minimal" in arguments[0] else "Address already in use"
    assert ended.stderr.splitlines()[-1] == f"cannot listen on {listen}: {why}"
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("arguments", AGENTS)
def test_a_port_is_not_shared(arguments: list[str]):
    with running(arguments, "127.0.0.1:0") as address:
        assert not address.endswith(":0")
        refused(arguments, address)
    with taken() as address:
        refused(arguments, address)


@pytest.mark.parametrize("arguments", AGENTS[-2:])
def test_a_port_is_free_again_at_once(arguments: list[str]):
    with running(arguments, "127.0.0.1:0") as address:
        pass
    with running(arguments, address) as again:
        assert again == address


@pytest.mark.parametrize("listen", ["nonsense", "127.0.0.1:99999", "192.0.2.1:50051"])
def test_an_address_that_is_none(listen: str):
    ended = subprocess.run(
        [sys.executable, "-m", "forge_daemon.samples.weather", "--listen", listen],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.splitlines()[-1].startswith(f"cannot listen on {listen}: ")
    assert "Traceback" not in ended.stderr
