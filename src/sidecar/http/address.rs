//! What people say of an endpoint: its address, and headers whose values stand in the environment.

use std::fmt;
use std::str::FromStr;

use reqwest::Url;
use reqwest::header::{CONTENT_LENGTH, HeaderName, HeaderValue, TRANSFER_ENCODING};

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
    pub(super) const fn name(&self) -> &HeaderName {
        &self.name
    }

    /// What stands in the environment.
    pub(super) fn value(&self) -> Result<HeaderValue, HeaderError> {
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
