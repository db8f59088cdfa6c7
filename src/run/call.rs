//! One call of an agent, from connecting to the last event, under one deadline.
//!
//! The deadline is the daemon's: when it passes, or the run is cancelled, the verdict is there at once and the case's
//! slot is free. The agent still gets a cancel frame and its grace, in a task of its own ([`super::Farewells`]), before
//! the stream is reset.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::{Code, Status, Streaming};

use super::control::Farewells;
use super::pulse::stood_still;
use super::reach::Trying;
use super::replay::{Evidence, digest_of_call};
use super::shared::{Callee, Shared};
use crate::conversation::{
    AgentEvent, AgentEventKind, Blob, CancelReason, Exchange, Failure, Fault, FaultOrigin, Invocation, Message, Part,
    Payload as Json, Source, ToolCall, ToolOutcome, large_contents,
};
use crate::event::{CallEnd, CaseRef, Payload};
use crate::peer::agent::{
    AGENT_MISCONFIGURED, AGENT_UNREACHABLE, Backoff, Outgoing, STAND_IN, Sent, Standing, Trouble, trouble,
};
use crate::peer::output::Output;
use crate::peer::spans::reconcile;
use crate::peer::stream::{Leniency, Recording};
use crate::suite::stub::{Answer, Stub};
use crate::trace::{SpanId, TraceHeaders};
use crate::wire::agent::{InvokeRequest, InvokeResponse, InvokeStart, invoke_request};
use crate::wire::bounded::{SMALL, weigh};
use crate::wire::call::{cancel_to_proto, event_from_proto, start_to_proto, tool_result_to_proto};
use crate::wire::value::duration_to_proto;
use crate::work::{QUICK_BYTES, Undecided, in_place, read_apart};

/// Time an agent has to end a call after a cancel.
const GRACE: Duration = Duration::from_secs(2);
/// What an agent takes that does not say how large a message may be: the default of most gRPC stacks.
const DEFAULT_MESSAGE_LIMIT: u64 = 4 << 20;
/// Most results of tools that wait for an agent to read them.
const MAX_WAITING_RESULTS: usize = 1_000;
/// What agents declare that export spans of what they do to wherever runs are looked at.
const EXPORTS_SPANS: &str = "spans.export";
/// What agents declare whose spans are evidence.
const FROM_SPANS: &str = "tools.from_spans";
/// Bytes of a conversation that the log keeps for traces: as much as is exported.
const MAX_TRACED: usize = 48 << 10;
/// What a message counts besides its text, and each part of one: about what the names around it take when it is exported.
const TRACED_PART: usize = 40;
/// Time an agent has to end the stream after `finished`.
const CLOSING: Duration = Duration::from_secs(1);

/// What to call, and how.
pub(super) struct Call<'a> {
    pub(super) shared: &'a Shared,
    pub(super) callee: &'a Callee,
    pub(super) case: &'a CaseRef,
    pub(super) invocation: Invocation,
    /// What the daemon answers to tool calls; `None` when the agent runs its own tools.
    pub(super) stubs: Option<&'a [(String, Stub)]>,
    pub(super) deadline: Instant,
}

/// The time of a call. What the daemon stands still meanwhile does not count, nor what it takes to read what is large.
struct Time {
    deadline: Instant,
    /// How long the daemon had stood still when the call began.
    stood_before: Duration,
    /// How long it read while the agent's time did not run, in microseconds.
    read: AtomicU64,
}

impl Time {
    fn until(deadline: Instant) -> Self {
        Self { deadline, stood_before: stood_still(), read: AtomicU64::new(0) }
    }

    /// How long the daemon read what is large.
    fn read(&self) -> Duration {
        Duration::from_micros(self.read.load(Ordering::Relaxed))
    }

    /// Time since the start frame was taken, as far as it is the agent's.
    fn of_agent(&self, sent: Option<Instant>) -> Duration {
        sent.map_or(Duration::ZERO, |sent| sent.elapsed().saturating_sub(self.read()))
    }

    fn end(&self) -> Instant {
        self.deadline + self.stood() + self.read()
    }

    /// How long the daemon stood still since the call began.
    fn stood(&self) -> Duration {
        stood_still().saturating_sub(self.stood_before)
    }

    fn left(&self) -> Duration {
        self.end().saturating_duration_since(Instant::now())
    }

    /// Waits until it is up. A daemon that slept while it ran out goes on reading: what had come until then counts.
    async fn up(&self) {
        loop {
            tokio::time::sleep_until(self.end()).await;
            if self.left().is_zero() {
                return;
            }
        }
    }
}

impl Call<'_> {
    fn standing(&self, sent: bool, answered: bool) -> Standing {
        Standing { sent, answered, stands_in: self.callee.can(STAND_IN) }
    }

    /// Whether the agent is the one under test. That one is of the run, whatever it is called.
    fn is_to_agent_under_test(&self) -> bool {
        self.callee.agent.name == self.shared.callee.agent.name
    }

    /// Notes that nobody was there when the call tried to reach the agent at `since`, and whether it is to try again. When nobody
    /// answered for too long, the agent is given up, and with it the run if it is the one under test.
    fn missed(&self, trying: &mut Option<Trying>, since: Instant, last: &str) {
        let trying = trying.get_or_insert_with(|| self.callee.reach.missed(since));
        let Some(time) = trying.give_up().filter(|_| self.is_to_agent_under_test()) else { return };
        let (name, url, seconds) = (&self.callee.agent.name, &self.callee.agent.url, time.as_secs_f64());
        self.shared.control.lose(Fault {
            code: Code::Unavailable.into(),
            reason: AGENT_UNREACHABLE.to_owned(),
            message: format!(
                "agent {name:?}: nothing answers at {url} any more, for {seconds:.1} s now; the last attempt: {last}"
            ),
            origin: FaultOrigin::Transport,
            retryable: true,
        });
    }

    /// Notes that whoever stands in for the agent tried since then to reach it, in vain.
    fn beyond(&self, since: Instant, why: String) -> Failure {
        self.missed(&mut None, since, &why);
        Failure::Unreachable(why)
    }

    /// Notes that the agent takes no call as things are set up. If it answered no other one and is under test, the run ends.
    fn misconfigured(&self, why: String) -> Failure {
        if self.is_to_agent_under_test() && self.callee.reach.takes_none() {
            self.shared.control.lose(Fault {
                code: Code::FailedPrecondition.into(),
                reason: AGENT_MISCONFIGURED.to_owned(),
                message: format!("agent {:?}: {why}", self.callee.agent.name),
                origin: FaultOrigin::Transport,
                retryable: false,
            });
        }
        Failure::Unreachable(why)
    }
}

type Opening = Pin<Box<dyn Future<Output = Result<Streaming<InvokeResponse>, Status>> + Send>>;

/// The agent's side of a call.
enum Far {
    /// The call was sent, no answer came yet.
    Opening(Opening),
    /// Events come.
    Open(Box<Streaming<InvokeResponse>>),
}

/// Makes the call and returns what was recorded, with the reason if it is no answer. What came of it is logged, so that it can be
/// played back.
pub(super) async fn call(call: Call<'_>) -> Exchange {
    let digest = digest_of_call(&call.invocation, call.stubs);
    let is_under_test = call.is_to_agent_under_test();
    let to = if is_under_test { String::new() } else { call.callee.agent.name.clone() };
    let is_known = is_under_test || call.shared.evidence.is_some();
    let endpoint = if is_known { String::new() } else { call.callee.agent.url.clone() };
    let began = Timestamp::now();
    let time = Time::until(call.deadline);
    let mut exchange = match &call.shared.evidence {
        None => watched(&call, &time).await,
        Some(evidence) => play_back(&call, evidence, &to, &digest).await,
    };
    for tool in &mut exchange.transcript.tool_calls {
        tool.turn = call.invocation.turn;
    }
    let stood = time.stood();
    if !stood.is_zero() {
        undecided(&mut exchange, stood);
    }
    // Connecting is not part of it, and neither is what the daemon waited for afterwards.
    let took = exchange.transcript.duration;
    let ended_at = Timestamp::now().checked_sub(took + exchange.waited);
    let began = if took.is_zero() { began } else { ended_at.unwrap_or(began).max(began) };
    let ended = CallEnd {
        to,
        digest,
        failure: exchange.failure.clone(),
        // The last event of the agent holds its answer, if it is a good one.
        response: (!exchange.is_told_whole).then(|| exchange.transcript.response.clone()),
        commentary: exchange.transcript.commentary.clone(),
        is_before_a_call: exchange.is_before_a_call,
        duration: exchange.transcript.duration,
        invocation_id: call.invocation.invocation_id.clone(),
        conversation_id: call.invocation.conversation_id.clone(),
        began: Some(began),
        exports_spans: call.callee.can(EXPORTS_SPANS),
        input: if call.shared.spec.capture_content { for_traces(&call.invocation.messages, None) } else { Vec::new() },
        endpoint,
        cancel: exchange.cancel,
        grpc_status: exchange.grpc_status,
    };
    call.shared.journal.case(call.case, call.invocation.turn, Payload::CallEnded(Box::new(ended))).await;
    exchange.waited += stood + time.read();
    exchange
}

/// Reads something of so many bytes that the agent sent. Its time does not run meanwhile: what it sent was there.
///
/// # Errors
/// How the call ends if it cannot be read.
async fn read<T: Send + 'static>(
    call: &Call<'_>,
    time: &Time,
    bytes: usize,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, (Failure, CancelReason)> {
    if bytes <= QUICK_BYTES {
        return Ok(job());
    }
    let began = Instant::now();
    // Apart, so that the task of every other case is small.
    let read = Box::pin(read_apart(&call.shared.run_id, bytes, &call.shared.control.cancel, job)).await;
    let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
    time.read.fetch_add(took, Ordering::Relaxed);
    read.map_err(|why| match why {
        Undecided::Stopped => (Failure::Cancelled, call.shared.control.reason()),
        why => {
            let why = format!("the daemon could not read what the agent sent: {why}");
            (Failure::Stalled(why), CancelReason::Budget)
        }
    })
}

/// Takes from the agent what is the fault of a daemon that stood still for so long during its call: the time, and that
/// it was given up for by whoever kept its time.
fn undecided(exchange: &mut Exchange, stood: Duration) {
    let Exchange { transcript, failure, warnings, grpc_status, .. } = exchange;
    transcript.duration = transcript.duration.saturating_sub(stood);
    let seconds = stood.as_secs_f64();
    let gave_up = [Code::DeadlineExceeded, Code::Cancelled, Code::Unavailable].map(i32::from);
    let is_its_word = grpc_status.is_none_or(|status| gave_up.contains(&status));
    match failure {
        // Its time was longer by as much, so that it is its own.
        Some(Failure::Timeout) if exchange.cancel == Some(CancelReason::Budget) => {}
        Some(Failure::Timeout) => *failure = Some(Failure::Stalled(gave_up_while(seconds))),
        Some(Failure::Agent(_) | Failure::Lost(_)) if is_its_word => {
            *failure = Some(Failure::Stalled(gave_up_while(seconds)));
        }
        _ => {}
    }
    warnings.push(format!("the daemon stood still for {seconds:.1} s during the call, which is not counted"));
}

fn gave_up_while(seconds: f64) -> String {
    format!(
        "the daemon stood still for {seconds:.1} s, and the call was given up meanwhile: nobody can tell how it would have ended"
    )
}

/// Makes the call, and reads its spans if they are evidence.
async fn watched(call: &Call<'_>, time: &Time) -> Exchange {
    let shared = call.shared;
    if !call.callee.can(FROM_SPANS) {
        return made(call, time).await;
    }
    let invocation_id = &call.invocation.invocation_id;
    let awaited = shared.spans.expect(shared.trace.trace_id, SpanId::of_call(invocation_id), invocation_id);
    let mut exchange = made(call, time).await;
    if exchange.failure.is_some() {
        // Nothing is judged.
        return exchange;
    }
    let read = tokio::select! {
        () = shared.control.cancel.cancelled() => return Exchange { failure: Some(Failure::Cancelled), ..exchange },
        read = awaited.read(exchange.spans_flushed, shared.span_wait) => read,
    };
    exchange.waited = read.waited;
    let bytes = exchange.transcript.size();
    exchange.warnings.extend(in_place(bytes, || reconcile(&mut exchange.transcript, &read)));
    shared.journal.case(call.case, call.invocation.turn, Payload::SpansRead(Box::new(read))).await;
    exchange
}

/// Plays back what the agent answered then. Its events are written to the log of this run, too.
async fn play_back(call: &Call<'_>, evidence: &Evidence, to: &str, digest: &str) -> Exchange {
    let turn = call.invocation.turn;
    let answered = match evidence.answered(call.case, turn, to, digest).await {
        Ok(events) => {
            for event in &events {
                if matches!(event.payload, Payload::Agent(_) | Payload::StubServed { .. } | Payload::SpansRead(_)) {
                    call.shared.journal.case(call.case, turn, event.payload.clone()).await;
                }
            }
            evidence.exchange(&events, call.invocation.tool_mode)
        }
        Err(why) => Err(why),
    };
    answered.unwrap_or_else(|why| Exchange { failure: Some(Failure::Suite(why)), ..Exchange::default() })
}

/// What was said, for traces: the last messages and the answer behind them, if there is one, without files, of so many bytes at most.
pub(super) fn for_traces(messages: &[Message], answer: Option<&str>) -> Vec<Message> {
    fn kept(text: &str, left: &mut usize) -> String {
        let kept = &text[..text.floor_char_boundary(*left)];
        *left -= kept.len();
        kept.to_owned()
    }
    let part = |part: &Part, left: &mut usize| match part {
        Part::Text(text) => Part::Text(kept(text, left)),
        Part::Reasoning(text) => Part::Reasoning(kept(text, left)),
        Part::Data(json) => Part::Text(kept(json.as_str(), left)),
        Part::Blob(blob) => {
            let (media_type, name) = (kept(&blob.media_type, left), kept(&blob.name, left));
            let source = match &blob.source {
                Source::Uri(uri) => Source::Uri(kept(uri, left)),
                Source::File(_) | Source::Content(_) => Source::File(String::new()),
            };
            Part::Blob(Blob { media_type, name, source, written: None })
        }
    };
    let mut left = MAX_TRACED;
    let mut last: Vec<Message> = answer.map(|answer| Message::assistant(kept(answer, &mut left))).into_iter().collect();
    for message in messages.iter().rev() {
        if left == 0 {
            break;
        }
        left = left.saturating_sub(TRACED_PART);
        let mut parts = Vec::new();
        for of in &message.parts {
            if left == 0 {
                break;
            }
            // What says nothing takes room, too.
            left = left.saturating_sub(TRACED_PART);
            parts.push(part(of, &mut left));
        }
        last.push(Message { role: message.role, parts });
    }
    last.reverse();
    last
}

async fn made(call: &Call<'_>, time: &Time) -> Exchange {
    let Invocation { max_model_turns, tool_mode, .. } = call.invocation;
    let mut recording = Recording::new(tool_mode).limited_to(max_model_turns);
    let mut output = call.shared.outputs.begin();
    let (mut stream, frames, sent) = match open(call, time).await {
        Ok(opened) => opened,
        Err(NotOpened { failure, sent, cancel, grpc_status }) => {
            return Exchange { cancel, grpc_status, ..end(call, time, recording, Some(failure), sent).await };
        }
    };
    // Results that are not due, or that the agent has not taken yet: while it does not read, we still do.
    let mut results: BTreeMap<(Instant, usize), StubResult> = BTreeMap::new();
    let mut calls_answered = 0;
    let failure = loop {
        let message = tokio::select! {
            biased;
            () = call.shared.control.cancel.cancelled() => break Some((Failure::Cancelled, call.shared.control.reason())),
            () = time.up() => break Some((Failure::Timeout, CancelReason::Budget)),
            Some(permit) = place_for_result(&results, &frames) => {
                if let Some((_, result)) = results.pop_first() {
                    result.send(call, permit).await;
                }
                continue;
            }
            message = stream.message() => message,
        };
        match message {
            Ok(Some(message)) => {
                if recording.is_empty() {
                    call.callee.reach.delivered();
                }
                match take(call, time, &mut recording, &mut output, message, &sent).await {
                    Ok(None) => {}
                    Ok(Some((delay, result))) => {
                        calls_answered += 1;
                        results.insert((Instant::now() + delay, calls_answered), result);
                    }
                    Err(ended) => break Some(ended),
                }
                if let Some(most) = recording.exceeded() {
                    break Some((Failure::MaxTurns(most), CancelReason::MaxTurns));
                }
                let due = || results.range(..=(Instant::now(), usize::MAX)).count();
                if results.len() > MAX_WAITING_RESULTS && due() > MAX_WAITING_RESULTS {
                    let broken =
                        format!("it does not read the results of its tools: {MAX_WAITING_RESULTS} are waiting");
                    break Some((Failure::Protocol(broken), CancelReason::ProtocolError));
                }
                if recording.is_finished() {
                    call.callee.reach.answered();
                    break None;
                }
            }
            Ok(None) => {
                let ended = end(call, time, recording, None, sent.at()).await;
                return Exchange { grpc_status: Some(Code::Ok.into()), ..ended };
            }
            Err(status) => {
                let failure = match trouble(&status, call.standing(true, !recording.is_empty())) {
                    Trouble::Over(failure) => failure,
                    Trouble::NotDelivered(message) => Failure::Lost(message),
                    Trouble::Beyond(message) => call.beyond(sent.at().unwrap_or_else(Instant::now), message),
                    Trouble::Misconfigured(message) => call.misconfigured(message),
                };
                let grpc_status = Some(status.code().into());
                return Exchange { grpc_status, ..end(call, time, recording, Some(failure), sent.at()).await };
            }
        }
    };
    if let Some((failure, reason)) = failure {
        say_farewell(&call.shared.farewells, Far::Open(Box::new(stream)), frames, reason);
        let (cancel, grpc_status) = (Some(reason), Some(status_of(reason)));
        return Exchange { cancel, grpc_status, ..end(call, time, recording, Some(failure), sent.at()).await };
    }
    // Only now: an agent may take the end of our side for a cancel.
    drop(frames);
    let closing = tokio::select! {
        closing = tokio::time::timeout(CLOSING, stream.message()) => closing,
        // The answer is there; that it has to hurry now is not the agent's fault.
        () = call.shared.control.cancel.cancelled() => Ok(Ok(None)),
    };
    let (failure, status) = match closing {
        Ok(Ok(None)) => (None, Code::Ok),
        Ok(Ok(Some(_))) => {
            let broken = "an event came after `finished`, which must be the last".to_owned();
            (Some(Failure::Protocol(broken)), Code::Cancelled)
        }
        other => {
            report(call, Leniency::LeftOpen).await;
            (None, if let Ok(Err(status)) = other { status.code() } else { Code::Cancelled })
        }
    };
    let failure = failure.or_else(|| recording.failure());
    Exchange { grpc_status: Some(status.into()), ..recorded(call, time, recording, failure).await }
}

/// What a call ends with, for us, that the daemon ends.
fn status_of(reason: CancelReason) -> i32 {
    match reason {
        CancelReason::Budget => Code::DeadlineExceeded,
        CancelReason::User
        | CancelReason::FailFast
        | CancelReason::ProtocolError
        | CancelReason::Shutdown
        | CancelReason::Decided
        | CancelReason::MaxTurns => Code::Cancelled,
    }
    .into()
}

type Opened = (Streaming<InvokeResponse>, mpsc::Sender<InvokeRequest>, Sent);

/// A call that did not come to its first event.
struct NotOpened {
    failure: Failure,
    /// When the start frame was taken, if it was.
    sent: Option<Instant>,
    cancel: Option<CancelReason>,
    grpc_status: Option<i32>,
}

impl NotOpened {
    /// The daemon ended a call that was under way.
    fn ended(failure: Failure, sent: Instant, reason: CancelReason) -> Self {
        Self { failure, sent: Some(sent), cancel: Some(reason), grpc_status: Some(status_of(reason)) }
    }

    /// Nothing was made that the agent could know of.
    fn at_all(failure: Failure, grpc_status: Option<Code>) -> Self {
        Self { failure, sent: None, cancel: None, grpc_status: grpc_status.map(Code::into) }
    }
}

/// Opens the call. Until the start frame is taken this is repeated as often as the deadline allows, after that never.
async fn open(call: &Call<'_>, time: &Time) -> Result<Opened, NotOpened> {
    let begun = Instant::now();
    let mut backoff = Backoff::new();
    let mut last = "no connection".to_owned();
    let unreachable = |backoff: &Backoff, last: &str| {
        let (attempts, seconds) = (backoff.attempts().max(1), begun.elapsed().as_secs_f64());
        Failure::Unreachable(format!(
            "{}: {attempts} attempts in {seconds:.1} s, the last one: {last}",
            call.callee.agent.url
        ))
    };
    let span = SpanId::of_call(&call.invocation.invocation_id);
    let invocation = &call.invocation;
    let trace = call.shared.trace.headers(span, Some((&invocation.case_id, &invocation.invocation_id)));
    let mut trying = None;
    // What is put before the agent is made and measured once, whatever the number of attempts.
    let bytes = invocation.options.as_ref().map_or(0, |options| options.as_str().len());
    let limit = call.callee.description.max_message_bytes.unwrap_or(DEFAULT_MESSAGE_LIMIT);
    let (asked, headers) = (invocation.clone(), trace.clone());
    let start = match read(call, time, bytes, move || start_of(&asked, &headers, limit)).await {
        Ok(Ok(start)) => start,
        Ok(Err(why)) => return Err(NotOpened::at_all(Failure::Suite(why), None)),
        Err((failure, _)) => return Err(NotOpened::at_all(failure, None)),
    };
    loop {
        if call.callee.reach.is_gone() {
            let given_up =
                || Failure::Unreachable(format!("{} was given up, as nobody answers there", call.callee.agent.url));
            let failure = if backoff.attempts() == 0 { given_up() } else { unreachable(&backoff, &last) };
            return Err(NotOpened::at_all(failure, None));
        }
        let since = Instant::now();
        let left = time.left();
        let mut start = start.clone();
        // It shrinks while we wait for a connection.
        if let Some(invoke_request::Frame::Start(InvokeStart { context: Some(context), .. })) = &mut start.frame {
            context.budget = Some(duration_to_proto(left));
        }
        let (outgoing, frames, sent) = Outgoing::new(start, large_contents(&call.invocation.messages));
        let (agent, trace) = (call.callee.agent.clone(), trace.clone());
        // The start frame is queued before the call is awaited: many servers send their headers with the first event.
        let mut opening: Opening = Box::pin(async move { agent.invoke(outgoing, left + GRACE, &trace).await });
        let status = tokio::select! {
            biased;
            () = call.shared.control.cancel.cancelled() => {
                let Some(at) = sent.at() else {
                    return Err(NotOpened::at_all(Failure::Cancelled, None));
                };
                let reason = call.shared.control.reason();
                say_farewell(&call.shared.farewells, Far::Opening(opening), frames, reason);
                return Err(NotOpened::ended(Failure::Cancelled, at, reason));
            }
            () = time.up() => {
                let Some(at) = sent.at() else {
                    // Nothing failed: there was no time left to begin with.
                    let had_time = begun < call.deadline;
                    return Err(if had_time {
                        NotOpened::at_all(unreachable(&backoff, &last), Some(Code::DeadlineExceeded))
                    } else {
                        NotOpened::at_all(Failure::Timeout, None)
                    });
                };
                say_farewell(&call.shared.farewells, Far::Opening(opening), frames, CancelReason::Budget);
                return Err(NotOpened::ended(Failure::Timeout, at, CancelReason::Budget));
            }
            opened = &mut opening => match opened {
                Ok(stream) => return Ok((stream, frames, sent)),
                Err(status) => status,
            },
        };
        match trouble(&status, call.standing(sent.at().is_some(), false)) {
            Trouble::Over(failure) => {
                let grpc_status = Some(status.code().into());
                return Err(NotOpened { failure, sent: sent.at(), cancel: None, grpc_status });
            }
            Trouble::Misconfigured(message) => {
                let (failure, grpc_status) = (call.misconfigured(message), Some(status.code().into()));
                return Err(NotOpened { failure, sent: sent.at(), cancel: None, grpc_status });
            }
            Trouble::Beyond(message) => {
                return Err(NotOpened::at_all(call.beyond(since, message), Some(status.code())));
            }
            Trouble::NotDelivered(message) => last = message,
        }
        call.missed(&mut trying, since, &last);
        tokio::select! {
            () = call.callee.reach.gone() => {}
            () = call.shared.control.cancel.cancelled() => {
                return Err(NotOpened::at_all(Failure::Cancelled, Some(status.code())));
            }
            () = time.up() => {
                return Err(NotOpened::at_all(unreachable(&backoff, &last), Some(status.code())));
            }
            () = tokio::time::sleep(backoff.pause()) => {}
        }
    }
}

/// The first frame of a call.
///
/// # Errors
/// Why the agent cannot be sent it.
fn start_of(invocation: &Invocation, trace: &TraceHeaders, limit: u64) -> Result<InvokeRequest, String> {
    let start = start_to_proto(invocation, trace);
    let bytes = start.encoded_len();
    if bytes as u64 > limit {
        return Err(format!("the case needs a message of {bytes} bytes, and the agent takes {limit}"));
    }
    // What we would not read ourselves is not put before an agent, which would be blamed for it.
    if bytes > SMALL {
        let weighed = weigh::<InvokeRequest>(&start.encode_to_vec());
        weighed.map_err(|unread| format!("the case needs a message of {bytes} bytes, and {unread}"))?;
    }
    Ok(start)
}

/// Takes one event into the record and into the log, and returns what the daemon answers and after what delay, if the
/// event asks for something. An error is how the call ends with it.
async fn take(
    call: &Call<'_>,
    time: &Time,
    recording: &mut Recording,
    output: &mut Output,
    message: InvokeResponse,
    sent: &Sent,
) -> Result<Option<(Duration, StubResult)>, (Failure, CancelReason)> {
    let broke = |rule: String| Err((Failure::Protocol(rule), CancelReason::ProtocolError));
    let (bytes, at) = (message.encoded_len(), time.of_agent(sent.at()));
    if let Err(broken) = output.add(bytes) {
        return broke(broken);
    }
    let event = match read(call, time, bytes, || event_from_proto(message)).await {
        Ok(Ok(event)) => event,
        Ok(Err(error)) => return broke(error.to_string()),
        Err(ended) => return Err(ended),
    };
    let bent_before = recording.leniencies().len();
    if let Err(broken) = recording.take(&event, bytes, at) {
        return broke(broken);
    }
    for rule in recording.leniencies().iter().skip(bent_before) {
        report(call, *rule).await;
    }
    let result = match (&event.kind, call.stubs) {
        (AgentEventKind::ToolStarted { call: tool, .. }, Some(stubs)) => {
            let stub = stubs.iter().find(|(name, _)| *name == tool.name).map(|(_, stub)| stub);
            if bytes <= QUICK_BYTES {
                Some(stub_for(tool, stub))
            } else {
                let (tool, stub) = (tool.clone(), stub.cloned());
                match read(call, time, bytes, move || stub_for(&tool, stub.as_ref())).await {
                    Ok(result) => Some(result),
                    Err(ended) => return Err(ended),
                }
            }
        }
        _ => None,
    };
    log(call, event).await;
    Ok(result)
}

/// What the daemon answers to a tool call in place of the tool.
struct StubResult {
    call_id: String,
    outcome: ToolOutcome,
    /// Whether the case has no answer for this call.
    unstubbed: bool,
}

impl StubResult {
    async fn send(self, call: &Call<'_>, permit: mpsc::Permit<'_, InvokeRequest>) {
        let Self { call_id, outcome, unstubbed } = self;
        let result = tool_result_to_proto(&call_id, &outcome, unstubbed);
        let served = Payload::StubServed { call_id, outcome, unstubbed };
        call.shared.journal.case(call.case, call.invocation.turn, served).await;
        permit.send(InvokeRequest { frame: Some(invoke_request::Frame::ToolResult(result)) });
    }
}

/// Waits until the next result is due and the agent has room for it; `None` when nobody takes results any more.
async fn place_for_result<'a>(
    results: &BTreeMap<(Instant, usize), StubResult>,
    frames: &'a mpsc::Sender<InvokeRequest>,
) -> Option<mpsc::Permit<'a, InvokeRequest>> {
    let Some(((due, _), _)) = results.first_key_value() else { return std::future::pending().await };
    // A timer of no time still waits for the next millisecond.
    if *due > Instant::now() {
        tokio::time::sleep_until(*due).await;
    }
    frames.reserve().await.ok()
}

/// What the daemon answers to a tool call, and after what delay.
fn stub_for(call: &ToolCall, stub: Option<&Stub>) -> (Duration, StubResult) {
    let unstubbed = |message: String| Fault {
        code: tonic::Code::NotFound.into(),
        reason: "UNSTUBBED".to_owned(),
        message,
        origin: FaultOrigin::Daemon,
        retryable: false,
    };
    let result = |outcome, unstubbed| StubResult { call_id: call.call_id.clone(), outcome, unstubbed };
    let Some(stub) = stub else {
        let fault = unstubbed(format!("the case has no stub for the tool {:?}", call.name));
        return (Duration::ZERO, result(ToolOutcome::Error(fault), true));
    };
    let arguments = call.params.read();
    // What nobody can read fits nothing that a stub asks of it.
    let (answer, delay) = stub.answer(arguments.as_ref().map(Option::as_ref).unwrap_or_default());
    let result = match answer {
        Answer::Value(value) => result(ToolOutcome::Result(Some(Json::Json(value.clone()))), false),
        Answer::Error(message) => {
            let fault = Fault { origin: FaultOrigin::Tool, ..Fault::message(message) };
            result(ToolOutcome::Error(fault), false)
        }
        Answer::Nothing => {
            let message = match &arguments {
                Ok(_) => format!("the stub for the tool {:?} has no answer to these arguments", call.name),
                Err(why) => format!("the stub for the tool {:?} has no answer: the arguments {why}", call.name),
            };
            let fault = unstubbed(message);
            result(ToolOutcome::Error(fault), true)
        }
    };
    (delay, result)
}

/// Text deltas are not stored: they make up most of a stream, and the answer holds their text. Nor is it worth a word that a call
/// was accepted, which was sent.
async fn log(call: &Call<'_>, event: AgentEvent) {
    if matches!(event.kind, AgentEventKind::TextDelta { .. } | AgentEventKind::Accepted { .. }) {
        return;
    }
    call.shared.journal.case(call.case, call.invocation.turn, Payload::Agent(event)).await;
}

/// Reports a rule that the agent bent, once a run.
async fn report(call: &Call<'_>, rule: Leniency) {
    if !call.shared.is_news(rule) {
        return;
    }
    call.shared.journal.case(call.case, 0, Payload::Warning(rule.message().to_owned())).await;
}

/// Asks the agent to end the call and resets the stream after its grace, without holding up the case.
fn say_farewell(farewells: &Farewells, far: Far, frames: mpsc::Sender<InvokeRequest>, reason: CancelReason) {
    // When the queue is full the agent is not reading, and will not read this either.
    let _ = frames.try_send(cancel_to_proto(reason, GRACE));
    let hurry = farewells.hurry.clone();
    farewells.tasks.spawn(async move {
        let ending = async move {
            let _frames = frames;
            let mut stream = match far {
                Far::Open(stream) => stream,
                Far::Opening(opening) => match opening.await {
                    Ok(stream) => Box::new(stream),
                    Err(_) => return,
                },
            };
            while let Ok(Some(_)) = stream.message().await {}
        };
        // Dropping the stream resets it.
        tokio::select! {
            _ = tokio::time::timeout(GRACE, ending) => {}
            () = hurry.cancelled() => {}
        }
    });
}

/// The exchange of a call that ended without `finished`.
async fn end(
    call: &Call<'_>,
    time: &Time,
    recording: Recording,
    failure: Option<Failure>,
    sent: Option<Instant>,
) -> Exchange {
    let duration = time.of_agent(sent);
    let failure = failure.or_else(|| recording.failure());
    let mut exchange = recorded(call, time, recording, failure).await;
    exchange.transcript.duration = duration;
    exchange
}

/// What was recorded, with remarks about it.
async fn recorded(call: &Call<'_>, time: &Time, recording: Recording, failure: Option<Failure>) -> Exchange {
    let read = read(call, time, recording.odd_bytes(), || recording.into_exchange(failure)).await;
    read.unwrap_or_else(|(failure, _)| Exchange { failure: Some(failure), ..Exchange::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::Role;

    /// Of a long conversation traces hold the end, of a long message the beginning.
    #[test]
    fn what_traces_are_told() {
        let file = Blob {
            media_type: "image/png".to_owned(),
            name: "a.png".to_owned(),
            source: Source::Uri("data:".to_owned() + &"x".repeat(MAX_TRACED)),
            written: None,
        };
        let messages = [
            Message::user("é".repeat(MAX_TRACED)),
            Message { role: Role::User, parts: vec![Part::Text("look".to_owned()), Part::Blob(file)] },
            Message::assistant("I see"),
        ];
        let texts = |told: &[Message]| told.iter().map(Message::text).collect::<Vec<_>>();
        let alone = for_traces(&[], Some(&"é".repeat(MAX_TRACED)));
        assert_eq!(alone[0].text().len(), MAX_TRACED);
        let told = for_traces(&messages, Some("fine"));
        assert_eq!(texts(&told[1..]), ["I see", "fine"]);
        assert!(texts(&told)[0].starts_with("look"), "of what does not fit as a whole the beginning is told");
        let empty = Message { role: Role::User, parts: vec![Part::Text(String::new()); 100_000] };
        let told = for_traces(&vec![empty; 10], None);
        assert!(told.iter().map(|message| message.parts.len()).sum::<usize>() < 2_000);
    }
}
