//! RE2 patterns: what Go's `regexp.MatchString` says, in time linear in the text.
//!
//! The patterns of the Agent Test Framework are Go's. The `regex` crate comes from the same root and never
//! backtracks either, but its language differs: `\d`, `\w`, `\s` and `\b` are Unicode's there, classes nest and
//! have operators, some of its escapes and flags are errors in Go, and Go's lone `{` is an error to it. So a
//! scanner reads a pattern the way Go's parser does and writes it anew, in the narrow part of the crate's syntax
//! that leaves nothing open. What classes hold, which letters are the same but for their case, and the automata are
//! the crate's business.
//!
//! Linear time may still be long: a match is stopped after [`CPU_LIMIT`](super::pattern::CPU_LIMIT). It blocks its
//! thread for up to that, so code that runs on an async runtime calls it on a blocking thread.
//!
//! Only whether there is a match is asked for. Groups therefore capture nothing, and which of several matches a
//! repetition prefers (`*?`, the flag `U`) is read and forgotten.

mod translator;

use std::sync::Arc;

use regex_automata::util::syntax;

use super::automaton::{Automaton, Deadline, Pool, Refused};
use super::pattern::PatternError;
use translator::{Fault, Translator};

/// Longest pattern, in bytes.
pub const MAX_PATTERN_BYTES: usize = 64 << 10;

/// Memory that a compiled pattern may take, in bytes.
const MAX_COMPILED_BYTES: usize = 2 << 20;

/// How deep groups, repetitions, sequences and alternatives may nest. Go allows 1,000, in another count; compiling that
/// takes more stack than the 2 MiB of a thread when the crate is built without optimization.
const MAX_NESTING: u32 = 250;

// What Go says, too.
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
        let (translated, wide_bytes) = Translator::new(source)
            .translate()
            .map_err(|Fault(message, at)| error(message, source[..at].chars().count() + 1))?;
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

#[cfg(test)]
mod tests {
    use super::translator::FOLDED_CLASS_BYTES;
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
            let (translated, _) = Translator::new(&pattern).translate().ok().unwrap();
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
