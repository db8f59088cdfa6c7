//! What messages become when they are read: an empty message of two bytes takes a hundred and more. So a large message that holds very
//! many is refused before anything is made of it, whatever its bytes say.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::LazyLock;

use bytes::{Buf as _, Bytes};
use prost::{Message, Name};
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FileDescriptorSet};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

use super::DESCRIPTORS;

/// Messages of so many bytes are harmless, whatever they hold.
const SMALL: usize = 64 << 10;
/// Most memory for what one message holds, in bytes, about, besides its own.
pub const MAX_WEIGHT: usize = 32 << 20;
/// What a message inside of another one is taken to need, in bytes.
const NESTED: usize = 256;
/// What an entry of a list of texts needs, in bytes.
const TEXT: usize = 32;
/// How deep messages may be inside of each other; deeper ones are not read anyway.
const MAX_DEPTH: usize = 100;

/// What a field of a message holds, if that can be much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// A message: its place in the schema.
    Message(usize),
    /// A text or bytes, one of a list.
    Text,
}

/// The messages of a protocol, as far as they hold others.
#[derive(Debug, Default)]
pub struct Schema {
    /// What each message weighs besides what it holds, and its fields by their numbers.
    messages: Vec<(usize, Vec<(u64, Field)>)>,
}

impl Schema {
    /// Of messages that are told one by one; fields name others by their places.
    #[must_use]
    pub fn new(messages: &[(usize, &[(u64, Field)])]) -> Self {
        Self { messages: messages.iter().map(|(weight, fields)| (*weight, fields.to_vec())).collect() }
    }

    /// Of all messages in some files, and their places by name.
    fn of_files(files: &FileDescriptorSet) -> (Self, HashMap<String, usize>) {
        fn collect<'a>(prefix: &str, message: &'a DescriptorProto, all: &mut Vec<(String, &'a DescriptorProto)>) {
            let name = format!("{prefix}.{}", message.name());
            for nested in &message.nested_type {
                collect(&name, nested, all);
            }
            all.push((name, message));
        }
        let mut all = Vec::new();
        for file in &files.file {
            for message in &file.message_type {
                collect(file.package(), message, &mut all);
            }
        }
        let places: HashMap<String, usize> =
            all.iter().enumerate().map(|(place, (name, _))| (name.clone(), place)).collect();
        let fields = |message: &DescriptorProto| {
            let fields = message.field.iter().filter_map(|field| {
                let number = u64::try_from(field.number()).ok()?;
                match field.r#type() {
                    Type::Message => {
                        let place = places.get(field.type_name().trim_start_matches('.'))?;
                        Some((number, Field::Message(*place)))
                    }
                    Type::String | Type::Bytes if field.label() == Label::Repeated => Some((number, Field::Text)),
                    _ => None,
                }
            });
            fields.collect()
        };
        (Self { messages: all.iter().map(|(_, message)| (NESTED, fields(message))).collect() }, places)
    }

    /// Whether a message, by its place, is worth reading: what it holds weighs no more than [`MAX_WEIGHT`]. What is malformed is
    /// left to whoever reads it.
    #[must_use]
    pub fn is_bearable(&self, place: usize, message: &[u8]) -> bool {
        if message.len() <= SMALL {
            return true;
        }
        let mut left = MAX_WEIGHT;
        self.weigh(place, message, &mut left, 0).is_some()
    }

    /// Takes what is held from what is left; `None`: there was not enough.
    fn weigh(&self, place: usize, mut message: &[u8], left: &mut usize, depth: usize) -> Option<()> {
        let Some((_, fields)) = self.messages.get(place) else { return Some(()) };
        while !message.is_empty() {
            let Some((number, content)) = field(&mut message) else { return Some(()) };
            let Some(content) = content else { continue };
            match fields.iter().find(|(known, _)| *known == number) {
                Some((_, Field::Message(nested))) => {
                    let weight = self.messages.get(*nested).map_or(NESTED, |(weight, _)| *weight);
                    *left = left.checked_sub(weight)?;
                    if depth < MAX_DEPTH {
                        self.weigh(*nested, content, left, depth + 1)?;
                    }
                }
                Some((_, Field::Text)) => *left = left.checked_sub(TEXT)?,
                None => {}
            }
        }
        Some(())
    }
}

/// The next field: its number, and what it holds if it has a length. `None`: it is malformed.
fn field<'a>(message: &mut &'a [u8]) -> Option<(u64, Option<&'a [u8]>)> {
    let key = varint(message)?;
    let skipped = match key & 7 {
        0 => {
            varint(message)?;
            return Some((key >> 3, None));
        }
        1 => 8,
        2 => {
            let length = usize::try_from(varint(message)?).ok()?;
            let (content, rest) = message.split_at_checked(length)?;
            *message = rest;
            return Some((key >> 3, Some(content)));
        }
        // Groups are not used; what they hold is looked at as if it stood outside.
        3 | 4 => 0,
        5 => 4,
        _ => return None,
    };
    *message = message.get(skipped..)?;
    Some((key >> 3, None))
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// The schema of our own packages, and the places of their messages.
static OURS: LazyLock<(Schema, HashMap<String, usize>)> = LazyLock::new(|| {
    // They are made with the program.
    let files = FileDescriptorSet::decode(DESCRIPTORS).unwrap_or_default();
    Schema::of_files(&files)
});

/// The place of a message in [`OURS`], if it may come from somebody who means harm. What a daemon answers to its own client is no
/// such thing, and its logs hold what agents were allowed to say.
fn place_of<M: Name>() -> Option<usize> {
    let is_hostile = M::PACKAGE == "forge.agent.v1" || M::NAME.ends_with("Request");
    is_hostile.then(|| OURS.1.get(&M::full_name()).copied()).flatten()
}

/// The codec of our packages: that of prost, which refuses what would become too large.
#[derive(Debug)]
pub struct BoundedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for BoundedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for BoundedCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Name + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(BufferSettings::default())
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder { place: place_of::<U>(), message: PhantomData }
    }
}

/// See [`BoundedCodec`].
#[derive(Debug)]
pub struct BoundedDecoder<U> {
    place: Option<usize>,
    message: PhantomData<U>,
}

impl<U: Message + Default + Send> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let message = buffer.copy_to_bytes(buffer.remaining());
        if self.place.is_some_and(|place| !OURS.0.is_bearable(place, &message)) {
            return Err(Status::resource_exhausted("the message holds too many others to be read"));
        }
        U::decode(message).map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}

/// A codec that leaves the reading of requests to whoever takes them.
#[derive(Debug)]
pub struct RawCodec<T>(PhantomData<T>);

impl<T> Default for RawCodec<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message + Send + 'static> Codec for RawCodec<T> {
    type Encode = T;
    type Decode = Bytes;
    type Encoder = ProstEncoder<T>;
    type Decoder = RawDecoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(BufferSettings::default())
    }

    fn decoder(&mut self) -> Self::Decoder {
        RawDecoder
    }
}

/// See [`RawCodec`].
#[derive(Debug)]
pub struct RawDecoder;

impl Decoder for RawDecoder {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::agent as pb;

    fn is_bearable<M: Name>(message: &M) -> bool {
        OURS.0.is_bearable(place_of::<M>().expect("it is known"), &message.encode_to_vec())
    }

    fn answer(parts: usize, text: &str) -> pb::InvokeResponse {
        let part = pb::Part { content: Some(pb::part::Content::Text(text.to_owned())) };
        let response = pb::Message { parts: vec![part; parts], ..pb::Message::default() };
        let finished = pb::InvokeFinished { response: Some(response), ..pb::InvokeFinished::default() };
        let event = Some(pb::invoke_response::Event::Finished(finished));
        pb::InvokeResponse { event, ..pb::InvokeResponse::default() }
    }

    #[test]
    fn what_would_become_too_large_is_refused() {
        // Long texts, and some thousand parts, are what agents say; hundreds of thousands of empty ones are not.
        assert!(is_bearable(&answer(1, &"x".repeat(8 << 20))));
        assert!(is_bearable(&answer(10_000, "a piece of an answer")));
        assert!(!is_bearable(&answer(500_000, "")));
        let metadata = (0..500_000).map(|key: u32| (format!("{key:x}"), pb::Json::default())).collect();
        assert!(!is_bearable(&pb::Message { metadata, ..pb::Message::default() }), "an entry of a map is a message");
        let types = vec![String::new(); 2_000_000];
        assert!(!is_bearable(&pb::AgentCard { input_media_types: types, ..pb::AgentCard::default() }));
    }

    #[test]
    fn what_is_malformed_is_left_to_the_reader() {
        let place = place_of::<pb::InvokeResponse>().expect("it is known");
        let good = answer(10_000, "a piece of an answer").encode_to_vec();
        for cut in [SMALL + 1, good.len() - 1] {
            assert!(OURS.0.is_bearable(place, &good[..cut]));
        }
        assert!(OURS.0.is_bearable(place, &vec![0xff; SMALL * 2]));
        assert!(OURS.0.is_bearable(place, &vec![0; SMALL * 2]));
        // A length that is longer than everything there is.
        let mut long = vec![0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        long.resize(SMALL * 2, 0);
        assert!(OURS.0.is_bearable(place, &long));
    }

    /// Our own client reads whatever is in a log.
    #[test]
    fn only_what_may_be_hostile_is_weighed() {
        use crate::wire::control;
        assert!(place_of::<control::CreateRunRequest>().is_some());
        assert_eq!(place_of::<control::RunEvent>(), None);
        assert_eq!(place_of::<control::ListRunsResponse>(), None);
    }
}
