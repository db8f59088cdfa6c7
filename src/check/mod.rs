//! Judges a case: (case, what the agent said and did) → verdict. Pure: no clock, no network, no order of arrival.

pub mod arguments;
mod contract;
pub mod dialogue;
pub mod framework;
pub mod script_test;
mod near;
mod params;
mod snapshot;
mod step;

use crate::conversation::{Exchange, Failure, ToolCall, ToolMode, Transcript, kept};
use crate::suite::automaton::Deadline;
use crate::suite::template::{Data, why_unresolved};
use crate::suite::{Case, Dialect};
use crate::verdict::{AssertionResult, Blame, CaseResult, Cause, CheckpointResult, Outcome};
use arguments::Schemas;
use dialogue::Ending;
use framework::Replies;

/// Most failures of a case that are told more of.
const MAX_HINTS: usize = 10;

/// What a verdict depends on besides the case and the evidence.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// How the suite is written.
    pub dialect: Dialect,
    /// The time of the case as its author wrote it, which messages repeat; `None`: they name no time.
    pub timeout: Option<&'a str>,
    /// What validators and scripts decided.
    pub replies: &'a Replies,
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
    /// The evidence was recorded in an earlier run: it says nothing about times and costs of today.
    pub replayed: bool,
}

/// The verdict on a case that was sent to the agent.
#[must_use]
pub fn judge(case: &Case, exchange: Exchange, context: &Context<'_>) -> CaseResult {
    let Exchange { transcript, failure, warnings, .. } = exchange;
    if let Some(failure) = failure {
        let (outcome, cause, blame, error) = describe(failure, context.timeout);
        let messages_count = count_messages(case);
        let hint = (cause == Cause::Timeout).then(|| near::of_timeout(&transcript, None));
        return CaseResult {
            hint,
            warnings,
            messages_count,
            messages: kept(&case.messages),
            ..CaseResult::without_assertions(outcome, cause, blame, error, transcript)
        };
    }
    let mut assertions = match context.dialect {
        Dialect::Contract => contract::evaluate(case, &transcript, context),
        Dialect::Framework => framework::evaluate(&case.claims, &transcript, context.replies),
    };
    let mut warnings = warnings;
    let open_end = transcript.open_end.as_deref();
    check_arguments(&transcript.tool_calls, open_end, context, &mut assertions, &mut warnings);
    let mut result = CaseResult {
        outcome: Outcome::Passed,
        cause: None,
        blame: None,
        error: None,
        hint: None,
        failed_assertion: None,
        warning: None,
        warnings,
        assertions,
        transcript,
        total_turns: 1,
        turns: Vec::new(),
        checkpoints: Vec::new(),
        messages_count: count_messages(case),
        messages: kept(&case.messages),
        earlier: Vec::new(),
        console: Vec::new(),
        replayed: false,
    };
    for skipped in result.assertions.iter().filter(|assertion| !assertion.unresolved_tokens.is_empty()) {
        let why = why_unresolved(&skipped.unresolved_tokens, context.data);
        result.warnings.push(format!("case {:?}, {}: {why}; what holds it is left out", case.id, skipped.name));
    }
    let is_unpriced = |assertion: &&AssertionResult| assertion.reason == contract::UNKNOWN_COST;
    if let Some(skipped) = result.assertions.iter().find(is_unpriced) {
        result.warnings.push(format!("{} was skipped: {}", skipped.name, skipped.reason));
    }
    if let Some(bad) = result.bad_assertion().cloned() {
        result.blame_assertion(bad);
    } else if result.assertions_run() == 0 {
        let (warning, strict_error) = if result.assertions_skipped() > 0 {
            ("nothing checked", "nothing checked: every assertion was skipped")
        } else {
            ("no assertions", "no assertions")
        };
        // Who stores answers anew knows that nothing is compared.
        let is_renewed = result.assertions.iter().any(|assertion| assertion.reason == snapshot::RENEWED);
        if context.strict && !is_renewed {
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

/// What comes of looking at the arguments of tool calls.
#[derive(Debug, Default)]
pub struct Remarks {
    /// The assertion that the arguments fit, if the run asks for it.
    pub assertion: Option<AssertionResult>,
    /// What does not fit, where that fails nothing.
    pub warnings: Vec<String>,
}

/// Most remarks about arguments that are told of one case.
const MAX_ARGUMENT_WARNINGS: usize = 10;

/// Looks at the arguments of the tool calls: as an assertion behind all others if the run asks for it, else as
/// warnings.
fn check_arguments(
    calls: &[ToolCall],
    open_end: Option<&str>,
    context: &Context<'_>,
    assertions: &mut Vec<AssertionResult>,
    warnings: &mut Vec<String>,
) {
    let Some(schemas) = context.schemas.filter(|schemas| schemas.know_any(calls)) else { return };
    let stopped = assertions.iter().any(|assertion| assertion.outcome == Outcome::Failed);
    if context.check_arguments && stopped && !context.all_assertions && context.dialect == Dialect::Contract {
        return;
    }
    let mut remarks = remarks_on_arguments(calls, schemas, context.check_arguments);
    remarks.settle(open_end);
    assertions.extend(remarks.assertion);
    warnings.extend(remarks.warnings);
}

impl Remarks {
    /// That all arguments fit is not known where there may be more calls.
    fn settle(&mut self, open_end: Option<&str>) {
        if let Some(why) = open_end {
            self.assertion = self.assertion.take().map(|assertion| match assertion.outcome {
                Outcome::Passed => contract::unsettled(assertion, why),
                _ => assertion,
            });
        }
    }
}

/// Looks at the arguments of the tool calls; `fails`: as an assertion, else as warnings.
#[must_use]
pub fn remarks_on_arguments(calls: &[ToolCall], schemas: &Schemas, fails: bool) -> Remarks {
    let (mut violations, mut unchecked) = (Vec::new(), Vec::new());
    let deadline = Deadline::from_now();
    for call in calls {
        match schemas.violations(call, &deadline) {
            Ok(found) => violations.extend(found),
            Err(why) => unchecked.push(why),
        }
    }
    if fails {
        let (outcome, reason) = match (violations.into_iter().next(), unchecked.into_iter().next()) {
            (Some(violation), _) => (Outcome::Failed, violation),
            (None, Some(why)) => (Outcome::Errored, why),
            (None, None) => (Outcome::Passed, String::new()),
        };
        let assertion = AssertionResult {
            name: "toolArguments".to_owned(),
            outcome,
            reason,
            hint: String::new(),
            unresolved_tokens: Vec::new(),
            blame: None,
            written: None,
            opinion: None,
        };
        return Remarks { assertion: Some(assertion), warnings: Vec::new() };
    }
    let all = violations.len() + unchecked.len();
    let told = violations.into_iter().chain(unchecked).take(MAX_ARGUMENT_WARNINGS);
    let mut warnings: Vec<String> = told.map(|text| format!("arguments: {text}")).collect();
    if all > MAX_ARGUMENT_WARNINGS {
        warnings.push(format!("arguments: {} more remarks", all - MAX_ARGUMENT_WARNINGS));
    }
    Remarks { assertion: None, warnings }
}

fn count_messages(case: &Case) -> u32 {
    u32::try_from(case.messages.len()).unwrap_or(u32::MAX)
}

/// The verdict on a dialogue: how it ended, with everything that was said and done on the way. How it ended comes
/// first: what came of the assertions of the case counts where it passed. `strict`: it fails if it passed and
/// nothing was checked.
#[must_use]
pub fn judge_dialogue(
    progress: dialogue::Progress<'_>,
    ending: Ending,
    transcript: Transcript,
    mut warnings: Vec<String>,
    assertions: Vec<AssertionResult>,
    mut remarks: Remarks,
    strict: bool,
) -> CaseResult {
    let (turns, checkpoints) = progress.into_results();
    let total_turns = u32::try_from(turns.len()).unwrap_or(u32::MAX);
    let (outcome, cause, blame, error) = match ending {
        Ending::Passed => (Outcome::Passed, None, None, None),
        Ending::Bad { outcome, cause, blame, error } => (outcome, Some(cause), Some(blame), Some(error)),
    };
    remarks.settle(transcript.open_end.as_deref());
    warnings.extend(remarks.warnings);
    let hint =
        (cause == Some(Cause::Timeout)).then(|| near::of_timeout(&transcript, Some(total_turns.saturating_add(1))));
    let mut result = CaseResult {
        outcome,
        cause,
        blame,
        error,
        hint,
        failed_assertion: None,
        warning: None,
        warnings,
        assertions,
        transcript,
        total_turns,
        turns,
        checkpoints,
        messages_count: 0,
        messages: Vec::new(),
        earlier: Vec::new(),
        console: Vec::new(),
        replayed: false,
    };
    // Arguments that do not fit are a fact, also where the dialogue has no end.
    let is_wrong = remarks.assertion.as_ref().is_some_and(|assertion| assertion.outcome == Outcome::Failed);
    result.assertions.extend(remarks.assertion);
    let bad = match result.outcome {
        Outcome::Passed => result.bad_assertion(),
        Outcome::Errored if is_wrong => result.assertions.last(),
        Outcome::Errored | Outcome::Failed | Outcome::Skipped => None,
    };
    if let Some(bad) = bad.cloned() {
        result.blame_assertion(bad);
    }
    let is_reached = |checkpoint: &CheckpointResult| checkpoint.reached_at_turn.is_some();
    let is_unchecked = !result.checkpoints.iter().any(is_reached) && result.assertions_run() == 0;
    if result.outcome == Outcome::Passed && is_unchecked {
        // All checkpoints are optional, and none was reached.
        let why = "nothing checked";
        if strict {
            (result.outcome, result.cause, result.blame) =
                (Outcome::Failed, Some(Cause::NothingChecked), Some(Blame::Suite));
            result.error = Some(format!("{why}: no checkpoint is required, and none was reached"));
        } else {
            result.warning = Some(why.to_owned());
        }
    }
    result
}

/// How a dialogue ends whose agent gave no answer.
#[must_use]
pub fn ending_of(failure: Failure, timeout: Option<&str>) -> Ending {
    let (outcome, cause, blame, error) = describe(failure, timeout);
    Ending::Bad { outcome, cause, blame, error }
}

/// The verdict on a case that its author switched off.
#[must_use]
pub fn switched_off() -> CaseResult {
    let transcript = Transcript::default();
    CaseResult {
        cause: None,
        blame: None,
        error: None,
        ..CaseResult::without_assertions(Outcome::Skipped, Cause::Cancelled, Blame::Suite, "", transcript)
    }
}

/// The verdict on a case that holds nothing to send; the agent is not called.
#[must_use]
pub fn no_input() -> CaseResult {
    let transcript = Transcript::default();
    CaseResult::without_assertions(Outcome::Errored, Cause::NoInput, Blame::Suite, "no input message", transcript)
}

/// Outcome, cause, blame and error text of a call that gave no answer.
#[must_use]
pub fn describe(failure: Failure, timeout: Option<&str>) -> (Outcome, Cause, Blame, String) {
    match failure {
        Failure::Timeout => {
            let text = timeout.map_or_else(|| "timeout".to_owned(), |time| format!("timeout after {time}"));
            (Outcome::Failed, Cause::Timeout, Blame::Agent, text)
        }
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
        Failure::MaxTurns(most) => {
            (Outcome::Failed, Cause::MaxTurns, Blame::Agent, format!("max turns ({most}) exceeded"))
        }
        Failure::Suite(message) => (Outcome::Errored, Cause::Unsupported, Blame::Suite, message),
        Failure::Cancelled => (Outcome::Errored, Cause::Cancelled, Blame::Daemon, "cancelled".to_owned()),
        Failure::Stalled(message) => (Outcome::Errored, Cause::Timeout, Blame::Daemon, message),
    }
}
