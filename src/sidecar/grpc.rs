//! gRPC over h2, as much of it as a scripted agent needs: messages in, messages out, statuses, resets.
//!
//! Why not tonic's server: a script resets streams, sends text that is not UTF-8, drops connections at an exact moment
//! and has to know what has left before. tonic and hyper keep all that from their users. What they do instead of us is
//! little: a five-byte prefix per message and a status in the trailers (built by [`tonic::Status`] here too).
//!
//! Left out: compression. Compressed messages are refused with UNIMPLEMENTED, as the protocol allows.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Response, header};
use tonic::Status;

use super::call_log::End;
use super::tap::Tap;

use crate::wire::bounded::weigh;

const PREFIX_BYTES: usize = 5;
/// Largest message that is taken.
const MAX_MESSAGE_BYTES: usize = 64 << 20;
/// How long a peer may leave its side open after our end, and how long we wait for our own bytes to leave.
const PATIENCE: Duration = Duration::from_secs(1);

/// The stream has gone, and there is nobody to say anything to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gone {
    /// The peer reset it with CANCEL.
    Cancelled,
    /// The connection broke, or the peer reset the stream for another reason.
    Broken,
}

impl Gone {
    /// How the call ends in the log.
    #[must_use]
    pub(super) const fn end(self) -> End {
        match self {
            Self::Cancelled => End::Cancelled,
            Self::Broken => End::Reset,
        }
    }

    fn of(reason: Option<Reason>) -> Self {
        if reason == Some(Reason::CANCEL) { Self::Cancelled } else { Self::Broken }
    }
}

impl From<h2::Error> for Gone {
    fn from(error: h2::Error) -> Self {
        Self::of(error.reason().filter(|_| error.is_reset()))
    }
}

/// Why no message came.
#[derive(Debug)]
pub(super) enum Unread {
    /// The stream has gone.
    Gone(Gone),
    /// What came is no message; this is the answer to it.
    Refused(Status),
}

/// The peer's side of a call.
#[derive(Debug)]
pub(super) struct Inbound {
    body: RecvStream,
    buffer: BytesMut,
}

impl Inbound {
    /// The messages in `body`.
    #[must_use]
    pub(super) fn new(body: RecvStream) -> Self {
        Self { body, buffer: BytesMut::new() }
    }

    /// The next message; `None` when the peer has closed its side.
    ///
    /// # Errors
    /// When the stream has gone, or holds something that is no message of this kind.
    pub(super) async fn message<M: prost::Message + prost::Name + Default>(&mut self) -> Result<Option<M>, Unread> {
        loop {
            if let Some(message) = self.buffered()? {
                if let Err(unread) = weigh::<M>(&message) {
                    return Err(Unread::Refused(Status::invalid_argument(format!("the frame is not read: {unread}"))));
                }
                let decoded = M::decode(message);
                return decoded.map(Some).map_err(|error| {
                    Unread::Refused(Status::invalid_argument(format!("the frame cannot be decoded: {error}")))
                });
            }
            match poll_fn(|cx| self.body.poll_data(cx)).await {
                Some(Ok(data)) => {
                    self.buffer.extend_from_slice(&data);
                    // The window opens again at once: messages are bounded, and one call has few of them.
                    let _ = self.body.flow_control().release_capacity(data.len());
                }
                Some(Err(error)) => return Err(Unread::Gone(error.into())),
                None if self.buffer.is_empty() => return Ok(None),
                None => return Err(Unread::Refused(Status::invalid_argument("the stream ends inside a message"))),
            }
        }
    }

    fn buffered(&mut self) -> Result<Option<Bytes>, Unread> {
        let Some((prefix, _)) = self.buffer.split_first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
        let [compressed, length @ ..] = *prefix;
        if compressed != 0 {
            return Err(Unread::Refused(Status::unimplemented("compressed messages are not supported")));
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > MAX_MESSAGE_BYTES {
            let message = format!("a message of {length} bytes is larger than the limit of {MAX_MESSAGE_BYTES}");
            return Err(Unread::Refused(Status::resource_exhausted(message)));
        }
        if self.buffer.len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        self.buffer.advance(PREFIX_BYTES);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    /// Reads on until the peer has closed its side, so that it is not reset while it still sends.
    async fn drain(mut self) {
        let rest = async {
            while let Some(Ok(data)) = poll_fn(|cx| self.body.poll_data(cx)).await {
                let _ = self.body.flow_control().release_capacity(data.len());
            }
        };
        let _ = tokio::time::timeout(PATIENCE, rest).await;
    }
}

/// Our side of a call.
pub(super) struct Outbound {
    side: Side,
    stream: u32,
    /// Bytes of DATA handed to h2.
    sent: u64,
    tap: Arc<Tap>,
}

enum Side {
    /// Nothing has been sent.
    Unopened(SendResponse<Bytes>),
    /// The response headers have been sent.
    Open(SendStream<Bytes>),
}

impl Outbound {
    /// The side of a call that has just come in over a connection with this tap.
    #[must_use]
    pub(super) fn new(respond: SendResponse<Bytes>, tap: Arc<Tap>) -> Self {
        let stream = respond.stream_id().as_u32();
        tap.watch(stream);
        Self { side: Side::Unopened(respond), stream, sent: 0, tap }
    }

    /// Sends a message; waits until the peer's window has room for it.
    ///
    /// # Errors
    /// When the stream has gone.
    pub(super) async fn message(&mut self, message: &[u8]) -> Result<(), Gone> {
        let length = u32::try_from(message.len()).map_err(|_| Gone::Broken)?;
        let mut frame = BytesMut::with_capacity(PREFIX_BYTES + message.len());
        frame.put_u8(0);
        frame.put_u32(length);
        frame.put_slice(message);
        let mut rest = frame.freeze();
        self.open()?;
        let Side::Open(stream) = &mut self.side else { return Err(Gone::Broken) };
        while !rest.is_empty() {
            stream.reserve_capacity(rest.len());
            while stream.capacity() == 0 {
                match poll_fn(|cx| stream.poll_capacity(cx)).await {
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error.into()),
                    // h2 says only that the stream is over; poll_reset knows why.
                    None => return Err(self.gone().await),
                }
            }
            let part = rest.split_to(stream.capacity().min(rest.len()));
            self.sent += part.len() as u64;
            stream.send_data(part, false).map_err(Gone::from)?;
        }
        Ok(())
    }

    /// Waits until the stream has gone; for ever if it never does.
    pub(super) async fn gone(&mut self) -> Gone {
        let reason = poll_fn(|cx| match &mut self.side {
            Side::Unopened(respond) => respond.poll_reset(cx),
            Side::Open(stream) => stream.poll_reset(cx),
        });
        match reason.await {
            Ok(reason) => Gone::of(Some(reason)),
            Err(error) => error.into(),
        }
    }

    /// Waits until everything that was sent has been written to the socket.
    pub(super) async fn flush(&mut self) {
        let (tap, stream, sent) = (Arc::clone(&self.tap), self.stream, self.sent);
        tokio::select! {
            () = tap.data(stream, sent) => {}
            _ = self.gone() => {}
            () = tokio::time::sleep(PATIENCE) => {}
        }
    }

    /// Ends the call with a status, and waits a moment for the peer to end it too.
    pub(super) async fn finish(mut self, status: Status, inbound: Inbound) {
        let (mut parts, ()) = status.into_http::<()>().into_parts();
        let sent = match &mut self.side {
            Side::Unopened(respond) => {
                accept_identity(&mut parts.headers);
                respond.send_response(Response::from_parts(parts, ()), true).map(drop)
            }
            Side::Open(stream) => {
                parts.headers.remove(header::CONTENT_TYPE);
                stream.send_trailers(parts.headers)
            }
        };
        // If it could not be sent the stream has gone, and there is nobody left to tell.
        if sent.is_ok() {
            inbound.drain().await;
        }
    }

    /// Resets the stream. Whatever has not been written is lost: [`Outbound::flush`] first.
    pub(super) fn reset(mut self) {
        match &mut self.side {
            Side::Unopened(respond) => respond.send_reset(Reason::INTERNAL_ERROR),
            Side::Open(stream) => stream.send_reset(Reason::INTERNAL_ERROR),
        }
    }

    /// Sends the response headers, unless that has happened.
    fn open(&mut self) -> Result<(), Gone> {
        if let Side::Unopened(respond) = &mut self.side {
            let mut response = Response::new(());
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            accept_identity(response.headers_mut());
            self.side = Side::Open(respond.send_response(response, false)?);
        }
        Ok(())
    }
}

impl Drop for Outbound {
    fn drop(&mut self) {
        self.tap.forget(self.stream);
    }
}

fn accept_identity(headers: &mut HeaderMap) {
    headers.insert("grpc-accept-encoding", HeaderValue::from_static("identity"));
}

/// Sleeps until then; for ever if there is no then.
pub(super) async fn sleep_until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => pending().await,
    }
}
