//! Evidence of an earlier run in place of agents: what they answered then to what they are sent now.
//!
//! What came of every call is logged with a digest of what was sent and to whom, and so is every answer of a
//! simulator or validator. A run that replays looks its own questions up by that, among those of the same
//! execution: of the same case in the same suite and the same repetition, in the attempt that its verdict was
//! about. What was never asked there has no answer, and its case cannot be judged; what was never run then has no
//! verdict now, for the same reason. Nothing is tried again, as the same answer would come. Of the earlier log only
//! an index is held; what is needed of it is read when it is.

mod index;

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use crate::case::{CaseName, CaseRef};
use crate::conversation::{AgentCard, AgentEvent, Description, Exchange, JsonText, ToolMode, Transcript};
use crate::event::{Payload, Run, RunEvent, Said};
use crate::peer::spans::reconcile;
use crate::peer::stream::{NOTHING_BEHIND, Recording};
use crate::suite::Suite;
use crate::suite::identity::{Identity, pair};
use crate::verdict::{Blame, CaseResult, Cause, LEFT_OUT, Outcome};
use crate::work::in_place;
pub use index::Index;
use index::{Came, Ended, Key, LogRange, Then, Turns, key};

/// Reads the events of a case in the earlier log, from one number to another.
pub type ReadLog =
    Box<dyn Fn(CaseRef, u64, u64) -> BoxFuture<'static, Result<Vec<Arc<RunEvent>>, BoxError>> + Send + Sync>;

/// Why a log cannot be read, wherever it is kept.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Why an earlier run does not say what would be answered now.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoAnswer {
    /// It holds none.
    #[error("the run {run_id} holds no answer: {what}")]
    Missing { run_id: String, what: String },
    /// Its log cannot be read.
    #[error(transparent)]
    Log(BoxError),
}

/// What an earlier run has to say.
pub struct Evidence {
    /// Its id.
    pub run_id: String,
    /// Whether validators are asked anew.
    pub asks_validators: bool,
    /// The agent, as it described itself then.
    pub card: Option<AgentCard>,
    index: Index,
    /// What the suites of now were called then.
    suites: HashMap<String, Arc<str>>,
    read: ReadLog,
    /// How often a case asked the same again, where it was answered several times.
    asked: Mutex<HashMap<(CaseRef, Key), usize>>,
}

impl fmt::Debug for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Evidence({})", self.run_id)
    }
}

impl Evidence {
    /// Evidence of a run whose log is indexed, for these suites.
    #[must_use]
    pub fn new(run: &Run, asks_validators: bool, index: Index, suites: &[Arc<Suite>], read: ReadLog) -> Self {
        let now: Vec<Identity<'_>> = suites.iter().map(|suite| suite.identity()).collect();
        let then: Vec<Identity<'_>> = run.suites.iter().map(|suite| suite.identity(index.ids(&suite.path))).collect();
        let called = |(suite, paired): (&Arc<Suite>, Option<(usize, _)>)| {
            Some((suite.path.clone(), Arc::from(run.suites[paired?.0].path.as_str())))
        };
        let suites = suites.iter().zip(pair(&now, &then)).filter_map(called).collect();
        let (run_id, card) = (run.run_id.clone(), run.agent.clone());
        Self { run_id, asks_validators, card, index, suites, read, asked: Mutex::default() }
    }

    /// The execution of then that is the same as one of now, in the attempt that its verdict was about.
    fn then(&self, case: &CaseRef) -> Option<CaseRef> {
        let suite = self.suites.get(&*case.suite)?;
        let attempt = self.executions(case).get(case.repeat.max(1) as usize - 1)?.attempt;
        Some(CaseRef { suite: Arc::clone(suite), attempt, ..case.clone() })
    }

    fn executions(&self, case: &CaseRef) -> &[Then] {
        let Some(suite) = self.suites.get(&*case.suite) else { return &[] };
        self.index.executions(&CaseName { suite: Arc::clone(suite), ..case.name() })
    }

    /// What comes of a case of which nothing is recorded that could be judged; `None`: something is. `is_script`:
    /// the case is a script, which may need nothing of it.
    pub(super) fn without_record(&self, case: &CaseRef, is_script: bool) -> Option<CaseResult> {
        let Self { run_id, .. } = self;
        let missing = |why: String| {
            let (outcome, cause, transcript) = (Outcome::Errored, Cause::Unsupported, Transcript::default());
            CaseResult::without_assertions(outcome, cause, Blame::Suite, why, transcript)
        };
        let Some(suite) = self.suites.get(&*case.suite) else {
            return Some(missing(format!("the run {run_id} ran no suite {}", case.suite)));
        };
        let executions = self.executions(case);
        let number = executions.len();
        if number == 0 {
            return Some(missing(format!("the run {run_id} ran no case {:?} of {suite}", &*case.case_id)));
        }
        let Some(Then { came, .. }) = executions.get(case.repeat.max(1) as usize - 1) else {
            let times = if number == 1 { "once".to_owned() } else { format!("{number} times") };
            return Some(missing(format!(
                "the run {run_id} ran this case {times}: it has no repetition {}",
                case.repeat
            )));
        };
        let ended = match came {
            Came::Judged => return None,
            Came::Nothing => {
                let why = format!("the run {run_id} ended before this case did");
                return Some(CaseResult::not_run(Cause::Cancelled, Blame::Daemon, &why));
            }
            Came::Without(ended) => ended,
        };
        let is_silent = self.then(case).is_none_or(|then| self.index.turns(&then) == Turns::default());
        match (ended.outcome, ended.cause, &ended.error) {
            // It is switched on now, so somebody wants to know.
            (Outcome::Skipped, None, None) => {
                Some(missing(format!("the run {run_id} did not send it: it was switched off")))
            }
            (Outcome::Skipped, ..) | (_, Some(Cause::Cancelled), _) => Some(self.carried(ended)),
            _ => (is_silent && !is_script).then(|| self.carried(ended)),
        }
    }

    /// How a case ended then, for it ends so again.
    fn carried(&self, ended: &Ended) -> CaseResult {
        let error = ended.error.as_deref().unwrap_or_default();
        let said = if ended.replayed {
            error.to_owned()
        } else if let Some(why) = error.strip_prefix("not run: ") {
            format!("not run in the run {} either: {why}", self.run_id)
        } else {
            format!("not sent in the run {}, or not to its end: {error}", self.run_id)
        };
        let (cause, blame) = (Cause::Cancelled, Blame::Daemon);
        let result = CaseResult::without_assertions(ended.outcome, cause, blame, said, Transcript::default());
        // What failing fast left out may have been judged by a failure that is none any more: nothing else can tell
        // about it now.
        let may_count = ended.outcome == Outcome::Skipped && error != LEFT_OUT && !ended.replayed;
        if may_count && ended.cause.is_none() {
            result
        } else {
            CaseResult { cause: ended.cause, blame: ended.blame, ..result }
        }
    }

    /// The agent as it was, which could do whatever it was asked to do.
    pub(super) fn description(&self) -> Description {
        let card = self.card.clone().unwrap_or_default();
        Description { card, ..Self::somebody() }
    }

    /// Another party than the agent: no more is known of it than that it could do what it was asked to do.
    pub(super) fn somebody() -> Description {
        let capabilities = ["tools.stub", "tools.routing", "attachments"].map(str::to_owned).into();
        Description { revision: 1, capabilities, ..Description::default() }
    }

    /// The values of snapshot tokens that held then, if somebody was asked for them.
    #[must_use]
    pub fn snapshot(&self) -> Option<JsonText> {
        self.index.snapshot.clone()
    }

    fn miss(&self, what: &str) -> NoAnswer {
        NoAnswer::Missing { run_id: self.run_id.clone(), what: what.to_owned() }
    }

    /// Where the answer stands: to a question that a case asked several times, the first time the first answer, and
    /// so on. Without one: how often it was asked then.
    fn place(&self, case: &CaseRef, then: &CaseRef, key: &Key) -> Result<LogRange, usize> {
        let places = self.index.find(then, key.clone());
        let mut asked = self.asked.lock();
        let times = asked.entry((case.clone(), key.clone())).or_insert(0);
        *times += 1;
        places.get(*times - 1).copied().ok_or(places.len())
    }

    /// The events of what an agent answered to a call of a case.
    ///
    /// # Errors
    /// When it was not asked that, or the log cannot be read.
    pub(super) async fn answered(
        &self,
        case: &CaseRef,
        turn: u32,
        to: &str,
        digest: &str,
    ) -> Result<Vec<Arc<RunEvent>>, NoAnswer> {
        let then = self.then(case).ok_or_else(|| self.miss("it was not run then"))?;
        let place = self.place(case, &then, &key(to, digest)).map_err(|times| {
            self.miss(&match (self.index.turns(&then).called, times) {
                (0, _) => "nothing was sent to the agent then".to_owned(),
                (ended, _) if turn > ended => format!("it ended after turn {ended} then, and this is turn {turn}"),
                (_, 0) => "the agent was sent something else then".to_owned(),
                (_, times) => format!("the agent was sent this only {} then", times_of(times)),
            })
        })?;
        let mut events = (self.read)(then, place.first, place.last).await.map_err(NoAnswer::Log)?;
        events.retain(|event| event.turn == place.turn);
        Ok(events)
    }

    /// The call that these events tell.
    ///
    /// # Errors
    /// When they do not tell its end.
    pub(super) fn exchange(&self, events: &[Arc<RunEvent>], mode: ToolMode) -> Result<Exchange, NoAnswer> {
        let bytes = events.iter().map(|event| event.payload.weight()).sum();
        in_place(bytes, || exchange(events, mode)).ok_or_else(|| self.miss("its log is not what it was"))
    }

    /// What a simulator or validator said to a question.
    ///
    /// # Errors
    /// When it was not asked that, did not answer, or the log cannot be read.
    pub(super) async fn said(&self, by: &str, digest: &str, case: &CaseRef, turn: u32) -> Result<Said, NoAnswer> {
        let then = self.then(case).ok_or_else(|| self.miss("it was not run then"))?;
        let key = key(by, digest);
        let place = self.place(case, &then, &key).map_err(|times| {
            let ended = self.index.turns(&then).said;
            let is_behind = (1..turn).contains(&ended);
            self.miss(&match (self.index.silence(&then, key), times) {
                (Some(why), _) => format!("{by:?} gave none then ({why})"),
                (None, 1..) => format!("{by:?} was asked this only {} then", times_of(times)),
                (None, 0) if is_behind => {
                    format!("{by:?} was asked nothing after turn {ended} then, and this is turn {turn}")
                }
                (None, 0) if !self.index.was_asked(&then, by) => format!("{by:?} was not asked then"),
                (None, 0) => format!("{by:?} was asked something else then"),
            })
        })?;
        let events = (self.read)(then, place.first, place.last).await.map_err(NoAnswer::Log)?;
        let said = events.iter().find_map(|event| match &event.payload {
            Payload::PartySaid(party) => Some(party.said.clone()),
            _ => None,
        });
        said.ok_or_else(|| self.miss("its log is not what it was"))
    }
}

/// How often, in words.
fn times_of(number: usize) -> String {
    if number == 1 { "once".to_owned() } else { format!("{number} times") }
}

/// A call as its events tell it; `None`: they do not tell its end.
fn exchange(events: &[Arc<RunEvent>], mode: ToolMode) -> Option<Exchange> {
    let mut recording = Recording::new(mode);
    let mut seq = 0;
    let mut spans = None;
    for event in events {
        match &event.payload {
            Payload::Agent(agent) => {
                // Not all events are stored, so the numbers have gaps. What broke a rule is told at the end.
                seq += 1;
                let numbered = AgentEvent { seq, ..agent.clone() };
                let _ = recording.take(&numbered, 0, Duration::ZERO);
            }
            Payload::SpansRead(read) => spans = Some(read),
            Payload::CallEnded(ended) => {
                let mut exchange = recording.into_exchange(ended.failure.clone());
                if let Some(response) = &ended.response {
                    exchange.transcript.response.clone_from(response);
                }
                exchange.transcript.commentary.clone_from(&ended.commentary);
                exchange.is_before_a_call = ended.is_before_a_call;
                exchange.warnings.extend(ended.is_before_a_call.then(|| NOTHING_BEHIND.to_owned()));
                exchange.transcript.duration = ended.duration;
                if let Some(read) = spans {
                    exchange.warnings.extend(reconcile(&mut exchange.transcript, read));
                }
                return Some(exchange);
            }
            _ => {}
        }
    }
    None
}
