//! Messages of test files: read, and written as a file has them.

use std::fmt::Write as _;

use crate::conversation::{Blob, JsonText, Message, Part, Role, Source, names_a_file};
use crate::json::{Json, Value};
use crate::suite::error::did_you_mean;
use crate::suite::reader::{Reader, given, must_be};

const MESSAGE_KEYS: &[&str] = &["role", "content"];

/// Reads messages as a case may write them: a text, a message, or a list of messages.
///
/// # Errors
/// What is wrong with them, and where. Files cannot be named: these messages come from no file.
pub fn read_messages(json: &Json) -> Result<Vec<Message>, String> {
    let mut reader = Reader::new("");
    let messages = match &json.value {
        Value::String(text) => vec![Message::user(text.as_str())],
        Value::Object(_) => reader.message("message", json).into_iter().collect(),
        _ => reader.message_list("messages", json),
    };
    let is_file = |part: &Part| matches!(part, Part::Blob(Blob { source: Source::File(_), .. }));
    if messages.iter().flat_map(|message| &message.parts).any(is_file) {
        return Err("a message names a file, and there is none to send".to_owned());
    }
    if let Some(error) = reader.errors.first() {
        let field = error.field.as_deref().unwrap_or_default();
        return Err(format!("{field}: {}", error.message));
    }
    if messages.is_empty() { Err("there are no messages".to_owned()) } else { Ok(messages) }
}

/// A case of one message and no assertions, as given on a command line.
#[must_use]
pub fn literal(message: &str) -> String {
    let mut text = String::from("{\"id\": \"message\", \"input\": ");
    crate::json::write_string(message, &mut text);
    text.push_str("}\n");
    text
}

/// Writes a message as a test file has it.
pub fn write_message(message: &Message, out: &mut String) {
    let role = message.role.name();
    let _ = write!(out, "{{\"role\": \"{role}\", \"content\": ");
    if let [Part::Text(text)] = message.parts.as_slice() {
        crate::json::write_string(text, out);
    } else {
        out.push('[');
        let mut is_first = true;
        for part in &message.parts {
            let separator = if is_first { "" } else { ", " };
            match part {
                Part::Text(text) => {
                    let _ = write!(out, "{separator}{{\"type\": \"text\", \"text\": ");
                    crate::json::write_string(text, out);
                    out.push('}');
                }
                Part::Blob(Blob { written: Some(written), .. }) => {
                    let _ = write!(out, "{separator}{}", written.as_str());
                }
                // No file holds these.
                Part::Blob(_) | Part::Reasoning(_) | Part::Data(_) => continue,
            }
            is_first = false;
        }
        out.push(']');
    }
    out.push('}');
}

/// A message as a test file has it.
#[must_use]
pub fn message_json(message: &Message) -> String {
    let mut out = String::new();
    write_message(message, &mut out);
    out
}

/// Media types by the ending of a file.
const MEDIA_TYPES: &[(&str, &str)] = &[
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("svg", "image/svg+xml"),
    ("pdf", "application/pdf"),
    ("json", "application/json"),
    ("txt", "text/plain"),
    ("md", "text/markdown"),
    ("csv", "text/csv"),
    ("html", "text/html"),
    ("mp3", "audio/mpeg"),
    ("wav", "audio/wav"),
    ("mp4", "video/mp4"),
];

/// A path from the folder of a suite without `.`, and without `..` but at its beginning, if it may lead outside.
fn plain_path(path: &str, outside: bool) -> Result<String, String> {
    if (path.starts_with('/') && !outside) || path.contains('\\') {
        return Err(format!("{path:?} is no path from the folder of the suite"));
    }
    let (mut above, mut parts): (usize, Vec<&str>) = (0, Vec::new());
    for part in path.split('/') {
        match part {
            ".." if parts.pop().is_none() => above += 1,
            "" | "." | ".." => {}
            part => parts.push(part),
        }
    }
    if parts.is_empty() {
        return Err("it names no file".to_owned());
    }
    match (above, path.strip_prefix('/')) {
        // Nothing lies above the root.
        (_, Some(_)) => Ok(format!("/{}", parts.join("/"))),
        (0, None) => Ok(parts.join("/")),
        (above, None) if outside => Ok(format!("{}{}", "../".repeat(above), parts.join("/"))),
        (_, None) => Err(format!("{path:?} leads out of the folder of the suite")),
    }
}

impl Reader<'_> {
    /// `messages`, else `input`, which is a text, a message, or a list of messages. An empty list is no history,
    /// and an empty text is an input: users do send nothing.
    pub(super) fn messages(&mut self, json: &Json) -> Vec<Message> {
        if let Some(messages) =
            given(json, "messages").filter(|list| list.as_array().is_none_or(|list| !list.is_empty()))
        {
            return self.message_list("messages", messages);
        }
        match given(json, "input").map(|input| (input, &input.value)) {
            None => Vec::new(),
            Some((_, Value::String(text))) => vec![Message::user(text.as_str())],
            Some((input, Value::Object(_))) => self.message("input", input).into_iter().collect(),
            Some((input, Value::Array(_))) => self.message_list("input", input),
            Some((input, _)) => {
                self.error(input.line, "input", must_be("a text, a message or a list of messages", input), None);
                Vec::new()
            }
        }
    }

    fn message_list(&mut self, field: &str, json: &Json) -> Vec<Message> {
        let Some(items) = json.as_array() else {
            self.error(json.line, field, must_be("a list of messages", json), None);
            return Vec::new();
        };
        let items = items.iter().enumerate();
        items.filter_map(|(index, item)| self.message(&format!("{field}[{index}]"), item)).collect()
    }

    fn message(&mut self, field: &str, json: &Json) -> Option<Message> {
        if !matches!(json.value, Value::Object(_)) {
            self.error(json.line, field, must_be("a message with role and content", json), None);
            return None;
        }
        self.warn_unknown(json, &format!("{field}."), MESSAGE_KEYS);
        let written = given(json, "role").and_then(Json::as_str).unwrap_or_default();
        let role = Role::ALL.into_iter().find(|role| role.name() == written);
        if role.is_none() {
            let names = Role::ALL.map(Role::name);
            let message = format!("must be one of {}, not {written:?}", names.join(", "));
            self.error(json.line, format_args!("{field}.role"), message, did_you_mean(written, &names));
        }
        let content = format!("{field}.content");
        let parts = match given(json, "content").map(|content| (content, &content.value)) {
            Some((_, Value::String(text))) => vec![Part::Text(text.clone())],
            Some((_, Value::Array(parts))) => {
                let parts = parts.iter().enumerate();
                parts.filter_map(|(index, part)| self.part(&format!("{content}[{index}]"), part)).collect()
            }
            Some((value, _)) => {
                self.error(value.line, content, must_be("a text or a list of parts", value), None);
                return None;
            }
            None => {
                self.error(json.line, content, "is missing".to_owned(), None);
                return None;
            }
        };
        Some(Message { role: role?, parts })
    }

    /// A part of a message: text, or something that is named by where it is.
    fn part(&mut self, field: &str, json: &Json) -> Option<Part> {
        let kind = given(json, "type").and_then(Json::as_str);
        let Some(kind) = kind else {
            self.error(json.line, field, "a part must be an object with a type".to_owned(), None);
            return None;
        };
        if kind == "text" {
            let text = given(json, "text").and_then(Json::as_str);
            if text.is_none() {
                self.error(json.line, format_args!("{field}.text"), "must be a text".to_owned(), None);
            }
            return text.map(|text| Part::Text(text.to_owned()));
        }
        let source = ["source", "url"].iter().find_map(|key| given(json, key).and_then(Json::as_str));
        let Some(source) = source.filter(|source| !source.is_empty()) else {
            let message = format!("a part of the type {kind:?} needs a source or a url");
            self.error(json.line, format_args!("{field}.source"), message, None);
            return None;
        };
        let (source, ending) = match source.strip_prefix("file:") {
            None if names_a_file(source) => {
                let message = format!("names a file, which begins with `file:` and not as {source:?} does");
                self.error(json.line, format_args!("{field}.source"), message, None);
                return None;
            }
            None => (Source::Uri(source.to_owned()), None),
            Some(file) => match plain_path(file.strip_prefix("//").unwrap_or(file), self.files_outside) {
                Ok(path) => {
                    let ending = path.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
                    (Source::File(path), ending)
                }
                Err(why) => {
                    let hint = "files are named from the folder of the suite, as in file://./fixtures/receipt.jpg; --allow-outside allows others";
                    self.error(json.line, format_args!("{field}.source"), why, Some(hint.to_owned()));
                    return None;
                }
            },
        };
        let by_ending = ending.and_then(|ending| MEDIA_TYPES.iter().find(|(known, _)| *known == ending));
        let media_type = given(json, "media_type").and_then(Json::as_str).map(str::to_owned);
        let media_type = media_type.or_else(|| by_ending.map(|(_, media_type)| (*media_type).to_owned()));
        // `image` alone says which sort of media, not which format.
        let media_type =
            media_type.unwrap_or_else(|| if kind.contains('/') { kind.to_owned() } else { format!("{kind}/*") });
        let name = given(json, "name").and_then(Json::as_str).map(str::to_owned);
        let name = name.unwrap_or_else(|| match &source {
            Source::File(path) => path.rsplit('/').next().unwrap_or_default().to_owned(),
            Source::Uri(_) | Source::Content(_) => String::new(),
        });
        Some(Part::Blob(Blob { media_type, name, source, written: Some(JsonText::from(json)) }))
    }
}
