//! RE2 patterns: what Go's `regexp.MatchString` says, in time linear in the text.
//!
//! The patterns of the Agent Test Framework are Go's. The `regex` crate comes from the same root and never backtracks
//! either, but its language differs: `\d`, `\w`, `\s` and `\b` are Unicode's there, classes nest and have operators, some
//! of its escapes and flags are errors in Go, and Go's lone `{` is an error to it. So a scanner reads a pattern the way
//! Go's parser does and writes it anew, in the narrow part of the crate's syntax that leaves nothing open. What classes
//! hold, which letters are the same but for their case, and the automata are the crate's business.
//!
//! Linear time may still be long: a match is stopped after [`CPU_LIMIT`](super::pattern::CPU_LIMIT). It blocks its
//! thread for up to that, so code that runs on an async runtime calls it on a blocking thread.
//!
//! Only whether there is a match is asked for. Groups therefore capture nothing, and which of several matches a
//! repetition prefers (`*?`, the flag `U`) is read and forgotten.

use std::sync::Arc;

use regex_automata::util::syntax;

use super::automaton::{Automaton, Deadline, Pool, Refused};
use super::pattern::PatternError;

/// Longest pattern, in bytes.
pub const MAX_PATTERN_BYTES: usize = 64 << 10;

/// Memory that a compiled pattern may take, in bytes.
const MAX_COMPILED_BYTES: usize = 2 << 20;

/// How deep groups, repetitions, sequences and alternatives may nest. Go allows 1,000, in another count; compiling that
/// takes more stack than the 2 MiB of a thread when the crate is built without optimization.
const MAX_NESTING: u32 = 250;

/// How often a repetition, with those inside it, may ask for the same thing, as in Go.
const MAX_COPIES: u32 = 1_000;

/// Classes in a pattern that take long to spell out: those of Unicode, and long ranges where letter case does not count.
/// That happens before the limit on memory is looked at, and takes up to ten milliseconds each.
const MAX_WIDE_CLASSES: usize = 200;

/// What such a class takes from the pool beside its memory, in bytes, for its time; and where letter case does not
/// count, which is what takes the time.
const WIDE_CLASS_BYTES: usize = 16 << 10;
const FOLDED_CLASS_BYTES: usize = 128 << 10;

/// Class items that no character fits, and that every character fits.
const NOTHING: &str = "[a&&b]";
const ANYTHING: &str = "[^a&&b]";

/// Go's class names between `[:` and `:]`; the crate has the same.
const POSIX_CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];

/// Scripts whose whole name has four letters. Any other four letters are an ISO code, which Go does not know.
const FOUR_LETTER_SCRIPTS: [&str; 9] = ["ahom", "cham", "kawi", "lisu", "miao", "modi", "newa", "thai", "toto"];

// What Go says, too, where more than one place says it.
const BAD_CLASS: &str = "invalid character class range";
const BAD_COUNT: &str = "invalid repeat count";
const TOO_LARGE: &str = "expression too large";

// What Go has no limit for.
const FULL: &str = "the patterns before it take up the 64 MiB that all patterns may take together";

/// A pattern in RE2 syntax, as Go's regexp package has it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Re2Pattern {
    source: Arc<str>,
    compiled: Arc<Automaton>,
}

/// Why a text is no RE2 pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{shown:?} is no pattern: {message}{}", if *.at > 0 { format!(": at character {at}") } else { String::new() })]
pub struct Re2Error {
    /// The beginning of the pattern.
    shown: String,
    /// What is wrong.
    pub message: &'static str,
    /// Number of the character where that starts, counted from 1; 0 when it is about the whole pattern.
    pub at: usize,
}

impl Re2Pattern {
    /// Reads and compiles a pattern that is kept by itself.
    ///
    /// # Errors
    /// When Go would not compile it, or when it is too large: see [`MAX_PATTERN_BYTES`].
    pub fn new(source: &str) -> Result<Self, Re2Error> {
        Self::within(source, &mut Pool::default())
    }

    /// Reads and compiles a pattern that is kept with others.
    ///
    /// # Errors
    /// As for [`Re2Pattern::new`], and when those before it leave no room in the pool.
    pub fn within(source: &str, pool: &mut Pool) -> Result<Self, Re2Error> {
        let error = |message, at| {
            let (shown, more) = source.char_indices().nth(200).map_or((source, ""), |(end, _)| (&source[..end], "…"));
            Re2Error { shown: format!("{shown}{more}"), message, at }
        };
        if source.len() > MAX_PATTERN_BYTES {
            return Err(error("it is longer than 64 KiB", 0));
        }
        // Not even the reading is free.
        if !pool.take(source.len()) {
            return Err(error(FULL, 0));
        }
        let translator = Translator { source, last_posix_end: source.rfind(":]"), ..Translator::default() };
        let (translated, wide_bytes) =
            translator.translate().map_err(|Fault(message, at)| error(message, source[..at].chars().count() + 1))?;
        if !pool.take(wide_bytes) {
            return Err(error(FULL, 0));
        }
        // The syntax is the translator's own: nothing but its nesting can be wrong.
        let config = syntax::Config::new().nest_limit(MAX_NESTING);
        let hir = syntax::parse_with(&translated, &config).map_err(|_| error("expression nests too deeply", 0))?;
        let compiled = pool.compile(&hir, MAX_COMPILED_BYTES, 0).map_err(|refused| match refused {
            Refused::TooLarge => error(TOO_LARGE, 0),
            Refused::Full => error(FULL, 0),
        })?;
        Ok(Self { source: source.into(), compiled: Arc::new(compiled) })
    }

    /// What `regexp.MatchString(source, text)` says: whether the pattern fits some part of the text. Blocks: see the
    /// module.
    ///
    /// # Errors
    /// [`PatternError::TooSlow`]
    pub fn is_match(&self, text: &str) -> Result<bool, PatternError> {
        // What a search works out is not kept: a suite may have thousands of patterns, and a hostile text makes each of
        // them work out megabytes.
        let found = self.compiled.is_match(&mut None, text, &Deadline::from_now());
        found.map_err(|_| PatternError::TooSlow { pattern: Arc::clone(&self.source) })
    }

    /// The pattern as written.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }
}

/// What is wrong, and the byte where it starts.
struct Fault(&'static str, usize);

/// The flags that change what matches.
#[derive(Clone, Copy, Default)]
struct Flags {
    /// `i`: letter case does not count.
    fold: bool,
    /// `m`: `^` and `$` also hold at line ends.
    lines: bool,
    /// `s`: `.` also stands for a line feed.
    dot_all: bool,
}

/// A group that is being read; the whole pattern is the outermost.
#[derive(Default)]
struct Group {
    start: usize,
    /// The flags that hold again behind it, and `Translator::folding`.
    flags: Flags,
    folding: bool,
    /// Copies of what is repeated most in it, `last` left out.
    copies: u32,
    /// The same for what a repetition would apply to, if there is something.
    last: Option<u32>,
}

impl Group {
    /// Nothing can repeat the last thing any more: now it is the turn of the next one, if any.
    fn go_on(&mut self, next: Option<u32>) {
        self.copies = self.copies.max(self.last.unwrap_or(1));
        self.last = next;
    }
}

#[derive(Default)]
struct Translator<'a> {
    source: &'a str,
    /// First byte that is not read yet.
    at: usize,
    /// The translation of what is read.
    out: String,
    /// The flags in force; `folding` is the `fold` that was last written.
    flags: Flags,
    folding: bool,
    group: Group,
    /// The groups around it, the innermost last.
    outer: Vec<Group>,
    /// Where the last `:]` is. To look for one from each `[:` on would take quadratic time.
    last_posix_end: Option<usize>,
    wide_classes: usize,
    /// What those take from the pool.
    wide_bytes: usize,
}

impl<'a> Translator<'a> {
    /// The translation, and what its wide classes take from the pool.
    fn translate(mut self) -> Result<(String, usize), Fault> {
        let mut after_repetition = false;
        loop {
            let start = self.at;
            if let Some((min, max)) = self.repetition() {
                self.repeat(start, min, max, after_repetition)?;
                after_repetition = true;
                continue;
            }
            after_repetition = false;
            match self.next() {
                None => break,
                Some('(') => self.open_group(start)?,
                Some(')') => self.close_group(start)?,
                Some('|') => {
                    self.out.push('|');
                    self.group.go_on(None);
                }
                Some('[') => self.class(start)?,
                Some('^') => self.atom(if self.flags.lines { "(?m:^)" } else { r"\A" }),
                Some('$') => self.atom(if self.flags.lines { "(?m:$)" } else { r"\z" }),
                Some('.') => self.atom(if self.flags.dot_all { "(?s:.)" } else { "." }),
                Some('\\') => self.escape(start)?,
                Some(c) => self.literal(c.into()),
            }
        }
        if self.outer.is_empty() {
            Ok((self.out, self.wide_bytes))
        } else {
            Err(Fault("missing closing )", self.group.start))
        }
    }

    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest().chars().next()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn eat(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        self.at += if found { text.len() } else { 0 };
        found
    }

    /// Reads up to `end`, or else all that is left.
    fn until(&mut self, end: &str) -> &'a str {
        let text = self.rest().split(end).next().unwrap_or_default();
        self.at += text.len();
        text
    }

    /// Writes something that a repetition can apply to. The flag for letter case is written here and not where it was
    /// read: Go allows flags between a thing and its repetition, the crate does not.
    fn atom(&mut self, written: &str) {
        if self.folding != self.flags.fold {
            self.folding = self.flags.fold;
            self.out.push_str(if self.folding { "(?i)" } else { "(?-i)" });
        }
        self.out.push_str(written);
        self.group.go_on(Some(1));
    }

    fn literal(&mut self, c: u32) {
        // Text has no surrogates, and the crate no way to write them.
        let written = char::from_u32(c).map_or_else(|| NOTHING.to_owned(), |_| format!(r"\x{{{c:X}}}"));
        self.atom(&written);
    }

    /// Reads `*`, `+`, `?`, `{n}`, `{n,}` or `{n,m}`, with the `?` that makes it lazy. Any other `{` is a literal.
    fn repetition(&mut self) -> Option<(u32, Option<u32>)> {
        let rest = self.rest();
        let (min, max, length) = match rest.bytes().next()? {
            b'*' => (0, None, 1),
            b'+' => (1, None, 1),
            b'?' => (0, Some(1), 1),
            b'{' => {
                let length = rest[1..].find(|c: char| !c.is_ascii_digit() && c != ',')?;
                let (inside, end) = rest[1..].split_at(length);
                let (min, max) = inside.split_once(',').unwrap_or((inside, inside));
                let max = if max.is_empty() { None } else { Some(count(max)?) };
                (count(min).filter(|_| end.starts_with('}'))?, max, length + 2)
            }
            _ => return None,
        };
        self.at += length;
        self.eat("?");
        Some((min, max))
    }

    fn repeat(&mut self, start: usize, min: u32, max: Option<u32>, after_repetition: bool) -> Result<(), Fault> {
        if min > MAX_COPIES || max.is_some_and(|max| max > MAX_COPIES || max < min) {
            return Err(Fault(BAD_COUNT, start));
        }
        if after_repetition {
            return Err(Fault("invalid nested repetition operator", start));
        }
        let inner = self.group.last.ok_or(Fault("missing argument to repetition operator", start))?;
        // What is there zero times has no copies, however many it asked for inside.
        let copies = if max == Some(0) { 1 } else { inner * max.unwrap_or(min).max(1) };
        if copies > MAX_COPIES {
            return Err(Fault(BAD_COUNT, start));
        }
        self.group.last = Some(copies);
        // In braces even where a sign would do: behind another repetition, a `?` would only make that one lazy.
        let braces = max.map_or_else(|| format!("{{{min},}}"), |max| format!("{{{min},{max}}}"));
        self.out.push_str(&braces);
        Ok(())
    }

    /// Reads what stands between a `(` and what the group holds, or flags to their end.
    fn open_group(&mut self, start: usize) -> Result<(), Fault> {
        let flags = self.flags;
        if self.eat("?P<") || self.eat("?<") {
            // Names may begin with a digit and be given twice, as in Go.
            let name = self.until(">");
            let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            if !is_name || !self.eat(">") {
                return Err(Fault("invalid named capture", start));
            }
        } else if self.eat("?") && self.read_flags(start)? == ')' {
            return Ok(());
        }
        self.out.push_str("(?:");
        let group = Group { start, flags, folding: self.folding, ..Group::default() };
        self.outer.push(std::mem::replace(&mut self.group, group));
        Ok(())
    }

    /// Reads flags and the `:` or `)` behind them, which it gives.
    fn read_flags(&mut self, start: usize) -> Result<char, Fault> {
        let mut flags = self.flags;
        let mut on = true;
        let mut before = '?';
        while let Some(c) = self.next() {
            match c {
                'i' => flags.fold = on,
                'm' => flags.lines = on,
                's' => flags.dot_all = on,
                'U' => {}
                '-' if on => on = false,
                ':' | ')' if before != '-' => {
                    self.flags = flags;
                    return Ok(c);
                }
                _ => break,
            }
            before = c;
        }
        Err(Fault("invalid or unsupported Perl syntax", start))
    }

    fn close_group(&mut self, start: usize) -> Result<(), Fault> {
        let outer = self.outer.pop().ok_or(Fault("unexpected )", start))?;
        let mut group = std::mem::replace(&mut self.group, outer);
        group.go_on(None);
        self.group.go_on(Some(group.copies));
        (self.flags, self.folding) = (group.flags, group.folding);
        self.out.push(')');
        Ok(())
    }

    /// Reads what stands behind a backslash outside brackets.
    fn escape(&mut self, start: usize) -> Result<(), Fault> {
        for (letter, meant) in [("A", r"\A"), ("z", r"\z"), ("b", r"(?-u:\b)"), ("B", r"(?-u:\B)")] {
            if self.eat(letter) {
                self.atom(meant);
                return Ok(());
            }
        }
        if self.eat("Q") {
            self.until(r"\E").chars().for_each(|c| self.literal(c.into()));
            self.eat(r"\E");
        } else if let Some(items) = self.escaped_class(start)? {
            self.atom(&format!("[{items}]"));
        } else {
            let c = self.escaped_char(start)?;
            self.literal(c);
        }
        Ok(())
    }

    /// Reads what stands behind the backslash of `\d`, `\p{Greek}` and the like, and gives class items for it.
    fn escaped_class(&mut self, start: usize) -> Result<Option<String>, Fault> {
        let classes = [
            ("d", "[:digit:]"),
            ("D", "[:^digit:]"),
            ("s", r"\t\n\f\r "),
            ("S", r"[^\t\n\f\r ]"),
            ("w", "[:word:]"),
            ("W", "[:^word:]"),
        ];
        if let Some((_, items)) = classes.iter().find(|(letter, _)| self.eat(letter)) {
            return Ok(Some((*items).to_owned()));
        }
        let positive = self.eat("p");
        if !positive && !self.eat("P") {
            return Ok(None);
        }
        let from = self.at;
        let name =
            if self.eat("{") { self.until("}") } else { self.next().map_or("", |_| &self.source[from..self.at]) };
        if self.source[from..].starts_with('{') && !self.eat("}") {
            return Err(Fault(BAD_CLASS, start));
        }
        self.count_wide_class(start)?;
        let (positive, name) = name.strip_prefix('^').map_or((positive, name), |name| (!positive, name));
        unicode_class(name, positive).map(Some).ok_or(Fault(BAD_CLASS, start))
    }

    fn count_wide_class(&mut self, start: usize) -> Result<(), Fault> {
        self.wide_classes += 1;
        self.wide_bytes += if self.flags.fold { FOLDED_CLASS_BYTES } else { WIDE_CLASS_BYTES };
        if self.wide_classes > MAX_WIDE_CLASSES { Err(Fault(TOO_LARGE, start)) } else { Ok(()) }
    }

    /// Reads a class behind its `[`. Only ranges, escapes and POSIX classes mean something in it; a first `]` does not.
    fn class(&mut self, start: usize) -> Result<(), Fault> {
        let mut class = String::from(if self.eat("^") { "[^" } else { "[" });
        let mut first = true;
        while first || !self.eat("]") {
            first = false;
            let from = self.at;
            if let Some(items) = self.posix_class()? {
                class.push_str(items);
                continue;
            }
            if self.eat(r"\") {
                if let Some(items) = self.escaped_class(from)? {
                    class.push_str(&items);
                    continue;
                }
                self.at = from;
            }
            let low = self.class_char(start)?;
            let is_range = self.rest().len() > 1 && !self.rest().starts_with("-]") && self.eat("-");
            let high = if is_range { self.class_char(start)? } else { low };
            if low > high {
                return Err(Fault(BAD_CLASS, from));
            }
            if self.flags.fold && high - low > 0xFF {
                self.count_wide_class(from)?;
            }
            // Surrogates at an end: see `literal`.
            let low = char::from_u32(low).unwrap_or('\u{E000}');
            let high = char::from_u32(high).unwrap_or('\u{D7FF}');
            let item = format!(r"\x{{{:X}}}-\x{{{:X}}}", u32::from(low), u32::from(high));
            class.push_str(if low > high { NOTHING } else { &item });
        }
        class.push(']');
        self.atom(&class);
        Ok(())
    }

    /// Reads `[:alpha:]` inside brackets. As in Go, what starts like one and has a `:]` anywhere behind it must be one.
    fn posix_class(&mut self) -> Result<Option<&'a str>, Fault> {
        let start = self.at;
        if self.last_posix_end.is_none_or(|end| end < start + 2) || !self.eat("[:") {
            return Ok(None);
        }
        let name = self.until(":]");
        self.eat(":]");
        let is_known = POSIX_CLASSES.contains(&name.strip_prefix('^').unwrap_or(name));
        if is_known { Ok(Some(&self.source[start..self.at])) } else { Err(Fault(BAD_CLASS, start)) }
    }

    fn class_char(&mut self, class: usize) -> Result<u32, Fault> {
        let start = self.at;
        match self.next() {
            Some('\\') => self.escaped_char(start),
            Some(c) => Ok(c.into()),
            None => Err(Fault("missing closing ]", class)),
        }
    }

    /// Reads what stands behind the backslash of a single character, which may be a surrogate.
    fn escaped_char(&mut self, start: usize) -> Result<u32, Fault> {
        let c = self.next().ok_or(Fault("trailing backslash at end of expression", start))?;
        let code = match c {
            'a' => Some(0x07),
            't' => Some(0x09),
            'n' => Some(0x0A),
            'v' => Some(0x0B),
            'f' => Some(0x0C),
            'r' => Some(0x0D),
            'x' if self.eat("{") => {
                let digits = self.until("}");
                number(digits, 16).filter(|c| *c <= u32::from(char::MAX) && self.eat("}"))
            }
            'x' => {
                let digits = self.rest().get(..2);
                self.at += digits.map_or(0, str::len);
                digits.and_then(|digits| number(digits, 16))
            }
            '0'..='7' => {
                let octal = |b: &u8| matches!(b, b'0'..=b'7');
                self.at += self.rest().bytes().take(2).take_while(octal).count();
                let digits = &self.source[start + 1..self.at];
                // One other than zero on its own would be a back-reference.
                if digits.len() > 1 || c == '0' { number(digits, 8) } else { None }
            }
            _ => (c.is_ascii() && !c.is_ascii_alphanumeric()).then_some(c.into()),
        };
        code.ok_or(Fault("invalid escape sequence", start))
    }
}

/// What the digits say: no sign is one. What is too large for the type is too large for every use.
fn number(digits: &str, radix: u32) -> Option<u32> {
    let is_number = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    is_number.then(|| u32::from_str_radix(digits, radix).unwrap_or(u32::MAX))
}

/// A count in braces, where leading zeros are not allowed.
fn count(digits: &str) -> Option<u32> {
    number(digits, 10).filter(|_| digits == "0" || !digits.starts_with('0'))
}

/// The class item for a category or script, or for all others, if Go knows the name. Go ignores case, `_`, `-` and blanks
/// in names; the crate ignores more, and has properties and codes that Go has not.
fn unicode_class(name: &str, positive: bool) -> Option<String> {
    let name = name.replace(['_', '-', ' '], "").to_ascii_lowercase();
    if name == "cs" || name == "surrogate" {
        return Some(if positive { NOTHING } else { ANYTHING }.to_owned());
    }
    if !name.bytes().all(|b| b.is_ascii_lowercase()) || name.starts_with("is") {
        return None;
    }
    let sign = if positive { 'p' } else { 'P' };
    let category = format!(r"\{sign}{{gc={name}}}");
    let script = format!(r"\{sign}{{sc={name}}}");
    // To ask is cheap: of the class, next to nothing is left to be compiled.
    let known = |item: &str| syntax::parse(&format!("[{item}&&a]")).is_ok();
    if known(&category) {
        return Some(category);
    }
    let is_code = name.len() == 4 && !FOUR_LETTER_SCRIPTS.contains(&name.as_str());
    (!is_code && known(&script)).then_some(script)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Json;

    #[test]
    fn constructs_mean_what_they_mean_in_go() {
        // A pattern, texts that it fits from end to end, texts that it does not.
        let table: &[(&str, &[&str], &[&str])] = &[
            (r"a.b", &["axb", "a\rb", "a😀b"], &["a\nb", "ab"]),
            (r"(?s)a.(?-s:.*)", &["a\n", "aéa"], &["a\n\n"]),
            (r"[\d][^\D]\d", &["059"], &["٣٣٣"]),
            (r"\w+", &["aZ_09"], &["é", "ſ", "-", "\u{212a}"]),
            (r"(?i)\w+", &["ſ\u{212a}"], &["é"]),
            (r"\W\D\S", &["éé\u{a0}", "-_\u{b}"], &["aaa", "-0a", "-a\t"]),
            (r"[\W][\D][\S]", &["éé\u{a0}"], &["aaa", "-0a", "-a\t"]),
            (r"\s+", &["\t\n\u{c}\r "], &["\u{b}", "\u{a0}", "\u{85}"]),
            (r"\a\f\t\n\r\v", &["\u{7}\u{c}\t\n\r\u{b}"], &[]),
            (r"\x41\x{42}\x{0001F600}\x7F", &["AB😀\u{7f}"], &[]),
            (r"\101\0\08\178\400", &["A\0\08\u{f}8Ā"], &[]),
            (r"\.\-\_\ \\\{\]\/", &[r".-_ \{]/"], &[]),
            (r"\Qa.b\*\E+\Q.\E", &[r"a.b\*.", r"a.b\**."], &["axb*."]),
            (r"\x{D800}|[\x{DC00}]|\p{Cs}", &[], &["\u{fffd}", "", "a"]),
            (r"[\x{D700}-\x{DFFF}]\P{Cs}", &["\u{d7ff}\u{e000}"], &["\u{e000}a"]),
            // Brackets.
            (r"[]a-]+", &["a-]"], &["b"]),
            (r"[^]a]", &["b", "\n", "é", "😀"], &["]", "a", ""]),
            (r"[+--]+[a~~b]", &["+,-~"], &["a~", "+.~"]),
            (r"[a&&b]+", &["ab&"], &["c"]),
            (r"[[a~~[]+]", &["[~a]"], &["a", "]]"]),
            (r"[\d-z]+", &["0-z"], &["a"]),
            (r"[[:alpha:]_]+", &["aZ_"], &["é", "0", ":"]),
            (r"[[:^alpha:][:digit:]]+", &["é0-"], &["a"]),
            (r"[:word:]+", &["word:"], &["a", "["]),
            (r"[[:word]+", &["[:word"], &["a"]),
            (r"[^[:^upper:]\d]", &["A"], &["a", "É", "0"]),
            (r"[^\x00-\x{10FFFF}]", &[], &["", "a", "é"]),
            // Unicode.
            (r"\pL\pl\p{Greek}\p{Lu}", &["éaαΩ"], &["0aαΩ", "éaαω"]),
            (r"\PN\P{^N}\p{^Greek}[\P{Lu}]", &["a0aa"], &["00aa"]),
            (r"\p{greek}\p{Old_Italic}?\p{ Lower-case Letter }\p{LC}", &["αaǅ"], &[]),
            (r"\p{Any}\p{Thai}\p{^ASCII}\p{Miao}?", &["\nกé"], &["aaé"]),
            (r"(?i)straße\b", &["STRAßE"], &["strasse"]),
            (r"(?i)[k-l]σ", &["KΣ", "\u{212a}ς", "lσ"], &["mσ"]),
            (r"(?i)[^k]\p{Lu}", &["ab"], &["\u{212a}b"]),
            (r"a(?i)b(?-i)c|d(?i:e)f", &["aBc", "dEf"], &["ABc", "aBC", "deF"]),
            (r"(a(?i)b|c)d", &["aBd", "Cd"], &["abD", "AbD"]),
            // Places.
            (r"(?m)a$\n^b", &["a\nb"], &["a\rb"]),
            (r"a$\n^b|(?m)(?-m:$)\n", &[], &["a\nb", "\n"]),
            (r"\Aa\b\Bé?\z", &[], &["a", "aé"]),
            (r"é\Bé\b.", &["ééa"], &["ééé"]),
            // Repetition and groups.
            (r"a{2}b{1,}c{0,1}?d{0}e??", &["aabbc", "aabe"], &["abc", "aabcc", "aabd"]),
            (r"{a{,2}x{01}{1,x", &["{a{,2}x{01}{1,x"], &["a"]),
            (r"a+(?i)?", &["", "aa"], &["A"]),
            (r"a{2}(?i){2}(?s)*", &["", "aaaa"], &["aa"]),
            (r"(?U)a+?(?-U)b*?", &["aab"], &["b"]),
            (r"^*(|a)+(?:)?$*", &["", "aa"], &["b"]),
            (r"(?P<n>a)(?<1_>b)(?P<n>c)", &["abc"], &["ab"]),
            (r"(?)a(?:)(?i-sm:B)|", &["ab", "aB", ""], &["a"]),
            (r"(?:a{1000}){0}(?:(?:b{500}){0}c){1000}?", &[&"c".repeat(1000)], &["b"]),
        ];
        for (pattern, fits, others) in table {
            let whole = Re2Pattern::new(&format!(r"\A(?:{pattern})\z")).unwrap();
            for (texts, expected) in [(fits, true), (others, false)] {
                texts.iter().for_each(|text| assert_eq!(whole.is_match(text), Ok(expected), "{pattern} on {text:?}"));
            }
        }
        let part = |pattern: &str, text| Re2Pattern::new(pattern).unwrap().is_match(text).unwrap();
        assert!(part("b", "abc") && part("", "") && part("b$", "a\nb") && part("(?m)a$", "a\nb"));
        assert!(!part("^b", "a\nb") && !part("a$", "a\n"));
        // No place inside a character is one, nor does it hide a match.
        assert!(
            !part(r"\B", "aéa")
                && part(r"é|\B", "aéa")
                && part(r"\B", "éa")
                && part(r"\b", "éa")
                && part(r"a\Q\b", r"a\b")
        );
    }

    #[test]
    fn what_go_refuses_is_refused_with_its_place() {
        // A message and patterns for which it is given; an arrow shows where.
        let table = [
            ("missing closing )", "→( a→(b →((a) →(?i:a →(?P<n>a"),
            ("unexpected )", "→) é→) (a)→)"),
            ("missing closing ]", "a→[b →[ →[] →[^] →[[:alpha:] →[a-"),
            ("invalid character class range", r"[→z-a] [a→[:foo:]] [→[:a]:] [→b-[:digit:]] →\pQ →\p →\p{} a→\p{Foo}"),
            ("invalid character class range", r"→\p{Greek →\p{Grek} →\p{sc=Greek} →\p{Alphabetic} →\p{IsGreek} →\p^"),
            ("invalid escape sequence", r"→\Z →\u0041 →\h →\K →\G →\R →\X →\C →\cA →\e →\é a→\1 (a)→\9 →\k<n>"),
            ("invalid escape sequence", r"[→\b] [→\Qa\E] [a-→\d] →\x →\x4 →\x{} →\x{+41} →\x{110000} →\x{41 →\xéé"),
            ("trailing backslash at end of expression", r"a→\ \\→\"),
            ("missing argument to repetition operator", r"→* →+a →{2} (→*) a|→? (?i)→* \Q\E→*"),
            ("invalid nested repetition operator", "a*→* a+→+ a?→+ a??→? a{2}→{3} a+→{2}"),
            ("invalid repeat count", "a→{1001} a→{1,1001} a→{2,1} a→{99999999999} (?:a{34})→{30} (a{500}|b{2,})→{3}"),
            (
                "invalid or unsupported Perl syntax",
                "→(? a→(?=b) →(?!a) →(?>a) →(?#a) →(?P=n) →(?P>n) →(?x) →(?u:a) →(?|a)",
            ),
            ("invalid or unsupported Perl syntax", "→(?-) →(?i-) →(?-:a) →(?--i) →(?i →(?^:a) →(?(1)a) →(?'n'a) →(?R)"),
            ("invalid named capture", "→(?P<>a) →(?<n →(?<é>a) →(?<a-b>a) →(?<=a) →(?<!a>b)"),
        ];
        for (message, patterns) in table {
            for written in patterns.split(' ') {
                let error = Re2Pattern::new(&written.replace('→', "")).unwrap_err();
                assert_eq!(
                    (error.message, Some(error.at - 1)),
                    (message, written.chars().position(|c| c == '→')),
                    "{written}"
                );
            }
        }
        let error = Re2Pattern::new("a(b").unwrap_err();
        assert_eq!(error.to_string(), r#""a(b" is no pattern: missing closing ): at character 2"#);
    }

    #[test]
    fn vectors_get_the_expected_answer() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/framework-regex.json");
        let vectors = Json::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
        let mut count = 0;
        for vector in vectors.as_array().unwrap() {
            let given = vector.get("given").unwrap();
            let assertion = &given.get("case").unwrap().get("assertions").unwrap().as_array().unwrap()[0];
            // One vector has neither: the file is refused.
            let Some(pattern) = assertion.get("pattern").or(assertion.get("value")) else { continue };
            let text = given.get("response").unwrap().get("response").unwrap();
            let found = Re2Pattern::new(pattern.as_str().unwrap())
                .is_ok_and(|pattern| pattern.is_match(text.as_str().unwrap()).unwrap());
            let passed = vector.get("expect").unwrap().get("status").unwrap().as_str() == Some("passed");
            assert_eq!(found, passed, "{vector}");
            count += 1;
        }
        assert_eq!(count, 24);
    }

    #[test]
    fn what_is_too_much_is_refused_soon() {
        let whole = |pattern: &str| {
            let error = Re2Pattern::new(pattern).unwrap_err();
            assert!(error.to_string().chars().count() < 500, "{error}");
            error.message
        };
        assert_eq!(whole(&"é".repeat(40_000)), "it is longer than 64 KiB");
        for (open, close) in [("(", ")"), ("(?:", ")*"), ("(a|b", "c)+"), ("", "+(?i)")] {
            let nested = |n| format!("{}x{}", open.repeat(n), close.repeat(n));
            assert!(Re2Pattern::new(&nested(50)).is_ok());
            assert_eq!(whole(&nested(8_000)), "expression nests too deeply", "{open}");
        }
        for unit in [r"\pL", r"(?i)[!-￿]", "[^a]{1000}", "(a{1000}|b)"] {
            assert_eq!(whole(&unit.repeat(60_000 / unit.len())), "expression too large", "{unit}");
        }
        assert_eq!(whole(&"[[:".repeat(20_000)), "missing closing ]");
        let linear = Re2Pattern::new("^(?:a*)*(?:a|a)*(a?){50}b$").unwrap();
        assert_eq!(linear.is_match(&"a".repeat(100_000)), Ok(false));
    }

    #[test]
    fn a_match_is_stopped_and_ordinary_patterns_are_not() {
        let mut random = fastrand::Rng::with_seed(1);
        let text: String = (0..200_000).map(|_| if random.bool() { 'a' } else { 'b' }).collect();
        // Where each of the last thousand letters may be the one that the rest is counted from, each byte is new work
        // for each state. Without a limit that goes on for a minute.
        for pattern in ["[ab]*a[ab]{900}[^ab]", "[^c]*a[^c]{1000}c"] {
            let compiled = Re2Pattern::new(pattern).unwrap();
            let before = std::time::Instant::now();
            assert_eq!(compiled.is_match(&text), Err(PatternError::TooSlow { pattern: pattern.into() }));
            assert!(before.elapsed().as_secs() < 3, "{pattern}: {:?}", before.elapsed());
            assert_eq!(compiled.is_match("xyz"), Ok(false), "it is as good as new");
        }
        let error = Re2Pattern::new("[ab]*a[ab]{900}[^ab]").unwrap().is_match(&text).unwrap_err();
        assert_eq!(error.to_string(), "pattern /[ab]*a[ab]{900}[^ab]/ took more than 250 ms of CPU time");
        for (pattern, found) in [(r"\bab+a\b", false), ("(?i)B{9}|A{9}", true), ("^[ab]+$", true), (r"c\d+|\pN", false)]
        {
            assert_eq!(Re2Pattern::new(pattern).unwrap().is_match(&text), Ok(found), "{pattern}");
        }
    }

    #[test]
    fn what_is_kept_together_has_a_limit_together() {
        let refused = |pattern: &str, pool: &mut Pool| Re2Pattern::within(pattern, pool).unwrap_err().message;
        let mut pool = Pool::of(1 << 20);
        let kept: Vec<_> = (0..100).map_while(|_| Re2Pattern::within("[^a]{100}", &mut pool).ok()).collect();
        let bytes: usize = kept.iter().map(|pattern| pattern.compiled.bytes()).sum();
        assert!((900 << 10..=1 << 20).contains(&bytes), "{} patterns of {bytes} bytes", kept.len());
        assert_eq!(refused("a", &mut pool), FULL, "that the next one is small does not matter: it is plain which fit");
        assert!(Re2Pattern::new("[^a]{100}").is_ok());

        // What is too large by itself has been paid for, too, and what takes long to read.
        let mut pool = Pool::of(MAX_COMPILED_BYTES + 1_000);
        assert_eq!(refused(&"[^a]{1000}".repeat(10), &mut pool), TOO_LARGE);
        assert_eq!(refused("[^a]{10}", &mut pool), FULL);
        let mut pool = Pool::of(2 * FOLDED_CLASS_BYTES);
        assert_eq!(refused(&r"(?i)[\x{0}-\x{10FFFF}]".repeat(2), &mut pool), FULL);
        assert!(Re2Pattern::within(r"\pL\pL", &mut Pool::of(2 * FOLDED_CLASS_BYTES)).is_ok());
    }

    /// A pattern by chance, in the syntax of both.
    fn any_pattern(random: &mut fastrand::Rng, depth: u32) -> String {
        const ATOMS: [&str; 26] = [
            "a", "b", "ab", "é", "😀", ".", r"\b", r"\B", "^", "$", r"\A", r"\z", r"\d", r"\w", r"\W", r"\s", "[ab]",
            "[^a]", "[a-cé]", "[^é]", r"\pL", r"\PL", "(?i:a)", "(?m:^)", "(?m:$)", "(?s:.)",
        ];
        const COUNTS: [&str; 9] = ["*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?", "{0}"];
        if depth == 0 {
            return ATOMS[random.usize(..ATOMS.len())].to_owned();
        }
        let mut part = || any_pattern(random, depth - 1);
        let parts = [part(), part(), part()];
        match random.u32(..6) {
            0 => parts.concat(),
            1 => parts[..2].concat(),
            2 => format!("(?:{}|{})", parts[0], parts[1]),
            3 => format!("(?:{}|){}", parts[0], parts[1]),
            4 => parts[0].clone(),
            _ => format!("(?:{}){}", parts[0], COUNTS[random.usize(..COUNTS.len())]),
        }
    }

    #[test]
    fn what_is_found_is_what_the_regex_crate_finds() {
        const LETTERS: [&str; 9] = ["a", "b", "A", "é", "😀", "\n", " ", "0", "_"];
        const ROUNDS: usize = 300;
        let mut random = fastrand::Rng::with_seed(7);
        let mut found = [0, 0];
        for _ in 0..ROUNDS {
            let pattern = any_pattern(&mut random, 3);
            let Ok(compiled) = Re2Pattern::new(&pattern) else { continue };
            let (translated, _) = Translator { source: &pattern, ..Translator::default() }.translate().ok().unwrap();
            let other = regex::Regex::new(&translated).unwrap();
            for _ in 0..20 {
                let text: String = (0..random.usize(..12)).map(|_| LETTERS[random.usize(..LETTERS.len())]).collect();
                // Its `is_match` overlooks a match behind an empty one inside a character: `é|\B` on "aéa".
                let expected = other.find(&text).is_some();
                found[usize::from(expected)] += 1;
                assert_eq!(compiled.is_match(&text), Ok(expected), "{pattern} on {text:?}");
            }
        }
        assert!(found.iter().all(|count| *count > ROUNDS), "{found:?}");
    }
}
