//! An answer against the one that is stored for its case.

use std::fmt::Write as _;
use std::time::Duration;

use similar::{ChangeTag, TextDiff};

use crate::json::blocks::json_in;
use crate::json::{Json, Value};
use crate::suite::claim::Compare;

/// Why an answer is compared with nothing: it is going to be the stored one.
pub(super) const RENEWED: &str = "the response is going to be the stored one";
/// Longest texts whose difference is told line by line, in bytes.
const MAX_BYTES: usize = 256 << 10;
/// Most lines of a difference that are told.
const MAX_LINES: usize = 40;
/// Longest line of a difference, in characters.
const MAX_CHARS: usize = 300;
/// Lines around a change that are told too.
const CONTEXT: usize = 2;
/// Time to find a short difference; after that a longer one will do.
const PATIENCE: Duration = Duration::from_millis(100);

/// Whether an answer is the stored one; if not, what differs, on several lines.
///
/// # Errors
/// When the stored answer is not what the comparison needs.
pub(super) fn compare(stored: &str, answer: &str, compare: &Compare) -> Result<Option<String>, String> {
    match compare {
        Compare::Exact if stored == answer => Ok(None),
        Compare::Whitespace if stored.split_whitespace().eq(answer.split_whitespace()) => Ok(None),
        Compare::Exact | Compare::Whitespace => Ok(Some(difference(stored, answer))),
        Compare::Json { ignore } => {
            let mut stored = json_in(stored).ok_or("the stored answer is no JSON")?;
            let Some(mut answer) = json_in(answer) else {
                return Ok(Some("there is no JSON in the response".to_owned()));
            };
            for path in ignore {
                path.remove(&mut stored);
                path.remove(&mut answer);
            }
            if stored == answer {
                return Ok(None);
            }
            Ok(Some(difference(&pretty(&stored), &pretty(&answer))))
        }
    }
}

fn difference(stored: &str, answer: &str) -> String {
    let mut out = String::from("the response is not the stored one (-), but another (+):");
    if stored.len() > MAX_BYTES || answer.len() > MAX_BYTES {
        let _ = write!(out, " {} and {} bytes, too long to be told line by line", stored.len(), answer.len());
        return out;
    }
    let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(stored, answer);
    let (mut told, mut more) = (0, 0);
    for (index, group) in diff.grouped_ops(CONTEXT).iter().enumerate() {
        if index > 0 && told < MAX_LINES {
            out.push_str("\n  …");
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            if told == MAX_LINES {
                more += 1;
                continue;
            }
            told += 1;
            let sign = match change.tag() {
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
                ChangeTag::Equal => ' ',
            };
            let line = change.value().trim_end_matches('\n');
            let end = line.char_indices().nth(MAX_CHARS).map(|(end, _)| end);
            let _ = write!(
                out,
                "\n{sign} {}{}",
                end.map_or(line, |end| &line[..end]),
                if end.is_some() { "…" } else { "" }
            );
            if change.missing_newline()
                && change.tag() != ChangeTag::Equal
                && stored.ends_with('\n') != answer.ends_with('\n')
            {
                out.push_str(" (without a line break)");
            }
        }
    }
    if more > 0 {
        let _ = write!(out, "\n  … {more} more lines");
    }
    out
}

/// JSON on many lines, keys in order, so that a difference is a line.
fn pretty(json: &Json) -> String {
    let mut out = String::new();
    write(json, 0, &mut out);
    out.push('\n');
    out
}

fn write(json: &Json, depth: usize, out: &mut String) {
    let indent = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    match &json.value {
        Value::Object(members) if !members.is_empty() => {
            let mut members: Vec<&(String, Json)> = members.iter().collect();
            members.sort_by(|one, other| one.0.cmp(&other.0));
            for (index, (key, value)) in members.into_iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "{" });
                indent(out, depth + 1);
                crate::json::write_string(key, out);
                out.push_str(": ");
                write(value, depth + 1, out);
            }
            indent(out, depth);
            out.push('}');
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, value) in items.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "[" });
                indent(out, depth + 1);
                write(value, depth + 1, out);
            }
            indent(out, depth);
            out.push(']');
        }
        _ => out.push_str(&json.stringify()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::path::JsonPath;

    fn ignoring(paths: &[&str]) -> Compare {
        Compare::Json { ignore: paths.iter().map(|path| JsonPath::parse_many(path).expect("a path")).collect() }
    }

    #[test]
    fn when_answers_are_the_same() {
        for (stored, answer, how, same) in [
            ("a b", "a b", Compare::Exact, true),
            ("a b", "a  b", Compare::Exact, false),
            ("a b", "a b\n", Compare::Exact, false),
            (" a\tb\n", "a  b", Compare::Whitespace, true),
            ("a b", "ab", Compare::Whitespace, false),
            ("{\"a\": 1, \"b\": [2]}", "```json\n{\"b\": [2.0], \"a\": 1}\n```", ignoring(&[]), true),
            ("{\"a\": 1, \"id\": 7}", "{\"a\": 1, \"id\": 8}", ignoring(&["$.id"]), true),
            ("{\"a\": 1, \"id\": 7}", "{\"a\": 1}", ignoring(&["$.id"]), true),
            ("{\"a\": [{\"id\": 1}]}", "{\"a\": [{\"id\": 2}]}", ignoring(&["a[*].id"]), true),
            ("{\"a\": 1}", "{\"a\": 2}", ignoring(&["$.id"]), false),
            ("{\"a\": 1}", "none", ignoring(&[]), false),
        ] {
            let found = compare(stored, answer, &how).expect("can be compared");
            assert_eq!(found.is_none(), same, "{stored} {answer}: {found:?}");
        }
        assert!(compare("no JSON", "{}", &ignoring(&[])).is_err());
    }

    #[test]
    fn a_difference_is_told_line_by_line() {
        let found = compare("one\ntwo\nthree\n", "one\n2\nthree\n", &Compare::Exact).expect("can be compared");
        let expected = "the response is not the stored one (-), but another (+):\n  one\n- two\n+ 2\n  three";
        assert_eq!(found.as_deref(), Some(expected));
        let found = compare("{\"b\":1,\"a\":{\"c\":2}}", "{\"a\":{\"c\":3},\"b\":1}", &ignoring(&[]));
        let found = found.expect("can be compared").expect("differs");
        assert!(found.contains("\n-     \"c\": 2\n+     \"c\": 3\n"), "{found}");
        let long = |word: &str| format!("{word}\n").repeat(1_000);
        let found = compare(&long("a"), &long("b"), &Compare::Exact).expect("can be compared").expect("differs");
        assert!(found.lines().count() < 50 && found.ends_with("more lines"), "{found}");
        let huge = "x".repeat(MAX_BYTES + 1);
        let found = compare(&huge, "y", &Compare::Exact).expect("can be compared").expect("differs");
        assert!(found.ends_with("too long to be told line by line"), "{found}");
    }
}
