//! Sends spans to a receiver, without ever holding up a run: what does not fit the queue is dropped, and counted.
//!
//! One task makes spans and sends them; what waits are the events that become spans. A receiver that fails is tried
//! again after pauses that grow; meanwhile the queue fills, and hardly any spans are made that nobody takes.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use opentelemetry_otlp::{LogExporter, SpanExporter};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::records::Records;
use super::semconv::Conventions;
use super::spans::{Group, scope};

/// Most spans that wait to be sent.
const WAITING_SPANS: usize = 4_096;
/// Spans for which there has to be room when a case begins, so that there is some when it ends.
pub const AHEAD: usize = 512;
/// Most bytes of what waits, about.
const WAITING_BYTES: usize = 32 << 20;
/// Most bytes of events that wait for each span that they become. Those that take more become spans at once, which
/// take less: an answer may be large, and its span holds little of it.
const SHARE: usize = WAITING_BYTES / WAITING_SPANS;
/// Most groups of spans that wait.
const WAITING: usize = 4_096;
/// Most spans of one export.
const BATCH: usize = 512;
/// Most bytes of one export, about: receivers take 4 MiB.
const BATCH_BYTES: usize = 2 << 20;
/// Most spans of an export to a receiver that failed: each is written anew for every try, may be what it does not
/// take, and it may just be slow.
const PROBE: usize = 32;
/// How long a batch waits for more.
const LINGER: Duration = Duration::from_millis(200);
/// How often spans are tried.
const TRIES: u32 = 4;
/// Pauses after exports that failed grow from the first to the second.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// Time for what waits when a run or the daemon ends.
pub const FLUSH: Duration = Duration::from_secs(5);

/// The way of spans out of the daemon.
#[derive(Debug)]
pub struct Exporter {
    queue: mpsc::Sender<Work>,
    shared: Arc<Shared>,
    /// When the daemon ends: nothing is tried behind that.
    end: watch::Sender<Option<Instant>>,
    task: Mutex<Option<JoinHandle<()>>>,
    /// The way of log records, if they are wanted.
    records: Option<Arc<Records>>,
}

/// What exporting came to so far.
#[derive(Debug, Default)]
struct Shared {
    /// Spans that wait, made or not; and bytes of what is in the queue.
    waiting: AtomicUsize,
    waiting_bytes: AtomicUsize,
    /// Whether it was told that there is no room.
    is_full: AtomicBool,
    exported: AtomicU64,
    dropped: AtomicU64,
    /// Somebody waits for what is in the queue: nothing lingers now.
    wanted: Notify,
}

#[derive(Debug)]
enum Work {
    /// Spans that are to be sent, and the bytes of what waits.
    Send(Waiting, usize),
    /// Everything before it is sent or dropped.
    Flushed(oneshot::Sender<()>),
}

/// Spans, or what becomes some.
#[derive(Debug)]
enum Waiting {
    Group(Group),
    Spans(Vec<SpanData>),
}

impl Exporter {
    /// Starts the task that sends.
    #[must_use]
    pub fn start(
        mut spans: SpanExporter,
        logs: Option<LogExporter>,
        conventions: Conventions,
        resource: &Resource,
        timeout: Duration,
    ) -> Self {
        spans.set_resource(resource);
        let records = logs.map(|logs| Arc::new(Records::start(logs, scope(conventions), resource, timeout)));
        let (queue, work) = mpsc::channel(WAITING);
        let shared = Arc::new(Shared::default());
        let (end, ends) = watch::channel(None);
        let sender = Sender {
            spans,
            records: records.clone(),
            shared: Arc::clone(&shared),
            timeout,
            ends,
            failures: 0,
            most: BATCH,
        };
        let task = Mutex::new(Some(tokio::spawn(sender.run(work))));
        Self { queue, shared, end, task, records }
    }

    /// Takes the spans of a group, if there is room for them.
    pub fn offer(&self, group: Group) {
        let shared = &self.shared;
        match self.queue.try_reserve() {
            Ok(place) if self.has_room(group.count) => {
                shared.waiting.fetch_add(group.count, Ordering::Relaxed);
                let (waiting, bytes) = if group.bytes <= group.count * SHARE {
                    let bytes = group.bytes;
                    (Waiting::Group(group), bytes)
                } else {
                    let spans = shared.make(&group);
                    let bytes = spans.iter().map(size_of).sum();
                    (Waiting::Spans(spans), bytes)
                };
                shared.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
                place.send(Work::Send(waiting, bytes));
            }
            _ => self.lose(group.count),
        }
    }

    /// Whether `count` more spans find room.
    #[must_use]
    pub fn has_room(&self, count: usize) -> bool {
        let waiting = self.shared.waiting.load(Ordering::Relaxed);
        // What is larger than the queue has room in an empty one.
        (waiting == 0 || waiting + count <= WAITING_SPANS)
            && self.shared.waiting_bytes.load(Ordering::Relaxed) < WAITING_BYTES
    }

    /// Counts spans for which there is no room.
    pub fn lose(&self, count: usize) {
        if count == 0 {
            return;
        }
        self.shared.drop_spans(count);
        if !self.shared.is_full.swap(true, Ordering::Relaxed) {
            tracing::warn!("no more spans can wait to be exported; what comes is dropped and counted");
        }
    }

    /// Waits until everything that was taken is sent or dropped, for [`FLUSH`] at most; what is not by then stays
    /// in the queue.
    pub async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        self.shared.wanted.notify_one();
        let flush = async {
            if self.queue.send(Work::Flushed(done)).await.is_ok() {
                let _ = flushed.await;
            }
            if let Some(records) = &self.records {
                records.flush().await;
            }
        };
        let _ = tokio::time::timeout(FLUSH, flush).await;
    }

    /// Sends what waits, for [`FLUSH`] at most, and ends; the rest is lost. A receiver that failed gets one more try.
    pub async fn close(&self) {
        self.end.send_replace(Some(Instant::now() + FLUSH));
        self.flush().await;
        let task = self.task.lock().take();
        if let Some(task) = task {
            task.abort();
            // What it still held is lost, too.
            let _ = task.await;
        }
        self.shared.drop_spans(self.shared.waiting.swap(0, Ordering::Relaxed));
        let lost = self.dropped();
        if lost > 0 {
            tracing::warn!(lost, exported = self.exported(), "spans were lost");
        }
        if let Some(records) = &self.records {
            records.close().await;
        }
    }

    /// The way of log records, if they are wanted.
    #[must_use]
    pub fn records(&self) -> Option<&Arc<Records>> {
        self.records.as_ref()
    }

    /// Spans that were sent and taken.
    #[must_use]
    pub fn exported(&self) -> u64 {
        self.shared.exported.load(Ordering::Relaxed)
    }

    /// Spans that were lost: there was no room for them, or the receiver did not take them.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Spans that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.waiting.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// Makes the spans of a group that waits; they wait on.
    fn make(&self, group: &Group) -> Vec<SpanData> {
        let spans = group.spans();
        // As many as were counted. Should they be fewer, what is added wraps, which takes them away.
        self.waiting.fetch_add(spans.len().wrapping_sub(group.count), Ordering::Relaxed);
        spans
    }

    fn drop_spans(&self, count: usize) {
        self.dropped.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// The task that sends.
struct Sender {
    spans: SpanExporter,
    records: Option<Arc<Records>>,
    shared: Arc<Shared>,
    /// Time for one export.
    timeout: Duration,
    ends: watch::Receiver<Option<Instant>>,
    /// Exports in a row that failed.
    failures: u32,
    /// Most spans of the next export: few behind one that failed, and more again with each that is taken.
    most: usize,
}

impl Sender {
    async fn run(mut self, mut work: mpsc::Receiver<Work>) {
        while let Some(first) = work.recv().await {
            let (mut spans, mut bytes, mut flushed) = (Vec::new(), 0, None);
            let (mut next, until) = (Some(first), Instant::now() + LINGER);
            while let Some(taken) = next {
                match taken {
                    Work::Send(waiting, of_it) => {
                        let made = match waiting {
                            Waiting::Group(group) => self.shared.make(&group),
                            Waiting::Spans(spans) => spans,
                        };
                        self.shared.waiting_bytes.fetch_sub(of_it, Ordering::Relaxed);
                        bytes += made.iter().map(size_of).sum::<usize>();
                        spans.extend(made);
                    }
                    Work::Flushed(done) => flushed = Some(done),
                }
                if flushed.is_some() || spans.len() >= self.most || bytes >= BATCH_BYTES {
                    break;
                }
                next = tokio::select! {
                    biased;
                    more = work.recv() => more,
                    () = self.shared.wanted.notified() => None,
                    () = tokio::time::sleep_until(until) => None,
                };
            }
            self.send(spans).await;
            if let Some(done) = flushed {
                let _ = done.send(());
            }
        }
    }

    /// Sends spans, as many at a time as fit; those that failed [`TRIES`] times are lost. When the daemon ends, a
    /// receiver that fails has had its last try.
    async fn send(&mut self, mut spans: Vec<SpanData>) {
        let mut tries = 0;
        while !spans.is_empty() {
            self.pause().await;
            let is_last = self.ends.borrow().is_some();
            let mut count = fitting(&spans, self.most);
            let is_sent = self.try_to_send(&spans[..count]).await;
            tries += 1;
            if !is_sent && is_last {
                count = spans.len();
            } else if !is_sent && tries < TRIES {
                continue;
            }
            tries = 0;
            self.settle(spans.drain(..count).collect(), is_sent);
        }
    }

    /// Spans wait no more: they were taken, or are lost.
    fn settle(&self, spans: Vec<SpanData>, is_sent: bool) {
        self.shared.waiting.fetch_sub(spans.len(), Ordering::Relaxed);
        if is_sent {
            self.shared.exported.fetch_add(spans.len() as u64, Ordering::Relaxed);
        } else {
            self.shared.drop_spans(spans.len());
        }
        match &self.records {
            Some(records) if is_sent => records.offer(spans, size_of),
            Some(records) => records.lose(&spans),
            None => {}
        }
    }

    /// Leaves a receiver alone that failed, until the daemon ends.
    async fn pause(&mut self) {
        let Some(before) = self.failures.checked_sub(1) else { return };
        let pause = (PAUSE.0 * 2_u32.saturating_pow(before.min(10))).min(PAUSE.1);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = self.ends.wait_for(Option::is_some) => {}
        }
    }

    async fn try_to_send(&mut self, spans: &[SpanData]) -> bool {
        let sent = tokio::select! {
            sent = attempt(self.timeout, self.spans.export(spans.to_vec())) => sent,
            () = ended(&mut self.ends) => Err("no answer before the daemon ended".to_owned()),
        };
        let Err(error) = sent else {
            if self.failures > 0 {
                tracing::info!(dropped = self.shared.dropped.load(Ordering::Relaxed), "spans are exported again");
            }
            self.shared.is_full.store(false, Ordering::Relaxed);
            self.failures = 0;
            self.most = BATCH.min(self.most * 4);
            return true;
        };
        if self.failures == 0 {
            tracing::warn!(%error, "spans cannot be exported; what waits too long is dropped");
        }
        self.failures = self.failures.saturating_add(1);
        self.most = PROBE;
        false
    }
}

/// One export: an error, no answer in time and a panic are the same, an export that failed. What a receiver answers
/// must not end the task that sends: the exporters read it in libraries that take some of it for granted.
pub(super) async fn attempt(timeout: Duration, export: impl Future<Output = OTelSdkResult>) -> Result<(), String> {
    match tokio::time::timeout(timeout, AssertUnwindSafe(export).catch_unwind()).await {
        Ok(Ok(sent)) => sent.map_err(|error| error.to_string()),
        Ok(Err(_)) => Err("the exporter failed at what the receiver answered".to_owned()),
        Err(_) => Err(format!("no answer within {timeout:?}")),
    }
}

/// How many spans at the beginning fit an export of at most `most` spans and [`BATCH_BYTES`]; at least one.
fn fitting(spans: &[SpanData], most: usize) -> usize {
    let mut bytes = 0;
    let fits = spans.iter().take(most).take_while(|span| {
        bytes += size_of(span);
        bytes <= BATCH_BYTES
    });
    fits.count().max(1)
}

/// Bytes of a span, about.
fn size_of(span: &SpanData) -> usize {
    let text = |value: &opentelemetry::Value| match value {
        opentelemetry::Value::String(text) => text.as_str().len(),
        _ => 16,
    };
    let of = |attributes: &[opentelemetry::KeyValue]| -> usize {
        attributes.iter().map(|it| it.key.as_str().len() + text(&it.value)).sum()
    };
    let events: usize = span.events.iter().map(|event| 32 + of(&event.attributes)).sum();
    200 + span.name.len() + of(&span.attributes) + events
}

/// Waits until the daemon ends, and its time for what waits is over.
async fn ended(ends: &mut watch::Receiver<Option<Instant>>) {
    let end = ends.wait_for(Option::is_some).await.ok().and_then(|end| *end);
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        // Nobody is left who could say so.
        None => std::future::pending().await,
    }
}
