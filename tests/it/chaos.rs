//! A daemon that is killed again and again while a run goes on: nothing is lost, nothing is run twice, and the client
//! that follows the run sees what it would have seen without that.
//!
//! `make chaos` does it at length: FORGE_CHAOS_KILLS and FORGE_CHAOS_CASES say how often, and how many cases there are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::processes::{DAEMON, Place, Running, SIDECAR, command};

/// The agent answers after a moment.
fn agent(wait_ms: usize) -> String {
    format!(
        r#"{{"replies": [
            {{"on": "bad", "events": [{{"wait_ms": 5}}, {{"text": "no"}}]}},
            {{"on": "*", "events": [{{"wait_ms": {wait_ms}}}, {{"text": "hello"}}]}}
        ]}}"#
    )
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Cases of one call, some of which fail, and dialogues.
fn suite(count: usize) -> String {
    let case = |n: usize| match n % 10 {
        0 => format!(
            "{{\"id\": \"d{n}\", \"input\": \"hi\", \"simulator\": {{\"use\": \"user\"}}, \"max_turns\": 3, \
             \"checkpoints\": [{{\"id\": \"never\", \"assertion\": {{\"type\": \"contains\", \"value\": \"bye\"}}}}]}}"
        ),
        1 => format!(
            "{{\"id\": \"c{n}\", \"input\": \"bad\", \"assertions\": [{{\"type\": \"contains\", \"value\": \"hello\"}}]}}"
        ),
        _ => format!(
            "{{\"id\": \"c{n}\", \"input\": \"hi\", \"assertions\": [{{\"type\": \"contains\", \"value\": \"hello\"}}]}}"
        ),
    };
    (0..count).map(case).collect::<Vec<_>>().join("\n")
}

/// Of each case, what its line in the results says that does not depend on time.
fn verdicts(place: &Place, file: &str) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(place.path().join(file)).expect("results");
    let line = |line: &str| {
        let mut line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let fields = line.as_object_mut().expect("an object");
        for of_this_run in ["duration_ms", "attempts", "trace_id", "span_id"] {
            fields.remove(of_this_run);
        }
        let id = format!("{} #{}", line["id"], line["repeat"]);
        (id, line.to_string())
    };
    text.lines().map(line).collect()
}

#[test]
fn killed_again_and_again() {
    kill(number("FORGE_CHAOS_KILLS", 8), number("FORGE_CHAOS_CASES", 120), None);
}

/// The same with a real PostgreSQL.
#[test]
fn killed_with_postgres() {
    let place = Place::new();
    let mut server = command(&crate::python::python(), place.path());
    server.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/postgres.py")).arg("postgres");
    let mut server = Running::start(server);
    let url = server.line_with("postgres://");
    kill(3, 40, Some(&url));
    // Another daemon finds what this one has kept.
    let mut daemon = command(DAEMON, place.path());
    daemon.args(["--listen", "127.0.0.1:0", "--data-dir", "other", "--store", &url]);
    let mut daemon = Running::start(daemon);
    let address = format!("http://{}", daemon.address());
    let list = place.run(&["runs", "list", "--daemon", &address]);
    assert!(list.stdout.contains("failed"), "{}{}", list.stdout, list.stderr);
    // And a third one is kept out: two would take up each other's runs.
    let mut third = command(DAEMON, place.path());
    third.args(["--listen", "127.0.0.1:0", "--data-dir", "third", "--store", &url]);
    let ended = Running::start(third).end_within(Duration::from_mins(1));
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("the store is in use by another daemon"), "{}", ended.stderr);
    // The lock ends with its session: a daemon that lost it to another one ends, too.
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        sqlx::any::install_default_drivers();
        let mut session = <sqlx::AnyConnection as sqlx::Connection>::connect(&url).await.expect("a session");
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND usename IS NOT NULL";
        sqlx::query(end).execute(&mut session).await.expect("they end");
    });
    let mut next = command(DAEMON, place.path());
    next.args(["--listen", "127.0.0.1:0", "--data-dir", "next", "--store", &url]);
    let mut next = Running::start(next);
    next.address();
    let ended = daemon.end_within(Duration::from_mins(1));
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("the store is in use by another daemon"), "{}", ended.stderr);
}

fn kill(kills: usize, count: usize, store: Option<&str>) {
    let place = Place::new();
    place.write("user.json", r#"{"replies": [{"on": "*", "events": [{"text": "{\"input\": \"go on\"}"}]}]}"#);
    // So long that the run is not over before the last kill.
    place.write("agent.json", &agent(700 * kills / count));
    place.write("t.jsonl", &suite(count));
    let scripted = |script: &str| {
        let mut agent = command(SIDECAR, place.path());
        agent.args(["script", script, "--listen", "127.0.0.1:0"]);
        let mut agent = Running::start(agent);
        let url = format!("grpc://{}", agent.address());
        (agent, url)
    };
    let ((_agent, url), (_user, user)) = (scripted("agent.json"), scripted("user.json"));
    let user = format!("user={user}");
    let run = |daemon: &str, parallel: &str, file: &str| {
        let args = ["run", "t.jsonl", "-n", &url, "--agent", &user, "--runs", "2", "-o", file, "-q"];
        place.forgectl(&[&args[..], &["--parallel", parallel, "--daemon", daemon]].concat())
    };
    let (quiet, quiet_url) = place.daemon();
    let undisturbed = Running::start(run(&quiet_url, "100", "quiet.jsonl")).end();
    drop(quiet);

    let home = place.path().join("chaos");
    std::fs::create_dir_all(&home).expect("a folder");
    // None of them dies of the run.
    std::fs::write(home.join("forge.toml"), "max_deaths = 1000000").expect("a file");
    let start = |address: &str| {
        let mut daemon = command(DAEMON, &home);
        daemon.args(["--listen", address, "--data-dir", "data", "--config", "forge.toml"]);
        daemon.args(store.map(|url| ["--store", url]).into_iter().flatten());
        let mut daemon = Running::start(daemon);
        let address = daemon.address();
        (daemon, address)
    };
    let (mut daemon, address) = start("127.0.0.1:0");
    let daemon_url = format!("http://{address}");
    let mut followed = Running::start(run(&daemon_url, "4", "disturbed.jsonl"));
    let mut random = fastrand::Rng::with_seed(7);
    let mut killed = 0;
    let begun = Instant::now();
    while killed < kills && !followed.has_ended() {
        std::thread::sleep(Duration::from_millis(random.u64(5..400)));
        daemon.signal("KILL");
        drop(daemon);
        (daemon, _) = start(&address);
        killed += 1;
        assert!(begun.elapsed() < Duration::from_hours(1), "it goes on for ever");
    }
    let disturbed = followed.end_within(Duration::from_mins(10));
    assert_eq!(killed, kills, "the run was over too soon: {}{}", disturbed.stdout, disturbed.stderr);
    assert_eq!(disturbed.code, undisturbed.code, "{}{}", disturbed.stdout, disturbed.stderr);
    assert_eq!(disturbed.code, Some(1), "{}{}", disturbed.stdout, disturbed.stderr);
    let (expected, found) = (verdicts(&place, "quiet.jsonl"), verdicts(&place, "disturbed.jsonl"));
    assert_eq!(found.len(), 2 * count);
    for (id, line) in &expected {
        assert_eq!(found.get(id), Some(line), "{id}");
    }
    // In the log of the run each case has one verdict, and is not begun again behind it.
    let list = place.run(&["runs", "list", "--daemon", &daemon_url]);
    let id = list.stdout.split_whitespace().next().expect("a run").to_owned();
    let log = place.run(&["watch", &id, "--cases", "--daemon", &daemon_url]).stdout;
    let (mut ended, mut again) = (BTreeSet::new(), 0);
    for line in log.lines() {
        let mut parts = line.splitn(3, "  ");
        let (Some(_), Some(id), Some(what)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let is_verdict = ["passed", "failed", "errored", "skipped"].iter().any(|word| what.starts_with(word));
        if what.starts_with("started") {
            assert!(!ended.contains(id), "{id} was begun again after its verdict");
            again += 1;
        } else if is_verdict {
            assert!(ended.insert(id.to_owned()), "{id} has two verdicts");
        }
    }
    assert_eq!(ended.len(), 2 * count, "{log}");
    println!("{killed} kills, {} cases, {} begun again", 2 * count, again - 2 * count);
}
