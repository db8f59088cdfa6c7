//! Judges a case: (case, what the agent said and did) → verdict. Pure: no clock, no network, no order of arrival.

pub mod arguments;
mod contract;
mod params;

use crate::conversation::{Exchange, Failure, ToolCall, ToolMode};
use crate::suite::Case;
use crate::suite::template::Data;
use crate::verdict::{AssertionResult, Blame, CaseResult, Cause, Outcome};
use arguments::Schemas;

/// What a verdict depends on besides the case and the evidence.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// A case that checked nothing fails instead of passing with a warning.
    pub strict: bool,
    /// Evaluation goes on behind the first assertion that does not hold.
    pub all_assertions: bool,
    /// What happened to the tools of this case.
    pub tool_mode: ToolMode,
    /// What the tools declare about their arguments; `None`: nobody looks at it.
    pub schemas: Option<&'a Schemas>,
    /// Arguments that do not fit fail the case instead of warning.
    pub check_arguments: bool,
    /// What template tokens stand for.
    pub data: &'a Data,
    /// Tokens of the response; `None`: what the agent measured, else an estimate where an assertion asks for them.
    pub tokens: Option<u64>,
    /// What the case cost in US dollars; `None`: what stands in the transcript's usage.
    pub cost_usd: Option<f64>,
}

/// The verdict on a case that was sent to the agent.
#[must_use]
pub fn judge(case: &Case, exchange: Exchange, context: &Context<'_>) -> CaseResult {
    let Exchange { transcript, failure, warnings, .. } = exchange;
    if let Some(failure) = failure {
        let (outcome, cause, blame, error) = describe(failure);
        return CaseResult { warnings, ..CaseResult::without_assertions(outcome, cause, blame, error, transcript) };
    }
    let mut assertions = contract::evaluate(case, &transcript, context);
    let mut warnings = warnings;
    check_arguments(&transcript.tool_calls, context, &mut assertions, &mut warnings);
    let mut result = CaseResult {
        outcome: Outcome::Passed,
        cause: None,
        blame: None,
        error: None,
        failed_assertion: None,
        warning: None,
        warnings,
        assertions,
        transcript,
        total_turns: 1,
    };
    for skipped in result.assertions.iter().filter(|assertion| !assertion.unresolved_tokens.is_empty()) {
        let tokens = skipped.unresolved_tokens.join(", ");
        result.warnings.push(format!("{}: {tokens} leads nowhere and was left out", skipped.name));
    }
    let is_unpriced = |assertion: &&AssertionResult| assertion.reason == contract::UNKNOWN_COST;
    if let Some(skipped) = result.assertions.iter().find(is_unpriced) {
        result.warnings.push(format!("{} was skipped: {}", skipped.name, skipped.reason));
    }
    // A failed assertion is a fact, whatever else could not be evaluated.
    let first = |outcome| result.assertions.iter().find(|assertion| assertion.outcome == outcome);
    let bad = first(Outcome::Failed).or_else(|| first(Outcome::Errored));
    if let Some(bad) = bad {
        result.outcome = bad.outcome;
        result.cause = Some(Cause::Assertion);
        result.blame = Some(if bad.outcome == Outcome::Failed { Blame::Agent } else { Blame::Suite });
        result.error = Some(format!("{}: {}", bad.name, bad.reason));
        result.failed_assertion = Some(bad.name.clone());
    } else if result.assertions_run() == 0 {
        let (warning, strict_error) = if result.assertions_skipped() > 0 {
            ("nothing checked", "nothing checked: every assertion was skipped")
        } else {
            ("no assertions", "no assertions")
        };
        if context.strict {
            result.outcome = Outcome::Failed;
            result.cause = Some(Cause::NothingChecked);
            result.blame = Some(Blame::Suite);
            result.error = Some(strict_error.to_owned());
        } else {
            result.warning = Some(warning.to_owned());
        }
    }
    result
}

/// Most remarks about arguments that are told of one case.
const MAX_ARGUMENT_WARNINGS: usize = 10;

/// Looks at the arguments of the tool calls: as an assertion behind all others if the run asks for it, else as warnings.
fn check_arguments(
    calls: &[ToolCall],
    context: &Context<'_>,
    assertions: &mut Vec<AssertionResult>,
    warnings: &mut Vec<String>,
) {
    let Some(schemas) = context.schemas.filter(|schemas| schemas.know_any(calls)) else { return };
    let stopped = assertions.iter().any(|assertion| matches!(assertion.outcome, Outcome::Failed | Outcome::Errored));
    if context.check_arguments && stopped && !context.all_assertions {
        return;
    }
    let mut violations = calls.iter().flat_map(|call| schemas.violations(call));
    if context.check_arguments {
        let reason = violations.next();
        assertions.push(AssertionResult {
            name: "toolArguments".to_owned(),
            outcome: if reason.is_some() { Outcome::Failed } else { Outcome::Passed },
            reason: reason.unwrap_or_default(),
            unresolved_tokens: Vec::new(),
        });
    } else {
        let told = violations.by_ref().take(MAX_ARGUMENT_WARNINGS);
        warnings.extend(told.map(|violation| format!("arguments: {violation}")));
        let more = violations.count();
        if more > 0 {
            warnings.push(format!("arguments: {more} more violations"));
        }
    }
}

/// The verdict on a case that holds nothing to send; the agent is not called.
#[must_use]
pub fn no_input() -> CaseResult {
    let transcript = crate::conversation::Transcript::default();
    CaseResult::without_assertions(Outcome::Errored, Cause::NoInput, Blame::Suite, "no input message", transcript)
}

/// Outcome, cause, blame and error text of a call that gave no answer.
fn describe(failure: Failure) -> (Outcome, Cause, Blame, String) {
    match failure {
        Failure::Timeout => (Outcome::Failed, Cause::Timeout, Blame::Agent, "timeout".to_owned()),
        Failure::Agent(message) => {
            (Outcome::Failed, Cause::AgentError, Blame::Agent, format!("agent error: {message}"))
        }
        Failure::Protocol(message) => {
            (Outcome::Failed, Cause::ProtocolViolation, Blame::Agent, format!("protocol violation: {message}"))
        }
        Failure::Lost(message) => {
            (Outcome::Errored, Cause::AgentError, Blame::Network, format!("agent error: connection lost: {message}"))
        }
        Failure::Unreachable(message) => {
            (Outcome::Errored, Cause::Unreachable, Blame::Network, format!("agent unreachable: {message}"))
        }
        Failure::Suite(message) => (Outcome::Errored, Cause::Unsupported, Blame::Suite, message),
        Failure::Cancelled => (Outcome::Errored, Cause::Cancelled, Blame::Daemon, "cancelled".to_owned()),
    }
}
