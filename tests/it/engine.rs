//! The engine against scripted agents: the generated service trait over an in-memory pipe, with paused time.
//!
//! An agent is a list of [`Step`]s, so that a test reads like what happens on the wire.

mod blame;
mod reach;
mod turns;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forge::conversation::{CancelReason, ToolMode};
use forge::event::{Draft, Payload, Run, State};
use forge::peer::agent::Agent;
use forge::peer::call::Farewells;
use forge::plan::{RunSpec, plan};
use forge::run::{Control, Done, Job, Room, Waiting, execute, queued};
use forge::suite;
use forge::suite::timeout::Timeout;
use forge::usage::Price;
use forge::verdict::{Blame, CaseResult, Cause, Outcome};
use forge::wire::agent::agent_endpoint_server::{AgentEndpoint, AgentEndpointServer};
use forge::wire::agent::invoke_request::Frame;
use forge::wire::agent::invoke_response::Event;
use forge::wire::agent::snapshot_provider_server::{SnapshotProvider, SnapshotProviderServer};
use forge::wire::agent::{
    AgentCard, CaptureRequest, CaptureResponse, DescribeRequest, DescribeResponse, Fault, FinishReason, InvokeAccepted,
    InvokeFinished, InvokeRequest, InvokeResponse, Json, Limits, Message, Part, Role, TextDelta, ToolCallFinished,
    ToolCallStarted, ToolSpec, Usage, json, part, tool_call_finished, tool_result,
};
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Router;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt as _};

/// What a scripted agent does next.
#[derive(Debug, Clone)]
enum Step {
    Accept,
    Text(&'static str),
    ToolStart(&'static str, &'static str),
    /// The same with the number of the model turn that asks for it.
    ToolOfTurn(&'static str, u32),
    ToolEnd(&'static str),
    /// A call of the model is over.
    ModelTurn,
    /// Waits for the daemon's result of a tool, and says it as text.
    AwaitResult,
    Answer(&'static str),
    /// Finishes with that many tokens of output.
    AnswerOf(&'static str, i64),
    /// Finishes with this number of parts that say nothing.
    AnswerInParts(usize),
    Finish(FinishReason),
    Sleep(u64),
    /// Sends nothing more until cancelled, and then not either.
    Hang,
    /// Sends nothing more and reads nothing either.
    Deaf,
    /// Waits for a cancel frame and finishes as the protocol demands.
    ObeyCancel,
    /// Ends the call with a bare status.
    End(tonic::Code),
    /// Ends the call with a status that has a reason and says something.
    EndBecause(tonic::Code, &'static str, &'static str),
    /// Ends the call with a status of this number of bytes.
    EndWith(usize),
    /// Ends the call with OK.
    EndOk,
    /// The next events have numbers that are off by so much.
    Skew(u64),
    /// The next events have no numbers.
    Unnumbered,
}
use Step::*;

#[derive(Default)]
struct Seen {
    invocations: AtomicUsize,
    most_at_once: AtomicUsize,
    at_once: AtomicUsize,
    cancels: Mutex<Vec<i32>>,
    conversations: Mutex<Vec<String>>,
    /// When the call was gone, since the test began.
    gone: Mutex<Vec<Duration>>,
}

#[derive(Clone)]
struct Scripted {
    /// Steps by the text of the message; `*` for any other.
    scripts: Arc<Vec<(&'static str, Vec<Step>)>>,
    description: DescribeResponse,
    seen: Arc<Seen>,
    begun: Instant,
}

#[tonic::async_trait]
impl AgentEndpoint for Scripted {
    async fn describe(&self, _: Request<DescribeRequest>) -> Result<Response<DescribeResponse>, Status> {
        Ok(Response::new(self.description.clone()))
    }

    type InvokeStream = ReceiverStream<Result<InvokeResponse, Status>>;

    async fn invoke(&self, request: Request<Streaming<InvokeRequest>>) -> Result<Response<Self::InvokeStream>, Status> {
        let mut frames = request.into_inner();
        let Some(Frame::Start(start)) = frames.message().await?.and_then(|first| first.frame) else {
            return Err(Status::invalid_argument("start"));
        };
        self.seen.invocations.fetch_add(1, Ordering::SeqCst);
        self.seen.conversations.lock().unwrap().push(start.conversation_id.clone());
        let text = match start.messages.last().and_then(|message| message.parts.first()).and_then(|p| p.content.clone())
        {
            Some(part::Content::Text(text)) => text,
            _ => String::new(),
        };
        let script = self.scripts.iter().find(|(on, _)| *on == text || *on == "*").expect("a script").1.clone();
        let (sender, receiver) = mpsc::channel(100);
        let (seen, begun) = (Arc::clone(&self.seen), self.begun);
        tokio::spawn(async move {
            let now = seen.at_once.fetch_add(1, Ordering::SeqCst) + 1;
            seen.most_at_once.fetch_max(now, Ordering::SeqCst);
            play(script, frames, sender, &seen).await;
            seen.at_once.fetch_sub(1, Ordering::SeqCst);
            seen.gone.lock().unwrap().push(begun.elapsed());
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

async fn play(
    script: Vec<Step>,
    mut frames: Streaming<InvokeRequest>,
    out: mpsc::Sender<Result<InvokeResponse, Status>>,
    seen: &Seen,
) {
    let mut seq = 0;
    let mut numbered = true;
    let finished = |reason: FinishReason, text: Option<&str>| {
        let response = text.map(|text| Message {
            role: Role::Assistant.into(),
            parts: vec![Part { content: Some(part::Content::Text(text.to_owned())) }],
            ..Message::default()
        });
        Event::Finished(InvokeFinished { finish_reason: reason.into(), response, ..InvokeFinished::default() })
    };
    for step in script {
        let event = match step {
            Accept => Event::Accepted(InvokeAccepted::default()),
            Text(text) => Event::TextDelta(TextDelta { text: text.to_owned(), ..TextDelta::default() }),
            ToolStart(id, name) => Event::ToolStarted(ToolCallStarted {
                call_id: id.to_owned(),
                name: name.to_owned(),
                params: Some(Json { form: Some(json::Form::Raw(b"{\"n\":9007199254740993}".to_vec())) }),
                awaits_result: true,
                ..ToolCallStarted::default()
            }),
            ToolOfTurn(id, model_turn) => Event::ToolStarted(ToolCallStarted {
                call_id: id.to_owned(),
                name: "known".to_owned(),
                model_turn,
                ..ToolCallStarted::default()
            }),
            ModelTurn => Event::ModelTurn(forge::wire::agent::ModelTurn::default()),
            ToolEnd(id) => Event::ToolFinished(ToolCallFinished {
                call_id: id.to_owned(),
                outcome: Some(tool_call_finished::Outcome::Result(Json::default())),
                ..ToolCallFinished::default()
            }),
            AwaitResult => loop {
                match frames.message().await {
                    Ok(Some(InvokeRequest { frame: Some(Frame::ToolResult(result)) })) => {
                        let text = match result.outcome {
                            Some(tool_result::Outcome::Result(Json { form: Some(json::Form::Raw(raw)) })) => {
                                String::from_utf8(raw).unwrap()
                            }
                            Some(tool_result::Outcome::Error(fault)) => format!("[{}] ", fault.message),
                            other => format!("{other:?}"),
                        };
                        break Event::TextDelta(TextDelta { text, ..TextDelta::default() });
                    }
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => return,
                }
            },
            Answer(text) => finished(FinishReason::Completed, Some(text)),
            AnswerOf(text, tokens) => match finished(FinishReason::Completed, Some(text)) {
                Event::Finished(finished) => {
                    let usage = Some(Usage { output_tokens: Some(tokens), ..Usage::default() });
                    Event::Finished(InvokeFinished { usage, ..finished })
                }
                other => other,
            },
            AnswerInParts(parts) => match finished(FinishReason::Completed, Some("")) {
                Event::Finished(finished) => {
                    let response = finished.response.map(|response| {
                        let parts = vec![response.parts[0].clone(); parts];
                        Message { parts, ..response }
                    });
                    Event::Finished(InvokeFinished { response, ..finished })
                }
                other => other,
            },
            Finish(reason) => finished(reason, None),
            Sleep(millis) => {
                tokio::time::sleep(Duration::from_millis(millis)).await;
                continue;
            }
            Hang => {
                while let Ok(Some(frame)) = frames.message().await {
                    if let Some(Frame::Cancel(cancel)) = frame.frame {
                        seen.cancels.lock().unwrap().push(cancel.reason);
                    }
                }
                return;
            }
            Deaf => {
                tokio::time::sleep(Duration::from_hours(1)).await;
                drop(frames);
                return;
            }
            ObeyCancel => loop {
                match frames.message().await {
                    Ok(Some(InvokeRequest { frame: Some(Frame::Cancel(cancel)) })) => {
                        seen.cancels.lock().unwrap().push(cancel.reason);
                        break finished(FinishReason::Cancelled, None);
                    }
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => return,
                }
            },
            End(code) => {
                let _ = out.send(Err(Status::new(code, "as scripted"))).await;
                return;
            }
            EndBecause(code, reason, message) => {
                let details = ErrorDetails::with_error_info(reason, "forge.agent.v1", HashMap::new());
                let _ = out.send(Err(Status::with_error_details(code, message, details))).await;
                return;
            }
            EndWith(bytes) => {
                let _ = out.send(Err(Status::internal("y".repeat(bytes)))).await;
                return;
            }
            EndOk => return,
            Skew(by) => {
                seq += by;
                continue;
            }
            Unnumbered => {
                numbered = false;
                continue;
            }
        };
        seq += 1;
        let seq = if numbered { seq } else { 0 };
        if out.send(Ok(InvokeResponse { seq, elapsed: None, event: Some(event) })).await.is_err() {
            return;
        }
    }
}

/// Knows `a.b`, and says of all other paths that it does not.
#[derive(Clone)]
enum Provider {
    Knows(&'static str),
    Fails,
}

#[tonic::async_trait]
impl SnapshotProvider for Provider {
    async fn capture(&self, request: Request<CaptureRequest>) -> Result<Response<CaptureResponse>, Status> {
        let Self::Knows(data) = self else { return Err(Status::internal("the exchange is closed")) };
        let unknown = request.into_inner().paths.into_iter().filter(|path| path != "a.b");
        Ok(Response::new(CaptureResponse {
            data: Some(Json { form: Some(json::Form::Raw(data.as_bytes().to_vec())) }),
            unresolved: unknown
                .map(|path| (path, Fault { message: "no quote".to_owned(), ..Fault::default() }))
                .collect(),
            ..CaptureResponse::default()
        }))
    }
}

/// A run against a scripted agent, and what came of it.
struct Outcomes {
    results: Vec<(String, CaseResult)>,
    run: Run,
    log: Vec<Draft>,
    seen: Arc<Seen>,
    took: Duration,
}

impl Outcomes {
    fn of(&self, id: &str) -> &CaseResult {
        &self.results.iter().find(|(case, _)| case == id).expect("the case has a verdict").1
    }
}

struct Setup {
    scripts: Vec<(&'static str, Vec<Step>)>,
    cases: String,
    concurrency: u32,
    timeout: Duration,
    capabilities: Vec<&'static str>,
    tool_mode: ToolMode,
    max_concurrent: u32,
    tools: Vec<ToolSpec>,
    /// What else the request says.
    ask: fn(&mut RunSpec),
    provider: Option<Provider>,
    cancel_after: Option<(Duration, CancelReason)>,
    /// From when to when no case starts.
    paused: Option<(Duration, Duration)>,
    /// From when to when nobody listens where the agent should; connections that were open are cut.
    down: Vec<(Duration, Duration)>,
}

impl Setup {
    /// One case whose only message is `hi`.
    fn one(script: Vec<Step>) -> Self {
        Self::cases(
            vec![("*", script)],
            r#"[{"id": "a", "input": {"message": "hi"}, "expect": {"responseContains": ["yes"]}}]"#,
        )
    }

    fn cases(scripts: Vec<(&'static str, Vec<Step>)>, cases: &str) -> Self {
        Self {
            scripts,
            cases: cases.to_owned(),
            concurrency: 1,
            timeout: Duration::from_secs(10),
            capabilities: vec!["tools.stub"],
            tool_mode: ToolMode::Live,
            max_concurrent: 0,
            tools: Vec::new(),
            ask: |_| {},
            provider: None,
            cancel_after: None,
            paused: None,
            down: Vec::new(),
        }
    }

    async fn run(self) -> Outcomes {
        let begun = Instant::now();
        let seen = Arc::new(Seen::default());
        let limits = Limits { max_concurrent_invocations: self.max_concurrent, ..Limits::default() };
        let description = DescribeResponse {
            revision: 1,
            card: Some(AgentCard {
                agent_id: "scripted".to_owned(),
                model: "gpt-test".to_owned(),
                tools: self.tools,
                ..AgentCard::default()
            }),
            capabilities: self.capabilities.iter().map(|c| (*c).to_owned()).collect(),
            limits: Some(limits),
            ..DescribeResponse::default()
        };
        let agent = Scripted { scripts: Arc::new(self.scripts), description, seen: Arc::clone(&seen), begun };
        let (agent, server) = if self.down.is_empty() {
            let router = Server::builder().add_service(AgentEndpointServer::new(agent));
            over_a_pipe(router.add_optional_service(self.provider.map(SnapshotProviderServer::new))).await
        } else {
            (over_a_shaky_pipe(agent, self.down, begun), tokio::spawn(async {}))
        };
        let suite = suite::parse("a.golden.json", self.cases.as_bytes(), &suite::Defaults::default()).expect("a suite");
        let mut spec = RunSpec {
            concurrency: self.concurrency,
            case_timeout: Some(Timeout { duration: self.timeout, written: format!("{:?}", self.timeout) }),
            tool_mode: self.tool_mode,
            ..RunSpec::new("scripted", vec!["a.golden.json".to_owned()])
        };
        (self.ask)(&mut spec);
        let plan = plan(vec![suite], forge::suite::template::Data::default(), &spec).expect("cases");
        let run =
            Run { created_at: jiff::Timestamp::UNIX_EPOCH, ..queued("run".to_owned(), spec, &plan, String::new()) };
        let (events, mut drafts) = Room::default().outlet(16);
        let farewells = Farewells::default();
        let control = Control::default();
        if let Some((after, reason)) = self.cancel_after {
            let control = control.clone();
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                control.cancel(reason);
            });
        }
        if let Some((from, to)) = self.paused {
            let control = control.clone();
            tokio::spawn(async move {
                tokio::time::sleep_until(begun + from).await;
                control.pace(true, None);
                tokio::time::sleep_until(begun + to).await;
                control.pace(false, None);
            });
        }
        let snapshot = run.spec.snapshot_agent.is_some().then(|| agent.clone());
        let engine = tokio::spawn(execute(
            Job {
                run,
                plan,
                agent,
                baselines: Vec::new(),
                registry: None,
                parties: HashMap::new(),
                scripts: None,
                snapshot,
                evidence: None,
                done: Done::default(),
                spans: Arc::default(),
                span_wait: Duration::from_secs(6),
            },
            events,
            farewells.clone(),
            control,
        ));
        let mut log = Vec::new();
        while let Some(Waiting { draft, .. }) = drafts.recv().await {
            log.push(draft);
        }
        engine.await.expect("the engine does not panic");
        let took = begun.elapsed();
        // What is left of cancelled calls has its grace; the verdicts were there long before.
        tokio::time::sleep(Duration::from_secs(5)).await;
        farewells.finish().await;
        server.abort();
        let results = log.iter().filter_map(|draft| match &draft.payload {
            Payload::CaseFinished(result) => {
                let case = draft.case.as_ref().expect("a verdict is about a case");
                Some((case.case_id.to_string(), (**result).clone()))
            }
            _ => None,
        });
        let results = results.collect();
        let Some(Payload::RunFinished(run)) = log.last().map(|draft| draft.payload.clone()) else {
            panic!("the last event is the end of the run");
        };
        Outcomes { results, run: *run, log, seen, took }
    }
}

/// An agent whom nobody can connect with for some times since `begun`, and whose connections break when such a time
/// begins.
fn over_a_shaky_pipe(agent: Scripted, down: Vec<(Duration, Duration)>, begun: Instant) -> Agent {
    let connector = tower::service_fn(move |_| {
        let (now, agent) = (begun.elapsed(), agent.clone());
        let is_down = down.iter().any(|(from, to)| (*from..*to).contains(&now));
        let next = down.iter().map(|(from, _)| *from).find(|from| *from > now);
        async move {
            if is_down {
                return Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
            }
            let ((near, mut from), (mut to, far)) = (tokio::io::duplex(1 << 20), tokio::io::duplex(1 << 20));
            let router = Server::builder().add_service(AgentEndpointServer::new(agent));
            tokio::spawn(router.serve_with_incoming(tokio_stream::once(Ok::<_, std::io::Error>(far))));
            tokio::spawn(async move {
                let end = async {
                    match next {
                        Some(next) => tokio::time::sleep_until(begun + next).await,
                        None => std::future::pending().await,
                    }
                };
                // What is dropped here breaks the connection for both.
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut from, &mut to) => {}
                    () = end => {}
                }
            });
            Ok(TokioIo::new(near))
        }
    });
    Agent::over("scripted", "pipe", Endpoint::from_static("http://pipe").connect_with_connector_lazy(connector))
}

pub(crate) async fn over_a_pipe(router: Router) -> (Agent, tokio::task::JoinHandle<()>) {
    let (near, far) = tokio::io::duplex(1 << 20);
    let server = tokio::spawn(async move {
        let incoming = tokio_stream::once(Ok::<_, std::io::Error>(far));
        let _ = router.serve_with_incoming(incoming).await;
    });
    let mut near = Some(near);
    let connector = tower::service_fn(move |_| {
        let near = near.take();
        async move { near.map(TokioIo::new).ok_or_else(|| std::io::Error::other("the pipe is used up")) }
    });
    let channel = Endpoint::from_static("http://pipe").connect_with_connector(connector).await.expect("a pipe");
    (Agent::over("scripted", "pipe", channel), server)
}

/// Each ending of a call has its outcome, cause and blame, and keeps what was recorded.
#[tokio::test(start_paused = true)]
async fn endings() {
    let table = [
        ("answers", vec![Accept, Text("yes"), Answer("yes")], Outcome::Passed, None, None, ""),
        (
            "answers with deltas only",
            vec![Accept, Text("y"), Text("es"), Finish(FinishReason::Completed)],
            Outcome::Passed,
            None,
            None,
            "",
        ),
        (
            "refuses, which is an answer",
            vec![Accept, Finish(FinishReason::Refused)],
            Outcome::Failed,
            Some(Cause::Assertion),
            Some(Blame::Agent),
            "responseContains",
        ),
        (
            "fails",
            vec![Accept, Finish(FinishReason::Failed)],
            Outcome::Failed,
            Some(Cause::AgentError),
            Some(Blame::Agent),
            "agent error: ",
        ),
        (
            "gives up its budget",
            vec![Accept, Finish(FinishReason::BudgetExceeded)],
            Outcome::Failed,
            Some(Cause::Timeout),
            Some(Blame::Agent),
            "timeout",
        ),
        (
            "cancels by itself",
            vec![Accept, Finish(FinishReason::Cancelled)],
            Outcome::Failed,
            Some(Cause::AgentError),
            Some(Blame::Agent),
            "agent error: ",
        ),
        (
            "status before accepted",
            vec![End(tonic::Code::ResourceExhausted)],
            Outcome::Failed,
            Some(Cause::AgentError),
            Some(Blame::Agent),
            "RESOURCE_EXHAUSTED: as scripted",
        ),
        (
            "wants to know who asks",
            vec![End(tonic::Code::Unauthenticated)],
            Outcome::Errored,
            Some(Cause::Unreachable),
            Some(Blame::Network),
            "agent unreachable: UNAUTHENTICATED: as scripted",
        ),
        (
            "status after the text",
            vec![Accept, Text("yes"), End(tonic::Code::Internal)],
            Outcome::Failed,
            Some(Cause::AgentError),
            Some(Blame::Agent),
            "INTERNAL: as scripted",
        ),
        (
            "an answer that would take a gigabyte",
            vec![Accept, AnswerInParts(2_000_000)],
            Outcome::Failed,
            Some(Cause::ProtocolViolation),
            Some(Blame::Agent),
            "it holds so many messages inside of each other",
        ),
        (
            "ends without finished",
            vec![Accept, Text("yes"), EndOk],
            Outcome::Failed,
            Some(Cause::ProtocolViolation),
            Some(Blame::Agent),
            "without `finished`",
        ),
        (
            "two finished",
            vec![Accept, Answer("yes"), Answer("yes")],
            Outcome::Failed,
            Some(Cause::ProtocolViolation),
            Some(Blame::Agent),
            "after `finished`",
        ),
        (
            "a gap in the numbers",
            vec![Accept, Skew(1), Text("yes"), Answer("yes")],
            Outcome::Failed,
            Some(Cause::ProtocolViolation),
            Some(Blame::Agent),
            "expected seq 2, got 3",
        ),
        (
            "a result without a call",
            vec![Accept, ToolEnd("1"), Answer("yes")],
            Outcome::Failed,
            Some(Cause::ProtocolViolation),
            Some(Blame::Agent),
            "never started",
        ),
        (
            "hangs",
            vec![Accept, Text("yes"), Hang],
            Outcome::Failed,
            Some(Cause::Timeout),
            Some(Blame::Agent),
            "timeout",
        ),
        ("hangs before accepting", vec![Hang], Outcome::Failed, Some(Cause::Timeout), Some(Blame::Agent), "timeout"),
        (
            "answers too late",
            vec![Accept, Sleep(10_001), Answer("yes")],
            Outcome::Failed,
            Some(Cause::Timeout),
            Some(Blame::Agent),
            "timeout",
        ),
    ];
    for (name, script, outcome, cause, blame, error) in table {
        let outcomes = Setup::one(script.clone()).run().await;
        let result = outcomes.of("a");
        assert_eq!((result.outcome, result.cause, result.blame), (outcome, cause, blame), "{name}: {:?}", result.error);
        assert!(result.error.as_deref().unwrap_or_default().contains(error), "{name}: {:?}", result.error);
        if script.iter().any(|step| matches!(step, Text("yes"))) && outcome != Outcome::Passed {
            let kept = matches!(result.transcript.response.as_str(), "yes" | "");
            assert!(kept, "{name}: the partial text is kept: {:?}", result.transcript.response);
        }
        assert_eq!(outcomes.seen.invocations.load(Ordering::SeqCst), 1, "{name}: the call is made once");
        assert_eq!(outcomes.run.state, State::of(&outcomes.run.totals, None), "{name}");
        assert_eq!(outcomes.run.error.is_some(), name == "wants to know who asks", "{name}");
    }
}

/// What an agent may leave out is a warning, once for the run.
#[tokio::test(start_paused = true)]
async fn leniency() {
    let script = vec![Unnumbered, Text("no"), Answer("yes")];
    let cases = r#"[{"id": "a", "input": {"message": "x"}, "expect": {"responseContains": ["yes"]}},
                    {"id": "b", "input": {"message": "x"}, "expect": {"responseContains": ["yes"]}}]"#;
    let outcomes = Setup::cases(vec![("*", script)], cases).run().await;
    assert_eq!(outcomes.run.state, State::Passed);
    assert_eq!(outcomes.run.warnings.len(), 3, "{:?}", outcomes.run.warnings);
}

/// At the deadline the slot is free at once; the agent is told, gets its grace, and is cut off.
#[tokio::test(start_paused = true)]
async fn a_hung_agent_frees_its_slot_at_once() {
    let scripts =
        vec![("hang", vec![Accept, ToolStart("1", "search"), Text("half"), Hang]), ("*", vec![Accept, Answer("yes")])];
    let cases = r#"[{"id": "a", "input": {"message": "hang"}}, {"id": "b", "input": {"message": "x"}, "expect": {"responseContains": ["yes"]}}]"#;
    let outcomes = Setup { timeout: Duration::from_millis(500), ..Setup::cases(scripts, cases) }.run().await;
    let hung = outcomes.of("a");
    assert_eq!(hung.cause, Some(Cause::Timeout));
    assert_eq!(hung.transcript.response, "half");
    assert_eq!(hung.transcript.tool_calls[0].name, "search");
    assert_eq!(hung.transcript.duration.as_millis(), 500);
    assert_eq!(outcomes.of("b").outcome, Outcome::Passed);
    assert!(outcomes.took < Duration::from_millis(600), "{:?}", outcomes.took);
    assert_eq!(*outcomes.seen.cancels.lock().unwrap(), [forge::wire::agent::CancelReason::Budget as i32]);
    let gone = outcomes.seen.gone.lock().unwrap().clone();
    assert!(
        gone.iter().any(|at| (2490..2600).contains(&at.as_millis())),
        "the stream is reset after the grace: {gone:?}"
    );
}

/// Headers that nobody reads, such as a status of a megabyte, are the doing of the agent that sends them.
#[tokio::test(start_paused = true)]
async fn a_status_that_nobody_reads() {
    for bytes in [300_000, 1_000_000] {
        for script in [vec![Accept, EndWith(bytes)], vec![EndWith(bytes)]] {
            let outcomes = Setup::one(script).run().await;
            let result = outcomes.of("a");
            let said = (result.cause, result.blame);
            assert_eq!(said, (Some(Cause::ProtocolViolation), Some(Blame::Agent)), "{bytes}: {result:?}");
        }
    }
}

/// A cancelled run ends at once, tells its agents, and every planned case has an end.
#[tokio::test(start_paused = true)]
async fn cancellation() {
    let cases: Vec<String> = (0..5).map(|n| format!(r#"{{"id": "c{n}", "input": {{"message": "x"}}}}"#)).collect();
    let setup = Setup {
        concurrency: 2,
        cancel_after: Some((Duration::from_secs(1), CancelReason::User)),
        ..Setup::cases(vec![("*", vec![Accept, Text("half"), ObeyCancel])], &format!("[{}]", cases.join(",")))
    };
    let outcomes = setup.run().await;
    assert_eq!(outcomes.run.state, State::Cancelled);
    assert_eq!(outcomes.run.exit_code(), 3);
    assert_eq!(outcomes.results.len(), 5);
    assert!(outcomes.took < Duration::from_millis(1100), "{:?}", outcomes.took);
    let running = outcomes.results.iter().filter(|(_, result)| result.outcome == Outcome::Errored);
    let running: Vec<_> = running.map(|(id, result)| (id.as_str(), result.cause, result.blame)).collect();
    assert_eq!(
        running,
        [("c0", Some(Cause::Cancelled), Some(Blame::Daemon)), ("c1", Some(Cause::Cancelled), Some(Blame::Daemon))]
    );
    assert_eq!(outcomes.run.totals.not_run, 3);
    assert_eq!(*outcomes.seen.cancels.lock().unwrap(), [forge::wire::agent::CancelReason::User as i32; 2]);
}

/// As many cases at a time as asked for, never more than the agent can take, in the order of the file.
#[tokio::test(start_paused = true)]
async fn concurrency() {
    for (asked, agent_limit, most, millis) in [(1, 0, 1, 800), (4, 0, 4, 200), (8, 3, 3, 300)] {
        let cases: Vec<String> = (0..8).map(|n| format!(r#"{{"id": "c{n}", "input": {{"message": "x"}}}}"#)).collect();
        let setup = Setup {
            concurrency: asked,
            max_concurrent: agent_limit,
            ..Setup::cases(vec![("*", vec![Accept, Sleep(100), Answer("yes")])], &format!("[{}]", cases.join(",")))
        };
        let outcomes = setup.run().await;
        assert_eq!(outcomes.seen.most_at_once.load(Ordering::SeqCst), most);
        let took = u64::try_from(outcomes.took.as_millis()).unwrap();
        assert!((millis..millis + 50).contains(&took), "{took} ms");
        let started = outcomes.log.iter().filter(|draft| matches!(draft.payload, Payload::CaseStarted { .. }));
        let started: Vec<String> = started.map(|draft| draft.case.as_ref().unwrap().case_id.to_string()).collect();
        assert_eq!(started, (0..8).map(|n| format!("c{n}")).collect::<Vec<_>>());
        let conversations = outcomes.seen.conversations.lock().unwrap().clone();
        let distinct: std::collections::HashSet<_> = conversations.iter().collect();
        assert_eq!(distinct.len(), 8, "each case is a conversation of its own");
    }
}

/// All that the agent said, from call to call.
fn said(result: &CaseResult) -> String {
    format!("{}{}", result.transcript.commentary, result.transcript.response)
}

/// With stubs the daemon answers the tools; a tool without one gets an error and the loop goes on.
#[tokio::test(start_paused = true)]
async fn stubs() {
    let script = vec![
        Accept,
        ToolStart("1", "known"),
        AwaitResult,
        ToolEnd("1"),
        ToolStart("2", "other"),
        AwaitResult,
        ToolEnd("2"),
        Finish(FinishReason::Completed),
    ];
    let cases =
        r#"[{"id": "a", "input": {"message": "x"}, "stubs": {"known": {"t": 18}}, "expect": {"noToolErrors": true}}]"#;
    let outcomes = Setup::cases(vec![("*", script.clone())], cases).run().await;
    let result = outcomes.of("a");
    assert_eq!(said(result), r#"{"t":18}[the case has no stub for the tool "other"] "#);
    assert_eq!(result.error.as_deref(), Some("noToolErrors: \"other\" was called, which has no stub"));
    let served = outcomes.log.iter().filter(|draft| matches!(draft.payload, Payload::StubServed { .. })).count();
    assert_eq!(served, 2);

    let outcomes = Setup { capabilities: Vec::new(), ..Setup::cases(vec![("*", script)], cases) }.run().await;
    let result = outcomes.of("a");
    assert_eq!(
        (result.outcome, result.cause, result.blame),
        (Outcome::Errored, Some(Cause::Unsupported), Some(Blame::Suite))
    );
    assert!(result.error.as_deref().unwrap_or_default().contains("tools.stub"), "{:?}", result.error);
    assert_eq!(outcomes.seen.invocations.load(Ordering::SeqCst), 0, "the mode is never sent");
}

/// A stub may fail, take its time, or look at the arguments.
#[tokio::test(start_paused = true)]
async fn stubs_that_do_more() {
    let call = |id, tool| [ToolStart(id, tool), AwaitResult, ToolEnd(id)];
    let script = [call("1", "fails"), call("2", "late"), call("3", "by"), call("4", "by_none")];
    let script: Vec<Step> =
        [Accept].into_iter().chain(script.into_iter().flatten()).chain([Finish(FinishReason::Completed)]).collect();
    // The scripted calls have the arguments {"n":9007199254740993}.
    let cases = r#"[{"id": "a", "input": {"message": "x"}, "stubs": {
        "fails": {"$error": "down"},
        "late": {"$delayMs": 700, "$value": [1]},
        "by": {"$cases": [{"when": {"n": 9007199254740992}, "then": "other"}, {"when": {"n": 9007199254740993}, "then": "this"}]},
        "by_none": {"$cases": [{"when": {"m": 1}, "then": 1}]}}, "expect": {"noToolErrors": true}}]"#;
    let outcomes = Setup::cases(vec![("*", script)], cases).run().await;
    let result = outcomes.of("a");
    let expected = "[down] [1]\"this\"[the stub for the tool \"by_none\" has no answer to these arguments] ";
    assert_eq!((said(result).as_str(), result.outcome), (expected, Outcome::Passed));
    assert!(result.transcript.duration >= Duration::from_millis(700));
}

/// Routing only: tools are looked at and not run, if the agent can do that.
#[tokio::test(start_paused = true)]
async fn routing_only() {
    let script = vec![Accept, ToolStart("1", "t"), Finish(FinishReason::ToolCalls)];
    let cases = r#"[{"id": "a", "input": {"message": "x"}, "expect": {"toolsCalled": ["t"], "noToolErrors": true}}]"#;
    let setup = || Setup { tool_mode: ToolMode::RoutingOnly, ..Setup::cases(vec![("*", script.clone())], cases) };
    let outcomes = Setup { capabilities: vec!["tools.routing"], ..setup() }.run().await;
    assert_eq!((outcomes.of("a").outcome, outcomes.of("a").assertions.len()), (Outcome::Passed, 1));
    let outcomes = setup().run().await;
    assert!(outcomes.of("a").error.as_deref().unwrap_or_default().contains("tools.routing"));
}

/// An agent that does not read what its tools answered holds up nobody: not the deadline, not a cancel.
#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_read() {
    let mut script = vec![Accept];
    script.extend((0..200).map(|n| ToolStart(String::leak(n.to_string()), "known")));
    script.push(Deaf);
    let stub = "x".repeat(20_000);
    let cases = format!(r#"[{{"id": "a", "input": {{"message": "x"}}, "stubs": {{"known": "{stub}"}}}}]"#);
    let outcomes = Setup::cases(vec![("*", script.clone())], &cases).run().await;
    let result = outcomes.of("a");
    assert_eq!((result.cause, result.transcript.tool_calls.len()), (Some(Cause::Timeout), 200));
    assert!(outcomes.took < Duration::from_millis(10_100), "{:?}", outcomes.took);

    let cancel_after = Some((Duration::from_secs(1), CancelReason::User));
    let outcomes = Setup { cancel_after, ..Setup::cases(vec![("*", script)], &cases) }.run().await;
    assert_eq!(outcomes.of("a").cause, Some(Cause::Cancelled));
    assert!(outcomes.took < Duration::from_millis(1_100), "{:?}", outcomes.took);
}

/// What the agent says it cannot take is not sent to it.
#[tokio::test(start_paused = true)]
async fn too_large_for_the_agent() {
    let message = "x".repeat(5 << 20);
    let cases = format!(r#"[{{"id": "a", "input": {{"message": "{message}"}}}}]"#);
    let outcomes = Setup::cases(vec![("*", vec![Accept, Answer("yes")])], &cases).run().await;
    let result = outcomes.of("a");
    assert_eq!((result.outcome, result.blame), (Outcome::Errored, Some(Blame::Suite)));
    assert!(result.error.as_deref().unwrap_or_default().contains("takes 4194304"), "{:?}", result.error);
    assert_eq!(outcomes.seen.invocations.load(Ordering::SeqCst), 0);
}

/// Parameters arrive as the bytes that were sent.
#[tokio::test(start_paused = true)]
async fn parameters_keep_their_digits() {
    let script = vec![Accept, ToolStart("1", "t"), ToolEnd("1"), Answer("yes")];
    let outcomes = Setup::one(script).run().await;
    let call = &outcomes.of("a").transcript.tool_calls[0];
    let Some(forge::conversation::MaybeJson::Json(text)) = call.params.given() else { panic!("{call:?}") };
    assert_eq!(text.as_str(), "{\"n\":9007199254740993}");
}

/// A case without a message is not sent.
#[tokio::test(start_paused = true)]
async fn nothing_to_send() {
    let outcomes = Setup::cases(vec![("*", vec![Hang])], r#"[{"id": "a", "input": {"message": ""}}]"#).run().await;
    let result = outcomes.of("a");
    assert_eq!((result.cause, result.error.as_deref()), (Some(Cause::NoInput), Some("no input message")));
    assert_eq!(outcomes.seen.invocations.load(Ordering::SeqCst), 0);
    assert_eq!(outcomes.run.exit_code(), 3);
}

/// The daemon asks a snapshot provider for the paths that the cases use, and runs nothing without an answer.
#[tokio::test(start_paused = true)]
async fn a_snapshot_is_asked_for_before_the_first_case() {
    let cases = r#"[
        {"id": "known", "input": {"message": "x"}, "expect": {"responseContains": ["{{snapshot:a.b}} yes"]}},
        {"id": "unknown", "input": {"message": "x"}, "expect": {"responseContains": ["yes", "{{snapshot:a.c}}"]}}]"#;
    let setup = |provider| Setup {
        provider,
        ask: |spec| spec.snapshot_agent = Some("prices".to_owned()),
        ..Setup::cases(vec![("*", vec![Accept, Answer("9007199254740993 yes")])], cases)
    };
    let outcomes = setup(Some(Provider::Knows(r#"{"a": {"b": 9007199254740993}}"#))).run().await;
    assert_eq!(outcomes.run.state, State::Passed, "{:?}", outcomes.results);
    assert_eq!(outcomes.of("unknown").assertions_skipped(), 1);
    let told = outcomes.run.warnings.iter().any(|text| text.contains("\"a.c\": no quote"));
    assert!(told, "{:?}", outcomes.run.warnings);

    for (provider, why) in [
        (Some(Provider::Fails), "the exchange is closed"),
        (Some(Provider::Knows("[1]")), "not an object of values"),
        (Some(Provider::Knows("{")), "is no JSON"),
        (None, "does not implement SnapshotProvider"),
    ] {
        let outcomes = setup(provider).run().await;
        let error = outcomes.run.error.clone().expect("the run cannot begin");
        assert!(error.message.contains(why), "{error:?}");
        assert_eq!((outcomes.run.exit_code(), error.reason.as_str()), (3, "SNAPSHOT_FAILED"));
        assert_eq!(outcomes.seen.invocations.load(Ordering::SeqCst), 0, "no case runs");
        let result = outcomes.of("known");
        assert_eq!((result.outcome, result.cause), (Outcome::Skipped, Some(Cause::SnapshotError)));
    }
}

/// Arguments are held against the schema that the tool declares: a warning, or a failure if the run asks for it.
#[tokio::test(start_paused = true)]
async fn arguments_and_their_schema() {
    let schema = r#"{"properties": {"n": {"type": "string"}}}"#;
    let tool = |schema: &str| ToolSpec {
        name: "t".to_owned(),
        input_schema: Some(Json { form: Some(json::Form::Raw(schema.as_bytes().to_vec())) }),
        ..ToolSpec::default()
    };
    // The scripted calls have the arguments {"n":9007199254740993}.
    let script = vec![Accept, ToolStart("1", "t"), ToolEnd("1"), Answer("yes")];
    let setup = || Setup { tools: vec![tool(schema)], ..Setup::one(script.clone()) };
    let outcomes = setup().run().await;
    let result = outcomes.of("a");
    assert_eq!(result.outcome, Outcome::Passed);
    assert_eq!(result.warnings, ["arguments: \"t\" at /n: 9007199254740993 is not of type \"string\""]);

    let outcomes = Setup { ask: |spec| spec.check_arguments = true, ..setup() }.run().await;
    let result = outcomes.of("a");
    assert_eq!(
        (result.outcome, result.cause, result.blame),
        (Outcome::Failed, Some(Cause::Assertion), Some(Blame::Agent))
    );
    assert_eq!(result.failed_assertion.as_deref(), Some("toolArguments"));

    let hostile = tool(r##"{"properties": {"n": {"$ref": "#"}}}"##);
    let outcomes = Setup { tools: vec![hostile], ..setup() }.run().await;
    assert_eq!(outcomes.of("a").outcome, Outcome::Passed);
    assert!(
        outcomes.run.warnings.iter().any(|text| text.contains("leads back to itself")),
        "{:?}",
        outcomes.run.warnings
    );
}

/// What a case cost: from the agent's tokens and a price, or from an estimate that says so.
#[tokio::test(start_paused = true)]
async fn costs() {
    fn priced(spec: &mut RunSpec) {
        let price = Price { input: 0, output: 2_000_000_000_000, cache_read: None, cache_write: None };
        spec.prices.0.insert("gpt*".to_owned(), price);
    }
    let cases = r#"[{"id": "a", "input": {"message": "x"}, "expect": {"maxCost": 0.001, "maxTokens": 100}}]"#;
    let setup = |answer| Setup::cases(vec![("*", vec![Accept, answer])], cases);
    let outcomes = Setup { ask: priced, ..setup(AnswerOf("yes", 600)) }.run().await;
    let result = outcomes.of("a");
    assert_eq!(result.error.as_deref(), Some("maxTokens: the response has 600 tokens, more than 100"));
    assert_eq!(outcomes.run.totals.usage.cost.map(|cost| (cost.nano_usd, cost.estimated)), Some((1_200_000_000, true)));

    // "yes" is one token, and 2 thousandths of a dollar.
    let outcomes = Setup { ask: priced, ..setup(Answer("yes")) }.run().await;
    let usage = outcomes.of("a").transcript.usage.expect("a cost");
    assert_eq!((usage.cost.map(|cost| cost.nano_usd), usage.output_tokens), (Some(2_000_000), None));

    let outcomes = setup(Answer("yes")).run().await;
    let result = outcomes.of("a");
    assert_eq!((result.outcome, result.assertions_skipped()), (Outcome::Passed, 1));
    assert!(result.warnings[0].starts_with("maxCost was skipped: "), "{:?}", result.warnings);
}
