//! Where cases come from, as the flag `-i` of Agent Test Framework V2 names it.

use crate::json::{Json, Value};

/// What a text given with `-i` means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A generator: `agents:ID?count=10`.
    Agent {
        /// Its id.
        id: String,
        /// What stands behind the question mark, in order.
        params: Vec<(String, Param)>,
    },
    /// A script: `scripts:NAME?count=10`.
    Script {
        /// Its name.
        name: String,
        /// What stands behind the question mark, in order.
        params: Vec<(String, Param)>,
    },
    /// The tests of a script: `scripts.expense.setup`.
    Tests(String),
    /// A file, a folder or a glob pattern.
    File(String),
    /// A message to send as it is.
    Message(String),
}

/// A parameter of a generator, decoded: `%20` and `+` are blanks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Param {
    /// A number, as written.
    Number(String),
    /// `true` or `false`.
    Bool(bool),
    /// Anything else.
    Text(String),
}

impl Param {
    /// What a decoded text stands for: JSON's numbers and booleans are what they look like, everything else is text.
    fn read(text: String) -> Self {
        let is_plain = !text.contains(char::is_whitespace);
        match Json::parse(&text).map(|json| json.value) {
            Ok(Value::Number(number)) if is_plain => Self::Number(number),
            Ok(Value::Bool(value)) if is_plain => Self::Bool(value),
            _ => Self::Text(text),
        }
    }
}

impl std::fmt::Display for Param {
    /// As it was given.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(text) | Self::Text(text) => out.write_str(text),
            Self::Bool(value) => write!(out, "{value}"),
        }
    }
}

/// Endings of files that hold cases, or are known to hold something else.
const ENDINGS: &[&str] = &[".jsonl", ".json", ".ndjson", ".yaml", ".yml", ".ts", ".js", ".txt", ".csv"];

impl Source {
    /// What a text means, without a look at any disk: something with a slash or a known ending is a file, whatever
    /// has no prefix either is a message.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        for (prefix, is_agent) in [("agents:", true), ("scripts:", false)] {
            if let Some(rest) = text.strip_prefix(prefix) {
                let (id, params) = rest.split_once('?').unwrap_or((rest, ""));
                let (id, params) = (id.to_owned(), read_params(params));
                return if is_agent { Self::Agent { id, params } } else { Self::Script { name: id, params } };
            }
        }
        if let Some(name) = text.strip_prefix("scripts.").filter(|name| is_name(name) && !is_path(text)) {
            return Self::Tests(name.to_owned());
        }
        if is_path(text) { Self::File(text.to_owned()) } else { Self::Message(text.to_owned()) }
    }
}

fn is_path(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    // A sentence may hold a slash; a path holds no blanks around one.
    let has_slash = text.contains('/') && !text.contains(char::is_whitespace);
    let is_anchored = ["./", "../", "/", "~/"].iter().any(|start| text.starts_with(start));
    has_slash
        || is_anchored
        || (ENDINGS.iter().any(|ending| lower.ends_with(ending)) && !text.contains(char::is_whitespace))
}

/// Whether a text may name a script.
fn is_name(text: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || "_-".contains(c));
    text.split('.').all(is_part)
}

/// Reads what stands behind the question mark as the query of an address. What is no proper percent sequence stays
/// as it is.
fn read_params(text: &str) -> Vec<(String, Param)> {
    form_urlencoded::parse(text.as_bytes())
        .map(|(key, value)| (key.into_owned(), Param::read(value.into_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_typed() {
        let number = |text: &str| Param::Number(text.to_owned());
        let text = |text: &str| Param::Text(text.to_owned());
        let table = [
            ("count=10", vec![("count", number("10"))]),
            (
                "focus=edge%20cases&deep=true&rate=1.5",
                vec![("focus", text("edge cases")), ("deep", Param::Bool(true)), ("rate", number("1.5"))],
            ),
            ("focus=edge+cases", vec![("focus", text("edge cases"))]),
            ("lang=C%2B%2B&q=a%26b%3Dc", vec![("lang", text("C++")), ("q", text("a&b=c"))]),
            ("city=Z%C3%BCrich&a%20b=1", vec![("city", text("Zürich")), ("a b", number("1"))]),
            (
                "n=-3&big=9007199254740993&e=1e3",
                vec![("n", number("-3")), ("big", number("9007199254740993")), ("e", number("1e3"))],
            ),
            (
                "deep=false&yes=True&no=null",
                vec![("deep", Param::Bool(false)), ("yes", text("True")), ("no", text("null"))],
            ),
            (
                "code=007&v=1.&w=.5&x=NaN&y=+5&z=1.2.3",
                vec![
                    ("code", text("007")),
                    ("v", text("1.")),
                    ("w", text(".5")),
                    ("x", text("NaN")),
                    ("y", text(" 5")),
                    ("z", text("1.2.3")),
                ],
            ),
            (
                "share=100%&odd=%zz%4&json={\"a\":1}",
                vec![("share", text("100%")), ("odd", text("%zz%4")), ("json", text("{\"a\":1}"))],
            ),
            ("flag&empty=&&=x", vec![("flag", text("")), ("empty", text("")), ("", text("x"))]),
            ("u=http://x/?a=b", vec![("u", text("http://x/?a=b"))]),
        ];
        for (query, expected) in table {
            let expected: Vec<(String, Param)> =
                expected.into_iter().map(|(key, param)| (key.to_owned(), param)).collect();
            let source = Source::parse(&format!("agents:x?{query}"));
            assert_eq!(source, Source::Agent { id: "x".to_owned(), params: expected }, "{query}");
        }
    }

    #[test]
    fn messages_and_files_are_told_apart() {
        for file in ["./a b.jsonl", "x.jsonl", "evals/faq", "/tmp/x", "X.JSONL", "../t"] {
            assert_eq!(Source::parse(file), Source::File(file.to_owned()));
        }
        for name in ["expense.setup", "a", "a.b-c.d_e"] {
            assert_eq!(Source::parse(&format!("scripts.{name}")), Source::Tests(name.to_owned()));
        }
        assert_eq!(Source::parse("scripts.jsonl"), Source::File("scripts.jsonl".to_owned()));
        for message in [
            "scripts. What are they?",
            "scripts.",
            "Hello",
            "What is 1 / 2?",
            "Tell me about x.json please",
            "is this and/or that",
            "agent:x",
        ] {
            assert_eq!(Source::parse(message), Source::Message(message.to_owned()));
        }
    }
}
