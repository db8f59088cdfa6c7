//! What happens in cases, as it happens: `-v`.
//!
//! What a case sends, the tool calls, the answer; of a dialogue, and of a script test, turn by turn. Each line begins
//! with its case, because cases that run side by side tell their stories side by side.

use std::collections::HashMap;

use crate::case::CaseRef;
use crate::cli::calls::Calls;
use crate::event::{Payload, RunEvent};
use crate::report::steps::{Room, Step, answered, reached, sent, turn_of};
use crate::suite::Suite;
use crate::text::printable;
use crate::verdict::CaseResult;

/// Tells what happens in cases.
pub(super) struct Verbose<'a> {
    suites: &'a [Suite],
    /// Where the cases of a suite stand in it, by their ids; made when the first of them is told of.
    positions: HashMap<&'a str, HashMap<&'a str, usize>>,
    /// The cases that are under way.
    open: HashMap<CaseRef, Open>,
    calls: Calls,
}

/// A case that is under way.
struct Open {
    has_turns: bool,
    /// The calls of the turn that goes on, which are told behind what they answer.
    called: Vec<Step>,
}

impl<'a> Verbose<'a> {
    /// Of a run of these suites.
    pub(super) fn new(suites: &'a [Suite]) -> Self {
        Self { suites, positions: HashMap::new(), open: HashMap::new(), calls: Calls::default() }
    }

    /// The lines that an event adds.
    pub(super) fn take(&mut self, event: &RunEvent) -> Vec<String> {
        let Some(case) = &event.case else { return Vec::new() };
        let mut steps = Vec::new();
        match &event.payload {
            Payload::CaseStarted { mode, .. } => {
                let has_turns = mode.has_turns();
                self.open.insert(case.clone(), Open { has_turns, called: Vec::new() });
                if !has_turns {
                    steps = self.messages(case);
                }
            }
            Payload::Agent(_) | Payload::SpansRead(_) => match self.open.get_mut(case) {
                Some(open) if open.has_turns => open.called.extend(self.calls.take(event, event.turn, Room::LIVE)),
                _ => steps.extend(self.calls.take(event, 0, Room::LIVE)),
            },
            Payload::TurnFinished(turn) => {
                let called = self.open.get_mut(case).map(|open| std::mem::take(&mut open.called));
                steps = turn_of(turn, called.unwrap_or_default(), Room::LIVE);
            }
            Payload::CheckpointReached { checkpoint } => steps.push(reached(event.turn, checkpoint, Room::LIVE)),
            Payload::AttemptFinished(result) | Payload::CaseFinished(result) => steps = self.end(case, result),
            _ => {}
        }
        let label = printable(&case.label());
        steps.into_iter().map(|step| format!("  [{label}] {}", step.in_a_line())).collect()
    }

    /// What a case of one answer sends.
    fn messages(&mut self, case: &CaseRef) -> Vec<Step> {
        let Some(suite) = self.suites.iter().find(|suite| *suite.path == *case.suite) else { return Vec::new() };
        let positions = self.positions.entry(&suite.path).or_insert_with(|| {
            suite.cases.iter().enumerate().map(|(position, head)| (head.id.as_str(), position)).collect()
        });
        let position = positions.get(&*case.case_id);
        let Some(case) = position.and_then(|position| suite.load(*position).ok()) else { return Vec::new() };
        sent(&case.messages, case.messages.len(), Room::LIVE)
    }

    /// The answer of a case of one, and the calls of a turn that was not answered.
    fn end(&mut self, case: &CaseRef, result: &CaseResult) -> Vec<Step> {
        let Some(Open { has_turns, called }) = self.open.remove(case) else { return Vec::new() };
        let answer = if has_turns { Vec::new() } else { answered(result, Room::LIVE) };
        called.into_iter().chain(answer).collect()
    }
}
