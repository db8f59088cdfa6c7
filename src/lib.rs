//! Forge runs eval suites against agents and says honestly what came of it.
#![forbid(unsafe_code)]
pub mod json;
pub mod conversation;
pub mod suite;
pub mod bundle;
pub mod plan;
pub mod verdict;
pub mod check;
pub mod event;
pub mod wire;
pub mod peer;
pub mod store;
pub mod run;
pub mod report;
pub mod daemon;
pub mod cli;

/// Version, build and protocol revision, as `--version` shows them.
#[must_use]
pub const fn version() -> &'static str {
    concat!(env!("CARGO_PKG_VERSION"), " (build ", env!("FORGE_BUILD"), ", protocol revision 1)")
}
