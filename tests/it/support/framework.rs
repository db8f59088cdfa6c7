//! The engines of Agent Test Framework V2 behind the vectors.
//!
//! Cases in standard mode are judged from what was recorded. Dialogues run through the real engine, against an agent, a
//! simulator and a validator that implement the generated service traits over an in-memory pipe, with paused time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forge::case::CaseRef;
use forge::check::framework::{Question, Replies, Reply, questions};
use forge::check::{self, Context};
use forge::conversation::{Exchange, Message, Part, Role, ToolMode};
use forge::event::{self, PartyRole, Payload};
use forge::json::Json;
use forge::peer::call::Farewells;
use forge::plan::{RunSpec, plan};
use forge::report::{Verdict, jsonl};
use forge::run::{Control, Done, Job, Room, Waiting, execute, queued, with_test_mode};
use forge::suite::source::{Param, Source};
use forge::suite::template::Data;
use forge::suite::timeout::Timeout;
use forge::suite::{self, Case, Defaults, Labels, Suite};
use forge::verdict::{CaseResult, Totals};
use forge::wire::agent as pb;
use forge::wire::agent::agent_endpoint_server::{AgentEndpoint, AgentEndpointServer};
use forge::wire::agent::invoke_response::Event;
use forge::wire::agent::simulator_server::{Simulator, SimulatorServer};
use forge::wire::agent::validator_server::{Validator, ValidatorServer};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use super::engine::{Recorded, Unanswered, fields, needed, warnings};
use super::vector::{Answer, Vector};
use crate::engine::over_a_pipe;

/// What the flags of the run say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Flags {
    timeout: Option<String>,
    simulator: Option<String>,
}

/// What a validator or a script answers.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Decision {
    Bare(bool),
    Hangs {
        hangs: bool,
    },
    Error {
        error: String,
    },
    Verdict {
        #[serde(alias = "pass")]
        passed: bool,
        #[serde(default, alias = "message")]
        reason: String,
    },
    /// An answer without a verdict.
    None {},
}

impl Decision {
    fn reply(&self) -> Reply {
        match self {
            Self::Hangs { hangs } => Reply::failed(format!("hangs: {hangs}")),
            Self::Bare(passed) => Reply::Judged { passed: *passed, reason: String::new(), opinion: None },
            Self::Error { error } => Reply::failed(error.clone()),
            Self::Verdict { passed, reason } => {
                Reply::Judged { passed: *passed, reason: reason.clone(), opinion: None }
            }
            Self::None {} => Reply::failed("its answer holds no verdict"),
        }
    }
}

type Decisions = BTreeMap<String, Decision>;

/// Reads the case of a vector as a file of one case.
fn read(vector: &Vector, flags: &Flags) -> Result<Result<Suite, String>, Unanswered> {
    let case: &RawValue = needed(vector, "case")?;
    Ok(parse(case.get(), flags))
}

fn parse(text: &str, flags: &Flags) -> Result<Suite, String> {
    let defaults = Defaults { simulator: flags.simulator.clone(), files_outside: false };
    suite::parse("vector.jsonl", text.as_bytes(), &defaults).map_err(|errors| errors.to_string())
}

fn first(suite: &Suite) -> Result<std::sync::Arc<Case>, String> {
    let first = suite.load_all().next().ok_or("the file holds no case")?;
    first.map_err(|error| error.to_string())
}

fn spec(flags: &Flags, strict: bool) -> Result<RunSpec, String> {
    let case_timeout = flags.timeout.as_deref().map(Timeout::parse).transpose()?;
    let simulator = flags.simulator.clone();
    Ok(RunSpec { strict, case_timeout, simulator, ..RunSpec::new("agent", vec!["vector.jsonl".to_owned()]) })
}

/// The line of the JSONL output.
fn line(case: &Case, result: &CaseResult) -> Result<Map<String, Value>, String> {
    let case_ref = CaseRef { suite: "vector.jsonl".into(), case_id: case.id.as_str().into(), repeat: 1, attempt: 1 };
    let labels = Labels::default();
    let line =
        jsonl::line(Verdict { case: &case_ref, name: &case.description, labels: &labels, result, tracing: None });
    let line = line.map_err(|error| error.to_string())?;
    let mut fields: Map<String, Value> = serde_json::from_str(&line).map_err(|error| format!("the line: {error}"))?;
    fields.entry("error").or_insert(Value::Null);
    fields.entry("warning").or_insert(Value::Null);
    fields.entry("assertion_errors").or_insert_with(|| json!([]));
    Ok(fields)
}

pub(crate) fn standard(vector: &Vector) -> Result<Answer, Unanswered> {
    let flags: Flags = vector.given("defaults")?.unwrap_or_default();
    let suite = match read(vector, &flags)? {
        Ok(suite) => suite,
        Err(refused) => return Ok(Answer::Refused(refused)),
    };
    let case = &*first(&suite)?;
    let recorded = Recorded { response: vector.given("response")?, failure: vector.given("failure")? };
    let spec = spec(&flags, vector.given("strict")?.unwrap_or(false))?;
    let (validators, scripts): (Decisions, Decisions) =
        (vector.given("validators")?.unwrap_or_default(), vector.given("scripts")?.unwrap_or_default());
    let mut replies = Replies::new();
    let mut asked = Vec::new();
    for (position, question) in questions(&case.claims) {
        let decision = match question {
            Question::Validator { agent, options } => {
                let told = with_test_mode(options, PartyRole::Validator, None);
                let known = validators.get(agent);
                if known.is_some() {
                    asked.push(json!({ "agent": agent, "metadata": value(told.get("metadata"))? }));
                }
                known
            }
            Question::Script { script, .. } => scripts.get(script),
        };
        replies.insert(position, decision.map_or_else(|| Reply::failed("unknown"), Decision::reply));
    }
    let result = judge(case, recorded.exchange()?, &replies, &spec, &suite);
    let mut answer = line(case, &result)?;
    let options = case.options.as_ref().map(|options| serde_json::from_str(options.as_str())).transpose();
    let options: Option<Value> = options.map_err(|error| error.to_string())?;
    answer.insert(
        "sent".to_owned(),
        json!({
            "messages": case.messages.iter().map(message_value).collect::<Vec<_>>(),
            "options": options.unwrap_or_else(|| json!({})),
        }),
    );
    answer.insert("validatorCalls".to_owned(), Value::Array(asked));
    answer.insert("agentCalled".to_owned(), Value::Bool(true));
    Ok(Answer::Fields { fields: answer, load_warnings: warnings(&suite) })
}

fn judge(case: &Case, exchange: Exchange, replies: &Replies, spec: &RunSpec, suite: &Suite) -> CaseResult {
    let timeout = spec.timeout_of(case, suite.dialect);
    let data = Data::default();
    let context = Context {
        dialect: suite.dialect,
        timeout: Some(&timeout.written),
        replies,
        strict: spec.strict,
        all_assertions: false,
        tool_mode: ToolMode::Live,
        schemas: None,
        check_arguments: false,
        data: &data,
        tokens: None,
        cost_usd: None,
        replayed: false,
    };
    check::judge(case, exchange, &context)
}

pub(crate) fn whole_suite(vector: &Vector) -> Result<Answer, Unanswered> {
    let cases: Vec<&RawValue> = needed(vector, "cases")?;
    let text: Vec<&str> = cases.iter().map(|case| case.get()).collect();
    let flags = Flags::default();
    let suite = match parse(&text.join("\n"), &flags) {
        Ok(suite) => suite,
        Err(refused) => return Ok(Answer::Refused(refused)),
    };
    let recorded: BTreeMap<String, Recorded> = needed(vector, "recorded")?;
    let spec = spec(&flags, false)?;
    let mut totals = Totals { total: u32::try_from(suite.cases.len()).unwrap_or(u32::MAX), ..Totals::default() };
    let mut statuses = Map::new();
    for case in suite.load_all() {
        let case = &*case.map_err(|error| error.to_string())?;
        let result = if case.skip {
            check::switched_off()
        } else {
            let recorded = recorded.get(&case.id).ok_or_else(|| format!("nothing is recorded of {:?}", case.id))?;
            judge(case, recorded.exchange()?, &Replies::new(), &spec, &suite)
        };
        totals.add(&result);
        statuses.insert(case.id.clone(), line(case, &result)?["status"].clone());
    }
    let summary = json!({
        "total": totals.total,
        "passed": totals.passed,
        "failed": totals.failed + totals.errored,
        "skipped": totals.skipped,
    });
    Ok(fields(&json!({ "summary": summary, "statuses": statuses }), &warnings(&suite)))
}

pub(crate) fn file(vector: &Vector) -> Result<Answer, Unanswered> {
    let text: String = needed(vector, "text")?;
    let flags: Flags = vector.given("defaults")?.unwrap_or_default();
    Ok(match parse(&text, &flags) {
        Ok(suite) => {
            let ids: Vec<&str> = suite.cases.iter().map(|case| case.id.as_str()).collect();
            fields(&json!({ "caseIds": ids }), &warnings(&suite))
        }
        Err(refused) => Answer::Refused(refused),
    })
}

pub(crate) fn duration(vector: &Vector) -> Result<Answer, Unanswered> {
    let text: String = needed(vector, "text")?;
    Ok(match Timeout::parse(&text) {
        Ok(timeout) => {
            let millis = timeout.duration.as_secs_f64() * 1000.0;
            #[expect(clippy::cast_possible_truncation, reason = "a number without fraction is compared as one")]
            let millis = if millis.fract() == 0.0 { json!(millis as i64) } else { json!(millis) };
            fields(&json!({ "milliseconds": millis, "invalid": false }), &[])
        }
        Err(_) => fields(&json!({ "invalid": true }), &[]),
    })
}

pub(crate) fn source(vector: &Vector) -> Result<Answer, Unanswered> {
    let text: String = needed(vector, "text")?;
    let (kind, value, params) = match Source::parse(&text) {
        Source::Agent { id, params } => ("agent", id, params),
        Source::Script { name, params } => ("script", name, params),
        Source::Tests(name) => ("tests", name, Vec::new()),
        Source::File(path) => ("file", path, Vec::new()),
        Source::Message(text) => ("message", text, Vec::new()),
    };
    let params = params.into_iter().map(|(key, param)| {
        let value = match param {
            Param::Number(number) => serde_json::from_str(&number).unwrap(),
            Param::Bool(value) => json!(value),
            Param::Text(text) => json!(text),
        };
        (key, value)
    });
    let params: Map<String, Value> = params.collect();
    Ok(fields(&json!({ "type": kind, "value": value, "params": params }), &[]))
}

/// What a simulator of a vector does next.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Says {
    #[serde(default)]
    input: String,
    #[serde(default)]
    goal_achieved: bool,
    #[serde(default)]
    reasoning: String,
    error: Option<String>,
    #[serde(default)]
    hangs: bool,
    #[serde(default, rename = "durationMs")]
    duration_ms: f64,
}

/// What an agent of a vector answers next.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Answers {
    #[serde(default)]
    response: String,
    #[serde(default)]
    tool_calls: Vec<Box<RawValue>>,
    #[serde(default)]
    duration_ms: f64,
    error: Option<String>,
    #[serde(default)]
    hangs: bool,
}

/// All parties of a dialogue, and what they were asked.
#[derive(Clone)]
struct Cast {
    simulator: Arc<Vec<Says>>,
    agent: Arc<Vec<Answers>>,
    validators: Arc<Decisions>,
    asked: Arc<Mutex<Asked>>,
}

#[derive(Debug, Default)]
struct Asked {
    agent: Vec<Value>,
    simulator: Vec<Value>,
    validator: Vec<Value>,
}

impl Cast {
    fn asked(&self) -> std::sync::MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The entry of a call; the last one repeats.
fn nth<T: Clone>(list: &[T], index: usize) -> Result<T, Status> {
    list.get(index).or(list.last()).cloned().ok_or_else(|| Status::internal("nothing is scripted"))
}

async fn wait(millis: f64, hangs: bool) {
    let time = if hangs { Duration::from_hours(1000) } else { Duration::from_secs_f64(millis / 1000.0) };
    tokio::time::sleep(time).await;
}

#[tonic::async_trait]
impl Simulator for Cast {
    async fn next_input(
        &self,
        request: Request<pb::NextInputRequest>,
    ) -> Result<Response<pb::NextInputResponse>, Status> {
        let request = request.into_inner();
        let options = options_value(request.options.as_ref());
        let index = {
            let mut asked = self.asked();
            asked.simulator.push(json!({
                "agent": request.context.map(|context| context.agent_id),
                "turn_number": request.turn_number,
                "max_turns": request.max_turns,
                "persona": request.persona,
                "goal": request.goal,
                "conversation": request.conversation.iter().map(wire_message).collect::<Vec<_>>(),
                "metadata": options["metadata"],
            }));
            asked.simulator.len() - 1
        };
        let says = nth(&self.simulator, index)?;
        wait(says.duration_ms, says.hangs).await;
        if let Some(error) = says.error {
            return Err(Status::internal(error));
        }
        let input = (!says.input.is_empty()).then(|| pb::Message {
            role: pb::Role::User.into(),
            parts: vec![pb::Part { content: Some(pb::part::Content::Text(says.input)) }],
            ..pb::Message::default()
        });
        let (goal_achieved, reasoning) = (says.goal_achieved, says.reasoning);
        Ok(Response::new(pb::NextInputResponse { input, goal_achieved, reasoning, ..pb::NextInputResponse::default() }))
    }
}

#[tonic::async_trait]
impl Validator for Cast {
    async fn validate(&self, request: Request<pb::ValidateRequest>) -> Result<Response<pb::ValidateResponse>, Status> {
        let request = request.into_inner();
        let agent = request.context.map(|context| context.agent_id).unwrap_or_default();
        let metadata: Map<String, Value> =
            request.metadata.iter().map(|(key, value)| (key.clone(), json_value(value))).collect();
        let tools = request.tool_calls.iter().filter_map(|call| Some(&call.started.as_ref()?.name));
        self.asked().validator.push(json!({
            "agent": agent,
            "metadata": metadata,
            "output": request.output.as_ref().map(|output| wire_message(output)["content"].clone()),
            "conversation": request.conversation.iter().map(wire_message).collect::<Vec<_>>(),
            "tools": tools.collect::<Vec<_>>(),
        }));
        if let Some(Decision::Hangs { hangs }) = self.validators.get(&agent) {
            wait(0.0, *hangs).await;
        }
        match self.validators.get(&agent).map(Decision::reply) {
            Some(Reply::Judged { passed, reason, .. }) => Ok(Response::new(pb::ValidateResponse {
                passed: Some(passed),
                reason,
                ..pb::ValidateResponse::default()
            })),
            Some(Reply::Failed { why, .. }) => Err(Status::internal(why)),
            None => Err(Status::not_found("there is no such validator")),
        }
    }
}

#[tonic::async_trait]
impl AgentEndpoint for Cast {
    async fn describe(&self, _: Request<pb::DescribeRequest>) -> Result<Response<pb::DescribeResponse>, Status> {
        Ok(Response::new(pb::DescribeResponse { revision: 1, ..pb::DescribeResponse::default() }))
    }

    type InvokeStream = ReceiverStream<Result<pb::InvokeResponse, Status>>;

    async fn invoke(
        &self,
        request: Request<Streaming<pb::InvokeRequest>>,
    ) -> Result<Response<Self::InvokeStream>, Status> {
        let mut frames = request.into_inner();
        let Some(pb::invoke_request::Frame::Start(start)) = frames.message().await?.and_then(|first| first.frame)
        else {
            return Err(Status::invalid_argument("start"));
        };
        let index = {
            let mut asked = self.asked();
            asked.agent.push(json!({
                "messages": start.messages.iter().map(wire_message).collect::<Vec<_>>(),
                "options": options_value(start.options.as_ref()),
            }));
            asked.agent.len() - 1
        };
        let answers = nth(&self.agent, index)?;
        let (sender, receiver) = mpsc::channel(100);
        tokio::spawn(async move {
            let _frames = frames;
            for (seq, event) in (1..).zip(events(&answers)) {
                if matches!(event, Event::Finished(_)) {
                    wait(answers.duration_ms, answers.hangs).await;
                }
                let response = pb::InvokeResponse { seq, elapsed: None, event: Some(event) };
                if sender.send(Ok(response)).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolRecord {
    name: String,
    success: bool,
    params: Option<Box<RawValue>>,
    result: Option<Box<RawValue>>,
    #[serde(default)]
    error: Option<String>,
}

fn events(answers: &Answers) -> Vec<Event> {
    let raw = |json: Box<RawValue>| pb::Json { form: Some(pb::json::Form::Raw(json.get().as_bytes().to_vec())) };
    let mut events = vec![Event::Accepted(pb::InvokeAccepted::default())];
    for (number, record) in answers.tool_calls.iter().enumerate() {
        let record: ToolRecord = serde_json::from_str(record.get()).expect("a record of a tool call");
        let call_id = number.to_string();
        events.push(Event::ToolStarted(pb::ToolCallStarted {
            call_id: call_id.clone(),
            name: record.name,
            params: record.params.map(raw),
            ..pb::ToolCallStarted::default()
        }));
        let outcome = if record.success {
            pb::tool_call_finished::Outcome::Result(record.result.map(raw).unwrap_or_default())
        } else {
            let message = record.error.unwrap_or_default();
            pb::tool_call_finished::Outcome::Error(pb::Fault { message, ..pb::Fault::default() })
        };
        events.push(Event::ToolFinished(pb::ToolCallFinished {
            call_id,
            outcome: Some(outcome),
            ..pb::ToolCallFinished::default()
        }));
    }
    let finished = match &answers.error {
        Some(error) => pb::InvokeFinished {
            finish_reason: pb::FinishReason::Failed.into(),
            error: Some(pb::Fault { message: error.clone(), ..pb::Fault::default() }),
            ..pb::InvokeFinished::default()
        },
        None => pb::InvokeFinished {
            finish_reason: pb::FinishReason::Completed.into(),
            response: Some(pb::Message {
                role: pb::Role::Assistant.into(),
                parts: vec![pb::Part { content: Some(pb::part::Content::Text(answers.response.clone())) }],
                ..pb::Message::default()
            }),
            ..pb::InvokeFinished::default()
        },
    };
    events.push(Event::Finished(finished));
    events
}

pub(crate) fn dynamic(vector: &Vector) -> Result<Answer, Unanswered> {
    let flags: Flags = vector.given("defaults")?.unwrap_or_default();
    let suite = match read(vector, &flags)? {
        Ok(suite) => suite,
        Err(refused) => return Ok(Answer::Refused(refused)),
    };
    let load_warnings = warnings(&suite);
    let cast = Cast {
        simulator: Arc::new(needed(vector, "simulator")?),
        agent: Arc::new(needed(vector, "agent")?),
        validators: Arc::new(vector.given("validators")?.unwrap_or_default()),
        asked: Arc::default(),
    };
    let spec = spec(&flags, false)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let case = std::sync::Arc::unwrap_or_clone(first(&suite)?);
    let result = runtime.block_on(run(suite, spec, cast.clone()))?;
    let mut answer = line(&case, &result)?;
    let asked = cast.asked();
    answer.insert("agentCalls".to_owned(), Value::Array(asked.agent.clone()));
    answer.insert("simulatorCalls".to_owned(), Value::Array(asked.simulator.clone()));
    answer.insert("validatorCalls".to_owned(), Value::Array(asked.validator.clone()));
    answer.insert("agentCalled".to_owned(), Value::Bool(!asked.agent.is_empty()));
    Ok(Answer::Fields { fields: answer, load_warnings })
}

/// Runs the one case of a suite, and gives its verdict.
async fn run(suite: Suite, spec: RunSpec, cast: Cast) -> Result<CaseResult, String> {
    let router = || {
        Server::builder()
            .add_service(AgentEndpointServer::new(cast.clone()))
            .add_service(SimulatorServer::new(cast.clone()))
            .add_service(ValidatorServer::new(cast.clone()))
    };
    let (agent, server) = over_a_pipe(router()).await;
    let plan = plan(vec![suite], Data::default(), &spec).map_err(|error| error.to_string())?;
    let mut servers = vec![server];
    let mut parties = std::collections::HashMap::new();
    for id in plan.cases.iter().flat_map(|planned| planned.head().parties.clone()) {
        let (mut party, server) = over_a_pipe(router()).await;
        party.name.clone_from(&id);
        servers.push(server);
        parties.insert(id, party);
    }
    let run =
        event::Run { created_at: jiff::Timestamp::UNIX_EPOCH, ..queued("run".to_owned(), spec, &plan, String::new()) };
    let (events, mut drafts) = Room::default().outlet(16);
    let job = Job {
        run,
        plan,
        agent,
        baselines: Vec::new(),
        registry: None,
        parties,
        scripts: None,
        snapshot: None,
        evidence: None,
        done: Done::default(),
        spans: Arc::default(),
        span_wait: Duration::from_secs(6),
    };
    let engine = tokio::spawn(execute(job, events, Farewells::default(), Control::default()));
    let mut verdict = None;
    while let Some(Waiting { draft, .. }) = drafts.recv().await {
        if let Payload::CaseFinished(result) = draft.payload {
            verdict = Some(*result);
        }
    }
    engine.await.map_err(|error| error.to_string())?;
    servers.iter().for_each(tokio::task::JoinHandle::abort);
    verdict.ok_or_else(|| "the case has no verdict".to_owned())
}

fn value(json: Option<&Json>) -> Result<Value, String> {
    let text = json.map_or_else(|| "null".to_owned(), Json::stringify);
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

/// A message as a file writes it.
fn message_value(message: &Message) -> Value {
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let content = match message.parts.as_slice() {
        [Part::Text(text)] => json!(text),
        parts => parts
            .iter()
            .map(|part| match part {
                Part::Text(text) | Part::Reasoning(text) => json!({ "type": "text", "text": text }),
                Part::Data(data) => serde_json::from_str(data.as_str()).unwrap_or_default(),
                Part::Blob(blob) => blob
                    .written
                    .as_ref()
                    .and_then(|written| serde_json::from_str(written.as_str()).ok())
                    .unwrap_or_default(),
            })
            .collect(),
    };
    json!({ "role": role, "content": content })
}

/// A message as it came over the wire.
fn wire_message(message: &pb::Message) -> Value {
    message_value(&forge::wire::call::message_from_proto(message.clone()))
}

/// The options as they came over the wire, in one object again.
fn options_value(options: Option<&pb::Options>) -> Value {
    let Some(options) = options else { return json!({}) };
    let mut object = Map::new();
    object.extend(options.connector.clone().map(|text| ("connector".to_owned(), json!(text))));
    object.extend(options.mode.clone().map(|text| ("mode".to_owned(), json!(text))));
    object.extend(options.search.as_ref().map(|json| ("search".to_owned(), json_value(json))));
    object.extend(options.skip.as_ref().map(|json| ("skip".to_owned(), json_value(json))));
    let all = |members: &std::collections::HashMap<String, pb::Json>| -> Map<String, Value> {
        members.iter().map(|(key, json)| (key.clone(), json_value(json))).collect()
    };
    if !options.metadata.is_empty() {
        object.insert("metadata".to_owned(), Value::Object(all(&options.metadata)));
    }
    object.extend(all(&options.extra));
    Value::Object(object)
}

fn json_value(json: &pb::Json) -> Value {
    match &json.form {
        Some(pb::json::Form::Raw(raw)) => serde_json::from_slice(raw).unwrap_or_default(),
        _ => Value::Null,
    }
}
