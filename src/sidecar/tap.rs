//! A TCP socket that knows what has been written to it.
//!
//! h2 takes frames and writes them when it pleases. Some script events promise an order between what h2 writes and what
//! happens outside of it: the text before a cut must have left, the GOAWAY of a restart must leave before the call
//! ends. So the socket reads along in the frame headers of what goes out (nine bytes each; nothing is decoded) and
//! tells those who wait.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};

const HEADER_BYTES: usize = 9;
const DATA: u8 = 0x0;
const GOAWAY: u8 = 0x7;

/// What has been written to one socket so far.
#[derive(Debug, Default)]
pub(super) struct Tap {
    written: Mutex<Written>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Written {
    goaway: bool,
    /// Bytes of DATA for each stream that somebody watches.
    data: HashMap<u32, u64>,
}

impl Tap {
    /// Begins to count the DATA of a stream. [`Tap::forget`] ends it.
    pub(super) fn watch(&self, stream: u32) {
        self.lock().data.insert(stream, 0);
    }

    /// Ends counting.
    pub(super) fn forget(&self, stream: u32) {
        self.lock().data.remove(&stream);
    }

    /// Waits until this much DATA of a watched stream has been written.
    pub(super) async fn data(&self, stream: u32, bytes: u64) {
        self.until(|written| written.data.get(&stream).is_none_or(|written| *written >= bytes)).await;
    }

    /// Waits until a GOAWAY has been written.
    pub(super) async fn goaway(&self) {
        self.until(|written| written.goaway).await;
    }

    async fn until(&self, holds: impl Fn(&Written) -> bool) {
        let mut changed = std::pin::pin!(self.changed.notified());
        loop {
            // Listen before looking, or a change between the two is lost.
            changed.as_mut().enable();
            if holds(&self.lock()) {
                return;
            }
            changed.as_mut().await;
            changed.set(self.changed.notified());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Written> {
        // Nothing is left half done under this lock.
        self.written.lock()
    }
}

/// A TCP socket with a [`Tap`].
///
/// When h2 lets go of it, the bare socket is handed back to the owner of the connection, who decides how it closes.
#[derive(Debug)]
pub(super) struct Socket {
    /// Present until dropped.
    io: Option<TcpStream>,
    give_back: Option<oneshot::Sender<TcpStream>>,
    tap: Arc<Tap>,
    scanner: Scanner,
}

impl Socket {
    /// A socket, its tap, and where the bare socket arrives in the end.
    pub(super) fn new(io: TcpStream) -> (Self, Arc<Tap>, oneshot::Receiver<TcpStream>) {
        let (give_back, given_back) = oneshot::channel();
        let tap = Arc::new(Tap::default());
        let scanner = Scanner { header: [0; HEADER_BYTES], have: 0, payload: 0 };
        (Self { io: Some(io), give_back: Some(give_back), tap: Arc::clone(&tap), scanner }, tap, given_back)
    }

    fn io(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        self.io.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn passed<'a>(&mut self, slices: impl Iterator<Item = &'a [u8]>, mut bytes: usize) {
        let mut written = self.tap.lock();
        let mut changed = false;
        for slice in slices {
            let part = &slice[..slice.len().min(bytes)];
            changed |= self.scanner.scan(part, &mut written);
            bytes -= part.len();
        }
        drop(written);
        if changed {
            self.tap.changed.notify_waiters();
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let (Some(io), Some(give_back)) = (self.io.take(), self.give_back.take()) {
            // Nobody waits for it: then it simply closes.
            let _ = give_back.send(io);
        }
    }
}

/// Finds the frames in a stream of bytes that arrives in pieces.
#[derive(Debug)]
struct Scanner {
    header: [u8; HEADER_BYTES],
    have: usize,
    /// Bytes of the current payload that are still to come.
    payload: usize,
}

impl Scanner {
    /// Takes the next bytes; says whether anything changed that somebody may wait for.
    fn scan(&mut self, mut bytes: &[u8], written: &mut Written) -> bool {
        let mut changed = false;
        while !bytes.is_empty() {
            if self.have < HEADER_BYTES {
                let part;
                (part, bytes) = bytes.split_at(bytes.len().min(HEADER_BYTES - self.have));
                self.header[self.have..self.have + part.len()].copy_from_slice(part);
                self.have += part.len();
                if self.have < HEADER_BYTES {
                    break;
                }
                let [a, b, c, ..] = self.header;
                self.payload = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            }
            let part;
            (part, bytes) = bytes.split_at(bytes.len().min(self.payload));
            self.payload -= part.len();
            let [_, _, _, kind, _, stream @ ..] = self.header;
            match kind {
                DATA => {
                    if let Some(count) = written.data.get_mut(&(u32::from_be_bytes(stream) & 0x7fff_ffff)) {
                        *count += part.len() as u64;
                        changed = true;
                    }
                }
                GOAWAY if self.payload == 0 => {
                    written.goaway = true;
                    changed = true;
                }
                _ => {}
            }
            if self.payload == 0 {
                self.have = 0;
            }
        }
        changed
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.io()?.poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let bytes = ready!(self.io()?.poll_write(cx, buf))?;
        self.passed([buf].into_iter(), bytes);
        Poll::Ready(Ok(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = ready!(self.io()?.poll_write_vectored(cx, bufs))?;
        self.passed(bufs.iter().map(|buf| &**buf), bytes);
        Poll::Ready(Ok(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io()?.poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_however_they_are_cut() {
        let frame = |kind: u8, stream: u8, payload: usize| {
            let mut frame = vec![0, 0, u8::try_from(payload).expect("short"), kind, 0, 0, 0, 0, stream];
            frame.extend(vec![GOAWAY; payload]);
            frame
        };
        let bytes =
            [frame(4, 0, 0), frame(DATA, 3, 20), frame(DATA, 5, 7), frame(DATA, 3, 1), frame(GOAWAY, 0, 8)].concat();
        for size in 1..bytes.len() {
            let mut scanner = Scanner { header: [0; HEADER_BYTES], have: 0, payload: 0 };
            let mut written = Written { goaway: false, data: HashMap::from([(3, 0)]) };
            for (index, part) in bytes.chunks(size).enumerate() {
                scanner.scan(part, &mut written);
                let end = index * size + part.len();
                assert_eq!(written.goaway, end == bytes.len(), "{end} of {} in {size}", bytes.len());
            }
            assert_eq!(written.data, HashMap::from([(3, 21)]), "{size}");
        }
    }
}
