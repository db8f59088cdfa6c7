//! Paths into JSON as Agent Test Framework V2 writes them: an optional `$`, keys behind dots, and `[n]`.

use crate::json::{Json, Value};

/// A path such as `$.items[1].name`; `$` alone is the whole value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
    /// All elements of a list; only in paths of what is left out.
    Each,
}

impl JsonPath {
    /// Reads a path.
    ///
    /// # Errors
    /// What is wrong with it, for people: there are no wildcards, filters or slices.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::read(text, false)
    }

    /// Reads a path that may name many places: `[*]` stands for all elements of a list.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn parse_many(text: &str) -> Result<Self, String> {
        Self::read(text, true)
    }

    fn read(text: &str, many: bool) -> Result<Self, String> {
        let refuse = |why: &str| format!("{text:?} is no path: {why}; write it like $.items[0].name");
        if text.is_empty() {
            return Err(refuse("it is empty"));
        }
        let mut rest = match text.strip_prefix('$') {
            Some(rest) if rest.is_empty() || rest.starts_with(['.', '[']) => rest.to_owned(),
            // Without the root a path begins with a key or an index.
            _ if text.starts_with('[') => text.to_owned(),
            _ => format!(".{text}"),
        };
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(inside) = rest.strip_prefix('[') {
                let (index, after) = inside.split_once(']').ok_or_else(|| refuse("a bracket is not closed"))?;
                if many && index == "*" {
                    steps.push(Step::Each);
                    rest = after.to_owned();
                    continue;
                }
                let is_number = !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit());
                if !is_number {
                    return Err(refuse("only numbers from 0 on stand in brackets"));
                }
                // An index beyond usize is beyond any list.
                steps.push(Step::Index(index.parse().unwrap_or(usize::MAX)));
                rest = after.to_owned();
            } else if let Some(behind) = rest.strip_prefix('.') {
                let end = behind.find(['.', '[']).unwrap_or(behind.len());
                let (key, after) = behind.split_at(end);
                if key.is_empty() || key == "*" {
                    return Err(refuse("a key must stand behind each dot"));
                }
                steps.push(Step::Key(key.to_owned()));
                rest = after.to_owned();
            } else {
                return Err(refuse("a dot or a bracket must stand behind a bracket"));
            }
        }
        Ok(Self { steps })
    }

    /// What stands there; `None` where there is nothing, which is not `null`.
    #[must_use]
    pub fn get<'a>(&self, json: &'a Json) -> Option<&'a Json> {
        self.steps.iter().try_fold(json, |json, step| match step {
            Step::Key(key) => json.get(key),
            Step::Index(index) => json.as_array()?.get(*index),
            Step::Each => None,
        })
    }

    /// Whether it is the whole value.
    #[must_use]
    pub const fn is_root(&self) -> bool {
        self.steps.is_empty()
    }

    /// Takes away what stands there: a member of an object, or, so that the others keep their places, the value of an
    /// element, which becomes null.
    pub fn remove(&self, json: &mut Json) {
        remove(json, &self.steps);
    }
}

fn remove(json: &mut Json, steps: &[Step]) {
    let Some((step, rest)) = steps.split_first() else {
        json.value = Value::Null;
        return;
    };
    match (step, &mut json.value) {
        (Step::Key(key), Value::Object(members)) if rest.is_empty() => members.retain(|(name, _)| name != key),
        (Step::Key(key), Value::Object(members)) => {
            if let Some((_, value)) = members.iter_mut().find(|(name, _)| name == key) {
                remove(value, rest);
            }
        }
        (Step::Index(index), Value::Array(items)) => {
            if let Some(item) = items.get_mut(*index) {
                remove(item, rest);
            }
        }
        (Step::Each, Value::Array(items)) => items.iter_mut().for_each(|item| remove(item, rest)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_without_a_path() {
        let text = r#"{"a": [{"id": 1, "x": 2}, {"id": 3}, 4], "b": {"id": 5}}"#;
        for (path, left) in [
            ("$.a[*].id", r#"{"a":[{"x":2},{},4],"b":{"id":5}}"#),
            ("a[1]", r#"{"a":[{"id":1,"x":2},null,4],"b":{"id":5}}"#),
            ("$.b", r#"{"a":[{"id":1,"x":2},{"id":3},4]}"#),
            ("$.c[*].d", r#"{"a":[{"id":1,"x":2},{"id":3},4],"b":{"id":5}}"#),
            ("$", "null"),
        ] {
            let mut json = Json::parse(text).expect("JSON");
            JsonPath::parse_many(path).expect(path).remove(&mut json);
            assert_eq!(json.stringify(), left, "{path}");
        }
        assert!(JsonPath::parse_many("$.*").is_err());
    }

    #[test]
    fn what_stands_at_a_path() {
        let json = Json::parse(r#"{"a": {"b": [1, {"c-d": null}]}, "$x": 2, "ü": [[3]]}"#).expect("JSON");
        for (path, found) in [
            ("$", Some(json.stringify().as_str())),
            ("$.a.b[0]", Some("1")),
            ("a.b[1].c-d", Some("null")),
            ("$.a.b[2]", None),
            ("$.a.b.c", None),
            ("$x", Some("2")),
            ("ü[0][0]", Some("3")),
            ("$[0]", None),
            ("a.b[99999999999999999999]", None),
        ] {
            let read = JsonPath::parse(path).expect(path);
            assert_eq!(read.get(&json).map(Json::stringify).as_deref(), found, "{path}");
        }
        for wrong in ["", "$.", "$..a", "a[", "a[-1]", "a[*]", "$.*", "a[0]b", "a.", "['a']"] {
            assert!(JsonPath::parse(wrong).is_err(), "{wrong}");
        }
    }
}
