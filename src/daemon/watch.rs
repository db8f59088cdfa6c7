//! A watcher: a cursor into a run's log that reads at its own pace and never holds up the run.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;

use super::outbox::Ticket;
use super::status::{of_store, of_wire};
use crate::plan::CasePatterns;
use crate::store::{Cursor, Store, StoreError, Waited};
use crate::wire::control as pb;
use crate::wire::record::{Kind, Record};
use crate::wire::run::time_to_proto;
use crate::wire::value::WireError;
use crate::wire::watch::WatchRunResponse;
use crate::work::{Work, off_the_runtime};

/// Bytes of events after which a response is full.
const RESPONSE: usize = 32 << 10;
/// A watcher hears from the daemon at least this often.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// CPU time to read patterns, which is bounded by what they may become.
const READING: Duration = Duration::from_secs(1);

/// What a watcher gets.
pub(super) type Responses = Pin<Box<dyn Stream<Item = Result<WatchRunResponse, Status>> + Send>>;

pub(super) struct Watch {
    /// `None`: it is reading.
    cursor: Option<Cursor>,
    follow: bool,
    calls: bool,
    batches: bool,
    patterns: CasePatterns,
    /// What was read and not given yet.
    read: VecDeque<Record>,
    ticket: Ticket,
    ended: bool,
}

impl Watch {
    pub(super) async fn new(store: &Arc<Store>, ticket: Ticket, request: pb::WatchRunRequest) -> Result<Self, Status> {
        let calls = request.detail() == pb::Detail::Calls;
        let cursor = Cursor::new(store, &request.run_id, request.after_sequence).await;
        Ok(Self {
            cursor: Some(cursor.map_err(|error| of_store(&error))?),
            patterns: read(&request.run_id, request.case_patterns).await?,
            follow: request.follow,
            calls,
            batches: request.batches,
            read: VecDeque::new(),
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

    async fn next(&mut self) -> Result<Option<WatchRunResponse>, Status> {
        loop {
            if let Some(response) = self.take() {
                return Ok(Some(response));
            }
            // Only now: all events of a block share its bytes.
            self.ticket.has_read(0);
            if self.ended {
                return Ok(None);
            }
            self.read_on().await?;
            let Some(cursor) = &mut self.cursor else { return Ok(None) };
            if !self.read.is_empty() {
                continue;
            }
            if !self.follow || cursor.is_at_end().await.map_err(|error| of_store(&error))? {
                return Ok(None);
            }
            match cursor.wait(HEARTBEAT).await {
                Waited::More => {}
                // The run was forgotten while it was watched.
                Waited::Forgotten => return Ok(None),
                Waited::Nothing(newest) => {
                    let heartbeat = pb::Heartbeat { last_sequence: newest, at: Some(time_to_proto(Timestamp::now())) };
                    return Ok(Some(WatchRunResponse::Heartbeat(heartbeat)));
                }
            }
        }
    }

    /// The next response from what was read; `None`: nothing of that is wanted any more.
    fn take(&mut self) -> Option<WatchRunResponse> {
        let (mut events, mut bytes) = (Vec::new(), 0);
        while bytes < RESPONSE
            && let Some(record) = self.read.pop_front()
        {
            self.ended = record.kind == Kind::RunFinished;
            if !self.wants(&record) {
                continue;
            }
            if !self.batches {
                return Some(WatchRunResponse::Event(record.into_body()));
            }
            bytes += record.body().len();
            events.push(record.into_body());
        }
        (!events.is_empty()).then_some(WatchRunResponse::Events(events))
    }

    /// Reads what follows in the log, in a task of its own: nobody polls this while the client takes nothing, and
    /// neither the turn nor the place in the line for it is kept meanwhile.
    async fn read_on(&mut self) -> Result<(), Status> {
        let (Some(mut cursor), ticket) = (self.cursor.take(), self.ticket.clone()) else { return Ok(()) };
        if let Some(read) = cursor.at_hand() {
            // Nothing of the database is needed, and the bytes are there already: a run that is followed waits for
            // no turn.
            ticket.has_read(read.iter().map(Record::held).sum());
            self.cursor = Some(cursor);
            self.read.extend(read);
            return Ok(());
        }
        let reading = AbortOnDropHandle::new(tokio::spawn(async move {
            let turn = ticket.turn().await;
            let read = cursor.read().await?;
            ticket.has_read(read.iter().map(Record::held).sum());
            drop(turn);
            Ok((read, cursor))
        }));
        let read = reading.await.map_err(|_| Status::internal("the daemon failed while it read the log"))?;
        let (read, cursor) = read.map_err(|error: StoreError| of_store(&error))?;
        self.cursor = Some(cursor);
        self.read.extend(read);
        Ok(())
    }

    fn wants(&self, record: &Record) -> bool {
        (self.calls || !record.kind.is_inside_a_case())
            && record.case_id().is_none_or(|case_id| self.patterns.select(case_id))
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
