//! Whether this process stands still: frozen by the system, starved of processors, or with all its threads held up.
//! Time that passes then is nobody else's.
//!
//! A beat comes every few hundredths of a second. When the next one is late, the process stood still meanwhile; that is
//! seen at once, also by those who wake before the beat does. A single future that holds up a thread is told by
//! [`watched`].

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::work::given_away;

/// Time from one beat to the next.
const BEAT: Duration = Duration::from_millis(50);
/// What is late by more than this is told, and counts.
pub const STILL: Duration = Duration::from_millis(250);

/// The one of this process, which is what stands still.
static PULSE: Mutex<Pulse> = Mutex::new(Pulse { last: None, stood: Duration::ZERO });

#[derive(Debug)]
struct Pulse {
    /// The last beat; `None`: nobody beats, and nothing is known.
    last: Option<Instant>,
    /// How long the process stood still so far.
    stood: Duration,
}

impl Pulse {
    /// By how much the next beat is late, if that counts.
    fn late(&self, now: Instant) -> Duration {
        let late = self.last.map_or(Duration::ZERO, |last| now.saturating_duration_since(last).saturating_sub(BEAT));
        if late > STILL { late } else { Duration::ZERO }
    }

    /// Notes a beat, and says for how long the process stood still before it.
    fn beat(&mut self, now: Instant) -> Duration {
        let late = self.late(now);
        self.stood += late;
        self.last = Some(now);
        late
    }
}

fn pulse() -> MutexGuard<'static, Pulse> {
    PULSE.lock()
}

/// How long the process stood still so far, now included. What happens between two looks lost the difference.
#[must_use]
pub fn stood_still() -> Duration {
    let pulse = pulse();
    pulse.stood + pulse.late(Instant::now())
}

/// Beats for ever.
pub async fn beat() {
    loop {
        let stood = pulse().beat(Instant::now());
        if !stood.is_zero() {
            tracing::warn!(?stood, "the daemon stood still; the time is nobody's");
        }
        tokio::time::sleep(BEAT).await;
    }
}

/// A future that is told when it holds up its thread.
pub fn watched<F: Future>(what: &'static str, future: F) -> impl Future<Output = F::Output> {
    let mut future = Box::pin(future);
    std::future::poll_fn(move |context| polled(what, future.as_mut(), context))
}

/// Polls something, and tells when that took too long.
fn polled<F: Future>(what: &'static str, future: Pin<&mut F>, context: &mut Context<'_>) -> Poll<F::Output> {
    let (began, given_before) = (Instant::now(), given_away());
    let polled = future.poll(context);
    // Nobody else waited for the thread meanwhile.
    let took = began.elapsed().saturating_sub(given_away().saturating_sub(given_before));
    if took > STILL {
        tracing::warn!(what, ?took, "something held up a thread");
    }
    polled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_late_was_stood_still() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut pulse = Pulse { last: None, stood: Duration::ZERO };
        assert_eq!(pulse.late(at(10_000)), Duration::ZERO, "nobody beats yet");
        pulse.beat(start);
        assert_eq!(pulse.beat(at(60)), Duration::ZERO);
        assert_eq!(pulse.late(at(350)), Duration::ZERO, "a little late is none");
        // A task that wakes before the beat knows it, too.
        assert_eq!(pulse.late(at(8_110)), Duration::from_secs(8));
        assert_eq!(pulse.beat(at(8_110)), Duration::from_secs(8));
        assert_eq!((pulse.late(at(8_110)), pulse.stood), (Duration::ZERO, Duration::from_secs(8)));
    }
}
