//! One call of an agent in a run: its deadline, the stubs that answer its tool calls, and what the log holds of it.
//!
//! The deadline is the daemon's: when it passes, or the run is cancelled, the verdict is there at once and the case's
//! slot is free. The agent still gets a cancel frame and its grace, in a task of its own
//! ([`crate::peer::call::Farewells`]), before the stream is reset. How a call is opened, heard and left is in
//! [`crate::peer::call`].

use jiff::Timestamp;
use tokio::time::Instant;
use tonic::Code;

use super::reach::Trying;
use super::replay::Evidence;
use super::shared::{Callee, Shared};
use super::stubbed::stub_for;
use super::time::{Time, undecided};
use super::traced::for_traces;
use crate::case::CaseRef;
use crate::conversation::{
    AgentEvent, AgentEventKind, CancelReason, Exchange, Failure, Fault, FaultOrigin, Invocation,
};
use crate::event::{CallEnd, Payload};
use crate::peer::call::{
    Absence, CallState, Closing, Ending, Frame, Heard, Line, NotOpened, Opening, Refusal, Start, Step, ToolResult,
};
use crate::peer::digest::digest_of_call;
use crate::peer::spans::reconcile;
use crate::peer::status::{AGENT_MISCONFIGURED, AGENT_UNREACHABLE, STAND_IN};
use crate::peer::stream::Leniency;
use crate::suite::stub::Stub;
use crate::trace::SpanId;
use crate::work::{QUICK_BYTES, Undecided, in_place, read_apart};

/// What an agent takes that does not say how large a message may be: the default of most gRPC stacks.
const DEFAULT_MESSAGE_LIMIT: u64 = 4 << 20;
/// What agents declare that export spans of what they do to wherever runs are looked at.
const EXPORTS_SPANS: &str = "spans.export";
/// What agents declare whose spans are evidence.
const FROM_SPANS: &str = "tools.from_spans";

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

impl Call<'_> {
    /// Whether the agent is the one under test. That one is of the run, whatever it is called.
    fn is_to_agent_under_test(&self) -> bool {
        self.callee.agent.name == self.shared.callee.agent.name
    }

    /// Notes that nobody was there when the call tried to reach the agent at `since`, and whether it is to try
    /// again. When nobody answered for too long, the agent is given up, and with it the run if it is the one under
    /// test.
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

    /// Notes what the end of a call that tried to reach the agent at `since` says about all other calls of it.
    fn note_absence(&self, ending: &Ending, since: Instant) {
        let Some(Failure::Unreachable(why)) = &ending.failure else { return };
        match ending.absence {
            Some(Absence::Unreached) => self.missed(&mut None, since, why),
            Some(Absence::Misconfigured) => self.misconfigured(why),
            None => {}
        }
    }

    /// Notes that the agent takes no call as things are set up. If it answered no other one and is under test, the
    /// run ends.
    fn misconfigured(&self, why: &str) {
        if self.is_to_agent_under_test() && self.callee.reach.takes_none() {
            self.shared.control.lose(Fault {
                code: Code::FailedPrecondition.into(),
                reason: AGENT_MISCONFIGURED.to_owned(),
                message: format!("agent {:?}: {why}", self.callee.agent.name),
                origin: FaultOrigin::Transport,
                retryable: false,
            });
        }
    }
}

/// Makes the call and returns what was recorded, with the reason if it is no answer. What came of it is logged, so
/// that it can be played back.
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

/// Makes the call, and reads its spans if they are evidence.
async fn watched(call: &Call<'_>, time: &Time) -> Exchange {
    let shared = call.shared;
    if !call.callee.can(FROM_SPANS) {
        return live(call, time).await;
    }
    let invocation_id = &call.invocation.invocation_id;
    let awaited = shared.spans.expect(shared.trace.trace_id, SpanId::of_call(invocation_id), invocation_id);
    let mut exchange = live(call, time).await;
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
    answered.unwrap_or_else(|why| Exchange { failure: Some(Failure::Suite(why.to_string())), ..Exchange::default() })
}

/// Makes the call, as far as its time and the run allow.
async fn live(call: &Call<'_>, time: &Time) -> Exchange {
    let Invocation { max_model_turns, tool_mode, .. } = call.invocation;
    let stands_in = call.callee.can(STAND_IN);
    let mut state = CallState::new(tool_mode, max_model_turns, stands_in, call.shared.outputs.begin());
    let mut line = match open(call, time, &state).await {
        Ok(line) => line,
        Err(Unopened { ending, sent }) => return end(call, time, state, ending, sent).await,
    };
    let sent = line.sent().clone();
    let ending = match hear_out(call, time, &mut state, &mut line).await {
        Ok(()) => close(call, &mut state, line).await,
        Err(ending) => {
            if let Some(reason) = ending.cancel {
                line.leave(&call.shared.farewells, reason);
            }
            call.note_absence(&ending, sent.at().unwrap_or_else(Instant::now));
            ending
        }
    };
    end(call, time, state, ending, sent.at()).await
}

/// The end of a call that did not come to its first event.
struct Unopened {
    ending: Ending,
    /// When the start frame was taken, if it was.
    sent: Option<Instant>,
}

impl From<Ending> for Unopened {
    fn from(ending: Ending) -> Self {
        Self { ending, sent: None }
    }
}

/// Opens the call. Until the start frame is taken this is repeated as often as the deadline allows, after that never.
async fn open(call: &Call<'_>, time: &Time, state: &CallState) -> Result<Line, Unopened> {
    let (shared, reach) = (call.shared, &call.callee.reach);
    let begun = Instant::now();
    let mut opening = Opening::new(call.callee.agent.clone(), start(call, time).await?);
    let mut trying = None;
    loop {
        if reach.is_gone() {
            let given_up =
                || Failure::Unreachable(format!("{} was given up, as nobody answers there", call.callee.agent.url));
            let failure = if opening.is_repeated() { opening.unreachable() } else { given_up() };
            return Err(Ending::before(failure, None).into());
        }
        let since = Instant::now();
        let Refusal { status, sent } = tokio::select! {
            biased;
            () = shared.control.cancel.cancelled() => {
                let Some(sent) = opening.sent() else {
                    return Err(Ending::before(Failure::Cancelled, None).into());
                };
                let reason = shared.control.reason();
                opening.leave(&shared.farewells, reason);
                return Err(Unopened { ending: Ending::given_up(Failure::Cancelled, reason), sent: Some(sent) });
            }
            () = time.up() => {
                let Some(sent) = opening.sent() else {
                    // Nothing failed if there was no time left to begin with.
                    let had_time = begun < call.deadline;
                    return Err(if had_time {
                        Ending::before(opening.unreachable(), Some(Code::DeadlineExceeded)).into()
                    } else {
                        Ending::before(Failure::Timeout, None).into()
                    });
                };
                opening.leave(&shared.farewells, CancelReason::Budget);
                let ending = Ending::given_up(Failure::Timeout, CancelReason::Budget);
                return Err(Unopened { ending, sent: Some(sent) });
            }
            opened = opening.attempt(time.left()) => match opened {
                Ok(line) => return Ok(line),
                Err(refusal) => refusal,
            },
        };
        match state.not_opened(&status, sent.is_some()) {
            NotOpened::NotDelivered(why) => opening.failed(why),
            NotOpened::Over(ending) => {
                call.note_absence(&ending, since);
                return Err(Unopened { ending, sent });
            }
        }
        call.missed(&mut trying, since, opening.last());
        let pause = opening.pause();
        tokio::select! {
            () = reach.gone() => {}
            () = shared.control.cancel.cancelled() => {
                return Err(Ending::before(Failure::Cancelled, Some(status.code())).into());
            }
            () = time.up() => return Err(Ending::before(opening.unreachable(), Some(status.code())).into()),
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// What the call begins with, made and measured once, whatever the number of attempts.
async fn start(call: &Call<'_>, time: &Time) -> Result<Start, Ending> {
    let Call { invocation, callee, shared, .. } = call;
    let span = SpanId::of_call(&invocation.invocation_id);
    let headers = shared.trace.headers(span, Some((&invocation.case.case_id, &invocation.invocation_id)));
    let bytes = invocation.options.as_ref().map_or(0, |options| options.as_str().len());
    let limit = callee.description.max_message_bytes.unwrap_or(DEFAULT_MESSAGE_LIMIT);
    let asked = invocation.clone();
    match read(call, time, bytes, move || Start::new(&asked, headers).within(limit)).await {
        Ok(start) => start.map_err(|why| Ending::before(Failure::Suite(why.to_string()), None)),
        Err((failure, _)) => Err(Ending::before(failure, None)),
    }
}

/// Hears the agent until its answer is complete.
///
/// # Errors
/// How the call ends before that.
async fn hear_out(call: &Call<'_>, time: &Time, state: &mut CallState, line: &mut Line) -> Result<(), Ending> {
    let control = &call.shared.control;
    loop {
        let heard = tokio::select! {
            biased;
            () = control.cancel.cancelled() => return Err(Ending::given_up(Failure::Cancelled, control.reason())),
            () = time.up() => return Err(Ending::given_up(Failure::Timeout, CancelReason::Budget)),
            heard = line.next(state) => heard,
        };
        match heard {
            Heard::Due(result) => {
                let ToolResult { call_id, outcome, unstubbed } = result.clone();
                let served = Payload::StubServed { call_id, outcome, unstubbed };
                call.shared.journal.case(call.case, call.invocation.turn, served).await;
                line.send(result);
            }
            Heard::End(status) => return Err(state.ended(&status)),
            Heard::Frame(frame) => {
                if state.is_unanswered() {
                    call.callee.reach.delivered();
                }
                take(call, time, state, frame, line.sent().at()).await?;
                match state.step(Instant::now()) {
                    Step::Wait => {}
                    Step::End(ending) => return Err(ending),
                    Step::Close => {
                        call.callee.reach.answered();
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// Takes what the agent said into the record and into the log, and answers it if it is a tool call that has a stub.
///
/// # Errors
/// How the call ends with it.
async fn take(
    call: &Call<'_>,
    time: &Time,
    state: &mut CallState,
    frame: Frame,
    sent: Option<Instant>,
) -> Result<(), Ending> {
    let given_up = |(failure, reason)| Ending::given_up(failure, reason);
    let (bytes, at) = (frame.bytes(), time.of_agent(sent));
    state.count(bytes)?;
    let event = read(call, time, bytes, || frame.read()).await.map_err(given_up)??;
    for rule in state.take(&event, bytes, at)? {
        report(call, rule).await;
    }
    let answer = match (&event.kind, call.stubs) {
        (AgentEventKind::ToolStarted { call: tool, .. }, Some(stubs)) => {
            let stub = stubs.iter().find(|(name, _)| *name == tool.name).map(|(_, stub)| stub);
            if bytes <= QUICK_BYTES {
                Some(stub_for(tool, stub))
            } else {
                let (tool, stub) = (tool.clone(), stub.cloned());
                let read = read(call, time, bytes, move || stub_for(&tool, stub.as_ref()));
                Some(read.await.map_err(given_up)?)
            }
        }
        _ => None,
    };
    log(call, event).await;
    if let Some((delay, result)) = answer {
        state.answer(result, Instant::now() + delay);
    }
    Ok(())
}

/// Closes a call whose answer is complete.
async fn close(call: &Call<'_>, state: &mut CallState, line: Line) -> Ending {
    let closing = tokio::select! {
        closing = line.close() => closing,
        // The answer is there; that it has to hurry now is not the agent's fault.
        () = call.shared.control.cancel.cancelled() => Closing::Good,
    };
    let (ending, bent) = state.closed(closing);
    if let Some(rule) = bent {
        report(call, rule).await;
    }
    ending
}

/// What was recorded of a call that ended, which was sent at this time if it was.
async fn end(call: &Call<'_>, time: &Time, state: CallState, ending: Ending, sent: Option<Instant>) -> Exchange {
    call.callee.agent.bent.count(state.bent(), &call.shared.run_id);
    let (now, failure) = (time.of_agent(sent), ending.failure.clone());
    let read = read(call, time, state.odd_bytes(), || state.into_exchange(failure)).await;
    let recorded = read.unwrap_or_else(|(failure, _)| Exchange { failure: Some(failure), ..Exchange::default() });
    ending.exchange(recorded, now)
}

/// Reads `bytes` bytes that the agent sent. Its time does not run meanwhile: what it sent was there.
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
    let control = &call.shared.control;
    // Apart, so that the task of every other case is small.
    let read = time.stopped_for(Box::pin(read_apart(&call.shared.run_id, bytes, &control.cancel, job))).await;
    read.map_err(|why| match why {
        Undecided::Stopped => (Failure::Cancelled, control.reason()),
        why => {
            let why = format!("the daemon could not read what the agent sent: {why}");
            (Failure::Stalled(why), CancelReason::Budget)
        }
    })
}

/// Text deltas are not stored: they make up most of a stream, and the answer holds their text. Nor is it worth a
/// word that a call was accepted, which was sent.
async fn log(call: &Call<'_>, event: AgentEvent) {
    if matches!(event.kind, AgentEventKind::TextDelta { .. } | AgentEventKind::Accepted { .. }) {
        return;
    }
    call.shared.journal.case(call.case, call.invocation.turn, Payload::Agent(event)).await;
}

/// Reports a rule that the agent bent, once a run.
async fn report(call: &Call<'_>, rule: Leniency) {
    if rule.is_told_by_case() || !call.shared.is_news(rule) {
        return;
    }
    call.shared.journal.case(call.case, 0, Payload::Warning(rule.message().to_owned())).await;
}
