//! What people say of an endpoint: its address, and headers whose values stand in the environment.

use std::ffi::OsStr;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use clap::builder::{TypedValueParser, ValueParserFactory};
use clap::error::ErrorKind;
use reqwest::Url;
use reqwest::header::{CONTENT_LENGTH, HeaderName, HeaderValue, TRANSFER_ENCODING};

use super::environment::{EnvironmentError, is_variable, variables, with_environment};
use crate::peer::target::speaks_http;

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
    pub(super) fn address(&self) -> (String, u16) {
        let host = self.url.host_str().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        (host.to_owned(), self.url.port_or_known_default().unwrap_or_default())
    }

    /// Host and port where the endpoint listens, in one text.
    #[must_use]
    pub fn host_and_port(&self) -> String {
        let (host, port) = self.address();
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// The host, with the port if it is written, as it may name an agent.
    #[must_use]
    pub fn authority(&self) -> &str {
        self.url.authority()
    }

    pub(super) const fn as_url(&self) -> &Url {
        &self.url
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

/// A header of a request: `Name: value` with `${VARIABLE}` for what stands in the environment, or `NAME=VARIABLE`
/// for a value that stands there as a whole. So no secret is on a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeader {
    name: HeaderName,
    value: String,
}

/// Headers whose values are secrets: written out they would stand in the history of a shell, or in a repository.
const SECRET: &[&str] = &["authorization", "proxy-authorization", "x-api-key", "api-key", "cookie"];

/// Why there is no such header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// It is not written as it must be.
    #[error(
        "write it like Authorization=CHAT_TOKEN, with the variable that holds its value, or like \
         'Authorization: Bearer ${{CHAT_TOKEN}}', in single quotes"
    )]
    Form,
    /// HTTP sets it itself.
    #[error("the header {0} says how the message is sent and cannot be chosen")]
    Framing(HeaderName),
    /// A secret is written out.
    #[error(
        "the value of {0} is a secret that others can read here; write it like '{0}: ${{CHAT_TOKEN}}', in single quotes, and set the \
         environment variable"
    )]
    WrittenOut(HeaderName),
    /// The environment does not hold what the value names.
    #[error("the header {name} {why}")]
    Environment {
        /// The header.
        name: HeaderName,
        /// What is wrong.
        why: EnvironmentError,
    },
    /// The value is no header's.
    #[error("the value of the header {0} has characters that no header may have")]
    Value(HeaderName),
}

impl FromStr for RequestHeader {
    type Err = HeaderError;

    fn from_str(text: &str) -> Result<Self, HeaderError> {
        let at = text.find([':', '=']).ok_or(HeaderError::Form)?;
        let (name, value) = (&text[..at], text[at + 1..].trim());
        if text[at..].starts_with(':') {
            return Self::new(name, value);
        }
        // A secret that somebody wrote here by mistake is most likely no word.
        if !is_variable(value) {
            return Err(HeaderError::Form);
        }
        Self::new(name, &format!("${{{value}}}"))
    }
}

impl RequestHeader {
    /// A header with this name, whose value may name variables as `${VARIABLE}`.
    ///
    /// # Errors
    /// When there can be no such header, or a secret is written out.
    pub fn new(name: &str, value: &str) -> Result<Self, HeaderError> {
        let name: HeaderName = name.trim().parse().map_err(|_| HeaderError::Form)?;
        if name == CONTENT_LENGTH || name == TRANSFER_ENCODING {
            return Err(HeaderError::Framing(name));
        }
        if SECRET.contains(&name.as_str()) && !value.contains("${") {
            return Err(HeaderError::WrittenOut(name));
        }
        Ok(Self { name, value: value.to_owned() })
    }

    pub(super) const fn name(&self) -> &HeaderName {
        &self.name
    }

    /// The name, and the variables that the value takes: all of a header that others may see.
    #[must_use]
    pub fn shown(&self) -> String {
        let variables = variables(&self.value);
        let from = if variables.is_empty() { "…".to_owned() } else { variables.join(" ") };
        format!("{}: {from}", self.name)
    }

    /// The value with what stands in the environment, and what came from there.
    pub(super) fn value(&self) -> Result<(HeaderValue, Vec<String>), HeaderError> {
        let (text, secrets) =
            with_environment(&self.value).map_err(|why| HeaderError::Environment { name: self.name.clone(), why })?;
        let mut value = HeaderValue::from_str(&text).map_err(|_| HeaderError::Value(self.name.clone()))?;
        value.set_sensitive(!secrets.is_empty());
        Ok((value, secrets))
    }
}

/// Reads what is typed without repeating what is refused: it may hold a secret, and what clap says begins with it.
#[derive(Debug, Clone)]
pub struct Unrepeated<T>(PhantomData<fn() -> T>);

impl<T> Unrepeated<T> {
    pub(super) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T> TypedValueParser for Unrepeated<T>
where
    T: FromStr<Err: fmt::Display> + Clone + Send + Sync + 'static,
{
    type Value = T;

    fn parse_ref(&self, command: &clap::Command, arg: Option<&clap::Arg>, value: &OsStr) -> Result<T, clap::Error> {
        let text = value.to_str().ok_or_else(|| "it is no text".to_owned());
        text.and_then(|text| text.parse().map_err(|error: T::Err| error.to_string())).map_err(|why| {
            let flag = arg.map(|arg| format!(" for '{arg}'")).unwrap_or_default();
            command.clone().error(ErrorKind::ValueValidation, format!("invalid value{flag}: {why}"))
        })
    }
}

impl ValueParserFactory for RequestHeader {
    type Parser = Unrepeated<Self>;

    fn value_parser() -> Unrepeated<Self> {
        Unrepeated::new()
    }
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
        let header = |text: &str| text.parse::<RequestHeader>();
        assert_eq!(header("X-Key=CHAT_KEY"), header("x-key: ${CHAT_KEY}"));
        for right in ["anthropic-version: 2023-06-01", "Authorization: Bearer ${A}", "X-Empty:", "x-time: 10:30=a"] {
            assert!(header(right).is_ok(), "{right}");
        }
        assert!(matches!(header("Authorization: Bearer abc"), Err(HeaderError::WrittenOut(_))));
        for wrong in ["Authorization", "=X", "Authorization=", "a b=X", "Authorization=Bearer abc", "x=sk-123"] {
            assert_eq!(header(wrong), Err(HeaderError::Form), "{wrong}");
        }
        assert!(matches!(header("Content-Length=X"), Err(HeaderError::Framing(_))));
    }
}
