//! HTTP as Forge speaks it: to one address, without redirects, proxies or kept connections, and with every answer
//! bounded.
//!
//! Each exchange has a connection of its own. That costs a handshake and makes it certain what was sent: before the
//! connection is there nothing was, so connecting may be tried once more, and afterwards nothing is ever repeated. An
//! exchange that is dropped closes its connection, which is how an endpoint learns that nobody waits any more.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Method, Response, StatusCode};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig};
use tokio_util::sync::CancellationToken;
use tower::util::MapResponseLayer;

use super::address::{HeaderError, HttpUrl, RequestHeader};
use crate::text::deepest;
use crate::tls;
use crate::trace::TraceHeaders;

/// Time to connect, TLS included.
const CONNECT: Duration = Duration::from_secs(5);
/// Time for the look whether anybody listens: `Describe` must answer within two seconds.
const PROBE: Duration = Duration::from_millis(1500);
/// Pause before connecting is tried once more.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes that are read of an answer that is an error.
const ERROR_BYTES: usize = 8 << 10;
/// Characters of an answer that stand in an error message.
const SHOWN_CHARS: usize = 300;

/// Why there is nobody to speak HTTP with.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A header has no value.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The system's certificates cannot be used.
    #[error("https needs the system's root certificates: {0}")]
    Tls(#[from] rustls::Error),
}

/// Speaks with one address.
#[derive(Debug, Clone)]
pub struct HttpClient {
    url: HttpUrl,
    headers: HeaderMap,
    /// What no error may show: it came from the environment.
    secrets: Vec<String>,
    tls: ClientConfig,
}

/// An answer of which only the beginning is there.
#[derive(Debug)]
pub(super) struct Opened<'a> {
    client: &'a HttpClient,
    response: Response,
    /// Bytes of the body that were taken.
    taken: usize,
    limit: usize,
}

/// What came back: the whole body of a success, the beginning of any other.
#[derive(Debug)]
pub struct Reply {
    /// The status.
    pub status: StatusCode,
    /// Where a redirect leads.
    pub location: Option<String>,
    /// The body.
    pub body: Vec<u8>,
}

/// Why nothing came back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// There was no connection, so nothing was sent.
    #[error("{0}")]
    Unreachable(String),
    /// The connection broke after the request may have been read.
    #[error("{0}")]
    Lost(String),
    /// What came back cannot be taken.
    #[error("{0}")]
    Bad(String),
}

impl HttpClient {
    /// Speaks with `url`, and sends `headers` along.
    ///
    /// # Errors
    /// When a header has no value, or the system has no certificates to check `https` with.
    pub fn new(url: HttpUrl, headers: &[RequestHeader]) -> Result<Self, ClientError> {
        let mut all = HeaderMap::new();
        all.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let mut secrets = Vec::new();
        for header in headers {
            let (value, from_environment) = header.value()?;
            all.insert(header.name().clone(), value);
            secrets.extend(from_environment);
        }
        let tls = tls::client(url.as_url().scheme() == "https")?;
        let mut client = Self { url, headers: all, secrets: Vec::new(), tls };
        client.hide(secrets);
        Ok(client)
    }

    /// Takes these texts, word by word, out of what errors show of answers.
    pub(super) fn hide(&mut self, secrets: Vec<String>) {
        for secret in secrets {
            // Short words are none that anybody could guess by, and stand everywhere.
            self.secrets.extend(secret.split_whitespace().filter(|word| word.len() >= 6).map(str::to_owned));
        }
    }

    /// Sends this header unless one of its name is sent already.
    pub(super) fn default_header(&mut self, name: HeaderName, value: HeaderValue) {
        self.headers.entry(name).or_insert(value);
    }

    /// The address.
    #[must_use]
    pub const fn url(&self) -> &HttpUrl {
        &self.url
    }

    /// Connects once and hangs up, with TLS where the address wants it: as much as can be known without asking
    /// anything.
    ///
    /// # Errors
    /// Why nobody can be reached there, or nobody who is trusted.
    pub async fn probe(&self) -> Result<(), String> {
        let (host, port) = self.url.address();
        let connect = async {
            let io = TcpStream::connect((host.as_str(), port)).await?;
            if self.url.as_url().scheme() == "https" {
                let name = ServerName::try_from(host.clone()).map_err(std::io::Error::other)?;
                TlsConnector::from(Arc::new(self.tls.clone())).connect(name, io).await?;
            }
            Ok::<_, std::io::Error>(())
        };
        let why = match tokio::time::timeout(PROBE, connect).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => deepest(&error),
            Err(_) => format!("no connection within {:.1} s", PROBE.as_secs_f64()),
        };
        Err(self.says(&format!("cannot be reached: {why}")))
    }

    /// Sends a request with its place in a trace and reads the answer, of which at most `limit` bytes are taken.
    /// `connected` is cancelled when the connection is there. The caller keeps the time.
    ///
    /// # Errors
    /// When nothing came back, or too much.
    pub async fn exchange(
        &self,
        method: Method,
        body: Option<Bytes>,
        trace: &TraceHeaders,
        limit: usize,
        connected: &CancellationToken,
    ) -> Result<Reply, NoAnswer> {
        self.open(method, body, trace, limit, connected).await?.whole().await
    }

    /// As [`Self::exchange`], up to where the body of the answer begins.
    pub(super) async fn open(
        &self,
        method: Method,
        body: Option<Bytes>,
        trace: &TraceHeaders,
        limit: usize,
        connected: &CancellationToken,
    ) -> Result<Opened<'_>, NoAnswer> {
        let response = match self.send(&method, body.as_ref(), trace, connected).await {
            Err(NoAnswer::Unreachable(_)) => {
                tokio::time::sleep(PAUSE).await;
                self.send(&method, body.as_ref(), trace, connected).await?
            }
            response => response?,
        };
        Ok(Opened { client: self, response, taken: 0, limit })
    }

    /// Tries once to send a request.
    async fn send(
        &self,
        method: &Method,
        body: Option<&Bytes>,
        trace: &TraceHeaders,
        connected: &CancellationToken,
    ) -> Result<Response, NoAnswer> {
        let client = self.client(connected).map_err(|error| NoAnswer::Unreachable(self.says(&deepest(&error))))?;
        let mut request = client.request(method.clone(), self.url.as_url().clone());
        // What cannot stand in a header fails no request.
        for (name, value) in trace.iter().filter(|(_, value)| HeaderValue::from_str(value).is_ok()) {
            request = request.header(name, value);
        }
        if let Some(body) = body {
            request = request.body(body.clone());
            if !self.headers.contains_key(CONTENT_TYPE) {
                request = request.header(CONTENT_TYPE, "application/json");
            }
        }
        request.send().await.map_err(|error| self.trouble(&error, connected.is_cancelled()))
    }

    /// What an answer says that is no success: its status and the beginning of its body.
    #[must_use]
    pub fn refusal(&self, reply: &Reply) -> String {
        let leads = reply.location.as_ref().map(|location| format!(", which leads to {location} and is not followed"));
        let leads = leads.filter(|_| reply.status.is_redirection()).unwrap_or_default();
        format!("{} answered {}{leads}: {}", self.url, reply.status, self.beginning(&reply.body))
    }

    /// The beginning of a body, for people. Values of headers that came from the environment are taken out: an endpoint
    /// may well repeat what it was sent.
    #[must_use]
    pub fn beginning(&self, body: &[u8]) -> String {
        // More than is shown, so that a secret at the end is taken out whole.
        let text = String::from_utf8_lossy(&body[..body.len().min(ERROR_BYTES)]);
        let mut text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for secret in &self.secrets {
            text = text.replace(secret, "[hidden]");
        }
        match text.char_indices().nth(SHOWN_CHARS) {
            None if text.is_empty() => "an empty body".to_owned(),
            None => text,
            Some((end, _)) => format!("{}…", &text[..end]),
        }
    }

    /// A client for one exchange; it cannot be used for a second one, whose connection would not be told apart.
    fn client(&self, connected: &CancellationToken) -> reqwest::Result<reqwest::Client> {
        let connected = connected.clone();
        reqwest::Client::builder()
            .tls_backend_preconfigured(self.tls.clone())
            .default_headers(self.headers.clone())
            .user_agent(concat!("forge/", env!("CARGO_PKG_VERSION")))
            .http1_only()
            .redirect(Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .pool_max_idle_per_host(0)
            .connect_timeout(CONNECT)
            .connector_layer(MapResponseLayer::new(move |connection| {
                connected.cancel();
                connection
            }))
            .build()
    }

    pub(super) fn says(&self, what: &str) -> String {
        format!("{} {what}", self.url)
    }

    fn trouble(&self, error: &reqwest::Error, connected: bool) -> NoAnswer {
        let why = deepest(error);
        if !connected {
            NoAnswer::Unreachable(self.says(&format!("cannot be reached: {why}")))
        } else if is_loss(error) {
            NoAnswer::Lost(self.says(&format!("closed the connection before its answer was complete: {why}")))
        } else {
            NoAnswer::Bad(self.says(&format!("sent an answer that is not HTTP: {why}")))
        }
    }
}

impl<'a> Opened<'a> {
    pub(super) fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// Whether the answer is a success that comes as server-sent events.
    pub(super) fn is_stream(&self) -> bool {
        let kind = self.response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        self.status().is_success() && kind.eq_ignore_ascii_case("text/event-stream")
    }

    /// The next bytes of the body; `None` at its end.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, NoAnswer> {
        let chunk = self.response.chunk().await.map_err(|error| self.client.trouble(&error, true))?;
        self.taken += chunk.as_ref().map_or(0, Bytes::len);
        if self.status().is_success() && self.taken > self.limit {
            let message = format!("answered {} with more than {} bytes", self.status(), self.limit);
            return Err(NoAnswer::Bad(self.client.says(&message)));
        }
        Ok(chunk)
    }

    /// The bytes of the body as they come, up to its end or to what keeps the rest from coming.
    pub(super) fn chunks(self) -> BoxStream<'a, Result<Bytes, NoAnswer>> {
        let next = async move |mut opened: Self| match opened.chunk().await {
            Ok(chunk) => chunk.map(|chunk| (Ok(chunk), opened)),
            Err(trouble) => Some((Err(trouble), opened)),
        };
        stream::unfold(self, next).boxed()
    }

    /// The whole body of a success, the beginning of any other.
    pub(super) async fn whole(mut self) -> Result<Reply, NoAnswer> {
        let status = self.status();
        let location = self.response.headers().get(LOCATION);
        let location = location.map(|location| String::from_utf8_lossy(location.as_bytes()).into_owned());
        let mut body = Vec::new();
        loop {
            match self.chunk().await {
                Ok(None) => break,
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Err(NoAnswer::Bad(why)) if self.taken > self.limit => {
                    return Err(NoAnswer::Bad(format!("{why}: {}", self.client.beginning(&body))));
                }
                Err(trouble) => return Err(trouble),
            }
            if !status.is_success() && body.len() >= ERROR_BYTES {
                break;
            }
        }
        // Some frameworks begin with a byte order mark, and browsers leave it out.
        if body.starts_with("\u{feff}".as_bytes()) {
            body.drain(.."\u{feff}".len());
        }
        Ok(Reply { status, location, body })
    }
}

/// Whether the connection broke, rather than something wrong coming over it.
fn is_loss(error: &reqwest::Error) -> bool {
    use std::io::ErrorKind;
    let mut error: Option<&(dyn Error + 'static)> = error.source();
    while let Some(current) = error {
        if let Some(error) = current.downcast_ref::<hyper::Error>()
            && (error.is_incomplete_message() || error.is_closed() || error.is_canceled())
        {
            return true;
        }
        if let Some(error) = current.downcast_ref::<std::io::Error>() {
            return matches!(
                error.kind(),
                ErrorKind::ConnectionReset
                    | ErrorKind::ConnectionAborted
                    | ErrorKind::BrokenPipe
                    | ErrorKind::UnexpectedEof
                    | ErrorKind::TimedOut
                    | ErrorKind::NotConnected
            );
        }
        error = current.source();
    }
    false
}
