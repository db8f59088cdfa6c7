//! Decides when a case may start: in the order of the plan, as many at a time as the run's owner and the agent allow.
//!
//! One task a case, owned by a `JoinSet`: nothing polls, a case that ends makes room in the same moment, and a case
//! whose task dies is still reported.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::task::{Id, JoinError, JoinSet};

use super::case;
use super::control::Pace;
use super::pulse::watched;
use super::shared::Shared;
use crate::case::CaseRef;
use crate::conversation::{CancelReason, Transcript};
use crate::event::Payload;
use crate::plan::PlannedCase;
use crate::verdict::{Blame, CaseResult, Cause, Outcome};

/// Runs all cases; those that are not started because the run is told to end are reported as not run.
pub(super) async fn run_all(shared: Arc<Shared>, cases: Vec<PlannedCase>) {
    let most = shared.callee.description.max_concurrent_invocations.unwrap_or(u32::MAX);
    let mut pace = shared.control.pace.subscribe();
    let mut tasks = JoinSet::new();
    let mut running: HashMap<Id, CaseRef> = HashMap::new();
    let mut waiting = cases.into_iter();
    while waiting.len() > 0 {
        let Pace { paused, concurrency } = *pace.borrow_and_update();
        let limit = concurrency.unwrap_or(shared.spec.concurrency).min(most).max(1);
        tokio::select! {
            biased;
            () = shared.control.stop.cancelled() => break,
            Some(ended) = tasks.join_next_with_id() => {
                reap(&shared, &mut running, ended).await;
                continue;
            }
            () = std::future::ready(()), if !paused && tasks.len() < limit as usize => {}
            Ok(()) = pace.changed() => continue,
        }
        // The loop runs while a case waits.
        let Some(planned) = waiting.next() else { break };
        let key = planned.key();
        // What was begun and has no verdict is begun anew.
        let begun = shared.begun.get(&key).map_or(0, |begun| begun.attempt);
        let case = key.attempt(1 + begun);
        let task = {
            let (shared, case) = (Arc::clone(&shared), case.clone());
            async move { case::run(&shared, &planned, case).await }
        };
        running.insert(tasks.spawn(watched("a case", task)).id(), case);
    }
    while let Some(ended) = tasks.join_next_with_id().await {
        reap(&shared, &mut running, ended).await;
    }
    if shared.control.is_suspending() {
        return;
    }
    let rest: Vec<PlannedCase> = waiting.collect();
    let why = shared.control.why();
    if let Some(gate) = shared.gate.as_ref().filter(|_| shared.control.is_decided()) {
        gate.leave_out(rest.len());
    }
    let not_run = || {
        if let Some(lost) = shared.control.lost() {
            CaseResult::not_run(Cause::Unreachable, Blame::Network, &lost.message)
        } else if shared.control.is_decided() {
            CaseResult::left_out()
        } else if shared.control.is_failing_fast() {
            CaseResult::passed_over(Transcript::default())
        } else {
            CaseResult::not_run(Cause::Cancelled, Blame::Daemon, why)
        }
    };
    shared.journal.not_run(&rest, not_run).await;
}

/// Takes the end of a case's task; one that panicked left its case without a verdict.
async fn reap(shared: &Shared, running: &mut HashMap<Id, CaseRef>, ended: Result<(Id, ()), JoinError>) {
    let error = match ended {
        Ok((id, result)) => {
            running.remove(&id);
            return result;
        }
        Err(error) => error,
    };
    let Some(case) = running.remove(&error.id()) else { return };
    tracing::error!(suite = ?case.suite, case = ?case.case_id, %error, "the task of a case died");
    let text = "the daemon failed while it ran this case";
    let transcript = Transcript::default();
    let result = CaseResult::without_assertions(Outcome::Errored, Cause::Cancelled, Blame::Daemon, text, transcript);
    shared.journal.case(&case, 0, Payload::CaseFinished(Box::new(result))).await;
    if shared.spec.fail_fast {
        shared.control.cancel(CancelReason::FailFast);
    }
}
