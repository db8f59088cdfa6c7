//! The list of agents that a daemon knows.

use forge::wire::control as pb;
use forge::wire::control::agent_registry_service_client::AgentRegistryServiceClient;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use crate::processes::Place;

/// The smallest window that a stream and a connection may have.
const WINDOW: u32 = 65_535;

/// A client of the list of agents that takes one window of what comes, and no more, unless it reads.
fn registry(url: &str) -> AgentRegistryServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(url.to_owned()).expect("an address");
    let endpoint = endpoint.initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW);
    AgentRegistryServiceClient::new(endpoint.connect_lazy()).max_decoding_message_size(usize::MAX)
}

/// A page of agents is of some size, or of the daemon's choice.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_agents_is_not_negative() {
    let place = Place::new();
    let (_daemon, url) = place.daemon();
    let mut client = registry(&url);
    for page_size in [-1, i32::MIN] {
        let request = pb::ListAgentsRequest { page_size, ..pb::ListAgentsRequest::default() };
        let status = client.list_agents(request).await.expect_err("it is refused");
        assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "page_size: must not be negative"));
    }
    client.list_agents(pb::ListAgentsRequest::default()).await.expect("the daemon's choice");
}
