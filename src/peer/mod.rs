//! Other parties on the far side of a wire: where agents are, how they are called, and the rules of a stream.
//!
//! [`target`] reads addresses and says which are allowed, [`directory`] knows agents by name, [`agent`] makes calls and
//! decides when one may be repeated, [`party`] asks simulators and validators, [`generator`] asks for cases, [`output`]
//! counts what comes of calls, [`snapshot`] asks for today's values, [`stream`] holds an agent to the protocol and keeps
//! the record of a call, [`turns`] counts its model turns, and [`spans`] are evidence of what it did besides what it says.

pub mod agent;
pub mod directory;
pub mod generator;
pub mod output;
pub mod party;
pub mod plain;
pub mod snapshot;
pub mod spans;
mod said;
pub mod stream;
pub mod target;
pub mod turns;
