//! What people see of cases: who said and did what in which turn, in every report and on the console.

use crate::processes::{Ended, Place, Running, SIDECAR, command};

const AGENT: &str = r#"{"replies": [
    {"on": "first", "events": [{"tool": {"name": "find", "params": {"q": 1}}}, {"text": "found\nit"}]},
    {"on": "second", "events": [{"tool": {"name": "book", "success": false, "error": "full"}}, {"tool": {"name": "mail"}}, {"text": "booked"}]}]}"#;
const USER: &str = r#"{"d": [{"input": "first", "reasoning": "to begin"}, {"input": "second", "reasoning": "go on"}]}"#;
const DIALOGUE: &str = r#"{"id": "d", "simulator": {"use": "u"}, "max_turns": 2, "checkpoints": [
    {"id": "never", "assertion": {"type": "contains", "value": "goodbye"}}, {"id": "booked", "assertion": {"type": "tool_called", "name": "book"}}]}
{"id": "s", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "first"}], "assertions": [{"type": "contains", "value": "found"}]}
"#;
const GOLDEN: &str = r#"[{"id": "g", "input": {"message": "second"}, "expect": {"toolsCalled": ["book"]}}]"#;

fn place() -> (Place, Running, String) {
    let place = Place::new();
    for (name, text) in [("agent.json", AGENT), ("user.json", USER), ("d.jsonl", DIALOGUE), ("g.golden.json", GOLDEN)] {
        place.write(name, text);
    }
    let mut sidecar = command(SIDECAR, place.path());
    sidecar.args(["script", "agent.json", "--simulator", "user.json", "--listen", "127.0.0.1:0"]);
    let mut agent = Running::start(sidecar);
    let url = format!("grpc://{}", agent.address());
    (place, agent, url)
}

fn run(place: &Place, url: &str, args: &[&str]) -> Ended {
    let user = format!("u={url}");
    place.run(&[&["run", "-n", url, "--agent", &user], args].concat())
}

#[test]
fn calls_carry_their_turn_in_every_report() {
    let (place, _agent, url) = place();
    let reports = ["-o", "r.json", "-o", "r.jsonl", "-o", "r.html", "-o", "r.md", "-o", "r.xml"];
    let ended = run(&place, &url, &[&["d.jsonl"], &reports[..]].concat());
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    let read = |name: &str| std::fs::read_to_string(place.path().join(name)).unwrap();
    let expected = serde_json::json!([["find", 1], ["book", 2], ["mail", 2]]);
    let turns_of = |calls: &serde_json::Value| -> serde_json::Value {
        calls.as_array().unwrap().iter().map(|call| serde_json::json!([call["name"], call["turn"]])).collect()
    };
    let json = place.json("r.json");
    assert_eq!(turns_of(&json["cases"][0]["toolCalls"]), expected);
    assert_eq!(turns_of(&json["cases"][1]["toolCalls"]), serde_json::json!([["find", 1]]));
    let line: serde_json::Value = serde_json::from_str(read("r.jsonl").lines().next().unwrap()).unwrap();
    assert_eq!(turns_of(&line["tool_calls"]), expected);
    for turns in [&json["cases"][0]["turns"], &line["turns"]] {
        let why: Vec<_> = turns.as_array().unwrap().iter().map(|turn| &turn["reasoning"]).collect();
        assert_eq!(why, ["to begin", "go on"], "what the user thought stands beside what it said");
    }
    let told = "turn 2 user: second\nturn 2 why: go on\nturn 2 → book\nturn 2 ← failed: full\nturn 2 → mail\nturn 2 ← ok\n\
                turn 2 agent: booked\n";
    for report in ["r.md", "r.xml"] {
        assert!(read(report).contains(told), "{}", read(report));
    }
    let page = read("r.html");
    let place_of = |shown: &str| page.find(shown).unwrap_or_else(|| panic!("{shown}: {page}"));
    // What was called stands in its turn.
    let story = [
        "user · turn 1",
        "to begin",
        "find</bdi></b>",
        "found",
        "user · turn 2",
        "go on",
        "mail</bdi></b>",
        "booked</pre>",
    ];
    assert!(story.map(place_of).is_sorted(), "{page}");
}

/// A user who leaves without a word has no turn to say why in.
#[test]
fn why_a_user_left_is_said() {
    let (place, _agent, url) = place();
    let user = r#"{"d": [{"input": "first"}, {"goal_achieved": true, "reasoning": "it is found"}]}"#;
    place.write("other.json", user);
    let mut sidecar = command(SIDECAR, place.path());
    sidecar.args(["script", "agent.json", "--simulator", "other.json", "--listen", "127.0.0.1:0"]);
    let mut other = Running::start(sidecar);
    let user = format!("u=grpc://{}", other.address());
    let ended = place.run(&["run", "d.jsonl", "--run", "^d$", "-n", &url, "--agent", &user, "-o", "r.json"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    let case = place.json("r.json")["cases"][0].clone();
    assert_eq!(case["cause"], "missing_checkpoints");
    assert_eq!(case["warnings"], serde_json::json!(["the simulated user ended the dialogue: it is found"]));
}

#[test]
fn what_v_shows() {
    let (place, _agent, url) = place();
    let ended = run(&place, &url, &["d.jsonl", "g.golden.json", "-v"]);
    let shown: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with("  [")).collect();
    let expected = r#"  [d] turn 1 user: first
  [d] turn 1 why: to begin
  [d] turn 1 → find {"q": 1}
  [d] turn 1 ← find ok
  [d] turn 1 agent: found\nit
  [d] turn 2 user: second
  [d] turn 2 why: go on
  [d] turn 2 → book
  [d] turn 2 ← book failed: full
  [d] turn 2 → mail
  [d] turn 2 ← mail ok
  [d] turn 2 agent: booked
  [d] turn 2 checkpoint reached: booked
  [s] system: Be brief.
  [s] user: first
  [s] → find {"q": 1}
  [s] ← find ok
  [s] agent: found\nit
  [g] user: second
  [g] → book
  [g] ← book failed: full
  [g] → mail
  [g] ← mail ok
  [g] agent: booked"#;
    assert_eq!(shown.join("\n"), expected, "{}", ended.stderr);
}

#[test]
fn a_message_shows_its_answer() {
    let (place, _agent, url) = place();
    for more in [&[][..], &["--quiet"], &["-v"], &["--parallel", "2", "-i", "second"]] {
        let ended = run(&place, &url, &[&["-i", "first"], more].concat());
        assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
        assert!(ended.stdout.contains("Assertions: 0/0 passed\n    found\n    it\n"), "{}", ended.stdout);
    }
    // The author of an assertion wants to know what came of it.
    let ended = run(&place, &url, &["d.jsonl", "--run", "s"]);
    assert!(!ended.stdout.contains("found"), "{}", ended.stdout);
}

const SHOP: &str = r#"{"replies": [
    {"on": "My order is old.", "events": [{"tool": {"name": "look", "params": {"order": 17}, "result": {"state": "delivered\u001b[2J"}, "ms": 5}}, {"text": "Sure!\u001b[31m\n\u202eDone."}]},
    {"on": "*", "events": [{"text": "No."}]}]}"#;
const REFUND: &str = r#"[{"id": "late", "description": "Late refunds are refused", "input": {"message": "My order is old."}, "expect": {"responseContains": ["policy"]}},
    {"id": "fine", "description": "A plain no", "input": {"message": "Refund?"}, "expect": {"responseContains": ["No"]}}]"#;

/// What was asked, called and answered stands with a case wherever it is told of, and no terminal obeys it.
#[test]
fn what_happened_stands_with_the_case() {
    let place = Place::new();
    let (_agent, url) = place.agent(SHOP);
    place.write("refund.golden.json", REFUND);
    let reports = ["-o", "r.json", "-o", "r.jsonl", "-o", "r.html", "-o", "r.md", "-o", "r.xml"];
    let ended = place.run(&[&["run", "refund.golden.json", "-n", &url, "-q"], &reports[..]].concat());
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    let told = r#"      user: My order is old.
      → look {"order": 17}
      ← {"state": "delivered\u001b[2J"} (5 ms)
      agent: Sure!\u{1b}[31m
        \u{202e}Done.
"#;
    assert!(ended.stdout.contains(told), "{}", ended.stdout);
    assert!(!ended.stdout.contains("fine") && ended.stdout.contains("1/2 passed"), "{}", ended.stdout);
    let read = |name: &str| std::fs::read_to_string(place.path().join(name)).unwrap();
    let plain = "user: My order is old.\n→ look {\"order\": 17}\n← {\"state\": \"delivered\\u001b[2J\"} (5 ms)\n";
    assert!(read("r.md").contains(plain), "{}", read("r.md"));
    let xml = roxmltree_text(&read("r.xml"));
    assert!(xml.contains(plain) && xml.contains("user: Refund?\nagent: No.\n"), "{xml}");
    for name in ["r.json", "r.jsonl", "r.html", "r.md", "r.xml"] {
        assert!(!read(name).contains(['\u{1b}', '\u{202e}']), "{name}");
    }
    let asked = serde_json::json!([{"role": "user", "content": "My order is old."}]);
    assert_eq!(place.json("r.json")["cases"][0]["messages"], asked);
    let line: serde_json::Value = serde_json::from_str(read("r.jsonl").lines().next().unwrap()).unwrap();
    assert_eq!(line["messages"], asked);
    let page = read("r.html");
    assert!(page.contains("<h3>Question</h3>") && page.contains("<pre>Refund?</pre>"), "{page}");
}

/// A case in full, from what a daemon keeps: what was said, logged and called, and assertion by assertion.
#[test]
fn a_case_in_full() {
    let place = Place::new();
    let (_agent, url) = place.agent(SHOP);
    let (_daemon, daemon) = place.daemon();
    place.write("refund.golden.json", REFUND);
    place.write(
        "other.jsonl",
        "{\"id\": \"o\", \"input\": \"x\", \"assertions\": [{\"type\": \"contains\", \"value\": \"No\"}]}\n",
    );
    let forge = |args: &[&str]| place.run(&[args, &["--daemon", &daemon]].concat());
    let first = forge(&["run", "refund.golden.json", "-n", &url, "--label", "branch=a b", "-o", "r.json"]);
    assert_eq!(first.code, Some(1), "{}{}", first.stdout, first.stderr);
    let id = place.json("r.json")["runId"].as_str().expect("an id").to_owned();
    assert_eq!(forge(&["run", "other.jsonl", "-n", &url]).code, Some(0));

    let whole = forge(&["show", "last~1"]);
    let millis = regex::Regex::new(r"· \d+ ms ·").unwrap();
    let trace = regex::Regex::new(r"trace [0-9a-f]{32}").unwrap();
    let shown = trace.replace_all(&millis.replace_all(&whole.stdout, "· N ms ·"), "trace OF THE RUN").into_owned();
    let expected = r#"✗ late  Late refunds are refused
  refund.golden.json · failed · N ms · cause assertion · blame agent

  user: My order is old.
  → look {"order": 17}
  ← {"state": "delivered\u001b[2J"} (5 ms)
  agent: Sure!\u{1b}[31m
    \u{202e}Done.

  ✗ responseContains
    expected 'policy' in response but not found
    the response is "Sure!\u{1b}[31m\n\u{202e}Done."

  trace OF THE RUN
"#;
    assert_eq!(shown, expected, "{}", whole.stderr);
    for name in [&*id, &id[..id.len() - 1], "last:refund", "last:refund.golden.json", "branch=a b"] {
        assert_eq!(forge(&["show", name]).stdout, whole.stdout, "{name}");
    }
    let one = forge(&["show", "last:refund", "fine"]);
    assert!(
        one.stdout.starts_with("✓ fine  A plain no\n") && one.stdout.contains("  user: Refund?\n  agent: No.\n"),
        "{}",
        one.stdout
    );
    let json = forge(&["show", "last~1", "--json"]).stdout;
    let line: serde_json::Value = serde_json::from_str(&json).expect("one line of JSON");
    assert_eq!((&line["id"], &line["log"]), (&"late".into(), &serde_json::json!([])), "{json}");
    assert_eq!(line["messages"][0]["content"], "My order is old.");
    let none = forge(&["show", "last"]);
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""), "{}", none.stderr);
    assert!(
        none.stderr.contains("every case passed or was skipped") && none.stderr.contains("--all: o"),
        "{}",
        none.stderr
    );

    let newest = "the newest: ";
    for (args, says) in [
        (&["show", "last~2"][..], "there is no run \"last~2\": there are only 2 of that kind"),
        (&["show", "zzz"], newest),
        (&["watch", "zzz"], newest),
        (&["diff", "last", "zzz"], newest),
        (&["runs", "show", "branch=b"], newest),
        (&["runs", "rm", "last:none"], newest),
        (&["show", "last~x"], "\"last~x\" names no run"),
        (&["show", &id[..3]], "several runs begin with"),
        (&["show", "last", "nobody"], "has no case \"nobody\""),
        (
            &["show", "last", "o", "--suite", "refund"],
            "has no case \"o\" in a suite \"refund\"; its suites: other.jsonl",
        ),
        (&["show", "last:refund", "fin"], "has no case \"fin\""),
        (&["show", "last", "o", "--attempt", "2"], "has no attempt 2"),
        (&["run", "refund.golden.json", "-n", &url, "--failed", "zzz"], newest),
        (&["run", "refund.golden.json", "-n", &url, "--baseline", "zzz", "--output-dir", "none"], newest),
        (&["run", "refund.golden.json", "-n", &url, "--replay", "zzz"], newest),
        (&["regrade", "zzz", "refund.golden.json"], newest),
    ] {
        let ended = forge(args);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{args:?} {}", ended.stderr);
        let lines: Vec<&str> = ended.stderr.lines().filter(|line| !line.starts_with("⚠")).collect();
        assert!(
            lines.len() == 2 && lines[0].contains(says) && lines[1].starts_with("  hint: "),
            "{args:?} {}",
            ended.stderr
        );
    }
    // The same names for what runs are compared with, taken up and played back.
    let again = forge(&["run", "refund.golden.json", "-n", &url, "--failed", "last:refund"]);
    assert!(again.stdout.contains("0/1 passed"), "{}{}", again.stdout, again.stderr);
    let played = forge(&["run", "refund.golden.json", "-n", &url, "--replay", "branch=a b", "--baseline", &id[..13]]);
    assert!(
        played.stdout.contains("1/2 passed") && played.stdout.contains(&format!("baseline {id}")),
        "{}{}",
        played.stdout,
        played.stderr
    );
}

/// A daemon inside the process keeps no runs, but their results are there, and have the same names.
#[test]
fn results_have_the_names_of_their_runs() {
    let place = Place::new();
    let (_agent, url) = place.agent(SHOP);
    place.write("refund.golden.json", REFUND);
    assert_eq!(place.run(&["run", "refund.golden.json", "-n", &url]).code, Some(1));
    let file =
        std::fs::read_dir(place.path().join("evals/results")).expect("results").next().expect("one").expect("one");
    let name = file.file_name().into_string().expect("text");
    let id = name.split('.').nth(2).expect("an id");
    for name in ["last", "last:refund", &id[..20], id] {
        let ended = place.run(&["run", "refund.golden.json", "-n", &url, "--failed", name]);
        assert!(ended.stdout.contains("0/1 passed"), "{name} {}{}", ended.stdout, ended.stderr);
    }
    let ended =
        place.run(&["run", "refund.golden.json", "-n", &url, "--baseline", &id[..20], "--output-dir", "evals/results"]);
    assert!(ended.stdout.contains(&format!("baseline {id}: 0 regressed")), "{}{}", ended.stdout, ended.stderr);
    let ended = place.run(&["run", "refund.golden.json", "-n", &url, "--failed", "last~7"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("no result of that run in evals/results"), "{}", ended.stderr);
}

/// Every report, and a case in full, are made from a result file, too, with no daemon and no agent there.
#[test]
fn reports_from_result_files() {
    let place = Place::new();
    let (agent, url) = place.agent(SHOP);
    place.write("refund.golden.json", REFUND);
    place.write(
        "other.jsonl",
        "{\"id\": \"o\", \"input\": \"x\", \"assertions\": [{\"type\": \"contains\", \"value\": \"No\"}]}\n",
    );
    let outputs = ["-o", "r.json", "-o", "r.jsonl", "-o", "r.html", "-o", "r.md", "-o", "r.xml"];
    let ended = place.run(&[&["run", "refund.golden.json", "other.jsonl", "-n", &url], &outputs[..]].concat());
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    drop(agent);
    let read = |name: &str| std::fs::read_to_string(place.path().join(name)).unwrap();
    for names in [&["r.json"][..], &["last"]] {
        let again = ["-o", "a.json", "-o", "a.jsonl", "-o", "a.html", "-o", "a.md", "-o", "a.xml", "-o", "each/"];
        let ended = place.run(&[&["report"], names, &again[..]].concat());
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{names:?}");
        for name in ["r.json", "r.jsonl", "r.xml"] {
            // Tests that did not pass name the page that is written with them.
            let (then, now) = (read(name), read(&name.replace("r.", "a.")).replace("|a.html]]", "|r.html]]"));
            let (mut then, mut now): (Vec<_>, Vec<_>) = (then.lines().collect(), now.lines().collect());
            // The files of a run are put together in the order of their names.
            then.sort_unstable();
            now.sort_unstable();
            let steady = |line: &&str| line.trim_matches([' ', ',']).to_owned();
            assert_eq!(
                then.iter().map(steady).collect::<Vec<_>>(),
                now.iter().map(steady).collect::<Vec<_>>(),
                "{name}"
            );
        }
        assert!(read("a.md").contains("user: My order is old.\n→ look"), "{}", read("a.md"));
        assert!(read("a.html").contains("<pre>Refund?</pre>"));
        assert_eq!(std::fs::read_dir(place.path().join("each")).expect("a folder").count(), 2);
    }
    for name in ["r.json", "last", "last:refund"] {
        let shown = place.run(&["show", name]).stdout;
        let told = "\n  user: My order is old.\n  → look {\"order\": 17}\n";
        assert!(shown.starts_with("✗ late  Late refunds are refused\n") && shown.contains(told), "{name}: {shown}");
        assert!(shown.contains("\n  ✗ responseContains\n    expected 'policy' in response but not found\n"), "{shown}");
    }
    place.write("none.json", "{\"cases\": []}");
    place.write("not.json", "[1,");
    for (args, says) in [
        (&["report", "gone.json", "-o", "x.md"][..], "gone.json: No such file"),
        (&["report", "none.json", "-o", "x.md"], "none.json: it is no result as JSON: missing field `runId`"),
        (&["report", "not.json", "-o", "x.md"], "not.json: it is no result as JSON: "),
        (&["report", "r.jsonl", "-o", "x.md"], "r.jsonl: it is no result as JSON: "),
        (&["report", "r.json", "-o", "x.txt"], "-o x.txt: the ending says no known format"),
        (&["report", "last~5", "-o", "x.md"], "there is no result of a run \"last~5\" in evals/results; the newest: "),
        (&["show", "zzz"], "there is no result of a run \"zzz\" in evals/results; the newest: "),
        (&["show", "r.json", "late", "--repeat", "3"], "has no case \"late\" with a repetition 3"),
        (&["show", "r.json", "lat"], "has no case \"lat\"\n  hint: did you mean \"late\"?"),
    ] {
        let ended = place.run(args);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{args:?} {}", ended.stderr);
        let lines: Vec<&str> = ended.stderr.lines().collect();
        assert!(
            lines.len() == 2 && ended.stderr.contains(says) && lines[1].starts_with("  hint: "),
            "{args:?} {}",
            ended.stderr
        );
    }
    assert!(!place.path().join("x.md").exists());
}

/// The texts of a document, one after the other.
fn roxmltree_text(xml: &str) -> String {
    let document = roxmltree::Document::parse(xml).expect("XML");
    document.descendants().filter_map(|node| node.text().filter(|_| node.is_element())).collect()
}
