//! A few workers, each of which runs one call at a time. One that exceeds a limit is killed, and another takes its place.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::source::Scripts;
use super::wire::{self, Ended, Job};
use super::worker;

/// Jobs that a worker runs before another takes its place: whatever adds up in a process goes with it.
const MAX_JOBS: u32 = 10_000;
/// Time beyond its CPU time that a call may take, for a machine that is busy.
const SLACK: Duration = Duration::from_secs(5);

/// What a script may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// CPU time of a call.
    pub cpu: Duration,
    /// Memory of a call, in bytes.
    pub memory: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { cpu: Duration::from_secs(5), memory: 64 << 20 }
    }
}

/// The workers of a daemon.
#[derive(Debug)]
pub struct Pool {
    program: PathBuf,
    arguments: Vec<OsString>,
    limits: Limits,
    permits: Semaphore,
    idle: Mutex<Vec<Worker>>,
}

#[derive(Debug)]
struct Worker {
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    jobs: u32,
}

/// What a call came to.
#[derive(Debug)]
pub struct Called {
    /// What the script answered as JSON, `None` for `undefined`; or why it did not, with the place.
    pub result: Result<Option<Box<RawValue>>, String>,
    /// What it wrote to the console.
    pub console: Vec<String>,
}

impl Called {
    fn failed(why: impl Into<String>) -> Self {
        Self { result: Err(why.into()), console: Vec::new() }
    }
}

impl Pool {
    /// So many workers at the most, started when they are needed: this same program.
    #[must_use]
    pub fn new(workers: usize, limits: Limits) -> Self {
        // Not by its path, where that can be had: the file may be another one by now.
        let itself = PathBuf::from("/proc/self/exe");
        let program = if cfg!(target_os = "linux") { itself } else { std::env::current_exe().unwrap_or(itself) };
        let arguments = vec![worker::ARGUMENT.into(), limits.memory.to_string().into()];
        Self { program, arguments, limits, permits: Semaphore::new(workers.max(1)), idle: Mutex::default() }
    }

    /// Calls the first of `functions` that the script at `path` exports.
    pub async fn call(
        &self,
        scripts: &Scripts,
        path: &str,
        functions: &[&str],
        arguments: Vec<Box<RawValue>>,
        deadline: Instant,
    ) -> Called {
        let (modules, imports) = scripts.closure(path);
        let job = Job {
            modules,
            imports,
            entry: path.to_owned(),
            functions: functions.iter().map(|name| (*name).to_owned()).collect(),
            arguments,
            cpu_millis: u64::try_from(self.limits.cpu.as_millis()).unwrap_or(u64::MAX),
            memory_bytes: self.limits.memory,
        };
        let frame = match wire::frame(&job) {
            Ok(frame) => frame,
            Err(error) => return Called::failed(format!("it cannot be called with so much: {error}")),
        };
        let turn = tokio::time::timeout_at(deadline, self.permits.acquire()).await;
        let Ok(Ok(_permit)) = turn else { return Called::failed("the time of the case was up before its turn came") };
        let mut worker = match self.worker() {
            Ok(worker) => worker,
            Err(error) => return Called::failed(format!("no process can be started for it: {error}")),
        };
        let limit = deadline.min(Instant::now() + self.limits.cpu + SLACK);
        match tokio::time::timeout_at(limit, worker.exchange(&frame)).await {
            Ok(Ok(ended)) => {
                worker.jobs += 1;
                if worker.jobs < MAX_JOBS {
                    self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(worker);
                }
                let result = ended.result.map_err(|failure| {
                    let at = failure.frames.first().map(|frame| format!(" ({})", scripts.place(frame)));
                    format!("{}{}", failure.message, at.unwrap_or_default())
                });
                Called { result, console: ended.console }
            }
            // Dropped, it is killed.
            Ok(Err(error)) => Called::failed(self.how_it_died(worker, &error).await),
            Err(_) if limit == deadline => Called::failed("it did not end within the time of the case"),
            Err(_) => Called::failed(format!("it did not end within {:?}", self.limits.cpu + SLACK)),
        }
    }

    fn worker(&self) -> io::Result<Worker> {
        if let Some(worker) = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(worker);
        }
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (stdin, stdout) = pipes.ok_or_else(|| io::Error::other("it has no pipes"))?;
        Ok(Worker { child, stdin, stdout, jobs: 0 })
    }

    /// What became of a worker that gave no answer.
    async fn how_it_died(&self, mut worker: Worker, error: &io::Error) -> String {
        use std::os::unix::process::ExitStatusExt as _;
        let status = tokio::time::timeout(Duration::from_secs(1), worker.child.wait()).await;
        let signal = status.ok().and_then(Result::ok).and_then(|status| status.signal());
        match signal.and_then(rustix::process::Signal::from_named_raw) {
            Some(rustix::process::Signal::XCPU) => {
                format!("it took more than {} s of CPU time", self.limits.cpu.as_secs_f64())
            }
            Some(signal) => format!("its process ended with the signal {signal:?}"),
            None => format!("its process ended: {error}"),
        }
    }
}

impl Worker {
    async fn exchange(&mut self, frame: &[u8]) -> io::Result<Ended> {
        self.stdin.write_all(frame).await?;
        self.stdin.flush().await?;
        let mut head = [0; 4];
        self.stdout.read_exact(&mut head).await?;
        let mut bytes = vec![0; wire::length(head)?];
        self.stdout.read_exact(&mut bytes).await?;
        Ok(serde_json::from_slice(&bytes)?)
    }
}
