//! Where telemetry goes: the standard `OTEL_*` variables, else what the configuration says.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};

use opentelemetry_otlp::tonic_types::transport::ClientTlsConfig;
use opentelemetry_otlp::{
    LogExporter, MetricExporter, RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig, WithTonicConfig,
};
use tokio::runtime::Handle;
use tonic::metadata::{MetadataKey, MetadataMap};

use crate::tls;

/// Where telemetry goes when no variable says so.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Otlp {
    /// Address of an OTLP receiver, without `/v1/…`; `None`: nothing is exported.
    pub endpoint: Option<String>,
    /// How it is spoken to; `None`: HTTP, as OpenTelemetry wants it.
    pub protocol: Option<Protocol>,
    /// Sent along with every export.
    pub headers: BTreeMap<String, String>,
    /// Evaluations are exported as log records, too.
    pub logs: bool,
    /// Metrics are exported.
    pub metrics: bool,
}

/// How a receiver is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// `grpc`
    Grpc,
    /// `http/protobuf`
    Http,
}

impl Protocol {
    /// The protocol of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "grpc" => Some(Self::Grpc),
            "http/protobuf" => Some(Self::Http),
            _ => None,
        }
    }
}

/// Why nothing can be exported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("exporting telemetry: {0}")]
pub struct TelemetryError(String);

/// What is exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signal {
    Traces,
    Logs,
    Metrics,
}

impl Signal {
    const fn name(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Logs => "logs",
            Self::Metrics => "metrics",
        }
    }

    fn variable(self, before: &str, behind: &str) -> Option<String> {
        variable(&format!("{before}_{}_{behind}", self.name().to_uppercase()))
    }

    /// Time for one export.
    fn timeout(self) -> Duration {
        let millis = self.variable("OTEL_EXPORTER_OTLP", "TIMEOUT");
        let millis = millis.or_else(|| variable("OTEL_EXPORTER_OTLP_TIMEOUT")).and_then(|text| text.parse().ok());
        millis.map_or(TIMEOUT, Duration::from_millis)
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

/// Exporters for what is to be exported.
#[derive(Debug)]
pub struct Exporters {
    /// Of spans.
    pub spans: Option<SpanExporter>,
    /// Of log records.
    pub logs: Option<LogExporter>,
    /// Of metrics.
    pub metrics: Option<MetricExporter>,
    /// Time for one export of spans.
    pub timeout: Duration,
}

impl Exporters {
    /// Sets up what the environment and the configuration ask for; nothing is sent yet. Needs a runtime around it.
    ///
    /// # Errors
    /// When something that is asked for makes no sense.
    pub fn new(otlp: &Otlp) -> Result<Self, TelemetryError> {
        let spans = Route::of(Signal::Traces, otlp, true)?;
        let logs = Route::of(Signal::Logs, otlp, otlp.logs)?;
        let metrics = Route::of(Signal::Metrics, otlp, otlp.metrics)?;
        let bad = |error: opentelemetry_otlp::ExporterBuildError| TelemetryError(error.to_string());
        Ok(Self {
            timeout: Signal::Traces.timeout(),
            spans: match spans {
                None => None,
                Some(place) => Some(match place.protocol {
                    Protocol::Grpc => place.grpc(SpanExporter::builder().with_tonic())?.build().map_err(bad)?,
                    Protocol::Http => place.http(SpanExporter::builder().with_http())?.build().map_err(bad)?,
                }),
            },
            logs: match logs {
                None => None,
                Some(place) => Some(match place.protocol {
                    Protocol::Grpc => place.grpc(LogExporter::builder().with_tonic())?.build().map_err(bad)?,
                    Protocol::Http => place.http(LogExporter::builder().with_http())?.build().map_err(bad)?,
                }),
            },
            metrics: match metrics {
                None => None,
                Some(place) => Some(match place.protocol {
                    Protocol::Grpc => place.grpc(MetricExporter::builder().with_tonic())?.build().map_err(bad)?,
                    Protocol::Http => place.http(MetricExporter::builder().with_http())?.build().map_err(bad)?,
                }),
            },
        })
    }
}

/// Where a signal goes, and how.
struct Route<'a> {
    signal: Signal,
    headers: BTreeMap<String, String>,
    protocol: Protocol,
    /// The address of the configuration, unless a variable names another.
    configured: Option<&'a str>,
    is_secure: bool,
}

impl<'a> Route<'a> {
    /// `None`: the signal is not exported. `wanted` says whether the common address is meant for it, too.
    fn of(signal: Signal, otlp: &'a Otlp, wanted: bool) -> Result<Option<Self>, TelemetryError> {
        if variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let exporter = variable(&format!("OTEL_{}_EXPORTER", signal.name().to_uppercase()));
        match exporter.as_deref() {
            None | Some("otlp") => {}
            Some("none") => return Ok(None),
            Some(other) => {
                // It may be meant for other programs in the same environment.
                tracing::warn!(
                    signal = signal.name(),
                    exporter = other,
                    "only otlp is exported to: this is not exported"
                );
                return Ok(None);
            }
        }
        let own = signal.variable("OTEL_EXPORTER_OTLP", "ENDPOINT");
        let wanted = wanted || exporter.is_some();
        let common = variable("OTEL_EXPORTER_OTLP_ENDPOINT").filter(|_| wanted);
        let configured = otlp.endpoint.as_deref().filter(|_| wanted);
        let Some(address) = own.as_deref().or(common.as_deref()).or(configured) else { return Ok(None) };
        let uri: Result<http::Uri, _> = address.parse();
        let scheme = uri.as_ref().ok().and_then(http::Uri::scheme_str);
        if !matches!(scheme, Some("http" | "https")) {
            let hint = "write it like http://127.0.0.1:4318";
            return Err(TelemetryError(format!("{address:?} is no address of a receiver; {hint}")));
        }
        let is_configured = own.is_none() && common.is_none();
        let is_secure = scheme == Some("https");
        let named =
            signal.variable("OTEL_EXPORTER_OTLP", "PROTOCOL").or_else(|| variable("OTEL_EXPORTER_OTLP_PROTOCOL"));
        let protocol = match named {
            Some(name) => Protocol::named(&name).unwrap_or_else(|| {
                tracing::warn!(protocol = name, "this is not spoken: spans are exported as http/protobuf");
                Protocol::Http
            }),
            None => otlp.protocol.filter(|_| is_configured).unwrap_or(Protocol::Http),
        };
        let configured = configured.filter(|_| is_configured);
        // What is sent along may be a secret, and is meant for one receiver.
        let headers = if is_configured { otlp.headers.clone() } else { BTreeMap::new() };
        Ok(Some(Self { signal, headers, protocol, configured, is_secure }))
    }

    fn grpc<B: WithExportConfig + WithTonicConfig>(&self, builder: B) -> Result<B, TelemetryError> {
        // The caller that sends tries again itself.
        let mut builder =
            builder.with_protocol(opentelemetry_otlp::Protocol::Grpc).with_retry_policy(RetryPolicy::disabled());
        let mut metadata = MetadataMap::new();
        for (name, value) in &self.headers {
            let bad = || TelemetryError(format!("the header {name:?} cannot be sent"));
            let key: MetadataKey<_> = name.to_lowercase().parse().map_err(|_| bad())?;
            metadata.insert(key, value.parse().map_err(|_| bad())?);
        }
        builder = builder.with_metadata(metadata);
        if self.is_secure {
            builder = builder.with_tls_config(ClientTlsConfig::new().with_native_roots());
        }
        if let Some(endpoint) = self.configured {
            builder = builder.with_endpoint(endpoint);
        }
        Ok(builder)
    }

    fn http<B: WithExportConfig + WithHttpConfig>(&self, builder: B) -> Result<B, TelemetryError> {
        let failed = |error: String| TelemetryError(error);
        let tls = tls::client(self.is_secure).map_err(|error| failed(error.to_string()))?;
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .user_agent(concat!("forge/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .timeout(self.signal.timeout())
            .build()
            .map_err(|error| failed(error.to_string()))?;
        let client = OnRuntime { client: Arc::new(client), runtime: Handle::current() };
        let headers: HashMap<String, String> = self.headers.clone().into_iter().collect();
        let builder = builder
            .with_protocol(opentelemetry_otlp::Protocol::HttpBinary)
            .with_http_client(client)
            .with_retry_policy(RetryPolicy::disabled())
            .with_headers(headers);
        Ok(match self.configured {
            Some(endpoint) => {
                builder.with_endpoint(format!("{}/v1/{}", endpoint.trim_end_matches('/'), self.signal.name()))
            }
            None => builder,
        })
    }
}

/// Time for one export when no variable says so.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A client that works on threads without a runtime, too: metrics are exported from one.
#[derive(Debug, Clone)]
struct OnRuntime {
    client: Arc<reqwest::Client>,
    runtime: Handle,
}

#[async_trait]
impl HttpClient for OnRuntime {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = Arc::clone(&self.client);
        self.runtime.spawn(async move { client.send_bytes(request).await }).await?
    }
}
