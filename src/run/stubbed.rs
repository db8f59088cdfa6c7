//! What the daemon answers to a tool call in place of the tool.

use std::time::Duration;

use crate::conversation::{Fault, FaultOrigin, MaybeJson, ToolCall, ToolOutcome};
use crate::peer::call::ToolResult;
use crate::suite::stub::{Answer, Stub};

/// What the daemon answers to a tool call, and after what delay.
pub(super) fn stub_for(call: &ToolCall, stub: Option<&Stub>) -> (Duration, ToolResult) {
    let unstubbed = |message: String| Fault {
        code: tonic::Code::NotFound.into(),
        reason: "UNSTUBBED".to_owned(),
        message,
        origin: FaultOrigin::Daemon,
        retryable: false,
    };
    let result = |outcome, unstubbed| ToolResult { call_id: call.call_id.clone(), outcome, unstubbed };
    let Some(stub) = stub else {
        let fault = unstubbed(format!("the case has no stub for the tool {:?}", call.name));
        return (Duration::ZERO, result(ToolOutcome::Error(fault), true));
    };
    let arguments = call.params.read();
    // What nobody can read fits nothing that a stub asks of it.
    let (answer, delay) = stub.answer(arguments.as_ref().map(Option::as_ref).unwrap_or_default());
    let result = match answer {
        Answer::Value(value) => result(ToolOutcome::Result(Some(MaybeJson::Json(value.clone()))), false),
        Answer::Error(message) => {
            let fault = Fault { origin: FaultOrigin::Tool, ..Fault::message(message) };
            result(ToolOutcome::Error(fault), false)
        }
        Answer::Nothing => {
            let message = match &arguments {
                Ok(_) => format!("the stub for the tool {:?} has no answer to these arguments", call.name),
                Err(why) => format!("the stub for the tool {:?} has no answer: the arguments {why}", call.name),
            };
            let fault = unstubbed(message);
            result(ToolOutcome::Error(fault), true)
        }
    };
    (delay, result)
}
