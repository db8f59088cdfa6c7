//! Texts that others wrote, as far as and as safely as people are shown them; and errors with their causes.

use std::error::Error;
use std::fmt::Write as _;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// The beginning of a text, of at most `most` characters; an ellipsis stands for what is left out.
#[must_use]
pub fn clip(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// The beginning of a text, of at most `width` columns of a terminal; an ellipsis stands for what is left out.
#[must_use]
pub fn fit(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut used = 1;
    let fits = text.chars().take_while(|c| {
        used += c.width().unwrap_or(0);
        used <= width
    });
    let mut out: String = fits.collect();
    out.push('…');
    out
}

/// A text in lines of at most `width` columns of a terminal, broken between words where that is possible; its own
/// line breaks stay.
#[must_use]
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(10);
    let mut lines = Vec::new();
    for line in text.split('\n') {
        let (mut rest, mut begin) = (line.trim_end(), true);
        while begin || !rest.is_empty() {
            begin = false;
            let end = end_of_line(rest, width);
            lines.push(rest[..end].trim_end().replace('\t', " "));
            rest = rest[end..].trim_start();
        }
    }
    lines
}

/// Where the first line of a text ends that has at most `width` columns: behind its last blank, else where it is full.
fn end_of_line(text: &str, width: usize) -> usize {
    let (mut used, mut blank) = (0, None);
    for (at, c) in text.char_indices() {
        used += c.width().unwrap_or(1);
        if used > width {
            // A line of one short word and much air is no help.
            return blank.filter(|blank| blank * 3 > at).unwrap_or(at).max(1);
        }
        if c == ' ' {
            blank = Some(at + 1);
        }
    }
    text.len()
}

/// An error with its causes, without those that the text names already.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let why = cause.to_string();
        if !text.contains(&why) {
            text.push_str(": ");
            text.push_str(&why);
        }
        source = cause.source();
    }
    text
}

/// The deepest cause of an error: those above it often say only that there was one.
#[must_use]
pub fn deepest(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(cause) = error.source() {
        error = cause;
    }
    error.to_string()
}

/// Somebody else's text, safe to show on a terminal and in the log of a CI system: control characters, those that turn
/// the direction of writing, and where commands to a CI system begin are written as escapes.
#[must_use]
pub fn printable(text: &str) -> String {
    shown(text, |_| false)
}

/// The same for a text of several lines, which stay lines; so do tabs.
#[must_use]
pub fn printable_lines(text: &str) -> String {
    shown(text, |c| matches!(c, '\n' | '\t'))
}

fn shown(text: &str, is_kept: fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut commands = Commands::default();
    for (at, c) in text.char_indices() {
        let is_command = commands.begins(&text[at..]);
        match c {
            c if is_kept(c) => out.push(c),
            '\r' if is_kept('\n') && text[at + 1..].starts_with('\n') => {}
            c if is_command => out.extend(c.escape_unicode()),
            c => push_printable(&mut out, c),
        }
    }
    out
}

/// Finds what CI systems obey in a log, in a text that is gone through letter by letter and may stand at the beginning
/// of a line. GitHub Actions: `::` at the beginning of a line, and `##[` anywhere; Azure Pipelines and `TeamCity`:
/// `##vso[` and `##teamcity[`.
#[derive(Debug, Default)]
pub struct Commands {
    /// Something stands on the line.
    is_in_line: bool,
}

impl Commands {
    /// Longest word of a command, such as `teamcity`.
    const MAX_WORD: usize = 20;

    /// Whether a command begins with the next letter, which is the first one of `rest`.
    #[must_use]
    pub fn begins(&mut self, rest: &str) -> bool {
        // Selectors of how a letter looks are nothing to those who compare by the rules of a language, as GitHub does.
        let is_nothing = |c: char| matches!(c, '\u{fe00}'..='\u{fe0f}');
        let mut after = rest.chars().filter(|c| !is_nothing(*c));
        match rest.chars().next() {
            Some('\n' | '\r') => self.is_in_line = false,
            Some(c) if c.is_whitespace() || is_nothing(c) => {}
            Some(':') => {
                let begins = !self.is_in_line && after.nth(1) == Some(':');
                self.is_in_line = true;
                return begins;
            }
            Some('#') => {
                self.is_in_line = true;
                let is_hash = after.nth(1) == Some('#');
                return is_hash && after.take(Self::MAX_WORD).find(|c| !c.is_ascii_lowercase()) == Some('[');
            }
            _ => self.is_in_line = true,
        }
        false
    }
}

/// JSON text, safe to show on a terminal and in a log, and the same JSON: what those would obey stands as an escape.
#[must_use]
pub fn printable_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    // Line breaks and tabs stand between values only, and so no text is at the beginning of a line. Most bytes are
    // letters, and reports are large.
    let is_odd = |byte| !(b' '..0x7f).contains(&byte) && !b"\n\t".contains(&byte) || byte == b'#';
    while let Some(at) = rest.bytes().position(is_odd) {
        let (before, odd) = rest.split_at(at);
        out.push_str(before);
        let mut chars = odd.chars();
        if let Some(c) = chars.next() {
            if c.is_control() || is_unseen(c) || (c == '#' && Commands::default().begins(odd)) {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            } else {
                out.push(c);
            }
        }
        rest = chars.as_str();
    }
    out.push_str(rest);
    out
}

/// Adds one character of somebody else's text, as [`printable`] shows it.
pub fn push_printable(out: &mut String, c: char) {
    match c {
        c if c.is_control() => out.extend(c.escape_default()),
        // Emoji and some scripts join what stands before them.
        '\u{200c}' | '\u{200d}' if out.ends_with(|before: char| !before.is_ascii()) => out.push(c),
        c if is_unseen(c) => out.extend(c.escape_unicode()),
        c => out.push(c),
    }
}

/// Whether nobody sees a character that changes what they see: the direction of writing, where a line ends, what is the
/// same word. Those are the format characters and separators of Unicode, fillers that look like nothing, and what is no
/// character at all, which XML cannot hold.
const fn is_unseen(c: char) -> bool {
    matches!(c,
        '\u{ad}'
        | '\u{34f}'
        | '\u{600}'..='\u{605}'
        | '\u{61c}'
        | '\u{6dd}'
        | '\u{70f}'
        | '\u{890}'..='\u{891}'
        | '\u{8e2}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{2800}'
        | '\u{3164}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{fffe}'..='\u{ffff}'
        | '\u{110bd}'
        | '\u{110cd}'
        | '\u{13430}'..='\u{1343f}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// Which lines the runner of GitHub Actions would obey, by its `ActionCommand.cs`; letters that its comparison does not
/// see are not there.
#[cfg(test)]
pub(crate) fn obeyed(log: &str) -> Vec<&str> {
    let words = ["error", "set-output", "stop-commands", "add-mask", "add-path", "group", "warning", "notice"];
    let obeyed = |line: &str| {
        let line: String = line.chars().filter(|c| !matches!(c, '\u{fe00}'..='\u{fe0f}')).collect();
        let word = |text: &str| words.contains(&text.split(' ').next().unwrap_or_default());
        let new = line.trim_start().strip_prefix("::").and_then(|rest| rest.split_once("::"));
        let old = line.split_once("##[").and_then(|(_, rest)| rest.split_once(']'));
        new.is_some_and(|(info, _)| word(info)) || old.is_some_and(|(info, _)| word(info)) || line.contains("##vso[")
    };
    log.split(['\n', '\r']).filter(|line| obeyed(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_shows() {
        assert_eq!((clip("aé", 2), clip("aéb", 2)), ("aé".into(), "aé…".into()));
        assert_eq!((fit("日本", 4), fit("日本", 3), fit("abc", 2)), ("日本".into(), "日…".into(), "a…".into()));
    }

    #[test]
    fn long_lines_are_broken_between_words() {
        assert_eq!(wrap("one two three four", 10), ["one two", "three four"]);
        assert_eq!(wrap("abcdefghijklmno\n\n  x", 10), ["abcdefghij", "klmno", "", "  x"]);
        assert_eq!(wrap("日本日本日本 ab", 10), ["日本日本日", "本 ab"]);
        assert_eq!(wrap("a bcdefghijklmnopq", 10), ["a bcdefghi", "jklmnopq"]);
        assert_eq!(wrap("", 10), [""]);
    }

    #[test]
    fn causes_are_told_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("{0}")]
        struct Trouble(&'static str, #[source] Option<Box<Trouble>>);
        let trouble = |text, cause: Option<Trouble>| Trouble(text, cause.map(Box::new));
        let whole = trouble("cannot read: a: no such file", Some(trouble("a", Some(trouble("gone", None)))));
        assert_eq!(chain(&whole), "cannot read: a: no such file: gone");
        assert_eq!(deepest(&whole), "gone");
    }

    #[test]
    fn no_ci_system_obeys_it() {
        let attacks = [
            "::set-output name=a::b",
            "x\n  \u{3000}::error file=a,line=1::b\n::stop-commands::x",
            "a\r::add-mask::b\r\n\t::group::c",
            "mid ##[add-path]/tmp and ###[warning]x ##[error a=b]",
            ":\u{fe0f}:error::x\n\u{fe0f}::error::y #\u{fe00}#\u{fe0f}[error]z",
            "##vso[task.setvariable variable=a]b ##teamcity[x]",
        ];
        assert!(attacks.iter().all(|attack| !obeyed(attack).is_empty()), "the test knows a command when it sees one");
        for attack in attacks {
            for shown in [printable(attack), printable_lines(attack), printable_json(&format!("{attack:?}"))] {
                assert!(obeyed(&shown).is_empty() && !shown.contains("##teamcity["), "{attack:?}: {shown:?}");
            }
            let json = serde_json::to_string(attack).expect("JSON");
            assert_eq!(serde_json::from_str::<String>(&printable_json(&json)).expect("JSON"), attack);
        }
        assert_eq!(printable_lines("::error::x\n ::y"), "\\u{3a}:error::x\n \\u{3a}:y");
        assert_eq!(printable_json(r###""##[error]x""###), "\"\\u0023#[error]x\"");
        for harmless in ["a::b", "std::vec", "# Title\n## More\n- [x] ##", "#[test]", ":)", "a: ::b", "## [link]"] {
            assert_eq!(printable_lines(harmless), harmless);
        }
        // Each letter is looked at a few times, whatever they are.
        for long in [":", "#", ":\u{fe0f}", "##a"] {
            assert!(printable_lines(&long.repeat(1 << 20)).len() >= 1 << 20);
        }
    }

    #[test]
    fn nothing_reaches_the_terminal_raw() {
        assert_eq!(printable("a\u{1b}[31m\r\n\u{202e}b\u{9b}é"), "a\\u{1b}[31m\\r\\n\\u{202e}b\\u{9b}é");
        // Nobody sees these, and they change what is seen.
        assert_eq!(printable("a\u{200b}b\u{2066}\u{feff}\u{e0041}"), "a\\u{200b}b\\u{2066}\\u{feff}\\u{e0041}");
        assert_eq!(printable("pay\u{ad}pal\u{2028}x\u{200d}y"), "pay\\u{ad}pal\\u{2028}x\\u{200d}y");
        // These belong to what is seen.
        for text in ["👩\u{200d}🚀", "می\u{200c}خواهم", "❤\u{fe0f}", "e\u{301}"] {
            assert_eq!(printable(text), text);
        }
    }
}
