//! Has a worker read source text: scripts, and tool registries in TypeScript or JavaScript.
//!
//! No parser knows what a text will do to it, and one that overflows its stack ends its process. So the text is parsed,
//! transformed and linked where that costs nobody else anything, under limits of memory, CPU time and stack; here is
//! who asks. It gives the worker the files that it asks for, and nothing else.

use std::io::{self, Read as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use parking_lot::{Condvar, Mutex};
use serde::de::DeserializeOwned;
use serde_json::value::to_raw_value;

use super::source::{FOLDER, LookUp, Scripts};
use super::wire::{self, Answer, Ask, Asked, Order, Said, Source};
use super::worker;
use crate::limits::{READING_AT_ONCE, READING_CPU, READING_MEMORY};
use crate::suite::error::{Finding, SuiteErrors};
use crate::suite::registry::Registry;

/// Time to wait for others who read.
const PATIENCE: Duration = Duration::from_mins(1);
/// How much longer than its CPU time a worker may take, on a machine that is busy.
const STRETCH: u32 = 8;
/// Most files that one reading may ask for, those that are not there included, and most bytes of them.
const MAX_ASKED: usize = 200_000;
const MAX_BYTES: usize = 32 << 20;

/// Why source text was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadError {
    /// It is wrong, or costs too much to be read.
    Wrong(Vec<Finding>),
    /// That is not its fault: no process can be had, or others are in the way.
    Failed(String),
}

/// What a worker says of a registry: its JSON and what is odd about it, or what is wrong.
pub(super) type RegistryRead = Result<(String, Vec<Finding>), Vec<Finding>>;

/// A worker process that reads. It is started when it is needed, and ends with this.
#[derive(Debug, Default)]
pub struct ScriptReader {
    process: Option<Process>,
}

impl ScriptReader {
    /// Reads the scripts of these names, and all that they import. A script that is not there is left out: the case
    /// that calls it is told. Blocks.
    ///
    /// # Errors
    /// What is wrong with those that are there, or why they could not be read.
    pub fn scripts<'a>(
        &mut self,
        names: impl IntoIterator<Item = &'a str>,
        look_up: LookUp<'_>,
    ) -> Result<Scripts, ReadError> {
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let name = |path: &str| format!("{FOLDER}/{path}");
        let read: Result<Scripts, Vec<Finding>> = self.read(Source::Scripts(names), look_up, &name)?;
        read.map_err(ReadError::Wrong)
    }

    /// Reads the tool registry at a path; what is source text is read by the worker. Blocks.
    ///
    /// # Errors
    /// What is wrong with the file itself, or why it could not be read.
    pub fn registry(&mut self, path: &str, look_up: LookUp<'_>) -> Result<(Registry, Vec<Finding>), ReadError> {
        let wrong = |SuiteErrors(errors)| ReadError::Wrong(errors);
        if !Registry::is_source(path) {
            return Registry::read(path, look_up).map_err(wrong);
        }
        let read: RegistryRead = self.read(Source::Registry(path.to_owned()), look_up, &str::to_owned)?;
        let (json, findings) = read.map_err(ReadError::Wrong)?;
        let (registry, _) = Registry::read("registry.json", &|_| Some(json.clone().into_bytes())).map_err(wrong)?;
        Ok((registry, findings))
    }

    /// `name`: what a file is called in findings.
    fn read<T: DeserializeOwned>(
        &mut self,
        what: Source,
        look_up: LookUp<'_>,
        name: &dyn Fn(&str) -> String,
    ) -> Result<T, ReadError> {
        let mut process = match self.process.take() {
            Some(process) => process,
            None => Process::start()?,
        };
        let mut reading = String::new();
        let order = Order::Read { what, cpu_millis: u64::try_from(READING_CPU.as_millis()).unwrap_or(u64::MAX) };
        match process.exchange(&order, look_up, &mut reading) {
            Ok(read) => {
                self.process = Some(process);
                Ok(read)
            }
            Err(error) => Err(process.why(&error).map_or_else(ReadError::Failed, |message| {
                let file = if reading.is_empty() { FOLDER.to_owned() } else { name(&reading) };
                ReadError::Wrong(vec![Finding { file, line: 0, case: None, field: None, message, hint: None }])
            })),
        }
    }
}

/// A worker that reads.
#[derive(Debug)]
struct Process {
    child: Arc<Mutex<Child>>,
    stdin: ChildStdin,
    stdout: ChildStdout,
    /// Dropped, nobody looks at the time any more.
    _watched: Sender<()>,
    _place: Seat,
}

impl Process {
    fn start() -> Result<Self, ReadError> {
        let place = Seat::take()?;
        let failed = |error: io::Error| ReadError::Failed(format!("no process can be started to read it: {error}"));
        let mut child = Command::new(worker::program())
            .args([worker::ARGUMENT.to_owned(), READING_MEMORY.to_string()])
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (stdin, stdout) = pipes.ok_or_else(|| failed(io::Error::other("it has no pipes")))?;
        let child = Arc::new(Mutex::new(child));
        let (watched, ends) = channel::<()>();
        let started = Arc::clone(&child);
        let watch = move || {
            if ends.recv_timeout(READING_CPU * STRETCH) == Err(RecvTimeoutError::Timeout) {
                // It has ended already, or it does now.
                let _ = started.lock().kill();
            }
        };
        std::thread::Builder::new().name("reading".to_owned()).spawn(watch).map_err(failed)?;
        let mut process = Self { child, stdin, stdout, _watched: watched, _place: place };
        match process.hear() {
            Ok(Said::Ready { without }) => {
                worker::say_what_is_missing(without.as_deref());
                Ok(process)
            }
            Ok(_) => Err(failed(io::Error::other("it says something else"))),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(failed(io::Error::other("it ended at once; the system may have too little memory or stack for it")))
            }
            Err(error) => Err(failed(error)),
        }
    }

    fn hear(&mut self) -> io::Result<Said> {
        let mut head = [0; 4];
        self.stdout.read_exact(&mut head)?;
        let mut bytes = vec![0; wire::length(head)?];
        self.stdout.read_exact(&mut bytes)?;
        Ok(serde_json::from_slice(&bytes)?)
    }

    /// Has it read, and gives it the files that it asks for. `reading`: the last of them that is there.
    fn exchange<T: DeserializeOwned>(
        &mut self,
        order: &Order,
        look_up: LookUp<'_>,
        reading: &mut String,
    ) -> io::Result<T> {
        wire::write(&mut self.stdin, order)?;
        let (mut asked, mut given) = (0, 0);
        loop {
            match self.hear()? {
                Said::Read(read) => return Ok(serde_json::from_str(read.get())?),
                Said::Asked(Asked { what: Ask::File, arguments }) if asked < MAX_ASKED && given < MAX_BYTES => {
                    let path: String = serde_json::from_str(arguments.get())?;
                    let bytes = look_up(&path);
                    asked += 1;
                    given += bytes.as_ref().map_or(0, Vec::len);
                    let file = to_raw_value(&bytes.map(|bytes| BASE64_STANDARD.encode(bytes)))?;
                    if file.get() != "null" {
                        *reading = path;
                    }
                    wire::write(&mut self.stdin, &Answer(Ok(file)))?;
                }
                _ => return Err(io::Error::other("it asks for too much")),
            }
        }
    }

    /// Why it gave no answer: what is wrong with the text, or, as the error, that it is not the text's fault.
    fn why(&self, error: &io::Error) -> Result<String, String> {
        use std::os::unix::process::ExitStatusExt as _;

        use rustix::process::Signal;

        if !matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe) {
            return Ok(format!("it cannot be read: {error}"));
        }
        let signal = self.ended().and_then(|status| status.signal()).and_then(Signal::from_named_raw);
        match signal {
            Some(Signal::XCPU) => Ok(format!("it takes more than {} s of CPU time to be read", READING_CPU.as_secs())),
            Some(Signal::ABORT | Signal::SEGV | Signal::BUS | Signal::ILL | Signal::TRAP) => {
                Ok("it is nested too deep, or takes too much memory, to be read".to_owned())
            }
            Some(Signal::KILL) => Err("the process that reads it was killed, or got no time".to_owned()),
            Some(signal) => Err(format!("the process that reads it ended with the signal {signal:?}")),
            None => Ok("it cannot be read: the parser failed".to_owned()),
        }
    }

    /// How the process ended, which has closed its pipes.
    fn ended(&self) -> Option<ExitStatus> {
        for _ in 0..100 {
            if let Some(status) = self.child.lock().try_wait().ok()? {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let mut child = self.child.lock();
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// One of the places of those who read.
#[derive(Debug)]
struct Seat;

/// How many are taken, in this process.
static TAKEN: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

impl Seat {
    fn take() -> Result<Self, ReadError> {
        let is_full = |taken: &mut usize| *taken >= READING_AT_ONCE;
        let mut taken = TAKEN.0.lock();
        if TAKEN.1.wait_while_for(&mut taken, is_full, PATIENCE).timed_out() {
            return Err(ReadError::Failed("others are read, and their places did not get free".to_owned()));
        }
        *taken += 1;
        Ok(Self)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        *TAKEN.0.lock() -= 1;
        TAKEN.1.notify_one();
    }
}
