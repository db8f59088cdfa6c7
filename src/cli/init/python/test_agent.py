"""Each case of the suite is a test: run `pytest`."""

from agent import agent
from forge_daemon import forge_run

hello = forge_run("evals/hello.golden.json", agent)
