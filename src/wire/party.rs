//! `Simulator` and `Validator` of `forge.agent.v1`, and the options that a suite gives along.

use std::fmt::Write as _;

use super::agent as pb;
use super::call::{message_from_proto, message_to_proto, message_without_attachments, tool_call_to_proto};
use super::value::{json_to_proto, shorten, usage_from_proto};
use sha2::{Digest as _, Sha256};

use crate::conversation::party::{Input, Judgement, NextInput, Vote, score_in_range};
use crate::conversation::{Blob, Content, INLINE_BYTES, JsonText, Message, Part, Role, Source};
use crate::json::{Json, Value, write_string};

/// What a suite says about a call: the keys that are known each in its field, all others unchanged.
#[must_use]
pub fn options_to_proto(options: &Json) -> pb::Options {
    let json = |value: &Json| json_to_proto(&JsonText::from(value));
    let mut wire = pb::Options::default();
    for (key, value) in options.members() {
        match (key.as_str(), &value.value) {
            ("connector", Value::String(connector)) => wire.connector = Some(connector.clone()),
            ("mode", Value::String(mode)) => wire.mode = Some(mode.clone()),
            ("search", _) => wire.search = Some(json(value)),
            ("skip", _) => wire.skip = Some(json(value)),
            ("metadata", Value::Object(members)) => {
                wire.metadata = members.iter().map(|(key, value)| (key.clone(), json(value))).collect();
            }
            _ => {
                wire.extra.insert(key.clone(), json(value));
            }
        }
    }
    wire
}

/// A request for what the user says next.
#[must_use]
pub fn next_input_to_proto(context: pb::CallContext, asked: &NextInput<'_>) -> pb::NextInputRequest {
    let checkpoint = |(id, description, reached): &(&str, &str, Option<u32>)| pb::Checkpoint {
        checkpoint_id: (*id).to_owned(),
        description: (*description).to_owned(),
        after: Vec::new(),
        reached_at_turn: *reached,
    };
    let (reached, pending): (Vec<_>, Vec<_>) = asked.checkpoints.iter().partition(|(.., reached)| reached.is_some());
    pb::NextInputRequest {
        context: Some(context),
        persona: asked.persona.to_owned(),
        goal: asked.goal.to_owned(),
        conversation: asked.conversation.iter().map(message_without_attachments).collect(),
        turn_number: asked.turn,
        max_turns: asked.max_turns,
        reached: reached.into_iter().map(checkpoint).collect(),
        pending: pending.into_iter().map(checkpoint).collect(),
        options: Some(options_to_proto(asked.options)),
    }
}

/// Reads what the user says.
///
/// # Errors
/// When it holds a file that is too large to be passed on.
pub fn input_from_proto(response: pb::NextInputResponse) -> Result<Input, String> {
    // Who leaves says nothing more; who has what they wanted may say so.
    let message = response.input.filter(|_| !response.gave_up).map(said_from_proto).transpose()?;
    let says_something = |message: &Message| {
        message.parts.iter().any(|part| match part {
            Part::Text(text) => !text.is_empty(),
            Part::Reasoning(_) => false,
            Part::Data(_) | Part::Blob(_) => true,
        })
    };
    let usage = response.usage.as_ref().map(usage_from_proto);
    Ok(Input {
        message: message.filter(says_something),
        is_last: response.goal_achieved || response.gave_up,
        reasoning: shorten(&response.reasoning),
        usage,
    })
}

/// A message of the user, whatever the simulator calls itself, with the files in it.
fn said_from_proto(message: pb::Message) -> Result<Message, String> {
    let mut parts = Vec::new();
    for part in message.parts {
        let inline = match part.content {
            Some(pb::part::Content::Blob(pb::Blob {
                source: Some(pb::blob::Source::Inline(bytes)),
                media_type,
                name,
                ..
            })) => (media_type, name, bytes),
            content => {
                let alone = pb::Message { parts: vec![pb::Part { content }], ..pb::Message::default() };
                parts.extend(message_from_proto(alone).parts);
                continue;
            }
        };
        let (media_type, name, bytes) = inline;
        if bytes.len() > INLINE_BYTES {
            return Err(format!("it says a file of {} bytes, and {INLINE_BYTES} are allowed", bytes.len()));
        }
        let content = Content { sha256: Sha256::digest(&bytes).into(), bytes: bytes.into() };
        parts.push(Part::Blob(Blob { media_type, name, source: Source::Content(content), written: None }));
    }
    Ok(Message { role: Role::User, parts })
}

/// A request for a verdict.
#[must_use]
pub fn judgement_to_proto(context: pb::CallContext, asked: &Judgement<'_>) -> pb::ValidateRequest {
    let options = options_to_proto(asked.options);
    pb::ValidateRequest {
        context: Some(context),
        output: Some(message_to_proto(&Message::assistant(asked.output))),
        criteria: asked.criteria.to_owned(),
        conversation: asked.conversation.iter().map(message_without_attachments).collect(),
        tool_calls: asked.tool_calls.iter().map(tool_call_to_proto).collect(),
        metadata: options.metadata.clone(),
        options: Some(options),
        assertion_name: asked.assertion.to_owned(),
    }
}

/// Reads a verdict.
///
/// # Errors
/// When it holds no verdict: an answer of nothing but defaults is none.
pub fn vote_from_proto(response: &pb::ValidateResponse) -> Result<Vote, String> {
    let passed = response.passed.ok_or("its answer holds no verdict")?;
    let reason = shorten(&response.reason);
    let score = response.score.and_then(score_in_range);
    let mut reply = format!("{{\"passed\": {passed}, \"reason\": ");
    write_string(&reason, &mut reply);
    if let Some(score) = score {
        let _ = write!(reply, ", \"score\": {score}");
    }
    if !response.label.is_empty() {
        reply.push_str(", \"label\": ");
        write_string(&shorten(&response.label), &mut reply);
    }
    reply.push('}');
    Ok(Vote { passed, reason, score, reply, usage: response.usage.as_ref().map(usage_from_proto) })
}
