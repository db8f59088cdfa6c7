//! Runs that daemons may have died of.
//!
//! Nobody knows which of the runs that were going on it was. So each counts the deaths, and one that has seen two goes
//! on alone for a while: the next death says which it was, and the others are innocent.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::AbortOnDropHandle;

use crate::run::Control;
use crate::store::{Store, StoreError};

/// What daemons die of, they die of within this time.
const UNDER_SUSPICION: Duration = Duration::from_mins(1);
/// Deaths that may be chance.
const CHANCE: u32 = 1;

/// Who counts.
#[derive(Debug)]
pub(super) struct Suspects {
    /// Most deaths.
    most: u32,
    /// Suspects that go on at the same time.
    one: Arc<Semaphore>,
}

/// A run that goes on.
#[derive(Debug)]
pub(super) struct Going {
    store: Arc<Store>,
    run_id: String,
    suspicion: Option<AbortOnDropHandle<()>>,
}

impl Suspects {
    /// Lets a run go on that has seen at most `most` daemons die.
    pub(super) fn new(most: u32) -> Self {
        Self { most, one: Arc::new(Semaphore::new(1)) }
    }

    /// Lets a run go on when no other suspect does, and counts it; or says how many daemons have died, which are too
    /// many.
    pub(super) async fn enter(
        &self,
        store: &Arc<Store>,
        run_id: &str,
        control: &Control,
    ) -> Result<Result<Going, u32>, StoreError> {
        let deaths = store.deaths(run_id).await?;
        if deaths >= self.most {
            return Ok(Err(deaths));
        }
        let place = if deaths > CHANCE {
            tokio::select! {
                place = Arc::clone(&self.one).acquire_owned() => place.ok(),
                () = control.stopped() => None,
            }
        } else {
            None
        };
        store.goes_on(run_id).await?;
        let clear = |place| AbortOnDropHandle::new(tokio::spawn(clear(Arc::clone(store), run_id.to_owned(), place)));
        Ok(Ok(Going { store: Arc::clone(store), run_id: run_id.to_owned(), suspicion: place.map(clear) }))
    }
}

impl Going {
    /// The run goes on no more: it is over, or the daemon was told to stop.
    pub(super) async fn leave(self) {
        drop(self.suspicion);
        let is_over = self.store.run(&self.run_id).await.is_ok_and(|run| run.state.is_final());
        if let Err(error) = self.store.leaves(&self.run_id, is_over).await {
            tracing::warn!(run = %self.run_id, %error, "this run counts as going on");
        }
    }
}

/// Lets the next suspect go on when this one has not been what daemons die of.
async fn clear(store: Arc<Store>, run_id: String, place: OwnedSemaphorePermit) {
    tokio::time::sleep(UNDER_SUSPICION).await;
    if let Err(error) = store.is_innocent(&run_id).await {
        tracing::warn!(run = %run_id, %error, "this run stays under suspicion");
    }
    drop(place);
}
