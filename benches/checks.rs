//! What the pure core costs: judging a case, reading a suite file, stopping a pattern that never ends.
//!
//! `cargo bench` prints the figures. They are those of one machine and one moment; what holds elsewhere are their
//! ratios.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Duration;

use forge::check::framework::Replies;
use forge::check::{self, Context};
use forge::conversation::{Arguments, Exchange, JsonText, MaybeJson, ToolCall, ToolMode, ToolOutcome, Transcript};
use forge::suite::template::Data;
use forge::suite::{self, Suite};

// That of the programs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    divan::main();
}

/// One case with 12 assertions, two of them with tokens.
const CASE: &str = r#"[{"id": "a", "input": {"message": "Weather in Paris?"}, "expect": {
    "toolsCalled": ["get_weather", "get_forecast"],
    "toolsNotCalled": ["delete_everything"],
    "toolParams": [
        {"tool": "get_weather", "paramName": "city", "assertion": "equals", "value": "Paris"},
        {"tool": "get_forecast", "paramName": "days", "assertion": "exists"}
    ],
    "noToolErrors": true,
    "responseNonEmpty": true,
    "responseContains": ["Paris", "{{seed:degrees}}"],
    "responseContainsAny": [["rain", "showers"], ["wind", "breeze"]],
    "responseNotContains": ["fetchedAt"],
    "maxLatencyMs": 5000
}}]"#;

fn suite(text: &str) -> Suite {
    suite::parse("bench.golden.json", text.as_bytes(), &suite::Defaults::default()).expect("a suite")
}

fn call(name: &str, params: &str) -> ToolCall {
    ToolCall {
        call_id: name.to_owned(),
        name: name.to_owned(),
        params: Arguments::Given(MaybeJson::Json(JsonText::new(params).expect("JSON"))),
        outcome: Some(ToolOutcome::Result(None)),
        duration: None,
        turn: 1,
    }
}

/// An answer of 2 KB that satisfies the case.
fn exchange() -> Exchange {
    let filling = "The sky over the city changes by the hour, and nobody is surprised. ".repeat(28);
    let response = format!("{filling}In Paris it is 18 degrees, with showers and a light breeze.");
    let calls = vec![
        call("get_weather", r#"{"city": "Paris", "units": "metric"}"#),
        call("get_forecast", r#"{"city": "Paris", "days": 5}"#),
    ];
    let transcript =
        Transcript { response, tool_calls: calls, duration: Duration::from_millis(1250), ..Transcript::default() };
    Exchange { transcript, ..Exchange::default() }
}

fn context<'a>(data: &'a Data, replies: &'a Replies) -> Context<'a> {
    Context {
        dialect: suite::Dialect::Contract,
        timeout: None,
        replies,
        strict: false,
        all_assertions: false,
        tool_mode: ToolMode::Live,
        schemas: None,
        check_arguments: false,
        data,
        tokens: None,
        cost_usd: None,
        replayed: false,
    }
}

/// Target: under 20 µs.
#[divan::bench]
fn twelve_assertions_on_two_kilobytes(bencher: divan::Bencher<'_, '_>) {
    let suite = suite(CASE);
    let case = suite.load(0).expect("a case");
    let seed = forge::json::Json::parse(r#"{"degrees": 18}"#).expect("JSON");
    let data = Data { seed: Some(seed), snapshot: None };
    let result = check::judge(&case, exchange(), &context(&data, &Replies::new()));
    assert_eq!((result.error, result.assertions.len()), (None, 12));
    bencher
        .with_inputs(exchange)
        .bench_values(|exchange| check::judge(black_box(&case), exchange, &context(&data, &Replies::new())));
}

/// Target: under 150 ms.
#[divan::bench]
fn read_ten_thousand_cases(bencher: divan::Bencher<'_, '_>) {
    let mut text = String::from("[");
    for n in 0..10_000 {
        let comma = if n > 0 { "," } else { "" };
        let case =
            CASE.trim_start_matches('[').trim_end_matches(']').replace("\"id\": \"a\"", &format!("\"id\": \"c{n}\""));
        let _ = write!(text, "{comma}{case}");
    }
    text.push(']');
    assert_eq!(suite(&text).cases.len(), 10_000);
    bencher.counter(divan::counter::BytesCount::new(text.len())).bench(|| suite(black_box(&text)));
}

/// Target: within its limit of 250 ms of CPU time.
#[divan::bench(sample_count = 10)]
fn a_catastrophic_pattern_is_stopped(bencher: divan::Bencher<'_, '_>) {
    let suite = suite(r#"[{"id": "a", "input": {"message": "x"}, "expect": {"responseMatches": ["^(a+)+$"]}}]"#);
    let case = suite.load(0).expect("a case");
    let data = Data::default();
    let exchange = || {
        let transcript = Transcript { response: "a".repeat(200) + "!", ..Transcript::default() };
        Exchange { transcript, ..Exchange::default() }
    };
    let result = check::judge(&case, exchange(), &context(&data, &Replies::new()));
    assert_eq!(result.outcome, forge::verdict::Outcome::Errored);
    bencher
        .with_inputs(exchange)
        .bench_values(|exchange| check::judge(&case, exchange, &context(&data, &Replies::new())));
}
