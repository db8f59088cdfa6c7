//! Ctrl-C: the first one cancels the run, the second one leaves at once, whatever is being done.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::cli::{CliError, Exit, note};

/// Counts the interrupts of this process.
pub(super) struct Interrupts {
    count: watch::Receiver<u32>,
    task: tokio::task::JoinHandle<()>,
}

impl Interrupts {
    /// Takes Ctrl-C and SIGTERM from now on.
    pub(super) fn watch() -> Result<Self, CliError> {
        let failed = |error| CliError::new(Exit::CouldNotRun, format!("cannot wait for signals: {error}"));
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let (counter, count) = watch::channel(0);
        let task = tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if *counter.borrow() > 0 {
                    note("forgectl: left at once");
                    // Nothing that is still being waited for, or computed, may hold this up.
                    std::process::exit(130);
                }
                counter.send_modify(|count| *count += 1);
            }
        });
        Ok(Self { count, task })
    }

    /// Whether there was one.
    pub(super) fn any(&self) -> bool {
        *self.count.borrow() > 0
    }

    /// Waits for the first one.
    pub(super) async fn first(&self) {
        if self.count.clone().wait_for(|count| *count > 0).await.is_err() {
            // The task that counts is gone, so nothing will be counted any more.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        self.task.abort();
    }
}
