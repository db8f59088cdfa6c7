//! The console summary of the Eval Runner Contract.

use std::collections::HashMap;
use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use unicode_width::UnicodeWidthStr as _;

use super::{Verdict, attempts_note};
use crate::conversation::Cost;
use crate::event::SuiteInfo;
use crate::suite::Labels;
use crate::text::{fit, printable};
use crate::verdict::baseline::Comparison;
use crate::verdict::{CaseResult, Outcome, whole_millis};

/// Length of the rules above and below, where there is room for it.
const RULE: usize = 67;
/// Longest error that is shown, in columns; reports hold it whole.
const MAX_ERROR: usize = 600;

/// How the summary looks. Decided once, where it is known whether people read it on a terminal.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Columns of the terminal.
    pub width: usize,
    /// Whether to use colours.
    pub colors: bool,
}

/// What the console shows of one case; kept by a client instead of the whole verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    id: String,
    name: String,
    outcome: Outcome,
    error: Option<String>,
    /// What was there in place of what was wanted.
    hint: Option<String>,
    /// What its author noted beside it, in a line.
    labels: String,
    warnings: Vec<String>,
    millis: u64,
    skipped_assertions: u32,
    /// Whether it was not run because that was asked for.
    left_out: bool,
    /// Whether it is counted and not shown: the gate says how many there are.
    is_hidden: bool,
    cost: Option<Cost>,
    /// Where its trace is found, if it did not pass.
    trace: String,
}

impl Line {
    /// The line of a verdict.
    #[must_use]
    pub fn of(verdict: Verdict<'_>) -> Self {
        let CaseResult { outcome, cause, error, transcript, .. } = verdict.result;
        Self {
            id: printable(&verdict.case.label()),
            name: printable(verdict.name),
            outcome: *outcome,
            error: error.as_deref().map(|error| fit(&printable(error), MAX_ERROR)),
            hint: verdict.result.hint.as_deref().map(|hint| fit(&printable(hint), MAX_ERROR)),
            labels: labels_line(verdict.labels),
            warnings: remarks(verdict.result),
            millis: whole_millis(transcript.duration),
            skipped_assertions: verdict.result.assertions_skipped(),
            left_out: *outcome == Outcome::Skipped && cause.is_none(),
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
    let columns = Columns::of(lines, look.width);
    if let Some(comparison) = &suite.comparison {
        let by_id: HashMap<&str, &Line> = lines.iter().rev().map(|line| (line.id.as_str(), *line)).collect();
        let error = |id: &str| by_id.get(id).and_then(|line| line.error.as_ref());
        write_regressions(&mut out, comparison, error, look);
    }
    for line in lines.iter().filter(|line| !line.is_hidden) {
        write_line(&mut out, line, &columns, look);
    }
    let _ = writeln!(out, "{}", "─".repeat(rule));
    let _ = writeln!(out, "  {}", totals(lines));
    write_remarks(&mut out, suite, warnings, look);
    out
}

/// What stands below the sums of a suite: how it compares, and what is odd about it.
pub(super) fn write_remarks(out: &mut String, suite: &SuiteInfo, warnings: &[String], look: Look) {
    if let Some(comparison) = &suite.comparison {
        let _ = writeln!(out, "  {}", compared(comparison));
    }
    let yellow = look.style(AnsiColor::Yellow.on_default());
    for difference in suite.comparison.iter().flat_map(|comparison| &comparison.differences) {
        let _ = writeln!(out, "  {yellow}⚠{yellow:#} compared with {}", printable(difference));
    }
    let stale = suite.staleness.iter().flat_map(|staleness| &staleness.warnings).map(|warning| &warning.short);
    for warning in stale.chain(warnings) {
        let _ = writeln!(out, "  {yellow}⚠{yellow:#} {}", printable(warning));
    }
}

/// What broke stands first: it is what people came for; then what nobody can tell any more. `error` knows why, by the id as it is shown.
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
                let _ = writeln!(out, "    {color}→{color:#} {error}");
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

/// The totals line, without its indent. What did not pass counts as failed, in the words of the contract; what could
/// not be judged or was not run is named behind it.
#[must_use]
pub fn totals(lines: &[&Line]) -> String {
    let count = |outcome| lines.iter().filter(|line| line.outcome == outcome).count();
    let passed = count(Outcome::Passed);
    let millis: u64 = lines.iter().map(|line| line.millis).sum();
    let skipped: u32 = lines.iter().map(|line| line.skipped_assertions).sum();
    let mut notes = Vec::new();
    // What was left out as asked is no failure.
    let left_out = lines.iter().filter(|line| line.left_out).count();
    let not_run = count(Outcome::Skipped) - left_out;
    for (number, note) in [(count(Outcome::Errored), "errored"), (not_run, "not run")] {
        if number > 0 {
            notes.push(format!("{number} {note}"));
        }
    }
    let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join(", ")) };
    let failed = lines.len() - passed - left_out;
    let left_out = if left_out > 0 { format!(" | {left_out} skipped") } else { String::new() };
    let cost = lines.iter().filter_map(|line| line.cost).map(Cost::usd).reduce(|sum, cost| sum + cost);
    let cost = cost.map(|cost| format!(" | ${cost:.4}")).unwrap_or_default();
    format!(
        "{passed}/{} passed | {failed} failed{notes}{left_out} | {skipped} skipped assertions | {millis}ms total{cost}",
        lines.len()
    )
}

struct Columns {
    id: usize,
    name: usize,
    millis: usize,
}

impl Columns {
    fn of(lines: &[&Line], width: usize) -> Self {
        let widest = |of: fn(&Line) -> usize| lines.iter().map(|line| of(line)).max().unwrap_or(0);
        let id = widest(|line| line.id.width()).min(40);
        let millis = widest(|line| line.millis.to_string().len() + 2);
        // "  ✓ ", two blanks between the columns.
        let room = width.saturating_sub(4 + id + 2 + 2 + millis);
        Self { id, name: widest(|line| line.name.width()).min(room.max(10)), millis }
    }
}

fn write_line(out: &mut String, line: &Line, columns: &Columns, look: Look) {
    let (sign, color) = match line.outcome {
        Outcome::Passed => ("✓", AnsiColor::Green),
        Outcome::Failed | Outcome::Errored => ("✗", AnsiColor::Red),
        Outcome::Skipped => ("○", AnsiColor::Yellow),
    };
    let color = look.style(color.on_default());
    let id = pad(&fit(&line.id, columns.id), columns.id);
    let name = pad(&fit(&line.name, columns.name), columns.name);
    let millis = format!("{}ms", line.millis);
    let _ = writeln!(out, "  {color}{sign}{color:#} {id}  {name}  {millis:>width$}", width = columns.millis);
    if let Some(error) = &line.error {
        let _ = writeln!(out, "    {color}→{color:#} {error}");
        if let Some(hint) = &line.hint {
            let _ = writeln!(out, "      {hint}");
        }
        if !line.labels.is_empty() {
            let _ = writeln!(out, "      {}", line.labels);
        }
    }
    if !line.trace.is_empty() {
        let _ = writeln!(out, "      trace {}", line.trace);
    }
    let yellow = look.style(AnsiColor::Yellow.on_default());
    for warning in &line.warnings {
        let _ = writeln!(out, "    {yellow}⚠{yellow:#} {warning}");
    }
}

impl Look {
    pub(super) fn style(self, style: Style) -> Style {
        if self.colors { style } else { Style::new() }
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
            name: name.to_owned(),
            outcome,
            error: error.map(str::to_owned),
            hint: None,
            labels: String::new(),
            warnings: Vec::new(),
            millis,
            skipped_assertions: 0,
            left_out: false,
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
            summary(&suite(), None, &lines.iter().collect::<Vec<_>>(), &warnings, Look { width: 80, colors: false });
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
        let shown = summary(&suite(), None, &lines.iter().collect::<Vec<_>>(), &[], Look { width: 60, colors: false });
        let widths: Vec<usize> = shown.lines().skip(1).take(2).map(str::width).collect();
        assert_eq!(widths[0], widths[1]);
        assert!(widths[0] <= 60, "{shown}");
        assert!(shown.contains("0/2 passed | 2 failed (1 errored, 1 not run) | 0 skipped"), "{shown}");
    }
}
