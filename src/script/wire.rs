//! What daemon and worker say to each other: JSON messages, each behind its length. The worker says that it is ready.
//! The daemon sends an [`Order`]; the worker asks for what only the daemon can do, each time with an [`Answer`], and at
//! last says what came of it.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Most bytes of a message.
pub const MAX_FRAME_BYTES: usize = 64 << 20;

/// What a worker is to do.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// Run a script.
    Run(Box<Job>),
    /// Read source text, of which nothing is run. The files are asked for, one by one.
    Read {
        /// What is read.
        what: Source,
        /// Most CPU time, in milliseconds.
        cpu_millis: u64,
    },
}

/// Source text that a worker reads.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Source {
    /// Scripts of these names, and all that they import.
    Scripts(Vec<String>),
    /// The tool registry at that path, and all that it imports.
    Registry(String),
}

/// One call of a script.
#[derive(Debug, Serialize, Deserialize)]
pub struct Job {
    /// JavaScript of each module as a JSON text, by path below `scripts/`.
    pub modules: BTreeMap<String, Box<RawValue>>,
    /// Of each module, what its import specifiers stand for.
    pub imports: BTreeMap<String, BTreeMap<String, String>>,
    /// The module that is called.
    pub entry: String,
    /// Names of exports, of which the first that is a function is called.
    pub functions: Vec<String>,
    /// What it is called as.
    pub kind: Kind,
    /// The arguments.
    pub arguments: Vec<Box<RawValue>>,
    /// Most CPU time, in milliseconds.
    pub cpu_millis: u64,
    /// Most memory of the script, in bytes.
    pub memory_bytes: usize,
}

/// What a function is called as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A function that gets everything with its arguments.
    Function,
    /// A function that may also ask for something.
    Hook,
    /// A test of that name, which may ask too: before all arguments stands its `t`.
    Test(String),
}

/// What a worker says.
#[derive(Debug, Serialize, Deserialize)]
pub enum Said {
    /// It has taken from itself what it must not have, and waits for orders: said once.
    Ready {
        /// What it could not take from itself, which this system does not know.
        without: Option<String>,
    },
    /// It waits for something.
    Asked(Asked),
    /// The script has ended.
    Ended(Box<Ended>),
    /// What was read, or what is wrong with it: [`super::reading`] knows its shape.
    Read(Box<RawValue>),
}

/// What a worker asks the daemon for.
#[derive(Debug, Serialize, Deserialize)]
pub struct Asked {
    /// What for.
    pub what: Ask,
    /// The arguments: JSON text of a list.
    pub arguments: Box<RawValue>,
}

/// What only the daemon can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// `Process(name, …)`: a name, and what it is called with.
    Process,
    /// `t.assert.Agent(response, id, options)`: an answer, a validator, and what it is told.
    Validator,
    /// The file at a path, in base64; null: there is none.
    File,
}

/// What the daemon gives, as JSON, or why it does not: that is thrown.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer(pub Result<Box<RawValue>, Refusal>);

/// Why a script does not get what it asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// For people.
    pub message: String,
    /// The number of the call that failed, if one was made: a script that does not catch the error names it when it
    /// fails.
    pub call: Option<u32>,
}

/// What came of a [`Job`].
#[derive(Debug, Serialize, Deserialize)]
pub struct Ended {
    /// What the script answered, or why it did not.
    pub result: Result<Option<Box<RawValue>>, Failure>,
    /// What it wrote to the console, a line each; the beginning, if it is much.
    pub console: Vec<String>,
    /// What a test checked.
    pub checks: Checks,
}

/// What a test checked with its `t`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Checks {
    /// In order; those that hold only up to a bound.
    pub made: Vec<Check>,
    /// How many more hold.
    pub more_passed: u32,
    /// How many more do not.
    pub more_failed: u32,
    /// Why the test skipped itself, if it did.
    pub skipped: Option<String>,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// The name of the method, such as `Contains`.
    pub name: String,
    /// Whether it holds.
    pub passed: bool,
    /// Why not.
    pub reason: String,
    /// Where it stands.
    pub frame: Option<Frame>,
    /// The number of the validator's answer that it is about.
    pub asked: Option<u32>,
}

/// Why a script did not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What went wrong, for people.
    pub message: String,
    /// Where, innermost first, in the JavaScript that was run.
    pub frames: Vec<Frame>,
    /// The number of the call whose failure it is: [`Refusal::call`].
    pub call: Option<u32>,
}

/// A place in JavaScript.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// The module.
    pub path: String,
    /// From 1.
    pub line: u32,
    /// From 1.
    pub column: u32,
}

/// A message behind its length.
///
/// # Errors
/// When it is too long.
pub fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = bytes.len() - 4;
    if length > MAX_FRAME_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("a message of {length} bytes")));
    }
    let length = u32::try_from(length).map_err(io::Error::other)?;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    Ok(bytes)
}

/// Length of the message behind these bytes.
///
/// # Errors
/// When it is too long.
pub fn length(bytes: [u8; 4]) -> io::Result<usize> {
    let length = u32::from_le_bytes(bytes) as usize;
    if length > MAX_FRAME_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("a message of {length} bytes")));
    }
    Ok(length)
}

/// Writes a message.
///
/// # Errors
/// When it cannot be written.
pub fn write(out: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    out.write_all(&frame(message)?)?;
    out.flush()
}

/// Reads a message; `None` when there are no more.
///
/// # Errors
/// When it cannot be read.
pub fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut head = [0; 4];
    match from.read_exact(&mut head) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let mut bytes = vec![0; length(head)?];
    from.read_exact(&mut bytes)?;
    Ok(Some(serde_json::from_slice(&bytes)?))
}
