//! The end of calls that were given up: the agent is told, and has a moment to end its side.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::line::Frames;
use super::opening::Opened;
use crate::conversation::CancelReason;
use crate::wire::agent::InvokeRequest;
use crate::wire::call::cancel_to_proto;

/// Time an agent has to end a call after a cancel.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// Owns the ends of calls that were given up: an agent gets its grace while its case's slot is free again.
#[derive(Debug, Clone, Default)]
pub struct Farewells {
    tasks: TaskTracker,
    hurry: CancellationToken,
}

/// The agent's side of a call.
pub(super) enum Far {
    /// The call was sent, no answer came yet.
    Opening(Opened),
    /// Frames come.
    Open(Frames),
}

impl Farewells {
    /// Ends all that are left at once, and waits until they are gone.
    pub async fn finish(&self) {
        self.tasks.close();
        // Most agents react to a cancel at once; those that do not are reset.
        let _ = tokio::time::timeout(Duration::from_millis(300), self.tasks.wait()).await;
        self.hurry.cancel();
        self.tasks.wait().await;
    }

    /// Asks the agent to end a call, and resets the stream after its grace, in a task of its own.
    pub(super) fn take_leave(&self, far: Far, frames: mpsc::Sender<InvokeRequest>, reason: CancelReason) {
        // When the queue is full the agent is not reading, and will not read this either.
        let _ = frames.try_send(cancel_to_proto(reason, GRACE));
        let hurry = self.hurry.clone();
        self.tasks.spawn(async move {
            let ending = async move {
                let _frames = frames;
                let mut stream = match far {
                    Far::Open(stream) => stream,
                    Far::Opening(opening) => match opening.await {
                        Ok(stream) => stream,
                        Err(_) => return,
                    },
                };
                while let Some(Ok(_)) = stream.next().await {}
            };
            // Dropping the stream resets it.
            tokio::select! {
                _ = tokio::time::timeout(GRACE, ending) => {}
                () = hurry.cancelled() => {}
            }
        });
    }
}
