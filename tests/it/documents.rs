//! What the two documents and their readers expect of files, flags and settings: by the programs.

use crate::processes::{Place, Running, SIDECAR, command};

const AGENT: &str = r#"{"replies": [{"on": "*", "events": [{"text": "It is 8806."}]}]}"#;

/// Arguments, the exit code, texts that are said, and texts that are not.
type Row<'a> = (&'a [&'a str], i32, &'a [&'a str], &'a [&'a str]);

fn check_rows(place: &Place, rows: &[Row<'_>]) {
    for (args, code, texts, absent) in rows {
        let ended = place.run(args);
        let said = format!("{}{}", ended.stdout, ended.stderr);
        assert_eq!(ended.code, Some(*code), "{args:?}\n{said}");
        for text in *texts {
            assert!(said.contains(text), "{args:?} does not say {text:?}:\n{said}");
        }
        for text in *absent {
            assert!(!said.contains(text), "{args:?} says {text:?}:\n{said}");
        }
    }
}

/// How often the agent was called.
fn calls(place: &Place) -> usize {
    let log = std::fs::read_to_string(place.path().join("calls.jsonl")).unwrap_or_default();
    log.lines().filter(|line| line.contains("\"start\"")).count()
}

fn contract_case(id: &str, expect: &str) -> String {
    format!(r#"{{"id": "{id}", "input": {{"message": "Read me my PIN"}}, "expect": {expect}}}"#)
}

/// Text that looks like a template and is none checks nothing: it is told with its place and its spelling, and a
/// strict run is refused before anything is sent.
#[test]
fn what_looks_like_a_template() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let (_daemon, url) = place.daemon();
    place.write("seed-manifest.json", r#"{"pin": "1234"}"#);
    let blanks = contract_case("blanks", r#"{"responseNotContains": ["{{ seed:pin }}"]}"#);
    let param =
        r#"{"toolParams": [{"tool": "t", "paramName": "p", "assertion": "equals", "value": {"a": ["{{Seed:pin}}"]}}]}"#;
    place.write(
        "pin.golden.json",
        &format!(
            "[{blanks},\n{},\n{}]",
            contract_case("param", param),
            contract_case("ok", r#"{"responseContains": ["8806"], "responseNotContains": ["{{seed:pin}}"]}"#)
        ),
    );
    place.write("pin.jsonl", "\n{\"id\": \"none\", \"input\": \"x\", \"assertions\": [{\"type\": \"not_contains\", \"value\": \"{{seed:pin}}\"}]}\n");
    place.write("sent.golden.json", r#"[{"id": "sent", "input": {"message": "PIN {{seed:pin}}"}, "expect": {"responseNonEmpty": true, "toolsNotCalled": ["{{seed:pin}}"]}}]"#);
    let told: &[&str] = &[
        "⚠ pin.golden.json, line 1, case \"blanks\", expect.responseNotContains[0]: \"{{ seed:pin }}\" looks like a template token and is none; it is taken as plain text (a token is written {{seed:pin}})",
        "⚠ pin.golden.json, line 2, case \"param\", expect.toolParams[0].value.a[0]: \"{{Seed:pin}}\" looks like",
    ];
    let jsonl: &[&str] = &[
        "⚠ pin.jsonl, line 2, case \"none\", assertions[0].value: \"{{seed:pin}}\" is taken as plain text: Agent Test Framework V2 has no template tokens",
    ];
    let refused: &[&str] = &[
        "the suite is invalid: 2 errors",
        "pin.golden.json, line 1, case \"blanks\"",
        "pin.golden.json, line 2, case \"param\"",
    ];
    let sent: &[&str] = &[
        "case \"sent\", input.message: \"{{seed:pin}}\" is taken as plain text: template tokens have no meaning here",
        "expect.toolsNotCalled[0]",
    ];
    check_rows(
        &place,
        &[
            (&["check", "pin.golden.json"], 0, told, &["case \"ok\""]),
            (&["check", "pin.jsonl"], 0, jsonl, &[]),
            (&["check", "sent.golden.json"], 0, sent, &[]),
            (
                &["check", "--strict", "pin.golden.json"],
                2,
                &["a strict run would not pass: 2 places", "case \"blanks\""],
                &[],
            ),
            (&["check", "--strict", "pin.jsonl"], 2, &["case \"none\""], &[]),
            (&["check", "--strict", "sent.golden.json"], 0, sent, &[]),
            (&["run", "pin.golden.json", "-n", &agent, "--strict"], 2, refused, &["passed"]),
            (
                &["run", "pin.jsonl", "-n", &agent, "--strict"],
                2,
                &["the suite is invalid: 1 error", "assertions[0].value"],
                &[],
            ),
            (&["run", "-i", "Say {{seed:pin}}", "-n", &agent, "--strict"], 2, &["case \"message\", input"], &[]),
        ],
    );
    assert_eq!(calls(&place), 0, "nothing was to be sent");
    check_rows(
        &place,
        &[
            (&["run", "pin.golden.json", "-n", &agent, "-o", "r.json"], 0, told, &[]),
            (&["run", "pin.jsonl", "-n", &agent, "--daemon", &url], 0, jsonl, &[]),
            (&["run", "sent.golden.json", "-n", &agent, "--strict"], 0, sent, &[]),
        ],
    );
    let warnings = place.json("r.json")["warnings"].to_string();
    assert!(warnings.contains("{{ seed:pin }}") && warnings.contains("{{Seed:pin}}"), "{warnings}");
}

/// The manifest is where the suite is, or above in the project; what is missing is said.
#[test]
fn where_the_seed_manifest_is() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let suite = format!("[{}]", contract_case("a", r#"{"responseContains": ["{{seed:pin}}"]}"#));
    let good = r#"{"pin": 8806}"#;
    // In a project, the command typed elsewhere.
    place.write("one/.git/HEAD", "");
    place.write("one/evals/deep/pin.golden.json", &suite);
    place.write("one/evals/seed-manifest.json", good);
    // Beside the suite, in a folder that is no project.
    place.write("two/pin.golden.json", &suite);
    place.write("two/seed-manifest.json", good);
    // Above the root of the project nothing is looked for.
    place.write("three/evals/seed-manifest.json", good);
    place.write("three/project/forge.config.json", "{}");
    place.write("three/project/tests/pin.golden.json", &suite);
    // The nearest counts.
    place.write("four/.git/HEAD", "");
    place.write("four/evals/seed-manifest.json", r#"{"pin": "other"}"#);
    place.write("four/tests/evals/seed-manifest.json", good);
    place.write("four/tests/sub/pin.golden.json", &suite);
    // One that does not know the value, and snapshots.
    place.write("five/seed-manifest.json", r#"{"pins": 1}"#);
    let both = contract_case("both", r#"{"responseContains": ["{{seed:pin}}", "{{snapshot:pin}}", "8806"]}"#);
    place.write("five/pin.golden.json", &format!("[{both}]"));
    place.write(
        "six/pin.golden.json",
        "[{\"id\": \"plain\", \"input\": {\"message\": \"x\"}, \"expect\": {\"responseContains\": [\"8806\"]}}]",
    );
    let run = |file: &'static str| -> [&str; 4] { ["run", file, "-n", "AGENT"] };
    let rows: &[(&str, i32, &[&str], &[&str])] = &[
        ("one/evals/deep/pin.golden.json", 0, &["seed manifest: one/evals/seed-manifest.json"], &["⚠"]),
        ("two/pin.golden.json", 0, &["seed manifest: two/seed-manifest.json"], &["⚠"]),
        (
            "three/project/tests/pin.golden.json",
            0,
            &[
                "⚠ three/project/tests/pin.golden.json, case \"a\": it has {{seed:…}} tokens, and no seed manifest was found; looked for three/project/tests/seed-manifest.json, three/project/tests/evals/seed-manifest.json, three/project/seed-manifest.json, three/project/evals/seed-manifest.json, evals/seed-manifest.json",
                "⚠ case \"a\", responseContains: {{seed:pin}} leads nowhere: no seed manifest was found",
                "⚠ nothing checked",
            ],
            &["seed manifest: "],
        ),
        ("four/tests/sub/pin.golden.json", 0, &["seed manifest: four/tests/evals/seed-manifest.json"], &["⚠"]),
        (
            "five/pin.golden.json",
            0,
            &[
                "⚠ case \"both\", responseContains: {{seed:pin}} leads nowhere: the seed manifest has no \"pin\"",
                "⚠ case \"both\", responseContains: {{snapshot:pin}} leads nowhere: no snapshot is configured",
            ],
            &["nothing checked"],
        ),
        ("six/pin.golden.json", 0, &[], &["seed manifest"]),
    ];
    for (file, code, texts, absent) in rows {
        let mut args = run("");
        (args[1], args[3]) = (file, agent.as_str());
        check_rows(&place, &[(&args, *code, texts, absent)]);
    }
    check_rows(
        &place,
        &[
            (&["check", "one/evals/deep/pin.golden.json"], 0, &["seed manifest: one/evals/seed-manifest.json"], &["⚠"]),
            (&["check", "three/project/tests/pin.golden.json"], 0, &["no seed manifest was found; looked for"], &[]),
            (
                &["check", "five/pin.golden.json"],
                0,
                &[
                    "⚠ five/pin.golden.json, line 1, case \"both\": {{seed:pin}} leads nowhere: the seed manifest has no \"pin\"",
                ],
                &[],
            ),
            (
                &["run", "one", "four", "-n", &agent],
                2,
                &[
                    "these suites have different seed manifests",
                    "one/evals/deep/pin.golden.json: one/evals/seed-manifest.json",
                    "--seed-manifest",
                ],
                &[],
            ),
            (
                &["run", "one", "four", "-n", &agent, "--seed-manifest", "two/seed-manifest.json"],
                0,
                &[],
                &["⚠", "seed manifest: "],
            ),
        ],
    );
    // The settings may name one that is not there yet; who asks for it hears so, and a flag means what it says.
    place.write("seven/forge.config.json", r#"{"seedManifestPath": "evals/seed-manifest.json"}"#);
    place.write(
        "seven/plain.golden.json",
        "[{\"id\": \"plain\", \"input\": {\"message\": \"x\"}, \"expect\": {\"responseContains\": [\"8806\"]}}]",
    );
    place.write("seven/pin.golden.json", &suite);
    let config = ["--config", "seven/forge.config.json"];
    let with = |args: &[&'static str]| [&["run", "-n", &agent][..], &config, args].concat();
    check_rows(
        &place,
        &[
            (&with(&["seven/plain.golden.json"]), 0, &["1/1 passed"], &["⚠"]),
            (&with(&["seven/pin.golden.json"]), 2, &["cannot read seven/evals/seed-manifest.json"], &[]),
            (&with(&["seven/pin.golden.json", "--seed-manifest", "two/seed-manifest.json"]), 0, &["1/1 passed"], &[]),
            (&with(&["seven/plain.golden.json", "--seed-manifest", "none.json"]), 2, &["cannot read none.json"], &[]),
        ],
    );
    // By convention, where the command is typed: nothing is to be said.
    place.write("evals/seed-manifest.json", good);
    place.write("pin.golden.json", &suite);
    check_rows(&place, &[(&["run", "pin.golden.json", "-n", &agent], 0, &["1/1 passed"], &["seed manifest", "⚠"])]);
}

/// A registry lies in its project, however its path is written, and a barrel may read from all of that.
#[test]
fn where_the_registry_is() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let suite = format!("[{}]", contract_case("a", r#"{"responseNonEmpty": true}"#));
    let tool = "export const t = { name: 't', description: 'd' };";
    // Above the folder where the command is typed, in a folder that is no project.
    place.write("up/evals/a.golden.json", &suite);
    place.write("up/tools.exports.ts", "export { t } from './lib/t';");
    place.write("up/lib/t.ts", tool);
    // In a project that only its settings tell.
    place.write("set/a.golden.json", &suite);
    place.write("set/forge.config.json", r#"{"toolRegistryPath": "src/agent/tools.exports.ts"}"#);
    place.write("set/src/agent/tools.exports.ts", "export { t } from '../../lib/t';");
    place.write("set/lib/t.ts", tool);
    let run = |folder: &str, more: &[&str]| {
        let mut command = place.forgectl(&["run", "a.golden.json", "-n", &agent, "-o", "r.json"]);
        command.args(more).current_dir(place.path().join(folder));
        Running::start(command).end()
    };
    for (folder, more) in [("up/evals", &["--registry", "../tools.exports.ts"][..]), ("set", &[])] {
        let ended = run(folder, more);
        assert_eq!(ended.code, Some(0), "{folder}: {}", ended.stderr);
        assert!(!ended.stderr.contains('⚠'), "{folder}: {}", ended.stderr);
        assert_eq!(place.json(&format!("{folder}/r.json"))["metadata"]["registrySize"], 1, "{folder}");
    }
    let missing = run("set", &["--registry", "nope.ts"]);
    assert_eq!(missing.code, Some(2), "{}", missing.stderr);
    assert!(missing.stderr.contains("\n  nope.ts: there is no such tool registry"), "{}", missing.stderr);
}

/// A folder tells what it did not run: names that are nearly right, files with cases that have no such name, linked
/// folders.
#[test]
fn what_a_folder_does_not_run() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let good = format!("[{}]", contract_case("ok", r#"{"responseContains": ["8806"]}"#));
    let bad = format!("[{}]", contract_case("bad", r#"{"responseContains": ["never said"]}"#));
    place.write("evals/a.golden.json", &good);
    let told = ["refunds.gloden.json", "deep/refunds.eval.json", "weather.json", "refunds.ndjson"];
    for name in told {
        place.write(&format!("evals/{name}"), &bad);
    }
    // Other things have every right to be there.
    for name in ["seed-manifest.json", "package.json", "a.golden.snapshots.json", "notes.txt"] {
        place.write(&format!("evals/{name}"), "{}");
    }
    place.write("elsewhere/more.golden.json", &bad);
    place.write("near/only.gloden.json", &bad);
    std::os::unix::fs::symlink("../elsewhere", place.path().join("evals/linked")).expect("a link");
    let texts = [
        "⚠ these files are not run, because eval files in a folder are named *.golden.json, *.labeled.json",
        "\n    evals/deep/refunds.eval.json\n    evals/refunds.gloden.json\n    evals/refunds.ndjson\n    evals/weather.json\n",
        "⚠ evals/linked is a linked folder, which is not followed; name it to run what is in it",
    ];
    let others = ["seed-manifest", "package.json", "snapshots.json", "notes.txt"];
    check_rows(
        &place,
        &[
            (&["check", "evals"], 0, &texts, &others),
            (&["run", "evals", "-n", &agent, "--output-dir", "evals/results"], 0, &texts, &others),
            // What that run has written is not told either.
            (&["run", "evals", "-n", &agent, "--output-dir", "evals/results"], 0, &texts, &["    evals/results"]),
            (&["run", "near", "-n", &agent], 4, &["nothing selected", "near/only.gloden.json", "hint:"], &[]),
            (
                &["run", "evals", "evals/weather.json", "-n", &agent],
                1,
                &["evals/refunds.ndjson"],
                &["evals/weather.json\n"],
            ),
            (&["run", "evals/linked", "-n", &agent], 1, &["0/1 passed"], &["linked folder"]),
            (&["run", "evals/a.golden.json", "-n", &agent], 0, &["1/1 passed"], &["not run"]),
        ],
    );
}

/// What a generator is told stands behind its name like the query of an address.
#[test]
fn generators_that_are_asked_for_the_impossible() {
    let place = Place::new();
    place.write("metadata.golden.json", r#"{"metadata": "weather", "cases": []}"#);
    check_rows(
        &place,
        &[
            (&["run", "-i", "agents:x?count=1.5", "-n", "a"], 2, &["count must be a whole number, not 1.5"], &[]),
            (&["run", "-i", "agents:x?count=true", "-n", "a"], 2, &["count must be a number, not \"true\""], &[]),
            (&["run", "-i", "agents:x?count=%31%30%30%30%31", "-n", "a"], 2, &["not 10001"], &[]),
            (&["run", "-i", "", "-n", "a"], 2, &["-i names nothing: its value is empty", "hint:"], &[]),
            (&["run", "metadata.golden.json", "-n", "a"], 2, &["metadata: must be an object or null, not a text"], &[]),
        ],
    );
}

/// The header names what was asked for as it was asked for, and the time is that of the cases of the file.
#[test]
fn headers_of_test_files() {
    let place = Place::new();
    let (_agent, agent) = place.agent(r#"{"replies": [{"on": "slow", "events": [{"wait_ms": 700}, {"text": "x"}]}, {"on": "*", "events": [{"text": "x"}]}]}"#);
    place.write("tests/one.jsonl", "{\"id\": \"a\", \"input\": \"q\"}\n");
    place.write("tests/two.jsonl", "{\"id\": \"b\", \"input\": \"slow\"}\n");
    let full = place.path().join("tests/one.jsonl").canonicalize().expect("it is there").display().to_string();
    check_rows(
        &place,
        &[
            (
                &["run", "-i", "./tests/one.jsonl", "-n", &agent],
                0,
                &["\nℹ Input: ./tests/one.jsonl (1 test case)\n"],
                &[],
            ),
            (&["run", "tests/../tests/one.jsonl", "-n", &agent], 0, &["ℹ Input: tests/../tests/one.jsonl (1"], &[]),
            (&["run", &full, "-n", &agent], 0, &[&format!("ℹ Input: {full} (1")], &[]),
            (
                &["run", "-i", "Hello, how are you?", "-n", &agent],
                0,
                &["ℹ Input: Hello, how are you? (1 test case)"],
                &[],
            ),
        ],
    );
    // Both at the same time: the time of one file is not that of the other.
    let ended = place.run(&["run", "tests", "-n", &agent, "--parallel", "2"]);
    let times: Vec<f64> = ended
        .stdout
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Time:")?.trim().strip_suffix('s')?.parse().ok())
        .collect();
    assert!(matches!(times[..], [one, two] if one < 0.7 && two >= 0.7), "{}", ended.stdout);
    assert!(
        ended.stdout.contains("ℹ Input: tests/one.jsonl (1") && ended.stdout.contains("ℹ Input: tests/two.jsonl (1")
    );
}

/// `-o FOLDER` writes a result for each suite, in the format that its document names.
#[test]
fn results_in_a_folder() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let (_daemon, url) = place.daemon();
    place.write("evals/a.golden.json", &format!("[{}]", contract_case("ok", r#"{"responseContains": ["8806"]}"#)));
    place.write(
        "evals/b.jsonl",
        "{\"id\": \"b\", \"input\": \"q\", \"assertions\": [{\"type\": \"contains\", \"value\": \"8806\"}]}\n",
    );
    std::fs::create_dir(place.path().join("there")).expect("a folder");
    let names = |folder: &str| {
        let files = std::fs::read_dir(place.path().join(folder)).expect("a folder").flatten();
        let mut names: Vec<String> = files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    check_rows(
        &place,
        &[
            (
                &["run", "evals", "-n", &agent, "--daemon", &url, "-o", "there", "-o", "new/deep/", "-o", "all.json"],
                0,
                &[],
                &[],
            ),
            (
                &["run", "evals", "-n", &agent, "-o", "missing"],
                2,
                &["-o missing: the ending says no known format", "a new folder ends in /"],
                &[],
            ),
        ],
    );
    for folder in ["there", "new/deep"] {
        let written = names(folder);
        let endings: Vec<_> = written.iter().map(|name| name.rsplit_once('.').map(|(_, ending)| ending)).collect();
        assert_eq!(endings, [Some("json"), Some("jsonl")], "{written:?}");
        assert!(written[0].starts_with("a.golden.") && written[1].starts_with("b."), "{written:?}");
        let suite = place.json(&format!("{folder}/{}", written[0]));
        assert_eq!((&suite["toolName"], &suite["cases"][0]["id"]), (&"a".into(), &"ok".into()));
        let line = place.json(&format!("{folder}/{}", written[1]));
        assert_eq!((&line["id"], &line["status"]), (&"b".into(), &"passed".into()));
    }
    let run_id = place.json("all.json")["runId"].as_str().expect("an id").to_owned();
    check_rows(&place, &[(&["runs", "report", &run_id, "--daemon", &url, "-o", "later/"], 0, &[], &[])]);
    assert_eq!(names("later"), names("there"));
    // Results in the folder of the suites are no suites.
    check_rows(
        &place,
        &[
            (&["run", "evals", "-n", &agent, "-o", "evals"], 0, &[], &[]),
            (&["run", "evals", "-n", &agent], 0, &["1/1 passed"], &["not run"]),
        ],
    );
}

/// A path that is sent as an address is told when the file is there.
#[test]
fn paths_that_are_no_addresses() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    place.write("t/bill.pdf", "%PDF");
    place.write("t/deep/cat.png", "PNG");
    let part = |kind: &str, key: &str, source: &str| {
        format!(r#"{{"role": "user", "content": [{{"type": "{kind}", "{key}": "{source}"}}]}}"#)
    };
    let case = |id: &str, message: &str| {
        format!(
            "{{\"id\": \"{id}\", \"messages\": [{message}], \"assertions\": [{{\"type\": \"contains\", \"value\": \"8806\"}}]}}\n"
        )
    };
    let told = [case("one", &part("file", "source", "./bill.pdf")), case("two", &part("image", "url", "deep/cat.png"))];
    let silent = [
        case("three", &part("file", "source", "file://./bill.pdf")),
        case("four", &part("file", "source", "https://example.com/bill.pdf")),
        case("five", &part("image", "source", "data:image/png;base64,AAAA")),
        case("six", &part("file", "source", "missing.pdf")),
    ];
    place.write("t/told.jsonl", &told.concat());
    place.write("t/silent.jsonl", &silent.concat());
    let texts: &[&str] = &[
        "⚠ t/told.jsonl, line 1, case \"one\": \"./bill.pdf\" is passed on as an address, and it is the path of a file (file://./bill.pdf sends the file)",
        "⚠ t/told.jsonl, line 2, case \"two\": \"deep/cat.png\" is passed on as an address",
    ];
    check_rows(
        &place,
        &[
            (&["check", "t/told.jsonl"], 0, texts, &[]),
            (&["run", "t/told.jsonl", "-n", &agent], 0, texts, &[]),
            (&["check", "t/silent.jsonl"], 0, &[], &["⚠"]),
        ],
    );
}

/// The examples of the documents, with `yao agent test` and `node lib/index.js run` read as `forgectl run`, in a
/// project whose settings say where the agents are.
#[test]
fn examples_of_the_documents() {
    let place = Place::new();
    place.write(
        "simulator.json",
        r#"{"dyn": [{"input": "Help me file an expense"}, {"input": "Client dinner, $250"}]}"#,
    );
    place.write(
        "script.json",
        r#"{"replies": [{"on": "Hello, how are you?", "events": [{"text": "Fine."}]}, {"on": "*", "events": [{"text": "What type? submitted"}]}]}"#,
    );
    place.write("writer.json", r#"{"replies": [{"on": "*", "events": [{"text": "[{\"id\": \"g1\", \"input\": \"x\", \"assertions\": [{\"type\": \"contains\", \"value\": \"type\"}]}]"}]}]}"#);
    let serve = |args: &[&str]| {
        let mut command = command(SIDECAR, place.path());
        command.arg("script").args(args).args(["--listen", "127.0.0.1:0"]);
        let mut running = Running::start(command);
        let url = format!("grpc://{}", running.address());
        (running, url)
    };
    let (_agent, agent) = serve(&["script.json", "--simulator", "simulator.json"]);
    let (_writer, writer) = serve(&["writer.json"]);
    let case = |id: &str, text: &str| {
        format!(r#"{{"id": "{id}", "input": "q", "assertions": [{{"type": "contains", "value": "{text}"}}]}}"#)
    };
    place.write("tests/expense.jsonl", &format!("{}\n{}\n", case("t1", "type"), case("t2", "submitted")));
    place.write(
        "tests/dynamic.jsonl",
        r#"{"id": "dyn", "simulator": {"options": {"metadata": {"persona": "p", "goal": "g"}}}, "checkpoints": [{"id": "ask_type", "assertion": {"type": "contains", "value": "type"}}]}"#,
    );
    place.write(
        "evals/faq.golden.json",
        r#"[{"id": "a", "input": {"message": "q"}, "expect": {"responseContains": ["type"]}}]"#,
    );
    // Without an agent the error says how to name one, and what needs none goes on.
    let ways = ["-n AGENT", "FORGE_AGENT=AGENT", "forge.config.json", "agentEndpoint", "hint: "];
    check_rows(
        &place,
        &[
            (&["run", "-i", "./tests/expense.jsonl"], 2, &ways, &[]),
            (&["run", "-i", "agents:x", "--dry-run"], 2, &ways, &[]),
            (&["run", "-i", "./tests/expense.jsonl", "--dry-run"], 0, &["\"id\":\"t1\"", "\"id\":\"t2\""], &[]),
            (&["run", "--eval", "evals/faq.golden.json"], 2, &ways, &[]),
        ],
    );
    let mut by_variable = place.forgectl(&["run", "-i", "./tests/expense.jsonl"]);
    by_variable.env("FORGE_AGENT", &agent);
    assert_eq!(Running::start(by_variable).end().code, Some(0));
    let mut by_nothing = place.forgectl(&["run", "-i", "./tests/expense.jsonl"]);
    by_nothing.env("FORGE_AGENT", "");
    assert_eq!(Running::start(by_nothing).end().code, Some(2));
    let settings = format!(
        r#"{{"agentEndpoint": "assistants.expense", "agents": {{"assistants.expense": "{agent}", "assistants.chat": "{agent}",
        "workers.test.user-simulator": "{agent}", "workers.test.generator": "{writer}"}}}}"#
    );
    place.write("forge.config.json", &settings);
    check_rows(
        &place,
        &[
            (&["run", "-i", "Hello, how are you?", "-n", "assistants.chat"], 0, &["ℹ Agent: assistants.chat"], &[]),
            (
                &["run", "-i", "./tests/expense.jsonl"],
                0,
                &["ℹ Agent: assistants.expense\nℹ Input: ./tests/expense.jsonl (2 test cases)"],
                &[],
            ),
            (
                &["run", "-i", "agents:workers.test.generator?count=10", "-n", "assistants.expense"],
                0,
                &["ℹ Input: agents:workers.test.generator?count=10 (1 test case)", "✓ [g1]"],
                &[],
            ),
            (
                &["run", "-i", "./tests/dynamic.jsonl", "--simulator", "workers.test.user-simulator"],
                0,
                &["✓ [dyn]", "Checkpoints: 1/1"],
                &[],
            ),
            (&["run", "-i", "./tests/expense.jsonl", "--parallel", "5"], 0, &["Passed:  2"], &[]),
            (&["run", "-i", "./tests/expense.jsonl", "-v"], 0, &["Passed:  2"], &[]),
            (&["run", "--eval", "evals/faq.golden.json"], 0, &["═══ faq — golden evals", "1/1 passed"], &[]),
            // A flag wins, and a wrong address is told like one of a flag.
            (
                &["run", "-i", "./tests/expense.jsonl", "--agent", "assistants.expense=grpc://127.0.0.1:1"],
                3,
                &["cannot be reached"],
                &[],
            ),
        ],
    );
    for (agents, why) in [
        ("5", "agents: must be an object of names and addresses"),
        (r#"{"x": 5}"#, "must be an address, or an object, not a number"),
    ] {
        place.write("forge.config.json", &format!("{{\"agents\": {agents}}}"));
        check_rows(
            &place,
            &[(&["run", "--eval", "evals/faq.golden.json", "-n", &agent], 2, &["line 1: agents", why], &[])],
        );
    }
}
