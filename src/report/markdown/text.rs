//! Somebody else's text in Markdown: in a code span, a fence, or an escaped `<code>`, out of which nothing gets.

use std::fmt::Write as _;

use crate::report::html::escaped;
use crate::report::words::{count, cut};
use crate::text::{printable, printable_lines};

/// Most bytes of an error or a reason.
pub(super) const MAX_REASON: usize = 800;
/// Most bytes of a text that shares a line with others.
pub(super) const MAX_SHORT: usize = 200;
/// Most entries of a list.
pub(super) const MAX_ITEMS: usize = 20;

/// Somebody else's text in a code span, on one line, also inside a table: at most `most` bytes of it.
pub(super) fn code(text: &str, most: usize) -> String {
    let mut keep = most;
    loop {
        let cut = cut(text, keep);
        let mut span = span(cut.text);
        // What has to be escaped gets long.
        if span.len() <= 2 * most + 40 || keep == 0 {
            if let Some(note) = cut.note() {
                let _ = write!(span, " … {note}");
            }
            return span;
        }
        keep /= 2;
    }
}

fn span(text: &str) -> String {
    let line = printable(&printable_lines(text).replace(['\n', '\t'], " "));
    let line = without_long_runs(&line);
    if line.trim().is_empty() {
        return "–".to_owned();
    }
    let fence = "`".repeat(longest_run(&line) + 1);
    // No way of writing a bar inside a code span is safe in a table for every reader, so it stands between two of them.
    let parts = line.split('|').map(|part| {
        let touches = |edge: fn(char) -> bool| part.starts_with(edge) || part.ends_with(edge);
        match part {
            "" => String::new(),
            // One blank on either side is taken off again, and backticks must not touch the fence.
            part if touches(|c| c == '`' || c == ' ') && !part.trim().is_empty() => format!("{fence} {part} {fence}"),
            part => format!("{fence}{part}{fence}"),
        }
    });
    parts.collect::<Vec<_>>().join("&#124;")
}

/// Somebody else's text as a block of code.
pub(super) fn fence(text: &str) -> String {
    let text = without_long_runs(&printable_lines(text));
    let fence = "`".repeat((longest_run(&text) + 1).max(3));
    format!("{fence}text\n{}\n{fence}\n", text.trim_end_matches('\n'))
}

/// Somebody else's text inside a line of HTML, where Markdown means nothing.
pub(super) fn in_html(text: &str) -> String {
    let cut = cut(text, MAX_SHORT);
    let line = printable(&printable_lines(cut.text).replace(['\n', '\t'], " "));
    format!("<code>{}</code>{}", escaped(&line), cut.note().map(|note| format!(" … {note}")).unwrap_or_default())
}

/// Backticks in runs that are too long for readers to count become escapes: a fence of more than that is none.
fn without_long_runs(text: &str) -> String {
    if longest_run(text) > 16 { text.replace('`', "\\u{60}") } else { text.to_owned() }
}

fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

/// The line below a list that is cut.
pub(super) fn and_more(number: usize, one: &str, many: &str) -> String {
    match number.saturating_sub(MAX_ITEMS) {
        0 => String::new(),
        rest => format!("\n… and {} more\n", count(rest, one, many)),
    }
}

pub(super) fn warnings<'a>(warnings: impl ExactSizeIterator<Item = &'a String>) -> String {
    let lines = warnings.map(|warning| code(warning, MAX_SHORT * 2));
    listed("Warnings", "warning", "warnings", lines)
}

/// A list with a word above it; nothing where there is nothing in it.
pub(super) fn listed(title: &str, one: &str, many: &str, lines: impl ExactSizeIterator<Item = String>) -> String {
    let number = lines.len();
    if number == 0 {
        return String::new();
    }
    let mut text = format!("\n⚠️ **{title}**\n\n");
    for line in lines.take(MAX_ITEMS) {
        let _ = writeln!(text, "- {line}");
    }
    text + &and_more(number, one, many)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_nothing_gets_out_of() {
        assert_eq!(code("a\nb\tc", 99), "`a b c`");
        assert_eq!(code("``x`", 99), "``` ``x` ```");
        assert_eq!(code(" x ", 99), "`  x  `");
        assert_eq!(code("a|b||", 99), "`a`&#124;`b`&#124;&#124;");
        assert_eq!(code("a\\|b", 99), "`a\\`&#124;`b`");
        assert_eq!(code("\u{202e}", 99), "`\\u{202e}`");
        let ticks = code(&"`".repeat(300), 90);
        assert_eq!(ticks, format!("`{}` … 278 bytes more", "\\u{60}".repeat(22)), "no reader counts that far");
        assert_eq!((code("", 9), code(" \n", 9)), ("–".to_owned(), "–".to_owned()));
        assert_eq!(code("aé", 2), "`a` … 2 bytes more");
        assert_eq!(fence("a\n````\nb\r\n"), "`````text\na\n````\nb\n`````\n");
    }
}
