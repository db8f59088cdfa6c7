//! The events of a call on their way to the daemon: numbered, `accepted` first, the ending last.

use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::{Code, Status};

use super::told::{Called, Returned, Told};
use crate::wire::agent::invoke_response::Event;
use crate::wire::agent::{
    Fault, FaultOrigin, FinishReason, InvokeAccepted, InvokeFinished, InvokeResponse, InvokeStart, Message, ModelTurn,
    Part, ResultSource, Role, TextChannel, TextDelta, ToolCallFinished, ToolCallStarted, Usage, part,
};
use crate::wire::value::duration_to_proto;

/// Writes the events of one call.
#[derive(Debug)]
pub(super) struct Events {
    sender: mpsc::Sender<Result<InvokeResponse, Status>>,
    wants_deltas: bool,
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
        start: &InvokeStart,
        instance_id: &str,
    ) -> Self {
        let accepted = InvokeAccepted {
            invocation_id: start.invocation_id.clone(),
            instance_id: instance_id.to_owned(),
            replayed: false,
        };
        Self {
            sender,
            wants_deltas: start.want_deltas,
            accepted: Some(accepted),
            seq: 0,
            since: Instant::now(),
            tool_calls: 0,
            warnings: Vec::new(),
        }
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

    /// Reports what an endpoint tells, as it comes.
    pub(super) async fn told(&mut self, told: Told) {
        match told {
            Told::Text(text) => self.delta(text, TextChannel::Answer).await,
            Told::Reasoning(text) => self.delta(text, TextChannel::Reasoning).await,
            Told::Called(Called { number, name, params }) => {
                self.tool_calls += 1;
                let (params, params_unknown) = match params {
                    Ok(params) => (Some(params), None),
                    Err(why) => (None, Some(why)),
                };
                let call_id = number.to_string();
                let started = ToolCallStarted { call_id, name, params, params_unknown, ..ToolCallStarted::default() };
                self.send(Event::ToolStarted(started)).await;
            }
            Told::Returned(Returned { number, outcome, duration }) => {
                let finished = ToolCallFinished {
                    call_id: number.to_string(),
                    outcome: Some(outcome),
                    duration: duration.map(duration_to_proto),
                    source: ResultSource::Live.into(),
                };
                self.send(Event::ToolFinished(finished)).await;
            }
        }
    }

    async fn delta(&mut self, text: String, channel: TextChannel) {
        if self.wants_deltas {
            // Without an id a call of a tool ends the message.
            let message_id = String::new();
            self.send(Event::TextDelta(TextDelta { message_id, text, channel: channel.into() })).await;
        }
    }

    /// Reports what a model is known to have used, once for all its turns.
    pub(super) async fn model_turn(&mut self, turn: ModelTurn) {
        self.send(Event::ModelTurn(ModelTurn { index: 1, ..turn })).await;
    }

    /// Ends the call with an answer.
    pub(super) async fn answered(&mut self, text: String, reason: FinishReason, usage: Option<Usage>) {
        let parts = vec![Part { content: Some(part::Content::Text(text)) }];
        let response = Message { role: Role::Assistant.into(), parts, ..Message::default() };
        self.finish(reason, Some(response), None, usage).await;
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
        self.finish(FinishReason::Failed, None, Some(fault), None).await;
    }

    pub(super) async fn cancelled(&mut self) {
        self.finish(FinishReason::Cancelled, None, None, None).await;
    }

    pub(super) async fn budget_exceeded(&mut self) {
        self.finish(FinishReason::BudgetExceeded, None, None, None).await;
    }

    /// Ends the call with a status, which says that its way is broken.
    pub(super) async fn end(&mut self, status: Status) {
        // That nobody listens any more is all right here and below: then the call is over.
        let _ = self.sender.send(Err(status)).await;
    }

    async fn finish(
        &mut self,
        reason: FinishReason,
        response: Option<Message>,
        error: Option<Fault>,
        usage: Option<Usage>,
    ) {
        self.accept().await;
        let finished = InvokeFinished {
            finish_reason: reason.into(),
            response,
            usage,
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
