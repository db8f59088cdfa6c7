//! The services around the agent, health and reflection, which tonic has ready.
//!
//! They are tower services over http bodies, so here is the little that turns a stream of h2 into such a body and back.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tower::ServiceExt as _;

use crate::wire::agent::{agent_endpoint_server, simulator_server, validator_server};
use crate::wire::reflection::{HEALTH, REFLECTION, reflection};

/// Package-wide name of the agent service.
pub(super) const AGENT: &str = agent_endpoint_server::SERVICE_NAME;
/// Package-wide name of the simulator service.
pub(super) const SIMULATOR: &str = simulator_server::SERVICE_NAME;
/// Package-wide name of the validator service.
pub(super) const VALIDATOR: &str = validator_server::SERVICE_NAME;

/// `grpc.health.v1` and `grpc.reflection.v1`.
#[derive(Debug, Clone)]
pub(super) struct Infra {
    routes: Routes,
}

impl Infra {
    /// Health and reflection of these services.
    ///
    /// # Errors
    /// When the descriptors of this build cannot be read.
    pub(super) async fn new(services: &[&str]) -> Result<Self, tonic_reflection::server::Error> {
        let (health, health_server) = tonic_health::server::health_reporter();
        for service in services {
            health.set_service_status(*service, ServingStatus::Serving).await;
        }
        let served = [services, &[HEALTH, REFLECTION]].concat();
        Ok(Self { routes: Routes::new(health_server).add_service(reflection(&served).build_v1()?) })
    }

    /// Answers a call; a method that is not known gets UNIMPLEMENTED.
    pub(super) async fn answer(&self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        let request = request.map(|body| tonic::body::Body::new(Received(body)));
        // Preparing it cannot fail; the type cannot say so.
        let Ok(response) = self.routes.clone().prepare().oneshot(request).await;
        let (parts, body) = response.into_parts();
        let end = body.is_end_stream();
        let Ok(stream) = respond.send_response(http::Response::from_parts(parts, ()), end) else { return };
        if !end {
            // A broken stream has nobody to tell.
            let _ = send(body, stream).await;
        }
    }
}

async fn send(mut body: tonic::body::Body, mut stream: SendStream<Bytes>) -> Result<(), h2::Error> {
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            // A watcher of health waits for ever: only the reset ends it.
            reset = std::future::poll_fn(|cx| stream.poll_reset(cx)) => return reset.map(drop),
        };
        match frame.map(|frame| frame.map(Frame::into_data)) {
            // These messages are small; h2 buffers what does not fit into the window.
            Some(Ok(Ok(data))) => stream.send_data(data, false)?,
            Some(Ok(Err(frame))) => return stream.send_trailers(frame.into_trailers().unwrap_or_default()),
            Some(Err(_)) | None => return stream.send_trailers(HeaderMap::new()),
        }
    }
}

/// The body of a request.
struct Received(RecvStream);

impl Body for Received {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if let Some(data) = ready!(self.0.poll_data(cx)) {
            let data = data?;
            let _ = self.0.flow_control().release_capacity(data.len());
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        let trailers = ready!(self.0.poll_trailers(cx))?;
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }
}
