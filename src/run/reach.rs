//! Whether an agent takes calls at all, for all cases of a run: the first that finds out that it does not ends the run for all.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the cases of a run found out about whether an agent takes calls. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Reach {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Whether it answered a call.
    has_answered: bool,
}

impl Reach {
    /// Notes that the agent said something in a call.
    pub(super) fn answered(&self) {
        self.lock().has_answered = true;
    }

    /// Whether an agent that takes no call as things are set up will take no other one either: as long as it answered none. One that
    /// answered others means the case.
    pub(super) fn takes_none(&self) -> bool {
        !self.lock().has_answered
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
