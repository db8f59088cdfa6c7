//! A run as a log of events: the one vocabulary of engine, store, wire, reports and telemetry.
//!
//! Events of a run are numbered 1, 2, 3 without gaps and stored before anybody sees them. The first is
//! `RunStarted`, the last `RunFinished`; every planned case has one `CaseFinished`, also when it was never started.

mod weight;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::case::CaseRef;
use crate::conversation::{
    AgentCard, AgentEvent, CancelReason, Failure, Fault, JsonText, Message, SpanEvidence, ToolMode, ToolOutcome, Usage,
};
use crate::plan::RunSpec;
use crate::suite::identity::Identity;
use crate::suite::staleness::Staleness;
use crate::suite::{Labels, ModeKind, Tier};
use crate::trace::RunTrace;
use crate::verdict::baseline::Comparison;
use crate::verdict::gate::{GateResult, Passage};
use crate::verdict::{CaseResult, Totals, Turn};

/// One entry of a run's log.
#[derive(Debug, Clone, PartialEq)]
pub struct RunEvent {
    /// Position in the log, from 1.
    pub sequence: u64,
    /// When it was stored, by the daemon's clock.
    pub at: Timestamp,
    /// The case it belongs to; `None` for events of the run.
    pub case: Option<CaseRef>,
    /// Turn of the dialogue, from 1; 0 where there is none.
    pub turn: u32,
    /// What happened.
    pub payload: Payload,
}

/// An event before it is stored: it has no number yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    /// The case it belongs to; `None` for events of the run.
    pub case: Option<CaseRef>,
    /// Turn of the dialogue, from 1; 0 where there is none.
    pub turn: u32,
    /// What happened.
    pub payload: Payload,
}

impl Draft {
    /// The event as it is stored.
    #[must_use]
    pub fn stored(mut self, sequence: u64, at: Timestamp) -> RunEvent {
        if let Payload::RunStarted(run) | Payload::RunFinished(run) = &mut self.payload {
            run.last_sequence = sequence;
        }
        RunEvent { sequence, at, case: self.case, turn: self.turn, payload: self.payload }
    }
}

/// What a [`RunEvent`] says.
#[derive(Debug, Clone, PartialEq)]
pub enum Payload {
    /// The run begins; its state is `Running`.
    RunStarted(Box<Run>),
    /// A case was selected; these come in the order of the files, before any case starts.
    CasePlanned {
        /// What the case is about, for people.
        name: String,
        /// What its author noted beside it.
        labels: Labels,
    },
    /// A case is being sent to the agent.
    CaseStarted {
        /// How it is run.
        mode: ModeKind,
        /// What happens to the tools.
        tool_mode: ToolMode,
        /// Id of the call, unique for case and attempt.
        invocation_id: String,
    },
    /// The agent said something; text deltas are not stored.
    Agent(AgentEvent),
    /// The daemon answered a tool call from the case's stubs.
    StubServed {
        /// The call.
        call_id: String,
        /// What was sent.
        outcome: ToolOutcome,
        /// Whether the case has no stub for that tool.
        unstubbed: bool,
    },
    /// The agent under test described itself; so it does again after a restart.
    AgentDescribed(Box<AgentCard>),
    /// A call of an agent is over; what it said stands before this.
    CallEnded(Box<CallEnd>),
    /// The spans of a call were read; it stands before the end of the call.
    SpansRead(Box<SpanEvidence>),
    /// A simulator or validator answered, or failed to.
    PartySaid(Box<PartySaid>),
    /// A turn of a dialogue was answered.
    TurnFinished(Turn),
    /// A checkpoint of a dialogue was reached.
    CheckpointReached {
        /// Its id.
        checkpoint: String,
    },
    /// What came of an attempt at a case that is tried again; it counts in no sum.
    AttemptFinished(Box<CaseResult>),
    /// The verdict on a case, after its last attempt.
    CaseFinished(Box<CaseResult>),
    /// The values of snapshot tokens, as somebody gave them before the first case.
    SnapshotTaken(JsonText),
    /// Something worth knowing that changes no verdict.
    Warning(String),
    /// The run is over; nothing follows.
    RunFinished(Box<Run>),
}

impl Payload {
    /// Whether it says more of the run than how far it is: that is stored apart, because it may be large.
    #[must_use]
    pub const fn is_of_run(&self) -> bool {
        matches!(self, Self::RunStarted(_) | Self::AgentDescribed(_) | Self::Warning(_) | Self::RunFinished(_))
    }
}

/// How a call of an agent ended.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CallEnd {
    /// Its name; empty: the agent under test.
    pub to: String,
    /// Names what was sent: the same again has the same digest.
    pub digest: String,
    /// Why there is no answer, if there is none.
    pub failure: Option<Failure>,
    /// The answer, where no event holds it as a whole.
    pub response: Option<String>,
    /// What was said before the answer, between tool calls. The log holds no other event of it.
    pub commentary: String,
    /// Whether the agent called a tool after its answer, and said nothing then.
    pub is_before_a_call: bool,
    /// When it began; `None` in logs of earlier versions.
    pub began: Option<Timestamp>,
    /// How long it took.
    pub duration: Duration,
    /// Id of the call; empty in logs of earlier versions.
    pub invocation_id: String,
    /// Ties the turns of a case together.
    pub conversation_id: String,
    /// The agent exports spans of its model turns and tool calls itself.
    pub exports_spans: bool,
    /// What was sent, if traces are to hold it; files in it only by their names.
    pub input: Vec<Message>,
    /// Where the agent was to be reached: its URL; empty: it is the one under test, whose address the run holds, or
    /// what it said is played back.
    pub endpoint: String,
    /// Why the daemon asked the agent to end the call; `None`: it did not.
    pub cancel: Option<CancelReason>,
    /// The gRPC status that the call ended with, by number; `None`: nothing was sent.
    pub grpc_status: Option<i32>,
}

/// What a party does in a case besides the agent under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartyRole {
    /// It plays the user.
    Simulator,
    /// It judges answers.
    Validator,
}

impl PartyRole {
    /// The word used in traces and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Simulator => "simulator",
            Self::Validator => "validator",
        }
    }
}

/// What a simulator or validator answered.
#[derive(Debug, Clone, PartialEq)]
pub struct PartySaid {
    /// What it was asked to be.
    pub role: PartyRole,
    /// How it is called.
    pub by: String,
    /// Names what it was asked: the same again has the same digest.
    pub digest: String,
    /// What it said.
    pub said: Said,
    /// Id of the question; empty in logs of earlier versions.
    pub request_id: String,
    /// When it was asked; `None` in logs of earlier versions.
    pub began: Option<Timestamp>,
    /// How long it took.
    pub duration: Duration,
    /// Where it was to be reached: its URL; empty: nobody knows, or what it said is played back.
    pub endpoint: String,
    /// What it consumed, if it says so.
    pub usage: Option<Usage>,
    /// What it was asked, if traces are to hold it.
    pub asked: Option<Asked>,
}

/// What a simulator or validator was asked, for people who read traces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Asked {
    /// Who to be and what to want, or what to judge by: a text for each.
    pub instructions: Vec<String>,
    /// The conversation so far, with the answer that is judged; files in it only by their names.
    pub messages: Vec<Message>,
}

/// What a simulator or validator said.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// What the user says next.
    Input {
        /// The message; `None`: nothing.
        message: Option<Message>,
        /// Nothing follows.
        is_last: bool,
        /// Why, in the simulator's own words; empty: it does not say.
        reasoning: String,
    },
    /// A vote on an answer.
    Vote {
        /// Whether it holds.
        passed: bool,
        /// Why.
        reason: String,
        /// How well the answer does, from 0 to 1.
        score: Option<f64>,
        /// The reply as it came.
        reply: String,
    },
    /// Nothing; this is why.
    Silence(String),
    /// Nothing that anybody waited for: the run was cancelled.
    Cancelled,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Accepted, not begun.
    Queued,
    /// Cases are being run.
    Running,
    /// Somebody cancelled it; cases in flight are being ended.
    Cancelling,
    /// Every case passed.
    Passed,
    /// A case failed, and there was no trouble.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// A case could not be judged, or the run could not begin.
    Errored,
}

impl State {
    /// Whether the run is over.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Passed | Self::Failed | Self::Cancelled | Self::Errored)
    }

    /// The word used in reports and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Cancelling => "cancelling",
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Errored => "errored",
        }
    }

    /// The state in which a run ends that was not cancelled. Trouble outranks what came of its gate.
    #[must_use]
    pub const fn of(totals: &Totals, gate: Option<Passage>) -> Self {
        match (totals.exit_code(), gate) {
            // Nothing was run, as its author wanted; the exit code says so.
            (4, _) | (0, None) | (0 | 1, Some(Passage::Passed)) => Self::Passed,
            (1, None) | (0 | 1, Some(Passage::Failed)) => Self::Failed,
            _ => Self::Errored,
        }
    }
}

/// A run as clients see it.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Id of the run, a UUID.
    pub run_id: String,
    /// What was asked for; shared, as it may be large and a run is copied for every batch of its events.
    pub spec: Arc<RunSpec>,
    /// How far it is.
    pub state: State,
    /// Sums over the cases that are finished; `total` is the plan's.
    pub totals: Totals,
    /// When the run was accepted.
    pub created_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Number of the newest event.
    pub last_sequence: u64,
    /// Why the run could not begin or go on.
    pub error: Option<Fault>,
    /// Things worth knowing that change no verdict.
    pub warnings: Vec<String>,
    /// The agent as it described itself; `None` when it could not be asked, or before.
    pub agent: Option<AgentCard>,
    /// Where the daemon reaches the agent: its URL.
    pub agent_endpoint: String,
    /// The suites of the run, in order.
    pub suites: Vec<SuiteInfo>,
    /// No further case starts until somebody says so.
    pub paused: bool,
    /// Cases at the same time from now on; `None`: what was asked for.
    pub concurrency: Option<u32>,
    /// What came of the gate; `None` until the run is over, or when there is none.
    pub gate: Option<GateResult>,
}

impl Run {
    /// The trace that its spans belong to.
    #[must_use]
    pub fn trace(&self) -> RunTrace {
        RunTrace::new(&self.run_id, self.spec.trace_parent.clone())
    }
}

/// Most warnings that a run keeps beside its log.
const MAX_RUN_WARNINGS: usize = 100;

impl Run {
    /// Takes what the next event of the log says: a run is what its events say.
    pub fn apply(&mut self, payload: &Payload) {
        match payload {
            Payload::RunStarted(run) | Payload::RunFinished(run) => *self = (**run).clone(),
            Payload::AgentDescribed(card) => self.agent = Some((**card).clone()),
            Payload::CaseFinished(result) => self.totals.add(result),
            Payload::Warning(text) if self.warnings.len() < MAX_RUN_WARNINGS => self.warnings.push(text.clone()),
            Payload::Warning(_)
            | Payload::CasePlanned { .. }
            | Payload::CaseStarted { .. }
            | Payload::Agent(_)
            | Payload::StubServed { .. }
            | Payload::CallEnded(_)
            | Payload::SpansRead(_)
            | Payload::PartySaid(_)
            | Payload::TurnFinished(_)
            | Payload::CheckpointReached { .. }
            | Payload::SnapshotTaken(_)
            | Payload::AttemptFinished(_) => {}
        }
    }

    /// Whether any of its cases was run.
    #[must_use]
    pub const fn has_run_any(&self) -> bool {
        self.totals.passed + self.totals.failed + self.totals.errored > 0
    }

    /// Why it could not begin, or not go on, in words; `None`: nothing kept it from that.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let fault = self.error.as_ref()?;
        let what = if self.has_run_any() { "go on" } else { "begin" };
        Some(format!("the run could not {what}: {}", fault.message))
    }

    /// The exit code of a client that waited for this run: 3 when it was cancelled or could not begin, or a gate
    /// cannot be judged, else what came of the gate, else that of its totals. A regression is a case that did not
    /// pass, so it is in there.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match (self.state, &self.gate) {
            (State::Passed | State::Failed, _) if self.error.is_some() => 3,
            // Nothing was run: that is said whatever else there is to say.
            (State::Passed, Some(_)) if self.totals.passed > 0 || self.totals.failed > 0 => 0,
            (State::Failed, Some(_)) => 1,
            (State::Passed | State::Failed, _) => self.totals.exit_code(),
            _ => 3,
        }
    }
}

/// What the log says about a suite of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuiteInfo {
    /// Path of the file.
    pub path: String,
    /// What the suite is about.
    pub tool_name: String,
    /// Its tier.
    pub tier: Tier,
    /// First 12 hexadecimal digits of SHA-256 over the bytes of the file.
    pub eval_file_hash: String,
    /// Number of selected cases.
    pub cases: u32,
    /// What is odd about the file.
    pub warnings: Vec<String>,
    /// What the file recorded against the tools of today; `None` until the agent was asked, or when nobody knows them.
    pub staleness: Option<Staleness>,
    /// What came of comparing with an earlier result; `None` until the run is over, or when there is none.
    pub comparison: Option<Comparison>,
}

impl SuiteInfo {
    /// What the suite is known by, of whose cases these are the ids.
    #[must_use]
    pub fn identity<'a>(&'a self, ids: Vec<&'a str>) -> Identity<'a> {
        let Self { path, tool_name, tier, eval_file_hash: file_hash, .. } = self;
        Identity { path, file_hash, tool_name, tier: Some(*tier), ids }
    }
}
