//! Files that cases send: packed by the client, checked by hash, small ones inside the message and large ones in
//! pieces.

use std::fmt::Write as _;

use forge::wire::agent as pb;
use forge::wire::agent::agent_endpoint_server::{AgentEndpoint, AgentEndpointServer};
use forge::wire::agent::invoke_request::Frame;
use forge::wire::agent::invoke_response::Event;
use forge::wire::agent::part::Content;
use forge::wire::agent::simulator_server::{Simulator, SimulatorServer};
use sha2::{Digest as _, Sha256};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

use crate::processes::Place;

/// Says of each file that it is sent: media type, name, size, how it came, and whether the hash is right.
struct Clerk {
    capabilities: Vec<String>,
}

#[tonic::async_trait]
impl AgentEndpoint for Clerk {
    async fn describe(&self, _: Request<pb::DescribeRequest>) -> Result<Response<pb::DescribeResponse>, Status> {
        let capabilities = self.capabilities.clone();
        let limits = Some(pb::Limits { max_attachment_bytes: 2 << 20, ..pb::Limits::default() });
        Ok(Response::new(pb::DescribeResponse { revision: 1, capabilities, limits, ..pb::DescribeResponse::default() }))
    }

    type InvokeStream = ReceiverStream<Result<pb::InvokeResponse, Status>>;

    async fn invoke(
        &self,
        request: Request<Streaming<pb::InvokeRequest>>,
    ) -> Result<Response<Self::InvokeStream>, Status> {
        let mut frames = request.into_inner();
        let Some(Frame::Start(start)) = frames.message().await?.and_then(|first| first.frame) else {
            return Err(Status::invalid_argument("start"));
        };
        let mut said = String::new();
        for part in start.messages.iter().flat_map(|message| &message.parts) {
            let Some(Content::Blob(blob)) = &part.content else { continue };
            let (how, bytes) = match &blob.source {
                Some(pb::blob::Source::Inline(bytes)) => ("inline", bytes.clone()),
                Some(pb::blob::Source::AttachmentId(id)) => {
                    assert!(start.attachments.iter().any(|attachment| attachment.sha256 == blob.sha256));
                    let mut bytes = Vec::new();
                    loop {
                        let Some(Frame::Attachment(chunk)) = frames.message().await?.and_then(|next| next.frame) else {
                            return Err(Status::invalid_argument("a piece"));
                        };
                        let is_next = chunk.attachment_id == *id && usize::try_from(chunk.offset) == Ok(bytes.len());
                        assert!(is_next && (chunk.last || chunk.data.len() == 64 << 10), "in order, 64 KiB each");
                        bytes.extend(chunk.data);
                        if chunk.last {
                            break ("pieces", bytes);
                        }
                    }
                }
                Some(pb::blob::Source::Uri(uri)) => (uri.as_str(), Vec::new()),
                None => ("nothing", Vec::new()),
            };
            let is_right = Sha256::digest(&bytes).as_slice() == blob.sha256;
            let _ = write!(said, "{} {} {} {how} {is_right}; ", blob.media_type, blob.name, bytes.len());
        }
        let (sender, receiver) = tokio::sync::mpsc::channel(4);
        let response = pb::Message {
            role: pb::Role::Assistant.into(),
            parts: vec![pb::Part { content: Some(Content::Text(said)) }],
            ..pb::Message::default()
        };
        let finished = pb::InvokeFinished { response: Some(response), ..pb::InvokeFinished::default() };
        for (seq, event) in (1..).zip([Event::Accepted(pb::InvokeAccepted::default()), Event::Finished(finished)]) {
            let event = pb::InvokeResponse { seq, elapsed: None, event: Some(event) };
            let _ = sender.send(Ok(event)).await;
        }
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

/// Serves a clerk for as long as the runtime lives.
fn clerk(runtime: &tokio::runtime::Runtime, capabilities: &[&str]) -> String {
    let clerk = Clerk { capabilities: capabilities.iter().map(|name| (*name).to_owned()).collect() };
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = tonic::transport::Server::builder().add_service(AgentEndpointServer::new(clerk));
    runtime.spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    format!("grpc://{address}")
}

#[test]
fn files_of_a_case() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let place = Place::new();
    place.write("suites/fixtures/receipt.jpg", "small");
    place.write("suites/fixtures/scan.pdf", &"0123456789".repeat(70_000));
    place.write("secret.txt", "not yours");
    let part = |kind: &str, source: &str| format!(r#"{{"type": "{kind}", "source": "{source}"}}"#);
    let case = |id: &str, parts: &[String]| {
        let parts = parts.join(", ");
        format!(
            r#"{{"id": "{id}", "messages": [{{"role": "user", "content": [{{"type": "text", "text": "?"}}, {parts}]}}]}}"#
        )
    };
    let (small, large) = (part("image", "file://./fixtures/receipt.jpg"), part("file", "file://fixtures/scan.pdf"));
    let web = part("image", "https://example.com/x.png");
    let suite = [case("small", &[small.clone(), web]), case("large", &[large.clone(), small])].join("\n");
    place.write("suites/t.jsonl", &suite);

    let agent = clerk(&runtime, &["attachments"]);
    let ended = place.run(&["run", "suites/t.jsonl", "-n", &agent, "-o", "r.jsonl"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let lines = std::fs::read_to_string(place.path().join("r.jsonl")).expect("lines");
    for said in [
        "image/jpeg receipt.jpg 5 inline true; image/*  0 https://example.com/x.png false; ",
        "application/pdf scan.pdf 700000 pieces true; image/jpeg receipt.jpg 5 inline true; ",
    ] {
        assert!(lines.contains(said), "{said}: {lines}");
    }

    // An agent that takes no pieces is not sent any.
    let agent = clerk(&runtime, &[]);
    let ended = place.run(&["run", "suites/t.jsonl", "-n", &agent]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("capability \"attachments\""), "{}", ended.stdout);
    assert!(ended.stdout.contains("✓ [small]"), "{}", ended.stdout);

    std::os::unix::fs::symlink(place.path().join("secret.txt"), place.path().join("suites/link.txt")).expect("a link");
    for (source, why) in [
        ("file://./missing.png", "the file \"missing.png\" cannot be read"),
        ("file://../secret.txt", "leads out of the folder of the suite"),
        ("file:///etc/passwd", "is no path from the folder of the suite"),
        ("file://a/../../secret.txt", "leads out of the folder of the suite"),
        ("file://link.txt", "is a link that leads out"),
        ("file://../../../secret.txt", "leads out of the folder of the suite"),
    ] {
        place.write("suites/bad.jsonl", &case("bad", &[part("image", source)]));
        let ended = place.run(&["run", "suites/bad.jsonl", "-n", &agent]);
        assert_eq!(ended.code, Some(2), "{source}: {}{}", ended.stdout, ended.stderr);
        assert!(ended.stderr.contains(why) && ended.stderr.contains("\"bad\""), "{source}: {}", ended.stderr);
    }

    // What is no regular file is not read: a pipe may never end.
    let made = std::process::Command::new("mkfifo").arg(place.path().join("suites/pipe.png")).status();
    assert!(made.expect("mkfifo runs").success());
    place.write("suites/bad.jsonl", &case("bad", &[part("image", "file://pipe.png")]));
    let ended = place.run(&["check", "suites/bad.jsonl"]);
    assert_eq!(ended.code, Some(2), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("it is no regular file"), "{}", ended.stderr);

    // Unless its owner says so.
    let agent = clerk(&runtime, &["attachments"]);
    let secret = format!("file://{}", place.path().join("secret.txt").display());
    let sources = ["file://../secret.txt", "file://a/../../secret.txt", "file://link.txt", &secret];
    let parts: Vec<String> = sources.iter().map(|source| part("image", source)).collect();
    for name in ["suites/bad.jsonl", "bad.jsonl"] {
        place.write(name, &case("bad", &parts[usize::from(name == "bad.jsonl") * 3..]));
        let ended = place.run(&["run", name, "-n", &agent, "--allow-outside", "-o", "out.jsonl"]);
        assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
        let lines = std::fs::read_to_string(place.path().join("out.jsonl")).expect("lines");
        let sent = lines.matches("text/plain secret.txt 9 inline true").count();
        assert_eq!(sent, if name == "bad.jsonl" { 1 } else { 3 }, "{lines}");
    }
}

/// Says a picture at an address, which each of its cases has in its id: `ADDRESSES` by their places.
struct Painter;

/// What a simulated user sends, and whether an agent may be told.
const ADDRESSES: [(&str, bool); 6] = [
    ("file:///etc/passwd", false),
    ("FILE:/etc/passwd", false),
    (" \u{1}fi\tle\n:///etc/passwd", false),
    ("https://example.com/file:x.png", true),
    ("files:x", true),
    ("data:image/png;base64,AAAA", true),
];

#[tonic::async_trait]
impl Simulator for Painter {
    async fn next_input(
        &self,
        request: Request<pb::NextInputRequest>,
    ) -> Result<Response<pb::NextInputResponse>, Status> {
        let case_id = request.into_inner().context.unwrap_or_default().case_id;
        let (address, _) = ADDRESSES[case_id.parse::<usize>().map_err(|_| Status::not_found("a case"))?];
        let source = Some(pb::blob::Source::Uri(address.to_owned()));
        let blob = Content::Blob(pb::Blob { source, media_type: "image/png".to_owned(), ..pb::Blob::default() });
        let parts = [Content::Text("Look.".to_owned()), blob].map(|content| pb::Part { content: Some(content) });
        let input = Some(pb::Message { parts: parts.to_vec(), ..pb::Message::default() });
        Ok(Response::new(pb::NextInputResponse { input, ..pb::NextInputResponse::default() }))
    }
}

/// A simulated user does not make an agent read files of the machine that it runs on.
#[test]
fn no_address_of_a_file_is_handed_on() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let place = Place::new();
    let agent = clerk(&runtime, &[]);
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
    let user = format!("user=grpc://{}", listener.local_addr().expect("an address"));
    let server = tonic::transport::Server::builder().add_service(SimulatorServer::new(Painter));
    runtime.spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let case = |n| {
        format!(
            r#"{{"id": "{n}", "input": "Hi", "simulator": {{"use": "user"}}, "max_turns": 2,
                "checkpoints": [{{"id": "told", "assertion": {{"type": "contains", "value": "image/png"}}}}]}}"#
        )
        .replace('\n', " ")
    };
    place.write("d.jsonl", &(0..ADDRESSES.len()).map(case).collect::<Vec<_>>().join("\n"));
    let ended = place.run(&["run", "d.jsonl", "-n", &agent, "--agent", &user, "-o", "r.jsonl"]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    let text = std::fs::read_to_string(place.path().join("r.jsonl")).expect("lines");
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    for (n, (address, may_be_told)) in ADDRESSES.into_iter().enumerate() {
        let id = n.to_string();
        let line = lines.iter().find(|line| line["id"] == *id || line["case_id"] == *id);
        let line = line.unwrap_or_else(|| panic!("{id}: {text}"));
        let (outcome, blame) = if may_be_told { ("passed", None) } else { ("errored", Some("simulator")) };
        assert_eq!((line["outcome"].as_str(), line["blame"].as_str()), (Some(outcome), blame), "{address:?}: {line}");
        let error = "simulator error: it names a file, which no agent is told to read: ";
        assert_eq!(line.to_string().contains(error), !may_be_told, "{address:?}: {line}");
    }

    // Nor does a suite that writes such an address in a way of its own.
    for address in ["FILE:///etc/passwd", " file:///etc/passwd", "fi\\tle:///etc/passwd"] {
        let message = format!(r#"{{"role": "user", "content": [{{"type": "image", "source": "{address}"}}]}}"#);
        place.write("bad.jsonl", &format!(r#"{{"id": "bad", "messages": [{message}]}}"#));
        let ended = place.run(&["run", "bad.jsonl", "-n", &agent]);
        assert_eq!(ended.code, Some(2), "{address}: {}{}", ended.stdout, ended.stderr);
    }
}
