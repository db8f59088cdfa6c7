//! What was never run has no verdict when recorded answers are judged again, and is no statistic, by a real server
//! and the real client.

use serde_json::Value;

use crate::processes::{Ended, Place, Running};
use crate::support::fake::{Fake, Script};

/// Answers with the number of the call of its case.
fn agent() -> Fake {
    Script::new(|asked| Ok(format!("you said {} (call {})", asked.text, asked.before + 1))).start()
}

fn case(id: &str, input: &str, assertions: &str) -> String {
    format!("{{\"id\": \"{id}\", \"input\": \"{input}\", \"assertions\": [{assertions}]}}\n")
}

fn contains(text: &str) -> String {
    format!(r#"{{"type": "contains", "value": "{text}"}}"#)
}

struct Recorded {
    place: Place,
    daemon: String,
    _daemon: Running,
}

impl Recorded {
    fn new() -> Self {
        let place = Place::new();
        let (running, daemon) = place.daemon();
        Self { place, daemon, _daemon: running }
    }

    /// Runs, and gives the id of the run.
    fn record(&self, agent: &str, more: &[&str]) -> (String, Ended) {
        let args = ["run", "t.jsonl", "-n", agent, "--daemon", &self.daemon, "-o", "r.json"];
        let ended = self.place.run(&[&args[..], more].concat());
        (self.place.json("r.json")["runId"].as_str().expect("an id").to_owned(), ended)
    }

    fn regrade(&self, run: &str, suites: &[&str]) -> (Ended, Vec<Value>) {
        let args = [&["regrade", run, "--daemon", &self.daemon, "-o", "again.json"][..], suites].concat();
        let ended = self.place.run(&args);
        let json = self.place.json("again.json");
        let suites = json["suites"].as_array().cloned().unwrap_or_else(|| vec![json.clone()]);
        let cases = suites.iter().flat_map(|suite| suite["cases"].as_array().expect("cases").clone()).collect();
        (ended, cases)
    }
}

fn text<'a>(case: &'a Value, key: &str) -> &'a str {
    case[key].as_str().unwrap_or_default()
}

#[test]
fn what_an_early_gate_left_out_is_skipped() {
    let it = Recorded::new();
    it.place.write("t.jsonl", &(case("a", "one", &contains("you")) + &case("b", "two", &contains("you"))));
    let asked = agent();
    let (run, ended) = it.record(&asked.url, &["--runs", "10", "--min-pass-rate", "50%"]);
    assert_eq!((ended.code, asked.asked().len()), (Some(0), 10), "{}{}", ended.stdout, ended.stderr);
    // Every tenth would fail, if it were judged by the answer to another one.
    it.place.write("t.jsonl", &(case("a", "one", &contains("you")) + &case("b", "two", &contains("never"))));
    let (ended, cases) = it.regrade(&run, &["t.jsonl"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(cases.len(), 20);
    for case in &cases {
        let is_left_out = case["id"] == "b";
        assert_eq!(case["outcome"], if is_left_out { "skipped" } else { "passed" }, "{case}");
        assert_eq!(case["replayed"], true, "{case}");
        if is_left_out {
            let expected = format!("not run in the run {run} either: it could not have changed what comes of the gate");
            assert_eq!((text(case, "error"), text(case, "response")), (expected.as_str(), ""), "{case}");
            assert_eq!(
                (&case["durationMs"], case["toolCalls"].as_array().map(Vec::len)),
                (&0.into(), Some(0)),
                "{case}"
            );
        }
    }
    assert!(ended.stdout.contains("not run in the run"), "nobody else says how many there are: {}", ended.stdout);
}

#[test]
fn what_failing_fast_and_cancelling_left_out() {
    let it = Recorded::new();
    let three = |assertion: &str| {
        case("a", "one", &contains(assertion))
            + &case("b", "two", &contains("you"))
            + &case("c", "slow", &contains("you"))
    };
    it.place.write("t.jsonl", &three("never"));
    let (run, ended) = it.record(&agent().url, &["--fail-fast"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    it.place.write("t.jsonl", &three("you"));
    let (ended, cases) = it.regrade(&run, &["t.jsonl"]);
    assert_eq!(ended.code, Some(3), "two of three were never asked: {}{}", ended.stdout, ended.stderr);
    assert_eq!([0, 1, 2].map(|at| text(&cases[at], "outcome")), ["passed", "skipped", "skipped"]);
    assert_eq!([1, 2].map(|at| text(&cases[at], "cause")), ["cancelled"; 2]);
    let expected = format!("not run in the run {run} either: another case did not pass (--fail-fast)");
    assert_eq!(text(&cases[2], "error"), expected);

    // Cancelled while the second of three is being run.
    let script = r#"{"replies": [{"on": "two", "events": [{"text": "half"}, {"hang": true}]}, {"on": "*", "events": [{"text": "you said"}]}]}"#;
    let (_asked, url) = it.place.agent(script);
    let mut detached =
        Running::start(it.place.forgectl(&["run", "t.jsonl", "-n", &url, "--daemon", &it.daemon, "--detach"]));
    let run = detached.line();
    let mut watch = Running::start(it.place.forgectl(&["watch", &run, "--daemon", &it.daemon]));
    watch.line_with("b  started");
    it.place.run(&["runs", "cancel", &run, "--daemon", &it.daemon]);
    watch.end();
    let (ended, cases) = it.regrade(&run, &["t.jsonl"]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    let came = |at: usize| [text(&cases[at], "outcome"), text(&cases[at], "cause"), text(&cases[at], "blame")];
    assert_eq!(came(0), ["passed", "", ""]);
    assert_eq!(came(1), ["errored", "cancelled", "daemon"]);
    assert_eq!(came(2), ["skipped", "cancelled", "daemon"]);
    assert_eq!(text(&cases[1], "error"), format!("not sent in the run {run}, or not to its end: cancelled"));
    assert_eq!(text(&cases[2], "error"), format!("not run in the run {run} either: the run was cancelled"));
    // And so it is when that is judged again.
    let again = it.place.json("again.json")["runId"].as_str().expect("an id").to_owned();
    let (_, once_more) = it.regrade(&again, &["t.jsonl"]);
    for at in 0..3 {
        assert_eq!((&once_more[at]["outcome"], &once_more[at]["error"]), (&cases[at]["outcome"], &cases[at]["error"]));
    }
}

#[test]
fn what_was_never_there_is_said_to_be_so() {
    let it = Recorded::new();
    let off = case("off", "off", &contains("you")).replace("\"input\"", "\"skip\": true, \"input\"");
    it.place.write("t.jsonl", &(case("a", "one", &contains("you")) + &off));
    let asked = agent();
    let (run, ended) = it.record(&asked.url, &["--runs", "2"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    // The new case asks what another one was asked, and the first one asks something else.
    let suite = case("a", "other", &contains("you"))
        + &case("off", "off", &contains("you"))
        + &case("new", "one", &contains("you"));
    it.place.write("t.jsonl", &suite);
    it.place.write("more.jsonl", &case("b", "one", &contains("you")));
    let (ended, cases) = it.regrade(&run, &["t.jsonl", "more.jsonl"]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    assert!(cases.iter().all(|case| case["outcome"] == "errored" && case["blame"] == "suite"), "{cases:?}");
    let errors: Vec<String> = cases.iter().step_by(2).map(|case| text(case, "error").replace(&run, "R")).collect();
    let expected = [
        "the run R holds no answer: the agent was sent something else then",
        "the run R did not send it: it was switched off",
        "the run R ran no case \"new\" of t.jsonl",
        "the run R ran no suite more.jsonl",
    ];
    assert_eq!(errors, expected);
    // More repetitions than there were.
    it.place.write("t.jsonl", &case("a", "one", &contains("you")));
    let args = [
        "run",
        "t.jsonl",
        "-n",
        &asked.url,
        "--daemon",
        &it.daemon,
        "--replay",
        &run,
        "--runs",
        "3",
        "-o",
        "again.json",
    ];
    let ended = it.place.run(&args);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    let third = &it.place.json("again.json")["cases"][2];
    let expected = format!("the run {run} ran this case 2 times: it has no repetition 3");
    assert_eq!((text(third, "outcome"), text(third, "error")), ("errored", expected.as_str()));
    assert_eq!(asked.asked().len(), 2, "nobody is called");
}

/// The attempt counts that the verdict was about, and nothing is tried again.
#[test]
fn attempts_are_those_of_then() {
    let it = Recorded::new();
    it.place.write("t.jsonl", &case("a", "one", &contains("call 2")));
    let asked = agent();
    let (run, ended) = it.record(&asked.url, &["--retry-failed", "3"]);
    assert_eq!((ended.code, asked.asked().len()), (Some(0), 2), "{}{}", ended.stdout, ended.stderr);
    let (ended, cases) = it.regrade(&run, &["t.jsonl"]);
    assert_eq!((ended.code, text(&cases[0], "response")), (Some(0), "you said one (call 2)"), "{}", ended.stdout);
    it.place.write("t.jsonl", &case("a", "one", &contains("call 1")));
    let replay = ["--replay", &run, "--retry-failed", "3", "-o", "again.json"];
    let args = ["run", "t.jsonl", "-n", &asked.url, "--daemon", &it.daemon];
    let ended = it.place.run(&[&args[..], &replay].concat());
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(it.place.json("again.json")["cases"][0]["attempts"], 1, "the same answer would come");
}

/// Trouble of then is told as it was, not as another question.
#[test]
fn trouble_of_then_is_told() {
    let it = Recorded::new();
    it.place.write("t.jsonl", &case("a", "one", ""));
    let (run, ended) = it.record(&agent().url, &["--tools", "routing-only"]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    let (_, cases) = it.regrade(&run, &["t.jsonl"]);
    let expected = format!("not sent in the run {run}, or not to its end: the agent does not declare the capability");
    assert!(cases[0]["cause"] == "unsupported" && text(&cases[0], "error").starts_with(&expected), "{}", cases[0]);

    let dialogue = r#"{"id": "d", "simulator": {"use": "user", "options": {"metadata": {"persona": "p", "goal": "g"}}}, "checkpoints": [{"id": "done", "assert": {"type": "contains", "value": "(call 4)"}}], "max_turns": 6}"#;
    let judged = case(
        "judged",
        "one",
        r#"{"type": "agent", "use": "agents:nobody", "options": {"metadata": {"criteria": "c"}}}"#,
    );
    it.place.write("t.jsonl", &format!("{dialogue}\n{judged}"));
    let user = Script::new(|asked| match asked.before {
        0..2 => Ok(r#"{"input": "go on"}"#.to_owned()),
        _ => Err(tonic::Status::internal("I am tired")),
    });
    let user = user.start();
    let asked = agent();
    let (run, ended) = it.record(&asked.url, &["--agent", &format!("user={}", user.url)]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    let (ended, cases) = it.regrade(&run, &["t.jsonl"]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    let why = |at: usize| format!("{} {}", text(&cases[at], "cause"), text(&cases[at], "error").replace(&run, "R"));
    assert!(why(0).contains("simulator_error") && why(0).contains("I am tired"), "{}", why(0));
    assert_eq!(cases[0]["totalTurns"], 2, "what was said is played back: {}", cases[0]);
    assert!(why(1).contains("\"nobody\" was not asked then"), "{}", why(1));
}

/// A script test that calls more often than it did then.
#[test]
fn scripts_that_ask_more() {
    let it = Recorded::new();
    let script = |calls: usize| {
        let call = r#"const r = Process("agents.shop.Stream", ctx, [{role: "user", content: "hi"}], {}); t.assert.Contains(r.content, "you said");"#;
        let calls = format!("{{ {call} }}\n").repeat(calls);
        it.place.write("scripts/shop_test.ts", &format!("export function TestShop(t, ctx) {{\n{calls}}}\n"));
    };
    script(1);
    let asked = agent();
    let named = format!("shop={}", asked.url);
    let record = ["run", "-i", "scripts.shop", "-n", "shop", "--agent", &named, "--daemon", &it.daemon, "-o", "r.json"];
    let ended = it.place.run(&record);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let run = it.place.json("r.json")["runId"].as_str().expect("an id").to_owned();
    script(2);
    let again = [&record[..], &["--replay", &run]].concat();
    let ended = it.place.run(&again);
    assert_eq!((ended.code, asked.asked().len()), (Some(3), 1), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("it ended after turn 1 then, and this is turn 2"), "{}", ended.stdout);
}

/// Replays are marked, and stay out of whatever counts how the agent does.
#[test]
fn replays_are_no_statistic() {
    let it = Recorded::new();
    it.place.write("t.jsonl", &case("a", "one", &contains("you")));
    let asked = agent();
    let (run, _) = it.record(&asked.url, &[]);
    it.place.write("t.jsonl", &case("a", "one", &contains("never")));
    let (ended, _) = it.regrade(&run, &["t.jsonl"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    let replay = it.place.json("again.json")["runId"].as_str().expect("an id").to_owned();

    let listed = it.place.run(&["runs", "list", "--daemon", &it.daemon]).stdout;
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[0].starts_with(&replay) && lines[0].ends_with(&format!("(replay of {run})")), "{listed}");
    assert!(lines[1].starts_with(&run) && !lines[1].contains("replay"), "{listed}");
    let listed = it.place.run(&["runs", "list", "--json", "--daemon", &it.daemon]).stdout;
    let lines: Vec<Value> = listed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&lines[0]["kind"], &lines[0]["replayOf"]), (&"replay".into(), &run.as_str().into()), "{listed}");
    assert_eq!((&lines[1]["kind"], &lines[1]["replayOf"]), (&"run".into(), &Value::Null), "{listed}");
    assert_eq!((&lines[1]["passed"], &lines[1]["suites"][0]), (&1.into(), &"t.jsonl".into()), "{listed}");

    let history = it.place.run(&["cases", "history", "a", "--limit", "1", "--daemon", &it.daemon]).stdout;
    assert!(history.starts_with("a  █  1 of 1 passed\n") && !history.contains(&replay), "{history}");

    // Neither of the directory of results nor of the daemon is it the last run.
    it.place.write("t.jsonl", &case("a", "one", &contains("you")));
    for folder in ["evals/results", "elsewhere"] {
        let args = ["--baseline", "last", "--output-dir", folder];
        let (_, ended) = it.record(&asked.url, &args);
        assert!(ended.stdout.contains(": 0 regressed | 0 newly passing"), "{folder}: {}{}", ended.stdout, ended.stderr);
    }
    // Named, it is compared with, and said to be what it is; a gate finds nothing in it.
    let (_, ended) =
        it.record(&asked.url, &["--baseline", &replay, "--max-regression", "50%", "--output-dir", "other"]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("no case of the baseline was judged in both runs"), "{}", ended.stdout);
    assert!(ended.stdout.contains(&format!("compared with other evidence ({run}, now agents)")), "{}", ended.stdout);
}

/// A suite that was moved, and a run of some cases only.
#[test]
fn suites_and_cases_are_those_of_then() {
    let it = Recorded::new();
    let two = case("a", "one", &contains("never")) + &case("b", "two", &contains("you"));
    it.place.write("t.jsonl", &two);
    it.place.write("u.jsonl", &two.replace("one", "1").replace("two", "2"));
    let asked = agent();
    let (first, _) = it.record(&asked.url, &["u.jsonl"]);
    let (run, _) = it.record(&asked.url, &["u.jsonl", "--failed", &first]);
    assert_eq!(asked.asked().len(), 6);
    std::fs::create_dir(it.place.path().join("moved")).expect("a folder");
    for file in ["t.jsonl", "u.jsonl"] {
        std::fs::rename(it.place.path().join(file), it.place.path().join("moved").join(file)).expect("moves");
    }
    let (ended, cases) = it.regrade(&run, &["moved"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    let answers: Vec<&str> = cases.iter().map(|case| text(case, "response")).collect();
    assert_eq!(answers, ["you said one (call 3)", "you said 1 (call 4)"], "each file has its own answers");
}
