//! Events of spans as log records, which is what the conventions want them to be: evaluations, and content in structure.
//!
//! They follow the spans that they belong to, on a way of their own: a receiver of logs that is slow or down holds up no span. What has
//! no room is dropped, and counted.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry::logs::{AnyValue, LogRecord as _, Logger as _, LoggerProvider as _, Severity};
use opentelemetry::trace::SpanContext;
use opentelemetry::{InstrumentationScope, Key, KeyValue, Value};
use opentelemetry_otlp::LogExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::{LogBatch, LogExporter as _, SdkLogRecord, SdkLogger, SdkLoggerProvider};
use opentelemetry_sdk::trace::SpanData;
use serde_json::Value as Json;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::semconv as name;

/// Batches that wait, each of one export of spans.
const WAITING: usize = 16;

/// The way of log records out of the daemon.
#[derive(Debug)]
pub struct Records {
    queue: mpsc::Sender<Work>,
    logger: SdkLogger,
    /// Nothing is exported by it, but it has to be there.
    _provider: SdkLoggerProvider,
    shared: Arc<Shared>,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: AtomicUsize,
    exported: AtomicU64,
    dropped: AtomicU64,
}

#[derive(Debug)]
enum Work {
    Send(Vec<SdkLogRecord>),
    /// Everything before it is sent or dropped.
    Flushed(oneshot::Sender<()>),
}

impl Records {
    /// Starts the task that sends.
    pub(super) fn start(mut exporter: LogExporter, resource: &Resource, timeout: Duration) -> Self {
        exporter.set_resource(resource);
        let scope = InstrumentationScope::builder(name::SCOPE)
            .with_version(env!("CARGO_PKG_VERSION"))
            .with_schema_url(name::SCHEMA_URL)
            .build();
        let provider = SdkLoggerProvider::builder().build();
        let logger = provider.logger_with_scope(scope.clone());
        let shared = Arc::new(Shared::default());
        let (queue, work) = mpsc::channel(WAITING);
        let sending = send(exporter, scope, Arc::clone(&shared), timeout, work);
        let task = Mutex::new(Some(tokio::spawn(sending)));
        Self { queue, logger, _provider: provider, shared, task }
    }

    /// Takes what spans hold that is a log record, too.
    pub(super) fn offer(&self, spans: &[SpanData]) {
        let records: Vec<SdkLogRecord> = spans.iter().flat_map(|span| self.of(span)).collect();
        if records.is_empty() {
            return;
        }
        let count = records.len();
        self.shared.waiting.fetch_add(count, Ordering::Relaxed);
        if self.queue.try_send(Work::Send(records)).is_err() {
            self.shared.drop_records(count);
        }
    }

    /// Waits until everything that was taken is sent or dropped. Whoever calls keeps the time.
    pub(super) async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        if self.queue.send(Work::Flushed(done)).await.is_ok() {
            let _ = flushed.await;
        }
    }

    /// Ends; what still waits is lost.
    pub(super) async fn close(&self) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task.abort();
            let _ = task.await;
        }
        self.shared.drop_records(self.shared.waiting.load(Ordering::Relaxed));
        let lost = self.dropped();
        if lost > 0 {
            tracing::warn!(lost, exported = self.exported(), "log records were lost; the spans hold what they say");
        }
    }

    /// Log records that were sent and taken.
    #[must_use]
    pub fn exported(&self) -> u64 {
        self.shared.exported.load(Ordering::Relaxed)
    }

    /// Log records that were lost: there was no room for them, or the receiver did not take them.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    fn of(&self, span: &SpanData) -> impl Iterator<Item = SdkLogRecord> {
        let evaluations = span.events.events.iter().filter(|event| event.name == name::EVENT_EVALUATION);
        let evaluations = evaluations.map(|event| {
            let attributes = event.attributes.iter().map(|it| (it.key.clone(), plain(&it.value)));
            self.record(name::EVENT_EVALUATION, &span.span_context, event.timestamp, Severity::Info, attributes)
        });
        let has_content = span.attributes.iter().any(is_content);
        let details = has_content.then(|| {
            let attributes = span.attributes.iter().map(|it| {
                (it.key.clone(), if is_content(it) { structured(it.value.as_str().as_ref()) } else { plain(&it.value) })
            });
            self.record(name::EVENT_DETAILS, &span.span_context, span.end_time, Severity::Debug, attributes)
        });
        evaluations.chain(details)
    }

    fn record(
        &self,
        event: &'static str,
        context: &SpanContext,
        at: std::time::SystemTime,
        severity: Severity,
        attributes: impl Iterator<Item = (Key, AnyValue)>,
    ) -> SdkLogRecord {
        let mut record = self.logger.create_log_record();
        record.set_event_name(event);
        record.set_timestamp(at);
        record.set_observed_timestamp(at);
        record.set_severity_number(severity);
        record.set_trace_context(context.trace_id(), context.span_id(), Some(context.trace_flags()));
        record.add_attributes(attributes);
        record
    }
}

impl Shared {
    fn drop_records(&self, count: usize) {
        self.waiting.fetch_sub(count, Ordering::Relaxed);
        self.dropped.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// Sends what is taken. Nothing is tried again: the spans hold it, too.
async fn send(
    exporter: LogExporter,
    scope: InstrumentationScope,
    shared: Arc<Shared>,
    timeout: Duration,
    mut work: mpsc::Receiver<Work>,
) {
    while let Some(work) = work.recv().await {
        let records = match work {
            Work::Send(records) => records,
            Work::Flushed(done) => {
                let _ = done.send(());
                continue;
            }
        };
        let batch: Vec<_> = records.iter().map(|record| (record, &scope)).collect();
        let sent = match tokio::time::timeout(timeout, exporter.export(LogBatch::new(&batch))).await {
            Ok(sent) => sent.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {timeout:?}")),
        };
        match sent {
            Ok(()) => {
                shared.waiting.fetch_sub(records.len(), Ordering::Relaxed);
                shared.exported.fetch_add(records.len() as u64, Ordering::Relaxed);
            }
            Err(error) => {
                tracing::debug!(%error, "log records cannot be exported; the spans hold what they say");
                shared.drop_records(records.len());
            }
        }
    }
}

fn is_content(attribute: &KeyValue) -> bool {
    name::CONTENT.contains(&attribute.key.as_str())
}

fn plain(value: &Value) -> AnyValue {
    match value {
        Value::Bool(value) => AnyValue::Boolean(*value),
        Value::I64(value) => AnyValue::Int(*value),
        Value::F64(value) => AnyValue::Double(*value),
        Value::Array(opentelemetry::Array::String(texts)) => {
            AnyValue::ListAny(Box::new(texts.iter().map(|text| AnyValue::String(text.clone())).collect()))
        }
        other => AnyValue::String(other.as_str().into_owned().into()),
    }
}

/// Content as a value; what is no JSON is a text.
fn structured(text: &str) -> AnyValue {
    serde_json::from_str(text).map_or_else(|_| AnyValue::String(text.to_owned().into()), any)
}

fn any(json: Json) -> AnyValue {
    match json {
        // There is no other word for it.
        Json::Null => AnyValue::String("null".into()),
        Json::Bool(value) => AnyValue::Boolean(value),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => AnyValue::Int(number),
            (None, Some(number)) if number.fract() != 0.0 => AnyValue::Double(number),
            // What is too large for an integer is not for a double either.
            _ => AnyValue::String(number.to_string().into()),
        },
        Json::String(text) => AnyValue::String(text.into()),
        Json::Array(values) => AnyValue::ListAny(Box::new(values.into_iter().map(any).collect())),
        Json::Object(members) => {
            let members = members.into_iter().filter(|(_, value)| !value.is_null());
            AnyValue::Map(Box::new(members.map(|(key, value)| (Key::from(key), any(value))).collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is content becomes a value that says the same.
    #[test]
    fn content_keeps_its_structure() {
        let written = |text: &str| format!("{:?}", structured(text));
        let cases = [
            (r#"[{"role":"user","n":9007199254740993}]"#, "ListAny([Map("),
            ("18446744073709551615", "String(Owned(\"18446744073709551615\"))"),
            ("1.5", "Double(1.5)"),
            ("-3", "Int(-3)"),
            ("{\"half", "String(Owned(\"{\\\"half\"))"),
        ];
        for (text, wanted) in cases {
            assert!(written(text).starts_with(wanted), "{text}: {}", written(text));
        }
        assert!(written(cases[0].0).contains("Int(9007199254740993)"));
        assert!(!written(r#"{"key": null}"#).contains("key"), "a member without a value is none");
    }
}
