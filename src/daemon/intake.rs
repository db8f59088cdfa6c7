//! Every request passes here before a service sees it: their number, their bytes and the time for each to arrive are
//! limited.
//!
//! A service reads a request whole before it looks at it, so what comes in slowly, or never comes to its end, would be
//! held for ever. Some methods take streams of requests, and read each message for itself: of those only the silence is
//! bounded here.

use std::net::{IpAddr, Ipv4Addr};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use axum::BoxError;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{Extensions, Response};
use axum::middleware::Next;
use futures_util::FutureExt as _;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::Status;

use super::door::GuestInfo;
use super::places::{Busy, Place, Places};
use super::turns::Party;
use crate::limits::{ARRIVAL, REQUEST_BYTES, REQUESTS, UPLOAD_SILENCE};
use crate::run::pulse::watched;
use crate::wire::reflection::{REFLECTION, REFLECTION_ALPHA};

/// The method that receives a bundle. It writes each piece to the disk, so its bytes are not counted here.
const UPLOAD: &str = "/forge.control.v1.RunService/UploadBundle";
/// The method by which agents attach. What they send is bounded by the credit that they are given.
const ATTACH: &str = "/forge.attach.v1.AttachService/Attach";

/// Places for requests.
#[derive(Debug)]
pub(super) struct Intake {
    requests: Arc<Places>,
    bytes: Arc<Places>,
}

impl Default for Intake {
    fn default() -> Self {
        Self { requests: Places::new(REQUESTS), bytes: Places::new(REQUEST_BYTES) }
    }
}

impl Intake {
    /// Has a request done, if there is a place for it. The place is free again when the answer was taken, or nobody
    /// wants it.
    pub(super) async fn admit(&self, request: Request, next: Next) -> Response<Body> {
        let info = request.extensions().get::<GuestInfo>();
        if info.is_some_and(|info| info.is_turned_away) {
            return refused(Status::resource_exhausted("the daemon has no place for further connections"));
        }
        let connection = info.map(|info| Arc::clone(&info.place));
        let peer = peer_of(request.extensions());
        let (Some(place), Some(bytes)) = (self.requests.take(peer, 1), self.bytes.take(peer, 0)) else {
            return refused(Status::resource_exhausted("the daemon does too much at the same time; try again"));
        };
        let place = Arc::new(place);
        let path = request.uri().path();
        let is_bounded = [UPLOAD, ATTACH].contains(&path);
        let service = path.trim_start_matches('/');
        let is_stream = is_bounded || [REFLECTION, REFLECTION_ALPHA].iter().any(|known| service.starts_with(known));
        let working = Arc::default();
        let request = request.map(|body| {
            let time = if is_stream { UPLOAD_SILENCE } else { ARRIVAL };
            Body::new(Arriving {
                body,
                end: Box::pin(tokio::time::sleep(time)),
                gone: Box::pin(place.gone().clone().cancelled_owned()),
                place: Arc::clone(&place),
                connection,
                bytes: (!is_bounded).then_some(bytes),
                is_stream,
                working: Arc::clone(&working),
            })
        });
        let Ok(response) = AssertUnwindSafe(watched("a request", next.run(request))).catch_unwind().await else {
            tracing::error!("answering a request panicked");
            return refused(Status::internal("the daemon failed while it did this"));
        };
        response.map(|body| Body::new(Answer { body, _place: place, _working: working }))
    }
}

/// The address that a request comes from.
pub(super) fn peer_of(extensions: &Extensions) -> IpAddr {
    // Where there is none, nobody else can come.
    extensions.get::<GuestInfo>().map_or(Ipv4Addr::LOCALHOST.into(), |info| info.peer)
}

/// Who asks for runs: another machine, or a connection from this one, where everybody has the same address.
pub(super) fn client_of(extensions: &Extensions) -> Option<Party> {
    let info = extensions.get::<GuestInfo>()?;
    Some(if info.peer.is_loopback() { Party::Connection(info.place.id()) } else { Party::Address(info.peer) })
}

/// What keeps its places while something is done for a request that has come to its end: its own, and that of its
/// connection.
type Working = Arc<OnceLock<(Busy, Option<Busy>)>>;

/// A status as gRPC answers it.
pub(super) fn refused(status: Status) -> Response<Body> {
    let (parts, ()) = status.into_http::<()>().into_parts();
    Response::from_parts(parts, Body::empty())
}

/// A request that comes in.
struct Arriving {
    body: Body,
    place: Arc<Place>,
    /// Another needs the place.
    gone: Pin<Box<WaitForCancellationFutureOwned>>,
    /// What came of it so far, until it is done; `None`: each piece is done at once.
    bytes: Option<Place>,
    end: Pin<Box<Sleep>>,
    /// Each piece has its own time.
    is_stream: bool,
    connection: Option<Arc<Place>>,
    working: Working,
}

impl Drop for Arriving {
    fn drop(&mut self) {
        // It has come to its end.
        let _ = self.working.set((self.place.busy(), self.connection.as_ref().map(Place::busy)));
    }
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) else {
            if this.gone.as_mut().poll(context).is_ready() {
                let why = "the request did not come to its end, and others wait";
                return Poll::Ready(Some(Err(Status::resource_exhausted(why).into())));
            }
            ready!(this.end.as_mut().poll(context));
            let why = "the request did not come to its end in time";
            return Poll::Ready(Some(Err(Status::deadline_exceeded(why).into())));
        };
        let Some(Ok(frame)) = frame else {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        };
        this.place.heard();
        if this.is_stream {
            this.end.as_mut().reset(Instant::now() + UPLOAD_SILENCE);
        }
        let len = frame.data_ref().map_or(0, Bytes::len);
        if this.bytes.as_ref().is_some_and(|bytes| !bytes.grow(len)) {
            let why = "too many bytes of requests are coming in at the same time; try again";
            return Poll::Ready(Some(Err(Status::resource_exhausted(why).into())));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An answer, which holds the place of its request until it is taken.
struct Answer {
    body: Body,
    _place: Arc<Place>,
    _working: Working,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
