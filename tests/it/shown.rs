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
    for shown in ["mail</bdi></b>  <span class=\"dim\">turn 2</span>", "<i>why</i>", "go on"] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
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
    let expected = r#"  [d] turn 1 user:  first
  [d] turn 1 why:   to begin
  [d] turn 1 → find {"q": 1}
  [d] turn 1 ← find ok
  [d] turn 1 agent: found\nit
  [d] turn 2 user:  second
  [d] turn 2 why:   go on
  [d] turn 2 → book
  [d] turn 2 ← book failed: full
  [d] turn 2 → mail
  [d] turn 2 ← mail ok
  [d] turn 2 agent: booked
  [d] turn 2 checkpoint booked reached
  [s] system: Be brief.
  [s] user:  first
  [s] → find {"q": 1}
  [s] ← find ok
  [s] agent: found\nit
  [g] user:  second
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
    // Whoever asserts something wants to know what came of that.
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

/// The texts of a document, one after the other.
fn roxmltree_text(xml: &str) -> String {
    let document = roxmltree::Document::parse(xml).expect("XML");
    document.descendants().filter_map(|node| node.text().filter(|_| node.is_element())).collect()
}
