//! Credit of an attached stream and of its calls, counted the same on both ends.

use std::collections::HashMap;

/// Most credit that a side may have been given; more is a fault of the other one.
const MOST: i64 = 1 << 31;
/// Most credit that is used, however much is given: so much, and one frame, may wait for a side that takes nothing.
const USED: i64 = 16 << 20;

/// The credit of a call or of the stream.
#[derive(Debug, Clone, Copy)]
struct Window {
    /// Bytes that we may send. One frame may bring it below zero.
    ours: i64,
    /// Bytes that the other side may send.
    theirs: i64,
    /// Bytes that were taken, and are not given back yet.
    taken: i64,
}

impl Window {
    fn new(ours: u32, theirs: u32) -> Self {
        Self { ours: i64::from(ours).min(USED), theirs: i64::from(theirs), taken: 0 }
    }

    fn receive(&mut self, cost: i64) -> Result<(), Fault> {
        if self.theirs <= 0 {
            return Err(Fault::Overrun);
        }
        self.theirs -= cost;
        Ok(())
    }

    /// Counts what was taken; gives what is to be given back, in steps of half the window.
    fn take(&mut self, cost: i64, whole: u32) -> Option<u32> {
        self.taken += cost;
        if self.taken < i64::from(whole / 2) {
            return None;
        }
        let back = std::mem::take(&mut self.taken);
        self.theirs += back;
        u32::try_from(back).ok()
    }

    fn grant(&mut self, bytes: u32) -> Result<(), Fault> {
        let given = self.ours + i64::from(bytes);
        self.ours = given.min(USED);
        if given > MOST { Err(Fault::TooMuch) } else { Ok(()) }
    }
}

/// What the other side did wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It sent without credit.
    #[error("a frame was sent without credit for it")]
    Overrun,
    /// It gave more credit than there can be.
    #[error("credit of more than {MOST} bytes was given")]
    TooMuch,
}

/// How large windows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Credit for each call, in bytes.
    pub call: u32,
    /// Credit for the stream, in bytes.
    pub stream: u32,
}

/// The credit of a stream and of the calls that are open on it.
#[derive(Debug)]
pub struct Windows {
    ours: Sizes,
    theirs: Sizes,
    stream: Window,
    calls: HashMap<u64, Window>,
}

impl Windows {
    /// A stream on which we begin with credit of `theirs`, and the other side with credit of `ours`.
    #[must_use]
    pub fn new(ours: Sizes, theirs: Sizes) -> Self {
        Self { ours, theirs, stream: Window::new(theirs.stream, ours.stream), calls: HashMap::new() }
    }

    /// A call begins.
    pub fn open(&mut self, call: u64) {
        self.calls.insert(call, Window::new(self.theirs.call, self.ours.call));
    }

    /// A call is over. What comes for it later counts for the stream alone.
    pub fn close(&mut self, call: u64) {
        self.calls.remove(&call);
    }

    /// Whether the frame that begins a call may be sent.
    #[must_use]
    pub const fn may_open(&self) -> bool {
        self.stream.ours > 0
    }

    /// Counts the frame that begins a call, which was sent.
    pub const fn opened(&mut self, cost: i64) {
        self.stream.ours -= cost;
    }

    /// Whether a frame of a call may be sent. Of one that is over, nothing is sent.
    #[must_use]
    pub fn may_send(&self, call: u64) -> bool {
        self.stream.ours > 0 && self.calls.get(&call).is_some_and(|call| call.ours > 0)
    }

    /// Counts a frame that was sent.
    pub fn sent(&mut self, call: u64, cost: i64) {
        self.stream.ours -= cost;
        if let Some(call) = self.calls.get_mut(&call) {
            call.ours -= cost;
        }
    }

    /// Counts a frame that came, which is put where its call finds it; gives what the stream gives back. One that
    /// begins a call counts for the stream alone.
    ///
    /// # Errors
    /// When there was no credit for it.
    pub fn received(&mut self, call: Option<u64>, cost: i64) -> Result<Option<u32>, Fault> {
        self.stream.receive(cost)?;
        if let Some(call) = call.and_then(|call| self.calls.get_mut(&call)) {
            call.receive(cost)?;
        }
        Ok(self.stream.take(cost, self.ours.stream))
    }

    /// Counts a frame that a call has taken; gives what the call gives back.
    pub fn taken(&mut self, call: u64, cost: i64) -> Option<u32> {
        self.calls.get_mut(&call)?.take(cost, self.ours.call)
    }

    /// Takes credit that was given; 0 is the stream.
    ///
    /// # Errors
    /// When it is more than there can be.
    pub fn granted(&mut self, call: u64, bytes: u32) -> Result<(), Fault> {
        if call == 0 {
            return self.stream.grant(bytes);
        }
        // One that is over needs none.
        self.calls.get_mut(&call).map_or(Ok(()), |call| call.grant(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes { call: 100, stream: 1_000 };

    #[test]
    fn a_call_that_nobody_reads_holds_up_nobody() {
        let mut windows = Windows::new(SIZES, SIZES);
        windows.open(1);
        windows.open(2);
        assert_eq!(windows.received(Some(1), 90), Ok(None));
        // The last one may be larger than what is left.
        assert_eq!(windows.received(Some(1), 500), Ok(Some(590)));
        assert_eq!(windows.received(Some(1), 1), Err(Fault::Overrun));
        assert_eq!(windows.received(Some(2), 60), Ok(None));
        assert_eq!(windows.taken(2, 60), Some(60));
        assert_eq!(windows.taken(1, 90), Some(90));
        assert_eq!(windows.received(Some(1), 1), Err(Fault::Overrun), "it owes 400");
        assert_eq!(windows.taken(1, 500), Some(500));
        assert_eq!(windows.received(Some(1), 1), Ok(None));
    }

    #[test]
    fn nothing_is_sent_without_credit() {
        let mut windows = Windows::new(SIZES, SIZES);
        assert!(windows.may_open());
        windows.opened(950);
        windows.open(1);
        windows.open(2);
        assert!(windows.may_send(1));
        windows.sent(1, 120);
        assert!(!windows.may_open() && !windows.may_send(1) && !windows.may_send(2));
        assert_eq!(windows.granted(0, 500), Ok(()));
        assert!(windows.may_open() && !windows.may_send(1) && windows.may_send(2) && !windows.may_send(3));
        assert_eq!(windows.granted(1, 21), Ok(()));
        assert!(windows.may_send(1));
        windows.close(1);
        assert!(!windows.may_send(1));
        assert_eq!(windows.granted(1, 1), Ok(()), "it is late");
        assert_eq!(windows.granted(0, u32::MAX), Err(Fault::TooMuch));
        // More than is used is no fault, and is not used.
        let mut windows = Windows::new(SIZES, Sizes { call: 100, stream: 1 << 30 });
        windows.opened(USED);
        assert!(!windows.may_open());
    }

    #[test]
    fn what_comes_late_counts_for_the_stream() {
        let mut windows = Windows::new(SIZES, SIZES);
        assert_eq!(windows.received(Some(7), 499), Ok(None));
        assert_eq!(windows.received(None, 1), Ok(Some(500)));
        assert_eq!(windows.taken(7, 499), None);
    }
}
