//! `forgectl runs`.

use clap::Subcommand;

use super::client::Client;
use super::run::{read_run, verdicts};
use super::{CliError, Exit, look, note, print};
use crate::event::Run;
use crate::report::{Shown, printable, summary};
use crate::wire::control as pb;

#[derive(Debug, Subcommand)]
pub(super) enum RunsCommand {
    /// List the runs that the daemon keeps, newest first
    List {
        /// Most runs to list
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,
    },
    /// Show a run; of one that is over, the summary that `run` printed
    Show {
        /// Id of the run
        #[arg(value_name = "RUN")]
        run_id: String,
    },
    /// Cancel a run
    Cancel {
        /// Id of the run
        #[arg(value_name = "RUN")]
        run_id: String,
    },
}

pub(super) async fn runs(daemon: Option<String>, command: RunsCommand) -> Result<Exit, CliError> {
    let client = Client::required(daemon).await?;
    match command {
        RunsCommand::List { limit } => list(&client, limit).await,
        RunsCommand::Show { run_id } => show(&client, &run_id).await,
        RunsCommand::Cancel { run_id } => {
            let request = pb::CancelRunRequest { run_id, reason: "forgectl runs cancel".to_owned() };
            let cancelled = client.ask("cancelling the run", client.runs().cancel_run(request)).await?;
            let run = read_run(cancelled.run)?;
            print(&format!("{} {}\n", run.run_id, run.state.name()))?;
            Ok(Exit::Passed)
        }
    }
}

async fn list(client: &Client, limit: usize) -> Result<Exit, CliError> {
    let mut page_token = String::new();
    let mut runs: Vec<Run> = Vec::new();
    while runs.len() < limit {
        let page_size = i32::try_from((limit - runs.len()).min(500)).unwrap_or(500);
        let request = pb::ListRunsRequest { page_size, page_token };
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
        print(&format!("{}\n", line(&run)))?;
    }
    Ok(Exit::Passed)
}

fn line(run: &Run) -> String {
    let totals = &run.totals;
    let time = run.created_at.strftime("%Y-%m-%d %H:%M:%S");
    let counts = format!("{}/{}", totals.passed, totals.total);
    format!("{}  {time}  {:<10}  {counts:>9}  {}", run.run_id, run.state.name(), printable(&run.spec.agent_id))
}

async fn show(client: &Client, run_id: &str) -> Result<Exit, CliError> {
    let request = pb::GetRunRequest { run_id: run_id.to_owned() };
    let got = client.ask("asking for the run", client.runs().get_run(request)).await?;
    let run = read_run(got.run)?;
    print(&format!("{}\n", line(&run)))?;
    if let Some(fault) = &run.error {
        print(&format!("the run could not begin: {}\n", printable(&fault.message)))?;
    }
    if !run.state.is_final() {
        note(&format!("the run is not over; `forgectl watch {run_id}` follows it"));
        return Ok(Exit::Passed);
    }
    let (run, verdicts) = verdicts(client, run_id).await?;
    for suite in &run.suites {
        let shown: Vec<Shown> = verdicts.of_suite(&suite.path).map(Shown::of).collect();
        print(&summary(&run, suite, shown, &[], look()))?;
    }
    for warning in &run.warnings {
        print(&format!("⚠ {}\n", printable(warning)))?;
    }
    Ok(Exit::Passed)
}
