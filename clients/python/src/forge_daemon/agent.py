"""What a process serves: an agent with its card, and the functions that play other parts beside it."""

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from forge_daemon import functions
from forge_daemon.blocking import BlockingTurn
from forge_daemon.generator import Write
from forge_daemon.proto.agent_pb2 import AgentCard
from forge_daemon.simulator import Play
from forge_daemon.snapshot import Capture
from forge_daemon.tools import Tool, by_name, tool_of
from forge_daemon.turn import Turn
from forge_daemon.validator import Judge

if TYPE_CHECKING:
    # Needs the extra `otel`, which an agent without spans has not.
    from forge_daemon.tracing import Tracing

__all__ = ["CAPABILITIES", "SPANS_ONLY", "Agent", "Answer", "agent_of"]

Answer = Callable[[Turn], Awaitable[str | None]] | Callable[[BlockingTurn], str | None]
"""An agent: gives the answer, or None if it has said everything with `turn.say`. A plain function runs in a thread."""

CAPABILITIES = ("tools.stub", "tools.routing", "text.delta", "cancel")
"""What every agent can do whose tool calls go through its `Turn`."""
FROM_SPANS = "tools.from_spans"
SPANS_EXPORT = "spans.export"
SPANS_ONLY = ("text.delta", "cancel", FROM_SPANS)
"""What an agent can do whose tool calls are known from its OpenTelemetry spans alone."""
PROBE = "probe"

MAX_THREADS = 128
"""Turns of a plain function at a time, if the agent does not say: each has a thread."""


class Agent:
    """An agent under test, and what plays other parts beside it in the same process."""

    def __init__(
        self,
        answer: Answer | None = None,
        *,
        id: str,
        version: str = "0",
        name: str = "",
        description: str = "",
        provider: str = "",
        model: str = "",
        tools: Iterable[Tool[..., Any] | Callable[..., Any]] = (),
        labels: Mapping[str, str] | None = None,
        input_media_types: Iterable[str] = (),
        max_concurrent: int = 0,
        capabilities: tuple[str, ...] = CAPABILITIES,
        tracing: "Tracing | None" = None,
        simulator: Play | None = None,
        validator: Judge | None = None,
        generator: Write | None = None,
        snapshot: Capture | None = None,
    ) -> None:
        """`answer` may be left out by a process that only plays other parts.

        `id` and what follows are the agent's card. Let `version` change with every change of code or prompt:
        comparisons of two runs use it. `provider` and `model` are in the words of the provider, `labels` is anything
        else worth knowing.

        `max_concurrent` is told to daemons, and further calls wait for their turn; 0 is no limit. `tracing` sends the
        agent's spans: see `forge_daemon.tracing`.

        Raises TypeError or ValueError, in one line, for what cannot be served.
        """
        if not isinstance(id, str) or not id.strip():
            raise ValueError('card.id: missing; give the agent one, for example "shop.orders"')
        if not version:
            raise ValueError('card.version: missing; give the agent one, for example "1.0.0"')
        if max_concurrent < 0:
            raise ValueError(f"max_concurrent: {max_concurrent} is less than 0, which means no limit")
        for function, what, whole in [
            (answer, "answer", "the turn"),
            (simulator, "simulator", "the request"),
            (validator, "validator", "the request"),
            (generator, "generator", "the request"),
            (snapshot, "snapshot", "the path"),
        ]:
            if function is None:
                continue
            if not callable(function):
                raise TypeError(f"{what}: a function, not {type(function).__name__}")
            functions.takes(function, 1, what, whole)
        #: The agent's function.
        self.answer = answer
        #: The tools that the card shows and that `turn.call` knows, by name.
        self.tools = by_name(tool_of(one) for one in tools)
        #: How many calls at a time; 0 is no limit.
        self.max_concurrent = max_concurrent
        if answer is not None and not functions.is_async(answer) and not max_concurrent:
            self.max_concurrent = MAX_THREADS
        #: What sends the spans.
        self.tracing = tracing
        self.simulator, self.validator, self.generator, self.snapshot = simulator, validator, generator, snapshot
        self._capabilities = capabilities
        #: Who the agent is, in the words of the protocol.
        self.card = AgentCard(
            agent_id=id,
            name=name,
            version=version,
            description=description,
            provider_name=provider,
            model=model,
            tools=[one.spec for one in self.tools.values()],
            input_media_types=list(input_media_types),
            labels=dict(labels or {}),
        )

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What the agent can do, as daemons are told."""
        found = list(self._capabilities)
        if os.environ.get("FORGE_PROBE") == "1" and PROBE not in found:
            found.append(PROBE)
        if self.tracing is not None and not {FROM_SPANS, SPANS_EXPORT} & set(found):
            # The daemon then exports no spans of its own for what stands in the agent's.
            found.append(SPANS_EXPORT)
        return tuple(found)


def agent_of(given: Agent | Answer) -> Agent:
    """An agent as it is; a function is one whose id is the function's name."""
    if isinstance(given, Agent):
        return given
    if not callable(given) or isinstance(given, type):
        what = given.__name__ if isinstance(given, type) else type(given).__name__
        raise TypeError(f"agent: a function or an Agent, not {what}")
    name = functions.name_of(given)
    return Agent(given, id="agent" if name == "<lambda>" else name)
