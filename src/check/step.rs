//! What came of one assertion of the Eval Runner Contract.

use crate::limits::JUDGING_CPU;
use crate::suite::pattern::PatternError;
use crate::suite::template::{Data, Unfilled, why_unresolved};
use crate::verdict::{AssertionResult, Outcome};

/// Why a text with tokens is not looked at.
pub(super) const TOO_LONG: &str = "the text is too long once its tokens are replaced";

/// What came of one counted assertion.
pub(super) enum Step {
    Holds,
    Fails(String),
    /// The same, and what was there.
    FailsNear {
        reason: String,
        hint: String,
    },
    /// Not looked at; the tokens are those that lead nowhere.
    Skipped(String, Vec<String>),
    /// Evaluated, but with tokens removed that lead nowhere.
    WithoutTokens(Box<Step>, Vec<String>),
    /// It could not be evaluated.
    Errored(String),
}

impl Step {
    pub(super) fn of(holds: bool, reason: impl FnOnce() -> String) -> Self {
        if holds { Self::Holds } else { Self::Fails(reason()) }
    }

    /// The same; where it fails, with what was there.
    pub(super) fn or_tell(self, hint: impl FnOnce() -> String) -> Self {
        match self {
            Self::Fails(reason) => Self::FailsNear { reason, hint: hint() },
            Self::FailsNear { reason, hint: before } => {
                let told: Vec<String> = [before, hint()].into_iter().filter(|told| !told.is_empty()).collect();
                Self::FailsNear { reason, hint: told.join("; ") }
            }
            other => other,
        }
    }

    pub(super) fn unresolved(tokens: Vec<String>, data: &Data) -> Self {
        Self::Skipped(why_unresolved(&tokens, data), tokens)
    }

    /// It was not looked at, or not to its end.
    pub(super) fn unlooked() -> Self {
        Self::Errored(no_time())
    }

    /// What cannot be put together to be looked at.
    pub(super) fn unfilled(unfilled: Unfilled, data: &Data) -> Self {
        match unfilled {
            Unfilled::Nowhere(tokens) => Self::unresolved(tokens, data),
            Unfilled::TooLong => Self::Errored(TOO_LONG.to_owned()),
        }
    }

    /// Whether a pattern matches, in the words of the field.
    pub(super) fn of_match(matched: Result<bool, PatternError>, reason: impl FnOnce() -> String) -> Self {
        match matched {
            Ok(matched) => Self::of(matched, reason),
            // What cannot be compiled fails its case (a decision of the contract's vectors).
            Err(error @ PatternError::Invalid { .. }) => Self::Fails(error.to_string()),
            Err(error) => Self::Errored(error.to_string()),
        }
    }

    pub(super) fn result(self, name: &str) -> AssertionResult {
        let (mut unresolved_tokens, mut told) = (Vec::new(), String::new());
        let (outcome, reason) = match self {
            Self::Holds => (Outcome::Passed, String::new()),
            Self::Fails(reason) => (Outcome::Failed, reason),
            Self::FailsNear { reason, hint } => {
                told = hint;
                (Outcome::Failed, reason)
            }
            Self::Skipped(reason, tokens) => {
                unresolved_tokens = tokens;
                (Outcome::Skipped, reason)
            }
            Self::Errored(reason) => (Outcome::Errored, reason),
            Self::WithoutTokens(step, tokens) => {
                return AssertionResult { unresolved_tokens: tokens, ..step.result(name) };
            }
        };
        AssertionResult {
            name: name.to_owned(),
            outcome,
            reason,
            hint: told,
            unresolved_tokens,
            blame: None,
            written: None,
            opinion: None,
        }
    }
}

/// Why something was not looked at, or not to its end.
pub(super) fn no_time() -> String {
    format!("not looked at: the assertions took more than {} s of CPU time", JUDGING_CPU.as_secs())
}
