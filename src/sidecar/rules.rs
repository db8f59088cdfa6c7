//! What every stand-in checks of a call in the same way.

use std::collections::HashMap;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::wire::agent::{DescribeRequest, InvokeStart, ToolMode};
use crate::wire::{MAX_REVISION, MIN_REVISION};

/// The revision to speak: the newest that both sides know.
pub(super) fn revision(request: &DescribeRequest) -> Result<u32, Status> {
    // 0 does not exist; people with a generic client leave the field out.
    let newest = if request.max_revision == 0 { MAX_REVISION } else { request.max_revision.min(MAX_REVISION) };
    if newest < request.min_revision.max(MIN_REVISION) {
        let message = format!("this agent speaks the revisions {MIN_REVISION} to {MAX_REVISION}");
        return Err(with_reason(Code::FailedPrecondition, "REVISION_UNSUPPORTED", &message));
    }
    Ok(newest)
}

/// The mode of a call that may be taken on.
pub(super) fn opening(start: &InvokeStart) -> Result<ToolMode, Status> {
    if start.invocation_id.is_empty() {
        return Err(Status::invalid_argument("start.invocation_id must not be empty"));
    }
    let mode = match ToolMode::try_from(start.tool_mode) {
        Ok(ToolMode::Unspecified) | Err(_) => {
            return Err(Status::invalid_argument(format!("start.tool_mode must not be {}", start.tool_mode)));
        }
        Ok(mode) => mode,
    };
    if start.probe.is_some() {
        return Err(Status::failed_precondition("start.probe is not supported"));
    }
    Ok(mode)
}

/// A status that programs can read too.
pub(super) fn with_reason(code: Code, reason: &str, message: &str) -> Status {
    let details = ErrorDetails::with_error_info(reason, "forge.agent.v1", HashMap::new());
    Status::with_error_details(code, message, details)
}

/// A call that came before.
pub(super) fn known(invocation_id: &str) -> Status {
    Status::already_exists(format!("start.invocation_id {invocation_id:?} is known"))
}
