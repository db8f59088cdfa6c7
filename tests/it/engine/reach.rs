//! An agent that is gone for good ends the run soon; one that comes back costs nothing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use forge::event::State;
use forge::verdict::{Blame, CaseResult, Cause, Outcome};

use super::Step::*;
use super::{Outcomes, Setup};

const FOREVER: u64 = 100_000;

/// `number` cases, each of which takes the agent half a second and may take a minute.
fn cases(number: usize) -> Setup {
    let case =
        |n| format!(r#"{{"id": "c{n}", "input": {{"message": "x"}}, "expect": {{"responseContains": ["yes"]}}}}"#);
    let cases: Vec<String> = (0..number).map(case).collect();
    let script = vec![Accept, Sleep(500), Answer("yes")];
    Setup { timeout: Duration::from_mins(1), ..Setup::cases(vec![("*", script)], &format!("[{}]", cases.join(","))) }
}

/// From one second to another, counted from the beginning of the run.
fn down(from: f64, to: u64) -> Vec<(Duration, Duration)> {
    vec![(Duration::from_secs_f64(from), Duration::from_secs(to))]
}

fn is_gone(outcomes: &Outcomes, within: std::ops::Range<u64>) {
    let took = outcomes.took.as_secs();
    assert!(within.contains(&took), "{:?}", outcomes.took);
    assert_eq!((outcomes.run.state, outcomes.run.exit_code()), (State::Errored, 3));
    let fault = outcomes.run.error.as_ref().expect("the run says why it ended");
    assert_eq!(fault.reason, "AGENT_UNREACHABLE");
    assert!(fault.message.contains("nothing answers at pipe any more"), "{}", fault.message);
}

fn said(result: &CaseResult) -> (Outcome, Option<Cause>, Option<Blame>) {
    (result.outcome, result.cause, result.blame)
}

const UNREACHABLE: (Outcome, Option<Cause>, Option<Blame>) =
    (Outcome::Errored, Some(Cause::Unreachable), Some(Blame::Network));
const NOT_RUN: (Outcome, Option<Cause>, Option<Blame>) =
    (Outcome::Skipped, Some(Cause::Unreachable), Some(Blame::Network));

/// What is in flight is lost, what waits for a connection is unreachable, the rest is not run.
#[tokio::test(start_paused = true)]
async fn an_agent_that_dies_ends_the_run() {
    let outcomes = Setup { down: down(1.2, FOREVER), ..cases(30) }.run().await;
    is_gone(&outcomes, 11..13);
    let verdicts: Vec<_> = (0..30).map(|n| said(outcomes.of(&format!("c{n}")))).collect();
    assert_eq!(verdicts[..2], [(Outcome::Passed, None, None); 2]);
    assert_eq!(verdicts[2], (Outcome::Errored, Some(Cause::AgentError), Some(Blame::Network)));
    assert_eq!(verdicts[3], UNREACHABLE);
    assert_eq!(verdicts[4..], [NOT_RUN; 26]);
    let error = outcomes.of("c29").error.clone().unwrap_or_default();
    assert!(error.starts_with("not run: agent \"scripted\": nothing answers at pipe any more"), "{error}");
    assert_eq!(outcomes.seen.invocations.load(Ordering::SeqCst), 3);
    assert_eq!(outcomes.run.totals.not_run, 26);
}

/// The clock is that of the run: a case that waits ends with it, and trying again does not wind it up.
#[tokio::test(start_paused = true)]
async fn the_clock_is_shared() {
    let outcomes = Setup { down: down(0.2, FOREVER), concurrency: 4, ..cases(30) }.run().await;
    is_gone(&outcomes, 10..12);
    let unreachable = outcomes.results.iter().filter(|(_, result)| said(result) == UNREACHABLE).count();
    let not_run = outcomes.results.iter().filter(|(_, result)| said(result) == NOT_RUN).count();
    assert_eq!((unreachable, not_run), (4, 22));

    let ask = |spec: &mut forge::plan::RunSpec| spec.retries = 50;
    let outcomes = Setup { down: down(1.2, FOREVER), ask, ..cases(30) }.run().await;
    is_gone(&outcomes, 11..13);

    // Each case has less time than the agent.
    let timeout = Duration::from_secs(3);
    let outcomes = Setup { down: down(1.2, FOREVER), timeout, ..cases(30) }.run().await;
    is_gone(&outcomes, 11..13);
    let unreachable = outcomes.results.iter().filter(|(_, result)| said(result) == UNREACHABLE).count();
    assert!((3..=4).contains(&unreachable), "{unreachable}");
}

/// An agent that is back in time has lost no case but the one that it was at.
#[tokio::test(start_paused = true)]
async fn an_agent_that_comes_back() {
    let outcomes = Setup { down: down(1.2, 9), ..cases(10) }.run().await;
    assert_eq!((outcomes.run.totals.passed, outcomes.run.totals.errored), (9, 1), "{:?}", outcomes.run.error);
    assert!(outcomes.run.error.is_none());

    // Each time that it answers, its time begins anew. A case that waits notices up to a second late that it is back.
    let again = [down(1.2, 9), down(12.3, 20), down(23.3, 31)].concat();
    let ask = |spec: &mut forge::plan::RunSpec| spec.retries = 1;
    let outcomes = Setup { down: again, ask, ..cases(16) }.run().await;
    assert_eq!((outcomes.run.state, outcomes.run.totals.passed), (State::Passed, 16), "{:?}", outcomes.run.error);

    let patient = |spec: &mut forge::plan::RunSpec| {
        (spec.retries, spec.agent_gone_after) = (1, Some(Duration::from_secs(45)));
    };
    let outcomes = Setup { down: down(1.2, 40), ask: patient, ..cases(5) }.run().await;
    assert_eq!(outcomes.run.state, State::Passed, "{:?}", outcomes.run.error);
    let impatient = |spec: &mut forge::plan::RunSpec| spec.agent_gone_after = Some(Duration::from_secs(2));
    let outcomes = Setup { down: down(1.2, 40), ask: impatient, ..cases(5) }.run().await;
    is_gone(&outcomes, 3..5);
}

/// A slow agent is not gone, and neither is one that nobody calls.
#[tokio::test(start_paused = true)]
async fn what_is_not_gone() {
    let slow = vec![Sleep(30_000), Accept, Sleep(20_000), Answer("yes")];
    let outcomes = Setup { scripts: vec![("*", slow)], concurrency: 2, ..cases(4) }.run().await;
    assert_eq!(outcomes.run.state, State::Passed, "{:?}", outcomes.run.error);

    // It is down for a minute, of which somebody tries for six seconds.
    let timeout = Duration::from_secs(4);
    let paused = Some((Duration::from_secs(2), Duration::from_secs(61)));
    let outcomes = Setup { down: down(1.2, 63), timeout, paused, ..cases(10) }.run().await;
    assert!(outcomes.run.error.is_none(), "{:?}", outcomes.run.error);
    assert_eq!((outcomes.run.totals.passed, outcomes.run.totals.errored), (8, 2), "{:?}", outcomes.results);
}
