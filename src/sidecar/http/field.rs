//! Where a value stands in a JSON document: `response`, `data.reply`, `choices[0].message.content`.
//!
//! Documents of endpoints are read through [`RawValue`]: what is found keeps its very bytes, and a large document never
//! becomes a tree of values, which would take many times its size.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use serde::de::{Deserializer as _, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// A path to a value: keys with dots between them, and `[n]` for the items of lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldPath {
    written: String,
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

/// A text that is no path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("write it like response, data.reply or choices[0].message.content")]
pub struct FieldPathError;

impl FieldPath {
    /// The path that is one key.
    #[must_use]
    pub fn key(name: &str) -> Self {
        Self { written: name.to_owned(), steps: vec![Step::Key(name.to_owned())] }
    }

    /// The value in a document that is known to be JSON; `None` when there is none.
    #[must_use]
    pub fn find<'a>(&self, document: &'a RawValue) -> Option<&'a RawValue> {
        self.steps.iter().try_fold(document, |value, step| step.take(value))
    }

    /// Another field of the object that this one stands in; `None`: that is the document itself.
    #[must_use]
    pub(super) fn beside(&self, name: &str) -> Option<Self> {
        let (object, _) = self.written.rsplit_once('.')?;
        format!("{object}.{name}").parse().ok()
    }

    /// The field that stands in its place with the same letters in other spelling, such as `tool_calls` for
    /// `toolCalls`.
    #[must_use]
    pub(super) fn spelt_otherwise(&self, document: &RawValue) -> Option<Self> {
        let plain = |key: &str| key.replace(['_', '-'], "").to_lowercase();
        let (Step::Key(last), parents) = self.steps.split_last()? else { return None };
        let object = parents.iter().try_fold(document, |value, step| step.take(value))?;
        let members: BTreeMap<String, &RawValue> = serde_json::from_str(object.get()).ok()?;
        let key = members.keys().find(|key| *key != last && plain(key) == plain(last))?;
        self.beside(key).or_else(|| key.parse().ok())
    }

    /// Puts a value into a document; false when something else stands in its place.
    #[must_use]
    pub(super) fn insert(&self, document: &mut Document, value: Box<RawValue>) -> bool {
        let mut place = document;
        for step in &self.steps {
            if matches!(place, Document::Nothing) {
                *place = match step {
                    Step::Key(_) => Document::Object(BTreeMap::new()),
                    Step::Index(_) => Document::List(Vec::new()),
                };
            }
            place = match (step, place) {
                (Step::Key(key), Document::Object(members)) => members.entry(key.clone()).or_default(),
                (Step::Index(index), Document::List(items)) if *index <= items.len() => {
                    if *index == items.len() {
                        items.push(Document::Nothing);
                    }
                    &mut items[*index]
                }
                _ => return false,
            };
        }
        let is_free = matches!(place, Document::Nothing);
        if is_free {
            *place = Document::Value(value);
        }
        is_free
    }
}

/// A document that is being put together. What is put into it keeps its very bytes.
#[derive(Debug, Default, Serialize)]
#[serde(untagged)]
pub(super) enum Document {
    /// A place where nothing stands yet.
    #[default]
    Nothing,
    /// An object.
    Object(BTreeMap<String, Self>),
    /// A list.
    List(Vec<Self>),
    /// A value as somebody wrote it.
    Value(Box<RawValue>),
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

impl FromStr for FieldPath {
    type Err = FieldPathError;

    fn from_str(text: &str) -> Result<Self, FieldPathError> {
        let mut steps = Vec::new();
        for (position, segment) in text.split('.').enumerate() {
            let (key, mut indexes) = segment.split_at(segment.find('[').unwrap_or(segment.len()));
            // Only a document that is a list itself has an item of no key.
            if key.is_empty() && (position > 0 || indexes.is_empty()) {
                return Err(FieldPathError);
            }
            if !key.is_empty() {
                steps.push(Step::Key(key.to_owned()));
            }
            while !indexes.is_empty() {
                let (index, rest) =
                    indexes.strip_prefix('[').and_then(|rest| rest.split_once(']')).ok_or(FieldPathError)?;
                steps.push(Step::Index(index.parse().map_err(|_| FieldPathError)?));
                indexes = rest;
            }
        }
        Ok(Self { written: text.to_owned(), steps })
    }
}

impl Step {
    fn take<'a>(&self, value: &'a RawValue) -> Option<&'a RawValue> {
        let mut json = serde_json::Deserializer::from_str(value.get());
        let found = match self {
            Self::Key(_) => json.deserialize_map(self),
            Self::Index(_) => json.deserialize_seq(self),
        };
        // What is no object has no members, and what is no list no items.
        found.ok().flatten()
    }
}

impl<'de> Visitor<'de> for &Step {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or a list")
    }

    /// Of a key that is written twice the last one counts, as in JavaScript.
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let Step::Key(wanted) = self else { return Err(A::Error::custom("not a list")) };
        let mut found = None;
        while let Some(key) = members.next_key::<String>()? {
            if key == *wanted {
                found = Some(members.next_value()?);
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let Step::Index(wanted) = self else { return Err(A::Error::custom("not an object")) };
        let mut found = None;
        let mut index = 0;
        // To the end, because a list that is left half read is an error.
        loop {
            if index == *wanted {
                found = items.next_element()?;
                if found.is_none() {
                    return Ok(None);
                }
            } else if items.next_element::<IgnoredAny>()?.is_none() {
                return Ok(found);
            }
            index += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> FieldPath {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn values_are_found_with_their_bytes() {
        let document = r#" {"a": {"b": [1, {"c" : 9007199254740993}]}, "x.y": 1, "d": null, "e": 1, "e": 2} "#;
        let document: &RawValue = serde_json::from_str(document).expect("JSON");
        for (text, found) in [
            ("a.b[1]", Some(r#"{"c" : 9007199254740993}"#)),
            ("a.b[1].c", Some("9007199254740993")),
            ("a.b[0]", Some("1")),
            ("a.b[2]", None),
            ("a.b[0].c", None),
            ("a[0]", None),
            ("d", Some("null")),
            ("d.x", None),
            ("e", Some("2")),
            ("missing", None),
        ] {
            assert_eq!(path(text).find(document).map(RawValue::get), found, "{text}");
        }
        let list: &RawValue = serde_json::from_str("[[7], 8]").expect("JSON");
        assert_eq!(path("[0][0]").find(list).map(RawValue::get), Some("7"));
    }

    #[test]
    fn values_are_put_in_place() {
        let value = |text: &str| RawValue::from_string(text.to_owned()).expect("JSON");
        let mut document = Document::default();
        assert!(path("input.messages[0].text").insert(&mut document, value("9007199254740993")));
        assert!(path("input.history").insert(&mut document, value("[1.0 ]")));
        let written = serde_json::to_string(&document).expect("JSON");
        assert_eq!(written, r#"{"input":{"history":[1.0 ],"messages":[{"text":9007199254740993}]}}"#);
        for taken in ["input.messages[0].text", "input.messages[0].text.x", "input[0]", "input.messages[2]"] {
            assert!(!path(taken).insert(&mut document, value("1")), "{taken}");
        }
    }

    #[test]
    fn what_is_no_path() {
        for text in ["", ".", "a.", ".a", "a..b", "a[", "a[x]", "a[0]b", "a.[0]", "a[-1]"] {
            assert_eq!(text.parse::<FieldPath>(), Err(FieldPathError), "{text}");
        }
    }
}
