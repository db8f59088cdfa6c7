//! What daemon and worker say to each other: JSON messages, each behind its length, one answer for each job.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Most bytes of a message.
pub const MAX_FRAME_BYTES: usize = 64 << 20;

/// One call of a script.
#[derive(Debug, Serialize, Deserialize)]
pub struct Job {
    /// JavaScript of each module, by path below `scripts/`.
    pub modules: BTreeMap<String, String>,
    /// Of each module, what its import specifiers stand for.
    pub imports: BTreeMap<String, BTreeMap<String, String>>,
    /// The module that is called.
    pub entry: String,
    /// Names of exports, of which the first that is a function is called.
    pub functions: Vec<String>,
    /// The arguments.
    pub arguments: Vec<Box<RawValue>>,
    /// Most CPU time, in milliseconds.
    pub cpu_millis: u64,
    /// Most memory of the script, in bytes.
    pub memory_bytes: usize,
}

/// What came of a [`Job`].
#[derive(Debug, Serialize, Deserialize)]
pub struct Ended {
    /// What the script answered, or why it did not.
    pub result: Result<Option<Box<RawValue>>, Failure>,
    /// What it wrote to the console, a line each; the beginning, if it is much.
    pub console: Vec<String>,
}

/// Why a script did not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What went wrong, for people.
    pub message: String,
    /// Where, innermost first, in the JavaScript that was run.
    pub frames: Vec<Frame>,
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
