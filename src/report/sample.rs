//! Runs for the tests of reports.

use std::sync::Arc;

use std::time::Duration;

use crate::case::CaseRef;
use crate::conversation::{
    AgentCard, Arguments, Cost, Fault, JsonText, MaybeJson, Message, ToolCall, ToolOutcome, Transcript, Usage,
};
use crate::event::{Payload, Run, RunEvent, State, SuiteInfo};
use crate::plan::RunSpec;
use crate::stats::Tally;
use crate::suite::staleness::{Staleness, StalenessWarning};
use crate::suite::{Labels, Tier};
use crate::verdict::baseline::Comparison;
use crate::verdict::gate::{Answer, GateResult, Passage, RateComparison, Test};
use crate::verdict::{
    AssertionResult, Attempt, Blame, CaseResult, Cause, CheckpointResult, Opinion, Outcome, Totals, Turn,
};

/// Texts that want to be more than text.
pub(super) const HOSTILE: &[&str] = &[
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)> <b>bold</b>",
    "\"><a href='javascript:alert(1)'>x</a>",
    "[x](javascript:alert(1)) ![i](http://example.com/i.png) <http://example.com> www.example.com",
    "```\n# big\n@everyone\n````text\n</details></code></pre>\n",
    "~~~\n<!-- -->\n\n# big\n\n| a | b |\n|---|---|\n| c | d |",
    "@everyone | a | b | `c` ``d`` \\| e \\",
    "`",
    " ```",
    "|",
    "||``||",
    "esc:\u{1b}[31m nul:\0 bell:\u{7} csi:\u{9b} cr:\rx del:\u{7f} vt:\u{b} ff:\u{c}",
    "bidi:\u{202e}txt.exe\u{2066}\u{200f}\u{61c} none:\u{fffe}\u{ffff}",
    "]]> &lt; &#64; &amp; <![CDATA[x]]> <?php ?>",
    "::error file=a,line=1::x\n  ::stop-commands::y\n\u{3000}::add-mask::z\r::group::a",
    "a ##[add-path]/tmp ###[error]x ##vso[task.setvariable variable=a]b %0A::warning::x",
    "[[ATTACHMENT|/etc/passwd]]",
    "<!-- forge-report -->\n<!-- forge-report: demo -->",
];

fn result(outcome: Outcome, answer: &str, millis: u64) -> CaseResult {
    let transcript =
        Transcript { response: answer.to_owned(), duration: Duration::from_millis(millis), ..Transcript::default() };
    CaseResult::without_assertions(outcome, Cause::AgentError, Blame::Agent, "", transcript)
}

pub(super) fn passed(answer: &str) -> CaseResult {
    CaseResult { cause: None, blame: None, error: None, ..result(Outcome::Passed, answer, 10) }
}

/// A case that failed by an assertion, with the same words everywhere.
pub(super) fn failed(text: &str) -> CaseResult {
    let start = &text[..text.floor_char_boundary(2_000)];
    CaseResult {
        cause: Some(Cause::Assertion),
        error: Some(format!("responseContains: {start}")),
        failed_assertion: Some("responseContains".to_owned()),
        assertions: vec![assertion("responseContains", Outcome::Failed, start)],
        warnings: vec![start.to_owned()],
        ..result(Outcome::Failed, text, 1_500)
    }
}

pub(super) fn errored(error: &str) -> CaseResult {
    CaseResult { error: Some(error.to_owned()), ..result(Outcome::Errored, "", 30) }
}

fn assertion(name: &str, outcome: Outcome, reason: &str) -> AssertionResult {
    AssertionResult {
        name: name.to_owned(),
        outcome,
        reason: reason.to_owned(),
        hint: String::new(),
        unresolved_tokens: Vec::new(),
        blame: None,
        written: None,
        opinion: None,
    }
}

pub(super) fn call(name: &str, outcome: Option<ToolOutcome>) -> ToolCall {
    ToolCall {
        call_id: "1".to_owned(),
        name: name.to_owned(),
        params: Arguments::Given(MaybeJson::Json(JsonText::new(r#"{"id":9007199254740993}"#).expect("JSON"))),
        outcome,
        duration: Some(Duration::from_millis(120)),
        turn: 0,
    }
}

/// The log of a run.
pub(super) type Log = Vec<RunEvent>;

/// Verdicts on cases: suite, id, result.
pub(super) fn verdicts<'a>(cases: impl Iterator<Item = (&'a str, &'a str, CaseResult)>) -> Log {
    let mut log = Log::new();
    for (suite, id, result) in cases {
        let case = CaseRef { suite: suite.into(), case_id: id.into(), repeat: 1, attempt: 1 };
        let labels = Labels {
            difficulty: Some("edge".to_owned()),
            bug_ref: Some("BUG-7".to_owned()),
            created_at: None,
            tags: vec!["x".to_owned()],
        };
        let planned = Payload::CasePlanned { name: format!("about {id}"), labels };
        for payload in [planned, Payload::CaseFinished(Box::new(result))] {
            let at = "2026-01-02T03:04:05Z".parse().expect("a time");
            log.push(RunEvent { sequence: log.len() as u64 + 1, at, case: Some(case.clone()), turn: 0, payload });
        }
    }
    log
}

/// A run of one suite, `evals/a.golden.json`.
pub(super) fn run(cases: Vec<(&str, CaseResult)>) -> (Run, Log) {
    let total = u32::try_from(cases.len()).expect("few cases");
    let mut totals = Totals { total, ..Totals::default() };
    for (_, result) in &cases {
        totals.add(result);
    }
    let suite = SuiteInfo {
        path: "evals/a.golden.json".to_owned(),
        tool_name: "demo".to_owned(),
        tier: Tier::Golden,
        eval_file_hash: "0123456789ab".to_owned(),
        cases: total,
        warnings: Vec::new(),
        staleness: None,
        comparison: None,
    };
    let run = Run {
        run_id: "run-1".to_owned(),
        spec: Arc::new(RunSpec::new("demo", vec![suite.path.clone()])),
        state: State::of(&totals, None),
        totals,
        created_at: "2026-01-02T03:04:05Z".parse().expect("a time"),
        finished_at: "2026-01-02T03:04:07.5Z".parse().ok(),
        last_sequence: 1,
        error: None,
        warnings: Vec::new(),
        agent: Some(AgentCard {
            name: "Demo".to_owned(),
            version: "1.2".to_owned(),
            model: "small".to_owned(),
            ..AgentCard::default()
        }),
        agent_endpoint: "grpc://127.0.0.1:1".to_owned(),
        paused: false,
        concurrency: None,
        gate: None,
        suites: vec![suite],
    };
    (run, verdicts(cases.into_iter().map(|(id, result)| ("evals/a.golden.json", id, result))))
}

/// Every outcome, a dialogue, tools, a validator, a flaky case, a baseline and a stale suite.
pub(super) fn of_everything() -> (Run, Log) {
    let opinion =
        Opinion { score: Some(0.25), replies: vec!["no way".to_owned()], votes: 3, agreeing: 2, console: Vec::new() };
    let mut worse = failed("The answer.");
    worse.transcript.commentary = "Let me look.".to_owned();
    (worse.messages, worse.messages_count) = (vec![Message::user("What is <x>?")], 1);
    worse.error = Some("responseContains: expected \"x\"".to_owned());
    worse.assertions = vec![
        assertion("responseNonEmpty", Outcome::Passed, ""),
        AssertionResult {
            written: JsonText::new(r#"{"type": "contains"}"#).ok(),
            hint: "the response is \"y\"".to_owned(),
            ..assertion("responseContains", Outcome::Failed, "expected \"x\"")
        },
        AssertionResult { opinion: Some(opinion), ..assertion("validator", Outcome::Failed, "") },
    ];
    let json = JsonText::new("[1,2]").ok().map(MaybeJson::Json);
    let odd = ToolCall { params: Arguments::Given(MaybeJson::Malformed("{oops".to_owned())), ..call("odd", None) };
    worse.transcript.tool_calls = vec![
        call("look", Some(ToolOutcome::Result(json))),
        call("book", Some(ToolOutcome::Error(Fault::message("no seats")))),
        odd,
    ];
    let cost = Cost { nano_usd: 12_000_000, estimated: true };
    worse.transcript.usage =
        Some(Usage { input_tokens: Some(10), output_tokens: Some(5), cost: Some(cost), ..Usage::default() });
    let turn = |number: u32, input: &str, output: &str| Turn {
        number,
        input: input.to_owned(),
        output: output.to_owned(),
        commentary: "One moment.".to_owned(),
        reasoning: String::new(),
    };
    let checkpoint = |id: &str, reached_at_turn| CheckpointResult {
        id: id.to_owned(),
        reached_at_turn,
        required: true,
        assertions: Vec::new(),
    };
    let dialogue = CaseResult {
        cause: Some(Cause::MaxTurns),
        error: Some("the dialogue used up its turns".to_owned()),
        turns: vec![turn(1, "I want to pay.", "What?"), turn(2, "Pay!", "No.")],
        checkpoints: vec![checkpoint("greeted", Some(1)), checkpoint("paid", None)],
        total_turns: 2,
        ..result(Outcome::Failed, "No.", 700)
    };
    let better = CaseResult {
        earlier: vec![Attempt::of(&CaseResult {
            cause: Some(Cause::Assertion),
            error: Some("wrong".to_owned()),
            ..result(Outcome::Failed, "", 20)
        })],
        ..passed("yes")
    };
    let (mut run, verdicts) = run(vec![
        ("good", passed("yes")),
        ("dialogue", dialogue),
        ("broken", errored("the agent hung up")),
        ("worse", worse),
        ("better", better),
        ("late", CaseResult::not_run(Cause::Cancelled, Blame::Daemon, "the run was cancelled")),
        ("off", CaseResult::passed_over(Transcript::default())),
    ]);
    let suite = &mut run.suites[0];
    suite.staleness = Some(Staleness {
        stale: true,
        warnings: vec![StalenessWarning { text: "the description is another one".to_owned(), short: String::new() }],
        ..Staleness::default()
    });
    suite.comparison = Some(Comparison {
        baseline_run_id: "run-0".to_owned(),
        regressions: vec!["worse".to_owned()],
        new_passes: vec!["better".to_owned()],
        ..Comparison::default()
    });
    (run, verdicts)
}

/// A run with repetitions and a gate: `steady` passes always, `shaky` now and then, `broken` is never judged.
pub(super) fn repeated() -> (Run, Log) {
    let (mut run, _) = run(vec![("steady", passed("yes")); 12]);
    let path = run.suites[0].path.clone();
    let result = |id: &str, repeat: u32| match id {
        "broken" => errored("the line was cut"),
        "shaky" if repeat == 2 => failed("no"),
        _ => passed("yes"),
    };
    let mut log = Log::new();
    for id in ["steady", "shaky", "broken"] {
        for repeat in 1..=4 {
            for mut event in verdicts([(path.as_str(), id, result(id, repeat))].into_iter()) {
                event.sequence = log.len() as u64 + 1;
                event.case.iter_mut().for_each(|case| case.repeat = repeat);
                log.push(event);
            }
        }
    }
    Arc::make_mut(&mut run.spec).repeats = 4;
    let tally = |passed, failed, uncounted| Tally { passed, failed, uncounted };
    run.gate = Some(GateResult {
        passage: Passage::Failed,
        counts_as: Passage::Failed,
        reasons: vec!["shaky: 3 of 4 (75.0 %) passed, at least 80% have to".to_owned()],
        tally: tally(7, 1, 4),
        comparison: Some(RateComparison {
            answer: Answer::NoDifference,
            test: Test::Fisher,
            p: 0.5,
            before: tally(8, 0, 0),
            now: tally(7, 1, 0),
        }),
        suites: Vec::new(),
        left_out: 2,
    });
    (run, log)
}
