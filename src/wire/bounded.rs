//! What messages become when they are read: an empty message of two bytes takes a hundred and more. So a large
//! message that holds very many is refused before anything is made of it, whatever its bytes say.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{Arc, LazyLock};

use bytes::{Buf as _, Bytes};
use prost::encoding::decode_varint;
use prost::{Message, Name};
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic::{Code, Status};
use tonic_prost::ProstEncoder;
use tonic_types::{ErrorDetails, StatusExt as _};

use super::DESCRIPTORS;
use crate::limits::REQUEST_TEXT_BYTES;
use crate::work::in_place;

/// Messages of up to this many bytes are harmless, whatever they hold.
pub const SMALL: usize = 64 << 10;
/// Most memory for what one message holds, in bytes, about: `MAX_WEIGHT`, and `MAX_GROWTH` times its size on the wire.
const MAX_WEIGHT: usize = 32 << 20;
const MAX_GROWTH: usize = 4;
/// What an entry of a list of texts needs, in bytes.
const TEXT: usize = 80;
/// How deep messages may be inside of each other; deeper ones are not read anyway.
const MAX_DEPTH: usize = 100;

/// Why a message is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// It would take many times the memory that it has on the wire.
    #[error("it holds so many messages inside of each other that it would take many times its size")]
    TooDense,
    /// It is none. Readers see that only behind everything that they have made of it.
    #[error("failed to decode Protobuf message: it is malformed")]
    Malformed,
}

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
        let size = |message: &DescriptorProto| size_of(message, &all, &places, 0);
        // A list that grows has half as much room to spare, and the allocator needs some.
        let messages = all.iter().map(|(_, message)| (size(message) * 3 / 2 + 16, fields(message)));
        (Self { messages: messages.collect() }, places)
    }

    /// Weighs a message, by its place in the schema.
    ///
    /// # Errors
    /// When it is not worth reading.
    pub fn weigh(&self, place: usize, message: &[u8]) -> Result<(), Unread> {
        if message.len() <= SMALL {
            return Ok(());
        }
        let mut left = MAX_WEIGHT + MAX_GROWTH * message.len();
        self.weigh_within(place, message, &mut left, 0)
    }

    /// Takes what is held from what is left.
    fn weigh_within(&self, place: usize, mut message: &[u8], left: &mut usize, depth: usize) -> Result<(), Unread> {
        let Some((_, fields)) = self.messages.get(place) else { return Ok(()) };
        while !message.is_empty() {
            let (number, content) = field(&mut message).ok_or(Unread::Malformed)?;
            let Some(content) = content else { continue };
            match fields.iter().find(|(known, _)| *known == number) {
                Some((_, Field::Message(nested))) => {
                    let weight = self.messages.get(*nested).map_or(TEXT, |(weight, _)| *weight);
                    *left = left.checked_sub(weight).ok_or(Unread::TooDense)?;
                    if depth >= MAX_DEPTH {
                        return Err(Unread::Malformed);
                    }
                    self.weigh_within(*nested, content, left, depth + 1)?;
                }
                Some((_, Field::Text)) => *left = left.checked_sub(TEXT).ok_or(Unread::TooDense)?,
                None => {}
            }
        }
        Ok(())
    }
}

/// What the generated type of a message takes, about: messages in fields of their own are a part of it.
fn size_of(
    message: &DescriptorProto,
    all: &[(String, &DescriptorProto)],
    places: &HashMap<String, usize>,
    depth: usize,
) -> usize {
    let of = |field: &FieldDescriptorProto| match (field.label(), field.r#type()) {
        // Some are maps, which take more than lists.
        (Label::Repeated, Type::Message) => 48,
        (Label::Repeated, _) | (_, Type::String | Type::Bytes) => 24,
        (_, Type::Message) => {
            let place = places.get(field.type_name().trim_start_matches('.'));
            // One that holds itself is behind a pointer.
            let nested = place.and_then(|place| all.get(*place)).filter(|_| depth < 8);
            8 + nested.map_or(0, |(_, nested)| size_of(nested, all, places, depth + 1))
        }
        _ => 8,
    };
    let mut choices: HashMap<i32, usize> = HashMap::new();
    let mut size = 0;
    for field in &message.field {
        match field.oneof_index.filter(|_| !field.proto3_optional()) {
            Some(choice) => {
                let largest = choices.entry(choice).or_default();
                *largest = (*largest).max(of(field));
            }
            None => size += of(field),
        }
    }
    size + choices.values().sum::<usize>()
}

/// The next field: its number, and what it holds if it has a length. `None`: it is malformed.
fn field<'a>(message: &mut &'a [u8]) -> Option<(u64, Option<&'a [u8]>)> {
    let key = decode_varint(message).ok()?;
    let skipped = match key & 7 {
        0 => {
            decode_varint(message).ok()?;
            return Some((key >> 3, None));
        }
        1 => 8,
        2 => {
            let length = usize::try_from(decode_varint(message).ok()?).ok()?;
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

/// Of messages by name: their fields that hold texts or messages. A number, a name, and the message; `None`: it is a
/// text.
type Texts = HashMap<String, Vec<(u64, String, Option<String>)>>;

/// Those of our own packages.
static TEXTS: LazyLock<Texts> = LazyLock::new(|| {
    fn collect(prefix: &str, message: &DescriptorProto, all: &mut Texts) {
        let name = format!("{prefix}.{}", message.name());
        let fields = message.field.iter().filter_map(|field| {
            let nested = match field.r#type() {
                Type::String => None,
                Type::Message => Some(field.type_name().trim_start_matches('.').to_owned()),
                _ => return None,
            };
            Some((u64::try_from(field.number()).ok()?, field.name().to_owned(), nested))
        });
        all.insert(name.clone(), fields.collect());
        for nested in &message.nested_type {
            collect(&name, nested, all);
        }
    }
    let files = FileDescriptorSet::decode(DESCRIPTORS).unwrap_or_default();
    let mut all = HashMap::new();
    for file in &files.file {
        for message in &file.message_type {
            collect(file.package(), message, &mut all);
        }
    }
    all
});

/// Texts of requests that may be longer than [`REQUEST_TEXT_BYTES`], by the names of their fields: what people
/// write, and what has a limit of its own. They name nothing that is looked for.
const LONG_TEXTS: [&str; 7] = ["case_patterns", "reason", "focus", "trace_url", "traceparent", "tracestate", "baggage"];

/// Why a text of a request is not taken.
#[derive(Debug, Clone, Copy)]
enum Unfit {
    /// Such a text is none to databases, and no name of anything.
    Nul,
    /// Nothing has such a name, and databases do not look for one.
    Long(usize),
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nul => write!(out, "a text must not hold NUL characters"),
            Self::Long(bytes) => write!(out, "it has {bytes} bytes, at most {REQUEST_TEXT_BYTES} are allowed"),
        }
    }
}

/// Where a message holds a text that is not taken, in the words of the proto, and why it is not.
fn unfit_in(name: &str, mut message: &[u8], depth: usize) -> Option<(String, Unfit)> {
    let fields = TEXTS.get(name).filter(|_| depth < MAX_DEPTH)?;
    // Values that a client hands on have limits of their own.
    let names_things = name.starts_with(REQUESTS);
    while let Some((number, content)) = field(&mut message) {
        let Some(content) = content else { continue };
        let Some((_, known, nested)) = fields.iter().find(|(of, ..)| *of == number) else { continue };
        match nested {
            None if content.contains(&0) => return Some((known.clone(), Unfit::Nul)),
            None if names_things && content.len() > REQUEST_TEXT_BYTES && !LONG_TEXTS.contains(&known.as_str()) => {
                return Some((known.clone(), Unfit::Long(content.len())));
            }
            None => {}
            Some(nested) => {
                if let Some((inside, why)) = unfit_in(nested, content, depth + 1) {
                    return Some((format!("{known}.{inside}"), why));
                }
            }
        }
    }
    None
}

/// The package of requests to the daemon.
const REQUESTS: &str = "forge.control.v1";

/// Refuses a request to the daemon that holds a text with a NUL in it, or a name that is longer than any name.
fn check_texts<M: Name>(message: &[u8]) -> Result<(), Status> {
    let is_request = M::PACKAGE == REQUESTS && M::NAME.ends_with("Request");
    // A piece of a bundle holds no texts, and is most of what comes.
    if !is_request || M::NAME == "UploadBundleRequest" {
        return Ok(());
    }
    let Some((place, why)) = unfit_in(&M::full_name(), message, 0) else { return Ok(()) };
    let message = format!("{place}: {why}");
    let details = ErrorDetails::with_bad_request_violation(place, why.to_string());
    Err(Status::with_error_details(Code::InvalidArgument, message, details))
}

/// The schema of our own packages, and the places of their messages.
static OURS: LazyLock<(Schema, HashMap<String, usize>)> = LazyLock::new(|| {
    // They are made with the program.
    let files = FileDescriptorSet::decode(DESCRIPTORS).unwrap_or_default();
    Schema::of_files(&files)
});

/// The place of a message in [`OURS`], if it may come from a hostile peer. What a daemon answers to its own client is
/// no such thing, and its logs hold what agents were allowed to say.
fn place_of<M: Name>() -> Option<usize> {
    let is_hostile = M::PACKAGE == "forge.agent.v1" || M::NAME.ends_with("Request");
    is_hostile.then(|| OURS.1.get(&M::full_name()).copied()).flatten()
}

/// Weighs a message of our packages.
///
/// # Errors
/// When it is not worth reading.
pub fn weigh<M: Name>(message: &[u8]) -> Result<(), Unread> {
    // Looking for its place takes longer than most messages are read.
    if message.len() <= SMALL {
        return Ok(());
    }
    place_of::<M>().map_or(Ok(()), |place| OURS.0.weigh(place, message))
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
        BoundedDecoder(PhantomData)
    }
}

/// See [`BoundedCodec`].
#[derive(Debug)]
pub struct BoundedDecoder<U>(PhantomData<U>);

impl<U: Message + Name + Default + Send> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        in_place(buffer.remaining(), || decode(buffer.copy_to_bytes(buffer.remaining())))
    }
}

/// Reads a message of another program.
fn decode<U: Message + Name + Default>(message: Bytes) -> Result<Option<U>, Status> {
    match weigh::<U>(&message) {
        Ok(()) => {}
        Err(unread @ Unread::TooDense) => {
            let mut status = Status::resource_exhausted(unread.to_string());
            // So that nobody takes it for what the other side said.
            status.set_source(Arc::new(unread));
            return Err(status);
        }
        Err(unread @ Unread::Malformed) => return Err(Status::internal(unread.to_string())),
    }
    check_texts::<U>(&message)?;
    U::decode(message).map(Some).map_err(|error| Status::internal(error.to_string()))
}

/// A codec that leaves the reading of requests to the service that takes them.
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

    fn weigh<M: Name>(message: &M) -> Result<(), Unread> {
        super::weigh::<M>(&message.encode_to_vec())
    }

    fn answer(parts: usize, text: &str) -> pb::InvokeResponse {
        let part = pb::Part { content: Some(pb::part::Content::Text(text.to_owned())) };
        let response = pb::Message { parts: vec![part; parts], ..pb::Message::default() };
        let finished = pb::InvokeFinished { response: Some(response), ..pb::InvokeFinished::default() };
        let event = Some(pb::invoke_response::Event::Finished(finished));
        pb::InvokeResponse { event, ..pb::InvokeResponse::default() }
    }

    fn numbers(count: usize) -> pb::Json {
        use prost_types::value::Kind;
        let value = |kind| prost_types::Value { kind: Some(kind) };
        let values = (0..count).map(|_| value(Kind::NumberValue(1.5))).collect();
        pb::Json { form: Some(pb::json::Form::Value(value(Kind::ListValue(prost_types::ListValue { values })))) }
    }

    #[test]
    fn what_would_become_too_large_is_refused() {
        // Long texts, some thousand parts, and long lists are what agents say; hundreds of thousands of empty ones
        // are not.
        assert_eq!(weigh(&answer(1, &"x".repeat(8 << 20))), Ok(()));
        assert_eq!(weigh(&answer(20_000, "a piece of an answer")), Ok(()));
        assert_eq!(weigh(&numbers(300_000)), Ok(()));
        assert_eq!(weigh(&answer(500_000, "")), Err(Unread::TooDense));
        let metadata = (0..500_000).map(|key: u32| (format!("{key:x}"), pb::Json::default())).collect();
        let entries = weigh(&pb::Message { metadata, ..pb::Message::default() });
        assert_eq!(entries, Err(Unread::TooDense), "an entry of a map is a message");
        let types = vec![String::new(); 2_000_000];
        let texts = weigh(&pb::AgentCard { input_media_types: types, ..pb::AgentCard::default() });
        assert_eq!(texts, Err(Unread::TooDense));
    }

    /// As many cases as `forgectl run --failed` may name.
    #[test]
    fn large_requests_of_clients_are_read() {
        use crate::wire::control;
        let case = control::CaseRef {
            suite: "evals/weather.golden.json".to_owned(),
            case_id: "the-weather-in-paris-123456".to_owned(),
            ..control::CaseRef::default()
        };
        let spec = Some(control::RunSpec { cases: vec![case; 400_000], ..control::RunSpec::default() });
        let request = control::CreateRunRequest { spec, ..control::CreateRunRequest::default() };
        assert_eq!(weigh(&request), Ok(()));
    }

    /// Readers go on behind the end of a message that holds a longer one, and say that it is malformed when they
    /// have made everything of it.
    #[test]
    fn what_is_malformed_is_not_read() {
        let place = place_of::<pb::InvokeResponse>().expect("it is known");
        let good = answer(10_000, "a piece of an answer").encode_to_vec();
        for cut in [SMALL + 1, good.len() - 1] {
            assert_eq!(OURS.0.weigh(place, &good[..cut]), Err(Unread::Malformed));
        }
        // `finished`, of five bytes, with metadata of megabytes.
        let mut long = vec![0x4a, 0x05, 0x3a];
        prost::encoding::encode_varint(4 << 20, &mut long);
        long.extend([0x0a, 0x00].repeat(2 << 20));
        assert_eq!(OURS.0.weigh(place, &long), Err(Unread::Malformed));
        assert_eq!(OURS.0.weigh(place, &vec![0xff; SMALL * 2]), Err(Unread::Malformed));
        // What is malformed and small is left to the reader.
        assert_eq!(OURS.0.weigh(place, &[0xff; 100]), Ok(()));
    }

    #[test]
    fn names_in_requests_are_no_longer_than_names() {
        use crate::wire::control;
        fn refused<M: Name>(request: &M) -> Option<String> {
            check_texts::<M>(&request.encode_to_vec()).err().map(|status| status.message().to_owned())
        }
        let long = |bytes| "x".repeat(bytes);
        let watch = |bytes| control::WatchRunRequest { run_id: long(bytes), ..control::WatchRunRequest::default() };
        assert_eq!(refused(&watch(REQUEST_TEXT_BYTES)), None);
        let told = refused(&watch(REQUEST_TEXT_BYTES + 1));
        assert_eq!(told.as_deref(), Some("run_id: it has 2049 bytes, at most 2048 are allowed"));
        let case = control::CaseRef { case_id: long(1 << 20), ..control::CaseRef::default() };
        let spec = control::RunSpec { cases: vec![case], ..control::RunSpec::default() };
        let create = control::CreateRunRequest { spec: Some(spec), ..control::CreateRunRequest::default() };
        assert!(refused(&create).is_some_and(|told| told.starts_with("spec.cases.case_id: ")));
        let cancel = control::CancelRunRequest { reason: long(1 << 20), ..control::CancelRunRequest::default() };
        assert_eq!(refused(&cancel), None, "what people write is no name");
        let value = prost_types::Value { kind: Some(prost_types::value::Kind::StringValue(long(1 << 20))) };
        let json = pb::Json { form: Some(pb::json::Form::Value(value)) };
        let params = [("key".to_owned(), json)].into();
        let generate = control::GenerateCasesRequest { params, ..control::GenerateCasesRequest::default() };
        assert_eq!(refused(&generate), None, "what is handed on is no name");
    }

    #[test]
    fn texts_of_requests_hold_no_nul() {
        use crate::wire::control;
        let refused = |request: &control::CreateRunRequest| {
            let refused = check_texts::<control::CreateRunRequest>(&request.encode_to_vec());
            refused.err().map(|status| (status.code(), status.message().to_owned()))
        };
        let told =
            |place: &str| Some((tonic::Code::InvalidArgument, format!("{place}: a text must not hold NUL characters")));
        let spec = |spec| control::CreateRunRequest { spec: Some(spec), ..control::CreateRunRequest::default() };
        let nul = || "a\0b".to_owned();
        let labels = [(nul(), "x".to_owned())].into();
        let targets = vec![control::Target::default(), control::Target { url: nul(), ..control::Target::default() }];
        let bundle = Some(control::BundleRef { sha256: vec![0; 32], size_bytes: 0 });
        for (request, place) in [
            (control::CreateRunRequest { request_id: nul(), ..control::CreateRunRequest::default() }, "request_id"),
            (spec(control::RunSpec { agent_id: nul(), ..control::RunSpec::default() }), "spec.agent_id"),
            (spec(control::RunSpec { labels, ..control::RunSpec::default() }), "spec.labels.key"),
            (spec(control::RunSpec { targets, ..control::RunSpec::default() }), "spec.targets.url"),
        ] {
            assert_eq!(refused(&request), told(place));
        }
        assert_eq!(
            refused(&spec(control::RunSpec { bundle, ..control::RunSpec::default() })),
            None,
            "bytes are no text"
        );
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
