//! Texts and lists on the page, escaped and cut.

use std::fmt::{self, Write as _};

use crate::report::words::cut;
use crate::text::{Commands, push_printable};
use crate::verdict::Outcome;

/// Most bytes of an answer.
pub(super) const MAX_ANSWER: usize = 64 << 10;
/// Most bytes of another text.
pub(super) const MAX_TEXT: usize = 16 << 10;
/// Most entries of a list in a case, such as its tool calls: with the lengths above it bounds a piece.
pub(super) const MAX_ITEMS: usize = 200;
/// Most cases that are named at the head of a suite.
pub(super) const MAX_NAMED: usize = 100;

/// The escape of everything that the templates show: markup becomes text, control characters and those that turn the
/// direction of writing become escapes; so does what CI systems would obey in a log. Line breaks and tabs stay.
#[derive(Debug, Clone, Copy)]
pub struct Escape;

impl askama::filters::Escaper for Escape {
    fn write_escaped_str<W: fmt::Write>(&self, mut to: W, text: &str) -> fmt::Result {
        to.write_str(&escaped(text))
    }
}

/// Somebody else's text, safe inside an element or a quoted attribute.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut commands = Commands::default();
    for (at, c) in text.char_indices() {
        let is_command = commands.begins(&text[at..]);
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            '\r' if text[at + 1..].starts_with('\n') => {}
            // On the page it is the same letter.
            c if is_command => {
                let _ = write!(out, "&#{};", u32::from(c));
            }
            c => push_printable(&mut out, c),
        }
    }
    out
}

/// A text as it is shown, with a note when it is cut.
#[derive(Debug)]
pub(super) struct Text<'a> {
    pub(super) text: &'a str,
    pub(super) note: Option<String>,
}

impl<'a> Text<'a> {
    pub(super) fn of(text: &'a str, most: usize) -> Self {
        let cut = cut(text, most);
        Self { text: cut.text, note: cut.note() }
    }
}

/// The label of a case. Nobody reads hundreds of letters of it.
pub(super) fn short(mut label: String) -> String {
    let cut = cut(&label, 300);
    if cut.rest > 0 {
        label.truncate(cut.text.len());
        label.push('…');
    }
    label
}

/// A list as it is shown, and how many entries are left out.
#[derive(Debug)]
pub(super) struct List<T> {
    pub(super) items: Vec<T>,
    pub(super) rest: usize,
}

impl<T> List<T> {
    pub(super) fn of(items: impl ExactSizeIterator<Item = T>, most: usize) -> Self {
        let rest = items.len().saturating_sub(most);
        Self { items: items.take(most).collect(), rest }
    }
}

/// A fact with its name.
pub(super) struct Fact<'a> {
    pub(super) name: &'static str,
    pub(super) value: Text<'a>,
    /// What is said behind it, in our words.
    pub(super) more: String,
}

/// How an outcome looks: `class` is also its word.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sign {
    pub(super) mark: &'static str,
    pub(super) class: &'static str,
}

impl Sign {
    pub(super) const fn of(outcome: Outcome) -> Self {
        let mark = match outcome {
            Outcome::Passed => "✓",
            Outcome::Failed => "✗",
            Outcome::Errored => "!",
            Outcome::Skipped => "○",
        };
        Self { mark, class: outcome.name() }
    }
}
