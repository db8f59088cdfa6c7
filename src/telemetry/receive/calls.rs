//! The tool calls in a span, whichever convention it is written in. Some spans are in two at once.

use std::time::Duration;

use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode};

use super::arguments::arguments;
use super::{MAX_CONTENT, cut, text, value};
use crate::conversation::{Fault, JsonText, MaybeJson, ToolCall, ToolOutcome};
use crate::json::{Json, Value};
use crate::telemetry::semconv as name;

/// Longest name or id that is kept, in bytes.
const MAX_NAME: usize = 1 << 10;
/// Most tool calls that are read of one answer of a model.
const MAX_ASKED: usize = 200;

/// The tool call that a span is, if it is one.
pub(super) fn tool(span: &Span) -> Option<ToolCall> {
    let is = |key, value: &str| text(span, key).is_some_and(|it| it.eq_ignore_ascii_case(value));
    let is_gen_ai = is(name::OPERATION_NAME, name::OPERATION_EXECUTE_TOOL);
    let is_openinference = is(name::OPENINFERENCE_KIND, name::OPENINFERENCE_TOOL);
    if !is_gen_ai && !is_openinference && !is(name::AI_OPERATION, name::AI_TOOL_CALL) {
        return None;
    }
    let first = |keys: &[&str]| keys.iter().find_map(|key| text(span, key).filter(|text| !text.is_empty()));
    let called = first(&[name::TOOL_NAME, name::OPENINFERENCE_TOOL_NAME, name::AI_TOOL_NAME]);
    let called = called.or_else(|| span.name.strip_prefix("execute_tool ").filter(|_| is_gen_ai));
    let called = called.or_else(|| Some(span.name.as_str()).filter(|_| is_openinference));
    let called = called.filter(|called| !called.is_empty() && called.len() <= MAX_NAME)?;
    if called == name::ADK_MERGED {
        // Beside the spans of the calls that it stands for.
        return None;
    }
    let ids = [name::TOOL_CALL_ID, name::OPENINFERENCE_TOOL_ID, name::OPENINFERENCE_TOOL_OWN_ID, name::AI_TOOL_ID];
    let id = ids.iter().find_map(|key| text(span, key).filter(|id| !id.is_empty() && *id != name::ADK_NOTHING));
    let id = id.map(str::to_owned).or_else(|| value(span, name::OPENINFERENCE_OUTPUT).as_deref().and_then(id_in));
    let duration = span.end_time_unix_nano.checked_sub(span.start_time_unix_nano).map(Duration::from_nanos);
    Some(ToolCall {
        call_id: id.map(|id| cut(&id, MAX_NAME).to_owned()).unwrap_or_default(),
        name: called.to_owned(),
        params: arguments(span),
        outcome: Some(outcome(span)),
        duration,
        turn: 0,
    })
}

fn outcome(span: &Span) -> ToolOutcome {
    let status = span.status.as_ref();
    let failed = status.is_some_and(|status| status.code == i32::from(StatusCode::Error));
    let error = text(span, name::ERROR_TYPE).filter(|_| failed || status.is_none_or(|status| status.code == 0));
    if failed || error.is_some() {
        let message = status.map(|status| status.message.as_str()).filter(|message| !message.is_empty());
        let message = message.or(error).unwrap_or("the span says that it failed");
        return ToolOutcome::Error(Fault::message(cut(message, MAX_NAME).to_owned()));
    }
    let told = [name::TOOL_CALL_RESULT, name::AI_TOOL_RESULT, name::OPENINFERENCE_OUTPUT];
    let told = told.iter().find_map(|key| value(span, key));
    // Written as empty where nobody wants it recorded.
    let adk = || value(span, name::ADK_TOOL_RESPONSE).filter(|text| text != "{}" && !text.contains(name::ADK_NOTHING));
    ToolOutcome::Result(told.or_else(adk).map(result_of))
}

/// The id that a tool's answer carries, where the span itself has none: LangChain's messages hold it.
fn id_in(output: &str) -> Option<String> {
    let json = Json::parse(output).ok()?;
    let holders = [Some(&json), json.get("data"), json.get("kwargs")];
    let id = holders.into_iter().flatten().find_map(|holder| holder.get("tool_call_id"))?;
    id.as_str().map(str::to_owned)
}

/// The tool calls that a model asked for in a span of OpenInference:
/// `llm.output_messages.0.message.tool_calls.0.tool_call.id` and `….function.arguments`.
pub(super) fn asked(span: &Span) -> Vec<(String, MaybeJson)> {
    let ids = span.attributes.iter().filter_map(|attribute| {
        let call = attribute.key.strip_prefix(name::OPENINFERENCE_ANSWERS)?.strip_suffix(".tool_call.id")?;
        match attribute.value.as_ref()?.value.as_ref()? {
            any_value::Value::StringValue(id) => Some((call, id.as_str())),
            _ => None,
        }
    });
    let arguments = |call: &str| {
        let key = format!("{}{call}.tool_call.function.arguments", name::OPENINFERENCE_ANSWERS);
        value(span, &key).map(payload_of)
    };
    ids.take(MAX_ASKED).filter_map(|(call, id)| Some((cut(id, MAX_NAME).to_owned(), arguments(call)?))).collect()
}

/// What a model wrote is JSON, or broken; what is longer than it may be is cut, and then it is broken.
fn payload_of(text: String) -> MaybeJson {
    if text.len() > MAX_CONTENT {
        return MaybeJson::Malformed(cut(&text, MAX_CONTENT).to_owned());
    }
    JsonText::new(text.as_str()).map_or(MaybeJson::Malformed(text), MaybeJson::Json)
}

/// A result that is no JSON is a text.
fn result_of(text: String) -> MaybeJson {
    match payload_of(text) {
        MaybeJson::Malformed(text) => MaybeJson::Json(JsonText::from(&Json { line: 0, value: Value::String(text) })),
        json @ MaybeJson::Json(_) => json,
    }
}
