//! The scripted agent: `AgentEndpoint/Describe` and the opening of `AgentEndpoint/Invoke`.
//!
//! An invocation has two halves that run side by side in one task: the ears ([`super::ears`]) read what the daemon
//! sends, the player ([`super::player`]) plays the script and asks the ears when it waits. Here the two are started,
//! and the call is ended as the player says.

use prost::Message as _;
use tonic::{Code, Status};

use super::call_log::{About, End, last_user_text};
use super::ears::Ears;
use super::grpc::{Inbound, Outbound, Unread};
use super::host::{Host, Line};
use super::parties::{Answer, unary};
use super::player::{How, Player};
use super::rules::{known, opening, revision};
use crate::wire::agent::invoke_request::Frame;
use crate::wire::agent::{AgentCard, DescribeRequest, DescribeResponse, InvokeRequest, InvokeStart, ToolMode};

/// `AgentEndpoint/Describe`.
pub(super) async fn describe(host: &Host, inbound: Inbound, out: Outbound) {
    let about = |request: &DescribeRequest| About {
        service: "AgentEndpoint/Describe",
        agent_id: request.agent_id.clone(),
        ..About::default()
    };
    unary(host, inbound, out, about, |request| match description(host, &request) {
        Ok(response) => Answer::Message(std::time::Duration::ZERO, response.encode_to_vec()),
        Err(status) => Answer::Status(status),
    })
    .await;
}

fn description(host: &Host, request: &DescribeRequest) -> Result<DescribeResponse, Status> {
    // One script plays every agent that is asked for.
    let agent_id = if request.agent_id.is_empty() { "script" } else { &request.agent_id };
    Ok(DescribeResponse {
        revision: revision(request)?,
        instance_id: host.instance_id(),
        card: Some(AgentCard {
            agent_id: agent_id.to_owned(),
            version: host.scripts.agent.version.clone(),
            description: "plays a script".to_owned(),
            ..AgentCard::default()
        }),
        capabilities: ["tools.stub", "tools.routing", "text.delta", "cancel"].map(str::to_owned).into(),
        ..DescribeResponse::default()
    })
}

/// `AgentEndpoint/Invoke`.
pub(super) async fn invoke(host: &Host, line: &Line, mut inbound: Inbound, mut out: Outbound) {
    let first = inbound.message::<InvokeRequest>().await;
    let (start, mode) = match first {
        Ok(Some(InvokeRequest { frame: Some(Frame::Start(start)) })) => {
            let mode = admit(host, &start);
            (start, mode)
        }
        Ok(Some(_)) => (InvokeStart::default(), Err(Status::invalid_argument("the first frame must be `start`"))),
        Ok(None) => (InvokeStart::default(), Err(Status::invalid_argument("the stream ended before `start`"))),
        Err(Unread::Refused(status)) => (InvokeStart::default(), Err(status)),
        Err(Unread::Gone(gone)) => return host.log.start(about(&InvokeStart::default())).end(gone.end()),
    };
    let logged = host.log.start(about(&start));
    let mode = match mode {
        Ok(mode) => mode,
        Err(status) => {
            logged.end(End::Status);
            return out.finish(status, inbound).await;
        }
    };
    let ears = Ears::default();
    let how = tokio::select! {
        how = Player::new(host, &start, mode, &ears, &mut out).play() => how,
        never = ears.listen(&mut inbound, &logged) => match never {},
    };
    // The line must be there before the peer can know that the call is over.
    logged.end(match &how {
        _ if ears.heard_cancel() => End::Cancelled,
        How::Finish(status) if status.code() == Code::Ok => End::Ok,
        How::Finish(_) => End::Status,
        How::Gone(gone) => gone.end(),
        How::ResetStream | How::CutConnection | How::Die => End::Reset,
    });
    match how {
        How::Finish(status) => out.finish(status, inbound).await,
        How::ResetStream => out.reset(),
        How::Gone(_) => {}
        // The stream is held until the connection has gone, or h2 would still write a reset for it.
        How::CutConnection => {
            line.cut.cancel();
            out.gone().await;
        }
        How::Die => {
            host.die().await;
            out.gone().await;
        }
    }
}

/// Whether the call is taken on, and in which mode.
fn admit(host: &Host, start: &InvokeStart) -> Result<ToolMode, Status> {
    let mode = opening(start)?;
    if !host.takes_on(&start.invocation_id) {
        return Err(known(&start.invocation_id));
    }
    Ok(mode)
}

fn about(start: &InvokeStart) -> About {
    let context = start.context.clone().unwrap_or_default();
    About {
        service: "AgentEndpoint/Invoke",
        agent_id: context.agent_id,
        case_id: context.case_id,
        conversation_id: start.conversation_id.clone(),
        turn: context.turn,
        last_user_text: last_user_text(&start.messages),
        messages: start.messages.len(),
    }
}
