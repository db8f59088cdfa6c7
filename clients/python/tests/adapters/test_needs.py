"""A framework that is missing, or of a version that is not supported, is told in one line that says what to do."""

import subprocess
import sys
from importlib.metadata import version

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


OTHERWISE = """
import agents
from agents.tool import FunctionTool
from google.adk.tools.base_tool import BaseTool
from langgraph.prebuilt import ToolNode

del ToolNode._execute_tool_async
agents.function_tool = lambda function: FunctionTool("x", "", {}, function, strict_json_schema=False)
from google.adk.tools.function_tool import FunctionTool as AdkTool
del AdkTool._get_declaration, BaseTool._get_declaration

import forge_daemon
for name in ("from_langgraph", "from_openai_agents", "from_google_adk"):
    try:
        getattr(forge_daemon, name)
    except ImportError as error:
        print(error)
"""


def test_a_framework_that_runs_tools_otherwise():
    said = subprocess.run([sys.executable, "-c", OTHERWISE], capture_output=True, text=True, check=True).stdout
    for adapter, distribution, supported, line in zip(
        ["from_langgraph", "from_openai_agents", "from_google_adk"],
        ["langgraph-prebuilt", "openai-agents", "google-adk"],
        [">=1.1.3,<2", ">=0.24,<1", ">=2.13,<3"],
        said.splitlines(),
        strict=True,
    ):
        # The version that the tests run with is the one that is named as tried.
        tried = version(distribution)
        wanted = f"{distribution}{supported} that runs tools as {tried} does"
        remedy = f"pip install '{distribution}=={tried}'"
        assert line == f"{adapter} needs {wanted}, and {tried} does not: {remedy}"


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
