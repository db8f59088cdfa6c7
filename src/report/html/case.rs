//! A case on the page.

use std::collections::HashSet;

use askama::Template;

use super::text::{Fact, List, MAX_ANSWER, MAX_ITEMS, MAX_TEXT, Sign, Text, short};
use crate::conversation::{Arguments, MaybeJson, Message, ToolCall, ToolOutcome};
use crate::report::words::{cut, is_bad, money, time, tokens, votes};
use crate::report::{Traced, Verdict, own_error};
use crate::verdict::{AssertionResult, Attempt, Blame, CaseResult, Cause, CheckpointResult, Outcome};

/// One case.
#[derive(Template)]
#[template(path = "case.html")]
pub(super) struct Case<'a> {
    anchor: usize,
    sign: Sign,
    is_open: bool,
    regressed: bool,
    flaky: bool,
    label: String,
    name: Text<'a>,
    time: String,
    facts: Vec<Fact<'a>>,
    trace: Option<Traced>,
    error: Option<Text<'a>>,
    /// What was waited for, where no assertion tells it.
    hint: Option<Text<'a>>,
    earlier: List<Earlier<'a>>,
    warnings: List<Text<'a>>,
    assertions: List<Assertion<'a>>,
    checkpoints: List<Checkpoint<'a>>,
    turns: List<Turn<'a>>,
    /// What it sends: who speaks, and what.
    messages: List<Sent>,
    /// Messages before those.
    before: usize,
    /// `None`: it is a dialogue, whose turns stand there, or it was not run.
    answer: Option<Text<'a>>,
    /// What was said before the answer.
    commentary: Text<'a>,
    /// The calls that are of no turn which stands there.
    calls: List<Call<'a>>,
    console: List<Text<'a>>,
}

/// A message that the case sends.
struct Sent {
    who: &'static str,
    text: String,
    /// Where it is cut.
    note: Option<String>,
}

struct Earlier<'a> {
    number: usize,
    sign: Sign,
    why: String,
    error: Text<'a>,
    time: String,
}

struct Assertion<'a> {
    sign: Sign,
    name: Text<'a>,
    reason: Text<'a>,
    hint: Text<'a>,
    written: Option<Text<'a>>,
    /// What the votes of a validator add up to, in words.
    votes: String,
    replies: List<Text<'a>>,
}

/// A checkpoint of a dialogue, with its assertions as they were looked at last.
struct Checkpoint<'a> {
    sign: Sign,
    id: Text<'a>,
    told: String,
    assertions: List<Assertion<'a>>,
}

struct Turn<'a> {
    number: u32,
    input: Text<'a>,
    calls: List<Call<'a>>,
    commentary: Text<'a>,
    /// Why the user said that; empty: nobody says.
    reasoning: Text<'a>,
    output: Text<'a>,
    reached: Vec<Text<'a>>,
}

struct Call<'a> {
    name: Text<'a>,
    /// What came of it, in a word.
    word: &'static str,
    class: &'static str,
    time: String,
    /// The turn it was called in, if the case has several.
    turn: Option<u32>,
    /// What is shown below: arguments and what came back, each with its name.
    parts: Vec<(&'static str, Text<'a>)>,
}

impl<'a> Case<'a> {
    pub(super) fn of(verdict: Verdict<'a>, anchor: usize, is_open: bool, regressions: &HashSet<String>) -> Self {
        let result = verdict.result;
        let label = verdict.case.label();
        let warnings: Vec<&String> = result.warning.iter().chain(&result.warnings).collect();
        let is_dialogue = !result.turns.is_empty() || !result.checkpoints.is_empty();
        let mut room = MAX_ITEMS;
        let turns = List::of(result.turns.iter().map(|turn| Turn::of(result, turn, &mut room)), MAX_ITEMS);
        let is_of_turn = |call: &&ToolCall| result.turns.iter().take(MAX_ITEMS).any(|turn| turn.number == call.turn);
        let others: Vec<&ToolCall> = result.transcript.tool_calls.iter().filter(|call| !is_of_turn(call)).collect();
        Self {
            anchor,
            sign: Sign::of(result.outcome),
            is_open,
            regressed: is_bad(result.outcome) && regressions.contains(&*verdict.case.case_id),
            flaky: result.is_flaky(),
            label: short(label),
            name: Text::of(verdict.own_name(), MAX_TEXT),
            time: time(result.transcript.duration),
            facts: case_facts(verdict),
            trace: verdict.traced(),
            error: own_error(result).map(|error| Text::of(error, MAX_TEXT)),
            hint: (result.hint.as_deref().filter(|_| result.failed_assertion.is_none()))
                .map(|hint| Text::of(hint, MAX_TEXT)),
            earlier: List::of(result.earlier.iter().enumerate().map(Earlier::of), MAX_ITEMS),
            warnings: List::of(warnings.iter().map(|warning| Text::of(warning, MAX_TEXT)), MAX_ITEMS),
            assertions: List::of(result.assertions.iter().map(Assertion::of), MAX_ITEMS),
            checkpoints: List::of(result.checkpoints.iter().map(Checkpoint::of), MAX_ITEMS),
            turns,
            before: (result.messages_count as usize).saturating_sub(result.messages.len()),
            messages: List::of(result.messages.iter().map(Sent::of), MAX_ITEMS),
            answer: (!is_dialogue && result.outcome != Outcome::Skipped)
                .then(|| Text::of(&result.transcript.response, MAX_ANSWER)),
            commentary: Text::of(&result.transcript.commentary, MAX_TEXT),
            calls: List::of(others.into_iter().map(|call| Call::of(call, is_dialogue)), room),
            console: List::of(result.console.iter().map(|line| Text::of(line, MAX_TEXT)), MAX_ITEMS),
        }
    }
}

fn case_facts(verdict: Verdict<'_>) -> Vec<Fact<'_>> {
    let CaseResult { cause, blame, transcript, total_turns, messages_count, .. } = verdict.result;
    let labels = verdict.labels;
    let ours = |name, more: String| Fact { name, value: Text::of("", 0), more };
    let theirs = |name, value| Fact { name, value: Text::of(value, 500), more: String::new() };
    let mut facts = Vec::new();
    facts.extend(cause.map(|cause| ours("cause", cause.name().to_owned())));
    facts.extend(blame.map(|blame| ours("blame", blame.name().to_owned())));
    facts.extend(labels.difficulty.as_deref().map(|text| theirs("difficulty", text)));
    facts.extend(labels.bug_ref.as_deref().map(|text| theirs("bug", text)));
    facts.extend(labels.created_at.as_deref().map(|text| theirs("since", text)));
    facts.extend(labels.tags.iter().take(MAX_ITEMS).map(|text| theirs("tag", text)));
    if verdict.result.replayed {
        facts.push(ours("replayed", String::new()));
    }
    if *messages_count > 1 {
        facts.push(ours("messages", messages_count.to_string()));
    }
    if *total_turns > 1 {
        facts.push(ours("turns", total_turns.to_string()));
    }
    if let Some(usage) = &transcript.usage {
        facts.extend(tokens(usage).map(|tokens| ours("tokens", tokens)));
        facts.extend(usage.cost.map(|cost| ours("cost", money(cost))));
    }
    facts
}

impl Sent {
    fn of(message: &Message) -> Self {
        let text = message.shown();
        let cut = cut(&text, MAX_ANSWER);
        Self { who: message.role.name(), text: cut.text.to_owned(), note: cut.note() }
    }
}

impl<'a> Earlier<'a> {
    fn of((index, attempt): (usize, &'a Attempt)) -> Self {
        let Attempt { outcome, cause, blame, error, duration, usage: _ } = attempt;
        let blame = blame.map(|blame: Blame| format!(", blame {}", blame.name())).unwrap_or_default();
        Self {
            number: index + 1,
            sign: Sign::of(*outcome),
            why: format!("{}{blame}", cause.map_or("", Cause::name)),
            error: Text::of(error.as_deref().unwrap_or_default(), MAX_TEXT),
            time: time(*duration),
        }
    }
}

impl<'a> Assertion<'a> {
    fn of(assertion: &'a AssertionResult) -> Self {
        let opinion = assertion.opinion.as_ref();
        let said = opinion.iter().flat_map(|opinion| opinion.replies.iter().chain(&opinion.console));
        let said: Vec<&String> = said.collect();
        Self {
            sign: Sign::of(assertion.outcome),
            name: Text::of(&assertion.name, MAX_TEXT),
            reason: Text::of(&assertion.reason, MAX_TEXT),
            hint: Text::of(&assertion.hint, MAX_TEXT),
            written: assertion.written.as_ref().map(|written| Text::of(written.as_str(), MAX_TEXT)),
            votes: opinion.map(votes).unwrap_or_default(),
            replies: List::of(said.into_iter().map(|said| Text::of(said, MAX_TEXT)), MAX_ITEMS),
        }
    }
}

impl<'a> Checkpoint<'a> {
    fn of(checkpoint: &'a CheckpointResult) -> Self {
        let CheckpointResult { id, reached_at_turn, required, assertions } = checkpoint;
        let (outcome, told) = match (reached_at_turn, required) {
            (Some(turn), _) => (Outcome::Passed, format!("reached in turn {turn}")),
            (None, true) => (Outcome::Failed, "not reached, and required".to_owned()),
            (None, false) => (Outcome::Skipped, "not reached".to_owned()),
        };
        Self {
            sign: Sign::of(outcome),
            id: Text::of(id, MAX_TEXT),
            told,
            assertions: List::of(assertions.iter().map(Assertion::of), MAX_ITEMS),
        }
    }
}

impl<'a> Turn<'a> {
    /// A turn with its calls, as long as there is room for them.
    fn of(result: &'a CaseResult, turn: &'a crate::verdict::Turn, room: &mut usize) -> Self {
        let own = result.transcript.tool_calls.iter().filter(|call| call.turn == turn.number);
        let own: Vec<&ToolCall> = own.collect();
        let calls = List::of(own.into_iter().map(|call| Call::of(call, false)), *room);
        *room -= calls.items.len();
        let checkpoints = result.checkpoints.iter();
        let reached = checkpoints.filter(|checkpoint| checkpoint.reached_at_turn == Some(turn.number));
        Self {
            number: turn.number,
            calls,
            input: Text::of(&turn.input, MAX_TEXT),
            commentary: Text::of(&turn.commentary, MAX_TEXT),
            reasoning: Text::of(&turn.reasoning, MAX_TEXT),
            output: Text::of(&turn.output, MAX_TEXT),
            reached: reached.take(MAX_ITEMS).map(|checkpoint| Text::of(&checkpoint.id, MAX_TEXT)).collect(),
        }
    }
}

impl<'a> Call<'a> {
    fn of(call: &'a ToolCall, has_turns: bool) -> Self {
        let mut parts = Vec::new();
        let shown = |(json, other), payload: &'a MaybeJson| match payload {
            MaybeJson::Json(text) => (json, Text::of(text.as_str(), MAX_TEXT)),
            MaybeJson::Malformed(text) => (other, Text::of(text, MAX_TEXT)),
        };
        match &call.params {
            Arguments::None => {}
            Arguments::Given(params) => parts.push(shown(("arguments", "arguments, which are no JSON"), params)),
            Arguments::Unknown(why) => parts.push(("arguments, which are not known", Text::of(why, MAX_TEXT))),
        }
        if let Some(ToolOutcome::Result(Some(result))) = &call.outcome {
            parts.push(shown(("result", "result, which is no JSON"), result));
        }
        if let Some(ToolOutcome::Error(fault)) = &call.outcome {
            parts.push(("error", Text::of(&fault.message, MAX_TEXT)));
        }
        let (word, class) = match call.outcome {
            Some(ToolOutcome::Result(_)) => ("", "passed"),
            Some(ToolOutcome::Error(_)) => ("failed", "failed"),
            Some(ToolOutcome::NotRun) => ("not run", "skipped"),
            None => ("no result", "skipped"),
        };
        let time = call.duration.map(time).unwrap_or_default();
        let turn = Some(call.turn).filter(|turn| has_turns && *turn > 0);
        Self { name: Text::of(&call.name, MAX_TEXT), word, class, time, turn, parts }
    }
}
