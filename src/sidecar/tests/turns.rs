//! Turns of an agent that this process stands in for: driven by the generated client over a pipe in memory, on a clock
//! that stands still while anybody works.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::sidecar::service::{ATTACHED_FILES, Agent, ROUTING, STUBS, endpoint};
use crate::sidecar::turn::{Answer, End, Turn, Wanted, broken_tool, text_for_model, worked};
use crate::wire::agent::agent_endpoint_client::AgentEndpointClient;
use crate::wire::agent::invoke_request::Frame;
use crate::wire::agent::invoke_response::Event;
use crate::wire::agent::tool_call_finished::Outcome;
use crate::wire::agent::{
    AgentCard, Blob, CallContext, CancelReason, DescribeRequest, InvokeCancel, InvokeRequest, InvokeStart, Json,
    Limits, ModelTurn, ProbeScript, ToolMode, ToolResult, Usage, blob, json, part, tool_result,
};

/// What an agent of these tests does, by the id of the call.
async fn answer(turn: Arc<Turn>) -> Result<Answer, End> {
    let id = turn.start().invocation_id.clone();
    assert_eq!(i32::from(turn.mode()), turn.start().tool_mode);
    match id.split(' ').next().unwrap_or_default() {
        "text" => return Ok(Answer::text("It is warm.")),
        "rest" => {
            turn.say("It is ").await?;
            return Ok(Answer::text("It is warm."));
        }
        "call" => {
            turn.say("Let me look. ").await?;
            let heard = look(&turn, &["look"]).await?;
            turn.say(&heard).await?;
        }
        "two" => {
            let heard = look(&turn, &["look", "see"]).await?;
            turn.say(&heard).await?;
        }
        "silent" => {
            turn.say("Let me look. ").await?;
            look(&turn, &["look"]).await?;
        }
        "forever" => loop {
            let index = turn.begin_model_turn(Some(5))?;
            turn.say(&format!("Turn {index}. ")).await?;
            let usage = Some(Usage { input_tokens: Some(7), ..Usage::default() });
            turn.end_model_turn(ModelTurn { index, model: "m".to_owned(), usage, ..ModelTurn::default() }).await;
            look(&turn, &["look"]).await?;
        },
        "unused" => turn.used(&Usage { output_tokens: Some(0), ..Usage::default() }),
        "stay" => {
            turn.say("so far").await?;
            std::future::pending::<()>().await;
        }
        "slow" => {
            turn.accept().await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            return Ok(Answer::text("fine"));
        }
        "fail" => {
            turn.log("error", "oh".to_owned()).await;
            turn.warn(["mind this".to_owned()]);
            return Err(End::failed(Code::Internal, "ODD", "no idea"));
        }
        "away" => return Err(End::Broken(Status::unavailable("nobody there"))),
        "large" => loop {
            turn.say(&"x".repeat(1 << 20)).await?;
        },
        other => panic!("no agent does {other}"),
    }
    Ok(Answer { text: None, reason: crate::wire::agent::FinishReason::Completed })
}

/// Calls these tools at once, and gives what a model would read of them.
async fn look(turn: &Turn, names: &[&str]) -> Result<String, End> {
    let wanted = names.iter().map(|name| {
        let params = Ok(Json { form: Some(json::Form::Raw(b"{ \"n\": 1.0 }".to_vec())) });
        Wanted { id: "a".to_owned(), name: (*name).to_owned(), params }
    });
    let live = async |wanted: Wanted| match wanted.name.as_str() {
        "look" => worked("{ \"t\": 1.0 }"),
        other => broken_tool(format!("there is no tool {other}")),
    };
    let outcomes = turn.run_all(wanted.collect(), live).await?;
    Ok(outcomes.iter().map(text_for_model).collect::<Vec<_>>().join(", "))
}

/// An agent behind a pipe.
struct Pipe {
    client: AgentEndpointClient<Channel>,
    stopping: CancellationToken,
}

async fn pipe(capabilities: &[&'static str], limits: Limits) -> Pipe {
    let stopping = CancellationToken::new();
    let describe = || std::future::ready(Ok(AgentCard { agent_id: "a".to_owned(), ..AgentCard::default() }));
    let agent = endpoint(Agent::new(capabilities, limits, describe, answer), stopping.clone());
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    tokio::spawn(
        Server::builder().add_service(agent).serve_with_incoming(stream::iter([Ok::<_, std::io::Error>(theirs)])),
    );
    let mut ours = Some(TokioIo::new(ours));
    let connect =
        tower::service_fn(move |_| std::future::ready(ours.take().ok_or(std::io::Error::other("one connection"))));
    let channel = Endpoint::from_static("http://pipe").connect_with_connector(connect).await.expect("connects");
    Pipe { client: AgentEndpointClient::new(channel).max_decoding_message_size(64 << 20), stopping }
}

async fn able() -> Pipe {
    pipe(&[STUBS, ROUTING], Limits::default()).await
}

fn start(id: &str, mode: ToolMode) -> InvokeStart {
    let invocation_id = id.to_owned();
    InvokeStart { invocation_id, tool_mode: mode.into(), want_deltas: true, ..InvokeStart::default() }
}

/// What a daemon does when it sees an event, in the words of [`line`].
type Daemon<'a> = &'a dyn Fn(&str) -> Vec<Frame>;

impl Pipe {
    /// A whole call: its events a line each, or the status with which it ended.
    async fn call(&self, start: InvokeStart, daemon: Daemon<'_>) -> Vec<String> {
        let (requests, receiver) = mpsc::channel(16);
        let _ = requests.send(InvokeRequest { frame: Some(Frame::Start(start)) }).await;
        let mut lines = Vec::new();
        let said = |status: &Status| vec![format!("status {:?}: {}", status.code(), status.message())];
        let mut events = match self.client.clone().invoke(ReceiverStream::new(receiver)).await {
            Ok(response) => response.into_inner(),
            Err(status) => return said(&status),
        };
        let mut seq = 0;
        loop {
            match events.message().await {
                Ok(None) => return lines,
                Err(status) => {
                    lines.extend(said(&status));
                    return lines;
                }
                Ok(Some(response)) => {
                    seq += 1;
                    assert_eq!(response.seq, seq, "numbers have no gaps: {lines:?}");
                    assert!(response.elapsed.is_some());
                    let line = line(response.event.expect("an event"));
                    for frame in daemon(&line) {
                        let _ = requests.send(InvokeRequest { frame: Some(frame) }).await;
                    }
                    lines.push(line);
                }
            }
        }
    }
}

fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Result(_) => text_for_model(outcome),
        Outcome::Error(fault) => format!("{} {:?} {}", fault.reason, Code::from(fault.grpc_code), fault.message),
    }
}

/// An event in one line.
fn line(event: Event) -> String {
    match event {
        Event::Accepted(accepted) => format!("accepted {}", accepted.invocation_id),
        Event::TextDelta(delta) => format!("say {:?}", delta.text),
        Event::ToolStarted(call) => {
            let params = call.params.map(|params| text_for_model(&Outcome::Result(params))).unwrap_or_default();
            let waits = if call.awaits_result { ", waits" } else { "" };
            let first = if call.call_id == "a" { " a" } else { "" };
            format!("started {}{first} {params} in {}{waits}", call.name, call.model_turn)
        }
        Event::ToolFinished(end) => {
            let source = end.source().as_str_name().trim_start_matches("RESULT_SOURCE_").to_owned();
            format!("ended {source}: {}", outcome(&end.outcome.expect("an outcome")))
        }
        Event::ModelTurn(turn) => format!("turn {} {}", turn.index, turn.model),
        Event::Log(line) => format!("{}: {}", line.level, line.message),
        Event::Finished(end) => {
            let reason = end.finish_reason().as_str_name().trim_start_matches("FINISH_REASON_").to_owned();
            let text = end.response.map(|response| {
                let texts = response.parts.into_iter().map(|part| match part.content {
                    Some(part::Content::Text(text)) => text,
                    other => panic!("{other:?}"),
                });
                texts.collect::<String>()
            });
            let text = text.map_or("nothing".to_owned(), |text| format!("{:?}", &text[..text.len().min(60)]));
            let usage = end.usage.map(|usage| format!(", {:?} to {:?}", usage.input_tokens, usage.output_tokens));
            let error = end.error.map(|fault| format!(", {}", outcome(&Outcome::Error(fault))));
            let warnings =
                if end.warnings.is_empty() { String::new() } else { format!(", warns: {}", end.warnings.join(", ")) };
            format!(
                "finished {reason} {text}, {} calls{}{}{warnings}",
                end.tool_calls,
                usage.unwrap_or_default(),
                error.unwrap_or_default()
            )
        }
    }
}

fn nothing(_: &str) -> Vec<Frame> {
    Vec::new()
}

fn result(id: &str, outcome: Option<tool_result::Outcome>) -> Frame {
    Frame::ToolResult(ToolResult { call_id: id.to_owned(), outcome, unstubbed: false })
}

fn stub(text: &str) -> tool_result::Outcome {
    tool_result::Outcome::Result(Json { form: Some(json::Form::Raw(text.as_bytes().to_vec())) })
}

fn cancel(reason: CancelReason) -> Frame {
    Frame::Cancel(InvokeCancel { reason: reason.into(), ..InvokeCancel::default() })
}

/// When the first tool starts.
fn on_start(line: &str, frames: Vec<Frame>) -> Vec<Frame> {
    if line.starts_with("started") { frames } else { Vec::new() }
}

const LOOKED: &str = r#"started look a { "n": 1.0 } in 0"#;
const WAITS: &str = r#"started look a { "n": 1.0 } in 0, waits"#;

#[tokio::test(start_paused = true)]
async fn answers_and_live_tools() {
    let agent = able().await;
    for (id, events) in [
        ("text", vec!["accepted text", r#"say "It is warm.""#, r#"finished COMPLETED "It is warm.", 0 calls"#]),
        (
            "rest",
            vec!["accepted rest", r#"say "It is ""#, r#"say "warm.""#, r#"finished COMPLETED "It is warm.", 0 calls"#],
        ),
        (
            "call",
            vec![
                "accepted call",
                r#"say "Let me look. ""#,
                LOOKED,
                r#"ended LIVE: { "t": 1.0 }"#,
                r#"say "{ \"t\": 1.0 }""#,
                r#"finished COMPLETED "{ \"t\": 1.0 }", 1 calls"#,
            ],
        ),
        (
            "two",
            vec![
                "accepted two",
                LOOKED,
                r#"started see { "n": 1.0 } in 0"#,
                r#"ended LIVE: { "t": 1.0 }"#,
                "ended LIVE:  Unknown there is no tool see",
                r#"say "{ \"t\": 1.0 }, error: there is no tool see""#,
                r#"finished COMPLETED "{ \"t\": 1.0 }, error: there is no tool see", 2 calls"#,
            ],
        ),
        (
            "silent",
            vec![
                "accepted silent",
                r#"say "Let me look. ""#,
                LOOKED,
                r#"ended LIVE: { "t": 1.0 }"#,
                r#"finished COMPLETED "Let me look. ", 1 calls"#,
            ],
        ),
        ("unused", vec!["accepted unused", r#"finished COMPLETED "", 0 calls, None to Some(0)"#]),
        (
            "fail",
            vec![
                "accepted fail",
                "error: oh",
                "finished FAILED nothing, 0 calls, ODD Internal no idea, warns: mind this",
            ],
        ),
        ("away", vec!["status Unavailable: nobody there"]),
    ] {
        assert_eq!(agent.call(start(id, ToolMode::Live), &nothing).await, events, "{id}");
    }
    let quiet = InvokeStart { want_deltas: false, ..start("call quietly", ToolMode::Live) };
    let events = agent.call(quiet, &nothing).await;
    let end = r#"finished COMPLETED "{ \"t\": 1.0 }", 1 calls"#;
    assert_eq!(events, ["accepted call quietly", LOOKED, r#"ended LIVE: { "t": 1.0 }"#, end]);
    let quiet = InvokeStart { want_deltas: false, ..start("large", ToolMode::Live) };
    let events = agent.call(quiet, &nothing).await;
    assert!(events[1].contains("ANSWER_TOO_LARGE ResourceExhausted the agent said more than"), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn stubs() {
    let agent = able().await;
    let fault = crate::wire::agent::Fault { message: "out of order".to_owned(), ..Default::default() };
    for (n, (frames, ended, said)) in [
        (vec![result("a", Some(stub("{ \"n\": 1.0 }")))], "ended STUB: { \"n\": 1.0 }", r#""{ \"n\": 1.0 }""#),
        (
            vec![result("b", Some(stub("1"))), result("a", Some(stub("null"))), result("a", Some(stub("3")))],
            "ended STUB: null",
            r#""null""#,
        ),
        (vec![result("a", Some(stub("\"\"")))], "ended STUB: \"\"", r#""\"\"""#),
        (
            vec![result("a", Some(tool_result::Outcome::Error(fault)))],
            "ended STUB:  Ok out of order",
            r#""error: out of order""#,
        ),
        (
            vec![result("a", None)],
            "ended STUB: NO_RESULT Unavailable no result came for the call of look",
            r#""error: no result came for the call of look""#,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let daemon = |line: &str| on_start(line, frames.clone());
        let events = agent.call(start(&format!("call {n}"), ToolMode::Stub), &daemon).await;
        assert_eq!(events[2..4], [WAITS, ended], "{events:?}");
        assert_eq!(events[5], format!("finished COMPLETED {said}, 1 calls"));
    }
    // A model that got a result and says nothing has not answered.
    let daemon = |line: &str| on_start(line, vec![result("a", Some(stub("1")))]);
    let events = agent.call(start("silent", ToolMode::Stub), &daemon).await;
    assert_eq!(events[4], r#"finished COMPLETED "", 1 calls"#);
}

/// The daemon closes its side: no result comes any more, and that is no cancel.
#[tokio::test(start_paused = true)]
async fn half_close() {
    let agent = able().await;
    let whole = async |start: InvokeStart| {
        let requests = stream::iter([InvokeRequest { frame: Some(Frame::Start(start)) }]);
        let mut events = agent.client.clone().invoke(requests).await.expect("begins").into_inner();
        let mut lines = Vec::new();
        while let Some(event) = events.message().await.expect("an event") {
            lines.push(line(event.event.expect("an event")));
        }
        lines
    };
    let lines = whole(start("two", ToolMode::Stub)).await;
    assert_eq!(lines[3], "ended STUB: NO_RESULT Unavailable no result came for the call of look");
    assert!(lines[6].starts_with("finished COMPLETED"), "{lines:?}");
    // With stubs the answer at the limit is what the last model turn said.
    let lines = whole(InvokeStart { max_model_turns: Some(2), ..start("forever", ToolMode::Stub) }).await;
    assert_eq!(
        *lines.last().expect("an end"),
        r#"finished MAX_MODEL_TURNS "Turn 2. ", 2 calls, Some(14) to None"#,
        "{lines:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn routing_and_model_turns() {
    let agent = able().await;
    let events = agent.call(start("two", ToolMode::RoutingOnly), &nothing).await;
    let second = r#"started see { "n": 1.0 } in 0"#;
    assert_eq!(events, ["accepted two", LOOKED, second, r#"finished TOOL_CALLS "", 2 calls"#]);
    let events = agent.call(start("call", ToolMode::RoutingOnly), &nothing).await;
    assert_eq!(events[3], r#"finished TOOL_CALLS "Let me look. ", 1 calls"#);
    let events = agent.call(start("text", ToolMode::RoutingOnly), &nothing).await;
    assert_eq!(events[2], r#"finished COMPLETED "It is warm.", 0 calls"#);
    // The suite's limit, and the agent's own.
    let two = InvokeStart { max_model_turns: Some(2), ..start("forever", ToolMode::Live) };
    let events = agent.call(two, &nothing).await;
    assert_eq!(events[1..3], [r#"say "Turn 1. ""#, "turn 1 m"]);
    assert!(events[3].ends_with("in 1") && events[7].ends_with("in 2"), "{events:?}");
    assert_eq!(events[9], r#"finished MAX_MODEL_TURNS "Turn 2. ", 2 calls, Some(14) to None"#);
    let events = agent.call(start("forever own", ToolMode::Live), &nothing).await;
    assert!(events.last().expect("an end").contains("5 calls, Some(35)"), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn what_ends_a_turn() {
    let agent = able().await;
    for (n, (reason, ends)) in
        [(CancelReason::User, "CANCELLED"), (CancelReason::Budget, "BUDGET_EXCEEDED")].into_iter().enumerate()
    {
        let daemon = |line: &str| if line.starts_with("say") { vec![cancel(reason)] } else { Vec::new() };
        let events = agent.call(start(&format!("stay {n}"), ToolMode::Live), &daemon).await;
        assert_eq!(events[2], format!(r#"finished {ends} "so far", 0 calls"#));
    }
    let daemon = |line: &str| on_start(line, vec![cancel(CancelReason::FailFast)]);
    let events = agent.call(start("call", ToolMode::Stub), &daemon).await;
    assert_eq!(events[3], "ended STUB: CANCELLED Cancelled the turn ended before look did");
    assert_eq!(events[4], r#"finished CANCELLED "Let me look. ", 1 calls"#);
    for (id, seconds, said) in
        [("stay 3", 3, r#""so far""#), ("text", 0, "nothing"), ("text below zero", -1, "nothing")]
    {
        let budget = Some(prost_types::Duration { seconds, nanos: 0 });
        let context = Some(CallContext { budget, ..CallContext::default() });
        let events = agent.call(InvokeStart { context, ..start(id, ToolMode::Live) }, &nothing).await;
        assert_eq!(*events.last().expect("an end"), format!("finished BUDGET_EXCEEDED {said}, 0 calls"), "{id}");
    }
    let again = |line: &str| if line.starts_with("say") { vec![Frame::Start(InvokeStart::default())] } else { vec![] };
    let events = agent.call(start("stay 4", ToolMode::Live), &again).await;
    assert!(events[2].contains("PROTOCOL_ERROR InvalidArgument frame: unexpected `start`"), "{events:?}");
    let stopping = agent.stopping.clone();
    let stop = |line: &str| {
        if line.starts_with("say") {
            stopping.cancel();
        }
        Vec::new()
    };
    let events = agent.call(start("stay 5", ToolMode::Live), &stop).await;
    assert_eq!(events[2], "status Unavailable: the sidecar was stopped");
    let events = agent.call(start("text 2", ToolMode::Live), &nothing).await;
    assert_eq!(events, ["status Unavailable: the sidecar was stopped"]);
}

/// What cannot begin, and says so before anything is done.
#[tokio::test(start_paused = true)]
async fn refusals() {
    let agent = pipe(&[], Limits { max_concurrent_invocations: 1, ..Limits::default() }).await;
    let file = Blob { source: Some(blob::Source::AttachmentId("f".to_owned())), ..Blob::default() };
    for (start, status) in [
        (start("", ToolMode::Live), "InvalidArgument: start.invocation_id must not be empty"),
        (start("text", ToolMode::Unspecified), "InvalidArgument: start.tool_mode must not be 0"),
        (
            InvokeStart { tool_mode: 99, ..start("text", ToolMode::Live) },
            "InvalidArgument: start.tool_mode must not be 99",
        ),
        (
            InvokeStart { probe: Some(ProbeScript::default()), ..start("text", ToolMode::Live) },
            "FailedPrecondition: start.probe is not supported",
        ),
        (
            start("text", ToolMode::Stub),
            "FailedPrecondition: start.tool_mode must be LIVE: this agent runs its own tools and lacks tools.stub, which STUB needs",
        ),
        (
            start("text", ToolMode::RoutingOnly),
            "FailedPrecondition: start.tool_mode must be LIVE: this agent runs its own tools and lacks tools.routing, which ROUTING_ONLY needs",
        ),
        (
            InvokeStart { attachments: vec![file.clone()], ..start("text", ToolMode::Live) },
            "FailedPrecondition: start.attachments: this agent takes none",
        ),
    ] {
        assert_eq!(agent.call(start, &nothing).await, [format!("status {status}")]);
    }
    let mut client = agent.client.clone();
    let no_start = stream::iter([InvokeRequest { frame: Some(cancel(CancelReason::User)) }]);
    let status = client.invoke(no_start).await.expect_err("no start");
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "frame: the first must be `start`"));
    let status = client.invoke(stream::pending()).await.expect_err("nothing came");
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "no `start` came"));
    // One place: who comes while it is taken is told to come later, and the same call is not made twice.
    let (slow, second) = tokio::join!(agent.call(start("slow", ToolMode::Live), &nothing), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let request = stream::iter([InvokeRequest { frame: Some(Frame::Start(start("text", ToolMode::Live))) }]);
        agent.client.clone().invoke(request).await.expect_err("no place")
    });
    assert_eq!(slow[2], r#"finished COMPLETED "fine", 0 calls"#);
    assert_eq!((second.code(), second.message()), (Code::ResourceExhausted, "1 calls run, which is as many as may"));
    assert!(second.get_details_retry_info().is_some());
    let again = agent.call(start("slow", ToolMode::Live), &nothing).await;
    assert_eq!(again, [r#"status AlreadyExists: start.invocation_id "slow" is known"#]);
    let attached = pipe(&[ATTACHED_FILES], Limits::default()).await;
    let described = attached.client.clone().describe(DescribeRequest::default()).await.expect("a card").into_inner();
    assert_eq!(described.capabilities, ["attachments", "cancel", "stand_in"]);
    assert_eq!(described.limits.expect("limits").max_message_bytes, 16 << 20);
    assert!(!described.instance_id.is_empty() && described.revision == 1);
    let old = DescribeRequest { min_revision: 7, max_revision: 9, ..DescribeRequest::default() };
    let status = attached.client.clone().describe(old).await.expect_err("no revision of ours");
    assert_eq!(status.code(), Code::FailedPrecondition);
}
