"""What the pages show runs as it stands in the page."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/frameworks.md").read_text("utf-8")
SECTIONS = {
    title: text for title, text in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.S | re.M) if "```python" in text
}
SUITE = PAGE.split("```json\n")[1].partition("```")[0]
FORGECTL = os.environ.get("FORGECTL") or str(ROOT / "target/debug/forgectl")


@contextmanager
def running(agent: Path) -> Iterator[str]:
    """A file of the page as a process: its address."""
    command = [sys.executable, agent.name, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, cwd=agent.parent, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().removeprefix("listening on ").strip()
        finally:
            process.send_signal(signal.SIGTERM)


def test_every_framework_is_shown():
    assert list(SECTIONS) == [
        "pydantic-ai",
        "LangGraph and LangChain",
        "OpenAI Agents SDK",
        "Google ADK",
        "Tools of an MCP server",
    ]


@pytest.mark.parametrize("title", SECTIONS)
def test_the_page_on_frameworks(title: str, tmp_path: Path):
    assert Path(FORGECTL).exists(), f"{FORGECTL} is missing: run `make build` (`make test` does), or set FORGECTL"
    text = SECTIONS[title].split("```python\n")[1].partition("```")[0]
    (tmp_path / "agent.py").write_text(text, "utf-8")
    (tmp_path / "weather.golden.json").write_text(SUITE, "utf-8")
    with running(tmp_path / "agent.py") as address:
        command = [FORGECTL, "run", "weather.golden.json", "-n", f"grpc://{address}", "--daemon-free", "-o", "r.json"]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    result = json.loads((tmp_path / "r.json").read_text("utf-8"))
    assert [case["outcome"] for case in result["cases"]] == ["passed", "passed"]
    assert result["warnings"] == []
    live, stubbed = (case["toolCalls"][0]["result"] for case in result["cases"])
    assert (live["degrees"], stubbed) == (17, {"degrees": -40})
