//! One process for all turns: a line of JSON for each turn, and lines of JSON back.
//!
//! To it: `{"id": TURN, "toolMode": "live", "message": …}`, `{"id": TURN, "toolResult": {"id": CALL, "result": …}}`
//! and `{"id": TURN, "cancel": true}`. From it, each with the id of its turn: `text`, a piece of the answer; `toolCall`;
//! `log`; `error`; and `response`, which is the last.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tonic::Code;

use super::{gone, question};
use crate::sidecar::http::plain;
use crate::sidecar::process::{Group, Program};
use crate::sidecar::turn::{Answer, End, MAX_TEXT_BYTES, Turn, Wanted};
use crate::text::{clip, printable};
use crate::wire::agent::tool_call_finished::Outcome;
use crate::wire::agent::{Fault, FaultOrigin, Json, ToolMode, json};

/// Lines that wait to be read by the process.
const UNREAD_LINES: usize = 64;
/// Bytes of lines that wait to be reported for one turn. A turn of which more waits fails, and holds up no other.
const UNREPORTED: usize = 2 * MAX_TEXT_BYTES;
/// Pause before a process that has just ended is started again: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A process that lived for this long had not just been started.
const LIVED: Duration = Duration::from_secs(10);
/// Bytes of a line that an error shows.
const SHOWN: usize = 200;

/// The process, which is started with the first turn and again after it has ended.
pub(super) struct Lines {
    program: Program,
    next_turn: AtomicU64,
    running: tokio::sync::Mutex<Starts>,
}

/// How the process is started.
struct Starts {
    running: Option<Running>,
    begun: Instant,
    /// Not before this time.
    not_before: Instant,
    pause: Duration,
}

/// A process that was started.
struct Running {
    stdin: mpsc::Sender<Vec<u8>>,
    open: Arc<Mutex<Open>>,
    _task: AbortOnDropHandle<()>,
}

/// The turns that are open, until the process has ended.
#[derive(Default)]
struct Open {
    turns: HashMap<String, Inbox>,
    ended: Option<String>,
}

/// Where the lines for a turn go.
struct Inbox {
    lines: mpsc::UnboundedSender<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
}

/// A turn as the process knows it. Dropped before its end, the process is told.
struct Talk {
    id: String,
    stdin: mpsc::Sender<Vec<u8>>,
    open: Arc<Mutex<Open>>,
    lines: mpsc::UnboundedReceiver<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
    is_over: bool,
}

/// A line of the process.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    text: Option<String>,
    #[serde(borrow)]
    tool_call: Option<CallLine<'a>>,
    error: Option<String>,
    log: Option<String>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Of {
    id: String,
}

/// A tool call that the process makes, or has made.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallLine<'a> {
    #[serde(default)]
    id: String,
    name: String,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<String>,
    duration_ms: Option<f64>,
}

impl Lines {
    pub(super) fn new(program: Program) -> Self {
        let now = Instant::now();
        let starts = Starts { running: None, begun: now, not_before: now, pause: FIRST_PAUSE };
        Self { program, next_turn: AtomicU64::new(1), running: tokio::sync::Mutex::new(starts) }
    }

    /// Begins a turn with the process, which is started if there is none.
    async fn open(&self) -> Result<Talk, End> {
        let mut starts = self.running.lock().await;
        let has_ended = |running: &Running| running.open.lock().ended.is_some();
        if starts.running.as_ref().is_none_or(has_ended) {
            if starts.running.take().is_some() {
                let lived = starts.begun.elapsed() > LIVED;
                let pause = if lived { FIRST_PAUSE } else { starts.pause };
                starts.not_before = Instant::now() + pause.mul_f64(fastrand::f64());
                starts.pause = (pause * 2).min(LONGEST_PAUSE);
            }
            tokio::time::sleep_until(starts.not_before).await;
            starts.begun = Instant::now();
            let group = self.program.start().map_err(|why| End::Broken(gone(&why.to_string())))?;
            starts.running = Running::of(self.program.name(), group);
        }
        let Some(Running { stdin, open, .. }) = &starts.running else {
            return Err(End::Broken(gone("the command was not started")));
        };
        let id = self.next_turn.fetch_add(1, Ordering::Relaxed).to_string();
        let (sender, lines) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        {
            let mut open = open.lock();
            if let Some(why) = &open.ended {
                return Err(End::failed(Code::Internal, "COMMAND_FAILED", why.clone()));
            }
            open.turns.insert(id.clone(), Inbox { lines: sender, waiting: Arc::clone(&waiting) });
        }
        Ok(Talk { id, stdin: stdin.clone(), open: Arc::clone(open), lines, waiting, is_over: false })
    }
}

impl Running {
    /// Speaks with a process until it says no more; `None`: it has no pipes.
    fn of(name: String, mut group: Group) -> Option<Self> {
        let (stdin, stdout) = group.pipes()?;
        let (sender, unread) = mpsc::channel(UNREAD_LINES);
        let open: Arc<Mutex<Open>> = Arc::default();
        let turns = Arc::clone(&open);
        let task = tokio::spawn(async move {
            let mut heard = AbortOnDropHandle::new(tokio::spawn(group.hear()));
            let why = tokio::select! {
                why = hear(stdout, &turns) => why,
                never = write(stdin, unread) => match never {},
            };
            let why = match why {
                Some(why) => why,
                None => group.ending(async { (&mut heard).await.unwrap_or_default() }).await,
            };
            let mut open = turns.lock();
            open.ended = Some(format!("{name} {why}"));
            open.turns.clear();
        });
        Some(Self { stdin: sender, open, _task: AbortOnDropHandle::new(task) })
    }
}

/// Gives the process what it is told. One that closes its stdin still may have something to say.
async fn write(mut stdin: ChildStdin, mut lines: mpsc::Receiver<Vec<u8>>) -> std::convert::Infallible {
    while let Some(line) = lines.recv().await {
        let _ = stdin.write_all(&line).await;
    }
    std::future::pending().await
}

/// Gives each line of the process to its turn, until it says no more; or why it is not listened to any more.
async fn hear(stdout: ChildStdout, open: &Mutex<Open>) -> Option<String> {
    let mut stdout = BufReader::new(stdout);
    loop {
        let line = match next_line(&mut stdout).await {
            Ok(Some(line)) => line,
            Ok(None) => return None,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Some(format!("said a line of more than {MAX_TEXT_BYTES} bytes"));
            }
            Err(error) => return Some(format!("cannot be heard: {error}")),
        };
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let Ok(Of { id }) = serde_json::from_slice(&line) else {
            let beginning = clip(&printable(&String::from_utf8_lossy(&line)), SHOWN);
            return Some(format!("said a line that is no JSON object with the id of a turn: {beginning}"));
        };
        let mut open = open.lock();
        // What comes late for a turn that is over is nobody's.
        let Some(inbox) = open.turns.get(&id) else { continue };
        let bytes = cost(&line);
        if inbox.waiting.fetch_add(bytes, Ordering::Relaxed) + bytes > UNREPORTED || inbox.lines.send(line).is_err() {
            open.turns.remove(&id);
        }
    }
}

/// What a line takes while it waits, about.
const fn cost(line: &[u8]) -> usize {
    line.len() + size_of::<Vec<u8>>() + 64
}

/// The next line without its end; one of more than [`MAX_TEXT_BYTES`] is invalid data.
async fn next_line(stdout: &mut BufReader<ChildStdout>) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    if stdout.take(MAX_TEXT_BYTES as u64 + 1).read_until(b'\n', &mut line).await? == 0 {
        return Ok(None);
    }
    match line.last() {
        Some(b'\n') => drop(line.pop()),
        _ if line.len() > MAX_TEXT_BYTES => return Err(io::ErrorKind::InvalidData.into()),
        _ => {}
    }
    Ok(Some(line))
}

impl Talk {
    async fn say(&self, line: String) {
        // One that has ended hears nothing, which the turn learns by its own lines.
        let _ = self.stdin.send((line + "\n").into_bytes()).await;
    }

    /// Why there are no further lines.
    fn ending(&self) -> End {
        if let Some(why) = self.open.lock().ended.clone() {
            return End::failed(Code::Internal, "COMMAND_FAILED", why);
        }
        let message = format!("the command said more than {UNREPORTED} bytes that nobody has taken yet");
        End::failed(Code::ResourceExhausted, "TOO_MUCH_UNREAD", message)
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        self.open.lock().turns.remove(&self.id);
        if !self.is_over {
            // One that reads nothing cannot be told.
            let _ = self.stdin.try_send(format!("{{\"id\":\"{}\",\"cancel\":true}}\n", self.id).into_bytes());
        }
    }
}

/// Has the process answer a turn.
pub(super) async fn answer(lines: &Lines, turn: &Turn) -> Result<Answer, End> {
    let body = question(turn)?;
    let mut talk = lines.open().await?;
    turn.accept().await;
    let mode = match turn.mode() {
        ToolMode::Stub => "stub",
        ToolMode::RoutingOnly => "routing",
        ToolMode::Live | ToolMode::Unspecified => "live",
    };
    let rest = String::from_utf8_lossy(&body);
    let rest = rest.trim_start().trim_start_matches('{');
    talk.say(format!("{{\"id\":\"{}\",\"toolMode\":\"{mode}\",{rest}", talk.id)).await;
    let mut waiting = FuturesUnordered::new();
    loop {
        let line = tokio::select! {
            line = talk.lines.recv() => line,
            Some(returned) = waiting.next(), if !waiting.is_empty() => {
                let (id, outcome): (String, Result<Outcome, End>) = returned;
                let result = result_line(&talk.id, &id, &outcome?);
                talk.say(result).await;
                continue;
            }
        };
        let Some(line) = line else { return Err(talk.ending()) };
        talk.waiting.fetch_sub(cost(&line), Ordering::Relaxed);
        let bad = |why: &str| {
            let beginning = clip(&printable(&String::from_utf8_lossy(&line)), SHOWN);
            End::failed(Code::Internal, "BAD_ANSWER", format!("the command said a line {why}: {beginning}"))
        };
        let Line { text, tool_call, error, log, response } =
            serde_json::from_slice(&line).map_err(|error| bad(&format!("that cannot be read ({error})")))?;
        if let Some(message) = error {
            talk.is_over = true;
            return Err(End::failed(Code::Internal, "COMMAND_ERROR", message));
        }
        let is_known = text.is_some() || tool_call.is_some() || log.is_some();
        if let Some(message) = log {
            turn.log("info", message).await;
        }
        if let Some(text) = &text {
            turn.say(text).await?;
        }
        if let Some(call) = &tool_call {
            let params = match call.params {
                Some(params) => Ok(raw(params)),
                None => Err("the command did not say them".to_owned()),
            };
            let wanted = Wanted { id: call.id.clone(), name: call.name.clone(), params };
            let made = turn.call(wanted).await?;
            match (turn.mode(), outcome_of(call)) {
                (ToolMode::Stub | ToolMode::RoutingOnly, _) => {
                    let id = call.id.clone();
                    waiting.push(async move { (id, turn.run(made, std::future::pending()).await) });
                }
                (_, Some(outcome)) => {
                    let time = call.duration_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok());
                    turn.returned(made.id(), outcome, time).await;
                }
                (_, None) => return Err(bad("with a tool call without result and error, and its tools run for real")),
            }
        }
        if response.is_some() {
            talk.is_over = true;
            return plain::answer(turn, &line).await?.map_err(|why| bad(&format!("that has {why}")));
        }
        if !is_known {
            return Err(bad("without text, toolCall, log, error and response"));
        }
    }
}

fn raw(value: &RawValue) -> Json {
    Json { form: Some(json::Form::Raw(value.get().as_bytes().to_vec())) }
}

/// What came of a call that the process has run itself, if it says so.
fn outcome_of(call: &CallLine<'_>) -> Option<Outcome> {
    match (&call.error, call.result) {
        (Some(message), _) => Some(Outcome::Error(Fault {
            grpc_code: Code::Unknown.into(),
            reason: "TOOL_FAILED".to_owned(),
            message: message.clone(),
            origin: FaultOrigin::Tool.into(),
            ..Fault::default()
        })),
        (None, Some(result)) => Some(Outcome::Result(raw(result))),
        (None, None) => None,
    }
}

/// What the process is told of a call.
fn result_line(turn: &str, call: &str, outcome: &Outcome) -> String {
    let call = serde_json::Value::from(call);
    let member = match outcome {
        Outcome::Error(fault) => format!("\"error\":{}", serde_json::Value::from(fault.message.as_str())),
        Outcome::Result(result) => {
            let text = match &result.form {
                Some(json::Form::Raw(text)) => String::from_utf8_lossy(text).replace(['\n', '\r'], " "),
                _ => "null".to_owned(),
            };
            format!("\"result\":{text}")
        }
    };
    format!("{{\"id\":\"{turn}\",\"toolResult\":{{\"id\":{call},{member}}}}}")
}
