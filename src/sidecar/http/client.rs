//! HTTP as Forge speaks it: to one address, without redirects, proxies or kept connections, and with every answer bounded.
//!
//! Each exchange has a connection of its own. That costs a handshake and makes it certain what was sent: before the
//! connection is there nothing was, so connecting may be tried once more, and afterwards nothing is ever repeated. An
//! exchange that is dropped closes its connection, which is how an endpoint learns that nobody waits any more.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Method, Response, StatusCode};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig};
use tokio_util::sync::CancellationToken;
use tower::util::MapResponseLayer;

use super::address::{HeaderError, HeaderFromEnv, HttpUrl};
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
    tls: ClientConfig,
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
pub enum Trouble {
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
    pub fn new(url: HttpUrl, headers: &[HeaderFromEnv]) -> Result<Self, ClientError> {
        let mut all = HeaderMap::new();
        all.insert(ACCEPT, HeaderValue::from_static("application/json"));
        for header in headers {
            all.insert(header.name().clone(), header.value()?);
        }
        let tls = tls::client(url.as_url().scheme() == "https")?;
        Ok(Self { url, headers: all, tls })
    }

    /// The address.
    #[must_use]
    pub const fn url(&self) -> &HttpUrl {
        &self.url
    }

    /// Connects once and hangs up, with TLS where the address wants it: as much as can be known without asking anything.
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

    /// Sends a request with its place in a trace and reads the answer, of which at most `limit` bytes are taken. `connected` is
    /// cancelled when the connection is there. The caller keeps the time.
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
    ) -> Result<Reply, Trouble> {
        let send = async || {
            let client = self.client(connected).map_err(|error| Trouble::Unreachable(self.says(&deepest(&error))))?;
            let mut request = client.request(method.clone(), self.url.as_url().clone());
            // What cannot stand in a header fails no request.
            for (name, value) in trace.iter().filter(|(_, value)| HeaderValue::from_str(value).is_ok()) {
                request = request.header(name, value);
            }
            if let Some(body) = &body {
                request = request.body(body.clone());
                if !self.headers.contains_key(CONTENT_TYPE) {
                    request = request.header(CONTENT_TYPE, "application/json");
                }
            }
            request.send().await.map_err(|error| self.trouble(&error, connected.is_cancelled()))
        };
        let response = match send().await {
            Err(Trouble::Unreachable(_)) => {
                tokio::time::sleep(PAUSE).await;
                send().await?
            }
            response => response?,
        };
        self.read(response, limit).await
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
        for value in self.headers.values().filter(|value| value.is_sensitive()) {
            let words = value.to_str().unwrap_or_default().split_whitespace();
            for secret in words.filter(|word| word.len() >= 6) {
                text = text.replace(secret, "[hidden]");
            }
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

    async fn read(&self, mut response: Response, limit: usize) -> Result<Reply, Trouble> {
        let status = response.status();
        let location = response.headers().get(LOCATION);
        let location = location.map(|location| String::from_utf8_lossy(location.as_bytes()).into_owned());
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.trouble(&error, true))? {
            body.extend_from_slice(&chunk);
            if !status.is_success() && body.len() >= ERROR_BYTES {
                break;
            }
            if body.len() > limit {
                let message = format!("answered {status} with more than {limit} bytes: {}", self.beginning(&body));
                return Err(Trouble::Bad(self.says(&message)));
            }
        }
        // Some frameworks begin with a byte order mark, and browsers leave it out.
        if body.starts_with("\u{feff}".as_bytes()) {
            body.drain(.."\u{feff}".len());
        }
        Ok(Reply { status, location, body })
    }

    fn says(&self, what: &str) -> String {
        format!("{} {what}", self.url)
    }

    fn trouble(&self, error: &reqwest::Error, connected: bool) -> Trouble {
        let why = deepest(error);
        if !connected {
            Trouble::Unreachable(self.says(&format!("cannot be reached: {why}")))
        } else if is_loss(error) {
            Trouble::Lost(self.says(&format!("closed the connection before its answer was complete: {why}")))
        } else {
            Trouble::Bad(self.says(&format!("sent an answer that is not HTTP: {why}")))
        }
    }
}

/// The deepest cause of an error: those above it only say that there was one.
fn deepest(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(next) = error.source() {
        error = next;
    }
    error.to_string()
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
