//! File text → [`Suite`], or all its errors at once. No I/O: a suite may come from a disk, a bundle or a generator.
//!
//! Two dialects share one model and are never mixed: a JSON array, or an object with `cases`, is the Eval Runner
//! Contract (`contract`); a stream of JSON objects is Agent Test Framework V2.

pub mod answers;
pub mod assertion;
pub mod automaton;
pub mod cases;
pub mod claim;
mod contract;
pub mod error;
mod expect;
pub mod framework;
pub mod identity;
pub mod path;
pub mod pattern;
pub mod re2;
mod reader;
pub mod script;
pub mod source;
pub mod spot;
mod stray;
pub mod stub;
pub mod template;
pub mod registry;
pub mod staleness;
pub mod text;
pub mod timeout;
pub mod times;

use crate::conversation::{JsonText, Message};
use crate::json::{Json, ParseError, Value, without_mark};
use crate::limits::SUITE_VALUES;
use assertion::Assertion;
use automaton::Pool;
use cases::{Extras, Head};
use claim::Claim;
use error::{Finding, SuiteErrors};
use script::{Hooks, ScriptRef};
use stub::Stub;
use template::Token;
use text::{HELD_BYTES, Text};
use timeout::Timeout;

pub use contract::{file_hash, max_turns as read_max_turns};

/// Model turns of a stubbed case whose `maxTurns` is not set (Eval Runner Contract, "Eval Case Fields"). The
/// contract gives a case without stubs none; if its author writes one all the same, it holds as far as the agent's
/// model turns can be counted.
pub const DEFAULT_MAX_TURNS: u32 = 5;

/// The cases of one suite file.
#[derive(Debug, Clone)]
pub struct Suite {
    /// Path of the file as the user knows it, with `/` between its parts.
    pub path: String,
    /// How it is written, and so how it is judged.
    pub dialect: Dialect,
    /// What the suite is about: `metadata.toolName`, else the file name up to its first dot.
    pub tool_name: String,
    /// Which tier of the contract it belongs to.
    pub tier: Tier,
    /// First 12 hexadecimal digits of SHA-256 over the bytes of the file.
    pub file_hash: String,
    /// The `metadata` object of an envelope, as written.
    pub metadata: Option<Json>,
    /// The cases, in file order; ids are unique. [`Suite::load`] gives all of one.
    pub cases: Vec<Head>,
    /// The text of the file, if its cases are read again when they are needed.
    text: Option<Text>,
    /// What the file was read with.
    defaults: Defaults,
    /// What the cases need besides the file.
    extras: Extras,
    /// What is odd about the file but does not stop it from being run.
    pub warnings: Vec<Finding>,
    /// What can hardly have been meant, such as `{{ seed:a }}`: a warning, and an error of a strict run.
    pub doubtful: Vec<Finding>,
    /// Assertions that cannot be evaluated, most often for a pattern that cannot be compiled, with the place. Their
    /// cases fail, the others run; of patterns only the first few are told.
    pub broken: Vec<Finding>,
}

impl Suite {
    /// The tests of a script, each by its name and line a case. `name`: that of the script.
    #[must_use]
    pub fn of_tests(path: &str, name: &str, file_hash: &str, tests: impl IntoIterator<Item = (String, u32)>) -> Self {
        let cases = tests.into_iter().map(|(function, line)| {
            let test = ScriptRef { script: name.to_owned(), function: Some(function.clone()) };
            let case = Case {
                id: function,
                line,
                description: String::new(),
                labels: Labels::default(),
                messages: Vec::new(),
                mode: Mode::Test(test),
                max_turns: None,
                assertions: Vec::new(),
                claims: Vec::new(),
                timeout: None,
                skip: false,
                options: None,
                hooks: Hooks::default(),
                metadata: None,
            };
            Head::new(case, None)
        });
        Self {
            path: path.to_owned(),
            dialect: Dialect::Framework,
            tool_name: name.strip_suffix("_test").unwrap_or(name).to_owned(),
            tier: Tier::Golden,
            file_hash: file_hash.to_owned(),
            metadata: None,
            cases: cases.collect(),
            text: None,
            defaults: Defaults::default(),
            extras: Extras::default(),
            warnings: Vec::new(),
            doubtful: Vec::new(),
            broken: Vec::new(),
        }
    }

    /// The name of one of its files in a bundle in which the suite itself is called `path`. What lies above the
    /// bundle's root, or at a place of its own, gets a folder that says so.
    #[must_use]
    pub fn file_beside(path: &str, file: &str) -> String {
        if let Some(file) = file.strip_prefix('/') {
            return format!("_root/{file}");
        }
        let mut parts: Vec<&str> = path.split('/').collect();
        parts.pop();
        let mut above = 0;
        for part in file.split('/') {
            match part {
                ".." if parts.pop().is_none() => above += 1,
                ".." => {}
                part => parts.push(part),
            }
        }
        format!("{}{}", "_above/".repeat(above), parts.join("/"))
    }

    /// Everything that people should hear about the file before they run it.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.broken.iter().chain(&self.doubtful).chain(&self.warnings)
    }

    /// The tokens in the assertions of its cases, each with its case. Only eval files of the contract have some,
    /// and those are held.
    pub fn tokens(&self) -> impl Iterator<Item = (&Head, Token)> {
        self.cases.iter().flat_map(|head| {
            let assertions = head.held().map(|case| case.assertions.as_slice()).unwrap_or_default();
            assertions.iter().flat_map(Assertion::tokens).map(move |token| (head, token))
        })
    }
}

/// The two dialects of suites, which are never mixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// The Eval Runner Contract: stops at the first failure, speaks JavaScript.
    Contract,
    /// Agent Test Framework V2: evaluates everything, speaks RE2.
    Framework,
}

impl Dialect {
    /// The dialect of a file, by its name: `.jsonl` is Agent Test Framework V2, and so are the tests of scripts.
    #[must_use]
    pub fn of(path: &str) -> Self {
        let lower = path.to_ascii_lowercase();
        let is_framework = [".jsonl", ".ts", ".js"].iter().any(|ending| lower.ends_with(ending));
        if is_framework { Self::Framework } else { Self::Contract }
    }
}

/// What the run says for cases that say nothing themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Defaults {
    /// Who plays the user in dynamic cases.
    pub simulator: Option<String>,
    /// Cases may send files from outside the folder of their suite. In a bundle that is harmless: there is nothing
    /// else.
    pub files_outside: bool,
}

/// The tiers of the Eval Runner Contract, and that of its newer runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Every case must pass.
    Golden,
    /// Harder cases with labels.
    Labeled,
    /// Cases that once were bugs.
    Regression,
}

impl Tier {
    /// The word used in files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Golden => "golden",
            Self::Labeled => "labeled",
            Self::Regression => "regression",
        }
    }

    /// The tier of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Golden, Self::Labeled, Self::Regression].into_iter().find(|tier| tier.name() == name)
    }
}

/// One case: what is said to the agent and what must hold of its answer.
#[derive(Debug, Clone)]
pub struct Case {
    /// Id, unique in its file.
    pub id: String,
    /// Line of the file on which the case starts.
    pub line: u32,
    /// What the case is about, for people; may be empty.
    pub description: String,
    /// What its author noted beside it.
    pub labels: Labels,
    /// The conversation sent to the agent; empty when the file holds nothing to send.
    pub messages: Vec<Message>,
    /// How the case is run.
    pub mode: Mode,
    /// Most model turns that the agent may take for an answer; `None`: as many as it likes. With stubs there is
    /// always a limit.
    pub max_turns: Option<u32>,
    /// What is asserted, in the order of evaluation; for the Eval Runner Contract.
    pub assertions: Vec<Assertion>,
    /// What is asserted, in the order of the file; for Agent Test Framework V2.
    pub claims: Vec<Claim>,
    /// Time for the case; `None`: that of the run.
    pub timeout: Option<Timeout>,
    /// The case is not run.
    pub skip: bool,
    /// What the agent is told besides the messages, unchanged; an object.
    pub options: Option<JsonText>,
    /// What runs before and after it.
    pub hooks: Hooks,
    /// What the case tells its hooks, as written.
    pub metadata: Option<JsonText>,
}

/// A dialogue between the agent and a simulated user.
#[derive(Debug, Clone)]
pub struct Dialogue {
    /// Who plays the user.
    pub simulator: Simulator,
    /// What must happen, in declared order; there is at least one.
    pub checkpoints: Vec<Checkpoint>,
    /// Most turns.
    pub max_turns: u32,
}

/// Who plays the user, and what it is told.
#[derive(Debug, Clone)]
pub struct Simulator {
    /// Id of the simulator.
    pub agent: String,
    /// Its options, as written.
    pub options: Option<Json>,
}

/// Something that must happen in a dialogue.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// Id, unique in the case.
    pub id: String,
    /// What it is about, for people.
    pub description: String,
    /// What must hold of one answer; all of them.
    pub claims: Vec<Claim>,
    /// Positions of the checkpoints that must be reached before.
    pub after: Vec<usize>,
    /// Whether the dialogue fails without it.
    pub required: bool,
}

/// What the author of a case noted beside it: to select cases by, and for people. Nothing of it changes a verdict.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Labels {
    /// How hard the case is, such as `straightforward`, `ambiguous` or `edge`.
    pub difficulty: Option<String>,
    /// The bug that the case keeps from coming back.
    pub bug_ref: Option<String>,
    /// When it was written.
    pub created_at: Option<String>,
    /// Free words.
    pub tags: Vec<String>,
}

/// How a case is run.
#[derive(Debug, Clone)]
pub enum Mode {
    /// One call of the agent, which runs its own tools.
    Single,
    /// One call of the agent; the daemon answers its tool calls from the stubs.
    Stubbed {
        /// Tool name → what the tool answers, in file order.
        stubs: Vec<(String, Stub)>,
    },
    /// As many calls of the agent as a dialogue with a simulated user takes.
    Dynamic(Dialogue),
    /// A function of a script, which calls agents and checks what they answer.
    Test(ScriptRef),
}

impl Mode {
    /// Which of the modes it is.
    #[must_use]
    pub const fn kind(&self) -> ModeKind {
        match self {
            Self::Single => ModeKind::Single,
            Self::Stubbed { .. } => ModeKind::Stubbed,
            Self::Dynamic(_) => ModeKind::Dynamic,
            Self::Test(_) => ModeKind::ScriptTest,
        }
    }
}

/// How a case is run, without what it is run with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModeKind {
    /// See [`Mode::Single`].
    Single,
    /// See [`Mode::Stubbed`].
    Stubbed,
    /// See [`Mode::Dynamic`].
    Dynamic,
    /// See [`Mode::Test`].
    ScriptTest,
}

impl ModeKind {
    /// The word used in events and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Stubbed => "stubbed",
            Self::Dynamic => "dynamic",
            Self::ScriptTest => "script_test",
        }
    }

    /// The mode of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Single, Self::Stubbed, Self::Dynamic, Self::ScriptTest].into_iter().find(|mode| mode.name() == name)
    }

    /// Whether a case of it may call agents several times, each time in a turn of its own.
    #[must_use]
    pub const fn has_turns(self) -> bool {
        match self {
            Self::Dynamic | Self::ScriptTest => true,
            Self::Single | Self::Stubbed => false,
        }
    }
}

/// Parses the text of one suite file: one that ends in `.jsonl` is Agent Test Framework V2, any other the Eval Runner
/// Contract.
///
/// # Errors
/// Everything that keeps the file from being run.
pub fn parse(path: &str, bytes: &[u8], defaults: &Defaults) -> Result<Suite, SuiteErrors> {
    parse_among(path, bytes, defaults, &mut Pool::default())
}

/// Parses the text of one suite file, as [`parse`] does, of several that are kept together: the memory that their
/// patterns may take is theirs together. An assertion whose pattern finds no room in the pool cannot be evaluated.
///
/// # Errors
/// Everything that keeps the file from being run.
pub fn parse_among(path: &str, bytes: &[u8], defaults: &Defaults, pool: &mut Pool) -> Result<Suite, SuiteErrors> {
    match Dialect::of(path) {
        Dialect::Framework => framework::read(path, bytes, None, defaults, pool),
        Dialect::Contract => {
            let json = parse_json(path, bytes, Json::parse_file)?;
            if !pool.take_values(json.values()) {
                return Err(of_file(path, 0, too_many_values(), None));
            }
            contract::read(path, bytes, &json)
        }
    }
}

/// Like [`parse_among`] for a text that may be larger than memory: of a large file of Agent Test Framework V2 only
/// the heads of the cases are kept, and a case is read again when it is needed.
///
/// # Errors
/// Everything that keeps the file from being run.
pub fn read(path: &str, text: &Text, defaults: &Defaults, pool: &mut Pool) -> Result<Suite, SuiteErrors> {
    if Dialect::of(path) == Dialect::Framework && text.len() > HELD_BYTES {
        let reader = std::io::BufReader::with_capacity(1 << 20, text.reader());
        return framework::read(path, reader, Some(text), defaults, pool);
    }
    if let Some(bytes) = text.held() {
        return parse_among(path, bytes, defaults, pool);
    }
    let bytes = usize::try_from(text.len()).ok().and_then(|len| text.read(0, len).ok());
    let bytes = bytes.ok_or_else(|| of_file(path, 0, "the file cannot be read".to_owned(), None))?;
    parse_among(path, &bytes, defaults, pool)
}

/// Parses a file of values for template tokens: a seed manifest or a snapshot.
///
/// # Errors
/// When it is no JSON object.
pub fn parse_data(path: &str, bytes: &[u8]) -> Result<Json, SuiteErrors> {
    let json = parse_json(path, bytes, Json::parse)?;
    match json.value {
        Value::Object(_) => Ok(json),
        _ => Err(of_file(path, json.line, format!("must be an object of values, not {}", json.kind()), None)),
    }
}

/// There is no room for the values of a suite.
fn too_many_values() -> String {
    format!(
        "the suites that are held hold more than {SUITE_VALUES} values; cases in .jsonl files of more than 8 MiB are not held"
    )
}

fn parse_json(
    path: &str,
    bytes: &[u8],
    parse: impl FnOnce(&str) -> Result<Json, ParseError>,
) -> Result<Json, SuiteErrors> {
    let text = std::str::from_utf8(bytes);
    let text = text.map_err(|_| of_file(path, 0, "the file is not UTF-8 text".to_owned(), None))?;
    parse(without_mark(text)).map_err(|error| {
        let message = format!("not JSON: column {}: {}", error.column, error.message);
        of_file(path, error.line, message, None)
    })
}

/// The one error of a file that could not be read at all.
fn of_file(path: &str, line: u32, message: String, hint: Option<String>) -> SuiteErrors {
    SuiteErrors(vec![Finding { file: path.to_owned(), line, case: None, field: None, message, hint }])
}

/// The first part of a path's file name, up to its first dot: `evals/faq.golden.json` is `faq`.
fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.split('.').next().unwrap_or(name)
}

/// Longest id of a case, in bytes: it is a key in databases.
const MAX_ID_BYTES: usize = 1_000;

/// Why a text cannot be the id of a case.
fn bad_id(id: &str) -> Option<String> {
    if id.contains('\0') {
        return Some("the id of a case must not hold the character U+0000".to_owned());
    }
    let too_long = || format!("the id of a case has {} bytes, at most {MAX_ID_BYTES} are allowed", id.len());
    (id.len() > MAX_ID_BYTES).then(too_long)
}
