//! Asks validators: votes on an answer, and what comes of them together.

use super::asking::{Asking, metadata, texts, unless_cancelled, with_test_mode};
use super::replay::Evidence;
use super::shared::Shared;
use super::traced::for_traces;
use crate::case::CaseRef;
use crate::check::framework::Reply;
use crate::conversation::party::{Judgement, Vote};
use crate::conversation::{Message, Transcript};
use crate::event::{Asked, PartyRole, Said};
use crate::json::Json;
use crate::peer::agent::Agent;
use crate::peer::digest::digest_of_judgement;
use crate::peer::party::{Belongs, Silence};
use crate::suite::claim::votes_of;
use crate::verdict::Opinion;
use crate::work::{JSON_MEMORY, in_place};

/// Why nobody answered.
const CANCELLED: &str = "the run was cancelled";

/// Asks a validator, as often as the options say. A run that is cancelled meanwhile is a failed answer.
pub(super) async fn validator(
    shared: &Shared,
    id: &str,
    options: Option<&Json>,
    conversation: &[Message],
    transcript: &Transcript,
    belongs: &Belongs,
) -> Reply {
    let bytes = options.map_or(0, Json::size) * JSON_MEMORY;
    let options = in_place(bytes, || with_test_mode(options, PartyRole::Validator, None));
    let criteria = metadata(&options, "criteria").to_owned();
    // What is no number of votes was refused with the suite.
    let votes = votes_of(&options).unwrap_or(1);
    let asked = Judgement {
        output: &transcript.response,
        criteria: &criteria,
        conversation,
        tool_calls: &transcript.tool_calls,
        options: &options,
        assertion: "agent",
    };
    let digest = in_place(bytes, || digest_of_judgement(&asked));
    let told =
        || Asked { instructions: texts([&criteria]), messages: for_traces(conversation, Some(&transcript.response)) };
    let recorded = shared.evidence.as_ref().filter(|evidence| !evidence.asks_validators);
    let party = match recorded {
        Some(_) => None,
        None => match shared.party(id) {
            Ok(party) => Some(party),
            Err(why) => return Reply::failed(why.to_string()),
        },
    };
    let mut given = Vec::new();
    for _ in 0..votes {
        if shared.control.cancel.is_cancelled() {
            return Reply::failed(CANCELLED);
        }
        let belongs = belongs.asking(&shared.trace);
        let asking = Asking::begin(shared, PartyRole::Validator, id, party.as_ref(), &digest, &belongs, told);
        let voted = match (&party, recorded) {
            (Some(party), _) => unless_cancelled(shared, ask_for_vote(party, &asked, &belongs)).await,
            (None, Some(recorded)) => Some(recorded_vote(recorded, id, &belongs.case, &digest, belongs.turn).await),
            (None, None) => None,
        };
        let (said, usage) = match &voted {
            Some(Ok(Vote { passed, reason, score, reply, usage })) => {
                let (reason, reply) = (reason.clone(), reply.clone());
                (Said::Vote { passed: *passed, reason, score: *score, reply }, *usage)
            }
            Some(Err(why)) => (Said::Silence(why.clone()), None),
            None => (Said::Cancelled, None),
        };
        asking.end(shared, &belongs.case, belongs.turn, said, usage).await;
        match voted.unwrap_or_else(|| Err(CANCELLED.to_owned())) {
            Ok(verdict) => given.push(verdict),
            Err(why) => {
                // What was said before stands in the result all the same.
                let opinion = match count(given) {
                    Reply::Judged { opinion, .. } | Reply::Failed { opinion, .. } => opinion,
                };
                return Reply::Failed { why, opinion: opinion.filter(|opinion| opinion.votes > 0), blame: None };
            }
        }
    }
    count(given)
}

/// One vote of a validator; an error is why there is none.
async fn ask_for_vote(party: &Agent, asked: &Judgement<'_>, belongs: &Belongs) -> Result<Vote, String> {
    // Boxed, so that the futures of callers stay small: most cases ask no validator.
    Box::pin(party.validate(belongs, asked)).await.map_err(|silence| match silence {
        Silence::Timeout => "it gave no answer within the time of the case".to_owned(),
        Silence::Failed(why) => why,
    })
}

/// The vote that a validator gave in the run that is replayed.
async fn recorded_vote(evidence: &Evidence, id: &str, case: &CaseRef, digest: &str, turn: u32) -> Result<Vote, String> {
    match evidence.said(id, digest, case, turn).await {
        Ok(Said::Vote { passed, reason, score, reply }) => Ok(Vote { passed, reason, score, reply, usage: None }),
        Ok(Said::Input { .. } | Said::Silence(_) | Said::Cancelled) => Err("it spoke then, and judged not".to_owned()),
        Err(why) => Err(format!("{why}; --validators asks it now")),
    }
}

/// The verdict of the majority, with the first reason of its side. A tie does not hold.
fn count(given: Vec<Vote>) -> Reply {
    let (votes, yes) = (given.len(), given.iter().filter(|vote| vote.passed).count());
    let passed = yes * 2 > votes;
    let agreeing = if passed { yes } else { votes - yes };
    let reason = given.iter().find(|vote| vote.passed == passed).map(|vote| vote.reason.as_str()).unwrap_or_default();
    let reason = if votes > 1 { format!("{reason} ({agreeing} of {votes} votes)") } else { reason.to_owned() };
    let scores: Vec<f64> = given.iter().filter_map(|vote| vote.score).collect();
    #[expect(clippy::cast_precision_loss, reason = "there are few votes")]
    let score = (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64);
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let replies = given.into_iter().map(|vote| vote.reply).collect();
    let (votes, agreeing) = (number(votes), number(agreeing));
    let opinion = Some(Opinion { score, replies, votes, agreeing, ..Opinion::default() });
    Reply::Judged { passed, reason: reason.trim_start().to_owned(), opinion }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn votes_are_counted() {
        let given = |votes: &[(bool, Option<f64>)]| {
            let vote = |(passed, score): &(bool, Option<f64>)| Vote {
                passed: *passed,
                reason: format!("says {passed}"),
                score: *score,
                reply: passed.to_string(),
                usage: None,
            };
            match count(votes.iter().map(vote).collect()) {
                Reply::Judged { passed, reason, opinion: Some(opinion) } => (passed, reason, opinion),
                other => panic!("{other:?}"),
            }
        };
        let opinion = |score, replies: &[&str], agreeing| Opinion {
            score,
            replies: replies.iter().map(|reply| (*reply).to_owned()).collect(),
            votes: u32::try_from(replies.len()).expect("few"),
            agreeing,
            ..Opinion::default()
        };
        let one = given(&[(true, Some(0.5))]);
        assert_eq!(one, (true, "says true".to_owned(), opinion(Some(0.5), &["true"], 1)));
        let three = given(&[(true, Some(1.0)), (false, None), (true, Some(0.5))]);
        let expected = opinion(Some(0.75), &["true", "false", "true"], 2);
        assert_eq!(three, (true, "says true (2 of 3 votes)".to_owned(), expected));
        let no = given(&[(false, None), (true, None), (false, None)]);
        assert_eq!(no, (false, "says false (2 of 3 votes)".to_owned(), opinion(None, &["false", "true", "false"], 2)));
    }
}
