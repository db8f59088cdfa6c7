//! What a daemon keeps: over restarts, for those who look at it later, and for those who want it otherwise.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::processes::{DAEMON, Place, Running, command};

const AGENT: &str = r#"{"replies": [
    {"on": "slow", "events": [{"wait_ms": 300}, {"text": "done"}]},
    {"on": "*", "events": [{"text": "hello there"}]}
]}"#;

fn cases(message: &str, count: usize) -> String {
    let case = |n| {
        let assertion = r#"{"type": "contains", "value": "o"}"#;
        format!("{{\"id\": \"c{n}\", \"input\": \"{message}\", \"assertions\": [{assertion}]}}\n")
    };
    (0..count).map(case).collect()
}

/// Starts a run and gives its id.
fn start(place: &Place, daemon: &str, agent: &str, suite: &str, more: &[&str]) -> String {
    let args = ["run", suite, "-n", agent, "--daemon", daemon, "--detach"];
    let ended = place.run(&[&args[..], more].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    ended.stdout.trim().to_owned()
}

fn runs(place: &Place, daemon: &str, args: &[&str]) -> String {
    let ended = place.run(&[&["runs"], args, &["--daemon", daemon]].concat());
    assert_eq!(ended.code, Some(0), "{args:?}: {}{}", ended.stdout, ended.stderr);
    ended.stdout
}

#[test]
fn runs_are_held_and_changed() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let (daemon, url) = place.daemon();
    place.write("t.jsonl", &cases("slow", 12));
    let run = start(&place, &url, &agent, "t.jsonl", &[]);
    assert!(runs(&place, &url, &["pause", &run]).contains("paused, 1 at a time"));
    // The case in flight ends, and no other starts.
    std::thread::sleep(Duration::from_millis(500));
    let passed = || {
        let line = runs(&place, &url, &["list"]);
        let counts = line.split_whitespace().find(|word| word.contains("/12")).expect("counts").to_owned();
        counts.split_once('/').expect("counts").0.parse::<u32>().expect("a number")
    };
    let before = passed();
    std::thread::sleep(Duration::from_millis(900));
    assert_eq!(passed(), before, "a case was started");
    assert!(runs(&place, &url, &["list"]).contains("paused"));
    // It stays so when the daemon is another one.
    daemon.signal("KILL");
    drop(daemon);
    let _daemon = place.daemon_at(&url);
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(passed(), before, "a case was started");
    assert!(runs(&place, &url, &["set", &run, "--parallel", "12"]).contains("paused, 12 at a time"));
    assert!(runs(&place, &url, &["resume", &run]).contains("running, 12 at a time"));
    let watched = place.run(&["watch", &run, "--cases", "--daemon", &url]);
    assert!(watched.stdout.contains("passed: 12 of 12"), "{}", watched.stdout);
    let refused = place.run(&["runs", "pause", &run, "--daemon", &url]);
    assert!(refused.stderr.contains("is over"), "{}", refused.stderr);
}

#[test]
fn runs_are_found_again() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let (daemon, url) = place.daemon();
    place.write("t.jsonl", &cases("x", 2));
    place.write("a_b.jsonl", &cases("x", 1).replace("\"o\"", "\"zzz\""));
    let added = place.run(&["agents", "add", "mine", &agent, "--daemon", &url]);
    assert_eq!(added.code, Some(0), "{}", added.stderr);
    let one = start(&place, &url, "mine", "t.jsonl", &["--label", "branch=main", "--label", "who=ada"]);
    let other = start(&place, &url, &agent, "a_b.jsonl", &["--label", "branch=50%"]);
    for run in [&one, &other] {
        place.run(&["watch", run, "--daemon", &url]);
    }
    // Everything is there for the next daemon too, the agent that was added included.
    daemon.signal("TERM");
    assert_eq!(daemon.end().code, Some(0));
    let _daemon = place.daemon_at(&url);
    assert!(place.run(&["agents", "list", "--daemon", &url]).stdout.contains("mine"));
    for (filter, found) in [
        (&["--agent", "mine"][..], &[&one][..]),
        (&["--suite", "a_b.jsonl"], &[&other]),
        (&["--suite", "a%b.jsonl"], &[]),
        (&["--outcome", "passed"], &[&one]),
        (&["--outcome", "failed", "--outcome", "passed"], &[&other, &one]),
        (&["--label", "branch=main"], &[&one]),
        (&["--label", "branch=50%"], &[&other]),
        (&["--label", "branch=5%"], &[]),
        (&["--label", "branch=main", "--label", "who=bob"], &[]),
        (&["--since", "1h"], &[&other, &one]),
        (&["--until", "1h"], &[]),
        (&["--since", "2020-01-01", "--until", "2020-01-02T00:00:00Z"], &[]),
        (&["--limit", "1"], &[&other]),
    ] {
        let listed = runs(&place, &url, &[&["list"], filter].concat());
        let ids: Vec<&str> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(ids, found.iter().map(|id| id.as_str()).collect::<Vec<_>>(), "{filter:?}");
    }
    for bad in [&["--outcome", "green"][..], &["--since", "soon"]] {
        assert_eq!(place.run(&[&["runs", "list", "--daemon", &url], bad].concat()).code, Some(2), "{bad:?}");
    }
    let history = place.run(&["cases", "history", "c0", "--daemon", &url]).stdout;
    let lines: Vec<&str> = history.lines().collect();
    let told = ["c0  a_b.jsonl  ▁  0 of 1 passed", "c0  t.jsonl  █  1 of 1 passed"];
    assert_eq!((lines.len(), &lines[..2]), (4, &told[..]), "{history}");
    assert!(
        lines[2].starts_with(&other) && lines[2].contains("failed") && lines[2].contains("blame agent"),
        "{history}"
    );
    assert_eq!(place.run(&["cases", "history", "nobody", "--daemon", &url]).code, Some(4));
    runs(&place, &url, &["rm", &one]);
    assert_eq!(runs(&place, &url, &["list"]).lines().count(), 1);
    assert!(place.run(&["runs", "rm", &one, "--daemon", &url]).stderr.contains("there is no run"));
    assert!(place.run(&["cases", "history", "c1", "--daemon", &url]).stderr.contains("no run that is kept"));
}

/// Two watchers see the same, also one that was stopped meanwhile, and holds up nobody.
#[test]
fn a_watcher_that_is_stopped() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let (_daemon, url) = place.daemon();
    place.write("t.jsonl", &cases("x", 3_000));
    let run = start(&place, &url, &agent, "t.jsonl", &["--parallel", "8"]);
    let mut slow = Running::start(place.forgectl(&["watch", &run, "--daemon", &url]));
    slow.line();
    slow.signal("STOP");
    let quick = place.run(&["watch", &run, "--daemon", &url]);
    assert!(quick.stdout.contains("3000 of 3000 passed"), "{}", quick.stdout.lines().last().unwrap_or_default());
    slow.signal("CONT");
    let mut rest = slow.end();
    let first = quick.stdout.lines().next().expect("a line");
    rest.stdout.insert_str(0, &format!("{first}\n"));
    assert_eq!(rest.stdout, quick.stdout);
}

/// With `abort`, runs that are found end errored, and say why.
#[test]
fn runs_that_are_not_to_go_on() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    place.write("forge.toml", "on_restart = 'abort'");
    place.write("t.jsonl", &cases("slow", 5));
    let daemon = |listen: &str| {
        let mut daemon = command(DAEMON, place.path());
        daemon.args(["--listen", listen, "--data-dir", "data", "--config", "forge.toml"]);
        Running::start(daemon)
    };
    let mut first = daemon("127.0.0.1:0");
    let address = first.address();
    let url = format!("http://{address}");
    let followed = Running::start(place.forgectl(&["run", "t.jsonl", "-n", &agent, "--daemon", &url]));
    std::thread::sleep(Duration::from_millis(700));
    first.signal("KILL");
    drop(first);
    let mut second = daemon(&address);
    second.address();
    let ended = followed.end();
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("configured not to go on"), "{}", ended.stderr);
}

/// A run may be what daemons die of: after three deaths it is gone on with no more, and the others are. Daemons that
/// are told to stop have not died.
#[test]
fn a_run_that_daemons_die_of() {
    let place = Place::new();
    let (_agent, agent) = place.agent(r#"{"replies": [{"on": "*", "events": [{"wait_ms": 600000}, {"text": "o"}]}]}"#);
    let (_other, other) = place.agent(AGENT);
    place.write("forge.toml", "drain = '100ms'");
    place.write("t.jsonl", &cases("x", 1));
    let daemon = |listen: &str| {
        let mut daemon = command(DAEMON, place.path());
        daemon.args(["--listen", listen, "--data-dir", "data", "--config", "forge.toml"]);
        let mut daemon = Running::start(daemon);
        let address = daemon.address();
        (daemon, address)
    };
    let (mut running, address) = daemon("127.0.0.1:0");
    let url = format!("http://{address}");
    let run = start(&place, &url, &agent, "t.jsonl", &[]);
    let is_running = || {
        (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            runs(&place, &url, &["show", &run]).contains("running")
        })
    };
    for signal in ["KILL", "TERM", "TERM", "KILL", "TERM", "KILL"] {
        assert!(is_running(), "before {signal}: {}", runs(&place, &url, &["show", &run]));
        std::thread::sleep(Duration::from_millis(300));
        running.signal(signal);
        running.end();
        (running, _) = daemon(&address);
    }
    let shown = runs(&place, &url, &["show", &run]);
    assert!(shown.contains("errored") && shown.contains("it was running at 3 deaths of the daemon"), "{shown}");
    let next = place.run(&["run", "t.jsonl", "-n", &other, "--daemon", &url]);
    assert_eq!(next.code, Some(0), "{}{}", next.stdout, next.stderr);
}

/// A store that cannot be used keeps the daemon from starting, and one line says why.
#[test]
fn stores_that_cannot_be_used() {
    let place = Place::new();
    let start = |data: &str, more: &[&str]| {
        let mut daemon = command(DAEMON, place.path());
        daemon.args(["--listen", "127.0.0.1:0", "--data-dir", data]).args(more);
        Running::start(daemon)
    };
    let mut daemon = start("newer", &[]);
    daemon.address();
    daemon.signal("TERM");
    assert_eq!(daemon.end().code, Some(0));
    let newer = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute(\"insert into _sqlx_migrations \
                 values (99, 'x', '2030-01-01', 1, x'00', 1)\"); db.commit()";
    let database = place.path().join("newer/forge.db");
    assert!(Command::new("python3").args(["-c", newer]).arg(&database).status().expect("python3 runs").success());
    place.write("corrupt/forge.db", &"this is no database ".repeat(1_000));
    std::fs::create_dir_all(place.path().join("folder/forge.db")).expect("a folder");
    for (data, more, code, why) in [
        ("newer", &[][..], 3, "the store was written by a newer version of forge-daemon"),
        ("corrupt", &[], 3, "file is not a database"),
        ("folder", &[], 3, "the store"),
        ("x", &["--store", "postgres://nobody@127.0.0.1:1/none"], 3, "the store"),
        ("x", &["--store", "mysql://x"], 2, "store: must begin with postgres:// or sqlite://"),
    ] {
        let ended = start(data, more).end();
        assert_eq!(ended.code, Some(code), "{data}: {}", ended.stderr);
        let complaints: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with("forge-daemon: ")).collect();
        assert!(complaints.len() == 1 && complaints[0].contains(why), "{data}: {}", ended.stderr);
    }
    assert!(Path::new(&database).exists());
    // One that is named and not there yet is made, and is for one daemon at a time.
    let mut made = start("x", &["--store", "sqlite://made.db"]);
    made.address();
    assert!(place.path().join("made.db").exists());
    let second = start("y", &["--store", "sqlite://made.db"]).end();
    assert_eq!(second.code, Some(3), "{}", second.stderr);
    assert!(second.stderr.contains("the store is in use by another daemon"), "{}", second.stderr);
}

/// One store is for one daemon, by whichever name it is called.
#[test]
fn a_store_has_one_daemon() {
    let place = Place::new();
    let (_daemon, _) = place.daemon();
    let data = place.path().join("daemon/data");
    let mode = |file: &str| {
        let meta = std::fs::metadata(data.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        std::os::unix::fs::PermissionsExt::mode(&meta.permissions()) & 0o777
    };
    assert_eq!([".", "bundles"].map(mode), [0o700; 2], "folders are for its user alone");
    assert_eq!(["lock", "forge.db", "forge.db-wal", "forge.db-shm"].map(mode), [0o600; 4], "files, too");
    std::os::unix::fs::symlink(&data, place.path().join("link")).expect("a link");
    std::os::unix::fs::symlink(data.join("forge.db"), place.path().join("link.db")).expect("a link");
    std::fs::hard_link(data.join("forge.db"), place.path().join("hard.db")).expect("a link");
    let second = |args: &[&str]| {
        let mut second = command(DAEMON, place.path());
        second.args(["--listen", "127.0.0.1:0"]).args(args);
        Running::start(second).end()
    };
    for args in [
        &["--data-dir", "link"][..],
        &["--data-dir", "daemon/../daemon/data"],
        &["--data-dir", "other", "--store", "sqlite://daemon/data/forge.db"],
        &["--data-dir", "other", "--store", "sqlite://link.db"],
        &["--data-dir", "other", "--store", "sqlite://hard.db?mode=rw"],
    ] {
        let ended = second(args);
        assert_eq!(ended.code, Some(3), "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("in use by another daemon"), "{args:?}: {}", ended.stderr);
    }
    std::fs::remove_file(data.join("lock")).expect("it is there");
    assert_eq!(second(&["--data-dir", "daemon/data"]).code, Some(3), "the database is locked, too");
}

/// A daemon without its files would tell of runs that nobody keeps.
#[test]
fn files_that_are_taken_away() {
    for file in ["forge.db", "lock"] {
        let place = Place::new();
        let (daemon, _) = place.daemon();
        std::fs::remove_file(place.path().join("daemon/data").join(file)).expect("it is there");
        let ended = daemon.end();
        assert_eq!(ended.code, Some(3), "{file}: {}", ended.stderr);
        assert!(ended.stderr.contains(&format!("{file} was deleted or replaced")), "{}", ended.stderr);
    }
}

/// Rows that nobody can read any more are passed over, and the others are there.
#[test]
fn rows_that_cannot_be_read() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let (daemon, url) = place.daemon();
    place.write("t.jsonl", &cases("x", 2));
    place.run(&["run", "t.jsonl", "-n", &agent, "--daemon", &url, "-q"]);
    place.run(&["agents", "add", "mine", &agent, "--daemon", &url]);
    daemon.signal("KILL");
    drop(daemon);
    let spoil = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute(\"insert into agents values ('bad', 'grpc://127.0.0.1:1', 'no')\"); \
                 db.execute(\"update runs set bundle = 'zz'\"); db.execute(\"update cases set outcome = 'x' where case_id = 'c0'\"); db.commit()";
    let database = place.path().join("daemon/data/forge.db");
    assert!(Command::new("python3").args(["-c", spoil]).arg(&database).status().expect("python3 runs").success());
    let _daemon = place.daemon_at(&url);
    assert!(place.run(&["agents", "list", "--daemon", &url]).stdout.contains("mine"));
    assert_eq!(place.run(&["cases", "history", "c1", "--daemon", &url]).code, Some(0));
    place.write("new.jsonl", &cases("x", 3));
    let run = place.run(&["run", "new.jsonl", "-n", &agent, "--daemon", &url, "-q"]);
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
}

/// A daemon that stood still longer than anything waits for the store has lost time and nothing else.
#[test]
#[ignore = "long: make attacks"]
fn a_daemon_that_stood_still() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let (daemon, url) = place.daemon();
    place.write("many.jsonl", &cases("x", 4_000));
    place.write("few.jsonl", &cases("x", 3));
    for pause in [12, 25] {
        let run = start(&place, &url, &agent, "many.jsonl", &["--parallel", "8"]);
        std::thread::sleep(Duration::from_millis(700));
        daemon.signal("STOP");
        std::thread::sleep(Duration::from_secs(pause));
        daemon.signal("CONT");
        let watched = place.run(&["watch", &run, "--daemon", &url]);
        assert!(!watched.stderr.contains("cannot be written"), "{}{}", watched.stdout, watched.stderr);
        let few = place.run(&["run", "few.jsonl", "-n", &agent, "--daemon", &url, "-q"]);
        assert_eq!(few.code, Some(0), "{}{}", few.stdout, few.stderr);
    }
}

#[test]
fn a_run_that_cannot_be_read_hides_no_other() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let (daemon, url) = place.daemon();
    place.write("t.jsonl", &cases("x", 1));
    for _ in 0..2 {
        place.run(&["run", "t.jsonl", "-n", &agent, "--daemon", &url, "-q"]);
    }
    daemon.signal("KILL");
    drop(daemon);
    let spoil = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute(\"update runs set body = x'ff', head = x'ff', state = 'running', \
                 finished_at = null where run_id = (select min(run_id) from runs)\"); db.commit()";
    let database = place.path().join("daemon/data/forge.db");
    assert!(Command::new("python3").args(["-c", spoil]).arg(&database).status().expect("python3 runs").success());
    let _daemon = place.daemon_at(&url);
    let list = place.run(&["runs", "list", "--daemon", &url]);
    assert_eq!((list.code, list.stdout.lines().count()), (Some(0), 1), "{}{}", list.stdout, list.stderr);
}

/// A file may have a fixed number of blocks of 512 bytes and no more: that is what a full disk looks like.
#[test]
fn a_full_disk() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    place.write("few.jsonl", &cases("few", 3));
    place.write("many.jsonl", &cases("many", 3_000));
    std::fs::create_dir(place.path().join("daemon")).expect("a folder");
    let mut daemon = Command::new("sh");
    let full = format!("trap '' XFSZ; ulimit -S -f 1200; exec {DAEMON} --listen 127.0.0.1:0 --data-dir data");
    daemon.args(["-c", &full]).current_dir(place.path().join("daemon"));
    let mut daemon = Running::start(daemon);
    let url = format!("http://{}", daemon.address());
    let run = |suite: &str, file: &str| {
        let args = ["run", suite, "-n", &agent, "--daemon", &url, "--parallel", "16", "-o", file, "-q", "--wait", "5s"];
        Running::start(place.forgectl(&args)).end_within(Duration::from_mins(4))
    };
    let before = run("few.jsonl", "few.json");
    assert_eq!(before.code, Some(0), "{}{}", before.stdout, before.stderr);
    let full = run("many.jsonl", "many.json");
    assert_eq!(full.code, Some(3), "a verdict that is not stored is none: {}{}", full.stdout, full.stderr);
    assert!(full.stderr.contains("cannot be written") || full.stderr.contains("the store"), "{}", full.stderr);
    assert!(!place.path().join("many.json").exists(), "there is no result of it");
    // What was stored stays readable.
    let id = place.json("few.json")["runId"].as_str().expect("an id").to_owned();
    let show = place.run(&["runs", "show", &id, "--daemon", &url]);
    assert!(show.stdout.contains("Passed:  3\n"), "{}{}", show.stdout, show.stderr);
    assert!(!daemon.has_ended(), "the daemon is still there");
    // With room again, the same daemon works.
    daemon.limit("fsize", "unlimited:");
    let again = run("few.jsonl", "again.json");
    assert_eq!(again.code, Some(0), "{}{}", again.stdout, again.stderr);
    // And at the next start, the run goes on as if nothing had been.
    daemon.signal("KILL");
    drop(daemon);
    let _daemon = place.daemon_at(&url);
    let list = || place.run(&["runs", "list", "--daemon", &url, "--suite", "many.jsonl"]).stdout;
    let begun = Instant::now();
    while !list().contains("passed") && begun.elapsed() < Duration::from_mins(1) {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(list().contains("3000/3000"), "{}", list());
}

/// What decides over the rest of a run is not forgotten with the daemon.
#[test]
fn ends_of_runs_over_a_restart() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    let (daemon, url) = place.daemon();
    place.write("gate.jsonl", &cases("slow", 2));
    let bad = r#"{"id": "bad", "input": "slow", "assertions": [{"type": "contains", "value": "never"}]}"#;
    place.write(
        "fast.jsonl",
        &format!("{}{bad}\n{}", cases("slow", 4), cases("slow", 4).replace("\"id\": \"c", "\"id\": \"later")),
    );
    let run = |suite: &str, file: &str, more: &[&str]| {
        let args = ["run", suite, "-n", &agent, "--daemon", &url, "-o", file];
        Running::start(place.forgectl(&[&args[..], more].concat()))
    };
    place.write("told.jsonl", &cases("slow", 5));
    let after = "export function After(context, results) { if (results.length !== 5) throw new Error(`told of ${results.length}`) }";
    place.write("scripts/end.js", after);
    let told = run("told.jsonl", "told.json", &["--after", "scripts:end.After"]);
    let gated = run("gate.jsonl", "gate.json", &["--runs", "8", "--min-pass-rate", "50%"]);
    let fast = run("fast.jsonl", "fast.json", &["--fail-fast"]);
    std::thread::sleep(Duration::from_millis(900));
    daemon.signal("KILL");
    drop(daemon);
    let _daemon = place.daemon_at(&url);
    let (gated, fast, told) = (gated.end(), fast.end(), told.end());
    assert_eq!(told.code, Some(0), "the script after it is told of all cases: {}{}", told.stdout, told.stderr);
    assert_eq!(gated.code, Some(0), "{}{}", gated.stdout, gated.stderr);
    let json = place.json("gate.json");
    assert_eq!((&json["gate"]["passed"], &json["gate"]["leftOut"]), (&8.into(), &8.into()), "{}", json["gate"]);
    assert_eq!(fast.code, Some(1), "{}{}", fast.stdout, fast.stderr);
    let summary = &place.json("fast.json")["summary"];
    let counts = ["passed", "errored", "skipped", "totalCases"].map(|key| summary[key].as_u64());
    assert_eq!(counts, [Some(4), Some(0), Some(4), Some(9)], "{summary}");
}
