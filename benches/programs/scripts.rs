//! What scripts cost, and what hostile ones cost others.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{DAEMON, Server, cases, forgectl, median, percentile, place};

/// 10,000 assertions of one line each, ten a case and one a case, the whole run: reading, agent, scripts, verdicts,
/// results.
pub(crate) fn script_assertions() {
    const COUNT: usize = 10_000;
    let (folder, agent) = place(0);
    let folder = folder.path();
    std::fs::write(folder.join("scripts/judge.ts"), "export default (output: string) => output.length > 3")
        .expect("writes");
    std::fs::write(folder.join("with.jsonl"), cases(COUNT, r#"{"type": "script", "use": "scripts:judge"}"#))
        .expect("writes");
    std::fs::write(folder.join("without.jsonl"), cases(COUNT, r#"{"type": "contains", "value": "hell"}"#))
        .expect("writes");
    let ten = [r#"{"type": "script", "use": "scripts:judge"}"#; 10].join(", ");
    std::fs::write(folder.join("ten.jsonl"), cases(COUNT / 10, &ten)).expect("writes");
    let url = format!("grpc://{}", agent.address);
    let time = |suite: &str, cases: usize| {
        let began = Instant::now();
        let args = ["run", suite, "-n", &url, "--parallel", "16", "-q", "--daemon-free"];
        let summary = forgectl(folder, &args);
        assert!(summary.contains(&format!("Passed:  {cases}\n")), "{summary}");
        began.elapsed()
    };
    let (mut tens, mut with, mut without) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        tens.push(time("ten.jsonl", COUNT / 10));
        with.push(time("with.jsonl", COUNT));
        without.push(time("without.jsonl", COUNT));
    }
    let (tens, with, without) = (median(tens), median(with), median(without));
    println!("  {COUNT} script assertions in {} cases: {:.2} s (has to be under 5)", COUNT / 10, tens.as_secs_f64());
    println!("  {COUNT} cases with a script assertion each: {:.2} s", with.as_secs_f64());
    println!("  {COUNT} cases with `contains` each: {:.2} s", without.as_secs_f64());
}

/// 200 cases beside nothing, and beside scripts that attack.
pub(crate) fn neighbours() {
    let (folder, agent) = place(20);
    let folder = folder.path();
    let attacks = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attacks");
    let mut hostile = String::new();
    for entry in std::fs::read_dir(attacks).expect("attacks") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        std::fs::copy(&path, folder.join("scripts").join(format!("{name}.js"))).expect("copies");
        let assertion = format!(r#"{{"type": "script", "use": "scripts:{name}"}}"#);
        hostile += &cases(1, &assertion).replace("c0", &name);
    }
    std::fs::write(folder.join("hostile.jsonl"), hostile).expect("writes");
    std::fs::write(folder.join("scripts/judge.js"), "export default (output) => output.length > 3").expect("writes");
    std::fs::write(folder.join("plain.jsonl"), cases(200, r#"{"type": "contains", "value": "hell"}"#)).expect("writes");
    std::fs::write(folder.join("scripted.jsonl"), cases(200, r#"{"type": "script", "use": "scripts:judge"}"#))
        .expect("writes");
    let daemon = Server::start(DAEMON, folder, &["--data-dir", "data"]);
    let (daemon_url, url) = (format!("http://{}", daemon.address), format!("grpc://{}", agent.address));
    let run = |suite: &str, parallel: &str| {
        let args = ["run", suite, "-n", &url, "--daemon", &daemon_url, "--parallel", parallel, "--detach", "-q"];
        forgectl(folder, &args).trim().to_owned()
    };
    let measure = |suite: &str| percentile(case_times(folder, &daemon_url, &run(suite, "4")), 0.99);
    let alone = ["plain.jsonl", "scripted.jsonl"].map(measure);
    let quiet_memory = daemon.peak_memory();
    let mut beside = Vec::new();
    for suite in ["plain.jsonl", "scripted.jsonl"] {
        let attack = run("hostile.jsonl", "26");
        std::thread::sleep(Duration::from_millis(300));
        beside.push(measure(suite));
        let still_attacks = forgectl(folder, &["runs", "list", "--daemon", &daemon_url]);
        let line = still_attacks.lines().find(|line| line.contains(&attack)).unwrap_or_default().to_owned();
        assert!(line.contains("running"), "the attack was over before its neighbours: {line:?} in {still_attacks}");
        case_times(folder, &daemon_url, &attack);
    }
    for (index, suite) in ["plain cases", "cases with a script"].into_iter().enumerate() {
        let (alone, beside) = (alone[index], beside[index]);
        let more = beside.saturating_sub(alone);
        println!(
            "  200 {suite}, 99th percentile: {alone:.0?} alone, {beside:.0?} beside 26 attacks: {more:.0?} more (has to be under 100ms)"
        );
    }
    println!(
        "  peak memory of the daemon: {quiet_memory} MiB before, {} MiB after (has to be under 96)",
        daemon.peak_memory()
    );
}

/// Times of the cases of a run, from their start to their verdict, when it is over.
fn case_times(folder: &Path, daemon: &str, run: &str) -> Vec<Duration> {
    cases_of(folder, daemon, run).into_iter().map(|(_, began, ended)| ended.saturating_sub(began)).collect()
}

/// The cases of a run with the times of their start and their verdict, when it is over.
pub(crate) fn cases_of(folder: &Path, daemon: &str, run: &str) -> Vec<(String, Duration, Duration)> {
    let log = forgectl(folder, &["watch", run, "--cases", "--daemon", daemon]);
    let mut started = std::collections::HashMap::new();
    let mut cases = Vec::new();
    for line in log.lines() {
        // 08:55:36.792  fine  started (single)
        let mut parts = line.splitn(3, "  ");
        let (Some(at), Some(id), Some(what)) = (parts.next().and_then(of_day), parts.next(), parts.next()) else {
            continue;
        };
        if what.starts_with("started") {
            started.insert(id, at);
        } else if let Some(began) = started.remove(id) {
            cases.push((id.to_owned(), began, at));
        }
    }
    assert!(!cases.is_empty(), "no case in the log: {log}");
    cases
}

/// A time of day.
pub(crate) fn of_day(text: &str) -> Option<Duration> {
    let mut parts = text.split(':');
    let mut next = || parts.next()?.parse::<f64>().ok();
    Some(Duration::from_secs_f64(next()? * 3600.0 + next()? * 60.0 + next()?))
}
