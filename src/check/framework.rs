//! The assertions of Agent Test Framework V2: all are evaluated, each has its own verdict.
//!
//! What somebody else decides, a validator or a script, is asked by the engine; here are the questions, and what
//! comes of the answers. Nothing waits here.

use std::borrow::Cow;
use std::collections::HashMap;

mod hint;

use super::contract::{UNSETTLED, unsettled};
use super::params::{self, ReadArguments};
use super::step::no_time;
use super::{MAX_HINTS, snapshot};
use crate::conversation::{MaybeJson, ToolCall, ToolOutcome, Transcript};
use crate::json::blocks::json_in;
use crate::json::{Json, Value};
use crate::limits::{JUDGED_BYTES, VALUES};
use crate::suite::claim::{Claim, ClaimKind, Compare, JsonType, PATTERN_PREFIX, Scope, Stored};
use crate::suite::path::JsonPath;
use crate::suite::re2::Re2Pattern;
use crate::suite::times::Times;
use crate::text::clip;
use crate::verdict::{AssertionResult, Blame, Opinion, Outcome, Turn};
use crate::work::is_over;

/// Most characters of a text in a reason.
const MAX_SHOWN: usize = 200;

/// What somebody else has to decide.
#[derive(Debug, Clone, Copy)]
pub enum Question<'a> {
    /// A validator.
    Validator {
        /// Its id.
        agent: &'a str,
        /// The options of the assertion, as written.
        options: Option<&'a Json>,
    },
    /// A script.
    Script {
        /// Its name.
        script: &'a str,
        /// The options of the assertion, as written.
        options: Option<&'a Json>,
    },
}

/// What came of a question.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// It was decided.
    Judged {
        /// Whether the claim holds.
        passed: bool,
        /// Why, for people; may be empty.
        reason: String,
        /// What else was said, where a validator was asked.
        opinion: Option<Opinion>,
    },
    /// Nobody decided.
    Failed {
        /// Why.
        why: String,
        /// What was said all the same.
        opinion: Option<Opinion>,
        /// Whose fault that is, if not that of who was asked.
        blame: Option<Blame>,
    },
}

impl Reply {
    /// Nobody decided, and nothing else was said.
    #[must_use]
    pub fn failed(why: impl Into<String>) -> Self {
        Self::Failed { why: why.into(), opinion: None, blame: None }
    }
}

/// What came of the questions, by the position of the claim.
pub type Replies = HashMap<usize, Reply>;

/// The questions of some claims, with their positions.
pub fn questions(claims: &[Claim]) -> impl Iterator<Item = (usize, Question<'_>)> {
    claims.iter().enumerate().filter_map(|(position, claim)| {
        let question = match &claim.kind {
            ClaimKind::Agent { agent, options } => Question::Validator { agent, options: options.as_ref() },
            ClaimKind::Script { script, options } => Question::Script { script, options: options.as_ref() },
            _ => return None,
        };
        Some((position, question))
    })
}

/// Evaluates claims against one answer of the agent and the tool calls on the way to it.
#[must_use]
pub fn evaluate(claims: &[Claim], transcript: &Transcript, replies: &Replies) -> Vec<AssertionResult> {
    let open_end = transcript.open_end.as_deref();
    let arguments = ReadArguments::default();
    let answer = Answer::new(&transcript.response, &transcript.tool_calls, &arguments, open_end);
    let judge = |(position, claim): (usize, &Claim)| {
        in_time(claim, || settled(claim, open_end, answer.judge(claim, replies.get(&position))))
    };
    claims.iter().enumerate().map(judge).collect()
}

/// What comes of a claim, if there is time to come to its end.
fn in_time(claim: &Claim, judge: impl FnOnce() -> AssertionResult) -> AssertionResult {
    let judged = if is_over() { None } else { Some(judge()) };
    judged.filter(|_| !is_over()).unwrap_or_else(|| result_of(claim, Outcome::Errored, no_time(), Some(Blame::Suite)))
}

/// Evaluates the claims of a case with checkpoints over a whole dialogue. At least one turn was answered.
///
/// Tools are looked for among the calls of all turns, text in the last answer; what must not be said must not be
/// said in any of them. Who is asked is asked about the whole, with the last answer as the one to judge.
/// `transcript` holds the calls of all turns; `cut_short`: the agent did not come to say its last answer, so
/// nothing is said of that.
#[must_use]
pub fn evaluate_dialogue(
    claims: &[Claim],
    transcript: &Transcript,
    turns: &[Turn],
    replies: &Replies,
    cut_short: bool,
) -> Vec<AssertionResult> {
    let open_end = transcript.open_end.as_deref().or(cut_short.then_some("the dialogue was cut short"));
    let arguments = ReadArguments::default();
    let answer = |turn| Answer::new(turn, &transcript.tool_calls, &arguments, open_end);
    let answers: Vec<Answer<'_>> = turns.iter().map(|turn| answer(&turn.output)).collect();
    let Some(last) = answers.last() else { return Vec::new() };
    let claims = claims.iter().enumerate();
    let judge = |(position, claim): (usize, &Claim)| match claim.scope() {
        Scope::EveryAnswer => every(claim, &answers),
        Scope::LastAnswer if cut_short => skipped(claim, "the dialogue was cut short, so there is no last answer"),
        Scope::LastAnswer => last.judge(claim, replies.get(&position)),
        Scope::Tools => settled(claim, open_end, last.judge(claim, None)),
        Scope::Others if cut_short => skipped(claim, "the dialogue was cut short, so nobody was asked"),
        Scope::Others => settled(claim, open_end, last.judge(claim, replies.get(&position))),
    };
    claims.map(|(position, claim)| in_time(claim, || judge((position, claim)))).collect()
}

/// What comes of a claim that has to hold of every answer: the first that breaks it is told, else the first that
/// cannot be looked at.
fn every(claim: &Claim, answers: &[Answer<'_>]) -> AssertionResult {
    let mut worst: Option<AssertionResult> = None;
    for (turn, answer) in (1..).zip(answers) {
        let result = answer.judge(claim, None);
        let is_worse = match (&worst, result.outcome) {
            (None, _) | (Some(_), Outcome::Failed) => true,
            (Some(worst), outcome) => worst.outcome == Outcome::Passed && outcome != Outcome::Passed,
        };
        if is_worse {
            let reason =
                if result.reason.is_empty() { String::new() } else { format!("{} (turn {turn})", result.reason) };
            worst = Some(AssertionResult { reason, ..result });
        }
        if worst.as_ref().is_some_and(|worst| worst.outcome == Outcome::Failed) {
            break;
        }
    }
    worst.unwrap_or_else(|| skipped(claim, "nothing was answered"))
}

fn skipped(claim: &Claim, why: &str) -> AssertionResult {
    result_of(claim, Outcome::Skipped, why.to_owned(), None)
}

fn result_of(claim: &Claim, outcome: Outcome, reason: String, blame: Option<Blame>) -> AssertionResult {
    AssertionResult {
        name: claim.name().to_owned(),
        outcome,
        reason,
        hint: String::new(),
        unresolved_tokens: Vec::new(),
        blame,
        written: Some(claim.written.clone()),
        opinion: None,
    }
}

/// What came of a claim, if more tool calls than are known could not change it.
fn settled(claim: &Claim, open_end: Option<&str>, result: AssertionResult) -> AssertionResult {
    let Some(why) = open_end else { return result };
    let may_change = match (&claim.kind, result.outcome) {
        (_, Outcome::Skipped | Outcome::Errored) => false,
        // Validators and scripts are given the tool calls.
        (ClaimKind::ToolResult { .. } | ClaimKind::Agent { .. } | ClaimKind::Script { .. }, _) => true,
        _ => false,
    };
    if may_change { unsettled(result, why) } else { result }
}

/// Whether a claim holds, and why not; of tool calls of a dialogue, in which turns it does.
struct Verdict {
    holds: bool,
    reason: String,
}

/// Why a claim could not be evaluated, and whose fault that is.
struct Unevaluated {
    why: String,
    blame: Blame,
}

impl Verdict {
    fn of(holds: bool, reason: impl FnOnce() -> String) -> Self {
        Self { holds, reason: if holds { String::new() } else { reason() } }
    }
}

/// What is judged: an answer, and the tool calls that belong to it.
struct Answer<'a> {
    text: &'a str,
    calls: &'a [ToolCall],
    /// Their arguments.
    arguments: &'a ReadArguments,
    /// Why there may be more calls than these, if there may be.
    open_end: Option<&'a str>,
    /// The JSON in the answer, looked for once.
    json: std::cell::OnceCell<Option<Json>>,
    /// How many failed claims were told more of: that takes time, and people read a few.
    told: std::cell::Cell<usize>,
}

impl<'a> Answer<'a> {
    fn new(text: &'a str, calls: &'a [ToolCall], arguments: &'a ReadArguments, open_end: Option<&'a str>) -> Self {
        Self { text, calls, arguments, open_end, json: std::cell::OnceCell::new(), told: std::cell::Cell::new(0) }
    }

    fn tells_more(&self) -> bool {
        self.told.set(self.told.get() + 1);
        self.told.get() <= MAX_HINTS
    }
}

/// Whether a claim is about the JSON in an answer.
fn reads_json(kind: &ClaimKind) -> bool {
    match kind {
        ClaimKind::Equals(wanted) => !matches!(wanted.value, Value::String(_)),
        ClaimKind::JsonPath { .. } | ClaimKind::Type { .. } => true,
        ClaimKind::Snapshot { compare, .. } => matches!(compare, Compare::Json { .. }),
        _ => false,
    }
}

/// Whether a text may be JSON that is too much to be read, which must not be taken for none: every value but the first
/// stands behind one of these signs, perhaps with a key between them.
fn may_hold_too_much(text: &str) -> bool {
    text.len() > VALUES && text.bytes().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count() >= VALUES
}

impl Answer<'_> {
    fn json(&self) -> Option<&Json> {
        self.json.get_or_init(|| json_in(self.text)).as_ref()
    }

    /// What comes of a claim.
    fn judge(&self, claim: &Claim, reply: Option<&Reply>) -> AssertionResult {
        let mut turns = String::new();
        let too_much = reads_json(&claim.kind) && may_hold_too_much(self.text);
        let (outcome, reason, blame) = match self.verdict(claim, reply) {
            _ if too_much => {
                let why = format!("the response may hold more than {VALUES} values of JSON, which are not read");
                (Outcome::Errored, why, Some(Blame::Daemon))
            }
            _ if matches!(claim.kind, ClaimKind::Snapshot { stored: Stored::Renewed, .. }) => match &claim.kind {
                // Stored, it could never be compared.
                ClaimKind::Snapshot { compare: Compare::Json { .. }, .. } if self.json().is_none() => {
                    (Outcome::Failed, "there is no JSON in the response".to_owned(), Some(Blame::Agent))
                }
                _ => (Outcome::Skipped, snapshot::RENEWED.to_owned(), None),
            },
            Err(Unevaluated { why, blame }) => (Outcome::Errored, why, Some(blame)),
            Ok(Verdict { holds, .. }) if holds != claim.negate => (Outcome::Passed, String::new(), None),
            Ok(Verdict { reason, .. }) if !claim.negate => (Outcome::Failed, reason, Some(Blame::Agent)),
            Ok(Verdict { reason: where_it_holds, .. }) => {
                turns = where_it_holds;
                let reason = format!("it holds, and must not: {}", clip(claim.written.as_str(), MAX_SHOWN));
                (Outcome::Failed, reason, Some(Blame::Agent))
            }
        };
        let has_failed = outcome == Outcome::Failed;
        let hint = if has_failed && self.tells_more() { self.hint(claim, &reason) } else { String::new() };
        let reason = match &claim.message {
            Some(message) if has_failed => message.clone(),
            _ => reason,
        };
        let reason = if turns.is_empty() { reason } else { format!("{reason} ({turns})") };
        let opinion = match reply {
            Some(Reply::Judged { opinion, .. } | Reply::Failed { opinion, .. }) => opinion.clone(),
            None => None,
        };
        AssertionResult { hint, opinion, ..result_of(claim, outcome, reason, blame) }
    }

    fn verdict(&self, claim: &Claim, reply: Option<&Reply>) -> Result<Verdict, Unevaluated> {
        let text = self.text;
        Ok(match &claim.kind {
            ClaimKind::Contains(value) => {
                let wanted = text_of(value);
                Verdict::of(text.contains(&*wanted), || {
                    format!("expected {:?} in the response, but it is not there", clip(&wanted, MAX_SHOWN))
                })
            }
            ClaimKind::NotContains(value) => {
                let unwanted = text_of(value);
                Verdict::of(!text.contains(&*unwanted), || {
                    format!("found {:?} in the response", clip(&unwanted, MAX_SHOWN))
                })
            }
            ClaimKind::Equals(Json { value: Value::String(wanted), .. }) => Verdict::of(text == wanted, || {
                format!("expected {:?}, but the response is {:?}", clip(wanted, MAX_SHOWN), clip(text, MAX_SHOWN))
            }),
            ClaimKind::Equals(wanted) => {
                let whole = Json::parse(text).ok();
                Verdict::of(whole.as_ref() == Some(wanted), || match &whole {
                    None => format!("expected {}, but the response is not JSON", clip(&wanted.stringify(), MAX_SHOWN)),
                    Some(_) => format!(
                        "expected {}, but the response is {}",
                        clip(&wanted.stringify(), MAX_SHOWN),
                        clip(text, MAX_SHOWN)
                    ),
                })
            }
            ClaimKind::Regex(pattern) => {
                let found = pattern.is_match(text);
                let found = found.map_err(|why| Unevaluated { why: why.to_string(), blame: Blame::Suite })?;
                Verdict::of(found, || format!("/{}/ does not match the response", clip(pattern.source(), MAX_SHOWN)))
            }
            ClaimKind::JsonPath { path, value } => self.json_path(path, value.as_ref(), claim),
            ClaimKind::Type { path, name } => self.type_of(path.as_ref(), *name, claim),
            ClaimKind::ToolCalled { tools, arguments, times } => self.tool_called(tools, arguments.as_ref(), *times)?,
            ClaimKind::ToolResult { tool, result } => self.tool_result(tool, result.as_ref())?,
            ClaimKind::Agent { agent, .. } => decided(reply, &format!("the validator {agent:?}"), Blame::Validator)?,
            ClaimKind::Script { script, .. } => decided(reply, &format!("the script {script:?}"), Blame::Script)?,
            ClaimKind::Snapshot { stored: Stored::Missing | Stored::Renewed, .. } => {
                let why = "no answer is stored for this case; store one with --update-snapshots".to_owned();
                return Err(Unevaluated { why, blame: Blame::Suite });
            }
            ClaimKind::Snapshot { compare, stored: Stored::Answer(stored) } => {
                let differs = snapshot::compare(stored, text, compare);
                let differs = differs.map_err(|why| Unevaluated { why, blame: Blame::Suite })?;
                Verdict { holds: differs.is_none(), reason: differs.unwrap_or_default() }
            }
            ClaimKind::Broken { why, .. } => return Err(Unevaluated { why: why.clone(), blame: Blame::Suite }),
        })
    }

    fn json_path(&self, path: &JsonPath, value: Option<&Json>, claim: &Claim) -> Verdict {
        let Some(json) = self.json() else {
            return Verdict::of(false, || "there is no JSON in the response".to_owned());
        };
        let found = path.get(json);
        let Some(wanted) = value else {
            return Verdict::of(found.is_some(), || {
                format!("there is nothing at the path of {}", clip(claim.written.as_str(), MAX_SHOWN))
            });
        };
        let null = Json { line: 0, value: Value::Null };
        // What is missing compares as null.
        let actual = found.unwrap_or(&null);
        let is_one_of = match (&wanted.value, &actual.value) {
            (Value::Array(list), value) if !matches!(value, Value::Array(_)) => list.contains(actual),
            _ => actual == wanted,
        };
        Verdict::of(is_one_of, || {
            let shown = found.map_or_else(|| "nothing".to_owned(), |found| clip(&found.stringify(), MAX_SHOWN));
            format!("expected {} at the path, but there is {shown}", clip(&wanted.stringify(), MAX_SHOWN))
        })
    }

    fn type_of(&self, path: Option<&JsonPath>, wanted: JsonType, claim: &Claim) -> Verdict {
        // Every answer is a text.
        if path.is_none() && wanted == JsonType::String {
            return Verdict::of(true, String::new);
        }
        let Some(json) = self.json() else {
            return Verdict::of(false, || "there is no JSON in the response".to_owned());
        };
        let found = path.map_or(Some(json), |path| path.get(json));
        Verdict::of(found.is_some_and(|found| JsonType::of(found) == wanted), || match found {
            None => format!("there is nothing at the path of {}", clip(claim.written.as_str(), MAX_SHOWN)),
            Some(found) => format!("expected the type {}, but it is {}", wanted.name(), JsonType::of(found).name()),
        })
    }

    /// Counts the calls that fit. What nobody knows, the arguments of some or whether there are more, leaves open
    /// what it could change, and nothing else.
    fn tool_called(&self, tools: &[String], arguments: Option<&Json>, times: Times) -> Result<Verdict, Unevaluated> {
        let wanted = arguments.map(Json::members).unwrap_or_default();
        let has_arguments = |given: Option<&Json>| {
            wanted.iter().all(|(key, value)| given.and_then(|given| given.get(key)) == Some(value))
        };
        let (mut fitting, mut unknown) = (Vec::new(), Vec::new());
        for (position, call) in self.fitting(tools) {
            if wanted.is_empty() {
                fitting.push(call);
                continue;
            }
            match &*self.arguments.of(position, call) {
                Ok(given) if has_arguments(given.as_ref()) => fitting.push(call),
                Ok(_) => {}
                Err(why) => unknown.push(params::unknown(call, why)),
            }
        }
        let more = self.open_end.is_none().then_some(unknown.len());
        let Some(holds) = times.hold(fitting.len(), more) else {
            // What is known to be there says more than what may be.
            let is_open = times.hold(fitting.len(), Some(unknown.len())).is_some();
            return Err(match (self.open_end.filter(|_| is_open), unknown.into_iter().next()) {
                (None, Some(why)) => Unevaluated { why, blame: Blame::Suite },
                (why, _) => {
                    Unevaluated { why: format!("{UNSETTLED}{}", why.unwrap_or_default()), blame: Blame::Network }
                }
            });
        };
        let turns = self.turns_of(&fitting);
        if holds {
            return Ok(Verdict { holds, reason: turns });
        }
        let tool = tools.join(" or ");
        let with = arguments.filter(|_| !wanted.is_empty()).map(Json::stringify);
        let reason = match (times, fitting.len(), with) {
            (Times::ONCE_OR_MORE, _, Some(arguments)) if self.fitting(tools).next().is_some() => {
                let nearest = self.nearest(tools, wanted);
                format!(
                    "{tool:?} was called, but never with {}; the nearest call had {nearest}",
                    clip(&arguments, MAX_SHOWN)
                )
            }
            (Times::ONCE_OR_MORE, ..) => {
                let names: Vec<&str> = self.calls.iter().map(|call| call.name.as_str()).take(20).collect();
                match names.as_slice() {
                    [] => format!("{tool:?} was not called, and no other tool was"),
                    names => format!("{tool:?} was not called, but {}", names.join(", ")),
                }
            }
            (times, count, with) => {
                let with = with.map(|arguments| format!(" with {}", clip(&arguments, MAX_SHOWN))).unwrap_or_default();
                let there = match count {
                    0 => "there was none".to_owned(),
                    1 => "there was 1".to_owned(),
                    count => format!("there were {count}"),
                };
                let turns = if turns.is_empty() { turns } else { format!(" ({turns})") };
                format!("expected {times} of {tool:?}{with}, but {there}{turns}")
            }
        };
        Ok(Verdict { holds, reason })
    }

    /// In which turns calls were made, in words; empty where all calls belong to one answer.
    fn turns_of(&self, calls: &[&ToolCall]) -> String {
        if self.calls.iter().all(|call| call.turn <= 1) {
            return String::new();
        }
        let mut turns: Vec<u32> = calls.iter().map(|call| call.turn).collect();
        turns.dedup();
        let turns: Vec<String> = turns.iter().map(u32::to_string).collect();
        match turns.as_slice() {
            [] => String::new(),
            [turn] => format!("turn {turn}"),
            [before @ .., last] => format!("turns {} and {last}", before.join(", ")),
        }
    }

    fn tool_result(&self, tool: &str, wanted: Option<&Json>) -> Result<Verdict, Unevaluated> {
        let Some(call) = self.calls.iter().find(|call| is_named(&call.name, tool)) else {
            return Ok(Verdict::of(false, || format!("{tool:?} was not called")));
        };
        let result = match &call.outcome {
            Some(ToolOutcome::Result(result)) => result.as_ref(),
            Some(ToolOutcome::NotRun) => {
                let why = format!("{tool:?} was not run: tools are only announced here (routing only)");
                return Err(Unevaluated { why, blame: Blame::Suite });
            }
            Some(ToolOutcome::Error(fault)) => {
                return Ok(Verdict::of(false, || format!("{tool:?} failed: {}", clip(&fault.message, MAX_SHOWN))));
            }
            None => {
                return Ok(Verdict::of(false, || {
                    format!("no result of {tool:?} was reported, so it counts as failed")
                }));
            }
        };
        let Some(wanted) = wanted else { return Ok(Verdict::of(true, String::new)) };
        let unevaluated = |why| Unevaluated { why, blame: Blame::Suite };
        let result = match result {
            // What was never said is not another result.
            None => {
                let why = format!("the result of {tool:?} is not known: the report of the call does not say it");
                return Err(unevaluated(why));
            }
            Some(MaybeJson::Malformed(text)) => {
                return Err(unevaluated(format!("the result of {tool:?} is no JSON: {}", clip(text, MAX_SHOWN))));
            }
            Some(MaybeJson::Json(text)) if text.as_str().len() > JUDGED_BYTES => {
                let length = text.as_str().len();
                return Err(unevaluated(format!("the result of {tool:?} is too large to be judged: {length} bytes")));
            }
            Some(MaybeJson::Json(text)) => text.parse(),
        };
        let matches = matches_result(wanted, Some(&result)).map_err(unevaluated)?;
        Ok(Verdict::of(matches, || {
            let (wanted, result) = (clip(&wanted.stringify(), MAX_SHOWN), clip(&result.stringify(), MAX_SHOWN));
            format!("expected {wanted} of {tool:?}, but the result is {result}")
        }))
    }
}

/// What somebody else decided.
fn decided(reply: Option<&Reply>, who: &str, blame: Blame) -> Result<Verdict, Unevaluated> {
    match reply {
        Some(Reply::Judged { passed, reason, .. }) => {
            Ok(Verdict::of(*passed, || if reason.is_empty() { format!("{who} says no") } else { reason.clone() }))
        }
        Some(Reply::Failed { why, blame: other, .. }) => {
            Err(Unevaluated { why: format!("{who} failed: {why}"), blame: other.unwrap_or(blame) })
        }
        None => Err(Unevaluated { why: format!("{who} was not asked"), blame }),
    }
}

/// A name fits one without its name space.
fn is_named(called: &str, tool: &str) -> bool {
    let before = called.strip_suffix(tool).filter(|_| !tool.is_empty());
    before.is_some_and(|before| before.is_empty() || before.ends_with("__") || before.ends_with('.'))
}

/// Objects match partially on every level, lists element by element, expected texts by the text of what is there.
fn matches_result(wanted: &Json, actual: Option<&Json>) -> Result<bool, String> {
    let Some(actual) = actual else { return Ok(false) };
    match (&wanted.value, &actual.value) {
        (Value::Object(members), Value::Object(_)) => {
            for (key, value) in members {
                if !matches_result(value, actual.get(key))? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Value::Array(wanted), Value::Array(actual)) => {
            if wanted.len() != actual.len() {
                return Ok(false);
            }
            for (wanted, actual) in wanted.iter().zip(actual) {
                if !matches_result(wanted, Some(actual))? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Value::String(wanted), _) => {
            let actual = text_of(actual);
            match wanted.strip_prefix(PATTERN_PREFIX) {
                Some(pattern) => {
                    let pattern = Re2Pattern::new(pattern).map_err(|error| error.to_string())?;
                    pattern.is_match(&actual).map_err(|error| error.to_string())
                }
                None => Ok(*wanted == *actual),
            }
        }
        _ => Ok(wanted == actual),
    }
}

/// A text as it is, anything else as JSON text.
fn text_of(value: &Json) -> Cow<'_, str> {
    match &value.value {
        Value::String(text) => Cow::Borrowed(text),
        _ => Cow::Owned(value.stringify()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{Arguments, JsonText};

    #[test]
    fn a_pattern_that_takes_too_long_decides_nothing() {
        let mut random = fastrand::Rng::with_seed(1);
        let response: String = (0..200_000).map(|_| if random.bool() { 'a' } else { 'b' }).collect();
        let result = JsonText::new(format!("\"{response}\"")).unwrap();
        let call = ToolCall {
            call_id: "1".to_owned(),
            name: "t".to_owned(),
            params: Arguments::None,
            outcome: Some(ToolOutcome::Result(Some(MaybeJson::Json(result)))),
            duration: None,
            turn: 0,
        };
        let transcript = Transcript { response, tool_calls: vec![call], ..Transcript::default() };
        let slow = "[ab]*a[ab]{900}[^ab]";
        let wanted = Json { line: 1, value: Value::String(format!("{PATTERN_PREFIX}{slow}")) };
        let kinds = [
            ClaimKind::Regex(Re2Pattern::new(slow).unwrap()),
            ClaimKind::ToolResult { tool: "t".to_owned(), result: Some(wanted) },
        ];
        for kind in kinds {
            for negate in [false, true] {
                let written = JsonText::new("{}").unwrap();
                let claim = Claim { kind: kind.clone(), negate, message: Some("no".to_owned()), written };
                let result = evaluate(&[claim], &transcript, &Replies::new()).remove(0);
                assert_eq!((result.outcome, result.blame), (Outcome::Errored, Some(Blame::Suite)), "{result:?}");
                assert_eq!(result.reason, format!("pattern /{slow}/ took more than 250 ms of CPU time"));
            }
        }
    }

    /// JSON that is too much to be read is not taken for none: neither does a claim about it fail, nor its opposite
    /// hold.
    #[test]
    fn json_that_is_too_much_decides_nothing() {
        let of =
            |values: usize| Transcript { response: format!("[{}1]", "1,".repeat(values - 2)), ..Transcript::default() };
        let kinds = [
            ClaimKind::JsonPath { path: JsonPath::parse("$[0]").expect("a path"), value: None },
            ClaimKind::Equals(Json { line: 1, value: Value::Null }),
        ];
        for (kind, is_right) in kinds.into_iter().zip([true, false]) {
            for negate in [false, true] {
                let written = JsonText::new("{}").expect("JSON");
                let claim = [Claim { kind: kind.clone(), negate, message: None, written }];
                let result = evaluate(&claim, &of(VALUES - 1), &Replies::new()).remove(0);
                let expected = if is_right == negate { Outcome::Failed } else { Outcome::Passed };
                assert_eq!(result.outcome, expected, "{}", result.reason);
                let result = evaluate(&claim, &of(VALUES + 1), &Replies::new()).remove(0);
                assert_eq!(
                    (result.outcome, result.blame),
                    (Outcome::Errored, Some(Blame::Daemon)),
                    "{}",
                    result.reason
                );
            }
        }
    }

    /// Arguments that nobody knows leave a number open that they could change, and no other.
    #[test]
    fn calls_are_counted_as_far_as_they_are_known() {
        let call = |params| ToolCall {
            call_id: "1".to_owned(),
            name: "pay".to_owned(),
            params,
            outcome: None,
            duration: None,
            turn: 1,
        };
        let given = JsonText::new(r#"{"to": "Ann"}"#).expect("JSON");
        let tool_calls = vec![
            call(Arguments::Given(MaybeJson::Json(given))),
            call(Arguments::Unknown("are not known".to_owned())),
            call(Arguments::None),
        ];
        let transcript = Transcript { tool_calls, ..Transcript::default() };
        let arguments = Some(Json::parse(r#"{"to": "Ann"}"#).expect("JSON"));
        for (min, max, expected) in [
            (1, Some(1), Outcome::Errored),
            (1, None, Outcome::Passed),
            (2, None, Outcome::Errored),
            (0, Some(0), Outcome::Failed),
            (1, Some(2), Outcome::Passed),
            (3, None, Outcome::Failed),
        ] {
            let kind = ClaimKind::ToolCalled {
                tools: vec!["pay".to_owned()],
                arguments: arguments.clone(),
                times: Times { min, max },
            };
            let claim = Claim { kind, negate: false, message: None, written: JsonText::new("{}").expect("JSON") };
            let result = evaluate(&[claim], &transcript, &Replies::new()).remove(0);
            assert_eq!(result.outcome, expected, "{min} {max:?}: {}", result.reason);
        }
    }

    #[test]
    fn a_name_space_may_be_left_out() {
        for (called, tool, fits) in [
            ("a", "a", true),
            ("x__a", "a", true),
            ("x.y.a", "a", true),
            ("x_a", "a", false),
            ("a__b", "a", false),
            ("a", "", false),
        ] {
            assert_eq!(is_named(called, tool), fits, "{called} {tool}");
        }
    }
}
