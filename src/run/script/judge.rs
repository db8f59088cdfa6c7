//! Scripts that judge an answer.

use std::time::Duration;

use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;

use super::{JUDGES, bounded};
use crate::check::framework::Reply;
use crate::conversation::{Message, Role, Transcript};
use crate::json::{Json, Value};
use crate::peer::plain::{Verdict, verdict_of};
use crate::run::shared::{RunScripts, Shared};
use crate::run::told::{Evidence, ToolCallJson};
use crate::script::pool::{Broken, Called, FunctionCall};
use crate::script::wire::Kind;
use crate::suite::framework::message_json;
use crate::verdict::{Opinion, whole_millis};
use crate::wire::value::shorten;

/// Has a script judge an answer: `(output, input, options, evidence)`. With it comes how long it waited for a place.
pub(in crate::run) async fn judge(
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
        tool_calls: transcript.tool_calls.iter().map(ToolCallJson::of).collect(),
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
    let call = FunctionCall { scripts, path, functions: JUDGES, kind: Kind::Function, arguments, deadline };
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
    let json = answer.as_ref().and_then(|answer| Json::parse_file(answer.get()).ok());
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
