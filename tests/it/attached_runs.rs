//! Agents of this machine under a daemon that cannot dial them: `forgectl run` attaches them for the run.

use std::time::{Duration, Instant};

use crate::processes::{DAEMON, Ended, Place, Running, SIDECAR, command};
use crate::support::endpoint::{Endpoint, Reply};

const SUITE: &str = r#"[{"id": "a", "input": {"message": "x"}, "expect": {"responseContains": ["mine"]}}]"#;

/// A daemon that dials nobody whom a client names.
fn daemon(place: &Place) -> (Running, String) {
    place.write("daemon/forge-daemon.toml", "allowed_targets = []\n");
    place.daemon_with(&["--config", "forge-daemon.toml"])
}

/// A command that starts a scripted agent which gives this answer.
fn start(place: &Place, name: &str, events: &str) -> String {
    let script = format!(r#"{{"replies": [{{"on": "*", "events": {events}}}]}}"#);
    place.write(&format!("{name}.json"), &script);
    format!("{SIDECAR} script {name}.json --listen {{listen}} --log {name}.calls")
}

fn run(place: &Place, daemon: &str, args: &[&str]) -> Ended {
    Running::start(place.forgectl(&[&["run", "a.golden.json", "--daemon", daemon, "-o", "r.json"], args].concat()))
        .end()
}

fn listed(place: &Place, daemon: &str) -> String {
    let listed = place.run(&["agents", "list", "--daemon", daemon]);
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
    listed.stdout
}

#[test]
fn one_command_tests_an_agent_of_this_machine_on_a_daemon_elsewhere() {
    let place = Place::new();
    let (_daemon, url) = daemon(&place);
    let at = url.trim_start_matches("http://");
    place.write("a.golden.json", SUITE);
    // One that is started, which has a simulated user and its own name besides.
    let mine = start(&place, "mine", r#"[{"text": "mine"}]"#);
    let ended = run(&place, &url, &["--start", &mine]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains(&format!("attached to {at} as agent-")), "{}", ended.stderr);
    assert_eq!(place.json("r.json")["agentId"], "agent");
    let calls = std::fs::read_to_string(place.path().join("mine.calls")).unwrap();
    assert!(calls.contains("Invoke") && calls.contains("\"agent_id\":\"agent\""), "{calls}");
    // One that is told where to listen by its address; and one that says so itself.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ended = run(&place, &url, &["--start", &mine, "-n", &format!("grpc://{free}")]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let told = format!("told={}", mine.replace("{listen}", "127.0.0.1:0"));
    let ended = run(&place, &url, &["-n", "told", "--start", &told]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains(&format!("attached to {at} as told-")), "{}", ended.stderr);
    // An HTTP endpoint, by its address and by the settings.
    let chat = Endpoint::start(|_| Reply::Status(200, r#"{"response": "mine"}"#.to_owned()));
    let ended = run(&place, &url, &["-n", &chat.url()]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(place.json("r.json")["agentEndpoint"], chat.url().as_str());
    place.write(
        "forge.config.json",
        &format!(r#"{{"daemon": "{url}", "agentEndpoint": "chat", "agents": {{"chat": "{}"}}}}"#, chat.url()),
    );
    let ended = place.run(&["run", "a.golden.json"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains(&format!("attached to {at} as chat-")), "{}", ended.stderr);
    // What was recorded is judged again without it.
    let again = place.run(&["regrade", "last", "a.golden.json"]);
    assert_eq!(again.code, Some(0), "{}{}", again.stdout, again.stderr);
    assert!(!again.stderr.contains("attached"), "{}", again.stderr);
    // Nobody is left, and nobody waits for a sidecar that ends with forgectl.
    assert_eq!(listed(&place, &url), "");
    let detached = run(&place, &url, &["-n", &chat.url(), "--detach"]);
    assert_eq!(detached.code, Some(2), "{}", detached.stderr);
    assert!(
        detached.stderr.contains("--detach does not wait") && detached.stderr.contains("--attach"),
        "{}",
        detached.stderr
    );
    let dry = place.run(&["run", "a.golden.json", "--start", &mine, "--dry-run"]);
    assert!(dry.code == Some(0) && !dry.stderr.contains("attached"), "{}", dry.stderr);
}

/// Runs of the same suite on one daemon at the same time have their own agents.
#[test]
fn two_people_do_not_get_each_others_agents() {
    let place = Place::new();
    let (_daemon, url) = daemon(&place);
    let begin = |name: &str| {
        let start = start(&place, name, &format!(r#"[{{"wait_ms": 300}}, {{"text": "of {name}"}}]"#));
        let suite = format!(
            r#"[{{"id": "a", "input": {{"message": "x"}}, "expect": {{"responseContains": ["of {name}"]}}}},
                {{"id": "b", "input": {{"message": "y"}}, "expect": {{"responseContains": ["of {name}"]}}}}]"#
        );
        place.write(&format!("{name}/agent.golden.json"), &suite);
        let suite = format!("{name}/agent.golden.json");
        Running::start(place.forgectl(&["run", &suite, "-n", "agent", "--daemon", &url, "--start", &start]))
    };
    let runs = ["ada", "bob"].map(begin);
    let begun = Instant::now();
    while listed(&place, &url).matches("agent-").count() < 2 {
        assert!(begun.elapsed() < Duration::from_secs(20), "both are attached at the same time");
    }
    for run in runs {
        let ended = run.end();
        assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    }
}

#[test]
fn the_first_interrupt_takes_the_agent_back() {
    let place = Place::new();
    let (_daemon, url) = daemon(&place);
    place.write("a.golden.json", SUITE);
    let slow = start(&place, "slow", r#"[{"hang": true}]"#);
    let args = ["run", "a.golden.json", "--daemon", &url, "--start", &slow, "-o", "r.json"];
    let run = Running::start(place.forgectl(&args));
    let begun = Instant::now();
    let has_call =
        || std::fs::read_to_string(place.path().join("slow.calls")).is_ok_and(|calls| calls.contains("Invoke"));
    while !has_call() {
        assert!(begun.elapsed() < Duration::from_secs(20), "the call comes");
        std::thread::sleep(Duration::from_millis(10));
    }
    run.signal("INT");
    let ended = run.end();
    assert_eq!(ended.code, Some(130), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("cancelled"), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(listed(&place, &url), "");
}

/// A daemon on an address that others can reach takes no agents yet, and forgectl says what to do.
#[test]
fn a_daemon_that_takes_no_agents() {
    let place = Place::new();
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    // Nothing is sent: the system says which address would be ours.
    let host = match socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr()) {
        Ok(address) if !address.ip().is_loopback() => address.ip(),
        _ => return eprintln!("this machine has no address but that of loopback"),
    };
    let mut daemon = command(DAEMON, place.path());
    daemon.args(["--listen", &format!("{host}:0"), "--insecure", "--data-dir", "data"]);
    let mut daemon = Running::start(daemon);
    let address = daemon.address();
    let port = address.rsplit(':').next().unwrap();
    place.write("a.golden.json", SUITE);
    let mine = start(&place, "mine", r#"[{"text": "mine"}]"#);
    let ended = run(&place, &format!("http://{address}"), &["--start", &mine]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    let refusal =
        format!("the daemon at {address} refuses the agent: PermissionDenied: agents attach over loopback only");
    assert!(ended.stderr.contains(&refusal), "{}", ended.stderr);
    let hint = format!(
        "hint: open a tunnel, `ssh -N -L {port}:127.0.0.1:{port} {host} &`, and name its end: --daemon http://127.0.0.1:{port}"
    );
    assert!(ended.stderr.contains(&hint), "{}", ended.stderr);
}
