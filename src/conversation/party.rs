//! What simulators and validators are asked, and what they answer.

use super::{Message, ToolCall, Usage};
use crate::json::Json;

/// What a simulated user is told before it speaks.
#[derive(Debug, Clone)]
pub struct NextInput<'a> {
    /// Who the user is.
    pub persona: &'a str,
    /// What the user wants.
    pub goal: &'a str,
    /// What was said so far.
    pub conversation: &'a [Message],
    /// Number of the turn that it speaks in, from 1.
    pub turn: u32,
    /// Most turns.
    pub max_turns: u32,
    /// Checkpoints by id and description, and the turn in which each was reached.
    pub checkpoints: Vec<(&'a str, &'a str, Option<u32>)>,
    /// Options of the simulator, an object.
    pub options: &'a Json,
}

/// What a simulated user says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// The message; `None` when it has nothing to say.
    pub message: Option<Message>,
    /// Whether its goal is achieved, or it gave up: nothing follows.
    pub is_last: bool,
    /// Why, in its own words; empty: it does not say.
    pub reasoning: String,
    /// What it consumed, if it says so.
    pub usage: Option<Usage>,
}

/// What a validator is told.
#[derive(Debug, Clone)]
pub struct Judgement<'a> {
    /// The answer that is judged.
    pub output: &'a str,
    /// What must hold of it, in words; may be empty when the metadata say it.
    pub criteria: &'a str,
    /// What was said before it.
    pub conversation: &'a [Message],
    /// The tool calls on the way to it.
    pub tool_calls: &'a [ToolCall],
    /// Options of the assertion, an object.
    pub options: &'a Json,
    /// Type of the assertion.
    pub assertion: &'a str,
}

/// The verdict of a validator, one vote of perhaps several.
#[derive(Debug, Clone, PartialEq)]
pub struct Vote {
    /// Whether the answer meets the criteria.
    pub passed: bool,
    /// Why, for people; may be empty.
    pub reason: String,
    /// How well, from 0 to 1.
    pub score: Option<f64>,
    /// The reply as it came, or as JSON text.
    pub reply: String,
    /// What it consumed, if it says so.
    pub usage: Option<Usage>,
}

/// A score, if it is one: a number from 0 to 1.
#[must_use]
pub fn score_in_range(score: f64) -> Option<f64> {
    (0.0..=1.0).contains(&score).then_some(score)
}
