"""Follows every span of a turn until the receiver has confirmed it. Needs the extra `otel`.

OpenTelemetry does not tell: the `force_flush` of its batch processor is True whatever became of the spans. An export
that failed, a span that was dropped because the queue was full, and one that the receiver refused all look alike.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import Sampler, SamplingResult
from opentelemetry.trace import SpanContext

__all__ = ["Followed", "Ledger", "Reply", "Spans", "Watchful", "grpc_exporter", "http_exporter"]

SpanId = tuple[int, int]
"""Trace and span: the latter alone is unique within its trace only."""

Reply = Callable[[ExportTraceServiceResponse | None], None]
"""Hears what the receiver said to one attempt of an export; None is nothing that can be read."""


class Spans:
    """What is known of the spans of one turn: those below the span that its call came with."""

    def __init__(self) -> None:
        #: Those that have begun and not ended.
        self.running: set[SpanId] = set()
        #: Those that have ended, and that the receiver has not confirmed.
        self.unconfirmed: set[SpanId] = set()
        #: How many the receiver has confirmed.
        self.confirmed = 0
        #: Whether one is missing for good: refused, lost, or left out by a sampler.
        self.is_incomplete = False
        #: Is called when an export has ended or goes wrong, from any thread.
        self.wake: Callable[[], None] | None = None

    @property
    def is_settled(self) -> bool:
        """Whether waiting changes nothing."""
        return self.is_incomplete or not (self.running or self.unconfirmed)

    @property
    def is_confirmed(self) -> bool:
        """Whether the receiver has all of them. Of none at all nothing is known: perhaps nobody makes any."""
        return self.is_settled and not self.is_incomplete and self.confirmed > 0


class Ledger(SpanProcessor):
    """Knows of every span of the turns that are watched. Stands before the processor that exports them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By the ids of spans below which further ones may begin. Several turns, if their calls came with the same span.
        self._turns: dict[SpanId, tuple[Spans, ...]] = {}
        self._watched: dict[Spans, list[SpanId]] = {}
        self._is_failing = False
        self._rejected: int | None = None

    def watch(self, parent: SpanContext) -> Spans:
        """Begins to follow the spans below this one."""
        spans = Spans()
        with self._lock:
            self._watched[spans] = []
            if parent.is_valid:
                self._add(_id(parent), spans)
        return spans

    def forget(self, spans: Spans) -> None:
        """Ends it."""
        with self._lock:
            for id in self._watched.pop(spans):
                rest = tuple(other for other in self._turns.get(id, ()) if other is not spans)
                if rest:
                    self._turns[id] = rest
                else:
                    self._turns.pop(id, None)

    @property
    def is_failing(self) -> bool:
        """Whether the last attempt of the export under way failed. There may be another, some time later."""
        return self._is_failing

    def is_settled(self, spans: Spans) -> bool:
        """Whether waiting changes nothing."""
        with self._lock:
            return spans.is_settled

    def is_confirmed(self, spans: Spans) -> bool:
        """Whether the receiver has all of them."""
        with self._lock:
            return spans.is_confirmed

    # What happens to spans.

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """A span has begun."""
        with self._lock:
            for spans in self._below(span.parent):
                self._add(_id(span.get_span_context()), spans)
                spans.running.add(_id(span.get_span_context()))

    def on_end(self, span: ReadableSpan) -> None:
        """A span has ended, and will be exported."""
        with self._lock:
            for spans in self._below(span.context):
                spans.running.discard(_id(span.context))
                spans.unconfirmed.add(_id(span.context))

    def left_out(self, parent: SpanContext) -> None:
        """A sampler decided against a span below this one."""
        with self._lock:
            for spans in self._below(parent):
                spans.is_incomplete = True

    # What happens to exports, of which there is one at a time.

    def replied(self, response: ExportTraceServiceResponse | None) -> None:
        """An attempt of the export under way has ended."""
        self._rejected = None if response is None else response.partial_success.rejected_spans
        self._is_failing = response is None
        if self._is_failing:
            with self._lock:
                self._wake()

    def exported(self, batch: Sequence[ReadableSpan], is_success: bool) -> None:
        """An export has ended."""
        # A receiver that refused some does not say which.
        is_confirmed = is_success and self._rejected == 0
        self._rejected, self._is_failing = None, False
        with self._lock:
            for span in batch:
                for spans in self._below(span.context):
                    if is_confirmed and _id(span.context) in spans.unconfirmed:
                        spans.unconfirmed.remove(_id(span.context))
                        spans.confirmed += 1
                    else:
                        spans.is_incomplete = True
            self._wake()

    def _add(self, id: SpanId, spans: Spans) -> None:
        self._turns[id] = (*self._turns.get(id, ()), spans)
        self._watched[spans].append(id)

    def _below(self, parent: SpanContext | None) -> tuple[Spans, ...]:
        return () if parent is None else self._turns.get(_id(parent), ())

    def _wake(self) -> None:
        for spans in self._watched:
            if spans.wake:
                spans.wake()


def _id(context: SpanContext) -> SpanId:
    return context.trace_id, context.span_id


class Watchful(Sampler):
    """Another sampler, which tells the ledger of the spans that it leaves out."""

    def __init__(self, sampler: Sampler, ledger: Ledger) -> None:
        self._sampler = sampler
        self._ledger = ledger

    def should_sample(self, parent_context: Context | None, *args: Any, **kwargs: Any) -> SamplingResult:
        """Decides as the other one."""
        result = self._sampler.should_sample(parent_context, *args, **kwargs)
        if not result.decision.is_sampled():  # type: ignore[no-untyped-call]
            self._ledger.left_out(trace.get_current_span(parent_context).get_span_context())
        return result

    def get_description(self) -> str:
        """Describes the other one."""
        return self._sampler.get_description()


class Followed(SpanExporter):
    """Another exporter, which tells the ledger what became of every batch."""

    def __init__(self, exporter: SpanExporter, ledger: Ledger) -> None:
        self._exporter = exporter
        self._ledger = ledger
        self._is_shut_down = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Exports a batch."""
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            self._ledger.exported(spans, result is SpanExportResult.SUCCESS)
        return result

    def shutdown(self) -> None:
        """Breaks off what is under way, and takes no more. It may be called again."""
        if not self._is_shut_down:
            self._is_shut_down = True
            self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing is kept here."""
        return self._exporter.force_flush(timeout_millis)


# The exporters look at the status of a reply and throw it away, and with it what the receiver refused. So these listen.
# If another version of them gets its replies by other ways, nothing is heard, and nothing is taken for confirmed.


def grpc_exporter(reply: Reply) -> SpanExporter:
    """OpenTelemetry's exporter over gRPC, as the environment configures it."""
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    class Listening:
        def __init__(self, client: Any) -> None:
            self._client = client

        def Export(self, *args: Any, **kwargs: Any) -> ExportTraceServiceResponse:
            response: ExportTraceServiceResponse | None = None
            try:
                response = self._client.Export(*args, **kwargs)
            finally:
                reply(response)
            return response

    class Exporter(OTLPSpanExporter):
        def _initialize_channel_and_stub(self) -> None:
            super()._initialize_channel_and_stub()  # type: ignore[no-untyped-call]
            self._client: Any = Listening(self._client)

    return Exporter()


def http_exporter(reply: Reply) -> SpanExporter:
    """OpenTelemetry's exporter over HTTP, as the environment configures it."""
    import requests
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    class Session(requests.Session):
        def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
            read = None
            try:
                response = super().send(request, **kwargs)
                read = _read(response)
            finally:
                reply(read)
            return response

    return OTLPSpanExporter(session=Session())


def _read(response: Any) -> ExportTraceServiceResponse | None:
    """What a receiver of OTLP said. Any other server may say OK too, and has nothing."""
    if response.status_code != 200 or not response.headers.get("content-type", "").startswith("application/x-protobuf"):
        return None
    with suppress(DecodeError):
        return ExportTraceServiceResponse.FromString(response.content)
    return None
