//! One writer for all runs: whatever waits while a transaction is on its way goes into the next one together.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::StoreError;
use super::database::{Batch, Database};

/// Batches that may wait; whoever comes later waits with them.
const WAITING: usize = 256;

/// Time from the start of one transaction to that of the next.
const PAUSE: Duration = Duration::from_millis(5);

/// Pauses before what could not be stored is tried again.
const RETRIES: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(3)];

/// Time for one transaction.
const WRITE: Duration = Duration::from_secs(10);
/// Time after which nothing is tried again.
const GIVE_UP: Duration = Duration::from_secs(15);

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
        let task = tokio::spawn(write_all(database, batches));
        Self { batches: Mutex::new(Some(sender)), task: tokio::sync::Mutex::new(Some(task)) }
    }

    /// Writes a batch; when this returns, it is stored.
    pub(super) async fn write(&self, batch: Batch) -> Result<(), StoreError> {
        let closed = || StoreError::Database("it is closed".to_owned());
        let batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(closed)?;
        let (done, stored) = oneshot::channel();
        batches.send((batch, done)).await.map_err(|_| closed())?;
        stored.await.map_err(|_| closed())?
    }

    /// Writes what waits, and ends.
    pub(super) async fn close(&self) {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = self.task.lock().await.take() {
            let _ = task.await;
        }
    }
}

/// Writes batches within a time: a database that is stuck is as good as one that is not there.
async fn write(database: &Database, batches: &[Batch]) -> Result<(), StoreError> {
    let silent = |_| Err(StoreError::Database(format!("it took more than {WRITE:?} to write")));
    tokio::time::timeout(WRITE, database.write(batches)).await.unwrap_or_else(silent)
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
        let (batches, done): (Vec<Batch>, Vec<_>) = waiting.drain(..).unzip();
        let begun = Instant::now();
        let together = write(&database, &batches).await;
        for (batch, sender) in batches.iter().zip(done) {
            // One that cannot be stored does not take the others along, and a database may be away for a moment.
            let mut written = together.clone();
            for pause in RETRIES {
                if written.is_ok() || begun.elapsed() > GIVE_UP {
                    break;
                }
                tokio::time::sleep(pause).await;
                let stored = tokio::time::timeout(WRITE, database.is_stored(batch)).await;
                written = match stored {
                    Ok(Ok(true)) => Ok(()),
                    Ok(Ok(false) | Err(_)) | Err(_) => write(&database, std::slice::from_ref(batch)).await,
                };
            }
            if let Err(error) = &written {
                tracing::error!(%error, "something cannot be stored");
            }
            // Whoever does not wait any more does not need to know.
            let _ = sender.send(written);
        }
    }
}
