//! Runs the scenarios with real processes: `cargo test --test it scenarios`.
//!
//! `FORGE_ATTACH=1` has the agent dial the daemon in `every_scenario`, too, which otherwise only
//! `every_scenario_with_an_attached_agent` does. `FORGE_CASES_DIR` names another folder than `tests/cases`.
//! `tests/known_gaps.txt` lists the scenarios that do not pass yet; see [`super::support::tally`]. They run one after
//! the other, because some of them measure time.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::support::data_folder;
use super::support::expectations::differences;
use super::support::gaps::Gaps;
use super::support::observed::{Limits, Way, observe};
use super::support::scenario::Scenario;
use super::support::tally::{Item, Kind, Verdict, conclude};

const KIND: Kind = Kind { name: "scenarios", prefixes: &["scenario/"] };

/// A run takes a few seconds at most; a busy machine may need a multiple.
const LIMITS: Limits = Limits { start: Duration::from_secs(20), run: Duration::from_mins(1) };

/// Held while processes run: the runner's own tests must not slow down what is timed.
static PROCESSES: Mutex<()> = Mutex::new(());

#[test]
fn every_scenario() {
    let is_attached = std::env::var_os("FORGE_ATTACH").is_some_and(|value| value == "1");
    every_scenario_by(if is_attached { Way::Attached } else { Way::Direct });
}

/// The same cases have the same verdicts when the agent has no port of its own.
#[test]
fn every_scenario_with_an_attached_agent() {
    every_scenario_by(Way::Attached);
}

fn every_scenario_by(way: Way) {
    use std::io::Write as _;
    let (folder, is_own) = data_folder("FORGE_CASES_DIR", "tests/cases");
    let alone = PROCESSES.lock().unwrap_or_else(PoisonError::into_inner);
    let started = Instant::now();
    let items = run(&folder, way, LIMITS);
    drop(alone);
    let mut out = std::io::stdout();
    writeln!(out, "\nthe scenarios took {:.1} s", started.elapsed().as_secs_f64()).expect("writing to stdout");
    let is_well = conclude(KIND, &items, &Gaps::of_project(), is_own, &mut out);
    assert!(is_well.expect("writing to stdout"), "see above for what is wrong");
}

/// Runs every scenario in a folder, by name.
fn run(folder: &Path, way: Way, limits: Limits) -> Vec<Item> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    folders.sort();
    folders.iter().map(|folder| run_scenario(folder, way, limits)).collect()
}

fn run_scenario(folder: &Path, way: Way, limits: Limits) -> Item {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let scenario = match read(folder) {
        Ok(scenario) => scenario,
        Err(problems) => {
            let why = "a scenario that cannot be read checks nothing".to_owned();
            return Item { gap: format!("scenario/{name}"), id: name, why, verdict: Verdict::Invalid(problems) };
        }
    };
    let mut found = Vec::new();
    for (index, run) in scenario.runs.iter().enumerate() {
        let differences = if run.import.is_empty() {
            observe(folder, run, way, limits).map_or_else(|error| vec![error], |seen| differences(&run.expect, &seen))
        } else {
            vec!["not supported yet: forgectl import".to_owned()]
        };
        let place = format!("run {} ({})", index + 1, run.subject());
        found.extend(differences.into_iter().map(|difference| format!("{place}: {difference}")));
    }
    let verdict = if found.is_empty() { Verdict::Passed } else { Verdict::Failed(found) };
    Item { gap: format!("scenario/{}", scenario.id), id: name, why: scenario.title, verdict }
}

/// Reads a scenario and everything that it needs, and says all that is wrong with it.
fn read(folder: &Path) -> Result<Scenario, Vec<String>> {
    let text = std::fs::read_to_string(folder.join("scenario.json"))
        .map_err(|error| vec![format!("scenario.json: {error}")])?;
    let scenario: Scenario = serde_json::from_str(&text).map_err(|error| vec![format!("scenario.json: {error}")])?;
    let mut problems = Vec::new();
    for file in scenario.files.iter().filter(|file| !folder.join(file).is_file()) {
        problems.push(format!("files: there is no {file}"));
    }
    if scenario.runs.is_empty() {
        problems.push("runs: there are none".to_owned());
    }
    let mut agents: Vec<&str> = vec!["agent.json"];
    for (index, run) in scenario.runs.iter().enumerate() {
        let place = format!("run {}", index + 1);
        problems.extend(run.problems().into_iter().map(|problem| format!("{place}: {problem}")));
        let agent = run.agent.as_deref().unwrap_or("agent.json");
        if run.import.is_empty() && !folder.join(agent).is_file() {
            problems.push(format!("{place}: there is no {agent}"));
        }
        agents.push(agent);
    }
    agents.sort_unstable();
    agents.dedup();
    // The sidecar would refuse them as well, but only in a run that gets that far.
    for agent in agents {
        check(folder, agent, |file, text| forge::sidecar::read::agent(file, text).map(drop), &mut problems);
    }
    let simulator = |file: &str, text: &str| forge::sidecar::read_parties::simulator(file, text).map(drop);
    let validator = |file: &str, text: &str| forge::sidecar::read_parties::validator(file, text).map(drop);
    check(folder, "simulator.json", simulator, &mut problems);
    check(folder, "validator.json", validator, &mut problems);
    if problems.is_empty() { Ok(scenario) } else { Err(problems) }
}

/// Reads a script, if it is there.
fn check<E: std::fmt::Display>(
    folder: &Path,
    file: &str,
    read: impl FnOnce(&str, &str) -> Result<(), E>,
    problems: &mut Vec<String>,
) {
    let path = folder.join(file);
    if !path.exists() {
        return;
    }
    match std::fs::read_to_string(&path) {
        Ok(text) => problems.extend(read(file, &text).err().map(|error| error.to_string())),
        Err(error) => problems.push(format!("{file}: {error}")),
    }
}

/// The runner itself: one that cannot fail proves nothing.
#[cfg(test)]
mod runner {
    use std::time::Duration;

    use super::super::support::project;
    use super::{Gaps, KIND, LIMITS, Limits, PROCESSES, PoisonError, conclude, run};

    /// A passing scenario of two cases, of which one fails as it should.
    const SCENARIO: &str = r#"{"id": "some", "title": "Some rule", "basis": "judgement", "files": ["s.golden.json"],
        "runs": [{"suite": "s.golden.json", "options": {"concurrency": 2}, "expect": {"exit": "nonzero",
            "agent_calls": 2, "distinct_conversations": 2, "order": ["good", "bad"], "warnings": [], "stale": false,
            "totals": {"pass": 1, "fail": 1, "skip": 0}, "kinds": {"assertion": 1}, "failed": 1,
            "passed_messages": ["Hello"], "failed_messages": ["Bye"], "reports_valid_utf8": true,
            "writes_only_under": "evals/results", "agent_saw_cancel": [], "max_total_ms": 60000,
            "mentions": ["1/2 passed"], "console_has_no": ["zzz"],
            "cases": {"good": {"verdict": "pass", "tools": ["look"], "total_turns": 1, "messages_sent": 1},
                      "bad": {"verdict_in": ["fail"], "kind": "assertion", "assertion": "responseContains",
                              "mentions": ["zzz"], "assertionsSkipped": 0, "warning": null}}}}]}"#;
    const SUITE: &str = r#"[{"id": "good", "input": {"message": "Hello"}, "expect": {"toolsCalled": ["look"]}},
        {"id": "bad", "input": {"message": "Bye"}, "expect": {"responseContains": ["zzz"]}}]"#;
    const AGENT: &str = r#"{"replies": [{"on": "Hello", "events": [{"tool": {"name": "look"}}, {"text": "Hi"}]},
        {"on": "*", "events": [{"text": "Hm"}]}]}"#;

    fn check_with(scenario: &str, agent: &str, gaps: &str, is_own: bool, limits: Limits) -> (bool, String) {
        let folder = tempfile::tempdir().unwrap();
        let some = folder.path().join("some");
        std::fs::create_dir(&some).unwrap();
        for (name, text) in [("scenario.json", scenario), ("s.golden.json", SUITE), ("agent.json", agent)] {
            std::fs::write(some.join(name), text).unwrap();
        }
        let alone = PROCESSES.lock().unwrap_or_else(PoisonError::into_inner);
        let items = run(folder.path(), super::Way::Direct, limits);
        drop(alone);
        let mut out = Vec::new();
        let is_well = conclude(KIND, &items, &Gaps::parse(gaps), is_own, &mut out).unwrap();
        (is_well, String::from_utf8(out).unwrap())
    }

    fn check(scenario: &str, gaps: &str, is_own: bool) -> (bool, String) {
        check_with(scenario, AGENT, gaps, is_own, LIMITS)
    }

    #[test]
    fn what_holds_passes_and_must_not_be_listed() {
        // The console is not what is checked here.
        let (is_well, out) = check(&SCENARIO.replace(r#", "console_has_no": ["zzz"]"#, ""), "", true);
        assert!(is_well, "{out}");
        assert!(out.ends_with("\nscenarios: 1 passed, 0 failed\n"), "{out}");
        let plain = SCENARIO.replace(r#", "console_has_no": ["zzz"]"#, "");
        let (is_well, out) = check(&plain, "scenario/some", true);
        assert!(!is_well && out.contains("scenario/some: listed, but passes: remove it from the list"), "{out}");
    }

    /// Each expectation is made wrong, and each must be found.
    #[test]
    fn every_expectation_can_fail() {
        let changes = [
            (r#""exit": "nonzero""#, r#""exit": 0"#, "exit"),
            (r#""agent_calls": 2"#, r#""agent_calls": 3"#, "agent_calls"),
            (r#""distinct_conversations": 2"#, r#""distinct_conversations": 1"#, "distinct_conversations"),
            (r#"["good", "bad"]"#, r#"["bad", "good"]"#, "order"),
            (r#""warnings": []"#, r#""warnings": ["old"], "warnings_mention": ["older"]"#, "warnings"),
            (r#""stale": false"#, r#""stale": true, "regressions": ["a"]"#, "stale"),
            (r#""pass": 1"#, r#""pass": 2"#, "totals.Pass"),
            (r#"{"assertion": 1}"#, r#"{"timeout": 1}"#, "kinds.Timeout"),
            (r#""failed": 1"#, r#""failed": 2"#, "failed"),
            (r#""passed_messages": ["Hello"]"#, r#""passed_messages": []"#, "passed_messages"),
            (r#"["Bye"]"#, r#"["By"]"#, "failed_messages"),
            (r#""evals/results""#, r#"["evals/res", "x"]"#, "writes_only_under"),
            (r#""agent_saw_cancel": []"#, r#""agent_saw_cancel": ["Hello"]"#, "agent_saw_cancel"),
            (r#""max_total_ms": 60000"#, r#""max_total_ms": 1, "junit": {"tests": 2}"#, "max_total_ms"),
            (r#"["1/2 passed"]"#, r#"["2/2 passed"], "mentions_any": ["yyy"]"#, "mentions"),
            (r#""verdict": "pass""#, r#""verdict": "refused""#, "cases.good.verdict"),
            (r#"["look"]"#, r#"["take"]"#, "cases.good.tools"),
            (r#""total_turns": 1"#, r#""total_turns": 2, "checkpoints": {"c": null}"#, "cases.good.total_turns"),
            (r#""messages_sent": 1"#, r#""messages_sent": 2"#, "cases.good.messages_sent"),
            (r#"["fail"]"#, r#"["pass", "skip"], "simulator_calls": 1"#, "cases.bad.verdict"),
            (r#""kind": "assertion""#, r#""kind_in": ["timeout"], "duration_ms_min": 50000"#, "cases.bad.kind"),
            (r#""responseContains""#, r#""toolsCalled""#, "cases.bad.assertion"),
            (r#""mentions": ["zzz"]"#, r#""mentions": ["yyy"], "if_fail_mentions_any": ["y"]"#, "cases.bad.mentions"),
            (r#""assertionsSkipped": 0"#, r#""assertionsSkipped": 1"#, "cases.bad.assertionsSkipped"),
            (r#""warning": null"#, r#""warning": "no assertions""#, "cases.bad.warning"),
        ];
        let mut scenario = SCENARIO.to_owned();
        for (from, to, _) in changes {
            assert!(scenario.contains(from), "{from}");
            scenario = scenario.replacen(from, to, 1);
        }
        let (is_well, out) = check(&scenario, "", true);
        assert!(!is_well, "{out}");
        let more = [
            "console_has_no",
            "junit",
            "regressions",
            "warnings_mention",
            "mentions_any",
            "cases.good.checkpoints.c",
            "cases.bad.simulator_calls",
            "cases.bad.duration_ms_min",
            "cases.bad.if_fail_mentions_any",
        ];
        for key in changes.iter().map(|(_, _, key)| *key).chain(more) {
            assert!(out.contains(&format!("run 1 (s.golden.json): {key}: ")), "no {key} in {out}");
        }
        assert!(out.contains("why: Some rule") && out.contains("\nscenarios: 0 passed, 1 failed\n"), "{out}");
        // The same is a known gap when it is listed, in whichever folder.
        assert!(check(&scenario, "scenario/some", false).0);
    }

    #[test]
    fn a_file_that_is_accepted_is_not_refused() {
        let scenario = r#"{"id": "some", "title": "", "basis": "seed", "files": [], "runs": [
            {"suite": "s.golden.json", "only": "good", "expect": {"load": "refused"}},
            {"suite": "s.golden.json", "options": {"timeoutMs": 0}, "expect": {"load": "refused"}}]}"#;
        let (is_well, out) = check(scenario, "", true);
        assert!(!is_well, "{out}");
        assert!(out.contains("run 1 (s.golden.json, only good): load: expected Refused, found exit Some(0)"), "{out}");
        assert!(out.contains("run 1 (s.golden.json, only good): load: expected \"nothing sent"), "{out}");
        assert!(out.contains("run 2 (s.golden.json): load: expected Refused, found exit Some(2)"), "{out}");
    }

    #[test]
    fn what_is_not_understood_fails_also_in_a_known_gap() {
        for (from, to, part) in [
            (r#""title""#, r#""titel""#, "unknown field `titel`"),
            (r#""suite""#, r#""siute""#, "unknown field `siute`"),
            (r#""concurrency""#, r#""parallel""#, "unknown field `parallel`"),
            (r#""agent_calls""#, r#""agentCalls""#, "unknown field `agentCalls`"),
            (r#""total_turns""#, r#""turns""#, "unknown field `turns`"),
            (r#""exit": "nonzero""#, r#""exit": 1"#, "exit is 0 or"),
            (r#""kind": "assertion""#, r#""kind": "asertion""#, "unknown variant `asertion`"),
            (r#""stale": false"#, r#""junit": {"testz": 1}"#, "unknown field `testz`"),
            (r#""stale": false"#, r#""import": {"case": 1}"#, "unknown field `case`"),
            (r#"["s.golden.json"]"#, r#"["t.golden.json"]"#, "there is no t.golden.json"),
        ] {
            assert!(SCENARIO.contains(from), "{from}");
            let (is_well, out) = check(&SCENARIO.replacen(from, to, 1), "scenario/some", false);
            assert!(!is_well && out.contains(part), "no {part:?} in {out}");
        }
        let agent = AGENT.replace(r#"{"text": "Hm"}"#, r#"{"txt": "Hm"}"#);
        let (is_well, out) = check_with(SCENARIO, &agent, "scenario/some", false, LIMITS);
        assert!(!is_well && out.contains("agent.json:2:"), "{out}");
    }

    #[test]
    fn what_hangs_fails_and_says_what_was_running() {
        let agent = AGENT.replace(r#"{"text": "Hm"}"#, r#"{"hang": true}"#);
        let limits = Limits { run: Duration::from_millis(1500), ..LIMITS };
        let (is_well, out) = check_with(SCENARIO, &agent, "", true, limits);
        assert!(!is_well, "{out}");
        assert!(out.contains("forgectl runs longer than 1.5s") && out.contains("s.golden.json"), "{out}");
    }

    #[test]
    fn suites_are_generated() {
        let folder = tempfile::tempdir().unwrap();
        let generate = r#"{"suite": "big.jsonl", "then": "rest.jsonl",
            "repeat": {"line": "line.json", "times": 2, "number_as": "NN"}}"#;
        std::fs::write(folder.path().join("line.json"), "{\"id\": \"c-NN\", \"input\": \"NN\"}\n").unwrap();
        std::fs::write(folder.path().join("rest.jsonl"), "{\"id\": \"last\"}").unwrap();
        let generate = serde_json::from_str(generate).unwrap();
        let name = super::super::support::observed::write_suite(folder.path(), &generate).unwrap();
        let written = std::fs::read_to_string(folder.path().join(name)).unwrap();
        let expected = "{\"id\": \"c-1\", \"input\": \"1\"}\n{\"id\": \"c-2\", \"input\": \"2\"}\n{\"id\": \"last\"}\n";
        assert_eq!(written, expected);
    }

    #[test]
    fn all_scenarios_can_be_read_and_are_named_as_their_folders() {
        for entry in std::fs::read_dir(project("tests/cases")).unwrap().flatten() {
            if entry.path().is_dir() {
                let scenario = super::read(&entry.path()).unwrap_or_else(|problems| panic!("{problems:?}"));
                assert_eq!(scenario.id, entry.file_name().to_string_lossy());
            }
        }
    }

    #[test]
    fn what_is_no_xml_is_not_well_formed() {
        for text in ["<a>\u{1}</a>", "<a>]]></a>", "<a>&#1;</a>", "<a b='<'/>", "<a>\u{ffff}</a>", "<a>"] {
            assert!(roxmltree::Document::parse(text).is_err(), "{text:?}");
        }
        assert!(roxmltree::Document::parse("<a b='&lt;'><![CDATA[]]]]><![CDATA[>]]></a>").is_ok());
    }
}
