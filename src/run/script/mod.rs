//! Asks the scripts of a suite: those that judge an answer, those that stand around cases, those that are cases themselves.

pub(super) mod hooks;
mod host;
pub(super) mod test;

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;

use super::{Callee, Shared};
use crate::check::framework::Reply;
use crate::conversation::{Arguments, JsonText, Message, Payload, Role, ToolCall, ToolOutcome, Transcript};
use crate::json::{Json, Value};
use crate::peer::directory::Directory;
use crate::peer::plain::{Verdict, verdict_of};
use crate::script::pool::{Broken, Call as ScriptCall, Called, Share};
use crate::script::source::Scripts;
use crate::script::wire::Kind;
use crate::suite::framework::message_json;
use crate::verdict::{Blame, Opinion, whole_millis};
use crate::wire::value::shorten;

/// Most bytes of what a script returns, or asks with.
const MAX_ANSWER: usize = 4 << 20;

/// What a script that judges may be called.
pub const JUDGES: &[&str] = &["default", "Validate"];

/// The scripts of a run, and who runs them.
#[derive(Debug, Clone)]
pub struct RunScripts {
    /// The scripts.
    pub scripts: Arc<Scripts>,
    /// The run's places among the workers.
    pub pool: Arc<Share>,
    /// The agents that they may ask.
    pub directory: Arc<Directory>,
}

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

/// The same, if it is not too long to be read.
fn bounded(called: Called) -> Called {
    let length = called.result.as_ref().ok().and_then(Option::as_ref).map_or(0, |answer| answer.get().len());
    if length <= MAX_ANSWER {
        return called;
    }
    let why = format!("it returned {length} bytes, and {MAX_ANSWER} are taken");
    Called { result: Err(Broken { why, call: None, blame: Blame::Script }), ..called }
}

/// The context of a call that is about a case, or about a whole run.
fn context(callee: &Callee, chat_id: &str, metadata: Option<&JsonText>) -> serde_json::Result<Box<RawValue>> {
    let empty = RawValue::from_string("{}".to_owned())?;
    let told = metadata.and_then(|metadata| RawValue::from_string(metadata.as_str().to_owned()).ok());
    to_raw_value(&Context {
        locale: "en-us",
        authorized: Authorized { user_id: "test-user", team_id: "test-team" },
        assistant_id: callee.agent_id(),
        chat_id: chat_id.to_owned(),
        metadata: Some(told.as_deref().unwrap_or(&empty)),
    })
}

/// What else a script is told of an answer.
#[derive(Serialize)]
struct Evidence<'a> {
    messages: Vec<Box<RawValue>>,
    tool_calls: Vec<Call<'a>>,
    duration_ms: u64,
}

#[derive(Serialize)]
struct Call<'a> {
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

impl<'a> Call<'a> {
    fn of(call: &'a ToolCall) -> Self {
        let json = |payload: Option<&Payload>| match payload {
            Some(Payload::Json(text)) => RawValue::from_string(text.as_str().to_owned()).ok(),
            Some(Payload::Malformed(text)) => to_raw_value(text).ok(),
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

/// Has a script judge an answer: `(output, input, options, evidence)`. With it comes how long it waited for a place.
pub(super) async fn judge(
    shared: &Shared,
    name: &str,
    options: Option<&Json>,
    conversation: &[Message],
    transcript: &Transcript,
    deadline: Instant,
) -> (Reply, Duration) {
    let never = |why: String| (Reply::failed(why), Duration::ZERO);
    let Some(RunScripts { scripts, pool, .. }) = &shared.scripts else {
        return never("there are no scripts".to_owned());
    };
    let path = match scripts.find(name) {
        Ok(path) => path,
        Err(why) => return never(why),
    };
    let input = conversation.iter().rev().find(|message| message.role == Role::User).map(Message::text);
    let options = options.map_or_else(|| "{}".to_owned(), Json::stringify);
    let messages = conversation.iter().filter_map(|message| RawValue::from_string(message_json(message)).ok());
    let evidence = Evidence {
        messages: messages.collect(),
        tool_calls: transcript.tool_calls.iter().map(Call::of).collect(),
        duration_ms: whole_millis(transcript.duration),
    };
    let arguments = (|| {
        Ok::<_, serde_json::Error>(vec![
            to_raw_value(&transcript.response)?,
            to_raw_value(&input.unwrap_or_default())?,
            RawValue::from_string(options)?,
            to_raw_value(&evidence)?,
        ])
    })();
    let arguments = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return never(format!("its arguments cannot be written: {error}")),
    };
    let call = ScriptCall { scripts, path, functions: JUDGES, kind: Kind::Function, arguments, deadline };
    let Called { result, console, waited, .. } = bounded(pool.call(call).await);
    (reply_of(result, console), waited)
}

/// What a script answered.
fn reply_of(result: Result<Option<Box<RawValue>>, Broken>, console: Vec<String>) -> Reply {
    let opinion = |score: Option<f64>, console: Vec<String>| {
        let opinion = Opinion { score, console, ..Opinion::default() };
        (opinion != Opinion::default()).then_some(opinion)
    };
    let answer = match result {
        Ok(answer) => answer,
        Err(Broken { why, blame, .. }) => {
            return Reply::Failed { why, opinion: opinion(None, console), blame: Some(blame) };
        }
    };
    let json = answer.as_ref().and_then(|answer| Json::parse(answer.get()).ok());
    if let Some((passed, reason, score)) = json.as_ref().and_then(read) {
        return Reply::Judged { passed, reason, opinion: opinion(score, console) };
    }
    let shown = answer.as_ref().map_or("undefined", |answer| answer.get());
    let why = format!("it answered {}, and neither true or false nor an object with `passed`", shorten(shown));
    Reply::Failed { why, opinion: opinion(None, console), blame: None }
}

/// A boolean, or an object with `passed` or `pass`, and perhaps `reason` or `message` and `score`.
fn read(answer: &Json) -> Option<(bool, String, Option<f64>)> {
    if let Value::Bool(passed) = answer.value {
        return Some((passed, String::new(), None));
    }
    let Verdict { passed, reason, score } = verdict_of(answer).ok()??;
    Some((passed, shorten(&reason), score))
}
