//! The APIs that endpoints speak, by name: what each is sent besides the conversation, and who reads its answers.

use std::fmt;

use super::told::{Account, Unusable};
use super::{anthropic_messages, openai_chat, openai_responses};

/// An API that people's endpoints speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Preset {
    /// {"message": "..."} is sent and {"response": "...", "toolCalls": [...]} comes back; where each value stands
    /// is a setting
    #[default]
    Plain,
    /// Chat completions of OpenAI, and of all who speak it: POST .../v1/chat/completions
    #[value(name = "openai-chat")]
    OpenAiChat,
    /// Responses of OpenAI: POST .../v1/responses
    #[value(name = "openai-responses")]
    OpenAiResponses,
    /// Messages of Anthropic: POST .../v1/messages
    AnthropicMessages,
}

impl Preset {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Plain, Self::OpenAiChat, Self::OpenAiResponses, Self::AnthropicMessages];

    /// The name as people write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::OpenAiChat => "openai-chat",
            Self::OpenAiResponses => "openai-responses",
            Self::AnthropicMessages => "anthropic-messages",
        }
    }

    /// The field of what is sent that holds the conversation.
    pub(super) const fn conversation_field(self) -> &'static str {
        match self {
            Self::Plain | Self::OpenAiChat | Self::AnthropicMessages => "messages",
            Self::OpenAiResponses => "input",
        }
    }

    /// Who provides the model, in the words of the OpenTelemetry conventions; empty: nobody knows.
    pub(super) const fn provider(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::OpenAiChat | Self::OpenAiResponses => "openai",
            Self::AnthropicMessages => "anthropic",
        }
    }

    /// The header by which this API is told who asks, as an example for people.
    pub(super) const fn header(self) -> &'static str {
        match self {
            Self::Plain => "Authorization=VARIABLE",
            Self::OpenAiChat | Self::OpenAiResponses => "'Authorization: Bearer ${OPENAI_API_KEY}'",
            Self::AnthropicMessages => "'x-api-key: ${ANTHROPIC_API_KEY}'",
        }
    }

    /// What the address of this API ends in, for people.
    pub(super) const fn path(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::OpenAiChat => Some("/v1/chat/completions"),
            Self::OpenAiResponses => Some("/v1/responses"),
            Self::AnthropicMessages => Some("/v1/messages"),
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reads an answer of an API that is no stream; `plain` answers have fields of their own, and are read by those.
pub(super) fn whole(preset: Preset, body: &[u8]) -> Result<Account, Unusable> {
    match preset {
        Preset::Plain => Err(Unusable::Bad("an answer that this API does not have".to_owned())),
        Preset::OpenAiChat => openai_chat::whole(body),
        Preset::OpenAiResponses => openai_responses::whole(body),
        Preset::AnthropicMessages => anthropic_messages::whole(body),
    }
}

/// Reads the stream of an answer, event by event.
#[derive(Debug)]
pub(super) enum StreamReader {
    OpenAiChat(openai_chat::Reader),
    OpenAiResponses(openai_responses::Reader),
    AnthropicMessages(anthropic_messages::Reader),
}

impl StreamReader {
    /// The reader of a preset; `None`: it has no streams.
    pub(super) fn of(preset: Preset) -> Option<Self> {
        match preset {
            Preset::Plain => None,
            Preset::OpenAiChat => Some(Self::OpenAiChat(openai_chat::Reader::default())),
            Preset::OpenAiResponses => Some(Self::OpenAiResponses(openai_responses::Reader::default())),
            Preset::AnthropicMessages => Some(Self::AnthropicMessages(anthropic_messages::Reader::default())),
        }
    }

    /// Takes the data of an event; true: it was the last one.
    pub(super) fn take(&mut self, data: &str) -> Result<bool, Unusable> {
        match self {
            Self::OpenAiChat(reader) => reader.take(data),
            Self::OpenAiResponses(reader) => reader.take(data),
            Self::AnthropicMessages(reader) => reader.take(data),
        }
    }

    pub(super) const fn account(&mut self) -> &mut Account {
        match self {
            Self::OpenAiChat(reader) => &mut reader.account,
            Self::OpenAiResponses(reader) => &mut reader.account,
            Self::AnthropicMessages(reader) => &mut reader.account,
        }
    }

    /// What says that the answer is whole.
    pub(super) const fn end_mark(&self) -> &'static str {
        match self {
            Self::OpenAiChat(_) => "data: [DONE]",
            Self::OpenAiResponses(_) => "response.completed",
            Self::AnthropicMessages(_) => "message_stop",
        }
    }
}
