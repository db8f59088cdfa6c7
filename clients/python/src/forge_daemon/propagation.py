"""Continues the trace of a call: what the agent's code does hangs below the daemon's span.

Needs OpenTelemetry's API, and does nothing where it is missing: the values can be read all the same.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from forge_daemon.proto import values_pb2 as values

try:
    from opentelemetry import context as otel
    from opentelemetry.baggage.propagation import W3CBaggagePropagator
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    # Agents without spans need none of it.
    otel = None  # type: ignore[assignment]

__all__ = ["continued", "trace_context"]

logger = logging.getLogger(__name__)

_PLACE = ("traceparent", "tracestate")
_BAGGAGE = ("baggage",)


def trace_context(call: values.CallContext, metadata: Iterable[tuple[str, str | bytes]] | None) -> dict[str, str]:
    """The W3C values of a call: `traceparent`, `tracestate` and `baggage`, as far as they came.

    Those in the message win over those in the metadata. The first two are one thing, so they come from one place.
    """
    sent: dict[str, str] = {}
    for key, value in metadata or ():
        if isinstance(value, str) and key in (*_PLACE, *_BAGGAGE):
            # Several lines of a header mean the same as one with commas.
            sent[key] = f"{sent[key]},{value}" if key in sent else value
    found: dict[str, str] = {}
    for keys in (_PLACE, _BAGGAGE):
        source: Mapping[str, str] = call.trace_context if call.trace_context.get(keys[0]) else sent
        found |= {key: source[key] for key in keys if key in source}
    return found


@contextmanager
def continued(carrier: Mapping[str, str]) -> Iterator[None]:
    """Makes the trace and its baggage OpenTelemetry's current context. What is malformed is left out."""
    if otel is None:
        yield
        return
    token = otel.attach(_context(carrier))
    try:
        yield
    finally:
        otel.detach(token)


def _context(carrier: Mapping[str, str]) -> Any:
    # W3C's two formats, whatever OTEL_PROPAGATORS says: the protocol has no others.
    context = otel.Context()
    for propagator in (TraceContextTextMapPropagator(), W3CBaggagePropagator()):
        try:
            context = propagator.extract(carrier, context)
        except Exception:
            logger.warning("a malformed trace context is ignored: %r", dict(carrier), exc_info=True)
    return context
