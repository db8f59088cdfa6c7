//! Agents that are started for a run and end with it: `--start 'python agent.py --listen {listen}'`.

use std::collections::VecDeque;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::RunArgs;
use super::interrupts::Interrupts;
use crate::cli::keeper::Kept;
use crate::cli::{CliError, Exit, note};
use crate::peer::target::{Target, speaks_http, without_user};
use crate::sidecar::http::address::HttpUrl;

/// The agent under test where nobody gives it a name.
const NAME: &str = "agent";
/// Time for an agent to serve when nothing is said.
const WITHIN: Duration = Duration::from_mins(1);
/// How often it is looked whether it serves.
const LOOK: Duration = Duration::from_millis(25);
/// Time for an answer to that look.
const ANSWER: Duration = Duration::from_millis(500);
/// Lines of an agent's output that are kept, and bytes of each.
const LINES: usize = 30;
const LINE_BYTES: usize = 500;
/// What stands in a command and in an address for where the agent listens: host and port, and the port alone.
const LISTEN: &str = "{listen}";
const PORT: &str = "{port}";

/// Commands that are to be started for a run.
#[derive(Debug, Default)]
pub(super) struct Starts(Vec<Start>);

#[derive(Debug)]
struct Start {
    id: String,
    command: String,
    address: Address,
}

/// Where an agent listens.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Address {
    /// At this host and port, with gRPC.
    Grpc(String),
    /// At this host and port, with HTTP.
    Http(String),
    /// It says so itself.
    Told,
}

/// The agents of a run that were started for it.
pub(super) struct Started(Vec<Running>);

struct Running {
    id: String,
    command: String,
    kept: Kept,
    /// Where it speaks gRPC, since it served.
    authority: Option<String>,
    /// Whether it served once.
    has_served: bool,
}

/// The end of what an agent writes.
#[derive(Debug, Default)]
struct Output {
    lines: VecDeque<String>,
    /// Where it says that it listens.
    listens: Option<String>,
}

/// `ID=COMMAND`, or a command for the agent under test. What looks like a variable of a shell is part of the command.
fn parse(text: &str) -> (Option<&str>, &str) {
    let is_id = |id: &str| {
        let is_of_id = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let is_of_variable = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        !id.is_empty() && id.chars().all(is_of_id) && !id.chars().all(is_of_variable)
    };
    match text.split_once('=').filter(|(id, _)| is_id(id)) {
        Some((id, command)) => (Some(id), command),
        None => (None, text),
    }
}

impl Starts {
    /// Reads what is to be started, and gives each of these agents an address that the run knows. Nothing is started
    /// yet.
    ///
    /// # Errors
    /// When it cannot be told who is to be started, or an agent is to be started twice.
    pub(super) fn of(args: &mut RunArgs) -> Result<Self, CliError> {
        let usage = |message: String| CliError::new(Exit::Usage, message);
        let mut starts: Vec<(String, String)> = Vec::new();
        for text in std::mem::take(&mut args.start) {
            let (id, command) = parse(&text);
            if command.trim().is_empty() {
                return Err(usage(format!("--start {text:?} has no command"))
                    .hint("as in --start 'python agent.py --listen {listen}'"));
            }
            let id = id.map_or_else(|| args.name.get_or_insert_with(|| NAME.to_owned()).clone(), str::to_owned);
            if starts.iter().any(|(known, _)| *known == id) {
                return Err(usage(format!("--start names {id:?} twice")));
            }
            starts.push((id, command.to_owned()));
        }
        for (id, command) in std::mem::take(&mut args.starts_by_settings) {
            if starts.iter().all(|(known, _)| *known != id) {
                starts.push((id, command));
            }
        }
        if !starts.is_empty() && args.detach {
            return Err(usage(
                "--start ends the agent with forgectl, and --detach does not wait for the run".to_owned(),
            )
            .hint("start the agent yourself"));
        }
        starts.into_iter().map(|(id, command)| Start::new(args, id, command)).collect::<Result<_, _>>().map(Self)
    }

    /// The names of the agents.
    pub(super) fn ids(&self) -> impl Iterator<Item = &String> {
        self.0.iter().map(|start| &start.id)
    }

    /// Starts the agents one after the other, and waits until each serves.
    ///
    /// # Errors
    /// When one does not, with the end of what it wrote; then none is left.
    pub(super) async fn start(self, args: &mut RunArgs, interrupts: &Interrupts) -> Result<Started, CliError> {
        let within = args.start_within.as_ref().map_or(WITHIN, |time| time.duration);
        let mut started = Started(Vec::new());
        for start in self.0 {
            if !args.quiet {
                note(&format!("starting the agent {:?}: {}", start.id, start.command));
            }
            let begun = tokio::select! {
                begun = start.start(within, &mut started) => begun,
                () = interrupts.first() => Err(CliError::new(Exit::Interrupted, "interrupted while an agent was started")),
            };
            match begun {
                Ok(Some(target)) => args.agent.push(target),
                Ok(None) => {}
                Err(error) => {
                    started.end().await;
                    return Err(error);
                }
            }
        }
        Ok(started)
    }
}

impl Start {
    /// Finds out where an agent is to listen, and tells the run.
    fn new(args: &mut RunArgs, id: String, command: String) -> Result<Self, CliError> {
        let failed = |why: &dyn std::fmt::Display| {
            CliError::new(Exit::CouldNotRun, format!("there is no free port for the agent {id:?}: {why}"))
        };
        let has_place = command.contains(LISTEN) || command.contains(PORT);
        let is_tested = args.name.as_deref() == Some(&id);
        let known = if Target::looks_like_one(&id) {
            args.name.as_mut().filter(|_| is_tested)
        } else {
            let agents = args.agent.iter_mut().find(|(known, _)| *known == id).map(|(_, url)| url);
            agents.or_else(|| args.endpoints.iter_mut().find(|named| named.id == id).map(|named| &mut named.url))
        };
        let is_open = known.as_ref().is_none_or(|url| url.contains(LISTEN) || url.contains(PORT));
        let free = if is_open && (has_place || known.is_some()) {
            // Free now; that somebody else takes it in between is seen when the agent cannot listen.
            let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| failed(&error))?;
            Some(listener.local_addr().map_err(|error| failed(&error))?.to_string())
        } else {
            None
        };
        let fill = |text: &str, authority: &str| {
            let port = authority.rsplit_once(':').map_or(authority, |(_, port)| port);
            text.replace(LISTEN, authority).replace(PORT, port)
        };
        let address = match (known, free) {
            (None, None) => Address::Told,
            (None, Some(authority)) => {
                args.agent.push((id.clone(), format!("grpc://{authority}")));
                Address::Grpc(authority)
            }
            (Some(url), free) => {
                if let Some(authority) = &free {
                    *url = fill(url, authority);
                }
                address_of(url)?
            }
        };
        let command = match &address {
            Address::Grpc(authority) | Address::Http(authority) => fill(&command, authority),
            Address::Told => command,
        };
        let id = if is_tested { args.agent_name().to_owned() } else { id };
        Ok(Self { id, command, address })
    }

    /// Starts the command, and waits until the agent serves; gives its address, if only now it is known.
    async fn start(self, within: Duration, started: &mut Started) -> Result<Option<(String, String)>, CliError> {
        let Self { id, command, address } = self;
        if let Address::Grpc(authority) | Address::Http(authority) = &address
            && is_taken(authority).await
        {
            let message = format!("somebody listens at {authority} already, where the agent {id:?} is to be started");
            return Err(CliError::new(Exit::CouldNotRun, message).hint(
                "end it, or leave out --start; with {listen} in the command and no address forgectl picks a free port",
            ));
        }
        let failed = |why: String| {
            CliError::new(Exit::CouldNotRun, format!("the agent {id:?}, started with {command:?}, {why}"))
        };
        let mut kept = Kept::start(&command).map_err(|error| failed(format!("cannot be started: {error}")))?;
        let output = Arc::new(Mutex::new(Output::default()));
        let (stdout, stderr) = kept.output();
        // They end with the command, which holds the other ends.
        stdout.map(|pipe| tokio::spawn(listen(pipe, Arc::clone(&output))));
        stderr.map(|pipe| tokio::spawn(listen(pipe, Arc::clone(&output))));
        started.0.push(Running { id: id.clone(), command: command.clone(), kept, authority: None, has_served: false });
        let running = started.0.len() - 1;
        let deadline = Instant::now() + within;
        loop {
            let told = output.lock().listens.clone();
            let serves = match (&address, &told) {
                (Address::Grpc(authority), _) => is_serving(authority).await,
                (Address::Http(authority), _) => is_taken(authority).await,
                (Address::Told, Some(_)) => true,
                (Address::Told, None) => false,
            };
            if serves {
                started.0[running].has_served = true;
                started.0[running].authority = match &address {
                    Address::Grpc(authority) => Some(authority.clone()),
                    Address::Http(_) => None,
                    Address::Told => told.clone(),
                };
                let target =
                    told.filter(|_| address == Address::Told).map(|authority| (id, format!("grpc://{authority}")));
                return Ok(target);
            }
            let why = if started.0[running].kept.has_ended() {
                // What it wrote last may be on its way.
                tokio::time::sleep(LOOK).await;
                "ended before it served".to_owned()
            } else if Instant::now() > deadline {
                let within = humantime::format_duration(within);
                match &address {
                    Address::Grpc(at) | Address::Http(at) => {
                        format!("does not listen at {at} after {within} (--start-within)")
                    }
                    Address::Told => format!("does not say `listening on ADDRESS` after {within} (--start-within)"),
                }
            } else {
                tokio::time::sleep(LOOK).await;
                continue;
            };
            let shown = output.lock().shown();
            let of_address = (address == Address::Told)
                .then_some("with {listen} in the command forgectl says where to listen; -n ADDRESS says where it does");
            let hint = what_is_missing(&shown).or(of_address);
            let error = failed(why).details(shown);
            return Err(match hint {
                Some(hint) => error.hint(hint),
                None => error,
            });
        }
    }
}

impl Started {
    /// Where those of them listen that speak gRPC.
    pub(super) fn authorities(&self) -> impl Iterator<Item = String> {
        self.0.iter().filter_map(|running| running.authority.clone())
    }

    /// Ends the agents, and says which of them had ended before.
    pub(super) async fn end(self) {
        for Running { id, command, mut kept, has_served, .. } in self.0 {
            if has_served && kept.has_ended() {
                note(&format!("forgectl: the agent {id:?}, started with {command:?}, ended before the run did"));
            }
            kept.end().await;
        }
    }
}

/// What to do where the lines of a command say that something is not installed, which people meet first.
fn what_is_missing(lines: &[String]) -> Option<&'static str> {
    let says = |piece: &str| lines.iter().any(|line| line.contains(piece));
    if says("ERR_MODULE_NOT_FOUND") || says("Cannot find module") {
        return Some("what the agent imports is not installed: run `npm install` where its package.json is");
    }
    if says("ModuleNotFoundError") {
        return Some("what the agent imports is not installed in this Python: is its virtual environment active?");
    }
    says("exit status: 127").then_some("the program is not installed, or not on the PATH")
}

/// Where an address leads.
fn address_of(url: &str) -> Result<Address, CliError> {
    let usage = |error: &dyn std::fmt::Display| CliError::new(Exit::Usage, error.to_string());
    if speaks_http(url) {
        let url: HttpUrl = url
            .parse()
            .map_err(|error| usage(&format!("{:?} is no address of an HTTP endpoint: {error}", without_user(url))))?;
        return Ok(Address::Http(url.host_and_port()));
    }
    url.parse::<Target>().map(|target| Address::Grpc(target.authority())).map_err(|error| usage(&error))
}

/// Whether anybody listens there.
async fn is_taken(authority: &str) -> bool {
    matches!(tokio::time::timeout(ANSWER, TcpStream::connect(authority)).await, Ok(Ok(_)))
}

/// Whether somebody there speaks gRPC, and does not say that it does not serve yet.
async fn is_serving(authority: &str) -> bool {
    let asked = async {
        let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{authority}")).ok()?;
        let channel = endpoint.connect().await.ok()?;
        match HealthClient::new(channel).check(HealthCheckRequest::default()).await {
            Ok(answer) => Some(answer.into_inner().status() == ServingStatus::Serving),
            // Health is optional; an agent that does not answer at all is not there.
            Err(status) => Some(std::error::Error::source(&status).is_none()),
        }
    };
    tokio::time::timeout(ANSWER, asked).await.ok().flatten().unwrap_or(false)
}

/// Keeps the end of what is written to a pipe.
async fn listen(mut pipe: impl AsyncRead + Unpin, output: Arc<Mutex<Output>>) {
    let (mut bytes, mut line) = ([0; 4096], Vec::new());
    while let Ok(count @ 1..) = pipe.read(&mut bytes).await {
        for byte in &bytes[..count] {
            if *byte == b'\n' {
                output.lock().take(&String::from_utf8_lossy(&line));
                line.clear();
            } else if line.len() < LINE_BYTES {
                line.push(*byte);
            }
        }
    }
    if !line.is_empty() {
        output.lock().take(&String::from_utf8_lossy(&line));
    }
}

impl Output {
    fn take(&mut self, line: &str) {
        let line = line.trim_end();
        if let Some(address) = line.strip_prefix("listening on ") {
            self.listens.get_or_insert_with(|| address.trim().to_owned());
        }
        self.lines.push_back(line.to_owned());
        if self.lines.len() > LINES {
            self.lines.pop_front();
        }
    }

    fn shown(&self) -> Vec<String> {
        if self.lines.is_empty() {
            return vec!["it wrote nothing".to_owned()];
        }
        std::iter::once("the end of what it wrote:".to_owned())
            .chain(self.lines.iter().map(|line| format!("| {line}")))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_started() {
        for (text, id, command) in [
            ("python agent.py --listen={listen}", None, "python agent.py --listen={listen}"),
            ("expense=python agent.py", Some("expense"), "python agent.py"),
            ("a.b-c=x=y", Some("a.b-c"), "x=y"),
            ("PORT=5 python agent.py", None, "PORT=5 python agent.py"),
            ("=x", None, "=x"),
        ] {
            assert_eq!(parse(text), (id, command), "{text}");
        }
    }

    #[test]
    fn where_agents_listen() {
        let starts = |name: Option<&str>, agents: &[(&str, &str)], starts: &[&str]| {
            let mut args = RunArgs {
                name: name.map(str::to_owned),
                agent: agents.iter().map(|(id, url)| ((*id).to_owned(), (*url).to_owned())).collect(),
                start: starts.iter().map(|start| (*start).to_owned()).collect(),
                ..RunArgs::default()
            };
            let starts = Starts::of(&mut args).map(|starts| starts.0).map_err(|error| error.to_string());
            (starts, args)
        };
        let (found, args) = starts(None, &[], &["serve {listen} {port}"]);
        let start = &found.expect("one")[0];
        let Address::Grpc(authority) = &start.address else { panic!("{start:?}") };
        let port = authority.strip_prefix("127.0.0.1:").expect("a port");
        assert_eq!((start.command.as_str(), args.agent_name()), (&*format!("serve {authority} {port}"), "agent"));
        assert_eq!(args.agent, [("agent".to_owned(), format!("grpc://{authority}"))]);
        let at = |address: &str| Address::Grpc(address.to_owned());
        for (name, agents, start, address, command) in [
            (Some("grpc://127.0.0.1:5"), &[][..], "serve", at("127.0.0.1:5"), "serve"),
            (Some("grpc://127.0.0.1:5"), &[], "serve {port}", at("127.0.0.1:5"), "serve 5"),
            (
                Some("http://127.0.0.1:5/chat"),
                &[],
                "serve {listen}",
                Address::Http("127.0.0.1:5".to_owned()),
                "serve 127.0.0.1:5",
            ),
            (Some("a"), &[("a", "grpc://127.0.0.1:5")], "serve", at("127.0.0.1:5"), "serve"),
            (Some("a"), &[("b", "grpc://127.0.0.1:6")], "b=serve", at("127.0.0.1:6"), "serve"),
            (Some("a"), &[], "serve", Address::Told, "serve"),
        ] {
            let (found, _) = starts(name, agents, &[start]);
            let found = &found.expect(start)[0];
            assert_eq!((&found.address, found.command.as_str()), (&address, command), "{name:?} {start}");
        }
        let (_, args) = starts(Some("http://{listen}/chat"), &[], &["serve {listen}"]);
        assert!(args.agent_name().starts_with("http://127.0.0.1:") && args.agent_name().ends_with("/chat"));
        for (wrong, why) in
            [(&["a=x", "a=y"][..], "--start names \"a\" twice"), (&["a= "], "--start \"a= \" has no command")]
        {
            assert_eq!(starts(None, &[], wrong).0.map(|_| ()), Err(why.to_owned()));
        }
    }

    #[test]
    fn what_is_kept_of_an_output() {
        let mut output = Output::default();
        assert_eq!(output.shown(), ["it wrote nothing"]);
        for n in 0..LINES + 5 {
            output.take(&format!("line {n}"));
        }
        output.take("listening on 127.0.0.1:5\r");
        assert_eq!((output.lines.len(), output.listens.as_deref()), (LINES, Some("127.0.0.1:5")));
    }
}
