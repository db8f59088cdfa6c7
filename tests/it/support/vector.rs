//! One conformance vector: read, checked for keys that nobody knows, and compared with an answer.
//!
//! The rules are those of `tests/vectors/README.md`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// A vector as its file has it. What is given stays text, because there the spelling of numbers matters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Vector {
    pub(crate) id: String,
    pub(crate) area: String,
    pub(crate) given: BTreeMap<String, Box<RawValue>>,
    pub(crate) expect: Map<String, Value>,
    pub(crate) why: String,
}

/// What an engine answers.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The file is refused with this text.
    Refused(String),
    /// It is not; these are the fields, and the warnings that reading the file gave.
    Fields { fields: Map<String, Value>, load_warnings: Vec<String> },
}

/// What a kind of vectors may hold.
struct Shape {
    kind: &'static str,
    /// Keys of `given` besides `kind` that must be there.
    needs: &'static [&'static str],
    /// Keys of `given` that may be there.
    takes: &'static [&'static str],
    /// Keys of `expect` that are conditions or values without an inside.
    expects: &'static [&'static str],
    /// Keys of `expect` that hold an object or a list of objects, with the keys that these may have; none: any.
    expects_inside: &'static [(&'static str, &'static [&'static str])],
}

const LOADING: &[&str] = &["loadError", "errorContains", "errorLacks", "errorLine", "errorLineOneOf", "errorPrefix"];
const CONTRACT_RESULT: &[&str] =
    &["id", "passed", "durationMs", "assertionsRun", "assertionsSkipped", "error", "warning", "details"];

const SHAPES: &[Shape] = &[
    Shape {
        kind: "contract-case",
        needs: &["case"],
        takes: &[
            "response",
            "failure",
            "seed",
            "snapshot",
            "toolExecution",
            "estimatedTokens",
            "estimatedCostUsd",
            "tier",
            "strict",
        ],
        expects: &[
            "passed",
            "assertionsRun",
            "assertionsSkipped",
            "error",
            "warning",
            "agentCalled",
            "loadWarningsContain",
        ],
        expects_inside: &[("details", &["skippedTokens", "toolsCalled", "responseLength"])],
    },
    Shape {
        kind: "contract-file",
        needs: &["text"],
        takes: &[],
        expects: &["caseIds", "loadWarningsContain"],
        expects_inside: &[("metadata", &[])],
    },
    Shape { kind: "contract-file-hash", needs: &["text"], takes: &[], expects: &["evalFileHash"], expects_inside: &[] },
    Shape {
        kind: "contract-staleness",
        needs: &["toolName", "metadata", "registry"],
        takes: &[],
        expects: &["stale", "stalenessWarnings", "stalenessWarningCount", "stalenessWarningsContain"],
        expects_inside: &[("metadata", &["toolVersion", "descriptionHash", "registrySize"])],
    },
    Shape {
        kind: "contract-baseline",
        needs: &["baseline", "current"],
        takes: &[],
        expects: &["baselineRunId", "regressions", "newPasses"],
        expects_inside: &[],
    },
    Shape {
        kind: "contract-suite",
        needs: &["cases", "recorded"],
        takes: &["seed", "snapshot", "strict"],
        expects: &["consoleTotals"],
        expects_inside: &[
            ("summary", &["totalCases", "passed", "failed", "skippedAssertions", "totalDurationMs"]),
            ("cases", CONTRACT_RESULT),
        ],
    },
    Shape {
        kind: "framework-standard",
        needs: &["case"],
        takes: &["response", "failure", "defaults", "validators", "scripts", "strict"],
        expects: &[
            "status",
            "error",
            "warning",
            "assertion_errors",
            "assertion_errors_count",
            "messages_count",
            "id",
            "name",
            "response",
            "duration_ms",
            "agentCalled",
            "loadWarningsContain",
        ],
        expects_inside: &[
            ("assertions", &["type", "passed"]),
            ("sent", &["messages", "options"]),
            ("validatorCalls", &["agent", "metadata"]),
        ],
    },
    Shape {
        kind: "framework-dynamic",
        needs: &["case", "simulator", "agent"],
        takes: &["defaults", "validators"],
        expects: &[
            "status",
            "error",
            "total_turns",
            "agentCallCount",
            "agentCalled",
            "loadWarningsContain",
            "outcome",
            "cause",
            "blame",
            "warning",
            "duration_ms",
            "assertion_errors",
            "assertion_errors_count",
        ],
        expects_inside: &[
            ("assertions", &["type", "passed", "outcome", "reason"]),
            ("checkpoints", &["id", "passed", "reached_at_turn"]),
            ("turns", &["turn", "input", "output", "reasoning"]),
            ("agentCalls", &["messages", "options"]),
            ("simulatorCalls", &["agent", "turn_number", "max_turns", "persona", "goal", "conversation", "metadata"]),
            ("validatorCalls", &["agent", "metadata", "output", "conversation", "tools"]),
        ],
    },
    Shape {
        kind: "framework-suite",
        needs: &["cases", "recorded"],
        takes: &[],
        expects: &[],
        expects_inside: &[("summary", &["total", "passed", "failed", "skipped"]), ("statuses", &[])],
    },
    Shape {
        kind: "framework-jsonl",
        needs: &["text"],
        takes: &["defaults"],
        expects: &["caseIds", "loadWarningsContain"],
        expects_inside: &[],
    },
    Shape {
        kind: "framework-duration",
        needs: &["text"],
        takes: &[],
        expects: &["milliseconds", "invalid"],
        expects_inside: &[],
    },
    Shape {
        kind: "framework-input-source",
        needs: &["text"],
        takes: &[],
        expects: &["type", "value"],
        expects_inside: &[("params", &[])],
    },
];

const RESPONSE: &[&str] = &["response", "toolCalls", "durationMs"];
const RECORD: &[&str] = &["name", "success", "durationMs", "params", "result", "error"];
const FAILURE: &[&str] = &["kind", "message", "durationMs"];

impl Vector {
    /// The kind; empty when there is none.
    pub(crate) fn kind(&self) -> String {
        self.given::<String>("kind").ok().flatten().unwrap_or_default()
    }

    /// What stands under `key` of `given`.
    pub(crate) fn given<'a, T: Deserialize<'a>>(&'a self, key: &str) -> Result<Option<T>, String> {
        let Some(raw) = self.given.get(key) else { return Ok(None) };
        serde_json::from_str(raw.get()).map(Some).map_err(|error| format!("given.{key}: {error}"))
    }

    /// Everything that is wrong with the vector itself.
    pub(crate) fn problems(&self) -> Vec<String> {
        let kind = self.kind();
        let Some(shape) = SHAPES.iter().find(|shape| shape.kind == kind) else {
            return vec![format!("given.kind: unknown kind {kind:?}")];
        };
        let mut problems = Vec::new();
        let engine = kind.split('-').next().unwrap_or_default();
        if self.area.strip_prefix(engine).is_none_or(|rest| !rest.starts_with('/')) {
            problems.push(format!("area: {:?} does not begin with {engine}/, as its kind does", self.area));
        }
        for key in shape.needs.iter().filter(|key| !self.given.contains_key(**key)) {
            problems.push(format!("given.{key} is missing"));
        }
        for key in self.given.keys().filter(|key| *key != "kind") {
            if !shape.needs.contains(&key.as_str()) && !shape.takes.contains(&key.as_str()) {
                problems.push(format!("given.{key}: unknown key"));
            }
            match self.given::<Value>(key) {
                Ok(Some(value)) => check_given(key, &value, &mut problems),
                Ok(None) => {}
                Err(error) => problems.push(error),
            }
        }
        if self.expect.is_empty() {
            problems.push("expect is empty".to_owned());
        }
        for (key, value) in &self.expect {
            if let Some((_, inside)) = shape.expects_inside.iter().find(|(name, _)| name == key) {
                if !inside.is_empty() {
                    check_keys(&format!("expect.{key}"), value, inside, &mut problems);
                }
            } else if !LOADING.contains(&key.as_str()) && !shape.expects.contains(&key.as_str()) {
                problems.push(format!("expect.{key}: unknown key"));
            }
        }
        problems
    }

    /// What is not as expected.
    pub(crate) fn differences(&self, answer: &Answer) -> Vec<String> {
        let mut found = Vec::new();
        let expects_refusal = self.expect.get("loadError") == Some(&Value::Bool(true));
        let empty = (Map::new(), Vec::new());
        let (text, fields, warnings) = match answer {
            Answer::Refused(text) if !expects_refusal => return vec![format!("the file is refused: {text}")],
            Answer::Refused(text) => (Some(text.as_str()), &empty.0, &empty.1),
            Answer::Fields { .. } if expects_refusal => {
                let keys: Vec<String> = self.expect.iter().map(|(key, value)| format!("{key} {value}")).collect();
                return vec![format!("expected the file to be refused ({}), but it is accepted", keys.join(", "))];
            }
            Answer::Fields { fields, load_warnings } => (None, fields, load_warnings),
        };
        // The error text of the file, or of the case.
        let error = text.or_else(|| fields.get("error").and_then(Value::as_str));
        let shown = |error: Option<&str>| error.map_or("no error".to_owned(), |error| format!("{error:?}"));
        for (key, expected) in &self.expect {
            let one = expected.as_str().unwrap_or_default();
            let strings = || expected.as_array().into_iter().flatten().filter_map(Value::as_str);
            let difference = match key.as_str() {
                "loadError" => None,
                "error" if text.is_some() => {
                    (error != expected.as_str()).then(|| format!("expected {expected}, found {}", shown(error)))
                }
                "errorPrefix" => (!error.is_some_and(|error| error.starts_with(one)))
                    .then(|| format!("expected an error that starts with {one:?}, found {}", shown(error))),
                "errorContains" => strings()
                    .find(|part| !error.is_some_and(|error| error.contains(part)))
                    .map(|part| format!("expected an error with {part:?}, found {}", shown(error))),
                "errorLacks" => strings()
                    .find(|part| error.is_some_and(|error| error.contains(part)))
                    .map(|part| format!("expected an error without {part:?}, found {}", shown(error))),
                "errorLine" | "errorLineOneOf" => {
                    let lines = expected.as_array().map_or(std::slice::from_ref(expected), Vec::as_slice);
                    (!lines.iter().any(|line| error.is_some_and(|error| names_line(error, line))))
                        .then(|| format!("expected an error that names line {expected}, found {}", shown(error)))
                }
                "loadWarningsContain" => strings()
                    .find(|part| !warnings.iter().any(|warning| warning.contains(part)))
                    .map(|part| format!("expected a warning with {part:?}, found {warnings:?}")),
                "assertion_errors_count" => count_differs(expected, fields.get("assertion_errors")),
                "stalenessWarningCount" => count_differs(expected, fields.get("stalenessWarnings")),
                "stalenessWarningsContain" => strings()
                    .find(|part| {
                        let warnings = fields.get("stalenessWarnings").and_then(Value::as_array);
                        !warnings.into_iter().flatten().any(|w| w.as_str().is_some_and(|w| w.contains(part)))
                    })
                    .map(|part| format!("expected {part:?} in {}", or_null(fields.get("stalenessWarnings")))),
                "agentCallCount" => count_differs(expected, fields.get("agentCalls")),
                _ => {
                    let answer = or_null(fields.get(key));
                    (!holds(expected, &answer)).then(|| format!("expected {expected}, found {answer}"))
                }
            };
            found.extend(difference.map(|difference| format!("{key}: {difference}")));
        }
        found
    }
}

/// Whether an expectation holds for an answer: objects by the keys that are stated, lists element by element,
/// numbers as numbers; null is the same as absent.
pub(crate) fn holds(expected: &Value, answer: &Value) -> bool {
    match (expected, answer) {
        (Value::Object(expected), Value::Object(answer)) => {
            expected.iter().all(|(key, value)| holds(value, &or_null(answer.get(key))))
        }
        (Value::Array(expected), Value::Array(answer)) => {
            expected.len() == answer.len() && expected.iter().zip(answer).all(|(a, b)| holds(a, b))
        }
        (Value::Number(a), Value::Number(b)) => match (integer(a), integer(b)) {
            (Some(a), Some(b)) => a == b,
            _ => a.as_f64() == b.as_f64(),
        },
        _ => expected == answer,
    }
}

fn integer(number: &serde_json::Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn or_null(value: Option<&Value>) -> Value {
    value.cloned().unwrap_or(Value::Null)
}

fn count_differs(expected: &Value, list: Option<&Value>) -> Option<String> {
    let count = list.and_then(Value::as_array).map(Vec::len);
    let is_so = count.is_some_and(|count| expected.as_u64() == u64::try_from(count).ok());
    (!is_so).then(|| format!("expected {expected}, found {}", or_null(list)))
}

/// Whether the text holds `line N`, and not just the beginning of a longer number.
fn names_line(text: &str, line: &Value) -> bool {
    let name = format!("line {line}");
    text.match_indices(&name).any(|(at, _)| !text[at + name.len()..].starts_with(|c: char| c.is_ascii_digit()))
}

/// Complains about unknown keys inside of what is given.
fn check_given(key: &str, value: &Value, problems: &mut Vec<String>) {
    let place = format!("given.{key}");
    match key {
        "response" => check_response(&place, value, RESPONSE, problems),
        "failure" => check_failure(&place, value, problems),
        "recorded" => {
            for (id, recorded) in value.as_object().into_iter().flatten() {
                let place = format!("{place}.{id}");
                check_keys(&place, recorded, &["response", "failure"], problems);
                for (part, value) in recorded.as_object().into_iter().flatten() {
                    check_given_recorded(&format!("{place}.{part}"), part, value, problems);
                }
            }
        }
        "agent" => {
            let keys: Vec<&str> = RESPONSE.iter().copied().chain(["error", "hangs"]).collect();
            check_response(&place, value, &keys, problems);
        }
        // `reasoning` is in none of the lists of the README, but simulators send it.
        "simulator" => check_keys(
            &place,
            value,
            &["input", "goal_achieved", "reasoning", "error", "hangs", "durationMs"],
            problems,
        ),
        "validators" => {
            for (id, reply) in value.as_object().into_iter().flatten() {
                check_keys(&format!("{place}.{id}"), reply, &["passed", "reason", "error", "hangs"], problems);
            }
        }
        "scripts" => {
            for (id, reply) in value.as_object().into_iter().flatten() {
                check_keys(&format!("{place}.{id}"), reply, &["pass", "message", "error"], problems);
            }
        }
        "defaults" => check_keys(&place, value, &["timeout", "simulator"], problems),
        "registry" => {
            check_keys(&place, value, &["tools"], problems);
            let tools = or_null(value.get("tools"));
            check_keys(&format!("{place}.tools"), &tools, &["name", "version", "description"], problems);
        }
        "baseline" => {
            check_keys(&place, value, &["runId", "cases"], problems);
            check_keys(&format!("{place}.cases"), &or_null(value.get("cases")), &["id", "passed"], problems);
        }
        "current" => check_keys(&place, value, &["id", "passed"], problems),
        "toolExecution" if value != "real" && value != "routing-only" => {
            problems.push(format!("{place}: unknown value {value}"));
        }
        "tier" if value != "golden" && value != "labeled" => problems.push(format!("{place}: unknown value {value}")),
        _ => {}
    }
}

fn check_given_recorded(place: &str, part: &str, value: &Value, problems: &mut Vec<String>) {
    match part {
        "response" => check_response(place, value, RESPONSE, problems),
        _ => check_failure(place, value, problems),
    }
}

fn check_response(place: &str, value: &Value, keys: &[&str], problems: &mut Vec<String>) {
    check_keys(place, value, keys, problems);
    for response in value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice) {
        check_keys(&format!("{place}.toolCalls"), &or_null(response.get("toolCalls")), RECORD, problems);
    }
}

fn check_failure(place: &str, value: &Value, problems: &mut Vec<String>) {
    check_keys(place, value, FAILURE, problems);
    if !matches!(value.get("kind").and_then(Value::as_str), Some("timeout" | "error")) {
        problems.push(format!("{place}.kind: unknown value {}", or_null(value.get("kind"))));
    }
}

/// Complains about keys that are not known, in an object or in the objects of a list.
fn check_keys(place: &str, value: &Value, known: &[&str], problems: &mut Vec<String>) {
    for object in value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice) {
        for key in object.as_object().into_iter().flat_map(Map::keys) {
            if !known.contains(&key.as_str()) {
                problems.push(format!("{place}.{key}: unknown key"));
            }
        }
    }
}
