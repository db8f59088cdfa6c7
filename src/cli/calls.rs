//! Calls of tools as they happen.

use std::collections::HashMap;

use crate::case::CaseRef;
use crate::conversation::AgentEventKind;
use crate::event::{Payload, RunEvent};
use crate::report::steps::{Room, Step, called, given_back};
use crate::text::printable;

/// The names of open calls, by case and id: what comes back does not always stand right behind its call.
#[derive(Debug, Default)]
pub(super) struct Calls(HashMap<(CaseRef, String), String>);

impl Calls {
    /// What an event says of calls, in a turn; 0: the case has one answer. `None`: nothing.
    pub(super) fn take(&mut self, event: &RunEvent, turn: u32, room: Room) -> Option<Step> {
        let case = event.case.as_ref()?;
        let agent = match &event.payload {
            Payload::Agent(agent) => agent,
            Payload::SpansRead(read) => {
                let names: Vec<String> = read.tool_calls.iter().map(|call| printable(&call.name)).collect();
                let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                let end = if read.confirmed { "" } else { ", their end was not confirmed" };
                return Some(Step::aside(turn, format!("{} spans, tools in them: {names}{end}", read.spans)));
            }
            _ => return None,
        };
        match &agent.kind {
            AgentEventKind::ToolStarted { call, .. } => {
                self.0.insert((case.clone(), call.call_id.clone()), call.name.clone());
                Some(called(turn, call, room))
            }
            AgentEventKind::ToolFinished { call_id, outcome, duration } => {
                let name = self.0.remove(&(case.clone(), call_id.clone())).unwrap_or_else(|| call_id.clone());
                Some(given_back(turn, &name, outcome.as_ref(), *duration, room))
            }
            _ => None,
        }
    }
}
