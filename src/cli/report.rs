//! `forgectl report`: the results of a run that is over, in any format.

use std::path::PathBuf;

use clap::Args;

use super::run::outputs;
use super::stored::{Found, find};
use super::{CliError, Exit};

#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// A result file (.json; several of one run are put together), or a run: the beginning of its id, last, last~1 (the one
    /// before), last:SUITE, or a label such as branch=main
    #[arg(value_name = "FILE|RUN", required = true)]
    names: Vec<String>,

    /// File to write, whose ending says the format: .json, .jsonl, .xml, .md or .html; or a folder, as for `run`; may be given
    /// several times
    #[arg(short, long, value_name = "FILE", required = true)]
    output: Vec<PathBuf>,
}

pub(super) async fn report(daemon: Option<String>, args: ReportArgs) -> Result<Exit, CliError> {
    match find(daemon, &args.names).await? {
        Found::Files(stored) => outputs::write_stored(&stored.0, &stored.1, &args.output)?,
        Found::Daemon(client, run_id) => {
            outputs::report(&client, &run_id, &args.output, None).await?;
            client.close().await;
        }
    }
    Ok(Exit::Passed)
}
