//! Asks what the assertions of a case leave to others: validators and scripts.

use tokio::time::Instant;

use super::asking::unless_cancelled;
use super::clock::Clock;
use super::shared::Shared;
use super::validator::validator;
use crate::check::framework::{Question, Replies, questions};
use crate::conversation::{Message, Transcript};
use crate::peer::party::Belongs;
use crate::suite::claim::Claim;
use crate::verdict::Blame;

/// Asks everything that the claims leave to others, one after the other: votes on one answer have to see the same.
/// `None`: the run was cancelled.
pub(super) async fn ask(
    shared: &Shared,
    claims: &[Claim],
    conversation: &[Message],
    transcript: &Transcript,
    belongs: &Belongs,
    clock: &mut Clock,
) -> Option<Replies> {
    let mut replies = Replies::new();
    let mut belongs = belongs.clone();
    for (position, question) in questions(claims) {
        let asked = Instant::now();
        let (party, reply) = match question {
            Question::Validator { agent, options } => {
                let reply = validator(shared, agent, options, conversation, transcript, &belongs).await;
                (Blame::Validator, reply)
            }
            Question::Script { script, options } => {
                let judged =
                    super::script::judge::judge(shared, script, options, conversation, transcript, belongs.deadline);
                let (reply, waited) = unless_cancelled(shared, judged).await?;
                clock.wait(waited);
                belongs.deadline += waited;
                (Blame::Script, reply)
            }
        };
        if shared.control.cancel.is_cancelled() {
            return None;
        }
        let took = asked.elapsed().saturating_sub(clock.take_unowned());
        clock.add(party, took);
        replies.insert(position, reply);
    }
    Some(replies)
}
