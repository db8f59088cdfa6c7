//! Agents that a sidecar makes of a model with tools.

use std::path::Path;

use serde_json::Value;

use crate::processes::{Place, Running, SIDECAR, command};
use crate::support::endpoint::{Endpoint, Reply};

/// The answers of a model, by a server that others wrote (`scripts/setup-aimock.sh`).
const FIXTURES: &str = r#"{"fixtures": [
    {"match": {"userMessage": "Paris", "hasToolResult": false}, "response": {"content": "Let me look. ",
        "toolCalls": [{"id": "c1", "name": "get_weather", "arguments": "{\"city\": \"Paris\", \"n\": 1.0}"}]}},
    {"match": {"userMessage": "Paris", "toolResultContains": "17"}, "response": {"content": "It is 17 degrees in Paris."}},
    {"match": {"userMessage": "Paris", "toolResultContains": "error"}, "response": {"content": "I cannot tell of Paris."}},
    {"match": {"userMessage": "both", "hasToolResult": false}, "response": {"toolCalls": [
        {"id": "c1", "name": "get_weather", "arguments": "{\"city\": \"Oslo\"}"}, {"id": "c2", "name": "get_wether", "arguments": "{\"city\": \"Rome\"}"}]}},
    {"match": {"userMessage": "both", "toolResultContains": "there is no tool get_wether"}, "response": {"content": "One failed."}},
    {"match": {"userMessage": "forever"}, "response": {"toolCalls": [{"name": "get_weather", "arguments": "{\"city\": \"Nowhere\"}"}]}},
    {"match": {"userMessage": "barometer", "systemMessage": "You know the weather."}, "response": {"content": "By pressure.",
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}}},
    {"match": {"userMessage": "busy"}, "response": {"error": {"message": "slow down", "type": "rate_limit_error"}, "status": 429}}
]}"#;

const TOOLS: &str = r#"{"tools": [{"name": "get_weather", "description": "The weather of a city.",
    "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}}}]}"#;

const SUITE: &str = r#"[
    {"id": "paris", "input": {"message": "How is Paris?"}, "stubs": {"get_weather": {"t": 17}}, "expect": {"toolsCalled": ["get_weather"],
        "toolParams": [{"tool": "get_weather", "paramName": "city", "assertion": "equals", "value": "Paris"}], "responseContains": ["17 degrees"]}},
    {"id": "forever", "input": {"message": "forever"}, "stubs": {"get_weather": {"t": 1}}, "maxTurns": 3, "expect": {"responseNonEmpty": true}},
    {"id": "none", "input": {"message": "How does a barometer work?"}, "stubs": {"get_weather": {}}, "expect": {"toolsCalled": [], "responseContains": ["pressure"]}},
    {"id": "busy", "input": {"message": "busy"}, "stubs": {"get_weather": {}}, "expect": {"responseNonEmpty": true}}]"#;

fn mock(place: &Place) -> (Running, String) {
    let program =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("target/aimock/node_modules/@copilotkit/aimock/dist/cli.js");
    assert!(program.exists(), "{} is missing: run scripts/setup-aimock.sh (`make test` does)", program.display());
    place.write("fixtures.json", FIXTURES);
    let mut command = command("node", place.path());
    command.arg(program).args(["-p", "0", "-f", "fixtures.json", "--strict"]).env("AIMOCK_API_KEYS", "tiptop-secret");
    let mut mock = Running::start(command);
    let line = mock.line_with("listening on ");
    let (_, url) = line.split_once("listening on ").expect("an address");
    let url = format!("{url}/v1/chat/completions");
    (mock, url)
}

/// A sidecar, and the address of its agent.
fn sidecar(place: &Place, args: &[&str]) -> (Running, String) {
    let mut command = command(SIDECAR, place.path());
    command.args(args).env("CHAT_KEY", "tiptop-secret");
    let mut sidecar = Running::start(command);
    let agent = format!("grpc://{}", sidecar.address());
    (sidecar, agent)
}

/// What came of each case, in a line.
fn verdicts(place: &Place, suite: &str, agent: &str, more: &[&str]) -> (String, Value) {
    let ended = place.run(&[&["run", suite, "-n", agent, "-o", "r.json"], more].concat());
    assert!(ended.code != Some(2), "{}{}", ended.stdout, ended.stderr);
    let result = place.json("r.json");
    let word = |case: &Value, key: &str| case[key].as_str().unwrap_or("-").to_owned();
    let cases = result["cases"].as_array().expect("cases").iter();
    let lines = cases.map(|case| [word(case, "id"), word(case, "outcome"), word(case, "blame")].join(" ") + "; ");
    (lines.collect(), result)
}

/// The model chooses: stubs answer it, or a command, or an address, or nobody; whole and as a stream.
#[test]
fn a_model_with_tools() {
    let place = Place::new();
    let (_mock, url) = mock(&place);
    place.write("tools.json", TOOLS);
    place.write("prompt.md", "You know the weather.");
    place.write("s.golden.json", SUITE);
    place.write(
        "live.golden.json",
        r#"[{"id": "paris", "input": {"message": "How is Paris?"}, "expect": {"toolsCalled": ["get_weather"], "noToolErrors": true, "responseContains": ["17 degrees"]}},
            {"id": "both", "input": {"message": "both"}, "expect": {"toolsCalled": ["get_weather", "get_wether"], "responseContains": ["One failed"]}}]"#,
    );
    let base = ["openai", &url, "--model", "mock-1", "--tools", "tools.json", "--system", "prompt.md"];
    let base = [&base[..], &["--header", "Authorization: Bearer ${CHAT_KEY}"]].concat();
    for streams in [&[][..], &["--stream"]] {
        let (_sidecar, agent) = sidecar(&place, &[&base, streams].concat());
        let (lines, result) = verdicts(&place, "s.golden.json", &agent, &[]);
        assert_eq!(lines, "paris passed -; forever failed agent; none passed -; busy failed agent; ", "{result}");
        assert_eq!(result["cases"][1]["toolCalls"].as_array().map(Vec::len), Some(3), "as many as there are turns");
        let busy = result["cases"][3]["error"].as_str().unwrap_or_default().to_owned();
        assert!(busy.contains("answered 429 Too Many Requests"), "{busy}");
        assert_eq!(result["cases"][0]["toolCalls"][0]["params"].to_string(), r#"{"city":"Paris","n":1.0}"#);
        let (lines, result) = verdicts(&place, "live.golden.json", &agent, &["--tools", "routing-only"]);
        assert_eq!(
            result["cases"][1]["details"]["toolsCalled"],
            serde_json::json!(["get_weather", "get_wether"]),
            "{lines}"
        );
        let (_, result) = verdicts(&place, "live.golden.json", &agent, &["--tools", "live"]);
        let error = result["cases"][0]["error"].as_str().unwrap_or_default().to_owned();
        assert!(error.contains("nobody runs its tools"), "{error}");
    }
    let by_command = "grep -q '\"arguments\":{\"city\"' && echo '{\"t\": 17}'";
    let (_sidecar, agent) = sidecar(&place, &[&base[..], &["--exec-command", by_command]].concat());
    let (lines, result) = verdicts(&place, "live.golden.json", &agent, &["--tools", "live"]);
    assert_eq!(lines, "paris passed -; both passed -; ", "{result}");
    let none = r#"[{"id": "none", "input": {"message": "How does a barometer work?"}, "expect": {"toolsCalled": [], "responseContains": ["pressure"]}}]"#;
    place.write("none.golden.json", none);
    let (lines, result) = verdicts(&place, "none.golden.json", &agent, &["--tools", "live"]);
    assert_eq!(lines, "none passed -; ", "{result}");
    assert_eq!(result["cases"][0]["usage"]["inputTokens"], 11, "{result}");
    let executor = Endpoint::start(|asked| {
        let asked: Value = serde_json::from_str(&asked.body).expect("JSON");
        assert_eq!(asked["name"], "get_weather");
        Reply::Status(200, r#"{"t": 17}"#.to_owned())
    });
    let (_sidecar, agent) = sidecar(&place, &[&base[..], &["--exec-http", &executor.url()]].concat());
    let (lines, result) = verdicts(&place, "live.golden.json", &agent, &["--tools", "live"]);
    assert_eq!(lines, "paris passed -; both passed -; ", "{result}");
    assert_eq!(executor.asked().len(), 2);
    let ended = Running::start({
        let mut command = command(SIDECAR, place.path());
        command.args(["openai", &url, "--model", "m", "--tools", "prompt.md"]);
        command
    })
    .end();
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("prompt.md: line 1: ") && ended.stderr.contains("hint: write"), "{}", ended.stderr);
}
