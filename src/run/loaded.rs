//! A case that is run: read if it was not held, and announced in the log.

use std::sync::Arc;

use tokio::task::JoinError;
use tokio::time::Instant;

use super::shared::Shared;
use crate::case::CaseRef;
use crate::conversation::ToolMode;
use crate::peer::party::Belongs;
use crate::plan::PlannedCase;
use crate::suite::cases::LoadError;
use crate::suite::timeout::Timeout;
use crate::suite::{Case, Dialogue, Suite};

/// A case with everything that its run needs.
#[derive(Debug, Clone)]
pub(super) struct Loaded {
    pub(super) suite: Arc<Suite>,
    pub(super) case: Arc<Case>,
}

/// Why a case cannot be read again.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadFailed {
    /// Its file is not what it was.
    #[error(transparent)]
    File(#[from] LoadError),
    /// The task that read it died.
    #[error("the daemon failed while it read the case: {0}")]
    Task(#[from] JoinError),
}

/// Reads the case again if it is not held, which waits for a disk.
pub(super) async fn load(planned: &PlannedCase) -> Result<Loaded, LoadFailed> {
    let suite = Arc::clone(&planned.suite);
    let loaded = if planned.head().held().is_some() {
        planned.load()
    } else {
        let planned = planned.clone();
        tokio::task::spawn_blocking(move || planned.load()).await?
    };
    Ok(Loaded { suite, case: loaded? })
}

/// A case that was announced in the log.
pub(super) struct Started {
    /// Id of its first call of the agent.
    pub(super) invocation_id: String,
    pub(super) tool_mode: ToolMode,
    pub(super) timeout: Timeout,
    /// When its time is up.
    pub(super) deadline: Instant,
}

/// What a dialogue needs to know of its case.
pub(super) struct Drive<'a> {
    pub(super) shared: &'a Shared,
    pub(super) loaded: &'a Loaded,
    pub(super) case_ref: &'a CaseRef,
    pub(super) dialogue: &'a Dialogue,
    pub(super) started: Started,
}

impl Drive<'_> {
    /// What questions in a turn of it belong to.
    pub(super) fn belongs(&self, turn: u32, deadline: Instant) -> Belongs {
        Belongs::to_case(&self.shared.run_id, self.case_ref, turn, deadline, &self.shared.outputs)
    }
}
