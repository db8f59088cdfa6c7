//! The daemon.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use forge::daemon::config::{self, Config, LogFormat, Overrides};
use forge::daemon::{Daemon, DaemonError};
use forge::text::chain;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Run eval suites against agents, and keep what came of them
///
/// Options win over environment variables, those over the configuration file. The first line on stdout is `listening on
/// ADDRESS`; log lines go to stderr. SIGTERM and Ctrl-C let cases in flight end and then stop the daemon; a second
/// signal stops it at once.
///
/// Exit codes: 0 stopped as asked, 2 wrong usage or configuration, 3 could not start or go on, 130 stopped at once.
#[derive(Parser)]
#[command(version = forge::version())]
struct Args {
    /// Address to listen on [default: 127.0.0.1:7460]
    #[arg(long, value_name = "ADDR", env = "FORGE_LISTEN")]
    listen: Option<String>,

    /// Directory for what the daemon keeps [default: ~/.local/share/forge]
    #[arg(long, value_name = "DIR", env = "FORGE_DATA_DIR")]
    data_dir: Option<PathBuf>,

    /// Where runs are kept: postgres://USER@HOST/DATABASE, or sqlite://PATH [default: forge.db in the data directory]
    #[arg(long, value_name = "URL", env = "FORGE_STORE", hide_env_values = true)]
    store: Option<String>,

    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE", env = "FORGE_CONFIG")]
    config: Option<PathBuf>,

    /// Allow an address that others can reach, without encryption and authentication
    #[arg(long)]
    insecure: bool,

    /// Which log lines to write: error, warn, info, debug, trace, or a filter such as forge=debug [default: info]
    #[arg(long, value_name = "FILTER", env = "FORGE_LOG")]
    log: Option<String>,

    /// How to write log lines [default: text]
    #[arg(long, value_name = "FORMAT", env = "FORGE_LOG_FORMAT")]
    log_format: Option<LogFormat>,
}

fn main() -> ExitCode {
    // Before anything else: a worker has no runtime, and takes no arguments that people know.
    forge::script::worker::main().unwrap_or_else(start)
}

#[tokio::main]
async fn start() -> ExitCode {
    let args = Args::parse();
    let Args { listen, data_dir, store, insecure, log, log_format, .. } = args;
    let overrides = Overrides { listen, data_dir, store, insecure, log, log_format };
    let config = match config::load(args.config.as_deref(), overrides) {
        Ok(config) => config,
        Err(error) => return fail(2, &error.to_string()),
    };
    if let Err(error) = start_log(&config) {
        return fail(2, &error);
    }
    match run(&config).await {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, message)) => fail(code, &message),
    }
}

async fn run(config: &Config) -> Result<(), (u8, String)> {
    let listen = config.listen;
    let listener = TcpListener::bind(listen).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            (3, format!("{listen} is in use; stop what listens there, or choose another --listen"))
        }
        _ => (3, format!("cannot listen on {listen}: {error}")),
    })?;
    let address = listener.local_addr().map_err(|error| (3, format!("cannot listen on {listen}: {error}")))?;
    let daemon = Daemon::prepare(config).await.map_err(|error| match &error {
        DaemonError::Agents(_) | DaemonError::Telemetry(_) => (2, chain(&error)),
        _ => (3, chain(&error)),
    })?;
    let shutdown = CancellationToken::new();
    let signals = watch_signals(shutdown.clone()).map_err(|error| (3, format!("cannot wait for signals: {error}")))?;
    let mut stdout = std::io::stdout();
    // The program that started the daemon may not be reading stdout; that is no reason to stop.
    let _ = writeln!(stdout, "listening on {address}").and_then(|()| stdout.flush());
    tracing::info!(%address, data_dir = %config.data_dir.display(), agents = config.agents.len(), "started");
    let served = daemon.serve(listener, shutdown).await;
    signals.abort();
    served.map_err(|error| (3, chain(&error)))
}

/// The first signal asks the daemon to stop, the second one does not ask.
fn watch_signals(shutdown: CancellationToken) -> std::io::Result<tokio::task::JoinHandle<()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if shutdown.is_cancelled() {
                std::process::exit(130);
            }
            shutdown.cancel();
        }
    }))
}

fn start_log(config: &Config) -> Result<(), String> {
    let filter =
        EnvFilter::try_new(&config.log).map_err(|error| format!("log: {:?} is no filter: {error}", config.log))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match config.log_format {
        LogFormat::Text => log.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}

fn fail(code: u8, message: &str) -> ExitCode {
    // That nobody listens is no reason to panic.
    let _ = writeln!(std::io::stderr(), "forge-daemon: {message}");
    ExitCode::from(code)
}
