//! Compares what was observed of a run with every key that the scenario expects.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use serde_json::Value;

use super::observed::{LogLine, Observed};
use super::scenario::{CaseExpect, CauseKind, Exit, Expect, Junit, Load, Verdict};

/// What is not as expected; each difference names its key.
pub(crate) fn differences(expect: &Expect, observed: &Observed) -> Vec<String> {
    let mut check = Check { observed, output: observed.output(), cases: cases(observed), found: Vec::new() };
    check.found.extend(observed.trouble.iter().cloned());
    if observed.is_usage() {
        check.found.push("forgectl does not know something on its command line".to_owned());
    }
    if observed.result.is_none() && looks_at_report(expect) {
        check.found.push("there is no report to look at".to_owned());
    }
    check.run(expect);
    for (id, expect) in &expect.cases {
        check.case(id, expect);
    }
    if !check.found.is_empty() && observed.result.is_none() {
        let exit = observed.exit.map_or("a signal".to_owned(), |code| format!("exit code {code}"));
        check.found.push(format!("no r.json; forgectl ended with {exit} and wrote: {}", check.output.trim()));
    }
    check.found
}

/// Whether something is expected of the run's report as a whole: without one, an empty list would hold for nothing.
fn looks_at_report(expect: &Expect) -> bool {
    expect.order.is_some()
        || expect.stale.is_some()
        || expect.warnings.is_some()
        || expect.baseline_run_id.is_some()
        || expect.regressions.is_some()
        || expect.new_passes.is_some()
        || expect.failed.is_some()
        || expect.passed_messages.is_some()
        || expect.failed_messages.is_some()
        || expect.totals.is_some()
        || expect.kinds.is_some()
}

/// Longest text that is shown of what was found.
const MAX_SHOWN: usize = 500;

/// A case as the report has it.
struct Case<'a> {
    id: &'a str,
    report: &'a Value,
}

struct Check<'a> {
    observed: &'a Observed,
    /// What forgectl wrote, to stdout and to stderr.
    output: String,
    /// In report order.
    cases: Vec<Case<'a>>,
    found: Vec<String>,
}

impl Observed {
    fn output(&self) -> String {
        format!("{}\n{}", String::from_utf8_lossy(&self.stdout), String::from_utf8_lossy(&self.stderr))
    }

    /// The results of the suites: one input gives the suite itself, several give a list of them.
    fn suites(&self) -> Vec<&Value> {
        match &self.result {
            None => Vec::new(),
            Some(result) => match result.get("suites").and_then(Value::as_array) {
                Some(suites) => suites.iter().collect(),
                None => vec![result],
            },
        }
    }

    /// Whether forgectl does not know something on its command line.
    fn is_usage(&self) -> bool {
        self.exit == Some(2) && String::from_utf8_lossy(&self.stderr).contains("For more information, try '--help'")
    }

    /// Whether the files were not accepted.
    fn is_refused(&self) -> bool {
        self.exit == Some(2) && self.result.is_none() && !self.is_usage()
    }

    fn invocations(&self) -> impl Iterator<Item = &LogLine> {
        self.starts("AgentEndpoint/Invoke")
    }

    fn starts<'a>(&'a self, service: &'a str) -> impl Iterator<Item = &'a LogLine> {
        self.calls.iter().filter(move |line| line.event == "start" && line.service == service)
    }
}

fn cases(observed: &Observed) -> Vec<Case<'_>> {
    let all = observed.suites().into_iter().flat_map(|suite| list(suite, "cases"));
    all.map(|report| Case { id: report["id"].as_str().unwrap_or_default(), report }).collect()
}

impl Case<'_> {
    fn verdict(&self) -> Option<Verdict> {
        match self.report["outcome"].as_str()? {
            "passed" => Some(Verdict::Pass),
            "failed" | "errored" => Some(Verdict::Fail),
            "skipped" => Some(Verdict::Skip),
            _ => None,
        }
    }

    /// Why it failed, in the words of the scenarios.
    fn kind(&self) -> Option<CauseKind> {
        match self.report["cause"].as_str()? {
            "assertion" => Some(CauseKind::Assertion),
            "agent_error" | "protocol_violation" | "unreachable" => Some(CauseKind::AgentError),
            "timeout" => Some(CauseKind::Timeout),
            "max_turns" => Some(CauseKind::MaxTurns),
            "missing_checkpoints" => Some(CauseKind::MissingCheckpoints),
            "simulator_error" => Some(CauseKind::SimulatorError),
            "validator_error" => Some(CauseKind::ValidatorError),
            "script_error" => Some(CauseKind::ScriptError),
            "checkpoint_failed" => Some(CauseKind::CheckpointFailed),
            "nothing_checked" => Some(CauseKind::NothingChecked),
            _ => None,
        }
    }

    /// Why it failed, for people: the error, what was there, and the checkpoints that were not reached.
    fn reason(&self) -> String {
        let told = ["error", "hint"].map(|key| self.report[key].as_str().unwrap_or_default());
        let error = told.into_iter().filter(|told| !told.is_empty()).collect::<Vec<_>>().join("; ");
        let open: Vec<&str> = list(self.report, "checkpoints")
            .filter(|checkpoint| checkpoint["reachedAtTurn"].is_null())
            .filter_map(|checkpoint| checkpoint["id"].as_str())
            .collect();
        if open.is_empty() { error } else { format!("{error}; open checkpoints: {}", open.join(", ")) }
    }
}

impl Check<'_> {
    fn run(&mut self, expect: &Expect) {
        let observed = self.observed;
        if expect.load == Some(Load::Refused) {
            self.load_refused();
        }
        if let Some(exit) = expect.exit {
            let is_so = match exit {
                Exit::Zero => observed.exit == Some(0),
                Exit::Nonzero => observed.exit.is_some_and(|code| code != 0),
            };
            self.is(is_so, "exit", &exit, || format!("{:?}", observed.exit));
        }
        let output = self.output.clone();
        self.mentions("mentions", expect.mentions.as_deref(), &output);
        self.mentions_any("mentions_any", expect.mentions_any.as_deref(), &output);
        let order: Vec<String> = self.cases.iter().map(|case| case.id.to_owned()).collect();
        self.equal("order", expect.order.as_ref(), || order);
        self.results(expect);
        self.calls(expect);
        if let Some(most) = expect.max_total_ms {
            let took = observed.took.as_millis();
            self.is(took <= u128::from(most), "max_total_ms", &most, || format!("{took} ms"));
        }
        self.reports(expect);
        self.alike(expect);
        self.counts(expect);
    }

    fn load_refused(&mut self) {
        let observed = self.observed;
        let calls = observed.invocations().count();
        self.is(calls == 0, "load", &"nothing sent to the agent", || format!("{calls} calls"));
        self.is(observed.is_refused(), "load", &Load::Refused, || format!("exit {:?}", observed.exit));
    }

    /// What the results of the suites say as a whole.
    fn results(&mut self, expect: &Expect) {
        let suites = self.observed.suites();
        let texts =
            |key: &str| -> Vec<String> { suites.iter().flat_map(|suite| list(suite, key)).map(text_or_id).collect() };
        self.equal("stale", expect.stale.as_ref(), || suites.iter().any(|suite| suite["stale"] == true));
        self.equal("warnings", expect.warnings.as_ref(), || texts("stalenessWarnings"));
        let mut warnings = texts("stalenessWarnings");
        warnings.extend(texts("warnings"));
        for case in &self.cases {
            warnings.extend(list(case.report, "warnings").map(text_or_id));
            warnings.extend(case.report["warning"].as_str().map(str::to_owned));
        }
        self.mentions("warnings_mention", expect.warnings_mention.as_deref(), &warnings.join("\n"));
        self.equal("baselineRunId", expect.baseline_run_id.as_ref().map(|id| &id.0), || {
            suites.iter().find_map(|suite| suite["baselineRunId"].as_str()).map(str::to_owned)
        });
        self.equal("regressions", expect.regressions.as_ref(), || texts("regressions"));
        self.equal("newPasses", expect.new_passes.as_ref(), || texts("newPasses"));
    }

    /// What the agent saw.
    fn calls(&mut self, expect: &Expect) {
        let observed = self.observed;
        self.equal("agent_calls", expect.agent_calls.as_ref(), || observed.invocations().count());
        self.equal("distinct_conversations", expect.distinct_conversations.as_ref(), || {
            observed.invocations().map(|line| line.conversation_id.as_str()).collect::<BTreeSet<_>>().len()
        });
        self.equal("agent_saw_cancel", expect.agent_saw_cancel.clone().map(sorted).as_ref(), || {
            let cancelled = |line: &LogLine| line.event == "cancel" || line.end.as_deref() == Some("cancelled");
            let seen: BTreeMap<u64, &str> = observed
                .calls
                .iter()
                .filter(|line| line.service == "AgentEndpoint/Invoke" && cancelled(line))
                .map(|line| (line.call, line.last_user_text.as_str()))
                .collect();
            sorted(seen.into_values())
        });
    }

    fn reports(&mut self, expect: &Expect) {
        let observed = self.observed;
        if let Some(junit) = &expect.junit {
            self.junit(junit);
        }
        self.equal("html_well_formed", expect.html_well_formed.as_ref(), || {
            let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
            let page = observed.reports.get("r.html").and_then(|bytes| std::str::from_utf8(bytes).ok());
            page.is_some_and(|page| roxmltree::Document::parse_with_options(page, options).is_ok())
        });
        for part in expect.console_has_no.iter().flatten() {
            self.is(!self.output.contains(part.as_str()), "console_has_no", part, || {
                format!("{:?}", clip(&observed.output()))
            });
        }
        if let Some(valid) = expect.reports_valid_utf8 {
            let console = [("console".to_owned(), &observed.stdout)];
            let reports = observed.reports.iter().map(|(name, bytes)| (name.clone(), bytes)).chain(console);
            let invalid: Vec<String> =
                reports.filter(|(_, bytes)| std::str::from_utf8(bytes).is_err()).map(|(name, _)| name).collect();
            let is_so = invalid.is_empty() == valid && observed.result.is_some();
            self.is(is_so, "reports_valid_utf8", &valid, || {
                format!("not UTF-8: {invalid:?}, reports: {:?}", observed.reports.keys())
            });
        }
        if !expect.writes_only_under.is_empty() {
            let is_under = |file: &str| {
                expect.writes_only_under.iter().any(|folder| {
                    let folder = folder.strip_prefix("./").unwrap_or(folder).trim_end_matches('/');
                    file.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                })
            };
            let elsewhere: Vec<&String> = observed.written.iter().filter(|file| !is_under(file)).collect();
            self.is(elsewhere.is_empty(), "writes_only_under", &expect.writes_only_under, || {
                format!("written elsewhere: {elsewhere:?}")
            });
        }
    }

    fn junit(&mut self, expect: &Junit) {
        let Some(bytes) = &self.observed.junit else {
            self.found.push("junit: r.xml was not written".to_owned());
            return;
        };
        let text = String::from_utf8_lossy(bytes);
        let parsed = std::str::from_utf8(bytes)
            .map_err(|error| error.to_string())
            .and_then(|text| roxmltree::Document::parse(text).map_err(|error| error.to_string()));
        self.equal("junit.well_formed", expect.well_formed.as_ref(), || parsed.is_ok());
        match &parsed {
            Ok(document) => {
                let is = |node: &roxmltree::Node, names: &[&str]| names.contains(&node.tag_name().name());
                let tests: Vec<_> = document.descendants().filter(|node| is(node, &["testcase"])).collect();
                self.equal("junit.tests", expect.tests.as_ref(), || tests.len());
                self.equal("junit.failures", expect.failures.as_ref(), || {
                    tests.iter().filter(|test| test.children().any(|node| is(&node, &["failure", "error"]))).count()
                });
            }
            Err(error) => self.found.push(format!("junit: {error}: {:?}", clip(&text))),
        }
    }

    fn alike(&mut self, expect: &Expect) {
        let same = |key: &str, ids: &Option<Vec<String>>, of: &dyn Fn(&str) -> Option<String>| {
            let values: Vec<(&String, Option<String>)> = ids.iter().flatten().map(|id| (id, of(id))).collect();
            let is_so = values.iter().all(|(_, value)| value.is_some() && *value == values[0].1);
            (!is_so).then(|| format!("{key}: expected the same, found {values:?}"))
        };
        let verdict = same("same_verdict", &expect.same_verdict, &|id| Some(format!("{:?}", self.verdict(id)?)));
        let turns = same("same_turns", &expect.same_turns, &|id| {
            Some(self.find(id)?.report["totalTurns"].as_u64()?.to_string())
        });
        self.found.extend(verdict.into_iter().chain(turns));
    }

    /// Counts and messages, where the ids are not known beforehand.
    fn counts(&mut self, expect: &Expect) {
        let with = |verdict: Verdict| self.cases.iter().filter(move |case| case.verdict() == Some(verdict));
        let messages = |verdict: Verdict| {
            let message = |id: &str| self.observed.invocations().filter(|line| line.case_id == id).last();
            let texts = with(verdict).filter_map(|case| message(case.id).map(|line| line.last_user_text.clone()));
            sorted(texts)
        };
        let mut found = Vec::new();
        found.extend(differ("failed", expect.failed.as_ref(), || with(Verdict::Fail).count()));
        for (key, expected, verdict) in [
            ("passed_messages", &expect.passed_messages, Verdict::Pass),
            ("failed_messages", &expect.failed_messages, Verdict::Fail),
        ] {
            found.extend(differ(key, expected.clone().map(sorted).as_ref(), || messages(verdict)));
        }
        for (verdict, count) in expect.totals.iter().flatten() {
            found.extend(differ(&format!("totals.{verdict:?}"), Some(count), || with(*verdict).count()));
        }
        for (kind, count) in expect.kinds.iter().flatten() {
            found.extend(differ(&format!("kinds.{kind:?}"), Some(count), || {
                self.cases.iter().filter(|case| case.kind() == Some(*kind)).count()
            }));
        }
        self.found.extend(found);
    }

    fn case(&mut self, id: &str, expect: &CaseExpect) {
        let key = |name: &str| format!("cases.{id}.{name}");
        let verdict = self.verdict(id);
        let (reason, report) = match self.find(id) {
            Some(case) => (case.reason(), case.report.clone()),
            None => (self.output.clone(), Value::Null),
        };
        let kind = self.find(id).and_then(Case::kind);
        let shown = |value: &dyn Debug| match &report {
            Value::Null => format!("{value:?}, and no result"),
            report => format!("{value:?}; cause {}, reason: {}", report["cause"], clip(&reason)),
        };
        let allowed: Option<Vec<Verdict>> = expect.verdict_in.clone().or(expect.verdict.map(|verdict| vec![verdict]));
        if let Some(allowed) = allowed {
            let is_so = verdict.is_some_and(|verdict| allowed.contains(&verdict));
            self.is(is_so, &key("verdict"), &allowed, || shown(&verdict));
        }
        if let Some(allowed) = expect.kind_in.clone().or(expect.kind.map(|kind| vec![kind])) {
            self.is(kind.is_some_and(|kind| allowed.contains(&kind)), &key("kind"), &allowed, || shown(&kind));
        }
        self.mentions(&key("mentions"), expect.mentions.as_deref(), &reason);
        self.mentions_any(&key("mentions_any"), expect.mentions_any.as_deref(), &reason);
        if verdict == Some(Verdict::Fail) {
            self.mentions_any(&key("if_fail_mentions_any"), expect.if_fail_mentions_any.as_deref(), &reason);
        }
        let text = |name: &str| report[name].as_str().map(str::to_owned);
        self.equal(&key("assertion"), expect.assertion.clone().map(Some).as_ref(), || text("assertion"));
        self.equal(&key("warning"), expect.warning.as_ref().map(|warning| &warning.0), || text("warning"));
        let number = |name: &str| report[name].as_u64();
        self.equal(&key("assertionsSkipped"), expect.assertions_skipped.map(Some).as_ref(), || {
            number("assertionsSkipped")
        });
        self.equal(&key("total_turns"), expect.total_turns.map(Some).as_ref(), || number("totalTurns"));
        self.equal(&key("tools"), expect.tools.clone().map(Some).as_ref(), || {
            let details = report.get("details")?;
            Some(list(details, "toolsCalled").map(text_or_id).collect())
        });
        if let Some(least) = expect.duration_ms_min {
            let found = number("durationMs");
            self.is(found >= Some(least), &key("duration_ms_min"), &least, || format!("{found:?}"));
        }
        self.case_calls(id, expect);
        for (checkpoint, turn) in expect.checkpoints.iter().flatten() {
            let found = list(&report, "checkpoints").find(|found| found["id"] == checkpoint.as_str());
            let found = found.map(|found| found["reachedAtTurn"].as_u64());
            self.equal(&format!("{}.{checkpoint}", key("checkpoints")), Some(&Some(*turn)), || found);
        }
    }

    fn case_calls(&mut self, id: &str, expect: &CaseExpect) {
        let observed = self.observed;
        self.equal(&format!("cases.{id}.messages_sent"), expect.messages_sent.map(Some).as_ref(), || {
            observed.invocations().filter(|line| line.case_id == id).last().map(|line| line.messages)
        });
        self.equal(&format!("cases.{id}.simulator_calls"), expect.simulator_calls.as_ref(), || {
            observed.starts("Simulator/NextInput").filter(|line| line.case_id == id).count()
        });
    }

    fn find(&self, id: &str) -> Option<&Case<'_>> {
        self.cases.iter().find(|case| case.id == id)
    }

    fn verdict(&self, id: &str) -> Option<Verdict> {
        match self.find(id) {
            Some(case) => case.verdict(),
            None => self.observed.is_refused().then_some(Verdict::Refused),
        }
    }

    fn is(&mut self, is_so: bool, key: &str, expected: &dyn Debug, found: impl FnOnce() -> String) {
        if !is_so {
            self.found.push(format!("{key}: expected {expected:?}, found {}", found()));
        }
    }

    fn equal<T: PartialEq + Debug>(&mut self, key: &str, expected: Option<&T>, found: impl FnOnce() -> T) {
        let difference = differ(key, expected, found);
        self.found.extend(difference);
    }

    fn mentions(&mut self, key: &str, parts: Option<&[String]>, text: &str) {
        for part in parts.unwrap_or_default() {
            self.is(text.contains(part.as_str()), key, part, || format!("{:?}", clip(text)));
        }
    }

    fn mentions_any(&mut self, key: &str, parts: Option<&[String]>, text: &str) {
        if let Some(parts) = parts {
            let is_so = parts.iter().any(|part| text.contains(part.as_str()));
            self.is(is_so, key, &parts, || format!("{:?}", clip(text)));
        }
    }
}

fn differ<T: PartialEq + Debug>(key: &str, expected: Option<&T>, found: impl FnOnce() -> T) -> Option<String> {
    let expected = expected?;
    let found = found();
    (*expected != found).then(|| format!("{key}: expected {expected:?}, found {found:?}"))
}

/// The items of a list in a report; none when there is no such list.
fn list<'a>(report: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    report.get(key).and_then(Value::as_array).into_iter().flatten()
}

/// An item of a list of ids, which may also be an object with one.
fn text_or_id(item: &Value) -> String {
    let text = item.as_str().or_else(|| item["id"].as_str()).or_else(|| item["caseId"].as_str());
    text.map_or_else(|| item.to_string(), str::to_owned)
}

fn clip(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn sorted(texts: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
    let mut texts: Vec<String> = texts.into_iter().map(Into::into).collect();
    texts.sort();
    texts
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::{LogLine, Observed, differences};

    /// What a run may look like that uses everything which real runs do not show yet.
    fn observed() -> Observed {
        let result = r#"{"stale": true, "stalenessWarnings": ["hash a, now b"], "warnings": ["odd key"],
            "baselineRunId": "old-run", "regressions": ["a"], "newPasses": ["b"], "cases": [
            {"id": "a", "outcome": "failed", "cause": "max_turns", "error": "max turns (2) exceeded", "totalTurns": 2,
             "checkpoints": [{"id": "one", "reachedAtTurn": 1}, {"id": "two", "reachedAtTurn": null}]},
            {"id": "b", "outcome": "passed", "totalTurns": 2, "warning": "nothing checked"}]}"#;
        let junit = "<testsuites><testsuite><testcase name='a'><failure/></testcase><testcase name='b'/>\
                     </testsuite></testsuites>";
        let call = r#"{"event": "start", "call": 1, "service": "Simulator/NextInput", "case_id": "a",
            "conversation_id": "", "last_user_text": "", "messages": 0}"#;
        Observed {
            exit: Some(1),
            took: Duration::from_millis(10),
            stdout: Vec::new(),
            stderr: Vec::new(),
            result: Some(serde_json::from_str(result).unwrap()),
            junit: Some(junit.into()),
            reports: BTreeMap::from([("r.json".to_owned(), result.into())]),
            calls: vec![serde_json::from_str::<LogLine>(call).unwrap()],
            written: vec!["out/a.json".to_owned()],
            trouble: Vec::new(),
        }
    }

    fn check(expect: &str, observed: &Observed) -> Vec<String> {
        differences(&serde_json::from_str(expect).unwrap(), observed)
    }

    #[test]
    fn what_holds_is_no_difference() {
        let expect = r#"{"stale": true, "warnings": ["hash a, now b"], "warnings_mention": ["odd", "nothing checked"],
            "baselineRunId": "old-run", "regressions": ["a"], "newPasses": ["b"], "same_turns": ["a", "b"],
            "same_verdict": ["a"], "junit": {"well_formed": true, "tests": 2, "failures": 1},
            "reports_valid_utf8": true, "writes_only_under": ["./out/"], "totals": {"pass": 1, "fail": 1},
            "cases": {"a": {"verdict": "fail", "kind": "max_turns", "mentions": ["(2)"], "mentions_any": ["x", "two"],
                            "checkpoints": {"one": 1, "two": null}, "simulator_calls": 1, "total_turns": 2}}}"#;
        assert_eq!(check(expect, &observed()), Vec::<String>::new());
    }

    #[test]
    fn what_does_not_hold_is_a_difference() {
        for expect in [
            r#"{"stale": false}"#,
            r#"{"warnings": []}"#,
            r#"{"warnings_mention": ["zzz"]}"#,
            r#"{"baselineRunId": "other"}"#,
            r#"{"baselineRunId": null}"#,
            r#"{"regressions": []}"#,
            r#"{"newPasses": ["a"]}"#,
            r#"{"same_verdict": ["a", "b"]}"#,
            r#"{"same_turns": ["a", "c"]}"#,
            r#"{"junit": {"well_formed": false}}"#,
            r#"{"junit": {"tests": 1}}"#,
            r#"{"junit": {"failures": 2}}"#,
            r#"{"reports_valid_utf8": false}"#,
            r#"{"writes_only_under": "ou"}"#,
            r#"{"cases": {"a": {"mentions": ["one"]}}}"#,
            r#"{"cases": {"a": {"checkpoints": {"one": 2}}}}"#,
            r#"{"cases": {"a": {"checkpoints": {"two": 2}}}}"#,
            r#"{"cases": {"a": {"checkpoints": {"three": null}}}}"#,
            r#"{"cases": {"a": {"simulator_calls": 0}}}"#,
            r#"{"cases": {"b": {"kind": "assertion"}}}"#,
            r#"{"cases": {"b": {"warning": null}}}"#,
            r#"{"cases": {"c": {"verdict_in": ["pass", "fail", "skip", "refused"]}}}"#,
        ] {
            assert_ne!(check(expect, &observed()), Vec::<String>::new(), "{expect}");
        }
        let broken = Observed { junit: Some(b"<a>\x1b</a>".to_vec()), ..observed() };
        assert_ne!(check(r#"{"junit": {"well_formed": true}}"#, &broken), Vec::<String>::new());
        for (page, expected) in [("<p>a<br/></p>", "true"), ("<p>a<br></p>", "false")] {
            let reports = BTreeMap::from([("r.html".to_owned(), page.into())]);
            let expect = format!(r#"{{"html_well_formed": {expected}}}"#);
            assert_eq!(check(&expect, &Observed { reports, ..observed() }), Vec::<String>::new(), "{page}");
        }
        let reports = BTreeMap::from([("r.jsonl".to_owned(), vec![0xff])]);
        assert_ne!(check(r#"{"reports_valid_utf8": true}"#, &Observed { reports, ..observed() }), Vec::<String>::new());
        for expect in [r#"{"regressions": []}"#, r#"{"stale": false}"#, r#"{"totals": {"fail": 0}}"#] {
            let nothing = Observed { result: None, ..observed() };
            assert_ne!(check(expect, &nothing), Vec::<String>::new(), "{expect}");
        }
        let stderr = b"error: unexpected argument\n\nFor more information, try '--help'.\n".to_vec();
        let usage = Observed { exit: Some(2), result: None, stderr, ..observed() };
        assert_ne!(check(r#"{"exit": "nonzero"}"#, &usage), Vec::<String>::new());
        assert_ne!(check(r#"{"load": "refused"}"#, &usage), Vec::<String>::new());
        let trouble = vec!["the daemon ended".to_owned()];
        assert_eq!(check("{}", &Observed { trouble, ..observed() }), ["the daemon ended"]);
    }
}
