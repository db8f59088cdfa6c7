//! Agents that dial the daemon: what a stream may say, what it must not, and what is left of calls when it breaks.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use forge::wire::agent::{AgentCard, DescribeResponse, Limits};
use forge::wire::attach::attach_service_client::AttachServiceClient;
use forge::wire::attach::{
    AttachRequest, AttachResponse, AttachedAgent, Drain, EndCall, Hello, Kind, OpenCall, Pong, Reply, WindowUpdate,
    attach_request as ours, attach_response as theirs,
};
use prost::Message as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Status, Streaming};

use crate::processes::{Place, Running, SIDECAR, command};

const SCRIPT: &str =
    r#"{"replies": [{"on": "*", "events": [{"tool": {"name": "look"}}, {"wait_ms": 20}, {"text": "yes"}]}]}"#;
const PATIENCE: Duration = Duration::from_secs(20);

/// An agent that is written by hand, frame by frame.
struct Hand {
    frames: mpsc::UnboundedSender<AttachRequest>,
    incoming: Streaming<AttachResponse>,
}

impl Hand {
    async fn dial(url: &str) -> Self {
        let mut client = AttachServiceClient::connect(url.to_owned()).await.unwrap();
        let (frames, outgoing) = mpsc::unbounded_channel();
        let incoming = client.attach(UnboundedReceiverStream::new(outgoing)).await.unwrap().into_inner();
        Self { frames, incoming }
    }

    fn say(&self, frame: ours::Frame) {
        self.frames.send(AttachRequest { frame: Some(frame) }).unwrap();
    }

    async fn hear(&mut self) -> Result<Option<theirs::Frame>, Status> {
        let heard = tokio::time::timeout(PATIENCE, self.incoming.message()).await.expect("something comes");
        Ok(heard?.and_then(|response| response.frame))
    }

    /// The status that the stream ends with.
    async fn end(&mut self) -> Status {
        loop {
            match self.hear().await {
                Ok(Some(_)) => {}
                Ok(None) => return Status::ok(""),
                Err(status) => return status,
            }
        }
    }

    async fn attach(url: &str, hello: Hello) -> (Self, String) {
        let mut hand = Self::dial(url).await;
        hand.say(ours::Frame::Hello(hello));
        match hand.hear().await {
            Ok(Some(theirs::Frame::Welcome(welcome))) => (hand, welcome.session_id),
            other => panic!("{other:?}"),
        }
    }

    /// Waits for the next call.
    async fn open(&mut self) -> OpenCall {
        loop {
            match self.hear().await.unwrap() {
                Some(theirs::Frame::Open(open)) => return open,
                Some(theirs::Frame::Ping(ping)) => self.say(ours::Frame::Pong(Pong { nonce: ping.nonce })),
                Some(_) => {}
                None => panic!("the stream ends"),
            }
        }
    }

    /// Answers calls of Describe until another one comes.
    async fn invoked(&mut self) -> OpenCall {
        loop {
            let open = self.open().await;
            let Some((Kind::Describe, _)) = open.call else { return open };
            self.reply(open.call_no, Kind::Describe, description("a").encode_to_vec().into());
            self.say(ours::Frame::End(EndCall { call_no: open.call_no, fault: None }));
        }
    }

    fn reply(&self, call_no: u64, kind: Kind, message: Bytes) {
        self.say(ours::Frame::Reply(Reply { call_no, payload: Some((kind, message)) }));
    }
}

fn description(agent_id: &str) -> DescribeResponse {
    DescribeResponse {
        revision: 1,
        instance_id: "hand".to_owned(),
        card: Some(AgentCard { agent_id: agent_id.to_owned(), ..AgentCard::default() }),
        limits: Some(Limits { max_concurrent_invocations: 1, ..Limits::default() }),
        ..DescribeResponse::default()
    }
}

fn hello(agents: &[&str]) -> Hello {
    let agent = |id: &&str| AttachedAgent { agent_id: (*id).to_owned(), describe: Some(description(id)) };
    Hello {
        min_revision: 1,
        max_revision: 1,
        agents: agents.iter().map(agent).collect(),
        instance_id: "hand-1".to_owned(),
        ..Hello::default()
    }
}

/// What is wrong with a hello.
type Change = fn(&mut Hello);

/// A scripted agent that is attached to the daemon at `url`, as `id`.
fn attached(place: &Place, url: &str, id: &str) -> Running {
    place.write("agent.json", SCRIPT);
    let mut sidecar = command(SIDECAR, place.path());
    sidecar.args(["script", "agent.json", "--attach", url, "--id", id, "--log", "calls.jsonl"]);
    let mut sidecar = Running::start(sidecar);
    assert!(sidecar.line().starts_with("attached to "));
    sidecar
}

fn suite(cases: usize) -> String {
    let case = |n| {
        format!(
            r#"{{"id": "c{n}", "input": {{"message": "m{n}"}}, "expect": {{"toolsCalled": ["look"], "responseContains": ["yes"]}}}}"#
        )
    };
    format!("[{}]", (0..cases).map(case).collect::<Vec<_>>().join(","))
}

/// Each is told what is wrong, and nobody else notices.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_stream_must_not_say() {
    let place = Place::new();
    let (_daemon, url) = place.daemon();
    let _good = attached(&place, &url, "good");
    place.write("s.golden.json", &suite(3));

    let refused = |change: fn(&mut Hello)| {
        let url = url.clone();
        async move {
            let mut hand = Hand::dial(&url).await;
            let mut hello = hello(&["a"]);
            change(&mut hello);
            hand.say(ours::Frame::Hello(hello));
            let status = hand.end().await;
            (status.code(), status.message().to_owned())
        }
    };
    let table: [(Change, Code, &str); 8] = [
        (|h| h.min_revision = 0, Code::InvalidArgument, "min_revision is at least 1"),
        (|h| (h.min_revision, h.max_revision) = (7, 9), Code::FailedPrecondition, "speaks revisions 1 to 1"),
        (|h| h.agents.clear(), Code::InvalidArgument, "hello.agents: 1 to 100"),
        (|h| h.instance_id.clear(), Code::InvalidArgument, "hello.instance_id"),
        (|h| h.agents[0].agent_id = "a b".to_owned(), Code::InvalidArgument, "hello.agents[0].agent_id"),
        (|h| h.agents.push(h.agents[0].clone()), Code::InvalidArgument, "stands there twice"),
        (|h| h.agents = vec![h.agents[0].clone(); 101], Code::InvalidArgument, "1 to 100"),
        (|h| h.instance_id = "x".repeat(201), Code::InvalidArgument, "1 to 200 bytes"),
    ];
    for (change, code, part) in table {
        let (found, message) = refused(change).await;
        assert!(found == code && message.contains(part), "{found:?} {message}");
    }

    let mut hand = Hand::dial(&url).await;
    hand.say(ours::Frame::Pong(Pong { nonce: 1 }));
    let status = hand.end().await;
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "hello: comes first"));

    let begun = Instant::now();
    let status = Hand::dial(&url).await.end().await;
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    assert!(begun.elapsed() > Duration::from_secs(4));

    // Behind the hello.
    for (frames, code, part) in [
        (vec![ours::Frame::Hello(hello(&["a"]))], Code::InvalidArgument, "hello: comes once"),
        (
            vec![ours::Frame::Reply(Reply { call_no: 1, payload: Some((Kind::Invoke, Bytes::new())) })],
            Code::InvalidArgument,
            "call_no: 1 was never opened",
        ),
        (vec![ours::Frame::End(EndCall { call_no: 5, fault: None })], Code::InvalidArgument, "5 was never opened"),
        (
            vec![ours::Frame::Window(WindowUpdate { call_no: 0, bytes: u32::MAX }); 2],
            Code::ResourceExhausted,
            "WINDOW_TOO_LARGE",
        ),
    ] {
        let (mut hand, _) = Hand::attach(&url, hello(&["a"])).await;
        for frame in frames {
            hand.say(frame);
        }
        let status = hand.end().await;
        assert!(status.code() == code && status.message().contains(part), "{status:?}");
    }

    let ended = place.run(&["run", "s.golden.json", "-n", "good", "--daemon", &url, "-q"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
}

/// An instance comes back for its session, and nobody else gets it.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_taken_over_by_its_instance_alone() {
    let place = Place::new();
    let (_daemon, url) = place.daemon();
    let (mut first, session) = Hand::attach(&url, hello(&["a"])).await;
    for previous in ["", "other"] {
        let mut hand = Hand::dial(&url).await;
        hand.say(ours::Frame::Hello(Hello { previous_session_id: previous.to_owned(), ..hello(&["a"]) }));
        let status = hand.end().await;
        assert_eq!(status.code(), Code::AlreadyExists, "{status:?}");
    }
    let again = Hello { previous_session_id: session.clone(), ..hello(&["a"]) };
    let (_second, next) = Hand::attach(&url, again).await;
    assert_ne!(next, session);
    let status = first.end().await;
    assert!(status.code() == Code::Aborted && status.message().contains("TAKEN_OVER"), "{status:?}");
    // A name that an agent is attached by has no address, and the other way round.
    let added = place.run(&["agents", "add", "a", "grpc://127.0.0.1:1", "--skip-probe", "--daemon", &url]);
    assert!(added.code == Some(2) || added.code == Some(3), "{}", added.stderr);
    assert!(added.stderr.contains("\"a\" is attached"), "{}", added.stderr);
    let added = place.run(&["agents", "add", "b", "grpc://127.0.0.1:1", "--skip-probe", "--daemon", &url]);
    assert_eq!(added.code, Some(0), "{}", added.stderr);
    let mut hand = Hand::dial(&url).await;
    hand.say(ours::Frame::Hello(Hello { instance_id: "other".to_owned(), ..hello(&["b"]) }));
    assert_eq!(hand.end().await.code(), Code::AlreadyExists);
}

/// A call that was not delivered is given to another instance; one that leaves finishes what it has.
#[tokio::test(flavor = "multi_thread")]
async fn instances_share_the_calls_and_leave_without_losing_any() {
    let place = Place::new();
    let (_daemon, url) = place.daemon();
    place.write("s.golden.json", &suite(2));
    let (mut hand, _) = Hand::attach(&url, hello(&["a"])).await;
    let run = Running::start(place.forgectl(&["run", "s.golden.json", "-n", "a", "--daemon", &url, "-o", "r.json"]));
    let call = hand.invoked().await;
    hand.say(ours::Frame::Drain(Drain { reason: String::new() }));
    loop {
        match hand.hear().await.unwrap() {
            Some(theirs::Frame::DrainAck(ack)) => break assert_eq!(ack.last_call_no, call.call_no),
            Some(_) => {}
            None => panic!("the stream ends"),
        }
    }
    // It turns out that nothing was done with it.
    let fault = forge::wire::agent::Fault {
        grpc_code: Code::Unavailable.into(),
        reason: "NOT_DELIVERED".to_owned(),
        ..Default::default()
    };
    hand.say(ours::Frame::End(EndCall { call_no: call.call_no, fault: Some(fault) }));
    let other = attached(&place, &url, "a");
    let ended = run.end();
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let listed = place.run(&["agents", "list", "--daemon", &url]);
    assert!(listed.stdout.contains("attached") && listed.stdout.contains("2 processes"), "{}", listed.stdout);
    assert!(listed.stdout.contains("leaving"), "{}", listed.stdout);
    let probed = place.run(&["agents", "probe", "a", "--daemon", &url]);
    assert!(probed.stdout.starts_with("a, which is attached, answered in "), "{}{}", probed.stdout, probed.stderr);
    drop((hand, other));
    let gone = loop {
        let gone = place.run(&["agents", "describe", "a", "--daemon", &url]);
        if gone.code != Some(0) {
            break gone;
        }
    };
    assert_eq!(gone.code, Some(3));
    assert!(gone.stderr.contains("the agent \"a\" is not attached any more: "), "{}", gone.stderr);
}

/// An agent that bends two rules in every call.
async fn serve_bent(mut hand: Hand) {
    loop {
        let call = hand.invoked().await;
        let response = forge::wire::agent::Message {
            parts: vec![forge::wire::agent::Part {
                content: Some(forge::wire::agent::part::Content::Text("yes".to_owned())),
            }],
            ..Default::default()
        };
        let finished = forge::wire::agent::InvokeFinished {
            response: Some(response),
            finish_reason: forge::wire::agent::FinishReason::Completed.into(),
            ..Default::default()
        };
        let event = Some(forge::wire::agent::invoke_response::Event::Finished(finished));
        let last = forge::wire::agent::InvokeResponse { event, ..Default::default() };
        hand.reply(call.call_no, Kind::Invoke, last.encode_to_vec().into());
        hand.say(ours::Frame::End(EndCall { call_no: call.call_no, fault: None }));
    }
}

/// The rules that an agent bends are counted over its runs, and its authors see them.
#[tokio::test(flavor = "multi_thread")]
async fn rules_that_an_agent_bends_are_shown() {
    let place = Place::new();
    let (_daemon, url) = place.daemon();
    let (hand, _) = Hand::attach(&url, hello(&["a"])).await;
    let serving = tokio::spawn(serve_bent(hand));
    let case =
        |n| format!(r#"{{"id": "c{n}", "input": {{"message": "m"}}, "expect": {{"responseContains": ["yes"]}}}}"#);
    place.write("s.golden.json", &format!("[{}, {}]", case(1), case(2)));
    let run = |args: &[&str]| place.run(&[args, &["--daemon", &url]].concat());
    let shown = run(&["agents", "describe", "a"]);
    assert!(shown.code == Some(0) && !shown.stdout.contains("protocol "), "{}{}", shown.stdout, shown.stderr);
    // However it is named.
    for agent in ["a", "judge"] {
        let ended = run(&["run", "s.golden.json", "-n", agent, "--agent", "judge=attached:a"]);
        assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
        assert!(ended.stdout.contains("the agent's first event must be `accepted`"), "{}", ended.stdout);
    }
    let shown = run(&["agents", "describe", "a"]);
    for rule in ["st/accepted-first, in 4 calls, last in run ", "st/seq-gapless, in 4 calls, last in run "] {
        assert!(shown.stdout.contains(&format!("protocol        {rule}")), "{}{}", shown.stdout, shown.stderr);
    }
    let shown = run(&["agents", "describe", "a", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap();
    let warnings = shown["protocolWarnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 2, "{shown}");
    assert_eq!((&warnings[0]["rule"], &warnings[0]["calls"]), (&"st/accepted-first".into(), &4.into()));
    assert_eq!(shown["instances"][0]["slots"], 1, "{shown}");
    serving.abort();
}

/// What is in a script ends calls of an attached agent as it ends those of one that is dialled, and the agent is back
/// at once. What comes and goes is counted.
#[test]
fn streams_that_scripts_drop() {
    let place = Place::new();
    let (daemon, url) = place.daemon();
    let reply = |on: &str, events: &str| format!(r#"{{"on": "{on}", "events": [{events}]}}"#);
    let replies = [
        reply("cut", r#"{"text": "half"}, {"cut": "tcp"}"#),
        reply("reset", r#"{"cut": "reset"}"#),
        reply(
            "restart",
            r#"{"text": "yes"}, {"close": {"status": "UNAVAILABLE"}}, {"restart": {"back_after_ms": 400}}"#,
        ),
        reply("die", r#"{"die": true}"#),
        reply("*", r#"{"text": "yes"}"#),
    ];
    place.write("agent.json", &format!(r#"{{"replies": [{}]}}"#, replies.join(", ")));
    let mut sidecar = command(SIDECAR, place.path());
    sidecar.args(["script", "agent.json", "--attach", &url, "--id", "a"]);
    let mut sidecar = Running::start(sidecar);
    assert!(sidecar.line().starts_with("attached to "));
    let case = |id: &str, text: &str| {
        format!(r#"{{"id": "{id}", "input": {{"message": "{text}"}}, "expect": {{"responseContains": ["yes"]}}}}"#)
    };
    let suite = |cases: &[(&str, &str)]| {
        format!("[{}]", cases.iter().map(|(id, text)| case(id, text)).collect::<Vec<_>>().join(", "))
    };
    let run = |args: &[&str]| {
        place.run(&[&["run", "s.golden.json", "-n", "a", "--daemon", &url, "-o", "r.json"], args].concat())
    };
    let found = || -> Vec<(String, String, String)> {
        let result = place.json("r.json");
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let cases = result["cases"].as_array().expect("cases").iter();
        cases.map(|case| (text(&case["id"]), text(&case["outcome"]), text(&case["error"]))).collect()
    };
    let cases = [("1", "cut"), ("2", "x"), ("3", "reset"), ("4", "x"), ("5", "restart"), ("6", "x")];
    place.write("s.golden.json", &suite(&cases));
    let ended = run(&[]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    let of = found();
    let outcomes: Vec<&str> = of.iter().map(|(_, outcome, _)| outcome.as_str()).collect();
    assert_eq!(outcomes, ["errored", "passed", "failed", "passed", "failed", "passed"], "{of:?}");
    assert!(of[0].2.contains("the attached stream ended") || of[0].2.contains("lost"), "{of:?}");
    assert!(of[2].2.contains("UNAVAILABLE"), "{of:?}");
    let listed = place.run(&["agents", "list", "--daemon", &url]).stdout;
    assert!(listed.contains("1 process") && listed.contains("last lost "), "{listed}");
    let numbers = metrics(&url);
    let has = |label: &str, least: u64| {
        let line = numbers.lines().find(|line| line.starts_with("forge_") && line.contains(label));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        assert!(value >= Some(least), "{label}: {value:?} in {numbers}");
    };
    has("forge_attach_count_total{forge_result=\"new\"", 1);
    has("forge_attach_count_total{forge_result=\"returned\"", 1);
    has("forge_attach_instances{gen_ai_agent_id=\"a\"", 1);
    assert!(numbers.contains("forge_detach_count_total{forge_reason="), "{numbers}");
    // One that has died is waited for as one that cannot be reached, and ends the run.
    place.write("s.golden.json", &suite(&[("1", "die"), ("2", "x"), ("3", "x")]));
    let ended = run(&["--agent-gone-after", "1s"]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    let of = found();
    assert!(of.iter().all(|(_, outcome, _)| outcome == "errored" || outcome == "skipped"), "{of:?}");
    let all = format!("{of:?}{}{}", ended.stdout, ended.stderr);
    assert!(all.contains("no instance of"), "{all}");
    assert!(place.run(&["agents", "list", "--daemon", &url]).stdout.contains("detached"));
    drop(daemon);
}

/// The numbers of a daemon.
fn metrics(url: &str) -> String {
    let at = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(at).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Passes connections on to a daemon, and cuts them.
struct Cutter {
    address: String,
    open: Arc<Mutex<Vec<TcpStream>>>,
    cuts: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
}

impl Cutter {
    fn start(daemon: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let daemon = daemon.trim_start_matches("http://").to_owned();
        let open: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let connections = Arc::clone(&open);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&daemon) else { continue };
                connections.lock().unwrap().extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
                for (mut from, mut to) in [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)]
                {
                    std::thread::spawn(move || {
                        let mut buffer = vec![0; 64 << 10];
                        while let Ok(read @ 1..) = from.read(&mut buffer) {
                            if to.write_all(&buffer[..read]).is_err() {
                                break;
                            }
                        }
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        Self { address, open, cuts: Arc::default(), is_over: Arc::default() }
    }

    /// Cuts whatever is open, `times` times, with random pauses of at most `pause`.
    fn cut(&self, times: usize, pause: Duration) -> std::thread::JoinHandle<()> {
        let (open, cuts, is_over) = (Arc::clone(&self.open), Arc::clone(&self.cuts), Arc::clone(&self.is_over));
        std::thread::spawn(move || {
            while cuts.load(Ordering::Relaxed) < times && !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(pause.mul_f64(fastrand::f64()));
                let cut: Vec<TcpStream> = std::mem::take(&mut *open.lock().unwrap());
                if cut.is_empty() {
                    continue;
                }
                cuts.fetch_add(1, Ordering::Relaxed);
                for stream in cut {
                    let _ = stream.shutdown(Shutdown::Both);
                }
            }
        })
    }
}

/// Streams break again and again: no call is given to an agent twice, and every case has a verdict.
fn under_fire(cases: usize, cuts: usize) {
    let place = Place::new();
    let (_daemon, url) = place.daemon();
    let cutter = Cutter::start(&url);
    place.write("s.golden.json", &suite(cases));
    let _agent = attached(&place, &cutter.address, "a");
    let cutting = cutter.cut(cuts, Duration::from_millis(400));
    let args = [
        "run",
        "s.golden.json",
        "-n",
        "a",
        "--daemon",
        &url,
        "--retries",
        "20",
        "--parallel",
        "4",
        "-o",
        "r.json",
        "-q",
    ];
    let begun = Instant::now();
    let ended = Running::start(place.forgectl(&args)).end_within(Duration::from_mins(20));
    cutter.is_over.store(true, Ordering::Relaxed);
    cutting.join().unwrap();
    let made = cutter.cuts.load(Ordering::Relaxed);
    println!("{cases} cases, {made} cuts, {:.1} s", begun.elapsed().as_secs_f64());
    assert!(made > 0, "nothing was cut");
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let result = place.json("r.json");
    let results = result["cases"].as_array().expect("cases");
    assert_eq!(results.len(), cases);
    assert!(results.iter().all(|case| case["outcome"] == "passed"));
    // A case of one turn has a conversation of its own in every attempt.
    let mut delivered: HashMap<String, usize> = HashMap::new();
    for line in std::fs::read_to_string(place.path().join("calls.jsonl")).unwrap().lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let conversation = line["conversation_id"].as_str().unwrap_or_default();
        if line["event"] == "start" && !conversation.is_empty() {
            *delivered.entry(conversation.to_owned()).or_default() += 1;
        }
    }
    assert!(delivered.len() >= cases, "{}", delivered.len());
    let twice: Vec<_> = delivered.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

#[test]
fn streams_that_break_lose_no_verdict_and_deliver_nothing_twice() {
    under_fire(60, 12);
}

#[test]
#[ignore = "long: make attacks"]
fn a_thousand_streams_that_break() {
    under_fire(5_000, 1_000);
}
