//! Agents that have no port of their own: they dial the daemon, and calls of them go over the stream that they opened.
//!
//! [`Hub`] knows who is attached and who has a slot free. A [`Session`] is one stream with the calls that are open on
//! it, under the credit that both sides give each other ([`windows`]). [`AttachedChannel`] is what the clients of gRPC
//! are put upon: a call of an attached agent is made, judged and given up like any other.

mod channel;
mod hub;
mod session;
pub mod windows;

pub use channel::AttachedChannel;
pub use hub::{Entry, Hub, Instance, is_name};
pub use session::{Identity, Offer, Outgoing, PING_INTERVAL, SIZES, Session};

use super::agent::MAX_MESSAGE_BYTES;

/// Most calls that are open on one stream.
pub const MAX_CALLS: usize = 256;
/// Most agents that one process attaches.
pub const MAX_OFFERS: usize = 100;
/// Largest frame of an attached stream, in bytes: a message of an agent, and what is around it.
pub const MAX_FRAME_BYTES: usize = MAX_MESSAGE_BYTES + (1 << 10);

/// Why a call of an attached agent did not work, apart from what the agent says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// Nobody serves the agent now. One that was attached may come back.
    #[error("no instance of {0:?} is attached")]
    NotAttached(String),
    /// The stream ended before the call was given to it.
    #[error("the instance left before it was given the call")]
    NotTaken,
    /// The stream ended while the call was open.
    #[error("the attached stream ended: {0}")]
    Lost(String),
    /// What is called makes no sense of gRPC.
    #[error("the call cannot be sent: {0}")]
    Unsendable(String),
}
