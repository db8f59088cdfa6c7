//! Stored answers (`snapshot` assertions), and dialogues turned into cases, by the programs as real processes.

use crate::processes::{Place, Running, SIDECAR, command};
use crate::support::fake::Script;

const SUITE: &str = r#"
{"id": "text", "input": "text", "assertions": [{"type": "snapshot"}]}
{"id": "words", "input": "words", "assertions": [{"type": "snapshot", "compare": "whitespace"}]}
{"id": "json", "input": "json", "assertions": [{"type": "snapshot", "ignore": ["$.id", "$.items[*].at"]}]}
{"id": "bad", "input": "bad", "assertions": [{"type": "snapshot"}, {"type": "contains", "value": "good"}]}
{"id": "other", "input": "other", "assertions": [{"type": "contains", "value": "other"}]}
"#;

#[test]
fn answers_are_stored_and_compared() {
    let place = Place::new();
    place.write("evals/t.jsonl", SUITE);
    let agent = |day: u32, text: &'static str| {
        let script = Script::new(move |asked| {
            Ok(match asked.text.as_str() {
                "text" => text.to_owned(),
                "words" => format!("two{}words", " ".repeat(day as usize)),
                "json" => format!(r#"{{"total": 3, "id": {day}, "items": [{{"n": 1, "at": {day}}}]}}"#),
                other => other.to_owned(),
            })
        });
        script.start()
    };
    let first = agent(1, "one\ntwo\nthree");
    let run = |url: &str, more: &[&str]| place.run(&[&["run", "evals/t.jsonl", "-n", url], more].concat());
    let stored = || std::fs::read_to_string(place.path().join("evals/t.snapshots.json"));

    // Nothing is stored: that is trouble, and not a pass.
    let ended = run(&first.url, &["--run", "text"]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("store one with --update-snapshots"), "{}", ended.stdout);
    assert!(stored().is_err());

    // What could never be compared is not stored, and a strict run may store.
    place.write(
        "json.jsonl",
        r#"{"id": "a", "input": "plain", "assertions": [{"type": "snapshot", "compare": "json"}]}"#,
    );
    let ended = place.run(&["run", "json.jsonl", "-n", &first.url, "--update-snapshots"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("there is no JSON in the response"), "{}", ended.stdout);
    place.write("strict.jsonl", r#"{"id": "a", "input": "text", "assertions": [{"type": "snapshot"}]}"#);
    let ended = place.run(&["run", "strict.jsonl", "-n", &first.url, "--update-snapshots", "--strict"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let ended = place.run(&["run", "strict.jsonl", "-n", &first.url, "--strict"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);

    // Storing compares nothing, and says so. What did not pass is not stored.
    let ended = run(&first.url, &["--update-snapshots"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("✓ [text]") && ended.stdout.contains("⚠ nothing checked"), "{}", ended.stdout);
    let told = "evals/t.snapshots.json: 3 answers new, 0 changed, 0 as before, 0 removed";
    assert!(ended.stderr.contains(told) && ended.stderr.contains("1 not stored"), "{}", ended.stderr);
    let text = stored().expect("the file");
    assert!(text.contains("    \"text\": \"one\\ntwo\\nthree\",\n"), "{text}");

    // The same answers but for what is not compared.
    let same = ["--run", "text|words|json"];
    let ended = run(&agent(2, "one\ntwo\nthree").url, &same);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(stored().expect("the file"), text, "a run that compares stores nothing");

    let changed = agent(3, "one\n2\u{1b}[31m\nthree");
    let ended = run(&changed.url, &["--run", "text", "-o", "r.jsonl"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    let shown = "→ snapshot: the response is not the stored one (-), but another (+):\n      one\n    - two\n    + 2\\u{1b}[31m\n      three\n";
    assert!(ended.stdout.contains(shown), "{}", ended.stdout);

    // Of some cases only theirs are stored, and those of cases that are gone go.
    place.write("evals/t.jsonl", &SUITE.replace("\"words\"", "\"verbs\""));
    let ended = run(&changed.url, &["--run", "text", "--update-snapshots"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("0 answers new, 1 changed, 1 as before, 1 removed"), "{}", ended.stderr);

    for (line, why) in [
        (r#"{"type": "snapshot", "compare": "fuzzy"}"#, "compare must be"),
        (r#"{"type": "snapshot", "compare": "exact", "ignore": ["$.a"]}"#, "ignore is about JSON"),
        (r#"{"type": "snapshot", "ignore": ["$..a"]}"#, "is no path"),
        (r#"{"type": "snapshot", "ignore": "$"}"#, "nothing would be compared"),
    ] {
        place.write("bad.jsonl", &format!(r#"{{"id": "a", "input": "?", "assertions": [{line}]}}"#));
        let ended = place.run(&["check", "bad.jsonl"]);
        assert_eq!(ended.code, Some(2), "{line}: {}{}", ended.stdout, ended.stderr);
        assert!(ended.stderr.contains(why), "{line}: {}", ended.stderr);
    }
    place.write("evals/t.snapshots.json", "{\"answers\": [");
    let ended = run(&changed.url, &[]);
    assert_eq!(ended.code, Some(2), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("t.snapshots.json, line 1"), "{}", ended.stderr);
}

#[test]
fn a_dialogue_becomes_cases() {
    let place = Place::new();
    let suite = r#"{"id": "talk", "name": "A talk", "options": {"mode": "fast"},
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
        "simulator": {"use": "user"},
        "assertions": [{"type": "not_contains", "value": "secret"}, {"type": "tool_called", "name": "rm", "negate": true},
            {"type": "tool_called", "name": "mv", "times": {"max": 2}}, {"type": "tool_called", "name": "mv", "times": 0},
            {"type": "regex", "pattern": "^sub"}, {"type": "json_path", "path": "$.x", "negate": true}],
        "checkpoints": [
            {"id": "greets", "assertion": {"type": "contains", "value": "welcome"}},
            {"id": "asks", "assertion": {"type": "contains", "value": "type"}},
            {"id": "done", "after": ["asks"], "assertion": [{"type": "contains", "value": "submitted"},
                {"type": "contains", "value": "EXP", "negate": true}]}]}
        {"id": "plain", "input": "Hello", "assertions": [{"type": "contains", "value": "welcome"}]}"#;
    place.write("talk.jsonl", suite);
    place.write(
        "agent.json",
        r#"{"replies": [{"on": "Hello", "events": [{"text": "welcome: which type?"}]},
            {"on": "Travel", "events": [{"text": "and how much?"}]}, {"on": "$5", "events": [{"text": "submitted"}]}]}"#,
    );
    place.write("user.json", r#"{"talk": [{"input": "not asked"}, {"input": "Travel"}, {"input": "$5"}]}"#);
    let mut sidecar = command(SIDECAR, place.path());
    sidecar.args(["script", "agent.json", "--simulator", "user.json", "--listen", "127.0.0.1:0"]);
    let mut agent = Running::start(sidecar);
    let agent_url = format!("grpc://{}", agent.address());
    let (_daemon, url) = place.daemon();
    let user = format!("user={agent_url}");
    let ended = place.run(&["run", "talk.jsonl", "-n", &agent_url, "--agent", &user, "--daemon", &url, "-o", "r.json"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let run_id = place.json("r.json")["runId"].as_str().expect("an id").to_owned();

    let ended = place.run(&["history", &run_id, "talk", "--daemon", &url]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let lines: Vec<serde_json::Value> =
        ended.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 3, "{}", ended.stdout);
    let last = serde_json::json!({
        "id": "talk-turn3",
        "name": "A talk - turn 3",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "welcome: which type?"},
            {"role": "user", "content": "Travel"},
            {"role": "assistant", "content": "and how much?"},
            {"role": "user", "content": "$5"},
        ],
        "assertions": [
            {"type": "not_contains", "value": "secret"},
            {"type": "tool_called", "name": "rm", "negate": true},
            {"type": "tool_called", "name": "mv", "times": 0},
            {"type": "json_path", "path": "$.x", "negate": true},
            {"type": "contains", "value": "submitted"},
            {"type": "contains", "value": "EXP", "negate": true},
            {"type": "regex", "pattern": "^sub"},
        ],
        "options": {"mode": "fast"},
    });
    assert_eq!(lines[2], last);
    assert_eq!(lines[0]["assertions"].as_array().map(Vec::len), Some(6));
    assert_eq!(lines[1]["assertions"].as_array().map(Vec::len), Some(4));

    let ended = place.run(&["history", &run_id, "talk", "-o", "turns.jsonl", "--daemon", &url]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{}", ended.stderr);
    let ended = place.run(&["run", "turns.jsonl", "-n", &agent_url]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    for (args, code, why) in [
        (["history", &run_id, "talk", "-o", "turns.jsonl"], 3, "File exists"),
        (["history", &run_id, "plain", "--repeat", "1"], 2, "\"plain\" is no dialogue"),
        (["history", &run_id, "nobody", "--repeat", "1"], 2, "the run has no verdict on a case \"nobody\""),
        (["history", "ff", "talk", "--repeat", "1"], 2, "there is no run \"ff\""),
    ] {
        let ended = place.run(&[&args[..], &["--daemon", &url]].concat());
        assert_eq!(ended.code, Some(code), "{why}: {}{}", ended.stdout, ended.stderr);
        assert!(ended.stderr.contains(why), "{why}: {}", ended.stderr);
    }
}

/// Beside checkpoints a stored answer is the last one, and a script is given everything.
#[test]
fn a_dialogue_as_a_whole_is_stored_and_given_to_scripts() {
    let place = Place::new();
    place.write(
        "d.jsonl",
        r#"{"id": "d", "simulator": {"use": "user"}, "max_turns": 3, "checkpoints": [{"id": "booked", "assertion": {"type": "contains", "value": "booked"}}],
            "assertions": [{"type": "snapshot"}, {"type": "script", "use": "scripts:whole"}]}"#,
    );
    place.write(
        "scripts/whole.ts",
        "export default (output: string, input: string, options: object, evidence: any) => {\n\
         \x20 const calls = evidence.tool_calls.map((call: any) => call.turn + ' ' + call.name).join(', ');\n\
         \x20 const said = evidence.messages.map((message: any) => message.role + ' ' + message.content).join(', ');\n\
         \x20 const seen = [calls, said, input, output].join('; ');\n\
         \x20 return { passed: seen === '1 find, 2 book; user first, assistant found, user second; second; booked', reason: seen };\n\
         };\n",
    );
    let replies = |last: &str| {
        format!(
            r#"{{"replies": [{{"on": "first", "events": [{{"tool": {{"name": "find"}}}}, {{"text": "found"}}]}},
                {{"on": "second", "events": [{{"tool": {{"name": "book"}}}}, {{"text": "{last}"}}]}}]}}"#
        )
    };
    place.write("user.json", r#"{"d": [{"input": "first"}, {"input": "second"}]}"#);
    let start = |last: &str| {
        place.write("agent.json", &replies(last));
        let mut sidecar = command(SIDECAR, place.path());
        sidecar.args(["script", "agent.json", "--simulator", "user.json", "--listen", "127.0.0.1:0"]);
        let mut agent = Running::start(sidecar);
        let url = format!("grpc://{}", agent.address());
        (agent, url)
    };
    let run = |url: &str, more: &[&str]| {
        let user = format!("user={url}");
        place.run(&[&["run", "d.jsonl", "-n", url, "--agent", &user], more].concat())
    };
    let (_agent, url) = start("booked");
    let ended = run(&url, &[]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("Assertions: 1/2 passed\n  → snapshot: no answer is stored"), "{}", ended.stdout);
    let ended = run(&url, &["--update-snapshots"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let stored = std::fs::read_to_string(place.path().join("d.snapshots.json")).unwrap();
    assert!(stored.contains("\"d\": \"booked\""), "{stored}");
    let ended = run(&url, &[]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let (_agent, url) = start("all booked");
    let ended = run(&url, &[]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    let shown =
        "  → snapshot: the response is not the stored one (-), but another (+):\n    - booked\n    + all booked";
    assert!(ended.stdout.contains(shown), "{}", ended.stdout);
}
