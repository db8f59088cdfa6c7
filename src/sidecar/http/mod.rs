//! `forge-sidecar http`: an agent that is an HTTP chat endpoint.
//!
//! Endpoints speak one of several APIs, the [`preset`]s. Of `plain`, `question` makes of a case what is sent, with
//! the `attachments` in it, and `answer` reads what comes back, with a look at `near` names; where the values stand
//! say [`fields`], as paths to a [`field`] each. Each other API has a file, which writes a `conversation` as that
//! API has it, and reads answers and streams into what was `told`. A [`shape`] is a preset with what people set
//! about it, such as the [`template`] of a body; an [`endpoint`] is all that people say.
//!
//! [`client`] speaks HTTP with an [`address`]; `service` makes an `AgentEndpoint` of all that, `events` writes what
//! it reports, and [`serve`] serves it.

use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use self::client::HttpClient;
use self::shape::Shape;
use super::infra::AGENT;
use crate::peer::agent::MAX_MESSAGE_BYTES;
use crate::wire::agent::agent_endpoint_server::AgentEndpointServer;
use crate::wire::reflection::{HEALTH, REFLECTION, reflection};

pub mod address;
mod answer;
mod anthropic_messages;
mod attachments;
pub mod client;
mod conversation;
pub mod endpoint;
pub mod environment;
mod events;
pub mod field;
pub mod fields;
mod near;
mod openai_chat;
mod openai_responses;
pub mod preset;
mod question;
mod service;
pub mod shape;
pub mod template;
mod told;

/// Most time for one request, unless something else is said.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_mins(5);
/// Time for calls to say that they end.
const CLOSING: Duration = Duration::from_secs(1);
/// Pings find daemons that are gone without having said so, and end their requests.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Calls at the same time on one connection: more than a daemon makes.
const STREAMS: u32 = 10_000;

/// An HTTP chat endpoint, as an agent.
#[derive(Debug)]
pub struct Adapter {
    /// Speaks with it.
    pub client: HttpClient,
    /// How it is asked, and how its answers are read.
    pub shape: Shape,
    /// The id on the agent's card.
    pub agent_id: String,
    /// Most time for one request.
    pub timeout: Duration,
}

impl Adapter {
    /// An endpoint of the contract's own shape.
    #[must_use]
    pub fn new(client: HttpClient) -> Self {
        let agent_id = client.url().authority().to_owned();
        Self { client, shape: Shape::default(), agent_id, timeout: DEFAULT_TIMEOUT }
    }
}

/// Why serving ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The server gave up.
    #[error("serving")]
    Serve(#[from] tonic::transport::Error),
    /// The build is broken.
    #[error("setting up reflection")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// Serves the endpoint as an agent until `shutdown` is cancelled, and ends the calls in flight then.
///
/// # Errors
/// When the server gives up.
pub async fn serve(listener: TcpListener, adapter: Adapter, shutdown: CancellationToken) -> Result<(), ServeError> {
    let (health, health_service) = tonic_health::server::health_reporter();
    for service in ["", AGENT] {
        health.set_service_status(service, tonic_health::ServingStatus::Serving).await;
    }
    let agent = AgentEndpointServer::new(service::Service::new(adapter, shutdown.clone()))
        .max_decoding_message_size(MAX_MESSAGE_BYTES);
    let served = Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .max_concurrent_streams(STREAMS)
        .add_service(health_service)
        .add_service(reflection(&[AGENT, HEALTH, REFLECTION]).build_v1()?)
        .add_service(agent)
        .serve_with_incoming_shutdown(
            TcpIncoming::from(listener).with_nodelay(Some(true)),
            shutdown.clone().cancelled_owned(),
        );
    let closed = async {
        shutdown.cancelled().await;
        tokio::time::sleep(CLOSING).await;
    };
    tokio::select! {
        served = served => Ok(served?),
        // Whoever keeps its connection open is not waited for.
        () = closed => Ok(()),
    }
}
