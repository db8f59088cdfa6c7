//! What a run has to reach besides, or instead of, each case passing: rates over repetitions, and no drop against a
//! baseline.
//!
//! Where a gate is set, it decides. A case that fails now and then is no failure of the run then, and one that
//! cannot be judged stays trouble. A comparison that too little speaks for is none: it says so, and does not pass.

mod judge;

use std::fmt;
use std::sync::Arc;

pub use judge::{is_decided, judge};

use super::Outcome;
use crate::stats::Tally;

/// From this chance on, a difference may be one by chance.
pub const ALPHA: f64 = 0.05;
/// Whole rates.
const MILLION: u64 = 1_000_000;

/// A rate from 0 to 1, in millionths: it compares with counts without rounding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(u32);

impl Rate {
    /// The rate of `millionths` millionths. `None`: there are more than a million.
    #[must_use]
    pub fn of_millionths(millionths: u32) -> Option<Self> {
        (u64::from(millionths) <= MILLION).then_some(Self(millionths))
    }

    /// In millionths.
    #[must_use]
    pub const fn millionths(self) -> u32 {
        self.0
    }

    /// From 0 to 1.
    #[must_use]
    pub fn of_one(self) -> f64 {
        f64::from(self.0) / 1e6
    }

    /// Reads `95%`, `99.5%` or `0.95`.
    ///
    /// # Errors
    /// How to write it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "write a rate as 95% or 0.95".to_owned();
        let (number, whole) = text.strip_suffix('%').map_or((text, 1.0), |percent| (percent.trim_end(), 100.0));
        let is_plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let rate = number.parse::<f64>().ok().filter(|_| is_plain).map(|number| number / whole);
        let rate = rate.filter(|rate| (0.0..=1.0).contains(rate)).ok_or_else(wrong)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is from 0 to a million")]
        let millionths = (rate * 1e6).round() as u32;
        Ok(Self(millionths))
    }

    /// Whether those that passed are at least this part of those counted.
    const fn is_reached(self, tally: Tally) -> bool {
        tally.passed as u64 * MILLION >= self.0 as u64 * tally.counted() as u64
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / 1e4)
    }
}

/// What a run has to reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gate {
    /// The part of all executions that has to pass.
    pub min_pass_rate: Option<Rate>,
    /// The part of the repetitions of each case that has to pass.
    pub min_case_pass_rate: Option<Rate>,
    /// The most that the pass rate may drop against the baseline, beyond what may be chance.
    pub max_regression: Option<Rate>,
    /// Whether all cases are run, also those that cannot change what comes of it any more.
    pub to_the_end: bool,
    /// What it counts as that too little is known to tell; `None`: as trouble.
    pub undecided: Option<Undecided>,
}

/// What it counts as that nobody can tell whether a gate was passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undecided {
    /// It was passed.
    Pass,
    /// It was not.
    Fail,
}

impl Undecided {
    /// The word used on the command line and in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
        }
    }

    /// Reads `pass` or `fail`.
    ///
    /// # Errors
    /// What may be written.
    pub fn parse(text: &str) -> Result<Self, String> {
        let named = [Self::Pass, Self::Fail].into_iter().find(|undecided| undecided.name() == text);
        named.ok_or_else(|| "must be pass or fail".to_owned())
    }
}

impl Gate {
    /// Whether nothing has to be reached.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.min_pass_rate.is_none() && self.min_case_pass_rate.is_none() && self.max_regression.is_none()
    }
}

/// What came of one case, over its repetitions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CaseTally {
    /// Path of its suite.
    pub suite: Arc<str>,
    /// What people call it.
    pub case: String,
    /// Its repetitions that have a verdict.
    pub tally: Tally,
    /// Those that have none yet.
    pub open: u32,
    /// The same case in the baseline.
    pub before: Option<Tally>,
    /// Repetitions that failed, and somebody else than the agent is to blame: they are in no rate, and no success
    /// either.
    pub faults: u32,
}

impl CaseTally {
    /// Adds a repetition.
    pub fn add(&mut self, outcome: Outcome, tally: Tally) {
        self.tally.add(tally);
        self.faults += u32::from(outcome == Outcome::Failed && tally.uncounted > 0);
    }
}

/// Whether a gate was passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// Everything was reached.
    Passed,
    /// Something was not.
    Failed,
    /// Too little is known.
    CannotTell,
}

impl Passage {
    /// What came of a gate, by the word of reports.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Passed, Self::Failed, Self::CannotTell].into_iter().find(|passage| passage.name() == name)
    }

    /// The word used in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::CannotTell => "cannot_tell",
        }
    }
}

/// What an exact test says about two runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The rate dropped, and that is no chance.
    Regressed,
    /// The rate rose, and that is no chance.
    Improved,
    /// What differs may be chance, and a drop of the size that matters would have shown.
    NoDifference,
    /// What differs may be chance, and a drop of the size that matters may be too.
    CannotTell,
}

impl Answer {
    /// The answer of that word.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Regressed, Self::Improved, Self::NoDifference, Self::CannotTell]
            .into_iter()
            .find(|answer| answer.name() == name)
    }

    /// The word used in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Regressed => "regressed",
            Self::Improved => "improved",
            Self::NoDifference => "no_difference",
            Self::CannotTell => "cannot_tell",
        }
    }

    /// The same for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Regressed => "regressed",
            Self::Improved => "improved",
            Self::NoDifference => "no difference",
            Self::CannotTell => "cannot tell",
        }
    }
}

/// Which exact test was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    /// Of the sums over all cases that both runs know.
    Fisher,
    /// Of the cases that came out differently: each was run once then and once now.
    McNemar,
}

impl Test {
    /// The test of that word.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Fisher, Self::McNemar].into_iter().find(|test| test.name() == name)
    }

    /// The word used in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fisher => "fisher",
            Self::McNemar => "mcnemar",
        }
    }
}

/// One suite of two runs compared by its rates.
#[derive(Debug, Clone, PartialEq)]
pub struct SuiteComparison {
    /// Path of the suite.
    pub suite: Arc<str>,
    /// What came of it.
    pub compared: RateComparison,
}

/// Two runs compared by their rates.
#[derive(Debug, Clone, PartialEq)]
pub struct RateComparison {
    /// What the test says.
    pub answer: Answer,
    /// Which test it was.
    pub test: Test,
    /// How likely such a difference is by chance.
    pub p: f64,
    /// The cases that both know: then.
    pub before: Tally,
    /// The same now.
    pub now: Tally,
}

/// What came of a gate.
#[derive(Debug, Clone, PartialEq)]
pub struct GateResult {
    /// Whether it was passed, as far as anybody can tell.
    pub passage: Passage,
    /// What that counts as: something else where nobody can tell and [`Gate::undecided`] says what that means.
    pub counts_as: Passage,
    /// What was not reached, or why nobody can tell, in words.
    pub reasons: Vec<String>,
    /// What came of all executions.
    pub tally: Tally,
    /// The comparison with the baseline, if one was asked for.
    pub comparison: Option<RateComparison>,
    /// The same for each suite that has cases to compare, if there are several.
    pub suites: Vec<SuiteComparison>,
    /// Executions that were left out because they could not have changed the answer.
    pub left_out: u32,
}

impl GateResult {
    /// The same of a run that met trouble, in words: it was not passed, whatever its rates are, and what counts as
    /// passed when too little is known is no word for that.
    #[must_use]
    pub fn beside(mut self, trouble: &str) -> Self {
        if self.passage != Passage::Failed {
            self.passage = Passage::CannotTell;
            self.reasons.push(trouble.to_owned());
        }
        if self.counts_as == Passage::Passed {
            self.counts_as = Passage::CannotTell;
        }
        self
    }
}
