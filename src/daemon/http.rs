//! What the daemon serves besides gRPC, on the same port: numbers for Prometheus, and OTLP over HTTP.
//!
//! `GET /metrics` answers the text format of Prometheus. `POST /v1/traces` takes spans of agents, in the protobuf
//! of OTLP/HTTP (<https://opentelemetry.io/docs/specs/otlp/>), gzipped or not.

use std::error::Error as _;
use std::io::Read as _;
use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Version};
use axum::middleware::Next;
use axum::routing::{get, post};
use http_body_util::LengthLimitError;
use prost::Message as _;
use tonic::Status;

use super::intake::{Intake, refused};
use super::manager::Manager;
use super::receiver::{MAX_REQUEST_BYTES, PATIENCE, taken};
use crate::telemetry::receive::{ReadError, read};
use crate::text::chain;

/// The content of OTLP/HTTP.
const PROTOBUF: &str = "application/x-protobuf";

/// What a request has to pass before it is looked at.
#[derive(Debug)]
pub(super) struct Guard {
    pub(super) intake: Intake,
    /// Names that the daemon is called by, besides addresses and `localhost`; a `*` at the start stands for any
    /// beginning.
    pub(super) hosts: Vec<String>,
}

/// Keeps pages in browsers out: the port speaks HTTP/1, and what answers there runs suites and dials addresses. A
/// browser says where a request comes from, and sends gRPC's content type nowhere without asking first; no program
/// does the one or lacks the other. A page whose own name was made to lead here says that name, which is none of
/// ours.
pub(super) async fn guard(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response<Body> {
    let is_ours = matches!(request.uri().path(), "/metrics" | "/v1/traces");
    let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let is_posted_elsewhere = request.method() == Method::POST && !is_ours && !kind.starts_with(b"application/grpc");
    if request.headers().contains_key(ORIGIN) || is_posted_elsewhere {
        return answer(StatusCode::FORBIDDEN, "text/plain", "this is not for web pages\n");
    }
    if !is_asked_by_name(&request, &guard.hosts) {
        let why = "the request names a host that is not this one; names besides localhost stand in allowed_hosts\n";
        return answer(StatusCode::FORBIDDEN, "text/plain", why);
    }
    guard.intake.admit(request, next).await
}

/// Whether a request is for a host that this daemon is. Over HTTP/2 it always is: browsers speak that only with TLS.
fn is_asked_by_name<B>(request: &axum::http::Request<B>, hosts: &[String]) -> bool {
    if request.version() >= Version::HTTP_2 {
        return true;
    }
    let mut named = request.headers().get_all(HOST).iter();
    let (Some(host), None) = (named.next(), named.next()) else { return false };
    let Ok(host) = Authority::try_from(host.as_bytes()) else { return false };
    let host = host.host().trim_start_matches('[').trim_end_matches(']');
    let is_called = |name: &String| match name.strip_prefix('*') {
        Some(end) => host.to_ascii_lowercase().ends_with(&end.to_ascii_lowercase()),
        None => host.eq_ignore_ascii_case(name),
    };
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok() || hosts.iter().any(is_called)
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
    let arriving = axum::body::to_bytes(body, MAX_REQUEST_BYTES);
    let body = match tokio::time::timeout(PATIENCE, arriving).await {
        Ok(Ok(body)) => body,
        Ok(Err(error)) if error.source().is_some_and(<dyn std::error::Error>::is::<LengthLimitError>) => {
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, "a request may have 4 MiB");
        }
        Ok(Err(error)) => return refuse(StatusCode::SERVICE_UNAVAILABLE, &chain(&error)),
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
        return refused(Status::unimplemented("there is no such service or method"));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_whose_names_lead_here_are_kept_out() {
        let hosts = ["forge.staging".to_owned(), "*.svc".to_owned()];
        for (host, is_ours) in [
            (Some("127.0.0.1:7460"), true),
            (Some("[::1]:7460"), true),
            (Some("10.1.2.3"), true),
            (Some("LOCALHOST:1"), true),
            (Some("forge.staging:7460"), true),
            (Some("forge.tools.svc"), true),
            (Some("evil.example"), false),
            (Some("localhost.evil.example"), false),
            (Some("127.0.0.1.evil.example"), false),
            (Some("forge.staging.evil.example"), false),
            (Some("a b"), false),
            (Some(""), false),
            (None, false),
        ] {
            let mut request = axum::http::Request::new(());
            request.headers_mut().extend(host.map(|host| (HOST, host.parse().expect("a header"))));
            assert_eq!(is_asked_by_name(&request, &hosts), is_ours, "{host:?}");
            request.headers_mut().append(HOST, HeaderValue::from_static("localhost"));
            assert_eq!(is_asked_by_name(&request, &hosts), host.is_none(), "two names are none");
            *request.version_mut() = Version::HTTP_2;
            assert!(is_asked_by_name(&request, &hosts));
        }
    }
}
