//! Connections to the database, and who may use one for how long.
//!
//! What is asked of the database is done in a task of its own, under a deadline, and read whole before anybody gets it:
//! a client that does not take its answer keeps no connection. After trouble nobody knows what state a connection is in
//! (a full disk ends a transaction of SQLite behind the back of the task that began it), so it is closed and never used
//! again. It keeps its place until it is closed: a disk that hangs does not get more and more threads that wait for it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::any::AnyPoolOptions;
use sqlx::pool::PoolConnection;
use sqlx::{Any, AnyConnection, AnyPool, Connection as _};
use tokio::sync::{Semaphore, oneshot};
use tokio_util::task::TaskTracker;

use super::StoreError;

/// Connections that read.
const READERS: usize = 4;
/// Connections that write: a database of SQLite has one writer at a time.
const WRITERS: usize = 1;
/// Time for a connection, and for a lock of the database.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Time for what is asked of the database.
pub(super) const ANSWER: Duration = Duration::from_secs(10);

/// The ways to a database.
#[derive(Debug, Clone)]
pub(super) struct Connections {
    /// For reading only.
    pub(super) reading: Lane,
    /// For writing.
    pub(super) writing: Lane,
}

impl Connections {
    pub(super) async fn open(url: &str, is_sqlite: bool) -> Result<Self, StoreError> {
        let reading = Lane::open(url, is_sqlite, READERS).await?;
        Ok(Self { reading, writing: Lane::open(url, is_sqlite, WRITERS).await? })
    }

    /// Closes all connections; what was committed is in the file.
    pub(super) async fn close(&self) {
        for lane in [&self.writing, &self.reading] {
            lane.tasks.close();
            // One that hangs is not waited for: its caller was told already.
            let _ = tokio::time::timeout(PATIENCE, lane.tasks.wait()).await;
            let _ = tokio::time::timeout(PATIENCE, lane.pool.close()).await;
        }
    }
}

/// A bounded number of connections for one purpose.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    pool: AnyPool,
    is_sqlite: bool,
    /// One for each connection until it is closed, also when its closing takes long.
    places: Arc<Semaphore>,
    tasks: TaskTracker,
}

impl Lane {
    async fn open(url: &str, is_sqlite: bool, places: usize) -> Result<Self, StoreError> {
        let most = u32::try_from(places).unwrap_or(u32::MAX);
        let options = AnyPoolOptions::new().max_connections(most).acquire_timeout(PATIENCE);
        let options = options.after_connect(move |connection, _| {
            Box::pin(async move {
                if is_sqlite {
                    prepare(connection).await?;
                }
                Ok(())
            })
        });
        let pool = options.connect(url).await?;
        Ok(Self { pool, is_sqlite, places: Arc::new(Semaphore::new(places)), tasks: TaskTracker::new() })
    }

    /// The pool itself, for migrations.
    pub(super) const fn pool(&self) -> &AnyPool {
        &self.pool
    }

    /// Does something with a connection within [`ANSWER`].
    pub(super) async fn with<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut AnyConnection) -> BoxFuture<'c, Result<T, StoreError>> + Send + 'static,
    {
        self.within(ANSWER, work).await
    }

    /// Does something with a connection within a time. It is done to its end whether anybody waits for it or not.
    pub(super) async fn within<T, W>(&self, time: Duration, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut AnyConnection) -> BoxFuture<'c, Result<T, StoreError>> + Send + 'static,
    {
        let place = tokio::time::timeout(PATIENCE, Arc::clone(&self.places).acquire_owned()).await;
        let busy = || StoreError::Away(format!("no connection was free for {PATIENCE:?}"));
        let place = place.ok().and_then(Result::ok).ok_or_else(busy)?;
        let (lane, (answer, answered)) = (self.clone(), oneshot::channel());
        self.tasks.spawn(async move {
            let mut connection = match lane.pool.acquire().await {
                Ok(connection) => connection,
                Err(error) => return drop(answer.send(Err(error.into()))),
            };
            let late = |_| Err(StoreError::Away(format!("it gave no answer within {time:?}")));
            let done = tokio::time::timeout(time, work(&mut connection)).await.unwrap_or_else(late);
            let is_sound = done.as_ref().map_or_else(|error| !error.is_of_connection(), |_| true);
            // A caller that does not wait any more does not need to know.
            let _ = answer.send(done);
            if !is_sound {
                lane.discard(connection).await;
            }
            drop(place);
        });
        answered.await.unwrap_or_else(|_| Err(StoreError::Away("the daemon failed while it asked".to_owned())))
    }

    /// Closes a connection for good, and returns when it is closed.
    async fn discard(&self, connection: PoolConnection<Any>) {
        let connection = connection.detach();
        // That of SQLite is closed when its thread has done what it was told; a server that does not answer is left
        // alone.
        let closed = if self.is_sqlite { connection.close().await } else { connection.close_hard().await };
        if let Err(error) = closed {
            tracing::debug!(%error, "a connection to the store was not closed in order");
        }
    }
}

/// Sets up a connection to SQLite. What is committed survives the end of this process, though not that of the machine.
pub(super) async fn prepare(connection: &mut AnyConnection) -> sqlx::Result<()> {
    for pragma in [
        "PRAGMA journal_mode = WAL",
        "PRAGMA synchronous = NORMAL",
        "PRAGMA busy_timeout = 10000",
        // A burst does not leave a large file behind.
        "PRAGMA journal_size_limit = 67108864",
    ] {
        sqlx::query(pragma).execute(&mut *connection).await?;
    }
    Ok(())
}
