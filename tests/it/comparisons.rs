//! What is told of a comparison that failed, and of time that ran out: what was there, in the console and in every
//! report.

use serde_json::Value;

use crate::processes::{Ended, Place};

/// Runs a suite against a scripted agent that answers every message with these events; what it printed, and the result.
fn run(place: &Place, events: &str, suite: &str, more: &[&str]) -> (Ended, Value) {
    let script = format!(r#"{{"replies": [{{"on": "*", "events": [{events}]}}]}}"#);
    let (_agent, url) = place.agent(&script);
    let args = ["run", suite, "-n", &url, "--output-dir", "out", "-o", "r.json", "-o", "r.jsonl", "-o", "r.html"];
    let ended = place.run(&[&args[..], &["-o", "r.md", "-o", "r.xml"], more].concat());
    assert!(matches!(ended.code, Some(1 | 3)), "{}{}", ended.stdout, ended.stderr);
    (ended, place.json("r.json"))
}

/// The error and the hint of each case.
fn told(result: &Value) -> Vec<(String, String)> {
    let text = |case: &Value, key: &str| case[key].as_str().unwrap_or_default().to_owned();
    result["cases"].as_array().expect("cases").iter().map(|case| (text(case, "error"), text(case, "hint"))).collect()
}

fn golden(place: &Place, expectations: &[&str]) {
    let case = |(id, expect): (usize, &&str)| {
        format!(r#"{{"id": "case-{id}", "input": {{"message": "hi"}}, "expect": {expect}}}"#)
    };
    let cases: Vec<String> = expectations.iter().enumerate().map(case).collect();
    place.write("s.golden.json", &format!("[{}]", cases.join(",\n")));
}

fn lines(place: &Place, assertions: &[&str]) {
    let case = |(id, assertion): (usize, &&str)| {
        format!(r#"{{"id": "case-{id}", "input": "hi", "assertions": [{assertion}]}}"#)
    };
    let cases: Vec<String> = assertions.iter().enumerate().map(case).collect();
    place.write("s.jsonl", &cases.join("\n"));
}

/// The error of the contract stays as its document words it; what was there is told beside it, wherever the error
/// is shown.
#[test]
fn a_failed_comparison_shows_what_was_there() {
    let place = Place::new();
    let events = r#"{"tool": {"name": "pay", "params": {"to": "Bob", "note": "X\u201112"}}},
        {"tool": {"name": "pay", "params": {"to": "Ann"}}}, {"text": "It costs 1\u202f250 kr for order-1235."}"#;
    let params = |name: &str, value: &str| {
        format!(
            r#"{{"toolParams": [{{"tool": "pay", "paramName": "{name}", "assertion": "equals", "value": "{value}"}}]}}"#
        )
    };
    golden(
        &place,
        &[
            r#"{"responseContains": ["1 250 kr"]}"#,
            r#"{"responseContains": ["order-1234"]}"#,
            r#"{"responseContainsAny": [["Berlin", "Bern"]]}"#,
            r#"{"responseNotContains": ["order"]}"#,
            r#"{"responseMatches": ["^No"]}"#,
            &params("to", "Ann"),
            &params("note", "X-12"),
            r#"{"toolsNotCalled": ["pay"]}"#,
        ],
    );
    let (ended, result) = run(&place, events, "s.golden.json", &[]);
    let calls = "it was called as pay({\"to\":\"Bob\",\"note\":\"X\u{2011}12\"}); pay({\"to\":\"Ann\"})";
    let whole = r#""It costs 1\u{202f}250 kr for order-1235.""#;
    let expected = [
        (
            "responseContains: expected '1 250 kr' in response but not found",
            format!(
                "it looks as if it were there, in {whole}, but with U+202F NARROW NO-BREAK SPACE in place of U+0020 SPACE"
            ),
        ),
        (
            "responseContains: expected 'order-1234' in response but not found",
            format!("the nearest in the response: {whole}"),
        ),
        (
            "responseContainsAny: expected one of 'Berlin', 'Bern' in response but found none",
            format!("the response is {whole}"),
        ),
        (r#"responseNotContains: found "order" in response"#, whole.to_owned()),
        ("responseMatches: /^No/ does not match the response", format!("the response is {whole}")),
        ("toolParams: pay.to should equal 'Ann', but is 'Bob'", calls.to_owned()),
        (
            "toolParams: pay.note should equal 'X-12', but is 'X\u{2011}12'",
            format!("it looks the same, but has U+2011 NON-BREAKING HYPHEN in place of U+002D HYPHEN-MINUS; {calls}"),
        ),
        (r#"toolsNotCalled: "pay" must not be called, but [pay, pay] were called"#, calls.to_owned()),
    ];
    let found = told(&result);
    for (expected, found) in expected.iter().zip(&found) {
        assert_eq!((expected.0, &expected.1), (&*found.0, &found.1));
    }
    assert_eq!(found.len(), expected.len());
    let line = format!("    → {}\n      {}\n", expected[5].0, expected[5].1);
    assert!(ended.stdout.contains(&line), "{}", ended.stdout);
    let named = "U+202F NARROW NO-BREAK SPACE in place of U+0020 SPACE";
    for report in ["r.json", "r.jsonl", "r.html", "r.md", "r.xml"] {
        let text = std::fs::read_to_string(place.path().join(report)).expect("a report");
        assert!(text.contains(named), "{report}: {text}");
    }
}

#[test]
fn a_failed_claim_shows_what_was_there() {
    let place = Place::new();
    let events = r#"{"tool": {"name": "x__pay", "params": {"to": "Bob", "n": 1}}}, {"tool": {"name": "pay", "params": {"to": "Ann"}}},
        {"text": "It’s done."}"#;
    lines(
        &place,
        &[
            r#"{"type": "contains", "value": "It's done"}"#,
            r#"{"type": "equals", "value": "It's done."}"#,
            r#"{"type": "not_contains", "value": "done"}"#,
            r#"{"type": "contains", "value": "done", "negate": true}"#,
            r#"{"type": "regex", "pattern": "^No"}"#,
            r#"{"type": "tool_called", "value": {"name": "pay", "arguments": {"to": "Bob", "n": 2}}}"#,
            r#"{"type": "tool_called", "value": {"name": "pay", "arguments": {"to": "Ann"}}, "negate": true}"#,
            r#"{"type": "contains", "value": "Paid", "message": "it does not say so"}"#,
            r#"{"type": "json_path", "path": "$.a", "value": 1}"#,
        ],
    );
    let (ended, result) = run(&place, events, "s.jsonl", &[]);
    let calls = r#"it was called as x__pay({"to":"Bob","n":1}); pay({"to":"Ann"})"#;
    let quote = "U+2019 RIGHT SINGLE QUOTATION MARK in place of U+0027 APOSTROPHE";
    let hints = [
        format!(r#"it looks as if it were there, in "It’s done.", but with {quote}"#),
        format!("it looks the same, but has {quote}"),
        r#""It’s done.""#.to_owned(),
        r#""It’s done.""#.to_owned(),
        r#"the response is "It’s done.""#.to_owned(),
        calls.to_owned(),
        calls.to_owned(),
        r#"expected "Paid" in the response, but it is not there; the response is "It’s done.""#.to_owned(),
        r#"the response is "It’s done.""#.to_owned(),
    ];
    let found = told(&result);
    for (hint, found) in hints.iter().zip(&found) {
        assert_eq!(*hint, found.1, "{}", found.0);
    }
    assert_eq!(found.len(), hints.len());
    let nearest = r#""pay" was called, but never with {"to":"Bob","n":2}; the nearest call had {"to":"Bob","n":1}"#;
    assert_eq!(found[5].0, format!("tool_called: {nearest}"));
    assert!(ended.stdout.contains(&format!("  → tool_called: {nearest}\n    {calls}\n")), "{}", ended.stdout);
    let text = std::fs::read_to_string(place.path().join("r.jsonl")).expect("lines");
    let first: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
    assert_eq!(first["assertions"][0]["hint"], hints[0], "{first}");
}

/// Time that ran out: after how long, and what was waited for. The error keeps the words of its document.
#[test]
fn a_timeout_says_what_it_waited_for() {
    let place = Place::new();
    let timed = |events: &str, suite: &str| {
        let (ended, result) = run(&place, events, suite, &["--timeout", "700ms"]);
        let (error, hint) = told(&result).remove(0);
        assert!(ended.stdout.contains(&hint), "{}", ended.stdout);
        for report in ["r.jsonl", "r.html", "r.md", "r.xml"] {
            let text = std::fs::read_to_string(place.path().join(report)).expect("a report");
            let shown = text.contains(hint.split('"').next().expect("a beginning").trim_end());
            assert!(shown, "{report}: {hint}\n{text}");
        }
        let after = hint.split_once(": ").expect("a time").0;
        // It begins with the call, which is a moment later than the case.
        let millis = after.trim_start_matches("after ").split(' ').next().expect("a number");
        assert!(after.contains(" ms") && millis.parse::<u32>().is_ok_and(|millis| millis > 400), "{hint}");
        (error, hint.split_once(": ").expect("a time").1.to_owned(), after.to_owned())
    };
    golden(&place, &[r#"{"responseNonEmpty": true}"#]);
    let tool = r#"{"tool": {"name": "look", "params": {}}}"#;
    let (error, waited, _) = timed(r#"{"hang": true}"#, "s.golden.json");
    assert_eq!((&*error, &*waited), ("timeout", "nothing had come from the agent"));
    let (_, waited, _) = timed(&format!(r#"{tool}, {{"hang": true}}"#), "s.golden.json");
    assert_eq!(waited, r#"nothing had come from the agent since its call of "look" ended"#);
    let (_, waited, _) = timed(&format!(r#"{tool}, {{"text": "It is"}}, {{"hang": true}}"#), "s.golden.json");
    assert_eq!(waited, r#"the answer had begun and did not end: "It is""#);
    // The stub answers too late.
    place.write(
        "s.golden.json",
        r#"[{"id": "a", "input": {"message": "hi"}, "stubs": {"look": {"$delayMs": 60000, "$value": 1}}, "expect": {"responseNonEmpty": true}}]"#,
    );
    let (_, waited, _) = timed(tool, "s.golden.json");
    assert_eq!(waited, r#"the call of "look" had not ended"#);

    place.write("user.json", r#"{"d": [{"input": "one"}, {"input": "two"}]}"#);
    place.write(
        "d.jsonl",
        r#"{"id": "d", "input": "one", "simulator": {"use": "user"}, "max_turns": 3, "timeout": "700ms",
            "checkpoints": [{"id": "never", "assertion": {"type": "contains", "value": "zzz"}}]}"#,
    );
    let (error, waited, after) = timed(r#"{"hang": true}"#, "d.jsonl");
    assert_eq!((&*error, &*waited), ("timeout after 700ms", "nothing had come from the agent"));
    assert!(after.ends_with(", in turn 1"), "{after}");
}
