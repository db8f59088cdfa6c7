//! A file of cases that is not held in memory: its cases are read again when they are run.

use std::fmt::Write as _;

use crate::processes::Place;
use crate::support::fake::Script;

#[test]
fn cases_of_a_large_file_are_read_again() {
    let place = Place::new();
    let padding = "x".repeat(20_000);
    let mut suite = String::from("\u{feff}// six hundred cases of 20 kB\r\n\r\n");
    for number in 0..600 {
        // Every other one over several lines, with a comment inside.
        let (open, close) = if number % 2 == 0 { ("", "") } else { ("\r\n// ü\r\n", "\r\n") };
        let _ = write!(
            suite,
            "{{{open}\"id\": \"c{number}\", \"name\": \"{padding}\", {open}\"input\": \"{number} ü\",{close}\
             \"assertions\": [{{\"type\": \"contains\", \"value\": \"<{number}>\"}}, {{\"type\": \"snapshot\"}}]}}\r\n"
        );
    }
    assert!(suite.len() > 9 << 20);
    place.write("t.jsonl", &suite);
    place.write("fixtures/f.txt", "small");
    let agent = Script::new(|asked| {
        let number = asked.text.trim_end_matches(" ü");
        Ok(format!("<{number}> {}", if number == "301" { "other" } else { "ok" }))
    });
    let agent = agent.start();
    let answers: Vec<String> = (0..600).map(|number| format!("\"c{number}\": \"<{number}> ok\"")).collect();
    place.write("t.snapshots.json", &format!("{{\"answers\": {{{}}}}}", answers.join(",")));

    let ended = place.run(&["check", "t.jsonl"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("600 cases"), "{}", ended.stdout);
    let ended = place.run(&["run", "t.jsonl", "-n", &agent.url, "--parallel", "8", "-q", "-o", "r.jsonl"]);
    assert_eq!(ended.code, Some(1), "{}{}", &ended.stdout[..2000.min(ended.stdout.len())], ended.stderr);
    let lines = std::fs::read_to_string(place.path().join("r.jsonl")).expect("lines");
    let bad: Vec<&str> = lines.lines().filter(|line| !line.contains("\"status\":\"passed\"")).collect();
    assert_eq!(lines.lines().count(), 600);
    assert!(bad.len() == 1 && bad[0].contains("\"id\":\"c301\"") && bad[0].contains("+ <301> other"), "{bad:?}");

    let ended = place.run(&["run", "t.jsonl", "-n", &agent.url, "--run", "^c59[89]$", "--dry-run"]);
    assert_eq!((ended.code, ended.stdout.lines().count()), (Some(0), 2), "{}", ended.stderr);

    // Of two files of one name, here a large suite and what a case of another one sends, neither takes the place of
    // the other.
    let elsewhere = Place::new();
    let bad = "{\"id\": \"real\", \"input\": \"7 ü\", \"assertions\": [{\"type\": \"contains\", \"value\": \"no\"}]}\n";
    elsewhere.write("x/cases.jsonl", &bad.replace("}\n", &format!(", \"name\": \"{}\"}}\n", "x".repeat(9 << 20))));
    elsewhere.write("y/cases.jsonl", "{\"id\": \"real\", \"input\": \"7 ü\"}\n");
    elsewhere.write("y/t.jsonl", r#"{"id": "s", "messages": [{"role": "user", "content": [{"type": "text", "text": "1 ü"}, {"type": "file", "source": "file://cases.jsonl"}]}]}"#);
    let paths = ["x/cases.jsonl", "y/t.jsonl"].map(|path| elsewhere.path().join(path).display().to_string());
    let ended = place.run(&["run", &paths[0], &paths[1], "-n", &agent.url]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("✗ [real]") && ended.stdout.contains("✓ [s]"), "{}", ended.stdout);

    // What is wrong is told with its line, however far behind.
    place.write("t.jsonl", &(suite + "{\"id\": \"c0\", \"input\": \"x\"}\n{\"id\": \"last\"}\n"));
    let ended = place.run(&["run", "t.jsonl", "-n", &agent.url]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    for text in
        ["t.jsonl, line 2103, case \"c0\", id: the id is already used on line 3", "t.jsonl, line 2104, case \"last\""]
    {
        assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
    }
}

/// A case of which the daemon itself would not read what it is made of is the suite's fault, not that of the agent
/// that is asked to.
#[test]
fn a_case_of_too_many_messages_is_not_sent() {
    let place = Place::new();
    let agent = Script::new(|_| Ok("fine".to_owned())).start();
    let case = |id: &str, messages: usize| {
        let messages = vec![r#"{"role": "user", "content": "x"}"#; messages].join(", ");
        format!(
            "{{\"id\": \"{id}\", \"input\": [{messages}], \"assertions\": [{{\"type\": \"contains\", \"value\": \"fine\"}}]}}\n"
        )
    };
    place.write("t.jsonl", &(case("many", 120_000) + &case("some", 1_000)));
    let ended = place.run(&["run", "-i", "t.jsonl", "-n", &agent.url, "-q", "-o", "r.jsonl"]);
    let lines = std::fs::read_to_string(place.path().join("r.jsonl")).expect("lines");
    let results: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&results[0]["id"], &results[0]["blame"]), (&"many".into(), &"suite".into()), "{}", ended.stderr);
    let error = results[0]["error"].as_str().unwrap_or_default();
    assert!(error.contains("it holds so many messages inside of each other"), "{error}");
    assert_eq!(results[1]["status"], "passed", "{}", results[1]);
    assert_eq!(agent.asked().len(), 1);
}
