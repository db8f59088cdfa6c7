//! The programs as people and scripts meet them: exit codes, what stands where, signals.

use std::time::{Duration, Instant};

use crate::processes::{DAEMON, Place, Running, command};

const AGENT: &str = r#"{"replies": [
    {"on": "slow", "events": [{"tool": {"name": "wait", "params": {"s": 9007199254740993}, "success": true, "ms": 5}}, {"wait_ms": 1500}, {"text": "done"}]},
    {"on": "hang", "events": [{"text": "half"}, {"hang": true}]},
    {"on": "*", "events": [{"text": "hello there"}]}
]}"#;

fn case(id: &str, message: &str, expected: &str) -> String {
    format!(
        r#"{{"id": "{id}", "description": "about {id}", "input": {{"message": "{message}"}}, "expect": {{"responseContains": ["{expected}"]}}}}"#
    )
}

fn suite(cases: &[String]) -> String {
    format!("[{}]", cases.join(",\n "))
}

/// Whatever happens has its exit code, and a message that says what to do.
#[test]
fn exit_codes() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let (_daemon, url) = place.daemon();
    let not_an_agent = url.replace("http://", "grpc://");
    place.write("good.golden.json", &suite(&[case("a", "x", "hello")]));
    place.write("bad.golden.json", &suite(&[case("a", "x", "hello"), case("b", "x", "bye")]));
    place.write("empty.golden.json", "[]");
    place
        .write("typo.golden.json", r#"[{"id": "a", "input": {"message": "x"}, "expect": {"responseContain": ["x"]}}]"#);
    place.write(
        "pattern.golden.json",
        r#"[{"id": "a", "input": {"message": "x"}, "expect": {"responseMatches": ["hello ("]}}]"#,
    );
    place.write("broken.golden.json", "[{\"id\": \"a\",}]");
    place.write("unasserted.golden.json", r#"[{"id": "a", "input": {"message": "x"}}]"#);
    place.write("silent.golden.json", r#"[{"id": "a"}]"#);
    place.write("later.jsonl", "{\"id\": \"a\"}");
    std::fs::create_dir(place.path().join("folder")).expect("a folder");
    let table: &[(&[&str], i32, &[&str])] = &[
        (&["run", "good.golden.json", "-n", &agent], 0, &["1/1 passed | 0 failed", "running one inside this process"]),
        (&["run", "-i", "good.golden.json", "-n", &agent, "--quiet"], 0, &["1/1 passed"]),
        (
            &["run", "*.golden.json", "-n", &agent],
            2,
            &["the suite is invalid", "typo.golden.json, line 1", "broken.golden.json, line 1"],
        ),
        (
            &["run", "bad.golden.json", "-n", &agent],
            1,
            &["✗ b", "→ responseContains: expected 'bye' in response but not found"],
        ),
        (&["run", "bad.golden.json", "-n", &agent, "--run", "^a$"], 0, &["1/1 passed"]),
        (
            &["run", "good.golden.json", "bad.golden.json", "-n", &agent],
            1,
            &["═══ good — golden evals", "═══ bad — golden evals"],
        ),
        (&["run", "-n", &agent], 2, &["nothing to run", "hint:"]),
        (&["run", "missing.json", "-n", &agent], 2, &["there is no file or folder \"missing.json\"", "hint:"]),
        (
            &["run", "typo.golden.json", "-n", &agent],
            2,
            &["case \"a\"", "expect.responseContain", "did you mean \"responseContains\"?"],
        ),
        (
            &["run", "later.jsonl", "-n", &agent],
            2,
            &["later.jsonl, line 1, case \"a\", input: the case needs an input"],
        ),
        (
            &["run", "good.golden.json", "-n", &agent, "-o", "r.txt"],
            2,
            &["r.txt", "hint: results are written as .json"],
        ),
        (&["run", "good.golden.json", "-n", &agent, "--run", "("], 2, &["\"(\" is no regular expression"]),
        (&["run", "good.golden.json", "-n", &agent, "--timeout", "90"], 2, &["write it like 30s, 2m or 1h30m"]),
        (&["run", "good.golden.json", "-n", &agent, "--detach"], 2, &["--detach needs a daemon"]),
        (&["run", "good.golden.json", "-n", "weather"], 2, &["there is no agent \"weather\"", "hint:"]),
        (&["run", "good.golden.json", "-n", "ftp://x:1"], 2, &["is no address of an agent"]),
        (
            &["run", "good.golden.json", "-n", "grpc://127.0.0.1:1"],
            3,
            &["grpc://127.0.0.1:1 cannot be reached", "attempts", "Connection refused", "hint: is it running"],
        ),
        (
            &["run", "good.golden.json", "-n", &agent, "--daemon", "http://127.0.0.1:1"],
            3,
            &["the daemon at http://127.0.0.1:1 cannot be reached", "hint: start one with `forge-daemon`"],
        ),
        (&["run", "good.golden.json", "-n", &not_an_agent], 3, &["errored", "nothing there implements Invoke"]),
        (
            &["run", "good.golden.json", "-n", &agent, "--output-dir", "/dev/null/x"],
            2,
            &["results cannot be written to /dev/null/x", "hint:"],
        ),
        (&["run", "good.golden.json", "-n", &agent, "-o", "/proc/x.json"], 2, &["results cannot be written to /proc"]),
        (
            &["run", "good.golden.json", "-n", "x", "--agent", "x=grpc://a:1", "--agent", "x=grpc://b:1"],
            2,
            &["--agent x=… is given twice"],
        ),
        (
            &["run", "good.golden.json", "empty.golden.json", "-n", &agent],
            0,
            &["empty.golden.json: the file holds no cases"],
        ),
        (
            &["run", "good.golden.json", "empty.golden.json", "-n", &agent, "--strict"],
            4,
            &["holds no cases, and the run is strict"],
        ),
        (&["run", "/dev/null", "-n", &agent], 2, &["is neither a file nor a folder"]),
        (&["run", "silent.golden.json", "-n", &agent], 3, &["no input message", "1 errored"]),
        (&["run", "empty.golden.json", "-n", &agent], 4, &["nothing selected: the suite holds no cases"]),
        (&["run", "folder", "-n", &agent], 4, &["nothing selected: folder holds no eval files"]),
        (
            &["run", "good.golden.json", "-n", &agent, "--run", "zzz"],
            4,
            &["nothing selected: the one case does not match"],
        ),
        (&["run", "unasserted.golden.json", "-n", &agent], 0, &["⚠ no assertions"]),
        (&["run", "unasserted.golden.json", "-n", &agent, "--strict"], 1, &["→ no assertions"]),
        (&["check", "good.golden.json"], 0, &["good.golden.json: golden evals of good, 1 case"]),
        (&["check", "unasserted.golden.json"], 0, &["case \"a\": no assertions, so it checks nothing"]),
        (&["check", "typo.golden.json"], 2, &["did you mean"]),
        (
            &["check", "pattern.golden.json"],
            2,
            &["1 assertion cannot be evaluated", "line 1, case \"a\", expect.responseMatches[0]: ", "hello ("],
        ),
        (&["run", "pattern.golden.json", "-n", &agent], 1, &["⚠ pattern.golden.json, line 1", "→ responseMatches: "]),
        (&["status"], 2, &["none is named", "hint:"]),
        (&["run"], 2, &["nothing to run"]),
        (&["run", "good.golden.json"], 2, &["no agent to test", "hint:"]),
        (&["frobnicate"], 2, &["unrecognized subcommand"]),
    ];
    for (args, code, texts) in table {
        let ended = place.run(args);
        assert_eq!(ended.code, Some(*code), "{args:?}\n{}{}", ended.stdout, ended.stderr);
        for text in *texts {
            let said = format!("{}{}", ended.stdout, ended.stderr);
            assert!(said.contains(text), "{args:?} does not say {text:?}:\n{said}");
        }
    }
}

/// The result has every key of the contract, stdout has the summary and nothing else.
#[test]
fn results() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    place.write("evals/faq.golden.json", &suite(&[case("a", "x", "hello"), case("b", "slow", "nothing of the kind")]));
    let ended = place.run(&["run", "evals/faq.golden.json", "-n", &agent, "-o", "out/r.json", "--quiet"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(1), ""));
    assert!(ended.stdout.starts_with("═══ faq — golden evals ═══"), "{}", ended.stdout);
    assert!(!ended.stdout.contains('\u{1b}'), "no colours in a pipe");
    let result = place.json("out/r.json");
    for key in [
        "runId",
        "timestamp",
        "tier",
        "toolName",
        "agentEndpoint",
        "metadata",
        "stalenessWarnings",
        "cases",
        "summary",
        "baselineRunId",
        "regressions",
        "newPasses",
    ] {
        assert!(result.get(key).is_some(), "{key} is missing: {result}");
    }
    for key in ["toolVersion", "descriptionHash", "registrySize", "evalFileHash"] {
        assert!(result["metadata"].get(key).is_some(), "metadata.{key} is missing");
    }
    for key in ["totalCases", "passed", "failed", "skippedAssertions", "totalDurationMs", "estimatedCostUsd"] {
        assert!(result["summary"].get(key).is_some(), "summary.{key} is missing");
    }
    let case = &result["cases"][1];
    assert_eq!(
        (&case["id"], &case["passed"], &case["cause"], &case["blame"]),
        (&"b".into(), &false.into(), &"assertion".into(), &"agent".into())
    );
    assert_eq!(case["details"]["toolsCalled"][0], "wait");
    assert_eq!(case["toolCalls"][0]["params"]["s"].to_string(), "9007199254740993");
    assert!(case["durationMs"].as_u64() >= Some(1500));
    let written: Vec<_> = std::fs::read_dir(place.path().join("evals/results")).expect("results").collect();
    assert_eq!(written.len(), 1);
}

/// All that a run says, to the letter: the summary on stdout, everything else on stderr.
#[test]
fn what_people_see() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    place.write(
        "faq.golden.json",
        &suite(&[
            case("good", "x", "hello"),
            case("bad", "x", "bye"),
            r#"{"id": "odd", "owner": 1, "input": {"message": "x"}}"#.to_owned(),
        ]),
    );
    let ended = place.run(&["run", "faq.golden.json", "-n", &agent]);
    let millis = regex::Regex::new(r" *\d+ms").unwrap();
    let trace = regex::Regex::new(r"trace [0-9a-f]{32}").unwrap();
    let steady = |text: &str| trace.replace_all(&millis.replace_all(text, " Nms"), "trace OF THE RUN").into_owned();
    let stdout = "\
═══ faq — golden evals ════════════════════════════════════════════
  ✓ good  about good Nms
  ✗ bad   about bad Nms
    → responseContains: expected 'bye' in response but not found
      the response is \"hello there\"
      user: x
      agent: hello there
      trace OF THE RUN
  ✓ odd Nms
    ⚠ no assertions
───────────────────────────────────────────────────────────────────
  2/3 passed | 1 failed | 0 skipped assertions | Nms total
";
    let stderr = "\
⚠ faq.golden.json, line 3, case \"odd\", owner: unknown key, ignored
no daemon given: running one inside this process
passed good (Nms)
failed bad (Nms)
passed odd (Nms)
results: evals/results
";
    assert_eq!(steady(&ended.stdout), stdout);
    assert_eq!(steady(&ended.stderr).replace("( Nms)", "(Nms)"), stderr);
    assert_eq!(ended.code, Some(1));
}

/// A daemon that has no access to the files gives the same verdicts; what it keeps can be looked at.
#[test]
fn runs_of_a_daemon() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let (daemon, url) = place.daemon();
    place.write("faq.golden.json", &suite(&[case("a", "x", "hello"), case("b", "x", "bye")]));
    let run = |args: &[&str]| place.run(&[args, &["--daemon", &url]].concat());

    let added = run(&["agents", "add", "helper", &agent]);
    assert_eq!(added.code, Some(0), "{}", added.stderr);
    assert!(run(&["agents", "list"]).stdout.contains("helper  answered"));
    assert!(run(&["agents", "describe", "helper"]).stdout.contains("capabilities"));
    assert!(run(&["agents", "probe", "helper"]).stdout.contains("answered in"));
    let ended = run(&["run", "faq.golden.json", "-n", "helper", "-o", "r.json"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let id = place.json("r.json")["runId"].as_str().expect("an id").to_owned();

    let listed = run(&["runs", "list"]).stdout;
    assert!(listed.contains(&id) && listed.contains("failed") && listed.contains("1/2"), "{listed}");
    let shown = run(&["runs", "show", &id]);
    assert!(shown.stdout.contains("1/2 passed | 1 failed"), "{}", shown.stdout);
    let watched = run(&["watch", &id]);
    assert_eq!(watched.code, Some(1));
    assert!(watched.stdout.lines().next().expect("a line").contains("started: 2 cases"), "{}", watched.stdout);
    assert!(watched.stdout.lines().last().expect("a line").contains("run failed: 1 of 2 passed"), "{}", watched.stdout);
    assert!(run(&["status"]).stdout.contains("runs       1 kept"));

    // Only what did not pass, by run and by file.
    for previous in [id.as_str(), "r.json"] {
        let again = run(&["run", "faq.golden.json", "-n", "helper", "--failed", previous]);
        assert!(again.stdout.contains("0/1 passed"), "{}{}", again.stdout, again.stderr);
    }

    let detached = run(&["run", "faq.golden.json", "-n", "helper", "--detach"]);
    let id = detached.stdout.trim().to_owned();
    assert_eq!(run(&["watch", &id, "--cases"]).code, Some(1));

    assert_eq!(run(&["runs", "show", "nonsense"]).code, Some(2));
    assert_eq!(run(&["agents", "remove", "helper"]).code, Some(0));
    assert_eq!(run(&["agents", "probe", "helper"]).code, Some(2));
    let refused = run(&["agents", "add", "far", "grpc://192.0.2.1:5"]);
    assert!(
        refused.stderr.contains("not among the daemon's allowed targets") && refused.stderr.contains("hint:"),
        "{}",
        refused.stderr
    );
    daemon.signal("TERM");
    assert_eq!(daemon.end().code, Some(0));
}

/// A call's start is seen before its end, live, and from the beginning also by those who come late.
#[test]
fn watching_live() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let (_daemon, url) = place.daemon();
    place.write("slow.golden.json", &suite(&[case("a", "slow", "done")]));
    let detached = place.run(&["run", "slow.golden.json", "-n", &agent, "--detach", "--daemon", &url]);
    let id = detached.stdout.trim().to_owned();
    let mut watcher = Running::start(place.forgectl(&["watch", &id, "--daemon", &url]));
    watcher.line_with("→ wait {\"s\": 9007199254740993}");
    let seen = Instant::now();
    watcher.line_with("a  passed");
    assert!(seen.elapsed() > Duration::from_secs(1), "the call was only shown when the case was over");
    let late = place.run(&["watch", &id, "--daemon", &url]);
    assert!(
        late.stdout.contains("run ") && late.stdout.contains("→ wait") && late.stdout.contains("run passed"),
        "{}",
        late.stdout
    );
}

/// The first Ctrl-C cancels the run and prints the summary; the agent is told.
#[test]
fn interrupted_once() {
    for with_daemon in [false, true] {
        let place = Place::new();
        let (_agent, agent) = place.agent(AGENT);
        let daemon = with_daemon.then(|| place.daemon());
        place.write(
            "h.golden.json",
            &suite(&[case("a", "x", "hello"), case("b", "hang", "x"), case("c", "x", "hello")]),
        );
        let mut args = vec!["run", "h.golden.json", "-n", &agent, "-o", "r.json"];
        if let Some((_, url)) = &daemon {
            args.extend(["--daemon", url]);
        }
        let run = Running::start(place.forgectl(&args));
        wait_for_call(&place, "hang");
        run.signal("INT");
        let ended = run.end();
        assert_eq!(ended.code, Some(130), "{}", ended.stderr);
        assert!(ended.stderr.contains("cancelling the run"), "{}", ended.stderr);
        assert!(ended.stdout.contains("1/3 passed | 0 failed | 1 cancelled | 1 not run"), "{}", ended.stdout);
        assert_eq!(place.json("r.json")["exitCode"], 3);
        let log = std::fs::read_to_string(place.path().join("calls.jsonl")).expect("a log");
        assert!(log.contains(r#""event":"cancel""#), "the agent was told: {log}");
    }
}

/// The second Ctrl-C does not wait for anything.
#[test]
fn interrupted_twice() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let (daemon, url) = place.daemon();
    place.write("h.golden.json", &suite(&[case("b", "hang", "x")]));
    let run = Running::start(place.forgectl(&["run", "h.golden.json", "-n", &agent, "--daemon", &url]));
    wait_for_call(&place, "hang");
    // A daemon that does not answer any more cannot end the run.
    daemon.signal("STOP");
    run.signal("INT");
    std::thread::sleep(Duration::from_millis(300));
    run.signal("INT");
    let begun = Instant::now();
    assert_eq!(run.end().code, Some(130));
    assert!(begun.elapsed() < Duration::from_secs(2));
    daemon.signal("CONT");
}

/// A daemon that does not come back while its run is followed: exit 3, and how to go on.
#[test]
fn daemon_killed() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let (daemon, url) = place.daemon();
    place.write("h.golden.json", &suite(&[case("b", "hang", "x")]));
    let args = ["run", "h.golden.json", "-n", &agent, "--daemon", &url, "--wait", "1s"];
    let run = Running::start(place.forgectl(&args));
    wait_for_call(&place, "hang");
    daemon.signal("KILL");
    let begun = Instant::now();
    let ended = run.end();
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(ended.stderr.contains("lost the daemon") && ended.stderr.contains("hint:"), "{}", ended.stderr);
}

/// SIGTERM lets the case in flight end and starts no other; the daemon that comes after it goes on with the run, and
/// the client that follows it sees that.
#[test]
fn daemon_drains() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let (daemon, url) = place.daemon();
    place.write("s.golden.json", &suite(&[case("a", "slow", "done"), case("b", "x", "hello")]));
    let run = Running::start(place.forgectl(&["run", "s.golden.json", "-n", &agent, "--daemon", &url]));
    wait_for_call(&place, "slow");
    daemon.signal("TERM");
    assert_eq!(daemon.end().code, Some(0));
    let calls = |text: &str| {
        let log = std::fs::read_to_string(place.path().join("calls.jsonl")).expect("calls");
        let wanted = format!("\"last_user_text\":\"{text}\"");
        log.lines().filter(|line| line.contains("\"event\":\"start\"") && line.contains(&wanted)).count()
    };
    assert_eq!(calls("x"), 0, "no other case was started");
    let _again = place.daemon_at(&url);
    let ended = run.end();
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("✓ a") && ended.stdout.contains("✓ b"), "{}", ended.stdout);
    assert_eq!(calls("slow"), 1, "what had its verdict is not run again");
}

fn wait_for_call(place: &Place, text: &str) {
    let begun = Instant::now();
    let wanted = format!("\"last_user_text\":\"{text}\"");
    while !std::fs::read_to_string(place.path().join("calls.jsonl")).unwrap_or_default().contains(&wanted) {
        assert!(begun.elapsed() < crate::processes::PATIENCE, "the agent was never called with {text:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What keeps a daemon from starting is one clear line.
#[test]
fn daemon_refusals() {
    let place = Place::new();
    let (_daemon, url) = place.daemon();
    let taken = url.trim_start_matches("http://").to_owned();
    place.write("unknown.toml", "listn = '127.0.0.1:0'");
    place.write("agents.toml", "[agents]\nweather = 'nowhere'");
    let table: &[(&[&str], i32, &str)] = &[
        (&["--listen", &taken, "--data-dir", "x"], 3, "is in use"),
        (&["--listen", "127.0.0.1:0", "--data-dir", "daemon/data"], 3, "is in use by another daemon"),
        (&["--listen", "0.0.0.0:0", "--data-dir", "x"], 2, "can be reached by others"),
        (&["--config", "missing.toml"], 2, "missing.toml: No such file"),
        (&["--config", "unknown.toml"], 2, "unknown.toml, line 1: unknown field `listn`"),
        (
            &["--config", "agents.toml", "--listen", "127.0.0.1:0", "--data-dir", "y"],
            2,
            "\"nowhere\" is no address of an agent",
        ),
        (&["--listen", "127.0.0.1:0", "--data-dir", "/dev/null/x"], 3, "/dev/null/x"),
        (&["--log", "forge=loud=louder", "--data-dir", "x"], 2, "is no filter"),
    ];
    for (args, code, text) in table {
        let mut daemon = command(DAEMON, place.path());
        daemon.args(*args);
        let ended = Running::start(daemon).end();
        assert_eq!(ended.code, Some(*code), "{args:?}: {}", ended.stderr);
        let complaint = ended.stderr.lines().filter(|line| line.starts_with("forge-daemon: ")).collect::<Vec<_>>();
        assert!(complaint.len() == 1 && complaint[0].contains(text), "{args:?}: {}", ended.stderr);
    }
}

/// A later run is compared with an earlier one, however that is named.
#[test]
fn baselines() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let (_daemon, url) = place.daemon();
    place
        .write("faq.golden.json", &suite(&[case("a", "x", "hello"), case("b", "x", "bye"), case("old", "x", "hello")]));
    let before = place.run(&["run", "faq.golden.json", "-n", &agent, "--daemon", &url, "-o", "before.json"]);
    assert_eq!(before.code, Some(1), "{}", before.stderr);
    let id = place.json("before.json")["runId"].as_str().expect("an id").to_owned();
    place
        .write("faq.golden.json", &suite(&[case("a", "x", "bye"), case("b", "x", "hello"), case("new", "x", "hello")]));
    for baseline in ["before.json", "last", &id] {
        let args = ["run", "faq.golden.json", "-n", &agent, "--daemon", &url, "--baseline", baseline];
        let ended = place.run(&[&args[..], &["-o", "r.json", "--output-dir", "evals/results"]].concat());
        assert_eq!(ended.code, Some(1), "{baseline}: {}", ended.stderr);
        let lines: Vec<&str> = ended.stdout.lines().collect();
        assert_eq!(lines[1], "  ✗ regression a: it passed in the baseline", "{}", ended.stdout);
        assert!(
            ended.stdout.contains(": 1 regressed | 1 newly passing | new: new | vanished: old"),
            "{}",
            ended.stdout
        );
        let result = place.json("r.json");
        assert_eq!((&result["regressions"][0], &result["newPasses"][0]), (&"a".into(), &"b".into()));
        assert_eq!(result["baselineRunId"], id.as_str());
        let differs = result["baselineDifferences"][0].as_str().expect("a difference");
        assert!(differs.starts_with("another text of the eval file ("), "{differs}");
        assert!(ended.stdout.contains(&format!("⚠ compared with {differs}")), "{}", ended.stdout);
        // Only the first run is a baseline: `last` would find this one next.
        for entry in std::fs::read_dir(place.path().join("evals/results")).expect("results") {
            let path = entry.expect("an entry").path();
            if !path.display().to_string().contains(&id) {
                std::fs::remove_file(path).expect("removes");
            }
        }
    }
    // Without results in a directory `last` is the newest run of the daemon.
    let args = ["run", "faq.golden.json", "-n", &agent, "--daemon", &url, "--baseline", "last"];
    let ended = place.run(&[&args[..], &["-o", "r.json", "--output-dir", "elsewhere"]].concat());
    assert!(ended.stdout.contains(": 0 regressed | 0 newly passing"), "{}{}", ended.stdout, ended.stderr);
    assert_ne!(place.json("r.json")["baselineRunId"], id.as_str());

    place.write("cut.json", "{\"runId\": \"r\", \"cases\": [");
    place.write("none.json", r#"{"suites": []}"#);
    place.write("other.json", r#"{"runId": "r", "toolName": "other", "cases": [{"id": "a", "passed": true}]}"#);
    for (baseline, code, text) in [
        ("none.json", 2, "there are no suites in it"),
        ("cut.json", 2, "--baseline cut.json: it is no result"),
        ("missing.json", 2, "there is no such file"),
        ("other.json", 1, "about \"other\" (), and faq.golden.json is about \"faq\" (golden): nothing is compared"),
    ] {
        let ended = place.run(&["run", "faq.golden.json", "-n", &agent, "--baseline", baseline]);
        assert_eq!(ended.code, Some(code), "{baseline}: {}{}", ended.stdout, ended.stderr);
        assert!(
            format!("{}{}", ended.stdout, ended.stderr).contains(text),
            "{baseline}: {}{}",
            ended.stdout,
            ended.stderr
        );
    }
}

/// A run that met trouble is no baseline, and what was not judged is no regression.
#[test]
fn trouble_is_no_baseline() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let evals = |golden: &str| {
        let text = format!(r#"{{"metadata": {{"toolName": "t"}}, "cases": {}}}"#, suite(&[case("g", "x", golden)]));
        place.write("x.golden.json", &text);
        let text = format!(
            r#"{{"metadata": {{"toolName": "t"}}, "cases": {}}}"#,
            suite(&[case("l", "x", "hello"), case("h", "hang", "half")])
        );
        place.write("x.labeled.json", &text);
    };
    evals("hello");
    let args = ["run", "x.golden.json", "x.labeled.json", "-n", &agent, "--timeout", "300ms"];
    assert_eq!(place.run(&args).code, Some(1));
    let mut gone = args;
    let nobody = [&agent[..agent.rfind(':').expect("a port")], ":1"].concat();
    gone[4] = &nobody;
    assert_eq!(place.run(&gone).code, Some(3));
    assert_eq!(place.run(&[&args[..], &["--run", "^l$"]].concat()).code, Some(0));
    evals("bye");
    let ended = place.run(&[&args[..], &["--baseline", "last"]].concat());
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("✗ regression g: it passed in the baseline"), "{}", ended.stdout);
    assert_eq!(ended.stdout.matches("0 regressed").count(), 1, "{}", ended.stdout);
    assert!(!ended.stdout.contains("vanished"), "each tier is compared with its own: {}", ended.stdout);
}

/// The settings of a project: found upward, flags win, mistakes have a line.
#[test]
fn settings_of_a_project() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    place.write("evals/seed-manifest.json", r#"{"greeting": {"words": ["hello"]}}"#);
    place.write(
        "evals/faq.golden.json",
        &suite(&[case("a", "x", "{{seed:greeting.words[0]}} there"), case("b", "slow", "{{snapshot:x}}")]),
    );
    let config = |more: &str| {
        let text = format!("{{\"agentEndpoint\": \"{agent}\", \"outputDir\": \"out\", \"timeoutMs\": 300{more}}}");
        place.write("forge.config.json", &text);
    };
    config("");
    // Without a snapshot its token is left out, and said to be; the slow case exceeds the configured time.
    let ended = place.run(&["run", "evals", "-o", "r.json", "--all-assertions"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("→ timeout"), "{}", ended.stdout);
    assert_eq!(std::fs::read_dir(place.path().join("out")).expect("results").count(), 1);
    let ended = place.run(&["run", "evals", "--timeout", "5s", "--parallel", "2"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("{{snapshot:x}} leads nowhere"), "{}", ended.stdout);
    place.write("today.json", r#"{"x": "done"}"#);
    let ended = place.run(&["run", "evals", "--timeout", "5s", "--snapshot", "today.json", "--strict"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    for (command, code) in [("echo '{\"x\": \"done\"}'", 0), ("exit 7", 3), ("echo nonsense", 3)] {
        let args = ["run", "evals", "--timeout", "5s", "--snapshot-command", command, "--strict"];
        let ended = place.run(&args);
        assert_eq!(ended.code, Some(code), "{command}: {}{}", ended.stdout, ended.stderr);
    }
    for (more, text) in [
        (", \"concurency\": 2", "line 1: there is no setting \"concurency\""),
        (", \"concurrency\": 0", "concurrency: must be from 1 to 10000, not 0"),
        (", \"snapshotEnabled\": true", "snapshotEnabled: is true, and there is no snapshot"),
        (", \"prices\": {\"m\": {\"input\": 1}}", "line 1: prices.m: needs input and output"),
        (
            ", \"prices\": {\"m\": {\"inptu\": 1}}",
            "prices.m: there is no setting \"inptu\"\n  hint: did you mean \"input\"?",
        ),
        (", \"prices\": {\"m\": {\"input\": -1, \"output\": 1}}", "prices.m.input: must be US dollars"),
        (
            ", \"snapshotPath\": \"today.json\", \"snapshotCommand\": \"x\"",
            "line 1: snapshotCommand: contradicts snapshotPath, line 1",
        ),
        (", \"toolMode\": \"dead\"", "toolMode: there is no \"dead\"\n  hint: there are live, routing-only"),
    ] {
        config(more);
        let ended = place.run(&["run", "evals"]);
        assert_eq!(ended.code, Some(2), "{more}: {}", ended.stderr);
        assert!(ended.stderr.contains(text), "{more}: {}", ended.stderr);
    }
}

/// An agent that streams its answer in thousands of small pieces is an honest one, also beside others.
#[test]
fn small_pieces() {
    let place = Place::new();
    let pieces = r#"{"replies": [{"on": "*", "events": [{"text_pieces": {"unit": "abc", "piece_bytes": 3, "pieces": 5000}}, {"text": "end"}]}]}"#;
    let (_agent, agent) = place.agent(pieces);
    let cases: Vec<String> = (0..16).map(|n| case(&format!("c{n}"), "x", "abcend")).collect();
    place.write("s.golden.json", &suite(&cases));
    let ended = place.run(&["run", "s.golden.json", "-n", &agent, "--parallel", "8"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stdout);
}

/// A run whose cases all had their verdict when the daemon was stopped has passed.
#[test]
fn stopping_takes_nothing_back() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let (daemon, url) = place.daemon();
    place.write("s.golden.json", &suite(&[case("a", "slow", "done")]));
    let run = Running::start(place.forgectl(&["run", "s.golden.json", "-n", &agent, "--daemon", &url]));
    wait_for_call(&place, "slow");
    daemon.signal("TERM");
    let ended = run.end();
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
}

/// What is generated for others is whole.
#[test]
fn things_to_take_away() {
    let place = Place::new();
    assert_eq!(place.run(&["proto", "--out", "p"]).code, Some(0));
    let text = std::fs::read_to_string(place.path().join("p/forge/agent/v1/agent.proto")).expect("a proto file");
    assert!(text.contains("service AgentEndpoint"));
    assert!(place.run(&["completions", "bash"]).stdout.contains("_forgectl"));
    let version = place.run(&["--version"]).stdout;
    assert!(version.contains("build") && version.contains("protocol revision 1"), "{version}");
    for language in ["python", "typescript"] {
        assert_eq!(place.run(&["init", language, language]).code, Some(0));
        assert_eq!(place.run(&["check", &format!("{language}/evals")]).code, Some(0));
        let again = place.run(&["init", language, language]);
        assert_eq!(again.code, Some(2), "nothing is overwritten");
    }
}

/// npm would take what is no SDK for something else, such as a repository of a stranger.
#[test]
fn where_the_typescript_sdk_is() {
    let place = Place::new();
    place.write("sdk/package.json", r#"{"name": "forge-daemon"}"#);
    place.write("other/package.json", r#"{"name": "other"}"#);
    for (sdk, text) in [
        ("clients/typescript", "clients/typescript: there is no such file or folder"),
        ("file:nowhere", "file:nowhere: there is no such file or folder"),
        ("other", "other: this folder does not hold the SDK"),
        ("sdk", "run `npm ci --ignore-scripts && npm run build` in sdk"),
    ] {
        let ended = place.run(&["init", "typescript", "a", "--sdk", sdk]);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(text), "{}", ended.stderr);
    }
    place.write("sdk/dist/index.js", "");
    let folder = format!("file:{}", place.path().join("sdk").display());
    for (number, (sdk, wanted)) in
        [("sdk", &*folder), ("0.1.0", "0.1.0"), ("https://a.example/\"sdk\".tgz", "https://a.example/\"sdk\".tgz")]
            .into_iter()
            .enumerate()
    {
        let name = number.to_string();
        assert_eq!(place.run(&["init", "typescript", &name, "--sdk", sdk]).code, Some(0));
        assert_eq!(place.json(&format!("{name}/package.json"))["dependencies"]["forge-daemon"], wanted);
    }
}

/// A reader that closes stdout is told no error.
#[test]
fn a_broken_pipe_is_quiet() {
    let place = Place::new();
    let mut shell = command("bash", place.path());
    let forgectl = crate::processes::FORGECTL;
    shell.args(["-c", &format!("{forgectl} completions zsh | head -n 1; echo ${{PIPESTATUS[0]}}")]);
    let ended = Running::start(shell).end();
    assert!(ended.stdout.ends_with("0\n") && ended.stderr.is_empty(), "{ended:?}");

    let (_agent, agent) = place.agent(AGENT);
    place.write("good.golden.json", &suite(&[case("a", "x", "hello")]));
    let run = format!("FORGE_DAEMON= {forgectl} run good.golden.json -n {agent} -o r.json");
    for nobody_listens in ["2>&-", "2> >(true)", ">&-", "| true", "2>&1 | true"] {
        let mut shell = command("bash", place.path());
        shell.args(["-c", &format!("{run} {nobody_listens}; exit ${{PIPESTATUS[0]}}")]);
        let ended = Running::start(shell).end();
        assert_eq!(ended.code, Some(0), "{nobody_listens}: {ended:?}");
        assert_eq!(place.json("r.json")["exitCode"], 0, "{nobody_listens}: the results are there");
        std::fs::remove_file(place.path().join("r.json")).expect("removes");
    }
}

/// Cases are selected by tier, difficulty, tag and id; what their authors noted stands in the result and beside a
/// failure.
#[test]
fn selection_and_labels() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let labelled = |id: &str, labels: &str, expected: &str| {
        let case = case(id, "x", expected);
        format!("{}, {labels}}}", case.strip_suffix('}').expect("an object"))
    };
    place.write("evals/faq.golden.json", &suite(&[case("g", "x", "hello")]));
    place.write(
        "evals/faq.regression.json",
        &suite(&[
            labelled(
                "r1",
                r#""difficulty": "edge", "bugRef": "FORGE-7", "createdAt": "2026-01-05", "tags": ["eu"]"#,
                "bye",
            ),
            labelled("r2", r#""difficulty": "straightforward", "tags": ["eu", "slow"]"#, "hello"),
            case("r3", "x", "hello"),
        ]),
    );
    for (selection, ids) in [
        (&["--tier", "regression"][..], &["r1", "r2", "r3"][..]),
        (&["--tier", "regression", "--tier", "golden"], &["g", "r1", "r2", "r3"]),
        (&["--difficulty", "edge"], &["r1"]),
        (&["--tag", "eu", "--run", "2$"], &["r2"]),
        (&["--tag", "slow", "--difficulty", "edge"], &[]),
    ] {
        let ended = place.run(&[&["run", "evals", "-n", &agent, "-o", "r.json"], selection].concat());
        if ids.is_empty() {
            assert_eq!(ended.code, Some(4), "{selection:?}: {}", ended.stderr);
            continue;
        }
        let result = place.json("r.json");
        let suites = result["suites"].as_array().expect("suites");
        let ran = suites.iter().flat_map(|suite| suite["cases"].as_array().expect("cases"));
        let ran: Vec<&str> = ran.filter_map(|case| case["id"].as_str()).collect();
        assert_eq!(ran, ids, "{selection:?}: {}", ended.stderr);
        assert_eq!((&suites[1]["tier"], &suites[1]["partial"]), (&"regression".into(), &true.into()));
        if ids.contains(&"r1") {
            let case = suites[1]["cases"].as_array().expect("cases").first().expect("r1");
            assert_eq!((&case["difficulty"], &case["bugRef"]), (&"edge".into(), &"FORGE-7".into()));
            assert_eq!((&case["createdAt"], &case["tags"][0]), (&"2026-01-05".into(), &"eu".into()));
            let beside = "difficulty: edge | bug: FORGE-7 | since: 2026-01-05 | tags: eu";
            assert!(ended.stdout.contains(beside), "{}", ended.stdout);
        }
    }
    let ended = place.run(&["run", "evals", "-n", &agent, "--tier", "silver"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
}

/// With a price, what a case cost is told and can be limited.
#[test]
fn costs() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let dear = r#"[{"id": "a", "input": {"message": "x"}, "expect": {"maxCost": 0.5}},
        {"id": "b", "input": {"message": "x"}, "expect": {"maxCost": 50}}]"#;
    place.write("faq.golden.json", dear);
    // One token in and two out, a dollar each.
    place.write("forge.config.json", r#"{"prices": {"*": {"input": 1000000, "output": 1000000}}}"#);
    let ended = place.run(&["run", "faq.golden.json", "-n", &agent, "-o", "r.json"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("maxCost: the case cost $3 (estimated), more than $0.5"), "{}", ended.stdout);
    assert!(ended.stdout.contains("ms total | $6.0000"), "{}", ended.stdout);
    let result = place.json("r.json");
    assert_eq!(result["summary"]["estimatedCostUsd"], 6.0);
    assert_eq!(
        (&result["cases"][0]["usage"]["costUsd"], &result["cases"][0]["usage"]["costEstimated"]),
        (&3.0.into(), &true.into())
    );
}

/// What is special about Agent Test Framework V2 on the command line.
#[test]
fn framework_flags() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    place.write(
        "t.jsonl",
        r#"// comments are fine
{"id": "bad", "name": "first", "input": "x", "assertions": [{"type": "contains", "value": "bye"}]}
{"id": "good", "input": "x", "assertions": [{"type": "contains", "value": "hello"}]}
{"id": "off", "input": "x", "skip": true}
{"id": "late", "input": "slow", "timeout": "200ms"}
"#,
    );
    let ended = place.run(&[
        "run", "-i", "t.jsonl", "-n", &agent, "-o", "r.jsonl", "-o", "r.json", "-o", "r.xml", "-o", "r.md", "-o",
        "r.html",
    ]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    for (file, text) in [
        ("r.md", "## ❌ failed: 1 of 4 cases passed, 2 failed, 1 skipped"),
        ("r.md", "\n`t`, tests\n"),
        ("r.html", "</html>\n"),
    ] {
        let report = std::fs::read_to_string(place.path().join(file)).expect("a report");
        assert!(report.contains(text), "{text}: {report}");
    }
    for text in [
        "ℹ Input: t.jsonl (4 test cases)",
        "✗ [bad] first (0.0s)\n  Messages: 1, Assertions: 0/1 passed\n  → contains: expected \"bye\"",
        "○ [off] (skipped)",
        "→ timeout after 200ms",
        "  Passed:  1\n  Failed:  2\n  Skipped: 1\n",
    ] {
        assert!(ended.stdout.contains(text), "{text}: {}", ended.stdout);
    }
    let lines = std::fs::read_to_string(place.path().join("r.jsonl")).expect("lines");
    let statuses: Vec<String> = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["status"].to_string())
        .collect();
    assert_eq!(statuses, ["\"failed\"", "\"passed\"", "\"skipped\"", "\"failed\""]);
    assert_eq!(place.json("r.json")["summary"]["skipped"], 1);

    let ended = place.run(&["run", "-i", "t.jsonl", "-n", &agent, "--fail-fast"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("  Passed:  0\n  Failed:  1\n  Skipped: 3\n"), "{}", ended.stdout);

    place.write("off.jsonl", r#"{"id": "a", "input": "x", "skip": true}"#);
    let ended = place.run(&["run", "off.jsonl", "-n", &agent]);
    assert_eq!(ended.code, Some(4), "nothing was checked: {}{}", ended.stdout, ended.stderr);

    let ended = place.run(&["run", "-i", "hello?", "-n", &agent, "-o", "m.jsonl"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(std::fs::read_to_string(place.path().join("m.jsonl")).expect("a line").contains("hello there"));

    let ended = place.run(&["run", "t.jsonl", "-n", &agent, "--run", "o", "--dry-run"]);
    assert_eq!((ended.code, ended.stdout.lines().count()), (Some(0), 2), "{}{}", ended.stdout, ended.stderr);

    let ended = place.run(&["run", "-i", "./missing.jsonl", "-n", &agent]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("there is no file or folder"), "{}", ended.stderr);
}
