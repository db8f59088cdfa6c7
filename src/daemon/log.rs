//! The log of a run, as the daemon writes and reads it: stored as it comes, told to telemetry when it is stored,
//! and read again to go on with a run or to play one back.

use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt as _;
use jiff::Timestamp;
use tokio::sync::mpsc;

use super::observer::Observer;
use crate::case::CaseRef;
use crate::conversation::{Fault, FaultOrigin};
use crate::event::{Draft, Payload, Run, RunEvent, State};
use crate::limits::{BATCH_BYTES, WAITING_EVENTS};
use crate::plan::Replay;
use crate::run::replay::{BoxError, Evidence, Index};
use crate::run::{Done, Results, Waiting};
use crate::store::{Cursor, Store, StoreError};
use crate::suite::Suite;
use crate::telemetry::spans::Grouper;

/// Stores the events of a run as they come, as many at a time as there are and [`BATCH_BYTES`] hold.
pub(super) async fn write_log(
    store: &Store,
    run_id: &str,
    mut drafts: mpsc::Receiver<Waiting>,
    observer: &mut Observer,
) -> Result<(), StoreError> {
    let mut waiting = Vec::new();
    while drafts.recv_many(&mut waiting, WAITING_EVENTS).await > 0 {
        let mut rest = waiting.drain(..).peekable();
        while rest.peek().is_some() {
            let began = Instant::now();
            let (mut batch, mut rooms, mut bytes) = (Vec::new(), Vec::new(), 0);
            while bytes < BATCH_BYTES
                && let Some(Waiting { draft, room }) = rest.next()
            {
                bytes += draft.weight();
                batch.push(draft);
                rooms.push(room);
            }
            let events = store.append(run_id, &mut batch).await?;
            drop(rooms);
            observer.telemetry.metrics.events_stored(began.elapsed());
            observer.see(&events);
        }
    }
    Ok(())
}

/// Ends a run whose engine died before it could, so that nobody waits for it for ever. One that is to go on another
/// time is left as it is.
pub(super) async fn end_if_abandoned(
    store: &Store,
    run_id: &str,
    is_stopping: bool,
    observer: &mut Observer,
) -> Result<(), StoreError> {
    let run = store.run(run_id).await?;
    if run.state.is_final() || is_stopping {
        return Ok(());
    }
    abandon(store, run, "DAEMON_FAILED", "the daemon failed while it executed this run", observer).await
}

/// Ends a run that nobody goes on with.
pub(super) async fn abandon(
    store: &Store,
    run: Run,
    reason: &str,
    message: &str,
    observer: &mut Observer,
) -> Result<(), StoreError> {
    let run_id = &run.run_id.clone();
    let fault = Fault {
        code: tonic::Code::Internal.into(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        origin: FaultOrigin::Daemon,
        retryable: true,
    };
    let run = Run { state: State::Errored, finished_at: Some(Timestamp::now()), error: Some(fault), ..run };
    let ended = Draft { case: None, turn: 0, payload: Payload::RunFinished(Box::new(run)) };
    let events = store.append(run_id, &mut vec![ended]).await?;
    observer.see(&events);
    Ok(())
}

/// Reads how far a run came. `grouper` then knows the cases that are open, whose spans are made when they end.
pub(super) async fn done(store: &Arc<Store>, run: &Run, mut grouper: Grouper) -> Result<(Done, Grouper), StoreError> {
    let results = run.spec.hooks.after.is_some().then(Results::default);
    let mut done = Done { events: run.last_sequence, results, ..Done::default() };
    let mut log = Cursor::new(store, &run.run_id, 0).await?;
    while let Some(events) = log.events(|_| true).await? {
        for stored in &events {
            done.take(&stored.event);
            // What is whole was exported then.
            grouper.take(stored);
        }
    }
    Ok((done, grouper))
}

/// What an earlier run recorded of these suites.
pub(super) async fn evidence(
    store: &Arc<Store>,
    replay: &Replay,
    suites: &[Arc<Suite>],
) -> Result<Evidence, StoreError> {
    let Replay { run_id, asks_validators } = replay;
    let run = store.run(run_id).await?;
    if !run.state.is_final() {
        return Err(StoreError::NotOver(run_id.clone()));
    }
    let mut index = Index::default();
    let mut log = Cursor::new(store, run_id, 0).await?;
    while let Some(events) = log.events(|_| true).await? {
        for stored in &events {
            index.take(&stored.event);
        }
    }
    let read = {
        let (store, run_id) = (Arc::clone(store), run_id.clone());
        move |case: CaseRef, first: u64, last: u64| {
            let (store, run_id) = (Arc::clone(&store), run_id.clone());
            async move { events_of(&store, &run_id, &case, first, last).await.map_err(BoxError::from) }.boxed()
        }
    };
    Ok(Evidence::new(&run, *asks_validators, index, suites, Box::new(read)))
}

/// The events of a case from one number to another.
async fn events_of(
    store: &Arc<Store>,
    run_id: &str,
    case: &CaseRef,
    first: u64,
    last: u64,
) -> Result<Vec<Arc<RunEvent>>, StoreError> {
    let mut found: Vec<Arc<RunEvent>> = Vec::new();
    let mut log = Cursor::new(store, run_id, first.saturating_sub(1)).await?;
    while log.after() < last {
        let is_of_case = |id: Option<&str>| id == Some(&*case.case_id);
        let events = log.events(|record| record.sequence <= last && is_of_case(record.case_id())).await?;
        let Some(events) = events else { break };
        found.extend(events.into_iter().map(|stored| stored.event).filter(|event| event.case.as_ref() == Some(case)));
    }
    Ok(found)
}
