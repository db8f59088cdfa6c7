//! A watcher: a cursor into a run's log that reads at its own pace and never holds up the run.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;

use super::outbox::Ticket;
use super::status::{of_store, of_wire};
use crate::event::{Payload, RunEvent};
use crate::plan::CasePatterns;
use crate::store::{Store, StoreError, Stored};
use crate::wire::control as pb;
use crate::wire::event::run_event_to_proto;
use crate::wire::run::time_to_proto;
use crate::wire::value::WireError;
use crate::work::{Work, in_place, off_the_runtime};

/// Events that are read from the log at a time.
const BATCH: usize = 256;
/// A watcher hears from the daemon at least this often.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// CPU time to read patterns, which is bounded by what they may become.
const READING: Duration = Duration::from_secs(1);

/// What a watcher gets.
pub(super) type Responses = Pin<Box<dyn Stream<Item = Result<pb::WatchRunResponse, Status>> + Send>>;

pub(super) struct Watch {
    store: Arc<Store>,
    run_id: String,
    follow: bool,
    calls: bool,
    patterns: CasePatterns,
    newest: watch::Receiver<u64>,
    /// Number of the last event that was read.
    after: u64,
    read: VecDeque<Stored>,
    /// Bytes of these, about.
    ahead: usize,
    ticket: Ticket,
    ended: bool,
}

impl Watch {
    pub(super) async fn new(store: Arc<Store>, ticket: Ticket, request: pb::WatchRunRequest) -> Result<Self, Status> {
        let calls = request.detail() == pb::Detail::Calls;
        let newest = store.newest(&request.run_id).await.map_err(|error| of_store(&error))?;
        Ok(Self {
            patterns: read(&request.run_id, request.case_patterns).await?,
            newest,
            store,
            run_id: request.run_id,
            follow: request.follow,
            calls,
            after: request.after_sequence,
            read: VecDeque::new(),
            ahead: 0,
            ticket,
            ended: false,
        })
    }

    /// The events as a stream that does its work when it is polled: a watcher that does not read costs nothing.
    pub(super) fn responses(self) -> Responses {
        Box::pin(futures_util::stream::try_unfold(self, |mut watch| async move {
            Ok(watch.next().await?.map(|response| (response, watch)))
        }))
    }

    async fn next(&mut self) -> Result<Option<pb::WatchRunResponse>, Status> {
        use pb::watch_run_response::Item;
        loop {
            while let Some(stored) = self.read.pop_front() {
                self.ahead = self.ahead.saturating_sub(stored.held());
                self.ticket.has_read(self.ahead);
                let Stored { event, bytes } = stored;
                self.ended = matches!(event.payload, Payload::RunFinished(_));
                if self.wants(&event) {
                    let item = Item::Event(in_place(bytes, || run_event_to_proto(&event)));
                    return Ok(Some(pb::WatchRunResponse { item: Some(item) }));
                }
            }
            if self.ended {
                return Ok(None);
            }
            // Before reading: an event that is stored in between is then seen as a change.
            let newest = *self.newest.borrow_and_update();
            self.read_on().await?;
            if let Some(last) = self.read.back() {
                self.after = last.event.sequence;
                continue;
            }
            if !self.follow || self.is_over().await? {
                return Ok(None);
            }
            match tokio::time::timeout(HEARTBEAT, self.newest.changed()).await {
                Ok(Ok(())) => {}
                // The run was forgotten while it was watched.
                Ok(Err(_)) => return Ok(None),
                Err(_) => {
                    let heartbeat = pb::Heartbeat { last_sequence: newest, at: Some(time_to_proto(Timestamp::now())) };
                    return Ok(Some(pb::WatchRunResponse { item: Some(Item::Heartbeat(heartbeat)) }));
                }
            }
        }
    }

    /// Reads what follows in the log, in a task of its own: nobody polls this while the client takes nothing, and neither the
    /// turn nor the place in the line for it is kept meanwhile.
    async fn read_on(&mut self) -> Result<(), Status> {
        let (store, ticket) = (Arc::clone(&self.store), self.ticket.clone());
        let (run_id, after) = (self.run_id.clone(), self.after);
        let reading = AbortOnDropHandle::new(tokio::spawn(async move {
            let turn = ticket.turn().await;
            let read = store.read(&run_id, after, BATCH).await?;
            let ahead = read.iter().map(Stored::held).sum();
            ticket.has_read(ahead);
            drop(turn);
            Ok((read, ahead))
        }));
        let read = reading.await.map_err(|_| Status::internal("the daemon failed while it read the log"))?;
        let (read, ahead) = read.map_err(|error: StoreError| of_store(&error))?;
        self.read.extend(read);
        self.ahead = ahead;
        Ok(())
    }

    /// Whether there is nothing to wait for: a cursor may start behind the last event of a run that is over.
    async fn is_over(&self) -> Result<bool, Status> {
        let (is_final, newest) = self.store.progress(&self.run_id).await.map_err(|error| of_store(&error))?;
        Ok(is_final && self.after >= newest)
    }

    fn wants(&self, event: &RunEvent) -> bool {
        let in_detail = match &event.payload {
            Payload::Agent(_)
            | Payload::StubServed { .. }
            | Payload::AgentDescribed(_)
            | Payload::CallEnded(_)
            | Payload::SpansRead(_)
            | Payload::PartySaid(_)
            | Payload::SnapshotTaken(_) => self.calls,
            Payload::RunStarted(_)
            | Payload::CasePlanned { .. }
            | Payload::CaseStarted { .. }
            | Payload::TurnFinished(_)
            | Payload::CheckpointReached { .. }
            | Payload::AttemptFinished(_)
            | Payload::CaseFinished(_)
            | Payload::Warning(_)
            | Payload::RunFinished(_) => true,
        };
        in_detail && event.case.as_ref().is_none_or(|case| self.patterns.select(&case.case_id))
    }
}

/// Reads patterns where that holds up nobody else.
async fn read(run_id: &str, patterns: Vec<String>) -> Result<CasePatterns, Status> {
    if patterns.is_empty() {
        return Ok(CasePatterns::default());
    }
    let work = Work { owner: run_id, cpu: READING, memory: 0 };
    let nobody_stops = CancellationToken::new();
    let read = off_the_runtime(work, &nobody_stops, move || CasePatterns::read(&patterns)).await;
    let read = read.map_err(|undecided| Status::resource_exhausted(undecided.to_string()))?;
    read.map_err(|error| of_wire(&WireError::new("case_patterns", error.to_string())))
}
