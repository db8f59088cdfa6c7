//! The time of a call, which belongs to the agent: what the daemon stands still or reads meanwhile does not count.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tonic::Code;

use super::pulse::stood_still;
use crate::conversation::{CancelReason, Exchange, Failure};

/// The time of a call.
pub(super) struct Time {
    deadline: Instant,
    /// How long the daemon had stood still when the call began.
    stood_before: Duration,
    /// How long it read while the agent's time did not run, in microseconds.
    read: AtomicU64,
}

impl Time {
    pub(super) fn until(deadline: Instant) -> Self {
        Self { deadline, stood_before: stood_still(), read: AtomicU64::new(0) }
    }

    /// How long the daemon read what is large.
    pub(super) fn read(&self) -> Duration {
        Duration::from_micros(self.read.load(Ordering::Relaxed))
    }

    /// Time since the start frame was taken, as far as it is the agent's.
    pub(super) fn of_agent(&self, sent: Option<Instant>) -> Duration {
        sent.map_or(Duration::ZERO, |sent| sent.elapsed().saturating_sub(self.read()))
    }

    /// Waits for something that is read: the time does not run meanwhile.
    pub(super) async fn stopped_for<F: Future>(&self, reading: F) -> F::Output {
        let began = Instant::now();
        let read = reading.await;
        let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.read.fetch_add(took, Ordering::Relaxed);
        read
    }

    fn end(&self) -> Instant {
        self.deadline + self.stood() + self.read()
    }

    /// How long the daemon stood still since the call began.
    pub(super) fn stood(&self) -> Duration {
        stood_still().saturating_sub(self.stood_before)
    }

    pub(super) fn left(&self) -> Duration {
        self.end().saturating_duration_since(Instant::now())
    }

    /// Waits until it is up. A daemon that slept while it ran out goes on reading: what had come until then counts.
    pub(super) async fn up(&self) {
        loop {
            tokio::time::sleep_until(self.end()).await;
            if self.left().is_zero() {
                return;
            }
        }
    }
}

/// Takes from the agent what is the fault of a daemon that stood still for the time `stood` during its call: that time,
/// and a timeout or an end of the call that came of it.
pub(super) fn undecided(exchange: &mut Exchange, stood: Duration) {
    let Exchange { transcript, failure, warnings, grpc_status, .. } = exchange;
    transcript.duration = transcript.duration.saturating_sub(stood);
    let seconds = stood.as_secs_f64();
    let gave_up = [Code::DeadlineExceeded, Code::Cancelled, Code::Unavailable].map(i32::from);
    let is_its_word = grpc_status.is_none_or(|status| gave_up.contains(&status));
    match failure {
        // Its time was longer by as much, so that it is its own.
        Some(Failure::Timeout) if exchange.cancel == Some(CancelReason::Budget) => {}
        Some(Failure::Timeout) => *failure = Some(Failure::Stalled(gave_up_while(seconds))),
        Some(Failure::Agent(_) | Failure::Lost(_)) if is_its_word => {
            *failure = Some(Failure::Stalled(gave_up_while(seconds)));
        }
        _ => {}
    }
    warnings.push(format!("the daemon stood still for {seconds:.1} s during the call, which is not counted"));
}

fn gave_up_while(seconds: f64) -> String {
    format!(
        "the daemon stood still for {seconds:.1} s, and the call was given up meanwhile: nobody can tell how it would have ended"
    )
}
