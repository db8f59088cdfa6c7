//! A daemon with a second door, for the tests of the SDKs: what a run would call, a test can call itself.
//!
//! A call of `forge.agent.v1` that comes to the second port goes to the attached agent whose name is its `:authority`, over
//! the daemon's own code. stdout says `listening on ADDRESS`, where agents attach, and then `calls on ADDRESS`.

use std::error::Error;
use std::sync::Arc;

use axum::Router;
use forge::daemon::Daemon;
use forge::daemon::config::Config;
use forge::peer::attach::{AttachedChannel, Hub};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::body::Body;
use tonic::transport::Server;
use tower::{Service as _, service_fn};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let data = tempfile::tempdir()?;
    let (front, side) = (TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?);
    let daemon = Daemon::prepare(&Config::new(front.local_addr()?, data.path().to_owned())).await?;
    let routes = Router::new().fallback_service(calls(Arc::clone(daemon.attached())));
    println!("listening on {}\ncalls on {}", front.local_addr()?, side.local_addr()?);
    let stop = CancellationToken::new();
    let served = Server::builder()
        .add_routes(routes.into())
        .serve_with_incoming_shutdown(TcpListenerStream::new(side), stop.clone().cancelled_owned());
    let mut terminated = signal(SignalKind::terminate())?;
    let asked_to_end = async {
        terminated.recv().await;
        stop.cancel();
    };
    let (daemon, calls, ()) = tokio::join!(daemon.serve(front, stop.clone()), served, asked_to_end);
    Ok(daemon.map(|()| calls)??)
}

/// Gives each call to the agent that it names.
fn calls(
    hub: Arc<Hub>,
) -> impl tower::Service<
    http::Request<axum::body::Body>,
    Response = http::Response<Body>,
    Error = std::convert::Infallible,
    Future: Send,
> + Clone
+ Send
+ Sync
+ 'static {
    service_fn(move |request: http::Request<axum::body::Body>| {
        let name = request.uri().host().unwrap_or_default().to_owned();
        let mut agent = AttachedChannel::new(Arc::clone(&hub), &name);
        async move {
            let answer = agent.call(request.map(Body::new)).await;
            Ok(answer.unwrap_or_else(|error| Status::unavailable(error.to_string()).into_http()))
        }
    })
}
