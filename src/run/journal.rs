//! Writes a run's log.

use std::sync::Arc;

use super::case_ref;
use crate::event::{CaseRef, Payload, Run};
use crate::plan::PlannedCase;
use crate::store::{Draft, Store, StoreError};
use crate::verdict::CaseResult;

/// The log of one run, to be written.
#[derive(Debug, Clone)]
pub(super) struct Journal {
    store: Arc<Store>,
    run_id: Arc<str>,
}

impl Journal {
    pub(super) fn new(store: Arc<Store>, run_id: String) -> Self {
        Self { store, run_id: Arc::from(run_id) }
    }

    pub(super) fn run_id(&self) -> &str {
        &self.run_id
    }

    /// The run as of its newest event.
    pub(super) async fn current(&self) -> Result<Run, StoreError> {
        self.store.run(&self.run_id).await
    }

    /// An event of the run as a whole.
    pub(super) async fn run(&self, payload: Payload) -> Result<(), StoreError> {
        self.store.append(&self.run_id, vec![Draft { case: None, turn: 0, payload }]).await
    }

    /// An event of a case.
    pub(super) async fn case(&self, case: &CaseRef, turn: u32, payload: Payload) -> Result<(), StoreError> {
        self.store.append(&self.run_id, vec![Draft { case: Some(case.clone()), turn, payload }]).await
    }

    /// Announces the cases of a plan, in its order.
    pub(super) async fn planned(&self, cases: &[PlannedCase]) -> Result<(), StoreError> {
        let drafts = cases.iter().map(|planned| Draft {
            case: Some(case_ref(planned, 1)),
            turn: 0,
            payload: Payload::CasePlanned { name: planned.case().description.clone() },
        });
        self.store.append(&self.run_id, drafts.collect()).await
    }

    /// Ends cases that were never started, so that every planned case has its end.
    pub(super) async fn not_run(
        &self,
        cases: &[PlannedCase],
        result: impl Fn() -> CaseResult,
    ) -> Result<(), StoreError> {
        let drafts = cases.iter().map(|planned| Draft {
            case: Some(case_ref(planned, 1)),
            turn: 0,
            payload: Payload::CaseFinished(Box::new(result())),
        });
        self.store.append(&self.run_id, drafts.collect()).await
    }
}
