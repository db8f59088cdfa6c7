//! The log of a run ↔ [`crate::event`].

use std::sync::Arc;

use super::agent::ToolCallRecord;
use super::call::{
    card_from_proto, card_to_proto, event_from_proto, event_to_proto, message_from_proto, message_to_proto,
    tool_call_from_proto, tool_call_to_proto, tool_mode_from_proto, tool_mode_to_proto, tool_result_from_proto,
    tool_result_to_proto,
};
use super::control as pb;
use super::run::{run_from_proto, run_to_proto, time_from_proto, time_to_proto};
use super::value::{WireError, duration_from_proto, duration_to_proto, some_text, usage_from_proto, usage_to_proto};
use super::verdict::{case_result_from_proto, case_result_to_proto, turn_from_proto, turn_to_proto};
use crate::case::CaseRef;
use crate::conversation::{Arguments, CancelReason, Failure, JsonText, SpanEvidence, ToolCall};
use crate::event::{Asked, CallEnd, PartyRole, PartySaid, Payload, RunEvent, Said};
use crate::suite::{Labels, ModeKind};

/// An event of a run's log.
#[must_use]
pub fn run_event_to_proto(event: &RunEvent) -> pb::RunEvent {
    use pb::run_event::Payload as Wire;
    let payload = match &event.payload {
        Payload::RunStarted(run) => Wire::RunStarted(run_to_proto(run)),
        Payload::CasePlanned { name, labels } => Wire::CasePlanned(pb::CasePlanned {
            name: name.clone(),
            difficulty: labels.difficulty.clone().unwrap_or_default(),
            bug_ref: labels.bug_ref.clone().unwrap_or_default(),
            created_at: labels.created_at.clone().unwrap_or_default(),
            tags: labels.tags.clone(),
        }),
        Payload::CaseStarted { mode, tool_mode, invocation_id } => Wire::CaseStarted(pb::CaseStarted {
            name: String::new(),
            mode: mode.name().to_owned(),
            tool_mode: tool_mode_to_proto(*tool_mode).into(),
            invocation_id: invocation_id.clone(),
        }),
        Payload::Agent(event) => Wire::AgentEvent(event_to_proto(event)),
        Payload::StubServed { call_id, outcome, unstubbed } => {
            Wire::StubServed(tool_result_to_proto(call_id, outcome, *unstubbed))
        }
        Payload::AgentDescribed(card) => Wire::AgentDescribed(card_to_proto(card)),
        Payload::CallEnded(ended) => Wire::CallEnded(call_end_to_proto(ended)),
        Payload::SpansRead(read) => Wire::SpansRead(pb::SpansRead {
            tool_calls: read.tool_calls.iter().map(tool_call_to_proto).collect(),
            began: read.began.iter().map(|began| time_to_proto(*began)).collect(),
            confirmed: read.confirmed,
            waited: Some(duration_to_proto(read.waited)),
            spans: read.spans,
            dropped: read.dropped,
        }),
        Payload::PartySaid(party) => Wire::PartySaid(party_to_proto(party)),
        Payload::TurnFinished(turn) => Wire::TurnFinished(turn_to_proto(turn)),
        Payload::CheckpointReached { checkpoint } => {
            Wire::CheckpointReached(pb::CheckpointReached { checkpoint_id: checkpoint.clone() })
        }
        Payload::AttemptFinished(result) => Wire::AttemptFinished(case_result_to_proto(result)),
        Payload::CaseFinished(result) => Wire::CaseFinished(case_result_to_proto(result)),
        Payload::SnapshotTaken(values) => Wire::SnapshotTaken(values.as_str().to_owned()),
        Payload::Warning(text) => Wire::Warning(text.clone()),
        Payload::RunFinished(run) => Wire::RunFinished(run_to_proto(run)),
    };
    let case = event.case.as_ref().map(|case| pb::CaseRef {
        suite: case.suite.to_string(),
        case_id: case.case_id.to_string(),
        repeat: case.repeat,
        attempt: case.attempt,
    });
    pb::RunEvent {
        sequence: event.sequence,
        at: Some(time_to_proto(event.at)),
        case,
        turn: event.turn,
        payload: Some(payload),
    }
}

/// Reads an event of a run's log; `None` for one of a kind that this version does not know.
///
/// # Errors
/// When a known event cannot be read.
pub fn run_event_from_proto(event: pb::RunEvent) -> Result<Option<RunEvent>, WireError> {
    use pb::run_event::Payload as Wire;
    let payload = match event.payload {
        None => return Ok(None),
        Some(Wire::RunStarted(run)) => Payload::RunStarted(Box::new(run_from_proto(run)?)),
        Some(Wire::CasePlanned(planned)) => {
            let labels = Labels {
                difficulty: some_text(planned.difficulty),
                bug_ref: some_text(planned.bug_ref),
                created_at: some_text(planned.created_at),
                tags: planned.tags,
            };
            Payload::CasePlanned { name: planned.name, labels }
        }
        Some(Wire::CaseStarted(started)) => Payload::CaseStarted {
            tool_mode: tool_mode_from_proto(started.tool_mode)?,
            mode: mode_from_proto(&started.mode)?,
            invocation_id: started.invocation_id,
        },
        Some(Wire::AgentEvent(event)) => Payload::Agent(event_from_proto(event)?),
        Some(Wire::StubServed(result)) => {
            let (call_id, outcome, unstubbed) = tool_result_from_proto(result)?;
            Payload::StubServed { call_id, outcome, unstubbed }
        }
        Some(Wire::AgentDescribed(card)) => Payload::AgentDescribed(Box::new(card_from_proto(card))),
        Some(Wire::CallEnded(ended)) => Payload::CallEnded(Box::new(call_end_from_proto(ended)?)),
        Some(Wire::SpansRead(read)) => Payload::SpansRead(Box::new(SpanEvidence {
            tool_calls: read.tool_calls.into_iter().map(seen_call_from_proto).collect::<Result<_, _>>()?,
            began: read
                .began
                .into_iter()
                .map(|began| time_from_proto(Some(began), "event.spans_read.began"))
                .collect::<Result<_, _>>()?,
            confirmed: read.confirmed,
            waited: read.waited.and_then(duration_from_proto).unwrap_or_default(),
            spans: read.spans,
            dropped: read.dropped,
        })),
        Some(Wire::PartySaid(party)) => Payload::PartySaid(Box::new(party_from_proto(party)?)),
        Some(Wire::TurnFinished(turn)) => Payload::TurnFinished(turn_from_proto(turn)),
        Some(Wire::CheckpointReached(reached)) => Payload::CheckpointReached { checkpoint: reached.checkpoint_id },
        Some(Wire::AttemptFinished(finished)) => Payload::AttemptFinished(Box::new(case_result_from_proto(finished)?)),
        Some(Wire::CaseFinished(finished)) => Payload::CaseFinished(Box::new(case_result_from_proto(finished)?)),
        Some(Wire::SnapshotTaken(values)) => {
            let bad = |error: String| WireError::new("event.snapshot_taken", format!("is no JSON: {error}"));
            Payload::SnapshotTaken(JsonText::new(values).map_err(|error| bad(error.to_string()))?)
        }
        Some(Wire::Warning(text)) => Payload::Warning(text),
        Some(Wire::RunFinished(run)) => Payload::RunFinished(Box::new(run_from_proto(run)?)),
    };
    let case = event.case.map(|case| CaseRef {
        suite: Arc::from(case.suite),
        case_id: Arc::from(case.case_id),
        repeat: case.repeat.max(1),
        attempt: case.attempt.max(1),
    });
    let at = time_from_proto(event.at, "event.at")?;
    Ok(Some(RunEvent { sequence: event.sequence, at, case, turn: event.turn, payload }))
}

/// A mode. Some places called that of script tests `test` once.
fn mode_from_proto(name: &str) -> Result<ModeKind, WireError> {
    let name = if name == "test" { ModeKind::ScriptTest.name() } else { name };
    let unknown = || WireError::new("event.case_started.mode", format!("{name:?} is no known mode"));
    ModeKind::named(name).ok_or_else(unknown)
}

/// A call as a span showed it. Logs of earlier versions do not say that its arguments are not known; no span says
/// that there are none.
fn seen_call_from_proto(record: ToolCallRecord) -> Result<ToolCall, WireError> {
    let call = tool_call_from_proto(record)?;
    Ok(match call.params {
        Arguments::None => ToolCall { params: Arguments::Unknown("its span holds none".to_owned()), ..call },
        Arguments::Given(_) | Arguments::Unknown(_) => call,
    })
}

fn call_end_to_proto(ended: &CallEnd) -> pb::CallEnded {
    let (failure, message) = failure_to_proto(ended.failure.as_ref());
    let max_turns = if let Some(Failure::MaxTurns(most)) = ended.failure { most } else { 0 };
    pb::CallEnded {
        max_turns,
        to: ended.to.clone(),
        digest: ended.digest.clone(),
        failure: failure.into(),
        message,
        response: ended.response.clone(),
        commentary: ended.commentary.clone(),
        before_a_call: ended.is_before_a_call,
        duration: Some(duration_to_proto(ended.duration)),
        invocation_id: ended.invocation_id.clone(),
        exports_spans: ended.exports_spans,
        began: ended.began.map(time_to_proto),
        conversation_id: ended.conversation_id.clone(),
        input: ended.input.iter().map(message_to_proto).collect(),
        endpoint: ended.endpoint.clone(),
        cancel: cancel_to_proto(ended.cancel).into(),
        grpc_status: ended.grpc_status,
    }
}

fn call_end_from_proto(ended: pb::CallEnded) -> Result<CallEnd, WireError> {
    Ok(CallEnd {
        cancel: cancel_from_proto(ended.cancel()),
        failure: failure_from_proto(ended.failure(), ended.message, ended.max_turns),
        to: ended.to,
        digest: ended.digest,
        response: ended.response,
        commentary: ended.commentary,
        is_before_a_call: ended.before_a_call,
        began: ended.began.map(|at| time_from_proto(Some(at), "event.call_ended.began")).transpose()?,
        duration: ended.duration.and_then(duration_from_proto).unwrap_or_default(),
        invocation_id: ended.invocation_id,
        conversation_id: ended.conversation_id,
        exports_spans: ended.exports_spans,
        input: ended.input.into_iter().map(message_from_proto).collect(),
        endpoint: ended.endpoint,
        grpc_status: ended.grpc_status,
    })
}

fn cancel_to_proto(reason: Option<CancelReason>) -> pb::call_ended::Cancel {
    use pb::call_ended::Cancel as Wire;
    match reason {
        None => Wire::Unspecified,
        Some(CancelReason::User) => Wire::User,
        Some(CancelReason::Budget) => Wire::Budget,
        Some(CancelReason::FailFast) => Wire::FailFast,
        Some(CancelReason::ProtocolError) => Wire::ProtocolError,
        Some(CancelReason::Shutdown) => Wire::Shutdown,
        Some(CancelReason::Decided) => Wire::Decided,
        Some(CancelReason::MaxTurns) => Wire::MaxTurns,
    }
}

const fn cancel_from_proto(reason: pb::call_ended::Cancel) -> Option<CancelReason> {
    use pb::call_ended::Cancel as Wire;
    match reason {
        Wire::Unspecified => None,
        Wire::User => Some(CancelReason::User),
        Wire::Budget => Some(CancelReason::Budget),
        Wire::FailFast => Some(CancelReason::FailFast),
        Wire::ProtocolError => Some(CancelReason::ProtocolError),
        Wire::Shutdown => Some(CancelReason::Shutdown),
        Wire::Decided => Some(CancelReason::Decided),
        Wire::MaxTurns => Some(CancelReason::MaxTurns),
    }
}

fn party_to_proto(party: &PartySaid) -> pb::PartySaid {
    let asked = |asked: &Asked| pb::PartyAsked {
        instructions: asked.instructions.clone(),
        messages: asked.messages.iter().map(message_to_proto).collect(),
    };
    let role = match party.role {
        PartyRole::Simulator => pb::party_said::Role::Simulator,
        PartyRole::Validator => pb::party_said::Role::Validator,
    };
    pb::PartySaid {
        by: party.by.clone(),
        digest: party.digest.clone(),
        said: Some(said_to_proto(&party.said)),
        request_id: party.request_id.clone(),
        began: party.began.map(time_to_proto),
        duration: Some(duration_to_proto(party.duration)),
        role: role.into(),
        endpoint: party.endpoint.clone(),
        usage: party.usage.as_ref().map(usage_to_proto),
        asked: party.asked.as_ref().map(asked),
    }
}

fn party_from_proto(party: pb::PartySaid) -> Result<PartySaid, WireError> {
    let role = party.role();
    let said = party.said.ok_or_else(|| WireError::new("event.party_said.said", "is not set"))?;
    let asked = |asked: pb::PartyAsked| Asked {
        instructions: asked.instructions,
        messages: asked.messages.into_iter().map(message_from_proto).collect(),
    };
    let role = match (role, &said) {
        (pb::party_said::Role::Validator, _) | (_, pb::party_said::Said::Vote(_)) => PartyRole::Validator,
        _ => PartyRole::Simulator,
    };
    Ok(PartySaid {
        role,
        by: party.by,
        digest: party.digest,
        said: said_from_proto(said),
        request_id: party.request_id,
        began: party.began.map(|at| time_from_proto(Some(at), "event.party_said.began")).transpose()?,
        duration: party.duration.and_then(duration_from_proto).unwrap_or_default(),
        endpoint: party.endpoint,
        usage: party.usage.as_ref().map(usage_from_proto),
        asked: party.asked.map(asked),
    })
}

fn failure_to_proto(failure: Option<&Failure>) -> (pb::call_ended::Failure, String) {
    use pb::call_ended::Failure as Wire;
    match failure {
        None => (Wire::Unspecified, String::new()),
        Some(Failure::Timeout) => (Wire::Timeout, String::new()),
        Some(Failure::Agent(message)) => (Wire::Agent, message.clone()),
        Some(Failure::Protocol(message)) => (Wire::Protocol, message.clone()),
        Some(Failure::Lost(message)) => (Wire::Lost, message.clone()),
        Some(Failure::Unreachable(message)) => (Wire::Unreachable, message.clone()),
        Some(Failure::Suite(message)) => (Wire::Suite, message.clone()),
        Some(Failure::MaxTurns(_)) => (Wire::MaxTurns, String::new()),
        Some(Failure::Cancelled) => (Wire::Cancelled, String::new()),
        Some(Failure::Stalled(message)) => (Wire::Stalled, message.clone()),
    }
}

fn failure_from_proto(kind: pb::call_ended::Failure, message: String, max_turns: u32) -> Option<Failure> {
    use pb::call_ended::Failure as Wire;
    match kind {
        Wire::Unspecified => None,
        Wire::Timeout => Some(Failure::Timeout),
        Wire::Agent => Some(Failure::Agent(message)),
        Wire::Protocol => Some(Failure::Protocol(message)),
        Wire::Lost => Some(Failure::Lost(message)),
        Wire::Unreachable => Some(Failure::Unreachable(message)),
        Wire::Suite => Some(Failure::Suite(message)),
        Wire::MaxTurns => Some(Failure::MaxTurns(max_turns)),
        Wire::Cancelled => Some(Failure::Cancelled),
        Wire::Stalled => Some(Failure::Stalled(message)),
    }
}

fn said_to_proto(said: &Said) -> pb::party_said::Said {
    match said {
        Said::Input { message, is_last, reasoning } => pb::party_said::Said::Input(pb::SaidInput {
            reasoning: reasoning.clone(),
            message: message.as_ref().map(message_to_proto),
            is_last: *is_last,
        }),
        Said::Vote { passed, reason, score, reply } => pb::party_said::Said::Vote(pb::SaidVote {
            passed: *passed,
            reason: reason.clone(),
            score: *score,
            reply: reply.clone(),
        }),
        Said::Silence(why) => pb::party_said::Said::Silence(why.clone()),
        Said::Cancelled => pb::party_said::Said::Cancelled(true),
    }
}

fn said_from_proto(said: pb::party_said::Said) -> Said {
    match said {
        pb::party_said::Said::Input(pb::SaidInput { message, is_last, reasoning }) => {
            Said::Input { message: message.map(message_from_proto), is_last, reasoning }
        }
        pb::party_said::Said::Vote(pb::SaidVote { passed, reason, score, reply }) => {
            Said::Vote { passed, reason, score, reply }
        }
        pb::party_said::Said::Silence(why) => Said::Silence(why),
        pb::party_said::Said::Cancelled(_) => Said::Cancelled,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;

    use super::*;
    use crate::conversation::{
        AgentCard, AgentEvent, AgentEventKind, Cost, Fault, FaultOrigin, FinishReason, Finished, MaybeJson, Message,
        ModelTurn, Part, Role, ToolCall, ToolMode, ToolOutcome, ToolSpec, Transcript, Usage,
    };
    use crate::event::{Run, State, SuiteInfo};
    use crate::plan::RunSpec;
    use crate::suite::Tier;
    use crate::suite::staleness::{Staleness, StalenessWarning};
    use crate::suite::timeout::Timeout;
    use crate::trace::{SpanId, TraceId, TraceParent};
    use crate::usage::{Price, Prices};
    use crate::verdict::baseline::Comparison;
    use crate::verdict::{
        AssertionResult, Attempt, Blame, CaseResult, Cause, CheckpointResult, Opinion, Outcome, Totals, Turn,
    };

    fn json(text: &str) -> JsonText {
        JsonText::new(text).expect("valid JSON")
    }

    fn usage() -> Usage {
        let cost = Some(Cost { nano_usd: 32_000_000, estimated: true });
        Usage { input_tokens: Some(7), output_tokens: Some(0), cost, ..Usage::default() }
    }

    fn run() -> Run {
        Run {
            run_id: "r".to_owned(),
            spec: Arc::new(RunSpec {
                bundle: [7; 32],
                bundle_size: 9,
                case_patterns: vec!["a.*".to_owned()],
                tiers: vec![Tier::Golden, Tier::Regression],
                difficulties: vec!["edge".to_owned()],
                tags: vec!["eu".to_owned()],
                check_arguments: true,
                snapshot_agent: Some("prices".to_owned()),
                prices: Prices(std::collections::BTreeMap::from([(
                    "m*".to_owned(),
                    Price { input: 1, output: 2, cache_read: Some(0), cache_write: None },
                )])),
                cases: vec![("s.json".to_owned(), "a".to_owned())],
                concurrency: 3,
                case_timeout: Some(Timeout { duration: Duration::from_millis(1500), written: "1.5s".to_owned() }),
                contract_timeout: Timeout::of_millis(60_000.0),
                simulator: Some("user".to_owned()),
                connector: Some("fast".to_owned()),
                fail_fast: true,
                repeats: 3,
                retries: 2,
                retry_failed: 1,
                update_snapshots: true,
                targets: vec![("weather".to_owned(), "grpc://127.0.0.1:1".to_owned())],
                strict: true,
                all_assertions: true,
                tool_mode: ToolMode::RoutingOnly,
                trace_parent: Some(TraceParent {
                    trace_id: TraceId([7; 16]),
                    span_id: SpanId([8; 8]),
                    tracestate: "a=1".to_owned(),
                    baggage: "b=2".to_owned(),
                }),
                trace_url: Some("https://traces.example/{trace_id}".to_owned()),
                capture_content: true,
                agent_gone_after: Some(Duration::from_secs(3)),
                ..RunSpec::new("weather", vec!["s.json".to_owned()])
            }),
            state: State::Cancelling,
            totals: Totals {
                total: 5,
                passed: 1,
                failed: 1,
                errored: 1,
                skipped: 1,
                not_run: 1,
                flaky: 1,
                skipped_assertions: 2,
                duration: Duration::from_millis(7930),
                usage: usage(),
            },
            created_at: Timestamp::new(1_700_000_000, 5).expect("in range"),
            finished_at: Some(Timestamp::new(-3, -7).expect("in range")),
            last_sequence: 12,
            error: Some(Fault {
                code: 14,
                reason: "UNREACHABLE".to_owned(),
                message: "no".to_owned(),
                origin: FaultOrigin::Transport,
                retryable: true,
            }),
            warnings: vec!["w".to_owned()],
            agent: Some(AgentCard {
                agent_id: "weather".to_owned(),
                version: "1".to_owned(),
                tools: vec![ToolSpec { name: "t".to_owned(), input_schema: Some(json("{ }")), ..ToolSpec::default() }],
                ..AgentCard::default()
            }),
            agent_endpoint: "grpc://127.0.0.1:1".to_owned(),
            paused: false,
            concurrency: None,
            gate: None,
            suites: vec![SuiteInfo {
                path: "s.json".to_owned(),
                tool_name: "t".to_owned(),
                tier: Tier::Labeled,
                eval_file_hash: "abc".to_owned(),
                cases: 5,
                warnings: vec!["odd".to_owned()],
                staleness: Some(Staleness {
                    stale: true,
                    warnings: vec![StalenessWarning { text: "long".to_owned(), short: "s".to_owned() }],
                    tool_version: Some("1".to_owned()),
                    description_hash: None,
                    registry_size: 3,
                }),
                comparison: Some(Comparison {
                    baseline_run_id: "b".to_owned(),
                    regressions: vec!["r".to_owned()],
                    new_passes: vec!["p".to_owned()],
                    new_cases: vec!["n".to_owned()],
                    vanished_cases: vec!["v".to_owned()],
                    not_judged: vec!["x".to_owned()],
                    differences: vec!["another model (a, now b)".to_owned()],
                }),
            }],
        }
    }

    fn turn() -> Turn {
        Turn {
            number: 2,
            input: "hi".to_owned(),
            output: "ho".to_owned(),
            commentary: "hm".to_owned(),
            reasoning: "why".to_owned(),
        }
    }

    fn call(outcome: Option<ToolOutcome>) -> ToolCall {
        ToolCall {
            call_id: "1".to_owned(),
            name: "t".to_owned(),
            params: Arguments::Given(MaybeJson::Json(json(r#"{"b":1.0, "a":9007199254740993}"#))),
            duration: outcome.is_some().then_some(Duration::from_micros(1)),
            outcome,
            turn: 2,
        }
    }

    #[test]
    fn modes_are_read_under_all_their_names() {
        for (name, mode) in [
            ("single", ModeKind::Single),
            ("stubbed", ModeKind::Stubbed),
            ("dynamic", ModeKind::Dynamic),
            ("script_test", ModeKind::ScriptTest),
            ("test", ModeKind::ScriptTest),
        ] {
            assert_eq!(mode_from_proto(name).expect("is known"), mode);
        }
        assert!(mode_from_proto("other").is_err());
    }

    /// Everything that can stand in a log comes back from the wire as it was.
    #[test]
    fn events_round_trip() {
        let agent = |kind| Payload::Agent(AgentEvent { seq: 3, elapsed: Some(Duration::from_nanos(1)), kind });
        let said = |said| {
            Payload::PartySaid(Box::new(PartySaid {
                by: "user".to_owned(),
                digest: "01".to_owned(),
                said,
                role: PartyRole::Validator,
                request_id: "q".to_owned(),
                began: Some(Timestamp::new(9, 7).expect("in range")),
                duration: Duration::from_millis(6),
                endpoint: "grpc://127.0.0.1:1".to_owned(),
                usage: Some(usage()),
                asked: Some(Asked { instructions: vec!["be kind".to_owned()], messages: vec![Message::user("hi")] }),
            }))
        };
        let fault = ToolOutcome::Error(Fault::message("boom"));
        let result = CaseResult {
            outcome: Outcome::Failed,
            cause: Some(Cause::Assertion),
            blame: Some(Blame::Agent),
            error: Some("toolsCalled: no".to_owned()),
            hint: Some("near".to_owned()),
            failed_assertion: Some("toolsCalled".to_owned()),
            warning: None,
            warnings: vec!["seq".to_owned()],
            assertions: vec![AssertionResult {
                name: "toolsCalled".to_owned(),
                outcome: Outcome::Failed,
                reason: "no".to_owned(),
                hint: "near".to_owned(),
                unresolved_tokens: vec!["{{seed:x}}".to_owned()],
                blame: Some(Blame::Validator),
                written: Some(json("{\"type\":\"agent\"}")),
                opinion: Some(Opinion {
                    score: Some(0.25),
                    replies: vec!["no".to_owned()],
                    votes: 3,
                    agreeing: 2,
                    console: vec!["x".to_owned()],
                }),
            }],
            transcript: Transcript {
                response: "hi 😀".to_owned(),
                commentary: "hm".to_owned(),
                tool_calls: vec![
                    call(None),
                    call(Some(fault.clone())),
                    call(Some(ToolOutcome::Result(None))),
                    call(Some(ToolOutcome::NotRun)),
                ],
                usage: Some(usage()),
                duration: Duration::from_millis(5),
                open_end: None,
            },
            total_turns: 1,
            turns: vec![turn()],
            checkpoints: vec![CheckpointResult {
                id: "c".to_owned(),
                reached_at_turn: Some(1),
                required: false,
                assertions: Vec::new(),
            }],
            messages_count: 2,
            messages: vec![Message::user("hi"), Message::assistant("ho")],
            earlier: vec![Attempt {
                outcome: Outcome::Errored,
                cause: Some(Cause::Unreachable),
                blame: Some(Blame::Network),
                error: Some("gone".to_owned()),
                duration: Duration::from_millis(7),
                usage: Some(usage()),
            }],
            replayed: true,
            console: vec!["said".to_owned()],
        };
        let finished = Finished {
            reason: FinishReason::MaxTokens,
            response: Some(Message {
                role: Role::Assistant,
                parts: vec![Part::Reasoning("hm".to_owned()), Part::Text("x".to_owned()), Part::Data(json("[1]"))],
            }),
            usage: Some(usage()),
            error: Some(Fault::message("x")),
            tool_calls: 2,
            spans_flushed: true,
            warnings: vec!["odd".to_owned()],
        };
        let ended = |cancel| Payload::CallEnded(Box::new(CallEnd { cancel, ..CallEnd::default() }));
        let payloads = [
            Payload::RunStarted(Box::new(run())),
            Payload::AgentDescribed(Box::new(AgentCard { name: "A".to_owned(), ..AgentCard::default() })),
            Payload::CallEnded(Box::new(CallEnd {
                to: "a".to_owned(),
                digest: "00ff".to_owned(),
                failure: Some(Failure::Lost("gone".to_owned())),
                response: Some(String::new()),
                commentary: "hm".to_owned(),
                is_before_a_call: true,
                began: Some(Timestamp::new(9, 7).expect("in range")),
                duration: Duration::from_millis(5),
                invocation_id: "i".to_owned(),
                conversation_id: "c".to_owned(),
                exports_spans: true,
                input: vec![Message::user("hi")],
                endpoint: "grpc://127.0.0.1:1".to_owned(),
                cancel: Some(CancelReason::Decided),
                grpc_status: Some(0),
            })),
            ended(Some(CancelReason::User)),
            ended(Some(CancelReason::Budget)),
            ended(Some(CancelReason::FailFast)),
            ended(Some(CancelReason::ProtocolError)),
            ended(Some(CancelReason::Shutdown)),
            ended(Some(CancelReason::Decided)),
            ended(Some(CancelReason::MaxTurns)),
            Payload::CallEnded(Box::new(CallEnd { failure: Some(Failure::MaxTurns(3)), ..CallEnd::default() })),
            ended(None),
            Payload::SpansRead(Box::new(SpanEvidence {
                tool_calls: vec![call(Some(ToolOutcome::Result(None))), call(None)],
                began: vec![Timestamp::new(9, 7).expect("in range"); 2],
                confirmed: true,
                waited: Duration::from_millis(3),
                spans: 7,
                dropped: 1,
            })),
            said(Said::Input { message: Some(Message::user("hi")), is_last: true, reasoning: "why".to_owned() }),
            said(Said::Vote { passed: true, reason: "so".to_owned(), score: Some(0.0), reply: "r".to_owned() }),
            said(Said::Silence("no".to_owned())),
            said(Said::Cancelled),
            Payload::TurnFinished(turn()),
            Payload::CheckpointReached { checkpoint: "c".to_owned() },
            Payload::CasePlanned {
                name: "n".to_owned(),
                labels: Labels {
                    difficulty: Some("edge".to_owned()),
                    bug_ref: Some("FORGE-1".to_owned()),
                    created_at: Some("2026-01-05".to_owned()),
                    tags: vec!["eu".to_owned()],
                },
            },
            Payload::CaseStarted {
                mode: ModeKind::ScriptTest,
                tool_mode: ToolMode::Stub,
                invocation_id: "i".to_owned(),
            },
            agent(AgentEventKind::Accepted { instance_id: "x".to_owned() }),
            agent(AgentEventKind::TextDelta { message_id: "m".to_owned(), text: "x".to_owned(), reasoning: true }),
            agent(AgentEventKind::ToolStarted {
                call: ToolCall { turn: 0, ..call(None) },
                awaits_result: true,
                model_turn: 2,
            }),
            agent(AgentEventKind::ToolFinished {
                call_id: "1".to_owned(),
                outcome: Some(ToolOutcome::Result(Some(MaybeJson::Malformed("{".to_owned())))),
                duration: None,
            }),
            agent(AgentEventKind::ModelTurn(ModelTurn {
                index: 1,
                model: "m".to_owned(),
                response_id: "r".to_owned(),
                finish_reason: "stop".to_owned(),
                usage: Some(usage()),
                duration: Some(Duration::from_millis(2)),
            })),
            agent(AgentEventKind::Log { level: "info".to_owned(), message: "x".to_owned() }),
            agent(AgentEventKind::Finished(finished)),
            agent(AgentEventKind::Unknown),
            Payload::StubServed { call_id: "1".to_owned(), outcome: fault, unstubbed: true },
            Payload::AttemptFinished(Box::new(result.clone())),
            Payload::CaseFinished(Box::new(result)),
            Payload::SnapshotTaken(json("{\"a\":1.0}")),
            Payload::Warning("w".to_owned()),
            Payload::RunFinished(Box::new(run())),
        ];
        for payload in payloads {
            let event = RunEvent {
                sequence: 4,
                at: Timestamp::new(5, 6).expect("in range"),
                case: Some(CaseRef { suite: Arc::from("s.json"), case_id: Arc::from("a"), repeat: 3, attempt: 2 }),
                turn: 1,
                payload,
            };
            let back = run_event_from_proto(run_event_to_proto(&event)).expect("reads").expect("is known");
            assert_eq!(back, event);
        }
    }
}
