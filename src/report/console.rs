//! The console summary of the Eval Runner Contract.

use std::collections::HashMap;
use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use unicode_width::UnicodeWidthStr as _;

use super::steps::{Kind, Room, Step, steps};
use super::words::is_bad;
use super::{Verdict, attempts_note};
use crate::conversation::Cost;
use crate::event::SuiteInfo;
use crate::suite::Labels;
use crate::text::{fit, printable, wrap};
use crate::verdict::baseline::Comparison;
use crate::verdict::{CaseResult, Cause, Outcome, whole_millis};

/// Length of the rules above and below, where there is room for it.
const RULE: usize = 67;
/// Longest error that is shown, in columns; reports hold it whole.
const MAX_ERROR: usize = 600;

/// Most things that went wrong in the repetitions of a case that are told.
const MAX_TROUBLES: usize = 3;
/// Most repetitions that are named with one of them.
const MAX_NUMBERS: usize = 5;

/// How the summary looks. Decided once, where it is known whether people read it on a terminal.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Columns of the terminal.
    pub width: usize,
    /// Whether to use colours.
    pub colors: bool,
    /// Whether long texts are broken into lines: people read them, and no program looks for them.
    pub wraps: bool,
    /// Whether only cases are shown that did not pass.
    pub is_brief: bool,
}

impl Look {
    /// For programs.
    pub const PIPE: Self = Self { width: 100, colors: false, wraps: false, is_brief: false };

    pub(super) fn style(self, style: Style) -> Style {
        if self.colors { style } else { Style::new() }
    }

    /// A text in lines, all but the first behind an indent.
    #[must_use]
    pub fn wrapped(self, text: &str, indent: &str) -> String {
        let width = if self.wraps { self.width.saturating_sub(indent.len()) } else { usize::MAX };
        // A line with nothing on it has no indent either.
        let lines = wrap(text, width).into_iter().enumerate();
        let lines = lines.map(|(at, line)| if at == 0 || line.is_empty() { line } else { format!("{indent}{line}") });
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// What the console shows of one case; kept by a client instead of the whole verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// What people call it.
    id: String,
    /// Its id alone, which its repetitions share.
    case: String,
    repeat: u32,
    name: String,
    outcome: Outcome,
    error: Option<String>,
    /// What was there in place of what was wanted.
    hint: Option<String>,
    /// What happened, if it did not pass.
    steps: Vec<Step>,
    /// What its author noted beside it, in a line.
    labels: String,
    warnings: Vec<String>,
    millis: u64,
    skipped_assertions: u32,
    /// Whether it was not run because that was asked for.
    left_out: bool,
    /// Whether it was ended before it had a verdict, because its run was.
    is_cancelled: bool,
    /// Whether it is counted and not shown: the gate says how many there are.
    is_hidden: bool,
    cost: Option<Cost>,
    /// Where its trace is found, if it did not pass.
    trace: String,
}

impl Line {
    /// What came of the case.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// The line of a verdict.
    #[must_use]
    pub fn of(verdict: Verdict<'_>) -> Self {
        let CaseResult { outcome, cause, error, transcript, .. } = verdict.result;
        Self {
            id: printable(&verdict.case.label()),
            case: printable(&verdict.case.case_id),
            repeat: verdict.case.repeat,
            name: printable(verdict.name),
            outcome: *outcome,
            error: error.as_deref().map(|error| fit(&printable(error), MAX_ERROR)),
            hint: verdict.result.hint.as_deref().map(|hint| fit(&printable(hint), MAX_ERROR)),
            steps: if is_bad(*outcome) { steps(verdict.result, Room::CONSOLE) } else { Vec::new() },
            labels: labels_line(verdict.labels),
            warnings: remarks(verdict.result),
            millis: whole_millis(transcript.duration),
            skipped_assertions: verdict.result.assertions_skipped(),
            left_out: *outcome == Outcome::Skipped && cause.is_none(),
            is_cancelled: *outcome == Outcome::Errored && *cause == Some(Cause::Cancelled),
            is_hidden: verdict.result.is_left_out(),
            cost: transcript.usage.and_then(|usage| usage.cost),
            trace: verdict.trace_if_bad(),
        }
    }
}

/// What is odd about a case, as it is shown.
pub(super) fn remarks(result: &CaseResult) -> Vec<String> {
    let all = attempts_note(result).into_iter().chain(result.warning.clone()).chain(result.warnings.iter().cloned());
    all.map(|remark| fit(&printable(&remark), MAX_ERROR)).collect()
}

/// Labels help with a case that did not pass: how hard it is, which bug it may have brought back.
fn labels_line(labels: &Labels) -> String {
    let Labels { difficulty, bug_ref, created_at, tags } = labels;
    let tags = (!tags.is_empty()).then(|| tags.join(", "));
    let named = [("difficulty", difficulty), ("bug", bug_ref), ("since", created_at), ("tags", &tags)];
    let shown = named.iter().filter_map(|(name, text)| Some(format!("{name}: {}", text.as_ref()?)));
    fit(&printable(&shown.collect::<Vec<_>>().join(" | ")), MAX_ERROR)
}

/// The summary of one suite, with a line break at its end. `path`: what tells it from another suite of the same name.
#[must_use]
pub fn summary(suite: &SuiteInfo, path: Option<&str>, lines: &[&Line], warnings: &[String], look: Look) -> String {
    let mut out = String::new();
    let title = format!("═══ {} — {} evals ", printable(&suite.tool_name), suite.tier.name());
    let rule = RULE.min(look.width);
    let title = fit(&title, rule.saturating_sub(3).max(20));
    let rest = "═".repeat(rule.saturating_sub(title.width()).max(3));
    let bold = look.style(Style::new().bold());
    let _ = writeln!(out, "{bold}{title}{rest}{bold:#}");
    if let Some(path) = path {
        let _ = writeln!(out, "  {}", fit(&printable(path), rule.saturating_sub(2)));
    }
    let rows = rows(lines, look);
    let columns = Columns::of(&rows, look.width);
    if let Some(comparison) = &suite.comparison {
        let by_id: HashMap<&str, &Line> = lines.iter().rev().map(|line| (line.id.as_str(), *line)).collect();
        let error = |id: &str| by_id.get(id).and_then(|line| line.error.as_ref());
        write_regressions(&mut out, comparison, error, look);
    }
    for row in &rows {
        write_row(&mut out, row, &columns, look);
    }
    let _ = writeln!(out, "{}", "─".repeat(rule));
    let _ = writeln!(out, "  {}", totals(lines));
    write_remarks(&mut out, suite, warnings, look);
    out
}

/// What stands below the sums of a suite: how it compares, and what is odd about it.
pub(super) fn write_remarks(out: &mut String, suite: &SuiteInfo, warnings: &[String], look: Look) {
    if let Some(comparison) = &suite.comparison {
        let _ = writeln!(out, "  {}", look.wrapped(&compared(comparison), "    "));
    }
    let yellow = look.style(AnsiColor::Yellow.on_default());
    for difference in suite.comparison.iter().flat_map(|comparison| &comparison.differences) {
        let difference = look.wrapped(&format!("compared with {}", printable(difference)), "    ");
        let _ = writeln!(out, "  {yellow}⚠{yellow:#} {difference}");
    }
    let stale = suite.staleness.iter().flat_map(|staleness| &staleness.warnings).map(|warning| &warning.short);
    for warning in stale.chain(warnings) {
        let _ = writeln!(out, "  {yellow}⚠{yellow:#} {}", look.wrapped(&printable(warning), "    "));
    }
}

/// What broke stands first: it is what people came for; then what nobody can tell any more. `error` knows why, by the
/// id as it is shown.
pub(super) fn write_regressions<'a>(
    out: &mut String,
    comparison: &Comparison,
    error: impl Fn(&str) -> Option<&'a String>,
    look: Look,
) {
    let lists = [
        ("✗ regression", AnsiColor::Red, &comparison.regressions),
        ("? not judged", AnsiColor::Yellow, &comparison.not_judged),
    ];
    for (what, color, ids) in lists {
        let color = look.style(color.on_default().bold());
        for id in ids.iter().map(|id| printable(id)) {
            let _ = writeln!(out, "  {color}{what}{color:#} {id}: it passed in the baseline");
            if let Some(error) = error(&id) {
                let _ = writeln!(out, "    {color}→{color:#} {}", look.wrapped(error, "      "));
            }
        }
    }
}

/// The comparison in a line: counts, and the names of what is new or gone.
fn compared(comparison: &Comparison) -> String {
    let named = |what: &str, ids: &[String]| match ids {
        [] => String::new(),
        ids => format!(" | {what}: {}", fit(&printable(&ids.join(", ")), MAX_ERROR)),
    };
    format!(
        "baseline {}: {} regressed | {} newly passing{}{}{}",
        printable(&comparison.baseline_run_id),
        comparison.regressions.len(),
        comparison.new_passes.len(),
        named("passed then, not judged now", &comparison.not_judged),
        named("new", &comparison.new_cases),
        named("vanished", &comparison.vanished_cases),
    )
}

/// The totals line, without its indent, in the words of the contract; what could not be judged, was cancelled or was
/// not run did not fail, and is named behind that.
#[must_use]
pub fn totals(lines: &[&Line]) -> String {
    let count = |is: fn(&Line) -> bool| lines.iter().filter(|line| is(line)).count();
    let passed = count(|line| line.outcome == Outcome::Passed);
    let failed = count(|line| line.outcome == Outcome::Failed);
    let others = [
        (count(|line| line.outcome == Outcome::Errored && !line.is_cancelled), "errored"),
        (count(|line| line.is_cancelled), "cancelled"),
        (count(|line| line.outcome == Outcome::Skipped && !line.left_out), "not run"),
        (count(|line| line.left_out), "skipped"),
    ];
    let others = others.iter().filter(|(number, _)| *number > 0);
    let others: Vec<String> = others.map(|(number, what)| format!(" | {number} {what}")).collect();
    let others = others.concat();
    let millis: u64 = lines.iter().map(|line| line.millis).sum();
    let skipped: u32 = lines.iter().map(|line| line.skipped_assertions).sum();
    let cost = lines.iter().filter_map(|line| line.cost).map(Cost::usd).reduce(|sum, cost| sum + cost);
    let cost = cost.map(|cost| format!(" | ${cost:.4}")).unwrap_or_default();
    format!(
        "{passed}/{} passed | {failed} failed{others} | {skipped} skipped assertions | {millis}ms total{cost}",
        lines.len()
    )
}

struct Columns {
    id: usize,
    name: usize,
    millis: usize,
}

impl Columns {
    fn of(rows: &[Row<'_>], width: usize) -> Self {
        let widest = |of: fn(&Row<'_>) -> usize| rows.iter().map(of).max().unwrap_or(0);
        let id = widest(|row| row.label().width()).min(40);
        let millis = widest(|row| row.millis().to_string().len() + 2);
        // "  ✓ ", two blanks between the columns.
        let room = width.saturating_sub(4 + id + 2 + 2 + millis);
        Self { id, name: widest(|row| row.lines[0].name.width()).min(room.max(10)), millis }
    }
}

/// A case of the summary; its repetitions share a line.
struct Row<'a> {
    /// One at least.
    lines: Vec<&'a Line>,
}

/// The cases that are shown, in their order.
fn rows<'a>(lines: &[&'a Line], look: Look) -> Vec<Row<'a>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for line in lines.iter().filter(|line| !line.is_hidden) {
        match rows.last_mut().filter(|row| row.lines[0].case == line.case && line.repeat > 1) {
            Some(row) => row.lines.push(line),
            None => rows.push(Row { lines: vec![line] }),
        }
    }
    rows.retain(|row| !look.is_brief || row.outcome() != Outcome::Passed);
    rows
}

impl Row<'_> {
    /// What people call it, and how many of its repetitions passed.
    fn label(&self) -> String {
        let passed = self.lines.iter().filter(|line| line.outcome == Outcome::Passed).count();
        match self.lines.as_slice() {
            [line] => line.id.clone(),
            lines => format!("{} {passed}/{}", lines[0].case, lines.len()),
        }
    }

    /// The worst of its outcomes.
    fn outcome(&self) -> Outcome {
        let worst = [Outcome::Errored, Outcome::Failed, Outcome::Skipped];
        let worst = worst.into_iter().find(|worst| self.lines.iter().any(|line| line.outcome == *worst));
        worst.unwrap_or(Outcome::Passed)
    }

    fn millis(&self) -> u64 {
        self.lines.iter().map(|line| line.millis).sum()
    }

    /// What went wrong, each thing once, with the repetitions that say so.
    fn troubles(&self) -> Vec<(&Line, Vec<u32>)> {
        let mut troubles: Vec<(&Line, Vec<u32>)> = Vec::new();
        for line in self.lines.iter().filter(|line| line.error.is_some()) {
            match troubles.iter_mut().find(|(first, _)| first.error == line.error) {
                Some((_, repeats)) => repeats.push(line.repeat),
                None => troubles.push((line, vec![line.repeat])),
            }
        }
        troubles
    }
}

fn write_row(out: &mut String, row: &Row<'_>, columns: &Columns, look: Look) {
    let (sign, color) = sign(row.outcome());
    let color = look.style(color.on_default());
    let id = pad(&fit(&row.label(), columns.id), columns.id);
    let name = pad(&fit(&row.lines[0].name, columns.name), columns.name);
    let millis = format!("{}ms", row.millis());
    let _ = writeln!(out, "  {color}{sign}{color:#} {id}  {name}  {millis:>width$}", width = columns.millis);
    let troubles = row.troubles();
    for (at, (line, repeats)) in troubles.iter().take(MAX_TROUBLES).enumerate() {
        let which = if row.lines.len() > 1 { format!("{}: ", numbers(repeats)) } else { String::new() };
        let error = look.wrapped(&format!("{which}{}", line.error.as_deref().unwrap_or_default()), "      ");
        let _ = writeln!(out, "    {color}→{color:#} {error}");
        if let Some(hint) = &line.hint {
            let _ = writeln!(out, "      {}", look.wrapped(hint, "      "));
        }
        if !line.labels.is_empty() && at == 0 {
            let _ = writeln!(out, "      {}", look.wrapped(&line.labels, "      "));
        }
        write_steps(out, &line.steps, "      ", look);
        if !line.trace.is_empty() {
            let _ = writeln!(out, "      trace {}", line.trace);
        }
    }
    if troubles.len() > MAX_TROUBLES {
        let _ = writeln!(out, "      … and {} more that differ", troubles.len() - MAX_TROUBLES);
    }
    let yellow = look.style(AnsiColor::Yellow.on_default());
    let mut warnings: Vec<&String> = Vec::new();
    for warning in row.lines.iter().flat_map(|line| &line.warnings) {
        if !warnings.contains(&warning) {
            warnings.push(warning);
            let _ = writeln!(out, "    {yellow}⚠{yellow:#} {}", look.wrapped(warning, "      "));
        }
    }
}

/// How an outcome looks.
pub(super) const fn sign(outcome: Outcome) -> (&'static str, AnsiColor) {
    match outcome {
        Outcome::Passed => ("✓", AnsiColor::Green),
        Outcome::Failed | Outcome::Errored => ("✗", AnsiColor::Red),
        Outcome::Skipped => ("○", AnsiColor::Yellow),
    }
}

/// Which repetitions, as in `#2, #4`.
pub(super) fn numbers(repeats: &[u32]) -> String {
    let shown: Vec<String> = repeats.iter().take(MAX_NUMBERS).map(|repeat| format!("#{repeat}")).collect();
    let rest = repeats.len().saturating_sub(MAX_NUMBERS);
    let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    shown.join(", ") + &rest
}

/// A case by itself, as the summary has it.
#[must_use]
pub fn alone(line: &Line, look: Look) -> String {
    let row = Row { lines: vec![line] };
    let mut out = String::new();
    write_row(&mut out, &row, &Columns::of(std::slice::from_ref(&row), look.width), look);
    out
}

/// What happened, a step below the other.
pub(super) fn write_steps(out: &mut String, steps: &[Step], indent: &str, look: Look) {
    for step in steps {
        let style = look.style(match step.kind {
            Kind::Input | Kind::Output => Style::new().bold(),
            Kind::Tool => AnsiColor::Cyan.on_default(),
            Kind::Failed => AnsiColor::Red.on_default(),
            Kind::Aside => Style::new().dimmed(),
        });
        let turn = if step.turn > 0 { format!("turn {} ", step.turn) } else { String::new() };
        let what = format!("{turn}{}", step.what);
        let parts = [what.as_str(), step.text.trim_end_matches('\n'), &step.note];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let below = format!("{indent}  ");
        let text = look.wrapped(&parts.join(" "), &below);
        // The words in front are never broken: they are ours, or end a line anyway.
        let (front, rest) =
            text.split_at_checked(what.len()).filter(|(front, _)| *front == what).unwrap_or(("", &text));
        let _ = writeln!(out, "{indent}{style}{front}{style:#}{rest}");
    }
}

fn pad(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(text.width())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::Tier;

    fn line(id: &str, name: &str, millis: u64, outcome: Outcome, error: Option<&str>) -> Line {
        Line {
            trace: String::new(),
            id: id.to_owned(),
            case: id.to_owned(),
            repeat: 1,
            steps: Vec::new(),
            name: name.to_owned(),
            outcome,
            error: error.map(str::to_owned),
            hint: None,
            labels: String::new(),
            warnings: Vec::new(),
            millis,
            skipped_assertions: 0,
            left_out: false,
            is_cancelled: false,
            is_hidden: false,
            cost: None,
        }
    }

    fn suite() -> SuiteInfo {
        SuiteInfo {
            path: "evals/get_weather.golden.json".to_owned(),
            tool_name: "get_weather".to_owned(),
            tier: Tier::Golden,
            eval_file_hash: String::new(),
            cases: 6,
            warnings: Vec::new(),
            staleness: None,
            comparison: None,
        }
    }

    #[test]
    fn the_summary_of_the_contract() {
        let lines = [
            line("gs-get-weather-001", "trigger phrase — direct weather question", 1250, Outcome::Passed, None),
            line("gs-get-weather-004", "rephrased — casual wording", 980, Outcome::Passed, None),
            line(
                "gs-get-weather-005",
                "no raw JSON leak",
                2100,
                Outcome::Failed,
                Some("responseNotContains: found \"fetchedAt\" in response"),
            ),
        ];
        let warnings = ["Description hash mismatch (generated: abc123, current: def456)".to_owned()];
        let shown =
            summary(&suite(), None, &lines.iter().collect::<Vec<_>>(), &warnings, Look { width: 80, ..Look::PIPE });
        let expected = "\
═══ get_weather — golden evals ════════════════════════════════════
  ✓ gs-get-weather-001  trigger phrase — direct weather question  1250ms
  ✓ gs-get-weather-004  rephrased — casual wording                 980ms
  ✗ gs-get-weather-005  no raw JSON leak                          2100ms
    → responseNotContains: found \"fetchedAt\" in response
───────────────────────────────────────────────────────────────────
  2/3 passed | 1 failed | 0 skipped assertions | 4330ms total
  ⚠ Description hash mismatch (generated: abc123, current: def456)
";
        assert_eq!(shown, expected);
    }

    #[test]
    fn lines_fit_and_align_whatever_the_letters() {
        let lines = [
            line(
                "日本",
                "天気はどうですか、東京の今日の天気を教えてください、それから明日も",
                5,
                Outcome::Errored,
                None,
            ),
            line("plain", "short", 12345, Outcome::Skipped, None),
        ];
        let shown = summary(&suite(), None, &lines.iter().collect::<Vec<_>>(), &[], Look { width: 60, ..Look::PIPE });
        let widths: Vec<usize> = shown.lines().skip(1).take(2).map(str::width).collect();
        assert_eq!(widths[0], widths[1]);
        assert!(widths[0] <= 60, "{shown}");
        assert!(shown.contains("0/2 passed | 0 failed | 1 errored | 1 not run | 0 skipped"), "{shown}");
    }

    #[test]
    fn repetitions_share_a_line_and_tell_each_trouble_once() {
        let of = |repeat, outcome, error| {
            let id = if repeat > 1 { format!("a #{repeat}") } else { "a".to_owned() };
            Line { case: "a".to_owned(), repeat, ..line(&id, "about a", 100, outcome, error) }
        };
        let mut lines = [
            of(1, Outcome::Passed, None),
            of(2, Outcome::Failed, Some("no")),
            of(3, Outcome::Failed, Some("never")),
            of(4, Outcome::Failed, Some("no")),
            line("b", "about b", 1, Outcome::Passed, None),
        ];
        lines[1].steps = vec![Step {
            turn: 0,
            kind: Kind::Output,
            what: "agent:".to_owned(),
            text: "one two three four five six seven eight\nnine".to_owned(),
            note: "… 2 bytes more".to_owned(),
        }];
        let lines: Vec<&Line> = lines.iter().collect();
        let look = Look { width: 40, wraps: true, ..Look::PIPE };
        let shown = summary(&suite(), None, &lines, &[], look);
        let expected = "  ✗ a 1/4  about a  400ms
    → #2, #4: no
      agent: one two three four five
        six seven eight
        nine … 2 bytes more
    → #3: never
  ✓ b      about b    1ms
";
        let body = shown.lines().skip(1).take(7).collect::<Vec<_>>().join("\n") + "\n";
        assert_eq!(body, expected);
        let brief = summary(&suite(), None, &lines, &[], Look { is_brief: true, ..look });
        assert!(!brief.contains("✓ b") && brief.contains("✗ a 1/4") && brief.contains("2/5 passed"), "{brief}");
    }
}
