//! What the daemon keeps: runs with their logs, and the bundles they read.
//!
//! A run's log is numbered without gaps, and an event is stored before anybody sees it. It becomes bytes once, when
//! it is appended; what lies in the database, what stays at hand and what watchers get are these bytes. Readers are
//! [`Cursor`]s: they read from any number on and wait on the number of the newest event, so a slow one holds up
//! nobody. Events are stored in blocks, those of all runs together in one transaction after the other (`writer`);
//! of runs that go on the newest stay at hand (`live`), everything else is read from the database (`database`).
//!
//! The number of runs is bounded: of those that are over, the oldest are forgotten first. Bundles are files
//! ([`bundles`]).

pub mod bundles;
mod connections;
mod cursor;
mod database;
mod deaths;
pub mod guard;
mod live;
mod rows;
mod writer;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use uuid::Uuid;

use crate::conversation::{AgentEvent, AgentEventKind, Message, Part};
use crate::event::{Draft, Payload, Run, RunEvent, State};
use crate::text::chain;
use crate::verdict::whole_millis;
use crate::wire::control as pb;
use crate::wire::record::{self, Record, records};
use crate::wire::run::head_to_proto;
use crate::wire::value::WireError;
use crate::work::in_place;
pub use cursor::{Cursor, Waited};
use database::Database;
pub use live::Change;
use live::Live;
use rows::{Batch, Block, RunRow};
pub use rows::{CaseRow, Filter};
use writer::Writer;

/// The file of the database in the data directory.
pub const FILE: &str = "forge.db";
/// Bytes of events that a block holds, if one event is not larger.
const BLOCK_BYTES: usize = 1 << 20;
/// Blocks that are read at a time: at first, and while they are small.
const BLOCKS: usize = 4;
const MANY_BLOCKS: usize = 16;

/// An event that was stored just now.
#[derive(Debug, Clone)]
pub struct Stored {
    /// What happened.
    pub event: Arc<RunEvent>,
    /// Bytes that it takes in the log.
    pub bytes: usize,
}

impl Stored {
    /// Bytes that it takes in memory, about: a caller that keeps events has to count the parts of messages, which may
    /// be next to nothing in the log.
    #[must_use]
    pub fn held(&self) -> usize {
        let parts = |messages: &[Message]| messages.iter().map(|message| message.parts.len()).sum();
        let parts: usize = match &self.event.payload {
            Payload::Agent(AgentEvent { kind: AgentEventKind::Finished(finished), .. }) => {
                parts(finished.response.as_slice())
            }
            Payload::CallEnded(ended) => parts(&ended.input),
            Payload::PartySaid(said) => said.asked.as_ref().map_or(0, |asked| parts(&asked.messages)),
            _ => 0,
        };
        size_of::<RunEvent>() + self.bytes + parts * size_of::<Part>()
    }
}

/// Why something could not be stored or found.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum StoreError {
    /// No such run.
    #[error("there is no run {0:?}")]
    UnknownRun(String),
    /// The same request id came with another request.
    #[error("the request id {0:?} was used for another request")]
    RequestIdReused(String),
    /// All runs that may be kept are still going on.
    #[error("{0} runs are waiting or running, which is the most there can be")]
    Full(usize),
    /// The run goes on.
    #[error("the run {0:?} is not over")]
    NotOver(String),
    /// The run does not go on.
    #[error("the run {0:?} is over")]
    Over(String),
    /// The database was used by a later version of this program.
    #[error("the store was written by a newer version of forge-daemon (its tables have version {0}); use that version")]
    Newer(i64),
    /// Another daemon has it.
    #[error("the store is in use by another daemon")]
    InUse,
    /// There is no room for more where the database is.
    #[error("the store has no room: {0}")]
    NoRoom(String),
    /// The database is not there, or does not answer in time; it may be back any moment.
    #[error("the store does not answer: {0}")]
    Away(String),
    /// What keeps other daemons out is gone.
    #[error("{} was deleted or replaced while the daemon used it", .0.display())]
    Gone(PathBuf),
    /// The log of a run has an end that nobody wrote.
    #[error("the log of the run cannot be written: {0}")]
    LogLost(Box<StoreError>),
    /// The database does not do what it is asked.
    #[error("the store: {0}")]
    Database(String),
    /// What stands in the database is not what was written there.
    #[error("the store holds something that cannot be read: {0}")]
    Corrupt(String),
}

impl StoreError {
    /// Whether the same may work in a moment.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        matches!(self, Self::NoRoom(_) | Self::Away(_))
    }

    /// What clients are told. What the database says of itself names files, hosts and statements: that is for the
    /// daemon's log.
    #[must_use]
    pub fn for_clients(&self) -> String {
        match self {
            Self::NoRoom(_) => "the store of the daemon has no room; its log says more".to_owned(),
            Self::Away(_) => "the store of the daemon does not answer; its log says more".to_owned(),
            Self::LogLost(error) => format!("the log of the run cannot be written: {}", error.for_clients()),
            Self::Newer(_) | Self::InUse | Self::Gone(_) | Self::Database(_) | Self::Corrupt(_) => {
                "the store of the daemon failed; its log says why".to_owned()
            }
            Self::UnknownRun(_) | Self::RequestIdReused(_) | Self::Full(_) | Self::NotOver(_) | Self::Over(_) => {
                self.to_string()
            }
        }
    }

    /// Whether it is trouble of the store, and not what was asked of it.
    #[must_use]
    pub const fn is_trouble(&self) -> bool {
        !matches!(
            self,
            Self::UnknownRun(_) | Self::RequestIdReused(_) | Self::Full(_) | Self::NotOver(_) | Self::Over(_)
        )
    }

    /// Whether nobody knows what became of the connection.
    const fn is_of_connection(&self) -> bool {
        matches!(self, Self::NoRoom(_) | Self::Away(_) | Self::Database(_))
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::Error as E;
        let text = chain(&error).replace('\n', " ");
        let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code).unwrap_or_default();
        match (&error, &*code) {
            (E::PoolTimedOut | E::PoolClosed | E::WorkerCrashed | E::Io(_) | E::Tls(_), _) => Self::Away(text),
            // PostgreSQL: the classes of its codes.
            (_, code) if code.len() == 5 => match &code[..2] {
                "53" | "54" => Self::NoRoom(text),
                "08" | "40" | "55" | "57" | "58" => Self::Away(text),
                _ => Self::Database(text),
            },
            // SQLite: the last byte says what kind of trouble it is.
            (_, code) => match code.parse::<u32>().map(|code| code & 0xff) {
                Ok(SQLITE_FULL) => Self::NoRoom(text),
                Ok(SQLITE_BUSY | SQLITE_LOCKED | SQLITE_NOMEM | SQLITE_IOERR | SQLITE_CANTOPEN) => Self::Away(text),
                _ => Self::Database(text),
            },
        }
    }
}

const SQLITE_BUSY: u32 = 5;
const SQLITE_LOCKED: u32 = 6;
const SQLITE_NOMEM: u32 = 7;
const SQLITE_IOERR: u32 = 10;
const SQLITE_FULL: u32 = 13;
const SQLITE_CANTOPEN: u32 = 14;

/// Keeps runs.
#[derive(Debug)]
pub struct Store {
    max_runs: usize,
    database: Database,
    writer: Writer,
    /// Runs that are not over, and those that ended a moment ago.
    live: Mutex<HashMap<String, Arc<Live>>>,
    /// Held while a run is created: the number of runs is limited, and a request makes one.
    creating: tokio::sync::Mutex<()>,
    ids: Ids,
}

impl Store {
    /// Opens the store: that at `url`, else a file in the data directory. It keeps at most `max_runs` runs, those that
    /// are over included.
    ///
    /// # Errors
    /// When it cannot be opened, or is not for this version.
    pub async fn open(url: Option<&str>, data_dir: &Path, max_runs: usize) -> Result<Self, StoreError> {
        let file = || Database::file_url(&data_dir.join(FILE));
        let database = Database::open(&url.map_or_else(file, str::to_owned)).await?;
        let ids = Ids::after(database.newest_id().await?.as_deref());
        let writer = Writer::start(database.clone());
        let (live, creating) = (Mutex::default(), tokio::sync::Mutex::default());
        Ok(Self { max_runs, database, writer, live, creating, ids })
    }

    /// An id for a new run: higher than that of every other run, whatever the clock says. What is older is forgotten
    /// first.
    #[must_use]
    pub fn new_id(&self) -> String {
        self.ids.next()
    }

    /// Returns when nothing keeps other daemons from this store any more: two would take up each other's runs.
    pub async fn keep(&self) -> StoreError {
        self.database.keep().await
    }

    /// Why nothing else that goes wrong is worth telling: the file of the database is gone.
    #[must_use]
    pub fn lost(&self) -> Option<StoreError> {
        self.database.lost()
    }

    /// Adds a run. The same `request_id` with the same spec gives the run that is there already, and `true`.
    ///
    /// # Errors
    /// When the request id belongs to another request, or nothing more can be kept.
    pub async fn create_run(&self, run: Run, request_id: &str) -> Result<(Run, bool), StoreError> {
        let _creating = self.creating.lock().await;
        if let Some(existing) = self.of_request(request_id, &run).await? {
            return Ok((existing, true));
        }
        self.make_room().await?;
        if !self.database.create(&run, request_id).await? {
            // Another daemon was faster, or the answer to an earlier try was lost.
            let existing = self.of_request(request_id, &run).await?;
            return existing.map(|run| (run, true)).ok_or_else(|| StoreError::RequestIdReused(request_id.to_owned()));
        }
        self.lock().insert(run.run_id.clone(), Arc::new(Live::new(run.clone())));
        Ok((run, false))
    }

    async fn of_request(&self, request_id: &str, run: &Run) -> Result<Option<Run>, StoreError> {
        if request_id.is_empty() {
            return Ok(None);
        }
        match self.database.run_of_request(request_id).await? {
            Some(existing) if existing.spec == run.spec => self.run(&existing.run_id).await.map(Some),
            Some(_) => Err(StoreError::RequestIdReused(request_id.to_owned())),
            None => Ok(None),
        }
    }

    /// Forgets the oldest runs that are over, so that there is room for one more.
    async fn make_room(&self) -> Result<(), StoreError> {
        let count = self.database.count().await?;
        if count < self.max_runs {
            return Ok(());
        }
        let over = self.database.count_over().await?;
        let keep = over.saturating_sub(count + 1 - self.max_runs);
        let old = self.database.old_runs(keep).await?;
        if old.is_empty() {
            return Err(StoreError::Full(self.max_runs));
        }
        for run_id in old {
            self.forget(&run_id).await?;
        }
        Ok(())
    }

    /// Removes a run that is over.
    ///
    /// # Errors
    /// When there is no such run, or it goes on.
    pub async fn remove(&self, run_id: &str) -> Result<(), StoreError> {
        match self.run(run_id).await {
            Ok(run) if !run.state.is_final() => return Err(StoreError::NotOver(run_id.to_owned())),
            // One that cannot be read is good for nothing else.
            Ok(_) | Err(StoreError::Corrupt(_)) => {}
            Err(error) => return Err(error),
        }
        self.forget(run_id).await
    }

    async fn forget(&self, run_id: &str) -> Result<(), StoreError> {
        self.database.remove(run_id).await?;
        self.lock().remove(run_id);
        Ok(())
    }

    /// A run as of its newest event.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn run(&self, run_id: &str) -> Result<Run, StoreError> {
        if let Some(live) = self.live(run_id) {
            return Ok(Run::clone(&live.run()));
        }
        self.database.run(run_id).await?.ok_or_else(|| StoreError::UnknownRun(run_id.to_owned()))
    }

    /// Whether a run is over, and the number of its newest event.
    ///
    /// # Errors
    /// When there is no such run, or its log cannot be written any more.
    pub async fn progress(&self, run_id: &str) -> Result<(bool, u64), StoreError> {
        if let Some(live) = self.live(run_id) {
            return live.progress();
        }
        let run = self.run(run_id).await?;
        Ok((run.state.is_final(), run.last_sequence))
    }

    /// Heads of runs, newest first: at most `limit` of those that the filter names, and no more than
    /// [`LIST_BYTES`](crate::limits::LIST_BYTES) hold. And the oldest of them, if there are more behind it.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn heads(&self, filter: &Filter, limit: usize) -> Result<(Vec<pb::Run>, Option<String>), StoreError> {
        let (stored, oldest) = self.database.heads(filter, limit).await?;
        let heads =
            stored.into_iter().map(|head| self.live(&head.run_id).map_or(head, |live| head_to_proto(&live.run())));
        Ok((heads.collect(), oldest))
    }

    /// Ids of the runs that are not over, oldest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn going_on(&self) -> Result<Vec<String>, StoreError> {
        let states = vec![State::Queued, State::Running, State::Cancelling];
        let mut filter = Filter { states, ..Filter::default() };
        let mut all = Vec::new();
        loop {
            let (heads, oldest) = self.database.heads(&filter, usize::from(u16::MAX)).await?;
            all.extend(heads.into_iter().map(|head| head.run_id));
            if oldest.is_none() {
                all.reverse();
                return Ok(all);
            }
            filter.before = oldest;
        }
    }

    /// Goes on with a run that was stored by a daemon that is gone.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn take_up(&self, run_id: &str) -> Result<Run, StoreError> {
        let run = self.run(run_id).await?;
        self.lock().insert(run_id.to_owned(), Arc::new(Live::new(run.clone())));
        Ok(run)
    }

    /// Appends events to a run's log, which are taken out of `drafts`; they get the next numbers, all of them or
    /// none. When this returns them, they are stored.
    ///
    /// # Errors
    /// When there is no such run, or they cannot be stored; then the run is over.
    pub async fn append(&self, run_id: &str, drafts: &mut Vec<Draft>) -> Result<Vec<Stored>, StoreError> {
        let live = self.live(run_id).ok_or_else(|| StoreError::UnknownRun(run_id.to_owned()))?;
        let _writing = live.writing.lock().await;
        let at = Timestamp::now();
        let before = live.run();
        let (mut run, mut events) = (Run::clone(&before), Vec::with_capacity(drafts.len()));
        let (mut batch, mut is_whole) = (Batch::default(), false);
        let weight = drafts.iter().map(Draft::weight).sum();
        for draft in drafts.drain(..) {
            let event = draft.stored(run.last_sequence + 1, at);
            is_whole |= event.payload.is_of_run();
            run.apply(&event.payload);
            run.last_sequence = event.sequence;
            batch.cases.extend(case_row(run_id, &event));
            events.push(Arc::new(event));
        }
        // What somebody wants of the run is not the engine's to change.
        (run.paused, run.concurrency) = (before.paused, before.concurrency);
        if before.state == State::Cancelling && !run.state.is_final() {
            run.state = State::Cancelling;
        }
        let (blocks, records) = in_place(weight, || blocks(run_id, &events))?;
        batch.blocks = blocks;
        let is_over = run.state.is_final();
        batch.runs.push(RunRow::of(&run, is_whole));
        if let Err(error) = self.writer.write(batch).await {
            live.fail(&error);
            return Err(error);
        }
        let lengths = records.iter().map(|record| record.body().len());
        let events = events.into_iter().zip(lengths).map(|(event, bytes)| Stored { event, bytes }).collect();
        live.publish(run, records);
        if is_over {
            // A client that follows it has a cursor of its own.
            self.lock().remove(run_id);
        }
        Ok(events)
    }

    /// Changes a run without an event, such as its being cancelled. One that is over stays as it is.
    ///
    /// # Errors
    /// When there is no such run, or it cannot be stored.
    pub async fn change(&self, run_id: &str, change: Change) -> Result<Run, StoreError> {
        let Some(live) = self.live(run_id) else { return self.run(run_id).await };
        let _writing = live.writing.lock().await;
        let before = Run::clone(&live.run());
        let Some(run) = change.of(before.clone()) else { return Ok(before) };
        self.writer.write(Batch { runs: vec![RunRow::of(&run, false)], ..Batch::default() }).await?;
        live.set(run.clone());
        Ok(run)
    }

    /// Events with numbers above `after`, in order, of a run that goes on, if they are at hand.
    #[must_use]
    pub fn at_hand(&self, run_id: &str, after: u64) -> Option<Vec<Record>> {
        self.live(run_id)?.recent(after)
    }

    /// Some events with numbers above `after`, in order: a few blocks of them, or those that are at hand. None:
    /// there are no more now.
    ///
    /// # Errors
    /// When there is no such run, or its log cannot be read.
    pub async fn read(&self, run_id: &str, after: u64) -> Result<Vec<Record>, StoreError> {
        if let Some(at_hand) = self.at_hand(run_id, after) {
            return Ok(at_hand);
        }
        let mut found: Vec<Record> = Vec::new();
        let (mut last, mut number, mut bytes) = (after, BLOCKS, 0);
        loop {
            let blocks = self.database.blocks(run_id, last, number).await?;
            let is_last = blocks.len() < number;
            for block in blocks {
                bytes += block.len();
                for record in in_place(block.len(), || records_of(run_id, block))? {
                    // A block may hold what was read already.
                    if record.sequence > last {
                        last = record.sequence;
                        found.push(record);
                    }
                }
            }
            if is_last || bytes >= BLOCK_BYTES {
                break;
            }
            // Small blocks are many.
            number = MANY_BLOCKS;
        }
        if found.is_empty() && self.live(run_id).is_none() {
            self.run(run_id).await?;
        }
        Ok(found)
    }

    /// The events that are stored together with the one of that number. None: there is no such event.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn block(&self, run_id: &str, sequence: u64) -> Result<Vec<Record>, StoreError> {
        let blocks = self.database.blocks(run_id, sequence.saturating_sub(1), 1).await?;
        let Some(block) = blocks.into_iter().next() else { return Ok(Vec::new()) };
        in_place(block.len(), || records_of(run_id, block))
    }

    /// The number of a run's newest event, to wait on.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn newest(&self, run_id: &str) -> Result<watch::Receiver<u64>, StoreError> {
        match self.live(run_id) {
            Some(live) => Ok(live.newest()),
            None => Ok(watch::channel(self.run(run_id).await?.last_sequence).1),
        }
    }

    /// The verdicts on cases of that id, in one suite or in all, newest run first. Those on answers that were
    /// played back say nothing new about the agent, and are left out.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn history(&self, case_id: &str, suite: Option<&str>, limit: usize) -> Result<Vec<CaseRow>, StoreError> {
        let mut replays: HashMap<String, bool> = HashMap::new();
        let (mut found, mut looked_at) = (Vec::new(), 0);
        loop {
            let (rows, number) = self.database.history(case_id, suite, limit, looked_at).await?;
            looked_at += number;
            let is_last = number < limit;
            for row in rows {
                if !replays.contains_key(&row.run_id) {
                    let is_replay = self.run(&row.run_id).await.is_ok_and(|run| run.spec.replay.is_some());
                    replays.insert(row.run_id.clone(), is_replay);
                }
                let is_replay = replays.get(&row.run_id).copied().unwrap_or_default();
                found.extend((!is_replay).then_some(row));
                if found.len() == limit {
                    return Ok(found);
                }
            }
            if is_last {
                return Ok(found);
            }
        }
    }

    /// The bundles that runs use.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn used_bundles(&self) -> Result<HashSet<[u8; 32]>, StoreError> {
        Ok(self.database.bundles().await?.into_iter().collect())
    }

    /// Agents that clients have added: name, address, labels.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn agents(&self) -> Result<Vec<(String, String, Vec<(String, String)>)>, StoreError> {
        let agents = self.database.agents().await?;
        let read = |(name, url, labels): (String, String, String)| match serde_json::from_str(&labels) {
            Ok(labels) => Some((name, url, labels)),
            Err(error) => {
                tracing::error!(agent = ?name, %error, "an agent in the store cannot be read, and is passed over");
                None
            }
        };
        Ok(agents.into_iter().filter_map(read).collect())
    }

    /// Keeps an agent that a client has added.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn put_agent(&self, name: &str, url: &str, labels: &[(String, String)]) -> Result<(), StoreError> {
        let labels = serde_json::to_string(labels).map_err(|error| StoreError::Database(error.to_string()))?;
        self.database.put_agent(name, url, &labels).await
    }

    /// Forgets an agent that a client has added.
    ///
    /// # Errors
    /// When that cannot be stored.
    pub async fn remove_agent(&self, name: &str) -> Result<(), StoreError> {
        self.database.remove_agent(name).await
    }

    /// Stores what is on its way, and closes the database.
    pub async fn close(&self) {
        self.writer.close().await;
        self.database.close().await;
    }

    fn live(&self, run_id: &str) -> Option<Arc<Live>> {
        self.lock().get(run_id).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Live>>> {
        self.live.lock()
    }
}

/// The events of a block.
fn records_of(run_id: &str, block: Vec<u8>) -> Result<Vec<Record>, StoreError> {
    records(block.into()).map_err(|error| unreadable(run_id, &error))
}

fn unreadable(run_id: &str, error: &WireError) -> StoreError {
    StoreError::Corrupt(format!("an event of the run {run_id}: {error}"))
}

/// The verdict that an event holds, for the table of cases.
fn case_row(run_id: &str, event: &RunEvent) -> Option<CaseRow> {
    let case = event.case.as_ref()?;
    let Payload::CaseFinished(result) = &event.payload else { return None };
    Some(CaseRow {
        run_id: run_id.to_owned(),
        suite: case.suite.to_string(),
        case_id: case.case_id.to_string(),
        repeat: case.repeat,
        attempt: case.attempt,
        outcome: result.outcome,
        cause: result.cause,
        blame: result.blame,
        flaky: result.is_flaky(),
        duration_ms: whole_millis(result.transcript.duration),
        at: event.at,
    })
}

/// Events as blocks, and each of them as it lies there.
fn blocks(run_id: &str, events: &[Arc<RunEvent>]) -> Result<(Vec<Block>, Vec<Record>), StoreError> {
    let (mut blocks, mut all) = (Vec::new(), Vec::with_capacity(events.len()));
    let mut rest = events.iter().peekable();
    while let Some(first) = rest.peek().map(|event| event.sequence) {
        let (mut block, mut last) = (record::Block::default(), first);
        while block.len() < BLOCK_BYTES
            && let Some(event) = rest.next()
        {
            block.push(event);
            last = event.sequence;
        }
        let body = block.into_bytes();
        all.extend(records(body.clone()).map_err(|error| unreadable(run_id, &error))?);
        blocks.push(Block { run_id: run_id.to_owned(), first, last, body });
    }
    Ok((blocks, all))
}

/// Makes ids of runs, which are in the order of time: whatever the clock says, the next one is higher.
#[derive(Debug)]
struct Ids {
    /// The time in the newest id, in milliseconds since 1970.
    newest: Mutex<u64>,
}

impl Ids {
    /// Those that come after an id.
    fn after(newest: Option<&str>) -> Self {
        let time = newest.and_then(|id| id.parse::<Uuid>().ok()?.get_timestamp());
        let millis = time.map_or(0, |time| {
            let (seconds, nanos) = time.to_unix();
            seconds * 1_000 + u64::from(nanos / 1_000_000)
        });
        Self { newest: Mutex::new(millis) }
    }

    fn next(&self) -> String {
        let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0);
        let mut newest = self.newest.lock();
        *newest = now.max(*newest + 1);
        let mut random = [0; 10];
        random.copy_from_slice(&Uuid::new_v4().as_bytes()[..10]);
        uuid::Builder::from_unix_timestamp_millis(*newest, &random).into_uuid().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is older is forgotten first, so a clock that goes back must not make the newest run the oldest.
    #[test]
    fn ids_rise_whatever_the_clock_says() {
        let newest = "02000000-0000-7000-8000-000000000000";
        let next = Ids::after(Some(newest)).next();
        assert!(next.as_str() > newest, "{next}");
        let ids = Ids::after(Some("no id"));
        let some: Vec<String> = (0..1_000).map(|_| ids.next()).collect();
        assert!(some.is_sorted_by(|one, next| one < next), "each is higher than the one before");
    }
}
