//! A run that goes on: what its log says so far, and the newest of it at hand for the clients that follow it.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use super::{BLOCK_BYTES, StoreError};
use crate::conversation::{Fault, FaultOrigin};
use crate::event::{Run, State};
use crate::limits::{RECENT_BYTES, RECENT_EVENTS};
use crate::wire::record::Record;

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

impl Change {
    /// The run with the change; `None`: it is over, and stays as it is.
    pub(super) fn of(self, mut run: Run) -> Option<Run> {
        if run.state.is_final() {
            return None;
        }
        match self {
            Self::Cancel => run.state = State::Cancelling,
            Self::Pace { paused, concurrency } => {
                run.paused = paused.unwrap_or(run.paused);
                run.concurrency = concurrency.or(run.concurrency);
            }
        }
        Some(run)
    }
}

/// A run that goes on. Only what is stored is in here.
#[derive(Debug)]
pub(super) struct Live {
    inner: Mutex<Inner>,
    /// Held from looking at the run until what follows from that is stored: a row of an older state must not come last.
    pub(super) writing: tokio::sync::Mutex<()>,
    newest: watch::Sender<u64>,
}

#[derive(Debug)]
struct Inner {
    run: Arc<Run>,
    recent: VecDeque<Record>,
    bytes: usize,
    /// Why its log cannot be written any more.
    failed: Option<StoreError>,
}

impl Live {
    pub(super) fn new(run: Run) -> Self {
        let (newest, _) = watch::channel(run.last_sequence);
        let inner = Inner { run: Arc::new(run), recent: VecDeque::new(), bytes: 0, failed: None };
        Self { inner: Mutex::new(inner), writing: tokio::sync::Mutex::default(), newest }
    }

    pub(super) fn run(&self) -> Arc<Run> {
        Arc::clone(&self.lock().run)
    }

    /// Whether it is over, and the number of its newest event.
    pub(super) fn progress(&self) -> Result<(bool, u64), StoreError> {
        let inner = self.lock();
        match &inner.failed {
            Some(error) => Err(error.clone()),
            None => Ok((inner.run.state.is_final(), inner.run.last_sequence)),
        }
    }

    /// Shows a change that is stored.
    pub(super) fn set(&self, run: Run) {
        self.lock().run = Arc::new(run);
    }

    /// Shows events that are stored.
    pub(super) fn publish(&self, run: Run, events: Vec<Record>) {
        let last = run.last_sequence;
        {
            let mut inner = self.lock();
            inner.run = Arc::new(run);
            inner.bytes += events.iter().map(Record::held).sum::<usize>();
            inner.recent.extend(events);
            while inner.recent.len() > RECENT_EVENTS || inner.bytes > RECENT_BYTES {
                let Some(oldest) = inner.recent.pop_front() else { break };
                inner.bytes -= oldest.held();
            }
        }
        self.newest.send_replace(last);
    }

    /// Ends it because its log cannot be written any more, and wakes the clients that follow it.
    pub(super) fn fail(&self, error: &StoreError) {
        {
            let mut inner = self.lock();
            inner.failed = Some(StoreError::LogLost(Box::new(error.clone())));
            // Nobody follows it any more.
            (inner.recent, inner.bytes) = (VecDeque::new(), 0);
            let mut run = Run::clone(&inner.run);
            run.state = State::Errored;
            run.error = Some(Fault {
                code: tonic::Code::DataLoss.into(),
                reason: "STORE_FAILED".to_owned(),
                message: format!("the log of the run cannot be written: {}", error.for_clients()),
                origin: FaultOrigin::Daemon,
                retryable: true,
            });
            inner.run = Arc::new(run);
        }
        self.newest.send_modify(|_| {});
    }

    /// Events with numbers above `after`, if they are all at hand: no more when they have [`BLOCK_BYTES`] together.
    pub(super) fn recent(&self, after: u64) -> Option<Vec<Record>> {
        let inner = self.lock();
        if after >= inner.run.last_sequence {
            return Some(Vec::new());
        }
        let first = inner.recent.front()?.sequence;
        let skipped = usize::try_from((after + 1).checked_sub(first)?).ok()?;
        let mut bytes = 0;
        let fits = |record: &&Record| {
            let begun = bytes;
            bytes += record.held();
            begun < BLOCK_BYTES
        };
        Some(inner.recent.iter().skip(skipped).take_while(fits).cloned().collect())
    }

    pub(super) fn newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics while the lock is held, and everything is whole after every statement.
        self.inner.lock()
    }
}
