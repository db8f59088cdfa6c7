//! The assertions of Agent Test Framework V2.
//!
//! What cannot mean anything refuses the file: an unknown type, an unknown key, a missing operand. An operand of
//! the wrong sort is kept and makes the assertion one that cannot be evaluated, which fails its case.

use std::fmt;
use std::sync::Arc;

use super::automaton::Pool;
use super::error::meant_or_all;
use super::path::JsonPath;
use super::re2::Re2Pattern;
use super::reader::{Reader, given, must_be, no_other_keys, short};
use super::times::Times;
use crate::conversation::JsonText;
use crate::json::{Json, Value};

/// One assertion: about a case, or of a checkpoint.
#[derive(Debug, Clone)]
pub struct Claim {
    /// What is claimed.
    pub kind: ClaimKind,
    /// It must not hold.
    pub negate: bool,
    /// What is said in place of the built-in reason when it does not hold.
    pub message: Option<String>,
    /// As it stands in the file, for results.
    pub written: JsonText,
}

/// What is claimed.
#[derive(Debug, Clone)]
pub enum ClaimKind {
    /// The answer holds this text, or the JSON text of this value.
    Contains(Json),
    /// The answer does not hold it.
    NotContains(Json),
    /// The answer is this text, or is JSON that equals this value.
    Equals(Json),
    /// This pattern matches somewhere in the answer.
    Regex(Re2Pattern),
    /// There is something at a path of the answer's JSON, or it equals a value or one of a list.
    JsonPath {
        /// Where.
        path: JsonPath,
        /// What; `None`: anything.
        value: Option<Json>,
    },
    /// The answer, or what stands at a path of its JSON, is of this type.
    Type {
        /// Where; `None`: the answer as a whole.
        path: Option<JsonPath>,
        /// Name of the type.
        name: JsonType,
    },
    /// One of these tools was called.
    ToolCalled {
        /// The tools, without their name space if you like.
        tools: Vec<String>,
        /// Arguments that the call must have, among others.
        arguments: Option<Json>,
        /// How often.
        times: Times,
    },
    /// The first call of a tool succeeded, with this result.
    ToolResult {
        /// The tool.
        tool: String,
        /// What the result must hold; `None`: success is enough.
        result: Option<Json>,
    },
    /// A validator says so.
    Agent {
        /// Id of the validator.
        agent: String,
        /// The options of the assertion, as written.
        options: Option<Json>,
    },
    /// A script says so.
    Script {
        /// Name of the script.
        script: String,
        /// The options of the assertion, as written.
        options: Option<Json>,
    },
    /// The answer is the one that is stored for the case.
    Snapshot {
        /// When two answers are the same.
        compare: Compare,
        /// What is stored.
        stored: Stored,
    },
    /// It cannot be evaluated.
    Broken {
        /// The type.
        name: &'static str,
        /// Why not.
        why: String,
    },
}

/// When an answer is the same as a stored one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compare {
    /// Every character is the same.
    Exact,
    /// The same words, whatever white space is between them.
    Whitespace,
    /// The same JSON, but for what stands at these paths.
    Json {
        /// What is not compared.
        ignore: Vec<JsonPath>,
    },
}

/// The answer that is stored for a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored {
    /// There is none.
    Missing,
    /// This one.
    Answer(Arc<str>),
    /// Whatever the agent answers now is going to be stored.
    Renewed,
}

/// The types of JSON values by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonType {
    /// A text.
    String,
    /// A number.
    Number,
    /// True or false.
    Boolean,
    /// A list.
    Array,
    /// An object.
    Object,
    /// Null.
    Null,
}

impl JsonType {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "string" => Self::String,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            "array" => Self::Array,
            "object" => Self::Object,
            "null" => Self::Null,
            _ => return None,
        })
    }

    /// The type of a value.
    #[must_use]
    pub const fn of(json: &Json) -> Self {
        match json.value {
            Value::Null => Self::Null,
            Value::Bool(_) => Self::Boolean,
            Value::Number(_) => Self::Number,
            Value::String(_) => Self::String,
            Value::Array(_) => Self::Array,
            Value::Object(_) => Self::Object,
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Array => "array",
            Self::Object => "object",
            Self::Null => "null",
        }
    }
}

/// What of a whole dialogue a claim is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The tool calls of all turns, in order.
    Tools,
    /// The answer of every turn: what must not be said must not be said in any of them.
    EveryAnswer,
    /// The answer of the last turn.
    LastAnswer,
    /// All of it, which somebody else judges.
    Others,
}

impl Claim {
    /// What it is about where it stands beside checkpoints. An answer is stored for the end of a dialogue, whatever
    /// else is said of it.
    #[must_use]
    pub fn scope(&self) -> Scope {
        match &self.kind {
            ClaimKind::ToolCalled { .. } | ClaimKind::ToolResult { .. } => Scope::Tools,
            ClaimKind::Agent { .. } | ClaimKind::Script { .. } => Scope::Others,
            ClaimKind::Snapshot { .. } | ClaimKind::Broken { .. } => Scope::LastAnswer,
            _ if self.is_negative() => Scope::EveryAnswer,
            _ => Scope::LastAnswer,
        }
    }

    /// Whether judging it takes time that must not be a runtime thread's: it runs patterns, or tells what differs
    /// between long texts.
    #[must_use]
    pub const fn is_slow(&self) -> bool {
        matches!(self.kind, ClaimKind::Regex(_) | ClaimKind::ToolResult { .. } | ClaimKind::Snapshot { .. })
    }

    /// Whether it says what must not be, and so holds as long as nothing happens.
    #[must_use]
    pub fn is_negative(&self) -> bool {
        let holds_without = match &self.kind {
            ClaimKind::ToolCalled { times, .. } => times.min == 0,
            _ => self.name() == "not_contains",
        };
        holds_without != self.negate
    }

    /// Whether it says that a tool is never called, and so holds of a dialogue if it holds of every turn.
    #[must_use]
    pub fn forbids_a_call(&self) -> bool {
        match &self.kind {
            ClaimKind::ToolCalled { times, .. } if self.negate => *times == Times::ONCE_OR_MORE,
            ClaimKind::ToolCalled { times, .. } => times.max == Some(0),
            _ => false,
        }
    }

    /// The type, as the file writes it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match &self.kind {
            ClaimKind::Contains(_) => "contains",
            ClaimKind::NotContains(_) => "not_contains",
            ClaimKind::Equals(_) => "equals",
            ClaimKind::Regex(_) => "regex",
            ClaimKind::JsonPath { .. } => "json_path",
            ClaimKind::Type { .. } => "type",
            ClaimKind::ToolCalled { .. } => "tool_called",
            ClaimKind::ToolResult { .. } => "tool_result",
            ClaimKind::Agent { .. } => "agent",
            ClaimKind::Script { .. } => "script",
            ClaimKind::Snapshot { .. } => "snapshot",
            ClaimKind::Broken { name, .. } => name,
        }
    }
}

/// An expected text of `tool_result` that begins so is a pattern.
pub const PATTERN_PREFIX: &str = "regex:";

/// The types: name, the keys that each reads, and those of which one must be given.
const TYPES: &[(&str, &[&str], &[&str])] = &[
    ("equals", &["value"], &["value"]),
    ("contains", &["value"], &["value"]),
    ("not_contains", &["value"], &["value"]),
    ("tool_result", &["value"], &["value"]),
    ("regex", &["pattern", "value"], &["pattern", "value"]),
    ("json_path", &["path", "value"], &["path"]),
    ("type", &["value", "path"], &["value"]),
    ("tool_called", &["name", "value", "times"], &["name", "value"]),
    ("agent", &["use"], &["use"]),
    ("script", &["use", "script"], &["use", "script"]),
    ("snapshot", &["compare", "ignore"], &[]),
];
/// Keys that may stand in every assertion.
const COMMON_KEYS: &[&str] = &["type", "negate", "message", "options"];

/// Reads the assertions of `owner` under one of `names`, of which the first that is given counts; `place` names the
/// owner in findings.
pub(super) fn read(reader: &mut Reader<'_>, place: &str, owner: &Json, names: [&str; 2]) -> Vec<Claim> {
    let Some((name, value)) = names.into_iter().find_map(|name| Some((name, given(owner, name)?))) else {
        return Vec::new();
    };
    for other in names.into_iter().filter(|other| *other != name && given(owner, other).is_some()) {
        reader.warn(value.line, format_args!("{place}{other}"), &format!("ignored: {name} is given too"), None);
    }
    let entries = match &value.value {
        Value::Array(items) => items.as_slice(),
        Value::Object(_) => std::slice::from_ref(value),
        _ => {
            reader.error(value.line, format_args!("{place}{name}"), must_be("a list of objects", value), None);
            return Vec::new();
        }
    };
    let entries = entries.iter().enumerate();
    entries.filter_map(|(index, entry)| read_one(reader, &format_args!("{place}{name}[{index}]"), entry)).collect()
}

fn read_one(reader: &mut Reader<'_>, place: &dyn fmt::Display, entry: &Json) -> Option<Claim> {
    if !matches!(entry.value, Value::Object(_)) {
        reader.error(entry.line, place, must_be("an object", entry), None);
        return None;
    }
    let known: Vec<&str> = TYPES.iter().map(|(name, ..)| *name).collect();
    let written = given(entry, "type");
    let name = match written.map(|name| (name, name.as_str())) {
        None => "equals",
        Some((_, Some(name))) => name,
        Some((name, None)) => {
            let message = format!("there is no assertion of the type {}: it {}", short(name), must_be("a text", name));
            reader.error(name.line, format_args!("{place}.type"), message, None);
            return None;
        }
    };
    let Some((name, keys, needs)) = TYPES.iter().find(|(known, ..)| *known == name) else {
        let message = format!("there is no assertion of the type {name:?}");
        reader.error(entry.line, format_args!("{place}.type"), message, meant_or_all(name, &known));
        return None;
    };
    let allowed: Vec<&str> = keys.iter().chain(COMMON_KEYS).copied().collect();
    let mut is_right = no_other_keys(reader, place, entry, &allowed, &format!("an assertion of the type {name:?}"));
    if let Some(value) = given(entry, "value").filter(|value| matches!(value.value, Value::Object(_))) {
        let inside: &[&str] = match *name {
            "tool_called" => &["name", "arguments"],
            "tool_result" => &["tool", "result"],
            _ => &[],
        };
        if !inside.is_empty() {
            if let Some(times) = value.get("times").filter(|_| *name == "tool_called") {
                let (message, hint) = ("tool_called has no such key", "times stands beside value");
                reader.error(
                    times.line,
                    format_args!("{place}.value.times"),
                    message.to_owned(),
                    Some(hint.to_owned()),
                );
                return None;
            }
            is_right &= no_other_keys(reader, &format_args!("{place}.value"), value, inside, name);
        }
    }
    // Null is a value to compare with for two types, and nothing for all others.
    let is_given = |key: &&str| match *name {
        "equals" | "json_path" if *key == "value" => entry.get(key).is_some(),
        _ => given(entry, key).is_some(),
    };
    if !needs.is_empty() && !needs.iter().any(is_given) {
        let message = format!("is missing: an assertion of the type {name:?} needs it");
        reader.error(entry.line, format_args!("{place}.{}", needs[0]), message, None);
        is_right = false;
    }
    let negate = match given(entry, "negate").map(|negate| (negate, &negate.value)) {
        None => false,
        Some((_, Value::Bool(negate))) => *negate,
        Some((negate, _)) => {
            reader.error(negate.line, format_args!("{place}.negate"), must_be("true or false", negate), None);
            is_right = false;
            false
        }
    };
    let message = given(entry, "message").and_then(|message| {
        let text = message.as_str().map(str::to_owned);
        if text.is_none() {
            reader.error(message.line, format_args!("{place}.message"), must_be("a text", message), None);
            is_right = false;
        }
        text
    });
    let times = match given(entry, "times").filter(|_| *name == "tool_called") {
        None => Some(Times::ONCE_OR_MORE),
        Some(written) => Times::read(reader, &format_args!("{place}.times"), written),
    };
    let times = times.filter(|_| is_right)?;
    let kind = kind(name, entry, times, &mut reader.pool).unwrap_or_else(|why| {
        reader.broken_one(entry.line, place, why.clone());
        ClaimKind::Broken { name, why }
    });
    Some(Claim { kind, negate, message, written: JsonText::from(entry) })
}

/// Reads what the type compares with; an error is why it cannot be evaluated.
fn kind(name: &str, entry: &Json, times: Times, pool: &mut Pool) -> Result<ClaimKind, String> {
    let value = given(entry, "value");
    // Given or null: both compare, for the types that ask for it.
    let exact = || entry.get("value").cloned();
    let text = |key: &str| match given(entry, key) {
        None => Ok(None),
        Some(value) => value.as_str().map(Some).ok_or_else(|| format!("{key} {}", must_be("a text", value))),
    };
    let needed = |key: &str| text(key)?.ok_or_else(|| format!("{key} is missing"));
    let options = || given(entry, "options").map(read_options).transpose();
    let reference = |key: &str, prefix: &str| {
        let reference = needed(key)?;
        let id = reference.strip_prefix(prefix).filter(|id| !id.is_empty());
        id.map(str::to_owned)
            .ok_or_else(|| format!("{key} must begin with {prefix}, as in {prefix}ID, not be {reference:?}"))
    };
    Ok(match name {
        "contains" => ClaimKind::Contains(exact().ok_or("value is missing")?),
        "not_contains" => ClaimKind::NotContains(exact().ok_or("value is missing")?),
        "regex" => {
            let pattern = text("pattern")?.map_or_else(|| needed("value"), Ok)?;
            ClaimKind::Regex(Re2Pattern::within(pattern, pool).map_err(|error| error.to_string())?)
        }
        "json_path" => ClaimKind::JsonPath { path: JsonPath::parse(needed("path")?)?, value: exact() },
        "type" => {
            let written = needed("value")?;
            let name = JsonType::named(written).ok_or_else(|| {
                format!("{written:?} is no type; there are string, number, boolean, array, object and null")
            })?;
            ClaimKind::Type { path: text("path")?.map(JsonPath::parse).transpose()?, name }
        }
        "tool_called" => tool_called(text("name")?, value, times)?,
        "tool_result" => {
            let value = value.ok_or("value is missing")?;
            let tool = value.get("tool").and_then(Json::as_str).filter(|tool| !tool.is_empty());
            let tool = tool.ok_or("value.tool must name a tool")?.to_owned();
            let result = given(value, "result").cloned();
            result.as_ref().map_or(Ok(()), |result| check_patterns(result, pool))?;
            ClaimKind::ToolResult { tool, result }
        }
        "agent" => {
            let options = options()?;
            options.as_ref().map_or(Ok(1), votes_of)?;
            ClaimKind::Agent { agent: reference("use", "agents:")?, options }
        }
        "script" => {
            let key = if given(entry, "use").is_some() { "use" } else { "script" };
            ClaimKind::Script { script: reference(key, "scripts:")?, options: options()? }
        }
        "snapshot" => {
            ClaimKind::Snapshot { compare: compare(text("compare")?, given(entry, "ignore"))?, stored: Stored::Missing }
        }
        _ => ClaimKind::Equals(exact().ok_or("value is missing")?),
    })
}

/// `compare`, and `ignore`: a path or a list of them, which only JSON has.
fn compare(name: Option<&str>, ignore: Option<&Json>) -> Result<Compare, String> {
    let paths = match ignore.map(|ignore| (ignore, &ignore.value)) {
        None => Vec::new(),
        Some((_, Value::String(path))) => vec![ignored(path)?],
        Some((_, Value::Array(items))) => {
            let path = |item: &Json| {
                let text = item.as_str().ok_or_else(|| format!("ignore {}", must_be("a list of paths", item)))?;
                ignored(text)
            };
            items.iter().map(path).collect::<Result<_, _>>()?
        }
        Some((ignore, _)) => return Err(format!("ignore {}", must_be("a list of paths", ignore))),
    };
    match name {
        Some("json") => Ok(Compare::Json { ignore: paths }),
        None if !paths.is_empty() => Ok(Compare::Json { ignore: paths }),
        Some("exact" | "whitespace") if !paths.is_empty() => {
            Err("ignore is about JSON: leave out compare, or set it to \"json\"".to_owned())
        }
        None | Some("exact") => Ok(Compare::Exact),
        Some("whitespace") => Ok(Compare::Whitespace),
        Some(other) => Err(format!("compare must be \"exact\", \"whitespace\" or \"json\", not {other:?}")),
    }
}

/// Most votes of a validator on one answer.
const MAX_VOTES: u32 = 15;

/// A path of what is not compared; the whole is compared with nothing then.
fn ignored(path: &str) -> Result<JsonPath, String> {
    let read = JsonPath::parse_many(path)?;
    if read.is_root() {
        Err(format!("ignore: {path:?} is the whole answer, so nothing would be compared"))
    } else {
        Ok(read)
    }
}

/// What a validator, a simulator or a script is told: an object, with an object as `metadata`. Of anything else
/// they would hear nothing.
///
/// # Errors
/// When it is something else.
pub(super) fn read_options(options: &Json) -> Result<Json, String> {
    let is_object = |json: &Json| matches!(json.value, Value::Object(_));
    if !is_object(options) {
        return Err(format!("options {}", must_be("an object", options)));
    }
    match given(options, "metadata").filter(|metadata| !is_object(metadata)) {
        Some(metadata) => Err(format!("options.metadata {}", must_be("an object", metadata))),
        None => Ok(options.clone()),
    }
}

/// How often a validator is asked: `votes` of the options, 1 if it is not given.
///
/// # Errors
/// When it is no odd number from 1 to 15: of an even number of votes half may say yes.
pub fn votes_of(options: &Json) -> Result<u32, String> {
    let Some(votes) = given(options, "votes") else { return Ok(1) };
    let number = match &votes.value {
        Value::Number(text) => text.parse().ok(),
        _ => None,
    };
    match number {
        Some(number) if (1..=MAX_VOTES).contains(&number) && number % 2 == 1 => Ok(number),
        _ => Err(format!("options.votes must be an odd whole number from 1 to {MAX_VOTES}, not {votes}")),
    }
}

/// `name`, or `value` as a text, a list of texts, or an object with `name` and `arguments`.
fn tool_called(name: Option<&str>, value: Option<&Json>, times: Times) -> Result<ClaimKind, String> {
    let from_value = match value.map(|value| (value, &value.value)) {
        None | Some((_, Value::Object(_))) => None,
        Some((_, Value::String(tool))) => Some(vec![tool.clone()]),
        Some((_, Value::Array(tools))) => {
            let tools: Option<Vec<String>> = tools.iter().map(|tool| tool.as_str().map(str::to_owned)).collect();
            Some(tools.ok_or("value must be a list of texts")?)
        }
        Some((value, _)) => return Err(format!("value {}", must_be("a text, a list of texts or an object", value))),
    };
    let inside = value.and_then(|value| value.get("name")).and_then(Json::as_str);
    let named = name.or(inside).map(|tool| vec![tool.to_owned()]);
    let tools = named.or(from_value).ok_or("it names no tool")?;
    let arguments = value.and_then(|value| given(value, "arguments"));
    // Anything else has no members, and every call would have all of them.
    if let Some(arguments) = arguments.filter(|arguments| !matches!(arguments.value, Value::Object(_))) {
        return Err(format!("value.arguments {}", must_be("an object", arguments)));
    }
    Ok(ClaimKind::ToolCalled { tools, arguments: arguments.cloned(), times })
}

/// Whether all patterns in an expected result are patterns: one that is not makes the assertion meaningless,
/// whether it is reached or not. They are compiled anew where they are used, and take their share of the pool for
/// the time of that.
fn check_patterns(result: &Json, pool: &mut Pool) -> Result<(), String> {
    match &result.value {
        Value::String(text) => match text.strip_prefix(PATTERN_PREFIX) {
            Some(pattern) => Re2Pattern::within(pattern, pool).map(drop).map_err(|error| error.to_string()),
            None => Ok(()),
        },
        Value::Array(items) => items.iter().try_for_each(|item| check_patterns(item, pool)),
        Value::Object(members) => members.iter().try_for_each(|(_, value)| check_patterns(value, pool)),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}
