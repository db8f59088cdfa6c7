//! Gates over repetitions and against a baseline, by a real server and the real client.

use crate::processes::{Ended, Place};
use crate::support::fake::{Fake, Script};

/// Two cases, of which the agents here answer the second as they like.
const SUITE: &str = r#"
{"id": "steady", "input": "steady", "assertions": [{"type": "contains", "value": "good"}]}
{"id": "shaky", "input": "shaky", "assertions": [{"type": "contains", "value": "good"}]}
"#;

/// An agent that answers one call in `every` wrongly; 0: none.
fn agent(every: u32) -> Fake {
    Script::new(move |asked| {
        let is_bad = every > 0 && asked.before % every == every - 1;
        Ok(if is_bad { "bad".to_owned() } else { "good".to_owned() })
    })
    .start()
}

fn run(place: &Place, agent: &Fake, more: &[&str]) -> Ended {
    place.run(&[&["run", "t.jsonl", "-n", &agent.url, "-o", "r.json"], more].concat())
}

#[test]
fn a_rate_decides_instead_of_each_case() {
    let place = Place::new();
    place.write("t.jsonl", SUITE);
    let runs = ["--runs", "20", "--to-the-end"];
    let ended = run(&place, &agent(10), &runs[..2]);
    assert_eq!(ended.code, Some(1), "without a gate every case has to pass: {}", ended.stdout);
    assert!(ended.stdout.contains("  Repetitions: 36/40 passed, 90.0 % (76.9 to 96.0 %)\n"), "{}", ended.stdout);
    assert!(ended.stdout.contains("  2 cases: 2 mostly stable\n  pass^1 90.0 %, pass^2 "), "{}", ended.stdout);

    let ended = run(&place, &agent(10), &[&runs[..], &["--min-pass-rate", "90%"]].concat());
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("✓ the gate was passed: 36/40 passed"), "{}", ended.stdout);
    let json = place.json("r.json");
    assert_eq!((&json["exitCode"], &json["gate"]["passage"]), (&0.into(), &"passed".into()), "{json}");
    assert_eq!(json["repeats"]["cases"][1]["passRate"], 0.9, "{json}");

    let ended = run(&place, &agent(10), &[&runs[..], &["--min-pass-rate", "91%"]].concat());
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("    36 of 40 (90.0 %) passed, at least 91% have to\n"), "{}", ended.stdout);
    let case = [&runs[..], &["--min-pass-rate", "50%", "--min-case-pass-rate", "95%"]].concat();
    let ended = run(&place, &agent(10), &case);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("    shaky: 18 of 20 (90.0 %) passed, at least 95% have to\n"), "{}", ended.stdout);
}

#[test]
fn a_run_stops_when_its_gate_is_decided() {
    let place = Place::new();
    place.write("t.jsonl", SUITE);
    let good = agent(0);
    let ended = run(&place, &good, &["--runs", "20", "--min-pass-rate", "50%"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(good.asked().len(), 20, "20 of 40 passed, whatever comes");
    assert!(ended.stdout.contains("20/20 passed, 100.0 % (83.9 to 100.0 %), 20 left out because"), "{}", ended.stdout);
    let json = place.json("r.json");
    assert_eq!((&json["summary"]["skipped"], &json["gate"]["leftOut"]), (&20.into(), &20.into()), "{json}");

    let bad = agent(1);
    let ended = run(&place, &bad, &["--runs", "20", "--min-pass-rate", "90%"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(bad.asked().len(), 5, "5 of 40 failed, and 4 may");
}

/// An early end leaves some cases with fewer executions; chances of the others alone would be higher.
#[test]
fn chances_do_not_rise_after_an_early_end() {
    let place = Place::new();
    place.write("t.jsonl", SUITE);
    let agent = Script::new(|asked| Ok(if asked.case == "shaky" { "bad" } else { "good" }.to_owned())).start();
    let ended = run(&place, &agent, &["--runs", "4", "--min-pass-rate", "90%"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    let repeats = &place.json("r.json")["repeats"];
    assert_eq!((&repeats["passed"], &repeats["failed"], &repeats["uncounted"]), (&4.into(), &1.into(), &3.into()));
    assert_eq!(repeats["passHat"], serde_json::json!({"1": 0.5}), "{repeats}");
    assert_eq!(repeats["cases"][0]["passHat"], serde_json::json!({"1": 1.0, "2": 1.0, "4": 1.0}), "{repeats}");
    let told = "  pass^1 50.0 %\n  up to k = 1: not every case has more executions that count\n";
    assert!(ended.stdout.contains(told), "{}", ended.stdout);
}

#[test]
fn an_exact_test_against_a_baseline() {
    let place = Place::new();
    place.write("t.jsonl", SUITE);
    run(&place, &agent(20), &["--runs", "100", "--parallel", "4"]);
    std::fs::rename(place.path().join("r.json"), place.path().join("base.json")).expect("a result");
    let against = |agent: &Fake, runs: &str, more: &[&str]| {
        let gate = ["--baseline", "base.json", "--max-regression", "10%", "--runs", runs, "--parallel", "4"];
        run(&place, agent, &[&gate[..], more].concat())
    };
    let ended = against(&agent(20), "100", &["--to-the-end"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(
        ended.stdout.contains("compared with the baseline: no difference; 190/200 passed then, 190/200 now"),
        "{}",
        ended.stdout
    );

    let worse = agent(3);
    let ended = against(&worse, "100", &[]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("regressed: 95 of 100 (95.0 %) passed in the baseline, "), "{}", ended.stdout);
    assert!(worse.asked().len() < 200, "it was decided before: {}", worse.asked().len());
    assert!(!ended.stdout.contains("(skipped)"), "what is left out is counted: {}", ended.stdout);

    let ended = against(&agent(0), "3", &[]);
    assert_eq!(ended.code, Some(3), "too little to tell is no pass: {}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("? nobody can tell whether the gate was passed"), "{}", ended.stdout);
    assert!(ended.stdout.contains("cannot tell whether it regressed: 190 of 200 "), "{}", ended.stdout);
    assert_eq!(place.json("r.json")["gate"]["comparison"]["answer"], "cannot_tell");
}

/// Whatever the cases are, a run that ends with exit code 3 has passed no gate.
#[test]
fn no_tick_stands_beside_trouble() {
    let place = Place::new();
    place.write("t.jsonl", SUITE);
    place.write("u.jsonl", SUITE);
    run(&place, &agent(0), &["u.jsonl"]);
    std::fs::rename(place.path().join("r.json"), place.path().join("base.json")).expect("a result");
    let files = ["-o", "r.md", "-o", "r.html", "-o", "r.xml"];
    let beside = |ended: &Ended, reason: &str, headline: &str| {
        assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
        assert!(!ended.stdout.contains("✓ the gate") && ended.stdout.contains(reason), "{}", ended.stdout);
        let json = place.json("r.json");
        let suite = json["suites"].get(0).unwrap_or(&json);
        assert_eq!((&suite["exitCode"], &suite["gate"]["passage"]), (&3.into(), &"cannot_tell".into()), "{json}");
        let read = |file: &str| std::fs::read_to_string(place.path().join(file)).expect("a report");
        let (markdown, page, junit) = (read("r.md"), read("r.html"), read("r.xml"));
        assert!(markdown.contains(headline) && markdown.contains(reason), "{markdown}");
        // Cases that passed have their sign; nothing of the run or of a suite has one.
        let of_cases = |line: &&str| line.starts_with("| ✅ | `s");
        assert!(!markdown.lines().filter(|line| !of_cases(line)).any(|line| line.contains('✅')), "{markdown}");
        assert!(page.contains(headline) && !page.contains("gate passed"), "{page}");
        let document = roxmltree::Document::parse(&junit).expect("XML");
        assert_ne!(document.root_element().attribute("errors"), Some("0"), "{junit}");
        let gate = document.descendants().find(|node| node.attribute("classname") == Some("forge:gate"));
        let error = gate.and_then(|gate| gate.children().find(|node| node.has_tag_name("error"))).expect("an error");
        assert_eq!(error.attribute("type"), Some("cannot_tell"));
    };
    let nobody = "nobody can tell whether the gate was passed";
    let few = [&["u.jsonl", "--baseline", "base.json", "--max-regression", "5%"][..], &files].concat();
    beside(&run(&place, &agent(0), &few), "cannot tell whether it regressed", nobody);
    // The rate is reached, and a case could not be judged.
    let judge = r#"{"id": "shifty", "input": "x", "assertions": [{"type": "agent", "use": "agents:nobody"}]}"#;
    place.write("t.jsonl", &format!("{SUITE}{judge}\n"));
    let most = [&["--min-pass-rate", "50%", "--to-the-end"][..], &files].concat();
    beside(&run(&place, &agent(0), &most), "1 of 3 could not be judged, or were not run", nobody);
    // What counts as passed when too little is known is no word for trouble.
    beside(
        &run(&place, &agent(0), &[&most[..], &["--undecided", "pass"]].concat()),
        "1 of 3 could not be judged",
        nobody,
    );
    // The script after the run failed.
    place.write("t.jsonl", SUITE);
    place.write("scripts/env.ts", "export function AfterAll() { throw new Error('no'); }\n");
    let after = [&most[..], &["--after", "scripts:env.AfterAll"]].concat();
    beside(&run(&place, &agent(0), &after), "the script after the run failed", nobody);
}

#[test]
fn what_nobody_can_tell_counts_as_its_owner_says() {
    let place = Place::new();
    place.write("t.jsonl", SUITE);
    let agent = agent(0);
    run(&place, &agent, &[]);
    std::fs::rename(place.path().join("r.json"), place.path().join("base.json")).expect("a result");
    let few = ["--baseline", "base.json", "--max-regression", "5%", "-o", "r.xml"];
    let with = |more: &[&str]| {
        let ended = run(&place, &agent, &[&few[..], more].concat());
        let gate = place.json("r.json")["gate"].clone();
        assert_eq!(gate["passage"], "cannot_tell", "{}{}", ended.stdout, ended.stderr);
        (ended.code, gate["countsAs"].as_str().map(str::to_owned), ended.stdout)
    };
    let (_daemon, daemon) = place.daemon();
    for daemon in [&[][..], &["--daemon", &daemon]] {
        let (code, counts_as, told) = with(&[&["--undecided", "pass"], daemon].concat());
        assert_eq!((code, counts_as.as_deref()), (Some(0), Some("passed")), "{told}");
        assert!(told.contains("✓ nobody can tell whether the gate was passed, which counts as passed: 2/2"), "{told}");
        let (code, counts_as, told) = with(&[&["--undecided", "fail"], daemon].concat());
        assert_eq!((code, counts_as.as_deref()), (Some(1), Some("failed")), "{told}");
        assert!(
            told.contains("✗ nobody can tell whether the gate was passed, which counts as not passed: 2/2"),
            "{told}"
        );
        assert_eq!(with(daemon).0, Some(3));
    }
    // The settings of the project say it; a flag wins, and a run without a gate is none of their business.
    place.write("forge.config.json", r#"{"undecided": "fail"}"#);
    assert_eq!(with(&[]).0, Some(1));
    assert_eq!(with(&["--undecided", "pass"]).0, Some(0));
    assert_eq!(run(&place, &agent, &[]).code, Some(0));
    place.write("forge.config.json", r#"{"undecided": "maybe"}"#);
    let ended = run(&place, &agent, &[]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("line 1: undecided: must be pass or fail"), "{}", ended.stderr);
}

#[test]
fn gates_that_make_no_sense() {
    let place = Place::new();
    place.write("t.jsonl", SUITE);
    for (more, error) in [
        (&["--max-regression", "5%"][..], "--max-regression compares with an earlier result, and there is none"),
        (&["--min-pass-rate", "95"], "write a rate as 95% or 0.95"),
        (&["--to-the-end"], "--to-the-end is about a gate, and there is none"),
        (&["--undecided", "pass"], "--undecided is about a gate, and there is none"),
        (&["--min-pass-rate", "95%", "--undecided", "maybe"], "must be pass or fail"),
        (&["--min-pass-rate", "95%", "--fail-fast"], "cannot be used with"),
    ] {
        let ended = place.run(&[&["run", "t.jsonl", "-n", "grpc://127.0.0.1:1"], more].concat());
        assert_eq!(ended.code, Some(2), "{more:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(error), "{more:?}: {}", ended.stderr);
    }
}
