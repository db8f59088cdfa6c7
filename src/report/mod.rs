//! Reports: a run's log → bytes.
//!
//! A report is written while its log is read: [`outline`] says what stands where, a [`Report`] gives the text, and
//! nothing but one case at a time is held whole.
//!
//! Cases stand in the order of their files whatever order they ended in, and everything that an agent or a suite wrote
//! is treated as hostile: see [`crate::text::printable`].

pub mod console;
pub mod console_framework;
pub mod github;
pub mod history;
pub mod html;
pub mod jsonl;
pub mod junit;
pub mod markdown;
pub mod outline;
pub mod repeats;
#[cfg(test)]
mod sample;
mod shape;
pub mod steps;
pub mod stored;
pub mod stream;
pub mod suite_result;
pub mod transcript;
mod words;

use crate::case::CaseRef;
use crate::event::{Payload, Run, RunEvent, SuiteInfo};
use crate::suite::{Dialect, Labels};
use crate::text::printable;
use crate::trace::{RunTrace, SpanId, link};
use crate::verdict::{CaseResult, Outcome};
use outline::{Outline, Outliner, Position, Step};

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
    /// How its trace is found; `None`: that is not told.
    pub tracing: Option<&'a Tracing>,
}

/// How the traces of a run are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tracing {
    trace: RunTrace,
    url: Option<String>,
}

/// Where in its trace a case, or a run, is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traced {
    /// Id of the trace.
    pub trace_id: String,
    /// Id of the span there.
    pub span_id: String,
    /// A link to it, if there is a template of links.
    pub url: Option<String>,
}

impl Tracing {
    /// Of a run.
    #[must_use]
    pub fn of(run: &Run) -> Self {
        Self { trace: run.trace(), url: run.spec.trace_url.clone() }
    }

    /// Where the run itself is found.
    #[must_use]
    pub fn run(&self) -> Traced {
        self.traced(self.trace.run())
    }

    /// Where an attempt at a case is found.
    #[must_use]
    pub fn case(&self, case: &CaseRef) -> Traced {
        self.traced(self.trace.case(case))
    }

    fn traced(&self, span: SpanId) -> Traced {
        let trace = self.trace.trace_id;
        let url = self.url.as_deref().map(|template| link(template, trace, span));
        Traced { trace_id: trace.to_string(), span_id: span.to_string(), url }
    }
}

impl Traced {
    /// What people are shown: the link, else the id.
    #[must_use]
    pub fn shown(&self) -> &str {
        self.url.as_deref().unwrap_or(&self.trace_id)
    }
}

impl<'a> Verdict<'a> {
    /// What two events of a log say: that the case was planned, and what came of it. `None`: they are others.
    #[must_use]
    pub fn of(planned: &'a RunEvent, finished: &'a RunEvent) -> Option<Self> {
        match (&planned.payload, &finished.payload) {
            (Payload::CasePlanned { name, labels }, Payload::CaseFinished(result)) => {
                Some(Self { case: finished.case.as_ref()?, name, labels, result, tracing: None })
            }
            _ => None,
        }
    }

    /// Where its trace is found.
    fn traced(&self) -> Option<Traced> {
        self.tracing.map(|tracing| tracing.case(self.case))
    }

    /// The same for people, of a case that did not pass; else empty.
    fn trace_if_bad(&self) -> String {
        let is_bad = matches!(self.result.outcome, Outcome::Failed | Outcome::Errored) && self.result.total_turns > 0;
        self.traced().filter(|_| is_bad).map(|traced| printable(traced.shown())).unwrap_or_default()
    }

    /// What the case is about, unless that is just its id again.
    fn own_name(&self) -> &'a str {
        if *self.name == *self.case.case_id { "" } else { self.name }
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

/// A piece of the text of a report, or why it cannot be written.
pub type Written = Result<String, Unwritable>;

/// Why a report cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the report cannot be written: {0}")]
pub struct Unwritable(String);

impl Unwritable {
    fn of(error: impl std::error::Error) -> Self {
        Self(error.to_string())
    }
}

/// A report that is being written: it is told case by case, in the order of its outline, and gives its text as it goes.
pub trait Report: Send {
    /// What stands before everything.
    ///
    /// # Errors
    /// When it cannot be written.
    fn head(&mut self, _outline: &Outline) -> Written {
        Ok(String::new())
    }

    /// What stands before the cases of a part.
    ///
    /// # Errors
    /// When it cannot be written.
    fn part(&mut self, _outline: &Outline, _part: usize) -> Written {
        Ok(String::new())
    }

    /// A case.
    ///
    /// # Errors
    /// When it cannot be written.
    fn case(&mut self, outline: &Outline, place: Position, verdict: Verdict<'_>) -> Written;

    /// What stands behind the cases of a part.
    ///
    /// # Errors
    /// When it cannot be written.
    fn part_end(&mut self, _outline: &Outline, _part: usize) -> Written {
        Ok(String::new())
    }

    /// What stands behind everything.
    ///
    /// # Errors
    /// When it cannot be written.
    fn end(&mut self, _outline: &Outline) -> Written {
        Ok(String::new())
    }
}

/// Writes a whole report of a log that is held, in the order of its numbers: the reports of runs are written by the
/// readers of their logs.
///
/// # Errors
/// When it cannot be written, or the log is none.
pub fn whole(format: Format, run: Run, log: &[RunEvent], only: Option<usize>) -> Written {
    whole_of(format.report(None), run, log, only)
}

/// As [`whole`], of a report that is begun.
///
/// # Errors
/// When it cannot be written, or the log is none.
pub fn whole_of(mut report: Box<dyn Report>, run: Run, log: &[RunEvent], only: Option<usize>) -> Written {
    let mut outliner = Outliner::new(run);
    for event in log {
        outliner.take(event);
    }
    let outline = outliner.finish();
    let outline = match only {
        Some(suite) => outline.only(suite),
        None => outline,
    };
    let at = |sequence: u64| log.binary_search_by_key(&sequence, |event| event.sequence).ok().map(|at| &log[at]);
    let mut text = String::new();
    let mut next = Some(Step::Head);
    while let Some(step) = next {
        text += &match step {
            Step::Head => report.head(&outline)?,
            Step::Part(part) => report.part(&outline, part)?,
            Step::Case(place) => {
                let entry = outline.entry(place);
                let verdict = at(entry.planned).zip(at(entry.finished)).and_then(|(one, two)| Verdict::of(one, two));
                let verdict =
                    verdict.ok_or_else(|| Unwritable("the log does not hold a verdict any more".to_owned()))?;
                let tracing = Tracing::of(&outline.run);
                report.case(&outline, place, Verdict { tracing: Some(&tracing), ..verdict })?
            }
            Step::PartEnd(part) => report.part_end(&outline, part)?,
            Step::End => report.end(&outline)?,
        };
        next = step.next(&outline);
    }
    Ok(text)
}

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

    /// A report in this format, of which nothing is written yet. `attachment`: path of a file that tells more of the
    /// cases that did not pass, where a format names such.
    #[must_use]
    pub fn report(self, attachment: Option<&str>) -> Box<dyn Report> {
        match self {
            Self::Json => Box::new(suite_result::Json),
            Self::Jsonl => Box::new(jsonl::Lines),
            Self::Junit => Box::new(attachment.map_or_else(junit::Junit::default, junit::Junit::with_attachment)),
            Self::Markdown => Box::new(markdown::Markdown::default()),
            Self::Html => Box::new(html::Html::default()),
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
    /// What is shown of a verdict. `shows_answer`: the answer, too, of Agent Test Framework V2.
    #[must_use]
    pub fn of(verdict: Verdict<'_>, shows_answer: bool) -> Self {
        match Dialect::of(&verdict.case.suite) {
            Dialect::Contract => Self::Contract(console::Line::of(verdict)),
            Dialect::Framework => Self::Framework(console_framework::Entry::of(verdict, shows_answer)),
        }
    }
}

impl Shown {
    /// The case by itself, as the summary has it.
    #[must_use]
    pub fn alone(&self, look: console::Look) -> String {
        match self {
            Self::Contract(line) => console::alone(line, look),
            Self::Framework(entry) => console_framework::alone(entry, look),
        }
    }

    /// What came of the case.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        match self {
            Self::Contract(line) => line.outcome(),
            Self::Framework(entry) => entry.outcome(),
        }
    }
}

/// The console summary of one suite of a run that is over, in the manner of its dialect. `input` is what its user calls
/// it.
#[must_use]
pub fn summary(
    run: &Run,
    suite: &SuiteInfo,
    input: &str,
    shown: &[&Shown],
    warnings: &[String],
    look: console::Look,
) -> String {
    let mut lines = Vec::new();
    let mut entries = Vec::new();
    for case in shown {
        match case {
            Shown::Contract(line) => lines.push(line),
            Shown::Framework(entry) => entries.push(entry),
        }
    }
    if Dialect::of(&suite.path) == Dialect::Contract {
        let is_like = |other: &&SuiteInfo| (&other.tool_name, other.tier) == (&suite.tool_name, suite.tier);
        let path = (run.suites.iter().filter(is_like).count() > 1).then_some(input);
        return console::summary(suite, path, &lines, warnings, look);
    }
    console_framework::summary(suite, &run.spec.agent_id, input, &entries, warnings, look)
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
