//! What an earlier daemon has done of a run, read from its log.

use std::collections::HashMap;

use super::told::Results;
use crate::case::{CaseKey, CaseRef};
use crate::conversation::JsonText;
use crate::event::{Payload, RunEvent};
use crate::plan::PlannedCase;
use crate::stats::Tally;
use crate::verdict::{Attempt, Outcome, Standing};

/// How far a run came before its daemon ended.
#[derive(Debug, Clone, Default)]
pub struct Done {
    /// Events of its log.
    pub events: u64,
    /// Cases with a verdict.
    pub finished: HashMap<CaseKey, Finished>,
    /// Those of them that were left out because they could not have changed what comes of the gate.
    pub left_out: u32,
    /// Cases that were begun and have none.
    pub begun: HashMap<CaseKey, Begun>,
    /// The values of snapshot tokens, if somebody was asked for them.
    pub snapshot: Option<JsonText>,
    /// What the script after the run is going to be told of it; `None`: there is no such script.
    pub results: Option<Results>,
}

/// What is kept of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// What came of the case.
    pub outcome: Outcome,
    /// How it stands in a comparison.
    pub standing: Standing,
    /// What it says about the agent.
    pub tally: Tally,
}

/// A case that was begun and has no verdict.
#[derive(Debug, Clone, Default)]
pub struct Begun {
    /// The last attempt, from 1.
    pub attempt: u32,
    /// The attempts that ended.
    pub earlier: Vec<Attempt>,
}

impl Done {
    /// Takes the next event of the log.
    pub fn take(&mut self, event: &RunEvent) {
        let case = event.case.as_ref();
        let key = case.map(CaseRef::key);
        match (&event.payload, key, case) {
            (Payload::CaseStarted { .. }, Some(key), Some(case)) => {
                self.begun.entry(key).or_default().attempt = case.attempt;
            }
            (Payload::AttemptFinished(result), Some(key), _) => {
                self.begun.entry(key).or_default().earlier.push(Attempt::of(result));
            }
            (Payload::CaseFinished(result), Some(key), _) => {
                if let (Some(results), Some(case)) = (&mut self.results, case) {
                    results.keep(case, result);
                }
                self.begun.remove(&key);
                self.left_out += u32::from(result.is_left_out());
                let finished = Finished { outcome: result.outcome, standing: result.standing(), tally: result.tally() };
                self.finished.insert(key, finished);
            }
            (Payload::SnapshotTaken(values), ..) => self.snapshot = Some(values.clone()),
            _ => {}
        }
    }

    /// Whether the case has no verdict yet.
    pub(super) fn is_open(&self, case: &PlannedCase) -> bool {
        !self.finished.contains_key(&case.key())
    }
}
