//! What the daemon keeps: runs with their logs, and the bundles they read.
//!
//! A run's log is numbered without gaps, and an event is stored before anybody sees it. Watchers are cursors: they read
//! from any number on and wait on the number of the newest event, so a slow one holds up nobody. Everything lives in
//! memory here, the shape of the interface is that of a database: that is why writing is `async` and can fail.
//!
//! The number of runs is bounded: of those that are over, the oldest are forgotten first. The size of a log is bounded by
//! what its cases may send. Bundles are files ([`bundles`]).

pub mod bundles;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::sync::watch;

use crate::event::{Draft, Run, RunEvent};

/// Why something could not be stored or found.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
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
}

/// Keeps runs.
#[derive(Debug)]
pub struct Store {
    max_runs: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    runs: HashMap<String, Log>,
    /// Run ids, oldest first.
    order: VecDeque<String>,
    by_request: HashMap<String, String>,
}

#[derive(Debug)]
struct Log {
    run: Run,
    request_id: String,
    events: Vec<Arc<RunEvent>>,
    newest: watch::Sender<u64>,
}

#[expect(clippy::unused_async, reason = "the interface is that of a database, which is asked over a wire")]
impl Store {
    /// An empty store that keeps so many runs, those that are over included.
    #[must_use]
    pub fn new(max_runs: usize) -> Self {
        Self { max_runs, inner: Mutex::default() }
    }

    /// Adds a run. The same `request_id` with the same spec gives the run that is there already, and `true`.
    ///
    /// # Errors
    /// When the request id belongs to another request, or nothing more can be kept.
    pub async fn create_run(&self, run: Run, request_id: &str) -> Result<(Run, bool), StoreError> {
        let mut inner = self.lock();
        if !request_id.is_empty()
            && let Some(existing) = inner.by_request.get(request_id).and_then(|id| inner.runs.get(id))
        {
            if existing.run.spec == run.spec {
                return Ok((existing.run.clone(), true));
            }
            return Err(StoreError::RequestIdReused(request_id.to_owned()));
        }
        if inner.runs.len() >= self.max_runs {
            inner.forget_oldest_run().ok_or(StoreError::Full(self.max_runs))?;
        }
        let id = run.run_id.clone();
        if !request_id.is_empty() {
            inner.by_request.insert(request_id.to_owned(), id.clone());
        }
        let (newest, _) = watch::channel(0);
        let request_id = request_id.to_owned();
        inner.runs.insert(id.clone(), Log { run: run.clone(), request_id, events: Vec::new(), newest });
        inner.order.push_back(id);
        Ok((run, false))
    }

    /// A run as of its newest event.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn run(&self, run_id: &str) -> Result<Run, StoreError> {
        self.with_log(run_id, |log| log.run.clone())
    }

    /// Whether a run is over, and the number of its newest event.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn progress(&self, run_id: &str) -> Result<(bool, u64), StoreError> {
        self.with_log(run_id, |log| (log.run.state.is_final(), log.run.last_sequence))
    }

    /// Runs, newest first: at most `limit` of those older than `before`.
    pub async fn runs(&self, before: Option<&str>, limit: usize) -> Vec<Run> {
        let inner = self.lock();
        let newest_first = inner.order.iter().rev();
        let older: Box<dyn Iterator<Item = &String>> = match before {
            None => Box::new(newest_first),
            Some(before) => Box::new(newest_first.skip_while(move |id| *id != before).skip(1)),
        };
        older.take(limit).filter_map(|id| inner.runs.get(id)).map(|log| log.run.clone()).collect()
    }

    /// Appends events to a run's log; they get the next numbers, all of them or none.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn append(&self, run_id: &str, drafts: Vec<Draft>) -> Result<(), StoreError> {
        let at = Timestamp::now();
        self.with_log(run_id, |log| {
            for draft in drafts {
                let sequence = log.run.last_sequence + 1;
                let event = draft.stored(sequence, at);
                log.run.apply(&event.payload);
                log.run.last_sequence = sequence;
                log.events.push(Arc::new(event));
            }
            log.newest.send_replace(log.run.last_sequence);
        })
    }

    /// Marks a run without an event, such as being cancelled.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn mark_cancelling(&self, run_id: &str) -> Result<Run, StoreError> {
        self.with_log(run_id, |log| {
            if !log.run.state.is_final() {
                log.run.state = crate::event::State::Cancelling;
            }
            log.run.clone()
        })
    }

    /// At most `limit` events with numbers above `after`, in order.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn read(&self, run_id: &str, after: u64, limit: usize) -> Result<Vec<Arc<RunEvent>>, StoreError> {
        self.with_log(run_id, |log| {
            let from = usize::try_from(after).unwrap_or(usize::MAX).min(log.events.len());
            log.events[from..].iter().take(limit).cloned().collect()
        })
    }

    /// The number of a run's newest event, to wait on.
    ///
    /// # Errors
    /// When there is no such run.
    pub fn newest(&self, run_id: &str) -> Result<watch::Receiver<u64>, StoreError> {
        self.with_log(run_id, |log| log.newest.subscribe())
    }

    /// The bundles that runs use.
    #[must_use]
    pub fn used_bundles(&self) -> HashSet<[u8; 32]> {
        self.lock().runs.values().map(|log| log.run.spec.bundle).collect()
    }

    fn with_log<T>(&self, run_id: &str, f: impl FnOnce(&mut Log) -> T) -> Result<T, StoreError> {
        let mut inner = self.lock();
        inner.runs.get_mut(run_id).map(f).ok_or_else(|| StoreError::UnknownRun(run_id.to_owned()))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics while the lock is held, and the maps are whole after every statement.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Forgets the oldest finished run.
    fn forget_oldest_run(&mut self) -> Option<()> {
        let is_over = |id: &String| self.runs.get(id).is_none_or(|log| log.run.state.is_final());
        let position = self.order.iter().position(is_over)?;
        let id = self.order.remove(position)?;
        if let Some(log) = self.runs.remove(&id) {
            self.by_request.remove(&log.request_id);
        }
        Some(())
    }
}
