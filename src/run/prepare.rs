//! What has to be there before the first case: the agent, the values of snapshot tokens, the tools of today.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::control::Control;
use super::job::Job;
use super::journal::Journal;
use crate::check::arguments::Schemas;
use crate::conversation::{Description, Fault, FaultOrigin, JsonText};
use crate::event::Payload;
use crate::json::{Json, Value};
use crate::peer::agent::Agent;
use crate::peer::snapshot::Wanted;
use crate::peer::status::AGENT_UNREACHABLE;
use crate::plan::Plan;
use crate::suite::Suite;
use crate::suite::registry::Registry;
use crate::suite::staleness::staleness;
use crate::suite::template::{Data, Source};
use crate::verdict::{Blame, Cause};

/// Time to reach the agent before the first case; after that the run cannot begin.
const PATIENCE: Duration = Duration::from_secs(3);
/// Most paths that are named in a warning of their own.
const MAX_PATHS_TOLD: usize = 20;

/// What the cases of a run need.
pub(super) struct Prepared {
    pub(super) description: Description,
    pub(super) data: Arc<Data>,
    pub(super) schemas: Arc<Schemas>,
}

/// Why no case is run.
pub(super) enum Prevented {
    /// The run was told to end.
    Stopped,
    /// Something is not there that the cases need.
    Trouble { fault: Fault, cause: Cause, blame: Blame },
}

/// Asks and looks up what the cases need.
pub(super) async fn prepare(job: &Job, journal: &Journal, control: &Control) -> Result<Prepared, Prevented> {
    tokio::select! {
        biased;
        () = control.stop.cancelled() => Err(Prevented::Stopped),
        prepared = ask(job, journal) => prepared,
    }
}

async fn ask(job: &Job, journal: &Journal) -> Result<Prepared, Prevented> {
    let warn = async |text: String| journal.run(Payload::Warning(text)).await;
    let described = match &job.evidence {
        Some(evidence) => Ok((evidence.description(), false)),
        None => job.agent.describe(PATIENCE).await,
    };
    let (description, undeclared) = match described {
        Ok(described) => described,
        Err(error) => return Err(unreachable(&job.agent, &error.to_string())),
    };
    if undeclared {
        let text = "the agent does not describe itself; it is taken for one without capabilities and tools";
        warn(text.to_owned()).await;
    }
    let with = |snapshot| Arc::new(Data { seed: job.plan.data.seed.clone(), snapshot: Some(snapshot) });
    let data = match (&job.done.snapshot, &job.snapshot) {
        // What held for the first case holds for all.
        (Some(taken), _) => with(taken.parse()),
        (None, None) => Arc::clone(&job.plan.data),
        (None, Some(provider)) => match capture(provider, job).await {
            Err(fault) => return Err(fault),
            Ok((snapshot, warnings)) => {
                for warning in warnings {
                    warn(warning).await;
                }
                journal.run(Payload::SnapshotTaken(JsonText::from(&snapshot))).await;
                with(snapshot)
            }
        },
    };
    let registry = job.registry.clone().or_else(|| Registry::from_agent(&description.card.tools));
    check_staleness(&job.plan.suites, registry.as_ref(), journal).await;
    let (schemas, warnings) = schemas_of(registry).await;
    for warning in warnings {
        warn(warning).await;
    }
    Ok(Prepared { description, data, schemas: Arc::new(schemas) })
}

/// The schemas of the tools. They are an agent's, and compiling them takes time that is not a runtime thread's to give.
async fn schemas_of(registry: Option<Registry>) -> (Schemas, Vec<String>) {
    let Some(registry) = registry else { return Default::default() };
    match tokio::task::spawn_blocking(move || Schemas::of(&registry)).await {
        Ok(compiled) => compiled,
        Err(error) => {
            let text = format!("the daemon failed while it read the input schemas; no arguments are checked: {error}");
            (Schemas::default(), vec![text])
        }
    }
}

fn unreachable(agent: &Agent, why: &str) -> Prevented {
    let fault = Fault {
        code: tonic::Code::Unavailable.into(),
        reason: AGENT_UNREACHABLE.to_owned(),
        message: format!("agent {:?}: {why}", agent.name),
        origin: FaultOrigin::Transport,
        retryable: true,
    };
    Prevented::Trouble { fault, cause: Cause::Unreachable, blame: Blame::Network }
}

/// The values of the snapshot tokens that the selected cases use, and what is odd about them. Nobody is asked when
/// there are no such tokens.
async fn capture(provider: &Agent, job: &Job) -> Result<(Json, Vec<String>), Prevented> {
    let paths = snapshot_paths(&job.plan);
    let nothing = Json { line: 1, value: Value::Object(Vec::new()) };
    if paths.is_empty() {
        let text = format!("{:?} is not asked for a snapshot: the cases use no snapshot tokens", provider.name);
        return Ok((nothing, vec![text]));
    }
    let trace = job.run.trace();
    let wanted = Wanted { run_id: job.run.run_id.clone(), paths, trace: trace.headers(trace.run(), None) };
    let captured = provider.capture(&wanted).await.map_err(|why| {
        let fault = Fault {
            code: tonic::Code::Unavailable.into(),
            reason: "SNAPSHOT_FAILED".to_owned(),
            message: format!("the snapshot of {:?}: {why}", provider.name),
            origin: FaultOrigin::Agent,
            retryable: true,
        };
        Prevented::Trouble { fault, cause: Cause::SnapshotError, blame: Blame::Network }
    })?;
    let told = captured.unresolved.iter().take(MAX_PATHS_TOLD);
    let mut warnings: Vec<String> = told
        .map(|(path, why)| format!("{:?} has no value for the snapshot path {path:?}: {why}", provider.name))
        .collect();
    let more = captured.unresolved.len().saturating_sub(MAX_PATHS_TOLD);
    if more > 0 {
        warnings.push(format!("{:?} has no values for {more} more snapshot paths", provider.name));
    }
    Ok((captured.data.unwrap_or(nothing), warnings))
}

fn snapshot_paths(plan: &Plan) -> Vec<String> {
    let cases = plan.cases.iter().filter_map(|planned| planned.head().held());
    let tokens = cases.flat_map(|case| &case.assertions).flat_map(crate::suite::assertion::Assertion::tokens);
    let paths: BTreeSet<String> =
        tokens.filter(|token| token.source == Source::Snapshot).map(|token| token.path).collect();
    paths.into_iter().collect()
}

/// Compares what the files recorded with the tools of today.
async fn check_staleness(suites: &[Arc<Suite>], registry: Option<&Registry>, journal: &Journal) {
    let Some(registry) = registry else {
        let recorded = ["descriptionHash", "registrySize", "toolVersion"];
        let records = |suite: &Arc<Suite>| {
            suite.metadata.as_ref().is_some_and(|metadata| recorded.iter().any(|key| metadata.get(key).is_some()))
        };
        if suites.iter().any(records) {
            let text = "the agent declares no tools, and there is no registry: staleness is not checked";
            journal.run(Payload::Warning(text.to_owned())).await;
        }
        return;
    };
    let checked = suites.iter().map(|suite| staleness(suite.metadata.as_ref(), &suite.tool_name, registry));
    journal.checked(checked.collect());
}
