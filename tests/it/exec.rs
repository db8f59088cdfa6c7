//! `forge-sidecar exec`: commands as agents, by the real programs.

use std::time::{Duration, Instant};

use crate::processes::{Place, Running, SIDECAR, command};

/// The sidecar in front of a command, and its URL.
fn sidecar(place: &Place, args: &[&str]) -> (Running, String) {
    let mut sidecar = command(SIDECAR, place.path());
    sidecar.env("SECRET", "s3cret").env("TOLD", "yes").arg("exec").args(args);
    let mut sidecar = Running::start(sidecar);
    let url = format!("grpc://{}", sidecar.address());
    (sidecar, url)
}

/// Runs cases, and gives what came of each: its outcome, and the whole of it.
fn run(place: &Place, url: &str, cases: &str, more: &[&str]) -> Vec<(String, serde_json::Value)> {
    place.write("s.golden.json", cases);
    let mut args = vec!["run", "s.golden.json", "-n", url, "-o", "r.json"];
    args.extend(more);
    let ended = place.run(&args);
    assert!(matches!(ended.code, Some(0 | 1 | 3)), "{}{}", ended.stdout, ended.stderr);
    let result = place.json("r.json");
    let cases = result["cases"].as_array().expect("cases");
    cases.iter().map(|case| (case["outcome"].as_str().unwrap_or_default().to_owned(), case.clone())).collect()
}

fn case(id: &str, message: &str, expect: &str) -> String {
    format!(r#"{{"id": "{id}", "description": "d", "input": {{"message": "{message}"}}, "expect": {expect}}}"#)
}

#[test]
fn a_process_for_each_turn() {
    // What the command does, and what is said of it: the outcome, and some of the reason.
    let table = [
        ("cat >/dev/null; echo 'hello there'", "passed", ""),
        ("echo 'hello, and I read nothing'", "passed", ""),
        (r#"grep -q '"message":"hi"' && echo hello"#, "passed", ""),
        (
            r#"echo '{"response": "hello", "toolCalls": [{"name": "look", "params": {"a": 1}, "success": true}]}'"#,
            "passed",
            "",
        ),
        ("test -z \"$SECRET\" && test \"$TOLD\" = yes && echo hello", "passed", ""),
        ("echo nothing", "failed", "hello"),
        ("echo hello; echo 'no such model' >&2; exit 3", "failed", "no such model"),
        ("kill -9 $$", "failed", "signal: 9"),
        ("echo '{\"response\": '", "failed", "not JSON"),
        ("echo '{\"answer\": \"hello\"}'", "failed", "without the field response"),
        ("printf '\\377\\376'", "failed", "no UTF-8"),
        ("head -c 99000000 /dev/zero", "failed", "wrote more than"),
    ];
    for (script, outcome, reason) in table {
        let place = Place::new();
        let (_sidecar, url) = sidecar(&place, &["--env", "TOLD", "--", "sh", "-c", script]);
        let results = run(&place, &url, &format!("[{}]", case("a", "hi", r#"{"responseContains": ["hello"]}"#)), &[]);
        let (found, case) = &results[0];
        assert_eq!(found, outcome, "{script}: {case}");
        assert!(case.to_string().contains(reason), "{script}: {case}");
    }
}

#[test]
fn a_turn_that_is_over_leaves_no_process() {
    let place = Place::new();
    let script = "sleep 1000 & echo $$ > pid; echo $! > child; wait";
    let (_sidecar, url) = sidecar(&place, &["--", "sh", "-c", script]);
    let results = run(&place, &url, &format!("[{}]", case("a", "hi", "{}")), &["--timeout", "1s"]);
    assert_ne!(results[0].0, "passed");
    let begun = Instant::now();
    for file in ["pid", "child"] {
        let pid = std::fs::read_to_string(place.path().join(file)).unwrap();
        let status = format!("/proc/{}/status", pid.trim());
        let lives = || std::fs::read_to_string(&status).is_ok_and(|status| !status.contains("State:\tZ"));
        while lives() {
            assert!(begun.elapsed() < Duration::from_secs(10), "{file} still runs");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

const LINES: &str = r#"
import json, sys
waiting = {}
def say(**line):
    print(json.dumps(line), flush=True)
for line in sys.stdin:
    line = json.loads(line)
    turn = line["id"]
    if "toolResult" in line:
        result = line["toolResult"]
        say(id=turn, response="it is " + str(result.get("result", result.get("error"))))
    elif "message" in line:
        asked = line["message"]
        if asked == "die":
            print("out of memory", file=sys.stderr, flush=True)
            sys.exit(7)
        if asked == "babble":
            print("Loading ...", flush=True)
        if asked == "fail":
            say(id=turn, error="the model is gone")
        if asked == "greet":
            say(id=turn, log="a greeting")
            say(id=turn, text="hel")
            say(id=turn, response="hello")
        if asked == "look" and line["toolMode"] == "live":
            say(id=turn, toolCall={"name": "look", "params": {"city": "Oslo"}, "result": {"c": 4}, "durationMs": 5})
            say(id=turn, response="it is 4")
        elif asked == "look":
            say(id=turn, toolCall={"id": "x", "name": "look", "params": {"city": "Oslo"}})
"#;

#[test]
fn one_process_that_reads_and_writes_lines() {
    let place = Place::new();
    place.write("agent.py", LINES);
    let (_sidecar, url) = sidecar(&place, &["--lines", "--stubs", "--", "python3", "agent.py"]);
    let look = |id: &str, says: &str| {
        case(id, "look", &format!(r#"{{"toolsCalled": ["look"], "responseContains": ["{says}"]}}"#))
    };
    let stubbed = look("stubbed", "sunny").replacen('{', r#"{"stubs": {"look": {"sky": "sunny"}}, "#, 1);
    let outcomes = |cases: &[String], more: &[&str]| -> Vec<(String, serde_json::Value)> {
        run(&place, &url, &format!("[{}]", cases.join(",")), more)
    };
    let greet = case("greet", "greet", r#"{"responseContains": ["hello"]}"#);
    for (found, case) in outcomes(&[greet.clone(), look("live", "it is 4"), stubbed], &[]) {
        assert_eq!(found, "passed", "{case}");
    }
    let routed = case("routed", "look", r#"{"toolsCalled": ["look"]}"#);
    for (found, case) in outcomes(&[routed], &["--tools", "routing-only"]) {
        assert_eq!(found, "passed", "{case}");
    }
    // What breaks one turn, and what is said of it; the next turn is answered again.
    for (message, reason) in [("fail", "the model is gone"), ("die", "out of memory"), ("babble", "Loading ...")] {
        let broken = case("broken", message, "{}");
        let results = outcomes(&[broken], &[]);
        assert_eq!(results[0].0, "failed", "{message}: {}", results[0].1);
        assert!(results[0].1.to_string().contains(reason), "{message}: {}", results[0].1);
        let results = outcomes(std::slice::from_ref(&greet), &[]);
        assert_eq!(results[0].0, "passed", "after {message}: {}", results[0].1);
    }
}

#[test]
fn what_cannot_be_started_is_said_at_once() {
    let place = Place::new();
    let mut sidecar = command(SIDECAR, place.path());
    sidecar.args(["exec", "--", "no-such-command"]);
    let ended = Running::start(sidecar).end();
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("there is no command no-such-command"), "{}", ended.stderr);
}
