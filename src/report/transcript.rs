//! A case in full, for people: what came of it, all that was said and called, and every assertion.

use std::fmt::Write as _;
use std::sync::Arc;

use anstyle::Style;

use super::console::{Look, sign, write_steps};
use super::steps::steps_of_log;
use super::words::{money, time, tokens, votes};
use super::{Verdict, attempts_note, own_error};
use crate::event::RunEvent;
use crate::text::{printable, printable_lines};
use crate::verdict::{AssertionResult, Blame, Cause, CheckpointResult, Outcome};

/// The transcript of a case, with a line break at its end. `log`: the events of its attempt, as far as they are known;
/// `turn`: only what happened in that one.
#[must_use]
pub fn transcript(verdict: Verdict<'_>, log: &[Arc<RunEvent>], turn: Option<u32>, look: Look) -> String {
    let mut out = String::new();
    write_head(&mut out, verdict, look);
    let mut steps = steps_of_log(verdict.result, log);
    steps.retain(|step| turn.is_none_or(|turn| step.turn == turn));
    if steps.is_empty() {
        let what =
            if turn.is_some() { "there is no such turn" } else { "it was not sent, or nothing is known of that" };
        let _ = writeln!(out, "\n  {what}");
    } else {
        out.push('\n');
        write_steps(&mut out, &steps, "  ", look);
    }
    if turn.is_none() {
        write_checks(&mut out, verdict, look);
        write_rest(&mut out, verdict, look);
    }
    out
}

/// What the case is, and what came of it.
fn write_head(out: &mut String, verdict: Verdict<'_>, look: Look) {
    let Verdict { case, result, labels, .. } = verdict;
    let (sign, color) = sign(result.outcome);
    let (color, bold) = (look.style(color.on_default()), look.style(Style::new().bold()));
    let (id, name) = (printable(&case.case_id), printable(verdict.own_name()));
    let _ = writeln!(out, "{}", format!("{color}{sign}{color:#} {bold}{id}{bold:#}  {name}").trim_end());
    let mut facts = vec![printable(&case.suite), result.outcome.name().to_owned(), time(result.transcript.duration)];
    if case.repeat > 1 {
        facts.push(format!("repetition {}", case.repeat));
    }
    if case.attempt > 1 {
        facts.push(format!("attempt {}", case.attempt));
    }
    if result.replayed {
        facts.push("replayed".to_owned());
    }
    facts.extend(result.cause.map(|cause: Cause| format!("cause {}", cause.name())));
    facts.extend(result.blame.map(|blame: Blame| format!("blame {}", blame.name())));
    facts.extend(labels.difficulty.iter().map(|word| format!("difficulty {}", printable(word))));
    facts.extend(labels.bug_ref.iter().map(|word| format!("bug {}", printable(word))));
    facts.extend(labels.tags.iter().map(|word| format!("tag {}", printable(word))));
    let _ = writeln!(out, "  {}", look.wrapped(&facts.join(" · "), "  "));
    let hint = result.hint.iter().filter(|_| result.failed_assertion.is_none());
    for told in own_error(result).into_iter().chain(hint.map(String::as_str)) {
        let told = look.wrapped(&printable_lines(told), "    ");
        let _ = writeln!(out, "  {color}→{color:#} {told}");
    }
}

/// Assertion by assertion, and checkpoint by checkpoint.
fn write_checks(out: &mut String, verdict: Verdict<'_>, look: Look) {
    let result = verdict.result;
    if !result.assertions.is_empty() || !result.checkpoints.is_empty() {
        out.push('\n');
    }
    for assertion in &result.assertions {
        write_assertion(out, assertion, "  ", look);
    }
    for CheckpointResult { id, reached_at_turn, required, assertions } in &result.checkpoints {
        let (sign, color) = sign(if reached_at_turn.is_some() { Outcome::Passed } else { Outcome::Failed });
        let color = look.style(color.on_default());
        let how = match (reached_at_turn, required) {
            (Some(turn), _) => format!("reached in turn {turn}"),
            (None, true) => "not reached, and required".to_owned(),
            (None, false) => "not reached".to_owned(),
        };
        let _ = writeln!(out, "  {color}{sign}{color:#} checkpoint {}: {how}", printable(id));
        for assertion in assertions {
            write_assertion(out, assertion, "    ", look);
        }
    }
}

fn write_assertion(out: &mut String, assertion: &AssertionResult, indent: &str, look: Look) {
    let (sign, color) = sign(assertion.outcome);
    let color = look.style(color.on_default());
    let below = format!("{indent}  ");
    let written = assertion.written.as_ref().map(|written| format!(" {}", printable(written.as_str())));
    let head = format!("{}{}", printable(&assertion.name), written.unwrap_or_default());
    let _ = writeln!(out, "{indent}{color}{sign}{color:#} {}", look.wrapped(&head, &below));
    let opinion = assertion.opinion.as_ref();
    let replies = opinion.iter().flat_map(|opinion| &opinion.replies).map(|reply| format!("reply: {reply}"));
    let console = opinion.iter().flat_map(|opinion| &opinion.console).map(|line| format!("│ {line}"));
    let told = [assertion.reason.clone(), assertion.hint.clone(), opinion.map(votes).unwrap_or_default()];
    for text in told.into_iter().filter(|text| !text.is_empty()).chain(replies).chain(console) {
        let _ = writeln!(out, "{below}{}", look.wrapped(&printable_lines(&text), &below));
    }
}

/// What else there is to know.
fn write_rest(out: &mut String, verdict: Verdict<'_>, look: Look) {
    let result = verdict.result;
    let usage = result.transcript.usage.as_ref();
    let used: Vec<String> =
        usage.and_then(tokens).into_iter().chain(usage.and_then(|used| used.cost).map(money)).collect();
    let notes: Vec<String> = attempts_note(result).into_iter().collect();
    let warnings = notes.iter().chain(&result.warning).chain(&result.warnings);
    let lines = warnings.map(|warning| format!("⚠ {warning}"));
    let lines = lines.chain(result.console.iter().map(|line| format!("│ {line}")));
    let lines = lines.chain((!used.is_empty()).then(|| format!("tokens and costs: {}", used.join(", "))));
    let traced = verdict.traced().map(|traced| format!("trace {}", traced.shown()));
    let lines: Vec<String> = lines.chain(traced).collect();
    if !lines.is_empty() {
        out.push('\n');
    }
    for line in lines {
        let _ = writeln!(out, "  {}", look.wrapped(&printable_lines(&line), "    "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Tracing;
    use crate::report::sample;

    #[test]
    fn everything_is_told_and_nothing_is_obeyed() {
        let (run, log) = sample::of_everything();
        let told = |id: &str, turn| {
            let of = |event: &&RunEvent| event.case.as_ref().is_some_and(|case| &*case.case_id == id);
            let events: Vec<&RunEvent> = log.iter().filter(of).collect();
            let tracing = Tracing::of(&run);
            let verdict = Verdict::of(events[0], events[1]).expect("a verdict");
            transcript(Verdict { tracing: Some(&tracing), ..verdict }, &[], turn, Look::PIPE)
        };
        let worse = told("worse", None);
        for part in [
            "✗ worse  about worse\n  evals/a.golden.json · failed · 1.5 s · cause assertion · blame agent · difficulty edge",
            "\n\n  user: What is <x>?\n  → look {\"id\":9007199254740993}\n  ← [1,2] (120 ms)\n",
            "\n\n  ✓ responseNonEmpty\n  ✗ responseContains {\"type\": \"contains\"}\n    expected \"x\"\n    the response is \"y\"\n",
            "  ✗ validator\n    score 0.25, 2 of 3 votes agreeing\n    reply: no way\n",
            "tokens and costs: 10 in, 5 out, $0.0120 (estimated)\n  trace ",
        ] {
            assert!(worse.contains(part), "{part}\n in\n{worse}");
        }
        let dialogue = told("dialogue", None);
        assert!(dialogue.contains("  ✗ checkpoint paid: not reached, and required\n"), "{dialogue}");
        let turn = told("dialogue", Some(2));
        assert!(
            turn.contains("turn 2 user: Pay!") && !turn.contains("turn 1") && !turn.contains("checkpoint"),
            "{turn}"
        );
        assert!(told("dialogue", Some(9)).contains("there is no such turn"));
        for text in sample::HOSTILE {
            let (run, log) = sample::run(vec![(*text, sample::failed(text))]);
            let verdict = Verdict::of(&log[0], &log[1]).expect("a verdict");
            let tracing = Tracing::of(&run);
            let shown = transcript(Verdict { tracing: Some(&tracing), ..verdict }, &[], None, Look::PIPE);
            let strange = |c: char| c.is_control() && c != '\n' || ('\u{202a}'..='\u{202e}').contains(&c);
            assert!(!shown.contains(strange), "{shown:?}");
        }
    }
}
