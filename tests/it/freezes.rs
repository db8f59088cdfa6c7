//! Agents and suites that want much work done: other clients of the daemon have an answer at once, and no thread of its
//! runtime is held up, which its log would tell.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forge::wire::agent as pb;
use forge::wire::agent::invoke_response::Event;
use forge::wire::control::GetInfoRequest;
use forge::wire::control::info_service_client::InfoServiceClient;

use crate::processes::{Place, Running};
use crate::support::fake::{Asked, Fake, Script};

/// How long anybody may wait for an answer to the smallest question.
const AT_ONCE: Duration = Duration::from_secs(1);

/// What an agent does with as much as it is given, by the name of the case.
fn agent(size: usize) -> Fake {
    let object = |size| format!("{{{}}}", list(size, |number| format!("\"k{number:06}\":{number}")));
    // What a script is told of calls has to fit into its memory.
    let (object, for_script) = (Arc::new(object(size)), object(size.min(200_000)));
    let events = move |asked: &Asked| match asked.case.as_str() {
        "list" => vec![call("1", &format!("[{}]", list(size, |number| number.to_string())))],
        "text" => vec![call("1", &serde_json::to_string(&*object).expect("JSON"))],
        // Nothing but blanks behind each of very many calls.
        "blanks" => (0..1_500).flat_map(|number| [call(&number.to_string(), "{}"), blanks(), done(number)]).collect(),
        "TestMuch" => vec![call("1", &for_script)],
        _ => vec![call("1", &object)],
    };
    Script::new(|_| Ok("hello".to_owned())).able(&["tools.stub"]).doing(events).start()
}

fn list(size: usize, entry: impl Fn(usize) -> String) -> String {
    (0..size).map(entry).collect::<Vec<_>>().join(",")
}

fn json(text: &str) -> pb::Json {
    pb::Json { form: Some(pb::json::Form::Raw(text.as_bytes().to_vec())) }
}

fn call(id: &str, params: &str) -> Event {
    let (call_id, name) = (id.to_owned(), "look".to_owned());
    Event::ToolStarted(pb::ToolCallStarted { call_id, name, params: Some(json(params)), ..Default::default() })
}

fn done(number: usize) -> Event {
    let outcome = Some(pb::tool_call_finished::Outcome::Result(json("1")));
    Event::ToolFinished(pb::ToolCallFinished { call_id: number.to_string(), outcome, ..Default::default() })
}

fn blanks() -> Event {
    Event::TextDelta(pb::TextDelta {
        text: " ".repeat(8 << 10),
        channel: pb::TextChannel::Answer.into(),
        ..Default::default()
    })
}

/// Asks again and again who the daemon is, and says how long the longest answer took.
fn asks(url: &str, is_over: &Arc<AtomicBool>) -> std::thread::JoinHandle<Duration> {
    let (url, is_over) = (url.to_owned(), Arc::clone(is_over));
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let mut longest = Duration::ZERO;
        while !is_over.load(Ordering::Relaxed) {
            let began = Instant::now();
            runtime.block_on(async {
                let mut client = InfoServiceClient::connect(url.clone()).await.expect("connects");
                client.get_info(GetInfoRequest {}).await.expect("an answer");
            });
            longest = longest.max(began.elapsed());
            std::thread::sleep(Duration::from_millis(25));
        }
        longest
    })
}

/// How long a thread of the runtime was held up at most, as the log tells: what took less than a quarter of a second is
/// not told.
fn longest_hold(log: &str) -> Duration {
    let took = log.lines().filter(|line| line.contains("held up a thread")).filter_map(|line| {
        let took = line.split_once("took=")?.1.trim();
        let millis = took.strip_suffix("ms").and_then(|number| number.parse::<f64>().ok());
        let seconds = || took.strip_suffix('s')?.parse::<f64>().ok();
        Some(Duration::from_secs_f64(millis.map(|millis| millis / 1e3).or_else(seconds).expect("a time")))
    });
    took.max().unwrap_or_default()
}

/// Lets runs with so much in them go, and looks at the daemon meanwhile: no thread of it may be held up for longer than
/// `most`.
fn nobody_else_waits(size: usize, copies: usize, most: Duration) {
    let place = Place::new();
    let agent = agent(size);
    let (daemon, url) = place.daemon();
    let case = |name: &str, more: &str| {
        format!(r#"{{"id": "{name}", "description": "d", "input": {{"message": "hi"}}, {more}}}"#)
    };
    let params = r#"{"tool": "look", "paramName": "k000001", "assertion": "equals", "value": 1}"#;
    let looks = format!(r#""expect": {{"toolParams": [{}]}}"#, [params; 200].join(","));
    let stubs = |tool: &str| format!(r#""stubs": {{"{tool}": {{"a": 1}}}}, "expect": {{"toolsCalled": ["look"]}}"#);
    let cases = [
        case("object", &looks),
        case("list", r#""expect": {"toolsCalled": ["look"]}"#),
        case("text", r#""expect": {"toolsCalled": ["look"]}"#),
        case("blanks", r#""expect": {"responseContains": ["hello"]}"#),
        case("stub", &stubs("look")),
        case("no stub", &stubs("other")),
    ];
    place.write("much.golden.json", &format!("[{}]", cases.join(",")));
    // More than that takes the memory that a script may have.
    let script = "export function TestMuch(t) {\n const a = {}, b = {};\n for (let i = 0; i < SIZE; i++) { a['a' + i] = i; b['b' + i] = i }\n \
        const answer = Process('agents.x.Stream', { metadata: a }, 'hi', { metadata: b, list: Object.keys(a) });\n \
        t.assert.Equal(answer.content, 'hello');\n}\n";
    place.write(
        "scripts/much_test.ts",
        &script.replace("SIZE", &(size / 20).min(10_000).to_string()).replace("agents.x", "agents.me"),
    );
    let is_over = Arc::new(AtomicBool::new(false));
    let asking = asks(&url, &is_over);
    let target = format!("me={}", agent.url);
    let copies = copies.to_string();
    let args =
        ["-n", "me", "--agent", &target, "--daemon", &url, "--runs", &copies, "--parallel", "8", "--timeout", "60s"];
    let runs = ["much.golden.json", "scripts/much_test.ts"]
        .map(|file| Running::start(place.forgectl(&[&["run", file][..], &args].concat())));
    let ended = runs.map(|run| run.end_within(Duration::from_mins(5)));
    // A client that watches reads all of it once more.
    let listed = place.run(&["runs", "list", "--daemon", &url]).stdout;
    for run in listed.lines().filter_map(|line| line.split_whitespace().find(|word| word.len() == 36)) {
        let watched = place.run(&["watch", run, "--cases", "--daemon", &url]);
        assert_eq!(watched.code, Some(0), "{}{}", watched.stdout, watched.stderr);
    }
    is_over.store(true, Ordering::Relaxed);
    let longest = asking.join().expect("is answered");
    for run in &ended {
        assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    }
    assert!(longest < AT_ONCE, "an answer took {longest:?}");
    daemon.signal("TERM");
    // It is counted from its start.
    let told = daemon.end_within(Duration::from_mins(10)).stderr;
    assert!(longest_hold(&told) <= most, "{told}");
}

#[test]
fn much_of_one_is_nobody_elses_wait() {
    // Other tests want the processors, too.
    nobody_else_waits(200_000, 1, AT_ONCE);
}

#[test]
#[ignore = "long: make attacks"]
fn very_much_of_many_is_nobody_elses_wait() {
    nobody_else_waits(800_000, 4, Duration::ZERO);
}
