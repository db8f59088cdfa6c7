//! Traces: what the daemon exports, as a real receiver keeps it, and spans of agents as evidence.
//!
//! The receiver is Arize Phoenix, set up by `scripts/setup-phoenix.sh`; `make test` runs it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forge::wire::agent::ValidateResponse;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{LogsService, LogsServiceServer};
use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsServiceRequest, ExportLogsServiceResponse};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as OtlpSpan};
use prost::Message as _;
use serde_json::Value;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Code, Request, Response, Status};

use crate::processes::{DAEMON, Ended, Place, Running, SIDECAR, command};
use crate::python::python;
use crate::support::fake::Script;

/// Time for Phoenix to start: most of it is Python reading modules.
const START: Duration = Duration::from_mins(2);
/// Time for spans to arrive there.
const ARRIVAL: Duration = Duration::from_secs(30);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A body by HTTP, if the answer is a success.
fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    // Without keeping the connection, and without chunks.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: */*\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.lines().next()?.contains(" 200 ").then(|| body.to_owned())
}

/// What is answered to a body of protobuf.
fn post(address: &str, path: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let head = format!("POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/x-protobuf\r\n");
    write!(stream, "{head}Content-Length: {}\r\n\r\n", body.len()).expect("writes");
    stream.write_all(body).expect("writes");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}

/// A receiver that keeps what it gets.
struct Phoenix {
    _process: Running,
    http: String,
    grpc: String,
}

impl Phoenix {
    fn start(place: &Place) -> Self {
        let python = root().join("target/phoenix/bin/python");
        assert!(python.exists(), "{} is missing: run scripts/setup-phoenix.sh (`make test` does)", python.display());
        let home = place.path().join("phoenix");
        std::fs::create_dir_all(&home).expect("a folder");
        // It takes some seconds before it takes its ports, and ends if one is gone by then.
        for _ in 0..5 {
            let (http, grpc) = (free_port(), free_port());
            let mut command = Command::new(&python);
            command.args(["-m", "phoenix.server.main", "serve"]).current_dir(&home).env_clear();
            command.env("PATH", "/usr/bin:/bin").env("HOME", &home).env("TMPDIR", &home);
            command.env("PHOENIX_HOST", "127.0.0.1").env("PHOENIX_WORKING_DIR", &home);
            command.env("PHOENIX_PORT", http.to_string()).env("PHOENIX_GRPC_PORT", grpc.to_string());
            for (name, value) in [
                ("ALLOW_EXTERNAL_RESOURCES", "false"),
                ("TELEMETRY_ENABLED", "false"),
                ("DISABLE_AGENT_ASSISTANT", "true"),
                ("ENABLE_MCP_SERVER", "false"),
                ("ALLOWED_SANDBOX_PROVIDERS", "NONE"),
                ("ENABLE_AUTH", "false"),
                ("LOGGING_LEVEL", "warning"),
                ("LOG_MIGRATIONS", "false"),
            ] {
                command.env(format!("PHOENIX_{name}"), value);
            }
            let mut process = Running::start(command);
            let (address, begun) = (format!("127.0.0.1:{http}"), Instant::now());
            while !process.has_ended() {
                if get(&address, "/readyz").is_some() {
                    return Self { _process: process, http: address, grpc: format!("127.0.0.1:{grpc}") };
                }
                assert!(begun.elapsed() < START, "Phoenix is not ready");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        panic!("Phoenix does not start");
    }

    /// The spans of a trace, when as many as that are there.
    fn spans(&self, trace_id: &str, at_least: usize) -> Vec<Span> {
        let begun = Instant::now();
        loop {
            let spans = self.stored(trace_id);
            if spans.len() >= at_least {
                return spans;
            }
            let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
            assert!(begun.elapsed() < ARRIVAL, "{} of {at_least} spans arrived: {names:?}", spans.len());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn stored(&self, trace_id: &str) -> Vec<Span> {
        let path = format!("/v1/projects/default/spans?trace_id={trace_id}&order=asc&limit=1000");
        // There is no such project before its first span.
        let Some(body) = get(&self.http, &path) else { return Vec::new() };
        let answer: Value = serde_json::from_str(&body).expect("JSON");
        answer["data"].as_array().expect("spans").iter().map(Span::of).collect()
    }
}

/// A port below those that connections are given.
fn free_port() -> u16 {
    loop {
        let port = 20_000 + fastrand::u16(..12_000);
        if TcpListener::bind(("0.0.0.0", port)).is_ok() && TcpListener::bind(("::", port)).is_ok() {
            return port;
        }
    }
}

/// A span as a receiver kept it, or as a file of OTLP has it.
#[derive(Debug)]
struct Span {
    name: String,
    id: String,
    parent: Option<String>,
    attributes: BTreeMap<String, Value>,
    events: Vec<(String, BTreeMap<String, Value>)>,
    is_error: bool,
}

impl Span {
    fn of(value: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let map = |value: &Value| -> BTreeMap<String, Value> {
            value.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        let events = value["events"].as_array().into_iter().flatten();
        Self {
            name: text(&value["name"]).expect("a name"),
            id: text(&value["context"]["span_id"]).expect("an id"),
            parent: text(&value["parent_id"]),
            attributes: map(&value["attributes"]),
            events: events.map(|event| (text(&event["name"]).expect("a name"), map(&event["attributes"]))).collect(),
            is_error: value["status_code"] == "ERROR",
        }
    }

    /// The spans of a file of OTLP, a request a line.
    fn of_file(path: &Path) -> Vec<Self> {
        let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
        let map = |value: &Value| -> BTreeMap<String, Value> {
            let pairs = list(value, "attributes").into_iter();
            pairs.map(|it| (it["key"].as_str().expect("a key").to_owned(), plain(&it["value"]))).collect()
        };
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let file = std::fs::read_to_string(path).expect("a file");
        let requests = file.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let scopes = requests.flat_map(|it| list(&it, "resourceSpans")).flat_map(|it| list(&it, "scopeSpans"));
        let of = |span: Value| Self {
            name: text(&span["name"]),
            id: text(&span["spanId"]),
            parent: span["parentSpanId"].as_str().filter(|id| !id.is_empty()).map(str::to_owned),
            attributes: map(&span),
            events: list(&span, "events").iter().map(|event| (text(&event["name"]), map(event))).collect(),
            is_error: span["status"]["code"] == 2,
        };
        scopes.flat_map(|it| list(&it, "spans")).map(of).collect()
    }

    fn text(&self, key: &str) -> &str {
        self.attributes.get(key).and_then(Value::as_str).unwrap_or_default()
    }
}

/// A value as OTLP writes it in JSON, as everybody else does.
fn plain(value: &Value) -> Value {
    let Some((kind, value)) = value.as_object().and_then(|object| object.iter().next()) else { return Value::Null };
    match kind.as_str() {
        "intValue" => value.as_str().and_then(|digits| digits.parse::<i64>().ok()).map_or(value.clone(), Value::from),
        "arrayValue" => value["values"].as_array().into_iter().flatten().map(plain).collect(),
        "kvlistValue" => {
            let pairs = value["values"].as_array().into_iter().flatten();
            pairs.map(|it| (it["key"].as_str().unwrap_or_default().to_owned(), plain(&it["value"]))).collect()
        }
        _ => value.clone(),
    }
}

/// A daemon with variables of its own, and its URL.
fn daemon(place: &Place, config: &str, variables: &[(&str, &str)]) -> (Running, String) {
    let home = place.path().join("daemon");
    std::fs::create_dir_all(&home).expect("a folder");
    std::fs::write(home.join("forge.toml"), config).expect("writes");
    let mut command = command(DAEMON, &home);
    command.args(["--listen", "127.0.0.1:0", "--data-dir", "data", "--config", "forge.toml"]);
    command.envs(variables.iter().copied());
    let mut daemon = Running::start(command);
    let url = format!("http://{}", daemon.address());
    (daemon, url)
}

/// A sample agent that sends its spans somewhere, and its URL.
fn sample(module: &str, endpoint: &str, more: &[&str]) -> (Running, String) {
    let mut command = command(&python(), root());
    command.args(["-m", module, "--listen", "127.0.0.1:0"]).args(more);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).env("OTEL_BSP_SCHEDULE_DELAY", "200");
    let mut agent = Running::start(command);
    let url = format!("grpc://{}", agent.address());
    (agent, url)
}

fn eval(name: &str) -> String {
    root().join("evals").join(name).display().to_string()
}

fn trace_of(ended: &Ended, result: &Value) -> String {
    let trace = result["cases"][0]["traceId"].as_str();
    trace.unwrap_or_else(|| panic!("no trace: {result}\n{}{}", ended.stdout, ended.stderr)).to_owned()
}

/// A dialogue with an agent, a simulator and a validator, all of which send spans of their own: in a receiver that is not ours it is one
/// tree, by HTTP and by gRPC.
#[test]
fn a_run_is_one_tree_in_a_real_receiver() {
    let place = Place::new();
    let phoenix = Phoenix::start(&place);
    let (_agent, agent) = sample("forge_samples.expense", &format!("http://{}", phoenix.grpc), &[]);
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

/// An agent on a framework with its public instrumentation, and without a line of Forge for tool calls, is judged by its spans, as the
/// same agent is that tells its calls; also when the run is replayed.
#[test]
fn an_agent_is_judged_by_its_spans() {
    let place = Place::new();
    let (_daemon, url) = daemon(&place, "", &[]);
    let (_agent, agent) = sample("forge_samples.spans_only", &url, &[]);
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
    let (_agent, agent) = sample("forge_samples.spans_only", &url, &["--collector"]);
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
    let (_agent, agent) = sample("forge_samples.spans_only", &url, &["--collector"]);
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
    let (_agent, agent) = sample("forge_samples.liar", &url, &[]);
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

/// A receiver that is not there, one that does not answer, and one that refuses: the run does not care, and what was lost is counted.
#[test]
fn a_receiver_that_fails_fails_no_run() {
    let place = Place::new();
    let agent = Script::new(|_| Ok("fine".to_owned())).start();
    place.write(
        "s.json",
        r#"{"cases": [{"id": "a", "description": "d", "input": {"message": "hi"}, "expect": {"responseNonEmpty": true}}]}"#,
    );
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = format!("http://{}", silent.local_addr().expect("an address"));
    // The agent's port speaks gRPC, and knows no spans.
    let refusing = agent.url.replace("grpc://", "http://");
    let nobody = "http://127.0.0.1:9".to_owned();
    for (endpoint, protocol) in
        [(&nobody, "grpc"), (&nobody, "http/protobuf"), (&silent, "http/protobuf"), (&refusing, "grpc")]
    {
        let config = format!("[otlp]\nendpoint = '{endpoint}'\nprotocol = '{protocol}'");
        let (daemon, url) = daemon(&place, &config, &[("OTEL_EXPORTER_OTLP_TIMEOUT", "1000")]);
        let ended = place.run(&["run", "s.json", "-n", &agent.url, "--daemon", &url, "--output-dir", "out"]);
        assert_eq!(ended.code, Some(0), "{endpoint} {protocol}: {}{}", ended.stdout, ended.stderr);
        let dropped = || {
            let metrics = get(url.trim_start_matches("http://"), "/metrics").expect("metrics");
            let count = metrics.lines().find_map(|line| line.strip_prefix("forge_spans_dropped_total "));
            count.and_then(|count| count.trim().parse::<f64>().ok()).unwrap_or_else(|| panic!("{metrics}"))
        };
        let begun = Instant::now();
        while dropped() < 3.0 {
            assert!(begun.elapsed() < ARRIVAL, "{endpoint} {protocol}: nothing is counted");
            std::thread::sleep(Duration::from_millis(50));
        }
        daemon.signal("TERM");
        let ended = daemon.end();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(ended.stderr.contains("spans cannot be exported"), "{}", ended.stderr);
    }
}

/// A receiver of logs that does not answer holds up neither the run nor its spans, and what it did not take is counted.
#[test]
fn a_silent_receiver_of_logs_holds_up_nothing() {
    let place = Place::new();
    let collector = Collector::start();
    let agent = Script::new(|_| Ok("fine".to_owned())).start();
    let cases: Vec<String> = (0..50)
        .map(|number| {
            format!(r#"{{"id": "{number}", "input": "hi", "assertions": [{{"type": "contains", "value": "fine"}}]}}"#)
        })
        .collect();
    place.write("s.jsonl", &cases.join("\n"));
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = format!("http://{}", silent.local_addr().expect("an address"));
    let config = format!("[otlp]\nendpoint = '{}'\nprotocol = 'grpc'", collector.url);
    let variables = [("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", silent.as_str()), ("OTEL_EXPORTER_OTLP_TIMEOUT", "30000")];
    let (daemon, url) = daemon(&place, &config, &variables);
    let begun = Instant::now();
    let ended = place.run(&["run", "-i", "s.jsonl", "-n", &agent.url, "--daemon", &url, "--output-dir", "out"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(begun.elapsed() < Duration::from_secs(20), "the run waits for the log records");
    let count = |name: &str| {
        let metrics = get(url.trim_start_matches("http://"), "/metrics").expect("metrics");
        let count = metrics.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
        count.and_then(|count| count.trim().parse::<f64>().ok()).unwrap_or_else(|| panic!("{name} in {metrics}"))
    };
    let begun = Instant::now();
    while count("forge_spans_exported_total ") < 101.0 {
        assert!(begun.elapsed() < Duration::from_secs(10), "the spans wait for the log records");
        std::thread::sleep(Duration::from_millis(50));
    }
    daemon.signal("TERM");
    let begun = Instant::now();
    let ended = daemon.end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(begun.elapsed() < Duration::from_secs(15), "it waits 5 s at most");
    assert!(ended.stderr.contains("log records were lost; the spans hold what they say"), "{}", ended.stderr);
    assert!(ended.stderr.contains("lost=50"), "{}", ended.stderr);
}

/// What a run is cancelled in the middle of has its spans all the same: the question to a validator, the call of an agent, and
/// what it was told.
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

/// Requests that would become a hundred times as large when they are read are refused unread, by gRPC and by HTTP.
#[test]
fn dense_requests_take_no_memory() {
    let place = Place::new();
    let (daemon, url) = daemon(&place, "", &[]);
    let scope_spans = vec![ScopeSpans { spans: vec![OtlpSpan::default(); 400_000], ..ScopeSpans::default() }];
    let request =
        ExportTraceServiceRequest { resource_spans: vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }] };
    let before = daemon.peak_memory();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut client = TraceServiceClient::connect(url.clone()).await.expect("connects");
        let refused = client.export(request.clone()).await.expect_err("is refused");
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert!(refused.message().contains("send fewer spans at once"), "{refused}");
    });
    let address = url.trim_start_matches("http://");
    let refused = post(address, "/v1/traces", &request.encode_to_vec());
    assert!(refused.contains(" 413 ") && refused.contains("send fewer spans at once"), "{refused}");
    // A span that is longer than what holds it.
    let mut long = vec![0x0a, 0x07, 0x12, 0x05, 0x12];
    prost::encoding::encode_varint(4_000_000, &mut long);
    long.extend([0x4a, 0x00].repeat(2_000_000));
    let refused = post(address, "/v1/traces", &long);
    assert!(refused.contains(" 400 ") && refused.contains("malformed"), "{refused}");
    let refused = post(address, "/v1/traces", b"nonsense");
    assert!(refused.contains(" 400 ") && refused.contains("no ExportTraceServiceRequest"), "{refused}");
    let grown = daemon.peak_memory().saturating_sub(before);
    assert!(grown < 64 << 20, "it grew by {grown} bytes");
}

/// A receiver of log records gets evaluations and, if it is asked for, content as values, in the context of the span that it belongs
/// to; and the names that the daemon is told to use.
#[test]
fn log_records_are_structured() {
    let place = Place::new();
    let collector = Collector::start();
    let agent = Script::new(|_| Ok("Rain \"tomorrow\"".to_owned()))
        .judging(|_| Ok(ValidateResponse { passed: Some(true), score: Some(0.75), ..ValidateResponse::default() }))
        .start();
    let config = format!(
        "[otlp]\nendpoint = '{}'\nprotocol = 'grpc'\nlogs = true\nconventions = 'latest'\nrpc_spans = true",
        collector.url
    );
    let (daemon, url) = daemon(&place, &config, &[]);
    place.write(
        "s.jsonl",
        r#"{"id": "a", "input": [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Weather?"}], "assertions": [{"type": "contains", "value": "Rain"}, {"type": "agent", "use": "agents:judge", "options": {"metadata": {"criteria": "is kind"}}}]}"#,
    );
    let party = format!("judge={}", agent.url);
    let args = ["run", "-i", "s.jsonl", "-n", &agent.url, "--agent", &party, "--daemon", &url, "--output-dir", "out"];
    let ended = place.run(&[&args[..], &["--capture-content", "--otlp-file", "t.jsonl"]].concat());
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    daemon.signal("TERM");
    let ended = daemon.end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);

    let spans = Span::of_file(&place.path().join("t.jsonl"));
    let rpc = spans.iter().find(|span| span.name == "forge.agent.v1.AgentEndpoint/Invoke").expect("a span of the RPC");
    assert_eq!(rpc.text("rpc.response.status_code"), "OK");
    let call = spans.iter().find(|span| Some(&span.id) == rpc.parent.as_ref()).expect("its call");
    assert_eq!((call.text("gen_ai.operation.name"), call.text("forge.transport")), ("invoke_agent", "grpc"));
    let records = collector.records();
    let of = |event: &str, span: &str| {
        let found = records.iter().filter(|record| record.event == event && record.span == span);
        found.map(|record| &record.attributes).collect::<Vec<_>>()
    };
    let evaluations: Vec<(&str, Option<f64>)> = of("gen_ai.evaluation.result", &call.id)
        .iter()
        .map(|it| {
            let name = it["gen_ai.evaluation.name"].as_str().expect("a name");
            (name, it.get("gen_ai.evaluation.score.value").and_then(Value::as_f64))
        })
        .collect();
    assert_eq!(evaluations, [("contains", None), ("judge", Some(0.75))]);
    let [details] = of("gen_ai.client.inference.operation.details", &call.id)[..] else { panic!("{records:#?}") };
    let text = |text: &str| serde_json::json!([{"type": "text", "content": text}]);
    let said = |role: &str, content: &str| serde_json::json!({"role": role, "parts": text(content)});
    let input = serde_json::json!([said("system", "Be brief"), said("user", "Weather?")]);
    assert_eq!(details["gen_ai.input.messages"], input);
    // These conventions do not repeat why it ended.
    let output = serde_json::json!([said("assistant", "Rain \"tomorrow\"")]);
    assert_eq!(details["gen_ai.output.messages"], output);
    assert_eq!(details["gen_ai.response.finish_reasons"], serde_json::json!(["stop"]));
    let judged = spans.iter().find(|span| span.name == "evaluate judge").expect("a validator");
    let [details] = of("gen_ai.client.inference.operation.details", &judged.id)[..] else { panic!("{records:#?}") };
    assert_eq!(details["gen_ai.system_instructions"], text("is kind"));
    assert_eq!(details["gen_ai.input.messages"].as_array().map(Vec::len), Some(3), "{details:?}");
}

/// A receiver of OTLP over gRPC that keeps log records.
struct Collector {
    url: String,
    records: Arc<Mutex<Vec<Record>>>,
    _runtime: tokio::runtime::Runtime,
}

/// A log record as it came.
#[derive(Debug)]
struct Record {
    event: String,
    span: String,
    attributes: BTreeMap<String, Value>,
}

impl Collector {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let records = Arc::default();
        let server = tonic::transport::Server::builder()
            .add_service(LogsServiceServer::new(Keeper(Arc::clone(&records))))
            .add_service(TraceServiceServer::new(Keeper(Arc::clone(&records))));
        runtime.spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Self { url, records, _runtime: runtime }
    }

    fn records(self) -> Vec<Record> {
        std::mem::take(&mut *self.records.lock().expect("no panic"))
    }
}

struct Keeper(Arc<Mutex<Vec<Record>>>);

#[tonic::async_trait]
impl LogsService for Keeper {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        let resources = request.into_inner().resource_logs.into_iter();
        let records = resources.flat_map(|it| it.scope_logs).flat_map(|it| it.log_records).map(|record| {
            let pairs = record.attributes.iter().map(|it| {
                let value = serde_json::to_value(it.value.as_ref().expect("a value")).expect("JSON");
                (it.key.clone(), plain(&value))
            });
            Record { event: record.event_name.clone(), span: hex::encode(&record.span_id), attributes: pairs.collect() }
        });
        self.0.lock().expect("no panic").extend(records);
        Ok(Response::new(ExportLogsServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl TraceService for Keeper {
    async fn export(
        &self,
        _: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// An address that makes no sense is refused before anything is served; what is meant for other programs is not.
#[test]
fn an_exporter_that_makes_no_sense_is_refused() {
    let place = Place::new();
    let mut refused = command(DAEMON, place.path());
    refused.args(["--listen", "127.0.0.1:0", "--data-dir", "data"]);
    refused.env("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317");
    let ended = Running::start(refused).end();
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("\"localhost:4317\" is no address of a receiver"), "{}", ended.stderr);
    let (daemon, _) =
        daemon(&place, "", &[("OTEL_TRACES_EXPORTER", "console"), ("OTEL_METRICS_EXPORTER", "prometheus")]);
    daemon.signal("TERM");
    let ended = daemon.end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("only otlp is exported to"), "{}", ended.stderr);
}

/// The port speaks HTTP/1, and is not for pages in browsers.
#[test]
fn web_pages_are_kept_out() {
    let place = Place::new();
    let (_daemon, url) = place.daemon();
    let address = url.trim_start_matches("http://");
    let status = |head: &str| {
        let mut stream = TcpStream::connect(address).expect("the daemon is there");
        write!(stream, "{head}\r\nHost: {address}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").expect("writes");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    let create = "POST /forge.control.v1.RunService/CreateRun HTTP/1.1\r\nContent-Type:";
    for (head, expected) in [
        (format!("{create} text/plain"), "403"),
        (format!("{create} application/grpc\r\nOrigin: https://evil.example"), "403"),
        ("GET /metrics HTTP/1.1\r\nOrigin: null".to_owned(), "403"),
        ("GET /metrics HTTP/1.1".to_owned(), "200"),
        ("POST /v1/traces HTTP/1.1\r\nContent-Type: application/json".to_owned(), "415"),
        ("POST /v1/traces HTTP/1.1\r\nContent-Type: application/x-protobuf".to_owned(), "200"),
    ] {
        assert_eq!(status(&head), expected, "{head}");
    }
}

/// The daemon in numbers.
#[test]
fn numbers_for_prometheus() {
    let place = Place::new();
    let (_daemon, url) = place.daemon();
    let agent =
        Script::new(|asked| if asked.case == "bad" { Ok(String::new()) } else { Ok("fine".to_owned()) }).start();
    let case = |id: &str| {
        format!(
            r#"{{"id": "{id}", "description": "d", "input": {{"message": "hi"}}, "expect": {{"responseNonEmpty": true}}}}"#
        )
    };
    place.write("s.json", &format!(r#"{{"cases": [{}, {}]}}"#, case("good"), case("bad")));
    let ended = place.run(&["run", "s.json", "-n", &agent.url, "--daemon", &url, "--output-dir", "out"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    let metrics = get(url.trim_start_matches("http://"), "/metrics").expect("metrics");
    for line in [
        "forge_run_count_total{forge_run_state=\"failed\"} 1",
        "forge_case_count_total{forge_case_outcome=\"passed\"} 1",
        "forge_case_count_total{forge_case_cause=\"assertion\",forge_case_outcome=\"failed\"} 1",
        "gen_ai_client_invoke_agent_duration_seconds_count{forge_role=\"agent\",gen_ai_operation_name=\"invoke_agent\"} 2",
        "forge_run_wait_duration_seconds_count 1",
        "# TYPE forge_store_write_duration_seconds histogram",
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line}\nis not in\n{metrics}");
    }
    assert!(get(url.trim_start_matches("http://"), "/nothing").is_none());
}
