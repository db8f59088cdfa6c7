//! Traces: the spans of a run and of its agents, as a real receiver keeps them, and spans of agents as evidence.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use serde_json::Value;
use tonic::Status;

use crate::processes::{Ended, Place, Running, SIDECAR, command};
use crate::python::python;
use crate::support::fake::Script;
use crate::support::project;
use crate::support::telemetry::{ARRIVAL, Phoenix, Span, daemon, get};

/// A sample agent that sends its spans somewhere, and its URL.
fn sample(module: &str, endpoint: &str, more: &[&str]) -> (Running, String) {
    let mut command = command(&python(), &project(""));
    command.args(["-m", module, "--listen", "127.0.0.1:0"]).args(more);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).env("OTEL_BSP_SCHEDULE_DELAY", "200");
    let mut agent = Running::start(command);
    let url = format!("grpc://{}", agent.address());
    (agent, url)
}

fn eval(name: &str) -> String {
    project("evals").join(name).display().to_string()
}

fn trace_of(ended: &Ended, result: &Value) -> String {
    let trace = result["cases"][0]["traceId"].as_str();
    trace.unwrap_or_else(|| panic!("no trace: {result}\n{}{}", ended.stdout, ended.stderr)).to_owned()
}

/// A dialogue with an agent, a simulator and a validator, all of which send spans of their own: in a receiver that
/// is not ours it is one tree, by HTTP and by gRPC.
#[test]
fn a_run_is_one_tree_in_a_real_receiver() {
    let place = Place::new();
    let phoenix = Phoenix::start(&place);
    let (_agent, agent) = sample("forge_daemon.samples.expense", &format!("http://{}", phoenix.grpc), &[]);
    let parties: Vec<String> =
        ["expense", "expense.user", "expense.validator"].iter().map(|id| format!("{id}={agent}")).collect();
    let http = format!("http://{}", phoenix.http);
    let grpc = format!("http://{}", phoenix.grpc);
    for (protocol, endpoint) in [("http/protobuf", &http), ("grpc", &grpc)] {
        let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)];
        let (_daemon, url) = daemon(&place, "", &variables);
        let template = format!("{http}/redirects/traces/{{trace_id}}");
        let dialogues = eval("expense-dynamic.jsonl");
        let mut args = vec!["run", "-i", &dialogues, "-n", "expense", "--daemon", &url, "--output-dir", "results"];
        args.extend(parties.iter().flat_map(|party| ["--agent", party.as_str()]));
        args.extend(["-o", "r.html", "-o", "r.jsonl", "--otlp-file", "traces.jsonl", "--trace-url", &template]);
        let ended = place.run(&args);
        assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);

        let lines = std::fs::read_to_string(place.path().join("r.jsonl")).expect("a file");
        let first: Value = serde_json::from_str(lines.lines().next().expect("a line")).expect("JSON");
        let trace = first["trace_id"].as_str().expect("a trace").to_owned();
        assert_eq!(first["trace_url"], format!("{http}/redirects/traces/{trace}"), "{first}");
        assert!(ended.stdout.contains(&format!("Trace: {http}/redirects/traces/{trace}")), "{}", ended.stdout);
        let page = std::fs::read_to_string(place.path().join("r.html")).expect("a file");
        assert!(page.contains(&format!("href=\"{http}/redirects/traces/{trace}\"")), "no link in the page");

        // The spans of the file are those that were exported, and the agent's own hang among them.
        let ours = Span::of_file(&place.path().join("traces.jsonl"));
        let names: HashMap<&str, &str> = ours.iter().map(|span| (span.id.as_str(), span.name.as_str())).collect();
        assert!(!names.values().any(|name| name.starts_with("chat") || name.starts_with("execute_tool")), "{names:?}");
        let begun = Instant::now();
        let spans = loop {
            let spans = phoenix.spans(&trace, ours.len() + 4);
            let known: HashSet<&str> = spans.iter().map(|span| span.id.as_str()).collect();
            let has_all = ours.iter().all(|span| known.contains(span.id.as_str()));
            let is_tree =
                spans.iter().filter(|it| it.parent.as_ref().is_none_or(|it| !known.contains(it.as_str()))).count();
            // The agent sends its own in its own time.
            let own = ["chat ", "execute_tool create_expense"];
            let has_own = own.iter().all(|own| spans.iter().any(|span| span.name.starts_with(own)));
            if has_all && has_own && is_tree == 1 {
                break spans;
            }
            assert!(begun.elapsed() < ARRIVAL, "{protocol}: no tree: {spans:#?}");
            std::thread::sleep(Duration::from_millis(100));
        };
        let by_id: HashMap<&str, &Span> = spans.iter().map(|span| (span.id.as_str(), span)).collect();
        let parent_of = |span: &Span| by_id.get(span.parent.as_deref().unwrap_or_default()).copied();
        let named = |begins: &str| spans.iter().filter(|span| span.name.starts_with(begins)).collect::<Vec<_>>();
        let parents = |begins: &str| {
            let parents =
                named(begins).into_iter().map(|span| parent_of(span).map_or("", |parent| parent.name.as_str()));
            parents.collect::<HashSet<_>>()
        };
        assert_eq!(named("test_suite_run").len(), 1);
        assert_eq!(parents("test_suite_run"), HashSet::from([""]));
        assert_eq!((named("test_case").len(), parents("test_case")), (2, HashSet::from(["test_suite_run"])));
        assert_eq!(parents("forge.turn"), HashSet::from(["test_case"]));
        assert_eq!(parents("evaluate expense.validator"), HashSet::from(["forge.turn"]));
        // The agent's own spans of model and tools, below the daemon's span of the call.
        for own in ["chat ", "execute_tool "] {
            let own = named(own);
            assert!(!own.is_empty(), "{spans:#?}");
            for span in own {
                let mut above = parent_of(span);
                while let Some(parent) = above.filter(|parent| !names.contains_key(parent.id.as_str())) {
                    above = parent_of(parent);
                }
                let call = above.expect("a span of ours");
                assert_eq!(call.text("gen_ai.operation.name"), "invoke_agent", "{call:?}");
                assert!(call.text("forge.invocation.id").len() > 30, "{call:?}");
                assert_eq!(span.text("forge.run.id"), first_run(&spans), "the agent's spans can be found by the run");
            }
        }
        let created = named("execute_tool create_expense");
        assert!(created.iter().all(|span| span.text("gen_ai.tool.name") == "create_expense"), "{created:?}");
        // What came of the checkpoints stands with the calls that reached them.
        let evaluated: Vec<(&str, &str)> = spans
            .iter()
            .flat_map(|span| &span.events)
            .filter(|(name, _)| name == "gen_ai.evaluation.result")
            .map(|(_, it)| {
                (it["gen_ai.evaluation.name"].as_str().unwrap(), it["gen_ai.evaluation.score.label"].as_str().unwrap())
            })
            .collect();
        for checkpoint in ["ask_type", "call_create", "confirm", "tell_limit", "ask_to_confirm", "reference"] {
            assert!(evaluated.contains(&(checkpoint, "pass")), "{checkpoint} in {evaluated:?}");
        }
        assert!(spans.iter().all(|span| !span.is_error), "{spans:#?}");
    }
}

fn first_run(spans: &[Span]) -> &str {
    spans.iter().find(|span| span.name == "test_suite_run").map(|span| span.text("forge.run.id")).unwrap_or_default()
}

/// An agent on a framework with its public instrumentation, and without a line of Forge for tool calls, is judged
/// by its spans, as the same agent is that tells its calls; also when the run is replayed.
#[test]
fn an_agent_is_judged_by_its_spans() {
    let place = Place::new();
    let (_daemon, url) = daemon(&place, "", &[]);
    let (_agent, agent) = sample("forge_daemon.samples.spans_only", &url, &[]);
    let target = format!("weather={agent}");
    let suite = eval("weather.golden.json");
    let args =
        ["run", &suite, "-n", "weather", "--agent", &target, "--daemon", &url, "--output-dir", "out", "-o", "r.json"];
    let ended = place.run(&args);
    let result = place.json("r.json");
    let not_passed = |result: &Value| -> Vec<String> {
        let cases = result["cases"].as_array().expect("cases").iter().filter(|case| case["passed"] != true);
        cases.map(|case| case["id"].as_str().expect("an id").to_owned()).collect()
    };
    // It fails on its text, and is meant to.
    assert_eq!((ended.code, not_passed(&result)), (Some(1), vec!["gs-get-weather-011".to_owned()]), "{}", ended.stdout);
    let first = &result["cases"][0];
    assert_eq!(first["toolCalls"][0]["name"], "get_weather", "{first}");
    assert!(
        first["toolCalls"][0]["params"]["city"].is_string() || first["toolCalls"][0]["arguments"]["city"].is_string(),
        "{first}"
    );
    assert_eq!(first["warnings"].as_array().map(Vec::len), Some(0), "{first}");
    // The traces at a later time.
    let run = result["runId"].as_str().expect("an id").to_owned();
    let report = place.run(&["runs", "report", &run, "--otlp-file", "later.jsonl", "--daemon", &url]);
    assert_eq!(report.code, Some(0), "{}", report.stderr);
    let spans = Span::of_file(&place.path().join("later.jsonl"));
    let cases = result["cases"].as_array().map_or(0, Vec::len);
    assert_eq!(spans.iter().filter(|span| span.name == "test_case").count(), cases, "{spans:?}");
    // What was read from spans is evidence like any other.
    let replay = [&args[..args.len() - 1], &["r2.json", "--replay", &run]].concat();
    let ended = place.run(&replay);
    let again = place.json("r2.json");
    assert_eq!((ended.code, not_passed(&again)), (Some(1), not_passed(&result)), "{}", ended.stdout);
    assert_eq!(again["cases"][0]["toolCalls"], first["toolCalls"]);
    // The daemon says how many spans came in.
    let metrics = get(url.trim_start_matches("http://"), "/metrics").expect("metrics");
    let kept = "forge_spans_received_total{forge_result=\"kept\"}";
    let count = metrics.lines().find_map(|line| line.strip_prefix(kept)).unwrap_or_else(|| panic!("{metrics}"));
    assert!(count.trim().parse::<f64>().is_ok_and(|count| count > 20.0), "{count}");
}

/// Spans whose end nobody confirms: what more of them could change is no verdict.
#[test]
fn an_open_end_is_no_verdict() {
    let place = Place::new();
    let (_daemon, url) = daemon(&place, "span_wait = '1500ms'", &[]);
    let (_agent, agent) = sample("forge_daemon.samples.spans_only", &url, &["--collector"]);
    let case = |id: &str, expect: &str| {
        format!(
            r#"{{"id": "{id}", "description": "{id}", "input": {{"message": "What's the weather in Paris?"}}, "expect": {expect}}}"#
        )
    };
    let cases = [
        case("exact", r#"{"toolsCalled": ["get_weather"]}"#),
        case("at-least", r#"{"minToolCalls": 1}"#),
        case("forbidden", r#"{"toolsNotCalled": ["get_weather"]}"#),
        case("not-seen", r#"{"toolsNotCalled": ["get_forecast"]}"#),
        case("another", r#"{"toolsCalled": ["get_forecast"]}"#),
        case("text", r#"{"responseNonEmpty": true}"#),
    ];
    place.write("s.json", &format!(r#"{{"metadata": {{"toolName": "t"}}, "cases": [{}]}}"#, cases.join(",")));
    let ended = place.run(&[
        "run",
        "s.json",
        "-n",
        &agent,
        "--daemon",
        &url,
        "--output-dir",
        "out",
        "-o",
        "r.json",
        "--parallel",
        "6",
    ]);
    let result = place.json("r.json");
    let outcomes: Vec<(&str, &str)> = result["cases"]
        .as_array()
        .expect("cases")
        .iter()
        .map(|case| (case["id"].as_str().unwrap(), case["outcome"].as_str().unwrap()))
        .collect();
    let expected = [
        ("exact", "errored"),
        ("at-least", "passed"),
        ("forbidden", "failed"),
        ("not-seen", "errored"),
        ("another", "failed"),
        ("text", "passed"),
    ];
    assert_eq!((ended.code, &outcomes[..]), (Some(3), &expected[..]), "{}", ended.stdout);
    let exact = &result["cases"][0];
    assert_eq!((&exact["blame"], &exact["cause"]), (&"network".into(), &"assertion".into()), "{exact}");
    let error =
        "toolsCalled: there may be more tool calls: the agent did not confirm the end of its spans; waited 1.5 s";
    assert_eq!(exact["error"], error);
    // It is said of every case, also of those that passed.
    assert!(
        result["cases"][1]["warnings"][0].as_str().is_some_and(|it| it.starts_with("spans: the agent did not")),
        "{result}"
    );
}

/// Waiting for spans is nobody's time, and what nobody knows in one turn of a dialogue may be seen in the next.
#[test]
fn a_dialogue_outlasts_the_wait_for_spans() {
    let place = Place::new();
    let (_daemon, url) = daemon(&place, "span_wait = '1200ms'", &[]);
    let (_agent, agent) = sample("forge_daemon.samples.spans_only", &url, &["--collector"]);
    place.write(
        "user.json",
        r#"{"d": [{"input": "Do I need an umbrella in Rome tomorrow?"}], "e": [{"input": "Thanks!"}]}"#,
    );
    place.write("nobody.json", r#"{"replies": []}"#);
    let mut sidecar = command(SIDECAR, place.path());
    sidecar.args(["script", "nobody.json", "--simulator", "user.json", "--listen", "127.0.0.1:0"]);
    let mut user = Running::start(sidecar);
    let user_at = format!("user=grpc://{}", user.address());
    let case = |id: &str, tool: &str| {
        format!(
            r#"{{"id": "{id}", "input": "What's the weather in Paris?", "simulator": {{"use": "user"}}, "max_turns": 2, "timeout": "2s",
            "checkpoints": [{{"id": "c", "assertion": {{"type": "tool_called", "name": "{tool}"}}}}]}}"#
        )
    };
    place.write("s.jsonl", &[case("d", "get_forecast"), case("e", "get_forecast")].join("\n"));
    let args = ["run", "s.jsonl", "-n", &agent, "--agent", &user_at, "--daemon", &url, "--output-dir", "out"];
    let ended = place.run(&[&args[..], &["-o", "r.json", "--parallel", "2"]].concat());
    let result = place.json("r.json");
    let verdict = |case: usize| {
        let case = &result["cases"][case];
        let word = |key: &str| case[key].as_str().unwrap_or("-").to_owned();
        (word("outcome"), word("cause"), word("blame"), case["totalTurns"].as_u64())
    };
    let told =
        |outcome: &str, cause: &str, blame: &str| (outcome.to_owned(), cause.to_owned(), blame.to_owned(), Some(2));
    assert_eq!(verdict(0), told("passed", "-", "-"), "{}{}", ended.stdout, ended.stderr);
    // It was not seen, which does not say that it was not there.
    assert_eq!(verdict(1), told("errored", "checkpoint_failed", "network"), "{}{}", ended.stdout, ended.stderr);
}

/// An agent that claims a call it did not make, and one that does not claim what it did.
#[test]
fn a_lie_is_told() {
    let place = Place::new();
    let (_daemon, url) = daemon(&place, "span_wait = '1500ms'", &[]);
    let (_agent, agent) = sample("forge_daemon.samples.liar", &url, &[]);
    let case = |id: &str, input: &str, tools: &str| {
        format!(
            r#"{{"id": "{id}", "description": "d", "input": {{"message": "{input}"}}, "expect": {{"toolsCalled": {tools}}}}}"#
        )
    };
    let cases = [
        case("honest", "What's the weather in Paris?", r#"["get_weather"]"#),
        case("claims", "Weather and air quality in Oslo?", r#"["get_air_quality", "get_weather"]"#),
        case("claims-all", "How is the air in Delhi?", r#"["get_air_quality"]"#),
        case("hides", "Do I need an umbrella in Rome tomorrow?", r#"["get_forecast"]"#),
    ];
    place.write("s.json", &format!(r#"{{"metadata": {{"toolName": "t"}}, "cases": [{}]}}"#, cases.join(",")));
    let ended = place.run(&["run", "s.json", "-n", &agent, "--daemon", &url, "--output-dir", "out", "-o", "r.json"]);
    let result = place.json("r.json");
    let warnings = |case: usize| result["cases"][case]["warnings"].to_string();
    assert_eq!(result["cases"][0]["warnings"].as_array().map(Vec::len), Some(0), "{result}");
    assert!(warnings(1).contains(r#"spans: claimed but not seen: \"get_air_quality\""#), "{}", warnings(1));
    assert!(!warnings(1).contains("get_weather") && !warnings(1).contains("not confirmed"), "{}", warnings(1));
    assert!(warnings(2).contains("claimed but not seen") && warnings(2).contains("not confirmed"), "{}", warnings(2));
    // It told of no call at all, so the spans count.
    assert_eq!(result["cases"][3]["outcome"], "passed", "{result}");
    assert!(ended.stdout.contains("⚠ spans: claimed but not seen: \"get_air_quality\""), "{}", ended.stdout);
}

/// A run joins the trace of the CI job that started it, and every call carries it, in the body and in the metadata.
#[test]
fn a_run_joins_a_trace() {
    let place = Place::new();
    let agent = Script::new(|_| Ok("fine".to_owned())).start();
    place.write(
        "s.json",
        r#"{"cases": [{"id": "a b", "description": "d", "input": {"message": "hi"}, "expect": {"responseNonEmpty": true}}]}"#,
    );
    let run = |traceparent: &str| {
        let args = ["run", "s.json", "-n", &agent.url, "--output-dir", "out", "-o", "r.json", "--otlp-file", "t.jsonl"];
        let mut forgectl = place.forgectl(&args);
        forgectl.env("TRACEPARENT", traceparent).env("TRACESTATE", "ci=1").env("BAGGAGE", "job=7");
        Running::start(forgectl).end()
    };
    let ended = run("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00");
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let spans = Span::of_file(&place.path().join("t.jsonl"));
    let of = |name: &str| spans.iter().find(|it| it.name.starts_with(name)).unwrap_or_else(|| panic!("{spans:?}"));
    let (run_span, case, call) = (of("test_suite_run"), of("test_case"), of("invoke_agent"));
    assert_eq!(run_span.parent.as_deref(), Some("00f067aa0ba902b7"));
    assert_eq!((case.parent.as_ref(), call.parent.as_ref()), (Some(&run_span.id), Some(&case.id)));
    assert_eq!(trace_of(&ended, &place.json("r.json")), "4bf92f3577b34da6a3ce929d0e0e4736");
    let asked = agent.asked();
    let (body, metadata) = &asked[0].trace;
    assert_eq!(body["traceparent"], format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", call.id));
    assert_eq!((metadata, &body["tracestate"][..]), (&body["traceparent"], "ci=1"));
    assert!(
        body["baggage"].starts_with("job=7,forge.run.id=") && body["baggage"].contains("forge.case.id=a%20b,"),
        "{body:?}"
    );
    // What is no place in a trace is told, and left alone.
    let ended = run("nonsense");
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("⚠ TRACEPARENT is ignored: no version in \"nonsense\""), "{}", ended.stderr);
    assert_ne!(trace_of(&ended, &place.json("r.json")), "4bf92f3577b34da6a3ce929d0e0e4736");
}

/// What a run is cancelled in the middle of has its spans all the same: the question to a validator, the call of an
/// agent, and what it was told.
#[test]
fn what_was_cancelled_is_told() {
    let place = Place::new();
    let judge = Script::new(|_| Ok("fine".to_owned())).judging(|_| Err(Status::internal("late")));
    let judge = judge.pondering(Duration::from_mins(5)).start();
    let (_agent, agent) = place.agent(r#"{"replies": [{"on": "*", "events": [{"text": "half"}, {"hang": true}]}]}"#);
    place.write(
        "s.jsonl",
        r#"{"id": "judged", "input": "hi", "assertions": [{"type": "agent", "use": "agents:judge", "options": {"metadata": {"criteria": "is kind"}}}]}"#,
    );
    place.write("h.jsonl", r#"{"id": "hangs", "input": "hi", "assertions": [{"type": "contains", "value": "x"}]}"#);
    let party = format!("judge={}", judge.url);
    let run = |file: &str, agent: &str, is_there: &dyn Fn() -> bool| {
        let args = ["run", "-i", file, "-n", agent, "--agent", &party, "--output-dir", "out", "--otlp-file", "t.jsonl"];
        let run = Running::start(place.forgectl(&args));
        let begun = Instant::now();
        while !is_there() {
            assert!(begun.elapsed() < ARRIVAL, "nobody is asked");
            std::thread::sleep(Duration::from_millis(20));
        }
        run.signal("INT");
        let ended = run.end();
        assert_eq!(ended.code, Some(130), "{}{}", ended.stdout, ended.stderr);
        Span::of_file(&place.path().join("t.jsonl"))
    };
    let spans = run("s.jsonl", &judge.url, &|| judge.judged() > 0);
    let asked = spans.iter().find(|span| span.name == "evaluate judge").unwrap_or_else(|| panic!("{spans:#?}"));
    assert_eq!((asked.text("error.type"), asked.is_error), ("cancelled", true), "{asked:?}");
    assert_eq!(format!("grpc://{}:{}", asked.text("server.address"), asked.attributes["server.port"]), judge.url);
    let called = || std::fs::read_to_string(place.path().join("calls.jsonl")).is_ok_and(|log| log.contains("\"hi\""));
    let spans = run("h.jsonl", &agent, &called);
    let call = spans.iter().find(|span| span.name.starts_with("invoke_agent")).unwrap_or_else(|| panic!("{spans:#?}"));
    let told = call.events.iter().find(|(name, _)| name == "forge.cancel").unwrap_or_else(|| panic!("{call:#?}"));
    assert_eq!(told.1["forge.reason"], "user");
    assert_eq!(told.1["forge.invocation.id"], call.text("forge.invocation.id"));
}
