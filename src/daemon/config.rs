//! The daemon's configuration: file < environment < flags, merged once at the edge into plain data.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::limits::MAX_DEATHS;
use crate::peer::target::AllowedTargets;
use crate::plan::AGENT_GONE_AFTER;
use crate::script::pool::Limits;
use crate::suite::timeout::MAX_TIMEOUT;
use crate::telemetry::connect::{Otlp, Protocol};
use crate::telemetry::semconv::Conventions;
use crate::telemetry::spans::Style;
use crate::trace::{captures_content, check_template};
use crate::usage::{Price, Prices, nano_usd};

/// Where a daemon listens when nothing is said.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:7460";
/// CPU time that a script may be given.
const SCRIPT_CPU: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_mins(10);
/// How long spans are waited for when nothing is said: instrumentations send them every 5 s.
const SPAN_WAIT: Duration = Duration::from_secs(6);
/// Longest time that spans may be waited for.
const MAX_SPAN_WAIT: Duration = Duration::from_mins(5);
/// Memory that a script may be given, in bytes.
const SCRIPT_MEMORY: RangeInclusive<usize> = 1 << 20..=4 << 30;

/// What a daemon is told.
#[derive(Debug, Clone)]
pub struct Config {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Where bundles are kept, and runs if nothing else is said.
    pub data_dir: PathBuf,
    /// Where runs are kept: `postgres://…` or `sqlite://PATH`; `None`: a file in the data directory.
    pub store: Option<String>,
    /// What becomes of runs that a daemon has left behind.
    pub on_restart: OnRestart,
    /// Whether an address may be used that others can reach.
    pub insecure: bool,
    /// Agents by name: URLs.
    pub agents: BTreeMap<String, String>,
    /// Addresses that clients may name.
    pub allowed_targets: AllowedTargets,
    /// Names besides `localhost` by which clients of plain HTTP may call the daemon; a `*` at the start stands for any
    /// beginning.
    pub allowed_hosts: Vec<String>,
    /// What models cost, for runs that do not say.
    pub prices: Prices,
    /// Runs at the same time; others wait.
    pub max_parallel_runs: usize,
    /// Runs that are kept, those that are over included.
    pub keep_runs: usize,
    /// Bytes of bundles that are kept, as far as runs do not need more.
    pub max_bundle_bytes: u64,
    /// Time that cases in flight have to end when the daemon is told to stop.
    pub drain: Duration,
    /// What a script of a suite may take.
    pub scripts: Limits,
    /// Where telemetry goes when no `OTEL_*` variable says so.
    pub otlp: Otlp,
    /// What is exported of traces where there is a choice.
    pub span_style: Style,
    /// A link to the trace of a case, for runs that name none.
    pub trace_url: Option<String>,
    /// Traces of all runs hold what was said.
    pub capture_content: bool,
    /// How long spans of an agent are waited for that does not confirm their end.
    pub span_wait: Duration,
    /// How long nobody may answer at an agent's address during a run before the run ends.
    pub agent_gone_after: Duration,
    /// How many daemons may die while a run is going on, before it is gone on with no more.
    pub max_deaths: u32,
    /// Which log lines are written, in the syntax of `RUST_LOG`.
    pub log: String,
    /// How log lines are written.
    pub log_format: LogFormat,
}

impl Config {
    /// What holds when nothing is said.
    #[must_use]
    pub fn new(listen: SocketAddr, data_dir: PathBuf) -> Self {
        Self {
            listen,
            data_dir,
            store: None,
            on_restart: OnRestart::Resume,
            insecure: false,
            agents: BTreeMap::new(),
            allowed_targets: AllowedTargets::default(),
            allowed_hosts: Vec::new(),
            prices: Prices::default(),
            max_parallel_runs: 4,
            keep_runs: 200,
            max_bundle_bytes: 1 << 30,
            drain: Duration::from_secs(10),
            scripts: Limits::default(),
            otlp: Otlp::default(),
            span_style: Style { conventions: Conventions::opted_in().unwrap_or_default(), ..Style::default() },
            trace_url: None,
            capture_content: captures_content().unwrap_or(false),
            span_wait: SPAN_WAIT,
            agent_gone_after: AGENT_GONE_AFTER,
            max_deaths: MAX_DEATHS,
            log: "info".to_owned(),
            log_format: LogFormat::Text,
        }
    }
}

/// What becomes of runs that were going on when the daemon ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnRestart {
    /// They go on: cases that had their verdict keep it, the others are begun again.
    Resume,
    /// They end, and are errored.
    Abort,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// What was said on the command line or in the environment; unset falls back to the file.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// See [`Config::listen`].
    pub listen: Option<String>,
    /// See [`Config::data_dir`].
    pub data_dir: Option<PathBuf>,
    /// See [`Config::store`].
    pub store: Option<String>,
    /// See [`Config::insecure`].
    pub insecure: bool,
    /// See [`Config::log`].
    pub log: Option<String>,
    /// See [`Config::log_format`].
    pub log_format: Option<LogFormat>,
}

/// Why there is no configuration. Each is one line for people.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no valid configuration.
    #[error("{}, line {line}: {message}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
        /// What is wrong there.
        message: String,
    },
    /// A value makes no sense.
    #[error("{key}: {problem}")]
    Value {
        /// The key.
        key: &'static str,
        /// What is wrong with its value.
        problem: String,
    },
}

/// The file, as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    listen: Option<String>,
    data_dir: Option<PathBuf>,
    store: Option<String>,
    on_restart: Option<OnRestart>,
    insecure: Option<bool>,
    agents: Option<BTreeMap<String, String>>,
    allowed_targets: Option<Vec<String>>,
    allowed_hosts: Option<Vec<String>>,
    prices: Option<BTreeMap<String, FilePrice>>,
    max_parallel_runs: Option<usize>,
    keep_runs: Option<usize>,
    max_bundle_bytes: Option<u64>,
    drain: Option<String>,
    script_cpu: Option<String>,
    script_memory_bytes: Option<usize>,
    otlp: Option<FileOtlp>,
    trace_url: Option<String>,
    capture_content: Option<bool>,
    span_wait: Option<String>,
    agent_gone_after: Option<String>,
    max_deaths: Option<u32>,
    log: Option<String>,
    log_format: Option<LogFormat>,
}

/// `otlp`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileOtlp {
    endpoint: Option<String>,
    protocol: Option<String>,
    headers: Option<BTreeMap<String, String>>,
    logs: Option<bool>,
    metrics: Option<bool>,
    conventions: Option<String>,
    rpc_spans: Option<bool>,
}

/// An entry of `prices`: US dollars for a million tokens.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FilePrice {
    input: f64,
    output: f64,
    cache_read: Option<f64>,
    cache_write: Option<f64>,
}

impl FilePrice {
    fn read(&self) -> Option<Price> {
        let optional = |usd: Option<f64>| usd.map_or(Some(None), |usd| nano_usd(usd).map(Some));
        Some(Price {
            input: nano_usd(self.input)?,
            output: nano_usd(self.output)?,
            cache_read: optional(self.cache_read)?,
            cache_write: optional(self.cache_write)?,
        })
    }
}

/// Merges the file, if one is named, with what was said elsewhere.
///
/// # Errors
/// When the file cannot be read, holds something unknown, or a value makes no sense.
pub fn load(file: Option<&Path>, overrides: Overrides) -> Result<Config, ConfigError> {
    let file = match file {
        None => File::default(),
        Some(path) => read(path)?,
    };
    let value = |key, problem: String| ConfigError::Value { key, problem };
    let listen = overrides.listen.or(file.listen).unwrap_or_else(|| DEFAULT_LISTEN.to_owned());
    let listen: SocketAddr = listen
        .parse()
        .map_err(|_| value("listen", format!("{listen:?} is no address; write it like {DEFAULT_LISTEN}")))?;
    let data_dir = overrides.data_dir.or(file.data_dir).or_else(default_data_dir);
    let data_dir =
        data_dir.ok_or_else(|| value("data_dir", "is not set, and there is no home directory".to_owned()))?;
    let mut config = Config::new(listen, data_dir);
    config.store = overrides.store.or(file.store);
    if let Some(store) = &config.store
        && !["sqlite://", "postgres://", "postgresql://"].iter().any(|start| store.starts_with(start))
    {
        // It may hold a password.
        return Err(value("store", "must begin with postgres:// or sqlite://".to_owned()));
    }
    config.on_restart = file.on_restart.unwrap_or(config.on_restart);
    config.insecure = overrides.insecure || file.insecure.unwrap_or(false);
    config.agents = file.agents.unwrap_or_default();
    if let Some(patterns) = file.allowed_targets {
        config.allowed_targets = AllowedTargets::Matching(patterns);
    }
    config.allowed_hosts = file.allowed_hosts.unwrap_or_default();
    for (model, price) in file.prices.unwrap_or_default() {
        let problem = || format!("{model:?}: must be US dollars for a million tokens, from 0 to 1000000");
        let price = price.read().ok_or_else(|| value("prices", problem()))?;
        config.prices.0.insert(model, price);
    }
    config.max_parallel_runs = file.max_parallel_runs.unwrap_or(config.max_parallel_runs);
    config.keep_runs = file.keep_runs.unwrap_or(config.keep_runs);
    config.max_bundle_bytes = file.max_bundle_bytes.unwrap_or(config.max_bundle_bytes);
    if let Some(drain) = file.drain {
        config.drain = humantime::parse_duration(&drain)
            .map_err(|error| value("drain", format!("{drain:?} is no duration ({error}); write it like 10s")))?;
    }
    if let Some(cpu) = file.script_cpu {
        let time = humantime::parse_duration(&cpu).ok().filter(|time| SCRIPT_CPU.contains(time));
        let problem = || format!("{cpu:?} is no duration from 10ms to 10m; write it like 5s");
        config.scripts.cpu = time.ok_or_else(|| value("script_cpu", problem()))?;
    }
    if let Some(memory) = file.script_memory_bytes {
        let in_range = Some(memory).filter(|memory| SCRIPT_MEMORY.contains(memory));
        let problem = || format!("must be from {} to {}", SCRIPT_MEMORY.start(), SCRIPT_MEMORY.end());
        config.scripts.memory = in_range.ok_or_else(|| value("script_memory_bytes", problem()))?;
    }
    if let Some(otlp) = file.otlp {
        let known = |name: &String| Protocol::named(name);
        let problem = || "protocol must be grpc or http/protobuf".to_owned();
        let protocol = otlp.protocol.as_ref().map(|name| known(name).ok_or_else(|| value("otlp", problem())));
        let problem = || "conventions must be \"1.41\" or \"latest\"".to_owned();
        let conventions = otlp.conventions.as_ref();
        let conventions = conventions.map(|name| Conventions::named(name).ok_or_else(|| value("otlp", problem())));
        config.span_style = Style {
            conventions: Conventions::opted_in().or(conventions.transpose()?).unwrap_or_default(),
            rpc: otlp.rpc_spans.unwrap_or(false),
        };
        config.otlp = Otlp {
            endpoint: otlp.endpoint,
            protocol: protocol.transpose()?,
            headers: otlp.headers.unwrap_or_default(),
            logs: otlp.logs.unwrap_or(false),
            metrics: otlp.metrics.unwrap_or(false),
        };
    }
    if let Some(url) = file.trace_url {
        check_template(&url).map_err(|why| value("trace_url", why))?;
        config.trace_url = Some(url);
    }
    config.capture_content = captures_content().or(file.capture_content).unwrap_or(false);
    if let Some(wait) = file.span_wait {
        let time = humantime::parse_duration(&wait).ok().filter(|time| *time <= MAX_SPAN_WAIT);
        let problem = || format!("{wait:?} is no duration of at most 5m; write it like 6s");
        config.span_wait = time.ok_or_else(|| value("span_wait", problem()))?;
    }
    if let Some(patience) = file.agent_gone_after {
        let time = humantime::parse_duration(&patience).ok().filter(|time| *time <= MAX_TIMEOUT);
        let problem = || format!("{patience:?} is no duration of at most a day; write it like 10s");
        config.agent_gone_after = time.ok_or_else(|| value("agent_gone_after", problem()))?;
    }
    config.max_deaths = file.max_deaths.unwrap_or(config.max_deaths);
    config.log = overrides.log.or(file.log).unwrap_or(config.log);
    config.log_format = overrides.log_format.or(file.log_format).unwrap_or(config.log_format);
    if config.max_parallel_runs == 0 || config.keep_runs == 0 {
        return Err(value("max_parallel_runs, keep_runs", "must be at least 1".to_owned()));
    }
    if !config.listen.ip().is_loopback() && !config.insecure {
        let problem = format!(
            "{} can be reached by others, and connections are neither encrypted nor authenticated; \
             use a loopback address, or --insecure if the network is yours alone",
            config.listen
        );
        return Err(value("listen", problem));
    }
    Ok(config)
}

fn read(path: &Path) -> Result<File, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    toml::from_str(&text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        // The message may go on over lines; its first one says it.
        let message = error.message().lines().next().unwrap_or_default().to_owned();
        ConfigError::Parse { path: path.to_owned(), line, message }
    })
}

/// `$XDG_DATA_HOME/forge`, else `~/.local/share/forge`.
fn default_data_dir() -> Option<PathBuf> {
    let data_home = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    data_home.or_else(|| Some(std::env::home_dir()?.join(".local/share"))).map(|home| home.join("forge"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load_text(text: &str, overrides: Overrides) -> Result<Config, String> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("forge.toml");
        std::fs::write(&path, text).expect("writes");
        load(Some(&path), overrides).map_err(|error| {
            let text = error.to_string();
            text.replace(&dir.path().display().to_string(), "DIR")
        })
    }

    #[test]
    fn flags_win_over_the_file() {
        let overrides = Overrides { listen: Some("127.0.0.1:1".to_owned()), ..Overrides::default() };
        let text = "listen = '127.0.0.1:2'\ndata_dir = 'x'\ndrain = '3s'\n[agents]\nweather = 'grpc://127.0.0.1:5'";
        let config = load_text(text, overrides).expect("loads");
        assert_eq!((config.listen.port(), config.drain), (1, Duration::from_secs(3)));
        assert_eq!((config.data_dir, config.agents.len()), (PathBuf::from("x"), 1));
    }

    #[test]
    fn each_mistake_is_one_clear_line() {
        for (text, message) in [
            ("\nlisten_on = 'x'", "DIR/forge.toml, line 2: unknown field `listen_on`, expected one of"),
            ("listen = 5", "DIR/forge.toml, line 1: invalid type: integer `5`, expected a string"),
            ("listen = 'nowhere'", "listen: \"nowhere\" is no address; write it like 127.0.0.1:7460"),
            ("drain = '3'", "drain: \"3\" is no duration"),
            ("script_cpu = '1ms'", "script_cpu: \"1ms\" is no duration from 10ms to 10m"),
            ("script_memory_bytes = 5", "script_memory_bytes: must be from 1048576 to 4294967296"),
            ("listen = '0.0.0.0:7460'", "listen: 0.0.0.0:7460 can be reached by others"),
            ("[prices.'gpt-4o']\ninput = -1.0\noutput = 2", "prices: \"gpt-4o\": must be US dollars"),
            ("[prices.x]\ninput = 1", "DIR/forge.toml, line 1: missing field `output`"),
            ("[otlp]\nprotocol = 'carrier pigeon'", "otlp: protocol must be grpc or http/protobuf"),
            ("[otlp]\nconventions = '1.36'", "otlp: conventions must be \"1.41\" or \"latest\""),
            ("trace_url = 'https://traces.example/'", "trace_url: \"https://traces.example/\" is no address with"),
            ("span_wait = '1h'", "span_wait: \"1h\" is no duration of at most 5m"),
            ("agent_gone_after = '10'", "agent_gone_after: \"10\" is no duration of at most a day; write it like 10s"),
            ("keep_runs = 0", "max_parallel_runs, keep_runs: must be at least 1"),
        ] {
            let error = load_text(text, Overrides { data_dir: Some("x".into()), ..Overrides::default() });
            let error = error.expect_err(text);
            assert!(error.starts_with(message) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn insecure_is_said_out_loud() {
        assert!(load_text("listen = '0.0.0.0:7460'\ninsecure = true", Overrides::default()).is_ok());
    }
}
