//! How a call is handed over. Until the transport takes the start frame, an attempt may be repeated.

use std::time::Duration;

use futures_util::future::BoxFuture;
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::Status;

use super::farewell::{Far, Farewells, GRACE};
use super::line::{Frames, Line};
use super::outgoing::{Outgoing, Sent};
use crate::conversation::{CancelReason, Content, Failure, Invocation, large_contents};
use crate::peer::agent::Agent;
use crate::peer::backoff::Backoff;
use crate::trace::TraceHeaders;
use crate::wire::agent::{InvokeRequest, InvokeStart, invoke_request};
use crate::wire::bounded::{SMALL, Unread, weigh};
use crate::wire::call::start_to_proto;
use crate::wire::value::duration_to_proto;

/// The answer to an attempt, when it comes.
pub(super) type Opened = BoxFuture<'static, Result<Frames, Status>>;

/// What a call begins with: its first frame and the pieces of its attachments, made once whatever the number of
/// attempts.
#[derive(Debug, Clone)]
pub struct Start {
    frame: InvokeRequest,
    contents: Vec<Content>,
    headers: TraceHeaders,
}

/// Why a call cannot be sent at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unsendable {
    /// The agent takes no message of this size.
    #[error("the case needs a message of {bytes} bytes, and the agent takes {limit}")]
    TooLarge {
        /// Size of the first frame.
        bytes: usize,
        /// Most bytes that the agent takes.
        limit: u64,
    },
    /// Nobody would read it.
    #[error("the case needs a message of {bytes} bytes, and {why}")]
    Unread {
        /// Size of the first frame.
        bytes: usize,
        /// Why it is not read.
        #[source]
        why: Unread,
    },
}

impl Start {
    /// What a call begins with whose spans hang below `headers`.
    #[must_use]
    pub fn new(invocation: &Invocation, headers: TraceHeaders) -> Self {
        let frame = start_to_proto(invocation, &headers);
        Self { frame, contents: large_contents(&invocation.messages), headers }
    }

    /// The same, if it can be put before an agent that takes messages of at most `limit` bytes.
    ///
    /// # Errors
    /// Why the agent cannot be sent it.
    pub fn within(self, limit: u64) -> Result<Self, Unsendable> {
        let bytes = self.frame.encoded_len();
        if bytes as u64 > limit {
            return Err(Unsendable::TooLarge { bytes, limit });
        }
        // What we would not read ourselves is not put before an agent, which would be blamed for it.
        if bytes > SMALL {
            weigh::<InvokeRequest>(&self.frame.encode_to_vec()).map_err(|why| Unsendable::Unread { bytes, why })?;
        }
        Ok(self)
    }
}

/// What came of an attempt to open a call that failed.
#[derive(Debug)]
pub struct Refusal {
    /// What the agent answered, or the transport made up.
    pub status: Status,
    /// When the transport took the start frame, if it did.
    pub sent: Option<Instant>,
}

/// A call that is being handed over.
pub struct Opening {
    agent: Agent,
    start: Start,
    begun: Instant,
    backoff: Backoff,
    /// What came of the last attempt that failed.
    last: String,
    /// The attempt that is being made.
    attempt: Option<Attempt>,
}

/// An attempt to open a call.
struct Attempt {
    opened: Opened,
    outgoing: mpsc::Sender<InvokeRequest>,
    sent: Sent,
}

impl Attempt {
    /// Sends the call, which has to be over when the time that is `left` and the grace are.
    fn begin(agent: &Agent, start: &Start, left: Duration) -> Self {
        let Start { mut frame, contents, headers } = start.clone();
        // It shrinks while we wait for a connection.
        if let Some(invoke_request::Frame::Start(InvokeStart { context: Some(context), .. })) = &mut frame.frame {
            context.budget = Some(duration_to_proto(left));
        }
        let (frames, outgoing, sent) = Outgoing::new(frame, contents);
        let agent = agent.clone();
        let opened = Box::pin(async move {
            let stream = agent.invoke(frames, left + GRACE, &headers).await?;
            Ok(Box::pin(stream) as Frames)
        });
        // The start frame is queued before the call is awaited: many servers send their headers with the first event.
        Self { opened, outgoing, sent }
    }
}

impl Opening {
    /// A call before its first attempt.
    #[must_use]
    pub fn new(agent: Agent, start: Start) -> Self {
        let (begun, last) = (Instant::now(), "no connection".to_owned());
        Self { agent, start, begun, backoff: Backoff::new(), last, attempt: None }
    }

    /// Makes an attempt, with the time that is `left` for the call. An attempt during whose wait this was dropped
    /// goes on with the next call: nothing is sent twice.
    ///
    /// # Errors
    /// What the agent answered, or the transport made up.
    pub async fn attempt(&mut self, left: Duration) -> Result<Line, Refusal> {
        let attempt = match &mut self.attempt {
            Some(attempt) => attempt,
            none => none.insert(Attempt::begin(&self.agent, &self.start, left)),
        };
        let opened = (&mut attempt.opened).await;
        let (outgoing, sent) = (attempt.outgoing.clone(), attempt.sent.clone());
        self.attempt = None;
        match opened {
            Ok(incoming) => Ok(Line { incoming, outgoing, sent }),
            Err(status) => Err(Refusal { status, sent: sent.at() }),
        }
    }

    /// When the attempt that is being made was sent, if it was.
    #[must_use]
    pub fn sent(&self) -> Option<Instant> {
        self.attempt.as_ref()?.sent.at()
    }

    /// Notes why an attempt failed.
    pub fn failed(&mut self, why: String) {
        self.last = why;
    }

    /// Why the last attempt failed.
    #[must_use]
    pub fn last(&self) -> &str {
        &self.last
    }

    /// The pause until the next attempt.
    pub fn pause(&mut self) -> Duration {
        self.backoff.pause()
    }

    /// Whether an attempt failed.
    #[must_use]
    pub const fn is_repeated(&self) -> bool {
        self.backoff.attempts() > 0
    }

    /// The failure of a call that nobody took.
    #[must_use]
    pub fn unreachable(&self) -> Failure {
        let (attempts, seconds) = (self.backoff.attempts().max(1), self.begun.elapsed().as_secs_f64());
        let (url, last) = (&self.agent.url, &self.last);
        Failure::Unreachable(format!("{url}: {attempts} attempts in {seconds:.1} s, the last one: {last}"))
    }

    /// Gives up the attempt that is being made: if it was sent, the agent is asked to end the call.
    pub fn leave(self, farewells: &Farewells, reason: CancelReason) {
        let Some(Attempt { opened, outgoing, sent }) = self.attempt else { return };
        if sent.at().is_some() {
            farewells.take_leave(Far::Opening(opened), outgoing, reason);
        }
    }
}
