//! Answers that wait for their clients: answers on their way, what is read ahead for them, and reports that are being
//! written.
//!
//! Each answer is made in a task of its own, which never waits for the client while it holds something of the store. It
//! hands out one piece at a time. All answers together have a limit in bytes. When it is reached, answers that their
//! clients do not take are ended, beginning with the client that holds most; the others wait for their turn.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::Response;
use axum::middleware::Next;
use bytes::Buf as _;
use http_body::{Body as HttpBody, Frame};
use http_body_util::BodyExt as _;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Code, Status};

use super::door::GuestInfo;
use super::status::{BUSY, with_reason};
use super::turns::{Party, Turn, Turns};
use crate::limits::{OPEN_REPORTS, WAITING_FOR_CLIENTS};
use crate::run::pulse::watched;

/// The calls that this is about begin so.
const PATHS: &str = "/forge.control.v1.";
/// Bytes that a client is given at a time: what it does not take stays here, where it can be thrown away.
const PIECE: usize = 16 << 10;
/// A client that has not taken its next piece for so long may lose it to others.
const IDLE: Duration = Duration::from_secs(1);
/// Answers for which something is read at the same time: nobody knows how much it is before it is there.
const READING: usize = 4;
/// Pause between two looks for room.
const LOOK: Duration = Duration::from_millis(20);

/// All answers that are on their way.
#[derive(Debug)]
pub(super) struct Outbox {
    lines: Mutex<Lines>,
    turns: Arc<Turns>,
}

#[derive(Debug, Default)]
struct Lines {
    next: u64,
    all: HashMap<u64, Line>,
    held: usize,
}

/// One answer that is on its way.
#[derive(Debug)]
struct Line {
    client: Option<usize>,
    /// Bytes that were read for it and are not in its text yet.
    read: usize,
    /// Bytes of its text that the client has not taken.
    written: usize,
    is_report: bool,
    /// Since when the client has not taken its next piece; `None`: it waits for us.
    waiting_since: Option<Instant>,
    task: Option<AbortHandle>,
}

impl Line {
    fn is_idle(&self) -> bool {
        self.waiting_since.is_some_and(|since| since.elapsed() > IDLE)
    }
}

impl Default for Outbox {
    fn default() -> Self {
        Self { lines: Mutex::default(), turns: Turns::new(READING) }
    }
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Lines> {
        // Nothing panics while the lock is held, and everything is whole after every statement.
        self.lines.lock()
    }
}

impl Lines {
    /// Ends an answer so that there is room for another one: one that its client does not take, else one of a client
    /// that has more than twice as much as the client of `asks`. `false`: there is none.
    fn end_one(&mut self, asks: u64, weight: fn(&Line) -> usize) -> bool {
        let mut of_clients: HashMap<Option<usize>, usize> = HashMap::new();
        for line in self.all.values() {
            *of_clients.entry(line.client).or_default() += weight(line);
        }
        let of = |line: &Line| of_clients.get(&line.client).copied().unwrap_or_default();
        let mine = self.all.get(&asks).map_or(0, of);
        let whose = self.all.get(&asks).map(|line| line.client);
        let can_end = |(id, line): &(&u64, &Line)| {
            let is_own_fault = whose == Some(line.client) && of(line) > WAITING_FOR_CLIENTS;
            **id != asks && weight(line) > 0 && (line.is_idle() || of(line) > 2 * mine.max(1) || is_own_fault)
        };
        let longest = |line: &Line| line.waiting_since.map_or(Duration::ZERO, |since| since.elapsed());
        let victim = self.all.iter().filter(can_end).max_by_key(|(_, line)| (line.is_idle(), of(line), longest(line)));
        let Some((id, _)) = victim.map(|(id, line)| (*id, line)) else { return false };
        self.remove(id);
        true
    }

    fn remove(&mut self, id: u64) {
        let Some(line) = self.all.remove(&id) else { return };
        self.held -= line.read + line.written;
        if let Some(task) = line.task {
            task.abort();
        }
    }

    /// Notes what an answer holds.
    fn change(&mut self, id: u64, change: impl FnOnce(&mut Line)) {
        let Some(line) = self.all.get_mut(&id) else { return };
        let before = line.read + line.written;
        change(line);
        self.held = self.held - before + line.read + line.written;
    }
}

/// An answer among those that are on their way, as long as anybody has this.
#[derive(Debug, Clone)]
pub(super) struct Ticket(Arc<Entry>);

#[derive(Debug)]
struct Entry {
    outbox: Arc<Outbox>,
    client: Arc<[Party]>,
    id: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.outbox.lock().remove(self.id);
    }
}

impl Ticket {
    fn new(outbox: Arc<Outbox>, client: Option<usize>) -> Self {
        let id = {
            let mut lines = outbox.lock();
            lines.next += 1;
            let id = lines.next;
            let line = Line { client, read: 0, written: 0, is_report: false, waiting_since: None, task: None };
            lines.all.insert(id, line);
            id
        };
        let client = client.map(|client| Party::Connection(client as u64)).into_iter().collect();
        Self(Arc::new(Entry { outbox, client, id }))
    }

    /// The ticket of a call.
    pub(super) fn of<T>(request: &tonic::Request<T>) -> Self {
        // A caller of the service without the layer is its only client.
        request.extensions().get().cloned().unwrap_or_else(|| Self::new(Arc::default(), None))
    }

    /// Who asks, as one of those who take turns.
    pub(super) fn client(&self) -> &Arc<[Party]> {
        &self.0.client
    }

    /// Waits until something more may be read. It may be, and more than one expects, as long as the turn is held;
    /// [`Self::has_read`] has to say how much it was before that.
    pub(super) async fn turn(&self) -> Turn {
        let Entry { outbox, client, .. } = &*self.0;
        loop {
            let turn = outbox.turns.take(client, 1).await;
            {
                let mut lines = outbox.lock();
                while lines.held >= WAITING_FOR_CLIENTS && lines.end_one(self.0.id, |line| line.read + line.written) {}
                if lines.held < WAITING_FOR_CLIENTS {
                    return turn;
                }
            }
            drop(turn);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Notes how much is read and not written yet.
    pub(super) fn has_read(&self, bytes: usize) {
        self.0.outbox.lock().change(self.0.id, |line| line.read = bytes);
    }

    /// Makes this one of the reports that are written at the same time.
    ///
    /// # Errors
    /// When there are as many as there may be, and all of them are taken.
    pub(super) fn become_report(&self, bytes: usize) -> Result<(), Status> {
        let mut lines = self.0.outbox.lock();
        let number = |lines: &Lines| lines.all.values().filter(|line| line.is_report).count();
        if number(&lines) >= OPEN_REPORTS && !lines.end_one(self.0.id, |line| usize::from(line.is_report)) {
            let message = format!("{OPEN_REPORTS} reports are being read; try again when one is done");
            return Err(with_reason(Code::ResourceExhausted, BUSY, message));
        }
        lines.change(self.0.id, |line| {
            line.is_report = true;
            line.read = bytes;
        });
        Ok(())
    }

    fn has_written(&self, bytes: usize) {
        let mut lines = self.0.outbox.lock();
        lines.change(self.0.id, |line| line.written = bytes);
        while lines.held > WAITING_FOR_CLIENTS && lines.end_one(self.0.id, |line| line.read + line.written) {}
    }

    fn is_made_by(&self, task: AbortHandle) {
        let mut lines = self.0.outbox.lock();
        if lines.all.contains_key(&self.0.id) {
            lines.change(self.0.id, |line| line.task = Some(task));
        } else {
            // It had to make room before it began.
            task.abort();
        }
    }

    async fn give(&self, pieces: &mpsc::Sender<Piece>, piece: Piece) -> Result<(), mpsc::error::SendError<Piece>> {
        let piece = match pieces.try_send(piece) {
            Ok(()) => return Ok(()),
            Err(error) => error.into_inner(),
        };
        let waits = |since| self.0.outbox.lock().change(self.0.id, |line| line.waiting_since = since);
        waits(Some(Instant::now()));
        let sent = pieces.send(piece).await;
        waits(None);
        sent
    }
}

/// Has the answers to clients made in tasks of their own.
pub(super) async fn hold(State(outbox): State<Arc<Outbox>>, mut request: Request, next: Next) -> Response<Body> {
    if !request.uri().path().starts_with(PATHS) {
        return next.run(request).await;
    }
    // A connection is known by its place.
    let client = request.extensions().get::<GuestInfo>().map(|info| Arc::as_ptr(&info.place).addr());
    let ticket = Ticket::new(outbox, client);
    request.extensions_mut().insert(ticket.clone());
    let answer = next.run(request).await;
    if answer.body().is_end_stream() {
        return answer;
    }
    answer.map(|body| Body::new(Outgoing::of(body, ticket)))
}

/// Some of an answer.
enum Piece {
    Frame(Frame<Bytes>),
    Broken(axum::Error),
    End,
}

/// An answer as a client takes it.
enum Outgoing {
    /// It is made while the client takes it.
    Going {
        pieces: mpsc::Receiver<Piece>,
        /// Ends with this.
        _task: AbortOnDropHandle<()>,
    },
    /// The client has all of it.
    Over,
}

impl Outgoing {
    /// Begins to make an answer: what waits here is counted, and what nobody takes is seen.
    fn of(body: Body, ticket: Ticket) -> Self {
        let (sender, pieces) = mpsc::channel(1);
        let line = ticket.clone();
        let task = tokio::spawn(watched("an answer", make(body, ticket, sender)));
        line.is_made_by(task.abort_handle());
        Self::Going { pieces, _task: AbortOnDropHandle::new(task) }
    }
}

impl HttpBody for Outgoing {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Self::Going { pieces, .. } = &mut *self else { return Poll::Ready(None) };
        let last = match std::task::ready!(pieces.poll_recv(context)) {
            Some(Piece::Frame(frame)) => return Poll::Ready(Some(Ok(frame))),
            Some(Piece::End) => None,
            Some(Piece::Broken(error)) => Some(Err(error)),
            // It had to make room.
            None => Some(Ok(Frame::trailers(lost()))),
        };
        *self = Self::Over;
        Poll::Ready(last)
    }
}

/// Makes an answer, piece by piece, as its client takes them.
async fn make(mut body: Body, ticket: Ticket, pieces: mpsc::Sender<Piece>) {
    while let Some(frame) = body.frame().await {
        let given = match frame.map(Frame::into_data) {
            Ok(Ok(data)) => give_data(data, &ticket, &pieces).await,
            Ok(Err(other)) => ticket.give(&pieces, Piece::Frame(other)).await,
            Err(error) => {
                let _ = pieces.send(Piece::Broken(error)).await;
                return;
            }
        };
        if given.is_err() {
            return;
        }
    }
    let _ = pieces.send(Piece::End).await;
}

async fn give_data(
    mut data: Bytes,
    ticket: &Ticket,
    pieces: &mpsc::Sender<Piece>,
) -> Result<(), mpsc::error::SendError<Piece>> {
    if data.len() <= PIECE {
        return ticket.give(pieces, Piece::Frame(Frame::data(data))).await;
    }
    ticket.has_written(data.len());
    while data.has_remaining() {
        // A copy: a part that shares the memory of the whole would keep all of it.
        let piece = Bytes::copy_from_slice(&data[..data.len().min(PIECE)]);
        data.advance(piece.len());
        ticket.give(pieces, Piece::Frame(Frame::data(piece))).await?;
    }
    ticket.has_written(0);
    Ok(())
}

/// The end of an answer that had to make room.
fn lost() -> axum::http::HeaderMap {
    let message = "the answer was not taken for a while, and had to make room for others; ask again";
    let (parts, ()) = with_reason(Code::ResourceExhausted, BUSY, message).into_http::<()>().into_parts();
    let mut trailers = parts.headers;
    trailers.remove(axum::http::header::CONTENT_TYPE);
    trailers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(outbox: &Arc<Outbox>, client: usize) -> Ticket {
        Ticket::new(Arc::clone(outbox), Some(client))
    }

    async fn ended(outgoing: Outgoing) -> Option<String> {
        let collected = Body::new(outgoing).collect().await.expect("no error");
        collected
            .trailers()
            .and_then(|trailers| trailers.get("grpc-status"))
            .map(|code| code.to_str().expect("text").to_owned())
    }

    #[tokio::test]
    async fn an_answer_comes_in_pieces_and_whole() {
        let outbox = Arc::default();
        let text: Vec<u8> = (0..100_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let outgoing = Outgoing::of(Body::from(text.clone()), ticket(&outbox, 1));
        assert_eq!(Body::new(outgoing).collect().await.expect("no error").to_bytes(), text);
        assert_eq!(outbox.lock().held, 0);
        assert!(outbox.lock().all.is_empty());
    }

    #[tokio::test]
    async fn the_greediest_makes_room() {
        let outbox = Arc::default();
        let mut greedy: Vec<Outgoing> =
            (0..3).map(|_| Outgoing::of(Body::from(vec![0; WAITING_FOR_CLIENTS / 2]), ticket(&outbox, 1))).collect();
        for outgoing in &mut greedy {
            let first = std::future::poll_fn(|context| Pin::new(&mut *outgoing).poll_frame(context)).await;
            assert!(first.is_some_and(|frame| frame.is_ok()));
        }
        let honest = ticket(&outbox, 2);
        let outgoing = Outgoing::of(Body::from(vec![0; WAITING_FOR_CLIENTS / 4]), honest);
        assert_eq!(ended(outgoing).await, None, "it has all of it");
        assert!(outbox.lock().held <= WAITING_FOR_CLIENTS, "{}", outbox.lock().held);
        let mut ends = Vec::new();
        for outgoing in greedy {
            ends.push(ended(outgoing).await);
        }
        assert!(ends.contains(&Some("8".to_owned())), "one of them has ended: {ends:?}");
        assert!(ends.contains(&None), "not all of them have: {ends:?}");
        assert_eq!(outbox.lock().held, 0);
    }

    #[tokio::test]
    async fn reports_are_shared_out() {
        let outbox = Arc::default();
        let all: Vec<Ticket> = (0..OPEN_REPORTS).map(|_| ticket(&outbox, 1)).collect();
        for one in &all {
            one.become_report(1).expect("a place");
        }
        assert!(ticket(&outbox, 1).become_report(1).is_err(), "the same client has all of them");
        ticket(&outbox, 2).become_report(1).expect("another client gets a place");
        assert_eq!(outbox.lock().all.len(), OPEN_REPORTS - 1);
    }
}
