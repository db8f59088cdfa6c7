//! A run as it stands ↔ [`Run`].

use std::sync::Arc;

use jiff::Timestamp;

use super::call::{card_from_proto, card_to_proto};
use super::control as pb;
use super::gate::{gate_result_from_proto, gate_result_to_proto};
use super::spec::{spec_from_proto, spec_to_proto};
use super::value::{
    WireError, duration_from_proto, duration_to_proto, fault_from_proto, fault_to_proto, usage_from_proto,
    usage_to_proto,
};
use crate::conversation::Fault;
use crate::event::{Run, State, SuiteInfo};
use crate::plan::RunSpec;
use crate::suite::Tier;
use crate::suite::staleness::{Staleness, StalenessWarning};
use crate::verdict::Totals;
use crate::verdict::baseline::Comparison;

/// A run.
#[must_use]
pub fn run_to_proto(run: &Run) -> pb::Run {
    pb::Run {
        run_id: run.run_id.clone(),
        spec: Some(spec_to_proto(&run.spec)),
        state: state_to_proto(run.state).into(),
        totals: Some(totals_to_proto(&run.totals)),
        created_at: Some(time_to_proto(run.created_at)),
        finished_at: run.finished_at.map(time_to_proto),
        last_sequence: run.last_sequence,
        error: run.error.as_ref().map(fault_to_proto),
        warnings: run.warnings.clone(),
        agent: run.agent.as_ref().map(card_to_proto),
        agent_endpoint: run.agent_endpoint.clone(),
        suite_count: u32::try_from(run.suites.len()).unwrap_or(u32::MAX),
        suites: run.suites.iter().map(suite_to_proto).collect(),
        paused: run.paused,
        concurrency: run.concurrency.unwrap_or(0),
        gate_result: run.gate.as_ref().map(gate_result_to_proto),
        trace_id: run.trace().trace_id.to_string(),
    }
}

/// Longest text in a head, in bytes.
const HEAD_TEXT: usize = 1 << 10;
/// Most bytes of the paths of suites in a head.
const HEAD_SUITES: usize = 16 << 10;

/// A run as it stands in a list: who asked for what and how far it is, without whatever may be large. It reads as a
/// run.
#[must_use]
pub fn head_to_proto(run: &Run) -> pb::Run {
    let text = |text: &str| {
        let end = text.floor_char_boundary(HEAD_TEXT);
        if end < text.len() { format!("{}…", &text[..end]) } else { text.to_owned() }
    };
    let mut left = HEAD_SUITES;
    let suites: Vec<&SuiteInfo> = run
        .suites
        .iter()
        .take_while(|suite| {
            let fits = left.checked_sub(suite.path.len() + suite.tool_name.len() + 32);
            left = fits.unwrap_or(0);
            fits.is_some()
        })
        .collect();
    // Paths and tools are those of the files; a head of a head is the same.
    let spec = RunSpec {
        bundle: run.spec.bundle,
        bundle_size: run.spec.bundle_size,
        tool_mode: run.spec.tool_mode,
        concurrency: run.spec.concurrency,
        repeats: run.spec.repeats,
        labels: run.spec.labels.clone(),
        replay: run.spec.replay.clone(),
        gate: run.spec.gate,
        ..RunSpec::new(text(&run.spec.agent_id), run.spec.suites.iter().take(1).map(|path| text(path)).collect())
    };
    pb::Run {
        run_id: run.run_id.clone(),
        spec: Some(spec_to_proto(&spec)),
        state: state_to_proto(run.state).into(),
        totals: Some(totals_to_proto(&run.totals)),
        created_at: Some(time_to_proto(run.created_at)),
        finished_at: run.finished_at.map(time_to_proto),
        last_sequence: run.last_sequence,
        error: run.error.as_ref().map(|error| {
            fault_to_proto(&Fault { reason: text(&error.reason), message: text(&error.message), ..error.clone() })
        }),
        agent_endpoint: text(&run.agent_endpoint),
        suite_count: u32::try_from(run.suites.len()).unwrap_or(u32::MAX),
        suites: suites
            .into_iter()
            .map(|suite| pb::SuiteInfo {
                warnings: Vec::new(),
                comparison: None,
                staleness: None,
                ..suite_to_proto(suite)
            })
            .collect(),
        paused: run.paused,
        concurrency: run.concurrency.unwrap_or(0),
        gate_result: run.gate.as_ref().map(|gate| pb::GateResult {
            reasons: Vec::new(),
            suites: Vec::new(),
            ..gate_result_to_proto(gate)
        }),
        trace_id: run.trace().trace_id.to_string(),
        ..pb::Run::default()
    }
}

const fn state_to_proto(state: State) -> pb::run::State {
    match state {
        State::Queued => pb::run::State::Queued,
        State::Running => pb::run::State::Running,
        State::Cancelling => pb::run::State::Cancelling,
        State::Passed => pb::run::State::Passed,
        State::Failed => pb::run::State::Failed,
        State::Cancelled => pb::run::State::Cancelled,
        State::Errored => pb::run::State::Errored,
    }
}

/// Reads states.
///
/// # Errors
/// For one that is not known.
pub fn states_from_proto(states: &[i32]) -> Result<Vec<State>, WireError> {
    let known = |state: &i32| match pb::run::State::try_from(*state) {
        Ok(pb::run::State::Queued) => Ok(State::Queued),
        Ok(pb::run::State::Running) => Ok(State::Running),
        Ok(pb::run::State::Cancelling) => Ok(State::Cancelling),
        Ok(pb::run::State::Passed) => Ok(State::Passed),
        Ok(pb::run::State::Failed) => Ok(State::Failed),
        Ok(pb::run::State::Cancelled) => Ok(State::Cancelled),
        Ok(pb::run::State::Errored) => Ok(State::Errored),
        Ok(pb::run::State::Unspecified) | Err(_) => Err(WireError::new("states", format!("{state} is no known state"))),
    };
    let mut all = Vec::new();
    for state in states {
        let state = known(state)?;
        if !all.contains(&state) {
            all.push(state);
        }
    }
    Ok(all)
}

/// Reads a run.
///
/// # Errors
/// When a field is missing or unknown without which the run cannot be shown.
pub fn run_from_proto(run: pb::Run) -> Result<Run, WireError> {
    let state = match run.state() {
        pb::run::State::Queued => State::Queued,
        pb::run::State::Running => State::Running,
        pb::run::State::Cancelling => State::Cancelling,
        pb::run::State::Passed => State::Passed,
        pb::run::State::Failed => State::Failed,
        pb::run::State::Cancelled => State::Cancelled,
        pb::run::State::Errored => State::Errored,
        pb::run::State::Unspecified => {
            return Err(WireError::new("run.state", format!("{} is no known state", run.state)));
        }
    };
    Ok(Run {
        run_id: run.run_id,
        spec: Arc::new(spec_from_proto(run.spec.ok_or_else(|| WireError::new("run.spec", "is not set"))?)?),
        state,
        totals: totals_from_proto(&run.totals.unwrap_or_default()),
        created_at: time_from_proto(run.created_at, "run.created_at")?,
        finished_at: run.finished_at.map(|at| time_from_proto(Some(at), "run.finished_at")).transpose()?,
        last_sequence: run.last_sequence,
        error: run.error.as_ref().map(fault_from_proto),
        warnings: run.warnings,
        agent: run.agent.map(card_from_proto),
        agent_endpoint: run.agent_endpoint,
        suites: run.suites.into_iter().map(suite_from_proto).collect(),
        paused: run.paused,
        concurrency: Some(run.concurrency).filter(|most| *most > 0),
        gate: run.gate_result.map(gate_result_from_proto).transpose()?,
    })
}

fn suite_to_proto(suite: &SuiteInfo) -> pb::SuiteInfo {
    pb::SuiteInfo {
        path: suite.path.clone(),
        tool_name: suite.tool_name.clone(),
        tier: suite.tier.name().to_owned(),
        eval_file_hash: suite.eval_file_hash.clone(),
        cases: suite.cases,
        warnings: suite.warnings.clone(),
        staleness: suite.staleness.as_ref().map(|staleness| pb::Staleness {
            stale: staleness.stale,
            warnings: staleness
                .warnings
                .iter()
                .map(|warning| pb::StalenessWarning { text: warning.text.clone(), short: warning.short.clone() })
                .collect(),
            tool_version: staleness.tool_version.clone(),
            description_hash: staleness.description_hash.clone(),
            registry_size: u32::try_from(staleness.registry_size).unwrap_or(u32::MAX),
        }),
        comparison: suite.comparison.as_ref().map(|comparison| pb::Comparison {
            baseline_run_id: comparison.baseline_run_id.clone(),
            regressions: comparison.regressions.clone(),
            new_passes: comparison.new_passes.clone(),
            new_cases: comparison.new_cases.clone(),
            vanished_cases: comparison.vanished_cases.clone(),
            differences: comparison.differences.clone(),
            not_judged: comparison.not_judged.clone(),
        }),
    }
}

fn suite_from_proto(suite: pb::SuiteInfo) -> SuiteInfo {
    SuiteInfo {
        path: suite.path,
        tool_name: suite.tool_name,
        // Only a newer version knows more tiers, and none is all that older ones could say.
        tier: Tier::named(&suite.tier).unwrap_or(Tier::Golden),
        eval_file_hash: suite.eval_file_hash,
        cases: suite.cases,
        warnings: suite.warnings,
        staleness: suite.staleness.map(|staleness| Staleness {
            stale: staleness.stale,
            warnings: staleness
                .warnings
                .into_iter()
                .map(|warning| StalenessWarning { text: warning.text, short: warning.short })
                .collect(),
            tool_version: staleness.tool_version,
            description_hash: staleness.description_hash,
            registry_size: staleness.registry_size as usize,
        }),
        comparison: suite.comparison.map(|comparison| Comparison {
            baseline_run_id: comparison.baseline_run_id,
            regressions: comparison.regressions,
            new_passes: comparison.new_passes,
            new_cases: comparison.new_cases,
            vanished_cases: comparison.vanished_cases,
            differences: comparison.differences,
            not_judged: comparison.not_judged,
        }),
    }
}

fn totals_to_proto(totals: &Totals) -> pb::Totals {
    pb::Totals {
        total: totals.total,
        passed: totals.passed,
        failed: totals.failed,
        errored: totals.errored,
        skipped: totals.skipped,
        not_run: totals.not_run,
        flaky: totals.flaky,
        skipped_assertions: totals.skipped_assertions,
        usage: Some(usage_to_proto(&totals.usage)),
        duration: Some(duration_to_proto(totals.duration)),
    }
}

fn totals_from_proto(totals: &pb::Totals) -> Totals {
    Totals {
        total: totals.total,
        passed: totals.passed,
        failed: totals.failed,
        errored: totals.errored,
        skipped: totals.skipped,
        not_run: totals.not_run,
        flaky: totals.flaky,
        skipped_assertions: totals.skipped_assertions,
        usage: totals.usage.as_ref().map(usage_from_proto).unwrap_or_default(),
        duration: totals.duration.and_then(duration_from_proto).unwrap_or_default(),
    }
}

/// A point in time.
#[must_use]
pub fn time_to_proto(at: Timestamp) -> prost_types::Timestamp {
    // jiff counts both parts away from zero; the proto wants nanos that count forward.
    let (mut seconds, mut nanos) = (at.as_second(), at.subsec_nanosecond());
    if nanos < 0 {
        seconds -= 1;
        nanos += 1_000_000_000;
    }
    prost_types::Timestamp { seconds, nanos }
}

/// Reads a point in time.
///
/// # Errors
/// When it is not set, or out of range.
pub fn time_from_proto(at: Option<prost_types::Timestamp>, field: &'static str) -> Result<Timestamp, WireError> {
    let at = at.ok_or_else(|| WireError::new(field, "is not set"))?;
    Timestamp::new(at.seconds, at.nanos).map_err(|_| WireError::new(field, "is out of range"))
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    #[test]
    fn a_head_is_small_and_reads_as_a_run() {
        let suite = |n: usize| SuiteInfo {
            path: format!("evals/{n}.json"),
            tool_name: "weather".to_owned(),
            tier: Tier::Golden,
            eval_file_hash: "0123456789ab".to_owned(),
            cases: 1,
            warnings: vec!["w".repeat(1_000)],
            staleness: None,
            comparison: None,
        };
        let long = || "y".repeat(100_000);
        let run = Run {
            run_id: "r".to_owned(),
            spec: Arc::new(RunSpec {
                targets: (0..1_000).map(|n| (n.to_string(), "y".repeat(900))).collect(),
                cases: vec![(long(), long())],
                tags: vec![long()],
                labels: vec![("branch".to_owned(), "main".to_owned())],
                ..RunSpec::new(long(), (0..1_000).map(|n| format!("evals/{n}.json")).collect())
            }),
            state: State::Errored,
            totals: Totals { total: 3, passed: 2, ..Totals::default() },
            created_at: Timestamp::UNIX_EPOCH,
            finished_at: Some(Timestamp::UNIX_EPOCH),
            last_sequence: 7,
            error: Some(Fault::message(long())),
            warnings: vec![long()],
            agent: None,
            agent_endpoint: long(),
            suites: (0..1_000).map(suite).collect(),
            paused: true,
            concurrency: Some(4),
            gate: None,
        };
        let head = head_to_proto(&run);
        assert!(head.encoded_len() < 64 << 10, "{}", head.encoded_len());
        assert_eq!(head.suite_count, 1_000);
        let read = run_from_proto(head).expect("it reads as a run");
        assert_eq!(
            (&read.run_id, read.state, &read.totals, read.last_sequence),
            (&run.run_id, run.state, &run.totals, 7)
        );
        assert_eq!((&read.spec.labels, read.paused, read.concurrency), (&run.spec.labels, true, Some(4)));
        assert!(
            read.suites.len() > 100 && read.suites[..] != run.suites[..read.suites.len()],
            "without their warnings"
        );
    }
}
