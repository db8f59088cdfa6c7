//! `forge-sidecar`: stands in for agents.
//!
//! `forge-sidecar script` is an agent that plays a JSON script, for demos and tests; `forge-sidecar http` puts the
//! protocol in front of an HTTP chat endpoint ([`http`]), `forge-sidecar openai` in front of a model with tools
//! ([`http::openai`]), and `forge-sidecar exec` in front of a command (`exec`). What all check in the same way is in
//! `rules`; the latter three answer a `turn` each, which `service` serves.
//!
//! Flow of the script agent: [`read`] and [`read_parties`] turn files into a [`script`] with what is in [`reader`];
//! [`server`] accepts `connection`s, each call goes to `agent` or `parties` over `grpc`, and the [`call_log`] says what
//! happened. It serves h2 by hand instead of through tonic's server; `grpc` says why.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::peer::agent::endpoint;
use crate::peer::target::Target;

use self::attach::News;
use self::http::address::{HttpUrl, RequestHeader};
use self::http::client::ClientError;
use self::http::endpoint::{Body, Endpoint, EndpointError};
use self::http::fields::Fields;
use self::http::openai::{self, ModelError};

mod agent;
pub mod attach;
mod attachments;
pub mod call_log;
mod connection;
mod ears;
mod exec;
mod frames;
mod grpc;
mod host;
pub mod http;
mod infra;
mod parties;
mod player;
mod process;
pub mod read;
pub mod read_parties;
pub mod reader;
mod rules;
pub mod script;
pub mod server;
mod service;
mod tap;
#[cfg(test)]
mod tests;
mod turn;

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
    /// Make an agent of an HTTP endpoint
    ///
    /// Sends POST URL {"message": "..."}, with "messages" and "options" where a case has more than one message, and
    /// reads {"response": "...", "toolCalls": [{"name", "success", "durationMs", "params"}]}. With --preset it
    /// speaks the API of a model in place of that. Serves AgentEndpoint. The first line on stdout is `listening on
    /// ADDRESS`, once calls are taken. Ends by Ctrl-C or SIGTERM, and ends the calls in flight then.
    Http(Box<Http>),
    /// Make an agent of a command
    ///
    /// Each turn is a process: its stdin is a line of JSON, {"message": "..."}, with "messages" and "options" where a
    /// case has more than one message, and what it says on stdout is the answer, or {"response": "...", "toolCalls":
    /// [{"name", "success", "durationMs", "params"}]} where that begins with a brace. With --lines one process takes
    /// a line for each turn. It is killed with all that it started when its turn is over, or cancelled.
    Exec(Exec),
    /// Make an agent of a model behind a chat completions API, and tools
    ///
    /// The model chooses among the tools of a file. A suite's stubs answer them, or a command or an address that runs
    /// them, or they are only announced; the loop goes on until the model answers, or for as many model turns as the
    /// suite allows. The first line on stdout is `listening on ADDRESS`, once calls are taken. Ends by Ctrl-C or
    /// SIGTERM.
    Openai(Box<Openai>),
}

/// Where to listen.
#[derive(Debug, Args)]
pub struct Listen {
    /// Address to listen on; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Allow an address that other machines can reach; nothing is encrypted and anybody may call
    #[arg(long)]
    pub insecure: bool,
    /// Do not listen: attach to the daemon at this address and serve its calls over that connection
    #[arg(long, value_name = "URL", value_parser = Target::of_daemon, conflicts_with = "listen")]
    pub attach: Option<Target>,
    /// Name by which runs find the attached agent [default: the id on its card]
    #[arg(long = "id", value_name = "ID", requires = "attach")]
    pub ids: Vec<String>,
}

/// The arguments of `forge-sidecar http`.
#[derive(Debug, Args)]
pub struct Http {
    /// Address of the endpoint, such as http://127.0.0.1:3000/chat
    #[arg(value_name = "URL")]
    pub url: HttpUrl,
    /// Where to listen
    #[command(flatten)]
    pub listen: Listen,
    /// How to speak to it
    #[command(flatten)]
    pub endpoint: Endpoint,
    /// Most time for one request; the time of the case counts too if it is shorter
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = humantime::parse_duration)]
    pub timeout: Duration,
    /// Id of the agent [default: host and port of the URL]
    #[arg(long, value_name = "ID")]
    pub agent_id: Option<String>,
    /// Where the values stand in the endpoint's messages, with the preset plain
    #[command(flatten)]
    pub fields: Fields,
}

/// The arguments of `forge-sidecar exec`.
#[derive(Debug, Args)]
#[command(after_long_help = EXEC_HELP)]
pub struct Exec {
    /// The command and its arguments, behind `--`
    #[arg(value_name = "COMMAND", required = true, last = true)]
    pub command: Vec<String>,
    /// Where to listen
    #[command(flatten)]
    pub listen: Listen,
    /// One process for all turns: it reads a line of JSON for each, and says lines of JSON
    #[arg(long)]
    pub lines: bool,
    /// The process waits for the result of each tool call that it announces, so that suites can stub its tools
    #[arg(long, requires = "lines")]
    pub stubs: bool,
    /// Name of a variable of the environment that the command sees; PATH, HOME, LANG, TMPDIR and TZ it always sees
    #[arg(long = "env", value_name = "NAME", conflicts_with = "inherit_env")]
    pub env: Vec<String>,
    /// The command sees the whole environment
    #[arg(long)]
    pub inherit_env: bool,
    /// Most turns at the same time
    #[arg(long, value_name = "NUMBER", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub parallel: u32,
    /// Most time for one turn; the time of the case counts too if it is shorter
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = humantime::parse_duration)]
    pub timeout: Duration,
    /// Id of the agent [default: name of the command]
    #[arg(long, value_name = "ID")]
    pub agent_id: Option<String>,
}

/// Lines are short, or a narrow terminal breaks them.
const EXEC_HELP: &str = r#"Examples:
  forge-sidecar exec -- ./agent.sh
  forge-sidecar exec --lines --stubs --env OPENAI_API_KEY -- python agent.py

With --lines the process reads
  {"id": "7", "toolMode": "live", "message": "..."}
      a turn, with "messages" and "options" as above; "toolMode" is "live",
      and with --stubs also "stub" or "routing"
  {"id": "7", "toolResult": {"id": "a", "result": ...}}
      what came of a call in "stub"; "error" in place of "result"
  {"id": "7", "cancel": true}
      nobody waits for this turn any more

and says, with the id of the turn,
  {"id": "7", "text": "..."}
      a piece of the answer
  {"id": "7", "toolCall": {"id": "a", "name": "...", "params": {...},
                           "result"?: ..., "error"?: "...", "durationMs"?}}
      a tool call; in "live" with what came of it
  {"id": "7", "log": "..."}
      a line for people who debug the agent
  {"id": "7", "response": "...", "toolCalls"?: [...]}
      the answer, which ends the turn
  {"id": "7", "error": "..."}
      the turn failed

A line that is no JSON object with an id ends the process. A process that ended is started
again with the next turn."#;

/// The arguments of `forge-sidecar openai`.
#[derive(Debug, Args)]
#[command(after_long_help = OPENAI_HELP)]
pub struct Openai {
    /// Address of the API, which ends in /v1/chat/completions
    #[arg(value_name = "URL")]
    pub url: HttpUrl,
    /// The model to ask for
    #[arg(long, value_name = "NAME")]
    pub model: String,
    /// Tools of the model: JSON as that API is sent them, or as an MCP server lists them
    #[arg(long, value_name = "FILE")]
    pub tools: Option<PathBuf>,
    /// What the system says at the beginning of every conversation
    #[arg(long, value_name = "FILE")]
    pub system: Option<PathBuf>,
    /// Run tools with this command of a shell, where no stub answers
    ///
    /// It reads {"name", "arguments"} on stdin, and writes the result to stdout: JSON, or a text. It fails with an exit
    /// code, and the last line on stderr says why.
    #[arg(long, value_name = "COMMAND", conflicts_with = "exec_http")]
    pub exec_command: Option<String>,
    /// Run tools by POST {"name", "arguments"} to this address, which answers with the result
    #[arg(long, value_name = "URL")]
    pub exec_http: Option<HttpUrl>,
    /// Most model turns of a call for which the suite says nothing
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub max_turns: u32,
    /// Ask for answers as streams of server-sent events
    #[arg(long)]
    pub stream: bool,
    /// What to send besides, as JSON or in a file
    #[arg(long, value_name = "JSON|@FILE")]
    pub body: Option<Body>,
    /// A header to send, such as 'Authorization: Bearer ${OPENAI_API_KEY}'
    ///
    /// The variable stands in the environment. May be given several times.
    #[arg(long, value_name = "HEADER")]
    pub header: Vec<RequestHeader>,
    /// Most time for one request, and for one tool
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = humantime::parse_duration)]
    pub timeout: Duration,
    /// Id of the agent [default: host and port of the URL]
    #[arg(long, value_name = "ID")]
    pub agent_id: Option<String>,
    /// Where to listen
    #[command(flatten)]
    pub listen: Listen,
}

/// Lines are short, or a narrow terminal breaks them.
const OPENAI_HELP: &str = r"Example:
  forge-sidecar openai https://api.openai.com/v1/chat/completions \
      --model gpt-5-mini --tools tools.json --system prompt.md --stream \
      --header 'Authorization: Bearer ${OPENAI_API_KEY}' \
      --exec-command ./run-tool --listen 127.0.0.1:50051
  forgectl run evals -n grpc://127.0.0.1:50051";

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
    /// Where to listen
    #[command(flatten)]
    pub listen: Listen,
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
  {"CASE ID": [{"input"?: "...", "goal_achieved"?: true, "reasoning"?: "...",
               "wait_ms"?: N}, ...]}

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
    /// The arguments do not go together, or lack what the environment should hold.
    #[error("{0}")]
    Usage(String),
    /// The system has no certificates.
    #[error(transparent)]
    Client(ClientError),
    /// It is not attached.
    #[error(transparent)]
    Attach(#[from] attach::AttachError),
    /// Serving ended.
    #[error(transparent)]
    Serve(#[from] server::ServeError),
    /// Serving ended.
    #[error(transparent)]
    ServeHttp(#[from] http::ServeError),
}

impl SidecarError {
    /// The exit code that says so.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::NotLoopback(_) | Self::Scripts(_) | Self::Log { .. } | Self::Usage(_) => 2,
            Self::Listen { .. }
            | Self::Signals(_)
            | Self::Client(_)
            | Self::Attach(_)
            | Self::Serve(_)
            | Self::ServeHttp(_) => 3,
        }
    }
}

/// Does what the command line says, until a signal comes.
///
/// # Errors
/// When it cannot.
pub async fn run(cli: Cli) -> Result<(), SidecarError> {
    match cli.command {
        Command::Script(args) => Box::pin(run_script(args)).await,
        Command::Http(args) => Box::pin(run_http(*args)).await,
        Command::Exec(args) => Box::pin(run_exec(args)).await,
        Command::Openai(args) => Box::pin(run_openai(*args)).await,
    }
}

async fn run_script(args: Script) -> Result<(), SidecarError> {
    args.listen.check()?;
    let scripts = load(&args)?;
    let log = match &args.log {
        Some(path) => call_log::CallLog::open(path)
            .map_err(|source| SidecarError::Log { path: path.display().to_string(), source })?,
        None => call_log::CallLog::default(),
    };
    let (listener, leave) = args.listen.open()?;
    let shutdown = CancellationToken::new();
    let serve = async { Ok(server::serve(listener.socket, scripts, log, shutdown.cancelled()).await?) };
    args.listen.serve(listener.address, leave, &shutdown, serve).await
}

async fn run_http(args: Http) -> Result<(), SidecarError> {
    args.listen.check()?;
    check_timeout(args.timeout)?;
    let mut endpoint = args.endpoint;
    (endpoint.fields, endpoint.timeout) = (args.fields, Some(args.timeout));
    let mut adapter = endpoint.adapter(args.url).map_err(cannot_speak)?;
    if let Some(agent_id) = args.agent_id {
        adapter.agent_id = agent_id;
    }
    let (listener, leave) = args.listen.open()?;
    let shutdown = CancellationToken::new();
    let serve = async { Ok(http::serve(listener.socket, adapter, shutdown.clone()).await?) };
    args.listen.serve(listener.address, leave, &shutdown, serve).await
}

async fn run_exec(args: Exec) -> Result<(), SidecarError> {
    args.listen.check()?;
    check_timeout(args.timeout)?;
    let name = args.command.first().cloned().unwrap_or_default();
    if !exec::is_there(&name) {
        return Err(SidecarError::Usage(format!(
            "there is no command {name}: the first word behind -- names a program"
        )));
    }
    let short = Path::new(&name).file_name().map(|name| name.to_string_lossy().into_owned());
    let agent = exec::agent(exec::Exec {
        agent_id: args.agent_id.or(short).unwrap_or(name),
        command: args.command,
        environment: (!args.inherit_env).then_some(args.env),
        timeout: args.timeout,
        parallel: args.parallel,
        lines: args.lines,
        stubs: args.stubs,
    });
    let (listener, leave) = args.listen.open()?;
    let shutdown = CancellationToken::new();
    let serve = async { Ok(service::serve(listener.socket, agent, shutdown.clone()).await?) };
    args.listen.serve(listener.address, leave, &shutdown, serve).await
}

async fn run_openai(args: Openai) -> Result<(), SidecarError> {
    args.listen.check()?;
    check_timeout(args.timeout)?;
    let Openai {
        url,
        model,
        tools,
        system,
        exec_command,
        exec_http,
        max_turns,
        stream,
        body,
        header,
        timeout,
        agent_id,
        listen,
    } = args;
    let settings = openai::Settings {
        model,
        stream,
        body,
        header,
        timeout,
        tools,
        system,
        exec_command,
        exec_http,
        max_turns,
        agent_id,
    };
    let model = openai::Model::new(url, settings).map_err(|error| match error {
        ModelError::Endpoint(error) => cannot_speak(error),
        ModelError::File(why) => SidecarError::Usage(why),
    })?;
    let (listener, leave) = listen.open()?;
    let shutdown = CancellationToken::new();
    let serve = async { Ok(openai::serve(listener.socket, model, shutdown.clone()).await?) };
    listen.serve(listener.address, leave, &shutdown, serve).await
}

fn check_timeout(timeout: Duration) -> Result<(), SidecarError> {
    if timeout.is_zero() || timeout > crate::suite::timeout::MAX_TIMEOUT {
        return Err(SidecarError::Usage("--timeout must be more than 0 and at most a day".to_owned()));
    }
    Ok(())
}

fn cannot_speak(error: EndpointError) -> SidecarError {
    match error {
        EndpointError::Client(error @ ClientError::Tls(_)) => SidecarError::Client(error),
        error => SidecarError::Usage(error.to_string()),
    }
}

/// Where calls come from.
struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listen {
    fn check(&self) -> Result<(), SidecarError> {
        let is_open = !self.listen.ip().is_loopback() && !self.insecure;
        if is_open { Err(SidecarError::NotLoopback(self.listen)) } else { Ok(()) }
    }

    /// Listens, says so unless nobody else shall call, and gives what ends at the first signal.
    fn open(&self) -> Result<(Listener, impl Future<Output = ()> + use<>), SidecarError> {
        let could_not_listen = |source| SidecarError::Listen { address: self.listen, source };
        let socket = server::listen(self.listen).map_err(could_not_listen)?;
        let address = socket.local_addr().map_err(could_not_listen)?;
        let leave = signals().map_err(SidecarError::Signals)?;
        if self.attach.is_none() {
            say(&format!("listening on {address}"));
        }
        Ok((Listener { socket, address }, leave))
    }

    /// Serves until `leave` is there, and attaches what is served meanwhile if that is wanted.
    async fn serve(
        &self,
        address: SocketAddr,
        leave: impl Future<Output = ()>,
        shutdown: &CancellationToken,
        serve: impl Future<Output = Result<(), SidecarError>>,
    ) -> Result<(), SidecarError> {
        let leaving = CancellationToken::new();
        let stop = async {
            leave.await;
            leaving.cancel();
            if self.attach.is_none() {
                shutdown.cancel();
            }
            std::future::pending().await
        };
        let attached = async {
            let Some(daemon) = &self.attach else { return std::future::pending().await };
            let agent = endpoint(&address.to_string()).map_err(attach::AttachError::Dial)?.connect_lazy();
            let names = if self.ids.is_empty() { String::new() } else { format!(" as {}", self.ids.join(", ")) };
            let tell = |news| match news {
                News::Attached => say(&format!("attached to {}{names}", daemon.authority())),
                News::Away(why, pause) => {
                    let line = format!("not attached, trying again in {} ms: {why}", pause.as_millis());
                    let _ = writeln!(io::stderr(), "forge-sidecar: {}", crate::text::printable(&line));
                }
            };
            // Boxed, so that the future of a sidecar that only listens is small.
            Box::pin(attach::attach(daemon, &self.ids, false, agent, leaving.clone(), tell)).await?;
            shutdown.cancel();
            std::future::pending().await
        };
        tokio::select! {
            served = serve => served,
            never = stop => never,
            attached = attached => attached,
        }
    }
}

/// A line on stdout. The program that started the sidecar may not read it.
fn say(line: &str) {
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
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
