//! What a plain agent means that was asked to judge, or to play the user: the JSON in its reply.
//!
//! A reply may hold several objects: a model repeats the form of answer that it was asked for, or thinks again. Those that hold what is
//! looked for have to say the same. To pick one of them would be a guess, and a guess at a verdict is none: nobody knows which of two
//! is the example.

use crate::json::blocks::objects_in;
use crate::json::{Json, Value};
use crate::wire::party::score_in_range;

/// Longest quotation of a reply, in characters.
const MAX_QUOTED: usize = 200;
/// The names of what a verdict says; the second ones are those of scripts.
const PASSED: [&str; 2] = ["passed", "pass"];
const REASON: [&str; 2] = ["reason", "message"];

/// What somebody says who judges.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Whether the answer meets the criteria.
    pub passed: bool,
    /// Why, for people; may be empty.
    pub reason: String,
    /// How well, from 0 to 1.
    pub score: Option<f64>,
}

/// What somebody says who plays the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spoken {
    /// The user's next message; `None`: there is none.
    pub(super) input: Option<String>,
    /// Whether the user has got what they wanted.
    pub(super) is_last: bool,
    /// Why, for people; may be empty.
    pub(super) reasoning: String,
}

/// The verdict in a reply. If several objects of it hold one, they agree; the last of them gives the reason.
///
/// # Errors
/// Why there is none, with the beginning of the reply.
pub(super) fn verdict_in(reply: &str) -> Result<Verdict, String> {
    let verdicts = objects_in(reply).iter().filter_map(|object| verdict_of(object).transpose()).collect();
    settle(reply, verdicts, "no verdict", "verdicts", |one: &Verdict, other| one.passed == other.passed)
}

/// The verdict that an object holds; `None`: it holds none.
///
/// # Errors
/// When it says something else than true or false, or both.
pub fn verdict_of(object: &Json) -> Result<Option<Verdict>, String> {
    let mut passed = None;
    for (key, value) in PASSED.into_iter().filter_map(|key| Some((key, object.get(key)?))) {
        let says = boolean(key, value)?;
        if passed.is_some_and(|passed| passed != says) {
            return Err(disagree("verdicts"));
        }
        passed = Some(says);
    }
    let reason = REASON.into_iter().find_map(|key| object.get(key).and_then(Json::as_str)).unwrap_or_default();
    let score = object.get("score").and_then(Json::as_f64).and_then(score_in_range);
    Ok(passed.map(|passed| Verdict { passed, reason: reason.to_owned(), score }))
}

/// What the user says next, by a reply.
///
/// # Errors
/// Why that is not known, with the beginning of the reply.
pub(super) fn input_in(reply: &str) -> Result<Spoken, String> {
    let inputs = objects_in(reply).iter().filter_map(|object| spoken_of(object).transpose()).collect();
    settle(reply, inputs, "no object with `input` or `goal_achieved`", "inputs", |one: &Spoken, other| {
        (&one.input, one.is_last) == (&other.input, other.is_last)
    })
}

fn spoken_of(object: &Json) -> Result<Option<Spoken>, String> {
    let (input, goal_achieved) = (object.get("input"), object.get("goal_achieved"));
    if input.is_none() && goal_achieved.is_none() {
        return Ok(None);
    }
    let input = match input.map(|input| (input, &input.value)) {
        // Who has got what they wanted need not say anything.
        None | Some((_, Value::Null)) => None,
        Some((_, Value::String(text))) => Some(text.clone()).filter(|text| !text.is_empty()),
        Some((other, _)) => return Err(format!("its `input` must be a text, not {}", other.kind())),
    };
    let is_last = goal_achieved.map_or(Ok(false), |value| boolean("goal_achieved", value))?;
    let reasoning = object.get("reasoning").and_then(Json::as_str).unwrap_or_default().to_owned();
    Ok(Some(Spoken { input, is_last, reasoning }))
}

/// A switch as it is meant: a text that says false, or a number, is none.
fn boolean(key: &str, value: &Json) -> Result<bool, String> {
    match value.value {
        Value::Bool(value) => Ok(value),
        _ => Err(format!("its `{key}` must be true or false, not {}", value.kind())),
    }
}

/// What the objects of a reply mean, if they mean the same: the last one of them.
fn settle<T>(
    reply: &str,
    found: Vec<Result<T, String>>,
    nothing: &str,
    what: &str,
    agree: impl Fn(&T, &T) -> bool,
) -> Result<T, String> {
    let quoted = |why: String| {
        let beginning: String = reply.chars().take(MAX_QUOTED).collect();
        let rest = if beginning.len() < reply.len() { "…" } else { "" };
        format!("{why}: {beginning:?}{rest}")
    };
    let mut found = found.into_iter().collect::<Result<Vec<T>, String>>().map_err(quoted)?;
    if found.windows(2).any(|pair| !agree(&pair[0], &pair[1])) {
        return Err(quoted(disagree(what)));
    }
    found.pop().ok_or_else(|| quoted(format!("its answer holds {nothing}")))
}

fn disagree(what: &str) -> String {
    format!("its answer holds {what} that disagree")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_verdict_says() {
        let verdict = verdict_in(
            "```json\n{\"passed\": true, \"reason\": \"a\"}\n```\n```json\n{\"pass\": true, \"message\": \"b\", \"score\": 0.5}\n```",
        );
        assert_eq!(verdict, Ok(Verdict { passed: true, reason: "b".to_owned(), score: Some(0.5) }));
        let verdict = verdict_in(r#"{"passed": false, "score": 7}"#);
        assert_eq!(verdict, Ok(Verdict { passed: false, reason: String::new(), score: None }));
    }

    #[test]
    fn what_is_quoted_is_cut() {
        let long = format!("{}\u{1f600}", "x".repeat(MAX_QUOTED));
        let expected = format!("its answer holds no verdict: {:?}…", "x".repeat(MAX_QUOTED));
        assert_eq!(verdict_in(&long), Err(expected));
        assert_eq!(verdict_in("a\nb"), Err("its answer holds no verdict: \"a\\nb\"".to_owned()));
    }
}
