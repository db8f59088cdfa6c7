//! What repetitions say about the agent, and what came of a gate, in the words of reports.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use serde::{Deserialize, Serialize};

use super::console::Look;
use super::shape::named;
use super::words::count;
use crate::stats::{Repeats, Stability, Tally};
use crate::text::printable;
use crate::verdict::gate::{Answer, GateResult, Passage, RateComparison, SuiteComparison, Test};

/// Most cases that the console names.
const MAX_CASES: usize = 20;

/// A rate as people read it.
pub(super) fn percent(rate: f64) -> String {
    format!("{:.1} %", rate * 100.0)
}

/// A tally as people read it: `17/20 passed, 85.0 % (64.0 to 94.8 %)`, and what is not counted.
pub(super) fn told(tally: Tally) -> String {
    let mut text = format!("{}/{} passed", tally.passed, tally.counted());
    if let (Some(rate), Some((low, high))) = (tally.rate(), tally.interval()) {
        let _ = write!(text, ", {} ({:.1} to {})", percent(rate), low * 100.0, percent(high));
    }
    if tally.uncounted > 0 {
        let _ = write!(text, ", {} not counted", tally.uncounted);
    }
    text
}

/// The classes that there are cases of: `7 stable, 2 unstable`.
pub(super) fn classes(repeats: &Repeats) -> String {
    let there: Vec<String> = repeats
        .classes()
        .iter()
        .filter(|(_, number)| *number > 0)
        .map(|(class, number)| format!("{number} {}", class.words()))
        .collect();
    if there.is_empty() { "nothing is known of any case".to_owned() } else { there.join(", ") }
}

/// The chances over all cases: `pass^1 95.0 %, pass^2 92.0 %`. Empty: there are none.
pub(super) fn chances(repeats: &Repeats) -> String {
    let chance = |k: &u32| Some(format!("pass^{k} {}", percent(repeats.mean(|tally| tally.pass_hat(*k))?)));
    repeats.ks().iter().filter_map(chance).collect::<Vec<_>>().join(", ")
}

/// Over which cases the chances are, and why they go no further, where that goes without saying not. Empty: it does.
pub(super) fn over(repeats: &Repeats) -> String {
    let (known, all) = (repeats.known(), repeats.cases.len());
    let cases = (known < all)
        .then(|| format!("over {known} of {}: nothing is known of the others", count(all, "case", "cases")));
    let ks = repeats.ks().last().copied().filter(|_| repeats.are_uneven());
    let ks = ks.map(|k| format!("up to k = {k}: not every case has more executions that count"));
    if known == 0 { String::new() } else { cases.into_iter().chain(ks).collect::<Vec<_>>().join("; ") }
}

/// What the console says about the repetitions of a suite.
#[must_use]
pub fn summary(repeats: &Repeats, look: Look) -> String {
    let mut out = String::new();
    let bold = look.style(Style::new().bold());
    let _ = writeln!(out, "  {bold}Repetitions{bold:#}: {}", told(repeats.total()));
    let _ = writeln!(out, "  {}: {}", count(repeats.cases.len(), "case", "cases"), classes(repeats));
    for line in [chances(repeats), over(repeats)].iter().filter(|line| !line.is_empty()) {
        let _ = writeln!(out, "  {line}");
    }
    // That nothing is known of any, as of replays, is said once.
    let unstable = if repeats.known() > 0 { repeats.unstable() } else { Vec::new() };
    for (case, tally) in unstable.iter().take(MAX_CASES) {
        let (color, class) = match tally.stability() {
            Some(Stability::Stable | Stability::MostlyStable) | None => (AnsiColor::Yellow, tally.stability()),
            class => (AnsiColor::Red, class),
        };
        let (color, class) = (look.style(color.on_default()), class.map_or("nothing is known", Stability::words));
        let _ = writeln!(out, "    {color}{class}{color:#} {}: {}", printable(case), told(*tally));
    }
    if unstable.len() > MAX_CASES {
        let _ = writeln!(out, "    and {} more that are not stable", unstable.len() - MAX_CASES);
    }
    out
}

/// What came of a gate, in words.
pub(super) const fn passage(gate: &GateResult) -> &'static str {
    match (gate.passage, gate.counts_as) {
        (Passage::Passed, _) => "the gate was passed",
        (Passage::Failed, _) => "the gate was not passed",
        (Passage::CannotTell, Passage::CannotTell) => "nobody can tell whether the gate was passed",
        (Passage::CannotTell, Passage::Passed) => "nobody can tell whether the gate was passed, which counts as passed",
        (Passage::CannotTell, Passage::Failed) => {
            "nobody can tell whether the gate was passed, which counts as not passed"
        }
    }
}

/// What came of a gate, in a line.
pub(super) fn headline(gate: &GateResult) -> String {
    let word = passage(gate);
    let left_out = match gate.left_out {
        0 => String::new(),
        number => format!(", {number} left out because they could not change that"),
    };
    format!("{word}: {}{left_out}", told(gate.tally))
}

/// What a comparison says, in a line.
fn compared(comparison: &RateComparison) -> String {
    format!("compared with the baseline: {}", answered(comparison))
}

fn answered(comparison: &RateComparison) -> String {
    let RateComparison { answer, test, p, before, now } = comparison;
    let rate = |tally: &Tally| format!("{}/{}", tally.passed, tally.counted());
    let test = match test {
        Test::Fisher => "Fisher's exact test",
        Test::McNemar => "McNemar's exact test",
    };
    format!("{}; {} passed then, {} now ({test}, p = {p:.2e})", answer.words(), rate(before), rate(now))
}

/// What the comparison of a gate says, in lines: the whole, and those suites whose rates are not what they were.
#[must_use]
pub fn comparisons(gate: &GateResult) -> Vec<String> {
    let Some(whole) = &gate.comparison else { return Vec::new() };
    let differs = |suite: &&SuiteComparison| suite.compared.before.rate() != suite.compared.now.rate();
    let mut lines = vec![compared(whole)];
    let mut suites = gate.suites.iter().filter(differs);
    for SuiteComparison { suite, compared } in suites.by_ref().take(MAX_CASES) {
        lines.push(format!("{suite}: {}", answered(compared)));
    }
    let rest = suites.count();
    if rest > 0 {
        lines.push(format!("and {rest} more suites whose rates are not what they were"));
    }
    lines
}

/// What the console says about the gate of a run.
#[must_use]
pub fn gate(gate: &GateResult, look: Look) -> String {
    let (sign, color) = match gate.counts_as {
        Passage::Passed => ("✓", AnsiColor::Green),
        Passage::Failed => ("✗", AnsiColor::Red),
        Passage::CannotTell => ("?", AnsiColor::Yellow),
    };
    let color = look.style(color.on_default().bold());
    let mut out = format!("{color}{sign}{color:#} {}\n", headline(gate));
    for reason in &gate.reasons {
        let _ = writeln!(out, "    {}", printable(reason));
    }
    for line in comparisons(gate) {
        let _ = writeln!(out, "    {}", printable(&line));
    }
    out
}

/// Repetitions in the JSON report. Chances are told for some `k`: of a case as far as it has executions that count, of
/// all together as the mean over the `countedCases` of which something is known, as far as each of these has.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Repeated<'a> {
    #[serde(flatten)]
    total: Counted,
    counted_cases: usize,
    pass_at: BTreeMap<u32, f64>,
    pass_hat: BTreeMap<u32, f64>,
    stability: BTreeMap<&'static str, usize>,
    cases: Vec<Case<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Case<'a> {
    id: &'a str,
    #[serde(flatten)]
    counted: Counted,
    stability: Option<&'static str>,
    pass_at: BTreeMap<u32, f64>,
    pass_hat: BTreeMap<u32, f64>,
}

/// A tally; `uncounted` executions say nothing about the agent and are in no rate. `interval` holds in 95 of 100 cases.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Counted {
    passed: u32,
    failed: u32,
    uncounted: u32,
    pass_rate: Option<f64>,
    interval: Option<(f64, f64)>,
}

impl Counted {
    fn of(tally: Tally) -> Self {
        let Tally { passed, failed, uncounted } = tally;
        Self { passed, failed, uncounted, pass_rate: tally.rate(), interval: tally.interval() }
    }
}

impl Counted {
    const fn tally(&self) -> Tally {
        let Self { passed, failed, uncounted, .. } = *self;
        Tally { passed, failed, uncounted }
    }
}

impl<'a> Repeated<'a> {
    pub(super) fn of(repeats: &'a Repeats) -> Self {
        let chances = |ks: Vec<u32>, of: &dyn Fn(u32) -> Option<f64>| {
            ks.into_iter().filter_map(|k| Some((k, of(k)?))).collect::<BTreeMap<_, _>>()
        };
        let case = |(id, tally): &'a (String, Tally)| Case {
            id,
            counted: Counted::of(*tally),
            stability: tally.stability().map(Stability::name),
            pass_at: chances(tally.ks(), &|k| tally.pass_at(k)),
            pass_hat: chances(tally.ks(), &|k| tally.pass_hat(k)),
        };
        Self {
            total: Counted::of(repeats.total()),
            counted_cases: repeats.known(),
            pass_at: chances(repeats.ks(), &|k| repeats.mean(|tally| tally.pass_at(k))),
            pass_hat: chances(repeats.ks(), &|k| repeats.mean(|tally| tally.pass_hat(k))),
            stability: repeats.classes().into_iter().map(|(class, number)| (class.name(), number)).collect(),
            cases: repeats.cases.iter().map(case).collect(),
        }
    }
}

/// A gate in the JSON report.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Gated<'a> {
    passage: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    counts_as: Option<Cow<'a, str>>,
    reasons: Cow<'a, [String]>,
    #[serde(flatten)]
    tally: Counted,
    comparison: Option<Compared<'a>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    suites: Vec<OfSuite<'a>>,
    left_out: u32,
}

#[derive(Serialize, Deserialize)]
struct OfSuite<'a> {
    suite: Cow<'a, str>,
    #[serde(flatten)]
    compared: Compared<'a>,
}

#[derive(Serialize, Deserialize)]
struct Compared<'a> {
    answer: Cow<'a, str>,
    test: Cow<'a, str>,
    p: f64,
    before: Counted,
    now: Counted,
}

impl Compared<'_> {
    fn of(comparison: &RateComparison) -> Self {
        let RateComparison { answer, test, p, before, now } = comparison;
        let (before, now) = (Counted::of(*before), Counted::of(*now));
        Self { answer: answer.name().into(), test: test.name().into(), p: *p, before, now }
    }

    fn read(&self) -> Result<RateComparison, String> {
        Ok(RateComparison {
            answer: named("gate: answer", &self.answer, Answer::named)?,
            test: named("gate: test", &self.test, Test::named)?,
            p: self.p,
            before: self.before.tally(),
            now: self.now.tally(),
        })
    }
}

impl<'a> Gated<'a> {
    pub(super) fn of(gate: &'a GateResult) -> Self {
        let of_suite =
            |of: &'a SuiteComparison| OfSuite { suite: (&*of.suite).into(), compared: Compared::of(&of.compared) };
        Self {
            passage: gate.passage.name().into(),
            counts_as: (gate.counts_as != gate.passage).then(|| gate.counts_as.name().into()),
            reasons: (&*gate.reasons).into(),
            tally: Counted::of(gate.tally),
            comparison: gate.comparison.as_ref().map(Compared::of),
            suites: gate.suites.iter().map(of_suite).collect(),
            left_out: gate.left_out,
        }
    }

    pub(super) fn read(&self) -> Result<GateResult, String> {
        let passage = named("gate: passage", &self.passage, Passage::named)?;
        let of_suite =
            |of: &OfSuite<'_>| Ok(SuiteComparison { suite: (&*of.suite).into(), compared: of.compared.read()? });
        let counts_as = self.counts_as.as_ref().map(|word| named("gate: countsAs", word, Passage::named));
        Ok(GateResult {
            passage,
            counts_as: counts_as.unwrap_or(Ok(passage))?,
            reasons: self.reasons.to_vec(),
            tally: self.tally.tally(),
            comparison: self.comparison.as_ref().map(Compared::read).transpose()?,
            suites: self.suites.iter().map(of_suite).collect::<Result<_, String>>()?,
            left_out: self.left_out,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use crate::report::{Format, whole};

    fn written(format: Format) -> String {
        let (run, log) = sample::repeated();
        whole(format, run, &log, None).expect("text")
    }

    #[test]
    fn every_report_for_people_says_it() {
        let headline = "the gate was not passed: 7/8 passed, 87.5 % (52.9 to 97.8 %), 4 not counted, 2 left out because they could \
                        not change that";
        let compared =
            "compared with the baseline: no difference; 8/8 passed then, 7/8 now (Fisher's exact test, p = 5.00e-1)";
        let markdown = written(Format::Markdown);
        for part in [
            headline,
            compared,
            "- `shaky: 3 of 4 (75.0 %) passed, at least 80% have to`",
            "**Repetitions:** 7/8 passed, 87.5 % (52.9 to 97.8 %), 4 not counted – 3 cases: 1 stable, 1 unstable. pass\\^1 87.5 %, \
             pass\\^2 75.0 %, pass\\^4 50.0 % (over 2 of 3 cases: nothing is known of the others)\n",
            "| `shaky` | 3/4 | 75.0 % | 30.1 to 95.4 % | unstable |\n| `broken` | 0/0 |  |  | nothing is known |\n",
        ] {
            assert!(markdown.contains(part), "{part}\n in\n{markdown}");
        }
        let page = written(Format::Html);
        let document = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
        roxmltree::Document::parse_with_options(&page, document).unwrap_or_else(|error| panic!("{error}\n{page}"));
        let page = page.replace("&#39;", "'").replace("&#x27;", "'");
        for part in [headline, compared, "value=\"75\"", "3/4 passed, 75.0 % (30.1 to 95.4 %)", "nothing is known"] {
            assert!(page.contains(part), "{part}\n in\n{page}");
        }
    }

    #[test]
    fn the_json_report_has_the_numbers() {
        let json: serde_json::Value = serde_json::from_str(&written(Format::Json)).expect("JSON");
        let repeats = &json["repeats"];
        assert_eq!(repeats["passRate"], 0.875);
        assert_eq!(repeats["uncounted"], 4);
        assert_eq!(repeats["countedCases"], 2);
        assert_eq!(repeats["passHat"], serde_json::json!({"1": 0.875, "2": 0.75, "4": 0.5}));
        assert_eq!(repeats["passAt"], serde_json::json!({"1": 0.875, "2": 1.0, "4": 1.0}));
        assert_eq!(repeats["stability"]["unstable"], 1);
        assert_eq!(repeats["cases"][1]["id"], "shaky");
        assert_eq!(repeats["cases"][1]["stability"], "unstable");
        assert_eq!(repeats["cases"][2]["stability"], serde_json::Value::Null);
        assert_eq!(json["gate"]["passage"], "failed");
        assert_eq!(json["gate"]["leftOut"], 2);
        assert_eq!(json["gate"]["comparison"]["answer"], "no_difference");
    }

    #[test]
    fn the_console_names_what_is_not_stable() {
        let tally = |passed, failed| Tally { passed, failed, uncounted: 0 };
        let cases = [("a", tally(5, 0)), ("b\u{1b}[31m", tally(1, 4)), ("c", tally(4, 1))];
        let repeats = Repeats { cases: cases.map(|(id, tally)| (id.to_owned(), tally)).into() };
        let look = Look { width: 80, ..Look::PIPE };
        assert_eq!(
            summary(&repeats, look),
            "  Repetitions: 10/15 passed, 66.7 % (41.7 to 84.8 %)\n  3 cases: 1 stable, 1 mostly stable, 1 highly unstable\n  \
             pass^1 66.7 %, pass^2 53.3 %, pass^4 40.0 %, pass^5 33.3 %\n    highly unstable b\\u{1b}[31m: 1/5 passed, 20.0 % \
             (3.6 to 62.4 %)\n    mostly stable c: 4/5 passed, 80.0 % (37.6 to 96.4 %)\n"
        );
    }

    /// After an early end: chances of fewer and fewer cases would rise.
    #[test]
    fn it_is_said_how_far_chances_go() {
        let tally = |passed, failed| Tally { passed, failed, uncounted: 0 };
        let of = |cases: &[Tally]| Repeats { cases: cases.iter().map(|tally| ("a".to_owned(), *tally)).collect() };
        let told = |cases: &[Tally]| (chances(&of(cases)), over(&of(cases)));
        let (text, notes) = told(&[tally(9, 0), tally(1, 1), tally(0, 0)]);
        assert_eq!(text, "pass^1 75.0 %, pass^2 50.0 %");
        assert_eq!(
            notes,
            "over 2 of 3 cases: nothing is known of the others; up to k = 2: not every case has more executions that count"
        );
        assert_eq!(told(&[tally(2, 0), tally(1, 1)]).1, "");
        assert_eq!(told(&[tally(0, 0)]), (String::new(), String::new()));
    }
}
