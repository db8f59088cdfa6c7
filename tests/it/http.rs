//! Agents that are HTTP endpoints, in front of which `forge-sidecar http` stands, by itself or inside forgectl; and
//! snapshots that an address answers with.

use std::time::{Duration, Instant};

use forge::sidecar::http::client::HttpClient;
use forge::sidecar::http::{Adapter, serve};
use forge::wire::agent::agent_endpoint_client::AgentEndpointClient;
use forge::wire::agent::invoke_request::Frame;
use forge::wire::agent::invoke_response::Event;
use forge::wire::agent::{
    DescribeRequest, FinishReason, InvokeCancel, InvokeRequest, InvokeStart, Message, Part, Role, ToolMode, part,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use crate::processes::{Ended, Place, Running, SIDECAR, command};
use crate::support::endpoint::{Asked, Endpoint, Reply};

/// A sidecar in front of an endpoint, and the address where it listens.
fn sidecar(place: &Place, url: &str, more: &[&str]) -> (Running, String) {
    let mut command = command(SIDECAR, place.path());
    command.args(["http", url]).args(more).env("CHAT_AUTH", "Bearer tiptop-secret");
    let mut sidecar = Running::start(command);
    let agent = format!("grpc://{}", sidecar.address());
    (sidecar, agent)
}

/// Runs a suite of these cases, each an id, which is the message too, and what is expected; and reads the result.
fn run(place: &Place, cases: &[(&str, &str)], agent: &str, more: &[&str]) -> (Ended, Value) {
    let case = |(id, expect): &(&str, &str)| {
        format!(r#"{{"id": "{id}", "input": {{"message": "{id}"}}, "expect": {expect}}}"#)
    };
    place.write("s.golden.json", &format!("[{}]", cases.iter().map(case).collect::<Vec<_>>().join(",\n")));
    let args = ["run", "s.golden.json", "-n", agent, "-o", "r.json"];
    let ended = place.run(&[&args, more].concat());
    assert!(ended.code != Some(2), "{}", ended.stderr);
    (ended, place.json("r.json"))
}

/// Outcome, cause and blame of a case.
fn verdict(result: &Value, case: usize) -> String {
    let word = |key: &str| result["cases"][case][key].as_str().unwrap_or("-").to_owned();
    format!("{} {} {}", word("outcome"), word("cause"), word("blame"))
}

fn chat(asked: &Asked) -> Reply {
    let weather = r#"[{"name": "get_weather", "success": true, "durationMs": 12, "params": {"b": 9007199254740993, "city": "Paris"}},
        {"name": "send_mail", "success": false, "durationMs": 3.5, "params": {}}]"#;
    let tool_calls = match asked.message().as_str() {
        "plain" => "[]",
        "slow" => {
            std::thread::sleep(Duration::from_millis(300));
            "[]"
        }
        _ => weather,
    };
    Reply::Status(200, format!(r#"{{"response": "It is 18 °C.", "toolCalls": {tool_calls}}}"#))
}

/// The shape of the contract, judged like any other agent.
#[test]
fn the_contracts_shape() {
    let place = Place::new();
    let endpoint = Endpoint::start(chat);
    let (sidecar, agent) = sidecar(&place, &endpoint.url(), &[]);
    let exact = r#"{"toolParams": [{"tool": "get_weather", "paramName": "b", "assertion": "equals", "value": 9007199254740993}]}"#;
    let cases = [
        ("plain", r#"{"toolsCalled": [], "responseContains": ["18 °C"], "noToolErrors": true, "maxLatencyMs": 20000}"#),
        ("tools", r#"{"toolsCalled": ["get_weather", "send_mail"]}"#),
        ("params", exact),
        ("off by one", &exact.replace("993", "992")),
        ("errors", r#"{"noToolErrors": true}"#),
        ("slow", r#"{"maxLatencyMs": 200}"#),
    ];
    let (ended, result) = run(&place, &cases, &agent, &[]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    let verdicts: Vec<String> = (0..cases.len()).map(|case| verdict(&result, case)).collect();
    let (passed, failed) = ("passed - -", "failed assertion agent");
    assert_eq!(verdicts, [passed, passed, passed, failed, failed, failed], "{}", ended.stdout);
    let call = &result["cases"][1]["toolCalls"][1];
    assert_eq!((&call["success"], &call["durationMs"]), (&false.into(), &3.5.into()), "{call}");
    let params = result["cases"][1]["toolCalls"][0]["params"].to_string();
    assert_eq!(params, r#"{"b":9007199254740993,"city":"Paris"}"#);
    assert!(!ended.stdout.contains('⚠'), "the sidecar keeps the protocol: {}", ended.stdout);
    let asked = &endpoint.asked()[0];
    assert_eq!((asked.method.as_str(), asked.path.as_str()), ("POST", "/chat"));
    assert!(asked.headers.contains("content-type: application/json"), "{}", asked.headers);
    sidecar.signal("TERM");
    assert_eq!(sidecar.end().code, Some(0));
}

/// An endpoint with another shape, that wants to know who asks.
#[test]
fn fields_and_headers() {
    let place = Place::new();
    let endpoint = Endpoint::start(|_| {
        let calls =
            r#"["lookup", {"function": {"name": "pay", "arguments": "{\"amount\": 1.50}"}, "failure": "no money"}]"#;
        Reply::Status(200, format!(r#"{{"choices": [{{"message": {{"content": "Done.", "calls": {calls}}}}}]}}"#))
    });
    let fields = "--message-field input.text --history-field input.before --response-field choices[0].message.content \
        --tool-calls-field choices[0].message.calls --tool-name-field function.name \
        --tool-params-field function.arguments --tool-error-field failure --header Authorization=CHAT_AUTH";
    let (_sidecar, agent) = sidecar(&place, &endpoint.url(), &fields.split_whitespace().collect::<Vec<_>>());
    let expect = r#"{"toolsCalled": ["lookup", "pay"], "responseContains": ["Done."],
        "toolParams": [{"tool": "pay", "paramName": "amount", "assertion": "equals", "value": 1.5}]}"#;
    let (ended, result) = run(&place, &[("a", expect), ("b", r#"{"noToolErrors": true}"#)], &agent, &[]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    assert_eq!([verdict(&result, 0), verdict(&result, 1)], ["passed - -", "failed assertion agent"]);
    assert_eq!(result["cases"][0]["toolCalls"][1]["error"], "no money", "{result}");
    let asked = &endpoint.asked()[0];
    assert_eq!(asked.body, r#"{"input":{"before":[],"text":"a"}}"#);
    assert!(asked.headers.contains("authorization: Bearer tiptop-secret\n"), "{}", asked.headers);
    // It can make its spans part of the run's trace.
    let trace = result["cases"][0]["traceId"].as_str().expect("a trace");
    assert!(asked.headers.contains(&format!("traceparent: 00-{trace}-")), "{}", asked.headers);
    assert!(asked.headers.contains("baggage: forge.run.id="), "{}", asked.headers);
}

/// An endpoint that does not keep its contract has failed, and it is said how.
#[test]
fn endpoints_that_misbehave() {
    let place = Place::new();
    let endpoint = Endpoint::start(|asked| match asked.message().as_str() {
        "status" => Reply::Status(500, format!("<h1>Oops</h1>\n\u{1b}[2J{}{}", "tiptop-secret ", "x".repeat(20_000))),
        "html" => Reply::Status(200, "<html>hello</html>".to_owned()),
        "missing" => Reply::Status(200, r#"{"answer": "x"}"#.to_owned()),
        "type" => Reply::Status(200, r#"{"response": 5}"#.to_owned()),
        "big" => Reply::Status(200, format!(r#"{{"response": "{}"}}"#, "x".repeat(17 << 20))),
        "almost" => Reply::Status(200, format!(r#"{{"response": "{}"}}"#, "x".repeat((16 << 20) - 1040))),
        "redirect" => Reply::Redirect("http://elsewhere.example/"),
        _ => Reply::Cut,
    });
    let (_sidecar, agent) = sidecar(&place, &endpoint.url(), &["--header", "Authorization=CHAT_AUTH"]);
    let cases = ["status", "html", "missing", "type", "big", "redirect", "almost", "cut"]
        .map(|id| (id, r#"{"responseNonEmpty": true}"#));
    let (ended, result) = run(&place, &cases, &agent, &[]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    let url = endpoint.url();
    let said = [
        "answered 500 Internal Server Error: <h1>Oops</h1> \u{1b}[2J[hidden] xxx",
        "answered 200 OK with not JSON (expected value at line 1 column 1): <html>hello</html>",
        "answered 200 OK with JSON without the field response: {\"answer\": \"x\"}",
        "answered 200 OK with JSON whose field response is a number, not a text: {\"response\": 5}",
        "answered 200 OK with more than 16776192 bytes: {\"response\": \"xxx",
        "answered 302 Found, which leads to http://elsewhere.example/ and is not followed: an empty body",
    ];
    for (case, said) in said.into_iter().enumerate() {
        assert_eq!(verdict(&result, case), "failed agent_error agent", "{said}");
        let error = result["cases"][case]["error"].as_str().expect("an error");
        assert!(error.starts_with(&format!("agent error: {url} {said}")), "{error}");
        assert!(error.chars().count() < 600, "{error}");
    }
    assert_eq!(verdict(&result, 6), "passed - -", "{}", result["cases"][6]["error"]);
    // What a native agent that cuts its connection gets.
    assert_eq!(verdict(&result, 7), "errored agent_error network", "{}", result["cases"][7]);
    assert!(!ended.stdout.contains('\u{1b}'), "{}", ended.stdout);
    let of = |id: &str| endpoint.asked().iter().filter(|asked| asked.message() == id).count();
    assert_eq!((of("cut"), of("status")), (1, 1), "nothing is repeated");
}

/// Nobody there is the network's trouble: before the run it does not begin, and during the run cases are not judged.
#[test]
fn endpoints_that_are_gone() {
    let place = Place::new();
    let endpoint = Endpoint::start(|_| Reply::LastWords(r#"{"response": "bye"}"#.to_owned()));
    let url = endpoint.url();
    let (_sidecar, agent) = sidecar(&place, &url, &[]);
    let cases = ["a", "b", "c"].map(|id| (id, r#"{"responseContains": ["bye"]}"#));
    let begun = Instant::now();
    let (ended, result) = run(&place, &cases, &agent, &[]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    let lost = "errored unreachable network";
    assert_eq!([0, 1, 2].map(|case| verdict(&result, case)), ["passed - -", lost, lost]);
    let error = result["cases"][1]["error"].as_str().expect("an error");
    assert!(error.starts_with(&format!("agent unreachable: {url} cannot be reached: Connection refused")), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());

    for agent in [&agent, &url] {
        let (ended, _) = run(&place, &cases, agent, &[]);
        assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
        let why = format!("{url} cannot be reached: Connection refused");
        assert!(ended.stderr.contains("the run could not begin") && ended.stderr.contains(&why), "{}", ended.stderr);
    }
}

/// A request that takes too long is given up, and the endpoint learns it.
#[test]
fn requests_that_hang() {
    let place = Place::new();
    let endpoint = Endpoint::start(|_| Reply::Hang);
    let (_patient, agent) = sidecar(&place, &endpoint.url(), &[]);
    let cases = [("a", r#"{"responseNonEmpty": true}"#)];
    let (ended, result) = run(&place, &cases, &agent, &["--timeout", "300ms"]);
    assert_eq!((ended.code, verdict(&result, 0)), (Some(1), "failed timeout agent".to_owned()), "{}", ended.stdout);
    endpoint.wait_until_left(1);
    let (_impatient, agent) = sidecar(&place, &endpoint.url(), &["--timeout", "200ms"]);
    let (ended, result) = run(&place, &cases, &agent, &[]);
    assert_eq!((ended.code, verdict(&result, 0)), (Some(1), "failed agent_error agent".to_owned()), "{}", ended.stdout);
    assert!(result["cases"][0]["error"].to_string().contains("gave no answer within 200ms"), "{result}");
    endpoint.wait_until_left(2);
}

/// An endpoint runs its own tools, so a case that needs others is not sent.
#[test]
fn modes_that_an_endpoint_does_not_have() {
    let place = Place::new();
    let endpoint = Endpoint::start(chat);
    let (_sidecar, agent) = sidecar(&place, &endpoint.url(), &[]);
    place.write(
        "s.golden.json",
        r#"[{"id": "a", "input": {"message": "x"}, "stubs": {"t": {}}, "expect": {"toolsCalled": []}}]"#,
    );
    for (tools, capability) in [("live", "tools.stub"), ("routing-only", "tools.")] {
        let ended = place.run(&["run", "s.golden.json", "-n", &agent, "-o", "r.json", "--tools", tools]);
        assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
        let result = place.json("r.json");
        assert_eq!(verdict(&result, 0), "errored unsupported suite");
        assert!(result["cases"][0]["error"].to_string().contains(capability), "{result}");
    }
    assert!(endpoint.asked().is_empty());
}

/// What a sidecar is not started with is one clear line.
#[test]
fn sidecars_that_do_not_start() {
    let place = Place::new();
    for (args, code, text) in [
        ("ftp://localhost/", 2, "write it like http://127.0.0.1:3000/chat"),
        ("http://user:pw@localhost/", 2, "secrets do not belong into an address"),
        ("http://localhost:1/ --header Authorization=NOT_SET", 2, "the environment variable NOT_SET, which is not set"),
        ("http://localhost:1/ --header Authorization", 2, "write it like Authorization=CHAT_TOKEN"),
        ("http://localhost:1/ --response-field a..b", 2, "write it like response, data.reply"),
        ("http://localhost:1/ --history-field message", 2, "do not fit into one document"),
        ("http://localhost:1/ --listen 0.0.0.0:0", 2, "can be reached by other machines"),
        ("http://localhost:1/ --timeout 0s", 2, "--timeout must be more than 0"),
    ] {
        let mut sidecar = command(SIDECAR, place.path());
        sidecar.arg("http").args(args.split(' '));
        let ended = Running::start(sidecar).end();
        assert_eq!(ended.code, Some(code), "{args}: {}", ended.stderr);
        assert!(ended.stderr.contains(text), "{args}: {}", ended.stderr);
    }
}

/// forgectl with nothing but the address of an endpoint, as the contract's settings have it.
#[test]
fn forgectl_alone() {
    let place = Place::new();
    let endpoint = Endpoint::start(chat);
    let url = endpoint.url();
    place.write("forge.config.json", &format!(r#"{{"agentEndpoint": "{url}"}}"#));
    place.write(
        "a.golden.json",
        r#"[{"id": "a", "input": {"message": "x"}, "expect": {"toolsCalled": ["get_weather", "send_mail"]}}]"#,
    );
    let ended = place.run(&["run", "a.golden.json", "-o", "r.json"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(
        ended.stderr.contains(&format!("{url} speaks HTTP: running forge-sidecar http for it")),
        "{}",
        ended.stderr
    );
    let result = place.json("r.json");
    assert_eq!((&result["agentEndpoint"], &result["agentId"]), (&url.as_str().into(), &url.as_str().into()));
    let again = place.run(&["run", "a.golden.json", "--baseline", "last"]);
    assert_eq!(again.code, Some(0), "{}{}", again.stdout, again.stderr);

    let (_daemon, daemon) = place.daemon();
    let attached = place.run(&["run", "a.golden.json", "--daemon", &daemon]);
    assert_eq!(attached.code, Some(0), "{}", attached.stderr);
    assert!(attached.stderr.contains("attached to "), "{}", attached.stderr);
    let free = place.run(&["run", "a.golden.json", "--daemon", &daemon, "--daemon-free", "--quiet"]);
    assert_eq!((free.code, free.stderr.as_str()), (Some(0), ""));
    let added = place.run(&["agents", "add", "chat", &url, "--daemon", &daemon]);
    assert_eq!(added.code, Some(2), "{}", added.stderr);
    assert!(
        added.stderr.contains("an HTTP endpoint does not speak gRPC; start `forge-sidecar http URL`"),
        "{}",
        added.stderr
    );
    let odd = place.run(&["run", "a.golden.json", "-n", "http://"]);
    assert_eq!(odd.code, Some(2), "{}", odd.stderr);
}

/// Editors of some systems write a byte order mark at the beginning of every file, and some frameworks before every
/// answer.
#[test]
fn byte_order_marks() {
    let place = Place::new();
    let endpoint = Endpoint::start(|_| Reply::Status(200, "\u{feff}{\"response\": \"7 of AAPL\"}".to_owned()));
    place.write("forge.config.json", "\u{feff}{\"snapshotPath\": \"snapshot.json\", \"outputDir\": \"results\"}");
    place.write("seed-manifest.json", "\u{feff}{\"symbol\": \"AAPL\"}");
    place.write("snapshot.json", "\u{feff}{\"shares\": 7}");
    place.write("tools.json", "\u{feff}[{\"name\": \"t\", \"description\": \"d\"}]");
    let cases = [("a", r#"{"responseContains": ["{{seed:symbol}}", "{{snapshot:shares}} of"]}"#)];
    let run = |more: &[&str]| {
        let (ended, result) = run(&place, &cases, &endpoint.url(), &[&["--registry", "tools.json"], more].concat());
        assert_eq!(ended.code, Some(0), "{more:?}: {}{}", ended.stdout, ended.stderr);
        result
    };
    let first = run(&[]);
    assert_eq!((&first["cases"][0]["assertionsRun"], &first["metadata"]["registrySize"]), (&2.into(), &1.into()));
    let id = first["runId"].as_str().expect("an id");
    place.write("marked/earlier.json", &format!("\u{feff}{first}"));
    for baseline in [&["--baseline", "marked/earlier.json"][..], &["--baseline", id, "--output-dir", "marked"]] {
        assert_eq!(run(baseline)["baselineRunId"], id, "{baseline:?}");
    }
    let none = place.run(&["run", "s.golden.json", "-n", &endpoint.url(), "--failed", "marked/earlier.json"]);
    assert_eq!(none.code, Some(4), "{}", none.stderr);
}

/// https is checked against the system's certificates, and proxies of the environment are left alone.
#[test]
fn secure_endpoints() {
    let place = Place::new();
    let (endpoint, certificate) = Endpoint::start_secure(chat);
    let url = format!("https://localhost:{}/chat", endpoint.address.port());
    let trusted = place.write("authority.pem", &certificate);
    place.write("a.golden.json", r#"[{"id": "a", "input": {"message": "x"}, "expect": {"responseNonEmpty": true}}]"#);
    for (is_trusted, code, text) in [(true, 0, "✓ a"), (false, 3, "cannot be reached: invalid peer certificate")] {
        let mut command = place.forgectl(&["run", "a.golden.json", "-n", &url]);
        command.env("HTTPS_PROXY", "http://127.0.0.1:1");
        if is_trusted {
            command.env("SSL_CERT_FILE", &trusted);
        }
        let ended = Running::start(command).end();
        assert_eq!(ended.code, Some(code), "{}{}", ended.stdout, ended.stderr);
        // That it is not trusted is known before the first case.
        let (said, begun) = if is_trusted { (&ended.stdout, true) } else { (&ended.stderr, false) };
        assert!(said.contains(text), "{}{}", ended.stdout, ended.stderr);
        assert_eq!(!ended.stderr.contains("the run could not begin"), begun, "{}", ended.stderr);
    }
    assert_eq!(endpoint.asked().len(), 1);
}

/// Values for tokens, from an address; without them no case runs.
#[test]
fn snapshots() {
    let place = Place::new();
    let agent = Endpoint::start(chat);
    let values = Endpoint::start(|asked| match asked.path.as_str() {
        "/values" if asked.headers.contains("authorization: Bearer tiptop-secret") => {
            Reply::Status(200, r#"{"temperature": 18}"#.to_owned())
        }
        "/list" => Reply::Status(200, "[]".to_owned()),
        "/moved" => Reply::Redirect("/values"),
        _ => Reply::Status(403, "who are you?".to_owned()),
    });
    let at = |path: &str| format!("http://{}/{path}", values.address);
    place.write(
        "a.golden.json",
        r#"[{"id": "a", "input": {"message": "x"}, "expect": {"responseContains": ["{{snapshot:temperature}} °C"]}}]"#,
    );
    let run = |args: &[&str]| {
        let mut command = place.forgectl(&["run", "a.golden.json", "-n", &agent.url(), "--strict"]);
        command.args(args).env("AUTH", "Bearer tiptop-secret");
        Running::start(command).end()
    };
    let header = ["--snapshot-header", "Authorization=AUTH"];
    let good = run(&["--snapshot-url", &at("values"), header[0], header[1]]);
    assert_eq!(good.code, Some(0), "{}{}", good.stdout, good.stderr);
    let asked = &values.asked()[0];
    assert!(asked.method == "GET" && asked.headers.contains("accept: application/json"), "{asked:?}");
    let agents = agent.asked().len();
    for (path, why) in [
        ("values", "answered 403 Forbidden: who are you?"),
        ("list", "what was captured is no object of values"),
        ("moved", "answered 302 Found, which leads to /values and is not followed"),
    ] {
        let bad = run(&["--snapshot-url", &at(path)]);
        assert_eq!(bad.code, Some(3), "{path}: {}", bad.stderr);
        assert!(bad.stderr.contains(&at(path)) && bad.stderr.contains(why), "{path}: {}", bad.stderr);
    }
    let nobody = run(&["--snapshot-url", "http://127.0.0.1:1/"]);
    assert_eq!(nobody.code, Some(3), "{}", nobody.stderr);
    assert!(nobody.stderr.contains("http://127.0.0.1:1/ cannot be reached"), "{}", nobody.stderr);
    for args in [
        &["--snapshot-url", "nowhere"][..],
        &["--snapshot-url", "http://x/", "--snapshot-command", "true"],
        &["--snapshot-url", "http://x/", "--snapshot-header", "Authorization=NOT_SET"],
        &header,
    ] {
        let wrong = run(args);
        assert_eq!(wrong.code, Some(2), "{args:?}: {}", wrong.stderr);
    }
    assert_eq!(agent.asked().len(), agents, "no case ran");

    place.write("forge.config.json", &format!(r#"{{"snapshotEnabled": true, "snapshotUrl": "{}"}}"#, at("values")));
    let configured = run(&header);
    assert_eq!(configured.code, Some(0), "{}{}", configured.stdout, configured.stderr);
}

fn start(id: &str, mode: ToolMode) -> InvokeRequest {
    let parts = vec![Part { content: Some(part::Content::Text("x".to_owned())) }];
    let messages = vec![Message { role: Role::User.into(), parts, ..Message::default() }];
    let start =
        InvokeStart { invocation_id: id.to_owned(), messages, tool_mode: mode.into(), ..InvokeStart::default() };
    InvokeRequest { frame: Some(Frame::Start(start)) }
}

/// The rules that a daemon of ours never puts to the test.
#[tokio::test(flavor = "multi_thread")]
async fn the_protocol() {
    let endpoint = Endpoint::start(|asked| if asked.body.contains('x') { Reply::Hang } else { Reply::Cut });
    let client = HttpClient::new(endpoint.url().parse().expect("an address"), &[]).expect("a client");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let stop = CancellationToken::new();
    let served = tokio::spawn(serve(listener, Adapter::new(client), stop.clone()));
    let mut agent = AgentEndpointClient::connect(format!("http://{address}")).await.expect("connects");

    let described = agent.describe(DescribeRequest::default()).await.expect("an answer").into_inner();
    let capabilities = ["attachments", "cancel", "stand_in"].map(str::to_owned).into();
    assert_eq!((described.revision, described.capabilities), (1, capabilities));
    assert_eq!(described.card.expect("a card").agent_id, endpoint.address.to_string());

    for (frame, code) in [
        (start("a", ToolMode::Stub), Code::FailedPrecondition),
        (start("a", ToolMode::RoutingOnly), Code::FailedPrecondition),
        (start("a", ToolMode::Unspecified), Code::InvalidArgument),
        (start("", ToolMode::Live), Code::InvalidArgument),
        (InvokeRequest { frame: Some(Frame::Cancel(InvokeCancel::default())) }, Code::InvalidArgument),
    ] {
        let status = agent.invoke(tokio_stream::iter([frame])).await.expect_err("a refusal");
        assert_eq!(status.code(), code, "{status}");
    }

    let (frames, outgoing) = tokio::sync::mpsc::channel(4);
    frames.send(start("a", ToolMode::Live)).await.expect("room");
    let outgoing = tokio_stream::wrappers::ReceiverStream::new(outgoing);
    let mut events = agent.invoke(outgoing).await.expect("a stream").into_inner();
    let first = events.message().await.expect("no error").expect("an event");
    assert!(matches!(&first.event, Some(Event::Accepted(accepted)) if accepted.invocation_id == "a"), "{first:?}");
    let status = agent.invoke(tokio_stream::iter([start("a", ToolMode::Live)])).await.expect_err("a refusal");
    assert_eq!(status.code(), Code::AlreadyExists);
    endpoint.wait_until_asked(1).await;
    frames.send(InvokeRequest { frame: Some(Frame::Cancel(InvokeCancel::default())) }).await.expect("room");
    let last = events.message().await.expect("no error").expect("an event");
    let reason = FinishReason::Cancelled as i32;
    assert!(matches!(&last.event, Some(Event::Finished(finished)) if finished.finish_reason == reason), "{last:?}");
    assert_eq!((first.seq, last.seq), (1, 2));
    assert!(events.message().await.expect("status OK").is_none());
    endpoint.wait_until_left(1);

    // A half-close is no cancel; the end of the process is one.
    let mut events =
        agent.invoke(tokio_stream::iter([start("b", ToolMode::Live)])).await.expect("a stream").into_inner();
    events.message().await.expect("no error").expect("an event");
    let next = tokio::time::timeout(Duration::from_millis(200), events.message()).await;
    assert!(next.is_err(), "the call goes on: {next:?}");
    endpoint.wait_until_asked(2).await;
    stop.cancel();
    assert_eq!(events.message().await.expect_err("a status").code(), Code::Unavailable);
    endpoint.wait_until_left(2);
    served.await.expect("no panic").expect("no error");
}
