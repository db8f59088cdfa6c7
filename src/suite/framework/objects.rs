//! The JSON objects of a file one after the other, and the cases in what an agent answered.

use std::io::{BufRead, Read as _};

use sha2::{Digest as _, Sha256};

use super::CASE_KEYS;
use crate::json::blocks::{Block, blocks};
use crate::json::{Json, Value, without_mark};

/// Most bytes of one object.
const MAX_OBJECT_BYTES: usize = 64 << 20;

/// The JSON objects of a file, one after the other, without more of it than one at a time.
pub(super) struct Objects<R> {
    reader: R,
    /// The line that comes next, counted from 1.
    line: u32,
    /// The byte that comes next.
    offset: u64,
    hash: Sha256,
}

/// One object of a file, and where it stands in it.
pub(super) struct Object {
    pub(super) json: Json,
    /// The byte of the file that it begins with.
    pub(super) start: u64,
    pub(super) bytes: usize,
}

/// Why the objects end before the file does.
pub(super) struct Refused {
    pub(super) line: u32,
    pub(super) message: String,
}

impl<R: BufRead> Objects<R> {
    pub(super) fn new(reader: R, line: u32) -> Self {
        Self { reader, line, offset: 0, hash: Sha256::new() }
    }

    /// Hash of the bytes that were read.
    pub(super) fn file_hash(&self) -> String {
        let mut digest = hex::encode(self.hash.clone().finalize());
        digest.truncate(12);
        digest
    }

    /// Collects lines until they are a whole value: braces are counted outside of texts, which never go over lines.
    pub(super) fn next(&mut self) -> Option<Result<Object, Refused>> {
        let mut text = String::new();
        let (mut first, mut start) = (self.line, self.offset);
        let mut depth = 0_i64;
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let at = self.line;
            let refuse = |message: String| Some(Err(Refused { line: at, message }));
            let room = (MAX_OBJECT_BYTES - text.len()) as u64 + 1;
            match self.reader.by_ref().take(room).read_until(b'\n', &mut bytes) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => return refuse(format!("the file cannot be read: {error}")),
            }
            if text.len() + bytes.len() > MAX_OBJECT_BYTES {
                return refuse(format!(
                    "the object that begins on line {first} has more than {MAX_OBJECT_BYTES} bytes"
                ));
            }
            self.hash.update(&bytes);
            let is_first = self.offset == 0;
            self.offset += bytes.len() as u64;
            self.line += 1;
            let Ok(line) = std::str::from_utf8(&bytes) else {
                return refuse("the file is not UTF-8 text".to_owned());
            };
            let line = if is_first { without_mark(line) } else { line };
            let is_comment = line.trim_start().starts_with("//");
            if text.is_empty() && (is_comment || line.trim().is_empty()) {
                (first, start) = (self.line, self.offset);
                continue;
            }
            // A line of its own, so that errors name the right one.
            text.push_str(if is_comment { "\n" } else { line });
            if !is_comment {
                depth += nesting(line);
            }
            if depth <= 0 {
                break;
            }
        }
        if text.trim().is_empty() {
            return None;
        }
        let bytes = usize::try_from(self.offset - start).unwrap_or(usize::MAX);
        Some(match Json::parse_from_line(text.trim_end(), first) {
            Ok(json) => Ok(Object { json, start, bytes }),
            Err(error) => Err(Refused {
                line: error.line,
                message: format!("not JSON: column {}: {}", error.column, error.message),
            }),
        })
    }
}

/// The cases in the answer of a plain agent that was asked for some: lists of them, alone or as `cases`, or one
/// after the other as in a file; as the whole answer, or in its fenced blocks, of which one that is there twice
/// counts once. What is no JSON ends a block, and an object that nothing of a case stands in is none.
#[must_use]
pub fn cases_in(answer: &str) -> Vec<Json> {
    if answer.trim_start().starts_with(['{', '[']) {
        return cases_of(answer);
    }
    let may_hold = |block: &Block<'_>| ["", "json", "jsonl", "ndjson"].contains(&&*block.tag.to_ascii_lowercase());
    let mut lists: Vec<Vec<Json>> = Vec::new();
    for list in blocks(answer).filter(may_hold).map(|block| cases_of(block.text)) {
        if !lists.contains(&list) {
            lists.push(list);
        }
    }
    lists.into_iter().flatten().collect()
}

/// The cases in a text of JSON values.
fn cases_of(text: &str) -> Vec<Json> {
    let mut objects = Objects::new(text.as_bytes(), 1);
    let mut cases = Vec::new();
    while let Some(Ok(Object { json, .. })) = objects.next() {
        match json.get("cases") {
            Some(Json { value: Value::Array(items), .. }) => cases.extend(items.iter().cloned()),
            _ => match json.value {
                Value::Array(items) => cases.extend(items),
                Value::Object(_) if json.members().iter().any(|(key, _)| CASE_KEYS.contains(&key.as_str())) => {
                    cases.push(json);
                }
                Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            },
        }
    }
    cases
}

/// How many more objects and lists a line opens than it closes.
fn nesting(line: &str) -> i64 {
    let (mut depth, mut in_text, mut escaped) = (0, false, false);
    for byte in line.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => depth += 1,
            b'}' | b']' if !in_text => depth -= 1,
            _ => {}
        }
    }
    depth
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_found_where_agents_put_them() {
        for (answer, found) in [
            ("[{\"id\":\"a\"}, {\"id\":\"b\"}]", 2),
            ("{\"cases\": [{\"id\":\"a\"}]}", 1),
            ("{\"id\":\"a\"}\n{\n\"id\":\"b\"}\n", 2),
            ("Here they are:\n```jsonl\n{\"id\":\"a\"}\n// and\n{\"id\":\"b\"}\n```\nBye", 2),
            ("```json\n[{\"id\":\"a\"}]", 1),
            ("One:\n```json\n{\"id\":\"a\"}\n```\nTwo: ```json {\"id\":\"b\", \"input\": \"```\"} ```", 2),
            ("```json\n[{\"id\":\"a\"}]\n```\nAgain:\n```\n[{\"id\":\"a\"}]\n```", 1),
            ("```sh\nls\n```\n```\n{\"note\": 1}\n```\n```json\n[{\"id\":\"a\"}, {\"id\":\"b\"}]\n```", 2),
            ("{\"id\":\"a\"}\nand that was it", 1),
            ("I cannot do that.", 0),
            ("", 0),
        ] {
            assert_eq!(cases_in(answer).len(), found, "{answer}");
        }
    }
}
