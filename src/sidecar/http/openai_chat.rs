//! The chat completions API of OpenAI, which many others speak: what is sent, and what an answer or its stream says.
//!
//! Of several choices only the first one is read. A message of the role `tool`, which agents send in their streams
//! beside their own words, tells what a tool returned.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::conversation::{Content, Turn, text_of_output};
use super::told::{Account, Unusable, told_error, worked, written};
use crate::sidecar::attachments::{Attachments, FileAt};
use crate::wire::agent as pb;
use crate::wire::agent::FinishReason;

/// A conversation as this API has it.
pub(super) fn messages(turns: &[Turn<'_>], files: &Attachments) -> Result<Vec<Value>, String> {
    let mut messages = Vec::new();
    for turn in turns {
        let mut message = json!({"role": turn.role()});
        if !turn.name.is_empty() {
            message["name"] = turn.name.into();
        }
        let mut parts = Vec::new();
        let mut calls = Vec::new();
        for content in &turn.contents {
            match content {
                Content::Text(text) => parts.push(json!({"type": "text", "text": text})),
                Content::File(blob) => parts.push(file(blob, files)?),
                Content::Call { id, name, arguments } => {
                    let arguments = arguments.as_ref().map_or("{}", |arguments| arguments.get());
                    let function = json!({"name": name, "arguments": arguments});
                    calls.push(json!({"id": id, "type": "function", "function": function}));
                }
                Content::Output { id, output } => {
                    messages.push(json!({"role": "tool", "tool_call_id": id, "content": text_of_output(output)}));
                }
            }
        }
        if parts.is_empty() && calls.is_empty() && !turn.contents.is_empty() {
            continue;
        }
        message["content"] = match parts.as_slice() {
            [] if !calls.is_empty() => Value::Null,
            [] => "".into(),
            [only] if only["type"] == "text" => only["text"].clone(),
            _ => Value::Array(parts),
        };
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        messages.push(message);
    }
    Ok(messages)
}

fn file(blob: &pb::Blob, files: &Attachments) -> Result<Value, String> {
    let at = files.find(blob)?;
    match (blob.media_type.split('/').next().unwrap_or_default(), &at) {
        ("image", FileAt::Uri(uri)) => Ok(json!({"type": "image_url", "image_url": {"url": uri}})),
        ("image", FileAt::Content(_)) => {
            Ok(json!({"type": "image_url", "image_url": {"url": at.data_url(&blob.media_type)}}))
        }
        ("audio", FileAt::Content(_)) => {
            let format = if blob.media_type.ends_with("wav") { "wav" } else { "mp3" };
            Ok(json!({"type": "input_audio", "input_audio": {"data": at.base64(), "format": format}}))
        }
        (_, FileAt::Content(_)) => {
            let name = if blob.name.is_empty() { "file" } else { &blob.name };
            Ok(json!({"type": "file", "file": {"filename": name, "file_data": at.data_url(&blob.media_type)}}))
        }
        (_, FileAt::Uri(uri)) => Err(format!(
            "the case holds the address of a file ({uri}), and of addresses this API takes those of images alone"
        )),
    }
}

#[derive(Deserialize)]
struct Completion<'a> {
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(default)]
    id: String,
    #[serde(default)]
    model: String,
    #[serde(borrow, default)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(default)]
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default)]
    index: u32,
    /// `delta` in a stream.
    #[serde(borrow, default, alias = "delta")]
    message: Option<Message<'a>>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize, Default)]
struct Message<'a> {
    #[serde(default)]
    role: Option<String>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(default)]
    refusal: Option<String>,
    /// What DeepSeek and vLLM call the model's thoughts.
    #[serde(default)]
    reasoning_content: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<ToolCall>>,
    #[serde(default)]
    function_call: Option<Function>,
    #[serde(default)]
    tool_call_id: Option<String>,
}

#[derive(Deserialize)]
struct ToolCall {
    #[serde(default)]
    index: Option<u32>,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    function: Option<Function>,
    #[serde(default)]
    custom: Option<Custom>,
}

#[derive(Deserialize, Default)]
struct Function {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<String>,
}

#[derive(Deserialize)]
struct Custom {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    input: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    prompt_tokens: Option<i64>,
    #[serde(default)]
    completion_tokens: Option<i64>,
    #[serde(default)]
    prompt_tokens_details: Option<PromptDetails>,
    #[serde(default)]
    completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Deserialize)]
struct PromptDetails {
    #[serde(default)]
    cached_tokens: Option<i64>,
    #[serde(default)]
    cache_write_tokens: Option<i64>,
}

#[derive(Deserialize)]
struct CompletionDetails {
    #[serde(default)]
    reasoning_tokens: Option<i64>,
}

/// What an answer says that is no stream.
pub(super) fn whole(body: &[u8]) -> Result<Account, Unusable> {
    let mut reader = Reader::default();
    reader.take(std::str::from_utf8(body).map_err(|error| format!("not UTF-8 ({error})"))?)?;
    if !reader.has_choice {
        return Err(Unusable::Bad("JSON without choices[0].message".to_owned()));
    }
    reader.end()?;
    Ok(reader.account)
}

/// Reads a stream, event by event.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub(super) account: Account,
    has_choice: bool,
    finish_reason: Option<String>,
    /// The tool call whose arguments are being told.
    open: Option<Open>,
    /// What a tool returned, while that is being told: the id of its call, and the text.
    returning: Option<(String, String)>,
}

#[derive(Debug, Default)]
struct Open {
    index: u32,
    id: String,
    name: String,
    arguments: String,
    /// The input of a custom tool is a text, which need not hold JSON.
    is_text: bool,
}

impl Reader {
    /// Takes the data of an event; true: it was the last one.
    pub(super) fn take(&mut self, data: &str) -> Result<bool, Unusable> {
        if data.trim() == "[DONE]" {
            if !self.has_choice {
                return Err(Unusable::Bad("a stream without choices[0].delta".to_owned()));
            }
            self.end()?;
            return Ok(true);
        }
        let completion: Completion<'_> =
            serde_json::from_str(data).map_err(|error| format!("not JSON of a chat completion ({error})"))?;
        if let Some(error) = completion.error.filter(|error| error.get() != "null") {
            return Err(Unusable::Bad(told_error(error)));
        }
        let turn = &mut self.account.turn;
        for (field, value) in [(&mut turn.model, completion.model), (&mut turn.response_id, completion.id)] {
            if !value.is_empty() {
                *field = value;
            }
        }
        if let Some(usage) = completion.usage {
            self.account.used(usage.into());
        }
        // Some say `null` where there is none.
        for choice in completion.choices.unwrap_or_default().into_iter().filter(|choice| choice.index == 0) {
            self.has_choice |= choice.message.is_some();
            self.hear(choice.message.unwrap_or_default())?;
            if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
                self.finish_reason = Some(reason);
            }
        }
        Ok(false)
    }

    fn hear(&mut self, message: Message<'_>) -> Result<(), Unusable> {
        let text = message.content.map(text).transpose()?.unwrap_or_default();
        if message.role.as_deref() == Some("tool") || message.tool_call_id.is_some() {
            let id = message.tool_call_id.unwrap_or_default();
            self.close_call()?;
            if self.returning.as_ref().is_none_or(|(open, _)| *open != id && !id.is_empty()) {
                self.close_result();
                self.returning = Some((id, String::new()));
            }
        } else if message.role.is_some() {
            self.close_result();
        }
        if let Some((_, returned)) = &mut self.returning {
            returned.push_str(&text);
            return Ok(());
        }
        if let Some(thought) = &message.reasoning_content {
            self.account.think(thought);
        }
        if !text.is_empty() {
            self.close_call()?;
            self.account.say(&text);
        }
        if let Some(refusal) = message.refusal.filter(|refusal| !refusal.is_empty()) {
            self.close_call()?;
            self.account.end = Some(FinishReason::Refused);
            self.account.say(&refusal);
        }
        let old = message.function_call.map(|function| ToolCall {
            index: None,
            id: None,
            function: Some(function),
            custom: None,
        });
        for (place, call) in message.tool_calls.unwrap_or_default().into_iter().chain(old).enumerate() {
            self.hear_call(place, call)?;
        }
        Ok(())
    }

    /// A tool call, or the next piece of one.
    fn hear_call(&mut self, place: usize, call: ToolCall) -> Result<(), Unusable> {
        let index = call.index.unwrap_or_else(|| u32::try_from(place).unwrap_or(u32::MAX));
        let id = call.id.unwrap_or_default();
        let is_next = self.open.as_ref().is_none_or(|open| open.index != index || (!id.is_empty() && open.id != id));
        if is_next {
            self.close_call()?;
            self.open = Some(Open { index, id, ..Open::default() });
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        let (name, arguments) = match (call.function, call.custom) {
            (Some(function), _) => (function.name, function.arguments),
            (None, Some(custom)) => {
                open.is_text = true;
                (custom.name, custom.input)
            }
            (None, None) => (None, None),
        };
        // Some repeat the name with every piece.
        if open.name.is_empty() {
            open.name = name.unwrap_or_default();
        }
        open.arguments.push_str(&arguments.unwrap_or_default());
        Ok(())
    }

    fn close_call(&mut self) -> Result<(), Unusable> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let params =
            if open.is_text { written(&Value::String(open.arguments).to_string()) } else { written(&open.arguments) };
        self.account.call(&open.id, &open.name, Ok(params), true)
    }

    fn close_result(&mut self) {
        if let Some((id, text)) = self.returning.take() {
            let result = serde_json::from_str::<&RawValue>(&text).ok().map(ToOwned::to_owned);
            let result = result.or_else(|| serde_json::value::to_raw_value(&text).ok());
            self.account.returned(&id, worked(result.as_deref()));
        }
    }

    fn end(&mut self) -> Result<(), Unusable> {
        self.close_call()?;
        self.close_result();
        let end = match self.finish_reason.as_deref() {
            Some("tool_calls" | "function_call")
                if !self.account.caller_runs_tools && !self.account.left_to_caller().is_empty() =>
            {
                return Err(self.account.waits_for_tools());
            }
            Some("length") => FinishReason::MaxTokens,
            Some("content_filter") => FinishReason::Refused,
            Some(_) => FinishReason::Completed,
            None => {
                let odd = "its answer does not say why it ended: no finish_reason";
                self.account.warnings.push(odd.to_owned());
                FinishReason::Completed
            }
        };
        self.account.end.get_or_insert(end);
        self.account.turn.finish_reason = self.finish_reason.take().unwrap_or_default();
        Ok(())
    }
}

/// The text of a content: a text, or parts of which some have one.
fn text(content: &RawValue) -> Result<String, Unusable> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Said {
        Text(String),
        Parts(Vec<Part>),
        Nothing(()),
    }
    #[derive(Deserialize)]
    struct Part {
        #[serde(default)]
        text: Option<String>,
    }
    match serde_json::from_str(content.get()) {
        Ok(Said::Text(text)) => Ok(text),
        Ok(Said::Parts(parts)) => Ok(parts.into_iter().filter_map(|part| part.text).collect()),
        Ok(Said::Nothing(())) => Ok(String::new()),
        Err(_) => Err(Unusable::Bad("a message whose content is neither a text nor a list of parts".to_owned())),
    }
}

impl From<Usage> for pb::Usage {
    fn from(usage: Usage) -> Self {
        let prompt = usage.prompt_tokens_details;
        Self {
            input_tokens: usage.prompt_tokens,
            output_tokens: usage.completion_tokens,
            cache_read_tokens: prompt.as_ref().and_then(|details| details.cached_tokens),
            cache_write_tokens: prompt.and_then(|details| details.cache_write_tokens),
            reasoning_tokens: usage.completion_tokens_details.and_then(|details| details.reasoning_tokens),
            cost: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::told::tests::summary;
    use super::*;

    fn read(body: &str) -> String {
        match whole(body.as_bytes()) {
            Ok(account) => summary(account),
            Err(why) => format!("{why:?}"),
        }
    }

    fn stream(events: &[&str]) -> String {
        let mut reader = Reader::default();
        for (n, event) in events.iter().enumerate() {
            match reader.take(event) {
                Ok(ended) => assert_eq!(ended, n + 1 == events.len(), "{event}"),
                Err(why) => return format!("{why:?}"),
            }
        }
        summary(reader.account)
    }

    #[test]
    fn answers() {
        for (body, said) in [
            (
                r#"{"id": "c", "model": "m-1", "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi", "refusal": null},
                    "finish_reason": "stop"}], "usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}}"#,
                r#""Hi" => "Hi" Completed, m-1, 9 (4 cached) to 2"#,
            ),
            (
                r#"{"choices": [{"message": {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "finish_reason": "length"}]}"#,
                r#""ab" => "ab" MaxTokens, "#,
            ),
            (
                r#"{"choices": [{"message": {"content": null, "refusal": "No."}, "finish_reason": "stop"}]}"#,
                r#""No." => "No." Refused, "#,
            ),
            // An agent that has run its tools, and says so.
            (
                r#"{"choices": [{"message": {"content": "Sunny", "tool_calls": [{"id": "1", "type": "function", "function":
                    {"name": "look", "arguments": "{\"n\": 9007199254740993}"}}]}, "finish_reason": "stop"}]}"#,
                r#""Sunny"; 1 look {"n": 9007199254740993}; 1 ok - => "Sunny" Completed, "#,
            ),
        ] {
            assert_eq!(read(body), said, "{body}");
        }
        for (body, why) in [
            ("<html>", "Bad(\"not JSON of a chat completion"),
            ("{}", "Bad(\"JSON without choices[0].message\")"),
            (r#"{"choices": []}"#, "Bad(\"JSON without choices[0].message\")"),
            (r#"{"choices": [{"message": {"content": 5}}]}"#, "Bad(\"a message whose content is neither"),
            (
                r#"{"error": {"message": "no such model", "type": "not_found"}}"#,
                "Bad(\"an error (not_found): no such model\")",
            ),
            (
                r#"{"choices": [{"message": {"tool_calls": [{"function": {"name": "look", "arguments": ""}}]}, "finish_reason": "tool_calls"}]}"#,
                "Waits(\"waits for its caller to run look,",
            ),
            (
                r#"{"choices": [{"message": {"tool_calls": [{}]}, "finish_reason": "stop"}]}"#,
                "Bad(\"a tool call without a name\")",
            ),
        ] {
            assert!(read(body).starts_with(why), "{body}: {}", read(body));
        }
    }

    #[test]
    fn streams() {
        let piece = |delta: &str| {
            format!(
                r#"{{"id": "c", "model": "m", "choices": [{{"index": 0, "delta": {delta}, "finish_reason": null}}]}}"#
            )
        };
        let stop = r#"{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}"#;
        let usage = r#"{"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}"#;
        let pieces = |pieces: &[&str], end: &[&str]| {
            let events: Vec<String> =
                pieces.iter().map(|delta| piece(delta)).chain(end.iter().map(|end| (*end).to_owned())).collect();
            stream(&events.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let done = [stop, usage, "[DONE]"];
        assert_eq!(
            pieces(&[r#"{"role": "assistant", "content": ""}"#, r#"{"content": "a"}"#, r#"{"content": "b"}"#], &done),
            r#""a"; "b" => "ab" Completed, m, 1 to 2"#
        );
        let call = [
            r#"{"content": "One moment."}"#,
            r#"{"tool_calls": [{"index": 0, "id": "x", "function": {"name": "look", "arguments": ""}}]}"#,
            r#"{"tool_calls": [{"index": 0, "function": {"arguments": "{\"a\""}}]}"#,
            r#"{"tool_calls": [{"index": 0, "function": {"arguments": ": 1.0}"}}]}"#,
            r#"{"tool_calls": [{"index": 1, "id": "y", "function": {"name": "pay", "arguments": "{x"}}]}"#,
        ];
        let calls = r#""One moment."; 1 look {"a": 1.0}; 2 pay malformed {x"#;
        let answer = [
            r#"{"role": "tool", "tool_call_id": "x", "content": "{\"t\": 1}"}"#,
            r#"{"role": "assistant", "content": "Done."}"#,
        ];
        assert_eq!(
            pieces(&[&call[..], &answer].concat(), &done),
            format!(r#"{calls}; 1 ok {{"t": 1}}; "Done."; 2 ok - => "Done." Completed, m, 1 to 2"#)
        );
        let left = r#"{"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}"#;
        assert!(pieces(&call, &[left, "[DONE]"]).starts_with("Waits(\"waits for its caller to run look, pay,"));
        assert!(pieces(&[], &["[DONE]"]).starts_with("Bad(\"a stream without choices"));
        assert!(
            pieces(&[r#"{"content": "a"}"#], &[r#"{"error": "overloaded"}"#])
                .starts_with("Bad(\"an error: \\\"overloaded")
        );
    }
}
