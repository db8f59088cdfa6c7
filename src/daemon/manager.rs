//! Accepts runs, lets only a few of them go at a time, and ends them all when the daemon stops.

use std::collections::HashMap;
use std::fs::File;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use prost::Message as _;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::config::{Config, OnRestart};
use super::create::CreateError;
use super::log::{self, abandon, end_if_abandoned, evidence, write_log};
use super::memory::{Memory, Short};
use super::observer::{Observer, Telemetry};
use super::open::{Opened, open_and_plan, snapshot_of, with_bundle};
use super::status::chain;
use super::suspects::Suspects;
use super::turns::{Party, Turn, Turns};
use crate::bundle::MAX_HELD_BYTES;
use crate::conversation::CancelReason;
use crate::event::{Run, State};
use crate::limits::{OPEN_BUNDLES, SPEC_BYTES, WAITING_EVENTS, WAITING_RUNS};
use crate::peer::agent::Agent;
use crate::peer::call::Farewells;
use crate::peer::directory::{Directory, DirectoryError};
use crate::peer::spans::Inbox;
use crate::plan::{Plan, RunSpec};
use crate::run::pulse::watched;
use crate::run::replay::Evidence;
use crate::run::{Control, Done, Job, Room, RunScripts, execute, queued};
use crate::script::pool::Pool;
use crate::store::bundles::Bundles;
use crate::store::{Change, Store, StoreError};
use crate::suite::error::{Finding, SuiteErrors};
use crate::suite::registry::Registry;
use crate::suite::template::Data;
use crate::telemetry::spans::{Grouper, Style};
use crate::usage::Prices;
use crate::verdict::baseline::Baseline;
use crate::wire::spec::spec_to_proto;

/// Bundles that are opened at the same time.
const OPENING: usize = 2;
/// Time that `CreateRun` waits for room to open the bundle.
const PATIENCE: Duration = Duration::from_secs(20);

/// Owns the runs of a daemon.
#[derive(Debug)]
pub struct Manager {
    store: Arc<Store>,
    /// Owner of calls that were given up.
    farewells: Farewells,
    directory: Arc<Directory>,
    bundles: Arc<Bundles>,
    /// Runs that are accepted and not over.
    accepted: Arc<Turns>,
    /// Runs that go on.
    going: Arc<Turns>,
    /// Room for bundles that are open, in KiB.
    room: Arc<Turns>,
    /// Room for what was asked for of runs that are not over, in KiB.
    specs: Arc<Turns>,
    memory: Memory,
    /// Turns to open one, which takes processors.
    opening: Arc<Turns>,
    prices: Prices,
    /// Who runs the scripts of suites.
    scripts: Arc<Pool>,
    /// Runs that are not over.
    controls: Arc<Mutex<HashMap<String, Control>>>,
    tasks: TaskTracker,
    stopping: CancellationToken,
    telemetry: Telemetry,
    /// Where events wait for the store.
    log_room: Room,
    /// Where spans of agents come in.
    spans: Arc<Inbox>,
    span_wait: Duration,
    trace_url: Option<String>,
    capture_content: bool,
    agent_gone_after: Duration,
    suspects: Suspects,
    span_style: Style,
}

impl Manager {
    /// Manages runs, as many at a time as the configuration says.
    #[must_use]
    pub fn new(
        store: Arc<Store>,
        directory: Arc<Directory>,
        bundles: Arc<Bundles>,
        telemetry: Telemetry,
        config: &Config,
    ) -> Self {
        Self {
            store,
            farewells: Farewells::default(),
            directory,
            bundles,
            accepted: Turns::new(WAITING_RUNS.saturating_add(config.max_parallel_runs)),
            going: Turns::new(config.max_parallel_runs),
            room: Turns::new(kib(OPEN_BUNDLES)),
            specs: Turns::new(kib(SPEC_BYTES)),
            memory: Memory::default(),
            opening: Turns::new(OPENING),
            prices: config.prices.clone(),
            scripts: Arc::new(Pool::new(script_workers(), config.scripts)),
            controls: Arc::default(),
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
            telemetry,
            log_room: Room::default(),
            spans: Arc::default(),
            span_wait: config.span_wait,
            trace_url: config.trace_url.clone(),
            capture_content: config.capture_content,
            agent_gone_after: config.agent_gone_after,
            suspects: Suspects::new(config.max_deaths),
            span_style: config.span_style,
        }
    }

    /// Where runs are kept.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The ways of telemetry out of the daemon.
    #[must_use]
    pub const fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// Where spans of agents come in.
    #[must_use]
    pub const fn spans(&self) -> &Arc<Inbox> {
        &self.spans
    }

    /// Where bundles are kept.
    #[must_use]
    pub fn bundles(&self) -> &Bundles {
        &self.bundles
    }

    /// The agents by name.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Does something besides answering, and owns it: it is given up when the daemon stops.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stopping = self.stopping.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = stopping.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// Owner of calls that were given up.
    #[must_use]
    pub fn farewells(&self) -> &Farewells {
        &self.farewells
    }

    /// Checks a request of a client and, unless it is only to be checked, accepts the run. The flag says that the same
    /// request was accepted before.
    ///
    /// # Errors
    /// Everything that keeps the run from being started; an agent that is not there is found out later.
    pub(super) async fn create(
        self: &Arc<Self>,
        client: Option<Party>,
        request_id: &str,
        mut spec: RunSpec,
        validate_only: bool,
    ) -> Result<(Run, bool), CreateError> {
        if self.stopping.is_cancelled() {
            return Err(CreateError::Stopping);
        }
        self.memory.has_room()?;
        spec.prices.fill_from(&self.prices);
        spec.trace_url = spec.trace_url.or_else(|| self.trace_url.clone());
        spec.capture_content |= self.capture_content;
        spec.agent_gone_after = spec.agent_gone_after.or(Some(self.agent_gone_after));
        let parties = Party::of_run(client, &spec);
        let accepted = if validate_only { None } else { self.accepted.try_take(&parties, 1) };
        if accepted.is_none() && !validate_only {
            return Err(CreateError::TooManyWait);
        }
        let held = self.hold(&spec, &parties).ok_or(CreateError::SpecsFull)?;
        // Only for room: however long its own bundle takes, others are not in its way.
        let opening = self.room_soon(&spec, &parties).await?;
        let parts = self.assemble(&spec, opening).await?;
        let plan = &parts.plan;
        if spec.strict {
            // Not when a run goes on after a restart: it was accepted.
            let doubtful: Vec<Finding> = plan.suites.iter().flat_map(|suite| suite.doubtful.clone()).collect();
            if !doubtful.is_empty() {
                return Err(SuiteErrors(doubtful).into());
            }
        }
        let run_id = if validate_only { String::new() } else { self.store.new_id() };
        let run = queued(run_id, spec, plan, parts.agent.url.clone());
        if validate_only {
            return Ok((run, false));
        }
        self.bundles.has_room()?;
        let (run, deduplicated) = self.store().create_run(run, request_id).await?;
        if !deduplicated {
            let accepted = Accepted { _place: accepted, _spec: Some(held) };
            self.start(run.clone(), parties, accepted, Some(parts));
        }
        Ok((run, deduplicated))
    }

    /// Whether there is memory for something new.
    ///
    /// # Errors
    /// When there is not.
    pub fn has_memory(&self) -> Result<(), Short> {
        self.memory.has_room()
    }

    /// Room for what was asked for; `None`: there is none.
    fn hold(&self, spec: &RunSpec, parties: &Arc<[Party]>) -> Option<Turn> {
        let bytes = spec_to_proto(spec).encoded_len();
        self.specs.try_take(parties, kib(bytes as u64) + 1)
    }

    /// Makes spans of a run, from its first event on.
    pub(super) fn grouper(&self, run: &Run) -> Grouper {
        Grouper::new(run, self.span_style)
    }

    /// Waits for the room that an open bundle takes, and for the turn to open it.
    async fn room_for(&self, spec: &RunSpec, parties: &Arc<[Party]>) -> Result<Opening, CreateError> {
        let size = self.bundles.size(&spec.bundle).await?.min(MAX_HELD_BYTES);
        let room = self.room.take(parties, kib(size) + 1).await;
        let turn = self.opening.take(parties, 1).await;
        Ok(Opening { room, turn })
    }

    /// Like [`Self::room_for`] for a client that waits for an answer: at most [`PATIENCE`].
    async fn room_soon(&self, spec: &RunSpec, parties: &Arc<[Party]>) -> Result<Opening, CreateError> {
        let room = tokio::time::timeout(PATIENCE, self.room_for(spec, parties)).await;
        room.unwrap_or(Err(CreateError::Busy))
    }

    /// Reads something in the bundle of a run, for a client.
    ///
    /// # Errors
    /// When there is no room to open it, it is not here, or reading takes too long.
    pub(super) async fn read_in_bundle<T: Send + 'static>(
        &self,
        client: Option<Party>,
        spec: &RunSpec,
        read: impl FnOnce(&Arc<File>) -> T + Send + 'static,
    ) -> Result<T, CreateError> {
        let _opening = self.room_soon(spec, &Party::of_run(client, spec)).await?;
        with_bundle(self.bundles.file(&spec.bundle).await?, read).await
    }

    /// Everything that a run needs besides itself, for one that was accepted: it waits as long as it takes.
    async fn reopen(&self, spec: &RunSpec, parties: &Arc<[Party]>) -> Result<Parts, CreateError> {
        let opening = self.room_for(spec, parties).await?;
        self.assemble(spec, opening).await
    }

    /// Everything that a run needs besides itself.
    async fn assemble(&self, spec: &RunSpec, opening: Opening) -> Result<Parts, CreateError> {
        let Opening { room, turn: _turn } = opening;
        let packed = self.bundles.file(&spec.bundle).await?;
        let for_plan = spec.clone();
        let planned = with_bundle(packed, move |packed| open_and_plan(packed, &for_plan)).await;
        let Opened { mut plan, baselines, registry, scripts } = planned??;
        if spec.gate.max_regression.is_some() && baselines.is_empty() {
            return Err(CreateError::NoBaseline);
        }
        let evidence = match &spec.replay {
            None => None,
            Some(replay) => {
                let recorded = self.store.run(&replay.run_id).await?;
                if recorded.spec.agent_id != spec.agent_id {
                    return Err(CreateError::OtherAgent(replay.run_id.clone(), recorded.spec.agent_id.clone()));
                }
                if plan.data.snapshot.is_none() {
                    // The values of then belong to the answers of then.
                    let packed = self.bundles.file(&recorded.spec.bundle).await?;
                    let snapshot = tokio::task::spawn_blocking(move || snapshot_of(&packed)).await;
                    let snapshot = snapshot.map_err(|_| CreateError::Died)??;
                    plan.data = Arc::new(Data { seed: plan.data.seed.clone(), snapshot });
                }
                Some(Arc::new(evidence(&self.store, replay, &plan.suites).await?))
            }
        };
        let agent = match self.directory.find(&spec.agent_id, &spec.targets) {
            // Nobody calls it.
            Err(DirectoryError::Unknown { .. }) if evidence.is_some() => Agent::nobody(&spec.agent_id),
            found => found?,
        };
        let provider = spec.snapshot_agent.as_deref().map(|name| self.directory.find(name, &spec.targets));
        let snapshot = provider.transpose()?;
        let mut parties = HashMap::new();
        for id in plan.cases.iter().flat_map(|planned| &planned.head().parties) {
            if parties.contains_key(id.as_str()) {
                continue;
            }
            match self.directory.find(id, &spec.targets) {
                Ok(party) => drop(parties.insert(id.to_owned(), party)),
                // Its cases cannot be judged, and say so; the others can.
                Err(DirectoryError::Unknown { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let scripts = scripts.map(|scripts| RunScripts {
            scripts: Arc::new(scripts),
            pool: Arc::new(self.scripts.share()),
            directory: Arc::clone(&self.directory),
        });
        if snapshot.is_some() && plan.data.snapshot.is_some() {
            return Err(CreateError::TwoSnapshots);
        }
        Ok(Parts { plan, agent, baselines, registry, parties, scripts, snapshot, evidence, room: Arc::new(room) })
    }

    /// Goes on with the runs that a daemon has left behind, or ends them.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub async fn take_up(self: &Arc<Self>, what: OnRestart) -> Result<(), StoreError> {
        for run_id in self.store.going_on().await? {
            // One that cannot be gone on with does not keep the others from it.
            if let Err(error) = self.take_up_one(&run_id, what).await {
                tracing::error!(run = %run_id, %error, "a run cannot go on");
            }
        }
        Ok(())
    }

    async fn take_up_one(self: &Arc<Self>, run_id: &str, what: OnRestart) -> Result<(), StoreError> {
        let run = self.store.take_up(run_id).await?;
        match what {
            OnRestart::Resume => {
                let is_cancelling = run.state == State::Cancelling;
                let parties = Party::of_run(None, &run.spec);
                // It was accepted, and goes on also when there are too many.
                let (place, spec) = (self.accepted.try_take(&parties, 1), self.hold(&run.spec, &parties));
                self.start(run, parties, Accepted { _place: place, _spec: spec }, None);
                if is_cancelling && let Some(control) = self.lock().get(run_id) {
                    control.cancel(CancelReason::User);
                }
                Ok(())
            }
            OnRestart::Abort => {
                let why = "the daemon was restarted, and is configured not to go on with runs";
                self.give_up(run, why).await
            }
        }
    }

    /// Ends a run that cannot go on.
    async fn give_up(&self, run: Run, why: &str) -> Result<(), StoreError> {
        tracing::warn!(run = %run.run_id, %why, "a run cannot go on");
        let (_, grouper) = self.done(&run).await?;
        let is_replay = run.spec.replay.is_some();
        let mut observer = Observer { telemetry: self.telemetry.clone(), is_replay, grouper };
        abandon(&self.store, run, "NOT_RESUMED", &format!("the run cannot go on: {why}"), &mut observer).await
    }

    /// How far a run came, by its log; and the events of it whose spans are still to be made.
    async fn done(&self, run: &Run) -> Result<(Done, Grouper), StoreError> {
        log::done(&self.store, run, self.grouper(run)).await
    }

    fn job(&self, parts: Parts, run: Run, mut done: Done) -> Job {
        let Parts { plan, agent, baselines, registry, parties, scripts, snapshot, evidence, room: _ } = parts;
        // What held for the recorded answers holds for what is said about them.
        done.snapshot = done.snapshot.or_else(|| evidence.as_ref().and_then(|evidence| evidence.snapshot()));
        let (spans, span_wait) = (Arc::clone(&self.spans), self.span_wait);
        Job { run, plan, agent, baselines, registry, parties, scripts, snapshot, evidence, done, spans, span_wait }
    }

    /// Lets a run go on when it may. `parts` is what it needs, if that is at hand.
    fn start(self: &Arc<Self>, run: Run, parties: Arc<[Party]>, accepted: Accepted, parts: Option<Parts>) {
        let control = Control::default();
        control.pace(run.paused, run.concurrency);
        self.lock().insert(run.run_id.clone(), control.clone());
        if self.stopping.is_cancelled() {
            control.stop(CancelReason::Shutdown);
        }
        let manager = Arc::clone(self);
        self.tasks.spawn(async move {
            let run_id = run.run_id.clone();
            let going = watched("a run", manager.go(run, &parties, parts, control));
            let went = AssertUnwindSafe(going).catch_unwind().await;
            match went {
                Ok(Ok(())) => tracing::info!(run = %run_id, "run ended"),
                Ok(Err(error)) => tracing::error!(run = %run_id, %error, "the log of a run could not be written"),
                Err(_) => tracing::error!(run = %run_id, "what a run needs could not be made ready: it panicked"),
            }
            manager.lock().remove(&run_id);
            drop(accepted);
            if let Some(exporter) = &manager.telemetry.exporter {
                // What people look for when a run is over. A daemon that ends waits for all of it at once.
                tokio::select! {
                    () = exporter.flush() => {}
                    () = manager.stopping.cancelled() => {}
                }
            }
        });
    }

    /// A run from waiting to its end.
    async fn go(
        &self,
        run: Run,
        parties: &Arc<[Party]>,
        parts: Option<Parts>,
        control: Control,
    ) -> Result<(), StoreError> {
        let run_id = run.run_id.clone();
        let turn = self.going.try_take(parties, 1);
        let (_turn, run, parts) = if turn.is_some() {
            (turn, run, parts)
        } else {
            // What waits holds nothing: what it needs is opened anew when it begins.
            drop((run, parts));
            let turn = tokio::select! {
                turn = self.going.take(parties, 1) => Some(turn),
                // A cancelled run is told so by the engine itself, which then does nothing else.
                () = control.stopped() => None,
            };
            if turn.is_none() && control.is_suspending() {
                return Ok(());
            }
            (turn, self.store.run(&run_id).await?, None)
        };
        // It may be what daemons die of, from the moment when its bundle is opened.
        match self.suspects.enter(&self.store, &run_id, &control).await? {
            Ok(going) => {
                let went = self.open_and_execute(run, parties, parts, control).await;
                going.leave().await;
                went
            }
            Err(deaths) => {
                self.give_up(run, &format!("it was running at {deaths} deaths of the daemon")).await?;
                self.store.leaves(&run_id, true).await
            }
        }
    }

    async fn open_and_execute(
        &self,
        run: Run,
        parties: &Arc<[Party]>,
        parts: Option<Parts>,
        control: Control,
    ) -> Result<(), StoreError> {
        let parts = match parts {
            Some(parts) => parts,
            None => match self.reopen(&run.spec, parties).await {
                Ok(parts) => parts,
                Err(error) => return self.give_up(run, &chain(&error)).await,
            },
        };
        let (done, grouper) = self.done(&run).await?;
        if done.events > 0 {
            tracing::info!(run = %run.run_id, finished = done.finished.len(), "a run goes on");
        }
        Box::pin(self.execute(run, parts, done, grouper, control)).await
    }

    /// Executes a run and writes its log. `grouper`: what telemetry is told of it next.
    async fn execute(
        &self,
        run: Run,
        parts: Parts,
        done: Done,
        grouper: Grouper,
        control: Control,
    ) -> Result<(), StoreError> {
        let (run_id, created_at) = (run.run_id.clone(), run.created_at);
        let _room = Arc::clone(&parts.room);
        let (is_new, is_replay) = (done.events == 0, run.spec.replay.is_some());
        let job = self.job(parts, run, done);
        tracing::info!(run = %run_id, agent = ?job.agent.name, cases = job.plan.cases.len(), "run begins");
        let metrics = &self.telemetry.metrics;
        let waited = Duration::try_from(Timestamp::now().duration_since(created_at)).ok().filter(|_| is_new);
        metrics.run_begins(waited);
        let mut observer = Observer { telemetry: self.telemetry.clone(), is_replay, grouper };
        let (events, drafts) = self.log_room.outlet(WAITING_EVENTS);
        let executed = AssertUnwindSafe(execute(job, events, self.farewells.clone(), control)).catch_unwind();
        let stored = AssertUnwindSafe(write_log(&self.store, &run_id, drafts, &mut observer)).catch_unwind();
        let (stored, executed) = tokio::join!(stored, executed);
        // A run whose log nobody writes is over, which is told below.
        let stored = stored.unwrap_or_else(|_| {
            tracing::error!(run = %run_id, "writing the log panicked");
            Ok(())
        });
        if executed.is_err() {
            tracing::error!(run = %run_id, "the engine panicked");
        }
        let ended = match stored {
            Ok(()) => end_if_abandoned(&self.store, &run_id, self.stopping.is_cancelled(), &mut observer).await,
            Err(error) => Err(error),
        };
        metrics.run_leaves();
        ended
    }

    /// Cancels a run; one that is over stays as it is.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn cancel(&self, run_id: &str) -> Result<Run, StoreError> {
        let run = self.store().change(run_id, Change::Cancel).await?;
        if let Some(control) = self.lock().get(run_id) {
            control.cancel(CancelReason::User);
        }
        Ok(run)
    }

    /// Holds a run, lets it go on, or says how many of its cases may run at the same time.
    ///
    /// # Errors
    /// When there is no such run, or it is over.
    pub async fn pace(&self, run_id: &str, paused: Option<bool>, concurrency: Option<u32>) -> Result<Run, StoreError> {
        let run = self.store().change(run_id, Change::Pace { paused, concurrency }).await?;
        if run.state.is_final() {
            return Err(StoreError::Over(run_id.to_owned()));
        }
        if let Some(control) = self.lock().get(run_id) {
            control.pace(run.paused, run.concurrency);
        }
        Ok(run)
    }

    /// Takes no more runs, lets cases in flight end within `grace`, then cancels what is left. Says whether there were
    /// any runs to end.
    pub async fn drain(&self, grace: Duration) -> bool {
        self.stopping.cancel();
        self.tasks.close();
        let had_runs = !self.lock().is_empty();
        for control in self.lock().values() {
            control.stop(CancelReason::Shutdown);
        }
        if tokio::time::timeout(grace, self.tasks.wait()).await.is_err() {
            for control in self.lock().values() {
                control.cancel(CancelReason::Shutdown);
            }
            self.tasks.wait().await;
        }
        had_runs
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Control>> {
        self.controls.lock()
    }
}

/// Room for an open bundle, and the turn to open it.
struct Opening {
    room: Turn,
    turn: Turn,
}

/// What a run needs besides itself.
struct Parts {
    plan: Plan,
    agent: Agent,
    baselines: Vec<Baseline>,
    registry: Option<Registry>,
    parties: HashMap<String, Agent>,
    scripts: Option<RunScripts>,
    snapshot: Option<Agent>,
    evidence: Option<Arc<Evidence>>,
    /// What the open bundle takes.
    room: Arc<Turn>,
}

/// What a run has from when it is accepted until it is over.
#[derive(Debug)]
struct Accepted {
    _place: Option<Turn>,
    /// Room for what was asked for.
    _spec: Option<Turn>,
}

/// Bytes in KiB, rounded down.
fn kib(bytes: u64) -> usize {
    usize::try_from(bytes >> 10).unwrap_or(usize::MAX)
}

/// Script workers: somewhat more than can work at the same time, so that one that takes long does not hold up the
/// next, but not all of a large machine.
fn script_workers() -> usize {
    std::thread::available_parallelism().map_or(2, |processors| (2 * processors.get()).min(16))
}
