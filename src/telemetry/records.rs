//! Events of spans as log records, which is what the conventions want them to be: evaluations, and content in
//! structure.
//!
//! They follow the spans that a receiver took, on a way of their own: a receiver of logs that is slow or down holds
//! up no span. What has no room is dropped, and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use opentelemetry::logs::{AnyValue, LogRecord as _, Logger as _, LoggerProvider as _, Severity};
use opentelemetry::trace::SpanContext;
use opentelemetry::{InstrumentationScope, Key, KeyValue, Value};
use opentelemetry_otlp::LogExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::{LogBatch, LogExporter as _, SdkLogRecord, SdkLogger, SdkLoggerProvider};
use opentelemetry_sdk::trace::SpanData;
use parking_lot::Mutex;
use serde_json::Value as Json;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::export::attempt;
use super::semconv as name;

/// Batches of spans that wait to become records, and their bytes, about.
const WAITING: usize = 256;
const WAITING_BYTES: usize = 16 << 20;
/// Most records of one export, and most bytes of them, about: receivers take 4 MiB.
const EXPORT: usize = 1_000;
const EXPORT_BYTES: usize = 1 << 20;
/// How long records are gathered for exports that are not full.
const GATHERING: Duration = Duration::from_millis(200);
/// How deep content is told as values, and most values of an attribute; what goes beyond is told as text. Receivers
/// read 100 messages inside of each other, and an object is three.
const MAX_DEPTH: usize = 20;
const MAX_VALUES: usize = 4_096;

/// The way of log records out of the daemon.
#[derive(Debug)]
pub struct Records {
    queue: mpsc::Sender<Batch>,
    shared: Arc<Shared>,
    /// How many batches are sent or dropped, of those that were taken.
    done: watch::Receiver<u64>,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Batches that were taken.
    taken: AtomicU64,
    waiting: AtomicUsize,
    waiting_bytes: AtomicUsize,
    exported: AtomicU64,
    dropped: AtomicU64,
}

/// Spans with records in them.
#[derive(Debug)]
struct Batch {
    spans: Vec<SpanData>,
    bytes: usize,
}

impl Records {
    /// Starts the task that sends.
    pub(super) fn start(
        mut exporter: LogExporter,
        scope: InstrumentationScope,
        resource: &Resource,
        timeout: Duration,
    ) -> Self {
        exporter.set_resource(resource);
        let provider = SdkLoggerProvider::builder().build();
        let logger = provider.logger_with_scope(scope.clone());
        let shared = Arc::new(Shared::default());
        let (queue, work) = mpsc::channel(WAITING);
        let (told, done) = watch::channel(0);
        let sender = Sender { exporter, scope, logger, _provider: provider, shared: Arc::clone(&shared), timeout };
        let task = Mutex::new(Some(tokio::spawn(sender.run(work, told))));
        Self { queue, shared, done, task }
    }

    /// Takes spans for the records in them; `size_of` says how large one is, about.
    pub(super) fn offer(&self, mut spans: Vec<SpanData>, size_of: impl Fn(&SpanData) -> usize) {
        spans.retain(|span| records_in(span) > 0);
        if spans.is_empty() {
            return;
        }
        let bytes: usize = spans.iter().map(size_of).sum();
        let records: usize = spans.iter().map(records_in).sum();
        let shared = &self.shared;
        // One that is larger than all the room has room when nothing waits.
        let waiting = shared.waiting_bytes.load(Ordering::Relaxed);
        let has_room = waiting == 0 || waiting + bytes <= WAITING_BYTES;
        let Some(place) = self.queue.try_reserve().ok().filter(|_| has_room) else {
            return shared.lose(records);
        };
        shared.waiting.fetch_add(records, Ordering::Relaxed);
        shared.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        shared.taken.fetch_add(1, Ordering::Relaxed);
        place.send(Batch { spans, bytes });
    }

    /// Counts the records of spans that nobody took.
    pub(super) fn lose(&self, spans: &[SpanData]) {
        self.shared.lose(spans.iter().map(records_in).sum());
    }

    /// Waits until everything that was taken is sent or dropped. The caller sets the deadline.
    pub(super) async fn flush(&self) {
        let taken = self.shared.taken.load(Ordering::Relaxed);
        let _ = self.done.clone().wait_for(|done| *done >= taken).await;
    }

    /// Ends; what still waits is lost.
    pub(super) async fn close(&self) {
        let task = self.task.lock().take();
        if let Some(task) = task {
            task.abort();
            let _ = task.await;
        }
        self.shared.lose(self.shared.waiting.swap(0, Ordering::Relaxed));
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

    /// Log records that were lost: there was no room for them, or a receiver did not take them or their spans.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn lose(&self, records: usize) {
        self.dropped.fetch_add(records as u64, Ordering::Relaxed);
    }
}

/// How many records are in a span.
fn records_in(span: &SpanData) -> usize {
    let evaluations = span.events.events.iter().filter(|event| event.name == name::EVENT_EVALUATION);
    evaluations.count() + usize::from(span.attributes.iter().any(is_content))
}

fn is_content(attribute: &KeyValue) -> bool {
    name::CONTENT.contains(&attribute.key.as_str())
}

/// The task that sends.
struct Sender {
    exporter: LogExporter,
    scope: InstrumentationScope,
    logger: SdkLogger,
    /// Nothing is exported by it, but it has to be there.
    _provider: SdkLoggerProvider,
    shared: Arc<Shared>,
    timeout: Duration,
}

/// Records that are sent together.
#[derive(Default)]
struct Export {
    records: Vec<SdkLogRecord>,
    bytes: usize,
}

impl Sender {
    async fn run(self, mut work: mpsc::Receiver<Batch>, told: watch::Sender<u64>) {
        let mut done = 0;
        while let Some(first) = work.recv().await {
            // Apart: what a receiver does not like in the content of one case takes no evaluation with it.
            let (mut evaluations, mut details) = (Export::default(), Export::default());
            let (mut next, until) = (Some(first), Instant::now() + GATHERING);
            while let Some(batch) = next {
                for span in &batch.spans {
                    for event in span.events.events.iter().filter(|event| event.name == name::EVENT_EVALUATION) {
                        self.evaluation(&span.span_context, event.timestamp, &event.attributes, &mut evaluations);
                        self.send_if(evaluations.is_full(), &mut evaluations).await;
                    }
                    if span.attributes.iter().any(is_content) {
                        self.details(span, &mut details);
                        self.send_if(details.is_full(), &mut details).await;
                        tokio::task::consume_budget().await;
                    }
                }
                self.shared.waiting_bytes.fetch_sub(batch.bytes, Ordering::Relaxed);
                done += 1;
                // A `flush` waits for what was taken before it, and for no more than that.
                next = if Instant::now() < until { work.try_recv().ok() } else { None };
            }
            self.send_if(true, &mut evaluations).await;
            self.send_if(true, &mut details).await;
            told.send_replace(done);
        }
    }

    fn evaluation(&self, context: &SpanContext, at: SystemTime, attributes: &[KeyValue], export: &mut Export) {
        let mut bytes = 0;
        let values = attributes.iter().map(|it| (it.key.clone(), plain(&it.value, &mut bytes)));
        let record = self.record(name::EVENT_EVALUATION, context, at, Severity::Info, values);
        export.add(record, bytes);
    }

    fn details(&self, span: &SpanData, export: &mut Export) {
        let mut bytes = 0;
        let values = span.attributes.iter().map(|it| {
            let value = if is_content(it) {
                structured(it.value.as_str().as_ref(), &mut bytes)
            } else {
                plain(&it.value, &mut bytes)
            };
            (it.key.clone(), value)
        });
        let record = self.record(name::EVENT_DETAILS, &span.span_context, span.end_time, Severity::Debug, values);
        export.add(record, bytes);
    }

    fn record(
        &self,
        event: &'static str,
        context: &SpanContext,
        at: SystemTime,
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

    /// Sends records, if it is time. Nothing is tried again: the spans hold it, too.
    async fn send_if(&self, is_time: bool, export: &mut Export) {
        if !is_time || export.records.is_empty() {
            return;
        }
        let Export { records, .. } = std::mem::take(export);
        let batch: Vec<_> = records.iter().map(|record| (record, &self.scope)).collect();
        let sent = attempt(self.timeout, self.exporter.export(LogBatch::new(&batch))).await;
        self.shared.waiting.fetch_sub(records.len(), Ordering::Relaxed);
        match sent {
            Ok(()) => {
                self.shared.exported.fetch_add(records.len() as u64, Ordering::Relaxed);
            }
            Err(error) => {
                tracing::debug!(%error, "log records cannot be exported; the spans hold what they say");
                self.shared.lose(records.len());
            }
        }
    }
}

impl Export {
    fn add(&mut self, record: SdkLogRecord, bytes: usize) {
        self.records.push(record);
        self.bytes += 100 + bytes;
    }

    fn is_full(&self) -> bool {
        self.records.len() >= EXPORT || self.bytes >= EXPORT_BYTES
    }
}

fn plain(value: &Value, bytes: &mut usize) -> AnyValue {
    *bytes += 40;
    match value {
        Value::Bool(value) => AnyValue::Boolean(*value),
        Value::I64(value) => AnyValue::Int(*value),
        Value::F64(value) => AnyValue::Double(*value),
        Value::Array(opentelemetry::Array::String(texts)) => {
            *bytes += texts.iter().map(|text| 4 + text.as_str().len()).sum::<usize>();
            AnyValue::ListAny(Box::new(texts.iter().map(|text| AnyValue::String(text.clone())).collect()))
        }
        other => text(other.as_str().into_owned(), bytes),
    }
}

fn text(text: String, bytes: &mut usize) -> AnyValue {
    *bytes += 8 + text.len();
    AnyValue::String(text.into())
}

/// Content as a value; what is no JSON, or too much of it, is a text.
fn structured(content: &str, bytes: &mut usize) -> AnyValue {
    let (mut left, before) = (MAX_VALUES, *bytes);
    let value = serde_json::from_str(content).ok().and_then(|json| any(json, MAX_DEPTH, &mut left, bytes));
    value.unwrap_or_else(|| {
        *bytes = before;
        text(content.to_owned(), bytes)
    })
}

/// `None`: it is too deep, or too much.
fn any(json: Json, depth: usize, left: &mut usize, bytes: &mut usize) -> Option<AnyValue> {
    *left = left.checked_sub(1)?;
    let below = depth.checked_sub(1);
    *bytes += 12;
    Some(match json {
        // There is no other word for it.
        Json::Null => AnyValue::String("null".into()),
        Json::Bool(value) => AnyValue::Boolean(value),
        Json::Number(number) => match number.as_i64() {
            Some(number) => AnyValue::Int(number),
            // What is too large for an integer is not for a double either.
            None if number.is_u64() => AnyValue::String(number.to_string().into()),
            None => AnyValue::Double(number.as_f64()?),
        },
        Json::String(value) => text(value, bytes),
        Json::Array(values) => {
            let below = below?;
            let values = values.into_iter().map(|value| any(value, below, left, bytes));
            AnyValue::ListAny(Box::new(values.collect::<Option<_>>()?))
        }
        Json::Object(members) => {
            let below = below?;
            let members = members.into_iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| {
                *bytes += 4 + key.len();
                Some((Key::from(key), any(value, below, left, bytes)?))
            });
            AnyValue::Map(Box::new(members.collect::<Option<_>>()?))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is content becomes a value that says the same, and is sent in about as many bytes as were counted.
    #[test]
    fn content_keeps_its_structure() {
        let written = |text: &str| format!("{:?}", structured(text, &mut 0));
        let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        let cases = [
            (r#"[{"role":"user","n":9007199254740993}]"#.to_owned(), "ListAny([Map("),
            ("18446744073709551615".to_owned(), "String(Owned(\"18446744073709551615\"))"),
            ("1.5".to_owned(), "Double(1.5)"),
            ("100.0".to_owned(), "Double(100.0)"),
            ("2e3".to_owned(), "Double(2000.0)"),
            ("-3".to_owned(), "Int(-3)"),
            ("[1,null]".to_owned(), "ListAny([Int(1), String(Static(\"null\"))])"),
            ("{\"half".to_owned(), "String(Owned(\"{\\\"half\"))"),
            (deep(MAX_DEPTH), "ListAny([ListAny("),
            (deep(MAX_DEPTH + 1), "String(Owned(\"[[["),
            (format!("[{}1]", "1,".repeat(MAX_VALUES - 2)), "ListAny([Int(1)"),
            (format!("[{}1]", "1,".repeat(MAX_VALUES)), "String(Owned(\"[1,1"),
        ];
        for (text, wanted) in &cases {
            assert!(written(text).starts_with(wanted), "{text}: {}", written(text));
        }
        assert!(written(&cases[0].0).contains("Int(9007199254740993)"));
        assert!(!written(r#"{"key": null}"#).contains("key"), "a member without a value is none");
        let mut bytes = 0;
        structured(&cases[11].0, &mut bytes);
        assert_eq!(bytes, 8 + cases[11].0.len(), "what is told as text counts as text");
    }
}
