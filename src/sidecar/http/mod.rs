//! `forge-sidecar http`: an agent that is an HTTP chat endpoint.
//!
//! Endpoints speak one of several APIs, the [`preset`]s. Of `plain`, `question` makes of a case what is sent, with
//! its attachments in it, and `answer` reads what comes back, with a look at `near` names; where the values stand
//! say [`fields`], as paths to a [`field`] each. Each other API has a file, which writes a `conversation` as that
//! API has it, and reads answers and streams into what was `told`. A [`shape`] is a preset with what people set
//! about it, such as the [`template`] of a body; an [`endpoint`] is all that people say.
//!
//! [`client`] speaks HTTP with an [`address`]; `call` is a turn of such an agent, and [`serve`] serves it.
//! [`openai`] is an agent of another kind: a model whose caller runs its `tools`.

use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::client::HttpClient;
use self::shape::Shape;
use super::service;
pub use super::service::ServeError;

pub mod address;
mod answer;
mod anthropic_messages;
mod call;
pub mod client;
mod conversation;
pub mod endpoint;
pub mod environment;
pub mod field;
pub mod fields;
mod near;
pub mod openai;
mod openai_chat;
mod openai_responses;
pub(super) mod plain;
pub mod preset;
mod question;
pub mod shape;
pub mod template;
mod told;
mod tools;

/// Most time for one request, unless something else is said.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_mins(5);
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

/// Serves the endpoint as an agent until `shutdown` is cancelled, and ends the calls in flight then.
///
/// # Errors
/// When the server gives up.
pub async fn serve(listener: TcpListener, adapter: Adapter, shutdown: CancellationToken) -> Result<(), ServeError> {
    service::serve(listener, call::agent(adapter), shutdown).await
}
