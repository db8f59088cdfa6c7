//! Markdown for people who read a pull request: what did not pass first, and never more than a comment can hold.
//!
//! **Whatever an agent or a suite wrote stands in a code span, a fence, or an escaped `<code>`**, and nowhere else: only
//! there can it open no markup and mention nobody. See `text`.
//!
//! The room for the whole is shared out between the suites that have something to say; what is left goes to the cases that
//! passed. What does not fit is counted, and the end says where it is.

mod text;

use std::collections::HashSet;
use std::fmt::Write as _;

use super::outline::{Outline, Place};
use super::words::{all_assertions, count, cut, is_bad, money, tally, time, votes};
use super::{Report, Verdict, Written, attempts_note, own_error, repeats};
use crate::event::{State, SuiteInfo};
use crate::stats::{Repeats, Stability};
use crate::suite::Dialect;
use crate::verdict::baseline::Comparison;
use crate::verdict::gate::GateResult;
use crate::verdict::{AssertionResult, Blame, CaseResult, Cause, Outcome, Totals};
use text::{code, fence, in_html};

/// Bytes of the whole. GitHub takes 65,536 characters in a comment; the rest is for whoever adds some words.
const MAX_REPORT: usize = 60_000;
/// Bytes kept free for the words about what is left out.
const MAX_END: usize = 600;
/// With less room than this a suite is only counted.
const MIN_SUITE: usize = 800;
/// Most bytes of an answer or a dialogue.
const MAX_ANSWER: usize = 1_500;
/// Most bytes of an error or a reason.
const MAX_REASON: usize = 800;
/// Most bytes of a text that shares a line with others.
const MAX_SHORT: usize = 200;
/// Most entries of a list.
const MAX_ITEMS: usize = 20;
/// Cases whose details are unfolded.
const MAX_OPEN: usize = 3;

/// The report. What it says about cases that did not pass depends on how many there are, so it is written at the end, from as
/// much of each suite as could fit.
#[derive(Debug, Default)]
pub struct Markdown {
    suites: Vec<Section>,
}

impl Report for Markdown {
    fn part(&mut self, outline: &Outline, part: usize) -> Written {
        self.suites.push(Section::of(outline, part));
        Ok(String::new())
    }

    fn case(&mut self, _: &Outline, _: Place, verdict: Verdict<'_>) -> Written {
        if let Some(suite) = self.suites.last_mut() {
            suite.take(verdict);
        }
        Ok(String::new())
    }

    fn end(&mut self, outline: &Outline) -> Written {
        let suites = &self.suites;
        let mut page = Page { text: head(outline, suites), most: MAX_REPORT - MAX_END };
        let mut left_out = LeftOut::default();
        let (told, quiet): (Vec<_>, Vec<_>) = suites.iter().partition(|suite| suite.has_news());
        // Those with trouble first, for the room may not last; of them the small ones, so that the others get what they leave.
        let mut order: Vec<usize> = (0..told.len()).collect();
        order.sort_by_key(|at| (told[*at].bad() == 0, told[*at].bad()));
        let mut written = vec![String::new(); told.len()];
        let mut room = page.room();
        for (index, at) in order.iter().enumerate() {
            if room < MIN_SUITE {
                left_out.suites += 1;
                left_out.unnamed += told[*at].bad();
                continue;
            }
            let share = (room / (told.len() - index)).max(MIN_SUITE);
            written[*at] = told[*at].written(share, &mut left_out);
            room = room.saturating_sub(written[*at].len());
        }
        page.text.extend(written);
        for suite in told.iter().chain(&quiet) {
            suite.add_others(&mut page, &mut left_out);
        }
        page.text.push_str(&left_out.end());
        Ok(page.text)
    }
}

/// Texts as far as there could be room for them.
#[derive(Debug, Default)]
struct Kept {
    texts: Vec<String>,
    bytes: usize,
}

impl Kept {
    /// Keeps a text, made only then, unless those before it have `most` bytes.
    fn push(&mut self, most: usize, text: impl FnOnce() -> String) {
        if self.bytes <= most {
            let text = text();
            self.bytes += text.len();
            self.texts.push(text);
        }
    }
}

/// The text as far as it is written, and how long it may get.
struct Page {
    text: String,
    most: usize,
}

impl Page {
    fn room(&self) -> usize {
        self.most.saturating_sub(self.text.len())
    }

    /// Adds a part if there is room for it.
    fn add(&mut self, part: &str) -> bool {
        let fits = part.len() <= self.room();
        if fits {
            self.text.push_str(part);
        }
        fits
    }
}

/// What did not fit.
#[derive(Debug, Default)]
struct LeftOut {
    /// Suites of which nothing is said.
    suites: usize,
    /// Cases that did not pass and are only named.
    named: usize,
    /// Cases that did not pass and are not even named.
    unnamed: usize,
    /// Other cases that are not named.
    others: usize,
}

impl LeftOut {
    fn end(&self) -> String {
        let parts = [
            (self.suites, "suites that are not shown"),
            (self.named, "cases that did not pass, shown without details"),
            (self.unnamed, "cases that did not pass, not shown at all"),
            (self.others, "other cases that are not shown"),
        ];
        let parts = parts.iter().filter(|(number, _)| *number > 0);
        let parts: Vec<String> = parts.map(|(number, what)| format!("{what}: {number}")).collect();
        let whole = "Long texts are cut. The whole is in the report as `.html` or `.json`.";
        if parts.is_empty() {
            return format!("\n<sub>{whole}</sub>\n");
        }
        format!("\n> **Left out, so that this fits into a comment** – {}. {whole}\n", parts.join("; "))
    }
}

const fn sign(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Passed => "✅",
        Outcome::Failed => "❌",
        Outcome::Errored => "⚠️",
        Outcome::Skipped => "⚪",
    }
}

/// The verdict, who was tested, and what the run itself had to say.
fn head(outline: &Outline, suites: &[Section]) -> String {
    let (run, totals) = (&outline.run, outline.totals());
    let mark = match run.state {
        State::Passed if totals.passed > 0 => "✅",
        State::Passed => "⚪",
        State::Failed => "❌",
        _ => "⚠️",
    };
    let mut text = format!("## {mark} {}: {}\n\n", run.state.name(), tally(&totals));
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
                // A tick says that all is well, which it is not for the run as a whole; a gate is no matter of single cases.
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

/// What the repetitions of a suite say, the unstable cases first.
fn about_repeats(of_suite: &Repeats, most: usize) -> String {
    let over = repeats::over(of_suite);
    let mut text = format!(
        "\n**Repetitions:** {} – {}: {}. {}{}\n",
        repeats::told(of_suite.total()),
        count(of_suite.cases.len(), "case", "cases"),
        repeats::classes(of_suite),
        repeats::chances(of_suite).replace('^', "\\^"),
        if over.is_empty() { over } else { format!(" ({over})") },
    );
    let unstable = of_suite.unstable();
    if unstable.is_empty() || most == 0 {
        return text;
    }
    text.push_str("\n| case | passed | rate | 95 % interval | |\n|---|---:|---:|---:|---|\n");
    for (case, tally) in unstable.iter().take(most) {
        let rate = tally.rate().map(repeats::percent).unwrap_or_default();
        let interval = tally.interval().map(|(low, high)| format!("{:.1} to {}", low * 100.0, repeats::percent(high)));
        let _ = writeln!(
            text,
            "| {} | {}/{} | {rate} | {} | {} |",
            code(case, MAX_SHORT),
            tally.passed,
            tally.counted(),
            interval.unwrap_or_default(),
            tally.stability().map_or("nothing is known", Stability::words),
        );
    }
    if unstable.len() > most {
        let _ = write!(text, "\n… and {} more that are not stable\n", unstable.len() - most);
    }
    text
}

/// The line below a list that is cut.
fn and_more(number: usize, one: &str, many: &str) -> String {
    match number.saturating_sub(MAX_ITEMS) {
        0 => String::new(),
        rest => format!("\n… and {} more\n", count(rest, one, many)),
    }
}

fn warnings<'a>(warnings: impl ExactSizeIterator<Item = &'a String>) -> String {
    let lines = warnings.map(|warning| code(warning, MAX_SHORT * 2));
    listed("Warnings", "warning", "warnings", lines)
}

/// A list with a word above it; nothing where there is nothing in it.
fn listed(title: &str, one: &str, many: &str, lines: impl ExactSizeIterator<Item = String>) -> String {
    let number = lines.len();
    if number == 0 {
        return String::new();
    }
    let mut text = format!("\n⚠️ **{title}**\n\n");
    for line in lines.take(MAX_ITEMS) {
        let _ = writeln!(text, "- {line}");
    }
    text + &and_more(number, one, many)
}

/// A suite, and its cases by what came of them.
#[derive(Debug)]
struct Section {
    info: SuiteInfo,
    totals: Totals,
    /// Cases that did not pass and were not left out as asked, in the order in which they are told: those that passed before
    /// first, and what was not run last.
    bad: [Bad; 4],
    /// Rows of the others.
    others: Kept,
    /// Those of them that were not run, as asked.
    skipped: usize,
    /// Number of the others.
    fine: usize,
    /// What is odd about some of them.
    odd: Kept,
    /// Number of these.
    oddities: usize,
    regressions: HashSet<String>,
    /// Bytes that are kept of each list: there could be room for them.
    most: usize,
    /// What its repetitions say, if it has some.
    repeats: Option<Repeats>,
    /// Whether the run has no other, so that the headline says how many passed.
    is_only: bool,
    /// Whether the run met trouble, so that nothing of it as a whole is ticked off.
    has_trouble: bool,
}

/// Cases that did not pass and are told together. What is kept of them has the same order.
#[derive(Debug, Default)]
struct Bad {
    number: usize,
    rows: Kept,
    names: Kept,
    /// Nothing for those that were not run.
    details: Kept,
}

impl Section {
    fn of(outline: &Outline, part: usize) -> Self {
        let info = outline.info(part).clone();
        let regressions = info.comparison.iter().flat_map(|compared| &compared.regressions);
        Self {
            regressions: regressions.cloned().collect(),
            info,
            totals: outline.parts[part].totals,
            bad: Default::default(),
            others: Kept::default(),
            skipped: 0,
            fine: 0,
            odd: Kept::default(),
            oddities: 0,
            // Very many suites share the room.
            most: (4 * MAX_REPORT / outline.parts.len().max(1)).clamp(MIN_SUITE, MAX_REPORT),
            repeats: outline.repeats(part),
            is_only: outline.run.suites.len() == 1,
            has_trouble: outline.run.exit_code() == 3,
        }
    }

    /// Keeps what may be told of a case.
    fn take(&mut self, verdict: Verdict<'_>) {
        let Verdict { case, result, .. } = verdict;
        let is_skipped = result.outcome == Outcome::Skipped;
        if result.outcome == Outcome::Passed || (is_skipped && result.cause.is_none()) {
            self.fine += 1;
            self.skipped += usize::from(is_skipped);
            self.others.push(self.most, || row_of_other(verdict));
            if is_odd(result) {
                self.oddities += 1;
                self.odd.push(self.most, || oddity(verdict));
            }
            return;
        }
        let regressed = self.regressions.contains(&*case.case_id);
        let bad = &mut self.bad[2 * usize::from(is_skipped) + usize::from(!regressed)];
        bad.number += 1;
        bad.rows.push(self.most, || row(verdict, regressed));
        bad.names.push(self.most, || format!(" {}", code(&case.label(), 80)));
        if !is_skipped {
            bad.details.push(self.most, || details(verdict));
        }
    }

    /// Number of the cases that did not pass.
    fn bad(&self) -> usize {
        self.bad.iter().map(|bad| bad.number).sum()
    }

    /// Number of those of them that were run.
    fn judged(&self) -> usize {
        self.bad[..2].iter().map(|bad| bad.number).sum()
    }

    /// Whether there is more to say than that everything passed.
    fn has_news(&self) -> bool {
        let info = &self.info;
        self.bad() > 0
            || info.comparison.is_some()
            || self.repeats.is_some()
            || !info.warnings.is_empty()
            || info.staleness.as_ref().is_some_and(|today| !today.warnings.is_empty())
            || self.oddities > 0
    }

    /// What is said of the suite, in at most so many bytes: a row for each case that did not pass, then their details,
    /// then what else is worth knowing.
    fn written(&self, most: usize, left_out: &mut LeftOut) -> String {
        let info = &self.info;
        let tally = if self.is_only { String::new() } else { format!(": {}", tally(&self.totals)) };
        let tool = code(&info.tool_name, MAX_SHORT);
        let kind = match Dialect::of(&info.path) {
            Dialect::Contract => format!("{} evals", info.tier.name()),
            Dialect::Framework => "tests".to_owned(),
        };
        let title = format!("\n### {}\n\n{tool}, {kind}{tally}\n", code(&info.path, MAX_SHORT));
        let mut page = Page { text: title, most };
        // What follows the cases is short, and must not fall off.
        let mut remarks = Page { text: String::new(), most: most / 2 };
        if let Some(repeats) = &self.repeats {
            let _ = [MAX_ITEMS, MAX_ITEMS / 4, 0].iter().any(|items| remarks.add(&about_repeats(repeats, *items)));
        }
        if let Some(compared) = &info.comparison {
            let _ = [MAX_ITEMS, MAX_ITEMS / 4, 0].iter().any(|items| remarks.add(&comparison(compared, *items)));
        }
        let stale = info.staleness.iter().flat_map(|today| &today.warnings).map(|warning| &warning.text);
        let parts = [warnings(stale.chain(&info.warnings).collect::<Vec<_>>().into_iter()), self.oddities()];
        for part in parts.iter().filter(|part| !part.is_empty()) {
            if !remarks.add(part) {
                remarks.text.push_str("\n… there are warnings that do not fit here\n");
            }
        }
        page.most = page.most.saturating_sub(remarks.text.len());
        self.add_bad(&mut page, left_out);
        page.text + &remarks.text
    }

    fn add_bad(&self, page: &mut Page, left_out: &mut LeftOut) {
        let number = self.bad();
        let whole = page.most;
        let part = |page: &Page, tenths: usize| page.text.len() + page.room() * tenths / 10;
        let mut shown = 0;
        page.most = part(page, 5);
        if number > 0 && page.add("\n| | case | what went wrong | time |\n|---|---|---|---:|\n") {
            let rows = self.bad.iter().flat_map(|bad| &bad.rows.texts);
            shown = rows.take_while(|row| page.add(row)).count();
        }
        page.most = whole;
        // Names take little room: those that are left come before the details of the others.
        let rest = number - shown;
        let mut named = 0;
        if rest > 0 {
            page.most = part(page, 4);
            page.add("\nAlso did not pass:");
            let names = self.bad.iter().flat_map(|bad| &bad.names.texts).skip(shown);
            named = names.take_while(|name| page.add(name)).count();
            page.most = whole;
            if named < rest {
                page.add(&format!(" … and {} more", rest - named));
            }
            page.add("\n");
        }
        let judged = shown.min(self.judged());
        let details = self.bad.iter().flat_map(|bad| &bad.details.texts).take(judged).enumerate();
        let opened = |at: usize| if at < MAX_OPEN { " open" } else { "" };
        let detailed = details.take_while(|(at, text)| page.add(&format!("\n<details{}>{text}", opened(*at)))).count();
        left_out.named += judged - detailed + named;
        left_out.unnamed += rest - named;
    }

    /// Cases that passed, and not quite.
    fn oddities(&self) -> String {
        let rest = std::iter::repeat_n(String::new(), self.oddities.saturating_sub(self.odd.texts.len()));
        let lines: Vec<String> = self.odd.texts.iter().cloned().chain(rest).collect();
        listed("Passed, but flaky or with warnings", "case", "cases", lines.into_iter())
    }

    /// The cases that are fine, folded away.
    fn add_others(&self, page: &mut Page, left_out: &mut LeftOut) {
        let number = self.fine;
        if number == 0 {
            return;
        }
        let passed = number - self.skipped;
        let skipped = if self.skipped > 0 { format!(", {} skipped", self.skipped) } else { String::new() };
        let start = format!(
            "\n<details><summary>{}{} passed{skipped}: {}</summary>\n\n| | case | | time |\n|---|---|---|---:|\n",
            if self.has_trouble { "" } else { "✅ " },
            count(passed, "case", "cases"),
            in_html(&self.info.path),
        );
        let end = "\n</details>\n";
        let whole = page.most;
        page.most = whole.saturating_sub(end.len() + 80);
        if page.room() < start.len() + MAX_SHORT || !page.add(&start) {
            page.most = whole;
            left_out.others += number;
            return;
        }
        let shown = self.others.texts.iter().take_while(|row| page.add(row)).count();
        page.most = whole;
        if shown < number {
            page.add(&format!("\n… and {} more\n", number - shown));
        }
        left_out.others += number - shown;
        page.add(end);
    }
}

/// A case that did not pass, in a row of the table.
fn row(verdict: Verdict<'_>, regressed: bool) -> String {
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
fn row_of_other(verdict: Verdict<'_>) -> String {
    let Verdict { case, result, .. } = verdict;
    let name = verdict.own_name();
    let name = if name.is_empty() { String::new() } else { code(name, MAX_SHORT) };
    let time = time(result.transcript.duration).replace(' ', "&nbsp;");
    format!("| {} | {} | {name} | {time} |\n", sign(result.outcome), code(&case.label(), MAX_SHORT))
}

/// What is odd about a case that passed.
fn oddity(Verdict { case, result, .. }: Verdict<'_>) -> String {
    let note = attempts_note(result);
    let first = note.iter().chain(&result.warning).chain(&result.warnings).next();
    let what = first.map(|first| code(first, MAX_SHORT)).unwrap_or_default();
    format!("{}: {what}", code(&case.label(), MAX_SHORT))
}

/// Whether a case that is fine has something to tell.
fn is_odd(result: &CaseResult) -> bool {
    result.is_flaky() || !result.earlier.is_empty() || result.warning.is_some() || !result.warnings.is_empty()
}

/// How a suite compares with an earlier result, what broke first; of each list only so many.
fn comparison(compared: &Comparison, most: usize) -> String {
    let Comparison { baseline_run_id, regressions, new_passes, new_cases, vanished_cases, not_judged, differences } =
        compared;
    let mut text = format!("\n**Compared with run** {}\n\n", code(baseline_run_id, MAX_SHORT));
    let lists = [
        ("❌ regressed", regressions),
        ("⚠️ passed then, not judged now", not_judged),
        ("✅ newly passing", new_passes),
        ("new", new_cases),
        ("vanished", vanished_cases),
        ("⚠️ not the same then", differences),
    ];
    let start = text.len();
    for (what, ids) in lists.iter().filter(|(_, ids)| !ids.is_empty()) {
        let shown: Vec<String> = ids.iter().take(most).map(|id| code(id, 100)).collect();
        let rest = if ids.len() > most { " …" } else { "" };
        let _ = writeln!(text, "- {what} ({}): {}{rest}", ids.len(), shown.join(", "));
    }
    if text.len() == start {
        text.push_str("- every case came out as it did then\n");
    }
    text
}

/// Everything that people want to see of a case that did not pass, from the summary to the end of `<details>`.
fn details(verdict: Verdict<'_>) -> String {
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
    tools_called(result).into_iter().for_each(&mut line);
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

/// The tools that were called; in a dialogue, turn by turn.
fn tools_called(result: &CaseResult) -> Option<String> {
    let calls = &result.transcript.tool_calls;
    let has_turns = !result.turns.is_empty() && calls.iter().any(|call| call.turn > 0);
    let (mut text, mut last) = (String::new(), 0);
    for call in calls.iter().take(MAX_ITEMS) {
        let failed = if call.success() == Some(false) { " (failed)" } else { "" };
        let separator = match text.as_str() {
            "" => "",
            _ if has_turns && call.turn != last => "; ",
            _ => ", ",
        };
        let turn = if has_turns && call.turn != last { format!("turn {} ", call.turn) } else { String::new() };
        last = call.turn;
        let _ = write!(text, "{separator}{turn}{}{failed}", code(&call.name, 80));
    }
    let rest = calls.len().saturating_sub(MAX_ITEMS);
    let rest = if rest > 0 { format!(" … and {rest} more") } else { String::new() };
    (!text.is_empty()).then(|| format!("tools called: {text}{rest}"))
}

fn line_of_labels(labels: &crate::suite::Labels) -> Option<String> {
    let named = [("difficulty", &labels.difficulty), ("bug", &labels.bug_ref), ("since", &labels.created_at)];
    let mut parts: Vec<String> =
        named.iter().filter_map(|(name, text)| Some(format!("{name} {}", code(text.as_ref()?, 100)))).collect();
    parts.extend(labels.tags.iter().take(MAX_ITEMS).map(|tag| format!("tag {}", code(tag, 100))));
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The beginning of the answer, or of a dialogue.
fn said(result: &CaseResult) -> String {
    if result.turns.is_empty() {
        let commentary = cut(&result.transcript.commentary, MAX_REASON);
        let commentary = match commentary.text {
            "" => String::new(),
            text => format!("- commentary before the answer: {}\n", code(text, MAX_REASON)),
        };
        let answer = cut(&result.transcript.response, MAX_ANSWER);
        if answer.text.is_empty() {
            return format!("{commentary}- there is no answer\n");
        }
        let note = answer.note().map(|note| format!("\n… {note}\n")).unwrap_or_default();
        return format!("{commentary}\n{}{note}", fence(answer.text));
    }
    let mut text = String::new();
    let mut shown = 0;
    for turn in &result.turns {
        if text.len() > MAX_ANSWER {
            break;
        }
        let said = [
            ("user", &turn.input),
            ("why", &turn.reasoning),
            ("commentary", &turn.commentary),
            ("agent", &turn.output),
        ];
        let is_said = |who: &str, words: &str| matches!(who, "user" | "agent") || !words.is_empty();
        for (who, words) in said.into_iter().filter(|(who, words)| is_said(who, words)) {
            let words = cut(words, MAX_ANSWER / 3);
            let note = words.note().map(|note| format!(" … {note}")).unwrap_or_default();
            let _ = writeln!(text, "{who}: {}{note}", words.text);
        }
        shown += 1;
    }
    let rest = result.turns.len() - shown;
    let rest = if rest > 0 { format!("\n… and {}\n", count(rest, "more turn", "more turns")) } else { String::new() };
    format!("\n{}{rest}", fence(&text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Run;
    use crate::report::sample::{self, HOSTILE, Log, errored, failed, passed};
    use crate::report::{Format, whole};

    fn report(run: &Run, log: &Log) -> String {
        whole(Format::Markdown, run.clone(), log, None).expect("text")
    }

    fn written(cases: Vec<(&str, CaseResult)>) -> String {
        let (run, verdicts) = sample::run(cases);
        report(&run, &verdicts)
    }

    /// What is left of Markdown when code spans, fences and `<code>` are taken out: all that readers may act on.
    fn outside_code(text: &str) -> String {
        let mut out = String::new();
        let mut fence = None;
        for line in text.lines() {
            let ticks = line.len() - line.trim_start_matches('`').len();
            match fence {
                Some(open) if ticks >= open && line.len() == ticks => fence = None,
                Some(_) => {}
                None if ticks >= 3 && line.ends_with("text") => fence = Some(ticks),
                None => {
                    let _ = writeln!(out, "{}", outside_spans(line));
                }
            }
        }
        assert_eq!(fence, None, "a fence is open at the end: {text}");
        out
    }

    fn outside_spans(line: &str) -> String {
        let mut out = String::new();
        let mut rest = line;
        while let Some(at) = rest.find(['`', '<']) {
            out.push_str(&rest[..at]);
            rest = &rest[at..];
            if let Some(inner) = rest.strip_prefix("<code>") {
                let end = inner.find("</code>").expect("an end of <code>");
                assert!(!inner[..end].contains(['<', '>', '"']), "{line}");
                rest = &inner[end + 7..];
                continue;
            }
            let ticks = rest.len() - rest.trim_start_matches('`').len();
            if ticks == 0 {
                out.push('<');
                rest = &rest[1..];
                continue;
            }
            let (fence, inner) = rest.split_at(ticks);
            let mut from = 0;
            // The span ends at the first run of just as many.
            rest = loop {
                let at = from + inner[from..].find(fence).unwrap_or_else(|| panic!("an open span in {line}"));
                let run = inner[at..].len() - inner[at..].trim_start_matches('`').len();
                if run == ticks {
                    assert!(!inner[..at].contains('|'), "a bar in a table: {line}");
                    break &inner[at + run..];
                }
                from = at + run;
            };
        }
        out + rest
    }

    #[test]
    fn what_did_not_pass_comes_first_and_in_full() {
        let (run, verdicts) = sample::of_everything();
        let text = report(&run, &verdicts);
        for part in [
            "## ⚠️ errored: 2 of 7 cases passed, 2 failed, 1 errored, 1 not run, 1 skipped, 1 flaky\n",
            "agent `demo` · `Demo` · version `1.2` · model `small` · run `run-1` · took 2.5 s · $0.0120 (estimated) · exit \
             code 3\n",
            "### `evals/a.golden.json`\n\n`demo`, golden evals\n",
            "| ❌ | `worse` **regression**<br>`about worse` | `responseContains: expected \"x\"` | 1.5&nbsp;s |\n",
            "| ⚠️ | `broken`",
            "| ⚪ | `late`",
            "- cause `assertion`, blame `agent`\n",
            "- ❌ `responseContains`: `expected \"x\"`; `the response is \"y\"`\n- ❌ `validator`: score 0.25, 2 of 3 votes agreeing\n",
            "- tools called: `look`, `book` (failed), `odd` (failed)\n",
            "- commentary before the answer: `Let me look.`\n\n```text\nThe answer.\n```\n",
            "- checkpoints not reached: `paid`",
            "user: I want to pay.\ncommentary: One moment.\nagent: What?\n",
            "- ❌ regressed (1): `worse`\n- ✅ newly passing (1): `better`\n",
            "the description is another one",
            "- `better`: `flaky: it passed in attempt 2; before that: wrong`\n",
            "<summary>2 cases passed, 1 skipped: <code>evals/a.golden.json</code></summary>",
            "| ✅ | `good` | `about good` | 10&nbsp;ms |\n",
        ] {
            assert!(text.contains(part), "{part}\n in\n{text}");
        }
        let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}"));
        assert!(place("`worse`") < place("`broken`") && place("`late`") < place("cases passed, 1 skipped:"));
    }

    #[test]
    fn hostile_text_stays_text() {
        let texts = HOSTILE.iter().map(|text| (*text, failed(text))).chain([("fine", passed(HOSTILE[0]))]);
        let (mut run, verdicts) = sample::run(texts.collect());
        run.warnings = HOSTILE.iter().map(|text| (*text).to_owned()).collect();
        run.suites[0].warnings.clone_from(&run.warnings);
        std::sync::Arc::make_mut(&mut run.spec).agent_id = HOSTILE.concat();
        let text = report(&run, &verdicts);
        assert!(text.len() <= MAX_REPORT);
        let outside = outside_code(&text);
        for bad in ["script", "onerror", "javascript", "@everyone", "](", "http", "# big", "a | b", "-->", "~~~"] {
            assert!(!outside.contains(bad), "{bad} in {outside}");
        }
        for line in outside.lines().filter(|line| line.starts_with("| ") && !line.contains("suite")) {
            assert_eq!(line.matches('|').count(), 5, "{line}");
        }
        let strange = |c: &char| c.is_control() && *c != '\n' || ('\u{202a}'..='\u{202e}').contains(c);
        assert_eq!(text.chars().find(strange), None);
        let tags = outside.matches('<').count();
        let ours = ["<details>", "<details open>", "</details>", "<summary>", "</summary>", "<br>", "<sub>", "</sub>"];
        assert_eq!(tags, ours.iter().map(|tag| outside.matches(tag).count()).sum::<usize>(), "{outside}");
    }

    #[test]
    fn a_long_answer_is_cut() {
        let long = written(vec![("long", failed(&"answer ".repeat(800_000)))]);
        assert!(long.len() < 10_000 && long.contains("… 5.6 MB more"), "{long}");
    }

    #[test]
    fn ten_thousand_cases_fit_into_a_comment() {
        let ids: Vec<String> = (0..10_000).map(|number| format!("case-{number:05}")).collect();
        let all = |result: fn(usize) -> CaseResult| {
            written(ids.iter().enumerate().map(|(number, id)| (id.as_str(), result(number))).collect())
        };
        let bad = all(|_| failed("no"));
        assert!(bad.len() <= MAX_REPORT && bad.len() > MAX_REPORT / 2, "{}", bad.len());
        let number = |name: &str| -> usize {
            let rest = bad.split_once(name).unwrap_or_else(|| panic!("{name}: {}", &bad[bad.len() - 900..])).1;
            rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect("a number")
        };
        let details = bad.matches("<details").count();
        let (named, unnamed) = (number("without details: "), number("not shown at all: "));
        assert_eq!(details + named + unnamed, 10_000, "each is shown or counted");
        assert!(details > 10 && named > 100, "{details} {named}");
        assert!(bad.contains("The whole is in the report as `.html` or `.json`"));
        outside_code(&bad);

        let good = all(|number| if number == 9_999 { errored("trouble") } else { passed("yes") });
        assert!(good.len() <= MAX_REPORT, "{}", good.len());
        assert!(good.contains("| ⚠️ | `case-09999`") && good.contains("other cases that are not shown: "));
        outside_code(&good);
    }

    #[test]
    fn many_suites_share_the_room() {
        let (mut run, _) = sample::run(vec![("a", failed("no"))]);
        let suites: Vec<String> = (0..300).map(|number| format!("s{number}.golden.json")).collect();
        let cases = suites.iter().map(|suite| (suite.as_str(), "a", failed("no")));
        let verdicts = sample::verdicts(cases);
        run.suites = suites.iter().map(|path| SuiteInfo { path: path.clone(), ..run.suites[0].clone() }).collect();
        let text = report(&run, &verdicts);
        assert!(text.len() <= MAX_REPORT, "{}", text.len());
        let shown = text.matches("\n### `s").count();
        assert!(shown > 20 && text.contains(&format!("suites that are not shown: {}", 300 - shown)), "{shown} {text}");
    }
    #[test]
    fn small_suites_leave_their_room_to_the_others() {
        let ids: Vec<String> = (0..1_500).map(|number| format!("case-{number:05}")).collect();
        let cases = |small: bool| {
            let big = ids.iter().map(|id| ("evals/a.golden.json", id.as_str(), failed("no")));
            let others = ["b", "c", "d"].map(|suite| (suite, "one", failed("no")));
            sample::verdicts(big.chain(others.into_iter().filter(|_| small)))
        };
        let (mut run, _) = sample::run(vec![("a", failed("no"))]);
        let alone = report(&run, &cases(false));
        run.suites.extend(["b", "c", "d"].map(|path| SuiteInfo { path: path.to_owned(), ..run.suites[0].clone() }));
        let shared = report(&run, &cases(true));
        let named = |text: &str| ids.iter().filter(|id| text.contains(id.as_str())).count();
        assert!(named(&shared) * 10 > named(&alone) * 8, "{} of {}", named(&shared), named(&alone));
        let place = |suite: &str| shared.find(&format!("\n### `{suite}`")).expect("each suite is there");
        assert!(place("evals/a.golden.json") < place("b") && place("b") < place("d"), "in the order of the run");
    }
}
