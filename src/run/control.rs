//! How a run is told to end, to wait or to go on.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::conversation::{CancelReason, Fault};

/// How a run is told to end early.
#[derive(Debug, Clone, Default)]
pub struct Control {
    /// No further case starts; those in flight go on.
    pub(super) stop: CancellationToken,
    /// Cases in flight are cancelled too.
    pub(super) cancel: CancellationToken,
    pub(super) reason: Arc<Mutex<Option<CancelReason>>>,
    /// Why nothing more can be asked of the agent under test.
    pub(super) lost: Arc<OnceLock<Fault>>,
    pub(super) pace: watch::Sender<Pace>,
}

/// How fast cases may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Pace {
    pub(super) paused: bool,
    /// Cases at the same time; `None`: what was asked for.
    pub(super) concurrency: Option<u32>,
}

impl Control {
    /// Starts no further case while it is `paused`, and from now on at most `concurrency` at the same time; `None`: as
    /// many as were asked for.
    pub fn pace(&self, paused: bool, concurrency: Option<u32>) {
        self.pace.send_replace(Pace { paused, concurrency });
    }

    /// Lets the cases in flight end and starts no other.
    pub fn stop(&self, reason: CancelReason) {
        let mut first = self.reason.lock();
        // The first reason counts; but one who wants it to end does so whatever its gate says.
        if first.is_none_or(|first| first == CancelReason::Decided) {
            *first = Some(reason);
        }
        drop(first);
        self.stop.cancel();
    }

    /// Ends the run now.
    pub fn cancel(&self, reason: CancelReason) {
        self.stop(reason);
        self.cancel.cancel();
    }

    /// Starts no other case, because the agent under test takes no more calls. The first who says so counts.
    pub(super) fn lose(&self, why: Fault) {
        let _ = self.lost.set(why);
        self.stop.cancel();
    }

    /// Why the run ends, if it is because the agent takes no more calls.
    pub(super) fn lost(&self) -> Option<&Fault> {
        self.lost.get()
    }

    /// Whether somebody told the run to end before it would have: neither its gate, nor a failed case, nor a lost
    /// agent did.
    pub(super) fn is_cut_short(&self) -> bool {
        self.stop.is_cancelled() && !self.is_failing_fast() && !self.is_decided() && self.lost().is_none()
    }

    /// Waits until the run is told to end.
    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Whether the run is to go on another time: what has no verdict is left open.
    #[must_use]
    pub fn is_suspending(&self) -> bool {
        self.stop.is_cancelled() && self.reason() == CancelReason::Shutdown
    }

    /// Whether the run ends because a case did not pass.
    pub(super) fn is_failing_fast(&self) -> bool {
        self.stop.is_cancelled() && self.reason() == CancelReason::FailFast
    }

    /// Whether the run ends because what comes of its gate is decided.
    pub(super) fn is_decided(&self) -> bool {
        self.stop.is_cancelled() && self.reason() == CancelReason::Decided
    }

    pub(super) fn reason(&self) -> CancelReason {
        self.reason.lock().unwrap_or(CancelReason::User)
    }

    /// Why cases are not run any more, for people.
    pub(super) fn why(&self) -> &'static str {
        match self.reason() {
            CancelReason::Shutdown => "the daemon was stopped",
            CancelReason::FailFast => "a case did not pass, and the run is to fail fast",
            CancelReason::Decided => "what comes of the run is decided",
            CancelReason::User | CancelReason::Budget | CancelReason::ProtocolError | CancelReason::MaxTurns => {
                "the run was cancelled"
            }
        }
    }
}
