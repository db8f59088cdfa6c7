//! `JUnit` XML, as CI systems read it: a test suite for each suite file, a test case for each case.
//!
//! Consumers know a test by its classname and name, and by nothing else: the one is the path of the suite, the other
//! what people call the case, with a number behind it where that is not the only one in its suite (as it is of a case
//! `a #2` beside the second repetition of a case `a`).
//!
//! A gate is a test of its own, as it decides about the run. An attempt after which a case was tried again stands with
//! its test, as Surefire and Gradle write it: `flakyFailure` or `flakyError` if the last one passed, else
//! `rerunFailure` or `rerunError`.
//!
//! What else there is to know stands in properties: of the suite who was tested, and under which labels; of a case its
//! labels, cause and blame, what it cost, and its trace. A case that did not pass names the page of the run as its
//! attachment, as GitLab and Jenkins read it, if there is one.
//!
//! What could not be judged is an `error`, what failed a `failure`, what was not run `skipped`. Hostile text is escaped
//! by the library; what nobody would see of it, and what XML 1.0 cannot hold, is written as escapes here.

use std::collections::HashSet;
use std::fmt::Write as _;

use quick_junit::{NonSuccessKind, Report as Document, TestCase, TestCaseStatus, TestRerun, TestSuite, XmlString};

use super::outline::{Outline, Position};
use super::steps::{Room, plain};
use super::words::{is_bad, money, tokens};
use super::{Report, Unwritable, Verdict, Written, attempts_note, repeats};
use crate::conversation::AgentCard;
use crate::event::{Run, SuiteInfo};
use crate::text::{clip, printable_lines};
use crate::verdict::gate::{GateResult, Passage};
use crate::verdict::{Attempt, Outcome};

/// Longest line of a console that stands with a case, in characters.
const MAX_LINE: usize = 4_000;

/// The report. The library writes whole documents only, so it is given one for every part of ours, of which that part
/// is taken: texts are escaped, so a tag is a tag.
#[derive(Debug, Default)]
pub struct Junit {
    /// Names of the cases of the suite at hand.
    names: HashSet<String>,
    /// Path of a file that tells more of the cases that did not pass.
    attachment: Option<String>,
}

impl Junit {
    /// Longest path of an attachment, in bytes.
    const MAX_ATTACHMENT: usize = 4_096;

    /// One whose cases have an attachment if they did not pass: a file, by its path. A path that cannot be written is
    /// none.
    #[must_use]
    pub fn with_attachment(path: &str) -> Self {
        let is_plain = !path.is_empty()
            && path.len() <= Self::MAX_ATTACHMENT
            && clean(path) == path
            && !path.contains([']', '\n']);
        Self { attachment: is_plain.then(|| path.to_owned()), ..Self::default() }
    }
}

/// What the gate of a run stands as among its suites: no path of a suite holds a colon.
const GATE: &str = "forge:gate";

const END: &str = "</testsuites>";
const SUITE: &str = "    <testsuite ";
const SUITE_END: &str = "    </testsuite>";
const CASE: &str = "        <testcase ";

impl Report for Junit {
    fn head(&mut self, outline: &Outline) -> Written {
        let totals = outline.totals();
        let gate = gate_of(outline).map(|gate| gate.counts_as);
        let mut document = Document::new(format!("forge {}", outline.run.run_id));
        document.tests = outline.parts.iter().map(|part| part.cases.len()).sum::<usize>() + usize::from(gate.is_some());
        document.skipped = number(totals.skipped + totals.not_run);
        document.failures = number(totals.failed) + usize::from(gate == Some(Passage::Failed));
        document.errors = number(totals.errored) + usize::from(gate == Some(Passage::CannotTell));
        before(&document, END)
    }

    fn part(&mut self, outline: &Outline, part: usize) -> Written {
        self.names.clear();
        let info = outline.info(part);
        let totals = outline.parts[part].totals;
        let mut suite = TestSuite::new(clean(&info.path));
        suite.tests = outline.parts[part].cases.len();
        suite.skipped = number(totals.skipped + totals.not_run);
        suite.failures = number(totals.failed);
        suite.errors = number(totals.errored);
        // One without anything in it would have no end of its own.
        suite.add_property(("tier", info.tier.name()));
        for (name, value) in about_suite(&outline.run, info) {
            suite.add_property((clean(&name).as_str(), clean(value).as_str()));
        }
        between(suite, SUITE, SUITE_END)
    }

    fn case(&mut self, outline: &Outline, place: Position, verdict: Verdict<'_>) -> Written {
        let mut suite = TestSuite::new("");
        // Readers of XML take white space in attributes for blanks.
        let label = clean(&verdict.case.label()).replace(['\t', '\n', '\r'], " ");
        let label = XmlString::new(label).into_string();
        let mut name = label.clone();
        let mut number = 2;
        while !self.names.insert(name.clone()) {
            name = format!("{label} ({number})");
            number += 1;
        }
        suite.add_test_case(case(&outline.info(place.part).path, &name, verdict, self.attachment.as_deref()));
        between(suite, CASE, SUITE_END)
    }

    fn part_end(&mut self, _: &Outline, _: usize) -> Written {
        Ok(format!("{SUITE_END}\n"))
    }

    fn end(&mut self, outline: &Outline) -> Written {
        let gate = match gate_of(outline) {
            None => String::new(),
            Some(gate) => {
                let mut suite = TestSuite::new(GATE);
                suite.add_test_case(case_of_gate(gate));
                between(suite, SUITE, END)?
            }
        };
        Ok(format!("{gate}{END}\n"))
    }
}

/// The gate of a run that is shown whole.
fn gate_of(outline: &Outline) -> Option<&GateResult> {
    outline.run.gate.as_ref().filter(|_| !outline.is_part())
}

/// A gate as a test: where nobody can tell whether it was passed, every test may be green, and the run is not.
fn case_of_gate(gate: &GateResult) -> TestCase {
    let bad = |kind| {
        let mut status = TestCaseStatus::non_success(kind);
        status.set_message(clean(&repeats::headline(gate))).set_type(gate.passage.name());
        let lines: Vec<String> = gate.reasons.iter().cloned().chain(repeats::comparisons(gate)).collect();
        status.set_description(clean(&lines.join("\n")));
        status
    };
    let status = match gate.counts_as {
        Passage::Passed => TestCaseStatus::success(),
        Passage::Failed => bad(NonSuccessKind::Failure),
        Passage::CannotTell => bad(NonSuccessKind::Error),
    };
    let mut case = TestCase::new("the gate of the run", status);
    case.set_classname(GATE);
    case
}

fn number(of: u32) -> usize {
    usize::try_from(of).unwrap_or(usize::MAX)
}

/// A document up to a line.
fn before(document: &Document, line: &str) -> Written {
    let text = document.to_string().map_err(Unwritable::of)?;
    Ok(text.rfind(line).map_or(text.as_str(), |end| &text[..end]).to_owned())
}

/// What stands in the document of a suite from one line to another.
fn between(suite: TestSuite, from: &str, to: &str) -> Written {
    let mut document = Document::new("");
    document.add_test_suite(suite);
    let text = before(&document, to)?;
    Ok(text.find(from).map_or("", |start| &text[start..]).to_owned())
}

/// What there is to know of a suite: names, and values.
fn about_suite<'a>(run: &'a Run, info: &'a SuiteInfo) -> Vec<(String, &'a str)> {
    let card = |of: fn(&AgentCard) -> &String| run.agent.as_ref().map_or("", |card| of(card).as_str());
    let facts = [
        ("run", run.run_id.as_str()),
        ("tool", &info.tool_name),
        ("hash", &info.eval_file_hash),
        ("agent", &run.spec.agent_id),
        ("agent.version", card(|card| &card.version)),
        ("agent.model", card(|card| &card.model)),
        ("baseline", info.comparison.as_ref().map_or("", |compared| &compared.baseline_run_id)),
    ];
    let labels = run.spec.labels.iter().map(|(key, value)| (format!("label.{key}"), value.as_str()));
    let facts = facts.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(labels);
    facts.filter(|(_, value)| !value.is_empty()).collect()
}

/// What there is to know of a case: names, and values.
fn about_case(verdict: Verdict<'_>) -> Vec<(&'static str, String)> {
    let (labels, result) = (verdict.labels, verdict.result);
    let mut facts = vec![("description", verdict.name.to_owned())];
    facts.extend(result.cause.map(|cause| ("cause", cause.name().to_owned())));
    facts.extend(result.blame.map(|blame| ("blame", blame.name().to_owned())));
    facts.extend(labels.difficulty.clone().map(|word| ("difficulty", word)));
    facts.extend(labels.bug_ref.clone().map(|bug| ("bug", bug)));
    facts.extend(labels.created_at.clone().map(|time| ("since", time)));
    facts.extend(labels.tags.iter().map(|tag| ("tag", tag.clone())));
    if let Some(usage) = &result.transcript.usage {
        facts.extend(tokens(usage).map(|tokens| ("tokens", tokens)));
        facts.extend(usage.cost.map(|cost| ("cost", money(cost))));
    }
    facts.extend(verdict.traced().map(|traced| ("trace", traced.shown().to_owned())));
    facts.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

fn case(class: &str, name: &str, verdict: Verdict<'_>, attachment: Option<&str>) -> TestCase {
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
    let mut status = status;
    status.add_reruns(
        (1..).zip(&result.earlier).map(|(number, attempt)| rerun(number, attempt, result.earlier.len() + 1)),
    );
    let mut case = TestCase::new(name, status);
    case.set_classname(clean(class));
    case.set_time(result.transcript.duration);
    if result.outcome == Outcome::Passed {
        // Of the others it stands with what went wrong, which every reader shows.
        let told = plain(result, Room::REPORT);
        if !told.is_empty() {
            case.set_system_out(clean(&told));
        }
    } else if let Some(path) = attachment.filter(|_| is_bad(result.outcome)) {
        case.set_system_out(format!("[[ATTACHMENT|{path}]]"));
    }
    case.extra.insert("file".into(), clean(class).into());
    for (name, value) in about_case(verdict) {
        case.add_property((name, clean(&value).as_str()));
    }
    case
}

/// An attempt after which its case was tried again.
fn rerun(number: usize, attempt: &Attempt, all: usize) -> TestRerun {
    let kind = if attempt.outcome == Outcome::Failed { NonSuccessKind::Failure } else { NonSuccessKind::Error };
    let why = attempt.error.as_deref().unwrap_or_else(|| attempt.outcome.name());
    let mut rerun = TestRerun::new(kind);
    rerun.set_message(clean(why)).set_time(attempt.duration);
    if let Some(cause) = attempt.cause {
        rerun.set_type(cause.name());
    }
    let blame = attempt.blame.map(|blame| format!(", blame {}", blame.name())).unwrap_or_default();
    // Some readers show the text, and some the stack trace only.
    let text = clean(&format!("attempt {number} of {all}{blame}: {why}"));
    rerun.set_stack_trace(text.as_str()).set_description(text);
    rerun
}

/// A text without the characters that are in no XML 1.0, and without what readers take for the path of an attachment.
fn clean(text: &str) -> String {
    printable_lines(text).replace("[[ATTACHMENT|", "[\\u{5b}ATTACHMENT|")
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
        if !assertion.hint.is_empty() {
            let _ = writeln!(text, "  {}", assertion.hint);
        }
    }
    if let Some(hint) = result.hint.as_ref().filter(|_| result.failed_assertion.is_none()) {
        let _ = writeln!(text, "{hint}");
    }
    for line in &result.console {
        let _ = writeln!(text, "console: {}", clip(line, MAX_LINE));
    }
    text.push_str(&plain(result, Room::REPORT));
    text
}

#[cfg(test)]
mod tests {
    use super::{Attempt, GATE, GateResult, Junit, Passage};
    use crate::report::sample::{self, HOSTILE, errored, failed, passed};
    use crate::report::{Format, whole, whole_of};
    use crate::verdict::{CaseResult, Totals};

    #[test]
    fn the_parts_make_a_document_whose_counts_hold() {
        let (mut run, log) = sample::of_everything();
        run.suites.push(crate::event::SuiteInfo {
            path: "empty.golden.json".to_owned(),
            cases: 0,
            ..run.suites[0].clone()
        });
        let text = whole(Format::Junit, run, &log, None).expect("text");
        let document = roxmltree::Document::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let counted = |node: roxmltree::Node<'_, '_>| {
            let with = |child: &str| {
                let cases = node.descendants().filter(|node| node.has_tag_name("testcase"));
                cases.filter(|case| case.children().any(|node| node.has_tag_name(child))).count()
            };
            let cases = node.descendants().filter(|node| node.has_tag_name("testcase")).count();
            [("tests", cases), ("failures", with("failure")), ("errors", with("error")), ("skipped", with("skipped"))]
        };
        let said = |node: roxmltree::Node<'_, '_>| {
            ["tests", "failures", "errors", "skipped"]
                .map(|name| (name, node.attribute(name).and_then(|number| number.parse().ok()).expect("a number")))
        };
        assert_eq!(said(document.root_element()), [("tests", 7), ("failures", 2), ("errors", 1), ("skipped", 2)]);
        let suites: Vec<_> = document.root_element().children().filter(roxmltree::Node::is_element).collect();
        assert_eq!(suites.len(), 2);
        for node in suites.into_iter().chain([document.root_element()]) {
            assert_eq!(said(node), counted(node), "{text}");
        }
    }

    #[test]
    fn what_was_tried_again_stands_with_its_test() {
        let attempt = |result| Attempt::of(&result);
        let flaky =
            CaseResult { earlier: vec![attempt(failed("wrong <&> ]]>")), attempt(errored("cut"))], ..passed("ok") };
        let bad = CaseResult { earlier: vec![attempt(failed("first"))], ..failed("last") };
        let (run, log) = sample::run(vec![("flaky", flaky), ("bad", bad), ("good", passed("ok"))]);
        let text = whole(Format::Junit, run, &log, None).expect("text");
        let document = roxmltree::Document::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let case = |name: &str| {
            let mut cases = document.descendants().filter(|node| node.has_tag_name("testcase"));
            cases.find(|case| case.attribute("name") == Some(name)).expect("a case")
        };
        let children = |name: &str| {
            let beside = ["properties", "system-out"];
            let nodes = case(name)
                .children()
                .filter(|node| node.is_element() && !beside.iter().any(|name| node.has_tag_name(*name)));
            nodes.map(|node| node.tag_name().name().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(children("flaky"), ["flakyFailure", "flakyError"], "{text}");
        assert_eq!(children("bad"), ["failure", "rerunFailure"], "{text}");
        assert!(children("good").is_empty());
        let first = case("flaky").descendants().find(|node| node.has_tag_name("flakyFailure")).expect("one");
        assert_eq!(
            (first.attribute("type"), first.attribute("message")),
            (Some("assertion"), Some("responseContains: wrong <&> ]]>"))
        );
        let told = "attempt 1 of 3, blame agent: responseContains: wrong <&> ]]>";
        assert_eq!(
            first.descendants().filter_map(|node| node.text()).find(|text| text.trim() == told).map(str::trim),
            Some(told),
            "{text}"
        );
        assert_eq!(document.root_element().attribute("failures"), Some("1"), "what passed in the end is no failure");
    }

    /// Every test may be green where nobody can tell whether the gate was passed.
    #[test]
    fn a_gate_is_a_test() {
        for (passage, counts_as, child) in [
            (Passage::Passed, Passage::Passed, None),
            (Passage::Failed, Passage::Failed, Some("failure")),
            (Passage::CannotTell, Passage::CannotTell, Some("error")),
            (Passage::CannotTell, Passage::Passed, None),
            (Passage::CannotTell, Passage::Failed, Some("failure")),
        ] {
            let (mut run, log) = sample::repeated();
            run.totals = Totals { total: 12, passed: 7, failed: 1, errored: 4, ..Totals::default() };
            let gate = run.gate.take().expect("a gate");
            run.gate = Some(GateResult { passage, counts_as, ..gate });
            let text = whole(Format::Junit, run, &log, None).expect("text");
            let document = roxmltree::Document::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            let cases = || document.descendants().filter(|node| node.has_tag_name("testcase"));
            let gate = cases().find(|case| case.attribute("classname") == Some(GATE)).expect("a gate");
            let bad: Vec<&str> =
                gate.children().filter(roxmltree::Node::is_element).map(|node| node.tag_name().name()).collect();
            assert_eq!(bad, child.into_iter().collect::<Vec<_>>(), "{passage:?} {counts_as:?}: {text}");
            let counted = |tag: &str| cases().filter(|case| case.children().any(|node| node.has_tag_name(tag))).count();
            let said = |name: &str| document.root_element().attribute(name).and_then(|number| number.parse().ok());
            assert_eq!(
                (said("tests"), said("failures"), said("errors")),
                (Some(13), Some(counted("failure")), Some(counted("error")))
            );
        }
    }

    #[test]
    fn hostile_text_stays_text() {
        let (run, log) = sample::run(HOSTILE.iter().map(|text| (*text, failed(text))).collect());
        let text = whole(Format::Junit, run, &log, None).expect("text");
        let document = roxmltree::Document::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let cases = document.descendants().filter(|node| node.has_tag_name("testcase"));
        assert_eq!(cases.count(), HOSTILE.len());
        assert_eq!(crate::text::obeyed(&text), [""; 0]);
        assert!(!text.contains("[[ATTACHMENT"), "{text}");
    }

    /// GitLab takes the path from the text of `system-out`, and shows it with the tests that failed.
    #[test]
    fn the_page_is_the_attachment_of_what_did_not_pass() {
        let attached = |path: &str| {
            let (run, log) = sample::of_everything();
            let text = whole_of(Box::new(Junit::with_attachment(path)), run, &log, None).expect("text");
            let document = roxmltree::Document::parse(&text).expect("XML");
            let cases = document.descendants().filter(|node| node.has_tag_name("testcase"));
            let with = cases.filter(|case| {
                let out = case.children().find(|node| node.has_tag_name("system-out"));
                let is_bad = case.children().any(|node| node.has_tag_name("failure") || node.has_tag_name("error"));
                let has =
                    out.is_some_and(|out| out.text().is_some_and(|text| text == format!("[[ATTACHMENT|{path}]]")));
                assert!(is_bad || !has, "only those that did not pass have one");
                has
            });
            with.count()
        };
        assert_eq!(attached("out/page.html"), 3);
        for bad in ["", "a]]b.html", "a\nb.html", "a\u{202e}.html", "[[ATTACHMENT|x"] {
            assert_eq!(attached(bad), 0, "{bad:?}");
        }
    }

    #[test]
    fn properties_say_what_else_there_is_to_know() {
        let (mut run, log) = sample::of_everything();
        std::sync::Arc::make_mut(&mut run.spec).labels = vec![("branch".to_owned(), "main<1>".to_owned())];
        let text = whole(Format::Junit, run, &log, None).expect("text");
        let document = roxmltree::Document::parse(&text).expect("XML");
        let told: Vec<String> = document
            .descendants()
            .filter(|node| node.has_tag_name("property"))
            .map(|node| [node.attribute("name"), node.attribute("value")].map(|it| it.expect("both")).join("="))
            .collect();
        for fact in
            ["tier=golden", "agent=demo", "agent.version=1.2", "label.branch=main<1>", "blame=agent", "bug=BUG-7"]
        {
            assert!(told.iter().any(|told| told == fact), "{fact} in {told:?}");
        }
        let mut cases = document.descendants().filter(|node| node.has_tag_name("testcase"));
        assert!(cases.all(|case| case.attribute("file") == Some("evals/a.golden.json")));
    }
}
