//! One attached stream and the calls that are open on it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::windows::{Fault, Sizes, Windows};
use super::{AttachError, MAX_CALLS};
use crate::conversation::Description;
use crate::wire::attach::{
    AttachRequest, AttachResponse, DrainAck, HalfClose, Kind, OpenCall, Ping, Reply, ResetCall, SendFrame,
    WindowUpdate, attach_request, attach_response, cost, status_of,
};

/// How often an agent is asked whether it is there.
pub const PING_INTERVAL: Duration = Duration::from_secs(20);
/// After how many intervals without a frame a stream is lost.
const SILENT_INTERVALS: u32 = 3;
/// Credit that agents have.
pub const SIZES: Sizes = Sizes { call: 256 << 10, stream: 4 << 20 };

/// Frames on their way to an agent. The queue has no end of its own: what is in it is bounded by the credit that the
/// agent gives, and by the number of calls.
pub type Outgoing = mpsc::UnboundedSender<Result<AttachResponse, Status>>;

/// What comes for a call.
#[derive(Debug)]
pub(super) enum Arrival {
    /// A message of the agent.
    Message(Bytes),
    /// The end.
    End(Status),
}

/// An agent that a process serves.
#[derive(Debug)]
pub struct Offer {
    /// The name by which runs find it.
    pub agent_id: String,
    /// Most invocations that it takes at a time, if it says so.
    pub most_at_once: Option<u32>,
    /// The version on its card.
    pub version: String,
    /// What it said about itself; `None`: what all agents say together is too much.
    pub description: Option<Arc<Description>>,
}

impl Offer {
    /// How many invocations it takes at a time.
    fn slots(&self) -> usize {
        let declared = self.most_at_once.and_then(|most| usize::try_from(most).ok());
        declared.filter(|most| *most > 0).map_or(MAX_CALLS, |most| most.min(MAX_CALLS))
    }
}

/// Who is at the other end of a stream.
#[derive(Debug)]
pub struct Identity {
    /// The id of the process.
    pub instance_id: String,
    /// Its address, for people.
    pub address: String,
    /// What it serves.
    pub offers: Vec<Offer>,
    /// Whether its names are nobody's when it is gone.
    pub is_temporary: bool,
}

/// An attached stream.
#[derive(Debug)]
pub struct Session {
    /// Its name.
    pub id: String,
    /// Who is at the other end.
    pub who: Identity,
    /// Since when.
    pub since: Timestamp,
    state: Mutex<State>,
    frames: Outgoing,
    /// Tells those that wait for credit to look again.
    room: Notify,
    /// Tells those that wait for a slot of any session to look again.
    freed: Arc<Notify>,
    over: CancellationToken,
    /// What reads the requests of calls.
    tasks: TaskTracker,
}

#[derive(Debug)]
struct State {
    windows: Windows,
    calls: HashMap<u64, Call>,
    /// Invocations that are open, or about to be, by agent.
    busy: Vec<usize>,
    /// Calls of all kinds that are open, or about to be.
    reserved: usize,
    last: u64,
    is_draining: bool,
    /// Why it is over, if it is.
    ended: Option<String>,
}

#[derive(Debug)]
struct Call {
    kind: Kind,
    agent: usize,
    arriving: mpsc::UnboundedSender<Arrival>,
    closed: CancellationToken,
}

/// A place for a call that is about to be opened.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) session: Arc<Session>,
    kind: Kind,
    agent: usize,
    is_used: bool,
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.is_used {
            self.session.lock().release(self.kind, self.agent);
            self.session.freed.notify_waiters();
        }
    }
}

/// A call that was opened.
pub(super) struct Opened {
    pub(super) session: Arc<Session>,
    pub(super) call_no: u64,
    pub(super) arriving: mpsc::UnboundedReceiver<Arrival>,
    pub(super) closed: CancellationToken,
}

impl State {
    fn release(&mut self, kind: Kind, agent: usize) {
        self.reserved = self.reserved.saturating_sub(1);
        if let Some(busy) = self.busy.get_mut(agent).filter(|_| kind == Kind::Invoke) {
            *busy = busy.saturating_sub(1);
        }
    }

    /// Ends a call for us; gives it, if it was open.
    fn close(&mut self, call_no: u64) -> Option<Call> {
        let call = self.calls.remove(&call_no)?;
        self.windows.close(call_no);
        self.release(call.kind, call.agent);
        call.closed.cancel();
        Some(call)
    }
}

impl Session {
    /// A session of `who`, whose frames go to `frames`. `theirs` is the credit that the agent gives.
    pub(super) fn new(who: Identity, theirs: Sizes, frames: Outgoing, freed: Arc<Notify>) -> Self {
        let state = State {
            windows: Windows::new(SIZES, theirs),
            calls: HashMap::new(),
            busy: vec![0; who.offers.len()],
            reserved: 0,
            last: 0,
            is_draining: false,
            ended: None,
        };
        Self {
            id: uuid::Uuid::new_v4().to_string(),
            who,
            since: Timestamp::now(),
            state: Mutex::new(state),
            frames,
            room: Notify::new(),
            freed,
            over: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }
    }

    /// Reads frames of the agent until the stream ends or is ended; gives the status that the agent is told.
    pub async fn read(&self, frames: impl Stream<Item = Result<AttachRequest, Status>>) -> Status {
        let mut frames = std::pin::pin!(frames);
        let mut pings = tokio::time::interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
        let (mut nonce, mut heard) = (0, Instant::now());
        let (status, why) = loop {
            let frame = tokio::select! {
                () = self.over.cancelled() => {
                    let why = self.lock().ended.clone().unwrap_or_default();
                    break (with_reason(Code::Aborted, "TAKEN_OVER", &why), why);
                }
                _ = pings.tick() => {
                    if heard.elapsed() > PING_INTERVAL * SILENT_INTERVALS {
                        let why = format!("nothing was heard of it for {} s", heard.elapsed().as_secs());
                        break (Status::unavailable(&why), why);
                    }
                    nonce += 1;
                    self.tell(attach_response::Frame::Ping(Ping { nonce }));
                    continue;
                }
                frame = frames.next() => frame,
            };
            heard = Instant::now();
            match frame {
                None => {
                    let why = if self.lock().is_draining { "it left" } else { "it closed its side" };
                    break (Status::ok(""), why.to_owned());
                }
                Some(Err(status)) => {
                    let why = crate::wire::value::shorten(status.message());
                    break (status, if why.is_empty() { "the connection broke".to_owned() } else { why });
                }
                Some(Ok(AttachRequest { frame: Some(frame) })) => {
                    if let Err(status) = self.take_frame(frame) {
                        let why = status.message().to_owned();
                        break (status, why);
                    }
                }
                // A frame of a later revision.
                Some(Ok(AttachRequest { frame: None })) => {}
            }
        };
        self.end(&why);
        self.tasks.close();
        self.tasks.wait().await;
        status
    }

    /// Ends the session. Calls that are open are lost.
    pub fn end(&self, why: &str) {
        let mut state = self.lock();
        if state.ended.is_none() {
            state.ended = Some(why.to_owned());
        }
        for (_, call) in std::mem::take(&mut state.calls) {
            call.closed.cancel();
        }
        drop(state);
        self.over.cancel();
        self.room.notify_waiters();
        self.freed.notify_waiters();
    }

    /// Free slots of one of its agents; `None`: it takes no calls.
    pub(super) fn free(&self, agent: usize, kind: Kind) -> Option<usize> {
        let state = self.lock();
        if state.is_draining || state.ended.is_some() {
            return None;
        }
        let left = MAX_CALLS.saturating_sub(state.reserved);
        let slots = self.who.offers.get(agent)?.slots();
        let busy = state.busy.get(agent).copied().unwrap_or_default();
        Some(if kind == Kind::Invoke { left.min(slots.saturating_sub(busy)) } else { left })
    }

    /// How many invocations of an agent it takes at a time.
    pub(super) fn slots(&self, agent: usize) -> usize {
        self.who.offers.get(agent).map_or(0, Offer::slots)
    }

    /// Whether it opens no further calls because its agent wants to leave.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.lock().is_draining
    }

    /// Takes a place for a call, if one is free.
    pub(super) fn reserve(self: &Arc<Self>, agent: usize, kind: Kind) -> Option<Slot> {
        self.free(agent, kind).filter(|free| *free > 0)?;
        let mut state = self.lock();
        state.reserved += 1;
        if let Some(busy) = state.busy.get_mut(agent).filter(|_| kind == Kind::Invoke) {
            *busy += 1;
        }
        Some(Slot { session: Arc::clone(self), kind, agent, is_used: false })
    }

    /// Waits until the agent has credit for a call that begins, or the session is over.
    pub(super) async fn wait_for_room(&self) {
        self.when(|state| state.windows.may_open().then_some(())).await;
    }

    /// Opens a call.
    ///
    /// # Errors
    /// When the session is over or draining: then the agent has not got the call.
    pub(super) async fn open(
        mut slot: Slot,
        timeout: Option<prost_types::Duration>,
        message: Bytes,
    ) -> Result<Opened, AttachError> {
        let session = Arc::clone(&slot.session);
        let (kind, agent) = (slot.kind, slot.agent);
        let agent_id = session.who.offers.get(agent).map(|offer| offer.agent_id.clone()).unwrap_or_default();
        let opened = session
            .when(|state| {
                if !state.windows.may_open() {
                    return None;
                }
                if state.is_draining {
                    return Some(Err(AttachError::NotTaken));
                }
                let (sender, arriving) = mpsc::unbounded_channel();
                let closed = CancellationToken::new();
                state.last += 1;
                let call_no = state.last;
                state.windows.opened(cost(&message));
                state.windows.open(call_no);
                state.calls.insert(call_no, Call { kind, agent, arriving: sender, closed: closed.clone() });
                slot.is_used = true;
                let call = Some((kind, message.clone()));
                let open = OpenCall { call_no, agent_id: agent_id.clone(), timeout, call };
                session.tell(attach_response::Frame::Open(open));
                Some(Ok((call_no, arriving, closed)))
            })
            .await;
        let (call_no, arriving, closed) = opened.unwrap_or(Err(AttachError::NotTaken))?;
        Ok(Opened { session, call_no, arriving, closed })
    }

    /// Sends a further message of a call, as soon as there is credit for it. Of a call that is over, nothing is sent.
    pub(super) async fn send(&self, call_no: u64, message: Bytes) {
        self.when(|state| {
            if !state.calls.contains_key(&call_no) {
                return Some(());
            }
            state.windows.may_send(call_no).then(|| {
                state.windows.sent(call_no, cost(&message));
                let frame = SendFrame { call_no, invoke: Some(message.clone()) };
                self.tell(attach_response::Frame::Send(frame));
            })
        })
        .await;
    }

    /// Says that a call gets no further messages.
    pub(super) fn half_close(&self, call_no: u64) {
        if self.lock().calls.contains_key(&call_no) {
            self.tell(attach_response::Frame::HalfClose(HalfClose { call_no }));
        }
    }

    /// Gives up a call, if it is open.
    pub(super) fn reset(&self, call_no: u64) {
        if self.lock().close(call_no).is_some() {
            self.tell(attach_response::Frame::Reset(ResetCall { call_no }));
            self.freed.notify_waiters();
            self.room.notify_waiters();
        }
    }

    /// Counts a message that a call has taken.
    pub(super) fn taken(&self, call_no: u64, cost: i64) {
        if let Some(bytes) = self.lock().windows.taken(call_no, cost) {
            self.tell(attach_response::Frame::Window(WindowUpdate { call_no, bytes }));
        }
    }

    /// Why it is over.
    #[must_use]
    pub fn why(&self) -> String {
        self.lock().ended.clone().unwrap_or_else(|| "it ended".to_owned())
    }

    /// Does something for a call until the session is over. The session owns the task.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let over = self.over.clone();
        self.tasks.spawn(async move {
            over.run_until_cancelled(work).await;
        });
    }

    fn take_frame(&self, frame: attach_request::Frame) -> Result<(), Status> {
        match frame {
            attach_request::Frame::Hello(_) => return Err(Status::invalid_argument("hello: comes once, first")),
            attach_request::Frame::Reply(Reply { call_no, payload }) => self.reply(call_no, payload)?,
            attach_request::Frame::End(end) => {
                let mut state = self.lock();
                check_number(&state, end.call_no)?;
                let Some(call) = state.close(end.call_no) else { return Ok(()) };
                drop(state);
                // Who waits for it may be gone.
                let _ = call.arriving.send(Arrival::End(status_of(end.fault)));
                self.freed.notify_waiters();
                self.room.notify_waiters();
            }
            attach_request::Frame::Window(WindowUpdate { call_no, bytes }) => {
                self.lock().windows.granted(call_no, bytes).map_err(windows_broken)?;
                self.room.notify_waiters();
            }
            attach_request::Frame::Pong(_) => {}
            attach_request::Frame::Drain(_) => {
                let mut state = self.lock();
                state.is_draining = true;
                // Before anything else is queued: no call is opened behind it.
                self.tell(attach_response::Frame::DrainAck(DrainAck { last_call_no: state.last }));
                drop(state);
                self.freed.notify_waiters();
                self.room.notify_waiters();
            }
        }
        Ok(())
    }

    fn reply(&self, call_no: u64, payload: Option<(Kind, Bytes)>) -> Result<(), Status> {
        let Some((kind, message)) = payload else { return Ok(()) };
        let mut state = self.lock();
        check_number(&state, call_no)?;
        let back = state.windows.received(Some(call_no), cost(&message)).map_err(windows_broken)?;
        if let Some(bytes) = back {
            self.tell(attach_response::Frame::Window(WindowUpdate { call_no: 0, bytes }));
        }
        let Some(call) = state.calls.get(&call_no) else { return Ok(()) };
        if call.kind != kind {
            let message = format!("reply.call_no: call {call_no} is of another kind than the reply");
            return Err(Status::invalid_argument(message));
        }
        let _ = call.arriving.send(Arrival::Message(message));
        Ok(())
    }

    fn tell(&self, frame: attach_response::Frame) {
        // An agent that has gone needs no frames; the reader of the stream learns that it has.
        let _ = self.frames.send(Ok(AttachResponse { frame: Some(frame) }));
    }

    /// Waits until `look` finds something, at every change; `None`: the session is over.
    async fn when<T>(&self, mut look: impl FnMut(&mut State) -> Option<T>) -> Option<T> {
        loop {
            let changed = self.room.notified();
            {
                let mut state = self.lock();
                if state.ended.is_some() {
                    return None;
                }
                if let Some(found) = look(&mut state) {
                    return Some(found);
                }
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// A frame may come late for a call that is over, but for none that never was.
fn check_number(state: &State, call_no: u64) -> Result<(), Status> {
    if (1..=state.last).contains(&call_no) {
        return Ok(());
    }
    Err(Status::invalid_argument(format!("call_no: {call_no} was never opened; the last one is {}", state.last)))
}

fn windows_broken(fault: Fault) -> Status {
    let reason = match fault {
        Fault::Overrun => "WINDOW_OVERRUN",
        Fault::TooMuch => "WINDOW_TOO_LARGE",
    };
    with_reason(Code::ResourceExhausted, reason, &fault.to_string())
}

fn with_reason(code: Code, reason: &str, message: &str) -> Status {
    let details = ErrorDetails::with_error_info(reason, "forge", HashMap::new());
    Status::with_error_details(code, format!("{reason}: {message}"), details)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::attach::Hub;

    type Sent = mpsc::UnboundedReceiver<Result<AttachResponse, Status>>;

    /// A session of an agent with two slots, and what is sent to the agent.
    fn session() -> (Hub, Arc<Session>, Sent) {
        session_of(2)
    }

    fn session_of(slots: u32) -> (Hub, Arc<Session>, Sent) {
        let (hub, (frames, sent)) = (Hub::default(), mpsc::unbounded_channel());
        let description = Some(Arc::new(Description::default()));
        let offers =
            vec![Offer { agent_id: "a".to_owned(), most_at_once: Some(slots), version: String::new(), description }];
        let who = Identity { instance_id: "1".to_owned(), address: String::new(), offers, is_temporary: false };
        let theirs = Sizes { call: 100, stream: 100_000 };
        let welcome = |_: &Session| Err(Status::ok("welcome"));
        let session = hub.enter(who, "", theirs, &frames, welcome).expect("it is alone");
        (hub, session, sent)
    }

    async fn open(session: &Arc<Session>) -> Opened {
        let slot = session.reserve(0, Kind::Invoke).expect("a slot");
        Session::open(slot, None, Bytes::from_static(b"x")).await.expect("it is open")
    }

    fn reply(call_no: u64, bytes: usize) -> attach_request::Frame {
        attach_request::Frame::Reply(Reply { call_no, payload: Some((Kind::Invoke, vec![0; bytes].into())) })
    }

    /// A call that nobody reads takes what its window holds, and no more; another one is not held up by it.
    #[tokio::test]
    async fn a_window_that_is_overrun_ends_the_stream() {
        let (_hub, session, _sent) = session();
        let (unread, mut read) = (open(&session).await, open(&session).await);
        assert!(session.reserve(0, Kind::Invoke).is_none(), "there are two slots");
        let piece = 64 << 10;
        // The last one may be larger than what is left.
        for _ in 0..4 {
            session.take_frame(reply(unread.call_no, piece)).expect("there is credit");
        }
        for _ in 0..100 {
            session.take_frame(reply(read.call_no, piece)).expect("the other call is not held up");
            let Some(Arrival::Message(message)) = read.arriving.recv().await else { panic!("a message") };
            session.taken(read.call_no, cost(&message));
        }
        let status = session.take_frame(reply(unread.call_no, 1)).expect_err("it overruns");
        assert!(status.code() == Code::ResourceExhausted && status.message().contains("WINDOW_OVERRUN"), "{status:?}");
    }

    /// Of 200 calls one is read by nobody: all others get everything, and what waits is what one window holds.
    #[tokio::test]
    async fn a_call_that_nobody_reads_holds_up_no_other() {
        let (_hub, session, _sent) = session_of(200);
        let mut unread = open(&session).await;
        let piece = 32 << 10;
        let frame = cost(&vec![0; piece].into());
        let mut waiting = 0;
        while waiting < i64::from(SIZES.call) {
            session.take_frame(reply(unread.call_no, piece)).expect("there is credit");
            waiting += frame;
        }
        let mut others = Vec::new();
        for _ in 1..200 {
            others.push(open(&session).await);
        }
        for round in 0..32 {
            for other in &mut others {
                session.take_frame(reply(other.call_no, piece)).unwrap_or_else(|why| panic!("round {round}: {why}"));
                let Some(Arrival::Message(message)) = other.arriving.recv().await else { panic!("a message") };
                session.taken(other.call_no, cost(&message));
            }
        }
        let mut held = 0;
        while let Ok(Arrival::Message(message)) = unread.arriving.try_recv() {
            held += cost(&message);
        }
        assert_eq!(held, waiting);
        assert!(held < i64::from(SIZES.call) + frame, "{held}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_sent_waits_for_credit() {
        let (_hub, session, mut sent) = session();
        let call = open(&session).await;
        session.send(call.call_no, vec![0; 500].into()).await;
        let waiting = session.send(call.call_no, vec![0; 1].into());
        let waited = tokio::time::timeout(Duration::from_secs(1), waiting).await;
        assert!(waited.is_err(), "the agent gave credit for 100 bytes");
        let credit = WindowUpdate { call_no: call.call_no, bytes: 600 };
        session.take_frame(attach_request::Frame::Window(credit)).expect("credit");
        session.send(call.call_no, vec![0; 1].into()).await;
        session.reset(call.call_no);
        session.send(call.call_no, vec![0; 1].into()).await;
        let mut kinds = Vec::new();
        while let Ok(frame) = sent.try_recv() {
            kinds.push(match frame {
                Ok(AttachResponse { frame: Some(attach_response::Frame::Open(_)) }) => "open",
                Ok(AttachResponse { frame: Some(attach_response::Frame::Send(_)) }) => "send",
                Ok(AttachResponse { frame: Some(attach_response::Frame::Reset(_)) }) => "reset",
                _ => "other",
            });
        }
        assert_eq!(kinds, ["other", "open", "send", "send", "reset"]);
    }

    /// An agent that says nothing for a minute is gone, and so are its calls.
    #[tokio::test(start_paused = true)]
    async fn a_silent_agent_is_gone() {
        let (hub, session, mut sent) = session();
        let mut call = open(&session).await;
        let status = session.read(futures_util::stream::pending()).await;
        assert_eq!(status.code(), Code::Unavailable);
        assert!(session.why().starts_with("nothing was heard of it for"), "{}", session.why());
        assert!(call.arriving.recv().await.is_none());
        hub.leave(&session);
        assert!(hub.knows("a") && !hub.is_attached("a"));
        let pings = std::iter::from_fn(|| sent.try_recv().ok())
            .filter(|frame| matches!(frame, Ok(AttachResponse { frame: Some(attach_response::Frame::Ping(_)) })));
        assert_eq!(pings.count(), 3);
        assert!(hub.reserve("a", Kind::Invoke).await.is_none());
    }
}
