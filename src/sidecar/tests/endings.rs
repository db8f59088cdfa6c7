//! How calls, connections and agents end.

use bytes::{Buf as _, Bytes};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

use super::*;
use crate::wire::agent::{FinishReason, InvokeCancel};

const SCRIPT: &str = r#"{"replies": [
  {"on": "hang", "events": [{"tool": {"name": "t", "success": true}}, {"text": "half"}, {"hang": true}]},
  {"on": "wait", "events": [{"wait_ms": 300}, {"text": "waited"}]},
  {"on": "tcp", "events": [{"text_fill": {"unit": "0123456789abcdef", "times": 20000, "then": "end"}}, {"cut": "tcp"}]},
  {"on": "reset", "events": [{"text_fill": {"unit": "0123456789abcdef", "times": 20000, "then": "end"}}, {"cut": "reset"}]},
  {"on": "restart", "events": [{"text": "one"}, {"close": {"status": "OK"}}, {"restart": {"back_after_ms": 250}}]},
  {"on": "last", "events": [{"text": "one"}, {"close": {"status": "OK"}}, {"die": true}]},
  {"on": "die", "events": [{"text": "aargh"}, {"die": true}]},
  {"on": "error", "events": [{"text": "so far"}, {"close": {"status": "UNAVAILABLE", "message": "no 100 % é\n"}}]},
  {"on": "long", "events": [{"close": {"status": "INTERNAL", "message_fill": {"unit": "trace ", "times": 16667}}}]},
  {"on": "big", "events": [{"text_fill": {"unit": "0123456789abcdef", "times": 327680, "then": "END-OF-LOG"}}]},
  {"on": "raw", "events": [{"text": "a"}, {"raw_text_hex": "ff00c3"}, {"text": "z"}]},
  {"on": "*", "events": [{"text": "fine"}]}
]}"#;

#[tokio::test]
async fn a_hanging_call_ends_with_the_reset() {
    let agent = Agent::start(SCRIPT);
    let client = agent.client().await;
    let mut call = Call::open(&client, start("hang")).await.expect("opens");
    while !matches!(call.next().await, Ok(Some(Event::TextDelta(_)))) {}
    call.send(Frame::Cancel(InvokeCancel::default())).await;
    agent.logs(&["start", "cancel"]).await;
    let more = tokio::time::timeout(Duration::from_millis(50), call.events.message()).await;
    assert!(more.is_err(), "{more:?}");
    drop(call);
    agent.logs(&["start", "cancel", "end:cancelled"]).await;

    // A reset alone is a cancel too; a connection that breaks is not.
    drop(Call::open(&client, start("hang")).await.expect("opens"));
    agent.logs(&["start", "cancel", "end:cancelled", "start", "end:cancelled"]).await;
    let socket = tokio::net::TcpStream::connect(agent.address).await.expect("connects");
    let (send, connection) = h2::client::handshake(socket).await.expect("shakes hands");
    let connection = tokio::spawn(connection);
    let mut send = send.ready().await.expect("ready");
    let request = http::Request::post("http://x/forge.agent.v1.AgentEndpoint/Invoke");
    let request = request.header("content-type", "application/grpc").body(()).expect("a request");
    let (_response, mut stream) = send.send_request(request, false).expect("sends");
    let message = prost::Message::encode_to_vec(&InvokeRequest { frame: Some(Frame::Start(start("hang"))) });
    let length = u32::try_from(message.len()).expect("short").to_be_bytes();
    stream.send_data([&[0], length.as_slice(), &message].concat().into(), false).expect("sends");
    agent.logs(&["start", "cancel", "end:cancelled", "start", "end:cancelled", "start"]).await;
    connection.abort();
    agent.logs(&["start", "cancel", "end:cancelled", "start", "end:cancelled", "start", "end:reset"]).await;
    agent.stop().await;
}

#[tokio::test]
async fn a_cut_connection_delivers_what_was_sent_before() {
    let agent = Agent::start(SCRIPT);
    let client = agent.client().await;
    for _ in 0..5 {
        let mut bystander = Call::open(&client, start("hang")).await.expect("opens");
        let (events, end) = call(&client, start("tcp")).await;
        let text = deltas(&events);
        assert!(text.len() == 320_003 && text.ends_with("end"), "{}", text.len());
        let status = end.expect_err("broken");
        assert!(std::error::Error::source(&status).is_some(), "made by the transport: {status:?}");
        assert!(bystander.rest().await.1.is_err(), "all streams go with the connection");
        // The listener is still there.
        assert_eq!(deltas(&retried(&client, "next").await), "fine");
    }
    agent.stop().await;
}

#[tokio::test]
async fn a_reset_stream_leaves_the_others_alone() {
    let agent = Agent::start(SCRIPT);
    let client = agent.client().await;
    let mut bystander = Call::open(&client, start("wait")).await.expect("opens");
    for _ in 0..5 {
        let (events, end) = call(&client, start("reset")).await;
        assert!(deltas(&events).ends_with("end"), "{} bytes", deltas(&events).len());
        assert_eq!(code(&end), Code::Internal);
    }
    let (events, end) = bystander.rest().await;
    assert_eq!((code(&end), answer(finished(&events))), (Code::Ok, "waited"));
    assert_eq!(agent.log_events().into_iter().filter(|line| line == "end:reset").count(), 5);
}

#[tokio::test]
async fn a_restarted_agent_is_called_only_when_it_is_back() {
    let agent = Agent::start(SCRIPT);
    let client = agent.client().await;
    let (other, mut bystander) = (agent.client().await, Call::open(&client, start("wait")).await.expect("opens"));
    let describe = |mut client: AgentEndpointClient<Channel>| async move {
        client.describe(crate::wire::agent::DescribeRequest::default()).await.expect("describes").into_inner()
    };
    let before = describe(other.clone()).await.instance_id;
    let begin = std::time::Instant::now();
    let (events, end) = call(&client, start("restart")).await;
    assert_eq!((code(&end), answer(finished(&events))), (Code::Ok, "one"));
    // The call has not waited for the agent to come back: nobody is there.
    assert!(tokio::net::TcpStream::connect(agent.address).await.is_err());
    // Both connections know that they must not be used: a client that sends at once is refused, or waits.
    for client in [&client, &other] {
        assert_eq!(deltas(&retried(client, "next").await), "fine");
    }
    assert!(begin.elapsed() >= Duration::from_millis(250), "{:?}", begin.elapsed());
    // What was in flight is not harmed, and the agent remembers nothing.
    assert_eq!(answer(finished(&bystander.rest().await.0)), "waited");
    assert_ne!(describe(other).await.instance_id, before);
    let invocations = agent.log().into_iter().filter(|line| line["service"] == "AgentEndpoint/Invoke");
    let mut texts: Vec<_> =
        invocations.filter(|line| line["event"] == "start").map(|line| line["last_user_text"].clone()).collect();
    texts.sort_by_key(ToString::to_string);
    assert_eq!(texts, ["next", "next", "restart", "wait"]);
    let mut numbers: Vec<_> =
        agent.log().iter().filter(|line| line["event"] == "start").filter_map(|line| line["call"].as_u64()).collect();
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(1..=6), "{numbers:?}");
    agent.stop().await;
}

#[tokio::test]
async fn every_restart_is_safe() {
    let agent =
        Agent::start(r#"{"replies": [{"on": "*", "events": [{"text": "one"}, {"restart": {"back_after_ms": 10}}]}]}"#);
    let client = agent.client().await;
    for _ in 0..15 {
        assert_eq!(deltas(&retried(&client, "next").await), "one");
    }
    // Had a call reached an agent that was leaving, it would be there twice.
    assert_eq!(agent.log_events().join(" "), ["start end:ok"; 15].join(" "));
}

#[tokio::test]
async fn a_dead_agent_stays_dead() {
    for (message, end, events) in
        [("die", Code::Unknown, ["start", "end:reset"]), ("last", Code::Ok, ["start", "end:ok"])]
    {
        let agent = Agent::start(SCRIPT);
        let client = agent.client().await;
        let (sent, ended) = call(&client, start(message)).await;
        assert!(!deltas(&sent).is_empty());
        assert!((code(&ended) == Code::Ok) == (end == Code::Ok), "{ended:?}");
        let refused = call(&client, start("next")).await.1;
        assert!(refused.is_err());
        assert_eq!(agent.log_events(), events);
        let served = tokio::time::timeout(PATIENCE, agent.serving).await.expect("ends by itself");
        assert!(matches!(served, Ok(Ok(()))));
    }
}

#[tokio::test]
async fn statuses_and_sizes_go_through() {
    let agent = Agent::start(SCRIPT);
    let client = agent.client().await;
    let (events, end) = call(&client, start("error")).await;
    let status = end.expect_err("a status");
    assert_eq!((status.code(), status.message(), &*deltas(&events)), (Code::Unavailable, "no 100 % é\n", "so far"));
    let (_, end) = call(&client, start("long")).await;
    let status = end.expect_err("a status");
    assert_eq!((status.code(), status.message()), (Code::Internal, &*"trace ".repeat(16_667)));
    let (events, end) = call(&client, start("big")).await;
    assert!(end.is_ok(), "{end:?}");
    let (text, last) = (deltas(&events), finished(&events));
    assert!(text.len() == (5 << 20) + 10 && text.ends_with("END-OF-LOG") && text == answer(last));
    assert_eq!(last.finish_reason(), FinishReason::Completed);
    assert_eq!(agent.log_events(), ["start", "end:status", "start", "end:status", "start", "end:ok"]);
}

#[tokio::test]
async fn bytes_that_are_no_text_go_out_unchanged() {
    let agent = Agent::start(SCRIPT);
    // The generated client refuses them, as it should.
    assert!(call(&agent.client().await, start("raw")).await.1.is_err());
    let mut client = tonic::client::Grpc::new(agent.endpoint().connect().await.expect("connects"));
    client.ready().await.expect("ready");
    let request = prost::Message::encode_to_vec(&InvokeRequest { frame: Some(Frame::Start(start("raw"))) });
    let path = http::uri::PathAndQuery::from_static("/forge.agent.v1.AgentEndpoint/Invoke");
    let requests = tonic::Request::new(tokio_stream::iter([Bytes::from(request)]));
    let mut messages = client.streaming(requests, path, Raw).await.expect("opens").into_inner();
    let mut frames = Vec::new();
    while let Some(frame) = messages.message().await.expect("a frame") {
        frames.push(frame);
    }
    let has = |frame: &Bytes, bytes: &[u8]| frame.windows(bytes.len()).any(|window| window == bytes);
    assert_eq!(frames.len(), 5);
    assert!(has(&frames[2], b"\x12\x03\xff\x00\xc3"), "field 2, three bytes: {:?}", frames[2]);
    assert!(has(&frames[4], b"\x0a\x05a\xff\x00\xc3z"), "the whole answer: {:?}", frames[4]);
}

/// Calls again as long as the agent was not reached, as the daemon does.
async fn retried(client: &AgentEndpointClient<Channel>, text: &str) -> Vec<InvokeResponse> {
    for _ in 0..500 {
        let (events, end) = call(client, start(text)).await;
        if end.is_ok() {
            return events;
        }
        assert!(events.is_empty(), "{events:?} {end:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the agent does not come back");
}

/// Messages as bytes.
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put(buffer, item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
