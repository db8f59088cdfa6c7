//! `--baseline`: which earlier result to compare with.
//!
//! A file is taken as it is; the id of a run, and `last`, are looked up in the directory of results and then in the
//! daemon. Whatever is found travels in the bundle, and the daemon compares: each suite with its own result, see
//! [`identity`](crate::suite::identity). What only the client can see is whether the file of an earlier suite is still
//! there: then it was not moved, and is no other suite of now.

use std::path::Path;

use super::{RunArgs, earlier, read_run};
use crate::cli::client::Client;
use crate::cli::inputs::is_there;
use crate::cli::named::{Name, run_id};
use crate::cli::results::{newest_first, of_run};
use crate::cli::{CliError, Exit};
use crate::event::SuiteInfo;
use crate::json::{Json, Value, without_mark};
use crate::suite::Suite;
use crate::suite::identity::{Identity, Sign};
use crate::verdict::baseline::Baseline;
use crate::wire::control as pb;

/// Most results that are looked through, newest first: files, and runs of a daemon.
const MOST_RESULTS: usize = 1_000;

/// The text of the result to compare with: a file of one suite or of several. None: the settings name the last one, and
/// this run is the first.
pub(super) async fn find(
    client: &Client,
    args: &RunArgs,
    name: &str,
    suites: &[Suite],
) -> Result<Option<Vec<u8>>, CliError> {
    if Path::new(name).is_file() {
        return read(Path::new(name), suites).map(Some);
    }
    if name == "last" {
        return match last(client, args, suites).await? {
            // Nobody asked for it now, and no gate needs it.
            None if args.origins.of("baseline").is_some() && args.max_regression.is_none() => Ok(None),
            None => Err(no_last(client, args)),
            found => Ok(found),
        };
    }
    if name.contains('/') || Path::new(name).extension().is_some_and(|ending| ending == "json") {
        return Err(CliError::new(Exit::Usage, format!("--baseline {name}: there is no such file")));
    }
    let name_of_run = Name::parse(name)?;
    let files = of_run(args.output_dir(), name_of_run);
    let mut found: Vec<Found> = files.iter().filter_map(|path| Found::read(path)).collect();
    if found.is_empty()
        && let Name::Id(start) = name_of_run
    {
        found = with_id(args.output_dir(), start);
    }
    let text = if !found.is_empty() {
        together(&found)
    } else if client.is_embedded() {
        let message = format!("--baseline {name}: no result in {} is of that run", args.output_dir().display());
        return Err(CliError::new(Exit::Usage, message)
            .hint("name a result file, the id of a run or its beginning, last, last~1 or last:SUITE"));
    } else {
        let run_id = run_id(client, name).await?;
        let text = client.again(async || from_daemon(client, &run_id, "").await).await?;
        String::from_utf8(text)
            .map_err(|_| CliError::new(Exit::CouldNotRun, "the baseline of the daemon is no text"))?
    };
    let found = of_these(&text, suites);
    found.map(Some).map_err(|why| CliError::new(Exit::CouldNotRun, format!("--baseline {name}: {why}")))
}

fn no_last(client: &Client, args: &RunArgs) -> CliError {
    let places = if client.is_embedded() { "" } else { " and the daemon" };
    let (baseline, folder) = (args.said("baseline"), args.output_dir().display());
    let message = format!("{baseline} last: there is no result of these suites and this agent in {folder}{places}");
    CliError::new(Exit::Usage, message).hint(match args.origins.of("baseline") {
        None => "the first run has nothing to compare with: leave out --baseline".to_owned(),
        Some(_) => {
            format!("the first run has nothing to compare with: leave out {} for it", args.said("max_regression"))
        }
    })
}

/// The results that say that they are of the one run whose id begins so, for files that are not called after their
/// runs.
fn with_id(folder: &Path, start: &str) -> Vec<Found> {
    let results = newest_first(folder).into_iter().filter_map(|path| Found::read(&path));
    let found: Vec<Found> = results.filter(|found| found.baseline.run_id.starts_with(start)).collect();
    let is_one_run = found.windows(2).all(|pair| pair[0].baseline.run_id == pair[1].baseline.run_id);
    if is_one_run { found } else { Vec::new() }
}

/// A result file, checked: one that is truncated must not compare with nothing and look fine.
fn read(path: &Path, suites: &[Suite]) -> Result<Vec<u8>, CliError> {
    let refuse = |why: String| CliError::new(Exit::Usage, format!("--baseline {}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    of_these(without_mark(&text), suites).map_err(refuse)
}

/// A result without the suites that are no part of this run: see [`earlier`].
fn of_these(text: &str, suites: &[Suite]) -> Result<Vec<u8>, String> {
    let json = Json::parse_file(text).map_err(|error| format!("it is no result: {error}"))?;
    let baselines = Baseline::read(&json)?;
    let paths: Vec<&str> = baselines.iter().map(|baseline| baseline.setting.path.as_str()).collect();
    let kept = earlier::may_be_of(&paths, suites);
    if kept.len() == paths.len() {
        return Ok(text.as_bytes().to_vec());
    }
    let all = json.get("suites").and_then(Json::as_array).unwrap_or_default();
    let kept: Vec<String> = kept.into_iter().filter_map(|at| all.get(at)).map(Json::stringify).collect();
    Ok(format!("{{\"suites\": [\n{}\n]}}", kept.join(",\n")).into_bytes())
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
        Self::of(without_mark(&std::fs::read_to_string(path).ok()?).to_owned())
    }

    fn of(text: String) -> Option<Self> {
        let json = Json::parse_file(&text).ok()?;
        let [baseline] = <[Baseline; 1]>::try_from(Baseline::read(&json).ok()?).ok()?;
        let agent = json.get("agentId").and_then(Json::as_str).map(str::to_owned);
        let is_partial = matches!(json.get("partial").map(|partial| &partial.value), Some(Value::Bool(true)));
        // What was replayed says nothing about the agent.
        let is_partial = is_partial || json.get("replayOf").is_some();
        let is_trouble = json.get("exitCode").and_then(Json::as_f64) == Some(3.0);
        // One that failed fast left the rest of its cases out, and says so with each of them.
        let is_cut =
            json.get("cases").and_then(Json::as_array).into_iter().flatten().any(|case| {
                case.get("outcome").and_then(Json::as_str) == Some("skipped") && case.get("error").is_some()
            });
        Some(Self { is_whole: !is_partial && !is_trouble && !is_cut, text, baseline, agent })
    }
}

/// The newest result of each suite with the same agent: in the directory of results, else among the runs of the daemon.
/// Runs that met trouble or were of some cases only are passed over: they would hide what came before them.
async fn last(client: &Client, args: &RunArgs, suites: &[Suite]) -> Result<Option<Vec<u8>>, CliError> {
    let mut wanted = Wanted::new(suites, args.agent_name());
    for path in newest_first(args.output_dir()) {
        if wanted.is_complete() {
            break;
        }
        if let Some(result) = Found::read(&path) {
            wanted.offer(result);
        }
    }
    if !client.is_embedded() && !wanted.is_complete() {
        look_in_daemon(client, &mut wanted).await?;
    }
    let found: Vec<Found> = wanted.found.into_iter().flatten().map(|(_, found)| found).collect();
    Ok((!found.is_empty()).then(|| together(&found).into_bytes()))
}

/// The results that are looked for, and those that were found.
struct Wanted<'a> {
    suites: Vec<Identity<'a>>,
    agent: &'a str,
    /// For each suite the newest result of those that are most surely its own.
    found: Vec<Option<(Sign, Found)>>,
}

impl<'a> Wanted<'a> {
    fn new(suites: &'a [Suite], agent: &'a str) -> Self {
        let found = suites.iter().map(|_| None).collect();
        Self { suites: suites.iter().map(Suite::identity).collect(), agent, found }
    }

    /// Whether nothing that is older could be surer.
    fn is_complete(&self) -> bool {
        self.found.iter().all(|found| found.as_ref().is_some_and(|(sign, _)| *sign == Sign::Path))
    }

    /// The suite that `then` may be a result of, and what tells so. `None`: it is of no suite, or a newer result is
    /// known.
    fn place_of(&self, then: &Identity<'_>) -> Option<(usize, Sign)> {
        let is_ours = self.suites.iter().any(|suite| suite.path == then.path);
        if !is_ours && is_there(then.path) {
            return None;
        }
        let signs = self.suites.iter().enumerate().filter_map(|(place, suite)| Some((suite.sign(then)?, place)));
        let (sign, place) = signs.filter(|(sign, _)| sign.is_of_content()).min()?;
        let is_surer = self.found[place].as_ref().is_none_or(|(known, _)| sign < *known);
        is_surer.then_some((place, sign))
    }

    fn offer(&mut self, result: Found) {
        if result.is_whole
            && result.agent.as_deref() == Some(self.agent)
            && let Some((place, sign)) = self.place_of(&result.baseline.identity())
        {
            self.found[place] = Some((sign, result));
        }
    }

    /// Whether a result is worth fetching. The ids of its cases are not known before that.
    fn wants(&self, suite: &SuiteInfo) -> bool {
        let then = suite.identity(Vec::new());
        let same = |wanted: &Identity<'_>| wanted.path == then.path || wanted.file_hash == then.file_hash;
        if self.suites.iter().any(same) {
            return self.place_of(&then).is_some();
        }
        // Its cases may show that it is of a suite that has no result yet.
        let may_be = |wanted: &Identity<'_>| {
            wanted.sign(&Identity { ids: wanted.ids.clone(), ..then.clone() }) == Some(Sign::Cases)
        };
        let is_open = self.suites.iter().zip(&self.found).any(|(wanted, found)| found.is_none() && may_be(wanted));
        is_open && !is_there(then.path)
    }
}

/// Goes through the runs of the daemon, newest first.
async fn look_in_daemon(client: &Client, wanted: &mut Wanted<'_>) -> Result<(), CliError> {
    let mut page_token = String::new();
    let mut seen = 0;
    while seen < MOST_RESULTS {
        let agent_id = wanted.agent.to_owned();
        let request = pb::ListRunsRequest { page_size: 100, page_token, agent_id, ..pb::ListRunsRequest::default() };
        let page = client.ask("asking for earlier runs", client.runs().list_runs(request)).await?;
        for run in page.runs {
            seen += 1;
            // A list does not hold all suites of a large run.
            let has_all = run.suites.len() >= usize::try_from(run.suite_count).unwrap_or(usize::MAX);
            let run = if has_all { run } else { whole(client, run).await? };
            let run = read_run(Some(run))?;
            let is_fit = run.spec.replay.is_none() && run.state.is_final() && run.exit_code() != 3;
            for suite in run.suites.iter().filter(|_| is_fit) {
                if wanted.wants(suite) {
                    let text = client.again(async || from_daemon(client, &run.run_id, &suite.path).await).await?;
                    if let Some(result) = String::from_utf8(text).ok().and_then(Found::of) {
                        wanted.offer(result);
                    }
                }
            }
            if wanted.is_complete() {
                return Ok(());
            }
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    Ok(())
}

/// Fetches the whole run: a list holds only its head.
async fn whole(client: &Client, head: pb::Run) -> Result<pb::Run, CliError> {
    let request = pb::GetRunRequest { run_id: head.run_id.clone() };
    let got = client.ask("asking for an earlier run", client.runs().get_run(request)).await?;
    Ok(got.run.unwrap_or(head))
}

fn together(found: &[Found]) -> String {
    let texts: Vec<&str> = found.iter().map(|found| found.text.as_str()).collect();
    format!("{{\"suites\": [\n{}\n]}}", texts.join(",\n"))
}

/// The result of a run, or of one suite of it.
async fn from_daemon(client: &Client, run_id: &str, suite: &str) -> Result<Vec<u8>, CliError> {
    let doing = "fetching the baseline";
    let (run_id, format, suite) = (run_id.to_owned(), "json".to_owned(), suite.to_owned());
    let request = pb::FetchArtifactRequest { run_id, format, suite, attachment: String::new() };
    let mut chunks = client.ask(doing, client.runs().fetch_artifact(request)).await?;
    let mut text = Vec::new();
    while let Some(chunk) = client.ask(doing, async { chunks.message().await.map(tonic::Response::new) }).await? {
        text.extend(chunk.chunk);
    }
    Ok(text)
}
