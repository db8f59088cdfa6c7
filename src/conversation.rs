//! What is said and done between the daemon and an agent: messages, tool calls, the events of one invocation, and the
//! transcript they add up to.
//!
//! What the other parties of a case are asked and answer is in [`party`].
//!
//! Plain data, the same for every transport. How it travels is the business of [`crate::wire`]; whether an agent kept
//! the rules of a stream is decided in `peer::stream`.

mod arguments;
mod kept;
mod message;
pub mod party;

use std::time::Duration;

use jiff::Timestamp;

pub use arguments::Arguments;
pub use kept::kept;
pub use message::{Blob, Content, INLINE_BYTES, Message, Part, Role, Source, large_contents, names_a_file};

use crate::case::CaseRef;
use crate::json::{Json, ParseError};

/// JSON text exactly as a model or tool wrote it, known to be valid.
///
/// Kept as text because a detour through doubles turns 9007199254740993 into ...992 and forgets key order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonText(String);

impl JsonText {
    /// Takes a text that is one JSON value.
    ///
    /// # Errors
    /// When it is not, or holds more than [`crate::limits::VALUES`] values.
    pub fn new(text: impl Into<String>) -> Result<Self, ParseError> {
        let text = text.into();
        Json::check(&text)?;
        Ok(Self(text))
    }

    /// The text as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value the text stands for.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "the text was parsed when this was made")]
    pub fn parse(&self) -> Json {
        Json::parse(&self.0).expect("a JsonText was parsed when it was made")
    }
}

impl From<&Json> for JsonText {
    fn from(json: &Json) -> Self {
        Self(json.stringify())
    }
}

/// Where a [`Fault`] comes from, as the agent tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FaultOrigin {
    /// Not told.
    #[default]
    Unspecified,
    /// The agent's own code.
    Agent,
    /// The model behind the agent.
    Model,
    /// A tool.
    Tool,
    /// The daemon.
    Daemon,
    /// The connection.
    Transport,
}

/// An error as data: what a tool, an agent or the daemon tells about something that did not work.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fault {
    /// gRPC status code, 0 when not told.
    pub code: i32,
    /// Machine-readable reason in UPPER_SNAKE_CASE, may be empty.
    pub reason: String,
    /// What happened, for people.
    pub message: String,
    /// Whose fault it was.
    pub origin: FaultOrigin,
    /// Whether the same call may work later.
    pub retryable: bool,
}

impl Fault {
    /// A fault of which nothing but the message is known.
    #[must_use]
    pub fn message(message: impl Into<String>) -> Self {
        Self { message: message.into(), ..Self::default() }
    }
}

/// Arguments or a result as the agent reported them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MaybeJson {
    /// Valid JSON.
    Json(JsonText),
    /// What a model emitted in place of JSON; bytes that are no UTF-8 are replaced.
    Malformed(String),
}

impl MaybeJson {
    /// The value, unless it is malformed.
    #[must_use]
    pub fn parse(&self) -> Option<Json> {
        match self {
            Self::Json(text) => Some(text.parse()),
            Self::Malformed(_) => None,
        }
    }
}

/// How a tool call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolOutcome {
    /// It worked; `None` when the agent does not report the result.
    Result(Option<MaybeJson>),
    /// It failed.
    Error(Fault),
    /// Nobody ran it, as the mode wanted: nothing came of it, and nothing is missed.
    NotRun,
}

/// The agent's record of one tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Id given by the agent, unique in the invocation.
    pub call_id: String,
    /// Tool name.
    pub name: String,
    /// Its arguments, as far as they are known.
    pub params: Arguments,
    /// How it ended; `None` while it is open or when the agent did not say.
    pub outcome: Option<ToolOutcome>,
    /// Time the call took by the agent's account.
    pub duration: Option<Duration>,
    /// Turn of the case in which it was called, from 1, by the daemon's count; 0: that is not known.
    pub turn: u32,
}

impl ToolCall {
    /// Whether the record says that the tool worked; `None`: nobody ran it. A call without an outcome counts as failed.
    #[must_use]
    pub const fn success(&self) -> Option<bool> {
        match self.outcome {
            Some(ToolOutcome::Result(_)) => Some(true),
            Some(ToolOutcome::Error(_)) | None => Some(false),
            Some(ToolOutcome::NotRun) => None,
        }
    }
}

/// What happens to the tools an agent wants to call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolMode {
    /// The agent runs its tools.
    Live,
    /// The agent asks the daemon for the results.
    Stub,
    /// The agent only says which tools it would call.
    RoutingOnly,
}

/// Tokens and money spent. `None` is "not measured", which is not zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Tokens read by the model.
    pub input_tokens: Option<i64>,
    /// Tokens written by the model.
    pub output_tokens: Option<i64>,
    /// Of the input, tokens that came from a prompt cache.
    pub cache_read_tokens: Option<i64>,
    /// Of the input, tokens written to a prompt cache.
    pub cache_write_tokens: Option<i64>,
    /// Of the output, tokens of reasoning.
    pub reasoning_tokens: Option<i64>,
    /// What it cost.
    pub cost: Option<Cost>,
}

/// An amount of money, in billionths of a US dollar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// The amount.
    pub nano_usd: u64,
    /// Whether it comes from a price list rather than from a bill.
    pub estimated: bool,
}

impl Cost {
    /// The amount in US dollars.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "exact up to nine million dollars")]
    pub fn usd(self) -> f64 {
        self.nano_usd as f64 / 1e9
    }
}

/// Why an agent ended its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// It was done.
    Completed,
    /// It stopped at tool calls that are not run (routing only).
    ToolCalls,
    /// It used up its model turns.
    MaxModelTurns,
    /// The model hit its token limit.
    MaxTokens,
    /// The model refused.
    Refused,
    /// It was cancelled.
    Cancelled,
    /// The time given to it ran out.
    BudgetExceeded,
    /// It failed.
    Failed,
    /// It needs more from the user.
    InputRequired,
}

/// One event of an invocation as the agent sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentEvent {
    /// Number of the event, from 1 without gaps; 0 when the agent does not number its events.
    pub seq: u64,
    /// Time since the agent accepted the call, by its own clock.
    pub elapsed: Option<Duration>,
    /// What happened.
    pub kind: AgentEventKind,
}

/// What an [`AgentEvent`] says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentEventKind {
    /// The agent took the call.
    Accepted {
        /// Instance that took it.
        instance_id: String,
    },
    /// A piece of the answer, or of reasoning.
    TextDelta {
        /// Message that the piece belongs to; may be empty.
        message_id: String,
        /// The piece.
        text: String,
        /// Whether it is reasoning rather than answer.
        reasoning: bool,
    },
    /// A tool call begins.
    ToolStarted {
        /// The call, still open.
        call: ToolCall,
        /// Whether the agent waits for the daemon to send the result.
        awaits_result: bool,
        /// Number of the model turn that asks for it, from 1; 0 when the agent does not say.
        model_turn: u32,
    },
    /// A tool call ended.
    ToolFinished {
        /// Id of the call.
        call_id: String,
        /// How; `None` when the agent set neither arm.
        outcome: Option<ToolOutcome>,
        /// Time it took by the agent's account.
        duration: Option<Duration>,
    },
    /// One call of the model behind the agent is over.
    ModelTurn(ModelTurn),
    /// A line of the agent's log.
    Log {
        /// Level, such as `info`.
        level: String,
        /// The line.
        message: String,
    },
    /// The answer is complete.
    Finished(Finished),
    /// An event of a kind this daemon does not know; it is counted and otherwise ignored.
    Unknown,
}

/// One call of the model behind an agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelTurn {
    /// Number of the turn, from 1.
    pub index: u32,
    /// Model name.
    pub model: String,
    /// The provider's id of the answer, may be empty.
    pub response_id: String,
    /// Why the model stopped, in the provider's words, may be empty.
    pub finish_reason: String,
    /// What it cost.
    pub usage: Option<Usage>,
    /// How long it took by the agent's account.
    pub duration: Option<Duration>,
}

/// The one terminal event of an invocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// Why it ended.
    pub reason: FinishReason,
    /// The answer; `None` when it is what the text deltas said last.
    pub response: Option<Message>,
    /// Tokens of the whole invocation.
    pub usage: Option<Usage>,
    /// What went wrong, with [`FinishReason::Failed`].
    pub error: Option<Fault>,
    /// Number of tool calls the agent counted; 0 when it does not count.
    pub tool_calls: u32,
    /// All spans of the invocation were exported, and their receiver confirmed them.
    pub spans_flushed: bool,
    /// What the reader of the result should know about the call.
    pub warnings: Vec<String>,
}

/// What is known of one invocation, whole or cut short.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transcript {
    /// The answer's text: what the agent said last.
    pub response: String,
    /// What it said before that, between its tool calls: shown, and judged by nothing.
    pub commentary: String,
    /// The tool calls in the order in which they were started.
    pub tool_calls: Vec<ToolCall>,
    /// Tokens of the whole invocation.
    pub usage: Option<Usage>,
    /// From sending the start frame to the last event, by the daemon's clock.
    pub duration: Duration,
    /// Why there may be tool calls that are not in here; `None`: these are all.
    pub open_end: Option<String>,
}

impl Transcript {
    /// Bytes of what the agent said and did.
    #[must_use]
    pub fn size(&self) -> usize {
        let json = |payload: Option<&MaybeJson>| match payload {
            Some(MaybeJson::Json(text)) => text.as_str().len(),
            Some(MaybeJson::Malformed(text)) => text.len(),
            None => 0,
        };
        let call = |call: &ToolCall| {
            let outcome = match &call.outcome {
                Some(ToolOutcome::Result(result)) => json(result.as_ref()),
                Some(ToolOutcome::Error(fault)) => fault.message.len(),
                Some(ToolOutcome::NotRun) | None => 0,
            };
            call.name.len() + call.call_id.len() + json(call.params.given()) + outcome
        };
        self.response.len() + self.commentary.len() + self.tool_calls.iter().map(call).sum::<usize>()
    }
}

/// What the spans of an invocation say about its tools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SpanEvidence {
    /// The tool calls in the order in which they began.
    pub tool_calls: Vec<ToolCall>,
    /// When each of them began, by the agent's clock; may be shorter than they are, in logs of earlier versions.
    pub began: Vec<Timestamp>,
    /// The agent confirmed that there are no more.
    pub confirmed: bool,
    /// How long the daemon waited for spans.
    pub waited: Duration,
    /// Spans that came in, of all kinds.
    pub spans: u32,
    /// Spans that were not kept because there were too many.
    pub dropped: u32,
}

/// How an invocation ended that gave no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The time of the case ran out.
    Timeout,
    /// The agent said that it failed, or ended the call with an error status.
    Agent(String),
    /// The agent broke a rule of the protocol.
    Protocol(String),
    /// The connection was lost after the call had been handed over.
    Lost(String),
    /// The agent never accepted the call: no connection within the time of the case.
    Unreachable(String),
    /// The case asked for something this agent, or this daemon, cannot do; the agent was not called.
    Suite(String),
    /// The agent took more model turns than this number, which is the most that the call may take.
    MaxTurns(u32),
    /// Somebody cancelled the run.
    Cancelled,
    /// The daemon stood still while the call went on, and the agent gave up: nobody can tell what it would have done.
    Stalled(String),
}

/// One invocation from start to end: what was recorded, and whether it was an answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exchange {
    /// What was recorded; on failure, up to then.
    pub transcript: Transcript,
    /// Why there is no answer, if there is none.
    pub failure: Option<Failure>,
    /// Protocol warnings and other remarks about this call.
    pub warnings: Vec<String>,
    /// The model behind the agent, if its model turns all name the same one.
    pub model: Option<String>,
    /// Whether the last event of the agent holds the answer as a whole.
    pub is_told_whole: bool,
    /// Whether the agent called a tool after its answer, and said nothing then.
    pub is_before_a_call: bool,
    /// Whether the agent says that all spans of the call were exported, and confirmed.
    pub spans_flushed: bool,
    /// How long the daemon waited for spans behind the end of the call, and stood still during it: this is nobody's
    /// time.
    pub waited: Duration,
    /// Why the daemon asked the agent to end the call; `None`: it did not.
    pub cancel: Option<CancelReason>,
    /// The gRPC status that the call ended with, by number; `None`: nothing was sent.
    pub grpc_status: Option<i32>,
}

/// What an agent says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Description {
    /// Protocol revision the agent speaks; an agent that says nothing speaks 1.
    pub revision: u32,
    /// Names this process of the agent.
    pub instance_id: String,
    /// Who it is.
    pub card: AgentCard,
    /// What it can do, such as `tools.stub`.
    pub capabilities: Vec<String>,
    /// What it needs the daemon to be able to do.
    pub required_host_capabilities: Vec<String>,
    /// Most calls at the same time, if it says so.
    pub max_concurrent_invocations: Option<u32>,
    /// Largest message it takes, in bytes, if it says so.
    pub max_message_bytes: Option<u64>,
    /// Largest attachment it takes, in bytes, if it says so.
    pub max_attachment_bytes: Option<u64>,
}

/// An agent's card.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentCard {
    /// Id by which the agent knows itself.
    pub agent_id: String,
    /// Name for people.
    pub name: String,
    /// Version or build.
    pub version: String,
    /// What it is for.
    pub description: String,
    /// Who provides its model.
    pub provider_name: String,
    /// Its model.
    pub model: String,
    /// The tools it declares.
    pub tools: Vec<ToolSpec>,
}

/// A tool that an agent declares.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolSpec {
    /// Name, unique for the agent.
    pub name: String,
    /// Version of the tool.
    pub version: String,
    /// Kind of the tool in the words of its framework, such as `function`; may be empty.
    pub kind: String,
    /// What it does, as the model reads it.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: Option<JsonText>,
}

impl Usage {
    /// Adds what another call used; what neither measured stays unmeasured.
    pub fn add(&mut self, other: &Self) {
        let sum = |a: Option<i64>, b: Option<i64>| match (a, b) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
        };
        self.input_tokens = sum(self.input_tokens, other.input_tokens);
        self.output_tokens = sum(self.output_tokens, other.output_tokens);
        self.cache_read_tokens = sum(self.cache_read_tokens, other.cache_read_tokens);
        self.cache_write_tokens = sum(self.cache_write_tokens, other.cache_write_tokens);
        self.reasoning_tokens = sum(self.reasoning_tokens, other.reasoning_tokens);
        self.cost = match (self.cost, other.cost) {
            (Some(a), Some(b)) => {
                Some(Cost { nano_usd: a.nano_usd.saturating_add(b.nano_usd), estimated: a.estimated || b.estimated })
            }
            (a, b) => a.or(b),
        };
    }
}

/// One call of an agent: everything it needs to know about a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// Agent the call is for; one process may serve several.
    pub agent_id: String,
    /// Run the call belongs to.
    pub run_id: String,
    /// The case that it is part of.
    pub case: CaseRef,
    /// Turn of the dialogue, from 1.
    pub turn: u32,
    /// Unique for case, turn and attempt: the agent must not do the work twice under one id.
    pub invocation_id: String,
    /// Ties the turns of one case together; nothing else.
    pub conversation_id: String,
    /// The whole conversation; the last message is the one to answer.
    pub messages: Vec<Message>,
    /// What the suite says about this call, passed on unchanged; an object.
    pub options: Option<JsonText>,
    /// What happens to tools.
    pub tool_mode: ToolMode,
    /// Most model turns, if limited.
    pub max_model_turns: Option<u32>,
    /// Time left.
    pub budget: Duration,
}

/// Why the daemon cancels a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelReason {
    /// Somebody cancelled the run.
    User,
    /// The time of the case ran out.
    Budget,
    /// The agent broke the protocol.
    ProtocolError,
    /// The daemon stops.
    Shutdown,
    /// Another case of the run did not pass, and its owner wants to know no more.
    FailFast,
    /// What comes of the run's gate is decided.
    Decided,
    /// The agent took more model turns than it may.
    MaxTurns,
}

impl CancelReason {
    /// The word used in traces.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Budget => "budget",
            Self::ProtocolError => "protocol_error",
            Self::Shutdown => "shutdown",
            Self::FailFast => "fail_fast",
            Self::Decided => "decided",
            Self::MaxTurns => "max_turns",
        }
    }
}
