//! What is asked for: `RunSpec` ↔ [`RunSpec`].

use std::time::Duration;

use super::call::{tool_mode_from_proto, tool_mode_to_proto};
use super::control as pb;
use super::gate::{gate_from_proto, gate_to_proto};
use super::value::{WireError, duration_from_proto, duration_to_proto, some_text};
use crate::conversation::ToolMode;
use crate::plan::{MAX_CONCURRENCY, MAX_REPEATS, MAX_RETRIES, Replay, RunSpec};
use crate::suite::Tier;
use crate::suite::script::{Hooks, ScriptRef};
use crate::suite::timeout::{MAX_TIMEOUT, Timeout};
use crate::trace::{TraceHeaders, TraceParent, check_template};
use crate::usage::{Price, Prices};

/// How far a time may be from its text: fractions are rounded.
const A_MILLISECOND: Duration = Duration::from_millis(1);
/// Most labels of a run or an agent.
const MAX_LABELS: usize = 50;
/// Longest key or value of a label, in bytes.
const MAX_LABEL_BYTES: usize = 200;
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
        contract_case_timeout: spec.contract_timeout.as_ref().map(|timeout| duration_to_proto(timeout.duration)),
        contract_case_timeout_text: spec
            .contract_timeout
            .as_ref()
            .map(|timeout| timeout.written.clone())
            .unwrap_or_default(),
        simulator_agent_id: spec.simulator.clone().unwrap_or_default(),
        connector: spec.connector.clone().unwrap_or_default(),
        fail_fast: spec.fail_fast,
        repeats: spec.repeats,
        retries: spec.retries,
        retry_failed: spec.retry_failed,
        update_snapshots: spec.update_snapshots,
        inputs: inputs.collect(),
        targets: targets.collect(),
        strict: spec.strict,
        all_assertions: spec.all_assertions,
        tool_mode: tool_mode_to_proto(spec.tool_mode).into(),
        cases: cases.collect(),
        tiers: spec.tiers.iter().map(|tier| tier.name().to_owned()).collect(),
        difficulties: spec.difficulties.clone(),
        tags: spec.tags.clone(),
        check_arguments: spec.check_arguments,
        snapshot_agent_id: spec.snapshot_agent.clone().unwrap_or_default(),
        prices: spec.prices.0.iter().map(|(model, price)| price_to_proto(model, price)).collect(),
        before: spec.hooks.before.as_ref().map(ToString::to_string).unwrap_or_default(),
        after: spec.hooks.after.as_ref().map(ToString::to_string).unwrap_or_default(),
        labels: spec.labels.iter().cloned().collect(),
        gate: gate_to_proto(&spec.gate),
        replay_run_id: spec.replay.as_ref().map(|replay| replay.run_id.clone()).unwrap_or_default(),
        replay_asks_validators: spec.replay.as_ref().is_some_and(|replay| replay.asks_validators),
        trace_parent: spec.trace_parent.as_ref().map(|parent| {
            let TraceHeaders { traceparent, tracestate, baggage } = parent.headers();
            pb::TraceParent { traceparent, tracestate, baggage }
        }),
        trace_url: spec.trace_url.clone().unwrap_or_default(),
        capture_content: spec.capture_content,
        agent_gone_after: spec.agent_gone_after.map(duration_to_proto),
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
    let agent_gone_after = match spec.agent_gone_after {
        None => None,
        Some(time) => Some(
            duration_from_proto(time)
                .filter(|time| *time <= MAX_TIMEOUT)
                .ok_or_else(|| WireError::new("spec.agent_gone_after", "must be at most a day, and not negative"))?,
        ),
    };
    let case_timeout = timeout_from_proto("spec.case_timeout", spec.case_timeout, spec.case_timeout_text)?;
    let contract_timeout =
        timeout_from_proto("spec.contract_case_timeout", spec.contract_case_timeout, spec.contract_case_timeout_text)?;
    for (field, number, most) in [
        ("spec.repeats", spec.repeats, MAX_REPEATS),
        ("spec.retries", spec.retries, MAX_RETRIES),
        ("spec.retry_failed", spec.retry_failed, MAX_RETRIES),
    ] {
        if number > most {
            return Err(WireError::new(field, format!("is {number}, at most {most} are allowed")));
        }
    }
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
        contract_timeout,
        simulator: some_text(spec.simulator_agent_id),
        connector: some_text(spec.connector),
        fail_fast: spec.fail_fast,
        repeats: spec.repeats.max(1),
        retries: spec.retries,
        retry_failed: spec.retry_failed,
        update_snapshots: spec.update_snapshots,
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
        tiers: tiers_from_proto(&spec.tiers)?,
        difficulties: spec.difficulties,
        tags: spec.tags,
        check_arguments: spec.check_arguments,
        snapshot_agent: some_text(spec.snapshot_agent_id),
        prices: prices_from_proto(spec.prices)?,
        hooks: Hooks { before: hook("spec.before", &spec.before)?, after: hook("spec.after", &spec.after)? },
        labels: labels_from_proto("spec.labels", spec.labels)?,
        gate: gate_from_proto(spec.gate)?,
        replay: some_text(spec.replay_run_id)
            .map(|run_id| Replay { run_id, asks_validators: spec.replay_asks_validators }),
        trace_parent: spec.trace_parent.map(trace_parent_from_proto).transpose()?,
        trace_url: match some_text(spec.trace_url) {
            Some(url) => match check_template(&url) {
                Ok(()) => Some(url),
                Err(why) => return Err(WireError::new("spec.trace_url", why)),
            },
            None => None,
        },
        capture_content: spec.capture_content,
        agent_gone_after,
    })
}

/// The tiers that are known: a suite is of no other, so others select nothing.
fn tiers_from_proto(names: &[String]) -> Result<Vec<Tier>, WireError> {
    let known: Vec<Tier> = names.iter().filter_map(|name| Tier::named(name)).collect();
    match names.first() {
        // No tier at all would select everything.
        Some(unknown) if known.is_empty() => Err(WireError::new("spec.tiers", format!("{unknown:?} is no tier"))),
        _ => Ok(known),
    }
}

/// Reads a time for cases, and how its author wrote it: that stands in messages, so it must say what is so.
fn timeout_from_proto(
    field: &'static str,
    timeout: Option<prost_types::Duration>,
    text: String,
) -> Result<Option<Timeout>, WireError> {
    let Some(timeout) = timeout else { return Ok(None) };
    let duration = duration_from_proto(timeout)
        .filter(|timeout| !timeout.is_zero() && *timeout <= MAX_TIMEOUT)
        .ok_or_else(|| WireError::new(field, "must be more than 0 and at most a day"))?;
    let is_so = |text: &String| Timeout::of_written(text).is_some_and(|read| read.abs_diff(duration) < A_MILLISECOND);
    let written = Some(text).filter(is_so).unwrap_or_else(|| format!("{duration:?}"));
    Ok(Some(Timeout { duration, written }))
}

fn trace_parent_from_proto(parent: pb::TraceParent) -> Result<TraceParent, WireError> {
    let pb::TraceParent { traceparent, tracestate, baggage } = parent;
    let read = TraceParent::read(&TraceHeaders { traceparent, tracestate, baggage });
    read.map_err(|why| WireError::new("spec.trace_parent", why))
}

/// Labels in the order of their keys, if they are not too many.
///
/// # Errors
/// When they are.
pub fn few_labels(
    field: &'static str,
    labels: impl IntoIterator<Item = (String, String)>,
) -> Result<Vec<(String, String)>, WireError> {
    let mut labels: Vec<(String, String)> = labels.into_iter().collect();
    if labels.len() > MAX_LABELS {
        return Err(WireError::new(field, format!("there are {}, at most {MAX_LABELS} are allowed", labels.len())));
    }
    labels.sort();
    Ok(labels)
}

/// Labels of a run or an agent, in the order of their keys.
///
/// # Errors
/// When they are too many, or one is too long or holds what no label holds.
pub fn labels_from_proto(
    field: &'static str,
    labels: impl IntoIterator<Item = (String, String)>,
) -> Result<Vec<(String, String)>, WireError> {
    let labels = few_labels(field, labels)?;
    for (key, value) in &labels {
        let is_plain = |text: &str| text.len() <= MAX_LABEL_BYTES && !text.chars().any(char::is_control);
        if key.is_empty() || key.contains('=') || !is_plain(key) || !is_plain(value) {
            let problem = format!("{:?} is no label", format!("{key}={value}"));
            return Err(WireError::new(field, problem));
        }
    }
    Ok(labels)
}

fn hook(field: &'static str, text: &str) -> Result<Option<ScriptRef>, WireError> {
    if text.is_empty() {
        return Ok(None);
    }
    ScriptRef::of_hook(text).map(Some).map_err(|why| WireError::new(field, why))
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
