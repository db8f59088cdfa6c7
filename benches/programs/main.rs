//! What the programs cost as they are used: real processes, a real agent, a whole run.
//!
//! `cargo bench --bench programs` prints the figures; `-- NAME` only those whose names hold NAME. They are those of one
//! machine and one moment: benches/README.md says which, and what has to hold.

mod attached;
mod exporters;
mod runs;
mod scripts;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

// That of the programs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const DAEMON: &str = env!("CARGO_BIN_EXE_forge-daemon");
const SIDECAR: &str = env!("CARGO_BIN_EXE_forge-sidecar");
const FORGECTL: &str = env!("CARGO_BIN_EXE_forgectl");

fn main() {
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let benches: [(&str, fn()); 8] = [
        ("throughput against a bare loop", runs::throughput),
        ("a hundred thousand cases", runs::many_cases),
        ("first dispatch", runs::first_dispatch),
        ("hung calls", runs::hung_calls),
        ("attached against dialled", attached::attached),
        ("exporting traces", exporters::exporters),
        ("script assertions", scripts::script_assertions),
        ("neighbours of hostile scripts", scripts::neighbours),
    ];
    for (name, bench) in benches.into_iter().filter(|(name, _)| name.contains(&wanted)) {
        println!("{name}");
        bench();
    }
}

/// A program that runs until it goes out of scope.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(program: &str, folder: &Path, args: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(args).args(["--listen", "127.0.0.1:0"]).current_dir(folder);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program starts");
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("its output"));
        stdout.read_line(&mut line).expect("a line");
        let address = line.trim().rsplit(' ').next().expect("an address").to_owned();
        Self { child, address }
    }

    /// The most memory that it had so far, in MiB.
    fn peak_memory(&self) -> u64 {
        peak_memory(self.child.id())
    }

    /// The CPU time that it had so far; nothing where nobody tells. Linux counts it in hundredths of a second.
    fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        // Behind the name, which may hold anything: user and system time are the 12th and 13th.
        let numbers = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
        Duration::from_millis(10 * numbers.filter_map(|it| it.parse::<u64>().ok()).sum::<u64>())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The most memory that a process had so far, in MiB; 0 where nobody tells.
fn peak_memory(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) >> 10
}

/// A folder with an agent that answers after some time.
fn place(wait_ms: u64) -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().expect("a folder");
    let script =
        format!(r#"{{"replies": [{{"on": "*", "events": [{{"wait_ms": {wait_ms}}}, {{"text": "hello"}}]}}]}}"#);
    let script = if wait_ms == 0 { script.replace("{\"wait_ms\": 0}, ", "") } else { script };
    std::fs::write(folder.path().join("agent.json"), script).expect("writes");
    std::fs::create_dir(folder.path().join("scripts")).expect("a folder");
    let agent = Server::start(SIDECAR, folder.path(), &["script", "agent.json"]);
    (folder, agent)
}

fn cases(count: usize, assertion: &str) -> String {
    let case = |n| format!("{{\"id\": \"c{n}\", \"input\": \"hi\", \"assertions\": [{assertion}]}}\n");
    (0..count).map(case).collect()
}

fn forgectl(folder: &Path, args: &[&str]) -> String {
    let mut command = Command::new(FORGECTL);
    let ended = command.args(args).current_dir(folder).stderr(Stdio::null()).output().expect("forgectl runs");
    String::from_utf8_lossy(&ended.stdout).into_owned()
}

fn median(times: Vec<Duration>) -> Duration {
    percentile(times, 0.5)
}

fn percentile(mut times: Vec<Duration>, part: f64) -> Duration {
    times.sort_unstable();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "few times"
    )]
    let position = (times.len() as f64 * part) as usize;
    times[position.min(times.len() - 1)]
}
