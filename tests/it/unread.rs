//! Clients that ask and do not read what comes: they cost others nothing.

use std::time::{Duration, Instant};

use forge::wire::control::run_service_client::RunServiceClient;
use forge::wire::control::{Detail, FetchArtifactRequest, WatchRunRequest};
use forge::wire::record::event_of;
use forge::wire::watch::WatchRunResponse;
use tonic::transport::{Channel, Endpoint};

use crate::processes::{Place, Running};

/// The smallest window that a stream and a connection may have.
const WINDOW: u32 = 65_535;

/// An agent that answers with `bytes` bytes.
fn agent(place: &Place, bytes: usize) -> (Running, String) {
    place.agent(&format!(r#"{{"replies": [{{"on": "*", "events": [{{"text": "ok {}"}}]}}]}}"#, "x".repeat(bytes)))
}

fn cases(count: usize) -> String {
    let case = |n| {
        format!(
            "{{\"id\": \"c{n}\", \"input\": \"hi\", \"assertions\": [{{\"type\": \"contains\", \"value\": \"ok\"}}]}}\n"
        )
    };
    (0..count).map(case).collect()
}

/// A connection that takes one window of what comes, and no more.
fn connection(url: &str) -> RunServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(url.to_owned()).expect("an address");
    let endpoint = endpoint.initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW);
    RunServiceClient::new(endpoint.connect_lazy()).max_decoding_message_size(usize::MAX)
}

/// A run that is over, and its id.
fn run(place: &Place, url: &str, agent: &str, suite: &str) -> String {
    let ended = place.run(&["run", suite, "-n", agent, "--daemon", url, "--parallel", "8", "-q", "-o", "first.json"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    place.json("first.json")["runId"].as_str().expect("an id").to_owned()
}

fn watch(run_id: &str) -> WatchRunRequest {
    WatchRunRequest {
        run_id: run_id.to_owned(),
        follow: true,
        detail: Detail::Calls.into(),
        ..WatchRunRequest::default()
    }
}

/// Other clients are answered, and their runs pass.
fn others_are_served(place: &Place, url: &str, agent: &str) {
    let begun = Instant::now();
    let list = place.run(&["runs", "list", "--daemon", url]);
    assert_eq!(list.code, Some(0), "{}{}", list.stdout, list.stderr);
    let other = place.run(&["run", "few.jsonl", "-n", agent, "--daemon", url, "-q", "-o", "few.json"]);
    assert_eq!(other.code, Some(0), "{}{}", other.stdout, other.stderr);
    assert_eq!(place.json("few.json")["results"].as_array().map(Vec::len).or(Some(2)), Some(2));
    assert!(begun.elapsed() < Duration::from_secs(8), "it took {:?}", begun.elapsed());
}

/// Watchers stop in the middle of a log, on one connection: whatever they were reading is not kept from others.
#[tokio::test(flavor = "multi_thread")]
async fn watchers_keep_nothing_of_the_store() {
    // Where they stop is a matter of sizes.
    for (bytes, count) in [(200, 300), (0, 1_000)] {
        watchers_stop(bytes, count).await;
    }
}

async fn watchers_stop(bytes: usize, count: usize) {
    let place = Place::new();
    let (_agent, agent) = agent(&place, bytes);
    let (_daemon, url) = place.daemon();
    place.write("many.jsonl", &cases(count));
    place.write("few.jsonl", &cases(2));
    let id = run(&place, &url, &agent, "many.jsonl");
    let mut client = connection(&url);
    let mut unread = Vec::new();
    for _ in 0..8 {
        unread.push(client.watch_run(watch(&id)).await.expect("it is watched"));
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    tokio::task::block_in_place(|| others_are_served(&place, &url, &agent));
    drop(unread);
}

/// What waits for watchers has a limit, and a watcher that reads goes on.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn watchers_hold_so_much_together() {
    let place = Place::new();
    let (_agent, agent) = agent(&place, 3 << 20);
    let (daemon, url) = place.daemon();
    place.write("many.jsonl", &cases(8));
    place.write("few.jsonl", &cases(2));
    let id = run(&place, &url, &agent, "many.jsonl");
    let before = daemon.peak_memory();
    let mut client = connection(&url);
    let mut unread = Vec::new();
    for _ in 0..100 {
        unread.push(client.watch_run(watch(&id)).await.expect("it is watched").into_inner());
    }
    let follows = tokio::task::block_in_place(|| place.run(&["watch", &id, "--daemon", &url]));
    assert!(follows.stdout.contains("8 of 8 passed"), "{}{}", follows.stdout, follows.stderr);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let more = daemon.peak_memory().saturating_sub(before) >> 20;
    assert!(more < 400, "{more} MiB more than before");
    // They may be cut off, and then they are told so; what they did get is right.
    unread.truncate(3);
    let read = unread.into_iter().map(|mut stream| async move {
        let mut next = 1;
        loop {
            match stream.message().await {
                Ok(Some(response)) => {
                    if let WatchRunResponse::Event(event) = response {
                        let event = event_of(&event).expect("an event").expect("of a known kind");
                        assert_eq!(event.sequence, next);
                        next += 1;
                    }
                }
                Ok(None) => return,
                Err(status) => return assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status}"),
            }
        }
    });
    let all = tokio::time::timeout(Duration::from_mins(1), futures_util::future::join_all(read));
    all.await.expect("each comes to an end");
}

/// The log of a run that went on for a while lies in many small blocks. Each event comes once, in a response of its
/// own or with others.
#[tokio::test(flavor = "multi_thread")]
async fn every_event_of_many_small_blocks_comes_once() {
    let place = Place::new();
    let (_agent, agent) = place.agent(r#"{"replies": [{"on": "*", "events": [{"wait_ms": 20}, {"text": "ok"}]}]}"#);
    let (_daemon, url) = place.daemon();
    place.write("some.jsonl", &cases(80));
    let id = tokio::task::block_in_place(|| run(&place, &url, &agent, "some.jsonl"));
    for batches in [false, true] {
        let request = WatchRunRequest { batches, ..watch(&id) };
        let mut stream = connection(&url).watch_run(request).await.expect("it is watched").into_inner();
        let (mut numbers, mut responses) = (Vec::new(), 0);
        while let Some(response) = stream.message().await.expect("a response") {
            let events = match response {
                WatchRunResponse::Event(event) if !batches => vec![event],
                WatchRunResponse::Events(events) if batches => events,
                other => panic!("{other:?}"),
            };
            responses += 1;
            numbers.extend(events.iter().map(|event| event_of(event).expect("an event").expect("known").sequence));
        }
        let all: Vec<u64> = (1..).take(numbers.len()).collect();
        assert_eq!(numbers, all);
        assert!(numbers.len() >= 2 + 80 * 4, "{numbers:?}");
        assert_eq!(responses == numbers.len(), !batches, "{responses} responses");
    }
}

/// All places for reports are taken by a client that does not read them: another one has its results all the same.
#[tokio::test(flavor = "multi_thread")]
async fn reports_that_nobody_takes_make_room() {
    let place = Place::new();
    let (_agent, agent) = agent(&place, 20_000);
    let (_daemon, url) = place.daemon();
    place.write("many.jsonl", &cases(30));
    place.write("few.jsonl", &cases(2));
    let id = run(&place, &url, &agent, "many.jsonl");
    let mut client = connection(&url);
    let mut unread = Vec::new();
    for _ in 0..40 {
        let request =
            FetchArtifactRequest { run_id: id.clone(), format: "json".to_owned(), ..FetchArtifactRequest::default() };
        let opened = tokio::time::timeout(Duration::from_secs(5), client.fetch_artifact(request)).await;
        unread.push(opened.expect("an answer"));
    }
    assert!(unread.iter().filter(|opened| opened.is_ok()).count() >= 32, "there are 32 places");
    tokio::task::block_in_place(|| others_are_served(&place, &url, &agent));
}
