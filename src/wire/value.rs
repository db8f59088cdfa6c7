//! Values of both packages: JSON, faults, usage, times, and what is wrong with a value.

use std::time::Duration;

use super::agent as pb;
use crate::conversation::{Cost, Fault, FaultOrigin, JsonText, MaybeJson, Usage};
use crate::json::write_string;

/// Longest error text that is kept, in characters; the rest is counted.
const MAX_ERROR_CHARS: usize = 2_000;

/// A value from the wire that cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct WireError {
    /// The field, in the words of the proto.
    pub field: &'static str,
    /// What is wrong with its value.
    pub problem: String,
}

impl WireError {
    /// A field with a value that cannot be taken.
    #[must_use]
    pub fn new(field: &'static str, problem: impl Into<String>) -> Self {
        Self { field, problem: problem.into() }
    }
}

/// A text that is left empty where there is none.
#[must_use]
pub fn some_text(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// The name of a gRPC status, as specifications write it.
#[must_use]
pub const fn code_name(code: tonic::Code) -> &'static str {
    use tonic::Code;
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// Shortens a text that somebody else wrote and says by how much.
#[must_use]
pub fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_ERROR_CHARS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}… ({} characters in all)", &text[..end], text.chars().count()),
    }
}

/// JSON text as raw bytes.
#[must_use]
pub fn json_to_proto(json: &JsonText) -> pb::Json {
    pb::Json { form: Some(pb::json::Form::Raw(json.as_str().as_bytes().to_vec())) }
}

pub(super) fn payload_to_proto(payload: &MaybeJson) -> pb::Json {
    match payload {
        MaybeJson::Json(json) => json_to_proto(json),
        MaybeJson::Malformed(text) => pb::Json { form: Some(pb::json::Form::Malformed(text.as_bytes().to_vec())) },
    }
}

/// A result that is not reported is a message without a form.
pub(super) fn result_to_proto(result: Option<&MaybeJson>) -> pb::Json {
    result.map_or_else(pb::Json::default, payload_to_proto)
}

/// Reads JSON; unset, without a form or with empty `raw` it is undefined. What claims to be JSON and is not counts as
/// malformed.
#[must_use]
pub fn json_from_proto(json: Option<pb::Json>) -> Option<MaybeJson> {
    let text = match json?.form? {
        pb::json::Form::Raw(bytes) if bytes.is_empty() => return None,
        pb::json::Form::Raw(bytes) => String::from_utf8(bytes),
        pb::json::Form::Value(value) => {
            let mut text = String::new();
            write_value(&value, &mut text);
            Ok(text)
        }
        pb::json::Form::Malformed(bytes) => {
            return Some(MaybeJson::Malformed(String::from_utf8_lossy(&bytes).into_owned()));
        }
    };
    Some(match text {
        Ok(text) => JsonText::new(text.as_str()).map_or(MaybeJson::Malformed(text), MaybeJson::Json),
        Err(error) => MaybeJson::Malformed(String::from_utf8_lossy(error.as_bytes()).into_owned()),
    })
}

/// Writes a `google.protobuf.Value`, whose numbers are all doubles: integral ones up to 2^53 are written without `.0`.
/// Its depth is bounded by the decoder.
fn write_value(value: &prost_types::Value, out: &mut String) {
    use prost_types::value::Kind;
    match &value.kind {
        Some(Kind::BoolValue(value)) => out.push_str(if *value { "true" } else { "false" }),
        Some(Kind::NumberValue(number)) if number.is_finite() => {
            out.push_str(ryu_js::Buffer::new().format(*number));
        }
        None | Some(Kind::NullValue(_) | Kind::NumberValue(_)) => out.push_str("null"),
        Some(Kind::StringValue(text)) => write_string(text, out),
        Some(Kind::ListValue(list)) => {
            out.push('[');
            for (index, item) in list.values.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_value(item, out);
            }
            out.push(']');
        }
        Some(Kind::StructValue(object)) => {
            out.push('{');
            for (index, (key, member)) in object.fields.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_string(key, out);
                out.push(':');
                write_value(member, out);
            }
            out.push('}');
        }
    }
}

/// A fault.
#[must_use]
pub fn fault_to_proto(fault: &Fault) -> pb::Fault {
    let origin = match fault.origin {
        FaultOrigin::Unspecified => pb::FaultOrigin::Unspecified,
        FaultOrigin::Agent => pb::FaultOrigin::Agent,
        FaultOrigin::Model => pb::FaultOrigin::Model,
        FaultOrigin::Tool => pb::FaultOrigin::Tool,
        FaultOrigin::Daemon => pb::FaultOrigin::Daemon,
        FaultOrigin::Transport => pb::FaultOrigin::Transport,
    };
    pb::Fault {
        grpc_code: fault.code,
        reason: fault.reason.clone(),
        message: fault.message.clone(),
        origin: origin.into(),
        retryable: fault.retryable,
        ..pb::Fault::default()
    }
}

/// Reads a fault; long texts are shortened.
#[must_use]
pub fn fault_from_proto(fault: &pb::Fault) -> Fault {
    let origin = match fault.origin() {
        pb::FaultOrigin::Unspecified => FaultOrigin::Unspecified,
        pb::FaultOrigin::Agent => FaultOrigin::Agent,
        pb::FaultOrigin::Model => FaultOrigin::Model,
        pb::FaultOrigin::Tool => FaultOrigin::Tool,
        pb::FaultOrigin::Daemon => FaultOrigin::Daemon,
        pb::FaultOrigin::Transport => FaultOrigin::Transport,
    };
    Fault {
        code: fault.grpc_code,
        reason: shorten(&fault.reason),
        message: shorten(&fault.message),
        origin,
        retryable: fault.retryable,
    }
}

/// Tokens used.
#[must_use]
pub fn usage_to_proto(usage: &Usage) -> pb::Usage {
    pb::Usage {
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        cache_read_tokens: usage.cache_read_tokens,
        cache_write_tokens: usage.cache_write_tokens,
        reasoning_tokens: usage.reasoning_tokens,
        cost: usage.cost.map(|cost| pb::Cost {
            currency_code: "USD".to_owned(),
            nano_units: i64::try_from(cost.nano_usd).unwrap_or(i64::MAX),
            estimated: cost.estimated,
        }),
    }
}

/// Reads tokens used; a negative count is none, and so is an amount in another currency than US dollars.
#[must_use]
pub fn usage_from_proto(usage: &pb::Usage) -> Usage {
    let count = |tokens: Option<i64>| tokens.filter(|tokens| *tokens >= 0);
    Usage {
        input_tokens: count(usage.input_tokens),
        output_tokens: count(usage.output_tokens),
        cache_read_tokens: count(usage.cache_read_tokens),
        cache_write_tokens: count(usage.cache_write_tokens),
        reasoning_tokens: count(usage.reasoning_tokens),
        cost: usage.cost.as_ref().and_then(|cost| {
            let nano_usd = u64::try_from(cost.nano_units).ok()?;
            let is_usd = matches!(cost.currency_code.as_str(), "" | "USD");
            is_usd.then_some(Cost { nano_usd, estimated: cost.estimated })
        }),
    }
}

/// A span of time.
#[must_use]
pub fn duration_to_proto(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or(0),
    }
}

/// Longest span of time that the wire has, in seconds: about 10,000 years
/// (<https://github.com/protocolbuffers/protobuf/blob/main/src/google/protobuf/duration.proto>).
const MAX_SECONDS: u64 = 315_576_000_000;

/// Reads a span of time; `None` when it is negative, or none that the wire may have. By hand: prost's own conversion
/// overflows at the edge of what the fields hold.
#[must_use]
pub fn duration_from_proto(duration: prost_types::Duration) -> Option<Duration> {
    let seconds = u64::try_from(duration.seconds).ok().filter(|seconds| *seconds <= MAX_SECONDS)?;
    let nanos = u32::try_from(duration.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Duration::new(seconds, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_spans_of_time_are_none() {
        let read = |seconds, nanos| duration_from_proto(prost_types::Duration { seconds, nanos });
        assert_eq!(read(1, 500_000_000), Some(Duration::from_millis(1_500)));
        assert_eq!(read(315_576_000_000, 999_999_999), Some(Duration::new(MAX_SECONDS, 999_999_999)));
        let (low, high) = (i64::MIN, i64::MAX);
        for (seconds, nanos) in [
            (low, 0),
            (low, i32::MIN),
            (low, i32::MAX),
            (high, i32::MAX),
            (high, 0),
            (0, i32::MIN),
            (-1, 999_999_999),
            (1, -1),
            (0, 1_000_000_000),
        ] {
            assert_eq!(read(seconds, nanos), None, "{seconds} {nanos}");
        }
    }
}
