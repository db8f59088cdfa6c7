//! A conversation as the APIs of models can take it. What none of them can say is an error: nothing is ever left out.

use serde_json::value::RawValue;

use super::question::written;
use crate::wire::agent as pb;
use crate::wire::agent::part::Content as Holds;

/// One message.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    pub(super) speaker: Speaker,
    /// The name of the participant; may be empty.
    pub(super) name: &'a str,
    pub(super) contents: Vec<Content<'a>>,
}

/// Who says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    System,
    User,
    Assistant,
}

/// A part of a message.
#[derive(Debug)]
pub(super) enum Content<'a> {
    Text(&'a str),
    File(&'a pb::Blob),
    /// A tool call that the assistant made.
    Call {
        id: &'a str,
        name: &'a str,
        arguments: Option<Box<RawValue>>,
    },
    /// What came of it.
    Output {
        id: &'a str,
        output: Output<'a>,
    },
}

/// What a tool returned, or why it failed.
#[derive(Debug)]
pub(super) enum Output<'a> {
    Result(Option<Box<RawValue>>),
    Error(&'a str),
}

impl Turn<'_> {
    /// The role as all APIs call it.
    pub(super) const fn role(&self) -> &'static str {
        match self.speaker {
            Speaker::System => "system",
            Speaker::User => "user",
            Speaker::Assistant => "assistant",
        }
    }
}

/// Reads the messages of a call.
///
/// # Errors
/// What of them no API of a model can say, for people.
pub(super) fn turns(messages: &[pb::Message]) -> Result<Vec<Turn<'_>>, String> {
    let read = messages.iter().map(|message| {
        if !message.metadata.is_empty() {
            return Err("the case holds metadata of a message, for which this API has no place".to_owned());
        }
        let speaker = match message.role() {
            pb::Role::System => Speaker::System,
            pb::Role::User | pb::Role::Tool => Speaker::User,
            pb::Role::Assistant | pb::Role::Unspecified => Speaker::Assistant,
        };
        let contents = message.parts.iter().map(content).collect::<Result<_, _>>()?;
        Ok(Turn { speaker, name: &message.name, contents })
    });
    read.collect()
}

fn content(part: &pb::Part) -> Result<Content<'_>, String> {
    let no_place = |what: &str| Err(format!("the case holds {what}, for which this API has no place"));
    match &part.content {
        Some(Holds::Text(text)) => Ok(Content::Text(text)),
        Some(Holds::Blob(blob)) => Ok(Content::File(blob)),
        Some(Holds::ToolUse(call)) => {
            let arguments = call.arguments.as_ref().map(written).transpose()?.flatten();
            Ok(Content::Call { id: &call.call_id, name: &call.name, arguments })
        }
        Some(Holds::ToolOutput(output)) => {
            let id = &output.call_id;
            let output = match &output.outcome {
                Some(pb::tool_output::Outcome::Result(result)) => Output::Result(written(result)?),
                Some(pb::tool_output::Outcome::Error(fault)) => Output::Error(&fault.message),
                None => Output::Error(""),
            };
            Ok(Content::Output { id, output })
        }
        Some(Holds::Data(_)) => no_place("data"),
        Some(Holds::Reasoning(_)) => no_place("reasoning"),
        None => no_place("a part of a kind that is not known"),
    }
}

/// What a tool gave, as the text that a model is shown.
pub(super) fn text_of_output(output: &Output<'_>) -> String {
    match output {
        Output::Result(None) => String::new(),
        // A text is shown as it is, anything else as JSON.
        Output::Result(Some(result)) => serde_json::from_str(result.get()).unwrap_or_else(|_| result.get().to_owned()),
        Output::Error(why) => format!("error: {why}"),
    }
}
