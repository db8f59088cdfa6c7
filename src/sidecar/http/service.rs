//! `AgentEndpoint` in front of an HTTP chat endpoint.
//!
//! A call is one future that the response stream itself drives: whoever resets the stream drops the future, and with it
//! the HTTP request. `accepted` goes out when the connection to the endpoint is there. Before that nothing was sent, and
//! a call that cannot be delivered ends with UNAVAILABLE, which is the network's trouble and not the agent's.

use std::collections::{HashSet, VecDeque};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt as _, Stream, StreamExt as _, stream};
use parking_lot::Mutex;
use reqwest::{Method, StatusCode};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status, Streaming};

use super::Adapter;
use super::answer::Answer;
use super::attachments::{Attachments, MAX_FILE_BYTES};
use super::client::{Reply, Trouble};
use super::events::Events;
use super::question::Question;
use crate::peer::agent::MAX_MESSAGE_BYTES;
use crate::peer::status::{AGENT_MISCONFIGURED, AGENT_UNREACHABLE, CASE_UNSUPPORTED, DRAINING, STAND_IN};
use crate::sidecar::rules::{known, opening, revision, with_reason};
use crate::wire::agent::agent_endpoint_server::AgentEndpoint;
use crate::wire::agent::invoke_request::Frame;
use crate::wire::agent::{
    AgentCard, CancelReason, DescribeRequest, DescribeResponse, InvokeRequest, InvokeResponse, InvokeStart, Limits,
    ToolMode,
};
use crate::wire::call::trace_from_proto;
use crate::wire::value::duration_from_proto;

/// Most bytes of an answer: its text must fit into one message to the daemon, with a little around it.
const MAX_BODY_BYTES: usize = MAX_MESSAGE_BYTES - 1024;
/// Time that a caller has to send its first frame.
const START: Duration = Duration::from_secs(10);
/// Time that a caller has to send the large files of a call.
const ATTACHMENTS: Duration = Duration::from_mins(1);
/// Calls that are remembered, so that none is made twice.
const REMEMBERED: usize = 10_000;
/// Events that wait to be written to the stream.
const UNSENT_EVENTS: usize = 16;

/// The service.
#[derive(Debug)]
pub(super) struct Service {
    adapter: Arc<Adapter>,
    instance_id: String,
    known: Mutex<Known>,
    /// The process ends.
    stopping: CancellationToken,
}

type EventStream = Pin<Box<dyn Stream<Item = Result<InvokeResponse, Status>> + Send>>;

impl Service {
    pub(super) fn new(adapter: Adapter, stopping: CancellationToken) -> Self {
        let instance_id = uuid::Uuid::new_v4().to_string();
        Self { adapter: Arc::new(adapter), instance_id, known: Mutex::default(), stopping }
    }

    /// Whether the call may be made, and what it asks.
    async fn admit(&self, start: &InvokeStart, frames: &mut Streaming<InvokeRequest>) -> Result<Question, Status> {
        match opening(start)? {
            ToolMode::Live => {}
            ToolMode::Stub | ToolMode::RoutingOnly | ToolMode::Unspecified => {
                let text = "an HTTP endpoint runs its own tools: start.tool_mode must be LIVE";
                return Err(Status::failed_precondition(text));
            }
        }
        let attachments = tokio::time::timeout(ATTACHMENTS, Attachments::receive(&start.attachments, frames)).await;
        let attachments = attachments.map_err(|_| Status::invalid_argument("the files of the call did not come"))??;
        let question = self.adapter.fields.question(start, &attachments).map_err(|why| {
            let why = format!("{} is not asked: {why}", self.adapter.client.url());
            with_reason(Code::FailedPrecondition, CASE_UNSUPPORTED, &why)
        })?;
        let is_new = self.known.lock().is_new(&start.invocation_id);
        if is_new { Ok(question) } else { Err(known(&start.invocation_id)) }
    }
}

#[tonic::async_trait]
impl AgentEndpoint for Service {
    async fn describe(&self, request: Request<DescribeRequest>) -> Result<Response<DescribeResponse>, Status> {
        let revision = revision(request.get_ref())?;
        let url = self.adapter.client.url();
        self.adapter.client.probe().await.map_err(|why| with_reason(Code::Unavailable, AGENT_UNREACHABLE, &why))?;
        Ok(Response::new(DescribeResponse {
            revision,
            instance_id: self.instance_id.clone(),
            card: Some(AgentCard {
                agent_id: self.adapter.agent_id.clone(),
                // Nobody can ask it.
                version: "unknown".to_owned(),
                description: format!("the HTTP endpoint {url}"),
                ..AgentCard::default()
            }),
            capabilities: ["attachments", "cancel", STAND_IN].map(str::to_owned).into(),
            limits: Some(Limits {
                max_message_bytes: i64::try_from(MAX_MESSAGE_BYTES).unwrap_or(i64::MAX),
                max_attachment_bytes: i64::try_from(MAX_FILE_BYTES).unwrap_or(i64::MAX),
                ..Limits::default()
            }),
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
            Some(_) => return Err(Status::invalid_argument("the first frame must be `start`")),
            None => return Err(Status::invalid_argument("the stream ended before `start`")),
        };
        let Question { body, besides } = self.admit(&start, &mut frames).await?;
        let (sender, events) = mpsc::channel(UNSENT_EVENTS);
        let call = Call {
            adapter: Arc::clone(&self.adapter),
            stopping: self.stopping.clone(),
            events: Events::new(sender, &start.invocation_id, &self.instance_id),
            start,
            besides,
        };
        let work = call.play(frames, body).into_stream().filter_map(|()| std::future::ready(None));
        Ok(Response::new(Box::pin(stream::select(ReceiverStream::new(events), work))))
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

/// One call, from `start` to its end.
struct Call {
    adapter: Arc<Adapter>,
    stopping: CancellationToken,
    events: Events,
    start: InvokeStart,
    /// The fields that the endpoint is sent and that a plain message does not need.
    besides: Vec<String>,
}

/// What ends a call.
enum End {
    /// The endpoint answered, or could not be asked.
    Asked(Result<Reply, Trouble>),
    /// It took longer than it may.
    TooSlow,
    /// The time of the case is used up.
    Budget,
    /// The daemon asks for it.
    Cancelled(CancelReason),
    /// The daemon broke a rule.
    Broken(String),
    /// This process ends.
    Stopping,
}

impl Call {
    async fn play(mut self, mut frames: Streaming<InvokeRequest>, body: Bytes) {
        match self.ask(&mut frames, body).await {
            End::Asked(Ok(reply)) => self.answer(&reply).await,
            End::Asked(Err(Trouble::Bad(message))) => self.events.failed(Code::Internal, "BAD_ANSWER", message).await,
            End::Asked(Err(Trouble::Unreachable(message) | Trouble::Lost(message))) => {
                self.events.end(with_reason(Code::Unavailable, AGENT_UNREACHABLE, &message)).await;
            }
            End::TooSlow => {
                let time = humantime::format_duration(self.adapter.timeout);
                let message = format!("{} gave no answer within {time} (--timeout)", self.adapter.client.url());
                self.events.failed(Code::DeadlineExceeded, "HTTP_TIMEOUT", message).await;
            }
            End::Budget | End::Cancelled(CancelReason::Budget) => self.events.budget_exceeded().await,
            End::Cancelled(_) => self.events.cancelled().await,
            End::Broken(message) => self.events.failed(Code::InvalidArgument, "PROTOCOL_ERROR", message).await,
            End::Stopping => {
                self.events.end(with_reason(Code::Unavailable, DRAINING, "the sidecar was stopped")).await;
            }
        }
    }

    /// Sends the request, and hears what the daemon says meanwhile.
    async fn ask(&mut self, frames: &mut Streaming<InvokeRequest>, body: Bytes) -> End {
        let context = self.start.context.take().unwrap_or_default();
        // A budget below zero is used up.
        let budget = context.budget.map(|budget| duration_from_proto(budget).unwrap_or_default());
        let begun = Instant::now();
        let adapter = Arc::clone(&self.adapter);
        let connected = CancellationToken::new();
        let trace = trace_from_proto(&context);
        let exchange = adapter.client.exchange(Method::POST, Some(body), &trace, MAX_BODY_BYTES, &connected);
        let mut asked = pin!(exchange);
        let mut ears = pin!(listen(frames));
        let mut is_delivered = false;
        loop {
            tokio::select! {
                biased;
                end = &mut ears => return end,
                () = self.stopping.cancelled() => return End::Stopping,
                () = tokio::time::sleep_until(begun + budget.unwrap_or_default()), if budget.is_some() => return End::Budget,
                () = tokio::time::sleep_until(begun + adapter.timeout) => return if is_delivered {
                    End::TooSlow
                } else {
                    // Nothing was sent: that is the network's, not the endpoint's.
                    let why = format!("{} cannot be reached: no connection in time", adapter.client.url());
                    End::Asked(Err(Trouble::Unreachable(why)))
                },
                () = connected.cancelled(), if !is_delivered => {
                    is_delivered = true;
                    self.events.accept().await;
                }
                answer = &mut asked => return End::Asked(answer),
            }
        }
    }

    async fn answer(&mut self, reply: &Reply) {
        let client = &self.adapter.client;
        if !reply.status.is_success() {
            let message = client.refusal(reply);
            if let Some(hint) = trouble_of_the_set_up(reply.status) {
                let message = format!("{message} ({hint})");
                return self.events.end(with_reason(Code::FailedPrecondition, AGENT_MISCONFIGURED, &message)).await;
            }
            // An endpoint that checks what it is sent may know of a message alone.
            let is_about_fields = matches!(reply.status, StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY);
            let message = if is_about_fields && !self.besides.is_empty() {
                format!("{message} (it was sent {} besides the message)", self.besides.join(", "))
            } else {
                message
            };
            return self.events.failed(Code::Unknown, "HTTP_STATUS", message).await;
        }
        self.events.warn(self.adapter.fields.near(&reply.body));
        match self.adapter.fields.answer(&reply.body) {
            Ok(Answer { text, tool_calls }) => {
                for call in tool_calls {
                    self.events.tool_call(call).await;
                }
                self.events.completed(text).await;
            }
            Err(problem) => {
                let (url, status) = (client.url(), reply.status);
                let message = format!("{url} answered {status} with {problem}: {}", client.beginning(&reply.body));
                self.events.failed(Code::Internal, "BAD_ANSWER", message).await;
            }
        }
    }
}

/// Hears the daemon until it says something that ends the call. A half-close is none: it only says nothing more.
async fn listen(frames: &mut Streaming<InvokeRequest>) -> End {
    loop {
        match frames.message().await {
            Ok(Some(InvokeRequest { frame: Some(Frame::Cancel(cancel)) })) => return End::Cancelled(cancel.reason()),
            Ok(Some(InvokeRequest { frame: Some(Frame::Start(_)) })) => {
                return End::Broken("a second `start` came".to_owned());
            }
            // Results of tools that were not asked for, and what is not known.
            Ok(Some(_)) => {}
            Ok(None) => return std::future::pending().await,
            Err(status) => return End::Broken(format!("the frames of the call cannot be read: {}", status.message())),
        }
    }
}

/// What may be wrong with how an endpoint is asked, if that is what it says: it does not come into what the case is about.
fn trouble_of_the_set_up(status: StatusCode) -> Option<&'static str> {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Some("does it want a header? forge-sidecar http --header Authorization=VARIABLE sends one")
        }
        StatusCode::NOT_FOUND | StatusCode::GONE | StatusCode::MISDIRECTED_REQUEST => Some("is this its address?"),
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => Some("it is asked with POST"),
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => Some("a proxy stands in front of it and wants to know who asks"),
        StatusCode::NOT_ACCEPTABLE => Some("it is asked for application/json"),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => Some("it is sent application/json"),
        StatusCode::UPGRADE_REQUIRED | StatusCode::HTTP_VERSION_NOT_SUPPORTED => Some("it is asked with HTTP/1.1"),
        _ => None,
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
