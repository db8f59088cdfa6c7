//! A file of tools: as the APIs of models are sent them, or as MCP servers list them.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::wire::agent::{Json, ToolSpec, json as form};

/// Most tools that an agent has.
const MOST: usize = 1_000;
const HINT: &str = "write [{\"type\": \"function\", \"function\": {\"name\", \"description\", \"parameters\"}}], or what an MCP server lists: \
    {\"tools\": [{\"name\", \"description\", \"inputSchema\"}]}";

/// The tools of an agent.
#[derive(Debug, Default)]
pub(super) struct Tools {
    tools: Vec<Tool>,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Tool {
    name: String,
    description: String,
    schema: Option<Box<RawValue>>,
}

/// An entry, whichever form it has.
#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "type", default)]
    sort: Option<String>,
    #[serde(default)]
    function: Option<Box<Entry>>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default, alias = "inputSchema", alias = "input_schema")]
    parameters: Option<Box<RawValue>>,
}

/// A tool as chat completions have it.
#[derive(Debug, Serialize)]
pub(super) struct Sent<'a> {
    #[serde(rename = "type")]
    sort: &'static str,
    function: Function<'a>,
}

#[derive(Debug, Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Listed {
    #[serde(default)]
    tools: Option<Box<RawValue>>,
    #[serde(default)]
    result: Option<Box<Listed>>,
}

impl Tools {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it, for people, with its name.
    pub(super) fn parse(file: &str, text: &str) -> Result<Self, String> {
        let bad = |what: String| format!("{file}: {what}\n  hint: {HINT}");
        let read = |error: serde_json::Error| bad(format!("line {}: {error}", error.line()));
        let document: &RawValue = serde_json::from_str(text).map_err(read)?;
        let list = if document.get().starts_with('[') {
            document.to_owned()
        } else {
            let listed: Listed = serde_json::from_str(text).map_err(read)?;
            let tools = listed.tools.or_else(|| listed.result.and_then(|result| result.tools));
            tools.ok_or_else(|| bad("it holds no list of tools".to_owned()))?
        };
        let entries: Vec<Entry> = serde_json::from_str(list.get()).map_err(|error| bad(format!("tools: {error}")))?;
        if entries.len() > MOST {
            return Err(bad(format!("it holds {} tools, and an agent may have {MOST}", entries.len())));
        }
        let mut tools: Vec<Tool> = Vec::new();
        for (number, entry) in (1..).zip(entries) {
            if let Some(sort) = entry.sort.filter(|sort| sort != "function") {
                return Err(bad(format!("tool {number}: type must be \"function\", not {sort:?}")));
            }
            let (name, description, schema) = match entry.function {
                Some(function) => (function.name, function.description, function.parameters),
                None => (entry.name, entry.description, entry.parameters),
            };
            let name =
                name.filter(|name| !name.is_empty()).ok_or_else(|| bad(format!("tool {number}: it has no name")))?;
            if schema.as_ref().is_some_and(|schema| !schema.get().starts_with('{')) {
                return Err(bad(format!("tool {number}, {name}: its schema must be an object")));
            }
            if tools.iter().any(|tool| tool.name == name) {
                return Err(bad(format!("tool {number}: there are two named {name:?}")));
            }
            tools.push(Tool { name, description: description.unwrap_or_default(), schema });
        }
        Ok(Self { tools })
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    pub(super) const fn len(&self) -> usize {
        self.tools.len()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool.name == name)
    }

    /// As chat completions are sent them, each schema as it is written.
    pub(super) fn as_sent(&self) -> Vec<Sent<'_>> {
        let sent = self.tools.iter().map(|Tool { name, description, schema }| Sent {
            sort: "function",
            function: Function { name, description, parameters: schema.as_deref() },
        });
        sent.collect()
    }

    /// As a card has them.
    pub(super) fn specs(&self) -> Vec<ToolSpec> {
        let spec = |tool: &Tool| {
            let schema = tool.schema.as_ref().map(|schema| schema.get().as_bytes().to_vec());
            ToolSpec {
                name: tool.name.clone(),
                description: tool.description.clone(),
                input_schema: schema.map(|schema| Json { form: Some(form::Form::Raw(schema)) }),
                r#type: "function".to_owned(),
                ..ToolSpec::default()
            }
        };
        self.tools.iter().map(spec).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files() {
        for file in [
            r#"[{"type": "function", "function": {"name": "look", "description": "d", "parameters": {"type": "object"}}}]"#,
            r#"[{"type": "function", "name": "look", "description": "d", "parameters": {"type": "object"}}]"#,
            r#"{"tools": [{"name": "look", "description": "d", "inputSchema": {"type": "object"}}]}"#,
            r#"{"jsonrpc": "2.0", "id": 1, "result": {"tools": [{"name": "look", "description": "d", "inputSchema": {"type": "object"}}]}}"#,
        ] {
            let tools = Tools::parse("t.json", file).expect(file);
            let sent = serde_json::to_string(&tools.as_sent()).expect("JSON");
            let function = r#"{"name":"look","description":"d","parameters":{"type": "object"}}"#;
            assert_eq!(sent, format!(r#"[{{"type":"function","function":{function}}}]"#), "{file}");
            assert_eq!(tools.specs()[0].name, "look");
        }
        for (file, why) in [
            ("{", "t.json: line 1: "),
            ("{}", "t.json: it holds no list of tools"),
            ("[1]", "t.json: tools: "),
            (r#"[{"type": "custom", "name": "x"}]"#, "t.json: tool 1: type must be \"function\", not \"custom\""),
            (r#"[{"description": "x"}]"#, "t.json: tool 1: it has no name"),
            (r#"[{"name": "x", "parameters": 1}]"#, "t.json: tool 1, x: its schema must be an object"),
            (r#"[{"name": "x"}, {"name": "x"}]"#, "t.json: tool 2: there are two named \"x\""),
        ] {
            let error = Tools::parse("t.json", file).expect_err(why);
            assert!(error.starts_with(why) && error.contains("hint: write"), "{error}");
        }
    }
}
