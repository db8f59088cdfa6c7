//! Judging that takes long: it ends, by itself and with its run, and costs nobody else anything.

use std::time::{Duration, Instant};

use forge::case::CaseRef;
use forge::conversation::party::Judgement;
use forge::json::Json;
use forge::limits::RUN_BYTES;
use forge::peer::agent::Agent;
use forge::peer::output::Outputs;
use forge::peer::party::{Belongs, Silence};
use forge::wire::agent::ValidateResponse;

use crate::processes::{Place, Running};
use crate::support::fake::Script;

/// Patterns that never end, each another one.
fn endless(count: usize) -> String {
    let patterns: Vec<String> = (0..count).map(|number| format!("\"(a+)+{number}$\"")).collect();
    patterns.join(", ")
}

fn agent(place: &Place) -> (Running, String) {
    place.agent(&format!(r#"{{"replies": [{{"on": "*", "events": [{{"text": "{}!"}}]}}]}}"#, "a".repeat(20_000)))
}

fn suite(cases: usize, patterns: usize) -> String {
    let patterns = endless(patterns);
    let case = |number| {
        format!(
            r#"{{"id": "c{number}", "description": "d", "input": {{"message": "hi"}}, "expect": {{"responseMatches": [{patterns}]}}}}"#
        )
    };
    format!("[{}]", (0..cases).map(case).collect::<Vec<_>>().join(","))
}

/// The patterns of all cases together would take a quarter of an hour of CPU time.
#[test]
fn judging_ends_with_its_run() {
    let place = Place::new();
    let (_agent, agent) = agent(&place);
    let (daemon, url) = place.daemon();
    place.write("bomb.golden.json", &suite(30, 120));
    place.write("plain.golden.json", &suite(3, 1).replace("(a+)+0$", "a!$"));
    let args = ["run", "bomb.golden.json", "-n", &agent, "--daemon", &url, "--all-assertions", "--parallel", "30"];
    let bomb = place.run(&[&args[..], &["--detach"]].concat());
    assert_eq!(bomb.code, Some(0), "{}", bomb.stderr);
    let bomb = bomb.stdout.trim();
    std::thread::sleep(Duration::from_secs(2));
    // Another user's patterns are looked at beside them.
    let plain = place.run(&["run", "plain.golden.json", "-n", &agent, "--daemon", &url]);
    assert_eq!(plain.code, Some(0), "{}{}", plain.stdout, plain.stderr);
    let cancelled = place.run(&["runs", "cancel", bomb, "--daemon", &url]);
    assert_eq!(cancelled.code, Some(0), "{}", cancelled.stderr);
    let began = Instant::now();
    while !place.run(&["runs", "show", bomb, "--daemon", &url]).stdout.contains("cancelled") {
        assert!(began.elapsed() < Duration::from_secs(30), "the run goes on");
        std::thread::sleep(Duration::from_millis(100));
    }
    daemon.signal("TERM");
    assert_eq!(daemon.end_within(Duration::from_secs(30)).code, Some(0));
}

/// What tokens stand for is bounded before it is put together: these would make texts of 2 GB, of what is some 100 kB
/// in the files.
#[test]
fn tokens_stand_for_so_much_at_most() {
    let place = Place::new();
    let (_agent, agent) = agent(&place);
    place.write(
        "evals/seed-manifest.json",
        &format!(r#"{{"long": "{}", "list": ["{}"]}}"#, "x".repeat(100_000), "y".repeat(50_000)),
    );
    let long = "{{seed:long}}".repeat(20_000);
    for expect in [
        format!(r#"{{"responseContains": ["{long}"]}}"#),
        format!(r#"{{"responseNotContains": ["{long}"]}}"#),
        format!(r#"{{"responseContainsAny": [["zzz", "{}"]]}}"#, "{{seed:list}}".repeat(20_000)),
    ] {
        let case = format!(r#"[{{"id": "c", "description": "d", "input": {{"message": "hi"}}, "expect": {expect}}}]"#);
        place.write("evals/t.golden.json", &case);
        let ended = place.run(&["run", "evals/t.golden.json", "-n", &agent, "-o", "r.jsonl"]);
        let told = std::fs::read_to_string(place.path().join("r.jsonl")).unwrap_or_default();
        let told: serde_json::Value = serde_json::from_str(told.lines().next().unwrap_or_default()).unwrap_or_default();
        assert_eq!((ended.code, &told["blame"]), (Some(3), &"suite".into()), "{ended:?}");
        let why = told["assertions"][0]["reason"].as_str().unwrap_or_default();
        assert_eq!(why, "the text is too long once its tokens are replaced");
    }
}

/// A command that never stops writing is ended at its bound, long before its time is up.
#[test]
fn a_snapshot_command_that_writes_without_end() {
    let place = Place::new();
    let (_agent, agent) = agent(&place);
    place.write("t.golden.json", &suite(1, 1).replace("(a+)+0$", "a!$"));
    let ended = place.run(&["run", "t.golden.json", "-n", &agent, "--snapshot-command", "yes"]);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.stderr.contains("wrote more than 67108864 bytes"), "{}", ended.stderr);
}

/// What a validator sends counts with what all calls of the run send, however it is asked; and it is the validator
/// that sent it.
#[test]
fn validators_share_the_bytes_of_the_run() {
    let reason = "because ".repeat(1_000);
    let yes = format!(r#"{{"passed": true, "reason": "{reason}"}}"#);
    let plain = Script::new(move |_| Ok(yes.clone()));
    let judging = Script::new(|_| Ok(String::new())).judging(move |_| {
        Ok(ValidateResponse { passed: Some(true), reason: reason.clone(), ..ValidateResponse::default() })
    });
    let options = Json::parse("{}").expect("JSON");
    let asked = Judgement {
        output: "x",
        criteria: "",
        conversation: &[],
        tool_calls: &[],
        options: &options,
        assertion: "agent",
    };
    let case = CaseRef { suite: "s".into(), case_id: "c".into(), repeat: 1, attempt: 1 };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for script in [plain, judging] {
        let fake = script.start();
        runtime.block_on(async {
            let agent = Agent::at("validator", &fake.url.parse().expect("an address")).expect("an agent");
            let outputs = Outputs::default();
            let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
            let belongs = Belongs::to_case("run", &case, 1, deadline, &outputs);
            let mut others = outputs.begin();
            others.add(RUN_BYTES - 4_000).expect("there is room");
            let said = agent.validate(&belongs, &asked).await;
            assert!(matches!(&said, Err(Silence::Failed(why)) if why.contains("together")), "{said:?}");
            drop(others);
            assert_eq!(agent.validate(&belongs, &asked).await.map(|vote| vote.passed), Ok(true));
        });
    }
}
