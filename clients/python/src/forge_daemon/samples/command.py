"""The command line that the samples share."""

import argparse
import asyncio
from collections.abc import Callable

from opentelemetry.trace import TracerProvider

from forge_daemon import AgentEndpoint, Generator, Simulator, SnapshotProvider, Validator, serve, tracing
from forge_daemon.samples import bridge


def run(
    description: str,
    make: Callable[[float], AgentEndpoint],
    snapshot: SnapshotProvider | None = None,
    *,
    simulator: Simulator | None = None,
    validator: Validator | None = None,
    generator: Generator | None = None,
    instrument: Callable[[TracerProvider], None] = bridge.instrument,
) -> None:
    """Serves the agent that `make` gives for a tool delay in seconds, and the other services that are given.

    Where OTEL_EXPORTER_OTLP_ENDPOINT says so, spans are sent; `instrument` lets the agent's framework make them.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--listen", default="127.0.0.1:50051", metavar="HOST:PORT", help="port 0: any free one")
    parser.add_argument(
        "--tool-delay", type=float, default=0.0, metavar="SECONDS", help="make every tool slow, to watch a run live"
    )
    parser.add_argument(
        "--collector",
        action="store_true",
        help="spans go through a collector and not straight to the daemon, so never say that it has all of them",
    )
    arguments = parser.parse_args()

    async def main() -> None:
        endpoint = make(arguments.tool_delay)
        endpoint.tracing = tracing.setup(endpoint.card.agent_id, confirms=not arguments.collector)
        if endpoint.tracing:
            instrument(endpoint.tracing.provider)
        await serve(endpoint, arguments.listen, snapshot, simulator=simulator, validator=validator, generator=generator)

    asyncio.run(main())
