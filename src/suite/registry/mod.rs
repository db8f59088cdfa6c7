//! Tool registries: which tools there are, and how each is described today.
//!
//! A registry is what an agent declares, or a file: a JSON list of tools, the answer of an MCP server to
//! `tools/list`, or the TypeScript or JavaScript module that exports the tools of a project (a "barrel", read by
//! `barrel`). Nothing is run and nothing is opened: file contents come through a look-up closure, and paths never
//! leave its root.

mod barrel;
mod module;
mod nesting;
mod tools;

use std::collections::{BTreeSet, HashSet};

use super::error::{Finding, SuiteErrors};
use crate::conversation::{JsonText, ToolSpec};
use crate::json::{Json, Value, without_mark, write_string};

/// Most tools of a registry.
pub const MAX_TOOLS: usize = 10_000;
/// Largest JSON registry in bytes.
pub const MAX_JSON_BYTES: usize = 16 << 20;

/// The tools there are; names are unique.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Registry {
    /// In the order in which they are declared.
    pub tools: Vec<ToolSpec>,
    /// Names of the tools whose description is not known: none is given, or it could not be read. That is not the empty
    /// description, and nothing can be compared with it.
    pub undescribed: BTreeSet<String>,
}

/// Reads the text of a script with a parser that recurses without a limit: with as much room for it as can be had.
///
/// # Errors
/// The line (0: none) and what is wrong, when the brackets are nested too deep or the text is too long.
pub fn with_room<T: Send>(text: &str, read: impl Fn() -> T + Send + Sync) -> Result<T, (u32, String)> {
    module::with_room(text, read).map_err(|unreadable| (unreadable.line, unreadable.message))
}

impl Registry {
    /// Reads a registry file and says what is odd about it.
    ///
    /// `path` is relative to the root of `look_up`, which gives the bytes of a file, or nothing where there is
    /// none. What a path ends in decides how it is read: `.ts`, `.tsx`, `.mts`, `.cts`, `.js`, `.jsx`, `.mjs`,
    /// `.cjs` as a barrel, all else as JSON. What a barrel of hostile make does to the parser is not known before:
    /// it is read in processes that may die of it.
    ///
    /// # Errors
    /// When the file itself is missing or no registry. What is wrong with single tools, or with files that a barrel
    /// names, is among the findings.
    pub fn read(path: &str, look_up: &dyn Fn(&str) -> Option<Vec<u8>>) -> Result<(Self, Vec<Finding>), SuiteErrors> {
        let fail = |line: u32, message: String, hint: Option<&str>| {
            let hint = hint.map(str::to_owned);
            SuiteErrors(vec![Finding { file: path.to_owned(), line, case: None, field: None, message, hint }])
        };
        let Some(normal) = normalise("", path) else {
            return Err(fail(0, "the path of a tool registry must not leave the project".to_owned(), None));
        };
        if barrel::is_source(&normal) {
            return barrel::read(&normal, look_up);
        }
        let Some(bytes) = look_up(&normal) else {
            return Err(fail(0, "there is no such tool registry".to_owned(), None));
        };
        if bytes.len() > MAX_JSON_BYTES {
            let message = format!("the tool registry has {} bytes; {MAX_JSON_BYTES} are allowed", bytes.len());
            return Err(fail(0, message, None));
        }
        let Ok(text) = std::str::from_utf8(&bytes) else {
            return Err(fail(0, "the tool registry is not UTF-8 text".to_owned(), None));
        };
        let json = Json::parse(without_mark(text)).map_err(|error| {
            let hint = "a tool registry is JSON, or a TypeScript or JavaScript module";
            fail(error.line, format!("not JSON: column {}: {}", error.column, error.message), Some(hint))
        })?;
        let tools = json.get("result").unwrap_or(&json);
        let Some(tools) = tools.as_array().or_else(|| tools.get("tools").and_then(Json::as_array)) else {
            let hint = "a tool registry is {\"tools\": [{\"name\": …, \"description\": …}]}, or the list alone";
            return Err(fail(json.line, format!("no list of tools, but {}", json.kind()), Some(hint)));
        };
        let mut list = Collector::default();
        for (index, tool) in tools.iter().enumerate() {
            list.add_json(path, index, tool);
        }
        Ok((list.registry, list.findings))
    }

    /// What an agent declares; `None` when it declares no tools, which is not the same as having none.
    ///
    /// On the wire a description that is not given is an empty one, so an empty one counts as not known.
    #[must_use]
    pub fn from_agent(tools: &[ToolSpec]) -> Option<Self> {
        if tools.is_empty() {
            return None;
        }
        let mut list = Collector::default();
        for tool in tools {
            let is_described = !tool.description.is_empty();
            list.add("", 0, tool.clone(), is_described);
        }
        Some(list.registry)
    }

    /// The registry as a JSON file that [`Registry::read`] takes: what a client packs, whatever its own sort of
    /// file is.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut out = String::from("{\"tools\": [");
        for (index, tool) in self.tools.iter().enumerate() {
            out.push_str(if index > 0 { ",\n{" } else { "\n{" });
            let described = !self.undescribed.contains(&tool.name);
            let members = [
                ("name", Some(&tool.name)),
                ("version", Some(&tool.version).filter(|version| !version.is_empty())),
                ("description", Some(&tool.description).filter(|_| described)),
            ];
            for (position, (key, value)) in members.into_iter().enumerate() {
                let Some(value) = value else { continue };
                out.push_str(if position > 0 { ", " } else { "" });
                write_string(key, &mut out);
                out.push_str(": ");
                write_string(value, &mut out);
            }
            if let Some(schema) = &tool.input_schema {
                out.push_str(", \"inputSchema\": ");
                out.push_str(schema.as_str());
            }
            out.push('}');
        }
        out.push_str("\n]}\n");
        out
    }

    /// Whether the file at that path is source text, which is parsed in a process of its own, as it may end the parser.
    #[must_use]
    pub fn is_source(path: &str) -> bool {
        barrel::is_source(path)
    }

    /// The tool of that name.
    #[must_use]
    pub fn tool(&self, name: &str) -> Option<&ToolSpec> {
        self.tools.iter().find(|tool| tool.name == name)
    }
}

/// Gathers tools and what is odd about them.
#[derive(Default)]
struct Collector {
    registry: Registry,
    names: HashSet<String>,
    findings: Vec<Finding>,
}

impl Collector {
    fn warn(&mut self, file: &str, line: u32, field: Option<String>, message: String) {
        self.findings.push(Finding { file: file.to_owned(), line, case: None, field, message, hint: None });
    }

    fn add(&mut self, file: &str, line: u32, tool: ToolSpec, is_described: bool) {
        if self.names.len() >= MAX_TOOLS {
            // Said once: the first that does not fit closes the list for good.
            if self.names.len() == MAX_TOOLS {
                self.warn(file, line, None, format!("more than {MAX_TOOLS} tools; the others are left out"));
                self.names.insert(String::new());
            }
            return;
        }
        if !self.names.insert(tool.name.clone()) {
            let message = format!("a second tool is named {:?}; the first one counts", tool.name);
            self.warn(file, line, None, message);
            return;
        }
        if !is_described {
            self.registry.undescribed.insert(tool.name.clone());
        }
        self.registry.tools.push(tool);
    }

    fn add_json(&mut self, file: &str, index: usize, tool: &Json) {
        // The way function calling APIs list their tools.
        let tool = tool.get("function").filter(|inner| inner.get("name").is_some()).unwrap_or(tool);
        let field = |key: &str| Some(format!("tools[{index}]{key}"));
        let Some(name) = tool.get("name").and_then(Json::as_str).filter(|name| !name.is_empty()) else {
            self.warn(file, tool.line, field(""), "a tool needs a name; this one is left out".to_owned());
            return;
        };
        let mut text = |key: &str| match tool.get(key).map(|value| (value, &value.value)) {
            None | Some((_, Value::Null)) => None,
            Some((_, Value::String(text))) => Some(text.clone()),
            Some((value, _)) => {
                let message = format!("must be a text, not {}; it is left out", value.kind());
                self.warn(file, value.line, field(&format!(".{key}")), message);
                None
            }
        };
        let version = text("version").unwrap_or_default();
        let description = text("description");
        let schema = SCHEMA_KEYS.iter().find_map(|key| tool.get(key));
        let tool_spec = ToolSpec {
            name: name.to_owned(),
            version,
            description: description.clone().unwrap_or_default(),
            input_schema: schema.filter(|schema| is_schema(schema)).map(JsonText::from),
            ..ToolSpec::default()
        };
        self.add(file, tool.line, tool_spec, description.is_some());
    }
}

/// Under what name a schema of the arguments stands.
const SCHEMA_KEYS: &[&str] = &["inputSchema", "input_schema", "schema", "parameters"];

/// Whether this is a JSON Schema of an object, and not some shorthand such as `{"city": {"type": "string"}}`, in which
/// the names of parameters stand where a schema has its own keys.
fn is_schema(json: &Json) -> bool {
    let Value::Object(members) = &json.value else { return false };
    let is_type = |value: &Json| matches!(value.value, Value::String(_) | Value::Array(_));
    members.is_empty()
        || json.get("type").is_some_and(is_type)
        || ["$schema", "$ref"].iter().any(|key| json.get(key).is_some_and(|value| value.as_str().is_some()))
        || ["anyOf", "allOf", "oneOf"].iter().any(|key| json.get(key).is_some_and(|value| value.as_array().is_some()))
}

/// `path` as seen from the folder of the file `from`, without `.` and `..`; `None` when it leaves the root.
fn normalise(from: &str, path: &str) -> Option<String> {
    // A NUL, a backslash or a drive letter means other things to other systems; here it means nothing.
    if path.starts_with('/') || path.contains(['\\', '\0', ':']) {
        return None;
    }
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests;
