//! The messages API of Anthropic: what is sent, and what an answer or its stream says.
//!
//! An answer is a list of blocks. `tool_use` is for the caller; whatever else ends in `tool_use` the service runs
//! itself, as tools of its own or of MCP servers, and what came of it stands in a later block that ends in
//! `tool_result`.

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::conversation::{Content, Output, Speaker, Turn, text_of_output};
use super::told::{Account, Unusable, broken, told_error, worked, written};
use crate::sidecar::attachments::{Attachments, FileAt};
use crate::wire::agent as pb;
use crate::wire::agent::FinishReason;

/// A version of the API, without which it answers nothing. Not the newest, which takes no `temperature` any more
/// and which others that speak this API do not know; a header of this name chooses another.
pub(super) const VERSION: &str = "2023-06-01";
/// The header that holds it.
pub(super) const VERSION_HEADER: &str = "anthropic-version";
/// Most tokens of an answer, which the API wants to be told.
pub(super) const MAX_TOKENS: u32 = 4096;

/// A conversation as this API has it: what the system says, and the messages.
pub(super) fn messages(
    turns: &[Turn<'_>],
    files: &Attachments,
) -> Result<(Option<String>, Vec<Box<RawValue>>), String> {
    let mut system: Option<String> = None;
    let mut messages = Vec::new();
    for turn in turns {
        if !turn.name.is_empty() {
            return Err("the case holds the name of a participant, for which this API has no place".to_owned());
        }
        if turn.speaker == Speaker::System {
            if !messages.is_empty() {
                return Err(
                    "the case holds a message of the system behind others, for which this API has no place".to_owned()
                );
            }
            let system = system.get_or_insert_default();
            for content in &turn.contents {
                let Content::Text(text) = content else {
                    return Err(
                        "the case holds a message of the system that is no text, for which this API has no place"
                            .to_owned(),
                    );
                };
                if !system.is_empty() {
                    system.push_str("\n\n");
                }
                system.push_str(text);
            }
            continue;
        }
        let content = match turn.contents.as_slice() {
            [] => raw_of(&"")?,
            [Content::Text(text)] => raw_of(text)?,
            contents => raw_of(&contents.iter().map(|content| block(content, files)).collect::<Result<Vec<_>, _>>()?)?,
        };
        messages.push(raw_of(&Message { role: turn.role(), content })?);
    }
    Ok((system, messages))
}

#[derive(Serialize)]
struct Message {
    role: &'static str,
    content: Box<RawValue>,
}

/// A tool call, whose arguments keep their very bytes.
#[derive(Serialize)]
struct ToolUse<'a> {
    r#type: &'static str,
    id: &'a str,
    name: &'a str,
    input: &'a RawValue,
}

fn block(content: &Content<'_>, files: &Attachments) -> Result<Box<RawValue>, String> {
    match content {
        Content::Text(text) => raw_of(&json!({"type": "text", "text": text})),
        Content::File(blob) => raw_of(&file(blob, files)?),
        Content::Call { id, name, arguments } => {
            let nothing = raw_of(&json!({}))?;
            raw_of(&ToolUse { r#type: "tool_use", id, name, input: arguments.as_ref().unwrap_or(&nothing) })
        }
        Content::Output { id, output } => {
            let is_error = matches!(output, Output::Error(_));
            raw_of(
                &json!({"type": "tool_result", "tool_use_id": id, "content": text_of_output(output), "is_error": is_error}),
            )
        }
    }
}

fn file(blob: &pb::Blob, files: &Attachments) -> Result<Value, String> {
    let at = files.find(blob)?;
    let media_type = blob.media_type.as_str();
    let sort = if media_type.starts_with("image/") { "image" } else { "document" };
    let source = match at {
        FileAt::Uri(uri) => json!({"type": "url", "url": uri}),
        FileAt::Content(bytes) if media_type == "text/plain" => {
            let text = std::str::from_utf8(bytes).map_err(|_| "the case holds a file of text that is not UTF-8")?;
            json!({"type": "text", "media_type": media_type, "data": text})
        }
        FileAt::Content(_) => json!({"type": "base64", "media_type": media_type, "data": at.base64()}),
    };
    Ok(json!({"type": sort, "source": source}))
}

fn raw_of<T: Serialize + ?Sized>(value: &T) -> Result<Box<RawValue>, String> {
    to_raw_value(value).map_err(|error| error.to_string())
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(rename = "type", default)]
    sort: String,
    #[serde(default)]
    id: String,
    #[serde(default)]
    model: String,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    content: Option<Vec<&'a RawValue>>,
    #[serde(default)]
    stop_reason: Option<String>,
    #[serde(default)]
    usage: Option<Usage>,
}

/// Of a stream the numbers grow, and those count that came last.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[expect(clippy::struct_field_names, reason = "so the API calls them")]
struct Usage {
    #[serde(default)]
    input_tokens: Option<i64>,
    #[serde(default)]
    output_tokens: Option<i64>,
    #[serde(default)]
    cache_read_input_tokens: Option<i64>,
    #[serde(default)]
    cache_creation_input_tokens: Option<i64>,
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(rename = "type", default)]
    sort: String,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    thinking: Option<String>,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    #[serde(default)]
    tool_use_id: Option<String>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(default)]
    is_error: Option<bool>,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", default)]
    sort: String,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    content_block: Option<&'a RawValue>,
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    text: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default)]
    thinking: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default)]
    partial_json: Option<std::borrow::Cow<'a, str>>,
    #[serde(default)]
    stop_reason: Option<String>,
}

/// What an answer says that is no stream.
pub(super) fn whole(body: &[u8]) -> Result<Account, Unusable> {
    let answer: Answer<'_> =
        serde_json::from_slice(body).map_err(|error| format!("not JSON of a message ({error})"))?;
    let mut reader = Reader::default();
    let blocks = reader.begin(answer)?;
    for block in blocks.ok_or_else(|| "JSON without the content of a message".to_owned())? {
        reader.block(block)?;
        reader.close_block()?;
    }
    reader.end()?;
    Ok(reader.account)
}

/// Reads a stream, event by event.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub(super) account: Account,
    has_begun: bool,
    stop_reason: Option<String>,
    usage: Usage,
    /// The tool call whose arguments are being told.
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    id: String,
    name: String,
    arguments: String,
    /// The arguments with which the block began, as a whole.
    given: String,
    is_for_caller: bool,
}

impl Reader {
    /// Takes the data of an event; true: it was the last one.
    pub(super) fn take(&mut self, data: &str) -> Result<bool, Unusable> {
        let event: Event<'_> = serde_json::from_str(data)
            .map_err(|error| Unusable::Bad(format!("an event that is none of the messages API ({error})")))?;
        match event.sort.as_str() {
            "message_start" => {
                let message = event.message.ok_or_else(|| "message_start without its message".to_owned())?;
                let answer = serde_json::from_str(message.get())
                    .map_err(|error| format!("message_start that holds no message ({error})"))?;
                for block in self.begin(answer)?.unwrap_or_default() {
                    self.block(block)?;
                }
            }
            "content_block_start" => {
                self.close_block()?;
                let block = event.content_block.ok_or_else(|| "content_block_start without its block".to_owned())?;
                self.block(block)?;
            }
            "content_block_delta" => {
                let Some(delta) = event.delta else { return Ok(false) };
                self.account.say(&delta.text.unwrap_or_default());
                self.account.think(&delta.thinking.unwrap_or_default());
                if let (Some(open), Some(more)) = (&mut self.open, delta.partial_json) {
                    open.arguments.push_str(&more);
                }
            }
            "content_block_stop" => self.close_block()?,
            "message_delta" => {
                if let Some(reason) = event.delta.and_then(|delta| delta.stop_reason) {
                    self.stop_reason = Some(reason);
                }
                self.count(event.usage.unwrap_or_default());
            }
            "message_stop" => {
                self.end()?;
                return Ok(true);
            }
            "error" => {
                let error = event.error.map_or_else(|| "an error".to_owned(), told_error);
                return Err(Unusable::Bad(error));
            }
            // `ping`, and events of later versions.
            _ => {}
        }
        Ok(false)
    }

    /// Takes what a message says of itself, and gives its blocks.
    fn begin<'a>(&mut self, answer: Answer<'a>) -> Result<Option<Vec<&'a RawValue>>, Unusable> {
        if let Some(error) = answer.error.filter(|_| answer.sort == "error") {
            return Err(Unusable::Bad(told_error(error)));
        }
        self.has_begun = true;
        self.account.turn.model = answer.model;
        self.account.turn.response_id = answer.id;
        self.stop_reason = answer.stop_reason;
        self.count(answer.usage.unwrap_or_default());
        Ok(answer.content)
    }

    fn block(&mut self, block: &RawValue) -> Result<(), Unusable> {
        let raw_block = block;
        let block: Block<'_> =
            serde_json::from_str(block.get()).map_err(|error| format!("content that is no block ({error})"))?;
        match block.sort.as_str() {
            "text" => self.account.say(&block.text.unwrap_or_default()),
            "thinking" => self.account.think(&block.thinking.unwrap_or_default()),
            sort if sort.ends_with("tool_use") => {
                self.open = Some(Open {
                    id: block.id.unwrap_or_default(),
                    name: block.name.unwrap_or_default(),
                    arguments: String::new(),
                    given: block.input.map(|input| input.get().to_owned()).unwrap_or_default(),
                    is_for_caller: sort == "tool_use",
                });
            }
            sort if sort.ends_with("tool_result") => {
                let id = block.tool_use_id.unwrap_or_default();
                let content = block.content.unwrap_or(raw_block);
                let outcome = match error_in(content) {
                    Some(why) => broken(why),
                    None if block.is_error == Some(true) => broken(raw_text(content)),
                    None => worked(Some(content)),
                };
                self.account.returned(&id, outcome);
            }
            // What cannot be shown, such as redacted thoughts.
            _ => {}
        }
        Ok(())
    }

    fn close_block(&mut self) -> Result<(), Unusable> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let arguments = if open.arguments.is_empty() { &open.given } else { &open.arguments };
        self.account.call(&open.id, &open.name, Ok(written(arguments)), open.is_for_caller)
    }

    fn count(&mut self, usage: Usage) {
        let old = &mut self.usage;
        for (count, new) in [
            (&mut old.input_tokens, usage.input_tokens),
            (&mut old.output_tokens, usage.output_tokens),
            (&mut old.cache_read_input_tokens, usage.cache_read_input_tokens),
            (&mut old.cache_creation_input_tokens, usage.cache_creation_input_tokens),
        ] {
            *count = new.or(*count);
        }
    }

    fn end(&mut self) -> Result<(), Unusable> {
        self.close_block()?;
        if !self.has_begun {
            return Err(Unusable::Bad("a stream without message_start".to_owned()));
        }
        let reason = match self.stop_reason.as_deref() {
            Some("tool_use") if !self.account.left_to_caller().is_empty() => {
                return Err(self.account.waits_for_tools());
            }
            Some("pause_turn") => {
                let why = "waits for its caller to let it go on (stop_reason: pause_turn), which nobody does here";
                return Err(Unusable::Waits(why.to_owned()));
            }
            Some("max_tokens" | "model_context_window_exceeded") => FinishReason::MaxTokens,
            Some("refusal") => FinishReason::Refused,
            Some(_) => FinishReason::Completed,
            None => return Err(Unusable::Bad("a message without a stop_reason".to_owned())),
        };
        self.account.end = Some(reason);
        self.account.turn.finish_reason = self.stop_reason.take().unwrap_or_default();
        let usage = std::mem::take(&mut self.usage);
        // Here what came from a cache, or went into one, is not part of the input.
        let cached = [usage.cache_read_input_tokens, usage.cache_creation_input_tokens];
        let cached = cached.into_iter().flatten().fold(0_i64, i64::saturating_add);
        self.account.used(pb::Usage {
            input_tokens: usage.input_tokens.map(|tokens| tokens.saturating_add(cached)),
            output_tokens: usage.output_tokens,
            cache_read_tokens: usage.cache_read_input_tokens,
            cache_write_tokens: usage.cache_creation_input_tokens,
            ..pb::Usage::default()
        });
        Ok(())
    }
}

/// The error that the content of a result is, such as `web_search_tool_result_error`.
fn error_in(content: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Failed {
        #[serde(rename = "type")]
        sort: String,
        #[serde(default)]
        error_code: Option<String>,
    }
    let failed: Failed = serde_json::from_str(content.get()).ok()?;
    failed.sort.ends_with("_error").then(|| failed.error_code.unwrap_or(failed.sort))
}

/// The texts in the content of a result, or the content as it is.
fn raw_text(content: &RawValue) -> String {
    let blocks: Vec<Block<'_>> = serde_json::from_str(content.get()).unwrap_or_default();
    let text: String = blocks.into_iter().filter_map(|block| block.text).collect();
    if text.is_empty() {
        serde_json::from_str(content.get()).unwrap_or_else(|_| content.get().to_owned())
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::told::tests::summary;
    use super::*;

    fn message(content: &str, stop_reason: &str) -> String {
        format!(
            r#"{{"id": "msg", "type": "message", "role": "assistant", "model": "m", "content": {content}, "stop_reason": "{stop_reason}",
                "usage": {{"input_tokens": 5, "output_tokens": 3, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 1}}}}"#
        )
    }

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

    const SEARCH: &str = r#"{"type": "text", "text": "I look."},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x", "n": 1.0}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"type": "web_search_result", "url": "u"}]},
        {"type": "mcp_tool_use", "id": "m", "name": "pay", "server_name": "bank", "input": {}},
        {"type": "mcp_tool_result", "tool_use_id": "m", "is_error": true, "content": [{"type": "text", "text": "no money"}]},
        {"type": "text", "text": "It "}, {"type": "text", "text": "is."}"#;
    const TOLD: &str = r#""I look."; 1 web_search {"query": "x", "n": 1.0}; 1 ok [{"type": "web_search_result", "url": "u"}]; 2 pay {}; 2 failed no money; "It "; "is." => "It is." Completed, m, 8 (2 cached) to 3"#;

    #[test]
    fn answers() {
        assert_eq!(read(&message(&format!("[{SEARCH}]"), "end_turn")), TOLD);
        let hi = r#"[{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Hi"}]"#;
        for (stop_reason, end) in [
            ("stop_sequence", "Completed"),
            ("max_tokens", "MaxTokens"),
            ("model_context_window_exceeded", "MaxTokens"),
            ("refusal", "Refused"),
        ] {
            assert_eq!(read(&message(hi, stop_reason)), format!("(hm); \"Hi\" => \"Hi\" {end}, m, 8 (2 cached) to 3"));
        }
        let tool = r#"[{"type": "tool_use", "id": "t", "name": "look", "input": {"a": 9007199254740993}}]"#;
        let failed = r#"[{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
            {"type": "web_search_tool_result", "tool_use_id": "s", "content": {"type": "web_search_tool_result_error", "error_code": "unavailable"}}]"#;
        for (body, said) in [
            (message(tool, "tool_use"), "Waits(\"waits for its caller to run look,"),
            (message(tool, "end_turn"), r#"1 look {"a": 9007199254740993}; 1 ok - => "" Completed"#),
            (message(failed, "end_turn"), "1 web_search {}; 1 failed unavailable => "),
            (message("[]", "pause_turn"), "Waits(\"waits for its caller to let it go on"),
            (message("[]", "end_turn").replace("\"end_turn\"", "null"), "Bad(\"a message without a stop_reason\")"),
            ("{}".to_owned(), "Bad(\"JSON without the content of a message\")"),
            ("no".to_owned(), "Bad(\"not JSON of a message"),
            (
                r#"{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}"#.to_owned(),
                "Bad(\"an error (overloaded_error): Overloaded\")",
            ),
        ] {
            assert!(read(&body).starts_with(said), "{body}: {}", read(&body));
        }
    }

    #[test]
    fn streams() {
        let start = r#"{"type": "message_start", "message": {"type": "message", "model": "m", "content": [], "stop_reason": null,
            "usage": {"input_tokens": 5, "output_tokens": 1, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 1}}}"#;
        let block = |block: &str| format!(r#"{{"type": "content_block_start", "index": 0, "content_block": {block}}}"#);
        let delta = |delta: &str| format!(r#"{{"type": "content_block_delta", "index": 0, "delta": {delta}}}"#);
        let json = |json: &str| delta(&format!(r#"{{"type": "input_json_delta", "partial_json": {json:?}}}"#));
        let text = |text: &str| delta(&format!(r#"{{"type": "text_delta", "text": {text:?}}}"#));
        let close = r#"{"type": "content_block_stop", "index": 0}"#.to_owned();
        let ends = |reason: &str| {
            format!(
                r#"{{"type": "message_delta", "delta": {{"stop_reason": "{reason}"}}, "usage": {{"output_tokens": 3}}}}"#
            )
        };
        let stop = r#"{"type": "message_stop"}"#.to_owned();
        let empty = r#"{"type": "text", "text": ""}"#;
        let all = [
            start.to_owned(),
            r#"{"type": "ping"}"#.to_owned(),
            block(empty),
            text("I "),
            text("look."),
            close.clone(),
            block(r#"{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}"#),
            json(""),
            json("{\"query\": "),
            json("1.0}"),
            close.clone(),
            block(r#"{"type": "web_search_tool_result", "tool_use_id": "s", "content": []}"#),
            close.clone(),
            block(empty),
            text("So."),
            close.clone(),
            ends("end_turn"),
            stop.clone(),
        ];
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let said =
            r#""I "; "look."; 1 web_search {"query": 1.0}; 1 ok []; "So." => "So." Completed, m, 8 (2 cached) to 3"#;
        assert_eq!(stream(&all), said);
        let error = r#"{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}"#;
        assert_eq!(stream(&[start, error]), "Bad(\"an error (overloaded_error): Overloaded\")");
        assert!(stream(&[&stop]).starts_with("Bad(\"a stream without message_start"));
        assert!(stream(&[start, &stop]).starts_with("Bad(\"a message without a stop_reason"));
        let tool = block(r#"{"type": "tool_use", "id": "t", "name": "look", "input": {}}"#);
        assert!(stream(&[start, &tool, &close, &ends("tool_use"), &stop]).starts_with("Waits("));
    }
}
