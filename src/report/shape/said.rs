//! What was said and called, in a result.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Text, named, owned, text};
use crate::conversation::{
    Arguments, Blob, Fault, JsonText, MaybeJson, Message, Part, Role, Source, ToolCall, ToolOutcome,
};
use crate::verdict::Turn;

/// A message that a case sends, as test files write it: its text, or a list of its parts; of files only what they are.
#[derive(Serialize, Deserialize)]
pub(in crate::report) struct Asked<'a> {
    role: Text<'a>,
    content: Content<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(Text<'a>),
    Parts(Vec<Piece<'a>>),
}

/// A part of a message.
#[derive(Serialize, Deserialize)]
struct Piece<'a> {
    #[serde(rename = "type")]
    kind: Text<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<Text<'a>>,
}

impl<'a> Asked<'a> {
    pub(in crate::report) fn of(message: &'a Message) -> Self {
        let content = match message.parts.as_slice() {
            [] => Content::Text(Text::default()),
            [Part::Text(text)] => Content::Text(text.into()),
            parts => Content::Parts(parts.iter().map(Piece::of).collect()),
        };
        Self { role: message.role.name().into(), content }
    }

    pub(super) fn read(&self) -> Result<Message, String> {
        let of_name = |name: &str| Role::ALL.into_iter().find(|role| role.name() == name);
        let parts = match &self.content {
            Content::Text(text) => vec![Part::Text(text.clone().into_owned())],
            Content::Parts(parts) => parts.iter().map(Piece::read).collect(),
        };
        Ok(Message { role: named("role", &self.role, of_name)?, parts })
    }
}

impl<'a> Piece<'a> {
    fn of(part: &'a Part) -> Self {
        let of_text = |kind: &'static str, text: &'a str| Self {
            kind: kind.into(),
            text: Some(text.into()),
            name: None,
            source: None,
        };
        match part {
            Part::Text(text) => of_text("text", text),
            Part::Reasoning(text) => of_text("reasoning", text),
            Part::Data(json) => of_text("data", json.as_str()),
            Part::Blob(Blob { media_type, name, source, .. }) => Self {
                kind: media_type.into(),
                text: None,
                name: text(Some(name.as_str()).filter(|name| !name.is_empty())),
                source: match source {
                    Source::Uri(uri) => Some(uri.into()),
                    Source::File(_) | Source::Content(_) => None,
                },
            },
        }
    }

    pub(super) fn read(&self) -> Part {
        let text = owned(self.text.as_ref()).unwrap_or_default();
        match &*self.kind {
            "text" => Part::Text(text),
            "reasoning" => Part::Reasoning(text),
            "data" => JsonText::new(text.clone()).map_or(Part::Text(text), Part::Data),
            media_type => Part::Blob(Blob {
                media_type: media_type.to_owned(),
                name: owned(self.name.as_ref()).unwrap_or_default(),
                source: owned(self.source.as_ref()).map_or_else(|| Source::File(String::new()), Source::Uri),
                written: None,
            }),
        }
    }
}

/// One turn of a dialogue, under keys of one word, which both formats of results have.
#[derive(Serialize, Deserialize)]
pub(in crate::report) struct Said<'a> {
    turn: u32,
    input: Text<'a>,
    output: Text<'a>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    commentary: Text<'a>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    reasoning: Text<'a>,
}

impl<'a> Said<'a> {
    pub(in crate::report) fn of(turn: &'a Turn) -> Self {
        let Turn { number, input, output, commentary, reasoning } = turn;
        let [input, output, commentary, reasoning] = [input, output, commentary, reasoning].map(Text::from);
        Self { turn: *number, input, output, commentary, reasoning }
    }

    pub(super) fn read(&self) -> Turn {
        let Self { turn, input, output, commentary, reasoning } = self;
        let [input, output, commentary, reasoning] =
            [input, output, commentary, reasoning].map(|text| text.clone().into_owned());
        Turn { number: *turn, input, output, commentary, reasoning }
    }
}

/// A tool call; the two formats of results differ in how they write the keys.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::report) struct Call<'a> {
    pub(in crate::report) name: Text<'a>,
    /// Not there: nobody ran it, as the mode wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::report) success: Option<bool>,
    /// The turn in which it was called; logs of earlier versions do not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::report) turn: Option<u32>,
    pub(in crate::report) duration_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::report) params: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::report) malformed_params: Option<Text<'a>>,
    /// Why nobody knows with what it was called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::report) params_unknown: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::report) result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::report) error: Option<Text<'a>>,
}

impl<'a> Call<'a> {
    pub(in crate::report) fn of(call: &'a ToolCall) -> Self {
        let (params, malformed_params, params_unknown) = match &call.params {
            Arguments::None => (None, None, None),
            Arguments::Given(MaybeJson::Malformed(text)) => (None, Some(text.into()), None),
            Arguments::Given(given @ MaybeJson::Json(_)) => (raw(Some(given)), None, None),
            Arguments::Unknown(why) => (None, None, Some(why.into())),
        };
        let (result, error) = match &call.outcome {
            Some(ToolOutcome::Result(result)) => (raw(result.as_ref()), None),
            Some(ToolOutcome::Error(fault)) => (None, Some((&*fault.message).into())),
            Some(ToolOutcome::NotRun) | None => (None, None),
        };
        let duration_ms = call.duration.map(|duration| duration.div_duration_f64(Duration::from_millis(1)));
        let (name, success) = ((&*call.name).into(), call.success());
        let turn = Some(call.turn).filter(|turn| *turn > 0);
        Self { name, success, turn, duration_ms, params, malformed_params, params_unknown, result, error }
    }

    pub(super) fn read((index, call): (usize, &Self)) -> ToolCall {
        let params = match (&call.params, &call.malformed_params, &call.params_unknown) {
            (Some(params), ..) => {
                json(params).map_or(Arguments::None, |params| Arguments::Given(MaybeJson::Json(params)))
            }
            (None, Some(text), _) => Arguments::Given(MaybeJson::Malformed(text.clone().into_owned())),
            (None, None, Some(why)) => Arguments::Unknown(why.clone().into_owned()),
            (None, None, None) => Arguments::None,
        };
        let outcome = match (call.success, &call.error) {
            (None, _) => Some(ToolOutcome::NotRun),
            (Some(true), _) => Some(ToolOutcome::Result(call.result.as_deref().and_then(json).map(MaybeJson::Json))),
            (Some(false), Some(error)) => Some(ToolOutcome::Error(Fault::message(&**error))),
            (Some(false), None) => None,
        };
        ToolCall {
            call_id: index.to_string(),
            name: call.name.clone().into_owned(),
            params,
            outcome,
            duration: call.duration_ms.and_then(|millis| Duration::try_from_secs_f64(millis / 1e3).ok()),
            turn: call.turn.unwrap_or(0),
        }
    }
}

/// JSON with every byte as the agent sent it.
fn raw(payload: Option<&MaybeJson>) -> Option<Box<RawValue>> {
    match payload? {
        MaybeJson::Json(text) => RawValue::from_string(text.as_str().to_owned()).ok(),
        MaybeJson::Malformed(_) => None,
    }
}

fn json(raw: &RawValue) -> Option<JsonText> {
    JsonText::new(raw.get()).ok()
}
