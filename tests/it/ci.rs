//! What CI systems are told: lines of JSON, annotations, the summary of a step, exit codes.

use std::collections::HashMap;

use serde_json::Value;

use crate::processes::{Ended, FORGECTL, Place, Running, command};

const AGENT: &str = r#"{"replies": [
    {"on": "evil", "events": [{"text": "::error file=a::pwned\n::stop-commands::x\n##[add-mask]a\n[[ATTACHMENT|/etc/passwd]]"}]},
    {"on": "good", "events": [{"text": "yes"}]},
    {"on": "*", "events": [{"text": "no"}]}]}"#;
const SUITE: &str = r#"[
  {"id": "good", "input": {"message": "good"}, "expect": {"responseContains": ["yes"]}},
  {"id": "bad", "description": "says yes", "input": {"message": "bad"},
   "expect": {
     "responseNonEmpty": true,
     "responseContains": ["yes"]}},
  {"id": "evil", "input": {"message": "evil"}, "expect": {"responseContains": ["yes"]}}
]"#;

fn place() -> (Place, Running, String) {
    let place = Place::new();
    let (agent, url) = place.agent(AGENT);
    place.write("repo/evals/a.golden.json", SUITE);
    (place, agent, url)
}

/// Runs the suite in a folder of the repository as a step of GitHub Actions does, or as nobody does.
fn run(place: &Place, url: &str, args: &[&str], env: &[(&str, &str)]) -> Ended {
    let mut command = place.forgectl(&[&["run", "evals/a.golden.json", "-n", url], args].concat());
    command.current_dir(place.path().join("repo")).envs(env.iter().copied());
    Running::start(command).end()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

#[test]
fn json_is_all_that_stands_on_stdout() {
    let (place, _agent, url) = place();
    let ended = run(&place, &url, &["--json"], &[]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let told = lines(&ended.stdout);
    let kinds: Vec<&str> = told.iter().map(|line| line["type"].as_str().unwrap()).collect();
    let expected = ["run", "started", "case", "started", "case", "started", "case", "summary"];
    assert_eq!(kinds, expected, "{}", ended.stdout);
    assert_eq!(
        (&told[4]["id"], &told[4]["outcome"], &told[4]["response"]),
        (&"bad".into(), &"failed".into(), &"no".into())
    );
    let summary = told.last().unwrap();
    assert_eq!((&summary["exit_code"], &summary["passed"], &summary["failed"]), (&1.into(), &1.into(), &2.into()));
    assert!(ended.stderr.contains("1/3 passed | 2 failed"), "people read stderr: {}", ended.stderr);

    // What kept the run from being one is a line, too, and so is what kept it from going on.
    let ended = place.run(&["run", "nothing.golden.json", "-n", &url, "--json"]);
    let told = lines(&ended.stdout);
    assert_eq!((ended.code, told.len()), (Some(2), 1), "{}", ended.stdout);
    assert_eq!((&told[0]["type"], &told[0]["exit_code"]), (&"error".into(), &2.into()));
    let ended = run(&place, "grpc://127.0.0.1:1", &["--json"], &[]);
    let told = lines(&ended.stdout);
    let last = told.last().unwrap();
    assert_eq!((ended.code, &last["type"], &last["exit_code"]), (Some(3), &"summary".into(), &3.into()), "{last}");
    assert!(last["error"].as_str().is_some_and(|error| error.contains("127.0.0.1:1")), "{last}");

    for args in [&["--json", "-o", "-"][..], &["-o", "-", "-o", "-"], &["--format", "html"], &["--json", "--dry-run"]] {
        let ended = run(&place, &url, args, &[]);
        assert_eq!(ended.code, Some(2), "{args:?} {}", ended.stderr);
        assert!(lines(&ended.stdout).iter().all(|line| line["type"] == "error"), "{args:?} {}", ended.stdout);
    }
}

#[test]
fn a_report_on_stdout_stands_there_alone() {
    let (place, _agent, url) = place();
    let ended = run(&place, &url, &["-o", "-"], &[]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let json: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {}", ended.stdout));
    assert_eq!((&json["summary"]["passed"], json["cases"].as_array().map(Vec::len)), (&1.into(), Some(3)));
    assert!(ended.stderr.contains("1/3 passed | 2 failed"), "{}", ended.stderr);
    for (format, begins) in [
        ("markdown", "<!-- forge-report -->\n## ❌ failed: 1 of 3"),
        ("xml", "<?xml "),
        ("html", "<!DOCTYPE html>"),
        ("jsonl", "{\"id\""),
    ] {
        let ended = run(&place, &url, &["-o", "-", "--format", format], &[]);
        assert!(ended.stdout.starts_with(begins), "{}", ended.stdout);
        let mut command = place.forgectl(&["report", "last", "-o", "-", "--format", format]);
        command.current_dir(place.path().join("repo"));
        let report = Running::start(command).end();
        assert!(
            report.code == Some(0) && report.stdout.starts_with(&begins[..5]),
            "{}{}",
            report.stdout,
            report.stderr
        );
        assert_eq!(obeyed(&ended.stdout), [""; 0], "{format}");
    }
    let ended = run(&place, &url, &["-o", "-", "--format", "docx"], &[]);
    assert!(
        ended.code == Some(2) && ended.stderr.contains("there are json, jsonl, junit, markdown, html"),
        "{}",
        ended.stderr
    );
}

/// What the runner of GitHub would obey of a log, by its `ActionCommand.cs`.
fn obeyed(log: &str) -> Vec<&str> {
    let words = ["error", "warning", "notice", "stop-commands", "add-mask", "add-path", "set-output", "group"];
    let is_word = |info: &str| words.contains(&info.split(' ').next().unwrap_or_default());
    let is_obeyed = |line: &&str| {
        let new = line.trim_start().strip_prefix("::").and_then(|rest| rest.split_once("::"));
        let old = line.split_once("##[").and_then(|(_, rest)| rest.split_once(']'));
        new.is_some_and(|(info, _)| is_word(info)) || old.is_some_and(|(info, _)| is_word(info))
    };
    log.lines().filter(is_obeyed).collect()
}

/// File, line and title of an annotation, and its text.
fn annotation(line: &str) -> (HashMap<String, String>, String) {
    let (info, text) = line.strip_prefix("::error ").and_then(|rest| rest.split_once("::")).expect("an error");
    let pairs = info.split(',').filter_map(|pair| pair.split_once('='));
    (pairs.map(|(key, value)| (key.to_owned(), value.replace("%3A", ":"))).collect(), text.replace("%0A", "\n"))
}

#[test]
fn github_is_told_at_file_and_line() {
    let (place, _agent, url) = place();
    let workspace = place.path().to_string_lossy().into_owned();
    let summary = place.write("summary.md", "before");
    let step = summary.to_string_lossy().into_owned();
    let env = [("GITHUB_ACTIONS", "true"), ("GITHUB_WORKSPACE", &*workspace), ("GITHUB_STEP_SUMMARY", &*step)];
    let ended = run(&place, &url, &[], &env);
    assert_eq!(ended.code, Some(1));
    assert_eq!(obeyed(&ended.stdout), [""; 0], "{}", ended.stdout);
    let ours = obeyed(&ended.stderr);
    assert_eq!(ours.len(), 2, "{}", ended.stderr);
    let (properties, text) = annotation(ours[0]);
    assert_eq!(
        (&*properties["file"], &*properties["line"]),
        ("repo/evals/a.golden.json", "6"),
        "that of the assertion"
    );
    assert_eq!(properties["title"], "bad: says yes");
    assert!(text.starts_with("responseContains: ") && text.ends_with("user: bad\nagent: no"), "{text}");
    let (properties, text) = annotation(ours[1]);
    assert_eq!((&*properties["line"], &*properties["title"]), ("7", "evil"));
    assert!(
        text.contains("agent: \\u{3a}:error file=a::pwned\n\\u{3a}:stop-commands::x\n\\u{23}#[add-mask]a"),
        "{text}"
    );
    let written = std::fs::read_to_string(&summary).unwrap();
    assert!(written.starts_with("before\n<!-- forge-report -->\n## ❌ failed: 1 of 3 cases passed"), "{written}");

    // A second step that has room takes it, and one that has none leaves what is there.
    std::fs::write(&summary, "x".repeat((1 << 20) - 100)).unwrap();
    let ended = run(&place, &url, &["--json"], &env);
    assert_eq!(std::fs::metadata(&summary).unwrap().len(), (1 << 20) - 100);
    assert!(ended.stderr.contains("GitHub takes 1 MiB for a step"), "{}", ended.stderr);
    lines(&ended.stdout);

    // Nobody is told who does not want to know.
    for (args, env) in [(&["--github=never"][..], &env[..]), (&[], &[]), (&[], &[("GITHUB_ACTIONS", "")])] {
        assert_eq!(obeyed(&run(&place, &url, args, env).stderr), [""; 0]);
    }
    assert_eq!(obeyed(&run(&place, &url, &["--github"], &[]).stderr).len(), 2);
    let ended = place.run(&["run", "nothing.golden.json", "-n", &url, "--github"]);
    assert_eq!((ended.code, obeyed(&ended.stderr).len()), (Some(2), 1), "{}", ended.stderr);
}

#[test]
fn what_fails_is_said() {
    let (place, _agent, url) = place();
    let run = |args: &[&str]| run(&place, &url, args, &[]);
    assert_eq!(run(&["--fail-on", "failed"]).code, Some(1));
    let never = run(&["--fail-on", "never"]);
    assert_eq!(never.code, Some(0), "{}", never.stderr);
    assert!(never.stderr.contains("exit code 0 with --fail-on never, whatever failed"), "{}", never.stderr);
    // What cannot be run, or judged, is nothing that anybody may pass over.
    let args = ["run", "evals/a.golden.json", "-n", "grpc://127.0.0.1:1", "--fail-on", "never"];
    let mut gone = place.forgectl(&args);
    gone.current_dir(place.path().join("repo"));
    assert_eq!(Running::start(gone).end().code, Some(3));
    assert_eq!(run(&["--fail-on", "never", "--run", "nothing"]).code, Some(4));

    let base = ["--baseline", "last"];
    let regressed = ["--fail-on", "regressed"];
    let ended = run(&regressed);
    assert!(ended.code == Some(2) && ended.stderr.contains("there is none"), "{}", ended.stderr);
    let ended = run(&[&regressed[..], &base, &["--min-pass-rate", "90%"]].concat());
    assert!(ended.code == Some(2) && ended.stderr.contains("both say when the run fails"), "{}", ended.stderr);
    assert_eq!(run(&[&regressed[..], &base, &["--fail-fast"]].concat()).code, Some(2));
    let ended = run(&[&regressed[..], &base].concat());
    assert_eq!(ended.code, Some(0), "what failed then may fail now: {}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("nothing failed that passed in the baseline"), "{}", ended.stderr);

    // Now `good` fails.
    place.write("repo/evals/a.golden.json", &SUITE.replacen("[\"yes\"]", "[\"oh\"]", 1));
    let ended = run(&[&regressed[..], &base, &["--github"]].concat());
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    let kinds: Vec<&str> = obeyed(&ended.stderr).into_iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(kinds, ["::error", "::warning", "::warning"], "{}", ended.stderr);
    // Of a suite that the baseline does not know nobody can tell.
    let results = std::fs::read_dir(place.path().join("repo/evals/results")).unwrap();
    let baseline = results.map(|entry| entry.unwrap().path()).max().unwrap();
    place.write("repo/other.golden.json", SUITE);
    let ended = run(&[
        "other.golden.json",
        "--run",
        "bad",
        "--baseline",
        &baseline.to_string_lossy(),
        "--fail-on",
        "regressed",
    ]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
}

#[test]
fn junit_names_the_page_for_gitlab() {
    let (place, _agent, url) = place();
    let project = place.path().join("repo");
    let env = [("CI_PROJECT_DIR", project.to_str().unwrap())];
    let args = ["-o", "out/r.xml", "-o", "out/page.html", "--label", "branch=main"];
    assert_eq!(run(&place, &url, &args, &env).code, Some(1));
    let text = std::fs::read_to_string(project.join("out/r.xml")).unwrap();
    assert_eq!(text.matches("[[ATTACHMENT|out/page.html]]").count(), 2, "{text}");
    assert_eq!(text.matches("[[ATTACHMENT").count(), 2, "none of the agent's: {text}");
    assert!(text.contains("<property name=\"label.branch\" value=\"main\"/>"), "{text}");
    assert!(text.contains("file=\"evals/a.golden.json\""), "{text}");
}

/// `gh api` as far as the action uses it, over a file of comments.
const GH: &str = r#"#!/usr/bin/env python3
import json, os, sys
import jq
args = sys.argv[2:]
take = lambda flag: args.pop(args.index(flag) + 1) if flag in args else None
method, field, query = take("--method") or "GET", take("--field"), take("--jq")
path = next(arg for arg in args if not arg.startswith("--"))
comments = json.load(open("comments.json"))
if os.environ.get("REFUSES") == method:
    sys.exit("HTTP 403")
if method == "GET":
    print("\n".join(json.dumps(found) for found in jq.compile(query).input_value(comments).all()))
else:
    body = open(field.removeprefix("body=@")).read()
    if method == "PATCH":
        next(it for it in comments if path.endswith(f"/issues/comments/{it['id']}"))["body"] = body
    else:
        assert path == "repos/o/r/issues/7/comments", path
        comments.append({"id": len(comments) + 1, "user": {"login": "github-actions[bot]"}, "body": body})
    json.dump(comments, open("comments.json", "w"))
"#;

/// The scripts of the action, as GitHub runs them: with the inputs in the environment, and files for what they say.
struct Action<'a> {
    place: &'a Place,
    env: Vec<(&'static str, String)>,
}

impl<'a> Action<'a> {
    fn new(place: &'a Place) -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let gh = place.write("bin/gh", GH);
        std::fs::set_permissions(gh, std::fs::Permissions::from_mode(0o755)).unwrap();
        place.write("comments.json", "[]");
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let programs = std::path::Path::new(FORGECTL).parent().unwrap();
        let python = root.join("target/ci/python/bin");
        assert!(python.join("python3").exists(), "scripts/setup-ci.sh sets up what this test needs");
        let path = [place.path().join("bin"), programs.to_owned(), python, "/usr/bin".into(), "/bin".into()];
        let file = |name: &str| place.path().join(name).display().to_string();
        let env = vec![
            ("PATH", std::env::join_paths(path).unwrap().into_string().unwrap()),
            ("GITHUB_ACTIONS", "true".to_owned()),
            ("GITHUB_ACTION_PATH", root.display().to_string()),
            ("GITHUB_OUTPUT", file("output")),
            ("GITHUB_PATH", file("path")),
            ("GITHUB_REPOSITORY", "o/r".to_owned()),
            ("RUNNER_TEMP", file("temp")),
            ("FORGE_FAIL_ON", "failed".to_owned()),
            ("FORGE_BASELINE", String::new()),
            ("FORGE_COMMENT_NAME", String::new()),
            ("FORGE_COMMENT_AUTHOR", "github-actions[bot]".to_owned()),
            ("FORGE_PULL_REQUEST", "7".to_owned()),
            ("FORGE_REPORT", file("temp/forge/forge.md")),
        ];
        Self { place, env }
    }

    /// Runs a step, and gives how it ended with what it says for later ones.
    fn step(&self, name: &str, env: &[(&str, &str)]) -> (Ended, String) {
        let _ = std::fs::remove_file(self.place.path().join("output"));
        let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/action").join(name);
        let mut command = command("bash", self.place.path());
        command.arg(script).envs(self.env.iter().map(|(key, value)| (key, value))).envs(env.iter().copied());
        let ended = Running::start(command).end();
        (ended, std::fs::read_to_string(self.place.path().join("output")).unwrap_or_default())
    }

    fn comments(&self) -> Vec<(i64, String)> {
        let comments = self.place.json("comments.json");
        let told = |it: &Value| (it["id"].as_i64().unwrap(), it["body"].as_str().unwrap().to_owned());
        comments.as_array().unwrap().iter().map(told).collect()
    }
}

#[test]
fn the_action_runs_what_it_is_given_and_keeps_one_comment() {
    let (place, _agent, url) = place();
    let action = Action::new(&place);
    let (found, said) = action.step("find.sh", &[]);
    assert_eq!((found.code, said.as_str()), (Some(0), "found=true\n"), "{}", found.stderr);
    let run = |args: &str, env: &[(&str, &str)]| {
        let (ended, said) = action.step("run.sh", &[&[("FORGE_ARGS", args)], env].concat());
        assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
        let code = said.lines().find_map(|line| line.strip_prefix("exit-code=")).unwrap().to_owned();
        (code, format!("{}{}", ended.stdout, ended.stderr))
    };
    let comment = |env: &[(&str, &str)]| {
        let (ended, _) = action.step("comment.sh", env);
        assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
        ended.stdout
    };
    let args = format!(
        "repo/evals/a.golden.json\n -n faq --agent 'faq={url}' --run \"^(good|bad)$\" --label 'x=$(touch pwned) `id`'"
    );
    assert_eq!(run(&args, &[]).0, "1");
    assert!(!place.path().join("pwned").exists(), "no shell reads what is given");
    for name in ["forge.json", "forge.md", "forge.html", "forge.xml"] {
        assert!(place.path().join("temp/forge").join(name).exists(), "{name}");
    }
    assert_eq!(comment(&[]), "");
    let first = action.comments();
    assert!(first.len() == 1 && first[0].1.starts_with("<!-- forge-report: faq -->\n## ❌"), "{first:?}");

    // Somebody else repeats the marker, and an agent says it: neither is the comment that is looked for.
    let fake = serde_json::json!([
        {"id": 1, "user": {"login": "mallory"}, "body": first[0].1},
        {"id": 2, "user": {"login": "github-actions[bot]"}, "body": "other\n<!-- forge-report: faq -->"},
        {"id": 3, "user": {"login": "github-actions[bot]"}, "body": "<!-- forge-report: faq -->\r\nold"},
    ]);
    place.write("comments.json", &fake.to_string());
    assert_eq!(run(&args.replace("|bad", ""), &[]).0, "0");
    comment(&[]);
    let now = action.comments();
    assert_eq!((now.len(), &now[0].1), (3, &first[0].1));
    assert!(now[2].1.contains("## ✅ passed: 1 of 1 case"), "{now:?}");
    assert_eq!(run(&args, &[("FORGE_COMMENT_NAME", "nightly")]).0, "1");
    comment(&[]);
    assert!(action.comments().len() == 4 && action.comments()[3].1.starts_with("<!-- forge-report: nightly -->\n"));
    assert!(comment(&[("REFUSES", "PATCH")]).contains("::warning title=Forge::the comment on the pull request cannot"));
    assert!(comment(&[("REFUSES", "GET")]).contains("::warning "));

    // While there is no baseline, every failure counts.
    let env = [("FORGE_FAIL_ON", "regressed"), ("FORGE_BASELINE", "baseline.json")];
    let (code, told) = run(&args, &env);
    assert!(code == "1" && told.contains("::notice title=Forge::there is no baseline yet"), "{told}");
    std::fs::copy(place.path().join("temp/forge/forge.json"), place.path().join("baseline.json")).unwrap();
    let (code, told) = run(&args, &env);
    assert_eq!(code, "0", "{told}");
    // What cannot be run leaves no report, and no comment.
    let (code, told) = run("nothing.golden.json -n faq", &[]);
    assert!(code == "2" && told.contains("::error title=Forge::"), "{told}");
    let before = action.comments();
    comment(&[]);
    assert_eq!(action.comments(), before);
}
