//! Runs one case: decides how, calls the agent, has the answer judged.

use tokio::time::Instant;
use uuid::Uuid;

use super::call::{Call, call};
use super::{LogClosed, Shared};
use crate::check::{self, Rules};
use crate::conversation::{Exchange, Failure, Invocation, ToolMode, Transcript};
use crate::event::{CaseRef, Payload};
use crate::plan::PlannedCase;
use crate::suite::Mode;

pub(super) async fn run(shared: &Shared, planned: &PlannedCase, case_ref: CaseRef) -> Result<(), LogClosed> {
    let case = planned.case();
    if case.messages.is_empty() {
        return shared.journal.case(&case_ref, 0, Payload::CaseFinished(Box::new(check::no_input()))).await;
    }
    let (tool_mode, stubs, max_model_turns) = match &case.mode {
        Mode::Single => (ToolMode::Live, None, None),
        Mode::Stubbed { stubs, max_turns } => (ToolMode::Stub, Some(stubs.as_slice()), Some(*max_turns)),
    };
    let invocation_id = Uuid::new_v4().to_string();
    let started =
        Payload::CaseStarted { mode: case.mode.name().to_owned(), tool_mode, invocation_id: invocation_id.clone() };
    shared.journal.case(&case_ref, 0, started).await?;
    let exchange = if let Some(capability) = missing_capability(shared, tool_mode) {
        let message = format!("the agent does not declare the capability {capability:?}, which this case needs");
        Exchange { transcript: Transcript::default(), failure: Some(Failure::Suite(message)), warnings: Vec::new() }
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
    let result = check::judge(case, exchange, Rules { strict: shared.spec.strict, tool_mode });
    shared.journal.case(&case_ref, 0, Payload::CaseFinished(Box::new(result))).await
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
