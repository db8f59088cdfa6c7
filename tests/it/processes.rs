//! The programs for tests that are written as code: started in a folder of their own, read line by line, signalled.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::process::{self, Process};

/// A test that waits longer than this has found a hang.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) const DAEMON: &str = env!("CARGO_BIN_EXE_forge-daemon");
pub(crate) const FORGECTL: &str = env!("CARGO_BIN_EXE_forgectl");
pub(crate) const SIDECAR: &str = env!("CARGO_BIN_EXE_forge-sidecar");

/// A command that runs in a folder and sees nothing of the developer's own settings.
pub(crate) fn command(program: &str, folder: &Path) -> Command {
    let mut command = process::command(program, folder);
    command.current_dir(folder).env_remove("NO_COLOR");
    command
}

/// A program that runs beside the test.
pub(crate) struct Running {
    process: Process,
    /// Bytes of stdout that were read as lines.
    read: usize,
}

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    /// What was not read as lines before.
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let process = Process::start("the program", &mut command).expect("the program starts");
        Self { process, read: 0 }
    }

    /// The next line on stdout.
    pub(crate) fn line(&mut self) -> String {
        let begun = Instant::now();
        loop {
            let ended = self.process.end();
            let stdout = self.process.stdout();
            if let Some((line, _)) = stdout[self.read..].split_once('\n') {
                self.read += line.len() + 1;
                return line.to_owned();
            }
            if let Some(ended) = ended {
                panic!("no other line comes on stdout: {ended}");
            }
            assert!(begun.elapsed() < PATIENCE, "no other line comes on stdout; stderr: {}", self.process.stderr());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.end().is_some()
    }

    /// The next line on stdout that holds `text`.
    pub(crate) fn line_with(&mut self, text: &str) -> String {
        loop {
            let line = self.line();
            if line.contains(text) {
                return line;
            }
        }
    }

    /// The address in the first line, `listening on ADDRESS`.
    pub(crate) fn address(&mut self) -> String {
        self.process.address(PATIENCE).expect("an address")
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.process.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Sets a limit of the system while it runs.
    pub(crate) fn limit(&self, name: &str, most: &str) {
        let args = [format!("--pid={}", self.process.id()), format!("--{name}={most}")];
        assert!(Command::new("prlimit").args(args).status().expect("prlimit runs").success());
    }

    /// The most memory that it had so far, in bytes.
    #[cfg(target_os = "linux")]
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its memory");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
    }

    /// Bytes of its address space.
    #[cfg(target_os = "linux")]
    pub(crate) fn address_space(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("its memory");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
    }

    /// CPU time that it has used so far, as the system counts it: in hundredths of a second.
    #[cfg(target_os = "linux")]
    pub(crate) fn cpu_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).expect("its state");
        let fields: Vec<&str> = stat.rsplit(')').next().expect("its fields").split_whitespace().collect();
        let ticks = |field: usize| fields[field].parse::<u64>().expect("a number");
        Duration::from_millis((ticks(11) + ticks(12)) * 10)
    }

    /// Waits for the end.
    pub(crate) fn end(self) -> Ended {
        self.end_within(PATIENCE)
    }

    /// Waits so long for the end.
    pub(crate) fn end_within(self, patience: Duration) -> Ended {
        let ended = self.process.wait(patience).expect("the program ends");
        let stdout = String::from_utf8_lossy(&ended.stdout)[self.read..].to_owned();
        Ended { code: ended.status.code(), stdout, stderr: String::from_utf8_lossy(&ended.stderr).into_owned() }
    }
}

/// A folder with everything a test needs: a daemon, and scripted agents.
pub(crate) struct Place {
    pub(crate) folder: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(&path, text).expect("writes");
        path
    }

    pub(crate) fn json(&self, name: &str) -> serde_json::Value {
        let text = std::fs::read_to_string(self.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// A daemon in a folder of its own, and its URL.
    pub(crate) fn daemon(&self) -> (Running, String) {
        self.daemon_with(&[])
    }

    /// The same with further arguments.
    pub(crate) fn daemon_with(&self, args: &[&str]) -> (Running, String) {
        let home = self.path().join("daemon");
        std::fs::create_dir_all(&home).expect("a folder");
        let mut command = command(DAEMON, &home);
        command.args(["--listen", "127.0.0.1:0", "--data-dir", "data"]).args(args);
        let mut daemon = Running::start(command);
        let url = format!("http://{}", daemon.address());
        (daemon, url)
    }

    /// A daemon where one was before, with what that one has kept.
    pub(crate) fn daemon_at(&self, url: &str) -> Running {
        let mut command = command(DAEMON, &self.path().join("daemon"));
        command.args(["--listen", url.trim_start_matches("http://"), "--data-dir", "data"]);
        let mut daemon = Running::start(command);
        daemon.address();
        daemon
    }

    /// A scripted agent, and its URL.
    pub(crate) fn agent(&self, script: &str) -> (Running, String) {
        self.write("agent.json", script);
        let mut command = command(SIDECAR, self.path());
        command.args(["script", "agent.json", "--listen", "127.0.0.1:0", "--log", "calls.jsonl"]);
        let mut agent = Running::start(command);
        let url = format!("grpc://{}", agent.address());
        (agent, url)
    }

    pub(crate) fn forgectl(&self, args: &[&str]) -> Command {
        let mut command = command(FORGECTL, self.path());
        command.args(args);
        command
    }

    /// Runs forgectl to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        Running::start(self.forgectl(args)).end()
    }
}
