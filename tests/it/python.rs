//! The Python agents as real processes. `scripts/setup-python.sh` sets up what they need; `make test` runs it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::processes::{Place, Running, command};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn python() -> String {
    let python: PathBuf = root().join("target/python/bin/python");
    assert!(python.exists(), "{} is missing: run scripts/setup-python.sh (`make test` does)", python.display());
    python.display().to_string()
}

/// A sample agent, and its URL.
fn sample(module: &str, more: &[&str]) -> (Running, String) {
    let mut command = command(&python(), root());
    command.args(["-m", module, "--listen", "127.0.0.1:0"]).args(more);
    let mut agent = Running::start(command);
    let url = format!("grpc://{}", agent.address());
    (agent, url)
}

fn eval(name: &str) -> String {
    root().join("evals").join(name).display().to_string()
}

/// The example of the framework's own document, as it stands there, against the agent that it is about.
#[test]
fn the_script_test_of_the_framework() {
    let place = Place::new();
    let script = std::fs::read_to_string(eval("scripts/expense/setup_test.ts")).expect("a script");
    place.write("scripts/expense/setup_test.ts", &script);
    let (_agent, url) = sample("forge_daemon.samples.expense", &[]);
    let (expense, validator) = (format!("expense={url}"), format!("workers.test.validator={url}"));
    let args = ["run", "-i", "scripts.expense.setup", "-n", "expense", "--agent", &expense, "--agent", &validator];
    let ended = place.run(&[&args[..], &["-o", "r.jsonl"]].concat());
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let result = place.json("r.jsonl");
    assert_eq!((&result["id"], &result["outcome"]), (&"TestExpenseResponse".into(), &"passed".into()), "{result}");
    assert_eq!(result["assertions"].as_array().map(Vec::len), Some(2), "{result}");
    assert!(result["response"].as_str().is_some_and(|text| text.contains("Please confirm")), "{result}");
}

/// Tools of a real agent, answered by the script that calls it.
#[test]
fn stubs_of_a_script_test() {
    let place = Place::new();
    let call = "Process('agents.expense.Stream', ctx, 'I want to submit an expense: Travel, $500', ";
    let script = format!(
        "export function TestStubs(t: TestingT, ctx: Context) {{\n\
         \x20 const response = {call}{{ stubs: {{ create_expense: {{ status: 'draft', reference: 'STUB-1' }} }} }});\n\
         \x20 t.assert.Equal((response.tool_calls[0].result as any).reference, 'STUB-1');\n\
         \x20 const failed = {call}{{ stubs: {{ create_expense: {{ $error: 'the ledger is closed' }} }} }});\n\
         \x20 t.assert.False(failed.tool_calls[0].success);\n\
         \x20 t.assert.Contains(failed.content, 'the ledger is closed');\n}}\n\
         export function TestMisspelt(t: TestingT, ctx: Context) {{\n\
         \x20 t.assert.Error(() => {call}{{ stubs: {{ create_expense: {{ $eror: 1 }} }} }}));\n}}\n"
    );
    place.write("scripts/stub_test.ts", &script);
    let (_agent, url) = sample("forge_daemon.samples.expense", &[]);
    let ended = place.run(&["run", "-i", "scripts.stub", "-n", &url]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("✓ [TestStubs]"), "{}", ended.stdout);
    // What is misspelt is nobody's answer, and no test passes with it.
    assert!(ended.stdout.contains("stubs.create_expense.$eror"), "{}", ended.stdout);
}

/// The suites of this repository say what they are meant to say about the sample agents.
#[test]
fn sample_suites() {
    let place = Place::new();
    let (_daemon, daemon) = place.daemon();
    let (_weather, weather) = sample("forge_daemon.samples.weather", &[]);
    let (_portfolio, portfolio) = sample("forge_daemon.samples.portfolio", &[]);
    for (file, agent, code, not_passed) in [
        ("weather.golden.json", &weather, 1, vec!["gs-get-weather-011"]),
        ("weather.labeled.json", &weather, 0, vec![]),
        ("portfolio.golden.json", &portfolio, 0, vec![]),
    ] {
        let (seed, snapshot) = (eval("seed-manifest.json"), eval("snapshot.json"));
        let args = ["run", &eval(file), "-n", agent, "--daemon", &daemon, "--parallel", "4", "-o", "r.json"];
        let ended = place.run(&[&args[..], &["--seed-manifest", &seed, "--snapshot", &snapshot]].concat());
        assert_eq!(ended.code, Some(code), "{file}: {}{}", ended.stdout, ended.stderr);
        let result = place.json("r.json");
        let cases = result["cases"].as_array().expect("cases");
        let failed: Vec<&str> =
            cases.iter().filter(|case| case["passed"] == false).filter_map(|case| case["id"].as_str()).collect();
        assert_eq!(failed, not_passed, "{file}");
        assert!(
            cases.iter().any(|case| !case["toolCalls"].as_array().expect("calls").is_empty()),
            "{file}: tools are seen"
        );
        assert_eq!(result["warnings"].as_array().expect("warnings").len(), 0, "{file}: {}", result["warnings"]);
        assert!(result["metadata"]["registrySize"].as_u64() > Some(0), "{file}: the agent declares its tools");
    }
}

/// Two files as their authors published them, against the agent whose three tools they name. The tools take half a
/// minute, and the golden file has stubs: its cases end at once, because no tool function is run.
#[test]
fn published_files() {
    let place = Place::new();
    let (_slow, slow) = sample("forge_daemon.samples.weather", &["--tool-delay", "30"]);
    let (_weather, weather) = sample("forge_daemon.samples.weather", &[]);
    for (file, agent, cases) in [("get-weather.golden.json", &slow, 6), ("get-weather.labeled.json", &weather, 9)] {
        let path = root().join("tests/data/published").join(file).display().to_string();
        let ended = place.run(&["run", &path, "-n", agent, "--timeout", "20s", "--parallel", "4", "-o", "r.json"]);
        assert_eq!(ended.code, Some(0), "{file}: {}{}", ended.stdout, ended.stderr);
        let result = place.json("r.json");
        assert_eq!((&result["summary"]["passed"], &result["summary"]["totalCases"]), (&cases.into(), &cases.into()));
        let checked = place.run(&["check", &path]);
        assert_eq!(checked.code, Some(0), "{file}: {}{}", checked.stdout, checked.stderr);
    }
}

/// Agent Test Framework V2 against the expense sample, which also plays the user and judges.
#[test]
fn expenses() {
    let place = Place::new();
    let (_daemon, daemon) = place.daemon();
    let (_expense, expense) = sample("forge_daemon.samples.expense", &[]);
    let agents: Vec<String> = ["expense", "expense.user", "expense.validator", "expense.generator"]
        .iter()
        .map(|id| format!("{id}={expense}"))
        .collect();
    let agents: Vec<&str> = agents.iter().flat_map(|agent| ["--agent", agent.as_str()]).collect();
    let (cases, dialogues) = (eval("expense.jsonl"), eval("expense-dynamic.jsonl"));
    let args = ["run", "-i", &cases, "-n", "expense", "--daemon", &daemon, "--strict", "-o", "e.jsonl"];
    let ended = place.run(&[&args[..], &agents].concat());
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("✓ [expense-turn3] Final turn - confirm ("), "{}", ended.stdout);

    let args = ["run", "-i", &dialogues, "--simulator", "expense.user", "-n", "expense", "-v", "--daemon", &daemon];
    let ended = place.run(&[&args[..], &agents].concat());
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    for line in ["[T004] turn 2 user: Business travel, $3500", "[T004] turn 2 checkpoint reached: call_create"] {
        assert!(ended.stderr.contains(line), "{line}: {}", ended.stderr);
    }
    // The same sample writes cases for itself.
    let args =
        ["run", "-i", "agents:expense.generator?count=12&focus=edge-cases", "-n", "expense", "--daemon", &daemon];
    let ended = place.run(&[&args[..], &["--strict", "-o", "g.jsonl"], &agents].concat());
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let lines = std::fs::read_to_string(place.path().join("g.jsonl")).expect("lines");
    assert_eq!(lines.lines().count(), 12, "{lines}");

    // Nobody plays the user: that is no fault of the agent's.
    let ended = place.run(&["run", &dialogues, "-n", &expense, "--daemon", &daemon]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("simulator error: there is no such agent"), "{}", ended.stdout);
}

/// An agent that gives suites their values for snapshot tokens, asked by the daemon.
#[test]
fn a_snapshot_provider() {
    let place = Place::new();
    let (_daemon, daemon) = place.daemon();
    let (_portfolio, portfolio) = sample("forge_daemon.samples.portfolio", &[]);
    let (seed, file) = (eval("seed-manifest.json"), eval("portfolio.golden.json"));
    let args = ["run", &file, "-n", &portfolio, "--daemon", &daemon, "--seed-manifest", &seed, "-o", "r.json"];
    let ended = place.run(&[&args[..], &["--snapshot-agent", &portfolio]].concat());
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(place.json("r.json")["summary"]["skippedAssertions"], 0);

    let (_weather, weather) = sample("forge_daemon.samples.weather", &[]);
    let ended = place.run(&[&args[..], &["--snapshot-agent", &weather]].concat());
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("does not implement SnapshotProvider"), "{}", ended.stderr);
    assert_eq!(place.json("r.json")["cases"][0]["cause"], "snapshot_error");
}

/// A tool call is shown when it starts, not when it is over.
#[test]
fn slow_tools_are_seen_live() {
    let place = Place::new();
    let (_daemon, daemon) = place.daemon();
    let (_weather, weather) = sample("forge_daemon.samples.weather", &["--tool-delay", "2"]);
    let detached = place.run(&[
        "run",
        &eval("weather.golden.json"),
        "-n",
        &weather,
        "--run",
        "001$",
        "--detach",
        "--daemon",
        &daemon,
    ]);
    let mut watcher = Running::start(place.forgectl(&["watch", detached.stdout.trim(), "--daemon", &daemon]));
    watcher.line_with("→ get_weather {");
    let seen = Instant::now();
    watcher.line_with("← get_weather {");
    assert!(seen.elapsed() >= Duration::from_millis(1500), "{:?}", seen.elapsed());
    assert_eq!(watcher.end().code, Some(0));
}

/// What `forgectl init python` writes passes, in each of the ways that its README shows.
#[test]
fn a_fresh_start() {
    let place = Place::new();
    let sdk = root().join("clients/python").display().to_string();
    assert_eq!(place.run(&["init", "python", ".", "--sdk", &sdk]).code, Some(0));
    let requirements = std::fs::read_to_string(place.path().join("requirements.txt")).expect("requirements");
    assert_eq!(requirements.lines().next(), Some(&*sdk));
    assert!(place.path().join(".gitignore").exists());

    let start = format!("{} agent.py --listen {{listen}}", python());
    let ended = place.run(&["run", "evals", "--start", &start, "--strict"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("3/3 passed"), "{}", ended.stdout);

    let mut pytest = command(&python(), place.path());
    pytest.args(["-m", "pytest", "-v"]).env("FORGECTL", crate::processes::FORGECTL);
    let ended = Running::start(pytest).end();
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("test_agent.py::hello::hello-003 PASSED"), "{}", ended.stdout);
}

/// The smallest agent, about 30 lines with nothing but generated code, is a valid one.
#[test]
fn the_smallest_agent() {
    let place = Place::new();
    let mut agent = command(&python(), root());
    agent.args(["clients/python/samples/minimal.py", "--listen", "127.0.0.1:0"]);
    let mut agent = Running::start(agent);
    let url = format!("grpc://{}", agent.address());
    place.write(
        "parrot.golden.json",
        r#"[{"id": "a", "input": {"message": "hello"}, "expect": {"responseContains": ["You said: hello"]}}]"#,
    );
    let ended = place.run(&["run", "parrot.golden.json", "-n", &url]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("⚠ the agent does not describe itself"), "{}", ended.stdout);
}
