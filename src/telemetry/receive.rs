//! OTLP that comes in: spans of agents, in the words of the GenAI conventions or of OpenInference.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode};

use prost::Message as _;

use super::semconv as name;
use crate::conversation::{Fault, JsonText, Payload, ToolCall, ToolOutcome};
use crate::json::{Json, Value, write_string};
use crate::peer::spans::SeenSpan;
use crate::trace::{INVOCATION_ID, SpanId, TraceId};
use crate::wire::bounded::{Field, Schema, Unread};

/// Longest name or id that is kept, in bytes.
const MAX_NAME: usize = 1 << 10;
/// Longest id of a call: ours are UUIDs.
const MAX_INVOCATION: usize = 64;
/// Longest arguments or result, in bytes; longer ones are kept as text that is no JSON.
const MAX_CONTENT: usize = 1 << 20;
/// Most tool calls that are read of one answer of a model.
const MAX_ASKED: usize = 200;
/// How deep values of attributes are read.
const MAX_DEPTH: usize = 32;

/// Why a request is not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It would become too large.
    #[error("the request holds too much to be read: send fewer spans at once")]
    TooMuch,
    /// Whoever was to read it failed, or had no time.
    #[error("the daemon cannot read the request now; try again")]
    Failed,
    /// It is none.
    #[error("the body is no ExportTraceServiceRequest: {0}")]
    Malformed(String),
}

impl From<prost::DecodeError> for ReadError {
    fn from(error: prost::DecodeError) -> Self {
        Self::Malformed(error.to_string())
    }
}

/// Reads a request, which takes a while: it does not belong on a runtime thread.
///
/// # Errors
/// When it is none, or would become many times as large as it is.
pub fn read(request: Bytes) -> Result<ExportTraceServiceRequest, ReadError> {
    match REQUEST.weigh(0, &request) {
        Ok(()) => Ok(ExportTraceServiceRequest::decode(request)?),
        Err(Unread::TooDense) => Err(ReadError::TooMuch),
        Err(unread @ Unread::Malformed) => Err(ReadError::Malformed(unread.to_string())),
    }
}

/// What weighs in a request, with the sizes of the generated types: those of OTLP have no descriptors here.
/// <https://github.com/open-telemetry/opentelemetry-proto/tree/main/opentelemetry/proto>
static REQUEST: LazyLock<Schema> = LazyLock::new(|| {
    const RESOURCE_SPANS: Field = Field::Message(1);
    const SCOPE_SPANS: Field = Field::Message(3);
    const ATTRIBUTE: Field = Field::Message(8);
    const VALUE: Field = Field::Message(9);
    Schema::new(&[
        (0, &[(1, RESOURCE_SPANS)]),
        // ResourceSpans, Resource, ScopeSpans, InstrumentationScope
        (200, &[(1, Field::Message(2)), (2, SCOPE_SPANS)]),
        (0, &[(1, ATTRIBUTE), (3, Field::Message(12))]),
        (200, &[(1, Field::Message(4)), (2, Field::Message(5))]),
        (0, &[(3, ATTRIBUTE)]),
        // Span, Span.Event, Span.Link
        (400, &[(9, ATTRIBUTE), (11, Field::Message(6)), (13, Field::Message(7))]),
        (120, &[(3, ATTRIBUTE)]),
        (160, &[(4, ATTRIBUTE)]),
        // KeyValue, AnyValue, ArrayValue, KeyValueList
        (100, &[(2, VALUE)]),
        (40, &[(5, Field::Message(10)), (6, Field::Message(11))]),
        (0, &[(1, VALUE)]),
        (0, &[(1, ATTRIBUTE)]),
        // EntityRef
        (150, &[(3, Field::Text), (4, Field::Text)]),
    ])
});

/// The spans of a request. Those without ids are nobody's.
pub fn spans(request: ExportTraceServiceRequest) -> impl Iterator<Item = SeenSpan> {
    let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
    scopes.flat_map(|scope| scope.spans).filter_map(|span| seen(&span))
}

fn seen(span: &Span) -> Option<SeenSpan> {
    Some(SeenSpan {
        trace_id: TraceId::from_slice(&span.trace_id)?,
        span_id: SpanId::from_slice(&span.span_id)?,
        parent: SpanId::from_slice(&span.parent_span_id),
        invocation_id: text(span, INVOCATION_ID).filter(|id| id.len() <= MAX_INVOCATION).map(str::to_owned),
        began: SystemTime::UNIX_EPOCH + Duration::from_nanos(span.start_time_unix_nano),
        tool: tool(span),
        asked: asked(span),
    })
}

/// The tool call that a span is, if it is one.
fn tool(span: &Span) -> Option<ToolCall> {
    let (called, call_id, params, result) = if text(span, name::OPERATION_NAME) == Some(name::OPERATION_EXECUTE_TOOL) {
        let called = text(span, name::TOOL_NAME).or_else(|| span.name.strip_prefix("execute_tool "));
        let id = text(span, name::TOOL_CALL_ID).map(str::to_owned);
        (called, id, value(span, name::TOOL_CALL_ARGUMENTS), value(span, name::TOOL_CALL_RESULT))
    } else if text(span, name::OPENINFERENCE_KIND).is_some_and(|it| it.eq_ignore_ascii_case(name::OPENINFERENCE_TOOL)) {
        let called = text(span, name::OPENINFERENCE_TOOL_NAME).or(Some(span.name.as_str()));
        let params = value(span, name::OPENINFERENCE_TOOL_PARAMETERS);
        let params = params.or_else(|| value(span, name::OPENINFERENCE_INPUT));
        let output = value(span, name::OPENINFERENCE_OUTPUT);
        let id = text(span, name::OPENINFERENCE_TOOL_ID).map(str::to_owned);
        (called, id.or_else(|| output.as_deref().and_then(id_in)), params, output)
    } else {
        return None;
    };
    let called = called.filter(|called| !called.is_empty() && called.len() <= MAX_NAME)?;
    let status = span.status.as_ref();
    let failed = status.is_some_and(|status| status.code == i32::from(StatusCode::Error));
    let error = text(span, name::ERROR_TYPE).filter(|_| failed || status.is_none_or(|status| status.code == 0));
    let outcome = if failed || error.is_some() {
        let message = status.map(|status| status.message.as_str()).filter(|message| !message.is_empty());
        let message = message.or(error).unwrap_or("the span says that it failed");
        ToolOutcome::Error(Fault::message(cut(message, MAX_NAME).to_owned()))
    } else {
        ToolOutcome::Result(result.map(result_of))
    };
    let duration = span.end_time_unix_nano.checked_sub(span.start_time_unix_nano).map(Duration::from_nanos);
    Some(ToolCall {
        call_id: call_id.map(|id| cut(&id, MAX_NAME).to_owned()).unwrap_or_default(),
        name: called.to_owned(),
        params: params.map(arguments_of),
        outcome: Some(outcome),
        duration,
    })
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
fn asked(span: &Span) -> Vec<(String, Payload)> {
    let ids = span.attributes.iter().filter_map(|attribute| {
        let call = attribute.key.strip_prefix(name::OPENINFERENCE_ANSWERS)?.strip_suffix(".tool_call.id")?;
        match attribute.value.as_ref()?.value.as_ref()? {
            any_value::Value::StringValue(id) => Some((call, id.as_str())),
            _ => None,
        }
    });
    let arguments = |call: &str| {
        let key = format!("{}{call}.tool_call.function.arguments", name::OPENINFERENCE_ANSWERS);
        value(span, &key).map(arguments_of)
    };
    ids.take(MAX_ASKED).filter_map(|(call, id)| Some((cut(id, MAX_NAME).to_owned(), arguments(call)?))).collect()
}

fn attribute<'a>(span: &'a Span, key: &str) -> Option<&'a any_value::Value> {
    span.attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.value.as_ref()
}

fn text<'a>(span: &'a Span, key: &str) -> Option<&'a str> {
    match attribute(span, key)? {
        any_value::Value::StringValue(text) => Some(text),
        _ => None,
    }
}

/// An attribute as JSON text: a text is what it holds, anything else is written as JSON.
fn value(span: &Span, key: &str) -> Option<String> {
    Some(match attribute(span, key)? {
        any_value::Value::StringValue(text) => cut(text, MAX_CONTENT + 1).to_owned(),
        other => {
            let mut out = String::new();
            write(other, &mut out, 0);
            out
        }
    })
}

/// Arguments are JSON, or broken; those longer than they may be are cut, and then they are broken.
fn arguments_of(text: String) -> Payload {
    if text.len() > MAX_CONTENT {
        return Payload::Malformed(cut(&text, MAX_CONTENT).to_owned());
    }
    JsonText::new(text.as_str()).map_or(Payload::Malformed(text), Payload::Json)
}

/// A result that is no JSON is a text.
fn result_of(text: String) -> Payload {
    match arguments_of(text) {
        Payload::Malformed(text) => Payload::Json(JsonText::from(&Json { line: 0, value: Value::String(text) })),
        json @ Payload::Json(_) => json,
    }
}

fn write(value: &any_value::Value, out: &mut String, depth: usize) {
    let nested = |value: Option<&AnyValue>, out: &mut String| match value.and_then(|value| value.value.as_ref()) {
        Some(value) if depth < MAX_DEPTH => write(value, out, depth + 1),
        _ => out.push_str("null"),
    };
    match value {
        any_value::Value::StringValue(text) => write_string(text, out),
        any_value::Value::BoolValue(value) => out.push_str(if *value { "true" } else { "false" }),
        any_value::Value::IntValue(value) => out.push_str(&value.to_string()),
        any_value::Value::DoubleValue(value) if value.is_finite() => {
            out.push_str(ryu_js::Buffer::new().format_finite(*value));
        }
        any_value::Value::ArrayValue(array) => {
            out.push('[');
            for (index, value) in array.values.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                nested(Some(value), out);
            }
            out.push(']');
        }
        any_value::Value::KvlistValue(list) => {
            out.push('{');
            for (index, KeyValue { key, value, .. }) in list.values.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                write_string(key, out);
                out.push(':');
                nested(value.as_ref(), out);
            }
            out.push('}');
        }
        _ => out.push_str("null"),
    }
}

fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::common::v1::KeyValueList;
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Status};

    use super::*;

    fn attributes(pairs: &[(&str, any_value::Value)]) -> Vec<KeyValue> {
        let attribute = |(key, value): &(&str, any_value::Value)| KeyValue {
            key: (*key).to_owned(),
            value: Some(AnyValue { value: Some(value.clone()) }),
            ..KeyValue::default()
        };
        pairs.iter().map(attribute).collect()
    }

    fn string(text: &str) -> any_value::Value {
        any_value::Value::StringValue(text.to_owned())
    }

    fn span(name: &str, pairs: &[(&str, any_value::Value)]) -> Span {
        Span {
            trace_id: vec![1; 16],
            span_id: vec![2; 8],
            parent_span_id: vec![3; 8],
            name: name.to_owned(),
            start_time_unix_nano: 1_000_000_000,
            end_time_unix_nano: 1_250_000_000,
            attributes: attributes(pairs),
            ..Span::default()
        }
    }

    fn seen_in(span: Span) -> Option<SeenSpan> {
        let scope_spans = vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }];
        let resource_spans = vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }];
        spans(ExportTraceServiceRequest { resource_spans }).next()
    }

    fn call(span: Span) -> Option<ToolCall> {
        seen_in(span).expect("it has ids").tool
    }

    fn json(text: &str) -> Payload {
        Payload::Json(JsonText::new(text).expect("JSON"))
    }

    #[test]
    fn a_span_of_the_genai_conventions_is_a_tool_call() {
        let conventional = span(
            "execute_tool get_weather",
            &[
                ("gen_ai.operation.name", string("execute_tool")),
                ("gen_ai.tool.name", string("get_weather")),
                ("gen_ai.tool.call.id", string("c1")),
                ("gen_ai.tool.call.arguments", string(r#"{"city": "Paris", "n": 9007199254740993}"#)),
                ("gen_ai.tool.call.result", string("sunny")),
                ("forge.invocation.id", string("i")),
            ],
        );
        let seen = seen_in(conventional).expect("it has ids");
        assert_eq!((seen.trace_id, seen.span_id), (TraceId([1; 16]), SpanId([2; 8])));
        assert_eq!((seen.parent, seen.invocation_id.as_deref()), (Some(SpanId([3; 8])), Some("i")));
        let call = seen.tool.expect("it is one");
        assert_eq!((call.name.as_str(), call.call_id.as_str()), ("get_weather", "c1"));
        assert_eq!(call.params, Some(json(r#"{"city": "Paris", "n": 9007199254740993}"#)));
        assert_eq!(call.outcome, Some(ToolOutcome::Result(Some(json("\"sunny\"")))));
        assert_eq!(call.duration, Some(Duration::from_millis(250)));
    }

    #[test]
    fn a_span_of_openinference_is_a_tool_call() {
        let tool = call(span(
            "get_air_quality",
            &[
                ("openinference.span.kind", string("TOOL")),
                ("tool.name", string("get_air_quality")),
                ("input.value", string("Delhi")),
                ("output.value", string(r#"{"type": "tool", "data": {"content": "bad", "tool_call_id": "c2"}}"#)),
            ],
        ));
        let tool = tool.expect("it is one");
        assert_eq!((tool.name.as_str(), tool.call_id.as_str()), ("get_air_quality", "c2"));
        // What is no JSON is not made into some: the model's answer holds the arguments.
        assert_eq!(tool.params, Some(Payload::Malformed("Delhi".to_owned())));
        let model = seen_in(span(
            "ChatModel",
            &[
                ("openinference.span.kind", string("LLM")),
                ("llm.output_messages.0.message.tool_calls.0.tool_call.id", string("c2")),
                (
                    "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments",
                    string(r#"{"city": "Delhi"}"#),
                ),
            ],
        ));
        let asked = model.expect("it has ids").asked;
        assert_eq!(asked, [("c2".to_owned(), json(r#"{"city": "Delhi"}"#))]);
    }

    #[test]
    fn a_failed_span_is_a_failed_call() {
        let kind = ("gen_ai.operation.name", string("execute_tool"));
        let name = ("gen_ai.tool.name", string("t"));
        let status = |code: StatusCode, message: &str| Some(Status { code: code.into(), message: message.to_owned() });
        let failed = Span { status: status(StatusCode::Error, "no seats"), ..span("t", &[kind.clone(), name.clone()]) };
        let told = Span { status: status(StatusCode::Ok, ""), ..span("t", &[kind.clone(), name.clone()]) };
        let typed = span("t", &[kind.clone(), name.clone(), ("error.type", string("timeout"))]);
        let plain = span("t", &[kind, name]);
        let message = |span| match call(span).and_then(|call| call.outcome) {
            Some(ToolOutcome::Error(fault)) => fault.message,
            other => format!("{other:?}"),
        };
        assert_eq!(message(failed), "no seats");
        assert_eq!(message(typed), "timeout");
        assert_eq!(message(told), "Some(Result(None))");
        assert_eq!(message(plain), "Some(Result(None))");
    }

    /// What instrumentations send in one request is read, at its largest; what would become a hundred times as large is not.
    #[test]
    fn requests_that_would_become_too_large_are_refused() {
        let request = |spans: Vec<Span>| {
            let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
            let resource_spans = vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }];
            Bytes::from(ExportTraceServiceRequest { resource_spans }.encode_to_vec())
        };
        let busy: Vec<_> = (0..40).map(|number| (format!("attribute.number.{number}"), string("a value"))).collect();
        let busy: Vec<_> = busy.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
        let large = request(vec![span("chat", &busy); 2_500]);
        assert!((3 << 20..4 << 20).contains(&large.len()), "{}", large.len());
        assert!(read(large).is_ok());
        let empty = |spans| request(vec![Span::default(); spans]);
        assert!(read(empty(10_000)).is_ok());
        assert!(matches!(read(empty(1 << 20)), Err(ReadError::TooMuch)));
        let attributes = vec![KeyValue::default(); 1 << 20];
        let dense = request(vec![Span { attributes, ..Span::default() }]);
        assert!(matches!(read(dense), Err(ReadError::TooMuch)));
        assert!(matches!(read(Bytes::from_static(b"nonsense")), Err(ReadError::Malformed(_))));
        // A span that is longer than what holds it: a reader would make everything of it first.
        let mut long = vec![0x0a, 0x07, 0x12, 0x05, 0x12];
        prost::encoding::encode_varint(4_000_000, &mut long);
        long.extend([0x4a, 0x00].repeat(2_000_000));
        assert!(matches!(read(Bytes::from(long)), Err(ReadError::Malformed(_))));
    }

    #[test]
    fn hostile_spans_do_no_harm() {
        assert_eq!(seen_in(Span { trace_id: vec![0; 16], ..span("t", &[]) }), None);
        assert_eq!(seen_in(Span { span_id: vec![1; 3], ..span("t", &[]) }), None);
        let kind = ("gen_ai.operation.name", string("execute_tool"));
        assert_eq!(call(span("nameless", std::slice::from_ref(&kind))), None);
        assert_eq!(call(span("t", &[kind.clone(), ("gen_ai.tool.name", string(&"x".repeat(2_000)))])), None);
        let mut deep = string("x");
        for _ in 0..1_000 {
            let value = Some(AnyValue { value: Some(deep) });
            let list = KeyValueList { values: vec![KeyValue { key: "k".to_owned(), value, ..KeyValue::default() }] };
            deep = any_value::Value::KvlistValue(list);
        }
        let name = ("gen_ai.tool.name", string("t"));
        let large = string(&format!("[{}]", "1,".repeat(1 << 20)));
        let pairs = [kind, name, ("gen_ai.tool.call.arguments", deep), ("gen_ai.tool.call.result", large)];
        let tool = call(Span { end_time_unix_nano: 0, ..span("t", &pairs) }).expect("it is one");
        assert!(matches!(tool.params, Some(Payload::Json(_))), "{:?}", tool.params);
        assert_eq!(tool.duration, None, "it did not end before it began");
    }
}
