//! What the daemon says during an invocation, for the player to ask about.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::pending;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{oneshot, watch};

use super::call_log::LoggedCall;
use super::grpc::{Gone, Inbound, Unread};
use crate::wire::agent::invoke_request::Frame;
use crate::wire::agent::{CancelReason, InvokeRequest, ToolResult};

/// Why the player must not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stop {
    /// The daemon asks for it.
    Cancel(CancelReason),
    /// The time of the call is used up.
    Budget,
    /// The daemon has broken the protocol.
    Protocol(String),
    /// The stream has gone.
    Gone(Gone),
}

impl From<Gone> for Stop {
    fn from(gone: Gone) -> Self {
        Self::Gone(gone)
    }
}

/// What has been heard so far.
#[derive(Debug, Default)]
pub(super) struct Ears {
    stop: watch::Sender<Option<Stop>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    heard_cancel: bool,
    /// The daemon has closed its side: no result will come.
    closed: bool,
    waiting: HashMap<String, oneshot::Sender<ToolResult>>,
}

impl Ears {
    /// Reads the daemon's frames; never ends by itself.
    pub(super) async fn listen(&self, inbound: &mut Inbound, logged: &LoggedCall) -> Infallible {
        loop {
            match inbound.message::<InvokeRequest>().await {
                Ok(Some(request)) => self.hear(request, logged),
                Ok(None) => {
                    let mut state = self.state();
                    state.closed = true;
                    state.waiting.clear();
                    break;
                }
                Err(Unread::Refused(status)) => {
                    self.stop(Stop::Protocol(status.message().to_owned()));
                    break;
                }
                Err(Unread::Gone(gone)) => {
                    self.stop(Stop::Gone(gone));
                    break;
                }
            }
        }
        pending().await
    }

    /// Waits until there is a reason to stop.
    pub(super) async fn stopped(&self) -> Stop {
        self.stopped_when(|_| true).await
    }

    /// Waits until the stream has gone, whatever else is said.
    pub(super) async fn gone(&self) -> Stop {
        self.stopped_when(|stop| matches!(stop, Stop::Gone(_))).await
    }

    /// The result for a tool call, when it comes; an error when none will come.
    pub(super) fn result_for(&self, call_id: &str) -> oneshot::Receiver<ToolResult> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state();
        if !state.closed {
            state.waiting.insert(call_id.to_owned(), sender);
        }
        receiver
    }

    /// Whether the daemon has asked to stop.
    pub(super) fn heard_cancel(&self) -> bool {
        self.state().heard_cancel
    }

    fn hear(&self, request: InvokeRequest, logged: &LoggedCall) {
        match request.frame {
            Some(Frame::Start(_)) => self.stop(Stop::Protocol("a second `start`".to_owned())),
            // Unknown and answered ids are passed over.
            Some(Frame::ToolResult(result)) => {
                if let Some(waiting) = self.state().waiting.remove(&result.call_id) {
                    let _ = waiting.send(result);
                }
            }
            Some(Frame::Cancel(cancel)) => {
                self.state().heard_cancel = true;
                logged.cancel();
                self.stop(Stop::Cancel(cancel.reason()));
            }
            // Attachments are not announced as a capability; unknown frames are passed over.
            Some(Frame::Attachment(_)) | None => {}
        }
    }

    /// The first reason stands, but nothing stands against a stream that has gone.
    fn stop(&self, stop: Stop) {
        self.stop.send_if_modified(|so_far| {
            let news = so_far.is_none() || matches!(stop, Stop::Gone(_));
            if news {
                *so_far = Some(stop);
            }
            news
        });
    }

    async fn stopped_when(&self, counts: impl Fn(&Stop) -> bool) -> Stop {
        let mut receiver = self.stop.subscribe();
        let stop = receiver.wait_for(|stop| stop.as_ref().is_some_and(&counts)).await;
        match stop.ok().and_then(|stop| stop.clone()) {
            Some(stop) => stop,
            // The sender lives as long as we do.
            None => pending().await,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing is left half done under this lock.
        self.state.lock()
    }
}
