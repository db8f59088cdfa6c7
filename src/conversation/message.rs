//! What is said in a conversation: messages and their parts, and where the content of a part is.

use std::sync::Arc;

use super::JsonText;

/// Who speaks in a [`Message`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Instructions from the operator of the agent.
    System,
    /// The user, real or simulated.
    User,
    /// The agent.
    Assistant,
    /// The result of a tool.
    Tool,
}

impl Role {
    /// All of them, in the order in which people think of them.
    pub const ALL: [Self; 4] = [Self::User, Self::Assistant, Self::System, Self::Tool];

    /// Its name in test files, in requests and in traces.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said, in order.
    pub parts: Vec<Part>,
}

impl Message {
    /// A user message of one text part.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self { role: Role::User, parts: vec![Part::Text(text.into())] }
    }

    /// An assistant message of one text part.
    #[must_use]
    pub fn assistant(text: impl Into<String>) -> Self {
        Self { role: Role::Assistant, parts: vec![Part::Text(text.into())] }
    }

    /// The text parts, joined with nothing between. Reasoning and data are not part of it.
    #[must_use]
    pub fn text(&self) -> String {
        self.parts
            .iter()
            .filter_map(|part| if let Part::Text(text) = part { Some(text.as_str()) } else { None })
            .collect()
    }

    /// An address in it that names a file.
    #[must_use]
    pub fn address_of_a_file(&self) -> Option<&str> {
        self.parts.iter().find_map(|part| match part {
            Part::Blob(Blob { source: Source::Uri(uri), .. }) if names_a_file(uri) => Some(uri.as_str()),
            _ => None,
        })
    }
}

/// Whether an address names a file, as URL readers read it. No agent is handed one: the author of the address could
/// make it read a file of its own machine.
#[must_use]
pub fn names_a_file(address: &str) -> bool {
    // Blanks and control characters before an address do not count, and tabs and ends of lines nowhere.
    let counts = |c: &char| !matches!(c, '\t' | '\r' | '\n');
    let mut said = address.trim_start_matches(|c: char| c.is_whitespace() || c.is_control()).chars().filter(counts);
    "file:".chars().all(|c| said.next().is_some_and(|other| other.eq_ignore_ascii_case(&c)))
}

/// A part of a [`Message`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Text of the answer or question.
    Text(String),
    /// Structured data.
    Data(JsonText),
    /// Something else than text, such as an image.
    Blob(Blob),
    /// The model's reasoning; never part of the answer's text.
    Reasoning(String),
}

/// Something else than text in a [`Message`], named by where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// Media type, such as `image/png`; `image/*` when only the sort is known.
    pub media_type: String,
    /// Name for people, may be empty.
    pub name: String,
    /// Where it is, or what it holds.
    pub source: Source,
    /// The part as a suite wrote it.
    pub written: Option<JsonText>,
}

/// Where the content of a [`Blob`] is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// At an address that the agent can fetch.
    Uri(String),
    /// In a file beside the suite, by its path from the suite's folder; it is not read yet.
    File(String),
    /// Here.
    Content(Content),
}

/// The bytes of a [`Blob`]; clones share them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// The bytes.
    pub bytes: Arc<[u8]>,
    /// Their SHA-256.
    pub sha256: [u8; 32],
}

/// Content of up to this many bytes travels inside its message, larger content in pieces.
pub const INLINE_BYTES: usize = 256 << 10;

/// The contents in some messages that travel in pieces, each once.
#[must_use]
pub fn large_contents(messages: &[Message]) -> Vec<Content> {
    let mut found: Vec<Content> = Vec::new();
    for part in messages.iter().flat_map(|message| &message.parts) {
        if let Part::Blob(Blob { source: Source::Content(content), .. }) = part
            && content.bytes.len() > INLINE_BYTES
            && !found.iter().any(|other| other.sha256 == content.sha256)
        {
            found.push(content.clone());
        }
    }
    found
}
