//! A few workers, each of which runs one call at a time. One that exceeds a limit is killed, and another takes its place.
//!
//! A few calls begin at a time. One that is not done soon makes room for others, and in the end goes on at the lowest
//! priority, so that whoever uses up its time holds up nobody else.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, setpriority_process};
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::source::Scripts;
use super::wire::{self, Answer, Asked, Checks, Job, Kind, Refusal, Said};
use super::worker;

/// Jobs that a worker runs before another takes its place: whatever adds up in a process goes with it.
const MAX_JOBS: u32 = 10_000;
/// How much more than its CPU time a call may take, on a machine that is busy.
const STRETCH: u32 = 8;
/// Time that a call may take besides.
const SLACK: Duration = Duration::from_secs(5);
/// A call that takes longer makes room for others.
const SOON: Duration = Duration::from_millis(20);
/// One that takes longer than this then goes on at the lowest priority.
const LONG: Duration = Duration::from_millis(250);
/// Most calls that have made room and go on.
const MAX_SLOW: usize = 32;

/// The priority of a call that has made room.
const LOWEST_PRIORITY: i32 = 19;
/// Most scripts that may wait for something that they asked for: each keeps its process meanwhile.
const MAX_WAITING: usize = 64;

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
    /// Most that wait for work.
    workers: usize,
    /// To begin.
    permits: Semaphore,
    /// To go on when others may begin.
    slow: Semaphore,
    /// To work, and to wait in between.
    waiting: Semaphore,
    idle: Mutex<Vec<Worker>>,
}

#[derive(Debug)]
struct Worker {
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    jobs: u32,
    /// Its priority was taken, and cannot be given back.
    is_slow: bool,
}

/// What is called.
#[derive(Debug)]
pub struct Call<'a> {
    /// The scripts of the run.
    pub scripts: &'a Scripts,
    /// The script, by its path.
    pub path: &'a str,
    /// Functions, of which the first is called that it exports.
    pub functions: &'a [&'a str],
    /// What it is called as.
    pub kind: Kind,
    /// What it is called with.
    pub arguments: Vec<Box<RawValue>>,
    /// When its answer is of no use any more.
    pub deadline: Instant,
}

/// What a call came to.
#[derive(Debug)]
pub struct Called {
    /// What the script answered as JSON, `None` for `undefined`; or why it did not, with the place.
    pub result: Result<Option<Box<RawValue>>, Broken>,
    /// What it wrote to the console.
    pub console: Vec<String>,
    /// What it checked, if it is a test.
    pub checks: Checks,
}

/// Why a script gave no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// For people, with the place.
    pub why: String,
    /// The number of the call whose failure it did not handle: [`Refusal::call`].
    pub call: Option<u32>,
}

impl Called {
    fn failed(why: impl Into<String>) -> Self {
        let broken = Broken { why: why.into(), call: None };
        Self { result: Err(broken), console: Vec::new(), checks: Checks::default() }
    }
}

/// How far a script is.
#[derive(Debug)]
pub enum Step {
    /// It waits for something: [`Session::answer`].
    Asked(Asked),
    /// It has ended.
    Ended(Called),
}

impl Pool {
    /// So many workers at the most, started when they are needed: this same program.
    #[must_use]
    pub fn new(workers: usize, limits: Limits) -> Self {
        // Not by its path, where that can be had: the file may be another one by now.
        let itself = PathBuf::from("/proc/self/exe");
        let program = if cfg!(target_os = "linux") { itself } else { std::env::current_exe().unwrap_or(itself) };
        let arguments = vec![worker::ARGUMENT.into(), limits.memory.to_string().into()];
        Self {
            program,
            arguments,
            limits,
            workers: workers.max(1),
            permits: Semaphore::new(workers.max(1)),
            slow: Semaphore::new(MAX_SLOW),
            waiting: Semaphore::new(MAX_WAITING),
            idle: Mutex::default(),
        }
    }

    /// Calls a function that asks for nothing.
    pub async fn call(&self, call: Call<'_>) -> Called {
        let (mut session, mut step) = match self.begin(call).await {
            Ok(begun) => begun,
            Err(called) => return called,
        };
        loop {
            match step {
                Step::Ended(called) => return called,
                Step::Asked(_) => {
                    let refusal = Refusal { message: "nobody is asked anything here".to_owned(), call: None };
                    step = session.answer(&Answer(Err(refusal))).await;
                }
            }
        }
    }

    /// Calls a function, and gives how far it came.
    ///
    /// # Errors
    /// What came of the call, if it did not begin.
    pub async fn begin<'a>(&'a self, call: Call<'a>) -> Result<(Session<'a>, Step), Called> {
        let Call { scripts, path, functions, kind, arguments, deadline } = call;
        let (modules, imports) = scripts.closure(path);
        let may_wait = kind != Kind::Function;
        let job = Job {
            modules,
            imports,
            entry: path.to_owned(),
            functions: functions.iter().map(|name| (*name).to_owned()).collect(),
            kind,
            arguments,
            cpu_millis: u64::try_from(self.limits.cpu.as_millis()).unwrap_or(u64::MAX),
            memory_bytes: self.limits.memory,
        };
        let frame =
            wire::frame(&job).map_err(|error| Called::failed(format!("it cannot be called with so much: {error}")))?;
        let turn = async {
            let waiting = if may_wait { self.waiting.acquire().await.ok() } else { None };
            (waiting, self.permits.acquire().await.ok())
        };
        let turn = tokio::time::timeout_at(deadline, turn).await;
        let (waiting, permit) = turn.map_err(|_| Called::failed("the time was up before its turn came"))?;
        let worker =
            self.worker().map_err(|error| Called::failed(format!("no process can be started for it: {error}")))?;
        let mut session =
            Session { pool: self, scripts, deadline, worker: Some(worker), permit, is_slow: false, _waiting: waiting };
        let step = session.exchange(&frame).await;
        Ok((session, step))
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
        Ok(Worker { child, stdin, stdout, jobs: 0, is_slow: false })
    }

    fn give_back(&self, mut worker: Worker) {
        worker.jobs += 1;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that others made room for are more than there is work for afterwards.
        if worker.jobs < MAX_JOBS && !worker.is_slow && idle.len() < self.workers {
            idle.push(worker);
        }
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

/// A script that was called. Dropped before its end, it is killed.
#[derive(Debug)]
pub struct Session<'a> {
    pool: &'a Pool,
    scripts: &'a Scripts,
    deadline: Instant,
    /// `None`: it has ended.
    worker: Option<Worker>,
    /// `None`: it waits for something.
    permit: Option<SemaphorePermit<'a>>,
    is_slow: bool,
    _waiting: Option<SemaphorePermit<'a>>,
}

impl Session<'_> {
    /// Gives the script what it asked for, and gives how far it comes with that.
    pub async fn answer(&mut self, answer: &Answer) -> Step {
        let frame = wire::frame(answer).or_else(|error| {
            let message = format!("the answer is too long for a script: {error}");
            wire::frame(&Answer(Err(Refusal { message, call: None })))
        });
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => return Step::Ended(Called::failed(error.to_string())),
        };
        match tokio::time::timeout_at(self.deadline, self.pool.permits.acquire()).await {
            Ok(permit) => self.permit = permit.ok(),
            Err(_) => return Step::Ended(Called::failed("the time was up before its turn came again")),
        }
        self.exchange(&frame).await
    }

    /// Makes room for others as soon as it may, and goes on.
    async fn slowly<T>(&mut self, process: Option<u32>, mut exchange: Pin<&mut impl Future<Output = T>>) -> T {
        tokio::select! {
            exchanged = &mut exchange => return exchanged,
            permit = self.pool.slow.acquire() => self.permit = permit.ok(),
        }
        if let Ok(exchanged) = tokio::time::timeout(LONG, &mut exchange).await {
            return exchanged;
        }
        self.is_slow = true;
        let process = process.and_then(|process| Pid::from_raw(i32::try_from(process).ok()?));
        // That it cannot be had is no danger.
        let _ = process.map(|process| setpriority_process(Some(process), LOWEST_PRIORITY));
        exchange.await
    }

    async fn exchange(&mut self, frame: &[u8]) -> Step {
        let Some(mut worker) = self.worker.take() else {
            return Step::Ended(Called::failed("it has ended already"));
        };
        let time = self.pool.limits.cpu * STRETCH + SLACK;
        let limit = self.deadline.min(Instant::now() + time);
        let process = worker.child.id();
        let exchanged = {
            let exchange = worker.exchange(frame);
            tokio::pin!(exchange);
            match tokio::time::timeout_at(limit.min(Instant::now() + SOON), &mut exchange).await {
                Ok(exchanged) => Ok(exchanged),
                Err(_) => tokio::time::timeout_at(limit, self.slowly(process, exchange)).await,
            }
        };
        worker.is_slow = self.is_slow;
        match exchanged {
            Ok(Ok(Said::Asked(asked))) => {
                self.worker = Some(worker);
                // Others work while it waits.
                self.permit = None;
                Step::Asked(asked)
            }
            Ok(Ok(Said::Ended(ended))) => {
                self.pool.give_back(worker);
                let result = ended.result.map_err(|failure| {
                    let at = failure.frames.first().map(|frame| format!(" ({})", self.scripts.place(frame)));
                    Broken { why: format!("{}{}", failure.message, at.unwrap_or_default()), call: failure.call }
                });
                Step::Ended(Called { result, console: ended.console, checks: ended.checks })
            }
            // Dropped, it is killed.
            Ok(Err(error)) => Step::Ended(Called::failed(self.pool.how_it_died(worker, &error).await)),
            Err(_) if limit == self.deadline => Step::Ended(Called::failed("it did not end within its time")),
            Err(_) => Step::Ended(Called::failed(format!("it did not end within {time:?}"))),
        }
    }
}

impl Worker {
    async fn exchange(&mut self, frame: &[u8]) -> io::Result<Said> {
        self.stdin.write_all(frame).await?;
        self.stdin.flush().await?;
        let mut head = [0; 4];
        self.stdout.read_exact(&mut head).await?;
        let mut bytes = vec![0; wire::length(head)?];
        self.stdout.read_exact(&mut bytes).await?;
        Ok(serde_json::from_slice(&bytes)?)
    }
}
