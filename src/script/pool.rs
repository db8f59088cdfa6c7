//! A few workers, each of which runs one call at a time. One that exceeds a limit is killed, and another takes its
//! place.
//!
//! A few calls begin at a time. One that is not done soon makes room for others, and in the end goes on at the lowest
//! priority, so that a script that uses up its time holds up no other. Each run has places of its own ([`Share`]): its
//! scripts wait for each other, and not for those of other runs. What is waited for a place is nobody's time.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, setpriority_process};
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::source::Scripts;
use super::starter;
use super::wire::{self, Answer, Asked, Checks, Job, Kind, Order, Refusal, Said};
use super::worker;
use crate::limits::{SCRIPT_QUEUE, SCRIPTS_WAITING, SCRIPTS_WORKING};
use crate::verdict::Blame;
use crate::work::in_place;

/// Jobs that a worker runs before another takes its place: whatever adds up in a process goes with it.
const MAX_JOBS: u32 = 10_000;
/// How much more than its CPU time a call may take, on a machine that is busy.
const STRETCH: u32 = 30;
/// Time that a call may take besides.
const SLACK: Duration = Duration::from_secs(5);
/// A call that takes longer makes room for others.
const SOON: Duration = Duration::from_millis(20);
/// One that takes longer than this then goes on at the lowest priority.
const LONG: Duration = Duration::from_millis(250);
/// The priority of a call that has made room.
const LOWEST_PRIORITY: i32 = 19;
/// Time for a process to start, and to be started again where the system has no room for it.
const START: Duration = Duration::from_secs(10);
/// The pause in between.
const PAUSE: Duration = Duration::from_millis(100);

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
    /// To begin, or to go on with an answer.
    permits: Semaphore,
    idle: Mutex<Vec<Worker>>,
}

/// The places of one run in the pool.
#[derive(Debug)]
pub struct Share {
    pool: Arc<Pool>,
    /// To work.
    working: Semaphore,
    /// To work, and to wait in between: a script that waits keeps its process.
    under_way: Semaphore,
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
pub struct FunctionCall<'a> {
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
    /// When its answer is of no use any more. What is waited for a place is added.
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
    /// How long it waited for places, which is nobody's time.
    pub waited: Duration,
}

/// Why a script gave no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// For people, with the place.
    pub why: String,
    /// The number of the call whose failure it did not handle: [`Refusal::call`].
    pub call: Option<u32>,
    /// Whose fault it is: [`Blame::Script`], or [`Blame::Daemon`] where no process could be had for it.
    pub blame: Blame,
}

impl Called {
    fn failed(why: impl Into<String>, blame: Blame) -> Self {
        let broken = Broken { why: why.into(), call: None, blame };
        Self { result: Err(broken), console: Vec::new(), checks: Checks::default(), waited: Duration::ZERO }
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
    /// A pool of at most `workers` workers, started when they are needed: this same program.
    #[must_use]
    pub fn new(workers: usize, limits: Limits) -> Self {
        Self {
            program: worker::program(),
            arguments: vec![worker::ARGUMENT.into(), limits.memory.to_string().into()],
            limits,
            workers: workers.max(1),
            permits: Semaphore::new(workers.max(1)),
            idle: Mutex::default(),
        }
    }

    /// Places for one run.
    #[must_use]
    pub fn share(self: &Arc<Self>) -> Share {
        let (working, under_way) = (Semaphore::new(SCRIPTS_WORKING), Semaphore::new(SCRIPTS_WAITING));
        Share { pool: Arc::clone(self), working, under_way }
    }

    /// A process, as soon as the system has room for one.
    async fn worker(&self) -> Result<Worker, String> {
        let deadline = Instant::now() + START;
        loop {
            if let Some(worker) = self.idle.lock().pop() {
                return Ok(worker);
            }
            match tokio::time::timeout_at(deadline, self.start()).await {
                Ok(Ok(worker)) => return Ok(worker),
                Ok(Err(error)) if Instant::now() + PAUSE >= deadline => return Err(error.to_string()),
                Ok(Err(_)) => tokio::time::sleep(PAUSE).await,
                Err(_) => return Err(format!("it did not start within {START:?}")),
            }
        }
    }

    async fn start(&self) -> io::Result<Worker> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env_clear().kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = starter::start(command).await?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (stdin, stdout) = pipes.ok_or_else(|| io::Error::other("it has no pipes"))?;
        let mut worker = Worker { child, stdin, stdout, jobs: 0, is_slow: false };
        match worker.hear().await? {
            Said::Ready { without } => worker::say_what_is_missing(without.as_deref()),
            _ => return Err(io::Error::other("it says something else")),
        }
        Ok(worker)
    }

    fn give_back(&self, mut worker: Worker) {
        worker.jobs += 1;
        let mut idle = self.idle.lock();
        // Those that others made room for are more than there is work for afterwards.
        if worker.jobs < MAX_JOBS && !worker.is_slow && idle.len() < self.workers {
            idle.push(worker);
        }
    }

    /// What became of a worker that gave no answer.
    async fn how_it_died(&self, mut worker: Worker, error: &io::Error) -> Called {
        use std::os::unix::process::ExitStatusExt as _;

        use rustix::process::Signal;

        let status = tokio::time::timeout(Duration::from_secs(1), worker.child.wait()).await;
        let signal = status.ok().and_then(Result::ok).and_then(|status| status.signal());
        match signal.and_then(Signal::from_named_raw) {
            Some(Signal::XCPU) => {
                let seconds = self.limits.cpu.as_secs_f64();
                Called::failed(format!("it took more than {seconds} s of CPU time"), Blame::Script)
            }
            // It cannot do that to itself: somebody else did, or a system without memory.
            Some(Signal::KILL) => Called::failed("its process was killed", Blame::Daemon),
            // So does an engine end whose memory or stack was used up faster than it looked.
            Some(signal @ (Signal::ABORT | Signal::SEGV | Signal::BUS | Signal::ILL | Signal::TRAP)) => {
                let most = self.limits.memory >> 20;
                let why = format!(
                    "its process ended with the signal {signal:?}: it, or what it is given, is nested too deep or needs more \
                     than the {most} MiB of memory that a script may have"
                );
                Called::failed(why, Blame::Script)
            }
            Some(signal) => Called::failed(format!("its process ended with the signal {signal:?}"), Blame::Script),
            None => Called::failed(format!("its process ended: {error}"), Blame::Script),
        }
    }
}

impl Share {
    /// Calls a function that asks for nothing.
    pub async fn call(&self, call: FunctionCall<'_>) -> Called {
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
    pub async fn begin<'a>(&'a self, call: FunctionCall<'a>) -> Result<(Session<'a>, Step), Called> {
        let FunctionCall { scripts, path, functions, kind, arguments, deadline } = call;
        let (modules, imports) = scripts.closure(path);
        let may_wait = kind != Kind::Function;
        let job = Job {
            modules,
            imports,
            entry: path.to_owned(),
            functions: functions.iter().map(|name| (*name).to_owned()).collect(),
            kind,
            arguments,
            cpu_millis: u64::try_from(self.pool.limits.cpu.as_millis()).unwrap_or(u64::MAX),
            memory_bytes: self.pool.limits.memory,
        };
        let began = Instant::now();
        let turn = async {
            let under_way = if may_wait { self.under_way.acquire().await.ok() } else { None };
            (under_way, self.turn().await)
        };
        let turn = tokio::time::timeout(SCRIPT_QUEUE, turn).await;
        let (under_way, places) = turn.map_err(|_| Called::failed(NO_TURN, Blame::Daemon))?;
        let worker = self.pool.worker().await.map_err(|why| {
            let waited = began.elapsed();
            Called { waited, ..Called::failed(format!("no process can be started for it: {why}"), Blame::Daemon) }
        })?;
        let waited = began.elapsed();
        // Not before: a call that waits does not hold the frame.
        let frame = wire::frame(&Order::Run(Box::new(job)))
            .map_err(|error| Called::failed(format!("it cannot be called with so much: {error}"), Blame::Script))?;
        let mut session = Session {
            share: self,
            scripts,
            deadline: deadline + waited,
            waited,
            worker: Some(worker),
            places: Some(places),
            is_slow: false,
            _under_way: under_way,
        };
        let step = session.exchange(&frame).await;
        Ok((session, step))
    }

    /// Places to work: one of the run, and one to begin.
    async fn turn(&self) -> Places<'_> {
        let working = self.working.acquire().await.ok();
        Places { _working: working, permit: self.pool.permits.acquire().await.ok() }
    }
}

/// Why a script did not run: others of its run had all places.
const NO_TURN: &str = "its turn did not come: other scripts of the run had all places";

/// What a script holds while it works.
#[derive(Debug)]
struct Places<'a> {
    _working: Option<SemaphorePermit<'a>>,
    /// `None`: it has made room for others.
    permit: Option<SemaphorePermit<'a>>,
}

/// A script that was called. Dropped before its end, it is killed.
#[derive(Debug)]
pub struct Session<'a> {
    share: &'a Share,
    scripts: &'a Scripts,
    deadline: Instant,
    /// How long it waited for places since that was asked last.
    waited: Duration,
    /// `None`: it has ended.
    worker: Option<Worker>,
    /// `None`: it waits for something.
    places: Option<Places<'a>>,
    is_slow: bool,
    _under_way: Option<SemaphorePermit<'a>>,
}

impl Session<'_> {
    /// Gives the script what it asked for, and gives how far it comes with that.
    pub async fn answer(&mut self, answer: &Answer) -> Step {
        let bytes = answer.0.as_ref().map_or(0, |value| value.get().len());
        let frame = in_place(bytes, || wire::frame(answer)).or_else(|error| {
            let message = format!("the answer is too long for a script: {error}");
            wire::frame(&Answer(Err(Refusal { message, call: None })))
        });
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => return Step::Ended(Called::failed(error.to_string(), Blame::Script)),
        };
        let began = Instant::now();
        match tokio::time::timeout(SCRIPT_QUEUE, self.share.turn()).await {
            Ok(places) => self.places = Some(places),
            Err(_) => return Step::Ended(Called::failed(NO_TURN, Blame::Daemon)),
        }
        self.deadline += began.elapsed();
        self.waited += began.elapsed();
        self.exchange(&frame).await
    }

    /// Gives what its answer was waited for, beside what is its own: more time than before.
    pub fn take_more_time(&mut self, waited: Duration) {
        self.deadline += waited;
    }

    /// How long it waited for places since this was asked last.
    pub fn take_waited(&mut self) -> Duration {
        std::mem::take(&mut self.waited)
    }

    /// Makes room for others as soon as it may, and goes on.
    async fn slowly<T>(&mut self, process: Option<u32>, mut exchange: Pin<&mut impl Future<Output = T>>) -> T {
        if let Some(places) = &mut self.places {
            places.permit = None;
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
        match self.exchanged(frame).await {
            Step::Ended(called) => Step::Ended(Called { waited: self.take_waited(), ..called }),
            asked @ Step::Asked(_) => asked,
        }
    }

    async fn exchanged(&mut self, frame: &[u8]) -> Step {
        let Some(mut worker) = self.worker.take() else {
            return Step::Ended(Called::failed("it has ended already", Blame::Script));
        };
        let pool = &self.share.pool;
        let time = pool.limits.cpu * STRETCH + SLACK;
        let limit = self.deadline.min(Instant::now() + time);
        let process = worker.child.id();
        let (began, used) = (Instant::now(), cpu_time_of(process));
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
                self.places = None;
                Step::Asked(asked)
            }
            Ok(Ok(Said::Ended(ended))) => {
                self.share.pool.give_back(worker);
                let result = ended.result.map_err(|failure| {
                    let at = failure.frames.first().map(|frame| format!(" ({})", self.scripts.place(frame)));
                    let why = format!("{}{}", failure.message, at.unwrap_or_default());
                    Broken { why, call: failure.call, blame: Blame::Script }
                });
                let waited = Duration::ZERO;
                Step::Ended(Called { result, console: ended.console, checks: ended.checks, waited })
            }
            Ok(Ok(Said::Ready { .. } | Said::Read(_))) => {
                Step::Ended(Called::failed("its process says something else", Blame::Script))
            }
            // Dropped, it is killed.
            Ok(Err(error)) => Step::Ended(self.share.pool.how_it_died(worker, &error).await),
            Err(_) if limit == self.deadline && has_worked(process, used, began) => {
                Step::Ended(Called::failed("it did not end within its time", Blame::Script))
            }
            // It waits for nothing but the processors.
            Err(_) => {
                let why = format!("it got too little CPU time in {:?}, on a machine that is busy", began.elapsed());
                Step::Ended(Called::failed(why, Blame::Daemon))
            }
        }
    }
}

/// Whether a process had a good part of the time since it was asked to work, and so was not merely waiting for a
/// processor.
fn has_worked(process: Option<u32>, used: Option<Duration>, began: Instant) -> bool {
    let Some((before, now)) = used.zip(cpu_time_of(process)) else { return true };
    // Where the time was up already, it was not this script's to use.
    let took = began.elapsed();
    took < LONG || now.saturating_sub(before) * 4 > took
}

/// CPU time that a process has used, where the system tells.
fn cpu_time_of(process: Option<u32>) -> Option<Duration> {
    let told = std::fs::read_to_string(format!("/proc/{}/schedstat", process?)).ok()?;
    told.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

impl Worker {
    async fn exchange(&mut self, frame: &[u8]) -> io::Result<Said> {
        self.stdin.write_all(frame).await?;
        self.stdin.flush().await?;
        self.hear().await
    }

    async fn hear(&mut self) -> io::Result<Said> {
        let mut head = [0; 4];
        self.stdout.read_exact(&mut head).await?;
        let mut bytes = vec![0; wire::length(head)?];
        self.stdout.read_exact(&mut bytes).await?;
        Ok(in_place(bytes.len(), || serde_json::from_slice(&bytes))?)
    }
}
