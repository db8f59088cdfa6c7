//! JavaScript patterns: what `new RegExp(source)` means, without flags, and within limits.
//!
//! Patterns of the Eval Runner Contract are JavaScript's, down to what `\d`, `\b`, `$` and a lone `{` mean there, and
//! anybody may write one that never ends. No regex crate gives JavaScript's answers and can be stopped, so the `RegExp`
//! of a real engine does the matching: QuickJS, one runtime a thread, interrupted after [`CPU_LIMIT`].
//!
//! Matching blocks its thread for up to the limit: code that runs on an async runtime calls it on a blocking thread.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rquickjs::context::intrinsic::{RegExp, RegExpCompiler};
use rquickjs::function::{Constructor, This};
use rquickjs::{Context, Ctx, Function, Object, Persistent, Runtime};

use crate::work::{cpu_time, is_over};

/// CPU time of the thread that one match may take, whatever the language of the pattern.
pub const CPU_LIMIT: Duration = Duration::from_millis(250);

/// Longest pattern, in characters.
pub const MAX_PATTERN_CHARS: usize = 10_000;

/// Longest text that is looked at, in bytes.
pub const MAX_TEXT_BYTES: usize = 64 << 20;

/// Longest text that is looked at with a pattern that has back-references, in bytes. The engine looks at the clock
/// every 10,000 steps, and to compare a back-reference is one step however much its group holds: on a text of 64
/// KiB the worst pattern is stopped after half a second, on one of this length after some seconds, on longer ones
/// too late.
pub const MAX_TEXT_BYTES_REFERRED: usize = 1 << 20;

/// Memory of a runtime: so much for whatever text, and as many bytes more for each byte of it as a greedy loop over the
/// whole text keeps, up to a limit.
const BASE_MEMORY: usize = 64 << 20;
const MEMORY_PER_TEXT_BYTE: usize = 32;
const MAX_MEMORY: usize = 512 << 20;

/// The engine refuses patterns that nest deeper than this much stack; the threads of tokio and of tests have 2 MiB.
const MAX_STACK: usize = 512 << 10;

/// Compiled patterns that a thread keeps, and the bytes of all their sources.
const MAX_COMPILED: usize = 1_000;
const MAX_COMPILED_BYTES: usize = 1 << 20;

/// What JavaScript calls `SyntaxCharacter`: whatever else stands in a pattern stands for itself.
const SYNTAX_CHARACTERS: [char; 14] = ['^', '$', '\\', '.', '*', '+', '?', '(', ')', '[', ']', '{', '}', '|'];

/// The place of an error is looked for in patterns of up to this many characters.
const MAX_PLACE_CHARS: usize = 1_000;

/// A JavaScript pattern without flags. Cheap to clone; compiled where and when it is first used.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct JsPattern {
    source: Arc<str>,
}

/// Why a pattern gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It does not compile.
    #[error("{} is not a JavaScript pattern: {message}{}", Shown(.pattern), Mark(.pattern, *.place))]
    Invalid {
        /// The pattern.
        pattern: Arc<str>,
        /// What the engine says.
        message: String,
        /// Number of the character where it went wrong, counted from 1, if that is known.
        place: Option<usize>,
    },
    /// The match was stopped.
    #[error("pattern {} took more than {} ms of CPU time", Shown(.pattern), CPU_LIMIT.as_millis())]
    TooSlow {
        /// The pattern.
        pattern: Arc<str>,
    },
    /// The match was stopped.
    #[error("pattern {} took too much memory", Shown(.pattern))]
    TooMuchMemory {
        /// The pattern.
        pattern: Arc<str>,
    },
    /// The text is longer than [`MAX_TEXT_BYTES`], or [`MAX_TEXT_BYTES_REFERRED`] where that holds.
    #[error("the text for pattern {} is longer than {} MiB", Shown(.pattern), .limit >> 20)]
    TextTooLong {
        /// The pattern.
        pattern: Arc<str>,
        /// Most bytes that are looked at with this pattern.
        limit: usize,
    },
}

impl JsPattern {
    /// The pattern written as `source`, which is not looked at yet: see [`JsPattern::check`].
    #[must_use]
    pub fn new(source: &str) -> Self {
        Self { source: source.into() }
    }

    /// The pattern as written.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether the pattern compiles. Takes microseconds, but blocks: see the module.
    ///
    /// # Errors
    /// [`PatternError::Invalid`], with the place inside the pattern if it can be found.
    pub fn check(&self) -> Result<(), PatternError> {
        self.with_engine(0, |engine| engine.compiled(self).map(|_| ()))
    }

    /// What `new RegExp(source).test(text)` says. Blocks for up to [`CPU_LIMIT`]: see the module.
    ///
    /// # Errors
    /// When the pattern does not compile, takes too much time or memory, or the text is too long.
    pub fn is_match(&self, text: &str) -> Result<bool, PatternError> {
        let limit = if self.refers_back() { MAX_TEXT_BYTES_REFERRED } else { MAX_TEXT_BYTES };
        if text.len() > limit {
            return Err(PatternError::TextTooLong { pattern: self.source.clone(), limit });
        }
        if self.is_plain() {
            return Ok(text.contains(&*self.source));
        }
        self.with_engine(text.len(), |engine| {
            let regexp = engine.compiled(self)?;
            engine.test(regexp, text).map_err(|failure| self.error(failure))
        })
    }

    /// Whether every character stands for itself, so that looking for the pattern needs no engine. Both texts are
    /// well-formed: the same characters are the same UTF-16 code units, and the other way round.
    fn is_plain(&self) -> bool {
        self.source.len() <= MAX_PATTERN_CHARS && !self.source.contains(SYNTAX_CHARACTERS)
    }

    /// Whether there may be a back-reference in the pattern.
    fn refers_back(&self) -> bool {
        let mut bytes = self.source.bytes();
        // What follows a backslash is passed over with it: it may be one itself.
        while bytes.any(|byte| byte == b'\\') {
            if bytes.next().is_some_and(|byte| matches!(byte, b'1'..=b'9' | b'k')) {
                return true;
            }
        }
        false
    }

    /// Runs `job` on the engine of this thread with fresh limits. An engine that reached a limit is thrown away: what
    /// an interrupt or a failed allocation left behind is nobody's concern then.
    fn with_engine<T>(
        &self,
        text_bytes: usize,
        job: impl FnOnce(&mut Engine) -> Result<T, PatternError>,
    ) -> Result<T, PatternError> {
        thread_local! {
            static ENGINE: RefCell<Option<Engine>> = const { RefCell::new(None) };
        }
        let kept = ENGINE.with_borrow_mut(Option::take);
        let mut engine = match kept {
            Some(engine) => engine,
            None => Engine::new().map_err(|_| self.error(Failure::Memory))?,
        };
        engine.set_limits(text_bytes);
        let result = job(&mut engine);
        if !matches!(result, Err(PatternError::TooSlow { .. } | PatternError::TooMuchMemory { .. })) {
            ENGINE.with_borrow_mut(|kept| *kept = Some(engine));
        }
        result
    }

    fn error(&self, failure: Failure) -> PatternError {
        let pattern = self.source.clone();
        match failure {
            Failure::Syntax(message) => PatternError::Invalid { pattern, message, place: None },
            Failure::Time => PatternError::TooSlow { pattern },
            Failure::Memory => PatternError::TooMuchMemory { pattern },
        }
    }
}

/// What the engine reported in place of a value.
#[derive(Debug, PartialEq, Eq)]
enum Failure {
    Syntax(String),
    Time,
    Memory,
}

/// CPU time of the thread at which the engine stops, shared with its interrupt handler.
#[derive(Default)]
struct Deadline {
    at: Cell<Duration>,
    passed: Cell<bool>,
}

/// A compiled `RegExp`, or why there is none.
type Compiled = Result<Persistent<Object<'static>>, PatternError>;

/// A QuickJS runtime that knows nothing but `RegExp`, and the patterns compiled in it.
struct Engine {
    // The order is the order of dropping: values may not outlive their runtime, which the context keeps.
    compiled: HashMap<Arc<str>, Compiled>,
    compiled_bytes: usize,
    constructor: Persistent<Constructor<'static>>,
    test: Persistent<Function<'static>>,
    context: Context,
    deadline: Rc<Deadline>,
}

impl Engine {
    fn new() -> rquickjs::Result<Self> {
        let runtime = Runtime::new()?;
        runtime.set_max_stack_size(MAX_STACK);
        let deadline = Rc::new(Deadline::default());
        let shared = Rc::clone(&deadline);
        runtime.set_interrupt_handler(Some(Box::new(move || {
            shared.passed.set(shared.passed.get() || cpu_time() > shared.at.get() || is_over());
            shared.passed.get()
        })));
        let context = Context::custom::<(RegExpCompiler, RegExp)>(&runtime)?;
        let (constructor, test) = context.with(|ctx| {
            let constructor: Constructor = ctx.globals().get("RegExp")?;
            let prototype: Object = constructor.get("prototype")?;
            let test: Function = prototype.get("test")?;
            Ok::<_, rquickjs::Error>((Persistent::save(&ctx, constructor), Persistent::save(&ctx, test)))
        })?;
        Ok(Self { compiled: HashMap::new(), compiled_bytes: 0, constructor, test, context, deadline })
    }

    fn set_limits(&self, text_bytes: usize) {
        let memory = BASE_MEMORY.saturating_add(text_bytes.saturating_mul(MEMORY_PER_TEXT_BYTE)).min(MAX_MEMORY);
        self.context.runtime().set_memory_limit(memory);
        self.deadline.at.set(cpu_time().saturating_add(CPU_LIMIT));
        self.deadline.passed.set(false);
    }

    /// The pattern compiled, now or before.
    fn compiled(&mut self, pattern: &JsPattern) -> Compiled {
        let source = &pattern.source;
        if let Some(compiled) = self.compiled.get(source) {
            return compiled.clone();
        }
        if source.len() > MAX_PATTERN_CHARS && source.chars().count() > MAX_PATTERN_CHARS {
            let message = format!("it is longer than {MAX_PATTERN_CHARS} characters");
            return Err(pattern.error(Failure::Syntax(message)));
        }
        let compiled = match self.compile(source) {
            Ok(regexp) => Ok(regexp),
            Err(Failure::Syntax(message)) => {
                let place = self.place(source, &message);
                Err(PatternError::Invalid { pattern: source.clone(), message, place })
            }
            Err(failure) => return Err(pattern.error(failure)),
        };
        if self.compiled.len() >= MAX_COMPILED || self.compiled_bytes + source.len() > MAX_COMPILED_BYTES {
            self.compiled.clear();
            self.compiled_bytes = 0;
        }
        self.compiled_bytes += source.len();
        self.compiled.insert(source.clone(), compiled.clone());
        compiled
    }

    /// `new RegExp(source)`
    fn compile(&self, source: &str) -> Result<Persistent<Object<'static>>, Failure> {
        self.context.with(|ctx| {
            let construct = || self.constructor.clone().restore(&ctx)?.construct::<_, Object>((source,));
            construct().map(|regexp| Persistent::save(&ctx, regexp)).map_err(|_| self.failure(&ctx))
        })
    }

    /// `regexp.test(text)`
    fn test(&self, regexp: Persistent<Object<'static>>, text: &str) -> Result<bool, Failure> {
        self.context.with(|ctx| {
            let call = || self.test.clone().restore(&ctx)?.call((This(regexp.restore(&ctx)?), text));
            call().map_err(|_| self.failure(&ctx))
        })
    }

    /// What stands behind an error: nothing but a limit or the syntax of a pattern can be wrong here.
    fn failure(&self, ctx: &Ctx<'_>) -> Failure {
        let thrown = ctx.catch();
        if self.deadline.passed.get() {
            return Failure::Time;
        }
        // Memory that runs out while compiling is a SyntaxError, too, and there may be none left to say so.
        let exception = thrown.as_exception().filter(|error| {
            let name = error.get::<_, String>("name");
            name.is_ok_and(|name| name == "SyntaxError")
        });
        match exception.and_then(rquickjs::Exception::message) {
            Some(message) if message == "stack overflow" => Failure::Syntax("it nests too deep".to_owned()),
            Some(message) if !message.is_empty() && message != "out of memory" => Failure::Syntax(message),
            _ => Failure::Memory,
        }
    }

    /// Where compiling goes wrong: the engine reads from left to right, so it is at the end of the shortest beginning
    /// from which on, however much more of the pattern is read, the message is the same.
    fn place(&self, source: &str, message: &str) -> Option<usize> {
        let ends: Vec<usize> = source.char_indices().map(|(start, _)| start).collect();
        if ends.len() > MAX_PLACE_CHARS {
            return None;
        }
        let fails_alike = |end: usize| self.compile(&source[..end]) == Err(Failure::Syntax(message.to_owned()));
        // A beginning of n characters ends where character n + 1 starts.
        let longest_other = ends.iter().rposition(|end| cpu_time() > self.deadline.at.get() || !fails_alike(*end))?;
        Some(longest_other + 1)
    }
}

/// A pattern in a message, between slashes as JavaScript writes it.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, more) = first_chars(self.0, 200);
        write!(f, "/{start}{more}/")
    }
}

/// The place of an error in a pattern: behind the character, with what stands around it.
struct Mark<'a>(&'a str, Option<usize>);

impl fmt::Display for Mark<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const AROUND: usize = 30;
        let Some(place) = self.1 else { return Ok(()) };
        let end = self.0.char_indices().nth(place).map_or(self.0.len(), |(start, _)| start);
        let (before, after) = self.0.split_at(end);
        let (skipped, before) = match before.char_indices().rev().nth(AROUND - 1) {
            Some((start, _)) if start > 0 => ("…", &before[start..]),
            _ => ("", before),
        };
        let (after, more) = first_chars(after, AROUND);
        write!(f, " (character {place}: {skipped}{before} <-- HERE {after}{more})")
    }
}

/// At most `count` characters of a text, and an ellipsis if there are more.
fn first_chars(text: &str, count: usize) -> (&str, &'static str) {
    match text.char_indices().nth(count) {
        Some((end, _)) => (&text[..end], "…"),
        None => (text, ""),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::json::Json;

    fn matches(pattern: &str, text: &str) -> bool {
        JsPattern::new(pattern).is_match(text).unwrap()
    }

    #[test]
    fn constructs_mean_what_they_mean_in_javascript() {
        let table: &[(&str, &str, bool)] = &[
            // Text and anchors.
            ("", "", true),
            ("", "abc", true),
            ("b", "abc", true),
            ("B", "abc", false),
            ("^b", "a\nb", false),
            ("a$", "a\n", false),
            ("^abc$", "abc", true),
            ("a\0b", "a\0b", true),
            ("\\0$", "a\0", true),
            ("a/b", "a/b", true),
            // The dot and line ends.
            ("^.$", "\n", false),
            ("^.$", "\r", false),
            ("^.$", "\u{2028}", false),
            ("^.$", "\u{2029}", false),
            ("^.$", "\u{85}", true),
            ("^[^]$", "\n", true),
            ("[]", "a", false),
            ("^[\\s\\S]$", "\n", true),
            // UTF-16 code units.
            ("^.$", "😀", false),
            ("^..$", "😀", true),
            ("^.\\ude00$", "😀", true),
            ("\\ud83d", "😀", true),
            ("^\\ud83d\\ude00$", "😀", true),
            ("😀", "a😀", true),
            ("^😀{2}$", "😀😀", false),
            ("^(?:😀){2}$", "😀😀", true),
            ("^[😀]$", "😀", false),
            ("^\\u{3}$", "uuu", true),
            ("^\\u{1F600}$", "😀", false),
            // Classes and escapes.
            ("^\\d$", "٣", false),
            ("^\\w+$", "café", false),
            ("^\\W$", "é", true),
            ("^\\s$", "\u{feff}", true),
            ("^\\s$", "\u{a0}", true),
            ("^\\s$", "\u{3000}", true),
            ("^\\s$", "\u{180e}", false),
            ("^[a-\\d]+$", "a-7", true),
            ("^[\\d-x]+$", "7-x", true),
            ("^[\\b]$", "\u{8}", true),
            ("\\bt\\u00e9\\b", "té", false),
            ("a\\B", "ab", true),
            ("^\\cJ$", "\n", true),
            ("^\\c1$", "\\c1", true),
            ("^[\\c]+$", "\\c", true),
            ("^\\x41\\x4$", "Ax4", true),
            ("^\\101$", "A", true),
            ("^\\8$", "8", true),
            ("^\\t\\n\\v\\f\\r$", "\t\n\u{b}\u{c}\r", true),
            ("^\\p{L}$", "é", false),
            ("^\\p{L}$", "p{L}", true),
            ("^[\\w.]+@[\\w.]+$", "a.b@c.d", true),
            // Elsewhere they mean something; here they are letters.
            ("^\\Aabc\\z$", "Aabcz", true),
            ("\\Aabc", "abc", false),
            ("abc\\Z", "abc", false),
            ("^[[:alpha:]]$", "a]", true),
            ("^[[:alpha:]]$", "a", false),
            ("^\\Qa.b\\E$", "QaxbE", true),
            ("^\\pL$", "pL", true),
            ("^\\h$", "h", true),
            ("^\\a$", "a", true),
            // Repetition.
            ("^a{2,3}$", "aaaa", false),
            ("^a{2,}$", "aaaa", true),
            ("a{,3}", "a{,3}", true),
            ("^x{1$", "x{1", true),
            ("^{{seed:x}}$", "{{seed:x}}", true),
            ("^a]}$", "a]}", true),
            ("^<.+?>$", "<a><b>", true),
            ("^(?:a?){3}a{3}$", "aaa", true),
            ("^(?:a*)*b$", "aab", true),
            // Groups, back-references, lookaround.
            ("(\\w+) \\1", "the the", true),
            ("^(?:(a)|b)*\\1$", "ab", true),
            ("^\\1(a)$", "a", true),
            ("^(a\\1)$", "a", true),
            ("^(?<year>\\d{4})-\\k<year>$", "2026-2026", true),
            ("(?<q>[\"']).*?\\k<q>", "say \"hi\"", true),
            ("^\\k<a>$", "k<a>", true),
            ("(?<año>x)\\k<año>", "xx", true),
            ("^(?:a|ab)(?:c|bcd)$", "abcd", true),
            ("foo(?=bar)", "foobar", true),
            ("^(?!.*error).*$", "an error", false),
            ("^(?=a)*$", "", true),
            ("(?<=USD )\\d+", "USD 42", true),
            ("(?<!-)\\b\\d+", "-5", false),
            ("(?<=a.*)b", "a--b", true),
            ("(?<=(\\d+)(\\d+))$", "1053", true),
            ("(?<=\\1(a))b", "aab", true),
            // Newer than Node 20, as in the standard of 2025.
            ("^(?i:PARIS)$", "paris", true),
            ("^(?:(?<d>a)|(?<d>b))\\k<d>$", "bb", true),
        ];
        for (pattern, text, expected) in table {
            let found = JsPattern::new(pattern).is_match(text);
            assert_eq!(found, Ok(*expected), "/{pattern}/ on {text:?}");
        }
    }

    #[test]
    fn what_is_no_javascript_is_refused_with_its_place() {
        let table: &[(&str, &str)] = &[
            ("(", "/(/ is not a JavaScript pattern: expecting ')' (character 1: ( <-- HERE )"),
            ("(a)(b", "/(a)(b/ is not a JavaScript pattern: expecting ')' (character 4: (a)( <-- HERE b)"),
            ("a**", "/a**/ is not a JavaScript pattern: nothing to repeat (character 3: a** <-- HERE )"),
            ("(?i)x", "/(?i)x/ is not a JavaScript pattern: expecting ':' (character 3: (?i <-- HERE )x)"),
        ];
        for (pattern, message) in table {
            let error = JsPattern::new(pattern).check().unwrap_err();
            assert_eq!(error.to_string(), *message);
            assert_eq!(JsPattern::new(pattern).is_match("x"), Err(error), "{pattern}");
        }
        let others = [
            ("(?s)a.b", 3),
            ("(?im)x", 3),
            ("(?P<n>a)", 2),
            ("(?P=n)", 2),
            ("(?>a)", 2),
            ("(?#c)a", 2),
            ("a++", 3),
            ("a?+", 3),
            ("a{2}{3}", 7),
            ("*a", 1),
            ("{1}", 3),
            ("a{2,1}b", 5),
            ("[b-a]", 4),
            ("[a", 1),
            ("a)b", 2),
            ("\\", 1),
            ("(?<1>a)", 3),
            ("(?<a>x)\\k<b>", 12),
            ("(?<a>x)(?<a>y)", 12),
            ("(?<=a)*", 7),
            ("é😀(", 3),
        ];
        for (pattern, expected) in others {
            match JsPattern::new(pattern).check() {
                Err(PatternError::Invalid { place, .. }) => assert_eq!(place, Some(expected), "{pattern}"),
                other => panic!("{pattern}: {other:?}"),
            }
        }
    }

    #[test]
    fn vectors_get_the_expected_answer() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
        let read = |name: &str| Json::parse(&std::fs::read_to_string(folder.join(name)).unwrap()).unwrap();
        let at = |json: &Json, path: &[&str]| {
            path.iter().try_fold(json.clone(), |json, key| match key.parse::<usize>() {
                Ok(index) => json.as_array()?.get(index).cloned(),
                Err(_) => json.get(key).cloned(),
            })
        };
        let passed = |vector: &Json| at(vector, &["expect", "passed"]).unwrap().is_truthy();
        let mut count = 0;
        for vector in read("contract-response-matches.json").as_array().unwrap() {
            let response = at(vector, &["given", "response", "response"]).unwrap();
            let patterns = at(vector, &["given", "case", "expect", "responseMatches"]).unwrap();
            let all = patterns.as_array().unwrap().iter().all(|pattern| {
                JsPattern::new(pattern.as_str().unwrap()).is_match(response.as_str().unwrap()).unwrap_or(false)
            });
            assert_eq!(all, passed(vector), "{vector}");
            count += 1;
        }
        for vector in read("contract-tool-params-matches.json").as_array().unwrap() {
            let pattern = at(vector, &["given", "case", "expect", "toolParams", "0", "value"]).unwrap();
            // Seeds are put in as they are.
            let seed =
                at(vector, &["given", "seed", "k"]).map_or(String::new(), |seed| seed.as_str().unwrap().to_owned());
            let pattern = pattern.as_str().unwrap().replace("{{seed:k}}", &seed);
            let text = match at(vector, &["given", "response", "toolCalls", "0", "params", "p"]) {
                None => "undefined".to_owned(),
                Some(param) if param.as_array().is_some() => param.stringify().replace(['[', ']'], ""),
                Some(param) => param.as_str().map_or_else(|| param.stringify(), str::to_owned),
            };
            assert_eq!(JsPattern::new(&pattern).is_match(&text).unwrap_or(false), passed(vector), "{vector}");
            count += 1;
        }
        assert_eq!(count, 46);
    }

    #[test]
    fn what_never_ends_is_stopped_and_the_thread_goes_on() {
        let catastrophes = [
            ("^(a+)+$", "a".repeat(40) + "b"),
            (r"^(.*)*\1(.*)*\2c$", "ab".repeat(40)),
            (r"^(a*)*\1b$", "a".repeat(40)),
        ];
        for (pattern, text) in catastrophes {
            let before = cpu_time();
            let result = JsPattern::new(pattern).is_match(&text);
            assert_eq!(result, Err(PatternError::TooSlow { pattern: pattern.into() }));
            let used = cpu_time().saturating_sub(before);
            assert!(used >= CPU_LIMIT && used < CPU_LIMIT * 2, "{used:?}");
            assert!(matches("^b(?=c)", "bc"));
        }
        let error = JsPattern::new("^(a+)+$").is_match(&("a".repeat(40) + "b")).unwrap_err();
        assert_eq!(error.to_string(), "pattern /^(a+)+$/ took more than 250 ms of CPU time");
    }

    #[test]
    fn memory_and_lengths_are_limited() {
        let text = "a".repeat(4 << 20);
        let result = JsPattern::new("^(a|b)*x").is_match(&text);
        assert!(matches!(result, Err(PatternError::TooMuchMemory { .. } | PatternError::TooSlow { .. })), "{result:?}");
        assert!(matches("^b(?=c)", "bc"));

        let text = "é".repeat(MAX_TEXT_BYTES / 2);
        assert!(matches("^é{3}", &text), "a long text is no trouble by itself");
        let result = JsPattern::new("b").is_match(&(text + "b"));
        assert!(matches!(result, Err(PatternError::TextTooLong { .. })), "{result:?}");

        let text = "a".repeat(MAX_TEXT_BYTES_REFERRED);
        assert!(matches(r"^(a)\1", &text));
        for pattern in [r"^(a)\1", r"^(?<n>a)\k<n>"] {
            let result = JsPattern::new(pattern).is_match(&format!("{text}a"));
            let limit = MAX_TEXT_BYTES_REFERRED;
            assert_eq!(result, Err(PatternError::TextTooLong { pattern: pattern.into(), limit }));
        }
        assert!(!matches(r"^a\\1", &format!("{text}a")), "this is a backslash and a digit");

        assert_eq!(JsPattern::new(&"é".repeat(MAX_PATTERN_CHARS)).check(), Ok(()));
        for pattern in ["é".repeat(MAX_PATTERN_CHARS + 1), "a".repeat(MAX_PATTERN_CHARS + 1)] {
            let error = JsPattern::new(&pattern).is_match(&pattern).unwrap_err();
            assert!(error.to_string().ends_with("…/ is not a JavaScript pattern: it is longer than 10000 characters"));
        }
        let nested = "(?:".repeat(2_400) + &")".repeat(2_400);
        assert!(matches!(JsPattern::new(&nested).check(), Err(PatternError::Invalid { .. })));
        assert_eq!(JsPattern::new(&("(?:".repeat(200) + &")".repeat(200))).check(), Ok(()));
    }

    #[test]
    fn running_out_of_memory_anywhere_leaves_nothing_behind() {
        let pattern = JsPattern::new("(?<a>x+)(?<b>y|z)*[\\wé]{2,9}(?<=é)(?:a|b|c)*$");
        let text = "xyzé".repeat(500) + "xxyyééabc";
        let mut stopped = [0, 0];
        for memory in (50_000..250_000).step_by(1_000) {
            let mut engine = Engine::new().unwrap();
            engine.set_limits(0);
            engine.context.runtime().set_memory_limit(memory);
            for _ in 0..3 {
                match engine.compiled(&pattern).map(|regexp| engine.test(regexp, &text)) {
                    Ok(Ok(true)) => {}
                    Ok(Err(Failure::Memory)) => stopped[1] += 1,
                    Err(PatternError::TooMuchMemory { .. }) => stopped[0] += 1,
                    other => panic!("{memory}: {other:?}"),
                }
            }
        }
        assert!(stopped.iter().all(|count| *count > 0), "{stopped:?}");
    }

    #[test]
    fn a_thread_keeps_what_it_compiled_up_to_a_limit() {
        let mut engine = Engine::new().unwrap();
        engine.set_limits(0);
        for n in 0..=MAX_COMPILED {
            engine.compiled(&JsPattern::new(&format!("a{n}$"))).unwrap();
        }
        assert_eq!(engine.compiled.len(), 1);
        engine.compiled(&JsPattern::new("(")).unwrap_err();
        assert_eq!(engine.compiled.len(), 2, "that it does not compile is kept, too");
        for n in 0..300 {
            engine.compiled(&JsPattern::new(&format!("{}{n}", r"\W".repeat(2_500)))).unwrap();
        }
        assert!(engine.compiled.len() < 300);
    }

    #[test]
    fn each_thread_has_its_own_engine() {
        let start = Instant::now();
        let pattern = JsPattern::new("^(?:a|b)+$");
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let pattern = pattern.clone();
                std::thread::spawn(move || pattern.is_match("abba"))
            })
            .collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), Ok(true));
        }
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}
