//! Telemetry: what the log of a run says, as spans of OpenTelemetry, and what the daemon does, as metrics.
//!
//! A consumer of the log like a report. Nothing here ever holds up a run.

pub mod connect;
pub mod export;
pub mod metrics;
pub mod otlp;
pub mod receive;
pub mod records;
pub mod semconv;
pub mod spans;
