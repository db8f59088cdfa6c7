//! Encodes what the agent says during a call.
//!
//! Texts may be no UTF-8, which generated types cannot hold. Protobuf's wire form of `string` and `bytes` is the same,
//! and a message may be written in parts, so everything but the text is encoded by prost and the text is appended by
//! hand, for proper texts too: one way for both.

use std::time::Duration;

use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint};

use crate::wire::agent::invoke_response::Event;
use crate::wire::agent::{InvokeFinished, InvokeResponse, Message, Role, TextChannel, TextDelta};

/// All pieces of a reply are one message: a tool record between two of them does not separate them.
const MESSAGE: &str = "1";

/// Field numbers of the messages in which a text stands.
mod tag {
    pub(super) const RESPONSE_TEXT_DELTA: u32 = 4;
    pub(super) const RESPONSE_FINISHED: u32 = 9;
    pub(super) const DELTA_TEXT: u32 = 2;
    pub(super) const FINISHED_RESPONSE: u32 = 2;
    pub(super) const MESSAGE_PARTS: u32 = 2;
    pub(super) const PART_TEXT: u32 = 1;
}

/// An event that holds no answer text.
#[must_use]
pub(super) fn event(seq: u64, elapsed: Duration, event: Event) -> Vec<u8> {
    InvokeResponse { seq, elapsed: duration(elapsed), event: Some(event) }.encode_to_vec()
}

/// A piece of the answer.
#[must_use]
pub(super) fn text_delta(seq: u64, elapsed: Duration, text: &[u8]) -> Vec<u8> {
    let mut delta =
        TextDelta { message_id: MESSAGE.to_owned(), channel: TextChannel::Answer.into(), text: String::new() }
            .encode_to_vec();
    append(&mut delta, tag::DELTA_TEXT, text);
    response(seq, elapsed, tag::RESPONSE_TEXT_DELTA, &delta)
}

/// The end, with the whole answer; an empty answer is a message without parts.
#[must_use]
pub(super) fn finished(seq: u64, elapsed: Duration, finished: &InvokeFinished, answer: &[u8]) -> Vec<u8> {
    let mut message = Message { role: Role::Assistant.into(), ..Message::default() }.encode_to_vec();
    if !answer.is_empty() {
        let mut part = Vec::new();
        append(&mut part, tag::PART_TEXT, answer);
        append(&mut message, tag::MESSAGE_PARTS, &part);
    }
    let mut finished = finished.encode_to_vec();
    append(&mut finished, tag::FINISHED_RESPONSE, &message);
    response(seq, elapsed, tag::RESPONSE_FINISHED, &finished)
}

/// A duration as the protocol has it; one that does not fit is not reported.
#[must_use]
pub(super) fn duration(duration: Duration) -> Option<prost_types::Duration> {
    duration.try_into().ok()
}

fn response(seq: u64, elapsed: Duration, tag: u32, event: &[u8]) -> Vec<u8> {
    let mut response = InvokeResponse { seq, elapsed: duration(elapsed), event: None }.encode_to_vec();
    append(&mut response, tag, event);
    response
}

fn append(message: &mut Vec<u8>, tag: u32, bytes: &[u8]) {
    encode_key(tag, WireType::LengthDelimited, message);
    encode_varint(bytes.len() as u64, message);
    message.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::agent::{FinishReason, Part, part};

    #[test]
    fn proper_texts_decode_as_the_generated_types() {
        let elapsed = Duration::from_millis(1_500);
        let decoded = InvokeResponse::decode(&*text_delta(2, elapsed, "né".as_bytes())).expect("decodes");
        let channel = TextChannel::Answer.into();
        let delta = TextDelta { message_id: MESSAGE.to_owned(), text: "né".to_owned(), channel };
        assert_eq!(
            decoded,
            InvokeResponse { seq: 2, elapsed: duration(elapsed), event: Some(Event::TextDelta(delta)) }
        );

        let end = InvokeFinished { finish_reason: FinishReason::Completed.into(), tool_calls: 3, ..Default::default() };
        for (text, parts) in
            [("", Vec::new()), ("né", vec![Part { content: Some(part::Content::Text("né".to_owned())) }])]
        {
            let decoded = InvokeResponse::decode(&*finished(3, elapsed, &end, text.as_bytes())).expect("decodes");
            let response = Some(Message { role: Role::Assistant.into(), parts, ..Default::default() });
            assert_eq!(decoded.event, Some(Event::Finished(InvokeFinished { response, ..end.clone() })));
        }
    }
}
