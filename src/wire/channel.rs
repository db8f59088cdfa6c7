//! Channels to servers of others: what they answer is checked before tonic reads it.
//!
//! tonic takes for granted that `grpc-status-details-bin` is base64, and panics when it is not
//! (`Status::from_header_map`). Details explain a status and are nothing without it, so those that nobody can read are
//! left out, and the status counts.

use std::task::{Context, Poll};

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use futures_util::TryFutureExt as _;
use futures_util::future::{BoxFuture, MapOk};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::BodyExt as _;
use http_body_util::combinators::MapFrame;
use tonic::body::Body;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service};

/// Where a status travels, and its details.
const STATUS: &str = "grpc-status";
const DETAILS: &str = "grpc-status-details-bin";

/// Stands in the metadata of a status that travelled. tonic makes one up where an answer has none, and its words alone
/// would not tell the two from each other: the peer that answers chooses its words.
pub const TRAVELLED: &str = "forge-travelled";

/// base64 as tonic reads it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A channel whose answers are checked, whatever carries them. As cheap to clone as the one inside.
#[derive(Debug, Clone)]
pub struct CheckedChannel(BoxCloneSyncService<Request<Body>, Response<Body>, BoxError>);

impl CheckedChannel {
    /// Calls by way of `channel`.
    pub fn new<S>(channel: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>, Error: Into<BoxError>, Future: Send>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        Self(BoxCloneSyncService::new(tower::util::MapErr::new(channel, Into::into as fn(S::Error) -> BoxError)))
    }
}

/// What is left of an answer.
type Checked = Response<MapFrame<Body, fn(Frame<Bytes>) -> Frame<Bytes>>>;

impl Service<Request<Body>> for CheckedChannel {
    type Response = Checked;
    type Error = BoxError;
    type Future = MapOk<BoxFuture<'static, Result<Response<Body>, BoxError>>, fn(Response<Body>) -> Checked>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.0.call(request).map_ok(checked)
    }
}

fn checked(mut response: Response<Body>) -> Checked {
    check(response.headers_mut());
    response.map(|body| body.map_frame(checked_frame as fn(_) -> _))
}

fn checked_frame(mut frame: Frame<Bytes>) -> Frame<Bytes> {
    if let Some(trailers) = frame.trailers_mut() {
        check(trailers);
    }
    frame
}

/// Marks a status, and leaves out details that nobody can read.
fn check(headers: &mut HeaderMap) {
    if headers.contains_key(STATUS) {
        headers.insert(TRAVELLED, HeaderValue::from_static("1"));
    }
    if headers.get_all(DETAILS).iter().any(|details| BASE64.decode(details).is_err()) {
        headers.remove(DETAILS);
    }
}

#[cfg(test)]
mod tests {
    use tonic::{Code, Status};

    use super::*;

    #[test]
    fn a_status_counts_whatever_its_details_are() {
        for (details, is_kept) in
            [("!!!!", false), ("é", false), ("A", false), ("", true), ("CA4", true), ("CA4=", true)]
        {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-status", "14".parse().expect("a header"));
            headers.insert(DETAILS, HeaderValue::from_bytes(details.as_bytes()).expect("a header"));
            check(&mut headers);
            assert_eq!(headers.contains_key(DETAILS), is_kept, "{details:?}");
            let status = Status::from_header_map(&headers).expect("a status");
            assert_eq!(status.code(), Code::Unavailable, "{details:?}");
        }
    }
}
