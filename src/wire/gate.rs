//! What a run has to reach, and what came of it ↔ [`crate::verdict::gate`].

use super::control as pb;
use super::control::gate::Undecided as CountsAs;
use super::control::gate_result::Passage as Passed;
use super::control::rate_comparison::{Answer as Said, Test as Tested};
use super::value::WireError;
use crate::stats::Tally;
use crate::verdict::gate::{Answer, Gate, GateResult, Passage, Rate, RateComparison, SuiteComparison, Test, Undecided};

/// `None`: nothing has to be reached.
pub(super) fn gate_to_proto(gate: &Gate) -> Option<pb::Gate> {
    let millionths = |rate: Option<Rate>| rate.map(Rate::millionths);
    (!gate.is_open()).then(|| pb::Gate {
        min_pass_rate_millionths: millionths(gate.min_pass_rate),
        min_case_pass_rate_millionths: millionths(gate.min_case_pass_rate),
        max_regression_millionths: millionths(gate.max_regression),
        to_the_end: gate.to_the_end,
        undecided: match gate.undecided {
            None => CountsAs::Unspecified,
            Some(Undecided::Pass) => CountsAs::Pass,
            Some(Undecided::Fail) => CountsAs::Fail,
        }
        .into(),
    })
}

pub(super) fn gate_from_proto(gate: Option<pb::Gate>) -> Result<Gate, WireError> {
    let Some(gate) = gate else { return Ok(Gate::default()) };
    let rate = |field, millionths: Option<u32>| {
        let read = |millionths| {
            let problem = || WireError::new(field, format!("is {millionths}, at most 1000000 are allowed"));
            Rate::of_millionths(millionths).ok_or_else(problem)
        };
        millionths.map(read).transpose()
    };
    Ok(Gate {
        min_pass_rate: rate("spec.gate.min_pass_rate_millionths", gate.min_pass_rate_millionths)?,
        min_case_pass_rate: rate("spec.gate.min_case_pass_rate_millionths", gate.min_case_pass_rate_millionths)?,
        max_regression: rate("spec.gate.max_regression_millionths", gate.max_regression_millionths)?,
        to_the_end: gate.to_the_end,
        undecided: match CountsAs::try_from(gate.undecided) {
            Ok(CountsAs::Unspecified) => None,
            Ok(CountsAs::Pass) => Some(Undecided::Pass),
            Ok(CountsAs::Fail) => Some(Undecided::Fail),
            Err(_) => return Err(WireError::new("spec.gate.undecided", format!("{} is not known", gate.undecided))),
        },
    })
}

pub(super) fn gate_result_to_proto(result: &GateResult) -> pb::GateResult {
    let passage = |passage| match passage {
        Passage::Passed => Passed::Passed,
        Passage::Failed => Passed::Failed,
        Passage::CannotTell => Passed::CannotTell,
    };
    pb::GateResult {
        passage: passage(result.passage).into(),
        counts_as: passage(result.counts_as).into(),
        reasons: result.reasons.clone(),
        tally: Some(tally_to_proto(result.tally)),
        comparison: result.comparison.as_ref().map(comparison_to_proto),
        left_out: result.left_out,
        suites: result.suites.iter().map(suite_to_proto).collect(),
    }
}

pub(super) fn gate_result_from_proto(result: pb::GateResult) -> Result<GateResult, WireError> {
    let read = |passage| match passage {
        Passed::Passed => Some(Passage::Passed),
        Passed::Failed => Some(Passage::Failed),
        Passed::CannotTell => Some(Passage::CannotTell),
        Passed::Unspecified => None,
    };
    let unknown = || WireError::new("run.gate_result.passage", format!("{} is not known", result.passage));
    let passage = read(result.passage()).ok_or_else(unknown)?;
    Ok(GateResult {
        passage,
        // Before there was that, it was the same.
        counts_as: read(result.counts_as()).unwrap_or(passage),
        reasons: result.reasons,
        tally: tally_from_proto(result.tally),
        comparison: result.comparison.map(comparison_from_proto).transpose()?,
        left_out: result.left_out,
        suites: result.suites.into_iter().map(suite_from_proto).collect::<Result<_, _>>()?,
    })
}

fn suite_to_proto(suite: &SuiteComparison) -> pb::SuiteComparison {
    pb::SuiteComparison { suite: suite.suite.to_string(), comparison: Some(comparison_to_proto(&suite.compared)) }
}

fn suite_from_proto(suite: pb::SuiteComparison) -> Result<SuiteComparison, WireError> {
    let compared = suite.comparison.ok_or_else(|| WireError::new("run.gate_result.suites.comparison", "is not set"))?;
    Ok(SuiteComparison { suite: suite.suite.into(), compared: comparison_from_proto(compared)? })
}

fn comparison_to_proto(comparison: &RateComparison) -> pb::RateComparison {
    let answer = match comparison.answer {
        Answer::Regressed => Said::Regressed,
        Answer::Improved => Said::Improved,
        Answer::NoDifference => Said::NoDifference,
        Answer::CannotTell => Said::CannotTell,
    };
    let test = match comparison.test {
        Test::Fisher => Tested::Fisher,
        Test::McNemar => Tested::Mcnemar,
    };
    pb::RateComparison {
        answer: answer.into(),
        test: test.into(),
        p: comparison.p,
        before: Some(tally_to_proto(comparison.before)),
        now: Some(tally_to_proto(comparison.now)),
    }
}

fn comparison_from_proto(comparison: pb::RateComparison) -> Result<RateComparison, WireError> {
    let unknown = |field, number| WireError::new(field, format!("{number} is not known"));
    Ok(RateComparison {
        answer: match comparison.answer() {
            Said::Regressed => Answer::Regressed,
            Said::Improved => Answer::Improved,
            Said::NoDifference => Answer::NoDifference,
            Said::CannotTell => Answer::CannotTell,
            Said::Unspecified => return Err(unknown("run.gate_result.comparison.answer", comparison.answer)),
        },
        test: match comparison.test() {
            Tested::Fisher => Test::Fisher,
            Tested::Mcnemar => Test::McNemar,
            Tested::Unspecified => return Err(unknown("run.gate_result.comparison.test", comparison.test)),
        },
        p: comparison.p,
        before: tally_from_proto(comparison.before),
        now: tally_from_proto(comparison.now),
    })
}

fn tally_to_proto(tally: Tally) -> pb::Tally {
    pb::Tally { passed: tally.passed, failed: tally.failed, uncounted: tally.uncounted }
}

fn tally_from_proto(tally: Option<pb::Tally>) -> Tally {
    let pb::Tally { passed, failed, uncounted } = tally.unwrap_or_default();
    Tally { passed, failed, uncounted }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_round_trip() {
        for undecided in [None, Some(Undecided::Pass), Some(Undecided::Fail)] {
            let max_regression = Rate::of_millionths(50_000);
            let gate = Gate { max_regression, undecided, to_the_end: true, ..Gate::default() };
            assert_eq!(gate_from_proto(gate_to_proto(&gate)).expect("a gate"), gate);
        }
        let strange = pb::Gate { undecided: 7, ..pb::Gate::default() };
        assert!(gate_from_proto(Some(strange)).is_err());
        let tally = Tally { passed: 1, failed: 2, uncounted: 3 };
        let compared =
            RateComparison { answer: Answer::CannotTell, test: Test::McNemar, p: 0.5, before: tally, now: tally };
        let result = GateResult {
            passage: Passage::CannotTell,
            counts_as: Passage::Passed,
            reasons: vec!["few".to_owned()],
            tally,
            comparison: Some(compared.clone()),
            suites: vec![SuiteComparison { suite: "a".into(), compared }],
            left_out: 4,
        };
        let proto = gate_result_to_proto(&result);
        assert_eq!(gate_result_from_proto(proto.clone()).expect("a result"), result);
        let old = pb::GateResult { counts_as: 0, ..proto };
        assert_eq!(
            gate_result_from_proto(old).expect("a result").counts_as,
            Passage::CannotTell,
            "of an earlier version"
        );
    }
}
