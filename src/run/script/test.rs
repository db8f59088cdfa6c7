//! Runs a script test: a function that calls agents itself and says what must hold of their answers.

use std::time::Duration;

use tokio::time::Instant;

use super::host::Host;
use crate::case::CaseRef;
use crate::check::framework::Reply;
use crate::check::script_test::{Broken, Tested, judge_test};
use crate::conversation::Failure;
use crate::run::loaded::Started;
use crate::run::shared::{RunScripts, Shared};
use crate::run::told::context;
use crate::script::pool::{self, Called};
use crate::script::source::Scripts;
use crate::script::wire::{Check, Checks, Kind};
use crate::suite::script::ScriptRef;
use crate::verdict::{AssertionResult, Blame, CaseResult, Outcome};

/// Runs a test to its verdict.
pub(in crate::run) async fn run(shared: &Shared, case: &CaseRef, test: &ScriptRef, started: &Started) -> CaseResult {
    let began = Instant::now();
    let mut host =
        Host::new(shared, case, started.timeout.duration, started.deadline, Some(started.invocation_id.clone()));
    let called = call(shared, test, &mut host, case, started.deadline);
    let (called, is_cancelled) = tokio::select! {
        biased;
        // Its calls end with it, and each says so to its agent.
        () = cancelled(shared) => (None, true),
        called = called => (Some(called), false),
    };
    let is_late = Instant::now() >= host.deadline();
    let mut tested = Tested::default();
    let scripts = shared.scripts.as_ref().map(|scripts| &scripts.scripts);
    match called {
        None => {}
        Some(Err(why)) => tested.broken = Some(Broken::Script(why)),
        Some(Ok(Called { result, console, checks, .. })) => {
            tested.console = console;
            tested.more = [checks.more_passed, checks.more_failed];
            tested.skipped.clone_from(&checks.skipped);
            tested.assertions = assertions(checks, &host.replies, scripts.map(AsRef::as_ref));
            tested.broken = result.err().map(|broken| broken_by(broken, &host, is_late));
            // Nothing was called where it thinks that something failed.
            let hidden = host.refused.take().filter(|_| tested.broken.is_none());
            tested.broken =
                tested.broken.or(hidden.map(|why| Broken::Script(format!("{why} (the test went on all the same)"))));
        }
    }
    if is_cancelled {
        tested.broken = Some(Broken::Call(Failure::Cancelled));
    }
    tested.was_called = !host.turns.is_empty() || host.failures.iter().any(|failure| !is_trouble(failure));
    tested.troubles = host.failures.into_iter().filter(is_trouble).collect();
    tested.transcript = host.transcript;
    tested.transcript.duration = began.elapsed();
    (tested.turns, tested.warnings) = (host.turns, host.warnings);
    judge_test(tested, shared.spec.strict, &started.timeout.written)
}

/// Waits until the run is cancelled, and then a little: an agent that is being called hears of it from its call.
async fn cancelled(shared: &Shared) {
    shared.control.cancel.cancelled().await;
    tokio::time::sleep(Duration::from_millis(50)).await;
}

async fn call(
    shared: &Shared,
    test: &ScriptRef,
    host: &mut Host<'_>,
    case: &CaseRef,
    deadline: Instant,
) -> Result<Called, String> {
    let Some(scripts) = &shared.scripts else { return Err("there are no scripts".to_owned()) };
    let RunScripts { scripts: known, .. } = scripts;
    let path = match known.find(&test.script) {
        Ok(path) => path,
        Err(why) => return Err(why),
    };
    let function = test.function.as_deref().unwrap_or_default();
    let context = match context(shared.callee.agent_id(), host.conversation_id(), None) {
        Ok(context) => context,
        Err(error) => return Err(error.to_string()),
    };
    let call = pool::FunctionCall {
        scripts: known,
        path,
        functions: &[function],
        kind: Kind::Test(case.case_id.to_string()),
        arguments: vec![context],
        deadline,
    };
    Ok(host.run(scripts, call).await)
}

/// Why a test did not come to its end.
fn broken_by(broken: pool::Broken, host: &Host<'_>, is_late: bool) -> Broken {
    let failure = broken.call.and_then(|call| host.failures.get(usize::try_from(call).ok()?));
    if let Some(failure) = failure {
        return Broken::Call(failure.clone());
    }
    if broken.blame == Blame::Daemon {
        return Broken::Daemon(broken.why);
    }
    match (host.clock.culprit(host.holder), host.last_failure()) {
        _ if !is_late => Broken::Script(broken.why),
        (Blame::Script, _) => Broken::Script(broken.why),
        // There was no time to tell the script.
        (Blame::Agent, Some(failure)) => Broken::Call(failure.clone()),
        (other, _) => Broken::Late(other),
    }
}

/// Whether a failed call says nothing about the agent.
fn is_trouble(failure: &Failure) -> bool {
    match failure {
        Failure::Unreachable(_) | Failure::Lost(_) | Failure::Suite(_) | Failure::Cancelled | Failure::Stalled(_) => {
            true
        }
        Failure::Timeout | Failure::Agent(_) | Failure::Protocol(_) | Failure::MaxTurns(_) => false,
    }
}

/// The checks of a test as assertions, with their places in the script.
fn assertions(checks: Checks, replies: &[Reply], scripts: Option<&Scripts>) -> Vec<AssertionResult> {
    let assertion = |check: Check| {
        let Check { name, passed, reason, frame, asked } = check;
        let reply = asked.and_then(|asked| replies.get(usize::try_from(asked).ok()?));
        let place = frame.as_ref().zip(scripts).map(|(frame, scripts)| format!(" ({})", scripts.place(frame)));
        let outcome = match (passed, reply) {
            (true, _) => Outcome::Passed,
            (false, Some(Reply::Failed { .. })) => Outcome::Errored,
            (false, _) => Outcome::Failed,
        };
        AssertionResult {
            name,
            outcome,
            reason: if passed { String::new() } else { format!("{reason}{}", place.unwrap_or_default()) },
            hint: String::new(),
            unresolved_tokens: Vec::new(),
            blame: (outcome == Outcome::Errored).then_some(Blame::Validator),
            written: None,
            opinion: match reply {
                Some(Reply::Judged { opinion, .. } | Reply::Failed { opinion, .. }) => opinion.clone(),
                None => None,
            },
        }
    };
    checks.made.into_iter().map(assertion).collect()
}
