//! Real processes that cannot outlive a test, cannot block on a full pipe, and are never waited for without a deadline.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a state is looked at that cannot be waited for.
const LOOK: Duration = Duration::from_millis(2);

/// A process that is killed when it goes out of scope.
#[derive(Debug)]
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    started: Instant,
    stdout: Output,
    stderr: Output,
}

/// What a process has written so far.
#[derive(Debug)]
struct Output {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

/// A process that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) took: Duration,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

/// A command that knows nothing of the settings of the user who runs the tests.
pub(crate) fn command(program: &str, home: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        let is_of_traces = name.starts_with("OTEL_") || ["TRACEPARENT", "TRACESTATE", "BAGGAGE"].contains(&&*name);
        let is_of_ci = name.starts_with("GITHUB_") || name == "CI_PROJECT_DIR";
        if name.starts_with("FORGE_") || name.starts_with("XDG_") || is_of_traces || is_of_ci {
            command.env_remove(name.as_ref());
        }
    }
    command.env("HOME", home).env_remove("CLICOLOR_FORCE").stdin(Stdio::null());
    command
}

impl Process {
    /// Starts a process; `name` is what people know it by.
    pub(crate) fn start(name: &'static str, command: &mut Command) -> Result<Self, String> {
        let started = Instant::now();
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {name}: {error}"))?;
        let (stdout, stderr) = (Output::of(child.stdout.take()), Output::of(child.stderr.take()));
        Ok(Self { name, child, started, stdout, stderr })
    }

    /// Waits for the first line on stdout, `listening on ADDRESS`, and gives the address.
    pub(crate) fn address(&mut self, within: Duration) -> Result<String, String> {
        self.line(within, "listening on ")
    }

    /// Waits for the first line on stdout, and gives what stands behind `beginning` there.
    pub(crate) fn line(&mut self, within: Duration, beginning: &str) -> Result<String, String> {
        let deadline = Instant::now() + within;
        loop {
            let stdout = self.stdout.text();
            if let Some((line, _)) = stdout.split_once('\n') {
                let address = line.strip_prefix(beginning).map(|address| address.trim().to_owned());
                return address.ok_or_else(|| format!("{} says {line:?} on its first line", self.name));
            }
            if let Some(end) = self.end() {
                return Err(end);
            }
            if Instant::now() > deadline {
                return Err(format!("{} says nothing after {within:?}; stderr: {}", self.name, self.stderr()));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has written to stdout so far.
    pub(crate) fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// How the process ended, if it has, with its stderr.
    pub(crate) fn end(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        self.stderr.finish();
        Some(format!("{} ended with {status}; stderr: {}", self.name, self.stderr()))
    }

    /// What it has written to stderr so far.
    pub(crate) fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits for the end.
    pub(crate) fn wait(mut self, within: Duration) -> Result<Ended, String> {
        loop {
            let status = self.child.try_wait().map_err(|error| format!("waiting for {}: {error}", self.name))?;
            let took = self.started.elapsed();
            if let Some(status) = status {
                return Ok(Ended { status, took, stdout: self.stdout.finish(), stderr: self.stderr.finish() });
            }
            if took > within {
                let (stdout, stderr) = (self.stdout.text(), self.stderr());
                return Err(format!("{} runs longer than {within:?}\nstdout: {stdout}\nstderr: {stderr}", self.name));
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Output {
    fn of(pipe: Option<impl Read + Send + 'static>) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&bytes);
        let reader = pipe.map(|mut pipe| {
            std::thread::spawn(move || {
                let mut chunk = [0; 8192];
                while let Ok(count @ 1..) = pipe.read(&mut chunk) {
                    written.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&chunk[..count]);
                }
            })
        });
        Self { bytes, reader }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// Everything, once the process has ended.
    fn finish(&mut self) -> Vec<u8> {
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
