//! `forgectl regrade`: changed assertions on what was recorded, without calling anybody.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::{RunArgs, read_run, run};
use crate::cli::client::Client;
use crate::cli::{CliError, Exit, named, note, settings};
use crate::wire::control as pb;

#[derive(Debug, Args)]
pub(in crate::cli) struct RegradeArgs {
    /// The run whose recorded answers are judged: the beginning of its id, last, last~1, last:SUITE, or a label such as
    /// branch=main
    #[arg(value_name = "RUN")]
    run_id: String,

    /// Eval files with the assertions of today, folders or glob patterns
    #[arg(value_name = "SUITE", required = true)]
    suites: Vec<String>,

    /// Ask validators anew, instead of taking what they said then
    #[arg(long)]
    validators: bool,

    /// Fail cases that checked nothing instead of warning about them
    #[arg(long)]
    strict: bool,

    /// Evaluate all assertions of a case instead of stopping at the first that does not hold
    #[arg(long)]
    all_assertions: bool,

    /// Cases at the same time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    parallel: u32,

    /// Directory for the results, one JSON file an eval file [default: evals/results]
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,

    /// Write the result to this file too, as `run` does; may be given several times
    #[arg(short, long, value_name = "FILE")]
    output: Vec<PathBuf>,

    /// Print nothing but the summary
    #[arg(short, long)]
    quiet: bool,
}

pub(in crate::cli) async fn regrade(daemon: Option<String>, args: RegradeArgs) -> Result<Exit, CliError> {
    let client = Client::required(daemon.clone()).await?;
    let request = pb::GetRunRequest { run_id: named::run_id(&client, &args.run_id).await? };
    let recorded = client.ask("asking for the run", client.runs().get_run(request)).await?;
    client.close().await;
    let recorded = read_run(recorded.run)?;
    if !args.quiet {
        let when = recorded.created_at.strftime("%Y-%m-%d %H:%M");
        note(&format!("judging what was recorded in run {} ({when}); no agent is called", recorded.run_id));
    }
    // Of the settings those that say what is judged with, and where results are.
    let set = settings::complete(&["forgectl", "run"].map(OsString::from))?.args;
    let again = RunArgs {
        replay: Some(recorded.run_id.clone()),
        validators: args.validators,
        strict: args.strict,
        all_assertions: args.all_assertions,
        parallel: Some(args.parallel),
        output_dir: args.output_dir.or(set.output_dir),
        seed_manifest: set.seed_manifest,
        registry: set.registry,
        baseline: set.baseline,
        undecided: set.undecided,
        trace_url: set.trace_url,
        settings: set.settings,
        origins: set.origins,
        output: args.output,
        quiet: args.quiet,
        ..RunArgs::like(args.suites, recorded)
    };
    Box::pin(run(daemon, again)).await
}
