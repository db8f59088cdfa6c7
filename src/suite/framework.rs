//! Test files of Agent Test Framework V2: JSON objects one after the other, each a case.
//!
//! An object stands on one line or is spread over lines; blank lines and lines that begin with `//` stand between and inside
//! them. A case is in standard mode, or in dynamic mode if it has a simulator or checkpoints. What is wrong with a case is
//! told at the line on which its object starts.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead, Read as _};

use sha2::{Digest as _, Sha256};

use super::automaton::Pool;
use super::cases::{Extras, Head};
use super::claim::{self, ClaimKind};
use super::error::{SuiteErrors, did_you_mean};
use super::reader::{Reader, given, must_be};
use super::script::{Hooks, ScriptRef};
use super::text::Text;
use super::timeout::Timeout;
use super::{
    Case, Checkpoint, Defaults, Dialect, Dialogue, Labels, Mode, Simulator, Suite, Tier, bad_id, of_file, stem,
    too_many_values,
};
use crate::conversation::{Blob, JsonText, Message, Part, Role, Source, names_a_file};
use crate::json::blocks::{Block, blocks};
use crate::json::{Json, Value, without_mark};
use crate::work::is_over;

/// Turns of a dialogue when the case says nothing.
pub const DEFAULT_TURNS: u32 = 20;
/// Most turns that a case may ask for.
const MAX_TURNS: f64 = 1000.0;

/// Most checkpoints of a case.
const MAX_CHECKPOINTS: usize = 200;

const CASE_KEYS: &[&str] = &[
    "id",
    "name",
    "input",
    "messages",
    "assertions",
    "assert",
    "options",
    "simulator",
    "checkpoints",
    "max_turns",
    "timeout",
    "skip",
    "before",
    "after",
    "metadata",
];
const SIMULATOR_KEYS: &[&str] = &["use", "options"];
const CHECKPOINT_KEYS: &[&str] = &["id", "description", "assertion", "assert", "after", "required"];
const MESSAGE_KEYS: &[&str] = &["role", "content"];

/// Reads a test file. `again`: its text, if its cases are to be read from there when they are needed.
pub(super) fn read(
    path: &str,
    bytes: impl BufRead,
    again: Option<&Text>,
    defaults: &Defaults,
    pool: &mut Pool,
) -> Result<Suite, SuiteErrors> {
    let mut reader = Reader::new(path);
    reader.files_outside = defaults.files_outside;
    if again.is_none() {
        reader.pool = std::mem::take(pool);
    }
    let mut lines_by_id = HashMap::new();
    let mut cases = Vec::new();
    let mut objects = Objects::new(bytes, 1);
    while let Some(object) = objects.next().filter(|_| !is_over()) {
        match object {
            Ok(Object { json, start, bytes }) => {
                reader.line = Some(json.line);
                reader.case = None;
                if again.is_some() {
                    // Its patterns are not kept, so each case has all the room.
                    reader.pool = Pool::default();
                }
                if !reader.pool.take_values(json.values()) {
                    reader.push_error(json.line, None, too_many_values(), None);
                    break;
                }
                let case = reader.framework_case(&json, &mut lines_by_id, defaults);
                cases.extend(case.map(|case| Head::new(case, again.map(|_| (start, bytes)))));
            }
            Err(Refused { line, message }) => {
                // Where the next object begins is anybody's guess.
                (reader.line, reader.case) = (None, None);
                reader.push_error(line, None, message, None);
                break;
            }
        }
    }
    if again.is_none() {
        *pool = std::mem::take(&mut reader.pool);
    }
    if lines_by_id.is_empty() && reader.errors.is_empty() {
        return Err(of_file(path, 0, "the file holds no cases".to_owned(), None));
    }
    reader.close();
    reader.refuse()?;
    Ok(Suite {
        path: path.to_owned(),
        dialect: Dialect::Framework,
        tool_name: stem(path).to_owned(),
        tier: Tier::Golden,
        file_hash: objects.file_hash(),
        metadata: None,
        cases,
        text: again.cloned(),
        defaults: defaults.clone(),
        extras: Extras::default(),
        warnings: reader.warnings,
        doubtful: reader.doubtful,
        broken: reader.broken,
    })
}

/// Reads the text of one case that stands on `line` of a file, and was read before.
pub(super) fn read_case(path: &str, bytes: &[u8], line: u32, defaults: &Defaults) -> Result<Case, SuiteErrors> {
    let gone = || of_file(path, line, "it is no case".to_owned(), None);
    let Some(Ok(object)) = Objects::new(bytes, line).next() else { return Err(gone()) };
    let mut reader = Reader::new(path);
    reader.files_outside = defaults.files_outside;
    reader.line = Some(object.json.line);
    let case = reader.framework_case(&object.json, &mut HashMap::new(), defaults);
    reader.refuse()?;
    case.ok_or_else(gone)
}

/// Reads messages as a case may write them: a text, a message, or a list of messages.
///
/// # Errors
/// What is wrong with them, and where. Files cannot be named: these messages come from no file.
pub fn read_messages(json: &Json) -> Result<Vec<Message>, String> {
    let mut reader = Reader::new("");
    let messages = match &json.value {
        Value::String(text) => vec![Message::user(text.as_str())],
        Value::Object(_) => reader.message("message", json).into_iter().collect(),
        _ => reader.message_list("messages", json),
    };
    let is_file = |part: &Part| matches!(part, Part::Blob(Blob { source: Source::File(_), .. }));
    if messages.iter().flat_map(|message| &message.parts).any(is_file) {
        return Err("a message names a file, and there is none to send".to_owned());
    }
    if let Some(error) = reader.errors.first() {
        let field = error.field.as_deref().unwrap_or_default();
        return Err(format!("{field}: {}", error.message));
    }
    if messages.is_empty() { Err("there are no messages".to_owned()) } else { Ok(messages) }
}

/// A case of one message and no assertions, as given on a command line.
#[must_use]
pub fn literal(message: &str) -> String {
    let mut text = String::from("{\"id\": \"message\", \"input\": ");
    crate::json::write_string(message, &mut text);
    text.push_str("}\n");
    text
}

/// Writes a message as a test file has it.
pub fn write_message(message: &Message, out: &mut String) {
    let role = message.role.name();
    let _ = write!(out, "{{\"role\": \"{role}\", \"content\": ");
    if let [Part::Text(text)] = message.parts.as_slice() {
        crate::json::write_string(text, out);
    } else {
        out.push('[');
        let mut is_first = true;
        for part in &message.parts {
            let separator = if is_first { "" } else { ", " };
            match part {
                Part::Text(text) => {
                    let _ = write!(out, "{separator}{{\"type\": \"text\", \"text\": ");
                    crate::json::write_string(text, out);
                    out.push('}');
                }
                Part::Blob(Blob { written: Some(written), .. }) => {
                    let _ = write!(out, "{separator}{}", written.as_str());
                }
                // No file holds these.
                Part::Blob(_) | Part::Reasoning(_) | Part::Data(_) => continue,
            }
            is_first = false;
        }
        out.push(']');
    }
    out.push('}');
}

/// A message as a test file has it.
#[must_use]
pub fn message_json(message: &Message) -> String {
    let mut out = String::new();
    write_message(message, &mut out);
    out
}

/// Media types by the ending of a file.
const MEDIA_TYPES: &[(&str, &str)] = &[
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("svg", "image/svg+xml"),
    ("pdf", "application/pdf"),
    ("json", "application/json"),
    ("txt", "text/plain"),
    ("md", "text/markdown"),
    ("csv", "text/csv"),
    ("html", "text/html"),
    ("mp3", "audio/mpeg"),
    ("wav", "audio/wav"),
    ("mp4", "video/mp4"),
];

/// A path from the folder of a suite without `.`, and without `..` but at its beginning, if it may lead outside.
fn plain_path(path: &str, outside: bool) -> Result<String, String> {
    if (path.starts_with('/') && !outside) || path.contains('\\') {
        return Err(format!("{path:?} is no path from the folder of the suite"));
    }
    let (mut above, mut parts): (usize, Vec<&str>) = (0, Vec::new());
    for part in path.split('/') {
        match part {
            ".." if parts.pop().is_none() => above += 1,
            "" | "." | ".." => {}
            part => parts.push(part),
        }
    }
    if parts.is_empty() {
        return Err("it names no file".to_owned());
    }
    match (above, path.strip_prefix('/')) {
        // Nothing lies above the root.
        (_, Some(_)) => Ok(format!("/{}", parts.join("/"))),
        (0, None) => Ok(parts.join("/")),
        (above, None) if outside => Ok(format!("{}{}", "../".repeat(above), parts.join("/"))),
        (_, None) => Err(format!("{path:?} leads out of the folder of the suite")),
    }
}

/// Most bytes of one object.
const MAX_OBJECT_BYTES: usize = 64 << 20;

/// The JSON objects of a file, one after the other, without more of it than one at a time.
struct Objects<R> {
    reader: R,
    /// The line that comes next, counted from 1.
    line: u32,
    /// The byte that comes next.
    offset: u64,
    hash: Sha256,
}

/// One object of a file, and where it stands in it.
struct Object {
    json: Json,
    start: u64,
    bytes: usize,
}

/// Why the objects end before the file does.
struct Refused {
    line: u32,
    message: String,
}

impl<R: BufRead> Objects<R> {
    fn new(reader: R, line: u32) -> Self {
        Self { reader, line, offset: 0, hash: Sha256::new() }
    }

    /// Hash of the bytes that were read.
    fn file_hash(&self) -> String {
        let mut digest = hex::encode(self.hash.clone().finalize());
        digest.truncate(12);
        digest
    }

    /// Collects lines until they are a whole value: braces are counted outside of texts, which never go over lines.
    fn next(&mut self) -> Option<Result<Object, Refused>> {
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

/// The cases in the answer of a plain agent that was asked for some: lists of them, alone or as `cases`, or one after the other as
/// in a file; as the whole answer, or in its fenced blocks, of which one that is there twice counts once. What is no JSON ends a
/// block, and an object that nothing of a case stands in is none.
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

impl Reader<'_> {
    /// Reads one case; `None` when it cannot be run.
    fn framework_case(&mut self, json: &Json, lines: &mut HashMap<String, u32>, defaults: &Defaults) -> Option<Case> {
        if !matches!(json.value, Value::Object(_)) {
            lines.insert(format!("line {}", json.line), json.line);
            self.push_error(json.line, None, must_be("an object", json).replace("must", "a case must"), None);
            return None;
        }
        let id = given(json, "id").and_then(Json::as_str).filter(|id| !id.is_empty());
        let Some(id) = id else {
            lines.insert(format!("line {}", json.line), json.line);
            let message = "a case needs an id, which is a text".to_owned();
            self.error(json.line, "id", message, None);
            return None;
        };
        if let Some(why) = bad_id(id) {
            lines.insert(format!("line {}", json.line), json.line);
            self.error(json.line, "id", why, None);
            return None;
        }
        self.case = Some(id.to_owned());
        if let Some(first) = lines.get(id) {
            let hint = "results and baselines are keyed by id".to_owned();
            self.error(json.line, "id", format!("the id is already used on line {first}"), Some(hint));
        } else {
            lines.insert(id.to_owned(), json.line);
        }
        self.warn_unknown(json, "", CASE_KEYS);
        self.tokens_in_framework(json);
        let errors = self.errors.len();
        let is_dynamic = given(json, "simulator").is_some() || given(json, "checkpoints").is_some();
        let messages = self.messages(json);
        if messages.is_empty() && !is_dynamic && self.errors.len() == errors {
            let message = "the case needs an input or messages".to_owned();
            self.error(json.line, "input", message, None);
        }
        let timeout = self.timeout(json);
        let skip = match given(json, "skip").map(|skip| (skip, &skip.value)) {
            None => false,
            Some((_, Value::Bool(skip))) => *skip,
            Some((skip, _)) => {
                self.error(skip.line, "skip", must_be("true or false", skip), None);
                false
            }
        };
        let hooks = Hooks { before: self.hook(json, "before"), after: self.hook(json, "after") };
        let (options, metadata) = (self.object(json, "options"), self.object(json, "metadata"));
        let mode = if is_dynamic { Mode::Dynamic(self.dialogue(json, defaults)) } else { Mode::Single };
        let claims = claim::read(self, "", json, ["assertions", "assert"]);
        (self.errors.len() == errors).then(|| Case {
            id: id.to_owned(),
            line: json.line,
            description: self.label(json, "", "name"),
            labels: Labels::default(),
            messages,
            mode,
            max_turns: None,
            assertions: Vec::new(),
            claims,
            timeout,
            skip,
            options: options.map(JsonText::from),
            hooks,
            metadata: metadata.map(JsonText::from),
        })
    }

    /// A member that is an object, if it is given.
    fn object<'j>(&mut self, json: &'j Json, key: &str) -> Option<&'j Json> {
        given(json, key).filter(|value| {
            let is_object = matches!(value.value, Value::Object(_));
            if !is_object {
                self.error(value.line, key, must_be("an object", value), None);
            }
            is_object
        })
    }

    fn hook(&mut self, json: &Json, key: &str) -> Option<ScriptRef> {
        let written = given(json, key)?;
        let named = written.as_str().ok_or_else(|| must_be("a text", written)).and_then(ScriptRef::of_hook);
        match named {
            Ok(named) => Some(named),
            Err(why) => {
                self.error(written.line, key, why, None);
                None
            }
        }
    }

    fn timeout(&mut self, json: &Json) -> Option<Timeout> {
        let written = given(json, "timeout")?;
        let read = written.as_str().ok_or_else(|| must_be("a text such as \"2m\"", written)).and_then(Timeout::parse);
        match read {
            Ok(timeout) => Some(timeout),
            Err(why) => {
                self.error(written.line, "timeout", why, None);
                None
            }
        }
    }

    /// `messages`, else `input`, which is a text, a message, or a list of messages. An empty list is no history, and an empty
    /// text is an input: users do send nothing.
    fn messages(&mut self, json: &Json) -> Vec<Message> {
        if let Some(messages) =
            given(json, "messages").filter(|list| list.as_array().is_none_or(|list| !list.is_empty()))
        {
            return self.message_list("messages", messages);
        }
        match given(json, "input").map(|input| (input, &input.value)) {
            None => Vec::new(),
            Some((_, Value::String(text))) => vec![Message::user(text.as_str())],
            Some((input, Value::Object(_))) => self.message("input", input).into_iter().collect(),
            Some((input, Value::Array(_))) => self.message_list("input", input),
            Some((input, _)) => {
                self.error(input.line, "input", must_be("a text, a message or a list of messages", input), None);
                Vec::new()
            }
        }
    }

    fn message_list(&mut self, field: &str, json: &Json) -> Vec<Message> {
        let Some(items) = json.as_array() else {
            self.error(json.line, field, must_be("a list of messages", json), None);
            return Vec::new();
        };
        let items = items.iter().enumerate();
        items.filter_map(|(index, item)| self.message(&format!("{field}[{index}]"), item)).collect()
    }

    fn message(&mut self, field: &str, json: &Json) -> Option<Message> {
        if !matches!(json.value, Value::Object(_)) {
            self.error(json.line, field, must_be("a message with role and content", json), None);
            return None;
        }
        self.warn_unknown(json, &format!("{field}."), MESSAGE_KEYS);
        let written = given(json, "role").and_then(Json::as_str).unwrap_or_default();
        let role = Role::ALL.into_iter().find(|role| role.name() == written);
        if role.is_none() {
            let names = Role::ALL.map(Role::name);
            let message = format!("must be one of {}, not {written:?}", names.join(", "));
            self.error(json.line, format_args!("{field}.role"), message, did_you_mean(written, &names));
        }
        let content = format!("{field}.content");
        let parts = match given(json, "content").map(|content| (content, &content.value)) {
            Some((_, Value::String(text))) => vec![Part::Text(text.clone())],
            Some((_, Value::Array(parts))) => {
                let parts = parts.iter().enumerate();
                parts.filter_map(|(index, part)| self.part(&format!("{content}[{index}]"), part)).collect()
            }
            Some((value, _)) => {
                self.error(value.line, content, must_be("a text or a list of parts", value), None);
                return None;
            }
            None => {
                self.error(json.line, content, "is missing".to_owned(), None);
                return None;
            }
        };
        Some(Message { role: role?, parts })
    }

    /// A part of a message: text, or something that is named by where it is.
    fn part(&mut self, field: &str, json: &Json) -> Option<Part> {
        let kind = given(json, "type").and_then(Json::as_str);
        let Some(kind) = kind else {
            self.error(json.line, field, "a part must be an object with a type".to_owned(), None);
            return None;
        };
        if kind == "text" {
            let text = given(json, "text").and_then(Json::as_str);
            if text.is_none() {
                self.error(json.line, format_args!("{field}.text"), "must be a text".to_owned(), None);
            }
            return text.map(|text| Part::Text(text.to_owned()));
        }
        let source = ["source", "url"].iter().find_map(|key| given(json, key).and_then(Json::as_str));
        let Some(source) = source.filter(|source| !source.is_empty()) else {
            let message = format!("a part of the type {kind:?} needs a source or a url");
            self.error(json.line, format_args!("{field}.source"), message, None);
            return None;
        };
        let (source, ending) = match source.strip_prefix("file:") {
            None if names_a_file(source) => {
                let message = format!("names a file, which begins with `file:` and not as {source:?} does");
                self.error(json.line, format_args!("{field}.source"), message, None);
                return None;
            }
            None => (Source::Uri(source.to_owned()), None),
            Some(file) => match plain_path(file.strip_prefix("//").unwrap_or(file), self.files_outside) {
                Ok(path) => {
                    let ending = path.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
                    (Source::File(path), ending)
                }
                Err(why) => {
                    let hint = "files are named from the folder of the suite, as in file://./fixtures/receipt.jpg; --allow-outside allows others";
                    self.error(json.line, format_args!("{field}.source"), why, Some(hint.to_owned()));
                    return None;
                }
            },
        };
        let by_ending = ending.and_then(|ending| MEDIA_TYPES.iter().find(|(known, _)| *known == ending));
        let media_type = given(json, "media_type").and_then(Json::as_str).map(str::to_owned);
        let media_type = media_type.or_else(|| by_ending.map(|(_, media_type)| (*media_type).to_owned()));
        // `image` alone says which sort of media, not which format.
        let media_type =
            media_type.unwrap_or_else(|| if kind.contains('/') { kind.to_owned() } else { format!("{kind}/*") });
        let name = given(json, "name").and_then(Json::as_str).map(str::to_owned);
        let name = name.unwrap_or_else(|| match &source {
            Source::File(path) => path.rsplit('/').next().unwrap_or_default().to_owned(),
            Source::Uri(_) | Source::Content(_) => String::new(),
        });
        Some(Part::Blob(Blob { media_type, name, source, written: Some(JsonText::from(json)) }))
    }

    fn dialogue(&mut self, json: &Json, defaults: &Defaults) -> Dialogue {
        let simulator = self.simulator(json, defaults);
        let max_turns = match given(json, "max_turns").map(|turns| (turns, turns.as_f64())) {
            None => DEFAULT_TURNS,
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
            Some((_, Some(turns))) if (1.0..=MAX_TURNS).contains(&turns) && turns.fract() == 0.0 => turns as u32,
            Some((turns, _)) => {
                let message = format!("must be a whole number from 1 to {MAX_TURNS}, not {turns}");
                self.error(turns.line, "max_turns", message, None);
                DEFAULT_TURNS
            }
        };
        let checkpoints = match given(json, "checkpoints").and_then(Json::as_array) {
            Some(items) if items.len() > MAX_CHECKPOINTS => {
                let message = format!("there are {} checkpoints, at most {MAX_CHECKPOINTS} are allowed", items.len());
                self.error(json.line, "checkpoints", message, None);
                Vec::new()
            }
            Some(items) if !items.is_empty() => self.checkpoints(items),
            _ => {
                let message = "a case with a simulator needs a list of checkpoints".to_owned();
                self.error(json.line, "checkpoints", message, None);
                Vec::new()
            }
        };
        Dialogue { simulator, checkpoints, max_turns }
    }

    fn simulator(&mut self, json: &Json, defaults: &Defaults) -> Simulator {
        let written = given(json, "simulator");
        if let Some(simulator) = written {
            if matches!(simulator.value, Value::Object(_)) {
                self.warn_unknown(simulator, "simulator.", SIMULATOR_KEYS);
            } else {
                self.error(simulator.line, "simulator", must_be("an object with use", simulator), None);
            }
        }
        let agent = written.and_then(|simulator| given(simulator, "use")).and_then(Json::as_str);
        let agent = agent.map(str::to_owned).or_else(|| defaults.simulator.clone()).filter(|agent| !agent.is_empty());
        if agent.is_none() {
            let message = "a case with checkpoints needs a simulator".to_owned();
            let hint = "name one with simulator.use, or for all cases with --simulator".to_owned();
            self.error(json.line, "simulator.use", message, Some(hint));
        }
        let agent = agent.unwrap_or_default();
        if agent.contains(':') && !agent.contains("://") {
            let message = format!("{agent:?} has a prefix, and a simulator is named without one");
            self.error(json.line, "simulator.use", message, None);
        }
        let options = written.and_then(|simulator| given(simulator, "options"));
        let options = options.and_then(|options| match claim::read_options(options) {
            Ok(options) => Some(options),
            Err(why) => {
                let (field, why) = why.split_once(' ').unwrap_or_default();
                self.error(options.line, format_args!("simulator.{field}"), why.to_owned(), None);
                None
            }
        });
        Simulator { agent, options }
    }

    fn checkpoints(&mut self, items: &[Json]) -> Vec<Checkpoint> {
        let mut checkpoints: Vec<Checkpoint> = Vec::new();
        let mut waits: Vec<Vec<String>> = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let id = given(item, "id").and_then(Json::as_str).filter(|id| !id.is_empty());
            let Some(id) = id else {
                let message = "a checkpoint needs an id, which is a text".to_owned();
                self.error(item.line, format_args!("checkpoints[{index}].id"), message, None);
                continue;
            };
            if checkpoints.iter().any(|other| other.id == id) {
                let message = format!("there are two checkpoints {id:?}");
                self.error(item.line, format_args!("checkpoints[{index}].id"), message, None);
            }
            let place = format!("checkpoint {id:?}, ");
            self.warn_unknown(item, &place, CHECKPOINT_KEYS);
            let errors = self.errors.len();
            let claims = claim::read(self, &place, item, ["assertion", "assert"]);
            if claims.iter().any(|claim| matches!(claim.kind, ClaimKind::Snapshot { .. })) {
                let message = "a stored answer is that of a case, and a checkpoint looks at many".to_owned();
                self.error(item.line, format_args!("{place}assertion"), message, None);
            }
            if claims.is_empty() && self.errors.len() == errors {
                self.error(item.line, format_args!("{place}assertion"), "is missing".to_owned(), None);
            }
            if !claims.is_empty() && claims.iter().all(claim::Claim::is_negative) {
                let text = "it only says what must not be, so it is reached as soon as it is looked at and nothing of that is there";
                let hint =
                    "what must not happen in any turn stands in the assertions of the case, beside the checkpoints";
                self.warn(item.line, format_args!("{place}assertion"), text, Some(hint.to_owned()));
            }
            waits.push(self.texts(&format!("{place}after"), given(item, "after")));
            let required = match given(item, "required").map(|required| (required, &required.value)) {
                None => true,
                Some((_, Value::Bool(required))) => *required,
                Some((required, _)) => {
                    self.error(
                        required.line,
                        format_args!("{place}required"),
                        must_be("true or false", required),
                        None,
                    );
                    true
                }
            };
            let description = self.label(item, &place, "description");
            checkpoints.push(Checkpoint { id: id.to_owned(), description, claims, after: Vec::new(), required });
        }
        self.order(&mut checkpoints, &waits);
        checkpoints
    }

    /// Turns the names of `after` into positions; they must exist and must not wait for each other.
    fn order(&mut self, checkpoints: &mut [Checkpoint], waits: &[Vec<String>]) {
        let ids: Vec<String> = checkpoints.iter().map(|checkpoint| checkpoint.id.clone()).collect();
        for (checkpoint, waits) in checkpoints.iter_mut().zip(waits) {
            for id in waits {
                if let Some(position) = ids.iter().position(|other| other == id) {
                    checkpoint.after.push(position);
                } else {
                    let known: Vec<&str> = ids.iter().map(String::as_str).collect();
                    let field = format!("checkpoint {:?}, after", checkpoint.id);
                    self.error(0, field, format!("there is no checkpoint {id:?}"), did_you_mean(id, &known));
                }
            }
        }
        // What can be reached in some order leaves; what is left waits for itself.
        let mut open: Vec<usize> = (0..checkpoints.len()).collect();
        loop {
            let before = open.len();
            let waiting = open.clone();
            open.retain(|position| checkpoints[*position].after.iter().any(|after| waiting.contains(after)));
            if open.len() == before {
                break;
            }
        }
        if !open.is_empty() {
            let names: Vec<&str> = open.iter().map(|position| ids[*position].as_str()).collect();
            let message = format!("these wait for each other, so none can ever be reached: {}", names.join(", "));
            self.error(0, "checkpoints", message, None);
        }
    }

    fn texts(&mut self, field: &str, list: Option<&Json>) -> Vec<String> {
        let Some(list) = list else { return Vec::new() };
        let texts: Option<Vec<String>> =
            list.as_array().and_then(|items| items.iter().map(|item| item.as_str().map(str::to_owned)).collect());
        if texts.is_none() {
            self.error(list.line, field, must_be("a list of ids", list), None);
        }
        texts.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a case sends, or why it is refused.
    fn sent(members: &str) -> Result<Vec<String>, String> {
        let text = format!("{{\"id\": \"a\", {members}}}");
        let suite = super::super::parse("t.jsonl", text.as_bytes(), &Defaults::default());
        let case = suite.map_err(|errors| errors.to_string())?.load(0).expect("it is held");
        Ok(case.messages.iter().map(Message::text).collect())
    }

    #[test]
    fn what_is_an_input_and_what_is_none() {
        let texts = |texts: &[&str]| Ok(texts.iter().map(|text| (*text).to_owned()).collect());
        for (members, expected) in [
            (r#""input": "hi""#, texts(&["hi"])),
            (r#""input": """#, texts(&[""])),
            (r#""input": " ""#, texts(&[" "])),
            (r#""input": "hi", "messages": []"#, texts(&["hi"])),
            (r#""input": "", "messages": []"#, texts(&[""])),
            (r#""input": "hi", "messages": null"#, texts(&["hi"])),
            (r#""input": [{"role": "user", "content": "a"}], "messages": []"#, texts(&["a"])),
            (r#""input": "hi", "messages": [{"role": "user", "content": ""}]"#, texts(&[""])),
        ] {
            assert_eq!(sent(members), expected, "{members}");
        }
        for members in [r#""messages": []"#, r#""input": []"#, r#""input": null"#, r#""input": [], "messages": []"#] {
            assert!(sent(members).is_err_and(|why| why.contains("needs an input or messages")), "{members}");
        }
        assert!(sent(r#""input": "hi", "messages": {}"#).is_err_and(|why| why.contains("must be a list of messages")));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_value() {
        for (members, why) in [
            (
                r#""assertions": [{"type": 5, "value": "x"}]"#,
                "assertions[0].type: there is no assertion of the type 5: it must be a text, not a number",
            ),
            (
                r#""assert": {"type": ["contains"], "value": "x"}"#,
                r#"assert[0].type: there is no assertion of the type ["contains"]: it must be a text, not a list"#,
            ),
            (r#""assertions": [{"type": true, "value": "x"}]"#, "there is no assertion of the type true"),
            (r#""metadata": "x""#, "metadata: must be an object, not a text"),
            (r#""metadata": []"#, "metadata: must be an object"),
            (r#""metadata": 0"#, "metadata: must be an object"),
        ] {
            let refused = sent(&format!("\"input\": \"x\", {members}"));
            assert!(refused.clone().is_err_and(|text| text.contains(why)), "{members}: {refused:?}");
        }
        assert!(sent(r#""input": "x", "metadata": null"#).is_ok() && sent(r#""input": "x", "metadata": {}"#).is_ok());
    }

    /// A validator without its criteria would say yes to anything.
    #[test]
    fn options_are_objects() {
        for (assertion, why) in [
            (
                r#""type": "agent", "use": "agents:v", "options": "be polite""#,
                Some("options must be an object, not a text"),
            ),
            (
                r#""type": "agent", "use": "agents:v", "options": {"metadata": "x"}"#,
                Some("options.metadata must be an object"),
            ),
            (r#""type": "script", "use": "scripts:v", "options": [1]"#, Some("options must be an object, not a list")),
            (r#""type": "agent", "use": "agents:v", "options": {"metadata": null}"#, None),
            (r#""type": "agent", "use": "agents:v", "options": null"#, None),
            (r#""type": "agent", "use": "agents:v", "options": {"metadata": {"criteria": "x"}}"#, None),
        ] {
            let text = format!(r#"{{"id": "a", "name": 5, "input": "x", "assertions": [{{{assertion}}}]}}"#);
            let suite = super::super::parse("t.jsonl", text.as_bytes(), &Defaults::default()).expect("it is read");
            let broken: Vec<String> = suite.broken.iter().map(ToString::to_string).collect();
            assert_eq!(broken.len(), usize::from(why.is_some()), "{assertion}: {broken:?}");
            assert!(why.is_none_or(|why| broken[0].contains(why)), "{assertion}: {broken:?}");
            assert_eq!(suite.warnings[0].to_string(), "t.jsonl, line 1, case \"a\", name: must be a text, ignored");
        }
        let simulator = |options: &str| {
            let checkpoints = r#""checkpoints": [{"id": "c", "assertion": {"type": "contains", "value": "x"}}]"#;
            sent(&format!(r#""simulator": {{"use": "u", "options": {options}}}, {checkpoints}"#))
        };
        assert!(simulator("5").is_err_and(|why| why.contains("simulator.options: must be an object, not a number")));
        let refused = simulator(r#"{"metadata": "x"}"#);
        assert!(refused.is_err_and(|why| why.contains("simulator.options.metadata: must be an object, not a text")));
        assert!(simulator(r#"{"metadata": {"persona": "p"}}"#).is_ok());
    }

    #[test]
    fn scripts_are_named_with_their_prefix_under_either_key() {
        for (assertion, script) in [
            (r#""use": "scripts:tests.ok""#, Some("tests.ok")),
            (r#""script": "scripts:tests.ok""#, Some("tests.ok")),
            (r#""use": "scripts:a", "script": "scripts:b""#, Some("a")),
            (r#""use": null, "script": "scripts:b""#, Some("b")),
            (r#""use": "tests.ok""#, None),
            (r#""script": "tests.ok""#, None),
            (r#""script": "agents:tests.ok""#, None),
            (r#""script": "scripts:""#, None),
            (r#""script": 5"#, None),
        ] {
            let text = format!(r#"{{"id": "a", "input": "x", "assertions": [{{"type": "script", {assertion}}}]}}"#);
            let suite = super::super::parse("t.jsonl", text.as_bytes(), &Defaults::default()).expect("it is read");
            let case = suite.load(0).expect("it is held");
            let named = match &case.claims[0].kind {
                ClaimKind::Script { script, .. } => Some(script.as_str()),
                _ => None,
            };
            assert_eq!(named, script, "{assertion}");
            assert_eq!(suite.broken.len(), usize::from(script.is_none()), "{assertion}");
        }
    }

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
