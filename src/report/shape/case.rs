//! A case in a result.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::assertion::Assertion;
use super::said::{Asked, Call, Said};
use super::{Text, Texts, named, owned, text};
use crate::case::CaseRef;
use crate::conversation::{Cost, Message, Transcript, Usage};
use crate::event::{Payload, SuiteInfo};
use crate::report::Verdict;
use crate::suite::Labels;
use crate::verdict::{Attempt, Blame, CaseResult, Cause, CheckpointResult, Outcome, whole_millis};

/// A case. What follows from the rest of it is not read again.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::report) struct Case<'a> {
    id: Text<'a>,
    #[serde(default)]
    description: Text<'a>,
    #[serde(skip_deserializing)]
    passed: bool,
    duration_ms: u64,
    #[serde(skip_deserializing)]
    assertions_run: u32,
    #[serde(skip_deserializing)]
    assertions_skipped: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<Text<'a>>,
    #[serde(skip_deserializing)]
    details: Details<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    difficulty: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bug_ref: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<Text<'a>>,
    #[serde(default, skip_serializing_if = "<[String]>::is_empty")]
    tags: Texts<'a>,
    outcome: Text<'a>,
    cause: Option<Text<'a>>,
    blame: Option<Text<'a>>,
    assertion: Option<Text<'a>>,
    warning: Option<Text<'a>>,
    #[serde(default)]
    warnings: Texts<'a>,
    #[serde(skip_deserializing)]
    stale: bool,
    #[serde(default = "one")]
    attempts: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    earlier_attempts: Vec<Earlier<'a>>,
    #[serde(skip_deserializing)]
    flaky: bool,
    #[serde(default = "one")]
    repeat: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    assertions: Vec<Assertion<'a>>,
    /// What the case itself sends: the last messages, if it has many. Not there: a dialogue, whose turns say it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    messages: Vec<Asked<'a>>,
    #[serde(default)]
    total_turns: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    turns: Vec<Said<'a>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    checkpoints: Vec<Checkpoint<'a>>,
    usage: Option<Used>,
    #[serde(default)]
    tool_calls: Vec<Call<'a>>,
    #[serde(default)]
    response: Text<'a>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    commentary: Text<'a>,
    #[serde(default, skip_serializing_if = "<[String]>::is_empty")]
    console: Texts<'a>,
    #[serde(default, skip_serializing_if = "is_false")]
    replayed: bool,
    // These follow from the run.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    span_id: Option<String>,
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    trace_url: Option<String>,
}

const fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
pub(in crate::report) const fn is_false(flag: &bool) -> bool {
    !*flag
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct Details<'a> {
    tools_called: Vec<&'a str>,
    /// In UTF-16 code units, as JavaScript counts.
    response_length: usize,
    skipped_tokens: Vec<&'a str>,
}

impl<'a> Case<'a> {
    pub(in crate::report) fn of(verdict: Verdict<'a>, suite: &SuiteInfo) -> Self {
        let traced = verdict.traced();
        let (result, labels) = (verdict.result, verdict.labels);
        let transcript = &result.transcript;
        Self {
            id: (&*verdict.case.case_id).into(),
            description: verdict.name.into(),
            passed: result.outcome == Outcome::Passed,
            duration_ms: whole_millis(transcript.duration),
            assertions_run: result.assertions_run(),
            assertions_skipped: result.assertions_skipped(),
            error: text(result.error.as_deref()),
            hint: text(result.hint.as_deref()),
            details: Details {
                tools_called: transcript.tool_calls.iter().map(|call| call.name.as_str()).collect(),
                response_length: transcript.response.encode_utf16().count(),
                skipped_tokens: result.skipped_tokens().collect(),
            },
            difficulty: text(labels.difficulty.as_deref()),
            bug_ref: text(labels.bug_ref.as_deref()),
            created_at: text(labels.created_at.as_deref()),
            tags: (&*labels.tags).into(),
            outcome: result.outcome.name().into(),
            cause: text(result.cause.map(Cause::name)),
            blame: text(result.blame.map(Blame::name)),
            assertion: text(result.failed_assertion.as_deref()),
            warning: text(result.warning.as_deref()),
            warnings: (&*result.warnings).into(),
            stale: suite.staleness.as_ref().is_some_and(|today| today.stale),
            attempts: verdict.case.attempt,
            earlier_attempts: result.earlier.iter().map(Earlier::of).collect(),
            flaky: result.is_flaky(),
            repeat: verdict.case.repeat,
            assertions: result.assertions.iter().map(Assertion::of).collect(),
            messages: result.messages.iter().map(Asked::of).collect(),
            total_turns: result.total_turns,
            turns: result.turns.iter().map(Said::of).collect(),
            checkpoints: result.checkpoints.iter().map(Checkpoint::of).collect(),
            usage: transcript.usage.map(Used::from),
            tool_calls: transcript.tool_calls.iter().map(Call::of).collect(),
            response: (&*transcript.response).into(),
            commentary: (&*transcript.commentary).into(),
            console: (&*result.console).into(),
            replayed: result.replayed,
            trace_id: traced.as_ref().map(|traced| traced.trace_id.clone()),
            span_id: traced.as_ref().map(|traced| traced.span_id.clone()),
            trace_url: traced.and_then(|traced| traced.url),
        }
    }

    /// Which repetition it is.
    pub(in crate::report) const fn repeat(&self) -> u32 {
        self.repeat
    }

    /// The case, what its file says about it, and what came of it.
    pub(in crate::report) fn read(&self, suite: &str) -> Result<(CaseRef, Payload, CaseResult), String> {
        let (case_id, repeat, attempt) = ((&*self.id).into(), self.repeat, self.attempts);
        let case = CaseRef { suite: suite.into(), case_id, repeat, attempt };
        let labels = Labels {
            difficulty: owned(self.difficulty.as_ref()),
            bug_ref: owned(self.bug_ref.as_ref()),
            created_at: owned(self.created_at.as_ref()),
            tags: self.tags.to_vec(),
        };
        let planned = Payload::CasePlanned { name: self.description.clone().into_owned(), labels };
        let result = self.result().map_err(|error| format!("case {:?}: {error}", self.id))?;
        Ok((case, planned, result))
    }

    fn result(&self) -> Result<CaseResult, String> {
        let transcript = Transcript {
            response: self.response.clone().into_owned(),
            commentary: self.commentary.clone().into_owned(),
            tool_calls: self.tool_calls.iter().enumerate().map(Call::read).collect(),
            usage: self.usage.as_ref().map(Used::read),
            duration: Duration::from_millis(self.duration_ms),
            ..Transcript::default()
        };
        let messages: Vec<Message> = self.messages.iter().map(Asked::read).collect::<Result<_, _>>()?;
        Ok(CaseResult {
            outcome: named("outcome", &self.outcome, Outcome::named)?,
            cause: cause(self.cause.as_ref())?,
            blame: blame(self.blame.as_ref())?,
            error: owned(self.error.as_ref()),
            hint: owned(self.hint.as_ref()),
            failed_assertion: owned(self.assertion.as_ref()),
            warning: owned(self.warning.as_ref()),
            warnings: self.warnings.to_vec(),
            assertions: self.assertions.iter().map(Assertion::read).collect::<Result<_, _>>()?,
            transcript,
            total_turns: self.total_turns,
            turns: self.turns.iter().map(Said::read).collect(),
            checkpoints: self.checkpoints.iter().map(Checkpoint::read).collect::<Result<_, _>>()?,
            messages_count: u32::try_from(messages.len()).unwrap_or(u32::MAX),
            messages,
            earlier: self.earlier_attempts.iter().map(Earlier::read).collect::<Result<_, _>>()?,
            console: self.console.to_vec(),
            replayed: self.replayed,
        })
    }
}

fn cause(word: Option<&Text<'_>>) -> Result<Option<Cause>, String> {
    word.map(|word| named("cause", word, Cause::named)).transpose()
}

fn blame(word: Option<&Text<'_>>) -> Result<Option<Blame>, String> {
    word.map(|word| named("blame", word, Blame::named)).transpose()
}

/// An attempt after which the case was tried again.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Earlier<'a> {
    outcome: Text<'a>,
    cause: Option<Text<'a>>,
    blame: Option<Text<'a>>,
    error: Option<Text<'a>>,
    duration_ms: u64,
}

impl<'a> Earlier<'a> {
    fn of(attempt: &'a Attempt) -> Self {
        Self {
            outcome: attempt.outcome.name().into(),
            cause: text(attempt.cause.map(Cause::name)),
            blame: text(attempt.blame.map(Blame::name)),
            error: text(attempt.error.as_deref()),
            duration_ms: whole_millis(attempt.duration),
        }
    }

    fn read(&self) -> Result<Attempt, String> {
        Ok(Attempt {
            outcome: named("outcome", &self.outcome, Outcome::named)?,
            cause: cause(self.cause.as_ref())?,
            blame: blame(self.blame.as_ref())?,
            error: owned(self.error.as_ref()),
            duration: Duration::from_millis(self.duration_ms),
            usage: None,
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Checkpoint<'a> {
    id: Text<'a>,
    #[serde(skip_deserializing)]
    passed: bool,
    reached_at_turn: Option<u32>,
    #[serde(default)]
    required: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    assertions: Vec<Assertion<'a>>,
}

impl<'a> Checkpoint<'a> {
    fn of(checkpoint: &'a CheckpointResult) -> Self {
        Self {
            id: (&*checkpoint.id).into(),
            passed: checkpoint.reached_at_turn.is_some(),
            reached_at_turn: checkpoint.reached_at_turn,
            required: checkpoint.required,
            assertions: checkpoint.assertions.iter().map(Assertion::of).collect(),
        }
    }

    fn read(&self) -> Result<CheckpointResult, String> {
        Ok(CheckpointResult {
            id: self.id.clone().into_owned(),
            reached_at_turn: self.reached_at_turn,
            required: self.required,
            assertions: self.assertions.iter().map(Assertion::read).collect::<Result<_, _>>()?,
        })
    }
}

/// What a case used, as far as it was told. `costEstimated` says that the cost comes from a price list.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Used {
    input_tokens: Option<i64>,
    output_tokens: Option<i64>,
    cache_read_tokens: Option<i64>,
    cache_write_tokens: Option<i64>,
    reasoning_tokens: Option<i64>,
    cost_usd: Option<f64>,
    cost_estimated: Option<bool>,
}

impl From<Usage> for Used {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cache_read_tokens: usage.cache_read_tokens,
            cache_write_tokens: usage.cache_write_tokens,
            reasoning_tokens: usage.reasoning_tokens,
            cost_usd: usage.cost.map(Cost::usd),
            cost_estimated: usage.cost.map(|cost| cost.estimated),
        }
    }
}

impl Used {
    fn read(&self) -> Usage {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float that is too large saturates"
        )]
        let nano_usd = |usd: f64| (usd * 1e9).round() as u64;
        let estimated = self.cost_estimated.unwrap_or(false);
        Usage {
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            cache_read_tokens: self.cache_read_tokens,
            cache_write_tokens: self.cache_write_tokens,
            reasoning_tokens: self.reasoning_tokens,
            cost: self.cost_usd.map(|usd| Cost { nano_usd: nano_usd(usd), estimated }),
        }
    }
}
