"""A framework that is missing, or of a version that is not supported, is told in one line that says what to do."""

import subprocess
import sys

import pytest

from forge_daemon import adapters


@pytest.mark.parametrize(
    ("installed", "message"),
    [
        (None, "from_x needs x>=1.2,<2: pip install 'forge-daemon[x-extra]'"),
        ("0.6.1", "from_x needs x>=1.2,<2, and 0.6.1 is installed: pip install 'forge-daemon[x-extra]'"),
        ("1.1.9", "from_x needs x>=1.2,<2, and 1.1.9 is installed: pip install 'forge-daemon[x-extra]'"),
        ("2.0.0", "from_x needs x>=1.2,<2, and 2.0.0 is installed: pip install 'forge-daemon[x-extra]'"),
        ("1.2", None),
        ("1.10.3rc1", None),
    ],
)
def test_versions(monkeypatch: pytest.MonkeyPatch, installed: str | None, message: str | None):
    def version(name: str) -> str:
        if installed is None:
            raise adapters.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(adapters, "version", version)
    if message is None:
        adapters.needs("from_x", "x", "1.2", "2", "x-extra")
        return
    with pytest.raises(ImportError) as raised:
        adapters.needs("from_x", "x", "1.2", "2", "x-extra")
    assert str(raised.value) == message


MISSING = """
import sys
from importlib import metadata
def missing(name):
    raise metadata.PackageNotFoundError(name)
metadata.version = missing
import forge_daemon
for name in ("from_pydantic_ai", "from_langgraph", "from_openai_agents", "from_google_adk", "mcp_tools"):
    try:
        getattr(forge_daemon, name)
    except ImportError as error:
        print(error)
"""


def test_each_adapter_says_what_it_needs():
    said = subprocess.run([sys.executable, "-c", MISSING], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [
        "from_pydantic_ai needs pydantic-ai-slim>=2.68,<3: pip install 'forge-daemon[pydantic-ai]'",
        "from_langgraph needs langgraph>=1.2,<2: pip install 'forge-daemon[langgraph]'",
        "from_openai_agents needs openai-agents>=0.24,<1: pip install 'forge-daemon[openai-agents]'",
        "from_google_adk needs google-adk>=2.13,<3: pip install 'forge-daemon[google-adk]'",
        "mcp_tools needs mcp>=2.3,<3: pip install 'forge-daemon[mcp]'",
    ]
