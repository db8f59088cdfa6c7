//! Where the values stand in what an endpoint is sent and in what it answers, which is a setting each.

use std::fmt;
use std::str::FromStr;

use clap::Args;

use super::field::{FieldPath, FieldPathError};

/// Where the values stand in what is sent and in what comes back.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(next_help_heading = "Fields, each a path such as data.reply or choices[0].text")]
pub struct Fields {
    /// The text of the user's last message, in what is sent
    #[arg(long = "message-field", value_name = "FIELD", default_value = "message")]
    pub message: FieldPath,
    /// The whole conversation, in what is sent, as [{"role", "content"}], where the message does not say all of it;
    /// none: the endpoint takes no conversation, and cases that need one are errored
    #[arg(long = "messages-field", value_name = "FIELD", default_value = "messages")]
    pub messages: Taken,
    /// The messages before the last one of the user, in what is sent, in every request [default: they are not sent
    /// apart]
    #[arg(long = "history-field", value_name = "FIELD")]
    pub history: Option<FieldPath>,
    /// The options of the case with its connector, in what is sent, where it has any; none: the endpoint takes no
    /// options, and cases that have some are errored
    #[arg(long = "options-field", value_name = "FIELD", default_value = "options")]
    pub options: Taken,
    /// The most model turns, in what is sent, where the case has a limit; none: the endpoint takes none, and such
    /// cases are errored
    #[arg(long = "max-turns-field", value_name = "FIELD", default_value = "maxTurns")]
    pub max_turns: Taken,
    /// The text of the answer
    #[arg(long = "response-field", value_name = "FIELD", default_value = "response")]
    pub response: FieldPath,
    /// The list of tool calls
    #[arg(long = "tool-calls-field", value_name = "FIELD", default_value = "toolCalls")]
    pub tool_calls: FieldPath,
    /// In a tool call: its name
    #[arg(long = "tool-name-field", value_name = "FIELD", default_value = "name")]
    pub tool_name: FieldPath,
    /// In a tool call: its parameters
    #[arg(long = "tool-params-field", value_name = "FIELD", default_value = "params")]
    pub tool_params: FieldPath,
    /// In a tool call: whether it worked
    #[arg(long = "tool-success-field", value_name = "FIELD", default_value = "success")]
    pub tool_success: FieldPath,
    /// In a tool call: how long it took, in milliseconds
    #[arg(long = "tool-duration-field", value_name = "FIELD", default_value = "durationMs")]
    pub tool_duration: FieldPath,
    /// In a tool call: what it returned
    #[arg(long = "tool-result-field", value_name = "FIELD", default_value = "result")]
    pub tool_result: FieldPath,
    /// In a tool call: why it failed
    #[arg(long = "tool-error-field", value_name = "FIELD", default_value = "error")]
    pub tool_error: FieldPath,
}

impl Default for Fields {
    /// The fields of the Eval Runner Contract, which are the defaults of the options too.
    fn default() -> Self {
        Self {
            message: FieldPath::key("message"),
            messages: Taken::In(FieldPath::key("messages")),
            history: None,
            options: Taken::In(FieldPath::key("options")),
            max_turns: Taken::In(FieldPath::key("maxTurns")),
            response: FieldPath::key("response"),
            tool_calls: FieldPath::key("toolCalls"),
            tool_name: FieldPath::key("name"),
            tool_params: FieldPath::key("params"),
            tool_success: FieldPath::key("success"),
            tool_duration: FieldPath::key("durationMs"),
            tool_result: FieldPath::key("result"),
            tool_error: FieldPath::key("error"),
        }
    }
}

/// What an endpoint is sent where a case has it: in which field, or that the endpoint takes no such thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// In this field.
    In(FieldPath),
    /// Not at all, which is written `none`.
    Nowhere,
}

impl Taken {
    /// The field, if there is one.
    pub(super) const fn field(&self) -> Option<&FieldPath> {
        match self {
            Self::In(field) => Some(field),
            Self::Nowhere => None,
        }
    }
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::In(field) => field.fmt(f),
            Self::Nowhere => f.write_str("none"),
        }
    }
}

impl FromStr for Taken {
    type Err = FieldPathError;

    fn from_str(text: &str) -> Result<Self, FieldPathError> {
        if text == "none" { Ok(Self::Nowhere) } else { text.parse().map(Self::In) }
    }
}
