//! Errors → statuses, in one place. The machine-readable reason travels as `google.rpc.ErrorInfo` of the domain
//! [`DOMAIN`]; a suite's findings travel as `google.rpc.BadRequest`, one violation each.

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt as _};

use super::create::CreateError;
use super::memory::Short;
use crate::peer::agent::DescribeError;
use crate::peer::directory::DirectoryError;
use crate::plan::PlanError;
use crate::store::StoreError;
use crate::store::bundles::BundlesError;
use crate::suite::error::SuiteErrors;
pub(super) use crate::text::chain;
use crate::wire::value::WireError;

/// Domain of the reasons.
pub const DOMAIN: &str = "forge";
/// The bundle has to be uploaded first.
pub const BUNDLE_MISSING: &str = "BUNDLE_MISSING";
/// A suite is invalid.
pub const SUITE_INVALID: &str = "SUITE_INVALID";
/// There is nothing to run.
pub const NOTHING_SELECTED: &str = "NOTHING_SELECTED";
/// A value of the request cannot be taken.
pub const INVALID: &str = "INVALID";
/// There is no such run.
pub const UNKNOWN_RUN: &str = "UNKNOWN_RUN";
/// There is no such agent, or it must not be named.
pub const AGENT_INVALID: &str = "AGENT_INVALID";

/// The answer had to make room for others; the same works in a moment.
pub const BUSY: &str = "BUSY";
/// There is too little memory for anything new.
pub const NO_MEMORY: &str = "NO_MEMORY";
/// There is no room on the disk, or for what was asked for.
pub const NO_ROOM: &str = "NO_ROOM";

/// Most findings that travel in a status: it has to fit into headers.
const MAX_FINDINGS: usize = 100;

/// A status with a reason for programs.
pub(super) fn with_reason(code: Code, reason: &str, message: impl Into<String>) -> Status {
    let details = ErrorDetails::with_error_info(reason, DOMAIN, std::collections::HashMap::new());
    Status::with_error_details(code, message, details)
}

/// A run that was not accepted.
#[must_use]
pub fn of_create(error: &CreateError) -> Status {
    match error {
        CreateError::Stopping => with_reason(Code::Unavailable, "DRAINING", error.to_string()),
        CreateError::Bundles(error) => of_bundles(error),
        CreateError::Bundle(_)
        | CreateError::NoSuchSuite(_)
        | CreateError::Baseline(..)
        | CreateError::NoBaseline
        | CreateError::OtherAgent(..)
        | CreateError::TooLong(_)
        | CreateError::TwoSnapshots => with_reason(Code::InvalidArgument, INVALID, chain(error)),
        CreateError::Suites(errors) => of_suites(errors),
        CreateError::Plan(PlanError::Pattern { .. } | PlanError::Patterns { .. } | PlanError::TooMany) => {
            with_reason(Code::InvalidArgument, INVALID, error.to_string())
        }
        CreateError::Plan(PlanError::NothingSelected(_)) => {
            with_reason(Code::FailedPrecondition, NOTHING_SELECTED, error.to_string())
        }
        CreateError::Agent(error) => of_directory(error),
        CreateError::Store(error) => of_store(error),
        CreateError::Busy => with_reason(Code::ResourceExhausted, "BUSY", error.to_string()),
        CreateError::TooManyWait => with_reason(Code::ResourceExhausted, "TOO_MANY_RUNS", error.to_string()),
        CreateError::Reading(_) => with_reason(Code::ResourceExhausted, "NO_PROCESS", error.to_string()),
        CreateError::SpecsFull => with_reason(Code::ResourceExhausted, NO_ROOM, error.to_string()),
        CreateError::Memory(short) => of_memory(*short),
        CreateError::Died => Status::internal(error.to_string()),
    }
}

/// Something new for which there is no memory.
pub(super) fn of_memory(short: Short) -> Status {
    with_reason(Code::ResourceExhausted, NO_MEMORY, short.to_string())
}

fn of_suites(errors: &SuiteErrors) -> Status {
    let all = errors.0.len();
    let violations = errors.0.iter().take(MAX_FINDINGS).map(|finding| {
        let field = finding.field.clone().unwrap_or_default();
        FieldViolation {
            field,
            description: finding.to_string(),
            reason: SUITE_INVALID.to_owned(),
            localized_message: None,
        }
    });
    let violations: Vec<FieldViolation> = violations.collect();
    let more = all.saturating_sub(MAX_FINDINGS);
    let note = if more > 0 { format!("; {more} more are not shown") } else { String::new() };
    let mut details = ErrorDetails::with_bad_request(violations);
    details.set_error_info(SUITE_INVALID, DOMAIN, std::collections::HashMap::new());
    let errors = if all == 1 { "1 error".to_owned() } else { format!("{all} errors") };
    Status::with_error_details(Code::InvalidArgument, format!("the suite is invalid: {errors}{note}"), details)
}

/// A bundle that cannot be taken or found.
#[must_use]
pub fn of_bundles(error: &BundlesError) -> Status {
    match error {
        BundlesError::Missing(_) => {
            let mut details = ErrorDetails::with_precondition_failure_violation("MISSING", "bundle", error.to_string());
            details.set_error_info(BUNDLE_MISSING, DOMAIN, std::collections::HashMap::new());
            Status::with_error_details(Code::FailedPrecondition, error.to_string(), details)
        }
        BundlesError::Mismatch(_) => with_reason(Code::InvalidArgument, INVALID, error.to_string()),
        BundlesError::NoRoom { .. } => with_reason(Code::ResourceExhausted, NO_ROOM, error.to_string()),
        BundlesError::Io { .. } => {
            // The client learns that it did not work, the operator where and why.
            tracing::error!(error = %chain(error), "a bundle could not be stored or read");
            if error.is_no_room() {
                return with_reason(Code::ResourceExhausted, NO_ROOM, "the daemon has no room for the bundle");
            }
            Status::internal("the daemon could not store or read the bundle; its log says why")
        }
    }
}

/// A run that cannot be found or kept.
#[must_use]
pub fn of_store(error: &StoreError) -> Status {
    if error.is_trouble() {
        tracing::error!(%error, "the store did not do what a client asked for");
    }
    let message = error.for_clients();
    match error {
        StoreError::UnknownRun(_) => with_reason(Code::NotFound, UNKNOWN_RUN, message),
        StoreError::RequestIdReused(_) => with_reason(Code::AlreadyExists, "REQUEST_ID_REUSED", message),
        StoreError::Full(_) => with_reason(Code::ResourceExhausted, "TOO_MANY_RUNS", message),
        StoreError::NotOver(_) => with_reason(Code::FailedPrecondition, "RUN_NOT_OVER", message),
        StoreError::Over(_) => with_reason(Code::FailedPrecondition, "RUN_OVER", message),
        StoreError::NoRoom(_) => with_reason(Code::ResourceExhausted, NO_ROOM, message),
        StoreError::Away(_) => with_reason(Code::Unavailable, "STORE_AWAY", message),
        StoreError::Newer(_)
        | StoreError::InUse
        | StoreError::Gone(_)
        | StoreError::LogLost(_)
        | StoreError::Database(_)
        | StoreError::Corrupt(_) => with_reason(Code::DataLoss, "STORE_FAILED", message),
    }
}

/// An agent that cannot be named or added.
#[must_use]
pub fn of_directory(error: &DirectoryError) -> Status {
    let code = match error {
        DirectoryError::Unknown { .. } => Code::NotFound,
        DirectoryError::Address(_) | DirectoryError::Dial { .. } | DirectoryError::BadName(_) => Code::InvalidArgument,
        DirectoryError::NotAllowed { .. } => Code::PermissionDenied,
        DirectoryError::Configured(_) | DirectoryError::Attached(_) => Code::FailedPrecondition,
        DirectoryError::Full => Code::ResourceExhausted,
    };
    with_reason(code, AGENT_INVALID, chain(error))
}

/// An agent that did not describe itself.
#[must_use]
pub fn of_describe(error: &DescribeError) -> Status {
    let code = match error {
        DescribeError::Unreachable { .. } | DescribeError::Silent { .. } => Code::Unavailable,
        DescribeError::Refused { .. } | DescribeError::Incompatible { .. } => Code::FailedPrecondition,
    };
    with_reason(code, "AGENT_UNREACHABLE", error.to_string())
}

/// A generator that did not come to its end.
#[must_use]
pub fn of_generator(name: &str, why: &str) -> Status {
    with_reason(Code::Aborted, "GENERATOR_FAILED", format!("the generator {name:?}: {why}"))
}

/// A field that cannot be taken.
#[must_use]
pub fn of_wire(error: &WireError) -> Status {
    let mut details = ErrorDetails::with_bad_request_violation(error.field, error.problem.clone());
    details.set_error_info(INVALID, DOMAIN, std::collections::HashMap::new());
    Status::with_error_details(Code::InvalidArgument, error.to_string(), details)
}
