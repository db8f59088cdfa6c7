//! Cases that are tried again or repeated, by a real server and the real client.

use forge::wire::agent::ValidateResponse;
use tonic::Status;

use crate::processes::Place;
use crate::support::fake::Script;

fn lines(place: &Place, name: &str) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(place.path().join(name)).expect("lines");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// An agent that is right from the second time on.
fn wavering() -> Script {
    Script::new(|asked| Ok(if asked.before == 0 { "bad".to_owned() } else { "good".to_owned() }))
}

const SUITE: &str =
    r#"{"id": "a", "name": "wavers", "input": "?", "assertions": [{"type": "contains", "value": "good"}]}"#;

#[test]
fn a_pass_after_a_failure_is_flaky() {
    let place = Place::new();
    place.write("t.jsonl", SUITE);
    let agent = wavering().start();
    let run = ["run", "t.jsonl", "-n", &agent.url, "-o", "r.jsonl", "-o", "r.json", "-o", "r.xml"];
    let ended = place.run(&run);
    assert_eq!(ended.code, Some(1), "without the flag nothing is tried again: {}{}", ended.stdout, ended.stderr);

    let agent = wavering().start();
    let run = ["run", "t.jsonl", "-n", &agent.url, "-o", "r.jsonl", "-o", "r.json", "--retry-failed", "2"];
    let ended = place.run(&run);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(agent.asked().len(), 2, "a case that passed is not tried again");
    assert!(ended.stdout.contains("⚠ flaky: it passed in attempt 2; before that: contains: "), "{}", ended.stdout);
    assert!(ended.stdout.contains("  Flaky:   1\n"), "{}", ended.stdout);
    assert!(ended.stderr.contains("failed a in attempt 1, trying again"), "{}", ended.stderr);
    let line = &lines(&place, "r.jsonl")[0];
    assert_eq!((&line["flaky"], &line["attempts"]), (&true.into(), &2.into()), "{line}");
    let earlier = &line["earlier_attempts"][0];
    assert_eq!((&earlier["outcome"], &earlier["cause"]), (&"failed".into(), &"assertion".into()), "{line}");
    let json = place.json("r.json");
    assert_eq!((&json["summary"]["flaky"], &json["summary"]["passed"]), (&1.into(), &1.into()), "{json}");
    assert_eq!(json["cases"][0]["earlierAttempts"].as_array().map(Vec::len), Some(1), "{json}");
}

#[test]
fn what_fails_every_time_failed() {
    let place = Place::new();
    place.write("t.jsonl", SUITE);
    let agent = Script::new(|_| Ok("bad".to_owned())).start();
    let ended = place.run(&["run", "t.jsonl", "-n", &agent.url, "--retry-failed", "2", "--retries", "5"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(agent.asked().len(), 3);
    assert!(ended.stdout.contains("⚠ 3 attempts") && !ended.stdout.contains("laky"), "{}", ended.stdout);
}

#[test]
fn trouble_is_tried_again_and_is_not_flaky() {
    let place = Place::new();
    let judged = r#"{"id": "a", "input": "?", "assertions": [{"type": "agent", "use": "agents:judge",
        "options": {"metadata": {"criteria": "good"}, "votes": 3}}]}"#;
    place.write("t.jsonl", judged);
    let judge = |fails: u32| {
        let script = Script::new(|_| Ok("answer".to_owned())).judging(move |before| match before {
            before if before < fails => Err(Status::unavailable("later")),
            before => Ok(ValidateResponse {
                passed: Some(before % 2 == fails % 2),
                reason: format!("vote {before}"),
                score: Some(0.5),
                ..ValidateResponse::default()
            }),
        });
        script.start()
    };
    let run = |url: &str, retries: &str| {
        let judge = format!("judge={url}");
        place.run(&["run", "t.jsonl", "-n", url, "--agent", &judge, "--retries", retries, "-o", "r.jsonl"])
    };
    let ended = run(&judge(1).url, "0");
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    let ended = run(&judge(1).url, "1");
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("it passed in attempt 2") && !ended.stdout.contains("laky"), "{}", ended.stdout);
    let line = &lines(&place, "r.jsonl")[0];
    let assertion = &line["assertions"][0];
    assert_eq!((&assertion["votes"], &assertion["agreeing"]), (&3.into(), &2.into()), "{line}");
    assert_eq!(assertion["score"], 0.5, "{line}");
    let reply = assertion["replies"][1].as_str().expect("a reply");
    let reply: serde_json::Value = serde_json::from_str(reply).expect("JSON");
    assert_eq!((&reply["passed"], &reply["reason"]), (&false.into(), &"vote 2".into()), "{line}");
    let ended = run(&judge(9).url, "2");
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("⚠ 3 attempts"), "{}", ended.stdout);
}

#[test]
fn every_repetition_counts() {
    let place = Place::new();
    place.write("t.jsonl", SUITE);
    let agent = Script::new(|asked| Ok(if asked.before == 1 { "bad".to_owned() } else { "good".to_owned() })).start();
    let ended = place.run(&["run", "t.jsonl", "-n", &agent.url, "--runs", "3", "-o", "r.jsonl", "-o", "r.xml"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    let trouble = "→ #2: contains: expected \"good\" in the response, but it is not there";
    for text in ["✗ [a 2/3] wavers", trouble, "    agent: bad\n", "  Total:   3 tests", "  Passed:  2"] {
        assert!(ended.stdout.contains(text), "{text}: {}", ended.stdout);
    }
    let repeats: Vec<u64> = lines(&place, "r.jsonl").iter().map(|line| line["repeat"].as_u64().unwrap_or(1)).collect();
    assert_eq!(repeats, [1, 2, 3]);
    let xml = std::fs::read_to_string(place.path().join("r.xml")).expect("XML");
    assert!(xml.contains("name=\"a #2\"") && xml.contains("tests=\"3\""), "{xml}");
    // A result with repetitions is a baseline like any other: the case did not pass then.
    let good = Script::new(|_| Ok("good".to_owned())).start();
    let repeated = ["run", "t.jsonl", "-n", &agent.url, "--runs", "2", "-o", "base.json"];
    assert_eq!(place.run(&repeated).code, Some(0), "it wavers no more");
    let ended = place.run(&["run", "t.jsonl", "-n", &good.url, "--runs", "2", "--baseline", "base.json"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("0 regressed | 0 newly passing"), "{}", ended.stdout);
    let ended = place.run(&["run", "t.jsonl", "-n", &agent.url, "--runs", "0"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
}

/// A dialogue of which nothing was required has checked nothing unless something was reached.
#[test]
fn a_dialogue_without_a_checkpoint_checked_nothing() {
    let place = Place::new();
    let suite = r#"{"id": "a", "input": "hi", "simulator": {"use": "user"},
        "checkpoints": [{"id": "c", "required": false, "assertion": {"type": "contains", "value": "WORD"}}]}"#;
    let agent = Script::new(|_| Ok("good".to_owned())).start();
    let run = |more: &[&str]| place.run(&[&["run", "t.jsonl", "-n", &agent.url], more].concat());
    place.write("t.jsonl", &suite.replace("WORD", "never"));
    let ended = run(&[]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("⚠ nothing checked"), "{}", ended.stdout);
    let ended = run(&["--strict"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("nothing checked: no checkpoint is required"), "{}", ended.stdout);
    place.write("t.jsonl", &suite.replace("WORD", "good"));
    let ended = run(&["--strict", "-o", "r.jsonl"]);
    let checkpoint = &lines(&place, "r.jsonl")[0]["checkpoints"][0];
    assert_eq!((&checkpoint["passed"], &checkpoint["assertions"][0]["value"]), (&true.into(), &"good".into()));
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(!ended.stdout.contains("nothing checked"), "{}", ended.stdout);
}

/// The validator had what the agent left of the time: that is no fault of the validator's.
#[test]
fn who_left_no_time_is_to_blame() {
    let place = Place::new();
    let suite = r#"{"id": "a", "input": "?", "timeout": "2s", "assertions": [{"type": "agent", "use": "agents:judge",
        "options": {"metadata": {"criteria": "good"}}}]}"#;
    place.write("t.jsonl", suite);
    let sleep = |millis| std::thread::sleep(std::time::Duration::from_millis(millis));
    for (agent_takes, validator_takes, code, outcome, blame) in
        [(1_500, 1_500, 1, "failed", "agent"), (0, 3_000, 3, "errored", "validator")]
    {
        let agent = Script::new(move |_| {
            sleep(agent_takes);
            Ok("good".to_owned())
        });
        let (agent, judge) = (
            agent.start(),
            Script::new(|_| Ok(String::new())).judging(move |_| {
                sleep(validator_takes);
                Ok(ValidateResponse { passed: Some(true), ..ValidateResponse::default() })
            }),
        );
        let judge = judge.start();
        let named = format!("judge={}", judge.url);
        let ended = place.run(&["run", "t.jsonl", "-n", &agent.url, "--agent", &named, "-o", "r.jsonl"]);
        assert_eq!(ended.code, Some(code), "{}{}", ended.stdout, ended.stderr);
        let line = &lines(&place, "r.jsonl")[0];
        assert_eq!((&line["outcome"], &line["blame"]), (&outcome.into(), &blame.into()), "{line}");
    }
}
