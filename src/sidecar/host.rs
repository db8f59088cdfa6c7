//! What all calls share: the scripts, the call log, what the agent remembers, and a way to make it leave.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::call_log::CallLog;
use super::infra::Infra;
use super::script::{AgentScript, SimulatorScript, ValidatorScript};
use super::tap::Tap;

/// The scripts that are played.
#[derive(Debug, Clone)]
pub struct Scripts {
    /// The agent under test.
    pub agent: AgentScript,
    /// The simulator; without one the service is unimplemented.
    pub simulator: Option<SimulatorScript>,
    /// The validator; without one the service is unimplemented.
    pub validator: Option<ValidatorScript>,
}

/// What all calls share.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) scripts: Scripts,
    pub(super) log: Arc<CallLog>,
    pub(super) infra: Infra,
    process: Mutex<Process>,
    commands: mpsc::Sender<Command>,
}

/// What a real agent would lose when its process ends. The log of the calls is not part of it: it goes on.
#[derive(Debug)]
struct Process {
    instance_id: String,
    invocations: HashSet<String>,
    /// Conversation and message of what has been answered.
    answered: HashSet<(String, String)>,
}

/// What calls ask of the server.
#[derive(Debug)]
pub(super) enum Command {
    /// Stop listening and tell all peers; come back after the time, or never. `left` is used when that is done.
    Leave {
        /// When to come back.
        back_after: Option<Duration>,
        /// Says that every peer has been told.
        left: oneshot::Sender<()>,
    },
    /// Drop everything, at once and for good.
    Die,
}

/// What a call knows of the connection that it came over.
#[derive(Debug, Clone)]
pub(super) struct Line {
    /// What has been written to it.
    pub tap: Arc<Tap>,
    /// Drops it.
    pub cut: CancellationToken,
}

impl Process {
    fn new() -> Self {
        let instance_id = uuid::Uuid::new_v4().to_string();
        Self { instance_id, invocations: HashSet::new(), answered: HashSet::new() }
    }
}

impl Host {
    pub(super) fn new(scripts: Scripts, log: CallLog, infra: Infra, commands: mpsc::Sender<Command>) -> Self {
        Self { scripts, log: Arc::new(log), infra, process: Mutex::new(Process::new()), commands }
    }

    /// Id of the process that the agent claims to be.
    pub(super) fn instance_id(&self) -> String {
        self.process().instance_id.clone()
    }

    /// Whether this invocation is new; it is not from then on.
    pub(super) fn takes_on(&self, invocation_id: &str) -> bool {
        self.process().invocations.insert(invocation_id.to_owned())
    }

    /// Whether this message comes for the first time in this conversation; it does not from then on.
    ///
    /// What counts is that an answer was begun: two calls at the same time must not both be the first.
    pub(super) fn is_first_time(&self, conversation_id: &str, message: &str) -> bool {
        self.process().answered.insert((conversation_id.to_owned(), message.to_owned()))
    }

    /// Makes the agent a new process that remembers nothing.
    pub(super) fn forget(&self) {
        *self.process() = Process::new();
    }

    /// Closes the port and tells all peers that the agent is going away; done when they have been told.
    pub(super) async fn leave(&self, back_after: Option<Duration>) {
        let (left, has_left) = oneshot::channel();
        // If the server has ended already there is nothing to leave.
        if self.commands.send(Command::Leave { back_after, left }).await.is_ok() {
            let _ = has_left.await;
        }
    }

    /// Makes the server drop everything.
    pub(super) async fn die(&self) {
        let _ = self.commands.send(Command::Die).await;
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        // Nothing is left half done under this lock.
        self.process.lock()
    }
}
