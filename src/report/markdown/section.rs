//! What is said of a suite: what is kept of its cases, and as much of that as there is room for.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::case::{details, is_odd, oddity, row, row_of_other};
use super::room::{Kept, LeftOut, Page};
use super::text::{MAX_ITEMS, MAX_SHORT, code, in_html, listed, warnings};
use super::{MAX_REPORT, MIN_SUITE};
use crate::event::SuiteInfo;
use crate::report::outline::Outline;
use crate::report::words::{count, tally};
use crate::report::{Verdict, repeats};
use crate::stats::{Repeats, Stability};
use crate::suite::Dialect;
use crate::verdict::baseline::Comparison;
use crate::verdict::{Outcome, Totals};

/// Cases whose details are unfolded.
const MAX_OPEN: usize = 3;

/// A suite, and its cases by what came of them.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) info: SuiteInfo,
    pub(super) totals: Totals,
    /// Cases that did not pass and were not left out as asked, in the order in which they are told: those that passed
    /// before first, and what was not run last.
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
    pub(super) fn of(outline: &Outline, part: usize) -> Self {
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
    pub(super) fn take(&mut self, verdict: Verdict<'_>) {
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
    pub(super) fn bad(&self) -> usize {
        self.bad.iter().map(|bad| bad.number).sum()
    }

    /// Number of those of them that were run.
    fn judged(&self) -> usize {
        self.bad[..2].iter().map(|bad| bad.number).sum()
    }

    /// Whether there is more to say than that everything passed.
    pub(super) fn has_news(&self) -> bool {
        let info = &self.info;
        self.bad() > 0
            || info.comparison.is_some()
            || self.repeats.is_some()
            || !info.warnings.is_empty()
            || info.staleness.as_ref().is_some_and(|today| !today.warnings.is_empty())
            || self.oddities > 0
    }

    /// What is said of the suite, in at most `most` bytes: a row for each case that did not pass, then their details,
    /// then what else is worth knowing.
    pub(super) fn written(&self, most: usize, left_out: &mut LeftOut) -> String {
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
    pub(super) fn add_others(&self, page: &mut Page, left_out: &mut LeftOut) {
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

/// How a suite compares with an earlier result, what broke first; of each list at most `most` entries.
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
