//! Carries out one run of a scenario with fresh processes in a fresh copy of its folder, and collects what can be seen.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use regex::Regex;
use serde::Deserialize;
use serde_json::Value;

use super::process::{Process, command};
use super::scenario::{Generate, ReportFormat, Run};

/// How long things may take before they count as hanging.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Until a process listens.
    pub(crate) start: Duration,
    /// For forgectl as a whole.
    pub(crate) run: Duration,
}

/// After the run, how long the agent may take to see that its calls have ended.
const SETTLE: Duration = Duration::from_secs(3);

/// What can be seen of a run that is over.
#[derive(Debug)]
pub(crate) struct Observed {
    /// Exit code; none after a signal.
    pub(crate) exit: Option<i32>,
    pub(crate) took: Duration,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    /// `r.json`, if it was written and is JSON.
    pub(crate) result: Option<Value>,
    /// `r.xml`, if it was written.
    pub(crate) junit: Option<Vec<u8>>,
    /// Everything that was written as a report, by name.
    pub(crate) reports: BTreeMap<String, Vec<u8>>,
    pub(crate) calls: Vec<LogLine>,
    /// Files that were made or changed besides the reports of `-o`, relative to the working directory.
    pub(crate) written: Vec<String>,
    /// Trouble that no scenario asks for: a report that is no JSON, a daemon that ended or panicked.
    pub(crate) trouble: Vec<String>,
}

/// A line of the agent's call log.
#[derive(Debug, Deserialize)]
pub(crate) struct LogLine {
    pub(crate) event: String,
    pub(crate) call: u64,
    pub(crate) service: String,
    pub(crate) case_id: String,
    pub(crate) conversation_id: String,
    pub(crate) last_user_text: String,
    pub(crate) messages: u64,
    pub(crate) end: Option<String>,
}

/// How the agent and the daemon find each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// The daemon dials the agent.
    Direct,
    /// The agent dials the daemon.
    Attached,
}

/// Carries out a run of the scenario in `folder`.
pub(crate) fn observe(folder: &Path, run: &Run, way: Way, limits: Limits) -> Result<Observed, String> {
    let temp = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    // Deep, so that something written to `../..` is seen as well.
    let work = temp.path().join("around/here/work");
    let home = temp.path().join("home");
    std::fs::create_dir_all(&home).map_err(|error| error.to_string())?;
    copy(folder, &work).map_err(|error| format!("copying the scenario: {error}"))?;
    let suites = match &run.generate {
        Some(generate) => vec![write_suite(&work, generate)?],
        None => run.suite.clone(),
    };
    let log = temp.path().join("calls.jsonl");
    let mut daemon = Process::start(
        "forge-daemon",
        command(env!("CARGO_BIN_EXE_forge-daemon"), &home)
            .args(["--listen", "127.0.0.1:0", "--data-dir"])
            .arg(temp.path().join("daemon")),
    )?;
    let daemon_url = format!("http://{}", daemon.address(limits.start)?);
    let parties = named_agents(&work, &suites);
    let mut command_of_agent = command_of_agent(&work, &home, run, &log);
    match way {
        Way::Direct => command_of_agent.args(["--listen", "127.0.0.1:0"]),
        Way::Attached => {
            let ids = std::iter::once(ATTACHED).chain(parties.iter().map(String::as_str));
            command_of_agent.args(["--attach", &daemon_url]).args(ids.flat_map(|id| ["--id", id]))
        }
    };
    let mut agent = Process::start("forge-sidecar", command_of_agent.current_dir(&work))?;
    let agent_url = match way {
        Way::Direct => format!("grpc://{}", agent.address(limits.start)?),
        Way::Attached => {
            agent.line(limits.start, "attached to ")?;
            ATTACHED.to_owned()
        }
    };

    let ours = [temp.path().join("daemon"), log.clone()];
    let before = files(temp.path(), &ours);
    let mut client = command(env!("CARGO_BIN_EXE_forgectl"), &home);
    client.arg("run").args(&suites).args(["-n", &agent_url, "--daemon", &daemon_url]);
    for id in parties.iter().filter(|_| way == Way::Direct) {
        client.arg("--agent").arg(format!("{id}={agent_url}"));
    }
    client.args(options(run)).current_dir(&work);
    let ended = Process::start("forgectl", &mut client)?.wait(limits.run).map_err(|error| {
        let daemon = daemon.end().unwrap_or_else(|| format!("stderr of the daemon: {}", daemon.stderr()));
        format!("{client:?}: {error}\n{daemon}")
    })?;
    let calls = settled(&log)?;
    let after = files(temp.path(), &ours);

    let mut trouble: Vec<String> = daemon.end().into_iter().collect();
    for (name, text) in [
        ("forge-daemon", daemon.stderr()),
        ("forge-sidecar", agent.stderr()),
        ("forgectl", String::from_utf8_lossy(&ended.stderr).into_owned()),
    ] {
        if text.contains("panicked at") {
            trouble.push(format!("{name} panicked: {text}"));
        }
    }
    let mut reports = BTreeMap::new();
    let mut written = Vec::new();
    for (path, bytes) in after {
        if before.get(&path) == Some(&bytes) {
            continue;
        }
        let name = relative(&path, &work);
        let is_asked_for = REPORTS.iter().any(|(_, report)| *report == name);
        if is_asked_for || ["json", "jsonl", "xml"].iter().any(|ending| name.ends_with(&format!(".{ending}"))) {
            reports.insert(name.clone(), bytes);
        }
        if !is_asked_for {
            written.push(name);
        }
    }
    let result = reports.get("r.json").and_then(|bytes| {
        serde_json::from_slice(bytes).map_err(|error| trouble.push(format!("r.json is no JSON: {error}"))).ok()
    });
    Ok(Observed {
        exit: ended.status.code(),
        took: ended.took,
        stdout: ended.stdout,
        stderr: ended.stderr,
        result,
        junit: reports.get("r.xml").cloned(),
        reports,
        calls,
        written,
        trouble,
    })
}

/// The name of an agent that is attached.
const ATTACHED: &str = "attached-agent";

/// Names of the report files that `-o` asks for.
const REPORTS: &[(ReportFormat, &str)] = &[
    (ReportFormat::Json, "r.json"),
    (ReportFormat::Jsonl, "r.jsonl"),
    (ReportFormat::Junit, "r.xml"),
    (ReportFormat::Markdown, "r.md"),
    (ReportFormat::Html, "r.html"),
];

fn command_of_agent(work: &Path, home: &Path, run: &Run, log: &Path) -> std::process::Command {
    let mut agent = command(env!("CARGO_BIN_EXE_forge-sidecar"), home);
    agent.args(["script", run.agent.as_deref().unwrap_or("agent.json")]);
    for party in ["simulator", "validator"] {
        if work.join(format!("{party}.json")).exists() {
            agent.args([format!("--{party}"), format!("{party}.json")]);
        }
    }
    agent.arg("--log").arg(log);
    agent
}

/// The flags of forgectl for the options of a run.
fn options(run: &Run) -> Vec<OsString> {
    let options = &run.options;
    let mut args: Vec<String> = Vec::new();
    let mut valued = |flag: &str, value: Option<String>| {
        if let Some(value) = value {
            args.extend([flag.to_owned(), value]);
        }
    };
    valued("--registry", options.registry.clone());
    valued("--seed-manifest", options.seed_manifest.clone());
    valued("--baseline", options.baseline.clone());
    valued("--output-dir", options.output_dir.clone());
    valued("--timeout", options.timeout_ms.map(|millis| format!("{millis}ms")));
    valued("--parallel", options.concurrency.map(|count| count.to_string()));
    valued("--run", options.filter.clone());
    valued("--run", run.only.as_ref().map(|id| format!("^{}$", regex::escape(id))));
    for (format, name) in REPORTS {
        let is_asked_for = *format == ReportFormat::Json || options.reports.contains(format);
        valued("-o", is_asked_for.then(|| (*name).to_owned()));
    }
    if options.strict {
        args.push("--strict".to_owned());
    }
    args.into_iter().map(OsString::from).collect()
}

/// Writes the suite that a run generates: a line repeated with numbers in it, then other files.
pub(crate) fn write_suite(work: &Path, generate: &Generate) -> Result<String, String> {
    let read = |file: &str| std::fs::read_to_string(work.join(file)).map_err(|error| format!("{file}: {error}"));
    let line = read(&generate.repeat.line)?;
    let line = line.trim_end();
    let mut text = String::new();
    for number in 1..=generate.repeat.times {
        text.push_str(&line.replace(&generate.repeat.number_as, &number.to_string()));
        text.push('\n');
    }
    for file in &generate.then {
        text.push_str(&read(file)?);
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    std::fs::write(work.join(&generate.suite), text).map_err(|error| format!("{}: {error}", generate.suite))?;
    Ok(generate.suite.clone())
}

/// Ids of simulators and validators that suite files name: `"use": "sim.user"`, `"use": "agents:checks.reader"`.
///
/// Found in the text, because the files of a scenario need not be valid.
fn named_agents(work: &Path, suites: &[String]) -> BTreeSet<String> {
    let named = Regex::new(r#""use"\s*:\s*"([^"\\]+)"|"agents:([^"\\?]+)"#).expect("a regular expression");
    let mut ids = BTreeSet::new();
    for suite in suites {
        let text = std::fs::read(work.join(suite)).unwrap_or_default();
        for found in named.captures_iter(&String::from_utf8_lossy(&text)) {
            let name = found.get(1).or(found.get(2)).map_or("", |name| name.as_str());
            if !name.starts_with("scripts:") {
                ids.insert(name.strip_prefix("agents:").unwrap_or(name).to_owned());
            }
        }
    }
    ids
}

/// The agent's log once every call that started has ended, or as it is after a while.
fn settled(log: &Path) -> Result<Vec<LogLine>, String> {
    let deadline = Instant::now() + SETTLE;
    loop {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let lines: Vec<LogLine> = text
            .lines()
            .map(|line| serde_json::from_str(line).map_err(|error| format!("call log: {error}: {line}")))
            .collect::<Result<_, _>>()?;
        let count = |event: &str| lines.iter().filter(|line| line.event == event).count();
        if count("start") == count("end") || Instant::now() > deadline {
            return Ok(lines);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The files in a folder and those below it with their bytes, without those at `except`.
fn files(folder: &Path, except: &[PathBuf]) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if except.contains(&path) {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path, except));
        } else {
            found.insert(path.clone(), std::fs::read(&path).unwrap_or_default());
        }
    }
    found
}

/// A path as seen from the working directory, with `..` where it leads out of it.
fn relative(path: &Path, work: &Path) -> String {
    let mut base = work;
    let mut up = String::new();
    loop {
        if let Ok(rest) = path.strip_prefix(base) {
            return format!("{up}{}", rest.display());
        }
        match base.parent() {
            Some(parent) => base = parent,
            None => return path.display().to_string(),
        }
        up.push_str("../");
    }
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
