//! The OTLP receiver: spans of agents come in here, and wait in the inbox of the runs that are going on.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

use super::manager::Manager;
use crate::limits::SPAN_REQUESTS;
use crate::telemetry::receive::{ReadError, read, spans};
use crate::wire::otlp::trace_service_server::TraceService;

/// Requests that are read at the same time, all of which are here. Reading a request takes a place until it is done,
/// also when nobody waits for it any more.
static READING: Semaphore = Semaphore::const_new(SPAN_REQUESTS);
/// Time for a request to come in and to find such a place.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
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
            Err(error @ ReadError::Failed) => Err(Status::unavailable(error.to_string())),
            // Exporters try again what another status refuses, and it stays what it is.
            Err(error @ (ReadError::TooMuch | ReadError::Malformed(_))) => {
                Err(Status::invalid_argument(error.to_string()))
            }
        }
    }
}

/// Reads a request and takes its spans, where it keeps no runtime thread from its work.
pub(super) async fn taken<E: From<ReadError> + Send + 'static>(
    manager: Arc<Manager>,
    read: impl FnOnce() -> Result<ExportTraceServiceRequest, E> + Send + 'static,
) -> Result<ExportTraceServiceResponse, E> {
    let place = tokio::time::timeout(PATIENCE, READING.acquire()).await;
    let Ok(Ok(place)) = place else { return Err(ReadError::Failed.into()) };
    let taking = tokio::task::spawn_blocking(move || {
        let _place = place;
        Ok(take(&manager, read()?))
    });
    taking.await.unwrap_or(Err(ReadError::Failed.into()))
}

/// Takes spans. Those of no run that is going on are nobody's, and that is fine; those that there was no room for
/// are told, so that nobody takes them for confirmed.
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
