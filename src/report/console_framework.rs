//! The console output of Agent Test Framework V2.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use anstyle::{AnsiColor, Style};

use super::Verdict;
use super::console::{Look, numbers, remarks, sign, write_regressions, write_remarks, write_steps};
use super::steps::{Room, Step, steps};
use super::words::is_bad;
use crate::event::SuiteInfo;
use crate::text::{fit, printable, printable_lines};
use crate::verdict::{CaseResult, Cause, Outcome};

/// Length of the rules.
const RULE: usize = 63;
/// Longest error that is shown, in columns; reports hold it whole.
const MAX_ERROR: usize = 600;
/// Longest name of what was asked for, which may be a message, in columns.
const MAX_INPUT: usize = 200;
/// Most repetitions of a case of which is told what went wrong.
const MAX_REPEATS: usize = 3;
/// Most lines of the console of scripts that are shown of a case.
const MAX_CONSOLE: usize = 10;

/// What the console shows of one case; kept by a client instead of the whole verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What people call it.
    id: String,
    /// Its id alone, which its repetitions share.
    case: String,
    repeat: u32,
    name: String,
    outcome: Outcome,
    /// The line below the case: messages and assertions, or turns and checkpoints.
    counts: String,
    /// The answer, where it is shown.
    answer: Option<String>,
    errors: Vec<String>,
    /// What happened, if it did not pass.
    steps: Vec<Step>,
    warnings: Vec<String>,
    /// What its scripts wrote, if it did not pass.
    console: Vec<String>,
    /// Whether it passed only after it had failed.
    is_flaky: bool,
    /// Whether it was not run because that was asked for.
    is_skipped: bool,
    /// Whether it was ended before it had a verdict, because its run was.
    is_cancelled: bool,
    /// Whether it is counted and not shown: the gate says how many there are.
    is_left_out: bool,
    took: Duration,
    /// Where its trace is found, if it did not pass.
    trace: String,
}

impl Entry {
    /// What came of the case.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// The entry of a verdict. `shows_answer`: with the whole answer, if there is one.
    #[must_use]
    pub fn of(verdict: Verdict<'_>, shows_answer: bool) -> Self {
        let CaseResult { outcome, cause, error, hint, failed_assertion, transcript, checkpoints, .. } = verdict.result;
        let assertions = &verdict.result.assertions;
        let passed = assertions.iter().filter(|assertion| assertion.outcome == Outcome::Passed).count();
        let counts = if checkpoints.is_empty() {
            // What holds no messages itself is a script test, which calls agents.
            let sent = match verdict.result.messages_count {
                0 => format!("Calls: {}", verdict.result.total_turns),
                messages => format!("Messages: {messages}"),
            };
            format!("{sent}, Assertions: {passed}/{} passed", assertions.len())
        } else {
            let reached = checkpoints.iter().filter(|checkpoint| checkpoint.reached_at_turn.is_some()).count();
            let turns = verdict.result.total_turns;
            let own = if assertions.is_empty() {
                String::new()
            } else {
                format!(", Assertions: {passed}/{} passed", assertions.len())
            };
            format!("Turns: {turns}, Checkpoints: {reached}/{} reached{own}", checkpoints.len())
        };
        let bad = assertions.iter().filter(|assertion| matches!(assertion.outcome, Outcome::Failed | Outcome::Errored));
        // The error of a failed assertion is one of those.
        let own = error.iter().filter(|_| failed_assertion.is_none());
        let own = own.map(|error| shown(error, hint.as_deref().unwrap_or_default()));
        let bad = bad.map(|bad| shown(&format!("{}: {}", bad.name, bad.reason), &bad.hint));
        let errors: Vec<String> = own.chain(bad).collect();
        Self {
            id: printable(&verdict.case.label()),
            case: printable(&verdict.case.case_id),
            repeat: verdict.case.repeat,
            name: printable(verdict.name),
            outcome: *outcome,
            counts,
            answer: Some(printable_lines(&transcript.response)).filter(|answer| shows_answer && !answer.is_empty()),
            errors,
            steps: if is_bad(*outcome) { steps(verdict.result, Room::CONSOLE) } else { Vec::new() },
            warnings: remarks(verdict.result),
            console: match outcome {
                Outcome::Failed | Outcome::Errored => console_lines(&verdict.result.console),
                Outcome::Passed | Outcome::Skipped => Vec::new(),
            },
            is_flaky: verdict.result.is_flaky(),
            is_skipped: *outcome == Outcome::Skipped && cause.is_none(),
            is_cancelled: *outcome == Outcome::Errored && *cause == Some(Cause::Cancelled),
            is_left_out: verdict.result.is_left_out(),
            took: transcript.duration,
            trace: verdict.trace_if_bad(),
        }
    }
}

/// The beginning of what scripts wrote.
fn console_lines(lines: &[String]) -> Vec<String> {
    let mut shown: Vec<String> = lines.iter().take(MAX_CONSOLE).map(|line| fit(&printable(line), MAX_ERROR)).collect();
    let more = lines.len().saturating_sub(MAX_CONSOLE);
    if more > 0 {
        shown.push(format!("… {more} more lines; results hold them all"));
    }
    shown
}

/// An error as it is shown: what differs between two answers stands on lines of its own, and so does what was there.
fn shown(error: &str, hint: &str) -> String {
    const MAX_LINES: usize = 50;
    let hint = Some(hint).filter(|hint| !hint.is_empty());
    let lines = error.lines().take(MAX_LINES).chain(hint);
    let lines: Vec<String> = lines.map(|line| fit(&printable(line), MAX_ERROR)).collect();
    lines.join("\n")
}

/// A time as people read it: seconds with one digit behind the point.
fn seconds(duration: Duration) -> String {
    format!("{:.1}s", duration.as_secs_f64())
}

/// The output for one suite: header, cases, summary. `agent` is what the agent is called, `input` what was asked for.
#[must_use]
pub fn summary(
    suite: &SuiteInfo,
    agent: &str,
    input: &str,
    entries: &[&Entry],
    warnings: &[String],
    look: Look,
) -> String {
    let mut out = String::new();
    let rule = RULE.min(look.width);
    let bold = look.style(Style::new().bold());
    let title = |out: &mut String, line: char, title: &str| {
        let line = line.to_string().repeat(rule);
        let _ = writeln!(out, "{line}\n  {bold}{title}{bold:#}\n{line}");
    };
    title(&mut out, '═', "Agent Test");
    let cases = if entries.len() == 1 { "1 test case".to_owned() } else { format!("{} test cases", entries.len()) };
    let input = fit(&printable(input), MAX_INPUT);
    let _ = writeln!(out, "ℹ Agent: {}\nℹ Input: {input} ({cases})\n", printable(agent));
    title(&mut out, '─', "Running Tests");
    for group in groups(entries, look) {
        write_group(&mut out, &group, look);
    }
    out.push('\n');
    title(&mut out, '─', "Summary");
    let count = |is: fn(&Entry) -> bool| entries.iter().filter(|entry| is(entry)).count();
    let tests = if entries.len() == 1 { "test" } else { "tests" };
    let _ = writeln!(out, "  Total:   {} {tests}", entries.len());
    let _ = writeln!(out, "  Passed:  {}", count(|entry| entry.outcome == Outcome::Passed));
    let _ = writeln!(out, "  Failed:  {}", count(|entry| entry.outcome == Outcome::Failed));
    // What could not be judged, or was not run, did not fail.
    for (what, number) in [
        ("Errored:", count(|entry| entry.outcome == Outcome::Errored && !entry.is_cancelled)),
        ("Cancelled:", count(|entry| entry.is_cancelled)),
        ("Not run:", count(|entry| entry.outcome == Outcome::Skipped && !entry.is_skipped)),
        ("Skipped:", count(|entry| entry.is_skipped)),
        ("Flaky:  ", count(|entry| entry.is_flaky)),
    ] {
        if number > 0 {
            let _ = writeln!(out, "  {what} {number}");
        }
    }
    // That of its cases: others of the run may have gone on at the same time.
    let took = entries.iter().map(|entry| entry.took).sum();
    let _ = writeln!(out, "  Time:    {}", seconds(took));
    if let Some(comparison) = &suite.comparison {
        let by_id: HashMap<&str, &Entry> = entries.iter().rev().map(|entry| (entry.id.as_str(), *entry)).collect();
        let error = |id: &str| by_id.get(id).and_then(|entry| entry.errors.first());
        write_regressions(&mut out, comparison, error, look);
    }
    write_remarks(&mut out, suite, warnings, look);
    out
}

/// The cases that are shown, in their order, with their repetitions.
fn groups<'a>(entries: &[&'a Entry], look: Look) -> Vec<Vec<&'a Entry>> {
    let mut groups: Vec<Vec<&Entry>> = Vec::new();
    for entry in entries.iter().filter(|entry| !entry.is_left_out) {
        match groups.last_mut().filter(|group| group[0].case == entry.case && entry.repeat > 1) {
            Some(group) => group.push(entry),
            None => groups.push(vec![entry]),
        }
    }
    // Somebody asked for nothing but these answers.
    groups.retain(|group| {
        !look.is_brief || group.iter().any(|entry| entry.outcome != Outcome::Passed || entry.answer.is_some())
    });
    groups
}

/// A case with its repetitions, of which there is one at least.
fn write_group(out: &mut String, group: &[&Entry], look: Look) {
    let passed = group.iter().filter(|entry| entry.outcome == Outcome::Passed).count();
    let worst = [Outcome::Errored, Outcome::Failed, Outcome::Skipped];
    let first = worst.into_iter().find_map(|worst| group.iter().find(|entry| entry.outcome == worst));
    let first = first.unwrap_or(&group[0]);
    let label = if group.len() == 1 { first.id.clone() } else { format!("{} {passed}/{}", first.case, group.len()) };
    let (sign, color) = sign(first.outcome);
    let color = look.style(color.on_default());
    let name = if first.name.is_empty() { String::new() } else { format!(" {}", first.name) };
    if first.outcome == Outcome::Skipped {
        let _ = writeln!(
            out,
            "\n{color}{sign}{color:#} [{label}]{name} ({})",
            if first.is_skipped { "skipped" } else { "not run" }
        );
    } else {
        let took = seconds(group.iter().map(|entry| entry.took).sum());
        let _ = writeln!(out, "\n{color}{sign}{color:#} [{label}]{name} ({took})\n  {}", first.counts);
    }
    if group.len() == 1 {
        return write_body(out, first, "", look);
    }
    let told: Vec<&&Entry> = group.iter().filter(|entry| entry.outcome != Outcome::Passed).collect();
    for entry in told.iter().take(MAX_REPEATS) {
        write_body(out, entry, &format!("#{}: ", entry.repeat), look);
    }
    if told.len() > MAX_REPEATS {
        let rest: Vec<u32> = told[MAX_REPEATS..].iter().map(|entry| entry.repeat).collect();
        let _ = writeln!(out, "    {} did not pass either", numbers(&rest));
    }
}

/// What stands below a case. `which`: what stands before its errors, to tell repetitions from each other.
fn write_body(out: &mut String, entry: &Entry, which: &str, look: Look) {
    let (_, color) = sign(entry.outcome);
    let color = look.style(color.on_default());
    for line in entry.answer.iter().flat_map(|answer| answer.lines()) {
        let _ = writeln!(out, "{}", format!("    {line}").trim_end());
    }
    for error in &entry.errors {
        let error = look.wrapped(&format!("{which}{error}"), "    ");
        let _ = writeln!(out, "  {color}→{color:#} {error}");
    }
    write_steps(out, &entry.steps, "    ", look);
    if !entry.trace.is_empty() {
        let _ = writeln!(out, "    trace {}", entry.trace);
    }
    let dim = look.style(Style::new().dimmed());
    for line in &entry.console {
        let _ = writeln!(out, "  {dim}│ {line}{dim:#}");
    }
    let yellow = look.style(AnsiColor::Yellow.on_default());
    for warning in &entry.warnings {
        let _ = writeln!(out, "  {yellow}⚠{yellow:#} {}", look.wrapped(warning, "    "));
    }
}

/// A case by itself, as the output has it.
#[must_use]
pub fn alone(entry: &Entry, look: Look) -> String {
    let mut out = String::new();
    write_group(&mut out, &[entry], look);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::Tier;

    fn entry(id: &str, name: &str, counts: &str, millis: u64) -> Entry {
        Entry {
            trace: String::new(),
            case: id.to_owned(),
            repeat: 1,
            steps: Vec::new(),
            id: id.to_owned(),
            name: name.to_owned(),
            outcome: Outcome::Passed,
            counts: counts.to_owned(),
            answer: None,
            errors: Vec::new(),
            warnings: Vec::new(),
            console: Vec::new(),
            is_flaky: false,
            is_skipped: false,
            is_cancelled: false,
            is_left_out: false,
            took: Duration::from_millis(millis),
        }
    }

    fn suite() -> SuiteInfo {
        SuiteInfo {
            path: "tests/expense.jsonl".to_owned(),
            tool_name: "expense".to_owned(),
            tier: Tier::Golden,
            eval_file_hash: String::new(),
            cases: 3,
            warnings: Vec::new(),
            staleness: None,
            comparison: None,
        }
    }

    /// The example of the framework's own document, to the letter.
    #[test]
    fn the_console_output_of_the_framework() {
        let entries = [
            entry("expense-turn1", "First turn - ask type", "Messages: 1, Assertions: 1/1 passed", 1_200),
            entry("expense-turn2", "Second turn - create expense", "Messages: 3, Assertions: 1/1 passed", 2_100),
            entry("expense-turn3", "Final turn - confirm", "Messages: 5, Assertions: 1/1 passed", 1_800),
        ];
        let look = Look { width: 80, ..Look::PIPE };
        let shown = summary(&suite(), "assistants.expense", "./tests/expense.jsonl", &entries.each_ref(), &[], look);
        let expected = "\
═══════════════════════════════════════════════════════════════
  Agent Test
═══════════════════════════════════════════════════════════════
ℹ Agent: assistants.expense
ℹ Input: ./tests/expense.jsonl (3 test cases)

───────────────────────────────────────────────────────────────
  Running Tests
───────────────────────────────────────────────────────────────

✓ [expense-turn1] First turn - ask type (1.2s)
  Messages: 1, Assertions: 1/1 passed

✓ [expense-turn2] Second turn - create expense (2.1s)
  Messages: 3, Assertions: 1/1 passed

✓ [expense-turn3] Final turn - confirm (1.8s)
  Messages: 5, Assertions: 1/1 passed

───────────────────────────────────────────────────────────────
  Summary
───────────────────────────────────────────────────────────────
  Total:   3 tests
  Passed:  3
  Failed:  0
  Time:    5.1s
";
        assert_eq!(shown, expected);
    }

    #[test]
    fn what_did_not_pass_says_why() {
        let failed = Entry {
            outcome: Outcome::Failed,
            errors: vec!["contains: expected \"x\" in the response, but it is not there".to_owned()],
            ..entry("a", "", "Messages: 1, Assertions: 0/1 passed", 100)
        };
        let skipped = Entry { outcome: Outcome::Skipped, is_skipped: true, ..entry("b", "later", "", 0) };
        let not_run = Entry { outcome: Outcome::Skipped, ..entry("c", "last", "", 0) };
        let cancelled = Entry { outcome: Outcome::Errored, is_cancelled: true, ..entry("d", "", "", 0) };
        let look = Look { width: 40, ..Look::PIPE };
        let shown = summary(&suite(), "a", "t.jsonl", &[&failed, &skipped, &not_run, &cancelled], &[], look);
        assert!(shown.contains("\n✗ [a] (0.1s)\n  Messages: 1, Assertions: 0/1 passed\n  → contains: "), "{shown}");
        assert!(shown.contains("\n○ [b] later (skipped)\n"), "{shown}");
        assert!(shown.contains("\n○ [c] last (not run)\n"), "{shown}");
        assert!(shown.contains("  Failed:  1\n  Cancelled: 1\n  Not run: 1\n  Skipped: 1\n"), "{shown}");
    }
}
