//! One writer for all runs: what waits while a transaction is on its way goes into the next one together, as far as
//! [`TOGETHER`] goes. Small batches pass large ones, and behind a transaction that is larger there is as much time for
//! small ones: a run with much to store keeps only itself waiting.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::StoreError;
use super::database::Database;
use super::rows::Batch;
use crate::run::pulse::watched;

/// Batches that may wait; the sender of a further one waits until there is room. What they hold is bounded by the
/// events on their way.
const WAITING: usize = 256;

/// Bytes of events in one transaction, if the batch that waits for longest has no more.
const TOGETHER: usize = 2 << 20;

/// Longest time behind a large transaction in which no other large one begins.
const REST: Duration = Duration::from_secs(1);

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
    // When the next large transaction may begin.
    let mut rested = next;
    while !waiting.is_empty() || batches.recv_many(&mut waiting, WAITING).await > 0 {
        // Most of what a transaction costs is not what it holds.
        if Instant::now() < next {
            tokio::time::sleep_until(next).await;
        }
        while waiting.len() < WAITING
            && let Ok(more) = batches.try_recv()
        {
            waiting.push(more);
        }
        let began = Instant::now();
        next = began + PAUSE;
        let taken = take_turns(&mut waiting, began >= rested);
        if taken.is_empty() {
            // Only large ones wait: until it is their time, or something small comes.
            if waiting.len() < WAITING
                && let Ok(Some(more)) = tokio::time::timeout_at(rested, batches.recv()).await
            {
                waiting.push(more);
            } else {
                tokio::time::sleep_until(rested).await;
            }
            continue;
        }
        let is_large = taken.iter().map(|(batch, _)| batch.bytes()).sum::<usize>() > TOGETHER;
        let (batches, done): (Vec<Arc<Batch>>, Vec<_>) =
            taken.into_iter().map(|(batch, done)| (Arc::new(batch), done)).unzip();
        let written = write(&database, &batches).await;
        if is_large {
            rested = Instant::now() + began.elapsed().min(REST);
        }
        for (sender, written) in done.into_iter().zip(written) {
            if let Err(error) = &written {
                tracing::error!(%error, "something cannot be stored");
            }
            // A caller that does not wait any more does not need to know.
            let _ = sender.send(written);
        }
    }
}

/// Takes what is written next, in the order in which it came: the batch that waits for longest, and of the others the
/// smallest ones, as many as [`TOGETHER`] holds. If nothing large may be written, a larger one waits on.
fn take_turns(waiting: &mut Vec<Waiting>, may_be_large: bool) -> Vec<Waiting> {
    let bytes: Vec<usize> = waiting.iter().map(|(batch, _)| batch.bytes()).collect();
    let first = bytes.iter().position(|bytes| may_be_large || *bytes <= TOGETHER);
    let mut others: Vec<usize> = (0..bytes.len()).filter(|place| Some(*place) != first).collect();
    others.sort_by_key(|&place| bytes[place]);
    let (mut is_next, mut all) = (vec![false; bytes.len()], 0);
    for place in first.into_iter().chain(others) {
        all += bytes[place];
        is_next[place] = Some(place) == first || all <= TOGETHER;
    }
    let mut is_next = is_next.into_iter();
    waiting.extract_if(.., |_| is_next.next().unwrap_or_default()).collect()
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

#[cfg(test)]
mod tests {
    use super::super::rows::Block;
    use super::*;

    /// What is written in one transaction after the other: batches by their place in the line.
    #[test]
    fn small_batches_pass_large_ones_and_the_oldest_is_never_passed_over() {
        const LARGE: usize = TOGETHER / 2 + 1;
        type Case = (&'static [usize], bool, &'static [&'static [u64]]);
        let cases: [Case; 6] = [
            (&[1, 2, 3], true, &[&[0, 1, 2]]),
            (&[LARGE, LARGE, 10, LARGE, 20], true, &[&[0, 2, 4], &[1], &[3]]),
            (&[10, 3 * TOGETHER, LARGE, 20], true, &[&[0, 2, 3], &[1]]),
            (&[3 * TOGETHER, 10, TOGETHER], true, &[&[0], &[1], &[2]]),
            (&[3 * TOGETHER, 10, LARGE], false, &[&[1, 2], &[]]),
            (&[3 * TOGETHER], false, &[&[]]),
        ];
        for (sizes, may_be_large, wanted) in cases {
            let batch = |(place, &size): (usize, &usize)| {
                let block = Block { run_id: String::new(), first: place as u64, last: 0, body: vec![0; size].into() };
                (Batch { blocks: vec![block], ..Batch::default() }, oneshot::channel().0)
            };
            let mut waiting: Vec<Waiting> = sizes.iter().enumerate().map(batch).collect();
            let mut written: Vec<Vec<u64>> = Vec::new();
            while written.len() < wanted.len() {
                let next = take_turns(&mut waiting, may_be_large);
                written.push(next.iter().map(|(batch, _)| batch.blocks[0].first).collect());
            }
            assert_eq!(written, wanted, "{sizes:?}");
        }
    }
}
