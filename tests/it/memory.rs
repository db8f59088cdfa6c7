//! A daemon that has little memory left.
#![cfg(target_os = "linux")]

use std::time::Duration;

use crate::processes::Place;

/// New work is refused, what is there stays, and with memory again all is as before.
#[test]
fn near_its_limit_it_takes_nothing_new() {
    let place = Place::new();
    let (_agent, agent) = place.agent(r#"{"replies": [{"on": "*", "events": [{"text": "ok"}]}]}"#);
    let (mut daemon, url) = place.daemon();
    let suite = |id: &str| {
        format!(r#"{{"id": "{id}", "input": "hi", "assertions": [{{"type": "contains", "value": "ok"}}]}}"#) + "\n"
    };
    place.write("a.jsonl", &suite("a"));
    place.write("b.jsonl", &suite("b"));
    let run = |suite: &str| place.run(&["run", suite, "-n", &agent, "--daemon", &url, "-q", "-o", "result.json"]);
    let before = run("a.jsonl");
    assert_eq!(before.code, Some(0), "{}{}", before.stdout, before.stderr);
    // A little more than it has.
    daemon.limit("as", &format!("{}:", daemon.address_space() + (48 << 20)));
    std::thread::sleep(Duration::from_millis(1_100));
    for suite in ["a.jsonl", "b.jsonl"] {
        let refused = run(suite);
        assert_eq!(refused.code, Some(3), "{}{}", refused.stdout, refused.stderr);
        assert!(refused.stderr.contains("MiB of memory left"), "{}", refused.stderr);
    }
    let list = place.run(&["runs", "list", "--daemon", &url]);
    assert_eq!((list.code, list.stdout.contains("passed")), (Some(0), true), "{}{}", list.stdout, list.stderr);
    daemon.limit("as", "unlimited:");
    std::thread::sleep(Duration::from_millis(1_100));
    let again = run("b.jsonl");
    assert_eq!(again.code, Some(0), "{}{}", again.stdout, again.stderr);
    assert!(!daemon.has_ended());
}
