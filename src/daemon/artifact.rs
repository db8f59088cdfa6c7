//! `FetchArtifact`: the report of a run that is over, written while its log is read.
//!
//! The log is read once for the outline and then block by block, as the client takes the text: one that does not read costs
//! nothing, and no run is too large.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_stream::Stream;
use tonic::Status;

use super::status::{of_store, of_wire};
use crate::event::RunEvent;
use crate::report::outline::{Outline, Outliner, Step};
use crate::report::{Format, Report, Unwritable, Verdict};
use crate::store::{LogBlock, Store};
use crate::wire::control as pb;
use crate::wire::value::WireError;

/// Events that are read at a time for the outline.
const BATCH: usize = 1_000;
/// Bytes of the text that a client gets at a time, if there is so much.
const CHUNK: usize = 256 << 10;
/// A client hears at least so often that somebody is there.
const SIGN_OF_LIFE: Duration = Duration::from_secs(2);
/// Bytes of the log that stay at hand, as they are stored: cases end about in the order in which they stand in their files.
const AT_HAND: usize = 8 << 20;

/// The text in pieces.
pub(super) type Responses = Pin<Box<dyn Stream<Item = Result<pb::FetchArtifactResponse, Status>> + Send>>;

/// Looks up the run, makes the outline, and gives the text as it is read.
pub(super) async fn artifact(store: &Arc<Store>, request: pb::FetchArtifactRequest) -> Result<Responses, Status> {
    let format = Format::named(&request.format).ok_or_else(|| {
        let names = Format::ALL.map(Format::name).join(", ");
        of_wire(&WireError::new("format", format!("{:?} is not known; there are {names}", request.format)))
    })?;
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
    let log = Box::new(Log::new(Arc::clone(store), request.run_id));
    let outliner = Box::new(Outliner::new(run, suite));
    let writing = Writing::Outline { outliner, after: 0, report: format.report(), log };
    Ok(Box::pin(futures_util::stream::try_unfold(writing, |writing| async move {
        let (chunk, writing) = writing.next().await?;
        Ok(writing.map(|writing| (pb::FetchArtifactResponse { chunk }, writing)))
    })))
}

/// A report that is being written.
enum Writing {
    /// The log is read for the first time.
    Outline { outliner: Box<Outliner>, after: u64, report: Box<dyn Report>, log: Box<Log> },
    /// The text is written.
    Text(Box<Text>),
}

impl Writing {
    /// The next part of the text; `None` behind the last one. Parts may be empty: whoever waits learns that somebody is there.
    async fn next(self) -> Result<(Vec<u8>, Option<Self>), Status> {
        match self {
            Self::Outline { mut outliner, mut after, report, log } => {
                let began = Instant::now();
                while began.elapsed() < SIGN_OF_LIFE {
                    let events = log.store.read(&log.run_id, after, BATCH).await.map_err(|error| of_store(&error))?;
                    let Some(last) = events.last() else {
                        let (outline, next) = (outliner.finish(), Some(Step::Head));
                        let text = Text { outline, report, log: *log, next, written: Vec::new(), sent: 0 };
                        return Ok((Vec::new(), Some(Self::Text(Box::new(text)))));
                    };
                    after = last.sequence;
                    for event in &events {
                        outliner.take(event);
                    }
                }
                Ok((Vec::new(), Some(Self::Outline { outliner, after, report, log })))
            }
            Self::Text(mut text) => {
                let chunk = text.chunk().await?;
                let is_over = chunk.is_empty() && text.next.is_none();
                Ok((chunk, (!is_over).then_some(Self::Text(text))))
            }
        }
    }
}

/// The text of a report, as far as it is written.
struct Text {
    outline: Outline,
    report: Box<dyn Report>,
    log: Log,
    next: Option<Step>,
    /// What was written last.
    written: Vec<u8>,
    /// How much of that is sent.
    sent: usize,
}

impl Text {
    async fn chunk(&mut self) -> Result<Vec<u8>, Status> {
        let began = Instant::now();
        while self.written.len() - self.sent < CHUNK
            && began.elapsed() < SIGN_OF_LIFE
            && let Some(step) = self.next
        {
            if self.sent == self.written.len() {
                (self.written, self.sent) = (Vec::new(), 0);
            }
            let piece = self.piece(step).await?;
            self.written.extend(piece.into_bytes());
            self.next = step.next(&self.outline);
        }
        // One case may be more than a message holds.
        let end = self.written.len().min(self.sent + CHUNK);
        let chunk = self.written[self.sent..end].to_vec();
        self.sent = end;
        Ok(chunk)
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
                report.case(outline, place, verdict)
            }
            Step::PartEnd(part) => report.part_end(outline, part),
            Step::End => report.end(outline),
        };
        piece.map_err(unwritable)
    }
}

/// The log of a run, read in any order.
struct Log {
    store: Arc<Store>,
    run_id: String,
    /// The blocks that were read last, by the number of their first event.
    blocks: BTreeMap<u64, LogBlock>,
    /// In which order they were read.
    order: VecDeque<u64>,
    /// Bytes of all of them, as they are stored.
    bytes: usize,
}

impl Log {
    fn new(store: Arc<Store>, run_id: String) -> Self {
        Self { store, run_id, blocks: BTreeMap::new(), order: VecDeque::new(), bytes: 0 }
    }

    async fn event(&mut self, sequence: u64) -> Result<Arc<RunEvent>, Status> {
        let at_hand = self.blocks.range(..=sequence).next_back().and_then(|(_, block)| block.event(sequence));
        if let Some(event) = at_hand {
            return Ok(event);
        }
        let block = self.store.block(&self.run_id, sequence).await.map_err(|error| of_store(&error))?;
        let gone = || Status::not_found("the run was removed while its report was read");
        let (first, event) = block.first().zip(block.event(sequence)).ok_or_else(gone)?;
        self.bytes += block.bytes;
        self.blocks.insert(first, block);
        self.order.push_back(first);
        while self.bytes > AT_HAND && self.order.len() > 2 {
            let oldest = self.order.pop_front().and_then(|oldest| self.blocks.remove(&oldest));
            self.bytes -= oldest.map_or(0, |block| block.bytes);
        }
        Ok(event)
    }
}
