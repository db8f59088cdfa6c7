//! The shape of the preset `plain` without HTTP around it, for whatever else takes a question and gives an answer as
//! JSON.

use bytes::Bytes;

use super::answer::{Answer as Answered, ToolCall};
use super::fields::Fields;
use super::shape::Shape;
use crate::sidecar::attachments::Attachments;
use crate::sidecar::turn::{Answer, End, Turn, Wanted};
use crate::wire::agent::InvokeStart;

/// What there is to answer, as one JSON object.
///
/// # Errors
/// What of it cannot be put so, for people.
pub(in crate::sidecar) fn question(start: &InvokeStart, attachments: &Attachments) -> Result<Bytes, String> {
    Shape::default().question(start, attachments).map(|question| question.body)
}

/// Reports an answer: `{"response": …, "toolCalls": […]}`. The inner error says what is wrong with it.
///
/// # Errors
/// When the turn ends with what it tells.
pub(in crate::sidecar) async fn answer(turn: &Turn, body: &[u8]) -> Result<Result<Answer, String>, End> {
    match Fields::default().answer(body) {
        Ok(answered) => report(turn, answered).await.map(Ok),
        Err(why) => Ok(Err(why)),
    }
}

/// Reports what was answered at once: the calls, and the text.
pub(super) async fn report(turn: &Turn, Answered { text, tool_calls }: Answered) -> Result<Answer, End> {
    for (number, call) in (1..).zip(tool_calls) {
        let ToolCall { name, params, outcome, duration } = call;
        let id = format!("{number}");
        turn.call(Wanted { id: id.clone(), name, params }).await?;
        turn.returned(&id, outcome, duration).await;
    }
    Ok(Answer::text(text))
}
