//! Events of a run → spans, as section "Telemetry" of the documentation says: run, case, turn, call, and what happened in a call.
//!
//! Pure functions of the log: whoever exports a run later, or again, exports the same spans.

use std::borrow::Cow;
use std::collections::HashMap;
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

/// Sorts the events of a log by what becomes spans together.
#[derive(Debug)]
pub struct Grouper {
    subject: Subject,
    open: HashMap<(Arc<str>, Arc<str>, u32), Vec<Arc<RunEvent>>>,
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
        Self { subject: Subject::of(run), open: HashMap::new() }
    }

    /// What all spans of the run have in common, as far as it is known.
    #[must_use]
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Takes the next event; the groups that are whole with it.
    pub fn take(&mut self, event: &Arc<RunEvent>) -> Vec<Group> {
        let Some(case) = &event.case else {
            match &event.payload {
                Payload::AgentDescribed(card) => self.subject.card = Some((**card).clone()),
                Payload::RunFinished(_) => return vec![Group::Run(Arc::clone(event))],
                _ => {}
            }
            return Vec::new();
        };
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
            Payload::CasePlanned { .. } => Vec::new(),
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
        let (mut count, mut steps, mut turns) = (1, 0, Vec::new());
        for event in events {
            match &event.payload {
                Payload::Agent(said) => {
                    let is_step =
                        matches!(said.kind, AgentEventKind::ToolStarted { .. } | AgentEventKind::ModelTurn { .. });
                    steps += usize::from(is_step);
                    continue;
                }
                Payload::CallEnded(ended) => {
                    count += 1 + if ended.exports_spans { 0 } else { steps.min(MAX_STEPS) };
                    steps = 0;
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
    let end = run.finished_at.unwrap_or(event.at);
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
    /// Position in `spans` of the last call of the agent in each turn, with its turn.
    calls: Vec<(u32, usize)>,
    /// Turns, with when they began and ended.
    turns: Vec<(u32, SystemTime, SystemTime)>,
    is_dialogue: bool,
}

impl<'a> Attempt<'a> {
    fn spans(subject: &'a Subject, events: &'a [Arc<RunEvent>]) -> Vec<SpanData> {
        let Some((first, last)) = events.first().zip(events.last()) else { return Vec::new() };
        let Some(case) = &first.case else { return Vec::new() };
        let (mode, tool_mode) = match &first.payload {
            Payload::CaseStarted { mode, tool_mode, .. } => (mode.as_str(), *tool_mode),
            // It was never started.
            _ => ("", ToolMode::Live),
        };
        let mut attempt = Self {
            subject,
            case,
            case_span: subject.trace.case(case.attempted()),
            began: first.at,
            spans: Vec::new(),
            events: Vec::new(),
            tool_mode,
            calls: Vec::new(),
            turns: Vec::new(),
            is_dialogue: is_dialogue(&first.payload),
        };
        let mut within: Vec<&Arc<RunEvent>> = Vec::new();
        for event in events {
            match &event.payload {
                Payload::Agent(_) | Payload::StubServed { .. } => within.push(event),
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
        match result {
            Some(result) => {
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
                self.events.extend(
                    remarks.map(|remark| happened(name::EVENT_WARNING, end, vec![text(name::MESSAGE, remark)])),
                );
            }
            None => {
                span.status = error("the daemon ended before the case did");
                span.attributes.push(KeyValue::new(name::ERROR_TYPE, "cancelled"));
            }
        }
        self.events.truncate(MAX_EVENTS);
        span.events.events.append(&mut self.events);
        // Before the others: who reads a file of spans reads the case first.
        self.spans.insert(0, span);
        self.spans
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
    fn call(&mut self, event: &RunEvent, ended: &CallEnd, within: &[&Arc<RunEvent>]) {
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
                call.attributes.push(content(name::INPUT_MESSAGES, messages_json(&ended.input)));
            }
            if let Some(answer) = answer_of(ended, within) {
                call.attributes.push(content(name::OUTPUT_MESSAGES, messages_json(&[answer])));
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
            self.calls.push((event.turn, self.spans.len()));
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
            || (matches!(party.said, Said::Silence(_)) && self.calls.iter().any(|(turn, _)| *turn == event.turn));
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
        if is_validator && let Some((_, judged)) = self.calls.iter().rfind(|(turn, _)| *turn <= event.turn) {
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
        let last = self.calls.last().map(|(_, position)| *position);
        for assertion in &result.assertions {
            self.evaluation(last, evaluation(&assertion.name, assertion, self.case), at);
        }
        for checkpoint in &result.checkpoints {
            let turn = checkpoint.reached_at_turn;
            let call = turn.and_then(|turn| self.calls.iter().rfind(|(called, _)| *called == turn));
            let call = call.map(|(_, position)| *position).or(last);
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
        for event in within {
            let Payload::Agent(said) = &event.payload else { continue };
            let at = said.elapsed.map_or(clock(event.at), |elapsed| self.began + elapsed).clamp(self.began, self.end);
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
                        let by_duration = duration.map(|duration| span.start_time + duration);
                        span.end_time = if said.elapsed.is_some() { at } else { by_duration.unwrap_or(at) };
                        self.end_tool(span, outcome.as_ref());
                    }
                }
                AgentEventKind::ModelTurn { index: _, model, usage } => {
                    spans.push(self.chat(model, usage.as_ref(), spans.len(), at));
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
            span.attributes.push(content(name::TOOL_CALL_ARGUMENTS, json_text(params).to_owned()));
        }
        span
    }

    fn end_tool(&self, span: &mut SpanData, outcome: Option<&ToolOutcome>) {
        match outcome {
            Some(ToolOutcome::Result(result)) => {
                if let Some(result) = result.as_ref().filter(|_| self.attempt.subject.content) {
                    span.attributes.push(content(name::TOOL_CALL_RESULT, json_text(result).to_owned()));
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

    /// A model turn is told when it is over, and not how long it took: it is taken to have begun with the call, or with
    /// the end of what came before it.
    fn chat(&self, model: &str, usage: Option<&Usage>, number: usize, at: SystemTime) -> SpanData {
        let mut span = self.step("chat", number, named(name::OPERATION_CHAT, model), at);
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
    (began, began + duration)
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

fn content(key: &'static str, value: String) -> KeyValue {
    KeyValue::new(key, if value.len() > MAX_CONTENT { cut(&value, MAX_CONTENT).to_owned() } else { value })
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
