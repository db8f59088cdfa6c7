//! A result as JSON → the run that it is of, so that every other report can be made from it.
//!
//! What a result does not hold is not there: what was asked for beside the cases, and the votes of single validators on
//! earlier attempts. Everything that stands in a result stands in the next one that is made from it.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::repeats::Gated;
use super::shape::case::Case;
use super::shape::{Head, Tail};
use crate::event::{Payload, Run, RunEvent, State};
use crate::plan::RunSpec;
use crate::verdict::Totals;

/// Reads results of one run, each of one suite or of several: the run, and a log of its cases.
///
/// # Errors
/// When one of them is no result of this program, or they are of different runs.
pub fn read(texts: &[String]) -> Result<(Run, Vec<RunEvent>), String> {
    let mut suites = Vec::new();
    for text in texts {
        suites.extend(suites_of(text)?);
    }
    let first = suites.first().ok_or("there is no suite in it")?;
    if let Some(other) = suites.iter().find(|suite| suite.head.run_id != first.head.run_id) {
        return Err(format!("they are of different runs, {} and {}", first.head.run_id, other.head.run_id));
    }
    let mut run = run_of(first, &suites)?;
    let mut log = Vec::new();
    for suite in &suites {
        for case in &suite.cases {
            let (case, planned, result) = case.read(&suite.head.suite)?;
            run.totals.add(&result);
            for payload in [planned, Payload::CaseFinished(Box::new(result))] {
                let sequence = log.len() as u64 + 1;
                log.push(RunEvent { sequence, at: run.created_at, case: Some(case.clone()), turn: 0, payload });
            }
        }
    }
    run.totals.total = run.suites.iter().map(|suite| suite.cases).sum();
    Ok((run, log))
}

/// One suite of a result.
struct Suite {
    head: Head<'static>,
    cases: Vec<Case<'static>>,
    tail: Tail<'static>,
}

#[derive(Deserialize)]
struct Several {
    suites: Option<Vec<Box<RawValue>>>,
}

#[derive(Deserialize)]
struct Cases {
    cases: Vec<Case<'static>>,
}

fn suites_of(text: &str) -> Result<Vec<Suite>, String> {
    let of_several = serde_json::from_str::<Several>(text).map_err(|error| unreadable(&error))?;
    match of_several.suites {
        Some(suites) => suites.iter().map(|suite| suite_of(suite.get())).collect(),
        None => Ok(vec![suite_of(text)?]),
    }
}

/// Its parts are read one after the other: JSON that stays as it is written can be read from a text alone.
fn suite_of(text: &str) -> Result<Suite, String> {
    let head = serde_json::from_str(text).map_err(|error| unreadable(&error))?;
    let tail = serde_json::from_str(text).map_err(|error| unreadable(&error))?;
    let Cases { cases } = serde_json::from_str(text).map_err(|error| unreadable(&error))?;
    Ok(Suite { head, cases, tail })
}

fn unreadable(error: &serde_json::Error) -> String {
    format!("it is no result as JSON: {error}")
}

fn run_of(first: &Suite, suites: &[Suite]) -> Result<Run, String> {
    let Suite { head, tail, .. } = first;
    let (created_at, finished_at) = head.times()?;
    let (agent_endpoint, agent) = head.agent();
    let state = match tail.exit_code {
        0 | 4 => State::Passed,
        1 => State::Failed,
        _ => State::Errored,
    };
    let spec = RunSpec {
        repeats: suites.iter().flat_map(|suite| &suite.cases).map(Case::repeat).max().unwrap_or(1),
        ..head.spec(suites.iter().map(|suite| suite.head.suite.clone().into_owned()).collect())?
    };
    Ok(Run {
        run_id: head.run_id.clone().into_owned(),
        spec: Arc::new(spec),
        state,
        totals: Totals::default(),
        created_at,
        finished_at,
        last_sequence: 0,
        error: None,
        warnings: Vec::new(),
        agent,
        agent_endpoint,
        suites: suites.iter().map(|suite| suite.head.suite(&suite.tail)).collect::<Result<_, _>>()?,
        paused: false,
        concurrency: None,
        gate: tail.gate.as_ref().map(Gated::read).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use crate::report::{Format, whole};
    use crate::trace::{TraceHeaders, TraceParent};

    /// What stands in a result stands in the one that is made from it, and in every other report.
    #[test]
    fn a_result_gives_the_reports_again() {
        for (mut run, log) in [sample::of_everything(), sample::repeated()] {
            let spec = Arc::make_mut(&mut run.spec);
            spec.labels = vec![("branch".to_owned(), "main".to_owned()), ("ci".to_owned(), "7".to_owned())];
            spec.trace_url = Some("https://traces.example/{trace_id}?span={span_id}".to_owned());
            let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned();
            spec.trace_parent = TraceParent::read(&TraceHeaders { traceparent, ..TraceHeaders::default() }).ok();
            let result = whole(Format::Json, run.clone(), &log, None).expect("a result");
            let (again, stored) = read(std::slice::from_ref(&result)).unwrap_or_else(|why| panic!("{why}\n{result}"));
            assert_eq!(again.exit_code(), run.exit_code());
            assert_eq!((&again.gate, again.finished_at), (&run.gate, run.finished_at));
            assert!(result.contains("https://traces.example/4bf92f3577b34da6a3ce929d0e0e4736?span="), "{result}");
            let whole_again = |format| whole(format, again.clone(), &stored, None).expect("a report");
            let parse = |text: &str| -> serde_json::Value { serde_json::from_str(text).expect("JSON") };
            assert_eq!(parse(&whole_again(Format::Json)), parse(&result));
            let lines = |text: String| text.lines().map(parse).collect::<Vec<_>>();
            let jsonl = whole(Format::Jsonl, run.clone(), &log, None).expect("lines");
            assert_eq!(lines(whole_again(Format::Jsonl)), lines(jsonl));
            for format in [Format::Junit, Format::Markdown, Format::Html] {
                assert!(whole_again(format).contains(&log[0].case.as_ref().expect("a case").case_id.to_string()));
            }
        }
    }

    #[test]
    fn what_is_no_result_is_refused() {
        for (text, says) in [
            ("", "it is no result as JSON: EOF"),
            ("{}", "missing field `runId`"),
            ("[]", "it is no result as JSON"),
            (r#"{"suites": []}"#, "there is no suite in it"),
        ] {
            assert!(read(&[text.to_owned()]).is_err_and(|why| why.contains(says)), "{text}");
        }
        let result = |id: &str| {
            let (run, log) = sample::run(vec![("a", sample::passed("yes"))]);
            whole(Format::Json, Run { run_id: id.to_owned(), ..run }, &log, None).expect("a result")
        };
        let odd = result("a").replace("\"outcome\": \"passed\"", "\"outcome\": \"fine\"");
        assert!(read(&[odd]).is_err_and(|why| why == "case \"a\": outcome: \"fine\" is unknown"));
        assert!(read(&[result("a"), result("b")]).is_err_and(|why| why == "they are of different runs, a and b"));
    }
}
