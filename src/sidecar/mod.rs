//! `forge-sidecar`: stands in for agents.
//!
//! So far there is one: `forge-sidecar script`, an agent that plays a JSON script, for demos and tests. Adapters in
//! front of agents that speak something else will stand beside it.
//!
//! Flow of the script agent: [`read`] and [`read_parties`] turn files into a [`script`] with what is in [`reader`];
//! [`server`] accepts `connection`s, each call goes to `agent` or `parties` over `grpc`, and the [`call_log`] says what
//! happened. It serves h2 by hand instead of through tonic's server; `grpc` says why.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};

mod agent;
pub mod call_log;
mod connection;
mod ears;
mod frames;
mod grpc;
mod host;
mod infra;
mod parties;
mod player;
pub mod read;
pub mod read_parties;
pub mod reader;
pub mod script;
pub mod server;
mod tap;
#[cfg(test)]
mod tests;

pub use host::Scripts;

/// Stand in for an agent
///
/// Exit codes: 0 when it was stopped or its script let it die, 2 when the command line or a script is not valid, 3 when
/// it could not listen.
#[derive(Debug, Parser)]
#[command(name = "forge-sidecar", version = crate::version())]
pub struct Cli {
    /// What to stand in for
    #[command(subcommand)]
    pub command: Command,
}

/// What to stand in for.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Play a JSON script as an agent, the same way every time, for demos and tests
    ///
    /// Serves AgentEndpoint, and Simulator and Validator where they have a script, on one port, whatever agent id is
    /// asked for. The first line on stdout is `listening on ADDRESS`, once calls are taken. Ends by Ctrl-C or SIGTERM.
    Script(Script),
}

/// The arguments of `forge-sidecar script`.
#[derive(Debug, Args)]
#[command(after_long_help = SCRIPT_HELP)]
pub struct Script {
    /// Script of the agent
    #[arg(value_name = "agent.json")]
    pub agent: PathBuf,
    /// Script of the simulator; without it the service is unimplemented
    #[arg(long, value_name = "simulator.json")]
    pub simulator: Option<PathBuf>,
    /// Script of the validator; without it the service is unimplemented
    #[arg(long, value_name = "validator.json")]
    pub validator: Option<PathBuf>,
    /// Address to listen on; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Allow an address that other machines can reach; nothing is encrypted and anybody may call
    #[arg(long)]
    pub insecure: bool,
    /// Append a JSON line to this file when a call starts, when it is asked to stop, and when it ends
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
}

/// Lines are short, or a narrow terminal breaks them.
const SCRIPT_HELP: &str = r#"The agent's script:
  {"replies": [{"on": "Hello", "events": [{"text": "Hi."}]}],
   "reported_duration_ms"?: 5}

  The first reply whose "on" is the text of the last user message is
  played; "on_prefix" compares the beginning, and "on": "*" answers what
  nothing else does. Instead of "events" a reply may have
  "first_time_in_conversation" and "seen_before". The events:

  {"tool": {"name", "params"?, "success"?, "ms"?, "result"?, "error"?,
            "id"?}}
      report a tool call; params and result are sent exactly as written
  {"text": "..."}
      send a piece of the answer
  {"text_fill": {"unit", "times", "then"?}}
      a piece made of a unit repeated, with "then" at its end
  {"text_pieces": {"unit", "piece_bytes", "pieces"}}
      many pieces, each filled with the unit
  {"raw_text_hex": "..."}
      a piece of these bytes, even if they are no UTF-8
  {"wait_ms": N}
      wait
  {"hang": true}
      do nothing more; ignore a cancel, end when the stream is reset
  {"close": {"status": "INTERNAL", "message"?: "...",
             "message_fill"?: {"unit", "times", "then"?}}}
      end with a gRPC status; without it a call ends with OK
  {"cut": "tcp"}, {"cut": "reset"}
      drop the connection, or reset the stream
  {"restart": {"back_after_ms": N}}
      end the call, leave, and come back; may follow "close"
  {"die": true}
      drop all connections for good; may follow "close"

The simulator's script, one answer a turn, the last one repeats:
  {"CASE ID": [{"input"?: "...", "goal_achieved"?: true}, ...]}

The validator's script, with "*" as fallback:
  {"replies": [{"criteria": "...", "passed": true, "reason"?: "..."}]}

Both may have "close" or "hang" in place of an answer."#;

/// Why the sidecar did not run.
#[derive(Debug, thiserror::Error)]
pub enum SidecarError {
    /// The address is open to others.
    #[error("{0} can be reached by other machines, and anybody could call; use --insecure if you mean it")]
    NotLoopback(SocketAddr),
    /// Scripts that cannot be read or are not valid, one a line.
    #[error("{0}")]
    Scripts(String),
    /// The log cannot be written.
    #[error("opening the log {path}: {source}")]
    Log {
        /// The file.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// The address cannot be listened on.
    #[error("listening on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// Signals cannot be waited for.
    #[error("waiting for signals: {0}")]
    Signals(io::Error),
    /// Serving ended.
    #[error(transparent)]
    Serve(#[from] server::ServeError),
}

impl SidecarError {
    /// The exit code that says so.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::NotLoopback(_) | Self::Scripts(_) | Self::Log { .. } => 2,
            Self::Listen { .. } | Self::Signals(_) | Self::Serve(_) => 3,
        }
    }
}

/// Does what the command line says, until a signal comes.
///
/// # Errors
/// When it cannot.
pub async fn run(cli: Cli) -> Result<(), SidecarError> {
    match cli.command {
        Command::Script(args) => run_script(args).await,
    }
}

async fn run_script(args: Script) -> Result<(), SidecarError> {
    if !args.listen.ip().is_loopback() && !args.insecure {
        return Err(SidecarError::NotLoopback(args.listen));
    }
    let scripts = load(&args)?;
    let log = match &args.log {
        Some(path) => call_log::CallLog::open(path)
            .map_err(|source| SidecarError::Log { path: path.display().to_string(), source })?,
        None => call_log::CallLog::default(),
    };
    let could_not_listen = |source| SidecarError::Listen { address: args.listen, source };
    let listener = server::listen(args.listen).map_err(could_not_listen)?;
    let address = listener.local_addr().map_err(could_not_listen)?;
    let shutdown = signals().map_err(SidecarError::Signals)?;
    // Whoever started us may not want to read it.
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "listening on {address}").and_then(|()| stdout.flush());
    drop(stdout);
    Ok(server::serve(listener, scripts, log, shutdown).await?)
}

/// Reads all scripts; if anything is wrong with any of them, says everything.
fn load(args: &Script) -> Result<Scripts, SidecarError> {
    let mut errors = String::new();
    let agent = load_one(&args.agent, read::agent, &mut errors);
    let simulator = args.simulator.as_deref().map(|path| load_one(path, read_parties::simulator, &mut errors));
    let validator = args.validator.as_deref().map(|path| load_one(path, read_parties::validator, &mut errors));
    match agent {
        Some(agent) if errors.is_empty() => {
            Ok(Scripts { agent, simulator: simulator.flatten(), validator: validator.flatten() })
        }
        _ => Err(SidecarError::Scripts(errors)),
    }
}

fn load_one<T>(
    path: &Path,
    read: impl FnOnce(&str, &str) -> Result<T, reader::ScriptErrors>,
    errors: &mut String,
) -> Option<T> {
    let file = path.display().to_string();
    let found = match std::fs::read(path).map(String::from_utf8) {
        Ok(Ok(text)) => read(&file, &text).map_err(|errors| errors.to_string()),
        Ok(Err(error)) => {
            let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = good.split(|byte| *byte == b'\n').count();
            Err(format!("{file}:{line}: the text is not UTF-8"))
        }
        Err(error) => Err(format!("{file}: {error}")),
    };
    found
        .map_err(|message| {
            let _ = write!(errors, "{}{message}", if errors.is_empty() { "" } else { "\n" });
        })
        .ok()
}

/// Done at the first Ctrl-C or SIGTERM. Listens from now on, not from the first poll.
fn signals() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
