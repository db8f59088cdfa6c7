//! What is known of an agent's answer and its tool calls, from whichever source, and what is not: by the programs
//! as real processes.

use forge::wire::agent as pb;
use forge::wire::agent::invoke_response::Event;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message as _;
use serde_json::Value;

use crate::processes::{Ended, Place};
use crate::support::endpoint::{Endpoint, Reply};
use crate::support::fake::{Asked, Fake, Script};
use crate::support::telemetry::post;

/// Runs a suite against an agent, and gives what it printed and the result.
fn run(place: &Place, suite: &str, agent: &str, more: &[&str]) -> (Ended, Value) {
    let args = ["run", suite, "-n", agent, "--output-dir", "out", "-o", "r.json"];
    let ended = place.run(&[&args[..], more].concat());
    assert!(ended.code != Some(2), "{}", ended.stderr);
    (ended, place.json("r.json"))
}

/// The cases of a result: outcome, cause, blame and error in a line each, by their ids.
fn verdicts(result: &Value) -> Vec<String> {
    let word = |case: &Value, key: &str| case[key].as_str().unwrap_or("-").to_owned();
    let line = |case: &Value| ["id", "outcome", "cause", "blame", "error"].map(|key| word(case, key)).join(" ");
    result["cases"].as_array().expect("cases").iter().map(line).collect()
}

/// A golden suite of cases, each with the same message, an id and what is expected.
fn golden(place: &Place, message: &str, cases: &[(&str, &str)]) {
    let case = |(id, expect): &(&str, &str)| {
        format!(r#"{{"id": "{id}", "input": {{"message": "{message}"}}, "expect": {expect}}}"#)
    };
    let cases = cases.iter().map(case).collect::<Vec<_>>().join(",\n");
    place.write("s.golden.json", &format!("[{cases}]"));
}

/// A suite of lines, each with the same input, an id and one assertion.
fn lines(place: &Place, input: &str, cases: &[(&str, &str)]) {
    let case = |(id, assertion): &(&str, &str)| {
        format!(r#"{{"id": "{id}", "input": "{input}", "assertions": [{assertion}]}}"#)
    };
    place.write("s.jsonl", &cases.iter().map(case).collect::<Vec<_>>().join("\n"));
}

/// An agent that says nothing of its tool calls, and exports a span of one with these attributes.
fn exporting(daemon: &str, attributes: Vec<(&'static str, &'static str)>) -> Fake {
    let address = daemon.trim_start_matches("http://").to_owned();
    let answer = move |asked: &Asked| {
        let text = |text: &str| Some(AnyValue { value: Some(any_value::Value::StringValue(text.to_owned())) });
        let attribute =
            |(key, value): &(&str, &str)| KeyValue { key: (*key).to_owned(), value: text(value), ..Default::default() };
        // 00-TRACE-SPAN-01
        let traceparent: Vec<&str> = asked.trace.1.split('-').collect();
        let span = Span {
            trace_id: hex::decode(traceparent[1]).expect("a trace id"),
            span_id: vec![7; 8],
            parent_span_id: hex::decode(traceparent[2]).expect("a span id"),
            name: "execute_tool pay".to_owned(),
            start_time_unix_nano: 1,
            end_time_unix_nano: 2,
            attributes: attributes.iter().map(attribute).collect(),
            ..Span::default()
        };
        let scope_spans = vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }];
        let resource_spans = vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }];
        let answered = post(&address, "/v1/traces", &ExportTraceServiceRequest { resource_spans }.encode_to_vec());
        assert!(answered.contains(" 200 "), "{answered}");
        Ok("Paid.".to_owned())
    };
    Script::new(answer).able(&["tools.from_spans"]).start()
}

const ABSENT: &str = r#"{"toolParams": [{"tool": "pay", "paramName": "force", "assertion": "notExists"}]}"#;
const EQUAL: &str = r#"{"toolParams": [{"tool": "pay", "paramName": "to", "assertion": "equals", "value": "Ann"}]}"#;

/// A span without arguments does not say that there were none: what a suite says about them has no answer, and
/// nobody is blamed for it. What else the span says is judged.
#[test]
fn what_a_span_does_not_hold_is_not_known() {
    let place = Place::new();
    let (_daemon, url) = place.daemon();
    // As Google's ADK writes it where nobody asked for content.
    let attributes = vec![
        ("gen_ai.operation.name", "execute_tool"),
        ("gen_ai.tool.name", "pay"),
        ("gen_ai.tool.type", "FunctionTool"),
        ("gen_ai.tool.call.id", "adk-1"),
    ];
    let agent = exporting(&url, attributes);
    let unknown = r#"the arguments of "pay" are not known: its span holds none (gen_ai.tool.call.arguments)"#;
    let errored = |id: &str, name: &str| format!("{id} errored assertion suite {name}: {unknown}");
    golden(
        &place,
        "Pay Ann",
        &[
            ("absent", ABSENT),
            ("equal", EQUAL),
            ("there", &ABSENT.replace("notExists", "exists")),
            ("names", r#"{"toolsCalled": ["pay"], "maxToolCalls": 1}"#),
            // What is not known does not stop what is: a failed assertion is a fact.
            ("both", &ABSENT.replace("}]}", r#"}], "responseContains": ["Owed"]}"#)),
        ],
    );
    let (ended, result) = run(&place, "s.golden.json", &agent.url, &["--daemon", &url]);
    let expected = [
        errored("absent", "toolParams"),
        errored("equal", "toolParams"),
        errored("there", "toolParams"),
        "names passed - - -".to_owned(),
        "both failed assertion agent responseContains: expected 'Owed' in response but not found".to_owned(),
    ];
    assert_eq!(verdicts(&result), expected, "{}", ended.stdout);
    assert_eq!(ended.code, Some(3));
    let call = &result["cases"][0]["toolCalls"][0];
    let why = "its span holds none (gen_ai.tool.call.arguments)";
    assert_eq!((&call["name"], &call["paramsUnknown"]), (&"pay".into(), &why.into()), "{call}");
    assert_eq!(call.get("params"), None, "{call}");

    let called = |arguments: &str, more: &str| {
        format!(r#"{{"type": "tool_called", "value": {{"name": "pay", "arguments": {arguments}}}{more}}}"#)
    };
    lines(
        &place,
        "Pay Ann",
        &[
            ("with", &called(r#"{"to": "Ann"}"#, "")),
            ("not-with", &called(r#"{"force": true}"#, r#", "negate": true"#)),
            ("with-any", &called("{}", "")),
            ("result", r#"{"type": "tool_result", "value": {"tool": "pay", "result": {"ok": true}}}"#),
            (
                "not-result",
                r#"{"type": "tool_result", "negate": true, "value": {"tool": "pay", "result": {"ok": true}}}"#,
            ),
            ("worked", r#"{"type": "tool_result", "value": {"tool": "pay"}}"#),
        ],
    );
    let (ended, result) = run(&place, "s.jsonl", &agent.url, &["--daemon", &url]);
    let no_result = r#"tool_result: the result of "pay" is not known: the report of the call does not say it"#;
    let expected = [
        errored("with", "tool_called"),
        errored("not-with", "tool_called"),
        "with-any passed - - -".to_owned(),
        format!("result errored assertion suite {no_result}"),
        format!("not-result errored assertion suite {no_result}"),
        "worked passed - - -".to_owned(),
    ];
    assert_eq!(verdicts(&result), expected, "{}", ended.stdout);
    // The same when it is judged again.
    let run_id = result["runId"].as_str().expect("an id");
    let (_, again) = self::run(&place, "s.jsonl", &agent.url, &["--daemon", &url, "--replay", run_id]);
    assert_eq!(verdicts(&again), expected);
}

/// The OpenAI Agents SDK behind OpenInference writes the tool's schema where others write the arguments.
#[test]
fn a_schema_is_not_taken_for_arguments() {
    let place = Place::new();
    let (_daemon, url) = place.daemon();
    let schema = r#"{"properties": {"to": {"title": "To", "type": "string"}}, "required": ["to"], "title": "pay_args", "type": "object", "additionalProperties": false}"#;
    let attributes = vec![
        ("openinference.span.kind", "TOOL"),
        ("tool.name", "pay"),
        ("tool.description", "Pays somebody."),
        ("tool.parameters", schema),
        ("input.value", r#"{"to":"Ann"}"#),
        ("input.mime_type", "application/json"),
        ("output.value", "paid"),
    ];
    let agent = exporting(&url, attributes);
    let typed = r#"{"toolParams": [{"tool": "pay", "paramName": "type", "assertion": "notExists"}]}"#;
    golden(&place, "Pay Ann", &[("equal", EQUAL), ("absent", ABSENT), ("no-schema", typed)]);
    let (ended, result) = run(&place, "s.golden.json", &agent.url, &["--daemon", &url]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(result["cases"][0]["toolCalls"][0]["params"]["to"], "Ann", "{result}");
}

/// The Vercel AI SDK has spans of its own.
#[test]
fn spans_of_the_ai_sdk_are_read() {
    let place = Place::new();
    let (_daemon, url) = place.daemon();
    let attributes = vec![
        ("operation.name", "ai.toolCall"),
        ("ai.operationId", "ai.toolCall"),
        ("ai.toolCall.name", "pay"),
        ("ai.toolCall.id", "call_1"),
        ("ai.toolCall.args", r#"{"to":"Ann"}"#),
        ("ai.toolCall.result", r#"{"ok":true}"#),
    ];
    let agent = exporting(&url, attributes);
    golden(&place, "Pay Ann", &[("called", r#"{"toolsCalled": ["pay"]}"#), ("equal", EQUAL), ("absent", ABSENT)]);
    let (ended, result) = run(&place, "s.golden.json", &agent.url, &["--daemon", &url]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(result["cases"][0]["toolCalls"][0]["result"]["ok"], true, "{result}");
}

/// An endpoint that tells of a call without its parameters.
#[test]
fn what_an_endpoint_does_not_tell_is_not_known() {
    let place = Place::new();
    let endpoint = Endpoint::start(|asked| {
        let calls = match asked.message().as_str() {
            "name" => r#"["pay"]"#,
            "none" => r#"[{"name": "pay", "success": true, "params": {}}]"#,
            "null" => r#"[{"name": "pay", "success": true, "params": null}]"#,
            _ => r#"[{"name": "pay", "success": true, "durationMs": 2}]"#,
        };
        Reply::Status(200, format!(r#"{{"response": "Paid.", "toolCalls": {calls}}}"#))
    });
    let cases: Vec<String> = ["record", "name", "none", "null"]
        .iter()
        .map(|id| format!(r#"{{"id": "{id}", "input": {{"message": "{id}"}}, "expect": {ABSENT}}}"#))
        .collect();
    place.write("s.golden.json", &format!("[{}]", cases.join(",")));
    let (ended, result) = run(&place, "s.golden.json", &endpoint.url(), &[]);
    let unknown = r#"errored assertion suite toolParams: the arguments of "pay" are not known: the endpoint's answer"#;
    let expected = [
        format!("record {unknown} holds no params of the call"),
        format!("name {unknown} tells the tool's name alone"),
        "none passed - - -".to_owned(),
        "null passed - - -".to_owned(),
    ];
    assert_eq!(verdicts(&result), expected, "{}", ended.stdout);
}

fn tool_started(call_id: &str, params: Option<&str>, unknown: Option<&str>) -> Event {
    Event::ToolStarted(pb::ToolCallStarted {
        call_id: call_id.to_owned(),
        name: "pay".to_owned(),
        params: params.map(|text| pb::Json { form: Some(pb::json::Form::Raw(text.as_bytes().to_vec())) }),
        params_unknown: unknown.map(str::to_owned),
        ..pb::ToolCallStarted::default()
    })
}

fn tool_finished(call_id: &str) -> Event {
    Event::ToolFinished(pb::ToolCallFinished {
        call_id: call_id.to_owned(),
        outcome: Some(pb::tool_call_finished::Outcome::Result(pb::Json::default())),
        ..pb::ToolCallFinished::default()
    })
}

/// One call that fits is enough, whatever nobody knows of the others; and validators and scripts are told what is
/// not known.
#[test]
fn an_adapter_says_what_it_cannot_tell() {
    let place = Place::new();
    let agent = Script::new(|asked| Ok(if asked.text == "Pay" { "Paid." } else { r#"{"passed": true}"# }.to_owned()))
        .doing(|asked| match asked.text.as_str() {
            "Pay" => vec![
                tool_started("1", None, Some("the log has no arguments")),
                tool_finished("1"),
                tool_started("2", Some(r#"{"to": "Ann"}"#), None),
                tool_finished("2"),
            ],
            _ => Vec::new(),
        });
    let agent = agent.start();
    place.write(
        "scripts/look.js",
        "export default (output, input, options, evidence) => {
            const [first, second] = evidence.tool_calls;
            return first.params === undefined && first.params_unknown === 'the log has no arguments'
                && second.params.to === 'Ann' && second.params_unknown === undefined;
        }",
    );
    let called = |to: &str, more: &str| {
        format!(r#"{{"type": "tool_called", "value": {{"name": "pay", "arguments": {{"to": "{to}"}}}}{more}}}"#)
    };
    lines(
        &place,
        "Pay",
        &[
            ("ann", &called("Ann", "")),
            ("not-ann", &called("Ann", r#", "negate": true"#)),
            ("bob", &called("Bob", "")),
            ("not-bob", &called("Bob", r#", "negate": true"#)),
            ("script", r#"{"type": "script", "use": "scripts:look"}"#),
            ("judge", r#"{"type": "agent", "use": "agents:judge", "options": {"metadata": {"criteria": "kind"}}}"#),
        ],
    );
    let judge = format!("judge={}", agent.url);
    let (ended, result) = run(&place, "s.jsonl", &agent.url, &["--agent", &judge]);
    let unknown =
        r#"errored assertion suite tool_called: the arguments of "pay" are not known: the log has no arguments"#;
    let told = verdicts(&result);
    assert_eq!(told[0], "ann passed - - -", "{}", ended.stdout);
    assert!(told[1].starts_with("not-ann failed assertion agent tool_called: it holds, and must not"), "{}", told[1]);
    assert_eq!(told[2..4], [format!("bob {unknown}"), format!("not-bob {unknown}")], "{}", ended.stdout);
    assert_eq!(told[4..], ["script passed - - -", "judge passed - - -"], "{}", ended.stdout);
    let asked = agent.asked();
    let question = &asked.iter().find(|asked| asked.text.contains("criteria")).expect("the judge was asked").text;
    assert!(question.contains(r#""name": "pay", "params_unknown": "the log has no arguments""#), "{question}");
    assert!(question.contains(r#""name": "pay", "params": {"to": "Ann"}"#), "{question}");
}

/// Arguments are checked against the schema of their tool only where they are known.
#[test]
fn unknown_arguments_fit_no_schema_and_break_none() {
    let place = Place::new();
    let agent = Script::new(|_| Ok("Paid.".to_owned()))
        .doing(|_| vec![tool_started("1", None, Some("the log has no arguments")), tool_finished("1")]);
    let agent = agent.start();
    let schema = r#"{"type": "object", "required": ["to"], "properties": {"to": {"type": "string"}}}"#;
    let tool = format!(r#"{{"name": "pay", "description": "d", "inputSchema": {schema}}}"#);
    place.write("tools.json", &format!(r#"{{"tools": [{tool}]}}"#));
    golden(&place, "Pay", &[("a", r#"{"toolsCalled": ["pay"]}"#)]);
    let (ended, result) = run(&place, "s.golden.json", &agent.url, &["--registry", "tools.json"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let warning = r#"arguments: "pay": the arguments are not known: the log has no arguments"#;
    assert_eq!(result["cases"][0]["warnings"][0], warning, "{result}");
    let checked = ["--registry", "tools.json", "--check-arguments"];
    let (_, result) = run(&place, "s.golden.json", &agent.url, &checked);
    let error =
        r#"a errored assertion suite toolArguments: "pay": the arguments are not known: the log has no arguments"#;
    assert_eq!(verdicts(&result), [error]);
}

/// Arguments that are no object are neither absent nor those that somebody asks for: an agent that encodes its JSON
/// twice calls its tool with a text. Every such call is told, and the rest is judged.
#[test]
fn arguments_that_are_no_object_cannot_be_asked_about() {
    let place = Place::new();
    let agent = Script::new(|_| Ok("Paid.".to_owned())).doing(|asked| {
        let params = match asked.text.as_str() {
            "twice" => r#""{\"to\": \"Ann\", \"force\": true}""#,
            "list" => r#"[{"force": true}]"#,
            "number" => "5",
            "broken" => r#"{"force": tr"#,
            "blank" => r#""""#,
            "null" => "null",
            _ => "{}",
        };
        vec![tool_started("1", Some(params), None), tool_finished("1")]
    });
    let agent = agent.start();
    let inputs = ["twice", "list", "number", "broken", "blank", "null", "empty"];
    let suite = |expect: &str| {
        let case = |id: &&str| format!(r#"{{"id": "{id}", "input": {{"message": "{id}"}}, "expect": {expect}}}"#);
        place.write("s.golden.json", &format!("[{}]", inputs.iter().map(case).collect::<Vec<_>>().join(",")));
        let (ended, result) = run(&place, "s.golden.json", &agent.url, &[]);
        (ended, verdicts(&result), result)
    };
    let shown = [
        r#"a text, not an object (JSON that was encoded twice): {"to": "Ann", "force": true}"#,
        r#"a list, not an object: [{"force": true}]"#,
        "a number, not an object: 5",
        r#"no JSON: {"force": tr"#,
    ];
    let errored = |name: &str| -> Vec<String> {
        let one = |(id, shown): (&&str, &&str)| {
            format!(r#"{id} errored assertion suite {name}: the arguments of "pay" are {shown}"#)
        };
        inputs.iter().zip(&shown).map(one).collect()
    };
    let (ended, told, result) = suite(ABSENT);
    assert_eq!((ended.code, &told[..4]), (Some(3), &errored("toolParams")[..]), "{}", ended.stdout);
    assert_eq!(told[4..], ["blank passed - - -", "null passed - - -", "empty passed - - -"], "{}", ended.stdout);
    for (index, shown) in shown.iter().enumerate() {
        let warning =
            format!(r#"the arguments of "pay" are {shown}; what a suite says about them cannot be evaluated"#);
        assert_eq!(result["cases"][index]["warnings"], serde_json::json!([warning]), "{result}");
    }
    let (_, told, _) = suite(EQUAL);
    assert_eq!(told[..4], errored("toolParams"));
    assert!(told[4..].iter().all(|line| line.contains("failed assertion agent")), "{told:?}");
    let (ended, told, _) = suite(r#"{"toolsCalled": ["pay"], "noToolErrors": true}"#);
    assert_eq!(ended.code, Some(0), "{told:?}");

    let forced = |more: &str| {
        let claim =
            format!(r#"{{"type": "tool_called", "value": {{"name": "pay", "arguments": {{"force": true}}}}{more}}}"#);
        let line = |id: &&str| format!(r#"{{"id": "{id}", "input": "{id}", "assertions": [{claim}]}}"#);
        place.write("s.jsonl", &inputs.iter().map(line).collect::<Vec<_>>().join("\n"));
        let (_, result) = run(&place, "s.jsonl", &agent.url, &[]);
        verdicts(&result)
    };
    let told = forced(r#", "negate": true"#);
    assert_eq!(told[..4], errored("tool_called"));
    assert_eq!(told[4..], ["blank passed - - -", "null passed - - -", "empty passed - - -"]);
    assert_eq!(forced("")[..4], errored("tool_called"));
}

fn said(message_id: &str, text: &str) -> Event {
    let (message_id, text) = (message_id.to_owned(), text.to_owned());
    Event::TextDelta(pb::TextDelta { message_id, text, channel: pb::TextChannel::Answer.into() })
}

fn call(call_id: &str) -> [Event; 2] {
    [tool_started(call_id, Some("{}"), None), tool_finished(call_id)]
}

/// An agent that streams what it says and names no answer: the last that it said is its answer, and what it said
/// before its tool calls is shown, and judged by nothing.
#[test]
fn the_answer_is_what_was_said_last() {
    let place = Place::new();
    let agent = Script::new(|_| Ok(String::new())).doing(|asked| match asked.text.as_str() {
        "look" => {
            [vec![said("", "Let me lo"), said("", "ok. ")], call("1").into(), vec![said("", "It is 5.")]].concat()
        }
        // The words of one message, with a tool of the provider between them.
        "one message" => [vec![said("m", "It is AB-12")], call("1").into(), vec![said("m", "34.")]].concat(),
        "booked" => [vec![said("", "Booked!")], call("1").into()].concat(),
        "while" => vec![
            said("", "One moment. "),
            tool_started("1", None, None),
            said("", "It is "),
            tool_finished("1"),
            said("", "5."),
        ],
        other => vec![said("", other)],
    });
    let agent = agent.able(&["tools.stub", "tools.routing"]).start();
    let case = |id: &str, more: &str| format!(r#"{{"id": "{id}", "input": {{"message": "{id}"}}, {more}}}"#);
    let cases = [
        case(
            "look",
            r#""expect": {"responseNotContains": ["look"], "responseMatches": ["^It is 5\\.$"], "maxLength": 8}"#,
        ),
        case("one message", r#""expect": {"responseContains": ["AB-1234"]}"#),
        case("booked", r#""expect": {"responseContains": ["Booked!"]}"#),
        case("while", r#""expect": {"responseNotContains": ["moment"], "responseContains": ["It is 5."]}"#),
        case("plain", r#""expect": {"responseContains": ["plain"]}"#),
    ];
    let suite = |cases: &[String]| place.write("s.golden.json", &format!("[{}]", cases.join(",\n")));
    suite(&cases);
    let (_daemon, url) = place.daemon();
    let daemon = ["--daemon", url.as_str(), "-o", "r.jsonl", "-o", "r.html", "-o", "r.md", "-o", "r.xml"];
    let (ended, result) = run(&place, "s.golden.json", &agent.url, &daemon);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let told = |result: &Value| -> Vec<(String, String, usize)> {
        let text = |case: &Value, key: &str| case[key].as_str().unwrap_or_default().to_owned();
        let cases = result["cases"].as_array().expect("cases").iter();
        cases
            .map(|it| (text(it, "response"), text(it, "commentary"), it["warnings"].as_array().unwrap().len()))
            .collect()
    };
    let line = |response: &str, commentary: &str, warnings| (response.to_owned(), commentary.to_owned(), warnings);
    let expected = [
        line("It is 5.", "Let me look. ", 0),
        line("It is AB-1234.", "", 0),
        line("Booked!", "", 1),
        line("It is 5.", "One moment. ", 0),
        line("plain", "", 0),
    ];
    assert_eq!(told(&result), expected);
    let warning = "nothing was said after the last tool call; what was said before it is taken for the answer";
    assert_eq!(result["cases"][2]["warnings"][0], warning);
    for report in ["r.jsonl", "r.html"] {
        let text = std::fs::read_to_string(place.path().join(report)).expect("a report");
        assert!(text.contains("Let me look."), "{report}: {text}");
    }
    // The same when it is played back.
    let run_id = result["runId"].as_str().expect("an id").to_owned();
    let (_, again) = run(&place, "s.golden.json", &agent.url, &["--daemon", &url, "--replay", &run_id]);
    assert_eq!(told(&again), expected);

    // With stubs the model got the result and owes an answer; where tools are only announced, they end the turn.
    suite(&[
        case("booked", r#""stubs": {"pay": {}}, "expect": {"responseNonEmpty": true}"#),
        case("look", r#""stubs": {"pay": {}}, "expect": {"responseNotContains": ["look"]}"#),
    ]);
    let (_, result) = run(&place, "s.golden.json", &agent.url, &["-o", "r.md", "-o", "r.xml"]);
    let empty = "booked failed assertion agent responseNonEmpty: the response is empty or white space";
    assert_eq!(verdicts(&result), [empty, "look passed - - -"]);
    assert_eq!(result["cases"][0]["commentary"], "Booked!");
    for report in ["r.md", "r.xml"] {
        let text = std::fs::read_to_string(place.path().join(report)).expect("a report");
        assert!(text.contains("Booked!"), "{report}: {text}");
    }
    suite(&[case("booked", r#""expect": {"responseContains": ["Booked!"]}"#)]);
    let (ended, result) = run(&place, "s.golden.json", &agent.url, &["--tools", "routing-only"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stdout);
    assert_eq!(told(&result)[0].0, "Booked!");
}

/// In a dialogue the user hears the answers, and the commentary stands with its turn.
#[test]
fn a_simulated_user_does_not_hear_commentary() {
    let place = Place::new();
    let agent = Script::new(|_| Ok(String::new()))
        .doing(|_| [vec![said("", "Let me look. ")], call("1").into(), vec![said("", "It is 5.")]].concat());
    let agent = agent.start();
    let user = Script::new(|_| Ok(r#"{"input": "And now?", "goal_achieved": false}"#.to_owned())).start();
    place.write(
        "d.jsonl",
        r#"{"id": "d", "input": "How much?", "simulator": {"use": "user"}, "max_turns": 2,
            "checkpoints": [{"id": "never", "assertion": {"type": "contains", "value": "look"}}]}"#,
    );
    let party = format!("user={}", user.url);
    let args = ["run", "d.jsonl", "-n", &agent.url, "--agent", &party, "--output-dir", "out", "-o", "r.jsonl"];
    let ended = place.run(&args);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    let line = place.json("r.jsonl");
    let turn =
        serde_json::json!({"turn": 1, "input": "How much?", "output": "It is 5.", "commentary": "Let me look. "});
    assert_eq!(line["turns"][0], turn, "{line}");
    let heard = &user.asked()[0].text;
    assert!(heard.contains("It is 5.") && !heard.contains("look"), "{heard}");
}

/// Where tools are only announced no result is due: none is missed, and no call has failed.
#[test]
fn routing_only_misses_no_result() {
    let place = Place::new();
    let agent =
        Script::new(|asked| Ok(if asked.text == "Pay" { "I will pay." } else { r#"{"passed": true}"# }.to_owned()))
            .doing(|asked| if asked.text == "Pay" { vec![tool_started("1", Some("{}"), None)] } else { Vec::new() });
    let agent = agent.able(&["tools.routing"]).start();
    golden(
        &place,
        "Pay",
        &[("a", r#"{"toolsCalled": ["pay"], "noToolErrors": true, "responseContains": ["I will pay."]}"#)],
    );
    let routing = ["--tools", "routing-only", "-o", "r.html", "-o", "r.md", "-o", "r.jsonl"];
    let (ended, result) = run(&place, "s.golden.json", &agent.url, &routing);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(!ended.stdout.contains('⚠'), "{}", ended.stdout);
    let case = &result["cases"][0];
    assert_eq!((&case["warnings"], &case["warning"]), (&serde_json::json!([]), &Value::Null), "{case}");
    let call = case["toolCalls"][0].as_object().expect("a call");
    assert_eq!((&call["name"], call.get("success")), (&"pay".into(), None), "{call:?}");
    let read = |report: &str| std::fs::read_to_string(place.path().join(report)).expect("a report");
    let page = read("r.html");
    assert!(page.contains("not run") && !page.contains("no result"), "{page}");
    assert!(!read("r.md").contains("(failed)") && !read("r.jsonl").contains("success"), "{}", read("r.jsonl"));

    // What others are told of it.
    place
        .write("scripts/look.js", "export default (o, i, p, evidence) => evidence.tool_calls[0].success === undefined");
    lines(
        &place,
        "Pay",
        &[
            ("script", r#"{"type": "script", "use": "scripts:look"}"#),
            ("judge", r#"{"type": "agent", "use": "agents:judge", "options": {"metadata": {"criteria": "kind"}}}"#),
            ("worked", r#"{"type": "tool_result", "value": {"tool": "pay"}}"#),
            ("called", r#"{"type": "tool_called", "name": "pay"}"#),
        ],
    );
    let judge = format!("judge={}", agent.url);
    let args = ["--tools", "routing-only", "--agent", &judge];
    let (ended, result) = run(&place, "s.jsonl", &agent.url, &args);
    let expected = [
        "script passed - - -",
        "judge passed - - -",
        r#"worked errored assertion suite tool_result: "pay" was not run: tools are only announced here (routing only)"#,
        "called passed - - -",
    ];
    assert_eq!(verdicts(&result), expected, "{}", ended.stdout);
    let asked = agent.asked();
    let question = &asked.iter().find(|asked| asked.text.contains("criteria")).expect("the judge was asked").text;
    assert!(question.contains(r#""tool_calls": [{"name": "pay", "params": {}, "turn": 1}]"#), "{question}");
}
