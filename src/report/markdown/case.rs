//! What is said of a case: a row of a table, and its details.

use std::fmt::Write as _;

use super::text::{MAX_ITEMS, MAX_REASON, MAX_SHORT, code, fence, in_html};
use crate::report::steps::{Room, plain};
use crate::report::words::{all_assertions, cut, is_bad, time, votes};
use crate::report::{Verdict, attempts_note, own_error};
use crate::verdict::{AssertionResult, Blame, CaseResult, Cause, Outcome};

/// Most bytes of an answer or another message.
const MAX_ANSWER: usize = 1_500;
/// Most bytes of all that happened in a case.
const MAX_TOLD: usize = 4_000;

const fn sign(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Passed => "✅",
        Outcome::Failed => "❌",
        Outcome::Errored => "⚠️",
        Outcome::Skipped => "⚪",
    }
}

/// A case that did not pass, in a row of the table.
pub(super) fn row(verdict: Verdict<'_>, regressed: bool) -> String {
    let Verdict { case, result, .. } = verdict;
    let name = verdict.own_name();
    let regressed = if regressed { " **regression**" } else { "" };
    let name = if name.is_empty() { String::new() } else { format!("<br>{}", code(name, MAX_SHORT)) };
    let error = result.error.as_deref().map(|error| code(error, MAX_SHORT * 2)).unwrap_or_default();
    format!(
        "| {} | {}{regressed}{name} | {error} | {} |\n",
        sign(result.outcome),
        code(&case.label(), MAX_SHORT),
        time(result.transcript.duration).replace(' ', "&nbsp;"),
    )
}

/// A case that is fine, in a row of the table.
pub(super) fn row_of_other(verdict: Verdict<'_>) -> String {
    let Verdict { case, result, .. } = verdict;
    let name = verdict.own_name();
    let name = if name.is_empty() { String::new() } else { code(name, MAX_SHORT) };
    let time = time(result.transcript.duration).replace(' ', "&nbsp;");
    format!("| {} | {} | {name} | {time} |\n", sign(result.outcome), code(&case.label(), MAX_SHORT))
}

/// What is odd about a case that passed.
pub(super) fn oddity(Verdict { case, result, .. }: Verdict<'_>) -> String {
    let note = attempts_note(result);
    let first = note.iter().chain(&result.warning).chain(&result.warnings).next();
    let what = first.map(|first| code(first, MAX_SHORT)).unwrap_or_default();
    format!("{}: {what}", code(&case.label(), MAX_SHORT))
}

/// Whether a case that is fine has something to tell.
pub(super) fn is_odd(result: &CaseResult) -> bool {
    result.is_flaky() || !result.earlier.is_empty() || result.warning.is_some() || !result.warnings.is_empty()
}

/// Everything that people want to see of a case that did not pass, from the summary to the end of `<details>`.
pub(super) fn details(verdict: Verdict<'_>) -> String {
    let Verdict { case, result, labels, .. } = verdict;
    let mut text = format!("<summary>{} {}</summary>\n\n", sign(result.outcome), in_html(&case.label()));
    let mut line = |what: String| {
        let _ = writeln!(text, "- {what}");
    };
    if let Some(error) = own_error(result) {
        let hint = result.hint.iter().filter(|_| result.failed_assertion.is_none());
        std::iter::once(error).chain(hint.map(String::as_str)).for_each(|told| line(code(told, MAX_REASON)));
    }
    let cause = result.cause.map_or("", Cause::name);
    let blame = result.blame.map_or("nobody", Blame::name);
    line(format!("cause `{cause}`, blame `{blame}`"));
    line_of_labels(labels).into_iter().for_each(&mut line);
    attempts_note(result).map(|note| code(&note, MAX_REASON)).into_iter().for_each(&mut line);
    let told = |assertion: &&AssertionResult| is_bad(assertion.outcome) || !assertion.reason.is_empty();
    for assertion in all_assertions(result).into_iter().filter(told).take(MAX_ITEMS) {
        let reason = if assertion.reason.is_empty() { String::new() } else { code(&assertion.reason, MAX_REASON) };
        let votes = assertion.opinion.as_ref().map(votes).unwrap_or_default();
        let hint = if assertion.hint.is_empty() { String::new() } else { code(&assertion.hint, MAX_REASON) };
        let parts: Vec<String> = [reason, hint, votes].into_iter().filter(|part| !part.is_empty()).collect();
        line(format!("{} {}: {}", sign(assertion.outcome), code(&assertion.name, MAX_SHORT), parts.join("; ")));
    }
    let missing = result.checkpoints.iter().filter(|checkpoint| checkpoint.reached_at_turn.is_none());
    let missing: Vec<String> = missing.take(MAX_ITEMS).map(|checkpoint| code(&checkpoint.id, MAX_SHORT)).collect();
    if !missing.is_empty() {
        line(format!("checkpoints not reached: {}", missing.join(", ")));
    }
    for warning in result.warning.iter().chain(&result.warnings).take(MAX_ITEMS) {
        line(format!("⚠️ {}", code(warning, MAX_SHORT)));
    }
    for said in result.console.iter().take(MAX_ITEMS) {
        line(format!("console: {}", code(said, MAX_SHORT)));
    }
    text.push_str(&said(result));
    text.push_str("\n</details>\n");
    text
}

fn line_of_labels(labels: &crate::suite::Labels) -> Option<String> {
    let named = [("difficulty", &labels.difficulty), ("bug", &labels.bug_ref), ("since", &labels.created_at)];
    let mut parts: Vec<String> =
        named.iter().filter_map(|(name, text)| Some(format!("{name} {}", code(text.as_ref()?, 100)))).collect();
    parts.extend(labels.tags.iter().take(MAX_ITEMS).map(|tag| format!("tag {}", code(tag, 100))));
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// What happened, as far as there is room: of a dialogue the last turns, for there it went wrong.
fn said(result: &CaseResult) -> String {
    let told = plain(result, Room { text: MAX_ANSWER, value: 300, messages: 3, calls: MAX_ITEMS, turns: 3 });
    if told.is_empty() {
        return "- there is no answer\n".to_owned();
    }
    let cut = cut(&told, MAX_TOLD);
    let note = cut.note().map(|note| format!("\n… {note}\n")).unwrap_or_default();
    format!("\n{}{note}", fence(cut.text))
}
