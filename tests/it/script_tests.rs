//! Script tests, scripts around cases and runs, and scripts that write cases: through real workers, with a real agent.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::Value;
use tonic::Status;

use crate::processes::{Ended, Place, Running};
use crate::support::fake::{Fake, Script};

/// An agent that says what it is told, with a few words that it takes otherwise, and that judges.
fn agent() -> Fake {
    let answer = |asked: &crate::support::fake::Asked| match asked.text.as_str() {
        "fail" => Err(Status::internal("boom")),
        "metadata" => {
            let mut told: Vec<String> = asked.metadata.iter().map(|(key, text)| format!("{key}={text}")).collect();
            told.sort();
            Ok(told.join(" "))
        }
        text => Ok(format!("you said: {text}")),
    };
    let judge = |before| {
        Ok(forge::wire::agent::ValidateResponse {
            passed: Some(before % 2 == 0),
            reason: "as it is".to_owned(),
            score: Some(0.5),
            ..Default::default()
        })
    };
    Script::new(answer).judging(judge).start()
}

struct Tests {
    place: Place,
    agent: Fake,
}

impl Tests {
    fn new(script: &str) -> Self {
        let place = Place::new();
        place.write("scripts/my/flow_test.ts", script);
        Self { place, agent: agent() }
    }

    fn run(&self, more: &[&str]) -> Ended {
        let (tested, judge) = (format!("mine={}", self.agent.url), format!("judge={}", self.agent.url));
        let args = ["run", "-n", "mine", "--agent", &tested, "--agent", &judge, "-o", "r.jsonl"];
        self.place.run(&[&args[..], more].concat())
    }

    /// The lines of the results, by id, after the tests of the script were run.
    fn results(&self, more: &[&str]) -> std::collections::HashMap<String, Value> {
        let ended = self.run(&[&["-i", "scripts.my.flow"], more].concat());
        let text = std::fs::read_to_string(self.place.path().join("r.jsonl"));
        let text = text.unwrap_or_else(|_| panic!("{}{}", ended.stdout, ended.stderr));
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        lines.map(|line| (line["id"].as_str().expect("an id").to_owned(), line)).collect()
    }
}

#[test]
fn what_is_asserted() {
    let rows: &[(&str, bool)] = &[
        ("True(1)", true),
        ("True(0)", false),
        ("True()", false),
        ("False(undefined)", true),
        ("False('no')", false),
        ("Equal({a: [1, {b: undefined}]}, {a: [1, {}], c: undefined})", true),
        ("Equal({a: 1, b: 2}, {b: 2, a: 1})", true),
        ("Equal([1, 2], [2, 1])", false),
        ("Equal([], {})", false),
        ("Equal(1, '1')", false),
        ("Equal(NaN, NaN)", true),
        ("Equal(null, undefined)", true),
        ("Equal(new Map([[1, 2]]), new Map([[1, 3]]))", false),
        ("Equal(new Set([1]), new Set([1]))", true),
        ("Equal(new Date(1), new Date(2))", false),
        ("Equal(/a/g, /b/g)", false),
        ("Equal(1)", false),
        ("NotEqual({a: 1}, {a: 2})", true),
        ("NotEqual([1], [1])", false),
        ("Nil(null)", true),
        ("Nil(0)", false),
        ("NotNil(false)", true),
        ("NotNil(undefined)", false),
        ("Contains('a confirm b', 'confirm')", true),
        ("Contains('Confirm', 'confirm')", false),
        ("Contains([{a: 1}], {a: 1})", true),
        ("Contains(undefined, 'undefined')", false),
        ("NotContains('abc', 'd')", true),
        ("NotContains('abc', 'b')", false),
        ("NotContains(undefined, 'x')", false),
        ("Len('abc', 3)", true),
        ("Len([1, 2], 3)", false),
        ("Len({a: 1}, 1)", true),
        ("Len(undefined, 0)", false),
        ("Greater(2, 1)", true),
        ("Greater(1, 1)", false),
        ("Greater('b', 'a')", false),
        ("GreaterOrEqual(1, 1)", true),
        ("Less(1, 2)", true),
        ("Less(undefined, 2)", false),
        ("LessOrEqual(3, 2)", false),
        ("Match('Yes, please', '(?i)^yes')", true),
        ("Match('Yes', /^no/)", false),
        ("Match(undefined, 'undefined')", false),
        ("NotMatch('abc', /d/)", true),
        ("NotMatch('abc', 'b')", false),
        ("Error(new TypeError('x'))", true),
        ("Error(undefined)", false),
        ("Error(() => { throw new Error('x') })", true),
        ("Error(() => 1)", false),
        ("NoError(null)", true),
        ("NoError(() => { throw new Error('x') })", false),
        ("Panic(() => { throw 1 })", true),
        ("Panic(() => 1)", false),
        ("NoPanic(() => 1)", true),
        ("NoPanic(() => { throw 1 })", false),
        ("Type([], 'array')", true),
        ("Type(null, 'object')", false),
        ("JSONPath({a: [{b: 2}]}, '$.a[0].b', 2)", true),
        ("JSONPath({a: 1}, '$.b', 1)", false),
    ];
    let mut script = String::from("export function TestAll(t: TestingT) {\n");
    for (call, _) in rows {
        let _ = writeln!(script, "  (t.assert as any).{call};");
    }
    script.push_str("}\n");
    let tests = Tests::new(&script);
    let result = &tests.results(&[])["TestAll"];
    let assertions = result["assertions"].as_array().expect("assertions");
    assert_eq!(assertions.len(), rows.len(), "{result}");
    for (line, ((call, passes), assertion)) in (2..).zip(rows.iter().zip(assertions)) {
        assert_eq!(assertion["passed"], *passes, "{call}: {assertion}");
        if !passes {
            let place = format!("scripts/my/flow_test.ts:{line}:");
            let reason = assertion["reason"].as_str().unwrap_or_default();
            assert!(reason.contains(&place), "{call}: {reason}");
        }
    }
}

/// A test, the arguments beside it, and the outcome, cause, blame and error that it comes to.
type Row = (&'static str, &'static str, [&'static str; 4]);

#[test]
fn what_tests_come_to() {
    let rows: &[Row] = &[
        ("Fine", "t.assert.Equal(say('hi').content, 'you said: hi')", ["passed", "", "", ""]),
        ("Wrong", "t.assert.Equal(say('hi').content, 'bye', 'words')", ["failed", "assertion", "agent", ""]),
        ("Alone", "t.assert.Equal(1, 2)", ["failed", "assertion", "script", ""]),
        ("Nothing", "", ["passed", "", "", ""]),
        (
            "Throws",
            "throw new TypeError('oh')",
            ["errored", "script_error", "script", "TypeError: oh (scripts/my/flow_test.ts:"],
        ),
        ("ThrowsText", "throw 'oh'", ["errored", "script_error", "script", "it threw \"oh\""]),
        ("AgentFails", "say('fail')", ["failed", "agent_error", "agent", "agent error"]),
        ("Handles", "t.assert.Error(() => say('fail'))", ["passed", "", "", ""]),
        ("Hides", "try { say('fail') } catch {} t.assert.True(true)", ["passed", "", "", ""]),
        ("Late", "await 0; say('fail')", ["failed", "agent_error", "agent", "agent error"]),
        (
            "Unknown",
            "Process('agents.nobody.Stream', ctx, 'hi')",
            ["errored", "script_error", "script", "there is no agent \"nobody\""],
        ),
        (
            "Gone",
            "Process('agents.gone.Stream', ctx, 'hi')",
            ["errored", "unreachable", "network", "agent unreachable"],
        ),
        (
            "NoProcess",
            "Process('models.user.Find', 1)",
            ["errored", "script_error", "script", "there is no process \"models.user.Find\""],
        ),
        ("NoMessages", "Process('agents.mine.Stream', ctx)", ["errored", "script_error", "script", "no messages"]),
        ("Skips", "t.assert.True(true); t.skip('later'); t.assert.True(false)", ["skipped", "", "", "later"]),
        ("Fatal", "t.fatal('enough'); t.assert.True(true)", ["failed", "assertion", "script", ""]),
        ("SaysNo", "if (!t.failed) t.error('no', 1)", ["failed", "assertion", "script", ""]),
        ("Never", "await new Promise(() => {})", ["errored", "script_error", "script", "never settles"]),
        (
            "Judged",
            "const r = t.assert.Agent(say('hi').content, 'judge', {criteria: 'x'}); t.assert.Equal(r, {passed: true, reason: 'as it is', score: 0.5})",
            ["passed", "", "", ""],
        ),
        (
            "NoJudge",
            "t.assert.Agent(say('hi').content, 'nobody', {metadata: {}})",
            ["errored", "validator_error", "validator", ""],
        ),
        (
            "Metadata",
            "ctx.metadata.a = 1; const r = Process('agents.mine.Stream', ctx, 'metadata', {metadata: {b: 2}}); t.assert.Equal(r.content, 'a=1 b=2')",
            ["passed", "", "", ""],
        ),
        (
            "History",
            "const r = say('hi'); t.assert.Len(r.messages, 2); t.assert.Equal(r.messages[1].role, 'assistant'); t.assert.Len(r.tool_calls, 0)",
            ["passed", "", "", ""],
        ),
        (
            "Context",
            "t.assert.Equal(ctx.authorized, {user_id: 'test-user', team_id: 'test-team'}); t.assert.Equal(t.name, 'TestContext')",
            ["passed", "", "", ""],
        ),
        (
            "Tampers",
            "JSON.stringify = () => 'x'; JSON.parse = null; Array.prototype.map = null; t.assert.Equal(say('hi').content, 'you said: hi')",
            ["passed", "", "", ""],
        ),
        (
            "Often",
            "for (let i = 0; i < 1001; i++) { try { Process('x') } catch (error) { if (i === 1000) throw error } }",
            ["errored", "script_error", "script", "more than 1000 things"],
        ),
        ("Many", "for (let i = 0; i < 5000; i++) t.assert.True(i !== 4500)", ["failed", "assertion", "script", ""]),
    ];
    let mut script = String::from("const say = (text: string) => Process('agents.mine.Stream', {}, text);\n");
    for (name, body, _) in rows {
        let _ = writeln!(script, "export async function Test{name}(t, ctx) {{ {body} }}");
    }
    let tests = Tests::new(&script);
    let results = tests.results(&["--parallel", "4", "--agent", "gone=grpc://127.0.0.1:1"]);
    assert_eq!(results.len(), rows.len());
    for (name, _, expected) in rows {
        let result = &results[&format!("Test{name}")];
        let text = |key: &str| result[key].as_str().unwrap_or_default();
        let found = [text("outcome"), text("cause"), text("blame")];
        assert_eq!(found, expected[..3], "{name}: {result}");
        assert!(text("error").contains(expected[3]), "{name}: {result}");
    }
    assert_eq!(results["TestNothing"]["warning"], "no assertions");
    let judged = &results["TestJudged"]["assertions"][0];
    assert_eq!((&judged["type"], &judged["score"], &judged["votes"]), (&"Agent".into(), &0.5.into(), &1.into()));
    let many = &results["TestMany"];
    assert!(many["assertions"].as_array().is_some_and(|all| all.len() == 1001), "{many}");
    assert!(many["warnings"][0].as_str().is_some_and(|text| text.starts_with("3999 more checks hold")), "{many}");
    let fine = &results["TestFine"];
    assert_eq!(fine["turns"][0]["output"], "you said: hi", "{fine}");
}

#[test]
fn tests_are_chosen_and_counted() {
    let tests = Tests::new(
        "export function TestOne(t: TestingT) { console.log('one', {a: 1}); t.assert.True(true) }\n\
         export const TestTwo = (t) => t.assert.True(false);\nexport const helper = 1;\nfunction TestHidden() {}\n",
    );
    assert_eq!(tests.results(&[]).len(), 2);
    let ended = tests.run(&["-i", "scripts.my.flow", "--run", "One"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(
        ended.stdout.contains("✓ [TestOne]") && ended.stdout.contains("Calls: 0, Assertions: 1/1 passed"),
        "{}",
        ended.stdout
    );
    assert_eq!(tests.results(&[])["TestOne"]["console"][0], "one {\"a\":1}");
    let by_path = tests.run(&["scripts/my/flow_test.ts"]);
    assert_eq!(by_path.code, Some(1), "{}{}", by_path.stdout, by_path.stderr);
    let checked = tests.place.run(&["check", "scripts/my/flow_test.ts"]);
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
    for (input, code, why) in [
        ("scripts.my.other", 2, "there is no script my/other_test.ts or my/other_test.js in"),
        ("scripts.my.none", 4, "exports helper, and no Test"),
        ("scripts.my.broken", 2, "scripts/my/broken_test.js, line 2"),
    ] {
        tests.place.write("scripts/my/none_test.ts", "export const helper = 1");
        tests.place.write("scripts/my/broken_test.js", "export function TestA() {\n  return (;\n}");
        let ended = tests.run(&["-i", input]);
        assert_eq!(ended.code, Some(code), "{input}: {}{}", ended.stdout, ended.stderr);
        assert!(ended.stderr.contains(why), "{input}: {}", ended.stderr);
    }
}

/// The time of a test is up, and the party that used it is to blame.
#[test]
fn tests_that_take_too_long() {
    let place = Place::new();
    let slow = Script::new(|_| {
        std::thread::sleep(std::time::Duration::from_secs(6));
        Ok("at last".to_owned())
    });
    let slow = slow.start();
    place.write(
        "scripts/slow_test.js",
        "export function TestAgent(t, ctx) { t.assert.NotNil(Process('agents.mine.Stream', ctx, 'hi')) }\n\
         export function TestSelf(t) { for (;;) {} }",
    );
    let agent = format!("mine={}", slow.url);
    let args = ["run", "-i", "scripts.slow", "-n", "mine", "--agent", &agent, "--timeout", "3s", "-o", "r.jsonl"];
    let ended = place.run(&args);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    let text = std::fs::read_to_string(place.path().join("r.jsonl")).expect("lines");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&lines[0]["cause"], &lines[0]["blame"]), (&"timeout".into(), &"agent".into()), "{}", lines[0]);
    assert_eq!(lines[0]["error"], "timeout after 3s", "{}", lines[0]);
    assert_eq!((&lines[1]["cause"], &lines[1]["blame"]), (&"script_error".into(), &"script".into()), "{}", lines[1]);
}

/// A run that is cancelled while a validator is asked says nothing about the agent, nor about the validator,
/// whatever the script makes of it.
#[test]
fn a_validator_that_is_not_waited_for() {
    let script = r#"
        export function TestAsks(t, ctx) {
            const answer = Process("agents.mine.Stream", ctx, [{ role: "user", content: "hi" }]);
            const verdict = t.assert.Agent(answer, "judge", { criteria: "is kind" });
            t.assert.True(verdict && verdict.passed);
        }
        export function TestTries(t, ctx) {
            const answer = Process("agents.mine.Stream", ctx, [{ role: "user", content: "hi" }]);
            try {
                t.assert.Agent(answer, "judge", { criteria: "is kind" });
            } catch {
                t.assert.True(false);
            }
        }"#;
    let place = Place::new();
    place.write("scripts/my/flow_test.ts", script);
    let judge = Script::new(|_| Ok("fine".to_owned())).judging(|_| Err(Status::internal("late")));
    let judge = judge.pondering(Duration::from_mins(5)).start();
    let (tested, party) = (format!("mine={}", judge.url), format!("judge={}", judge.url));
    let args = ["run", "-i", "scripts.my.flow", "-n", "mine", "--agent", &tested, "--agent", &party, "-o", "r.jsonl"];
    let run = Running::start(place.forgectl(&[&args[..], &["--parallel", "2"]].concat()));
    let begun = Instant::now();
    while judge.judged() < 2 {
        assert!(begun.elapsed() < Duration::from_secs(30), "the validator is not asked");
        std::thread::sleep(Duration::from_millis(10));
    }
    run.signal("INT");
    let ended = run.end();
    assert_eq!(ended.code, Some(130), "{}{}", ended.stdout, ended.stderr);
    let lines = std::fs::read_to_string(place.path().join("r.jsonl")).expect("results");
    let results: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    for result in &results {
        assert_eq!((&result["cause"], &result["blame"]), (&"cancelled".into(), &"daemon".into()), "{result}");
    }
    assert_eq!(results.len(), 2);
}

#[test]
fn scripts_around_cases() {
    let tests = Tests::new("");
    tests.place.write(
        "scripts/env_test.ts",
        "export function Before(ctx, testCase) {\n\
         \x20 console.log('before', testCase.id, testCase.input, testCase.assert.length, ctx.metadata);\n\
         \x20 if (testCase.metadata?.bad) throw new Error('no database');\n\
         \x20 return { id: Process('agents.mine.Stream', ctx, 'seed').content };\n}\n\
         export async function After(ctx, testCase, result, data) {\n\
         \x20 console.log('after', testCase.id, result.status, result.output, data);\n\
         \x20 if (testCase.metadata?.leaves) throw new Error('cannot clean up');\n}\n\
         export const Data = () => ({ data: 41 });\n",
    );
    let hooked = |id: &str, metadata: &str, wanted: &str| {
        format!(
            "{{\"id\": \"{id}\", \"input\": \"hi\", \"before\": \"scripts:env_test.Before\", \"after\": \"src/env_test.After\", \
             \"metadata\": {metadata}, \"assertions\": [{{\"type\": \"contains\", \"value\": \"{wanted}\"}}]}}"
        )
    };
    let suite = [
        hooked("fine", "{\"x\": 1}", "hi"),
        hooked("bad", "{\"bad\": true}", "hi"),
        hooked("leaves", "{\"leaves\": true}", "hi"),
        hooked("wrong", "{\"leaves\": true}", "bye"),
        "{\"id\": \"data\", \"input\": \"hi\", \"before\": \"env.Data\", \"after\": \"env.After\"}".to_owned(),
        "{\"id\": \"off\", \"input\": \"hi\", \"before\": \"env.Before\", \"skip\": true}".to_owned(),
    ];
    tests.place.write("t.jsonl", &suite.join("\n"));
    let ended = tests.run(&["t.jsonl"]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    let text = std::fs::read_to_string(tests.place.path().join("r.jsonl")).expect("lines");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    for (line, outcome, blame, error, console) in [
        (
            &lines[0],
            "passed",
            Value::Null,
            "",
            vec!["before fine hi 1 {\"x\":1}", "after fine passed you said: hi {\"id\":\"you said: seed\"}"],
        ),
        (
            &lines[1],
            "errored",
            "script".into(),
            "script error: before (scripts:env_test.Before): no database (scripts/env_test.ts:3:",
            vec!["before bad hi 1 {\"bad\":true}", "after bad error  null"],
        ),
        (
            &lines[2],
            "errored",
            "script".into(),
            "script error: after (scripts:env_test.After): cannot clean up (scripts/env_test.ts:8:",
            vec![
                "before leaves hi 1 {\"leaves\":true}",
                "after leaves passed you said: hi {\"id\":\"you said: seed\"}",
            ],
        ),
        (
            &lines[3],
            "failed",
            "agent".into(),
            "",
            vec!["before wrong hi 1 {\"leaves\":true}", "after wrong failed you said: hi {\"id\":\"you said: seed\"}"],
        ),
        (&lines[4], "passed", Value::Null, "", vec!["after data passed you said: hi 41"]),
        (&lines[5], "skipped", Value::Null, "", vec![]),
    ] {
        assert_eq!((&line["outcome"], &line["blame"]), (&outcome.into(), &blame), "{line}");
        assert!(line["error"].as_str().unwrap_or_default().contains(error), "{line}");
        let said: Vec<&str> = line["console"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        assert_eq!(said, console, "{line}");
    }
    assert!(lines[3]["warnings"][0].as_str().is_some_and(|text| text.contains("cannot clean up")), "{}", lines[3]);
    // The agent was not asked for the case whose script failed before it.
    assert!(tests.agent.asked().iter().all(|asked| asked.case != "bad"));

    for (before, why) in [("5", "must be a text"), ("\"Before\"", "names no function of a script")] {
        tests.place.write("bad.jsonl", &format!("{{\"id\": \"a\", \"input\": \"hi\", \"before\": {before}}}"));
        let ended = tests.run(&["bad.jsonl"]);
        assert_eq!(ended.code, Some(2), "{}{}", ended.stdout, ended.stderr);
        assert!(ended.stderr.contains(why), "{}", ended.stderr);
    }
    tests.place.write("bad.jsonl", "{\"id\": \"a\", \"input\": \"hi\", \"before\": \"env.Befor\"}");
    let ended = tests.run(&["bad.jsonl"]);
    assert_eq!(ended.code, Some(2), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("and no Befor; did you mean \"Before\"?"), "{}", ended.stderr);
}

#[test]
fn scripts_around_runs() {
    let tests = Tests::new("");
    tests.place.write(
        "scripts/env.ts",
        "export function BeforeAll(ctx, cases) {\n\
         \x20 if (cases.map((one) => one.id + one.input).join() !== 'ahi,bfail') throw new Error('cases');\n\
         \x20 return { count: cases.length };\n}\n\
         export function AfterAll(ctx, results, data) {\n\
         \x20 const found = results.map((one) => one.id + one.status).sort().join() + data.count;\n\
         \x20 if (found !== 'apassed,bfailed2') throw new Error(found);\n}\n\
         export const Bad = () => { throw new Error('nope') };\n\
         export const Ask = (ctx) => Process('agents.mine.Stream', ctx, 'hi');\n",
    );
    let suite = "{\"id\": \"a\", \"input\": \"hi\", \"assertions\": [{\"type\": \"contains\", \"value\": \"hi\"}]}\n\
                 {\"id\": \"b\", \"input\": \"fail\"}\n";
    tests.place.write("t.jsonl", suite);
    for (before, after, code, why) in [
        ("scripts:env.BeforeAll", "scripts:env.AfterAll", 1, ""),
        (
            "scripts:env.BeforeAll",
            "scripts:env.Bad",
            3,
            "the script after the run failed (scripts:env.Bad): nope (scripts/env.ts:9:",
        ),
        (
            "scripts:env.Bad",
            "scripts:env.Bad",
            3,
            "the script before the run failed (scripts:env.Bad): nope (scripts/env.ts:9:",
        ),
        ("scripts:env.Ask", "scripts:env.BeforeAll", 3, "agents can be called by tests and hooks only"),
        ("scripts:env.Gone", "scripts:env.AfterAll", 2, "and no Gone"),
        ("scripts:envy.Gone", "scripts:env.AfterAll", 2, "there is no script \"envy\""),
    ] {
        let ended = tests.run(&["t.jsonl", "--before", before, "--after", after]);
        let all = format!("{}{}", ended.stdout, ended.stderr);
        assert_eq!(ended.code, Some(code), "{before} {after}: {all}");
        assert!(all.contains(why), "{before} {after}: {all}");
    }
}

#[test]
fn scripts_write_cases() {
    let tests = Tests::new("");
    tests.place.write(
        "scripts/tests/gen.ts",
        "interface Wanted { count: number; focus?: string; target_agent: string; word: string }\n\
         export function Generate(wanted: Wanted) {\n\
         \x20 return Array.from({ length: wanted.count }, (_, index) => ({\n\
         \x20   id: `${wanted.target_agent}-${wanted.focus}-${index}`, input: wanted.word,\n\
         \x20   assertions: [{ type: 'script', use: 'scripts:tests.judge' }, { type: 'contains', value: 'you said' }],\n\
         \x20 }));\n}\n",
    );
    tests.place.write("scripts/tests/judge.ts", "export default (output) => output.includes('hey')");
    let ended = tests.run(&["-i", "scripts:tests.gen?count=3&focus=edge&word=hey"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("✓ [mine-edge-2]") && ended.stdout.contains("  Passed:  3\n"), "{}", ended.stdout);
    let ended = tests.run(&["-i", "scripts:tests.gen?count=2&word=hey", "--dry-run"]);
    assert_eq!((ended.code, ended.stdout.lines().count()), (Some(0), 2), "{}{}", ended.stdout, ended.stderr);
    for (text, code, why) in [
        ("export const Generate = () => []", 3, "it returned no cases"),
        ("export const Generate = () => [{id: 'a'}, 5]", 4, "2 cases, and none can be used"),
        ("export const Generate = () => { throw new Error('oh') }", 3, "oh (scripts/bad.ts:1:"),
        ("export const Generate = () => Process('agents.mine.Stream', {}, 'hi')", 3, "agents can be called by tests"),
        (
            "export const Generate = () => '{\"id\": \"a\", \"input\": \"x\"}\\n{\"id\": \"b\", \"input\": \"y\"}'",
            0,
            "[b]",
        ),
        ("export const Make = 1", 2, "exports Make, and neither Generate nor default"),
    ] {
        tests.place.write("scripts/bad.ts", text);
        let ended = tests.run(&["-i", "scripts:bad"]);
        let all = format!("{}{}", ended.stdout, ended.stderr);
        assert_eq!(ended.code, Some(code), "{text}: {all}");
        assert!(all.contains(why), "{text}: {all}");
    }
    let ended = tests.run(&["-i", "scripts:nowhere"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
}

/// What a test must not pass, whatever it looks like.
#[test]
fn what_must_not_pass() {
    let rows: &[(&str, &str, &str)] = &[
        ("Floating", "(async () => { await null; t.assert.Equal(1, 2) })(); t.assert.True(true)", "failed"),
        ("Rejected", "Promise.reject(new Error('x')); t.assert.True(true)", "errored"),
        ("LateRejection", "(async () => { await 0; throw new Error('x') })(); t.assert.True(true)", "errored"),
        ("Handled", "await Promise.reject(1).catch(() => {}); t.assert.True(true)", "passed"),
        ("AsyncNoError", "t.assert.NoError(async () => { throw new Error('x') })", "failed"),
        ("ThrowsNull", "t.assert.NoError(() => { throw null })", "failed"),
        ("PanicOfNothing", "t.assert.Panic(undefined)", "failed"),
        ("NotMatchOfObject", "t.assert.NotMatch({ content: 'error' }, /error/)", "failed"),
        ("NotContainsNothing", "t.assert.NotContains('hi', undefined)", "failed"),
        ("Errors", "t.assert.Equal(new Error('a'), new Error('b'))", "failed"),
        ("Boxed", "t.assert.Equal(new Number(1), new Number(2))", "failed"),
        ("Paths", "t.assert.JSONPath({}, '$.items[*].x', null)", "failed"),
        ("NoAnswer", "t.assert.Agent(undefined, 'judge', {})", "failed"),
        ("Emoji", "t.assert.Error(() => t.assert.Equal('😀'.repeat(200), 'b'))", "failed"),
        ("Tampered", "Array.prototype[Symbol.iterator] = function* () {}; t.assert.Equal([1], [2])", "failed"),
        ("Every", "Array.prototype.every = () => true; t.assert.Equal({ a: 1 }, { a: 2 })", "failed"),
        ("Hidden", "t.assert.Error(() => Process('agents.typo.Stream', ctx, 'hi'))", "errored"),
        ("Gone", "t.assert.Error(() => Process('agents.gone.Stream', ctx, 'hi'))", "errored"),
        ("ThrowsUndefined", "throw undefined", "errored"),
        ("Forged", "try { say('fail') } catch {} throw Object.assign(new Error('mine'), { call: 0 })", "errored"),
        (
            "Undefined",
            "t.assert.Equal(Process('agents.mine.Stream', ctx, 'hi', { stubs: undefined }).content, 'you said: hi')",
            "passed",
        ),
    ];
    let mut script = String::from("const say = (text: string) => Process('agents.mine.Stream', {}, text);\n");
    for (name, body, _) in rows {
        let _ = writeln!(script, "export async function Test{name}(t, ctx) {{ {body} }}");
    }
    script += "export function* TestGenerator(t) { t.assert.True(false) }\n";
    script += "export function TestThenable(t) { return { then(done) { t.assert.True(false); done() } } }\n";
    script += "export * from './more';\n";
    let tests = Tests::new(&script);
    tests.place.write("scripts/my/more.ts", "export function TestThere(t) { t.assert.True(false) }");
    let results = tests.results(&["--parallel", "4", "--agent", "gone=grpc://127.0.0.1:1"]);
    assert_eq!(results.len(), rows.len() + 3);
    for (name, outcome) in rows.iter().map(|(name, _, outcome)| (*name, *outcome)).chain([
        ("Generator", "errored"),
        ("Thenable", "failed"),
        ("There", "failed"),
    ]) {
        let result = &results[&format!("Test{name}")];
        assert_eq!(result["outcome"], outcome, "{name}: {result}");
    }
    assert_eq!(results["TestForged"]["blame"], "script");
    assert!(results["TestThrowsUndefined"]["error"].as_str().is_some_and(|text| text.contains("undefined")));
}

/// A text that no parser has room for is refused, and takes nothing else along.
#[test]
fn scripts_that_are_nested_too_deep() {
    let tests = Tests::new("");
    tests.place.write(
        "scripts/my/sum_test.js",
        &format!("export function TestSum(t) {{ t.assert.Greater({}1, 0) }}", "1+".repeat(20_000)),
    );
    for (text, why) in [
        (format!("export const Test = {}{}", "[".repeat(20_000), "]".repeat(20_000)), "nested"),
        (format!("export const Test = {}1", "1+".repeat(400_000)), "too long"),
    ] {
        tests.place.write("scripts/my/deep_test.js", &text);
        let ended = tests.run(&["-i", "scripts.my.deep"]);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(why), "{}", ended.stderr);
    }
    let ended = tests.run(&["-i", "scripts.my.sum"]);
    assert!(matches!(ended.code, Some(0 | 3)), "{}{}", ended.stdout, ended.stderr);
}
