//! Forge runs eval suites against agents and says honestly what came of it.
//!
//! The modules stand in the order of the flow, and each imports only those above it.
//!
//! The text of a suite file becomes a [`suite::Suite`], or all its errors at once. Suites travel in a [`bundle`]
//! from the client to the daemon, where a request and its suites become a [`plan`]: which cases run, in which
//! order. The engine ([`run`]) calls the agent ([`peer`]) for each case and records a [`conversation::Transcript`];
//! [`check`] turns case and transcript into a [`verdict`]. Everything that happens is an [`event`] in the log of
//! the run, which the [`store`] keeps, watchers follow, [`report`] turns into what people read and [`telemetry`]
//! into traces.
//!
//! The core, down to [`event`], is plain data and functions: no I/O, no clock. [`wire`] is the only module that
//! knows the generated code. [`daemon`] serves, [`sidecar`] stands in for agents, [`cli`] is what people type.

pub mod text;
pub mod limits;
pub mod work;
pub mod json;
pub mod case;
pub mod trace;
pub mod conversation;
pub mod usage;
pub mod suite;
pub mod bundle;
pub mod stats;
pub mod verdict;
pub mod plan;
pub mod check;
pub mod event;
pub mod wire;
pub mod tls;
pub mod peer;
pub mod script;
pub mod run;
pub mod report;
pub mod store;
pub mod telemetry;
pub mod daemon;
pub mod sidecar;
pub mod cli;

/// Version, build and protocol revision, as `--version` shows them.
#[must_use]
pub const fn version() -> &'static str {
    concat!(env!("CARGO_PKG_VERSION"), " (build ", env!("FORGE_BUILD"), ", protocol revision 1)")
}
