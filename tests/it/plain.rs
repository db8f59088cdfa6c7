//! Judges and users that implement no service of that name: they are asked as plain agents, and what they mean is
//! read from their answers.

use crate::processes::Place;
use crate::support::fake::{Fake, Script};

/// Answers with what it was asked, so that a case says what its judge, or its user, replies.
fn echo() -> Fake {
    Script::new(|asked| Ok(asked.text.clone())).start()
}

/// A name, a reply, and the outcome, cause and beginning of the error that come of it.
type Row = (&'static str, &'static str, [&'static str; 3]);

const PASSED: [&str; 3] = ["passed", "", ""];

const VERDICTS: &[Row] = &[
    ("whole", r#"{"passed": true, "reason": "fine"}"#, PASSED),
    ("fenced", "Well.\n```json\n{\"passed\": true}\n```", PASSED),
    ("one-line", "Well, ```json {\"pass\": true, \"message\": \"in ``` it\"} ```", PASSED),
    ("no", r#"{"passed": false, "reason": "too short"}"#, ["failed", "assertion", "agent: too short"]),
    ("agree", "```json\n{\"passed\": true}\n```\nAgain:\n```json\n{\"passed\": true, \"reason\": \"so\"}\n```", PASSED),
    (
        "example-first",
        "```json\n{\"passed\": true, \"reason\": \"...\"}\n```\nMine:\n```json\n{\"passed\": false}\n```",
        [
            "errored",
            "validator_error",
            "agent: the validator \"judge\" failed: its answer holds verdicts that disagree: \"```json",
        ],
    ),
    (
        "example-in-words",
        "I was to answer like {\"passed\": true}.\n```json\n{\"passed\": false, \"reason\": \"rude\"}\n```",
        ["failed", "assertion", "agent: rude"],
    ),
    (
        "example-that-is-none",
        "```json\n{\"passed\": true/false}\n```\n```json\n{\"passed\": false, \"reason\": \"rude\"}\n```",
        ["failed", "assertion", "agent: rude"],
    ),
    (
        "other-language",
        "```text\n{\"passed\": true}\n```\n```json\n{\"passed\": false, \"reason\": \"rude\"}\n```",
        ["failed", "assertion", "agent: rude"],
    ),
    (
        "other-keys",
        "```json\n{\"thinking\": true}\n```\n```json\n{\"passed\": false, \"reason\": \"rude\"}\n```",
        ["failed", "assertion", "agent: rude"],
    ),
    (
        "words",
        "It is fine, I think: {\"passed\": true}",
        [
            "errored",
            "validator_error",
            "agent: the validator \"judge\" failed: its answer holds no verdict: \"It is fine, I think",
        ],
    ),
    (
        "text",
        r#"{"passed": "false"}"#,
        [
            "errored",
            "validator_error",
            "agent: the validator \"judge\" failed: its `passed` must be true or false, not a text: \"{",
        ],
    ),
    (
        "number",
        r#"{"passed": 1}"#,
        [
            "errored",
            "validator_error",
            "agent: the validator \"judge\" failed: its `passed` must be true or false, not a number: ",
        ],
    ),
    (
        "null",
        r#"{"passed": null, "pass": true}"#,
        [
            "errored",
            "validator_error",
            "agent: the validator \"judge\" failed: its `passed` must be true or false, not null: ",
        ],
    ),
    (
        "text-behind-a-verdict",
        "```json\n{\"passed\": true}\n```\n```json\n{\"passed\": \"no\"}\n```",
        [
            "errored",
            "validator_error",
            "agent: the validator \"judge\" failed: its `passed` must be true or false, not a text: ",
        ],
    ),
    (
        "two-names",
        r#"{"passed": true, "pass": false}"#,
        [
            "errored",
            "validator_error",
            "agent: the validator \"judge\" failed: its answer holds verdicts that disagree: ",
        ],
    ),
    (
        "key-twice",
        r#"{"passed": false, "passed": true}"#,
        ["errored", "validator_error", "agent: the validator \"judge\" failed: its answer holds no verdict: "],
    ),
    (
        "two-objects",
        "{\"passed\": true}\n{\"passed\": false}",
        ["errored", "validator_error", "agent: the validator \"judge\" failed: its answer holds no verdict: "],
    ),
    (
        "list",
        r#"[{"passed": true}]"#,
        ["errored", "validator_error", "agent: the validator \"judge\" failed: its answer holds no verdict: "],
    ),
    (
        "inside",
        r#"{"result": {"passed": true}}"#,
        ["errored", "validator_error", "agent: the validator \"judge\" failed: its answer holds no verdict: "],
    ),
];

/// `on`: what the user says then reaches the checkpoint.
const INPUTS: &[Row] = &[
    ("whole", r#"{"input": "on", "goal_achieved": false, "reasoning": "x"}"#, PASSED),
    ("bare", "```json {\"input\": \"on\"} ```", PASSED),
    ("agree", "```json\n{\"input\": \"on\"}\n```\n```json\n{\"input\": \"on\", \"goal_achieved\": false}\n```", PASSED),
    ("done", r#"{"input": null, "goal_achieved": true}"#, ["errored", "simulator_error", "missing checkpoints: end"]),
    (
        "text",
        r#"{"input": "on", "goal_achieved": "false"}"#,
        ["errored", "simulator_error", "simulator error: its `goal_achieved` must be true or false, not a text: \"{"],
    ),
    (
        "null",
        r#"{"input": "on", "goal_achieved": null}"#,
        ["errored", "simulator_error", "simulator error: its `goal_achieved` must be true or false, not null: "],
    ),
    (
        "number",
        r#"{"input": "on", "goal_achieved": 0}"#,
        ["errored", "simulator_error", "simulator error: its `goal_achieved` must be true or false, not a number: "],
    ),
    (
        "input-is-no-text",
        r#"{"input": {"text": "on"}}"#,
        ["errored", "simulator_error", "simulator error: its `input` must be a text, not an object: "],
    ),
    (
        "example-first",
        "```json\n{\"input\": \"your response\"}\n```\n```json\n{\"input\": \"on\"}\n```",
        ["errored", "simulator_error", "simulator error: its answer holds inputs that disagree: \"```json"],
    ),
    (
        "two-ends",
        "```json\n{\"input\": \"on\", \"goal_achieved\": true}\n```\n```json\n{\"input\": \"on\"}\n```",
        ["errored", "simulator_error", "simulator error: its answer holds inputs that disagree: "],
    ),
    (
        "words",
        "I would say: on.",
        [
            "errored",
            "simulator_error",
            "simulator error: its answer holds no object with `input` or `goal_achieved`: \"I would say",
        ],
    ),
    ("nothing", "{}", ["errored", "simulator_error", "simulator error: its answer holds no object with `input`"]),
    ("silent", r#"{"goal_achieved": false}"#, ["errored", "simulator_error", "simulator error: it said nothing"]),
];

/// Runs the cases of a table against a party that replies as its rows say.
fn check(rows: &'static [Row], party: &str, case: impl Fn(&str) -> String) {
    let place = Place::new();
    place.write("t.jsonl", &rows.iter().map(|(name, ..)| case(name) + "\n").collect::<String>());
    let plain = Script::new(move |asked| {
        let row = rows.iter().find(|(name, ..)| asked.text.contains(&format!("<{name}>")));
        Ok(row.expect("a row").1.to_owned())
    });
    let (agent, plain) = (echo(), plain.start());
    let party = format!("{party}={}", plain.url);
    let ended = place.run(&["run", "t.jsonl", "-n", &agent.url, "--agent", &party, "-o", "r.json"]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    let json = place.json("r.json");
    for ((name, reply, [outcome, cause, error]), came) in rows.iter().zip(json["cases"].as_array().expect("cases")) {
        assert_eq!(came["id"], *name);
        let said = |key: &str| came[key].as_str().unwrap_or_default();
        assert_eq!((said("outcome"), said("cause")), (*outcome, *cause), "{name}: {reply}: {came}");
        assert!(said("error").starts_with(error), "{name}: {}", said("error"));
    }
}

#[test]
fn judges_that_are_plain_agents() {
    check(VERDICTS, "judge", |name| {
        format!(
            r#"{{"id": "{name}", "input": "<{name}>", "assertions": [{{"type": "agent", "use": "agents:judge"}}]}}"#
        )
    });
}

#[test]
fn users_that_are_plain_agents() {
    check(INPUTS, "user", |name| {
        let case = r#"{"id": "NAME", "simulator": {"use": "user", "options": {"metadata": {"persona": "<NAME>"}}},
            "checkpoints": [{"id": "end", "assertion": {"type": "contains", "value": "on"}}], "max_turns": 1}"#;
        case.replace('\n', " ").replace("NAME", name)
    });
}
