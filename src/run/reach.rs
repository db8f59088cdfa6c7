//! Whether an agent takes calls at all, for all cases of a run: the first that finds out that it does not ends the
//! run for all.
//!
//! An agent at whose address nobody answers may be restarting, so cases wait for it. Together they wait no longer
//! than the run has patience: the clock is that of the run. It runs while at least one of them tries in vain, and
//! begins anew when the agent takes a call. An agent that takes calls and is slow is never gone.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What the cases of a run found out about whether an agent takes calls. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Reach {
    patience: Duration,
    gone: CancellationToken,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Whether it answered a call.
    has_answered: bool,
    /// Calls that try to reach it in vain.
    trying: usize,
    /// Since when some do, without a break.
    since: Option<Instant>,
    /// How long some did before.
    spent: Duration,
}

impl Inner {
    fn in_vain_for(&self) -> Duration {
        self.spent + self.since.map(|since| since.elapsed()).unwrap_or_default()
    }
}

impl Reach {
    /// Of an agent who is given up when nobody answers for so long.
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, gone: CancellationToken::new(), inner: Arc::default() }
    }

    /// Notes that the agent has a call: it said something in it.
    pub(super) fn delivered(&self) {
        let mut inner = self.lock();
        inner.spent = Duration::ZERO;
        // Calls that are still being tried have not found out yet.
        inner.since = (inner.trying > 0).then(Instant::now);
    }

    /// Notes that the agent brought a call to an end.
    pub(super) fn answered(&self) {
        self.lock().has_answered = true;
    }

    /// Whether an agent that takes no call as things are set up will take no other one either: as long as it
    /// answered none. One that answered others means the case.
    pub(super) fn takes_none(&self) -> bool {
        !self.lock().has_answered
    }

    /// Begins to count the time of a call that found nobody when it tried at `since`.
    pub(super) fn missed(&self, since: Instant) -> Trying {
        let mut inner = self.lock();
        inner.trying += 1;
        inner.since.get_or_insert(since);
        Trying(self.clone())
    }

    /// Whether it was given up.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.is_cancelled()
    }

    /// Waits until it is given up.
    pub(super) async fn gone(&self) {
        self.gone.cancelled().await;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

/// A call that tries to reach an agent in vain, until it is dropped.
#[derive(Debug)]
pub(super) struct Trying(Reach);

impl Trying {
    /// Gives the agent up if nobody answered for long enough; for how long, to the one who did that.
    pub(super) fn give_up(&self) -> Option<Duration> {
        let inner = self.0.lock();
        let time = inner.in_vain_for();
        if time < self.0.patience || self.0.is_gone() {
            return None;
        }
        self.0.gone.cancel();
        Some(time)
    }
}

impl Drop for Trying {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        inner.trying -= 1;
        if inner.trying == 0 {
            inner.spent = inner.in_vain_for();
            inner.since = None;
        }
    }
}
