//! How much memory an event takes on its way to the store, and what an agent says about itself, about: what agents,
//! suites and scripts decide about.

use super::{Asked, Draft, Payload, Run, Said};
use crate::conversation::{
    self, AgentCard, AgentEventKind, Arguments, Description, Fault, Message, Part, Source, ToolCall, ToolOutcome,
};
use crate::verdict::{CaseResult, Turn};

/// What an entry of a list takes besides its texts.
const ENTRY: usize = 64;

impl Draft {
    /// Bytes that it takes in memory, about.
    #[must_use]
    pub fn weight(&self) -> usize {
        size_of::<Self>() + self.payload.weight()
    }
}

impl Payload {
    /// Bytes that it holds, about.
    #[must_use]
    pub fn weight(&self) -> usize {
        of_payload(self)
    }
}

impl Description {
    /// Bytes that it takes in memory, about.
    #[must_use]
    pub fn weight(&self) -> usize {
        let texts = |list: &[String]| all(list, String::len);
        let capabilities = texts(&self.capabilities) + texts(&self.required_host_capabilities);
        size_of::<Self>() + self.instance_id.len() + capabilities + of_card(&self.card)
    }
}

fn of_payload(payload: &Payload) -> usize {
    match payload {
        Payload::RunStarted(run) | Payload::RunFinished(run) => of_run(run),
        Payload::CasePlanned { name, labels } => name.len() + all(&labels.tags, String::len),
        Payload::Agent(event) => match &event.kind {
            AgentEventKind::TextDelta { text, .. } => text.len(),
            AgentEventKind::ToolStarted { call, .. } => of_call(call),
            AgentEventKind::ToolFinished { outcome, .. } => outcome.as_ref().map_or(0, of_outcome),
            AgentEventKind::Log { message, .. } => message.len(),
            AgentEventKind::Finished(finished) => {
                finished.response.as_ref().map_or(0, of_message) + all(&finished.warnings, String::len)
            }
            AgentEventKind::Accepted { .. } | AgentEventKind::ModelTurn(_) | AgentEventKind::Unknown => ENTRY,
        },
        Payload::StubServed { outcome, .. } => of_outcome(outcome),
        Payload::AgentDescribed(card) => of_card(card),
        Payload::CallEnded(ended) => {
            ended.response.as_ref().map_or(0, String::len) + ended.commentary.len() + all(&ended.input, of_message)
        }
        Payload::SpansRead(evidence) => all(&evidence.tool_calls, of_call),
        Payload::PartySaid(said) => {
            let asked = |asked: &Asked| all(&asked.instructions, String::len) + all(&asked.messages, of_message);
            let said_now = match &said.said {
                Said::Input { message, reasoning, .. } => message.as_ref().map_or(0, of_message) + reasoning.len(),
                Said::Vote { reason, reply, .. } => reason.len() + reply.len(),
                Said::Silence(why) => why.len(),
                Said::Cancelled => 0,
            };
            said_now + said.asked.as_ref().map_or(0, asked)
        }
        Payload::TurnFinished(turn) => of_turn(turn),
        Payload::AttemptFinished(result) | Payload::CaseFinished(result) => of_result(result),
        Payload::SnapshotTaken(values) => values.as_str().len(),
        Payload::Warning(text) => text.len(),
        Payload::CaseStarted { .. } | Payload::CheckpointReached { .. } => 0,
    }
}

fn all<T>(list: &[T], weight: impl Fn(&T) -> usize) -> usize {
    list.iter().map(|entry| ENTRY + weight(entry)).sum()
}

fn of_run(run: &Run) -> usize {
    let spec = &run.spec;
    let pairs = |list: &[(String, String)]| all(list, |(one, other)| one.len() + other.len());
    let texts = |list: &[String]| all(list, String::len);
    pairs(&spec.targets)
        + pairs(&spec.cases)
        + texts(&spec.suites)
        + texts(&spec.tags)
        + texts(&spec.difficulties)
        + texts(&spec.case_patterns)
        + texts(&run.warnings)
        + run.agent.as_ref().map_or(0, of_card)
        + all(&run.suites, |suite| suite.path.len() + texts(&suite.warnings))
}

fn of_card(card: &AgentCard) -> usize {
    let about = [&card.agent_id, &card.name, &card.version, &card.description, &card.provider_name, &card.model];
    let tools = all(&card.tools, |tool| {
        let texts = [&tool.name, &tool.version, &tool.kind, &tool.description];
        let schema = tool.input_schema.as_ref().map_or(0, |schema| schema.as_str().len());
        texts.iter().map(|text| text.len()).sum::<usize>() + schema
    });
    about.iter().map(|text| text.len()).sum::<usize>() + tools
}

fn of_result(result: &CaseResult) -> usize {
    let transcript = &result.transcript;
    transcript.response.len()
        + transcript.commentary.len()
        + all(&transcript.tool_calls, of_call)
        + all(&result.console, String::len)
        + all(&result.warnings, String::len)
        + all(&result.turns, of_turn)
        + all(&result.messages, of_message)
        + ENTRY * (result.assertions.len() + result.checkpoints.len())
}

const fn of_turn(turn: &Turn) -> usize {
    turn.input.len() + turn.output.len() + turn.commentary.len() + turn.reasoning.len()
}

fn of_call(call: &ToolCall) -> usize {
    let params = match &call.params {
        Arguments::Given(payload) => of_value(payload),
        Arguments::Unknown(why) => why.len(),
        Arguments::None => 0,
    };
    call.name.len() + call.call_id.len() + params + call.outcome.as_ref().map_or(0, of_outcome)
}

fn of_outcome(outcome: &ToolOutcome) -> usize {
    match outcome {
        ToolOutcome::Result(Some(payload)) => of_value(payload),
        ToolOutcome::Error(Fault { message, .. }) => message.len(),
        ToolOutcome::Result(None) | ToolOutcome::NotRun => 0,
    }
}

fn of_value(value: &conversation::MaybeJson) -> usize {
    match value {
        conversation::MaybeJson::Json(text) => text.as_str().len(),
        conversation::MaybeJson::Malformed(text) => text.len(),
    }
}

fn of_message(message: &Message) -> usize {
    all(&message.parts, |part| match part {
        Part::Text(text) | Part::Reasoning(text) => text.len(),
        Part::Data(json) => json.as_str().len(),
        Part::Blob(blob) => match &blob.source {
            Source::Content(content) => content.bytes.len(),
            Source::Uri(text) | Source::File(text) => text.len(),
        },
    })
}
