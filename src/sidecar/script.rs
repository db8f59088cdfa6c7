//! What a script says, once it is read: the agent's replies, the simulator's and the validator's answers.
//!
//! Plain data that cannot be wrong. Every form in which a file may write a text (`text`, `text_fill`, `text_pieces`,
//! `raw_text_hex`) has become the bytes to send; every way to end a call stands at the end of its list of events and
//! nowhere else. How the files are read is in [`super::read`], how they are played in `player` and
//! `parties`.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;

/// `agent.json`: how the agent behaves.
#[derive(Debug, Clone)]
pub struct AgentScript {
    /// Names this script among others; changes whenever the file does.
    pub version: String,
    /// The duration that the agent claims for every turn, whatever really passed.
    pub reported_duration: Option<Duration>,
    /// The replies, in the order of the file.
    pub replies: Vec<Reply>,
}

/// One way to answer.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Which messages it answers.
    pub on: On,
    /// What is played.
    pub plays: Plays,
}

/// Which messages a reply answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum On {
    /// This very text.
    Text(String),
    /// Every text that begins so.
    Prefix(String),
    /// Whatever no other reply answers.
    Fallback,
}

/// What a reply plays.
#[derive(Debug, Clone)]
pub enum Plays {
    /// The same every time.
    Always(Play),
    /// One thing the first time a message comes in a conversation, another whenever it comes again.
    ByMemory {
        /// The first time.
        first: Play,
        /// From the second time on.
        again: Play,
    },
}

/// A list of events and how it ends.
#[derive(Debug, Clone)]
pub struct Play {
    /// What is sent, in order.
    pub events: Vec<Event>,
    /// What happens after the last event.
    pub ending: Ending,
}

/// Something that the agent does while a call goes on.
#[derive(Debug, Clone)]
pub enum Event {
    /// Sends a piece of the answer. The bytes need not be UTF-8.
    Text(Bytes),
    /// Calls a tool.
    Tool(Tool),
    /// Waits.
    Wait(Duration),
}

/// A tool call as the agent reports it.
#[derive(Debug, Clone)]
pub struct Tool {
    /// Unique within the reply.
    pub call_id: String,
    /// Name of the tool.
    pub name: String,
    /// The arguments, byte for byte as the file has them; `None` when it has none.
    pub params: Option<Bytes>,
    /// How the call went.
    pub outcome: ToolOutcome,
    /// How long it claims to have taken.
    pub duration: Option<Duration>,
}

/// How a tool call went.
#[derive(Debug, Clone)]
pub enum ToolOutcome {
    /// It worked, with this result byte for byte; `None` when the result is not reported.
    Worked(Option<Bytes>),
    /// It failed, with this message.
    Failed(String),
}

/// How a call ends.
#[derive(Debug, Clone)]
pub enum Ending {
    /// With a status; OK comes after a proper `finished`.
    Close(tonic::Status),
    /// Not at all, until the peer gives up.
    Hang,
    /// The TCP connection is dropped.
    CutConnection,
    /// The stream is reset.
    CutStream,
    /// As [`Ending::Close`], and the agent leaves: it says so to its peers, closes its port, and comes back after the
    /// given time, or never.
    Leave(tonic::Status, Option<Duration>),
    /// All connections are dropped, for good.
    Die,
}

/// `simulator.json`: the answers for each case, turn by turn; the last one repeats.
pub type SimulatorScript = HashMap<String, Vec<SimulatorAnswer>>;

/// What the simulator answers in one turn.
#[derive(Debug, Clone)]
pub enum SimulatorAnswer {
    /// An input, or none.
    Input {
        /// What the user says; empty is not absent.
        input: Option<String>,
        /// Whether the user has got what they wanted.
        goal_achieved: bool,
        /// Why, in its own words; may be empty.
        reasoning: String,
        /// Time that the answer takes.
        wait: Duration,
    },
    /// A breakdown instead of an answer.
    Breakdown(Breakdown),
}

/// `validator.json`: the judgements, in the order of the file.
pub type ValidatorScript = Vec<ValidatorReply>;

/// One judgement.
#[derive(Debug, Clone)]
pub struct ValidatorReply {
    /// The criteria that it is for; `None` is the fallback.
    pub criteria: Option<String>,
    /// What the validator answers.
    pub answer: ValidatorAnswer,
}

/// What the validator answers.
#[derive(Debug, Clone)]
pub enum ValidatorAnswer {
    /// A judgement.
    Judgement {
        /// Whether the answer meets the criteria.
        passed: bool,
        /// Why.
        reason: String,
    },
    /// A breakdown instead of an answer.
    Breakdown(Breakdown),
}

/// What a simulator or validator does instead of answering.
#[derive(Debug, Clone)]
pub enum Breakdown {
    /// Ends with this status, which is never OK.
    Close(tonic::Status),
    /// Never ends.
    Hang,
}

impl AgentScript {
    /// The reply to a message: the first that names it, else the fallback.
    #[must_use]
    pub fn reply_to(&self, message: &str) -> Option<&Reply> {
        let names = |on: &On| match on {
            On::Text(text) => text == message,
            On::Prefix(prefix) => message.starts_with(prefix.as_str()),
            On::Fallback => false,
        };
        let fallback = || self.replies.iter().find(|reply| reply.on == On::Fallback);
        self.replies.iter().find(|reply| names(&reply.on)).or_else(fallback)
    }
}
