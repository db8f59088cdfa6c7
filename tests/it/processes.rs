//! Real processes for tests: started with a clean environment, read without blocking them, gone when the test is over.

use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A test that waits longer than this has found a hang.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) const DAEMON: &str = env!("CARGO_BIN_EXE_forge-daemon");
pub(crate) const FORGECTL: &str = env!("CARGO_BIN_EXE_forgectl");
pub(crate) const SIDECAR: &str = env!("CARGO_BIN_EXE_forge-sidecar");

/// A command that sees nothing of the developer's own settings.
pub(crate) fn command(program: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for name in ["FORGE_DAEMON", "FORGE_LISTEN", "FORGE_DATA_DIR", "FORGE_CONFIG", "FORGE_LOG", "NO_COLOR"] {
        command.env_remove(name);
    }
    command
}

/// A program that runs beside the test.
pub(crate) struct Running {
    child: Child,
    lines: mpsc::Receiver<String>,
    stderr: Option<std::thread::JoinHandle<String>>,
}

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.spawn().expect("the program starts");
        let (sender, lines) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok()));
        let mut pipe = child.stderr.take().expect("a pipe");
        let stderr = std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = pipe.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        Self { child, lines, stderr: Some(stderr) }
    }

    /// The next line on stdout.
    pub(crate) fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("another line on stdout")
    }

    /// The first line on stdout that holds `text`.
    pub(crate) fn line_with(&self, text: &str) -> String {
        loop {
            let line = self.line();
            if line.contains(text) {
                return line;
            }
        }
    }

    /// The address in the first line, `listening on ADDRESS`.
    pub(crate) fn address(&self) -> String {
        let line = self.line();
        line.strip_prefix("listening on ").unwrap_or_else(|| panic!("no address in {line:?}")).to_owned()
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Waits for the end.
    pub(crate) fn end(mut self) -> Ended {
        let status = self.wait();
        let stdout: Vec<String> = self.lines.try_iter().collect();
        // The reader may be a moment behind the end of the process.
        let rest: Vec<String> = self.lines.iter().collect();
        let stdout = stdout.into_iter().chain(rest).map(|line| line + "\n").collect();
        let stderr = self.stderr.take().expect("read once").join().expect("reads");
        Ended { code: status.code(), stdout, stderr }
    }

    fn wait(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("waits") {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "the program does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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
        let home = self.path().join("daemon");
        std::fs::create_dir_all(&home).expect("a folder");
        let mut command = command(DAEMON, &home);
        command.args(["--listen", "127.0.0.1:0", "--data-dir", "data"]);
        let daemon = Running::start(command);
        let url = format!("http://{}", daemon.address());
        (daemon, url)
    }

    /// A scripted agent, and its URL.
    pub(crate) fn agent(&self, script: &str) -> (Running, String) {
        self.write("agent.json", script);
        let mut command = command(SIDECAR, self.path());
        command.args(["script", "agent.json", "--listen", "127.0.0.1:0", "--log", "calls.jsonl"]);
        let agent = Running::start(command);
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
