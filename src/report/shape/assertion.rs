//! An assertion in a result.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Text, Texts, named};
use crate::conversation::JsonText;
use crate::verdict::{AssertionResult, Opinion, Outcome};

/// An assertion as the file has it, with what came of it. Both formats of results have it.
#[derive(Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, Box<RawValue>>")]
pub(in crate::report) struct Assertion<'a> {
    #[serde(rename = "type")]
    kind: Text<'a>,
    #[serde(flatten)]
    written: BTreeMap<String, Box<RawValue>>,
    passed: bool,
    outcome: Text<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: Text<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    hint: Text<'a>,
    /// Template tokens that lead nowhere, for which it was skipped.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    tokens: Texts<'a>,
    #[serde(flatten)]
    opinion: Option<Judged<'a>>,
}

/// What a validator said.
#[derive(Serialize)]
struct Judged<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    replies: Texts<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    votes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agreeing: Option<u32>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    console: Texts<'a>,
}

impl<'a> Assertion<'a> {
    /// The keys that say what came of it; the others are those of the file.
    const OURS: [&'static str; 11] =
        ["type", "passed", "outcome", "reason", "hint", "tokens", "score", "replies", "votes", "agreeing", "console"];

    pub(in crate::report) fn of(assertion: &'a AssertionResult) -> Self {
        let written = assertion.written.as_ref().and_then(|text| serde_json::from_str(text.as_str()).ok());
        let mut written: BTreeMap<String, Box<RawValue>> = written.unwrap_or_default();
        written.retain(|key, _| !Self::OURS.contains(&key.as_str()));
        Self {
            written,
            kind: (&*assertion.name).into(),
            passed: assertion.outcome == Outcome::Passed,
            outcome: assertion.outcome.name().into(),
            reason: (&*assertion.reason).into(),
            hint: (&*assertion.hint).into(),
            tokens: (&*assertion.unresolved_tokens).into(),
            opinion: assertion.opinion.as_ref().map(Judged::of),
        }
    }

    pub(super) fn read(&self) -> Result<AssertionResult, String> {
        let mut written: BTreeMap<&str, &RawValue> =
            self.written.iter().map(|(key, value)| (key.as_str(), &**value)).collect();
        let kind = serde_json::value::to_raw_value(&self.kind).map_err(|error| error.to_string())?;
        let has_written = !written.is_empty();
        written.insert("type", &kind);
        let written = serde_json::to_string(&written).ok().filter(|_| has_written);
        Ok(AssertionResult {
            name: self.kind.clone().into_owned(),
            outcome: named("outcome", &self.outcome, Outcome::named)?,
            reason: self.reason.clone().into_owned(),
            hint: self.hint.clone().into_owned(),
            unresolved_tokens: self.tokens.to_vec(),
            blame: None,
            written: written.and_then(|text| JsonText::new(text).ok()),
            opinion: self.opinion.as_ref().map(Judged::read),
        })
    }
}

/// Reads it key by key: what its file has stands among what came of it, and stays as it is written.
impl TryFrom<BTreeMap<String, Box<RawValue>>> for Assertion<'_> {
    type Error = String;

    fn try_from(mut keys: BTreeMap<String, Box<RawValue>>) -> Result<Self, String> {
        fn take<T: for<'de> Deserialize<'de>>(
            keys: &mut BTreeMap<String, Box<RawValue>>,
            key: &str,
        ) -> Result<Option<T>, String> {
            let value = keys.remove(key).map(|value| serde_json::from_str(value.get()));
            value.transpose().map_err(|error| format!("{key} of an assertion: {error}"))
        }
        let missing = |key: &str| format!("an assertion has no {key}");
        let text = |of: Option<String>| Text::Owned(of.unwrap_or_default());
        let texts = |of: Option<Vec<String>>| Texts::Owned(of.unwrap_or_default());
        let kind = take::<String>(&mut keys, "type")?.ok_or_else(|| missing("type"))?;
        let outcome = take::<String>(&mut keys, "outcome")?.ok_or_else(|| missing("outcome"))?;
        keys.remove("passed");
        let (reason, hint) = (text(take(&mut keys, "reason")?), text(take(&mut keys, "hint")?));
        let tokens = texts(take(&mut keys, "tokens")?);
        let judged = Judged {
            score: take(&mut keys, "score")?,
            replies: texts(take(&mut keys, "replies")?),
            votes: take(&mut keys, "votes")?,
            agreeing: take(&mut keys, "agreeing")?,
            console: texts(take(&mut keys, "console")?),
        };
        let opinion = (!judged.is_empty()).then_some(judged);
        Ok(Self {
            kind: kind.into(),
            written: keys,
            passed: false,
            outcome: outcome.into(),
            reason,
            hint,
            tokens,
            opinion,
        })
    }
}

impl<'a> Judged<'a> {
    fn of(opinion: &'a Opinion) -> Self {
        let Opinion { score, replies, votes, agreeing, console } = opinion;
        let is_vote = *votes > 0;
        Self {
            score: *score,
            replies: replies.into(),
            votes: is_vote.then_some(*votes),
            agreeing: is_vote.then_some(*agreeing),
            console: console.into(),
        }
    }

    fn is_empty(&self) -> bool {
        self.score.is_none() && self.votes.is_none() && self.replies.is_empty() && self.console.is_empty()
    }

    fn read(&self) -> Opinion {
        Opinion {
            score: self.score,
            replies: self.replies.to_vec(),
            votes: self.votes.unwrap_or(0),
            agreeing: self.agreeing.unwrap_or(0),
            console: self.console.to_vec(),
        }
    }
}
