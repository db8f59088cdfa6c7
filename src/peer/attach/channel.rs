//! An attached agent as a channel of gRPC: requests become calls on its stream, and what comes back becomes answers.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::BodyExt as _;
use tonic::body::Body;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use tower::{BoxError, Service};

use super::hub::Hub;
use super::session::{Arrival, Opened, Session};
use super::{AttachError, MAX_FRAME_BYTES};
use crate::wire::attach::{Kind, NOT_DELIVERED, Unframer, cost, in_body};

/// Makes calls of one agent over the streams of its instances.
#[derive(Debug, Clone)]
pub struct AttachedChannel {
    hub: Arc<Hub>,
    name: Arc<str>,
}

impl AttachedChannel {
    /// The channel of the agent of that name, whether it is attached now or not.
    #[must_use]
    pub fn new(hub: Arc<Hub>, name: &str) -> Self {
        Self { hub, name: name.into() }
    }

    /// Invocations that all instances of the agent take at a time.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.hub.slots(&self.name)
    }
}

impl Service<Request<Body>> for AttachedChannel {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { hub, name } = self.clone();
        async move { call(&hub, &name, request).await }.boxed()
    }
}

async fn call(hub: &Hub, name: &str, request: Request<Body>) -> Result<Response<Body>, BoxError> {
    let Some(kind) = Kind::of_path(request.uri().path()) else {
        let message = format!("{} cannot be called on an attached stream", request.uri().path());
        return Ok(Status::unimplemented(message).into_http());
    };
    let timeout = request.headers().get("grpc-timeout").and_then(read_timeout);
    let slot = hub.reserve(name, kind).await.ok_or_else(|| AttachError::NotAttached(name.to_owned()))?;
    // What is read of the request counts as sent, so it is not read before it can be.
    slot.session.wait_for_room().await;
    let mut messages = Messages { body: request.into_body(), unframer: Unframer::default() };
    let Some(first) = messages.next().await? else {
        return Ok(Status::invalid_argument("the call has no first message").into_http());
    };
    let opened = Session::open(slot, timeout, first).await?;
    if kind == Kind::Invoke {
        let (session, call_no, closed) = (Arc::clone(&opened.session), opened.call_no, opened.closed.clone());
        opened.session.spawn(async move {
            closed.run_until_cancelled(send_rest(&session, call_no, messages)).await;
        });
    }
    let mut replies = Replies { opened, first: None, is_over: false };
    // A call that was not delivered is told as that, not as one that was answered.
    match replies.opened.arriving.recv().await {
        Some(Arrival::End(status)) if says_not_delivered(&status) => {
            replies.is_over = true;
            return Err(AttachError::NotTaken.into());
        }
        Some(first) => replies.first = Some(first),
        None => {
            replies.is_over = true;
            return Err(AttachError::Lost(replies.opened.session.why()).into());
        }
    }
    let mut response = Response::new(Body::new(replies));
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Ok(response)
}

async fn send_rest(session: &Session, call_no: u64, mut messages: Messages) {
    loop {
        match messages.next().await {
            Ok(Some(message)) => session.send(call_no, message).await,
            Ok(None) => return session.half_close(call_no),
            Err(_) => return session.reset(call_no),
        }
    }
}

/// The messages of a request.
struct Messages {
    body: Body,
    unframer: Unframer,
}

impl Messages {
    async fn next(&mut self) -> Result<Option<Bytes>, AttachError> {
        let unsendable = |why: String| AttachError::Unsendable(why);
        loop {
            let next = self.unframer.next(MAX_FRAME_BYTES).map_err(|error| unsendable(error.to_string()))?;
            if next.is_some() {
                return Ok(next);
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame = frame.map_err(|status| unsendable(status.message().to_owned()))?;
            if let Ok(piece) = frame.into_data() {
                self.unframer.push(&piece);
            }
        }
    }
}

/// What an agent sends in a call, as a body. Dropped before its end, the call is given up.
struct Replies {
    opened: Opened,
    /// What came first, if it was not taken yet.
    first: Option<Arrival>,
    is_over: bool,
}

impl http_body::Body for Replies {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let arrived = match self.first.take() {
            None => ready!(self.opened.arriving.poll_recv(cx)),
            first => first,
        };
        Poll::Ready(Some(match arrived {
            Some(Arrival::Message(message)) => {
                self.opened.session.taken(self.opened.call_no, cost(&message));
                Ok(Frame::data(in_body(&message)))
            }
            Some(Arrival::End(status)) => {
                self.is_over = true;
                let mut trailers = HeaderMap::new();
                status.add_header(&mut trailers)?;
                Ok(Frame::trailers(trailers))
            }
            None => {
                self.is_over = true;
                Err(AttachError::Lost(self.opened.session.why()).into())
            }
        }))
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        if !self.is_over {
            self.opened.session.reset(self.opened.call_no);
        }
    }
}

fn says_not_delivered(status: &Status) -> bool {
    let info = status.get_details_error_info().filter(|_| status.code() == Code::Unavailable);
    info.is_some_and(|info| info.reason == NOT_DELIVERED)
}

/// The time in a header `grpc-timeout`: digits and a unit.
fn read_timeout(value: &HeaderValue) -> Option<prost_types::Duration> {
    let text = value.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = digits.parse().ok()?;
    let nanos_each: u64 = match unit {
        "H" => 3_600_000_000_000,
        "M" => 60_000_000_000,
        "S" => 1_000_000_000,
        "m" => 1_000_000,
        "u" => 1_000,
        "n" => 1,
        _ => return None,
    };
    let duration = std::time::Duration::from_nanos(number.checked_mul(nanos_each)?);
    prost_types::Duration::try_from(duration).ok()
}
