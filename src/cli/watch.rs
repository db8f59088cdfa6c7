//! `forgectl watch`: the log of a run as lines.

use std::collections::HashMap;

use clap::Args;

use super::client::Client;
use super::follow::Follower;
use super::{CliError, Exit, named, print};
use crate::conversation::{AgentEventKind, Arguments, MaybeJson, Message, ToolOutcome};
use crate::event::{Payload, RunEvent, Said};
use crate::text::{fit, printable};
use crate::verdict::whole_millis;
use crate::wire::control::Detail;

/// Longest piece of somebody else's text on a line, in columns.
const MAX_TEXT: usize = 200;

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
    let mut tools = Tools::new();
    let mut exit = Exit::CouldNotRun;
    while let Some(event) = follower.next().await? {
        if let Payload::RunFinished(run) = &event.payload {
            exit = Exit::of_run(run.exit_code());
        }
        if let Some(text) = describe(&event, &mut tools) {
            let time = event.at.strftime("%H:%M:%S%.3f");
            let case = event.case.as_ref().map(|case| format!("{}  ", printable(&case.label()))).unwrap_or_default();
            print(&format!("{time}  {case}{text}\n"))?;
        }
    }
    Ok(exit)
}

/// The names of open calls, by case and id.
pub(super) type Tools = HashMap<(String, String), String>;

fn short(text: &str) -> String {
    fit(&printable(text), MAX_TEXT)
}

/// What an event says of tool calls, on one line; `None`: nothing.
pub(super) fn describe_call(event: &RunEvent, tools: &mut Tools) -> Option<String> {
    let case = event.case.as_ref().map(|case| format!("{}#{}", case.suite, case.label())).unwrap_or_default();
    let agent = match &event.payload {
        Payload::Agent(agent) => agent,
        Payload::SpansRead(read) => {
            let names: Vec<String> = read.tool_calls.iter().map(|call| short(&call.name)).collect();
            let end = if read.confirmed { "" } else { ", their end was not confirmed" };
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Some(format!("{} spans, tools in them: {names}{end}", read.spans));
        }
        _ => return None,
    };
    match &agent.kind {
        AgentEventKind::ToolStarted { call, .. } => {
            tools.insert((case, call.call_id.clone()), call.name.clone());
            let params = match &call.params {
                Arguments::Given(MaybeJson::Json(text)) => short(text.as_str()),
                Arguments::Given(MaybeJson::Malformed(text)) => format!("malformed arguments {}", short(text)),
                Arguments::Unknown(why) => format!("arguments not known: {}", short(why)),
                Arguments::None => String::new(),
            };
            Some(format!("→ {} {params}", short(&call.name)).trim_end().to_owned())
        }
        AgentEventKind::ToolFinished { call_id, outcome, duration } => {
            let name = tools.remove(&(case, call_id.clone())).unwrap_or_else(|| call_id.clone());
            let how = match outcome {
                Some(ToolOutcome::Result(Some(MaybeJson::Json(text)))) => short(text.as_str()),
                Some(ToolOutcome::Result(Some(MaybeJson::Malformed(text)))) => {
                    format!("a result that is no JSON: {}", short(text))
                }
                Some(ToolOutcome::Result(None)) => "ok".to_owned(),
                Some(ToolOutcome::Error(fault)) => format!("failed: {}", short(&fault.message)),
                Some(ToolOutcome::NotRun) | None => "ended without an outcome".to_owned(),
            };
            let took = duration.map(|duration| format!(" {}ms", whole_millis(duration))).unwrap_or_default();
            Some(format!("← {} {how}{took}", short(&name)))
        }
        _ => None,
    }
}

/// What an event says, on one line; `tools` remembers the names of open calls.
fn describe(event: &RunEvent, tools: &mut Tools) -> Option<String> {
    Some(match &event.payload {
        Payload::RunStarted(run) => {
            let total = run.totals.total;
            let cases = if total == 1 { "case" } else { "cases" };
            format!("run {} started: {total} {cases} against {}", run.run_id, printable(&run.agent_endpoint))
        }
        Payload::CasePlanned { .. } | Payload::AgentDescribed(_) | Payload::CallEnded(_) => return None,
        Payload::CaseStarted { mode, .. } => format!("started ({})", mode.name()),
        Payload::Agent(agent) => match &agent.kind {
            AgentEventKind::ToolStarted { .. } | AgentEventKind::ToolFinished { .. } => {
                return describe_call(event, tools);
            }
            AgentEventKind::Log { level, message } => format!("{} {}", short(level), short(message)),
            AgentEventKind::Finished(finished) => match &finished.response {
                Some(response) => format!("answered {:?}", fit(&response.text(), MAX_TEXT)),
                None => "finished".to_owned(),
            },
            AgentEventKind::Accepted { .. }
            | AgentEventKind::TextDelta { .. }
            | AgentEventKind::ModelTurn(_)
            | AgentEventKind::Unknown => return None,
        },
        Payload::StubServed { unstubbed, .. } => {
            if *unstubbed {
                "the daemon answered: there is no stub".to_owned()
            } else {
                "the daemon answered from the stubs".to_owned()
            }
        }
        Payload::TurnFinished(turn) => {
            let (input, output) = (fit(&turn.input, MAX_TEXT), fit(&turn.output, MAX_TEXT));
            format!("turn {}: {input:?} → {output:?}", event.turn)
        }
        Payload::CheckpointReached { checkpoint } => {
            format!("checkpoint {} reached in turn {}", short(checkpoint), event.turn)
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
        Payload::SpansRead(_) => return describe_call(event, tools),
        Payload::SnapshotTaken(values) => format!("snapshot taken: {} bytes", values.as_str().len()),
        Payload::Warning(text) => format!("⚠ {}", short(text)),
        Payload::RunFinished(run) => {
            let totals = &run.totals;
            let error = run.error.as_ref().map(|fault| format!(": {}", short(&fault.message))).unwrap_or_default();
            format!("run {}: {} of {} passed{error}", run.state.name(), totals.passed, totals.total)
        }
    })
}
