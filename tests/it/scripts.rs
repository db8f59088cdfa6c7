//! Scripts that judge answers, through real workers: what they may do, what stops them, and where they went wrong.

use crate::processes::{DAEMON, Place, Running, command};
use crate::support::fake::Script;

/// A suite of one case a script, each named like its script.
fn suite(names: &[&str]) -> String {
    let case = |name: &&str| {
        format!(
            "{{\"id\": \"{name}\", \"input\": \"hi\", \"assertions\": [{{\"type\": \"script\", \"use\": \"scripts:{name}\", \
             \"options\": {{\"metadata\": {{\"min\": 100}}}}}}]}}"
        )
    };
    names.iter().map(case).collect::<Vec<_>>().join("\n")
}

fn agent() -> crate::support::fake::Fake {
    Script::new(|_| Ok("Submitted: $3500".to_owned())).start()
}

fn lines(place: &Place) -> std::collections::HashMap<String, serde_json::Value> {
    let text = std::fs::read_to_string(place.path().join("r.jsonl")).expect("lines");
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    lines.map(|line| (line["id"].as_str().expect("an id").to_owned(), line)).collect()
}

#[test]
fn scripts_judge() {
    let place = Place::new();
    let agent = agent();
    for (name, text) in [
        ("scripts/yes.ts", "export default (output: string) => output.includes('3500')"),
        (
            "scripts/tests/rich.ts",
            "import { amount, type Amount } from './lib/amount'; import { Types } from 'types';\n\
             interface Options { metadata: { min: number } }\n\
             enum Verdict { Low, Fine }\n\
             export async function Validate(output: string, input: string, options: Options, evidence: any) {\n\
             \x20 const found = amount(output) as Amount | Types;\n\
             \x20 console.log('found', { found }, input);\n\
             \x20 const verdict: Verdict = (await Promise.resolve(found)) >= options.metadata.min ? Verdict.Fine : Verdict.Low;\n\
             \x20 return { passed: verdict === Verdict.Fine && evidence.messages[0].content === 'hi' && input === 'hi',\n\
             \x20   reason: 'enough', score: 0.75 } satisfies object;\n\
             }\n",
        ),
        ("scripts/tests/lib/amount.js", "export const amount = (text) => Number(/\\$(\\d+)/.exec(text)[1]);\n"),
        ("scripts/no.js", "export function Validate() { return { pass: false, message: 'too small' }; }"),
        ("scripts/neither.js", "export default () => 'yes'"),
        (
            "scripts/throws.ts",
            "type T = number;\n\n// A comment.\nfunction deep(x: T): T {\n  throw new TypeError('boom ' + x);\n}\nexport default () => deep(1 as T);\n",
        ),
        ("scripts/never.js", "export default () => new Promise(() => {})"),
    ] {
        place.write(name, text);
    }
    let names = ["yes", "tests.rich", "no", "neither", "throws", "never"];
    place.write("evals/deep/t.jsonl", &suite(&names));
    let ended = place.run(&["run", "evals/deep/t.jsonl", "-n", &agent.url, "-o", "r.jsonl"]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    let lines = lines(&place);
    for (name, outcome, reason) in [
        ("yes", "passed", ""),
        ("tests.rich", "passed", ""),
        ("no", "failed", "too small"),
        ("neither", "errored", "it answered \"yes\", and neither true or false nor an object with `passed`"),
        ("throws", "errored", "the script \"throws\" failed: TypeError: boom 1 (scripts/throws.ts:5:"),
        ("never", "errored", "the promise that it returned never settles"),
    ] {
        let line = &lines[name];
        assert_eq!(line["outcome"], outcome, "{line}");
        let said = line["assertions"][0]["reason"].as_str().unwrap_or_default();
        assert!(said.contains(reason), "{name}: {said}");
        if outcome == "errored" {
            assert_eq!((&line["cause"], &line["blame"]), (&"script_error".into(), &"script".into()), "{line}");
        }
    }
    let rich = &lines["tests.rich"]["assertions"][0];
    assert_eq!(rich["score"], 0.75, "{rich}");
    assert_eq!(rich["console"][0], "found {\"found\":3500} hi", "{rich}");
}

#[test]
fn what_is_wrong_with_scripts_is_told_before_anything_runs() {
    let agent = agent();
    for (file, text, code, why) in [
        ("scripts/a.ts", "export default () => {\n  return true;\n", 2, "scripts/a.ts, line 3"),
        ("scripts/a.ts", "import fs from 'fs';\nexport default () => fs;", 2, "line 1: cannot import \"fs\""),
        ("scripts/a.ts", "import { x } from './b';\nexport default () => x;", 2, "there is no scripts/b.ts or .js"),
        ("scripts/a.ts", "import { x } from '../b';\nexport default () => x;", 2, "it leads out of scripts/"),
        ("scripts/a.ts", "export const Check = 1;", 2, "scripts/a.ts exports Check, and neither default nor Validate"),
        ("scripts/other.ts", "export default () => true", 3, "there is no script a"),
        ("other.ts", "export default () => true", 3, "there is no script \"a\" in"),
    ] {
        let place = Place::new();
        place.write(file, text);
        place.write("t.jsonl", &suite(&["a"]));
        let ended = place.run(&["run", "t.jsonl", "-n", &agent.url]);
        assert_eq!(ended.code, Some(code), "{text}: {}{}", ended.stdout, ended.stderr);
        let all = format!("{}{}", ended.stdout, ended.stderr);
        assert!(all.contains(why), "{text}: {all}");
        let ended = place.run(&["check", "t.jsonl"]);
        assert_eq!(ended.code, Some(2), "{text}: {}{}", ended.stdout, ended.stderr);
    }
}

/// What overflows or fills a parser ends neither the daemon nor the client: it is told as what is wrong with its file.
/// Each text in its own way: nested, in one chain of many, in an order that makes trees of its parts, with many names.
#[test]
fn no_text_ends_the_program_that_reads_it() {
    let place = Place::new();
    let mut daemon = command(DAEMON, place.path());
    daemon.args(["--listen", "127.0.0.1:0", "--data-dir", "data"]);
    let mut daemon = Running::start(daemon);
    let url = format!("http://{}", daemon.address());
    let texts = [
        format!("export default () => {}1", "typeof\u{a0}".repeat(400_000)),
        format!("namespace {}b {{ export const x = 1 }}\nexport default () => true", "a.".repeat(49_500)),
        format!("export default () => 1{};", "\u{a0}as\u{a0}any".repeat(200_000)),
    ];
    let agent = agent();
    place.write("t.jsonl", &suite(&["a"]));
    for (number, text) in texts.iter().enumerate() {
        place.write("scripts/a.ts", text);
        place.write("tools.ts", text);
        // Whatever comes of it, somebody is there to say it: the client that packs it, and the daemon that reads it
        // again.
        let ended = place.run(&["run", "t.jsonl", "-n", &agent.url, "--daemon", &url, "--registry", "tools.ts"]);
        assert!(ended.code.is_some_and(|code| (0..=4).contains(&code)), "{number}: {ended:?}");
    }
    place.write("scripts/a.ts", "export default () => true");
    let ended = place.run(&["run", "t.jsonl", "-n", &agent.url, "--daemon", &url]);
    assert_eq!(ended.code, Some(0), "the daemon is there: {ended:?}");
    // What a chain of many comes to is told with its file.
    place.write("scripts/a.ts", &texts[0]);
    let ended = place.run(&["check", "t.jsonl"]);
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert!(ended.code == Some(2) && said.contains("scripts/a.ts: it is nested too deep"), "{ended:?}");
}

/// Each script attacks in its own way; all are stopped, and say why, and the case beside them passes. The first
/// line of each is what may be said of it. The daemon itself keeps to the memory that a script has, and a little
/// more.
#[test]
fn hostile_scripts_are_stopped() {
    let place = Place::new();
    let mut attacks: Vec<(String, Vec<String>)> = Vec::new();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attacks");
    for entry in std::fs::read_dir(folder).expect("attacks") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("an attack");
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        place.write(&format!("scripts/{name}.js"), &text);
        let first = text.lines().next().unwrap_or_default().trim_start_matches("// ");
        attacks.push((name, first.split(" | ").map(str::to_owned).collect()));
    }
    assert!(attacks.len() >= 26, "only {} attacks", attacks.len());
    place.write("scripts/neighbour.js", "export default (output) => output.length > 0");
    let names: Vec<&str> = attacks.iter().flat_map(|(name, _)| [name.as_str(), "neighbour"]).collect();
    let text: Vec<String> = names
        .iter()
        .enumerate()
        .map(|(index, name)| {
            suite(&[name]).replace(&format!("\"id\": \"{name}\""), &format!("\"id\": \"{name}-{index}\""))
        })
        .collect();
    place.write("t.jsonl", &text.join("\n"));
    let agent = agent();
    place.write("forge.toml", "script_cpu = '500ms'");
    let mut daemon = command(DAEMON, place.path());
    daemon.args(["--listen", "127.0.0.1:0", "--data-dir", "data", "--config", "forge.toml"]);
    let mut daemon = Running::start(daemon);
    let url = format!("http://{}", daemon.address());
    let args = ["run", "t.jsonl", "-n", &agent.url, "-o", "r.jsonl", "--parallel", "8", "-q", "--daemon", &url];
    let ended = place.run(&args);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    #[cfg(target_os = "linux")]
    {
        let peak = daemon.peak_memory();
        assert!(peak < (64 + 32) << 20, "the daemon took {} MiB", peak >> 20);
    }
    let lines = lines(&place);
    let mut wrong = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let line = &lines[&format!("{name}-{index}")];
        let said = line["assertions"][0]["reason"].as_str().unwrap_or_default();
        let is_right = match attacks.iter().find(|(attack, _)| attack == name) {
            None => line["outcome"] == "passed",
            Some((_, reasons)) => line["outcome"] == "errored" && reasons.iter().any(|reason| said.contains(reason)),
        };
        if !is_right {
            wrong.push(format!("{name}: {} {}", line["outcome"], said.chars().take(300).collect::<String>()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The vectors with scripts, end to end: each recorded answer becomes a script that gives it.
#[test]
fn the_vectors_through_real_workers() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("vectors") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if !name.starts_with("framework-") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("vectors");
        let vectors: Vec<serde_json::Value> = serde_json::from_str(&text).expect("JSON");
        for vector in vectors.iter().filter(|vector| vector["given"]["scripts"].is_object()) {
            through_workers(vector);
            count += 1;
        }
    }
    assert!(count >= 7, "only {count} vectors have scripts");
}

fn through_workers(vector: &serde_json::Value) {
    let (id, given, expect) = (&vector["id"], &vector["given"], &vector["expect"]);
    let place = Place::new();
    for (name, answer) in given["scripts"].as_object().expect("scripts") {
        let body = match answer.get("error") {
            Some(error) => format!("throw new Error({error})"),
            None => format!("return {answer}"),
        };
        let path = format!("scripts/{}.ts", name.replace('.', "/"));
        place.write(&path, &format!("export default (output: string): unknown => {{ {body} }}\n"));
    }
    place.write("t.jsonl", &given["case"].to_string());
    let answer = given["response"]["response"].as_str().expect("a response").to_owned();
    let agent = Script::new(move |_| Ok(answer.clone())).start();
    let ended = place.run(&["run", "t.jsonl", "-n", &agent.url, "-o", "r.jsonl"]);
    if expect["loadError"] == true {
        assert_eq!(ended.code, Some(2), "{id}: {}{}", ended.stdout, ended.stderr);
        return;
    }
    let line = lines(&place).into_values().next().expect("a line");
    assert_eq!(line["status"], expect["status"], "{id}: {line}");
    for (index, assertion) in expect["assertions"].as_array().expect("assertions").iter().enumerate() {
        assert_eq!(line["assertions"][index]["passed"], assertion["passed"], "{id}: {line}");
    }
    if let Some(errors) = expect.get("assertion_errors") {
        assert_eq!(&line["assertion_errors"], errors, "{id}: {line}");
    }
    if let Some(count) = expect["assertion_errors_count"].as_u64() {
        let errors = line["assertion_errors"].as_array().map_or(0, Vec::len) as u64;
        assert_eq!(errors, count, "{id}: {line}");
    }
}
