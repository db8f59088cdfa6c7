//! The keeper of a command that `forgectl run --start` started: a process of its own that ends the command, and
//! whatever that started, when forgectl is gone, however it went.
//!
//! It is this same program, at the head of a process group in which the command runs. Its stdin is a pipe from
//! forgectl: whatever ends forgectl closes it, a signal that nobody can catch included. Then the group is asked to end,
//! and killed when it does not.

use std::io::Read as _;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, kill_process_group};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::script::worker::program;

/// What a program is started with to be a keeper; the command comes next.
const ARGUMENT: &str = "--forge-agent-keeper";
/// Time that a command has to end when it is asked to.
const GRACE: Duration = Duration::from_secs(2);
/// Time that what a command has started has besides.
const AFTERMATH: Duration = Duration::from_millis(100);
/// Time for a keeper to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Is a keeper if the program was started as one.
#[must_use]
pub fn main() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|first| first != ARGUMENT) {
        return None;
    }
    let command = arguments.next().unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let kept = runtime.and_then(|runtime| runtime.block_on(keep(&command)));
    if let Err(error) = kept {
        super::note(&format!("forgectl: the command cannot be started: {error}"));
    }
    // The last that it does: it is of the group itself.
    let _ = kill_process_group(getpid(), Signal::KILL);
    Some(ExitCode::FAILURE)
}

async fn keep(command: &std::ffi::OsStr) -> std::io::Result<()> {
    // What the group is told is not for the keeper.
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut child = Command::new("sh").arg("-c").arg(command).stdin(Stdio::null()).spawn()?;
    let (closed, mut is_closed) = oneshot::channel();
    std::thread::spawn(move || {
        // Nothing is ever written there, so that this is its end.
        let _ = std::io::stdin().read(&mut [0]);
        let _ = closed.send(());
    });
    tokio::select! {
        status = child.wait() => {
            super::note(&format!("forgectl: the command ended with {}", status?));
            return Ok(());
        }
        _ = &mut is_closed => {}
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    let _ = kill_process_group(getpid(), Signal::TERM);
    if tokio::time::timeout(GRACE, child.wait()).await.is_ok() {
        tokio::time::sleep(AFTERMATH).await;
    }
    Ok(())
}

/// A command with its keeper.
#[derive(Debug)]
pub(super) struct Kept {
    keeper: Child,
    group: Option<Pid>,
}

impl Kept {
    /// Starts a command of a shell. What it writes is for [`Self::output`].
    ///
    /// # Errors
    /// When this program cannot be started once more.
    pub(super) fn start(command: &str) -> std::io::Result<Self> {
        let keeper = Command::new(program())
            .args([ARGUMENT, command])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let group = keeper.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok(Self { keeper, group })
    }

    /// What the command writes to stdout and to stderr.
    pub(super) fn output(&mut self) -> (Option<tokio::process::ChildStdout>, Option<tokio::process::ChildStderr>) {
        (self.keeper.stdout.take(), self.keeper.stderr.take())
    }

    /// Whether the command has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.keeper.try_wait(), Ok(None))
    }

    /// Ends the command, and waits until it has.
    pub(super) async fn end(mut self) {
        drop(self.keeper.stdin.take());
        let ended = tokio::time::timeout(PATIENCE, self.keeper.wait()).await;
        if let (Err(_), Some(group)) = (ended, self.group) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}
