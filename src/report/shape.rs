//! The shape of a result as JSON: what [`suite_result`](super::suite_result) writes and [`stored`](super::stored)
//! reads, stated once.
//!
//! Each type is made of what a run says, with `of`, and gives it back, with `read`. Texts are borrowed when it is
//! written, and owned when it was read.

pub(super) mod assertion;
pub(super) mod case;
pub(super) mod said;

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::repeats::{Gated, Repeated};
use crate::conversation::{AgentCard, Cost};
use crate::event::{Run, SuiteInfo};
use crate::plan::{Replay, RunSpec};
use crate::suite::Tier;
use crate::suite::staleness::{Staleness, StalenessWarning};
use crate::trace::{TraceHeaders, TraceParent};
use crate::verdict::baseline::Comparison;
use crate::verdict::{Totals, whole_millis};

type Text<'a> = Cow<'a, str>;
type Texts<'a> = Cow<'a, [String]>;

/// A text that may be missing.
fn text(of: Option<&str>) -> Option<Text<'_>> {
    of.map(Text::from)
}

fn owned(of: Option<&Text<'_>>) -> Option<String> {
    of.map(|text| text.clone().into_owned())
}

/// What a word stands for.
pub(super) fn named<T>(what: &str, word: &str, named: impl FnOnce(&str) -> Option<T>) -> Result<T, String> {
    named(word).ok_or_else(|| format!("{what}: {word:?} is unknown"))
}

/// What stands before the cases of a suite.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Head<'a> {
    pub(super) run_id: Text<'a>,
    timestamp: Text<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<Text<'a>>,
    pub(super) suite: Text<'a>,
    tier: Text<'a>,
    tool_name: Text<'a>,
    #[serde(default)]
    agent_endpoint: Text<'a>,
    agent_id: Text<'a>,
    /// Whether only some cases were selected.
    #[serde(default)]
    partial: bool,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<Text<'a>, Text<'a>>,
    /// The run whose recorded answers were judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    replay_of: Option<Text<'a>>,
    /// What the run hangs below in somebody's trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_parent: Option<Text<'a>>,
    /// What links to traces are made of.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_template: Option<Text<'a>>,
    metadata: Metadata<'a>,
    #[serde(default)]
    staleness_warnings: Vec<Text<'a>>,
    #[serde(default)]
    stale: bool,
    #[serde(default)]
    warnings: Vec<Text<'a>>,
    agent: Option<Agent<'a>>,
}

/// The current values of what an eval file's metadata records.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    tool_version: Option<Text<'a>>,
    description_hash: Option<Text<'a>>,
    registry_size: Option<usize>,
    eval_file_hash: Text<'a>,
}

#[derive(Serialize, Deserialize)]
struct Agent<'a> {
    id: Text<'a>,
    name: Text<'a>,
    version: Text<'a>,
    model: Text<'a>,
}

impl<'a> Head<'a> {
    pub(super) fn of(run: &'a Run, suite: &'a SuiteInfo) -> Self {
        let today = suite.staleness.as_ref();
        Self {
            run_id: (&*run.run_id).into(),
            timestamp: run.created_at.to_string().into(),
            finished_at: run.finished_at.map(|at| at.to_string().into()),
            suite: (&*suite.path).into(),
            tier: suite.tier.name().into(),
            tool_name: (&*suite.tool_name).into(),
            agent_endpoint: (&*run.agent_endpoint).into(),
            agent_id: (&*run.spec.agent_id).into(),
            partial: run.spec.is_selective(),
            labels: run.spec.labels.iter().map(|(key, value)| (key.into(), value.into())).collect(),
            replay_of: run.spec.replay.as_ref().map(|replay| (&*replay.run_id).into()),
            trace_parent: run.spec.trace_parent.as_ref().map(|parent| parent.headers().traceparent.into()),
            trace_template: text(run.spec.trace_url.as_deref()),
            metadata: Metadata {
                tool_version: text(today.and_then(|today| today.tool_version.as_deref())),
                description_hash: text(today.and_then(|today| today.description_hash.as_deref())),
                registry_size: today.map(|today| today.registry_size),
                eval_file_hash: (&*suite.eval_file_hash).into(),
            },
            staleness_warnings: today
                .iter()
                .flat_map(|today| &today.warnings)
                .map(|warning| (&*warning.text).into())
                .collect(),
            stale: today.is_some_and(|today| today.stale),
            warnings: suite.warnings.iter().chain(&run.warnings).map(Text::from).collect(),
            agent: run.agent.as_ref().map(|card| Agent {
                id: (&*card.agent_id).into(),
                name: (&*card.name).into(),
                version: (&*card.version).into(),
                model: (&*card.model).into(),
            }),
        }
    }

    /// When the run was accepted, and when it ended.
    pub(super) fn times(&self) -> Result<(Timestamp, Option<Timestamp>), String> {
        let read = |text: &Text<'_>| text.parse().map_err(|error| format!("timestamp: {error}"));
        Ok((read(&self.timestamp)?, self.finished_at.as_ref().map(read).transpose()?))
    }

    /// What was asked for, as far as it is told: not which cases were selected.
    pub(super) fn spec(&self, suites: Vec<String>) -> Result<RunSpec, String> {
        let parent = |text: &Text<'_>| {
            let traceparent = text.clone().into_owned();
            TraceParent::read(&TraceHeaders { traceparent, ..TraceHeaders::default() })
                .map_err(|why| format!("traceParent: {why}"))
        };
        Ok(RunSpec {
            case_patterns: if self.partial { vec![String::new()] } else { Vec::new() },
            labels: self
                .labels
                .iter()
                .map(|(key, value)| (key.clone().into_owned(), value.clone().into_owned()))
                .collect(),
            replay: owned(self.replay_of.as_ref()).map(|run_id| Replay { run_id, asks_validators: false }),
            trace_parent: self.trace_parent.as_ref().map(parent).transpose()?,
            trace_url: owned(self.trace_template.as_ref()),
            ..RunSpec::new(&*self.agent_id, suites)
        })
    }

    /// Where the agent was, and what it said about itself.
    pub(super) fn agent(&self) -> (String, Option<AgentCard>) {
        let card = self.agent.as_ref().map(|agent| AgentCard {
            agent_id: agent.id.clone().into_owned(),
            name: agent.name.clone().into_owned(),
            version: agent.version.clone().into_owned(),
            model: agent.model.clone().into_owned(),
            ..AgentCard::default()
        });
        (self.agent_endpoint.clone().into_owned(), card)
    }

    /// The suite, with what stands behind its cases.
    pub(super) fn suite(&self, tail: &Tail<'_>) -> Result<SuiteInfo, String> {
        let Metadata { tool_version, description_hash, registry_size, eval_file_hash } = &self.metadata;
        let warning = |text: &Text<'_>| {
            let text = text.clone().into_owned();
            StalenessWarning { short: text.clone(), text }
        };
        Ok(SuiteInfo {
            path: self.suite.clone().into_owned(),
            tool_name: self.tool_name.clone().into_owned(),
            tier: named("tier", &self.tier, Tier::named)?,
            eval_file_hash: eval_file_hash.clone().into_owned(),
            cases: tail.summary.total_cases,
            warnings: self.warnings.iter().map(|text| text.clone().into_owned()).collect(),
            staleness: registry_size.map(|registry_size| Staleness {
                stale: self.stale,
                warnings: self.staleness_warnings.iter().map(warning).collect(),
                tool_version: owned(tool_version.as_ref()),
                description_hash: owned(description_hash.as_ref()),
                registry_size,
            }),
            comparison: tail.comparison(),
        })
    }
}

/// What stands behind the cases of a suite.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tail<'a> {
    summary: Summary,
    baseline_run_id: Option<Text<'a>>,
    #[serde(default)]
    regressions: Texts<'a>,
    #[serde(default)]
    new_passes: Texts<'a>,
    #[serde(default)]
    new_cases: Texts<'a>,
    #[serde(default)]
    vanished_cases: Texts<'a>,
    #[serde(default)]
    not_judged: Texts<'a>,
    #[serde(default)]
    baseline_differences: Texts<'a>,
    /// Follows from the cases.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    repeats: Option<Repeated<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gate: Option<Gated<'a>>,
    pub(super) exit_code: u8,
}

/// Sums over the cases, from which they follow but for the number of those that were planned.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    total_cases: u32,
    #[serde(skip_deserializing)]
    passed: u32,
    #[serde(skip_deserializing)]
    failed: u32,
    #[serde(skip_deserializing)]
    errored: u32,
    #[serde(skip_deserializing)]
    not_run: u32,
    #[serde(skip_deserializing)]
    skipped: u32,
    #[serde(skip_deserializing)]
    skipped_assertions: u32,
    #[serde(skip_deserializing)]
    flaky: u32,
    #[serde(skip_deserializing)]
    total_duration_ms: u64,
    #[serde(skip_deserializing)]
    estimated_cost_usd: Option<f64>,
}

impl<'a> Tail<'a> {
    pub(super) fn of(run: &'a Run, suite: &'a SuiteInfo, totals: Totals, repeats: Option<Repeated<'a>>) -> Self {
        let compared = suite.comparison.as_ref();
        let ids = |of: fn(&Comparison) -> &Vec<String>| {
            Texts::from(compared.map(|compared| of(compared).as_slice()).unwrap_or_default())
        };
        Self {
            summary: Summary {
                total_cases: totals.total,
                passed: totals.passed,
                failed: totals.total.saturating_sub(totals.passed + totals.skipped),
                errored: totals.errored,
                not_run: totals.not_run,
                skipped: totals.skipped,
                skipped_assertions: totals.skipped_assertions,
                flaky: totals.flaky,
                total_duration_ms: whole_millis(totals.duration),
                estimated_cost_usd: totals.usage.cost.map(Cost::usd),
            },
            baseline_run_id: compared.map(|compared| (&*compared.baseline_run_id).into()),
            regressions: ids(|compared| &compared.regressions),
            new_passes: ids(|compared| &compared.new_passes),
            new_cases: ids(|compared| &compared.new_cases),
            vanished_cases: ids(|compared| &compared.vanished_cases),
            not_judged: ids(|compared| &compared.not_judged),
            baseline_differences: ids(|compared| &compared.differences),
            repeats,
            gate: run.gate.as_ref().map(Gated::of),
            exit_code: run.exit_code(),
        }
    }

    fn comparison(&self) -> Option<Comparison> {
        Some(Comparison {
            baseline_run_id: owned(self.baseline_run_id.as_ref())?,
            regressions: self.regressions.to_vec(),
            new_passes: self.new_passes.to_vec(),
            new_cases: self.new_cases.to_vec(),
            vanished_cases: self.vanished_cases.to_vec(),
            not_judged: self.not_judged.to_vec(),
            differences: self.baseline_differences.to_vec(),
        })
    }
}
