//! One turn of an agent that this process stands in for: what there is to answer, and everything that may be reported
//! meanwhile.
//!
//! Events are numbered in the order in which they leave: a place in the queue is taken first, and the number with it.
//! So nothing is lost of a turn whose work is dropped in the middle, which is how a turn stops.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::try_join_all;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tonic::{Code, Status};

use super::attachments::Attachments;
use crate::limits::TOOL_CALLS;
use crate::peer::agent::MAX_MESSAGE_BYTES;
use crate::trace::TraceHeaders;
use crate::wire::agent::invoke_response::Event;
use crate::wire::agent::tool_call_finished::Outcome;
use crate::wire::agent::{
    Fault, FaultOrigin, FinishReason, InvokeAccepted, InvokeFinished, InvokeResponse, InvokeStart, Json, LogLine,
    Message, ModelTurn, Part, ResultSource, Role, TextChannel, TextDelta, ToolCallFinished, ToolCallStarted, ToolMode,
    ToolResult, Usage, json, part, tool_result,
};
use crate::wire::call::trace_from_proto;
use crate::wire::value::duration_to_proto;

/// Events that wait to be written to the stream.
const UNSENT_EVENTS: usize = 16;
/// Most bytes that an agent may say in one turn: they must fit into one message to the daemon, with a little around.
pub(super) const MAX_TEXT_BYTES: usize = MAX_MESSAGE_BYTES - 1024;

/// A turn that goes on.
#[derive(Debug)]
pub(super) struct Turn {
    start: InvokeStart,
    mode: ToolMode,
    attachments: Attachments,
    instance_id: String,
    events: mpsc::Sender<Result<InvokeResponse, Status>>,
    state: Mutex<State>,
}

/// What was reported so far.
#[derive(Debug, Default)]
struct State {
    /// When the turn was accepted, if it was.
    accepted: Option<Instant>,
    seq: u64,
    text: String,
    /// Where tools were called in the text.
    cuts: Vec<usize>,
    /// Where the last model turn began in the text.
    model_turn_at: usize,
    calls: Vec<Reported>,
    /// The calls by their ids.
    by_id: HashMap<String, usize>,
    model_turns: u32,
    usage: Option<Usage>,
    warnings: Vec<String>,
    /// The daemon says nothing more.
    no_more_results: bool,
}

/// A tool call that was announced.
#[derive(Debug)]
struct Reported {
    id: String,
    name: String,
    is_open: bool,
    /// The task that waits for the daemon's result.
    waits: Option<oneshot::Sender<ToolResult>>,
}

/// A tool call as a model makes it.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    /// The model's own id; another one is taken if it is empty or was there before.
    pub(super) id: String,
    /// The tool.
    pub(super) name: String,
    /// The arguments; or why they are not known.
    pub(super) params: Result<Json, String>,
}

/// A tool call that was announced and has not ended.
#[derive(Debug)]
pub(super) struct Call {
    id: String,
    begun: Instant,
    result: oneshot::Receiver<ToolResult>,
}

impl Call {
    /// The id under which it was announced.
    pub(super) fn id(&self) -> &str {
        &self.id
    }
}

/// How a turn ends that ends by itself.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    /// The text; `None`: what was said last.
    pub(super) text: Option<String>,
    /// Why it ended.
    pub(super) reason: FinishReason,
}

/// Why a turn ends without that.
#[derive(Debug, Clone)]
pub(super) enum End {
    /// A rule ends it, with what was said so far: model turns or time are used up, it was cancelled, or tools are only
    /// announced.
    Over(FinishReason),
    /// The agent failed.
    Failed(Box<Fault>),
    /// The way to the agent is broken, or set up wrongly.
    Broken(Status),
}

impl End {
    /// The agent did not do what it must.
    pub(super) fn failed(code: Code, reason: &str, message: impl Into<String>) -> Self {
        Self::fault(FaultOrigin::Agent, code, reason, message)
    }

    /// A failure of the agent, of its model or of a tool.
    pub(super) fn fault(origin: FaultOrigin, code: Code, reason: &str, message: impl Into<String>) -> Self {
        Self::Failed(Box::new(Fault {
            grpc_code: code.into(),
            reason: reason.to_owned(),
            message: message.into(),
            origin: origin.into(),
            ..Fault::default()
        }))
    }
}

impl Answer {
    /// This text is the answer.
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), reason: FinishReason::Completed }
    }
}

impl Turn {
    /// A turn that may begin, and the events of it.
    pub(super) fn new(
        start: InvokeStart,
        mode: ToolMode,
        attachments: Attachments,
        instance_id: &str,
    ) -> (Self, mpsc::Receiver<Result<InvokeResponse, Status>>) {
        let (events, receiver) = mpsc::channel(UNSENT_EVENTS);
        let instance_id = instance_id.to_owned();
        (Self { start, mode, attachments, instance_id, events, state: Mutex::default() }, receiver)
    }

    /// What there is to answer.
    pub(super) const fn start(&self) -> &InvokeStart {
        &self.start
    }

    /// What happens to tool calls; [`Self::run`] obeys it.
    pub(super) const fn mode(&self) -> ToolMode {
        self.mode
    }

    /// The large files of the call.
    pub(super) const fn attachments(&self) -> &Attachments {
        &self.attachments
    }

    /// The place of the call in a trace.
    pub(super) fn trace(&self) -> TraceHeaders {
        self.start.context.as_ref().map(trace_from_proto).unwrap_or_default()
    }

    /// Says that the call is taken on. Every other event does so too; until then the turn may still be refused.
    pub(super) async fn accept(&self) {
        if self.state.lock().accepted.is_some() {
            return;
        }
        let accepted = InvokeAccepted {
            invocation_id: self.start.invocation_id.clone(),
            instance_id: self.instance_id.clone(),
            replayed: false,
        };
        // That nobody listens any more is all right here and below: then the call is over.
        let Ok(place) = self.events.reserve().await else { return };
        let mut state = self.state.lock();
        if state.accepted.is_none() {
            state.accepted = Some(Instant::now());
            place.send(Ok(state.number(Event::Accepted(accepted))));
        }
    }

    /// Says a piece of the answer.
    pub(super) async fn say(&self, text: &str) -> Result<(), End> {
        if self.state.lock().text.len() + text.len() > MAX_TEXT_BYTES {
            let message = format!("the agent said more than {MAX_TEXT_BYTES} bytes");
            return Err(End::failed(Code::ResourceExhausted, "ANSWER_TOO_LARGE", message));
        }
        if !self.start.want_deltas {
            self.state.lock().text.push_str(text);
        } else if !text.is_empty() {
            self.write(|state| {
                state.text.push_str(text);
                delta(text, TextChannel::Answer)
            })
            .await;
        }
        Ok(())
    }

    /// Says a piece of the model's reasoning, which is no part of the answer.
    pub(super) async fn reason(&self, text: &str) {
        if self.start.want_deltas && !text.is_empty() {
            self.write(|_| delta(text, TextChannel::Reasoning)).await;
        }
    }

    /// Says a line to people who debug the agent; the level is `debug`, `info`, `warn` or `error`.
    pub(super) async fn log(&self, level: &str, message: String) {
        let line = LogLine { level: level.to_owned(), target: String::new(), message };
        self.write(|_| Event::Log(line)).await;
    }

    /// Says at the end of the call what people should know who read its result.
    pub(super) fn warn(&self, warnings: impl IntoIterator<Item = String>) {
        self.state.lock().warnings.extend(warnings);
    }

    /// Adds to what the turn has used, for what no model turn says.
    pub(super) fn used(&self, usage: &Usage) {
        self.state.lock().used(usage);
    }

    /// Begins a model turn, and gives its number. `own` is the agent's own limit, for calls that come without one.
    ///
    /// # Errors
    /// When no further one is allowed: the turn is over.
    pub(super) fn begin_model_turn(&self, own: Option<u32>) -> Result<u32, End> {
        let mut state = self.state.lock();
        let most = self.start.max_model_turns.or(own);
        if most.is_some_and(|most| state.model_turns >= most) {
            return Err(End::Over(FinishReason::MaxModelTurns));
        }
        state.model_turns += 1;
        state.model_turn_at = state.text.len();
        Ok(state.model_turns)
    }

    /// Ends a model turn, with what is known of it.
    pub(super) async fn end_model_turn(&self, record: ModelTurn) {
        self.write(|state| {
            if let Some(usage) = &record.usage {
                state.used(usage);
            }
            Event::ModelTurn(record)
        })
        .await;
    }

    /// Announces a tool call, also of a tool that does not exist. All that a model makes at once are announced before
    /// the first is run: their order is what suites compare.
    ///
    /// # Errors
    /// When there are too many.
    pub(super) async fn call(&self, wanted: Wanted) -> Result<Call, End> {
        let Wanted { id, name, params } = wanted;
        if self.state.lock().calls.len() >= TOOL_CALLS {
            let message = format!("the agent made more than {TOOL_CALLS} tool calls");
            return Err(End::failed(Code::ResourceExhausted, "TOO_MANY_TOOL_CALLS", message));
        }
        let (params, params_unknown) = match params {
            Ok(params) => (Some(params), None),
            Err(why) => (None, Some(why)),
        };
        let awaits_result = self.mode == ToolMode::Stub;
        let (sender, result) = oneshot::channel();
        let is_free = !id.is_empty() && !self.state.lock().by_id.contains_key(&id);
        let id = if is_free { id } else { uuid::Uuid::new_v4().to_string() };
        let call_id = id.clone();
        self.write(|state| {
            state.by_id.insert(id.clone(), state.calls.len());
            // Nobody waits for what cannot come.
            let waits = Some(sender).filter(|_| awaits_result && !state.no_more_results);
            state.calls.push(Reported { id, name: name.clone(), is_open: true, waits });
            state.cuts.push(state.text.len());
            Event::ToolStarted(ToolCallStarted {
                call_id: call_id.clone(),
                name,
                params,
                params_unknown,
                awaits_result,
                model_turn: state.model_turns,
                ..ToolCallStarted::default()
            })
        })
        .await;
        Ok(Call { id: call_id, begun: Instant::now(), result })
    }

    /// Runs a tool call as the mode of the call wants it: by `live`, or by what the daemon says.
    ///
    /// # Errors
    /// When tools are only announced: the turn is over.
    pub(super) async fn run(&self, call: Call, live: impl Future<Output = Outcome>) -> Result<Outcome, End> {
        let Call { id, begun, result } = call;
        let outcome = match self.mode {
            ToolMode::RoutingOnly | ToolMode::Unspecified => return Err(End::Over(FinishReason::ToolCalls)),
            ToolMode::Live => live.await,
            ToolMode::Stub => match result.await.ok().and_then(|result| result.outcome) {
                Some(tool_result::Outcome::Result(result)) => Outcome::Result(result),
                Some(tool_result::Outcome::Error(fault)) => Outcome::Error(fault),
                None => Outcome::Error(self.missing(&id)),
            },
        };
        self.returned(&id, outcome.clone(), Some(begun.elapsed())).await;
        Ok(outcome)
    }

    /// Announces what a model wants to call at once, and runs all of it together. `live` runs a tool.
    ///
    /// # Errors
    /// When tools are only announced, or there are too many.
    pub(super) async fn run_all<F: Future<Output = Outcome>>(
        &self,
        wanted: Vec<Wanted>,
        live: impl Fn(Wanted) -> F,
    ) -> Result<Vec<Outcome>, End> {
        let mut calls = Vec::new();
        for wanted in wanted {
            calls.push((self.call(wanted.clone()).await?, wanted));
        }
        try_join_all(calls.into_iter().map(|(call, wanted)| self.run(call, live(wanted)))).await
    }

    /// Ends a tool call that somebody else has run, in so much time if that is known.
    pub(super) async fn returned(&self, id: &str, outcome: Outcome, duration: Option<Duration>) {
        let is_open = |state: &State| state.by_id.get(id).is_some_and(|index| state.calls[*index].is_open);
        if self.mode == ToolMode::RoutingOnly || !is_open(&self.state.lock()) {
            return;
        }
        let source = if self.mode == ToolMode::Stub { ResultSource::Stub } else { ResultSource::Live };
        self.write(|state| {
            if let Some(index) = state.by_id.get(id) {
                state.calls[*index].is_open = false;
            }
            Event::ToolFinished(ToolCallFinished {
                call_id: id.to_owned(),
                outcome: Some(outcome),
                duration: duration.map(duration_to_proto),
                source: source.into(),
            })
        })
        .await;
    }

    /// A result from the daemon. Of a call that is not known, or has its result, nobody wants it.
    pub(super) fn resolve(&self, result: ToolResult) {
        let mut state = self.state.lock();
        let index = state.by_id.get(&result.call_id).copied();
        if let Some(waits) = index.and_then(|index| state.calls[index].waits.take()) {
            let _ = waits.send(result);
        }
    }

    /// The daemon says nothing more, so who waits for a result gets none.
    pub(super) fn no_more_results(&self) {
        let mut state = self.state.lock();
        state.no_more_results = true;
        state.calls.iter_mut().for_each(|call| call.waits = None);
    }

    /// Ends the turn. What its work would report after that is not sent: it was dropped.
    pub(super) async fn finish(&self, end: Result<Answer, End>) {
        let (reason, text, error) = match end {
            Ok(Answer { text, reason }) => (reason, text, None),
            Err(End::Over(reason)) => (reason, None, None),
            Err(End::Failed(fault)) => (FinishReason::Failed, None, Some(*fault)),
            Err(End::Broken(status)) => {
                let _ = self.events.send(Err(status)).await;
                return;
            }
        };
        let open: Vec<(String, String)> = {
            let state = self.state.lock();
            let open = state.calls.iter().filter(|call| call.is_open);
            open.map(|call| (call.id.clone(), call.name.clone())).collect()
        };
        for (id, name) in open {
            let message = format!("the turn ended before {name} did");
            let fault = fault(Code::Cancelled, "CANCELLED", FaultOrigin::Unspecified, message);
            self.returned(&id, Outcome::Error(fault), None).await;
        }
        let is_given = text.is_some();
        let text = text.unwrap_or_else(|| self.state.lock().last_said(self.mode, reason).to_owned());
        if is_given {
            self.say_rest(&text).await;
        }
        // Of a turn that did not end by itself an empty answer is none.
        let is_answer =
            is_given || error.is_none() && !matches!(reason, FinishReason::Cancelled | FinishReason::BudgetExceeded);
        let response = (is_answer || !text.is_empty()).then(|| Message {
            role: Role::Assistant.into(),
            parts: vec![Part { content: Some(part::Content::Text(text)) }],
            ..Message::default()
        });
        self.write(|state| {
            Event::Finished(InvokeFinished {
                finish_reason: reason.into(),
                response,
                usage: state.usage.take(),
                error,
                tool_calls: u32::try_from(state.calls.len()).unwrap_or(u32::MAX),
                duration: Some(duration_to_proto(state.since())),
                warnings: std::mem::take(&mut state.warnings),
                ..InvokeFinished::default()
            })
        })
        .await;
    }

    /// Sends what of an answer was not said yet, if what was said is its beginning.
    async fn say_rest(&self, text: &str) {
        let rest = {
            let state = self.state.lock();
            let since_call = state.cuts.last().map_or(0, |cut| *cut);
            [0, since_call].into_iter().find_map(|at| text.strip_prefix(&state.text[at..])).unwrap_or_default()
        };
        // It is the answer, which was measured when it was made.
        if self.start.want_deltas && !rest.is_empty() {
            self.write(|_| delta(rest, TextChannel::Answer)).await;
        }
    }

    /// Why there is no result for a call.
    fn missing(&self, id: &str) -> Fault {
        let state = self.state.lock();
        let name = state.by_id.get(id).map_or("", |index| state.calls[*index].name.as_str());
        let message = format!("no result came for the call of {name}");
        fault(Code::Unavailable, "NO_RESULT", FaultOrigin::Daemon, message)
    }

    /// Sends an event, which is made when there is a place for it.
    async fn write(&self, make: impl FnOnce(&mut State) -> Event) {
        self.accept().await;
        let Ok(place) = self.events.reserve().await else { return };
        let mut state = self.state.lock();
        let event = make(&mut state);
        place.send(Ok(state.number(event)));
    }
}

impl State {
    fn number(&mut self, event: Event) -> InvokeResponse {
        self.seq += 1;
        InvokeResponse { seq: self.seq, elapsed: Some(duration_to_proto(self.since())), event: Some(event) }
    }

    /// Time since the turn was accepted.
    fn since(&self) -> Duration {
        self.accepted.map(|accepted| accepted.elapsed()).unwrap_or_default()
    }

    fn used(&mut self, more: &Usage) {
        let usage = self.usage.get_or_insert_default();
        for (sum, more) in [
            (&mut usage.input_tokens, more.input_tokens),
            (&mut usage.output_tokens, more.output_tokens),
            (&mut usage.cache_read_tokens, more.cache_read_tokens),
            (&mut usage.cache_write_tokens, more.cache_write_tokens),
            (&mut usage.reasoning_tokens, more.reasoning_tokens),
        ] {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or_default().saturating_add(more));
            }
        }
        if let Some(more) = &more.cost {
            let cost = usage.cost.get_or_insert_default();
            cost.currency_code.clone_from(&more.currency_code);
            cost.nano_units = cost.nano_units.saturating_add(more.nano_units);
            cost.estimated |= more.estimated;
        }
    }

    /// The answer of a turn that gives none itself: what was said last. Where the model got a stub's result, it owes an
    /// answer, which may be empty; else who says nothing behind a call has said the answer before.
    fn last_said(&self, mode: ToolMode, reason: FinishReason) -> &str {
        let text = &self.text;
        match (mode, reason, self.cuts.last()) {
            (ToolMode::RoutingOnly, ..) => text,
            (ToolMode::Stub, FinishReason::Completed, Some(cut)) => &text[*cut..],
            (ToolMode::Stub, FinishReason::MaxModelTurns, _) => &text[self.model_turn_at..],
            _ => {
                let cut = self.cuts.iter().rev().find(|cut| !text[**cut..].trim().is_empty());
                &text[cut.map_or(0, |cut| *cut)..]
            }
        }
    }
}

fn delta(text: &str, channel: TextChannel) -> Event {
    // Without an id a call of a tool ends the message.
    Event::TextDelta(TextDelta { message_id: String::new(), text: text.to_owned(), channel: channel.into() })
}

fn fault(code: Code, reason: &str, origin: FaultOrigin, message: String) -> Fault {
    Fault { grpc_code: code.into(), reason: reason.to_owned(), message, origin: origin.into(), ..Fault::default() }
}

/// A tool that failed.
pub(super) fn broken_tool(message: impl Into<String>) -> Outcome {
    Outcome::Error(fault(Code::Unknown, "", FaultOrigin::Tool, message.into()))
}

/// A tool that returned this JSON text.
pub(super) fn worked(text: impl Into<String>) -> Outcome {
    Outcome::Result(Json { form: Some(json::Form::Raw(text.into().into_bytes())) })
}

/// What a model reads of a tool call: the result byte for byte, or why the tool failed.
pub(super) fn text_for_model(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Result(Json { form: Some(json::Form::Raw(text) | json::Form::Malformed(text)) }) => {
            String::from_utf8_lossy(text).into_owned()
        }
        Outcome::Result(json) => match crate::wire::value::json_from_proto(Some(json.clone())) {
            Some(crate::conversation::MaybeJson::Json(text)) => text.as_str().to_owned(),
            Some(crate::conversation::MaybeJson::Malformed(_)) | None => String::new(),
        },
        Outcome::Error(fault) if fault.message.is_empty() => "error: the tool failed".to_owned(),
        Outcome::Error(fault) => format!("error: {}", fault.message),
    }
}
