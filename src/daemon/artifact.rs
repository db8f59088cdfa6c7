//! `FetchArtifact`: the report of a run that is over, written while its log is read.
//!
//! The log is read once for the outline and then block by block, as the client takes the text: one that does not read costs
//! nothing, and no run is too large.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;

use tokio_stream::Stream;
use tonic::Status;

use super::status::{of_store, of_wire};
use crate::event::{Run, RunEvent};
use crate::report::outline::{Outline, Outliner, Step};
use crate::report::{Format, Report, Unwritable, Verdict};
use crate::store::{LogBlock, Store};
use crate::wire::control as pb;
use crate::wire::value::WireError;

/// Events that are read at a time for the outline.
const BATCH: usize = 1_000;
/// Bytes of the text that a client gets at a time, if there is so much.
const CHUNK: usize = 256 << 10;
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
    let outline = outline(store, run, suite).await?;
    let log = Log::new(Arc::clone(store), request.run_id);
    let writing = Writing { outline, report: format.report(), log, next: Some(Step::Head), text: Vec::new() };
    Ok(Box::pin(futures_util::stream::try_unfold(writing, |mut writing| async move {
        let chunk = writing.chunk().await?;
        Ok(chunk.map(|chunk| (pb::FetchArtifactResponse { chunk }, writing)))
    })))
}

async fn outline(store: &Store, run: Run, suite: Option<usize>) -> Result<Outline, Status> {
    let run_id = run.run_id.clone();
    let mut outliner = Outliner::new(run, suite);
    let mut after = 0;
    loop {
        let events = store.read(&run_id, after, BATCH).await.map_err(|error| of_store(&error))?;
        let Some(last) = events.last() else { return Ok(outliner.finish()) };
        after = last.sequence;
        for event in &events {
            outliner.take(event);
        }
    }
}

/// A report that is being written.
struct Writing {
    outline: Outline,
    report: Box<dyn Report>,
    log: Log,
    next: Option<Step>,
    /// What is written and not sent yet.
    text: Vec<u8>,
}

impl Writing {
    /// The next part of the text; `None` behind the last one.
    async fn chunk(&mut self) -> Result<Option<Vec<u8>>, Status> {
        while self.text.len() < CHUNK
            && let Some(step) = self.next
        {
            let piece = self.piece(step).await?;
            self.text.extend(piece.into_bytes());
            self.next = step.next(&self.outline);
        }
        // One case may be more than a message holds.
        let rest = self.text.split_off(self.text.len().min(CHUNK));
        let chunk = std::mem::replace(&mut self.text, rest);
        Ok(Some(chunk).filter(|chunk| !chunk.is_empty()))
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
