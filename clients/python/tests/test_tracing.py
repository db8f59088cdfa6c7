"""Spans go to a receiver, and a turn says that all of them arrived only if they did."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace

import grpc
import otlp
import pytest
from client import Events, OnEvent, cancel_frame, invoke, start_frame
from google.protobuf.duration_pb2 import Duration
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Tracer
from otlp import Receiver, place

from forge_daemon import CAPABILITIES, SPANS_ONLY, Agent, Turn
from forge_daemon.proto import values_pb2 as values
from forge_daemon.proto.invoke_pb2 import InvokeResponse
from forge_daemon.tracing import Tracing, is_configured, setup

Work = Callable[[Tracer, Turn], Awaitable[None]]


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_SERVICE_NAME"):
        monkeypatch.delenv(name, raising=False)
    # Spans are sent when somebody asks for it, and not by chance.
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")


@pytest.fixture(params=["grpc", "http"])
def receiver(request: pytest.FixtureRequest) -> Iterator[Receiver]:
    with otlp.grpc_receiver() if request.param == "grpc" else otlp.http_receiver() as receiver:
        yield receiver


@pytest.fixture
def grpc_receiver() -> Iterator[Receiver]:
    with otlp.grpc_receiver() as receiver:
        yield receiver


@pytest.fixture
def trace(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Tracing]]:
    """Makes a Tracing that sends to a receiver, or to an endpoint."""
    with ExitStack() as stack:

        def make(to: Receiver | str, *, confirms: bool = True, protocol: str = "grpc", **more: float) -> Tracing:
            endpoint, protocol = (to, protocol) if isinstance(to, str) else (to.endpoint, to.protocol)
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
            tracing = Tracing("test.service", confirms=confirms, **more)
            stack.callback(tracing.shutdown, 0.1)
            return tracing

        yield make


async def two_spans(tracer: Tracer, turn: Turn) -> None:
    with tracer.start_as_current_span("agent"):
        await asyncio.sleep(0)
        with tracer.start_as_current_span("tool"):
            pass


@pytest.fixture
def ask(serve) -> Callable[..., Awaitable[SimpleNamespace]]:
    """Serves an agent that does some work with a tracer, and asks it once."""

    async def once(
        tracing: Tracing | None,
        work: Work = two_spans,
        *,
        on_event: OnEvent | None = None,
        capabilities: tuple[str, ...] = SPANS_ONLY,
        context: values.CallContext | None = None,
    ) -> SimpleNamespace:
        tracer = (tracing.provider if tracing else TracerProvider()).get_tracer("test")

        async def answer(turn: Turn) -> str:
            await work(tracer, turn)
            return "done"

        endpoint = Agent(answer, id="a", capabilities=capabilities, tracing=tracing)
        stub = await serve(endpoint)
        traceparent, _, span = place()
        call = values.CallContext(trace_context={"traceparent": traceparent})
        call.MergeFrom(context or values.CallContext())
        began = time.monotonic()
        events = await invoke(stub, start_frame("hi", context=call), on_event=on_event)
        return SimpleNamespace(
            events=events, flushed=events.finished.spans_flushed, span=span, seconds=time.monotonic() - began
        )

    return once


def completed(events: Events) -> bool:
    events.check_rules()
    return (events.reason, events.text) == ("COMPLETED", "done")


# What OpenTelemetry says by itself.


def test_opentelemetry_does_not_tell():
    """The reason for the ledger. Should this fail one day, less of it may be needed."""

    class Failing(SpanExporter):
        def export(self, spans: object) -> SpanExportResult:
            return SpanExportResult.FAILURE

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(Failing(), max_queue_size=2, max_export_batch_size=2))
    for _ in range(10):
        provider.get_tracer("test").start_span("lost").end()
    assert provider.force_flush() is True
    provider.shutdown()


# What a turn says.


async def test_all_spans_have_arrived_before_the_turn_says_so(receiver, trace, ask):
    answer = await ask(trace(receiver))
    assert completed(answer.events)
    assert answer.flushed
    agent, tool = receiver.below(answer.span)
    assert (agent.name, tool.name, tool.parent) == ("agent", "tool", agent.id)


@pytest.mark.parametrize(
    ("behaviour", "is_flushed"),
    [
        (otlp.accept, True),
        (otlp.warn, True),
        (otlp.take_all_but_one, False),
        (otlp.reject, False),
        (otlp.be_overloaded, False),
        (otlp.take(0.2), True),
        (otlp.take(1.5), False),
    ],
    ids=["accept", "warn", "take-all-but-one", "reject", "overloaded", "slow", "too-slow"],
)
async def test_only_what_the_receiver_confirms_counts(receiver, trace, ask, behaviour, is_flushed):
    receiver.behaviour = behaviour
    answer = await ask(trace(receiver, confirm_seconds=0.7))
    assert completed(answer.events)
    assert answer.flushed == is_flushed
    assert len(receiver.below(answer.span)) == 2
    assert answer.seconds < 1.2


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
async def test_nobody_waits_for_a_receiver_that_is_down(trace, ask, protocol):
    tracing = trace(otlp.closed_port(), protocol=protocol, confirm_seconds=60)
    for _ in range(3):
        answer = await ask(tracing)
        assert completed(answer.events)
        assert not answer.flushed
        assert answer.seconds < 1


async def test_any_server_can_say_ok(trace, ask):
    with otlp.http_receiver(content_type="text/html") as other:
        answer = await ask(trace(other))
    assert completed(answer.events)
    assert not answer.flushed


async def test_a_receiver_that_comes_back_is_believed_again(receiver, trace, ask):
    tracing = trace(receiver)
    receiver.behaviour = otlp.reject
    assert not (await ask(tracing)).flushed
    receiver.behaviour = otlp.accept
    assert (await ask(tracing)).flushed


async def test_who_does_not_promise_it_never_says_it(grpc_receiver, trace, ask):
    answer = await ask(trace(grpc_receiver, confirms=False))
    assert not answer.flushed
    # They are sent at once all the same: the daemon waits for them.
    await asyncio.to_thread(grpc_receiver.wait_for, "tool")
    assert not (await ask(None)).flushed


async def test_only_with_the_capability(grpc_receiver, trace, ask):
    answer = await ask(trace(grpc_receiver), capabilities=CAPABILITIES)
    assert completed(answer.events)
    assert not answer.flushed
    assert grpc_receiver.batches == []


async def test_a_turn_without_spans_says_nothing(grpc_receiver, trace, ask):
    """Perhaps its framework is not instrumented, and then what there is not says nothing about its tool calls."""

    async def nothing(tracer: Tracer, turn: Turn) -> None:
        pass

    async def elsewhere(tracer: Tracer, turn: Turn) -> None:
        with TracerProvider().get_tracer("other").start_as_current_span("agent"):
            pass

    tracing = trace(grpc_receiver)
    assert not (await ask(tracing, nothing)).flushed
    assert not (await ask(tracing, elsewhere)).flushed


@pytest.mark.parametrize("traceparent", ["", "nonsense"])
async def test_spans_that_hang_nowhere_are_not_the_turns(serve, grpc_receiver, trace, traceparent):
    tracing = trace(grpc_receiver)

    async def answer(turn: Turn) -> str:
        await two_spans(tracing.provider.get_tracer("test"), turn)
        return ""

    endpoint = Agent(answer, id="a", capabilities=SPANS_ONLY, tracing=tracing)
    context = values.CallContext(trace_context={"traceparent": traceparent})
    events = await invoke(await serve(endpoint), start_frame(context=context))
    assert not events.finished.spans_flushed


async def test_a_span_that_still_runs_is_missing(grpc_receiver, trace, ask):
    async def leave_one_open(tracer: Tracer, turn: Turn) -> None:
        with tracer.start_as_current_span("agent"):
            tracer.start_span("background")

    answer = await ask(trace(grpc_receiver), leave_one_open)
    assert not answer.flushed
    assert [span.name for span in grpc_receiver.spans] == ["agent"]
    assert answer.seconds < 1


async def test_spans_from_threads_and_tasks_count(grpc_receiver, trace, ask):
    async def spread(tracer: Tracer, turn: Turn) -> None:
        with tracer.start_as_current_span("agent"):
            await asyncio.gather(
                *(asyncio.to_thread(lambda: tracer.start_span("thread").end()) for _ in range(20)),
                *(asyncio.create_task(two_spans(tracer, turn)) for _ in range(20)),
            )

    answer = await ask(trace(grpc_receiver), spread)
    assert answer.flushed
    assert len(grpc_receiver.below(answer.span)) == 61


async def test_a_span_that_a_full_queue_dropped_is_missing(grpc_receiver, trace, ask, monkeypatch):
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
    is_open = threading.Event()

    def wait(spans: list[otlp.Span]) -> otlp.Response:
        is_open.wait(10)
        return otlp.Response()

    async def many(tracer: Tracer, turn: Turn) -> None:
        for _ in range(20):
            tracer.start_span("tool").end()
        is_open.set()

    grpc_receiver.behaviour = wait
    answer = await ask(trace(grpc_receiver), many)
    assert completed(answer.events)
    assert not answer.flushed
    assert 0 < len(grpc_receiver.spans) < 20


@pytest.mark.parametrize("sampler", ["always_off", "parentbased_always_on"])
async def test_a_span_that_is_not_sampled_is_missing(grpc_receiver, trace, ask, monkeypatch, sampler):
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    tracing = trace(grpc_receiver)
    unsampled = values.CallContext(trace_context={"traceparent": place()[0][:-1] + "0"})
    assert not (await ask(tracing, context=unsampled)).flushed
    assert grpc_receiver.batches == []


async def test_opentelemetry_may_be_switched_off(grpc_receiver, trace, ask, monkeypatch):
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    answer = await ask(trace(grpc_receiver))
    assert completed(answer.events)
    assert not answer.flushed


# Several turns.


def serving(tracing: Tracing, work: Work = two_spans) -> Agent:
    async def answer(turn: Turn) -> str:
        await work(tracing.provider.get_tracer("test"), turn)
        return ""

    return Agent(answer, id="a", capabilities=SPANS_ONLY, tracing=tracing)


def called(traceparent: str) -> values.CallContext:
    return values.CallContext(trace_context={"traceparent": traceparent})


async def test_what_others_lost_does_not_matter(receiver, trace, serve):
    async def work(tracer: Tracer, turn: Turn) -> None:
        with tracer.start_as_current_span(turn.user_text):
            pass

    def refuse_bad(spans: list[otlp.Span]) -> otlp.Response:
        return otlp.reject(spans) if any(span.name == "bad" for span in spans) else otlp.Response()

    receiver.behaviour = refuse_bad
    stub, run = await serve(serving(trace(receiver), work)), place()[1]
    # All turns of a run are in one trace.
    frames = [start_frame(text, context=called(f"00-{run}-{place()[2]}-01")) for text in ("good", "bad", "good")]
    flushed = [(await invoke(stub, frame)).finished.spans_flushed for frame in frames]
    assert flushed == [True, False, True]


async def test_many_turns_share_their_exports(receiver, trace, serve):
    receiver.behaviour = otlp.take(0.1)
    together = asyncio.Barrier(50)

    async def work(tracer: Tracer, turn: Turn) -> None:
        await together.wait()
        await two_spans(tracer, turn)

    stub = await serve(serving(trace(receiver, confirm_seconds=60), work))
    turns = await asyncio.gather(*(invoke(stub, start_frame(context=called(place()[0]))) for _ in range(50)))
    assert all(events.finished.spans_flushed for events in turns)
    assert len(receiver.batches) < 10, "one after the other they take five seconds"
    assert len(receiver.spans) == 100


async def test_the_same_place_in_a_trace_twice(grpc_receiver, trace, serve):
    begun, release = {"first": asyncio.Event(), "second": asyncio.Event()}, asyncio.Event()

    async def work(tracer: Tracer, turn: Turn) -> None:
        begun[turn.user_text].set()
        with tracer.start_as_current_span(turn.user_text):
            if turn.user_text == "first":
                await begun["second"].wait()
            else:
                await release.wait()

    stub, context = await serve(serving(trace(grpc_receiver), work)), called(place()[0])
    first = asyncio.create_task(invoke(stub, start_frame("first", context=context)))
    await begun["first"].wait()
    second = asyncio.create_task(invoke(stub, start_frame("second", context=context)))
    assert not (await first).finished.spans_flushed, "whose span still runs cannot be told"
    release.set()
    assert (await second).finished.spans_flushed


async def test_a_slow_receiver_does_not_stop_the_event_loop(receiver, trace, ask):
    receiver.behaviour = otlp.take(0.5)
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.01)
            beats += 1

    beating = asyncio.create_task(beat())
    assert (await ask(trace(receiver))).flushed
    beating.cancel()
    assert beats > 20


# Turns that end otherwise.


async def test_a_failed_turn_has_spans_too(grpc_receiver, trace, ask):
    async def fail(tracer: Tracer, turn: Turn) -> None:
        with tracer.start_as_current_span("agent"):
            raise RuntimeError("the model is gone")

    answer = await ask(trace(grpc_receiver), fail)
    assert (answer.events.reason, answer.flushed) == ("FAILED", True)
    assert [span.is_error for span in grpc_receiver.spans] == [True]


def cancel_soon(grace_ms: int = 2000) -> OnEvent:
    """Cancels a turn a moment after its first line for people."""

    async def on_event(event: InvokeResponse, call: grpc.aio.StreamStreamCall) -> None:
        if event.WhichOneof("event") == "log":
            await asyncio.sleep(0.1)
            frame = cancel_frame()
            frame.cancel.grace.FromMilliseconds(grace_ms)
            await call.write(frame)

    return on_event


async def hang(tracer: Tracer, turn: Turn) -> None:
    with tracer.start_as_current_span("agent"):
        turn.log("working")
        await asyncio.sleep(60)


async def log(tracer: Tracer, turn: Turn) -> None:
    with tracer.start_as_current_span("agent"):
        turn.log("working")


async def test_a_cancelled_turn_has_spans_too(grpc_receiver, trace, ask):
    answer = await ask(trace(grpc_receiver), hang, on_event=cancel_soon())
    assert (answer.events.reason, answer.flushed) == ("CANCELLED", True)
    assert [span.name for span in grpc_receiver.spans] == ["agent"]


@pytest.mark.parametrize("work", [hang, log])
async def test_a_cancel_does_not_wait_for_spans(grpc_receiver, trace, ask, work):
    grpc_receiver.behaviour = otlp.take(3)
    answer = await ask(trace(grpc_receiver, confirm_seconds=60), work, on_event=cancel_soon(grace_ms=400))
    assert (answer.events.reason, answer.flushed) == ("CANCELLED", False)
    assert answer.seconds < 1


async def test_spans_do_not_use_up_the_budget(grpc_receiver, trace, ask):
    grpc_receiver.behaviour = otlp.take(3)
    context = values.CallContext(budget=Duration(nanos=600_000_000))
    answer = await ask(trace(grpc_receiver, confirm_seconds=60), context=context)
    assert completed(answer.events)
    assert not answer.flushed
    assert answer.seconds < 0.6


# Set up and shut down.


async def test_spans_say_whose_they_are(receiver, trace, ask):
    context = values.CallContext(
        trace_context={"baggage": "forge.run.id=r-1,forge.case.id=gr%C3%B6%C3%9Fe%2C%20100%20%25,secret=1"}
    )
    answer = await ask(trace(receiver), context=context)
    for span in receiver.below(answer.span):
        assert span.attributes == {"forge.run.id": "r-1", "forge.case.id": "größe, 100 %"}
        assert span.resource["service.name"] == "test.service"


@pytest.mark.parametrize("variable", ["OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"])
async def test_the_environment_may_name_the_service(grpc_receiver, trace, ask, monkeypatch, variable):
    monkeypatch.setenv(variable, {"OTEL_SERVICE_NAME": "shop"}.get(variable, "service.name=shop"))
    await ask(trace(grpc_receiver))
    assert grpc_receiver.spans[0].resource["service.name"] == "shop"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "TRUE"}, False),
    ],
)
def test_only_where_a_receiver_is_named(monkeypatch, variables, expected):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert is_configured() == expected
    assert expected or setup("shop") is None


def test_an_unknown_protocol_is_an_error(trace):
    with pytest.raises(ValueError, match="'http/json' is neither grpc nor http/protobuf"):
        trace("http://127.0.0.1:1", protocol="http/json")


def test_what_is_left_is_sent_at_the_end(receiver, trace):
    tracing = trace(receiver)
    tracing.provider.get_tracer("test").start_span("last").end()
    tracing.shutdown()
    assert [span.name for span in receiver.spans] == ["last"]
    tracing.shutdown()


@pytest.mark.parametrize("is_hung", [True, False])
def test_the_end_waits_for_nobody(receiver, trace, is_hung):
    if is_hung:
        receiver.behaviour = otlp.take(4)
    tracing = trace(receiver if is_hung else otlp.closed_port(), protocol=receiver.protocol)
    tracing.provider.get_tracer("test").start_span("last").end()
    began = time.monotonic()
    tracing.shutdown(0.3)
    assert time.monotonic() - began < 1


TWICE = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from forge_daemon import tracing

trace.set_tracer_provider(TracerProvider())
try:
    tracing.setup("shop")
except RuntimeError as error:
    print(error)
"""

LEAVE = """
import signal, sys
from opentelemetry import trace
from forge_daemon import tracing

made = tracing.setup("shop")
assert trace.get_tracer_provider() is made.provider
trace.get_tracer("anywhere").start_span("last").end()
print("ready", flush=True)
"""


def run(script: str, endpoint: str) -> subprocess.CompletedProcess[str]:
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    return subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=30)


def test_another_tracer_provider_is_an_error():
    done = run(TWICE, "http://127.0.0.1:1")
    assert "has a tracer provider already" in done.stdout, done.stderr


def test_a_process_ends_when_it_has_sent_what_is_left(grpc_receiver):
    done = run(LEAVE, grpc_receiver.endpoint)
    assert (done.returncode, done.stdout) == (0, "ready\n"), done.stderr
    assert [(span.name, span.resource["service.name"]) for span in grpc_receiver.spans] == [("last", "shop")]


def test_a_process_ends_without_a_receiver():
    began = time.monotonic()
    done = run(LEAVE, otlp.closed_port())
    assert (done.returncode, done.stdout) == (0, "ready\n"), done.stderr
    assert time.monotonic() - began < 8, "OpenTelemetry by itself takes ten seconds more"
