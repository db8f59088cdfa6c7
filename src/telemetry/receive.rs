//! OTLP that comes in: spans of agents, in the words of the GenAI conventions, of OpenInference or of the AI SDK.

mod arguments;
mod calls;

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

use crate::json::write_string;
use crate::peer::spans::SeenSpan;
use crate::trace::{INVOCATION_ID, SpanId, TraceId};
use crate::wire::bounded::{Field, Schema, Unread};

/// Longest id of a call: ours are UUIDs.
const MAX_INVOCATION: usize = 64;
/// Longest arguments or result, in bytes; longer ones are kept as text that is no JSON.
const MAX_CONTENT: usize = 1 << 20;
/// How deep values of attributes are read.
const MAX_DEPTH: usize = 32;

/// Why a request is not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It would become too large.
    #[error("the request holds too much to be read: send fewer spans at once")]
    TooMuch,
    /// The thread that was to read it failed, or had no time.
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
        tool: calls::tool(span),
        asked: calls::asked(span),
    })
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
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Status, status::StatusCode};

    use super::*;
    use crate::conversation::{Arguments, JsonText, MaybeJson, ToolCall, ToolOutcome};

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

    fn json(text: &str) -> MaybeJson {
        MaybeJson::Json(JsonText::new(text).expect("JSON"))
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
        assert_eq!(call.params, Arguments::Given(json(r#"{"city": "Paris", "n": 9007199254740993}"#)));
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
        let why = r#"its span holds no object of them; input.value is "Delhi""#;
        assert_eq!(tool.params, Arguments::Unknown(why.to_owned()));
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

    /// Arguments and result as one line.
    fn told(span: Span) -> String {
        let Some(call) = call(span) else { return "no call".to_owned() };
        let arguments = match call.params {
            Arguments::None => "none".to_owned(),
            Arguments::Given(MaybeJson::Json(text)) => text.as_str().to_owned(),
            Arguments::Given(MaybeJson::Malformed(text)) => format!("malformed {text}"),
            Arguments::Unknown(why) => format!("? {why}"),
        };
        let outcome = match call.outcome {
            Some(ToolOutcome::Result(Some(MaybeJson::Json(text)))) => text.as_str().to_owned(),
            Some(ToolOutcome::Error(fault)) => format!("failed: {}", fault.message),
            _ => "?".to_owned(),
        };
        format!("{} {:?} {arguments} -> {outcome}", call.name, call.call_id)
    }

    /// What instrumentations write of a tool call, as their sources have it: ADK 2.13,
    /// `openinference-instrumentation-google-adk` 1.0, `-openai-agents` 2.6, `-crewai` 1.1, `-smolagents` 0.1,
    /// `-llama-index` 4.6, `-agno` 1.0, the AI SDK 6 and `@ai-sdk/otel` 1.0.
    #[test]
    fn what_instrumentations_write() {
        const SCHEMA: &str = r#"{"properties": {"city": {"title": "City", "type": "string"}}, "required": ["city"], "title": "args", "type": "object"}"#;
        const INPUTS: &str = r#"{"city": {"type": "string", "description": "The city"}}"#;
        let adk = |more: &[(&'static str, &'static str)]| {
            let own = [
                ("gen_ai.operation.name", "execute_tool"),
                ("gen_ai.tool.name", "get_weather"),
                ("gen_ai.tool.type", "FunctionTool"),
                ("gen_ai.tool.call.id", "adk-1"),
            ];
            ("execute_tool get_weather", [&own, more].concat())
        };
        let openinference = |more: &[(&'static str, &'static str)]| {
            let own = [("openinference.span.kind", "TOOL"), ("tool.name", "get_weather")];
            ("get_weather", [&own, more].concat())
        };
        let vercel = |more: &[(&'static str, &'static str)]| {
            let own = [
                ("operation.name", "ai.toolCall chat"),
                ("ai.operationId", "ai.toolCall"),
                ("ai.toolCall.name", "get_weather"),
                ("ai.toolCall.id", "call_1"),
            ];
            ("ai.toolCall", [&own, more].concat())
        };
        let city = r#"{"city": "Paris"}"#;
        let rows = [
            // ADK without content, as it is installed, in both of its schemas, and with content.
            (adk(&[]), "\"adk-1\" ? its span holds none (gen_ai.tool.call.arguments) -> ?"),
            (
                adk(&[("gcp.vertex.agent.tool_call_args", "{}"), ("gcp.vertex.agent.tool_response", "{}")]),
                "\"adk-1\" ? its span holds none (gen_ai.tool.call.arguments) -> ?",
            ),
            (
                adk(&[
                    ("gcp.vertex.agent.tool_call_args", city),
                    ("gcp.vertex.agent.tool_response", r#"{"sky": "clear"}"#),
                ]),
                r#""adk-1" {"city": "Paris"} -> {"sky": "clear"}"#,
            ),
            (
                adk(&[("gcp.vertex.agent.tool_call_args", "{}"), ("gcp.vertex.agent.tool_response", r#"{"n": 1}"#)]),
                r#""adk-1" {} -> {"n": 1}"#,
            ),
            (adk(&[("gen_ai.tool.call.arguments", city)]), r#""adk-1" {"city": "Paris"} -> ?"#),
            // The span of OpenInference is that of ADK, with more in it; a call without arguments gets no more.
            (
                adk(&[
                    ("openinference.span.kind", "TOOL"),
                    ("tool.name", "get_weather"),
                    ("tool.parameters", city),
                    ("input.value", city),
                    ("tool.id", "adk-1"),
                    ("output.value", r#"{"id": "adk-1", "name": "get_weather", "response": {"n": 1}}"#),
                ]),
                r#""adk-1" {"city": "Paris"} -> {"id": "adk-1", "name": "get_weather", "response": {"n": 1}}"#,
            ),
            (
                adk(&[("openinference.span.kind", "TOOL"), ("tool.name", "get_weather")]),
                "\"adk-1\" ? its span holds none (input.value) -> ?",
            ),
            // The schema in `tool.parameters`, the arguments in `input.value`.
            (
                openinference(&[("tool.parameters", SCHEMA), ("input.value", city), ("output.value", "sunny")]),
                r#""" {"city": "Paris"} -> "sunny""#,
            ),
            (openinference(&[("tool.parameters", SCHEMA)]), "\"\" ? its span holds none (input.value) -> ?"),
            (
                openinference(&[
                    ("tool.parameters", SCHEMA),
                    ("gen_ai.tool.call.arguments", SCHEMA),
                    ("input.value", city),
                ]),
                r#""" {"city": "Paris"} -> ?"#,
            ),
            (
                openinference(&[("tool.parameters", SCHEMA), ("input.value", "__REDACTED__")]),
                r#""" ? its span holds no object of them; input.value is "__REDACTED__" -> ?"#,
            ),
            // The call of a Python function around the arguments.
            (
                openinference(&[
                    ("tool.parameters", INPUTS),
                    ("input.value", r#"{"args": [], "sanitize_inputs_outputs": true, "kwargs": {"city": "Paris"}}"#),
                ]),
                r#""" {"city":"Paris"} -> ?"#,
            ),
            (
                openinference(&[("tool.parameters", INPUTS), ("input.value", r#"{"args": ["Paris"], "kwargs": {}}"#)]),
                r#""" ? its span holds no object of them; input.value is "{\"args\": [\"Paris\"], \"kwargs\": {}}" -> ?"#,
            ),
            (
                openinference(&[("tool.parameters", SCHEMA), ("input.value", r#"{"kwargs": {"city": "Paris"}}"#)]),
                r#""" {"city":"Paris"} -> ?"#,
            ),
            // A tool that is given a schema is given that.
            (openinference(&[("tool.parameters", SCHEMA), ("input.value", SCHEMA)]), &*format!("\"\" {SCHEMA} -> ?")),
            (openinference(&[("tool.parameters", city), ("input.value", city)]), r#""" {"city": "Paris"} -> ?"#),
            // LangChain writes Python where it has no JSON.
            (
                openinference(&[("input.value", "{'city': 'Paris'}")]),
                r#""" ? its span holds no object of them; input.value is "{'city': 'Paris'}" -> ?"#,
            ),
            // The AI SDK, also where outputs are not recorded.
            (
                vercel(&[("ai.toolCall.args", city), ("ai.toolCall.result", r#"{"t": 18}"#)]),
                r#""call_1" {"city": "Paris"} -> {"t": 18}"#,
            ),
            (vercel(&[("ai.toolCall.args", "{}")]), r#""call_1" {} -> ?"#),
            (vercel(&[]), r#""call_1" ? its span holds none (ai.toolCall.args) -> ?"#),
            (adk(&[("gen_ai.tool.call.arguments", r#""{\"city\": \"Paris\"}""#)]), r#""adk-1" {"city":"Paris"} -> ?"#),
        ];
        for ((name, attributes), expected) in rows {
            let pairs: Vec<_> = attributes.iter().map(|(key, value)| (*key, string(value))).collect();
            assert_eq!(told(span(name, &pairs)), format!("get_weather {expected}"), "{attributes:?}");
        }
        // What stands for several calls beside the spans of these is none.
        let merged = span(
            "execute_tool (merged)",
            &[
                ("gen_ai.operation.name", string("execute_tool")),
                ("gen_ai.tool.name", string("(merged tools)")),
                ("gcp.vertex.agent.tool_call_args", string("N/A")),
            ],
        );
        assert_eq!(told(merged), "no call");
        // The AI SDK's spans around the model are none either.
        assert_eq!(told(span("ai.generateText", &[("ai.operationId", string("ai.generateText"))])), "no call");
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

    /// What instrumentations send in one request is read, at its largest; what would become a hundred times as
    /// large is not.
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
        assert!(matches!(tool.params, Arguments::Given(MaybeJson::Json(_))), "{:?}", tool.params);
        assert_eq!(tool.duration, None, "it did not end before it began");
    }
}
