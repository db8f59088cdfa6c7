//! The assertions of the Eval Runner Contract, in its order, stopping at the first that does not hold.

use std::collections::BTreeSet;

use crate::conversation::{ToolMode, Transcript};
use crate::suite::assertion::Assertion;
use crate::suite::{Case, Mode};
use crate::verdict::{AssertionResult, Outcome};

/// In `toolsAcceptable`, a set of just this name stands for no calls at all.
const NONE: &str = "__none__";

/// What came of one counted assertion.
enum Step {
    Holds,
    Fails(String),
    Skipped(String),
}

/// Evaluates the assertions of `case` against what the agent said and did.
///
/// What stands behind the first failure is neither run nor skipped and does not appear in the answer.
pub(super) fn evaluate(case: &Case, transcript: &Transcript, tool_mode: ToolMode) -> Vec<AssertionResult> {
    let called: Vec<&str> = transcript.tool_calls.iter().map(|call| call.name.as_str()).collect();
    let mut results = Vec::new();
    for assertion in &case.assertions {
        for step in steps(assertion, case, transcript, &called, tool_mode) {
            let (outcome, reason) = match step {
                Step::Holds => (Outcome::Passed, String::new()),
                Step::Fails(reason) => (Outcome::Failed, reason),
                Step::Skipped(reason) => (Outcome::Skipped, reason),
            };
            let name = assertion.name().to_owned();
            results.push(AssertionResult { name, outcome, reason, unresolved_tokens: Vec::new() });
            if outcome == Outcome::Failed {
                return results;
            }
        }
    }
    results
}

/// The counted assertions of one field, in order and lazily: nothing behind a failure is evaluated.
fn steps<'a>(
    assertion: &'a Assertion,
    case: &'a Case,
    transcript: &'a Transcript,
    called: &'a [&'a str],
    tool_mode: ToolMode,
) -> Box<dyn Iterator<Item = Step> + 'a> {
    let response = transcript.response.as_str();
    match assertion {
        Assertion::ToolsCalled(expected) => {
            one(called == expected.as_slice(), || format!("expected {}, but {} called", list(expected), were(called)))
        }
        Assertion::ToolsAcceptable(sets) => one(sets.iter().any(|set| is_acceptable(set, called)), || {
            let sets: Vec<String> = sets.iter().map(|set| list(set)).collect();
            format!(
                "expected one of {}, but {} called",
                if sets.is_empty() { "no sets".to_owned() } else { sets.join(" or ") },
                were(called)
            )
        }),
        Assertion::ToolsNotCalled(forbidden) => Box::new(forbidden.iter().map(|tool| {
            step(!called.contains(&tool.as_str()), || {
                format!("{tool:?} must not be called, but {} called", were(called))
            })
        })),
        Assertion::NoToolErrors => no_tool_errors(case, transcript, tool_mode),
        Assertion::ResponseNonEmpty => {
            one(!js_trim(response).is_empty(), || "the response is empty or white space".to_owned())
        }
        Assertion::ResponseContains(values) => Box::new(values.iter().map(move |value| {
            step(response.contains(value.as_str()), || format!("expected '{value}' in response but not found"))
        })),
        Assertion::ResponseContainsAny(groups) => Box::new(groups.iter().map(move |group| {
            if group.is_empty() {
                return Step::Skipped("the group is empty".to_owned());
            }
            step(group.iter().any(|value| response.contains(value.as_str())), || {
                let quoted: Vec<String> = group.iter().map(|value| format!("'{value}'")).collect();
                format!("expected one of {} in response but found none", quoted.join(", "))
            })
        })),
        Assertion::ResponseNotContains(values) => {
            Box::new(values.iter().map(move |value| {
                step(!response.contains(value.as_str()), || format!("found \"{value}\" in response"))
            }))
        }
        Assertion::MaxLatencyMs(limit) => {
            let took = transcript.duration.as_secs_f64() * 1000.0;
            // Rounded to nanoseconds: 1000.1 ms as seconds in a double must not exceed 1000.1.
            let took = (took * 1e6).round() / 1e6;
            one(took <= *limit, || format!("took {took} ms, more than the {limit} ms allowed"))
        }
    }
}

fn one<'a>(holds: bool, reason: impl FnOnce() -> String) -> Box<dyn Iterator<Item = Step> + 'a> {
    Box::new(std::iter::once(step(holds, reason)))
}

fn step(holds: bool, reason: impl FnOnce() -> String) -> Step {
    if holds { Step::Holds } else { Step::Fails(reason()) }
}

fn no_tool_errors<'a>(
    case: &Case,
    transcript: &Transcript,
    tool_mode: ToolMode,
) -> Box<dyn Iterator<Item = Step> + 'a> {
    if let Mode::Stubbed { stubs, .. } = &case.mode {
        let unknown = transcript.tool_calls.iter().find(|call| !stubs.iter().any(|(tool, _)| *tool == call.name));
        return one(unknown.is_none(), || {
            let name = unknown.map(|call| call.name.as_str()).unwrap_or_default();
            format!("{name:?} was called, which has no stub")
        });
    }
    match tool_mode {
        // Tools are never executed: there is nothing to look at, and nothing to count.
        ToolMode::RoutingOnly => Box::new(std::iter::empty()),
        ToolMode::Live | ToolMode::Stub => {
            let failed = transcript.tool_calls.iter().find(|call| !call.succeeded());
            one(failed.is_none(), || match failed {
                Some(call) => match &call.outcome {
                    Some(crate::conversation::ToolOutcome::Error(fault)) if !fault.message.is_empty() => {
                        format!("{:?} failed: {}", call.name, fault.message)
                    }
                    Some(_) => format!("{:?} failed", call.name),
                    None => format!("{:?} was started, and no result was reported", call.name),
                },
                None => String::new(),
            })
        }
    }
}

/// Sets are compared: neither order nor repeats matter, on either side.
fn is_acceptable(set: &[String], called: &[&str]) -> bool {
    if let [only] = set
        && only == NONE
    {
        return called.is_empty();
    }
    let wanted: BTreeSet<&str> = set.iter().map(String::as_str).collect();
    let called: BTreeSet<&str> = called.iter().copied().collect();
    wanted == called
}

/// JavaScript's `trim`: its white space has U+FEFF and lacks U+0085.
fn js_trim(text: &str) -> &str {
    text.trim_matches(|c: char| (c.is_whitespace() && c != '\u{85}') || c == '\u{feff}')
}

fn list<S: AsRef<str>>(names: &[S]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    format!("[{}]", names.join(", "))
}

fn were(called: &[&str]) -> String {
    match called {
        [] => "no tool was".to_owned(),
        [_] => format!("{} was", list(called)),
        _ => format!("{} were", list(called)),
    }
}
