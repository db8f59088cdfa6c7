//! `--failed`: which cases did not pass before.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::earlier;
use crate::cli::client::Client;
use crate::cli::follow::Follower;
use crate::cli::named::{Name, run_id};
use crate::cli::results::of_run;
use crate::cli::{CliError, Exit};
use crate::event::{Payload, Run};
use crate::json::{Json, Value, without_mark};
use crate::suite::identity::{Identity, pair};
use crate::suite::{Suite, Tier};
use crate::verdict::Outcome;
use crate::wire::control::Detail;

/// A suite of an earlier run.
#[derive(Debug, Default)]
struct Earlier {
    path: String,
    file_hash: String,
    tool_name: String,
    tier: Option<Tier>,
    /// Its cases.
    ids: Vec<String>,
    /// Those of them that did not pass.
    bad: HashSet<String>,
}

impl Earlier {
    fn identity(&self) -> Identity<'_> {
        let Self { path, file_hash, tool_name, tier, ids, .. } = self;
        Identity { path, file_hash, tool_name, tier: *tier, ids: ids.iter().map(String::as_str).collect() }
    }
}

/// The cases of `suites` that did not pass in an earlier run, by suite path and id: of each suite those of its own
/// result.
pub(super) async fn not_passed(
    client: &Client,
    run: &str,
    results: &Path,
    suites: &[Suite],
) -> Result<Vec<(String, String)>, CliError> {
    let all = if Path::new(run).is_file() {
        from_file(Path::new(run))?
    } else if client.is_embedded() {
        let files = of_run(results, Name::parse(run)?);
        if files.is_empty() {
            let message =
                format!("--failed {run}: there is no such file, and no result of that run in {}", results.display());
            return Err(CliError::new(Exit::Usage, message).hint(
                "a daemon inside this process keeps no runs: name a result file, the id of a run that has one, last or last~1, or a daemon",
            ));
        }
        let mut suites = Vec::new();
        for file in &files {
            suites.extend(from_file(file)?);
        }
        suites
    } else {
        from_daemon(client, &run_id(client, run).await?).await?
    };
    let paths: Vec<&str> = all.iter().map(|suite| suite.path.as_str()).collect();
    let then: Vec<&Earlier> = earlier::may_be_of(&paths, suites).into_iter().map(|at| &all[at]).collect();
    let now: Vec<Identity<'_>> = suites.iter().map(Suite::identity).collect();
    let pairs = pair(&now, &then.iter().map(|suite| suite.identity()).collect::<Vec<_>>());
    let mut cases = Vec::new();
    for (suite, paired) in suites.iter().zip(pairs) {
        let Some((earlier, _)) = paired else { continue };
        let bad = suite.cases.iter().filter(|case| then[earlier].bad.contains(&case.id));
        cases.extend(bad.map(|case| (suite.path.clone(), case.id.clone())));
    }
    if cases.is_empty() {
        let message = format!("nothing selected: no case of these files failed in {run}");
        return Err(CliError::new(Exit::NothingSelected, message));
    }
    Ok(cases)
}

/// The cases of `suites` that an earlier run was of, if it was of some only; else none.
pub(super) fn same(run: &Run, suites: &[Suite]) -> Vec<(String, String)> {
    let ids = |path: &str| {
        run.spec.cases.iter().filter(|(suite, _)| suite == path).map(|(_, id)| id.as_str()).collect::<Vec<_>>()
    };
    let then: Vec<Identity<'_>> = run.suites.iter().map(|suite| suite.identity(ids(&suite.path))).collect();
    let now: Vec<Identity<'_>> = suites.iter().map(Suite::identity).collect();
    let pairs = suites.iter().zip(pair(&now, &then));
    let cases = |(suite, paired): (&Suite, Option<(usize, _)>)| {
        let ids = paired.map(|(earlier, _)| then[earlier].ids.clone()).unwrap_or_default();
        ids.into_iter().map(|id| (suite.path.clone(), id.to_owned())).collect::<Vec<_>>()
    };
    pairs.flat_map(cases).collect()
}

/// The suites of a run, as soon as it is over. What was left out as asked did not fail.
async fn from_daemon(client: &Client, run: &str) -> Result<Vec<Earlier>, CliError> {
    let mut follower = Follower::new(client, run, Detail::Cases);
    let mut suites: Vec<Earlier> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    while let Some(event) = follower.next().await? {
        if let Payload::RunStarted(run) = &event.payload {
            for suite in &run.suites {
                places.insert(suite.path.clone(), suites.len());
                suites.push(Earlier {
                    path: suite.path.clone(),
                    file_hash: suite.eval_file_hash.clone(),
                    tool_name: suite.tool_name.clone(),
                    tier: Some(suite.tier),
                    ..Earlier::default()
                });
            }
        }
        let Some(case) = &event.case else { continue };
        let Some(suite) = places.get(&*case.suite).map(|place| &mut suites[*place]) else { continue };
        match &event.payload {
            Payload::CasePlanned { .. } if case.repeat == 1 => suite.ids.push(case.case_id.to_string()),
            Payload::CaseFinished(result) => {
                let is_bad = match result.outcome {
                    Outcome::Passed => false,
                    Outcome::Skipped => result.cause.is_some(),
                    Outcome::Failed | Outcome::Errored => true,
                };
                if is_bad {
                    suite.bad.insert(case.case_id.to_string());
                }
            }
            _ => {}
        }
    }
    Ok(suites)
}

/// The suites of a result file. Those of other programs and earlier versions say less of what they are about.
fn from_file(path: &Path) -> Result<Vec<Earlier>, CliError> {
    let refuse = |why: String| CliError::new(Exit::Usage, format!("--failed {}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    let json =
        Json::parse_file(without_mark(&text)).map_err(|error| refuse(format!("it is no result file: {error}")))?;
    let suites = json.get("suites").and_then(Json::as_array).unwrap_or(std::slice::from_ref(&json));
    let read = |suite: &Json| {
        let text = |of: Option<&Json>| of.and_then(Json::as_str).unwrap_or_default().to_owned();
        let mut earlier = Earlier {
            path: text(suite.get("suite")),
            file_hash: text(suite.get("metadata").and_then(|metadata| metadata.get("evalFileHash"))),
            tool_name: text(suite.get("toolName")),
            tier: suite.get("tier").and_then(Json::as_str).and_then(Tier::named),
            ..Earlier::default()
        };
        let cases = suite.get("cases").and_then(Json::as_array);
        let cases = cases.ok_or_else(|| refuse("it is no result file: there are no cases".to_owned()))?;
        for case in cases {
            let id = case.get("id").and_then(Json::as_str);
            let id = id.ok_or_else(|| refuse(format!("line {}: a case has no id", case.line)))?;
            let is_left_out = case.get("outcome").and_then(Json::as_str) == Some("skipped")
                && matches!(case.get("cause").map(|cause| &cause.value), None | Some(Value::Null));
            // Repetitions of a case stand together.
            if earlier.ids.last().is_none_or(|last| last != id) {
                earlier.ids.push(id.to_owned());
            }
            if !is_left_out && !matches!(case.get("passed").map(|passed| &passed.value), Some(Value::Bool(true))) {
                earlier.bad.insert(id.to_owned());
            }
        }
        Ok(earlier)
    };
    suites.iter().map(read).collect()
}
