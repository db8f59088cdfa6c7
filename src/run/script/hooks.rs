//! Scripts that stand before and after a case, and before and after a run.

use std::time::Duration;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;
use uuid::Uuid;

use super::host::Host;
use super::{Call as ToolCallJson, bounded, context};
use crate::conversation::{Failure, Message, Transcript};
use crate::event::CaseRef;
use crate::json::Json;
use crate::plan::PlannedCase;
use crate::run::Shared;
use crate::run::case::Loaded;
use crate::script::pool::{self, Called};
use crate::script::wire::Kind;
use crate::suite::framework::message_json;
use crate::suite::script::ScriptRef;
use crate::suite::{Case, Mode};
use crate::verdict::{Blame, CaseResult, Cause, Outcome, whole_millis};

/// Time of a script that cleans up; what it was called for is over.
const CLEANING: Duration = Duration::from_mins(1);
/// Most bytes of all cases, or of all results, that a script around a run is told.
const MAX_TOLD: usize = 16 << 20;

/// What one script passes on to another; `None`: nothing.
pub(in crate::run) type Passed = Option<Box<RawValue>>;

/// A case, as a script is told.
#[derive(Serialize)]
struct TestCase<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    input: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    assert: Vec<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<&'a str>,
}

/// A result, as a script is told.
#[derive(Serialize)]
struct TestResult<'a> {
    id: &'a str,
    status: &'static str,
    output: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    duration_ms: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    assertions: Vec<Assertion<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCallJson<'a>>,
}

#[derive(Serialize)]
struct Assertion<'a> {
    r#type: &'a str,
    passed: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
}

/// The results of a run so far, for the script after it.
#[derive(Debug, Clone, Default)]
pub struct Results {
    told: Vec<Box<RawValue>>,
    bytes: usize,
}

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
            Err(CaseResult { messages_count, console, ..result })
        }
    }
}

/// Calls the script after a case, if it has one, whatever came of the case. A case whose traces cannot be cleared away has
/// not passed, though what its agent did stands.
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
    /// Whether it broke as somebody whom it asked was not waited for: the run was cancelled.
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
    let mut host = Host::new(shared, &loaded.suite.path, case_ref, time, deadline, None);
    let Some(scripts) = &shared.scripts else { return Answered::never("there are no scripts") };
    let context = context(&shared.callee, host.conversation_id(), loaded.case.metadata.as_ref());
    let (path, arguments) = match prepare(shared, hook, context, arguments) {
        Ok(prepared) => prepared,
        Err(why) => return Answered::never(why),
    };
    let functions = [hook.function.as_deref().unwrap_or_default()];
    let call =
        pool::Call { scripts: &scripts.scripts, path, functions: &functions, kind: Kind::Hook, arguments, deadline };
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

impl Results {
    /// Keeps a result; when they are many, what the agent said is left out.
    pub(in crate::run) fn keep(&mut self, case: &CaseRef, result: &CaseResult) {
        let whole = result_json(&case.case_id, result).ok().filter(|json| self.bytes + json.get().len() <= MAX_TOLD);
        let short = || {
            let short = TestResult {
                id: &case.case_id,
                status: status(result),
                output: "",
                error: None,
                duration_ms: whole_millis(result.transcript.duration),
                assertions: Vec::new(),
                tool_calls: Vec::new(),
            };
            to_raw_value(&short).ok()
        };
        if let Some(json) = whole.or_else(short) {
            self.bytes += json.get().len();
            self.told.push(json);
        }
    }
}

/// Calls a script that stands around a run. There is no case that a call of an agent would belong to, so none can be made.
async fn around(
    shared: &Shared,
    hook: &ScriptRef,
    arguments: serde_json::Result<Vec<Box<RawValue>>>,
) -> Result<Passed, String> {
    let Some(scripts) = &shared.scripts else { return Err("there are no scripts".to_owned()) };
    let context = context(&shared.callee, &Uuid::new_v4().to_string(), None);
    let (path, arguments) = prepare(shared, hook, context, arguments)?;
    let functions = [hook.function.as_deref().unwrap_or_default()];
    let deadline = Instant::now() + CLEANING;
    let kind = Kind::Function;
    let call = pool::Call { scripts: &scripts.scripts, path, functions: &functions, kind, arguments, deadline };
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
        let json = Json::parse(answer.get()).ok()?;
        RawValue::from_string(json.get("data")?.stringify()).ok()
    });
    data.or(answer)
}

fn null() -> serde_json::Result<Box<RawValue>> {
    to_raw_value(&())
}

fn case_json(case: &Case) -> serde_json::Result<Box<RawValue>> {
    let raw = |text: &str| RawValue::from_string(text.to_owned()).ok();
    let input = match case.messages.as_slice() {
        [] => null()?,
        [message]
            if message.parts.len() == 1 && message_json(message) == message_json(&Message::user(message.text())) =>
        {
            to_raw_value(&message.text())?
        }
        messages => {
            let messages: Vec<_> = messages.iter().filter_map(|message| raw(&message_json(message))).collect();
            to_raw_value(&messages)?
        }
    };
    let checkpoints = match &case.mode {
        Mode::Dynamic(dialogue) => dialogue.checkpoints.as_slice(),
        Mode::Single | Mode::Stubbed { .. } | Mode::Test(_) => &[],
    };
    let claims = case.claims.iter().chain(checkpoints.iter().flat_map(|checkpoint| &checkpoint.claims));
    to_raw_value(&TestCase {
        id: &case.id,
        name: &case.description,
        input,
        metadata: case.metadata.as_ref().and_then(|metadata| raw(metadata.as_str())),
        options: case.options.as_ref().and_then(|options| raw(options.as_str())),
        assert: claims.filter_map(|claim| raw(claim.written.as_str())).collect(),
        timeout: case.timeout.as_ref().map(|timeout| timeout.written.as_str()),
    })
}

fn result_json(id: &str, result: &CaseResult) -> serde_json::Result<Box<RawValue>> {
    let checked = result.checkpoints.iter().flat_map(|checkpoint| &checkpoint.assertions);
    let assertions = result.assertions.iter().chain(checked).filter(|one| one.outcome != Outcome::Skipped);
    to_raw_value(&TestResult {
        id,
        status: status(result),
        output: &result.transcript.response,
        error: result.error.as_deref(),
        duration_ms: whole_millis(result.transcript.duration),
        assertions: assertions
            .map(|one| Assertion { r#type: &one.name, passed: one.outcome == Outcome::Passed, reason: &one.reason })
            .collect(),
        tool_calls: result.transcript.tool_calls.iter().map(ToolCallJson::of).collect(),
    })
}

/// The words of Agent Test Framework V2.
fn status(result: &CaseResult) -> &'static str {
    match result.outcome {
        Outcome::Passed => "passed",
        Outcome::Skipped => "skipped",
        Outcome::Failed if result.cause == Some(Cause::Timeout) => "timeout",
        Outcome::Failed => "failed",
        Outcome::Errored => "error",
    }
}
