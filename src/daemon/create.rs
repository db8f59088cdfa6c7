//! Why a run is not accepted.

use std::time::Duration;

use super::memory::Short;
use crate::bundle::BundleError;
use crate::limits::{SPEC_BYTES, WAITING_RUNS};
use crate::peer::directory::DirectoryError;
use crate::plan::PlanError;
use crate::script::reading::ReadError;
use crate::store::StoreError;
use crate::store::bundles::BundlesError;
use crate::suite::error::SuiteErrors;

/// Why a run was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The daemon stops.
    #[error("the daemon is stopping and takes no new runs")]
    Stopping,
    /// The bundle is not here, or not readable.
    #[error(transparent)]
    Bundles(#[from] BundlesError),
    /// The bundle is not what a bundle must be.
    #[error("the bundle cannot be opened")]
    Bundle(#[from] BundleError),
    /// A suite is named that the bundle does not hold.
    #[error("the bundle holds no file {0:?}")]
    NoSuchSuite(String),
    /// The baseline is no result.
    #[error("the baseline {0}: {1}")]
    Baseline(String, String),
    /// The suites are invalid.
    #[error(transparent)]
    Suites(#[from] SuiteErrors),
    /// The bundle holds a snapshot, and somebody shall be asked for one.
    #[error("the bundle holds a snapshot, and snapshot_agent_id names somebody to ask for one")]
    TwoSnapshots,
    /// A drop against a baseline is limited, and there is none.
    #[error("gate.max_regression needs a baseline in the bundle, and there is none")]
    NoBaseline,
    /// The run that is to be played back is about another agent.
    #[error("the run {0} recorded the agent {1:?}, and only its answers can be played back")]
    OtherAgent(String, String),
    /// There is nothing to run.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The agent is not known, or must not be dialled.
    #[error(transparent)]
    Agent(#[from] DirectoryError),
    /// The scripts or the tool registry could not be read, which is not their fault.
    #[error("scripts cannot be read now: {0}")]
    Reading(String),
    /// The run cannot be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no room to open its bundle now.
    #[error("the daemon opens other bundles, or has too many open; try again when a run is over")]
    Busy,
    /// Too many runs wait.
    #[error(
        "too many runs wait already: at most {WAITING_RUNS}, and at most three quarters of them of one client or for one agent"
    )]
    TooManyWait,
    /// What was asked for of all runs that are not over is too much.
    #[error(
        "what was asked for of all runs that are not over has at most {} MiB; try again when one is over",
        SPEC_BYTES >> 20
    )]
    SpecsFull,
    /// There is too little memory.
    #[error(transparent)]
    Memory(#[from] Short),
    /// Reading the suites takes too long.
    #[error("reading the suites takes more than {} s of CPU time, which is the most for a bundle of its size", .0.as_secs())]
    TooLong(Duration),
    /// Reading the suites died.
    #[error("the daemon failed while it read the suites")]
    Died,
}

impl From<ReadError> for CreateError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Wrong(found) => Self::Suites(SuiteErrors(found)),
            ReadError::Failed(why) => Self::Reading(why),
        }
    }
}
