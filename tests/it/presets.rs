//! Endpoints that speak the APIs of models: a server from npm that is not ours (`scripts/setup-aimock.sh`), and
//! hostile ones.

use std::path::Path;

use serde_json::Value;

use crate::processes::{Ended, Place, Running, command};
use crate::support::endpoint::{Asked, Endpoint, Reply};

/// A preset, the path of its API, and the header by which it is told who asks.
type Api = (&'static str, &'static str, &'static str);

const APIS: [Api; 3] = [
    ("openai-chat", "/v1/chat/completions", "Authorization: Bearer ${CHAT_KEY}"),
    ("openai-responses", "/v1/responses", "Authorization: Bearer ${CHAT_KEY}"),
    ("anthropic-messages", "/v1/messages", "x-api-key: ${CHAT_KEY}"),
];

const FIXTURES: &str = r#"{"fixtures": [
    {"match": {"userMessage": "hello", "systemMessage": "Be brief."}, "response": {"content": "Hello to whoever wrote the system's message."}},
    {"match": {"userMessage": "hello"}, "response": {"content": "Hello! How can I help you today?",
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}}},
    {"match": {"userMessage": "think"}, "response": {"content": "Four.", "reasoning": "two and two"}},
    {"match": {"userMessage": "search"}, "response": {"content": "Found it.", "webSearches": ["server-sent events"]}},
    {"match": {"userMessage": "weather"}, "response": {"toolCalls": [{"name": "get_weather", "arguments": {"city": "Paris"}}]}},
    {"match": {"userMessage": "cut"}, "response": {"content": "A long answer that is cut in its middle, for certain."}, "truncateAfterChunks": 3},
    {"match": {"userMessage": "slow down"}, "response": {"error": {"message": "slow down", "type": "rate_limit_error"}, "status": 429}}
]}"#;

/// The server, and its address.
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
    (mock, url.to_owned())
}

/// Runs a suite against an endpoint.
fn run(place: &Place, suite: &str, args: &[&str]) -> Ended {
    let mut command = place.forgectl(&[&["run", suite, "-o", "r.json", "--tools", "live"], args].concat());
    command.env("CHAT_KEY", "tiptop-secret");
    Running::start(command).end()
}

fn verdicts(result: &Value) -> String {
    let cases = result["cases"].as_array().expect("cases").iter();
    let word = |case: &Value, key: &str| case[key].as_str().unwrap_or("-").to_owned();
    let line = |case: &Value| [word(case, "id"), word(case, "outcome"), word(case, "blame")].join(" ") + "\n";
    cases.map(line).collect::<Vec<_>>().concat()
}

/// The three APIs, whole and as streams, against a server that others wrote.
#[test]
fn the_apis_of_models() {
    let place = Place::new();
    let (_mock, url) = mock(&place);
    place.write(
        "s.golden.json",
        r#"[{"id": "hello", "input": {"message": "hello"}, "expect": {"responseContains": ["Hello! How can I help you today?"], "toolsCalled": []}},
            {"id": "think", "input": {"message": "think"}, "expect": {"responseContains": ["Four."], "responseNotContains": ["two"]}},
            {"id": "search", "input": {"message": "search"}, "expect": {"responseContains": ["Found it."]}},
            {"id": "tools", "input": {"message": "weather"}, "expect": {"toolsCalled": ["get_weather"]}},
            {"id": "cut", "input": {"message": "cut"}, "expect": {"responseContains": ["A long answer"]}},
            {"id": "slow", "input": {"message": "slow down"}, "expect": {"responseNonEmpty": true}},
            {"id": "stubs", "input": {"message": "hello"}, "stubs": {"t": {}}, "expect": {"responseNonEmpty": true}}]"#,
    );
    place.write(
        "t.jsonl",
        r#"{"id": "system", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes?"}, {"role": "user", "content": "hello"}], "assertions": [{"type": "contains", "value": "the system's message"}]}"#,
    );
    for (preset, path, header) in APIS {
        let at = format!("{url}{path}");
        let how = ["-n", &at, "--preset", preset, "--model", "mock-1", "--header", header];
        for streams in [false, true] {
            let more: &[&str] = if streams { &["--stream"] } else { &[] };
            let ended = run(&place, "s.golden.json", &[&how, more].concat());
            assert_eq!(ended.code, Some(3), "{preset}: {}{}", ended.stdout, ended.stderr);
            let result = place.json("r.json");
            // What is cut is no whole answer; an answer that is no stream is not cut by this server.
            let cut = if streams { "errored network" } else { "passed -" };
            let said = format!(
                "hello passed -\nthink passed -\nsearch passed -\ntools errored network\ncut {cut}\nslow failed agent\nstubs errored suite\n"
            );
            assert_eq!(verdicts(&result), said, "{preset} {more:?}: {}", ended.stdout);
            let case = |index: usize| &result["cases"][index];
            assert_eq!((&case(0)["usage"]["inputTokens"], &case(0)["usage"]["outputTokens"]), (&11.into(), &7.into()));
            assert_eq!(case(0)["warnings"], serde_json::json!([]), "{preset} {more:?}");
            // Of the tools that the service runs itself this server tells in one of the APIs.
            let searches =
                if preset == "openai-responses" { serde_json::json!(["web_search"]) } else { serde_json::json!([]) };
            assert_eq!(case(2)["details"]["toolsCalled"], searches, "{preset}");
            let error = |index: usize| case(index)["error"].as_str().unwrap_or_default().to_owned();
            assert!(
                error(3).contains("waits for its caller to run get_weather, and behind this preset nobody does"),
                "{}",
                error(3)
            );
            assert!(error(5).contains("answered 429 Too Many Requests"), "{}", error(5));
            assert!(error(6).contains("tools.stub"), "{}", error(6));
            let whose = format!(
                "which runs its own tools behind the preset {preset}; stubs and routing through the API of a model"
            );
            assert!(error(6).contains(&whose), "{}", error(6));
            let ended = run(&place, "t.jsonl", &[&how, more].concat());
            assert_eq!(ended.code, Some(0), "{preset} {more:?}: {}{}", ended.stdout, ended.stderr);
        }
        // Who does not say who asks is told how.
        let ended = run(&place, "t.jsonl", &["-n", &at, "--preset", preset, "--model", "m"]);
        assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
        let hint = header
            .rsplit_once("${")
            .map(|(name, _)| format!("does it want a header? --header '{name}"))
            .expect("a variable");
        assert!(ended.stdout.contains("answered 401 Unauthorized") && ended.stdout.contains(&hint), "{}", ended.stdout);
    }
}

/// All of it in the settings of a project, under the agent's name; and an endpoint that judges.
#[test]
fn agents_of_the_settings() {
    let place = Place::new();
    let judge = Endpoint::start(|asked| {
        assert!(asked.headers.contains("x-team: evals\n"), "{}", asked.headers);
        Reply::Status(200, r#"{"out": {"text": "{\"passed\": true, \"reason\": \"fine\"}"}}"#.to_owned())
    });
    let (_mock, url) = mock(&place);
    let settings = format!(
        r#"{{"agentEndpoint": "support", "agents": {{
            "support": {{"url": "{url}/v1/chat/completions", "preset": "openai-chat", "model": "mock-1", "stream": true,
                "headers": {{"Authorization": "Bearer ${{CHAT_KEY}}"}}, "body": {{"temperature": 0}}, "timeoutMs": 30000}},
            "judge": {{"url": "{}", "fields": {{"response": "out.text"}}, "headers": {{"x-team": "evals"}}}}}}}}"#,
        judge.url()
    );
    place.write("forge.config.json", &settings);
    place
        .write("t.jsonl", r#"{"id": "a", "input": "hello", "assertions": [{"type": "agent", "use": "agents:judge"}]}"#);
    let ended = run(&place, "t.jsonl", &[]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let result = place.json("r.json");
    assert_eq!(result["agentId"], "support", "{result}");
    assert_eq!(judge.asked().len(), 1);
    for (wrong, right, why) in [
        (
            "openai-chat",
            "openai-chad",
            "line 2: agents.support.preset: there is no preset \"openai-chad\"\n  hint: did you mean \"openai-chat\"?",
        ),
        ("\"stream\": true", "\"stream\": 1", "line 2: agents.support.stream: must be true or false"),
        (
            "\"model\"",
            "\"modle\"",
            "line 2: agents.support: there is no setting \"modle\"\n  hint: did you mean \"model\"?",
        ),
        ("\"response\"", "\"respons\"", "line 4: agents.judge.fields: there is no setting \"respons\""),
        ("out.text", "out..text", "line 4: agents.judge.fields.response: write it like response, data.reply"),
        (
            "Bearer ${CHAT_KEY}",
            "Bearer abc",
            "line 3: agents.support.headers.Authorization: the value of authorization is a secret",
        ),
        ("CHAT_KEY", "NOT_SET", "the environment variable NOT_SET, which is not set"),
        (
            "\"temperature\": 0",
            "\"x\": \"{{mesage}}\"",
            "agents.support.body, line 3: {{mesage}} is nothing of a case; did you mean \"message\"?",
        ),
        ("30000", "0", "line 3: agents.support.timeoutMs: must be a number of milliseconds"),
        ("http://127", "grpc://127", "line 2: agents.support: presets and such are for HTTP endpoints"),
    ] {
        place.write("forge.config.json", &settings.replace(wrong, right));
        let ended = run(&place, "t.jsonl", &[]);
        assert_eq!(ended.code, Some(2), "{right}: {}", ended.stderr);
        assert!(ended.stderr.contains(why), "{right}: {}", ended.stderr);
    }
    assert_eq!(judge.asked().len(), 1, "nothing was sent");
}

/// What does not go together is one line, and nothing is sent.
#[test]
fn settings_that_make_no_sense() {
    let place = Place::new();
    place.write("a.golden.json", r#"[{"id": "a", "input": {"message": "x"}, "expect": {"responseNonEmpty": true}}]"#);
    place.write("body.json", "{\n  \"model\": \"m\",\n  \"user\": \"{{who}}\"\n}");
    let endpoint = Endpoint::start(|_| Reply::Cut);
    let url = endpoint.url();
    for (args, why) in [
        (&["--preset", "openai"][..], "a similar value exists: 'openai-chat'"),
        (&["--preset", "openai-chat"], "the preset openai-chat needs the name of a model: --model NAME"),
        (&["--stream"], "--stream needs a preset that has streams"),
        (&["--preset", "openai-chat", "--model", "m", "--body", r#"{"messages": []}"#], "write {{messages}} in it"),
        (&["--preset", "openai-chat", "--model", "m", "--body", r#"{"stream": true}"#], "which --stream says"),
        (
            &["--preset", "openai-chat", "--body", "@body.json"],
            "body.json, line 3: {{who}} is nothing of a case; there are message,",
        ),
        (&["--preset", "openai-chat", "--body", "@nowhere.json"], "cannot read nowhere.json: No such file"),
        (&["--header", "Authorization: Bearer abc"], "is a secret that others can read here"),
        (&["--header", "X-Key: ${NOT_SET}"], "the environment variable NOT_SET, which is not set"),
        (&["--header", "X-Key: ${a b}"], "which is no name of an environment variable"),
    ] {
        let ended = run(&place, "a.golden.json", &[&["-n", &url], args].concat());
        assert_eq!(ended.code, Some(2), "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(why), "{args:?}: {}", ended.stderr);
    }
    let ended = run(&place, "a.golden.json", &["-n", "grpc://127.0.0.1:1", "--preset", "openai-chat"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("are about an HTTP endpoint, and the agent to test is none: grpc://127.0.0.1:1"),
        "{}",
        ended.stderr
    );
    assert!(endpoint.asked().is_empty());
}

fn piece(content: &str) -> String {
    format!("data: {{\"choices\": [{{\"index\": 0, \"delta\": {{\"content\": {content:?}}}}}]}}\n\n")
}

const STOP: &str = "data: {\"choices\": [{\"index\": 0, \"delta\": {}, \"finish_reason\": \"stop\"}]}\n\n";

fn hostile(asked: &Asked) -> Reply {
    let body: Value = serde_json::from_str(&asked.body).expect("JSON");
    assert_eq!((&body["model"], &body["stream"], &body["team"]), (&"m".into(), &true.into(), &"tiptop-secret".into()));
    let hi = piece("Hi");
    match body["messages"][0]["content"].as_str().expect("a text") {
        "whole" => Reply::Events(format!("\u{feff}: hello\r\nretry: 5\r\n\r\nid: 1\nevent: x\n{hi}{STOP}data: [DONE]")),
        "no mark" => Reply::Events(format!("{hi}{STOP}")),
        "cut" => Reply::EventsAndCut(hi),
        "error" => Reply::Events(format!("{hi}data: {{\"error\": {{\"message\": \"no, tiptop-secret\\u001b[2J\"}}}}\n\n")),
        "no JSON" => Reply::Events(format!("{hi}data: hello\n\n")),
        "no UTF-8" => Reply::Status(200, "no stream".to_owned()),
        "endless" => Reply::Events(piece(&"x".repeat(1 << 10)).repeat(17 << 10)),
        "long line" => Reply::Events(format!("data: {}", "x".repeat(17 << 20))),
        "comments" => Reply::Events(format!(": {}\n", "x".repeat(1 << 10)).repeat(17 << 10)),
        "calls" => Reply::Events(
            "data: {\"choices\": [{\"delta\": {\"tool_calls\": [{\"index\": 0, \"id\": \"a\", \"function\": {\"name\": \"t\"}}, {\"index\": 1, \"function\": {\"name\": \"t\"}}]}}]}\n\n"
                .repeat(6_000),
        ),
        _ => Reply::Hang,
    }
}

/// Streams that lie, stop, never end, or are far too large: each is blamed as what it is, and nothing is taken for
/// an answer.
#[test]
fn streams_that_misbehave() {
    let place = Place::new();
    let endpoint = Endpoint::start(hostile);
    let cases = [
        "whole",
        "no mark",
        "cut",
        "error",
        "no JSON",
        "no UTF-8",
        "endless",
        "long line",
        "comments",
        "calls",
        "hang",
    ];
    let case = |id: &str| {
        format!(r#"{{"id": "{id}", "input": {{"message": "{id}"}}, "expect": {{"responseContains": ["Hi"]}}}}"#)
    };
    place.write("a.golden.json", &format!("[{}]", cases.map(case).join(",\n")));
    let how = [
        "--preset",
        "openai-chat",
        "--model",
        "m",
        "--stream",
        "--body",
        r#"{"team": "${CHAT_KEY}"}"#,
        "--timeout",
        "3s",
    ];
    let ended = run(&place, "a.golden.json", &[&["-n", &endpoint.url()], &how[..]].concat());
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    let result = place.json("r.json");
    let bad = "answered 200 OK with";
    for (index, (outcome, blame, error)) in [
        ("passed", "-", String::new()),
        (
            "failed",
            "agent",
            format!("{bad} a stream that ended without data: [DONE], so that the answer may not be whole"),
        ),
        ("errored", "network", "closed the connection before its answer was complete".to_owned()),
        ("failed", "agent", format!("{bad} an error: no, [hidden]")),
        ("failed", "agent", format!("{bad} not JSON of a chat completion (expected value at line 1 column 1)")),
        ("failed", "agent", format!("{bad} not JSON of a chat completion")),
        ("failed", "agent", format!("{bad} more than 16776192 bytes")),
        ("failed", "agent", format!("{bad} more than 16776192 bytes")),
        ("failed", "agent", format!("{bad} more than 16776192 bytes")),
        ("failed", "agent", format!("{bad} more than 10000 tool calls")),
        ("failed", "agent", String::new()),
    ]
    .into_iter()
    .enumerate()
    {
        let case = &result["cases"][index];
        let word = |key: &str| case[key].as_str().unwrap_or("-");
        assert_eq!((word("outcome"), word("blame")), (outcome, blame), "{}: {}", cases[index], word("error"));
        assert!(word("error").contains(&error) || error.is_empty(), "{}: {}", cases[index], word("error"));
    }
    assert!(result["cases"][10]["cause"] == "timeout" && !ended.stdout.contains('\u{1b}'), "{}", ended.stdout);
    assert!(!ended.stdout.contains("tiptop-secret"), "{}", ended.stdout);
    endpoint.wait_until_left(1);
}
