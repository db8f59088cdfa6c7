//! A call while it is open: frames of the agent come in, results of tools go out.

use std::pin::Pin;
use std::time::Duration;

use prost::Message as _;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::{Stream, StreamExt as _};
use tonic::Status;

use super::farewell::{Far, Farewells};
use super::outgoing::Sent;
use super::state::{CallState, Closing, Ending, ToolResult};
use crate::conversation::{AgentEvent, CancelReason};
use crate::wire::agent::{InvokeRequest, InvokeResponse, invoke_request};
use crate::wire::call::{event_from_proto, tool_result_to_proto};

/// Time an agent has to end the stream after `finished`.
const CLOSING: Duration = Duration::from_secs(1);

/// What an agent sends in a call, whatever brings it here.
pub(super) type Frames = Pin<Box<dyn Stream<Item = Result<InvokeResponse, Status>> + Send>>;

/// What an agent sends at once: an event that was not read yet.
#[derive(Debug)]
pub struct Frame(InvokeResponse);

impl Frame {
    /// Its size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.encoded_len()
    }

    /// Reads the frame. A runtime thread has to look at its size first: a large one holds the thread up.
    ///
    /// # Errors
    /// How the call ends if it means nothing.
    pub fn read(self) -> Result<AgentEvent, Ending> {
        event_from_proto(self.0).map_err(Ending::broken)
    }
}

/// What comes next in a call.
#[expect(clippy::large_enum_variant, reason = "there is one at a time; a box for every frame would cost more")]
#[derive(Debug)]
pub enum Heard {
    /// The agent said something.
    Frame(Frame),
    /// A result is due, and the agent has room for it.
    Due(ToolResult),
    /// The stream ended, with this status.
    End(Status),
}

/// An open call. Dropped, its stream is reset.
pub struct Line {
    pub(super) incoming: Frames,
    pub(super) outgoing: mpsc::Sender<InvokeRequest>,
    pub(super) sent: Sent,
}

impl Line {
    /// When the call was sent.
    #[must_use]
    pub const fn sent(&self) -> &Sent {
        &self.sent
    }

    /// Waits for what comes next. Results go first; while the agent does not take them, it is heard all the same.
    /// Nothing is lost when this is dropped.
    pub async fn next(&mut self, state: &mut CallState) -> Heard {
        tokio::select! {
            biased;
            Some(result) = due_result(state, &self.outgoing) => Heard::Due(result),
            frame = self.incoming.next() => match frame {
                Some(Ok(frame)) => Heard::Frame(Frame(frame)),
                Some(Err(status)) => Heard::End(status),
                None => Heard::End(Status::ok("")),
            },
        }
    }

    /// Sends a result that was due.
    pub fn send(&self, result: ToolResult) {
        let ToolResult { call_id, outcome, unstubbed } = result;
        let result = tool_result_to_proto(&call_id, &outcome, unstubbed);
        // There was room, and nobody else sends anything. An agent that takes nothing any more needs no result.
        let _ = self.outgoing.try_send(InvokeRequest { frame: Some(invoke_request::Frame::ToolResult(result)) });
    }

    /// Ends our side after the last event, and waits for a second at most until the agent ends its own.
    pub async fn close(self) -> Closing {
        let Self { mut incoming, outgoing, .. } = self;
        // Only now: an agent may take the end of our side for a cancel.
        drop(outgoing);
        match tokio::time::timeout(CLOSING, incoming.next()).await {
            Ok(None) => Closing::Good,
            Ok(Some(Ok(_))) => Closing::Event,
            Ok(Some(Err(status))) => Closing::Status(status.code()),
            Err(_) => Closing::Late,
        }
    }

    /// Asks the agent to end the call, without waiting for that.
    pub fn leave(self, farewells: &Farewells, reason: CancelReason) {
        farewells.take_leave(Far::Open(self.incoming), self.outgoing, reason);
    }
}

/// Waits until the next result is due and the agent has room for it; `None`: nobody takes results any more.
async fn due_result(state: &mut CallState, outgoing: &mpsc::Sender<InvokeRequest>) -> Option<ToolResult> {
    let Some(due) = state.next_due() else { return std::future::pending().await };
    // A timer of no time still waits for the next millisecond.
    if due > Instant::now() {
        tokio::time::sleep_until(due).await;
    }
    outgoing.reserve().await.ok()?;
    state.take_result()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{ToolMode, ToolOutcome};
    use crate::peer::call::outgoing::Outgoing;
    use crate::peer::output::Outputs;

    /// A line whose agent sends this, and the frames that are sent to it.
    fn line(incoming: impl Stream<Item = Result<InvokeResponse, Status>> + Send + 'static) -> (Line, Outgoing) {
        let (frames, outgoing, sent) = Outgoing::new(InvokeRequest::default(), Vec::new());
        (Line { incoming: Box::pin(incoming), outgoing, sent }, frames)
    }

    fn event() -> InvokeResponse {
        InvokeResponse { seq: 1, ..InvokeResponse::default() }
    }

    /// Any stream of frames is a call; results that are due go first.
    #[tokio::test]
    async fn results_go_first() {
        let (mut line, mut frames) = line(tokio_stream::iter([Ok(event())]));
        let mut state = CallState::new(ToolMode::Stub, None, false, Outputs::default().begin());
        assert!(frames.next().await.is_some(), "the start frame");
        assert!(line.sent().at().is_some());
        let result = ToolResult { call_id: "1".to_owned(), outcome: ToolOutcome::Result(None), unstubbed: false };
        state.answer(result.clone(), Instant::now());
        match line.next(&mut state).await {
            Heard::Due(due) => {
                assert_eq!(due, result);
                line.send(due);
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(line.next(&mut state).await, Heard::Frame(_)));
        assert!(matches!(line.next(&mut state).await, Heard::End(status) if status.code() == tonic::Code::Ok));
        let sent = frames.next().await.and_then(|frame| frame.frame);
        assert!(matches!(sent, Some(invoke_request::Frame::ToolResult(sent)) if sent.call_id == "1"));
        assert_eq!(line.close().await, Closing::Good);
    }

    #[tokio::test(start_paused = true)]
    async fn how_agents_close() {
        let silent = || tokio_stream::pending::<Result<InvokeResponse, Status>>();
        assert_eq!(line(silent()).0.close().await, Closing::Late);
        assert_eq!(line(tokio_stream::iter([Ok(event())])).0.close().await, Closing::Event);
        let status = Err(Status::aborted(""));
        assert_eq!(line(tokio_stream::iter([status])).0.close().await, Closing::Status(tonic::Code::Aborted));
        // One that was given up is told, and its stream is reset after its grace.
        let (given_up, mut frames) = line(silent());
        let farewells = Farewells::default();
        given_up.leave(&farewells, CancelReason::Budget);
        let frames = async { while frames.next().await.is_some() {} };
        tokio::time::timeout(Duration::from_secs(5), frames).await.expect("our side ends");
    }
}
