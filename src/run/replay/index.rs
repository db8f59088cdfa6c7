//! Where the log of an earlier run holds what: what came of its cases, what was sent to whom, and where the answers
//! stand.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::case::{CaseName, CaseRef};
use crate::conversation::{Failure, JsonText};
use crate::event::{Payload, RunEvent, Said};
use crate::verdict::{Blame, CaseResult, Cause, Outcome};

/// An index of a log, which it is told event by event.
#[derive(Debug, Default)]
pub struct Index {
    /// What came of each execution, in the order of the repetitions.
    cases: HashMap<CaseName, Vec<Then>>,
    places: HashMap<(CaseRef, Key), Vec<LogRange>>,
    /// Why a party that was asked did not answer.
    silent: HashMap<(CaseRef, Key), String>,
    /// Which simulators and validators were asked anything.
    asked: HashSet<(CaseRef, Arc<str>)>,
    /// The last turn of each attempt in which an agent was called, or a party spoke.
    turns: HashMap<CaseRef, Turns>,
    /// Where the events of the next call of each case begin.
    next: HashMap<CaseRef, u64>,
    pub(super) snapshot: Option<JsonText>,
}

/// To whom, and the digest of what.
pub(super) type Key = (Arc<str>, Arc<str>);

/// Where an answer stands: in this turn, from the first event to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogRange {
    pub(super) turn: u32,
    pub(super) first: u64,
    pub(super) last: u64,
}

/// The last turns of an attempt; 0: there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Turns {
    /// In which an agent was called.
    pub(super) called: u32,
    /// In which a simulator or validator spoke.
    pub(super) said: u32,
}

/// One execution of a case.
#[derive(Debug, Default)]
pub(super) struct Then {
    /// The attempt that its verdict is about, from 1.
    pub(super) attempt: u32,
    pub(super) came: Came,
}

/// What came of an execution.
#[derive(Debug, Default)]
pub(super) enum Came {
    /// The run ended before it had a verdict.
    #[default]
    Nothing,
    /// It passed or failed.
    Judged,
    /// It has no verdict on the agent.
    Without(Box<Ended>),
}

/// How a case ended without a verdict on the agent.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    pub(super) cause: Option<Cause>,
    pub(super) blame: Option<Blame>,
    pub(super) error: Option<String>,
    /// Whether what it says is about a run before that one.
    pub(super) replayed: bool,
}

impl Came {
    fn of(result: &CaseResult) -> Self {
        let CaseResult { outcome, cause, blame, error, replayed, .. } = result;
        match outcome {
            Outcome::Passed | Outcome::Failed => Self::Judged,
            Outcome::Skipped | Outcome::Errored => Self::Without(Box::new(Ended {
                outcome: *outcome,
                cause: *cause,
                blame: *blame,
                error: error.clone(),
                replayed: *replayed,
            })),
        }
    }
}

impl Index {
    /// Takes the next event of the log.
    pub fn take(&mut self, event: &RunEvent) {
        if let Payload::SnapshotTaken(values) = &event.payload {
            self.snapshot = Some(values.clone());
        }
        let Some(case) = &event.case else { return };
        match &event.payload {
            Payload::CasePlanned { .. } => drop(self.then(case)),
            Payload::CaseStarted { .. } => {
                self.then(case).attempt = case.attempt;
                self.next.insert(case.clone(), event.sequence);
            }
            Payload::AttemptFinished(_) => drop(self.next.remove(case)),
            Payload::CaseFinished(result) => {
                *self.then(case) = Then { attempt: case.attempt, came: Came::of(result) };
                self.next.remove(case);
            }
            // One that was cancelled has no answer to play back.
            Payload::CallEnded(ended) if ended.failure == Some(Failure::Cancelled) => {
                self.next.insert(case.clone(), event.sequence + 1);
            }
            Payload::CallEnded(ended) => {
                let first = self.next.insert(case.clone(), event.sequence + 1).unwrap_or(event.sequence);
                self.turns.entry(case.clone()).or_default().called = event.turn;
                self.add(case, key(&ended.to, &ended.digest), event.turn, first, event.sequence);
            }
            Payload::PartySaid(party) => {
                let key = key(&party.by, &party.digest);
                self.asked.insert((case.clone(), Arc::clone(&key.0)));
                match &party.said {
                    Said::Cancelled => {}
                    // What was not said then is not said again.
                    Said::Silence(why) => drop(self.silent.insert((case.clone(), key), why.clone())),
                    Said::Input { .. } | Said::Vote { .. } => {
                        self.turns.entry(case.clone()).or_default().said = event.turn;
                        self.add(case, key, event.turn, event.sequence, event.sequence);
                    }
                }
            }
            _ => {}
        }
    }

    fn then(&mut self, case: &CaseRef) -> &mut Then {
        let repetitions = self.cases.entry(case.name()).or_default();
        let at = (case.repeat.max(1) - 1) as usize;
        if repetitions.len() <= at {
            repetitions.resize_with(at + 1, Then::default);
        }
        &mut repetitions[at]
    }

    fn add(&mut self, case: &CaseRef, key: Key, turn: u32, first: u64, last: u64) {
        self.places.entry((case.clone(), key)).or_default().push(LogRange { turn, first, last });
    }

    /// The answers to a question in an attempt at a case, in their order.
    pub(super) fn find(&self, case: &CaseRef, key: Key) -> &[LogRange] {
        self.places.get(&(case.clone(), key)).map(Vec::as_slice).unwrap_or_default()
    }

    /// Why the party that was asked did not answer; `None`: it did, or was not asked.
    pub(super) fn silence(&self, case: &CaseRef, key: Key) -> Option<&str> {
        self.silent.get(&(case.clone(), key)).map(String::as_str)
    }

    /// Whether somebody was asked anything.
    pub(super) fn was_asked(&self, case: &CaseRef, by: &str) -> bool {
        self.asked.contains(&(case.clone(), Arc::from(by)))
    }

    /// How far an attempt at a case came.
    pub(super) fn turns(&self, case: &CaseRef) -> Turns {
        self.turns.get(case).copied().unwrap_or_default()
    }

    /// The executions of a case; none: it was not run.
    pub(super) fn executions(&self, case: &CaseName) -> &[Then] {
        self.cases.get(case).map(Vec::as_slice).unwrap_or_default()
    }

    /// The ids of the cases of a suite that were run.
    pub(super) fn ids<'a>(&'a self, suite: &str) -> Vec<&'a str> {
        let ids = self.cases.keys().filter(|case| *case.suite == *suite).map(|case| &*case.case_id);
        ids.collect::<HashSet<_>>().into_iter().collect()
    }
}

pub(super) fn key(to: &str, digest: &str) -> Key {
    (Arc::from(to), Arc::from(digest))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;

    use super::*;
    use crate::conversation::Transcript;
    use crate::event::{CallEnd, PartyRole, PartySaid};

    fn case(repeat: u32, attempt: u32) -> CaseRef {
        CaseRef { suite: "s".into(), case_id: "c".into(), repeat, attempt }
    }

    fn failed() -> CaseResult {
        let (outcome, cause) = (Outcome::Failed, Cause::Timeout);
        CaseResult::without_assertions(outcome, cause, Blame::Agent, "timeout", Transcript::default())
    }

    fn index(events: Vec<(CaseRef, Payload)>) -> Index {
        let mut index = Index::default();
        for (sequence, (case, payload)) in (1..).zip(events) {
            index.take(&RunEvent { sequence, at: Timestamp::default(), case: Some(case), turn: 1, payload });
        }
        index
    }

    fn said(said: Said) -> Payload {
        Payload::PartySaid(Box::new(PartySaid {
            role: PartyRole::Validator,
            by: "judge".to_owned(),
            digest: "d".to_owned(),
            said,
            request_id: String::new(),
            began: None,
            duration: Duration::ZERO,
            endpoint: String::new(),
            usage: None,
            asked: None,
        }))
    }

    /// What nobody waited for then is not played back.
    #[test]
    fn what_was_cancelled_has_no_answer() {
        let vote = Said::Vote { passed: true, reason: String::new(), score: None, reply: String::new() };
        let log = [vote, Said::Silence("no".to_owned()), Said::Cancelled];
        let index = index(log.into_iter().map(|it| (case(1, 1), said(it))).collect());
        let key = || key("judge", "d");
        assert_eq!(index.find(&case(1, 1), key()), [LogRange { turn: 1, first: 1, last: 1 }]);
        assert_eq!(index.silence(&case(1, 1), key()), Some("no"));
        assert_eq!((index.find(&case(2, 1), key()), index.find(&case(1, 2), key())), (&[][..], &[][..]));
    }

    #[test]
    fn each_execution_has_what_came_of_it() {
        let planned = || Payload::CasePlanned { name: String::new(), labels: crate::suite::Labels::default() };
        let ended = |failure| Payload::CallEnded(Box::new(CallEnd { failure, ..CallEnd::default() }));
        let finished = |result| Payload::CaseFinished(Box::new(result));
        let index = index(vec![
            (case(1, 1), planned()),
            (case(2, 1), planned()),
            (case(3, 1), planned()),
            (case(1, 1), ended(None)),
            (case(1, 2), ended(Some(Failure::Timeout))),
            (case(1, 2), finished(failed())),
            (case(2, 1), finished(CaseResult::left_out())),
        ]);
        let executions = index.executions(&case(1, 1).name());
        assert_eq!(executions.len(), 3);
        assert!(matches!(executions[0], Then { attempt: 2, came: Came::Judged }), "{:?}", executions[0]);
        let Came::Without(left_out) = &executions[1].came else { panic!("{:?}", executions[1]) };
        assert_eq!((left_out.outcome, left_out.cause), (Outcome::Skipped, None));
        assert!(matches!(executions[2].came, Came::Nothing));
        assert_eq!(index.find(&case(1, 1), key("", "")).len(), 1);
        assert_eq!(index.find(&case(1, 2), key("", "")), [LogRange { turn: 1, first: 5, last: 5 }]);
        assert_eq!(index.turns(&case(2, 1)), Turns::default());
    }
}
