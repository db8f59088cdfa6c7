//! `forgectl status`.

use super::client::Client;
use super::{CliError, Exit, agents, print};
use crate::wire::control::ListRunsRequest;
use crate::wire::run::run_from_proto;

pub(super) async fn status(daemon: Option<String>) -> Result<Exit, CliError> {
    let client = Client::required(daemon).await?;
    let (mut kept, mut open, mut page_token) = (0, 0, String::new());
    loop {
        let request = ListRunsRequest { page_size: 500, page_token, ..ListRunsRequest::default() };
        let page = client.ask("asking for its runs", client.runs().list_runs(request)).await?;
        kept += page.runs.len();
        open += page
            .runs
            .into_iter()
            .filter_map(|run| run_from_proto(run).ok())
            .filter(|run| !run.state.is_final())
            .count();
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    let agents = agents::all(&client).await?;
    let info = &client.info;
    print(&format!(
        "daemon     {}\nversion    {}\nrevision   {} to {}\nfeatures   {}\nagents     {}\nruns       {} kept, {open} waiting or running\n",
        client.url,
        info.version,
        info.min_revision,
        info.max_revision,
        info.features.join(", "),
        agents.len(),
        kept,
    ))?;
    Ok(Exit::Passed)
}
