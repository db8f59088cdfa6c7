//! The agent's side of an attached stream: dials a daemon, and hands its calls to an agent on this machine.
//!
//! The agent is any server of gRPC, so whatever can listen can attach. A stream that breaks is opened again, after a
//! random pause; calls that were open on it are over.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{HeaderValue, Request};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt as _};
use tower::ServiceExt as _;

use crate::peer::agent::{MAX_MESSAGE_BYTES, endpoint};
use crate::peer::attach::windows::{Sizes, Windows};
use crate::peer::attach::{MAX_CALLS, MAX_FRAME_BYTES};
use crate::peer::status::was_not_delivered;
use crate::peer::target::Target;
use crate::text::deepest;
use crate::wire::agent::agent_endpoint_client::AgentEndpointClient;
use crate::wire::agent::{DescribeRequest, DescribeResponse};
use crate::wire::attach::attach_service_client::AttachServiceClient;
use crate::wire::attach::{
    AttachRequest, AttachResponse, AttachedAgent, Drain, EndCall, Hello, Kind, NOT_DELIVERED, OpenCall, Pong, Reply,
    SendFrame, Unframer, Welcome, WindowUpdate, attach_request, attach_response, cost, fault_of, in_body,
};
use crate::wire::{MAX_REVISION, MIN_REVISION};

/// Credit that the daemon has.
const SIZES: Sizes = Sizes { call: 256 << 10, stream: 4 << 20 };
/// Time for a connection, and for the daemon's welcome.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time that the agent has to say who it is.
const DESCRIBE: Duration = Duration::from_secs(10);
/// Pauses before the stream is opened again: the longest of the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Time that calls have to end when the agent leaves.
const LEAVING: Duration = Duration::from_secs(30);
/// Time that the daemon has to take the last frames.
const CLOSING: Duration = Duration::from_secs(1);
/// How often an agent that is away is looked for.
const LOOKING: Duration = Duration::from_millis(100);

/// Why an agent is not attached, and will not be.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The address makes no sense.
    #[error("the daemon's address cannot be dialled")]
    Dial(#[source] tonic::transport::Error),
    /// The agent does not say who it is.
    #[error("the agent does not describe itself: {0}")]
    Undescribed(String),
    /// The daemon does not take it.
    #[error("the daemon at {daemon} refuses the agent: {code:?}: {why}")]
    Refused {
        /// Its address.
        daemon: String,
        /// How.
        code: Code,
        /// Why.
        why: String,
    },
}

/// What the owner of an attached agent may want to say about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// It is attached.
    Attached,
    /// It is not, for this reason, and will try again after the pause.
    Away(String, Duration),
}

/// Attaches the agent behind `agent` to a daemon until `leave` is cancelled; then it lets open calls end. Under `ids`,
/// or under the id on its card where there are none. Names that `is_temporary` says nobody asks for when it has left.
///
/// # Errors
/// When the agent cannot be attached, now or again.
pub async fn attach(
    daemon: &Target,
    ids: &[String],
    is_temporary: bool,
    agent: Channel,
    leave: CancellationToken,
    mut tell: impl FnMut(News),
) -> Result<(), AttachError> {
    let described = describe(agent.clone()).await.map_err(AttachError::Undescribed)?;
    let card_id = described.card.as_ref().map(|card| card.agent_id.clone()).unwrap_or_default();
    let ids = if ids.is_empty() { vec![card_id] } else { ids.to_vec() };
    let agents = ids.into_iter().map(|agent_id| AttachedAgent { agent_id, describe: Some(described.clone()) });
    let mut hello = Hello {
        min_revision: MIN_REVISION,
        max_revision: MAX_REVISION,
        agents: agents.collect(),
        instance_id: uuid::Uuid::new_v4().to_string(),
        previous_session_id: String::new(),
        initial_window_bytes: SIZES.call,
        stream_window_bytes: SIZES.stream,
        temporary: is_temporary,
    };
    let endpoint = endpoint(&daemon.authority()).map_err(AttachError::Dial)?.connect_timeout(PATIENCE);
    let mut longest = FIRST_PAUSE;
    loop {
        let opening = async {
            // Nobody is told of an agent that is away.
            while describe(agent.clone()).await.is_err() {
                tokio::time::sleep(LOOKING).await;
            }
            open(&endpoint, hello.clone()).await
        };
        let ended = tokio::select! {
            opened = opening => match opened {
                Ok(stream) => {
                    hello.previous_session_id.clone_from(&stream.welcome.session_id);
                    tell(News::Attached);
                    // It is welcome, whatever happens next.
                    longest = FIRST_PAUSE;
                    stream.serve(&agent, &leave).await
                }
                Err(status) => Some(status),
            },
            () = leave.cancelled() => None,
        };
        let Some(status) = ended else { return Ok(()) };
        if is_final(&status) {
            let (code, why) = (status.code(), status.message().to_owned());
            return Err(AttachError::Refused { daemon: daemon.authority(), code, why });
        }
        let pause = longest.mul_f64(fastrand::f64());
        longest = (longest * 2).min(LONGEST_PAUSE);
        tell(News::Away(said(&status), pause));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = leave.cancelled() => return Ok(()),
        }
    }
}

/// What a status says, or what it comes from.
fn said(status: &Status) -> String {
    std::error::Error::source(status).map_or_else(|| status.message().to_owned(), deepest)
}

async fn describe(agent: Channel) -> Result<DescribeResponse, String> {
    let request = DescribeRequest { min_revision: MIN_REVISION, max_revision: MAX_REVISION, ..Default::default() };
    let mut client = AgentEndpointClient::new(agent);
    match tokio::time::timeout(DESCRIBE, client.describe(request)).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        // It has no capabilities, and tells nothing.
        Ok(Err(status)) if status.code() == Code::Unimplemented => Ok(DescribeResponse::default()),
        Ok(Err(status)) => Err(said(&status)),
        Err(_) => Err(format!("no answer within {} s", DESCRIBE.as_secs())),
    }
}

/// Whether the same would happen again.
fn is_final(status: &Status) -> bool {
    if std::error::Error::source(status).is_some() {
        return false;
    }
    match status.code() {
        Code::InvalidArgument
        | Code::FailedPrecondition
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::AlreadyExists
        | Code::Unimplemented
        | Code::Aborted => true,
        Code::ResourceExhausted => status.message().starts_with("WINDOW_"),
        _ => false,
    }
}

/// A stream on which the agent is welcome.
struct Attached {
    welcome: Welcome,
    frames: mpsc::UnboundedSender<AttachRequest>,
    incoming: Streaming<AttachResponse>,
    theirs: Sizes,
}

async fn open(endpoint: &tonic::transport::Endpoint, hello: Hello) -> Result<Attached, Status> {
    let opening = async {
        let channel = endpoint.connect().await.map_err(|error| Status::from_error(error.into()))?;
        let mut client = AttachServiceClient::new(channel).max_decoding_message_size(MAX_FRAME_BYTES);
        let (frames, outgoing) = mpsc::unbounded_channel();
        // There is somebody to take it: the other end is here.
        let _ = frames.send(AttachRequest { frame: Some(attach_request::Frame::Hello(hello)) });
        let mut incoming = client.attach(UnboundedReceiverStream::new(outgoing)).await?.into_inner();
        match incoming.message().await? {
            Some(AttachResponse { frame: Some(attach_response::Frame::Welcome(welcome)) }) => {
                let theirs = Sizes { call: welcome.initial_window_bytes, stream: welcome.stream_window_bytes };
                Ok(Attached { welcome, frames, incoming, theirs })
            }
            Some(_) => Err(Status::internal("the daemon's first frame is no welcome")),
            None => Err(Status::unavailable("the daemon closed the stream")),
        }
    };
    tokio::time::timeout(PATIENCE, opening)
        .await
        .unwrap_or_else(|_| Err(Status::unavailable(format!("no welcome within {} s", PATIENCE.as_secs()))))
}

/// What the calls of a stream share.
struct Shared {
    state: Mutex<State>,
    /// Tells those that wait for credit to look again.
    room: Notify,
    /// Frames on their way to the daemon, bounded by the credit that it gives.
    frames: mpsc::UnboundedSender<AttachRequest>,
    /// Largest message that the daemon takes.
    most: usize,
    /// The agent itself is gone.
    gone: CancellationToken,
}

struct State {
    windows: Windows,
    calls: HashMap<u64, Call>,
    last: u64,
}

struct Call {
    /// Further messages of the daemon; `None`: there are no more.
    messages: Option<mpsc::UnboundedSender<Bytes>>,
    work: AbortHandle,
}

impl Attached {
    /// Serves calls until the stream ends, or the agent has left; then there is no status.
    async fn serve(self, agent: &Channel, leave: &CancellationToken) -> Option<Status> {
        let Self { welcome, frames, mut incoming, theirs } = self;
        let shared = Arc::new(Shared {
            state: Mutex::new(State { windows: Windows::new(SIZES, theirs), calls: HashMap::new(), last: 0 }),
            room: Notify::new(),
            frames,
            most: usize::try_from(welcome.max_message_bytes).unwrap_or(MAX_MESSAGE_BYTES).min(MAX_MESSAGE_BYTES),
            gone: CancellationToken::new(),
        });
        // Aborted with all that is in it when the stream ends.
        let mut work = JoinSet::new();
        let (mut is_leaving, mut may_close) = (false, false);
        let mut limit = std::pin::pin!(tokio::time::sleep(Duration::from_secs(u64::from(u32::MAX))));
        let ended = loop {
            if may_close && work.is_empty() {
                break None;
            }
            tokio::select! {
                frame = incoming.next() => match frame {
                    Some(Ok(AttachResponse { frame: Some(frame) })) => match shared.take(frame, agent, &mut work) {
                        Ok(acknowledged) => may_close |= acknowledged,
                        Err(status) => break Some(status),
                    },
                    // A frame of a later revision.
                    Some(Ok(AttachResponse { frame: None })) => {}
                    Some(Err(status)) => break Some(status),
                    None => break Some(Status::unavailable("the daemon closed the stream")),
                },
                Some(_) = work.join_next() => {}
                () = leave.cancelled(), if !is_leaving => {
                    is_leaving = true;
                    limit.as_mut().reset(Instant::now() + LEAVING);
                    shared.tell(attach_request::Frame::Drain(Drain { reason: "it was asked to end".to_owned() }));
                }
                () = shared.gone.cancelled() => break Some(Status::unavailable("the agent is gone")),
                () = &mut limit => break None,
            }
        };
        work.shutdown().await;
        // That closes our side behind the frames that are queued.
        drop(shared);
        let _ = tokio::time::timeout(CLOSING, async { while let Some(Ok(_)) = incoming.next().await {} }).await;
        ended
    }
}

impl Shared {
    /// Does what a frame asks for; true: no further calls are opened.
    fn take(
        self: &Arc<Self>,
        frame: attach_response::Frame,
        agent: &Channel,
        work: &mut JoinSet<()>,
    ) -> Result<bool, Status> {
        let broken = |why: &str| Status::internal(format!("the daemon broke the rules of the stream: {why}"));
        match frame {
            attach_response::Frame::Welcome(_) => return Err(broken("a second welcome")),
            attach_response::Frame::Open(OpenCall { call_no, timeout, call, .. }) => {
                let Some((kind, message)) = call else {
                    // A call of a later revision.
                    self.end(call_no, &Status::unimplemented("this call is not known"));
                    return Ok(false);
                };
                let mut state = self.state.lock();
                if call_no <= state.last {
                    return Err(broken("a call number came again"));
                }
                state.last = call_no;
                self.count(&mut state, None, cost(&message)).map_err(|error| broken(&error.to_string()))?;
                if state.calls.len() >= MAX_CALLS {
                    drop(state);
                    self.end(call_no, &Status::resource_exhausted("too many calls are open"));
                    return Ok(false);
                }
                state.windows.open(call_no);
                let (messages, rest) = mpsc::unbounded_channel();
                let messages = (kind == Kind::Invoke).then_some(messages);
                let running = Arc::clone(self).run(agent.clone(), call_no, kind, timeout, message, rest);
                state.calls.insert(call_no, Call { messages, work: work.spawn(running) });
            }
            attach_response::Frame::Send(SendFrame { call_no, invoke }) => {
                let message = invoke.unwrap_or_default();
                let mut state = self.state.lock();
                self.count(&mut state, Some(call_no), cost(&message)).map_err(|error| broken(&error.to_string()))?;
                if let Some(Call { messages: Some(messages), .. }) = state.calls.get(&call_no) {
                    let _ = messages.send(message);
                }
            }
            attach_response::Frame::HalfClose(half_close) => {
                if let Some(call) = self.state.lock().calls.get_mut(&half_close.call_no) {
                    call.messages = None;
                }
            }
            attach_response::Frame::Reset(reset) => {
                if let Some(call) = self.close(reset.call_no) {
                    call.work.abort();
                }
            }
            attach_response::Frame::Window(WindowUpdate { call_no, bytes }) => {
                let granted = self.state.lock().windows.granted(call_no, bytes);
                granted.map_err(|error| broken(&error.to_string()))?;
                self.room.notify_waiters();
            }
            attach_response::Frame::Ping(ping) => self.tell(attach_request::Frame::Pong(Pong { nonce: ping.nonce })),
            attach_response::Frame::DrainAck(_) => return Ok(true),
        }
        Ok(false)
    }

    fn count(
        &self,
        state: &mut State,
        call_no: Option<u64>,
        cost: i64,
    ) -> Result<(), crate::peer::attach::windows::Fault> {
        if let Some(bytes) = state.windows.received(call_no, cost)? {
            self.tell(attach_request::Frame::Window(WindowUpdate { call_no: 0, bytes }));
        }
        Ok(())
    }

    fn tell(&self, frame: attach_request::Frame) {
        // When the stream is gone, its reader knows.
        let _ = self.frames.send(AttachRequest { frame: Some(frame) });
    }

    fn close(&self, call_no: u64) -> Option<Call> {
        let mut state = self.state.lock();
        state.windows.close(call_no);
        let call = state.calls.remove(&call_no);
        drop(state);
        self.room.notify_waiters();
        call
    }

    fn end(&self, call_no: u64, status: &Status) {
        self.close(call_no);
        self.tell(attach_request::Frame::End(EndCall { call_no, fault: fault_of(status) }));
    }

    /// Makes a call of the agent, and passes on what comes of it.
    async fn run(
        self: Arc<Self>,
        agent: Channel,
        call_no: u64,
        kind: Kind,
        timeout: Option<prost_types::Duration>,
        first: Bytes,
        rest: mpsc::UnboundedReceiver<Bytes>,
    ) {
        let shared = Arc::clone(&self);
        let rest = UnboundedReceiverStream::new(rest).map(move |message| {
            let back = shared.state.lock().windows.taken(call_no, cost(&message));
            if let Some(bytes) = back {
                shared.tell(attach_request::Frame::Window(WindowUpdate { call_no, bytes }));
            }
            message
        });
        let messages = futures_util::stream::iter([first]).chain(rest);
        let body = messages.map(|message| Ok::<_, Status>(Frame::data(in_body(&message))));
        let status = match request(kind, timeout, Body::new(StreamBody::new(body))) {
            Ok(request) => self.pass_on(agent, call_no, kind, request).await,
            Err(error) => Status::internal(error.to_string()),
        };
        if was_not_delivered(&status) {
            let details = ErrorDetails::with_error_info(NOT_DELIVERED, "forge", HashMap::new());
            self.end(call_no, &Status::with_error_details(Code::Unavailable, said(&status), details));
            return self.gone.cancel();
        }
        if is_gone(&status) {
            // All its calls are over, and nobody answers the next one.
            return self.gone.cancel();
        }
        if is_reset(&status) {
            return self.end(call_no, &Status::unavailable("the agent reset the call"));
        }
        self.end(call_no, &status);
    }

    async fn pass_on(&self, agent: Channel, call_no: u64, kind: Kind, request: Request<Body>) -> Status {
        let response = match agent.oneshot(request).await {
            Ok(response) => response,
            Err(error) => return Status::from_error(error.into()),
        };
        if let Some(status) = Status::from_header_map(response.headers()) {
            return status;
        }
        let (mut body, mut unframer) = (response.into_body(), Unframer::default());
        loop {
            match body.frame().await.map(|frame| frame.map(Frame::into_data)) {
                None => return Status::unknown("the agent ended its answer without a status"),
                Some(Err(status)) => return status,
                Some(Ok(Ok(piece))) => unframer.push(&piece),
                Some(Ok(Err(frame))) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    let none = || Status::unknown("the agent ended its answer without a status");
                    return Status::from_header_map(&trailers).unwrap_or_else(none);
                }
            }
            loop {
                match unframer.next(self.most) {
                    Ok(None) => break,
                    Ok(Some(message)) => self.reply(call_no, kind, message).await,
                    Err(error) => return Status::resource_exhausted(error.to_string()),
                }
            }
        }
    }

    /// Sends a message, as soon as there is credit for it.
    async fn reply(&self, call_no: u64, kind: Kind, message: Bytes) {
        loop {
            let changed = self.room.notified();
            {
                let mut state = self.state.lock();
                if !state.calls.contains_key(&call_no) {
                    return;
                }
                if state.windows.may_send(call_no) {
                    state.windows.sent(call_no, cost(&message));
                    let payload = Some((kind, message));
                    return self.tell(attach_request::Frame::Reply(Reply { call_no, payload }));
                }
            }
            changed.await;
        }
    }
}

fn request(kind: Kind, timeout: Option<prost_types::Duration>, body: Body) -> Result<Request<Body>, http::Error> {
    let mut request = Request::post(format!("http://attached{}", kind.path()))
        .version(http::Version::HTTP_2)
        .header(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"))
        .header(http::header::TE, HeaderValue::from_static("trailers"));
    if let Some(timeout) = timeout.and_then(|timeout| Duration::try_from(timeout).ok()) {
        request = request.header("grpc-timeout", format!("{}m", timeout.as_millis().min(99_999_999)));
    }
    request.body(body)
}

/// Whether a status says that the agent broke off a call, and not the connection.
fn is_reset(status: &Status) -> bool {
    let errors = std::iter::successors(std::error::Error::source(status), |error| error.source());
    errors.filter_map(|error| error.downcast_ref::<h2::Error>()).any(h2::Error::is_reset)
}

/// Whether a status says that the connection to the agent broke, and not only a call.
fn is_gone(status: &Status) -> bool {
    let mut error = std::error::Error::source(status);
    while let Some(current) = error {
        if let Some(error) = current.downcast_ref::<h2::Error>() {
            return !error.is_reset();
        }
        if current.is::<std::io::Error>() {
            return true;
        }
        error = current.source();
    }
    false
}
