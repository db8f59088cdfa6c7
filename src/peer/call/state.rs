//! A call as a state machine: what everything that comes of it means, and what is to be done then.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use tokio::time::Instant;
use tonic::{Code, Status};

use crate::conversation::{AgentEvent, CancelReason, Exchange, Failure, ToolMode, ToolOutcome};
use crate::peer::output::Output;
use crate::peer::status::{BrokenCall, Standing, trouble};
use crate::peer::stream::{Leniency, Recording, Violation};

/// Most results of tools that wait for an agent to read them.
const MAX_WAITING_RESULTS: usize = 1_000;

/// What the daemon answers to a tool call in place of the tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// Id of the tool call.
    pub call_id: String,
    /// What comes of it.
    pub outcome: ToolOutcome,
    /// Whether the case has no answer for this tool call.
    pub unstubbed: bool,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// Why there is no answer; `None`: the record says whether there is one.
    pub failure: Option<Failure>,
    /// Why the agent is asked to end the call; `None`: it is not.
    pub cancel: Option<CancelReason>,
    /// The gRPC status that the call ended with for the daemon; `None`: nothing was sent.
    pub status: Option<Code>,
    /// Why the agent takes no other call either, if it is known that it does not.
    pub absence: Option<Absence>,
    /// How much of its time the call took.
    pub took: Took,
}

/// Why an agent takes no call; the failure of the call says it in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence {
    /// The party that stands in for it cannot reach it, or leaves.
    Unreached,
    /// It takes no call as things are set up.
    Misconfigured,
}

/// How much of an agent's time a call took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Took {
    /// None: the agent never had the call.
    Nothing,
    /// All until the call ended.
    UntilNow,
    /// What its last event says.
    UntilLastEvent,
}

impl Ending {
    /// The end of a call that never came to the agent.
    #[must_use]
    pub const fn before(failure: Failure, status: Option<Code>) -> Self {
        Self { failure: Some(failure), cancel: None, status, absence: None, took: Took::Nothing }
    }

    /// The end of a call that the daemon ends while the agent is at it.
    #[must_use]
    pub const fn given_up(failure: Failure, reason: CancelReason) -> Self {
        let status = match reason {
            CancelReason::Budget => Code::DeadlineExceeded,
            CancelReason::User
            | CancelReason::FailFast
            | CancelReason::ProtocolError
            | CancelReason::Shutdown
            | CancelReason::Decided
            | CancelReason::MaxTurns => Code::Cancelled,
        };
        Self { failure: Some(failure), cancel: Some(reason), status: Some(status), absence: None, took: Took::UntilNow }
    }

    /// The end of a call in which the agent broke a rule.
    #[must_use]
    pub fn broken(rule: impl Display) -> Self {
        Self::given_up(Failure::Protocol(rule.to_string()), CancelReason::ProtocolError)
    }

    /// The end of a call with a status of the agent, or of the transport.
    const fn with_status(failure: Option<Failure>, status: Code) -> Self {
        Self { failure, cancel: None, status: Some(status), absence: None, took: Took::UntilNow }
    }

    /// The exchange of a call that ended so, from what was recorded of it. `now`: how much of the agent's time it
    /// took until it ended.
    #[must_use]
    pub fn exchange(self, recorded: Exchange, now: Duration) -> Exchange {
        let status = self.status.map(i32::from);
        let mut exchange = Exchange { cancel: self.cancel, grpc_status: status, ..recorded };
        match self.took {
            Took::Nothing => exchange.transcript.duration = Duration::ZERO,
            Took::UntilNow => exchange.transcript.duration = now,
            Took::UntilLastEvent => {}
        }
        exchange
    }
}

/// What comes of an attempt to open a call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotOpened {
    /// The agent never got the call, so it may be made again; why it did not, for people.
    NotDelivered(String),
    /// The call is over.
    Over(Ending),
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Waiting for what comes.
    Wait,
    /// The answer is complete: the call is to be closed.
    Close,
    /// The call is over.
    End(Ending),
}

/// How the agent closed a call after its last event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    /// With status OK, or nobody waited for that.
    Good,
    /// With another status.
    Status(Code),
    /// Not in time.
    Late,
    /// It said something else.
    Event,
}

/// What is known of a call from the first attempt to open it until its end.
#[derive(Debug)]
pub struct CallState {
    /// The other side may speak of an agent behind it.
    stands_in: bool,
    recording: Recording,
    output: Output,
    /// Results that are not due, or that the agent has not taken yet, by when they are due and in the order of the
    /// tool calls.
    results: BTreeMap<(Instant, usize), ToolResult>,
    answered: usize,
    /// The rule that was broken.
    broken: Option<Violation>,
}

impl CallState {
    /// A call that was not made yet, whose bytes count as `output`. `most_turns`: the most model turns it may take,
    /// if limited; `stands_in`: whether the other side declares [`STAND_IN`](crate::peer::status::STAND_IN).
    #[must_use]
    pub fn new(mode: ToolMode, most_turns: Option<u32>, stands_in: bool, output: Output) -> Self {
        let recording = Recording::new(mode).limited_to(most_turns);
        Self { stands_in, recording, output, results: BTreeMap::new(), answered: 0, broken: None }
    }

    /// Says what a status means with which an attempt to open the call ended. `sent`: the transport had taken the
    /// start frame.
    #[must_use]
    pub fn not_opened(&self, status: &Status, sent: bool) -> NotOpened {
        let standing = Standing { sent, answered: false, stands_in: self.stands_in };
        let code = status.code();
        NotOpened::Over(match trouble(status, standing) {
            BrokenCall::NotDelivered(why) => return NotOpened::NotDelivered(why),
            BrokenCall::Over(failure) => Ending::with_status(Some(failure), code),
            BrokenCall::Beyond(why) => {
                Ending { absence: Some(Absence::Unreached), ..Ending::before(Failure::Unreachable(why), Some(code)) }
            }
            BrokenCall::Misconfigured(why) => misconfigured(why, code),
        })
    }

    /// Whether nothing came yet.
    #[must_use]
    pub const fn is_unanswered(&self) -> bool {
        self.recording.is_empty()
    }

    /// Counts a frame of `bytes` bytes, before it is read.
    ///
    /// # Errors
    /// How the call ends when it is too much.
    pub fn count(&mut self, bytes: usize) -> Result<(), Ending> {
        self.output.add(bytes).map_err(Ending::broken)
    }

    /// Takes an event, a frame of `bytes` bytes that came `at` after the start frame was sent, and returns the
    /// rules that were bent for the first time.
    ///
    /// # Errors
    /// How the call ends with an event that breaks a rule. The record ends before it.
    pub fn take(&mut self, event: &AgentEvent, bytes: usize, at: Duration) -> Result<Vec<Leniency>, Ending> {
        let before = self.recording.leniencies().len();
        if let Err(broken) = self.recording.take(event, bytes, at) {
            self.broken = Some(broken.clone());
            return Err(Ending::broken(broken));
        }
        Ok(self.recording.leniencies()[before..].to_vec())
    }

    /// Keeps what is answered to a tool call until it is `due`, and the agent has room for it.
    pub fn answer(&mut self, result: ToolResult, due: Instant) {
        self.answered += 1;
        self.results.insert((due, self.answered), result);
    }

    /// When the next result is due; `None`: there is none.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.results.first_key_value().map(|((due, _), _)| *due)
    }

    /// The result that is due next, which is to be sent.
    pub fn take_result(&mut self) -> Option<ToolResult> {
        self.results.pop_first().map(|(_, result)| result)
    }

    /// Says what is to be done when an event was taken, and answered if it is a tool call.
    #[must_use]
    pub fn step(&self, now: Instant) -> Step {
        if let Some(most) = self.recording.exceeded() {
            return Step::End(Ending::given_up(Failure::MaxTurns(most), CancelReason::MaxTurns));
        }
        let due = || self.results.range(..=(now, usize::MAX)).count();
        if self.results.len() > MAX_WAITING_RESULTS && due() > MAX_WAITING_RESULTS {
            let rule = format!("it does not read the results of its tools: {MAX_WAITING_RESULTS} are waiting");
            return Step::End(Ending::broken(rule));
        }
        if self.recording.is_finished() { Step::Close } else { Step::Wait }
    }

    /// The end of a call whose stream ended before the answer was complete, with this status.
    #[must_use]
    pub fn ended(&mut self, status: &Status) -> Ending {
        let code = status.code();
        if code == Code::Ok {
            self.broken = Some(Violation::Unfinished);
            return Ending::with_status(None, Code::Ok);
        }
        let standing = Standing { sent: true, answered: !self.is_unanswered(), stands_in: self.stands_in };
        match trouble(status, standing) {
            BrokenCall::Over(failure) => Ending::with_status(Some(failure), code),
            BrokenCall::NotDelivered(why) => Ending::with_status(Some(Failure::Lost(why)), code),
            BrokenCall::Beyond(why) => Ending {
                absence: Some(Absence::Unreached),
                ..Ending::with_status(Some(Failure::Unreachable(why)), code)
            },
            BrokenCall::Misconfigured(why) => misconfigured(why, code),
        }
    }

    /// The end of a call whose answer is complete, by how the agent closed it, and the rule that this bends.
    #[must_use]
    pub fn closed(&mut self, closing: Closing) -> (Ending, Option<Leniency>) {
        let (failure, status, bent) = match closing {
            Closing::Good => (None, Code::Ok, None),
            Closing::Status(code) => (None, code, Some(Leniency::LeftOpen)),
            Closing::Late => (None, Code::Cancelled, Some(Leniency::LeftOpen)),
            Closing::Event => {
                let rule = Violation::AfterFinished;
                let failure = Failure::Protocol(rule.to_string());
                self.broken = Some(rule);
                (Some(failure), Code::Cancelled, None)
            }
        };
        if let Some(rule) = bent {
            self.recording.bend(rule);
        }
        (Ending { took: Took::UntilLastEvent, ..Ending::with_status(failure, status) }, bent)
    }

    /// The rules that were bent or broken, with what to tell the agent's authors.
    pub fn bent(&self) -> impl Iterator<Item = (&'static str, String)> {
        let bent = self.recording.leniencies().iter().map(|rule| (rule.rule(), rule.message().to_owned()));
        bent.chain(self.broken.iter().map(|rule| (rule.rule(), rule.to_string())))
    }

    /// Bytes of what was recorded that have to be read to make an exchange of it.
    #[must_use]
    pub fn odd_bytes(&self) -> usize {
        self.recording.odd_bytes()
    }

    /// What was recorded, with remarks about it. `failure`: why there is no answer, where the record does not say
    /// that itself.
    #[must_use]
    pub fn into_exchange(self, failure: Option<Failure>) -> Exchange {
        let failure = failure.or_else(|| self.recording.failure());
        self.recording.into_exchange(failure)
    }
}

fn misconfigured(why: String, code: Code) -> Ending {
    Ending { absence: Some(Absence::Misconfigured), ..Ending::with_status(Some(Failure::Unreachable(why)), code) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{AgentEventKind, Arguments, FinishReason, Finished, Message, ModelTurn, ToolCall};
    use crate::limits::RUN_BYTES;
    use crate::peer::output::Outputs;

    /// What comes of a call.
    enum Comes {
        Event(AgentEventKind),
        /// An event in a frame of this size.
        Large(AgentEventKind, usize),
        /// The stream ends.
        End(Status),
        /// The agent closes the call after its last event.
        Closed(Closing),
    }
    use Comes::{Closed, End, Event, Large};

    fn accepted() -> Comes {
        Event(AgentEventKind::Accepted { instance_id: String::new() })
    }
    fn turn(index: u32) -> Comes {
        Event(AgentEventKind::ModelTurn(ModelTurn { index, ..ModelTurn::default() }))
    }
    fn tool(call_id: &str) -> AgentEventKind {
        let call = ToolCall {
            call_id: call_id.to_owned(),
            name: "t".to_owned(),
            params: Arguments::None,
            outcome: None,
            duration: None,
            turn: 0,
        };
        AgentEventKind::ToolStarted { call, awaits_result: true, model_turn: 0 }
    }
    fn finished(reason: FinishReason) -> Comes {
        Event(AgentEventKind::Finished(Finished {
            reason,
            response: Some(Message::assistant("fine")),
            usage: None,
            error: None,
            tool_calls: 0,
            spans_flushed: false,
            warnings: Vec::new(),
        }))
    }
    fn answer() -> Comes {
        finished(FinishReason::Completed)
    }
    fn result(call_id: &str) -> ToolResult {
        ToolResult { call_id: call_id.to_owned(), outcome: ToolOutcome::NotRun, unstubbed: false }
    }

    /// A call that may take two model turns.
    fn call() -> CallState {
        CallState::new(ToolMode::Stub, Some(2), true, Outputs::default().begin())
    }

    /// Feeds a call until it ends, each event a second after the one before; what it is told at the end, if it ends.
    fn feed(state: &mut CallState, comes: Vec<Comes>) -> Option<Ending> {
        let now = Instant::now();
        for (seq, comes) in (1..).zip(comes) {
            let (kind, bytes) = match comes {
                Event(kind) => (kind, 10),
                Large(kind, bytes) => (kind, bytes),
                End(status) => return Some(state.ended(&status)),
                Closed(closing) => return Some(state.closed(closing).0),
            };
            let event = AgentEvent { seq, elapsed: None, kind };
            let taken = state.count(bytes).and_then(|()| state.take(&event, bytes, Duration::from_secs(seq)));
            if let Err(ending) = taken {
                return Some(ending);
            }
            if let AgentEventKind::ToolStarted { call, .. } = &event.kind {
                state.answer(result(&call.call_id), now);
            }
            match state.step(now) {
                Step::Wait | Step::Close => {}
                Step::End(ending) => return Some(ending),
            }
        }
        None
    }

    /// A status that the transport made up, from a lost connection.
    fn lost() -> Status {
        Status::from_error(Box::new(std::io::Error::other("broken pipe")))
    }

    /// How calls end: what the failure says, why the agent is asked to end, with what status, and how long the call
    /// took.
    #[test]
    fn endings() {
        let (closed, cancelled) = (Some(Code::Ok), Some(Code::Cancelled));
        let (protocol, turns) = (Some(CancelReason::ProtocolError), Some(CancelReason::MaxTurns));
        let many = || (0..=MAX_WAITING_RESULTS).map(|number| Event(tool(&number.to_string())));
        for (name, comes, failure, cancel, status, secs) in [
            ("an answer", vec![accepted(), answer(), Closed(Closing::Good)], "None", None, closed, 2),
            ("no answer", vec![accepted(), End(Status::ok(""))], "without `finished`", None, closed, 9),
            ("nothing at all", vec![End(Status::ok(""))], "without `finished`", None, closed, 9),
            (
                "its failure",
                vec![accepted(), finished(FinishReason::Failed), Closed(Closing::Good)],
                "Agent(\"it failed",
                None,
                closed,
                2,
            ),
            ("left open", vec![answer(), Closed(Closing::Late)], "None", None, cancelled, 1),
            (
                "a late status",
                vec![answer(), Closed(Closing::Status(Code::Internal))],
                "None",
                None,
                Some(Code::Internal),
                1,
            ),
            ("more behind it", vec![answer(), Closed(Closing::Event)], "after `finished`", None, cancelled, 1),
            ("a broken rule", vec![accepted(), accepted()], "`accepted` came twice", protocol, cancelled, 9),
            ("too much", vec![Large(tool("1"), RUN_BYTES + 1)], "together", protocol, cancelled, 9),
            ("too many turns", vec![turn(1), turn(2), turn(3)], "MaxTurns(2)", turns, cancelled, 9),
            ("unread results", many().collect(), "does not read the results", protocol, cancelled, 9),
            ("a status", vec![End(Status::internal("oops"))], "Agent(\"INTERNAL: oops", None, Some(Code::Internal), 9),
            ("a lost connection", vec![accepted(), End(lost())], "Lost(\"broken pipe", None, Some(Code::Unknown), 9),
        ] {
            let mut state = call();
            let ending = feed(&mut state, comes).expect(name);
            assert_eq!((ending.cancel, ending.status, ending.absence), (cancel, status, None), "{name}");
            let recorded = state.into_exchange(ending.failure.clone());
            let exchange = ending.exchange(recorded, Duration::from_secs(9));
            assert!(format!("{:?}", exchange.failure).contains(failure), "{name}: {:?}", exchange.failure);
            assert_eq!(exchange.transcript.duration, Duration::from_secs(secs), "{name}");
            assert_eq!(exchange.grpc_status, status.map(i32::from), "{name}");
        }
    }

    #[test]
    fn a_call_goes_on_until_its_last_event() {
        let mut state = call();
        assert!(state.is_unanswered());
        assert_eq!(feed(&mut state, vec![accepted(), turn(1), Event(tool("1"))]), None);
        assert_eq!((state.is_unanswered(), state.step(Instant::now())), (false, Step::Wait));
        let event = AgentEvent { seq: 4, elapsed: None, kind: AgentEventKind::Unknown };
        assert_eq!(state.take(&event, 1, Duration::ZERO), Ok(vec![Leniency::UnknownEvent]));
        let event = AgentEvent { seq: 5, ..event };
        assert_eq!(state.take(&event, 1, Duration::ZERO), Ok(Vec::new()), "a rule is bent once");
        let Event(kind) = answer() else { panic!("an event") };
        let last = AgentEvent { seq: 6, elapsed: None, kind };
        assert_eq!(state.take(&last, 1, Duration::ZERO), Ok(vec![Leniency::CallOpen]));
        assert_eq!(state.step(Instant::now()), Step::Close);
        assert_eq!(state.closed(Closing::Late).1, Some(Leniency::LeftOpen));
        assert_eq!(state.closed(Closing::Good).1, None);
    }

    #[test]
    fn results_go_out_when_they_are_due_and_in_the_order_of_their_calls() {
        let (mut state, now) = (call(), Instant::now());
        let later = now + Duration::from_secs(1);
        assert_eq!((state.next_due(), state.take_result()), (None, None));
        for (call_id, due) in [("late", later), ("first", now), ("second", now)] {
            state.answer(result(call_id), due);
        }
        assert_eq!(state.next_due(), Some(now));
        let order: Vec<_> = std::iter::from_fn(|| state.take_result()).map(|result| result.call_id).collect();
        assert_eq!(order, ["first", "second", "late"]);
        // Those that wait for their time are not unread.
        for number in 0..=MAX_WAITING_RESULTS {
            state.answer(result(&number.to_string()), later);
        }
        assert_eq!(state.step(now), Step::Wait);
        assert!(matches!(state.step(later), Step::End(Ending { cancel: Some(CancelReason::ProtocolError), .. })));
    }

    /// What an attempt to open a call means that failed: whether it may be repeated, and who is to blame.
    #[test]
    fn attempts_that_failed() {
        use crate::peer::status::{AGENT_MISCONFIGURED, AGENT_UNREACHABLE, CASE_UNSUPPORTED};
        use tonic_types::{ErrorDetails, StatusExt as _};

        let says = |code, reason: &str| {
            Status::with_error_details(code, "why", ErrorDetails::with_error_info(reason, "forge", []))
        };
        let over = |failure: Failure, absence, took, code| {
            let status = Some(code);
            NotOpened::Over(Ending { failure: Some(failure), cancel: None, status, absence, took })
        };
        let unreachable = || Failure::Unreachable("why".to_owned());
        let state = call();
        assert_eq!(state.not_opened(&lost(), false), NotOpened::NotDelivered("broken pipe".to_owned()));
        for (status, expected) in [
            (lost(), over(Failure::Lost("broken pipe".to_owned()), None, Took::UntilNow, Code::Unknown)),
            (
                says(Code::Unavailable, AGENT_UNREACHABLE),
                over(unreachable(), Some(Absence::Unreached), Took::Nothing, Code::Unavailable),
            ),
            (
                says(Code::FailedPrecondition, AGENT_MISCONFIGURED),
                over(unreachable(), Some(Absence::Misconfigured), Took::UntilNow, Code::FailedPrecondition),
            ),
            (
                says(Code::FailedPrecondition, CASE_UNSUPPORTED),
                over(Failure::Suite("why".to_owned()), None, Took::UntilNow, Code::FailedPrecondition),
            ),
            (
                Status::internal("oops"),
                over(Failure::Agent("INTERNAL: oops".to_owned()), None, Took::UntilNow, Code::Internal),
            ),
        ] {
            assert_eq!(state.not_opened(&status, true), expected, "{status:?}");
        }
        // An agent that stands in for nobody speaks of itself alone.
        let alone = CallState::new(ToolMode::Live, None, false, Outputs::default().begin());
        let NotOpened::Over(ending) = alone.not_opened(&says(Code::Unavailable, AGENT_UNREACHABLE), true) else {
            panic!("it is over");
        };
        assert_eq!((ending.absence, ending.took), (None, Took::UntilNow));
    }
}
