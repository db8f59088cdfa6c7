//! What the daemon exports, to receivers that take it and to those that do not; and what it takes itself.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use forge::wire::agent::ValidateResponse;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as OtlpSpan};
use prost::Message as _;
use serde_json::Value;
use tonic::Code;

use crate::processes::{DAEMON, Place, Running, command};
use crate::support::fake::Script;
use crate::support::telemetry::{ARRIVAL, Collector, Span, counted, daemon, get, post};

/// A receiver that is not there, one that does not answer, and one that refuses: the run does not care, and what
/// was lost is counted.
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
        let begun = Instant::now();
        while counted(&url, "forge_spans_dropped_total") < 3 {
            assert!(begun.elapsed() < ARRIVAL, "{endpoint} {protocol}: nothing is counted");
            std::thread::sleep(Duration::from_millis(50));
        }
        daemon.signal("TERM");
        let ended = daemon.end();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(ended.stderr.contains("spans cannot be exported"), "{}", ended.stderr);
    }
}

/// Cases that are large find room as small ones do, and hold no more memory while they wait than their spans need.
#[test]
fn large_cases_wait_in_little_memory() {
    let place = Place::new();
    let agent = Script::new(|_| Ok("a large answer ".repeat(70_000))).start();
    let cases = (0..100).map(|id| {
        format!(r#"{{"id": "{id}", "input": "hi", "assertions": [{{"type": "contains", "value": "large"}}]}}"#)
    });
    place.write("s.jsonl", &cases.collect::<Vec<_>>().join("\n"));
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let config = format!("[otlp]\nendpoint = 'http://{}'", silent.local_addr().expect("an address"));
    let (daemon, url) = daemon(&place, &config, &[("OTEL_EXPORTER_OTLP_TIMEOUT", "600000")]);
    let memory_of_a_run = || {
        let before = daemon.peak_memory();
        let args =
            ["run", "-i", "s.jsonl", "-n", &agent.url, "--daemon", &url, "--parallel", "4", "--output-dir", "out"];
        let ended = place.run(&args);
        assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
        daemon.peak_memory() - before
    };
    // What a run itself takes; the log of each is 200 MiB.
    memory_of_a_run();
    let more = memory_of_a_run();
    assert!(more < 150 << 20, "{more} bytes");
    assert_eq!(counted(&url, "forge_spans_dropped_total"), 0, "spans are lost though they have room");
}

/// What a receiver does not take is lost alone, and not what was to be sent with it.
#[test]
fn what_is_refused_takes_little_with_it() {
    let place = Place::new();
    let collector = Collector::start();
    let agent = Script::new(|_| Ok("fine".to_owned())).start();
    let case = |id: &str| {
        format!(r#"{{"id": "{id}", "input": "hi", "assertions": [{{"type": "contains", "value": "fine"}}]}}"#)
    };
    let cases: Vec<String> = [Collector::REFUSED.to_owned()]
        .into_iter()
        .chain((0..99).map(|it| it.to_string()))
        .map(|id| case(&id))
        .collect();
    place.write("s.jsonl", &cases.join("\n"));
    let (_daemon, url) = daemon(&place, &format!("[otlp]\nendpoint = '{}'\nprotocol = 'grpc'", collector.url), &[]);
    let ended = place.run(&["run", "-i", "s.jsonl", "-n", &agent.url, "--daemon", &url, "--output-dir", "out"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let begun = Instant::now();
    while counted(&url, "forge_spans_exported_total") + counted(&url, "forge_spans_dropped_total") < 201 {
        assert!(begun.elapsed() < ARRIVAL, "some spans are neither sent nor lost");
        std::thread::sleep(Duration::from_millis(50));
    }
    let lost = counted(&url, "forge_spans_dropped_total");
    assert!((2..=32).contains(&lost), "{lost} are lost");
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
    let begun = Instant::now();
    while counted(&url, "forge_spans_exported_total") < 101 {
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

/// A receiver of log records gets evaluations and, if it is asked for, content as values, in the context of the
/// span that it belongs to; and the names that the daemon is told to use.
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
