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
pub mod sidecar;
