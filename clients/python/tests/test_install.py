"""The package installs as the README says, from outside of this repository, and its extras fit together."""

import os
import shutil
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1]
README = (PACKAGE / "README.md").read_text("utf-8")
FRAMEWORKS = ["pydantic-ai", "langgraph", "openai-agents", "google-adk", "mcp"]


def run(*command: object, **more: object) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run([str(one) for one in command], capture_output=True, text=True, timeout=300, **more)  # type: ignore[call-overload]
    assert ended.returncode == 0, f"{command}: {ended.stdout}{ended.stderr}"
    return ended


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder with a fresh virtual environment that knows nothing of this one."""
    folder = tmp_path_factory.mktemp("outside")
    run(sys.executable, "-m", "venv", folder / ".venv")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    pip = folder / ".venv/bin/pip"
    run(pip, "install", "--quiet", "--disable-pip-version-check", PACKAGE, cwd=folder, env=environment)
    return folder


def test_it_brings_grpc_and_protobuf_and_no_other_dependency(outside: Path):
    listed = run(outside / ".venv/bin/pip", "list", "--format=freeze", "--disable-pip-version-check").stdout
    names = {line.partition("==")[0].lower() for line in listed.splitlines()} - {"pip", "setuptools"}
    wanted = {"forge-daemon", "grpcio", "grpcio-health-checking", "grpcio-reflection", "protobuf"}
    assert names <= wanted | {"typing_extensions", "typing-extensions"}
    assert names >= wanted
    found = run(
        outside / ".venv/bin/python", "-c", "import importlib.util as u; print(u.find_spec('forge'))", cwd=outside
    )
    assert found.stdout.strip() == "None", "nothing of ours lives in a package that others own"
    package = next((outside / ".venv/lib").glob("python*/site-packages/forge_daemon"))
    assert (package / "py.typed").exists()


def test_the_agent_of_the_readme_runs_as_it_stands(outside: Path):
    text = README.split("```python\n")[1].partition("```")[0]
    (outside / "agent.py").write_text(text, "utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [outside / ".venv/bin/python", "agent.py", "--listen", address]
    with subprocess.Popen(command, cwd=outside, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == f"listening on {address}\n"
        began = time.monotonic()
        agent.terminate()
        assert agent.wait(10) == 0
        assert time.monotonic() - began < 3


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_it_installs_from_an_address_of_git(outside: Path):
    source = f"git+file://{PACKAGE.parents[1]}#subdirectory=clients/python"
    pip = outside / ".venv/bin/pip"
    run(pip, "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--force-reinstall", source, cwd=outside)


def resolved(extras: str, version: str) -> str:
    uv = Path(sys.executable).with_name("uv")
    options = [f"--extra={extra}" for extra in extras.split(",")]
    return run(
        uv, "pip", "compile", "--quiet", f"--python-version={version}", *options, PACKAGE / "pyproject.toml"
    ).stdout


def test_every_extra_fits_beside_otel():
    wanted = [(f"{one},otel", "3.11") for one in FRAMEWORKS]
    wanted.append((",".join([*FRAMEWORKS, "otel", "samples"]), "3.11"))
    # The others want a later Python than we do.
    wanted.append(("mcp,openai-agents,otel", "3.10"))
    with ThreadPoolExecutor(3) as pool:
        for (extras, _), lock in zip(wanted, pool.map(lambda one: resolved(*one), wanted), strict=True):
            assert "opentelemetry-sdk==" in lock, extras
