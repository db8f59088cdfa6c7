//! What comes through a daemon's door and wants too much: connections, streams, requests, bundles, patterns, runs. In
//! the meantime somebody else works with the same daemon.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use forge::wire::control::run_service_client::RunServiceClient;
use forge::wire::control::{self as pb, upload_bundle_request::Frame};
use tokio_stream::StreamExt as _;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::processes::{DAEMON, Place, Running, command};

const AGENT: &str = r#"{"replies": [
    {"on": "slow", "events": [{"wait_ms": 600000}, {"text": "done"}]},
    {"on": "*", "events": [{"text": "hello there"}]}
]}"#;

const CASE: &str =
    "{\"id\": \"c\", \"input\": \"x\", \"assertions\": [{\"type\": \"contains\", \"value\": \"hello\"}]}\n";

/// A daemon that may have `files` files open, with lines of a configuration.
fn daemon(place: &Place, files: usize, config: &str) -> (Running, String) {
    let home = place.path().join("daemon");
    std::fs::create_dir_all(&home).expect("a folder");
    place.write("daemon/forge.toml", config);
    let mut shell = command("bash", &home);
    let line = format!("ulimit -n {files}; exec '{DAEMON}' --listen 127.0.0.1:0 --data-dir data --config forge.toml");
    shell.args(["-c", &line]);
    let mut daemon = Running::start(shell);
    let url = format!("http://{}", daemon.address());
    (daemon, url)
}

/// What somebody else does meanwhile, and how long it takes.
fn works(place: &Place, daemon: &str, agent: &str) -> Duration {
    place.write("other.jsonl", CASE);
    let began = Instant::now();
    let ended = place.run(&["run", "other.jsonl", "-n", agent, "--daemon", daemon]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    began.elapsed()
}

async fn client(url: &str) -> RunServiceClient<Channel> {
    RunServiceClient::connect(url.to_owned()).await.expect("connects")
}

fn address(url: &str) -> &str {
    url.trim_start_matches("http://")
}

/// What an answer over HTTP/1 begins with.
fn asked(url: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address(url)).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("sets");
    stream.write_all(request.as_bytes()).expect("writes");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn pages_whose_names_lead_to_the_daemon_get_nothing() {
    let place = Place::new();
    let (_daemon, url) = daemon(&place, 1024, "allowed_hosts = ['forge.staging']");
    for (host, status) in [
        ("127.0.0.1:7460", "200"),
        ("localhost:7460", "200"),
        ("forge.staging", "200"),
        ("evil.example", "403"),
        ("forge.staging.evil.example:7460", "403"),
    ] {
        let answer = asked(&url, &format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(answer, format!("HTTP/1.1 {status}"), "{host}");
    }
    for path in ["/v1/traces", "/forge.control.v1.RunService/ListRuns", "/"] {
        let kind = "content-type: application/grpc\r\ncontent-length: 0";
        let answer = asked(&url, &format!("POST {path} HTTP/1.1\r\nHost: evil.example\r\n{kind}\r\n\r\n"));
        assert_eq!(answer, "HTTP/1.1 403", "{path}");
    }
    assert_eq!(asked(&url, "GET /metrics HTTP/1.0\r\n\r\n"), "HTTP/1.0 403");
}

/// A daemon of few files is full of connections on which nothing is said: it burns no processor over it, and the most
/// silent ones give way to clients that have something to say.
#[test]
fn a_daemon_full_of_connections_goes_on() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let (daemon, url) = daemon(&place, 80, "");
    let connect = || TcpStream::connect(address(&url)).expect("connects");
    let silent: Vec<TcpStream> = (0..200).map(|_| connect()).collect();
    std::thread::sleep(Duration::from_millis(300));
    let before = daemon.cpu_time();
    std::thread::sleep(Duration::from_secs(2));
    let used = daemon.cpu_time().saturating_sub(before);
    assert!(used < Duration::from_millis(500), "{used:?} of CPU time for nothing");
    works(&place, &url, &agent);
    drop(silent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_has_so_many_streams() {
    let place = Place::new();
    let (_daemon, url) = daemon(&place, 1024, "");
    let stream = tokio::net::TcpStream::connect(address(&url)).await.expect("connects");
    let (requests, connection) = h2::client::handshake(stream).await.expect("speaks HTTP/2");
    let connection = tokio::spawn(connection);
    let mut requests = requests.ready().await.expect("is ready");
    let ask =
        || http::Request::post(format!("{url}/forge.control.v1.RunService/ListRuns")).body(()).expect("a request");
    // The answer says that the settings have come.
    let (answer, mut body) = requests.send_request(ask(), false).expect("is sent");
    body.send_data(bytes::Bytes::new(), true).expect("is sent");
    answer.await.expect("an answer");
    assert_eq!(requests.current_max_send_streams(), 200);
    connection.abort();
}

/// Bundles that were begun and never come: each holds a file, so their number is limited.
#[tokio::test(flavor = "multi_thread")]
async fn bundles_that_never_come_are_few() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let (_daemon, url) = daemon(&place, 256, "");
    let mut begun = Vec::new();
    for number in 0..20_u8 {
        let bundle = pb::BundleRef { sha256: vec![number; 32], size_bytes: 1 << 32 };
        let header = pb::UploadBundleRequest { frame: Some(Frame::Header(bundle)) };
        let frames = tokio_stream::once(header).chain(futures_util::stream::pending());
        let mut client = client(&url).await;
        begun.push(tokio::spawn(async move { client.upload_bundle(frames).await.expect_err("never comes").code() }));
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (refused, open): (Vec<_>, Vec<_>) = begun.into_iter().partition(tokio::task::JoinHandle::is_finished);
    assert_eq!((refused.len(), open.len()), (8, 12), "three quarters of 16 are there for one address");
    for refused in refused {
        assert_eq!(refused.await.expect("an answer"), Code::ResourceExhausted);
    }
    // What does not come on gives way to what does.
    tokio::time::sleep(Duration::from_secs(1)).await;
    works(&place, &url, &agent);
    let gone = open.iter().filter(|upload| upload.is_finished()).count();
    assert_eq!(gone, 1, "one place was needed");
    open.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Patterns are looked at behind everything else, and are bounded.
#[tokio::test(flavor = "multi_thread")]
async fn patterns_of_watchers_cost_others_nothing() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let (_daemon, url) = daemon(&place, 1024, "");
    works(&place, &url, &agent);
    let mut client = client(&url).await;
    let runs = client.list_runs(pb::ListRunsRequest::default()).await.expect("runs").into_inner().runs;
    let large: Vec<String> = (0..90).map(|number| format!(r"\w{{20}}{number}")).collect();
    for (run_id, patterns, code) in [
        ("nobody", large.clone(), Code::NotFound),
        (&runs[0].run_id, large, Code::InvalidArgument),
        (&runs[0].run_id, vec!["x".to_owned(); 1_000], Code::InvalidArgument),
        (&runs[0].run_id, vec!["x".repeat(1 << 20)], Code::InvalidArgument),
        (&runs[0].run_id, vec!["(".to_owned()], Code::InvalidArgument),
        (&runs[0].run_id, vec!["^c$".to_owned(), "nothing".to_owned()], Code::Ok),
    ] {
        let request = pb::WatchRunRequest { run_id: run_id.to_owned(), case_patterns: patterns, ..Default::default() };
        let code_of = match client.watch_run(request).await {
            Ok(watch) => watch.into_inner().message().await.map_or_else(|status| status.code(), |_| Code::Ok),
            Err(status) => status.code(),
        };
        assert_eq!(code_of, code, "{run_id}");
    }
}

/// A name that is longer than any is refused before a database is asked for it, and the answer says which one it is.
#[tokio::test(flavor = "multi_thread")]
async fn names_that_nothing_has() {
    let place = Place::new();
    let (_daemon, url) = daemon(&place, 256, "");
    let mut client = client(&url).await;
    let long = || "x".repeat(1 << 20);
    let many = |number| (0..number).map(|n| (n.to_string(), String::new())).collect();
    let list = pb::ListRunsRequest::default;
    for (request, field) in [
        (pb::ListRunsRequest { suite: long(), ..list() }, "suite"),
        (pb::ListRunsRequest { agent_id: long(), ..list() }, "agent_id"),
        (pb::ListRunsRequest { page_token: long(), ..list() }, "page_token"),
        (pb::ListRunsRequest { labels: [("key".to_owned(), long())].into(), ..list() }, "labels.value"),
        (pb::ListRunsRequest { labels: many(2_000), ..list() }, "labels"),
    ] {
        refused(&client.list_runs(request).await.expect_err("it is none"), field);
    }
    let states = vec![pb::run::State::Passed.into(); 100_000];
    client.list_runs(pb::ListRunsRequest { states, ..list() }).await.expect("some are named often");
    refused(&client.get_run(pb::GetRunRequest { run_id: long() }).await.expect_err("it is none"), "run_id");
    let verdicts = pb::ListVerdictsRequest { case_id: long(), ..Default::default() };
    refused(&client.list_verdicts(verdicts).await.expect_err("it is none"), "case_id");
    let watch = pb::WatchRunRequest { run_id: long(), ..Default::default() };
    refused(&client.watch_run(watch).await.expect_err("it is none"), "run_id");
    let history = pb::GetHistoryRequest { suite: long(), ..Default::default() };
    refused(&client.get_history(history).await.expect_err("it is none"), "suite");
    let create = pb::CreateRunRequest { request_id: long(), ..Default::default() };
    refused(&client.create_run(create).await.expect_err("it is none"), "request_id");
}

/// Checks that a request was refused because of a field.
fn refused(status: &Status, field: &str) {
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert!(status.message().starts_with(&format!("{field}: ")), "{status:?}");
    let named = status.get_details_bad_request().expect("the field").field_violations.swap_remove(0).field;
    assert_eq!(named, field);
}

/// Runs that wait hold nothing of their bundles, also behind a restart, and they all have their turn.
#[cfg(target_os = "linux")]
#[test]
fn runs_that_wait_hold_no_bundles() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let (first, url) = daemon(&place, 1024, "max_parallel_runs = 1\nagent_gone_after = '10s'");
    // A picture that the case does not send: the agent takes no files.
    place.write("slow.jsonl", &CASE.replace("\"x\"", "\"slow\""));
    std::fs::write(place.path().join("big.bin"), vec![7; 12 << 20]).expect("writes");
    let picture = "[{\"type\": \"text\", \"text\": \"x\"}, {\"type\": \"image\", \"source\": \"file://big.bin\"}]";
    let big = CASE.replace("\"input\": \"x\"", &format!("\"input\": {{\"role\": \"user\", \"content\": {picture}}}"));
    place.write("big.jsonl", &big);
    let detached = |suite: &str| {
        let ended = place.run(&["run", suite, "-n", &agent, "--daemon", &url, "--detach"]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        ended.stdout.trim().to_owned()
    };
    let slow = detached("slow.jsonl");
    detached("big.jsonl");
    detached("big.jsonl");
    let before = first.peak_memory();
    for _ in 2..8 {
        detached("big.jsonl");
    }
    let more = first.peak_memory().saturating_sub(before);
    assert!(more < 48 << 20, "{} MiB for six runs that wait", more >> 20);
    first.signal("KILL");
    drop(first);
    let second = place.daemon_at(&url);
    std::thread::sleep(Duration::from_secs(1));
    assert!(second.peak_memory() < before + (48 << 20), "{} MiB behind the restart", second.peak_memory() >> 20);
    let cancelled = place.run(&["runs", "cancel", &slow, "--daemon", &url]);
    assert_eq!(cancelled.code, Some(0), "{}", cancelled.stderr);
    let began = Instant::now();
    loop {
        let listed = place.run(&["runs", "list", "--daemon", &url]).stdout;
        let over = listed.lines().filter(|line| line.contains("errored")).count();
        if over == 8 {
            break;
        }
        assert!(began.elapsed() < Duration::from_mins(3), "{listed}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Runs that hang take neither the last place nor the places of those that wait.
#[test]
fn runs_that_hang_keep_nobody_else_out() {
    let place = Place::new();
    let ((_hangs, hangs), (_works, agent)) = (place.agent(AGENT), place.agent(AGENT));
    let (_daemon, url) = daemon(&place, 1024, "");
    place.write("slow.jsonl", &CASE.replace("\"x\"", "\"slow\""));
    for _ in 0..12 {
        let ended = place.run(&["run", "slow.jsonl", "-n", &hangs, "--daemon", &url, "--detach"]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }
    works(&place, &url, &agent);
    let listed = place.run(&["runs", "list", "--daemon", &url]).stdout;
    let count = |state| listed.lines().filter(|line| line.contains(state)).count();
    assert_eq!((count("running"), count("queued"), count("passed")), (3, 9, 1), "{listed}");
}

/// Connections on which nothing is said end by themselves.
#[test]
#[ignore = "long: make attacks"]
fn silence_ends_a_connection() {
    let place = Place::new();
    let (_daemon, url) = daemon(&place, 1024, "");
    for said in ["", "PRI * HT", "GET /metr"] {
        let mut stream = TcpStream::connect(address(&url)).expect("connects");
        stream.write_all(said.as_bytes()).expect("writes");
        stream.set_read_timeout(Some(Duration::from_secs(45))).expect("sets");
        let began = Instant::now();
        let ended = stream.read(&mut [0; 64]);
        assert!(began.elapsed() < Duration::from_secs(40), "{said:?}: {ended:?}");
    }
}

/// A daemon that was frozen while the agent answered, and while the time of the case ran out: that is not the agent's
/// fault.
#[test]
fn a_frozen_daemon_is_nobody_elses_fault() {
    let place = Place::new();
    let replies = r#"{"replies": [{"on": "*", "events": [{"wait_ms": 1000}, {"text": "hello there"}]}]}"#;
    let (_agent, agent) = place.agent(replies);
    let (daemon, url) = daemon(&place, 1024, "");
    place.write("t.jsonl", CASE);
    let args = ["run", "t.jsonl", "-n", &agent, "--daemon", &url, "--detach", "--timeout", "2s"];
    let started = place.run(&args);
    assert_eq!(started.code, Some(0), "{}", started.stderr);
    std::thread::sleep(Duration::from_millis(400));
    daemon.signal("STOP");
    std::thread::sleep(Duration::from_secs(3));
    daemon.signal("CONT");
    let watched = place.run(&["watch", started.stdout.trim(), "--cases", "--daemon", &url]);
    assert_eq!(watched.code, Some(0), "{}{}", watched.stdout, watched.stderr);
}

/// A text with NUL in it is refused by the name of its field, before anything is asked of a database.
#[tokio::test(flavor = "multi_thread")]
async fn texts_with_nul_are_refused_by_name() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let (_daemon, url) = daemon(&place, 1024, "");
    let refused = client(&url).await.get_run(pb::GetRunRequest { run_id: "a\0b".to_owned() }).await.expect_err("none");
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().starts_with("run_id: "), "{refused}");
    place.write("nul.jsonl", &CASE.replace("\"c\"", "\"c\\u0000d\""));
    let ended = place.run(&["run", "nul.jsonl", "-n", &agent, "--daemon", &url]);
    assert_eq!(ended.code, Some(2), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("U+0000"), "{}", ended.stderr);
}

/// The agent chooses its words, but not what they are taken for: a status in the words of one that was made up here is
/// the agent's.
#[tokio::test(flavor = "multi_thread")]
async fn statuses_that_are_odd_are_the_agents() {
    let place = Place::new();
    let (_daemon, url) = daemon(&place, 1024, "");
    for (headers, told) in [
        (&[("grpc-status", "14"), ("grpc-status-details-bin", "!!!!")][..], "UNAVAILABLE"),
        (
            &[("grpc-status", "2"), ("grpc-message", "grpc-status header missing, mapped from HTTP status code 500")],
            "UNKNOWN",
        ),
        (&[("grpc-status", "13"), ("grpc-message", "%FF%FE"), ("x-odd-bin", "!!!!")], ""),
    ] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let agent = format!("grpc://{}", listener.local_addr().expect("an address"));
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut calls = h2::server::handshake(stream).await.expect("speaks HTTP/2");
                    while let Some(Ok((request, mut respond))) = calls.accept().await {
                        let is_describe = request.uri().path().ends_with("Describe");
                        let odd = if is_describe { &[("grpc-status", "12")][..] } else { headers };
                        let mut answer = http::Response::builder().header("content-type", "application/grpc");
                        for (name, value) in odd {
                            answer = answer.header(*name, *value);
                        }
                        let answer = answer.body(()).expect("an answer");
                        respond.send_response(answer, true).expect("is sent");
                    }
                });
            }
        });
        place.write("t.jsonl", CASE);
        let run = place.forgectl(&["run", "t.jsonl", "-n", &agent, "--daemon", &url, "-o", "result.json"]);
        let ended = tokio::task::spawn_blocking(move || Running::start(run).end()).await.expect("ends");
        assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
        let case = place.json("result.json")["cases"][0].to_string();
        assert!(case.contains("agent error: ") && case.contains(told), "{case}");
        server.abort();
    }
}

/// An agent that is there and says nothing: only a limited number of clients may wait for it at a time, and its labels
/// are as short as those of runs.
#[tokio::test(flavor = "multi_thread")]
async fn asking_agents_has_an_end() {
    use pb::agent_registry_service_client::AgentRegistryServiceClient;

    let place = Place::new();
    let (_daemon, url) = daemon(&place, 1024, "");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let target = format!("grpc://{}", silent.local_addr().expect("an address"));
    let mut agents = AgentRegistryServiceClient::connect(url.clone()).await.expect("connects");
    let agent = |value: &str| pb::Agent {
        agent_id: "silent".to_owned(),
        target: target.clone(),
        labels: [("team".to_owned(), value.to_owned())].into(),
        ..pb::Agent::default()
    };
    let register = |value: &str| pb::RegisterAgentRequest { agent: Some(agent(value)), skip_probe: true };
    refused(&agents.register_agent(register(&"x".repeat(201))).await.expect_err("it is no label"), "agent.labels");
    agents.register_agent(register("a")).await.expect("it is registered");

    let probes = (0..200).map(|_| {
        let mut agents = agents.clone();
        async move { agents.probe_agent(pb::ProbeAgentRequest { agent_id: "silent".to_owned() }).await }
    });
    let probed = futures_util::future::join_all(probes).await;
    let refused = probed.iter().filter_map(|probe| probe.as_ref().err()).map(Status::code).collect::<Vec<_>>();
    assert!(!refused.is_empty() && refused.len() < 200, "{} were refused", refused.len());
    assert!(refused.iter().all(|code| *code == Code::ResourceExhausted), "{refused:?}");

    let generators = (0..60).map(|_| {
        let (url, target) = (url.clone(), target.clone());
        async move {
            let mut client = client(&url).await;
            let targets = vec![pb::Target { agent_id: "g".to_owned(), url: target }];
            let (generator_id, agent_id) = ("g".to_owned(), "g".to_owned());
            let request = pb::GenerateCasesRequest { generator_id, agent_id, targets, count: 1, ..Default::default() };
            let asked = client.generate_cases(request).await;
            // As long as the stream is there, the generator is asked.
            asked.map(|stream| (stream, client))
        }
    });
    let asked = futures_util::future::join_all(generators).await;
    assert_eq!(asked.iter().filter(|asked| asked.is_ok()).count(), 32);
    let refused = asked.iter().filter_map(|asked| asked.as_ref().err());
    assert!(refused.map(Status::code).all(|code| code == Code::ResourceExhausted));
}
