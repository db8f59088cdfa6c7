//! What was said, as the conventions write it, within bounds: what is too long is shortened, and what is written
//! stays JSON.

use super::{cut, name};
use crate::conversation::{Blob, Finished, MaybeJson, Message, Part, Source, ToolSpec};
use crate::event::CallEnd;
use crate::json::write_string;

/// Room that is kept for whatever closes an object and the lists around it.
const CLOSING: usize = 128;

/// JSON as an agent told it.
pub(super) fn json_text(json: &MaybeJson) -> &str {
    match json {
        MaybeJson::Json(text) => text.as_str(),
        MaybeJson::Malformed(text) => text,
    }
}

/// What the agent answered, if the last event or the end of the call holds it.
pub(super) fn answer_of(ended: &CallEnd, finished: Option<&Finished>) -> Option<Message> {
    let told = finished.and_then(|finished| finished.response.clone());
    told.or_else(|| Some(Message::assistant(ended.response.clone().filter(|text| !text.is_empty())?)))
}

/// Messages: `[{"role": …, "parts": [{"type": "text", "content": …}]}]`, in at most `most` bytes: the last
/// messages, if not all fit.
pub(super) fn messages(messages: &[Message], finish_reason: Option<&str>, most: usize) -> String {
    let mut pieces = Vec::new();
    let mut left = most.saturating_sub(2);
    for message in messages.iter().rev() {
        let mut piece = List::new(left);
        if !piece.has_room() {
            break;
        }
        piece.message(message, finish_reason);
        left = left.saturating_sub(piece.out.len() + 1);
        pieces.push(piece.out);
    }
    let mut out = String::from("[");
    for (index, piece) in pieces.iter().rev().enumerate() {
        out.push_str(if index > 0 { "," } else { "" });
        // It is the inside of a list of its own.
        out.push_str(&piece[1..]);
    }
    out.push(']');
    out
}

/// Instructions: `[{"type": "text", "content": …}]`, in at most `most` bytes.
pub(super) fn instructions(texts: &[String], most: usize) -> String {
    let mut list = List::new(most);
    for text in texts {
        if !list.has_room() {
            break;
        }
        list.next();
        list.part("text", &[("content", text)]);
    }
    list.end()
}

/// Tools: `[{"type": "function", "name": …, "description": …, "parameters": …}]`, in at most `most` bytes; a
/// schema that does not fit is left out.
pub(super) fn definitions(tools: &[ToolSpec], most: usize) -> String {
    let mut list = List::new(most);
    for tool in tools {
        if !list.has_room() {
            break;
        }
        list.next();
        let kind = if tool.kind.is_empty() { name::TOOL_TYPE_FUNCTION } else { &tool.kind };
        list.object("type", kind);
        list.member("name", &tool.name);
        if !tool.description.is_empty() && list.has_room() {
            list.member("description", &tool.description);
        }
        if let Some(schema) = tool.input_schema.as_ref().filter(|schema| schema.as_str().len() < list.left()) {
            list.out.push_str(",\"parameters\":");
            list.out.push_str(schema.as_str());
        }
        list.out.push('}');
    }
    list.end()
}

/// A list in JSON that ends in time.
struct List {
    out: String,
    most: usize,
}

impl List {
    fn new(most: usize) -> Self {
        Self { out: "[".to_owned(), most }
    }

    /// Bytes that a value may still have.
    fn left(&self) -> usize {
        self.most.saturating_sub(self.out.len() + CLOSING)
    }

    /// Whether another object finds room, with names and short values.
    fn has_room(&self) -> bool {
        self.left() > CLOSING
    }

    fn next(&mut self) {
        if self.out.len() > 1 {
            self.out.push(',');
        }
    }

    fn end(mut self) -> String {
        self.out.push(']');
        self.out
    }

    fn message(&mut self, message: &Message, finish_reason: Option<&str>) {
        self.out.push_str("{\"role\":\"");
        self.out.push_str(message.role.name());
        self.out.push_str("\",\"parts\":[");
        for (index, part) in message.parts.iter().enumerate() {
            if !self.has_room() {
                break;
            }
            if index > 0 {
                self.out.push(',');
            }
            match part {
                Part::Text(text) => self.part("text", &[("content", text)]),
                Part::Reasoning(text) => self.part("reasoning", &[("content", text)]),
                Part::Data(json) => self.part("text", &[("content", json.as_str())]),
                Part::Blob(blob) => self.blob(blob),
            }
        }
        self.out.push(']');
        if let Some(reason) = finish_reason {
            self.out.push_str(",\"finish_reason\":");
            write_string(reason, &mut self.out);
        }
        self.out.push('}');
    }

    /// Begins an object.
    fn object(&mut self, key: &str, value: &str) {
        self.out.push_str("{\"");
        self.out.push_str(key);
        self.out.push_str("\":");
        self.text(value);
    }

    fn member(&mut self, key: &str, value: &str) {
        self.out.push_str(",\"");
        self.out.push_str(key);
        self.out.push_str("\":");
        self.text(value);
    }

    fn part(&mut self, kind: &str, members: &[(&str, &str)]) {
        self.object("type", kind);
        for (key, value) in members {
            self.member(key, value);
        }
        self.out.push('}');
    }

    /// A file, of which only the name is told, or the address.
    fn blob(&mut self, blob: &Blob) {
        let known = ["image", "video", "audio"].into_iter().find(|known| blob.media_type.starts_with(known));
        let modality = known.unwrap_or("document");
        let (kind, key, value) = match &blob.source {
            Source::Uri(uri) => ("uri", "uri", uri),
            Source::File(_) | Source::Content(_) => ("file", "file_id", &blob.name),
        };
        self.part(kind, &[("modality", modality), ("mime_type", cut(&blob.media_type, 100)), (key, value)]);
    }

    /// A text, shortened to what is left.
    fn text(&mut self, value: &str) {
        let (start, left) = (self.out.len(), self.left().max(2));
        // Some characters are longer as JSON writes them; none is shorter.
        let kept = cut(value, left);
        write_string(kept, &mut self.out);
        if self.out.len() - start <= left {
            return;
        }
        // The longest beginning that fits lies between these.
        let (mut fits, mut over) = (0, kept.len());
        while over - fits > 1 {
            let middle = fits.midpoint(over);
            self.out.truncate(start);
            write_string(cut(kept, middle), &mut self.out);
            if self.out.len() - start <= left {
                fits = middle;
            } else {
                over = middle;
            }
        }
        self.out.truncate(start);
        write_string(cut(kept, fits), &mut self.out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::JsonText;
    use crate::json::Json;

    /// Whatever is too long, what is written is JSON, and no longer than asked for.
    #[test]
    fn content_is_short_and_stays_json() {
        let long = ["é\"\u{1}\\".repeat(5_000), "x".repeat(50_000), String::new()];
        let blob =
            |source| Part::Blob(Blob { media_type: long[0].clone(), name: long[1].clone(), source, written: None });
        let parts: Vec<Part> = long
            .iter()
            .map(|text| Part::Text(text.clone()))
            .chain([blob(Source::Uri(long[1].clone())), blob(Source::File(String::new()))])
            .chain([Part::Reasoning(long[0].clone()), Part::Data(JsonText::new("[1]").expect("JSON"))])
            .collect();
        let said = vec![Message { role: crate::conversation::Role::Tool, parts }; 50];
        let schema = JsonText::new(format!("{{\"x\": {:?}}}", long[1])).ok();
        let tool = ToolSpec {
            name: long[0].clone(),
            kind: long[1].clone(),
            description: long[0].clone(),
            input_schema: schema,
            version: String::new(),
        };
        let short = ToolSpec { name: "t".to_owned(), input_schema: JsonText::new("{ }").ok(), ..ToolSpec::default() };
        for most in [0, 100, 300, 1_000, 10_000, 100_000, 10_000_000] {
            let written = [
                messages(&said, Some("stop"), most),
                instructions(&long, most),
                definitions(&[short.clone(), tool.clone(), short.clone()], most),
            ];
            for written in written {
                assert!(written.len() <= most.max(2), "{most}: {}", written.len());
                assert!(Json::parse(&written).is_ok(), "{most}: {written}");
            }
        }
        // As much is kept as there is room for, whatever it is made of; of a conversation the end.
        let quotes = messages(&[Message::user("\"".repeat(100_000))], None, 10_000);
        assert!(quotes.len() > 9_700, "{}", quotes.len());
        let many: Vec<Message> = (0..1_000).map(|number| Message::user(format!("message {number}"))).collect();
        let last = messages(&many, None, 2_000);
        assert!(last.contains("message 999") && !last.contains("message 500") && last.len() > 1_500, "{last}");
        let whole = messages(&[Message::user("a\"b")], None, 1_000);
        assert_eq!(whole, r#"[{"role":"user","parts":[{"type":"text","content":"a\"b"}]}]"#);
        assert_eq!(definitions(&[short], 1_000), r#"[{"type":"function","name":"t","parameters":{ }}]"#);
    }
}
