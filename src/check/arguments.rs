//! Arguments of tool calls against the JSON Schema that their tool declares.
//!
//! Schemas are an agent's or a client's text, and validating is the one check whose cost a schema alone can blow up: by
//! references that go round in circles, or that fan out at each step. So a schema is measured before it is compiled, with
//! its references followed, and one that is circular or too large is not used; a warning says so. Patterns run on an
//! engine of linear time, and nothing outside the schema is ever fetched.

use std::collections::HashMap;

use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

use crate::conversation::{Payload, ToolCall};
use crate::suite::registry::Registry;

/// Largest schema that is used, in bytes and, with its references followed, in values.
const MAX_SCHEMA_BYTES: usize = 256 << 10;
const MAX_SCHEMA_VALUES: u64 = 100_000;
/// Most references that are followed from one to the next.
const MAX_REFERENCES: usize = 64;
/// Most work that one call may ask for: values of the schema times bytes of the arguments.
const MAX_WORK: u64 = 50_000_000;
/// Work that a runtime thread may do.
const QUICK: u64 = 500_000;
/// Most violations that are told of one call, and their longest text in characters.
const MAX_VIOLATIONS: usize = 5;
const MAX_TEXT: usize = 200;
/// Keywords that lead elsewhere in ways that are not measured here.
const UNMEASURED: &[&str] = &["$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor", "$recursiveAnchor"];

/// The schemas of the tools of a run, ready to use.
#[derive(Debug, Default)]
pub struct Schemas {
    by_tool: HashMap<String, Schema>,
}

#[derive(Debug)]
struct Schema {
    validator: Validator,
    /// Number of its values, references followed.
    values: u64,
    /// Whether it holds patterns, whose time is not measured by values.
    has_patterns: bool,
}

impl Schemas {
    /// Takes the schemas out of a registry, and says which cannot be used and why.
    #[must_use]
    pub fn of(registry: &Registry) -> (Self, Vec<String>) {
        let mut schemas = Self::default();
        let mut warnings = Vec::new();
        for tool in &registry.tools {
            let Some(schema) = &tool.input_schema else { continue };
            match Schema::compile(schema.as_str()) {
                Ok(Some(schema)) => drop(schemas.by_tool.insert(tool.name.clone(), schema)),
                Ok(None) => {}
                Err(why) => {
                    warnings.push(format!("the input schema of the tool {:?} is not used: {why}", tool.name));
                }
            }
        }
        (schemas, warnings)
    }

    /// Whether checking these calls takes time that must not be a runtime thread's.
    #[must_use]
    pub fn is_slow(&self, calls: &[ToolCall]) -> bool {
        let schemas = || calls.iter().filter_map(|call| Some((self.by_tool.get(&call.name)?, call)));
        schemas().any(|(schema, _)| schema.has_patterns)
            || schemas().map(|(schema, call)| schema.work(call)).fold(0, u64::saturating_add) > QUICK
    }

    /// Whether any of these calls is one of a tool with a schema.
    #[must_use]
    pub fn know_any(&self, calls: &[ToolCall]) -> bool {
        calls.iter().any(|call| self.by_tool.contains_key(&call.name))
    }

    /// What is wrong with the arguments of a call, each in a line that names the tool and the place.
    ///
    /// # Errors
    /// Why they cannot be checked, which is not the agent's doing.
    pub fn violations(&self, call: &ToolCall) -> Result<Vec<String>, String> {
        let Some(schema) = self.by_tool.get(&call.name) else { return Ok(Vec::new()) };
        if schema.work(call) > MAX_WORK {
            return Err(format!("{:?}: the arguments are too large to be checked against the schema", call.name));
        }
        // A call without arguments is one with none.
        let arguments = match &call.params {
            None => Value::Object(serde_json::Map::new()),
            Some(Payload::Malformed(_)) => return Ok(vec![format!("{:?}: the arguments are no JSON", call.name)]),
            // JSON that only this reader does not take, such as a number beyond a double.
            Some(Payload::Json(text)) => serde_json::from_str(text.as_str())
                .map_err(|error| format!("{:?}: the arguments cannot be checked: {error}", call.name))?,
        };
        let errors = schema.validator.iter_errors(&arguments).take(MAX_VIOLATIONS);
        Ok(errors.map(|error| describe(&call.name, &error)).collect())
    }
}

impl Schema {
    /// `None` for a schema that anything satisfies.
    fn compile(text: &str) -> Result<Option<Self>, String> {
        if text.len() > MAX_SCHEMA_BYTES {
            return Err(format!("it has {} bytes, more than {MAX_SCHEMA_BYTES}", text.len()));
        }
        let schema: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if matches!(&schema, Value::Null | Value::Bool(true))
            || schema.as_object().is_some_and(serde_json::Map::is_empty)
        {
            return Ok(None);
        }
        let values = Measure { root: &schema, open: Vec::new(), known: HashMap::new() }.values(&schema)?;
        if values > MAX_SCHEMA_VALUES {
            return Err(format!("with its references followed it has more than {MAX_SCHEMA_VALUES} values"));
        }
        let options = jsonschema::options().with_pattern_options(PatternOptions::regex().size_limit(1 << 20)).offline();
        let validator = options.build(&schema).map_err(|error| clip(&error.to_string()))?;
        let has_patterns = ["\"pattern\"", "\"patternProperties\""].iter().any(|key| text.contains(key));
        Ok(Some(Self { validator, values, has_patterns }))
    }

    fn work(&self, call: &ToolCall) -> u64 {
        let bytes = match &call.params {
            Some(Payload::Json(text)) => text.as_str().len(),
            _ => 0,
        };
        self.values.saturating_mul(bytes as u64)
    }
}

fn describe(tool: &str, error: &ValidationError<'_>) -> String {
    let place = error.instance_path().to_string();
    let place = if place.is_empty() { String::new() } else { format!(" at {}", clip(&place)) };
    format!("{tool:?}{place}: {}", clip(&error.to_string()))
}

fn clip(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Counts the values of a schema with its references followed.
struct Measure<'a> {
    root: &'a Value,
    /// References that are being followed.
    open: Vec<&'a str>,
    /// What is known to lie behind a reference.
    known: HashMap<&'a str, u64>,
}

impl<'a> Measure<'a> {
    fn values(&mut self, value: &'a Value) -> Result<u64, String> {
        let mut sum: u64 = 1;
        match value {
            Value::Array(items) => {
                for item in items {
                    sum = sum.saturating_add(self.values(item)?);
                }
            }
            Value::Object(members) => {
                for (key, member) in members {
                    let behind = match (key.as_str(), member) {
                        ("$ref", Value::String(reference)) => self.behind(reference)?,
                        // An id of its own changes what the references below it mean.
                        ("$id", Value::String(_)) if !std::ptr::eq(value, self.root) => {
                            return Err("it has a $id inside, which is not followed".to_owned());
                        }
                        (key, Value::String(_)) if UNMEASURED.contains(&key) => {
                            return Err(format!("it uses {key}, which is not followed"));
                        }
                        _ => self.values(member)?,
                    };
                    sum = sum.saturating_add(behind);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        Ok(sum)
    }

    fn behind(&mut self, reference: &'a str) -> Result<u64, String> {
        if let Some(known) = self.known.get(reference) {
            return Ok(*known);
        }
        // Each step takes stack, and no tool's arguments are described that deep.
        if self.open.len() >= MAX_REFERENCES {
            return Err(format!("its references go deeper than {MAX_REFERENCES} steps"));
        }
        if self.open.contains(&reference) {
            return Err(format!("the reference {:?} leads back to itself", clip(reference)));
        }
        let target = match reference.strip_prefix('#') {
            Some("") => Some(self.root),
            Some(pointer) if pointer.starts_with('/') => self.root.pointer(pointer),
            _ => None,
        };
        let target = target.ok_or_else(|| format!("the reference {:?} leads nowhere inside it", clip(reference)))?;
        self.open.push(reference);
        let values = self.values(target)?;
        self.open.pop();
        self.known.insert(reference, values);
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{JsonText, ToolSpec};

    fn schemas(schema: &str) -> (Schemas, Vec<String>) {
        let tool = ToolSpec { name: "t".to_owned(), input_schema: JsonText::new(schema).ok(), ..ToolSpec::default() };
        Schemas::of(&Registry { tools: vec![tool], ..Registry::default() })
    }

    fn call(params: Option<&str>) -> ToolCall {
        let params = params.map(|text| match JsonText::new(text) {
            Ok(text) => Payload::Json(text),
            Err(_) => Payload::Malformed(text.to_owned()),
        });
        ToolCall { call_id: "1".to_owned(), name: "t".to_owned(), params, outcome: None, duration: None }
    }

    #[test]
    fn violations_name_tool_and_place() {
        let (schemas, warnings) = schemas(
            r##"{"type": "object", "required": ["city"], "additionalProperties": false,
                "properties": {"city": {"$ref": "#/$defs/name"}, "days": {"type": "integer", "maximum": 7}},
                "$defs": {"name": {"type": "string", "pattern": "^[A-Z]"}}}"##,
        );
        assert!(warnings.is_empty(), "{warnings:?}");
        for (params, expected) in [
            (Some(r#"{"city": "Paris", "days": 3}"#), ""),
            (Some(r#"{"city": "paris", "days": 9007199254740993}"#), "\"t\" at /city: \"paris\" does not match"),
            (Some(r#"{"city": "Paris", "town": 1}"#), "\"t\": Additional properties are not allowed"),
            (None, "\"t\": \"city\" is a required property"),
            (Some("{"), "\"t\": the arguments are no JSON"),
        ] {
            let found = schemas.violations(&call(params)).expect("checked").join("; ");
            assert!(found.starts_with(expected) && found.is_empty() == expected.is_empty(), "{params:?}: {found}");
        }
        assert!(schemas.know_any(&[call(None)]));
        assert!(schemas.is_slow(&[call(None)]), "there is a pattern in it");
        // What the daemon cannot read is not the agent's fault.
        assert!(schemas.violations(&call(Some(r#"{"days": 1e999}"#))).is_err());
        let (schemas, _) = self::schemas(r#"{"items": {"type": "integer", "minimum": 0, "maximum": 9}}"#);
        assert!(!schemas.is_slow(&[call(None)]));
        let large = format!("[{}]", "1,".repeat(100_000) + "1");
        assert!(schemas.is_slow(&[call(Some(&large))]));
    }

    #[test]
    fn schemas_of_hostile_make_are_not_used() {
        // 2 to the power of 40 ways through it.
        let step = |n: u32| {
            let next = n + 1;
            format!(r##""d{n}": {{"anyOf": [{{"$ref": "#/$defs/d{next}"}}, {{"$ref": "#/$defs/d{next}"}}]}}"##)
        };
        let fan = (0..40).map(step).collect::<Vec<_>>().join(",");
        let fan = format!(r##"{{"$ref": "#/$defs/d0", "$defs": {{{fan}, "d40": {{"const": 1}}}}}}"##);
        let hop = |n: u32| format!(r##""d{n}": {{"$ref": "#/$defs/d{}"}}"##, n + 1);
        let deep = (0..5_000).map(hop).collect::<Vec<_>>().join(",");
        let deep = format!(r##"{{"$ref": "#/$defs/d0", "$defs": {{{deep}, "d5000": true}}}}"##);
        for (schema, why) in [
            (deep.as_str(), "go deeper than 64"),
            (r##"{"$ref": "#"}"##, "leads back to itself"),
            (r##"{"properties": {"child": {"$ref": "#"}}}"##, "leads back to itself"),
            (r##"{"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}"##, "leads back to itself"),
            (r#"{"$ref": "https://example.com/schema.json"}"#, "leads nowhere inside it"),
            (r##"{"$dynamicRef": "#x"}"##, "uses $dynamicRef"),
            (&fan, "more than 100000 values"),
            (r#"{"type": "strnig"}"#, "not used"),
            (r#"{"pattern": "(?=x)"}"#, "not used"),
            ("[1]", "not used"),
        ] {
            let (schemas, warnings) = schemas(schema);
            assert!(warnings.iter().any(|warning| warning.contains(why)), "{why}: {warnings:?}");
            assert!(!schemas.know_any(&[call(None)]));
        }
        assert!(schemas("{}").1.is_empty() && schemas("true").1.is_empty());
    }
}
