//! Where cases come from, as the flag `-i` of Agent Test Framework V2 names it.

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

/// A parameter of a generator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Param {
    /// A whole number.
    Number(i64),
    /// Anything else.
    Text(String),
}

/// Endings of files that hold cases, or are known to hold something else.
const ENDINGS: &[&str] = &[".jsonl", ".json", ".ndjson", ".yaml", ".yml", ".ts", ".js", ".txt", ".csv"];

impl Source {
    /// What a text means, without a look at any disk: something with a slash or a known ending is a file, whatever has no
    /// prefix either is a message.
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

fn read_params(text: &str) -> Vec<(String, Param)> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    let read = pairs.map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = value.parse().map_or_else(|_| Param::Text(value.to_owned()), Param::Number);
        (key.to_owned(), value)
    });
    read.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
