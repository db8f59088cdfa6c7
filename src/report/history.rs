//! A dialogue that was recorded → cases of Agent Test Framework V2 that each begin with what was said, one a turn.
//!
//! So a conversation that once went well, or wrong, can be tested at every point of it: without a simulator, and
//! without one turn waiting for the one before.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::conversation::Message;
use crate::event::{Payload, RunEvent};
use crate::json::write_string;
use crate::suite::claim::{ClaimKind, Scope};
use crate::suite::framework::write_message;
use crate::suite::{Case, Dialogue, Mode};
use crate::verdict::CaseResult;

/// The cases of a dialogue, each a line without its line break, made when it is asked for.
///
/// A case asserts what the checkpoints assert that were reached in its turn, and what must not happen in any turn; the
/// last one also what the dialogue asserts of its last answer. What it asserts of the tool calls of all turns together
/// is about no turn.
#[derive(Debug)]
pub struct History {
    case: Case,
    /// The verdict on the case.
    verdict: Arc<RunEvent>,
    /// What was said before the next turn, as the items of a JSON list.
    said: String,
    /// Turns that were written.
    turns: usize,
}

impl History {
    /// The history of a case with its verdict; `None` if it is no dialogue, or the event is no verdict.
    #[must_use]
    pub fn new(case: Case, verdict: Arc<RunEvent>) -> Option<Self> {
        let (Mode::Dynamic(_), Payload::CaseFinished(result)) = (&case.mode, &verdict.payload) else { return None };
        // What the case itself begins with stands before the first turn, without the message that was its input.
        let first = result.turns.first().map(|turn| turn.input.as_str());
        let opening = match case.messages.split_last() {
            Some((last, before)) if first == Some(last.text().as_str()) => before,
            _ => case.messages.as_slice(),
        };
        let mut said = String::new();
        for message in opening {
            push(&mut said, message);
        }
        Some(Self { case, verdict, said, turns: 0 })
    }
}

impl Iterator for History {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let (Mode::Dynamic(dialogue), Payload::CaseFinished(result)) = (&self.case.mode, &self.verdict.payload) else {
            return None;
        };
        let turn = result.turns.get(self.turns)?;
        self.turns += 1;
        // The message that the case itself begins with may hold more than text.
        let own = self.case.messages.last().filter(|last| self.turns == 1 && last.text() == turn.input);
        push(&mut self.said, &own.cloned().unwrap_or_else(|| Message::user(turn.input.as_str())));
        let number = u32::try_from(self.turns).unwrap_or(u32::MAX);
        let line = line(&self.case, dialogue, result, number, &self.said);
        push(&mut self.said, &Message::assistant(turn.output.as_str()));
        Some(line)
    }
}

fn push(said: &mut String, message: &Message) {
    if !said.is_empty() {
        said.push_str(", ");
    }
    write_message(message, said);
}

fn line(case: &Case, dialogue: &Dialogue, result: &CaseResult, turn: u32, said: &str) -> String {
    let mut out = String::from("{\"id\": ");
    write_string(&format!("{}-turn{turn}", case.id), &mut out);
    out.push_str(", \"name\": ");
    let name = if case.description.is_empty() { &case.id } else { &case.description };
    write_string(&format!("{name} - turn {turn}"), &mut out);
    let _ = write!(out, ", \"messages\": [{said}], \"assertions\": [");
    let reached = dialogue.checkpoints.iter().filter(|checkpoint| {
        result.checkpoints.iter().any(|came| came.id == checkpoint.id && came.reached_at_turn == Some(turn))
    });
    let is_last = result.turns.len() == turn as usize;
    let rules = case.claims.iter().filter(|claim| match claim.scope() {
        Scope::EveryAnswer => true,
        Scope::Tools => claim.forbids_a_call(),
        Scope::LastAnswer | Scope::Others => false,
    });
    // An answer is stored for the dialogue, and for no case that it becomes.
    let at_the_end = case.claims.iter().filter(|claim| {
        let is_about_the_end = matches!(claim.scope(), Scope::LastAnswer | Scope::Others);
        is_last && is_about_the_end && !matches!(claim.kind, ClaimKind::Snapshot { .. })
    });
    let claims = rules.chain(reached.flat_map(|checkpoint| &checkpoint.claims)).chain(at_the_end);
    for (index, claim) in claims.enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        out.push_str(claim.written.as_str());
    }
    out.push(']');
    if let Some(options) = &case.options {
        out.push_str(", \"options\": ");
        out.push_str(options.as_str());
    }
    out.push('}');
    out
}
