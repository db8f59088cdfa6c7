//! What scripts are told, as JSON: contexts, cases, results, and what an agent did.

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::case::CaseRef;
use crate::conversation::{Arguments, JsonText, MaybeJson, Message, ToolCall, ToolOutcome};
use crate::suite::framework::message_json;
use crate::suite::{Case, Mode};
use crate::verdict::{CaseResult, Cause, Outcome, whole_millis};

/// Most bytes of all cases, or of all results, that a script around a run is told.
pub(super) const MAX_TOLD: usize = 16 << 20;

/// The context of a call, as a script is told.
#[derive(Serialize)]
struct Context<'a> {
    locale: &'static str,
    authorized: Authorized,
    assistant_id: String,
    chat_id: String,
    metadata: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct Authorized {
    user_id: &'static str,
    team_id: &'static str,
}

/// The context of a call that is about a case, or about a whole run.
pub(super) fn context(
    agent_id: String,
    chat_id: &str,
    metadata: Option<&JsonText>,
) -> serde_json::Result<Box<RawValue>> {
    let empty = RawValue::from_string("{}".to_owned())?;
    let told = metadata.and_then(|metadata| RawValue::from_string(metadata.as_str().to_owned()).ok());
    to_raw_value(&Context {
        locale: "en-us",
        authorized: Authorized { user_id: "test-user", team_id: "test-team" },
        assistant_id: agent_id,
        chat_id: chat_id.to_owned(),
        metadata: Some(told.as_deref().unwrap_or(&empty)),
    })
}

/// What else a script is told of an answer.
#[derive(Serialize)]
pub(super) struct Evidence<'a> {
    pub(super) messages: Vec<Box<RawValue>>,
    pub(super) tool_calls: Vec<ToolCallJson<'a>>,
    pub(super) duration_ms: u64,
}

#[derive(Serialize)]
pub(super) struct ToolCallJson<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<Box<RawValue>>,
    /// Why nobody knows with what it was called.
    #[serde(skip_serializing_if = "Option::is_none")]
    params_unknown: Option<&'a str>,
    /// Not there: nobody ran it, as the mode wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    success: Option<bool>,
    /// The turn in which it was called.
    #[serde(skip_serializing_if = "is_zero")]
    turn: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

impl<'a> ToolCallJson<'a> {
    pub(super) fn of(call: &'a ToolCall) -> Self {
        let json = |payload: Option<&MaybeJson>| match payload {
            Some(MaybeJson::Json(text)) => RawValue::from_string(text.as_str().to_owned()).ok(),
            Some(MaybeJson::Malformed(text)) => to_raw_value(text).ok(),
            None => None,
        };
        let (result, error) = match &call.outcome {
            Some(ToolOutcome::Result(result)) => (json(result.as_ref()), None),
            Some(ToolOutcome::Error(fault)) => (None, Some(fault.message.as_str())),
            Some(ToolOutcome::NotRun) | None => (None, None),
        };
        let params_unknown = match &call.params {
            Arguments::Unknown(why) => Some(why.as_str()),
            Arguments::None | Arguments::Given(_) => None,
        };
        let params = json(call.params.given());
        Self { name: &call.name, params, params_unknown, success: call.success(), turn: call.turn, result, error }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A case, as a script is told.
#[derive(Serialize)]
struct TestCase<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    input: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    assert: Vec<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<&'a str>,
}

/// A result, as a script is told.
#[derive(Serialize)]
struct TestResult<'a> {
    id: &'a str,
    status: &'static str,
    output: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    duration_ms: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    assertions: Vec<Assertion<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCallJson<'a>>,
}

#[derive(Serialize)]
struct Assertion<'a> {
    r#type: &'a str,
    passed: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
}

/// The results of a run so far, for the script after it.
#[derive(Debug, Clone, Default)]
pub struct Results {
    pub(super) told: Vec<Box<RawValue>>,
    bytes: usize,
}

impl Results {
    /// Keeps a result; when they are many, what the agent said is left out.
    pub(super) fn keep(&mut self, case: &CaseRef, result: &CaseResult) {
        let whole = result_json(&case.case_id, result).ok().filter(|json| self.bytes + json.get().len() <= MAX_TOLD);
        let short = || {
            let short = TestResult {
                id: &case.case_id,
                status: status(result),
                output: "",
                error: None,
                duration_ms: whole_millis(result.transcript.duration),
                assertions: Vec::new(),
                tool_calls: Vec::new(),
            };
            to_raw_value(&short).ok()
        };
        if let Some(json) = whole.or_else(short) {
            self.bytes += json.get().len();
            self.told.push(json);
        }
    }
}

pub(super) fn null() -> serde_json::Result<Box<RawValue>> {
    to_raw_value(&())
}

pub(super) fn case_json(case: &Case) -> serde_json::Result<Box<RawValue>> {
    let raw = |text: &str| RawValue::from_string(text.to_owned()).ok();
    let input = match case.messages.as_slice() {
        [] => null()?,
        [message]
            if message.parts.len() == 1 && message_json(message) == message_json(&Message::user(message.text())) =>
        {
            to_raw_value(&message.text())?
        }
        messages => {
            let messages: Vec<_> = messages.iter().filter_map(|message| raw(&message_json(message))).collect();
            to_raw_value(&messages)?
        }
    };
    let checkpoints = match &case.mode {
        Mode::Dynamic(dialogue) => dialogue.checkpoints.as_slice(),
        Mode::Single | Mode::Stubbed { .. } | Mode::Test(_) => &[],
    };
    let claims = case.claims.iter().chain(checkpoints.iter().flat_map(|checkpoint| &checkpoint.claims));
    to_raw_value(&TestCase {
        id: &case.id,
        name: &case.description,
        input,
        metadata: case.metadata.as_ref().and_then(|metadata| raw(metadata.as_str())),
        options: case.options.as_ref().and_then(|options| raw(options.as_str())),
        assert: claims.filter_map(|claim| raw(claim.written.as_str())).collect(),
        timeout: case.timeout.as_ref().map(|timeout| timeout.written.as_str()),
    })
}

pub(super) fn result_json(id: &str, result: &CaseResult) -> serde_json::Result<Box<RawValue>> {
    let checked = result.checkpoints.iter().flat_map(|checkpoint| &checkpoint.assertions);
    let assertions = result.assertions.iter().chain(checked).filter(|one| one.outcome != Outcome::Skipped);
    to_raw_value(&TestResult {
        id,
        status: status(result),
        output: &result.transcript.response,
        error: result.error.as_deref(),
        duration_ms: whole_millis(result.transcript.duration),
        assertions: assertions
            .map(|one| Assertion { r#type: &one.name, passed: one.outcome == Outcome::Passed, reason: &one.reason })
            .collect(),
        tool_calls: result.transcript.tool_calls.iter().map(ToolCallJson::of).collect(),
    })
}

/// The words of Agent Test Framework V2.
fn status(result: &CaseResult) -> &'static str {
    match result.outcome {
        Outcome::Passed => "passed",
        Outcome::Skipped => "skipped",
        Outcome::Failed if result.cause == Some(Cause::Timeout) => "timeout",
        Outcome::Failed => "failed",
        Outcome::Errored => "error",
    }
}
