//! Annotations of GitHub Actions: what did not pass, at its line in its file.
//!
//! GitHub shows a limited number of annotations of a step and a kind, and drops the others without a word: those that
//! count most come first, and the rest is named in one of another kind. What stands in them is escaped by GitHub's
//! rules, and so ends no line and begins no command.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use super::steps::{Room, plain};
use super::words::{count, cut};
use super::{Verdict, attempts_note, own_error, repeats};
use crate::case::CaseName;
use crate::event::Run;
use crate::suite::Dialect;
use crate::suite::spot::Spot;
use crate::text::{printable, printable_lines};
use crate::verdict::{AssertionResult, CaseResult, Outcome};

/// Most annotations of a kind that GitHub shows for a step.
pub const MAX_SHOWN: usize = 10;
/// Most cases of a kind of which more is kept than that they are there.
const MAX_KEPT: usize = 1_000;
/// Most cases that are named in one annotation.
const MAX_NAMED: usize = 30;
/// Most bytes of what stands in an annotation. GitHub takes 64 KiB.
const MAX_MESSAGE: usize = 4_000;
/// Most bytes of a title. GitHub takes 255 letters.
const MAX_TITLE: usize = 200;

/// How much an annotation matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// It makes the step fail.
    Error,
    /// Somebody should look at it.
    Warning,
    /// It is worth knowing.
    Notice,
}

/// One annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotation {
    /// How much it matters.
    pub level: Level,
    /// File, from the root of the repository, and line; a line of 0 is not told.
    pub place: Option<(String, u32)>,
    /// What it is about.
    pub title: String,
    /// What there is to say; may have several lines.
    pub message: String,
}

/// The command that makes it, a line without its end.
impl fmt::Display for Annotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.level {
            Level::Error => "::error ",
            Level::Warning => "::warning ",
            Level::Notice => "::notice ",
        })?;
        if let Some((file, line)) = &self.place {
            write!(f, "file={},", property(file))?;
            if *line > 0 {
                write!(f, "line={line},")?;
            }
        }
        let (title, message) =
            (clipped(&printable(&self.title), MAX_TITLE), clipped(&printable_lines(&self.message), MAX_MESSAGE));
        write!(f, "title={}::{}", property(&title), data(&message))
    }
}

/// The beginning of a text, with how much is left out.
fn clipped(text: &str, most: usize) -> String {
    let cut = cut(text, most);
    cut.note().map_or_else(|| cut.text.to_owned(), |note| format!("{} … {note}", cut.text))
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

/// What makes a run fail, as far as annotations differ by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counts {
    /// Each case that failed.
    Failed,
    /// Those that passed in the baseline, and those that it knows nothing of.
    Regressed,
    /// None that failed.
    Nothing,
}

/// Collects what is to be annotated while a run goes on.
#[derive(Debug, Default)]
pub struct Annotations {
    bad: Kept,
    odd: Kept,
}

/// Cases that are told of; of repetitions the first one.
#[derive(Debug, Default)]
struct Kept {
    cases: Vec<Noted>,
    places: HashMap<CaseName, usize>,
    /// Cases beyond those.
    more: usize,
}

#[derive(Debug)]
struct Noted {
    name: CaseName,
    outcome: Outcome,
    title: String,
    message: String,
    spot: Spot,
    /// Repetitions that were like this.
    times: usize,
}

impl Kept {
    fn take(&mut self, verdict: Verdict<'_>, message: impl FnOnce() -> String, spot: Spot) {
        let name = verdict.case.name();
        if let Some(place) = self.places.get(&name) {
            self.cases[*place].times += 1;
            return;
        }
        if self.cases.len() >= MAX_KEPT {
            // Repetitions of those are counted each, which is better than to hold all names.
            self.more += 1;
            return;
        }
        self.places.insert(name.clone(), self.cases.len());
        let about = verdict.own_name();
        let blank = if about.is_empty() { "" } else { ": " };
        self.cases.push(Noted {
            title: format!("{}{blank}{about}", name.case_id),
            name,
            outcome: verdict.result.outcome,
            message: message(),
            spot,
            times: 1,
        });
    }
}

impl Annotations {
    /// Takes a case that ended.
    pub fn take(&mut self, verdict: Verdict<'_>) {
        let result = verdict.result;
        if matches!(result.outcome, Outcome::Failed | Outcome::Errored) {
            self.bad.take(verdict, || why(result), spot(verdict));
        } else if result.is_flaky() || result.warning.is_some() {
            let note =
                || attempts_note(result).into_iter().chain(result.warning.clone()).collect::<Vec<_>>().join("\n");
            self.odd.take(verdict, note, Spot::Case);
        }
    }

    /// What is told of the run, which is over. `place` says where something of a case stands.
    #[must_use]
    pub fn finish(
        self,
        run: &Run,
        counts: Counts,
        place: impl Fn(&CaseName, &Spot) -> Option<(String, u32)>,
    ) -> Vec<Annotation> {
        let of_run =
            |level, title: &str, message: String| Annotation { level, place: None, title: title.to_owned(), message };
        let mut errors = Vec::new();
        let mut warnings = Vec::new();
        if let Some(trouble) = run.trouble() {
            errors.push(of_run(Level::Error, "Forge", trouble));
        }
        if let Some(gate) = run.gate.as_ref().filter(|_| run.exit_code() != 0) {
            let lines: Vec<String> = std::iter::once(repeats::headline(gate)).chain(gate.reasons.clone()).collect();
            let level = if counts == Counts::Nothing && run.exit_code() == 1 { Level::Warning } else { Level::Error };
            let list = if level == Level::Error { &mut errors } else { &mut warnings };
            list.push(of_run(level, "Forge: the gate of the run", lines.join("\n")));
        }
        let order: HashMap<&str, usize> = run.suites.iter().map(|suite| suite.path.as_str()).zip(0..).collect();
        let regressions: HashSet<(&str, &str)> = run
            .suites
            .iter()
            .filter_map(|suite| Some((suite.path.as_str(), suite.comparison.as_ref()?)))
            .flat_map(|(path, comparison)| comparison.regressions.iter().map(move |case| (path, case.as_str())))
            .collect();
        let has_regressed = |noted: &Noted| regressions.contains(&(&*noted.name.suite, &*noted.name.case_id));
        let is_compared = |noted: &Noted| {
            run.suites.iter().any(|suite| *suite.path == *noted.name.suite && suite.comparison.is_some())
        };
        let fails = |noted: &Noted| match (noted.outcome, counts) {
            (Outcome::Errored, _) => true,
            (_, Counts::Nothing) => false,
            (_, Counts::Regressed) => has_regressed(noted) || !is_compared(noted),
            // A gate decides about the run, whatever became of single cases.
            (_, Counts::Failed) => run.exit_code() != 0,
        };
        let Self { bad, odd } = self;
        let mut unseen = bad.more + odd.more;
        let told = |noted: Noted, level, is_regression: bool| {
            let regression = is_regression.then(|| "regression: it passed in the baseline".to_owned());
            let times = (noted.times > 1).then(|| format!("{} repetitions were like this; the first:", noted.times));
            let lines: Vec<String> = regression.into_iter().chain(times).chain([noted.message]).collect();
            Annotation { level, place: place(&noted.name, &noted.spot), title: noted.title, message: lines.join("\n") }
        };
        let mut cases = bad.cases;
        // They come as they ended, and stand as they do in their files.
        cases.sort_by_key(|noted| {
            let line = place(&noted.name, &Spot::Case).map(|(_, line)| line);
            (!has_regressed(noted), order.get(&*noted.name.suite).copied(), line)
        });
        let (failing, passed_over): (Vec<_>, Vec<_>) = cases.into_iter().partition(fails);
        let mut left_out: Vec<Arc<str>> = Vec::new();
        let below = passed_over.into_iter().chain(odd.cases).collect();
        for (list, cases, level) in [(&mut errors, failing, Level::Error), (&mut warnings, below, Level::Warning)] {
            for noted in cases {
                if list.len() < MAX_SHOWN {
                    let is_regression = has_regressed(&noted);
                    list.push(told(noted, level, is_regression));
                } else if left_out.len() < MAX_NAMED {
                    left_out.push(Arc::clone(&noted.name.case_id));
                } else {
                    unseen += 1;
                }
            }
        }
        let number = left_out.len() + unseen;
        let mut all = errors;
        all.extend(warnings);
        if number > 0 {
            let names = left_out.iter().map(|id| printable(id)).collect::<Vec<_>>().join(", ");
            let more = if unseen > 0 { format!(" and {unseen} more") } else { String::new() };
            let cases = count(number, "other case", "other cases");
            all.push(of_run(Level::Notice, "Forge", format!("{cases} did not pass or have warnings: {names}{more}")));
        }
        all
    }
}

/// What kept a program from having a run at all.
#[must_use]
pub fn trouble(message: &str, details: &[String], hint: Option<&str>) -> Annotation {
    let hint = hint.map(|hint| format!("hint: {hint}"));
    let lines: Vec<&str> =
        std::iter::once(message).chain(details.iter().map(String::as_str)).chain(hint.as_deref()).collect();
    Annotation { level: Level::Error, place: None, title: "Forge".to_owned(), message: lines.join("\n") }
}

/// What went wrong in a case, and what happened in it.
fn why(result: &CaseResult) -> String {
    let mut lines: Vec<String> = attempts_note(result).into_iter().collect();
    lines.extend(own_error(result).map(str::to_owned));
    for assertion in result.assertions.iter().filter(|assertion| is_bad(assertion)) {
        lines.push(format!("{}: {}", assertion.name, assertion.reason));
        lines.extend(Some(&assertion.hint).filter(|hint| !hint.is_empty()).cloned());
    }
    lines.extend(result.hint.clone().filter(|_| result.failed_assertion.is_none()));
    lines.push(plain(result, Room::CONSOLE));
    lines.join("\n").trim_end().to_owned()
}

const fn is_bad(assertion: &AssertionResult) -> bool {
    matches!(assertion.outcome, Outcome::Failed | Outcome::Errored)
}

/// What of a case decided about it, as far as a line of its file says it.
fn spot(verdict: Verdict<'_>) -> Spot {
    let result = verdict.result;
    let missing = result.checkpoints.iter().find(|it| it.required && it.reached_at_turn.is_none());
    if let Some(checkpoint) = missing {
        return Spot::Checkpoint(checkpoint.id.clone());
    }
    let bad = result.assertions.iter().enumerate().find(|(_, assertion)| is_bad(assertion));
    match (Dialect::of(&verdict.case.suite), bad, &result.failed_assertion) {
        (Dialect::Framework, Some((at, assertion)), _) => Spot::Assertion(at, assertion.name.clone()),
        (Dialect::Contract, _, Some(key)) => Spot::Expected(key.clone()),
        (Dialect::Contract, Some((_, assertion)), None) => Spot::Expected(assertion.name.clone()),
        (Dialect::Contract | Dialect::Framework, _, _) => Spot::Case,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::RunEvent;
    use crate::report::sample::{self, HOSTILE, errored, failed, passed};
    use crate::text::obeyed;
    use crate::verdict::baseline::Comparison;

    fn annotated(run: &Run, log: &[RunEvent], counts: Counts) -> Vec<Annotation> {
        let mut annotations = Annotations::default();
        for pair in log.chunks(2) {
            if let Some(verdict) = Verdict::of(&pair[0], &pair[1]) {
                annotations.take(verdict);
            }
        }
        annotations.finish(run, counts, |case, _| Some((format!("{}:1,2", case.suite), 7)))
    }

    /// Reads a line as the runner of GitHub does, by its `ActionCommand.cs`: command, properties, and text.
    fn read(line: &str) -> (String, HashMap<String, String>, String) {
        let (info, text) = line.trim_start().strip_prefix("::").and_then(|it| it.split_once("::")).expect("a command");
        let (command, properties) = info.split_once(' ').unwrap_or((info, ""));
        let unescape = |text: &str| text.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%");
        let pairs = properties.split(',').filter_map(|pair| pair.split_once('='));
        let of_property = |text: &str| unescape(&text.replace("%3A", ":").replace("%2C", ","));
        (command.to_owned(), pairs.map(|(key, value)| (key.to_owned(), of_property(value))).collect(), unescape(text))
    }

    #[test]
    fn each_says_what_went_wrong_and_where() {
        let (run, log) = sample::of_everything();
        let all = annotated(&run, &log, Counts::Failed);
        let lines: Vec<String> = all.iter().map(ToString::to_string).collect();
        let told: Vec<_> = lines.iter().map(|line| read(line)).collect();
        let titles: Vec<(&str, &str)> =
            told.iter().map(|(level, of, _)| (level.as_str(), of["title"].as_str())).collect();
        let bad = ["worse: about worse", "dialogue: about dialogue", "broken: about broken"];
        assert_eq!(titles[..3], bad.map(|title| ("error", title)), "{titles:?}");
        assert_eq!(titles[3..], [("warning", "better: about better")]);
        let (_, properties, text) = &told[0];
        assert_eq!((properties["file"].as_str(), properties["line"].as_str()), ("evals/a.golden.json:1,2", "7"));
        assert!(
            text.starts_with("regression: it passed in the baseline\nresponseContains: expected \"x\"\n"),
            "{text}"
        );
        assert!(text.contains("user: What is <x>?\n→ look ") && text.contains("\nagent: The answer."), "{text}");
    }

    #[test]
    fn hostile_text_begins_no_command() {
        let all = HOSTILE.iter().map(|text| (*text, failed(text)));
        let (mut run, log) = sample::run(all.collect());
        run.warnings = HOSTILE.iter().map(|text| (*text).to_owned()).collect();
        let all = annotated(&run, &log, Counts::Failed);
        for annotation in &all {
            let line = annotation.to_string();
            assert!(!line.contains(['\n', '\r']) && line.chars().all(|c| !c.is_control()), "{line:?}");
            assert_eq!(obeyed(&line).len(), 1, "only ours: {line}");
            let (command, properties, text) = read(&line);
            assert!(["error", "warning", "notice"].contains(&command.as_str()), "{line}");
            let mut keys: Vec<&str> = properties.keys().map(String::as_str).collect();
            keys.sort_unstable();
            assert!(keys == ["file", "line", "title"] || keys == ["title"], "{keys:?} in {line}");
            assert_eq!(
                text,
                clipped(&printable_lines(&annotation.message), MAX_MESSAGE),
                "what GitHub shows is what was meant"
            );
            assert_eq!(obeyed(&text), [""; 0], "nor what it shows: {text}");
        }
    }

    #[test]
    fn no_more_than_github_shows_and_the_rest_is_named() {
        let ids: Vec<String> = (0..2_000).map(|number| format!("case-{number:04}")).collect();
        let cases = ids.iter().map(|id| (id.as_str(), if id.ends_with('7') { errored("no") } else { failed("no") }));
        let (mut run, log) = sample::run(cases.collect());
        run.suites[0].comparison =
            Some(Comparison { regressions: vec!["case-0042".to_owned()], ..Comparison::default() });
        let all = annotated(&run, &log, Counts::Failed);
        let number = |all: &[Annotation], level| all.iter().filter(|annotation| annotation.level == level).count();
        assert_eq!([Level::Error, Level::Warning, Level::Notice].map(|level| number(&all, level)), [10, 0, 1]);
        assert_eq!(all[0].title, "case-0042: about case-0042", "a regression counts most");
        let rest = &all.last().expect("a notice").message;
        assert!(rest.starts_with("1990 other cases did not pass or have warnings: case-0009, case-0010"), "{rest}");
        assert!(rest.ends_with(" and 1960 more"), "{rest}");
        assert!(all.iter().all(|annotation| annotation.to_string().len() < 16_000));

        // What does not make the step fail is no error.
        let all = annotated(&run, &log, Counts::Regressed);
        let titles: Vec<&str> = all.iter().filter(|it| it.level == Level::Error).map(|it| it.title.as_str()).collect();
        let begins = ["case-0042", "case-0007", "case-0017"];
        assert!(titles.iter().zip(begins).all(|(title, begin)| title.starts_with(begin)), "{titles:?}");
        assert_eq!([Level::Error, Level::Warning].map(|level| number(&all, level)), [10, 10]);
        let all = annotated(&run, &log, Counts::Nothing);
        assert!(all.iter().filter(|it| it.level == Level::Error).all(|it| it.title.ends_with('7')));
    }

    #[test]
    fn repetitions_are_one_annotation() {
        let (run, log) = sample::repeated();
        let all = annotated(&run, &log, Counts::Failed);
        let mut titles: Vec<&str> = all.iter().map(|annotation| annotation.title.as_str()).collect();
        let number = titles.len();
        titles.sort_unstable();
        titles.dedup();
        assert_eq!(titles.len(), number, "{titles:?}");
        assert!(all.iter().any(|annotation| annotation.message.contains(" repetitions were like this; the first:\n")));
    }

    #[test]
    fn nothing_is_said_of_what_passed() {
        let (run, log) = sample::run(vec![("a", passed("yes"))]);
        assert_eq!(annotated(&run, &log, Counts::Failed), []);
    }
}
