//! Text that looks like a template token and means nothing: `{{ seed:pin }}`, `{{seeds:pin}}`, and `{{seed:pin}}` where
//! there are no tokens.
//!
//! It is compared, or sent, as it stands, so an assertion about it holds of everything or of nothing. That is told
//! when the file is read; a strict run refuses what can hardly have been meant.

use std::fmt::Write as _;

use super::error::nearest;
use super::reader::Reader;
use super::template::{SOURCES, Template};
use crate::json::{Json, Value};

/// Most remarks about one text.
const MAX_OF_TEXT: usize = 5;
/// Longest piece of a text that is quoted, in characters.
const MAX_QUOTED: usize = 100;
/// Hints: how a token is written, where the contract knows tokens, and what to do where there are none.
const TOKENS: &str = "template tokens are {{seed:PATH}} and {{snapshot:PATH}}";
const PLACES: &str = "they stand in responseContains, responseContainsAny, responseNotContains and toolParams[].value";
const NO_TOKENS: &str = "write the value itself; tokens are for .json files of the Eval Runner Contract";
/// Labels of a case: nothing is compared with them, and nobody is told them.
const LABELS: &[&str] = &["id", "name", "description", "difficulty", "createdAt", "bugRef", "tags"];

/// What a token means where a text stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Here {
    /// It is replaced.
    Token,
    /// Nothing, in a file that has tokens elsewhere.
    Text,
    /// Nothing: the whole file has none.
    NoTokens,
}

/// A piece of a text.
#[derive(Debug, PartialEq, Eq)]
struct Stray {
    /// As it stands there.
    written: String,
    kind: Kind,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// A token as it should be.
    Token,
    /// A token whose path has blanks around a key; the token without them.
    Blanks(String),
    /// A token that takes in what was meant as the next: its path holds braces.
    Swallows,
    /// An opening that nothing closes.
    LeftOpen,
    /// Nearly a token; the token that was most likely meant.
    Nearly(String),
    /// A placeholder of another sort.
    Other,
}

impl Reader<'_> {
    /// Remarks on the texts of a case of the Eval Runner Contract.
    pub(super) fn stray_tokens(&mut self, case: &Json) {
        for key in ["input", "expect", "stubs"] {
            let Some(value) = case.get(key) else { continue };
            let place = |path: &str| match path.strip_prefix("expect.") {
                Some(field) if holds_tokens(field) => Here::Token,
                _ => Here::Text,
            };
            self.walk(&mut key.to_owned(), value, &place);
        }
    }

    /// Remarks on the texts of a case of Agent Test Framework V2, which has no tokens.
    pub(super) fn tokens_in_framework(&mut self, case: &Json) {
        for (key, value) in case.members().iter().filter(|(key, _)| !LABELS.contains(&key.as_str())) {
            self.walk(&mut key.clone(), value, &|_| Here::NoTokens);
        }
    }

    fn walk(&mut self, path: &mut String, json: &Json, here: &dyn Fn(&str) -> Here) {
        let len = path.len();
        match &json.value {
            Value::String(text) => self.remark(path, json.line, text, here(path)),
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    let _ = write!(path, "[{index}]");
                    self.walk(path, item, here);
                    path.truncate(len);
                }
            }
            Value::Object(members) => {
                for (key, value) in members {
                    path.push('.');
                    path.push_str(key);
                    // Keys are never replaced.
                    let of_key = if here(path) == Here::NoTokens { Here::NoTokens } else { Here::Text };
                    self.remark(path, value.line, key, of_key);
                    self.walk(path, value, here);
                    path.truncate(len);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn remark(&mut self, field: &str, line: u32, text: &str, here: Here) {
        if !text.contains('{') {
            return;
        }
        for stray in strays(text, here) {
            let Remark { message, hint, is_doubtful } = stray.remark(here);
            if is_doubtful {
                self.doubt(line, field, message, Some(hint));
            } else {
                self.warn(line, field, &message, Some(hint));
            }
        }
    }
}

/// What is told of a piece of text.
struct Remark {
    message: String,
    hint: String,
    /// Whether it can hardly have been meant.
    is_doubtful: bool,
}

impl Stray {
    fn remark(&self, here: Here) -> Remark {
        let written = quoted(&self.written);
        let (message, hint) = match (&self.kind, here) {
            (Kind::Other, _) => ("is taken as plain text", TOKENS.to_owned()),
            (Kind::Nearly(_), Here::NoTokens) => (
                "looks like a template token, and Agent Test Framework V2 has none; it is taken as plain text",
                NO_TOKENS.to_owned(),
            ),
            (_, Here::NoTokens) => {
                ("is taken as plain text: Agent Test Framework V2 has no template tokens", NO_TOKENS.to_owned())
            }
            (Kind::Nearly(_), Here::Text) => {
                ("looks like a template token, and those have no meaning here", PLACES.to_owned())
            }
            (_, Here::Text) => ("is taken as plain text: template tokens have no meaning here", PLACES.to_owned()),
            (Kind::Nearly(meant), Here::Token) => (
                "looks like a template token and is none; it is taken as plain text",
                format!("a token is written {meant}"),
            ),
            (Kind::Blanks(meant), Here::Token) => (
                "asks for a key with blanks around it, which hardly any manifest has",
                format!("without blanks it is {meant}"),
            ),
            (Kind::Swallows, Here::Token) => ("is one token with braces inside; is a } missing?", TOKENS.to_owned()),
            (Kind::LeftOpen | Kind::Token, Here::Token) => {
                ("opens a template token that no }} closes; it is taken as plain text", TOKENS.to_owned())
            }
        };
        let is_doubtful = here != Here::Text && self.kind != Kind::Other;
        Remark { message: format!("{written} {message}"), hint, is_doubtful }
    }
}

/// Whether tokens are replaced in a field of `expect`, which is given without `expect.`.
fn holds_tokens(field: &str) -> bool {
    let name = field.split(['[', '.']).next().unwrap_or_default();
    match name {
        "responseContains" | "responseContainsAny" | "responseNotContains" => true,
        "toolParams" => {
            let entry = field.split_once("].").map(|(_, member)| member);
            entry.is_some_and(|member| member.split(['[', '.']).next() == Some("value"))
        }
        _ => false,
    }
}

/// The pieces of a text that are told about, each spelling once.
fn strays(text: &str, here: Here) -> Vec<Stray> {
    let mut found: Vec<Stray> = Vec::new();
    let mut from = 0;
    while let Some(start) = text[from..].find('{').map(|at| from + at) {
        if found.len() == MAX_OF_TEXT {
            break;
        }
        let (stray, end) = stray_at(text, start);
        from = end;
        let is_told = |stray: &Stray| match stray.kind {
            Kind::Token => here != Here::Token,
            // Elsewhere placeholders of other sorts are nothing special.
            Kind::Other => here == Here::Token,
            _ => true,
        };
        if let Some(stray) = stray.filter(|stray| is_told(stray) && !found.contains(stray)) {
            found.push(stray);
        }
    }
    found
}

/// What begins with the brace at `start`, and where to go on.
fn stray_at(text: &str, start: usize) -> (Option<Stray>, usize) {
    let rest = &text[start..];
    let stray = |end: usize, kind: Kind| Stray { written: rest[..end].to_owned(), kind };
    if let Some((source, opening)) = Template::opening(rest) {
        let Some(end) = rest.find("}}") else {
            // Without an end behind this opening there is none behind a later one either.
            return (Some(stray(rest.len(), Kind::LeftOpen)), text.len());
        };
        let path = &rest[opening..end];
        let kind = if path.contains(['{', '}']) {
            Kind::Swallows
        } else {
            let keys: Vec<&str> = path.split('.').map(str::trim).collect();
            let plain = keys.join(".");
            if plain == path && !path.is_empty() {
                Kind::Token
            } else {
                Kind::Blanks(format!("{{{{{source}:{plain}}}}}"))
            }
        };
        return (Some(stray(end + 2, kind)), start + end + 2);
    }
    let is_double = rest.starts_with("{{");
    let (opened, closing) = if is_double { (2, "}}") } else { (1, "}") };
    // A placeholder is short, and holds no braces: what is longer is some other text.
    let inner_end = rest[opened..].find(['{', '}']).map(|at| opened + at).filter(|end| *end <= opened + MAX_QUOTED * 4);
    let Some(end) = inner_end.filter(|end| rest[*end..].starts_with(closing)) else {
        return (None, start + 1);
    };
    let kind = placeholder(&rest[opened..end], is_double);
    let end = end + closing.len();
    (kind.map(|kind| stray(end, kind)), if is_double { start + end } else { start + 1 })
}

/// What stands between braces, if it is a placeholder.
fn placeholder(inner: &str, is_double: bool) -> Option<Kind> {
    // Other languages put these in front: {{#seed:a}}, {{$seed:a}}, {{- seed:a -}}.
    let inner = inner.trim_matches(|c: char| c.is_whitespace() || "#$&=~^%*!-".contains(c));
    let name_end = inner.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '-').unwrap_or(inner.len());
    let name = inner[..name_end].trim_end_matches('-');
    if !name.starts_with(|c: char| c.is_alphabetic() || c == '_') {
        return None;
    }
    let behind = inner[name_end..].trim_start();
    let separator = behind.chars().next();
    let path = behind.trim_start_matches(|c: char| c.is_whitespace() || ":.;/|=>[('\"：".contains(c));
    let is_bracketed = separator.is_some_and(|c| "[(".contains(c));
    let path = path.trim_end_matches(|c| "'\"".contains(c) || (is_bracketed && "])".contains(c))).trim();
    let has_separator = separator.is_some_and(|c| ":.;/|=>[('\"：".contains(c)) || inner[name_end..].starts_with(' ');
    let is_path = path.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '$');
    if !is_double {
        // In single braces a JavaScript object looks much the same: only what is as near as that counts.
        let is_plain = path.chars().all(|c| c.is_alphanumeric() || "_.-[]".contains(c));
        let source = SOURCES.into_iter().find(|source| {
            name.eq_ignore_ascii_case(source)
                || name.strip_suffix(['s', 'S']).is_some_and(|n| n.eq_ignore_ascii_case(source))
        })?;
        let is_near = behind.strip_prefix(':').map(str::trim) == Some(path) && is_path && is_plain;
        return is_near.then(|| Kind::Nearly(token(source, path)));
    }
    match near_source(name).filter(|_| has_separator && !path.is_empty()) {
        Some(source) => Some(Kind::Nearly(token(source, path))),
        None => inner.chars().all(|c| c.is_alphanumeric() || "_.-[]:$".contains(c)).then_some(Kind::Other),
    }
}

/// A token for a path as somebody wrote it.
fn token(source: &str, path: &str) -> String {
    let keys: Vec<&str> = path.split('.').map(str::trim).collect();
    format!("{{{{{source}:{}}}}}", keys.join("."))
}

/// The source that a name was most likely meant to be: by the rule for misspelt names, but of a name as short as
/// `seed` two edits leave too little.
fn near_source(name: &str) -> Option<&'static str> {
    let lower = name.to_ascii_lowercase();
    if lower.starts_with("seed") {
        return Some("seed");
    }
    if lower.starts_with("snap") || nearest(&lower, &["snapshot"]).is_some() {
        return Some("snapshot");
    }
    let mut letters: Vec<char> = lower.chars().collect();
    letters.sort_unstable();
    let is_swapped = letters == ['d', 'e', 'e', 's'];
    let is_shorter = ["eed", "sed", "see"].contains(&lower.as_str());
    (is_swapped || is_shorter || lower == "sead" || lower == "sedd").then_some("seed")
}

/// The beginning of a piece, in quotes.
fn quoted(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTED) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told of one text, in a place where tokens are replaced.
    fn kinds(text: &str) -> Vec<(String, Kind)> {
        strays(text, Here::Token).into_iter().map(|stray| (stray.written, stray.kind)).collect()
    }

    #[test]
    fn what_is_nearly_a_token_is_found_with_what_was_meant() {
        for (text, written, meant) in [
            ("{{ seed:pin }}", "{{ seed:pin }}", "{{seed:pin}}"),
            ("{{seed :pin}}", "{{seed :pin}}", "{{seed:pin}}"),
            ("{{\u{a0}seed:pin}}", "{{\u{a0}seed:pin}}", "{{seed:pin}}"),
            ("{{seeds:pin}}", "{{seeds:pin}}", "{{seed:pin}}"),
            ("{{Seed:pin}}", "{{Seed:pin}}", "{{seed:pin}}"),
            ("{{SEED:a.b[0]}}", "{{SEED:a.b[0]}}", "{{seed:a.b[0]}}"),
            ("{{sede:pin}}", "{{sede:pin}}", "{{seed:pin}}"),
            ("{{snapshots:a}}", "{{snapshots:a}}", "{{snapshot:a}}"),
            ("{{ snapshot : prices.AAPL }}", "{{ snapshot : prices.AAPL }}", "{{snapshot:prices.AAPL}}"),
            ("{{snaphsot:a}}", "{{snaphsot:a}}", "{{snapshot:a}}"),
            ("{{snap:a}}", "{{snap:a}}", "{{snapshot:a}}"),
            ("{{seed.pin}}", "{{seed.pin}}", "{{seed:pin}}"),
            ("{{seed/pin}}", "{{seed/pin}}", "{{seed:pin}}"),
            ("{{seed['pin']}}", "{{seed['pin']}}", "{{seed:pin}}"),
            ("{{seed;pin}}", "{{seed;pin}}", "{{seed:pin}}"),
            ("{{seed：pin}}", "{{seed：pin}}", "{{seed:pin}}"),
            ("{{$seed:pin}}", "{{$seed:pin}}", "{{seed:pin}}"),
            ("{{- seed:pin -}}", "{{- seed:pin -}}", "{{seed:pin}}"),
            ("{{seed_manifest.pin}}", "{{seed_manifest.pin}}", "{{seed:pin}}"),
            ("${seed:pin}", "{seed:pin}", "{{seed:pin}}"),
            ("PIN {seed:pin}}!", "{seed:pin}", "{{seed:pin}}"),
            ("{ Seeds: user.pin }", "{ Seeds: user.pin }", "{{seed:user.pin}}"),
            ("{ {seed:pin} }", "{seed:pin}", "{{seed:pin}}"),
        ] {
            assert_eq!(kinds(text), [(written.to_owned(), Kind::Nearly(meant.to_owned()))], "{text}");
        }
    }

    #[test]
    fn odd_tokens_and_other_placeholders() {
        let blanks = |meant: &str| Kind::Blanks(meant.to_owned());
        for (text, written, kind) in [
            ("{{seed: a}}", "{{seed: a}}", blanks("{{seed:a}}")),
            ("{{seed:a }}", "{{seed:a }}", blanks("{{seed:a}}")),
            ("{{snapshot:a . b}}", "{{snapshot:a . b}}", blanks("{{snapshot:a.b}}")),
            ("{{seed:a} and {{seed:b}}", "{{seed:a} and {{seed:b}}", Kind::Swallows),
            ("x {{seed:a.b}", "{{seed:a.b}", Kind::LeftOpen),
            ("{{env:HOME}}", "{{env:HOME}}", Kind::Other),
            ("{{pin}}", "{{pin}}", Kind::Other),
            ("{{ user.name }}", "{{ user.name }}", Kind::Other),
        ] {
            assert_eq!(kinds(text), [(written.to_owned(), kind)], "{text}");
        }
    }

    #[test]
    fn tokens_and_plain_text_are_left_alone() {
        for text in [
            "{{seed:pin}}",
            "a {{seed:holdings.equities[0].symbol}} b {{snapshot:prices.AAPL.current}}",
            "{{seed:user name}}",
            "{{{seed:id}}}",
            "{\"n\":{{seed:n}}}",
            "{seed: 42}",
            "{\"seed\": \"a\"}",
            "{seed: \"a\"}",
            "{need:water}",
            "{{",
            "}}{{",
            "{{}}",
            "{{ 1 + 1 }}",
            "{{a, b and c}}",
            "\\d{2}",
            "function () { return seed; }",
            "{seed}",
        ] {
            assert_eq!(kinds(text), [], "{text}");
        }
    }

    #[test]
    fn elsewhere_tokens_are_told_and_other_placeholders_are_not() {
        let written = |text: &str, here| strays(text, here).into_iter().map(|stray| stray.written).collect::<Vec<_>>();
        for here in [Here::Text, Here::NoTokens] {
            assert_eq!(written("{{seed:a}} {{seed:a}} {{name}} {{ seed:b }}", here), ["{{seed:a}}", "{{ seed:b }}"]);
        }
        assert_eq!(written(&"{{ seed:a }}{{ seed:b }}{{ seed:c }}".repeat(1000), Here::Token).len(), 3);
    }

    /// Not a matter of seconds, whatever stands there.
    #[test]
    fn long_texts_are_looked_through_once() {
        for text in ["{".repeat(100_000), "{{seed:".repeat(30_000), "{a".repeat(50_000), "{{ x ".repeat(30_000)] {
            let begun = std::time::Instant::now();
            let _ = strays(&text, Here::Token);
            assert!(begun.elapsed().as_secs() < 2, "{}", &text[..10]);
        }
    }
}
