//! Reports: a run's log → bytes.
//!
//! Cases stand in the order of their files whatever order they ended in, and everything that an agent or a suite wrote
//! is treated as hostile: see [`printable`].

pub mod console;
pub mod console_framework;
pub mod history;
pub mod html;
pub mod jsonl;
pub mod junit;
pub mod markdown;
#[cfg(test)]
mod sample;
pub mod suite_result;
mod words;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::event::{CaseRef, Payload, Run, RunEvent, SuiteInfo};
use crate::suite::{Dialect, Labels};
use crate::verdict::{CaseResult, Outcome, Totals};

/// The cases of a run with their verdicts, in the order of the plan. Fed with the events of a log, in any part of it.
#[derive(Debug, Default)]
pub struct Verdicts {
    cases: Vec<Entry>,
    /// Position in `cases` by suite, case id and repetition.
    positions: HashMap<(Arc<str>, Arc<str>, u32), usize>,
}

#[derive(Debug)]
struct Entry {
    planned: Arc<RunEvent>,
    finished: Option<Arc<RunEvent>>,
}

/// One case that has a verdict.
#[derive(Debug, Clone, Copy)]
pub struct Verdict<'a> {
    /// The case, and which attempt the verdict is about.
    pub case: &'a CaseRef,
    /// What the case is about.
    pub name: &'a str,
    /// What its author noted beside it.
    pub labels: &'a Labels,
    /// The verdict.
    pub result: &'a CaseResult,
}

impl<'a> Verdict<'a> {
    /// What the case is about, unless that is just its id again.
    fn own_name(&self) -> &'a str {
        if *self.name == *self.case.case_id { "" } else { self.name }
    }
}

impl Verdicts {
    /// Takes an event; those that are no verdicts are ignored.
    pub fn take(&mut self, event: &Arc<RunEvent>) {
        let Some(case) = &event.case else { return };
        let key = (Arc::clone(&case.suite), Arc::clone(&case.case_id), case.repeat);
        match &event.payload {
            Payload::CasePlanned { .. } => {
                self.positions.insert(key, self.cases.len());
                self.cases.push(Entry { planned: Arc::clone(event), finished: None });
            }
            Payload::CaseFinished(_) => {
                if let Some(entry) = self.positions.get(&key).and_then(|position| self.cases.get_mut(*position)) {
                    entry.finished = Some(Arc::clone(event));
                }
            }
            _ => {}
        }
    }

    /// The verdicts on the cases of one suite, in file order.
    pub fn of_suite<'a>(&'a self, suite: &'a str) -> impl Iterator<Item = Verdict<'a>> + 'a {
        self.all().filter(move |verdict| &*verdict.case.suite == suite)
    }

    /// Sums over the cases of one suite.
    #[must_use]
    pub fn totals_of(&self, suite: &SuiteInfo) -> Totals {
        let mut totals = Totals { total: suite.cases, ..Totals::default() };
        self.of_suite(&suite.path).for_each(|verdict| totals.add(verdict.result));
        totals
    }

    /// All verdicts, in the order of the plan.
    pub fn all(&self) -> impl Iterator<Item = Verdict<'_>> {
        (0..self.cases.len()).filter_map(|position| self.get(position))
    }

    /// Number of planned cases.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cases.len()
    }

    /// Whether no case was planned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cases.is_empty()
    }

    /// The verdict on the case at a position of the plan, if there is one.
    #[must_use]
    pub fn get(&self, position: usize) -> Option<Verdict<'_>> {
        let entry = self.cases.get(position)?;
        let event = entry.finished.as_deref()?;
        match (&entry.planned.payload, &event.payload) {
            (Payload::CasePlanned { name, labels }, Payload::CaseFinished(result)) => {
                Some(Verdict { case: event.case.as_ref()?, name, labels, result })
            }
            _ => None,
        }
    }
}

/// The formats of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `EvalSuiteResult` of the Eval Runner Contract.
    Json,
    /// The lines of Agent Test Framework V2.
    Jsonl,
    /// `JUnit` XML.
    Junit,
    /// Markdown that fits into a comment on a pull request.
    Markdown,
    /// A page for a browser, in one file.
    Html,
}

/// Pieces of the text of a report, or why it cannot be written.
pub type Pieces = Box<dyn Iterator<Item = Result<String, String>> + Send>;

impl Format {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Json, Self::Jsonl, Self::Junit, Self::Markdown, Self::Html];

    /// Its name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Jsonl => "jsonl",
            Self::Junit => "junit",
            Self::Markdown => "markdown",
            Self::Html => "html",
        }
    }

    /// The ending of its files.
    #[must_use]
    pub const fn ending(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Jsonl => "jsonl",
            Self::Junit => "xml",
            Self::Markdown => "md",
            Self::Html => "html",
        }
    }

    /// The format of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// The report of all suites of a run, or of the one at `only`.
    #[must_use]
    pub fn pieces(self, run: Run, verdicts: Verdicts, only: Option<usize>) -> Pieces {
        let text = |piece: serde_json::Result<String>| piece.map_err(|error| error.to_string());
        match self {
            Self::Json => Box::new(suite_result::Pieces::new(run, verdicts, only).map(text)),
            Self::Jsonl => Box::new(jsonl::Lines::new(&run, verdicts, only).map(text)),
            Self::Junit => {
                let report = junit::report(&run, &verdicts, only).map_err(|error| error.to_string());
                Box::new(std::iter::once(report))
            }
            Self::Markdown => Box::new(std::iter::once_with(move || Ok(markdown::report(&run, &verdicts, only)))),
            Self::Html => {
                let text = |piece: askama::Result<String>| piece.map_err(|error| error.to_string());
                Box::new(html::Pieces::new(run, verdicts, only).map(text))
            }
        }
    }
}

/// What the console shows of a case, in the manner of its dialect; kept by a client instead of the whole verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// Of the Eval Runner Contract.
    Contract(console::Line),
    /// Of Agent Test Framework V2.
    Framework(console_framework::Entry),
}

impl Shown {
    /// What is shown of a verdict.
    #[must_use]
    pub fn of(verdict: Verdict<'_>) -> Self {
        match Dialect::of(&verdict.case.suite) {
            Dialect::Contract => Self::Contract(console::Line::of(verdict)),
            Dialect::Framework => Self::Framework(console_framework::Entry::of(verdict)),
        }
    }
}

/// The console summary of one suite of a run that is over, in the manner of its dialect.
#[must_use]
pub fn summary(run: &Run, suite: &SuiteInfo, shown: Vec<Shown>, warnings: &[String], look: console::Look) -> String {
    let mut lines = Vec::new();
    let mut entries = Vec::new();
    for case in shown {
        match case {
            Shown::Contract(line) => lines.push(line),
            Shown::Framework(entry) => entries.push(entry),
        }
    }
    if Dialect::of(&suite.path) == Dialect::Contract {
        return console::summary(suite, &lines, warnings, look);
    }
    let took = run.finished_at.map(|end| end.duration_since(run.created_at)).unwrap_or_default();
    let took = std::time::Duration::try_from(took).unwrap_or_default();
    console_framework::summary(suite, &run.spec.agent_id, &entries, warnings, took, look)
}

/// What people should know of a case that took several attempts.
#[must_use]
pub fn attempts_note(result: &CaseResult) -> Option<String> {
    let last = result.earlier.last()?;
    let attempts = result.earlier.len() + 1;
    let why = last.error.as_deref().unwrap_or_else(|| last.outcome.name());
    Some(match result.outcome {
        Outcome::Passed if result.is_flaky() => format!("flaky: it passed in attempt {attempts}; before that: {why}"),
        Outcome::Passed => format!("it passed in attempt {attempts}; before that: {why}"),
        _ => format!("{attempts} attempts"),
    })
}

/// The error of a case, unless it is what an assertion says, where that is shown beside it.
fn own_error(result: &CaseResult) -> Option<&str> {
    let is_said = result.failed_assertion.is_some() && result.assertions.iter().any(|it| !it.reason.is_empty());
    result.error.as_deref().filter(|error| !is_said && !error.is_empty())
}

/// Somebody else's text, safe to show on a terminal: control characters and those that turn the direction of writing
/// are written as escapes.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        push_printable(&mut out, c);
    }
    out
}

/// JSON text, safe to show on a terminal and the same JSON: what a terminal would obey stands as an escape.
#[must_use]
pub fn printable_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        let mut shown = String::new();
        push_printable(&mut shown, c);
        // Line breaks and tabs stand between values only.
        if matches!(c, '\n' | '\t') || !shown.starts_with('\\') || c == '\\' {
            out.push(c);
        } else {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        }
    }
    out
}

/// The same for a text of several lines, which stay lines; so do tabs.
#[must_use]
pub fn printable_lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\n' | '\t' => out.push(c),
            '\r' if rest.peek() == Some(&'\n') => {}
            c => push_printable(&mut out, c),
        }
    }
    out
}

fn push_printable(out: &mut String, c: char) {
    match c {
        // Marks and overrides of direction.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            out.extend(c.escape_unicode());
        }
        // No characters at all: XML cannot hold them.
        '\u{fffe}' | '\u{ffff}' => out.extend(c.escape_unicode()),
        c if c.is_control() => out.extend(c.escape_default()),
        c => out.push(c),
    }
}
