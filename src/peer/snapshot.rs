//! Asks an agent for the values of snapshot tokens.

use std::collections::BTreeMap;
use std::time::Duration;

use super::agent::{Agent, MAX_MESSAGE_BYTES, traced};
use super::target::Target;
use crate::json::{Json, Value};
use crate::trace::TraceHeaders;
use crate::wire::agent::snapshot_provider_client::SnapshotProviderClient;
use crate::wire::call::{capture_from_proto, capture_to_proto};
use crate::wire::value::shorten;

/// Time for the whole capture.
pub const CAPTURE_TIMEOUT: Duration = Duration::from_secs(30);

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The run it is for.
    pub run_id: String,
    /// Paths of the tokens, without repeats.
    pub paths: Vec<String>,
    /// What its spans hang below.
    pub trace: TraceHeaders,
}

/// What was answered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Captured {
    /// An object with values at the paths; `None` when there are none.
    pub data: Option<Json>,
    /// Paths without a value, and why.
    pub unresolved: BTreeMap<String, String>,
}

impl Agent {
    /// Asks for a snapshot, once: whether asking again is harmless is not for the daemon to guess.
    ///
    /// # Errors
    /// Why there is none, for people.
    pub async fn capture(&self, wanted: &Wanted) -> Result<Captured, String> {
        // A URL says nothing about the ids that the process behind it knows.
        let agent_id = if Target::looks_like_one(&self.name) { "" } else { self.name.as_str() };
        let request = traced(
            capture_to_proto(agent_id, &wanted.run_id, &wanted.paths, &wanted.trace, CAPTURE_TIMEOUT),
            &wanted.trace,
        );
        let mut client = SnapshotProviderClient::new(self.channel()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let answer = tokio::time::timeout(CAPTURE_TIMEOUT, client.capture(request)).await;
        let answer =
            answer.map_err(|_| format!("{} gave no answer within {} s", self.url, CAPTURE_TIMEOUT.as_secs()))?;
        let answer = answer.map_err(|status| match status.code() {
            tonic::Code::Unimplemented => format!("{} does not implement SnapshotProvider", self.url),
            code => format!("{} answered with {code:?}: {}", self.url, shorten(status.message())),
        })?;
        let (data, unresolved) = capture_from_proto(answer.into_inner()).map_err(|error| error.to_string())?;
        if let Some(data) = data.as_ref().filter(|data| !matches!(data.value, Value::Object(_))) {
            return Err(format!("{} answered with {}, not an object of values", self.url, data.kind()));
        }
        Ok(Captured { data, unresolved })
    }
}
