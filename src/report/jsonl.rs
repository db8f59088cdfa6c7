//! The lines of Agent Test Framework V2: one JSON object a case, in the order of the files.
//!
//! Keys beyond those of the framework: `suite`, `outcome`, `cause`, `blame`, `warning`, `warnings`, `messages` (what
//! the case sends), `tool_calls`, `commentary`; `repeat` of the second and later repetitions; `attempts`,
//! `earlier_attempts` and `flaky` of cases that were tried again; on an assertion `outcome`, `reason`, `hint` and
//! `tokens`; on a turn `reasoning`, what the simulator says of its input; where a validator was asked `score`,
//! `replies`, `votes` and `agreeing`, where a script was `score` and `console`. `status` is `failed` also where a case
//! could not be judged, and `skipped` where its run was cancelled.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use super::outline::{Outline, Position};
use super::shape::assertion::Assertion;
use super::shape::case::is_false;
use super::shape::said::{self, Asked, Said};
use super::{Report, Unwritable, Verdict, Written};
use crate::conversation::ToolCall;
use crate::text::printable_json;
use crate::verdict::{AssertionResult, Attempt, Blame, Cause, Outcome, whole_millis};

/// The lines.
#[derive(Debug, Clone, Copy)]
pub struct Lines;

impl Report for Lines {
    fn case(&mut self, _: &Outline, _: Position, verdict: Verdict<'_>) -> Written {
        line(verdict).map_err(Unwritable::of)
    }
}

/// One case as a line, with its line break.
///
/// # Errors
/// When it cannot be written as JSON, which texts and numbers always can.
pub fn line(verdict: Verdict<'_>) -> serde_json::Result<String> {
    serde_json::to_string(&Case::of(verdict)).map(|text| printable_json(&text) + "\n")
}

#[derive(Serialize)]
struct Case<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages_count: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    messages: Vec<Asked<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    commentary: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    assertions: Option<Vec<Assertion<'a>>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    assertion_errors: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    turns: Option<Vec<Said<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoints: Option<Vec<Checkpoint<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_turns: Option<u32>,
    duration_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<&'a str>,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blame: Option<&'static str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'a>>,
    suite: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    repeat: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    earlier_attempts: Vec<Earlier<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flaky: Option<bool>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    console: &'a [String],
    #[serde(skip_serializing_if = "is_false")]
    replayed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    span_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_url: Option<String>,
}

impl<'a> Case<'a> {
    fn of(verdict: Verdict<'a>) -> Self {
        let traced = verdict.traced();
        let result = verdict.result;
        let is_dialogue = !result.checkpoints.is_empty();
        let single = |value| (!is_dialogue).then_some(value);
        let bad = |assertion: &&AssertionResult| matches!(assertion.outcome, Outcome::Failed | Outcome::Errored);
        Self {
            id: &verdict.case.case_id,
            name: verdict.name,
            status: match result.outcome {
                Outcome::Passed => "passed",
                // It says nothing of the agent that somebody ended the run.
                _ if result.cause == Some(Cause::Cancelled) => "skipped",
                Outcome::Failed | Outcome::Errored => "failed",
                Outcome::Skipped => "skipped",
            },
            messages_count: single(result.messages_count),
            messages: result.messages.iter().map(Asked::of).collect(),
            response: (!is_dialogue).then_some(result.transcript.response.as_str()),
            // That of a dialogue stands with its turns.
            commentary: if is_dialogue { "" } else { &result.transcript.commentary },
            assertions: (!is_dialogue || !result.assertions.is_empty())
                .then(|| result.assertions.iter().map(Assertion::of).collect()),
            assertion_errors: result.assertions.iter().filter(bad).map(|bad| bad.reason.as_str()).collect(),
            turns: (is_dialogue || !result.turns.is_empty()).then(|| result.turns.iter().map(Said::of).collect()),
            checkpoints: is_dialogue.then(|| {
                let checkpoint = |checkpoint: &'a crate::verdict::CheckpointResult| Checkpoint {
                    id: &checkpoint.id,
                    reached_at_turn: checkpoint.reached_at_turn,
                    passed: checkpoint.reached_at_turn.is_some(),
                    assertions: checkpoint.assertions.iter().map(Assertion::of).collect(),
                };
                result.checkpoints.iter().map(checkpoint).collect()
            }),
            total_turns: (is_dialogue || !result.turns.is_empty()).then_some(result.total_turns),
            duration_ms: whole_millis(result.transcript.duration),
            // What an assertion says stands with the assertions.
            error: result.error.as_deref().filter(|_| result.failed_assertion.is_none()),
            hint: result.hint.as_deref().filter(|_| result.failed_assertion.is_none()),
            warning: result.warning.as_deref(),
            outcome: result.outcome.name(),
            cause: result.cause.map(Cause::name),
            blame: result.blame.map(Blame::name),
            warnings: &result.warnings,
            tool_calls: result.transcript.tool_calls.iter().map(Call::of).collect(),
            suite: &verdict.case.suite,
            repeat: Some(verdict.case.repeat).filter(|repeat| *repeat > 1),
            attempts: Some(verdict.case.attempt).filter(|attempt| *attempt > 1),
            earlier_attempts: result.earlier.iter().map(Earlier::of).collect(),
            flaky: result.is_flaky().then_some(true),
            console: &result.console,
            replayed: result.replayed,
            trace_id: traced.as_ref().map(|traced| traced.trace_id.clone()),
            span_id: traced.as_ref().map(|traced| traced.span_id.clone()),
            trace_url: traced.and_then(|traced| traced.url),
        }
    }
}

/// An attempt after which the case was tried again.
#[derive(Serialize)]
struct Earlier<'a> {
    outcome: &'static str,
    cause: Option<&'static str>,
    blame: Option<&'static str>,
    error: Option<&'a str>,
    duration_ms: u64,
}

impl<'a> Earlier<'a> {
    fn of(attempt: &'a Attempt) -> Self {
        Self {
            outcome: attempt.outcome.name(),
            cause: attempt.cause.map(Cause::name),
            blame: attempt.blame.map(Blame::name),
            error: attempt.error.as_deref(),
            duration_ms: whole_millis(attempt.duration),
        }
    }
}

/// A tool call.
#[derive(Serialize)]
struct Call<'a> {
    name: Cow<'a, str>,
    /// Not there: nobody ran it, as the mode wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    success: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    turn: Option<u32>,
    duration_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    malformed_params: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params_unknown: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Cow<'a, str>>,
}

impl<'a> Call<'a> {
    fn of(call: &'a ToolCall) -> Self {
        let said::Call { name, success, turn, duration_ms, params, malformed_params, params_unknown, result, error } =
            said::Call::of(call);
        Self { name, success, turn, duration_ms, params, malformed_params, params_unknown, result, error }
    }
}

#[derive(Serialize)]
struct Checkpoint<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reached_at_turn: Option<u32>,
    passed: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    assertions: Vec<Assertion<'a>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::CaseRef;
    use crate::conversation::{JsonText, Transcript};
    use crate::suite::Labels;
    use crate::verdict::{CaseResult, CheckpointResult};

    fn shown(id: &str, name: &str, result: &CaseResult) -> serde_json::Value {
        let case = CaseRef { suite: "e.jsonl".into(), case_id: id.into(), repeat: 1, attempt: 1 };
        let labels = Labels::default();
        let text = line(Verdict { case: &case, name, labels: &labels, result, tracing: None }).expect("JSON");
        assert!(text.ends_with("}\n") && text.matches('\n').count() == 1, "{text}");
        serde_json::from_str(&text).expect("JSON")
    }

    /// What the framework's document shows must stand in the line as it shows it.
    fn holds(line: &serde_json::Value, example: &str) {
        let example: serde_json::Value = serde_json::from_str(example).expect("JSON");
        for (key, value) in example.as_object().expect("an object") {
            match (value.as_array(), line[key].as_array()) {
                (Some(expected), Some(found)) => {
                    assert_eq!(expected.len(), found.len(), "{key}");
                    for (expected, found) in expected.iter().zip(found) {
                        for (inner, value) in expected.as_object().expect("an object") {
                            assert_eq!(&found[inner], value, "{key}.{inner}");
                        }
                    }
                }
                _ => assert_eq!(&line[key], value, "{key}"),
            }
        }
    }

    fn passed(millis: u64, response: &str) -> CaseResult {
        let transcript = Transcript {
            response: response.to_owned(),
            duration: std::time::Duration::from_millis(millis),
            ..Transcript::default()
        };
        let blame = Blame::Agent;
        let result = CaseResult::without_assertions(Outcome::Passed, Cause::Assertion, blame, "", transcript);
        CaseResult { cause: None, blame: None, error: None, ..result }
    }

    /// What somebody else wrote stays as it is: arguments, results, and an assertion as its file has it.
    #[test]
    fn keys_are_snake_case_throughout() {
        fn check(json: &serde_json::Value, place: &str) {
            match json {
                serde_json::Value::Object(members) => {
                    for (key, value) in members {
                        assert!(key.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{place}.{key}");
                        if !matches!(key.as_str(), "params" | "result") {
                            check(value, &format!("{place}.{key}"));
                        }
                    }
                }
                serde_json::Value::Array(items) => items.iter().for_each(|item| check(item, place)),
                _ => {}
            }
        }
        let (run, log) = crate::report::sample::of_everything();
        let text = crate::report::whole(crate::report::Format::Jsonl, run, &log, None).expect("lines");
        assert!(text.contains("duration_ms") && text.contains("malformed_params"), "{text}");
        for line in text.lines() {
            check(&serde_json::from_str(line).expect("JSON"), "line");
        }
    }

    #[test]
    fn the_lines_of_the_framework() {
        let assertion = AssertionResult {
            name: "contains".to_owned(),
            outcome: Outcome::Passed,
            reason: String::new(),
            hint: String::new(),
            unresolved_tokens: Vec::new(),
            blame: None,
            opinion: None,
            written: JsonText::new(r#"{"type": "contains", "value": "submitted"}"#).ok(),
        };
        let response = "Expense submitted. Reference: EXP-2025-001";
        let standard = CaseResult { assertions: vec![assertion], messages_count: 5, ..passed(1800, response) };
        holds(
            &shown("expense-turn3", "Final turn - confirm", &standard),
            r#"{"id": "expense-turn3", "name": "Final turn - confirm", "status": "passed", "messages_count": 5,
                "response": "Expense submitted. Reference: EXP-2025-001",
                "assertions": [{"type": "contains", "value": "submitted", "passed": true}], "duration_ms": 1800}"#,
        );
        let said =
            [("Help me file an expense", "What type?"), ("Client dinner, $250", "Confirm?"), ("Yes", "Submitted!")];
        let turns = (1..).zip(said).map(|(number, (input, output))| crate::verdict::Turn {
            number,
            input: input.into(),
            output: output.into(),
            ..crate::verdict::Turn::default()
        });
        let reached = [("ask_type", 1), ("call_create", 2), ("confirm", 3)];
        let checkpoints = reached.map(|(id, turn)| CheckpointResult {
            id: id.to_owned(),
            reached_at_turn: Some(turn),
            required: true,
            assertions: Vec::new(),
        });
        let dynamic = CaseResult {
            turns: turns.collect(),
            checkpoints: checkpoints.into(),
            total_turns: 3,
            ..passed(6800, "Submitted!")
        };
        holds(
            &shown("expense-dynamic", "Expense Coverage Test", &dynamic),
            r#"{"id": "expense-dynamic", "name": "Expense Coverage Test", "status": "passed", "turns": [
                  {"turn": 1, "input": "Help me file an expense", "output": "What type?"},
                  {"turn": 2, "input": "Client dinner, $250", "output": "Confirm?"},
                  {"turn": 3, "input": "Yes", "output": "Submitted!"}],
                "checkpoints": [{"id": "ask_type", "reached_at_turn": 1, "passed": true},
                  {"id": "call_create", "reached_at_turn": 2, "passed": true},
                  {"id": "confirm", "reached_at_turn": 3, "passed": true}], "total_turns": 3, "duration_ms": 6800}"#,
        );
    }
}
