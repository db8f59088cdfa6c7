//! The trace that a run joins: that of the CI job that started it.

use crate::cli::note;
use crate::trace::{TraceHeaders, TraceParent};

/// The place in a trace that `TRACEPARENT`, `TRACESTATE` and `BAGGAGE` name, as CI systems set them. What cannot be
/// read is nobody's reason not to run, and is told.
pub(super) fn from_environment(quiet: bool) -> Option<TraceParent> {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let headers = TraceHeaders {
        traceparent: variable("TRACEPARENT"),
        tracestate: variable("TRACESTATE"),
        baggage: variable("BAGGAGE"),
    };
    if headers.traceparent.is_empty() {
        return None;
    }
    let read = TraceParent::read(&headers);
    if let (Err(why), false) = (&read, quiet) {
        note(&format!("⚠ TRACEPARENT is ignored: {why}"));
    }
    read.ok()
}
