//! What a log becomes, span by span.

use std::fmt::Write as _;

use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};

use super::*;
use crate::conversation::{
    AgentEvent, Arguments, CancelReason, Fault, Finished, JsonText, MaybeJson, Message, ModelTurn, Part, Role,
    SpanEvidence, ToolCall, ToolMode, ToolOutcome, ToolSpec,
};
use crate::event::{Asked, PartyRole, PartySaid, Said};
use crate::plan::RunSpec;
use crate::suite::ModeKind;
use crate::telemetry::export::{AHEAD, Exporter};
use crate::trace::{TraceHeaders, TraceParent};
use crate::verdict::{AssertionResult, Blame, CaseResult, Cause, CheckpointResult, Opinion, Outcome, Totals, Turn};

const RUN_ID: &str = "0192f0c1-2d3e-7a4b-8c5d-6e7f8091a2b3";

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(1_767_322_800_000 + millis).expect("in range")
}

fn run(content: bool) -> Run {
    let headers = TraceHeaders {
        traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned(),
        ..TraceHeaders::default()
    };
    Run {
        run_id: RUN_ID.to_owned(),
        spec: Arc::new(RunSpec {
            trace_parent: Some(TraceParent::read(&headers).expect("is good")),
            capture_content: content,
            ..RunSpec::new("grpc://127.0.0.1:5005", vec!["s.jsonl".to_owned()])
        }),
        state: State::Running,
        totals: Totals::default(),
        created_at: at(0),
        finished_at: None,
        last_sequence: 0,
        error: None,
        warnings: vec!["odd".to_owned()],
        agent: None,
        agent_endpoint: "grpc://127.0.0.1:5005".to_owned(),
        suites: Vec::new(),
        paused: false,
        concurrency: None,
        gate: None,
    }
}

/// A log that is told event by event.
struct Log(Vec<Stored>);

impl Log {
    fn run(&mut self, millis: i64, payload: Payload) {
        self.push(millis, None, 0, payload);
    }

    fn case(&mut self, id: &str, attempt: u32, millis: i64, turn: u32, payload: Payload) {
        let case = CaseRef { suite: "s.jsonl".into(), case_id: id.into(), repeat: 1, attempt };
        self.push(millis, Some(case), turn, payload);
    }

    fn push(&mut self, millis: i64, case: Option<CaseRef>, turn: u32, payload: Payload) {
        let sequence = self.0.len() as u64 + 1;
        let event = RunEvent { sequence, at: at(millis), case, turn, payload };
        self.0.push(Stored { event: Arc::new(event), bytes: 0 });
    }
}

fn started(mode: ModeKind) -> Payload {
    Payload::CaseStarted { mode, tool_mode: ToolMode::Stub, invocation_id: "i1".to_owned() }
}

fn agent(elapsed: u64, kind: AgentEventKind) -> Payload {
    Payload::Agent(AgentEvent { seq: 1, elapsed: Some(Duration::from_millis(elapsed)), kind })
}

fn tool(name: &str) -> ToolCall {
    let params = Arguments::Given(MaybeJson::Json(JsonText::new(r#"{"city": "Paris"}"#).expect("JSON")));
    ToolCall { call_id: "c1".to_owned(), name: name.to_owned(), params, outcome: None, duration: None, turn: 0 }
}

fn ended(id: &str, began: i64, millis: u64, failure: Option<Failure>) -> Payload {
    Payload::CallEnded(Box::new(CallEnd {
        invocation_id: id.to_owned(),
        conversation_id: "conversation".to_owned(),
        began: Some(at(began)),
        duration: Duration::from_millis(millis),
        grpc_status: Some(if failure.is_some() { 14 } else { 0 }),
        failure,
        input: vec![
            Message { role: Role::System, parts: vec![Part::Text("Be brief.".to_owned())] },
            Message::user("Weather in Paris?"),
        ],
        ..CallEnd::default()
    }))
}

fn party(by: &str, began: i64, said: Said) -> Payload {
    let (role, told) = match by {
        "judge" => (PartyRole::Validator, "Is it polite?"),
        _ => (PartyRole::Simulator, "A tourist"),
    };
    Payload::PartySaid(Box::new(PartySaid {
        role,
        by: by.to_owned(),
        digest: String::new(),
        said,
        request_id: format!("question to {by} at {began}"),
        began: Some(at(began)),
        duration: Duration::from_millis(5),
        endpoint: "https://parties.example".to_owned(),
        usage: Some(Usage { output_tokens: Some(3), ..Usage::default() }),
        asked: Some(Asked { instructions: vec![told.to_owned()], messages: vec![Message::user("Weather in Paris?")] }),
    }))
}

fn result(outcome: Outcome, assertions: Vec<AssertionResult>) -> CaseResult {
    let bad = outcome != Outcome::Passed;
    CaseResult {
        outcome,
        cause: bad.then_some(Cause::Assertion),
        blame: bad.then_some(Blame::Agent),
        error: bad.then(|| "contains: expected \"sun\"".to_owned()),
        assertions,
        warnings: vec!["look here".to_owned()],
        ..CaseResult::without_assertions(
            outcome,
            Cause::Assertion,
            Blame::Agent,
            "",
            crate::conversation::Transcript::default(),
        )
    }
}

fn assertion(name: &str, outcome: Outcome, reason: &str, score: Option<f64>) -> AssertionResult {
    AssertionResult {
        name: name.to_owned(),
        outcome,
        reason: reason.to_owned(),
        hint: String::new(),
        unresolved_tokens: Vec::new(),
        blame: None,
        written: None,
        opinion: score.map(|score| Opinion { score: Some(score), ..Opinion::default() }),
    }
}

fn log(content: bool) -> (Run, Log) {
    let mut log = Log(Vec::new());
    let run = run(content);
    log.run(0, Payload::RunStarted(Box::new(run.clone())));
    let card = AgentCard {
        agent_id: "weather".to_owned(),
        name: "Weather".to_owned(),
        version: "1.2".to_owned(),
        description: "Knows the weather".to_owned(),
        provider_name: "openai".to_owned(),
        model: "gpt-x".to_owned(),
        tools: vec![ToolSpec {
            name: "get_weather".to_owned(),
            description: "The weather of a city".to_owned(),
            input_schema: JsonText::new(r#"{"type": "object"}"#).ok(),
            ..ToolSpec::default()
        }],
    };
    log.run(1, Payload::AgentDescribed(Box::new(card)));
    // A case that a daemon left behind.
    log.case("single", 1, 2, 0, started(ModeKind::Single));
    // Its second attempt fails, its third passes.
    log.case("single", 2, 10, 0, started(ModeKind::Single));
    log.case(
        "single",
        2,
        14,
        1,
        agent(1, AgentEventKind::ToolStarted { call: tool("get_weather"), awaits_result: true, model_turn: 0 }),
    );
    let outcome = ToolOutcome::Result(Some(MaybeJson::Json(JsonText::new("{\"sun\": true}").expect("JSON"))));
    let served = Payload::StubServed { call_id: "c1".to_owned(), outcome: outcome.clone(), unstubbed: false };
    log.case("single", 2, 15, 1, served);
    let missing = ToolOutcome::Error(Fault::message("there is no stub"));
    let served = Payload::StubServed { call_id: "c2".to_owned(), outcome: missing, unstubbed: true };
    log.case("single", 2, 16, 1, served);
    let finished = AgentEventKind::ToolFinished { call_id: "c1".to_owned(), outcome: Some(outcome), duration: None };
    log.case("single", 2, 16, 1, agent(3, finished));
    let broken = ToolOutcome::Error(Fault { reason: "NO_SEATS".to_owned(), ..Fault::message("no seats") });
    log.case(
        "single",
        2,
        16,
        1,
        agent(
            4,
            AgentEventKind::ToolStarted {
                call: ToolCall { call_id: "c2".to_owned(), ..tool("book") },
                awaits_result: false,
                model_turn: 0,
            },
        ),
    );
    log.case(
        "single",
        2,
        17,
        1,
        agent(5, AgentEventKind::ToolFinished { call_id: "c2".to_owned(), outcome: Some(broken), duration: None }),
    );
    let usage =
        Usage { input_tokens: Some(12), output_tokens: Some(0), cache_write_tokens: Some(5), ..Usage::default() };
    let turn = ModelTurn {
        index: 1,
        model: "gpt-x-1".to_owned(),
        response_id: "chatcmpl-1".to_owned(),
        finish_reason: "stop".to_owned(),
        usage: Some(usage),
        duration: None,
    };
    log.case("single", 2, 17, 1, agent(6, AgentEventKind::ModelTurn(turn)));
    let answer = Message { role: Role::Assistant, parts: vec![Part::Text("Rain.".to_owned())] };
    log.case(
        "single",
        2,
        18,
        1,
        agent(
            7,
            AgentEventKind::Finished(Finished {
                reason: FinishReason::Completed,
                response: Some(answer),
                usage: Some(usage),
                error: None,
                tool_calls: 2,
                spans_flushed: false,
                warnings: Vec::new(),
            }),
        ),
    );
    log.case("single", 2, 20, 1, ended("i2", 11, 8, None));
    let vote = Said::Vote { passed: false, reason: "no".to_owned(), score: Some(0.25), reply: String::new() };
    log.case("single", 2, 26, 1, party("judge", 20, vote));
    log.case(
        "single",
        2,
        30,
        0,
        Payload::AttemptFinished(Box::new(result(
            Outcome::Failed,
            vec![
                assertion("contains", Outcome::Failed, "expected \"sun\"", None),
                AssertionResult {
                    written: JsonText::new(r#"{"type": "agent", "use": "agents:judge"}"#).ok(),
                    ..assertion("agent", Outcome::Failed, "no", Some(0.25))
                },
                assertion("snapshot", Outcome::Skipped, "renewed", None),
                assertion("script", Outcome::Errored, "it threw", None),
            ],
        ))),
    );
    log.case("single", 3, 40, 0, started(ModeKind::Single));
    log.case("single", 3, 48, 1, ended("i3", 41, 6, None));
    log.case(
        "single",
        3,
        50,
        0,
        Payload::CaseFinished(Box::new(result(
            Outcome::Passed,
            vec![assertion("contains", Outcome::Passed, "", None)],
        ))),
    );
    // A dialogue whose agent exports its own spans, and fails in the end.
    log.case("dialogue", 1, 60, 0, started(ModeKind::Dynamic));
    log.case(
        "dialogue",
        1,
        66,
        1,
        party("user", 61, Said::Input { message: Some(Message::user("Hi")), is_last: false, reasoning: String::new() }),
    );
    log.case(
        "dialogue",
        1,
        67,
        1,
        agent(1, AgentEventKind::ToolStarted { call: tool("get_weather"), awaits_result: false, model_turn: 0 }),
    );
    let own = Payload::CallEnded(Box::new(CallEnd {
        exports_spans: true,
        invocation_id: "i4".to_owned(),
        began: Some(at(67)),
        duration: Duration::from_millis(5),
        ..CallEnd::default()
    }));
    log.case("dialogue", 1, 72, 1, own);
    log.case("dialogue", 1, 72, 1, Payload::CheckpointReached { checkpoint: "greeted".to_owned() });
    log.case("dialogue", 1, 80, 2, party("user", 73, Said::Silence("it hung up".to_owned())));
    log.case("dialogue", 1, 90, 2, ended("i5", 81, 8, Some(Failure::Lost("gone".to_owned()))));
    let cancelled = Payload::CallEnded(Box::new(CallEnd {
        to: "helper".to_owned(),
        endpoint: "grpc://[::1]:6000".to_owned(),
        invocation_id: "i6".to_owned(),
        began: Some(at(90)),
        failure: Some(Failure::Cancelled),
        cancel: Some(CancelReason::FailFast),
        grpc_status: Some(1),
        ..CallEnd::default()
    }));
    log.case("dialogue", 1, 90, 2, cancelled);
    log.case("dialogue", 1, 90, 2, party("judge", 85, Said::Cancelled));
    let checkpoints = vec![
        CheckpointResult { id: "greeted".to_owned(), reached_at_turn: Some(1), required: true, assertions: Vec::new() },
        CheckpointResult {
            id: "paid".to_owned(),
            reached_at_turn: None,
            required: true,
            assertions: vec![assertion("contains", Outcome::Failed, "no receipt", None)],
        },
    ];
    log.case(
        "dialogue",
        1,
        91,
        0,
        Payload::CaseFinished(Box::new(CaseResult { checkpoints, ..result(Outcome::Errored, Vec::new()) })),
    );
    // A script test calls the agent twice.
    log.case("TestTwice", 1, 93, 0, started(ModeKind::ScriptTest));
    let said = |input: &str| {
        Payload::TurnFinished(Turn { number: 1, input: input.to_owned(), output: "yes".to_owned(), ..Turn::default() })
    };
    for (turn, id, began) in [(1, "i7", 94), (2, "i8", 96)] {
        let called = AgentEventKind::ToolStarted { call: tool("get_weather"), awaits_result: false, model_turn: 0 };
        log.case("TestTwice", 1, began, turn, agent(1, called));
        log.case("TestTwice", 1, began + 1, turn, ended(id, began, 1, None));
        log.case("TestTwice", 1, began + 1, turn, said("and?"));
    }
    log.case("TestTwice", 1, 98, 0, Payload::CaseFinished(Box::new(result(Outcome::Passed, Vec::new()))));
    // One that was never begun.
    log.case("left out", 1, 92, 0, Payload::CaseFinished(Box::new(result(Outcome::Skipped, Vec::new()))));
    let over = Run { state: State::Failed, finished_at: Some(at(100)), ..run.clone() };
    log.run(100, Payload::RunFinished(Box::new(over)));
    (run, log)
}

fn spans(content: bool, style: Style) -> Vec<SpanData> {
    let (run, log) = log(content);
    let mut grouper = Grouper::new(&run, style);
    let mut spans = Vec::new();
    for event in &log.0 {
        for group in grouper.take(event) {
            let of_group = group.spans();
            assert_eq!(group.count, of_group.len(), "{group:?}");
            spans.extend(of_group);
        }
    }
    spans
}

/// Spans as text: name, kind, place in the tree, times in milliseconds from the beginning, attributes, events.
fn written(spans: &[SpanData]) -> String {
    let millis = |time: SystemTime| time.duration_since(clock(at(0))).expect("after the beginning").as_millis();
    let names: HashMap<OtelSpanId, &str> =
        spans.iter().map(|it| (it.span_context.span_id(), it.name.as_ref())).collect();
    let list = |attributes: &[KeyValue]| {
        let mut list: Vec<String> = attributes.iter().map(|it| format!("{}={:?}", it.key, it.value.as_str())).collect();
        list.sort();
        list
    };
    let mut out = String::new();
    for span in spans {
        let parent = names.get(&span.parent_span_id).copied();
        let parent = parent.map_or_else(|| format!("remote {}", span.parent_span_id), str::to_owned);
        let (began, ended) = (millis(span.start_time), millis(span.end_time));
        let _ = writeln!(out, "{} [{:?}] below {parent}, {began} to {ended}", span.name, span.span_kind);
        if let Status::Error { description } = &span.status {
            let _ = writeln!(out, "  error {description}");
        }
        for link in span.links.iter() {
            let _ = writeln!(out, "  link {}", names.get(&link.span_context.span_id()).copied().unwrap_or("?"));
        }
        for attribute in list(&span.attributes) {
            let _ = writeln!(out, "  {attribute}");
        }
        for event in span.events.iter() {
            let _ = writeln!(out, "  event {} {}", event.name, list(&event.attributes).join(" "));
        }
    }
    out
}

/// What leaves the daemon, word for word: people's dashboards look for it.
#[test]
fn the_exported_spans() {
    let (plain, newest) = (Style::default(), Style { conventions: Conventions::Latest, rpc: true });
    let (without, with, styled) =
        (written(&spans(false, plain)), written(&spans(true, plain)), written(&spans(true, newest)));
    let added = |text: &str, to: &str| {
        let known: HashSet<&str> = to.lines().collect();
        let mut added: Vec<&str> = text.lines().filter(|line| !known.contains(line)).collect();
        added.push("");
        added.join("\n")
    };
    golden("spans.txt", &without);
    // Everything else is as without.
    golden("content.txt", &added(&with, &without));
    assert_eq!(added(&without, &with), "", "content takes nothing away");
    golden("styled.txt", &format!("{}instead of\n{}", added(&styled, &with), added(&with, &styled)));
}

/// Compares with a file, or writes it: `FORGE_WRITE_GOLDEN=1 cargo test the_exported_spans`, and look at what changed.
fn golden(file: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/telemetry/golden").join(file);
    if std::env::var_os("FORGE_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, text).expect("writes");
    }
    let wanted = std::fs::read_to_string(&path).expect("is there");
    assert!(
        wanted == text,
        "{file} is not what is exported:\n{}",
        similar::TextDiff::from_lines(wanted.as_str(), text).unified_diff()
    );
}

/// Without room nothing is kept, and what is lost is counted; with room again, whole attempts are.
#[test]
fn attempts_are_passed_over_as_a_whole() {
    let (run, log) = log(false);
    let mut grouper = Grouper::new(&run, Style::default());
    let (mut lost, mut names) = (0, Vec::new());
    for stored in &log.0 {
        let event = &stored.event;
        // Room comes back in the middle of the third attempt.
        let has_room = event.sequence > 16;
        if let Some(spans) = grouper.pass_over(event, has_room) {
            lost += spans;
            continue;
        }
        let groups = grouper.take(stored);
        let spans = groups.iter().flat_map(Group::spans);
        names.extend(spans.map(|span| span.name.into_owned()));
    }
    // Two attempts with a call each, two tools, a model turn and a validator; nothing is known of one that was cut off.
    assert_eq!((lost, grouper.passed_over.len(), grouper.open.len()), (8, 0, 0), "{names:?}");
    let cases = names.iter().filter(|name| *name == "test_case").count();
    assert_eq!((cases, names.last().map(String::as_str)), (3, Some("test_suite_run")), "{names:?}");
}

#[test]
fn spans_make_one_tree() {
    let spans = spans(false, Style { rpc: true, ..Style::default() });
    let ids: HashSet<OtelSpanId> = spans.iter().map(|span| span.span_context.span_id()).collect();
    assert_eq!(ids.len(), spans.len(), "every id is there once");
    let roots: Vec<&SpanData> = spans.iter().filter(|span| !ids.contains(&span.parent_span_id)).collect();
    let [root] = roots[..] else { panic!("{roots:?}") };
    assert_eq!((root.name.as_ref(), root.parent_span_is_remote), (name::SPAN_RUN, true));
    assert!(spans.iter().all(|span| span.span_context.trace_id() == root.span_context.trace_id()));
    assert!(spans.iter().all(|span| span.start_time <= span.end_time));
}

/// What no clock shows is no reason to fall over.
#[test]
fn impossible_times() {
    let mut log = Log(Vec::new());
    log.case("c", 1, 0, 0, started(ModeKind::Single));
    for elapsed in [Duration::MAX, Duration::ZERO] {
        let said = |kind| Payload::Agent(AgentEvent { seq: 1, elapsed: Some(elapsed), kind });
        log.case(
            "c",
            1,
            0,
            1,
            said(AgentEventKind::ToolStarted { call: tool("t"), awaits_result: false, model_turn: 0 }),
        );
        let ended =
            AgentEventKind::ToolFinished { call_id: "c1".to_owned(), outcome: None, duration: Some(Duration::MAX) };
        log.case("c", 1, 0, 1, Payload::Agent(AgentEvent { seq: 1, elapsed: None, kind: ended }));
    }
    log.case("c", 1, 5, 1, ended("i", 0, 5, None));
    log.case("c", 1, 6, 0, Payload::CaseFinished(Box::new(result(Outcome::Passed, Vec::new()))));
    let mut grouper = Grouper::new(&run(false), Style::default());
    let groups: Vec<Group> = log.0.iter().flat_map(|event| grouper.take(event)).collect();
    let spans = groups[0].spans();
    assert_eq!(spans.len(), 4);
    assert!(spans.iter().all(|span| span.start_time <= span.end_time && span.end_time <= clock(at(6))), "{spans:#?}");
}

/// Tools that were read from the agent's spans stand in the trace, too, unless it exports them itself.
#[test]
fn tools_of_spans() {
    let names = |exports_spans: bool| {
        let mut log = Log(Vec::new());
        log.case("c", 1, 0, 0, started(ModeKind::Single));
        let took = Some(Duration::from_millis(1));
        let read = SpanEvidence {
            tool_calls: ["a", "b"].map(|name| ToolCall { duration: took, ..tool(name) }).to_vec(),
            // The second by a clock that is wrong.
            began: vec![at(2), at(1_000)],
            confirmed: true,
            ..SpanEvidence::default()
        };
        log.case("c", 1, 4, 1, Payload::SpansRead(Box::new(read)));
        let end = CallEnd {
            invocation_id: "i".to_owned(),
            began: Some(at(0)),
            duration: Duration::from_millis(4),
            exports_spans,
            ..CallEnd::default()
        };
        log.case("c", 1, 5, 1, Payload::CallEnded(Box::new(end)));
        log.case("c", 1, 6, 0, Payload::CaseFinished(Box::new(result(Outcome::Passed, Vec::new()))));
        let mut grouper = Grouper::new(&run(false), Style::default());
        let groups: Vec<Group> = log.0.iter().flat_map(|event| grouper.take(event)).collect();
        let spans = groups[0].spans();
        assert_eq!(groups[0].count, spans.len());
        let tools = spans.iter().filter(|span| span.name.starts_with("execute_tool"));
        let times: Vec<_> = tools.map(|span| (span.start_time, span.end_time)).collect();
        let wanted = [(clock(at(2)), clock(at(3))), (clock(at(4)), clock(at(4)))];
        assert!(exports_spans || times == wanted, "{times:?}");
        spans.into_iter().map(|span| span.name.into_owned()).collect::<Vec<_>>()
    };
    let call = ["test_case", "invoke_agent grpc://127.0.0.1:5005"];
    assert_eq!(names(true), call);
    assert_eq!(names(false), [&call[..], &["execute_tool a", "execute_tool b"]].concat());
}

#[test]
fn attributes_and_steps_are_bounded() {
    let long = "é".repeat(1 << 20);
    let mut log = Log(Vec::new());
    log.case("c", 1, 0, 0, started(ModeKind::Single));
    for number in 0..MAX_STEPS + 10 {
        let call = ToolCall { call_id: number.to_string(), name: long.clone(), ..tool("t") };
        let params = Arguments::Given(MaybeJson::Malformed(long.clone()));
        let call = ToolCall { params, ..call };
        log.case("c", 1, 0, 1, agent(1, AgentEventKind::ToolStarted { call, awaits_result: false, model_turn: 0 }));
    }
    log.case("c", 1, 1, 1, ended("i", 0, 1, Some(Failure::Agent(long.clone()))));
    let mut grouper = Grouper::new(&run(true), Style::default());
    let result = CaseResult { error: Some(long), ..result(Outcome::Failed, Vec::new()) };
    log.case("c", 1, 1, 0, Payload::CaseFinished(Box::new(result)));
    let groups: Vec<Group> = log.0.iter().flat_map(|event| grouper.take(event)).collect();
    let spans = groups[0].spans();
    assert_eq!((spans.len(), groups[0].count), (MAX_STEPS + 2, MAX_STEPS + 2));
    let size = |span: &SpanData| span.attributes.iter().map(|it| it.value.as_str().len()).sum::<usize>();
    let largest = spans.iter().map(size).max().unwrap_or_default();
    assert!(largest < 2 * MAX_CONTENT, "{largest}");
    let whole: usize = spans.iter().map(size).sum();
    assert!(whole < 8 << 20, "{whole}: content is bounded for a call as a whole");
}

/// What waited and is gone has room again, however much that was in all.
#[tokio::test(start_paused = true)]
async fn room_is_given_back() {
    let nobody = SpanExporter::builder().with_tonic().with_endpoint("http://127.0.0.1:9").build();
    let (resource, timeout) = (opentelemetry_sdk::Resource::builder_empty().build(), Duration::from_secs(1));
    let exporter = Exporter::start(nobody.expect("an address"), None, Conventions::default(), &resource, timeout);
    let mut log = Log(Vec::new());
    log.case("c", 1, 0, 0, started(ModeKind::Single));
    log.case("c", 1, 1, 0, Payload::CaseFinished(Box::new(result(Outcome::Passed, Vec::new()))));
    // Events of up to 8 KiB for each span wait as they are; larger ones become spans at once.
    for bytes in [6_000, 100_000] {
        log.0[0].bytes = bytes;
        let mut grouper = Grouper::new(&run(false), Style::default());
        for _ in 0..3 {
            let before = exporter.dropped();
            for _ in 0..3_000 {
                log.0.iter().flat_map(|stored| grouper.take(stored)).for_each(|group| exporter.offer(group));
            }
            assert!(!exporter.has_room(1_200), "{} spans wait", exporter.waiting());
            let begun = tokio::time::Instant::now();
            while exporter.dropped() < before + 3_000 {
                assert!(begun.elapsed() < Duration::from_secs(100_000), "{} are lost", exporter.dropped() - before);
                tokio::time::sleep(Duration::from_secs(10)).await;
            }
            assert_eq!(exporter.waiting(), 0);
            assert!(exporter.has_room(AHEAD), "bytes of what is gone still count");
        }
    }
}
