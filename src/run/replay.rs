//! Evidence of an earlier run in place of agents: what they answered then to what they are sent now.
//!
//! What came of every call is logged with a digest of what was sent and to whom, and so is every answer of a simulator or validator. A run
//! that replays looks its own questions up by that; what was never asked has no answer, and its case cannot be judged. Of the
//! earlier log only an index is held; what is needed of it is read when it is.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use prost::Message as _;
use sha2::{Digest as _, Sha256};

use super::LogClosed;
use super::call::Call;
use crate::conversation::{AgentCard, AgentEvent, Description, Exchange, Failure, Invocation, JsonText, Message};
use crate::event::{CaseRef, Payload, RunEvent, Said};
use crate::peer::spans::reconcile;
use crate::peer::stream::Recording;
use crate::suite::stub::Stub;
use crate::wire::call::{message_to_proto, tool_call_to_proto};
use crate::wire::party::{Judgement, NextInput};

/// Reads the events of a case in the earlier log, from one number to another.
pub type ReadLog =
    Box<dyn Fn(CaseRef, u64, u64) -> BoxFuture<'static, Result<Vec<Arc<RunEvent>>, String>> + Send + Sync>;

/// What an earlier run has to say.
pub struct Evidence {
    /// Its id.
    pub run_id: String,
    /// Whether validators are asked anew.
    pub asks_validators: bool,
    /// The agent, as it described itself then.
    pub card: Option<AgentCard>,
    index: Index,
    read: ReadLog,
    /// How often a case asked the same again, where it was answered several times.
    asked: Mutex<HashMap<(CaseRef, Key), usize>>,
}

impl fmt::Debug for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Evidence({})", self.run_id)
    }
}

/// Where an earlier log holds what: what was sent to whom, and where the answer stands.
#[derive(Debug, Default)]
pub struct Index {
    places: HashMap<Key, Vec<Place>>,
    /// Where the events of the next call of each case begin.
    next: HashMap<CaseRef, u64>,
    snapshot: Option<JsonText>,
}

/// To whom, and the digest of what.
type Key = (Arc<str>, Arc<str>);

/// Where an answer stands.
#[derive(Debug, Clone)]
struct Place {
    case: CaseRef,
    turn: u32,
    first: u64,
    last: u64,
}

impl Index {
    /// Takes the next event of the log.
    pub fn take(&mut self, event: &RunEvent) {
        if let Payload::SnapshotTaken(values) = &event.payload {
            self.snapshot = Some(values.clone());
        }
        let Some(case) = &event.case else { return };
        let (to, digest, first) = match &event.payload {
            Payload::CaseStarted { .. } => {
                self.next.insert(case.clone(), event.sequence);
                return;
            }
            Payload::AttemptFinished(_) | Payload::CaseFinished(_) => {
                self.next.remove(case);
                return;
            }
            // One that was cancelled has no answer to play back.
            Payload::CallEnded(ended) if ended.failure == Some(Failure::Cancelled) => {
                self.next.insert(case.clone(), event.sequence + 1);
                return;
            }
            Payload::CallEnded(ended) => {
                let first = self.next.insert(case.clone(), event.sequence + 1);
                (&ended.to, &ended.digest, first.unwrap_or(event.sequence))
            }
            // What was not said then is not said again: it may be now.
            Payload::PartySaid(party) if matches!(party.said, Said::Silence(_) | Said::Cancelled) => return,
            Payload::PartySaid(party) => (&party.by, &party.digest, event.sequence),
            _ => return,
        };
        let place = Place { case: case.clone(), turn: event.turn, first, last: event.sequence };
        self.places.entry((Arc::from(to.as_str()), Arc::from(digest.as_str()))).or_default().push(place);
    }

    /// The answers that fit best, in their order: those of the same case and repetition, else of the case in another file, else of
    /// another repetition, else of any case. Of several attempts the last one counts.
    fn find(&self, key: &Key, case: &CaseRef) -> Vec<&Place> {
        let Some(places) = self.places.get(key) else { return Vec::new() };
        let tiers: [&dyn Fn(&CaseRef) -> bool; 4] = [
            &|then| then.suite == case.suite && then.case_id == case.case_id && then.repeat == case.repeat,
            &|then| then.case_id == case.case_id && then.repeat == case.repeat,
            &|then| then.case_id == case.case_id,
            &|_| true,
        ];
        // The log is in the order of time: the last one that fits is of the last attempt.
        let best = tiers.iter().find_map(|fits| places.iter().rfind(|place| fits(&place.case)));
        best.map(|best| places.iter().filter(|place| place.case == best.case).collect()).unwrap_or_default()
    }
}

impl Evidence {
    /// Evidence of a run whose log is indexed.
    #[must_use]
    pub fn new(run_id: String, asks_validators: bool, card: Option<AgentCard>, index: Index, read: ReadLog) -> Self {
        Self { run_id, asks_validators, card, index, read, asked: Mutex::default() }
    }

    /// The agent as it was, which could do whatever it was asked to do.
    pub(super) fn description(&self) -> Description {
        let card = self.card.clone().unwrap_or_default();
        Description { card, ..Self::somebody() }
    }

    /// Somebody else, of whom no more is known than that they could do whatever they were asked to do.
    pub(super) fn somebody() -> Description {
        let capabilities = ["tools.stub", "tools.routing", "attachments"].map(str::to_owned).into();
        Description { revision: 1, capabilities, ..Description::default() }
    }

    /// The values of snapshot tokens that held then, if somebody was asked for them.
    #[must_use]
    pub fn snapshot(&self) -> Option<JsonText> {
        self.index.snapshot.clone()
    }

    fn miss(&self, what: &str) -> String {
        format!("the run {} holds no answer: {what}", self.run_id)
    }

    /// Where the answer stands: to a question that a case asked several times, the first time the first answer, and so on.
    fn place(&self, to: &str, digest: &str, case: &CaseRef) -> Option<&Place> {
        let key: Key = (Arc::from(to), Arc::from(digest));
        let places = self.index.find(&key, case);
        if places.len() < 2 {
            return places.first().copied();
        }
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let times = asked.entry((case.clone(), key)).or_insert(0);
        let place = places.get(*times).or(places.last()).copied();
        *times += 1;
        place
    }

    /// What an agent answered to a call; its events are written to the log of this run, too.
    pub(super) async fn call(&self, call: &Call<'_>, to: &str, digest: &str) -> Result<Exchange, LogClosed> {
        let miss = |what: &str| Exchange { failure: Some(Failure::Suite(self.miss(what))), ..Exchange::default() };
        let Some(place) = self.place(to, digest, call.case) else {
            return Ok(miss("the agent was sent something else then"));
        };
        let events = match (self.read)(place.case.clone(), place.first, place.last).await {
            Ok(events) => events,
            Err(why) => return Ok(miss(&why)),
        };
        let events: Vec<_> = events.iter().filter(|event| event.turn == place.turn).collect();
        for event in &events {
            if matches!(event.payload, Payload::Agent(_) | Payload::StubServed { .. } | Payload::SpansRead(_)) {
                call.shared.journal.case(call.case, call.invocation.turn, event.payload.clone()).await?;
            }
        }
        Ok(exchange(&events).unwrap_or_else(|| miss("its log is not what it was")))
    }

    /// What a simulator or validator said to a question.
    ///
    /// # Errors
    /// When it was not asked that, or the log cannot be read.
    pub(super) async fn said(&self, by: &str, digest: &str, case: &CaseRef) -> Result<Said, String> {
        let miss = || self.miss(&format!("{by:?} was asked something else then"));
        let place = self.place(by, digest, case).ok_or_else(miss)?;
        let events = (self.read)(place.case.clone(), place.first, place.last).await?;
        let said = events.iter().find_map(|event| match &event.payload {
            Payload::PartySaid(party) => Some(party.said.clone()),
            _ => None,
        });
        said.ok_or_else(miss)
    }
}

/// A call as its events tell it; `None`: they do not tell its end.
fn exchange(events: &[&Arc<RunEvent>]) -> Option<Exchange> {
    let mut recording = Recording::default();
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

/// What a digest is made of: each piece with its length before it.
struct Pieces(Sha256);

impl Pieces {
    fn of(kind: &str) -> Self {
        let mut pieces = Self(Sha256::new());
        pieces.add(kind.as_bytes());
        pieces
    }

    fn add(&mut self, piece: &[u8]) {
        self.0.update((piece.len() as u64).to_be_bytes());
        self.0.update(piece);
    }

    fn messages(&mut self, messages: &[Message]) {
        self.add(&(messages.len() as u64).to_be_bytes());
        for message in messages {
            self.add(&message_to_proto(message).encode_to_vec());
        }
    }

    /// 128 bits are enough to tell questions apart.
    fn digest(self) -> String {
        hex::encode(&self.0.finalize()[..16])
    }
}

/// The digest of what an agent is sent: all that its answer may depend on, and no ids.
pub(super) fn digest_of_call(call: &Invocation, stubs: Option<&[(String, Stub)]>) -> String {
    let mut pieces = Pieces::of("call");
    pieces.messages(&call.messages);
    pieces.add(call.options.as_ref().map_or("", JsonText::as_str).as_bytes());
    pieces.add(format!("{:?} {:?}", call.tool_mode, call.max_model_turns).as_bytes());
    for (tool, stub) in stubs.unwrap_or_default() {
        pieces.add(tool.as_bytes());
        pieces.add(stub.text().as_bytes());
    }
    pieces.digest()
}

/// The digest of what a simulator is asked.
pub(super) fn digest_of_input(asked: &NextInput<'_>) -> String {
    let mut pieces = Pieces::of("input");
    pieces.add(asked.persona.as_bytes());
    pieces.add(asked.goal.as_bytes());
    pieces.messages(asked.conversation);
    pieces.add(asked.options.stringify().as_bytes());
    pieces.digest()
}

/// The digest of what a validator is asked.
pub(super) fn digest_of_judgement(asked: &Judgement<'_>) -> String {
    let mut pieces = Pieces::of("judgement");
    pieces.add(asked.output.as_bytes());
    pieces.add(asked.criteria.as_bytes());
    pieces.messages(asked.conversation);
    for call in asked.tool_calls {
        pieces.add(&tool_call_to_proto(call).encode_to_vec());
    }
    pieces.add(asked.options.stringify().as_bytes());
    pieces.digest()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::conversation::ToolMode;
    use crate::event::{PartyRole, PartySaid};
    use crate::json::Json;
    use crate::suite::stub::read_all;

    fn invocation() -> Invocation {
        Invocation {
            agent_id: "a".to_owned(),
            run_id: "r".to_owned(),
            suite: "s".to_owned(),
            case_id: "c".to_owned(),
            repeat: 1,
            attempt: 1,
            turn: 1,
            invocation_id: "i".to_owned(),
            conversation_id: "v".to_owned(),
            messages: vec![Message::user("hi")],
            options: JsonText::new(r#"{"x": 1}"#).ok(),
            tool_mode: ToolMode::Live,
            max_model_turns: None,
            budget: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_digest_is_of_what_an_answer_may_depend_on() {
        let stubs = |text: &str| read_all(&Json::parse(text).expect("JSON")).expect("stubs");
        let weather = stubs(r#"{"weather": {"$delayMs": 5, "$value": {"sun": true}}}"#);
        let digest = digest_of_call(&invocation(), Some(&weather));
        let same = Invocation {
            run_id: "other".to_owned(),
            case_id: "other".to_owned(),
            repeat: 7,
            attempt: 2,
            invocation_id: "other".to_owned(),
            budget: Duration::from_mins(1),
            ..invocation()
        };
        let written = stubs("\n\n{\"weather\":\n {\"$value\": {\"sun\": true}, \"$delayMs\": 5}}");
        assert_eq!(digest_of_call(&same, Some(&written)), digest, "ids, times and layout are not part of it");
        let others = [
            Invocation { messages: vec![Message::user("ho")], ..invocation() },
            Invocation { messages: vec![Message::user("hi"), Message::user("")], ..invocation() },
            Invocation { options: JsonText::new(r#"{"x": 2}"#).ok(), ..invocation() },
            Invocation { tool_mode: ToolMode::Stub, ..invocation() },
            Invocation { max_model_turns: Some(3), ..invocation() },
        ];
        for other in others {
            assert_ne!(digest_of_call(&other, Some(&weather)), digest, "{other:?}");
        }
        for other in [r#"{"weather": {"sun": true}}"#, r#"{"weather": {"$error": "no"}}"#, r#"{"other": 1}"#] {
            assert_ne!(digest_of_call(&invocation(), Some(&stubs(other))), digest, "{other}");
        }
    }

    /// What nobody waited for then is not played back: it may be asked now.
    #[test]
    fn what_was_cancelled_has_no_answer() {
        let case = CaseRef { suite: "s".into(), case_id: "c".into(), repeat: 1, attempt: 1 };
        let mut index = Index::default();
        for (sequence, said) in (1..).zip([
            Said::Vote { passed: true, reason: String::new(), score: None, reply: String::new() },
            Said::Silence("no".to_owned()),
            Said::Cancelled,
        ]) {
            let said = PartySaid {
                role: PartyRole::Validator,
                by: "judge".to_owned(),
                digest: "d".to_owned(),
                said,
                request_id: String::new(),
                began: None,
                duration: Duration::ZERO,
                endpoint: String::new(),
                usage: None,
                asked: None,
            };
            let payload = Payload::PartySaid(Box::new(said));
            index.take(&RunEvent { sequence, at: Timestamp::default(), case: Some(case.clone()), turn: 1, payload });
        }
        let key: Key = ("judge".into(), "d".into());
        let places: Vec<u64> = index.find(&key, &case).iter().map(|place| place.first).collect();
        assert_eq!(places, [1]);
    }
}
