//! `--fail-on`: which verdicts make the exit code 1.
//!
//! It is about exit code 1 alone, which says that the agent was judged and did not do. What could not be run or judged,
//! and that nothing was selected, keep their codes: nobody knows what they would have come to.

use crate::cli::lines::Lines;
use crate::cli::{CliError, Exit};
use crate::event::Run;
use crate::verdict::Outcome;

use super::RunArgs;

/// What makes the exit code 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(super) enum FailOn {
    /// A case that passed in the baseline and failed now
    Regressed,
    /// A case that failed, or a gate that was missed
    #[default]
    Failed,
    /// Nothing
    Never,
}

impl FailOn {
    /// Refuses what makes no sense together with other flags.
    pub(super) fn check(args: &RunArgs) -> Result<(), CliError> {
        if args.fail_on != Some(Self::Regressed) {
            return Ok(());
        }
        let refuse =
            |why: &str, hint: &str| Err(CliError::new(Exit::Usage, format!("--fail-on regressed {why}")).hint(hint));
        if args.baseline.is_none() {
            return refuse(
                "compares with an earlier result, and there is none",
                "name one with --baseline: the id of a run, `last`, or a result file",
            );
        }
        if !args.gate().is_open() {
            return refuse(
                "and a gate both say when the run fails",
                "leave out one of them; --max-regression is the gate that compares with a baseline",
            );
        }
        if args.fail_fast {
            return refuse(
                "passes over failures that are known, and --fail-fast stops at the first of them",
                "leave out one of them",
            );
        }
        Ok(())
    }

    /// The exit of a run that is over.
    pub(super) fn exit(self, run: &Run, lines: &Lines) -> Exit {
        let exit = Exit::of_run(run.exit_code());
        match self {
            Self::Regressed if exit == Exit::Failed && !has_regressed(run, lines) => Exit::Passed,
            Self::Never if exit == Exit::Failed => Exit::Passed,
            Self::Regressed | Self::Failed | Self::Never => exit,
        }
    }

    /// What people are told when failures do not count; `None`: they do, or there are none.
    pub(super) fn note(self, run: &Run, exit: Exit) -> Option<String> {
        let is_passed_over = exit == Exit::Passed && run.exit_code() == 1;
        is_passed_over.then(|| match self {
            Self::Regressed => {
                "exit code 0 with --fail-on regressed: nothing failed that passed in the baseline".to_owned()
            }
            Self::Failed | Self::Never => "exit code 0 with --fail-on never, whatever failed".to_owned(),
        })
    }
}

/// Whether a case failed that passed before, or may have: of a suite that the baseline does not hold, nobody knows.
fn has_regressed(run: &Run, lines: &Lines) -> bool {
    run.suites.iter().any(|suite| match &suite.comparison {
        Some(comparison) => !comparison.regressions.is_empty(),
        None => lines.of_suite(&suite.path).iter().any(|shown| shown.outcome() == Outcome::Failed),
    })
}
