"""The command line that the samples share."""

import argparse
import asyncio
from collections.abc import Callable

from forge_agent import AgentEndpoint, Generator, Simulator, SnapshotProvider, Validator, serve


def run(
    description: str,
    make: Callable[[float], AgentEndpoint],
    snapshot: SnapshotProvider | None = None,
    *,
    simulator: Simulator | None = None,
    validator: Validator | None = None,
    generator: Generator | None = None,
) -> None:
    """Serves the agent that `make` gives for a tool delay in seconds, and the other services that are given."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--listen", default="127.0.0.1:50051", metavar="HOST:PORT", help="port 0: any free one")
    parser.add_argument(
        "--tool-delay", type=float, default=0.0, metavar="SECONDS", help="make every tool slow, to watch a run live"
    )
    arguments = parser.parse_args()

    async def main() -> None:
        endpoint = make(arguments.tool_delay)
        await serve(endpoint, arguments.listen, snapshot, simulator=simulator, validator=validator, generator=generator)

    asyncio.run(main())
