//! `--baseline`: which earlier result to compare with.
//!
//! A file is taken as it is; the id of a run, and `last`, are looked up in the directory of results and then in the
//! daemon. Whatever is found travels in the bundle, and the daemon compares.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::RunArgs;
use crate::cli::client::Client;
use crate::cli::{CliError, Exit};
use crate::json::{Json, Value};
use crate::suite::Suite;
use crate::verdict::baseline::Baseline;
use crate::wire::control as pb;

/// Most result files that are looked through, newest first.
const MOST_FILES: usize = 1_000;

/// The text of the result to compare with: a file of one suite or of several.
pub(super) async fn find(client: &Client, args: &RunArgs, name: &str, suites: &[Suite]) -> Result<Vec<u8>, CliError> {
    if Path::new(name).is_file() {
        return read(Path::new(name));
    }
    if name == "last" {
        return last(args, suites);
    }
    if name.contains(['/', '.']) {
        return Err(CliError::new(Exit::Usage, format!("--baseline {name}: there is no such file")));
    }
    let of_run = newest_first(args.output_dir()).into_iter().filter_map(|path| Found::read(&path));
    let found: Vec<Found> = of_run.filter(|found| found.baseline.run_id == name).collect();
    if !found.is_empty() {
        return Ok(together(&found));
    }
    if client.is_embedded() {
        let message = format!("--baseline {name}: no result in {} is of that run", args.output_dir().display());
        return Err(CliError::new(Exit::Usage, message).hint("name a result file, the id of a run, or last"));
    }
    from_daemon(client, name).await
}

/// A result file, checked: one that is truncated must not compare with nothing and look fine.
fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    let refuse = |why: String| CliError::new(Exit::Usage, format!("--baseline {}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    check(&text).map_err(refuse)?;
    Ok(text.into_bytes())
}

fn check(text: &str) -> Result<Vec<Baseline>, String> {
    Baseline::read(&Json::parse(text).map_err(|error| format!("it is no result: {error}"))?)
}

/// One result of the directory.
struct Found {
    text: String,
    /// Whether the run judged all cases of its file.
    is_whole: bool,
    baseline: Baseline,
    agent: Option<String>,
}

impl Found {
    /// Files that are no results stand in the way of nobody.
    fn read(path: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(path).ok()?;
        let json = Json::parse(&text).ok()?;
        let [baseline] = <[Baseline; 1]>::try_from(Baseline::read(&json).ok()?).ok()?;
        let agent = json.get("agentId").and_then(Json::as_str).map(str::to_owned);
        let is_partial = matches!(json.get("partial").map(|partial| &partial.value), Some(Value::Bool(true)));
        let is_trouble = json.get("exitCode").and_then(Json::as_f64) == Some(3.0);
        Some(Self { is_whole: !is_partial && !is_trouble, text, baseline, agent })
    }
}

/// The newest result of the same tool, tier and agent, for each suite. Runs that met trouble or were of some cases only are
/// passed over: they would hide what came before them.
fn last(args: &RunArgs, suites: &[Suite]) -> Result<Vec<u8>, CliError> {
    let mut found: Vec<Found> = Vec::new();
    for path in newest_first(args.output_dir()) {
        let Some(result) = Found::read(&path) else { continue };
        let Baseline { tool_name, tier, .. } = &result.baseline;
        let is_wanted = result.is_whole
            && suites.iter().any(|suite| suite.tool_name == *tool_name && suite.tier.name() == tier)
            && result.agent.as_deref() == Some(args.agent_name())
            && !found.iter().any(|other| other.baseline.tool_name == *tool_name && other.baseline.tier == *tier);
        if is_wanted {
            found.push(result);
        }
    }
    if found.is_empty() {
        let message =
            format!("--baseline last: {} holds no result of these tools and this agent", args.output_dir().display());
        return Err(
            CliError::new(Exit::Usage, message).hint("the first run has nothing to compare with: leave out --baseline")
        );
    }
    Ok(together(&found))
}

fn together(found: &[Found]) -> Vec<u8> {
    let texts: Vec<&str> = found.iter().map(|found| found.text.as_str()).collect();
    format!("{{\"suites\": [\n{}\n]}}", texts.join(",\n")).into_bytes()
}

fn newest_first(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == "json") {
            let changed = entry.metadata().and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
            files.push((changed, path));
        }
    }
    files.sort();
    files.into_iter().rev().take(MOST_FILES).map(|(_, path)| path).collect()
}

async fn from_daemon(client: &Client, run_id: &str) -> Result<Vec<u8>, CliError> {
    let doing = "fetching the baseline";
    let request =
        pb::FetchArtifactRequest { run_id: run_id.to_owned(), format: "json".to_owned(), suite: String::new() };
    let mut chunks = client.ask(doing, client.runs().fetch_artifact(request)).await?;
    let mut text = Vec::new();
    while let Some(chunk) = client.ask(doing, async { chunks.message().await.map(tonic::Response::new) }).await? {
        text.extend(chunk.chunk);
    }
    Ok(text)
}
