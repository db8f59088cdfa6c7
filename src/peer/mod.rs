//! Other parties on the far side of a wire: where agents are, how they are called, and the rules of a stream.
//!
//! [`target`] reads addresses and says which are allowed, [`directory`] knows agents by name, and [`agent`] dials one,
//! unless it dialled the daemon itself and is attached ([`attach`]). [`call`] is one call from the start frame to the
//! farewell: [`status`] decides when it may be repeated, with a pause by [`backoff`], [`stream`] holds the agent to the
//! protocol and keeps the record, [`bent`] counts which rules it bent, [`turns`] counts its model turns, and [`output`]
//! counts the bytes of all calls. [`party`] asks simulators and validators, which [`plain`] agents may be, and
//! [`digest`] names what they and agents are asked. [`generator`] asks for cases, [`snapshot`] for today's values.
//! [`spans`] are evidence of what an agent did besides what it says.

pub mod agent;
pub mod attach;
pub mod backoff;
pub mod bent;
pub mod call;
pub mod digest;
pub mod directory;
pub mod generator;
pub mod output;
pub mod party;
pub mod plain;
pub mod snapshot;
pub mod spans;
mod said;
pub mod status;
pub mod stream;
pub mod target;
pub mod turns;
