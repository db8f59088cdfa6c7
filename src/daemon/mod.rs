//! The daemon: the gRPC services over the engine, on one listener, until it is told to stop.
//!
//! Services are thin: they check what a client sent, ask [`manager::Manager`] or the store, and turn errors into
//! statuses in one place ([`status`]).

mod agents;
mod artifact;
mod attach;
pub mod config;
mod create;
mod door;
mod generate;
mod history;
mod http;
mod info;
mod intake;
mod log;
pub mod manager;
mod memory;
mod observer;
mod open;
mod outbox;
mod places;
mod receiver;
mod runs;
pub mod status;
mod suspects;
mod turns;
mod watch;

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::codec::CompressionEncoding;
use tonic::service::Routes;
use tonic::transport::Server;

use crate::limits::STREAMS;
use crate::peer::attach::{Hub, MAX_FRAME_BYTES};
use crate::peer::directory::{Directory, DirectoryError};
use crate::run::pulse;
use crate::store::bundles::{self, Bundles, BundlesError};
use crate::store::guard::{LockedFile, make_private};
use crate::store::{self, Store, StoreError};
use crate::telemetry::connect::{Exporters, TelemetryError};
use crate::telemetry::export::Exporter;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::otlp::resource;
use crate::wire::attach::attach_service_server::{AttachServiceServer, SERVICE_NAME as ATTACH_SERVICE};
use crate::wire::control::agent_registry_service_server::{
    AgentRegistryServiceServer, SERVICE_NAME as AGENT_REGISTRY_SERVICE,
};
use crate::wire::control::info_service_server::{InfoServiceServer, SERVICE_NAME as INFO_SERVICE};
use crate::wire::control::run_service_server::{RunServiceServer, SERVICE_NAME as RUN_SERVICE};
use crate::wire::otlp::trace_service_server::{SERVICE_NAME as TRACE_SERVICE, TraceServiceServer};
use crate::wire::reflection::{HEALTH, REFLECTION, REFLECTION_ALPHA, reflection};
use config::{Config, OnRestart};
use intake::Intake;
use manager::Manager;
use observer::Telemetry;
use outbox::Outbox;

/// The file that says whose a data directory is.
const LOCK_FILE: &str = "lock";
/// Time that connections have to end after the last run ended.
const CLOSING: Duration = Duration::from_secs(2);
/// Time that clients have to fetch the results of runs that were ended by stopping the daemon.
const LINGER: Duration = Duration::from_secs(1);
/// Pings find watchers that are gone without having said so.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Why a daemon cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// An agent of the configuration makes no sense.
    #[error("an agent in the configuration")]
    Agents(#[from] DirectoryError),
    /// The data directory cannot be used.
    #[error("the data directory")]
    Bundles(#[from] BundlesError),
    /// Another daemon uses the data directory.
    #[error("the data directory {} is in use by another daemon", .0.display())]
    DataDirInUse(PathBuf),
    /// The data directory cannot be locked.
    #[error("locking the data directory {}", path.display())]
    DataDir {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// What is kept cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The server gave up.
    #[error("serving")]
    Serve(#[from] tonic::transport::Error),
    /// Telemetry is to go somewhere that makes no sense.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// There are no numbers.
    #[error("setting up metrics: {0}")]
    Metrics(String),
    /// The descriptors cannot be served.
    #[error("setting up reflection")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// A daemon that is ready to serve.
#[derive(Debug)]
pub struct Daemon {
    manager: Arc<Manager>,
    directory: Arc<Directory>,
    /// Names that the daemon is called by.
    hosts: Vec<String>,
    drain: Duration,
    on_restart: OnRestart,
    /// Holds the data directory for this daemon alone, as long as it is open.
    lock: LockedFile,
}

impl Daemon {
    /// Sets everything up that can go wrong before anybody is served.
    ///
    /// # Errors
    /// When the data directory or an agent of the configuration cannot be used.
    pub async fn prepare(config: &Config) -> Result<Self, DaemonError> {
        let lock = lock(&config.data_dir)?;
        let bundles = Arc::new(Bundles::open(&config.data_dir, config.max_bundle_bytes)?);
        let directory = Arc::new(Directory::new(&config.agents, config.allowed_targets.clone())?);
        let store = Arc::new(Store::open(config.store.as_deref(), &config.data_dir, config.keep_runs).await?);
        for (name, url, labels) in store.agents().await? {
            // What is not allowed any more, or is configured now, is not taken from there.
            if let Err(error) = directory.register(&name, &url, labels) {
                tracing::warn!(agent = ?name, %error, "an agent that was added once is left out");
            }
        }
        let telemetry = telemetry(config)?;
        let manager = Manager::new(store, Arc::clone(&directory), bundles, telemetry, config);
        Ok(Self {
            manager: Arc::new(manager),
            directory,
            hosts: config.allowed_hosts.clone(),
            drain: config.drain,
            on_restart: config.on_restart,
            lock,
        })
    }

    /// The agents that attach to it.
    #[must_use]
    pub fn attached(&self) -> &Arc<Hub> {
        self.directory.attached()
    }

    /// Serves on `listener` until `shutdown` is cancelled; then takes no more runs, lets cases in flight end within the
    /// configured time, and returns when everything is told and closed.
    ///
    /// # Errors
    /// When the server gives up.
    pub async fn serve(self, listener: TcpListener, shutdown: CancellationToken) -> Result<(), DaemonError> {
        let Self { manager, directory, hosts, drain, on_restart, lock } = self;
        manager.take_up(on_restart).await.map_err(|error| manager.store().lost().unwrap_or(error))?;
        let (health, health_service) = tonic_health::server::health_reporter();
        let services = ["", RUN_SERVICE, INFO_SERVICE, AGENT_REGISTRY_SERVICE, ATTACH_SERVICE];
        for service in services {
            health.set_service_status(service, tonic_health::ServingStatus::Serving).await;
        }
        // All that is added to the routes below.
        let served = [
            RUN_SERVICE,
            INFO_SERVICE,
            AGENT_REGISTRY_SERVICE,
            ATTACH_SERVICE,
            TRACE_SERVICE,
            HEALTH,
            REFLECTION,
            REFLECTION_ALPHA,
        ];
        let closed = CancellationToken::new();
        let attach = attach::Attach::new(Arc::clone(&directory), Arc::clone(&manager.telemetry().metrics));
        let attached = attach.clone();
        let traces = TraceServiceServer::new(receiver::Receiver { manager: Arc::clone(&manager) })
            .max_decoding_message_size(receiver::MAX_REQUEST_BYTES)
            .accept_compressed(CompressionEncoding::Gzip);
        let routes = Routes::from(http::routes(Arc::clone(&manager)))
            .add_service(traces)
            .add_service(health_service)
            .add_service(reflection(&served).build_v1()?)
            .add_service(reflection(&served).build_v1alpha()?)
            .add_service(InfoServiceServer::new(info::Info))
            .add_service(
                RunServiceServer::new(runs::Runs::new(Arc::clone(&manager)))
                    .max_decoding_message_size(info::MAX_MESSAGE_BYTES),
            )
            .add_service(AttachServiceServer::new(attach).max_decoding_message_size(MAX_FRAME_BYTES))
            .add_service(AgentRegistryServiceServer::new(agents::Agents::new(directory, Arc::clone(manager.store()))));
        let guard = http::Guard { intake: Intake::default(), hosts };
        let guard = axum::middleware::from_fn_with_state(Arc::new(guard), http::guard);
        let outbox = axum::middleware::from_fn_with_state(Arc::new(Outbox::default()), outbox::hold);
        let server = Server::builder()
            .max_concurrent_streams(STREAMS)
            .accept_http1(true)
            .http2_keepalive_interval(Some(KEEPALIVE))
            .http2_keepalive_timeout(Some(KEEPALIVE))
            .add_routes(Routes::from(routes.prepare().into_axum_router().layer(outbox).layer(guard)))
            .serve_with_incoming_shutdown(door::guests(listener), closed.clone().cancelled_owned());
        let stop = async {
            shutdown.cancelled().await;
            tracing::info!("stopping: no new runs, waiting for cases in flight");
            for service in services {
                health.set_service_status(service, tonic_health::ServingStatus::NotServing).await;
            }
            if manager.drain(drain).await {
                // Clients that waited for one of these runs now fetch its results.
                tokio::time::sleep(LINGER).await;
            }
            // Agents come back to the daemon that listens here next.
            attached.stop().await;
            closed.cancel();
            // Watchers got their last event; one that does not read it is not waited for.
            tokio::time::sleep(CLOSING).await;
        };
        tokio::select! {
            served = server => served?,
            () = stop => {}
            () = pulse::beat() => {}
            // The daemon that has the store now goes on with the runs.
            error = manager.store().keep() => return Err(error.into()),
            () = lock.gone() => return Err(StoreError::Gone(lock.path().to_owned()).into()),
        }
        manager.farewells().finish().await;
        manager.store().close().await;
        let telemetry = manager.telemetry().clone();
        let metrics = Arc::clone(&telemetry.metrics);
        // It waits for a thread of its own.
        let metrics = tokio::task::spawn_blocking(move || metrics.close());
        if let Some(exporter) = &telemetry.exporter {
            exporter.close().await;
        }
        let _ = metrics.await;
        tracing::info!("stopped");
        Ok(())
    }
}

/// Sets up what leaves the daemon as telemetry.
fn telemetry(config: &Config) -> Result<Telemetry, DaemonError> {
    let Exporters { spans, logs, metrics, timeout } = Exporters::new(&config.otlp)?;
    let resource = resource();
    let exporter =
        spans.map(|spans| Arc::new(Exporter::start(spans, logs, config.span_style.conventions, &resource, timeout)));
    let metrics = Arc::new(Metrics::new(metrics, resource).map_err(DaemonError::Metrics)?);
    if let Some(exporter) = &exporter {
        metrics.watch_exporter(exporter);
    }
    Ok(Telemetry { metrics, exporter })
}

/// Holds the data directory for this daemon alone, as long as the file is open. Nobody else can look into it.
fn lock(data_dir: &Path) -> Result<LockedFile, DaemonError> {
    let failed = |source| DaemonError::DataDir { path: data_dir.to_owned(), source };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(data_dir).map_err(failed)?;
    let lock = LockedFile::open(&data_dir.join(LOCK_FILE)).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => DaemonError::DataDirInUse(data_dir.to_owned()),
        _ => failed(error),
    })?;
    lock.make_private();
    let others = std::fs::read_dir(data_dir).map_err(failed)?.flatten();
    let is_ours = |name: &std::ffi::OsStr| {
        name == LOCK_FILE || name == bundles::DIR || name.as_encoded_bytes().starts_with(store::FILE.as_bytes())
    };
    // A folder that holds something else is somebody's, who may want others to see it.
    if others.map(|entry| entry.file_name()).all(|name| is_ours(&name)) {
        make_private(data_dir, 0o700);
    }
    Ok(lock)
}
