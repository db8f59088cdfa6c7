//! `forgectl history`.

use std::path::PathBuf;

use clap::Args;

use super::client::Client;
use super::{CliError, Exit, named, print};
use crate::text::printable_json;
use crate::wire::control as pb;

#[derive(Debug, Args)]
pub(super) struct HistoryArgs {
    /// The run: the beginning of its id, last, last~1, last:SUITE, or a label such as branch=main
    run: String,

    /// The case
    case: String,

    /// Suite of the case, as the run calls it, if several have one of that id
    #[arg(long, value_name = "PATH", default_value = "", hide_default_value = true)]
    suite: String,

    /// Which repetition of the case
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: u32,

    /// Write the cases to this file instead of stdout; it must not exist
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) async fn history(daemon: Option<String>, args: HistoryArgs) -> Result<Exit, CliError> {
    let client = Client::required(daemon).await?;
    let run_id = named::run_id(&client, &args.run).await?;
    let request = pb::GetHistoryRequest { run_id, case_id: args.case, suite: args.suite, repeat: args.repeat };
    let doing = "reading the history";
    let mut cases = client.ask(doing, client.runs().get_history(request)).await?;
    // Opened when there is something to write: a wrong name leaves no empty file behind.
    let mut file = None;
    loop {
        let next = async { cases.message().await.map(tonic::Response::new) };
        let Some(case) = client.ask(doing, next).await? else { break };
        let line = case.case + "\n";
        let Some(path) = &args.output else {
            print(&printable_json(&line))?;
            continue;
        };
        let failed = |error: std::io::Error| {
            CliError::new(Exit::CouldNotRun, format!("cannot write {}: {error}", path.display()))
        };
        let file = match &mut file {
            Some(file) => file,
            None => file.insert(std::fs::File::create_new(path).map_err(failed)?),
        };
        std::io::Write::write_all(file, line.as_bytes()).map_err(failed)?;
    }
    client.close().await;
    Ok(Exit::Passed)
}
