//! Model turns of one call, as far as anybody can count them.
//!
//! An agent that reports its model turns is counted by those, and by the highest number that a report or a call
//! names. Of any other one the rounds of calls are counted whose tools the daemon answers: what a model asks for
//! after it has read a result, it asks for in another turn. A round ends when the agent reports one of its calls as
//! finished, and not when the daemon has sent the result: an agent that announces several calls at once may have
//! sent the second one before it could read the result of the first. Where the calls say which model turn asked for
//! them, that decides. The answer behind the last round is not counted, as nobody knows whether a model wrote it.

use std::collections::HashSet;

use crate::conversation::{AgentEventKind, ToolMode};

/// Counts the model turns of a call.
#[derive(Debug, Default)]
pub(super) struct Turns {
    reported: u32,
    /// The highest model turn that a call names; 0: none names one.
    named: u32,
    rounds: u32,
    /// Ids of the calls of the round.
    round: HashSet<String>,
    /// The model turn that asked for the last call; 0: not known.
    model_turn: u32,
    /// Whether the agent has a result of the round.
    has_result: bool,
}

/// How many model turns a call may take.
#[derive(Debug, Clone, Copy)]
pub struct TurnLimit {
    /// The number of turns.
    pub most: u32,
    /// What happens to the tools of the call.
    pub tool_mode: ToolMode,
}

impl Turns {
    pub(super) fn take(&mut self, event: &AgentEventKind) {
        match event {
            // One that sums up several turns says by its number how many there were.
            AgentEventKind::ModelTurn(turn) => self.reported = self.reported.saturating_add(1).max(turn.index),
            AgentEventKind::ToolStarted { call, model_turn, .. } => {
                self.named = self.named.max(*model_turn);
                let is_next = match (self.model_turn, *model_turn) {
                    (_, 0) | (0, _) => self.has_result,
                    (last, this) => last != this,
                };
                if self.rounds == 0 || is_next {
                    self.rounds = self.rounds.saturating_add(1);
                    self.round.clear();
                    self.has_result = false;
                }
                self.model_turn = *model_turn;
                self.round.insert(call.call_id.clone());
            }
            AgentEventKind::ToolFinished { call_id, .. } => self.has_result |= self.round.contains(call_id),
            _ => {}
        }
    }

    /// The model turns that the agent tells of, by its reports and by its calls; 0: it tells of none.
    const fn told(&self) -> u32 {
        if self.reported > self.named { self.reported } else { self.named }
    }

    /// Whether these are more than there may be.
    pub(super) const fn exceed(&self, limit: TurnLimit) -> bool {
        let counted = match limit.tool_mode {
            // What rounds there are is a guess beside what the agent reports.
            ToolMode::Stub if self.reported == 0 && self.rounds > self.named => self.rounds,
            // Of tools that really run nobody knows which of them were called at once, and of those that are only
            // looked at there is one round.
            ToolMode::Stub | ToolMode::Live | ToolMode::RoutingOnly => self.told(),
        };
        counted > limit.most
    }

    /// What is to be said of how the turns were counted, for the reader of the result.
    pub(super) fn remark(&self, limit: TurnLimit) -> Option<String> {
        let most = limit.most;
        match limit.tool_mode {
            _ if self.reported > 0 => None,
            ToolMode::Stub if self.rounds > self.named && self.exceed(limit) => Some(
                "the agent reports no model turns, so the rounds of its tool calls were counted in their place"
                    .to_owned(),
            ),
            ToolMode::Live if self.named == 0 => Some(format!(
                "maxTurns: {most} is told to the agent and cannot be checked: it reports no model turns, and runs its own tools"
            )),
            ToolMode::Stub | ToolMode::Live | ToolMode::RoutingOnly => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::ModelTurn;

    /// One report of several turns hides none of them.
    #[test]
    fn a_report_counts_as_many_turns_as_its_number_says() {
        for (indexes, expected) in
            [(&[1, 2, 3][..], 3), (&[0, 0, 0], 3), (&[20], 20), (&[3, 4], 4), (&[1, 1], 2), (&[u32::MAX, 1], u32::MAX)]
        {
            let mut turns = Turns::default();
            for index in indexes {
                turns.take(&AgentEventKind::ModelTurn(ModelTurn { index: *index, ..ModelTurn::default() }));
            }
            let limit = |most| TurnLimit { most, tool_mode: ToolMode::Live };
            assert!(!turns.exceed(limit(expected)), "{indexes:?}");
            assert!(turns.exceed(limit(expected - 1)), "{indexes:?}");
        }
    }
}
