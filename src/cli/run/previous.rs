//! `--failed`: which cases did not pass before.

use std::collections::HashSet;
use std::path::Path;

use crate::cli::client::Client;
use crate::cli::follow::Follower;
use crate::cli::{CliError, Exit};
use crate::event::Payload;
use crate::json::{Json, Value};
use crate::suite::Suite;
use crate::verdict::Outcome;
use crate::wire::control::Detail;

/// The cases of `suites` that did not pass in an earlier run, by suite path and id.
pub(super) async fn not_passed(
    client: &Client,
    run: &str,
    suites: &[Suite],
) -> Result<Vec<(String, String)>, CliError> {
    let ids: Vec<(Option<String>, String)> = if Path::new(run).is_file() {
        from_file(Path::new(run))?
    } else if client.is_embedded() {
        return Err(CliError::new(Exit::Usage, format!("--failed {run}: there is no such file"))
            .hint("a daemon inside this process keeps no runs: name a result file, or a daemon"));
    } else {
        from_daemon(client, run).await?
    };
    let ids: HashSet<(Option<&str>, &str)> = ids.iter().map(|(suite, id)| (suite.as_deref(), id.as_str())).collect();
    let failed = |suite: &Suite, id: &str| ids.contains(&(Some(suite.path.as_str()), id)) || ids.contains(&(None, id));
    let mut cases = Vec::new();
    for suite in suites {
        let bad = suite.cases.iter().filter(|case| failed(suite, &case.id));
        cases.extend(bad.map(|case| (suite.path.clone(), case.id.clone())));
    }
    if cases.is_empty() {
        let message = format!("nothing selected: no case of these files failed in {run}");
        return Err(CliError::new(Exit::NothingSelected, message));
    }
    Ok(cases)
}

/// The cases of a run that did not pass, as soon as it is over. What was left out as asked did not fail.
async fn from_daemon(client: &Client, run: &str) -> Result<Vec<(Option<String>, String)>, CliError> {
    let mut follower = Follower::new(client, run, Detail::Cases);
    let mut bad = Vec::new();
    while let Some(event) = follower.next().await? {
        let (Payload::CaseFinished(result), Some(case)) = (&event.payload, &event.case) else { continue };
        let is_bad = match result.outcome {
            Outcome::Passed => false,
            Outcome::Skipped => result.cause.is_some(),
            Outcome::Failed | Outcome::Errored => true,
        };
        if is_bad {
            bad.push((Some(case.suite.to_string()), case.case_id.to_string()));
        }
    }
    Ok(bad)
}

/// The ids in a result file, of one suite or of several. The file says what a suite is about, not where it stood.
fn from_file(path: &Path) -> Result<Vec<(Option<String>, String)>, CliError> {
    let refuse = |why: String| CliError::new(Exit::Usage, format!("--failed {}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    let json = Json::parse(&text).map_err(|error| refuse(format!("it is no result file: {error}")))?;
    let suites = json.get("suites").and_then(Json::as_array).unwrap_or(std::slice::from_ref(&json));
    let mut ids = Vec::new();
    for suite in suites {
        let cases = suite.get("cases").and_then(Json::as_array);
        let cases = cases.ok_or_else(|| refuse("it is no result file: there are no cases".to_owned()))?;
        for case in cases {
            let id = case.get("id").and_then(Json::as_str);
            let id = id.ok_or_else(|| refuse(format!("line {}: a case has no id", case.line)))?;
            let is_left_out = case.get("outcome").and_then(Json::as_str) == Some("skipped")
                && matches!(case.get("cause").map(|cause| &cause.value), None | Some(Value::Null));
            if !is_left_out && !matches!(case.get("passed").map(|passed| &passed.value), Some(Value::Bool(true))) {
                ids.push((None, id.to_owned()));
            }
        }
    }
    Ok(ids)
}
