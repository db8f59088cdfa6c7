//! Settings of a project: they hold everything, and everything of them is checked before anything is started or sent.

use crate::processes::{Ended, Place, Running};
use crate::support::endpoint::{Endpoint, Reply};

const AGENT: &str = r#"{"replies": [{"on": "*", "events": [{"text": "hello there"}]}]}"#;
const SUITE: &str = r#"[{"id": "a", "input": {"message": "x"}, "expect": {"responseContains": ["hello"]}},
 {"id": "b", "input": {"message": "x"}, "expect": {"responseContains": ["bye"]}}]"#;

fn run(place: &Place, args: &[&str], variables: &[(&str, &str)]) -> Ended {
    let mut command = place.forgectl(args);
    command.envs(variables.iter().copied());
    Running::start(command).end()
}

/// How often the agent was called.
fn calls(place: &Place) -> usize {
    let log = std::fs::read_to_string(place.path().join("calls.jsonl")).unwrap_or_default();
    log.lines().filter(|line| line.contains("\"start\"")).count()
}

/// `forgectl run` alone runs the project, from any folder of it; what is typed wins.
#[test]
fn the_project_is_run() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    place.write("evals/a.golden.json", SUITE);
    place.write("other.golden.json", &SUITE.replace("\"b\"", "\"c\""));
    let settings = format!(
        r#"{{
  "suites": ["evals/*.golden.json"],
  "agentEndpoint": "hello",
  "agents": {{"hello": "{agent}"}},
  "minPassRate": "50%",
  "toTheEnd": true,
  "output": ["out/r.json", "out/r.xml"],
  "baselineRunId": "last"
}}"#
    );
    place.write("forge.config.json", &settings);
    let ended = place.run(&["run"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("baselineRunId last: the first run has nothing to compare with"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("settings:"), "those of the current folder are no surprise: {}", ended.stderr);
    assert_eq!(place.json("out/r.json")["agentId"], "hello");
    assert!(place.path().join("out/r.xml").exists());
    assert_eq!(std::fs::read_dir(place.path().join("evals/results")).expect("results").count(), 1);
    // From below, where there is a result to compare with; the results stand where those before stand.
    let mut below = place.forgectl(&["run"]);
    below.current_dir(place.path().join("evals"));
    let ended = Running::start(below).end();
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("settings: ../forge.config.json"), "{}", ended.stderr);
    assert!(ended.stdout.contains("0 regressed"), "{}", ended.stdout);
    assert_eq!(std::fs::read_dir(place.path().join("evals/results")).expect("results").count(), 2);
    // What is typed to run is meant alone, and so is a flag that contradicts a setting.
    let ended = place.run(&["run", "other.golden.json", "--fail-fast"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("═══ other") && !ended.stdout.contains("═══ a "), "{}", ended.stdout);
    // Variables that are set to nothing are not set.
    let ended = run(&place, &["run"], &[("FORGE_AGENT", ""), ("FORGE_DAEMON", "")]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
}

/// The daemon of the project is that of all commands; at the default address nobody looks for one who is not told to.
#[test]
fn the_daemon_of_the_project() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let (_daemon, url) = place.daemon();
    let judge = Endpoint::start(|_| Reply::Cut);
    place.write("a.golden.json", SUITE);
    let settings = format!(
        r#"{{"daemon": "{url}", "suites": "a.golden.json", "agentEndpoint": "{agent}", "label": "team=payments", "agents": {{"judge": "{}"}}}}"#,
        judge.url()
    );
    place.write("forge.config.json", &settings);
    let ended = place.run(&["run"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    // What forgectl speaks HTTP with is attached for the run.
    let told = format!("attached to {} as judge-", url.trim_start_matches("http://"));
    assert!(ended.stderr.contains(&told) && !ended.stderr.contains("no daemon given"), "{}", ended.stderr);
    let detached = place.run(&["run", "--detach"]);
    assert_eq!(detached.code, Some(0), "{}", detached.stderr);
    let told = format!("the daemon at {url} is not told of \"judge\" in the settings: that is an HTTP endpoint");
    assert!(detached.stderr.contains(&told), "{}", detached.stderr);
    let listed = place.run(&["runs", "list", "--label", "team=payments"]);
    assert!(listed.code == Some(0) && listed.stdout.lines().count() == 2, "{}{}", listed.stdout, listed.stderr);
    assert_eq!(place.run(&["status"]).code, Some(0));
    let free = place.run(&["run", "--daemon-free"]);
    assert!(free.code == Some(1) && free.stderr.contains("no daemon given"), "{}{}", free.stdout, free.stderr);
    // `local` is the address where `forge-daemon` listens when nothing is said; nobody else may listen there while the
    // tests run.
    let local = place.run(&["status", "--daemon", "local"]);
    let said = format!("{}{}", local.stdout, local.stderr);
    assert!(said.contains("http://127.0.0.1:7460"), "{said}");
    place.write("forge.config.json", "{}");
    let none = place.run(&["status"]);
    assert!(none.code == Some(2) && none.stderr.contains("--daemon local"), "{}", none.stderr);
    place.write("forge.config.json", r#"{"deamon": "local"}"#);
    let wrong = place.run(&["status"]);
    let why = "forgectl: forge.config.json, line 1: there is no setting \"deamon\"\n  hint: did you mean \"daemon\"?\n";
    assert_eq!((wrong.code, wrong.stderr.as_str()), (Some(2), why));
}

/// What holds, and who says so; secrets are not shown.
#[test]
fn what_holds_is_shown() {
    let place = Place::new();
    place.write("evals/a.golden.json", SUITE);
    place.write(
        "forge.config.json",
        r#"{
  "suites": "evals",
  "agentEndpoint": "support",
  "agents": {
    "support": {
      "url": "https://api.example.org/v1/chat/completions",
      "preset": "openai-chat", "model": "m", "stream": true,
      "headers": { "Authorization": "Bearer ${CHAT_KEY}", "x-team": "word" }
    },
    "hello": { "start": "touch started; TOKEN=word agent {listen}" }
  },
  "concurrency": 4,
  "strict": true,
  "timeoutMs": 5000,
  "prices": { "m": { "input": 1, "output": 2 } }
}"#,
    );
    let args = ["run", "--config-show", "--concurrency-is-no-flag"];
    assert_eq!(place.run(&args).code, Some(2));
    let variables = [("CHAT_KEY", "word"), ("FORGE_DAEMON", "http://me:word@127.0.0.1:1")];
    let ended =
        run(&place, &["run", "--config-show", "--parallel", "8", "--agent", "x=grpc://127.0.0.1:5"], &variables);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    for line in [
        "settings               forge.config.json",
        "suites           line 2        evals",
        "agentEndpoint    line 3        support",
        "agents.x         --agent         grpc://127.0.0.1:5",
        "agents.support   line 5        https://api.example.org/v1/chat/completions, preset openai-chat, model m, stream, headers authorization: ${CHAT_KEY}, x-team: …",
        "agents.hello     line 10       start \"touch started; TOKEN=… agent {listen}\"",
        "concurrency      --parallel         8",
        "runs             default       1",
        "strict           line 13       true",
        "timeoutMs        line 14       5000 ms",
        "prices           line 15       of m",
        "daemon           FORGE_DAEMON  http://…@127.0.0.1:1",
    ] {
        let found = ended.stdout.lines().any(|shown| shown.split_whitespace().eq(line.split_whitespace()));
        assert!(found, "{line}\n{}", ended.stdout);
    }
    assert!(!ended.stdout.contains("word"), "{}", ended.stdout);
    assert!(!place.path().join("started").exists());
    assert!(!place.path().join("evals/results").exists());
}

/// Whatever is wrong with settings: one line with the place, what is there, and a hint; nothing is started, sent or
/// written.
#[test]
fn settings_are_checked_before_anything_happens() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    place.write("evals/a.golden.json", SUITE);
    place.write("tools.json", r#"{"tools": []}"#);
    let settings = |more: &str| {
        format!(
            "{{\"suites\": \"evals\", \"agentEndpoint\": \"hello\",\n\"agents\": {{\"hello\": \"{agent}\", \"other\": {{\"start\": \"touch started\"}}}},\n{more}}}"
        )
    };
    for (more, why, hint) in [
        ("\"concurency\": 4", "line 3: there is no setting \"concurency\"", "did you mean \"concurrency\"?"),
        ("\"model\": \"m\"", "line 3: there is no setting \"model\"", "the settings are agents, "),
        ("\"concurrency\": 0", "line 3: concurrency: must be from 1 to 10000, not 0", ""),
        ("\"concurrency\": \"4\"", "line 3: concurrency: must be a whole number, not a text", ""),
        ("\"toolMode\": \"life\"", "line 3: toolMode: there is no \"life\"", "did you mean \"live\"?"),
        ("\"tier\": [\"gold\"]", "line 3: tier: there is no \"gold\"", "golden"),
        ("\"minPassRate\": 0.95", "line 3: minPassRate: must be a text, not a number", ""),
        ("\"minPassRate\": \"much\"", "line 3: minPassRate: ", ""),
        (
            "\"minPassRate\": \"95%\",\n\"failFast\": true",
            "line 4: failFast: contradicts minPassRate, line 3",
            "leave out one of them",
        ),
        (
            "\"maxRegression\": \"5%\"",
            "line 3: maxRegression compares with an earlier result, and there is none",
            "--baseline",
        ),
        ("\"snapshotEnabled\": true", "line 3: snapshotEnabled: is true, and there is no snapshot", "--snapshot"),
        (
            "\"toolRegistryPath\": \"tool.json\"",
            "line 3: toolRegistryPath: there is no \"tool.json\"",
            "did you mean \"tools.json\"?",
        ),
        ("\"simulator\": \"othre\"", "line 3: simulator: there is no agent \"othre\"", "did you mean \"other\"?"),
        ("\"output\": \"r.txt\"", "-o r.txt: the ending says no known format", ".json"),
        ("\"snapshotHeader\": \"x: ${A}\"", "line 3: snapshotHeader goes with --snapshot-url", ""),
        ("\"traceUrl\": \"no\"", "line 3: traceUrl: ", ""),
        ("\"strict\": true,\n\"strict\": false", "line 4", ""),
    ] {
        place.write("forge.config.json", &settings(more));
        let ended = place.run(&["run"]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{more}: {}", ended.stderr);
        let lines: Vec<&str> = ended.stderr.lines().collect();
        assert!(lines[0].starts_with("forgectl: ") && lines[0].contains(why), "{more}: {}", ended.stderr);
        assert!(lines.len() <= 2, "{more}: {}", ended.stderr);
        assert!(lines.get(1).is_some_and(|line| line.contains(hint)) || hint.is_empty(), "{more}: {}", ended.stderr);
    }
    assert_eq!(calls(&place), 0);
    assert!(!place.path().join("started").exists());
    let json = place.run(&["run", "--json"]);
    assert!(json.code == Some(2) && json.stdout.contains("forge.config.json, line 4"), "{}", json.stdout);
    // What is not there to be read is told like that, too.
    for (file, why) in [("none.json", "none.json: No such file"), (".", ".: Is a directory")] {
        let ended = place.run(&["run", "--config", file]);
        assert!(ended.code == Some(2) && ended.stderr.contains(why), "{}", ended.stderr);
    }
    place.write("large.json", &format!("{{\"run\": \"{}\"}}", "a".repeat(1 << 20)));
    let ended = place.run(&["run", "--config", "large.json"]);
    assert!(ended.code == Some(2) && ended.stderr.contains("it has more than 1048576 bytes"), "{}", ended.stderr);
}

/// What is refused is not repeated where it may be a secret: the terminal is that of others, too.
#[test]
fn secrets_are_not_repeated() {
    let place = Place::new();
    place.write("a.golden.json", SUITE);
    let at = "http://127.0.0.1:9/chat";
    for args in [
        &["-n", at, "--header", "Authorization: Bearer s3cret"][..],
        &["-n", at, "--header", "Authorization=Bearer s3cret"],
        &["-n", at, "--body", "{\"key\": s3cret}"],
        &["-n", "http://me:s3cret@127.0.0.1:9/chat"],
        &["-n", "grpc://me:s3cret@127.0.0.1:9"],
        &["-n", at, "--snapshot-url", "http://me:s3cret@127.0.0.1:9"],
        &["-n", at, "--snapshot-header", "Authorization: Bearer s3cret"],
        &["-n", at, "--daemon", "http://me:s3cret@127.0.0.1:9"],
    ] {
        let ended = place.run(&[&["run", "a.golden.json"], args].concat());
        assert_eq!(ended.code, Some(2), "{args:?}: {}", ended.stderr);
        assert!(!ended.stderr.contains("s3cret") && ended.stderr.len() > 40, "{args:?}: {}", ended.stderr);
    }
}
