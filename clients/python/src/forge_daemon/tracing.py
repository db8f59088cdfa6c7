"""Sends OpenTelemetry spans over OTLP, and tells the daemon whether it has all spans of a turn. Needs the extra `otel`.

`setup` once, at the start of the process; frameworks that are instrumented then send their spans by themselves:

    Agent(answer, id="shop", capabilities=SPANS_ONLY, tracing=tracing.setup("shop", confirms=True))
"""

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

try:
    from opentelemetry import baggage, trace
    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import Span, SpanProcessor, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

    from forge_daemon.ledger import Followed, Ledger, Reply, Spans, Watchful, grpc_exporter, http_exporter
except ImportError as error:
    raise ImportError("forge_daemon.tracing needs OpenTelemetry: pip install 'forge-daemon[otel]'") from error

__all__ = ["BaggageAttributes", "Tracing", "is_configured", "setup"]

logger = logging.getLogger(__name__)

CONFIRM_SECONDS = 2.0
"""How long a turn that is over waits for the receiver; after it the daemon waits by itself."""

PATIENCE_SECONDS = 0.2
"""How long it waits if the receiver has just failed: whether another attempt follows at once is known after that."""

SHUTDOWN_SECONDS = 2.0
"""How long the end of the process waits for the receiver."""

BAGGAGE_PREFIX = "forge."

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


def is_configured() -> bool:
    """Whether the environment names a receiver of spans, and switches nothing off."""
    is_off = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return not is_off and os.environ.get("OTEL_TRACES_EXPORTER", "").strip() != "none" and _first(ENDPOINTS) != ""


def setup(service_name: str, *, confirms: bool = False) -> "Tracing | None":
    """Makes a `Tracing` and its tracer provider that of the whole process; None if the environment names no receiver.

    The arguments are those of `Tracing`.
    """
    if not is_configured():
        return None
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        raise RuntimeError("the process has a tracer provider already, and spans that it makes would not be known here")
    tracing = Tracing(service_name, confirms=confirms)
    trace.set_tracer_provider(tracing.provider)
    return tracing


class Tracing:
    """A tracer provider that sends its spans in batches, and what is known of them.

    The variables of OpenTelemetry configure it: OTEL_EXPORTER_OTLP_ENDPOINT and the others of the exporter with
    OTEL_EXPORTER_OTLP_PROTOCOL (`grpc`, or `http/protobuf`), OTEL_BSP_…, OTEL_TRACES_SAMPLER, OTEL_RESOURCE_ATTRIBUTES.
    A receiver that is down costs spans, but never fails a turn, and the process ends all the same.
    """

    def __init__(self, service_name: str, *, confirms: bool = False, confirm_seconds: float = CONFIRM_SECONDS) -> None:
        """`service_name` is used unless OTEL_SERVICE_NAME says another.

        `confirms` is a promise that only you can make: the receiver is the daemon itself, and all spans of the agent
        come from `provider`. Then a turn may say that the daemon has all its spans, and the daemon does not wait for
        more. A collector in between confirms spans that the daemon has not got yet: leave it False.
        """
        #: What instrumentations take as `tracer_provider`.
        self.provider = TracerProvider(resource=_resource(service_name), shutdown_on_exit=False)
        #: Whether `confirm` may ever say yes.
        self.confirms = confirms
        self._confirm_seconds = confirm_seconds
        self._ledger = Ledger()
        self._exporter = Followed(_exporter(self._ledger.replied), self._ledger)
        batches = BatchSpanProcessor(self._exporter)
        self.provider.sampler = Watchful(self.provider.sampler, self._ledger)
        for processor in (BaggageAttributes(), self._ledger, batches):
            self.provider.add_span_processor(processor)
        self._flusher = _Flusher(batches.force_flush, self.provider.shutdown)
        atexit.register(self.shutdown)

    @contextmanager
    def watch(self) -> Iterator[Spans]:
        """Follows the spans that are begun below the current one."""
        spans = self._ledger.watch(trace.get_current_span().get_span_context())
        try:
            yield spans
        finally:
            self._ledger.forget(spans)

    async def confirm(self, spans: Spans, limit: float | None = None) -> bool:
        """Has all spans sent that have ended. True if the receiver has confirmed each of these, and none still runs.

        It waits for that, `limit` seconds at most and never long; a receiver that fails is hardly waited for. Whoever
        asks while others wait shares the next export with them. What is not known is False.
        """
        loop, woken, flushed = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # The loop is closed, so nobody waits.
                loop.call_soon_threadsafe(woken.set)

        def done() -> None:
            flushed.set()
            wake()

        spans.wake = wake
        self._flusher.request(done)
        if not self.confirms:
            return False
        end = loop.time() + (self._confirm_seconds if limit is None else min(limit, self._confirm_seconds))
        with suppress(asyncio.TimeoutError):
            while not self._ledger.is_settled(spans) and not flushed.is_set():
                left = end - loop.time()
                await asyncio.wait_for(woken.wait(), min(left, PATIENCE_SECONDS) if self._ledger.is_failing else left)
                woken.clear()
        return self._ledger.is_confirmed(spans)

    def shutdown(self, seconds: float = SHUTDOWN_SECONDS) -> None:
        """Sends what is left, for so many seconds at most. The end of the process does it too."""
        atexit.unregister(self.shutdown)
        done = threading.Event()
        self._flusher.stop(done.set)
        if not done.wait(seconds):
            # Left alone, OpenTelemetry waits half a minute for a receiver that does not answer.
            self._exporter.shutdown()
            done.wait(0.5)


class BaggageAttributes(SpanProcessor):
    """Writes what the daemon put into the baggage, such as `forge.run.id`, on every span, so that it is found by it."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Writes it on a span that has begun."""
        for key, value in baggage.get_all(parent_context).items():
            if key.startswith(BAGGAGE_PREFIX):
                span.set_attribute(key, str(value))


class _Flusher:
    """Flushes in a thread of its own. Requests that come while it flushes share the next flush."""

    def __init__(self, flush: Callable[[], object], shutdown: Callable[[], object]) -> None:
        self._flush = flush
        self._shutdown = shutdown
        self._condition = threading.Condition()
        self._asked: list[Callable[[], None]] = []
        self._is_stopped = False
        threading.Thread(target=self._run, name="forge-spans", daemon=True).start()

    def request(self, done: Callable[[], None]) -> None:
        """Calls `done` when a flush has ended that began after this."""
        with self._condition:
            if not self._is_stopped:
                self._asked.append(done)
                self._condition.notify()
                return
        done()

    def stop(self, done: Callable[[], None]) -> None:
        """Calls `done` after the last flush and the shutdown."""
        with self._condition:
            if not self._is_stopped:
                self._asked.append(done)
                self._is_stopped = True
                self._condition.notify()
                return
        done()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            with self._condition:
                self._condition.wait_for(lambda: self._asked)
                asked, self._asked = self._asked, []
                is_last = self._is_stopped
            try:
                self._flush()
                if is_last:
                    self._shutdown()
            except Exception:
                logger.exception("the spans could not be flushed")
            for done in asked:
                done()


def _resource(service_name: str) -> Resource:
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        return resource.merge(Resource({SERVICE_NAME: service_name}))
    return resource


def _exporter(reply: Reply) -> SpanExporter:
    match _first(PROTOCOLS):
        case "" | "grpc":
            return grpc_exporter(reply)
        case "http/protobuf":
            return http_exporter(reply)
        case other:
            raise ValueError(f"OTEL_EXPORTER_OTLP_PROTOCOL: {other!r} is neither grpc nor http/protobuf")


def _first(variables: tuple[str, ...]) -> str:
    """The value of the first variable that is set."""
    return next((value for name in variables if (value := os.environ.get(name, "").strip())), "")
