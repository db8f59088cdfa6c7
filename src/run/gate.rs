//! Watches what comes of the gate of a run, and says when nothing that is left can change it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::resume::Done;
use crate::case::{CaseName, CaseRef};
use crate::plan::{Plan, PlannedCase};
use crate::verdict::baseline::Baseline;
use crate::verdict::gate::{CaseTally, Gate, GateResult, is_decided, judge};
use crate::verdict::{CaseResult, Outcome};

/// How often the answer is looked for during a run: with very many cases that is work.
const LOOKS: usize = 50;

/// The gate of a run, and what its cases add to it.
pub(super) struct GateWatch {
    gate: Gate,
    inner: Mutex<Inner>,
}

struct Inner {
    /// In the order of the plan.
    cases: Vec<CaseTally>,
    /// Place in `cases`.
    places: HashMap<CaseName, usize>,
    /// Executions that have to end before the answer is looked for again.
    pause: usize,
    executions: usize,
    left_out: u32,
}

impl GateWatch {
    /// Watches a gate, of whose run so much is done. `None`: nothing has to be reached.
    pub(super) fn new(gate: &Gate, plan: &Plan, baselines: &[Option<&Baseline>], done: &Done) -> Option<Self> {
        if gate.is_open() {
            return None;
        }
        let mut inner = Inner {
            cases: Vec::new(),
            places: HashMap::new(),
            pause: 0,
            executions: plan.cases.len(),
            left_out: done.left_out,
        };
        for (suite, baseline) in plan.suites.iter().zip(baselines) {
            let before: HashMap<&str, _> = baseline
                .iter()
                .flat_map(|baseline| &baseline.cases)
                .map(|case| (case.id.as_str(), case.tally))
                .collect();
            for planned in plan.cases.iter().filter(|planned| Arc::ptr_eq(&planned.suite, suite)) {
                let case = inner.case(planned, plan.suites.len() > 1);
                case.before = before.get(planned.head().id.as_str()).copied();
                match done.finished.get(&planned.key()) {
                    Some(finished) => case.add(finished.outcome, finished.tally),
                    None => case.open += 1,
                }
            }
        }
        Some(Self { gate: *gate, inner: Mutex::new(inner) })
    }

    /// Takes the verdict on a case.
    pub(super) fn take(&self, case: &CaseRef, result: &CaseResult) {
        let mut inner = self.lock();
        let Some(place) = inner.places.get(&case.name()).copied() else { return };
        let case = &mut inner.cases[place];
        case.open = case.open.saturating_sub(1);
        // What is replayed says nothing about the agent, and is no fault either.
        let outcome = if result.replayed { Outcome::Skipped } else { result.outcome };
        case.add(outcome, result.tally());
        inner.pause = inner.pause.saturating_sub(1);
    }

    /// Notes that `executions` executions are left out.
    pub(super) fn leave_out(&self, executions: usize) {
        self.lock().left_out += u32::try_from(executions).unwrap_or(u32::MAX);
    }

    /// Whether nothing that is left can change the answer, as far as that was looked for.
    pub(super) fn is_decided(&self) -> bool {
        let mut inner = self.lock();
        if self.gate.to_the_end || inner.pause > 0 {
            return false;
        }
        inner.pause = inner.executions / LOOKS;
        is_decided(&self.gate, &inner.cases)
    }

    /// What came of it.
    pub(super) fn result(&self) -> GateResult {
        let inner = self.lock();
        GateResult { left_out: inner.left_out, ..judge(&self.gate, &inner.cases) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

impl Inner {
    fn case(&mut self, planned: &PlannedCase, is_one_of_several: bool) -> &mut CaseTally {
        let name = planned.key().name();
        let place = *self.places.entry(name).or_insert_with_key(|CaseName { suite, case_id }| {
            let case = if is_one_of_several { format!("{suite}: {case_id}") } else { case_id.to_string() };
            let suite = Arc::clone(suite);
            self.cases.push(CaseTally { suite, case, ..CaseTally::default() });
            self.cases.len() - 1
        });
        &mut self.cases[place]
    }
}
