//! `forge.control.v1` ↔ [`crate::event`], [`crate::plan`] and [`crate::verdict`].

use std::sync::Arc;

use jiff::Timestamp;

use super::call::{
    WireError, card_from_proto, card_to_proto, duration_from_proto, duration_to_proto, event_from_proto,
    event_to_proto, fault_from_proto, fault_to_proto, message_from_proto, message_to_proto, tool_call_from_proto,
    tool_call_to_proto, tool_mode_from_proto, tool_mode_to_proto, tool_result_from_proto, tool_result_to_proto,
    usage_from_proto, usage_to_proto,
};
use super::control as pb;
use crate::conversation::{JsonText, Message, ToolMode, Transcript};
use crate::event::{CaseRef, Payload, Run, RunEvent, State, SuiteInfo};
use crate::plan::{MAX_CONCURRENCY, RunSpec};
use crate::suite::Labels;
use crate::suite::staleness::{Staleness, StalenessWarning};
use crate::suite::timeout::{MAX_TIMEOUT, Timeout};
use crate::usage::{Price, Prices};
use crate::verdict::baseline::Comparison;
use crate::verdict::{AssertionResult, Blame, CaseResult, Cause, CheckpointResult, Outcome, Totals, Turn};

/// Most prices of a run.
const MAX_PRICES: usize = 1_000;

/// A request for a run.
#[must_use]
pub fn spec_to_proto(spec: &RunSpec) -> pb::RunSpec {
    let inputs = spec.suites.iter().map(|path| pb::Input { source: Some(pb::input::Source::SuitePath(path.clone())) });
    let targets = spec.targets.iter().map(|(id, url)| pb::Target { agent_id: id.clone(), url: url.clone() });
    let cases = spec.cases.iter().map(|(suite, id)| pb::CaseRef {
        suite: suite.clone(),
        case_id: id.clone(),
        ..pb::CaseRef::default()
    });
    pb::RunSpec {
        bundle: Some(pb::BundleRef {
            sha256: spec.bundle.to_vec(),
            size_bytes: i64::try_from(spec.bundle_size).unwrap_or(i64::MAX),
        }),
        agent_id: spec.agent_id.clone(),
        case_patterns: spec.case_patterns.clone(),
        concurrency: spec.concurrency,
        case_timeout: spec.case_timeout.as_ref().map(|timeout| duration_to_proto(timeout.duration)),
        case_timeout_text: spec.case_timeout.as_ref().map(|timeout| timeout.written.clone()).unwrap_or_default(),
        simulator_agent_id: spec.simulator.clone().unwrap_or_default(),
        connector: spec.connector.clone().unwrap_or_default(),
        fail_fast: spec.fail_fast,
        inputs: inputs.collect(),
        targets: targets.collect(),
        strict: spec.strict,
        all_assertions: spec.all_assertions,
        tool_mode: tool_mode_to_proto(spec.tool_mode).into(),
        cases: cases.collect(),
        tiers: spec.tiers.clone(),
        difficulties: spec.difficulties.clone(),
        tags: spec.tags.clone(),
        check_arguments: spec.check_arguments,
        snapshot_agent_id: spec.snapshot_agent.clone().unwrap_or_default(),
        prices: spec.prices.0.iter().map(|(model, price)| price_to_proto(model, price)).collect(),
    }
}

fn price_to_proto(model: &str, price: &Price) -> pb::Price {
    let amount = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
    pb::Price {
        model: model.to_owned(),
        input_nano_usd: amount(price.input),
        output_nano_usd: amount(price.output),
        cache_read_nano_usd: price.cache_read.map(amount),
        cache_write_nano_usd: price.cache_write.map(amount),
    }
}

fn prices_from_proto(prices: Vec<pb::Price>) -> Result<Prices, WireError> {
    if prices.len() > MAX_PRICES {
        return Err(WireError::new(
            "spec.prices",
            format!("there are {}, at most {MAX_PRICES} are allowed", prices.len()),
        ));
    }
    let amount =
        |nanos: i64| u64::try_from(nanos).map_err(|_| WireError::new("spec.prices", "an amount must not be negative"));
    let read = |price: pb::Price| {
        if price.model.is_empty() {
            return Err(WireError::new("spec.prices", "a price names no model"));
        }
        let read = Price {
            input: amount(price.input_nano_usd)?,
            output: amount(price.output_nano_usd)?,
            cache_read: price.cache_read_nano_usd.map(amount).transpose()?,
            cache_write: price.cache_write_nano_usd.map(amount).transpose()?,
        };
        Ok((price.model, read))
    };
    prices.into_iter().map(read).collect::<Result<_, _>>().map(Prices)
}

/// Reads and checks a request for a run.
///
/// # Errors
/// For the first field that is missing or out of its range.
pub fn spec_from_proto(spec: pb::RunSpec) -> Result<RunSpec, WireError> {
    let bundle = spec.bundle.ok_or_else(|| WireError::new("spec.bundle", "is not set"))?;
    let (bundle, bundle_size) = bundle_from_proto(&bundle)?;
    let suites: Vec<String> = spec
        .inputs
        .into_iter()
        .map(|input| match input.source {
            Some(pb::input::Source::SuitePath(path)) => Ok(path),
            None => {
                Err(WireError::new("spec.inputs", "an input is empty, or of a kind that this version does not know"))
            }
        })
        .collect::<Result<_, _>>()?;
    if suites.is_empty() {
        return Err(WireError::new("spec.inputs", "there is none"));
    }
    let mut seen = std::collections::HashSet::new();
    if let Some(twice) = suites.iter().find(|path| !seen.insert(path.as_str())) {
        return Err(WireError::new("spec.inputs", format!("{twice:?} is named twice")));
    }
    let case_timeout = match spec.case_timeout {
        None => None,
        Some(timeout) => {
            let duration = duration_from_proto(timeout)
                .filter(|timeout| !timeout.is_zero() && *timeout <= MAX_TIMEOUT)
                .ok_or_else(|| WireError::new("spec.case_timeout", "must be more than 0 and at most a day"))?;
            let written = some_text(spec.case_timeout_text).unwrap_or_else(|| format!("{duration:?}"));
            Some(Timeout { duration, written })
        }
    };
    if spec.concurrency > MAX_CONCURRENCY {
        return Err(WireError::new("spec.concurrency", format!("must be at most {MAX_CONCURRENCY}")));
    }
    Ok(RunSpec {
        bundle,
        bundle_size,
        agent_id: spec.agent_id,
        case_patterns: spec.case_patterns,
        cases: spec.cases.into_iter().map(|case| (case.suite, case.case_id)).collect(),
        concurrency: spec.concurrency.max(1),
        case_timeout,
        simulator: some_text(spec.simulator_agent_id),
        connector: some_text(spec.connector),
        fail_fast: spec.fail_fast,
        suites,
        targets: spec.targets.into_iter().map(|target| (target.agent_id, target.url)).collect(),
        strict: spec.strict,
        all_assertions: spec.all_assertions,
        tool_mode: match tool_mode_from_proto(spec.tool_mode)? {
            ToolMode::Stub => {
                return Err(WireError::new("spec.tool_mode", "STUB is for cases with stubs, which say so"));
            }
            mode @ (ToolMode::Live | ToolMode::RoutingOnly) => mode,
        },
        tiers: spec.tiers,
        difficulties: spec.difficulties,
        tags: spec.tags,
        check_arguments: spec.check_arguments,
        snapshot_agent: some_text(spec.snapshot_agent_id),
        prices: prices_from_proto(spec.prices)?,
    })
}

/// Reads a reference to a bundle: SHA-256 and size.
///
/// # Errors
/// When the digest is no SHA-256, or the size is negative.
pub fn bundle_from_proto(bundle: &pb::BundleRef) -> Result<([u8; 32], u64), WireError> {
    let sha256 = bundle.sha256.as_slice().try_into();
    let sha256 = sha256.map_err(|_| WireError::new("bundle.sha256", "must be 32 bytes"))?;
    let size = u64::try_from(bundle.size_bytes);
    let size = size.map_err(|_| WireError::new("bundle.size_bytes", "must not be negative"))?;
    Ok((sha256, size))
}

/// A run.
#[must_use]
pub fn run_to_proto(run: &Run) -> pb::Run {
    let state = match run.state {
        State::Queued => pb::run::State::Queued,
        State::Running => pb::run::State::Running,
        State::Cancelling => pb::run::State::Cancelling,
        State::Passed => pb::run::State::Passed,
        State::Failed => pb::run::State::Failed,
        State::Cancelled => pb::run::State::Cancelled,
        State::Errored => pb::run::State::Errored,
    };
    pb::Run {
        run_id: run.run_id.clone(),
        spec: Some(spec_to_proto(&run.spec)),
        state: state.into(),
        totals: Some(totals_to_proto(&run.totals)),
        created_at: Some(time_to_proto(run.created_at)),
        finished_at: run.finished_at.map(time_to_proto),
        last_sequence: run.last_sequence,
        error: run.error.as_ref().map(fault_to_proto),
        warnings: run.warnings.clone(),
        agent: run.agent.as_ref().map(card_to_proto),
        agent_endpoint: run.agent_endpoint.clone(),
        suites: run.suites.iter().map(suite_to_proto).collect(),
    }
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
        spec: spec_from_proto(run.spec.ok_or_else(|| WireError::new("run.spec", "is not set"))?)?,
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
    })
}

fn suite_to_proto(suite: &SuiteInfo) -> pb::SuiteInfo {
    pb::SuiteInfo {
        path: suite.path.clone(),
        tool_name: suite.tool_name.clone(),
        tier: suite.tier.clone(),
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
        }),
    }
}

fn suite_from_proto(suite: pb::SuiteInfo) -> SuiteInfo {
    SuiteInfo {
        path: suite.path,
        tool_name: suite.tool_name,
        tier: suite.tier,
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
        skipped_assertions: totals.skipped_assertions,
        usage: totals.usage.as_ref().map(usage_from_proto).unwrap_or_default(),
        duration: totals.duration.and_then(duration_from_proto).unwrap_or_default(),
    }
}

/// An event of a run's log.
#[must_use]
pub fn run_event_to_proto(event: &RunEvent) -> pb::RunEvent {
    use pb::run_event::Payload as Wire;
    let payload = match &event.payload {
        Payload::RunStarted(run) => Wire::RunStarted(run_to_proto(run)),
        Payload::CasePlanned { name, labels } => Wire::CasePlanned(pb::CasePlanned {
            name: name.clone(),
            difficulty: labels.difficulty.clone().unwrap_or_default(),
            bug_ref: labels.bug_ref.clone().unwrap_or_default(),
            created_at: labels.created_at.clone().unwrap_or_default(),
            tags: labels.tags.clone(),
        }),
        Payload::CaseStarted { mode, tool_mode, invocation_id } => Wire::CaseStarted(pb::CaseStarted {
            name: String::new(),
            mode: mode.clone(),
            tool_mode: tool_mode_to_proto(*tool_mode).into(),
            invocation_id: invocation_id.clone(),
        }),
        Payload::Agent(event) => Wire::AgentEvent(event_to_proto(event)),
        Payload::StubServed { call_id, outcome, unstubbed } => {
            Wire::StubServed(tool_result_to_proto(call_id, outcome, *unstubbed))
        }
        Payload::TurnFinished(turn) => Wire::TurnFinished(turn_to_proto(turn)),
        Payload::CheckpointReached { checkpoint } => {
            Wire::CheckpointReached(pb::CheckpointReached { checkpoint_id: checkpoint.clone() })
        }
        Payload::CaseFinished(result) => Wire::CaseFinished(case_result_to_proto(result)),
        Payload::Warning(text) => Wire::Warning(text.clone()),
        Payload::RunFinished(run) => Wire::RunFinished(run_to_proto(run)),
    };
    let case = event.case.as_ref().map(|case| pb::CaseRef {
        suite: case.suite.to_string(),
        case_id: case.case_id.to_string(),
        repeat: 1,
        attempt: case.attempt,
    });
    pb::RunEvent {
        sequence: event.sequence,
        at: Some(time_to_proto(event.at)),
        case,
        turn: event.turn,
        payload: Some(payload),
    }
}

/// Reads an event of a run's log; `None` for one of a kind that this version does not know.
///
/// # Errors
/// When a known event cannot be read.
pub fn run_event_from_proto(event: pb::RunEvent) -> Result<Option<RunEvent>, WireError> {
    use pb::run_event::Payload as Wire;
    let payload = match event.payload {
        None => return Ok(None),
        Some(Wire::RunStarted(run)) => Payload::RunStarted(Box::new(run_from_proto(run)?)),
        Some(Wire::CasePlanned(planned)) => {
            let labels = Labels {
                difficulty: some_text(planned.difficulty),
                bug_ref: some_text(planned.bug_ref),
                created_at: some_text(planned.created_at),
                tags: planned.tags,
            };
            Payload::CasePlanned { name: planned.name, labels }
        }
        Some(Wire::CaseStarted(started)) => Payload::CaseStarted {
            tool_mode: tool_mode_from_proto(started.tool_mode)?,
            mode: started.mode,
            invocation_id: started.invocation_id,
        },
        Some(Wire::AgentEvent(event)) => Payload::Agent(event_from_proto(event)?),
        Some(Wire::StubServed(result)) => {
            let (call_id, outcome, unstubbed) = tool_result_from_proto(result)?;
            Payload::StubServed { call_id, outcome, unstubbed }
        }
        Some(Wire::TurnFinished(turn)) => Payload::TurnFinished(turn_from_proto(turn)),
        Some(Wire::CheckpointReached(reached)) => Payload::CheckpointReached { checkpoint: reached.checkpoint_id },
        Some(Wire::CaseFinished(finished)) => Payload::CaseFinished(Box::new(case_result_from_proto(finished)?)),
        Some(Wire::Warning(text)) => Payload::Warning(text),
        Some(Wire::RunFinished(run)) => Payload::RunFinished(Box::new(run_from_proto(run)?)),
    };
    let case = event.case.map(|case| CaseRef {
        suite: Arc::from(case.suite),
        case_id: Arc::from(case.case_id),
        attempt: case.attempt.max(1),
    });
    let at = time_from_proto(event.at, "event.at")?;
    Ok(Some(RunEvent { sequence: event.sequence, at, case, turn: event.turn, payload }))
}

fn case_result_to_proto(result: &CaseResult) -> pb::CaseFinished {
    let transcript = &result.transcript;
    let assertions = result.assertions.iter().map(|assertion| pb::AssertionResult {
        name: assertion.name.clone(),
        outcome: outcome_to_proto(assertion.outcome).into(),
        reason: assertion.reason.clone(),
        unresolved_tokens: assertion.unresolved_tokens.clone(),
        blame: assertion.blame.map_or(pb::Blame::Unspecified, blame_to_proto).into(),
        written: assertion.written.as_ref().map(|text| text.as_str().to_owned()).unwrap_or_default(),
    });
    pb::CaseFinished {
        outcome: outcome_to_proto(result.outcome).into(),
        error: result.error.clone().unwrap_or_default(),
        assertions: assertions.collect(),
        tool_calls: transcript.tool_calls.iter().map(tool_call_to_proto).collect(),
        usage: transcript.usage.as_ref().map(usage_to_proto),
        duration: Some(duration_to_proto(transcript.duration)),
        cause: result.cause.map_or(pb::Cause::Unspecified, cause_to_proto).into(),
        blame: result.blame.map_or(pb::Blame::Unspecified, blame_to_proto).into(),
        warnings: result.warnings.clone(),
        total_turns: result.total_turns,
        response: Some(message_to_proto(&Message::assistant(transcript.response.clone()))),
        assertions_run: result.assertions_run(),
        assertions_skipped: result.assertions_skipped(),
        skipped_tokens: result.skipped_tokens().map(str::to_owned).collect(),
        warning: result.warning.clone().unwrap_or_default(),
        response_length: transcript.response.encode_utf16().count() as u64,
        failed_assertion: result.failed_assertion.clone().unwrap_or_default(),
        turns: result.turns.iter().map(turn_to_proto).collect(),
        checkpoints: result
            .checkpoints
            .iter()
            .map(|checkpoint| pb::CheckpointResult {
                checkpoint_id: checkpoint.id.clone(),
                reached_at_turn: checkpoint.reached_at_turn,
                required: checkpoint.required,
            })
            .collect(),
        messages_count: result.messages_count,
    }
}

fn turn_to_proto(turn: &Turn) -> pb::TurnFinished {
    pb::TurnFinished { input: turn.input.clone(), output: turn.output.clone() }
}

fn turn_from_proto(turn: pb::TurnFinished) -> Turn {
    Turn { input: turn.input, output: turn.output }
}

fn case_result_from_proto(finished: pb::CaseFinished) -> Result<CaseResult, WireError> {
    let assertions = finished
        .assertions
        .into_iter()
        .map(|assertion| {
            Ok(AssertionResult {
                outcome: outcome_from_proto(assertion.outcome, "assertion.outcome")?,
                name: assertion.name,
                reason: assertion.reason,
                unresolved_tokens: assertion.unresolved_tokens,
                blame: blame_from_proto(assertion.blame)?,
                written: some_text(assertion.written).and_then(|text| JsonText::new(text).ok()),
            })
        })
        .collect::<Result<_, WireError>>()?;
    Ok(CaseResult {
        outcome: outcome_from_proto(finished.outcome, "case_finished.outcome")?,
        cause: cause_from_proto(finished.cause)?,
        blame: blame_from_proto(finished.blame)?,
        error: some_text(finished.error),
        failed_assertion: some_text(finished.failed_assertion),
        warning: some_text(finished.warning),
        warnings: finished.warnings,
        assertions,
        transcript: Transcript {
            response: finished.response.map(|message| message_from_proto(message).text()).unwrap_or_default(),
            tool_calls: finished.tool_calls.into_iter().map(tool_call_from_proto).collect::<Result<_, _>>()?,
            usage: finished.usage.as_ref().map(usage_from_proto),
            duration: finished.duration.and_then(duration_from_proto).unwrap_or_default(),
        },
        total_turns: finished.total_turns,
        turns: finished.turns.into_iter().map(turn_from_proto).collect(),
        checkpoints: finished
            .checkpoints
            .into_iter()
            .map(|checkpoint| CheckpointResult {
                id: checkpoint.checkpoint_id,
                reached_at_turn: checkpoint.reached_at_turn,
                required: checkpoint.required,
            })
            .collect(),
        messages_count: finished.messages_count,
    })
}

/// A text that is left empty where there is none.
fn some_text(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

const fn outcome_to_proto(outcome: Outcome) -> pb::Outcome {
    match outcome {
        Outcome::Passed => pb::Outcome::Passed,
        Outcome::Failed => pb::Outcome::Failed,
        Outcome::Skipped => pb::Outcome::Skipped,
        Outcome::Errored => pb::Outcome::Errored,
    }
}

fn outcome_from_proto(outcome: i32, field: &'static str) -> Result<Outcome, WireError> {
    match pb::Outcome::try_from(outcome) {
        Ok(pb::Outcome::Passed) => Ok(Outcome::Passed),
        Ok(pb::Outcome::Failed) => Ok(Outcome::Failed),
        Ok(pb::Outcome::Skipped) => Ok(Outcome::Skipped),
        Ok(pb::Outcome::Errored) => Ok(Outcome::Errored),
        Ok(pb::Outcome::Unspecified) | Err(_) => Err(WireError::new(field, format!("{outcome} is no known outcome"))),
    }
}

const fn cause_to_proto(cause: Cause) -> pb::Cause {
    match cause {
        Cause::Assertion => pb::Cause::Assertion,
        Cause::Timeout => pb::Cause::Timeout,
        Cause::AgentError => pb::Cause::AgentError,
        Cause::MaxTurns => pb::Cause::MaxTurns,
        Cause::MissingCheckpoints => pb::Cause::MissingCheckpoints,
        Cause::ProtocolViolation => pb::Cause::ProtocolViolation,
        Cause::NothingChecked => pb::Cause::NothingChecked,
        Cause::Unreachable => pb::Cause::Unreachable,
        Cause::SimulatorError => pb::Cause::SimulatorError,
        Cause::ValidatorError => pb::Cause::ValidatorError,
        Cause::ScriptError => pb::Cause::ScriptError,
        Cause::CheckpointFailed => pb::Cause::CheckpointFailed,
        Cause::NoInput => pb::Cause::NoInput,
        Cause::Cancelled => pb::Cause::Cancelled,
        Cause::Unsupported => pb::Cause::Unsupported,
        Cause::SnapshotError => pb::Cause::SnapshotError,
    }
}

fn cause_from_proto(cause: i32) -> Result<Option<Cause>, WireError> {
    Ok(Some(match pb::Cause::try_from(cause) {
        Ok(pb::Cause::Unspecified) => return Ok(None),
        Ok(pb::Cause::Assertion) => Cause::Assertion,
        Ok(pb::Cause::Timeout) => Cause::Timeout,
        Ok(pb::Cause::AgentError) => Cause::AgentError,
        Ok(pb::Cause::MaxTurns) => Cause::MaxTurns,
        Ok(pb::Cause::MissingCheckpoints) => Cause::MissingCheckpoints,
        Ok(pb::Cause::ProtocolViolation) => Cause::ProtocolViolation,
        Ok(pb::Cause::NothingChecked) => Cause::NothingChecked,
        Ok(pb::Cause::Unreachable) => Cause::Unreachable,
        Ok(pb::Cause::SimulatorError) => Cause::SimulatorError,
        Ok(pb::Cause::ValidatorError) => Cause::ValidatorError,
        Ok(pb::Cause::ScriptError) => Cause::ScriptError,
        Ok(pb::Cause::CheckpointFailed) => Cause::CheckpointFailed,
        Ok(pb::Cause::NoInput) => Cause::NoInput,
        Ok(pb::Cause::Cancelled) => Cause::Cancelled,
        Ok(pb::Cause::Unsupported) => Cause::Unsupported,
        Ok(pb::Cause::SnapshotError) => Cause::SnapshotError,
        Err(_) => return Err(WireError::new("case_finished.cause", format!("{cause} is no known cause"))),
    }))
}

const fn blame_to_proto(blame: Blame) -> pb::Blame {
    match blame {
        Blame::Agent => pb::Blame::Agent,
        Blame::Simulator => pb::Blame::Simulator,
        Blame::Validator => pb::Blame::Validator,
        Blame::Script => pb::Blame::Script,
        Blame::Suite => pb::Blame::Suite,
        Blame::Daemon => pb::Blame::Daemon,
        Blame::Network => pb::Blame::Network,
    }
}

fn blame_from_proto(blame: i32) -> Result<Option<Blame>, WireError> {
    Ok(Some(match pb::Blame::try_from(blame) {
        Ok(pb::Blame::Unspecified) => return Ok(None),
        Ok(pb::Blame::Agent) => Blame::Agent,
        Ok(pb::Blame::Simulator) => Blame::Simulator,
        Ok(pb::Blame::Validator) => Blame::Validator,
        Ok(pb::Blame::Script) => Blame::Script,
        Ok(pb::Blame::Suite) => Blame::Suite,
        Ok(pb::Blame::Daemon) => Blame::Daemon,
        Ok(pb::Blame::Network) => Blame::Network,
        Err(_) => return Err(WireError::new("case_finished.blame", format!("{blame} is nobody known"))),
    }))
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

fn time_from_proto(at: Option<prost_types::Timestamp>, field: &'static str) -> Result<Timestamp, WireError> {
    let at = at.ok_or_else(|| WireError::new(field, "is not set"))?;
    Timestamp::new(at.seconds, at.nanos).map_err(|_| WireError::new(field, "is out of range"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::conversation::{
        AgentCard, AgentEvent, AgentEventKind, Cost, Fault, FaultOrigin, FinishReason, Finished, JsonText, Part,
        Payload as Args, Role, ToolCall, ToolOutcome, ToolSpec, Usage,
    };

    fn json(text: &str) -> JsonText {
        JsonText::new(text).expect("valid JSON")
    }

    fn usage() -> Usage {
        let cost = Some(Cost { nano_usd: 32_000_000, estimated: true });
        Usage { input_tokens: Some(7), output_tokens: Some(0), cost, ..Usage::default() }
    }

    fn run() -> Run {
        Run {
            run_id: "r".to_owned(),
            spec: RunSpec {
                bundle: [7; 32],
                bundle_size: 9,
                case_patterns: vec!["a.*".to_owned()],
                tiers: vec!["golden".to_owned()],
                difficulties: vec!["edge".to_owned()],
                tags: vec!["eu".to_owned()],
                check_arguments: true,
                snapshot_agent: Some("prices".to_owned()),
                prices: Prices(std::collections::BTreeMap::from([(
                    "m*".to_owned(),
                    Price { input: 1, output: 2, cache_read: Some(0), cache_write: None },
                )])),
                cases: vec![("s.json".to_owned(), "a".to_owned())],
                concurrency: 3,
                case_timeout: Some(Timeout { duration: Duration::from_millis(1500), written: "1.5s".to_owned() }),
                simulator: Some("user".to_owned()),
                connector: Some("fast".to_owned()),
                fail_fast: true,
                targets: vec![("weather".to_owned(), "grpc://127.0.0.1:1".to_owned())],
                strict: true,
                all_assertions: true,
                tool_mode: ToolMode::RoutingOnly,
                ..RunSpec::new("weather", vec!["s.json".to_owned()])
            },
            state: State::Cancelling,
            totals: Totals {
                total: 5,
                passed: 1,
                failed: 1,
                errored: 1,
                skipped: 1,
                not_run: 1,
                skipped_assertions: 2,
                duration: Duration::from_millis(7930),
                usage: usage(),
            },
            created_at: Timestamp::new(1_700_000_000, 5).expect("in range"),
            finished_at: Some(Timestamp::new(-3, -7).expect("in range")),
            last_sequence: 12,
            error: Some(Fault {
                code: 14,
                reason: "UNREACHABLE".to_owned(),
                message: "no".to_owned(),
                origin: FaultOrigin::Transport,
                retryable: true,
            }),
            warnings: vec!["w".to_owned()],
            agent: Some(AgentCard {
                agent_id: "weather".to_owned(),
                version: "1".to_owned(),
                tools: vec![ToolSpec { name: "t".to_owned(), input_schema: Some(json("{ }")), ..ToolSpec::default() }],
                ..AgentCard::default()
            }),
            agent_endpoint: "grpc://127.0.0.1:1".to_owned(),
            suites: vec![SuiteInfo {
                path: "s.json".to_owned(),
                tool_name: "t".to_owned(),
                tier: "golden".to_owned(),
                eval_file_hash: "abc".to_owned(),
                cases: 5,
                warnings: vec!["odd".to_owned()],
                staleness: Some(Staleness {
                    stale: true,
                    warnings: vec![StalenessWarning { text: "long".to_owned(), short: "s".to_owned() }],
                    tool_version: Some("1".to_owned()),
                    description_hash: None,
                    registry_size: 3,
                }),
                comparison: Some(Comparison {
                    baseline_run_id: "b".to_owned(),
                    regressions: vec!["r".to_owned()],
                    new_passes: vec!["p".to_owned()],
                    new_cases: vec!["n".to_owned()],
                    vanished_cases: vec!["v".to_owned()],
                    differences: vec!["another model (a, now b)".to_owned()],
                }),
            }],
        }
    }

    fn call(outcome: Option<ToolOutcome>) -> ToolCall {
        ToolCall {
            call_id: "1".to_owned(),
            name: "t".to_owned(),
            params: Some(Args::Json(json(r#"{"b":1.0, "a":9007199254740993}"#))),
            duration: outcome.is_some().then_some(Duration::from_micros(1)),
            outcome,
        }
    }

    /// Everything that can stand in a log comes back from the wire as it was.
    #[test]
    fn events_round_trip() {
        let agent = |kind| Payload::Agent(AgentEvent { seq: 3, elapsed: Some(Duration::from_nanos(1)), kind });
        let fault = ToolOutcome::Error(Fault::message("boom"));
        let result = CaseResult {
            outcome: Outcome::Failed,
            cause: Some(Cause::Assertion),
            blame: Some(Blame::Agent),
            error: Some("toolsCalled: no".to_owned()),
            failed_assertion: Some("toolsCalled".to_owned()),
            warning: None,
            warnings: vec!["seq".to_owned()],
            assertions: vec![AssertionResult {
                name: "toolsCalled".to_owned(),
                outcome: Outcome::Failed,
                reason: "no".to_owned(),
                unresolved_tokens: vec!["{{seed:x}}".to_owned()],
                blame: Some(Blame::Validator),
                written: Some(json("{\"type\":\"agent\"}")),
            }],
            transcript: Transcript {
                response: "hi 😀".to_owned(),
                tool_calls: vec![call(None), call(Some(fault.clone())), call(Some(ToolOutcome::Result(None)))],
                usage: Some(usage()),
                duration: Duration::from_millis(5),
            },
            total_turns: 1,
            turns: vec![Turn { input: "hi".to_owned(), output: "ho".to_owned() }],
            checkpoints: vec![CheckpointResult { id: "c".to_owned(), reached_at_turn: Some(1), required: false }],
            messages_count: 2,
        };
        let finished = Finished {
            reason: FinishReason::MaxTokens,
            response: Some(Message {
                role: Role::Assistant,
                parts: vec![Part::Reasoning("hm".to_owned()), Part::Text("x".to_owned()), Part::Data(json("[1]"))],
            }),
            usage: Some(usage()),
            error: Some(Fault::message("x")),
            tool_calls: 2,
        };
        let payloads = [
            Payload::RunStarted(Box::new(run())),
            Payload::TurnFinished(Turn { input: "hi".to_owned(), output: "ho".to_owned() }),
            Payload::CheckpointReached { checkpoint: "c".to_owned() },
            Payload::CasePlanned {
                name: "n".to_owned(),
                labels: Labels {
                    difficulty: Some("edge".to_owned()),
                    bug_ref: Some("FORGE-1".to_owned()),
                    created_at: Some("2026-01-05".to_owned()),
                    tags: vec!["eu".to_owned()],
                },
            },
            Payload::CaseStarted {
                mode: "single".to_owned(),
                tool_mode: ToolMode::Stub,
                invocation_id: "i".to_owned(),
            },
            agent(AgentEventKind::Accepted { instance_id: "x".to_owned() }),
            agent(AgentEventKind::TextDelta { text: "x".to_owned(), reasoning: true }),
            agent(AgentEventKind::ToolStarted { call: call(None), awaits_result: true }),
            agent(AgentEventKind::ToolFinished {
                call_id: "1".to_owned(),
                outcome: Some(ToolOutcome::Result(Some(Args::Malformed("{".to_owned())))),
                duration: None,
            }),
            agent(AgentEventKind::ModelTurn { index: 1, model: "m".to_owned(), usage: None }),
            agent(AgentEventKind::Log { level: "info".to_owned(), message: "x".to_owned() }),
            agent(AgentEventKind::Finished(finished)),
            agent(AgentEventKind::Unknown),
            Payload::StubServed { call_id: "1".to_owned(), outcome: fault, unstubbed: true },
            Payload::CaseFinished(Box::new(result)),
            Payload::Warning("w".to_owned()),
            Payload::RunFinished(Box::new(run())),
        ];
        for payload in payloads {
            let event = RunEvent {
                sequence: 4,
                at: Timestamp::new(5, 6).expect("in range"),
                case: Some(CaseRef { suite: Arc::from("s.json"), case_id: Arc::from("a"), attempt: 2 }),
                turn: 1,
                payload,
            };
            let back = run_event_from_proto(run_event_to_proto(&event)).expect("reads").expect("is known");
            assert_eq!(back, event);
        }
    }

    #[test]
    fn closed_lists_round_trip() {
        for number in 1..=15 {
            let cause = cause_from_proto(number).expect("known").expect("set");
            assert_eq!(cause_to_proto(cause) as i32, number);
        }
        for number in 1..=7 {
            let blame = blame_from_proto(number).expect("known").expect("set");
            assert_eq!(blame_to_proto(blame) as i32, number);
        }
        assert!(cause_from_proto(99).is_err() && blame_from_proto(99).is_err() && outcome_from_proto(0, "x").is_err());
    }
}
