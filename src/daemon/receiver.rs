//! The OTLP receiver: spans of agents come in here, and wait in the inbox of the runs that are going on.

use std::sync::Arc;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use tonic::{Request, Response, Status};

use super::manager::Manager;
use crate::telemetry::receive::{ReadError, read, spans};
use crate::wire::otlp::trace_service_server::TraceService;

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
    async fn export(&self, request: Request<Bytes>) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let (manager, request) = (Arc::clone(&self.manager), request.into_inner());
        match taken(manager, move || read(request)).await {
            Ok(taken) => Ok(Response::new(taken)),
            Err(error @ ReadError::TooMuch) => Err(Status::resource_exhausted(error.to_string())),
            Err(error @ ReadError::Failed) => Err(Status::internal(error.to_string())),
            Err(error @ ReadError::Malformed(_)) => Err(Status::invalid_argument(error.to_string())),
        }
    }
}

/// Reads a request and takes its spans, where it keeps no runtime thread from its work.
pub(super) async fn taken<E: From<ReadError> + Send + 'static>(
    manager: Arc<Manager>,
    read: impl FnOnce() -> Result<ExportTraceServiceRequest, E> + Send + 'static,
) -> Result<ExportTraceServiceResponse, E> {
    let taking = tokio::task::spawn_blocking(move || Ok(take(&manager, read()?)));
    taking.await.unwrap_or(Err(ReadError::Failed.into()))
}

/// Takes spans. Those of no run that is going on are nobody's, and that is fine; those that there was no room for are told, so that
/// nobody takes them for confirmed.
fn take(manager: &Manager, request: ExportTraceServiceRequest) -> ExportTraceServiceResponse {
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
