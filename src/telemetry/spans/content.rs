//! What was said, as the conventions write it.

use std::sync::Arc;

use crate::conversation::{AgentEventKind, Message, Part, Payload as Json, Role};
use crate::event::{CallEnd, Payload, RunEvent};
use crate::json::write_string;

pub(super) fn json_text(json: &Json) -> &str {
    match json {
        Json::Json(text) => text.as_str(),
        Json::Malformed(text) => text,
    }
}

/// What the agent answered, if an event or the end of the call holds it.
pub(super) fn answer_of(ended: &CallEnd, within: &[&Arc<RunEvent>]) -> Option<Message> {
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
pub(super) fn messages_json(messages: &[Message]) -> String {
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
