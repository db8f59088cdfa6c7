//! Arguments of tool calls against the JSON Schema that their tool declares.
//!
//! Schemas are an agent's or a client's text, and validating is the one check whose cost a schema alone can blow
//! up: by references that go round in circles, or that fan out at each step. So a schema is measured before it is
//! compiled, with its references followed, and one that is circular or too large is not used; a warning says so.
//! Nothing outside the schema is ever fetched.
//!
//! Patterns run on an engine of linear time that is stopped at a deadline. Those for names of properties cannot be
//! taken out of the validator and stopped: there, what may be asked is limited by the size of patterns and names.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use jsonschema::{Keyword, PatternOptions, ValidationError, Validator};
use jsonschema_regex::{RepeatedClass, Search};
use parking_lot::Mutex;
use regex_automata::util::syntax;
use regex_syntax::hir::{Capture, Hir, HirKind, Look, Repetition};
use serde_json::Value;

use crate::conversation::{Arguments, MaybeJson, ToolCall};
use crate::suite::automaton::{Automaton, Deadline, Memory, Pool, Refused};
use crate::suite::registry::Registry;
use crate::text::clip;

/// Largest schema that is used, in bytes and, with its references followed, in values.
const MAX_SCHEMA_BYTES: usize = 256 << 10;
const MAX_SCHEMA_VALUES: u64 = 100_000;
/// Most values of all schemas of a run, references followed.
const MAX_ALL_VALUES: u64 = 500_000;
/// Most references that are followed from one to the next.
const MAX_REFERENCES: usize = 64;
/// Most work that one call may ask for: values of the schema times bytes of the arguments.
const MAX_WORK: u64 = 50_000_000;
/// Largest pattern in bytes, compiled, and largest one for names of properties.
const MAX_PATTERN_BYTES: usize = 1 << 20;
const MAX_NAME_PATTERN_BYTES: usize = 64 << 10;
/// What the validator may keep of each pattern for names, in bytes, and what is kept of each other one.
const NAME_SEARCH_BYTES: usize = 256 << 10;
const SEARCH_BYTES: usize = 32 << 10;
/// Most work that patterns for names may ask for in one call: their bytes, compiled, times the bytes of the names.
const MAX_NAME_WORK: u64 = 200_000_000;
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
    weight: Weight,
    /// Whether it holds patterns, whose time is not measured by values.
    has_patterns: bool,
}

/// What a schema asks for.
#[derive(Debug, Clone, Copy, Default)]
struct Weight {
    /// Number of its values, references followed.
    values: u64,
    /// Bytes of its patterns for names of properties, compiled, references followed.
    name_patterns: u64,
}

impl Weight {
    fn add(&mut self, other: Self) {
        self.values = self.values.saturating_add(other.values);
        self.name_patterns = self.name_patterns.saturating_add(other.name_patterns);
    }
}

impl Schemas {
    /// Takes the schemas out of a registry, and says which cannot be used and why. That may take seconds: code that
    /// runs on an async runtime calls it on a blocking thread. All together they have limits, too, which the first ones
    /// use up.
    #[must_use]
    pub fn of(registry: &Registry) -> (Self, Vec<String>) {
        let mut schemas = Self::default();
        let mut warnings = Vec::new();
        let mut room = Room { values: MAX_ALL_VALUES, pool: Arc::default() };
        for tool in &registry.tools {
            let Some(schema) = &tool.input_schema else { continue };
            match Schema::compile(schema.as_str(), &mut room) {
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

    /// What is wrong with the arguments of a call, each in a line that names the tool and the place. The deadline is
    /// that of all calls of a case together.
    ///
    /// # Errors
    /// Why they cannot be checked, which is not the agent's doing.
    pub fn violations(&self, call: &ToolCall, deadline: &Deadline) -> Result<Vec<String>, String> {
        let Some(schema) = self.by_tool.get(&call.name) else { return Ok(Vec::new()) };
        let too_slow = || format!("{:?}: the arguments are not checked: that takes too much CPU time", call.name);
        if deadline.has_passed() {
            return Err(too_slow());
        }
        if schema.work(call) > MAX_WORK {
            return Err(format!("{:?}: the arguments are too large to be checked against the schema", call.name));
        }
        let arguments = match &call.params {
            Arguments::Unknown(why) => return Err(format!("{:?}: the arguments are not known: {why}", call.name)),
            Arguments::Given(MaybeJson::Malformed(text)) if !text.trim().is_empty() => {
                return Ok(vec![format!("{:?}: the arguments are no JSON", call.name)]);
            }
            // A call without arguments is one with none.
            Arguments::None | Arguments::Given(MaybeJson::Malformed(_)) => Value::Object(serde_json::Map::new()),
            Arguments::Given(MaybeJson::Json(text)) => {
                let is_none = matches!(call.params.read(), Ok(None));
                // JSON that only this reader does not take, such as a number beyond a double.
                serde_json::from_str(if is_none { "{}" } else { text.as_str() })
                    .map_err(|error| format!("{:?}: the arguments cannot be checked: {error}", call.name))?
            }
        };
        let name_patterns = schema.weight.name_patterns;
        if name_patterns > 0 && name_patterns.saturating_mul(bytes_of_names(&arguments)) > MAX_NAME_WORK {
            return Err(format!("{:?}: the arguments have too many names to be checked against the schema", call.name));
        }
        let violations = watched(*deadline, || {
            let errors = schema.validator.iter_errors(&arguments).take(MAX_VIOLATIONS);
            errors.map(|error| describe(&call.name, &error)).collect()
        });
        violations.ok_or_else(too_slow)
    }
}

impl Schema {
    /// `None` for a schema that anything satisfies.
    fn compile(text: &str, room: &mut Room) -> Result<Option<Self>, String> {
        if text.len() > MAX_SCHEMA_BYTES {
            return Err(format!("it has {} bytes, more than {MAX_SCHEMA_BYTES}", text.len()));
        }
        let schema: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if matches!(&schema, Value::Null | Value::Bool(true))
            || schema.as_object().is_some_and(serde_json::Map::is_empty)
        {
            return Ok(None);
        }
        let weight =
            Measure { root: &schema, open: Vec::new(), known: HashMap::new(), pool: &room.pool }.weight(&schema)?;
        if weight.values > MAX_SCHEMA_VALUES {
            return Err(format!("with its references followed it has more than {MAX_SCHEMA_VALUES} values"));
        }
        room.values = room.values.checked_sub(weight.values).ok_or_else(|| {
            room.values = 0;
            format!("with those before it, the schemas have more than {MAX_ALL_VALUES} values")
        })?;
        let pool = Arc::clone(&room.pool);
        let for_names =
            PatternOptions::regex().size_limit(4 * MAX_NAME_PATTERN_BYTES).dfa_size_limit(NAME_SEARCH_BYTES);
        let options = jsonschema::options().with_pattern_options(for_names).offline();
        let options = options.with_keyword("pattern", move |_, pattern, _| {
            let pattern = pattern.as_str().ok_or_else(|| ValidationError::custom("a pattern must be a text"))?;
            match SchemaPattern::new(pattern, &pool) {
                Ok(pattern) => Ok(Box::new(pattern)),
                Err(why) => Err(ValidationError::custom(why)),
            }
        });
        let validator = options.build(&schema).map_err(|error| clip(&error.to_string(), MAX_TEXT))?;
        let has_patterns = ["\"pattern\"", "\"patternProperties\""].iter().any(|key| text.contains(key));
        Ok(Some(Self { validator, weight, has_patterns }))
    }

    fn work(&self, call: &ToolCall) -> u64 {
        let bytes = match call.params.given() {
            Some(MaybeJson::Json(text)) => text.as_str().len(),
            _ => 0,
        };
        self.weight.values.saturating_mul(bytes as u64)
    }
}

fn describe(tool: &str, error: &ValidationError<'_>) -> String {
    let place = error.instance_path().to_string();
    let place = if place.is_empty() { String::new() } else { format!(" at {}", clip(&place, MAX_TEXT)) };
    format!("{tool:?}{place}: {}", clip(&error.to_string(), MAX_TEXT))
}

/// What is left of the limits on all schemas of a run.
struct Room {
    values: u64,
    pool: SharedPool,
}

/// The validator compiles its keywords wherever it likes.
type SharedPool = Arc<Mutex<Pool>>;

thread_local! {
    /// When the patterns that run on this thread have to stop, if any do.
    static DEADLINE: Cell<Option<Deadline>> = const { Cell::new(None) };
    /// Whether one of them was stopped.
    static STOPPED: Cell<bool> = const { Cell::new(false) };
}

/// Does what runs patterns of schemas; `None`: one of them was stopped. A validator hands nothing to its keywords but
/// the value, and takes nothing from them but yes or no. So when they have to stop, and that one did, goes by way of
/// the thread.
fn watched<T>(deadline: Deadline, job: impl FnOnce() -> T) -> Option<T> {
    DEADLINE.set(Some(deadline));
    STOPPED.set(false);
    let done = job();
    DEADLINE.set(None);
    (!STOPPED.get()).then_some(done)
}

/// A `pattern` of a schema.
struct SchemaPattern {
    source: String,
    matcher: Matcher,
}

enum Matcher {
    /// A repetition of one class of characters, however often it is repeated.
    Class(Box<RepeatedClass>),
    /// Anything else, with what searches worked out if that is little: lists have many short texts.
    Automaton { automaton: Box<Automaton>, memory: Box<Mutex<Option<Memory>>> },
}

impl SchemaPattern {
    /// Reads what the validator would: a pattern of JavaScript, as far as its translation goes.
    fn new(source: &str, pool: &SharedPool) -> Result<Self, String> {
        let matcher = match read_pattern(source)? {
            Read::Class(class) => Matcher::Class(Box::new(class)),
            Read::Other(hir) => {
                let compiled = pool.lock().compile(&hir, MAX_PATTERN_BYTES, SEARCH_BYTES);
                let automaton = compiled.map_err(|refused| why_refused(source, refused))?;
                Matcher::Automaton { automaton: Box::new(automaton), memory: Box::default() }
            }
        };
        Ok(Self { source: source.to_owned(), matcher })
    }

    /// Behind a match that was stopped, everything fits: what comes of it is not looked at.
    fn fits(&self, text: &str) -> bool {
        let (automaton, memory) = match &self.matcher {
            Matcher::Class(class) => return class.is_match(text),
            Matcher::Automaton { automaton, memory } => (automaton, memory),
        };
        if STOPPED.get() {
            return true;
        }
        let deadline = DEADLINE.get().unwrap_or_else(Deadline::from_now);
        // On another thread it may be in use: then this search works everything out anew.
        let mut kept = memory.try_lock().and_then(|mut memory| memory.take());
        let found = automaton.is_match(&mut kept, text, &deadline);
        if let Some(kept) = kept.filter(|kept| kept.bytes() <= SEARCH_BYTES)
            && let Some(mut memory) = memory.try_lock()
        {
            *memory = Some(kept);
        }
        found.unwrap_or_else(|_| {
            STOPPED.set(true);
            true
        })
    }
}

impl<'i> Keyword<'i> for SchemaPattern {
    fn validate(&self, instance: &'i Value) -> Result<(), ValidationError<'i>> {
        if self.is_valid(instance) {
            return Ok(());
        }
        let shown = Value::String(clip(instance.as_str().unwrap_or_default(), MAX_TEXT));
        Err(ValidationError::custom(format!("{shown} does not match {:?}", clip(&self.source, MAX_TEXT))))
    }

    fn is_valid(&self, instance: &'i Value) -> bool {
        instance.as_str().is_none_or(|text| self.fits(text))
    }
}

/// A pattern that was read.
enum Read {
    Class(RepeatedClass),
    Other(Hir),
}

fn read_pattern(source: &str) -> Result<Read, String> {
    let no_pattern = || format!("{:?} is no pattern, or one that cannot be used", clip(source, MAX_TEXT));
    let translated = jsonschema_regex::to_rust_regex(source).map_err(|()| no_pattern())?;
    let searched = match jsonschema_regex::search_form(source, &translated) {
        Some(Search::RepeatedClass(class)) => return Ok(Read::Class(class)),
        Some(Search::Collapsed(collapsed)) => collapsed.into(),
        None => translated,
    };
    let hir = syntax::parse(&searched).map_err(|_| no_pattern())?;
    Ok(Read::Other(with_ascii_words(hir)))
}

/// The same with the word boundaries of JavaScript, which the translation forgets. Those of Unicode cannot be run in
/// linear time and stopped.
fn with_ascii_words(hir: Hir) -> Hir {
    if !hir.properties().look_set().contains_word() {
        return hir;
    }
    match hir.into_kind() {
        HirKind::Look(Look::WordUnicode) => Hir::look(Look::WordAscii),
        HirKind::Look(Look::WordUnicodeNegate) => Hir::look(Look::WordAsciiNegate),
        HirKind::Look(Look::WordStartUnicode) => Hir::look(Look::WordStartAscii),
        HirKind::Look(Look::WordEndUnicode) => Hir::look(Look::WordEndAscii),
        HirKind::Look(Look::WordStartHalfUnicode) => Hir::look(Look::WordStartHalfAscii),
        HirKind::Look(Look::WordEndHalfUnicode) => Hir::look(Look::WordEndHalfAscii),
        HirKind::Look(other) => Hir::look(other),
        HirKind::Repetition(repetition) => {
            let sub = Box::new(with_ascii_words(*repetition.sub));
            Hir::repetition(Repetition { sub, ..repetition })
        }
        HirKind::Capture(capture) => {
            let sub = Box::new(with_ascii_words(*capture.sub));
            Hir::capture(Capture { sub, ..capture })
        }
        HirKind::Concat(parts) => Hir::concat(parts.into_iter().map(with_ascii_words).collect()),
        HirKind::Alternation(parts) => Hir::alternation(parts.into_iter().map(with_ascii_words).collect()),
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) => Hir::literal(literal.0),
        HirKind::Class(class) => Hir::class(class),
    }
}

fn why_refused(source: &str, refused: Refused) -> String {
    match refused {
        Refused::TooLarge => format!("the pattern {:?} is too large", clip(source, MAX_TEXT)),
        Refused::Full => "those before it use up what patterns may take".to_owned(),
    }
}

fn bytes_of_names(value: &Value) -> u64 {
    match value {
        Value::Array(items) => items.iter().map(bytes_of_names).sum(),
        // An empty name is looked at, too.
        Value::Object(members) => {
            members.iter().map(|(name, value)| name.len() as u64 + 1 + bytes_of_names(value)).sum()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Weighs a schema with its references followed.
struct Measure<'a> {
    root: &'a Value,
    /// References that are being followed.
    open: Vec<&'a str>,
    /// What is known to lie behind a reference.
    known: HashMap<&'a str, Weight>,
    pool: &'a SharedPool,
}

impl<'a> Measure<'a> {
    fn weight(&mut self, value: &'a Value) -> Result<Weight, String> {
        let mut sum = Weight { values: 1, name_patterns: 0 };
        match value {
            Value::Array(items) => {
                for item in items {
                    sum.add(self.weight(item)?);
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
                        _ => self.weight(member)?,
                    };
                    sum.add(behind);
                    if key == "patternProperties" {
                        sum.add(Weight { values: 0, name_patterns: self.name_patterns(member)? });
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        Ok(sum)
    }

    /// The bytes of patterns for names, compiled for once to see how many there are. The pool pays for those that the
    /// validator keeps of each, its searches among it.
    fn name_patterns(&self, patterns: &Value) -> Result<u64, String> {
        let mut sum: u64 = 0;
        for pattern in patterns.as_object().into_iter().flat_map(serde_json::Map::keys) {
            // What is no pattern is left to the validator: this may be a property of that name.
            let Ok(Read::Other(hir)) = read_pattern(pattern) else { continue };
            let compiled = self.pool.lock().compile(&hir, MAX_NAME_PATTERN_BYTES, NAME_SEARCH_BYTES);
            sum += compiled.map_err(|refused| why_refused(pattern, refused))?.bytes() as u64;
        }
        Ok(sum)
    }

    fn behind(&mut self, reference: &'a str) -> Result<Weight, String> {
        if let Some(known) = self.known.get(reference) {
            return Ok(*known);
        }
        // Each step takes stack, and no tool's arguments are described that deep.
        if self.open.len() >= MAX_REFERENCES {
            return Err(format!("its references go deeper than {MAX_REFERENCES} steps"));
        }
        if self.open.contains(&reference) {
            return Err(format!("the reference {:?} leads back to itself", clip(reference, MAX_TEXT)));
        }
        let target = match reference.strip_prefix('#') {
            Some("") => Some(self.root),
            Some(pointer) if pointer.starts_with('/') => self.root.pointer(pointer),
            _ => None,
        };
        let target =
            target.ok_or_else(|| format!("the reference {:?} leads nowhere inside it", clip(reference, MAX_TEXT)))?;
        self.open.push(reference);
        let weight = self.weight(target)?;
        self.open.pop();
        self.known.insert(reference, weight);
        Ok(weight)
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
        let params = params.map_or(Arguments::None, |text| {
            let malformed = |_| MaybeJson::Malformed(text.to_owned());
            Arguments::Given(JsonText::new(text).map_or_else(malformed, MaybeJson::Json))
        });
        ToolCall { call_id: "1".to_owned(), name: "t".to_owned(), params, outcome: None, duration: None, turn: 0 }
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
            let found = schemas.violations(&call(params), &Deadline::from_now()).expect("checked").join("; ");
            assert!(found.starts_with(expected) && found.is_empty() == expected.is_empty(), "{params:?}: {found}");
        }
        assert!(schemas.know_any(&[call(None)]));
        assert!(schemas.is_slow(&[call(None)]), "there is a pattern in it");
        // What the daemon cannot read is not the agent's fault.
        assert!(schemas.violations(&call(Some(r#"{"days": 1e999}"#)), &Deadline::from_now()).is_err());
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

    #[test]
    fn patterns_are_javascripts_wherever_they_stand() {
        for (schema, fits, others) in [
            (r#"{"pattern": "^\\d+$"}"#, r#""12""#, r#""٣""#),
            (r#"{"pattern": "\\bt\\b"}"#, r#""té""#, r#""at""#),
            (r#"{"pattern": "^.{2,4000}$"}"#, r#""ab""#, r#""a""#),
            (r#"{"pattern": "a{1,100000}"}"#, r#""xa""#, r#""b""#),
            (r#"{"pattern": "^(a|b)*$"}"#, "5", r#""c""#),
            (r#"{"items": {"type": "string", "minLength": 1, "pattern": "x|y"}}"#, r#"["x", "ay"]"#, r#"["x", "z"]"#),
            (r#"{"properties": {"a": {"pattern": "^x.y"}}}"#, r#"{"a": "xéy"}"#, r#"{"a": "x\u2028y"}"#),
            (r#"{"properties": {"pattern": {"type": "string"}}}"#, r#"{"pattern": "("}"#, r#"{"pattern": 1}"#),
            (r#"{"additionalProperties": {"pattern": "x|y"}}"#, r#"{"a": "x"}"#, r#"{"a": "z"}"#),
            (r#"{"propertyNames": {"pattern": "x|y"}}"#, r#"{"x": 1}"#, r#"{"z": 1}"#),
            (r#"{"not": {"anyOf": [{"pattern": "x|y"}, {"const": 1}]}}"#, r#""z""#, r#""x""#),
            (
                r#"{"patternProperties": {"^(x|y)": {"pattern": "^[a-f]+$"}}}"#,
                r#"{"x": "a", "z": "z"}"#,
                r#"{"xz": "z"}"#,
            ),
            (r#"{"$schema": "http://json-schema.org/draft-07/schema#", "pattern": "x|y"}"#, r#""x""#, r#""z""#),
        ] {
            let (schemas, warnings) = schemas(schema);
            assert!(warnings.is_empty(), "{schema}: {warnings:?}");
            let violations = |params| schemas.violations(&call(Some(params)), &Deadline::from_now()).unwrap();
            assert_eq!(violations(fits), Vec::<String>::new(), "{schema} on {fits}");
            assert_eq!(violations(others).len(), 1, "{schema} on {others}");
        }
    }

    #[test]
    fn slow_patterns_are_stopped_and_the_arguments_not_checked() {
        let mut random = fastrand::Rng::with_seed(1);
        let text: String = (0..200_000).map(|_| if random.bool() { 'a' } else { 'b' }).collect();
        let before = std::time::Instant::now();
        let not_checked = |schema: &str, params: &str, why: &str| {
            let (schemas, warnings) = schemas(schema);
            assert!(warnings.is_empty(), "{warnings:?}");
            let deadline = Deadline::from_now();
            let found = schemas.violations(&call(Some(params)), &deadline);
            assert!(found.as_ref().is_err_and(|found| found.contains(why)), "{schema}: {found:?}");
            (schemas, deadline)
        };
        let slow = r#""pattern": "^[ab]*a[ab]{900}[^ab]""#;
        let list = format!("[{}\"{text}\"]", format!("\"{text}\",").repeat(20));
        let (schemas, deadline) = not_checked(&format!(r#"{{"items": {{{slow}}}}}"#), &list, "too much CPU time");
        // The time is that of all calls together.
        assert!(schemas.violations(&call(Some(r#"["ab"]"#)), &deadline).is_err());
        let found = schemas.violations(&call(Some(r#"["ab"]"#)), &Deadline::from_now()).unwrap();
        assert!(found[0].starts_with("\"t\" at /0: \"ab\" does not match \"^[ab]*a"), "{found:?}");
        not_checked(&format!(r#"{{"not": {{{slow}}}}}"#), &format!("\"{text}\""), "too much CPU time");
        let names = r#"{"patternProperties": {"a[ab]{900}c": false}, "additionalProperties": false}"#;
        not_checked(names, &format!("{{\"{text}\": 1}}"), "too many names");
        assert!(before.elapsed().as_secs() < 20, "{:?}", before.elapsed());
    }

    #[test]
    fn all_schemas_of_a_run_have_limits_together() {
        let tool = |name: usize, schema: &str| ToolSpec {
            name: name.to_string(),
            input_schema: JsonText::new(schema).ok(),
            ..ToolSpec::default()
        };
        let of = |tools: Vec<ToolSpec>| Schemas::of(&Registry { tools, ..Registry::default() });
        let values = format!(r#"{{"enum": [{}0]}}"#, "1,".repeat(90_000));
        let (schemas, warnings) = of((0..8).map(|n| tool(n, &values)).collect());
        assert_eq!((schemas.by_tool.len(), warnings.len()), (5, 3), "{warnings:?}");
        assert!(warnings[0].ends_with("the schemas have more than 500000 values"), "{warnings:?}");
        let names = |n| format!(r#"{{"patternProperties": {{"{n}|x": {{}}, "{n}|y": {{}}, "^{n}$": {{}}}}}}"#);
        let (schemas, warnings) = of((0..200).map(|n| tool(n, &names(n))).collect());
        assert!((80..90).contains(&schemas.by_tool.len()), "{} {:?}", schemas.by_tool.len(), warnings.first());
        assert!(warnings[0].ends_with("those before it use up what patterns may take"), "{warnings:?}");
    }
}
