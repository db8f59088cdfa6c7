//! `maxTurns` is held by the daemon, whatever the agent makes of it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use forge::conversation::ToolMode;
use forge::event::Payload;
use forge::verdict::{Blame, Cause, Outcome};
use forge::wire::agent::{CancelReason, FinishReason};

use super::Step::{self, *};
use super::{Outcomes, Setup};

/// A case with stubs and the limit `max_turns`, against a script.
async fn stubbed(max_turns: &str, script: Vec<Step>) -> Outcomes {
    let cases = format!(
        r#"[{{"id": "a", "input": {{"message": "x"}}, "stubs": {{"known": 1}}{max_turns}, "expect": {{"responseContains": ["yes"]}}}}]"#
    );
    Setup::cases(vec![("*", script)], &cases).run().await
}

/// A call, its result, and the agent's word that it has it.
fn called(id: &'static str) -> [Step; 3] {
    [ToolStart(id, "known"), AwaitResult, ToolEnd(id)]
}

/// The whole script: steps between `accepted` and an answer.
fn script(steps: impl IntoIterator<Item = Step>) -> Vec<Step> {
    [Accept].into_iter().chain(steps).chain([Answer("yes")]).collect()
}

fn is_over(outcomes: &Outcomes, limit: u32) {
    let result = outcomes.of("a");
    assert_eq!(
        (result.outcome, result.cause, result.blame),
        (Outcome::Failed, Some(Cause::MaxTurns), Some(Blame::Agent)),
        "{:?}",
        result.error
    );
    assert_eq!(result.error, Some(format!("max turns ({limit}) exceeded")));
    assert_eq!(outcomes.run.exit_code(), 1);
}

fn is_answered(outcomes: &Outcomes) {
    assert_eq!(outcomes.of("a").outcome, Outcome::Passed, "{:?}", outcomes.of("a").error);
}

const TWO: &str = r#", "maxTurns": 2"#;

/// One model turn too many ends the call at once: the agent is told and gets its grace, and what it did until then
/// is kept.
#[tokio::test(start_paused = true)]
async fn model_turns_as_the_agent_reports_them() {
    let twenty = (0..20).flat_map(|n| {
        let id: &str = String::leak(n.to_string());
        [ModelTurn, ToolStart(id, "known"), AwaitResult, ToolEnd(id)]
    });
    let outcomes = stubbed(TWO, script(twenty)).await;
    is_over(&outcomes, 2);
    let calls = &outcomes.of("a").transcript.tool_calls;
    assert_eq!(calls.iter().map(|call| call.call_id.as_str()).collect::<Vec<_>>(), ["0", "1"]);
    assert!(calls.iter().all(|call| call.outcome.is_some()), "{calls:?}");
    assert!(outcomes.took < Duration::from_secs(1), "{:?}", outcomes.took);

    let stubborn = [Accept, ModelTurn, ModelTurn, ModelTurn, Hang];
    let outcomes = stubbed(TWO, stubborn.to_vec()).await;
    is_over(&outcomes, 2);
    assert_eq!(*outcomes.seen.cancels.lock().unwrap(), [CancelReason::MaxModelTurns as i32]);
    assert!(outcomes.took < Duration::from_millis(100), "the verdict waits for no grace: {:?}", outcomes.took);

    is_answered(&stubbed(TWO, script([ModelTurn, ModelTurn])).await);
    // An agent that stops itself has answered.
    let stops = vec![Accept, ModelTurn, ModelTurn, Text("yes"), Finish(FinishReason::MaxModelTurns)];
    is_answered(&stubbed(TWO, stops).await);
    // Where turns are reported, what is called within one of them is no other one.
    let calls = (0..6).flat_map(|n| called(String::leak(n.to_string())));
    is_answered(&stubbed(TWO, script([ModelTurn].into_iter().chain(calls).chain([ModelTurn]))).await);
    // The contract's own limit.
    let six = script([ModelTurn, ModelTurn, ModelTurn, ModelTurn, ModelTurn, ModelTurn]);
    is_over(&stubbed("", six).await, 5);
}

/// An agent that reports no model turns is held by the rounds of its calls.
#[tokio::test(start_paused = true)]
async fn rounds_of_calls() {
    let rounds = |ids: [&'static str; 3]| ids.into_iter().flat_map(called);
    let outcomes = stubbed(TWO, script(rounds(["1", "2", "3"]))).await;
    is_over(&outcomes, 2);
    let result = outcomes.of("a");
    // The call that was one too many was made, and not answered.
    assert_eq!(result.transcript.tool_calls.len(), 3);
    let served = outcomes.log.iter().filter(|draft| matches!(draft.payload, Payload::StubServed { .. })).count();
    assert_eq!(served, 2);
    let warned = result.warnings.iter().any(|text| text.contains("reports no model turns"));
    assert!(warned, "{:?}", result.warnings);

    is_answered(&stubbed(r#", "maxTurns": 3"#, script(rounds(["1", "2", "3"]))).await);
    is_over(&stubbed("", script(["1", "2", "3", "4", "5", "6"].into_iter().flat_map(called))).await, 5);

    // Several calls of one round, however quickly the daemon answers the first of them.
    let at_once = |a, b, c| {
        [ToolStart(a, "known"), ToolStart(b, "known"), Sleep(50), ToolStart(c, "known")].into_iter().chain([
            AwaitResult,
            AwaitResult,
            AwaitResult,
            ToolEnd(b),
            ToolEnd(a),
            ToolEnd(c),
        ])
    };
    is_answered(&stubbed(TWO, script(at_once("1", "2", "3").chain(at_once("4", "5", "6")))).await);
    let third = at_once("1", "2", "3").chain(at_once("4", "5", "6")).chain(called("7"));
    is_over(&stubbed(TWO, script(third)).await, 2);

    // Calls that are run one after the other although one model turn asked for all of them, as the agent says.
    let one_by_one = |id, turn| [ToolOfTurn(id, turn), AwaitResult, ToolEnd(id)];
    let same = [one_by_one("1", 1), one_by_one("2", 1), one_by_one("3", 1), one_by_one("4", 2)];
    is_answered(&stubbed(TWO, script(same.into_iter().flatten())).await);
    let more = [one_by_one("1", 1), one_by_one("2", 2), one_by_one("3", 3)];
    is_over(&stubbed(TWO, script(more.into_iter().flatten())).await, 2);
}

/// Of tools that really run nobody knows which round they belong to: there a limit holds for the model turns that
/// are reported.
#[tokio::test(start_paused = true)]
async fn live_tools() {
    let run = async |max_turns: &str, steps: Vec<Step>| {
        let cases = format!(
            r#"[{{"id": "a", "input": {{"message": "x"}}{max_turns}, "expect": {{"responseContains": ["yes"]}}}}]"#
        );
        Setup::cases(vec![("*", script(steps))], &cases).run().await
    };
    let live = |id| [ToolStart(id, "t"), ToolEnd(id)];
    is_over(&run(TWO, vec![ModelTurn, ModelTurn, ModelTurn]).await, 2);
    is_answered(&run("", vec![ModelTurn; 20]).await);

    let of_turn = |id, turn| [ToolOfTurn(id, turn), ToolEnd(id)];
    is_over(&run(TWO, [of_turn("1", 1), of_turn("2", 2), of_turn("3", 3)].concat()).await, 2);
    let named = run(TWO, [of_turn("1", 1), of_turn("2", 1), of_turn("3", 2)].concat()).await;
    is_answered(&named);
    assert!(named.of("a").warnings.is_empty(), "{:?}", named.of("a").warnings);

    let outcomes = run(TWO, ["1", "2", "3", "4"].into_iter().flat_map(live).collect()).await;
    is_answered(&outcomes);
    let told = &outcomes.of("a").warnings;
    assert!(told.len() == 1 && told[0].contains("maxTurns: 2") && told[0].contains("no model turns"), "{told:?}");
    assert!(run(TWO, vec![ModelTurn]).await.of("a").warnings.is_empty());

    let routing = Setup {
        tool_mode: ToolMode::RoutingOnly,
        capabilities: vec!["tools.routing"],
        ..Setup::cases(
            vec![("*", vec![Accept, ToolStart("1", "t"), Finish(FinishReason::ToolCalls)])],
            r#"[{"id": "a", "input": {"message": "x"}, "maxTurns": 2, "expect": {"toolsCalled": ["t"]}}]"#,
        )
    };
    let outcomes = routing.run().await;
    is_answered(&outcomes);
    let told = &outcomes.of("a").warnings;
    assert!(!told.iter().any(|text| text.contains("maxTurns")), "one round is all there is: {told:?}");
    assert_eq!(outcomes.seen.invocations.load(Ordering::SeqCst), 1);
}
