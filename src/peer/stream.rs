//! The rules of an invocation's stream, checked event by event, and the record it adds up to.
//!
//! Runs are liberal where nothing is lost by it: an agent that never says `accepted` or does not number its events
//! gets a warning, once per run and rule. What would make the record doubtful is a violation, and ends the call: a
//! gap in the numbers, a result without a call, an event behind the last one. Pure; the engine feeds it and keeps
//! the time.

use std::collections::HashMap;
use std::time::Duration;

use super::said::Said;
use super::turns::{TurnLimit, Turns};
use crate::conversation::{
    AgentEvent, AgentEventKind, Exchange, Failure, FinishReason, Finished, Message, ToolCall, ToolMode, ToolOutcome,
    Transcript, Usage,
};
use crate::limits::{CALL_BYTES, TOOL_CALLS};

/// What each event counts besides its bytes, so that a flood of empty ones is bounded too.
pub(super) const EVENT_OVERHEAD: usize = 64;
/// Most calls whose arguments are odd that are told.
const MAX_ODD: usize = 10;

/// What is told of an agent that said nothing after its last tool call.
pub const NOTHING_BEHIND: &str =
    "nothing was said after the last tool call; what was said before it is taken for the answer";

/// A rule that an agent bent without harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Leniency {
    /// The first event was not `accepted`.
    NotAccepted,
    /// The events are not numbered.
    NotNumbered,
    /// The answer differs from the text deltas, from all of them and from the last ones.
    DeltasDiffer,
    /// `finished.tool_calls` differs from the number of calls that were started.
    CountDiffers,
    /// The call did not end with status OK soon after `finished`.
    LeftOpen,
    /// An event of an unknown kind.
    UnknownEvent,
    /// `elapsed` fell.
    ElapsedFell,
    /// A tool call had no end when the answer was complete.
    CallOpen,
    /// The usage in `finished` is not the sum of that of the model turns.
    UsageDiffers,
}

impl Leniency {
    /// The name of the rule.
    #[must_use]
    pub const fn rule(self) -> &'static str {
        match self {
            Self::NotAccepted => "st/accepted-first",
            Self::NotNumbered => "st/seq-gapless",
            Self::DeltasDiffer => "tx/delta-concat",
            Self::CountDiffers => "tl/count",
            Self::LeftOpen => "st/close-after-terminal",
            Self::UnknownEvent => "st/known-events",
            Self::ElapsedFell => "st/elapsed-monotonic",
            Self::CallOpen => "tl/pairs",
            Self::UsageDiffers => "us/sum",
        }
    }

    /// Whether the cases in which it was bent say so themselves.
    #[must_use]
    pub const fn is_told_by_case(self) -> bool {
        matches!(self, Self::CallOpen)
    }

    /// What to tell the agent's authors.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::NotAccepted => "the agent's first event must be `accepted`",
            Self::NotNumbered => "the agent's events must be numbered: seq 1, 2, 3 …",
            Self::DeltasDiffer => {
                "the text of `finished.response` must be the ANSWER deltas of the answer joined; the response counts"
            }
            Self::CountDiffers => "`finished.tool_calls` must be the number of tool calls that were started",
            Self::LeftOpen => "the call must end with status OK within a second after `finished`",
            Self::UnknownEvent => "the agent sent an event that this daemon does not know; it was ignored",
            Self::ElapsedFell => {
                "`elapsed` must never fall: it is the time since the start frame, by a monotonic clock"
            }
            Self::CallOpen => "every tool call that was started must be finished before `finished`",
            Self::UsageDiffers => "the tokens in `finished.usage` should be those of all model turns together",
        }
    }
}

/// A rule that an agent broke, after which its record would be doubtful.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// An event came behind the last one.
    #[error("an event came after `finished`, which must be the last")]
    AfterFinished,
    /// There is too much of it.
    #[error("the call sent more than {CALL_BYTES} bytes")]
    TooLarge,
    /// A number was left out, or came twice.
    #[error("the events must be numbered without gaps: expected seq {expected}, got {got}")]
    Gap {
        /// The number that comes next.
        expected: u64,
        /// The one that came.
        got: u64,
    },
    /// The call was accepted again.
    #[error("`accepted` came twice")]
    AcceptedTwice,
    /// A tool call ended that never began.
    #[error("the tool call {0:?} was finished, but never started")]
    NotStarted(String),
    /// A tool call ended again.
    #[error("the tool call {0:?} was finished twice")]
    FinishedTwice(String),
    /// A tool call is of no tool.
    #[error("a tool call has no name")]
    Nameless,
    /// The call of this tool cannot be told from others.
    #[error("the call of {0:?} has no call_id")]
    NoCallId(String),
    /// Two tool calls cannot be told apart.
    #[error("two tool calls have the call_id {0:?}")]
    SameCallId(String),
    /// There are too many tool calls.
    #[error("more than {TOOL_CALLS} tool calls in one turn")]
    TooManyCalls,
    /// The stream ended well, and there is no answer.
    #[error("the call ended without `finished`")]
    Unfinished,
}

impl Violation {
    /// The name of the rule.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::AfterFinished | Self::Unfinished => "st/one-terminal",
            Self::TooLarge | Self::TooManyCalls => "sz/limits",
            Self::Gap { .. } => "st/seq-gapless",
            Self::AcceptedTwice => "st/accepted-first",
            Self::NotStarted(_) | Self::FinishedTwice(_) => "tl/pairs",
            Self::Nameless | Self::NoCallId(_) | Self::SameCallId(_) => "tl/unique-call-id",
        }
    }
}

/// The record of one call, while it grows.
#[derive(Debug)]
pub struct Recording {
    /// What happens to the tools that the agent calls.
    mode: ToolMode,
    events: u64,
    bytes: usize,
    numbered: bool,
    accepted: bool,
    said: Said,
    tool_calls: Vec<ToolCall>,
    /// Position in `tool_calls` by call id.
    by_id: HashMap<String, usize>,
    finished: Option<Finished>,
    /// What the model turns used, added up.
    turns: Option<Usage>,
    /// The model of all model turns so far; empty when they name different ones.
    model: Option<String>,
    leniencies: Vec<Leniency>,
    duration: Duration,
    /// What the agent's clock said last.
    elapsed: Duration,
    turn_limit: Option<TurnLimit>,
    model_turns: Turns,
}

impl Recording {
    /// The record of a call of which nothing came yet.
    #[must_use]
    pub fn new(mode: ToolMode) -> Self {
        Self {
            mode,
            events: 0,
            bytes: 0,
            numbered: false,
            accepted: false,
            said: Said::default(),
            tool_calls: Vec::new(),
            by_id: HashMap::new(),
            finished: None,
            turns: None,
            model: None,
            leniencies: Vec::new(),
            duration: Duration::ZERO,
            elapsed: Duration::ZERO,
            turn_limit: None,
            model_turns: Turns::default(),
        }
    }

    /// The same of a call that may take at most `most` model turns; `None`: as many as it likes.
    #[must_use]
    pub fn limited_to(self, most: Option<u32>) -> Self {
        let turn_limit = most.map(|most| TurnLimit { most, tool_mode: self.mode });
        Self { turn_limit, ..self }
    }

    /// The most model turns that the call may take, if it took more.
    #[must_use]
    pub fn exceeded(&self) -> Option<u32> {
        self.turn_limit.filter(|limit| self.model_turns.exceed(*limit)).map(|limit| limit.most)
    }

    /// Takes the next event, a frame of `bytes` bytes that came `at` after the start frame was sent.
    ///
    /// # Errors
    /// What rule the event breaks. The record then ends before this event.
    pub fn take(&mut self, event: &AgentEvent, bytes: usize, at: Duration) -> Result<(), Violation> {
        if self.finished.is_some() {
            return Err(Violation::AfterFinished);
        }
        self.events += 1;
        self.bytes = self.bytes.saturating_add(bytes).saturating_add(EVENT_OVERHEAD);
        if self.bytes > CALL_BYTES {
            return Err(Violation::TooLarge);
        }
        self.check_number(event.seq)?;
        self.duration = at;
        if self.events == 1 && !matches!(event.kind, AgentEventKind::Accepted { .. }) {
            self.bend(Leniency::NotAccepted);
        }
        if let Some(elapsed) = event.elapsed {
            if elapsed < self.elapsed {
                self.bend(Leniency::ElapsedFell);
            }
            self.elapsed = elapsed;
        }
        match &event.kind {
            AgentEventKind::Accepted { .. } => {
                if self.accepted {
                    return Err(Violation::AcceptedTwice);
                }
                self.accepted = true;
            }
            AgentEventKind::TextDelta { message_id, text, reasoning: false } => self.said.say(message_id, text),
            AgentEventKind::ToolStarted { call, .. } => self.start_tool(call)?,
            AgentEventKind::ToolFinished { call_id, outcome, duration } => {
                let call = self.by_id.get(call_id).and_then(|index| self.tool_calls.get_mut(*index));
                let call = call.ok_or_else(|| Violation::NotStarted(call_id.clone()))?;
                if call.outcome.is_some() {
                    return Err(Violation::FinishedTwice(call_id.clone()));
                }
                call.outcome.clone_from(outcome);
                call.duration = *duration;
            }
            AgentEventKind::ModelTurn(turn) => self.turn(&turn.model, turn.usage.as_ref()),
            AgentEventKind::TextDelta { reasoning: true, .. } | AgentEventKind::Log { .. } => {}
            AgentEventKind::Finished(finished) => self.finish(finished),
            AgentEventKind::Unknown => self.bend(Leniency::UnknownEvent),
        }
        self.model_turns.take(&event.kind);
        Ok(())
    }

    /// Whether the terminal event came.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        self.finished.is_some()
    }

    /// Whether anything came at all.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// Notes a rule that was bent.
    pub fn bend(&mut self, rule: Leniency) {
        if !self.leniencies.contains(&rule) {
            self.leniencies.push(rule);
        }
    }

    /// The rules that were bent so far.
    #[must_use]
    pub fn leniencies(&self) -> &[Leniency] {
        &self.leniencies
    }

    /// Bytes of arguments that have to be read to tell what is odd about them.
    #[must_use]
    pub fn odd_bytes(&self) -> usize {
        self.tool_calls.iter().filter(|call| !call.params.is_object()).map(|call| call.params.bytes()).sum()
    }

    /// What the terminal event means: `None` for an answer, else why there is none.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        let Some(finished) = &self.finished else {
            return Some(Failure::Protocol(Violation::Unfinished.to_string()));
        };
        let told = || finished.error.as_ref().map(|fault| fault.message.as_str()).filter(|message| !message.is_empty());
        match finished.reason {
            FinishReason::Completed
            | FinishReason::ToolCalls
            | FinishReason::MaxModelTurns
            | FinishReason::MaxTokens
            | FinishReason::Refused
            | FinishReason::InputRequired => None,
            FinishReason::BudgetExceeded => Some(Failure::Timeout),
            FinishReason::Failed => Some(Failure::Agent(told().unwrap_or("it failed and did not say why").to_owned())),
            FinishReason::Cancelled => {
                Some(Failure::Agent(told().unwrap_or("it cancelled a call that nobody asked it to cancel").to_owned()))
            }
        }
    }

    /// The record, with remarks about it; `failure` says why there is no answer, if there is none.
    #[must_use]
    pub fn into_exchange(mut self, failure: Option<Failure>) -> Exchange {
        if self.mode == ToolMode::RoutingOnly {
            // No result is due, so none is missed.
            for call in &mut self.tool_calls {
                call.outcome.get_or_insert(ToolOutcome::NotRun);
            }
        }
        let answer = self.finished.as_ref().and_then(|finished| finished.response.as_ref());
        let is_told_whole = answer.is_some();
        let open = self.tool_calls.iter().filter(|call| call.outcome.is_none());
        let mut warnings = self.finished.as_ref().map(|finished| finished.warnings.clone()).unwrap_or_default();
        if self.finished.is_some() {
            let open =
                open.map(|call| format!("no result was reported for the call of {:?}; it counts as failed", call.name));
            warnings.extend(open);
        }
        let odd = |call: &ToolCall| Some(format!("the arguments of {:?} {}", call.name, call.params.oddity()?));
        warnings.extend(self.tool_calls.iter().filter_map(odd).take(MAX_ODD));
        let is_told = self.finished.is_some() || self.exceeded().is_some();
        warnings.extend(self.turn_limit.filter(|_| is_told).and_then(|limit| self.model_turns.remark(limit)));
        let last = self.said.answer(self.mode);
        let (response, commentary, is_before_a_call) = match answer.map(Message::text) {
            // It was said, and is the answer all the same.
            Some(response) if response == self.said.all() => (response, String::new(), false),
            Some(response) => (response, self.said.split(last.at).0, false),
            None => {
                let (commentary, response) = self.said.split(last.at);
                (response, commentary, last.is_before_a_call)
            }
        };
        if is_before_a_call {
            warnings.push(NOTHING_BEHIND.to_owned());
        }
        let transcript = Transcript {
            response,
            commentary,
            usage: whole_usage(self.finished.as_ref().and_then(|finished| finished.usage), self.turns),
            tool_calls: self.tool_calls,
            duration: self.duration,
            open_end: None,
        };
        let model = self.model.filter(|model| !model.is_empty());
        let spans_flushed = self.finished.as_ref().is_some_and(|finished| finished.spans_flushed);
        Exchange {
            transcript,
            failure,
            warnings,
            model,
            is_told_whole,
            is_before_a_call,
            spans_flushed,
            ..Exchange::default()
        }
    }

    fn turn(&mut self, model: &str, usage: Option<&Usage>) {
        match &mut self.model {
            None => self.model = Some(model.to_owned()),
            Some(known) if known == model => {}
            Some(known) => known.clear(),
        }
        if let Some(usage) = usage {
            self.turns.get_or_insert_default().add(usage);
        }
    }

    fn check_number(&mut self, seq: u64) -> Result<(), Violation> {
        if self.events == 1 {
            self.numbered = seq != 0;
            if !self.numbered {
                self.bend(Leniency::NotNumbered);
            }
        }
        let expected = if self.numbered { self.events } else { 0 };
        if seq == expected {
            return Ok(());
        }
        Err(Violation::Gap { expected, got: seq })
    }

    fn start_tool(&mut self, call: &ToolCall) -> Result<(), Violation> {
        if call.name.is_empty() {
            return Err(Violation::Nameless);
        }
        if call.call_id.is_empty() {
            return Err(Violation::NoCallId(call.name.clone()));
        }
        if self.by_id.contains_key(&call.call_id) {
            return Err(Violation::SameCallId(call.call_id.clone()));
        }
        if self.tool_calls.len() >= TOOL_CALLS {
            return Err(Violation::TooManyCalls);
        }
        self.by_id.insert(call.call_id.clone(), self.tool_calls.len());
        self.tool_calls.push(call.clone());
        self.said.call();
        Ok(())
    }

    fn finish(&mut self, finished: &Finished) {
        // An agent may take all that it said for its answer.
        let all = self.said.all();
        let last = &all[self.said.answer(self.mode).at..];
        if let Some(response) = finished.response.as_ref().map(Message::text)
            && !all.is_empty()
            && response != all
            && response != last
        {
            self.bend(Leniency::DeltasDiffer);
        }
        if finished.tool_calls != 0 && finished.tool_calls as usize != self.tool_calls.len() {
            self.bend(Leniency::CountDiffers);
        }
        if self.mode != ToolMode::RoutingOnly && self.tool_calls.iter().any(|call| call.outcome.is_none()) {
            self.bend(Leniency::CallOpen);
        }
        if let (Some(end), Some(turns)) = (&finished.usage, &self.turns) {
            let differs =
                |end: Option<i64>, turns: Option<i64>| end.zip(turns).is_some_and(|(end, turns)| end != turns);
            if differs(end.input_tokens, turns.input_tokens) || differs(end.output_tokens, turns.output_tokens) {
                self.bend(Leniency::UsageDiffers);
            }
        }
        self.finished = Some(finished.clone());
    }
}

/// What a call used: what its end says, and where that says nothing, the sum of what its model turns said.
fn whole_usage(finished: Option<Usage>, turns: Option<Usage>) -> Option<Usage> {
    let (Some(end), Some(turns)) = (finished, turns) else { return finished.or(turns) };
    Some(Usage {
        input_tokens: end.input_tokens.or(turns.input_tokens),
        output_tokens: end.output_tokens.or(turns.output_tokens),
        cache_read_tokens: end.cache_read_tokens.or(turns.cache_read_tokens),
        cache_write_tokens: end.cache_write_tokens.or(turns.cache_write_tokens),
        reasoning_tokens: end.reasoning_tokens.or(turns.reasoning_tokens),
        cost: end.cost.or(turns.cost),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{Arguments, Message, ModelTurn, ToolOutcome};

    fn accepted() -> AgentEventKind {
        AgentEventKind::Accepted { instance_id: String::new() }
    }
    fn text(text: &str) -> AgentEventKind {
        AgentEventKind::TextDelta { message_id: String::new(), text: text.to_owned(), reasoning: false }
    }
    fn started(id: &str) -> AgentEventKind {
        let call = ToolCall {
            call_id: id.to_owned(),
            name: "t".to_owned(),
            params: Arguments::None,
            outcome: None,
            duration: None,
            turn: 0,
        };
        AgentEventKind::ToolStarted { call, awaits_result: false, model_turn: 0 }
    }
    fn done(id: &str) -> AgentEventKind {
        let outcome = Some(ToolOutcome::Result(None));
        AgentEventKind::ToolFinished { call_id: id.to_owned(), outcome, duration: None }
    }
    fn finished(reason: FinishReason, response: Option<&str>, tool_calls: u32) -> AgentEventKind {
        let response = response.map(Message::assistant);
        AgentEventKind::Finished(Finished {
            reason,
            response,
            usage: None,
            error: None,
            tool_calls,
            spans_flushed: false,
            warnings: Vec::new(),
        })
    }
    fn answer() -> AgentEventKind {
        finished(FinishReason::Completed, None, 0)
    }

    /// Feeds numbered events; the recording, or the rule that was broken.
    fn feed(events: &[AgentEventKind]) -> Result<Recording, Violation> {
        let mut recording = Recording::new(ToolMode::Live);
        for (seq, kind) in (1..).zip(events) {
            let event = AgentEvent { seq, elapsed: None, kind: kind.clone() };
            recording.take(&event, 0, Duration::from_millis(seq))?;
        }
        Ok(recording)
    }

    /// Rules that are bent without harm, by events with the agent's clock.
    #[test]
    fn rules_that_are_bent() {
        let usage = |tokens| Usage { input_tokens: Some(tokens), ..Usage::default() };
        let turn = || AgentEventKind::ModelTurn(ModelTurn { usage: Some(usage(5)), ..ModelTurn::default() });
        let end = |tokens, calls| {
            let AgentEventKind::Finished(end) = finished(FinishReason::Completed, None, calls) else { panic!() };
            AgentEventKind::Finished(Finished { usage: tokens, ..end })
        };
        let none = Vec::new;
        for (events, bent) in [
            (vec![(5, accepted()), (5, text("a")), (6, answer())], none()),
            (vec![(5, accepted()), (4, answer())], vec![Leniency::ElapsedFell]),
            (vec![(1, accepted()), (2, turn()), (3, turn()), (4, end(Some(usage(10)), 0))], none()),
            (vec![(1, accepted()), (2, turn()), (3, end(None, 0))], none()),
            (
                vec![(1, accepted()), (2, turn()), (3, turn()), (4, end(Some(usage(5)), 0))],
                vec![Leniency::UsageDiffers],
            ),
            (vec![(1, accepted()), (2, started("1")), (3, end(None, 1))], vec![Leniency::CallOpen]),
            (vec![(1, text("a")), (2, answer())], vec![Leniency::NotAccepted]),
        ] {
            let mut recording = Recording::new(ToolMode::Live);
            for (seq, (elapsed, kind)) in (1..).zip(&events) {
                let elapsed = Some(Duration::from_millis(*elapsed));
                let event = AgentEvent { seq, elapsed, kind: kind.clone() };
                recording.take(&event, 0, Duration::ZERO).expect("no rule is broken");
            }
            assert_eq!(recording.leniencies(), bent, "{events:?}");
        }
    }

    #[test]
    fn a_whole_call() {
        let recording =
            feed(&[accepted(), text("a"), started("1"), started("2"), done("2"), done("1"), text("b"), answer()]);
        let recording = recording.expect("no rule is broken");
        assert_eq!(recording.failure(), None);
        assert!(recording.leniencies().is_empty());
        let Exchange { transcript, warnings, .. } = recording.into_exchange(None);
        assert_eq!((transcript.response.as_str(), transcript.commentary.as_str()), ("b", "a"));
        assert_eq!(transcript.duration, Duration::from_millis(8));
        assert!(transcript.tool_calls.iter().all(|call| call.success() == Some(true)) && warnings.is_empty());
    }

    #[test]
    fn violations() {
        for (events, rule) in [
            (vec![accepted(), answer(), text("x")], Violation::AfterFinished),
            (vec![accepted(), answer(), answer()], Violation::AfterFinished),
            (vec![accepted(), accepted()], Violation::AcceptedTwice),
            (vec![accepted(), done("1")], Violation::NotStarted("1".to_owned())),
            (vec![accepted(), started("1"), done("1"), done("1")], Violation::FinishedTwice("1".to_owned())),
            (vec![accepted(), started("1"), started("1")], Violation::SameCallId("1".to_owned())),
            (vec![accepted(), started("")], Violation::NoCallId("t".to_owned())),
        ] {
            assert_eq!(feed(&events).map(|_| ()), Err(rule));
        }
    }

    #[test]
    fn numbers() {
        let take = |seqs: &[u64]| -> Result<Vec<Leniency>, Violation> {
            let mut recording = Recording::new(ToolMode::Live);
            for seq in seqs {
                recording.take(&AgentEvent { seq: *seq, elapsed: None, kind: text("x") }, 0, Duration::ZERO)?;
            }
            Ok(recording.leniencies().to_vec())
        };
        assert_eq!(take(&[0, 0, 0]), Ok(vec![Leniency::NotNumbered, Leniency::NotAccepted]));
        assert_eq!(take(&[1, 2, 3]), Ok(vec![Leniency::NotAccepted]));
        for wrong in [&[1, 3][..], &[1, 1], &[2], &[0, 1], &[1, 0]] {
            assert!(take(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn floods_are_stopped() {
        let mut recording = Recording::new(ToolMode::Live);
        let event = |seq| AgentEvent { seq, elapsed: None, kind: text("") };
        let broken = (1..).find_map(|seq| recording.take(&event(seq), 0, Duration::ZERO).err()).expect("it ends");
        assert_eq!(broken, Violation::TooLarge);
        assert!(recording.take(&event(2), usize::MAX - 64, Duration::ZERO).is_err());
    }

    #[test]
    fn what_an_ending_means() {
        let failure = |kind| feed(&[accepted(), kind]).expect("no rule is broken").failure();
        for reason in [FinishReason::Completed, FinishReason::Refused, FinishReason::MaxTokens] {
            assert_eq!(failure(finished(reason, Some("x"), 0)), None);
        }
        assert_eq!(failure(finished(FinishReason::BudgetExceeded, None, 0)), Some(Failure::Timeout));
        assert!(matches!(failure(finished(FinishReason::Cancelled, None, 0)), Some(Failure::Agent(_))));
        assert!(matches!(failure(text("x")), Some(Failure::Protocol(_))));
    }

    #[test]
    fn bent_rules() {
        let recording = feed(&[accepted(), text("a"), started("1"), finished(FinishReason::Completed, Some("b"), 2)]);
        let recording = recording.expect("no rule is broken");
        assert_eq!(recording.leniencies(), [Leniency::DeltasDiffer, Leniency::CountDiffers, Leniency::CallOpen]);
        let Exchange { transcript, warnings, .. } = recording.into_exchange(None);
        assert_eq!(transcript.response, "b");
        assert_eq!(warnings, ["no result was reported for the call of \"t\"; it counts as failed"]);
    }

    #[test]
    fn what_model_turns_used_adds_up() {
        let turn = |model: &str, tokens| {
            let usage = Some(Usage { output_tokens: Some(tokens), ..Usage::default() });
            AgentEventKind::ModelTurn(ModelTurn { model: model.to_owned(), usage, ..ModelTurn::default() })
        };
        let exchange = |turns: [AgentEventKind; 2]| {
            let [first, second] = turns;
            feed(&[accepted(), first, second, answer()]).expect("no rule is broken").into_exchange(None)
        };
        let same = exchange([turn("m", 3), turn("m", 4)]);
        let tokens = same.transcript.usage.and_then(|usage| usage.output_tokens);
        assert_eq!((tokens, same.model.as_deref()), (Some(7), Some("m")));
        assert_eq!(exchange([turn("m", 3), turn("n", 4)]).model, None);
    }
}
