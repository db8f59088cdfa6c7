//! Agents that forgectl starts for a run, and that end with it, however it ends.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::processes::{Ended, Place, Running};
use crate::python::python;

const SUITE: &str = r#"[{"id": "a", "input": {"message": "Hello, I am Ada"}, "expect": {"responseNonEmpty": true}}]"#;

/// An HTTP endpoint as people write one.
const CHAT: &str = r#"
import http.server, json, sys, time

class Chat(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        if "hang" in self.path:
            time.sleep(1000)
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps({"response": "You said: " + asked["message"]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Chat).serve_forever()
"#;

/// A folder with the agent of `forgectl init python`, and a suite for it.
fn project() -> Place {
    let place = Place::new();
    let ended = place.run(&["init", "python", "agent"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    place.write("a.golden.json", SUITE);
    place.write("chat.py", CHAT);
    place
}

fn run(place: &Place, args: &[&str]) -> Ended {
    Running::start(place.forgectl(&[&["run", "a.golden.json", "-o", "r.json"], args].concat())).end()
}

/// A command that writes its process id and that of a child to files, before it is the agent.
fn noted(command: &str) -> String {
    format!("sleep 1000 & echo $! > child; echo $$ > pid; exec {command}")
}

/// Whether the process whose id stands in a file goes on.
fn goes_on(place: &Place, file: &str) -> bool {
    let id = std::fs::read_to_string(place.path().join(file)).expect("it was started");
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", id.trim())).unwrap_or_default();
    // One that nobody has taken leave of has ended all the same.
    stat.rsplit(')').next().is_some_and(|fields| !fields.trim().is_empty() && !fields.trim().starts_with('Z'))
}

fn wait_until_all_are_gone(place: &Place) {
    let begun = Instant::now();
    while goes_on(place, "pid") || goes_on(place, "child") {
        assert!(begun.elapsed() < Duration::from_secs(10), "the agent, or what it started, is left");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

#[test]
fn one_command_does_it_all() {
    let place = project();
    let python = python();
    let start = noted(&format!("{python} agent/agent.py --listen {{listen}}"));
    let ended = run(&place, &["--start", &start]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(place.json("r.json")["agentId"], "agent");
    wait_until_all_are_gone(&place);
    // Where it listens says -n; and of one that says neither, what it prints.
    let port = free_port();
    let (url, agent) =
        (format!("grpc://127.0.0.1:{port}"), format!("{python} agent/agent.py --listen 127.0.0.1:{port}"));
    let ended = run(&place, &["-n", &url, "--start", &agent]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let told = format!("hello={python} agent/agent.py --listen 127.0.0.1:0");
    let ended = run(&place, &["-n", "hello", "--start", &told]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    // Two of them, by the settings, and one is an HTTP endpoint.
    place.write(
        "forge.config.json",
        &format!(
            r#"{{"agentEndpoint": "chat", "agents": {{"chat": {{"url": "http://{{listen}}/chat", "start": "{python} chat.py {{port}}"}},
                "hello": {{"start": "{python} agent/agent.py --listen {{listen}}"}}}}}}"#
        ),
    );
    place.write(
        "b.jsonl",
        r#"{"id": "b", "input": "x", "assertions": [{"type": "contains", "value": "You said: x"}, {"type": "agent", "use": "agents:hello", "negate": true}]}"#,
    );
    let ended = run(&place, &[]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let ended = run(&place, &["-n", "hello"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    // That of the project is not started where another one is tested.
    assert!(
        ended.stderr.contains("starting the agent \"hello\"") && !ended.stderr.contains("\"chat\""),
        "{}",
        ended.stderr
    );
    // Nobody is started where nobody is asked.
    let dry = place.run(&["run", "a.golden.json", "--dry-run", "--start", "touch started"]);
    assert_eq!(dry.code, Some(0), "{}{}", dry.stdout, dry.stderr);
    assert!(!place.path().join("started").exists());
}

/// What an agent wrote is shown when it does not serve, and nothing of it is left.
#[test]
fn agents_that_do_not_serve() {
    let place = project();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = format!("grpc://{}", taken.local_addr().expect("an address"));
    let silent = noted("sleep 1000");
    for (args, code, texts) in [
        (
            &["--start", "echo loading; echo 'no module named forge' >&2; exit 3"][..],
            3,
            &["ended before it served", "| loading", "| no module named forge", "ended with exit status: 3"][..],
        ),
        (
            &["--start", "/no/such/agent {listen}"],
            3,
            &["ended before it served", "ended with exit status: 127", "hint: the program is not installed, or not on"],
        ),
        (
            &["--start", "echo 'Error [ERR_MODULE_NOT_FOUND]: no forge-daemon' >&2; exit 1"],
            3,
            &["hint: what the agent imports is not installed: run `npm install`"],
        ),
        (
            &["--start", &format!("{} -c 'import no_such_thing'", python()), "-n", "grpc://127.0.0.1:9"],
            3,
            &[
                "| ModuleNotFoundError: No module named 'no_such_thing'",
                "hint: what the agent imports is not installed",
            ],
        ),
        (
            &["--start", &silent, "--start-within", "300ms"],
            3,
            &["does not say `listening on ADDRESS` after 300ms", "it wrote nothing"],
        ),
        (
            &["--start", "sleep 1000; : {listen}", "--start-within", "300ms"],
            3,
            &["does not listen at 127.0.0.1:", "after 300ms"],
        ),
        (&["-n", &taken, "--start", "sleep 1000"], 3, &["somebody listens at 127.0.0.1:", "already"]),
        (&["--start", "a=x", "--start", "a=y"], 2, &["--start names \"a\" twice"]),
        (&["--start", " "], 2, &["has no command"]),
        (&["--start", "x", "--detach"], 2, &["--detach does not wait for the run"]),
        (&["--start", "x", "-n", "ftp://a"], 2, &["\"ftp://a\" is no address of an agent"]),
    ] {
        let ended = run(&place, args);
        assert_eq!(ended.code, Some(code), "{args:?}: {}", ended.stderr);
        for text in texts {
            assert!(ended.stderr.contains(text), "{args:?}: {text}: {}", ended.stderr);
        }
    }
    wait_until_all_are_gone(&place);
}

/// However forgectl ends: asked once, asked twice, or killed.
#[test]
fn no_orphan_is_left() {
    for signals in [&["INT"][..], &["TERM"], &["INT", "INT"], &["KILL"]] {
        let place = project();
        // It hears no SIGTERM, and neither does its child.
        place.write(
            "deaf.py",
            "import signal, sys, runpy\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nsys.argv = sys.argv[1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')\n",
        );
        let start = noted(&format!("{} deaf.py chat.py {{port}}", python()));
        let start = start.replace("sleep 1000 &", "(trap '' TERM; sleep 1000) &");
        let args = ["run", "a.golden.json", "-n", "http://{listen}/hang", "--start", &start];
        let mut forgectl = Running::start(place.forgectl(&args));
        wait_for(&place.path().join("pid"));
        // Until it runs.
        std::thread::sleep(Duration::from_millis(if signals == ["TERM"] { 50 } else { 1500 }));
        assert!(!forgectl.has_ended());
        for signal in signals {
            forgectl.signal(signal);
            std::thread::sleep(Duration::from_millis(20));
        }
        let code = if signals == ["KILL"] { None } else { Some(130) };
        let ended = forgectl.end();
        assert_eq!(ended.code, code, "{signals:?}: {}", ended.stderr);
        wait_until_all_are_gone(&place);
    }
}

fn wait_for(path: &Path) {
    let begun = Instant::now();
    while !path.exists() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{} does not come", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}
