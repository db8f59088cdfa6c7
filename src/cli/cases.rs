//! `forgectl cases`: what came of a case over the runs.

use clap::Subcommand;

use super::client::Client;
use super::{CliError, Exit, note, print};
use crate::text::printable;
use crate::verdict::{Blame, Cause, Outcome};
use crate::wire::control as pb;
use crate::wire::run::time_from_proto;
use crate::wire::value::{WireError, duration_from_proto};
use crate::wire::verdict::{blame_from_proto, cause_from_proto, outcome_from_proto};

#[derive(Debug, Subcommand)]
pub(super) enum CasesCommand {
    /// Show what came of the cases with an id in the runs that the daemon keeps, newest first
    History {
        /// Id of the case, in whatever suite
        #[arg(value_name = "CASE")]
        case_id: String,

        /// Only in this suite, as reports name it
        #[arg(long, value_name = "PATH", default_value = "", hide_default_value = true)]
        suite: String,

        /// Most verdicts to show
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(i32).range(1..=500))]
        limit: i32,
    },
}

pub(super) async fn cases(daemon: Option<String>, command: CasesCommand) -> Result<Exit, CliError> {
    let client = Client::required(daemon).await?;
    let CasesCommand::History { case_id, suite, limit } = command;
    let request = pb::ListVerdictsRequest { case_id: case_id.clone(), suite, page_size: limit };
    let answer = client.ask("asking for the verdicts", client.runs().list_verdicts(request)).await?;
    let unreadable =
        |error: WireError| CliError::new(Exit::CouldNotRun, format!("the daemon's answer cannot be read: {error}"));
    let entries: Vec<Entry> =
        answer.verdicts.into_iter().map(Entry::of).collect::<Result<_, _>>().map_err(unreadable)?;
    if entries.is_empty() {
        return Err(CliError::new(
            Exit::NothingSelected,
            format!("no run that is kept has a verdict on a case {case_id:?}"),
        ));
    }
    // A case is one of its suite.
    let mut suites: Vec<&str> = Vec::new();
    for entry in &entries {
        if !suites.contains(&entry.suite.as_str()) {
            suites.push(&entry.suite);
        }
    }
    suites.sort_unstable();
    for suite in &suites {
        let of_suite: Vec<&Entry> = entries.iter().filter(|entry| entry.suite == *suite).collect();
        let named = if suites.len() > 1 { format!("  {}", printable(suite)) } else { String::new() };
        print(&format!("{}{named}  {}\n", printable(&case_id), headline(&of_suite)))?;
    }
    for entry in &entries {
        print(&format!("{}\n", entry.line()))?;
    }
    if entries.len() == usize::try_from(limit).unwrap_or(usize::MAX) {
        note("there may be more; --limit shows them");
    }
    Ok(Exit::Passed)
}

/// What came of a case over the runs, the oldest first, as time goes.
fn headline(entries: &[&Entry]) -> String {
    let line: String = entries.iter().rev().map(|entry| entry.mark()).collect();
    let count = |outcome| entries.iter().filter(|entry| entry.outcome == outcome).count();
    let (passed, judged) = (count(Outcome::Passed), count(Outcome::Passed) + count(Outcome::Failed));
    let rest = entries.len() - judged;
    let rest = if rest > 0 { format!(", {rest} without a verdict") } else { String::new() };
    format!("{line}  {passed} of {judged} passed{rest}")
}

/// What came of a case in a run.
struct Entry {
    run_id: String,
    suite: String,
    repeat: u32,
    outcome: Outcome,
    cause: Option<Cause>,
    blame: Option<Blame>,
    flaky: bool,
    millis: u128,
    at: jiff::Timestamp,
}

impl Entry {
    fn of(verdict: pb::CaseVerdict) -> Result<Self, WireError> {
        let case = verdict.case.unwrap_or_default();
        Ok(Self {
            run_id: verdict.run_id,
            suite: case.suite,
            repeat: case.repeat,
            outcome: outcome_from_proto(verdict.outcome, "outcome")?,
            cause: cause_from_proto(verdict.cause)?,
            blame: blame_from_proto(verdict.blame)?,
            flaky: verdict.flaky,
            millis: verdict.duration.and_then(duration_from_proto).unwrap_or_default().as_millis(),
            at: time_from_proto(verdict.at, "at")?,
        })
    }

    /// One sign for a verdict: a full block for a pass, half of one for a pass after a failure.
    fn mark(&self) -> char {
        match self.outcome {
            Outcome::Passed if self.flaky => '▄',
            Outcome::Passed => '█',
            Outcome::Failed => '▁',
            Outcome::Errored => '?',
            Outcome::Skipped => '·',
        }
    }

    fn line(&self) -> String {
        let time = self.at.strftime("%Y-%m-%d %H:%M:%S");
        let word = if self.flaky { "flaky" } else { self.outcome.name() };
        let why = match (self.cause, self.blame) {
            (Some(cause), Some(blame)) => format!("  {}, blame {}", cause.name(), blame.name()),
            (Some(cause), None) => format!("  {}", cause.name()),
            _ => String::new(),
        };
        let repeat = if self.repeat > 1 { format!(" #{}", self.repeat) } else { String::new() };
        format!("{}  {time}  {word:<7}  {:>7}ms  {}{repeat}{why}", self.run_id, self.millis, printable(&self.suite))
    }
}
