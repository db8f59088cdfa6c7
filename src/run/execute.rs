//! A run from its first event to its last, in stages: begin, prepare, schedule, compare, judge the gate, end.

use std::sync::Arc;

use parking_lot::Mutex;

use super::compare::{chosen, compare};
use super::control::Control;
use super::gate::GateWatch;
use super::job::Job;
use super::journal::{Journal, Outlet};
use super::prepare::{Prepared, Prevented, prepare};
use super::resume::Finished;
use super::scheduler;
use super::script::hooks::{after_run, before_run};
use super::shared::{Callee, Shared};
use crate::conversation::{AgentCard, CancelReason, Fault, FaultOrigin, Transcript};
use crate::event::{Payload, Run, State};
use crate::peer::call::Farewells;
use crate::peer::output::Outputs;
use crate::plan::PlannedCase;
use crate::verdict::gate::GateResult;
use crate::verdict::{Blame, CaseResult, Cause, Outcome, Totals};

/// Executes a run to its end and writes its log to `events`. A run that is told to go on another time, or whose events
/// nobody takes any more, has no end yet.
pub async fn execute(mut job: Job, events: Outlet, farewells: Farewells, control: Control) {
    let (journal, open) = begin(&job, events, &control).await;
    let gate = {
        let chosen = chosen(&job.plan.suites, &job.baselines);
        GateWatch::new(&job.run.spec.gate, &job.plan, &chosen, &job.done)
    };
    let prepared = match prepare(&job, &journal, &control).await {
        Ok(prepared) => prepared,
        Err(prevented) => return end_unprepared(prevented, &open, gate.as_ref(), &journal, &control).await,
    };
    let card = prepared.description.card.clone();
    journal.run(Payload::AgentDescribed(Box::new(card.clone()))).await;
    let (suites, baselines) = (job.plan.suites.clone(), std::mem::take(&mut job.baselines));
    let shared = Arc::new(share(job, prepared, gate, journal.clone(), farewells, control.clone()));
    let trouble = schedule(&shared, open).await;
    if control.is_suspending() && !journal.is_whole() {
        return;
    }
    journal.compared(compare(&suites, &baselines, &card, &journal).await);
    end(&shared, trouble, card).await;
}

/// Writes what stands before every verdict, as far as no earlier daemon did, and says which cases have none.
async fn begin(job: &Job, events: Outlet, control: &Control) -> (Journal, Vec<PlannedCase>) {
    let run = Run { state: State::Running, agent_endpoint: job.agent.url.clone(), ..job.run.clone() };
    let journal = Journal::new(events, control.clone(), run.clone(), &job.done, !job.baselines.is_empty());
    if job.done.events == 0 {
        journal.run(Payload::RunStarted(Box::new(run))).await;
    }
    // The first event was the start, and behind it stand these.
    let planned = usize::try_from(job.done.events.saturating_sub(1)).unwrap_or(usize::MAX);
    journal.planned(job.plan.cases.get(planned..).unwrap_or_default()).await;
    let mut open: Vec<PlannedCase> = job.plan.cases.iter().filter(|case| job.done.is_open(case)).cloned().collect();
    let is_bad = |finished: &Finished| matches!(finished.outcome, Outcome::Failed | Outcome::Errored);
    if job.run.spec.fail_fast && job.done.finished.values().any(is_bad) {
        journal.not_run(&open, || CaseResult::passed_over(Transcript::default())).await;
        open.clear();
    }
    (journal, open)
}

/// Ends a run for which not everything is there that its cases need.
async fn end_unprepared(
    prevented: Prevented,
    open: &[PlannedCase],
    gate: Option<&GateWatch>,
    journal: &Journal,
    control: &Control,
) {
    match prevented {
        Prevented::Stopped if control.is_suspending() => {}
        Prevented::Stopped => {
            let not_run = || CaseResult::not_run(Cause::Cancelled, Blame::Daemon, control.why());
            journal.not_run(open, not_run).await;
            finish(journal, State::Cancelled, None, None).await;
        }
        // Its daemon ended between the last verdict and the end of the run; nobody is needed any more.
        Prevented::Trouble { .. } if open.is_empty() => {
            let totals = journal.current().totals;
            let gate = gate.map(GateWatch::result);
            let state = State::of(&totals, gate.as_ref().map(|gate| gate.counts_as));
            journal.gate(gate.map(|gate| beside(gate, state, unjudged(&totals))));
            finish(journal, state, None, None).await;
        }
        Prevented::Trouble { fault, cause, blame } => {
            journal.not_run(open, || CaseResult::not_run(cause, blame, &fault.message)).await;
            finish(journal, State::Errored, None, Some(fault)).await;
        }
    }
}

/// What all cases are given.
fn share(
    job: Job,
    prepared: Prepared,
    gate: Option<GateWatch>,
    journal: Journal,
    farewells: Farewells,
    control: Control,
) -> Shared {
    let Job { run, agent, parties, scripts, evidence, done, spans, span_wait, .. } = job;
    let Prepared { description, data, schemas } = prepared;
    let results = run.spec.hooks.after.is_some().then(|| Mutex::new(done.results.unwrap_or_default()));
    Shared {
        callee: Callee::new(agent, description, &run.spec),
        trace: run.trace(),
        run_id: run.run_id,
        spec: run.spec,
        journal,
        control,
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
    }
}

/// Says what came of the run as a whole.
async fn end(shared: &Shared, trouble: Trouble, card: AgentCard) {
    let Shared { control, journal, .. } = shared;
    let totals = journal.current().totals;
    let gate = shared.gate.as_ref().map(GateWatch::result);
    // A run that was told to end when every case had its verdict has lost nothing.
    let is_whole = totals.passed + totals.failed + totals.skipped == totals.total;
    let was_cancelled = control.is_cut_short() && !is_whole;
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
    journal.gate(gate.map(|gate| beside(gate, state, why)));
    finish(journal, state, Some(card), error).await;
}

/// What came of a gate in a run that ended in a state, for a reason besides the gate itself: no gate is passed
/// beside trouble.
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
async fn schedule(shared: &Arc<Shared>, cases: Vec<PlannedCase>) -> Trouble {
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

async fn finish(journal: &Journal, state: State, agent: Option<AgentCard>, error: Option<Fault>) {
    let run = Run { state, agent, error, finished_at: Some(jiff::Timestamp::now()), ..journal.current() };
    journal.run(Payload::RunFinished(Box::new(run))).await;
}
