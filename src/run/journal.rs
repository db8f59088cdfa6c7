//! The log of a run as the engine writes it: into a bounded queue that somebody else stores.
//!
//! When the queue is full the engine waits, so that a run never gets ahead of its log. When nobody stores any more, the
//! run is told to end, as a verdict that is not stored is none; the writers need not know.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::control::Control;
use super::resume::{Done, Finished};
use crate::case::{CaseName, CaseRef};
use crate::conversation::CancelReason;
use crate::event::{Draft, Payload, Run};
use crate::limits::{EVENT_BYTES, OWN_EVENT_BYTES};
use crate::plan::PlannedCase;
use crate::suite::staleness::Staleness;
use crate::verdict::baseline::Comparison;
use crate::verdict::gate::GateResult;
use crate::verdict::{CaseResult, Standing};

/// Bytes that a permit of the room for events stands for.
const UNIT: usize = 1 << 10;

/// The room for events of all runs on their way to the store.
#[derive(Debug, Clone)]
pub struct Room(Arc<Semaphore>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(EVENT_BYTES / UNIT)))
    }
}

impl Room {
    /// The way of a run's events to the task that stores them; at most `number` of them wait.
    #[must_use]
    pub fn outlet(&self, number: usize) -> (Outlet, mpsc::Receiver<Waiting>) {
        let (events, waiting) = mpsc::channel(number);
        (Outlet { events, own: Arc::new(Semaphore::new(OWN_EVENT_BYTES / UNIT)), shared: self.clone() }, waiting)
    }
}

/// Where a run puts its events.
#[derive(Debug, Clone)]
pub struct Outlet {
    events: mpsc::Sender<Waiting>,
    /// Room that no other run has: one with small events does not wait for another's large ones.
    own: Arc<Semaphore>,
    shared: Room,
}

impl Outlet {
    /// Waits for the room that an event takes: the run's own, or that of all runs, whichever is free first. A large
    /// event has all of that, alone.
    async fn take_room(&self, draft: &Draft) -> Option<OwnedSemaphorePermit> {
        let units = draft.weight().div_ceil(UNIT).clamp(1, EVENT_BYTES / UNIT);
        let wanted = u32::try_from(units).unwrap_or(u32::MAX);
        let take = |room: &Arc<Semaphore>| Arc::clone(room).acquire_many_owned(wanted);
        let room = if units > OWN_EVENT_BYTES / UNIT {
            take(&self.shared.0).await
        } else {
            tokio::select! {
                biased;
                own = take(&self.own) => own,
                shared = take(&self.shared.0) => shared,
            }
        };
        // They are never closed.
        room.ok()
    }
}

/// An event on its way to the store.
#[derive(Debug)]
pub struct Waiting {
    /// The event.
    pub draft: Draft,
    /// The room that it takes as long as anybody has this.
    pub room: Option<OwnedSemaphorePermit>,
}

/// Writes the log of one run.
#[derive(Debug, Clone)]
pub(super) struct Journal {
    events: Outlet,
    /// Told when nobody stores any more.
    control: Control,
    /// The run as its log so far says it is.
    run: Arc<Mutex<Run>>,
    /// How cases stand, each over its repetitions: for the comparison with a baseline. `None`: there is none.
    standings: Option<Arc<Mutex<HashMap<CaseName, Standing>>>>,
}

impl Journal {
    /// Goes on with the log of a run, of which so much is `done`.
    pub(super) fn new(events: Outlet, control: Control, run: Run, done: &Done, is_compared: bool) -> Self {
        let mut standings = HashMap::new();
        for (case, Finished { standing, .. }) in &done.finished {
            add(&mut standings, case.name(), *standing);
        }
        let standings = is_compared.then(|| Arc::new(Mutex::new(standings)));
        Self { events, control, run: Arc::new(Mutex::new(run)), standings }
    }

    /// Whether every case has its end.
    pub(super) fn is_whole(&self) -> bool {
        let run = self.run.lock();
        run.totals.finished() >= run.totals.total
    }

    /// The run as of its newest event.
    pub(super) fn current(&self) -> Run {
        self.run.lock().clone()
    }

    /// How a case stands over its repetitions; `None` when none of them ended.
    pub(super) fn standing(&self, suite: &str, id: &str) -> Option<Standing> {
        let key = CaseName { suite: suite.into(), case_id: id.into() };
        self.standings.as_ref()?.lock().get(&key).copied()
    }

    /// Notes how the suites stand to the tools of today.
    pub(super) fn checked(&self, staleness: Vec<Staleness>) {
        let mut run = self.run.lock();
        for (suite, staleness) in run.suites.iter_mut().zip(staleness) {
            suite.staleness = Some(staleness);
        }
    }

    /// Notes what came of comparing the suites with a baseline, for the last event.
    pub(super) fn compared(&self, comparisons: Vec<Option<Comparison>>) {
        let mut run = self.run.lock();
        for (suite, comparison) in run.suites.iter_mut().zip(comparisons) {
            suite.comparison = comparison;
        }
    }

    /// Notes what came of the gate, for the last event.
    pub(super) fn gate(&self, gate: Option<GateResult>) {
        self.run.lock().gate = gate;
    }

    /// An event of the run as a whole.
    pub(super) async fn run(&self, payload: Payload) {
        self.write(Draft { case: None, turn: 0, payload }).await;
    }

    /// An event of a case.
    pub(super) async fn case(&self, case: &CaseRef, turn: u32, payload: Payload) {
        self.write(Draft { case: Some(case.clone()), turn, payload }).await;
    }

    /// Announces the cases of a plan, in its order.
    pub(super) async fn planned(&self, cases: &[PlannedCase]) {
        for planned in cases {
            let case = planned.head();
            let payload = Payload::CasePlanned { name: case.description.clone(), labels: case.labels.clone() };
            self.case(&planned.key().attempt(1), 0, payload).await;
        }
    }

    /// Ends cases that were never started, so that every planned case has its end.
    pub(super) async fn not_run(&self, cases: &[PlannedCase], result: impl Fn() -> CaseResult) {
        for planned in cases {
            self.case(&planned.key().attempt(1), 0, Payload::CaseFinished(Box::new(result()))).await;
        }
    }

    async fn write(&self, draft: Draft) {
        if let Payload::Warning(text) = &draft.payload
            && self.run.lock().warnings.contains(text)
        {
            // Said before: by a daemon that is gone, if not by this one.
            return;
        }
        self.run.lock().apply(&draft.payload);
        if let (Some(all), Payload::CaseFinished(result), Some(case)) = (&self.standings, &draft.payload, &draft.case) {
            add(&mut all.lock(), case.name(), result.standing());
        }
        let room = self.events.take_room(&draft).await;
        if self.events.events.send(Waiting { draft, room }).await.is_err() {
            // The task that stored the events says why. Another daemon may go on with the run later.
            self.control.cancel(CancelReason::Shutdown);
        }
    }
}

/// Adds a repetition: a case passed if all did that were judged.
fn add(standings: &mut HashMap<CaseName, Standing>, case: CaseName, standing: Standing) {
    let all = standings.entry(case).or_insert(standing);
    *all = match (*all, standing) {
        (Standing::Failed, _) | (_, Standing::Failed) => Standing::Failed,
        (Standing::Passed, _) | (_, Standing::Passed) => Standing::Passed,
        (Standing::NotJudged, _) | (_, Standing::NotJudged) => Standing::NotJudged,
        (Standing::LeftOut, Standing::LeftOut) => Standing::LeftOut,
    };
}
