//! Scripts that stand before and after a case, and before and after a run.

use std::time::Duration;

use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;
use uuid::Uuid;

use super::bounded;
use super::host::Host;
use crate::case::CaseRef;
use crate::conversation::{Failure, Transcript, kept};
use crate::json::Json;
use crate::plan::PlannedCase;
use crate::run::loaded::Loaded;
use crate::run::shared::Shared;
use crate::run::told::{MAX_TOLD, case_json, context, null, result_json};
use crate::script::pool::{self, Called};
use crate::script::wire::Kind;
use crate::suite::script::ScriptRef;
use crate::verdict::{Blame, CaseResult, Cause, Outcome};

/// Time of a script that cleans up; what it was called for is over.
const CLEANING: Duration = Duration::from_mins(1);

/// What one script passes on to another; `None`: nothing.
pub(in crate::run) type Passed = Option<Box<RawValue>>;

/// Calls the script before a case, if it has one.
///
/// # Errors
/// What came of the case, which is then not run.
pub(in crate::run) async fn before(
    shared: &Shared,
    loaded: &Loaded,
    case_ref: &CaseRef,
    timeout: Duration,
) -> Result<(Passed, Vec<String>), CaseResult> {
    let Some(hook) = &loaded.case.hooks.before else { return Ok((None, Vec::new())) };
    let arguments = case_json(&loaded.case).map(|case| vec![case]);
    let called = Box::pin(call(shared, hook, loaded, case_ref, arguments, timeout));
    let Answered { answer, console, .. } = tokio::select! {
        biased;
        () = shared.control.cancel.cancelled() => {
            let error = "cancelled".to_owned();
            let (outcome, transcript) = (Outcome::Errored, Transcript::default());
            return Err(CaseResult::without_assertions(outcome, Cause::Cancelled, Blame::Daemon, error, transcript));
        }
        called = called => called,
    };
    match answer {
        Ok(answer) => Ok((passed_on(answer), console)),
        Err((why, blame)) => {
            let error = format!("script error: before ({hook}): {why}");
            let (outcome, cause) = (Outcome::Errored, Cause::ScriptError);
            let transcript = Transcript::default();
            let result = CaseResult::without_assertions(outcome, cause, blame, error, transcript);
            let messages_count = u32::try_from(loaded.case.messages.len()).unwrap_or(u32::MAX);
            let messages = kept(&loaded.case.messages);
            Err(CaseResult { messages_count, messages, console, ..result })
        }
    }
}

/// Calls the script after a case, if it has one, whatever came of the case. A case whose traces cannot be cleared
/// away has not passed, though what its agent did stands.
pub(in crate::run) async fn after(
    shared: &Shared,
    loaded: &Loaded,
    case_ref: &CaseRef,
    timeout: Duration,
    data: Passed,
    mut result: CaseResult,
) -> CaseResult {
    let Some(hook) = &loaded.case.hooks.after else { return result };
    let arguments = (|| {
        let told = result_json(&loaded.case.id, &result)?;
        Ok(vec![case_json(&loaded.case)?, told, data.unwrap_or(null()?)])
    })();
    let called = Box::pin(call(shared, hook, loaded, case_ref, arguments, timeout.min(CLEANING)));
    let Answered { answer, console, is_cancelled } = called.await;
    result.console.extend(console);
    if let Err((why, blame)) = answer {
        let error = format!("script error: after ({hook}): {why}");
        if matches!(result.outcome, Outcome::Passed | Outcome::Skipped) {
            // Who was asked then was not waited for, which is not the script's doing.
            let (cause, blame) =
                if is_cancelled { (Cause::Cancelled, Blame::Daemon) } else { (Cause::ScriptError, blame) };
            (result.outcome, result.cause, result.blame) = (Outcome::Errored, Some(cause), Some(blame));
            result.error = Some(error);
        } else {
            result.warnings.push(error);
        }
    }
    result
}

/// What came of a call of a script around a case.
struct Answered {
    /// Or why there is none, and whose fault that is.
    answer: Result<Passed, (String, Blame)>,
    console: Vec<String>,
    /// Whether it broke because the party that it asked was not waited for: the run was cancelled.
    is_cancelled: bool,
}

impl Answered {
    /// It was not called at all.
    fn never(why: impl Into<String>) -> Self {
        Self { answer: Err((why.into(), Blame::Script)), console: Vec::new(), is_cancelled: false }
    }
}

async fn call(
    shared: &Shared,
    hook: &ScriptRef,
    loaded: &Loaded,
    case_ref: &CaseRef,
    arguments: serde_json::Result<Vec<Box<RawValue>>>,
    time: Duration,
) -> Answered {
    let deadline = Instant::now() + time;
    let mut host = Host::new(shared, case_ref, time, deadline, None);
    let Some(scripts) = &shared.scripts else { return Answered::never("there are no scripts") };
    let context = context(shared.callee.agent_id(), host.conversation_id(), loaded.case.metadata.as_ref());
    let (path, arguments) = match prepare(shared, hook, context, arguments) {
        Ok(prepared) => prepared,
        Err(why) => return Answered::never(why),
    };
    let functions = [hook.function.as_deref().unwrap_or_default()];
    let call = pool::FunctionCall {
        scripts: &scripts.scripts,
        path,
        functions: &functions,
        kind: Kind::Hook,
        arguments,
        deadline,
    };
    let Called { result, console, .. } = bounded(host.run(scripts, call).await);
    let call = result.as_ref().err().and_then(|broken| usize::try_from(broken.call?).ok());
    let is_cancelled = call.and_then(|call| host.failures.get(call)) == Some(&Failure::Cancelled);
    Answered { answer: result.map_err(|broken| (broken.why, broken.blame)), console, is_cancelled }
}

/// The path of the script, and all its arguments.
fn prepare<'a>(
    shared: &'a Shared,
    hook: &ScriptRef,
    context: serde_json::Result<Box<RawValue>>,
    arguments: serde_json::Result<Vec<Box<RawValue>>>,
) -> Result<(&'a str, Vec<Box<RawValue>>), String> {
    let scripts = shared.scripts.as_ref().ok_or("there are no scripts")?;
    let path = scripts.scripts.find(&hook.script)?;
    let all = context.and_then(|context| Ok(std::iter::once(context).chain(arguments?).collect()));
    Ok((path, all.map_err(|error| format!("its arguments cannot be written: {error}"))?))
}

/// Calls the script before a run.
///
/// # Errors
/// Why no case is run.
pub(in crate::run) async fn before_run(
    shared: &Shared,
    hook: &ScriptRef,
    cases: &[PlannedCase],
) -> Result<Passed, String> {
    let mut told = Vec::new();
    let mut bytes = 0;
    for planned in cases.iter().filter(|planned| planned.repeat == 1) {
        let planned = planned.clone();
        let loaded = tokio::task::spawn_blocking(move || planned.load()).await.map_err(|error| error.to_string())?;
        let case = loaded.map_err(|error| error.to_string())?;
        let json = case_json(&case).map_err(|error| error.to_string())?;
        bytes += json.get().len();
        if bytes > MAX_TOLD {
            return Err(format!("the cases have more than {MAX_TOLD} bytes, which is more than a script is told"));
        }
        told.push(json);
    }
    let arguments = to_raw_value(&told).map(|cases| vec![cases]);
    tokio::select! {
        biased;
        () = shared.control.stop.cancelled() => Err(shared.control.why().to_owned()),
        called = around(shared, hook, arguments) => called.map(passed_on),
    }
}

/// Calls the script after a run.
///
/// # Errors
/// Why it failed.
pub(in crate::run) async fn after_run(shared: &Shared, hook: &ScriptRef, data: Passed) -> Result<(), String> {
    let results = shared.results.as_ref().map(|results| {
        let mut results = results.lock();
        std::mem::take(&mut *results).told
    });
    let arguments = (|| Ok(vec![to_raw_value(&results.unwrap_or_default())?, data.unwrap_or(null()?)]))();
    around(shared, hook, arguments).await.map(drop)
}

/// Keeps a result for the script after the run.
pub(in crate::run) fn keep(shared: &Shared, case: &CaseRef, result: &CaseResult) {
    if let Some(results) = &shared.results {
        results.lock().keep(case, result);
    }
}

/// Calls a script that stands around a run. There is no case that a call of an agent would belong to, so none can
/// be made.
async fn around(
    shared: &Shared,
    hook: &ScriptRef,
    arguments: serde_json::Result<Vec<Box<RawValue>>>,
) -> Result<Passed, String> {
    let Some(scripts) = &shared.scripts else { return Err("there are no scripts".to_owned()) };
    let context = context(shared.callee.agent_id(), &Uuid::new_v4().to_string(), None);
    let (path, arguments) = prepare(shared, hook, context, arguments)?;
    let functions = [hook.function.as_deref().unwrap_or_default()];
    let deadline = Instant::now() + CLEANING;
    let kind = Kind::Function;
    let call = pool::FunctionCall { scripts: &scripts.scripts, path, functions: &functions, kind, arguments, deadline };
    let Called { result, console, .. } = bounded(scripts.pool.call(call).await);
    for line in &console {
        // A log is read on terminals.
        tracing::info!(run = %shared.run_id, script = %hook, ?line, "console");
    }
    result.map_err(|broken| broken.why)
}

/// What a script before passes on: `data` of what it returns, else all of it.
fn passed_on(answer: Passed) -> Passed {
    let data = answer.as_ref().and_then(|answer| {
        let json = Json::parse_file(answer.get()).ok()?;
        RawValue::from_string(json.get("data")?.stringify()).ok()
    });
    data.or(answer)
}
