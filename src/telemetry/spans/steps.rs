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
use super::{MAX_STEPS, clock, error, later, name, named, span, tells_a_call, text, tokens};
use crate::conversation::{AgentEventKind, FinishReason, ToolCall, ToolOutcome, Usage};
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

pub(super) type Finished = (FinishReason, Option<Usage>);

impl Steps<'_, '_> {
    /// The spans of model turns and tool calls, unless the agent exports them itself; and how it says it ended.
    pub(super) fn read(&self, within: &[&Arc<RunEvent>]) -> (Vec<SpanData>, Option<Finished>) {
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
