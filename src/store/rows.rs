//! What stands in the tables: blocks of events, verdicts and runs as rows, written in batches and read back.

use bytes::Bytes;
use jiff::Timestamp;
use prost::Message as _;
use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::StoreError;
use crate::event::{Run, State};
use crate::verdict::{Blame, Cause, Outcome};
use crate::wire::control as pb;
use crate::wire::run::{head_to_proto, run_from_proto, run_to_proto};

/// Some events of a run that follow each other, as they are stored.
#[derive(Debug, Clone)]
pub(super) struct Block {
    pub(super) run_id: String,
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) body: Bytes,
}

/// What came of a case, in short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseRow {
    /// The run.
    pub run_id: String,
    /// Path of the suite.
    pub suite: String,
    /// Id of the case there.
    pub case_id: String,
    /// Which repetition, from 1.
    pub repeat: u32,
    /// The attempt that the verdict is about, from 1.
    pub attempt: u32,
    /// What came of it.
    pub outcome: Outcome,
    /// Why it did not pass.
    pub cause: Option<Cause>,
    /// Who is to blame.
    pub blame: Option<Blame>,
    /// Whether it passed after it had failed.
    pub flaky: bool,
    /// How long it took.
    pub duration_ms: u64,
    /// When the verdict was there.
    pub at: Timestamp,
}

/// How a run stands now.
#[derive(Debug)]
pub(super) struct RunRow {
    pub(super) run_id: String,
    pub(super) state: State,
    pub(super) finished_at: Option<Timestamp>,
    pub(super) last_sequence: u64,
    pub(super) head: Vec<u8>,
    /// All of it, which may be large; `None`: only what a head holds has changed.
    pub(super) body: Option<Vec<u8>>,
}

impl RunRow {
    /// `is_whole`: more has changed than what a head holds.
    pub(super) fn of(run: &Run, is_whole: bool) -> Self {
        let (run_id, head) = (run.run_id.clone(), head_to_proto(run).encode_to_vec());
        let body = is_whole.then(|| run_to_proto(run).encode_to_vec());
        let Run { state, finished_at, last_sequence, .. } = *run;
        Self { run_id, state, finished_at, last_sequence, head, body }
    }
}

/// What belongs together: all of it is written, or nothing.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) blocks: Vec<Block>,
    pub(super) cases: Vec<CaseRow>,
    pub(super) runs: Vec<RunRow>,
}

/// Which runs are listed.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only those older than this one.
    pub before: Option<String>,
    /// Only those of this agent, by the name that the runs use.
    pub agent: Option<String>,
    /// Only those with this suite, by its path.
    pub suite: Option<String>,
    /// Only those with all of these labels.
    pub labels: Vec<(String, String)>,
    /// Only those in one of these states. Empty: all.
    pub states: Vec<State>,
    /// Only those that were created at this time or later.
    pub since: Option<Timestamp>,
    /// Only those that were created before this time.
    pub until: Option<Timestamp>,
}

impl Batch {
    /// Bytes of events in it.
    pub(super) fn bytes(&self) -> usize {
        self.blocks.iter().map(|block| block.body.len()).sum()
    }
}

/// A value of a row; one of another type stands there only in a file that is not ours.
pub(super) fn get<'r, T>(row: &'r AnyRow, column: usize) -> Result<T, StoreError>
where
    T: sqlx::Decode<'r, sqlx::Any> + sqlx::Type<sqlx::Any>,
{
    row.try_get(column).map_err(|error| StoreError::Corrupt(error.to_string()))
}

/// A word of a list, if there is one.
pub(super) fn word<T>(row: &AnyRow, column: usize, named: fn(&str) -> Option<T>) -> Result<Option<T>, StoreError> {
    let word: Option<String> = get(row, column)?;
    let read = |word: String| named(&word).ok_or_else(|| StoreError::Corrupt(format!("{word:?} is no known word")));
    word.map(read).transpose()
}

pub(super) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A run: its body, and of what changes all the time what its head says.
pub(super) fn read_run(row: &AnyRow) -> Result<Run, StoreError> {
    let body: Vec<u8> = get(row, 0)?;
    let run = pb::Run::decode(body.as_slice()).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    let head = read_head(row, 1)?;
    let run = pb::Run {
        state: head.state,
        totals: head.totals,
        finished_at: head.finished_at,
        last_sequence: head.last_sequence,
        paused: head.paused,
        concurrency: head.concurrency,
        ..run
    };
    run_from_proto(run).map_err(|error| StoreError::Corrupt(error.to_string()))
}

/// The head of a run, if it is whole.
pub(super) fn read_head(row: &AnyRow, column: usize) -> Result<pb::Run, StoreError> {
    let head: Vec<u8> = get(row, column)?;
    let head = pb::Run::decode(head.as_slice()).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    let is_whole = !head.run_id.is_empty() && head.state() != pb::run::State::Unspecified;
    if is_whole { Ok(head) } else { Err(StoreError::Corrupt("the head of a run is not whole".to_owned())) }
}

pub(super) fn read_case(row: &AnyRow) -> Result<CaseRow, StoreError> {
    let small = |column: usize| Ok::<_, StoreError>(u32::try_from(get::<i64>(row, column)?).unwrap_or(u32::MAX));
    let at = Timestamp::from_microsecond(get(row, 10)?).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    Ok(CaseRow {
        run_id: get(row, 0)?,
        suite: get(row, 1)?,
        case_id: get(row, 2)?,
        repeat: small(3)?,
        attempt: small(4)?,
        outcome: word(row, 5, Outcome::named)?.ok_or_else(|| StoreError::Corrupt("a verdict is empty".to_owned()))?,
        cause: word(row, 6, Cause::named)?,
        blame: word(row, 7, Blame::named)?,
        flaky: get::<i64>(row, 8)? != 0,
        duration_ms: u64::try_from(get::<i64>(row, 9)?).unwrap_or(0),
        at,
    })
}
