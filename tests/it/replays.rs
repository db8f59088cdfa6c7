//! Recorded answers judged again, played back through the engine, and compared, by a real server and the real client.

use crate::processes::{Ended, Place};
use crate::support::fake::{Fake, Script};
use forge::wire::agent::ValidateResponse;

/// Answers with what it was sent; `judge` says yes.
fn agent() -> Fake {
    let script = Script::new(|asked| Ok(format!("you said {} (call {})", asked.text, asked.before + 1)));
    script
        .judging(|_| Ok(ValidateResponse { passed: Some(true), reason: "fine".to_owned(), ..Default::default() }))
        .start()
}

fn case(id: &str, input: &str, assertions: &str) -> String {
    format!("{{\"id\": \"{id}\", \"input\": \"{input}\", \"assertions\": [{assertions}]}}\n")
}

fn contains(text: &str) -> String {
    format!(r#"{{"type": "contains", "value": "{text}"}}"#)
}

/// Runs with a daemon, and gives the id of the run.
fn record(place: &Place, daemon: &str, agent: &Fake, more: &[&str]) -> (String, Ended) {
    let args = ["run", "t.jsonl", "-n", &agent.url, "--daemon", daemon, "-o", "r.json"];
    let ended = place.run(&[&args[..], more].concat());
    (place.json("r.json")["runId"].as_str().expect("an id").to_owned(), ended)
}

#[test]
fn changed_assertions_on_recorded_answers() {
    let place = Place::new();
    let (_daemon, daemon) = place.daemon();
    place.write("t.jsonl", &(case("a", "one", &contains("one")) + &case("b", "two", &contains("three"))));
    let asked = agent();
    let (run, ended) = record(&place, &daemon, &asked, &["--runs", "2"]);
    assert_eq!((ended.code, asked.asked().len()), (Some(1), 4), "{}{}", ended.stdout, ended.stderr);

    let suite = case("a", "one", &contains("(call 2)"))
        + &case("b", "two", &contains("two"))
        + &case("c", "new", &contains("new"));
    place.write("t.jsonl", &suite);
    let calls = asked.asked().len();
    drop(asked);
    let ended = place.run(&["regrade", &run, "t.jsonl", "--daemon", &daemon, "-o", "again.json", "-o", "again.html"]);
    assert_eq!(ended.code, Some(3), "a case that was never sent cannot be judged: {}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains(&format!("judging what was recorded in run {run} (")), "{}", ended.stderr);
    let json = place.json("again.json");
    assert_ne!(json["runId"], run.as_str());
    assert_eq!(json["replayOf"], run.as_str());
    let came: Vec<_> = json["cases"]
        .as_array()
        .expect("cases")
        .iter()
        .map(|case| {
            (case["id"].as_str().expect("an id"), case["repeat"].as_u64(), case["outcome"].as_str().expect("one"))
        })
        .collect();
    let expected = [
        ("a", Some(1), "failed"),
        ("a", Some(2), "passed"),
        ("b", Some(1), "passed"),
        ("b", Some(2), "passed"),
        ("c", Some(1), "errored"),
        ("c", Some(2), "errored"),
    ];
    assert_eq!(came, expected, "each repetition has the answer that it had");
    let second = &json["cases"][1];
    assert_eq!((&second["replayed"], &second["response"]), (&true.into(), &"you said one (call 2)".into()), "{second}");
    let error = json["cases"][4]["error"].as_str().expect("an error");
    assert_eq!(error, format!("the run {run} ran no case \"c\" of t.jsonl"));
    assert_eq!(json["repeats"]["uncounted"], 6, "what is replayed says nothing new about the agent: {json}");
    assert_eq!(json["summary"]["totalDurationMs"], 0, "{json}");
    let page = std::fs::read_to_string(place.path().join("again.html")).expect("a page");
    assert!(page.contains("Replayed from run"), "{page}");
    assert_eq!(calls, 4, "nobody is called");

    // What was replayed can be judged again, too.
    let again = json["runId"].as_str().expect("an id");
    place.write("t.jsonl", &case("a", "one", &contains("you said")));
    let ended = place.run(&["regrade", again, "t.jsonl", "--daemon", &daemon, "-q"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
}

#[test]
fn validators_are_asked_again_only_if_that_is_wanted() {
    let place = Place::new();
    let (_daemon, daemon) = place.daemon();
    let judged = |criteria: &str| {
        let options = format!(r#"{{"metadata": {{"criteria": "{criteria}"}}}}"#);
        case("a", "one", &format!(r#"{{"type": "agent", "use": "agents:judge", "options": {options}}}"#))
    };
    place.write("t.jsonl", &judged("polite"));
    let asked = agent();
    let judge = format!("judge={}", asked.url);
    let (run, ended) = record(&place, &daemon, &asked, &["--agent", &judge]);
    assert_eq!((ended.code, asked.judged()), (Some(0), 1), "{}{}", ended.stdout, ended.stderr);
    let regrade = |more: &[&str]| {
        place.run(&[&["regrade", &run, "t.jsonl", "--daemon", &daemon, "-o", "again.json"][..], more].concat())
    };
    let ended = regrade(&[]);
    assert_eq!(
        (ended.code, asked.judged()),
        (Some(0), 1),
        "what it said then counts: {}{}",
        ended.stdout,
        ended.stderr
    );

    place.write("t.jsonl", &judged("short"));
    let ended = regrade(&[]);
    assert_eq!((ended.code, asked.judged()), (Some(3), 1), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("was asked something else then; --validators asks it now"), "{}", ended.stdout);
    assert_eq!(place.json("again.json")["cases"][0]["blame"], "validator");
    let ended = regrade(&["--validators"]);
    assert_eq!((ended.code, asked.judged()), (Some(0), 2), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(asked.asked().len(), 1, "the agent itself is never called again");
}

#[test]
fn a_dialogue_is_played_back_through_the_engine() {
    let place = Place::new();
    let (_daemon, daemon) = place.daemon();
    let dialogue = |turn: u32, unwanted: &str| {
        format!(
            r#"{{"id": "d", "simulator": {{"use": "user", "options": {{"metadata": {{"persona": "p", "goal": "g"}}}}}},
              "checkpoints": [{{"id": "done", "assert": {{"type": "contains", "value": "(call {turn})"}}}}], "max_turns": 4,
              "assertions": [{{"type": "not_contains", "value": "{unwanted}"}}]}}"#
        )
        .replace('\n', " ")
    };
    place.write("t.jsonl", &dialogue(3, "nothing of that"));
    let user = Script::new(|_| Ok(r#"{"input": "go on"}"#.to_owned())).start();
    let asked = agent();
    let simulator = format!("user={}", user.url);
    let (run, ended) = record(&place, &daemon, &asked, &["--agent", &simulator]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let (calls, inputs) = (asked.asked().len(), user.asked().len());
    assert_eq!((calls, inputs), (3, 3));
    let recorded = place.json("r.json");
    drop((asked, user));

    let replay = |name: &str| {
        place.run(&[
            "run",
            "t.jsonl",
            "-n",
            "grpc://127.0.0.1:1",
            "--agent",
            &simulator,
            "--daemon",
            &daemon,
            "--replay",
            &run,
            "-o",
            name,
        ])
    };
    let ended = replay("again.json");
    assert_eq!(ended.code, Some(2), "it was sent to another agent then: {}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("recorded the agent \"grpc://127.0.0.1:"), "{}", ended.stderr);
    let again = |file: &str| place.run(&["regrade", &run, "t.jsonl", "--daemon", &daemon, "-o", file]);
    let ended = again("again.json");
    assert_eq!(ended.code, Some(0), "nobody is there any more: {}{}", ended.stdout, ended.stderr);
    let json = place.json("again.json");
    assert_eq!(json["cases"][0]["turns"], recorded["cases"][0]["turns"]);
    assert_eq!(json["cases"][0]["checkpoints"], recorded["cases"][0]["checkpoints"]);

    let own = |file: &str| place.json(file)["cases"][0]["assertions"].clone();
    assert_eq!((&own("again.json")[0]["passed"], own("again.json")), (&true.into(), own("r.json")));

    // What it asserts now as a whole is looked for in what was said then.
    place.write("t.jsonl", &dialogue(3, "(call 2)"));
    let ended = again("other.json");
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(own("other.json")[0]["reason"], "found \"(call 2)\" in the response (turn 2)");

    // A dialogue that would go on longer than it did then.
    place.write("t.jsonl", &dialogue(4, "nothing of that"));
    let ended = again("longer.json");
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    let json = place.json("longer.json");
    assert_eq!((&json["cases"][0]["outcome"], &json["cases"][0]["blame"]), (&"errored".into(), &"simulator".into()));
}

#[test]
fn times_of_then_are_not_judged() {
    let place = Place::new();
    let (_daemon, daemon) = place.daemon();
    let suite = |more: &str| {
        format!(r#"[{{"id": "a", "input": {{"message": "hi"}}, "expect": {{"responseNonEmpty": true{more}}}}}]"#)
    };
    place.write("t.golden.json", &suite(""));
    let asked = agent();
    let args = ["run", "t.golden.json", "-n", &asked.url, "--daemon", &daemon, "-o", "r.json"];
    let ended = place.run(&args);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let run = place.json("r.json")["runId"].as_str().expect("an id").to_owned();
    place.write("t.golden.json", &suite(r#", "maxLatencyMs": 0.000001"#));
    let ended = place.run(&["regrade", &run, "t.golden.json", "--daemon", &daemon, "-o", "again.json"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let json = place.json("again.json");
    assert_eq!(json["cases"][0]["assertionsSkipped"], 1, "a time of then says nothing about today: {json}");
}

#[test]
fn what_cannot_be_replayed() {
    let place = Place::new();
    let (_daemon, daemon) = place.daemon();
    place.write("t.jsonl", &case("a", "one", &contains("one")));
    let ended = place.run(&["regrade", "no-such-run", "t.jsonl", "--daemon", &daemon]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("there is no run \"no-such-run\""), "{}", ended.stderr);
    let ended = place.run(&["run", "t.jsonl", "-n", "grpc://127.0.0.1:1", "--replay", "x"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("--replay plays back a run that a daemon keeps"), "{}", ended.stderr);
}

#[test]
fn two_runs_are_compared() {
    let place = Place::new();
    let (_daemon, daemon) = place.daemon();
    place.write(
        "t.jsonl",
        &(case("a", "one", &contains("one")) + &case("b", "two", &contains("two")) + &case("old", "x", "")),
    );
    let (before, _) = record(&place, &daemon, &agent(), &[]);
    place.write(
        "t.jsonl",
        &(case("a", "one", &contains("one")) + &case("b", "two", &contains("three")) + &case("new", "x", "")),
    );
    let (now, _) = record(&place, &daemon, &agent(), &[]);
    // Results can be had at any later time, in every format, and are the same.
    let later = ["later.json", "later.jsonl", "later.xml", "later.md", "later.html"];
    let outputs: Vec<&str> = later.iter().flat_map(|file| ["-o", *file]).collect();
    let ended = place.run(&[&["runs", "report", &now, "--daemon", &daemon][..], &outputs].concat());
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(place.json("later.json"), place.json("r.json"));
    for file in later {
        assert!(std::fs::metadata(place.path().join(file)).is_ok_and(|file| file.len() > 100), "{file}");
    }
    let ended = place.run(&["runs", "report", &now, "--daemon", &daemon, "-o", "x.pdf"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);

    let ended = place.run(&["diff", &before, &now, "--daemon", &daemon]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    for part in [
        "⚠ another text of the suites (",
        "✗ worse: 1\n    t.jsonl: b (passed, now did not pass): contains: ",
        "+ only now: 1\n    t.jsonl: new\n",
        "- only before: 1\n    t.jsonl: old\n",
        "compared with the baseline: cannot tell; 2/2 passed then, 1/2 now (McNemar's exact test",
    ] {
        assert!(ended.stdout.contains(part), "{part} in {}", ended.stdout);
    }
    let ended = place.run(&["diff", &now, &before, "--daemon", &daemon]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("✓ better: 1\n    t.jsonl: b (did not pass, now passed)\n"), "{}", ended.stdout);
}

/// An agent that fails in every way there is; what came of it comes again.
#[test]
fn failures_are_played_back_too() {
    let place = Place::new();
    let (_daemon, daemon) = place.daemon();
    let script = r#"{"replies": [
        {"on": "hangs", "events": [{"hang": true}]},
        {"on": "hangs later", "events": [{"text": "so far"}, {"hang": true}]},
        {"on": "refuses", "events": [{"close": {"status": "INTERNAL", "message": "no way"}}]},
        {"on": "breaks", "events": [{"text": "half"}, {"close": {"status": "UNAVAILABLE", "message": "gone"}}]},
        {"on": "in pieces", "events": [{"text": "a whole answer"}]},
        {"on": "*", "events": [{"text": "fine"}]}
    ]}"#;
    let (asked, url) = place.agent(script);
    let inputs = ["hangs", "hangs later", "refuses", "breaks", "in pieces", "fine"];
    let times = r#""timeout": "600ms""#;
    let lines = inputs
        .map(|input| case(input, input, &contains("a")).replace("\"assertions\"", &format!("{times}, \"assertions\"")));
    let suite = lines.concat();
    place.write("t.jsonl", &suite);
    let ended = place.run(&["run", "t.jsonl", "-n", &url, "--daemon", &daemon, "--parallel", "6", "-o", "r.json"]);
    assert!(matches!(ended.code, Some(1 | 3)), "{}{}", ended.stdout, ended.stderr);
    drop(asked);
    let run = place.json("r.json")["runId"].as_str().expect("an id").to_owned();
    let again = place.run(&["regrade", &run, "t.jsonl", "--daemon", &daemon, "-o", "again.json", "-q"]);
    assert_eq!(again.code, ended.code, "{}{}", again.stdout, again.stderr);
    let (then, now) = (place.json("r.json"), place.json("again.json"));
    for (position, input) in inputs.iter().enumerate() {
        for key in ["outcome", "cause", "blame", "error", "response"] {
            assert_eq!(now["cases"][position][key], then["cases"][position][key], "{input}: {key}");
        }
    }
    assert_eq!(then["cases"][4]["response"], "a whole answer");
}
