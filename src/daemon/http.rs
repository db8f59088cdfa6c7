//! What the daemon serves besides gRPC, on the same port: numbers for Prometheus, and OTLP over HTTP.
//!
//! `GET /metrics` answers the text format of Prometheus. `POST /v1/traces` takes spans of agents, in the protobuf of OTLP/HTTP
//! (<https://opentelemetry.io/docs/specs/otlp/>), gzipped or not.

use std::io::Read as _;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use axum::middleware::Next;
use axum::routing::{get, post};
use prost::Message as _;
use tokio::sync::Semaphore;
use tonic::Status;

use super::manager::Manager;
use super::receiver::{MAX_REQUEST_BYTES, MAX_REQUESTS, PATIENCE, taken};
use crate::telemetry::receive::{ReadError, read};

/// The content of OTLP/HTTP.
const PROTOBUF: &str = "application/x-protobuf";

/// Requests that are read at the same time.
static READING: Semaphore = Semaphore::const_new(MAX_REQUESTS);
/// The path of OTLP over gRPC.
const OTLP: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Keeps pages in browsers out: the port speaks HTTP/1, and what answers there runs suites and dials addresses. A browser says
/// where a request comes from, and sends gRPC's content type nowhere without asking first; no program does the one or lacks the
/// other.
pub(super) async fn guard(request: Request, next: Next) -> Response<Body> {
    let is_ours = matches!(request.uri().path(), "/metrics" | "/v1/traces");
    let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let is_posted_elsewhere = request.method() == Method::POST && !is_ours && !kind.starts_with(b"application/grpc");
    if request.headers().contains_key(ORIGIN) || is_posted_elsewhere {
        return answer(StatusCode::FORBIDDEN, "text/plain", "this is not for web pages\n");
    }
    if request.uri().path() == OTLP {
        // Else requests that never come to their end would keep out all others.
        return match tokio::time::timeout(2 * PATIENCE, next.run(request)).await {
            Ok(answered) => answered,
            Err(_) => grpc(Status::deadline_exceeded("the request did not come to its end")),
        };
    }
    next.run(request).await
}

/// A status as gRPC answers it.
fn grpc(status: Status) -> Response<Body> {
    let (parts, ()) = status.into_http::<()>().into_parts();
    Response::from_parts(parts, Body::empty())
}

/// The routes. What is not there is told to gRPC clients in their way, to others in theirs.
pub(super) fn routes(manager: Arc<Manager>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/v1/traces", post(traces))
        .fallback(nothing)
        .with_state(manager)
}

async fn metrics(State(manager): State<Arc<Manager>>) -> Response<Body> {
    match manager.telemetry().metrics.text() {
        Ok(text) => answer(StatusCode::OK, "text/plain; version=0.0.4", text),
        Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", error),
    }
}

async fn traces(State(manager): State<Arc<Manager>>, headers: HeaderMap, body: Body) -> Response<Body> {
    let refuse = |status, why: &str| answer(status, "text/plain", format!("{why}\n"));
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().map(str::trim) != Some(PROTOBUF) {
        let why = "spans are taken as application/x-protobuf; set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf";
        return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, why);
    }
    // A request becomes many times as large when it is read.
    let Ok(_reading) = READING.try_acquire() else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "too many requests are being read; try again");
    };
    let arriving = axum::body::to_bytes(body, MAX_REQUEST_BYTES);
    let body = match tokio::time::timeout(PATIENCE, arriving).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => return refuse(StatusCode::PAYLOAD_TOO_LARGE, "a request may have 4 MiB"),
        Err(_) => return refuse(StatusCode::REQUEST_TIMEOUT, "the request did not come to its end"),
    };
    let encoding = headers.get(CONTENT_ENCODING).and_then(|encoding| encoding.to_str().ok()).unwrap_or("identity");
    let is_zipped = match encoding {
        "identity" => false,
        "gzip" => true,
        _ => return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the only encoding that is taken is gzip"),
    };
    let reading = move || {
        let body = if is_zipped { unzipped(&body).ok_or(Refused::NotZipped)? } else { body };
        Ok(read(body)?)
    };
    match taken(manager, reading).await {
        Ok(taken) => answer(StatusCode::OK, PROTOBUF, taken.encode_to_vec()),
        Err(error @ Refused::Read(ReadError::TooMuch)) => refuse(StatusCode::PAYLOAD_TOO_LARGE, &error.to_string()),
        Err(error @ Refused::Read(ReadError::Failed)) => refuse(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
        Err(error) => refuse(StatusCode::BAD_REQUEST, &error.to_string()),
    }
}

/// Why a body is not taken.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("the body is no gzip, or too large")]
    NotZipped,
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// `None`: it is none, or more than a request may have.
fn unzipped(body: &[u8]) -> Option<Bytes> {
    let mut out = Vec::new();
    let most = MAX_REQUEST_BYTES as u64 + 1;
    flate2::read::GzDecoder::new(body).take(most).read_to_end(&mut out).ok()?;
    (out.len() <= MAX_REQUEST_BYTES).then(|| out.into())
}

async fn nothing(request: Request) -> Response<Body> {
    let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    if kind.starts_with(b"application/grpc") {
        return grpc(Status::unimplemented("there is no such service or method"));
    }
    let known = "this is a forge-daemon: it speaks gRPC here, GET /metrics and POST /v1/traces\n";
    answer(StatusCode::NOT_FOUND, "text/plain", known)
}

fn answer(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
