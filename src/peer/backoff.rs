//! Pauses between attempts to reach somebody.

use std::time::Duration;

/// Pauses between attempts to connect grow from the first to the second.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(25), Duration::from_secs(1));

/// Pauses between attempts to connect: they double from 25 ms to 1 s, each shortened by up to a half at random, so that
/// many cases do not knock at the same moment.
#[derive(Debug)]
pub struct Backoff {
    attempts: u32,
    next: Duration,
}

impl Backoff {
    /// The pauses from the shortest on.
    #[must_use]
    pub const fn new() -> Self {
        Self { attempts: 0, next: BACKOFF.0 }
    }

    /// The pause after another attempt that failed.
    pub fn pause(&mut self) -> Duration {
        self.attempts += 1;
        let pause = self.next.mul_f64(1.0 - fastrand::f64() / 2.0);
        self.next = (self.next * 2).min(BACKOFF.1);
        pause
    }

    /// Number of attempts that failed.
    #[must_use]
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}
