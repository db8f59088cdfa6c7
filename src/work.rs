//! Work whose size others choose: off the runtime, with a budget of CPU time, stoppable, and fair between those who
//! have some.
//!
//! A pattern, an assertion on a large answer, a comparison of what two sides sent: the author of the suite or of the
//! agent decides how long that takes. On a thread of the runtime it would hold up everybody. So it is done on threads
//! of its own, which the system prefers all others to:
//!
//! ```
//! # async fn example() -> Result<(), forge::work::Undecided> {
//! use forge::limits::JUDGING_CPU;
//! use forge::work::{Work, is_over, off_the_runtime};
//!
//! let stop = tokio_util::sync::CancellationToken::new();
//! let texts = vec!["one".to_owned(), "two".to_owned()];
//! let work = Work { owner: "the id of the run, or who asks", cpu: JUDGING_CPU, memory: 0 };
//! let found = off_the_runtime(work, &stop, move || {
//!     // Everything that takes long looks whether it may go on; what it has not looked at, it has not decided.
//!     texts.iter().map(|text| (!is_over()).then(|| text.contains("w"))).collect::<Vec<_>>()
//! });
//! assert_eq!(found.await?, [Some(false), Some(true)]);
//! # Ok(())
//! # }
//! ```
//!
//! What is always read to its end, such as JSON that came, goes through [`read_apart`]. What only copies, hashes or
//! writes is [`in_place`]: it needs what it borrows, and takes milliseconds.
//!
//! [`is_over`] is asked of the thread, not of a value that is handed down: engines of patterns and validators of
//! schemas hand nothing to those whom they call. Where no such work is being done nothing is ever over, so the same
//! functions can be used anywhere.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::limits::{WORK_AT_ONCE, WORK_MEMORY, WORK_THREADS, WORK_WAITING};

/// What takes longer goes on at the lowest priority.
const LONG: Duration = Duration::from_millis(250);
/// Most bytes that are read on a runtime thread: a millisecond or two.
pub const QUICK_BYTES: usize = 64 << 10;
/// Most bytes that are copied, hashed or written there.
const QUICK_COPY: usize = 1 << 20;
/// How many times a text the memory is that JSON may take when it is read.
pub const JSON_MEMORY: usize = 10;
/// Memory that is not counted, in bytes.
const LITTLE: usize = 8 << 20;
/// Stack of a thread, in bytes.
const STACK: usize = 4 << 20;
/// How much lower the priority of these threads is than that of the runtime, and that of what takes long.
#[cfg(target_os = "linux")]
const PRIORITIES: [i32; 2] = [5, 19];

/// What is known of some work before it is done.
#[derive(Debug, Clone, Copy)]
pub struct Work<'a> {
    /// Whose it is: the id of a run, or who asks. Those who have some take turns.
    pub owner: &'a str,
    /// CPU time that it may take.
    pub cpu: Duration,
    /// Memory that it may take, in bytes, as far as anybody can tell: what would take too much together waits.
    pub memory: usize,
}

/// Why some work came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Undecided {
    /// Its caller does not want it any more.
    #[error("it was stopped")]
    Stopped,
    /// Too much waits already.
    #[error("the daemon has too much to do")]
    Full,
    /// It panicked, or no thread can be had for it.
    #[error("the daemon failed while it worked: {0}")]
    Failed(String),
}

/// Does some work on a thread that is no runtime thread, when its turn comes. Dropped, the work is stopped.
///
/// The work itself asks [`is_over`], and then returns what it has.
///
/// # Errors
/// When it gave no answer: it was stopped, died, or has no room.
pub async fn off_the_runtime<T: Send + 'static>(
    work: Work<'_>,
    stop: &CancellationToken,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Undecided> {
    let (sender, answer) = oneshot::channel();
    let stopped = Arc::new(AtomicBool::new(false));
    let _guard = StopOnDrop(Arc::clone(&stopped));
    let run = Box::new(move || {
        let done = catch_unwind(AssertUnwindSafe(job)).map_err(|panic| Undecided::Failed(words_of(&*panic)));
        // Nobody waits for it any more.
        drop(sender.send(done));
    });
    // What takes little is not counted: it waits for nobody's memory.
    let memory = if work.memory < LITTLE { 0 } else { work.memory.min(WORK_MEMORY) };
    DESK.put(work.owner, Item { cpu: work.cpu, memory, stopped, run })?;
    tokio::select! {
        biased;
        () = stop.cancelled() => Err(Undecided::Stopped),
        done = answer => done.unwrap_or_else(|_| Err(Undecided::Failed("it was given up".to_owned()))),
    }
}

/// Reads `bytes` bytes of something, such as JSON: at once where they are few, else off the runtime.
///
/// Reading waits for no judging of its owner, and is fair between owners like all such work. It always ends, so it has
/// no budget of CPU time.
///
/// # Errors
/// As [`off_the_runtime`].
pub async fn read_apart<T: Send + 'static>(
    owner: &str,
    bytes: usize,
    stop: &CancellationToken,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Undecided> {
    if bytes <= QUICK_BYTES {
        return Ok(job());
    }
    let owner = format!("{owner} reads");
    let work = Work { owner: &owner, cpu: Duration::MAX, memory: bytes.saturating_mul(JSON_MEMORY) };
    off_the_runtime(work, stop, job).await
}

/// Copies, hashes or writes `bytes` bytes that cannot be handed to another thread. Where they are many, the runtime
/// takes all else that this thread had to do to another one first.
pub fn in_place<T>(bytes: usize, job: impl FnOnce() -> T) -> T {
    let is_shared = || Handle::try_current().is_ok_and(|it| it.runtime_flavor() == RuntimeFlavor::MultiThread);
    if bytes <= QUICK_COPY || !is_shared() {
        return job();
    }
    let began = Instant::now();
    let done = tokio::task::block_in_place(job);
    GIVEN_AWAY.set(GIVEN_AWAY.get() + began.elapsed());
    done
}

/// Time during which this thread was no runtime thread, because of [`in_place`].
#[must_use]
pub fn given_away() -> Duration {
    GIVEN_AWAY.get()
}

/// Whether the work that this thread does has to end: its CPU time is used up, or nobody wants it any more. Takes about
/// a microsecond.
#[must_use]
pub fn is_over() -> bool {
    CURRENT.with_borrow_mut(|current| current.as_mut().is_some_and(Budget::is_over))
}

/// CPU time that this thread has used.
#[must_use]
pub fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic").to_owned()
}

struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

thread_local! {
    /// What the work on this thread may still take; `None`: it does none.
    static CURRENT: RefCell<Option<Budget>> = const { RefCell::new(None) };
    static GIVEN_AWAY: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

struct Budget {
    /// On the CPU clock of the thread.
    long: Duration,
    end: Duration,
    stopped: Arc<AtomicBool>,
    is_long: bool,
}

impl Budget {
    fn is_over(&mut self) -> bool {
        let now = cpu_time();
        if !self.is_long && now > self.long {
            self.is_long = true;
            lower_priority(1);
        }
        now > self.end || self.stopped.load(Ordering::Relaxed)
    }
}

/// Lets other threads go first. What was given away cannot be had back.
fn lower_priority(step: usize) {
    // Elsewhere a process has one priority for all its threads.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, PRIORITIES[step]);
    #[cfg(not(target_os = "linux"))]
    let _ = step;
}

/// One piece of work.
struct Item {
    cpu: Duration,
    memory: usize,
    stopped: Arc<AtomicBool>,
    run: Box<dyn FnOnce() + Send>,
}

/// The threads belong to the process, as its memory does.
static DESK: LazyLock<Desk> = LazyLock::new(Desk::default);

/// Work that waits, and who does it.
#[derive(Default)]
struct Desk {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    owners: HashMap<Arc<str>, Owner>,
    /// Owners of work that waits; whose turn it is stands first.
    turns: VecDeque<Arc<str>>,
    waiting: usize,
    threads: usize,
    idle: usize,
    /// Memory of what is being done, in bytes.
    memory: usize,
}

#[derive(Default)]
struct Owner {
    waiting: VecDeque<Item>,
    working: usize,
}

impl State {
    /// The next piece of work, in turns.
    fn next(&mut self) -> Option<(Arc<str>, Item)> {
        let mut is_short = false;
        for turn in 0..self.turns.len() {
            let owner = self.owners.get_mut(&self.turns[turn])?;
            let needed = owner.waiting.front()?.memory;
            let has_room = needed == 0 || (!is_short && (self.memory == 0 || self.memory + needed <= WORK_MEMORY));
            if owner.working >= WORK_AT_ONCE || !has_room {
                // Who waits for memory is not passed by others who want some.
                is_short |= !has_room;
                continue;
            }
            let item = owner.waiting.pop_front()?;
            owner.working += 1;
            let is_empty = owner.waiting.is_empty();
            let name = self.turns.remove(turn)?;
            if !is_empty {
                self.turns.push_back(Arc::clone(&name));
            }
            self.waiting -= 1;
            self.memory += item.memory;
            return Some((name, item));
        }
        None
    }

    fn done(&mut self, name: &str, memory: usize) {
        self.memory -= memory;
        if let Some(owner) = self.owners.get_mut(name) {
            owner.working -= 1;
            if owner.working == 0 && owner.waiting.is_empty() {
                self.owners.remove(name);
            }
        }
    }
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn put(&'static self, owner: &str, item: Item) -> Result<(), Undecided> {
        let mut state = self.lock();
        if state.waiting >= WORK_WAITING {
            return Err(Undecided::Full);
        }
        if state.idle <= state.waiting && state.threads < WORK_THREADS {
            let thread = std::thread::Builder::new().name("work".to_owned()).stack_size(STACK);
            match thread.spawn(move || self.work()) {
                Ok(_) => state.threads += 1,
                // Others will come to it.
                Err(_) if state.threads > 0 => {}
                Err(error) => return Err(Undecided::Failed(format!("no thread can be had: {error}"))),
            }
        }
        let name: Arc<str> = owner.into();
        let queue = &mut state.owners.entry(Arc::clone(&name)).or_default().waiting;
        queue.push_back(item);
        if queue.len() == 1 {
            state.turns.push_back(name);
        }
        state.waiting += 1;
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// What a thread does: work, in turns, until there is more than enough of its kind.
    fn work(&self) {
        lower_priority(0);
        let mut is_long = false;
        let mut state = self.lock();
        while !is_long {
            let Some((owner, item)) = state.next() else {
                // A few are kept for what comes next.
                if state.idle >= WORK_AT_ONCE {
                    break;
                }
                state.idle += 1;
                self.changed.wait(&mut state);
                state.idle -= 1;
                continue;
            };
            drop(state);
            let Item { cpu, memory, stopped, run } = item;
            if !stopped.load(Ordering::Relaxed) {
                let now = cpu_time();
                let (long, end) = (now + LONG, now.saturating_add(cpu));
                CURRENT.set(Some(Budget { long, end, stopped, is_long: false }));
                run();
                is_long = CURRENT.take().is_some_and(|budget| budget.is_long);
            }
            state = self.lock();
            state.done(&owner, memory);
            // Others may have waited for this memory, or for this turn.
            self.changed.notify_one();
        }
        state.threads -= 1;
        // What waits needs a thread, if this was the last.
        if is_long && state.waiting > 0 && state.idle == 0 {
            let name = std::thread::current().name().unwrap_or("work").to_owned();
            drop(state);
            let thread = std::thread::Builder::new().name(name).stack_size(STACK);
            if thread.spawn(|| DESK.work()).is_ok() {
                self.lock().threads += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn work(owner: &str, cpu: Duration) -> Work<'_> {
        Work { owner, cpu, memory: 0 }
    }

    /// Goes on until it is told to end, and says how much CPU time that took.
    fn endless() -> Duration {
        let began = cpu_time();
        while !is_over() {
            std::hint::black_box((0..1_000_u32).sum::<u32>());
        }
        cpu_time().saturating_sub(began)
    }

    #[tokio::test]
    async fn work_ends_with_its_time_and_when_its_caller_leaves() {
        let stop = CancellationToken::new();
        let cpu = Duration::from_millis(30);
        let took = off_the_runtime(work("time", cpu), &stop, endless).await.expect("it ends");
        // The clock began a little before the work did.
        assert!(took > cpu / 2 && took < Duration::from_secs(10), "{took:?}");

        let (ended, has_ended) = std::sync::mpsc::channel();
        let waits = off_the_runtime(work("stop", Duration::MAX), &stop, move || {
            endless();
            ended.send(()).expect("somebody waits");
        });
        let (said, ()) = tokio::join!(waits, async { stop.cancel() });
        assert_eq!(said, Err(Undecided::Stopped));
        // Either it did not begin, or it ends.
        let _ = has_ended.recv_timeout(Duration::from_secs(20)).inspect_err(|error| {
            assert_eq!(*error, std::sync::mpsc::RecvTimeoutError::Disconnected);
        });

        let panics = || -> () { panic!("on purpose") };
        let said = off_the_runtime(work("panic", cpu), &CancellationToken::new(), panics).await;
        assert_eq!(said, Err(Undecided::Failed("on purpose".to_owned())));
        assert!(!is_over(), "here is no such work");
    }

    /// One who has a thousand things to do does not hold up the next one: in turns, and not before each other's time.
    #[tokio::test]
    async fn owners_take_turns() {
        let stop = CancellationToken::new();
        let hogs: Vec<_> = (0..4 * WORK_AT_ONCE)
            .map(|_| {
                let stop = stop.clone();
                tokio::spawn(async move { off_the_runtime(work("hog", Duration::from_mins(1)), &stop, endless).await })
            })
            .collect();
        tokio::task::yield_now().await;
        let began = Instant::now();
        for _ in 0..20 {
            off_the_runtime(work("other", Duration::from_secs(1)), &stop, || ()).await.expect("it is done");
        }
        assert!(began.elapsed() < Duration::from_secs(20), "hogs have a minute each: {:?}", began.elapsed());
        stop.cancel();
        for hog in hogs {
            assert_eq!(hog.await.expect("no panic"), Err(Undecided::Stopped));
        }
    }

    #[test]
    fn what_takes_too_much_memory_together_waits() {
        let item = |memory| Item { cpu: Duration::ZERO, memory, stopped: Arc::default(), run: Box::new(|| ()) };
        let mut state = State::default();
        for (owner, memory) in [("a", WORK_MEMORY / 2), ("b", WORK_MEMORY), ("c", WORK_MEMORY / 4), ("d", 0)] {
            state.owners.entry(owner.into()).or_default().waiting.push_back(item(memory));
            state.turns.push_back(owner.into());
            state.waiting += 1;
        }
        let mut next = || state.next().map(|(owner, item)| (owner.to_string(), item.memory));
        assert_eq!(next(), Some(("a".to_owned(), WORK_MEMORY / 2)));
        // `b` has no room, and `c` does not pass it.
        assert_eq!(next(), Some(("d".to_owned(), 0)));
        assert_eq!(next(), None);
        state.done("a", WORK_MEMORY / 2);
        assert_eq!(state.next().map(|(owner, _)| owner.to_string()), Some("b".to_owned()));
    }
}
