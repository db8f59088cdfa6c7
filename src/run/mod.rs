//! The engine: runs a plan against an agent and writes what happens into the run's log. The only place that awaits
//! agents.
//!
//! [`execute`] is one run from `RunStarted` to `RunFinished`; `prepare` asks for what the cases need, `scheduler` decides
//! when a case may start, `case` runs one case, `call` makes one call and keeps its time. Verdicts are made elsewhere
//! ([`crate::check`]), from what was recorded.

mod ask;
mod call;
mod case;
mod clock;
mod dynamic;
mod gate;
mod journal;
mod judging;
mod prepare;
pub mod pulse;
mod reach;
pub mod replay;
mod scheduler;
mod script;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::check::arguments::Schemas;
use crate::conversation::{AgentCard, CancelReason, Description, Fault, FaultOrigin, JsonText, ToolMode, Transcript};
use crate::event::{CaseRef, Payload, Run, RunEvent, State, SuiteInfo};
use crate::json::{Json, Value};
use crate::peer::agent::Agent;
use crate::peer::output::Outputs;
use crate::peer::spans::Inbox;
use crate::peer::stream::Leniency;
use crate::plan::{AGENT_GONE_AFTER, Plan, PlannedCase, RunSpec};
use crate::stats::Tally;
use crate::suite::registry::Registry;
use crate::suite::template::Data;
use crate::suite::{Case, Suite, Tier};
use crate::trace::RunTrace;
use crate::usage::Price;
use crate::verdict::baseline::{AGENTS, Baseline, Comparison, Setting};
use crate::verdict::gate::GateResult;
use crate::verdict::{Attempt, Blame, CaseResult, Cause, Outcome, Standing, Totals};
pub use ask::with_test_mode;
use gate::GateWatch;
use journal::Journal;
pub use journal::{Outlet, Room, Waiting};
use prepare::{Prepared, Prevented, prepare};
use reach::Reach;
use replay::Evidence;
pub use script::hooks::Results;
use script::hooks::{after_run, before_run};
pub use script::{JUDGES, RunScripts};

/// Owns the ends of calls that were given up: an agent gets its grace while its case's slot is free again.
#[derive(Debug, Clone, Default)]
pub struct Farewells {
    tasks: TaskTracker,
    hurry: CancellationToken,
}

impl Farewells {
    /// Ends all that are left at once, and waits until they are gone.
    pub async fn finish(&self) {
        self.tasks.close();
        // Most agents react to a cancel at once; those that do not are reset.
        let _ = tokio::time::timeout(Duration::from_millis(300), self.tasks.wait()).await;
        self.hurry.cancel();
        self.tasks.wait().await;
    }
}

/// How a run is told to end early.
#[derive(Debug, Clone, Default)]
pub struct Control {
    /// No further case starts; those in flight go on.
    stop: CancellationToken,
    /// Cases in flight are cancelled too.
    cancel: CancellationToken,
    reason: Arc<Mutex<Option<CancelReason>>>,
    /// Why nothing more can be asked of the agent under test.
    lost: Arc<OnceLock<Fault>>,
    pace: watch::Sender<Pace>,
}

/// How fast cases may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Pace {
    paused: bool,
    /// Cases at the same time; `None`: what was asked for.
    concurrency: Option<u32>,
}

impl Control {
    /// Starts no further case while it is `paused`, and from now on at most so many at the same time; `None`: as many as was
    /// asked for.
    pub fn pace(&self, paused: bool, concurrency: Option<u32>) {
        self.pace.send_replace(Pace { paused, concurrency });
    }

    /// Lets the cases in flight end and starts no other.
    pub fn stop(&self, reason: CancelReason) {
        let mut first = self.reason.lock();
        // The first reason counts; but one who wants it to end does so whatever its gate says.
        if first.is_none_or(|first| first == CancelReason::Decided) {
            *first = Some(reason);
        }
        drop(first);
        self.stop.cancel();
    }

    /// Ends the run now.
    pub fn cancel(&self, reason: CancelReason) {
        self.stop(reason);
        self.cancel.cancel();
    }

    /// Starts no other case, because the agent under test takes no more calls. The first who says so counts.
    fn lose(&self, why: Fault) {
        let _ = self.lost.set(why);
        self.stop.cancel();
    }

    /// Why the run ends, if it is because the agent takes no more calls.
    fn lost(&self) -> Option<&Fault> {
        self.lost.get()
    }

    /// Waits until the run is told to end.
    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Whether the run is to go on another time: what has no verdict is left open.
    #[must_use]
    pub fn is_suspending(&self) -> bool {
        self.stop.is_cancelled() && self.reason() == CancelReason::Shutdown
    }

    /// Whether the run ends because a case did not pass.
    fn is_failing_fast(&self) -> bool {
        self.stop.is_cancelled() && self.reason() == CancelReason::FailFast
    }

    /// Whether the run ends because what comes of its gate is decided.
    fn is_decided(&self) -> bool {
        self.stop.is_cancelled() && self.reason() == CancelReason::Decided
    }

    fn reason(&self) -> CancelReason {
        self.reason.lock().unwrap_or(CancelReason::User)
    }

    /// Why cases are not run any more, for people.
    fn why(&self) -> &'static str {
        match self.reason() {
            CancelReason::Shutdown => "the daemon was stopped",
            CancelReason::FailFast => "a case did not pass, and the run is to fail fast",
            CancelReason::Decided => "what comes of the run is decided",
            CancelReason::User | CancelReason::Budget | CancelReason::ProtocolError | CancelReason::MaxTurns => {
                "the run was cancelled"
            }
        }
    }
}

/// What all cases of a run share.
struct Shared {
    run_id: String,
    /// Where its spans hang.
    trace: RunTrace,
    spec: RunSpec,
    /// The agent under test.
    callee: Callee,
    journal: Journal,
    control: Control,
    farewells: Farewells,
    /// What template tokens stand for.
    data: Arc<Data>,
    /// What the tools declare about their arguments.
    schemas: Arc<Schemas>,
    /// Simulators and validators, by the id that suites name.
    parties: HashMap<String, Agent>,
    /// The scripts that suites name.
    scripts: Option<RunScripts>,
    /// Agents that only scripts name, as far as they were asked.
    others: Mutex<HashMap<String, Arc<Callee>>>,
    /// What the script after the run is going to be told; `None`: there is none.
    results: Option<Mutex<Results>>,
    /// What the run has to reach; `None`: every case has to pass.
    gate: Option<GateWatch>,
    /// What an earlier run recorded, in place of agents.
    evidence: Option<Arc<Evidence>>,
    /// Cases that a daemon that is gone has begun.
    begun: HashMap<CaseKey, Begun>,
    /// Where spans of agents come in.
    spans: Arc<Inbox>,
    /// How long spans are waited for whose end nobody confirms.
    span_wait: Duration,
    /// What came of calls that go on.
    outputs: Outputs,
    /// Rules that were bent: each is reported once.
    bent: Mutex<HashSet<Leniency>>,
}

impl Shared {
    /// Whether a rule is bent for the first time in this run.
    fn is_news(&self, rule: Leniency) -> bool {
        self.bent.lock().insert(rule)
    }

    /// What the agent costs: by the model that its calls name, else by its card.
    fn price(&self, model: Option<&str>) -> Option<Price> {
        self.spec.prices.of(model.unwrap_or(&self.callee.description.card.model))
    }

    /// Whoever has that id: one that the suites name, or one that scripts may ask because the run or the daemon knows it.
    fn party(&self, id: &str) -> Result<Agent, String> {
        match (self.parties.get(id), &self.scripts) {
            (Some(party), _) => Ok(party.clone()),
            (None, Some(scripts)) => scripts.directory.find(id, &self.spec.targets).map_err(|error| error.to_string()),
            (None, None) => Err("there is no such agent".to_owned()),
        }
    }

    /// The options of a case, with the connector of the run in place of its own.
    fn options_for(&self, case: &Case) -> Option<JsonText> {
        let Some(connector) = &self.spec.connector else { return case.options.clone() };
        let mut members = case.options.as_ref().map(|options| options.parse().members().to_vec()).unwrap_or_default();
        members.retain(|(key, _)| key != "connector");
        let connector = Json { line: 0, value: Value::String(connector.clone()) };
        members.push(("connector".to_owned(), connector));
        Some(JsonText::from(&Json { line: 0, value: Value::Object(members) }))
    }
}

/// An agent that is called, and what it said about itself.
#[derive(Debug, Clone)]
struct Callee {
    agent: Agent,
    description: Description,
    reach: Reach,
}

impl Callee {
    /// Somebody of whom nobody knows yet whether they take calls.
    fn new(agent: Agent, description: Description, spec: &RunSpec) -> Self {
        let reach = Reach::new(spec.agent_gone_after.unwrap_or(AGENT_GONE_AFTER));
        Self { agent, description, reach }
    }

    /// How the agent wants to be called: by the id on its card, else by the daemon's name for it.
    fn agent_id(&self) -> String {
        let id = &self.description.card.agent_id;
        if id.is_empty() { self.agent.name.clone() } else { id.clone() }
    }

    /// Whether it declares a capability.
    fn can(&self, capability: &str) -> bool {
        self.description.capabilities.iter().any(|declared| declared == capability)
    }

    /// The capability that it lacks for a mode. A mode is never guessed: an agent that did not declare it is never sent it.
    fn lacks(&self, tool_mode: ToolMode) -> Option<&'static str> {
        let needed = match tool_mode {
            ToolMode::Live => return None,
            ToolMode::Stub => "tools.stub",
            ToolMode::RoutingOnly => "tools.routing",
        };
        (!self.can(needed)).then_some(needed)
    }
}

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

/// Suite, id and repetition of a case.
pub type CaseKey = (String, String, u32);

/// How far a run came before its daemon ended.
#[derive(Debug, Clone, Default)]
pub struct Done {
    /// Events of its log.
    pub events: u64,
    /// Cases with a verdict.
    pub finished: HashMap<CaseKey, Finished>,
    /// Those of them that were left out because they could not have changed what comes of the gate.
    pub left_out: u32,
    /// Cases that were begun and have none.
    pub begun: HashMap<CaseKey, Begun>,
    /// The values of snapshot tokens, if somebody was asked for them.
    pub snapshot: Option<JsonText>,
    /// What the script after the run is going to be told of it; `None`: there is no such script.
    pub results: Option<Results>,
}

/// What is kept of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// What came of the case.
    pub outcome: Outcome,
    /// How it stands in a comparison.
    pub standing: Standing,
    /// What it says about the agent.
    pub tally: Tally,
}

/// A case that was begun and has no verdict.
#[derive(Debug, Clone, Default)]
pub struct Begun {
    /// The last attempt, from 1.
    pub attempt: u32,
    /// The attempts that ended.
    pub earlier: Vec<Attempt>,
}

impl Done {
    /// Takes the next event of the log.
    pub fn take(&mut self, event: &RunEvent) {
        let case = event.case.as_ref();
        let key = case.map(|case| (case.suite.to_string(), case.case_id.to_string(), case.repeat));
        match (&event.payload, key, case) {
            (Payload::CaseStarted { .. }, Some(key), Some(case)) => {
                self.begun.entry(key).or_default().attempt = case.attempt;
            }
            (Payload::AttemptFinished(result), Some(key), _) => {
                self.begun.entry(key).or_default().earlier.push(Attempt::of(result));
            }
            (Payload::CaseFinished(result), Some(key), _) => {
                if let (Some(results), Some(case)) = (&mut self.results, case) {
                    results.keep(case, result);
                }
                self.begun.remove(&key);
                self.left_out += u32::from(result.is_left_out());
                let finished = Finished { outcome: result.outcome, standing: result.standing(), tally: result.tally() };
                self.finished.insert(key, finished);
            }
            (Payload::SnapshotTaken(values), ..) => self.snapshot = Some(values.clone()),
            _ => {}
        }
    }

    /// Whether the case has no verdict yet.
    fn is_open(&self, case: &PlannedCase) -> bool {
        !self.finished.contains_key(&key_of(case))
    }
}

fn key_of(case: &PlannedCase) -> CaseKey {
    (case.suite.path.clone(), case.head().id.clone(), case.repeat)
}

/// Executes a run to its end and writes its log to `events`.
///
/// # Errors
/// When nobody takes the events any more.
pub async fn execute(job: Job, events: Outlet, farewells: Farewells, control: Control) {
    let mut run = job.run.clone();
    run.state = State::Running;
    run.agent_endpoint = job.agent.url.clone();
    let journal = Journal::new(events, control.clone(), run.clone(), &job.done, !job.baselines.is_empty());
    if job.done.events == 0 {
        journal.run(Payload::RunStarted(Box::new(run))).await;
    }
    // The first event was the start, and behind it stand these.
    let planned = usize::try_from(job.done.events.saturating_sub(1)).unwrap_or(usize::MAX);
    journal.planned(job.plan.cases.get(planned..).unwrap_or_default()).await;
    let open: Vec<PlannedCase> = job.plan.cases.iter().filter(|case| job.done.is_open(case)).cloned().collect();
    let is_bad = |finished: &Finished| matches!(finished.outcome, Outcome::Failed | Outcome::Errored);
    let open = if job.run.spec.fail_fast && job.done.finished.values().any(is_bad) {
        journal.not_run(&open, || CaseResult::passed_over(Transcript::default())).await;
        Vec::new()
    } else {
        open
    };
    let chosen = chosen(&job.plan.suites, &job.baselines);
    let gate = GateWatch::new(&job.run.spec.gate, &job.plan, &chosen, &job.done);
    let prepared = match prepare(&job, &journal, &control).await {
        Ok(prepared) => prepared,
        Err(Prevented::Stopped) if control.is_suspending() => return,
        Err(Prevented::Stopped) => {
            let not_run = || CaseResult::not_run(Cause::Cancelled, Blame::Daemon, control.why());
            journal.not_run(&open, not_run).await;
            return finish(&journal, State::Cancelled, None, None).await;
        }
        // Its daemon ended between the last verdict and the end of the run; nobody is needed any more.
        Err(Prevented::Trouble { .. }) if open.is_empty() => {
            let totals = journal.current().totals;
            let gate = gate.as_ref().map(GateWatch::result);
            let state = State::of(&totals, gate.as_ref().map(|gate| gate.counts_as));
            journal.gate(gate.map(|gate| beside(gate, state, unjudged(&totals))));
            return finish(&journal, state, None, None).await;
        }
        Err(Prevented::Trouble { fault, cause, blame }) => {
            journal.not_run(&open, || CaseResult::not_run(cause, blame, &fault.message)).await;
            return finish(&journal, State::Errored, None, Some(fault)).await;
        }
    };
    let Job { run, plan, agent, baselines, parties, scripts, evidence, done, spans, span_wait, .. } = job;
    let Prepared { description, data, schemas } = prepared;
    let card = description.card.clone();
    journal.run(Payload::AgentDescribed(Box::new(card.clone()))).await;
    let results = run.spec.hooks.after.is_some().then(|| Mutex::new(done.results.unwrap_or_default()));
    let suites = plan.suites.clone();
    let shared = Shared {
        callee: Callee::new(agent, description, &run.spec),
        trace: run.trace(),
        run_id: run.run_id,
        spec: run.spec,
        journal: journal.clone(),
        control: control.clone(),
        farewells,
        data,
        schemas,
        parties,
        scripts,
        others: Mutex::default(),
        results,
        gate,
        evidence,
        begun: done.begun,
        spans,
        span_wait,
        outputs: Outputs::default(),
        bent: Mutex::default(),
    };
    let shared = Arc::new(shared);
    let trouble = around(&shared, open).await;
    if control.is_suspending() && !journal.is_whole() {
        return;
    }
    let comparisons = compare(&suites, &baselines, &card, &journal).await;
    let totals = journal.current().totals;
    let gate = shared.gate.as_ref().map(GateWatch::result);
    // A run that was told to end when every case had its verdict has lost nothing.
    let is_whole = totals.passed + totals.failed + totals.skipped == totals.total;
    let is_lost = control.lost().is_some();
    let was_stopped = control.stop.is_cancelled() && !control.is_failing_fast() && !control.is_decided() && !is_lost;
    let was_cancelled = was_stopped && !is_whole;
    let why = match &trouble {
        Trouble::None if was_cancelled => Some(control.why().to_owned()),
        Trouble::None => unjudged(&totals),
        Trouble::Before(fault) | Trouble::Lost(fault) => Some(fault.message.clone()),
        Trouble::After => Some("the script after the run failed".to_owned()),
    };
    let (state, error) = match trouble {
        Trouble::None => (State::of(&totals, gate.as_ref().map(|gate| gate.counts_as)), None),
        Trouble::Before(fault) | Trouble::Lost(fault) => (State::Errored, Some(fault)),
        Trouble::After => (State::Errored, None),
    };
    let state = if was_cancelled { State::Cancelled } else { state };
    journal.compared(comparisons);
    journal.gate(gate.map(|gate| beside(gate, state, why)));
    finish(&journal, state, Some(card), error).await
}

/// What came of a gate in a run that ended in a state, for a reason besides the gate itself: no gate is passed beside trouble.
fn beside(gate: GateResult, state: State, why: Option<String>) -> GateResult {
    match why.filter(|_| matches!(state, State::Errored | State::Cancelled)) {
        Some(why) => gate.beside(&why),
        None => gate,
    }
}

/// Which executions have no verdict that should have one, in words.
fn unjudged(totals: &Totals) -> Option<String> {
    let open = totals.total.saturating_sub(totals.passed + totals.failed + totals.skipped);
    (open > 0).then(|| format!("{open} of {} could not be judged, or were not run", totals.total))
}

/// What went wrong with a run besides its cases.
enum Trouble {
    None,
    /// The script before it failed: no case was run.
    Before(Fault),
    /// The agent took no more calls: the rest of the cases was not run.
    Lost(Fault),
    /// The script after it failed, which the log says.
    After,
}

/// Runs the cases between the scripts that stand before and after them.
async fn around(shared: &Arc<Shared>, cases: Vec<PlannedCase>) -> Trouble {
    let hooks = &shared.spec.hooks;
    // What is left of a run may be its end alone.
    let (data, mut trouble) = match hooks.before.as_ref().filter(|_| !cases.is_empty()) {
        None => (None, Trouble::None),
        Some(before) => match before_run(shared, before, &cases).await {
            Ok(data) => (data, Trouble::None),
            Err(_) if shared.control.is_suspending() => return Trouble::None,
            Err(why) => {
                let fault = Fault {
                    code: tonic::Code::FailedPrecondition.into(),
                    reason: "SCRIPT_FAILED".to_owned(),
                    message: format!("the script before the run failed ({before}): {why}"),
                    origin: FaultOrigin::Daemon,
                    retryable: false,
                };
                (None, Trouble::Before(fault))
            }
        },
    };
    if shared.gate.as_ref().is_some_and(GateWatch::is_decided) {
        shared.control.stop(CancelReason::Decided);
    }
    match &trouble {
        Trouble::Before(fault) => {
            let not_run = || CaseResult::not_run(Cause::ScriptError, Blame::Script, &fault.message);
            shared.journal.not_run(&cases, not_run).await;
        }
        Trouble::None | Trouble::Lost(_) | Trouble::After => scheduler::run_all(Arc::clone(shared), cases).await,
    }
    if let Some(fault) = shared.control.lost() {
        trouble = Trouble::Lost(fault.clone());
    }
    if shared.control.is_suspending() && !shared.journal.is_whole() {
        return Trouble::None;
    }
    if let Some(after) = &hooks.after
        && let Err(why) = after_run(shared, after, data).await
    {
        shared.journal.run(Payload::Warning(format!("the script after the run failed ({after}): {why}"))).await;
        if matches!(trouble, Trouble::None) {
            trouble = Trouble::After;
        }
    }
    trouble
}

/// The earlier result that each suite is compared with.
fn chosen<'a>(suites: &[Arc<Suite>], baselines: &'a [Baseline]) -> Vec<Option<&'a Baseline>> {
    Baseline::choose(baselines, &suites.iter().map(|suite| suite.identity()).collect::<Vec<_>>())
}

/// Compares each suite with its own earlier result; another one is compared with nothing.
async fn compare(
    suites: &[Arc<Suite>],
    baselines: &[Baseline],
    card: &AgentCard,
    journal: &Journal,
) -> Vec<Option<Comparison>> {
    let run = journal.current();
    let chosen = chosen(suites, baselines);
    for left in baselines.iter().filter(|it| !chosen.iter().flatten().any(|other| std::ptr::eq(*it, *other))) {
        let text = format!("the baseline {} also holds {}, which is no part of this run", left.run_id, named(left));
        journal.run(Payload::Warning(text)).await;
    }
    let mut comparisons = Vec::new();
    for ((suite, info), baseline) in suites.iter().zip(&run.suites).zip(chosen) {
        if baseline.is_none() && !baselines.is_empty() {
            journal.run(Payload::Warning(nothing_compared(suite, baselines))).await;
        }
        comparisons.push(baseline.map(|baseline| {
            let ids: HashSet<&str> = suite.cases.iter().map(|case| case.id.as_str()).collect();
            let in_order = suite.cases.iter().map(|case| case.id.as_str());
            let current = in_order.filter_map(|id| Some((id, journal.standing(&suite.path, id)?)));
            baseline.compare(current, |id| ids.contains(id), &setting(info, card, &run.spec))
        }));
    }
    comparisons
}

/// An earlier result in words.
fn named(baseline: &Baseline) -> String {
    let Baseline { tool_name, tier, setting, .. } = baseline;
    let path = if setting.path.is_empty() { String::new() } else { format!("{}, ", setting.path) };
    format!("{tool_name:?} ({path}{})", tier.map_or("", Tier::name))
}

/// Why a suite is compared with nothing.
fn nothing_compared(suite: &Suite, baselines: &[Baseline]) -> String {
    /// Most suites of the baseline that are named.
    const MAX_NAMED: usize = 5;
    let all: Vec<String> = baselines.iter().take(MAX_NAMED).map(named).collect();
    let more = baselines.len().saturating_sub(MAX_NAMED);
    format!(
        "the baseline {} is about {}{}, and {} is about {:?} ({}): nothing is compared",
        baselines[0].run_id,
        all.join(", "),
        if more > 0 { format!(" and {more} more") } else { String::new() },
        suite.path,
        suite.tool_name,
        suite.tier.name()
    )
}

/// What a suite is run with.
fn setting(suite: &SuiteInfo, card: &AgentCard, spec: &RunSpec) -> Setting {
    let today = suite.staleness.as_ref();
    Setting {
        path: suite.path.clone(),
        eval_file_hash: suite.eval_file_hash.clone(),
        agent_version: card.version.clone(),
        agent_model: card.model.clone(),
        description_hash: today.and_then(|today| today.description_hash.clone()).unwrap_or_default(),
        tool_version: today.and_then(|today| today.tool_version.clone()).unwrap_or_default(),
        registry_size: today.map(|today| today.registry_size.to_string()).unwrap_or_default(),
        evidence: spec.replay.as_ref().map_or(AGENTS, |replay| &replay.run_id).to_owned(),
    }
}

async fn finish(journal: &Journal, state: State, agent: Option<AgentCard>, error: Option<Fault>) {
    let run = Run { state, agent, error, finished_at: Some(jiff::Timestamp::now()), ..journal.current() };
    journal.run(Payload::RunFinished(Box::new(run))).await
}

/// What the log says about the suites of a plan.
#[must_use]
pub fn suite_infos(plan: &Plan) -> Vec<SuiteInfo> {
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

/// Names the first attempt at a case of the plan.
fn case_ref(planned: &PlannedCase) -> CaseRef {
    CaseRef {
        suite: Arc::from(planned.suite.path.as_str()),
        case_id: Arc::from(planned.head().id.as_str()),
        repeat: planned.repeat,
        attempt: 1,
    }
}
