//! The other parties of a case: who plays the user, and who judges.
//!
//! A party that does not implement the service for it is asked as a plain agent, with the JSON contract of Agent Test
//! Framework V2: it gets the question as one message of JSON and answers with JSON, which [`super::plain`] reads.

use std::fmt::{Display, Write as _};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Response, Status};

use super::agent::{Agent, MAX_MESSAGE_BYTES, traced};
use super::backoff::Backoff;
use super::call::{CallState, Closing, Ending, Heard, Opening, Start, Step};
use super::output::Outputs;
use super::plain::{Spoken, Verdict, input_in, verdict_in};
use super::status::{find, was_not_delivered};
use super::target::Target;
use crate::case::CaseRef;
use crate::conversation::party::{Input, Judgement, NextInput, Vote};
use crate::conversation::{
    Arguments, Exchange, Failure, Invocation, JsonText, MaybeJson, Message, Part, Role, ToolMode, Transcript,
};
use crate::json::{Json, write_string};
use crate::trace::{RunTrace, SpanId, TraceHeaders};
use crate::wire::agent as pb;
use crate::wire::agent::simulator_client::SimulatorClient;
use crate::wire::agent::validator_client::ValidatorClient;
use crate::wire::bounded::Unread;
use crate::wire::call::trace_to_proto;
use crate::wire::party::{input_from_proto, judgement_to_proto, next_input_to_proto, vote_from_proto};
use crate::wire::value::{duration_to_proto, shorten};
use crate::work::{JSON_MEMORY, QUICK_BYTES, in_place, read_apart};

/// Time to reach a party that is not there.
const PATIENCE: Duration = Duration::from_secs(3);

/// What a call belongs to.
#[derive(Debug, Clone)]
pub struct Belongs {
    /// The run.
    pub run_id: String,
    /// The case.
    pub case: CaseRef,
    /// Turn of the dialogue, from 1.
    pub turn: u32,
    /// When the time of the case is up.
    pub deadline: Instant,
    /// Id of the question, unlike that of every other one.
    pub request_id: String,
    /// What the party's spans hang below.
    pub trace: TraceHeaders,
    /// What comes of the calls of the run.
    pub outputs: Outputs,
}

impl Belongs {
    /// A question about a case of a run, in a turn of it.
    #[must_use]
    pub fn to_case(run_id: &str, case: &CaseRef, turn: u32, deadline: Instant, outputs: &Outputs) -> Self {
        Self {
            run_id: run_id.to_owned(),
            case: case.clone(),
            turn,
            deadline,
            request_id: String::new(),
            trace: TraceHeaders::default(),
            outputs: outputs.clone(),
        }
    }

    /// The same for one of its questions, with an id and a span of its own.
    #[must_use]
    pub fn asking(&self, trace: &RunTrace) -> Self {
        let request_id = uuid::Uuid::new_v4().to_string();
        let trace = trace.headers(SpanId::of_call(&request_id), Some((&self.case.case_id, &request_id)));
        Self { request_id, trace, ..self.clone() }
    }
}

/// Why a party gave no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Silence {
    /// The time of the case ran out.
    Timeout,
    /// It failed, cannot be reached, or said something that means nothing.
    Failed(String),
}

impl Silence {
    /// It failed, because of this.
    pub(super) fn because(why: impl Display) -> Self {
        Self::Failed(why.to_string())
    }
}

impl Agent {
    /// Asks what the user says next.
    ///
    /// # Errors
    /// When it says nothing that counts.
    pub async fn next_input(&self, belongs: &Belongs, asked: &NextInput<'_>) -> Result<Input, Silence> {
        let client = SimulatorClient::new(self.channel()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let bytes = asked.options.size() * JSON_MEMORY;
        let ask = || {
            let mut client = client.clone();
            let request = in_place(bytes, || next_input_to_proto(self.context(belongs), asked));
            let request = traced(request, &belongs.trace);
            async move { client.next_input(request).await }
        };
        match reached(belongs, ask).await? {
            Ok(answer) => {
                let answer = answer.into_inner();
                let bytes = prost::Message::encoded_len(&answer);
                let mut output = belongs.outputs.begin();
                output.add(bytes).map_err(Silence::because)?;
                read(&belongs.run_id, bytes, || input_from_proto(answer)).await?.map_err(Silence::Failed)
            }
            Err(status) if status.code() == Code::Unimplemented => {
                let question = simulator_question(asked);
                let Transcript { response, usage, .. } = self.ask_plainly(belongs, &question, asked.options).await?;
                let spoken = read(&belongs.run_id, response.len(), move || input_in(&response)).await?;
                let Spoken { input, is_last, reasoning } = spoken.map_err(Silence::Failed)?;
                Ok(Input { message: input.map(Message::user), is_last, reasoning: shorten(&reasoning), usage })
            }
            Err(status) => Err(self.failed(&status)),
        }
    }

    /// Asks for a verdict.
    ///
    /// # Errors
    /// When there is none.
    pub async fn validate(&self, belongs: &Belongs, asked: &Judgement<'_>) -> Result<Vote, Silence> {
        let client = ValidatorClient::new(self.channel()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let bytes = asked.options.size() * JSON_MEMORY;
        let ask = || {
            let mut client = client.clone();
            let request = in_place(bytes, || judgement_to_proto(self.context(belongs), asked));
            let request = traced(request, &belongs.trace);
            async move { client.validate(request).await }
        };
        match reached(belongs, ask).await? {
            Ok(answer) => {
                let answer = answer.into_inner();
                let mut output = belongs.outputs.begin();
                output.add(prost::Message::encoded_len(&answer)).map_err(Silence::because)?;
                vote_from_proto(&answer).map_err(Silence::Failed)
            }
            Err(status) if status.code() == Code::Unimplemented => {
                let question = validator_question(asked);
                let Transcript { response, usage, .. } = self.ask_plainly(belongs, &question, asked.options).await?;
                let reply = shorten(&response);
                let verdict = read(&belongs.run_id, response.len(), move || verdict_in(&response)).await?;
                let Verdict { passed, reason, score } = verdict.map_err(Silence::Failed)?;
                Ok(Vote { passed, reason: shorten(&reason), score, reply, usage })
            }
            Err(status) => Err(self.failed(&status)),
        }
    }

    pub(super) fn context(&self, belongs: &Belongs) -> pb::CallContext {
        pb::CallContext {
            agent_id: self.id_to_call(),
            run_id: belongs.run_id.clone(),
            suite: belongs.case.suite.to_string(),
            case_id: belongs.case.case_id.to_string(),
            repeat: belongs.case.repeat,
            turn: belongs.turn,
            attempt: belongs.case.attempt,
            request_id: belongs.request_id.clone(),
            budget: Some(duration_to_proto(left(belongs))),
            trace_context: trace_to_proto(&belongs.trace),
            ..pb::CallContext::default()
        }
    }

    /// A URL says nothing about the ids that the process behind it knows.
    fn id_to_call(&self) -> String {
        if Target::looks_like_one(&self.name) { String::new() } else { self.name.clone() }
    }

    pub(super) fn failed(&self, status: &Status) -> Silence {
        if let Some(unread) = find::<Unread>(status) {
            return Silence::Failed(format!("the answer of {} is not read: {unread}", self.url));
        }
        match status.code() {
            // Nobody reads the name of the status who wants to know what went wrong.
            Code::Internal | Code::Unknown if !status.message().is_empty() => {
                Silence::Failed(shorten(status.message()))
            }
            Code::Unavailable => {
                Silence::Failed(format!("{} cannot be reached: {}", self.url, shorten(status.message())))
            }
            code => Silence::Failed(format!("{} answered with {code:?}: {}", self.url, shorten(status.message()))),
        }
    }

    /// Asks a plain agent one message.
    pub(super) async fn ask_plainly(
        &self,
        belongs: &Belongs,
        question: &str,
        options: &Json,
    ) -> Result<Transcript, Silence> {
        let invocation = Invocation {
            agent_id: self.id_to_call(),
            run_id: belongs.run_id.clone(),
            case: belongs.case.clone(),
            turn: belongs.turn,
            invocation_id: belongs.request_id.clone(),
            conversation_id: uuid::Uuid::new_v4().to_string(),
            messages: vec![Message { role: Role::User, parts: vec![Part::Text(question.to_owned())] }],
            options: Some(JsonText::from(options)),
            tool_mode: ToolMode::Live,
            max_model_turns: None,
            budget: left(belongs),
        };
        let answer = tokio::time::timeout_at(belongs.deadline, self.answer_to(&invocation, belongs)).await;
        answer.unwrap_or(Err(Silence::Timeout))
    }

    /// The whole answer to one call.
    async fn answer_to(&self, invocation: &Invocation, belongs: &Belongs) -> Result<Transcript, Silence> {
        let mut state = CallState::new(invocation.tool_mode, None, false, belongs.outputs.begin());
        let ending = self.hear_out(&mut state, invocation, belongs).await;
        self.bent.count(state.bent(), &invocation.run_id);
        let (bytes, failure) = (state.odd_bytes(), ending?.failure);
        let Exchange { failure, transcript, .. } =
            read(&invocation.run_id, bytes, || state.into_exchange(failure)).await?;
        failure.map_or(Ok(transcript), |failure| Err(silence_of(failure)))
    }

    /// Makes a call, and hears it to its end.
    async fn hear_out(
        &self,
        state: &mut CallState,
        invocation: &Invocation,
        belongs: &Belongs,
    ) -> Result<Ending, Silence> {
        let mut opening = Opening::new(self.clone(), Start::new(invocation, belongs.trace.clone()));
        let opened = opening.attempt(invocation.budget).await;
        let mut line = opened.map_err(|refusal| self.failed(&refusal.status))?;
        loop {
            match line.next(state).await {
                // Nobody answers its tool calls.
                Heard::Due(_) => {}
                Heard::End(status) if status.code() != Code::Ok => return Err(self.failed(&status)),
                Heard::End(status) => return Ok(state.ended(&status)),
                Heard::Frame(frame) => {
                    let bytes = frame.bytes();
                    state.count(bytes).map_err(silence)?;
                    let event = read(&invocation.run_id, bytes, || frame.read()).await?.map_err(silence)?;
                    state.take(&event, bytes, Duration::ZERO).map_err(silence)?;
                    match state.step(Instant::now()) {
                        Step::Wait => {}
                        Step::End(ending) => return Ok(ending),
                        Step::Close => return Ok(state.closed(Closing::Good).0),
                    }
                }
            }
        }
    }
}

/// Why there is no answer to a call that ended so.
fn silence(ending: Ending) -> Silence {
    ending.failure.map_or_else(|| Silence::Failed("it gave no answer".to_owned()), silence_of)
}

fn silence_of(failure: Failure) -> Silence {
    match failure {
        Failure::Agent(message) | Failure::Protocol(message) => Silence::Failed(message),
        failure => Silence::Failed(format!("{failure:?}")),
    }
}

/// Reads `bytes` bytes that a party said for a run.
async fn read<T: Send + 'static>(
    run_id: &str,
    bytes: usize,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Silence> {
    if bytes <= QUICK_BYTES {
        return Ok(job());
    }
    // A caller that does not want it any more drops this future.
    let read = Box::pin(read_apart(run_id, bytes, &CancellationToken::new(), job)).await;
    read.map_err(|why| Silence::Failed(format!("the daemon could not read what was said: {why}")))
}

fn left(belongs: &Belongs) -> Duration {
    belongs.deadline.saturating_duration_since(Instant::now())
}

/// Asks until the question was certainly delivered, for a while and within the time of the case: a party that is
/// just being restarted is no trouble.
async fn reached<T, F>(belongs: &Belongs, ask: impl Fn() -> F) -> Result<Result<Response<T>, Status>, Silence>
where
    F: Future<Output = Result<Response<T>, Status>>,
{
    let begun = Instant::now();
    let mut backoff = Backoff::new();
    let asked = async {
        loop {
            let answer = ask().await;
            let pause = backoff.pause();
            match &answer {
                Err(status) if was_not_delivered(status) && begun.elapsed() + pause < PATIENCE => {
                    tokio::time::sleep(pause).await;
                }
                _ => return answer,
            }
        }
    };
    tokio::time::timeout_at(belongs.deadline, asked).await.map_err(|_| Silence::Timeout)
}

/// What a plain agent is asked that plays the user: `SimulatorInput` of the framework.
fn simulator_question(asked: &NextInput<'_>) -> String {
    let mut out = String::from("{\"persona\": ");
    write_string(asked.persona, &mut out);
    out.push_str(", \"goal\": ");
    write_string(asked.goal, &mut out);
    out.push_str(", \"conversation\": ");
    write_conversation(asked.conversation, &mut out);
    let _ = write!(out, ", \"turn_number\": {}, \"max_turns\": {}}}", asked.turn, asked.max_turns);
    out
}

/// What a plain agent is asked that judges.
fn validator_question(asked: &Judgement<'_>) -> String {
    let mut out = String::from("{\"output\": ");
    write_string(asked.output, &mut out);
    out.push_str(", \"criteria\": ");
    write_string(asked.criteria, &mut out);
    out.push_str(", \"conversation\": ");
    write_conversation(asked.conversation, &mut out);
    out.push_str(", \"tool_calls\": [");
    for (index, call) in asked.tool_calls.iter().enumerate() {
        out.push_str(if index > 0 { ", {\"name\": " } else { "{\"name\": " });
        write_string(&call.name, &mut out);
        match &call.params {
            Arguments::None => {}
            Arguments::Given(MaybeJson::Json(params)) => {
                out.push_str(", \"params\": ");
                out.push_str(params.as_str());
            }
            Arguments::Given(MaybeJson::Malformed(text)) => {
                out.push_str(", \"malformed_params\": ");
                write_string(text, &mut out);
            }
            Arguments::Unknown(why) => {
                out.push_str(", \"params_unknown\": ");
                write_string(why, &mut out);
            }
        }
        if let Some(success) = call.success() {
            let _ = write!(out, ", \"success\": {success}");
        }
        if call.turn > 0 {
            let _ = write!(out, ", \"turn\": {}", call.turn);
        }
        out.push('}');
    }
    out.push_str("]}");
    out
}

fn write_conversation(messages: &[Message], out: &mut String) {
    out.push('[');
    for (index, message) in messages.iter().enumerate() {
        let role = message.role.name();
        out.push_str(if index > 0 { ", {\"role\": \"" } else { "{\"role\": \"" });
        out.push_str(role);
        out.push_str("\", \"content\": ");
        write_string(&message.text(), out);
        out.push('}');
    }
    out.push(']');
}
