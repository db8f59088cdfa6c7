//! The agent of docs/languages.md in Rust; a test compares the two.

mod pb {
    pub(crate) use forge::wire::agent::*;
}

use pb::agent_endpoint_server::{AgentEndpoint, AgentEndpointServer};
use pb::{invoke_request::Frame, invoke_response::Event, json::Form, part::Content, tool_call_finished::Outcome};
use tokio_stream::{Iter, iter};
use tonic::{Request, Response, Status, Streaming};

struct Weather;

#[tonic::async_trait]
impl AgentEndpoint for Weather {
    type InvokeStream = Iter<std::vec::IntoIter<Result<pb::InvokeResponse, Status>>>;

    async fn describe(&self, _: Request<pb::DescribeRequest>) -> Result<Response<pb::DescribeResponse>, Status> {
        let tools = vec![pb::ToolSpec { name: "get_weather".into(), ..Default::default() }];
        let card = pb::AgentCard { agent_id: "weather".into(), version: "1.0.0".into(), tools, ..Default::default() };
        let instance_id = std::process::id().to_string();
        Ok(Response::new(pb::DescribeResponse { revision: 1, instance_id, card: Some(card), ..Default::default() }))
    }

    async fn invoke(
        &self,
        request: Request<Streaming<pb::InvokeRequest>>,
    ) -> Result<Response<Self::InvokeStream>, Status> {
        let first = request.into_inner().message().await?.and_then(|request| request.frame);
        let Some(Frame::Start(start)) = first else { return Err(Status::invalid_argument("start: comes first")) };
        if start.invocation_id.is_empty() || start.tool_mode() != pb::ToolMode::Live {
            return Err(Status::failed_precondition("start: an invocation id and live tools are needed"));
        }
        let json = |text: &str| pb::Json { form: Some(Form::Raw(text.into())) };
        let (call_id, name) = (String::from("1"), String::from("get_weather"));
        let params = Some(json(r#"{"city":"Oslo"}"#));
        let outcome = Some(Outcome::Result(json(r#"{"celsius":4}"#)));
        let parts = vec![pb::Part { content: Some(Content::Text("4 degrees in Oslo.".into())) }];
        let response = Some(pb::Message { role: pb::Role::Assistant.into(), parts, ..Default::default() });
        let (finish_reason, tool_calls) = (pb::FinishReason::Completed.into(), 1);
        let events = [
            Event::Accepted(pb::InvokeAccepted { invocation_id: start.invocation_id, ..Default::default() }),
            Event::ToolStarted(pb::ToolCallStarted { call_id: call_id.clone(), name, params, ..Default::default() }),
            Event::ToolFinished(pb::ToolCallFinished { call_id, outcome, ..Default::default() }),
            Event::Finished(pb::InvokeFinished { finish_reason, response, tool_calls, ..Default::default() }),
        ];
        let numbered = (1..).zip(events.map(Some));
        let sent = numbered.map(|(seq, event)| Ok(pb::InvokeResponse { seq, event, ..Default::default() }));
        Ok(Response::new(iter(sent.collect::<Vec<_>>())))
    }
}

#[tokio::main]
async fn main() -> Result<(), tonic::transport::Error> {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok()).unwrap_or(50051);
    let address = ([127, 0, 0, 1], port).into();
    println!("listening on {address}");
    tonic::transport::Server::builder().add_service(AgentEndpointServer::new(Weather)).serve(address).await
}
