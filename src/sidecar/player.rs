//! Plays one reply of the script over one call.
//!
//! Modes: LIVE as scripted. STUB announces each tool, waits for the daemon's result, and then reports the outcome *of
//! the script*: the script is what the agent does, and an agent may well report something else than it was given.
//! ROUTING_ONLY announces the tools and reports nothing of them; texts are sent in every mode.
//!
//! The agent keeps the protocol wherever the script does not say otherwise: it obeys an in-band cancel and the call's
//! budget. Only `hang` does not; it is there to see what the daemon does then. `max_model_turns` has no meaning, as a
//! script has no model.

use std::time::Duration;

use tokio::time::Instant;
use tonic::{Code, Status};

use super::call_log::last_user_text;
use super::ears::{Ears, Stop};
use super::frames;
use super::grpc::{Gone, Outbound, sleep_until};
use super::host::Host;
use super::script::{Ending, Event, Play, Plays, Tool, ToolOutcome};
use crate::wire::agent::invoke_response::Event as Sent;
use crate::wire::agent::tool_call_finished::Outcome;
use crate::wire::agent::{
    CancelReason, Fault, FaultOrigin, FinishReason, InvokeAccepted, InvokeFinished, InvokeStart, Json, ResultSource,
    ToolCallFinished, ToolCallStarted, ToolMode, json,
};
use crate::wire::value::duration_from_proto;

/// How the call shall end. Everything before the end has been sent.
#[derive(Debug)]
pub(super) enum How {
    /// With this status.
    Finish(Status),
    /// By a reset of the stream.
    ResetStream,
    /// With the connection.
    CutConnection,
    /// With the agent.
    Die,
    /// It has ended already.
    Gone(Gone),
}

/// A reply that is being played.
pub(super) struct Player<'a> {
    host: &'a Host,
    start: &'a InvokeStart,
    mode: ToolMode,
    ears: &'a Ears,
    out: &'a mut Outbound,
    accepted: Instant,
    deadline: Option<Instant>,
    seq: u64,
    answer: Vec<u8>,
    tool_calls: u32,
    /// The tool that was announced and has not been finished.
    open_tool: Option<String>,
}

impl<'a> Player<'a> {
    /// A player for a call that has been admitted.
    pub(super) fn new(
        host: &'a Host,
        start: &'a InvokeStart,
        mode: ToolMode,
        ears: &'a Ears,
        out: &'a mut Outbound,
    ) -> Self {
        let accepted = Instant::now();
        let budget = start.context.as_ref().and_then(|context| context.budget);
        // A negative budget is used up, like zero; one beyond all clocks is none.
        let deadline = budget.and_then(|budget| match duration_from_proto(budget) {
            Some(time) => accepted.checked_add(time),
            None => (budget.seconds <= 0).then_some(accepted),
        });
        let (seq, answer, tool_calls, open_tool) = (0, Vec::new(), 0, None);
        Self { host, start, mode, ears, out, accepted, deadline, seq, answer, tool_calls, open_tool }
    }

    /// Plays; says how the call shall end.
    pub(super) async fn play(mut self) -> How {
        let stop = match self.reply().await {
            Ok(how) => return how,
            Err(stop) => stop,
        };
        match self.stop(stop).await {
            Ok(how) => how,
            Err(gone) => How::Gone(gone),
        }
    }

    async fn reply(&mut self) -> Result<How, Stop> {
        let (host, start) = (self.host, self.start);
        let accepted = InvokeAccepted {
            invocation_id: start.invocation_id.clone(),
            instance_id: host.instance_id(),
            replayed: false,
        };
        self.send(Sent::Accepted(accepted)).await?;
        let message = last_user_text(&start.messages);
        let Some(reply) = host.scripts.agent.reply_to(&message) else {
            let message: String = message.chars().take(1_000).collect();
            let text = format!("the script has no reply to the message {message:?}");
            let error = fault(Code::NotFound, "NO_REPLY", text, FaultOrigin::Agent);
            return Ok(self.finish(FinishReason::Failed, Some(error)).await?);
        };
        let play = match &reply.plays {
            Plays::Always(play) => play,
            Plays::ByMemory { first, again } => {
                if host.is_first_time(&start.conversation_id, &message) {
                    first
                } else {
                    again
                }
            }
        };
        self.events(play).await?;
        self.ending(&play.ending).await
    }

    async fn events(&mut self, play: &Play) -> Result<(), Stop> {
        for event in &play.events {
            // A script that never waits must hear the daemon too.
            self.unless_stopped(tokio::task::yield_now()).await?;
            match event {
                Event::Text(text) => {
                    self.answer.extend_from_slice(text);
                    if self.start.want_deltas {
                        self.seq += 1;
                        let frame = frames::text_delta(self.seq, self.accepted.elapsed(), text);
                        self.out.message(&frame).await?;
                    }
                }
                Event::Tool(tool) => self.tool(tool).await?,
                Event::Wait(time) => self.unless_stopped(tokio::time::sleep(*time)).await?,
            }
        }
        Ok(())
    }

    async fn tool(&mut self, tool: &Tool) -> Result<(), Stop> {
        let awaits_result = self.mode == ToolMode::Stub;
        // Asked for before it is announced, or a quick answer would be an unknown one.
        let result = awaits_result.then(|| self.ears.result_for(&tool.call_id));
        self.tool_calls += 1;
        self.send(Sent::ToolStarted(ToolCallStarted {
            call_id: tool.call_id.clone(),
            name: tool.name.clone(),
            params: tool.params.as_ref().map(|params| Json { form: Some(json::Form::Raw(params.to_vec())) }),
            awaits_result,
            ..ToolCallStarted::default()
        }))
        .await?;
        if self.mode == ToolMode::RoutingOnly {
            return Ok(());
        }
        self.open_tool = Some(tool.call_id.clone());
        let mut outcome = scripted(&tool.outcome);
        if let Some(result) = result
            && self.unless_stopped(result).await?.is_err()
        {
            let text = "the input ended before a result came".to_owned();
            outcome = Outcome::Error(fault(Code::Unavailable, "NO_RESULT", text, FaultOrigin::Daemon));
        }
        Ok(self.close_tool(outcome, tool.duration).await?)
    }

    /// Finishes the tool that is open, if there is one.
    async fn close_tool(&mut self, outcome: Outcome, duration: Option<Duration>) -> Result<(), Gone> {
        let Some(call_id) = self.open_tool.take() else { return Ok(()) };
        let source = if self.mode == ToolMode::Stub { ResultSource::Stub } else { ResultSource::Live };
        self.send(Sent::ToolFinished(ToolCallFinished {
            call_id,
            outcome: Some(outcome),
            duration: duration.and_then(frames::duration),
            source: source.into(),
        }))
        .await
    }

    async fn ending(&mut self, ending: &Ending) -> Result<How, Stop> {
        match ending {
            Ending::Close(status) => Ok(self.close(status).await?),
            Ending::Leave(status, back_after) => {
                // First of all: who has seen the end of this call must not find the old listener or connection.
                self.host.leave(*back_after).await;
                Ok(self.close(status).await?)
            }
            Ending::Hang => {
                tokio::select! {
                    stop = self.ears.gone() => Err(stop),
                    gone = self.out.gone() => Err(gone.into()),
                }
            }
            Ending::CutConnection => self.flushed(How::CutConnection).await,
            Ending::CutStream => self.flushed(How::ResetStream).await,
            Ending::Die => self.flushed(How::Die).await,
        }
    }

    async fn flushed(&mut self, how: How) -> Result<How, Stop> {
        self.out.flush().await;
        Ok(how)
    }

    async fn close(&mut self, status: &Status) -> Result<How, Gone> {
        if status.code() == Code::Ok {
            let routed = self.mode == ToolMode::RoutingOnly && self.tool_calls > 0;
            let reason = if routed { FinishReason::ToolCalls } else { FinishReason::Completed };
            self.finish(reason, None).await?;
        }
        Ok(How::Finish(status.clone()))
    }

    /// Ends the call as the protocol wants it when something has come in between.
    async fn stop(&mut self, stop: Stop) -> Result<How, Gone> {
        let (reason, code, why) = match stop {
            Stop::Gone(gone) => return Ok(How::Gone(gone)),
            Stop::Cancel(CancelReason::Budget) => {
                (FinishReason::BudgetExceeded, Code::Cancelled, "cancelled: the budget is used up".to_owned())
            }
            Stop::Cancel(_) => (FinishReason::Cancelled, Code::Cancelled, "cancelled".to_owned()),
            Stop::Budget => (FinishReason::BudgetExceeded, Code::DeadlineExceeded, "the budget is used up".to_owned()),
            Stop::Protocol(message) => (FinishReason::Failed, Code::InvalidArgument, message),
        };
        let name = match code {
            Code::Cancelled => "CANCELLED",
            Code::DeadlineExceeded => "BUDGET_EXCEEDED",
            _ => "PROTOCOL_ERROR",
        };
        let error = fault(code, name, why, FaultOrigin::Daemon);
        self.close_tool(Outcome::Error(error.clone()), None).await?;
        self.finish(reason, (reason == FinishReason::Failed).then_some(error)).await
    }

    async fn finish(&mut self, reason: FinishReason, error: Option<Fault>) -> Result<How, Gone> {
        let elapsed = self.accepted.elapsed();
        let finished = InvokeFinished {
            finish_reason: reason.into(),
            error,
            tool_calls: self.tool_calls,
            duration: frames::duration(self.host.scripts.agent.reported_duration.unwrap_or(elapsed)),
            ..InvokeFinished::default()
        };
        self.seq += 1;
        self.out.message(&frames::finished(self.seq, elapsed, &finished, &self.answer)).await?;
        Ok(How::Finish(Status::ok("")))
    }

    async fn send(&mut self, event: Sent) -> Result<(), Gone> {
        self.seq += 1;
        self.out.message(&frames::event(self.seq, self.accepted.elapsed(), event)).await
    }

    async fn unless_stopped<T>(&mut self, wait: impl Future<Output = T>) -> Result<T, Stop> {
        tokio::select! {
            biased;
            stop = self.ears.stopped() => Err(stop),
            gone = self.out.gone() => Err(gone.into()),
            () = sleep_until(self.deadline) => Err(Stop::Budget),
            value = wait => Ok(value),
        }
    }
}

fn scripted(outcome: &ToolOutcome) -> Outcome {
    match outcome {
        ToolOutcome::Worked(result) => {
            // A Json without any form says that the tool worked and the result is not reported.
            Outcome::Result(Json { form: result.as_ref().map(|result| json::Form::Raw(result.to_vec())) })
        }
        ToolOutcome::Failed(message) => Outcome::Error(fault(Code::Unknown, "", message.clone(), FaultOrigin::Tool)),
    }
}

fn fault(code: Code, reason: &str, message: String, origin: FaultOrigin) -> Fault {
    let (grpc_code, reason) = (code.into(), reason.to_owned());
    Fault { grpc_code, reason, message, origin: origin.into(), ..Fault::default() }
}
