//! The call log: a JSON line when a call starts, when it is asked to stop, and when it ends.
//!
//! This is what the agent saw, for tests and for people who doubt the daemon. Lines are written at once and with one
//! system call each, so that a reader that has the answer of a call also finds its lines, and several readers and
//! writers never see half a line. Writing is not asynchronous: a line is short, and the order matters more.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::Serialize;

use crate::wire::agent::{Message, Role, part};

const MAX_TEXT_CHARS: usize = 1_000;

/// Writes the log, if there is one, and numbers the calls.
#[derive(Debug, Default)]
pub struct CallLog {
    file: Option<Mutex<File>>,
    calls: AtomicU64,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// With status OK.
    Ok,
    /// With another status.
    Status,
    /// The peer asked for it, in band or by a reset with CANCEL.
    Cancelled,
    /// The connection or the stream broke, from whichever side.
    Reset,
}

/// What is known of a call when it starts. Empty and 0 where a kind of call has no such thing.
#[derive(Debug, Clone, Default, Serialize)]
pub struct About {
    /// Service and method, such as `AgentEndpoint/Invoke`.
    pub service: &'static str,
    /// The agent that is asked for.
    pub agent_id: String,
    /// The case.
    pub case_id: String,
    /// The conversation.
    pub conversation_id: String,
    /// The turn of the case.
    pub turn: u32,
    /// Text of the last message of the user.
    pub last_user_text: String,
    /// Number of messages.
    pub messages: usize,
}

#[derive(Serialize)]
struct Line<'a> {
    event: &'static str,
    call: u64,
    #[serde(flatten)]
    about: &'a About,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<End>,
}

impl CallLog {
    /// A log that appends to the file at `path`, which is made if it does not exist.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Self { file: Some(Mutex::new(file)), calls: AtomicU64::new(0) })
    }

    /// Writes that a call starts.
    pub fn start(self: &Arc<Self>, mut about: About) -> LoggedCall {
        if let Some((end, _)) = about.last_user_text.char_indices().nth(MAX_TEXT_CHARS) {
            about.last_user_text.truncate(end);
        }
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let logged = LoggedCall { log: Arc::clone(self), call, about };
        logged.write("start", None);
        logged
    }
}

/// A call that has started and not ended.
#[derive(Debug)]
pub struct LoggedCall {
    log: Arc<CallLog>,
    call: u64,
    about: About,
}

impl LoggedCall {
    /// Writes that the peer asks the call to stop.
    pub fn cancel(&self) {
        self.write("cancel", None);
    }

    /// Writes that the call has ended.
    pub fn end(self, end: End) {
        self.write("end", Some(end));
    }

    fn write(&self, event: &'static str, end: Option<End>) {
        let Some(file) = &self.log.file else { return };
        let line = Line { event, call: self.call, about: &self.about, end };
        let written = serde_json::to_vec(&line).map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            file.lock().write_all(&line)
        });
        if let Err(error) = written {
            // An agent must not fall over because a disk is full.
            tracing::warn!(%error, "a line of the call log is lost");
        }
    }
}

/// Text of the last message of the user; empty when there is none.
#[must_use]
pub fn last_user_text(messages: &[Message]) -> String {
    let last = messages.iter().rev().find(|message| message.role() == Role::User);
    let parts = last.map(|message| message.parts.as_slice()).unwrap_or_default();
    parts
        .iter()
        .filter_map(|part| match &part.content {
            Some(part::Content::Text(text)) => Some(text.as_str()),
            _ => None,
        })
        .collect()
}
