//! An event as it lies in a log: bytes that are made once, when it is stored, and what has to be known of them to pass
//! them on. What it says is read when somebody wants to know.

use std::ops::Range;

use bytes::{Buf as _, Bytes};
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost::{DecodeError, Message as _};

use super::control as pb;
use super::event::{run_event_from_proto, run_event_to_proto};
use super::value::WireError;
use crate::event::RunEvent;

/// What an event is about: the number of its field in `RunEvent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// The run begins.
    RunStarted = 6,
    /// A case is being sent to the agent.
    CaseStarted = 7,
    /// The agent said something.
    Agent = 9,
    /// The daemon answered a tool call.
    StubServed = 10,
    /// The verdict on a case.
    CaseFinished = 13,
    /// Something worth knowing.
    Warning = 14,
    /// The run is over.
    RunFinished = 15,
    /// A case was selected.
    CasePlanned = 16,
    /// A turn of a dialogue was answered.
    TurnFinished = 17,
    /// A checkpoint of a dialogue was reached.
    CheckpointReached = 18,
    /// What came of an attempt at a case that is tried again.
    AttemptFinished = 19,
    /// The values of snapshot tokens.
    SnapshotTaken = 20,
    /// A call of an agent is over.
    CallEnded = 21,
    /// A simulator or validator answered, or failed to.
    PartySaid = 22,
    /// The spans of a call were read.
    SpansRead = 23,
    /// The agent under test described itself.
    AgentDescribed = 24,
}

impl Kind {
    const ALL: [Self; 16] = [
        Self::RunStarted,
        Self::CaseStarted,
        Self::Agent,
        Self::StubServed,
        Self::CaseFinished,
        Self::Warning,
        Self::RunFinished,
        Self::CasePlanned,
        Self::TurnFinished,
        Self::CheckpointReached,
        Self::AttemptFinished,
        Self::SnapshotTaken,
        Self::CallEnded,
        Self::PartySaid,
        Self::SpansRead,
        Self::AgentDescribed,
    ];

    fn of_field(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }

    /// Whether it tells what happens inside a case: watchers get it with the detail `CALLS` only.
    #[must_use]
    pub const fn is_inside_a_case(self) -> bool {
        match self {
            Self::Agent
            | Self::StubServed
            | Self::AgentDescribed
            | Self::CallEnded
            | Self::SpansRead
            | Self::PartySaid
            | Self::SnapshotTaken => true,
            Self::RunStarted
            | Self::CasePlanned
            | Self::CaseStarted
            | Self::TurnFinished
            | Self::CheckpointReached
            | Self::AttemptFinished
            | Self::CaseFinished
            | Self::Warning
            | Self::RunFinished => false,
        }
    }
}

/// Fields of a verdict that take room and count in no sum: calls, warnings, answer, tokens, turns, checkpoints,
/// console and commentary.
const UNCOUNTED: [u32; 8] = [4, 9, 13, 17, 21, 22, 25, 27];

/// An event of a log: `RunEvent` of the protocol, as bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its number in the log, from 1.
    pub sequence: u64,
    /// What it is about.
    pub kind: Kind,
    /// Where its bytes hold the id of its case.
    case_id: Option<Range<usize>>,
    /// Where its bytes hold what it says.
    payload: Range<usize>,
    body: Bytes,
}

impl Record {
    /// Reads what has to be known of an event; `None`: it is of a kind that this version does not know.
    ///
    /// # Errors
    /// When it is no event.
    pub fn read(body: Bytes) -> Result<Option<Self>, WireError> {
        let mut fields = Fields { body: &body, at: 0 };
        let (mut sequence, mut kind, mut case_id, mut payload) = (0, None, None, 0..0);
        while let Some((number, value)) = fields.next().map_err(|error| malformed(&error))? {
            match (number, value) {
                (1, Value::Number(number)) => sequence = number,
                (3, Value::Bytes(case)) => {
                    let mut fields = Fields { body: &body[..case.end], at: case.start };
                    while let Some((number, value)) = fields.next().map_err(|error| malformed(&error))? {
                        if let (2, Value::Bytes(id)) = (number, value) {
                            case_id = Some(id);
                        }
                    }
                    // An id that is empty is not written.
                    case_id = case_id.or(Some(case.end..case.end));
                }
                (number, Value::Bytes(said)) => {
                    if let Some(known) = Kind::of_field(number) {
                        (kind, payload) = (Some(known), said);
                    }
                }
                _ => {}
            }
        }
        if case_id.as_ref().is_some_and(|id| std::str::from_utf8(&body[id.clone()]).is_err()) {
            return Err(WireError::new("event.case.case_id", "is no text"));
        }
        Ok(kind.map(|kind| Self { sequence, kind, case_id, payload, body }))
    }

    /// Id of the case that it belongs to; `None`: it is of the run as a whole.
    #[must_use]
    pub fn case_id(&self) -> Option<&str> {
        // It was looked at when this was read.
        self.case_id.clone().map(|id| std::str::from_utf8(&self.body[id]).unwrap_or_default())
    }

    /// Its bytes, as they lie in the log.
    #[must_use]
    pub const fn body(&self) -> &Bytes {
        &self.body
    }

    /// The same, without what is known of it.
    #[must_use]
    pub fn into_body(self) -> Bytes {
        self.body
    }

    /// Bytes that it takes in memory.
    #[must_use]
    pub fn held(&self) -> usize {
        size_of::<Self>() + self.body.len()
    }

    /// What it says.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn event(&self) -> Result<RunEvent, WireError> {
        read(&self.body)
    }

    /// What it says as far as it counts in a sum: a verdict without calls, answer, turns and checkpoints.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn counted(&self) -> Result<RunEvent, WireError> {
        if self.kind != Kind::CaseFinished {
            return self.event();
        }
        let counts = |field| !UNCOUNTED.contains(&field);
        let verdict = only(&self.body[..self.payload.end], self.payload.start, counts)?;
        let verdict = pb::CaseFinished::decode(&verdict[..]).map_err(|error| malformed(&error))?;
        let head = only(&self.body, 0, |field| field != Kind::CaseFinished as u32)?;
        let head = pb::RunEvent::decode(&head[..]).map_err(|error| malformed(&error))?;
        known(pb::RunEvent { payload: Some(pb::run_event::Payload::CaseFinished(verdict)), ..head })
    }
}

/// A message with some of its fields only.
fn only(body: &[u8], at: usize, keeps: impl Fn(u32) -> bool) -> Result<Vec<u8>, WireError> {
    let (mut fields, mut kept, mut began) = (Fields { body, at }, Vec::new(), at);
    while let Some((number, _)) = fields.next().map_err(|error| malformed(&error))? {
        if keeps(number) {
            kept.extend_from_slice(&body[began..fields.at]);
        }
        began = fields.at;
    }
    Ok(kept)
}

/// Events as a block of a log: each with its length before it.
#[derive(Debug, Default)]
pub struct Block(Vec<u8>);

impl Block {
    /// Adds an event.
    pub fn push(&mut self, event: &RunEvent) {
        let event = run_event_to_proto(event);
        // A large one must not be copied while its place grows.
        self.0.reserve(event.encoded_len() + 10);
        // Into memory, which grows.
        let _ = event.encode_length_delimited(&mut self.0);
    }

    /// Bytes of it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it holds no event.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The block as it is stored.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.0.into()
    }
}

/// The events of a block, which all share its bytes. Those of kinds that this version does not know are passed over.
///
/// # Errors
/// When it is no block.
pub fn records(mut block: Bytes) -> Result<Vec<Record>, WireError> {
    let mut records = Vec::new();
    while block.has_remaining() {
        let length = decode_varint(&mut block).map_err(|error| malformed(&error))?;
        let length = usize::try_from(length).ok().filter(|length| *length <= block.len());
        let body = block.split_to(length.ok_or_else(|| WireError::new("event", "is cut off"))?);
        records.extend(Record::read(body)?);
    }
    Ok(records)
}

/// An event as it came over the wire.
///
/// # Errors
/// When it cannot be read.
pub fn event_of(body: &Bytes) -> Result<Option<RunEvent>, WireError> {
    let event = pb::RunEvent::decode(&body[..]).map_err(|error| malformed(&error))?;
    run_event_from_proto(event)
}

fn read(body: &Bytes) -> Result<RunEvent, WireError> {
    known(pb::RunEvent::decode(&body[..]).map_err(|error| malformed(&error))?)
}

fn known(event: pb::RunEvent) -> Result<RunEvent, WireError> {
    run_event_from_proto(event)?.ok_or_else(|| WireError::new("event", "is of an unknown kind"))
}

fn malformed(error: &DecodeError) -> WireError {
    WireError::new("event", error.to_string())
}

/// The fields of a message, one after the other.
struct Fields<'a> {
    /// The bytes up to the end of the message.
    body: &'a [u8],
    /// Where the next field begins.
    at: usize,
}

/// What a field holds.
enum Value {
    Number(u64),
    /// Where its bytes are.
    Bytes(Range<usize>),
    Other,
}

impl Fields<'_> {
    fn next(&mut self) -> Result<Option<(u32, Value)>, DecodeError> {
        let mut rest = &self.body[self.at..];
        if rest.is_empty() {
            return Ok(None);
        }
        let (number, wire_type) = decode_key(&mut rest)?;
        let value = match wire_type {
            WireType::Varint => Value::Number(decode_varint(&mut rest)?),
            WireType::LengthDelimited => {
                let mut content = rest;
                skip_field(wire_type, number, &mut rest, DecodeContext::default())?;
                decode_varint(&mut content)?;
                let end = self.body.len() - rest.len();
                Value::Bytes(self.body.len() - content.len()..end)
            }
            _ => {
                skip_field(wire_type, number, &mut rest, DecodeContext::default())?;
                Value::Other
            }
        };
        self.at = self.body.len() - rest.len();
        Ok(Some((number, value)))
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use prost_types::FileDescriptorSet;

    use super::*;
    use crate::case::CaseRef;
    use crate::event::Payload;
    use crate::verdict::{Blame, CaseResult, Cause};
    use crate::wire::DESCRIPTORS;

    fn event(sequence: u64, case_id: Option<&str>, payload: Payload) -> RunEvent {
        let case = case_id.map(|id| CaseRef { suite: "s".into(), case_id: id.into(), repeat: 2, attempt: 1 });
        RunEvent { sequence, at: Timestamp::UNIX_EPOCH, case, turn: 3, payload }
    }

    fn verdict() -> Payload {
        let mut result = CaseResult::not_run(Cause::Cancelled, Blame::Daemon, "why");
        result.transcript.response = "a long answer".to_owned();
        result.transcript.duration = std::time::Duration::from_millis(7);
        Payload::CaseFinished(Box::new(result))
    }

    #[test]
    fn every_kind_of_event_is_known() {
        let files = FileDescriptorSet::decode(DESCRIPTORS).expect("descriptors");
        let messages = files.file.iter().flat_map(|file| &file.message_type);
        let fields = messages.filter(|message| message.name() == "RunEvent").flat_map(|message| &message.field);
        let of_payload =
            fields.filter(|field| field.oneof_index.is_some()).map(prost_types::FieldDescriptorProto::number);
        let mut numbers: Vec<u32> = of_payload.map(|number| u32::try_from(number).expect("a number")).collect();
        let mut known: Vec<u32> = Kind::ALL.iter().map(|kind| *kind as u32).collect();
        numbers.sort_unstable();
        known.sort_unstable();
        assert_eq!(known, numbers);
    }

    #[test]
    fn a_block_is_read_as_it_was_written() {
        let events = [
            event(7, None, Payload::Warning("w".to_owned())),
            event(8, Some("c"), Payload::CheckpointReached { checkpoint: "p".to_owned() }),
            event(9, Some(""), verdict()),
        ];
        let mut block = Block::default();
        for event in &events {
            block.push(event);
        }
        let records = records(block.into_bytes()).expect("a block");
        let known: Vec<_> = records.iter().map(|record| (record.sequence, record.kind, record.case_id())).collect();
        let expected =
            [(7, Kind::Warning, None), (8, Kind::CheckpointReached, Some("c")), (9, Kind::CaseFinished, Some(""))];
        assert_eq!(known, expected);
        let read: Vec<_> = records.iter().map(|record| record.event().expect("an event")).collect();
        assert_eq!(read, events);
    }

    #[test]
    fn of_a_verdict_remains_what_counts() {
        let mut block = Block::default();
        block.push(&event(1, Some("c"), verdict()));
        let record = records(block.into_bytes()).expect("a block").remove(0);
        let counted = record.counted().expect("an event");
        let Payload::CaseFinished(result) = &counted.payload else { panic!("{counted:?}") };
        assert_eq!((result.transcript.response.as_str(), result.error.as_deref()), ("", Some("not run: why")));
        assert_eq!(result.transcript.duration.as_millis(), 7);
        assert_eq!(counted.case, record.event().expect("an event").case);
    }

    #[test]
    fn what_is_no_block_is_refused() {
        let mut block = Block::default();
        block.push(&event(1, Some("c"), verdict()));
        let bytes = block.into_bytes();
        for cut in 1..bytes.len() {
            assert!(records(bytes.slice(..cut)).is_err(), "{cut}");
        }
        assert!(records(Bytes::from_static(&[1, 0xff])).is_err());
        let unknown = Bytes::from_static(&[4, 0x8a, 0x7d, 1, b'x']);
        assert_eq!(records(unknown).expect("a block"), []);
    }
}
