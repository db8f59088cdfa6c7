//! Describe, simulator, validator, and the services around them.

use tonic_types::StatusExt as _;

use super::*;
use crate::wire::agent::simulator_client::SimulatorClient;
use crate::wire::agent::validator_client::ValidatorClient;
use crate::wire::agent::{DescribeRequest, NextInputRequest, ValidateRequest};

const AGENT: &str = r#"{"replies": []}"#;
const SIMULATOR: &str = r#"{
  "a": [{"input": "one"}, {"input": ""}, {"goal_achieved": true}],
  "b": [{"close": {"status": "INTERNAL", "message": "no model"}}, {"hang": true}]
}"#;
const VALIDATOR: &str = r#"{"replies": [
  {"criteria": "*", "passed": false, "reason": "unknown"},
  {"criteria": "good", "passed": true},
  {"criteria": "error", "close": {"status": "INTERNAL"}},
  {"criteria": "never", "hang": true}
]}"#;

#[tokio::test]
async fn the_agent_describes_itself() {
    let agent = Agent::start(AGENT);
    let mut client = agent.client().await;
    let ask = |agent_id: &str, min_revision, max_revision| DescribeRequest {
        agent_id: agent_id.to_owned(),
        min_revision,
        max_revision,
        ..DescribeRequest::default()
    };
    for (asked, id) in [("", "script"), ("expense", "expense")] {
        let described = client.describe(ask(asked, 1, 3)).await.expect("describes").into_inner();
        let card = described.card.expect("a card");
        assert_eq!((described.revision, &*card.agent_id), (1, id));
        assert!(!described.instance_id.is_empty() && card.version.starts_with("script-"));
        assert_eq!(described.capabilities, ["tools.stub", "tools.routing", "text.delta", "cancel"]);
    }
    let status = client.describe(ask("", 2, 3)).await.expect_err("refused");
    let reason = status.get_details_error_info().map(|info| info.reason);
    assert_eq!((status.code(), reason.as_deref()), (Code::FailedPrecondition, Some("REVISION_UNSUPPORTED")));
    assert_eq!(agent.log()[2]["agent_id"], "expense");
    assert_eq!(agent.log_events()[4..], ["start", "end:status"]);
}

#[tokio::test]
async fn the_simulator_answers_turn_by_turn() {
    let agent = Agent::start_all(AGENT, Some(SIMULATOR), None);
    let channel = agent.endpoint().connect().await.expect("connects");
    let mut simulator = SimulatorClient::new(channel.clone());
    let ask = |case_id: &str, turn_number| NextInputRequest {
        context: Some(CallContext { case_id: case_id.to_owned(), ..CallContext::default() }),
        turn_number,
        conversation: vec![user("earlier")],
        ..NextInputRequest::default()
    };
    for (turn, input, goal_achieved) in
        [(1, Some("one"), false), (2, Some(""), false), (3, None, true), (4, None, true)]
    {
        let answer = simulator.next_input(ask("a", turn)).await.expect("answers").into_inner();
        assert_eq!((answer.input, answer.goal_achieved), (input.map(user), goal_achieved), "turn {turn}");
    }
    let status = simulator.next_input(ask("b", 1)).await.expect_err("an error");
    assert_eq!((status.code(), status.message()), (Code::Internal, "no model"));
    assert_eq!(simulator.next_input(ask("c", 1)).await.expect_err("an error").code(), Code::NotFound);
    let never = tokio::time::timeout(Duration::from_millis(50), simulator.next_input(ask("b", 2))).await;
    assert!(never.is_err());
    let line = &agent.log()[6];
    assert_eq!((&line["service"], &line["case_id"]), (&"Simulator/NextInput".into(), &"a".into()));
    assert_eq!((&line["turn"], &line["last_user_text"], &line["messages"]), (&4.into(), &"earlier".into(), &1.into()));
    let mut validator = ValidatorClient::new(channel);
    let status = validator.validate(ValidateRequest::default()).await.expect_err("no script");
    assert_eq!(status.code(), Code::Unimplemented);
    agent.stop().await;
}

#[tokio::test]
async fn the_validator_answers_by_criteria() {
    let agent = Agent::start_all(AGENT, None, Some(VALIDATOR));
    let mut client = ValidatorClient::new(agent.endpoint().connect().await.expect("connects"));
    let ask = |criteria: &str| ValidateRequest { criteria: criteria.to_owned(), ..ValidateRequest::default() };
    for (criteria, passed, reason) in [("good", true, ""), ("odd", false, "unknown")] {
        let answer = client.validate(ask(criteria)).await.expect("answers").into_inner();
        assert_eq!((answer.passed, &*answer.reason), (Some(passed), reason));
    }
    for (criteria, code) in [("error", Code::Internal), ("", Code::InvalidArgument)] {
        assert_eq!(client.validate(ask(criteria)).await.expect_err("an error").code(), code);
    }
    assert!(tokio::time::timeout(Duration::from_millis(50), client.validate(ask("never"))).await.is_err());
    agent.stop().await;
}

#[tokio::test]
async fn health_reflection_and_unknown_methods_answer() {
    let agent = Agent::start(AGENT);
    let channel = agent.endpoint().connect().await.expect("connects");
    let mut health = tonic_health::pb::health_client::HealthClient::new(channel.clone());
    for service in ["", "forge.agent.v1.AgentEndpoint"] {
        let request = tonic_health::pb::HealthCheckRequest { service: service.to_owned() };
        assert_eq!(health.check(request.clone()).await.expect("healthy").into_inner().status, 1);
        let mut watch = health.watch(request).await.expect("watches").into_inner();
        assert_eq!(watch.message().await.expect("a message").map(|status| status.status), Some(1));
    }
    let mut reflection =
        tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient::new(channel.clone());
    let request = tonic_reflection::pb::v1::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(tonic_reflection::pb::v1::server_reflection_request::MessageRequest::ListServices(
            String::new(),
        )),
    };
    let mut answers = reflection.server_reflection_info(tokio_stream::iter([request])).await.expect("ok").into_inner();
    let answer = format!("{:?}", answers.message().await.expect("a message"));
    assert!(answer.contains("forge.agent.v1.AgentEndpoint") && !answer.contains("Simulator"), "{answer}");
    let mut compressing = agent.client().await.send_compressed(tonic::codec::CompressionEncoding::Gzip);
    let status = compressing.describe(DescribeRequest::default()).await.expect_err("refused");
    assert_eq!(status.code(), Code::Unimplemented);
    let mut other = crate::wire::agent::generator_client::GeneratorClient::new(channel);
    let status = other.generate(crate::wire::agent::GenerateRequest::default()).await.expect_err("refused");
    assert_eq!(status.code(), Code::Unimplemented);
    agent.stop().await;
}
