"""A receiver of spans, as the daemon has one, that can be told how to behave."""

import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from forge_daemon.listening import ALONE

Request = trace_service_pb2.ExportTraceServiceRequest
Response = trace_service_pb2.ExportTraceServiceResponse


class Refused(Exception):
    """The receiver does not take it."""

    def __init__(self, status: grpc.StatusCode, http_status: int) -> None:
        self.status, self.http_status = status, http_status


@dataclass
class Span:
    """A span as it arrived."""

    name: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    resource: dict[str, Any]
    events: dict[str, dict[str, Any]]
    started: int
    is_error: bool


Behaviour = Callable[[list[Span]], Response]


def accept(spans: list[Span]) -> Response:
    return Response()


def reject(spans: list[Span]) -> Response:
    raise Refused(grpc.StatusCode.INVALID_ARGUMENT, 400)


def be_overloaded(spans: list[Span]) -> Response:
    raise Refused(grpc.StatusCode.UNAVAILABLE, 503)


def take_all_but_one(spans: list[Span]) -> Response:
    return Response(partial_success=trace_service_pb2.ExportTracePartialSuccess(rejected_spans=1, error_message="bad"))


def warn(spans: list[Span]) -> Response:
    return Response(partial_success=trace_service_pb2.ExportTracePartialSuccess(error_message="odd, but fine"))


def take(seconds: float) -> Behaviour:
    def slowly(spans: list[Span]) -> Response:
        time.sleep(seconds)
        return Response()

    return slowly


@dataclass
class Receiver:
    """What arrived, and how to behave from now on."""

    #: What OTEL_EXPORTER_OTLP_ENDPOINT takes.
    endpoint: str = ""
    protocol: str = "grpc"
    behaviour: Behaviour = accept
    #: The spans, batch by batch, also those that were refused.
    batches: list[list[Span]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def spans(self) -> list[Span]:
        return [span for batch in self.batches for span in batch]

    def below(self, parent: str) -> list[Span]:
        """The spans somewhere below one, in the order in which they began."""
        known, found = {parent}, []
        for span in sorted(self.spans, key=lambda span: span.started):
            if span.parent in known:
                known.add(span.id)
                found.append(span)
        return found

    def wait_for(self, name: str, seconds: float = 10) -> Span:
        """The first span with this name, which may still be on its way."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := [span for span in self.spans if span.name == name]:
                return found[0]
            time.sleep(0.02)
        raise AssertionError(f"no {name} among {[span.name for span in self.spans]}")

    def take(self, request: Request) -> Response:
        spans = [_span(each, scoped.resource) for scoped in request.resource_spans for each in _all(scoped)]
        with self._lock:
            self.batches.append(spans)
        return self.behaviour(spans)


@contextmanager
def grpc_receiver() -> Iterator[Receiver]:
    receiver = Receiver()

    class Service(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request: Request, context: grpc.ServicerContext) -> Response:
            try:
                return receiver.take(request)
            except Refused as refused:
                context.abort(refused.status, "refused")

    server = grpc.server(ThreadPoolExecutor(4), options=[ALONE])
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Service(), server)
    receiver.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield receiver
    finally:
        server.stop(None).wait()


@contextmanager
def http_receiver(content_type: str = "application/x-protobuf") -> Iterator[Receiver]:
    receiver = Receiver(protocol="http/protobuf")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            body = self.rfile.read(int(self.headers["content-length"]))
            try:
                status, answer = 200, receiver.take(Request.FromString(body)).SerializeToString()
            except Refused as refused:
                status, answer = refused.http_status, b""
            self.send_response(status)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.endpoint = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()


def closed_port() -> str:
    """An endpoint where nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}"


def place() -> tuple[str, str, str]:
    """A new place in a trace: its `traceparent`, and in it the ids of trace and span."""
    trace, span = secrets.token_hex(16), secrets.token_hex(8)
    return f"00-{trace}-{span}-01", trace, span


def _all(scoped: Any) -> list[Any]:
    return [span for scope in scoped.scope_spans for span in scope.spans]


def _span(span: Any, resource: Any) -> Span:
    return Span(
        name=span.name,
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        attributes=_values(span.attributes),
        resource=_values(resource.attributes),
        events={event.name: _values(event.attributes) for event in span.events},
        started=span.start_time_unix_nano,
        is_error=span.status.code == span.status.STATUS_CODE_ERROR,
    )


def _values(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind) if kind else None


def json_attribute(span: Span, name: str) -> Any:
    """The value of an attribute that is JSON text."""
    return json.loads(span.attributes[name])
