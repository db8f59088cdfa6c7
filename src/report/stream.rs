//! What happens in a run as lines of JSON for programs: `forgectl run --json`.
//!
//! Each line is an object whose `type` says what it is about, with keys in `snake_case`: `run` first, then `started`,
//! `attempt`, `case` and `warning` in the order in which things happen, and `summary` last. A `case` has the keys of a
//! line of a `.jsonl` result.

use serde::Serialize;

use super::outline::{Outline, Outliner};
use super::{Tracing, Unwritable, Verdict, Written, jsonl};
use crate::conversation::Cost;
use crate::event::{Payload, Run, RunEvent, SuiteInfo};
use crate::text::printable_json;
use crate::verdict::gate::GateResult;
use crate::verdict::{Cause, Totals, whole_millis};

/// The lines of one run; fed with the events of its log.
#[derive(Debug, Default)]
pub struct Stream {
    outliner: Option<Outliner>,
}

impl Stream {
    /// The line that an event makes, if it makes one. Cases that ended have lines of their own, see [`case`].
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn take(&mut self, event: &RunEvent) -> Result<Option<String>, Unwritable> {
        if let Some(outliner) = &mut self.outliner {
            outliner.take(event);
        }
        match (&event.payload, &event.case) {
            (Payload::RunStarted(run), _) => {
                self.outliner = Some(Outliner::new((**run).clone()));
                line(&Started::of(run)).map(Some)
            }
            (Payload::CaseStarted { .. }, Some(case)) => {
                let (suite, id) = (&*case.suite, &*case.case_id);
                line(&Begun { kind: "started", suite, id, repeat: case.repeat, attempt: case.attempt }).map(Some)
            }
            (Payload::AttemptFinished(result), Some(case)) => line(&Attempted {
                kind: "attempt",
                suite: &case.suite,
                id: &case.case_id,
                repeat: case.repeat,
                attempt: case.attempt,
                outcome: result.outcome.name(),
                cause: result.cause.map(Cause::name),
                error: result.error.as_deref(),
                duration_ms: whole_millis(result.transcript.duration),
            })
            .map(Some),
            (Payload::Warning(message), _) => line(&Warning { kind: "warning", message }).map(Some),
            (Payload::RunFinished(run), _) => {
                let outline = self.outliner.take().map(Outliner::finish);
                line(&Summary::of(run, outline.as_ref())).map(Some)
            }
            _ => Ok(None),
        }
    }
}

/// The line of a case that ended.
///
/// # Errors
/// When it cannot be written.
pub fn case(verdict: Verdict<'_>) -> Written {
    let case = jsonl::line(verdict).map_err(Unwritable::of)?;
    Ok(format!("{{\"type\":\"case\",{}", case.strip_prefix('{').unwrap_or(&case)))
}

/// The line of what kept a run from coming to its summary. `exit_code`: that of the program.
///
/// # Errors
/// When it cannot be written.
pub fn error(exit_code: u8, message: &str, details: &[String], hint: Option<&str>) -> Written {
    line(&Trouble { kind: "error", exit_code, message, details, hint })
}

fn line(of: &impl Serialize) -> Written {
    serde_json::to_string(of).map(|text| printable_json(&text) + "\n").map_err(Unwritable::of)
}

#[derive(Serialize)]
struct Started<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    run_id: &'a str,
    created_at: String,
    agent_id: &'a str,
    agent_endpoint: &'a str,
    total: u32,
    repeats: u32,
    labels: std::collections::BTreeMap<&'a str, &'a str>,
    suites: Vec<Planned<'a>>,
}

#[derive(Serialize)]
struct Planned<'a> {
    suite: &'a str,
    tool_name: &'a str,
    tier: &'static str,
    total: u32,
}

impl<'a> Started<'a> {
    fn of(run: &'a Run) -> Self {
        let planned = |suite: &'a SuiteInfo| Planned {
            suite: &suite.path,
            tool_name: &suite.tool_name,
            tier: suite.tier.name(),
            total: suite.cases,
        };
        Self {
            kind: "run",
            run_id: &run.run_id,
            created_at: run.created_at.to_string(),
            agent_id: &run.spec.agent_id,
            agent_endpoint: &run.agent_endpoint,
            total: run.totals.total,
            repeats: run.spec.repeats,
            labels: run.spec.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect(),
            suites: run.suites.iter().map(planned).collect(),
        }
    }
}

#[derive(Serialize)]
struct Begun<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    suite: &'a str,
    id: &'a str,
    repeat: u32,
    attempt: u32,
}

/// An attempt after which the case is tried again.
#[derive(Serialize)]
struct Attempted<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    suite: &'a str,
    id: &'a str,
    repeat: u32,
    attempt: u32,
    outcome: &'static str,
    cause: Option<&'static str>,
    error: Option<&'a str>,
    duration_ms: u64,
}

#[derive(Serialize)]
struct Warning<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    message: &'a str,
}

#[derive(Serialize)]
struct Trouble<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    exit_code: u8,
    message: &'a str,
    details: &'a [String],
    hint: Option<&'a str>,
}

#[derive(Serialize)]
struct Summary<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    run_id: &'a str,
    state: &'static str,
    /// What the verdicts come to, as in every report; the program's own may be another one.
    exit_code: u8,
    error: Option<&'a str>,
    #[serde(flatten)]
    totals: Counts,
    agent: Option<Agent<'a>>,
    warnings: &'a [String],
    suites: Vec<OfSuite<'a>>,
    gate: Option<Gate<'a>>,
    trace_id: String,
    trace_url: Option<String>,
}

#[derive(Serialize)]
struct Agent<'a> {
    id: &'a str,
    name: &'a str,
    version: &'a str,
    model: &'a str,
}

/// What came of the gate: `passage`, and what that counts as.
#[derive(Serialize)]
struct Gate<'a> {
    passage: &'static str,
    counts_as: &'static str,
    reasons: &'a [String],
    left_out: u32,
}

impl<'a> Gate<'a> {
    fn of(gate: &'a GateResult) -> Self {
        let GateResult { passage, counts_as, reasons, left_out, .. } = gate;
        Self { passage: passage.name(), counts_as: counts_as.name(), reasons, left_out: *left_out }
    }
}

#[derive(Serialize)]
struct Counts {
    total: u32,
    passed: u32,
    failed: u32,
    errored: u32,
    not_run: u32,
    skipped: u32,
    flaky: u32,
    skipped_assertions: u32,
    duration_ms: u64,
    input_tokens: Option<i64>,
    output_tokens: Option<i64>,
    cost_usd: Option<f64>,
    cost_estimated: Option<bool>,
}

impl From<Totals> for Counts {
    fn from(totals: Totals) -> Self {
        Self {
            total: totals.total,
            passed: totals.passed,
            failed: totals.failed,
            errored: totals.errored,
            not_run: totals.not_run,
            skipped: totals.skipped,
            flaky: totals.flaky,
            skipped_assertions: totals.skipped_assertions,
            duration_ms: whole_millis(totals.duration),
            input_tokens: totals.usage.input_tokens,
            output_tokens: totals.usage.output_tokens,
            cost_usd: totals.usage.cost.map(Cost::usd),
            cost_estimated: totals.usage.cost.map(|cost| cost.estimated),
        }
    }
}

#[derive(Serialize)]
struct OfSuite<'a> {
    suite: &'a str,
    #[serde(flatten)]
    totals: Option<Counts>,
    warnings: &'a [String],
    stale: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    baseline: Option<Compared<'a>>,
}

/// What came of the comparison with the baseline, in ids of cases.
#[derive(Serialize)]
struct Compared<'a> {
    run_id: &'a str,
    regressions: &'a [String],
    new_passes: &'a [String],
    new_cases: &'a [String],
    vanished_cases: &'a [String],
    not_judged: &'a [String],
    differences: &'a [String],
}

impl<'a> Summary<'a> {
    fn of(run: &'a Run, outline: Option<&Outline>) -> Self {
        let totals = |suite: usize| {
            let part = outline?.parts.iter().find(|part| part.suite == suite)?;
            Some(part.totals.into())
        };
        let traced = Tracing::of(run).run();
        Self {
            kind: "summary",
            run_id: &run.run_id,
            state: run.state.name(),
            exit_code: run.exit_code(),
            error: run.error.as_ref().map(|fault| fault.message.as_str()),
            totals: run.totals.into(),
            agent: run.agent.as_ref().map(|card| Agent {
                id: &card.agent_id,
                name: &card.name,
                version: &card.version,
                model: &card.model,
            }),
            warnings: &run.warnings,
            suites: run.suites.iter().enumerate().map(|(at, suite)| OfSuite::of(suite, totals(at))).collect(),
            gate: run.gate.as_ref().map(Gate::of),
            trace_id: traced.trace_id,
            trace_url: traced.url,
        }
    }
}

impl<'a> OfSuite<'a> {
    fn of(suite: &'a SuiteInfo, totals: Option<Counts>) -> Self {
        Self {
            suite: &suite.path,
            totals,
            warnings: &suite.warnings,
            stale: suite.staleness.as_ref().is_some_and(|today| today.stale),
            baseline: suite.comparison.as_ref().map(|compared| Compared {
                run_id: &compared.baseline_run_id,
                regressions: &compared.regressions,
                new_passes: &compared.new_passes,
                new_cases: &compared.new_cases,
                vanished_cases: &compared.vanished_cases,
                not_judged: &compared.not_judged,
                differences: &compared.differences,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample::{self, HOSTILE, failed};
    use crate::text::obeyed;

    fn lines(run: &Run, log: &[RunEvent]) -> Vec<serde_json::Value> {
        let mut stream = Stream::default();
        let of_run = |payload| RunEvent { case: None, payload, ..log[0].clone() };
        let (first, last) = (Payload::RunStarted(Box::new(run.clone())), Payload::RunFinished(Box::new(run.clone())));
        let warnings = run.warnings.iter().map(|text| of_run(Payload::Warning(text.clone())));
        let mut text = String::new();
        for event in std::iter::once(of_run(first)).chain(warnings).chain(log.to_vec()).chain([of_run(last)]) {
            text.extend(stream.take(&event).expect("a line"));
            let planned = log.iter().find(|other| other.case == event.case);
            if let Some(verdict) = planned.and_then(|planned| Verdict::of(planned, &event)) {
                text += &case(verdict).expect("a line");
            }
        }
        text += &error(2, HOSTILE[0], &hostile(), Some(HOSTILE[1])).expect("a line");
        assert_eq!(obeyed(&text), [""; 0]);
        let strange = |c: &char| c.is_control() && *c != '\n' || ('\u{202a}'..='\u{202e}').contains(c);
        assert_eq!(text.chars().find(strange), None);
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
    }

    fn hostile() -> Vec<String> {
        HOSTILE.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn the_first_line_says_what_runs_and_the_last_what_came_of_it() {
        let (run, log) = sample::of_everything();
        let lines = lines(&run, &log);
        let kinds: Vec<&str> = lines.iter().map(|line| line["type"].as_str().expect("a type")).collect();
        assert_eq!((kinds[0], kinds[kinds.len() - 2]), ("run", "summary"), "{kinds:?}");
        assert_eq!(kinds.iter().filter(|kind| **kind == "case").count(), 7);
        assert_eq!((&lines[0]["run_id"], &lines[0]["suites"][0]["total"]), (&"run-1".into(), &7.into()));
        let summary = &lines[kinds.len() - 2];
        assert_eq!((&summary["state"], &summary["exit_code"]), (&"errored".into(), &3.into()));
        assert_eq!((&summary["total"], &summary["passed"], &summary["flaky"]), (&7.into(), &2.into(), &1.into()));
        let suite = &summary["suites"][0];
        assert_eq!((&suite["failed"], &suite["baseline"]["regressions"]), (&2.into(), &serde_json::json!(["worse"])));
    }

    #[test]
    fn hostile_text_stays_text() {
        let (mut run, log) = sample::run(HOSTILE.iter().map(|text| (*text, failed(text))).collect());
        run.warnings = hostile();
        std::sync::Arc::make_mut(&mut run.spec).labels = vec![("a".to_owned(), HOSTILE.concat())];
        let lines = lines(&run, &log);
        let ids: Vec<&str> =
            lines.iter().filter(|line| line["type"] == "case").filter_map(|line| line["id"].as_str()).collect();
        assert_eq!(ids, HOSTILE, "and is the same for programs");
    }
}
