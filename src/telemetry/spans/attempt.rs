//! The spans of an attempt at a case: the case, its turns, the calls in it, and what came of its assertions.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use jiff::Timestamp;
use opentelemetry::KeyValue;
use opentelemetry::trace::{Event, Link, SpanId as OtelSpanId, SpanKind};
use opentelemetry_sdk::trace::{SpanData, SpanLinks};

use super::content::{answer_of, instructions, messages};
use super::steps::{CallSteps, Steps};
use super::{
    Endpoint, MAX_CONTENT, MAX_CONTENT_OF_ALL, MAX_EVENTS, MAX_STUBS, MIN_CONTENT, Subject, clock, error, failure_kind,
    failure_text, finish_reason, happened, has_turns, name, named, otel_span_id, span, strings, text, times, tokens,
};
use crate::case::CaseRef;
use crate::conversation::{AgentEvent, AgentEventKind, Finished, Message, Role, ToolMode, ToolOutcome};
use crate::event::{CallEnd, PartyRole, PartySaid, Payload, RunEvent, Said};
use crate::suite::ModeKind;
use crate::trace::SpanId;
use crate::verdict::{AssertionResult, CaseResult, Outcome};
use crate::wire::value::code_name;

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
    /// Calls of the agent under test.
    calls: Vec<Called<'a>>,
    /// Questions to simulators: turn, position in `spans`.
    questions: Vec<(u32, usize)>,
    /// Turns, with when they began and ended.
    turns: Vec<(u32, SystemTime, SystemTime)>,
    has_turns: bool,
    /// Bytes of content that still have room.
    room: Cell<usize>,
    /// Whether content was left out that had none.
    is_cut: Cell<bool>,
}

/// A call of the agent under test.
#[derive(Debug, Clone, Copy)]
struct Called<'a> {
    turn: u32,
    /// Where its span stands in `spans`.
    position: usize,
    conversation: &'a str,
    /// The provider's id of the last answer of its model, if it is known.
    response_id: &'a str,
}

impl<'a> Attempt<'a> {
    pub(super) fn spans(subject: &'a Subject, events: &'a [Arc<RunEvent>]) -> Vec<SpanData> {
        let Some((first, last)) = events.first().zip(events.last()) else { return Vec::new() };
        let Some(case) = &first.case else { return Vec::new() };
        let (mode, tool_mode, first_call) = match &first.payload {
            Payload::CaseStarted { mode, tool_mode, invocation_id } => {
                (Some(*mode), *tool_mode, invocation_id.as_str())
            }
            // It was never started.
            _ => (None, ToolMode::Live, ""),
        };
        let mut attempt = Self {
            subject,
            case,
            case_span: subject.trace.case(case),
            began: first.at,
            spans: Vec::new(),
            events: Vec::new(),
            tool_mode,
            first: otel_span_id(SpanId::of_call(first_call)),
            calls: Vec::new(),
            questions: Vec::new(),
            turns: Vec::new(),
            has_turns: has_turns(&first.payload),
            room: Cell::new(MAX_CONTENT_OF_ALL),
            is_cut: Cell::new(false),
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
        if let Payload::AttemptFinished(result) = &last.payload {
            let mut attributes = vec![KeyValue::new(name::CASE_ATTEMPT, i64::from(case.attempt) + 1)];
            attributes.extend(result.cause.map(|cause| KeyValue::new(name::REASON, cause.name())));
            attributes.extend(result.error.as_ref().map(|error| text(name::MESSAGE, error)));
            attempt.events.push(happened(name::EVENT_RETRY, last.at, attributes));
        }
        attempt.finish(mode, result, last.at)
    }

    /// The span of the case, and of its turns.
    fn finish(mut self, mode: Option<ModeKind>, result: Option<&CaseResult>, end: Timestamp) -> Vec<SpanData> {
        let subject = self.subject;
        for (turn, position) in std::mem::take(&mut self.questions) {
            let conversation = self.conversation(turn);
            self.spans[position].attributes.extend(conversation);
        }
        for (turn, began, ended) in std::mem::take(&mut self.turns) {
            let id = subject.trace.turn(self.case, turn);
            let mut span = span(subject, id, Some(self.case_span), name::SPAN_TURN.into(), began, ended);
            span.attributes.push(KeyValue::new(name::TURN_NUMBER, i64::from(turn)));
            span.attributes.extend(self.conversation(turn));
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
        span.attributes.extend(mode.map(|mode| KeyValue::new(name::CASE_MODE, mode.name())));
        if self.is_cut.get() {
            span.attributes.push(KeyValue::new(name::CONTENT_LEFT_OUT, true));
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

    /// The conversation of a turn: of its first call, else of the dialogue as a whole.
    fn conversation(&self, turn: u32) -> Option<KeyValue> {
        let of_turn = self.calls.iter().find(|call| call.turn == turn).or(self.calls.first());
        let conversation = of_turn.map(|call| call.conversation).filter(|conversation| !conversation.is_empty());
        conversation.map(|conversation| text(name::CONVERSATION_ID, conversation))
    }

    /// An attribute with content, if the run has any and there is room for it; what makes it is told how long it
    /// may be.
    pub(super) fn content(&self, key: &'static str, make: impl FnOnce(usize) -> String) -> Option<KeyValue> {
        let room = self.room.get();
        if !self.subject.content {
            return None;
        }
        if room < MIN_CONTENT {
            self.is_cut.set(true);
            return None;
        }
        let value = make(MAX_CONTENT.min(room));
        if value.len() > room || (room < MAX_CONTENT && value.len() + MIN_CONTENT > room) {
            // It is there in part at best.
            self.is_cut.set(true);
        }
        if value.len() > room {
            return None;
        }
        self.room.set(room - value.len());
        Some(KeyValue::new(key, value))
    }

    /// What the span of a call in this turn hangs below; the turn lasts as long as its calls.
    fn parent(&mut self, turn: u32, began: SystemTime, ended: SystemTime) -> SpanId {
        if !self.has_turns || turn == 0 {
            return self.case_span;
        }
        match self.turns.iter_mut().find(|(known, ..)| *known == turn) {
            Some((_, first, last)) => (*first, *last) = ((*first).min(began), (*last).max(ended)),
            None => self.turns.push((turn, began, ended)),
        }
        self.subject.trace.turn(self.case, turn)
    }

    /// A call of an agent, and what happened in it.
    fn call(&mut self, event: &RunEvent, ended: &'a CallEnd, within: &[&'a Arc<RunEvent>]) {
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
        let endpoint = subject.endpoint(ended);
        if let Some(endpoint) = &endpoint {
            call.attributes.extend(endpoint.attributes());
            call.attributes.push(KeyValue::new(name::TRANSPORT, endpoint.transport));
        }
        let finished = finished_in(within);
        let reason = finished.map(|finished| finish_reason(finished.reason));
        call.attributes.extend(reason.map(|reason| strings(name::RESPONSE_FINISH_REASONS, reason)));
        let usage = finished.and_then(|finished| finished.usage.as_ref());
        call.attributes.extend(usage.map(|usage| tokens(usage, subject.style.conventions)).unwrap_or_default());
        if let Some(failure) = &ended.failure {
            call.attributes.push(KeyValue::new(name::ERROR_TYPE, failure_kind(failure)));
            call.status = error(failure_text(failure));
        }
        if subject.content {
            // Before what the agent did, of which there may be much.
            if !ended.input.is_empty() {
                let input = self.content(name::INPUT_MESSAGES, |most| messages(&ended.input, None, most));
                call.attributes.extend(input);
            }
            if let Some(answer) = answer_of(ended, finished) {
                let output = self.content(name::OUTPUT_MESSAGES, |most| self.output(answer, reason, most));
                call.attributes.extend(output);
            }
            // Once is enough.
            if is_under_test && self.calls.is_empty() && !subject.definitions.is_empty() {
                let definitions = self.content(name::TOOL_DEFINITIONS, |_| subject.definitions.clone());
                call.attributes.extend(definitions);
            }
        }
        let steps = Steps { attempt: self, ended, id, began, end };
        let CallSteps { mut spans, response_id } = steps.read(within);
        let served = within.iter().filter(|event| matches!(event.payload, Payload::StubServed { .. })).count();
        if served > 0 {
            call.events.events.extend(stubs_served(within).take(MAX_STUBS));
        }
        call.events.dropped_count = u32::try_from(served.saturating_sub(MAX_STUBS)).unwrap_or(u32::MAX);
        if let Some(reason) = ended.cancel {
            let attributes =
                vec![text(name::INVOCATION_ID, &ended.invocation_id), KeyValue::new(name::REASON, reason.name())];
            call.events.events.push(Event::new(name::EVENT_CANCEL, end, attributes, 0));
        }
        if is_under_test {
            let (turn, position, conversation) = (event.turn, self.spans.len(), ended.conversation_id.as_str());
            self.calls.push(Called { turn, position, conversation, response_id });
        }
        self.spans.push(call);
        self.spans
            .extend(subject.rpc(ended).map(|status| rpc(subject, ended, endpoint.as_deref(), status, began, end)));
        self.spans.append(&mut spans);
    }

    /// An answer as content.
    fn output(&self, answer: Message, reason: Option<&str>, most: usize) -> String {
        let wants_reason = self.subject.style.conventions.has_finish_reason_in_messages();
        messages(&[answer], wants_reason.then_some(reason.unwrap_or("error")), most)
    }

    /// A question to a simulator or validator.
    fn party(&mut self, event: &RunEvent, party: &PartySaid) {
        let subject = self.subject;
        let (began, end) = times(party.began, party.duration, event.at);
        let parent = self.parent(event.turn, began, end);
        let (operation, verb) = match party.role {
            PartyRole::Validator => (name::OPERATION_EVALUATION, "evaluate"),
            PartyRole::Simulator => (name::OPERATION_INVOKE_AGENT, name::OPERATION_INVOKE_AGENT),
        };
        let id = SpanId::of_call(&party.request_id);
        let mut asked = span(subject, id, Some(parent), named(verb, &party.by), began, end);
        asked.span_kind = SpanKind::Client;
        asked.attributes = vec![
            KeyValue::new(name::OPERATION_NAME, operation),
            KeyValue::new(name::PROVIDER_NAME, name::PROVIDER_FORGE),
            text(name::AGENT_NAME, &party.by),
            KeyValue::new(name::ROLE, party.role.name()),
        ];
        if !party.request_id.is_empty() {
            asked.attributes.push(text(name::INVOCATION_ID, &party.request_id));
        }
        if let Some(endpoint) = Endpoint::of(&party.endpoint) {
            asked.attributes.extend(endpoint.attributes());
            asked.attributes.push(KeyValue::new(name::TRANSPORT, endpoint.transport));
        }
        let usage = party.usage.as_ref().map(|usage| tokens(usage, subject.style.conventions));
        asked.attributes.extend(usage.unwrap_or_default());
        match party.role {
            PartyRole::Simulator => self.questions.push((event.turn, self.spans.len())),
            PartyRole::Validator => {
                asked.attributes.push(text(name::EVALUATION_NAME, &party.by));
                if let Some(judged) = self.calls.iter().rfind(|call| call.turn <= event.turn) {
                    let mut links = SpanLinks::default();
                    links.links.push(Link::with_context(self.spans[judged.position].span_context.clone()));
                    asked.links = links;
                }
            }
        }
        let failed = match &party.said {
            Said::Silence(why) => Some((format!("{}_error", party.role.name()), why.as_str())),
            Said::Cancelled => Some(("cancelled".to_owned(), "the run was cancelled")),
            Said::Input { .. } | Said::Vote { .. } => None,
        };
        if let Some((kind, why)) = failed {
            asked.attributes.push(KeyValue::new(name::ERROR_TYPE, kind));
            asked.status = error(why);
        }
        if let Some(told) = &party.asked {
            if !told.instructions.is_empty() {
                let told = self.content(name::SYSTEM_INSTRUCTIONS, |most| instructions(&told.instructions, most));
                asked.attributes.extend(told);
            }
            if !told.messages.is_empty() {
                let told = self.content(name::INPUT_MESSAGES, |most| messages(&told.messages, None, most));
                asked.attributes.extend(told);
            }
            let answer = match &party.said {
                // To itself it is what a model says, whatever role it plays.
                Said::Input { message, .. } => {
                    message.as_ref().map(|said| Message { role: Role::Assistant, ..said.clone() })
                }
                Said::Vote { reply, .. } => Some(Message::assistant(reply.clone())),
                Said::Silence(_) | Said::Cancelled => None,
            };
            if let Some(answer) = answer {
                let said = self.content(name::OUTPUT_MESSAGES, |most| self.output(answer, Some("stop"), most));
                asked.attributes.extend(said);
            }
        }
        self.spans.push(asked);
    }

    /// What came of assertions and checkpoints, beside the call that they judge.
    fn evaluations(&mut self, result: &CaseResult, at: Timestamp) {
        // Scripts around the case may call agents, too: what is judged is the conversation of its own first call.
        let first = self.calls.iter().find(|call| self.spans[call.position].span_context.span_id() == self.first);
        if let Some(first) = first.copied() {
            self.calls.retain(|call| call.conversation == first.conversation);
        }
        let last = self.calls.last().copied();
        for assertion in &result.assertions {
            self.evaluation(last, evaluation(assertion, self.case), at);
        }
        for checkpoint in &result.checkpoints {
            let turn = checkpoint.reached_at_turn;
            let call = turn.and_then(|turn| self.calls.iter().rfind(|call| call.turn == turn)).copied().or(last);
            for assertion in &checkpoint.assertions {
                let mut attributes = evaluation(assertion, self.case);
                attributes.push(text(name::CHECKPOINT_ID, &checkpoint.id));
                self.evaluation(call, attributes, at);
            }
            let reached = if turn.is_some() { "pass" } else { "fail" };
            let mut attributes = vec![
                text(name::EVALUATION_NAME, &checkpoint.id),
                KeyValue::new(name::EVALUATION_LABEL, reached),
                KeyValue::new(name::ASSERTION_TYPE, "checkpoint"),
                text(name::CASE_ID, &self.case.case_id),
                text(name::CHECKPOINT_ID, &checkpoint.id),
            ];
            let reasons = checkpoint.assertions.iter().map(|it| it.reason.as_str()).filter(|it| !it.is_empty());
            let reasons: Vec<&str> = reasons.take(10).collect();
            if turn.is_none() && !reasons.is_empty() {
                attributes.push(text(name::EVALUATION_EXPLANATION, &reasons.join("; ")));
            }
            self.evaluation(call, attributes, at);
        }
    }

    fn evaluation(&mut self, call: Option<Called<'_>>, mut attributes: Vec<KeyValue>, at: Timestamp) {
        let response_id = call.map(|call| call.response_id).filter(|id| !id.is_empty());
        attributes.extend(response_id.map(|id| text(name::RESPONSE_ID, id)));
        let event = happened(name::EVENT_EVALUATION, at, attributes);
        match call.and_then(|call| self.spans.get_mut(call.position)) {
            Some(span) if span.events.events.len() < MAX_EVENTS => span.events.events.push(event),
            Some(span) => span.events.dropped_count = span.events.dropped_count.saturating_add(1),
            None => self.events.push(event),
        }
    }
}

/// How an agent says that a call ended.
fn finished_in<'a>(within: &[&'a Arc<RunEvent>]) -> Option<&'a Finished> {
    within.iter().rev().find_map(|event| match &event.payload {
        Payload::Agent(AgentEvent { kind: AgentEventKind::Finished(finished), .. }) => Some(finished),
        _ => None,
    })
}

/// The tools that the daemon answered for.
fn stubs_served<'a>(within: &'a [&Arc<RunEvent>]) -> impl Iterator<Item = Event> + 'a {
    let tools: HashMap<&str, &str> = within
        .iter()
        .filter_map(|event| match &event.payload {
            Payload::Agent(AgentEvent { kind: AgentEventKind::ToolStarted { call, .. }, .. }) => {
                Some((call.call_id.as_str(), call.name.as_str()))
            }
            _ => None,
        })
        .collect();
    within.iter().filter_map(move |event| {
        let Payload::StubServed { call_id, outcome, unstubbed } = &event.payload else { return None };
        let mut attributes = vec![text(name::TOOL_CALL_ID, call_id)];
        attributes.extend(tools.get(call_id.as_str()).map(|tool| text(name::TOOL_NAME, tool)));
        attributes.push(KeyValue::new(name::REASON, if *unstubbed { "unstubbed" } else { "stub" }));
        if let ToolOutcome::Error(fault) = outcome {
            attributes.push(text(name::MESSAGE, &fault.message));
        }
        Some(happened(name::EVENT_STUB_SERVED, event.at, attributes))
    })
}

/// The span of the RPC of a call.
fn rpc(
    subject: &Subject,
    ended: &CallEnd,
    endpoint: Option<&Endpoint>,
    status: i32,
    began: SystemTime,
    end: SystemTime,
) -> SpanData {
    let id = SpanId::within_call(&ended.invocation_id, "rpc", 0);
    let parent = Some(SpanId::of_call(&ended.invocation_id));
    let status = tonic::Code::from(status);
    let mut rpc = span(subject, id, parent, name::RPC_INVOKE.into(), began, end);
    rpc.span_kind = SpanKind::Client;
    rpc.attributes = vec![
        KeyValue::new(name::RPC_SYSTEM, name::RPC_SYSTEM_GRPC),
        KeyValue::new(name::RPC_METHOD, name::RPC_INVOKE),
        KeyValue::new(name::RPC_STATUS, code_name(status)),
    ];
    rpc.attributes.extend(endpoint.into_iter().flat_map(Endpoint::attributes));
    if status != tonic::Code::Ok {
        rpc.attributes.push(KeyValue::new(name::ERROR_TYPE, code_name(status)));
        rpc.status = error(ended.failure.as_ref().map(failure_text).unwrap_or_default());
    }
    rpc
}

/// Whom a suite has judge: the validator or script that the assertion names.
fn judge_of(assertion: &AssertionResult) -> Option<String> {
    if !matches!(assertion.name.as_str(), "agent" | "script") {
        return None;
    }
    let written = assertion.written.as_ref()?.parse();
    let named = ["use", "script"].iter().find_map(|key| written.get(key).and_then(crate::json::Json::as_str))?;
    Some(named.split_once(':').map_or(named, |(_, id)| id).to_owned())
}

fn evaluation(assertion: &AssertionResult, case: &CaseRef) -> Vec<KeyValue> {
    let label = match assertion.outcome {
        Outcome::Passed => "pass",
        Outcome::Failed => "fail",
        Outcome::Skipped => "skip",
        Outcome::Errored => "error",
    };
    let mut attributes = vec![
        text(name::EVALUATION_NAME, judge_of(assertion).as_deref().unwrap_or(&assertion.name)),
        KeyValue::new(name::EVALUATION_LABEL, label),
        text(name::ASSERTION_TYPE, &assertion.name),
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
