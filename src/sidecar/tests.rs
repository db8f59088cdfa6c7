//! The script agent, driven by the generated clients over real sockets.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

use super::call_log::CallLog;
use super::host::Scripts;
use super::{read, read_parties, server};
use crate::wire::agent::agent_endpoint_client::AgentEndpointClient;
use crate::wire::agent::invoke_request::Frame;
use crate::wire::agent::invoke_response::Event;
use crate::wire::agent::{
    CallContext, InvokeFinished, InvokeRequest, InvokeResponse, InvokeStart, Message, Part, Role, ToolMode, part,
};

mod endings;
mod invoke;
mod parties;
mod scripts;
mod turns;

/// Nothing here takes long; a test that waits longer has found a hang.
const PATIENCE: Duration = Duration::from_secs(20);

/// A served script.
struct Agent {
    address: SocketAddr,
    log: PathBuf,
    _folder: tempfile::TempDir,
    shutdown: Option<oneshot::Sender<()>>,
    serving: JoinHandle<Result<(), server::ServeError>>,
}

impl Agent {
    fn start(agent: &str) -> Self {
        Self::start_all(agent, None, None)
    }

    fn start_all(agent: &str, simulator: Option<&str>, validator: Option<&str>) -> Self {
        let scripts = Scripts {
            agent: read::agent("agent.json", agent).expect("a script"),
            simulator: simulator.map(|text| read_parties::simulator("simulator.json", text).expect("a script")),
            validator: validator.map(|text| read_parties::validator("validator.json", text).expect("a script")),
        };
        let listener = server::listen("127.0.0.1:0".parse().expect("an address")).expect("listens");
        let address = listener.local_addr().expect("an address");
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("calls.jsonl");
        let (shutdown, ends) = oneshot::channel();
        let ends = async {
            let _ = ends.await;
        };
        let serving = tokio::spawn(server::serve(listener, scripts, CallLog::open(&log).expect("opens"), ends));
        Self { address, log, _folder: folder, shutdown: Some(shutdown), serving }
    }

    fn endpoint(&self) -> Endpoint {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).expect("a URI");
        endpoint.http2_max_header_list_size(256 << 10).initial_stream_window_size(8 << 20)
    }

    async fn client(&self) -> AgentEndpointClient<Channel> {
        let channel = self.endpoint().connect().await.expect("connects");
        AgentEndpointClient::new(channel).max_decoding_message_size(64 << 20)
    }

    fn log(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(&self.log).expect("a log");
        text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    /// `event` or `event:end` of each line.
    fn log_events(&self) -> Vec<String> {
        let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
        let line = |line: serde_json::Value| match text(&line["end"]) {
            Some(end) => format!("{}:{end}", text(&line["event"]).unwrap_or_default()),
            None => text(&line["event"]).unwrap_or_default(),
        };
        self.log().into_iter().map(line).collect()
    }

    /// Waits until the log has these lines.
    async fn logs(&self, events: &[&str]) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
        while self.log_events() != events {
            assert!(tokio::time::Instant::now() < deadline, "the log is {:?}, not {events:?}", self.log_events());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn stop(mut self) {
        self.shutdown.take();
        let served = tokio::time::timeout(PATIENCE, self.serving).await.expect("ends");
        served.expect("no panic").expect("no error");
    }
}

/// A call to the agent that is open.
struct Call {
    requests: mpsc::Sender<InvokeRequest>,
    events: Streaming<InvokeResponse>,
}

impl Call {
    async fn open(client: &AgentEndpointClient<Channel>, start: InvokeStart) -> Result<Self, Status> {
        let (requests, receiver) = mpsc::channel(16);
        requests.send(InvokeRequest { frame: Some(Frame::Start(start)) }).await.expect("room");
        let mut client = client.clone();
        let response = client.invoke(ReceiverStream::new(receiver));
        let response = tokio::time::timeout(PATIENCE, response).await.expect("answers")?;
        Ok(Self { requests, events: response.into_inner() })
    }

    async fn send(&self, frame: Frame) {
        self.requests.send(InvokeRequest { frame: Some(frame) }).await.expect("an open call");
    }

    async fn next(&mut self) -> Result<Option<Event>, Status> {
        let next = tokio::time::timeout(PATIENCE, self.events.message()).await.expect("an event or the end");
        Ok(next?.and_then(|response| response.event))
    }

    /// All events to the end, and how it ended.
    async fn rest(&mut self) -> (Vec<InvokeResponse>, Result<(), Status>) {
        let mut events = Vec::new();
        loop {
            match tokio::time::timeout(PATIENCE, self.events.message()).await.expect("an event or the end") {
                Ok(Some(event)) => events.push(event),
                Ok(None) => return (events, Ok(())),
                Err(status) => return (events, Err(status)),
            }
        }
    }
}

/// A whole call: its events and its end.
async fn call(client: &AgentEndpointClient<Channel>, start: InvokeStart) -> (Vec<InvokeResponse>, Result<(), Status>) {
    match Call::open(client, start).await {
        Ok(mut call) => call.rest().await,
        Err(status) => (Vec::new(), Err(status)),
    }
}

/// A start frame with this message of the user, LIVE.
fn start(text: &str) -> InvokeStart {
    InvokeStart {
        context: Some(CallContext {
            agent_id: "demo".to_owned(),
            case_id: "case".to_owned(),
            turn: 1,
            ..CallContext::default()
        }),
        invocation_id: uuid::Uuid::new_v4().to_string(),
        conversation_id: "conversation".to_owned(),
        messages: vec![user(text)],
        tool_mode: ToolMode::Live.into(),
        want_deltas: true,
        ..InvokeStart::default()
    }
}

fn user(text: &str) -> Message {
    let parts = vec![Part { content: Some(part::Content::Text(text.to_owned())) }];
    Message { role: Role::User.into(), parts, ..Message::default() }
}

/// The event that ends every proper call.
fn finished(events: &[InvokeResponse]) -> &InvokeFinished {
    match events.last().and_then(|response| response.event.as_ref()) {
        Some(Event::Finished(finished)) => finished,
        other => panic!("the last event is {other:?}"),
    }
}

fn answer(finished: &InvokeFinished) -> &str {
    match finished.response.as_ref().and_then(|message| message.parts.first()).and_then(|part| part.content.as_ref()) {
        Some(part::Content::Text(text)) => text,
        _ => "",
    }
}

fn deltas(events: &[InvokeResponse]) -> String {
    let delta = |response: &InvokeResponse| match &response.event {
        Some(Event::TextDelta(delta)) => Some(delta.text.clone()),
        _ => None,
    };
    events.iter().filter_map(delta).collect()
}

fn code(end: &Result<(), Status>) -> Code {
    end.as_ref().map_or_else(Status::code, |()| Code::Ok)
}
