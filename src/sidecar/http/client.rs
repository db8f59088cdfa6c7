//! HTTP as Forge speaks it: to one address, without redirects, proxies or kept connections, and with every answer bounded.
//!
//! Each exchange has a connection of its own. That costs a handshake and makes it certain what was sent: before the
//! connection is there nothing was, so connecting may be tried once more, and afterwards nothing is ever repeated. An
//! exchange that is dropped closes its connection, which is how an endpoint learns that nobody waits any more.

use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{
    ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, TRANSFER_ENCODING,
};
use reqwest::redirect::Policy;
use reqwest::{Method, Response, StatusCode, Url};
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::net::TcpStream;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};
use tokio_util::sync::CancellationToken;
use tower::util::MapResponseLayer;

use crate::peer::target::speaks_http;

/// Time to connect, TLS included.
const CONNECT: Duration = Duration::from_secs(5);
/// Pause before connecting is tried once more.
const PAUSE: Duration = Duration::from_millis(100);
/// Time for the look whether anybody listens: `Describe` must answer within two seconds.
const PROBE: Duration = Duration::from_millis(1500);
/// Bytes that are read of an answer that is an error.
const ERROR_BYTES: usize = 8 << 10;
/// Characters of an answer that stand in an error message.
const SHOWN_CHARS: usize = 300;

/// An address that starts with `http://` or `https://`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpUrl {
    written: String,
    url: Url,
}

/// A text that is no such address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HttpUrlError(String);

impl HttpUrl {
    /// Host and port where the endpoint listens.
    fn address(&self) -> (String, u16) {
        let host = self.url.host_str().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        (host.to_owned(), self.url.port_or_known_default().unwrap_or_default())
    }

    /// The host, with the port if it is written, as it may name an agent.
    #[must_use]
    pub fn authority(&self) -> &str {
        self.url.authority()
    }

    /// Connects once and hangs up.
    ///
    /// # Errors
    /// Why nobody can be reached there.
    pub(super) async fn probe(&self) -> Result<(), String> {
        let (host, port) = self.address();
        let why = match tokio::time::timeout(PROBE, TcpStream::connect((host.as_str(), port))).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no connection within {:.1} s", PROBE.as_secs_f64()),
        };
        Err(format!("{self} cannot be reached: {why}"))
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

impl FromStr for HttpUrl {
    type Err = HttpUrlError;

    fn from_str(text: &str) -> Result<Self, HttpUrlError> {
        if !speaks_http(text) {
            return Err(HttpUrlError(
                "write it like http://127.0.0.1:3000/chat or https://example.org/chat".to_owned(),
            ));
        }
        let url: Url = text.parse().map_err(|error| HttpUrlError(format!("it is no URL: {error}")))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(HttpUrlError(
                "secrets do not belong into an address, which is shown everywhere; \
                 give them as a header whose value stands in the environment"
                    .to_owned(),
            ));
        }
        Ok(Self { written: text.to_owned(), url })
    }
}

/// `NAME=VARIABLE`: a header whose value stands in an environment variable, so that it is on no command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderFromEnv {
    name: HeaderName,
    variable: String,
}

/// Why there is no such header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// It is not written as it must be.
    #[error("write it like Authorization=CHAT_TOKEN: the name of a header, and of the variable that holds its value")]
    Form,
    /// HTTP sets it itself.
    #[error("the header {0} says how the message is sent and cannot be chosen")]
    Framing(HeaderName),
    /// The variable is not set, or to nothing.
    #[error("the header {name} takes its value from the environment variable {variable}, which is not set")]
    Unset {
        /// The header.
        name: HeaderName,
        /// The variable.
        variable: String,
    },
    /// The value is no header's.
    #[error("the environment variable {variable} holds what cannot be the value of the header {name}")]
    Value {
        /// The header.
        name: HeaderName,
        /// The variable.
        variable: String,
    },
}

impl FromStr for HeaderFromEnv {
    type Err = HeaderError;

    fn from_str(text: &str) -> Result<Self, HeaderError> {
        let (name, variable) = text.split_once('=').ok_or(HeaderError::Form)?;
        let name: HeaderName = name.trim().parse().map_err(|_| HeaderError::Form)?;
        if name == CONTENT_LENGTH || name == TRANSFER_ENCODING {
            return Err(HeaderError::Framing(name));
        }
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        // A secret that somebody wrote here by mistake is most likely no word.
        if variable.is_empty() || !variable.chars().all(is_word) {
            return Err(HeaderError::Form);
        }
        Ok(Self { name, variable: variable.to_owned() })
    }
}

impl HeaderFromEnv {
    fn value(&self) -> Result<HeaderValue, HeaderError> {
        let (name, variable) = (self.name.clone(), self.variable.clone());
        let text = match std::env::var(&self.variable) {
            Ok(text) if !text.is_empty() => text,
            Ok(_) | Err(std::env::VarError::NotPresent) => return Err(HeaderError::Unset { name, variable }),
            Err(std::env::VarError::NotUnicode(_)) => return Err(HeaderError::Value { name, variable }),
        };
        let mut value = HeaderValue::from_str(&text).map_err(|_| HeaderError::Value { name, variable })?;
        value.set_sensitive(true);
        Ok(value)
    }
}

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
            all.insert(header.name.clone(), header.value()?);
        }
        let tls = tls(url.url.scheme() == "https")?;
        Ok(Self { url, headers: all, tls })
    }

    /// The address.
    #[must_use]
    pub const fn url(&self) -> &HttpUrl {
        &self.url
    }

    /// Sends a request and reads the answer, of which at most `limit` bytes are taken. `connected` is cancelled when the
    /// connection is there. The caller keeps the time.
    ///
    /// # Errors
    /// When nothing came back, or too much.
    pub async fn exchange(
        &self,
        method: Method,
        body: Option<Vec<u8>>,
        limit: usize,
        connected: &CancellationToken,
    ) -> Result<Reply, Trouble> {
        let send = async || {
            let client = self.client(connected).map_err(|error| Trouble::Unreachable(self.says(&deepest(&error))))?;
            let mut request = client.request(method.clone(), self.url.url.clone());
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

/// With the system's roots, or without any for addresses that need none.
fn tls(is_needed: bool) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    if is_needed {
        return Ok(builder.with_platform_verifier()?.with_no_client_auth());
    }
    Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (url, address) in [
            ("http://localhost:3000/chat", Some(("localhost", 3000))),
            ("HTTPS://example.org/a?b=c", Some(("example.org", 443))),
            ("http://[::1]", Some(("::1", 80))),
            ("http://", None),
            ("http://user:word@host/", None),
            ("grpc://host:1", None),
            ("localhost:3000", None),
        ] {
            let found = url.parse::<HttpUrl>().ok().map(|url| url.address());
            assert_eq!(found, address.map(|(host, port)| (host.to_owned(), port)), "{url}");
        }
    }

    #[test]
    fn headers() {
        let header = |text: &str| text.parse::<HeaderFromEnv>();
        assert!(header("X-Key=CHAT_KEY").is_ok());
        for wrong in ["Authorization", "=X", "Authorization=", "a b=X", "Authorization=Bearer abc", "x=sk-123"] {
            assert_eq!(header(wrong), Err(HeaderError::Form), "{wrong}");
        }
        assert!(matches!(header("Content-Length=X"), Err(HeaderError::Framing(_))));
    }
}
