//! Events of a run → spans, as section "Telemetry" of the documentation says: run, case, turn, call, and what
//! happened in a call.
//!
//! Pure functions of the log: an export of the run later, or again, has the same spans.

mod attempt;
mod content;
mod steps;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use opentelemetry::trace::{
    Event, SpanContext, SpanId as OtelSpanId, SpanKind, Status, TraceFlags, TraceId as OtelTraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use self::attempt::Attempt;
use self::content::definitions;
use super::semconv::{self as name, Conventions};
use crate::case::{CaseKey, CaseRef};
use crate::conversation::{AgentCard, AgentEventKind, Failure, FinishReason, Usage};
use crate::event::{CallEnd, Payload, Run, RunEvent, State};
use crate::store::Stored;
use crate::trace::{RunTrace, SpanId};

/// Longest text of an attribute, in bytes; the rest is left out.
const MAX_TEXT: usize = 1 << 10;
/// Longest content of an attribute, in bytes.
const MAX_CONTENT: usize = 64 << 10;
/// Content for which less room is left is left out, in bytes.
const MIN_CONTENT: usize = 1 << 10;
/// Longest text of what tools an agent has, in bytes.
const MAX_DEFINITIONS: usize = 16 << 10;
/// Most content of an attempt, in bytes.
const MAX_CONTENT_OF_ALL: usize = 1 << 20;
/// Most spans of model turns and tool calls of one call.
const MAX_STEPS: usize = 1_000;
/// Most events of one span.
const MAX_EVENTS: usize = 1_000;
/// Most of them that tell what the daemon answered for tools: what came of the assertions needs room, too.
const MAX_STUBS: usize = 200;

/// Who says that something was so.
#[must_use]
pub fn scope(conventions: Conventions) -> InstrumentationScope {
    let scope = InstrumentationScope::builder(name::SCOPE).with_version(env!("CARGO_PKG_VERSION"));
    match conventions.schema_url() {
        Some(url) => scope.with_schema_url(url).build(),
        None => scope.build(),
    }
}

/// What is exported where there is a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    /// Which names.
    pub conventions: Conventions,
    /// Calls have a span of their RPC below them.
    pub rpc: bool,
}

/// What all spans of a run have in common.
#[derive(Debug, Clone)]
pub struct Subject {
    run_id: String,
    trace: RunTrace,
    agent_id: String,
    endpoint: Option<Endpoint>,
    card: Option<AgentCard>,
    content: bool,
    /// The tools of the agent as content; empty: there are none, or there is no content.
    definitions: String,
    style: Style,
    scope: InstrumentationScope,
}

/// Where somebody is reached, and how.
#[derive(Debug, Clone)]
struct Endpoint {
    host: String,
    port: u16,
    transport: &'static str,
}

impl Endpoint {
    /// The place that a URL names.
    fn of(url: &str) -> Option<Self> {
        let uri: http::Uri = url.parse().ok()?;
        let (transport, port) = match uri.scheme_str()? {
            "http" => ("http", 80),
            "https" => ("http", 443),
            _ => ("grpc", 0),
        };
        let host = uri.host()?.trim_start_matches('[').trim_end_matches(']').to_owned();
        Some(Self { host, port: uri.port_u16().unwrap_or(port), transport })
    }

    fn attributes(&self) -> impl Iterator<Item = KeyValue> {
        let port = (self.port > 0).then(|| KeyValue::new(name::SERVER_PORT, i64::from(self.port)));
        [text(name::SERVER_ADDRESS, &self.host)].into_iter().chain(port)
    }
}

impl Subject {
    /// Of a run.
    #[must_use]
    pub fn of(run: &Run, style: Style) -> Self {
        let mut subject = Self {
            run_id: run.run_id.clone(),
            trace: run.trace(),
            agent_id: run.spec.agent_id.clone(),
            endpoint: Endpoint::of(&run.agent_endpoint),
            card: None,
            content: run.spec.capture_content,
            definitions: String::new(),
            style,
            scope: scope(style.conventions),
        };
        if let Some(card) = &run.agent {
            subject.describe(card);
        }
        subject
    }

    /// The agent described itself.
    fn describe(&mut self, card: &AgentCard) {
        self.definitions = if self.content && !card.tools.is_empty() {
            definitions(&card.tools, MAX_DEFINITIONS)
        } else {
            String::new()
        };
        self.card = Some(card.clone());
    }

    /// Where an agent was called; its own URL stands in the log unless it is the one under test.
    fn endpoint(&self, ended: &CallEnd) -> Option<Cow<'_, Endpoint>> {
        if ended.endpoint.is_empty() {
            return self.endpoint.as_ref().filter(|_| ended.to.is_empty()).map(Cow::Borrowed);
        }
        Endpoint::of(&ended.endpoint).map(Cow::Owned)
    }

    /// The RPC of a call that has a span of its own: its status, by number.
    fn rpc(&self, ended: &CallEnd) -> Option<i32> {
        let status = ended.grpc_status.filter(|_| self.style.rpc)?;
        // What stands in front of an HTTP endpoint is ours.
        self.endpoint(ended).is_none_or(|endpoint| endpoint.transport == "grpc").then_some(status)
    }
}

/// Sorts the events of a log by what becomes spans together.
#[derive(Debug)]
pub struct Grouper {
    subject: Arc<Subject>,
    /// Events of the attempts that go on.
    open: HashMap<CaseKey, Events>,
    /// Cases whose attempts go on and are passed over, by their digests.
    passed_over: HashSet<u64>,
}

/// Events of an attempt that goes on.
#[derive(Debug, Default)]
struct Events {
    events: Vec<Arc<RunEvent>>,
    bytes: usize,
}

/// Events that become spans together: those of an attempt at a case that is over, or the end of the run. A caller that
/// may not need the spans makes them late: they are the same at any time.
#[derive(Debug)]
pub struct Group {
    subject: Arc<Subject>,
    events: Vec<Arc<RunEvent>>,
    /// Spans that they become.
    pub count: usize,
    /// Bytes of memory that the events take, about.
    pub bytes: usize,
}

impl Events {
    fn begin(stored: &Stored) -> Self {
        let mut begun = Self::default();
        begun.push(stored);
        begun
    }

    fn push(&mut self, stored: &Stored) {
        self.events.push(Arc::clone(&stored.event));
        self.bytes += stored.held();
    }

    fn end(self, subject: &Arc<Subject>) -> Group {
        let Self { events, bytes } = self;
        Group { count: count(subject, &events), subject: Arc::clone(subject), events, bytes }
    }
}

impl Group {
    /// Its spans.
    #[must_use]
    pub fn spans(&self) -> Vec<SpanData> {
        let Self { subject, events, .. } = self;
        match events.as_slice() {
            [event] if matches!(event.payload, Payload::RunFinished(_)) => {
                run_span(subject, event).into_iter().collect()
            }
            events => Attempt::spans(subject, events),
        }
    }
}

impl Grouper {
    /// For a run of which no event, or none of an open case, was seen.
    #[must_use]
    pub fn new(run: &Run, style: Style) -> Self {
        Self { subject: Arc::new(Subject::of(run, style)), open: HashMap::new(), passed_over: HashSet::new() }
    }

    /// Passes over the events of attempts that begin while there is no room for their spans: how many spans an
    /// event would have become, about. `None`: it is not of such an attempt, and is to be taken. This has to cost
    /// next to nothing: with a receiver that is down it is done for every event of a run.
    pub fn pass_over(&mut self, event: &RunEvent, has_room: bool) -> Option<usize> {
        let case = event.case.as_ref()?;
        if self.passed_over.is_empty() && has_room {
            return None;
        }
        if let Payload::CaseStarted { .. } = event.payload {
            if has_room {
                self.passed_over.remove(&digest(case));
                return None;
            }
            self.passed_over.insert(digest(case));
            // One that is open was cut off with the daemon that ran it.
            return Some(if self.open.is_empty() { 0 } else { usize::from(self.open.remove(&case.key()).is_some()) });
        }
        if self.passed_over.is_empty() {
            return None;
        }
        let is_last = matches!(event.payload, Payload::AttemptFinished(_) | Payload::CaseFinished(_));
        // With no case open nobody has to be told apart until one ends.
        let is_of_one = if is_last {
            self.passed_over.remove(&digest(case))
        } else {
            self.open.is_empty() || self.passed_over.contains(&digest(case))
        };
        if !is_of_one {
            return None;
        }
        Some(match &event.payload {
            Payload::AttemptFinished(_) | Payload::CaseFinished(_) | Payload::PartySaid(_) => 1,
            Payload::CallEnded(ended) => 1 + usize::from(self.subject.rpc(ended).is_some()),
            Payload::Agent(said) => usize::from(is_step(&said.kind)),
            _ => 0,
        })
    }

    /// Takes the next event; the groups that are whole with it.
    pub fn take(&mut self, stored: &Stored) -> Vec<Group> {
        let (Self { subject, open, .. }, event) = (self, &stored.event);
        let Some(case) = &event.case else {
            match &event.payload {
                Payload::AgentDescribed(card) => Arc::make_mut(subject).describe(card),
                Payload::RunFinished(_) => {
                    // Those that have no end have been cut off.
                    let cut_off = open.drain().map(|(_, events)| events);
                    return cut_off.chain([Events::begin(stored)]).map(|events| events.end(subject)).collect();
                }
                _ => {}
            }
            return Vec::new();
        };
        if matches!(event.payload, Payload::CasePlanned { .. }) {
            return Vec::new();
        }
        let key = case.key();
        match &event.payload {
            Payload::CaseStarted { .. } => {
                // One that is open was cut off with the daemon that ran it.
                let cut_off = open.insert(key, Events::begin(stored));
                cut_off.map(|events| events.end(subject)).into_iter().collect()
            }
            Payload::AttemptFinished(_) | Payload::CaseFinished(_) => {
                let mut events = open.remove(&key).unwrap_or_default();
                events.push(stored);
                vec![events.end(subject)]
            }
            _ => {
                if let Some(events) = open.get_mut(&key) {
                    events.push(stored);
                }
                Vec::new()
            }
        }
    }
}

/// How many spans events become, without making them.
fn count(subject: &Subject, events: &[Arc<RunEvent>]) -> usize {
    let has_turns = events.first().is_some_and(|event| has_turns(&event.payload));
    let (mut count, mut steps, mut told, mut turns) = (1, 0, false, Vec::new());
    for event in events {
        match &event.payload {
            Payload::Agent(said) => {
                steps += usize::from(is_step(&said.kind));
                told |= tells_a_call(&event.payload);
                continue;
            }
            Payload::SpansRead(read) if !told => {
                steps += read.tool_calls.len();
                continue;
            }
            Payload::CallEnded(ended) => {
                count += 1 + usize::from(subject.rpc(ended).is_some());
                count += if ended.exports_spans { 0 } else { steps.min(MAX_STEPS) };
                (steps, told) = (0, false);
            }
            Payload::PartySaid(_) => count += 1,
            _ => continue,
        }
        if has_turns && event.turn > 0 && !turns.contains(&event.turn) {
            turns.push(event.turn);
        }
    }
    count + turns.len()
}

/// Tells cases apart well enough for what is lost anyway, and costs less than their names.
fn digest(case: &CaseRef) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&case.suite, &case.case_id, case.repeat).hash(&mut hasher);
    hasher.finish()
}

/// Whether what an agent said becomes a span.
const fn is_step(said: &AgentEventKind) -> bool {
    matches!(said, AgentEventKind::ToolStarted { .. } | AgentEventKind::ModelTurn(_))
}

/// Whether the agent tells of a tool call.
fn tells_a_call(said: &Payload) -> bool {
    matches!(said, Payload::Agent(said) if matches!(said.kind, AgentEventKind::ToolStarted { .. }))
}

/// Whether a case has several turns.
fn has_turns(started: &Payload) -> bool {
    matches!(started, Payload::CaseStarted { mode, .. } if mode.has_turns())
}

/// The span of a run that is over.
fn run_span(subject: &Subject, event: &RunEvent) -> Option<SpanData> {
    let Payload::RunFinished(run) = &event.payload else { return None };
    let status = match run.state {
        State::Passed if run.totals.passed == 0 && run.totals.failed == 0 => "skipped",
        State::Passed => "success",
        State::Failed => "failure",
        _ => "aborted",
    };
    let suites: Vec<&str> = run.suites.iter().map(|suite| suite.path.as_str()).take(10).collect();
    let attributes = vec![
        text(name::TEST_SUITE_NAME, &suites.join(", ")),
        KeyValue::new(name::TEST_SUITE_RUN_STATUS, status),
        text(name::RUN_ID, &run.run_id),
        KeyValue::new(name::BUNDLE_SHA256, hex::encode(run.spec.bundle)),
        KeyValue::new(name::RUN_STATE, run.state.name()),
    ];
    // Its last cases are stored a moment after they ended.
    let end = run.finished_at.map_or(event.at, |finished| finished.max(event.at));
    let mut span = span(subject, subject.trace.run(), None, name::SPAN_RUN.into(), clock(run.created_at), clock(end));
    if let Some(parent) = &subject.trace.parent {
        span.parent_span_id = otel_span_id(parent.span_id);
        span.parent_span_is_remote = true;
    }
    span.attributes = attributes;
    if run.state != State::Passed {
        let why = run.error.as_ref().map_or_else(|| run.state.name(), |fault| fault.message.as_str());
        span.status = error(why);
        if let Some(fault) = &run.error {
            span.attributes.push(text(name::ERROR_TYPE, &fault.reason));
        }
    }
    let of_suites = run.suites.iter().flat_map(|suite| {
        let stale = suite.staleness.iter().flat_map(|staleness| &staleness.warnings).map(|warning| &warning.text);
        suite.warnings.iter().chain(stale).map(|warning| (warning, Some(suite.path.as_str())))
    });
    let warnings = run.warnings.iter().map(|warning| (warning, None)).chain(of_suites).map(|(warning, suite)| {
        let mut attributes = vec![text(name::MESSAGE, warning)];
        attributes.extend(suite.map(|suite| text(name::CASE_SUITE, suite)));
        happened(name::EVENT_WARNING, end, attributes)
    });
    span.events.events.extend(warnings.take(MAX_EVENTS));
    Some(span)
}

fn span(
    subject: &Subject,
    id: SpanId,
    parent: Option<SpanId>,
    name: Cow<'static, str>,
    start: SystemTime,
    end: SystemTime,
) -> SpanData {
    let trace_id = OtelTraceId::from_bytes(subject.trace.trace_id.0);
    SpanData {
        span_context: SpanContext::new(trace_id, otel_span_id(id), TraceFlags::SAMPLED, false, TraceState::default()),
        parent_span_id: parent.map_or(OtelSpanId::INVALID, otel_span_id),
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name,
        start_time: start,
        end_time: end.max(start),
        attributes: Vec::new(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: subject.scope.clone(),
    }
}

fn otel_span_id(id: SpanId) -> OtelSpanId {
    OtelSpanId::from_bytes(id.0)
}

/// When something began and ended; of earlier versions only the end is in the log.
fn times(began: Option<Timestamp>, duration: Duration, stored: Timestamp) -> (SystemTime, SystemTime) {
    let stored = clock(stored);
    let began = began.map_or_else(|| stored.checked_sub(duration).unwrap_or(stored), clock);
    (began, began.checked_add(duration).unwrap_or(began))
}

/// So much later, but not after `end`: an agent may say anything.
fn later(time: SystemTime, by: Duration, end: SystemTime) -> SystemTime {
    time.checked_add(by).map_or(end, |later| later.min(end).max(time))
}

/// A time as exporters want it; what they cannot say is the beginning of time.
fn clock(at: Timestamp) -> SystemTime {
    SystemTime::try_from(at).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// An operation and what it is done with.
fn named(operation: &'static str, of: &str) -> Cow<'static, str> {
    if of.is_empty() { operation.into() } else { format!("{operation} {}", cut(of, MAX_TEXT)).into() }
}

fn happened(event: &'static str, at: Timestamp, attributes: Vec<KeyValue>) -> Event {
    Event::new(event, clock(at), attributes, 0)
}

fn text(key: &'static str, value: &str) -> KeyValue {
    KeyValue::new(key, cut(value, MAX_TEXT).to_owned())
}

fn strings(key: &'static str, value: &str) -> KeyValue {
    KeyValue::new(key, Value::Array(vec![opentelemetry::StringValue::from(cut(value, MAX_TEXT).to_owned())].into()))
}

fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

fn error(why: &str) -> Status {
    Status::error(cut(why, MAX_TEXT).to_owned())
}

fn tokens(usage: &Usage, conventions: Conventions) -> Vec<KeyValue> {
    let counts = [
        (name::USAGE_INPUT_TOKENS, usage.input_tokens),
        (name::USAGE_OUTPUT_TOKENS, usage.output_tokens),
        (name::USAGE_CACHE_READ, usage.cache_read_tokens),
        (conventions.usage_cache_write(), usage.cache_write_tokens),
        (name::USAGE_REASONING, usage.reasoning_tokens),
    ];
    counts.into_iter().filter_map(|(key, count)| Some(KeyValue::new(key, count?))).collect()
}

const fn finish_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Completed => "stop",
        FinishReason::ToolCalls => "tool_call",
        FinishReason::MaxModelTurns => "max_model_turns",
        FinishReason::MaxTokens => "length",
        FinishReason::Refused => "content_filter",
        FinishReason::Cancelled => "cancelled",
        FinishReason::BudgetExceeded => "budget_exceeded",
        FinishReason::Failed => "error",
        FinishReason::InputRequired => "input_required",
    }
}

/// One of few words for a failure.
pub(super) const fn failure_kind(failure: &Failure) -> &'static str {
    match failure {
        Failure::Timeout => "timeout",
        Failure::Agent(_) => "agent_error",
        Failure::Protocol(_) => "protocol_violation",
        Failure::Lost(_) => "connection_lost",
        Failure::Unreachable(_) => "unreachable",
        Failure::Suite(_) => "unsupported",
        Failure::MaxTurns(_) => "max_turns",
        Failure::Cancelled => "cancelled",
        Failure::Stalled(_) => "daemon_stalled",
    }
}

fn failure_text(failure: &Failure) -> &str {
    match failure {
        Failure::Timeout => "the time of the case ran out",
        Failure::Cancelled => "the run was cancelled",
        Failure::MaxTurns(_) => "the agent took more model turns than it may",
        Failure::Agent(why)
        | Failure::Protocol(why)
        | Failure::Lost(why)
        | Failure::Unreachable(why)
        | Failure::Suite(why)
        | Failure::Stalled(why) => why,
    }
}

#[cfg(test)]
mod tests;
