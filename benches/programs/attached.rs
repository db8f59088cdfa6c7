//! What an attached agent costs against the same agent that is dialled.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::runs::run;
use super::{DAEMON, SIDECAR, Server, cases, median, place};

/// The same run of an agent that is dialled, and of one that is attached, in turn: time, and CPU time of the daemon and
/// of the agent for each case.
pub(crate) fn attached() {
    const COUNT: usize = 10_000;
    let (folder, dialled) = place(0);
    let folder = folder.path();
    std::fs::write(folder.join("suite.jsonl"), cases(COUNT, r#"{"type": "contains", "value": "hell"}"#))
        .expect("writes");
    let daemon = Server::start(DAEMON, folder, &["--data-dir", "data"]);
    let daemon_url = format!("http://{}", daemon.address);
    let attached = attach(folder, &daemon_url);
    let url = format!("grpc://{}", dialled.address);
    let mut taken = [(Vec::new(), Vec::new()), (Vec::new(), Vec::new())];
    for _ in 0..7 {
        for ((times, cpu), (name, agent)) in taken.iter_mut().zip([(url.as_str(), &dialled), ("attached", &attached)]) {
            let (before, began) = (daemon.cpu() + agent.cpu(), Instant::now());
            run(folder, &daemon_url, name, "suite.jsonl", COUNT, &[]);
            times.push(began.elapsed());
            cpu.push((daemon.cpu() + agent.cpu()).saturating_sub(before));
        }
    }
    let [direct, over_a_stream] = taken.map(|(times, cpu)| (median(times).as_secs_f64(), median(cpu).as_secs_f64()));
    let each = |cpu: f64| cpu / Duration::from_micros(1).as_secs_f64() / 1e4;
    println!("  {COUNT} cases, dialled: {:.2} s, {:.0} µs of CPU a case", direct.0, each(direct.1));
    println!("  the same, attached: {:.2} s, {:.0} µs of CPU a case", over_a_stream.0, each(over_a_stream.1));
    println!("  throughput: {:.2} of the other (has to be at least 0.75)", direct.0 / over_a_stream.0);
    println!("  CPU of daemon and agent: {:.2} of the other (has to be at most 1.3)", over_a_stream.1 / direct.1);
}

/// The agent of the folder, attached as `attached`.
fn attach(folder: &Path, daemon: &str) -> Server {
    let mut command = Command::new(SIDECAR);
    command.args(["script", "agent.json", "--attach", daemon, "--id", "attached"]).current_dir(folder);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
    assert!(line.starts_with("attached to "), "{line}");
    Server { child, address: String::new() }
}
