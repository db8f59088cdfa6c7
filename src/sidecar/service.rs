//! `AgentEndpoint` for an agent that this process stands in for: admits calls, hears the daemon while the agent works,
//! and ends each turn exactly once. What the agent is stands in an [`Agent`].
//!
//! A call is one future that the response stream itself drives: a client that resets the stream drops the future, and
//! with it the work. `accepted` goes out with the first event. Before that the way to the agent may turn out to be
//! broken, and a call that cannot be delivered ends with UNAVAILABLE, which is the network's trouble and not the
//! agent's.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, Stream, StreamExt as _, stream};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::attachments::Attachments;
use super::infra::AGENT;
use super::rules::{known, opening, revision, with_reason};
use super::turn::{Answer, End, Turn};
use crate::peer::agent::MAX_MESSAGE_BYTES;
use crate::peer::status::{DRAINING, STAND_IN};
use crate::wire::agent::agent_endpoint_server::{AgentEndpoint, AgentEndpointServer};
use crate::wire::agent::invoke_request::Frame;
use crate::wire::agent::{
    AgentCard, CancelReason, DescribeRequest, DescribeResponse, FinishReason, InvokeRequest, InvokeResponse,
    InvokeStart, Limits, ToolMode,
};
use crate::wire::reflection::{HEALTH, REFLECTION, reflection};
use crate::wire::value::duration_from_proto;

/// Time that a caller has to send its first frame.
const START: Duration = Duration::from_secs(10);
/// Time that a caller has to send the large files of a call.
const ATTACHMENTS: Duration = Duration::from_mins(1);
/// Calls that are remembered, so that none is made twice.
const REMEMBERED: usize = 10_000;
/// What a caller is told to wait when all places are taken.
const LATER: Duration = Duration::from_secs(1);
/// Time for calls to say that they end.
const CLOSING: Duration = Duration::from_secs(1);
/// Pings find daemons that are gone without having said so, and end their calls.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Calls at the same time on one connection: more than a daemon makes.
const STREAMS: u32 = 10_000;

/// The capability by which an agent lets the daemon answer its tools.
pub(super) const STUBS: &str = "tools.stub";
/// The capability by which an agent announces its tool calls and runs none.
pub(super) const ROUTING: &str = "tools.routing";
/// The capability by which an agent takes large files.
pub(super) const ATTACHED_FILES: &str = "attachments";

type Describe = Box<dyn Fn() -> BoxFuture<'static, Result<AgentCard, Status>> + Send + Sync>;
type Respond = Box<dyn Fn(Arc<Turn>) -> BoxFuture<'static, Result<Answer, End>> + Send + Sync>;

/// An agent that this process stands in for.
pub(super) struct Agent {
    /// What it can do besides what every stand-in can.
    capabilities: Vec<&'static str>,
    limits: Limits,
    describe: Describe,
    answer: Respond,
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("capabilities", &self.capabilities).finish_non_exhaustive()
    }
}

impl Agent {
    /// An agent with these capabilities besides `cancel` and `stand_in`. `describe` says who it is, or that nobody is
    /// there, and must not call a model. `answer` answers a turn; it is dropped when the turn ends before that.
    pub(super) fn new<D, A>(
        capabilities: &[&'static str],
        limits: Limits,
        describe: impl Fn() -> D + Send + Sync + 'static,
        answer: impl Fn(Arc<Turn>) -> A + Send + Sync + 'static,
    ) -> Self
    where
        D: Future<Output = Result<AgentCard, Status>> + Send + 'static,
        A: Future<Output = Result<Answer, End>> + Send + 'static,
    {
        let capabilities = [capabilities, &["cancel", STAND_IN]].concat();
        let max_message_bytes = i64::try_from(MAX_MESSAGE_BYTES).unwrap_or(i64::MAX);
        Self {
            capabilities,
            limits: Limits { max_message_bytes, ..limits },
            describe: Box::new(move || describe().boxed()),
            answer: Box::new(move |turn| answer(turn).boxed()),
        }
    }

    fn can(&self, capability: &str) -> bool {
        self.capabilities.contains(&capability)
    }
}

/// Why serving ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The server gave up.
    #[error("serving")]
    Serve(#[from] tonic::transport::Error),
    /// The build is broken.
    #[error("setting up reflection")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// Serves an agent until `shutdown` is cancelled, and ends the calls in flight then.
///
/// # Errors
/// When the server gives up.
pub(super) async fn serve(listener: TcpListener, agent: Agent, shutdown: CancellationToken) -> Result<(), ServeError> {
    let (health, health_service) = tonic_health::server::health_reporter();
    for service in ["", AGENT] {
        health.set_service_status(service, tonic_health::ServingStatus::Serving).await;
    }
    let agent = endpoint(agent, shutdown.clone());
    let served = Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .max_concurrent_streams(STREAMS)
        .add_service(health_service)
        .add_service(reflection(&[AGENT, HEALTH, REFLECTION]).build_v1()?)
        .add_service(agent)
        .serve_with_incoming_shutdown(
            TcpIncoming::from(listener).with_nodelay(Some(true)),
            shutdown.clone().cancelled_owned(),
        );
    let closed = async {
        shutdown.cancelled().await;
        tokio::time::sleep(CLOSING).await;
    };
    tokio::select! {
        served = served => Ok(served?),
        // A client that keeps its connection open is not waited for.
        () = closed => Ok(()),
    }
}

/// The service of an agent.
pub(super) fn endpoint(agent: Agent, stopping: CancellationToken) -> AgentEndpointServer<Service> {
    let most = usize::try_from(agent.limits.max_concurrent_invocations).unwrap_or(usize::MAX);
    let places = (most > 0).then(|| Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))));
    let instance_id = uuid::Uuid::new_v4().to_string();
    let service = Service { agent: Arc::new(agent), places, instance_id, known: Mutex::default(), stopping };
    AgentEndpointServer::new(service).max_decoding_message_size(MAX_MESSAGE_BYTES)
}

/// The service.
#[derive(Debug)]
pub(super) struct Service {
    agent: Arc<Agent>,
    /// Places for calls, if they are limited.
    places: Option<Arc<Semaphore>>,
    instance_id: String,
    known: Mutex<Known>,
    /// The process ends.
    stopping: CancellationToken,
}

type EventStream = Pin<Box<dyn Stream<Item = Result<InvokeResponse, Status>> + Send>>;

impl Service {
    /// Whether the call may be made, in which mode, and with which files.
    async fn admit(
        &self,
        start: &InvokeStart,
        frames: &mut Streaming<InvokeRequest>,
    ) -> Result<(ToolMode, Attachments, Option<OwnedSemaphorePermit>), Status> {
        let mode = opening(start)?;
        let needed = match mode {
            ToolMode::Stub => Some((STUBS, "STUB")),
            ToolMode::RoutingOnly => Some((ROUTING, "ROUTING_ONLY")),
            ToolMode::Live | ToolMode::Unspecified => None,
        };
        if let Some((capability, mode)) = needed.filter(|(capability, _)| !self.agent.can(capability)) {
            let message = format!(
                "start.tool_mode must be LIVE: this agent runs its own tools and lacks {capability}, which {mode} needs"
            );
            return Err(Status::failed_precondition(message));
        }
        if !start.attachments.is_empty() && !self.agent.can(ATTACHED_FILES) {
            return Err(Status::failed_precondition("start.attachments: this agent takes none"));
        }
        if self.stopping.is_cancelled() {
            return Err(with_reason(Code::Unavailable, DRAINING, "the sidecar was stopped"));
        }
        let place = match &self.places {
            None => None,
            Some(places) => Some(Arc::clone(places).try_acquire_owned().map_err(|_| {
                let mut details = ErrorDetails::with_retry_info(Some(LATER));
                details.set_error_info("TOO_MANY_CALLS", "forge.agent.v1", HashMap::new());
                let most = self.agent.limits.max_concurrent_invocations;
                let message = format!("{most} calls run, which is as many as may");
                Status::with_error_details(Code::ResourceExhausted, message, details)
            })?),
        };
        let attachments = tokio::time::timeout(ATTACHMENTS, Attachments::receive(&start.attachments, frames)).await;
        let attachments = attachments.map_err(|_| Status::invalid_argument("the files of the call did not come"))??;
        let is_new = self.known.lock().is_new(&start.invocation_id);
        if is_new { Ok((mode, attachments, place)) } else { Err(known(&start.invocation_id)) }
    }
}

#[tonic::async_trait]
impl AgentEndpoint for Service {
    async fn describe(&self, request: Request<DescribeRequest>) -> Result<Response<DescribeResponse>, Status> {
        let revision = revision(request.get_ref())?;
        let card = (self.agent.describe)().await?;
        Ok(Response::new(DescribeResponse {
            revision,
            instance_id: self.instance_id.clone(),
            card: Some(card),
            capabilities: self.agent.capabilities.iter().map(|capability| (*capability).to_owned()).collect(),
            limits: Some(self.agent.limits),
            ..DescribeResponse::default()
        }))
    }

    type InvokeStream = EventStream;

    async fn invoke(&self, request: Request<Streaming<InvokeRequest>>) -> Result<Response<EventStream>, Status> {
        let mut frames = request.into_inner();
        let first = tokio::time::timeout(START, frames.message()).await;
        let first = first.map_err(|_| Status::invalid_argument("no `start` came"))??;
        let start = match first.map(|request| request.frame) {
            Some(Some(Frame::Start(start))) => start,
            Some(_) => return Err(Status::invalid_argument("frame: the first must be `start`")),
            None => {
                return Err(Status::invalid_argument("the stream ended before `start`: the first frame must be it"));
            }
        };
        let (mode, attachments, place) = self.admit(&start, &mut frames).await?;
        let (turn, events) = Turn::new(start, mode, attachments, &self.instance_id);
        let (agent, stopping) = (Arc::clone(&self.agent), self.stopping.clone());
        let work = async move {
            play(&agent, Arc::new(turn), &mut frames, &stopping).await;
            drop(place);
        };
        let work = work.into_stream().filter_map(|()| std::future::ready(None));
        Ok(Response::new(Box::pin(stream::select(ReceiverStream::new(events), work))))
    }
}

/// Runs a turn until the agent has answered, or is told to stop, or has no more time.
async fn play(agent: &Agent, turn: Arc<Turn>, frames: &mut Streaming<InvokeRequest>, stopping: &CancellationToken) {
    let begun = Instant::now();
    // A budget below zero is used up.
    let budget = turn.start().context.as_ref().and_then(|context| context.budget);
    let budget = budget.map(|budget| duration_from_proto(budget).unwrap_or_default());
    let end = tokio::select! {
        biased;
        end = listen(frames, &turn) => Err(end),
        () = stopping.cancelled() => {
            Err(End::Broken(with_reason(Code::Unavailable, DRAINING, "the sidecar was stopped")))
        }
        () = tokio::time::sleep_until(begun + budget.unwrap_or_default()), if budget.is_some() => {
            Err(End::Over(FinishReason::BudgetExceeded))
        }
        end = (agent.answer)(Arc::clone(&turn)) => end,
    };
    turn.finish(end).await;
}

/// Hears the daemon until it says something that ends the turn. A half-close is none: it only says nothing more.
async fn listen(frames: &mut Streaming<InvokeRequest>, turn: &Turn) -> End {
    let broken = |message: String| End::failed(Code::InvalidArgument, "PROTOCOL_ERROR", message);
    loop {
        match frames.message().await {
            Ok(Some(InvokeRequest { frame: Some(Frame::Cancel(cancel)) })) => {
                let is_budget = cancel.reason() == CancelReason::Budget;
                return End::Over(if is_budget { FinishReason::BudgetExceeded } else { FinishReason::Cancelled });
            }
            Ok(Some(InvokeRequest { frame: Some(Frame::Start(_)) })) => {
                return broken("frame: unexpected `start`: a second `start` came".to_owned());
            }
            Ok(Some(InvokeRequest { frame: Some(Frame::ToolResult(result)) })) => turn.resolve(result),
            // Files that were not announced, and what is not known.
            Ok(Some(_)) => {}
            Ok(None) => {
                turn.no_more_results();
                return std::future::pending().await;
            }
            Err(status) => return broken(format!("the frames of the call cannot be read: {}", status.message())),
        }
    }
}

/// The calls that came lately.
#[derive(Debug, Default)]
struct Known {
    ids: HashSet<[u8; 32]>,
    in_order: VecDeque<[u8; 32]>,
}

impl Known {
    /// Whether an invocation is new; it is not from then on, until many others came.
    fn is_new(&mut self, invocation_id: &str) -> bool {
        // A hash, because an id may be as long as a message.
        let id: [u8; 32] = Sha256::digest(invocation_id).into();
        if !self.ids.insert(id) {
            return false;
        }
        self.in_order.push_back(id);
        if self.in_order.len() > REMEMBERED
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_remembered_for_a_while() {
        let mut known = Known::default();
        assert!(known.is_new("a") && !known.is_new("a"));
        for n in 0..REMEMBERED {
            assert!(known.is_new(&n.to_string()));
        }
        assert!(known.is_new("a") && known.ids.len() == REMEMBERED);
    }
}
