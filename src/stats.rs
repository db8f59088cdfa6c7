//! What repetitions say about an agent that answers now so, now otherwise: rates with their uncertainty, and exact
//! tests.
//!
//! Nothing here is estimated by a normal distribution where numbers are small, and nothing is counted that says nothing
//! about the agent.

/// The quantile of the normal distribution for intervals that hold in 95 of 100 cases.
const Z_95: f64 = 1.959_963_984_540_054;
/// Of two tables that are equally likely, rounding must not make one the likelier.
const TIE: f64 = 1.0 + 1e-7;

/// What came of some executions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Those that passed.
    pub passed: u32,
    /// Those that failed, and the agent is to blame.
    pub failed: u32,
    /// Those that say nothing about the agent: they could not be judged, were not run, or somebody else is to blame.
    pub uncounted: u32,
}

impl Tally {
    /// Those that say something about the agent.
    #[must_use]
    pub const fn counted(self) -> u32 {
        self.passed + self.failed
    }

    /// Adds another tally.
    pub const fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.uncounted += other.uncounted;
    }

    /// The part that passed, from 0 to 1. `None`: nothing was counted.
    #[must_use]
    pub fn rate(self) -> Option<f64> {
        (self.counted() > 0).then(|| f64::from(self.passed) / f64::from(self.counted()))
    }

    /// The chance that at least one of `k` executions passes (pass@k), without bias: over all ways to choose `k` of
    /// those that were counted. `None`: fewer than `k` were counted, or `k` is 0.
    #[must_use]
    pub fn pass_at(self, k: u32) -> Option<f64> {
        Some(1.0 - chosen(self.failed, self.counted(), k)?)
    }

    /// The chance that all of `k` executions pass (pass^k), without bias. `None`: fewer than `k` were counted, or `k`
    /// is 0.
    #[must_use]
    pub fn pass_hat(self, k: u32) -> Option<f64> {
        chosen(self.passed, self.counted(), k)
    }

    /// Between which rates the agent's true one is, in 95 of 100 cases (Wilson's interval). `None`: nothing was
    /// counted.
    #[must_use]
    pub fn interval(self) -> Option<(f64, f64)> {
        let rate = self.rate()?;
        let n = f64::from(self.counted());
        let z2 = Z_95 * Z_95;
        let center = rate + z2 / (2.0 * n);
        let spread = Z_95 * (rate * (1.0 - rate) / n + z2 / (4.0 * n * n)).sqrt();
        let whole = 1.0 + z2 / n;
        Some((((center - spread) / whole).max(0.0), ((center + spread) / whole).min(1.0)))
    }

    /// For which `k` its chances are told.
    #[must_use]
    pub fn ks(self) -> Vec<u32> {
        ks(self.counted())
    }

    /// How stable the agent is. `None`: nothing was counted.
    #[must_use]
    pub fn stability(self) -> Option<Stability> {
        let (passed, counted) = (u64::from(self.passed), u64::from(self.counted()));
        match counted {
            0 => None,
            _ if passed == counted => Some(Stability::Stable),
            _ if passed * 10 >= counted * 8 => Some(Stability::MostlyStable),
            _ if passed * 2 >= counted => Some(Stability::Unstable),
            _ => Some(Stability::HighlyUnstable),
        }
    }
}

/// How stable the answers to a case are, in the classes of the Yao agent tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stability {
    /// All pass.
    Stable,
    /// At least 80 of 100 pass.
    MostlyStable,
    /// At least half pass.
    Unstable,
    /// Fewer pass.
    HighlyUnstable,
}

impl Stability {
    /// All classes, the best first.
    pub const ALL: [Self; 4] = [Self::Stable, Self::MostlyStable, Self::Unstable, Self::HighlyUnstable];

    /// The word used in reports for machines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stable => "stable",
            Self::MostlyStable => "mostly_stable",
            Self::Unstable => "unstable",
            Self::HighlyUnstable => "highly_unstable",
        }
    }

    /// The same for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Stable => "stable",
            Self::MostlyStable => "mostly stable",
            Self::Unstable => "unstable",
            Self::HighlyUnstable => "highly unstable",
        }
    }
}

/// What the repetitions of some cases say, in the order of the cases.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Repeats {
    /// What people call each case, and what came of its repetitions.
    pub cases: Vec<(String, Tally)>,
}

impl Repeats {
    /// What came of all executions.
    #[must_use]
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        for (_, tally) in &self.cases {
            total.add(*tally);
        }
        total
    }

    /// Number of cases of each class, the best first.
    #[must_use]
    pub fn classes(&self) -> [(Stability, usize); 4] {
        let of = |class| self.cases.iter().filter(|(_, tally)| tally.stability() == Some(class)).count();
        Stability::ALL.map(|class| (class, of(class)))
    }

    /// The mean of what `of` says over the cases of which it says something, such as their pass^k.
    #[must_use]
    pub fn mean(&self, of: impl Fn(Tally) -> Option<f64>) -> Option<f64> {
        let known: Vec<f64> = self.cases.iter().filter_map(|(_, tally)| of(*tally)).collect();
        let number = u32::try_from(known.len()).ok().filter(|number| *number > 0)?;
        Some(known.iter().sum::<f64>() / f64::from(number))
    }

    /// Number of cases of which something is known.
    #[must_use]
    pub fn known(&self) -> usize {
        self.counts().count()
    }

    /// For which `k` chances of all cases together are told: only as far as each case of which something is known
    /// has executions, so that all of them are over the same cases. Else they could rise with `k`, as cases that
    /// were run less often leave the mean.
    #[must_use]
    pub fn ks(&self) -> Vec<u32> {
        ks(self.counts().min().unwrap_or(0))
    }

    /// Whether some cases have more executions than `k` goes to.
    #[must_use]
    pub fn are_uneven(&self) -> bool {
        self.counts().min() != self.counts().max()
    }

    fn counts(&self) -> impl Iterator<Item = u32> {
        self.cases.iter().map(|(_, tally)| tally.counted()).filter(|counted| *counted > 0)
    }

    /// The cases that are not stable, the worst first; those of which nothing is known stand at the end.
    #[must_use]
    pub fn unstable(&self) -> Vec<&(String, Tally)> {
        let mut cases: Vec<_> =
            self.cases.iter().filter(|(_, tally)| tally.stability() != Some(Stability::Stable)).collect();
        cases.sort_by(|(_, one), (_, other)| one.rate().unwrap_or(2.0).total_cmp(&other.rate().unwrap_or(2.0)));
        cases
    }
}

/// Powers of two below a number, and the number itself; none: it is 0.
fn ks(most: u32) -> Vec<u32> {
    let below = std::iter::successors(Some(1), |k: &u32| k.checked_mul(2)).take_while(|k| *k < most);
    below.chain((most > 0).then_some(most)).collect()
}

/// The chance that `k` of `n` things that are chosen at random are all of `some` certain ones.
fn chosen(some: u32, n: u32, k: u32) -> Option<f64> {
    if k == 0 || k > n {
        return None;
    }
    let chance = |i: u32| f64::from(some.saturating_sub(i)) / f64::from(n - i);
    Some((0..k).map(chance).product())
}

/// Fisher's exact test, on both sides: how likely a difference like that between two groups is if there is none.
#[must_use]
pub fn fisher(one: Tally, other: Tally) -> f64 {
    // Of all tables with these sums, by how many of the first group passed.
    let (group, passed) = (u64::from(one.counted()), u64::from(one.passed) + u64::from(other.passed));
    let all = group + u64::from(other.counted());
    let (least, most) = ((group + passed).saturating_sub(all), group.min(passed));
    let next = |x: u64| to_f64((group - x) * (passed - x)) / to_f64((x + 1) * (all + x + 1 - group - passed));
    tail(least, most, u64::from(one.passed), next)
}

/// `McNemar`'s exact test, on both sides: how likely it is that the pairs that differ are split into `worse` and
/// `better` as unevenly as here, or more so, if both directions are equally likely.
#[must_use]
pub fn mcnemar(worse: u32, better: u32) -> f64 {
    let n = u64::from(worse) + u64::from(better);
    tail(0, n, u64::from(worse.min(better)), |x| to_f64(n - x) / to_f64(x + 1))
}

/// How likely it is to see what was seen, or something that is no likelier. `next` says how much likelier `x + 1`
/// is than `x`, for a distribution with one top.
fn tail(least: u64, most: u64, seen: u64, next: impl Fn(u64) -> f64) -> f64 {
    // The top, where nothing is too small for a number.
    let (mut low, mut high) = (least, most);
    while low < high {
        let middle = low + (high - low) / 2;
        if next(middle) >= 1.0 { low = middle + 1 } else { high = middle }
    }
    let top = low;
    let mut weights = vec![(top, 1.0)];
    let (mut x, mut weight) = (top, 1.0);
    while x < most && weight > 0.0 {
        weight *= next(x);
        x += 1;
        weights.push((x, weight));
    }
    (x, weight) = (top, 1.0);
    while x > least && weight > 0.0 {
        x -= 1;
        weight /= next(x);
        weights.push((x, weight));
    }
    let limit = weights.iter().find(|(x, _)| *x == seen).map_or(0.0, |(_, weight)| weight * TIE);
    // The small ones first: they would get lost beside the others.
    let mut weights: Vec<f64> = weights.into_iter().map(|(_, weight)| weight).collect();
    weights.sort_by(f64::total_cmp);
    let whole: f64 = weights.iter().sum();
    let part: f64 = weights.iter().take_while(|weight| **weight <= limit).sum();
    (part / whole).min(1.0)
}

#[expect(clippy::cast_precision_loss, reason = "products of counts of executions, whose ratios are wanted")]
fn to_f64(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(passed: u32, failed: u32) -> Tally {
        Tally { passed, failed, uncounted: 0 }
    }

    fn close(one: f64, other: f64) -> bool {
        (one - other).abs() <= 1e-6 * other.abs().max(1e-12)
    }

    /// Numbers of exact integer arithmetic, which those of SciPy agree with.
    #[test]
    fn as_exact_arithmetic_says() {
        for ((a, b, c, d), p) in [
            ((30, 9, 28, 38), 0.000_616_341_089_830_183_2),
            ((5000, 4000, 4500, 4600), 2.059_517_793_377_432_6e-16),
            ((8, 2, 1, 5), 0.034_965_034_965_034_97),
            ((10, 0, 10, 0), 1.0),
            ((0, 5, 5, 0), 0.007_936_507_936_507_936),
            ((3, 1, 1, 3), 0.485_714_285_714_285_7),
        ] {
            let found = fisher(tally(a, b), tally(c, d));
            assert!(close(found, p), "{a} {b} {c} {d}: {found}, not {p}");
        }
        for ((worse, better), p) in [((10, 2), 0.038_574_218_75), ((0, 0), 1.0), ((5, 5), 1.0), ((6, 0), 0.031_25)] {
            let found = mcnemar(worse, better);
            assert!(close(found, p), "{worse} {better}: {found}, not {p}");
        }
        let (low, high) = tally(8, 2).interval().expect("an interval");
        assert!(close(low, 0.490_162_471_536_641_8) && close(high, 0.943_317_848_545_624_7), "{low} {high}");
        assert_eq!(tally(0, 0).interval(), None);
    }

    #[test]
    fn large_tables_and_sides() {
        assert!(fisher(tally(60_000, 40_000), tally(30_000, 70_000)) < 1e-300);
        assert!(close(fisher(tally(50_000, 50_000), tally(50_000, 50_000)), 1.0));
        for (a, b, c, d) in [(3, 9, 7, 2), (20, 1, 15, 9), (0, 4, 0, 9)] {
            let one = fisher(tally(a, b), tally(c, d));
            assert!(close(one, fisher(tally(c, d), tally(a, b))) && close(one, fisher(tally(b, a), tally(d, c))));
        }
        assert!(close(mcnemar(2, 10), mcnemar(10, 2)));
    }

    #[test]
    fn chances_without_bias() {
        let some = tally(3, 2);
        assert_eq!((some.pass_hat(1), some.pass_at(1)), (Some(0.6), Some(0.6)));
        assert!(close(some.pass_hat(2).expect("one"), 0.3) && close(some.pass_at(2).expect("one"), 0.9));
        assert_eq!((some.pass_hat(4), some.pass_at(4)), (Some(0.0), Some(1.0)));
        assert_eq!((some.pass_hat(6), some.pass_at(0)), (None, None));
    }

    /// A case that an early end left with fewer executions must not leave the mean, for then the chance would rise.
    #[test]
    fn chances_are_over_the_same_cases() {
        let of = |tallies: &[(u32, u32)]| Repeats {
            cases: tallies.iter().map(|(passed, failed)| (String::new(), tally(*passed, *failed))).collect(),
        };
        let early = of(&[(4, 0), (0, 1)]);
        assert_eq!((early.ks(), early.known(), early.are_uneven()), (vec![1], 2, true), "pass^2 of one case is 100 %");
        let some = of(&[(4, 0), (3, 2), (0, 0)]);
        assert_eq!((some.ks(), some.known()), (vec![1, 2, 4], 2), "nothing is known of the third");
        assert_eq!((of(&[]).ks(), of(&[(0, 0)]).ks(), of(&[(20, 0)]).ks()), (vec![], vec![], vec![1, 2, 4, 8, 16, 20]));
        for tallies in [&[(4, 0), (0, 1)][..], &[(9, 1), (2, 3), (0, 0), (7, 0)], &[(1, 0), (0, 5)], &[(8, 8), (5, 3)]]
        {
            let repeats = of(tallies);
            let chances = |of: fn(Tally, u32) -> Option<f64>| -> Vec<f64> {
                repeats.ks().into_iter().filter_map(|k| repeats.mean(|tally| of(tally, k))).collect()
            };
            let (all, any) = (chances(Tally::pass_hat), chances(Tally::pass_at));
            assert!(all.is_sorted_by(|one, next| one >= next) && any.is_sorted(), "{tallies:?}: {all:?}, {any:?}");
            assert_eq!(all.len(), repeats.ks().len());
        }
    }

    #[test]
    fn classes_have_edges() {
        use Stability::{HighlyUnstable, MostlyStable, Stable, Unstable};
        let class = |passed, failed| tally(passed, failed).stability();
        let classes = [class(5, 0), class(4, 1), class(79, 21), class(1, 1), class(49, 51), class(0, 3)];
        assert_eq!(classes, [Stable, MostlyStable, Unstable, Unstable, HighlyUnstable, HighlyUnstable].map(Some));
        assert_eq!(class(0, 0), None);
    }
}
