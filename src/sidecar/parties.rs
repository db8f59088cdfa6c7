//! The scripted simulator and the scripted validator: one request, one answer.

use std::time::Duration;

use prost::Message as _;
use tonic::Status;

use super::call_log::{About, End, LoggedCall, last_user_text};
use super::grpc::{Inbound, Outbound, Unread};
use super::host::Host;
use super::script::{Breakdown, SimulatorAnswer, ValidatorAnswer};
use crate::wire::agent::{
    Message, NextInputRequest, NextInputResponse, Part, Role, ValidateRequest, ValidateResponse, part,
};

/// What a call with one answer comes to.
pub(super) enum Answer {
    /// After a time the encoded answer, and OK.
    Message(Duration, Vec<u8>),
    /// No answer but a status.
    Status(Status),
    /// Nothing, until the peer gives up.
    Hang,
}

impl From<&Breakdown> for Answer {
    fn from(trouble: &Breakdown) -> Self {
        match trouble {
            Breakdown::Close(status) => Self::Status(status.clone()),
            Breakdown::Hang => Self::Hang,
        }
    }
}

/// `Simulator/NextInput`.
pub(super) async fn next_input(host: &Host, inbound: Inbound, out: Outbound) {
    const METHOD: &str = "Simulator/NextInput";
    let Some(script) = &host.scripts.simulator else { return out.finish(unimplemented(METHOD), inbound).await };
    let about = |request: &NextInputRequest| {
        let context = request.context.clone().unwrap_or_default();
        About {
            service: METHOD,
            agent_id: context.agent_id,
            case_id: context.case_id,
            conversation_id: String::new(),
            turn: request.turn_number,
            last_user_text: last_user_text(&request.conversation),
            messages: request.conversation.len(),
        }
    };
    let decide = |request: NextInputRequest| {
        let case_id = request.context.unwrap_or_default().case_id;
        let answers = script.get(&case_id);
        // Turns count from 1. The last answer repeats.
        let turn = (request.turn_number.max(1) - 1) as usize;
        match answers.and_then(|answers| answers.get(turn).or(answers.last())) {
            None => Answer::Status(Status::not_found(format!("the simulator script has no case {case_id:?}"))),
            Some(SimulatorAnswer::Breakdown(trouble)) => trouble.into(),
            Some(SimulatorAnswer::Input { input, goal_achieved, reasoning, wait }) => {
                let input = input.clone().map(|text| Message {
                    role: Role::User.into(),
                    parts: vec![Part { content: Some(part::Content::Text(text)) }],
                    ..Message::default()
                });
                let (goal_achieved, reasoning) = (*goal_achieved, reasoning.clone());
                let response = NextInputResponse { input, goal_achieved, reasoning, ..NextInputResponse::default() };
                Answer::Message(*wait, response.encode_to_vec())
            }
        }
    };
    unary(host, inbound, out, about, decide).await;
}

/// `Validator/Validate`.
pub(super) async fn validate(host: &Host, inbound: Inbound, out: Outbound) {
    const METHOD: &str = "Validator/Validate";
    let Some(script) = &host.scripts.validator else { return out.finish(unimplemented(METHOD), inbound).await };
    let about = |request: &ValidateRequest| {
        let context = request.context.clone().unwrap_or_default();
        About {
            service: METHOD,
            agent_id: context.agent_id,
            case_id: context.case_id,
            conversation_id: String::new(),
            turn: context.turn,
            last_user_text: last_user_text(&request.conversation),
            messages: request.conversation.len(),
        }
    };
    let decide = |request: ValidateRequest| {
        if request.criteria.is_empty() {
            return Answer::Status(Status::invalid_argument("criteria must not be empty"));
        }
        let named = script.iter().find(|reply| reply.criteria.as_deref() == Some(&request.criteria));
        match named.or_else(|| script.iter().find(|reply| reply.criteria.is_none())).map(|reply| &reply.answer) {
            None => {
                let message = format!("the validator script has no reply for the criteria {:?}", request.criteria);
                Answer::Status(Status::not_found(message))
            }
            Some(ValidatorAnswer::Breakdown(trouble)) => trouble.into(),
            Some(ValidatorAnswer::Judgement { passed, reason }) => {
                let response =
                    ValidateResponse { passed: Some(*passed), reason: reason.clone(), ..ValidateResponse::default() };
                Answer::Message(Duration::ZERO, response.encode_to_vec())
            }
        }
    };
    unary(host, inbound, out, about, decide).await;
}

/// Reads the request, logs it, decides, answers.
pub(super) async fn unary<M: prost::Message + prost::Name + Default>(
    host: &Host,
    mut inbound: Inbound,
    out: Outbound,
    about: impl FnOnce(&M) -> About,
    decide: impl FnOnce(M) -> Answer,
) {
    let (logged, answer) = match inbound.message::<M>().await {
        Ok(Some(request)) => (host.log.start(about(&request)), decide(request)),
        Ok(None) => {
            let status = Status::invalid_argument("the stream ended before the request");
            (host.log.start(about(&M::default())), Answer::Status(status))
        }
        Err(Unread::Refused(status)) => (host.log.start(about(&M::default())), Answer::Status(status)),
        Err(Unread::Gone(gone)) => return host.log.start(about(&M::default())).end(gone.end()),
    };
    send(answer, logged, inbound, out).await;
}

async fn send(answer: Answer, logged: LoggedCall, inbound: Inbound, mut out: Outbound) {
    match answer {
        Answer::Message(wait, message) => {
            if !wait.is_zero() {
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    gone = out.gone() => return logged.end(gone.end()),
                }
            }
            match out.message(&message).await {
                Ok(()) => {
                    logged.end(End::Ok);
                    out.finish(Status::ok(""), inbound).await;
                }
                Err(gone) => logged.end(gone.end()),
            }
        }
        Answer::Status(status) => {
            logged.end(End::Status);
            out.finish(status, inbound).await;
        }
        Answer::Hang => logged.end(out.gone().await.end()),
    }
}

fn unimplemented(method: &str) -> Status {
    Status::unimplemented(format!("{method} is not scripted"))
}
