//! The `expect` object of a case.
//!
//! Nothing is forgiven here: an unknown key, or a value of the wrong shape, refuses the file, because an assertion that
//! is dropped in silence makes a case green that checked nothing.

use std::fmt;

use super::assertion::{Assertion, Operand, ParamAssertion, ParamCheck};
use super::error::meant_or_all;
use super::pattern::JsPattern;
use super::reader::{Reader, must_be, short};
use super::template::{JsonTemplate, Template, value_text};
use crate::json::{Json, Value};

type Read = fn(&mut Reader<'_>, &Field<'_>) -> Option<Assertion>;

/// A field of `expect`, and what stands beside it.
struct Field<'a> {
    key: &'static str,
    value: &'a Json,
    expect: &'a Json,
}

/// What switches a field off, besides being absent.
#[derive(Clone, Copy)]
enum Off {
    /// Whatever JavaScript takes for false: `0`, `""`, `false`, `null`.
    Falsy,
    /// `null` alone: `0` is a limit.
    Null,
    /// `null` and `false`.
    False,
}

/// The fields in the contract's order, which is the order of evaluation; those of the newer runner come last.
const FIELDS: &[(&str, Off, Read)] = &[
    ("toolsCalled", Off::Falsy, |r, p| r.names(p).map(Assertion::ToolsCalled)),
    ("toolsAcceptable", Off::Falsy, |r, p| r.groups(p, Reader::name).map(Assertion::ToolsAcceptable)),
    ("toolsNotCalled", Off::Falsy, |r, p| r.names(p).map(Assertion::ToolsNotCalled)),
    ("toolParams", Off::Falsy, |r, p| r.tool_params(p)),
    ("noToolErrors", Off::Falsy, |r, p| r.switch(p).then_some(Assertion::NoToolErrors)),
    ("responseNonEmpty", Off::Falsy, |r, p| r.non_empty(p)),
    ("responseContains", Off::Falsy, |r, p| r.templates(p).map(Assertion::ResponseContains)),
    ("responseContainsAny", Off::Falsy, |r, p| r.groups(p, Reader::template).map(Assertion::ResponseContainsAny)),
    ("responseNotContains", Off::Falsy, |r, p| r.templates(p).map(Assertion::ResponseNotContains)),
    ("responseMatches", Off::Falsy, |r, p| r.list(p, Reader::pattern).map(Assertion::ResponseMatches)),
    ("maxLatencyMs", Off::Falsy, |r, p| r.number(p).map(Assertion::MaxLatencyMs)),
    ("maxTokens", Off::Falsy, |r, p| r.number(p).map(Assertion::MaxTokens)),
    ("maxCost", Off::Null, |r, p| r.number(p).map(Assertion::MaxCost)),
    ("minToolCalls", Off::Null, |r, p| r.number(p).map(Assertion::MinToolCalls)),
    ("maxToolCalls", Off::Null, |r, p| r.number(p).map(Assertion::MaxToolCalls)),
    ("jsonValid", Off::False, |r, p| r.switch(p).then_some(Assertion::JsonValid)),
    ("schemaData", Off::Null, |r, p| r.schema_data(p)),
    ("requiredKeys", Off::Null, |r, p| p.without("schemaData", Off::Null).filter(|_| r.names(p).is_some())),
    ("typeChecks", Off::Null, |r, p| p.without("schemaData", Off::Null).filter(|_| r.type_checks(p.value).is_some())),
    ("minLength", Off::Null, |r, p| r.number(p).map(Assertion::MinLength)),
    ("maxLength", Off::Null, |r, p| r.number(p).map(Assertion::MaxLength)),
    ("regexPattern", Off::Null, |r, p| r.pattern(p, p.value).map(Assertion::RegexPattern)),
    ("copOutPhrases", Off::Null, |r, p| p.without("responseNonEmpty", Off::Falsy).filter(|_| r.names(p).is_some())),
];

/// Bad patterns of a file that are told when it is read; their cases fail in any case.
const MAX_BAD_PATTERNS: usize = 10;
const PARAM_KEYS: &[&str] = &["tool", "paramName", "assertion", "value"];
const PARAM_KINDS: &[&str] = &["equals", "contains", "oneOf", "exists", "notExists", "matches"];

/// Reads the assertions of a case, in the order of evaluation.
pub(super) fn read(reader: &mut Reader<'_>, expect: Option<&Json>) -> Vec<Assertion> {
    let Some(expect) = expect.filter(|expect| !is_null(expect)) else { return Vec::new() };
    if !matches!(expect.value, Value::Object(_)) {
        reader.error(expect.line, "expect", format!("must be an object, not {}", expect.kind()), None);
        return Vec::new();
    }
    let known: Vec<&str> = FIELDS.iter().map(|(key, ..)| *key).collect();
    for (key, value) in expect.members() {
        if !known.contains(&key.as_str()) {
            let message = "there is no such assertion".to_owned();
            reader.error(value.line, format!("expect.{key}"), message, meant_or_all(key, &known));
        }
    }
    let on = FIELDS.iter().filter_map(|(key, off, read)| Some((*key, *read, switched_on(expect, key, *off)?)));
    on.filter_map(|(key, read, value)| read(reader, &Field { key, value, expect })).collect()
}

fn is_null(json: &Json) -> bool {
    matches!(json.value, Value::Null)
}

fn switched_on<'a>(expect: &'a Json, key: &str, off: Off) -> Option<&'a Json> {
    expect.get(key).filter(|value| match off {
        Off::Falsy => value.is_truthy(),
        Off::Null => !is_null(value),
        Off::False => !matches!(value.value, Value::Null | Value::Bool(false)),
    })
}

impl Field<'_> {
    /// A field that is part of another one: nothing of its own beside it, and a skip without it.
    fn without(&self, subject: &'static str, off: Off) -> Option<Assertion> {
        let is_alone = switched_on(self.expect, subject, off).is_none();
        is_alone.then_some(Assertion::WithoutSubject { name: self.key, subject })
    }
}

/// Where a field stands. Places are passed on as what shows them, and become text only in a finding: most fields
/// are fine.
impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expect.{}", self.key)
    }
}

impl Reader<'_> {
    fn must_be(&mut self, field: &dyn fmt::Display, value: &Json, wanted: &str) {
        self.error(value.line, field, format!("must be {wanted}, not {}", value.kind()), None);
    }

    fn switch(&mut self, place: &Field<'_>) -> bool {
        let is_switch = matches!(place.value.value, Value::Bool(_));
        if !is_switch {
            self.must_be(place, place.value, "true or false");
        }
        is_switch
    }

    fn number(&mut self, place: &Field<'_>) -> Option<f64> {
        let number = place.value.as_f64().filter(|number| number.is_finite());
        if number.is_none() {
            self.must_be(place, place.value, "a number");
        }
        number
    }

    /// A list whose elements are read by `element`; `None` when it is none, or an element is wrong.
    fn elements<T>(
        &mut self,
        field: &dyn fmt::Display,
        value: &Json,
        wanted: &str,
        element: fn(&mut Self, &dyn fmt::Display, &Json) -> Option<T>,
    ) -> Option<Vec<T>> {
        let Some(items) = value.as_array() else {
            self.must_be(field, value, wanted);
            return None;
        };
        let read: Vec<Option<T>> = items
            .iter()
            .enumerate()
            .map(|(index, item)| element(self, &format_args!("{field}[{index}]"), item))
            .collect();
        read.into_iter().collect()
    }

    fn list<T>(
        &mut self,
        place: &Field<'_>,
        element: fn(&mut Self, &dyn fmt::Display, &Json) -> Option<T>,
    ) -> Option<Vec<T>> {
        self.elements(place, place.value, "a list", element)
    }

    fn names(&mut self, place: &Field<'_>) -> Option<Vec<String>> {
        self.elements(place, place.value, "a list of texts", Self::name)
    }

    fn templates(&mut self, place: &Field<'_>) -> Option<Vec<Template>> {
        self.elements(place, place.value, "a list of texts", Self::template)
    }

    fn groups<T>(
        &mut self,
        place: &Field<'_>,
        element: fn(&mut Self, &dyn fmt::Display, &Json) -> Option<T>,
    ) -> Option<Vec<Vec<T>>> {
        let field = place;
        let Some(items) = place.value.as_array() else {
            self.must_be(&field, place.value, "a list of lists of texts");
            return None;
        };
        let wanted = "a list of texts, as in [[\"a\", \"b\"]]";
        let groups: Vec<Option<Vec<T>>> = items
            .iter()
            .enumerate()
            .map(|(index, group)| self.elements(&format_args!("{field}[{index}]"), group, wanted, element))
            .collect();
        groups.into_iter().collect()
    }

    /// A name; tokens have no meaning in one.
    fn name(&mut self, field: &dyn fmt::Display, value: &Json) -> Option<String> {
        let Some(text) = value.as_str() else {
            self.must_be(field, value, "a text");
            return None;
        };
        Some(text.to_owned())
    }

    /// What the answer is compared with: a text that may hold tokens. Numbers and booleans are taken as their text.
    fn template(&mut self, field: &dyn fmt::Display, value: &Json) -> Option<Template> {
        if !matches!(value.value, Value::String(_) | Value::Number(_) | Value::Bool(_)) {
            self.must_be(field, value, "a text");
            return None;
        }
        Some(Template::parse(&value_text(value)))
    }

    fn pattern(&mut self, field: &dyn fmt::Display, value: &Json) -> Option<JsPattern> {
        let Some(text) = value.as_str() else {
            self.must_be(field, value, "a pattern");
            return None;
        };
        let pattern = JsPattern::new(text);
        self.note_if_invalid(field, value.line, &pattern);
        Some(pattern)
    }

    /// Its case will fail, so the file is not refused for it.
    fn note_if_invalid(&mut self, field: &dyn fmt::Display, line: u32, pattern: &JsPattern) {
        // Finding the place in a bad pattern is work; after a few the author knows.
        if self.broken.len() < MAX_BAD_PATTERNS
            && let Err(error) = pattern.check()
        {
            self.broken_one(line, field, error.to_string());
        }
    }

    fn non_empty(&mut self, place: &Field<'_>) -> Option<Assertion> {
        let cop_outs = match switched_on(place.expect, "copOutPhrases", Off::Null) {
            None => Vec::new(),
            Some(value) => self.elements(&"expect.copOutPhrases", value, "a list of texts", Self::name)?,
        };
        self.switch(place).then_some(Assertion::ResponseNonEmpty { cop_outs })
    }

    fn schema_data(&mut self, place: &Field<'_>) -> Option<Assertion> {
        let is_object = matches!(place.value.value, Value::Object(_));
        if !is_object {
            self.must_be(place, place.value, "an object");
        }
        let required = match switched_on(place.expect, "requiredKeys", Off::Null) {
            None => Some(Vec::new()),
            Some(value) => self.elements(&"expect.requiredKeys", value, "a list of texts", Self::name),
        };
        let types = match switched_on(place.expect, "typeChecks", Off::Null) {
            None => Some(Vec::new()),
            Some(value) => self.type_checks(value),
        };
        let (required, types) = (required?, types?);
        is_object.then(|| Assertion::SchemaData { data: place.value.clone(), required, types })
    }

    fn type_checks(&mut self, value: &Json) -> Option<Vec<(String, String)>> {
        if !matches!(value.value, Value::Object(_)) {
            self.must_be(&"expect.typeChecks", value, "an object of keys and types");
            return None;
        }
        let read: Vec<Option<(String, String)>> = value
            .members()
            .iter()
            .map(|(key, wanted)| Some((key.clone(), self.name(&format!("expect.typeChecks.{key}"), wanted)?)))
            .collect();
        read.into_iter().collect()
    }

    fn tool_params(&mut self, place: &Field<'_>) -> Option<Assertion> {
        self.elements(place, place.value, "a list of objects", Self::tool_param).map(Assertion::ToolParams)
    }

    fn tool_param(&mut self, field: &dyn fmt::Display, entry: &Json) -> Option<ParamAssertion> {
        if !matches!(entry.value, Value::Object(_)) {
            self.must_be(field, entry, "an object");
            return None;
        }
        for (key, value) in entry.members() {
            if !PARAM_KEYS.contains(&key.as_str()) {
                let message = "there is no such key".to_owned();
                self.error(value.line, format_args!("{field}.{key}"), message, meant_or_all(key, PARAM_KEYS));
            }
        }
        let mut text = |key: &str| {
            let value = entry.get(key).filter(|value| !is_null(value));
            match value.map(|value| (value, value.as_str())) {
                Some((_, Some(text))) => Some(text.to_owned()),
                Some((value, None)) => {
                    let message = format!("{} {}", short(value), must_be("a text", value));
                    self.error(value.line, format_args!("{field}.{key}"), message, None);
                    None
                }
                None => {
                    self.error(entry.line, format_args!("{field}.{key}"), "is missing".to_owned(), None);
                    None
                }
            }
        };
        let (tool, param, kind) = (text("tool"), text("paramName"), text("assertion"));
        let kind = kind?;
        let check = self.param_check(field, entry, &kind);
        Some(ParamAssertion { tool: tool?, param: param?, check: check? })
    }

    fn param_check(&mut self, field: &dyn fmt::Display, entry: &Json, kind: &str) -> Option<ParamCheck> {
        let value = entry.get("value").filter(|value| !is_null(value));
        let field = format!("{field}.value");
        match kind {
            "exists" => return Some(ParamCheck::Exists),
            "notExists" => return Some(ParamCheck::NotExists),
            "equals" | "contains" | "oneOf" | "matches" => {}
            _ => {
                let message = format!("{kind:?} is no assertion about a parameter");
                let field = field.replace(".value", ".assertion");
                self.error(entry.line, &field, message, meant_or_all(kind, PARAM_KINDS));
                return None;
            }
        }
        let Some(value) = value else {
            self.error(entry.line, &field, format!("is missing: {kind} compares with it"), None);
            return None;
        };
        match (kind, &value.value) {
            ("equals", _) => Some(ParamCheck::Equals(operand(value))),
            ("oneOf", Value::Array(items)) => Some(ParamCheck::OneOf(items.iter().map(operand).collect())),
            ("oneOf", _) => Some(ParamCheck::OneOfValue(operand(value))),
            (_, Value::Array(_) | Value::Object(_)) => {
                self.must_be(&field, value, "a text");
                None
            }
            (kind, _) => {
                let text = value_text(value);
                let template = Template::parse(&text);
                if kind == "contains" {
                    return Some(ParamCheck::Contains(template));
                }
                if !text.contains("{{") {
                    self.note_if_invalid(&field, value.line, &JsPattern::new(&text));
                }
                Some(ParamCheck::Matches(template))
            }
        }
    }
}

/// What a parameter is compared with.
fn operand(value: &Json) -> Operand {
    match &value.value {
        Value::Array(_) | Value::Object(_) => Operand::Json(JsonTemplate::new(value.clone())),
        // A null among alternatives is the text that JavaScript makes of it.
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Operand::Text(Template::parse(&value_text(value)))
        }
    }
}
