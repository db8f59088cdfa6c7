//! What the status means with which a call ended: whether the call may be repeated, and who is to blame.
//!
//! Connecting may be repeated freely, a call that was handed over never: an agent must not do its work twice
//! because the network hiccuped. The line between the two is the start frame: [`Outgoing`](super::call) notes when
//! the transport took it. A transport that took the frame and then says that the stream was never processed (RFC
//! 9113, section 8.7: a refused stream, or one above the last one of a GOAWAY) is believed, so that an agent can
//! restart between two cases.

use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::agent::MAX_HEADER_BYTES;
use super::attach::AttachError;
use crate::conversation::Failure;
use crate::text::deepest;
use crate::wire::bounded::Unread;
use crate::wire::channel::TRAVELLED;
use crate::wire::value::{code_name, shorten};

/// The capability of a sidecar, which stands in for an agent: its statuses may say that the agent cannot be
/// reached, is set up wrong, or cannot be given a case.
pub const STAND_IN: &str = "stand_in";
/// Reason of a status UNAVAILABLE by which a party that stands in for the agent says that it cannot reach it.
pub const AGENT_UNREACHABLE: &str = "AGENT_UNREACHABLE";
/// Reason of a status UNAVAILABLE by which a party says that it is shutting down.
pub const DRAINING: &str = "DRAINING";

/// Reason of a status FAILED_PRECONDITION by which a party that stands in for an agent says that the agent takes no
/// call as things are set up: another address, method or credentials are needed.
pub const AGENT_MISCONFIGURED: &str = "AGENT_MISCONFIGURED";
/// Reason of a status FAILED_PRECONDITION by which a party that stands in for an agent says, before it accepts a
/// call, that the agent cannot be given it, and what of it.
pub const CASE_UNSUPPORTED: &str = "CASE_UNSUPPORTED";

/// What is known of a call that did not open, or broke.
pub(super) enum BrokenCall {
    /// The agent never got the call; it may be repeated.
    NotDelivered(String),
    /// The agent may have got the call; it must not be repeated.
    Over(Failure),
    /// The sidecar that stands in for the agent cannot reach it, or leaves; what was tried is over.
    Beyond(String),
    /// The agent takes no call as things are set up, and will not take the next one either.
    Misconfigured(String),
}

/// What is known of a call when it ends with a status.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    /// The transport took the start frame.
    pub(super) sent: bool,
    /// An event came back.
    pub(super) answered: bool,
    /// The other side declares [`STAND_IN`]: it may speak of somebody behind it.
    pub(super) stands_in: bool,
}

/// Sorts a status. What an agent says of itself does not choose who is to blame: only a stand-in knows of an agent that
/// cannot be reached, and of cases that it cannot be given.
pub(super) fn trouble(status: &Status, Standing { sent, answered, stands_in }: Standing) -> BrokenCall {
    if !answered
        && (!sent || was_never_processed(status))
        && let Some(message) = connection_trouble(status)
    {
        return BrokenCall::NotDelivered(message);
    }
    if let Some(unread) = find::<Unread>(status) {
        return BrokenCall::Over(Failure::Protocol(format!("a message of it is not read: {unread}")));
    }
    if !answered && (speaks_no_grpc(status) || status.code() == Code::Unimplemented) {
        // Another program than the agent listens there; that says nothing about the agent.
        return BrokenCall::Over(Failure::Unreachable(format!(
            "nothing there implements Invoke: {}",
            describe_status(status)
        )));
    }
    if let Some(message) = trouble_beyond(status, answered, stands_in) {
        return if answered { BrokenCall::Over(Failure::Lost(message)) } else { BrokenCall::Beyond(message) };
    }
    if !answered && status.code() == Code::Unauthenticated {
        // Who asks for credentials will ask for them in every other case, too.
        return BrokenCall::Misconfigured(describe_status(status));
    }
    let message = || shorten(status.message());
    match status.get_details_error_info().filter(|_| stands_in && status.code() == Code::FailedPrecondition) {
        Some(info) if info.reason == AGENT_MISCONFIGURED => return BrokenCall::Misconfigured(message()),
        Some(info) if info.reason == CASE_UNSUPPORTED && !answered => {
            return BrokenCall::Over(Failure::Suite(message()));
        }
        _ => {}
    }
    BrokenCall::Over(match find::<h2::Error>(status) {
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

/// Whether the other side certainly speaks HTTP/2, where we ended what it said: an event came before, or it was
/// understood.
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
pub(super) fn connection_trouble(status: &Status) -> Option<String> {
    if find::<Unread>(status).is_some() {
        return None;
    }
    // Statuses that travelled have no source; those that the transport made up keep the error they came from.
    let text = shorten(&deepest(std::error::Error::source(status)?));
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
pub(super) fn trouble_beyond(status: &Status, answered: bool, stands_in: bool) -> Option<String> {
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
pub(super) fn speaks_no_grpc(status: &Status) -> bool {
    status.message().starts_with("grpc-status header missing") && !status.metadata().contains_key(TRAVELLED)
}

/// Whether a call certainly did not reach the other side, however it was made: nobody listens there, or it was
/// refused unread.
#[must_use]
pub fn was_not_delivered(status: &Status) -> bool {
    let refused = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionRefused;
    was_never_processed(status) || find::<std::io::Error>(status).is_some_and(refused)
}

fn was_never_processed(status: &Status) -> bool {
    if let Some(error) = find::<AttachError>(status) {
        return matches!(error, AttachError::NotAttached(_) | AttachError::NotTaken);
    }
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
