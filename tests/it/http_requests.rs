//! What an HTTP endpoint is asked: nothing of a case is left out in silence, and what cannot be asked is said
//! before it is.

use serde_json::{Value, json};

use crate::processes::{Ended, Place, Running, SIDECAR, command};
use crate::support::endpoint::{Asked, Endpoint, Reply};

fn answer(_: &Asked) -> Reply {
    Reply::Status(200, r#"{"response": "fine", "toolCalls": []}"#.to_owned())
}

/// A sidecar in front of an endpoint, and the address where it listens.
fn sidecar(place: &Place, url: &str, more: &[&str]) -> (Running, String) {
    let mut command = command(SIDECAR, place.path());
    command.args(["http", url]).args(more);
    let mut sidecar = Running::start(command);
    let agent = format!("grpc://{}", sidecar.address());
    (sidecar, agent)
}

/// Runs a file of cases, and reads the result.
fn run(place: &Place, cases: &str, agent: &str, more: &[&str]) -> (Ended, Value) {
    place.write("cases.jsonl", cases);
    let args = ["run", "cases.jsonl", "-n", agent, "-o", "r.json"];
    let ended = place.run(&[&args, more].concat());
    assert!(ended.code != Some(2), "{}", ended.stderr);
    (ended, place.json("r.json"))
}

/// Outcome, cause and blame of a case.
fn verdict(result: &Value, case: usize) -> String {
    let word = |key: &str| result["cases"][case][key].as_str().unwrap_or("-").to_owned();
    format!("{} {} {}", word("outcome"), word("cause"), word("blame"))
}

fn bodies(endpoint: &Endpoint) -> Vec<Value> {
    endpoint.asked().iter().map(|asked| serde_json::from_str(&asked.body).expect("JSON")).collect()
}

const CASES: &str = r#"
{"id": "plain", "input": "hi", "assertions": {"type": "contains", "value": "fine"}}
{"id": "history", "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"},
  {"role": "assistant", "content": "yes?"}, {"role": "tool", "content": "18"}, {"role": "user", "content": "what is it?"}]}
{"id": "system", "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]}
{"id": "last word", "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "The sum is"}]}
{"id": "files", "messages": [{"role": "user", "content": [{"type": "text", "text": "look"},
  {"type": "image", "source": "file://./dot.png"}, {"type": "file", "source": "https://example.org/a.pdf", "media_type": "application/pdf", "name": "a.pdf"}]}]}
{"id": "options", "input": "hi", "options": {"connector": "fast", "mode": "m", "search": {"deep": true}, "skip": {"trace": true},
  "metadata": {"id": 9007199254740993, "note": "é"}, "temperature": 0.5}}
"#;

/// One plain message goes out as the contract has it; a history, files and options in fields of their own.
#[test]
fn nothing_is_left_out() {
    let place = Place::new();
    place.write("dot.png", "\u{1}dot");
    let endpoint = Endpoint::start(answer);
    let (ended, result) = run(&place, CASES, &endpoint.url(), &[]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(result["summary"]["passed"], 6, "{result}");
    let said = |role: &str, content: &str| json!({"role": role, "content": content});
    let bodies = bodies(&endpoint);
    assert_eq!(endpoint.asked()[0].body, r#"{"message":"hi"}"#);
    let history = [
        said("system", "be brief"),
        said("user", "hi"),
        said("assistant", "yes?"),
        said("tool", "18"),
        said("user", "what is it?"),
    ];
    assert_eq!(bodies[1], json!({"message": "what is it?", "messages": history}));
    assert_eq!(bodies[2], json!({"message": "hi", "messages": [said("system", "be brief"), said("user", "hi")]}));
    assert_eq!(bodies[3], json!({"message": "hi", "messages": [said("user", "hi"), said("assistant", "The sum is")]}));
    let parts = json!([
        {"type": "text", "text": "look"},
        {"type": "image", "source": "data:image/png;base64,AWRvdA==", "media_type": "image/png", "name": "dot.png"},
        {"type": "file", "source": "https://example.org/a.pdf", "media_type": "application/pdf", "name": "a.pdf"}
    ]);
    assert_eq!(bodies[4], json!({"message": "look", "messages": [{"role": "user", "content": parts}]}));
    let options = json!({"connector": "fast", "mode": "m", "search": {"deep": true}, "skip": {"trace": true},
        "metadata": {"id": 9_007_199_254_740_993_u64, "note": "é"}, "temperature": 0.5});
    assert_eq!(bodies[5], json!({"message": "hi", "options": options}));

    let (ended, _) = run(&place, CASES, &endpoint.url(), &["-c", "slow", "--run", "plain"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(self::bodies(&endpoint)[6], json!({"message": "hi", "options": {"connector": "slow"}}));
}

/// The fields have the names that the endpoint knows; where earlier messages have a field of their own, they are
/// not sent twice.
#[test]
fn fields_have_the_names_that_one_likes() {
    let place = Place::new();
    place.write("dot.png", "dot");
    let endpoint = Endpoint::start(answer);
    let fields =
        ["--messages-field", "input.all", "--options-field", "input.settings", "--message-field", "input.text"];
    let (_sidecar, agent) = sidecar(&place, &endpoint.url(), &fields);
    let (ended, _) = run(&place, CASES, &agent, &[]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let bodies = bodies(&endpoint);
    assert_eq!(bodies[0], json!({"input": {"text": "hi"}}));
    assert_eq!(bodies[1]["input"]["all"].as_array().map(Vec::len), Some(5), "{}", bodies[1]);
    assert_eq!(bodies[5]["input"]["settings"]["connector"], "fast", "{}", bodies[5]);

    let endpoint = Endpoint::start(answer);
    let (_sidecar, agent) = sidecar(&place, &endpoint.url(), &["--history-field", "before"]);
    let (ended, _) = run(&place, CASES, &agent, &[]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let bodies = self::bodies(&endpoint);
    assert_eq!(bodies[0], json!({"message": "hi", "before": []}));
    assert_eq!((bodies[1]["before"].as_array().map(Vec::len), bodies[1].get("messages")), (Some(4), None));
    // The field of earlier messages holds no file of the last one, and nothing that comes after it.
    assert!(bodies[3]["messages"].is_array() && bodies[4]["messages"].is_array(), "{} {}", bodies[3], bodies[4]);
}

/// What an endpoint does not take is not sent without it: the case is errored before, and says what it is.
#[test]
fn what_an_endpoint_does_not_take() {
    let place = Place::new();
    place.write("dot.png", "dot");
    let endpoint = Endpoint::start(answer);
    let (_sidecar, agent) = sidecar(&place, &endpoint.url(), &["--messages-field", "none", "--options-field", "none"]);
    let no_user = r#"{"id": "nobody", "messages": [{"role": "system", "content": "be brief"}]}"#;
    let (ended, result) = run(&place, &format!("{CASES}{no_user}"), &agent, &[]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    let verdicts: Vec<String> = (0..7).map(|case| verdict(&result, case)).collect();
    let refused = "errored unsupported suite";
    assert_eq!(verdicts, ["passed - -", refused, refused, refused, refused, refused, refused], "{result}");
    for (case, what) in [
        (1, "a message of the system"),
        (2, "a message of the system"),
        (3, "a message behind the user's last one"),
        (4, "a file"),
        (5, "options"),
        (6, "no message of the user"),
    ] {
        let error = result["cases"][case]["error"].as_str().expect("an error");
        assert!(error.contains(what) && error.contains(&endpoint.url()), "{error}");
        assert!(error.contains("-field none") || case == 6, "{error}");
    }
    assert_eq!(endpoint.asked().len(), 1, "what cannot be asked is not sent");
}

/// An endpoint that takes a message and nothing else says so by itself, and is told what it was sent.
#[test]
fn an_endpoint_that_is_strict() {
    let place = Place::new();
    let endpoint = Endpoint::start(|asked| {
        let body: Value = serde_json::from_str(&asked.body).expect("JSON");
        let is_plain = body.as_object().is_some_and(|body| body.len() == 1);
        if is_plain { answer(asked) } else { Reply::Status(422, "extra fields not permitted".to_owned()) }
    });
    place.write("dot.png", "dot");
    let (ended, result) = run(&place, CASES, &endpoint.url(), &["-c", "fast", "--run", "^(history|plain)$"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    for (case, sent) in
        [(0, "(it was sent options besides the message)"), (1, "(it was sent messages, options besides")]
    {
        let error = result["cases"][case]["error"].as_str().expect("an error");
        assert!(
            error.contains("422 Unprocessable Entity: extra fields not permitted") && error.contains(sent),
            "{error}"
        );
    }
}

/// In a dialogue the endpoint is told what was said before, turn by turn.
#[test]
fn dialogues() {
    let place = Place::new();
    let endpoint = Endpoint::start(answer);
    let script = r#"{"replies": [{"on": "*", "events": []}]}"#;
    place.write("agent.json", script);
    place.write(
        "user.json",
        r#"{"talk": [{"input": "one"}, {"input": "two"}, {"input": "three", "goal_achieved": true}]}"#,
    );
    let mut user = command(SIDECAR, place.path());
    user.args(["script", "agent.json", "--simulator", "user.json"]);
    let mut user = Running::start(user);
    let user = format!("user=grpc://{}", user.address());
    let case = r#"{"id": "talk", "simulator": {"use": "user"}, "checkpoints": [
        {"id": "never", "assertion": {"type": "contains", "value": "no"}}], "max_turns": 3}"#;
    let (ended, _) = run(&place, case, &endpoint.url(), &["--agent", &user]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    let bodies = bodies(&endpoint);
    assert_eq!(bodies[0], json!({"message": "one"}));
    let said = |role: &str, content: &str| json!({"role": role, "content": content});
    let second = [said("user", "one"), said("assistant", "fine"), said("user", "two")];
    assert_eq!(bodies[1], json!({"message": "two", "messages": second}));
    assert_eq!(bodies[2]["messages"].as_array().map(Vec::len), Some(5), "{}", bodies[2]);
}

/// A file that travels to the sidecar in pieces arrives as a whole.
#[test]
fn large_files() {
    let place = Place::new();
    place.write("large.txt", &"0123456789".repeat(60_000));
    let endpoint = Endpoint::start(answer);
    let part = r#"{"type": "file", "source": "file://large.txt"}"#;
    let case = format!(r#"{{"id": "a", "messages": [{{"role": "user", "content": [{part}, {part}]}}]}}"#);
    let (ended, result) = run(&place, &case, &endpoint.url(), &[]);
    assert_eq!(ended.code, Some(0), "{}{}{result}", ended.stdout, ended.stderr);
    let body = &bodies(&endpoint)[0];
    assert_eq!(body["message"], "");
    for part in 0..2 {
        let source = body["messages"][0]["content"][part]["source"].as_str().expect("a source");
        let content = source.strip_prefix("data:text/plain;base64,").expect("a data URL");
        assert_eq!(content.len(), 800_000);
        assert!(content.starts_with("MDEyMzQ1Njc4OTAx"), "{}", &content[..20]);
    }
}

/// A field that is not there while one of nearly its name is: a warning that names both, and the setting that reads it.
#[test]
fn near_names() {
    let place = Place::new();
    let endpoint = Endpoint::start(|asked| {
        let body = match asked.message().as_str() {
            "calls" => r#"{"response": "fine", "tool_calls": [{"name": "a"}]}"#,
            "params" => {
                r#"{"response": "fine", "toolCalls": [{"name": "a", "arguments": {"x": 1}}, {"name": "b", "args": {}}]}"#
            }
            "function" => r#"{"response": "fine", "toolCalls": [{"function": {"name": "a", "arguments": "{}"}}]}"#,
            "answer" => r#"{"answer": "fine"}"#,
            "model" => r#"{"choices": [{"message": {"content": "fine"}}]}"#,
            _ => r#"{"response": "fine", "toolCalls": [], "tool_calls": [], "output": "x"}"#,
        };
        Reply::Status(200, body.to_owned())
    });
    let case = |id: &str| {
        format!(r#"{{"id": "{id}", "input": "{id}", "assertions": {{"type": "contains", "value": "fine"}}}}"#)
    };
    let ids = ["calls", "params", "function", "answer", "model", "good"];
    let cases: Vec<String> = ids.iter().map(|id| case(id)).collect();
    let (ended, result) = run(&place, &cases.join("\n"), &endpoint.url(), &[]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    let agent_failed = "failed agent_error agent";
    let verdicts: Vec<String> = (0..6).map(|case| verdict(&result, case)).collect();
    let passed = "passed - -";
    assert_eq!(verdicts, [passed, passed, agent_failed, agent_failed, agent_failed, passed], "{result}");
    let warnings = |case: usize| result["cases"][case]["warnings"].to_string();
    for (case, names) in [
        (0, &["toolCalls", "tool_calls", "--tool-calls-field tool_calls"][..]),
        (1, &["params", "arguments", "--tool-params-field arguments", "toolCalls[0]"]),
        (2, &["name", "function.name", "--tool-name-field function.name"]),
        (3, &["response", "answer", "--response-field answer"]),
        (4, &["response", "--response-field choices[0].message.content"]),
    ] {
        let warnings = warnings(case);
        assert!(names.iter().all(|name| warnings.contains(name)), "{case}: {warnings}");
        assert!(names.iter().all(|name| ended.stdout.contains(name)), "{case}: {}", ended.stdout);
    }
    assert_eq!(warnings(5), "[]", "{result}");
}

/// An endpoint that wants another address, method or credentials takes no call of the run: the first one ends it.
#[test]
fn trouble_of_the_set_up() {
    let place = Place::new();
    let cases: Vec<String> = (0..6).map(|n| format!(r#"{{"id": "c{n}", "input": "c{n}"}}"#)).collect();
    let cases = cases.join("\n");
    for (status, name) in [
        (401, "401 Unauthorized"),
        (403, "403 Forbidden"),
        (404, "404 Not Found"),
        (405, "405 Method Not Allowed"),
        (407, "407 Proxy Authentication Required"),
        (415, "415 Unsupported Media Type"),
        (501, "501 Not Implemented"),
    ] {
        let endpoint = Endpoint::start(move |_| Reply::Status(status, "<h1>no</h1>".to_owned()));
        let (ended, result) = run(&place, &cases, &endpoint.url(), &["--retries", "2"]);
        assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
        assert_eq!(endpoint.asked().len(), 1, "{status}: the first answer says it");
        let said = format!("{} answered {name}: <h1>no</h1>", endpoint.url());
        assert!(ended.stderr.contains(&said), "{}", ended.stderr);
        assert_eq!(verdict(&result, 0), "errored unreachable network", "{result}");
        assert_eq!(verdict(&result, 5), "skipped unreachable network", "{result}");
        assert!(result["cases"][5]["error"].as_str().is_some_and(|error| error.contains(name)), "{result}");
    }
    // What an endpoint does not know that answers others is the case's own trouble.
    let endpoint = Endpoint::start(|asked| match asked.message().as_str() {
        "c2" => Reply::Status(404, "no such order".to_owned()),
        "c3" => Reply::Status(500, "oops".to_owned()),
        _ => answer(asked),
    });
    let (ended, result) = run(&place, &cases, &endpoint.url(), &[]);
    assert_eq!((ended.code, endpoint.asked().len()), (Some(3), 6), "{}{}", ended.stdout, ended.stderr);
    let verdicts: Vec<String> = (0..6).map(|case| verdict(&result, case)).collect();
    let (passed, setup, failed) = ("passed - -", "errored unreachable network", "failed agent_error agent");
    assert_eq!(verdicts, [passed, passed, setup, failed, passed, passed], "{result}");
}
