//! `AttachService`: agents that dial the daemon.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Code, Request, Response, Status, Streaming};

use super::intake::peer_of;
use super::status::with_reason;
use crate::peer::agent::{MAX_DESCRIPTION_BYTES, MAX_MESSAGE_BYTES};
use crate::peer::attach::windows::Sizes;
use crate::peer::attach::{Entry, Identity, MAX_OFFERS, Offer, Outgoing, PING_INTERVAL, SIZES, Session, is_name};
use crate::peer::directory::Directory;
use crate::telemetry::metrics::Metrics;
use crate::wire::attach::attach_service_server::AttachService;
use crate::wire::attach::{
    AttachRequest, AttachResponse, AttachedAgent, Hello, Welcome, attach_request, attach_response,
};
use crate::wire::call::description_from_proto;
use crate::wire::value::{duration_to_proto, shorten};
use crate::wire::{MAX_REVISION, MIN_REVISION};

/// Time until an agent says who it is.
const HELLO: Duration = Duration::from_secs(5);
/// Longest id of an instance, in bytes.
const MAX_ID: usize = 200;
/// Credit of agents that do not say how much they give.
const DEFAULT: Sizes = Sizes { call: 64 << 10, stream: 1 << 20 };

/// Takes in agents that dial the daemon. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Attach {
    directory: Arc<Directory>,
    metrics: Arc<Metrics>,
    stopped: CancellationToken,
    /// The streams that are open.
    sessions: TaskTracker,
}

impl Attach {
    pub(super) fn new(directory: Arc<Directory>, metrics: Arc<Metrics>) -> Self {
        metrics.watch_attached(directory.attached());
        Self { directory, metrics, stopped: CancellationToken::new(), sessions: TaskTracker::new() }
    }

    /// Ends all sessions, and takes in nobody else.
    pub(super) async fn stop(&self) {
        self.stopped.cancel();
        self.sessions.close();
        self.sessions.wait().await;
    }

    /// One stream, from its first frame to its end.
    async fn serve(self, mut frames: Streaming<AttachRequest>, address: String, outgoing: Outgoing) {
        let hello = tokio::select! {
            hello = tokio::time::timeout(HELLO, frames.next()) => hello,
            () = self.stopped.cancelled() => return,
        };
        let mut is_back = false;
        let entered = match hello {
            Err(_) => Err(Status::deadline_exceeded(format!("no hello came within {} s", HELLO.as_secs()))),
            Ok(None) => return,
            Ok(Some(Err(status))) => Err(status),
            Ok(Some(Ok(AttachRequest { frame: Some(attach_request::Frame::Hello(hello)) }))) => {
                is_back = !hello.previous_session_id.is_empty();
                self.enter(hello, &address, &outgoing)
            }
            Ok(Some(Ok(_))) => Err(Status::invalid_argument("hello: comes first")),
        };
        let session = match entered {
            Ok(session) => session,
            Err(status) => {
                tracing::info!(address, why = ?status.message(), "an agent could not attach");
                self.metrics.attached("refused");
                let _ = outgoing.send(Err(status));
                return;
            }
        };
        self.metrics.attached(if is_back { "returned" } else { "new" });
        let names: Vec<&str> = session.who.offers.iter().map(|offer| offer.agent_id.as_str()).collect();
        let instance = &session.who.instance_id;
        tracing::info!(agents = ?names, ?instance, address, session = session.id, "an agent attached");
        let (status, reason) = tokio::select! {
            status = session.read(frames) => {
                let reason = reason(&status, session.is_draining());
                (status, reason)
            }
            () = self.stopped.cancelled() => {
                session.end("the daemon is shutting down");
                (Status::unavailable("the daemon is shutting down"), "shutdown")
            }
        };
        self.metrics.detached(reason);
        self.directory.attached().leave(&session);
        let why = session.why();
        tracing::info!(agents = ?names, ?instance, address, session = session.id, ?why, "an agent is no longer attached");
        if status.code() != Code::Ok {
            let _ = outgoing.send(Err(status));
        }
    }

    /// Takes in who said hello, and welcomes it.
    fn enter(&self, hello: Hello, address: &str, outgoing: &Outgoing) -> Result<Arc<Session>, Status> {
        if hello.encoded_len() > MAX_DESCRIPTION_BYTES {
            let message =
                format!("hello: what the agents say about themselves has more than {MAX_DESCRIPTION_BYTES} bytes");
            return Err(Status::resource_exhausted(message));
        }
        let Hello { min_revision, max_revision, agents, instance_id, previous_session_id, .. } = hello;
        if min_revision == 0 || max_revision < min_revision {
            return Err(Status::invalid_argument("hello: min_revision is at least 1, and max_revision not below it"));
        }
        let revision = max_revision.min(MAX_REVISION);
        if revision < min_revision.max(MIN_REVISION) {
            let message = format!(
                "this daemon speaks revisions {MIN_REVISION} to {MAX_REVISION}, the agent {min_revision} to {max_revision}"
            );
            return Err(with_reason(Code::FailedPrecondition, "REVISION_UNSUPPORTED", message));
        }
        if instance_id.is_empty() || instance_id.len() > MAX_ID || instance_id.chars().any(char::is_control) {
            let message = format!("hello.instance_id: 1 to {MAX_ID} bytes without control characters, such as a UUID");
            return Err(Status::invalid_argument(message));
        }
        let offers = self.offers(agents)?;
        let or = |given: u32, default: u32| if given == 0 { default } else { given };
        let theirs = Sizes {
            call: or(hello.initial_window_bytes, DEFAULT.call),
            stream: or(hello.stream_window_bytes, DEFAULT.stream),
        };
        let who = Identity { instance_id, address: address.to_owned(), offers, is_temporary: hello.temporary };
        let session = self.directory.attached().enter(who, &previous_session_id, theirs, outgoing, |session| {
            let welcome = Welcome {
                revision,
                session_id: session.id.clone(),
                ping_interval: Some(duration_to_proto(PING_INTERVAL)),
                initial_window_bytes: SIZES.call,
                stream_window_bytes: SIZES.stream,
                max_message_bytes: u32::try_from(MAX_MESSAGE_BYTES).unwrap_or(u32::MAX),
            };
            Ok(AttachResponse { frame: Some(attach_response::Frame::Welcome(welcome)) })
        });
        session.map_err(|error| match error {
            Entry::Claimed(_) => Status::already_exists(error.to_string()),
            Entry::Full => Status::resource_exhausted(error.to_string()),
        })
    }

    fn offers(&self, agents: Vec<AttachedAgent>) -> Result<Vec<Offer>, Status> {
        if agents.is_empty() || agents.len() > MAX_OFFERS {
            return Err(Status::invalid_argument(format!("hello.agents: 1 to {MAX_OFFERS} agents")));
        }
        let mut seen = HashSet::new();
        let offers = agents.into_iter().enumerate().map(|(place, AttachedAgent { agent_id, describe })| {
            let field = format!("hello.agents[{place}].agent_id");
            if !is_name(&agent_id) {
                let message = format!("{field}: {:?} is no name for an agent: use letters, digits, '.', '_' and '-'", shorten(&agent_id));
                return Err(Status::invalid_argument(message));
            }
            if !seen.insert(agent_id.clone()) {
                return Err(Status::invalid_argument(format!("{field}: {agent_id:?} stands there twice")));
            }
            if self.directory.has(&agent_id) {
                let message = format!("{field}: {agent_id:?} is an agent that the daemon dials; attach under another name, or remove that one with `forgectl agents remove`");
                return Err(Status::already_exists(message));
            }
            let description = description_from_proto(describe.unwrap_or_default());
            Ok(Offer {
                agent_id,
                most_at_once: description.max_concurrent_invocations,
                version: shorten(&description.card.version),
                description: Some(Arc::new(description)),
            })
        });
        offers.collect()
    }
}

/// Why a stream ended, as metrics name it.
fn reason(status: &Status, is_draining: bool) -> &'static str {
    match status.code() {
        Code::Ok if is_draining => "left",
        Code::Ok => "closed",
        Code::Aborted => "taken_over",
        // What the transport makes up has a cause.
        _ if std::error::Error::source(status).is_some() => "connection_lost",
        Code::Unavailable => "silent",
        Code::InvalidArgument | Code::ResourceExhausted => "rule_broken",
        _ => "connection_lost",
    }
}

#[tonic::async_trait]
impl AttachService for Attach {
    type AttachStream = UnboundedReceiverStream<Result<AttachResponse, Status>>;

    async fn attach(&self, request: Request<Streaming<AttachRequest>>) -> Result<Response<Self::AttachStream>, Status> {
        let peer = peer_of(request.extensions());
        if !peer.to_canonical().is_loopback() {
            let message = "agents attach over loopback only, until they can show who they are; use a tunnel";
            return Err(Status::permission_denied(message));
        }
        let (outgoing, stream) = mpsc::unbounded_channel();
        self.sessions.spawn(self.clone().serve(request.into_inner(), peer.to_string(), outgoing));
        Ok(Response::new(UnboundedReceiverStream::new(stream)))
    }
}
