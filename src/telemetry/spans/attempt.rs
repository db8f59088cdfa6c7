//! The spans of an attempt at a case: the case, its turns, the calls in it, and what came of its assertions.

use std::cell::Cell;
use std::sync::Arc;
use std::time::SystemTime;

use jiff::Timestamp;
use opentelemetry::KeyValue;
use opentelemetry::trace::{Event, Link, SpanId as OtelSpanId, SpanKind};
use opentelemetry_sdk::trace::{SpanData, SpanLinks};

use super::content::{answer_of, messages_json};
use super::steps::Steps;
use super::{
    MAX_CONTENT, MAX_CONTENT_OF_ALL, MAX_EVENTS, Subject, clock, cut, error, failure_kind, failure_text, finish_reason,
    happened, is_dialogue, name, named, otel_span_id, span, strings, text, times, tokens,
};
use crate::conversation::ToolMode;
use crate::event::{CallEnd, CaseRef, PartySaid, Payload, RunEvent, Said};
use crate::trace::SpanId;
use crate::verdict::{AssertionResult, CaseResult, Outcome};

/// An attempt at a case, while its spans are made.
pub(super) struct Attempt<'a> {
    pub(super) subject: &'a Subject,
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
    pub(super) fn spans(subject: &'a Subject, events: &'a [Arc<RunEvent>]) -> Vec<SpanData> {
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
    pub(super) fn content(&self, key: &'static str, value: &str) -> KeyValue {
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
