//! What happened in a case, step by step: what it sent, the calls of tools, the answer; of a dialogue turn by turn.
//!
//! The console, reports of text, `forgectl show`, and those that tell it while it happens tell the same steps and
//! differ in how much of each they have room for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::words::{cut, time, tokens};
use crate::conversation::{AgentEventKind, Arguments, MaybeJson, Message, Role, ToolCall, ToolOutcome, Transcript};
use crate::event::{Payload, RunEvent};
use crate::text::{printable, printable_lines};
use crate::verdict::{CaseResult, Outcome, Turn};

/// How much is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Most bytes of a message or an answer.
    pub text: usize,
    /// Most bytes of arguments or a result.
    pub value: usize,
    /// Most messages of a history, the last ones.
    pub messages: usize,
    /// Most calls of a turn, the first ones.
    pub calls: usize,
    /// Most turns, the last ones: a dialogue that did not pass went wrong there.
    pub turns: usize,
}

impl Room {
    /// For everything.
    pub const ALL: Self =
        Self { text: usize::MAX, value: usize::MAX, messages: usize::MAX, calls: usize::MAX, turns: usize::MAX };
    /// Below a case on the console.
    pub const CONSOLE: Self = Self { text: 400, value: 160, messages: 3, calls: 10, turns: 1 };
    /// In lines that tell what happens while it does.
    pub const LIVE: Self = Self { text: 1_000, value: 1_000, messages: 20, calls: usize::MAX, turns: usize::MAX };
    /// With a case in a report that is text.
    pub const REPORT: Self = Self { text: 4_000, value: 1_000, messages: 20, calls: 50, turns: 50 };
}

/// One step, safe to show: of somebody else's text what a terminal would obey is an escape, and line breaks are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Its turn, in a case that has some; else 0.
    pub turn: u32,
    /// What kind of step it is.
    pub kind: Kind,
    /// Who speaks, or the call and its tool, as in `agent:` and `→ search`; or all that there is to say of it.
    pub what: String,
    /// What was said, given or given back.
    pub text: String,
    /// What stands behind the text, in our words: how much is left out, how long it took.
    pub note: String,
}

/// What kind of step a [`Step`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Something said to the agent.
    Input,
    /// A call of a tool, or what it gave back.
    Tool,
    /// A call of a tool that failed.
    Failed,
    /// Something the agent said.
    Output,
    /// Something that is told beside it: why a user said something, what is left out.
    Aside,
}

impl Step {
    fn new(turn: u32, kind: Kind, what: impl Into<String>, text: &str, most: usize) -> Self {
        // To say that a few letters are left out takes more room than they do.
        let cut = if text.len() <= most.saturating_add(most / 8) { cut(text, usize::MAX) } else { cut(text, most) };
        let note = cut.note().map(|note| format!("… {note}")).unwrap_or_default();
        Self { turn, kind, what: what.into(), text: printable_lines(cut.text), note }
    }

    /// Something that is told beside the steps, in our words.
    #[must_use]
    pub fn aside(turn: u32, what: impl Into<String>) -> Self {
        Self::new(turn, Kind::Aside, what, "", 0)
    }

    /// The step as plain text on one line: line breaks are written as they are in programs.
    #[must_use]
    pub fn in_a_line(&self) -> String {
        self.plain().replace('\n', "\\n").replace('\t', "\\t")
    }

    /// The step as plain text, on one line unless its text has several.
    #[must_use]
    pub fn plain(&self) -> String {
        let turn = if self.turn > 0 { format!("turn {} ", self.turn) } else { String::new() };
        let parts = [self.what.as_str(), &self.text, &self.note];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        turn + &parts.join(" ")
    }
}

/// The steps of a case that was sent. Empty: it was not, and nothing is known of it.
#[must_use]
pub fn steps(result: &CaseResult, room: Room) -> Vec<Step> {
    all_steps(result, room, &mut Notes::default())
}

/// The steps of a case, with what its log says between its calls.
#[must_use]
pub fn steps_of_log(result: &CaseResult, log: &[Arc<RunEvent>]) -> Vec<Step> {
    all_steps(result, Room::ALL, &mut Notes::of(log, !result.turns.is_empty()))
}

/// What the agent and the model behind it said between calls, in order: the turn, how many calls of it came before, and
/// the step.
#[derive(Default)]
struct Notes(VecDeque<(u32, usize, Step)>);

impl Notes {
    fn of(log: &[Arc<RunEvent>], has_turns: bool) -> Self {
        let mut notes = VecDeque::new();
        let (mut turn, mut calls) = (0, 0);
        for event in log {
            let Payload::Agent(agent) = &event.payload else { continue };
            let of = if has_turns { event.turn } else { 0 };
            if of != turn {
                (turn, calls) = (of, 0);
            }
            match &agent.kind {
                AgentEventKind::ToolStarted { .. } => calls += 1,
                AgentEventKind::Log { level, message } => {
                    notes.push_back((turn, calls, logged(turn, level, message, Room::ALL)));
                }
                AgentEventKind::ModelTurn(model) => {
                    let facts = [
                        model.model.clone(),
                        model.usage.as_ref().and_then(tokens).unwrap_or_default(),
                        model.duration.map(time).unwrap_or_default(),
                        model.finish_reason.clone(),
                    ];
                    let facts: Vec<String> = facts.into_iter().filter(|fact| !fact.is_empty()).collect();
                    let what = format!("model turn {}:", model.index);
                    notes.push_back((turn, calls, Step::new(turn, Kind::Aside, what, &facts.join(", "), usize::MAX)));
                }
                _ => {}
            }
        }
        Self(notes)
    }

    /// Tells what stands before the next call of a turn, `calls` of which are told.
    fn tell(&mut self, turn: u32, calls: usize, steps: &mut Vec<Step>) {
        while let Some((_, _, step)) = self.0.pop_front_if(|(of, before, _)| *of == turn && *before <= calls) {
            steps.push(step);
        }
    }
}

/// What the agent logged.
#[must_use]
pub fn logged(turn: u32, level: &str, message: &str, room: Room) -> Step {
    Step::new(turn, Kind::Aside, format!("log {}:", printable(cut(level, 40).text)), message, room.text)
}

fn all_steps(result: &CaseResult, room: Room, notes: &mut Notes) -> Vec<Step> {
    if result.turns.is_empty() {
        return single(result, room, notes);
    }
    let mut steps = Vec::new();
    let before = result.turns.len().saturating_sub(room.turns);
    if before > 0 {
        let turns = if before == 1 { "turn" } else { "turns" };
        steps.push(Step::aside(0, format!("… {before} {turns} before")));
    }
    for turn in &result.turns[before..] {
        of_turn(result, turn, room, notes, &mut steps);
    }
    // What was called in a turn that was not answered.
    let last = result.turns.last().map_or(0, |turn| turn.number);
    let open: Vec<&ToolCall> = result.transcript.tool_calls.iter().filter(|call| call.turn > last).collect();
    calls(&open, last + 1, room, notes, &mut steps);
    steps
}

/// Of a case of one answer.
fn single(result: &CaseResult, room: Room, notes: &mut Notes) -> Vec<Step> {
    let mut steps = sent(&result.messages, result.messages_count as usize, room);
    let all: Vec<&ToolCall> = result.transcript.tool_calls.iter().collect();
    calls(&all, 0, room, notes, &mut steps);
    steps.extend(answered(result, room));
    steps
}

/// What a case sends, the last of `all` messages.
#[must_use]
pub fn sent(messages: &[Message], all: usize, room: Room) -> Vec<Step> {
    let shown = &messages[messages.len().saturating_sub(room.messages)..];
    let before = all.saturating_sub(shown.len());
    let noun = if before == 1 { "message" } else { "messages" };
    let left_out = (before > 0 && !shown.is_empty()).then(|| Step::aside(0, format!("… {before} {noun} before")));
    left_out.into_iter().chain(shown.iter().map(|message| of_message(message, room))).collect()
}

/// What the agent said in a case of one answer.
#[must_use]
pub fn answered(result: &CaseResult, room: Room) -> Vec<Step> {
    let Transcript { response, commentary, .. } = &result.transcript;
    let was_asked = (result.total_turns > 0 || !result.messages.is_empty()) && result.outcome != Outcome::Skipped;
    said(0, commentary, Some(response).filter(|response| was_asked || !response.is_empty()), room)
}

fn of_message(message: &Message, room: Room) -> Step {
    let (who, kind) = match message.role {
        Role::System => ("system:", Kind::Input),
        Role::User => ("user:", Kind::Input),
        Role::Assistant => ("agent:", Kind::Output),
        Role::Tool => ("tool:", Kind::Tool),
    };
    Step::new(0, kind, who, &message.shown(), room.text)
}

fn of_turn(result: &CaseResult, turn: &Turn, room: Room, notes: &mut Notes, steps: &mut Vec<Step>) {
    let own: Vec<&ToolCall> = result.transcript.tool_calls.iter().filter(|call| call.turn == turn.number).collect();
    let mut called = Vec::new();
    calls(&own, turn.number, room, notes, &mut called);
    steps.extend(turn_of(turn, called, room));
    let reached = result.checkpoints.iter().filter(|checkpoint| checkpoint.reached_at_turn == Some(turn.number));
    steps.extend(reached.map(|checkpoint| self::reached(turn.number, &checkpoint.id, room)));
}

/// A turn of a dialogue, with the steps of what was called in it.
#[must_use]
pub fn turn_of(turn: &Turn, called: Vec<Step>, room: Room) -> Vec<Step> {
    let Turn { number, input, output, commentary, reasoning } = turn;
    let mut steps = vec![Step::new(*number, Kind::Input, "user:", input, room.text)];
    if !reasoning.is_empty() {
        steps.push(Step::new(*number, Kind::Aside, "why:", reasoning, room.text));
    }
    steps.extend(called);
    steps.extend(said(*number, commentary, Some(output), room));
    steps
}

/// A checkpoint that was reached.
#[must_use]
pub fn reached(turn: u32, checkpoint: &str, room: Room) -> Step {
    Step::new(turn, Kind::Aside, "checkpoint reached:", checkpoint, room.text)
}

/// What the agent said before its answer, and the answer.
fn said(turn: u32, commentary: &str, output: Option<&String>, room: Room) -> Vec<Step> {
    let before = Step::new(turn, Kind::Aside, "commentary:", commentary, room.text);
    let before = (!commentary.is_empty()).then_some(before);
    before.into_iter().chain(output.map(|output| answer(turn, output, room))).collect()
}

/// What the agent answered.
#[must_use]
pub fn answer(turn: u32, text: &str, room: Room) -> Step {
    if text.is_empty() {
        return Step::new(turn, Kind::Output, "agent: (no answer)", "", 0);
    }
    Step::new(turn, Kind::Output, "agent:", text, room.text)
}

/// The calls of a turn, and what was said between them; the turn is 0 in a case of one answer.
fn calls(calls: &[&ToolCall], turn: u32, room: Room, notes: &mut Notes, steps: &mut Vec<Step>) {
    for (before, call) in calls[..calls.len().min(room.calls)].iter().enumerate() {
        notes.tell(turn, before, steps);
        steps.push(called(turn, call, room));
        steps.push(given_back(turn, "", call.outcome.as_ref(), call.duration, room));
    }
    notes.tell(turn, usize::MAX, steps);
    let rest = calls.len().saturating_sub(room.calls);
    if rest > 0 {
        let noun = if rest == 1 { "call" } else { "calls" };
        steps.push(Step::aside(0, format!("… {rest} more {noun}")));
    }
}

/// A call.
#[must_use]
pub fn called(turn: u32, call: &ToolCall, room: Room) -> Step {
    let (text, odd) = match &call.params {
        Arguments::None => ("", ""),
        Arguments::Given(MaybeJson::Json(text)) => (text.as_str(), ""),
        Arguments::Given(MaybeJson::Malformed(text)) => (text.as_str(), "arguments that are no JSON: "),
        Arguments::Unknown(why) => (why.as_str(), "arguments that are not known: "),
    };
    Step::new(turn, Kind::Tool, format!("→ {}", tool(&call.name)), &format!("{odd}{text}"), room.value)
}

/// What came of a call. `of`: the tool, where the call does not stand right before it; else empty.
#[must_use]
pub fn given_back(turn: u32, of: &str, outcome: Option<&ToolOutcome>, took: Option<Duration>, room: Room) -> Step {
    let (kind, how, text) = match outcome {
        Some(ToolOutcome::Result(Some(MaybeJson::Json(text)))) => (Kind::Tool, "", text.as_str()),
        Some(ToolOutcome::Result(Some(MaybeJson::Malformed(text)))) => {
            (Kind::Tool, "a result that is no JSON:", text.as_str())
        }
        Some(ToolOutcome::Result(None)) => (Kind::Tool, "ok", ""),
        Some(ToolOutcome::Error(fault)) => (Kind::Failed, "failed:", fault.message.as_str()),
        Some(ToolOutcome::NotRun) => (Kind::Tool, "not run", ""),
        None => (Kind::Failed, "no result", ""),
    };
    let words = ["←", &tool(of), how];
    let what = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    let mut step = Step::new(turn, kind, what, text, room.value);
    if let Some(took) = took {
        let blank = if step.note.is_empty() { "" } else { " " };
        step.note = format!("{}{blank}({})", step.note, time(took));
    }
    step
}

/// The name of a tool, which may be anything.
fn tool(name: &str) -> String {
    printable_lines(cut(name, 200).text).replace('\n', " ")
}

/// The steps as lines of text.
#[must_use]
pub fn plain(result: &CaseResult, room: Room) -> String {
    steps(result, room).iter().map(|step| step.plain() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{AgentEvent, Fault, ModelTurn};
    use crate::report::sample;
    use crate::verdict::Turn;

    fn asked(question: &str, result: CaseResult) -> CaseResult {
        CaseResult { messages: vec![Message::user(question)], messages_count: 1, total_turns: 1, ..result }
    }

    #[test]
    fn a_case_is_told_in_the_order_in_which_it_went() {
        let mut result = asked("refund?\u{1b}[31m", sample::failed("No."));
        result.transcript.commentary = "Let me look.".to_owned();
        result.transcript.tool_calls = vec![
            sample::call("look", Some(ToolOutcome::Result(None))),
            sample::call("book", Some(ToolOutcome::Error(Fault::message("no\nseats")))),
            sample::call("odd", None),
        ];
        let told = "user: refund?\\u{1b}[31m\n→ look {\"id\":9007199254740993}\n← ok (120 ms)\n\
                    → book {\"id\":9007199254740993}\n← failed: no\nseats (120 ms)\n\
                    → odd {\"id\":9007199254740993}\n← no result (120 ms)\ncommentary: Let me look.\nagent: No.\n";
        assert_eq!(plain(&result, Room::ALL), told);
        let little = Room { value: 5, calls: 1, ..Room::ALL };
        let told = "user: refund?\\u{1b}[31m\n→ look {\"id\" … 18 bytes more\n← ok (120 ms)\n… 2 more calls\n";
        assert!(plain(&result, little).starts_with(told), "{}", plain(&result, little));
    }

    #[test]
    fn of_a_history_the_end_is_told_and_of_a_dialogue_the_last_turn() {
        let mut result = asked("last", sample::passed(""));
        result.messages.insert(0, Message::assistant("before"));
        result.messages_count = 7;
        let told = "… 6 messages before\nuser: last\nagent: (no answer)\n";
        assert_eq!(plain(&result, Room { messages: 1, ..Room::ALL }), told);
        let turn = |number, input: &str| Turn { number, input: input.to_owned(), ..Turn::default() };
        result.turns = vec![turn(1, "hi"), turn(2, "and?")];
        result.transcript.tool_calls = (1..4).map(|turn| ToolCall { turn, ..sample::call("t", None) }).collect();
        let told = "… 1 turn before\nturn 2 user: and?\nturn 2 → t {\"id\":9007199254740993}\nturn 2 ← no result (120 ms)\n\
                    turn 2 agent: (no answer)\nturn 3 → t {\"id\":9007199254740993}\nturn 3 ← no result (120 ms)\n";
        assert_eq!(plain(&result, Room::CONSOLE), told);
    }

    #[test]
    fn what_the_agent_logs_stands_between_its_calls() {
        let mut result = asked("q", sample::failed("No."));
        result.transcript.tool_calls = vec![sample::call("a", None), sample::call("b", None)];
        let event = |kind| {
            let payload = Payload::Agent(AgentEvent { seq: 0, elapsed: None, kind });
            let at = jiff::Timestamp::UNIX_EPOCH;
            Arc::new(RunEvent { sequence: 1, at, case: None, turn: 1, payload })
        };
        let log = |message: &str| event(AgentEventKind::Log { level: "info".to_owned(), message: message.to_owned() });
        let called = |name| {
            let call = sample::call(name, None);
            event(AgentEventKind::ToolStarted { call, awaits_result: false, model_turn: 1 })
        };
        let model = ModelTurn { index: 1, model: "m".to_owned(), ..ModelTurn::default() };
        let events = [log("one\u{1b}"), called("a"), log("two"), called("b"), event(AgentEventKind::ModelTurn(model))];
        let told: Vec<String> = steps_of_log(&result, &events).iter().map(Step::plain).collect();
        let short: Vec<&str> = told.iter().map(|step| step.split(" {").next().unwrap_or_default()).collect();
        let no = "← no result (120 ms)";
        let end = ["model turn 1: m", "agent: No."];
        assert_eq!(short[..7], ["user: q", "log info: one\\u{1b}", "→ a", no, "log info: two", "→ b", no][..]);
        assert_eq!(short[7..], end);
    }

    #[test]
    fn what_was_not_sent_has_no_steps() {
        let result = sample::errored("agent unreachable");
        assert_eq!(plain(&result, Room::ALL), "");
    }
}
