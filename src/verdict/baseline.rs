//! Comparison with an earlier result: which cases passed before and fail now, and the other way round.
//!
//! Only cases that both sides know are compared. New and vanished ones are neither regressions nor new passes, but they
//! are named, so that a rename cannot hide a break.

use std::collections::{HashMap, HashSet};

use super::{Blame, Outcome, Standing};
use crate::json::{Json, Value};
use crate::stats::Tally;
use crate::suite::Tier;
use crate::suite::identity::{Identity, pair};

/// An earlier `EvalSuiteResult`, as far as it is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Baseline {
    /// Id of the earlier run.
    pub run_id: String,
    /// What the suite was about.
    pub tool_name: String,
    /// Its tier; `None` when the result does not say.
    pub tier: Option<Tier>,
    /// What it was run with.
    pub setting: Setting,
    /// Its cases.
    pub cases: Vec<BaselineCase>,
}

/// A case of an earlier result, over its repetitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaselineCase {
    /// Its id.
    pub id: String,
    /// Whether all repetitions passed that could be judged; `None` when none could, or none was run.
    pub passed: Option<bool>,
    /// What its repetitions say about the agent.
    pub tally: Tally,
}

/// Where answers come from that are nobody's recorded ones.
pub const AGENTS: &str = "agents";

/// What a suite was run with, as far as its result tells; empty where it does not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Setting {
    /// Path of the eval file.
    pub path: String,
    /// Hash of the eval file.
    pub eval_file_hash: String,
    /// Version or build of the agent.
    pub agent_version: String,
    /// The agent's model.
    pub agent_model: String,
    /// Hash of the tool's description.
    pub description_hash: String,
    /// Version of the tool.
    pub tool_version: String,
    /// Number of tools.
    pub registry_size: String,
    /// Where its answers come from: `agents`, or the id of the run whose recorded answers were judged.
    pub evidence: String,
}

impl Setting {
    /// Reads what a result tells about it.
    fn read(json: &Json) -> Self {
        let text = |object: &str, key: &str| match json.get(object).and_then(|object| object.get(key)) {
            Some(Json { value: Value::String(text), .. }) => text.clone(),
            Some(number @ Json { value: Value::Number(_), .. }) => number.stringify(),
            _ => String::new(),
        };
        Self {
            path: json.get("suite").and_then(Json::as_str).unwrap_or_default().to_owned(),
            eval_file_hash: text("metadata", "evalFileHash"),
            agent_version: text("agent", "version"),
            agent_model: text("agent", "model"),
            description_hash: text("metadata", "descriptionHash"),
            tool_version: text("metadata", "toolVersion"),
            registry_size: text("metadata", "registrySize"),
            evidence: json.get("replayOf").and_then(Json::as_str).unwrap_or(AGENTS).to_owned(),
        }
    }

    /// What is not the same in both, in words; what one of them does not tell is not compared.
    #[must_use]
    pub fn differences(before: &Self, now: &Self) -> Vec<String> {
        let pairs = [
            ("another path of the eval file", &before.path, &now.path),
            ("another text of the eval file", &before.eval_file_hash, &now.eval_file_hash),
            ("another build of the agent", &before.agent_version, &now.agent_version),
            ("another model", &before.agent_model, &now.agent_model),
            ("another description of the tool", &before.description_hash, &now.description_hash),
            ("another version of the tool", &before.tool_version, &now.tool_version),
            ("another number of tools", &before.registry_size, &now.registry_size),
            ("other evidence", &before.evidence, &now.evidence),
        ];
        let differ = pairs.iter().filter(|(_, then, now)| !then.is_empty() && !now.is_empty() && then != now);
        differ.map(|(what, then, now)| format!("{what} ({then}, now {now})")).collect()
    }
}

/// What came of a comparison; ids in the order of their files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Comparison {
    /// Id of the earlier run.
    pub baseline_run_id: String,
    /// Cases that passed before and did not now.
    pub regressions: Vec<String>,
    /// Cases that did not pass before and did now.
    pub new_passes: Vec<String>,
    /// Cases that the earlier run does not know.
    pub new_cases: Vec<String>,
    /// Cases of the earlier run that the file does not hold any more.
    pub vanished_cases: Vec<String>,
    /// Cases that passed before and have no verdict now.
    pub not_judged: Vec<String>,
    /// What else was not the same then, in words: it may be the reason for what differs.
    pub differences: Vec<String>,
}

impl Baseline {
    /// Reads the results in a file: one suite, or several in `suites`.
    ///
    /// # Errors
    /// What is missing or wrong, with its line: a truncated baseline would compare with nothing and look fine.
    pub fn read(json: &Json) -> Result<Vec<Self>, String> {
        let suites = json.get("suites").and_then(Json::as_array).unwrap_or(std::slice::from_ref(json));
        if suites.is_empty() {
            return Err(format!("line {}: there are no suites in it", json.line));
        }
        suites.iter().map(Self::read_suite).collect()
    }

    fn read_suite(json: &Json) -> Result<Self, String> {
        let text = |key: &str| {
            let text = json.get(key).and_then(Json::as_str).filter(|text| !text.is_empty());
            text.map(str::to_owned).ok_or_else(|| format!("line {}: {key} is missing, so it is no result", json.line))
        };
        let cases = json.get("cases").and_then(Json::as_array);
        let cases = cases.ok_or_else(|| format!("line {}: there are no cases, so it is no result", json.line))?;
        let case = |case: &Json| {
            let id = case.get("id").and_then(Json::as_str);
            let outcome = case.get("outcome").and_then(Json::as_str);
            let passed = match case.get("passed").map(|passed| &passed.value) {
                Some(Value::Bool(_)) if matches!(outcome, Some("errored" | "skipped")) => Some(None),
                Some(Value::Bool(passed)) => Some(Some(*passed)),
                _ => None,
            };
            let repeat = case.get("repeat").map_or_else(|| "1".to_owned(), Json::stringify);
            let known = id.zip(passed).map(|(id, passed)| (id.to_owned(), repeat, passed, tally(case, passed)));
            known.ok_or_else(|| format!("line {}: a case needs an id, and passed as true or false", case.line))
        };
        let executions: Vec<(String, String, Option<bool>, Tally)> =
            cases.iter().map(case).collect::<Result<_, _>>()?;
        let mut seen = HashSet::new();
        if let Some((twice, ..)) = executions.iter().find(|(id, repeat, ..)| !seen.insert((id, repeat))) {
            return Err(format!("line {}: the case {twice:?} stands there twice", json.line));
        }
        // A case passed if all its repetitions did that could be judged.
        let mut positions: HashMap<&str, usize> = HashMap::new();
        let mut cases: Vec<BaselineCase> = Vec::new();
        for (id, _, passed, tally) in &executions {
            let position = *positions.entry(id).or_insert_with(|| {
                cases.push(BaselineCase { id: id.clone(), passed: None, tally: Tally::default() });
                cases.len() - 1
            });
            cases[position].tally.add(*tally);
            let all = &mut cases[position].passed;
            *all = match (*all, *passed) {
                (Some(before), Some(now)) => Some(before && now),
                (before, now) => before.or(now),
            };
        }
        if cases.is_empty() {
            return Err(format!("line {}: there are no cases to compare with", json.line));
        }
        let tier = json.get("tier").and_then(Json::as_str).and_then(Tier::named);
        let setting = Setting::read(json);
        Ok(Self { run_id: text("runId")?, tool_name: text("toolName")?, tier, setting, cases })
    }

    /// What its suite is known by.
    #[must_use]
    pub fn identity(&self) -> Identity<'_> {
        Identity {
            path: &self.setting.path,
            file_hash: &self.setting.eval_file_hash,
            tool_name: &self.tool_name,
            tier: self.tier,
            ids: self.cases.iter().map(|case| case.id.as_str()).collect(),
        }
    }

    /// For each suite of a run the one of `baselines` that it is compared with; each of these is for one suite at most.
    #[must_use]
    pub fn choose<'a>(baselines: &'a [Self], suites: &[Identity<'_>]) -> Vec<Option<&'a Self>> {
        let earlier: Vec<Identity<'_>> = baselines.iter().map(Self::identity).collect();
        let pairs = pair(suites, &earlier);
        pairs.into_iter().map(|paired| paired.map(|(position, _)| &baselines[position])).collect()
    }

    /// Compares with what came of the cases now: `current` in file order, every id that the file holds, and what it was
    /// run with.
    #[must_use]
    pub fn compare<'a>(
        &self,
        current: impl IntoIterator<Item = (&'a str, Standing)>,
        in_file: impl Fn(&str) -> bool,
        now: &Setting,
    ) -> Comparison {
        let before: HashMap<&str, Option<bool>> =
            self.cases.iter().map(|case| (case.id.as_str(), case.passed)).collect();
        let differences = Setting::differences(&self.setting, now);
        let mut comparison = Comparison { baseline_run_id: self.run_id.clone(), differences, ..Comparison::default() };
        let mut seen = HashSet::new();
        for (id, standing) in current {
            seen.insert(id);
            if standing == Standing::LeftOut {
                continue;
            }
            let list = match (before.get(id), standing) {
                (None, _) => &mut comparison.new_cases,
                (Some(Some(true)), Standing::Failed) => &mut comparison.regressions,
                (Some(Some(true)), Standing::NotJudged) => &mut comparison.not_judged,
                (Some(Some(false)), Standing::Passed) => &mut comparison.new_passes,
                // As before, or there is no verdict then or now that could be compared.
                _ => continue,
            };
            list.push(id.to_owned());
        }
        let gone = self.cases.iter().map(|case| &case.id).filter(|id| !seen.contains(id.as_str()) && !in_file(id));
        comparison.vanished_cases = gone.cloned().collect();
        comparison
    }
}

/// What an execution in a result says about the agent, see [`super::CaseResult::tally`]. Results of other programs
/// say only whether it passed.
fn tally(case: &Json, passed: Option<bool>) -> Tally {
    let word = |json: &Json, key: &str| json.get(key).and_then(Json::as_str).map(str::to_owned);
    let is_agents = |json: &Json| word(json, "blame").is_none_or(|blame| blame == Blame::Agent.name());
    let earlier = case.get("earlierAttempts").and_then(Json::as_array).unwrap_or_default();
    let has_failed =
        |attempt: &Json| word(attempt, "outcome").as_deref() == Some(Outcome::Failed.name()) && is_agents(attempt);
    let is_replayed = matches!(case.get("replayed").map(|replayed| &replayed.value), Some(Value::Bool(true)));
    match passed {
        _ if is_replayed => Tally { uncounted: 1, ..Tally::default() },
        _ if earlier.iter().any(has_failed) => Tally { failed: 1, ..Tally::default() },
        Some(true) => Tally { passed: 1, ..Tally::default() },
        Some(false) if is_agents(case) => Tally { failed: 1, ..Tally::default() },
        Some(false) | None => Tally { uncounted: 1, ..Tally::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_result_is_refused() {
        for (text, problem) in [
            ("{}", "line 1: there are no cases"),
            (r#"{"cases": [], "toolName": "t"}"#, "there are no cases to compare with"),
            (r#"{"cases": [{"id": "a", "passed": true}], "toolName": "t"}"#, "runId is missing"),
            (r#"{"cases": [{"id": "a", "passed": true}, {"id": "a", "passed": false}]}"#, "stands there twice"),
            (r#"{"suites": []}"#, "there are no suites"),
            (r#"{"runId": "r", "toolName": "t", "cases": [{"id": "a"}]}"#, "a case needs an id, and passed"),
            (r#"{"suites": [{"runId": "r"}]}"#, "there are no cases"),
        ] {
            let error = Baseline::read(&Json::parse(text).expect("JSON")).expect_err(text);
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn a_case_without_a_verdict_then_is_compared_with_nothing_now() {
        let json = r#"{"runId": "r", "toolName": "t", "cases": [{"id": "a", "passed": false, "outcome": "errored"}]}"#;
        let baseline = Baseline::read(&Json::parse(json).expect("JSON")).expect("a result").remove(0);
        let comparison = baseline.compare([("a", Standing::Passed)], |_| true, &Setting::default());
        assert_eq!(comparison, Comparison { baseline_run_id: "r".to_owned(), ..Comparison::default() });
    }

    #[test]
    fn a_case_without_a_verdict_now_is_told_if_it_passed_then() {
        let json = r#"{"runId": "r", "suite": "then.json", "toolName": "t", "cases": [{"id": "a", "passed": true},
            {"id": "b", "passed": false}, {"id": "c", "passed": true}]}"#;
        let baseline = Baseline::read(&Json::parse(json).expect("JSON")).expect("a result").remove(0);
        let now = [("a", Standing::NotJudged), ("b", Standing::NotJudged), ("c", Standing::LeftOut)];
        let comparison =
            baseline.compare(now, |_| true, &Setting { path: "now.json".to_owned(), ..Setting::default() });
        assert_eq!((comparison.not_judged, comparison.regressions), (vec!["a".to_owned()], Vec::new()));
        assert_eq!(comparison.differences, ["another path of the eval file (then.json, now now.json)"]);
    }

    #[test]
    fn a_rename_is_seen_from_both_sides() {
        let json = r#"{"runId": "r", "toolName": "t", "cases": [{"id": "old", "passed": true}, {"id": "unselected", "passed": true}]}"#;
        let baseline = Baseline::read(&Json::parse(json).expect("JSON")).expect("a result").remove(0);
        let comparison = baseline.compare([("new", Standing::Failed)], |id| id == "unselected", &Setting::default());
        assert_eq!((comparison.new_cases, comparison.vanished_cases), (vec!["new".to_owned()], vec!["old".to_owned()]));
        assert!(comparison.regressions.is_empty());
    }

    #[test]
    fn what_else_was_different_is_said() {
        let json = r#"{"runId": "r", "toolName": "t", "cases": [{"id": "a", "passed": true}],
            "metadata": {"evalFileHash": "abc", "registrySize": 3, "toolVersion": null}, "agent": {"version": "1.0"}}"#;
        let baseline = Baseline::read(&Json::parse(json).expect("JSON")).expect("a result").remove(0);
        let now = Setting {
            eval_file_hash: "abc".to_owned(),
            agent_version: "1.1".to_owned(),
            tool_version: "2.0".to_owned(),
            registry_size: "4".to_owned(),
            ..Setting::default()
        };
        let comparison = baseline.compare([("a", Standing::Passed)], |_| true, &now);
        let expected = ["another build of the agent (1.0, now 1.1)", "another number of tools (3, now 4)"];
        assert_eq!(comparison.differences, expected);
    }
}
