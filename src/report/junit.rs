//! `JUnit` XML, as CI systems read it: a test suite for each suite file, a test case for each case.
//!
//! What could not be judged is an `error`, what failed a `failure`, what was not run `skipped`. Hostile text is escaped by the
//! library, which also takes out control characters; the two others that XML 1.0 cannot hold are taken out here.

use std::fmt::Write as _;

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::{Verdict, Verdicts, attempts_note};
use crate::event::Run;
use crate::verdict::{Outcome, Turn};

/// Longest answer that stands with a case that did not pass, in characters.
const MAX_ANSWER: usize = 4_000;

/// The report of all suites of a run, or of the one at `only`.
///
/// # Errors
/// When it cannot be written as XML.
pub fn report(run: &Run, verdicts: &Verdicts, only: Option<usize>) -> Result<String, quick_junit::SerializeError> {
    let mut report = Report::new(format!("forge {}", run.run_id));
    for (position, suite) in run.suites.iter().enumerate() {
        if only.is_some_and(|only| only != position) {
            continue;
        }
        let mut cases = TestSuite::new(clean(&suite.path));
        cases.add_test_cases(verdicts.of_suite(&suite.path).map(|verdict| case(&suite.tool_name, verdict)));
        report.add_test_suite(cases);
    }
    report.to_string()
}

fn case(class: &str, verdict: Verdict<'_>) -> TestCase {
    let result = verdict.result;
    let message = clean(result.error.as_deref().unwrap_or_default());
    let bad = |kind| {
        let mut status = TestCaseStatus::non_success(kind);
        status.set_message(message.as_str());
        if let Some(cause) = result.cause {
            status.set_type(cause.name());
        }
        status.set_description(clean(&details(verdict)));
        status
    };
    let status = match result.outcome {
        Outcome::Passed => TestCaseStatus::success(),
        Outcome::Failed => bad(NonSuccessKind::Failure),
        Outcome::Errored => bad(NonSuccessKind::Error),
        Outcome::Skipped => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(message.as_str());
            status
        }
    };
    let mut case = TestCase::new(clean(&verdict.case.label()), status);
    case.set_classname(clean(class));
    case.set_time(result.transcript.duration);
    if !verdict.name.is_empty() {
        case.add_property(("description", clean(verdict.name).as_str()));
    }
    case
}

/// A text without the characters that are in no XML 1.0.
fn clean(text: &str) -> String {
    text.replace(['\u{fffe}', '\u{ffff}'], "")
}

/// What somebody wants to see who looks at a case that did not pass.
fn details(verdict: Verdict<'_>) -> String {
    let result = verdict.result;
    let mut text = String::new();
    if let Some(note) = attempts_note(result) {
        let _ = writeln!(text, "{note}");
    }
    for assertion in result.assertions.iter().filter(|assertion| !assertion.reason.is_empty()) {
        let _ = writeln!(text, "{} {}: {}", assertion.outcome.name(), assertion.name, assertion.reason);
    }
    for line in &result.console {
        let _ = writeln!(text, "console: {}", beginning(line));
    }
    for (number, Turn { input, output }) in (1..).zip(&result.turns) {
        let (input, output) = (beginning(input), beginning(output));
        let _ = writeln!(text, "turn {number} user: {input}\nturn {number} agent: {output}");
    }
    if result.turns.is_empty() {
        let _ = writeln!(text, "answer: {}", beginning(&result.transcript.response));
    }
    text
}

/// As much of a text as people read.
fn beginning(text: &str) -> &str {
    text.char_indices().nth(MAX_ANSWER).map_or(text, |(end, _)| &text[..end])
}
