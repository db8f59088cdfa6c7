//! A suite is more than its tool's name: suites that share one are told apart in baselines, gates, reports and
//! histories, by a real server and the real client.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::processes::{Ended, Place};
use crate::support::fake::{Fake, Script};

/// Cases with these ids; each sends what it is called, with its suite before it.
fn cases(suite: &str, ids: &[&str]) -> String {
    let case = |id: &&str| {
        format!(
            r#"{{"id": "{id}", "input": {{"message": "{suite} {id}"}}, "expect": {{"responseContains": ["fine"]}}}}"#
        )
    };
    format!("[{}]", ids.iter().map(case).collect::<Vec<_>>().join(",\n "))
}

/// An agent that answers well but to these messages, of which it knows the beginning.
fn agent(bad: &[&str]) -> Fake {
    let bad: Vec<String> = bad.iter().map(|bad| (*bad).to_owned()).collect();
    Script::new(move |asked| {
        let is_bad = bad.iter().any(|bad| asked.text.starts_with(bad.as_str()));
        Ok(if is_bad { "no" } else { "fine" }.to_owned())
    })
    .start()
}

fn run(place: &Place, agent: &Fake, args: &[&str]) -> Ended {
    let named = format!("shop={}", agent.url);
    place.run(&[&["run", "-n", "shop", "--agent", &named, "-o", "r.json"], args].concat())
}

/// What the comparison of each suite says, by the path of the suite.
fn compared(result: &Value) -> BTreeMap<String, [Value; 5]> {
    let suites = result["suites"].as_array().cloned().unwrap_or_else(|| vec![result.clone()]);
    let of = |suite: &Value| {
        let keys = ["regressions", "newPasses", "newCases", "vanishedCases", "notJudged"];
        (suite["suite"].as_str().expect("a path").to_owned(), keys.map(|key| suite[key].clone()))
    };
    suites.iter().map(of).collect()
}

/// One case of each got worse, and better.
fn one_of_each(shop: &str, stock: &str) -> BTreeMap<String, [Value; 5]> {
    BTreeMap::from([
        (shop.to_owned(), [json!(["c1"]), json!([]), json!([]), json!([]), json!([])]),
        (stock.to_owned(), [json!([]), json!(["c1"]), json!([]), json!([]), json!([])]),
    ])
}

const SHOP: &str = "shop/evals/smoke.golden.json";
const STOCK: &str = "stock/evals/smoke.golden.json";

fn two_suites(place: &Place) {
    place.write(SHOP, &cases("shop", &["c1", "c2"]));
    place.write(STOCK, &cases("stock", &["c1", "c2"]));
}

fn keep(place: &Place, name: &str) {
    std::fs::copy(place.path().join("r.json"), place.path().join(name)).expect("a result");
}

#[test]
fn two_files_of_one_name_are_compared_each_with_itself() {
    let place = Place::new();
    two_suites(&place);
    let (before, now) = (agent(&["stock c1"]), agent(&["shop c1"]));
    let (_daemon, url) = place.daemon();
    let both = ["shop/evals", "stock/evals", "--daemon", &url];
    let ended = run(&place, &before, &both);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    keep(&place, "before.json");
    let id = place.json("before.json")["runId"].as_str().expect("an id").to_owned();
    let expected = one_of_each(SHOP, STOCK);
    let compare = |baseline: &str, more: &[&str]| {
        let args = [&both[..], &["--baseline", baseline, "--output-dir", "elsewhere"], more].concat();
        let ended = run(&place, &now, &args);
        assert_eq!(compared(&place.json("r.json")), expected, "{baseline}: {}{}", ended.stdout, ended.stderr);
        assert!(!ended.stdout.contains("another path"), "{}", ended.stdout);
        std::fs::remove_dir_all(place.path().join("elsewhere")).expect("results");
    };
    compare("before.json", &[]);
    compare(&id, &[]);
    // From the directory of results.
    let ended =
        run(&place, &now, &["shop/evals", "stock/evals", "--baseline", "last", "--output-dir", "evals/results"]);
    assert_eq!(compared(&place.json("r.json")), expected, "{}{}", ended.stdout, ended.stderr);
    // From the daemon, in another order.
    run(&place, &before, &["stock/evals", "shop/evals", "--daemon", &url, "--output-dir", "other"]);
    compare("last", &["--parallel", "4"]);
    // One of them alone is compared with itself, too.
    run(&place, &before, &both);
    run(&place, &now, &["stock/evals", "--daemon", &url, "--baseline", "last", "--output-dir", "elsewhere"]);
    let alone = compared(&place.json("r.json"));
    assert_eq!(alone, one_of_each("", STOCK).into_iter().filter(|(path, _)| path == STOCK).collect(), "{alone:?}");
}

#[test]
fn what_failed_in_one_is_not_run_of_the_other() {
    let place = Place::new();
    two_suites(&place);
    let (_daemon, url) = place.daemon();
    let both = ["shop/evals", "stock/evals", "--daemon", &url];
    run(&place, &agent(&["stock c1"]), &both);
    keep(&place, "before.json");
    let id = place.json("before.json")["runId"].as_str().expect("an id").to_owned();
    for before in ["before.json", &id] {
        let asked = agent(&[]);
        let ended = run(&place, &asked, &[&both[..], &["--failed", before]].concat());
        assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
        let asked: Vec<String> = asked.asked().into_iter().map(|asked| asked.text).collect();
        assert_eq!(asked, ["stock c1"], "{before}");
    }
    // The files moved: the same bytes are the same suite.
    place.write("a/smoke.golden.json", &cases("stock", &["c1", "c2"]));
    place.write("b/smoke.golden.json", &cases("shop", &["c1", "c2"]));
    std::fs::remove_dir_all(place.path().join("shop")).expect("removes");
    std::fs::remove_dir_all(place.path().join("stock")).expect("removes");
    for before in ["before.json", &id] {
        let asked = agent(&[]);
        run(&place, &asked, &["a", "b", "--daemon", &url, "--failed", before]);
        let asked: Vec<String> = asked.asked().into_iter().map(|asked| asked.text).collect();
        assert_eq!(asked, ["stock c1"], "{before}");
    }
    // A result of an earlier version names no paths.
    let mut old = place.json("before.json");
    for suite in old["suites"].as_array_mut().expect("suites") {
        suite.as_object_mut().expect("a suite").remove("suite");
    }
    place.write("old.json", &old.to_string());
    let asked = agent(&[]);
    run(&place, &asked, &["b", "a", "--failed", "old.json"]);
    let asked: Vec<String> = asked.asked().into_iter().map(|asked| asked.text).collect();
    assert_eq!(asked, ["stock c1"]);
}

#[test]
fn a_gate_looks_at_each_suite() {
    let place = Place::new();
    let ids: Vec<String> = (0..12).map(|number| format!("c{number}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    place.write(SHOP, &cases("shop", &ids));
    place.write(STOCK, &cases("stock", &ids));
    run(&place, &agent(&["stock"]), &["shop", "stock"]);
    keep(&place, "before.json");
    let against = |agent: &Fake, more: &[&str]| {
        let gate = ["shop", "stock", "--baseline", "before.json", "--max-regression", "5%"];
        run(&place, agent, &[&gate[..], more].concat())
    };
    let ended = against(&agent(&["shop"]), &["-o", "r.md", "-o", "r.html"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("✗ the gate was not passed"), "{}", ended.stdout);
    for path in [SHOP, STOCK] {
        assert!(ended.stdout.contains(&format!("═\n  {path}\n")), "two have one name: {}", ended.stdout);
    }
    let reason = "shop/evals/smoke.golden.json regressed: 12 of 12 (100.0 %) passed in the baseline, 0 of ";
    assert!(ended.stdout.contains(reason), "{}", ended.stdout);
    let gate = place.json("r.json")["suites"][0]["gate"].clone();
    let answers: Vec<_> =
        gate["suites"].as_array().expect("suites").iter().map(|suite| (&suite["suite"], &suite["answer"])).collect();
    assert_eq!(answers[0], (&json!(SHOP), &json!("regressed")), "{gate}");
    for file in ["r.md", "r.html"] {
        let text = std::fs::read_to_string(place.path().join(file)).expect("a report");
        assert!(text.contains(reason), "{file}: {text}");
    }
    // A large suite does not hide a small one, either: what fell that much cannot be passed over.
    let few = ["a", "b", "c", "d"];
    let many: Vec<String> = (0..400).map(|number| format!("m{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    place.write(SHOP, &cases("shop", &few));
    place.write(STOCK, &cases("stock", &many));
    run(&place, &agent(&["stock m39"]), &["shop", "stock", "--parallel", "8"]);
    keep(&place, "before.json");
    let ended = against(&agent(&["shop"]), &["--parallel", "8"]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    let reason =
        "cannot tell whether shop/evals/smoke.golden.json regressed: 4 of 4 (100.0 %) passed in the baseline, 0 of 4 ";
    assert!(ended.stdout.contains(reason), "{}", ended.stdout);
    // Nothing fell: the whole decides, as small as one of them is.
    let ended = against(&agent(&["stock m39"]), &["--parallel", "8"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
}

/// Consumers of JUnit know a test by classname and name.
#[test]
fn names_in_junit_are_unique() {
    let place = Place::new();
    let ids = ["a", "a #2", "b"];
    let lines = |suite: &str| {
        let line = |id: &&str| {
            format!(
                "{{\"id\": \"{id}\", \"input\": \"{suite} {id}\", \"assertions\": [{{\"type\": \"contains\", \"value\": \"fine\"}}]}}\n"
            )
        };
        ids.iter().map(line).collect::<String>()
    };
    place.write("shop/evals/smoke.golden.json", &cases("shop", &ids));
    place.write("stock/evals/smoke.golden.json", &cases("stock", &ids));
    place.write("stock/evals/smoke.golden.jsonl", &lines("lines"));
    place.write("stock.evals/smoke.golden.json", &cases("dots", &ids));
    let ended =
        run(&place, &agent(&[]), &["shop", "stock", "stock.evals", "--runs", "3", "-o", "r.xml", "-o", "r.html"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let text = std::fs::read_to_string(place.path().join("r.xml")).expect("XML");
    let document = roxmltree::Document::parse(&text).expect("XML");
    let names = |tag: &str, attributes: &[&str]| {
        let nodes = document.descendants().filter(|node| node.has_tag_name(tag));
        let name = |node: roxmltree::Node<'_, '_>| {
            attributes.iter().map(|name| node.attribute(*name).expect("a name").to_owned()).collect::<Vec<_>>()
        };
        nodes.map(name).collect::<Vec<_>>()
    };
    for (tag, attributes, number) in [("testcase", &["classname", "name"][..], 36), ("testsuite", &["name"], 4)] {
        let all = names(tag, attributes);
        let different: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!((all.len(), different.len()), (number, number), "{all:?}");
    }
    assert_eq!(names("testcase", &["classname"])[0], [SHOP]);
    let page = std::fs::read_to_string(place.path().join("r.html")).expect("a page");
    let ids: Vec<&str> = page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let different: std::collections::HashSet<_> = ids.iter().collect();
    assert_eq!((different.len(), ids.len() > 36), (ids.len(), true), "{ids:?}");
}

/// A suite that is somewhere else, has another name or another text is still the same.
#[test]
fn a_suite_that_was_moved_renamed_or_edited() {
    let place = Place::new();
    two_suites(&place);
    run(&place, &agent(&["stock c1"]), &["shop", "stock"]);
    keep(&place, "before.json");
    let now = agent(&["shop c1"]);
    let compare = |args: &[&str], baseline: &str| {
        let ended = run(&place, &now, &[args, &["--baseline", baseline, "--output-dir", "elsewhere"]].concat());
        (compared(&place.json("r.json")), ended.stdout + &ended.stderr)
    };
    // Only moved: the bytes say which is which, and that they moved is said.
    for (from, to) in [("shop", "one/x"), ("stock", "two/y")] {
        std::fs::create_dir_all(place.path().join(to)).expect("a folder");
        let file = format!("{to}/smoke.golden.json");
        std::fs::rename(place.path().join(from).join("evals/smoke.golden.json"), place.path().join(file))
            .expect("moves");
    }
    let moved = one_of_each("one/x/smoke.golden.json", "two/y/smoke.golden.json");
    for baseline in ["before.json", "last"] {
        let ended = run(&place, &now, &["two", "one", "--baseline", baseline]);
        assert_eq!(compared(&place.json("r.json")), moved, "{baseline}: {}{}", ended.stdout, ended.stderr);
        let said = format!("another path of the eval file ({SHOP}, now one/x/smoke.golden.json)");
        assert!(ended.stdout.contains(&said), "{}", ended.stdout);
        std::fs::remove_dir_all(place.path().join("evals/results")).expect("results");
        run(&place, &agent(&["stock c1"]), &["one", "two"]);
        let mut early = place.json("r.json");
        for (suite, path) in early["suites"].as_array_mut().expect("suites").iter_mut().zip([SHOP, STOCK]) {
            suite["suite"] = json!(path);
            place.write(&format!("evals/results/{}.json", path.replace('/', "-")), &suite.to_string());
        }
        for entry in std::fs::read_dir(place.path().join("evals/results")).expect("results") {
            let path = entry.expect("an entry").path();
            if path.display().to_string().contains("smoke.golden.0") {
                std::fs::remove_file(path).expect("removes");
            }
        }
    }
    // Renamed and edited: the cases say which it is.
    std::fs::remove_dir_all(place.path().join("one")).expect("removes");
    place.write("one/fast.golden.json", &cases("shop", &["c1", "c2", "c3"]));
    let (found, told) = compare(&["one"], "before.json");
    let changes = [json!(["c1"]), json!([]), json!(["c3"]), json!([]), json!([])];
    assert_eq!(found, BTreeMap::from([("one/fast.golden.json".to_owned(), changes)]), "{told}");
    // Another suite of the same tool that was there all the time is no moved one.
    two_suites(&place);
    run(&place, &agent(&["stock c1"]), &["shop", "stock"]);
    keep(&place, "before.json");
    place.write("depot/smoke.golden.json", &cases("depot", &["c1", "c2"]));
    for baseline in ["before.json", "last"] {
        let _ = std::fs::remove_dir_all(place.path().join("elsewhere"));
        run(&place, &agent(&["stock c1"]), &["shop", "stock", "--output-dir", "elsewhere"]);
        let (found, told) = compare(&["depot", "stock"], baseline);
        let new = &found["depot/smoke.golden.json"];
        assert_eq!((&new[0], &new[2]), (&json!([]), &json!([])), "{baseline}: {told}");
        assert_eq!(found[STOCK][1], json!(["c1"]), "{baseline}: {told}");
        assert!(
            told.contains("and depot/smoke.golden.json is about \"smoke\" (golden): nothing is compared"),
            "{told}"
        );
    }
}

/// However a path is written, and wherever a run is started from, a suite of a repository has one name.
#[test]
fn a_suite_has_one_name() {
    let place = Place::new();
    two_suites(&place);
    std::fs::create_dir_all(place.path().join("tools")).expect("a folder");
    let path_of = |folder: &str, args: &[&str]| {
        let mut command = place.forgectl(&[&["run", "--dry-run", "-n", "grpc://127.0.0.1:1"], args].concat());
        command.current_dir(place.path().join(folder));
        let ended = crate::processes::Running::start(command).end();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let suite =
            |line: &str| serde_json::from_str::<Value>(line).expect("JSON")["suite"].as_str().expect("one").to_owned();
        let mut suites: Vec<String> = ended.stdout.lines().map(suite).collect();
        suites.dedup();
        suites
    };
    let shop = place.path().join(SHOP).display().to_string();
    // Not in the order in which they are named, nor in how.
    assert_eq!(path_of("tools", &["../shop/evals", "../stock/evals"]), [SHOP, STOCK]);
    assert_eq!(path_of("tools", &["../stock/evals", "../shop/evals"]), [STOCK, SHOP]);
    assert_eq!(path_of("tools", &[&shop]), [SHOP]);
    assert_eq!(path_of("", &["tools/../shop/evals", &shop, "./shop/evals/smoke.golden.json", SHOP]), [SHOP]);
    assert_eq!(path_of("shop", &["evals"]), ["evals/smoke.golden.json"]);
    std::fs::create_dir_all(place.path().join(".git")).expect("a folder");
    assert_eq!(path_of("shop", &["evals"]), [SHOP], "a repository is known by its .git");
    assert_eq!(path_of("stock/evals", &["smoke.golden.json"]), [STOCK]);
}

/// Results of versions that named no paths can be compared with, too.
#[test]
fn old_results_name_no_paths() {
    let place = Place::new();
    let both = |tool: &str, one: &[&str], two: &[&str]| {
        let wrap = |cases: String| format!(r#"{{"metadata": {{"toolName": "{tool}"}}, "cases": {cases}}}"#);
        place.write("x.golden.json", &wrap(cases("x", one)));
        place.write("y.golden.json", &wrap(cases("y", two)));
    };
    both("t", &["c1", "c2"], &["c1", "c2"]);
    run(&place, &agent(&["y c1"]), &["x.golden.json", "y.golden.json"]);
    let mut old = place.json("r.json");
    for suite in old["suites"].as_array_mut().expect("suites") {
        suite.as_object_mut().expect("a suite").remove("suite");
    }
    place.write("old.json", &old.to_string());
    let now = agent(&["x c1"]);
    let ended = run(&place, &now, &["y.golden.json", "x.golden.json", "--baseline", "old.json"]);
    let expected = one_of_each("x.golden.json", "y.golden.json");
    assert_eq!(compared(&place.json("r.json")), expected, "by their hash: {}{}", ended.stdout, ended.stderr);
    // Edited: the one that shares more cases is the same.
    both("t", &["p", "q", "c1"], &["c1", "c2", "d"]);
    let ended = run(&place, &now, &["x.golden.json", "y.golden.json", "--baseline", "old.json"]);
    let found = compared(&place.json("r.json"));
    assert_eq!(found["y.golden.json"][3], json!([]), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(found["x.golden.json"][3], json!(["c2"]), "each is used once: {found:?}");
}

/// That a case that passed cannot be judged any more is said wherever two runs are compared.
#[test]
fn what_passed_then_and_cannot_be_judged_now() {
    let place = Place::new();
    let (_daemon, url) = place.daemon();
    let line = |id: &str, more: &str, assertion: &str| {
        format!("{{\"id\": \"{id}\", \"input\": \"{id}\"{more}, \"assertions\": [{assertion}]}}\n")
    };
    let contains = r#"{"type": "contains", "value": "fine"}"#;
    let lines = |more: &str, judge: &str| {
        line("a", "", judge) + &line("b", more, contains) + &line("c", "", contains) + &line("d", "", judge)
    };
    place.write("t.jsonl", &lines("", contains));
    let args = ["t.jsonl", "--daemon", &url];
    let ended = run(&place, &agent(&["d"]), &args);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    let before = place.json("r.json")["runId"].as_str().expect("an id").to_owned();
    let nobody = r#"{"type": "agent", "use": "agents:nobody"}"#;
    place.write("t.jsonl", &lines(r#", "skip": true"#, nobody));
    let more = ["--baseline", &before, "-o", "r.md", "-o", "r.html"];
    let ended = run(&place, &agent(&[]), &[&args[..], &more].concat());
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    let json = place.json("r.json");
    assert_eq!((&json["regressions"], &json["notJudged"]), (&json!([]), &json!(["a", "b"])), "{json}");
    assert!(ended.stdout.contains("? not judged a: it passed in the baseline"), "{}", ended.stdout);
    assert!(ended.stdout.contains(" | passed then, not judged now: a, b"), "{}", ended.stdout);
    for (file, text) in
        [("r.md", "passed then, not judged now (2): `a`, `b`"), ("r.html", "Passed then, not judged now")]
    {
        let report = std::fs::read_to_string(place.path().join(file)).expect("a report");
        assert!(report.contains(text), "{file}: {report}");
    }
    let now = json["runId"].as_str().expect("an id");
    let ended = place.run(&["diff", &before, now, "--daemon", &url]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("? passed before, not judged now: 2\n    t.jsonl: a"), "{}", ended.stdout);
    assert!(!ended.stdout.contains("worse"), "{}", ended.stdout);
}

/// Runs of a case are told by the suite that it stands in.
#[test]
fn histories_and_differences_go_by_suite() {
    let place = Place::new();
    two_suites(&place);
    let (_daemon, url) = place.daemon();
    run(&place, &agent(&["stock c1"]), &["shop", "stock", "--daemon", &url]);
    let before = place.json("r.json")["runId"].as_str().expect("an id").to_owned();
    // The same files from elsewhere.
    let moved = Place::new();
    moved.write("smoke.golden.json", &cases("stock", &["c1", "c2"]));
    moved.write("other/smoke.golden.json", &cases("shop", &["c1", "c2"]));
    run(&moved, &agent(&["shop c1"]), &["smoke.golden.json", "other", "--daemon", &url]);
    let now = moved.json("r.json")["runId"].as_str().expect("an id").to_owned();
    let ended = place.run(&["diff", &before, &now, "--daemon", &url]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    for part in [
        "✗ worse: 1\n    other/smoke.golden.json: c1 (passed, now did not pass)",
        "✓ better: 1\n    smoke.golden.json: c1 (did not pass, now passed)\n",
        &format!("⚠ another path of a suite ({SHOP}, now other/smoke.golden.json)"),
    ] {
        assert!(ended.stdout.contains(part), "{part} in {}", ended.stdout);
    }
    assert!(!ended.stdout.contains("another text") && !ended.stdout.contains("only"), "{}", ended.stdout);

    let ended = place.run(&["cases", "history", "c1", "--daemon", &url]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains(&format!("c1  {SHOP}  █  1 of 1 passed\n")), "{}", ended.stdout);
    assert!(ended.stdout.contains(&format!("c1  {STOCK}  ▁  0 of 1 passed\n")), "{}", ended.stdout);
    let ended = place.run(&["cases", "history", "c1", "--suite", STOCK, "--daemon", &url]);
    assert_eq!(ended.stdout.lines().count(), 2, "{}", ended.stdout);
    assert!(ended.stdout.starts_with("c1  ▁  0 of 1 passed\n"), "{}", ended.stdout);
}
