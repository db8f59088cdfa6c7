//! `AgentEndpoint` in front of an HTTP chat endpoint.
//!
//! A call is one future that the response stream itself drives: whoever resets the stream drops the future, and
//! with it the HTTP request. `accepted` goes out when the connection to the endpoint is there. Before that nothing
//! was sent, and a call that cannot be delivered ends with UNAVAILABLE, which is the network's trouble and not the
//! agent's.

use std::collections::{HashSet, VecDeque};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt as _, Stream, StreamExt as _, stream};
use parking_lot::Mutex;
use reqwest::{Method, StatusCode};
use sha2::{Digest as _, Sha256};
use sse_stream::SseByteStream;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status, Streaming};

use super::Adapter;
use super::answer::{Answer, ToolCall};
use super::attachments::{Attachments, MAX_FILE_BYTES};
use super::client::{HttpClient, NoAnswer, Opened, Reply};
use super::events::Events;
use super::preset::{self, Preset, StreamReader};
use super::question::Question;
use super::told::{Called, Returned, Summary, Told, Unusable};
use crate::peer::agent::MAX_MESSAGE_BYTES;
use crate::peer::status::{AGENT_MISCONFIGURED, AGENT_UNREACHABLE, CASE_UNSUPPORTED, DRAINING, STAND_IN};
use crate::sidecar::rules::{known, opening, revision, with_reason};
use crate::trace::TraceHeaders;
use crate::wire::agent::agent_endpoint_server::AgentEndpoint;
use crate::wire::agent::invoke_request::Frame;
use crate::wire::agent::{
    AgentCard, CancelReason, DescribeRequest, DescribeResponse, FinishReason, InvokeRequest, InvokeResponse,
    InvokeStart, Limits, ModelTurn, ToolMode,
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
                let text = "an HTTP endpoint runs its own tools: start.tool_mode must be LIVE. Stubs and routing through the API of a \
                            model are for the sidecar's `openai` mode, which this version does not have yet";
                return Err(Status::failed_precondition(text));
            }
        }
        let attachments = tokio::time::timeout(ATTACHMENTS, Attachments::receive(&start.attachments, frames)).await;
        let attachments = attachments.map_err(|_| Status::invalid_argument("the files of the call did not come"))??;
        let question = self.adapter.shape.question(start, &attachments).map_err(|why| {
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
        let Adapter { client, shape, agent_id, .. } = &*self.adapter;
        let url = client.url();
        client.probe().await.map_err(|why| with_reason(Code::Unavailable, AGENT_UNREACHABLE, &why))?;
        Ok(Response::new(DescribeResponse {
            revision,
            instance_id: self.instance_id.clone(),
            card: Some(AgentCard {
                agent_id: agent_id.clone(),
                // Nobody can ask it.
                version: "unknown".to_owned(),
                description: match shape.preset {
                    Preset::Plain => format!("the HTTP endpoint {url}, which runs its own tools"),
                    preset => format!(
                        "the HTTP endpoint {url}, which runs its own tools behind the preset {preset}; stubs and routing through the API \
                         of a model are for the sidecar's `openai` mode, which this version does not have yet"
                    ),
                },
                provider_name: shape.preset.provider().to_owned(),
                model: shape.model_name().unwrap_or_default(),
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
            events: Events::new(sender, &start, &self.instance_id),
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

/// What an endpoint answered.
enum Heard {
    /// All at once; nothing of it was reported.
    Whole(Reply),
    /// As a stream, which was reported as it came; and what it comes to.
    Stream(Box<Result<Summary, Unusable>>),
}

/// What ends a call.
enum End {
    /// The endpoint answered, or could not be asked.
    Asked(Result<Heard, NoAnswer>),
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
            End::Asked(Ok(Heard::Whole(reply))) => self.answer(&reply).await,
            End::Asked(Ok(Heard::Stream(answer))) => match *answer {
                Ok(summary) => self.finish(summary).await,
                Err(why) => self.refuse(StatusCode::OK, why, None).await,
            },
            End::Asked(Err(NoAnswer::Bad(message))) => self.events.failed(Code::Internal, "BAD_ANSWER", message).await,
            End::Asked(Err(NoAnswer::Unreachable(message) | NoAnswer::Lost(message))) => {
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
        let Self { adapter, stopping, events, .. } = self;
        let connected = CancellationToken::new();
        let trace = trace_from_proto(&context);
        let asked = exchange(adapter, events, body, &trace, &connected);
        tokio::select! {
            biased;
            end = listen(frames) => end,
            () = stopping.cancelled() => End::Stopping,
            () = tokio::time::sleep_until(begun + budget.unwrap_or_default()), if budget.is_some() => End::Budget,
            () = tokio::time::sleep_until(begun + adapter.timeout) => if connected.is_cancelled() {
                End::TooSlow
            } else {
                // Nothing was sent: that is the network's, not the endpoint's.
                let why = adapter.client.says("cannot be reached: no connection in time");
                End::Asked(Err(NoAnswer::Unreachable(why)))
            },
            heard = asked => End::Asked(heard),
        }
    }

    async fn answer(&mut self, reply: &Reply) {
        let Adapter { client, shape, .. } = &*self.adapter;
        if !reply.status.is_success() {
            let message = client.refusal(reply);
            if let Some(hint) = trouble_of_the_set_up(reply.status, shape.preset) {
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
        if shape.preset != Preset::Plain {
            let whole = preset::whole(shape.preset, &reply.body);
            return match whole {
                Ok(mut account) => {
                    if shape.streams {
                        account
                            .warnings
                            .push("it was asked for a stream (--stream) and answered all at once".to_owned());
                    }
                    let summary = account.close();
                    for told in account.take() {
                        self.events.told(told).await;
                    }
                    self.finish(summary).await;
                }
                Err(why) => self.refuse(reply.status, why, Some(&reply.body)).await,
            };
        }
        self.events.warn(shape.fields.near(&reply.body));
        match shape.fields.answer(&reply.body) {
            Ok(Answer { text, tool_calls }) => {
                for (number, call) in (1..).zip(tool_calls) {
                    let ToolCall { name, params, outcome, duration } = call;
                    self.events.told(Told::Called(Called { number, name, params })).await;
                    self.events.told(Told::Returned(Returned { number, outcome, duration })).await;
                }
                self.events.answered(text, FinishReason::Completed, None).await;
            }
            Err(problem) => self.refuse(reply.status, Unusable::Bad(problem), Some(&reply.body)).await,
        }
    }

    /// Ends with what the endpoint told.
    async fn finish(&mut self, summary: Summary) {
        let Summary { text, reason, turn, warnings } = summary;
        self.events.warn(warnings);
        let usage = turn.usage.clone();
        // An endpoint that runs tools calls its model more than once, and tells of it as one. Where turns are
        // limited that would count.
        if self.start.max_model_turns.is_none() && turn != ModelTurn::default() {
            self.events.model_turn(turn).await;
        }
        self.events.answered(text, reason, usage).await;
    }

    /// Ends with why an answer cannot be taken; `body` is its beginning, if that was not reported.
    async fn refuse(&mut self, status: StatusCode, why: Unusable, body: Option<&[u8]>) {
        let client = &self.adapter.client;
        match why {
            Unusable::Bad(problem) => {
                let problem = client.beginning(problem.as_bytes());
                let beginning = body.map(|body| format!(": {}", client.beginning(body))).unwrap_or_default();
                let message = client.says(&format!("answered {status} with {problem}{beginning}"));
                self.events.failed(Code::Internal, "BAD_ANSWER", message).await;
            }
            Unusable::Waits(what) => {
                let status = with_reason(Code::FailedPrecondition, AGENT_MISCONFIGURED, &client.says(&what));
                self.events.end(status).await;
            }
        }
    }
}

/// Asks the endpoint. The call is taken on when the connection is there; a stream is reported as it comes.
async fn exchange(
    adapter: &Adapter,
    events: &mut Events,
    body: Bytes,
    trace: &TraceHeaders,
    connected: &CancellationToken,
) -> Result<Heard, NoAnswer> {
    let Adapter { client, shape, .. } = adapter;
    let mut open = pin!(client.open(Method::POST, Some(body), trace, MAX_BODY_BYTES, connected));
    let opened = tokio::select! {
        biased;
        opened = &mut open => opened,
        () = connected.cancelled() => {
            events.accept().await;
            open.await
        }
    }?;
    match StreamReader::of(shape.preset).filter(|_| opened.is_stream()) {
        None => opened.whole().await.map(Heard::Whole),
        Some(reader) => {
            listen_to_stream(client, opened, reader, events).await.map(|answer| Heard::Stream(Box::new(answer)))
        }
    }
}

/// Reads a stream to the event that says that it is whole.
async fn listen_to_stream(
    client: &HttpClient,
    opened: Opened<'_>,
    mut reader: StreamReader,
    events: &mut Events,
) -> Result<Result<Summary, Unusable>, NoAnswer> {
    // Some leave out the blank line behind the last event.
    let end = stream::once(std::future::ready(Ok(Bytes::from_static(b"\n\n"))));
    let mut blocks = SseByteStream::new(opened.chunks().chain(end));
    while let Some(block) = blocks.next().await {
        let data = match block {
            Ok(block) => block.data.filter(|data| !data.is_empty()),
            Err(sse_stream::Error::Body(error)) => {
                let trouble = error.downcast::<NoAnswer>();
                return Err(
                    trouble.map_or_else(|error| NoAnswer::Lost(client.says(&error.to_string())), |trouble| *trouble)
                );
            }
            Err(error) => return Ok(Err(Unusable::Bad(format!("a stream that cannot be read ({error})")))),
        };
        let Some(data) = data else { continue };
        let ended = reader.take(&data);
        let summary = matches!(ended, Ok(true)).then(|| reader.account().close());
        for told in reader.account().take() {
            events.told(told).await;
        }
        match (ended, summary) {
            (Err(why), _) => return Ok(Err(why)),
            (Ok(_), Some(summary)) => return Ok(Ok(summary)),
            (Ok(_), None) => {}
        }
    }
    let mark = reader.end_mark();
    Ok(Err(Unusable::Bad(format!("a stream that ended without {mark}, so that the answer may not be whole"))))
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

/// What may be wrong with how an endpoint is asked, if that is what it says: it does not come into what the case is
/// about.
fn trouble_of_the_set_up(status: StatusCode, preset: Preset) -> Option<String> {
    let hint = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            return Some(format!("does it want a header? --header {} sends one", preset.header()));
        }
        StatusCode::NOT_FOUND | StatusCode::GONE | StatusCode::MISDIRECTED_REQUEST => {
            let ends = preset.path().map(|path| format!("; those of {preset} end in {path}")).unwrap_or_default();
            return Some(format!("is this its address?{ends}"));
        }
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => "it is asked with POST",
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => "a proxy stands in front of it and wants to know who asks",
        StatusCode::NOT_ACCEPTABLE => "it is asked for application/json",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "it is sent application/json",
        StatusCode::UPGRADE_REQUIRED | StatusCode::HTTP_VERSION_NOT_SUPPORTED => "it is asked with HTTP/1.1",
        _ => return None,
    };
    Some(hint.to_owned())
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
