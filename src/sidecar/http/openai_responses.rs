//! The responses API of OpenAI: what is sent, and what an answer or its stream says.
//!
//! An answer is a list of items. Whatever ends in `_call` is a tool call, and in `_call_output` what came of one:
//! the service runs some tools itself, and agents behind this API tell of theirs in the same way. A stream repeats
//! all of it in its last event, of which that is read which was not told before.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::conversation::{Content, Speaker, Turn, text_of_output};
use super::told::{Account, Unusable, broken, raw, told_error, worked, written};
use crate::sidecar::attachments::{Attachments, FileAt};
use crate::wire::agent as pb;
use crate::wire::agent::FinishReason;

/// Tools that the caller of the API runs.
const OF_CALLER: &[&str] =
    &["function_call", "custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call"];

/// A conversation as this API has it.
pub(super) fn input(turns: &[Turn<'_>], files: &Attachments) -> Result<Vec<Value>, String> {
    let mut items = Vec::new();
    for turn in turns {
        if !turn.name.is_empty() {
            return Err("the case holds the name of a participant, for which this API has no place".to_owned());
        }
        let mut parts = Vec::new();
        let mut others = Vec::new();
        let sort = if turn.speaker == Speaker::Assistant { "output_text" } else { "input_text" };
        for content in &turn.contents {
            match content {
                Content::Text(text) => parts.push(json!({"type": sort, "text": text})),
                Content::File(blob) => parts.push(file(blob, files)?),
                Content::Call { id, name, arguments } => {
                    let arguments = arguments.as_ref().map_or("{}", |arguments| arguments.get());
                    others.push(json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments}));
                }
                Content::Output { id, output } => {
                    others
                        .push(json!({"type": "function_call_output", "call_id": id, "output": text_of_output(output)}));
                }
            }
        }
        if !parts.is_empty() || others.is_empty() {
            let content = match parts.as_slice() {
                [] => "".into(),
                [only] if only["type"] == sort => only["text"].clone(),
                _ => Value::Array(parts),
            };
            items.push(json!({"role": turn.role(), "content": content}));
        }
        items.extend(others);
    }
    Ok(items)
}

fn file(blob: &pb::Blob, files: &Attachments) -> Result<Value, String> {
    let at = files.find(blob)?;
    if blob.media_type.starts_with("image/") {
        return Ok(json!({"type": "input_image", "detail": "auto", "image_url": at.data_url(&blob.media_type)}));
    }
    Ok(match at {
        FileAt::Uri(uri) => json!({"type": "input_file", "file_url": uri}),
        FileAt::Content(_) => {
            let name = if blob.name.is_empty() { "file" } else { &blob.name };
            json!({"type": "input_file", "filename": name, "file_data": at.data_url(&blob.media_type)})
        }
    })
}

#[derive(Deserialize)]
struct Response<'a> {
    #[serde(default)]
    id: String,
    #[serde(default)]
    model: String,
    #[serde(default)]
    status: Option<String>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(default)]
    incomplete_details: Option<Incomplete>,
    #[serde(borrow, default)]
    output: Option<Vec<&'a RawValue>>,
    #[serde(default)]
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Incomplete {
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    input_tokens: Option<i64>,
    #[serde(default)]
    output_tokens: Option<i64>,
    #[serde(default)]
    input_tokens_details: Option<InputDetails>,
    #[serde(default)]
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Deserialize)]
struct InputDetails {
    #[serde(default)]
    cached_tokens: Option<i64>,
    #[serde(default)]
    cache_write_tokens: Option<i64>,
}

#[derive(Deserialize)]
struct OutputDetails {
    #[serde(default)]
    reasoning_tokens: Option<i64>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(rename = "type", default)]
    sort: String,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    call_id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    status: Option<String>,
    /// Of a message.
    #[serde(default)]
    content: Option<Vec<Part>>,
    /// Of reasoning.
    #[serde(default)]
    summary: Option<Vec<Part>>,
    /// A text that holds JSON.
    #[serde(default)]
    arguments: Option<String>,
    /// Of custom tools: any text.
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    /// Of searches on the web, of computers and shells.
    #[serde(borrow, default)]
    action: Option<&'a RawValue>,
    /// Of searches in files.
    #[serde(borrow, default)]
    queries: Option<&'a RawValue>,
    /// Of interpreters.
    #[serde(borrow, default)]
    code: Option<&'a RawValue>,
    #[serde(borrow, default)]
    output: Option<&'a RawValue>,
    #[serde(borrow, default)]
    results: Option<&'a RawValue>,
    #[serde(borrow, default)]
    outputs: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Part {
    #[serde(rename = "type", default)]
    sort: String,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    refusal: Option<String>,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", default)]
    sort: String,
    #[serde(default)]
    output_index: u64,
    #[serde(borrow, default)]
    delta: Option<&'a RawValue>,
    #[serde(borrow, default)]
    item: Option<&'a RawValue>,
    #[serde(borrow, default)]
    response: Option<&'a RawValue>,
}

/// What an answer says that is no stream.
pub(super) fn whole(body: &[u8]) -> Result<Account, Unusable> {
    let mut reader = Reader::default();
    let document = serde_json::from_slice(body).map_err(|error| format!("not JSON ({error})"))?;
    reader.end(document)?;
    Ok(reader.account)
}

/// Reads a stream, event by event.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub(super) account: Account,
    /// Items that were told as a whole.
    told: HashSet<u64>,
    /// Items of which pieces were told.
    begun: HashSet<u64>,
    has_refused: bool,
}

impl Reader {
    /// Takes the data of an event; true: it was the last one.
    pub(super) fn take(&mut self, data: &str) -> Result<bool, Unusable> {
        let event: Event<'_> = serde_json::from_str(data)
            .map_err(|error| Unusable::Bad(format!("an event that is none of the responses API ({error})")))?;
        match event.sort.as_str() {
            "response.output_text.delta" | "response.refusal.delta" => {
                self.has_refused |= event.sort == "response.refusal.delta";
                self.begun.insert(event.output_index);
                self.account.say(&piece(event.delta)?);
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.begun.insert(event.output_index);
                self.account.think(&piece(event.delta)?);
            }
            "response.output_item.done" => {
                if let Some(item) = event.item {
                    self.item(event.output_index, item)?;
                }
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                let response = event.response.ok_or_else(|| format!("{} without its response", event.sort))?;
                self.end(response)?;
                return Ok(true);
            }
            "error" => {
                let error = serde_json::from_str(data).map_err(|error| error.to_string())?;
                return Err(Unusable::Bad(told_error(error)));
            }
            // Events that repeat what is told here, and those of later versions.
            _ => {}
        }
        Ok(false)
    }

    fn item(&mut self, index: u64, item: &RawValue) -> Result<(), Unusable> {
        if !self.told.insert(index) {
            return Ok(());
        }
        let raw_item = item;
        let item: Item<'_> =
            serde_json::from_str(item.get()).map_err(|error| format!("output[{index}] that is no item ({error})"))?;
        let is_begun = self.begun.contains(&index);
        match item.sort.as_str() {
            "message" => {
                for part in item.content.unwrap_or_default() {
                    self.has_refused |= part.sort == "refusal";
                    if let Some(text) = part.text.or(part.refusal).filter(|_| !is_begun) {
                        self.account.say(&text);
                    }
                }
                Ok(())
            }
            "reasoning" => {
                let parts = item.summary.unwrap_or_default().into_iter().filter(|_| !is_begun);
                parts.filter_map(|part| part.text).for_each(|text| self.account.think(&text));
                Ok(())
            }
            "mcp_approval_request" => Err(Unusable::Waits(format!(
                "waits for its caller to approve the tool {}, which nobody does here: set `require_approval` to \"never\"",
                item.name.unwrap_or_default()
            ))),
            sort if sort.ends_with("_call_output") => {
                let id = item.call_id.or(item.id).unwrap_or_default();
                self.account
                    .returned(&id, item.output.map_or_else(|| worked(Some(raw_item)), |output| worked(Some(output))));
                Ok(())
            }
            sort if sort.ends_with("_call") => self.call(sort, &item),
            // Lists of tools, compactions and such.
            _ => Ok(()),
        }
    }

    fn call(&mut self, sort: &str, item: &Item<'_>) -> Result<(), Unusable> {
        let name = item.name.as_deref().unwrap_or_else(|| sort.strip_suffix("_call").unwrap_or(sort));
        let params = match (&item.arguments, item.input.or(item.action)) {
            (Some(arguments), _) => Ok(written(arguments)),
            (None, Some(given)) => Ok(raw(given)),
            (None, None) => match (item.queries, item.code) {
                (Some(queries), _) => Ok(written(&format!("{{\"queries\":{}}}", queries.get()))),
                (None, Some(code)) => Ok(written(&format!("{{\"code\":{}}}", code.get()))),
                (None, None) => Err(format!("the endpoint's answer holds no arguments of {sort}")),
            },
        };
        let is_for_caller = OF_CALLER.contains(&sort);
        let id = item.call_id.as_deref().or(item.id.as_deref()).unwrap_or_default();
        self.account.call(id, name, params, is_for_caller)?;
        let there = |value: &&RawValue| value.get() != "null";
        let error = item.error.filter(there);
        if error.is_some() || item.status.as_deref() == Some("failed") {
            let why = error.map_or_else(|| "the endpoint says that it failed".to_owned(), told_error);
            self.account.returned(id, broken(why));
        } else if let Some(result) = item.output.or(item.results).or(item.outputs).filter(there) {
            self.account.returned(id, worked(Some(result)));
        } else if !is_for_caller {
            self.account.returned(id, worked(None));
        }
        Ok(())
    }

    /// Takes the response as a whole.
    fn end(&mut self, response: &RawValue) -> Result<(), Unusable> {
        let response: Response<'_> =
            serde_json::from_str(response.get()).map_err(|error| format!("JSON that is no response ({error})"))?;
        if let Some(error) = response.error.filter(|error| error.get() != "null") {
            return Err(Unusable::Bad(told_error(error)));
        }
        for (index, item) in (0..).zip(response.output.unwrap_or_default()) {
            self.item(index, item)?;
        }
        let reason = response.incomplete_details.and_then(|details| details.reason).unwrap_or_default();
        self.account.end = Some(match response.status.as_deref() {
            Some("completed") if self.has_refused => FinishReason::Refused,
            Some("completed") => FinishReason::Completed,
            Some("incomplete") if reason == "max_output_tokens" => FinishReason::MaxTokens,
            Some("incomplete") if reason == "content_filter" => FinishReason::Refused,
            Some("incomplete") => return Err(Unusable::Bad(format!("a response that is incomplete: {reason}"))),
            Some(other) => return Err(Unusable::Bad(format!("a response with the status {other}, which is no end"))),
            None => return Err(Unusable::Bad("JSON without the status of a response".to_owned())),
        });
        if !self.account.left_to_caller().is_empty() {
            return Err(self.account.waits_for_tools());
        }
        let turn = &mut self.account.turn;
        turn.model = response.model;
        turn.response_id = response.id;
        turn.finish_reason = response.status.unwrap_or_default();
        if let Some(usage) = response.usage {
            self.account.used(usage.into());
        }
        Ok(())
    }
}

/// A piece of a text.
fn piece(delta: Option<&RawValue>) -> Result<String, Unusable> {
    let text = delta.and_then(|delta| serde_json::from_str(delta.get()).ok());
    text.ok_or_else(|| Unusable::Bad("an event whose delta is no text".to_owned()))
}

impl From<Usage> for pb::Usage {
    fn from(usage: Usage) -> Self {
        let input = usage.input_tokens_details;
        Self {
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cache_read_tokens: input.as_ref().and_then(|details| details.cached_tokens),
            cache_write_tokens: input.and_then(|details| details.cache_write_tokens),
            reasoning_tokens: usage.output_tokens_details.and_then(|details| details.reasoning_tokens),
            cost: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::told::tests::summary;
    use super::*;

    const USAGE: &str =
        r#""usage": {"input_tokens": 7, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 2}}"#;

    fn response(output: &str) -> String {
        format!(
            r#"{{"id": "r", "object": "response", "model": "m", "status": "completed", "error": null, "output": {output}, {USAGE}}}"#
        )
    }

    fn read(body: &str) -> String {
        match whole(body.as_bytes()) {
            Ok(account) => summary(account),
            Err(why) => format!("{why:?}"),
        }
    }

    fn stream(events: &[String]) -> String {
        let mut reader = Reader::default();
        for (n, event) in events.iter().enumerate() {
            match reader.take(event) {
                Ok(ended) => assert_eq!(ended, n + 1 == events.len(), "{event}"),
                Err(why) => return format!("{why:?}"),
            }
        }
        summary(reader.account)
    }

    const SEARCH: &str =
        r#"{"type": "web_search_call", "id": "s", "status": "completed", "action": {"type": "search", "query": "x"}}"#;
    const MCP: &str = r#"{"type": "mcp_call", "id": "m", "name": "look", "server_label": "l", "arguments": "{\"n\": 1.0}", "error": null, "output": "{\"t\": 1}"}"#;
    const BROKEN: &str = r#"{"type": "mcp_call", "id": "b", "name": "pay", "arguments": "", "error": {"type": "mcp", "message": "no money"}}"#;
    const HI: &str = r#"{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi "}, {"type": "output_text", "text": "Ada"}]}"#;
    const FUNCTION: &str =
        r#"{"type": "function_call", "id": "fc", "call_id": "f", "name": "look", "arguments": "{}"}"#;
    const OUTPUT: &str = r#"{"type": "function_call_output", "call_id": "f", "output": "sunny"}"#;

    #[test]
    fn answers() {
        for (items, said) in [
            (&[HI][..], r#""Hi "; "Ada" => "Hi Ada" Completed, m, 7 (2 cached) to 3"#),
            (
                &[SEARCH, MCP, BROKEN, HI],
                r#"1 web_search {"type": "search", "query": "x"}; 1 ok -; 2 look {"n": 1.0}; 2 ok "{\"t\": 1}"; 3 pay -; 3 failed an error (mcp): no money; "Hi "; "Ada" => "Hi Ada" Completed, m, 7 (2 cached) to 3"#,
            ),
            (&[FUNCTION, OUTPUT], r#"1 look {}; 1 ok "sunny" => "" Completed, m, 7 (2 cached) to 3"#),
            (&[FUNCTION, HI], r#"1 look {}; "Hi "; "Ada"; 1 ok - => "Hi Ada" Completed, m, 7 (2 cached) to 3"#),
        ] {
            assert_eq!(read(&response(&format!("[{}]", items.join(", ")))), said);
        }
        let refused = response(r#"[{"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}]"#);
        assert_eq!(read(&refused), r#""No." => "No." Refused, m, 7 (2 cached) to 3"#);
        let cut = |reason: &str| {
            let details = format!(r#""incomplete", "incomplete_details": {{"reason": "{reason}"}}"#);
            read(&response(&format!("[{HI}]")).replace("\"completed\"", &details))
        };
        assert!(cut("max_output_tokens").contains("MaxTokens") && cut("content_filter").contains("Refused"));
        for (body, why) in [
            (&*cut("steered"), "Bad(\"a response that is incomplete: steered\")"),
            (&read("5"), "Bad(\"JSON that is no response"),
            (&read("{}"), "Bad(\"JSON without the status"),
            (&read(r#"{"status": "queued"}"#), "Bad(\"a response with the status queued"),
            (&read(r#"{"status": "failed", "error": {"code": "x", "message": "no"}}"#), "Bad(\"an error: no\")"),
            (&read(&response(&format!("[{FUNCTION}]"))), "Waits(\"waits for its caller to run look,"),
            (
                &read(&response(r#"[{"type": "mcp_approval_request", "name": "pay"}]"#)),
                "Waits(\"waits for its caller to approve",
            ),
        ] {
            assert!(body.starts_with(why), "{body}");
        }
    }

    /// What the last event repeats is told once.
    #[test]
    fn streams() {
        let delta = |index: u32, text: &str| {
            format!(
                r#"{{"type": "response.output_text.delta", "output_index": {index}, "content_index": 0, "delta": "{text}"}}"#
            )
        };
        let done = |index: u32, item: &str| {
            format!(r#"{{"type": "response.output_item.done", "output_index": {index}, "item": {item}}}"#)
        };
        let created = r#"{"type": "response.created", "response": {"status": "in_progress"}}"#.to_owned();
        let end = |output: &str| format!(r#"{{"type": "response.completed", "response": {}}}"#, response(output));
        let all = end(&format!("[{MCP}, {HI}]"));
        let events = [created.clone(), done(0, MCP), delta(1, "Hi "), delta(1, "Ada"), done(1, HI), all.clone()];
        let said = r#"1 look {"n": 1.0}; 1 ok "{\"t\": 1}"; "Hi "; "Ada" => "Hi Ada" Completed, m, 7 (2 cached) to 3"#;
        assert_eq!(stream(&events), said);
        assert_eq!(stream(&[created, all]), said);
        let failed = r#"{"type": "response.failed", "response": {"status": "failed", "error": {"message": "down"}}}"#;
        assert_eq!(stream(&[delta(0, "Hi"), failed.to_owned()]), r#"Bad("an error: down")"#);
        let error = r#"{"type": "error", "code": "x", "message": "slow down"}"#;
        assert_eq!(stream(&[error.to_owned()]), r#"Bad("an error (error): slow down")"#);
        assert!(stream(&["{".to_owned()]).starts_with("Bad(\"an event that is none"));
    }
}
