"""The command line that the samples share."""

import argparse
from collections.abc import Callable

from opentelemetry.trace import TracerProvider

from forge_daemon import Agent, attach, serve, tracing
from forge_daemon.adapters import pydantic_ai


def run(
    description: str,
    make: Callable[[float], Agent],
    *,
    instrument: Callable[[TracerProvider], None] = pydantic_ai.instrument,
) -> None:
    """Serves or attaches the agent that `make` gives for a tool delay in seconds.

    Where OTEL_EXPORTER_OTLP_ENDPOINT says so, spans are sent; `instrument` lets the agent's framework make them.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--listen", default="127.0.0.1:50051", metavar="HOST:PORT", help="port 0: any free one")
    parser.add_argument("--attach", metavar="URL", help="dial the daemon there instead of listening")
    parser.add_argument("--id", action="append", metavar="NAME", help="attach under this name; may be given again")
    parser.add_argument(
        "--tool-delay", type=float, default=0.0, metavar="SECONDS", help="make every tool slow, to watch a run live"
    )
    parser.add_argument(
        "--collector",
        action="store_true",
        help="spans go through a collector and not straight to the daemon, so never say that it has all of them",
    )
    arguments = parser.parse_args()
    agent = make(arguments.tool_delay)
    agent.tracing = tracing.setup(agent.card.agent_id, confirms=not arguments.collector)
    if agent.tracing:
        instrument(agent.tracing.provider)
    if arguments.attach:
        attach(agent, arguments.attach, ids=arguments.id)
    else:
        serve(agent, arguments.listen)
