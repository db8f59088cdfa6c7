//! `forge.agent.v1` ↔ [`crate::conversation`].

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::agent as pb;
use super::party::options_to_proto;
use super::value::{
    WireError, duration_from_proto, duration_to_proto, fault_from_proto, fault_to_proto, json_from_proto,
    json_to_proto, payload_to_proto, result_to_proto, shorten, usage_from_proto, usage_to_proto,
};
use crate::conversation::{
    AgentCard, AgentEvent, AgentEventKind, Arguments, Blob, CancelReason, Content, Description, FinishReason, Finished,
    INLINE_BYTES, Invocation, MaybeJson, Message, ModelTurn, Part, Role, Source, ToolCall, ToolMode, ToolOutcome,
    ToolSpec, large_contents,
};
use crate::json::Json;
use crate::trace::TraceHeaders;

/// Most warnings of an agent about one call that are kept.
const MAX_WARNINGS: usize = 20;
/// Most tools of an agent that are kept.
const MAX_TOOLS: usize = 2_000;

/// The first frame of a call, whose spans hang below `trace`.
#[must_use]
pub fn start_to_proto(call: &Invocation, trace: &TraceHeaders) -> pb::InvokeRequest {
    let context = pb::CallContext {
        agent_id: call.agent_id.clone(),
        suite: call.case.suite.to_string(),
        repeat: call.case.repeat,
        request_id: call.invocation_id.clone(),
        run_id: call.run_id.clone(),
        case_id: call.case.case_id.to_string(),
        turn: call.turn,
        attempt: call.case.attempt,
        budget: Some(duration_to_proto(call.budget)),
        trace_context: trace_to_proto(trace),
        ..pb::CallContext::default()
    };
    let start = pb::InvokeStart {
        context: Some(context),
        invocation_id: call.invocation_id.clone(),
        conversation_id: call.conversation_id.clone(),
        messages: call.messages.iter().map(message_to_proto).collect(),
        tool_mode: tool_mode_to_proto(call.tool_mode).into(),
        max_model_turns: call.max_model_turns,
        attachments: large_contents(&call.messages)
            .iter()
            .map(|content| {
                let source = Some(pb::blob::Source::AttachmentId(attachment_id(content)));
                described(pb::Blob { source, ..pb::Blob::default() }, content)
            })
            .collect(),
        options: call.options.as_ref().map(|options| options_to_proto(&options.parse())),
        // Always, so that a stream that is cut keeps its partial text.
        want_deltas: true,
        ..pb::InvokeStart::default()
    };
    pb::InvokeRequest { frame: Some(pb::invoke_request::Frame::Start(start)) }
}

/// What a call says about the trace that it belongs to.
#[must_use]
pub fn trace_to_proto(headers: &TraceHeaders) -> HashMap<String, String> {
    headers.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The place in a trace that a call names; keys that are not known are left out.
#[must_use]
pub fn trace_from_proto(context: &pb::CallContext) -> TraceHeaders {
    let value = |name| context.trace_context.get(name).cloned().unwrap_or_default();
    TraceHeaders { traceparent: value("traceparent"), tracestate: value("tracestate"), baggage: value("baggage") }
}

/// The frame that asks an agent to end a call.
#[must_use]
pub fn cancel_to_proto(reason: CancelReason, grace: Duration) -> pb::InvokeRequest {
    let (reason, message) = match reason {
        CancelReason::User => (pb::CancelReason::User, "the run was cancelled"),
        CancelReason::Budget => (pb::CancelReason::Budget, "the time of the case ran out"),
        CancelReason::ProtocolError => (pb::CancelReason::ProtocolError, "the agent broke the protocol"),
        CancelReason::Shutdown => (pb::CancelReason::Shutdown, "the daemon stops"),
        CancelReason::FailFast => (pb::CancelReason::FailFast, "another case did not pass"),
        CancelReason::Decided => (pb::CancelReason::FailFast, "what comes of the run is decided"),
        CancelReason::MaxTurns => (pb::CancelReason::MaxModelTurns, "it took more model turns than it may"),
    };
    let cancel =
        pb::InvokeCancel { reason: reason.into(), message: message.to_owned(), grace: Some(duration_to_proto(grace)) };
    pb::InvokeRequest { frame: Some(pb::invoke_request::Frame::Cancel(cancel)) }
}

/// What the daemon answers to a tool call.
#[must_use]
pub fn tool_result_to_proto(call_id: &str, outcome: &ToolOutcome, unstubbed: bool) -> pb::ToolResult {
    let outcome = match outcome {
        ToolOutcome::Result(result) => Some(pb::tool_result::Outcome::Result(result_to_proto(result.as_ref()))),
        ToolOutcome::Error(fault) => Some(pb::tool_result::Outcome::Error(fault_to_proto(fault))),
        ToolOutcome::NotRun => None,
    };
    pb::ToolResult { call_id: call_id.to_owned(), outcome, unstubbed }
}

/// Reads what [`tool_result_to_proto`] wrote: call id, outcome, whether the case has no stub for the tool.
///
/// # Errors
/// When no outcome is set.
pub fn tool_result_from_proto(result: pb::ToolResult) -> Result<(String, ToolOutcome, bool), WireError> {
    let outcome = match result.outcome {
        Some(pb::tool_result::Outcome::Result(json)) => ToolOutcome::Result(json_from_proto(Some(json))),
        Some(pb::tool_result::Outcome::Error(fault)) => ToolOutcome::Error(fault_from_proto(&fault)),
        None => return Err(WireError::new("tool_result.outcome", "is not set")),
    };
    Ok((result.call_id, outcome, result.unstubbed))
}

/// A message of a conversation.
#[must_use]
pub fn message_to_proto(message: &Message) -> pb::Message {
    let role = match message.role {
        Role::System => pb::Role::System,
        Role::User => pb::Role::User,
        Role::Assistant => pb::Role::Assistant,
        Role::Tool => pb::Role::Tool,
    };
    let parts = message.parts.iter().map(|part| {
        let content = match part {
            Part::Text(text) => pb::part::Content::Text(text.clone()),
            Part::Reasoning(text) => pb::part::Content::Reasoning(text.clone()),
            Part::Data(json) => pb::part::Content::Data(json_to_proto(json)),
            Part::Blob(blob) => pb::part::Content::Blob(blob_to_proto(blob)),
        };
        pb::Part { content: Some(content) }
    });
    pb::Message { role: role.into(), parts: parts.collect(), ..pb::Message::default() }
}

fn blob_to_proto(blob: &Blob) -> pb::Blob {
    let wire = pb::Blob { media_type: blob.media_type.clone(), name: blob.name.clone(), ..pb::Blob::default() };
    match &blob.source {
        Source::Uri(uri) => pb::Blob { source: Some(pb::blob::Source::Uri(uri.clone())), ..wire },
        // Files are read before anything is sent; one that was not has no content.
        Source::File(_) => wire,
        Source::Content(content) => pb::Blob {
            source: Some(if content.bytes.len() > INLINE_BYTES {
                pb::blob::Source::AttachmentId(attachment_id(content))
            } else {
                pb::blob::Source::Inline(content.bytes.to_vec())
            }),
            ..described(wire, content)
        },
    }
}

fn described(blob: pb::Blob, content: &Content) -> pb::Blob {
    let size_bytes = i64::try_from(content.bytes.len()).unwrap_or(i64::MAX);
    pb::Blob { size_bytes, sha256: content.sha256.to_vec(), ..blob }
}

/// Names content that travels in pieces: by what it is, so that the same file is sent once.
fn attachment_id(content: &Content) -> String {
    hex::encode(content.sha256)
}

/// A message for parties that take no attachments: what would travel in pieces is described and not sent.
#[must_use]
pub fn message_without_attachments(message: &Message) -> pb::Message {
    let mut wire = message_to_proto(message);
    for part in &mut wire.parts {
        if let Some(pb::part::Content::Blob(blob)) = &mut part.content
            && matches!(blob.source, Some(pb::blob::Source::AttachmentId(_)))
        {
            blob.source = None;
        }
    }
    wire
}

/// The frames that carry content in pieces of 64 KiB, made one by one as they are asked for.
pub fn chunks_to_proto(contents: Vec<Content>) -> impl Iterator<Item = pb::InvokeRequest> + Send {
    const PIECE: usize = 64 << 10;
    contents.into_iter().flat_map(|content| {
        let id = attachment_id(&content);
        (0..content.bytes.len()).step_by(PIECE).map(move |offset| {
            let end = (offset + PIECE).min(content.bytes.len());
            let chunk = pb::AttachmentChunk {
                attachment_id: id.clone(),
                offset: i64::try_from(offset).unwrap_or(i64::MAX),
                data: content.bytes[offset..end].to_vec(),
                last: end == content.bytes.len(),
            };
            pb::InvokeRequest { frame: Some(pb::invoke_request::Frame::Attachment(chunk)) }
        })
    })
}

/// Reads a message. A role that is not told is the assistant's: agents send no other. Parts that are neither text, data
/// nor reasoning, nor named by where they are, are left out.
#[must_use]
pub fn message_from_proto(message: pb::Message) -> Message {
    let role = match message.role() {
        pb::Role::System => Role::System,
        pb::Role::User => Role::User,
        pb::Role::Tool => Role::Tool,
        pb::Role::Assistant | pb::Role::Unspecified => Role::Assistant,
    };
    let parts = message.parts.into_iter().filter_map(|part| match part.content? {
        pb::part::Content::Text(text) => Some(Part::Text(text)),
        pb::part::Content::Reasoning(text) => Some(Part::Reasoning(text)),
        pb::part::Content::Data(json) => match json_from_proto(Some(json))? {
            MaybeJson::Json(text) => Some(Part::Data(text)),
            MaybeJson::Malformed(_) => None,
        },
        pb::part::Content::Blob(blob) => match blob.source? {
            pb::blob::Source::Uri(uri) => Some(Part::Blob(Blob {
                media_type: blob.media_type,
                name: blob.name,
                source: Source::Uri(uri),
                written: None,
            })),
            pb::blob::Source::Inline(_) | pb::blob::Source::AttachmentId(_) => None,
        },
        pb::part::Content::ToolUse(_) | pb::part::Content::ToolOutput(_) => None,
    });
    Message { role, parts: parts.collect() }
}

/// An event as an agent sends it.
#[must_use]
pub fn event_to_proto(event: &AgentEvent) -> pb::InvokeResponse {
    use pb::invoke_response::Event;
    let payload = match &event.kind {
        AgentEventKind::Accepted { instance_id } => Some(Event::Accepted(pb::InvokeAccepted {
            instance_id: instance_id.clone(),
            ..pb::InvokeAccepted::default()
        })),
        AgentEventKind::TextDelta { message_id, text, reasoning } => {
            let channel = if *reasoning { pb::TextChannel::Reasoning } else { pb::TextChannel::Answer };
            let (message_id, text, channel) = (message_id.clone(), text.clone(), channel.into());
            Some(Event::TextDelta(pb::TextDelta { message_id, text, channel }))
        }
        AgentEventKind::ToolStarted { call, awaits_result, model_turn } => {
            let (awaits_result, model_turn) = (*awaits_result, *model_turn);
            Some(Event::ToolStarted(pb::ToolCallStarted { awaits_result, model_turn, ..started_to_proto(call) }))
        }
        AgentEventKind::ToolFinished { call_id, outcome, duration } => {
            Some(Event::ToolFinished(finished_to_proto(call_id, outcome.as_ref(), *duration)))
        }
        AgentEventKind::ModelTurn(turn) => Some(Event::ModelTurn(pb::ModelTurn {
            index: turn.index,
            model: turn.model.clone(),
            response_id: turn.response_id.clone(),
            finish_reason: turn.finish_reason.clone(),
            usage: turn.usage.as_ref().map(usage_to_proto),
            duration: turn.duration.map(duration_to_proto),
        })),
        AgentEventKind::Log { level, message } => {
            Some(Event::Log(pb::LogLine { level: level.clone(), message: message.clone(), ..pb::LogLine::default() }))
        }
        AgentEventKind::Finished(finished) => Some(Event::Finished(pb::InvokeFinished {
            finish_reason: finish_reason_to_proto(finished.reason).into(),
            response: finished.response.as_ref().map(message_to_proto),
            usage: finished.usage.as_ref().map(usage_to_proto),
            error: finished.error.as_ref().map(fault_to_proto),
            tool_calls: finished.tool_calls,
            spans_flushed: finished.spans_flushed,
            warnings: finished.warnings.clone(),
            ..pb::InvokeFinished::default()
        })),
        AgentEventKind::Unknown => None,
    };
    pb::InvokeResponse { seq: event.seq, elapsed: event.elapsed.map(duration_to_proto), event: payload }
}

/// Reads an event of an agent.
///
/// # Errors
/// When a value is unknown on which the verdict depends.
pub fn event_from_proto(event: pb::InvokeResponse) -> Result<AgentEvent, WireError> {
    use pb::invoke_response::Event;
    let kind = match event.event {
        None => AgentEventKind::Unknown,
        Some(Event::Accepted(accepted)) => AgentEventKind::Accepted { instance_id: accepted.instance_id },
        Some(Event::TextDelta(delta)) => {
            let reasoning = delta.channel() == pb::TextChannel::Reasoning;
            AgentEventKind::TextDelta { message_id: delta.message_id, text: delta.text, reasoning }
        }
        Some(Event::ToolStarted(started)) => {
            let (awaits_result, model_turn) = (started.awaits_result, started.model_turn);
            AgentEventKind::ToolStarted { call: started_from_proto(started), awaits_result, model_turn }
        }
        Some(Event::ToolFinished(finished)) => {
            let (call_id, outcome, duration) = finished_from_proto(finished);
            AgentEventKind::ToolFinished { call_id, outcome, duration }
        }
        Some(Event::ModelTurn(turn)) => AgentEventKind::ModelTurn(ModelTurn {
            index: turn.index,
            model: turn.model,
            response_id: turn.response_id,
            finish_reason: turn.finish_reason,
            usage: turn.usage.as_ref().map(usage_from_proto),
            duration: turn.duration.and_then(duration_from_proto),
        }),
        Some(Event::Log(line)) => AgentEventKind::Log { level: line.level, message: line.message },
        Some(Event::Finished(finished)) => AgentEventKind::Finished(finish_from_proto(finished)?),
    };
    Ok(AgentEvent { seq: event.seq, elapsed: event.elapsed.and_then(duration_from_proto), kind })
}

fn finish_from_proto(finished: pb::InvokeFinished) -> Result<Finished, WireError> {
    let reason = match pb::FinishReason::try_from(finished.finish_reason) {
        Ok(pb::FinishReason::Unspecified) if finished.error.is_some() => FinishReason::Failed,
        Ok(pb::FinishReason::Unspecified | pb::FinishReason::Completed) => FinishReason::Completed,
        Ok(pb::FinishReason::ToolCalls) => FinishReason::ToolCalls,
        Ok(pb::FinishReason::MaxModelTurns) => FinishReason::MaxModelTurns,
        Ok(pb::FinishReason::MaxTokens) => FinishReason::MaxTokens,
        Ok(pb::FinishReason::Refused) => FinishReason::Refused,
        Ok(pb::FinishReason::Cancelled) => FinishReason::Cancelled,
        Ok(pb::FinishReason::BudgetExceeded) => FinishReason::BudgetExceeded,
        Ok(pb::FinishReason::Failed) => FinishReason::Failed,
        Ok(pb::FinishReason::InputRequired) => FinishReason::InputRequired,
        Err(_) => {
            let problem = format!("{} is no known reason", finished.finish_reason);
            return Err(WireError::new("finished.finish_reason", problem));
        }
    };
    Ok(Finished {
        reason,
        response: finished.response.map(message_from_proto),
        usage: finished.usage.as_ref().map(usage_from_proto),
        error: finished.error.as_ref().map(fault_from_proto),
        tool_calls: finished.tool_calls,
        spans_flushed: finished.spans_flushed,
        warnings: finished.warnings.iter().take(MAX_WARNINGS).map(|warning| shorten(warning)).collect(),
    })
}

const fn finish_reason_to_proto(reason: FinishReason) -> pb::FinishReason {
    match reason {
        FinishReason::Completed => pb::FinishReason::Completed,
        FinishReason::ToolCalls => pb::FinishReason::ToolCalls,
        FinishReason::MaxModelTurns => pb::FinishReason::MaxModelTurns,
        FinishReason::MaxTokens => pb::FinishReason::MaxTokens,
        FinishReason::Refused => pb::FinishReason::Refused,
        FinishReason::Cancelled => pb::FinishReason::Cancelled,
        FinishReason::BudgetExceeded => pb::FinishReason::BudgetExceeded,
        FinishReason::Failed => pb::FinishReason::Failed,
        FinishReason::InputRequired => pb::FinishReason::InputRequired,
    }
}

/// A tool call with its outcome, as one record.
#[must_use]
pub fn tool_call_to_proto(call: &ToolCall) -> pb::ToolCallRecord {
    let not_run = call.outcome == Some(ToolOutcome::NotRun);
    let is_open = (call.outcome.is_none() || not_run) && call.duration.is_none();
    pb::ToolCallRecord {
        started: Some(started_to_proto(call)),
        finished: (!is_open).then(|| finished_to_proto(&call.call_id, call.outcome.as_ref(), call.duration)),
        not_run,
        turn: call.turn,
    }
}

/// Reads a tool call.
///
/// # Errors
/// When its start is missing.
pub fn tool_call_from_proto(record: pb::ToolCallRecord) -> Result<ToolCall, WireError> {
    let started = record.started.ok_or_else(|| WireError::new("tool_call.started", "is not set"))?;
    let mut call = ToolCall { turn: record.turn, ..started_from_proto(started) };
    if let Some(finished) = record.finished {
        (_, call.outcome, call.duration) = finished_from_proto(finished);
    }
    if record.not_run {
        call.outcome.get_or_insert(ToolOutcome::NotRun);
    }
    Ok(call)
}

fn started_to_proto(call: &ToolCall) -> pb::ToolCallStarted {
    pb::ToolCallStarted {
        call_id: call.call_id.clone(),
        name: call.name.clone(),
        params: call.params.given().map(payload_to_proto),
        params_unknown: match &call.params {
            Arguments::Unknown(why) => Some(why.clone()),
            Arguments::None | Arguments::Given(_) => None,
        },
        ..pb::ToolCallStarted::default()
    }
}

fn started_from_proto(started: pb::ToolCallStarted) -> ToolCall {
    let params = match started.params_unknown {
        Some(why) if why.trim().is_empty() => Arguments::Unknown("the agent does not say why".to_owned()),
        Some(why) => Arguments::Unknown(shorten(&why)),
        None => json_from_proto(started.params).map_or(Arguments::None, Arguments::Given),
    };
    ToolCall { call_id: started.call_id, name: started.name, params, outcome: None, duration: None, turn: 0 }
}

fn finished_to_proto(call_id: &str, outcome: Option<&ToolOutcome>, took: Option<Duration>) -> pb::ToolCallFinished {
    let outcome = match outcome {
        Some(ToolOutcome::Result(result)) => {
            Some(pb::tool_call_finished::Outcome::Result(result_to_proto(result.as_ref())))
        }
        Some(ToolOutcome::Error(fault)) => Some(pb::tool_call_finished::Outcome::Error(fault_to_proto(fault))),
        Some(ToolOutcome::NotRun) | None => None,
    };
    pb::ToolCallFinished {
        call_id: call_id.to_owned(),
        outcome,
        duration: took.map(duration_to_proto),
        ..pb::ToolCallFinished::default()
    }
}

fn finished_from_proto(finished: pb::ToolCallFinished) -> (String, Option<ToolOutcome>, Option<Duration>) {
    let outcome = finished.outcome.map(|outcome| match outcome {
        pb::tool_call_finished::Outcome::Result(json) => ToolOutcome::Result(json_from_proto(Some(json))),
        pb::tool_call_finished::Outcome::Error(fault) => ToolOutcome::Error(fault_from_proto(&fault)),
    });
    (finished.call_id, outcome, finished.duration.and_then(duration_from_proto))
}

/// A request for the values at some paths.
#[must_use]
pub fn capture_to_proto(
    agent_id: &str,
    run_id: &str,
    paths: &[String],
    trace: &TraceHeaders,
    budget: Duration,
) -> pb::CaptureRequest {
    let context = pb::CallContext {
        agent_id: agent_id.to_owned(),
        run_id: run_id.to_owned(),
        budget: Some(duration_to_proto(budget)),
        trace_context: trace_to_proto(trace),
        ..pb::CallContext::default()
    };
    pb::CaptureRequest { context: Some(context), paths: paths.to_vec() }
}

/// Reads captured values, and the paths without a value with the reasons.
///
/// # Errors
/// When the values are no JSON.
pub fn capture_from_proto(answer: pb::CaptureResponse) -> Result<(Option<Json>, BTreeMap<String, String>), WireError> {
    let data = match json_from_proto(answer.data) {
        None => None,
        Some(MaybeJson::Json(text)) => Some(text.parse()),
        Some(MaybeJson::Malformed(_)) => return Err(WireError::new("capture.data", "is no JSON")),
    };
    let unresolved = answer.unresolved.into_iter().map(|(path, fault)| (path, shorten(&fault.message)));
    Ok((data, unresolved.collect()))
}

/// A tool mode.
#[must_use]
pub const fn tool_mode_to_proto(mode: ToolMode) -> pb::ToolMode {
    match mode {
        ToolMode::Live => pb::ToolMode::Live,
        ToolMode::Stub => pb::ToolMode::Stub,
        ToolMode::RoutingOnly => pb::ToolMode::RoutingOnly,
    }
}

/// Reads a tool mode; there is no default, because a wrong guess runs real tools.
///
/// # Errors
/// When it is unspecified or unknown.
pub fn tool_mode_from_proto(mode: i32) -> Result<ToolMode, WireError> {
    match pb::ToolMode::try_from(mode) {
        Ok(pb::ToolMode::Live) => Ok(ToolMode::Live),
        Ok(pb::ToolMode::Stub) => Ok(ToolMode::Stub),
        Ok(pb::ToolMode::RoutingOnly) => Ok(ToolMode::RoutingOnly),
        Ok(pb::ToolMode::Unspecified) | Err(_) => Err(WireError::new("tool_mode", format!("{mode} is no known mode"))),
    }
}

/// An agent's description of itself.
#[must_use]
pub fn description_to_proto(description: &Description) -> pb::DescribeResponse {
    let limits = pb::Limits {
        max_concurrent_invocations: description.max_concurrent_invocations.unwrap_or(0),
        max_message_bytes: description.max_message_bytes.and_then(|max| i64::try_from(max).ok()).unwrap_or(0),
        max_attachment_bytes: description.max_attachment_bytes.and_then(|max| i64::try_from(max).ok()).unwrap_or(0),
        ..pb::Limits::default()
    };
    pb::DescribeResponse {
        revision: description.revision,
        instance_id: description.instance_id.clone(),
        card: Some(card_to_proto(&description.card)),
        capabilities: description.capabilities.clone(),
        required_host_capabilities: description.required_host_capabilities.clone(),
        limits: Some(limits),
    }
}

/// Reads an agent's description of itself.
#[must_use]
pub fn description_from_proto(description: pb::DescribeResponse) -> Description {
    Description {
        revision: description.revision,
        instance_id: description.instance_id,
        card: description.card.map(card_from_proto).unwrap_or_default(),
        capabilities: description.capabilities,
        required_host_capabilities: description.required_host_capabilities,
        max_concurrent_invocations: description
            .limits
            .map(|limits| limits.max_concurrent_invocations)
            .filter(|max| *max > 0),
        max_message_bytes: description
            .limits
            .and_then(|limits| u64::try_from(limits.max_message_bytes).ok())
            .filter(|max| *max > 0),
        max_attachment_bytes: description
            .limits
            .and_then(|limits| u64::try_from(limits.max_attachment_bytes).ok())
            .filter(|max| *max > 0),
    }
}

/// An agent's card.
#[must_use]
pub fn card_to_proto(card: &AgentCard) -> pb::AgentCard {
    let tools = card.tools.iter().map(|tool| pb::ToolSpec {
        name: tool.name.clone(),
        version: tool.version.clone(),
        description: tool.description.clone(),
        input_schema: tool.input_schema.as_ref().map(json_to_proto),
        r#type: tool.kind.clone(),
    });
    pb::AgentCard {
        agent_id: card.agent_id.clone(),
        name: card.name.clone(),
        version: card.version.clone(),
        description: card.description.clone(),
        provider_name: card.provider_name.clone(),
        model: card.model.clone(),
        tools: tools.collect(),
        ..pb::AgentCard::default()
    }
}

/// Reads an agent's card, which is kept with every run: long texts are shortened, but for what tools say about
/// themselves; a schema that is no JSON is none.
#[must_use]
pub fn card_from_proto(card: pb::AgentCard) -> AgentCard {
    let tools = card.tools.into_iter().take(MAX_TOOLS).map(|tool| ToolSpec {
        name: tool.name,
        version: tool.version,
        kind: shorten(&tool.r#type),
        description: tool.description,
        input_schema: match json_from_proto(tool.input_schema) {
            Some(MaybeJson::Json(text)) => Some(text),
            Some(MaybeJson::Malformed(_)) | None => None,
        },
    });
    AgentCard {
        agent_id: shorten(&card.agent_id),
        name: shorten(&card.name),
        version: shorten(&card.version),
        description: shorten(&card.description),
        provider_name: shorten(&card.provider_name),
        model: shorten(&card.model),
        tools: tools.collect(),
    }
}
