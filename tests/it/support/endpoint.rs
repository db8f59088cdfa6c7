//! An HTTP server that answers as a test says, and keeps what it was asked.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt as _;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_util::sync::CancellationToken;

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names and values, in one text.
    pub(crate) headers: String,
    pub(crate) body: String,
}

impl Asked {
    /// The `message` in the body.
    pub(crate) fn message(&self) -> String {
        let body: serde_json::Value = serde_json::from_str(&self.body).expect("JSON");
        body["message"].as_str().expect("a text").to_owned()
    }
}

/// What the server does with a request.
pub(crate) enum Reply {
    /// A status, and a body.
    Status(u16, String),
    /// The bytes of a stream of events.
    Events(String),
    /// The beginning of such a stream, before the connection is dropped.
    EventsAndCut(String),
    /// A redirect.
    Redirect(&'static str),
    /// Nothing, until the client has gone.
    Hang,
    /// The connection is dropped.
    Cut,
    /// An answer, before which the server stops listening.
    LastWords(String),
}

/// A server that is gone when it goes out of scope.
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    runtime: Option<Runtime>,
}

struct State {
    answer: Box<dyn Fn(&Asked) -> Reply + Send + Sync>,
    asked: Mutex<Vec<Asked>>,
    /// Clients that left before they had an answer.
    left: AtomicUsize,
    leave: CancellationToken,
    has_left: CancellationToken,
}

impl Endpoint {
    pub(crate) fn start(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_with(None, answer)
    }

    /// One that speaks TLS, and the certificate that it is trusted by.
    pub(crate) fn start_secure(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> (Self, String) {
        let authority = {
            let mut params = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            params.distinguished_name.push(rcgen::DnType::CommonName, "an authority of the tests");
            rcgen::CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().expect("a key")).expect("signs")
        };
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
        let certificate = params.signed_by(&key, &authority).expect("signs");
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.expect("versions").with_no_client_auth();
        let config = config.with_single_cert(vec![certificate.der().clone()], key).expect("a certificate");
        (Self::start_with(Some(Arc::new(config).into()), answer), authority.pem())
    }

    fn start_with(tls: Option<TlsAcceptor>, answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        // Not asynchronously: tests may be.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a listener that does not block");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State {
            answer: Box::new(answer),
            asked: Mutex::default(),
            left: AtomicUsize::new(0),
            leave: CancellationToken::new(),
            has_left: CancellationToken::new(),
        });
        runtime.spawn(listen(listener, tls, Arc::clone(&state)));
        Self { address, state, runtime: Some(runtime) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/chat", self.address)
    }

    /// Everything that was asked so far, but for connections that asked nothing.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.state.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until `requests` requests came.
    pub(crate) async fn wait_until_asked(&self, requests: usize) {
        let begun = Instant::now();
        while self.asked().len() < requests {
            assert!(begun.elapsed() < Duration::from_secs(10), "no request came");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until `clients` clients left before they had an answer.
    pub(crate) fn wait_until_left(&self, clients: usize) {
        let begun = Instant::now();
        while self.state.left.load(Ordering::SeqCst) < clients {
            assert!(begun.elapsed() < Duration::from_secs(10), "the request is still there");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn listen(listener: std::net::TcpListener, tls: Option<TlsAcceptor>, state: Arc<State>) {
    let listener = TcpListener::from_std(listener).expect("a listener");
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = state.leave.cancelled() => break,
        };
        let Ok((io, _)) = accepted else { continue };
        let state = Arc::clone(&state);
        let service = service_fn(move |request| serve(request, Arc::clone(&state)));
        let (http, tls) = (hyper::server::conn::http1::Builder::new(), tls.clone());
        // How a connection ends is the client's business.
        tokio::spawn(async move {
            match tls {
                None => drop(http.serve_connection(TokioIo::new(io), service).await),
                Some(tls) => {
                    if let Ok(io) = tls.accept(io).await {
                        drop(http.serve_connection(TokioIo::new(io), service).await);
                    }
                }
            }
        });
    }
    drop(listener);
    state.has_left.cancel();
}

type Body = http_body_util::combinators::BoxBody<Bytes, io::Error>;

async fn serve(request: Request<hyper::body::Incoming>, state: Arc<State>) -> io::Result<Response<Body>> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let headers = parts.headers.iter().map(|(name, value)| format!("{name}: {}\n", value.to_str().expect("a text")));
    let asked = Asked {
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        headers: headers.collect(),
        body: String::from_utf8_lossy(&body).into_owned(),
    };
    state.asked.lock().unwrap_or_else(PoisonError::into_inner).push(asked.clone());
    let whole = |body: String| Full::from(body).map_err(|never: Infallible| match never {}).boxed();
    let answer = |status: u16, body: String| Response::builder().status(status).body(whole(body));
    let stream = || Response::builder().header("content-type", "text/event-stream; charset=utf-8");
    let response = match (state.answer)(&asked) {
        Reply::Status(status, body) => answer(status, body),
        Reply::Redirect(to) => Response::builder().status(302).header("location", to).body(whole(String::new())),
        Reply::Events(body) => stream().body(whole(body)),
        Reply::EventsAndCut(body) => {
            let frames = [Ok(Frame::data(Bytes::from(body))), Err(io::Error::other("cut"))];
            // Not at once, or nothing of it is sent.
            let frames = tokio_stream::iter(frames).then(async |frame| {
                tokio::time::sleep(Duration::from_millis(if frame.is_err() { 50 } else { 0 })).await;
                frame
            });
            stream().body(BodyExt::boxed(StreamBody::new(Box::pin(frames))))
        }
        Reply::Hang => {
            let _guard = Leaving(&state);
            match std::future::pending::<Infallible>().await {}
        }
        Reply::Cut => return Err(io::Error::other("cut")),
        Reply::LastWords(body) => {
            state.leave.cancel();
            state.has_left.cancelled().await;
            answer(200, body)
        }
    };
    response.map_err(io::Error::other)
}

/// Counts a client that has gone.
struct Leaving<'a>(&'a State);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.left.fetch_add(1, Ordering::SeqCst);
    }
}
