//! The arguments of the tool call that a span is.
//!
//! A span that holds none does not say that there were none: most instrumentations leave them out unless somebody
//! asks for content. So what is found here is an object, or arguments that are not known.
//!
//! OpenInference has one attribute, `tool.parameters`, for two things. The instrumentations of Agno, Pydantic AI
//! and Google ADK write the arguments there, and into `input.value` as well; those of the OpenAI Agents SDK,
//! LlamaIndex, `CrewAI` and smolagents write the tool's schema there, and the arguments into `input.value` alone.
//! They are told apart by what a schema looks like. Some of the latter write the call of a Python function:
//! `{"args": [], "kwargs": {…}}`.

use opentelemetry_proto::tonic::trace::v1::Span;

use super::value;
use crate::conversation::{Arguments, JsonText, MaybeJson};
use crate::json::{Json, Value};
use crate::telemetry::semconv as name;

/// How much of what is no object is told, in characters.
const MAX_TOLD: usize = 100;

/// What a span says about the arguments of its call.
pub(super) fn arguments(span: &Span) -> Arguments {
    let parameters = value(span, name::OPENINFERENCE_TOOL_PARAMETERS);
    let schema = parameters.as_deref().and_then(object).as_ref().and_then(properties);
    // An instrumentation that writes two conventions at once writes the schema into both.
    let is_schema = |text: &String| schema.is_some() && parameters.as_ref() == Some(text);
    let from = |key: &'static str| Some((key, value(span, key)?));
    let told = [name::TOOL_CALL_ARGUMENTS, name::AI_TOOL_ARGS, name::OPENINFERENCE_TOOL_PARAMETERS];
    let told = told.into_iter().filter_map(from).filter(|(_, text)| !is_schema(text));
    let input = from(name::OPENINFERENCE_INPUT);
    let adk = from(name::ADK_TOOL_ARGS).filter(|(_, text)| !is_left_out(span, text));
    let mut other = None;
    for (key, text) in told.chain(input).chain(adk) {
        let found = object(&text).and_then(|object| match (&schema, key) {
            (Some(names), name::OPENINFERENCE_INPUT) => of_call(object, names),
            _ => Some(object),
        });
        match found {
            Some(object) => return Arguments::Given(MaybeJson::Json(written(text, &object))),
            None => other = other.or(Some((key, text))),
        }
    }
    Arguments::Unknown(match other {
        None => format!("its span holds none ({})", wanted(span)),
        Some((key, text)) => {
            let end = text.char_indices().nth(MAX_TOLD).map(|(end, _)| end);
            let (text, more) = (&text[..end.unwrap_or(text.len())], if end.is_some() { "…" } else { "" });
            format!("its span holds no object of them; {key} is {text:?}{more}")
        }
    })
}

/// The attribute that the instrumentation which writes the span would have to add.
fn wanted(span: &Span) -> &'static str {
    if value(span, name::AI_OPERATION).is_some() {
        name::AI_TOOL_ARGS
    } else if value(span, name::OPENINFERENCE_KIND).is_some() {
        name::OPENINFERENCE_INPUT
    } else {
        name::TOOL_CALL_ARGUMENTS
    }
}

/// Whether Google's Agent Development Kit left out content, for which it writes empty objects, into the answer too.
fn is_left_out(span: &Span, arguments: &str) -> bool {
    arguments == "{}" && value(span, name::ADK_TOOL_RESPONSE).is_none_or(|response| response == "{}")
}

/// The object that a text holds. Some instrumentations write the text of a model as JSON once more.
fn object(text: &str) -> Option<Json> {
    let is_object = |json: &Json| matches!(json.value, Value::Object(_));
    let json = JsonText::new(text).ok()?.parse();
    match &json.value {
        Value::String(inner) => JsonText::new(inner.as_str()).ok().map(|inner| inner.parse()).filter(is_object),
        _ => Some(json).filter(is_object),
    }
}

/// The text as it came, if it is that of the object.
fn written(text: String, object: &Json) -> JsonText {
    match JsonText::new(text) {
        Ok(text) if text.parse() == *object => text,
        _ => JsonText::from(object),
    }
}

/// The names of the parameters in what is the schema of a tool: a JSON Schema, or only its properties. `None`: it
/// is none.
fn properties(json: &Json) -> Option<Vec<String>> {
    let names = |json: &Json| json.members().iter().map(|(name, _)| name.clone()).collect();
    let is_object = json.get("type").is_none_or(|it| it.as_str() == Some("object"));
    if let Some(properties @ Json { value: Value::Object(_), .. }) = json.get("properties").filter(|_| is_object) {
        return Some(names(properties));
    }
    let describes = |json: &Json| json.get("type").is_some_and(|it| it.as_str().is_some() || it.as_array().is_some());
    let members = json.members();
    let is_described = |(_, member): &(String, Json)| describes(member) && member.get("description").is_some();
    (!members.is_empty() && members.iter().all(is_described)).then(|| names(json))
}

/// The arguments in what may be the call of a Python function, whose tool has parameters of these names. `None`:
/// some have no names.
fn of_call(call: Json, names: &[String]) -> Option<Json> {
    let is_own = |key: &str| names.iter().any(|name| name == key);
    match (call.get("args"), call.get("kwargs")) {
        (args, Some(kwargs @ Json { value: Value::Object(_), .. })) if !is_own("kwargs") => {
            let is_whole = args.is_none_or(|args| args.as_array().is_some_and(<[Json]>::is_empty));
            is_whole.then(|| kwargs.clone())
        }
        (Some(Json { value: Value::Array(args), .. }), None) if !is_own("args") && !args.is_empty() => None,
        _ => Some(call),
    }
}
