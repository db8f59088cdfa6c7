//! What the data-driven runners are made of.
//!
//! Both read folders of cases into [`tally::Item`]s and hand them to [`tally::conclude`], which knows the list of
//! known gaps. [`vector`], [`engine`] and [`framework`] are for the vectors; [`scenario`], [`process`],
//! [`observed`] and [`expectations`] for the scenarios. [`endpoint`] is an HTTP server for tests that are code;
//! [`fake`] an agent, and [`telemetry`] receivers of spans.

pub(crate) mod endpoint;
pub(crate) mod engine;
pub(crate) mod expectations;
pub(crate) mod fake;
pub(crate) mod framework;
pub(crate) mod gaps;
pub(crate) mod observed;
pub(crate) mod process;
pub(crate) mod scenario;
pub(crate) mod tally;
pub(crate) mod telemetry;
pub(crate) mod vector;

use std::path::{Path, PathBuf};

/// A folder of the project, such as `tests/vectors`.
pub(crate) fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The folder that holds the data, and whether it is the project's own: `variable` may name another one.
pub(crate) fn data_folder(variable: &str, own: &str) -> (PathBuf, bool) {
    let own = project(own);
    match std::env::var_os(variable).filter(|folder| !folder.is_empty()) {
        None => (own, true),
        Some(folder) => {
            let folder = PathBuf::from(folder);
            let is_own = folder.canonicalize().ok() == own.canonicalize().ok();
            (folder, is_own)
        }
    }
}
