//! Follows the log of a run, over lost connections too.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use tonic::{Code, Status, Streaming};

use super::client::{Client, PAUSE};
use super::{CliError, Exit};
use crate::event::{Payload, RunEvent};
use crate::wire::control::{Detail, WatchRunRequest};
use crate::wire::record::event_of;
use crate::wire::watch::WatchRunResponse;

/// Time that a daemon may be away at the least while its run is followed: connections break.
const PATIENCE: Duration = Duration::from_secs(3);
/// A daemon says something every 15 s; one that is silent for so long is gone.
const SILENCE: Duration = Duration::from_secs(45);

/// A cursor into the log of a run.
pub(super) struct Follower<'a> {
    client: &'a Client,
    run_id: String,
    detail: Detail,
    /// Patterns of the ids of cases; none: all of them.
    cases: Vec<String>,
    /// Whether the log is read to the end of the run, which may lie ahead, and not only as far as it is.
    follows: bool,
    after: u64,
    stream: Option<Streaming<WatchRunResponse>>,
    /// What came with the last response, and was not looked at yet.
    received: VecDeque<Bytes>,
    ended: bool,
}

impl<'a> Follower<'a> {
    /// Follows a run from its first event.
    pub(super) fn new(client: &'a Client, run_id: &str, detail: Detail) -> Self {
        Self {
            client,
            run_id: run_id.to_owned(),
            detail,
            cases: Vec::new(),
            follows: true,
            after: 0,
            stream: None,
            received: VecDeque::new(),
            ended: false,
        }
    }

    /// The log as far as it is, of one case if one is named.
    pub(super) fn so_far(self, case: Option<&str>) -> Self {
        let cases = case.iter().map(|case| format!("^{}$", regex::escape(case))).collect();
        Self { cases, follows: false, ..self }
    }

    /// The next event; `None` after the last one.
    pub(super) async fn next(&mut self) -> Result<Option<Arc<RunEvent>>, CliError> {
        let mut away_since: Option<Instant> = None;
        loop {
            if self.ended {
                return Ok(None);
            }
            let status = match self.receive().await {
                Ok(Some(event)) => {
                    self.after = event.sequence;
                    self.ended = matches!(event.payload, Payload::RunFinished(_));
                    return Ok(Some(Arc::new(event)));
                }
                Ok(None) if !self.follows => return Ok(None),
                Ok(None) => Status::unavailable("it ended the stream before the run was over"),
                Err(status) => status,
            };
            (self.stream, self.received) = (None, VecDeque::new());
            // What the daemon answered on purpose does not change by asking again.
            if matches!(status.code(), Code::NotFound | Code::InvalidArgument | Code::DataLoss) {
                return Err(CliError::of_status("following the run", &status));
            }
            let patience = self.client.patience().max(PATIENCE);
            let since = *away_since.get_or_insert_with(Instant::now);
            if since.elapsed() + PAUSE > patience {
                let message =
                    format!("lost the daemon at {} while following the run: {}", self.client.url, status.message());
                return Err(CliError::new(Exit::CouldNotRun, message)
                    .hint(format!("when it is back, `forgectl watch {}` shows how the run ended", self.run_id)));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn receive(&mut self) -> Result<Option<RunEvent>, Status> {
        if self.stream.is_none() {
            let request = WatchRunRequest {
                run_id: self.run_id.clone(),
                after_sequence: self.after,
                follow: self.follows,
                detail: self.detail.into(),
                case_patterns: self.cases.clone(),
                batches: true,
            };
            let mut runs = self.client.runs();
            let opened = tokio::time::timeout(SILENCE, runs.watch_run(request)).await;
            let opened = opened.map_err(|_| Status::unavailable("it does not say anything any more"))??;
            self.stream = Some(opened.into_inner());
        }
        let Some(stream) = &mut self.stream else { return Ok(None) };
        loop {
            while let Some(event) = self.received.pop_front() {
                // An event of a kind that this version does not know is not ours to show.
                if let Some(event) = event_of(&event).map_err(|error| Status::data_loss(error.to_string()))? {
                    return Ok(Some(event));
                }
            }
            let response = tokio::time::timeout(SILENCE, stream.message()).await;
            match response.map_err(|_| Status::unavailable("it does not say anything any more"))?? {
                None => return Ok(None),
                Some(WatchRunResponse::Heartbeat(_)) => {}
                Some(WatchRunResponse::Event(event)) => self.received.push_back(event),
                Some(WatchRunResponse::Events(events)) => self.received.extend(events),
            }
        }
    }
}
