//! Agents that write cases, by a real server and the real client.

use forge::wire::agent::generate_response::Item;
use forge::wire::agent::{GenerateRequest, GenerateResponse, GenerateSummary, Json, json};
use tonic::Status;

use crate::processes::Place;
use crate::support::fake::{Script, Written};

/// More arguments, what the generator sends, the exit code, and what is said.
type Failing = (&'static [&'static str], fn() -> Written, i32, &'static str);

fn case(text: &str) -> GenerateResponse {
    let json = Json { form: Some(json::Form::Raw(text.as_bytes().to_vec())) };
    GenerateResponse { item: Some(Item::Case(json)) }
}

fn summary(produced: u32) -> GenerateResponse {
    GenerateResponse { item: Some(Item::Summary(GenerateSummary { produced, ..GenerateSummary::default() })) }
}

fn good(id: &str) -> String {
    format!(
        "{{\"id\": \"{id}\",\n \"input\": \"{id}?\", \"assertions\": [{{\"type\": \"contains\", \"value\": \"yes\"}}]}}"
    )
}

fn echo() -> Script {
    Script::new(|asked| Ok(format!("yes {}", asked.text)))
}

#[test]
fn generated_cases_are_run_and_kept() {
    let place = Place::new();
    place.write("t.jsonl", &good("from-file"));
    let agent = echo()
        .writing(|request: &GenerateRequest| -> Written {
            assert_eq!((request.count, request.focus.as_str()), (8, "edge cases"));
            assert_eq!(request.existing_case_ids, ["from-file"]);
            let options = request.options.as_ref().expect("options");
            for key in ["test_mode", "target_agent", "count", "focus", "depth"] {
                assert!(options.metadata.contains_key(key), "{key}: {options:?}");
            }
            for (key, json) in [("rate", "1.5"), ("deep", "true"), ("where", "\"S\u{e3}o Paulo & more\"")] {
                let told = options.metadata.get(key).and_then(|value| value.form.as_ref());
                assert_eq!(told, Some(&json::Form::Raw(json.as_bytes().to_vec())), "{key}: {options:?}");
            }
            let messages = vec![
                case(&good("one")),
                case("{\"id\": \"two\"}"),
                case("no JSON"),
                case(&good("one")),
                case("{\"id\": \"thief\", \"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\", \"source\": \"file://t.jsonl\"}]}]}"),
                case(&good("three")),
                case(r#"{"id": "golden", "input": "x", "assertions": [{"type": "snapshot"}]}"#),
                case("{\"id\": \"\u{9b}31m\", \"input\": \"x\"}"),
                summary(8),
            ];
            (messages, Ok(()))
        })
        .start();
    let source = "agents:writer?count=8&focus=edge%20cases&depth=2&rate=1.5&deep=true&where=S%C3%A3o+Paulo+%26+more";
    let writer = format!("writer={}", agent.url);
    let base = ["run", "-i", source, "-i", "t.jsonl", "-n", &agent.url, "--agent", &writer, "--output-dir", "out"];
    let ended = place.run(&base);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let input = format!("{source} (3 test cases)");
    for text in ["✓ [from-file]", "✓ [one]", "✓ [three]", &input] {
        assert!(ended.stdout.contains(text), "{text}: {}", ended.stdout);
    }
    for text in [
        "writer was asked for 8 cases and wrote 8; 5 cannot be used",
        "case 2 of writer: the case needs an input or messages",
        "case 3 of writer: not JSON",
        "case 4 of writer: the id \"one\" is already used",
        "case 5 of writer: it names a file",
        "case 7 of writer: it compares with a stored answer",
    ] {
        assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
    }
    let kept = std::fs::read_dir(place.path().join("out")).expect("results").map(|entry| entry.expect("a file").path());
    let kept = kept.into_iter().find(|path| path.to_string_lossy().ends_with(".cases.jsonl")).expect("kept cases");
    let again = place.run(&["run", &kept.to_string_lossy(), "-n", &agent.url]);
    assert_eq!(again.code, Some(0), "{}{}", again.stdout, again.stderr);

    // They are no part of the suites of a folder, and results take the place of no cases.
    let ended = place.run(&["run", ".", "-n", &agent.url]);
    assert!(ended.stdout.contains("t.jsonl (1 test case)") && !ended.stdout.contains("[one]"), "{}", ended.stdout);
    for wrong in [&["run", "t.jsonl", "-o", "t.jsonl"][..], &["run", "t.jsonl", "--dry-run", "-o", "x.jsonl"]] {
        let ended = place.run(&[wrong, &["-n", &agent.url]].concat());
        assert_eq!(ended.code, Some(2), "{wrong:?}: {}{}", ended.stdout, ended.stderr);
    }
    assert!(place.path().join("t.jsonl").metadata().expect("a file").len() > 10);

    let calls = agent.asked().len();
    let ended = place.run(&[&base[..], &["--dry-run", "-o", "kept.jsonl", "--run", "one|file|31m"]].concat());
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(agent.asked().len(), calls, "a dry run calls no agent under test");
    let lines: Vec<serde_json::Value> =
        ended.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(!ended.stdout.contains('\u{9b}'), "nothing that a terminal would obey");
    let ids: Vec<&str> = lines.iter().filter_map(|line| line["id"].as_str()).collect();
    assert_eq!(ids, ["from-file", "one", "\u{9b}31m"]);
    assert_eq!(lines[1]["assertions"][0]["type"], "contains", "whole, as a file would hold it");
    let again = place.run(&["run", "kept.jsonl", "-n", &agent.url]);
    assert_eq!(again.code, Some(0), "{}{}", again.stdout, again.stderr);
}

/// An agent without the service answers in JSON.
#[test]
fn a_plain_agent_writes_cases() {
    let place = Place::new();
    let agent = Script::new(|asked| {
        if asked.metadata.get("test_mode").is_none_or(|mode| mode != "\"generator\"") {
            return Ok("yes".to_owned());
        }
        let asked: serde_json::Value = serde_json::from_str(&asked.text).expect("JSON");
        assert_eq!((&asked["count"], &asked["focus"]), (&2.into(), &"x".into()));
        Ok(format!("Sure:\n```json\n[{}, {}]\n```\n", good("a"), good("b")))
    });
    let agent = agent.start();
    let source = format!("agents:{}?count=2&focus=x", agent.url);
    let ended = place.run(&["run", "-i", &source, "-n", &agent.url]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("✓ [a]") && ended.stdout.contains("✓ [b]"), "{}", ended.stdout);
}

#[test]
fn a_generator_that_fails_is_no_green_run() {
    let place = Place::new();
    let agent = |sent: fn() -> Written| echo().writing(move |_| sent()).start();
    let cases: [Failing; 8] = [
        (&[], || (vec![case(&"x".repeat(8 << 20)); 8], Ok(())), 3, "it sent more than 67108864 bytes"),
        (&[], || (vec![case(&good("a"))], Ok(())), 3, "its stream ended without a summary"),
        (&[], || (vec![case(&good("a"))], Err(Status::internal("no idea"))), 3, "no idea"),
        (&[], || (vec![case(&good("a")), summary(2)], Ok(())), 3, "it says that it sent 2 cases, and 1 came"),
        (&[], || (vec![summary(0)], Ok(())), 4, "wrote 0 cases, and none can be used"),
        (&[], || (vec![case("{}"), summary(1)], Ok(())), 4, "a case needs an id"),
        (&["-i", "agents:nobody"], || (vec![], Ok(())), 2, "there is no agent \"nobody\""),
        (&["-i", "agents:writer?count=0"], || (vec![], Ok(())), 2, "count must be from 1 to 10000, not 0"),
    ];
    for (more, sent, code, why) in cases {
        let agent = agent(sent);
        let writer = format!("writer={}", agent.url);
        let source: &[&str] = if more.is_empty() { &["-i", "agents:writer"] } else { more };
        let ended = place.run(&[&["run", "-n", &agent.url, "--agent", &writer], source].concat());
        assert_eq!(ended.code, Some(code), "{why}: {}{}", ended.stdout, ended.stderr);
        assert!(ended.stderr.contains(why), "{why}: {}", ended.stderr);
        assert!(agent.asked().is_empty(), "no case is run");
    }
    let plain = Script::new(|_| Ok("I cannot do that.".to_owned())).start();
    let source = format!("agents:{}", plain.url);
    let ended = place.run(&["run", "-i", &source, "-n", &plain.url]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("there are no cases in its answer: \"I cannot do that.\""), "{}", ended.stderr);
}
