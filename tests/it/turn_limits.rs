//! `maxTurns` with the programs: in a case with stubs, in a script test, and before an HTTP endpoint.

use serde_json::{Value, json};

use crate::processes::Place;
use crate::support::endpoint::{Endpoint, Reply};

/// Calls three tools one after the other, whatever it may.
const AGENT: &str = r#"{"replies": [{"on": "*", "events": [
    {"tool": {"name": "t", "params": {"n": 1}}}, {"tool": {"name": "t", "params": {"n": 2}}},
    {"tool": {"name": "t", "params": {"n": 3}}}, {"text": "yes"}]}]}"#;

#[test]
fn a_case_with_stubs() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let case = |id: &str, limit: &str| {
        format!(
            r#"{{"id": "{id}", "input": {{"message": "x"}}, "stubs": {{"t": 1}}{limit}, "expect": {{"responseContains": ["yes"]}}}}"#
        )
    };
    let cases = [case("two", r#", "maxTurns": 2"#), case("three", r#", "maxTurns": 3"#), case("usual", "")];
    place.write("s.golden.json", &format!("[{}]", cases.join(",")));
    let ended = place.run(&["run", "s.golden.json", "-n", &agent, "-o", "r.json"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("→ max turns (2) exceeded"), "{}", ended.stdout);
    let result = place.json("r.json");
    let two = &result["cases"][0];
    assert_eq!(
        [&two["outcome"], &two["cause"], &two["blame"]],
        [&json!("failed"), &json!("max_turns"), &json!("agent")],
        "{two}"
    );
    let called: Vec<&Value> =
        two["toolCalls"].as_array().expect("a list").iter().map(|call| &call["params"]["n"]).collect();
    assert_eq!(called, [&json!(1), &json!(2), &json!(3)], "what it did is kept");
    assert_eq!([&result["cases"][1]["passed"], &result["cases"][2]["passed"]], [true, true], "{result}");
}

#[test]
fn a_script_test() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    place.write(
        "scripts/my/turns_test.ts",
        r#"
        const ask = (ctx, options) => Process("agents.mine.Stream", ctx, "x", {stubs: {t: 1}, ...options}).content;
        export function TestUsual(t, ctx) { t.assert.Equal(ask(ctx, {}), "yes"); }
        export function TestTwo(t, ctx) { ask(ctx, {maxTurns: 2}); }
        export function TestOdd(t, ctx) { ask(ctx, {maxTurns: "two"}); }
        "#,
    );
    let mine = format!("mine={agent}");
    let ended = place.run(&["run", "-n", "mine", "--agent", &mine, "-i", "scripts.my.turns", "-o", "r.json"]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    let result = place.json("r.json");
    let said = |case: usize| [&result["cases"][case]["outcome"], &result["cases"][case]["cause"]];
    assert_eq!(said(0), [&json!("passed"), &Value::Null], "{result}");
    assert_eq!(said(1), [&json!("failed"), &json!("max_turns")], "{result}");
    assert!(ended.stdout.contains("max turns (2) exceeded"), "{}", ended.stdout);
    assert_eq!(said(2), [&json!("errored"), &json!("script_error")], "{result}");
}

#[test]
fn an_http_endpoint() {
    let place = Place::new();
    let endpoint = Endpoint::start(|_| Reply::Status(200, r#"{"response": "yes"}"#.to_owned()));
    place.write(
        "s.golden.json",
        r#"[{"id": "a", "input": {"message": "x"}, "maxTurns": 3, "expect": {"responseNonEmpty": true}}]"#,
    );
    let ended = place.run(&["run", "s.golden.json", "-n", &endpoint.url(), "-o", "r.json"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(endpoint.asked()[0].body, r#"{"maxTurns":3,"message":"x"}"#);
    assert!(ended.stdout.contains("maxTurns: 3 is told to the agent and cannot be checked"), "{}", ended.stdout);
}
