//! Model turns of one call, as far as anybody can count them.
//!
//! An agent that reports its model turns is counted by those. Of any other one the rounds of calls are counted whose tools the daemon
//! answers: what a model asks for after it has read a result, it asks for in another turn. A round ends when the agent reports one of
//! its calls as finished, and not when the daemon has sent the result: an agent that announces several calls at once may have sent
//! the second one before it could read the result of the first. Where the calls say which model turn asked for them, that decides.
//! The answer behind the last round is not counted, as nobody knows whether a model wrote it.

use std::collections::HashSet;

use crate::conversation::{AgentEventKind, ToolMode};

/// Counts the model turns of a call.
#[derive(Debug, Default)]
pub(super) struct Turns {
    reported: u32,
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
    /// So many.
    pub most: u32,
    /// What happens to the tools of the call.
    pub tool_mode: ToolMode,
}

impl Turns {
    pub(super) fn take(&mut self, event: &AgentEventKind) {
        match event {
            AgentEventKind::ModelTurn(_) => self.reported = self.reported.saturating_add(1),
            AgentEventKind::ToolStarted { call, model_turn, .. } => {
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

    /// Whether these are more than there may be.
    pub(super) const fn exceed(&self, limit: TurnLimit) -> bool {
        let counted = match limit.tool_mode {
            _ if self.reported > 0 => self.reported,
            // Of tools that really run nobody knows which of them were called at once, and of those that are only looked at there is
            // one round.
            ToolMode::Live | ToolMode::RoutingOnly => 0,
            ToolMode::Stub => self.rounds,
        };
        counted > limit.most
    }

    /// What is to be said of how the turns were counted, for whoever reads the result.
    pub(super) fn remark(&self, limit: TurnLimit) -> Option<String> {
        let most = limit.most;
        match limit.tool_mode {
            _ if self.reported > 0 => None,
            ToolMode::Stub if self.exceed(limit) => Some(
                "the agent reports no model turns, so the rounds of its tool calls were counted in their place"
                    .to_owned(),
            ),
            ToolMode::Live => Some(format!(
                "maxTurns: {most} is told to the agent and cannot be checked: it reports no model turns, and runs its own tools"
            )),
            ToolMode::Stub | ToolMode::RoutingOnly => None,
        }
    }
}
