//! Exit codes, and errors as people read them.

use std::process::ExitCode;

use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::note;
use crate::daemon::status as reasons;

/// How forgectl ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: everything that was asked for is so.
    Passed,
    /// 1: a case failed or regressed.
    Failed,
    /// 2: wrong usage, or an invalid suite.
    Usage,
    /// 3: it could not be run, or not be judged.
    CouldNotRun,
    /// 4: there was nothing to run.
    NothingSelected,
    /// 130: interrupted.
    Interrupted,
}

impl Exit {
    /// The exit for the code of a run that is over.
    #[must_use]
    pub const fn of_run(code: u8) -> Self {
        match code {
            0 => Self::Passed,
            1 => Self::Failed,
            4 => Self::NothingSelected,
            _ => Self::CouldNotRun,
        }
    }
}

impl Exit {
    /// The exit code.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Passed => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::CouldNotRun => 3,
            Self::NothingSelected => 4,
            Self::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// An error that ends forgectl.
#[derive(Debug)]
pub struct CliError {
    /// How forgectl ends.
    pub exit: Exit,
    /// The daemon's machine-readable reason, if it came from there.
    pub reason: String,
    /// Whether the daemon was not there, or is about to leave: it may come back.
    pub is_away: bool,
    /// Whether the daemon has too much to do just now: the same works in a moment.
    pub is_busy: bool,
    /// Whether programs were told already what came of the run: nothing comes after that.
    pub is_told: bool,
    message: String,
    /// More lines, such as the findings in a suite.
    details: Vec<String>,
    hint: Option<String>,
}

impl std::fmt::Display for CliError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl CliError {
    /// An error that says what could not be done.
    #[must_use]
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            reason: String::new(),
            is_away: false,
            is_busy: false,
            is_told: false,
            message: message.into(),
            details: Vec::new(),
            hint: None,
        }
    }

    /// The same with lines below it.
    #[must_use]
    pub fn details(mut self, details: impl IntoIterator<Item = String>) -> Self {
        self.details.extend(details);
        self
    }

    /// The same with what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same, where programs were told already what came of the run.
    #[must_use]
    pub fn told(self) -> Self {
        Self { is_told: true, ..self }
    }

    /// A status that a daemon answered while `doing` something.
    #[must_use]
    pub fn of_status(doing: &str, status: &Status) -> Self {
        let reason = status.get_details_error_info().map(|info| info.reason).unwrap_or_default();
        let exit = match reason.as_str() {
            reasons::SUITE_INVALID | reasons::INVALID | reasons::AGENT_INVALID | reasons::UNKNOWN_RUN => Exit::Usage,
            reasons::NOTHING_SELECTED => Exit::NothingSelected,
            _ => Exit::CouldNotRun,
        };
        let violations = status.get_details_bad_request().map(|bad| bad.field_violations).unwrap_or_default();
        let details = if reason == reasons::SUITE_INVALID {
            violations.into_iter().map(|violation| violation.description).collect()
        } else {
            Vec::new()
        };
        let mut error = Self::new(exit, format!("{doing}: {}", status.message())).details(details);
        error.reason.clone_from(&reason);
        error.is_busy = reason == reasons::BUSY;
        // A status that has a cause was made up here, for a connection that broke.
        error.is_away = status.code() == Code::Unavailable || std::error::Error::source(status).is_some();
        match (reason.as_str(), status.code()) {
            (reasons::AGENT_INVALID, Code::NotFound) => {
                error.hint("name a known agent, or give its address with the scheme: -n grpc://127.0.0.1:50051")
            }
            (reasons::AGENT_INVALID, Code::PermissionDenied) => {
                error.hint("the daemon's operator can allow it with `allowed_targets`, or add the agent to `[agents]`")
            }
            (reasons::UNKNOWN_RUN, _) => error.hint("`forgectl runs list` shows the runs that the daemon keeps"),
            _ => error,
        }
    }

    /// The reader of stdout has gone, as `head` does: nothing is wrong, and nothing is left to say.
    #[must_use]
    pub fn reader_left() -> Self {
        Self::new(Exit::Passed, "")
    }

    /// What it says: what could not be done, the lines below it, and what to do about it.
    #[must_use]
    pub fn parts(&self) -> (&str, &[String], Option<&str>) {
        (&self.message, &self.details, self.hint.as_deref())
    }

    /// Writes the error to stderr.
    pub fn tell(&self) {
        if !self.message.is_empty() {
            note(&format!("forgectl: {}", self.message));
        }
        for line in &self.details {
            note(&format!("  {line}"));
        }
        if let Some(hint) = &self.hint {
            note(&format!("  hint: {hint}"));
        }
    }
}
