//! The daemon that forgectl talks to: one that is named, or one inside this process.

use std::future::Future;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Response, Status};

use super::{CliError, Exit, note};
use crate::daemon::Daemon;
use crate::daemon::config::Config;
use crate::peer::agent::endpoint;
use crate::peer::target::{AllowedTargets, Target};
use crate::text;
use crate::text::chain;
use crate::wire::channel::CheckedChannel;
use crate::wire::control::agent_registry_service_client::AgentRegistryServiceClient;
use crate::wire::control::info_service_client::InfoServiceClient;
use crate::wire::control::run_service_client::RunServiceClient;
use crate::wire::control::{GetInfoRequest, GetInfoResponse};

/// Time to reach a daemon.
const PATIENCE: Duration = Duration::from_secs(3);
/// Pause between attempts to find a daemon that is away.
pub(super) const PAUSE: Duration = Duration::from_millis(200);
/// Time that is waited for a daemon that has too much to do.
const BUSY: Duration = Duration::from_mins(1);
/// Pause between attempts in the end.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Time for an answer.
const ANSWER: Duration = Duration::from_secs(30);
/// Largest message of a daemon: a verdict holds the answer and all tool calls of its case.
const MAX_MESSAGE_BYTES: usize = 128 << 20;

/// A connection to a daemon.
pub(super) struct Client {
    /// Where it listens.
    pub(super) url: String,
    /// What it said about itself.
    pub(super) info: GetInfoResponse,
    channel: CheckedChannel,
    embedded: Option<Embedded>,
    /// Time that the daemon may be away while something is done with it.
    patience: Duration,
}

/// A daemon inside this process.
struct Embedded {
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), crate::daemon::DaemonError>>,
    _data_dir: tempfile::TempDir,
}

impl Client {
    /// Connects to the daemon at `url`.
    pub(super) async fn connect(url: &str) -> Result<Self, CliError> {
        let target = Target::of_daemon(url).map_err(|error| CliError::new(Exit::Usage, error.to_string()))?;
        Self::open(url.to_owned(), &target.authority(), None).await
    }

    /// Connects to the daemon that was named; those commands need one.
    pub(super) async fn required(url: Option<String>) -> Result<Self, CliError> {
        match url {
            Some(url) => Self::connect(&url).await,
            None => Err(CliError::new(Exit::Usage, "this command talks to a daemon, and none is named").hint(
                "give its address with --daemon URL, FORGE_DAEMON or `daemon` in forge.config.json; `forge-daemon` starts one, which --daemon local names",
            )),
        }
    }

    /// Starts a daemon inside this process and connects to it. Its only client is this one, so it dials whatever it is
    /// told to.
    pub(super) async fn embed() -> Result<Self, CliError> {
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            CliError::new(Exit::CouldNotRun, format!("cannot start a daemon inside this process: {what}: {error}"))
        };
        let data_dir = tempfile::tempdir().map_err(|error| failed("a directory for its data", &error))?;
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| failed("a port", &error))?;
        let address = listener.local_addr().map_err(|error| failed("a port", &error))?;
        let config = Config {
            allowed_targets: AllowedTargets::Any,
            // The run is over, or was given up, when the daemon is stopped.
            drain: Duration::ZERO,
            ..Config::new(address, data_dir.path().to_owned())
        };
        let shutdown = CancellationToken::new();
        let daemon = Daemon::prepare(&config).await.map_err(|error| failed("its data", &chain(&error)))?;
        let task = tokio::spawn(daemon.serve(listener, shutdown.clone()));
        let embedded = Embedded { shutdown, task, _data_dir: data_dir };
        Self::open(format!("http://{address}"), &address.to_string(), Some(embedded)).await
    }

    async fn open(url: String, authority: &str, embedded: Option<Embedded>) -> Result<Self, CliError> {
        let unreachable = |why: String| {
            CliError::new(Exit::CouldNotRun, format!("the daemon at {url} cannot be reached: {why}"))
                .hint("start one with `forge-daemon`, or run without one: --daemon-free, and neither --daemon nor FORGE_DAEMON nor `daemon` in forge.config.json")
        };
        let endpoint = endpoint(authority).map_err(|error| unreachable(error.to_string()))?;
        let channel = CheckedChannel::new(endpoint.connect_timeout(PATIENCE).connect_lazy());
        let mut info = InfoServiceClient::new(channel.clone());
        let asked = tokio::time::timeout(PATIENCE, info.get_info(GetInfoRequest {})).await;
        let info = match asked {
            Err(_) => return Err(unreachable(format!("no answer within {} s", PATIENCE.as_secs()))),
            Ok(Err(status)) => return Err(unreachable(deepest(&status))),
            Ok(Ok(info)) => info.into_inner(),
        };
        if info.max_revision < crate::wire::MIN_REVISION || info.min_revision > crate::wire::MAX_REVISION {
            let message =
                format!("the daemon at {url} (version {}) speaks another revision of the protocol", info.version);
            return Err(CliError::new(Exit::CouldNotRun, message).hint("use a forgectl of the daemon's version"));
        }
        Ok(Self { url, info, channel, embedded, patience: Duration::ZERO })
    }

    /// The same client, which waits so long for a daemon that is away. One inside this process does not come back.
    pub(super) fn waiting(self, patience: Duration) -> Self {
        let patience = if self.is_embedded() { Duration::ZERO } else { patience };
        Self { patience, ..self }
    }

    /// Time that the daemon may be away while something is done with it.
    pub(super) const fn patience(&self) -> Duration {
        self.patience
    }

    /// Does something again for as long as the daemon may be away, and for a while if it has too much to do. It must be
    /// harmless to do it twice.
    pub(super) async fn again<T>(&self, act: impl AsyncFn() -> Result<T, CliError>) -> Result<T, CliError> {
        let began = Instant::now();
        let mut pause = PAUSE;
        loop {
            match act().await {
                Err(error) if error.is_away && began.elapsed() + PAUSE < self.patience => {
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) if error.is_busy && began.elapsed() + pause < BUSY => {
                    tokio::time::sleep(pause).await;
                    pause = (2 * pause).min(LONGEST_PAUSE);
                }
                acted => return acted,
            }
        }
    }

    /// Whether the daemon runs inside this process.
    pub(super) const fn is_embedded(&self) -> bool {
        self.embedded.is_some()
    }

    /// Waits for an answer of the daemon while `doing` something, but not for ever.
    pub(super) async fn ask<T>(
        &self,
        doing: &str,
        answer: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, CliError> {
        self.ask_within(ANSWER, doing, answer).await
    }

    /// The same for what may take longer.
    pub(super) async fn ask_within<T>(
        &self,
        time: Duration,
        doing: &str,
        answer: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, CliError> {
        match tokio::time::timeout(time, answer).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(CliError::of_status(doing, &status)),
            Err(_) => {
                let message = format!("{doing}: the daemon at {} gave no answer within {} s", self.url, time.as_secs());
                Err(CliError::new(Exit::CouldNotRun, message))
            }
        }
    }

    pub(super) fn runs(&self) -> RunServiceClient<CheckedChannel> {
        RunServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    pub(super) fn agents(&self) -> AgentRegistryServiceClient<CheckedChannel> {
        AgentRegistryServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// Ends an embedded daemon; agents that were given up get their cancel first.
    pub(super) async fn close(self) {
        let Some(embedded) = self.embedded else { return };
        drop(self.channel);
        embedded.shutdown.cancel();
        match embedded.task.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => note(&format!("forgectl: the daemon inside this process: {}", chain(&error))),
            Err(error) => note(&format!("forgectl: the daemon inside this process died: {error}")),
        }
    }
}

/// The deepest cause of a status that the transport made up, else its message.
fn deepest(status: &Status) -> String {
    std::error::Error::source(status).map_or_else(|| status.message().to_owned(), text::deepest)
}
