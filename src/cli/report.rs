//! `forgectl report`: the results of a run that is over, in any format.

use std::path::PathBuf;

use clap::Args;

use super::run::outputs;
use super::stored::{Found, find};
use super::{CliError, Exit};
use crate::report::Format;

#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// A result file (.json; several of one run are put together), or a run: the beginning of its id, last, last~1 (the
    /// one before), last:SUITE, or a label such as branch=main
    #[arg(value_name = "FILE|RUN", required = true)]
    names: Vec<String>,

    /// File to write, whose ending says the format: .json, .jsonl, .xml, .md or .html; or a folder, as for `run`; or -
    /// for stdout; may be given several times
    #[arg(short, long, value_name = "FILE", required = true)]
    output: Vec<PathBuf>,

    /// Format of -o -: json, jsonl, junit, markdown or html [default: json]
    #[arg(long, value_name = "FORMAT", value_parser = outputs::format_named)]
    format: Option<Format>,
}

pub(super) async fn report(daemon: Option<String>, args: ReportArgs) -> Result<Exit, CliError> {
    match find(daemon, &args.names).await? {
        Found::Files(stored) => outputs::write_stored(&stored.0, &stored.1, &args.output, args.format)?,
        Found::Daemon(client, run_id) => {
            outputs::report(&client, &run_id, &args.output, args.format, None).await?;
            client.close().await;
        }
    }
    Ok(Exit::Passed)
}
