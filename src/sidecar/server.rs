//! The accept loop: listens, leaves when a script says so, comes back on the same port.
//!
//! The order in leaving is what a `restart` is about. Before the call that asked for it may end, the listener is closed
//! and every peer has its GOAWAY, so a client that has seen the call end and sends the next one cannot reach the old
//! process any more. The port stays reserved meanwhile by a socket that is bound and does not listen: a client that
//! dials is refused, and no other program can take the port away.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::call_log::CallLog;
use super::connection::{self, Signals};
use super::grpc::sleep_until;
use super::host::{Command, Host, Scripts};
use super::infra::{self, Infra};

/// Connections that the kernel keeps ready.
const BACKLOG: u32 = 1024;
/// How long peers may take to be told that the agent leaves, and to go when everything ends.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often coming back is tried, and for how long.
const RETRY: Duration = Duration::from_millis(20);
const GIVE_UP: Duration = Duration::from_secs(10);

/// Listens on `address`.
///
/// # Errors
/// When the address cannot be bound, for example because it is in use.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    bind(address)?.listen(BACKLOG)
}

/// Plays scripts until `shutdown` is there or a script lets the agent die.
///
/// # Errors
/// When the agent cannot come back on its address after a restart.
pub async fn serve(
    listener: TcpListener,
    scripts: Scripts,
    log: CallLog,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let address = listener.local_addr().map_err(ServeError::ComeBack)?;
    let mut services = vec![infra::AGENT];
    services.extend(scripts.simulator.as_ref().map(|_| infra::SIMULATOR));
    services.extend(scripts.validator.as_ref().map(|_| infra::VALIDATOR));
    let infra = Infra::new(&services).await?;
    let (sender, mut commands) = mpsc::channel(16);
    let host = Arc::new(Host::new(scripts, log, infra, sender));
    let mut open = Doors { host, gone: CancellationToken::new(), connections: TaskTracker::new(), peers: Peers::new() };
    let mut state = State::Listening(listener);
    let mut shutdown = pin!(shutdown);
    let result = loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break Ok(()),
            command = commands.recv() => match command {
                Some(Command::Leave { back_after, left }) => {
                    state = match state {
                        State::Listening(listener) => open.leave(listener, address, back_after).await,
                        // Two calls said so: the first one counts.
                        away => away,
                    };
                    // The call may be gone.
                    let _ = left.send(());
                }
                Some(Command::Die) | None => break Ok(()),
            },
            event = state.next(&open.connections) => match event {
                Event::Accepted(Ok(io)) => open.admit(io),
                // Out of file descriptors, most likely: serve on with those there are.
                Event::Accepted(Err(_)) => tokio::time::sleep(RETRY).await,
                Event::Back(Ok(listener)) => state = State::Listening(listener),
                Event::Back(Err(error)) => break Err(ServeError::ComeBack(error)),
                Event::Ended => break Ok(()),
            },
        }
    };
    open.gone.cancel();
    open.connections.close();
    drop(state);
    // Calls write their last line; peers get a moment to close.
    let _ = tokio::time::timeout(PATIENCE, open.connections.wait()).await;
    result
}

/// Why serving ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is not to be had again after a restart.
    #[error("coming back after a restart")]
    ComeBack(#[source] io::Error),
    /// The build is broken.
    #[error("setting up reflection")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// Whether anybody can come in.
enum State {
    Listening(TcpListener),
    /// Back at that time, on the socket that keeps the port.
    Away {
        address: SocketAddr,
        port: io::Result<TcpSocket>,
        back: Instant,
    },
    /// Never back; the connections end by then.
    Over(Instant),
}

enum Event {
    Accepted(io::Result<TcpStream>),
    Back(io::Result<TcpListener>),
    Ended,
}

impl State {
    /// The next thing that happens by itself. May be dropped and asked again.
    async fn next(&mut self, connections: &TaskTracker) -> Event {
        match self {
            Self::Listening(listener) => Event::Accepted(listener.accept().await.map(|(io, _)| io)),
            Self::Away { address, port, back } => {
                tokio::time::sleep_until(*back).await;
                loop {
                    let reserved = std::mem::replace(port, Err(io::ErrorKind::AddrInUse.into()));
                    match reserved.or_else(|_| bind(*address)).and_then(|socket| socket.listen(BACKLOG)) {
                        Err(_) if back.elapsed() < GIVE_UP => tokio::time::sleep(RETRY).await,
                        listener => return Event::Back(listener),
                    }
                }
            }
            Self::Over(end) => {
                tokio::select! {
                    () = sleep_until(Some(*end)) => {}
                    () = connections.wait() => {}
                }
                Event::Ended
            }
        }
    }
}

/// The connections, and what new ones need.
struct Doors {
    host: Arc<Host>,
    gone: CancellationToken,
    connections: TaskTracker,
    peers: Peers,
}

/// The peers that will leave together.
struct Peers {
    leaving: CancellationToken,
    untold: mpsc::Sender<()>,
    all_told: mpsc::Receiver<()>,
}

impl Peers {
    fn new() -> Self {
        let (untold, all_told) = mpsc::channel(1);
        Self { leaving: CancellationToken::new(), untold, all_told }
    }
}

impl Doors {
    fn admit(&self, io: TcpStream) {
        let Peers { leaving, untold, .. } = &self.peers;
        let signals = Signals { leaving: leaving.clone(), untold: untold.downgrade(), gone: self.gone.clone() };
        self.connections.spawn(connection::serve(io, Arc::clone(&self.host), signals));
    }

    /// Closes the listener and tells all peers.
    async fn leave(&mut self, listener: TcpListener, address: SocketAddr, back_after: Option<Duration>) -> State {
        // A client that the kernel has let in already would be thrown out without a word.
        while let Some(Ok((io, _))) = listener.accept().now_or_never() {
            self.admit(io);
        }
        drop(listener);
        let port = bind(address);
        let left = Instant::now();
        self.host.forget();
        let Peers { leaving, untold, mut all_told } = std::mem::replace(&mut self.peers, Peers::new());
        leaving.cancel();
        drop(untold);
        // Nothing is ever sent: the channel closes when the last peer has been told.
        let _ = tokio::time::timeout(PATIENCE, all_told.recv()).await;
        if let Some(time) = back_after {
            State::Away { address, port, back: left + time }
        } else {
            self.connections.close();
            State::Over(left + PATIENCE)
        }
    }
}

/// A socket that holds a port, and does not listen yet.
fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Connections of before the restart must not keep the port.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}
