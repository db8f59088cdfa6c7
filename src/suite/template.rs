//! Template tokens of the Eval Runner Contract: `{{seed:path}}` and `{{snapshot:path}}` inside a text.
//!
//! A text is split once, when the file is read; tokens are replaced when a case is judged. What came out of a token is
//! never scanned again.

use std::borrow::Cow;

use crate::json::{Json, Value, number_text};
use crate::limits::TEMPLATE_TEXT_BYTES;

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

/// Why the tokens of a text are not replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfilled {
    /// These, as written, lead nowhere.
    Nowhere(Vec<String>),
    /// The text would have more than [`TEMPLATE_TEXT_BYTES`].
    TooLong,
}

/// One token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// As it stands in the file, braces included.
    pub written: String,
    /// What it is looked up in.
    pub source: Source,
    /// Where it is looked up there.
    pub path: String,
}

/// What a token is looked up in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The seed manifest.
    Seed,
    /// The snapshot.
    Snapshot,
}

impl Source {
    /// What stands in front of the colon of a token.
    const fn name(self) -> &'static str {
        match self {
            Self::Seed => "seed",
            Self::Snapshot => "snapshot",
        }
    }
}

const OPENINGS: [(&str, Source); 2] = [("{{seed:", Source::Seed), ("{{snapshot:", Source::Snapshot)];
/// What may stand in front of the colon of a token.
pub(super) const SOURCES: [&str; 2] = ["seed", "snapshot"];

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

    /// The source of the token that a text begins with, closed or not, and where its path starts.
    pub(super) fn opening(text: &str) -> Option<(&'static str, usize)> {
        let (opening, source) = OPENINGS.iter().find(|(opening, _)| text.starts_with(opening))?;
        Some((source.name(), opening.len()))
    }

    /// The text with its tokens replaced.
    ///
    /// # Errors
    /// When a token leads nowhere, which makes the whole text unresolved, or too long a text would come of it.
    pub fn resolve(&self, data: &Data) -> Result<String, Unfilled> {
        let mut text = String::new();
        let mut unresolved = Vec::new();
        for part in &self.parts {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Token(token) => match token.look_up(data) {
                    Some(value) => {
                        let value = match &value.value {
                            Value::String(text) => Cow::Borrowed(text.as_str()),
                            _ => Cow::Owned(value_text(value)),
                        };
                        if text.len() + value.len() > TEMPLATE_TEXT_BYTES {
                            return Err(Unfilled::TooLong);
                        }
                        text.push_str(&value);
                    }
                    None => unresolved.push(token.written.clone()),
                },
            }
        }
        if unresolved.is_empty() { Ok(text) } else { Err(Unfilled::Nowhere(unresolved)) }
    }

    /// Its tokens, repeats included.
    pub fn tokens(&self) -> impl Iterator<Item = &Token> {
        self.parts.iter().filter_map(|part| match part {
            Part::Token(token) => Some(token),
            Part::Text(_) => None,
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
        self.follow(data).ok()
    }

    /// What the token stands for, or why it leads nowhere, for people.
    ///
    /// # Errors
    /// What is missing: the source as a whole, or the first key of the path that is not there.
    pub fn follow<'a>(&self, data: &'a Data) -> Result<&'a Json, String> {
        let (source, what) = match self.source {
            Source::Seed => (data.seed.as_ref().ok_or("no seed manifest was found")?, "the seed manifest"),
            Source::Snapshot => (data.snapshot.as_ref().ok_or("no snapshot is configured")?, "the snapshot"),
        };
        let (mut value, mut start) = (source, 0);
        for segment in self.path.split('.') {
            let next = match indexed(segment) {
                Some((key, index)) => value.get(key).and_then(Json::as_array).and_then(|items| items.get(index)),
                None => value.get(segment),
            };
            value = next.ok_or_else(|| match &self.path[..start] {
                "" => format!("{what} has no {segment:?}"),
                before => format!("{what} has no {segment:?} in {:?}", before.trim_end_matches('.')),
            })?;
            start += segment.len() + 1;
        }
        if matches!(value.value, Value::Null) { Err(format!("{what} has null there")) } else { Ok(value) }
    }
}

/// Why tokens, as written, lead nowhere, for people.
#[must_use]
pub fn why_unresolved(tokens: &[String], data: &Data) -> String {
    /// Most tokens that are named.
    const MOST: usize = 10;
    let mut reasons: Vec<String> = Vec::new();
    for token in tokens.iter().take(MOST) {
        let read = Template::parse(token);
        let why = read.tokens().next().and_then(|token| token.follow(data).err());
        reasons.extend(why.filter(|why| !reasons.contains(why)));
    }
    let named = tokens.iter().take(MOST).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = match tokens.len().saturating_sub(MOST) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let lead = if tokens.len() == 1 { "leads" } else { "lead" };
    format!("{named}{more} {lead} nowhere: {}", reasons.join(", and "))
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
    /// When tokens lead nowhere, or too long a text would come of them, in all texts together.
    pub fn resolve(&self, data: &Data) -> Result<Json, Unfilled> {
        let mut unresolved = Vec::new();
        let mut left = TEMPLATE_TEXT_BYTES;
        let resolved = resolve_in(&self.0, data, &mut unresolved, &mut left)?;
        if unresolved.is_empty() { Ok(resolved) } else { Err(Unfilled::Nowhere(unresolved)) }
    }
}

impl JsonTemplate {
    /// The tokens in its texts, repeats included.
    #[must_use]
    pub fn tokens(&self) -> Vec<Token> {
        let mut tokens = Vec::new();
        let mut open = vec![&self.0];
        while let Some(json) = open.pop() {
            match &json.value {
                Value::String(text) => tokens.extend(Template::parse(text).tokens().cloned()),
                Value::Array(items) => open.extend(items),
                Value::Object(members) => open.extend(members.iter().map(|(_, value)| value)),
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
            }
        }
        tokens
    }
}

fn resolve_in(json: &Json, data: &Data, unresolved: &mut Vec<String>, left: &mut usize) -> Result<Json, Unfilled> {
    let value = match &json.value {
        Value::String(text) => {
            let template = Template::parse(text);
            match template.resolve(data) {
                Ok(text) => {
                    let replaced = if template.tokens().next().is_some() { text.len() } else { 0 };
                    *left = left.checked_sub(replaced).ok_or(Unfilled::TooLong)?;
                    Value::String(text)
                }
                Err(Unfilled::Nowhere(tokens)) => {
                    unresolved.extend(tokens);
                    Value::Null
                }
                Err(Unfilled::TooLong) => return Err(Unfilled::TooLong),
            }
        }
        Value::Array(items) => {
            let items = items.iter().map(|item| resolve_in(item, data, unresolved, left));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        Value::Object(members) => {
            let member = |(key, value): &(String, Json)| Ok((key.clone(), resolve_in(value, data, unresolved, left)?));
            Value::Object(members.iter().map(member).collect::<Result<_, _>>()?)
        }
        other => other.clone(),
    };
    Ok(Json { line: json.line, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not a matter of seconds: looking for each token from the beginning would take hours.
    #[test]
    fn many_tokens_are_each_looked_at_once() {
        let text = "{{seed:a}}".repeat(300_000);
        let unresolved = Template::parse(&text).resolve(&Data::default()).expect_err("there is no seed");
        assert!(matches!(unresolved, Unfilled::Nowhere(tokens) if tokens.len() == 300_000));
    }

    #[test]
    fn tokens_begin_at_their_own_braces() {
        let data = Data { seed: Json::parse(r#"{"a": {"b": [7, null]}}"#).ok(), snapshot: None };
        let resolve = |text: &str| Template::parse(text).resolve(&data);
        assert_eq!(resolve("{{{seed:a.b[0]}}}").as_deref(), Ok("{7}"));
        assert_eq!(resolve("{{seed:a.b}} {{other}}").as_deref(), Ok("[7,null] {{other}}"));
        assert_eq!(
            resolve("x{{seed:a.b[1]}}{{snapshot:q}}"),
            Err(Unfilled::Nowhere(vec!["{{seed:a.b[1]}}".to_owned(), "{{snapshot:q}}".to_owned()]))
        );
        assert_eq!(resolve("{{seed:a.b").as_deref(), Ok("{{seed:a.b"));
    }

    #[test]
    fn what_leads_nowhere_says_where_it_ends() {
        let data = Data { seed: Json::parse(r#"{"a": {"b": [7], "a": null}}"#).ok(), snapshot: None };
        for (tokens, why) in [
            (&["{{seed:pin}}"][..], "{{seed:pin}} leads nowhere: the seed manifest has no \"pin\""),
            (&["{{seed:a.b[1]}}"], "{{seed:a.b[1]}} leads nowhere: the seed manifest has no \"b[1]\" in \"a\""),
            (&["{{seed:a.c.d}}"], "{{seed:a.c.d}} leads nowhere: the seed manifest has no \"c\" in \"a\""),
            (&["{{seed:a.a}}"], "{{seed:a.a}} leads nowhere: the seed manifest has null there"),
            (&["{{snapshot:a}}"], "{{snapshot:a}} leads nowhere: no snapshot is configured"),
            (
                &["{{snapshot:a}}", "{{snapshot:b}}", "{{seed:c}}"],
                "{{snapshot:a}}, {{snapshot:b}}, {{seed:c}} lead nowhere: no snapshot is configured, and the seed manifest has no \"c\"",
            ),
        ] {
            let tokens: Vec<String> = tokens.iter().map(|token| (*token).to_owned()).collect();
            assert_eq!(why_unresolved(&tokens, &data), why);
        }
        let without = why_unresolved(&["{{seed:a}}".to_owned()], &Data::default());
        assert_eq!(without, "{{seed:a}} leads nowhere: no seed manifest was found");
        let many = why_unresolved(&vec!["{{seed:a}}".to_owned(); 12], &Data::default());
        assert!(many.ends_with("{{seed:a}} and 2 more lead nowhere: no seed manifest was found"), "{many}");
    }
}
