//! How an answer of an HTTP chat endpoint is read.
//!
//! `{"response": "…", "toolCalls": [{"name", "success", "durationMs", "params"}]}` comes back. Where each value
//! stands is a setting. Parameters and results travel as the bytes that the endpoint sent.

use std::time::Duration;

use serde_json::value::RawValue;

use super::field::FieldPath;
use super::fields::Fields;
use super::told::{broken, raw, worked, written};
use crate::limits::TOOL_CALLS;
use crate::wire::agent::Json;
use crate::wire::agent::tool_call_finished::Outcome;

/// What an endpoint answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) tool_calls: Vec<ToolCall>,
}

/// One tool call of an answer.
#[derive(Debug)]
pub(super) struct ToolCall {
    pub(super) name: String,
    /// The arguments; or why they are not known: that the endpoint does not tell them does not say that there were
    /// none.
    pub(super) params: Result<Json, String>,
    pub(super) outcome: Outcome,
    pub(super) duration: Option<Duration>,
}

impl Fields {
    /// Reads an answer.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub(super) fn answer(&self, body: &[u8]) -> Result<Answer, String> {
        let document: &RawValue = serde_json::from_slice(body).map_err(|error| format!("not JSON ({error})"))?;
        let Some(response) = self.response.find(document) else {
            return Err(format!("JSON without the field {}", self.response));
        };
        let text = text(response).map_err(|problem| format!("JSON whose field {} {problem}", self.response))?;
        let list = self.tool_calls.find(document).filter(|list| list.get() != "null");
        let calls = list.map(|list| self.calls(list)).transpose()?.unwrap_or_default();
        Ok(Answer { text, tool_calls: calls })
    }

    fn calls(&self, list: &RawValue) -> Result<Vec<ToolCall>, String> {
        let field = &self.tool_calls;
        let items: Vec<&RawValue> = serde_json::from_str(list.get())
            .map_err(|_| format!("JSON whose field {field} is {}, not a list", kind(list)))?;
        if items.len() > TOOL_CALLS {
            return Err(format!("{} tool calls, which is more than {TOOL_CALLS}", items.len()));
        }
        let read = |(index, item): (usize, &&RawValue)| {
            self.call(item).map_err(|problem| format!("JSON whose field {field}[{index}]{problem}"))
        };
        items.iter().enumerate().map(read).collect()
    }

    /// Reads an entry of the list of tool calls: a name, or an object. The error goes on where the entry was named.
    fn call(&self, item: &RawValue) -> Result<ToolCall, String> {
        if let Ok(name) = text(item) {
            let params = Err("the endpoint's answer tells the tool's name alone".to_owned());
            return Ok(ToolCall { name, params, outcome: worked(None), duration: None });
        }
        if !item.get().starts_with('{') {
            return Err(format!(" is {}, neither the name of a tool nor an object", kind(item)));
        }
        let wrong = |field: &FieldPath, problem: String| format!(".{field} {problem}");
        let name = self.tool_name.find(item).ok_or_else(|| wrong(&self.tool_name, "is missing".to_owned()))?;
        let name = text(name).map_err(|problem| wrong(&self.tool_name, problem))?;
        let there = |field: &FieldPath| field.find(item).filter(|value| value.get() != "null");
        let success = match there(&self.tool_success).map(|value| (value, value.get())) {
            None => None,
            Some((_, "true")) => Some(true),
            Some((_, "false")) => Some(false),
            Some((value, _)) => {
                return Err(wrong(&self.tool_success, format!("is {}, neither true nor false", kind(value))));
            }
        };
        let duration = there(&self.tool_duration).map(|value| {
            let millis: Option<f64> = serde_json::from_str(value.get()).ok();
            let duration = millis.and_then(|millis| Duration::try_from_secs_f64(millis / 1000.0).ok());
            duration
                .ok_or_else(|| wrong(&self.tool_duration, format!("is {}, not a number of milliseconds", shown(value))))
        });
        let error = there(&self.tool_error).map(shown);
        let outcome = if success.unwrap_or(error.is_none()) {
            worked(self.tool_result.find(item))
        } else {
            broken(error.unwrap_or_else(|| format!("{} is false, and no error is given", self.tool_success)))
        };
        let params = self.tool_params.find(item).map(arguments);
        let params = params.ok_or_else(|| format!("the endpoint's answer holds no {} of the call", self.tool_params));
        Ok(ToolCall { name, params, outcome, duration: duration.transpose()? })
    }
}

/// The arguments of a call. A text that holds an object is taken for that object: model APIs write arguments so.
fn arguments(value: &RawValue) -> Json {
    let inner = text(value).ok().filter(|text| text.trim_start().starts_with('{'));
    let inner = inner.filter(|text| serde_json::from_str::<&RawValue>(text).is_ok());
    inner.map_or_else(|| raw(value), |inner| written(&inner))
}

fn text(value: &RawValue) -> Result<String, String> {
    if !value.get().starts_with('"') {
        return Err(format!("is {}, not a text", kind(value)));
    }
    serde_json::from_str(value.get()).map_err(|error| format!("is no text ({error})"))
}

/// A value for people: texts without their quotes.
fn shown(value: &RawValue) -> String {
    text(value).unwrap_or_else(|_| value.get().to_owned())
}

fn kind(value: &RawValue) -> &'static str {
    match value.get().as_bytes().first() {
        Some(b'"') => "a text",
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::agent::json;

    /// Name, parameters, and result or error of each call, in one line.
    fn calls(fields: &Fields, body: &str) -> String {
        let answer = fields.answer(body.as_bytes()).unwrap_or_else(|error| panic!("{body}: {error}"));
        let bytes = |json: &Json| match &json.form {
            Some(json::Form::Raw(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
            _ => "-".to_owned(),
        };
        let line = |call: &ToolCall| {
            let outcome = match &call.outcome {
                Outcome::Result(result) => format!("ok {}", bytes(result)),
                Outcome::Error(fault) => format!("failed {}", fault.message),
            };
            format!("{} {} {outcome}", call.name, call.params.as_ref().map_or_else(|_| "?".to_owned(), bytes))
        };
        answer.tool_calls.iter().map(line).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn tool_calls() {
        let fields = Fields::default();
        for (list, read) in [
            (
                r#"[{"name": "a", "params": {"b": 9007199254740993, "a": 1.0}}]"#,
                r#"a {"b": 9007199254740993, "a": 1.0} ok -"#,
            ),
            (
                r#"["a", {"name": "b", "success": false}]"#,
                "a ? ok -; b ? failed success is false, and no error is given",
            ),
            (
                r#"[{"name": "a", "error": "no"}, {"name": "b", "error": {"c": 1}}]"#,
                r#"a ? failed no; b ? failed {"c": 1}"#,
            ),
            (r#"[{"name": "a", "error": null, "success": null}]"#, "a ? ok -"),
            (r#"[{"name": "a", "error": "no", "success": true, "result": [1]}]"#, "a ? ok [1]"),
            (
                r#"[{"name": "a", "params": "{\"b\": 1.0}"}, {"name": "b", "params": "{x"}]"#,
                r#"a {"b": 1.0} ok -; b "{x" ok -"#,
            ),
            (r#"[{"name": "a", "params": null}]"#, "a null ok -"),
            ("null", ""),
            ("[]", ""),
        ] {
            assert_eq!(calls(&fields, &format!(r#"{{"response": "", "toolCalls": {list}}}"#)), read, "{list}");
        }
        assert_eq!(calls(&fields, r#"{"response": ""}"#), "");
    }

    #[test]
    fn what_is_no_answer() {
        for (body, problem) in [
            ("<html>", "not JSON (expected value at line 1 column 1)"),
            ("", "not JSON (EOF while parsing a value at line 1 column 0)"),
            ("[]", "JSON without the field response"),
            (r#"{"response": null}"#, "JSON whose field response is null, not a text"),
            (r#"{"response": {}}"#, "JSON whose field response is an object, not a text"),
            (r#"{"response": "", "toolCalls": {}}"#, "JSON whose field toolCalls is an object, not a list"),
            (r#"{"response": "", "toolCalls": [1]}"#, "JSON whose field toolCalls[0] is a number, neither the name"),
            (r#"{"response": "", "toolCalls": ["a", {}]}"#, "JSON whose field toolCalls[1].name is missing"),
            (r#"{"response": "", "toolCalls": [{"name": "a", "success": 1}]}"#, "[0].success is a number, neither"),
            (
                r#"{"response": "", "toolCalls": [{"name": "a", "durationMs": -1}]}"#,
                "[0].durationMs is -1, not a number",
            ),
            (r#"{"response": "", "toolCalls": [{"name": "a", "durationMs": "1"}]}"#, "is 1, not a number of"),
        ] {
            let error = Fields::default().answer(body.as_bytes()).expect_err(body);
            assert!(error.contains(problem), "{body}: {error}");
        }
        let many = format!(r#"{{"response": "", "toolCalls": [{}"a"]}}"#, "\"a\",".repeat(TOOL_CALLS));
        assert!(Fields::default().answer(many.as_bytes()).is_err());
        assert!(Fields::default().answer(b"{\"response\": \"\xff\"}").is_err());
    }
}
