//! Room for what agents send: an answer is read only while there is room for it.
//!
//! Bytes are counted as they come, before anything is made of them, and belong to their case until its verdict is on its way to the
//! store. Who finds no room does not read, so that flow control of HTTP/2 holds its agent back, and others go on. That never ends in a
//! standstill: beside the room that all cases of a run share there is a place for one case that may grow alone, whatever the others hold.
//! Who waits gets room, or that place, in turn.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::PollSemaphore;
use tonic::Status;

use crate::limits::{CALL_BYTES, CALLS_BYTES};

/// Bytes that a permit stands for. As many are free for each case, so that small answers never wait.
const UNIT: usize = 4 << 10;
/// Least that the cases of a run share, however many runs there are.
const LEAST: usize = 16 << 20;

/// The room of one run.
#[derive(Debug, Clone)]
pub struct Room {
    shared: Arc<Semaphore>,
    /// The place of the case that grows alone.
    alone: Arc<Semaphore>,
}

impl Room {
    /// The part of one of so many runs that go on at the same time.
    #[must_use]
    pub fn of_one_in(runs: usize) -> Self {
        let part = (CALLS_BYTES / runs.max(1)).saturating_sub(CALL_BYTES).max(LEAST);
        Self { shared: Arc::new(Semaphore::new(part / UNIT)), alone: Arc::new(Semaphore::new(1)) }
    }

    /// What a case holds, of which nothing came yet.
    #[must_use]
    pub fn begin(&self) -> Arc<Held> {
        Arc::new(Held(Mutex::new(Inner {
            shared: PollSemaphore::new(Arc::clone(&self.shared)),
            alone: PollSemaphore::new(Arc::clone(&self.alone)),
            bytes: 0,
            most: UNIT,
            permits: None,
            place: None,
            waiting: None,
            waited: Duration::ZERO,
        })))
    }
}

/// What a case holds of the room of its run, for as long as anybody has this.
#[derive(Debug)]
pub struct Held(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    shared: PollSemaphore,
    alone: PollSemaphore,
    bytes: usize,
    /// How many there may be with what it has.
    most: usize,
    permits: Option<OwnedSemaphorePermit>,
    /// The place of the case that grows alone, if it has it.
    place: Option<OwnedSemaphorePermit>,
    waiting: Option<Instant>,
    waited: Duration,
}

impl Held {
    /// For how long its calls waited for room so far, now included.
    #[must_use]
    pub fn waited(&self) -> Duration {
        let inner = self.lock();
        inner.waited + inner.waiting.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Lets a call be read that begins now.
    #[must_use]
    pub fn meter(self: &Arc<Self>) -> Metered {
        Metered(Meter(Arc::new(Mutex::new(Some(Arc::clone(self))))))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Waits until there is room for something.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.bytes >= self.most && self.place.is_none() {
            // What came of a frame was not asked for before it came.
            let units = u32::try_from((self.bytes - self.most) / UNIT + 1).unwrap_or(u32::MAX);
            match self.shared.poll_acquire_many(context, units) {
                Poll::Ready(Some(more)) => {
                    self.most += units as usize * UNIT;
                    match &mut self.permits {
                        Some(permits) => permits.merge(more),
                        permits => *permits = Some(more),
                    }
                }
                // They are never closed.
                Poll::Ready(None) => break,
                Poll::Pending => match self.alone.poll_acquire(context) {
                    Poll::Ready(place) => {
                        self.place = place;
                        // Others may have what it does not need any more.
                        self.permits = None;
                    }
                    Poll::Pending => {
                        self.waiting.get_or_insert_with(Instant::now);
                        return Poll::Pending;
                    }
                },
            }
            // It does not stand in line any more.
            self.shared = PollSemaphore::new(self.shared.clone_inner());
            self.alone = PollSemaphore::new(self.alone.clone_inner());
        }
        self.waited += self.waiting.take().map_or(Duration::ZERO, |since| since.elapsed());
        Poll::Ready(())
    }
}

/// A call that is read as there is room for it, until this is dropped: what comes after that, nobody keeps.
#[derive(Debug)]
pub struct Metered(Meter);

impl Metered {
    /// Goes with the request, to be found by the channel.
    #[must_use]
    pub fn meter(&self) -> Meter {
        self.0.clone()
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        let held = self.0.lock().take();
        if let Some(held) = held {
            let mut inner = held.lock();
            // Whoever read it may have stood in line.
            inner.shared = PollSemaphore::new(inner.shared.clone_inner());
            inner.alone = PollSemaphore::new(inner.alone.clone_inner());
            let inner = &mut *inner;
            inner.waited += inner.waiting.take().map_or(Duration::ZERO, |since| since.elapsed());
        }
    }
}

/// Who counts what comes of a call; nobody does when the call is over.
#[derive(Debug, Clone)]
pub struct Meter(Arc<Mutex<Option<Arc<Held>>>>);

impl Meter {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<Held>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A body that is read as there is room for it.
#[derive(Debug)]
pub struct Roomy<B> {
    body: B,
    meter: Option<Meter>,
}

impl<B> Roomy<B> {
    /// A body that somebody counts, or nobody.
    pub const fn new(body: B, meter: Option<Meter>) -> Self {
        Self { body, meter }
    }
}

impl<B: Body<Data = Bytes, Error = Status> + Unpin> Body for Roomy<B> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let held = self.meter.as_ref().and_then(|meter| meter.lock().clone());
        if let Some(held) = &held {
            ready!(held.lock().poll_room(context));
        }
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let (Some(held), Poll::Ready(Some(Ok(frame)))) = (held, &polled) {
            held.lock().bytes += frame.data_ref().map_or(0, Bytes::len);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures_util::FutureExt as _;

    use super::*;

    fn grow(held: &Held, bytes: usize) {
        held.lock().bytes += bytes;
    }

    async fn room(held: &Held) {
        poll_fn(|context| held.lock().poll_room(context)).await;
    }

    /// Whatever all hold, one can go on to its end, and then the next.
    #[tokio::test]
    async fn one_can_always_go_on() {
        let room_of_run = Room::of_one_in(1_000);
        let mut cases: Vec<_> = (0..4).map(|_| room_of_run.begin()).collect();
        let mut waiting = 0;
        while waiting < 3 {
            for case in &cases {
                // Who waits does not read.
                if case.lock().waiting.is_none() {
                    grow(case, 1 << 20);
                }
            }
            waiting = cases.iter().filter(|case| room(case).now_or_never().is_none()).count();
        }
        while !cases.is_empty() {
            let next = cases.iter().position(|case| room(case).now_or_never().is_some());
            let case = cases.remove(next.expect("one of them can go on"));
            if case.lock().place.is_some() {
                grow(&case, CALL_BYTES);
                assert!(room(&case).now_or_never().is_some(), "it may have as much as one can send");
            }
        }
        assert_eq!(room_of_run.shared.available_permits(), LEAST / UNIT, "all is given back");
    }
}
