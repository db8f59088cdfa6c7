//! Compares the suites of a run with earlier results.

use std::collections::HashSet;
use std::sync::Arc;

use super::journal::Journal;
use crate::conversation::AgentCard;
use crate::event::{Payload, SuiteInfo};
use crate::plan::RunSpec;
use crate::suite::{Suite, Tier};
use crate::verdict::baseline::{AGENTS, Baseline, Comparison, Setting};

/// The earlier result that each suite is compared with.
pub(super) fn chosen<'a>(suites: &[Arc<Suite>], baselines: &'a [Baseline]) -> Vec<Option<&'a Baseline>> {
    Baseline::choose(baselines, &suites.iter().map(|suite| suite.identity()).collect::<Vec<_>>())
}

/// Compares each suite with its own earlier result; another one is compared with nothing.
pub(super) async fn compare(
    suites: &[Arc<Suite>],
    baselines: &[Baseline],
    card: &AgentCard,
    journal: &Journal,
) -> Vec<Option<Comparison>> {
    let run = journal.current();
    let chosen = chosen(suites, baselines);
    for left in baselines.iter().filter(|it| !chosen.iter().flatten().any(|other| std::ptr::eq(*it, *other))) {
        let text = format!("the baseline {} also holds {}, which is no part of this run", left.run_id, named(left));
        journal.run(Payload::Warning(text)).await;
    }
    let mut comparisons = Vec::new();
    for ((suite, info), baseline) in suites.iter().zip(&run.suites).zip(chosen) {
        if baseline.is_none() && !baselines.is_empty() {
            journal.run(Payload::Warning(nothing_compared(suite, baselines))).await;
        }
        comparisons.push(baseline.map(|baseline| {
            let ids: HashSet<&str> = suite.cases.iter().map(|case| case.id.as_str()).collect();
            let in_order = suite.cases.iter().map(|case| case.id.as_str());
            let current = in_order.filter_map(|id| Some((id, journal.standing(&suite.path, id)?)));
            baseline.compare(current, |id| ids.contains(id), &setting(info, card, &run.spec))
        }));
    }
    comparisons
}

/// An earlier result in words.
fn named(baseline: &Baseline) -> String {
    let Baseline { tool_name, tier, setting, .. } = baseline;
    let path = if setting.path.is_empty() { String::new() } else { format!("{}, ", setting.path) };
    format!("{tool_name:?} ({path}{})", tier.map_or("", Tier::name))
}

/// Why a suite is compared with nothing.
fn nothing_compared(suite: &Suite, baselines: &[Baseline]) -> String {
    /// Most suites of the baseline that are named.
    const MAX_NAMED: usize = 5;
    let all: Vec<String> = baselines.iter().take(MAX_NAMED).map(named).collect();
    let more = baselines.len().saturating_sub(MAX_NAMED);
    format!(
        "the baseline {} is about {}{}, and {} is about {:?} ({}): nothing is compared",
        baselines[0].run_id,
        all.join(", "),
        if more > 0 { format!(" and {more} more") } else { String::new() },
        suite.path,
        suite.tool_name,
        suite.tier.name()
    )
}

/// What a suite is run with.
fn setting(suite: &SuiteInfo, card: &AgentCard, spec: &RunSpec) -> Setting {
    let today = suite.staleness.as_ref();
    Setting {
        path: suite.path.clone(),
        eval_file_hash: suite.eval_file_hash.clone(),
        agent_version: card.version.clone(),
        agent_model: card.model.clone(),
        description_hash: today.and_then(|today| today.description_hash.clone()).unwrap_or_default(),
        tool_version: today.and_then(|today| today.tool_version.clone()).unwrap_or_default(),
        registry_size: today.map(|today| today.registry_size.to_string()).unwrap_or_default(),
        evidence: spec.replay.as_ref().map_or(AGENTS, |replay| &replay.run_id).to_owned(),
    }
}
