//! What happens in cases, as it happens: `-v`.
//!
//! What a case sends, the tool calls, the answer; of a dialogue, and of a script test, turn by turn. Each line begins with its case,
//! because cases that run side by side tell their stories side by side.

use std::collections::HashMap;

use crate::case::CaseRef;
use crate::cli::watch::{Tools, describe_call};
use crate::conversation::{Message, Role, Transcript};
use crate::event::{Payload, RunEvent};
use crate::suite::Suite;
use crate::text::{fit, printable};
use crate::verdict::{CaseResult, Outcome, Turn};

/// Longest text of a message or an answer that is shown, in columns.
const MAX_SAID: usize = 1_000;
/// Most messages of a history that are shown, the last ones.
const MAX_MESSAGES: usize = 20;

/// Tells what happens in cases.
pub(super) struct Verbose<'a> {
    suites: &'a [Suite],
    /// Where the cases of a suite stand in it, by their ids; made when the first of them is told of.
    positions: HashMap<&'a str, HashMap<&'a str, usize>>,
    /// The cases that are under way.
    open: HashMap<CaseRef, Open>,
    tools: Tools,
}

/// A case that is under way.
struct Open {
    has_turns: bool,
    /// The calls of the turn that goes on, which are told behind what they answer.
    calls: Vec<String>,
}

impl<'a> Verbose<'a> {
    /// Of a run of these suites.
    pub(super) fn new(suites: &'a [Suite]) -> Self {
        Self { suites, positions: HashMap::new(), open: HashMap::new(), tools: Tools::new() }
    }

    /// The lines that an event adds.
    pub(super) fn take(&mut self, event: &RunEvent) -> Vec<String> {
        let Some(case) = &event.case else { return Vec::new() };
        let mut lines = Vec::new();
        match &event.payload {
            Payload::CaseStarted { mode, .. } => {
                let has_turns = mode.has_turns();
                self.open.insert(case.clone(), Open { has_turns, calls: Vec::new() });
                if !has_turns {
                    lines = self.messages(case);
                }
            }
            Payload::Agent(_) | Payload::SpansRead(_) => {
                let told = describe_call(event, &mut self.tools);
                match (told, self.open.get_mut(case)) {
                    (Some(told), Some(open)) if open.has_turns => {
                        open.calls.push(format!("turn {} {told}", event.turn));
                    }
                    (told, _) => lines.extend(told),
                }
            }
            Payload::TurnFinished(turn) => lines = self.turn(case, event.turn, turn),
            Payload::CheckpointReached { checkpoint } => {
                lines.push(format!("turn {} checkpoint {} reached", event.turn, printable(checkpoint)));
            }
            Payload::AttemptFinished(result) | Payload::CaseFinished(result) => lines = self.end(case, result),
            _ => {}
        }
        let label = printable(&case.label());
        lines.into_iter().map(|line| format!("  [{label}] {line}")).collect()
    }

    /// What a case of one answer sends.
    fn messages(&mut self, case: &CaseRef) -> Vec<String> {
        let Some(suite) = self.suites.iter().find(|suite| *suite.path == *case.suite) else { return Vec::new() };
        let positions = self.positions.entry(&suite.path).or_insert_with(|| {
            suite.cases.iter().enumerate().map(|(position, head)| (head.id.as_str(), position)).collect()
        });
        let position = positions.get(&*case.case_id);
        let Some(case) = position.and_then(|position| suite.load(*position).ok()) else { return Vec::new() };
        let before = case.messages.len().saturating_sub(MAX_MESSAGES);
        let left_out = (before > 0).then(|| format!("… {before} messages before"));
        left_out.into_iter().chain(case.messages[before..].iter().map(said)).collect()
    }

    fn turn(&mut self, case: &CaseRef, number: u32, turn: &Turn) -> Vec<String> {
        let mut lines = vec![format!("turn {number} user:  {}", short(&turn.input))];
        if !turn.reasoning.is_empty() {
            lines.push(format!("turn {number} why:   {}", short(&turn.reasoning)));
        }
        if !turn.commentary.is_empty() {
            lines.push(format!("turn {number} commentary: {}", short(&turn.commentary)));
        }
        lines.append(&mut self.open.get_mut(case).map(|open| std::mem::take(&mut open.calls)).unwrap_or_default());
        lines.push(format!("turn {number} agent: {}", short(&turn.output)));
        lines
    }

    /// The answer of a case of one, and the calls of a turn that was not answered.
    fn end(&mut self, case: &CaseRef, result: &CaseResult) -> Vec<String> {
        let Some(Open { has_turns, calls }) = self.open.remove(case) else { return Vec::new() };
        let mut lines = calls;
        let Transcript { response, commentary, .. } = &result.transcript;
        if !has_turns && !commentary.is_empty() {
            lines.push(format!("commentary: {}", short(commentary)));
        }
        if !has_turns && result.outcome != Outcome::Skipped && (result.total_turns > 0 || !response.is_empty()) {
            lines
                .push(format!("agent: {}", if response.is_empty() { "(nothing)".to_owned() } else { short(response) }));
        }
        lines
    }
}

fn said(message: &Message) -> String {
    let who = match message.role {
        Role::System => "system:",
        Role::User => "user: ",
        Role::Assistant => "agent:",
        Role::Tool => "tool: ",
    };
    format!("{who} {}", short(&message.text()))
}

fn short(text: &str) -> String {
    fit(&printable(text), MAX_SAID)
}
