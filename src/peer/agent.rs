//! Calls of one agent, and when a call may be repeated.
//!
//! Connecting may be repeated freely, a call that was handed over never: an agent must not do its work twice because the
//! network hiccuped. The line between the two is the start frame: [`Outgoing`] notes when the transport took it. A
//! transport that took the frame and then says that the stream was never processed (RFC 9113, section 8.7: a refused
//! stream, or one above the last one of a GOAWAY) is believed, so that an agent can restart between two cases.
//!
//! Answers are not accepted compressed: a small frame must not become a large one.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::Stream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_types::StatusExt as _;

use super::target::{Target, speaks_http};
use crate::conversation::{Content, Description, Failure};
use crate::trace::TraceHeaders;
use crate::wire::agent::agent_endpoint_client::AgentEndpointClient;
use crate::wire::agent::{DescribeRequest, InvokeRequest, InvokeResponse};
use crate::wire::bounded::Unread;
use crate::wire::call::{chunks_to_proto, description_from_proto};
use crate::wire::channel::{CheckedChannel, TRAVELLED};
use crate::wire::value::{code_name, shorten};
use crate::wire::{MAX_REVISION, MIN_REVISION};

/// Largest message an agent may send, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// Largest description an agent may give of itself, in bytes.
const MAX_DESCRIPTION_BYTES: usize = 2 << 20;
/// Time that an agent has to answer `Describe`.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for one attempt to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Pauses between attempts to connect grow from the first to the second.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(25), Duration::from_secs(1));
/// Frames that wait to be taken by the transport; the engine waits when there are more.
const OUTGOING_FRAMES: usize = 64;
/// Bytes that may be on their way to us on one connection, and on one stream of it.
const CONNECTION_WINDOW: u32 = 16 << 20;
const STREAM_WINDOW: u32 = 2 << 20;
/// Error texts travel in headers, and agents write long ones.
const MAX_HEADER_BYTES: u32 = 256 << 10;

/// The capability of whoever stands in for an agent: its statuses may say that the agent cannot be reached, is set up
/// wrong, or cannot be given a case.
pub const STAND_IN: &str = "stand_in";
/// Reason of a status UNAVAILABLE by which a party that stands in for the agent says that it cannot reach it.
pub const AGENT_UNREACHABLE: &str = "AGENT_UNREACHABLE";
/// Reason of a status UNAVAILABLE by which a party says that it is shutting down.
pub const DRAINING: &str = "DRAINING";

/// Reason of a status FAILED_PRECONDITION by which a party that stands in for an agent says that the agent takes no call as things
/// are set up: another address, method or credentials are needed.
pub const AGENT_MISCONFIGURED: &str = "AGENT_MISCONFIGURED";
/// Reason of a status FAILED_PRECONDITION by which a party that stands in for an agent says, before it accepts a call, that the agent
/// cannot be given it, and what of it.
pub const CASE_UNSUPPORTED: &str = "CASE_UNSUPPORTED";

/// An agent that can be called. Cheap to clone; clones share a connection, which is made again when it is lost.
#[derive(Debug, Clone)]
pub struct Agent {
    /// The name by which the daemon knows it.
    pub name: String,
    /// Where it listens, for people.
    pub url: String,
    channel: CheckedChannel,
}

/// Why an agent could not be asked to describe itself.
#[derive(Debug, thiserror::Error)]
pub enum DescribeError {
    /// No connection within the time allowed.
    #[error("{url} cannot be reached: {attempts} attempts in {:.1} s, the last one: {last}", waited.as_secs_f64())]
    Unreachable {
        /// Where it should listen.
        url: String,
        /// Number of attempts.
        attempts: u32,
        /// Time spent.
        waited: Duration,
        /// What came of the last one.
        last: String,
    },
    /// It took the call and did not answer it.
    #[error("{url} is connected, but did not answer Describe within {} s", DESCRIBE_TIMEOUT.as_secs())]
    Silent {
        /// Where it listens.
        url: String,
    },
    /// It answered with an error.
    #[error("{url} answered Describe with {code:?}: {message}")]
    Refused {
        /// Where it listens.
        url: String,
        /// The status code.
        code: Code,
        /// The status message.
        message: String,
    },
    /// It cannot work with this daemon.
    #[error("{url} cannot be used: {problem}")]
    Incompatible {
        /// Where it listens.
        url: String,
        /// Why.
        problem: String,
    },
}

impl Agent {
    /// An agent at an address. Connects at the first call.
    ///
    /// # Errors
    /// When the address cannot be dialled at all.
    pub fn at(name: &str, target: &Target) -> Result<Self, tonic::transport::Error> {
        let endpoint = endpoint(&target.authority())?.connect_timeout(CONNECT_TIMEOUT);
        // Of an HTTP endpoint people know its own address, not that of the adapter in front of it.
        let url = if speaks_http(name) { name.to_owned() } else { target.to_string() };
        Ok(Self { name: name.to_owned(), url, channel: endpoint.connect_lazy().into() })
    }

    /// An agent that is only a name: nothing can be called there.
    #[must_use]
    pub fn nobody(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            url: name.to_owned(),
            channel: Endpoint::from_static("http://[::]:0").connect_lazy().into(),
        }
    }

    /// An agent behind a channel that is there already, such as an in-memory pipe.
    #[must_use]
    pub fn over(name: &str, url: &str, channel: Channel) -> Self {
        Self { name: name.to_owned(), url: url.to_owned(), channel: channel.into() }
    }

    /// The connection, for the other services that an agent may serve.
    pub(super) fn channel(&self) -> CheckedChannel {
        self.channel.clone()
    }

    fn client(&self) -> AgentEndpointClient<CheckedChannel> {
        AgentEndpointClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// Asks the agent who it is. Connecting is repeated for `patience` at most.
    ///
    /// The flag says that the agent does not implement `Describe` and was taken for one of revision 1 without
    /// capabilities.
    ///
    /// # Errors
    /// When it cannot be reached, does not answer, or cannot work with this daemon.
    pub async fn describe(&self, patience: Duration) -> Result<(Description, bool), DescribeError> {
        let url = || self.url.clone();
        let begun = Instant::now();
        let mut backoff = Backoff::new();
        loop {
            // A URL says nothing about the ids that the process behind it knows.
            let agent_id = if Target::looks_like_one(&self.name) { String::new() } else { self.name.clone() };
            let request = DescribeRequest {
                agent_id,
                min_revision: MIN_REVISION,
                max_revision: MAX_REVISION,
                daemon_version: env!("CARGO_PKG_VERSION").to_owned(),
                host_capabilities: Vec::new(),
            };
            let mut client = self.client().max_decoding_message_size(MAX_DESCRIPTION_BYTES);
            let answer = tokio::time::timeout(DESCRIBE_TIMEOUT, client.describe(request)).await;
            let status = match answer {
                Err(_) => return Err(DescribeError::Silent { url: url() }),
                Ok(Ok(answer)) => return self.checked(description_from_proto(answer.into_inner())),
                Ok(Err(status)) => status,
            };
            if speaks_no_grpc(&status) {
                let problem = format!("it answers HTTP, but not gRPC ({})", status.message());
                return Err(DescribeError::Incompatible { url: url(), problem });
            }
            if status.code() == Code::Unimplemented {
                let description = Description { revision: 1, ..Description::default() };
                return Ok((description, true));
            }
            let Some(last) = connection_trouble(&status).or_else(|| trouble_beyond(&status, false, true)) else {
                if let Some(unread) = find::<Unread>(&status) {
                    let problem = format!("its description is not read: {unread}");
                    return Err(DescribeError::Incompatible { url: url(), problem });
                }
                let message = shorten(status.message());
                return Err(DescribeError::Refused { url: url(), code: status.code(), message });
            };
            let pause = backoff.pause();
            if begun.elapsed() + pause >= patience {
                let (attempts, waited) = (backoff.attempts, begun.elapsed());
                return Err(DescribeError::Unreachable { url: url(), attempts, waited, last });
            }
            tokio::time::sleep(pause).await;
        }
    }

    fn checked(&self, mut description: Description) -> Result<(Description, bool), DescribeError> {
        let incompatible = |problem| DescribeError::Incompatible { url: self.url.clone(), problem };
        let undeclared = description.revision == 0;
        if undeclared {
            description = Description { revision: 1, capabilities: Vec::new(), ..description };
        }
        if !(MIN_REVISION..=MAX_REVISION).contains(&description.revision) {
            let problem =
                format!("it speaks revision {}, this daemon {MIN_REVISION} to {MAX_REVISION}", description.revision);
            return Err(incompatible(problem));
        }
        if let Some(capability) = description.required_host_capabilities.first() {
            return Err(incompatible(format!("it requires {capability:?}, which this daemon does not have")));
        }
        Ok((description, undeclared))
    }

    /// Opens a call with `outgoing` as its frames. The deadline header is only a hint: the caller keeps the time.
    ///
    /// # Errors
    /// The status that the agent answered, or the transport made up.
    pub async fn invoke(
        &self,
        outgoing: Outgoing,
        deadline: Duration,
        trace: &TraceHeaders,
    ) -> Result<Streaming<InvokeResponse>, Status> {
        let mut request = traced(outgoing, trace);
        request.set_timeout(deadline);
        Ok(self.client().invoke(request).await?.into_inner())
    }
}

/// A request with its place in a trace in its metadata, where instrumented servers look for it.
pub(super) fn traced<T>(message: T, trace: &TraceHeaders) -> Request<T> {
    let mut request = Request::new(message);
    for (name, value) in trace.iter() {
        // They hold nothing that metadata cannot.
        if let Ok(value) = value.parse() {
            request.metadata_mut().insert(name, value);
        }
    }
    request
}

/// When the system asks a peer that said nothing whether its machine is still there: a call that waits for an answer would not notice
/// that the network or the machine is gone. Pings of HTTP/2 would also notice a process that stands still, but servers of gRPC take more
/// than two in five minutes of silence for an attack and close the connection.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(10);
/// How long the system waits for the answer, each time.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
/// After how many questions without an answer the connection is lost.
const KEEPALIVE_RETRIES: u32 = 3;

/// An endpoint as every connection of Forge is set up: no Nagle delays, large windows, room for long error texts.
///
/// The windows are fixed: with adaptive ones a connection begins with 64 KiB, and h2 takes some hundred small frames that
/// wait to be read for an attack and closes the connection, which is just what an agent that streams its answer sends.
///
/// # Errors
/// When `authority` is no host and port.
pub fn endpoint(authority: &str) -> Result<Endpoint, tonic::transport::Error> {
    Ok(Endpoint::from_shared(format!("http://{authority}"))?
        .tcp_nodelay(true)
        .tcp_keepalive(Some(KEEPALIVE_AFTER))
        .tcp_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .tcp_keepalive_retries(Some(KEEPALIVE_RETRIES))
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_stream_window_size(STREAM_WINDOW)
        .http2_max_header_list_size(MAX_HEADER_BYTES))
}

/// The frames of a call on their way out: the start frame, the pieces of its attachments, then whatever is sent through the
/// channel.
pub struct Outgoing {
    start: Option<InvokeRequest>,
    chunks: Box<dyn Iterator<Item = InvokeRequest> + Send>,
    rest: mpsc::Receiver<InvokeRequest>,
    taken: Arc<OnceLock<Instant>>,
}

/// When the start frame of a call was taken by the transport, if it was.
#[derive(Debug, Clone)]
pub struct Sent(Arc<OnceLock<Instant>>);

impl Sent {
    /// The moment from which the agent's time counts.
    #[must_use]
    pub fn at(&self) -> Option<Instant> {
        self.0.get().copied()
    }
}

impl Outgoing {
    /// Frames that begin with `start` and the pieces of `contents`, a way to send more, and a look at whether the start frame was taken.
    #[must_use]
    pub fn new(start: InvokeRequest, contents: Vec<Content>) -> (Self, mpsc::Sender<InvokeRequest>, Sent) {
        let (sender, rest) = mpsc::channel(OUTGOING_FRAMES);
        let taken = Arc::new(OnceLock::new());
        let sent = Sent(Arc::clone(&taken));
        let chunks = Box::new(chunks_to_proto(contents));
        (Self { start: Some(start), chunks, rest, taken }, sender, sent)
    }
}

impl Stream for Outgoing {
    type Item = InvokeRequest;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<InvokeRequest>> {
        if let Some(start) = self.start.take() {
            self.taken.get_or_init(Instant::now);
            return Poll::Ready(Some(start));
        }
        // Made as the transport takes them, so that its flow control bounds what waits.
        if let Some(chunk) = self.chunks.next() {
            return Poll::Ready(Some(chunk));
        }
        self.rest.poll_recv(cx)
    }
}

/// Pauses between attempts to connect: they double from 25 ms to 1 s, each shortened by up to a half at random, so that
/// many cases do not knock at the same moment.
#[derive(Debug)]
pub struct Backoff {
    attempts: u32,
    next: Duration,
}

impl Backoff {
    /// The pauses from the shortest on.
    #[must_use]
    pub const fn new() -> Self {
        Self { attempts: 0, next: BACKOFF.0 }
    }

    /// The pause after another attempt that failed.
    pub fn pause(&mut self) -> Duration {
        self.attempts += 1;
        let pause = self.next.mul_f64(1.0 - fastrand::f64() / 2.0);
        self.next = (self.next * 2).min(BACKOFF.1);
        pause
    }

    /// Number of attempts that failed.
    #[must_use]
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

/// What is known of a call that did not open, or broke.
pub enum Trouble {
    /// The agent never got the call; it may be repeated.
    NotDelivered(String),
    /// The agent may have got the call; it must not be repeated.
    Over(Failure),
    /// Whoever stands in for the agent cannot reach it, or leaves; what was tried is over.
    Beyond(String),
    /// The agent takes no call as things are set up, and will not take the next one either.
    Misconfigured(String),
}

/// What is known of a call when it ends with a status.
#[derive(Debug, Clone, Copy)]
pub struct Standing {
    /// The transport took the start frame.
    pub sent: bool,
    /// An event came back.
    pub answered: bool,
    /// The other side declares [`STAND_IN`]: it may speak of somebody behind it.
    pub stands_in: bool,
}

/// Sorts a status. What an agent says of itself does not choose who is to blame: only a stand-in knows of an agent that
/// cannot be reached, and of cases that it cannot be given.
#[must_use]
pub fn trouble(status: &Status, Standing { sent, answered, stands_in }: Standing) -> Trouble {
    if !answered
        && (!sent || was_never_processed(status))
        && let Some(message) = connection_trouble(status)
    {
        return Trouble::NotDelivered(message);
    }
    if let Some(unread) = find::<Unread>(status) {
        return Trouble::Over(Failure::Protocol(format!("a message of it is not read: {unread}")));
    }
    if !answered && (speaks_no_grpc(status) || status.code() == Code::Unimplemented) {
        // Whoever listens there, it is not the agent; that says nothing about the agent.
        return Trouble::Over(Failure::Unreachable(format!(
            "nothing there implements Invoke: {}",
            describe_status(status)
        )));
    }
    if let Some(message) = trouble_beyond(status, answered, stands_in) {
        return if answered { Trouble::Over(Failure::Lost(message)) } else { Trouble::Beyond(message) };
    }
    if !answered && status.code() == Code::Unauthenticated {
        // Who asks for credentials will ask for them in every other case, too.
        return Trouble::Misconfigured(describe_status(status));
    }
    let message = || shorten(status.message());
    match status.get_details_error_info().filter(|_| stands_in && status.code() == Code::FailedPrecondition) {
        Some(info) if info.reason == AGENT_MISCONFIGURED => return Trouble::Misconfigured(message()),
        Some(info) if info.reason == CASE_UNSUPPORTED && !answered => {
            return Trouble::Over(Failure::Suite(message()));
        }
        _ => {}
    }
    Trouble::Over(match find::<h2::Error>(status) {
        // We end a connection, or a call, because of what came over it.
        Some(error) if error.is_library() && speaks_http2(error, answered) => {
            let others = if error.is_go_away() { "; all calls on that connection ended with it" } else { "" };
            Failure::Protocol(format!(
                "it sent what HTTP/2 forbids, or so much that nobody would read it (such as very many tiny frames at \
                 once, or headers of more than {} KiB){others}: {error}",
                MAX_HEADER_BYTES >> 10
            ))
        }
        Some(error) if error.is_go_away() && error.is_library() => {
            Failure::Lost(format!("the daemon closed the connection, which all cases of the run share: {error}"))
        }
        Some(error) if error.is_reset() && error.is_remote() => {
            let reason = error.reason().map(|reason| reason.to_string()).unwrap_or_default();
            Failure::Agent(format!("it reset the stream ({reason})"))
        }
        _ => match connection_trouble(status) {
            Some(message) => Failure::Lost(message),
            None => Failure::Agent(describe_status(status)),
        },
    })
}

/// Whether the other side certainly speaks HTTP/2, where we ended what it said: an event came before, or it was understood.
fn speaks_http2(error: &h2::Error, answered: bool) -> bool {
    match error.reason() {
        None | Some(h2::Reason::NO_ERROR | h2::Reason::CANCEL) => false,
        Some(h2::Reason::ENHANCE_YOUR_CALM | h2::Reason::COMPRESSION_ERROR) => true,
        // One call of a connection ends only where all its frames were read.
        Some(_) => answered || error.is_reset(),
    }
}

/// The text of a status that an agent answered.
fn describe_status(status: &Status) -> String {
    let name = code_name(status.code());
    if status.message().is_empty() { name.to_owned() } else { format!("{name}: {}", shorten(status.message())) }
}

/// What went wrong with the connection; `None` when the status came from the agent.
fn connection_trouble(status: &Status) -> Option<String> {
    if find::<Unread>(status).is_some() {
        return None;
    }
    // Statuses that travelled have no source; those that the transport made up keep the error they came from.
    let mut deepest: &dyn std::error::Error = std::error::Error::source(status)?;
    while let Some(next) = deepest.source() {
        deepest = next;
    }
    let text = shorten(&deepest.to_string());
    // What HTTP/1 looks like to an HTTP/2 parser.
    let hint = if text.contains("invalid size") {
        "; it does not seem to speak HTTP/2: is this the port for gRPC?"
    } else {
        ""
    };
    Some(text + hint)
}

/// What went wrong between a party that stands in for the agent and the agent itself, in that party's words. An agent
/// that shuts down may say that for itself, as long as it has not begun to answer.
fn trouble_beyond(status: &Status, answered: bool, stands_in: bool) -> Option<String> {
    let info = status.get_details_error_info().filter(|_| status.code() == Code::Unavailable)?;
    let may_say_so = match info.reason.as_str() {
        AGENT_UNREACHABLE => stands_in,
        DRAINING => stands_in || !answered,
        _ => false,
    };
    may_say_so.then(|| shorten(status.message()))
}

/// Whether the other side answered HTTP without the trailers of gRPC, as web servers and proxies do. tonic makes up a
/// status from the HTTP one then, with this text, and without the mark of one that travelled.
fn speaks_no_grpc(status: &Status) -> bool {
    status.message().starts_with("grpc-status header missing") && !status.metadata().contains_key(TRAVELLED)
}

/// Whether a call certainly did not reach the other side, however it was made: nobody listens there, or it was refused unread.
pub(super) fn was_not_delivered(status: &Status) -> bool {
    let refused = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionRefused;
    was_never_processed(status) || find::<std::io::Error>(status).is_some_and(refused)
}

fn was_never_processed(status: &Status) -> bool {
    find::<h2::Error>(status).is_some_and(|error| {
        error.is_remote() && (error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM))
    })
}

pub(super) fn find<E: std::error::Error + 'static>(status: &Status) -> Option<&E> {
    let mut error = std::error::Error::source(status);
    while let Some(current) = error {
        if let Some(found) = current.downcast_ref::<E>() {
            return Some(found);
        }
        error = current.source();
    }
    None
}
