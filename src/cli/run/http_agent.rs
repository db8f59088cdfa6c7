//! An agent that is an HTTP chat endpoint: `forge-sidecar http`, inside this process.

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cli::{CliError, Exit, note};
use crate::daemon::status::chain;
use crate::peer::target::speaks_http;
use crate::sidecar::http::address::HttpUrl;
use crate::sidecar::http::client::HttpClient;
use crate::sidecar::http::{Adapter, ServeError, serve};

/// A sidecar in front of an endpoint, on a port that only this machine can reach.
pub(super) struct HttpAgent {
    /// The endpoint's own address.
    pub(super) url: String,
    address: std::net::SocketAddr,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), ServeError>>,
}

impl HttpAgent {
    /// Starts a sidecar if `agent` is the address of an HTTP endpoint.
    ///
    /// # Errors
    /// When the address makes no sense, or there is a daemon: that could not reach a port of this machine.
    pub(super) async fn start(agent: &str, daemon: Option<&str>) -> Result<Option<Self>, CliError> {
        if !speaks_http(agent) {
            return Ok(None);
        }
        let url: HttpUrl = agent.parse().map_err(|error| {
            CliError::new(Exit::Usage, format!("{agent:?} is no address of an HTTP endpoint: {error}"))
        })?;
        if let Some(daemon) = daemon {
            let message = format!("the daemon at {daemon} speaks gRPC with agents, and {agent} is an HTTP endpoint");
            return Err(CliError::new(Exit::Usage, message).hint(format!(
                "start `forge-sidecar http {agent}` beside the daemon and name the grpc:// address where it listens; \
                 or run without a daemon, with --daemon-free"
            )));
        }
        let failed = |error: &dyn std::fmt::Display| {
            CliError::new(Exit::CouldNotRun, format!("cannot run forge-sidecar inside this process: {error}"))
        };
        let client = HttpClient::new(url, &[]).map_err(|error| failed(&error))?;
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| failed(&error))?;
        let address = listener.local_addr().map_err(|error| failed(&error))?;
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(serve(listener, Adapter::new(client), shutdown.clone()));
        Ok(Some(Self { url: agent.to_owned(), address, shutdown, task }))
    }

    /// The address that the daemon dials.
    pub(super) fn target(&self) -> String {
        format!("grpc://{}", self.address)
    }

    pub(super) async fn close(self) {
        self.shutdown.cancel();
        match self.task.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => note(&format!("forgectl: the sidecar inside this process: {}", chain(&error))),
            Err(error) => note(&format!("forgectl: the sidecar inside this process died: {error}")),
        }
    }
}
