//! What people say of an endpoint besides its address, on a command line or in the settings of a project.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use clap::builder::ValueParserFactory;
use reqwest::header::{HeaderName, HeaderValue};

use super::address::{HttpUrl, RequestHeader, Unrepeated};
use super::anthropic_messages::{VERSION, VERSION_HEADER};
use super::client::{ClientError, HttpClient};
use super::fields::Fields;
use super::preset::Preset;
use super::shape::{Shape, ShapeError};
use super::template::BodyTemplate;
use super::{Adapter, DEFAULT_TIMEOUT};

/// Where these options stand in a help; each by itself, or those of the program that come behind them would stand
/// there, too.
const HEADING: &str = "HTTP endpoints";

/// How an endpoint is spoken to.
#[derive(Debug, Clone, Default, Args)]
pub struct Endpoint {
    /// The API that the endpoint speaks, such as openai-chat
    ///
    /// plain, openai-chat, openai-responses or anthropic-messages. [default: plain]
    #[arg(long, value_enum, value_name = "API", hide_possible_values = true, help_heading = HEADING)]
    pub preset: Option<Preset>,
    /// The model to ask the endpoint for
    #[arg(long, value_name = "NAME", help_heading = HEADING)]
    pub model: Option<String>,
    /// Ask for answers as streams of server-sent events
    #[arg(long, help_heading = HEADING)]
    pub stream: bool,
    /// What to send besides, as JSON or in a file
    ///
    /// {{messages}}, {{message}} and such stand for what the case says, and ${VARIABLE} for what stands in the
    /// environment.
    #[arg(long, value_name = "JSON|@FILE", help_heading = HEADING, hide_short_help = true)]
    pub body: Option<Body>,
    /// A header to send, such as 'Authorization: Bearer ${CHAT_TOKEN}'
    ///
    /// Or Authorization=CHAT_AUTH. The variable stands in the environment. May be given several times.
    #[arg(long, value_name = "HEADER", help_heading = HEADING)]
    pub header: Vec<RequestHeader>,
    /// Where values stand in what is sent and answered, with the preset plain
    #[arg(skip)]
    pub fields: Fields,
    /// Most time for one request
    #[arg(skip)]
    pub timeout: Option<Duration>,
}

/// A template, written out or in a file.
#[derive(Debug, Clone)]
pub struct Body(pub BodyTemplate);

impl ValueParserFactory for Body {
    type Parser = Unrepeated<Self>;

    fn value_parser() -> Unrepeated<Self> {
        Unrepeated::new()
    }
}

impl FromStr for Body {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(path) = text.strip_prefix('@') else { return BodyTemplate::parse("--body", text).map(Self) };
        let body = std::fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))?;
        BodyTemplate::parse(path, &body).map(Self)
    }
}

/// Why an endpoint cannot be spoken to as people say.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// Settings do not go together.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A header, or TLS.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl EndpointError {
    /// Whether what people said is wrong, and not the system that it is said on.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::Shape(_) | Self::Client(ClientError::Header(_)))
    }
}

impl Endpoint {
    /// Whether anything is said.
    #[must_use]
    pub fn is_said(&self) -> bool {
        self.preset.is_some() || self.model.is_some() || self.stream || self.body.is_some() || !self.header.is_empty()
    }

    /// Fills what is not said here from what is said elsewhere. Headers of the same name count here.
    pub fn fill_from(&mut self, other: Self) {
        let Self { preset, model, stream, body, header, fields, timeout } = other;
        self.preset = self.preset.or(preset);
        self.model = self.model.take().or(model);
        self.stream |= stream;
        self.body = self.body.take().or(body);
        let own: Vec<HeaderName> = self.header.iter().map(|header| header.name().clone()).collect();
        self.header.extend(header.into_iter().filter(|header| !own.contains(header.name())));
        self.fields = fields;
        self.timeout = self.timeout.or(timeout);
    }

    /// The endpoint at `url`, as an agent.
    ///
    /// # Errors
    /// When settings do not go together, a header has no value, or the system has no certificates.
    pub fn adapter(self, url: HttpUrl) -> Result<Adapter, EndpointError> {
        let Self { preset, model, stream, body, header, fields, timeout } = self;
        let preset = preset.unwrap_or_default();
        let body = body.map(|body| body.0).unwrap_or_default();
        let mut client = HttpClient::new(url, &header)?;
        client.hide(body.secrets().to_vec());
        if preset == Preset::AnthropicMessages {
            client.default_header(HeaderName::from_static(VERSION_HEADER), HeaderValue::from_static(VERSION));
        }
        let shape = Shape { preset, fields, model, streams: stream, body };
        shape.check()?;
        let timeout = timeout.unwrap_or(DEFAULT_TIMEOUT);
        Ok(Adapter { shape, timeout, ..Adapter::new(client) })
    }
}
