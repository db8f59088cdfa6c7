//! Spans in the words of OTLP.

use opentelemetry::KeyValue;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanData;

/// Who exports: `forge-daemon`, unless `OTEL_SERVICE_NAME` or `OTEL_RESOURCE_ATTRIBUTES` say otherwise.
#[must_use]
pub fn resource() -> Resource {
    let named = std::env::var("OTEL_SERVICE_NAME").is_ok_and(|name| !name.is_empty())
        || std::env::var("OTEL_RESOURCE_ATTRIBUTES").is_ok_and(|attributes| attributes.contains("service.name="));
    let builder = Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    if named { builder.build() } else { builder.with_service_name("forge-daemon").build() }
}

/// A line of a file of traces, as the file exporter of OpenTelemetry writes them: one request, in the JSON of OTLP.
///
/// # Errors
/// When they cannot be written as JSON.
pub fn line(spans: Vec<SpanData>, resource: &Resource) -> Result<String, serde_json::Error> {
    let resource = ResourceAttributesWithSchema::from(resource);
    let request = ExportTraceServiceRequest { resource_spans: group_spans_by_resource_and_scope(spans, &resource) };
    serde_json::to_string(&request).map(|line| line + "\n")
}
