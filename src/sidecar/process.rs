//! Programs that a sidecar runs: one process for one question, which stands on its stdin, and the answer on its stdout.
//!
//! A process is the head of a group, and whatever ends its question ends the group. What it writes is bounded, and what
//! it writes to stderr is ours, a clipped line at a time.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::turn::MAX_TEXT_BYTES;
use crate::text::{clip, printable};

/// Most bytes of a line on stderr that are read; a longer one is broken.
const MAX_LINE: u64 = 4 << 10;
/// Characters of such a line that are shown.
const SHOWN_CHARS: usize = 500;
/// Time for a process that says nothing more to end, and for its last words.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Variables without which few programs start.
const BARE: [&str; 5] = ["PATH", "HOME", "LANG", "TMPDIR", "TZ"];

/// A program, and what of our environment it sees.
#[derive(Debug, Clone)]
pub(super) struct Program {
    command: Vec<OsString>,
    /// Names of variables besides the bare ones; `None`: all of them.
    environment: Option<Vec<String>>,
}

/// Why a program gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoOutput {
    #[error("{program} cannot be started: {why}")]
    Start { program: String, why: io::Error },
    #[error("{program} wrote more than {MAX_TEXT_BYTES} bytes")]
    TooLarge { program: String },
    #[error("{program} ended with {status}{said}")]
    Exit { program: String, status: String, said: String },
    #[error("{program} cannot be spoken to: {why}")]
    Pipe { program: String, why: io::Error },
}

/// A process and what it started, killed when this is dropped.
pub(super) struct Group {
    child: Child,
    id: Option<Pid>,
}

impl Group {
    /// Its stdin and stdout, once.
    pub(super) fn pipes(&mut self) -> Option<(ChildStdin, ChildStdout)> {
        self.child.stdin.take().zip(self.child.stdout.take())
    }

    /// Hands on what it writes to stderr, and gives the last line of that.
    pub(super) fn hear(&mut self) -> impl Future<Output = String> + use<> {
        let stderr = self.child.stderr.take();
        async { if let Some(stderr) = stderr { last_line(stderr).await } else { String::new() } }
    }

    /// How it ended; one that has closed its stdout and goes on is killed.
    pub(super) async fn ending(&mut self, heard: impl Future<Output = String>) -> String {
        let status = tokio::time::timeout(LAST_WORDS, self.child.wait()).await;
        self.kill();
        let said = tokio::time::timeout(LAST_WORDS, heard).await.unwrap_or_default();
        let said = if said.is_empty() { said } else { format!(": {said}") };
        match status {
            Ok(Ok(status)) => format!("ended with {status}{said}"),
            Ok(Err(why)) => format!("ended, nobody knows how: {why}{said}"),
            Err(_) => format!("closed its stdout and went on{said}"),
        }
    }

    fn kill(&self) {
        if let Some(id) = self.id {
            // What has ended by itself may have left others behind.
            let _ = kill_process_group(id, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Program {
    /// A program with its arguments, which sees the bare environment and these variables, or all of it.
    pub(super) fn new(command: Vec<OsString>, environment: Option<Vec<String>>) -> Self {
        Self { command, environment }
    }

    /// A command of a shell, which sees all of our environment: the user who writes it here starts it like any other.
    pub(super) fn of_shell(command: &str) -> Self {
        Self::new(["sh", "-c", command].map(OsString::from).into(), None)
    }

    /// What people call it.
    pub(super) fn name(&self) -> String {
        match self.command.as_slice() {
            [shell, _, command] if shell == "sh" => clip(&command.to_string_lossy(), 60),
            [program, ..] => program.to_string_lossy().into_owned(),
            [] => String::new(),
        }
    }

    /// Starts it, with pipes to its three streams.
    pub(super) fn start(&self) -> Result<Group, NoOutput> {
        let cannot_start = |why| NoOutput::Start { program: self.name(), why };
        let (program, arguments) =
            self.command.split_first().ok_or_else(|| cannot_start(io::ErrorKind::InvalidInput.into()))?;
        let mut command = Command::new(program);
        if let Some(names) = &self.environment {
            command.env_clear();
            let names = BARE.iter().copied().chain(names.iter().map(String::as_str));
            command.envs(names.filter_map(|name| std::env::var_os(name).map(|value| (name, value))));
        }
        let pipes = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = pipes.process_group(0).kill_on_drop(true).spawn().map_err(cannot_start)?;
        let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok(Group { child, id })
    }

    /// Asks a process of its own; `started` is awaited when it is there. The caller keeps the time: a question that is
    /// dropped ends the process, and whatever that has started.
    pub(super) async fn ask(&self, input: &[u8], started: impl Future<Output = ()>) -> Result<Vec<u8>, NoOutput> {
        let mut group = self.start()?;
        started.await;
        let pipe = |why| NoOutput::Pipe { program: self.name(), why };
        let listen = group.hear();
        let (stdin, stdout) = group.pipes().unzip();
        let write = async {
            if let Some(mut stdin) = stdin {
                // Who does not read what it is asked may answer all the same.
                let _ = stdin.write_all(input).await;
                let _ = stdin.shutdown().await;
            }
        };
        let read = async {
            let mut output = Vec::new();
            if let Some(stdout) = stdout {
                let most = u64::try_from(MAX_TEXT_BYTES).unwrap_or(u64::MAX);
                stdout.take(most + 1).read_to_end(&mut output).await.map_err(pipe)?;
            }
            if output.len() > MAX_TEXT_BYTES { Err(NoOutput::TooLarge { program: self.name() }) } else { Ok(output) }
        };
        let mut answer = std::pin::pin!(async { tokio::join!(write, read).1 });
        let mut listen = std::pin::pin!(listen);
        let mut said = None;
        let output = loop {
            tokio::select! {
                output = &mut answer => break output?,
                last = &mut listen, if said.is_none() => said = Some(last),
            }
        };
        let status = group.child.wait().await.map_err(pipe)?;
        if status.success() {
            return Ok(output);
        }
        // Nobody of its group writes any more once it is killed.
        group.kill();
        let said = match said {
            Some(said) => said,
            None => listen.await,
        };
        let said = if said.is_empty() { said } else { format!(": {said}") };
        Err(NoOutput::Exit { program: self.name(), status: status.to_string(), said })
    }
}

/// Hands on what is written to stderr, and gives its last line.
async fn last_line(stderr: impl AsyncRead + Unpin) -> String {
    let mut stderr = BufReader::new(stderr);
    let mut last = String::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut stderr).take(MAX_LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return last,
            Ok(_) => {
                let text = clip(&printable(String::from_utf8_lossy(&line).trim_end()), SHOWN_CHARS);
                let _ = writeln!(io::stderr(), "forge-sidecar: stderr: {text}");
                if !text.trim().is_empty() {
                    last = text;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn ask(command: &str, input: &str) -> Result<String, String> {
        let asked = Program::of_shell(command);
        let asked = asked.ask(input.as_bytes(), std::future::ready(()));
        let asked = tokio::time::timeout(Duration::from_secs(20), asked).await.expect("it answers");
        asked.map(|output| String::from_utf8(output).expect("a text")).map_err(|why| why.to_string())
    }

    #[tokio::test]
    async fn questions() {
        assert_eq!(ask("cat", "hi").await, Ok("hi".to_owned()));
        assert_eq!(ask("echo x", &"y".repeat(1 << 20)).await, Ok("x\n".to_owned()));
        let exit = "echo first >&2; printf 'no \\033[2Jmoney' >&2; exit 3";
        let error = ask(exit, "").await.expect_err("it fails");
        assert!(error.contains("ended with exit status: 3: no ") && !error.contains('\u{1b}'), "{error}");
        let error = ask("yes", "").await.expect_err("too much");
        assert_eq!(error, "yes wrote more than 16776192 bytes");
        let nowhere = Program::new(vec!["/nowhere/at/all".into()], None).ask(b"", std::future::ready(())).await;
        let error = nowhere.expect_err("nothing there").to_string();
        assert!(error.starts_with("/nowhere/at/all cannot be started: No such file"), "{error}");
    }

    /// A question that is given up ends what was started for it.
    #[tokio::test]
    async fn given_up() {
        let place = tempfile::tempdir().expect("a folder");
        let file = place.path().join("alive");
        let command = format!("(sleep 1; touch {}) & echo $!; sleep 30", file.display());
        let program = Program::of_shell(&command);
        let asked = program.ask(b"", std::future::ready(()));
        assert!(tokio::time::timeout(Duration::from_millis(300), asked).await.is_err());
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert!(!file.exists(), "what it started goes on");
    }

    /// Only what is named is seen.
    #[tokio::test]
    async fn environments() {
        let seen = |names: Vec<String>| async {
            let program = Program::new(vec!["env".into()], Some(names));
            let output = program.ask(b"", std::future::ready(())).await.expect("it answers");
            String::from_utf8(output)
                .expect("a text")
                .lines()
                .filter_map(|line| Some(line.split_once('=')?.0.to_owned()))
                .collect::<Vec<_>>()
        };
        let bare = seen(Vec::new()).await;
        assert!(bare.iter().all(|name| BARE.contains(&name.as_str())) && bare.contains(&"PATH".to_owned()), "{bare:?}");
        assert!(seen(vec!["CARGO_PKG_NAME".to_owned()]).await.contains(&"CARGO_PKG_NAME".to_owned()));
    }
}
