//! A run that goes on: what its log says so far, and the newest of it at hand for whoever follows.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::StoreError;
use crate::conversation::{Fault, FaultOrigin};
use crate::event::{Run, RunEvent, State};

/// Most events that stay at hand; those before them are read from the database.
const RECENT: usize = 2_048;

/// What somebody wants of a run that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is to end.
    Cancel,
    /// It is to go on in another way; `None`: as it is.
    Pace {
        /// No further case starts.
        paused: Option<bool>,
        /// Cases at the same time.
        concurrency: Option<u32>,
    },
}

/// A run that goes on. Only what is stored is in here.
#[derive(Debug)]
pub(super) struct Live {
    inner: Mutex<Inner>,
    newest: watch::Sender<u64>,
}

#[derive(Debug)]
struct Inner {
    run: Run,
    recent: VecDeque<Arc<RunEvent>>,
    /// Why its log cannot be written any more.
    failed: Option<StoreError>,
}

impl Live {
    pub(super) fn new(run: Run) -> Self {
        let (newest, _) = watch::channel(run.last_sequence);
        Self { inner: Mutex::new(Inner { run, recent: VecDeque::new(), failed: None }), newest }
    }

    pub(super) fn run(&self) -> Run {
        self.lock().run.clone()
    }

    /// Whether it is over, and the number of its newest event.
    pub(super) fn progress(&self) -> Result<(bool, u64), StoreError> {
        let inner = self.lock();
        match &inner.failed {
            Some(error) => Err(error.clone()),
            None => Ok((inner.run.state.is_final(), inner.run.last_sequence)),
        }
    }

    /// Changes a run that is not over.
    pub(super) fn change(&self, change: Change) -> Option<Run> {
        let mut inner = self.lock();
        if inner.run.state.is_final() {
            return None;
        }
        match change {
            Change::Cancel => inner.run.state = State::Cancelling,
            Change::Pace { paused, concurrency } => {
                inner.run.paused = paused.unwrap_or(inner.run.paused);
                inner.run.concurrency = concurrency.or(inner.run.concurrency);
            }
        }
        Some(inner.run.clone())
    }

    /// Shows events that are stored.
    pub(super) fn publish(&self, run: Run, events: Vec<Arc<RunEvent>>) {
        let last = run.last_sequence;
        {
            let mut inner = self.lock();
            // Somebody may have changed it meanwhile.
            let is_cancelling = inner.run.state == State::Cancelling && !run.state.is_final();
            let (paused, concurrency) = (inner.run.paused, inner.run.concurrency);
            inner.run = Run { paused, concurrency, ..run };
            if is_cancelling {
                inner.run.state = State::Cancelling;
            }
            inner.recent.extend(events);
            let more = inner.recent.len().saturating_sub(RECENT);
            inner.recent.drain(..more);
        }
        self.newest.send_replace(last);
    }

    /// Ends it because its log cannot be written any more, and wakes whoever follows.
    pub(super) fn fail(&self, error: &StoreError) {
        {
            let mut inner = self.lock();
            inner.failed = Some(error.clone());
            inner.run.state = State::Errored;
            inner.run.error = Some(Fault {
                code: tonic::Code::DataLoss.into(),
                reason: "STORE_FAILED".to_owned(),
                message: format!("the log of the run cannot be written: {error}"),
                origin: FaultOrigin::Daemon,
                retryable: true,
            });
        }
        self.newest.send_modify(|_| {});
    }

    /// Events with numbers above `after`, if they are all at hand.
    pub(super) fn recent(&self, after: u64, limit: usize) -> Option<Vec<Arc<RunEvent>>> {
        let inner = self.lock();
        if after >= inner.run.last_sequence {
            return Some(Vec::new());
        }
        let first = inner.recent.front()?.sequence;
        let skipped = usize::try_from((after + 1).checked_sub(first)?).ok()?;
        Some(inner.recent.iter().skip(skipped).take(limit).cloned().collect())
    }

    pub(super) fn newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics while the lock is held, and everything is whole after every statement.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
