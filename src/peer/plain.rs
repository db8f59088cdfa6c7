//! What a plain agent means that was asked to judge, or to play the user: the JSON in its reply.
//!
//! A reply may hold several objects: a model repeats the form of answer that it was asked for, or thinks again.
//! Those that hold what is looked for have to say the same. To pick one of them would be a guess, and a guess at a
//! verdict is none: nobody knows which of two is the example.
//!
//! What stands beside these objects is not read as an answer. But where it says the contrary of a good verdict, as
//! broken JSON, in another block, deeper in an object or in words, the good one may be the example: a pass needs
//! more than that.

use crate::conversation::party::score_in_range;
use crate::json::blocks::objects_and_rest;
use crate::json::{Json, Value};

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
    let (objects, rest) = objects_and_rest(reply);
    let verdicts = objects.iter().filter_map(|object| verdict_of(object).transpose()).collect();
    let verdict = settle(reply, verdicts, "no verdict", "verdicts", |one: &Verdict, other| one.passed == other.passed)?;
    if verdict.passed {
        let beside = beside(&objects, &PASSED, &rest);
        if PASSED.iter().any(|key| says(&beside, key, false)) {
            return Err(quoted(reply, &disagree("verdicts")));
        }
    }
    Ok(verdict)
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
    let (objects, rest) = objects_and_rest(reply);
    let inputs = objects.iter().filter_map(|object| spoken_of(object).transpose()).collect();
    let nothing = "no object with `input` or `goal_achieved`";
    let spoken = settle(reply, inputs, nothing, "inputs", |one: &Spoken, other| {
        (&one.input, one.is_last) == (&other.input, other.is_last)
    })?;
    let is_denied = says(&beside(&objects, &["input", "goal_achieved"], &rest), "goal_achieved", !spoken.is_last);
    if is_denied { Err(quoted(reply, &disagree("inputs"))) } else { Ok(spoken) }
}

/// What of a reply was not read: the `rest`, and the objects that hold none of the `keys` themselves.
fn beside(objects: &[Json], keys: &[&str], rest: &str) -> String {
    let unread = objects.iter().filter(|object| keys.iter().all(|key| object.get(key).is_none()));
    unread.fold(rest.to_owned(), |text, object| text + "\n" + &object.stringify())
}

/// Whether a text gives a key the value `wanted`, in whatever form. A form to fill in, such as `true/false`, gives
/// it none.
fn says(text: &str, key: &str, wanted: bool) -> bool {
    let is_mark = |c: char| c.is_whitespace() || "\"'`*\\".contains(c);
    text.match_indices(key).any(|(at, _)| {
        let is_whole = text[..at].chars().next_back().is_none_or(|before| !before.is_alphanumeric() && before != '_');
        let behind = text[at + key.len()..].trim_start_matches(is_mark);
        let Some(value) = behind.strip_prefix([':', '=']).filter(|_| is_whole) else { return false };
        let value = value.trim_start_matches(is_mark);
        let end = value.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(value.len());
        let is_form = value[end..].trim_start_matches(is_mark).starts_with(['/', '|']);
        value[..end].eq_ignore_ascii_case(if wanted { "true" } else { "false" }) && !is_form
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
    let mut found = found.into_iter().collect::<Result<Vec<T>, String>>().map_err(|why| quoted(reply, &why))?;
    if found.windows(2).any(|pair| !agree(&pair[0], &pair[1])) {
        return Err(quoted(reply, &disagree(what)));
    }
    found.pop().ok_or_else(|| quoted(reply, &format!("its answer holds {nothing}")))
}

/// Why a reply means nothing, with its beginning.
fn quoted(reply: &str, why: &str) -> String {
    let beginning: String = reply.chars().take(MAX_QUOTED).collect();
    let rest = if beginning.len() < reply.len() { "…" } else { "" };
    format!("{why}: {beginning:?}{rest}")
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

    /// A good verdict that the rest of the reply denies may be the example.
    #[test]
    fn what_stands_beside_a_verdict_may_deny_it() {
        let good = "Like this:\n```json\n{\"passed\": true}\n```\nMine:\n";
        for rest in [
            r#"{"passed": false, "reason": "it is rude"}"#,
            "```json\n{\"passed\": false, \"reason\": \"says \"no\" to me\"}\n```",
            "```json5\n{passed: false}\n```",
            "```python\n{'passed': False}\n```",
            "```json\n[{\"passed\": false}]\n```",
            "```json\n{\"verdict\": {\"passed\": false}}\n```",
            "```json\n{\"text\": \"{\\\"pass\\\": false}\"}\n```",
            "**passed**: false",
            "passed = FALSE",
        ] {
            let why = verdict_in(&format!("{good}{rest}")).expect_err(rest);
            assert!(why.starts_with("its answer holds verdicts that disagree: "), "{why}");
        }
        for rest in [
            "It is not false that it passed.",
            r#"{"passed": true}"#,
            r#"{"passed": false/true}"#,
            r#"{"passed": "false" | "true"}"#,
            r#"{"bypassed": false, "passed_by": false}"#,
            "passed: falsehoods were none",
        ] {
            assert_eq!(verdict_in(&format!("{good}{rest}")).map(|verdict| verdict.passed), Ok(true), "{rest}");
        }
        // What is deeper in an object that holds a verdict itself is about parts of the answer.
        let parts = r#"{"passed": true, "criteria": [{"name": "polite", "passed": false}]}"#;
        assert_eq!(verdict_in(parts).map(|verdict| verdict.passed), Ok(true));
        // A bad verdict needs no more than one.
        let bad = "{\"passed\": true} is the form.\n```json\n{\"passed\": false}\n```";
        assert_eq!(verdict_in(bad).map(|verdict| verdict.passed), Ok(false));
    }

    #[test]
    fn what_stands_beside_an_input_may_deny_it() {
        let spoken = "```json\n{\"input\": \"on\"}\n```\n";
        assert!(input_in(&format!("{spoken}{{\"goal_achieved\": true}}")).is_err());
        assert!(input_in(&format!("{spoken}{{\"goal_achieved\": true/false}}")).is_ok());
        assert!(input_in(&format!("{spoken}goal_achieved: false")).is_ok());
    }

    #[test]
    fn what_is_quoted_is_cut() {
        let long = format!("{}\u{1f600}", "x".repeat(MAX_QUOTED));
        let expected = format!("its answer holds no verdict: {:?}…", "x".repeat(MAX_QUOTED));
        assert_eq!(verdict_in(&long), Err(expected));
        assert_eq!(verdict_in("a\nb"), Err("its answer holds no verdict: \"a\\nb\"".to_owned()));
    }
}
