//! What the daemon does, in numbers: for Prometheus at `/metrics`, and over OTLP if that is asked for.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, MeterProvider as _, UpDownCounter};
use opentelemetry_otlp::MetricExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider, Temporality};
use prometheus::{Encoder as _, Registry, TextEncoder};

use super::export::Exporter;
use super::semconv;
use crate::event::{CallEnd, PartyRole, Payload, RunEvent, Said};
use crate::peer::attach::Hub;
use crate::verdict::Outcome;

/// Bounds of the buckets of times, in seconds: those of the conventions for calls of models, and below.
const SECONDS: [f64; 16] =
    [0.001, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];

/// Most agents that have a number of their own, and the name of all others together, which no agent can have.
const MAX_ATTACHED: usize = 100;
const OTHERS: &str = "(others)";

/// The numbers of a daemon.
#[derive(Debug)]
pub struct Metrics {
    provider: SdkMeterProvider,
    registry: Registry,
    runs: Counter<u64>,
    running: UpDownCounter<i64>,
    run_wait: Histogram<f64>,
    cases: Counter<u64>,
    case_duration: Histogram<f64>,
    calls: Histogram<f64>,
    stored: Histogram<f64>,
    received: Counter<u64>,
    attaches: Counter<u64>,
    detaches: Counter<u64>,
}

/// An exporter that fails where the one inside panics: the thread that exports must not end because of what a receiver
/// answered.
struct Caught(MetricExporter);

impl PushMetricExporter for Caught {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let caught = AssertUnwindSafe(self.0.export(metrics)).catch_unwind().await;
        caught.unwrap_or_else(|_| {
            Err(OTelSdkError::InternalFailure("the exporter failed at what the receiver answered".to_owned()))
        })
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn temporality(&self) -> Temporality {
        self.0.temporality()
    }
}

impl Metrics {
    /// Numbers that begin at nothing.
    ///
    /// # Errors
    /// When the registry does not take them.
    pub fn new(otlp: Option<MetricExporter>, resource: Resource) -> Result<Self, String> {
        let registry = Registry::new();
        let prometheus = opentelemetry_prometheus::exporter().with_registry(registry.clone());
        let prometheus = prometheus.scope_info_enabled(false).build().map_err(|error| error.to_string())?;
        let mut provider = SdkMeterProvider::builder().with_resource(resource).with_reader(prometheus);
        if let Some(exporter) = otlp {
            provider = provider.with_reader(PeriodicReader::builder(Caught(exporter)).build());
        }
        let provider = provider.build();
        let meter = provider.meter(semconv::SCOPE);
        let seconds = |name: &'static str, description: &'static str| {
            let histogram = meter.f64_histogram(name).with_unit("s").with_description(description);
            histogram.with_boundaries(SECONDS.to_vec()).build()
        };
        Ok(Self {
            runs: meter
                .u64_counter(semconv::METRIC_RUNS)
                .with_unit("{run}")
                .with_description("Runs that ended, by their final state")
                .build(),
            running: meter
                .i64_up_down_counter(semconv::METRIC_RUNS_ACTIVE)
                .with_unit("{run}")
                .with_description("Runs that go on")
                .build(),
            run_wait: seconds(semconv::METRIC_RUN_WAIT, "Time from a run's creation to its beginning"),
            cases: meter
                .u64_counter(semconv::METRIC_CASES)
                .with_unit("{case}")
                .with_description("Cases that ended, by outcome and cause")
                .build(),
            case_duration: seconds(semconv::METRIC_CASE_DURATION, "Time that cases took"),
            calls: seconds(semconv::METRIC_CALL_DURATION, "Time that calls of agents, simulators and validators took"),
            stored: seconds(semconv::METRIC_STORE_DURATION, "Time until events of a run were stored"),
            received: meter
                .u64_counter(semconv::METRIC_SPANS_RECEIVED)
                .with_unit("{span}")
                .with_description("Spans that came in, by what became of them")
                .build(),
            attaches: meter
                .u64_counter(semconv::METRIC_ATTACHES)
                .with_unit("{process}")
                .with_description("Processes that dialled the daemon to attach, by what came of it")
                .build(),
            detaches: meter
                .u64_counter(semconv::METRIC_DETACHES)
                .with_unit("{process}")
                .with_description("Processes that are no longer attached, by why")
                .build(),
            provider,
            registry,
        })
    }

    /// Counts what becomes of spans that are exported.
    pub fn watch_exporter(&self, exporter: &Arc<Exporter>) {
        let meter = self.provider.meter(semconv::SCOPE);
        let count = |name: &'static str, unit: &'static str, description: &'static str, read: fn(&Exporter) -> u64| {
            let exporter: Weak<Exporter> = Arc::downgrade(exporter);
            meter
                .u64_observable_counter(name)
                .with_unit(unit)
                .with_description(description)
                .with_callback(move |observer| {
                    if let Some(exporter) = exporter.upgrade() {
                        observer.observe(read(&exporter), &[]);
                    }
                })
                .build();
        };
        count(semconv::METRIC_SPANS_EXPORTED, "{span}", "Spans that a receiver took", Exporter::exported);
        let lost = "Spans that were lost on the way to a receiver";
        count(semconv::METRIC_SPANS_DROPPED, "{span}", lost, Exporter::dropped);
        if exporter.records().is_some() {
            count(semconv::METRIC_RECORDS_EXPORTED, "{record}", "Log records that a receiver took", |exporter| {
                exporter.records().map_or(0, |records| records.exported())
            });
            let lost = "Log records that were lost on the way to a receiver";
            count(semconv::METRIC_RECORDS_DROPPED, "{record}", lost, |exporter| {
                exporter.records().map_or(0, |records| records.dropped())
            });
        }
        let waiting = Arc::downgrade(exporter);
        meter
            .u64_observable_gauge(semconv::METRIC_SPANS_WAITING)
            .with_unit("{span}")
            .with_description("Spans that wait to be exported")
            .with_callback(move |observer| {
                if let Some(exporter) = waiting.upgrade() {
                    observer.observe(exporter.waiting() as u64, &[]);
                }
            })
            .build();
    }

    /// Counts who is attached.
    pub fn watch_attached(&self, hub: &Arc<Hub>) {
        let hub = Arc::downgrade(hub);
        self.provider
            .meter(semconv::SCOPE)
            .u64_observable_gauge(semconv::METRIC_ATTACHED)
            .with_unit("{process}")
            .with_description("Processes that are attached, by agent")
            .with_callback(move |observer| {
                let Some(hub) = hub.upgrade() else { return };
                let (counts, others) = hub.counts(MAX_ATTACHED);
                for (agent, count) in counts {
                    observer.observe(count, &[KeyValue::new(semconv::AGENT_ID, agent)]);
                }
                observer.observe(others, &[KeyValue::new(semconv::AGENT_ID, OTHERS)]);
            })
            .build();
    }

    /// A process dialled the daemon to attach; what came of it is one of few words.
    pub fn attached(&self, result: &'static str) {
        self.attaches.add(1, &[KeyValue::new("forge.result", result)]);
    }

    /// A process is no longer attached; why is one of few words.
    pub fn detached(&self, reason: &'static str) {
        self.detaches.add(1, &[KeyValue::new("forge.reason", reason)]);
    }

    /// A run begins, so long after it was created; `None`: it goes on.
    pub fn run_begins(&self, waited: Option<Duration>) {
        self.running.add(1, &[]);
        if let Some(waited) = waited {
            self.run_wait.record(waited.as_secs_f64(), &[]);
        }
    }

    /// A run is left: it ended, or goes on another time.
    pub fn run_leaves(&self) {
        self.running.add(-1, &[]);
    }

    /// Events of a run were stored, after so long.
    pub fn events_stored(&self, took: Duration) {
        self.stored.record(took.as_secs_f64(), &[]);
    }

    /// Spans came in; what became of them is one of few words.
    pub fn spans_received(&self, count: usize, became: &'static str) {
        if count > 0 {
            self.received.add(count as u64, &[KeyValue::new("forge.result", became)]);
        }
    }

    /// Counts what an event of a run says; what a replay plays back was called another time.
    pub fn take(&self, event: &RunEvent, is_replay: bool) {
        match &event.payload {
            Payload::CallEnded(_) | Payload::PartySaid(_) if is_replay => {}
            Payload::CaseFinished(result) => {
                let mut attributes = vec![KeyValue::new(semconv::CASE_OUTCOME, result.outcome.name())];
                attributes.extend(result.cause.map(|cause| KeyValue::new(semconv::CASE_CAUSE, cause.name())));
                self.cases.add(1, &attributes);
                if !result.replayed && result.outcome != Outcome::Skipped {
                    let outcome = [KeyValue::new(semconv::CASE_OUTCOME, result.outcome.name())];
                    self.case_duration.record(result.transcript.duration.as_secs_f64(), &outcome);
                }
            }
            Payload::CallEnded(ended) => self.call("agent", ended.duration, failure_kind(ended)),
            Payload::PartySaid(party) => {
                let error = match party.said {
                    Said::Input { .. } | Said::Vote { .. } => None,
                    Said::Silence(_) => Some("silent"),
                    Said::Cancelled => Some("cancelled"),
                };
                self.call(party.role.name(), party.duration, error);
            }
            Payload::RunFinished(run) => self.runs.add(1, &[KeyValue::new(semconv::RUN_STATE, run.state.name())]),
            _ => {}
        }
    }

    fn call(&self, role: &'static str, took: Duration, error: Option<&'static str>) {
        let is_validator = role == PartyRole::Validator.name();
        let operation = if is_validator { semconv::OPERATION_EVALUATION } else { semconv::OPERATION_INVOKE_AGENT };
        let mut attributes =
            vec![KeyValue::new(semconv::OPERATION_NAME, operation), KeyValue::new(semconv::ROLE, role)];
        attributes.extend(error.map(|error| KeyValue::new(semconv::ERROR_TYPE, error)));
        self.calls.record(took.as_secs_f64(), &attributes);
    }

    /// All of them in the text format of Prometheus.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn text(&self) -> Result<String, String> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text).map_err(|error| error.to_string())?;
        String::from_utf8(text).map_err(|error| error.to_string())
    }

    /// Sends what is left, and ends. Blocks for some seconds at most.
    pub fn close(&self) {
        let _ = self.provider.shutdown_with_timeout(super::export::FLUSH);
    }
}

fn failure_kind(ended: &CallEnd) -> Option<&'static str> {
    ended.failure.as_ref().map(super::spans::failure_kind)
}
