//! Runs one case: decides how, calls the agent, has the answer judged.

use std::sync::Arc;

use tokio::time::Instant;
use uuid::Uuid;

use super::call::{Call, call};
use super::{LogClosed, Shared};
use crate::check::{self, Context};
use crate::conversation::{Exchange, Failure, Invocation, ToolMode, Transcript};
use crate::event::{CaseRef, Payload};
use crate::plan::PlannedCase;
use crate::suite::Mode;
use crate::suite::assertion::Assertion;
use crate::usage::{add_cost, must_estimate};
use crate::verdict::{Blame, CaseResult, Cause, Outcome};

pub(super) async fn run(shared: &Shared, planned: &PlannedCase, case_ref: CaseRef) -> Result<(), LogClosed> {
    let case = planned.case();
    if case.messages.is_empty() {
        return shared.journal.case(&case_ref, 0, Payload::CaseFinished(Box::new(check::no_input()))).await;
    }
    let (tool_mode, stubs, max_model_turns) = match &case.mode {
        Mode::Single => (shared.spec.tool_mode, None, None),
        Mode::Stubbed { stubs, max_turns } => (ToolMode::Stub, Some(stubs.as_slice()), Some(*max_turns)),
    };
    let invocation_id = Uuid::new_v4().to_string();
    let started =
        Payload::CaseStarted { mode: case.mode.name().to_owned(), tool_mode, invocation_id: invocation_id.clone() };
    shared.journal.case(&case_ref, 0, started).await?;
    let exchange = if let Some(capability) = missing_capability(shared, tool_mode) {
        let message = format!("the agent does not declare the capability {capability:?}, which this case needs");
        Exchange { failure: Some(Failure::Suite(message)), ..Exchange::default() }
    } else {
        let invocation = Invocation {
            agent_id: shared.agent_id(),
            run_id: shared.run_id.clone(),
            suite: planned.suite.path.clone(),
            case_id: case.id.clone(),
            attempt: case_ref.attempt,
            turn: 1,
            invocation_id,
            // Each case is a conversation of its own, whatever its id.
            conversation_id: Uuid::new_v4().to_string(),
            messages: case.messages.clone(),
            tool_mode,
            max_model_turns,
            budget: shared.spec.case_timeout,
        };
        let deadline = Instant::now() + shared.spec.case_timeout;
        call(Call { shared, case: &case_ref, invocation, stubs, deadline }).await?
    };
    let result = judge(shared, planned, exchange, tool_mode).await;
    shared.journal.case(&case_ref, 0, Payload::CaseFinished(Box::new(result))).await
}

/// Has the answer judged. Some assertions take time that is not a runtime thread's to give.
async fn judge(shared: &Shared, planned: &PlannedCase, exchange: Exchange, tool_mode: ToolMode) -> CaseResult {
    let model = exchange.model.as_deref().unwrap_or(&shared.description.card.model);
    let is_measured = !must_estimate(&exchange.transcript);
    // What was spent on a call without an answer is not estimated: nobody knows how far the agent came.
    let price = shared.spec.prices.of(model).filter(|_| is_measured || exchange.failure.is_none());
    let estimates = price.is_some() && !is_measured;
    let is_slow = estimates
        || shared.schemas.is_slow(&exchange.transcript.tool_calls)
        || planned.case().assertions.iter().any(Assertion::is_slow);
    let judge = {
        let (planned, data) = (planned.clone(), Arc::clone(&shared.data));
        let (strict, all_assertions) = (shared.spec.strict, shared.spec.all_assertions);
        let (schemas, check_arguments) = (Arc::clone(&shared.schemas), shared.spec.check_arguments);
        move || {
            let mut exchange = exchange;
            if let Some(price) = price {
                add_cost(&mut exchange.transcript, &planned.case().messages, price);
            }
            let context = Context {
                strict,
                all_assertions,
                tool_mode,
                schemas: Some(&schemas),
                check_arguments,
                data: &data,
                tokens: None,
                cost_usd: None,
            };
            check::judge(planned.case(), exchange, &context)
        }
    };
    if !is_slow {
        return judge();
    }
    match tokio::task::spawn_blocking(judge).await {
        Ok(result) => result,
        Err(error) => {
            let text = format!("the daemon failed while it judged this case: {error}");
            let transcript = Transcript::default();
            CaseResult::without_assertions(Outcome::Errored, Cause::Assertion, Blame::Daemon, text, transcript)
        }
    }
}

/// A mode is never guessed: an agent that did not declare it is never sent it.
fn missing_capability(shared: &Shared, tool_mode: ToolMode) -> Option<&'static str> {
    let needed = match tool_mode {
        ToolMode::Live => return None,
        ToolMode::Stub => "tools.stub",
        ToolMode::RoutingOnly => "tools.routing",
    };
    let declared = shared.description.capabilities.iter().any(|capability| capability == needed);
    (!declared).then_some(needed)
}
