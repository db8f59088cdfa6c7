//! What exporting traces costs a run: with receivers that are not there, do not answer, or refuse; and with one that takes them.

use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use super::runs::run;
use super::{DAEMON, SIDECAR, Server, cases, median, place};

/// The same run by daemons that export nothing, and to receivers of every kind. They take turns, in another order each time: who runs
/// behind whom makes a difference.
pub(crate) fn exporters() {
    const COUNT: usize = 20_000;
    const ROUNDS: usize = 7;
    let (folder, agent) = place(0);
    let folder = folder.path();
    let suite = cases(COUNT, r#"{"type": "contains", "value": "hell"}"#);
    std::fs::write(folder.join("suite.jsonl"), suite).expect("writes");
    let url = format!("grpc://{}", agent.address);
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = silent.local_addr().expect("an address").to_string();
    // It speaks gRPC, and knows no spans.
    let refusing = Server::start(SIDECAR, folder, &["script", "agent.json"]);
    // Another daemon takes spans; of no run of its own, so it has little to do with them.
    let taking = Server::start(DAEMON, folder, &["--data-dir", "taking"]);
    let kinds = [
        ("nothing is exported", None),
        ("nobody is there", Some("127.0.0.1:9")),
        ("it does not answer", Some(silent.as_str())),
        ("it refuses", Some(refusing.address.as_str())),
        ("it takes them", Some(taking.address.as_str())),
    ];
    let daemons: Vec<Server> = kinds
        .iter()
        .enumerate()
        .map(|(number, (_, receiver))| {
            let otlp = receiver.map(|it| format!("[otlp]\nendpoint = 'http://{it}'\nprotocol = 'grpc'\n"));
            let config = format!("daemon{number}.toml");
            std::fs::write(folder.join(&config), otlp.unwrap_or_default()).expect("writes");
            Server::start(DAEMON, folder, &["--config", &config, "--data-dir", &format!("data{number}")])
        })
        .collect();
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); kinds.len()];
    for _ in 0..ROUNDS {
        let mut order: Vec<usize> = (0..kinds.len()).collect();
        fastrand::shuffle(&mut order);
        for kind in order {
            let began = Instant::now();
            run(folder, &format!("http://{}", daemons[kind].address), &url, "suite.jsonl", COUNT, &[]);
            times[kind].push(began.elapsed());
        }
    }
    let without = median(times[0].clone()).as_secs_f64();
    for (((kind, receiver), daemon), times) in kinds.iter().zip(&daemons).zip(times) {
        let took = median(times).as_secs_f64();
        let more = 100.0 * (took / without - 1.0);
        let bound = if receiver.is_some() && !kind.contains("takes") { " (has to be at most 3)" } else { "" };
        println!("  {COUNT} cases, {kind}: {took:.2} s, {more:+.1} %{bound}; {} MiB", daemon.peak_memory());
        if receiver.is_some() {
            println!("    spans exported, dropped: {}, {}", count(daemon, "exported"), count(daemon, "dropped"));
        }
    }
}

/// A number of spans, as the daemon counts them.
fn count(daemon: &Server, what: &str) -> String {
    let url = format!("http://{}/metrics", daemon.address);
    let answer = Command::new("curl").args(["--silent", &url]).output().expect("curl runs");
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    let name = format!("forge_spans_{what}_total ");
    text.lines().find_map(|line| line.strip_prefix(&name)).unwrap_or("?").to_owned()
}
