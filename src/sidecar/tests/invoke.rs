//! What the agent says while a call goes on.

use tokio_stream::StreamExt as _;

use super::*;
use crate::wire::agent::tool_call_finished::Outcome;
use crate::wire::agent::{
    CancelReason, Fault, FinishReason, InvokeCancel, Json, ProbeScript, ResultSource, TextChannel, ToolCallFinished,
    ToolCallStarted, ToolResult, json,
};

const SCRIPT: &str = r#"{
  "reported_duration_ms": 5,
  "replies": [
    {"on": "Pay", "events": [
      {"text": "Pay"},
      {"tool": {"name": "pay", "params": {"b": 1.0, "a" : [9007199254740993, 1e2, "é\u0041"]}, "success": true, "ms": 7, "result": {"z":1,"a":-0}}},
      {"tool": {"name": "check", "id": "call-1", "success": false, "ms": 3, "error": "offline"}},
      {"tool": {"name": "log", "params": null, "success": true, "ms": 0}},
      {"wait_ms": 20},
      {"text": "ing 👍"}
    ]},
    {"on_prefix": "Wait", "events": [{"text": "one"}, {"wait_ms": 60000}, {"text": "two"}]},
    {"on": "*", "events": []},
    {"on": "Silence", "events": [{"text_pieces": {"unit": "aé", "piece_bytes": 6, "pieces": 50}}]},
    {"on": "How many?", "first_time_in_conversation": [{"text": "12"}], "seen_before": [{"text": "Still 12"}]}
  ]
}"#;

fn raw(text: &str) -> Json {
    Json { form: Some(json::Form::Raw(text.as_bytes().to_vec())) }
}

fn tools(events: &[InvokeResponse]) -> (Vec<&ToolCallStarted>, Vec<&ToolCallFinished>) {
    let (mut started, mut finished) = (Vec::new(), Vec::new());
    for event in events {
        match &event.event {
            Some(Event::ToolStarted(tool)) => started.push(tool),
            Some(Event::ToolFinished(tool)) => finished.push(tool),
            _ => {}
        }
    }
    (started, finished)
}

#[tokio::test]
async fn a_live_call_goes_as_scripted() {
    let agent = Agent::start(SCRIPT);
    let (events, end) = call(&agent.client().await, start("Pay")).await;
    assert_eq!(code(&end), Code::Ok);
    assert!(matches!(&events[0].event, Some(Event::Accepted(accepted)) if !accepted.invocation_id.is_empty()));
    assert!(events.iter().map(|event| event.seq).eq(1..=10), "{events:?}");
    let elapsed: Vec<_> = events.iter().map(|event| event.elapsed.map(|d| (d.seconds, d.nanos))).collect();
    assert!(elapsed.is_sorted() && elapsed[0].is_some() && elapsed[9] >= Some((0, 20_000_000)), "{elapsed:?}");

    let (started, ended) = tools(&events);
    let params = Some(raw(r#"{"b": 1.0, "a" : [9007199254740993, 1e2, "é\u0041"]}"#));
    assert_eq!((&*started[0].name, &started[0].params, started[0].awaits_result), ("pay", &params, false));
    assert_eq!((&*started[1].call_id, &started[1].params), ("call-1", &None));
    assert_eq!(started[2].params, Some(raw("null")));
    assert!(started[0].call_id != "call-1" && started.iter().zip(&ended).all(|(a, b)| a.call_id == b.call_id));
    assert_eq!(ended[0].outcome, Some(Outcome::Result(raw(r#"{"z":1,"a":-0}"#))));
    assert_eq!((ended[0].duration.map(|d| d.nanos), ended[0].source()), (Some(7_000_000), ResultSource::Live));
    assert!(matches!(&ended[1].outcome, Some(Outcome::Error(Fault { message, .. })) if message == "offline"));
    assert_eq!(ended[2].outcome, Some(Outcome::Result(Json { form: None })));

    let last = finished(&events);
    assert_eq!((last.finish_reason(), last.tool_calls, answer(last)), (FinishReason::Completed, 3, "Paying 👍"));
    assert_eq!(last.duration.map(|d| d.nanos), Some(5_000_000));
    assert_eq!(deltas(&events), "Paying 👍");
    assert!(events.iter().all(|event| match &event.event {
        Some(Event::TextDelta(delta)) => delta.channel() == TextChannel::Answer,
        _ => true,
    }));
    let log = agent.log();
    let start = &log[0];
    assert_eq!(
        (&start["service"], &start["agent_id"], &start["case_id"], &start["conversation_id"]),
        (&"AgentEndpoint/Invoke".into(), &"demo".into(), &"case".into(), &"conversation".into())
    );
    assert_eq!((&start["turn"], &start["last_user_text"], &start["messages"]), (&1.into(), &"Pay".into(), &1.into()));
    assert_eq!(agent.log_events(), ["start", "end:ok"]);
    agent.stop().await;
}

#[tokio::test]
async fn replies_are_chosen_by_message_and_memory() {
    let agent = Agent::start(SCRIPT);
    let client = agent.client().await;
    for (message, text) in
        [("How many?", "12"), ("How many?", "Still 12"), ("anything", ""), ("Silence", &"aéaé".repeat(50))]
    {
        let (events, end) = call(&client, start(message)).await;
        assert_eq!((code(&end), answer(finished(&events))), (Code::Ok, text), "{message}");
        assert_eq!(deltas(&events), text);
    }
    let (events, _) = call(&client, InvokeStart { conversation_id: "other".to_owned(), ..start("How many?") }).await;
    assert_eq!(answer(finished(&events)), "12");
    let (events, _) = call(&client, InvokeStart { want_deltas: false, ..start("How many?") }).await;
    assert_eq!((answer(finished(&events)), events.len()), ("Still 12", 2));

    let agent = Agent::start(r#"{"replies": [{"on": "x", "events": []}]}"#);
    let (events, end) = call(&agent.client().await, start("y")).await;
    let error = finished(&events).error.as_ref().expect("an error");
    assert_eq!((code(&end), finished(&events).finish_reason()), (Code::Ok, FinishReason::Failed));
    assert!(error.message.contains("\"y\""), "{error:?}");
}

#[tokio::test]
async fn what_cannot_be_served_is_refused_by_status() {
    let agent = Agent::start(SCRIPT);
    let client = agent.client().await;
    let once = start("Pay");
    assert_eq!(code(&call(&client, once.clone()).await.1), Code::Ok);
    for (start, expected, field) in [
        (once, Code::AlreadyExists, "invocation_id"),
        (InvokeStart { invocation_id: String::new(), ..start("Pay") }, Code::InvalidArgument, "invocation_id"),
        (InvokeStart { tool_mode: 0, ..start("Pay") }, Code::InvalidArgument, "tool_mode"),
        (InvokeStart { tool_mode: 99, ..start("Pay") }, Code::InvalidArgument, "tool_mode"),
        (InvokeStart { probe: Some(ProbeScript::default()), ..start("Pay") }, Code::FailedPrecondition, "probe"),
    ] {
        let (events, end) = call(&client, start).await;
        let status = end.expect_err("refused");
        assert_eq!((events.len(), status.code()), (0, expected), "{status}");
        assert!(status.message().contains(field), "{status}");
    }
    let cancel = InvokeRequest { frame: Some(Frame::Cancel(InvokeCancel::default())) };
    for requests in [vec![cancel], Vec::new()] {
        let status = client.clone().invoke(tokio_stream::iter(requests)).await.expect_err("refused");
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains("`start`"), "{status}");
    }
    assert_eq!(agent.log_events().into_iter().filter(|line| line == "end:status").count(), 7);
}

#[tokio::test]
async fn stubbed_tools_wait_for_their_results() {
    let agent = Agent::start(SCRIPT);
    let client = agent.client().await;
    let mut call =
        Call::open(&client, InvokeStart { tool_mode: ToolMode::Stub.into(), ..start("Pay") }).await.expect("opens");
    let mut ended = Vec::new();
    let last = loop {
        match call.next().await.expect("goes on").expect("not over") {
            Event::ToolStarted(tool) => {
                assert!(tool.awaits_result);
                let error = Fault { message: "stub".to_owned(), ..Fault::default() };
                for call_id in ["unknown".to_owned(), tool.call_id.clone(), tool.call_id] {
                    let outcome = Some(crate::wire::agent::tool_result::Outcome::Error(error.clone()));
                    call.send(Frame::ToolResult(ToolResult { call_id, outcome, unstubbed: true })).await;
                }
            }
            Event::ToolFinished(tool) => ended.push(tool),
            Event::Finished(finished) => break finished,
            _ => {}
        }
    };
    assert_eq!((last.finish_reason(), last.tool_calls, answer(&last)), (FinishReason::Completed, 3, "Paying 👍"));
    assert!(ended.iter().all(|tool| tool.source() == ResultSource::Stub));
    assert!(matches!(ended[0].outcome, Some(Outcome::Result(_))), "finished as scripted, not as stubbed");
    assert!(call.rest().await.1.is_ok());

    // A half-close is no cancel: the tool fails and the agent goes on.
    let request =
        InvokeRequest { frame: Some(Frame::Start(InvokeStart { tool_mode: ToolMode::Stub.into(), ..start("Pay") })) };
    let events = client.clone().invoke(tokio_stream::iter([request])).await.expect("opens").into_inner();
    let events: Vec<_> = events.map(|event| event.expect("an event")).collect().await;
    assert!(tools(&events).1.iter().all(|tool| matches!(tool.outcome, Some(Outcome::Error(_)))));
    assert_eq!((finished(&events).finish_reason(), tools(&events).1.len()), (FinishReason::Completed, 3));
}

#[tokio::test]
async fn routed_tools_are_only_announced() {
    let agent = Agent::start(SCRIPT);
    let client = agent.client().await;
    for (message, tool_calls, reason) in [("Pay", 3, FinishReason::ToolCalls), ("hi", 0, FinishReason::Completed)] {
        let routing = InvokeStart { tool_mode: ToolMode::RoutingOnly.into(), ..start(message) };
        let (events, _) = call(&client, routing).await;
        let (started, ended) = tools(&events);
        assert_eq!((started.len(), ended.len()), (tool_calls as usize, 0));
        assert!(started.iter().all(|tool| !tool.awaits_result));
        assert_eq!((finished(&events).finish_reason(), finished(&events).tool_calls), (reason, tool_calls));
    }
}

#[tokio::test]
async fn a_cancel_is_obeyed() {
    let agent = Agent::start(SCRIPT);
    let client = agent.client().await;
    for (reason, expected) in
        [(CancelReason::User, FinishReason::Cancelled), (CancelReason::Budget, FinishReason::BudgetExceeded)]
    {
        let mut call = Call::open(&client, start("Wait for me")).await.expect("opens");
        while !matches!(call.next().await, Ok(Some(Event::TextDelta(_)))) {}
        for _ in 0..2 {
            call.send(Frame::Cancel(InvokeCancel { reason: reason.into(), ..InvokeCancel::default() })).await;
        }
        let (events, end) = call.rest().await;
        assert_eq!((code(&end), finished(&events).finish_reason()), (Code::Ok, expected));
        assert_eq!(answer(finished(&events)), "one");
    }
    // In the middle of a stubbed tool, which is closed first.
    let mut call =
        Call::open(&client, InvokeStart { tool_mode: ToolMode::Stub.into(), ..start("Pay") }).await.expect("opens");
    while !matches!(call.next().await, Ok(Some(Event::ToolStarted(_)))) {}
    call.send(Frame::Cancel(InvokeCancel::default())).await;
    let (events, _) = call.rest().await;
    assert!(matches!(&tools(&events).1[0].outcome, Some(Outcome::Error(fault)) if fault.grpc_code == 1), "{events:?}");
    assert_eq!(finished(&events).finish_reason(), FinishReason::Cancelled);
    assert_eq!(agent.log_events().into_iter().filter(|line| line == "end:cancelled").count(), 3);
}

#[tokio::test]
async fn the_budget_and_the_protocol_are_kept() {
    let agent = Agent::start(SCRIPT);
    let client = agent.client().await;
    for nanos in [20_000_000, 0, -1] {
        let budget = Some(prost_types::Duration { seconds: 0, nanos });
        let context = Some(CallContext { budget, ..CallContext::default() });
        let (events, end) = call(&client, InvokeStart { context, ..start("Wait") }).await;
        assert_eq!(
            (code(&end), finished(&events).finish_reason()),
            (Code::Ok, FinishReason::BudgetExceeded),
            "{nanos}"
        );
    }
    let mut second = Call::open(&client, start("Wait")).await.expect("opens");
    second.send(Frame::Start(start("Wait"))).await;
    let (events, end) = second.rest().await;
    assert_eq!((code(&end), finished(&events).finish_reason()), (Code::Ok, FinishReason::Failed));
}

#[tokio::test]
async fn many_calls_at_once_do_not_wait_for_each_other() {
    let agent = Agent::start(r#"{"replies": [{"on": "*", "events": [{"wait_ms": 100}, {"text": "done"}]}]}"#);
    let client = agent.client().await;
    let begin = std::time::Instant::now();
    let calls: Vec<_> = (0..200)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { answer(finished(&call(&client, start("go")).await.0)).to_owned() })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.expect("no panic"), "done");
    }
    // One after the other it would be 20 seconds.
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    assert_eq!(agent.log().len(), 400);
}
