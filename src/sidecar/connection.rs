//! One connection: hands its calls out, and ends in one of several ways.
//!
//! - The peer leaves, or the connection breaks.
//! - The agent leaves: the peer gets GOAWAY, calls in flight go on for a while, then the connection is dropped.
//! - A script cuts it, or everything ends: h2 is dropped with all streams, unfinished, and the socket closes.
//!
//! A socket is closed for writing first and then read until the peer has closed it too. Closing it outright while
//! unread bytes lie in it makes the kernel send a reset, and a peer that gets one may throw away what it has received
//! and not yet looked at: the very text that was sent before the cut.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{Request, StatusCode, header};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;

use super::grpc::{Inbound, Outbound, sleep_until};
use super::host::{Host, Line};
use super::tap::Socket;
use super::{agent, parties};

/// How long calls in flight may go on after the agent has announced that it leaves, like a process that is shut down.
const LEAVING: Duration = Duration::from_secs(1);
/// How long a peer may take to say hello, and to close after us.
const PATIENCE: Duration = Duration::from_secs(1);
const HELLO: Duration = Duration::from_secs(10);

/// What a connection hears from the server.
#[derive(Debug, Clone)]
pub(super) struct Signals {
    /// The agent leaves.
    pub leaving: CancellationToken,
    /// A sender is held for as long as the peer has not been told that the agent leaves.
    pub untold: mpsc::WeakSender<()>,
    /// Everything ends.
    pub gone: CancellationToken,
}

/// Serves a connection until it ends.
pub(super) async fn serve(io: TcpStream, host: Arc<Host>, signals: Signals) {
    // Answers come in many small pieces; none may wait for the next. A socket that refuses is about to fail anyway.
    let _ = io.set_nodelay(true);
    let (socket, tap, given_back) = Socket::new(io);
    let hello = tokio::time::timeout(HELLO, http2().handshake::<_, Bytes>(socket));
    let connection = tokio::select! {
        () = signals.gone.cancelled() => return,
        hello = hello => hello,
    };
    let Ok(Ok(mut connection)) = connection else { return };

    let calls = TaskTracker::new();
    let line = Line { tap, cut: CancellationToken::new() };
    // None if the server is leaving and has stopped to wait: then the GOAWAY just goes out first.
    let mut untold = signals.untold.upgrade();
    let mut end = None;
    loop {
        let next = tokio::select! {
            // In this order: h2 must not write a thing once the connection is cut.
            biased;
            () = signals.gone.cancelled() => break,
            () = line.cut.cancelled() => break,
            () = signals.leaving.cancelled(), if end.is_none() => {
                connection.graceful_shutdown();
                end = Some(Instant::now() + LEAVING);
                continue;
            }
            () = line.tap.goaway(), if end.is_some() && untold.is_some() => {
                untold = None;
                continue;
            }
            () = sleep_until(end) => break,
            next = connection.accept() => next,
        };
        match next {
            Some(Ok((request, respond))) => {
                calls.spawn(answer(Arc::clone(&host), line.clone(), request, respond));
            }
            Some(Err(_)) | None => break,
        }
    }
    drop(untold);
    // Breaks the streams that are left, which ends their calls.
    drop(connection);
    if let Ok(io) = given_back.await {
        close(io).await;
    }
    calls.close();
    calls.wait().await;
}

async fn close(mut io: TcpStream) {
    // A socket that cannot be closed any more is closed.
    let _ = io.shutdown().await;
    let rest = async {
        let mut buffer = [0; 4096];
        while io.read(&mut buffer).await.is_ok_and(|bytes| bytes > 0) {}
    };
    let _ = tokio::time::timeout(PATIENCE, rest).await;
}

/// Limits far beyond any suite: this agent tests others and must never be what limits a test.
fn http2() -> h2::server::Builder {
    let mut builder = h2::server::Builder::new();
    builder
        .max_concurrent_streams(10_000)
        .max_pending_accept_reset_streams(10_000)
        .max_local_error_reset_streams(None)
        .initial_window_size(1 << 20)
        .initial_connection_window_size(16 << 20)
        .max_send_buffer_size(1 << 20)
        .max_header_list_size(1 << 20);
    builder
}

/// Answers one call.
async fn answer(host: Arc<Host>, line: Line, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let kind = request.headers().get(header::CONTENT_TYPE);
    if !kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc")) {
        let mut response = http::Response::new(());
        *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        let _ = respond.send_response(response, true);
        return;
    }
    let path = request.uri().path();
    if path.starts_with("/grpc.health.") || path.starts_with("/grpc.reflection.") {
        return host.infra.answer(request, respond).await;
    }
    let out = Outbound::new(respond, Arc::clone(&line.tap));
    let (head, body) = request.into_parts();
    let inbound = Inbound::new(body);
    match head.uri.path() {
        "/forge.agent.v1.AgentEndpoint/Invoke" => agent::invoke(&host, &line, inbound, out).await,
        "/forge.agent.v1.AgentEndpoint/Describe" => agent::describe(&host, inbound, out).await,
        "/forge.agent.v1.Simulator/NextInput" => parties::next_input(&host, inbound, out).await,
        "/forge.agent.v1.Validator/Validate" => parties::validate(&host, inbound, out).await,
        path => out.finish(Status::unimplemented(format!("there is no method {path}")), inbound).await,
    }
}
