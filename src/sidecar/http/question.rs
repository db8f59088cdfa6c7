//! What an endpoint is sent: a case as one JSON document.
//!
//! One plain message of the user is `{"message": "…"}` and nothing else. Whatever more there is goes into fields of
//! its own: the conversation in the form of test files, the options as the case has them. What the endpoint does
//! not take, or what JSON cannot say, is an error before anything is sent; nothing is ever left out.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::field::Document;
use super::fields::{Fields, Taken};
use super::template::{BodyTemplate, Piece, Pieces};
use crate::conversation::MaybeJson;
use crate::sidecar::attachments::Attachments;
use crate::sidecar::call_log::last_user_text;
use crate::wire::agent as pb;
use crate::wire::agent::part::Content as Holds;
use crate::wire::value::json_from_proto;

impl Fields {
    /// Checks that the fields of what is sent go together, and with what the template of the body holds besides.
    ///
    /// # Errors
    /// When they do not.
    pub(super) fn check(&self, template: &BodyTemplate) -> Result<(), String> {
        let nothing = || to_raw_value(&()).ok();
        let mut document = template.fill(&Pieces::new())?;
        let is_named = template.names(Piece::Message) || template.names(Piece::Messages);
        let message = Some(&self.message).filter(|_| !is_named);
        let taken =
            [(&self.messages, Piece::Messages), (&self.options, Piece::Options), (&self.max_turns, Piece::MaxTurns)];
        let taken =
            taken.into_iter().filter(|(_, piece)| !template.names(*piece)).filter_map(|(taken, _)| taken.field());
        let mut fields = message.into_iter().chain(&self.history).chain(taken);
        if fields.all(|field| nothing().is_some_and(|nothing| field.insert(&mut document, nothing))) {
            Ok(())
        } else {
            Err("--message-field, the other fields of what is sent and --body do not fit into one document; \
                 items of lists are numbered from [0] on"
                .to_owned())
        }
    }

    /// The document to send for a call, whose large files came as `attachments`.
    ///
    /// # Errors
    /// What of the call the endpoint cannot be given, for people.
    pub(super) fn question(
        &self,
        template: &BodyTemplate,
        start: &pb::InvokeStart,
        attachments: &Attachments,
    ) -> Result<Question, String> {
        let messages = &start.messages;
        let last = messages.iter().rposition(|message| message.role() == pb::Role::User);
        let Some(last) = last else {
            return Err(format!("the case holds no message of the user, which the field {} is to hold", self.message));
        };
        let (mut pieces, mut puts, mut besides) = (pieces_of(start)?, Vec::new(), Vec::new());
        if template.names(Piece::Messages) {
            pieces.insert(Piece::Messages, said(messages, attachments)?);
        } else if !template.names(Piece::Message) {
            puts.push((&self.message, json(&last_user_text(messages))?));
        }
        if let Some(history) = &self.history {
            puts.push((history, said(&messages[..last], attachments)?));
        }
        let more = beyond(messages, last, self.history.is_some());
        if let Some(more) = more.filter(|_| !template.names(Piece::Messages)) {
            let Taken::In(field) = &self.messages else {
                return Err(format!(
                    "the case holds {more}, and the endpoint takes no conversation (--messages-field none)"
                ));
            };
            puts.push((field, said(messages, attachments)?));
            besides.push(field.to_string());
        }
        let options = options_beside(template, start)?;
        if !options.is_empty() {
            let Taken::In(field) = &self.options else {
                let names = options.keys().copied().collect::<Vec<_>>().join(", ");
                return Err(format!(
                    "the case has options ({names}), and the endpoint takes none (--options-field none)"
                ));
            };
            puts.push((field, json(&options)?));
            besides.push(field.to_string());
        }
        if let Some(most) = start.max_model_turns.filter(|_| !template.names(Piece::MaxTurns)) {
            let Taken::In(field) = &self.max_turns else {
                return Err(format!(
                    "the case allows {most} model turns, and the endpoint takes no limit (--max-turns-field none)"
                ));
            };
            puts.push((field, json(&most)?));
            besides.push(field.to_string());
        }
        let mut document = template.fill(&pieces)?;
        for (field, value) in puts {
            if !field.insert(&mut document, value) {
                return Err(format!("the field {field} does not fit into one document with the others"));
            }
        }
        Question::new(&document, besides)
    }
}

/// What a template may name of a call, but for the conversation, which each preset writes in a form of its own.
///
/// # Errors
/// What of it JSON cannot say.
pub(super) fn pieces_of(start: &pb::InvokeStart) -> Result<Pieces, String> {
    let mut pieces = Pieces::new();
    pieces.insert(Piece::Message, json(&last_user_text(&start.messages))?);
    let all = start.options.as_ref().map(options).transpose()?.unwrap_or_default();
    if !all.is_empty() {
        pieces.insert(Piece::Options, json(&all)?);
    }
    if let Some(connector) = start.options.as_ref().and_then(|options| options.connector.as_ref()) {
        pieces.insert(Piece::Connector, json(connector)?);
    }
    if let Some(most) = start.max_model_turns {
        pieces.insert(Piece::MaxTurns, json(&most)?);
    }
    if !start.conversation_id.is_empty() {
        pieces.insert(Piece::ConversationId, json(&start.conversation_id)?);
    }
    Ok(pieces)
}

/// The options of a case for which the template has no place.
///
/// # Errors
/// What of them JSON cannot say.
pub(super) fn options_beside<'a>(
    template: &BodyTemplate,
    start: &'a pb::InvokeStart,
) -> Result<BTreeMap<&'a str, Box<RawValue>>, String> {
    let mut beside = start.options.as_ref().map(options).transpose()?.unwrap_or_default();
    if template.names(Piece::Options) {
        beside.clear();
    }
    if template.names(Piece::Connector) {
        beside.remove("connector");
    }
    Ok(beside)
}

impl Question {
    /// A document, and the fields of it that a plain message does not need.
    pub(super) fn new(document: &Document, besides: Vec<String>) -> Result<Self, String> {
        let body = serde_json::to_vec(document).map_err(|error| error.to_string())?;
        Ok(Self { body: body.into(), besides })
    }
}

/// What is sent.
#[derive(Debug)]
pub(super) struct Question {
    /// A JSON document.
    pub(super) body: Bytes,
    /// The fields that a plain message does not need.
    pub(super) besides: Vec<String>,
}

/// What of a conversation the text of the user's last message does not say, together with the messages before it if
/// they are sent apart.
pub(super) fn beyond(messages: &[pb::Message], last: usize, history_is_sent: bool) -> Option<&'static str> {
    let (before, from_last) = messages.split_at(last);
    if from_last.len() > 1 {
        return Some("a message behind the user's last one");
    }
    if let Some(first) = before.first().filter(|_| !history_is_sent) {
        return Some(if first.role() == pb::Role::System { "a message of the system" } else { "earlier messages" });
    }
    let message = &messages[last];
    let more = |part: &pb::Part| match &part.content {
        Some(Holds::Text(_)) => None,
        Some(Holds::Blob(_)) => Some("a file"),
        Some(Holds::Data(_)) => Some("data"),
        Some(Holds::ToolUse(_) | Holds::ToolOutput(_)) => Some("a tool call"),
        Some(Holds::Reasoning(_)) => Some("reasoning"),
        None => Some("a part of a kind that is not known"),
    };
    match message.parts.iter().find_map(more) {
        None if message.parts.len() > 1 => Some("a message of several parts"),
        None if !message.name.is_empty() => Some("the name of the user"),
        None if !message.metadata.is_empty() => Some("metadata of a message"),
        more => more,
    }
}

/// A message as test files have it.
#[derive(Serialize)]
struct Said<'a> {
    role: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    content: Content<'a>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<&'a str, Box<RawValue>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(&'a str),
    Parts(Vec<Part<'a>>),
}

/// A part of a message: text and files as test files have them, the others by the names of the protocol.
#[derive(Serialize)]
#[serde(untagged)]
enum Part<'a> {
    File(File<'a>),
    Spoken(Spoken<'a>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Spoken<'a> {
    Text {
        text: &'a str,
    },
    Data {
        data: Box<RawValue>,
    },
    Reasoning {
        text: &'a str,
    },
    ToolUse {
        call_id: &'a str,
        name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        arguments: Option<Box<RawValue>>,
    },
    ToolOutput {
        call_id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<Box<RawValue>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a str>,
    },
}

/// A file: where it is, or its content as a `data:` URL.
#[derive(Serialize)]
struct File<'a> {
    #[serde(rename = "type")]
    sort: &'a str,
    source: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    media_type: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
}

fn said(messages: &[pb::Message], attachments: &Attachments) -> Result<Box<RawValue>, String> {
    let said = messages.iter().map(|message| Said::of(message, attachments));
    json(&said.collect::<Result<Vec<_>, _>>()?)
}

impl<'a> Said<'a> {
    fn of(message: &'a pb::Message, attachments: &Attachments) -> Result<Self, String> {
        let role = match message.role() {
            pb::Role::System => "system",
            pb::Role::User => "user",
            pb::Role::Tool => "tool",
            pb::Role::Assistant | pb::Role::Unspecified => "assistant",
        };
        let content = match message.parts.as_slice() {
            [] => Content::Text(""),
            [pb::Part { content: Some(Holds::Text(text)) }] => Content::Text(text),
            parts => {
                Content::Parts(parts.iter().map(|part| Part::of(part, attachments)).collect::<Result<Vec<_>, _>>()?)
            }
        };
        Ok(Self { role, name: &message.name, content, metadata: members(&message.metadata)? })
    }
}

impl<'a> Part<'a> {
    fn of(part: &'a pb::Part, attachments: &Attachments) -> Result<Self, String> {
        Ok(Self::Spoken(match &part.content {
            Some(Holds::Text(text)) => Spoken::Text { text },
            Some(Holds::Reasoning(text)) => Spoken::Reasoning { text },
            Some(Holds::Data(data)) => {
                let data = written(data)?;
                Spoken::Data { data: data.ok_or("the case holds data that are not there, which JSON cannot say")? }
            }
            Some(Holds::Blob(blob)) => return File::of(blob, attachments).map(Self::File),
            Some(Holds::ToolUse(call)) => Spoken::ToolUse {
                call_id: &call.call_id,
                name: &call.name,
                arguments: call.arguments.as_ref().map(written).transpose()?.flatten(),
            },
            Some(Holds::ToolOutput(output)) => {
                let (result, error) = match &output.outcome {
                    Some(pb::tool_output::Outcome::Result(result)) => (written(result)?, None),
                    Some(pb::tool_output::Outcome::Error(fault)) => (None, Some(fault.message.as_str())),
                    None => (None, Some("")),
                };
                Spoken::ToolOutput { call_id: &output.call_id, result, error }
            }
            None => return Err("the case holds a part of a kind that forge-sidecar does not know".to_owned()),
        }))
    }
}

impl<'a> File<'a> {
    fn of(blob: &'a pb::Blob, attachments: &Attachments) -> Result<Self, String> {
        let name = blob.name.as_str();
        // An attachment whose format is `*` has only a sort, as the author of the case wrote it.
        let (sort, media_type) = match blob.media_type.split_once('/') {
            Some((sort, "*")) => (sort, ""),
            Some((sort @ ("image" | "audio" | "video"), _)) => (sort, blob.media_type.as_str()),
            _ => ("file", blob.media_type.as_str()),
        };
        let source = attachments.find(blob)?.data_url(media_type);
        Ok(Self { sort, source, media_type, name })
    }
}

/// The options as the case has them, by name.
fn options(options: &pb::Options) -> Result<BTreeMap<&str, Box<RawValue>>, String> {
    let mut all = members(&options.extra)?;
    if let Some(connector) = &options.connector {
        all.insert("connector", json(connector)?);
    }
    if let Some(mode) = &options.mode {
        all.insert("mode", json(mode)?);
    }
    for (name, value) in [("search", &options.search), ("skip", &options.skip)] {
        if let Some(value) = value.as_ref().map(written).transpose()?.flatten() {
            all.insert(name, value);
        }
    }
    if !options.metadata.is_empty() {
        all.insert("metadata", json(&members(&options.metadata)?)?);
    }
    Ok(all)
}

fn members(members: &HashMap<String, pb::Json>) -> Result<BTreeMap<&str, Box<RawValue>>, String> {
    let mut all = BTreeMap::new();
    for (name, value) in members {
        if let Some(value) = written(value)? {
            all.insert(name.as_str(), value);
        }
    }
    Ok(all)
}

/// JSON as it was written; `None`: it is not there.
pub(super) fn written(json: &pb::Json) -> Result<Option<Box<RawValue>>, String> {
    let malformed = || "the case holds data that are no JSON".to_owned();
    match json_from_proto(Some(json.clone())) {
        None => Ok(None),
        Some(MaybeJson::Json(text)) => {
            RawValue::from_string(text.as_str().trim().to_owned()).map(Some).map_err(|_| malformed())
        }
        Some(MaybeJson::Malformed(_)) => Err(malformed()),
    }
}

pub(super) fn json<T: Serialize + ?Sized>(value: &T) -> Result<Box<RawValue>, String> {
    to_raw_value(value).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::field::FieldPath;
    use super::*;

    fn said(role: pb::Role, parts: Vec<Holds>) -> pb::Message {
        let parts = parts.into_iter().map(|content| pb::Part { content: Some(content) }).collect();
        pb::Message { role: role.into(), parts, ..pb::Message::default() }
    }
    fn text(text: &str) -> Holds {
        Holds::Text(text.to_owned())
    }
    fn raw(text: &str) -> pb::Json {
        pb::Json { form: Some(pb::json::Form::Raw(text.as_bytes().to_vec())) }
    }
    fn question(fields: &Fields, messages: Vec<pb::Message>) -> Result<String, String> {
        let start = pb::InvokeStart { messages, ..pb::InvokeStart::default() };
        let asked = fields.question(&BodyTemplate::default(), &start, &Attachments::default())?;
        Ok(String::from_utf8(asked.body.into()).expect("JSON is UTF-8"))
    }

    #[test]
    fn questions() {
        let system = || said(pb::Role::System, Vec::new());
        let user = |content: &str| said(pb::Role::User, vec![text(content)]);
        let mut fields = Fields::default();
        assert_eq!(question(&fields, vec![user("é\"")]), Ok("{\"message\":\"é\\\"\"}".to_owned()));
        let both = r#"{"message":"x","messages":[{"role":"system","content":""},{"role":"user","content":"x"}]}"#;
        assert_eq!(question(&fields, vec![system(), user("x")]), Ok(both.to_owned()));
        fields.history = Some(FieldPath::key("history"));
        let sent = r#"{"history":[{"role":"system","content":""}],"message":"x"}"#;
        assert_eq!(question(&fields, vec![system(), user("x")]), Ok(sent.to_owned()));
        assert_eq!(fields.check(&BodyTemplate::default()), Ok(()));
        fields.history = Some(FieldPath::key("message"));
        assert!(fields.check(&BodyTemplate::default()).is_err() && question(&fields, vec![user("x")]).is_err());
        let none = question(&Fields::default(), vec![system()]).expect_err("nobody to answer");
        assert!(none.contains("no message of the user"), "{none}");
    }

    /// Whatever the protocol has for a message has a form, with its own bytes.
    #[test]
    fn parts() {
        let call = pb::ToolUse { call_id: "1".to_owned(), name: "t".to_owned(), arguments: Some(raw("{\"b\": 1.0}")) };
        let output = |outcome| Holds::ToolOutput(pb::ToolOutput { call_id: "1".to_owned(), outcome: Some(outcome) });
        let fault = pb::Fault { message: "down".to_owned(), ..pb::Fault::default() };
        let blob = |source| Holds::Blob(pb::Blob { media_type: "audio/wav".to_owned(), source, ..pb::Blob::default() });
        for (part, form) in [
            (
                Holds::Data(raw("{\"n\": 9007199254740993, \"a\": 1.0}")),
                r#"{"type":"data","data":{"n": 9007199254740993, "a": 1.0}}"#,
            ),
            (Holds::Reasoning("hm".to_owned()), r#"{"type":"reasoning","text":"hm"}"#),
            (Holds::ToolUse(call), r#"{"type":"tool_use","call_id":"1","name":"t","arguments":{"b": 1.0}}"#),
            (
                output(pb::tool_output::Outcome::Result(raw("null"))),
                r#"{"type":"tool_output","call_id":"1","result":null}"#,
            ),
            (output(pb::tool_output::Outcome::Error(fault)), r#"{"type":"tool_output","call_id":"1","error":"down"}"#),
            (
                blob(Some(pb::blob::Source::Inline(b"abc".to_vec()))),
                r#"{"type":"audio","source":"data:audio/wav;base64,YWJj","media_type":"audio/wav"}"#,
            ),
        ] {
            let sent = question(&Fields::default(), vec![said(pb::Role::User, vec![text("x"), part])]);
            let expected = format!(
                r#"{{"message":"x","messages":[{{"role":"user","content":[{{"type":"text","text":"x"}},{form}]}}]}}"#
            );
            assert_eq!(sent, Ok(expected));
        }
        for (media_type, form) in [
            ("image/*", r#"{"type":"image","source":"data:application/octet-stream;base64,YWJj"}"#),
            ("receipt/*", r#"{"type":"receipt","source":"data:application/octet-stream;base64,YWJj"}"#),
            ("", r#"{"type":"file","source":"data:application/octet-stream;base64,YWJj"}"#),
            ("text/csv", r#"{"type":"file","source":"data:text/csv;base64,YWJj","media_type":"text/csv"}"#),
        ] {
            let source = Some(pb::blob::Source::Inline(b"abc".to_vec()));
            let part = Holds::Blob(pb::Blob { media_type: media_type.to_owned(), source, ..pb::Blob::default() });
            let sent = question(&Fields::default(), vec![said(pb::Role::User, vec![part])]).expect("it can be said");
            assert!(sent.contains(form), "{media_type}: {sent}");
        }
        for part in [Holds::Data(raw("{x")), Holds::Data(pb::Json::default()), blob(None)] {
            let refused = question(&Fields::default(), vec![said(pb::Role::User, vec![part])]);
            assert!(refused.as_ref().is_err_and(|why| why.starts_with("the case holds")), "{refused:?}");
        }
        let unknown =
            pb::Message { role: pb::Role::User.into(), parts: vec![pb::Part::default()], ..pb::Message::default() };
        assert!(question(&Fields::default(), vec![unknown]).is_err());
    }
}
