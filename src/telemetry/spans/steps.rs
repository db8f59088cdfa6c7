//! What an agent did within a call: its model turns and tool calls.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use opentelemetry::KeyValue;
use opentelemetry::trace::SpanKind;
use opentelemetry_sdk::trace::SpanData;

use super::attempt::Attempt;
use super::content::json_text;
use super::{MAX_STEPS, clock, cut, error, later, name, named, span, strings, tells_a_call, text, tokens};
use crate::conversation::{AgentEventKind, MaybeJson, ModelTurn, ToolCall, ToolOutcome};
use crate::event::{CallEnd, Payload, RunEvent};
use crate::trace::SpanId;

/// What happened in a call.
pub(super) struct Steps<'a, 'b> {
    pub(super) attempt: &'a Attempt<'b>,
    pub(super) ended: &'a CallEnd,
    pub(super) id: SpanId,
    pub(super) began: SystemTime,
    pub(super) end: SystemTime,
}

/// What an agent told in a call.
pub(super) struct CallSteps<'a> {
    /// Spans of what it did, unless it exports them itself.
    pub(super) spans: Vec<SpanData>,
    /// The provider's id of the last answer of its model; empty: not known.
    pub(super) response_id: &'a str,
}

impl Steps<'_, '_> {
    /// Reads the events of the call.
    pub(super) fn read<'e>(&self, within: &[&'e Arc<RunEvent>]) -> CallSteps<'e> {
        let mut spans: Vec<SpanData> = Vec::new();
        let mut open: HashMap<&str, usize> = HashMap::new();
        let mut response_id = "";
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
                // They stand nowhere else where runs are looked at.
                Payload::SpansRead(read) if !is_told && !self.ended.exports_spans => {
                    let began = read.began.iter().map(|began| clock(*began).clamp(self.began, self.end));
                    let began = began.chain(std::iter::repeat(self.began));
                    let calls = read.tool_calls.iter().zip(began);
                    for (call, began) in calls.take(MAX_STEPS - spans.len().min(MAX_STEPS)) {
                        let mut span = self.tool(call, "span", spans.len(), began);
                        span.end_time = later(began, call.duration.unwrap_or_default(), self.end);
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
                AgentEventKind::ModelTurn(turn) => {
                    response_id = turn.response_id.as_str();
                    if !self.ended.exports_spans && spans.len() < MAX_STEPS {
                        spans.push(self.chat(turn, &spans, at));
                    }
                }
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
                _ => {}
            }
        }
        CallSteps { spans, response_id }
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
        if let Some(spec) = spec {
            let kind = if spec.kind.is_empty() { name::TOOL_TYPE_FUNCTION } else { &spec.kind };
            span.attributes.push(text(name::TOOL_TYPE, kind));
            if !spec.description.is_empty() {
                span.attributes.push(text(name::TOOL_DESCRIPTION, &spec.description));
            }
        }
        span.attributes.extend(call.params.given().and_then(|it| self.json(name::TOOL_CALL_ARGUMENTS, it)));
        span
    }

    /// What a tool was given or gave, as the agent told it, long ones cut.
    fn json(&self, key: &'static str, json: &MaybeJson) -> Option<KeyValue> {
        self.attempt.content(key, |most| cut(json_text(json), most).to_owned())
    }

    fn end_tool(&self, span: &mut SpanData, outcome: Option<&ToolOutcome>) {
        match outcome {
            Some(ToolOutcome::Result(result)) => {
                span.attributes.extend(result.as_ref().and_then(|it| self.json(name::TOOL_CALL_RESULT, it)));
            }
            Some(ToolOutcome::Error(fault)) => {
                let reason = if fault.reason.is_empty() { "tool_error" } else { fault.reason.as_str() };
                span.attributes.push(text(name::ERROR_TYPE, reason));
                span.status = error(&fault.message);
            }
            Some(ToolOutcome::NotRun) => {}
            None => {
                span.attributes.push(KeyValue::new(name::ERROR_TYPE, "no_outcome"));
                span.status = error("the agent did not say how it ended");
            }
        }
    }

    /// A model turn is told when it is over. If it does not say how long it took, it is taken to have begun with
    /// the call, or with the end of what came before it.
    fn chat(&self, turn: &ModelTurn, before: &[SpanData], at: SystemTime) -> SpanData {
        let began = match turn.duration.and_then(|duration| at.checked_sub(duration)) {
            Some(began) => began.max(self.began),
            None => before.iter().map(|span| span.end_time).filter(|end| *end <= at).max().unwrap_or(self.began),
        };
        let subject = self.attempt.subject;
        let mut span = self.step("chat", before.len(), named(name::OPERATION_CHAT, &turn.model), began);
        span.end_time = at;
        span.span_kind = SpanKind::Client;
        let provider = subject.card.as_ref().map(|card| card.provider_name.as_str());
        let provider = provider.filter(|provider| !provider.is_empty()).unwrap_or(name::PROVIDER_FORGE);
        span.attributes =
            vec![KeyValue::new(name::OPERATION_NAME, name::OPERATION_CHAT), text(name::PROVIDER_NAME, provider)];
        if !turn.model.is_empty() {
            span.attributes.push(text(name::RESPONSE_MODEL, &turn.model));
        }
        if !turn.response_id.is_empty() {
            span.attributes.push(text(name::RESPONSE_ID, &turn.response_id));
        }
        if !turn.finish_reason.is_empty() {
            span.attributes.push(strings(name::RESPONSE_FINISH_REASONS, &turn.finish_reason));
        }
        let usage = turn.usage.as_ref().map(|usage| tokens(usage, subject.style.conventions));
        span.attributes.extend(usage.unwrap_or_default());
        span
    }
}
