//! The events of a call on their way to the daemon: numbered, `accepted` first, the ending last.

use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::{Code, Status};

use super::answer::ToolCall;
use crate::wire::agent::invoke_response::Event;
use crate::wire::agent::{
    Fault, FaultOrigin, FinishReason, InvokeAccepted, InvokeFinished, InvokeResponse, Message, Part, ResultSource,
    Role, ToolCallFinished, ToolCallStarted, part,
};
use crate::wire::value::duration_to_proto;

/// Writes the events of one call.
#[derive(Debug)]
pub(super) struct Events {
    sender: mpsc::Sender<Result<InvokeResponse, Status>>,
    /// `accepted`, as long as it was not sent.
    accepted: Option<InvokeAccepted>,
    seq: u64,
    since: Instant,
    tool_calls: u32,
    warnings: Vec<String>,
}

impl Events {
    pub(super) fn new(
        sender: mpsc::Sender<Result<InvokeResponse, Status>>,
        invocation_id: &str,
        instance_id: &str,
    ) -> Self {
        let accepted = InvokeAccepted {
            invocation_id: invocation_id.to_owned(),
            instance_id: instance_id.to_owned(),
            replayed: false,
        };
        Self { sender, accepted: Some(accepted), seq: 0, since: Instant::now(), tool_calls: 0, warnings: Vec::new() }
    }

    /// Says that the call is taken on. Every other event does so too.
    pub(super) async fn accept(&mut self) {
        if let Some(accepted) = self.accepted.take() {
            self.since = Instant::now();
            self.write(Event::Accepted(accepted)).await;
        }
    }

    /// Says at the end of the call what people should know who read its result.
    pub(super) fn warn(&mut self, warnings: Vec<String>) {
        self.warnings.extend(warnings);
    }

    pub(super) async fn tool_call(&mut self, call: ToolCall) {
        self.tool_calls += 1;
        let call_id = self.tool_calls.to_string();
        let ToolCall { name, params, outcome, duration } = call;
        let (params, params_unknown) = match params {
            Ok(params) => (Some(params), None),
            Err(why) => (None, Some(why)),
        };
        let started =
            ToolCallStarted { call_id: call_id.clone(), name, params, params_unknown, ..ToolCallStarted::default() };
        self.send(Event::ToolStarted(started)).await;
        let finished = ToolCallFinished {
            call_id,
            outcome: Some(outcome),
            duration: duration.map(duration_to_proto),
            source: ResultSource::Live.into(),
        };
        self.send(Event::ToolFinished(finished)).await;
    }

    pub(super) async fn completed(&mut self, text: String) {
        let parts = vec![Part { content: Some(part::Content::Text(text)) }];
        let response = Message { role: Role::Assistant.into(), parts, ..Message::default() };
        self.finish(FinishReason::Completed, Some(response), None).await;
    }

    /// The endpoint did not do what it must.
    pub(super) async fn failed(&mut self, code: Code, reason: &str, message: String) {
        let fault = Fault {
            grpc_code: code.into(),
            reason: reason.to_owned(),
            message,
            origin: FaultOrigin::Agent.into(),
            ..Fault::default()
        };
        self.finish(FinishReason::Failed, None, Some(fault)).await;
    }

    pub(super) async fn cancelled(&mut self) {
        self.finish(FinishReason::Cancelled, None, None).await;
    }

    pub(super) async fn budget_exceeded(&mut self) {
        self.finish(FinishReason::BudgetExceeded, None, None).await;
    }

    /// Ends the call with a status, which says that its way is broken.
    pub(super) async fn end(&mut self, status: Status) {
        // That nobody listens any more is all right here and below: then the call is over.
        let _ = self.sender.send(Err(status)).await;
    }

    async fn finish(&mut self, reason: FinishReason, response: Option<Message>, error: Option<Fault>) {
        self.accept().await;
        let finished = InvokeFinished {
            finish_reason: reason.into(),
            response,
            error,
            tool_calls: self.tool_calls,
            duration: Some(duration_to_proto(self.since.elapsed())),
            warnings: std::mem::take(&mut self.warnings),
            ..InvokeFinished::default()
        };
        self.write(Event::Finished(finished)).await;
    }

    async fn send(&mut self, event: Event) {
        self.accept().await;
        self.write(event).await;
    }

    async fn write(&mut self, event: Event) {
        self.seq += 1;
        let elapsed = Some(duration_to_proto(self.since.elapsed()));
        let _ = self.sender.send(Ok(InvokeResponse { seq: self.seq, elapsed, event: Some(event) })).await;
    }
}
