//! The verdict on a script test: a function that calls agents itself and says what must hold.

use super::contract::UNSETTLED;
use super::{describe, near};
use crate::conversation::{Failure, Transcript};
use crate::verdict::{AssertionResult, Blame, CaseResult, Cause, Outcome, Turn};

/// What came of running a test.
#[derive(Debug, Default)]
pub struct Tested {
    /// What it checked, in order.
    pub assertions: Vec<AssertionResult>,
    /// How many more hold, and how many more do not, of which nothing else is kept.
    pub more: [u32; 2],
    /// Why it skipped itself, if it did.
    pub skipped: Option<String>,
    /// Why it did not come to its end, if it did not.
    pub broken: Option<Broken>,
    /// Whether an agent was called, and did answer or fail.
    pub was_called: bool,
    /// Failures of its calls that are not the agent's: what was checked after them says nothing about the agent.
    pub troubles: Vec<Failure>,
    /// What the agents said and did, over all calls.
    pub transcript: Transcript,
    /// The calls that were answered.
    pub turns: Vec<Turn>,
    /// Protocol warnings.
    pub warnings: Vec<String>,
    /// What the script wrote to the console.
    pub console: Vec<String>,
}

/// Why a test did not come to its end.
#[derive(Debug)]
pub enum Broken {
    /// A call failed, and the script did not handle it.
    Call(Failure),
    /// The time was up, and not the script had used it.
    Late(Blame),
    /// The script itself failed.
    Script(String),
    /// The daemon had no process for it.
    Daemon(String),
}

/// The verdict on a test. `strict`: it fails if it checked nothing. `timeout`: the time of the case, as written.
#[must_use]
pub fn judge_test(tested: Tested, strict: bool, timeout: &str) -> CaseResult {
    let Tested { assertions, more, skipped, broken, was_called, troubles, transcript, turns, console, .. } = tested;
    let mut warnings = tested.warnings;
    if more != [0, 0] {
        warnings.push(format!("{} more checks hold and {} more do not; they are not listed", more[0], more[1]));
    }
    let first = |outcome| assertions.iter().find(|assertion| assertion.outcome == outcome).cloned();
    let (failed, unevaluated) = (first(Outcome::Failed), first(Outcome::Errored));
    let nothing_checked = assertions.is_empty();
    let mut result = CaseResult {
        assertions,
        total_turns: u32::try_from(turns.len()).unwrap_or(u32::MAX),
        turns,
        warnings,
        console,
        replayed: false,
        ..CaseResult::without_assertions(Outcome::Passed, Cause::Assertion, Blame::Agent, "", transcript)
    };
    let end = |result: &mut CaseResult, outcome, cause, blame, error: Option<String>| {
        (result.outcome, result.cause, result.blame, result.error) = (outcome, cause, blame, error);
    };
    let bad = |assertion: &AssertionResult| Some(format!("{}: {}", assertion.name, assertion.reason));
    if let Some(trouble) = troubles.into_iter().next() {
        // Whatever was checked behind it says nothing, and what held before is not all that was to be checked.
        let (outcome, cause, blame, error) = describe(trouble, Some(timeout));
        end(&mut result, outcome, Some(cause), Some(blame), Some(error));
        return result;
    }
    if let Some(why) = result.transcript.open_end.clone() {
        // Nobody knows what in the script looked at tool calls.
        let error = Some(format!("{UNSETTLED}{why}"));
        end(&mut result, Outcome::Errored, Some(Cause::Assertion), Some(Blame::Network), error);
        return result;
    }
    match (failed, broken, unevaluated) {
        (Some(failed), broken, _) => {
            let ended = match broken {
                Some(Broken::Script(why) | Broken::Daemon(why)) => Some(why),
                Some(Broken::Call(failure)) => Some(describe(failure, Some(timeout)).3),
                Some(Broken::Late(_)) => Some(format!("timeout after {timeout}")),
                None => None,
            };
            result.warnings.extend(ended.map(|why| format!("the test ended early: {why}")));
            // An agent that was never called has done nothing wrong.
            let blame = if was_called { Blame::Agent } else { Blame::Script };
            end(&mut result, Outcome::Failed, Some(Cause::Assertion), Some(blame), bad(&failed));
            result.failed_assertion = Some(failed.name);
        }
        (None, Some(Broken::Call(failure)), _) => {
            let (outcome, cause, blame, error) = describe(failure, Some(timeout));
            end(&mut result, outcome, Some(cause), Some(blame), Some(error));
        }
        (None, Some(Broken::Late(blame)), _) => {
            let (outcome, cause) = match blame {
                Blame::Validator => (Outcome::Errored, Cause::ValidatorError),
                _ => (Outcome::Failed, Cause::Timeout),
            };
            end(&mut result, outcome, Some(cause), Some(blame), Some(format!("timeout after {timeout}")));
        }
        (None, Some(Broken::Script(why)), _) => {
            let error = Some(format!("script error: {why}"));
            end(&mut result, Outcome::Errored, Some(Cause::ScriptError), Some(Blame::Script), error);
        }
        (None, Some(Broken::Daemon(why)), _) => {
            let error = Some(format!("script error: {why}"));
            end(&mut result, Outcome::Errored, Some(Cause::ScriptError), Some(Blame::Daemon), error);
        }
        (None, None, Some(unevaluated)) => {
            let blame = unevaluated.blame.unwrap_or(Blame::Validator);
            end(&mut result, Outcome::Errored, Some(Cause::ValidatorError), Some(blame), bad(&unevaluated));
            result.failed_assertion = Some(unevaluated.name);
        }
        (None, None, None) => match skipped {
            Some(why) => {
                let why = if why.is_empty() { why } else { format!(": {why}") };
                end(&mut result, Outcome::Skipped, None, None, Some(format!("the test skipped itself{why}")));
            }
            None if nothing_checked && strict => end(
                &mut result,
                Outcome::Failed,
                Some(Cause::NothingChecked),
                Some(Blame::Suite),
                Some("no assertions".to_owned()),
            ),
            None => {
                end(&mut result, Outcome::Passed, None, None, None);
                result.warning = nothing_checked.then(|| "no assertions".to_owned());
            }
        },
    }
    if result.cause == Some(Cause::Timeout) {
        result.hint = Some(near::of_timeout(&result.transcript, Some(result.total_turns.saturating_add(1))));
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, outcome: Outcome) -> AssertionResult {
        AssertionResult {
            name: name.to_owned(),
            outcome,
            reason: "why".to_owned(),
            hint: String::new(),
            unresolved_tokens: Vec::new(),
            blame: None,
            written: None,
            opinion: None,
        }
    }

    type Row = (&'static str, Tested, Outcome, Option<Cause>, Option<Blame>);

    #[test]
    fn whose_fault_it_is() {
        let failed = || vec![check("Equal", Outcome::Passed), check("Len", Outcome::Failed)];
        let asked = || vec![check("Agent", Outcome::Errored)];
        let unreachable = || Failure::Unreachable("gone".to_owned());
        let broken = |why: &str| Some(Broken::Script(why.to_owned()));
        let rows: [Row; 12] = [
            (
                "holds",
                Tested { assertions: vec![check("Equal", Outcome::Passed)], was_called: true, ..Tested::default() },
                Outcome::Passed,
                None,
                None,
            ),
            (
                "an answer is wrong",
                Tested { assertions: failed(), was_called: true, ..Tested::default() },
                Outcome::Failed,
                Some(Cause::Assertion),
                Some(Blame::Agent),
            ),
            (
                "no agent was called",
                Tested { assertions: failed(), ..Tested::default() },
                Outcome::Failed,
                Some(Cause::Assertion),
                Some(Blame::Script),
            ),
            (
                "a failed check is a fact, and the error that it led to says nothing more",
                Tested { assertions: failed(), was_called: true, broken: broken("x"), ..Tested::default() },
                Outcome::Failed,
                Some(Cause::Assertion),
                Some(Blame::Agent),
            ),
            (
                "what was checked after trouble says nothing about the agent",
                Tested { assertions: failed(), was_called: true, troubles: vec![unreachable()], ..Tested::default() },
                Outcome::Errored,
                Some(Cause::Unreachable),
                Some(Blame::Network),
            ),
            (
                "trouble that the script has handled",
                Tested { was_called: true, troubles: vec![unreachable()], ..Tested::default() },
                Outcome::Errored,
                Some(Cause::Unreachable),
                Some(Blame::Network),
            ),
            (
                "the agent failed",
                Tested { broken: Some(Broken::Call(Failure::Agent("no".to_owned()))), ..Tested::default() },
                Outcome::Failed,
                Some(Cause::AgentError),
                Some(Blame::Agent),
            ),
            (
                "the agent took the time",
                Tested { broken: Some(Broken::Late(Blame::Agent)), ..Tested::default() },
                Outcome::Failed,
                Some(Cause::Timeout),
                Some(Blame::Agent),
            ),
            (
                "the script failed",
                Tested { broken: broken("x"), ..Tested::default() },
                Outcome::Errored,
                Some(Cause::ScriptError),
                Some(Blame::Script),
            ),
            (
                "the validator said nothing",
                Tested { assertions: asked(), was_called: true, ..Tested::default() },
                Outcome::Errored,
                Some(Cause::ValidatorError),
                Some(Blame::Validator),
            ),
            (
                "skipped",
                Tested { skipped: Some("later".to_owned()), ..Tested::default() },
                Outcome::Skipped,
                None,
                None,
            ),
            (
                "what failed is not skipped",
                Tested { assertions: failed(), skipped: Some(String::new()), ..Tested::default() },
                Outcome::Failed,
                Some(Cause::Assertion),
                Some(Blame::Script),
            ),
        ];
        for (name, tested, outcome, cause, blame) in rows {
            let result = judge_test(tested, false, "5m");
            assert_eq!((result.outcome, result.cause, result.blame), (outcome, cause, blame), "{name}");
        }
    }

    #[test]
    fn a_test_that_checks_nothing() {
        let result = judge_test(Tested::default(), false, "5m");
        assert_eq!((result.outcome, result.warning.as_deref()), (Outcome::Passed, Some("no assertions")));
        let result = judge_test(Tested::default(), true, "5m");
        assert_eq!((result.outcome, result.cause), (Outcome::Failed, Some(Cause::NothingChecked)));
    }
}
