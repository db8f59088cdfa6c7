//! Does what scripts ask for: calls agents, and has validators judge.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;
use uuid::Uuid;

use super::MAX_ANSWER;
use super::wanted::{Process, Wanted, agent_of, is_given};
use crate::case::CaseRef;
use crate::check::describe;
use crate::check::framework::Reply;
use crate::conversation::{Exchange, Failure, Invocation, Message, ToolMode, Transcript};
use crate::event::Payload;
use crate::json::{Json, Value};
use crate::peer::agent::{Agent, DescribeError};
use crate::peer::party::Belongs;
use crate::run::call::{Call, call};
use crate::run::clock::Clock;
use crate::run::dynamic::MAX_RECORD;
use crate::run::judging::{Cost, judged};
use crate::run::replay::Evidence;
use crate::run::shared::{Callee, NoParty, RunScripts, Shared};
use crate::run::told::ToolCallJson;
use crate::run::validator::validator;
use crate::script::pool::{self, Called, Step};
use crate::script::wire::{Answer, Ask, Asked, Refusal};
use crate::suite::framework::message_json;
use crate::usage::{add_cost, must_estimate};
use crate::verdict::{Blame, Turn, whole_millis};
use crate::work::{Undecided, in_place};

/// Most things that one call of a script may ask for.
const MAX_ASKED: u32 = 1_000;
/// Time to reach an agent that only a script names.
const PATIENCE: Duration = Duration::from_secs(3);

/// What a script is told of an answer.
#[derive(Serialize)]
struct Response<'a> {
    content: &'a str,
    tool_calls: Vec<ToolCallJson<'a>>,
    messages: Vec<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    duration_ms: u64,
}

#[derive(Serialize)]
struct Usage {
    #[serde(skip_serializing_if = "Option::is_none")]
    input_tokens: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_tokens: Option<i64>,
}

/// What a validator said, as a script is told.
#[derive(Serialize)]
struct Opinion<'a> {
    passed: bool,
    reason: &'a str,
    score: Option<f64>,
    /// Its place among the replies.
    asked: usize,
}

/// Why a script cannot call an agent.
#[derive(Debug, thiserror::Error)]
enum NoCallee {
    /// Nobody has that name.
    #[error("{why}; this run tests {tested:?}, and --agent {id}=URL names another")]
    Unknown {
        id: String,
        tested: String,
        #[source]
        why: NoParty,
    },
    /// It does not say who it is. That is a failed call.
    #[error("agent {id:?}: {why}")]
    Undescribed {
        id: String,
        #[source]
        why: DescribeError,
    },
}

/// Serves one call of a script.
pub(super) struct Host<'a> {
    shared: &'a Shared,
    case: &'a CaseRef,
    /// Time of the whole call.
    budget: Duration,
    deadline: Instant,
    /// The id of the first call of an agent, if the log announced one.
    invocation_id: Option<String>,
    conversation_id: String,
    asked: u32,
    /// What was said before the last answer.
    conversation: Vec<Message>,
    /// The last answer and the calls on the way to it.
    last: Transcript,
    /// Bytes of the agents' answers and tool calls.
    bytes: usize,
    /// Everything that agents said and did.
    pub(super) transcript: Transcript,
    pub(super) turns: Vec<Turn>,
    pub(super) warnings: Vec<String>,
    /// Failed calls of agents; scripts know them by their places.
    pub(super) failures: Vec<Failure>,
    /// How long spans were waited for in the call that is being served.
    waited: Duration,
    /// Why the first thing was not done that makes no sense.
    pub(super) refused: Option<String>,
    /// What validators said.
    pub(super) replies: Vec<Reply>,
    /// Who took the time.
    pub(super) clock: Clock,
    is_last_failed: bool,
    /// Who was asked last.
    pub(super) holder: Blame,
}

impl<'a> Host<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        case: &'a CaseRef,
        budget: Duration,
        deadline: Instant,
        invocation_id: Option<String>,
    ) -> Self {
        Self {
            shared,
            case,
            budget,
            deadline,
            invocation_id,
            conversation_id: Uuid::new_v4().to_string(),
            asked: 0,
            conversation: Vec::new(),
            last: Transcript::default(),
            bytes: 0,
            transcript: Transcript::default(),
            turns: Vec::new(),
            warnings: Vec::new(),
            failures: Vec::new(),
            waited: Duration::ZERO,
            refused: None,
            replies: Vec::new(),
            clock: Clock::default(),
            is_last_failed: false,
            holder: Blame::Script,
        }
    }

    /// Calls a function of a script and does what it asks for until it ends.
    pub(super) async fn run(&mut self, scripts: &RunScripts, called: pool::FunctionCall<'_>) -> Called {
        let began = Instant::now();
        let (mut session, mut step) = match scripts.pool.begin(called).await {
            Ok(begun) => begun,
            Err(called) => return called,
        };
        let waited = session.take_waited();
        self.deadline += waited;
        self.clock.add(Blame::Script, began.elapsed().saturating_sub(waited));
        loop {
            let asked = match step {
                Step::Ended(called) => return called,
                Step::Asked(asked) => asked,
            };
            self.holder = if asked.what == Ask::Process { Blame::Agent } else { Blame::Validator };
            let began = Instant::now();
            let answer = self.serve(&asked).await;
            if let Err(Refusal { message, call: None }) = &answer {
                self.refused.get_or_insert_with(|| message.clone());
            }
            let waited = std::mem::take(&mut self.waited);
            self.clock.add(self.holder, began.elapsed().saturating_sub(waited));
            session.take_more_time(waited);
            let began = Instant::now();
            step = session.answer(&Answer(answer)).await;
            let waited = session.take_waited();
            self.deadline += waited;
            self.clock.add(Blame::Script, began.elapsed().saturating_sub(waited));
            if Instant::now() < self.deadline {
                self.holder = Blame::Script;
            }
        }
    }

    /// When its time is up: what is waited for places or spans is added.
    pub(super) const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The conversation that all its calls belong to.
    pub(super) fn conversation_id(&self) -> &str {
        &self.conversation_id
    }

    async fn serve(&mut self, asked: &Asked) -> Result<Box<RawValue>, Refusal> {
        self.asked += 1;
        self.is_last_failed = false;
        if self.asked > MAX_ASKED {
            return Err(refusal(format!("it asked for more than {MAX_ASKED} things")));
        }
        if asked.arguments.get().len() > MAX_ANSWER {
            return Err(refusal(format!("it asks with more than {MAX_ANSWER} bytes")));
        }
        let (text, what) = (asked.arguments.get().to_owned(), asked.what);
        let (cost, connector) = (Cost::of_text(text.len()), self.shared.spec.connector.clone());
        let read = judged(self.shared, cost, move || Wanted::read(&text, what, connector)).await;
        let wanted = match read {
            Ok(read) => read,
            Err(Undecided::Stopped) => return Err(self.failed(Failure::Cancelled)),
            Err(why) => return Err(refusal(why.to_string())),
        };
        match wanted {
            Wanted::Process(name, asked) => self.process(&name, asked).await,
            Wanted::Validator(arguments) => self.validator(&arguments).await,
            // No script can ask for it: this one has broken out of its engine.
            Wanted::File => Err(refusal("there are no files")),
        }
    }

    /// `Process("agents.ID.Stream", ctx, messages, options)`.
    async fn process(&mut self, name: &str, asked: Result<Process, String>) -> Result<Box<RawValue>, Refusal> {
        let id = match agent_of(name) {
            Ok(id) => id,
            Err(why) => return Err(refusal(why)),
        };
        let Process { messages, options, stubs, max_turns } = match asked {
            Ok(asked) => asked,
            Err(why) => return Err(refusal(format!("{name}: {why}"))),
        };
        let callee = match self.callee(id).await {
            Ok(callee) => callee,
            Err(why @ NoCallee::Undescribed { .. }) => return Err(self.failed(Failure::Unreachable(why.to_string()))),
            Err(why) => return Err(refusal(format!("{name}: {why}"))),
        };
        let tool_mode = if stubs.is_some() { ToolMode::Stub } else { self.shared.spec.tool_mode };
        if let Some(capability) = callee.lacks(tool_mode) {
            let why = format!("the agent does not declare the capability {capability:?}, which this call needs");
            return Err(self.failed(Failure::Suite(why)));
        }
        let turn = u32::try_from(self.turns.len() + self.failures.len() + 1).unwrap_or(u32::MAX);
        let invocation = Invocation {
            agent_id: callee.agent_id(),
            run_id: self.shared.run_id.clone(),
            case: self.case.clone(),
            turn,
            invocation_id: self.invocation_id.take().unwrap_or_else(|| Uuid::new_v4().to_string()),
            conversation_id: self.conversation_id.clone(),
            messages,
            options,
            tool_mode,
            max_model_turns: stubs.is_some().then_some(max_turns),
            budget: self.budget,
        };
        let messages = invocation.messages.clone();
        let asked = Call {
            shared: self.shared,
            callee: &callee,
            case: self.case,
            invocation,
            stubs: stubs.as_deref(),
            deadline: self.deadline,
        };
        let Exchange { mut transcript, failure, warnings, model, waited, .. } = call(asked).await;
        // Spans that were waited for are nobody's time.
        self.deadline += waited;
        self.waited += waited;
        self.warnings.extend(warnings);
        self.bytes += transcript.size();
        let too_long = || Failure::Protocol(format!("its answers and tool calls have more than {MAX_RECORD} bytes"));
        if let Some(failure) = failure.or_else(|| (self.bytes > MAX_RECORD).then(too_long)) {
            return Err(self.failed(failure));
        }
        // An estimate takes time that is not a runtime thread's to give, and nothing here asserts on it.
        if let Some(price) = self.shared.price(model.as_deref()).filter(|_| !must_estimate(&transcript)) {
            add_cost(&mut transcript, &messages, price);
        }
        let said = Turn {
            number: turn,
            input: messages.last().map(Message::text).unwrap_or_default(),
            output: transcript.response.clone(),
            commentary: transcript.commentary.clone(),
            reasoning: String::new(),
        };
        self.shared.journal.case(self.case, turn, Payload::TurnFinished(said.clone())).await;
        self.turns.push(said);
        let answer = in_place(self.bytes, || answered(&transcript, &messages));
        self.transcript.response.clone_from(&transcript.response);
        self.transcript.commentary.clone_from(&transcript.commentary);
        self.transcript.tool_calls.extend(transcript.tool_calls.iter().cloned());
        self.transcript.open_end = self.transcript.open_end.take().or_else(|| transcript.open_end.clone());
        if let Some(usage) = &transcript.usage {
            self.transcript.usage.get_or_insert_default().add(usage);
        }
        (self.conversation, self.last) = (messages, transcript);
        answer.map_err(|error| refusal(format!("the answer cannot be written: {error}")))
    }

    /// The agent of that id: the one under test, else one that the run or the daemon knows.
    async fn callee(&self, id: &str) -> Result<Arc<Callee>, NoCallee> {
        let tested = &self.shared.callee;
        let names = [tested.agent.name.as_str(), tested.description.card.agent_id.as_str()];
        // As with tools, a name space may be left out.
        let is_named = |name: &str| name.strip_suffix(id).is_some_and(|before| before.ends_with('.'));
        let others_have_it = || self.shared.party(id).is_ok();
        if names.contains(&id) || (names.into_iter().any(is_named) && !others_have_it()) {
            return Ok(Arc::new(tested.clone()));
        }
        let others = || self.shared.others.lock();
        if let Some(callee) = others().get(id) {
            return Ok(Arc::clone(callee));
        }
        if self.shared.evidence.is_some() {
            // Nobody is called.
            return Ok(Arc::new(Callee::new(Agent::nobody(id), Evidence::somebody(), &self.shared.spec)));
        }
        let agent = self.shared.party(id).map_err(|why| NoCallee::Unknown {
            why,
            id: id.to_owned(),
            tested: tested.agent.name.clone(),
        })?;
        let patience = PATIENCE.min(self.deadline.saturating_duration_since(Instant::now()));
        let described = agent.describe(patience).await;
        let (description, _) = described.map_err(|why| NoCallee::Undescribed { id: id.to_owned(), why })?;
        let callee = Arc::new(Callee::new(agent, description, &self.shared.spec));
        others().insert(id.to_owned(), Arc::clone(&callee));
        Ok(callee)
    }

    /// The failure of the last call, if nothing was asked since.
    pub(super) fn last_failure(&self) -> Option<&Failure> {
        self.failures.last().filter(|_| self.is_last_failed)
    }

    fn failed(&mut self, failure: Failure) -> Refusal {
        self.is_last_failed = true;
        let (.., message) = describe(failure.clone(), None);
        self.failures.push(failure);
        Refusal { message, call: u32::try_from(self.failures.len() - 1).ok() }
    }

    /// `t.assert.Agent(response, id, options)`.
    async fn validator(&mut self, arguments: &[Json]) -> Result<Box<RawValue>, Refusal> {
        let text = |position: usize| arguments.get(position).and_then(Json::as_str).unwrap_or_default();
        let (response, id) = (text(0), text(1));
        let id = id.strip_prefix("agents:").unwrap_or(id);
        let options = arguments.get(2).cloned().unwrap_or(Json { line: 0, value: Value::Object(Vec::new()) });
        if !matches!(options.value, Value::Object(_)) {
            return Err(refusal("t.assert.Agent: the options must be an object, such as { metadata: { criteria } }"));
        }
        // What stands there alone is meant for the validator.
        let options = match options.get("metadata").filter(|metadata| is_given(metadata)) {
            Some(_) => options,
            None => Json { line: 0, value: Value::Object(vec![("metadata".to_owned(), options)]) },
        };
        // That of the last call, whatever came of it.
        let turn = u32::try_from(self.turns.len() + self.failures.len()).unwrap_or(u32::MAX);
        let Shared { run_id, outputs, .. } = self.shared;
        let belongs = Belongs::to_case(run_id, self.case, turn, self.deadline, outputs);
        let transcript = Transcript { response: response.to_owned(), ..self.last.clone() };
        let reply = validator(self.shared, id, Some(&options), &self.conversation, &transcript, &belongs).await;
        if self.shared.control.cancel.is_cancelled() {
            // Whatever the script makes of it, it says nothing: neither of the agent nor of the validator.
            return Err(self.failed(Failure::Cancelled));
        }
        let asked = self.replies.len();
        let answer = match &reply {
            Reply::Judged { passed, reason, opinion } => {
                let said = format!("the validator {id:?} says no");
                let reason = if reason.is_empty() { &said } else { reason };
                let score = opinion.as_ref().and_then(|opinion| opinion.score);
                to_raw_value(&Opinion { passed: *passed, reason, score, asked })
            }
            Reply::Failed { why, .. } => {
                let reason = &format!("the validator {id:?} failed: {why}");
                to_raw_value(&Opinion { passed: false, reason, score: None, asked })
            }
        };
        self.replies.push(reply);
        answer.map_err(|error| refusal(error.to_string()))
    }
}

fn refusal(message: impl Into<String>) -> Refusal {
    Refusal { message: message.into(), call: None }
}

/// An answer as a script is told.
fn answered(transcript: &Transcript, messages: &[Message]) -> Result<Box<RawValue>, serde_json::Error> {
    let answer = Message::assistant(transcript.response.as_str());
    let messages = messages.iter().chain([&answer]);
    to_raw_value(&Response {
        content: &transcript.response,
        tool_calls: transcript.tool_calls.iter().map(ToolCallJson::of).collect(),
        messages: messages.filter_map(|message| RawValue::from_string(message_json(message)).ok()).collect(),
        usage: transcript
            .usage
            .as_ref()
            .map(|usage| Usage { input_tokens: usage.input_tokens, output_tokens: usage.output_tokens }),
        duration_ms: whole_millis(transcript.duration),
    })
}
