//! One writer for all runs: whatever waits while a transaction is on its way goes into the next one together.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::StoreError;
use super::database::{Batch, Database};
use crate::run::pulse::watched;

/// Batches that may wait; whoever comes later waits with them. What they hold is bounded by the events on their way.
const WAITING: usize = 256;

/// Time from the start of one transaction to that of the next.
const PAUSE: Duration = Duration::from_millis(5);

/// Pauses before what could not be stored is tried again. Tries are counted, not their time: a daemon that stood still,
/// or a disk that did, has lost time and nothing else.
const RETRIES: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(5),
    Duration::from_secs(5),
];

type Waiting = (Batch, oneshot::Sender<Result<(), StoreError>>);

/// The way to the task that writes.
#[derive(Debug)]
pub(super) struct Writer {
    batches: Mutex<Option<mpsc::Sender<Waiting>>>,
    task: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    pub(super) fn start(database: Database) -> Self {
        let (sender, batches) = mpsc::channel(WAITING);
        let task = tokio::spawn(watched("the writer of the store", write_all(database, batches)));
        Self { batches: Mutex::new(Some(sender)), task: tokio::sync::Mutex::new(Some(task)) }
    }

    /// Writes a batch; when this returns, it is stored.
    pub(super) async fn write(&self, batch: Batch) -> Result<(), StoreError> {
        let closed = || StoreError::Database("it is closed".to_owned());
        let batches = self.batches.lock().clone().ok_or_else(closed)?;
        let (done, stored) = oneshot::channel();
        batches.send((batch, done)).await.map_err(|_| closed())?;
        stored.await.map_err(|_| closed())?
    }

    /// Writes what waits, and ends.
    pub(super) async fn close(&self) {
        self.batches.lock().take();
        if let Some(task) = self.task.lock().await.take() {
            let _ = task.await;
        }
    }
}

async fn write_all(database: Database, mut batches: mpsc::Receiver<Waiting>) {
    let mut waiting = Vec::new();
    let mut next = Instant::now();
    while batches.recv_many(&mut waiting, WAITING).await > 0 {
        // Most of what a transaction costs is not what it holds.
        if Instant::now() < next {
            tokio::time::sleep_until(next).await;
            while waiting.len() < WAITING
                && let Ok(more) = batches.try_recv()
            {
                waiting.push(more);
            }
        }
        next = Instant::now() + PAUSE;
        let (batches, done): (Vec<Arc<Batch>>, Vec<_>) =
            waiting.drain(..).map(|(batch, done)| (Arc::new(batch), done)).unzip();
        let written = write(&database, &batches).await;
        for (sender, written) in done.into_iter().zip(written) {
            if let Err(error) = &written {
                tracing::error!(%error, "something cannot be stored");
            }
            // Whoever does not wait any more does not need to know.
            let _ = sender.send(written);
        }
    }
}

/// Writes batches, all of them together; and says of each whether it is stored.
async fn write(database: &Database, batches: &[Arc<Batch>]) -> Vec<Result<(), StoreError>> {
    let mut together = database.write(batches).await;
    // A database may be away for a moment, and a disk full. It is the same for all of them then.
    for pause in RETRIES {
        if !together.as_ref().is_err_and(StoreError::may_pass) {
            break;
        }
        tokio::time::sleep(pause).await;
        // A transaction whose answer was lost may be there, and then it is there whole.
        let with_blocks = batches.iter().find(|batch| !batch.blocks.is_empty());
        let is_stored = match with_blocks {
            Some(batch) => database.is_stored(batch).await,
            None => Ok(false),
        };
        together = match is_stored {
            Ok(true) => Ok(()),
            Ok(false) => database.write(batches).await,
            Err(error) => Err(error),
        };
    }
    if together.as_ref().map_or_else(StoreError::may_pass, |()| true) {
        return vec![together; batches.len()];
    }
    // One that cannot be stored does not take the others along.
    let mut written = Vec::with_capacity(batches.len());
    for batch in batches {
        written.push(match database.is_stored(batch).await {
            Ok(true) => Ok(()),
            Ok(false) => database.write(std::slice::from_ref(batch)).await,
            Err(error) => Err(error),
        });
    }
    written
}
