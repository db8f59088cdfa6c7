//! What comes of a gate: counts against rates, and now against then.

use std::collections::HashMap;
use std::sync::Arc;

use super::{
    ALPHA, Answer, CaseTally, Gate, GateResult, MILLION, Passage, Rate, RateComparison, SuiteComparison, Test,
    Undecided,
};
use crate::stats::{Tally, fisher, mcnemar};

/// Most cases that are named in a reason.
const MAX_NAMED: usize = 5;

/// A case then and now.
type Pair = (Tally, Tally);

/// How executions that are open are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guess {
    Passed,
    Failed,
    Uncounted,
}

/// Whether no execution that is open can change what comes of the gate.
#[must_use]
pub fn is_decided(gate: &Gate, cases: &[CaseTally]) -> bool {
    if cases.iter().any(|case| case.faults > 0) {
        return true;
    }
    let guessed = |guess| {
        let GateResult { passage, comparison, .. } = judge_guessed(gate, cases, guess);
        (passage, comparison.map(|comparison| comparison.answer))
    };
    // Rates rise with everything that passes, so what is between these two comes out as they do.
    let (best, worst) = (guessed(Guess::Passed), guessed(Guess::Failed));
    best == worst && best.0 != Passage::CannotTell && best == guessed(Guess::Uncounted)
}

/// What came of a gate; executions that are open are as if there were none.
#[must_use]
pub fn judge(gate: &Gate, cases: &[CaseTally]) -> GateResult {
    judge_guessed(gate, cases, Guess::Uncounted)
}

fn judge_guessed(gate: &Gate, cases: &[CaseTally], guess: Guess) -> GateResult {
    let now = |case: &CaseTally| {
        let mut tally = case.tally;
        match guess {
            Guess::Passed => tally.passed += case.open,
            Guess::Failed => tally.failed += case.open,
            Guess::Uncounted => {}
        }
        tally
    };
    let mut tally = Tally::default();
    for case in cases {
        tally.add(now(case));
    }
    let mut failed = Vec::new();
    let mut unknown = Vec::new();
    if tally.counted() == 0 {
        unknown.push("no execution says anything about the agent".to_owned());
    }
    if let Some(least) = gate.min_pass_rate.filter(|least| !least.is_reached(tally)) {
        failed.push(format!("{} passed, at least {least} have to", of_all(tally)));
    }
    if let Some(least) = gate.min_case_pass_rate {
        let silent = cases.iter().filter(|case| case.open == 0 && now(case).counted() == 0).count();
        if silent > 0 && tally.counted() > 0 {
            unknown.push(format!("of {silent} cases no execution says anything about the agent"));
        }
        let low = cases.iter().filter(|case| !least.is_reached(now(case)));
        let mut low = low.map(|case| (case, now(case)));
        for (case, tally) in low.by_ref().take(MAX_NAMED) {
            failed.push(format!("{}: {} passed, at least {least} have to", case.case, of_all(tally)));
        }
        let rest = low.count();
        if rest > 0 {
            failed.push(format!("and {rest} more cases with less than {least}"));
        }
    }
    let faults: u32 = cases.iter().map(|case| case.faults).sum();
    if faults > 0 {
        failed.push(format!("{faults} failed, and not the agent is to blame: the suite or its scripts are"));
    }
    let (comparison, suites) = match gate.max_regression {
        None => (None, Vec::new()),
        Some(most) => compare_all(cases, now, most, &mut failed, &mut unknown),
    };
    let passage = match (failed.is_empty(), unknown.is_empty()) {
        (false, _) => Passage::Failed,
        (true, false) => Passage::CannotTell,
        (true, true) => Passage::Passed,
    };
    let counts_as = match (passage, gate.undecided) {
        // That nothing is known at all is never a pass.
        (Passage::CannotTell, Some(Undecided::Pass)) if tally.counted() > 0 => Passage::Passed,
        (Passage::CannotTell, Some(Undecided::Fail)) => Passage::Failed,
        (passage, _) => passage,
    };
    GateResult { passage, counts_as, reasons: [failed, unknown].concat(), tally, comparison, suites, left_out: 0 }
}

/// Compares the whole with the baseline, and each suite of several with its own: one that rises must not make up
/// for one that falls, and a large one must not hide a small one.
///
/// Whether a drop of the size that matters would have shown is asked of the whole: small suites could hardly ever
/// say so. A suite that fell by more than may be lost has to be looked at all the same: it regressed, or nobody can
/// tell. As the question is put as often as there are suites, their chances are multiplied by that number
/// (Bonferroni's correction).
fn compare_all(
    cases: &[CaseTally],
    now: impl Fn(&CaseTally) -> Tally,
    most: Rate,
    failed: &mut Vec<String>,
    unknown: &mut Vec<String>,
) -> (Option<RateComparison>, Vec<SuiteComparison>) {
    let mut all: Vec<Pair> = Vec::new();
    let mut of_suites: Vec<(&Arc<str>, Vec<Pair>)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for case in cases {
        let Some(pair) = case.before.map(|before| (before, now(case))) else { continue };
        if pair.0.counted() == 0 || pair.1.counted() == 0 {
            continue;
        }
        all.push(pair);
        let place = *places.entry(&case.suite).or_insert_with(|| {
            of_suites.push((&case.suite, Vec::new()));
            of_suites.len() - 1
        });
        of_suites[place].1.push(pair);
    }
    let whole = compare(&all, most, 1);
    match &whole {
        None => unknown.push("no case of the baseline was judged in both runs".to_owned()),
        Some(compared) => told("", compared, most, 1, failed, unknown),
    }
    if of_suites.len() < 2 {
        return (whole, Vec::new());
    }
    let times = u32::try_from(of_suites.len()).unwrap_or(u32::MAX);
    let compared = of_suites.iter().filter_map(|(suite, pairs)| {
        Some(SuiteComparison { suite: Arc::clone(suite), compared: compare(pairs, most, times)? })
    });
    let compared: Vec<SuiteComparison> = compared.collect();
    let fell = |suite: &&SuiteComparison| is_larger_drop(suite.compared.before, suite.compared.now, most);
    let (mut worse, mut maybe) = (Vec::new(), Vec::new());
    for SuiteComparison { suite, compared } in compared.iter().filter(fell) {
        told(suite, compared, most, times, &mut worse, &mut maybe);
    }
    for (reasons, of_suites) in [(failed, worse), (unknown, maybe)] {
        let rest = of_suites.len().saturating_sub(MAX_NAMED);
        reasons.extend(of_suites.into_iter().take(MAX_NAMED));
        if rest > 0 {
            reasons.push(format!("and {rest} more suites that fell by more than {most}"));
        }
    }
    (whole, compared)
}

/// What a comparison means for the gate, in words. `suite`: empty for the whole; `times`: how many comparisons
/// there are.
fn told(
    suite: &str,
    compared: &RateComparison,
    most: Rate,
    times: u32,
    failed: &mut Vec<String>,
    unknown: &mut Vec<String>,
) {
    let RateComparison { answer, p, before, now, .. } = compared;
    let (then, today) = (of_all(*before), of_all(*now));
    let (subject, it) = if suite.is_empty() { (String::new(), "it") } else { (format!("{suite} "), suite) };
    match answer {
        Answer::Regressed if is_larger_drop(*before, *now, most) => {
            failed.push(format!(
                "{subject}regressed: {then} passed in the baseline, {today} now (p = {p:.2e}); {most} may be lost"
            ));
        }
        Answer::CannotTell => {
            let more = enough(compared, most, times);
            let more =
                more.map_or_else(String::new, |times| format!(": about {times} times as many repetitions would do"));
            unknown.push(format!(
                "cannot tell whether {it} regressed: {then} passed in the baseline, {today} now, too few to see a drop of \
                 {most}{more}"
            ));
        }
        Answer::Regressed | Answer::Improved | Answer::NoDifference => {}
    }
}

/// `44 of 50 (88.0 %)`
fn of_all(tally: Tally) -> String {
    let percent = tally.rate().map_or_else(String::new, |rate| format!(" ({:.1} %)", rate * 100.0));
    format!("{} of {}{percent}", tally.passed, tally.counted())
}

/// Whether the rate dropped by more than that, without rounding.
fn is_larger_drop(before: Tally, now: Tally, most: Rate) -> bool {
    let (b, n) = (i128::from(before.counted()), i128::from(now.counted()));
    let drop = i128::from(before.passed) * n - i128::from(now.passed) * b;
    drop * i128::from(MILLION) > i128::from(most.millionths()) * b * n
}

/// Compares cases that both runs judged. `times`: how many such comparisons there are; `None`: no case was judged
/// in both.
fn compare(pairs: &[Pair], most: Rate, times: u32) -> Option<RateComparison> {
    let (mut before, mut now) = (Tally::default(), Tally::default());
    for (then, today) in pairs {
        before.add(*then);
        now.add(*today);
    }
    if pairs.is_empty() {
        return None;
    }
    let is_paired = pairs.iter().all(|(before, now)| before.counted() == 1 && now.counted() == 1);
    let corrected = |p: f64| (p * f64::from(times)).min(1.0);
    let (test, p, would_show) = if is_paired {
        let count = |passed: u32| {
            let differ =
                pairs.iter().filter(|(before, now)| before.passed != now.passed && now.passed == passed).count();
            u32::try_from(differ).unwrap_or(u32::MAX)
        };
        let (worse, better) = (count(0), count(1));
        // As many got better as did, and as many got worse as it takes for the drop to be just the one that matters.
        let hypothetical = better + part(now.counted(), most);
        (Test::McNemar, mcnemar(worse, better), mcnemar(hypothetical, better))
    } else {
        (Test::Fisher, fisher(before, now), fisher(before, dropped(before, now.counted(), most)))
    };
    let (p, would_show) = (corrected(p), corrected(would_show) < ALPHA);
    let (then, today) = (before.rate()?, now.rate()?);
    // Where no more passed than may be lost, nothing can be lost.
    let would_show = would_show || before.rate()? <= most.of_one();
    let answer = match p < ALPHA {
        true if today < then => Answer::Regressed,
        true => Answer::Improved,
        false if would_show => Answer::NoDifference,
        false => Answer::CannotTell,
    };
    Some(RateComparison { answer, test, p, before, now })
}

/// A tally of `counted` executions whose rate is that of `before` less `most`, the drop that matters.
fn dropped(before: Tally, counted: u32, most: Rate) -> Tally {
    let rate = (before.rate().unwrap_or_default() - most.of_one()).max(0.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a count")]
    let passed = ((rate * f64::from(counted)).floor() as u32).min(counted);
    Tally { passed, failed: counted - passed, uncounted: 0 }
}

/// The part `most` of `counted`, at least one.
fn part(counted: u32, most: Rate) -> u32 {
    let part = (u64::from(counted) * u64::from(most.millionths())).div_ceil(MILLION);
    u32::try_from(part.max(1)).unwrap_or(u32::MAX)
}

/// How many times as many executions would be enough to see a drop in one of `comparisons` comparisons, if the baseline
/// had them too. `None`: very many.
fn enough(compared: &RateComparison, most: Rate, comparisons: u32) -> Option<u32> {
    let RateComparison { before, now, .. } = compared;
    [2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 100].into_iter().find(|times| {
        let before = Tally { passed: before.passed * times, failed: before.failed * times, uncounted: 0 };
        fisher(before, dropped(before, now.counted() * times, most)) * f64::from(comparisons) < ALPHA
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(passed: u32, failed: u32) -> Tally {
        Tally { passed, failed, uncounted: 0 }
    }

    fn case(id: &str, now: Tally, open: u32, before: Option<Tally>) -> CaseTally {
        CaseTally { case: id.to_owned(), tally: now, open, before, ..CaseTally::default() }
    }

    fn of_suite(suite: &str, number: usize, before: Tally, now: Tally) -> impl Iterator<Item = CaseTally> {
        let suite: Arc<str> = Arc::from(suite);
        std::iter::repeat_with(move || CaseTally { suite: Arc::clone(&suite), ..case("c", now, 0, Some(before)) })
            .take(number)
    }

    fn rate(text: &str) -> Option<Rate> {
        Rate::parse(text).ok()
    }

    #[test]
    fn rates_are_read() {
        let millionths = |text| Rate::parse(text).map(Rate::millionths).ok();
        assert_eq!(
            ["95%", "0.95", "99.5 %", "1", "0", "100%"].map(millionths),
            [Some(950_000), Some(950_000), Some(995_000), Some(1_000_000), Some(0), Some(1_000_000)]
        );
        assert_eq!(["95", "-1%", "101%", "", "%", "x", "1e-1", "NaN", "inf"].map(millionths), [None; 9]);
        assert_eq!(Rate::parse("99.5%").expect("a rate").to_string(), "99.5%");
    }

    #[test]
    fn a_rate_of_the_whole_and_of_each_case() {
        let cases =
            [case("a", tally(10, 0), 0, None), case("b", tally(0, 10), 0, None), case("c", tally(180, 0), 0, None)];
        let whole = Gate { min_pass_rate: rate("95%"), ..Gate::default() };
        assert_eq!(judge(&whole, &cases).passage, Passage::Passed, "exactly 95 of 100");
        let each = Gate { min_case_pass_rate: rate("50%"), ..whole };
        let judged = judge(&each, &cases);
        assert_eq!(
            (judged.passage, judged.reasons),
            (Passage::Failed, vec!["b: 0 of 10 (0.0 %) passed, at least 50% have to".to_owned()])
        );
        let higher = Gate { min_pass_rate: rate("95.1%"), ..Gate::default() };
        assert_eq!(judge(&higher, &cases).reasons, ["190 of 200 (95.0 %) passed, at least 95.1% have to"]);
        let mut faulty = cases.clone();
        faulty[0].faults = 1;
        assert_eq!(judge(&whole, &faulty).passage, Passage::Failed, "a fault of the suite is no success");
        let silent = [case("a", tally(5, 0), 0, None), case("b", tally(0, 0), 0, None)];
        assert_eq!(judge(&each, &silent).passage, Passage::CannotTell, "nothing is known of b");
        let nothing = [case("a", Tally { uncounted: 3, ..Tally::default() }, 0, None)];
        assert_eq!(judge(&whole, &nothing).passage, Passage::CannotTell, "nothing is no success");
    }

    #[test]
    fn answers_of_the_exact_tests() {
        let gate = Gate { max_regression: rate("10%"), ..Gate::default() };
        let answer = |before, now| {
            let judged = judge(&gate, &[case("a", now, 0, Some(before))]);
            (judged.comparison.expect("a comparison").answer, judged.passage)
        };
        assert_eq!(answer(tally(95, 5), tally(70, 30)), (Answer::Regressed, Passage::Failed));
        assert_eq!(answer(tally(70, 30), tally(95, 5)), (Answer::Improved, Passage::Passed));
        assert_eq!(answer(tally(95, 5), tally(93, 7)), (Answer::NoDifference, Passage::Passed));
        assert_eq!(answer(tally(9, 1), tally(8, 2)), (Answer::CannotTell, Passage::CannotTell));
        assert_eq!(answer(tally(0, 50), tally(0, 50)), (Answer::NoDifference, Passage::Passed), "nothing can be lost");
        // Just what may be lost, though 0.8 - 0.7 is more than 0.1.
        assert_eq!(answer(tally(800, 200), tally(700, 300)), (Answer::Regressed, Passage::Passed));
        // A drop that is no chance, and smaller than what may be lost.
        assert_eq!(answer(tally(9_500, 500), tally(9_200, 800)), (Answer::Regressed, Passage::Passed));
        let judged = judge(&gate, &[case("a", tally(8, 2), 0, Some(tally(9, 1)))]);
        assert_eq!(
            judged.reasons,
            [
                "cannot tell whether it regressed: 9 of 10 (90.0 %) passed in the baseline, 8 of 10 (80.0 %) now, too few to see a \
             drop of 10%: about 15 times as many repetitions would do"
            ]
        );
        let none = judge(&gate, &[case("a", tally(8, 2), 0, None)]);
        assert_eq!((none.passage, none.comparison), (Passage::CannotTell, None));
    }

    #[test]
    fn what_nobody_can_tell_counts_as_its_owner_says() {
        let few = [case("a", tally(8, 2), 0, Some(tally(9, 1)))];
        let judged = |undecided, cases: &[CaseTally]| {
            let judged = judge(&Gate { max_regression: rate("10%"), undecided, ..Gate::default() }, cases);
            (judged.passage, judged.counts_as)
        };
        let nobody = Passage::CannotTell;
        assert_eq!(judged(None, &few), (nobody, nobody));
        assert_eq!(judged(Some(Undecided::Pass), &few), (nobody, Passage::Passed));
        assert_eq!(judged(Some(Undecided::Fail), &few), (nobody, Passage::Failed));
        let worse = [case("a", tally(70, 30), 0, Some(tally(95, 5)))];
        assert_eq!(judged(Some(Undecided::Pass), &worse), (Passage::Failed, Passage::Failed), "that is known");
        let nothing = [case("a", Tally { uncounted: 3, ..Tally::default() }, 0, None)];
        assert_eq!(judged(Some(Undecided::Pass), &nothing), (nobody, nobody), "nothing is no success");
        let gate = Gate { max_regression: rate("10%"), undecided: Some(Undecided::Pass), ..Gate::default() };
        let troubled = judge(&gate, &few).beside("1 of 11 could not be judged");
        assert_eq!((troubled.passage, troubled.counts_as), (nobody, nobody));
        assert_eq!(troubled.reasons.last().map(String::as_str), Some("1 of 11 could not be judged"));
        assert_eq!(judge(&gate, &worse).beside("trouble").counts_as, Passage::Failed);
    }

    #[test]
    fn cases_that_ran_once_are_compared_in_pairs() {
        let gate = Gate { max_regression: rate("5%"), ..Gate::default() };
        let of = |worse: usize, better: usize, same: usize| {
            let pair = |before, now, count| std::iter::repeat_n(case("a", now, 0, Some(before)), count);
            let (good, bad) = (tally(1, 0), tally(0, 1));
            let cases: Vec<CaseTally> =
                pair(good, bad, worse).chain(pair(bad, good, better)).chain(pair(good, good, same)).collect();
            let compared = judge(&gate, &cases).comparison.expect("a comparison");
            (compared.test, compared.answer)
        };
        assert_eq!(of(10, 2, 88), (Test::McNemar, Answer::Regressed), "Fisher's test would not see it");
        assert_eq!(of(2, 10, 88), (Test::McNemar, Answer::Improved));
        assert_eq!(of(2, 1, 300), (Test::McNemar, Answer::NoDifference));
        assert_eq!(of(1, 0, 9), (Test::McNemar, Answer::CannotTell));
    }

    #[test]
    fn each_suite_is_looked_at() {
        let gate = Gate { max_regression: rate("5%"), ..Gate::default() };
        let (good, bad) = (tally(1, 0), tally(0, 1));
        let of = |suites: Vec<(&str, usize, Tally, Tally)>| {
            let cases =
                suites.into_iter().flat_map(|(suite, number, before, now)| of_suite(suite, number, before, now));
            judge(&gate, &cases.collect::<Vec<_>>())
        };
        let swapped = of(vec![("a", 12, good, bad), ("b", 12, bad, good)]);
        let answers: Vec<Answer> = swapped.suites.iter().map(|suite| suite.compared.answer).collect();
        assert_eq!((swapped.passage, answers), (Passage::Failed, vec![Answer::Regressed, Answer::Improved]));
        assert!(
            swapped.reasons[0].starts_with("a regressed: 12 of 12 (100.0 %) passed in the baseline, 0 of 12"),
            "{:?}",
            swapped.reasons
        );
        let doubled = 2.0 * mcnemar(12, 0);
        assert!((swapped.suites[0].compared.p - doubled).abs() < 1e-12, "two questions, twice the chance");
        // A large one that is as it was does not hide a small one that fell, and that may be chance.
        let hidden = of(vec![("small", 4, good, bad), ("large", 400, good, good)]);
        assert_eq!(hidden.passage, Passage::CannotTell);
        assert!(hidden.reasons[0].starts_with("cannot tell whether small regressed: 4 of 4"), "{:?}", hidden.reasons);
        // Small ones that did not fall are judged together.
        let same = of((0..10).map(|_| ("a", 12, good, good)).collect());
        assert_eq!((same.passage, same.suites.len()), (Passage::Passed, 0));
        let names: Vec<String> = (0..10).map(|number| number.to_string()).collect();
        let same = of(names.iter().map(|name| (name.as_str(), 12, good, good)).collect());
        assert_eq!((same.passage, same.suites.len()), (Passage::Passed, 10), "{:?}", same.reasons);
        // Of very many one falls by chance.
        let falls = of(vec![("a", 6, good, bad), ("b", 994, good, good)]);
        assert_eq!(falls.suites[0].compared.answer, Answer::CannotTell, "one of two may fall so far by chance");
        let all_fall = of(names.iter().map(|name| (name.as_str(), 12, good, bad)).collect());
        let named = all_fall.reasons.iter().filter(|reason| reason.contains(" regressed: 12")).count();
        assert_eq!(
            (named, all_fall.reasons.last().map(String::as_str)),
            (5, Some("and 5 more suites that fell by more than 5%"))
        );
    }

    #[test]
    fn it_is_decided_when_nothing_can_change_it() {
        let whole = Gate { min_pass_rate: rate("90%"), ..Gate::default() };
        let decided =
            |gate: &Gate, passed, failed, open| is_decided(gate, &[case("a", tally(passed, failed), open, None)]);
        assert!(!decided(&whole, 0, 0, 100) && !decided(&whole, 89, 0, 11) && !decided(&whole, 0, 10, 90));
        assert!(decided(&whole, 90, 0, 10), "it passes whatever comes");
        assert!(decided(&whole, 0, 11, 89), "it fails whatever comes");
        let gate = Gate { max_regression: rate("10%"), ..Gate::default() };
        let compared =
            |passed, failed, open| is_decided(&gate, &[case("a", tally(passed, failed), open, Some(tally(95, 5)))]);
        assert!(compared(0, 40, 60) && !compared(40, 0, 60) && !compared(0, 0, 100));
        assert!(!compared(0, 10, 90), "all that are left may pass");
    }
}
