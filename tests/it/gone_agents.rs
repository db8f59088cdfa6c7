//! An agent whose process is killed in the middle of a run.

use std::time::{Duration, Instant};

use crate::processes::Place;

/// The run ends soon, whatever time its cases have, and tells what came of each.
#[test]
fn a_killed_agent_ends_the_run() {
    let place = Place::new();
    let (agent, url) = place.agent(r#"{"replies": [{"on": "*", "events": [{"wait_ms": 200}, {"text": "yes"}]}]}"#);
    let case =
        |n| format!(r#"{{"id": "c{n}", "input": {{"message": "x"}}, "expect": {{"responseContains": ["yes"]}}}}"#);
    place.write("s.golden.json", &format!("[{}]", (0..30).map(case).collect::<Vec<_>>().join(",")));
    let args = ["run", "s.golden.json", "-n", &url, "-o", "r.json", "--agent-gone-after", "3s"];
    let run = crate::processes::Running::start(place.forgectl(&args));
    let calls = || std::fs::read_to_string(place.path().join("calls.jsonl")).unwrap_or_default().lines().count();
    let begun = Instant::now();
    // A line for the start and one for the end of each call, and two of them for `Describe`.
    while calls() < 10 {
        assert!(begun.elapsed() < Duration::from_secs(20), "no case is run");
        std::thread::sleep(Duration::from_millis(20));
    }
    agent.signal("KILL");
    let killed = Instant::now();
    let ended = run.end();
    let took = killed.elapsed();
    assert!((Duration::from_secs(3)..Duration::from_secs(12)).contains(&took), "{took:?}");
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    let said = format!("the run could not go on: agent {url:?}: nothing answers at {url} any more, for 3");
    assert!(ended.stderr.contains(&said) && ended.stderr.contains("--agent-gone-after"), "{}", ended.stderr);
    let result = place.json("r.json");
    let cases = result["cases"].as_array().expect("cases");
    let count = |outcome: &str| cases.iter().filter(|case| case["outcome"] == outcome).count();
    // The next case may still have gone out on the connection that had just broken.
    let counts = [count("passed"), count("errored"), count("failed"), count("skipped")];
    assert!(counts[0] >= 3 && (1..=3).contains(&counts[1]) && counts[2] == 0, "{counts:?}");
    assert_eq!(counts.iter().sum::<usize>(), 30, "{counts:?}");
    let last = &cases[29];
    assert_eq!((last["cause"].as_str(), last["blame"].as_str()), (Some("unreachable"), Some("network")), "{last}");
    assert!(last["error"].as_str().is_some_and(|error| error.starts_with("not run: agent")), "{last}");
}
