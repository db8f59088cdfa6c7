//! A turn of an agent that is an HTTP endpoint: it is asked, and what it answers is reported.
//!
//! The turn is accepted when the connection to the endpoint is there: before that nothing was sent.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use reqwest::{Method, StatusCode};
use sse_stream::SseByteStream;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use super::Adapter;
use super::client::{HttpClient, NoAnswer, Opened, Reply};
use super::plain;
use super::preset::{self, Preset, StreamReader};
use super::question::Question;
use super::told::{Called, Returned, Summary, Told, Unusable};
use crate::peer::status::{AGENT_MISCONFIGURED, AGENT_UNREACHABLE, CASE_UNSUPPORTED};
use crate::sidecar::attachments::MAX_FILE_BYTES;
use crate::sidecar::rules::with_reason;
use crate::sidecar::service::{ATTACHED_FILES, Agent};
use crate::sidecar::turn::{Answer, End, MAX_TEXT_BYTES, Turn, Wanted};
use crate::trace::TraceHeaders;
use crate::wire::agent::{AgentCard, Limits, ModelTurn};

/// An endpoint as an agent.
pub(super) fn agent(adapter: Adapter) -> Agent {
    let adapter = Arc::new(adapter);
    let limits =
        Limits { max_attachment_bytes: i64::try_from(MAX_FILE_BYTES).unwrap_or(i64::MAX), ..Limits::default() };
    let of = Arc::clone(&adapter);
    let describe = move || {
        let adapter = Arc::clone(&of);
        async move { describe(&adapter).await }
    };
    Agent::new(&[ATTACHED_FILES], limits, describe, move |turn| {
        let adapter = Arc::clone(&adapter);
        async move { answer(&adapter, &turn).await }
    })
}

async fn describe(Adapter { client, shape, agent_id, .. }: &Adapter) -> Result<AgentCard, Status> {
    let url = client.url();
    client.probe().await.map_err(|why| with_reason(Code::Unavailable, AGENT_UNREACHABLE, &why))?;
    Ok(AgentCard {
        agent_id: agent_id.clone(),
        // Nobody can ask it.
        version: "unknown".to_owned(),
        description: match shape.preset {
            Preset::Plain => format!("the HTTP endpoint {url}, which runs its own tools"),
            preset => format!(
                "the HTTP endpoint {url}, which runs its own tools behind the preset {preset}; stubs and routing through the API \
                 of a model are for `forge-sidecar openai`"
            ),
        },
        provider_name: shape.preset.provider().to_owned(),
        model: shape.model_name().unwrap_or_default(),
        ..AgentCard::default()
    })
}

/// What an endpoint answered.
pub(super) enum Heard {
    /// All at once; nothing of it was reported.
    Whole(Reply),
    /// As a stream, which was reported as it came; and what it comes to.
    Stream(Box<Result<Summary, Unusable>>),
}

/// Asks the endpoint, and reports what it says.
async fn answer(adapter: &Adapter, turn: &Turn) -> Result<Answer, End> {
    let question = adapter.shape.question(turn.start(), turn.attachments()).map_err(|why| {
        let why = format!("{} is not asked: {why}", adapter.client.url());
        End::Broken(with_reason(Code::FailedPrecondition, CASE_UNSUPPORTED, &why))
    })?;
    let Question { body, besides } = question;
    match ask(adapter, &mut Ear { turn, wants: None }, body).await? {
        Heard::Whole(reply) => whole(adapter, turn, &reply, &besides).await,
        Heard::Stream(answer) => match *answer {
            Ok(summary) => finish(turn, summary).await,
            Err(why) => Err(refusal(&adapter.client, StatusCode::OK, why, None)),
        },
    }
}

/// Sends the request, within the time that it may take.
pub(super) async fn ask(adapter: &Adapter, ear: &mut Ear<'_>, body: Bytes) -> Result<Heard, End> {
    let connected = CancellationToken::new();
    let trace = ear.turn.trace();
    let asked = exchange(adapter, ear, body, &trace, &connected);
    match tokio::time::timeout(adapter.timeout, asked).await {
        Ok(heard) => heard,
        Err(_) if connected.is_cancelled() => {
            let time = humantime::format_duration(adapter.timeout);
            let message = format!("{} gave no answer within {time} (--timeout)", adapter.client.url());
            Err(End::failed(Code::DeadlineExceeded, "HTTP_TIMEOUT", message))
        }
        // Nothing was sent: that is the network's, not the endpoint's.
        Err(_) => Err(NoAnswer::Unreachable(adapter.client.says("cannot be reached: no connection in time")).into()),
    }
}

impl From<NoAnswer> for End {
    fn from(why: NoAnswer) -> Self {
        match why {
            NoAnswer::Bad(message) => Self::failed(Code::Internal, "BAD_ANSWER", message),
            NoAnswer::Unreachable(message) | NoAnswer::Lost(message) => {
                Self::Broken(with_reason(Code::Unavailable, AGENT_UNREACHABLE, &message))
            }
        }
    }
}

async fn whole(adapter: &Adapter, turn: &Turn, reply: &Reply, besides: &[String]) -> Result<Answer, End> {
    let Adapter { client, shape, .. } = adapter;
    if !reply.status.is_success() {
        let message = client.refusal(reply);
        if let Some(hint) = trouble_of_the_set_up(reply.status, shape.preset) {
            let message = format!("{message} ({hint})");
            return Err(End::Broken(with_reason(Code::FailedPrecondition, AGENT_MISCONFIGURED, &message)));
        }
        // An endpoint that checks what it is sent may know of a message alone.
        let is_about_fields = matches!(reply.status, StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY);
        let message = if is_about_fields && !besides.is_empty() {
            format!("{message} (it was sent {} besides the message)", besides.join(", "))
        } else {
            message
        };
        return Err(End::failed(Code::Unknown, "HTTP_STATUS", message));
    }
    let bad = |why| refusal(client, reply.status, why, Some(&reply.body));
    if shape.preset != Preset::Plain {
        let mut account = preset::whole(shape.preset, &reply.body).map_err(bad)?;
        if shape.streams {
            account.warnings.push("it was asked for a stream (--stream) and answered all at once".to_owned());
        }
        let summary = account.close();
        let mut ear = Ear { turn, wants: None };
        for told in account.take() {
            ear.tell(told).await?;
        }
        return finish(turn, summary).await;
    }
    turn.warn(shape.fields.near(&reply.body));
    let answered = shape.fields.answer(&reply.body).map_err(|problem| bad(Unusable::Bad(problem)))?;
    plain::report(turn, answered).await
}

/// Hears what an endpoint tells, and reports it as it comes.
pub(super) struct Ear<'a> {
    pub(super) turn: &'a Turn,
    /// What the endpoint wants of its caller, if that runs its tools.
    pub(super) wants: Option<Wants>,
}

/// What a model has said, and which tools it wants to be called.
#[derive(Debug, Default)]
pub(super) struct Wants {
    pub(super) text: String,
    pub(super) calls: Vec<Wanted>,
}

impl Ear<'_> {
    pub(super) async fn tell(&mut self, told: Told) -> Result<(), End> {
        let Self { turn, wants } = self;
        match (told, wants) {
            (Told::Text(text), wants) => {
                turn.say(&text).await?;
                if let Some(wants) = wants {
                    wants.text.push_str(&text);
                }
            }
            (Told::Reasoning(text), _) => turn.reason(&text).await,
            (Told::Called(Called { id, name, params, .. }), Some(wants)) => {
                wants.calls.push(Wanted { id, name, params });
            }
            (Told::Returned(_), Some(_)) => {}
            (Told::Called(Called { number, name, params, .. }), None) => {
                turn.call(Wanted { id: number.to_string(), name, params }).await?;
            }
            (Told::Returned(Returned { number, outcome, duration }), None) => {
                turn.returned(&number.to_string(), outcome, duration).await;
            }
        }
        Ok(())
    }
}

/// Ends with what the endpoint told.
async fn finish(turn: &Turn, summary: Summary) -> Result<Answer, End> {
    let Summary { text, reason, turn: record, warnings } = summary;
    turn.warn(warnings);
    // An endpoint that runs tools calls its model more than once, and tells of it as one. Where turns are limited that
    // would count.
    if turn.start().max_model_turns.is_none() && record != ModelTurn::default() {
        turn.end_model_turn(ModelTurn { index: 1, ..record }).await;
    } else if let Some(usage) = &record.usage {
        turn.used(usage);
    }
    Ok(Answer { text: Some(text), reason })
}

/// Why an answer cannot be taken; `body` is its beginning, if that was not reported.
pub(super) fn refusal(client: &HttpClient, status: StatusCode, why: Unusable, body: Option<&[u8]>) -> End {
    match why {
        Unusable::Bad(problem) => {
            let problem = client.beginning(problem.as_bytes());
            let beginning = body.map(|body| format!(": {}", client.beginning(body))).unwrap_or_default();
            let message = client.says(&format!("answered {status} with {problem}{beginning}"));
            End::failed(Code::Internal, "BAD_ANSWER", message)
        }
        Unusable::Waits(what) => {
            End::Broken(with_reason(Code::FailedPrecondition, AGENT_MISCONFIGURED, &client.says(&what)))
        }
    }
}

/// Asks the endpoint. The call is taken on when the connection is there; a stream is reported as it comes.
async fn exchange(
    adapter: &Adapter,
    ear: &mut Ear<'_>,
    body: Bytes,
    trace: &TraceHeaders,
    connected: &CancellationToken,
) -> Result<Heard, End> {
    let Adapter { client, shape, .. } = adapter;
    let mut open = pin!(client.open(Method::POST, Some(body), trace, MAX_TEXT_BYTES, connected));
    let opened = tokio::select! {
        biased;
        opened = &mut open => opened,
        () = connected.cancelled() => {
            ear.turn.accept().await;
            open.await
        }
    }?;
    match StreamReader::of(shape.preset).filter(|_| opened.is_stream()) {
        None => Ok(Heard::Whole(opened.whole().await?)),
        Some(mut reader) => {
            reader.account().caller_runs_tools = ear.wants.is_some();
            listen_to_stream(client, opened, reader, ear).await.map(|answer| Heard::Stream(Box::new(answer)))
        }
    }
}

/// Reads a stream to the event that says that it is whole.
async fn listen_to_stream(
    client: &HttpClient,
    opened: Opened<'_>,
    mut reader: StreamReader,
    ear: &mut Ear<'_>,
) -> Result<Result<Summary, Unusable>, End> {
    // Some leave out the blank line behind the last event.
    let end = stream::once(std::future::ready(Ok(Bytes::from_static(b"\n\n"))));
    let mut blocks = SseByteStream::new(opened.chunks().chain(end));
    while let Some(block) = blocks.next().await {
        let data = match block {
            Ok(block) => block.data.filter(|data| !data.is_empty()),
            Err(sse_stream::Error::Body(error)) => {
                let trouble = error.downcast::<NoAnswer>();
                let trouble =
                    trouble.map_or_else(|error| NoAnswer::Lost(client.says(&error.to_string())), |trouble| *trouble);
                return Err(trouble.into());
            }
            Err(error) => return Ok(Err(Unusable::Bad(format!("a stream that cannot be read ({error})")))),
        };
        let Some(data) = data else { continue };
        let ended = reader.take(&data);
        let summary = matches!(ended, Ok(true)).then(|| reader.account().close());
        for told in reader.account().take() {
            ear.tell(told).await?;
        }
        match (ended, summary) {
            (Err(why), _) => return Ok(Err(why)),
            (Ok(_), Some(summary)) => return Ok(Ok(summary)),
            (Ok(_), None) => {}
        }
    }
    let mark = reader.end_mark();
    Ok(Err(Unusable::Bad(format!("a stream that ended without {mark}, so that the answer may not be whole"))))
}

/// What may be wrong with how an endpoint is asked, if that is what it says: it does not come into what the case is
/// about.
pub(super) fn trouble_of_the_set_up(status: StatusCode, preset: Preset) -> Option<String> {
    let hint = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            return Some(format!("does it want a header? --header {} sends one", preset.header()));
        }
        StatusCode::NOT_FOUND | StatusCode::GONE | StatusCode::MISDIRECTED_REQUEST => {
            let ends = preset.path().map(|path| format!("; those of {preset} end in {path}")).unwrap_or_default();
            return Some(format!("is this its address?{ends}"));
        }
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => "it is asked with POST",
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => "a proxy stands in front of it and wants to know who asks",
        StatusCode::NOT_ACCEPTABLE => "it is asked for application/json",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "it is sent application/json",
        StatusCode::UPGRADE_REQUIRED | StatusCode::HTTP_VERSION_NOT_SUPPORTED => "it is asked with HTTP/1.1",
        _ => return None,
    };
    Some(hint.to_owned())
}
