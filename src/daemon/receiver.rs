//! The OTLP receiver: spans of agents come in here, and wait in the inbox of the runs that are going on.

use std::sync::Arc;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::TraceService;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use tonic::{Request, Response, Status};

use super::manager::Manager;
use crate::telemetry::receive::spans;

/// Requests that are read at the same time, over gRPC and over HTTP each.
pub(super) const MAX_REQUESTS: usize = 8;
/// Largest request, in bytes, after it was unzipped.
pub(super) const MAX_REQUEST_BYTES: usize = 4 << 20;

/// See the module.
pub(super) struct Receiver {
    pub(super) manager: Arc<Manager>,
}

#[tonic::async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        Ok(Response::new(take(&self.manager, request.into_inner())))
    }
}

/// Takes spans. Those of no run that is going on are nobody's, and that is fine; those that there was no room for are told, so that
/// nobody takes them for confirmed.
pub(super) fn take(manager: &Manager, request: ExportTraceServiceRequest) -> ExportTraceServiceResponse {
    let mut all = 0;
    let (kept, dropped) = manager.spans().take(spans(request).inspect(|_| all += 1));
    let metrics = &manager.telemetry().metrics;
    metrics.spans_received(kept, "kept");
    metrics.spans_received(dropped, "dropped");
    metrics.spans_received(all - kept - dropped, "ignored");
    let partial_success = (dropped > 0).then(|| ExportTracePartialSuccess {
        rejected_spans: i64::try_from(dropped).unwrap_or(i64::MAX),
        error_message: "too many spans wait to be read".to_owned(),
    });
    ExportTraceServiceResponse { partial_success }
}
