//! What runs cost: against a loop that does nothing but call the agent, with very many cases, and before the first
//! of them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use forge::case::CaseRef;
use forge::conversation::{Invocation, Message, ToolMode};
use forge::trace::TraceHeaders;
use forge::wire::agent::agent_endpoint_client::AgentEndpointClient;
use forge::wire::agent::invoke_response::Event;
use forge::wire::call::start_to_proto;
use forge::wire::control::GetRunRequest;
use forge::wire::control::run_service_client::RunServiceClient;
use tonic::transport::Channel;

use super::{DAEMON, FORGECTL, SIDECAR, Server, cases, forgectl, median, peak_memory, percentile, place};

/// Calls at the same time.
const PARALLEL: usize = 64;

/// The same calls by a bare loop and by a whole run: daemon, store, client and result file included. They take turns.
pub(crate) fn throughput() {
    const COUNT: usize = 10_000;
    let (folder, agent) = place(0);
    let folder = folder.path();
    std::fs::write(folder.join("suite.jsonl"), cases(COUNT, r#"{"type": "contains", "value": "hell"}"#))
        .expect("writes");
    let daemon = Server::start(DAEMON, folder, &["--data-dir", "data"]);
    let daemon_url = format!("http://{}", daemon.address);
    let url = format!("grpc://{}", agent.address);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (mut bare, mut whole) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let began = Instant::now();
        runtime.block_on(call_all(&agent.address, COUNT));
        bare.push(began.elapsed());
        let began = Instant::now();
        run(folder, &daemon_url, &url, "suite.jsonl", COUNT, &[]);
        whole.push(began.elapsed());
    }
    let (bare, whole) = (median(bare).as_secs_f64(), median(whole).as_secs_f64());
    println!("  {COUNT} calls, {PARALLEL} at a time, bare loop: {bare:.2} s");
    println!("  the same as a run, from the start of forgectl to its end: {whole:.2} s");
    println!("  ratio: {:.0} % (has to be at least 60)", 100.0 * bare / whole);
}

/// Calls the agent as the daemon does, and does nothing with what it says.
async fn call_all(address: &str, count: usize) {
    let channel = Channel::from_shared(format!("http://{address}")).expect("an address").tcp_nodelay(true);
    let client = AgentEndpointClient::new(channel.connect().await.expect("the agent is there"));
    let next = Arc::new(AtomicUsize::new(0));
    let worker = || {
        let (mut client, next) = (client.clone(), Arc::clone(&next));
        async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return;
                }
                let (frames, rest) = tokio::sync::mpsc::channel(4);
                frames
                    .send(start_to_proto(&invocation(number), &TraceHeaders::default()))
                    .await
                    .expect("there is room");
                let outgoing = tokio_stream::wrappers::ReceiverStream::new(rest);
                let mut events = client.invoke(outgoing).await.expect("it answers").into_inner();
                loop {
                    let event = events.message().await.expect("an event").expect("finished comes first");
                    if matches!(event.event, Some(Event::Finished(_))) {
                        break;
                    }
                }
                drop(frames);
                assert!(events.message().await.expect("the end").is_none());
            }
        }
    };
    let mut tasks = tokio::task::JoinSet::new();
    (0..PARALLEL).for_each(|_| drop(tasks.spawn(worker())));
    tasks.join_all().await;
}

fn invocation(number: usize) -> Invocation {
    Invocation {
        agent_id: "agent".to_owned(),
        run_id: "0192d8f0-0000-7000-8000-000000000000".to_owned(),
        case: CaseRef { suite: "suite.jsonl".into(), case_id: format!("c{number}").into(), repeat: 1, attempt: 1 },
        turn: 1,
        invocation_id: uuid::Uuid::new_v4().to_string(),
        conversation_id: uuid::Uuid::new_v4().to_string(),
        messages: vec![Message::user("hi")],
        options: None,
        tool_mode: ToolMode::Live,
        max_model_turns: None,
        budget: Duration::from_mins(5),
    }
}

/// 100,000 cases, and their results in every format.
pub(crate) fn many_cases() {
    const COUNT: usize = 100_000;
    let (folder, agent) = place(0);
    let folder = folder.path();
    std::fs::write(folder.join("suite.jsonl"), cases(COUNT, r#"{"type": "contains", "value": "hell"}"#))
        .expect("writes");
    let daemon = Server::start(DAEMON, folder, &["--data-dir", "data"]);
    let daemon_url = format!("http://{}", daemon.address);
    let url = format!("grpc://{}", agent.address);
    let formats = ["jsonl", "xml", "md", "html"].map(|ending| format!("result.{ending}"));
    let outputs: Vec<&str> = formats.iter().flat_map(|file| ["-o", file.as_str()]).collect();
    let began = Instant::now();
    let client = run(folder, &daemon_url, &url, "suite.jsonl", COUNT, &outputs);
    let took = began.elapsed();
    println!("  {COUNT} cases with all five formats of results: {:.1} s", took.as_secs_f64());
    println!("  peak memory of the daemon: {} MiB (has to be under 256)", daemon.peak_memory());
    println!("  peak memory of forgectl: {client} MiB (has to be under 128)");
    for file in &formats {
        let bytes = std::fs::metadata(folder.join(file)).expect("it was written").len();
        println!("  {file}: {} MB", bytes / 1_000_000);
    }
    let list = forgectl(folder, &["runs", "list", "--daemon", &daemon_url]);
    let id = list.split_whitespace().next().expect("a run").to_owned();
    let show = forgectl(folder, &["runs", "show", &id, "--daemon", &daemon_url]);
    let seconds = show.lines().find_map(|line| line.trim().strip_prefix("Time:")).expect("a time").trim();
    let seconds: f64 = seconds.trim_end_matches('s').parse().expect("seconds");
    let events = stored_events(&daemon.address, &id);
    println!(
        "  from its creation to its end the run takes {seconds:.1} s: {:.0} events a second are stored",
        events / seconds
    );
}

/// Events in the log of a run that is over.
fn stored_events(daemon: &str, run: &str) -> f64 {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let events = runtime.block_on(async {
        let mut runs = RunServiceClient::connect(format!("http://{daemon}")).await.expect("the daemon is there");
        let got = runs.get_run(GetRunRequest { run_id: run.to_owned() }).await.expect("a run").into_inner();
        got.run.expect("a run").last_sequence
    });
    f64::from(u32::try_from(events).expect("fewer than 2^32 events"))
}

/// From the start of forgectl to the first case that is sent to the agent.
pub(crate) fn first_dispatch() {
    let (folder, agent) = place(0);
    let folder = folder.path();
    let daemon = Server::start(DAEMON, folder, &["--data-dir", "data"]);
    let daemon_url = format!("http://{}", daemon.address);
    let url = format!("grpc://{}", agent.address);
    for count in [1, 10_000] {
        let suite = format!("suite{count}.jsonl");
        let mut times = Vec::new();
        for round in 0..5 {
            // Another text each time, so that it has to be sent.
            let assertion = format!(r#"{{"type": "contains", "value": "hell", "message": "{round}"}}"#);
            std::fs::write(folder.join(&suite), cases(count, &assertion)).expect("writes");
            let began = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
            run(folder, &daemon_url, &url, &suite, count, &[]);
            let list = forgectl(folder, &["runs", "list", "--daemon", &daemon_url]);
            let id = list.split_whitespace().next().expect("a run").to_owned();
            let log = forgectl(folder, &["watch", &id, "--cases", "--daemon", &daemon_url]);
            let first = log.lines().find(|line| line.contains("  started")).expect("a case was started");
            let at = super::scripts::of_day(first.split("  ").next().expect("a time")).expect("a time");
            let day = Duration::from_hours(24);
            let began = Duration::from_secs(began.as_secs() % day.as_secs())
                + Duration::from_nanos(began.subsec_nanos().into());
            times.push((at + day).saturating_sub(began).as_secs_f64() % day.as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        println!("  from the start of forgectl to the start of the first case, of {count}: {:.0} ms", times[2] * 1e3);
    }
}

/// 1,000 calls that hang at the same time: how late their cases end, and how soon others take their places. Once at
/// one agent, once spread over ten, of which five do not react to a cancel.
pub(crate) fn hung_calls() {
    const HUNG: usize = 1_000;
    const TIMEOUT: Duration = Duration::from_secs(2);
    for agents in [1, 10] {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        let quick = r#"{"on": "quick", "events": [{"text": "hello"}]}"#;
        let script = |hang: &str| format!(r#"{{"replies": [{quick}, {{"on": "*", "events": [{hang}]}}]}}"#);
        std::fs::write(folder.join("hang.json"), script(r#"{"hang": true}"#)).expect("writes");
        std::fs::write(folder.join("wait.json"), script(r#"{"wait_ms": 600000}, {"text": "late"}"#)).expect("writes");
        std::fs::write(folder.join("daemon.toml"), format!("max_parallel_runs = {agents}\n")).expect("writes");
        let each = HUNG / agents;
        let case = |n: usize| {
            let input = if n < each { "slow" } else { "quick" };
            format!("{{\"id\": \"{input}{n}\", \"input\": \"{input}\", \"timeout\": \"{}s\"}}\n", TIMEOUT.as_secs())
        };
        std::fs::write(folder.join("suite.jsonl"), (0..2 * each).map(case).collect::<String>()).expect("writes");
        let servers: Vec<Server> = (0..agents)
            .map(|n| Server::start(SIDECAR, folder, &["script", if n % 2 == 0 { "hang.json" } else { "wait.json" }]))
            .collect();
        let daemon = Server::start(DAEMON, folder, &["--data-dir", "data", "--config", "daemon.toml"]);
        let daemon_url = format!("http://{}", daemon.address);
        let parallel = each.to_string();
        let runs: Vec<String> = servers
            .iter()
            .map(|agent| {
                let url = format!("grpc://{}", agent.address);
                let args =
                    ["run", "suite.jsonl", "-n", &url, "--daemon", &daemon_url, "--parallel", &parallel, "--detach"];
                forgectl(folder, &args).trim().to_owned()
            })
            .collect();
        let (mut late, mut waited) = (Vec::new(), Vec::new());
        for run in runs {
            let cases = super::scripts::cases_of(folder, &daemon_url, &run);
            let (hung, quick): (Vec<_>, Vec<_>) = cases.iter().partition(|(id, ..)| id.starts_with("slow"));
            assert_eq!((hung.len(), quick.len()), (each, each), "every case has an end");
            late.extend(hung.iter().map(|(_, began, ended)| ended.saturating_sub(*began).saturating_sub(TIMEOUT)));
            // The first place is free when the first time is up, and so on.
            let mut due: Vec<Duration> = hung.iter().map(|(_, began, _)| *began + TIMEOUT).collect();
            let mut taken: Vec<Duration> = quick.iter().map(|(_, began, _)| *began).collect();
            due.sort_unstable();
            taken.sort_unstable();
            waited.extend(taken.iter().zip(&due).map(|(taken, due)| taken.saturating_sub(*due)));
        }
        let most = waited.iter().max().expect("a place");
        println!("  {HUNG} calls that hang, at {agents} agents, with {TIMEOUT:?} each:");
        println!("    99th percentile of the time beyond that: {:.0?} (has to be under 100ms)", percentile(late, 0.99));
        println!("    the last place is taken by another case {most:.0?} after its time was up (has to be under 1s)");
    }
}

/// Runs a suite whose cases all pass, and gives the peak memory of forgectl in MiB.
pub(crate) fn run(folder: &Path, daemon: &str, agent: &str, suite: &str, count: usize, more: &[&str]) -> u64 {
    let parallel = PARALLEL.to_string();
    let mut command = Command::new(FORGECTL);
    command.args(["run", suite, "-n", agent, "--daemon", daemon, "--parallel", &parallel, "-q"]).args(more);
    command.current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn().expect("forgectl starts");
    let stdout = child.stdout.take().expect("its output");
    let reader = std::thread::spawn(|| std::io::read_to_string(stdout).expect("text"));
    let mut peak = 0;
    let status = loop {
        peak = peak.max(peak_memory(child.id()));
        match child.try_wait().expect("it can be waited for") {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let summary = reader.join().expect("its output");
    assert!(status.success() && summary.contains(&format!("Passed:  {count}\n")), "{status}");
    peak
}
