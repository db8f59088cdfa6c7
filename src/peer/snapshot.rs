//! Asks an agent for the values of snapshot tokens.

use std::collections::BTreeMap;
use std::time::Duration;

use tonic::{Code, Status};

use super::agent::{Agent, MAX_MESSAGE_BYTES, traced};
use super::target::Target;
use crate::json::{Json, Value};
use crate::trace::TraceHeaders;
use crate::wire::agent::snapshot_provider_client::SnapshotProviderClient;
use crate::wire::call::{capture_from_proto, capture_to_proto};
use crate::wire::value::{WireError, shorten};

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

/// Why a provider gave no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// It did not answer in time.
    #[error("{url} gave no answer within {} s", CAPTURE_TIMEOUT.as_secs())]
    Silent {
        /// Where it listens.
        url: String,
    },
    /// It is no snapshot provider.
    #[error("{url} does not implement SnapshotProvider")]
    Unimplemented {
        /// Where it listens.
        url: String,
    },
    /// It answered with an error.
    #[error("{url} answered with {:?}: {}", status.code(), shorten(status.message()))]
    Refused {
        /// Where it listens.
        url: String,
        /// The status.
        #[source]
        status: Box<Status>,
    },
    /// What it answered cannot be read.
    #[error(transparent)]
    Unreadable(WireError),
    /// It answered with something else than values by their names.
    #[error("{url} answered with {kind}, not an object of values")]
    NoObject {
        /// Where it listens.
        url: String,
        /// What it answered with, for people.
        kind: &'static str,
    },
}

impl Agent {
    /// Asks for a snapshot, once: whether asking again is harmless is not for the daemon to guess.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn capture(&self, wanted: &Wanted) -> Result<Captured, CaptureError> {
        let url = || self.url.clone();
        // A URL says nothing about the ids that the process behind it knows.
        let agent_id = if Target::looks_like_one(&self.name) { "" } else { self.name.as_str() };
        let request = traced(
            capture_to_proto(agent_id, &wanted.run_id, &wanted.paths, &wanted.trace, CAPTURE_TIMEOUT),
            &wanted.trace,
        );
        let mut client = SnapshotProviderClient::new(self.channel()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let answer = tokio::time::timeout(CAPTURE_TIMEOUT, client.capture(request)).await;
        let answer =
            answer.map_err(|_| CaptureError::Silent { url: url() })?.map_err(|status| match status.code() {
                Code::Unimplemented => CaptureError::Unimplemented { url: url() },
                _ => CaptureError::Refused { url: url(), status: Box::new(status) },
            })?;
        let (data, unresolved) = capture_from_proto(answer.into_inner()).map_err(CaptureError::Unreadable)?;
        if let Some(data) = data.as_ref().filter(|data| !matches!(data.value, Value::Object(_))) {
            return Err(CaptureError::NoObject { url: url(), kind: data.kind() });
        }
        Ok(Captured { data, unresolved })
    }
}
