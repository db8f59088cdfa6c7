//! Reading scripts, and the command line.

use std::fs;
use std::path::Path;

use clap::{CommandFactory as _, Parser as _};

use crate::sidecar::{Cli, SidecarError, read, read_parties, run};

#[test]
fn everything_wrong_is_said_at_once() {
    let agent = r#"{
  "repliez": [],
  "replies": [
    {"events": []},
    {"on": "a"},
    {"on": "b", "events": [
      {"txt": "x"},
      {"tool": {"name": "t", "succes": true}},
      {"tool": {"name": "t", "success": true, "error": "x"}},
      {"wait_ms": -1},
      {"cut": "udp"},
      {"text": "late"}
    ]},
    {"on": "c", "events": [{"close": {"status": "BAD"}}]},
    {"on": "d", "events": [{"text_pieces": {"unit": "é", "piece_bytes": 3, "pieces": 1}}]},
    {"on": "e", "events": [{"raw_text_hex": "f"}]},
    {"on": "f", "events": [{"hang": false}]}
  ]
}"#;
    let errors = read::agent("a.json", agent).expect_err("invalid").0;
    let lines: Vec<u32> = errors.iter().map(|error| error.line).collect();
    assert_eq!(lines, [2, 4, 5, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17], "{errors:#?}");
    assert_eq!(
        errors[0].to_string(),
        "a.json:2: a script has no key \"repliez\"; it may have replies, reported_duration_ms"
    );
    for (text, message) in [
        ("{", "a.json:1: column 2: the text ends where a key in double quotes should stand"),
        ("[]", "a.json:1: a script must be an object, not a list"),
        ("{}", "a.json:1: the key \"replies\" is missing"),
    ] {
        assert_eq!(read::agent("a.json", text).expect_err("invalid").to_string(), message, "{text}");
    }
    for text in [r#"{"a": []}"#, r#"{"a": [{"inputs": "x"}]}"#, r#"{"a": [{"hang": true, "input": "x"}]}"#, "[]"] {
        assert!(read_parties::simulator("s.json", text).is_err(), "{text}");
    }
    for reply in [r#"{"criteria": "a"}"#, r#"{"passed": true}"#, r#"{"criteria": "a", "close": {"status": "OK"}}"#] {
        assert!(read_parties::validator("v.json", &format!(r#"{{"replies": [{reply}]}}"#)).is_err(), "{reply}");
    }
}

#[test]
fn every_script_of_the_scenarios_is_read() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut scripts = 0;
    for file in glob::glob(&format!("{}/*/*.json", cases.display())).expect("a pattern").flatten() {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(&file).expect("a text");
        let read = match &*name {
            "simulator.json" => read_parties::simulator(&name, &text).map(drop),
            "validator.json" => read_parties::validator(&name, &text).map(drop),
            name if name.starts_with("agent") => read::agent(name, &text).map(drop),
            _ => continue,
        };
        read.unwrap_or_else(|errors| panic!("{}: {errors}", file.display()));
        scripts += 1;
    }
    assert!(scripts >= 30, "{scripts} scripts");
}

#[tokio::test]
async fn the_command_line_says_what_is_wrong() {
    Cli::command().debug_assert();
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("agent.json");
    fs::write(&script, r#"{"replies": []}"#).expect("writes");
    let script = script.to_string_lossy().into_owned();
    let run = |args: &[&str]| {
        let args = ["forge-sidecar", "script"].iter().chain(args).copied();
        run(Cli::try_parse_from(args).expect("parses"))
    };
    let error = run(&[&script, "--listen", "0.0.0.0:0"]).await.expect_err("open to all");
    assert!(matches!(error, SidecarError::NotLoopback(_)) && error.exit_code() == 2);
    let error = run(&["missing.json", "--simulator", "also-missing.json"]).await.expect_err("no files");
    assert_eq!(error.to_string().lines().count(), 2, "{error}");
    assert_eq!(error.exit_code(), 2);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = taken.local_addr().expect("an address").to_string();
    let error = run(&[&script, "--listen", &address]).await.expect_err("in use");
    assert!(matches!(error, SidecarError::Listen { .. }) && error.exit_code() == 3, "{error}");
}
