//! A pattern of Go's → the narrow part of the `regex` crate's syntax that leaves nothing open.

use regex_automata::util::syntax;

use super::TOO_LARGE;

/// How often a repetition, with those inside it, may ask for the same thing, as in Go.
const MAX_COPIES: u32 = 1_000;

/// Classes in a pattern that take long to spell out: those of Unicode, and long ranges where letter case does not
/// count. That happens before the limit on memory is looked at, and takes up to ten milliseconds each.
const MAX_WIDE_CLASSES: usize = 200;

/// What such a class takes from the pool beside its memory, in bytes, for its time; and where letter case does not
/// count, which is what takes the time.
const WIDE_CLASS_BYTES: usize = 16 << 10;
pub(super) const FOLDED_CLASS_BYTES: usize = 128 << 10;

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

/// What is wrong, and the byte where it starts.
pub(super) struct Fault(pub(super) &'static str, pub(super) usize);

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

/// Reads a pattern as Go does, and writes it anew.
#[derive(Default)]
pub(super) struct Translator<'a> {
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
    /// A translator of a pattern, of which nothing is read yet.
    pub(super) fn new(source: &'a str) -> Self {
        Self { source, last_posix_end: source.rfind(":]"), ..Self::default() }
    }

    /// The translation, and what its wide classes take from the pool.
    pub(super) fn translate(mut self) -> Result<(String, usize), Fault> {
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

/// The class item for a category or script, or for all others, if Go knows the name. Go ignores case, `_`, `-` and
/// blanks in names; the crate ignores more, and has properties and codes that Go has not.
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
