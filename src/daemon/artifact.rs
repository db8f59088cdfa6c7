//! `FetchArtifact`: the report of a run that is over, written while its log is read.
//!
//! The log is read once for the outline, of each verdict only what counts there, and then block by block, as the client
//! takes the text: one that does not read costs nothing, and no run is too large.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use opentelemetry_sdk::Resource;
use parking_lot::Mutex;
use tokio_stream::Stream;
use tonic::Status;

use super::outbox::Ticket;
use super::status::{of_store, of_wire};
use crate::event::{Run, RunEvent};
use crate::report::outline::{Outline, Outliner, Step};
use crate::report::{Format, Report, Tracing, Unwritable, Verdict};
use crate::store::{Cursor, Store};
use crate::telemetry::otlp::{self, resource};
use crate::telemetry::spans::Grouper;
use crate::wire::control as pb;
use crate::wire::record::{Kind, Record};
use crate::wire::value::WireError;
use crate::work::in_place;

/// Bytes of the text that a client gets at a time, if there is so much.
const CHUNK: usize = 256 << 10;
/// A client hears at least so often that somebody is there.
const SIGN_OF_LIFE: Duration = Duration::from_secs(2);
/// Bytes of the log that stay at hand, as they are stored: cases end about in the order in which they stand in
/// their files.
const AT_HAND: usize = 2 << 20;

/// The artifact with the traces of a run.
const OTLP: &str = "otlp";

/// Gives reports, a bounded number at the same time.
#[derive(Default)]
pub(super) struct Artifacts {
    /// The outline that was made last: the reports on the suites of a run are fetched one after the other.
    last: Arc<Mutex<Option<Arc<Outline>>>>,
}

/// The text in pieces.
pub(super) type Responses = Pin<Box<dyn Stream<Item = Result<pb::FetchArtifactResponse, Status>> + Send>>;

impl Artifacts {
    /// Looks up the run, and gives the text as it is read.
    pub(super) async fn fetch(
        &self,
        store: &Arc<Store>,
        ticket: Ticket,
        request: pb::FetchArtifactRequest,
        grouper: impl FnOnce(&Run) -> Grouper,
    ) -> Result<Responses, Status> {
        let format = Format::named(&request.format);
        if format.is_none() && request.format != OTLP {
            let names = Format::ALL.map(Format::name).join(", ");
            let problem = format!("{:?} is not known; there are {names}, {OTLP}", request.format);
            return Err(of_wire(&WireError::new("format", problem)));
        }
        let run = store.run(&request.run_id).await.map_err(|error| of_store(&error))?;
        if !run.state.is_final() {
            return Err(Status::failed_precondition(format!(
                "the run is {}; its reports come when it is over",
                run.state.name()
            )));
        }
        let no_suite = || of_wire(&WireError::new("suite", format!("{:?} is no suite of this run", request.suite)));
        let suite = match request.suite.as_str() {
            "" => None,
            path => Some(run.suites.iter().position(|suite| suite.path == path).ok_or_else(no_suite)?),
        };
        ticket.become_report(AT_HAND)?;
        let cursor = Cursor::new(store, &request.run_id, 0).await.map_err(|error| of_store(&error))?;
        let Some(format) = format else {
            let traces = Traces { grouper: grouper(&run), resource: resource(), log: cursor };
            return Ok(respond(Writing::Traces(Box::new(traces))));
        };
        let known = self.last.lock().clone();
        let outlining = match known.filter(|outline| outline.run.run_id == run.run_id) {
            Some(outline) => Outlining::Made(outline),
            None => Outlining::Reading(Box::new(Outliner::new(run)), Box::new(cursor)),
        };
        let log = Log::new(Arc::clone(store), request.run_id.clone());
        let last = Arc::clone(&self.last);
        let attachment = Some(request.attachment.as_str()).filter(|path| !path.is_empty());
        let report = format.report(attachment);
        let writing = Writing::Outline(Box::new(Beginning { outlining, suite, report, log, last }));
        Ok(respond(writing))
    }
}

fn respond(writing: Writing) -> Responses {
    Box::pin(futures_util::stream::try_unfold(writing, |writing| async move {
        let (chunk, writing) = writing.next().await?;
        Ok(writing.map(|writing| (pb::FetchArtifactResponse { chunk }, writing)))
    }))
}

/// A report that is being written.
enum Writing {
    /// The log is read for the first time.
    Outline(Box<Beginning>),
    /// The text is written.
    Text(Box<Text>),
    /// The traces are written.
    Traces(Box<Traces>),
}

/// A report of which nothing is written yet.
struct Beginning {
    outlining: Outlining,
    /// The suite that it is about; `None`: all.
    suite: Option<usize>,
    report: Box<dyn Report>,
    log: Log,
    last: Arc<Mutex<Option<Arc<Outline>>>>,
}

/// How far the outline is.
enum Outlining {
    /// The log is read.
    Reading(Box<Outliner>, Box<Cursor>),
    /// It is there.
    Made(Arc<Outline>),
}

impl Beginning {
    /// Reads on for a while; the text, if the outline is there.
    async fn outline(mut self: Box<Self>) -> Result<Writing, Status> {
        let began = Instant::now();
        while let Outlining::Reading(mut outliner, mut log) = self.outlining {
            let records = log.read().await.map_err(|error| of_store(&error))?;
            self.outlining = if records.is_empty() {
                let outline = Arc::new(outliner.finish());
                *self.last.lock() = Some(Arc::clone(&outline));
                Outlining::Made(outline)
            } else {
                outline(&mut outliner, &records)?;
                Outlining::Reading(outliner, log)
            };
            if began.elapsed() > SIGN_OF_LIFE {
                break;
            }
        }
        let Outlining::Made(whole) = &self.outlining else { return Ok(Writing::Outline(self)) };
        let outline = match self.suite {
            Some(suite) => Arc::new(whole.only(suite)),
            None => Arc::clone(whole),
        };
        let Self { report, log, .. } = *self;
        Ok(Writing::Text(Box::new(Text { outline, report, log, next: Some(Step::Head), written: Unsent::default() })))
    }
}

/// Tells an outline what these events say as far as it counts there.
fn outline(outliner: &mut Outliner, records: &[Record]) -> Result<(), Status> {
    let wanted = records.iter().filter(|record| matches!(record.kind, Kind::CasePlanned | Kind::CaseFinished));
    let bytes = wanted.clone().map(|record| record.body().len()).sum();
    in_place(bytes, || {
        for record in wanted {
            outliner.take(&record.counted().map_err(|error| unreadable(&error))?);
        }
        Ok(())
    })
}

fn unreadable(error: &WireError) -> Status {
    Status::data_loss(format!("the log of the run cannot be read: {error}"))
}

impl Writing {
    /// The next part of the text; `None` behind the last one. Parts may be empty: they tell the client that waits that
    /// the daemon is there.
    async fn next(self) -> Result<(Vec<u8>, Option<Self>), Status> {
        match self {
            Self::Outline(beginning) => Ok((Vec::new(), Some(beginning.outline().await?))),
            Self::Text(mut text) => {
                let chunk = text.chunk().await?;
                let is_over = chunk.is_empty() && text.next.is_none();
                Ok((chunk, (!is_over).then_some(Self::Text(text))))
            }
            Self::Traces(mut traces) => {
                let chunk = traces.chunk().await?;
                let is_over = chunk.is_none();
                Ok((chunk.unwrap_or_default(), (!is_over).then_some(Self::Traces(traces))))
            }
        }
    }
}

/// The traces of a run: told in the order of its log, in which all events of a case stand together closely enough.
struct Traces {
    grouper: Grouper,
    resource: Resource,
    log: Cursor,
}

impl Traces {
    /// The next lines; `None` behind the last ones.
    async fn chunk(&mut self) -> Result<Option<Vec<u8>>, Status> {
        let events = self.log.events(|_| true).await.map_err(|error| of_store(&error))?;
        let Some(events) = events else { return Ok(None) };
        let bytes = events.iter().map(|stored| stored.bytes).sum();
        let lines = in_place(bytes, || {
            let mut lines = String::new();
            for stored in &events {
                // Each group is a line of its own, because programs that read lines limit their length.
                for group in self.grouper.take(stored) {
                    lines += &otlp::line(group.spans(), &self.resource)?;
                }
            }
            Ok(lines.into_bytes())
        });
        lines.map(Some).map_err(|error: serde_json::Error| Status::internal(error.to_string()))
    }
}

/// The text of a report, as far as it is written.
struct Text {
    outline: Arc<Outline>,
    report: Box<dyn Report>,
    log: Log,
    next: Option<Step>,
    written: Unsent,
}

impl Text {
    async fn chunk(&mut self) -> Result<Vec<u8>, Status> {
        let began = Instant::now();
        while self.written.len() < CHUNK
            && began.elapsed() < SIGN_OF_LIFE
            && let Some(step) = self.next
        {
            let piece = self.piece(step).await?;
            self.written.add(piece.as_bytes());
            self.next = step.next(&self.outline);
        }
        Ok(self.written.take())
    }

    async fn piece(&mut self, step: Step) -> Result<String, Status> {
        let Self { outline, report, log, .. } = self;
        let unwritable = |error: Unwritable| Status::internal(error.to_string());
        let piece = match step {
            Step::Head => report.head(outline),
            Step::Part(part) => report.part(outline, part),
            Step::Case(place) => {
                let entry = outline.entry(place);
                let planned = log.event(entry.planned).await?;
                let finished = log.event(entry.finished).await?;
                let verdict = Verdict::of(&planned, &finished);
                let verdict = verdict.ok_or_else(|| Status::data_loss("the log of the run is not what it was"))?;
                let tracing = Tracing::of(&outline.run);
                let bytes = finished.payload.weight();
                in_place(bytes, || report.case(outline, place, Verdict { tracing: Some(&tracing), ..verdict }))
            }
            Step::PartEnd(part) => report.part_end(outline, part),
            Step::End => report.end(outline),
        };
        piece.map_err(unwritable)
    }
}

/// What is written of a report and not sent yet: less than a message, and one piece.
#[derive(Debug, Default)]
struct Unsent {
    bytes: Vec<u8>,
    /// How much of `bytes` is sent already.
    sent: usize,
}

impl Unsent {
    fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    fn add(&mut self, piece: &[u8]) {
        if self.sent > 0 {
            // What is sent is not held: a report is as long as its run. Nothing large is moved, as more is written
            // only when less than a message is left.
            self.bytes = self.bytes.split_off(self.sent);
            self.sent = 0;
        }
        self.bytes.extend_from_slice(piece);
    }

    /// The next message; one case may be more than it holds.
    fn take(&mut self) -> Vec<u8> {
        let end = self.bytes.len().min(self.sent + CHUNK);
        let chunk = self.bytes[self.sent..end].to_vec();
        self.sent = end;
        chunk
    }
}

/// The log of a run, read in any order.
struct Log {
    store: Arc<Store>,
    run_id: String,
    /// The blocks that were read last, by the number of their first event.
    blocks: BTreeMap<u64, Vec<Record>>,
    /// In which order they were read.
    order: VecDeque<u64>,
    /// Bytes of all of them.
    bytes: usize,
}

impl Log {
    fn new(store: Arc<Store>, run_id: String) -> Self {
        Self { store, run_id, blocks: BTreeMap::new(), order: VecDeque::new(), bytes: 0 }
    }

    /// The event of that number.
    async fn event(&mut self, sequence: u64) -> Result<RunEvent, Status> {
        if self.record(sequence).is_none() {
            let block = self.store.block(&self.run_id, sequence).await.map_err(|error| of_store(&error))?;
            self.keep(block);
        }
        let record = self.record(sequence);
        let record = record.ok_or_else(|| Status::not_found("the run was removed while its report was read"))?;
        in_place(record.body().len(), || record.event()).map_err(|error| unreadable(&error))
    }

    /// The event, if it is at hand.
    fn record(&self, sequence: u64) -> Option<&Record> {
        let (_, block) = self.blocks.range(..=sequence).next_back()?;
        let at = block.binary_search_by_key(&sequence, |record| record.sequence).ok()?;
        block.get(at)
    }

    fn keep(&mut self, block: Vec<Record>) {
        let Some(first) = block.first().map(|record| record.sequence) else { return };
        self.bytes += held(&block);
        self.blocks.insert(first, block);
        self.order.push_back(first);
        while self.bytes > AT_HAND && self.order.len() > 2 {
            let oldest = self.order.pop_front().and_then(|oldest| self.blocks.remove(&oldest));
            self.bytes -= oldest.map_or(0, |block| held(&block));
        }
    }
}

fn held(block: &[Record]) -> usize {
    block.iter().map(Record::held).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_of_a_report_is_not_held() {
        let mut written = Unsent::default();
        let (mut sent, mut all) = (Vec::new(), Vec::new());
        for number in 0..100_u8 {
            // Never what a message holds, so that there is always something left.
            let piece = vec![number; if number == 50 { 5 * CHUNK + 7 } else { CHUNK / 3 + 1 }];
            all.extend_from_slice(&piece);
            written.add(&piece);
            while written.len() >= CHUNK {
                sent.extend(written.take());
            }
            assert!(written.bytes.len() <= 6 * CHUNK + 7, "after {number}: {} bytes are held", written.bytes.len());
        }
        assert!(written.bytes.len() < 2 * CHUNK, "{} bytes are held", written.bytes.len());
        sent.extend(written.take());
        assert!(written.take().is_empty() && sent == all);
    }
}
