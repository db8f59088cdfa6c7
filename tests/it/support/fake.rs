//! An agent that answers as a test says, by a real server: it may also judge, play the user and write cases.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forge::wire::agent as pb;
use forge::wire::agent::agent_endpoint_server::{AgentEndpoint, AgentEndpointServer};
use forge::wire::agent::generator_server::{Generator, GeneratorServer};
use forge::wire::agent::invoke_request::Frame;
use forge::wire::agent::invoke_response::Event;
use forge::wire::agent::part::Content;
use forge::wire::agent::validator_server::{Validator, ValidatorServer};
use tokio::runtime::Runtime;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

type Answer = dyn Fn(&Asked) -> Result<String, Status> + Send + Sync;
type Judge = dyn Fn(u32) -> Result<pb::ValidateResponse, Status> + Send + Sync;
type Events = dyn Fn(&Asked) -> Vec<Event> + Send + Sync;
type Write = dyn Fn(&pb::GenerateRequest) -> Written + Send + Sync;

/// The messages of a generator, and how its stream ends.
pub(crate) type Written = (Vec<pb::GenerateResponse>, Result<(), Status>);

/// One call of the agent.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) case: String,
    /// Text of the last message.
    pub(crate) text: String,
    /// Metadata of the options: key and JSON text.
    pub(crate) metadata: HashMap<String, String>,
    /// How often the case was asked before.
    pub(crate) before: u32,
    /// The trace in the body, and the `traceparent` in the metadata.
    pub(crate) trace: (HashMap<String, String>, String),
}

/// An agent that is there until it goes out of scope.
pub(crate) struct Fake {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    judged: Arc<Mutex<u32>>,
    _runtime: Runtime,
}

/// What a [`Fake`] does.
#[derive(Clone)]
pub(crate) struct Script {
    answer: Arc<Answer>,
    judge: Option<Arc<Judge>>,
    /// How long it judges.
    ponders: Duration,
    write: Option<Arc<Write>>,
    asked: Arc<Mutex<Vec<Asked>>>,
    judged: Arc<Mutex<u32>>,
    /// What it can do; one whose spans are evidence has flushed them when it answers.
    capabilities: Vec<String>,
    /// The events between `accepted` and `finished`.
    events: Option<Arc<Events>>,
}

impl Script {
    pub(crate) fn new(answer: impl Fn(&Asked) -> Result<String, Status> + Send + Sync + 'static) -> Self {
        Self {
            answer: Arc::new(answer),
            judge: None,
            ponders: Duration::ZERO,
            write: None,
            asked: Arc::default(),
            judged: Arc::default(),
            capabilities: Vec::new(),
            events: None,
        }
    }

    /// Declares what it can do.
    pub(crate) fn able(self, capabilities: &[&str]) -> Self {
        Self { capabilities: capabilities.iter().map(|it| (*it).to_owned()).collect(), ..self }
    }

    /// Says what else happens in a call; where nothing is answered then, what it said is its answer.
    pub(crate) fn doing(self, events: impl Fn(&Asked) -> Vec<Event> + Send + Sync + 'static) -> Self {
        Self { events: Some(Arc::new(events)), ..self }
    }

    /// Says what is judged; it is told how often it was asked before.
    pub(crate) fn judging(
        self,
        judge: impl Fn(u32) -> Result<pb::ValidateResponse, Status> + Send + Sync + 'static,
    ) -> Self {
        Self { judge: Some(Arc::new(judge)), ..self }
    }

    /// Takes so long to judge.
    pub(crate) fn pondering(self, ponders: Duration) -> Self {
        Self { ponders, ..self }
    }

    /// Says which messages a generator sends.
    pub(crate) fn writing(self, write: impl Fn(&pb::GenerateRequest) -> Written + Send + Sync + 'static) -> Self {
        Self { write: Some(Arc::new(write)), ..self }
    }

    pub(crate) fn start(self) -> Fake {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("an address");
        let (asked, judged) = (Arc::clone(&self.asked), Arc::clone(&self.judged));
        let server = tonic::transport::Server::builder()
            .add_service(AgentEndpointServer::new(self.clone()))
            .add_optional_service(self.judge.is_some().then(|| ValidatorServer::new(self.clone())))
            .add_optional_service(self.write.is_some().then(|| GeneratorServer::new(self)));
        runtime.spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Fake { url: format!("grpc://{address}"), asked, judged, _runtime: runtime }
    }
}

impl Fake {
    /// Every call of the agent so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often it was asked for a verdict so far.
    pub(crate) fn judged(&self) -> u32 {
        *self.judged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn text_of(message: Option<&pb::Message>) -> String {
    let parts = message.into_iter().flat_map(|message| &message.parts);
    let texts = parts.filter_map(|part| match &part.content {
        Some(Content::Text(text)) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

fn json_text(json: &pb::Json) -> String {
    match &json.form {
        Some(pb::json::Form::Raw(raw)) => String::from_utf8_lossy(raw).into_owned(),
        _ => String::new(),
    }
}

#[tonic::async_trait]
impl AgentEndpoint for Script {
    async fn describe(&self, _: Request<pb::DescribeRequest>) -> Result<Response<pb::DescribeResponse>, Status> {
        let capabilities = self.capabilities.clone();
        Ok(Response::new(pb::DescribeResponse { revision: 1, capabilities, ..pb::DescribeResponse::default() }))
    }

    type InvokeStream = ReceiverStream<Result<pb::InvokeResponse, Status>>;

    async fn invoke(
        &self,
        request: Request<Streaming<pb::InvokeRequest>>,
    ) -> Result<Response<Self::InvokeStream>, Status> {
        let traceparent = request.metadata().get("traceparent").and_then(|value| value.to_str().ok());
        let traceparent = traceparent.unwrap_or_default().to_owned();
        let mut frames = request.into_inner();
        let Some(Frame::Start(start)) = frames.message().await?.and_then(|first| first.frame) else {
            return Err(Status::invalid_argument("start"));
        };
        let context = start.context.unwrap_or_default();
        let (case, trace) = (context.case_id, (context.trace_context, traceparent));
        let options = start.options.unwrap_or_default();
        let asked = {
            let mut all = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            let before = all.iter().filter(|other| other.case == case).count();
            let asked = Asked {
                case,
                text: text_of(start.messages.last()),
                metadata: options.metadata.iter().map(|(key, value)| (key.clone(), json_text(value))).collect(),
                before: u32::try_from(before).expect("few"),
                trace,
            };
            all.push(asked.clone());
            asked
        };
        let answer = (self.answer)(&asked)?;
        let response = pb::Message {
            role: pb::Role::Assistant.into(),
            parts: vec![pb::Part { content: Some(Content::Text(answer.clone())) }],
            ..pb::Message::default()
        };
        let mut events = vec![Event::Accepted(pb::InvokeAccepted::default())];
        events.extend(self.events.iter().flat_map(|events| events(&asked)));
        events.push(Event::Finished(pb::InvokeFinished {
            finish_reason: pb::FinishReason::Completed.into(),
            response: (self.events.is_none() || !answer.is_empty()).then_some(response),
            spans_flushed: self.capabilities.iter().any(|it| it == "tools.from_spans"),
            ..pb::InvokeFinished::default()
        }));
        let (sender, receiver) = tokio::sync::mpsc::channel(events.len());
        for (seq, event) in (1..).zip(events) {
            let _ = sender.send(Ok(pb::InvokeResponse { seq, elapsed: None, event: Some(event) })).await;
        }
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

#[tonic::async_trait]
impl Validator for Script {
    async fn validate(&self, _: Request<pb::ValidateRequest>) -> Result<Response<pb::ValidateResponse>, Status> {
        let before = {
            let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
            *judged += 1;
            *judged - 1
        };
        let judge = self.judge.as_ref().ok_or_else(|| Status::unimplemented("validate"))?;
        tokio::time::sleep(self.ponders).await;
        judge(before).map(Response::new)
    }
}

#[tonic::async_trait]
impl Generator for Script {
    type GenerateStream = tokio_stream::Iter<std::vec::IntoIter<Result<pb::GenerateResponse, Status>>>;

    async fn generate(&self, request: Request<pb::GenerateRequest>) -> Result<Response<Self::GenerateStream>, Status> {
        let write = self.write.as_ref().ok_or_else(|| Status::unimplemented("generate"))?;
        let (messages, end) = write(&request.into_inner());
        let messages: Vec<_> = messages.into_iter().map(Ok).chain(end.err().map(Err)).collect();
        Ok(Response::new(tokio_stream::iter(messages)))
    }
}
