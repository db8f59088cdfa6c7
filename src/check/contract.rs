//! The assertions of the Eval Runner Contract, in its order, stopping at the first that does not hold.

use std::cell::Cell;
use std::collections::BTreeSet;

use super::params::{self, ReadArguments};
use super::step::Step;
use super::{Context, MAX_HINTS, near};
use crate::conversation::{Cost, ToolCall, ToolMode, ToolOutcome, Transcript};
use crate::json::{Json, Value};
use crate::limits::TEMPLATE_CASE_BYTES;
use crate::suite::assertion::Assertion;
use crate::suite::pattern::JsPattern;
use crate::suite::template::{Template, Unfilled};
use crate::suite::{Case, Mode};
use crate::text::clip;
use crate::usage::{estimate_tokens, measured_tokens};
use crate::verdict::{AssertionResult, Blame, Outcome};
use crate::work::is_over;

/// Most characters of a text in a reason: what people read, and not all that somebody can write.
const MAX_SHOWN: usize = 2_000;

/// Why `maxCost` is skipped; people have to hear of it, because they can do something about it.
pub(super) const UNKNOWN_COST: &str = "the agent told no cost in US dollars, and there is no price for its model";
/// Why times and costs are not looked at.
const REPLAYED: &str = "what is replayed says nothing about times and costs";
/// What the answer is called in hints.
const RESPONSE: &str = "the response";
/// In `toolsAcceptable`, a set of just this name stands for no calls at all.
const NONE: &str = "__none__";

/// Evaluates the assertions of `case` against what the agent said and did.
///
/// Unless all are asked for, what stands behind the first failure is neither run nor skipped and does not appear in the
/// answer. What could not be evaluated is no failure: behind it may stand one, which is a fact about the agent.
pub(super) fn evaluate(case: &Case, transcript: &Transcript, context: &Context<'_>) -> Vec<AssertionResult> {
    let (called, arguments) = (names(&transcript.tool_calls), ReadArguments::default());
    let subject = Subject { case, transcript, called, context, arguments, expanded: Cell::new(0), told: Cell::new(0) };
    let mut results = Vec::new();
    for assertion in &case.assertions {
        let steps = if is_over() { Box::new(std::iter::once(Step::unlooked())) } else { subject.steps(assertion) };
        for step in steps {
            // Whatever came of it, it was stopped.
            let is_over = is_over();
            let step = if is_over { Step::unlooked() } else { step };
            let result = subject.settled(assertion, step.result(assertion.name()));
            let has_failed = result.outcome == Outcome::Failed;
            results.push(result);
            if has_failed && !context.all_assertions {
                return results;
            }
            if is_over {
                break;
            }
        }
    }
    results
}

fn names(calls: &[ToolCall]) -> Vec<&str> {
    calls.iter().map(|call| call.name.as_str()).collect()
}

type Steps<'a> = Box<dyn Iterator<Item = Step> + 'a>;

/// What is judged.
struct Subject<'a> {
    case: &'a Case,
    transcript: &'a Transcript,
    called: Vec<&'a str>,
    context: &'a Context<'a>,
    /// The arguments of its tool calls.
    arguments: ReadArguments,
    /// Bytes of all texts whose tokens were replaced so far.
    expanded: Cell<usize>,
    /// How many failures were told more of: that takes time, and people read a few.
    told: Cell<usize>,
}

impl<'a> Subject<'a> {
    /// What came of an assertion, if more tool calls than are known could not change it: there may be some where
    /// the record has an open end.
    fn settled(&self, assertion: &Assertion, result: AssertionResult) -> AssertionResult {
        let Some(why) = &self.transcript.open_end else { return result };
        let called = self.called.as_slice();
        let may_change = match (assertion, result.outcome) {
            // A call that was seen stays seen.
            (_, Outcome::Skipped | Outcome::Errored)
            | (Assertion::ToolsNotCalled(_) | Assertion::MaxToolCalls(_) | Assertion::NoToolErrors, Outcome::Failed)
            | (Assertion::MinToolCalls(_), Outcome::Passed) => false,
            (Assertion::ToolsCalled(expected), Outcome::Failed) => is_part_in_order(called, expected),
            (Assertion::ToolsAcceptable(sets), Outcome::Failed) => {
                sets.iter().any(|set| called.iter().all(|tool| set.iter().any(|wanted| wanted == tool)))
            }
            (assertion, _) => assertion.is_about_tools(),
        };
        if may_change { unsettled(result, why) } else { result }
    }

    /// The counted assertions of one field, in order and lazily: nothing behind a failure is evaluated.
    fn steps(&'a self, assertion: &'a Assertion) -> Steps<'a> {
        let response = self.transcript.response.as_str();
        let called = self.called.as_slice();
        #[expect(clippy::cast_precision_loss, reason = "nobody makes that many calls or writes that much")]
        let count = |count: usize| count as f64;
        match assertion {
            Assertion::ToolsCalled(expected) => one(called == expected.as_slice(), || {
                format!("expected {}, but {} called{}", list(expected), were(called), difference(expected, called))
            }),
            Assertion::ToolsAcceptable(sets) => one(sets.iter().any(|set| is_acceptable(set, called)), || {
                let sets: Vec<String> = sets.iter().map(|set| list(set)).collect();
                let sets = if sets.is_empty() { "no sets".to_owned() } else { sets.join(" or ") };
                format!("expected one of {sets}, but {} called", were(called))
            }),
            Assertion::ToolsNotCalled(forbidden) => Box::new(forbidden.iter().map(move |tool| {
                let is_called = called.contains(&tool.as_str());
                let step = Step::of(!is_called, || format!("{tool:?} must not be called, but {} called", were(called)));
                self.telling(step, || near::of_calls(self.calls_of(tool)))
            })),
            Assertion::ToolParams(entries) => Box::new(entries.iter().map(|entry| {
                let step = params::check(entry, &self.transcript.tool_calls, &self.arguments, self.context.data);
                self.telling(step, || near::of_calls(self.calls_of(&entry.tool)))
            })),
            Assertion::NoToolErrors => self.no_tool_errors(),
            Assertion::ResponseNonEmpty { cop_outs } => Box::new(std::iter::once(non_empty(response, cop_outs))),
            Assertion::ResponseContains(values) => Box::new(values.iter().map(move |value| {
                self.with_text(value, |text| {
                    let step = Step::of(response.contains(text), || {
                        format!("expected '{}' in response but not found", clip(text, MAX_SHOWN))
                    });
                    self.telling(step, || near::of_text(&[text], response, RESPONSE))
                })
            })),
            Assertion::ResponseContainsAny(groups) => Box::new(groups.iter().map(|group| self.contains_any(group))),
            Assertion::ResponseNotContains(values) => Box::new(values.iter().map(move |value| {
                self.with_text(value, |text| {
                    let step = Step::of(!response.contains(text), || {
                        format!("found \"{}\" in response", clip(text, MAX_SHOWN))
                    });
                    self.telling(step, || near::where_found(text, response))
                })
            })),
            Assertion::ResponseMatches(patterns) => {
                Box::new(patterns.iter().map(|pattern| self.response_matches(pattern)))
            }
            Assertion::RegexPattern(pattern) => Box::new(std::iter::once(self.response_matches(pattern))),
            Assertion::MaxLatencyMs(_) | Assertion::MaxCost(_) if self.context.replayed => skip(REPLAYED),
            Assertion::MaxLatencyMs(limit) => {
                // Rounded to nanoseconds: 1000.1 ms as seconds in a double must not exceed 1000.1.
                let took = (self.transcript.duration.as_secs_f64() * 1e9).round() / 1e6;
                one(took <= *limit, || format!("took {took} ms, more than the {limit} ms allowed"))
            }
            Assertion::MaxTokens(limit) => {
                let measured = self.context.tokens.or_else(|| measured_tokens(self.transcript));
                let how = if measured.is_some() { "" } else { " (estimated)" };
                let tokens = measured.unwrap_or_else(|| estimate_tokens(response));
                let tokens = count(usize::try_from(tokens).unwrap_or(usize::MAX));
                one(tokens <= *limit, || format!("the response has {tokens} tokens{how}, more than {limit}"))
            }
            Assertion::MaxCost(limit) => {
                let noted = self.transcript.usage.and_then(|usage| usage.cost);
                match self.context.cost_usd.or(noted.map(Cost::usd)) {
                    None => skip(UNKNOWN_COST),
                    Some(cost) => one(cost <= *limit, || {
                        let how = if noted.is_some_and(|cost| cost.estimated) { " (estimated)" } else { "" };
                        format!("the case cost ${cost}{how}, more than ${limit}")
                    }),
                }
            }
            Assertion::MinToolCalls(limit) => {
                one(count(called.len()) >= *limit, || format!("{} tool calls, fewer than {limit}", called.len()))
            }
            Assertion::MaxToolCalls(limit) => {
                one(count(called.len()) <= *limit, || format!("{} tool calls, more than {limit}", called.len()))
            }
            Assertion::JsonValid => match Json::validate(response) {
                Ok(()) => one(true, String::new),
                Err(error) => {
                    let step = Step::of(false, || format!("the response is not JSON: {error}"));
                    Box::new(std::iter::once(self.telling(step, || near::beginning(response, RESPONSE))))
                }
            },
            Assertion::SchemaData { data, required, types } => Box::new(std::iter::once(schema(data, required, types))),
            Assertion::WithoutSubject { subject, .. } => skip(&format!("there is no {subject} for it to look at")),
            Assertion::MinLength(limit) => {
                let length = count(response.encode_utf16().count());
                one(length >= *limit, || format!("the response has {length} code units, fewer than {limit}"))
            }
            Assertion::MaxLength(limit) => {
                let length = count(response.encode_utf16().count());
                one(length <= *limit, || format!("the response has {length} code units, more than {limit}"))
            }
        }
    }

    fn telling(&self, step: Step, hint: impl FnOnce() -> String) -> Step {
        if !matches!(step, Step::Fails(_) | Step::FailsNear { .. }) {
            return step;
        }
        self.told.set(self.told.get() + 1);
        if self.told.get() > MAX_HINTS { step } else { step.or_tell(hint) }
    }

    fn calls_of(&self, tool: &str) -> impl Iterator<Item = &ToolCall> {
        self.transcript.tool_calls.iter().filter(move |call| call.name == tool)
    }

    fn response_matches(&self, pattern: &JsPattern) -> Step {
        let response = self.transcript.response.as_str();
        let matched = pattern.is_match(response);
        let step = Step::of_match(matched, || format!("/{}/ does not match the response", pattern.source()));
        self.telling(step, || near::beginning(response, RESPONSE))
    }

    fn with_text(&self, value: &Template, check: impl FnOnce(&str) -> Step) -> Step {
        match self.filled(value) {
            Ok(text) => check(&text),
            Err(unfilled) => Step::unfilled(unfilled, self.context.data),
        }
    }

    /// A text with its tokens replaced, as long as those of the case are not too much together.
    fn filled(&self, value: &Template) -> Result<String, Unfilled> {
        if self.expanded.get() > TEMPLATE_CASE_BYTES {
            return Err(Unfilled::TooLong);
        }
        let text = value.resolve(self.context.data)?;
        let replaced = if value.tokens().next().is_some() { text.len() } else { 0 };
        self.expanded.set(self.expanded.get() + replaced);
        Ok(text)
    }

    /// Values with unresolved tokens leave their group; an empty group is skipped.
    fn contains_any(&self, group: &[Template]) -> Step {
        let mut tokens = Vec::new();
        let mut texts = Vec::new();
        for value in group {
            match self.filled(value) {
                Ok(text) => texts.push(text),
                Err(Unfilled::Nowhere(unresolved)) => tokens.extend(unresolved),
                Err(unfilled @ Unfilled::TooLong) => return Step::unfilled(unfilled, self.context.data),
            }
        }
        if texts.is_empty() {
            let reason = if tokens.is_empty() { "the group is empty" } else { "no value of the group is left" };
            return Step::Skipped(reason.to_owned(), tokens);
        }
        let found = texts.iter().any(|text| self.transcript.response.contains(text.as_str()));
        let step = Step::of(found, || {
            let quoted: Vec<String> = texts.iter().map(|text| format!("'{}'", clip(text, MAX_SHOWN))).collect();
            format!("expected one of {} in response but found none", clip(&quoted.join(", "), MAX_SHOWN))
        });
        let step = self.telling(step, || {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            near::of_text(&texts, &self.transcript.response, RESPONSE)
        });
        if tokens.is_empty() { step } else { Step::WithoutTokens(Box::new(step), tokens) }
    }

    fn no_tool_errors(&self) -> Steps<'a> {
        let calls = &self.transcript.tool_calls;
        if let Mode::Stubbed { stubs, .. } = &self.case.mode {
            let unknown = calls.iter().find(|call| !stubs.iter().any(|(tool, _)| *tool == call.name));
            return one(unknown.is_none(), || {
                let name = unknown.map(|call| call.name.as_str()).unwrap_or_default();
                format!("{name:?} was called, which has no stub")
            });
        }
        match self.context.tool_mode {
            // Tools are never executed: there is nothing to look at, and nothing to count.
            ToolMode::RoutingOnly => Box::new(std::iter::empty()),
            ToolMode::Live | ToolMode::Stub => match calls.iter().find(|call| call.success() == Some(false)) {
                None => one(true, String::new),
                Some(call) => one(false, || match &call.outcome {
                    Some(ToolOutcome::Error(fault)) if !fault.message.is_empty() => {
                        format!("{:?} failed: {}", call.name, fault.message)
                    }
                    Some(_) => format!("{:?} failed", call.name),
                    None => format!("{:?} was started, and no result was reported", call.name),
                }),
            },
        }
    }
}

/// How the reason of what is not settled begins.
pub(super) const UNSETTLED: &str = "there may be more tool calls: ";

/// Whether an assertion could not be decided because there may be tool calls that nobody knows of.
pub(super) fn is_unsettled(result: &AssertionResult) -> bool {
    result.outcome == Outcome::Errored && result.reason.starts_with(UNSETTLED)
}

/// An assertion that cannot be decided for that reason.
pub(super) fn unsettled(result: AssertionResult, why: &str) -> AssertionResult {
    let reason = format!("{UNSETTLED}{why}");
    AssertionResult { outcome: Outcome::Errored, reason, blame: Some(Blame::Network), ..result }
}

/// Whether all of `called` stand in `expected`, in this order.
fn is_part_in_order(called: &[&str], expected: &[String]) -> bool {
    let mut expected = expected.iter();
    called.iter().all(|tool| expected.any(|wanted| wanted == tool))
}

fn one<'a>(holds: bool, reason: impl FnOnce() -> String) -> Steps<'a> {
    Box::new(std::iter::once(Step::of(holds, reason)))
}

fn skip<'a>(reason: &str) -> Steps<'a> {
    Box::new(std::iter::once(Step::Skipped(reason.to_owned(), Vec::new())))
}

fn non_empty(response: &str, cop_outs: &[String]) -> Step {
    if js_trim(response).is_empty() {
        return Step::Fails("the response is empty or white space".to_owned());
    }
    let lower = response.to_lowercase();
    match cop_outs.iter().find(|phrase| lower.contains(&phrase.to_lowercase())) {
        Some(phrase) => Step::Fails(format!("the response evades: it holds {phrase:?}")),
        None => Step::Holds,
    }
}

/// Looks at an object of the file itself; the response plays no part in it.
fn schema(data: &Json, required: &[String], types: &[(String, String)]) -> Step {
    if let Some(missing) = required.iter().find(|key| data.get(key).is_none()) {
        return Step::Fails(format!("the key {missing:?} is missing"));
    }
    let type_of = |key: &str| match data.get(key).map(|value| &value.value) {
        None => "undefined",
        Some(Value::String(_)) => "string",
        Some(Value::Number(_)) => "number",
        Some(Value::Bool(_)) => "boolean",
        Some(Value::Null | Value::Array(_) | Value::Object(_)) => "object",
    };
    match types.iter().find(|(key, wanted)| type_of(key) != wanted) {
        Some((key, wanted)) => Step::Fails(format!("{key:?} is of type {}, not {wanted}", type_of(key))),
        None => Step::Holds,
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
    const MOST: usize = 20;
    let shown: Vec<&str> = names.iter().take(MOST).map(AsRef::as_ref).collect();
    let more = names.len().saturating_sub(MOST);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!("[{}{more}]", shown.join(", "))
}

fn were(called: &[&str]) -> String {
    match called {
        [] => "no tool was".to_owned(),
        [_] => format!("{} was", list(called)),
        _ => format!("{} were", list(called)),
    }
}

/// What separates two lists of calls, as few calls as can be: those missing, those too many, or that only the order
/// differs. Nothing where the lists already say it all.
fn difference(expected: &[String], called: &[&str]) -> String {
    if expected.is_empty() || called.is_empty() {
        return String::new();
    }
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    let without = |from: &[&'_ str], what: &[&str]| -> Vec<String> {
        let mut rest = what.to_vec();
        let left = from.iter().filter(|name| match rest.iter().position(|other| other == *name) {
            Some(position) => {
                rest.swap_remove(position);
                false
            }
            None => true,
        });
        left.map(|name| (*name).to_owned()).collect()
    };
    let (missing, extra) = (without(&expected, called), without(called, &expected));
    match (missing.as_slice(), extra.as_slice()) {
        ([], []) => {
            let at = expected.iter().zip(called).position(|(wanted, name)| wanted != name).unwrap_or(0);
            format!(" (out of order from call {} on: {} in place of {})", at + 1, called[at], expected[at])
        }
        (missing, []) => format!(" (missing: {})", list(missing)),
        ([], extra) => format!(" (too many: {})", list(extra)),
        (missing, extra) => format!(" (missing: {}; too many: {})", list(missing), list(extra)),
    }
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn differences_are_as_small_as_can_be() {
        let of = |expected: &[&str], called: &[&str]| {
            let expected: Vec<String> = expected.iter().map(|name| (*name).to_owned()).collect();
            difference(&expected, called)
        };
        assert_eq!(of(&["a", "b"], &["b", "a"]), " (out of order from call 1 on: b in place of a)");
        assert_eq!(of(&["a", "b"], &["a", "a", "b"]), " (too many: [a])");
        assert_eq!(of(&["a", "a"], &["a"]), " (missing: [a])");
        assert_eq!(of(&["a", "b"], &["a", "c"]), " (missing: [b]; too many: [c])");
        assert_eq!(of(&["a"], &[]), "");
    }
}
