//! A reader of a log: how far it has read, and where it goes on.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::{Store, StoreError, Stored, unreadable};
use crate::wire::record::Record;
use crate::wire::value::WireError;
use crate::work::in_place;

/// A place in the log of a run. Each reader has a cursor of its own, and holds up nobody.
#[derive(Debug, Clone)]
pub struct Cursor {
    store: Arc<Store>,
    run_id: String,
    /// The number of the last event that was read.
    after: u64,
    newest: watch::Receiver<u64>,
}

impl Cursor {
    /// Begins behind the event of the number `after`; 0: at the beginning.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn new(store: &Arc<Store>, run_id: &str, after: u64) -> Result<Self, StoreError> {
        let newest = store.newest(run_id).await?;
        Ok(Self { store: Arc::clone(store), run_id: run_id.to_owned(), after, newest })
    }

    /// The number of the last event that was read.
    #[must_use]
    pub const fn after(&self) -> u64 {
        self.after
    }

    /// The next events, in order: as many as are read at a time. None: there are no more now.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn read(&mut self) -> Result<Vec<Record>, StoreError> {
        // Before reading: an event that is stored in between is then seen as a change.
        self.newest.borrow_and_update();
        let records = self.store.read(&self.run_id, self.after).await?;
        Ok(self.pass(records))
    }

    /// The same, if nothing has to be read from the database for it.
    pub fn at_hand(&mut self) -> Option<Vec<Record>> {
        self.newest.borrow_and_update();
        let records = self.store.at_hand(&self.run_id, self.after)?;
        Some(self.pass(records))
    }

    fn pass(&mut self, records: Vec<Record>) -> Vec<Record> {
        self.after = records.last().map_or(self.after, |last| last.sequence);
        records
    }

    /// Those of the next events that are wanted. `None`: there are no more now.
    ///
    /// # Errors
    /// When the log, or one of these events, cannot be read.
    pub async fn events(&mut self, wanted: impl Fn(&Record) -> bool + Send) -> Result<Option<Vec<Stored>>, StoreError> {
        let records = self.read().await?;
        if records.is_empty() {
            return Ok(None);
        }
        let wanted = records.iter().filter(|record| wanted(record));
        let bytes = wanted.clone().map(|record| record.body().len()).sum();
        let stored = |record: &Record| Ok(Stored { event: Arc::new(record.event()?), bytes: record.body().len() });
        let events: Result<_, WireError> = in_place(bytes, || wanted.map(stored).collect());
        events.map(Some).map_err(|error| unreadable(&self.run_id, &error))
    }

    /// Whether there is nothing to wait for: the run is over, and all of its log was read.
    ///
    /// # Errors
    /// When the run is there no more, or its log cannot be written any more.
    pub async fn is_at_end(&self) -> Result<bool, StoreError> {
        let (is_final, newest) = self.store.progress(&self.run_id).await?;
        Ok(is_final && self.after >= newest)
    }

    /// Waits for more than there was at the last reading, at most so long.
    pub async fn wait(&mut self, time: Duration) -> Waited {
        match tokio::time::timeout(time, self.newest.changed()).await {
            Ok(Ok(())) => Waited::More,
            Ok(Err(_)) => Waited::Forgotten,
            Err(_) => Waited::Nothing(*self.newest.borrow()),
        }
    }
}

/// What came of waiting for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// There is more.
    More,
    /// Nothing happened; this is the number of the newest event.
    Nothing(u64),
    /// The run was forgotten meanwhile, or is over.
    Forgotten,
}
