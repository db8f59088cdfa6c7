//! Stubs: what the daemon answers in place of a tool.
//!
//! A plain value is the answer. An object whose keys begin with `$` says more: `{"$error": "…"}` fails,
//! `{"$delayMs": n, "$value": …}` answers later, and `{"$cases": [{"when": {…}, "then": …}], "$default": …}`
//! answers by argument. A misspelt `$` key is an error, because taken as a plain answer it would hide what its
//! author meant. Other `$` keys, such as `$schema` or `$ref`, are part of a plain answer: real tools answer with
//! them.

use std::time::Duration;

use super::error::{did_you_mean, meant_or_all, nearest};
use super::reader::Reader;
use crate::conversation::JsonText;
use crate::json::{Json, Value};

/// Longest delay of a stub.
const MAX_DELAY: Duration = Duration::from_hours(1);
const KEYS: &[&str] = &["$error", "$delayMs", "$value", "$cases", "$default"];
const CASE_KEYS: &[&str] = &["when", "then"];

/// What the daemon answers in place of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stub {
    /// This value.
    Value(JsonText),
    /// The tool fails with this message.
    Error(String),
    /// The same as `then`, but later.
    Delayed {
        /// By how much.
        delay: Duration,
        /// What is answered then.
        then: Box<Stub>,
    },
    /// The first whose arguments fit, else the default; without one the tool has no answer.
    ByArguments {
        /// Arguments that must be there and be equal, others may be extra; and the answer then.
        cases: Vec<(Json, Stub)>,
        /// What is answered when none fits.
        default: Option<Box<Stub>>,
    },
}

impl Stub {
    /// What it says, as text that does not depend on where or how it was written.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Value(value) => format!("value {}", value.parse().stringify()),
            Self::Error(message) => format!("error {message}"),
            Self::Delayed { delay, then } => format!("after {delay:?} {}", then.text()),
            Self::ByArguments { cases, default } => {
                let cases: Vec<String> =
                    cases.iter().map(|(when, then)| format!("when {} {}", when.stringify(), then.text())).collect();
                let default = default.as_ref().map(|default| default.text());
                format!("{cases:?} {default:?}")
            }
        }
    }
}

/// What a stub answers to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer<'a> {
    /// This value.
    Value(&'a JsonText),
    /// A failure.
    Error(&'a str),
    /// Nothing in the stub fits these arguments.
    Nothing,
}

/// Reads the stubs of one call: tool names and what they answer.
///
/// # Errors
/// What is wrong with one of them.
pub fn read_all(json: &Json) -> Result<Vec<(String, Stub)>, String> {
    if !matches!(json.value, Value::Object(_)) {
        return Err(format!("stubs: must map tool names to answers, not be {}", json.kind()));
    }
    let mut reader = Reader::new("");
    let stubs = json.members().iter();
    let stubs =
        stubs.filter_map(|(tool, stub)| Some((tool.clone(), read(&mut reader, &format!("stubs.{tool}"), stub)?)));
    let stubs = stubs.collect();
    match reader.errors.first() {
        Some(error) => Err(format!("{}: {}", error.field.as_deref().unwrap_or_default(), error.message)),
        None => Ok(stubs),
    }
}

impl Stub {
    /// What it answers to a call with these arguments, and after what delay.
    #[must_use]
    pub fn answer(&self, arguments: Option<&Json>) -> (Answer<'_>, Duration) {
        match self {
            Self::Value(value) => (Answer::Value(value), Duration::ZERO),
            Self::Error(message) => (Answer::Error(message), Duration::ZERO),
            Self::Delayed { delay, then } => {
                let (answer, more) = then.answer(arguments);
                (answer, *delay + more)
            }
            Self::ByArguments { cases, default } => {
                let fits = |when: &Json| {
                    let is_equal = |key: &str, value: &Json| arguments.and_then(|given| given.get(key)) == Some(value);
                    when.members().iter().all(|(key, value)| is_equal(key, value))
                };
                let fitting = cases.iter().find(|(when, _)| fits(when)).map(|(_, then)| then);
                match fitting.or(default.as_deref()) {
                    Some(stub) => stub.answer(arguments),
                    None => (Answer::Nothing, Duration::ZERO),
                }
            }
        }
    }
}

/// Reads one stub; `None` when it is wrong.
pub(super) fn read(reader: &mut Reader<'_>, field: &str, stub: &Json) -> Option<Stub> {
    let is_meant = |key: &str| key.starts_with('$') && nearest(key, KEYS).is_some();
    if !stub.members().iter().any(|(key, _)| is_meant(key)) {
        return Some(Stub::Value(JsonText::from(stub)));
    }
    let mut right = true;
    for (key, value) in stub.members() {
        if !KEYS.contains(&key.as_str()) {
            let message = format!("no key of a stub; a plain answer has none of {}", KEYS.join(", "));
            reader.error(value.line, format!("{field}.{key}"), message, meant_or_all(key, KEYS));
            right = false;
        }
    }
    if !right {
        return None;
    }
    let keys: Vec<&str> = stub.members().iter().map(|(key, _)| key.as_str()).collect();
    let value = |key: &str| stub.get(key);
    match (value("$error"), value("$delayMs"), value("$value"), value("$cases"), value("$default")) {
        (Some(error), None, None, None, None) => {
            if error.as_str().is_none() {
                reader.error(error.line, format!("{field}.$error"), "must be a text".to_owned(), None);
            }
            error.as_str().map(|message| Stub::Error(message.to_owned()))
        }
        (None, Some(delay), Some(then), None, None) => {
            let then = read(reader, &format!("{field}.$value"), then);
            let millis = delay.as_f64().filter(|millis| *millis >= 0.0 && *millis <= MAX_DELAY.as_secs_f64() * 1000.0);
            let Some(millis) = millis else {
                let message = "must be a number of milliseconds, at most an hour".to_owned();
                reader.error(delay.line, format!("{field}.$delayMs"), message, None);
                return None;
            };
            Some(Stub::Delayed { delay: Duration::from_secs_f64(millis / 1000.0), then: Box::new(then?) })
        }
        (None, None, None, Some(cases), default) => {
            let default = match default {
                None => Some(None),
                Some(default) => read(reader, &format!("{field}.$default"), default).map(|stub| Some(Box::new(stub))),
            };
            let cases = read_cases(reader, &format!("{field}.$cases"), cases);
            Some(Stub::ByArguments { cases: cases?, default: default? })
        }
        _ => {
            let message = format!("{} do not belong together", keys.join(", "));
            let hint = "a stub is {\"$error\"}, {\"$delayMs\", \"$value\"} or {\"$cases\", \"$default\"?}".to_owned();
            reader.error(stub.line, field, message, Some(hint));
            None
        }
    }
}

fn read_cases(reader: &mut Reader<'_>, field: &str, cases: &Json) -> Option<Vec<(Json, Stub)>> {
    let Some(items) = cases.as_array() else {
        reader.error(cases.line, field, format!("must be a list, not {}", cases.kind()), None);
        return None;
    };
    let mut read_cases = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let field = format!("{field}[{index}]");
        for (key, value) in item.members() {
            if !CASE_KEYS.contains(&key.as_str()) {
                let hint = did_you_mean(key, CASE_KEYS);
                reader.error(value.line, format!("{field}.{key}"), "there is no such key".to_owned(), hint);
            }
        }
        let when = item.get("when").filter(|when| matches!(when.value, Value::Object(_)));
        let (Some(when), Some(then)) = (when, item.get("then")) else {
            reader.error(item.line, &field, "needs `when`, an object of arguments, and `then`".to_owned(), None);
            continue;
        };
        read_cases.extend(read(reader, &format!("{field}.then"), then).map(|then| (when.clone(), then)));
    }
    (read_cases.len() == items.len()).then_some(read_cases)
}
