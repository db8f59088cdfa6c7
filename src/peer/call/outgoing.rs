//! The frames of a call on their way to the agent, and when the first of them was taken.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::Stream;

use crate::conversation::Content;
use crate::wire::agent::InvokeRequest;
use crate::wire::call::chunks_to_proto;

/// Frames that wait to be taken by the transport; the call waits when there are more.
const OUTGOING_FRAMES: usize = 64;

/// The frames of a call on their way out: the start frame, the pieces of its attachments, then whatever is sent
/// through the channel.
pub(super) struct Outgoing {
    start: Option<InvokeRequest>,
    chunks: Box<dyn Iterator<Item = InvokeRequest> + Send>,
    rest: mpsc::Receiver<InvokeRequest>,
    taken: Arc<OnceLock<Instant>>,
}

/// When the start frame of a call was taken by the transport, if it was.
#[derive(Debug, Clone)]
pub struct Sent(Arc<OnceLock<Instant>>);

impl Sent {
    /// The moment from which the agent's time counts.
    #[must_use]
    pub fn at(&self) -> Option<Instant> {
        self.0.get().copied()
    }
}

impl Outgoing {
    /// Frames that begin with `start` and the pieces of `contents`, a way to send more, and a look at whether the
    /// start frame was taken.
    pub(super) fn new(start: InvokeRequest, contents: Vec<Content>) -> (Self, mpsc::Sender<InvokeRequest>, Sent) {
        let (sender, rest) = mpsc::channel(OUTGOING_FRAMES);
        let taken = Arc::new(OnceLock::new());
        let sent = Sent(Arc::clone(&taken));
        let chunks = Box::new(chunks_to_proto(contents));
        (Self { start: Some(start), chunks, rest, taken }, sender, sent)
    }
}

impl Stream for Outgoing {
    type Item = InvokeRequest;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<InvokeRequest>> {
        if let Some(start) = self.start.take() {
            self.taken.get_or_init(Instant::now);
            return Poll::Ready(Some(start));
        }
        // Made as the transport takes them, so that its flow control bounds what waits.
        if let Some(chunk) = self.chunks.next() {
            return Poll::Ready(Some(chunk));
        }
        self.rest.poll_recv(cx)
    }
}
