//! The weather agent in Rust, by hand on the generated code: `cargo run --example weather -- --listen 127.0.0.1:50051`.
//!
//! It passes the suites of the samples in Python and TypeScript. In a crate of your own, `tonic-prost-build` generates
//! what `forge::wire::agent` is here, from the files that `forgectl proto --out proto` writes.
#![allow(clippy::wildcard_imports, reason = "the messages of the protocol are many")]

mod rules;

use std::{error::Error, pin::Pin};

use forge::wire::agent::agent_endpoint_server::{AgentEndpoint, AgentEndpointServer};
use forge::wire::agent::{invoke_request::Frame, invoke_response::Event, tool_call_finished::Outcome, *};
use futures_util::{Stream, stream};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, Streaming, transport::Server};

struct Weather {
    instance_id: String,
}

#[tonic::async_trait]
impl AgentEndpoint for Weather {
    type InvokeStream = Pin<Box<dyn Stream<Item = Result<InvokeResponse, Status>> + Send>>;

    async fn describe(&self, _: Request<DescribeRequest>) -> Result<Response<DescribeResponse>, Status> {
        let tools = rules::TOOLS.map(|(name, _)| ToolSpec { name: name.into(), ..Default::default() }).into();
        let (agent_id, version) = ("samples.weather".into(), "1.0.0".into());
        let card = Some(AgentCard { agent_id, version, tools, ..Default::default() });
        let instance_id = self.instance_id.clone();
        Ok(Response::new(DescribeResponse { revision: 1, instance_id, card, ..Default::default() }))
    }

    async fn invoke(&self, call: Request<Streaming<InvokeRequest>>) -> Result<Response<Self::InvokeStream>, Status> {
        let Some(Frame::Start(start)) = call.into_inner().message().await?.and_then(|request| request.frame) else {
            return Err(Status::invalid_argument("frame: the first must be `start`"));
        };
        match start.tool_mode() {
            _ if start.invocation_id.is_empty() => Err(Status::invalid_argument("start.invocation_id: is empty")),
            ToolMode::Live => Ok(()),
            ToolMode::Unspecified => Err(Status::invalid_argument("start.tool_mode: is no known mode")),
            _ => Err(Status::failed_precondition("start.tool_mode: tools run for real here")),
        }?;
        let invocation_id = start.invocation_id;
        let mut events = vec![Event::Accepted(InvokeAccepted { invocation_id, ..Default::default() })];
        let Some(part::Content::Text(question)) =
            start.messages.last().and_then(|message| message.parts.first()?.content.as_ref())
        else {
            return Err(Status::invalid_argument("start.messages: the last one has no text"));
        };
        let (calls, mut said) = (rules::calls(question), Vec::new());
        let tool_calls = u32::try_from(calls.len()).unwrap_or(u32::MAX);
        for ((tool, city), number) in calls.into_iter().zip(1..) {
            let (call_id, name, params) =
                (format!("call-{number}"), tool.into(), json(format!(r#"{{"city":"{city}"}}"#)));
            events.push(Event::ToolStarted(ToolCallStarted {
                call_id: call_id.clone(),
                name,
                params: Some(params),
                ..Default::default()
            }));
            let (result, sentence) = rules::look_up(tool, &city, question);
            let outcome = Some(Outcome::Result(json(result)));
            events.push(Event::ToolFinished(ToolCallFinished { call_id, outcome, ..Default::default() }));
            said.push(sentence);
        }
        let answer = if said.is_empty() { rules::knowledge(question).into() } else { said.join(" ") };
        let parts = vec![Part { content: Some(part::Content::Text(answer)) }];
        let response = Some(Message { role: Role::Assistant.into(), parts, ..Default::default() });
        let finish_reason = FinishReason::Completed.into();
        events.push(Event::Finished(InvokeFinished { finish_reason, response, tool_calls, ..Default::default() }));
        let numbered = (1..).zip(events.into_iter().map(Some));
        let sent = numbered.map(|(seq, event)| Ok(InvokeResponse { seq, event, ..Default::default() }));
        Ok(Response::new(Box::pin(stream::iter(sent))))
    }
}

fn json(text: String) -> Json {
    Json { form: Some(json::Form::Raw(text.into_bytes())) }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listen = std::env::args().skip_while(|arg| arg != "--listen").nth(1).unwrap_or("127.0.0.1:50051".into());
    let listener = tokio::net::TcpListener::bind(listen).await?;
    println!("listening on {}", listener.local_addr()?);
    let agent = AgentEndpointServer::new(Weather { instance_id: uuid::Uuid::new_v4().to_string() });
    Ok(Server::builder().add_service(agent).serve_with_incoming(TcpListenerStream::new(listener)).await?)
}
