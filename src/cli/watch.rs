//! `forgectl watch`: the log of a run as lines.

use std::collections::HashSet;

use clap::Args;

use super::calls::Calls;
use super::client::Client;
use super::follow::Follower;
use super::{CliError, Exit, named, print};
use crate::case::CaseRef;
use crate::conversation::{AgentEventKind, Message};
use crate::event::{Payload, RunEvent, Said};
use crate::report::steps::{Room, Step, answer, logged, reached, turn_of};
use crate::text::{fit, printable};
use crate::verdict::whole_millis;
use crate::wire::control::Detail;

/// Longest piece of somebody else's text on a line, in columns.
const MAX_TEXT: usize = 200;
/// The same for steps of cases, in bytes.
const ROOM: Room = Room { text: MAX_TEXT, value: MAX_TEXT, ..Room::LIVE };

#[derive(Debug, Args)]
pub(super) struct WatchArgs {
    /// The run: the beginning of its id, last, last~1, last:SUITE, or a label such as branch=main
    #[arg(value_name = "RUN")]
    run_id: String,

    /// Print the events of cases only, without those of the calls inside them
    #[arg(long)]
    cases: bool,
}

pub(super) async fn watch(daemon: Option<String>, args: WatchArgs) -> Result<Exit, CliError> {
    let client = Client::required(daemon).await?;
    let detail = if args.cases { Detail::Cases } else { Detail::Calls };
    let run_id = named::run_id(&client, &args.run_id).await?;
    let mut follower = Follower::new(&client, &run_id, detail);
    let mut story = Story::default();
    let mut exit = Exit::CouldNotRun;
    while let Some(event) = follower.next().await? {
        if let Payload::RunFinished(run) = &event.payload {
            exit = Exit::of_run(run.exit_code());
        }
        for text in describe(&event, &mut story) {
            let time = event.at.strftime("%H:%M:%S%.3f");
            let case = event.case.as_ref().map(|case| format!("{}  ", printable(&case.label()))).unwrap_or_default();
            print(&format!("{time}  {case}{text}\n"))?;
        }
    }
    Ok(exit)
}

fn short(text: &str) -> String {
    fit(&printable(text), MAX_TEXT)
}

/// What has to be remembered of a log to tell it line by line.
#[derive(Default)]
struct Story {
    calls: Calls,
    /// The cases that have turns, which say what was answered.
    dialogues: HashSet<CaseRef>,
}

/// What an event says, a line each.
fn describe(event: &RunEvent, story: &mut Story) -> Vec<String> {
    let Story { calls, dialogues } = story;
    if let (Payload::CaseStarted { mode, .. }, Some(case)) = (&event.payload, &event.case)
        && mode.has_turns()
    {
        dialogues.insert(case.clone());
    }
    let steps: Vec<Step> = match &event.payload {
        Payload::Agent(agent) => match &agent.kind {
            AgentEventKind::Log { level, message } => vec![logged(0, level, message, ROOM)],
            AgentEventKind::Finished(_) if event.case.as_ref().is_some_and(|case| dialogues.contains(case)) => {
                Vec::new()
            }
            AgentEventKind::Finished(finished) => {
                finished.response.iter().map(|response| answer(0, &response.text(), ROOM)).collect()
            }
            _ => calls.take(event, 0, ROOM).into_iter().collect(),
        },
        Payload::SpansRead(_) => calls.take(event, 0, ROOM).into_iter().collect(),
        Payload::TurnFinished(turn) => turn_of(turn, Vec::new(), ROOM),
        Payload::CheckpointReached { checkpoint } => vec![reached(event.turn, checkpoint, ROOM)],
        _ => return of_run(event).into_iter().collect(),
    };
    steps.iter().map(Step::in_a_line).collect()
}

/// What an event says that is no step of a case, on one line.
fn of_run(event: &RunEvent) -> Option<String> {
    Some(match &event.payload {
        Payload::RunStarted(run) => {
            let total = run.totals.total;
            let cases = if total == 1 { "case" } else { "cases" };
            format!("run {} started: {total} {cases} against {}", run.run_id, printable(&run.agent_endpoint))
        }
        Payload::CasePlanned { .. }
        | Payload::AgentDescribed(_)
        | Payload::CallEnded(_)
        | Payload::Agent(_)
        | Payload::SpansRead(_)
        | Payload::TurnFinished(_)
        | Payload::CheckpointReached { .. } => return None,
        Payload::CaseStarted { mode, .. } => format!("started ({})", mode.name()),
        Payload::StubServed { unstubbed, .. } => {
            if *unstubbed {
                "the daemon answered: there is no stub".to_owned()
            } else {
                "the daemon answered from the stubs".to_owned()
            }
        }
        Payload::AttemptFinished(result) => {
            let error = result.error.as_deref().map(|error| format!(": {}", short(error))).unwrap_or_default();
            let (outcome, millis) = (result.outcome.name(), whole_millis(result.transcript.duration));
            let attempt = event.case.as_ref().map_or(1, |case| case.attempt);
            format!("attempt {attempt} {outcome} {millis}ms, trying again{error}")
        }
        Payload::CaseFinished(result) => {
            let error = result.error.as_deref().map(|error| format!(": {}", short(error))).unwrap_or_default();
            format!("{} {}ms{error}", result.outcome.name(), whole_millis(result.transcript.duration))
        }
        Payload::PartySaid(party) => match &party.said {
            Said::Input { message, reasoning, .. } => {
                let text = message.as_ref().map(Message::text).unwrap_or_default();
                let why = if reasoning.is_empty() { String::new() } else { format!(", why: {}", short(reasoning)) };
                format!("{} says {:?}{why}", short(&party.by), fit(&text, MAX_TEXT))
            }
            Said::Vote { passed, reason, .. } => {
                format!("{} says {}: {}", short(&party.by), if *passed { "yes" } else { "no" }, short(reason))
            }
            Said::Silence(why) => format!("{} gave no answer: {}", short(&party.by), short(why)),
            Said::Cancelled => format!("{} was not waited for", short(&party.by)),
        },
        Payload::SnapshotTaken(values) => format!("snapshot taken: {} bytes", values.as_str().len()),
        Payload::Warning(text) => format!("⚠ {}", short(text)),
        Payload::RunFinished(run) => {
            let totals = &run.totals;
            let error = run.error.as_ref().map(|fault| format!(": {}", short(&fault.message))).unwrap_or_default();
            format!("run {}: {} of {} passed{error}", run.state.name(), totals.passed, totals.total)
        }
    })
}
