//! A question to another party of a case: what it is told, how long it is waited for, and what the log holds of it.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::shared::Shared;
use crate::case::CaseRef;
use crate::conversation::Usage;
use crate::event::{Asked, PartyRole, PartySaid, Payload, Said};
use crate::json::{Json, Value};
use crate::peer::agent::Agent;
use crate::peer::party::Belongs;

/// A question to a simulator or validator, while its answer is awaited.
pub(super) struct Asking {
    since: Instant,
    said: PartySaid,
}

impl Asking {
    /// Begins to ask `party`. `None`: there is no such party, and so nobody is asked.
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

/// The options of a party with `metadata.test_mode`, and with the number of the turn if it plays the user.
#[must_use]
pub fn with_test_mode(options: Option<&Json>, role: PartyRole, turn: Option<u32>) -> Json {
    let node = |value| Json { line: 0, value };
    let mut members = options.map(|options| options.members().to_vec()).unwrap_or_default();
    let mut metadata = match members.iter().position(|(key, _)| key == "metadata") {
        Some(position) => members.remove(position).1.members().to_vec(),
        None => Vec::new(),
    };
    metadata.retain(|(key, _)| key != "test_mode" && (turn.is_none() || key != "turn_number"));
    metadata.push(("test_mode".to_owned(), node(Value::String(role.name().to_owned()))));
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
    fn what_a_party_is_told() {
        let options =
            Json::parse(r#"{"metadata": {"test_mode": "x", "goal": "g", "n": 1.0}, "mode": "m"}"#).expect("JSON");
        let told = with_test_mode(Some(&options), PartyRole::Simulator, Some(3));
        let expected = r#"{"mode":"m","metadata":{"goal":"g","n":1,"test_mode":"simulator","turn_number":3}}"#;
        assert_eq!(told.stringify(), expected);
        assert_eq!(metadata(&told, "goal"), "g");
    }
}
