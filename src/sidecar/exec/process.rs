//! A command of somebody else's, started in a process group of its own: what it says is bounded, and it ends with what
//! it started.

use std::collections::VecDeque;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

use crate::text::printable;

/// Bytes of one line on stderr that are kept; the rest of the line is left out.
const LINE_BYTES: usize = 1_000;
/// Time to read what a process that has ended said on stderr.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Lines on stderr that are kept: the last ones.
const LINES: usize = 20;

/// How a command is started.
#[derive(Debug, Clone)]
pub(super) struct Program {
    /// The command and its arguments.
    pub(super) command: Vec<String>,
    /// Names of the variables of our environment that it sees; `None`: all of them.
    pub(super) environment: Option<Vec<String>>,
}

/// A process of a command, and what it started. All of them are killed when this is dropped.
pub(super) struct Process {
    child: Child,
    group: Option<Pid>,
    /// What it said last on stderr.
    pub(super) stderr: Stderr,
    /// Reads that.
    listening: Option<JoinHandle<()>>,
}

/// The last lines that a process said on stderr.
#[derive(Debug, Clone, Default)]
pub(super) struct Stderr(Arc<Mutex<VecDeque<String>>>);

impl Program {
    /// What people call it.
    pub(super) fn name(&self) -> &str {
        self.command.first().map_or("", String::as_str)
    }

    /// Starts it, with pipes to all three streams.
    pub(super) fn start(&self) -> io::Result<(Process, ChildStdin, ChildStdout)> {
        let (program, args) = self.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        if let Some(names) = &self.environment {
            command.env_clear();
            // Without a path no interpreter is found.
            let known = names.iter().map(String::as_str).chain(["PATH"]);
            command.envs(known.filter_map(|name| Some((name, std::env::var_os(name)?))));
        }
        let mut child = command.spawn()?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::Error::other("it has no pipes"));
        };
        let said = Stderr::default();
        // Ends with the process, or when the group is killed and nobody holds the pipe any more.
        let listening = Some(tokio::spawn(said.clone().listen(stderr)));
        Ok((Process { child, group, stderr: said, listening }, stdin, stdout))
    }
}

impl Process {
    /// Waits for its end.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Waits until all is read that it said on stderr, but not for what it started and left behind.
    pub(super) async fn hear_out(&mut self) {
        if let Some(listening) = self.listening.take() {
            let _ = tokio::time::timeout(LAST_WORDS, listening).await;
        }
    }

    /// How it ended, in words.
    pub(super) async fn ending(&mut self, status: ExitStatus) -> String {
        self.hear_out().await;
        let last = self.stderr.last().map(|line| format!("; the last that it said on stderr: {line}"));
        format!("it ended with {status}{}", last.unwrap_or_default())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Stderr {
    async fn listen(self, stderr: impl AsyncRead + Unpin) {
        let mut stderr = BufReader::new(stderr);
        while let Ok(Some(line)) = next_line(&mut stderr, LINE_BYTES, true).await {
            let line = printable(&String::from_utf8_lossy(&line));
            let mut lines = self.0.lock();
            if lines.len() == LINES {
                lines.pop_front();
            }
            lines.push_back(line);
        }
    }

    fn last(&self) -> Option<String> {
        self.0.lock().iter().rev().find(|line| !line.trim().is_empty()).cloned()
    }

    /// Its lines, which are forgotten here.
    pub(super) fn take(&self) -> Vec<String> {
        self.0.lock().drain(..).collect()
    }
}

/// The next line without its end, at most `most` bytes of it. A longer one is cut if `may_cut`, and else refused as
/// invalid data.
pub(super) async fn next_line(
    reader: &mut (impl tokio::io::AsyncBufRead + Unpin),
    most: usize,
    may_cut: bool,
) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let room = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    if (&mut *reader).take(room).read_until(b'\n', &mut line).await? == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() > most {
        if !may_cut {
            return Err(io::ErrorKind::InvalidData.into());
        }
        line.truncate(most);
        // The rest of the line, piece by piece.
        loop {
            let mut rest = Vec::new();
            let read = (&mut *reader).take(64 << 10).read_until(b'\n', &mut rest).await?;
            if read == 0 || rest.last() == Some(&b'\n') {
                break;
            }
        }
    }
    Ok(Some(line))
}

/// All that a process says on stdout; `None`: more than `most` bytes.
pub(super) async fn read_all(stdout: impl AsyncRead + Unpin, most: usize) -> io::Result<Option<Vec<u8>>> {
    let mut all = Vec::new();
    let room = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    stdout.take(room).read_to_end(&mut all).await?;
    Ok((all.len() <= most).then_some(all))
}
