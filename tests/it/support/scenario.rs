//! `scenario.json` as data. A key that nobody knows is an error wherever it stands.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// What is run and what must come out.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    pub(crate) id: String,
    pub(crate) title: String,
    #[serde(rename = "story")]
    _story: Option<String>,
    #[serde(rename = "basis")]
    _basis: Basis,
    #[serde(rename = "seen_in")]
    _seen_in: Option<Vec<String>>,
    pub(crate) files: Vec<String>,
    pub(crate) runs: Vec<Run>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Basis {
    Seed,
    Judgement,
}

/// One run of the scenario.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Run {
    #[serde(default, deserialize_with = "one_or_many")]
    pub(crate) suite: Vec<String>,
    pub(crate) generate: Option<Generate>,
    #[serde(default, deserialize_with = "one_or_many")]
    pub(crate) import: Vec<String>,
    /// Another script of the agent than `agent.json`.
    pub(crate) agent: Option<String>,
    /// The only case to run.
    pub(crate) only: Option<String>,
    #[serde(default)]
    pub(crate) options: Options,
    pub(crate) expect: Expect,
}

/// A suite that is written before it is run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Generate {
    pub(crate) suite: String,
    pub(crate) repeat: Repeat,
    #[serde(default, deserialize_with = "one_or_many")]
    pub(crate) then: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Repeat {
    /// File that holds the line.
    pub(crate) line: String,
    pub(crate) times: u32,
    /// The text that 1, 2, … stand in for.
    pub(crate) number_as: String,
}

/// What the command line carries.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Options {
    pub(crate) registry: Option<String>,
    pub(crate) seed_manifest: Option<String>,
    pub(crate) baseline: Option<String>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) concurrency: Option<u32>,
    #[serde(default)]
    pub(crate) reports: Vec<ReportFormat>,
    pub(crate) filter: Option<String>,
    pub(crate) output_dir: Option<String>,
    #[serde(default)]
    pub(crate) strict: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReportFormat {
    Json,
    Jsonl,
    Junit,
    Markdown,
    Html,
    Console,
}

/// What must come out of a run. What is absent is not checked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expect {
    pub(crate) load: Option<Load>,
    #[serde(default, deserialize_with = "exit")]
    pub(crate) exit: Option<Exit>,
    #[serde(default)]
    pub(crate) cases: BTreeMap<String, CaseExpect>,
    pub(crate) mentions: Option<Vec<String>>,
    pub(crate) mentions_any: Option<Vec<String>>,
    pub(crate) order: Option<Vec<String>>,
    pub(crate) stale: Option<bool>,
    pub(crate) warnings: Option<Vec<String>>,
    pub(crate) warnings_mention: Option<Vec<String>>,
    #[serde(rename = "baselineRunId", default, deserialize_with = "nullable")]
    pub(crate) baseline_run_id: Option<Nullable>,
    pub(crate) regressions: Option<Vec<String>>,
    #[serde(rename = "newPasses")]
    pub(crate) new_passes: Option<Vec<String>>,
    pub(crate) agent_calls: Option<usize>,
    pub(crate) agent_saw_cancel: Option<Vec<String>>,
    pub(crate) distinct_conversations: Option<usize>,
    pub(crate) max_total_ms: Option<u64>,
    pub(crate) junit: Option<Junit>,
    pub(crate) html_well_formed: Option<bool>,
    pub(crate) console_has_no: Option<Vec<String>>,
    pub(crate) reports_valid_utf8: Option<bool>,
    #[serde(default, deserialize_with = "one_or_many")]
    pub(crate) writes_only_under: Vec<String>,
    pub(crate) same_verdict: Option<Vec<String>>,
    pub(crate) same_turns: Option<Vec<String>>,
    pub(crate) import: Option<Import>,
    pub(crate) failed: Option<usize>,
    pub(crate) passed_messages: Option<Vec<String>>,
    pub(crate) failed_messages: Option<Vec<String>>,
    pub(crate) totals: Option<BTreeMap<Verdict, usize>>,
    pub(crate) kinds: Option<BTreeMap<CauseKind, usize>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Load {
    Refused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Zero,
    Nonzero,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Pass,
    Fail,
    Skip,
    /// The file of the case was not accepted.
    Refused,
}

/// Why a case failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CauseKind {
    Assertion,
    AgentError,
    Timeout,
    MaxTurns,
    MissingCheckpoints,
    SimulatorError,
    ValidatorError,
    ScriptError,
    CheckpointFailed,
    NothingChecked,
}

/// What must come out of one case.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CaseExpect {
    pub(crate) verdict: Option<Verdict>,
    pub(crate) verdict_in: Option<Vec<Verdict>>,
    pub(crate) kind: Option<CauseKind>,
    pub(crate) kind_in: Option<Vec<CauseKind>>,
    pub(crate) assertion: Option<String>,
    pub(crate) mentions: Option<Vec<String>>,
    pub(crate) mentions_any: Option<Vec<String>>,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) warning: Option<Nullable>,
    #[serde(rename = "assertionsSkipped")]
    pub(crate) assertions_skipped: Option<u64>,
    pub(crate) tools: Option<Vec<String>>,
    pub(crate) messages_sent: Option<u64>,
    pub(crate) total_turns: Option<u64>,
    /// Checkpoint to the turn it was reached in.
    pub(crate) checkpoints: Option<BTreeMap<String, Option<u64>>>,
    pub(crate) simulator_calls: Option<usize>,
    pub(crate) duration_ms_min: Option<u64>,
    pub(crate) if_fail_mentions_any: Option<Vec<String>>,
}

/// A text that is there, or null: that there is none. Absent would say nothing.
#[derive(Debug)]
pub(crate) struct Nullable(pub(crate) Option<String>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Junit {
    pub(crate) well_formed: Option<bool>,
    pub(crate) tests: Option<usize>,
    pub(crate) failures: Option<usize>,
}

/// What imported cases hold. Read so that a misspelt key is found; there is no importer to compare with.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "there is no importer yet")]
pub(crate) struct Import {
    cases: Option<usize>,
    turns: Option<Vec<ImportTurn>>,
    by_id: Option<BTreeMap<String, ImportCase>>,
    messages: Option<Value>,
    must_not_assert_text: Option<Vec<String>>,
    must_report_not_carried_any: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "there is no importer yet")]
struct ImportTurn {
    last_user_message: Option<String>,
    history_messages: Option<usize>,
    tools: Option<Vec<String>>,
    params: Option<BTreeMap<String, Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "there is no importer yet")]
struct ImportCase {
    dynamic: Option<bool>,
    persona: Option<String>,
    history_messages: Option<usize>,
    text_required: Option<Vec<String>>,
    tools_required: Option<Vec<String>>,
    params_required: Option<BTreeMap<String, Value>>,
}

impl Run {
    /// What is run, for people.
    pub(crate) fn subject(&self) -> String {
        let mut subject = match &self.generate {
            Some(generate) => format!("generated {}", generate.suite),
            None if self.import.is_empty() => self.suite.join(" "),
            None => format!("import {}", self.import.join(" ")),
        };
        if let Some(agent) = &self.agent {
            subject = format!("{subject} with {agent}");
        }
        if let Some(only) = &self.only {
            subject = format!("{subject}, only {only}");
        }
        subject
    }

    /// What is wrong with the run itself.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let subjects = [!self.suite.is_empty(), self.generate.is_some(), !self.import.is_empty()];
        if subjects.iter().filter(|is_there| **is_there).count() != 1 {
            problems.push("one of suite, generate and import is needed".to_owned());
        }
        if self.only.is_some() && self.options.filter.is_some() {
            problems.push("only and options.filter cannot both be given".to_owned());
        }
        if self.expect.import.is_some() && self.import.is_empty() {
            problems.push("expect.import needs import".to_owned());
        }
        problems
    }
}

/// A text, or a list of texts.
fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) => Ok(vec![text]),
        Value::Array(items) if !items.is_empty() => items
            .into_iter()
            .map(|item| match item {
                Value::String(text) => Ok(text),
                other => Err(D::Error::custom(format!("expected a text, not {other}"))),
            })
            .collect(),
        other => Err(D::Error::custom(format!("expected a text or a list of texts, not {other}"))),
    }
}

fn exit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Exit>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) if text == "nonzero" => Ok(Some(Exit::Nonzero)),
        Value::Number(number) if number.as_u64() == Some(0) => Ok(Some(Exit::Zero)),
        other => Err(D::Error::custom(format!("exit is 0 or \"nonzero\", not {other}"))),
    }
}

fn nullable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Nullable>, D::Error> {
    Option::deserialize(deserializer).map(Nullable).map(Some)
}
