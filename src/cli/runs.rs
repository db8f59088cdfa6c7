//! `forgectl runs`.

use std::path::PathBuf;

use clap::Subcommand;
use jiff::Timestamp;

use super::agents::key_value;
use super::client::Client;
use super::follow::Follower;
use super::lines::Lines;
use super::run::outputs::{format_named, report};
use super::run::read_run;
use super::{CliError, Exit, look, named, note, print};
use crate::event::Run;
use crate::report::{Format, repeats, summary};
use crate::text::{printable, printable_json};
use crate::wire::control as pb;
use crate::wire::run::time_to_proto;

#[derive(Debug, Subcommand)]
pub(super) enum RunsCommand {
    /// List the runs that the daemon keeps, newest first
    List {
        /// Most runs to list
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,

        /// Only runs of this agent, as they name it
        #[arg(long, value_name = "AGENT")]
        agent: Option<String>,

        /// Only runs with this suite, as reports name it
        #[arg(long, value_name = "PATH")]
        suite: Option<String>,

        /// Only runs in this state; may be given several times
        #[arg(long, value_name = "STATE", value_parser = state)]
        outcome: Vec<pb::run::State>,

        /// Only runs with this label; may be given several times
        #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
        label: Vec<(String, String)>,

        /// Only runs since then: a time such as 2026-11-28 or 2026-11-28T08:00:00Z, or how long ago, such as 2d
        #[arg(long, value_name = "TIME", value_parser = time)]
        since: Option<Timestamp>,

        /// Only runs before then
        #[arg(long, value_name = "TIME", value_parser = time)]
        until: Option<Timestamp>,

        /// Print a line of JSON for each
        #[arg(long)]
        json: bool,
    },
    /// Show a run; of one that is over, the summary that `run` printed
    Show {
        /// The run: the beginning of its id, last, last~1, last:SUITE, or a label such as branch=main
        #[arg(value_name = "RUN")]
        run_id: String,
    },
    /// Write the results of a run that is over, as `run -o` does
    Report {
        /// The run: the beginning of its id, last, last~1, last:SUITE, or a label such as branch=main
        #[arg(value_name = "RUN")]
        run_id: String,

        /// File to write, whose ending says the format: .json, .jsonl, .xml, .md or .html; or a folder, as for `run`;
        /// or - for stdout; may be given several times
        #[arg(short, long, value_name = "FILE", required_unless_present = "otlp_file")]
        output: Vec<PathBuf>,

        /// Format of -o -: json, jsonl, junit, markdown or html [default: json]
        #[arg(long, value_name = "FORMAT", value_parser = format_named)]
        format: Option<Format>,

        /// Write the traces of the run to this file, as OTLP in JSON, a request a line
        #[arg(long, value_name = "FILE")]
        otlp_file: Option<PathBuf>,
    },
    /// Cancel a run
    Cancel {
        /// The run: the beginning of its id, last, last~1, last:SUITE, or a label such as branch=main
        #[arg(value_name = "RUN")]
        run_id: String,
    },
    /// Hold a run: cases in flight end, and no other starts until `resume`
    Pause {
        /// The run: the beginning of its id, last, last~1, last:SUITE, or a label such as branch=main
        #[arg(value_name = "RUN")]
        run_id: String,
    },
    /// Let a run go on that was held
    Resume {
        /// The run: the beginning of its id, last, last~1, last:SUITE, or a label such as branch=main
        #[arg(value_name = "RUN")]
        run_id: String,
    },
    /// Change a run while it goes on
    Set {
        /// The run: the beginning of its id, last, last~1, last:SUITE, or a label such as branch=main
        #[arg(value_name = "RUN")]
        run_id: String,

        /// Cases at the same time from now on
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
        parallel: u32,
    },
    /// Remove a run that is over, with its log
    Rm {
        /// The run: the beginning of its id, last, last~1, last:SUITE, or a label such as branch=main
        #[arg(value_name = "RUN")]
        run_id: String,
    },
}

/// A state of runs, by its name.
fn state(text: &str) -> Result<pb::run::State, String> {
    pb::run::State::from_str_name(&format!("STATE_{}", text.to_ascii_uppercase()))
        .filter(|state| *state != pb::run::State::Unspecified)
        .ok_or_else(|| "must be queued, running, cancelling, passed, failed, cancelled or errored".to_owned())
}

/// A point in time, or how long ago it is.
fn time(text: &str) -> Result<Timestamp, String> {
    if let Ok(ago) = humantime::parse_duration(text) {
        return Timestamp::now().checked_sub(ago).map_err(|error| error.to_string());
    }
    let read = text.parse::<Timestamp>().or_else(|_| format!("{text}T00:00:00Z").parse::<Timestamp>());
    read.map_err(|_| "write it like 2026-11-28, 2026-11-28T08:00:00Z, or 2d for two days ago".to_owned())
}

pub(super) async fn runs(daemon: Option<String>, command: RunsCommand) -> Result<Exit, CliError> {
    let client = Client::required(daemon).await?;
    match command {
        RunsCommand::List { limit, agent, suite, outcome, label, since, until, json } => {
            let filter = pb::ListRunsRequest {
                agent_id: agent.unwrap_or_default(),
                suite: suite.unwrap_or_default(),
                states: outcome.into_iter().map(i32::from).collect(),
                labels: label.into_iter().collect(),
                since: since.map(time_to_proto),
                until: until.map(time_to_proto),
                ..pb::ListRunsRequest::default()
            };
            list(&client, limit, &filter, json).await
        }
        RunsCommand::Pause { run_id } => {
            update(&client, &named::run_id(&client, &run_id).await?, Some(true), None).await
        }
        RunsCommand::Resume { run_id } => {
            update(&client, &named::run_id(&client, &run_id).await?, Some(false), None).await
        }
        RunsCommand::Set { run_id, parallel } => {
            update(&client, &named::run_id(&client, &run_id).await?, None, Some(parallel)).await
        }
        RunsCommand::Rm { run_id } => {
            let request = pb::DeleteRunRequest { run_id: named::run_id(&client, &run_id).await? };
            client.ask("removing the run", client.runs().delete_run(request)).await?;
            Ok(Exit::Passed)
        }
        RunsCommand::Report { run_id, output, format, otlp_file } => {
            let run_id = named::run_id(&client, &run_id).await?;
            report(&client, &run_id, &output, format, otlp_file.as_deref()).await.map(|()| Exit::Passed)
        }
        RunsCommand::Show { run_id } => show(&client, &named::run_id(&client, &run_id).await?).await,
        RunsCommand::Cancel { run_id } => {
            let run_id = named::run_id(&client, &run_id).await?;
            let request = pb::CancelRunRequest { run_id, reason: "forgectl runs cancel".to_owned() };
            let cancelled = client.ask("cancelling the run", client.runs().cancel_run(request)).await?;
            let run = read_run(cancelled.run)?;
            print(&format!("{} {}\n", run.run_id, run.state.name()))?;
            Ok(Exit::Passed)
        }
    }
}

async fn update(
    client: &Client,
    run_id: &str,
    paused: Option<bool>,
    concurrency: Option<u32>,
) -> Result<Exit, CliError> {
    let request = pb::UpdateRunRequest { run_id: run_id.to_owned(), paused, concurrency };
    let updated = client.ask("changing the run", client.runs().update_run(request)).await?;
    let run = read_run(updated.run)?;
    let parallel = run.concurrency.unwrap_or(run.spec.concurrency);
    let state = if run.paused { "paused" } else { run.state.name() };
    print(&format!("{} {state}, {parallel} at a time\n", run.run_id))?;
    Ok(Exit::Passed)
}

async fn list(client: &Client, limit: usize, filter: &pb::ListRunsRequest, json: bool) -> Result<Exit, CliError> {
    let mut page_token = String::new();
    let mut runs: Vec<Run> = Vec::new();
    while runs.len() < limit {
        let page_size = i32::try_from((limit - runs.len()).min(500)).unwrap_or(500);
        let request = pb::ListRunsRequest { page_size, page_token, ..filter.clone() };
        let page = client.ask("asking for the runs", client.runs().list_runs(request)).await?;
        for run in page.runs {
            runs.push(read_run(Some(run))?);
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    if runs.is_empty() {
        note("no runs");
    }
    for run in runs {
        print(&format!("{}\n", if json { printable_json(&json_line(&run)) } else { line(&run) }))?;
    }
    Ok(Exit::Passed)
}

/// A run as JSON, in the words of its results.
fn json_line(run: &Run) -> String {
    let Run { totals, spec, .. } = run;
    let labels: serde_json::Map<_, _> =
        spec.labels.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect();
    let line = serde_json::json!({
        "runId": run.run_id,
        "kind": if spec.replay.is_some() { "replay" } else { "run" },
        "replayOf": spec.replay.as_ref().map(|replay| &replay.run_id),
        "state": run.state.name(),
        "paused": run.paused,
        "exitCode": run.state.is_final().then(|| run.exit_code()),
        "createdAt": run.created_at.to_string(),
        "finishedAt": run.finished_at.map(|at| at.to_string()),
        "agentId": spec.agent_id,
        "labels": labels,
        "suites": run.suites.iter().map(|suite| suite.path.as_str()).collect::<Vec<_>>(),
        "totalCases": totals.total,
        "passed": totals.passed,
        "failed": totals.failed,
        "errored": totals.errored,
        "notRun": totals.not_run,
        "skipped": totals.skipped,
        "flaky": totals.flaky,
    });
    line.to_string()
}

fn line(run: &Run) -> String {
    let totals = &run.totals;
    let time = run.created_at.strftime("%Y-%m-%d %H:%M:%S");
    let counts = format!("{}/{}", totals.passed, totals.total);
    let state = if run.paused && !run.state.is_final() { "paused" } else { run.state.name() };
    let labels = run.spec.labels.iter().map(|(key, value)| format!("{key}={value}"));
    let agent = std::iter::once(run.spec.agent_id.clone()).chain(labels).collect::<Vec<_>>().join("  ");
    let agent = printable(&agent);
    // It says nothing about the agent of today.
    let replay = run.spec.replay.as_ref().map(|replay| format!("  (replay of {})", printable(&replay.run_id)));
    format!("{}  {time}  {state:<10}  {counts:>9}  {agent}{}", run.run_id, replay.unwrap_or_default())
}

async fn show(client: &Client, run_id: &str) -> Result<Exit, CliError> {
    let request = pb::GetRunRequest { run_id: run_id.to_owned() };
    let got = client.ask("asking for the run", client.runs().get_run(request)).await?;
    let run = read_run(got.run)?;
    print(&format!("{}\n", line(&run)))?;
    if let Some(trouble) = run.trouble() {
        print(&format!("{}\n", printable(&trouble)))?;
    }
    if !run.state.is_final() {
        note(&format!("the run is not over; `forgectl watch {run_id}` follows it"));
        return Ok(Exit::Passed);
    }
    let mut follower = Follower::new(client, run_id, pb::Detail::Cases);
    let mut lines = Lines::default();
    while let Some(event) = follower.next().await? {
        lines.take(&event);
    }
    for suite in &run.suites {
        print(&summary(&run, suite, &suite.path, &lines.of_suite(&suite.path), &[], look()))?;
        let of_suite = lines.repeats_of(&suite.path);
        if !of_suite.cases.is_empty() {
            print(&repeats::summary(&of_suite, look()))?;
        }
    }
    if let Some(gate) = &run.gate {
        print(&repeats::gate(gate, look()))?;
    }
    for warning in &run.warnings {
        print(&format!("⚠ {}\n", printable(warning)))?;
    }
    Ok(Exit::Passed)
}
