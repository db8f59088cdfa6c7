//! The list of agents that a daemon knows.

use std::time::{Duration, Instant};

use forge::wire::agent as agents;
use forge::wire::agent::agent_endpoint_server::{AgentEndpoint, AgentEndpointServer};
use forge::wire::control as pb;
use forge::wire::control::agent_registry_service_client::AgentRegistryServiceClient;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Response, Status, Streaming};

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

/// An agent that says much about itself, and nothing else.
struct Boaster;

#[tonic::async_trait]
impl AgentEndpoint for Boaster {
    async fn describe(
        &self,
        _: Request<agents::DescribeRequest>,
    ) -> Result<Response<agents::DescribeResponse>, Status> {
        let description = "x".repeat(1_800_000);
        let tool = agents::ToolSpec { name: "boast".to_owned(), description, ..agents::ToolSpec::default() };
        let card = Some(agents::AgentCard { tools: vec![tool], ..agents::AgentCard::default() });
        Ok(Response::new(agents::DescribeResponse { revision: 1, card, ..agents::DescribeResponse::default() }))
    }

    type InvokeStream = ReceiverStream<Result<agents::InvokeResponse, Status>>;

    async fn invoke(
        &self,
        _: Request<Streaming<agents::InvokeRequest>>,
    ) -> Result<Response<Self::InvokeStream>, Status> {
        Err(Status::unimplemented("it only boasts"))
    }
}

/// All agents, page by page; each page has its limit.
async fn listed(mut client: AgentRegistryServiceClient<Channel>) -> Vec<pb::Agent> {
    let mut all = Vec::new();
    let mut page_token = String::new();
    loop {
        let page = client.list_agents(pb::ListAgentsRequest { page_size: 1000, page_token }).await;
        let page = page.expect("a page").into_inner();
        let bytes = prost::Message::encoded_len(&page);
        assert!(bytes < 3 << 20, "a page of {bytes} bytes");
        all.extend(page.agents);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return all;
        }
    }
}

/// What agents say about themselves is kept as long as there is room for it, and lists of it cost others nothing,
/// whether they are read or not.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn descriptions_hold_so_much_together() {
    const AGENTS: usize = 120;
    let place = Place::new();
    let (_agent, honest) = place.agent(r#"{"replies": [{"on": "*", "events": [{"text": "ok"}]}]}"#);
    let (daemon, url) = place.daemon();
    place.write("few.jsonl", r#"{"id": "c", "input": "hi", "assertions": [{"type": "contains", "value": "ok"}]}"#);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let target = format!("grpc://{}", listener.local_addr().expect("an address"));
    let server = Server::builder().add_service(AgentEndpointServer::new(Boaster));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let before = daemon.peak_memory();
    let mut client = registry(&url);
    for n in 0..AGENTS {
        let agent = pb::Agent { agent_id: format!("a{n:03}"), target: target.clone(), ..pb::Agent::default() };
        let request = pb::RegisterAgentRequest { agent: Some(agent), skip_probe: false };
        let added = client.register_agent(request).await.expect("it is added").into_inner().agent.unwrap_or_default();
        assert!(added.healthy && added.describe.is_some(), "it is shown as it is known");
    }

    // The one that was seen longest ago is forgotten first, and is asked again.
    let all = listed(client.clone()).await;
    assert_eq!(all.len(), AGENTS);
    assert!(all.iter().all(|agent| agent.healthy && agent.last_seen.is_some()), "they answered");
    let known = all.iter().filter(|agent| agent.describe.is_some()).count();
    assert!((20..AGENTS / 2).contains(&known), "{known} are described");
    assert!(all[AGENTS - known..].iter().all(|agent| agent.describe.is_some()), "the last ones");
    let probe = pb::ProbeAgentRequest { agent_id: "a000".to_owned() };
    let probed = client.probe_agent(probe).await.expect("an answer").into_inner().agent.unwrap_or_default();
    assert!(probed.describe.is_some());
    let again = listed(client.clone()).await;
    assert!(again[0].describe.is_some() && again[AGENTS - known].describe.is_none(), "the next one is forgotten");

    let counted = tokio::task::block_in_place(|| place.run(&["status", "--daemon", &url]));
    assert!(counted.stdout.contains(&format!("agents     {AGENTS}\n")), "{}{}", counted.stdout, counted.stderr);
    let shown = tokio::task::block_in_place(|| place.run(&["agents", "list", "--daemon", &url]));
    assert_eq!(shown.stdout.matches("  answered ").count(), AGENTS, "{}{}", shown.stdout, shown.stderr);

    // Many lists, which are read; then many that are not.
    let lists = (0..8).map(|_| listed(registry(&url)));
    for all in futures_util::future::join_all(lists).await {
        assert_eq!(all.len(), AGENTS);
    }
    let page_token = format!("a{:03}", AGENTS / 2 + known / 2);
    let unreaders = [registry(&url), registry(&url)];
    let unread = (0..360).map(|n| {
        let (mut client, page_token) = (unreaders[n % 2].clone(), page_token.clone());
        let mut list =
            Box::pin(async move { client.list_agents(pb::ListAgentsRequest { page_size: 1000, page_token }).await });
        async move {
            // It is asked for, and then nobody reads what comes behind the first window.
            let _ = tokio::time::timeout(Duration::from_millis(100), &mut list).await;
            Some(list)
        }
    });
    let unread = futures_util::future::join_all(unread).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let begun = Instant::now();
    let other = tokio::task::block_in_place(|| place.run(&["run", "few.jsonl", "-n", &honest, "--daemon", &url]));
    assert_eq!(other.code, Some(0), "{}{}", other.stdout, other.stderr);
    assert!(begun.elapsed() < Duration::from_secs(8), "it took {:?}", begun.elapsed());
    let more = daemon.peak_memory().saturating_sub(before) >> 20;
    assert!(more < 550, "{more} MiB more than before");
    drop(unread);
}
