//! What is executed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::replay::Evidence;
use super::resume::Done;
use super::shared::RunScripts;
use crate::event::{Run, State, SuiteInfo};
use crate::peer::agent::Agent;
use crate::peer::spans::Inbox;
use crate::plan::{Plan, RunSpec};
use crate::suite::registry::Registry;
use crate::verdict::Totals;
use crate::verdict::baseline::Baseline;

/// What is executed.
#[derive(Debug)]
pub struct Job {
    /// The run as it was created.
    pub run: Run,
    /// Its cases.
    pub plan: Plan,
    /// The agent under test.
    pub agent: Agent,
    /// Earlier results to compare with.
    pub baselines: Vec<Baseline>,
    /// The tools of today; `None`: those that the agent declares.
    pub registry: Option<Registry>,
    /// Simulators and validators, by the id that suites name.
    pub parties: HashMap<String, Agent>,
    /// The scripts that suites name; `None`: they name none.
    pub scripts: Option<RunScripts>,
    /// Whom to ask for the values of snapshot tokens; `None`: the plan has what there is.
    pub snapshot: Option<Agent>,
    /// What an earlier run recorded, in place of agents.
    pub evidence: Option<Arc<Evidence>>,
    /// What a daemon that is gone has done of it.
    pub done: Done,
    /// Where spans of agents come in.
    pub spans: Arc<Inbox>,
    /// How long spans are waited for whose end nobody confirms.
    pub span_wait: Duration,
}

/// A run that was accepted and waits for its turn, of an agent that is reached at this URL.
#[must_use]
pub fn queued(run_id: String, spec: RunSpec, plan: &Plan, agent_endpoint: String) -> Run {
    Run {
        run_id,
        spec: Arc::new(spec),
        state: State::Queued,
        totals: Totals { total: u32::try_from(plan.cases.len()).unwrap_or(u32::MAX), ..Totals::default() },
        created_at: Timestamp::now(),
        finished_at: None,
        last_sequence: 0,
        error: None,
        warnings: Vec::new(),
        agent: None,
        agent_endpoint,
        suites: suite_infos(plan),
        paused: false,
        concurrency: None,
        gate: None,
    }
}

/// What the log says about the suites of a plan.
fn suite_infos(plan: &Plan) -> Vec<SuiteInfo> {
    let mut selected: HashMap<&str, u32> = HashMap::new();
    for case in &plan.cases {
        *selected.entry(&case.suite.path).or_default() += 1;
    }
    let infos = plan.suites.iter().map(|suite| SuiteInfo {
        path: suite.path.clone(),
        tool_name: suite.tool_name.clone(),
        tier: suite.tier,
        eval_file_hash: suite.file_hash.clone(),
        staleness: None,
        comparison: None,
        cases: selected.get(suite.path.as_str()).copied().unwrap_or(0),
        warnings: suite.findings().map(ToString::to_string).collect(),
    });
    infos.collect()
}
