//! The door takes at most `CONNECTIONS` connections at a time, and closes those that stay silent.
//!
//! A connection costs a file and some memory, also when no request comes on it. When all places are taken, the door
//! accepts a further connection for a moment, to answer why it is refused. When the process has no file left for a
//! connection, the door pauses and tries again.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep};
use tokio_stream::Stream;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::transport::server::Connected;

use super::places::{Place, Places};
use crate::limits::{CONNECTIONS, GREETING, SILENCE};

/// Most connections that are told that there is no place for them, at a time.
const TURNED_AWAY: usize = 64;
/// Time to tell them.
const FAREWELL: Duration = Duration::from_secs(5);
/// Pause after a connection that could not be taken: there is no file or no memory for it.
const PAUSE: Duration = Duration::from_millis(250);
/// Bytes by which it is known what somebody speaks: fewer than any request has.
const GREETING_BYTES: usize = 16;
/// Most open files that the daemon asks the system for. The system may allow more, but its tables grow with the number.
const FILES: u64 = 65_536;

/// Who is at the other end of a connection; each request on it knows.
#[derive(Debug, Clone)]
pub(super) struct GuestInfo {
    pub(super) peer: IpAddr,
    /// The connection has no place: its requests are refused.
    pub(super) is_turned_away: bool,
    /// The place of the connection.
    pub(super) place: Arc<Place>,
}

/// Files that this process may have open, once it has asked for as many as it may.
pub(super) fn files() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(FILES, |most| most.min(FILES));
    if limit.current.is_some_and(|current| current < wanted) {
        // As good as before when it is not given.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum });
    }
    getrlimit(Resource::Nofile).current.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX)
}

/// The connections that come in, at most half as many as there may be files.
pub(super) fn guests(listener: TcpListener) -> impl Stream<Item = io::Result<Guest>> {
    let door = Door {
        listener,
        places: Places::new(CONNECTIONS.min(files() / 2)),
        others: Places::new(TURNED_AWAY.min(files() / 16).max(1)),
        is_short: false,
    };
    futures_util::stream::unfold(door, |mut door| async move {
        let guest = door.next().await;
        Some((Ok(guest), door))
    })
}

struct Door {
    listener: TcpListener,
    places: Arc<Places>,
    /// For those who are turned away.
    others: Arc<Places>,
    /// Whether it was told that no connection can be taken.
    is_short: bool,
}

impl Door {
    async fn next(&mut self) -> Guest {
        loop {
            let (stream, address) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    if !std::mem::replace(&mut self.is_short, true) {
                        tracing::warn!(%error, "no connection can be taken; it is tried again");
                    }
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            self.is_short = false;
            let peer = address.ip();
            let (place, is_turned_away) = match self.places.take(peer, 1) {
                Some(place) => (place, false),
                None => match self.others.take(peer, 1) {
                    Some(place) => (place, true),
                    None => continue,
                },
            };
            // Without it small messages wait for each other, which is no reason to refuse anybody.
            let _ = stream.set_nodelay(true);
            return Guest::new(stream, GuestInfo { peer, is_turned_away, place: Arc::new(place) });
        }
    }
}

/// A connection that ends when nothing is said on it for too long.
#[derive(Debug)]
pub(super) struct Guest {
    stream: TcpStream,
    info: GuestInfo,
    /// When it is looked whether something was said.
    look: Pin<Box<Sleep>>,
    /// Until when something has to be said.
    until: Instant,
    /// Bytes that are missing until it is known what is spoken.
    greeting: usize,
    /// Until when the other side has to take what it is told, if it takes nothing now.
    stuck: Option<Pin<Box<Sleep>>>,
    /// Its place was given to another.
    gone: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Guest {
    fn new(stream: TcpStream, info: GuestInfo) -> Self {
        let until = Instant::now() + if info.is_turned_away { FAREWELL } else { GREETING };
        let look = Box::pin(tokio::time::sleep_until(until));
        let gone = Box::pin(info.place.gone().clone().cancelled_owned());
        Self { stream, info, look, until, greeting: GREETING_BYTES, stuck: None, gone }
    }

    /// Notes that something was said.
    fn heard(&mut self, bytes: usize) {
        self.greeting = self.greeting.saturating_sub(bytes);
        if self.greeting == 0 && !self.info.is_turned_away {
            self.until = Instant::now() + SILENCE;
            self.info.place.heard();
        }
    }

    /// Ready when nothing was said for too long, or another needs the place.
    fn silence(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.gone.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        loop {
            ready!(self.look.as_mut().poll(context));
            if Instant::now() >= self.until {
                return Poll::Ready(());
            }
            // Set anew only here: that takes longer than noting the time.
            self.look.as_mut().reset(self.until);
        }
    }

    /// What came of writing, or an error when the other side takes nothing for too long.
    fn told<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stuck = None;
            return written;
        }
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(tokio::time::sleep(SILENCE)));
        ready!(stuck.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Connected for Guest {
    type ConnectInfo = GuestInfo;

    fn connect_info(&self) -> GuestInfo {
        self.info.clone()
    }
}

impl AsyncRead for Guest {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let guest = self.get_mut();
        let before = buffer.filled().len();
        // What is there counts, also when it is late.
        if let Poll::Ready(read) = Pin::new(&mut guest.stream).poll_read(context, buffer) {
            guest.heard(buffer.filled().len() - before);
            return Poll::Ready(read);
        }
        ready!(guest.silence(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncWrite for Guest {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let guest = self.get_mut();
        let written = Pin::new(&mut guest.stream).poll_write(context, bytes);
        guest.told(written, context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let guest = self.get_mut();
        let written = Pin::new(&mut guest.stream).poll_write_vectored(context, slices);
        guest.told(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let guest = self.get_mut();
        let flushed = Pin::new(&mut guest.stream).poll_flush(context);
        guest.told(flushed, context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
