//! Asks the other parties of a case: validators for assertions, and whoever plays the user.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::clock::Clock;
use super::replay::Evidence;
use super::shared::Shared;
use super::traced::for_traces;
use crate::check::framework::{Question, Replies, Reply, questions};
use crate::conversation::party::{Judgement, Vote};
use crate::conversation::{Message, Transcript, Usage};
use crate::event::{Asked, CaseRef, PartyRole, PartySaid, Payload, Said};
use crate::json::{Json, Value};
use crate::peer::agent::Agent;
use crate::peer::digest::digest_of_judgement;
use crate::peer::party::{Belongs, Silence};
use crate::suite::claim::{Claim, votes_of};
use crate::verdict::{Blame, Opinion};
use crate::work::{JSON_MEMORY, in_place};

/// A question to a simulator or validator, while its answer is awaited.
pub(super) struct Asking {
    since: Instant,
    said: PartySaid,
}

impl Asking {
    /// Of somebody who is asked now; of whom there is no `party`, nobody is.
    pub(super) fn begin(
        shared: &Shared,
        role: PartyRole,
        by: &str,
        party: Option<&Agent>,
        digest: &str,
        belongs: &Belongs,
        asked: impl FnOnce() -> Asked,
    ) -> Self {
        let said = PartySaid {
            role,
            by: by.to_owned(),
            digest: digest.to_owned(),
            said: Said::Cancelled,
            request_id: belongs.request_id.clone(),
            began: Some(Timestamp::now()),
            duration: Duration::ZERO,
            endpoint: party.map(|party| party.url.clone()).unwrap_or_default(),
            usage: None,
            asked: shared.spec.capture_content.then(asked),
        };
        Self { since: Instant::now(), said }
    }

    /// Notes the answer, or why there is none.
    pub(super) async fn end(self, shared: &Shared, case: &CaseRef, turn: u32, said: Said, usage: Option<Usage>) {
        let said = PartySaid { said, usage, duration: self.since.elapsed(), ..self.said };
        shared.journal.case(case, turn, Payload::PartySaid(Box::new(said))).await;
    }
}

/// Asks everything that the claims leave to others, one after the other: votes on one answer have to see the same. `None`: the run
/// was cancelled.
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
    let options = in_place(bytes, || with_test_mode(options, "validator", None));
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
    let case = CaseRef {
        suite: Arc::from(belongs.suite.as_str()),
        case_id: Arc::from(belongs.case_id.as_str()),
        repeat: belongs.repeat,
        attempt: belongs.attempt,
    };
    let digest = in_place(bytes, || digest_of_judgement(&asked));
    let told =
        || Asked { instructions: texts([&criteria]), messages: for_traces(conversation, Some(&transcript.response)) };
    let recorded = shared.evidence.as_ref().filter(|evidence| !evidence.asks_validators);
    let party = match recorded {
        Some(_) => None,
        None => match shared.party(id) {
            Ok(party) => Some(party),
            Err(why) => return Reply::failed(why),
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
            (Some(party), _) => unless_cancelled(shared, voted(party, &asked, &belongs)).await,
            (None, Some(recorded)) => Some(voted_then(recorded, id, &case, &digest, belongs.turn).await),
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
        asking.end(shared, &case, belongs.turn, said, usage).await;
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

/// Why nobody answered.
const CANCELLED: &str = "the run was cancelled";

/// What comes of waiting; `None`: the run was cancelled before.
pub(super) async fn unless_cancelled<F: Future>(shared: &Shared, waiting: F) -> Option<F::Output> {
    tokio::select! {
        biased;
        () = shared.control.cancel.cancelled() => None,
        output = waiting => Some(output),
    }
}

/// Those that are not empty.
pub(super) fn texts<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.into_iter().filter(|text| !text.is_empty()).map(str::to_owned).collect()
}

/// One vote of a validator; an error is why there is none.
async fn voted(party: &Agent, asked: &Judgement<'_>, belongs: &Belongs) -> Result<Vote, String> {
    // Apart, so that whoever asks is small: most cases ask nobody.
    Box::pin(party.validate(belongs, asked)).await.map_err(|silence| match silence {
        Silence::Timeout => "it gave no answer within the time of the case".to_owned(),
        Silence::Failed(why) => why,
    })
}

/// The vote that a validator gave in the run that is replayed.
async fn voted_then(evidence: &Evidence, id: &str, case: &CaseRef, digest: &str, turn: u32) -> Result<Vote, String> {
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

/// The options of a party with `metadata.test_mode`, and with the number of the turn if it plays the user.
#[must_use]
pub fn with_test_mode(options: Option<&Json>, test_mode: &str, turn: Option<u32>) -> Json {
    let node = |value| Json { line: 0, value };
    let mut members = options.map(|options| options.members().to_vec()).unwrap_or_default();
    let mut metadata = match members.iter().position(|(key, _)| key == "metadata") {
        Some(position) => members.remove(position).1.members().to_vec(),
        None => Vec::new(),
    };
    metadata.retain(|(key, _)| key != "test_mode" && (turn.is_none() || key != "turn_number"));
    metadata.push(("test_mode".to_owned(), node(Value::String(test_mode.to_owned()))));
    if let Some(turn) = turn {
        metadata.push(("turn_number".to_owned(), node(Value::Number(turn.to_string()))));
    }
    members.push(("metadata".to_owned(), node(Value::Object(metadata))));
    node(Value::Object(members))
}

/// A text of the metadata; empty when there is none.
pub(super) fn metadata<'a>(options: &'a Json, key: &str) -> &'a str {
    options.get("metadata").and_then(|metadata| metadata.get(key)).and_then(Json::as_str).unwrap_or_default()
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

    #[test]
    fn what_a_party_is_told() {
        let options =
            Json::parse(r#"{"metadata": {"test_mode": "x", "goal": "g", "n": 1.0}, "mode": "m"}"#).expect("JSON");
        let told = with_test_mode(Some(&options), "simulator", Some(3));
        let expected = r#"{"mode":"m","metadata":{"goal":"g","n":1,"test_mode":"simulator","turn_number":3}}"#;
        assert_eq!(told.stringify(), expected);
        assert_eq!(metadata(&told, "goal"), "g");
    }
}
