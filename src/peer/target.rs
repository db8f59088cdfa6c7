//! Addresses of agents, and which of them a client may have the daemon dial.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// What an address begins with that is no place, but the name of an agent which dials the daemon.
pub const ATTACHED_SCHEME: &str = "attached:";

/// Where an agent listens: `grpc://HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    host: String,
    port: u16,
}

/// An address that cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{url:?} is no address of {whom}: {problem}; {hint}")]
pub struct TargetError {
    url: String,
    whom: &'static str,
    problem: &'static str,
    hint: &'static str,
}

impl Target {
    /// Whether a text is meant as an address rather than as a name.
    #[must_use]
    pub fn looks_like_one(text: &str) -> bool {
        text.contains("://")
    }

    /// Where a daemon listens: `http://HOST:PORT`, or without the scheme.
    ///
    /// # Errors
    /// When it is no such address.
    pub fn of_daemon(url: &str) -> Result<Self, TargetError> {
        let refuse = |problem| TargetError {
            url: without_user(url),
            whom: "a daemon",
            problem,
            hint: "write it like http://127.0.0.1:7460",
        };
        match url.split_once("://") {
            None => Self::of_authority(url).map_err(refuse),
            Some(("http" | "grpc", rest)) => Self::of_authority(rest).map_err(refuse),
            Some(("https" | "grpcs", _)) => Err(refuse("TLS to daemons is not supported by this version")),
            Some(_) => Err(refuse("only http:// is known")),
        }
    }

    fn of_authority(rest: &str) -> Result<Self, &'static str> {
        let uri: http::Uri = format!("http://{rest}").parse().map_err(|_| "it cannot be parsed")?;
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() || rest.contains('@') {
            return Err("it must be a host and a port, and nothing else");
        }
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err("there is no host");
        }
        let port = uri.port_u16().ok_or("there is no port")?;
        Ok(Self { host: host.to_owned(), port })
    }

    /// The host, and the port.
    #[must_use]
    pub fn parts(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// Host and port, as in a URL.
    #[must_use]
    pub fn authority(&self) -> String {
        // Hosts with a colon are IPv6 addresses.
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "grpc://{}", self.authority())
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(url: &str) -> Result<Self, TargetError> {
        let refuse = |problem, hint| TargetError { url: without_user(url), whom: "an agent", problem, hint };
        let grpc = "write it like grpc://127.0.0.1:50051";
        if speaks_http(url) {
            let hint = "start `forge-sidecar http URL` for it and give the grpc:// address where that listens";
            return Err(refuse("an HTTP endpoint does not speak gRPC", hint));
        }
        match url.split_once("://") {
            None => Err(refuse("there is no scheme", grpc)),
            Some(("grpc", rest)) => Self::of_authority(rest).map_err(|problem| refuse(problem, grpc)),
            Some(("grpcs", _)) => Err(refuse("TLS to agents is not supported by this version", grpc)),
            Some(_) => Err(refuse("only grpc:// is known", grpc)),
        }
    }
}

/// A text that is meant as an address, as others may see it: without the name and password of a user, which have no
/// place there.
#[must_use]
pub fn without_user(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    match authority.rfind('@') {
        Some(at) => format!("{scheme}://…{}", &rest[at..]),
        None => text.to_owned(),
    }
}

/// Whether an address is that of an HTTP endpoint, which an agent can stand behind but never is by itself.
#[must_use]
pub fn speaks_http(url: &str) -> bool {
    url.split_once("://")
        .is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https"))
}

/// Which addresses a client may name.
///
/// A daemon in staging can reach what its clients cannot, so it does not dial for them wherever they like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedTargets {
    /// Any address: for a daemon that runs inside its only client.
    Any,
    /// Those that match one of these patterns: `loopback`, a host, or `HOST:PORT`, where a `*` at the start of the host
    /// stands for any beginning.
    Matching(Vec<String>),
}

impl Default for AllowedTargets {
    fn default() -> Self {
        Self::Matching(vec!["loopback".to_owned()])
    }
}

impl AllowedTargets {
    /// Whether `target` may be dialled.
    #[must_use]
    pub fn allow(&self, target: &Target) -> bool {
        match self {
            Self::Any => true,
            Self::Matching(patterns) => patterns.iter().any(|pattern| matches(pattern, target)),
        }
    }
}

fn matches(pattern: &str, target: &Target) -> bool {
    if pattern == "loopback" {
        return is_loopback(&target.host);
    }
    let (host, port) = match pattern.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !host.ends_with(':') => {
            (host, port.parse().ok())
        }
        _ => (pattern, None),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host_matches = match host.strip_prefix('*') {
        Some(end) => target.host.to_ascii_lowercase().ends_with(&end.to_ascii_lowercase()),
        None => target.host.eq_ignore_ascii_case(host),
    };
    host_matches && port.is_none_or(|port: u16| port == target.port)
}

/// Whether a host can only mean this machine.
#[must_use]
pub fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (url, shown) in [
            ("grpc://127.0.0.1:50051", Some("grpc://127.0.0.1:50051")),
            ("grpc://agents.local:80/", Some("grpc://agents.local:80")),
            ("http://agents.local:80/", None),
            ("HTTPS://agents.local:80/", None),
            ("grpc://[::1]:9", Some("grpc://[::1]:9")),
            ("grpc://127.0.0.1", None),
            ("grpc://:5", None),
            ("grpc://a:5/path", None),
            ("grpc://user@a:5", None),
            ("grpcs://a:5", None),
            ("file:///etc/passwd", None),
            ("weather", None),
            ("grpc://a b:5", None),
        ] {
            assert_eq!(url.parse::<Target>().ok().map(|t| t.to_string()).as_deref(), shown, "{url}");
        }
    }

    #[test]
    fn addresses_of_daemons() {
        for (url, authority) in [
            ("http://127.0.0.1:7460", Some("127.0.0.1:7460")),
            ("127.0.0.1:7460", Some("127.0.0.1:7460")),
            ("grpc://[::1]:9/", Some("[::1]:9")),
            ("http://127.0.0.1", None),
            ("https://a:5", None),
            ("http://a:5/path", None),
        ] {
            assert_eq!(Target::of_daemon(url).ok().map(|target| target.authority()).as_deref(), authority, "{url}");
        }
    }

    #[test]
    fn allowed() {
        let allow = |patterns: &[&str], url: &str| {
            let patterns = patterns.iter().map(|p| (*p).to_owned()).collect();
            AllowedTargets::Matching(patterns).allow(&url.parse().expect("an address"))
        };
        assert!(allow(&["loopback"], "grpc://localhost:1") && allow(&["loopback"], "grpc://[::1]:1"));
        assert!(!allow(&["loopback"], "grpc://10.0.0.1:1") && !allow(&["loopback"], "grpc://localhost.evil.org:1"));
        assert!(allow(&["*.agents.svc:50051"], "grpc://a.agents.svc:50051"));
        assert!(!allow(&["*.agents.svc:50051"], "grpc://a.agents.svc:50052"));
        assert!(!allow(&["*.agents.svc"], "grpc://agents.svc.evil.org:1"));
        assert!(allow(&["10.0.0.1"], "grpc://10.0.0.1:7") && allow(&["[::2]:5"], "grpc://[::2]:5"));
        assert!(!allow(&[], "grpc://127.0.0.1:1"));
    }
}
