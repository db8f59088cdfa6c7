//! Counts the bytes that open calls send: at most [`RUN_BYTES`] for all open calls of a run together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::limits::RUN_BYTES;

/// The count of all open calls of a run, or of all generators. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Outputs(Arc<AtomicUsize>);

impl Outputs {
    /// The count of a call that begins.
    #[must_use]
    pub fn begin(&self) -> Output {
        Output { of_run: Arc::clone(&self.0), bytes: 0 }
    }
}

/// The open calls of a run sent too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the calls of the run that go on sent more than {RUN_BYTES} bytes together")]
pub struct TooMuch;

/// What came of a call that goes on; forgotten when it is dropped.
#[derive(Debug)]
pub struct Output {
    of_run: Arc<AtomicUsize>,
    bytes: usize,
}

impl Output {
    /// Counts a message.
    ///
    /// # Errors
    /// When it is too much.
    pub fn add(&mut self, bytes: usize) -> Result<(), TooMuch> {
        let before = self.of_run.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        if before + bytes > RUN_BYTES {
            return Err(TooMuch);
        }
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.of_run.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_count_together_while_they_go_on() {
        let outputs = Outputs::default();
        let (mut one, mut other) = (outputs.begin(), outputs.clone().begin());
        assert_eq!(one.add(RUN_BYTES / 2), Ok(()));
        assert_eq!(other.add(RUN_BYTES / 2), Ok(()));
        assert_eq!(other.add(1), Err(TooMuch));
        drop(one);
        assert_eq!(other.add(1), Ok(()));
    }
}
