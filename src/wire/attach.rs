//! Frames of an attached stream whose messages stay bytes, and how they become a call of gRPC and come of one.
//!
//! [`OpenCall`], [`SendFrame`] and [`Reply`] stand in place of the generated types: on the wire a message inside of
//! another is its bytes, and the side that makes or answers the call reads them.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use prost::encoding::{DecodeContext, WireType, bytes as field, message, skip_field, string, uint64};
use prost::{DecodeError, Message, Name};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::agent::Fault;
pub use super::generated::attach::v1::*;

/// Reason of an UNAVAILABLE that ends a call of which nothing was done: it may be given to another instance.
pub const NOT_DELIVERED: &str = "NOT_DELIVERED";

const PACKAGE: &str = "forge.attach.v1";
/// Bytes that a frame with a message costs besides that message.
const COST_OF_A_FRAME: usize = 64;
/// Bytes before each message of a gRPC body: whether it is compressed, and its length.
const HEAD: usize = 5;

/// The calls that go over an attached stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `AgentEndpoint.Invoke`.
    Invoke,
    /// `Simulator.NextInput`.
    NextInput,
    /// `Validator.Validate`.
    Validate,
    /// `Generator.Generate`.
    Generate,
    /// `SnapshotProvider.Capture`.
    Capture,
    /// `AgentEndpoint.Describe`.
    Describe,
}

impl Kind {
    /// All of them, in the order of their fields in `open` and in `reply`.
    const ALL: [Self; 6] =
        [Self::Invoke, Self::NextInput, Self::Validate, Self::Generate, Self::Capture, Self::Describe];

    /// The path of its HTTP request.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Invoke => "/forge.agent.v1.AgentEndpoint/Invoke",
            Self::NextInput => "/forge.agent.v1.Simulator/NextInput",
            Self::Validate => "/forge.agent.v1.Validator/Validate",
            Self::Generate => "/forge.agent.v1.Generator/Generate",
            Self::Capture => "/forge.agent.v1.SnapshotProvider/Capture",
            Self::Describe => "/forge.agent.v1.AgentEndpoint/Describe",
        }
    }

    /// The call with this path, if it is one of them.
    #[must_use]
    pub fn of_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.path() == path)
    }

    /// Its field in a message whose first one is `first`.
    fn tag(self, first: u32) -> u32 {
        Self::ALL.into_iter().zip(first..).find(|(kind, _)| *kind == self).map_or(first, |(_, tag)| tag)
    }

    fn of_tag(tag: u32, first: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(tag.checked_sub(first)?).ok()?).copied()
    }
}

/// What a frame with this message costs, in bytes of credit.
#[must_use]
pub fn cost(message: &Bytes) -> i64 {
    i64::try_from(message.len() + COST_OF_A_FRAME).unwrap_or(i64::MAX)
}

/// A call begins.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OpenCall {
    /// Its number.
    pub call_no: u64,
    /// The agent that it is for.
    pub agent_id: String,
    /// When it is given up.
    pub timeout: Option<prost_types::Duration>,
    /// What is called, and the first message.
    pub call: Option<(Kind, Bytes)>,
}

/// The first of the fields of `open` that hold a message.
const FIRST_OF_OPEN: u32 = 4;

impl Message for OpenCall {
    fn encode_raw(&self, buffer: &mut impl bytes::BufMut) {
        if self.call_no != 0 {
            uint64::encode(1, &self.call_no, buffer);
        }
        if !self.agent_id.is_empty() {
            string::encode(2, &self.agent_id, buffer);
        }
        if let Some(timeout) = &self.timeout {
            message::encode(3, timeout, buffer);
        }
        if let Some((kind, bytes)) = &self.call {
            field::encode(kind.tag(FIRST_OF_OPEN), bytes, buffer);
        }
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl bytes::Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            1 => uint64::merge(wire_type, &mut self.call_no, buffer, context),
            2 => string::merge(wire_type, &mut self.agent_id, buffer, context),
            3 => message::merge(wire_type, self.timeout.get_or_insert_default(), buffer, context),
            _ => merge_call(&mut self.call, FIRST_OF_OPEN, tag, wire_type, buffer, context),
        }
    }

    fn encoded_len(&self) -> usize {
        let number = if self.call_no == 0 { 0 } else { uint64::encoded_len(1, &self.call_no) };
        let agent = if self.agent_id.is_empty() { 0 } else { string::encoded_len(2, &self.agent_id) };
        let timeout = self.timeout.as_ref().map_or(0, |timeout| message::encoded_len(3, timeout));
        number + agent + timeout + len_of_call(self.call.as_ref(), FIRST_OF_OPEN)
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Name for OpenCall {
    const NAME: &'static str = "OpenCall";
    const PACKAGE: &'static str = PACKAGE;
}

/// A further message of an Invoke.
#[derive(Clone, PartialEq, Message)]
pub struct SendFrame {
    /// The call.
    #[prost(uint64, tag = "1")]
    pub call_no: u64,
    /// The message.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub invoke: Option<Bytes>,
}

impl Name for SendFrame {
    const NAME: &'static str = "SendFrame";
    const PACKAGE: &'static str = PACKAGE;
}

/// A message of a call.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reply {
    /// The call.
    pub call_no: u64,
    /// What it answers, and the message.
    pub payload: Option<(Kind, Bytes)>,
}

/// The first of the fields of `reply` that hold a message.
const FIRST_OF_REPLY: u32 = 2;

impl Message for Reply {
    fn encode_raw(&self, buffer: &mut impl bytes::BufMut) {
        if self.call_no != 0 {
            uint64::encode(1, &self.call_no, buffer);
        }
        if let Some((kind, bytes)) = &self.payload {
            field::encode(kind.tag(FIRST_OF_REPLY), bytes, buffer);
        }
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl bytes::Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            1 => uint64::merge(wire_type, &mut self.call_no, buffer, context),
            _ => merge_call(&mut self.payload, FIRST_OF_REPLY, tag, wire_type, buffer, context),
        }
    }

    fn encoded_len(&self) -> usize {
        let number = if self.call_no == 0 { 0 } else { uint64::encoded_len(1, &self.call_no) };
        number + len_of_call(self.payload.as_ref(), FIRST_OF_REPLY)
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Name for Reply {
    const NAME: &'static str = "Reply";
    const PACKAGE: &'static str = PACKAGE;
}

fn merge_call(
    call: &mut Option<(Kind, Bytes)>,
    first: u32,
    tag: u32,
    wire_type: WireType,
    buffer: &mut impl bytes::Buf,
    context: DecodeContext,
) -> Result<(), DecodeError> {
    let Some(kind) = Kind::of_tag(tag, first) else { return skip_field(wire_type, tag, buffer, context) };
    let mut bytes = Bytes::new();
    field::merge(wire_type, &mut bytes, buffer, context)?;
    *call = Some((kind, bytes));
    Ok(())
}

fn len_of_call(call: Option<&(Kind, Bytes)>, first: u32) -> usize {
    call.map_or(0, |(kind, bytes)| field::encoded_len(kind.tag(first), bytes))
}

/// A message as it stands in a body of gRPC.
#[must_use]
pub fn in_body(message: &Bytes) -> Bytes {
    let mut framed = BytesMut::with_capacity(HEAD + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put_slice(message);
    framed.freeze()
}

/// Takes the messages out of a body of gRPC, which comes in any pieces.
#[derive(Debug, Default)]
pub struct Unframer {
    rest: BytesMut,
}

/// A body that is none of gRPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misframed {
    /// It was not asked for.
    #[error("a message is compressed, which was not asked for")]
    Compressed,
    /// It is larger than this.
    #[error("a message has {0} bytes, and at most {1} are taken")]
    TooLarge(usize, usize),
}

impl Unframer {
    /// Takes a piece of the body.
    pub fn push(&mut self, piece: &[u8]) {
        self.rest.extend_from_slice(piece);
    }

    /// The next message, if it is whole; it may have `most` bytes.
    ///
    /// # Errors
    /// When what came is none.
    pub fn next(&mut self, most: usize) -> Result<Option<Bytes>, Misframed> {
        let Some(head) = self.rest.get(..HEAD) else { return Ok(None) };
        let length = head.get(1..).map_or(0, |mut length| length.get_u32()) as usize;
        if head.first() != Some(&0) {
            return Err(Misframed::Compressed);
        }
        if length > most {
            return Err(Misframed::TooLarge(length, most));
        }
        if self.rest.len() < HEAD + length {
            return Ok(None);
        }
        self.rest.advance(HEAD);
        Ok(Some(self.rest.split_to(length).freeze()))
    }

    /// Whether part of a message is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

/// The end of a call as the status that gRPC would carry.
#[must_use]
pub fn status_of(fault: Option<Fault>) -> Status {
    let Some(Fault { grpc_code, reason, message, metadata, .. }) = fault else { return Status::ok("") };
    // A fault without a code is still none that worked.
    let code = if grpc_code == 0 { Code::Unknown } else { Code::from_i32(grpc_code) };
    if reason.is_empty() && metadata.is_empty() {
        return Status::new(code, message);
    }
    let metadata: std::collections::HashMap<_, _> = metadata.into_iter().collect();
    Status::with_error_details(code, message, ErrorDetails::with_error_info(reason, "forge", metadata))
}

/// The status of a call as its end; `None`: it went well.
#[must_use]
pub fn fault_of(status: &Status) -> Option<Fault> {
    if status.code() == Code::Ok {
        return None;
    }
    let (reason, metadata) =
        status.get_details_error_info().map_or_else(Default::default, |info| (info.reason, info.metadata));
    Some(Fault {
        grpc_code: status.code().into(),
        reason,
        message: status.message().to_owned(),
        metadata: metadata.into_iter().collect(),
        ..Fault::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::agent::{DescribeRequest, InvokeRequest, InvokeResponse};

    /// The messages inside are those of the protocol, byte for byte.
    #[test]
    fn frames_are_those_of_the_protocol() {
        let inner = InvokeResponse { seq: 7, ..InvokeResponse::default() };
        let reply = Reply { call_no: 300, payload: Some((Kind::Invoke, inner.encode_to_vec().into())) };
        let mut expected = Vec::new();
        uint64::encode(1, &300, &mut expected);
        message::encode(2, &inner, &mut expected);
        assert_eq!(reply.encode_to_vec(), expected);
        assert_eq!(reply.encoded_len(), expected.len());
        assert_eq!(Reply::decode(expected.as_slice()), Ok(reply));

        let inner = DescribeRequest { agent_id: "a".to_owned(), ..DescribeRequest::default() };
        let open = OpenCall {
            call_no: 1,
            agent_id: "a".to_owned(),
            timeout: Some(prost_types::Duration { seconds: 2, nanos: 0 }),
            call: Some((Kind::Describe, inner.encode_to_vec().into())),
        };
        let encoded = open.encode_to_vec();
        assert_eq!((encoded.len(), OpenCall::decode(encoded.as_slice())), (open.encoded_len(), Ok(open)));
        let send = SendFrame { call_no: 1, invoke: Some(InvokeRequest::default().encode_to_vec().into()) };
        assert_eq!(SendFrame::decode(send.encode_to_vec().as_slice()), Ok(send));
    }

    #[test]
    fn every_call_has_its_path() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of_path(kind.path()), Some(kind));
            assert_eq!(Kind::of_tag(kind.tag(4), 4), Some(kind));
        }
        assert_eq!(Kind::of_path("/forge.agent.v1.AgentEndpoint/Other"), None);
        assert_eq!((Kind::of_tag(3, 4), Kind::of_tag(10, 4)), (None, None));
    }

    #[test]
    fn bodies_come_in_any_pieces() {
        let messages = [Bytes::from_static(b"one"), Bytes::new(), Bytes::from_static(b"three")];
        let body: Vec<u8> = messages.iter().flat_map(in_body).collect();
        for size in 1..=body.len() {
            let (mut unframer, mut found) = (Unframer::default(), Vec::new());
            for piece in body.chunks(size) {
                unframer.push(piece);
                while let Some(message) = unframer.next(5).expect("a body") {
                    found.push(message);
                }
            }
            assert!(unframer.is_empty());
            assert_eq!(found, messages);
        }
        let mut unframer = Unframer::default();
        unframer.push(&in_body(&Bytes::from_static(b"seven..")));
        assert_eq!(unframer.next(6), Err(Misframed::TooLarge(7, 6)));
        let mut unframer = Unframer::default();
        unframer.push(&[1, 0, 0, 0, 0]);
        assert_eq!(unframer.next(6), Err(Misframed::Compressed));
    }

    #[test]
    fn a_status_keeps_its_code_its_words_and_its_reason() {
        let status = Status::with_error_details(
            Code::Unavailable,
            "away",
            ErrorDetails::with_error_info("AGENT_UNREACHABLE", "forge", [("a".to_owned(), "b".to_owned())]),
        );
        let again = status_of(fault_of(&status));
        assert_eq!((again.code(), again.message()), (Code::Unavailable, "away"));
        let info = again.get_details_error_info().expect("the reason");
        assert_eq!((info.reason.as_str(), info.metadata.len()), ("AGENT_UNREACHABLE", 1));
        assert_eq!(status_of(None).code(), Code::Ok);
        assert_eq!(fault_of(&Status::ok("")), None);
        assert_eq!(status_of(Some(Fault::default())).code(), Code::Unknown);
    }
}
