//! What all cases of a run share, and whom they call.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::control::Control;
use super::gate::GateWatch;
use super::journal::Journal;
use super::reach::Reach;
use super::replay::Evidence;
use super::resume::Begun;
use super::told::Results;
use crate::case::CaseKey;
use crate::check::arguments::Schemas;
use crate::conversation::{Description, JsonText, ToolMode};
use crate::json::{Json, Value};
use crate::peer::agent::Agent;
use crate::peer::call::Farewells;
use crate::peer::directory::{Directory, DirectoryError};
use crate::peer::output::Outputs;
use crate::peer::spans::Inbox;
use crate::peer::stream::Leniency;
use crate::plan::{AGENT_GONE_AFTER, RunSpec};
use crate::script::pool::Share;
use crate::script::source::Scripts;
use crate::suite::Case;
use crate::suite::template::Data;
use crate::trace::RunTrace;
use crate::usage::Price;

/// What all cases of a run share.
pub(super) struct Shared {
    pub(super) run_id: String,
    /// Where its spans hang.
    pub(super) trace: RunTrace,
    pub(super) spec: Arc<RunSpec>,
    /// The agent under test.
    pub(super) callee: Callee,
    pub(super) journal: Journal,
    pub(super) control: Control,
    pub(super) farewells: Farewells,
    /// What template tokens stand for.
    pub(super) data: Arc<Data>,
    /// What the tools declare about their arguments.
    pub(super) schemas: Arc<Schemas>,
    /// Simulators and validators, by the id that suites name.
    pub(super) parties: HashMap<String, Agent>,
    /// The scripts that suites name.
    pub(super) scripts: Option<RunScripts>,
    /// Agents that only scripts name, as far as they were asked.
    pub(super) others: Mutex<HashMap<String, Arc<Callee>>>,
    /// What the script after the run is going to be told; `None`: there is none.
    pub(super) results: Option<Mutex<Results>>,
    /// What the run has to reach; `None`: every case has to pass.
    pub(super) gate: Option<GateWatch>,
    /// What an earlier run recorded, in place of agents.
    pub(super) evidence: Option<Arc<Evidence>>,
    /// Cases that a daemon that is gone has begun.
    pub(super) begun: HashMap<CaseKey, Begun>,
    /// Where spans of agents come in.
    pub(super) spans: Arc<Inbox>,
    /// How long spans are waited for whose end nobody confirms.
    pub(super) span_wait: Duration,
    /// What came of calls that go on.
    pub(super) outputs: Outputs,
    /// Rules that were bent: each is reported once.
    pub(super) bent: Mutex<HashSet<Leniency>>,
}

impl Shared {
    /// Whether a rule is bent for the first time in this run.
    pub(super) fn is_news(&self, rule: Leniency) -> bool {
        self.bent.lock().insert(rule)
    }

    /// What the agent costs: by the model that its calls name, else by its card.
    pub(super) fn price(&self, model: Option<&str>) -> Option<Price> {
        self.spec.prices.of(model.unwrap_or(&self.callee.description.card.model))
    }

    /// The party with that id: one that the suites name, or one that scripts may ask because the run or the daemon
    /// knows it.
    pub(super) fn party(&self, id: &str) -> Result<Agent, NoParty> {
        match (self.parties.get(id), &self.scripts) {
            (Some(party), _) => Ok(party.clone()),
            (None, Some(scripts)) => Ok(scripts.directory.find(id, &self.spec.targets)?),
            (None, None) => Err(NoParty::Unknown),
        }
    }

    /// The options of a case, with the connector of the run in place of its own.
    pub(super) fn options_for(&self, case: &Case) -> Option<JsonText> {
        let Some(connector) = &self.spec.connector else { return case.options.clone() };
        let mut members = case.options.as_ref().map(|options| options.parse().members().to_vec()).unwrap_or_default();
        members.retain(|(key, _)| key != "connector");
        let connector = Json { line: 0, value: Value::String(connector.clone()) };
        members.push(("connector".to_owned(), connector));
        Some(JsonText::from(&Json { line: 0, value: Value::Object(members) }))
    }
}

/// Why there is no party with an id.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoParty {
    /// The suites name nobody else.
    #[error("there is no such agent")]
    Unknown,
    /// Neither the run nor the daemon knows one.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
}

/// An agent that is called, and what it said about itself.
#[derive(Debug, Clone)]
pub(super) struct Callee {
    pub(super) agent: Agent,
    pub(super) description: Description,
    pub(super) reach: Reach,
}

impl Callee {
    /// An agent that has not been called yet, so that nobody knows whether it takes calls.
    pub(super) fn new(agent: Agent, description: Description, spec: &RunSpec) -> Self {
        let reach = Reach::new(spec.agent_gone_after.unwrap_or(AGENT_GONE_AFTER));
        Self { agent, description, reach }
    }

    /// How the agent wants to be called: by the id on its card, else by the daemon's name for it.
    pub(super) fn agent_id(&self) -> String {
        let id = &self.description.card.agent_id;
        if id.is_empty() { self.agent.name.clone() } else { id.clone() }
    }

    /// Whether it declares a capability.
    pub(super) fn can(&self, capability: &str) -> bool {
        self.description.capabilities.iter().any(|declared| declared == capability)
    }

    /// The capability that it lacks for a mode. A mode is never guessed: an agent that did not declare it is never
    /// sent it.
    pub(super) fn lacks(&self, tool_mode: ToolMode) -> Option<&'static str> {
        let needed = match tool_mode {
            ToolMode::Live => return None,
            ToolMode::Stub => "tools.stub",
            ToolMode::RoutingOnly => "tools.routing",
        };
        (!self.can(needed)).then_some(needed)
    }
}

/// The scripts of a run, and who runs them.
#[derive(Debug, Clone)]
pub struct RunScripts {
    /// The scripts.
    pub scripts: Arc<Scripts>,
    /// The run's places among the workers.
    pub pool: Arc<Share>,
    /// The agents that they may ask.
    pub directory: Arc<Directory>,
}
