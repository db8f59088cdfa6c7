//! What stands before the suites: the verdict, who was tested, and what the run itself had to say.

use std::fmt::Write as _;

use super::section::Section;
use super::text::{MAX_ITEMS, MAX_REASON, MAX_SHORT, and_more, code, warnings};
use crate::event::{Run, State};
use crate::report::outline::Outline;
use crate::report::repeats;
use crate::report::words::{money, tally, time};
use crate::verdict::gate::GateResult;

/// Longest name in a marker, in bytes.
const MAX_MARKED: usize = 100;

/// The first line, which nobody sees: by it, the script that posts the report finds the comment whose place it takes.
/// It is the same for all runs that have the same label `comment`, else the same agent, unless that is only an address.
fn marker(run: &Run) -> String {
    let label = run.spec.labels.iter().find(|(key, _)| key == "comment").map(|(_, value)| value);
    let agent = Some(&run.spec.agent_id).filter(|id| !id.contains("://"));
    let Some(name) = label.or(agent) else { return "<!-- forge-report -->".to_owned() };
    let mut marked = String::new();
    for byte in name.bytes().take(MAX_MARKED) {
        // A comment ends at two dashes.
        match byte {
            b'-' if marked.ends_with('-') => marked.push_str("%2D"),
            b'-' | b'.' | b'_' | b'/' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => marked.push(char::from(byte)),
            _ => {
                let _ = write!(marked, "%{byte:02X}");
            }
        }
    }
    format!("<!-- forge-report: {marked} -->")
}

/// The verdict, who was tested, and what the run itself had to say.
pub(super) fn head(outline: &Outline, suites: &[Section]) -> String {
    let (run, totals) = (&outline.run, outline.totals());
    let mark = match run.state {
        State::Passed if totals.passed > 0 => "✅",
        State::Passed => "⚪",
        State::Failed => "❌",
        _ => "⚠️",
    };
    let mut text = format!("{}\n## {mark} {}: {}\n\n", marker(run), run.state.name(), tally(&totals));
    let mut facts = vec![format!("agent {}", code(&run.spec.agent_id, MAX_SHORT))];
    if let Some(card) = &run.agent {
        let told = [("", &card.name), ("version ", &card.version), ("model ", &card.model)];
        let told = told.iter().filter(|(_, value)| !value.is_empty() && **value != run.spec.agent_id);
        facts.extend(told.map(|(name, value)| format!("{name}{}", code(value, MAX_SHORT))));
    }
    facts.push(format!("run {}", code(&run.run_id, MAX_SHORT)));
    if let Some(replay) = &run.spec.replay {
        facts.push(format!("replayed from run {}", code(&replay.run_id, MAX_SHORT)));
    }
    let took = run.finished_at.and_then(|end| end.duration_since(run.created_at).try_into().ok());
    facts.extend(took.map(|took| format!("took {}", time(took))));
    facts.extend(totals.usage.cost.map(money));
    facts.push(format!("exit code {}", run.exit_code()));
    let _ = writeln!(text, "{}", facts.join(" · "));
    if let Some(fault) = &run.error {
        let _ = writeln!(text, "\n**The run could not begin or go on:** {}", code(&fault.message, MAX_REASON));
    }
    if let Some(gate) = &run.gate {
        text.push_str(&about_gate(gate));
    }
    text.push_str(&warnings(run.warnings.iter()));
    if suites.len() > 1 {
        text.push_str(
            "\n| | suite | passed | failed | errored | not run | skipped |\n|---|---|---:|---:|---:|---:|---:|\n",
        );
        for Section { info, totals, .. } in suites.iter().take(MAX_ITEMS) {
            let mark = match totals.passed + totals.skipped == totals.total {
                // A tick says that all is well, which it is not for the run as a whole; a gate is no matter of single
                // cases.
                _ if run.gate.is_some() => "",
                true if run.exit_code() == 3 => "",
                true => "✅",
                false => "❌",
            };
            let _ = writeln!(
                text,
                "| {mark} | {} | {} | {} | {} | {} | {} |",
                code(&info.path, MAX_SHORT),
                totals.passed,
                totals.failed,
                totals.errored,
                totals.not_run,
                totals.skipped,
            );
        }
        text.push_str(&and_more(suites.len(), "suite", "suites"));
    }
    text
}

fn about_gate(gate: &GateResult) -> String {
    let mut text = format!("\n**{}**\n", repeats::headline(gate));
    let reasons = gate.reasons.iter().take(MAX_ITEMS).map(|reason| code(reason, MAX_REASON));
    // The first line is in our words, those of suites begin with their paths.
    let compared = repeats::comparisons(gate).into_iter().enumerate().take(MAX_ITEMS);
    let compared = compared.map(|(at, line)| if at == 0 { line } else { code(&line, MAX_REASON) });
    for line in reasons.chain(compared) {
        let _ = write!(text, "\n- {line}");
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use crate::report::sample;

    #[test]
    fn the_marker_is_the_same_for_the_same_comment() {
        let marker = |agent: &str, label: Option<&str>| {
            let (mut run, _) = sample::of_everything();
            let spec = std::sync::Arc::make_mut(&mut run.spec);
            agent.clone_into(&mut spec.agent_id);
            spec.labels = label.map(|value| ("comment".to_owned(), value.to_owned())).into_iter().collect();
            super::marker(&run)
        };
        assert_eq!(marker("team/faq-bot", None), "<!-- forge-report: team/faq-bot -->");
        assert_eq!(marker("grpc://127.0.0.1:5", None), "<!-- forge-report -->");
        assert_eq!(marker("faq", Some("nightly, 2")), "<!-- forge-report: nightly%2C%202 -->");
        assert_eq!(marker("--><b>\n---", None), "<!-- forge-report: -%2D%3E%3Cb%3E%0A-%2D- -->");
        assert!(marker(&"é".repeat(1_000), None).len() < 700);
    }
}
