//! `forge-sidecar exec`: an agent that is a command.
//!
//! Each turn is a process of its own ([`once`]), or a long-lived process takes a line of JSON for each turn and says
//! lines of JSON ([`lines`]). What a turn is as JSON is that of an HTTP endpoint of the preset `plain`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tonic::{Code, Status};

use super::attachments::MAX_FILE_BYTES;
use super::http::plain;
use super::process::Program;
use super::rules::with_reason;
use super::service::{ATTACHED_FILES, Agent, ROUTING, STUBS};
use super::turn::End;
use crate::peer::status::{AGENT_UNREACHABLE, CASE_UNSUPPORTED};
use crate::wire::agent::{AgentCard, Limits};

mod lines;
mod once;

/// A command, as an agent.
#[derive(Debug)]
pub(super) struct Exec {
    pub(super) command: Vec<String>,
    /// Names of the variables that it sees; `None`: all.
    pub(super) environment: Option<Vec<String>>,
    pub(super) agent_id: String,
    /// Most time for one turn.
    pub(super) timeout: Duration,
    /// Most turns at the same time.
    pub(super) parallel: u32,
    /// One process for all turns.
    pub(super) lines: bool,
    /// It waits for the results of the calls that it announces.
    pub(super) stubs: bool,
}

/// The agent of a command. Whether the command is there is found out when it is described, and with each turn.
pub(super) fn agent(exec: Exec) -> Agent {
    let Exec { command, environment, agent_id, timeout, parallel, lines, stubs } = exec;
    let file = command.first().cloned().unwrap_or_default();
    let program = Program::new(command.into_iter().map(Into::into).collect(), environment);
    let limits = Limits {
        max_attachment_bytes: i64::try_from(MAX_FILE_BYTES).unwrap_or(i64::MAX),
        max_concurrent_invocations: parallel,
        ..Limits::default()
    };
    let name = program.name();
    let card = AgentCard {
        agent_id,
        // Nobody can ask it.
        version: "unknown".to_owned(),
        description: match (lines, stubs) {
            (false, _) => format!("the command {name}, a process for each turn"),
            (true, false) => format!("the command {name}, one process that reads and writes lines"),
            (true, true) => format!("the command {name}, one process that reads and writes lines and waits for stubs"),
        },
        ..AgentCard::default()
    };
    let describe = move || {
        let (card, file) = (card.clone(), file.clone());
        async move { if is_there(&file) { Ok(card) } else { Err(gone(&format!("there is no command {file}"))) } }
    };
    let capabilities: &[&'static str] = if stubs { &[ATTACHED_FILES, STUBS, ROUTING] } else { &[ATTACHED_FILES] };
    if lines {
        let shared = Arc::new(lines::Lines::new(program));
        Agent::new(capabilities, limits, describe, move |turn| {
            let shared = Arc::clone(&shared);
            async move { within(timeout, lines::answer(&shared, &turn)).await }
        })
    } else {
        let program = Arc::new(program);
        Agent::new(capabilities, limits, describe, move |turn| {
            let program = Arc::clone(&program);
            async move { within(timeout, once::answer(&program, &turn)).await }
        })
    }
}

async fn within<T>(timeout: Duration, answer: impl Future<Output = Result<T, End>>) -> Result<T, End> {
    tokio::time::timeout(timeout, answer).await.unwrap_or_else(|_| {
        let time = humantime::format_duration(timeout);
        Err(End::failed(
            Code::DeadlineExceeded,
            "COMMAND_TIMEOUT",
            format!("the command did not answer within {time} (--timeout)"),
        ))
    })
}

/// Whether a command can be found where the system would look for it.
pub(super) fn is_there(name: &str) -> bool {
    if name.contains('/') {
        return Path::new(name).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// The command cannot be run: nothing was asked of the agent.
fn gone(why: &str) -> Status {
    with_reason(Code::Unavailable, AGENT_UNREACHABLE, why)
}

/// A turn that cannot be put into the command's JSON.
fn unsupported(why: &str) -> End {
    End::Broken(with_reason(Code::FailedPrecondition, CASE_UNSUPPORTED, &format!("the command is not asked: {why}")))
}

/// A turn as JSON on one line, without its end.
fn question(turn: &super::turn::Turn) -> Result<Vec<u8>, End> {
    let body = plain::question(turn.start(), turn.attachments()).map_err(|why| unsupported(&why))?;
    // JSON has no line ends but between values.
    Ok(body.iter().copied().filter(|byte| !matches!(byte, b'\n' | b'\r')).collect())
}
