//! Values of an answer that are not where they should be, while others have nearly their names: an endpoint that writes
//! `tool_calls` is taken for one that calls no tools, which nobody should have to find out alone.

use serde_json::value::RawValue;

use super::field::FieldPath;
use super::fields::Fields;

/// A setting, and the places where endpoints put its value besides.
struct Known {
    setting: &'static str,
    kind: Kind,
    near: &'static [&'static str],
}

/// What a value has to be.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    List,
    Arguments,
    Truth,
    Number,
    Anything,
}

impl Kind {
    fn holds(self, value: &RawValue) -> bool {
        let first = value.get().as_bytes().first().copied().unwrap_or_default();
        match self {
            Self::Text => first == b'"',
            // One that is no list is refused once it is read: it is told all the same.
            Self::List => matches!(first, b'[' | b'{'),
            Self::Arguments => matches!(first, b'{' | b'"'),
            Self::Truth => matches!(first, b't' | b'f'),
            Self::Number => first == b'-' || first.is_ascii_digit(),
            Self::Anything => first != b'n',
        }
    }
}

const RESPONSE: Known = Known {
    setting: "--response-field",
    kind: Kind::Text,
    near: &[
        "answer",
        "text",
        "output",
        "content",
        "reply",
        "message",
        "output_text",
        "completion",
        "message.content",
        "choices[0].message.content",
    ],
};
const TOOL_CALLS: Known = Known {
    setting: "--tool-calls-field",
    kind: Kind::List,
    near: &[
        "toolCalls",
        "tool_calls",
        "tools",
        "calls",
        "function_calls",
        "functionCalls",
        "toolsUsed",
        "tools_used",
        "toolInvocations",
        "tool_invocations",
        "message.tool_calls",
        "choices[0].message.tool_calls",
    ],
};
const NAME: Known =
    Known { setting: "--tool-name-field", kind: Kind::Text, near: &["tool", "tool_name", "function.name", "function"] };
const PARAMS: Known = Known {
    setting: "--tool-params-field",
    kind: Kind::Arguments,
    near: &["arguments", "args", "input", "parameters", "function.arguments"],
};
const SUCCESS: Known =
    Known { setting: "--tool-success-field", kind: Kind::Truth, near: &["succeeded", "ok", "successful"] };
const DURATION: Known = Known {
    setting: "--tool-duration-field",
    kind: Kind::Number,
    near: &["duration_ms", "durationMillis", "elapsedMs", "latencyMs"],
};
const RESULT: Known = Known { setting: "--tool-result-field", kind: Kind::Anything, near: &["output", "response"] };
const ERROR: Known = Known { setting: "--tool-error-field", kind: Kind::Anything, near: &["errorMessage", "failure"] };

impl Fields {
    /// What an answer may have meant, a line for each field that is not there while one of nearly its name is. Of
    /// several tool calls the first one of its kind is told.
    pub(super) fn near(&self, body: &[u8]) -> Vec<String> {
        let Ok(document) = serde_json::from_slice::<&RawValue>(body) else { return Vec::new() };
        // An endpoint that wraps the answer wraps its tool calls with it.
        let wrapped: Vec<FieldPath> = TOOL_CALLS.near.iter().filter_map(|near| self.response.beside(near)).collect();
        let mut found: Vec<String> = [(&self.response, RESPONSE, &[][..]), (&self.tool_calls, TOOL_CALLS, &*wrapped)]
            .into_iter()
            .filter_map(|(field, known, more)| told("its answer", field, &known, more, document))
            .collect();
        let list = self.tool_calls.find(document).map(RawValue::get).unwrap_or_default();
        let calls: Vec<&RawValue> = serde_json::from_str(list).unwrap_or_default();
        for (field, known) in [
            (&self.tool_name, NAME),
            (&self.tool_params, PARAMS),
            (&self.tool_success, SUCCESS),
            (&self.tool_duration, DURATION),
            (&self.tool_result, RESULT),
            (&self.tool_error, ERROR),
        ] {
            let objects = calls.iter().enumerate().filter(|(_, call)| call.get().starts_with('{'));
            found.extend(
                objects
                    .into_iter()
                    .find_map(|(index, call)| told(&format!("{}[{index}]", self.tool_calls), field, &known, &[], call)),
            );
        }
        found
    }
}

/// What there is to say of one field in a document. `more`: further places where its value may stand.
fn told(place: &str, field: &FieldPath, known: &Known, more: &[FieldPath], document: &RawValue) -> Option<String> {
    let is_there = |value: &&RawValue| value.get() != "null";
    let found = field.find(document).filter(is_there);
    // An empty list beside a full one says no more than none.
    let is_empty = found.is_some_and(|value| matches!(known.kind, Kind::List) && is_empty_list(value));
    if found.is_some() && !is_empty {
        return None;
    }
    let fits = |path: &FieldPath| {
        let value = path.find(document).filter(is_there).filter(|value| known.kind.holds(value));
        path != field && value.is_some_and(|value| !(is_empty && is_empty_list(value)))
    };
    let spelt = field.spelt_otherwise(document).into_iter();
    let near = known.near.iter().filter_map(|near| near.parse::<FieldPath>().ok());
    let beside = known.near.iter().filter_map(|near| field.beside(near));
    let near = spelt.chain(beside).chain(more.iter().cloned()).chain(near).find(fits)?;
    let (setting, how) = (known.setting, if is_empty { "nothing in the" } else { "no" });
    Some(format!("{place} has {how} field {field}, but {near}; forge-sidecar http {setting} {near} reads that"))
}

/// Whether a list or an object holds nothing.
fn is_empty_list(value: &RawValue) -> bool {
    let text = value.get();
    let inside = text.strip_prefix(['[', '{']).and_then(|text| text.strip_suffix([']', '}']));
    inside.is_some_and(|inside| inside.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_been_meant() {
        let mut fields = Fields::default();
        let near = |fields: &Fields, body: &str| fields.near(body.as_bytes());
        for body in [
            r#"{"response": "", "toolCalls": [], "tool_calls": [], "text": "x"}"#,
            r#"{"response": "", "tools": "none", "calls": 3}"#,
            r#"{"response": "", "toolCalls": ["a", {"name": "a", "params": {}}]}"#,
            r#"{"response": ""}"#,
            "[]",
            "no JSON",
        ] {
            assert!(near(&fields, body).is_empty(), "{body}: {:?}", near(&fields, body));
        }
        for (body, told) in [
            (
                r#"{"Response": "x"}"#,
                "its answer has no field response, but Response; forge-sidecar http --response-field Response reads that",
            ),
            (r#"{"response": null, "text": "x"}"#, "no field response, but text;"),
            (r#"{"response": "", "toolcalls": []}"#, "no field toolCalls, but toolcalls;"),
            (r#"{"response": "", "function_calls": [{}]}"#, "no field toolCalls, but function_calls;"),
            (r#"{"response": "", "tool_calls": {"look": {}}}"#, "no field toolCalls, but tool_calls;"),
            (
                r#"{"response": "", "toolCalls": [ ], "tool_calls": [1]}"#,
                "nothing in the field toolCalls, but tool_calls;",
            ),
            (
                r#"{"response": "", "toolCalls": ["x", {"name": "a", "duration_ms": 3}]}"#,
                "toolCalls[1] has no field durationMs, but duration_ms;",
            ),
        ] {
            assert!(near(&fields, body).concat().contains(told), "{body}: {:?}", near(&fields, body));
        }
        fields.response = "data.reply".parse().expect("a path");
        let told = near(&fields, r#"{"data": {"answer": "x"}}"#).concat();
        assert!(told.contains("no field data.reply, but data.answer;"), "{told}");
        for name in ["toolCalls", "tool_calls"] {
            let told = near(&fields, &format!(r#"{{"data": {{"reply": "x", "{name}": [1]}}}}"#)).concat();
            assert!(told.contains(&format!("no field toolCalls, but data.{name};")), "{told}");
        }
    }
}
