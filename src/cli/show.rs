//! `forgectl show`: what happened in cases of a run, in full.

use std::collections::HashMap;
use std::sync::Arc;

use clap::Args;

use super::follow::Follower;
use super::stored::{Found, find};
use super::{CliError, Exit, look, named, note, print};
use crate::case::CaseRef;
use crate::conversation::AgentEventKind;
use crate::event::{Payload, Run, RunEvent};
use crate::report::transcript::transcript;
use crate::report::{Tracing, Verdict, jsonl};
use crate::suite::Labels;
use crate::text::{printable, printable_json};
use crate::verdict::{CaseResult, Outcome};
use crate::wire::control::Detail;

/// Most ids that are named where none is meant.
const SHOWN: usize = 10;
/// Most ids that are looked at for one that is like the one that is asked for, most bytes of each, and how much two
/// that are alike have in common, of 1.
const MOST_IDS: usize = 10_000;
const COMPARED: usize = 200;
const ALIKE: f64 = 0.5;
/// Most of those that are named.
const NEAREST: usize = 3;

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// The run: the beginning of its id, last, last~1 (the one before), last:SUITE, or a label such as branch=main; or
    /// a result file. Without a daemon it is looked for in the folder for results
    #[arg(value_name = "RUN")]
    run: String,

    /// Id of a case [default: all that did not pass]
    #[arg(value_name = "CASE")]
    case: Option<String>,

    /// Suite of the case: its path, or the name of its file
    #[arg(long, value_name = "SUITE")]
    suite: Option<String>,

    /// Which repetition, from 1 [default: all of them]
    #[arg(long, value_name = "N")]
    repeat: Option<u32>,

    /// Which attempt, from 1 [default: the last]
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,

    /// Only what happened in this turn of a dialogue, from 1
    #[arg(long, value_name = "N")]
    turn: Option<u32>,

    /// Cases that passed, too
    #[arg(long, conflicts_with = "case")]
    all: bool,

    /// Print a line of JSON for each
    #[arg(long, conflicts_with = "turn")]
    json: bool,
}

pub(super) async fn show(daemon: Option<String>, args: ShowArgs) -> Result<Exit, CliError> {
    let mut shown = Cases::of(&args);
    let run_id = match find(daemon, std::slice::from_ref(&args.run)).await? {
        Found::Files(stored) => {
            let (run, log) = *stored;
            let run_id = run.run_id.clone();
            shown.run = Some(run);
            for event in log {
                shown.take(Arc::new(event))?;
            }
            run_id
        }
        Found::Daemon(client, run_id) => {
            let mut log = Follower::new(&client, &run_id, Detail::Calls).so_far(args.case.as_deref());
            while let Some(event) = log.next().await? {
                shown.take(event)?;
            }
            if shown.planned == 0 && args.case.is_some() {
                // The log was that of one case, and there is none: so which are there?
                let mut log = Follower::new(&client, &run_id, Detail::Cases).so_far(None);
                while let Some(event) = log.next().await? {
                    if matches!(event.payload, Payload::CaseStarted { .. }) {
                        break;
                    }
                    shown.take(event)?;
                }
            }
            client.close().await;
            run_id
        }
    };
    shown.end(&run_id)
}

/// Cases as their events come: each is printed when it has ended.
struct Cases<'a> {
    args: &'a ShowArgs,
    run: Option<Run>,
    open: HashMap<(Arc<str>, Arc<str>, u32), Open>,
    /// Ids of the cases that there are, as far as they are named when none is meant.
    ids: Vec<String>,
    /// Whether the id that is asked for is that of a case, in whatever suite and repetition.
    is_known: bool,
    /// Cases that are meant and were planned.
    planned: usize,
    /// Cases that are printed.
    printed: usize,
    /// Cases that ended.
    ended: usize,
}

/// A case that is under way.
#[derive(Default)]
struct Open {
    name: String,
    labels: Labels,
    /// The events of its attempt.
    log: Vec<Arc<RunEvent>>,
}

impl<'a> Cases<'a> {
    fn of(args: &'a ShowArgs) -> Self {
        Self {
            args,
            run: None,
            open: HashMap::new(),
            ids: Vec::new(),
            is_known: false,
            planned: 0,
            printed: 0,
            ended: 0,
        }
    }

    fn take(&mut self, event: Arc<RunEvent>) -> Result<(), CliError> {
        if let Payload::RunStarted(run) | Payload::RunFinished(run) = &event.payload {
            self.run = Some((**run).clone());
        }
        if let (Payload::CasePlanned { .. }, Some(case)) = (&event.payload, &event.case) {
            self.is_known |= self.args.case.as_deref().is_some_and(|id| *id == *case.case_id);
            if self.ids.len() < MOST_IDS && self.ids.last().is_none_or(|last| **last != *case.case_id) {
                self.ids.push(case.case_id.to_string());
            }
        }
        let Some(case) = event.case.clone().filter(|case| self.is_meant(case)) else { return Ok(()) };
        let key = (Arc::clone(&case.suite), Arc::clone(&case.case_id), case.repeat);
        match &event.payload {
            Payload::CasePlanned { name, labels } => {
                self.planned += 1;
                self.open.insert(key, Open { name: name.clone(), labels: labels.clone(), log: Vec::new() });
            }
            Payload::AttemptFinished(result) => {
                let Some(open) = self.open.get_mut(&key) else { return Ok(()) };
                let log = std::mem::take(&mut open.log);
                if self.args.attempt == Some(case.attempt) {
                    let open = Open { name: open.name.clone(), labels: open.labels.clone(), log };
                    self.print(&case, &open, result)?;
                }
            }
            Payload::CaseFinished(result) => {
                let Some(open) = self.open.remove(&key) else { return Ok(()) };
                self.ended += 1;
                let is_asked_for = self.args.case.is_some() || self.args.all;
                let is_bad = matches!(result.outcome, Outcome::Failed | Outcome::Errored);
                if (is_asked_for || is_bad) && self.args.attempt.is_none_or(|attempt| attempt == case.attempt) {
                    self.print(&case, &open, result)?;
                }
            }
            Payload::Agent(_) => {
                if let Some(open) = self.open.get_mut(&key) {
                    open.log.push(event);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn is_meant(&self, case: &CaseRef) -> bool {
        let is_case = self.args.case.as_deref().is_none_or(|id| *id == *case.case_id);
        let is_suite = self.args.suite.as_deref().is_none_or(|suite| named::is_suite(&case.suite, suite));
        is_case && is_suite && self.args.repeat.is_none_or(|repeat| repeat == case.repeat)
    }

    fn print(&mut self, case: &CaseRef, open: &Open, result: &CaseResult) -> Result<(), CliError> {
        let tracing = self.run.as_ref().map(Tracing::of);
        let verdict = Verdict { case, name: &open.name, labels: &open.labels, result, tracing: tracing.as_ref() };
        if self.args.json {
            let line = jsonl::line(verdict)
                .map_err(|error| CliError::new(Exit::CouldNotRun, format!("the case cannot be written: {error}")))?;
            print(&with_log(&line, &open.log))?;
        } else {
            let blank = if self.printed > 0 { "\n" } else { "" };
            print(&format!("{blank}{}", transcript(verdict, &open.log, self.args.turn, look())))?;
        }
        self.printed += 1;
        Ok(())
    }

    /// Says why nothing was printed, if nothing was.
    fn end(self, run_id: &str) -> Result<Exit, CliError> {
        if self.printed > 0 {
            return Ok(Exit::Passed);
        }
        let Self { args, planned, ended, ids, is_known, run, .. } = self;
        let what = args.case.as_ref().map_or_else(String::new, |case| format!(" {case:?}"));
        if planned == 0 {
            return Err(nothing_meant(args, run_id, is_known, &ids, run.as_ref()));
        }
        if ended == 0 {
            return Err(CliError::new(Exit::Usage, format!("the case{what} is not over"))
                .hint(format!("`forgectl watch {run_id}` follows the run")));
        }
        if let Some(attempt) = args.attempt {
            return Err(CliError::new(Exit::Usage, format!("the case{what} has no attempt {attempt} to show"))
                .hint("leave out --attempt for the last one"));
        }
        let ids = ids.iter().take(SHOWN).map(|id| printable(id)).collect::<Vec<_>>().join(", ");
        note(&format!("every case passed or was skipped; name one to see what happened in it, or --all: {ids}"));
        Ok(Exit::Passed)
    }
}

/// That no case is meant, and which one might be.
fn nothing_meant(args: &ShowArgs, run_id: &str, is_known: bool, ids: &[String], run: Option<&Run>) -> CliError {
    let suites = run.iter().flat_map(|run| &run.suites).map(|suite| printable(&suite.path));
    let suites = suites.take(SHOWN).collect::<Vec<_>>().join(", ");
    let message = match (&args.case, &args.suite) {
        (Some(case), _) if !is_known => format!("run {run_id} has no case {case:?}"),
        (case, Some(suite)) => {
            let case = case.as_ref().map_or_else(|| "no case".to_owned(), |case| format!("no case {case:?}"));
            format!("run {run_id} has {case} in a suite {suite:?}; its suites: {suites}")
        }
        (case, None) => {
            let case = case.as_ref().map_or_else(|| "no case".to_owned(), |case| format!("no case {case:?}"));
            let repeat = args.repeat.map(|repeat| format!(" with a repetition {repeat}")).unwrap_or_default();
            format!("run {run_id} has {case}{repeat}")
        }
    };
    let near = args.case.as_deref().filter(|_| !is_known).map(|case| nearest_ids(case, ids)).unwrap_or_default();
    let hint = match near.as_slice() {
        [] => format!("`forgectl show {run_id} --all` shows all of its cases"),
        [one] => format!("did you mean {one:?}?"),
        several => format!("the nearest: {}", several.join(", ")),
    };
    CliError::new(Exit::Usage, message).hint(hint)
}

/// The ids that are most like one that is none, the nearest first.
fn nearest_ids(id: &str, ids: &[String]) -> Vec<String> {
    let likeness = |other: &str| {
        let is_short = [id, other].iter().all(|id| id.len() <= COMPARED);
        if is_short { strsim::normalized_levenshtein(&id.to_lowercase(), &other.to_lowercase()) } else { 0.0 }
    };
    let mut near: Vec<(f64, &String)> = ids.iter().map(|other| (likeness(other), other)).collect();
    near.retain(|(likeness, _)| *likeness >= ALIKE);
    near.sort_by(|one, other| other.0.total_cmp(&one.0));
    near.dedup_by(|one, other| one.1 == other.1);
    near.into_iter().take(NEAREST).map(|(_, id)| printable(id)).collect()
}

/// A line of JSON about a case, with what the agent logged.
fn with_log(line: &str, log: &[Arc<RunEvent>]) -> String {
    let lines = log.iter().filter_map(|event| match &event.payload {
        Payload::Agent(agent) => match &agent.kind {
            AgentEventKind::Log { level, message } => Some(
                serde_json::json!({"at": event.at.to_string(), "turn": event.turn, "level": level, "message": message}),
            ),
            _ => None,
        },
        _ => None,
    });
    let log = serde_json::Value::Array(lines.collect());
    let line = line.trim_end();
    format!("{},\"log\":{}}}\n", line.strip_suffix('}').unwrap_or(line), printable_json(&log.to_string()))
}
