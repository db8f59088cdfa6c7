//! An agent behind a connection: how it is dialled, asked who it is, and called.
//!
//! When a call may be repeated is decided in [`super::status`], and what it is made of in [`super::call`]. Answers
//! are not accepted compressed: a small frame must not become a large one.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_stream::Stream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};

use super::attach::{AttachedChannel, Hub};
use super::backoff::Backoff;
use super::bent::Bent;
use super::status::{connection_trouble, find, speaks_no_grpc, trouble_beyond};
use super::target::{ATTACHED_SCHEME, Target, speaks_http};
use crate::conversation::Description;
use crate::trace::TraceHeaders;
use crate::wire::agent::agent_endpoint_client::AgentEndpointClient;
use crate::wire::agent::{DescribeRequest, InvokeRequest, InvokeResponse};
use crate::wire::bounded::Unread;
use crate::wire::call::description_from_proto;
use crate::wire::channel::CheckedChannel;
use crate::wire::value::shorten;
use crate::wire::{MAX_REVISION, MIN_REVISION};

/// Largest message an agent may send, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// Largest description an agent may give of itself, in bytes.
pub const MAX_DESCRIPTION_BYTES: usize = 2 << 20;
/// Time that an agent has to answer `Describe`.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for one attempt to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes that may be on their way to us on one connection, and on one stream of it.
const CONNECTION_WINDOW: u32 = 16 << 20;
const STREAM_WINDOW: u32 = 2 << 20;
/// Error texts travel in headers, and agents write long ones.
pub(super) const MAX_HEADER_BYTES: u32 = 256 << 10;

/// An agent that can be called. Cheap to clone; clones share a connection, which is made again when it is lost.
#[derive(Debug, Clone)]
pub struct Agent {
    /// The name by which the daemon knows it.
    pub name: String,
    /// Where it listens, for people.
    pub url: String,
    channel: CheckedChannel,
    /// The rules of its stream that it bent or broke.
    pub bent: Bent,
    /// What its instances are attached to, if they are: they share the calls.
    attached: Option<AttachedChannel>,
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
        Ok(Self {
            name: name.to_owned(),
            url,
            channel: CheckedChannel::new(endpoint.connect_lazy()),
            bent: Bent::default(),
            attached: None,
        })
    }

    /// An agent that is only a name: nothing can be called there.
    #[must_use]
    pub fn nobody(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            url: name.to_owned(),
            channel: CheckedChannel::new(Endpoint::from_static("http://[::]:0").connect_lazy()),
            bent: Bent::default(),
            attached: None,
        }
    }

    /// An agent behind a channel that is there already, such as an in-memory pipe.
    #[must_use]
    pub fn over(name: &str, url: &str, channel: Channel) -> Self {
        Self {
            name: name.to_owned(),
            url: url.to_owned(),
            channel: CheckedChannel::new(channel),
            bent: Bent::default(),
            attached: None,
        }
    }

    /// An agent whose instances dial us under the name `attached`, whether one is attached now or not.
    #[must_use]
    pub fn attached(name: &str, attached: &str, hub: &Arc<Hub>) -> Self {
        let url = if speaks_http(name) { name.to_owned() } else { format!("{ATTACHED_SCHEME}{attached}") };
        let attached = AttachedChannel::new(Arc::clone(hub), attached);
        Self {
            name: name.to_owned(),
            url,
            channel: CheckedChannel::new(attached.clone()),
            bent: Bent::default(),
            attached: Some(attached),
        }
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
                let (attempts, waited) = (backoff.attempts(), begun.elapsed());
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
        if let Some(attached) = &self.attached {
            // One instance answered, and all of them take calls.
            description.max_concurrent_invocations = u32::try_from(attached.slots()).ok();
        }
        Ok((description, undeclared))
    }

    /// Opens a call with `frames`. The deadline header is only a hint: the caller keeps the time.
    ///
    /// # Errors
    /// The status that the agent answered, or the transport made up.
    pub(super) async fn invoke(
        &self,
        frames: impl Stream<Item = InvokeRequest> + Send + 'static,
        deadline: Duration,
        trace: &TraceHeaders,
    ) -> Result<Streaming<InvokeResponse>, Status> {
        let mut request = traced(frames, trace);
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

/// When the system asks a peer that said nothing whether its machine is still there: a call that waits for an
/// answer would not notice that the network or the machine is gone. Pings of HTTP/2 would also notice a process
/// that stands still, but servers of gRPC take more than two in five minutes of silence for an attack and close the
/// connection.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(10);
/// How long the system waits for the answer, each time.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
/// After how many questions without an answer the connection is lost.
const KEEPALIVE_RETRIES: u32 = 3;

/// An endpoint as every connection of Forge is set up: no Nagle delays, large windows, room for long error texts.
///
/// The windows are fixed: with adaptive ones a connection begins with 64 KiB, and h2 takes some hundred small
/// frames that wait to be read for an attack and closes the connection, which is just what an agent that streams
/// its answer sends.
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
