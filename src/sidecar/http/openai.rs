//! `forge-sidecar openai`: an agent made of a model and tools. The model, behind a chat completions API, chooses; its
//! tool calls are answered by the daemon's stubs or by an executor, or are only announced; and the loop goes on until
//! the model answers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::Method;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use super::Adapter;
use super::address::HttpUrl;
use super::call::{Ear, Heard, Wants, ask, refusal, trouble_of_the_set_up};
use super::client::HttpClient;
use super::endpoint::{Body, Endpoint, EndpointError};
use super::preset::{Preset, StreamReader};
use super::question::Question;
use super::told::{Summary, Unusable};
use super::tools::Tools;
use crate::peer::status::{AGENT_MISCONFIGURED, AGENT_UNREACHABLE, CASE_UNSUPPORTED};
use crate::sidecar::attachments::MAX_FILE_BYTES;
use crate::sidecar::process::Program;
use crate::sidecar::rules::with_reason;
use crate::sidecar::service::{self, ATTACHED_FILES, Agent, ROUTING, STUBS, ServeError};
use crate::sidecar::turn::{Answer, End, Turn, Wanted, broken_tool, text_for_model, worked};
use crate::wire::agent::tool_call_finished::Outcome;
use crate::wire::agent::{AgentCard, FaultOrigin, InvokeStart, Json, Limits, ModelTurn, json as form};

/// What is sent, by its keys, each value as it was written.
type Document = BTreeMap<String, Box<RawValue>>;
type Messages = Vec<Box<RawValue>>;

/// Most bytes of what an executor answers.
const MAX_RESULT_BYTES: usize = 4 << 20;

/// A model with tools, as an agent.
#[derive(Debug)]
pub struct Model {
    adapter: Adapter,
    tools: Tools,
    system: Option<String>,
    executor: Executor,
    max_turns: u32,
}

/// What people say of a model besides its address.
#[derive(Debug)]
pub struct Settings {
    /// The name of the model.
    pub model: String,
    /// Whether answers come as streams.
    pub stream: bool,
    /// What is sent besides.
    pub body: Option<Body>,
    /// Headers.
    pub header: Vec<super::address::RequestHeader>,
    /// Most time for one request, and for one tool.
    pub timeout: Duration,
    /// A file with tools.
    pub tools: Option<PathBuf>,
    /// A file with what the system says.
    pub system: Option<PathBuf>,
    /// A command that runs tools.
    pub exec_command: Option<String>,
    /// An address that runs tools.
    pub exec_http: Option<HttpUrl>,
    /// The agent's own limit.
    pub max_turns: u32,
    /// The id on the card.
    pub agent_id: Option<String>,
}

/// What runs the tools of a call that has no stubs.
#[derive(Debug)]
enum Executor {
    Nobody,
    Command(Program),
    Http(Box<HttpClient>),
}

/// Why there is no such agent.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The endpoint.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// A file.
    #[error("{0}")]
    File(String),
}

impl Model {
    /// A model at `url`.
    ///
    /// # Errors
    /// When settings do not go together, or a file cannot be read.
    pub fn new(url: HttpUrl, settings: Settings) -> Result<Self, ModelError> {
        let Settings {
            model,
            stream,
            body,
            header,
            timeout,
            tools,
            system,
            exec_command,
            exec_http,
            max_turns,
            agent_id,
        } = settings;
        let endpoint = Endpoint {
            preset: Some(Preset::OpenAiChat),
            model: Some(model),
            stream,
            body,
            header,
            timeout: Some(timeout),
            ..Endpoint::default()
        };
        let mut adapter = endpoint.adapter(url)?;
        if let Some(agent_id) = agent_id {
            adapter.agent_id = agent_id;
        }
        let read = |path: &PathBuf| {
            let cannot = |error| ModelError::File(format!("cannot read {}: {error}", path.display()));
            std::fs::read_to_string(path).map_err(cannot)
        };
        let system = system.as_ref().map(read).transpose()?;
        let tools = match &tools {
            None => Tools::default(),
            Some(path) => Tools::parse(&path.display().to_string(), &read(path)?).map_err(ModelError::File)?,
        };
        let executor = match (exec_command, exec_http) {
            (Some(command), _) => Executor::Command(Program::of_shell(&command)),
            (None, Some(url)) => Executor::Http(Box::new(HttpClient::new(url, &[]).map_err(EndpointError::from)?)),
            (None, None) => Executor::Nobody,
        };
        Ok(Self { adapter, tools, system, executor, max_turns })
    }

    async fn describe(&self) -> Result<AgentCard, Status> {
        let Adapter { client, shape, agent_id, .. } = &self.adapter;
        client.probe().await.map_err(|why| with_reason(Code::Unavailable, AGENT_UNREACHABLE, &why))?;
        Ok(AgentCard {
            agent_id: agent_id.clone(),
            // Nobody can ask it.
            version: "unknown".to_owned(),
            description: format!("a model at {} that chooses among {} tools", client.url(), self.tools.len()),
            provider_name: Preset::OpenAiChat.provider().to_owned(),
            model: shape.model_name().unwrap_or_default(),
            tools: self.tools.specs(),
            ..AgentCard::default()
        })
    }

    /// The loop: the model is asked, its tools are run, and it is told what came of them, until it calls none.
    async fn answer(&self, turn: &Turn) -> Result<Answer, End> {
        let (mut document, mut messages) = self.question(turn)?;
        loop {
            let index = turn.begin_model_turn(Some(self.max_turns))?;
            document.insert("messages".to_owned(), raw(&messages)?);
            let body = serde_json::to_vec(&document).map_err(|error| unsendable(&error.to_string()))?;
            let begun = Instant::now();
            let (summary, Wants { text, calls }) = self.ask(turn, body.into()).await?;
            let Summary { reason, turn: record, warnings, .. } = summary;
            turn.warn(warnings);
            let duration = Some(crate::wire::value::duration_to_proto(begun.elapsed()));
            turn.end_model_turn(ModelTurn { index, duration, ..record }).await;
            if calls.is_empty() {
                return Ok(Answer { text: Some(text), reason });
            }
            // A model that gives no id is told one, by which it finds the result.
            let ids: Vec<String> = (1..).zip(&calls).map(|(n, call)| id_of(call, index, n)).collect();
            messages.push(raw(&asked_for(&text, &calls, &ids))?);
            let outcomes = turn.run_all(calls, |wanted| self.run(turn, wanted)).await?;
            for (id, outcome) in ids.iter().zip(&outcomes) {
                messages.push(raw(&json!({"role": "tool", "tool_call_id": id, "content": text_for_model(outcome)}))?);
            }
        }
    }

    /// What is sent at first: all of it but the conversation, and that.
    fn question(&self, turn: &Turn) -> Result<(Document, Messages), End> {
        let unsupported = |why: &str| {
            let why = format!("{} is not asked: {why}", self.adapter.client.url());
            End::Broken(with_reason(Code::FailedPrecondition, CASE_UNSUPPORTED, &why))
        };
        let is_live = turn.mode() == crate::wire::agent::ToolMode::Live;
        if is_live && !self.tools.is_empty() && matches!(self.executor, Executor::Nobody) {
            return Err(unsupported(
                "nobody runs its tools: the sidecar needs --exec-command or --exec-http, or the case needs stubs or --tools routing-only",
            ));
        }
        // Turns are counted here.
        let start = InvokeStart { max_model_turns: None, ..turn.start().clone() };
        let question = self.adapter.shape.question(&start, turn.attachments()).map_err(|why| unsupported(&why))?;
        let Question { body, .. } = question;
        let mut document: Document = serde_json::from_slice(&body).map_err(|error| unsendable(&error.to_string()))?;
        let messages = document.remove("messages").unwrap_or_default();
        let mut messages: Messages =
            serde_json::from_str(messages.get()).map_err(|error| unsendable(&error.to_string()))?;
        if let Some(system) = &self.system {
            messages.insert(0, raw(&json!({"role": "system", "content": system}))?);
        }
        if !self.tools.is_empty() {
            document.insert("tools".to_owned(), raw(&self.tools.as_sent())?);
        }
        Ok((document, messages))
    }

    /// Asks the model once, reports what it says, and gives what it wants.
    async fn ask(&self, turn: &Turn, body: Bytes) -> Result<(Summary, Wants), End> {
        let Adapter { client, shape, .. } = &self.adapter;
        let mut ear = Ear { turn, wants: Some(Wants::default()) };
        let summary = match ask(&self.adapter, &mut ear, body).await? {
            Heard::Stream(summary) => summary.map_err(|why| refusal(client, reqwest::StatusCode::OK, why, None))?,
            Heard::Whole(reply) if !reply.status.is_success() => return Err(trouble(client, &reply)),
            Heard::Whole(reply) => {
                let bad = |why| refusal(client, reply.status, why, Some(&reply.body));
                let text = std::str::from_utf8(&reply.body);
                let text = text.map_err(|error| bad(Unusable::Bad(format!("not UTF-8 ({error})"))))?;
                let mut reader = StreamReader::OpenAiChat(super::openai_chat::Reader::default());
                reader.account().caller_runs_tools = true;
                reader.take(text).map_err(bad)?;
                reader.take("[DONE]").map_err(bad)?;
                if shape.streams {
                    let odd = "it was asked for a stream (--stream) and answered all at once";
                    reader.account().warnings.push(odd.to_owned());
                }
                let summary = reader.account().close();
                for told in reader.account().take() {
                    ear.tell(told).await?;
                }
                summary
            }
        };
        Ok((summary, ear.wants.unwrap_or_default()))
    }

    /// Runs a tool.
    async fn run(&self, turn: &Turn, wanted: Wanted) -> Outcome {
        let Wanted { name, params, .. } = wanted;
        if !self.tools.has(&name) {
            return broken_tool(format!("there is no tool {name}"));
        }
        let arguments = match params {
            Ok(Json { form: None }) => "{}".to_owned(),
            Ok(Json { form: Some(form::Form::Raw(text)) }) => String::from_utf8_lossy(&text).into_owned(),
            Ok(_) | Err(_) => String::new(),
        };
        let Ok(arguments) = RawValue::from_string(arguments) else { return no_object(&name) };
        if !arguments.get().starts_with('{') {
            return no_object(&name);
        }
        let Ok(question) = serde_json::to_vec(&Execute { name: &name, arguments: &arguments }) else {
            return no_object(&name);
        };
        let ran = async {
            match &self.executor {
                Executor::Nobody => Err("nobody runs tools here".to_owned()),
                Executor::Command(program) => {
                    program.ask(&question, std::future::ready(())).await.map_err(|why| why.to_string())
                }
                Executor::Http(client) => run_over_http(client, turn, question).await,
            }
        };
        match tokio::time::timeout(self.adapter.timeout, ran).await {
            Ok(Ok(output)) => result(&output),
            Ok(Err(why)) => broken_tool(why),
            Err(_) => {
                let time = humantime::format_duration(self.adapter.timeout);
                broken_tool(format!("{name} gave no result within {time} (--timeout)"))
            }
        }
    }
}

/// What an executor is asked.
#[derive(serde::Serialize)]
struct Execute<'a> {
    name: &'a str,
    arguments: &'a RawValue,
}

async fn run_over_http(client: &HttpClient, turn: &Turn, question: Vec<u8>) -> Result<Vec<u8>, String> {
    let connected = CancellationToken::new();
    let body = Some(question.into());
    let reply = client.exchange(Method::POST, body, &turn.trace(), MAX_RESULT_BYTES, &connected).await;
    let reply = reply.map_err(|why| why.to_string())?;
    if reply.status.is_success() { Ok(reply.body) } else { Err(client.refusal(&reply)) }
}

/// What a tool returned: JSON as it is, any other text as a text.
fn result(output: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(output);
    match serde_json::from_str::<&RawValue>(text.trim()) {
        Ok(json) => worked(json.get()),
        Err(_) => worked(Value::String(text.trim_end_matches(['\r', '\n']).to_owned()).to_string()),
    }
}

fn no_object(name: &str) -> Outcome {
    broken_tool(format!("the arguments of {name} are no JSON object"))
}

/// The message by which a model has asked for tools.
fn asked_for(text: &str, calls: &[Wanted], ids: &[String]) -> Value {
    let call = |(call, id): (&Wanted, &String)| {
        let arguments = match &call.params {
            Ok(Json { form: Some(form::Form::Raw(text) | form::Form::Malformed(text)) }) => {
                String::from_utf8_lossy(text).into_owned()
            }
            Ok(_) | Err(_) => "{}".to_owned(),
        };
        json!({"id": id, "type": "function", "function": {"name": call.name, "arguments": arguments}})
    };
    let content = if text.is_empty() { Value::Null } else { text.into() };
    let calls: Vec<Value> = calls.iter().zip(ids).map(call).collect();
    json!({"role": "assistant", "content": content, "tool_calls": calls})
}

fn id_of(call: &Wanted, turn: u32, number: u32) -> String {
    if call.id.is_empty() { format!("call_{turn}_{number}") } else { call.id.clone() }
}

/// What an answer says that is no success: of the set-up, or of the model's service, which may take the call later.
fn trouble(client: &HttpClient, reply: &super::client::Reply) -> End {
    let message = client.refusal(reply);
    if let Some(hint) = trouble_of_the_set_up(reply.status, Preset::OpenAiChat) {
        return End::Broken(with_reason(Code::FailedPrecondition, AGENT_MISCONFIGURED, &format!("{message} ({hint})")));
    }
    let (code, may_work_later) = match reply.status.as_u16() {
        429 => (Code::ResourceExhausted, true),
        408 | 500..=599 => (Code::Unavailable, true),
        _ => (Code::Unknown, false),
    };
    match End::fault(FaultOrigin::Model, code, "HTTP_STATUS", message) {
        End::Failed(mut fault) => {
            fault.retryable = may_work_later;
            End::Failed(fault)
        }
        end => end,
    }
}

fn raw(value: &impl serde::Serialize) -> Result<Box<RawValue>, End> {
    to_raw_value(value).map_err(|error| unsendable(&error.to_string()))
}

fn unsendable(why: &str) -> End {
    End::failed(Code::Internal, "CANNOT_ASK", format!("what the model is asked is no JSON object: {why}"))
}

/// Serves the model as an agent until `shutdown` is cancelled.
///
/// # Errors
/// When the server gives up.
pub async fn serve(listener: TcpListener, model: Model, shutdown: CancellationToken) -> Result<(), ServeError> {
    let limits =
        Limits { max_attachment_bytes: i64::try_from(MAX_FILE_BYTES).unwrap_or(i64::MAX), ..Limits::default() };
    let model = Arc::new(model);
    let of = Arc::clone(&model);
    let describe = move || {
        let model = Arc::clone(&of);
        async move { model.describe().await }
    };
    let agent = Agent::new(&[STUBS, ROUTING, "text.delta", ATTACHED_FILES], limits, describe, move |turn| {
        let model = Arc::clone(&model);
        async move { model.answer(&turn).await }
    });
    service::serve(listener, agent, shutdown).await
}
