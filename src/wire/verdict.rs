//! Verdicts ↔ [`crate::verdict`].

use super::call::{message_from_proto, message_to_proto, tool_call_from_proto, tool_call_to_proto};
use super::control as pb;
use super::value::{WireError, duration_from_proto, duration_to_proto, some_text, usage_from_proto, usage_to_proto};
use crate::conversation::{JsonText, Message, Transcript};
use crate::verdict::{AssertionResult, Attempt, Blame, CaseResult, Cause, CheckpointResult, Opinion, Outcome, Turn};

pub(super) fn case_result_to_proto(result: &CaseResult) -> pb::CaseFinished {
    let transcript = &result.transcript;
    let assertions = result.assertions.iter().map(assertion_to_proto);
    pb::CaseFinished {
        outcome: outcome_to_proto(result.outcome).into(),
        error: result.error.clone().unwrap_or_default(),
        hint: result.hint.clone().unwrap_or_default(),
        assertions: assertions.collect(),
        tool_calls: transcript.tool_calls.iter().map(tool_call_to_proto).collect(),
        usage: transcript.usage.as_ref().map(usage_to_proto),
        duration: Some(duration_to_proto(transcript.duration)),
        cause: result.cause.map_or(pb::Cause::Unspecified, cause_to_proto).into(),
        blame: result.blame.map_or(pb::Blame::Unspecified, blame_to_proto).into(),
        warnings: result.warnings.clone(),
        total_turns: result.total_turns,
        commentary: transcript.commentary.clone(),
        response: Some(message_to_proto(&Message::assistant(transcript.response.clone()))),
        assertions_run: result.assertions_run(),
        assertions_skipped: result.assertions_skipped(),
        skipped_tokens: result.skipped_tokens().map(str::to_owned).collect(),
        warning: result.warning.clone().unwrap_or_default(),
        response_length: transcript.response.encode_utf16().count() as u64,
        failed_assertion: result.failed_assertion.clone().unwrap_or_default(),
        turns: result.turns.iter().map(turn_to_proto).collect(),
        checkpoints: result
            .checkpoints
            .iter()
            .map(|checkpoint| pb::CheckpointResult {
                checkpoint_id: checkpoint.id.clone(),
                reached_at_turn: checkpoint.reached_at_turn,
                required: checkpoint.required,
                assertions: checkpoint.assertions.iter().map(assertion_to_proto).collect(),
            })
            .collect(),
        messages_count: result.messages_count,
        messages: result.messages.iter().map(message_to_proto).collect(),
        earlier: result.earlier.iter().map(attempt_to_proto).collect(),
        console: result.console.clone(),
        replayed: result.replayed,
    }
}

fn assertion_to_proto(assertion: &AssertionResult) -> pb::AssertionResult {
    pb::AssertionResult {
        name: assertion.name.clone(),
        outcome: outcome_to_proto(assertion.outcome).into(),
        reason: assertion.reason.clone(),
        hint: assertion.hint.clone(),
        unresolved_tokens: assertion.unresolved_tokens.clone(),
        blame: assertion.blame.map_or(pb::Blame::Unspecified, blame_to_proto).into(),
        written: assertion.written.as_ref().map(|text| text.as_str().to_owned()).unwrap_or_default(),
        opinion: assertion.opinion.as_ref().map(|opinion| pb::Opinion {
            score: opinion.score,
            replies: opinion.replies.clone(),
            votes: opinion.votes,
            agreeing: opinion.agreeing,
            console: opinion.console.clone(),
        }),
    }
}

pub(super) fn turn_to_proto(turn: &Turn) -> pb::TurnFinished {
    pb::TurnFinished {
        input: turn.input.clone(),
        output: turn.output.clone(),
        commentary: turn.commentary.clone(),
        turn: turn.number,
        reasoning: turn.reasoning.clone(),
    }
}

fn assertion_from_proto(assertion: pb::AssertionResult) -> Result<AssertionResult, WireError> {
    Ok(AssertionResult {
        outcome: outcome_from_proto(assertion.outcome, "assertion.outcome")?,
        name: assertion.name,
        reason: assertion.reason,
        hint: assertion.hint,
        unresolved_tokens: assertion.unresolved_tokens,
        blame: blame_from_proto(assertion.blame)?,
        written: some_text(assertion.written).and_then(|text| JsonText::new(text).ok()),
        opinion: assertion.opinion.map(|opinion| Opinion {
            score: opinion.score,
            replies: opinion.replies,
            votes: opinion.votes,
            agreeing: opinion.agreeing,
            console: opinion.console,
        }),
    })
}

pub(super) fn turn_from_proto(turn: pb::TurnFinished) -> Turn {
    let pb::TurnFinished { input, output, commentary, turn, reasoning } = turn;
    Turn { number: turn, input, output, commentary, reasoning }
}

/// The turns of a case; those of older logs have no numbers, and stand in their order.
fn turns_from_proto(turns: Vec<pb::TurnFinished>) -> Vec<Turn> {
    let turns = (1..).zip(turns.into_iter().map(turn_from_proto));
    turns
        .map(|(position, turn)| Turn { number: if turn.number == 0 { position } else { turn.number }, ..turn })
        .collect()
}

pub(super) fn case_result_from_proto(finished: pb::CaseFinished) -> Result<CaseResult, WireError> {
    let assertions = finished.assertions.into_iter().map(assertion_from_proto).collect::<Result<_, _>>()?;
    Ok(CaseResult {
        outcome: outcome_from_proto(finished.outcome, "case_finished.outcome")?,
        cause: cause_from_proto(finished.cause)?,
        blame: blame_from_proto(finished.blame)?,
        error: some_text(finished.error),
        hint: some_text(finished.hint),
        failed_assertion: some_text(finished.failed_assertion),
        warning: some_text(finished.warning),
        warnings: finished.warnings,
        assertions,
        transcript: Transcript {
            commentary: finished.commentary,
            response: finished.response.map(|message| message_from_proto(message).text()).unwrap_or_default(),
            tool_calls: finished.tool_calls.into_iter().map(tool_call_from_proto).collect::<Result<_, _>>()?,
            usage: finished.usage.as_ref().map(usage_from_proto),
            duration: finished.duration.and_then(duration_from_proto).unwrap_or_default(),
            open_end: None,
        },
        total_turns: finished.total_turns,
        turns: turns_from_proto(finished.turns),
        checkpoints: finished
            .checkpoints
            .into_iter()
            .map(|checkpoint| {
                Ok(CheckpointResult {
                    id: checkpoint.checkpoint_id,
                    reached_at_turn: checkpoint.reached_at_turn,
                    required: checkpoint.required,
                    assertions: checkpoint
                        .assertions
                        .into_iter()
                        .map(assertion_from_proto)
                        .collect::<Result<_, _>>()?,
                })
            })
            .collect::<Result<_, WireError>>()?,
        messages_count: finished.messages_count,
        messages: finished.messages.into_iter().map(message_from_proto).collect(),
        earlier: finished.earlier.into_iter().map(attempt_from_proto).collect::<Result<_, _>>()?,
        console: finished.console,
        replayed: finished.replayed,
    })
}

fn attempt_to_proto(attempt: &Attempt) -> pb::Attempt {
    pb::Attempt {
        outcome: outcome_to_proto(attempt.outcome).into(),
        cause: attempt.cause.map_or(pb::Cause::Unspecified, cause_to_proto).into(),
        blame: attempt.blame.map_or(pb::Blame::Unspecified, blame_to_proto).into(),
        error: attempt.error.clone().unwrap_or_default(),
        duration: Some(duration_to_proto(attempt.duration)),
        usage: attempt.usage.as_ref().map(usage_to_proto),
    }
}

fn attempt_from_proto(attempt: pb::Attempt) -> Result<Attempt, WireError> {
    Ok(Attempt {
        outcome: outcome_from_proto(attempt.outcome, "attempt.outcome")?,
        cause: cause_from_proto(attempt.cause)?,
        blame: blame_from_proto(attempt.blame)?,
        error: some_text(attempt.error),
        duration: attempt.duration.and_then(duration_from_proto).unwrap_or_default(),
        usage: attempt.usage.as_ref().map(usage_from_proto),
    })
}

/// An outcome.
#[must_use]
pub const fn outcome_to_proto(outcome: Outcome) -> pb::Outcome {
    match outcome {
        Outcome::Passed => pb::Outcome::Passed,
        Outcome::Failed => pb::Outcome::Failed,
        Outcome::Skipped => pb::Outcome::Skipped,
        Outcome::Errored => pb::Outcome::Errored,
    }
}

/// Reads an outcome.
///
/// # Errors
/// For one that is not known.
pub fn outcome_from_proto(outcome: i32, field: &'static str) -> Result<Outcome, WireError> {
    match pb::Outcome::try_from(outcome) {
        Ok(pb::Outcome::Passed) => Ok(Outcome::Passed),
        Ok(pb::Outcome::Failed) => Ok(Outcome::Failed),
        Ok(pb::Outcome::Skipped) => Ok(Outcome::Skipped),
        Ok(pb::Outcome::Errored) => Ok(Outcome::Errored),
        Ok(pb::Outcome::Unspecified) | Err(_) => Err(WireError::new(field, format!("{outcome} is no known outcome"))),
    }
}

/// A cause.
#[must_use]
pub const fn cause_to_proto(cause: Cause) -> pb::Cause {
    match cause {
        Cause::Assertion => pb::Cause::Assertion,
        Cause::Timeout => pb::Cause::Timeout,
        Cause::AgentError => pb::Cause::AgentError,
        Cause::MaxTurns => pb::Cause::MaxTurns,
        Cause::MissingCheckpoints => pb::Cause::MissingCheckpoints,
        Cause::ProtocolViolation => pb::Cause::ProtocolViolation,
        Cause::NothingChecked => pb::Cause::NothingChecked,
        Cause::Unreachable => pb::Cause::Unreachable,
        Cause::SimulatorError => pb::Cause::SimulatorError,
        Cause::ValidatorError => pb::Cause::ValidatorError,
        Cause::ScriptError => pb::Cause::ScriptError,
        Cause::CheckpointFailed => pb::Cause::CheckpointFailed,
        Cause::NoInput => pb::Cause::NoInput,
        Cause::Cancelled => pb::Cause::Cancelled,
        Cause::Unsupported => pb::Cause::Unsupported,
        Cause::SnapshotError => pb::Cause::SnapshotError,
    }
}

/// Reads a cause; `None`: there is none.
///
/// # Errors
/// For one that is not known.
pub fn cause_from_proto(cause: i32) -> Result<Option<Cause>, WireError> {
    Ok(Some(match pb::Cause::try_from(cause) {
        Ok(pb::Cause::Unspecified) => return Ok(None),
        Ok(pb::Cause::Assertion) => Cause::Assertion,
        Ok(pb::Cause::Timeout) => Cause::Timeout,
        Ok(pb::Cause::AgentError) => Cause::AgentError,
        Ok(pb::Cause::MaxTurns) => Cause::MaxTurns,
        Ok(pb::Cause::MissingCheckpoints) => Cause::MissingCheckpoints,
        Ok(pb::Cause::ProtocolViolation) => Cause::ProtocolViolation,
        Ok(pb::Cause::NothingChecked) => Cause::NothingChecked,
        Ok(pb::Cause::Unreachable) => Cause::Unreachable,
        Ok(pb::Cause::SimulatorError) => Cause::SimulatorError,
        Ok(pb::Cause::ValidatorError) => Cause::ValidatorError,
        Ok(pb::Cause::ScriptError) => Cause::ScriptError,
        Ok(pb::Cause::CheckpointFailed) => Cause::CheckpointFailed,
        Ok(pb::Cause::NoInput) => Cause::NoInput,
        Ok(pb::Cause::Cancelled) => Cause::Cancelled,
        Ok(pb::Cause::Unsupported) => Cause::Unsupported,
        Ok(pb::Cause::SnapshotError) => Cause::SnapshotError,
        Err(_) => return Err(WireError::new("case_finished.cause", format!("{cause} is no known cause"))),
    }))
}

/// A party.
#[must_use]
pub const fn blame_to_proto(blame: Blame) -> pb::Blame {
    match blame {
        Blame::Agent => pb::Blame::Agent,
        Blame::Simulator => pb::Blame::Simulator,
        Blame::Validator => pb::Blame::Validator,
        Blame::Script => pb::Blame::Script,
        Blame::Suite => pb::Blame::Suite,
        Blame::Daemon => pb::Blame::Daemon,
        Blame::Network => pb::Blame::Network,
    }
}

/// Reads a party; `None`: there is none.
///
/// # Errors
/// For one that is not known.
pub fn blame_from_proto(blame: i32) -> Result<Option<Blame>, WireError> {
    Ok(Some(match pb::Blame::try_from(blame) {
        Ok(pb::Blame::Unspecified) => return Ok(None),
        Ok(pb::Blame::Agent) => Blame::Agent,
        Ok(pb::Blame::Simulator) => Blame::Simulator,
        Ok(pb::Blame::Validator) => Blame::Validator,
        Ok(pb::Blame::Script) => Blame::Script,
        Ok(pb::Blame::Suite) => Blame::Suite,
        Ok(pb::Blame::Daemon) => Blame::Daemon,
        Ok(pb::Blame::Network) => Blame::Network,
        Err(_) => return Err(WireError::new("case_finished.blame", format!("{blame} is nobody known"))),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_lists_round_trip() {
        for number in 1..=15 {
            let cause = cause_from_proto(number).expect("known").expect("set");
            assert_eq!(cause_to_proto(cause) as i32, number);
        }
        for number in 1..=7 {
            let blame = blame_from_proto(number).expect("known").expect("set");
            assert_eq!(blame_to_proto(blame) as i32, number);
        }
        assert!(cause_from_proto(99).is_err() && blame_from_proto(99).is_err() && outcome_from_proto(0, "x").is_err());
    }
}
