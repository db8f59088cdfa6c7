//! Events of a run → spans, as section "Telemetry" of the documentation says: run, case, turn, call, and what happened in a call.
//!
//! Pure functions of the log: whoever exports a run later, or again, exports the same spans.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use opentelemetry::trace::{
    Event, Link, SpanContext, SpanId as OtelSpanId, SpanKind, Status, TraceFlags, TraceId as OtelTraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use super::semconv as name;
use crate::conversation::{
    AgentCard, AgentEventKind, Failure, FinishReason, Message, Part, Payload as Json, Role, ToolCall, ToolMode,
    ToolOutcome, Usage,
};
use crate::event::{CallEnd, CaseRef, PartySaid, Payload, Run, RunEvent, Said, State};
use crate::json::write_string;
use crate::peer::target::Target;
use crate::trace::{RunTrace, SpanId};
use crate::verdict::{AssertionResult, CaseResult, Outcome};

/// Longest text of an attribute, in bytes; the rest is left out.
const MAX_TEXT: usize = 1 << 10;
/// Longest content of an attribute, in bytes.
const MAX_CONTENT: usize = 64 << 10;
/// Most content of an attempt, in bytes.
const MAX_CONTENT_OF_ALL: usize = 1 << 20;
/// Most spans of model turns and tool calls of one call.
const MAX_STEPS: usize = 1_000;
/// Most events of one span.
const MAX_EVENTS: usize = 1_000;

/// What all spans of a run have in common.
#[derive(Debug, Clone)]
pub struct Subject {
    run_id: String,
    trace: RunTrace,
    agent_id: String,
    endpoint: Option<Target>,
    card: Option<AgentCard>,
    content: bool,
    scope: InstrumentationScope,
}

impl Subject {
    /// Of a run.
    #[must_use]
    pub fn of(run: &Run) -> Self {
        Self {
            run_id: run.run_id.clone(),
            trace: run.trace(),
            agent_id: run.spec.agent_id.clone(),
            endpoint: run.agent_endpoint.parse().ok(),
            card: run.agent.clone(),
            content: run.spec.capture_content,
            scope: InstrumentationScope::builder(name::SCOPE)
                .with_version(env!("CARGO_PKG_VERSION"))
                .with_schema_url(name::SCHEMA_URL)
                .build(),
        }
    }
}

type CaseKey = (Arc<str>, Arc<str>, u32);

/// Sorts the events of a log by what becomes spans together.
#[derive(Debug)]
pub struct Grouper {
    subject: Subject,
    /// Events of the attempts that go on, by suite, id and repetition of the case.
    open: HashMap<CaseKey, Vec<Arc<RunEvent>>>,
    /// Cases whose attempts go on and are passed over, by their digests.
    passed_over: HashSet<u64>,
}

/// Events that become spans together.
#[derive(Debug)]
pub enum Group {
    /// Those of an attempt at a case that is over.
    Attempt(Vec<Arc<RunEvent>>),
    /// The end of the run.
    Run(Arc<RunEvent>),
}

impl Grouper {
    /// For a run of which no event, or none of an open case, was seen.
    #[must_use]
    pub fn new(run: &Run) -> Self {
        Self { subject: Subject::of(run), open: HashMap::new(), passed_over: HashSet::new() }
    }

    /// What all spans of the run have in common, as far as it is known.
    #[must_use]
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Passes over the events of attempts that begin while there is no room for their spans: how many spans an event would have
    /// become, about. `None`: it is not of such an attempt, and is to be taken. This has to cost next to nothing: with a receiver
    /// that is down it is done for every event of a run.
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
            let key = || (Arc::clone(&case.suite), Arc::clone(&case.case_id), case.repeat);
            return Some(if self.open.is_empty() { 0 } else { usize::from(self.open.remove(&key()).is_some()) });
        }
        if self.passed_over.is_empty() || !self.passed_over.contains(&digest(case)) {
            return None;
        }
        Some(match &event.payload {
            Payload::AttemptFinished(_) | Payload::CaseFinished(_) => {
                self.passed_over.remove(&digest(case));
                1
            }
            Payload::CallEnded(_) | Payload::PartySaid(_) => 1,
            Payload::Agent(said) => usize::from(is_step(&said.kind)),
            _ => 0,
        })
    }

    /// Takes the next event; the groups that are whole with it.
    pub fn take(&mut self, event: &Arc<RunEvent>) -> Vec<Group> {
        let Some(case) = &event.case else {
            match &event.payload {
                Payload::AgentDescribed(card) => self.subject.card = Some((**card).clone()),
                Payload::RunFinished(_) => {
                    // Those that have no end have been cut off.
                    let open = self.open.drain().map(|(_, events)| Group::Attempt(events));
                    return open.chain([Group::Run(Arc::clone(event))]).collect();
                }
                _ => {}
            }
            return Vec::new();
        };
        if matches!(event.payload, Payload::CasePlanned { .. }) {
            return Vec::new();
        }
        let key = (Arc::clone(&case.suite), Arc::clone(&case.case_id), case.repeat);
        match &event.payload {
            Payload::CaseStarted { .. } => {
                // One that is open was cut off with the daemon that ran it.
                let cut_off = self.open.insert(key, vec![Arc::clone(event)]);
                cut_off.map(Group::Attempt).into_iter().collect()
            }
            Payload::AttemptFinished(_) | Payload::CaseFinished(_) => {
                let mut events = self.open.remove(&key).unwrap_or_default();
                events.push(Arc::clone(event));
                vec![Group::Attempt(events)]
            }
            _ => {
                if let Some(events) = self.open.get_mut(&key) {
                    events.push(Arc::clone(event));
                }
                Vec::new()
            }
        }
    }

    /// How many spans a group has, without making them.
    #[must_use]
    pub fn count(group: &Group) -> usize {
        let Group::Attempt(events) = group else { return 1 };
        let is_dialogue = events.first().is_some_and(|event| is_dialogue(&event.payload));
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
                    count += 1 + if ended.exports_spans { 0 } else { steps.min(MAX_STEPS) };
                    (steps, told) = (0, false);
                }
                Payload::PartySaid(_) => count += 1,
                _ => continue,
            }
            if is_dialogue && event.turn > 0 && !turns.contains(&event.turn) {
                turns.push(event.turn);
            }
        }
        count + turns.len()
    }

    /// The spans of a group.
    #[must_use]
    pub fn spans(&self, group: &Group) -> Vec<SpanData> {
        match group {
            Group::Attempt(events) => Attempt::spans(&self.subject, events),
            Group::Run(event) => run_span(&self.subject, event).into_iter().collect(),
        }
    }
}

/// Tells cases apart well enough for what is lost anyway, and costs less than their names.
fn digest(case: &CaseRef) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&case.suite, &case.case_id, case.repeat).hash(&mut hasher);
    hasher.finish()
}

/// Whether what an agent said becomes a span.
const fn is_step(said: &AgentEventKind) -> bool {
    matches!(said, AgentEventKind::ToolStarted { .. } | AgentEventKind::ModelTurn { .. })
}

/// Whether the agent tells of a tool call.
fn tells_a_call(said: &Payload) -> bool {
    matches!(said, Payload::Agent(said) if matches!(said.kind, AgentEventKind::ToolStarted { .. }))
}

/// Whether a case has several turns.
fn is_dialogue(started: &Payload) -> bool {
    matches!(started, Payload::CaseStarted { mode, .. } if matches!(mode.as_str(), "dynamic" | "test"))
}

/// The span of a run that is over.
fn run_span(subject: &Subject, event: &RunEvent) -> Option<SpanData> {
    let Payload::RunFinished(run) = &event.payload else { return None };
    let status = match run.state {
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
    let warnings =
        run.warnings.iter().map(|warning| happened(name::EVENT_WARNING, end, vec![text(name::MESSAGE, warning)]));
    span.events.events.extend(warnings.take(MAX_EVENTS));
    Some(span)
}

/// An attempt at a case, while its spans are made.
struct Attempt<'a> {
    subject: &'a Subject,
    case: &'a CaseRef,
    case_span: SpanId,
    /// Where it is in the log: what says no time of its own happened between these.
    began: Timestamp,
    spans: Vec<SpanData>,
    /// Things that happened, for the span of the case.
    events: Vec<Event>,
    tool_mode: ToolMode,
    /// Span of the first call of the case itself.
    first: OtelSpanId,
    /// Calls of the agent under test: turn, position in `spans`, conversation.
    calls: Vec<(u32, usize, &'a str)>,
    /// Turns, with when they began and ended.
    turns: Vec<(u32, SystemTime, SystemTime)>,
    is_dialogue: bool,
    /// Bytes of content that still have room.
    room: Cell<usize>,
}

impl<'a> Attempt<'a> {
    fn spans(subject: &'a Subject, events: &'a [Arc<RunEvent>]) -> Vec<SpanData> {
        let Some((first, last)) = events.first().zip(events.last()) else { return Vec::new() };
        let Some(case) = &first.case else { return Vec::new() };
        let (mode, tool_mode, first_call) = match &first.payload {
            Payload::CaseStarted { mode, tool_mode, invocation_id } => {
                (mode.as_str(), *tool_mode, invocation_id.as_str())
            }
            // It was never started.
            _ => ("", ToolMode::Live, ""),
        };
        let mut attempt = Self {
            subject,
            case,
            case_span: subject.trace.case(case.attempted()),
            began: first.at,
            spans: Vec::new(),
            events: Vec::new(),
            tool_mode,
            first: otel_span_id(SpanId::of_call(first_call)),
            calls: Vec::new(),
            turns: Vec::new(),
            is_dialogue: is_dialogue(&first.payload),
            room: Cell::new(MAX_CONTENT_OF_ALL),
        };
        let mut within: Vec<&Arc<RunEvent>> = Vec::new();
        for event in events {
            match &event.payload {
                Payload::Agent(_) | Payload::StubServed { .. } | Payload::SpansRead(_) => within.push(event),
                Payload::CallEnded(ended) => {
                    attempt.call(event, ended, &within);
                    within.clear();
                }
                Payload::PartySaid(party) => attempt.party(event, party),
                Payload::CheckpointReached { checkpoint } => {
                    let attributes = vec![text(name::CHECKPOINT_ID, checkpoint)];
                    attempt.events.push(happened(name::EVENT_CHECKPOINT, event.at, attributes));
                }
                Payload::Warning(warning) => {
                    attempt.events.push(happened(name::EVENT_WARNING, event.at, vec![text(name::MESSAGE, warning)]));
                }
                _ => {}
            }
        }
        let result = match &last.payload {
            Payload::AttemptFinished(result) | Payload::CaseFinished(result) => Some(&**result),
            _ => None,
        };
        if let Some(result) = result {
            attempt.evaluations(result, last.at);
        }
        if let Payload::AttemptFinished(_) = &last.payload {
            attempt.events.push(happened(name::EVENT_RETRY, last.at, Vec::new()));
        }
        attempt.finish(mode, result, last.at)
    }

    /// The span of the case, and of its turns.
    fn finish(mut self, mode: &str, result: Option<&CaseResult>, end: Timestamp) -> Vec<SpanData> {
        let subject = self.subject;
        for (turn, began, ended) in std::mem::take(&mut self.turns) {
            let id = subject.trace.turn(self.case.attempted(), turn);
            let mut span = span(subject, id, Some(self.case_span), name::SPAN_TURN.into(), began, ended);
            span.attributes.push(KeyValue::new(name::TURN_NUMBER, i64::from(turn)));
            self.spans.push(span);
        }
        let began = self.spans.iter().map(|span| span.start_time).min();
        let ended = self.spans.iter().map(|span| span.end_time).max();
        // What was called began before the log says that the case did: it is stored a moment later.
        let began = began.map_or(clock(self.began), |began| began.min(clock(self.began)));
        let ended = ended.map_or(clock(end), |ended| ended.max(clock(end)));
        let parent = Some(subject.trace.run());
        let mut span = span(subject, self.case_span, parent, name::SPAN_CASE.into(), began, ended);
        span.attributes = vec![
            text(name::TEST_CASE_NAME, &self.case.case_id),
            text(name::RUN_ID, &subject.run_id),
            text(name::CASE_ID, &self.case.case_id),
            text(name::CASE_SUITE, &self.case.suite),
            KeyValue::new(name::CASE_ATTEMPT, i64::from(self.case.attempt)),
            KeyValue::new(name::CASE_REPEAT, i64::from(self.case.repeat)),
        ];
        if !mode.is_empty() {
            span.attributes.push(text(name::CASE_MODE, mode));
        }
        if let Some(result) = result {
            span.attributes.push(KeyValue::new(name::CASE_OUTCOME, result.outcome.name()));
            match result.outcome {
                Outcome::Passed => span.attributes.push(KeyValue::new(name::TEST_CASE_RESULT_STATUS, "pass")),
                Outcome::Failed => span.attributes.push(KeyValue::new(name::TEST_CASE_RESULT_STATUS, "fail")),
                Outcome::Skipped | Outcome::Errored => {}
            }
            span.attributes.extend(result.cause.map(|cause| KeyValue::new(name::CASE_CAUSE, cause.name())));
            span.attributes.extend(result.blame.map(|blame| KeyValue::new(name::CASE_BLAME, blame.name())));
            if result.replayed {
                span.attributes.push(KeyValue::new(name::REPLAYED, true));
            }
            if matches!(result.outcome, Outcome::Failed | Outcome::Errored) {
                span.status = error(result.error.as_deref().unwrap_or_default());
                span.attributes.extend(result.cause.map(|cause| KeyValue::new(name::ERROR_TYPE, cause.name())));
            }
            let remarks = result.warning.iter().chain(&result.warnings);
            self.events
                .extend(remarks.map(|remark| happened(name::EVENT_WARNING, end, vec![text(name::MESSAGE, remark)])));
        } else {
            span.status = error("the daemon ended before the case did");
            span.attributes.push(KeyValue::new(name::ERROR_TYPE, "cancelled"));
        }
        self.events.truncate(MAX_EVENTS);
        span.events.events.append(&mut self.events);
        // Before the others: who reads a file of spans reads the case first.
        self.spans.insert(0, span);
        self.spans
    }

    /// An attribute with content, as far as there is room for it.
    fn content(&self, key: &'static str, value: &str) -> KeyValue {
        let kept = cut(value, MAX_CONTENT.min(self.room.get()));
        self.room.set(self.room.get() - kept.len());
        KeyValue::new(key, kept.to_owned())
    }

    /// What the span of a call in this turn hangs below; the turn lasts as long as its calls.
    fn parent(&mut self, turn: u32, began: SystemTime, ended: SystemTime) -> SpanId {
        if !self.is_dialogue || turn == 0 {
            return self.case_span;
        }
        match self.turns.iter_mut().find(|(known, ..)| *known == turn) {
            Some((_, first, last)) => (*first, *last) = ((*first).min(began), (*last).max(ended)),
            None => self.turns.push((turn, began, ended)),
        }
        self.subject.trace.turn(self.case.attempted(), turn)
    }

    /// A call of an agent, and what happened in it.
    fn call(&mut self, event: &RunEvent, ended: &'a CallEnd, within: &[&Arc<RunEvent>]) {
        let subject = self.subject;
        let (began, end) = times(ended.began, ended.duration, event.at);
        let is_under_test = ended.to.is_empty();
        let card = subject.card.as_ref().filter(|_| is_under_test);
        let called = if is_under_test { &subject.agent_id } else { &ended.to };
        let agent = card.map(|card| &card.name).filter(|name| !name.is_empty()).unwrap_or(called);
        let parent = self.parent(event.turn, began, end);
        let id = SpanId::of_call(&ended.invocation_id);
        let mut call = span(subject, id, Some(parent), named(name::OPERATION_INVOKE_AGENT, agent), began, end);
        call.span_kind = SpanKind::Client;
        let provider = card.map(|card| card.provider_name.as_str()).filter(|provider| !provider.is_empty());
        call.attributes = vec![
            KeyValue::new(name::OPERATION_NAME, name::OPERATION_INVOKE_AGENT),
            text(name::PROVIDER_NAME, provider.unwrap_or(name::PROVIDER_FORGE)),
            text(name::AGENT_NAME, agent),
            text(name::INVOCATION_ID, &ended.invocation_id),
            KeyValue::new(
                name::TOOL_MODE,
                match self.tool_mode {
                    ToolMode::Live => "live",
                    ToolMode::Stub => "stub",
                    ToolMode::RoutingOnly => "routing_only",
                },
            ),
        ];
        let mut add = |key: &'static str, value: &str| {
            if !value.is_empty() {
                call.attributes.push(text(key, value));
            }
        };
        add(name::CONVERSATION_ID, &ended.conversation_id);
        if let Some(card) = card {
            add(name::AGENT_ID, &card.agent_id);
            add(name::AGENT_VERSION, &card.version);
            add(name::AGENT_DESCRIPTION, &card.description);
            add(name::REQUEST_MODEL, &card.model);
        }
        if let Some(target) = subject.endpoint.as_ref().filter(|_| is_under_test) {
            let (host, port) = target.parts();
            call.attributes.push(text(name::SERVER_ADDRESS, host));
            call.attributes.push(KeyValue::new(name::SERVER_PORT, i64::from(port)));
        }
        let steps = Steps { attempt: self, ended, id, began, end };
        let (mut spans, finished) = steps.read(within);
        if let Some((reason, usage)) = finished {
            call.attributes.push(strings(name::RESPONSE_FINISH_REASONS, finish_reason(reason)));
            call.attributes.extend(usage.as_ref().map(tokens).unwrap_or_default());
        }
        if let Some(failure) = &ended.failure {
            call.attributes.push(KeyValue::new(name::ERROR_TYPE, failure_kind(failure)));
            call.status = error(failure_text(failure));
        }
        if subject.content {
            if !ended.input.is_empty() {
                call.attributes.push(self.content(name::INPUT_MESSAGES, &messages_json(&ended.input)));
            }
            if let Some(answer) = answer_of(ended, within) {
                call.attributes.push(self.content(name::OUTPUT_MESSAGES, &messages_json(&[answer])));
            }
        }
        let stubs = within.iter().filter_map(|event| match &event.payload {
            Payload::StubServed { call_id, .. } => {
                Some(happened(name::EVENT_STUB_SERVED, event.at, vec![text(name::TOOL_CALL_ID, call_id)]))
            }
            _ => None,
        });
        call.events.events.extend(stubs.take(MAX_EVENTS));
        if is_under_test {
            self.calls.push((event.turn, self.spans.len(), &ended.conversation_id));
        }
        self.spans.push(call);
        self.spans.append(&mut spans);
    }

    /// A question to a simulator or validator.
    fn party(&mut self, event: &RunEvent, party: &PartySaid) {
        let subject = self.subject;
        let (began, end) = times(party.began, party.duration, event.at);
        let parent = self.parent(event.turn, began, end);
        let is_validator = matches!(party.said, Said::Vote { .. })
            || (matches!(party.said, Said::Silence(_)) && self.calls.iter().any(|(turn, ..)| *turn == event.turn));
        let (operation, role) = if is_validator {
            (name::OPERATION_EVALUATION, "validator")
        } else {
            (name::OPERATION_INVOKE_AGENT, "simulator")
        };
        let verb = if is_validator { "evaluate" } else { operation };
        let id = SpanId::of_call(&party.request_id);
        let mut asked = span(subject, id, Some(parent), named(verb, &party.by), began, end);
        asked.span_kind = SpanKind::Client;
        asked.attributes = vec![
            KeyValue::new(name::OPERATION_NAME, operation),
            KeyValue::new(name::PROVIDER_NAME, name::PROVIDER_FORGE),
            text(name::AGENT_NAME, &party.by),
            KeyValue::new(name::ROLE, role),
        ];
        if is_validator && let Some((_, judged, _)) = self.calls.iter().rfind(|(turn, ..)| *turn <= event.turn) {
            let mut links = SpanLinks::default();
            links.links.push(Link::with_context(self.spans[*judged].span_context.clone()));
            asked.links = links;
        }
        if let Said::Silence(why) = &party.said {
            asked.attributes.push(KeyValue::new(name::ERROR_TYPE, format!("{role}_error")));
            asked.status = error(why);
        }
        self.spans.push(asked);
    }

    /// What came of assertions and checkpoints, beside the call that they judge.
    fn evaluations(&mut self, result: &CaseResult, at: Timestamp) {
        // Scripts around the case may call agents, too: what is judged is the conversation of its own first call.
        let first =
            self.calls.iter().find(|(_, position, _)| self.spans[*position].span_context.span_id() == self.first);
        if let Some((.., conversation)) = first.copied() {
            self.calls.retain(|(.., of)| *of == conversation);
        }
        let last = self.calls.last().map(|(_, position, _)| *position);
        for assertion in &result.assertions {
            self.evaluation(last, evaluation(&assertion.name, assertion, self.case), at);
        }
        for checkpoint in &result.checkpoints {
            let turn = checkpoint.reached_at_turn;
            let call = turn.and_then(|turn| self.calls.iter().rfind(|(called, ..)| *called == turn));
            let call = call.map(|(_, position, _)| *position).or(last);
            let reached = if turn.is_some() { "pass" } else { "fail" };
            let mut attributes = vec![
                text(name::EVALUATION_NAME, &checkpoint.id),
                KeyValue::new(name::EVALUATION_LABEL, reached),
                KeyValue::new(name::ASSERTION_TYPE, "checkpoint"),
                text(name::CASE_ID, &self.case.case_id),
            ];
            let reasons = checkpoint.assertions.iter().map(|it| it.reason.as_str()).filter(|it| !it.is_empty());
            let reasons: Vec<&str> = reasons.take(10).collect();
            if turn.is_none() && !reasons.is_empty() {
                attributes.push(text(name::EVALUATION_EXPLANATION, &reasons.join("; ")));
            }
            self.evaluation(call, attributes, at);
        }
    }

    fn evaluation(&mut self, call: Option<usize>, attributes: Vec<KeyValue>, at: Timestamp) {
        let event = happened(name::EVENT_EVALUATION, at, attributes);
        match call.and_then(|position| self.spans.get_mut(position)) {
            Some(span) if span.events.events.len() < MAX_EVENTS => span.events.events.push(event),
            Some(span) => span.events.dropped_count += 1,
            None => self.events.push(event),
        }
    }
}

fn evaluation(of: &str, assertion: &AssertionResult, case: &CaseRef) -> Vec<KeyValue> {
    let label = match assertion.outcome {
        Outcome::Passed => "pass",
        Outcome::Failed => "fail",
        Outcome::Skipped => "skip",
        Outcome::Errored => "error",
    };
    let mut attributes = vec![
        text(name::EVALUATION_NAME, of),
        KeyValue::new(name::EVALUATION_LABEL, label),
        KeyValue::new(name::ASSERTION_TYPE, "assertion"),
        text(name::CASE_ID, &case.case_id),
    ];
    if let Some(score) = assertion.opinion.as_ref().and_then(|opinion| opinion.score) {
        attributes.push(KeyValue::new(name::EVALUATION_SCORE, score));
    }
    if !assertion.reason.is_empty() {
        attributes.push(text(name::EVALUATION_EXPLANATION, &assertion.reason));
    }
    if assertion.outcome == Outcome::Errored {
        let blame = assertion.blame.map_or("suite", crate::verdict::Blame::name);
        attributes.push(KeyValue::new(name::ERROR_TYPE, format!("{blame}_error")));
    }
    attributes
}

/// What happened in a call.
struct Steps<'a, 'b> {
    attempt: &'a Attempt<'b>,
    ended: &'a CallEnd,
    id: SpanId,
    began: SystemTime,
    end: SystemTime,
}

type Finished = (FinishReason, Option<Usage>);

impl Steps<'_, '_> {
    /// The spans of model turns and tool calls, unless the agent exports them itself; and how it says it ended.
    fn read(&self, within: &[&Arc<RunEvent>]) -> (Vec<SpanData>, Option<Finished>) {
        let mut spans: Vec<SpanData> = Vec::new();
        let mut open: HashMap<&str, usize> = HashMap::new();
        let mut finished = None;
        let served: HashMap<&str, &ToolOutcome> = within
            .iter()
            .filter_map(|event| match &event.payload {
                Payload::StubServed { call_id, outcome, .. } => Some((call_id.as_str(), outcome)),
                _ => None,
            })
            .collect();
        let is_told = within.iter().any(|event| tells_a_call(&event.payload));
        for event in within {
            let said = match &event.payload {
                Payload::Agent(said) => said,
                // They stand nowhere else where runs are looked at. When each began is not known here.
                Payload::SpansRead(read) if !is_told && !self.ended.exports_spans => {
                    for call in read.tool_calls.iter().take(MAX_STEPS - spans.len().min(MAX_STEPS)) {
                        let mut span = self.tool(call, "span", spans.len(), self.began);
                        span.end_time = later(self.began, call.duration.unwrap_or_default(), self.end);
                        self.end_tool(&mut span, call.outcome.as_ref());
                        spans.push(span);
                    }
                    continue;
                }
                _ => continue,
            };
            let at = match said.elapsed {
                Some(elapsed) => later(self.began, elapsed, self.end),
                None => clock(event.at).clamp(self.began, self.end),
            };
            match &said.kind {
                AgentEventKind::Finished(end) => finished = Some((end.reason, end.usage)),
                _ if self.ended.exports_spans || spans.len() >= MAX_STEPS => {}
                AgentEventKind::ToolStarted { call, .. } => {
                    let source = if served.contains_key(call.call_id.as_str()) { "stub" } else { "agent" };
                    open.insert(&call.call_id, spans.len());
                    spans.push(self.tool(call, source, spans.len(), at));
                }
                AgentEventKind::ToolFinished { call_id, outcome, duration } => {
                    if let Some(span) = open.remove(call_id.as_str()).and_then(|position| spans.get_mut(position)) {
                        let by_duration = duration.map(|duration| later(span.start_time, duration, self.end));
                        span.end_time = if said.elapsed.is_some() { at } else { by_duration.unwrap_or(at) };
                        self.end_tool(span, outcome.as_ref());
                    }
                }
                AgentEventKind::ModelTurn { index: _, model, usage } => {
                    spans.push(self.chat(model, usage.as_ref(), &spans, at));
                }
                _ => {}
            }
        }
        (spans, finished)
    }

    fn step(&self, kind: &str, number: usize, of: Cow<'static, str>, at: SystemTime) -> SpanData {
        let id = SpanId::within_call(&self.ended.invocation_id, kind, number);
        span(self.attempt.subject, id, Some(self.id), of, at, self.end)
    }

    fn tool(&self, call: &ToolCall, source: &'static str, number: usize, at: SystemTime) -> SpanData {
        let subject = self.attempt.subject;
        let mut span = self.step("tool", number, named(name::OPERATION_EXECUTE_TOOL, &call.name), at);
        span.attributes = vec![
            KeyValue::new(name::OPERATION_NAME, name::OPERATION_EXECUTE_TOOL),
            text(name::TOOL_NAME, &call.name),
            text(name::TOOL_CALL_ID, &call.call_id),
            KeyValue::new(name::TOOL_SOURCE, source),
        ];
        let spec = subject.card.iter().flat_map(|card| &card.tools).find(|tool| tool.name == call.name);
        if let Some(spec) = spec.filter(|spec| !spec.description.is_empty()) {
            span.attributes.push(text(name::TOOL_DESCRIPTION, &spec.description));
        }
        if let Some(params) = call.params.as_ref().filter(|_| subject.content) {
            span.attributes.push(self.attempt.content(name::TOOL_CALL_ARGUMENTS, json_text(params)));
        }
        span
    }

    fn end_tool(&self, span: &mut SpanData, outcome: Option<&ToolOutcome>) {
        match outcome {
            Some(ToolOutcome::Result(result)) => {
                if let Some(result) = result.as_ref().filter(|_| self.attempt.subject.content) {
                    span.attributes.push(self.attempt.content(name::TOOL_CALL_RESULT, json_text(result)));
                }
            }
            Some(ToolOutcome::Error(fault)) => {
                let reason = if fault.reason.is_empty() { "tool_error" } else { fault.reason.as_str() };
                span.attributes.push(text(name::ERROR_TYPE, reason));
                span.status = error(&fault.message);
            }
            None => {
                span.attributes.push(KeyValue::new(name::ERROR_TYPE, "no_outcome"));
                span.status = error("the agent did not say how it ended");
            }
        }
    }

    /// A model turn is told when it is over: it is taken to have begun with the call, or with the end of what came before it.
    fn chat(&self, model: &str, usage: Option<&Usage>, before: &[SpanData], at: SystemTime) -> SpanData {
        let began = before.iter().map(|span| span.end_time).filter(|end| *end <= at).max().unwrap_or(self.began);
        let mut span = self.step("chat", before.len(), named(name::OPERATION_CHAT, model), began);
        span.end_time = at;
        span.span_kind = SpanKind::Client;
        let provider = self.attempt.subject.card.as_ref().map(|card| card.provider_name.as_str());
        let provider = provider.filter(|provider| !provider.is_empty()).unwrap_or(name::PROVIDER_FORGE);
        span.attributes =
            vec![KeyValue::new(name::OPERATION_NAME, name::OPERATION_CHAT), text(name::PROVIDER_NAME, provider)];
        if !model.is_empty() {
            span.attributes.push(text(name::RESPONSE_MODEL, model));
        }
        span.attributes.extend(usage.map(tokens).unwrap_or_default());
        span
    }
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

fn strings(key: &'static str, value: &'static str) -> KeyValue {
    KeyValue::new(key, Value::Array(vec![opentelemetry::StringValue::from(value)].into()))
}

fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

fn error(why: &str) -> Status {
    Status::error(cut(why, MAX_TEXT).to_owned())
}

fn tokens(usage: &Usage) -> Vec<KeyValue> {
    let counts = [
        (name::USAGE_INPUT_TOKENS, usage.input_tokens),
        (name::USAGE_OUTPUT_TOKENS, usage.output_tokens),
        (name::USAGE_CACHE_READ, usage.cache_read_tokens),
        (name::USAGE_CACHE_WRITE, usage.cache_write_tokens),
        (name::USAGE_REASONING, usage.reasoning_tokens),
    ];
    counts.into_iter().filter_map(|(key, count)| Some(KeyValue::new(key, count?))).collect()
}

const fn finish_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Completed => "stop",
        FinishReason::ToolCalls => "tool_calls",
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
        Failure::Cancelled => "cancelled",
    }
}

fn failure_text(failure: &Failure) -> &str {
    match failure {
        Failure::Timeout => "the time of the case ran out",
        Failure::Cancelled => "the run was cancelled",
        Failure::Agent(why)
        | Failure::Protocol(why)
        | Failure::Lost(why)
        | Failure::Unreachable(why)
        | Failure::Suite(why) => why,
    }
}

fn json_text(json: &Json) -> &str {
    match json {
        Json::Json(text) => text.as_str(),
        Json::Malformed(text) => text,
    }
}

/// What the agent answered, if an event or the end of the call holds it.
fn answer_of(ended: &CallEnd, within: &[&Arc<RunEvent>]) -> Option<Message> {
    let told = within.iter().rev().find_map(|event| match &event.payload {
        Payload::Agent(said) => match &said.kind {
            AgentEventKind::Finished(finished) => finished.response.clone(),
            _ => None,
        },
        _ => None,
    });
    told.or_else(|| {
        let text = ended.response.clone().filter(|text| !text.is_empty())?;
        Some(Message { role: Role::Assistant, parts: vec![Part::Text(text)] })
    })
}

/// Messages as the conventions write them: `[{"role": …, "parts": [{"type": "text", "content": …}]}]`.
fn messages_json(messages: &[Message]) -> String {
    let mut out = String::from("[");
    for (index, message) in messages.iter().enumerate() {
        out.push_str(if index > 0 { ",{\"role\":\"" } else { "{\"role\":\"" });
        out.push_str(match message.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        });
        out.push_str("\",\"parts\":[");
        for (index, part) in message.parts.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            let (kind, key, value) = match part {
                Part::Text(text) => ("text", "content", text.as_str()),
                Part::Reasoning(text) => ("reasoning", "content", text.as_str()),
                Part::Data(json) => ("text", "content", json.as_str()),
                // Files are not repeated in traces.
                Part::Blob(blob) => ("file", "name", blob.name.as_str()),
            };
            out.push_str("{\"type\":\"");
            out.push_str(kind);
            out.push_str("\",\"");
            out.push_str(key);
            out.push_str("\":");
            write_string(value, &mut out);
            out.push('}');
        }
        out.push_str("]}");
    }
    out.push(']');
    out
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::conversation::{AgentEvent, Fault, Finished, JsonText, SpanEvidence};
    use crate::plan::RunSpec;
    use crate::trace::{TraceHeaders, TraceParent};
    use crate::verdict::{Blame, Cause, CheckpointResult, Opinion, Totals};

    const RUN_ID: &str = "0192f0c1-2d3e-7a4b-8c5d-6e7f8091a2b3";

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_767_322_800_000 + millis).expect("in range")
    }

    fn run(content: bool) -> Run {
        let headers = TraceHeaders {
            traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned(),
            ..TraceHeaders::default()
        };
        Run {
            run_id: RUN_ID.to_owned(),
            spec: RunSpec {
                trace_parent: Some(TraceParent::read(&headers).expect("is good")),
                capture_content: content,
                ..RunSpec::new("grpc://127.0.0.1:5005", vec!["s.jsonl".to_owned()])
            },
            state: State::Running,
            totals: Totals::default(),
            created_at: at(0),
            finished_at: None,
            last_sequence: 0,
            error: None,
            warnings: vec!["odd".to_owned()],
            agent: None,
            agent_endpoint: "grpc://127.0.0.1:5005".to_owned(),
            suites: Vec::new(),
            paused: false,
            concurrency: None,
            gate: None,
        }
    }

    /// A log that is told event by event.
    struct Told(Vec<Arc<RunEvent>>);

    impl Told {
        fn run(&mut self, millis: i64, payload: Payload) {
            self.push(millis, None, 0, payload);
        }

        fn case(&mut self, id: &str, attempt: u32, millis: i64, turn: u32, payload: Payload) {
            let case = CaseRef { suite: "s.jsonl".into(), case_id: id.into(), repeat: 1, attempt };
            self.push(millis, Some(case), turn, payload);
        }

        fn push(&mut self, millis: i64, case: Option<CaseRef>, turn: u32, payload: Payload) {
            let sequence = self.0.len() as u64 + 1;
            self.0.push(Arc::new(RunEvent { sequence, at: at(millis), case, turn, payload }));
        }
    }

    fn started(mode: &str) -> Payload {
        Payload::CaseStarted { mode: mode.to_owned(), tool_mode: ToolMode::Stub, invocation_id: "i1".to_owned() }
    }

    fn agent(elapsed: u64, kind: AgentEventKind) -> Payload {
        Payload::Agent(AgentEvent { seq: 1, elapsed: Some(Duration::from_millis(elapsed)), kind })
    }

    fn tool(name: &str) -> ToolCall {
        let params = Some(Json::Json(JsonText::new(r#"{"city": "Paris"}"#).expect("JSON")));
        ToolCall { call_id: "c1".to_owned(), name: name.to_owned(), params, outcome: None, duration: None }
    }

    fn ended(id: &str, began: i64, millis: u64, failure: Option<Failure>) -> Payload {
        Payload::CallEnded(Box::new(CallEnd {
            invocation_id: id.to_owned(),
            conversation_id: "conversation".to_owned(),
            began: Some(at(began)),
            duration: Duration::from_millis(millis),
            failure,
            input: vec![Message::user("Weather in Paris?")],
            ..CallEnd::default()
        }))
    }

    fn party(by: &str, began: i64, said: Said) -> Payload {
        Payload::PartySaid(Box::new(PartySaid {
            by: by.to_owned(),
            digest: String::new(),
            said,
            request_id: format!("question to {by} at {began}"),
            began: Some(at(began)),
            duration: Duration::from_millis(5),
        }))
    }

    fn result(outcome: Outcome, assertions: Vec<AssertionResult>) -> CaseResult {
        let bad = outcome != Outcome::Passed;
        CaseResult {
            outcome,
            cause: bad.then_some(Cause::Assertion),
            blame: bad.then_some(Blame::Agent),
            error: bad.then(|| "contains: expected \"sun\"".to_owned()),
            assertions,
            warnings: vec!["look here".to_owned()],
            ..CaseResult::without_assertions(
                outcome,
                Cause::Assertion,
                Blame::Agent,
                "",
                crate::conversation::Transcript::default(),
            )
        }
    }

    fn assertion(name: &str, outcome: Outcome, reason: &str, score: Option<f64>) -> AssertionResult {
        AssertionResult {
            name: name.to_owned(),
            outcome,
            reason: reason.to_owned(),
            unresolved_tokens: Vec::new(),
            blame: None,
            written: None,
            opinion: score.map(|score| Opinion { score: Some(score), ..Opinion::default() }),
        }
    }

    fn log(content: bool) -> (Run, Told) {
        let mut log = Told(Vec::new());
        let run = run(content);
        log.run(0, Payload::RunStarted(Box::new(run.clone())));
        let card = AgentCard {
            agent_id: "weather".to_owned(),
            name: "Weather".to_owned(),
            version: "1.2".to_owned(),
            description: "Knows the weather".to_owned(),
            provider_name: "openai".to_owned(),
            model: "gpt-x".to_owned(),
            tools: vec![crate::conversation::ToolSpec {
                name: "get_weather".to_owned(),
                description: "The weather of a city".to_owned(),
                ..crate::conversation::ToolSpec::default()
            }],
        };
        log.run(1, Payload::AgentDescribed(Box::new(card)));
        // A case that a daemon left behind.
        log.case("single", 1, 2, 0, started("single"));
        // Its second attempt fails, its third passes.
        log.case("single", 2, 10, 0, started("single"));
        log.case(
            "single",
            2,
            14,
            1,
            agent(1, AgentEventKind::ToolStarted { call: tool("get_weather"), awaits_result: true }),
        );
        let outcome = ToolOutcome::Result(Some(Json::Json(JsonText::new("{\"sun\": true}").expect("JSON"))));
        let served = Payload::StubServed { call_id: "c1".to_owned(), outcome: outcome.clone(), unstubbed: false };
        log.case("single", 2, 15, 1, served);
        let finished =
            AgentEventKind::ToolFinished { call_id: "c1".to_owned(), outcome: Some(outcome), duration: None };
        log.case("single", 2, 16, 1, agent(3, finished));
        let broken = ToolOutcome::Error(Fault { reason: "NO_SEATS".to_owned(), ..Fault::message("no seats") });
        log.case(
            "single",
            2,
            16,
            1,
            agent(
                4,
                AgentEventKind::ToolStarted {
                    call: ToolCall { call_id: "c2".to_owned(), ..tool("book") },
                    awaits_result: false,
                },
            ),
        );
        log.case(
            "single",
            2,
            17,
            1,
            agent(5, AgentEventKind::ToolFinished { call_id: "c2".to_owned(), outcome: Some(broken), duration: None }),
        );
        let usage = Usage { input_tokens: Some(12), output_tokens: Some(0), ..Usage::default() };
        log.case(
            "single",
            2,
            17,
            1,
            agent(6, AgentEventKind::ModelTurn { index: 1, model: "gpt-x-1".to_owned(), usage: Some(usage) }),
        );
        let answer = Message { role: Role::Assistant, parts: vec![Part::Text("Rain.".to_owned())] };
        log.case(
            "single",
            2,
            18,
            1,
            agent(
                7,
                AgentEventKind::Finished(Finished {
                    reason: FinishReason::Completed,
                    response: Some(answer),
                    usage: Some(usage),
                    error: None,
                    tool_calls: 2,
                    spans_flushed: false,
                }),
            ),
        );
        log.case("single", 2, 20, 1, ended("i2", 11, 8, None));
        let vote = Said::Vote { passed: false, reason: "no".to_owned(), score: Some(0.25), reply: String::new() };
        log.case("single", 2, 26, 1, party("judge", 20, vote));
        log.case(
            "single",
            2,
            30,
            0,
            Payload::AttemptFinished(Box::new(result(
                Outcome::Failed,
                vec![
                    assertion("contains", Outcome::Failed, "expected \"sun\"", None),
                    assertion("agent", Outcome::Failed, "no", Some(0.25)),
                    assertion("snapshot", Outcome::Skipped, "renewed", None),
                    assertion("script", Outcome::Errored, "it threw", None),
                ],
            ))),
        );
        log.case("single", 3, 40, 0, started("single"));
        log.case("single", 3, 48, 1, ended("i3", 41, 6, None));
        log.case(
            "single",
            3,
            50,
            0,
            Payload::CaseFinished(Box::new(result(
                Outcome::Passed,
                vec![assertion("contains", Outcome::Passed, "", None)],
            ))),
        );
        // A dialogue whose agent exports its own spans, and fails in the end.
        log.case("dialogue", 1, 60, 0, started("dynamic"));
        log.case("dialogue", 1, 66, 1, party("user", 61, Said::Input(Some(Message::user("Hi")), false)));
        log.case(
            "dialogue",
            1,
            67,
            1,
            agent(1, AgentEventKind::ToolStarted { call: tool("get_weather"), awaits_result: false }),
        );
        let own = Payload::CallEnded(Box::new(CallEnd {
            exports_spans: true,
            invocation_id: "i4".to_owned(),
            began: Some(at(67)),
            duration: Duration::from_millis(5),
            ..CallEnd::default()
        }));
        log.case("dialogue", 1, 72, 1, own);
        log.case("dialogue", 1, 72, 1, Payload::CheckpointReached { checkpoint: "greeted".to_owned() });
        log.case("dialogue", 1, 80, 2, party("user", 73, Said::Silence("it hung up".to_owned())));
        log.case("dialogue", 1, 90, 2, ended("i5", 81, 8, Some(Failure::Lost("gone".to_owned()))));
        let checkpoints = vec![
            CheckpointResult {
                id: "greeted".to_owned(),
                reached_at_turn: Some(1),
                required: true,
                assertions: Vec::new(),
            },
            CheckpointResult {
                id: "paid".to_owned(),
                reached_at_turn: None,
                required: true,
                assertions: vec![assertion("contains", Outcome::Failed, "no receipt", None)],
            },
        ];
        log.case(
            "dialogue",
            1,
            91,
            0,
            Payload::CaseFinished(Box::new(CaseResult { checkpoints, ..result(Outcome::Errored, Vec::new()) })),
        );
        // One that was never begun.
        log.case("left out", 1, 92, 0, Payload::CaseFinished(Box::new(result(Outcome::Skipped, Vec::new()))));
        let over = Run { state: State::Failed, finished_at: Some(at(100)), ..run.clone() };
        log.run(100, Payload::RunFinished(Box::new(over)));
        (run, log)
    }

    fn spans(content: bool) -> Vec<SpanData> {
        let (run, log) = log(content);
        let mut grouper = Grouper::new(&run);
        let mut spans = Vec::new();
        for event in &log.0 {
            for group in grouper.take(event) {
                let of_group = grouper.spans(&group);
                assert_eq!(Grouper::count(&group), of_group.len(), "{group:?}");
                spans.extend(of_group);
            }
        }
        spans
    }

    /// Spans as text: name, kind, place in the tree, times in milliseconds from the beginning, attributes, events.
    fn written(spans: &[SpanData]) -> String {
        let millis = |time: SystemTime| time.duration_since(clock(at(0))).expect("after the beginning").as_millis();
        let names: HashMap<OtelSpanId, &str> =
            spans.iter().map(|it| (it.span_context.span_id(), it.name.as_ref())).collect();
        let list = |attributes: &[KeyValue]| {
            let mut list: Vec<String> =
                attributes.iter().map(|it| format!("{}={:?}", it.key, it.value.as_str())).collect();
            list.sort();
            list
        };
        let mut out = String::new();
        for span in spans {
            let parent = names.get(&span.parent_span_id).copied();
            let parent = parent.map_or_else(|| format!("remote {}", span.parent_span_id), str::to_owned);
            let (began, ended) = (millis(span.start_time), millis(span.end_time));
            let _ = writeln!(out, "{} [{:?}] below {parent}, {began} to {ended}", span.name, span.span_kind);
            if let Status::Error { description } = &span.status {
                let _ = writeln!(out, "  error {description}");
            }
            for link in span.links.iter() {
                let _ = writeln!(out, "  link {}", names.get(&link.span_context.span_id()).copied().unwrap_or("?"));
            }
            for attribute in list(&span.attributes) {
                let _ = writeln!(out, "  {attribute}");
            }
            for event in span.events.iter() {
                let _ = writeln!(out, "  event {} {}", event.name, list(&event.attributes).join(" "));
            }
        }
        out
    }

    /// What leaves the daemon, word for word: people's dashboards look for it.
    #[test]
    fn the_exported_spans() {
        let (with, without) = (written(&spans(true)), written(&spans(false)));
        golden("spans.txt", &without);
        // With content, everything else is as without.
        let added: Vec<&str> = with.lines().filter(|line| !without.contains(line)).collect();
        golden("content.txt", &(added.join("\n") + "\n"));
    }

    /// Compares with a file, or writes it: `FORGE_WRITE_GOLDEN=1 cargo test the_exported_spans`, and look at what changed.
    fn golden(file: &str, text: &str) {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/telemetry/golden").join(file);
        if std::env::var_os("FORGE_WRITE_GOLDEN").is_some() {
            std::fs::write(&path, text).expect("writes");
        }
        let wanted = std::fs::read_to_string(&path).expect("is there");
        assert!(
            wanted == text,
            "{file} is not what is exported:\n{}",
            similar::TextDiff::from_lines(wanted.as_str(), text).unified_diff()
        );
    }

    /// Without room nothing is kept, and what is lost is counted; with room again, whole attempts are.
    #[test]
    fn attempts_are_passed_over_as_a_whole() {
        let (run, log) = log(false);
        let mut grouper = Grouper::new(&run);
        let (mut lost, mut names) = (0, Vec::new());
        for event in &log.0 {
            // Room comes back in the middle of the third attempt.
            let has_room = event.sequence > 16;
            if let Some(spans) = grouper.pass_over(event, has_room) {
                lost += spans;
                continue;
            }
            let groups = grouper.take(event);
            let spans = groups.iter().flat_map(|group| grouper.spans(group));
            names.extend(spans.map(|span| span.name.into_owned()));
        }
        // Two attempts with a call each, two tools, a model turn and a validator; nothing is known of one that was cut off.
        assert_eq!((lost, grouper.passed_over.len(), grouper.open.len()), (8, 0, 0), "{names:?}");
        let cases = names.iter().filter(|name| *name == "test_case").count();
        assert_eq!((cases, names.last().map(String::as_str)), (2, Some("test_suite_run")), "{names:?}");
    }

    #[test]
    fn spans_make_one_tree() {
        let spans = spans(false);
        let ids: HashSet<OtelSpanId> = spans.iter().map(|span| span.span_context.span_id()).collect();
        assert_eq!(ids.len(), spans.len(), "every id is there once");
        let roots: Vec<&SpanData> = spans.iter().filter(|span| !ids.contains(&span.parent_span_id)).collect();
        let [root] = roots[..] else { panic!("{roots:?}") };
        assert_eq!((root.name.as_ref(), root.parent_span_is_remote), (name::SPAN_RUN, true));
        assert!(spans.iter().all(|span| span.span_context.trace_id() == root.span_context.trace_id()));
        assert!(spans.iter().all(|span| span.start_time <= span.end_time));
    }

    /// What no clock shows is no reason to fall over.
    #[test]
    fn impossible_times() {
        let mut log = Told(Vec::new());
        log.case("c", 1, 0, 0, started("single"));
        for elapsed in [Duration::MAX, Duration::ZERO] {
            let said = |kind| Payload::Agent(AgentEvent { seq: 1, elapsed: Some(elapsed), kind });
            log.case("c", 1, 0, 1, said(AgentEventKind::ToolStarted { call: tool("t"), awaits_result: false }));
            let ended =
                AgentEventKind::ToolFinished { call_id: "c1".to_owned(), outcome: None, duration: Some(Duration::MAX) };
            log.case("c", 1, 0, 1, Payload::Agent(AgentEvent { seq: 1, elapsed: None, kind: ended }));
        }
        log.case("c", 1, 5, 1, ended("i", 0, 5, None));
        log.case("c", 1, 6, 0, Payload::CaseFinished(Box::new(result(Outcome::Passed, Vec::new()))));
        let mut grouper = Grouper::new(&run(false));
        let groups: Vec<Group> = log.0.iter().flat_map(|event| grouper.take(event)).collect();
        let spans = grouper.spans(&groups[0]);
        assert_eq!(spans.len(), 4);
        assert!(
            spans.iter().all(|span| span.start_time <= span.end_time && span.end_time <= clock(at(6))),
            "{spans:#?}"
        );
    }

    /// Tools that were read from the agent's spans stand in the trace, too, unless it exports them itself.
    #[test]
    fn tools_of_spans() {
        let names = |exports_spans: bool| {
            let mut log = Told(Vec::new());
            log.case("c", 1, 0, 0, started("single"));
            let read =
                SpanEvidence { tool_calls: vec![tool("a"), tool("b")], confirmed: true, ..SpanEvidence::default() };
            log.case("c", 1, 4, 1, Payload::SpansRead(Box::new(read)));
            let end = CallEnd {
                invocation_id: "i".to_owned(),
                began: Some(at(0)),
                duration: Duration::from_millis(4),
                exports_spans,
                ..CallEnd::default()
            };
            log.case("c", 1, 5, 1, Payload::CallEnded(Box::new(end)));
            log.case("c", 1, 6, 0, Payload::CaseFinished(Box::new(result(Outcome::Passed, Vec::new()))));
            let mut grouper = Grouper::new(&run(false));
            let groups: Vec<Group> = log.0.iter().flat_map(|event| grouper.take(event)).collect();
            let spans = grouper.spans(&groups[0]);
            assert_eq!(Grouper::count(&groups[0]), spans.len());
            spans.into_iter().map(|span| span.name.into_owned()).collect::<Vec<_>>()
        };
        let call = ["test_case", "invoke_agent grpc://127.0.0.1:5005"];
        assert_eq!(names(true), call);
        assert_eq!(names(false), [&call[..], &["execute_tool a", "execute_tool b"]].concat());
    }

    #[test]
    fn attributes_and_steps_are_bounded() {
        let long = "é".repeat(1 << 20);
        let mut log = Told(Vec::new());
        log.case("c", 1, 0, 0, started("single"));
        for number in 0..MAX_STEPS + 10 {
            let call = ToolCall { call_id: number.to_string(), name: long.clone(), ..tool("t") };
            let params = Some(Json::Malformed(long.clone()));
            let call = ToolCall { params, ..call };
            log.case("c", 1, 0, 1, agent(1, AgentEventKind::ToolStarted { call, awaits_result: false }));
        }
        log.case("c", 1, 1, 1, ended("i", 0, 1, Some(Failure::Agent(long.clone()))));
        let mut grouper = Grouper::new(&run(true));
        let result = CaseResult { error: Some(long), ..result(Outcome::Failed, Vec::new()) };
        log.case("c", 1, 1, 0, Payload::CaseFinished(Box::new(result)));
        let groups: Vec<Group> = log.0.iter().flat_map(|event| grouper.take(event)).collect();
        let spans = grouper.spans(&groups[0]);
        assert_eq!((spans.len(), Grouper::count(&groups[0])), (MAX_STEPS + 2, MAX_STEPS + 2));
        let size = |span: &SpanData| span.attributes.iter().map(|it| it.value.as_str().len()).sum::<usize>();
        let largest = spans.iter().map(size).max().unwrap_or_default();
        assert!(largest < 2 * MAX_CONTENT, "{largest}");
        let whole: usize = spans.iter().map(size).sum();
        assert!(whole < 8 << 20, "{whole}: content is bounded for a call as a whole");
    }
}
