//! Runs one case: decides how, calls the agent, has the answer judged.

use std::sync::Arc;

use tokio::time::Instant;
use uuid::Uuid;

use super::ask::ask;
use super::call::{Call, call};
use super::clock::Clock;
use super::dynamic;
use super::gate::GateWatch;
use super::judging::{Cost, judged};
use super::loaded::{Drive, Loaded, Started, load};
use super::script::{hooks, test};
use super::shared::Shared;
use crate::case::CaseRef;
use crate::check::framework::{Replies, Reply, questions};
use crate::check::{self, Context};
use crate::conversation::{CancelReason, Exchange, Failure, Invocation, ToolMode, Transcript, large_contents};
use crate::event::Payload;
use crate::peer::backoff::Backoff;
use crate::peer::party::Belongs;
use crate::peer::status::STAND_IN;
use crate::plan::PlannedCase;
use crate::suite::{Case, Dialect, Mode};
use crate::usage::{add_cost, must_estimate};
use crate::verdict::{Attempt, Blame, CaseResult, Cause, Outcome};
use crate::work::Undecided;

/// The capability of agents that take files in pieces.
const ATTACHMENTS: &str = "attachments";

/// Runs a case to its verdict, in as many attempts as the run allows.
pub(super) async fn run(shared: &Shared, planned: &PlannedCase, mut case_ref: CaseRef) {
    let loaded = match load(planned).await {
        Ok(loaded) => loaded,
        Err(why) => {
            let transcript = Transcript::default();
            let (outcome, cause) = (Outcome::Errored, Cause::Cancelled);
            let result = CaseResult::without_assertions(outcome, cause, Blame::Daemon, why.to_string(), transcript);
            return finish(shared, &case_ref, result).await;
        }
    };
    let case = &*loaded.case;
    let speaks_itself = matches!(case.mode, Mode::Dynamic(_) | Mode::Test(_));
    if case.skip {
        return finish(shared, &case_ref, check::switched_off()).await;
    }
    if case.messages.is_empty() && !speaks_itself {
        return finish(shared, &case_ref, check::no_input()).await;
    }
    let mut retries = Retries { troubles: shared.spec.retries, failures: shared.spec.retry_failed };
    if let Some(evidence) = &shared.evidence {
        if let Some(result) = evidence.without_record(&case_ref, matches!(case.mode, Mode::Test(_))) {
            return finish(shared, &case_ref, CaseResult { replayed: true, ..result }).await;
        }
        // The same answer would come.
        retries = Retries { troubles: 0, failures: 0 };
    }
    let mut backoff = Backoff::new();
    // What a daemon that is gone has tried in vain counts, too.
    let mut earlier = shared.begun.get(&planned.key()).map(|begun| begun.earlier.clone()).unwrap_or_default();
    for attempt in &earlier {
        retries.use_up(attempt.outcome);
    }
    loop {
        let result = CaseResult { earlier: earlier.clone(), ..attempt(shared, &loaded, &case_ref).await };
        let goes_on =
            !shared.control.stop.is_cancelled() || shared.control.is_suspending() || shared.control.is_decided();
        if !goes_on || !retries.allow(&result) {
            return finish(shared, &case_ref, result).await;
        }
        earlier.push(Attempt::of(&result));
        shared.journal.case(&case_ref, 0, Payload::AttemptFinished(Box::new(result))).await;
        if shared.control.is_suspending() {
            // It is tried again another time.
            return;
        }
        case_ref.attempt += 1;
        // Whatever was in trouble gets a moment; a run that is told to end meanwhile says so in the next attempt.
        tokio::select! {
            () = shared.control.cancel.cancelled() => {}
            () = tokio::time::sleep(backoff.pause()) => {}
        }
    }
}

/// How often a case may still be tried again.
struct Retries {
    troubles: u32,
    failures: u32,
}

impl Retries {
    /// Notes that a case was tried again after this.
    fn use_up(&mut self, outcome: Outcome) {
        let left = if outcome == Outcome::Failed { &mut self.failures } else { &mut self.troubles };
        *left = left.saturating_sub(1);
    }

    /// Whether what came of an attempt is a reason for another one, which is then used up. Trouble that will not
    /// pass, such as a capability that the agent lacks, is none.
    fn allow(&mut self, result: &CaseResult) -> bool {
        let may_pass = matches!(result.blame, Some(Blame::Network | Blame::Simulator | Blame::Validator));
        let left = match result.outcome {
            Outcome::Failed => &mut self.failures,
            Outcome::Errored if may_pass => &mut self.troubles,
            Outcome::Errored | Outcome::Passed | Outcome::Skipped => return false,
        };
        let is_allowed = *left > 0;
        *left = left.saturating_sub(1);
        is_allowed
    }
}

/// One attempt at a case, with a time of its own.
async fn attempt(shared: &Shared, loaded: &Loaded, case_ref: &CaseRef) -> CaseResult {
    let case = &*loaded.case;
    let tool_mode = if matches!(case.mode, Mode::Stubbed { .. }) { ToolMode::Stub } else { shared.spec.tool_mode };
    let invocation_id = Uuid::new_v4().to_string();
    let started = Payload::CaseStarted { mode: case.mode.kind(), tool_mode, invocation_id: invocation_id.clone() };
    shared.journal.case(case_ref, 0, started).await;
    let timeout = shared.spec.timeout_of(case, loaded.suite.dialect);
    let time = timeout.duration;
    let (result, data) = match hooks::before(shared, loaded, case_ref, time).await {
        Err(result) => (result, None),
        Ok((data, console)) => {
            let deadline = Instant::now() + time;
            let started = Started { invocation_id, tool_mode, timeout, deadline };
            let mut result = drive(shared, loaded, case_ref, started).await;
            result.console.splice(0..0, console);
            result.replayed = shared.evidence.is_some();
            (result, data)
        }
    };
    hooks::after(shared, loaded, case_ref, time, data, result).await
}

/// What stands between the hooks of an attempt.
async fn drive(shared: &Shared, loaded: &Loaded, case_ref: &CaseRef, started: Started) -> CaseResult {
    let case = &*loaded.case;
    match (&case.mode, cannot_be_sent(shared, case, started.tool_mode)) {
        (_, Some(message)) => {
            let exchange = Exchange { failure: Some(Failure::Suite(message)), ..Exchange::default() };
            judge(shared, loaded, exchange, &started, Replies::new()).await
        }
        // Apart, so that the task of every other case is small: it is moved about a few times.
        (Mode::Dynamic(dialogue), None) => {
            let drive = Drive { shared, loaded, case_ref, dialogue, started };
            Box::pin(dynamic::run(&drive)).await
        }
        (Mode::Test(test), None) => Box::pin(test::run(shared, case_ref, test, &started)).await,
        (Mode::Single | Mode::Stubbed { .. }, None) => standard(shared, loaded, case_ref, &started).await,
    }
}

/// One call of the agent, and the verdict on its answer.
async fn standard(shared: &Shared, loaded: &Loaded, case_ref: &CaseRef, started: &Started) -> CaseResult {
    let case = &*loaded.case;
    let stubs = match &case.mode {
        Mode::Stubbed { stubs } => Some(stubs.as_slice()),
        Mode::Single | Mode::Dynamic(_) | Mode::Test(_) => None,
    };
    let invocation = Invocation {
        agent_id: shared.callee.agent_id(),
        run_id: shared.run_id.clone(),
        case: case_ref.clone(),
        turn: 1,
        invocation_id: started.invocation_id.clone(),
        // Each case is a conversation of its own, whatever its id.
        conversation_id: Uuid::new_v4().to_string(),
        messages: case.messages.clone(),
        options: shared.options_for(case),
        tool_mode: started.tool_mode,
        max_model_turns: case.max_turns,
        budget: started.timeout.duration,
    };
    let exchange =
        call(Call { shared, callee: &shared.callee, case: case_ref, invocation, stubs, deadline: started.deadline })
            .await;
    // What was waited for besides is nobody's time.
    let mut deadline = started.deadline + exchange.waited;
    let mut clock = Clock::default();
    clock.add(Blame::Agent, exchange.transcript.duration);
    let replies = if exchange.failure.is_none() && questions(&case.claims).next().is_some() {
        let belongs = Belongs::to_case(&shared.run_id, case_ref, 1, deadline, &shared.outputs);
        let asked = ask(shared, &case.claims, &case.messages, &exchange.transcript, &belongs, &mut clock);
        let Some(replies) = Box::pin(asked).await else {
            let exchange = Exchange { failure: Some(Failure::Cancelled), ..exchange };
            return judge(shared, loaded, exchange, started, Replies::new()).await;
        };
        replies
    } else {
        Replies::new()
    };
    deadline += clock.take_waited();
    // The party that was asked last had what the others left of the time.
    let is_silent = replies.values().any(|reply| matches!(reply, Reply::Failed { .. }));
    let is_late = is_silent && Instant::now() >= deadline;
    if is_late && clock.culprit(Blame::Validator) == Blame::Agent && clock.culprit(Blame::Script) == Blame::Agent {
        let exchange = Exchange { failure: Some(Failure::Timeout), ..exchange };
        return judge(shared, loaded, exchange, started, Replies::new()).await;
    }
    judge(shared, loaded, exchange, started, replies).await
}

/// Ends a case, and with it the run if that is what its owner wants.
async fn finish(shared: &Shared, case_ref: &CaseRef, result: CaseResult) {
    if result.cause == Some(Cause::Cancelled) && shared.control.is_suspending() {
        // It is begun anew another time.
        return;
    }
    let is_passed_over = result.cause == Some(Cause::Cancelled) && shared.control.is_failing_fast();
    let result = if is_passed_over {
        CaseResult { earlier: result.earlier, ..CaseResult::passed_over(result.transcript) }
    } else {
        result
    };
    let is_bad = matches!(result.outcome, Outcome::Failed | Outcome::Errored);
    hooks::keep(shared, case_ref, &result);
    if let Some(gate) = &shared.gate {
        gate.take(case_ref, &result);
    }
    shared.journal.case(case_ref, 0, Payload::CaseFinished(Box::new(result))).await;
    if is_bad && shared.spec.fail_fast {
        shared.control.cancel(CancelReason::FailFast);
    } else if shared.gate.as_ref().is_some_and(GateWatch::is_decided) {
        shared.control.stop(CancelReason::Decided);
    }
}

/// Has the answer judged. Some assertions take time that is not a runtime thread's to give.
async fn judge(
    shared: &Shared,
    loaded: &Loaded,
    exchange: Exchange,
    started: &Started,
    replies: Replies,
) -> CaseResult {
    let is_measured = !must_estimate(&exchange.transcript);
    // What was spent on a call without an answer is not estimated: nobody knows how far the agent came.
    let price = shared.price(exchange.model.as_deref()).filter(|_| is_measured || exchange.failure.is_none());
    let must_count = price.is_some() && !is_measured;
    let cost = Cost::of_assertions(&loaded.case.assertions, &exchange.transcript)
        .and(Cost::of_claims(&loaded.case.claims, &exchange.transcript))
        .slow_if(must_count || shared.schemas.is_slow(&exchange.transcript.tool_calls));
    let judge = {
        let (loaded, data) = (loaded.clone(), Arc::clone(&shared.data));
        let (strict, all_assertions) = (shared.spec.strict, shared.spec.all_assertions);
        let (schemas, check_arguments) = (Arc::clone(&shared.schemas), shared.spec.check_arguments);
        let replayed = shared.evidence.is_some();
        let (tool_mode, timeout) = (started.tool_mode, started.timeout.written.clone());
        move || {
            let mut exchange = exchange;
            if let Some(price) = price {
                add_cost(&mut exchange.transcript, &loaded.case.messages, price);
            }
            let dialect = loaded.suite.dialect;
            let context = Context {
                dialect,
                // The contract's own word for it has no number.
                timeout: (dialect == Dialect::Framework).then_some(timeout.as_str()),
                replies: &replies,
                strict,
                all_assertions,
                tool_mode,
                schemas: Some(&schemas),
                check_arguments,
                data: &data,
                tokens: None,
                cost_usd: None,
                replayed,
            };
            check::judge(&loaded.case, exchange, &context)
        }
    };
    judged(shared, cost, judge).await.unwrap_or_else(|why| {
        let (cause, text) = match why {
            Undecided::Stopped => (Cause::Cancelled, "cancelled".to_owned()),
            why => (Cause::Assertion, format!("this case was not judged: {why}")),
        };
        CaseResult::without_assertions(Outcome::Errored, cause, Blame::Daemon, text, Transcript::default())
    })
}

/// Why the agent cannot be given the case, if it cannot.
fn cannot_be_sent(shared: &Shared, case: &Case, tool_mode: ToolMode) -> Option<String> {
    let lacks =
        |capability: &str| format!("the agent does not declare the capability {capability:?}, which this case needs");
    if let Some(capability) = shared.callee.lacks(tool_mode) {
        let stands_in = shared.callee.can(STAND_IN);
        let who = Some(&shared.callee.description.card.description).filter(|who| stands_in && !who.is_empty());
        return Some(who.map_or_else(|| lacks(capability), |who| format!("{}: it is {who}", lacks(capability))));
    }
    let contents = large_contents(&case.messages);
    let largest = contents.iter().map(|content| content.bytes.len() as u64).max()?;
    if !shared.callee.can(ATTACHMENTS) {
        return Some(format!("{}: a file of it has {largest} bytes", lacks(ATTACHMENTS)));
    }
    let most = shared.callee.description.max_attachment_bytes.filter(|most| largest > *most)?;
    Some(format!("a file of the case has {largest} bytes, and the agent takes {most}"))
}
