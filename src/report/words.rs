//! How reports for people say things: signs, times, amounts, and what was left out of a long text.

use std::fmt::Write as _;
use std::time::Duration;

use super::repeats::passage;
use crate::conversation::{Cost, Usage};
use crate::event::Run;
use crate::verdict::{AssertionResult, CaseResult, Opinion, Outcome, Totals};

/// A text as far as a report shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut<'a> {
    /// Its beginning.
    pub(super) text: &'a str,
    /// Number of bytes that are left out.
    pub(super) rest: usize,
}

impl Cut<'_> {
    /// How much is left out, in words; `None` when it is whole.
    pub(super) fn note(&self) -> Option<String> {
        (self.rest > 0).then(|| format!("{} more", size(self.rest)))
    }
}

/// The beginning of a text, of at most `most` bytes.
pub(super) fn cut(text: &str, most: usize) -> Cut<'_> {
    let end = text.floor_char_boundary(most);
    Cut { text: &text[..end], rest: text.len() - end }
}

/// A number of bytes as people read it.
#[expect(clippy::cast_precision_loss, reason = "one digit behind the point is shown")]
fn size(bytes: usize) -> String {
    match bytes {
        1 => "1 byte".to_owned(),
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// A time as people read it.
pub(super) fn time(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{} ms", crate::verdict::whole_millis(duration)),
        1..60 => format!("{:.1} s", duration.as_secs_f64()),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// An amount of money.
pub(super) fn money(cost: Cost) -> String {
    let estimated = if cost.estimated { " (estimated)" } else { "" };
    format!("${:.4}{estimated}", cost.usd())
}

/// The tokens that were measured, in words; `None`: none were.
pub(super) fn tokens(usage: &Usage) -> Option<String> {
    let parts = [
        (usage.input_tokens, "in"),
        (usage.cache_read_tokens, "from cache"),
        (usage.cache_write_tokens, "to cache"),
        (usage.output_tokens, "out"),
        (usage.reasoning_tokens, "reasoning"),
    ];
    let told: Vec<String> = parts.iter().filter_map(|(number, what)| Some(format!("{} {what}", (*number)?))).collect();
    (!told.is_empty()).then(|| told.join(", "))
}

/// A number with its noun.
pub(super) fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// What came of the cases, in words, such as `9 of 12 cases passed, 2 failed, 1 errored`.
pub(super) fn tally(totals: &Totals) -> String {
    let cases = if totals.total == 1 { "case" } else { "cases" };
    let mut text = format!("{} of {} {cases} passed", totals.passed, totals.total);
    let others = [
        (totals.failed, "failed"),
        (totals.errored, "errored"),
        (totals.not_run, "not run"),
        (totals.skipped, "skipped"),
        (totals.flaky, "flaky"),
    ];
    for (number, what) in others.iter().filter(|(number, _)| *number > 0) {
        let _ = write!(text, ", {number} {what}");
    }
    text
}

/// What the votes of a validator add up to, in words.
pub(super) fn votes(opinion: &Opinion) -> String {
    let Opinion { score, votes, agreeing, .. } = opinion;
    let score = score.map(|score| format!("score {score:.2}"));
    // A script has no votes.
    let agreeing = (*votes > 0).then(|| format!("{agreeing} of {} agreeing", count(*votes as usize, "vote", "votes")));
    score.into_iter().chain(agreeing).collect::<Vec<_>>().join(", ")
}

/// The assertions of a case, and those of its checkpoints as they were looked at last.
pub(super) fn all_assertions(result: &CaseResult) -> Vec<&AssertionResult> {
    let checkpoints = result.checkpoints.iter().flat_map(|checkpoint| &checkpoint.assertions);
    result.assertions.iter().chain(checkpoints).collect()
}

/// What the exit code of a run means, in words.
pub(super) fn exit(run: &Run) -> &'static str {
    match (run.exit_code(), &run.gate) {
        (0 | 1, Some(gate)) => passage(gate),
        (0, None) => "every case passed",
        (1, None) => "a case failed",
        (4, _) => "nothing was run",
        // What else there was would be told with the cases.
        (_, Some(gate)) if run.error.is_none() && run.totals.exit_code() != 3 => passage(gate),
        _ => "a case could not be judged, or was not run",
    }
}

/// Whether somebody has to look at it.
pub(super) const fn is_bad(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Failed | Outcome::Errored)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_people_read_them() {
        let millis = |millis| time(Duration::from_millis(millis));
        assert_eq!((millis(0), millis(980)), ("0 ms".into(), "980 ms".into()));
        assert_eq!(
            (millis(2_140), millis(61_000), millis(7_300_000)),
            ("2.1 s".into(), "1 min 1 s".into(), "2 h 1 min".into())
        );
        assert_eq!(money(Cost { nano_usd: 12_340_000, estimated: true }), "$0.0123 (estimated)");
        let totals = Totals { total: 4, passed: 2, failed: 1, skipped: 1, flaky: 1, ..Totals::default() };
        assert_eq!(tally(&totals), "2 of 4 cases passed, 1 failed, 1 skipped, 1 flaky");
    }

    #[test]
    fn what_is_cut_says_so() {
        assert_eq!((cut("abc", 3).note(), cut("abc", 2).note()), (None, Some("1 byte more".into())));
        let cut = cut("aé", 2);
        assert_eq!((cut.text, cut.rest), ("a", 2), "never inside a character");
        assert_eq!(size(5_200_000), "5.2 MB");
    }
}
