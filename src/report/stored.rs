//! A result as JSON → the run that it is of, so that every other report can be made from it.
//!
//! What a result does not hold is not there: what was asked for beside the cases, the votes of single validators on earlier attempts,
//! links to traces. Everything that stands in a result stands in the next one that is made from it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::case::CaseRef;
use crate::conversation::{
    AgentCard, Arguments, Blob, Cost, Fault, JsonText, MaybeJson, Message, Part, Role, Source, ToolCall, ToolOutcome,
    Transcript, Usage,
};
use crate::event::{Payload, Run, RunEvent, State, SuiteInfo};
use crate::plan::{Replay, RunSpec};
use crate::suite::staleness::{Staleness, StalenessWarning};
use crate::suite::{Labels, Tier};
use crate::verdict::baseline::Comparison;
use crate::verdict::gate::{GateResult, Passage};
use crate::verdict::{
    AssertionResult, Attempt, Blame, CaseResult, Cause, CheckpointResult, Opinion, Outcome, Totals, Turn,
};

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
    if let Some(other) = suites.iter().find(|suite| suite.run_id != first.run_id) {
        return Err(format!("they are of different runs, {} and {}", first.run_id, other.run_id));
    }
    let mut run = run_of(first, &suites)?;
    let mut log = Vec::new();
    for suite in &suites {
        for case in &suite.cases {
            let (case, planned, result) = case.read(&suite.suite)?;
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

fn suites_of(text: &str) -> Result<Vec<SuiteFile>, String> {
    let unreadable = |error: serde_json::Error| format!("it is no result as JSON: {error}");
    let of_several = serde_json::from_str::<RunFile>(text).map_err(unreadable)?;
    match of_several.suites {
        Some(suites) => Ok(suites),
        None => Ok(vec![serde_json::from_str(text).map_err(unreadable)?]),
    }
}

fn run_of(first: &SuiteFile, suites: &[SuiteFile]) -> Result<Run, String> {
    let created_at = first.timestamp.parse::<Timestamp>().map_err(|error| format!("timestamp: {error}"))?;
    let gate = first.gate.as_ref().map(GateFile::read).transpose()?;
    let state = match first.exit_code {
        0 | 4 => State::Passed,
        1 => State::Failed,
        _ => State::Errored,
    };
    let mut spec = RunSpec::new(&*first.agent_id, suites.iter().map(|suite| suite.suite.clone()).collect());
    if first.partial {
        // Which ones is not told.
        spec.case_patterns.push(String::new());
    }
    spec.repeats = suites.iter().flat_map(|suite| &suite.cases).map(|case| case.repeat).max().unwrap_or(1);
    spec.replay = first.replay_of.clone().map(|run_id| Replay { run_id, asks_validators: false });
    Ok(Run {
        run_id: first.run_id.clone(),
        spec: Arc::new(spec),
        state,
        totals: Totals::default(),
        created_at,
        finished_at: None,
        last_sequence: 0,
        error: None,
        warnings: Vec::new(),
        agent: first.agent.as_ref().map(|agent| AgentCard {
            agent_id: agent.id.clone(),
            name: agent.name.clone(),
            version: agent.version.clone(),
            model: agent.model.clone(),
            ..AgentCard::default()
        }),
        agent_endpoint: first.agent_endpoint.clone(),
        suites: suites.iter().map(SuiteFile::info).collect::<Result<_, _>>()?,
        paused: false,
        concurrency: None,
        gate,
    })
}

#[derive(Deserialize)]
struct RunFile {
    suites: Option<Vec<SuiteFile>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SuiteFile {
    run_id: String,
    timestamp: String,
    suite: String,
    tier: String,
    tool_name: String,
    #[serde(default)]
    agent_endpoint: String,
    agent_id: String,
    #[serde(default)]
    partial: bool,
    replay_of: Option<String>,
    metadata: MetadataFile,
    #[serde(default)]
    staleness_warnings: Vec<String>,
    #[serde(default)]
    stale: bool,
    #[serde(default)]
    warnings: Vec<String>,
    agent: Option<AgentFile>,
    cases: Vec<CaseFile>,
    baseline_run_id: Option<String>,
    #[serde(default)]
    regressions: Vec<String>,
    #[serde(default)]
    new_passes: Vec<String>,
    #[serde(default)]
    new_cases: Vec<String>,
    #[serde(default)]
    vanished_cases: Vec<String>,
    #[serde(default)]
    not_judged: Vec<String>,
    #[serde(default)]
    baseline_differences: Vec<String>,
    gate: Option<GateFile>,
    exit_code: u8,
    summary: SummaryFile,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetadataFile {
    tool_version: Option<String>,
    description_hash: Option<String>,
    registry_size: Option<usize>,
    eval_file_hash: String,
}

#[derive(Deserialize)]
struct AgentFile {
    id: String,
    name: String,
    version: String,
    model: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SummaryFile {
    total_cases: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GateFile {
    passage: String,
    counts_as: Option<String>,
    reasons: Vec<String>,
    passed: u32,
    failed: u32,
    uncounted: u32,
    left_out: u32,
}

impl GateFile {
    /// What came of the gate. How suites compare with a baseline is left out: the reasons say what matters of it.
    fn read(&self) -> Result<GateResult, String> {
        let named = |name: &str| {
            let all = [Passage::Passed, Passage::Failed, Passage::CannotTell];
            all.into_iter().find(|passage| passage.name() == name).ok_or_else(|| format!("gate: {name:?} is unknown"))
        };
        let passage = named(&self.passage)?;
        Ok(GateResult {
            passage,
            counts_as: self.counts_as.as_deref().map_or(Ok(passage), named)?,
            reasons: self.reasons.clone(),
            tally: crate::stats::Tally { passed: self.passed, failed: self.failed, uncounted: self.uncounted },
            comparison: None,
            suites: Vec::new(),
            left_out: self.left_out,
        })
    }
}

impl SuiteFile {
    fn info(&self) -> Result<SuiteInfo, String> {
        let MetadataFile { tool_version, description_hash, registry_size, eval_file_hash } = &self.metadata;
        let warning = |text: &String| StalenessWarning { text: text.clone(), short: text.clone() };
        Ok(SuiteInfo {
            path: self.suite.clone(),
            tool_name: self.tool_name.clone(),
            tier: Tier::named(&self.tier).ok_or_else(|| format!("tier: {:?} is unknown", self.tier))?,
            eval_file_hash: eval_file_hash.clone(),
            cases: self.summary.total_cases,
            warnings: self.warnings.clone(),
            staleness: registry_size.map(|registry_size| Staleness {
                stale: self.stale,
                warnings: self.staleness_warnings.iter().map(warning).collect(),
                tool_version: tool_version.clone(),
                description_hash: description_hash.clone(),
                registry_size,
            }),
            comparison: self.baseline_run_id.clone().map(|baseline_run_id| Comparison {
                baseline_run_id,
                regressions: self.regressions.clone(),
                new_passes: self.new_passes.clone(),
                new_cases: self.new_cases.clone(),
                vanished_cases: self.vanished_cases.clone(),
                not_judged: self.not_judged.clone(),
                differences: self.baseline_differences.clone(),
            }),
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CaseFile {
    id: String,
    #[serde(default)]
    description: String,
    duration_ms: u64,
    error: Option<String>,
    hint: Option<String>,
    difficulty: Option<String>,
    bug_ref: Option<String>,
    created_at: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    outcome: String,
    cause: Option<String>,
    blame: Option<String>,
    assertion: Option<String>,
    warning: Option<String>,
    #[serde(default)]
    warnings: Vec<String>,
    #[serde(default = "one")]
    attempts: u32,
    #[serde(default)]
    earlier_attempts: Vec<AttemptFile>,
    #[serde(default = "one")]
    repeat: u32,
    #[serde(default)]
    assertions: Vec<AssertionFile>,
    #[serde(default)]
    total_turns: u32,
    #[serde(default)]
    messages: Vec<MessageFile>,
    #[serde(default)]
    turns: Vec<TurnFile>,
    #[serde(default)]
    checkpoints: Vec<CheckpointFile>,
    usage: Option<UsageFile>,
    #[serde(default)]
    tool_calls: Vec<CallFile>,
    #[serde(default)]
    response: String,
    #[serde(default)]
    commentary: String,
    #[serde(default)]
    console: Vec<String>,
    #[serde(default)]
    replayed: bool,
}

const fn one() -> u32 {
    1
}

/// What a word stands for.
fn known<T>(what: &str, word: Option<&String>, named: fn(&str) -> Option<T>) -> Result<Option<T>, String> {
    word.map(|word| named(word).ok_or_else(|| format!("{what}: {word:?} is unknown"))).transpose()
}

fn outcome(word: &str) -> Result<Outcome, String> {
    Outcome::named(word).ok_or_else(|| format!("outcome: {word:?} is unknown"))
}

fn seconds(millis: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(millis / 1e3).ok()
}

fn json(raw: &RawValue) -> Option<JsonText> {
    JsonText::new(raw.get()).ok()
}

impl CaseFile {
    fn read(&self, suite: &str) -> Result<(CaseRef, Payload, CaseResult), String> {
        let why = |error: String| format!("case {:?}: {error}", self.id);
        let case = CaseRef {
            suite: suite.into(),
            case_id: self.id.as_str().into(),
            repeat: self.repeat,
            attempt: self.attempts,
        };
        let labels = Labels {
            difficulty: self.difficulty.clone(),
            bug_ref: self.bug_ref.clone(),
            created_at: self.created_at.clone(),
            tags: self.tags.clone(),
        };
        let planned = Payload::CasePlanned { name: self.description.clone(), labels };
        Ok((case, planned, self.result().map_err(why)?))
    }

    fn result(&self) -> Result<CaseResult, String> {
        let transcript = Transcript {
            response: self.response.clone(),
            commentary: self.commentary.clone(),
            tool_calls: self.tool_calls.iter().enumerate().map(CallFile::read).collect(),
            usage: self.usage.as_ref().map(UsageFile::read),
            duration: Duration::from_millis(self.duration_ms),
            ..Transcript::default()
        };
        let messages: Vec<Message> = self.messages.iter().map(MessageFile::read).collect::<Result<_, _>>()?;
        Ok(CaseResult {
            outcome: outcome(&self.outcome)?,
            cause: known("cause", self.cause.as_ref(), Cause::named)?,
            blame: known("blame", self.blame.as_ref(), Blame::named)?,
            error: self.error.clone(),
            hint: self.hint.clone(),
            failed_assertion: self.assertion.clone(),
            warning: self.warning.clone(),
            warnings: self.warnings.clone(),
            assertions: self.assertions.iter().map(AssertionFile::read).collect::<Result<_, _>>()?,
            transcript,
            total_turns: self.total_turns,
            turns: self.turns.iter().map(TurnFile::read).collect(),
            checkpoints: self.checkpoints.iter().map(CheckpointFile::read).collect::<Result<_, _>>()?,
            messages_count: u32::try_from(messages.len()).unwrap_or(u32::MAX),
            messages,
            earlier: self.earlier_attempts.iter().map(AttemptFile::read).collect::<Result<_, _>>()?,
            console: self.console.clone(),
            replayed: self.replayed,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AttemptFile {
    outcome: String,
    cause: Option<String>,
    blame: Option<String>,
    error: Option<String>,
    duration_ms: u64,
}

impl AttemptFile {
    fn read(&self) -> Result<Attempt, String> {
        Ok(Attempt {
            outcome: outcome(&self.outcome)?,
            cause: known("cause", self.cause.as_ref(), Cause::named)?,
            blame: known("blame", self.blame.as_ref(), Blame::named)?,
            error: self.error.clone(),
            duration: Duration::from_millis(self.duration_ms),
            usage: None,
        })
    }
}

/// An assertion: what came of it, among the keys that the file of the suite has.
#[derive(Deserialize)]
struct AssertionFile {
    #[serde(rename = "type")]
    kind: String,
    outcome: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    hint: String,
    #[serde(default)]
    tokens: Vec<String>,
    score: Option<f64>,
    #[serde(default)]
    replies: Vec<String>,
    votes: Option<u32>,
    agreeing: Option<u32>,
    #[serde(default)]
    console: Vec<String>,
    #[serde(flatten)]
    written: BTreeMap<String, serde_json::Value>,
}

impl AssertionFile {
    fn read(&self) -> Result<AssertionResult, String> {
        let mut written: BTreeMap<&str, serde_json::Value> = self
            .written
            .iter()
            .filter(|(key, _)| *key != "passed")
            .map(|(key, of)| (key.as_str(), of.clone()))
            .collect();
        let has_written = !written.is_empty();
        written.insert("type", self.kind.as_str().into());
        let written = serde_json::to_string(&written).ok().filter(|_| has_written);
        let has_opinion =
            self.score.is_some() || self.votes.is_some() || !self.replies.is_empty() || !self.console.is_empty();
        Ok(AssertionResult {
            name: self.kind.clone(),
            outcome: outcome(&self.outcome)?,
            reason: self.reason.clone(),
            hint: self.hint.clone(),
            unresolved_tokens: self.tokens.clone(),
            blame: None,
            written: written.and_then(|text| JsonText::new(text).ok()),
            opinion: has_opinion.then(|| Opinion {
                score: self.score,
                replies: self.replies.clone(),
                votes: self.votes.unwrap_or(0),
                agreeing: self.agreeing.unwrap_or(0),
                console: self.console.clone(),
            }),
        })
    }
}

#[derive(Deserialize)]
struct MessageFile {
    role: String,
    content: ContentFile,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ContentFile {
    Text(String),
    Parts(Vec<PartFile>),
}

#[derive(Deserialize)]
struct PartFile {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    name: Option<String>,
    source: Option<String>,
}

impl MessageFile {
    fn read(&self) -> Result<Message, String> {
        let role = Role::ALL.into_iter().find(|role| role.name() == self.role);
        let role = role.ok_or_else(|| format!("role: {:?} is unknown", self.role))?;
        let parts = match &self.content {
            ContentFile::Text(text) => vec![Part::Text(text.clone())],
            ContentFile::Parts(parts) => parts.iter().map(PartFile::read).collect(),
        };
        Ok(Message { role, parts })
    }
}

impl PartFile {
    fn read(&self) -> Part {
        let text = self.text.clone().unwrap_or_default();
        match self.kind.as_str() {
            "text" => Part::Text(text),
            "reasoning" => Part::Reasoning(text),
            "data" => JsonText::new(text.clone()).map_or(Part::Text(text), Part::Data),
            media_type => Part::Blob(Blob {
                media_type: media_type.to_owned(),
                name: self.name.clone().unwrap_or_default(),
                source: self.source.clone().map_or_else(|| Source::File(String::new()), Source::Uri),
                written: None,
            }),
        }
    }
}

#[derive(Deserialize)]
struct TurnFile {
    turn: u32,
    input: String,
    output: String,
    #[serde(default)]
    commentary: String,
    #[serde(default)]
    reasoning: String,
}

impl TurnFile {
    fn read(&self) -> Turn {
        let Self { turn, input, output, commentary, reasoning } = self;
        let (input, output) = (input.clone(), output.clone());
        Turn { number: *turn, input, output, commentary: commentary.clone(), reasoning: reasoning.clone() }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CheckpointFile {
    id: String,
    reached_at_turn: Option<u32>,
    #[serde(default)]
    required: bool,
    #[serde(default)]
    assertions: Vec<AssertionFile>,
}

impl CheckpointFile {
    fn read(&self) -> Result<CheckpointResult, String> {
        Ok(CheckpointResult {
            id: self.id.clone(),
            reached_at_turn: self.reached_at_turn,
            required: self.required,
            assertions: self.assertions.iter().map(AssertionFile::read).collect::<Result<_, _>>()?,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UsageFile {
    input_tokens: Option<i64>,
    output_tokens: Option<i64>,
    cache_read_tokens: Option<i64>,
    cache_write_tokens: Option<i64>,
    reasoning_tokens: Option<i64>,
    cost_usd: Option<f64>,
    cost_estimated: Option<bool>,
}

impl UsageFile {
    fn read(&self) -> Usage {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float that is too large saturates"
        )]
        let nano_usd = |usd: f64| (usd * 1e9).round() as u64;
        let estimated = self.cost_estimated.unwrap_or(false);
        Usage {
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            cache_read_tokens: self.cache_read_tokens,
            cache_write_tokens: self.cache_write_tokens,
            reasoning_tokens: self.reasoning_tokens,
            cost: self.cost_usd.map(|usd| Cost { nano_usd: nano_usd(usd), estimated }),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallFile {
    name: String,
    success: Option<bool>,
    #[serde(default)]
    turn: u32,
    duration_ms: Option<f64>,
    params: Option<Box<RawValue>>,
    malformed_params: Option<String>,
    params_unknown: Option<String>,
    result: Option<Box<RawValue>>,
    error: Option<String>,
}

impl CallFile {
    fn read((index, call): (usize, &Self)) -> ToolCall {
        let params = match (&call.params, &call.malformed_params, &call.params_unknown) {
            (Some(params), ..) => {
                json(params).map_or(Arguments::None, |params| Arguments::Given(MaybeJson::Json(params)))
            }
            (None, Some(text), _) => Arguments::Given(MaybeJson::Malformed(text.clone())),
            (None, None, Some(why)) => Arguments::Unknown(why.clone()),
            (None, None, None) => Arguments::None,
        };
        let outcome = match (call.success, &call.error) {
            (None, _) => Some(ToolOutcome::NotRun),
            (Some(true), _) => Some(ToolOutcome::Result(call.result.as_deref().and_then(json).map(MaybeJson::Json))),
            (Some(false), Some(error)) => Some(ToolOutcome::Error(Fault::message(error.as_str()))),
            (Some(false), None) => None,
        };
        ToolCall {
            call_id: index.to_string(),
            name: call.name.clone(),
            params,
            outcome,
            duration: call.duration_ms.and_then(seconds),
            turn: call.turn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use crate::report::{Format, whole};

    /// What stands in a result stands in the one that is made from it, and in every other report.
    #[test]
    fn a_result_gives_the_reports_again() {
        for (run, log) in [sample::of_everything(), sample::repeated()] {
            let result = whole(Format::Json, run.clone(), &log, None).expect("a result");
            let (again, stored) = read(std::slice::from_ref(&result)).unwrap_or_else(|why| panic!("{why}\n{result}"));
            assert_eq!(again.exit_code(), run.exit_code());
            let whole_again = |format| whole(format, again.clone(), &stored, None).expect("a report");
            let parse = |text: &str| -> serde_json::Value {
                let mut json: serde_json::Value = serde_json::from_str(text).expect("JSON");
                // How suites compare is told by the reasons.
                if let Some(gate) = json.get_mut("gate").and_then(|gate| gate.as_object_mut()) {
                    gate.remove("comparison");
                    gate.remove("suites");
                }
                json
            };
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
