//! A dialogue with a simulated user, as a pure machine: the engine asks simulator, agent and validators, and tells here
//! what came; here is decided which checkpoints are reached and whether the dialogue goes on.

use super::contract::is_unsettled;
use crate::conversation::Message;
use crate::suite::{Checkpoint, Dialogue};
use crate::verdict::{AssertionResult, Blame, Cause, CheckpointResult, Outcome, Turn};

/// A dialogue under way.
#[derive(Debug)]
pub struct Progress<'a> {
    dialogue: &'a Dialogue,
    /// The turn in which each checkpoint was reached.
    reached: Vec<Option<u32>>,
    /// What came of the claims of each when they were looked at last.
    looked: Vec<Vec<AssertionResult>>,
    /// Why nobody knows whether a checkpoint was reached, if somebody looked and could not tell.
    unsettled: Vec<Option<String>>,
    /// The turns that the agent answered.
    turns: Vec<Turn>,
    /// What both sides see.
    conversation: Vec<Message>,
}

/// How a dialogue ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// All that had to be reached was.
    Passed,
    /// It failed, or could not be judged.
    Bad {
        /// Which of both.
        outcome: Outcome,
        /// Why.
        cause: Cause,
        /// Whose fault it was.
        blame: Blame,
        /// In the words of the framework.
        error: String,
    },
}

impl Ending {
    /// Whether the dialogue ended in the middle: somebody failed, or the time was up. Else its last answer is its last.
    #[must_use]
    pub const fn is_cut_short(&self) -> bool {
        !matches!(self, Self::Passed | Self::Bad { cause: Cause::MaxTurns | Cause::MissingCheckpoints, .. })
    }
}

impl<'a> Progress<'a> {
    /// A dialogue of which nothing was said; `opening` are the messages that the case itself begins with, without
    /// the last one of the user, which is the first input.
    #[must_use]
    pub fn new(dialogue: &'a Dialogue, opening: Vec<Message>) -> Self {
        Self {
            dialogue,
            reached: vec![None; dialogue.checkpoints.len()],
            looked: vec![Vec::new(); dialogue.checkpoints.len()],
            unsettled: vec![None; dialogue.checkpoints.len()],
            turns: Vec::new(),
            conversation: opening,
        }
    }

    /// Number of the turn that comes next, from 1.
    #[must_use]
    pub fn next_turn(&self) -> u32 {
        u32::try_from(self.turns.len()).unwrap_or(u32::MAX).saturating_add(1)
    }

    /// What both sides see.
    #[must_use]
    pub fn conversation(&self) -> &[Message] {
        &self.conversation
    }

    /// The checkpoints, and the turn in which each was reached.
    pub fn checkpoints(&self) -> impl Iterator<Item = (&'a Checkpoint, Option<u32>)> + '_ {
        self.dialogue.checkpoints.iter().zip(self.reached.iter().copied())
    }

    /// Notes what the user says.
    pub fn say(&mut self, input: Message) {
        self.conversation.push(input);
    }

    /// Notes what the agent answered to the last input, what it had said before that, which the user does not see,
    /// and why the user had said what it did.
    pub fn answer(&mut self, text: &str, commentary: &str, reasoning: String) {
        let input = self.conversation.last().map(Message::text).unwrap_or_default();
        self.conversation.push(Message::assistant(text));
        let (output, commentary) = (text.to_owned(), commentary.to_owned());
        self.turns.push(Turn { number: self.next_turn(), input, output, commentary, reasoning });
    }

    /// The turns that were answered.
    #[must_use]
    pub fn turns(&self) -> &[Turn] {
        &self.turns
    }

    /// The turn that was answered last.
    #[must_use]
    pub fn last_turn(&self) -> Option<&Turn> {
        self.turns.last()
    }

    /// The position of the next checkpoint behind `from` to look at in this turn: not reached yet, and all it waits
    /// for is.
    #[must_use]
    pub fn next_open(&self, from: usize) -> Option<usize> {
        let is_open = |position: &usize| {
            let waits = &self.dialogue.checkpoints[*position].after;
            self.reached[*position].is_none() && waits.iter().all(|after| self.reached[*after].is_some())
        };
        (from..self.reached.len()).find(is_open)
    }

    /// Takes what came of the claims of a checkpoint against the last answer.
    ///
    /// # Errors
    /// When it cannot be evaluated, which ends the dialogue.
    pub fn look(&mut self, position: usize, results: Vec<AssertionResult>) -> Result<bool, Ending> {
        let checkpoint = &self.dialogue.checkpoints[position];
        let is_reached = results.iter().all(|result| result.outcome == Outcome::Passed);
        // What nobody knows in this turn may be seen in another one.
        let unsettled = results.iter().find(|result| is_unsettled(result));
        if let Some(unsettled) = unsettled.filter(|_| !is_reached) {
            self.unsettled[position] = Some(format!("{}: {}", unsettled.name, unsettled.reason));
        }
        let broken = results.iter().find(|result| result.outcome == Outcome::Errored && !is_unsettled(result));
        let broken = broken.cloned();
        self.looked[position] = results;
        if let Some(broken) = broken {
            return Err(Ending::Bad {
                outcome: Outcome::Errored,
                cause: Cause::CheckpointFailed,
                blame: broken.blame.unwrap_or(Blame::Suite),
                error: format!("checkpoint {} failed: {}: {}", checkpoint.id, broken.name, broken.reason),
            });
        }
        if is_reached {
            self.reached[position] = Some(self.next_turn() - 1);
        }
        Ok(is_reached)
    }

    /// Whether the dialogue is over, once all checkpoints were looked at: all reached, then the goal, then the limit.
    #[must_use]
    pub fn ending(&self, goal_achieved: bool) -> Option<Ending> {
        if self.missing().is_empty() {
            return Some(Ending::Passed);
        }
        if goal_achieved {
            return Some(self.missing_ending());
        }
        let limit = self.dialogue.max_turns;
        (self.next_turn() > limit).then(|| {
            self.unsettled_ending().unwrap_or_else(|| Ending::Bad {
                outcome: Outcome::Failed,
                cause: Cause::MaxTurns,
                blame: Blame::Agent,
                error: format!("max turns ({limit}) exceeded"),
            })
        })
    }

    /// The end of a dialogue of which nobody knows whether it reached what is missing.
    fn unsettled_ending(&self) -> Option<Ending> {
        let open = self.checkpoints().zip(&self.unsettled);
        let mut open = open.filter(|((checkpoint, reached), _)| checkpoint.required && reached.is_none());
        open.find_map(|((checkpoint, _), unsettled)| {
            let why = unsettled.as_ref()?;
            Some(Ending::Bad {
                outcome: Outcome::Errored,
                cause: Cause::CheckpointFailed,
                blame: Blame::Network,
                error: format!("checkpoint {} failed: {why}", checkpoint.id),
            })
        })
    }

    /// The end of a dialogue whose user has nothing more to say.
    #[must_use]
    pub fn missing_ending(&self) -> Ending {
        self.unsettled_ending().unwrap_or_else(|| Ending::Bad {
            outcome: Outcome::Failed,
            cause: Cause::MissingCheckpoints,
            blame: Blame::Agent,
            error: format!("missing checkpoints: {}", self.missing().join(", ")),
        })
    }

    fn missing(&self) -> Vec<&str> {
        let open = self.checkpoints().filter(|(checkpoint, reached)| checkpoint.required && reached.is_none());
        open.map(|(checkpoint, _)| checkpoint.id.as_str()).collect()
    }

    /// The turns, and what came of the checkpoints.
    #[must_use]
    pub fn into_results(self) -> (Vec<Turn>, Vec<CheckpointResult>) {
        let looked = self.looked.iter().cloned();
        let checkpoints = self.checkpoints().zip(looked).map(|((checkpoint, reached_at_turn), assertions)| {
            CheckpointResult { assertions, id: checkpoint.id.clone(), reached_at_turn, required: checkpoint.required }
        });
        let checkpoints = checkpoints.collect();
        (self.turns, checkpoints)
    }
}
