//! Runs the conformance vectors: `cargo test --test it vectors`.
//!
//! `FORGE_VECTORS_DIR` names another folder than `tests/vectors`; those of `tests/decisions` are our own.
//! `tests/known_gaps.txt` lists the areas of which not every vector passes yet; see [`super::support::tally`].

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use super::support::data_folder;
use super::support::engine::{self, Unanswered};
use super::support::gaps::Gaps;
use super::support::tally::{Item, Kind, Verdict, conclude};
use super::support::vector::{Answer, Vector};

const KIND: Kind = Kind { name: "vectors", prefixes: &["contract/", "framework/"] };

/// Something that answers vectors.
type Engine = fn(&Vector) -> Result<Answer, Unanswered>;

#[test]
fn every_vector() {
    let (folder, is_own) = data_folder("FORGE_VECTORS_DIR", "tests/vectors");
    let items = run(&folder, engine::answer);
    let is_well = conclude(KIND, &items, &Gaps::of_project(), is_own, &mut std::io::stdout());
    assert!(is_well.expect("writing to stdout"), "see above for what is wrong");
}

/// What the project decides itself, in the same format.
#[test]
fn every_decision() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/decisions");
    let items = run(&folder, engine::answer);
    let kind = Kind { name: "decisions", prefixes: &["decisions/"] };
    let is_well = conclude(kind, &items, &Gaps::of_project(), true, &mut std::io::stdout());
    assert!(is_well.expect("writing to stdout"), "see above for what is wrong");
}

/// Runs every vector of the JSON files in a folder and those below it.
fn run(folder: &Path, engine: Engine) -> Vec<Item> {
    let mut items = Vec::new();
    let mut ids = HashSet::new();
    let files = json_files(folder);
    if files.is_empty() {
        items.push(invalid(folder, "the folder holds no JSON files"));
    }
    for file in files {
        let read = std::fs::read_to_string(&file).map_err(|error| error.to_string());
        let vectors = read.and_then(|text| {
            // Element by element, so that one vector that cannot be read does not hide the others of its file.
            let parts: Vec<Box<serde_json::value::RawValue>> =
                serde_json::from_str(&text).map_err(|error| error.to_string())?;
            Ok(parts)
        });
        match vectors {
            Ok(parts) => {
                for (index, part) in parts.iter().enumerate() {
                    items.push(match serde_json::from_str::<Vector>(part.get()) {
                        Ok(vector) => {
                            let is_new = ids.insert(vector.id.clone());
                            run_one(vector, is_new, engine)
                        }
                        Err(error) => invalid(&file, &format!("[{index}]: {error}")),
                    });
                }
            }
            Err(error) => items.push(invalid(&file, &error)),
        }
    }
    items
}

fn run_one(vector: Vector, is_new: bool, engine: Engine) -> Item {
    let mut problems = vector.problems();
    if !is_new {
        problems.push("id: used before".to_owned());
    }
    let verdict = if problems.is_empty() { judge(&vector, engine) } else { Verdict::Invalid(problems) };
    Item { gap: vector.area, id: vector.id, why: vector.why, verdict }
}

fn judge(vector: &Vector, engine: Engine) -> Verdict {
    // A panic is a failure of this vector, not the end of the others.
    let answer = match catch_unwind(AssertUnwindSafe(|| engine(vector))) {
        Ok(Ok(answer)) => answer,
        Ok(Err(Unanswered::NotSupported(what))) => return Verdict::Failed(vec![format!("not supported yet: {what}")]),
        Ok(Err(Unanswered::Invalid(problem))) => return Verdict::Invalid(vec![problem]),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            return Verdict::Failed(vec![format!("the engine panicked: {text}")]);
        }
    };
    let differences = vector.differences(&answer);
    if differences.is_empty() { Verdict::Passed } else { Verdict::Failed(differences) }
}

fn invalid(file: &Path, problem: &str) -> Item {
    let id = file.display().to_string();
    let why = "a file that cannot be read holds vectors that nobody runs".to_owned();
    Item { gap: String::new(), id, why, verdict: Verdict::Invalid(vec![problem.to_owned()]) }
}

/// The JSON files in a folder and those below it, by name.
fn json_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "json") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// The runner itself: one that cannot fail proves nothing.
#[cfg(test)]
mod runner {
    use super::{Engine, Gaps, KIND, conclude, engine, run};

    const HOLDS: &str = r#"{"id": "a/1", "area": "contract/a", "given": {"kind": "contract-file-hash", "text": "[]"},
        "expect": {"evalFileHash": "4f53cda18c2b"}, "why": "The hash."}"#;

    /// Runs vectors that stand in one file, and gives the verdict and the output.
    fn check(vectors: &str, gaps: &str, is_own_folder: bool, engine: Engine) -> (bool, String) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("some.json"), vectors).unwrap();
        let mut out = Vec::new();
        let is_well = conclude(KIND, &run(folder.path(), engine), &Gaps::parse(gaps), is_own_folder, &mut out).unwrap();
        (is_well, String::from_utf8(out).unwrap())
    }

    #[track_caller]
    fn refused(vectors: &str, gaps: &str, part: &str) {
        let (is_well, out) = check(vectors, gaps, true, engine::answer);
        assert!(!is_well, "{out}");
        assert!(out.contains(part), "no {part:?} in {out}");
    }

    #[test]
    fn what_holds_passes() {
        let (is_well, out) = check(&format!("[{HOLDS}]"), "", true, engine::answer);
        assert!(is_well, "{out}");
        assert!(out.ends_with("\nvectors: 1 passed, 0 failed\n"), "{out}");
    }

    #[test]
    fn a_wrong_answer_fails_unless_it_is_a_known_gap() {
        let wrong = format!("[{}]", HOLDS.replace("4f53cda18c2b", "000000000000"));
        refused(&wrong, "", r#"evalFileHash: expected "000000000000", found "4f53cda18c2b""#);
        refused(&wrong, "", "\nvectors: 0 passed, 1 failed\n");
        refused(&wrong, "", "why: The hash.");
        let (is_well, out) = check(&wrong, "contract/a # some day", true, engine::answer);
        assert!(is_well, "{out}");
        assert!(out.ends_with("\nvectors: 0 passed, 1 failed\n"), "{out}");
    }

    #[test]
    fn what_is_not_understood_fails_also_in_a_known_gap() {
        for (from, to, part) in [
            ("evalFileHash", "evalFileHsh", "expect.evalFileHsh: unknown key"),
            (r#""text""#, r#""txt""#, "given.txt: unknown key"),
            ("contract-file-hash", "contract-hash", r#"unknown kind "contract-hash""#),
            (r#""why""#, r#""wy""#, "unknown field `wy`"),
            (r#""area": "contract/a""#, r#""area": "framework/a""#, "does not begin with contract/"),
        ] {
            refused(&format!("[{}]", HOLDS.replace(from, to)), "contract/a\nframework/a", part);
        }
        refused(&format!("[{HOLDS}, {HOLDS}]"), "contract/a", "id: used before");
        refused(&format!("[{HOLDS}"), "", "some.json");
        let inside = r#"[{"id": "a/1", "area": "framework/a", "why": "", "expect": {"checkpoints": [{"reached": 1}]},
            "given": {"kind": "framework-dynamic", "case": {}, "simulator": [{"inptu": ""}], "agent": []}}]"#;
        refused(inside, "framework/a", "expect.checkpoints.reached: unknown key");
        refused(inside, "framework/a", "given.simulator.inptu: unknown key");
    }

    #[test]
    fn the_list_of_known_gaps_is_kept_true() {
        let vectors = format!("[{HOLDS}]");
        refused(&vectors, "# one\ncontract/a", "line 2: contract/a: listed, but passes: remove it from the list");
        refused(&vectors, "contract/b", "line 1: contract/b: listed, but there is no such thing");
        refused(&vectors, "other/b", "line 1: other/b: does not begin with");
        refused("[]", "", "there are no vectors");
        // Somebody else's folder need not hold everything.
        let (is_well, out) = check(&vectors, "contract/a\ncontract/b", false, engine::answer);
        assert!(is_well, "{out}");
    }

    #[test]
    fn what_is_not_supported_and_a_panic_fail() {
        let framework = r#"[{"id": "a/1", "area": "framework/a", "why": "", "expect": {"milliseconds": 1},
            "given": {"kind": "framework-duration", "text": "1ms"}}]"#;
        let (is_well, out) = check(framework, "", true, |_| Err(super::Unanswered::NotSupported(String::new())));
        assert!(!is_well && out.contains("not supported yet"), "{out}");
        let (is_well, out) = check(&format!("[{HOLDS}, {}]", HOLDS.replace("a/1", "a/2")), "", true, |vector| {
            assert!(vector.id != "a/1", "on purpose");
            engine::answer(vector)
        });
        assert!(!is_well && out.contains("the engine panicked: on purpose"), "{out}");
        assert!(out.contains("vectors: 1 passed, 1 failed"), "{out}");
    }

    #[test]
    fn every_condition_can_fail() {
        let refusal = |expect: &str| {
            format!(
                r#"[{{"id": "a/1", "area": "contract/a", "why": "", "expect": {expect},
                "given": {{"kind": "contract-case", "case": {{"id": "c1", "expect": {{"toolCalled": []}}}}}}}}]"#
            )
        };
        let (is_well, out) = check(
            &refusal(r#"{"loadError": true, "errorContains": ["c1"], "errorLacks": ["c2"], "errorLine": 1}"#),
            "",
            true,
            engine::answer,
        );
        assert!(is_well, "{out}");
        for (expect, part) in [
            (r#"{"loadError": false}"#, "the file is refused"),
            (r#"{"passed": true}"#, "the file is refused"),
            (
                r#"{"loadError": true, "errorContains": ["c1", "zzz"]}"#,
                r#"errorContains: expected an error with "zzz""#,
            ),
            (r#"{"loadError": true, "errorLacks": ["c1"]}"#, "errorLacks"),
            (r#"{"loadError": true, "errorLine": 2}"#, "errorLine"),
            (r#"{"loadError": true, "errorLineOneOf": [2, 3]}"#, "errorLineOneOf"),
        ] {
            refused(&refusal(expect), "", part);
        }
        for (expect, part) in [
            (r#"{"loadError": true, "errorContains": ["x"]}"#, "but it is accepted"),
            (r#"{"error": null}"#, "error: expected null"),
            (r#"{"errorPrefix": "zzz"}"#, "errorPrefix"),
            (r#"{"warning": "no assertions"}"#, "warning"),
            (r#"{"assertionsRun": 2}"#, "assertionsRun: expected 2, found 1"),
            (r#"{"details": {"toolsCalled": []}}"#, "details"),
            (r#"{"details": {"responseLength": 3}}"#, "details"),
            (r#"{"agentCalled": false}"#, "agentCalled"),
            (r#"{"loadWarningsContain": ["zzz"]}"#, "loadWarningsContain"),
        ] {
            let vector = format!(
                r#"[{{"id": "a/1", "area": "contract/a", "why": "", "expect": {expect}, "given": {{
                "kind": "contract-case",
                "case": {{"id": "c1", "input": {{"message": "hi"}}, "expect": {{"toolsCalled": []}}}},
                "response": {{"response": "ok", "durationMs": 1,
                              "toolCalls": [{{"name": "t", "success": true, "durationMs": 1}}]}}}}}}]"#
            );
            refused(&vector, "", part);
        }
    }
}
