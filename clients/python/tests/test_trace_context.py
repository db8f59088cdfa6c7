"""The trace of a call goes on in the agent's code, over a real server."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from client import SECONDS, invoke, start_frame
from opentelemetry import baggage
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from otlp import place

from forge_daemon import Turn, UserTurn, Verdict
from forge_daemon.propagation import trace_context
from forge_daemon.proto import generator_pb2, simulator_pb2, snapshot_pb2, validator_pb2
from forge_daemon.proto import values_pb2 as values
from forge_daemon.proto.snapshot_pb2_grpc import SnapshotProviderStub


class Written:
    """The spans that code under test writes; each has the baggage as its attributes."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._tracer = provider.get_tracer("test")

    def write(self, name: str = "work") -> None:
        with self._tracer.start_as_current_span(name, attributes=dict(baggage.get_all())):
            pass

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def only(self) -> tuple[str, str, dict[str, str]]:
        """Trace, parent and baggage of the only span."""
        (span,) = self.spans
        return (*ids(span), dict(span.attributes))


def ids(span: ReadableSpan) -> tuple[str, str]:
    return f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}" if span.parent else ""


def called(traceparent: str, **more: str) -> values.CallContext:
    return values.CallContext(trace_context={"traceparent": traceparent} | more)


@pytest.fixture
def written() -> Written:
    return Written()


@pytest.fixture
def serve_written(serve_answer, written) -> Callable[[], Any]:
    """Serves an agent that writes one span."""

    async def answer(turn: Turn) -> str:
        written.write()
        return ""

    return lambda: serve_answer(answer)


async def test_a_turn_continues_the_trace(serve_written, written):
    traceparent, trace, span = place()
    frame = start_frame(context=called(traceparent, tracestate="vendor=1", baggage="forge.run.id=r%2C1,build=7"))
    await invoke(await serve_written(), frame)
    assert written.only() == (trace, span, {"forge.run.id": "r,1", "build": "7"})
    (made,) = written.spans
    assert made.parent.is_remote
    assert made.context.trace_state == {"vendor": "1"}


async def test_so_does_what_the_agent_starts_itself(serve_answer, written):
    async def answer(turn: Turn) -> str:
        async def later() -> None:
            await asyncio.sleep(0)
            written.write("task")

        async with asyncio.TaskGroup() as group:
            group.create_task(later())
            group.create_task(asyncio.to_thread(written.write, "thread"))
        await turn.call("t", {}, later)
        return ""

    traceparent, trace, span = place()
    await invoke(await serve_answer(answer), start_frame(context=called(traceparent)))
    assert sorted(made.name for made in written.spans) == ["task", "task", "thread"]
    assert {ids(made) for made in written.spans} == {(trace, span)}


async def test_calls_at_the_same_time_do_not_mix(serve_answer, written):
    async def answer(turn: Turn) -> str:
        await asyncio.sleep(0.01)
        written.write(turn.user_text)
        return ""

    stub, places = await serve_answer(answer), [place() for _ in range(10)]
    await asyncio.gather(*(invoke(stub, start_frame(span, context=called(text))) for text, _, span in places))
    assert {(made.name, *ids(made)) for made in written.spans} == {(span, trace, span) for _, trace, span in places}


async def test_a_call_without_a_trace_has_none(serve_written, written):
    stub = await serve_written()
    await invoke(stub, start_frame(context=called(place()[0], baggage="a=1")))
    await invoke(stub, start_frame())
    assert written.spans[1].parent is None
    assert not written.spans[1].attributes


async def test_every_party_continues_the_trace(parties, written):
    async def play(request: simulator_pb2.NextInputRequest) -> UserTurn:
        written.write("play")
        return UserTurn(gave_up=True)

    async def judge(request: validator_pb2.ValidateRequest) -> Verdict:
        written.write("judge")
        return Verdict(True)

    async def write(request: generator_pb2.GenerateRequest) -> AsyncIterator[dict[str, Any]]:
        for number in range(2):
            await asyncio.sleep(0)
            written.write(f"write {number}")
            yield {"id": str(number)}

    async def capture(path: str) -> int:
        written.write(f"capture {path}")
        return 1

    served = await parties(
        snapshot=capture,
        simulator=play,
        validator=judge,
        generator=write,
    )
    traceparent, trace, span = place()
    call = called(traceparent, baggage="case=7")
    async with asyncio.timeout(SECONDS):
        await served.simulator.NextInput(simulator_pb2.NextInputRequest(context=call))
        await served.validator.Validate(validator_pb2.ValidateRequest(context=call, criteria="nice"))
        async for _ in served.generator.Generate(generator_pb2.GenerateRequest(context=call, count=2)):
            pass
        await SnapshotProviderStub(served.channel).Capture(snapshot_pb2.CaptureRequest(context=call, paths=["a", "b"]))
    names = [made.name for made in written.spans]
    assert names == ["play", "judge", "write 0", "write 1", "capture a", "capture b"]
    assert {ids(made) for made in written.spans} == {(trace, span)}
    assert {made.attributes["case"] for made in written.spans} == {"7"}


# Where the values come from.


async def test_metadata_count_where_the_message_says_nothing(serve_written, written):
    (traceparent, trace, span), (other, *_) = place(), place()
    stub = await serve_written()
    metadata = [("traceparent", traceparent), ("tracestate", "vendor=1"), ("baggage", "a=1"), ("baggage", "b=2")]

    async def ask(call: values.CallContext) -> None:
        frames = stub.Invoke(iter([start_frame(context=call)]), metadata=metadata)
        assert [event.WhichOneof("event") async for event in frames][-1] == "finished"

    await ask(values.CallContext())
    assert written.only() == (trace, span, {"a": "1", "b": "2"})
    # Each of the two may come by another way, but a place in a trace is one thing.
    await ask(called(other))
    assert ids(written.spans[1]) == (other[3:35], other[36:52])
    assert not written.spans[1].context.trace_state
    assert written.spans[1].attributes == {"a": "1", "b": "2"}


def test_the_message_wins_over_the_metadata():
    metadata = [
        ("traceparent", "A"),
        ("tracestate", "B"),
        ("baggage", "C"),
        ("traceparent-bin", b"D"),
        ("user-agent", "E"),
    ]
    assert trace_context(values.CallContext(), None) == {}
    assert trace_context(values.CallContext(), metadata) == {"traceparent": "A", "tracestate": "B", "baggage": "C"}
    assert trace_context(called("a"), metadata) == {"traceparent": "a", "baggage": "C"}
    assert trace_context(called("a", tracestate="b", baggage="c"), metadata) == {
        "traceparent": "a",
        "tracestate": "b",
        "baggage": "c",
    }
    assert trace_context(called("", x="y"), metadata)["traceparent"] == "A", "what is empty says nothing"


@pytest.mark.parametrize(
    "malformed",
    [
        {"traceparent": "nonsense"},
        {"traceparent": "00-00000000000000000000000000000000-00f067aa0ba902b7-01"},
        {"traceparent": "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
        {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more"},
        {"traceparent": "é" * 100_000},
        {"baggage": "=,;=\x00é,%%%"},
        {"baggage": "k=" + "v" * 100_000},
        {"tracestate": "=,=\x00" * 1000},
    ],
    ids=["nonsense", "zero", "version", "longer", "long", "baggage", "long-baggage", "tracestate"],
)
async def test_what_is_malformed_fails_no_call(serve_written, parties, written, malformed):
    async def play(request: simulator_pb2.NextInputRequest) -> UserTurn:
        written.write()
        return UserTurn("Hello")

    traceparent, trace, _ = place()
    # A good value beside it counts; the metadata do not stand in for a bad one.
    call = values.CallContext(trace_context={"traceparent": traceparent} | malformed)
    frame = start_frame(context=call)
    events = await invoke(await serve_written(), frame)
    assert events.reason == "COMPLETED"
    await (await parties(simulator=play)).simulator.NextInput(
        simulator_pb2.NextInputRequest(context=call), metadata=[("traceparent", place()[0])]
    )
    for made in written.spans:
        assert (made.parent is None) == ("traceparent" in malformed)
        assert made.parent is None or ids(made)[0] == trace


# Agents without OpenTelemetry.


async def test_the_values_can_be_read_as_they_came(serve_answer):
    seen = []

    async def answer(turn: Turn) -> str:
        seen.append(turn.trace_context)
        return ""

    stub = await serve_answer(answer)
    await invoke(stub, start_frame(context=called("nonsense", baggage="a=1")))
    await invoke(stub, start_frame())
    assert seen == [{"traceparent": "nonsense", "baggage": "a=1"}, {}]


WITHOUT = """
import asyncio, sys
sys.modules["opentelemetry"] = None  # Whoever imports it finds that it is not there.

import grpc
from client import invoke, start_frame
from forge_daemon.proto import agent_pb2, simulator_pb2
from forge_daemon.proto.agent_pb2_grpc import AgentEndpointStub
from forge_daemon.proto.simulator_pb2_grpc import SimulatorStub
from forge_daemon.proto.values_pb2 import CallContext
from forge_daemon import SPANS_ONLY, Agent, Server, Turn, UserTurn

async def answer(turn: Turn) -> str:
    return turn.trace_context["traceparent"]

async def play(request: simulator_pb2.NextInputRequest) -> UserTurn:
    return UserTurn(request.context.trace_context["traceparent"])

async def main() -> None:
    endpoint = Agent(answer, id="a", capabilities=SPANS_ONLY, simulator=play)
    server = Server(endpoint, "127.0.0.1:0")
    await server.start()
    call = CallContext(trace_context={"traceparent": "00-1-2-01"})
    async with grpc.aio.insecure_channel(server.address) as channel:
        events = await invoke(AgentEndpointStub(channel), start_frame(context=call))
        said = await SimulatorStub(channel).NextInput(simulator_pb2.NextInputRequest(context=call))
    assert (events.reason, events.text, events.finished.spans_flushed) == ("COMPLETED", "00-1-2-01", False)
    assert said.input.parts[0].text == "00-1-2-01"
    await server.stop(0.1)

asyncio.run(main())
try:
    import forge_daemon.tracing
except ImportError as error:
    print(error)
"""


def test_opentelemetry_may_be_missing():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "forge_daemon.tracing needs OpenTelemetry: pip install 'forge-daemon[otel]'"
