//! Comparison with an earlier result: which cases passed before and fail now, and the other way round.
//!
//! Only cases that both sides know are compared. New and vanished ones are neither regressions nor new passes, but they
//! are named, so that a rename cannot hide a break.

use std::collections::{HashMap, HashSet};

use crate::json::{Json, Value};

/// An earlier `EvalSuiteResult`, as far as it is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Baseline {
    /// Id of the earlier run.
    pub run_id: String,
    /// What the suite was about.
    pub tool_name: String,
    /// Its cases: id, and whether it passed.
    pub cases: Vec<(String, bool)>,
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
}

impl Baseline {
    /// Reads the results in a file: one suite, or several in `suites`.
    ///
    /// # Errors
    /// What is missing or wrong, with its line: a truncated baseline would compare with nothing and look fine.
    pub fn read(json: &Json) -> Result<Vec<Self>, String> {
        let suites = json.get("suites").and_then(Json::as_array).unwrap_or(std::slice::from_ref(json));
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
            let passed = match case.get("passed").map(|passed| &passed.value) {
                Some(Value::Bool(passed)) => Some(*passed),
                _ => None,
            };
            let known = id.map(str::to_owned).zip(passed);
            known.ok_or_else(|| format!("line {}: a case needs an id, and passed as true or false", case.line))
        };
        Ok(Self {
            run_id: text("runId")?,
            tool_name: text("toolName")?,
            cases: cases.iter().map(case).collect::<Result<_, _>>()?,
        })
    }

    /// Compares with what came of the cases now: `current` in file order, and every id that the file holds.
    #[must_use]
    pub fn compare<'a>(
        &self,
        current: impl IntoIterator<Item = (&'a str, bool)>,
        in_file: impl Fn(&str) -> bool,
    ) -> Comparison {
        let before: HashMap<&str, bool> = self.cases.iter().map(|(id, passed)| (id.as_str(), *passed)).collect();
        let mut comparison = Comparison { baseline_run_id: self.run_id.clone(), ..Comparison::default() };
        let mut seen = HashSet::new();
        for (id, passes) in current {
            seen.insert(id);
            let list = match (before.get(id), passes) {
                (None, _) => &mut comparison.new_cases,
                (Some(true), false) => &mut comparison.regressions,
                (Some(false), true) => &mut comparison.new_passes,
                (Some(true), true) | (Some(false), false) => continue,
            };
            list.push(id.to_owned());
        }
        let gone = self.cases.iter().filter(|(id, _)| !seen.contains(id.as_str()) && !in_file(id));
        comparison.vanished_cases = gone.map(|(id, _)| id.clone()).collect();
        comparison
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_result_is_refused() {
        for (text, problem) in [
            ("{}", "line 1: there are no cases"),
            (r#"{"cases": [], "toolName": "t"}"#, "runId is missing"),
            (r#"{"runId": "r", "toolName": "t", "cases": [{"id": "a"}]}"#, "a case needs an id, and passed"),
            (r#"{"suites": [{"runId": "r"}]}"#, "there are no cases"),
        ] {
            let error = Baseline::read(&Json::parse(text).expect("JSON")).expect_err(text);
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn a_rename_is_seen_from_both_sides() {
        let json = r#"{"runId": "r", "toolName": "t", "cases": [{"id": "old", "passed": true}, {"id": "unselected", "passed": true}]}"#;
        let baseline = Baseline::read(&Json::parse(json).expect("JSON")).expect("a result").remove(0);
        let comparison = baseline.compare([("new", false)], |id| id == "unselected");
        assert_eq!((comparison.new_cases, comparison.vanished_cases), (vec!["new".to_owned()], vec!["old".to_owned()]));
        assert!(comparison.regressions.is_empty());
    }
}
