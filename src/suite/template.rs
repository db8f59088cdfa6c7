//! Template tokens of the Eval Runner Contract: `{{seed:path}}` and `{{snapshot:path}}` inside a text.
//!
//! A text is split once, when the file is read; tokens are replaced when a case is judged. What came out of a token is
//! never scanned again.

use crate::json::{Json, Value, number_text};

/// What tokens stand for.
#[derive(Debug, Clone, Default)]
pub struct Data {
    /// The seed manifest; `None` when there is none.
    pub seed: Option<Json>,
    /// The snapshot; `None` when no capture is configured.
    pub snapshot: Option<Json>,
}

/// A text that may hold tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Token(Token),
}

/// One token.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Token {
    /// As it stands in the file, braces included.
    written: String,
    source: Source,
    path: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Seed,
    Snapshot,
}

const OPENINGS: [(&str, Source); 2] = [("{{seed:", Source::Seed), ("{{snapshot:", Source::Snapshot)];

impl Template {
    /// Splits a text. A token runs from its opening to the next `}}`; an opening that nothing closes is plain text.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((start, end, token)) = first_token(rest) {
            if start > 0 {
                parts.push(Part::Text(rest[..start].to_owned()));
            }
            parts.push(Part::Token(token));
            rest = &rest[end..];
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Self { parts }
    }

    /// Whether a text opens a token, closed or not.
    #[must_use]
    pub fn has_opening(text: &str) -> bool {
        first_opening(text).is_some()
    }

    /// Whether a text opens a token that nothing closes, which is most likely a slip.
    #[must_use]
    pub fn is_left_open(text: &str) -> bool {
        let mut rest = text;
        while let Some((_, end, _)) = first_token(rest) {
            rest = &rest[end..];
        }
        first_opening(rest).is_some()
    }

    /// The text with its tokens replaced.
    ///
    /// # Errors
    /// The tokens that lead nowhere, as written: one of them makes the whole text unresolved.
    pub fn resolve(&self, data: &Data) -> Result<String, Vec<String>> {
        let mut text = String::new();
        let mut unresolved = Vec::new();
        for part in &self.parts {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Token(token) => match token.look_up(data) {
                    Some(value) => text.push_str(&value_text(value)),
                    None => unresolved.push(token.written.clone()),
                },
            }
        }
        if unresolved.is_empty() { Ok(text) } else { Err(unresolved) }
    }

    /// The paths of its snapshot tokens, repeats included.
    pub fn snapshot_paths(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Token(Token { source: Source::Snapshot, path, .. }) => Some(path.as_str()),
            Part::Token(_) | Part::Text(_) => None,
        })
    }

    /// The elements of the array that the whole text stands for, if it is exactly one token for an array.
    #[must_use]
    pub fn as_array<'a>(&self, data: &'a Data) -> Option<&'a [Json]> {
        match self.parts.as_slice() {
            [Part::Token(token)] => token.look_up(data)?.as_array(),
            _ => None,
        }
    }
}

/// Where the first token of a text starts and ends, and what it is. Each place is looked at once.
fn first_token(text: &str) -> Option<(usize, usize, Token)> {
    let (start, path_start, source) = first_opening(text)?;
    // Without an end behind this opening there is none behind a later one either.
    let path_end = path_start + text[path_start..].find("}}")?;
    let end = path_end + 2;
    let token = Token { written: text[start..end].to_owned(), source, path: text[path_start..path_end].to_owned() };
    Some((start, end, token))
}

/// The first opening of a token: where it starts, where its path starts, and its source.
fn first_opening(text: &str) -> Option<(usize, usize, Source)> {
    let mut from = 0;
    loop {
        let start = from + text[from..].find("{{")?;
        let opening = OPENINGS.iter().find(|(opening, _)| text[start..].starts_with(opening));
        if let Some((opening, source)) = opening {
            return Some((start, start + opening.len(), *source));
        }
        from = start + 1;
    }
}

impl Token {
    /// What the token stands for; `undefined` and `null` are nothing, `0`, `false` and `""` are something.
    fn look_up<'a>(&self, data: &'a Data) -> Option<&'a Json> {
        let mut value = match self.source {
            Source::Seed => data.seed.as_ref()?,
            Source::Snapshot => data.snapshot.as_ref()?,
        };
        for segment in self.path.split('.') {
            value = match indexed(segment) {
                Some((key, index)) => value.get(key)?.as_array()?.get(index)?,
                None => value.get(segment)?,
            };
        }
        (!matches!(value.value, Value::Null)).then_some(value)
    }
}

/// Splits `key[3]`; everything else is one key, brackets and blanks included.
fn indexed(segment: &str) -> Option<(&str, usize)> {
    let (key, index) = segment.strip_suffix(']')?.split_once('[')?;
    let is_word = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let is_number = !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit());
    // An index beyond usize is beyond any array, and must not fall back to being a key.
    (is_word && is_number).then(|| (key, index.parse().unwrap_or(usize::MAX)))
}

/// What a value is inside a text.
#[must_use]
pub fn value_text(value: &Json) -> String {
    match &value.value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number_text(number),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => value.stringify(),
    }
}

/// A JSON value whose texts may hold tokens; keys hold none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonTemplate(Json);

impl JsonTemplate {
    /// A value as it stands in a file.
    #[must_use]
    pub const fn new(value: Json) -> Self {
        Self(value)
    }

    /// The value with the tokens in its texts replaced by text.
    ///
    /// # Errors
    /// The tokens that lead nowhere, as written.
    pub fn resolve(&self, data: &Data) -> Result<Json, Vec<String>> {
        let mut unresolved = Vec::new();
        let resolved = resolve_in(&self.0, data, &mut unresolved);
        if unresolved.is_empty() { Ok(resolved) } else { Err(unresolved) }
    }
}

impl JsonTemplate {
    /// The paths of the snapshot tokens in its texts, repeats included.
    #[must_use]
    pub fn snapshot_paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        let mut open = vec![&self.0];
        while let Some(json) = open.pop() {
            match &json.value {
                Value::String(text) => paths.extend(Template::parse(text).snapshot_paths().map(str::to_owned)),
                Value::Array(items) => open.extend(items),
                Value::Object(members) => open.extend(members.iter().map(|(_, value)| value)),
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
            }
        }
        paths
    }
}

fn resolve_in(json: &Json, data: &Data, unresolved: &mut Vec<String>) -> Json {
    let value = match &json.value {
        Value::String(text) => match Template::parse(text).resolve(data) {
            Ok(text) => Value::String(text),
            Err(tokens) => {
                unresolved.extend(tokens);
                Value::Null
            }
        },
        Value::Array(items) => Value::Array(items.iter().map(|item| resolve_in(item, data, unresolved)).collect()),
        Value::Object(members) => {
            let members = members.iter().map(|(key, value)| (key.clone(), resolve_in(value, data, unresolved)));
            Value::Object(members.collect())
        }
        other => other.clone(),
    };
    Json { line: json.line, value }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not a matter of seconds: looking for each token from the beginning would take hours.
    #[test]
    fn many_tokens_are_each_looked_at_once() {
        let text = "{{seed:a}}".repeat(300_000);
        let unresolved = Template::parse(&text).resolve(&Data::default()).expect_err("there is no seed");
        assert_eq!(unresolved.len(), 300_000);
        assert!(Template::is_left_open(&"{{seed:a ".repeat(300_000)));
        assert!(!Template::is_left_open(&"{{{{".repeat(300_000)));
    }

    #[test]
    fn tokens_begin_at_their_own_braces() {
        let data = Data { seed: Json::parse(r#"{"a": {"b": [7, null]}}"#).ok(), snapshot: None };
        let resolve = |text: &str| Template::parse(text).resolve(&data);
        assert_eq!(resolve("{{{seed:a.b[0]}}}").as_deref(), Ok("{7}"));
        assert_eq!(resolve("{{seed:a.b}} {{other}}").as_deref(), Ok("[7,null] {{other}}"));
        assert_eq!(
            resolve("x{{seed:a.b[1]}}{{snapshot:q}}"),
            Err(vec!["{{seed:a.b[1]}}".to_owned(), "{{snapshot:q}}".to_owned()])
        );
        assert_eq!(resolve("{{seed:a.b").as_deref(), Ok("{{seed:a.b"));
    }
}
