//! The `EvalSuiteResult` of the Eval Runner Contract as JSON, written case by case.
//!
//! Keys beyond those of the contract: on a suite `warnings`, `agent`, `exitCode`; in its summary `errored` and `notRun`;
//! on a case `outcome`, `cause`, `blame`, `assertion`, `warning`, `warnings`, `attempts`, `toolCalls`, `response`,
//! `totalTurns`. `passed` is false, and a case counts as failed in the summary, also where it could not be judged.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::{Verdict, Verdicts};
use crate::conversation::{AgentCard, Payload, ToolCall, ToolOutcome};
use crate::event::{Run, SuiteInfo};
use crate::verdict::{Outcome, Totals, whole_millis};

/// Writes the result of a run: one suite as the contract's object, several as `{"runId", "suites": […]}`.
///
/// # Errors
/// Those of `out`.
pub fn write(run: &Run, verdicts: &Verdicts, out: &mut impl Write) -> io::Result<()> {
    if let [suite] = run.suites.as_slice() {
        return write_suite(run, suite, verdicts, out);
    }
    writeln!(out, "{{\n\"runId\": {},\n\"exitCode\": {},\n\"suites\": [", text(&run.run_id)?, run.exit_code())?;
    for (index, suite) in run.suites.iter().enumerate() {
        if index > 0 {
            writeln!(out, ",")?;
        }
        write_suite(run, suite, verdicts, out)?;
    }
    writeln!(out, "]\n}}")
}

/// Writes the result of one suite of a run.
///
/// # Errors
/// Those of `out`.
pub fn write_suite(run: &Run, suite: &SuiteInfo, verdicts: &Verdicts, out: &mut impl Write) -> io::Result<()> {
    // The contract's keys in the contract's order, with the long list written as it comes.
    let head = serde_json::to_string_pretty(&Head::of(run, suite))?;
    out.write_all(head.strip_suffix("\n}").unwrap_or(&head).as_bytes())?;
    write!(out, ",\n  \"cases\": [")?;
    let mut totals = Totals { total: suite.cases, ..Totals::default() };
    for (index, verdict) in verdicts.of_suite(&suite.path).enumerate() {
        totals.add(verdict.result);
        let case = serde_json::to_string_pretty(&Case::of(verdict))?;
        write!(out, "{}\n    {}", if index > 0 { "," } else { "" }, case.replace('\n', "\n    "))?;
    }
    let tail = serde_json::to_string_pretty(&Tail::of(run, totals))?;
    writeln!(out, "\n  ],{}", tail.strip_prefix('{').unwrap_or(&tail))
}

fn text(text: &str) -> io::Result<String> {
    Ok(serde_json::to_string(text)?)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Head<'a> {
    run_id: &'a str,
    timestamp: String,
    tier: &'a str,
    tool_name: &'a str,
    agent_endpoint: &'a str,
    metadata: Metadata<'a>,
    staleness_warnings: [&'a str; 0],
    warnings: Vec<&'a str>,
    agent: Option<Agent<'a>>,
}

/// The current values of what an eval file's metadata records, from the agent's own description of its tools.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    tool_version: Option<&'a str>,
    description_hash: Option<String>,
    registry_size: Option<usize>,
    eval_file_hash: &'a str,
}

#[derive(Serialize)]
struct Agent<'a> {
    id: &'a str,
    name: &'a str,
    version: &'a str,
    model: &'a str,
}

impl<'a> Head<'a> {
    fn of(run: &'a Run, suite: &'a SuiteInfo) -> Self {
        Self {
            run_id: &run.run_id,
            timestamp: run.created_at.to_string(),
            tier: &suite.tier,
            tool_name: &suite.tool_name,
            agent_endpoint: &run.agent_endpoint,
            metadata: Metadata::of(run.agent.as_ref(), suite),
            staleness_warnings: [],
            warnings: suite.warnings.iter().chain(&run.warnings).map(String::as_str).collect(),
            agent: run.agent.as_ref().map(|card| Agent {
                id: &card.agent_id,
                name: &card.name,
                version: &card.version,
                model: &card.model,
            }),
        }
    }
}

impl<'a> Metadata<'a> {
    fn of(agent: Option<&'a AgentCard>, suite: &'a SuiteInfo) -> Self {
        // An agent that declares no tools gives no registry.
        let tools = agent.map(|card| card.tools.as_slice()).filter(|tools| !tools.is_empty());
        let tool = tools.and_then(|tools| tools.iter().find(|tool| tool.name == suite.tool_name));
        Self {
            tool_version: tool.map(|tool| tool.version.as_str()).filter(|version| !version.is_empty()),
            description_hash: tool.map(|tool| {
                let mut digest = hex::encode(Sha256::digest(&tool.description));
                digest.truncate(12);
                digest
            }),
            registry_size: tools.map(<[_]>::len),
            eval_file_hash: &suite.eval_file_hash,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tail {
    summary: Summary,
    baseline_run_id: Option<String>,
    regressions: [String; 0],
    new_passes: [String; 0],
    exit_code: u8,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    total_cases: u32,
    passed: u32,
    failed: u32,
    errored: u32,
    not_run: u32,
    skipped_assertions: u32,
    total_duration_ms: u64,
    estimated_cost_usd: Option<f64>,
}

impl Tail {
    fn of(run: &Run, totals: Totals) -> Self {
        Self {
            summary: Summary {
                total_cases: totals.total,
                passed: totals.passed,
                failed: totals.total.saturating_sub(totals.passed),
                errored: totals.errored,
                not_run: totals.skipped,
                skipped_assertions: totals.skipped_assertions,
                total_duration_ms: whole_millis(totals.duration),
                estimated_cost_usd: None,
            },
            baseline_run_id: None,
            regressions: [],
            new_passes: [],
            exit_code: run.exit_code(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Case<'a> {
    id: &'a str,
    description: &'a str,
    passed: bool,
    duration_ms: u64,
    assertions_run: u32,
    assertions_skipped: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    details: Details<'a>,
    outcome: &'static str,
    cause: Option<&'static str>,
    blame: Option<&'static str>,
    assertion: Option<&'a str>,
    warning: Option<&'a str>,
    warnings: &'a [String],
    attempts: u32,
    total_turns: u32,
    tool_calls: Vec<Call<'a>>,
    response: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details<'a> {
    tools_called: Vec<&'a str>,
    /// In UTF-16 code units, as JavaScript counts.
    response_length: usize,
    skipped_tokens: Vec<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Call<'a> {
    name: &'a str,
    success: bool,
    duration_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    malformed_params: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

impl<'a> Case<'a> {
    fn of(verdict: Verdict<'a>) -> Self {
        let result = verdict.result;
        let transcript = &result.transcript;
        Self {
            id: &verdict.case.case_id,
            description: verdict.name,
            passed: result.outcome == Outcome::Passed,
            duration_ms: whole_millis(transcript.duration),
            assertions_run: result.assertions_run(),
            assertions_skipped: result.assertions_skipped(),
            error: result.error.as_deref(),
            details: Details {
                tools_called: transcript.tool_calls.iter().map(|call| call.name.as_str()).collect(),
                response_length: transcript.response.encode_utf16().count(),
                skipped_tokens: result.skipped_tokens().collect(),
            },
            outcome: result.outcome.name(),
            cause: result.cause.map(crate::verdict::Cause::name),
            blame: result.blame.map(crate::verdict::Blame::name),
            assertion: result.failed_assertion.as_deref(),
            warning: result.warning.as_deref(),
            warnings: &result.warnings,
            attempts: verdict.case.attempt,
            total_turns: result.total_turns,
            tool_calls: transcript.tool_calls.iter().map(Call::of).collect(),
            response: &transcript.response,
        }
    }
}

impl<'a> Call<'a> {
    fn of(call: &'a ToolCall) -> Self {
        let (malformed_params, params) = match &call.params {
            Some(Payload::Malformed(text)) => (Some(text.as_str()), None),
            params => (None, raw(params.as_ref())),
        };
        let (result, error) = match &call.outcome {
            Some(ToolOutcome::Result(result)) => (raw(result.as_ref()), None),
            Some(ToolOutcome::Error(fault)) => (None, Some(fault.message.as_str())),
            None => (None, None),
        };
        let duration_ms = call.duration.map(|duration| duration.as_secs_f64() * 1000.0);
        Self { name: &call.name, success: call.succeeded(), duration_ms, params, malformed_params, result, error }
    }
}

/// JSON with every byte as the agent sent it.
fn raw(payload: Option<&Payload>) -> Option<Box<RawValue>> {
    match payload? {
        Payload::Json(text) => RawValue::from_string(text.as_str().to_owned()).ok(),
        Payload::Malformed(_) => None,
    }
}
