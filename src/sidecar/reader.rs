//! What all script readers need: values with their places, and a list of what is wrong with them.
//!
//! Closed forms only: a key that is not known is an error with its line, because a misspelt one that is passed over
//! gives an agent that quietly behaves otherwise than its author meant.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::json::{Json, Spans, Value, without_mark};

/// Everything that is wrong with a script file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ScriptErrors(pub Vec<ScriptError>);

/// One thing that is wrong with a script file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {message}")]
pub struct ScriptError {
    /// The file, as it was named.
    pub file: String,
    /// The line, counted from 1.
    pub line: u32,
    /// What is wrong there.
    pub message: String,
}

impl fmt::Display for ScriptErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            write!(f, "{}{error}", if index == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

/// Parses `text` and hands the root to `take`; whatever was reported on the way wins over what came out.
pub(super) fn read<T>(
    file: &str,
    text: &str,
    take: impl FnOnce(&mut Reader, Node) -> Option<T>,
) -> Result<T, ScriptErrors> {
    let mut reader = Reader { file, errors: Vec::new() };
    let text = without_mark(text);
    let read = match Json::parse_with_spans(text) {
        Ok((json, spans)) => {
            let read = take(&mut reader, Node { json: &json, spans: &spans, text });
            if read.is_none() && reader.errors.is_empty() {
                reader.report::<()>(json.line, "this is no script");
            }
            read
        }
        Err(error) => {
            reader.report::<()>(error.line, format!("column {}: {}", error.column, error.message));
            None
        }
    };
    match read {
        Some(read) if reader.errors.is_empty() => Ok(read),
        _ => Err(ScriptErrors(reader.errors)),
    }
}

/// A value together with the place where it is written.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    pub(super) json: &'a Json,
    spans: &'a Spans,
    text: &'a str,
}

impl<'a> Node<'a> {
    pub(super) fn get(self, key: &str) -> Option<Self> {
        self.members().find(|(name, _)| *name == key).map(|(_, node)| node)
    }

    pub(super) fn members(self) -> impl Iterator<Item = (&'a str, Self)> {
        let Self { json, spans, text } = self;
        json.members()
            .iter()
            .zip(&spans.inner)
            .map(move |((name, json), spans)| (name.as_str(), Self { json, spans, text }))
    }

    pub(super) fn items(self) -> Option<impl Iterator<Item = Self>> {
        let Self { json, spans, text } = self;
        json.as_array().map(|items| items.iter().zip(&spans.inner).map(move |(json, spans)| Self { json, spans, text }))
    }

    /// The value as it is written.
    pub(super) fn written(self) -> Bytes {
        Bytes::copy_from_slice(self.text.get(self.spans.start..self.spans.end).unwrap_or_default().as_bytes())
    }
}

/// Collects what is wrong. Its methods give `None` exactly when they have reported something or an optional key is
/// absent.
pub(super) struct Reader<'a> {
    file: &'a str,
    errors: Vec<ScriptError>,
}

impl Reader<'_> {
    pub(super) fn report<T>(&mut self, line: u32, message: impl Into<String>) -> Option<T> {
        self.errors.push(ScriptError { file: self.file.to_owned(), line, message: message.into() });
        None
    }

    /// Makes sure that `node` is an object with none but these keys.
    pub(super) fn keys(&mut self, node: Node, allowed: &[&str], what: &str) -> Option<()> {
        if !matches!(node.json.value, Value::Object(_)) {
            return self.report(node.json.line, format!("{what} must be an object, not {}", node.json.kind()));
        }
        for (name, value) in node.members() {
            if !allowed.contains(&name) {
                let message = format!("{what} has no key {name:?}; it may have {}", allowed.join(", "));
                self.report::<()>(value.json.line, message);
            }
        }
        Some(())
    }

    pub(super) fn required<'a>(&mut self, node: Node<'a>, key: &str) -> Option<Node<'a>> {
        node.get(key).or_else(|| self.report(node.json.line, format!("the key {key:?} is missing")))
    }

    pub(super) fn items<'a>(&mut self, node: Node<'a>, key: &str) -> Vec<Node<'a>> {
        let Some(list) = self.required(node, key) else { return Vec::new() };
        if let Some(items) = list.items() {
            items.collect()
        } else {
            self.report::<()>(list.json.line, format!("{key:?} must be a list, not {}", list.json.kind()));
            Vec::new()
        }
    }

    /// A text; `None` when the key is absent too.
    pub(super) fn text(&mut self, node: Node, key: &str) -> Option<String> {
        let value = node.get(key)?.json;
        match value.as_str() {
            Some(text) => Some(text.to_owned()),
            None => self.report(value.line, format!("{key:?} must be a text, not {}", value.kind())),
        }
    }

    pub(super) fn flag(&mut self, node: Node, key: &str) -> Option<bool> {
        let value = node.get(key)?.json;
        match value.value {
            Value::Bool(flag) => Some(flag),
            _ => self.report(value.line, format!("{key:?} must be true or false, not {}", value.kind())),
        }
    }

    /// A duration in milliseconds, fractions allowed.
    pub(super) fn millis(&mut self, node: Node, key: &str) -> Option<Duration> {
        let value = node.get(key)?.json;
        let duration = value.as_f64().and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok());
        // Beyond what the protocol can say, and beyond any run.
        match duration.filter(|duration| *duration <= Duration::from_hours(24 * 365)) {
            Some(duration) => Some(duration),
            None => self.report(value.line, format!("{key:?} must be a number of milliseconds, 0 or more")),
        }
    }

    pub(super) fn count(&mut self, node: Node, key: &str) -> Option<usize> {
        let value = self.required(node, key)?.json;
        let count = match &value.value {
            Value::Number(text) => text.parse().ok(),
            _ => None,
        };
        count.or_else(|| self.report(value.line, format!("{key:?} must be a whole number, 0 or more")))
    }

    /// For keys that stand for something that just happens.
    pub(super) fn only_true(&mut self, node: Node, key: &str) -> Option<()> {
        if self.flag(node, key)? {
            return Some(());
        }
        self.report(node.json.line, format!("{key:?} can only be true; leave it out otherwise"))
    }
}
