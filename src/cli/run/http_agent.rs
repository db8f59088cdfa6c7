//! Agents that are HTTP endpoints: `forge-sidecar http` for each of them, inside this process.

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::RunArgs;
use crate::cli::{CliError, Exit, note};
use crate::peer::target::{speaks_http, without_user};
use crate::sidecar::http::address::HttpUrl;
use crate::sidecar::http::endpoint::Endpoint;
use crate::sidecar::http::{ServeError, serve};
use crate::text::chain;

/// An HTTP endpoint with a name, as the settings of a project have it.
#[derive(Debug, Clone)]
pub(in crate::cli) struct NamedEndpoint {
    /// The name.
    pub(in crate::cli) id: String,
    /// Its address.
    pub(in crate::cli) url: String,
    /// How it is spoken to.
    pub(in crate::cli) endpoint: Endpoint,
    /// Where it stands in the settings, for people; without it its address says who is meant.
    pub(in crate::cli) place: Option<String>,
}

/// The sidecars of a run.
pub(super) struct HttpAgents {
    running: Vec<HttpAgent>,
    /// What is told of endpoints that have none.
    left_out: Option<String>,
}

/// A sidecar in front of an endpoint, on a port that only this machine can reach.
struct HttpAgent {
    id: String,
    /// The endpoint's own address.
    url: String,
    address: std::net::SocketAddr,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), ServeError>>,
}

impl HttpAgents {
    /// Starts a sidecar for each agent of the run that is an HTTP endpoint, and gives the run its address in place of
    /// the endpoint's.
    ///
    /// # Errors
    /// When an address or a setting makes no sense, or nobody waits for the run: a sidecar ends with forgectl.
    pub(super) async fn start(args: &mut RunArgs, daemon: Option<&str>) -> Result<Self, CliError> {
        let mut found = Self::find(args)?;
        let mut left_out = None;
        if let Some(daemon) = daemon.filter(|_| args.detach).map(without_user) {
            let name = args.agent_name();
            let needed = |named: &&NamedEndpoint| named.id == name || args.agent.iter().any(|(id, _)| *id == named.id);
            if let Some(NamedEndpoint { url, .. }) = found.iter().find(needed) {
                let message = format!(
                    "{} is an HTTP endpoint, which forgectl speaks with for the run, and --detach does not wait for that",
                    without_user(url)
                );
                return Err(CliError::new(Exit::Usage, message).hint(format!(
                    "leave out --detach; or start `forge-sidecar http {url} --attach {daemon} --id NAME` yourself, and name that one"
                )));
            }
            // Those of the settings that nobody asked for: the daemon may know others of their names.
            let ids: Vec<String> = found.drain(..).map(|named| format!("{:?}", named.id)).collect();
            left_out = (!ids.is_empty()).then(|| {
                let (ids, are) = (
                    ids.join(", "),
                    if ids.len() == 1 { "that is an HTTP endpoint" } else { "those are HTTP endpoints" },
                );
                format!(
                    "the daemon at {daemon} is not told of {ids} in the settings: {are}, which forgectl speaks with for the run, and --detach does not wait for that"
                )
            });
        }
        let mut agents = Self { running: Vec::new(), left_out };
        for named in found {
            let agent = HttpAgent::start(named).await?;
            args.agent.retain(|(id, _)| *id != agent.id);
            args.agent.push((agent.id.clone(), agent.target()));
            agents.running.push(agent);
        }
        Ok(agents)
    }

    /// The endpoints among the agents of a run: the one under test, those of the command line, and those of the
    /// settings.
    fn find(args: &mut RunArgs) -> Result<Vec<NamedEndpoint>, CliError> {
        let mut found: Vec<NamedEndpoint> = Vec::new();
        let given = args.agent.iter().filter(|(_, url)| speaks_http(url));
        found.extend(given.map(|(id, url)| NamedEndpoint {
            id: id.clone(),
            url: url.clone(),
            endpoint: Endpoint::default(),
            place: None,
        }));
        for named in std::mem::take(&mut args.endpoints) {
            if args.agent.iter().all(|(id, _)| *id != named.id) {
                found.push(named);
            }
        }
        let name = args.agent_name();
        // An earlier run, which is asked for again, says where it was.
        if speaks_http(name) && args.agent.iter().all(|(id, _)| id != name) {
            let (id, url) = (name.to_owned(), name.to_owned());
            found.push(NamedEndpoint { id, url, endpoint: Endpoint::default(), place: None });
        }
        let tested = found.iter_mut().find(|named| named.id == args.name.as_deref().unwrap_or_default());
        match tested {
            Some(named) => {
                let of_settings = std::mem::replace(&mut named.endpoint, std::mem::take(&mut args.endpoint));
                named.endpoint.fill_from(of_settings);
            }
            None if args.endpoint.is_said() => {
                let message = format!(
                    "--preset, --model, --stream, --body and --header are about an HTTP endpoint, and the agent to test is none: {}",
                    args.agent_name()
                );
                return Err(CliError::new(Exit::Usage, message)
                    .hint("name one, as in -n http://127.0.0.1:4000/v1/chat/completions --preset openai-chat"));
            }
            None => {}
        }
        Ok(found)
    }

    /// What is told of each.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        let line = |agent: &HttpAgent| {
            format!("{} speaks HTTP: running forge-sidecar http for it inside this process", agent.url)
        };
        self.running.iter().map(line).chain(self.left_out.clone())
    }

    /// Where they listen.
    pub(super) fn authorities(&self) -> impl Iterator<Item = String> {
        self.running.iter().map(|agent| agent.address.to_string())
    }

    pub(super) async fn close(self) {
        for agent in self.running {
            agent.close().await;
        }
    }
}

impl HttpAgent {
    async fn start(named: NamedEndpoint) -> Result<Self, CliError> {
        let NamedEndpoint { id, url: written, endpoint, place } = named;
        let place = place.unwrap_or_else(|| without_user(&written));
        let url: HttpUrl = written
            .parse()
            .map_err(|error| CliError::new(Exit::Usage, format!("{place}: no address of an HTTP endpoint: {error}")))?;
        let failed = |error: &dyn std::fmt::Display| {
            CliError::new(Exit::CouldNotRun, format!("cannot run forge-sidecar inside this process: {error}"))
        };
        let adapter = endpoint.adapter(url).map_err(|error| {
            if error.is_usage() { CliError::new(Exit::Usage, format!("{place}: {error}")) } else { failed(&error) }
        })?;
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| failed(&error))?;
        let address = listener.local_addr().map_err(|error| failed(&error))?;
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(serve(listener, adapter, shutdown.clone()));
        Ok(Self { id, url: written, address, shutdown, task })
    }

    /// The address that the daemon dials.
    fn target(&self) -> String {
        format!("grpc://{}", self.address)
    }

    async fn close(self) {
        self.shutdown.cancel();
        match self.task.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => note(&format!("forgectl: the sidecar inside this process: {}", chain(&error))),
            Err(error) => note(&format!("forgectl: the sidecar inside this process died: {error}")),
        }
    }
}
