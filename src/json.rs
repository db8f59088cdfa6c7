//! JSON that keeps its text.
//!
//! Eval files and tool parameters are JSON whose exact spelling matters: `9007199254740993` must not become
//! `9007199254740992`, key order is part of a value's text, a key written twice is a mistake worth telling, and an
//! absent value is not `null`. So this module has its own small tree: numbers are kept as written, objects keep their
//! order, and every node knows the line it started on, for error messages.
//!
//! It also holds the text rules of the Eval Runner Contract, which speaks JavaScript: [`Json::stringify`] is
//! `JSON.stringify` and [`number_text`] is `String(number)`, both with one exception: an integer written without
//! fraction or exponent keeps all its digits.

pub mod blocks;
mod parser;

use std::collections::HashMap;
use std::fmt::{self, Write as _};

use crate::limits::{FILE_VALUES, VALUES};
use parser::Parser;

/// Arrays and objects nested deeper than this are refused: the parser recurses, and its input is hostile.
pub const MAX_DEPTH: usize = 128;

/// The text of a file without the byte order mark that editors of some systems write at its beginning.
#[must_use]
pub fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// A JSON value with the line it started on.
///
/// Equality ignores lines and object order and compares numbers by their mathematical value.
#[derive(Debug, Clone)]
pub struct Json {
    /// Line of the first character, counted from 1.
    pub line: u32,
    /// The value itself.
    pub value: Value,
}

/// What a [`Json`] node is.
#[derive(Debug, Clone)]
pub enum Value {
    /// `null`, which is not the same as an absent value.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as written.
    Number(String),
    /// A string, unescaped.
    String(String),
    /// An array.
    Array(Vec<Json>),
    /// An object in the order of the text; keys are unique.
    Object(Vec<(String, Json)>),
}

/// Why a text is not JSON, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ParseError {
    /// Line of the offending character, counted from 1.
    pub line: u32,
    /// Column of the offending character in characters, counted from 1.
    pub column: u32,
    /// What is wrong there.
    pub message: String,
}

/// Where a value stands in its text, in bytes, for those who need the very spelling of it.
///
/// A tree of the same shape as the [`Json`] it belongs to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spans {
    /// First byte of the value.
    pub start: usize,
    /// First byte after it.
    pub end: usize,
    /// The spans of the members' values or of the items, in order.
    pub inner: Vec<Self>,
}

impl Json {
    /// Parses a text that is one JSON value with nothing but white space around it (RFC 8259).
    ///
    /// # Errors
    /// When the text is not JSON, writes a key twice in one object, nests deeper than [`MAX_DEPTH`], or holds more than
    /// [`VALUES`] values.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Parser::new(text, VALUES).document()
    }

    /// Like [`Json::parse`] for a file with very many values, such as a result of all cases.
    ///
    /// # Errors
    /// As [`Json::parse`], but only when it holds more than [`FILE_VALUES`] values.
    pub fn parse_file(text: &str) -> Result<Self, ParseError> {
        Parser::new(text, FILE_VALUES).document()
    }

    /// Like [`Json::parse`] for a text that begins on line `line` of something larger.
    ///
    /// # Errors
    /// As [`Json::parse`].
    pub fn parse_from_line(text: &str, line: u32) -> Result<Self, ParseError> {
        Parser { line, ..Parser::new(text, VALUES) }.document()
    }

    /// Parses the value that a text begins with, whatever stands behind it, and says how many bytes it has, white
    /// space before it included.
    ///
    /// # Errors
    /// As [`Json::parse`].
    pub fn parse_beginning(text: &str) -> Result<(Self, usize), ParseError> {
        let mut parser = Parser::new(text, VALUES);
        parser.skip_space();
        let value = parser.value(0)?;
        Ok((value, parser.pos))
    }

    /// Checks a text as [`Json::parse`] would, and makes nothing of it. So a hostile text can be looked at before it
    /// takes fifty times its size.
    ///
    /// # Errors
    /// As [`Json::parse`].
    pub fn check(text: &str) -> Result<(), ParseError> {
        Parser { is_check: true, ..Parser::new(text, VALUES) }.document().map(|_| ())
    }

    /// Says whether a text is JSON, however many values it holds: nothing is made of it.
    ///
    /// # Errors
    /// When it is not.
    pub fn validate(text: &str) -> Result<(), ParseError> {
        Parser { is_check: true, ..Parser::new(text, usize::MAX) }.document().map(|_| ())
    }

    /// Like [`Json::parse`], and says where each value stands.
    ///
    /// # Errors
    /// As [`Json::parse`].
    pub fn parse_with_spans(text: &str) -> Result<(Self, Spans), ParseError> {
        let mut parser = Parser { spans: Some(Vec::new()), ..Parser::new(text, VALUES) };
        let json = parser.document()?;
        Ok((json, parser.spans.and_then(|mut spans| spans.pop()).unwrap_or_default()))
    }

    /// The member `key` of an object; `None` when it is absent or this is no object.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.members().iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The members of an object in order; empty for everything else.
    #[must_use]
    pub fn members(&self) -> &[(String, Self)] {
        match &self.value {
            Value::Object(members) => members,
            _ => &[],
        }
    }

    /// The text of a string node.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The elements of an array node.
    #[must_use]
    pub fn as_array(&self) -> Option<&[Self]> {
        match &self.value {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    /// A number node as the nearest double.
    #[must_use]
    pub fn as_f64(&self) -> Option<f64> {
        match &self.value {
            Value::Number(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// Whether JavaScript takes the value for true: everything but `null`, `false`, `0`, `-0` and `""`.
    #[must_use]
    pub fn is_truthy(&self) -> bool {
        match &self.value {
            Value::Null => false,
            Value::Bool(value) => *value,
            Value::Number(_) => self.as_f64().is_some_and(|number| number != 0.0),
            Value::String(text) => !text.is_empty(),
            Value::Array(_) | Value::Object(_) => true,
        }
    }

    /// What the value is, in words for error messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a text",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        }
    }

    /// How many values it holds, itself included.
    #[must_use]
    pub fn values(&self) -> usize {
        1 + match &self.value {
            Value::Array(items) => items.iter().map(Self::values).sum(),
            Value::Object(members) => members.iter().map(|(_, value)| value.values()).sum::<usize>(),
            _ => 0,
        }
    }

    /// About the length of its text, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        let inner: usize = match &self.value {
            Value::Null | Value::Bool(_) => 0,
            Value::Number(text) | Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(Self::size).sum(),
            Value::Object(members) => members.iter().map(|(key, value)| key.len() + value.size()).sum(),
        };
        inner + 4
    }

    /// Compact JSON text as `JSON.stringify` writes it; integers keep all their digits.
    #[must_use]
    pub fn stringify(&self) -> String {
        let mut out = String::new();
        self.write_to(&mut out);
        out
    }

    fn write_to(&self, out: &mut String) {
        match &self.value {
            Value::Null => out.push_str("null"),
            Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Value::Number(text) => {
                let number = number_text(text);
                // JSON has no word for what overflows a double; JavaScript writes null there.
                out.push_str(if number.ends_with("Infinity") { "null" } else { &number });
            }
            Value::String(text) => write_string(text, out),
            Value::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write_to(out);
                }
                out.push(']');
            }
            Value::Object(members) => {
                out.push('{');
                for (index, (key, value)) in members.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    write_string(key, out);
                    out.push(':');
                    value.write_to(out);
                }
                out.push('}');
            }
        }
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        match (&self.value, &other.value) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::Number(a), Value::Number(b)) => Decimal::parse(a) == Decimal::parse(b),
            (Value::String(a), Value::String(b)) => a == b,
            (Value::Array(a), Value::Array(b)) => a == b,
            (Value::Object(a), Value::Object(b)) => a.len() == b.len() && have_same(a, b),
            _ => false,
        }
    }
}

impl Eq for Json {}

/// Whether two objects of the same size have the same members, in whatever order. Keys stand once in each.
fn have_same(one: &[(String, Json)], other: &[(String, Json)]) -> bool {
    // Most often the order is the same, too.
    let is_there = |(place, (key, value)): (usize, &(String, Json))| other[place].0 == *key && other[place].1 == *value;
    if one.iter().enumerate().all(is_there) {
        return true;
    }
    let by_key: HashMap<&str, &Json> = other.iter().map(|(key, value)| (key.as_str(), value)).collect();
    one.iter().all(|(key, value)| by_key.get(key.as_str()).is_some_and(|other| *other == value))
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.stringify())
    }
}

/// The text of a JSON number as JavaScript's `String` writes it, but for integers written without fraction or
/// exponent, which keep all their digits (`-0` is `0`).
#[must_use]
pub fn number_text(written: &str) -> String {
    let is_integer = written.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    if written == "-0" {
        return "0".to_owned();
    }
    if is_integer {
        return written.to_owned();
    }
    let number: f64 = written.parse().unwrap_or(f64::NAN);
    ryu_js::Buffer::new().format(number).to_owned()
}

/// Appends `text` as a JSON string, escaped as `JSON.stringify` escapes it.
pub fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// A number as sign, digits without leading or trailing zeros, and the power of ten of the last digit: two texts
/// denote the same number exactly when these are equal.
#[derive(PartialEq, Eq)]
struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    fn parse(text: &str) -> Self {
        let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        // An exponent beyond i64 is a mistake or an attack; such numbers only equal themselves.
        let exponent: i64 = exponent.parse().unwrap_or(i64::MAX / 2);
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut digits = format!("{whole}{fraction}");
        let mut exponent = exponent.saturating_sub_unsigned(fraction.len() as u64);
        while digits.ends_with('0') {
            digits.pop();
            exponent = exponent.saturating_add(1);
        }
        let digits = digits.trim_start_matches('0').to_owned();
        if digits.is_empty() {
            return Self { negative: false, digits, exponent: 0 };
        }
        Self { negative, digits, exponent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Json {
        Json::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn text_survives() {
        for (text, compact) in [
            (" [1, 2.50, -0, 1e21, 9007199254740993]", "[1,2.5,0,1e+21,9007199254740993]"),
            (r#"{"b": null, "a": [true, {}]}"#, r#"{"b":null,"a":[true,{}]}"#),
            (r#""\u0001\ud83d\ude00\/\u007f""#, "\"\\u0001😀/\u{7f}\""),
            ("1e999", "null"),
        ] {
            assert_eq!(parse(text).stringify(), compact, "{text}");
        }
    }

    /// What is checked is what can be read, and the other way round, within bounds.
    #[test]
    fn checking_agrees_with_reading() {
        for text in [
            "[1, {\"a\": [null, true, \"x\"]}, -1.5e3]",
            "{}",
            "",
            "[1,]",
            "[01]",
            "{\"a\": 1, \"a\": 2}",
            "\"\\ud800\"",
            "1 2",
            "[[[]]",
        ] {
            assert_eq!(Json::check(text).err(), Json::parse(text).err(), "{text}");
        }
        let many = |values: usize| format!("[{}1]", "1,".repeat(values - 2));
        assert!(Json::check(&many(VALUES)).is_ok());
        let error = Json::check(&many(VALUES + 1)).expect_err("too many");
        assert_eq!(error.message, "there are more than 1000000 values");
    }

    #[test]
    fn refusals_name_the_place() {
        for (text, message) in [
            ("[1,]", "line 1, column 4: expected a JSON value, found ']'"),
            ("{\n  \"a\": 1,\n  \"a\": 2}", "line 3, column 3: the key \"a\" is written twice in one object"),
            ("[01]", "line 1, column 3: expected ',' or ']', found '1'"),
            ("\"é\tx\"", "line 1, column 3: a control character inside a string must be escaped"),
            (r#""\ud800""#, "line 1, column 2: half of a surrogate pair is no character"),
            (r#""\u12""#, "line 1, column 4: \\u must be followed by four hexadecimal digits"),
            (r#""\u12é4""#, "line 1, column 4: \\u must be followed by four hexadecimal digits"),
            ("", "line 1, column 1: the text ends where a JSON value should stand"),
            ("{} x", "line 1, column 4: unexpected text after the end of the JSON value"),
            ("-", "line 1, column 2: the text ends where a digit should stand"),
        ] {
            assert_eq!(Json::parse(text).unwrap_err().to_string(), message, "{text}");
        }
        let deep = "[".repeat(100_000);
        assert!(Json::parse(&deep).unwrap_err().message.contains("nested deeper"));
    }

    /// Not a matter of seconds: with work for the whole line at each escape and key this would take hours.
    #[test]
    fn long_lines_are_read_once() {
        let text = "\\n".repeat(1_000_000);
        assert_eq!(parse(&format!("\"{text}\"")).as_str().map(str::len), Some(1_000_000));
        let objects = r#"{"a":1},"#.repeat(200_000);
        assert_eq!(parse(&format!("[{objects}{{}}]")).as_array().map(<[_]>::len), Some(200_001));
    }

    #[test]
    fn lines_are_those_of_the_values() {
        let json = parse("{\n\"a\":\n [1,\n2]}");
        let array = json.get("a").and_then(Json::as_array).expect("an array");
        assert_eq!((json.line, json.get("a").map(|a| a.line), array[1].line), (1, Some(3), 4));
    }

    #[test]
    fn spans_are_those_of_the_values() {
        let text = r#" {"a": [1.0, {"b" : -0} ], "c":"é" } "#;
        let (json, spans) = Json::parse_with_spans(text).expect("valid");
        let at = |spans: &Spans| &text[spans.start..spans.end];
        assert_eq!((json, at(&spans)), (parse(text), text.trim()));
        assert_eq!((at(&spans.inner[0]), at(&spans.inner[1])), (r#"[1.0, {"b" : -0} ]"#, r#""é""#));
        assert_eq!(at(&spans.inner[0].inner[1].inner[0]), "-0");
    }

    #[test]
    fn equality_is_mathematical() {
        for (a, b, equal) in [
            ("1", "1.0", true),
            ("10", "1e1", true),
            ("0", "-0.0", true),
            ("9007199254740993", "9007199254740992", false),
            (r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#, true),
            (r#"{"a":null}"#, "{}", false),
            ("[1,2]", "[2,1]", false),
            ("1", "\"1\"", false),
        ] {
            assert_eq!(parse(a) == parse(b), equal, "{a} {b}");
        }
    }

    #[test]
    fn large_objects_find_repeated_keys() {
        let members: Vec<_> = (0..40).map(|n| format!("\"k{n}\":{n}")).collect();
        assert_eq!(parse(&format!("{{{}}}", members.join(","))).members().len(), 40);
        let error = Json::parse(&format!("{{{},\"k3\":0}}", members.join(","))).unwrap_err();
        assert!(error.message.contains("k3"), "{error}");
    }
}
