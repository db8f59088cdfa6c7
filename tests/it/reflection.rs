//! Reflection lists what is served on a port, and nothing else.

use tonic::transport::Channel;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};
use tonic_reflection::pb::v1alpha;

use crate::processes::{Place, Running, SIDECAR, command};
use crate::support::endpoint::{Endpoint, Reply};

const HEALTH: &str = "grpc.health.v1.Health";
const REFLECTION: &str = "grpc.reflection.v1.ServerReflection";

async fn ask(channel: &Channel, what: MessageRequest) -> MessageResponse {
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(what) };
    let mut client = ServerReflectionClient::new(channel.clone());
    let answers = client.server_reflection_info(tokio_stream::iter([request])).await.expect("an answer");
    let answer: Option<ServerReflectionResponse> = answers.into_inner().message().await.expect("a message");
    answer.and_then(|answer| answer.message_response).expect("a response")
}

/// What is listed, sorted; each of it can be described, too.
async fn listed(address: &str) -> Vec<String> {
    let channel =
        Channel::from_shared(format!("http://{address}")).expect("an address").connect().await.expect("connects");
    let MessageResponse::ListServicesResponse(list) = ask(&channel, MessageRequest::ListServices(String::new())).await
    else {
        panic!("no list");
    };
    let mut names: Vec<String> = list.service.into_iter().map(|service| service.name).collect();
    names.sort();
    for name in &names {
        let described = ask(&channel, MessageRequest::FileContainingSymbol(name.clone())).await;
        assert!(matches!(described, MessageResponse::FileDescriptorResponse(_)), "{name}: {described:?}");
    }
    names
}

/// The same by the older version of the protocol.
async fn listed_by_alpha(address: &str) -> Vec<String> {
    let channel =
        Channel::from_shared(format!("http://{address}")).expect("an address").connect().await.expect("connects");
    let what = v1alpha::server_reflection_request::MessageRequest::ListServices(String::new());
    let request = v1alpha::ServerReflectionRequest { host: String::new(), message_request: Some(what) };
    let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(channel);
    let answers = client.server_reflection_info(tokio_stream::iter([request])).await.expect("an answer");
    let answer = answers.into_inner().message().await.expect("a message").and_then(|answer| answer.message_response);
    let Some(v1alpha::server_reflection_response::MessageResponse::ListServicesResponse(list)) = answer else {
        panic!("no list: {answer:?}");
    };
    let mut names: Vec<String> = list.service.into_iter().map(|service| service.name).collect();
    names.sort();
    names
}

#[tokio::test]
async fn of_the_daemon() {
    let place = Place::new();
    let (_daemon, url) = place.daemon();
    let address = url.trim_start_matches("http://");
    let served = [
        "forge.attach.v1.AttachService",
        "forge.control.v1.AgentRegistryService",
        "forge.control.v1.InfoService",
        "forge.control.v1.RunService",
        HEALTH,
        REFLECTION,
        "grpc.reflection.v1alpha.ServerReflection",
        "opentelemetry.proto.collector.trace.v1.TraceService",
    ];
    assert_eq!(listed(address).await, served);
    assert_eq!(listed_by_alpha(address).await, served);
}

#[tokio::test]
async fn of_sidecars() {
    let place = Place::new();
    place.write("agent.json", r#"{"replies": [{"on": "*", "events": []}]}"#);
    place.write("user.json", r#"{"c": [{"input": "x"}]}"#);
    place.write("judge.json", r#"{"replies": [{"criteria": "*", "passed": true}]}"#);
    let endpoint = Endpoint::start(|_| Reply::Status(200, r#"{"response": ""}"#.to_owned()));
    let (agent, user, judge) = ("forge.agent.v1.AgentEndpoint", "forge.agent.v1.Simulator", "forge.agent.v1.Validator");
    for (args, served) in [
        (vec!["http", &endpoint.url()], vec![agent, HEALTH, REFLECTION]),
        (vec!["script", "agent.json"], vec![agent, HEALTH, REFLECTION]),
        (vec!["script", "agent.json", "--simulator", "user.json"], vec![agent, user, HEALTH, REFLECTION]),
        (
            vec!["script", "agent.json", "--simulator", "user.json", "--validator", "judge.json"],
            vec![agent, user, judge, HEALTH, REFLECTION],
        ),
    ] {
        let mut sidecar = command(SIDECAR, place.path());
        sidecar.args(&args);
        let mut sidecar = Running::start(sidecar);
        assert_eq!(listed(&sidecar.address()).await, served, "{args:?}");
    }
}
