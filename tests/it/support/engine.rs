//! The project's engines behind the vectors: from what a vector gives to what the library answers.
//!
//! What the library cannot be asked yet is [`Unanswered::NotSupported`], which is a failure, not a skip.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forge::case::CaseRef;
use forge::check::framework::Replies;
use forge::check::{self, Context};
use forge::conversation::{
    Arguments, Exchange, Failure, Fault, JsonText, MaybeJson, ToolCall, ToolMode, ToolOutcome, Transcript,
};
use forge::event::{self, Run, RunEvent, State, SuiteInfo};
use forge::json::Json;
use forge::plan::RunSpec;
use forge::report::console::{self, Line};
use forge::report::{Format, Verdict, whole};
use forge::stats::Tally;
use forge::suite::registry::Registry;
use forge::suite::staleness::staleness;
use forge::suite::template::Data;
use forge::suite::{self, Case, Defaults, Dialect, Mode, Suite};
use forge::verdict::Standing;
use forge::verdict::Totals;
use forge::verdict::baseline::{Baseline, BaselineCase, Setting};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::framework;
use super::vector::{Answer, Vector};

/// Why there is no answer to a vector.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// The library has no such thing so far.
    NotSupported(String),
    /// The vector is not what its kind asks for.
    Invalid(String),
}

impl From<String> for Unanswered {
    fn from(error: String) -> Self {
        Self::Invalid(error)
    }
}

/// What the library answers to a vector.
pub(crate) fn answer(vector: &Vector) -> Result<Answer, Unanswered> {
    match vector.kind().as_str() {
        "contract-case" => contract_case(vector),
        "contract-suite" => contract_suite(vector),
        "contract-file" => contract_file(vector),
        "contract-file-hash" => {
            let text: String = needed(vector, "text")?;
            Ok(fields(&json!({ "evalFileHash": suite::file_hash(text.as_bytes()) }), &[]))
        }
        "contract-staleness" => contract_staleness(vector),
        "contract-baseline" => contract_baseline(vector),
        "framework-standard" => framework::standard(vector),
        "framework-dynamic" => framework::dynamic(vector),
        "framework-suite" => framework::whole_suite(vector),
        "framework-jsonl" => framework::file(vector),
        "framework-duration" => framework::duration(vector),
        "framework-input-source" => framework::source(vector),
        kind => Err(Unanswered::NotSupported(format!("the kind {kind:?}"))),
    }
}

fn contract_staleness(vector: &Vector) -> Result<Answer, Unanswered> {
    let metadata: &RawValue = needed(vector, "metadata")?;
    let metadata = Json::parse(metadata.get()).map_err(|error| error.to_string())?;
    let tool_name: String = needed(vector, "toolName")?;
    let registry: &RawValue = needed(vector, "registry")?;
    let read = Registry::read("registry.json", &|_| Some(registry.get().as_bytes().to_vec()));
    // By way of the file that a client packs, as in a run.
    let (registry, _) = read.map_err(|errors| errors.to_string())?;
    let packed = registry.to_json().into_bytes();
    let read = Registry::read("registry.json", &|_| Some(packed.clone()));
    let (registry, _) = read.map_err(|errors| errors.to_string())?;
    let found = staleness(Some(&metadata), &tool_name, &registry);
    let warnings: Vec<&str> = found.warnings.iter().map(|warning| warning.text.as_str()).collect();
    let answer = json!({
        "stale": found.stale,
        "stalenessWarnings": warnings,
        "metadata": {
            "toolVersion": found.tool_version,
            "descriptionHash": found.description_hash,
            "registrySize": found.registry_size,
        },
    });
    Ok(fields(&answer, &[]))
}

fn contract_baseline(vector: &Vector) -> Result<Answer, Unanswered> {
    #[derive(Deserialize)]
    struct Passed {
        id: String,
        passed: bool,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Earlier {
        run_id: String,
        cases: Vec<Passed>,
    }
    let current: Vec<Passed> = needed(vector, "current")?;
    let Some(earlier) = vector.given::<Option<Earlier>>("baseline")?.flatten() else {
        return Ok(fields(&json!({ "baselineRunId": null, "regressions": [], "newPasses": [] }), &[]));
    };
    let baseline = Baseline {
        run_id: earlier.run_id,
        tool_name: String::new(),
        tier: None,
        setting: Setting::default(),
        cases: earlier
            .cases
            .into_iter()
            .map(|case| BaselineCase { id: case.id, passed: Some(case.passed), tally: Tally::default() })
            .collect(),
    };
    let standing = |passed| if passed { Standing::Passed } else { Standing::Failed };
    let current = current.iter().map(|case| (case.id.as_str(), standing(case.passed)));
    let compared = baseline.compare(current, |_| false, &Setting::default());
    let answer = json!({
        "baselineRunId": compared.baseline_run_id,
        "regressions": compared.regressions,
        "newPasses": compared.new_passes,
    });
    Ok(fields(&answer, &[]))
}

fn contract_case(vector: &Vector) -> Result<Answer, Unanswered> {
    let case: &RawValue = needed(vector, "case")?;
    let tier: Option<String> = vector.given("tier")?;
    let path = format!("vector.{}.json", tier.as_deref().unwrap_or("golden"));
    let suite = match parse(&path, &format!("[{}]", case.get()))? {
        Ok(suite) => suite,
        Err(refused) => return Ok(Answer::Refused(refused)),
    };
    let recorded = Recorded { response: vector.given("response")?, failure: vector.given("failure")? };
    let routing_only = vector.given::<String>("toolExecution")?.as_deref() == Some("routing-only");
    let live_mode = if routing_only { ToolMode::RoutingOnly } else { ToolMode::Live };
    let strict = vector.given("strict")?.unwrap_or(false);
    let recorded: BTreeMap<String, Recorded> = suite.cases.iter().map(|case| case.id.clone()).zip([recorded]).collect();
    let measured = Measured { tokens: vector.given("estimatedTokens")?, cost_usd: vector.given("estimatedCostUsd")? };
    let judged = judge(&suite, &recorded, &data(vector)?, measured, live_mode, strict)?;
    let mut answer = judged.cases.into_iter().next().ok_or("the file holds no case".to_owned())?;
    answer.insert(
        "agentCalled".to_owned(),
        Value::Bool(suite.load_all().any(|case| case.is_ok_and(|case| !case.messages.is_empty()))),
    );
    Ok(Answer::Fields { fields: answer, load_warnings: warnings(&suite) })
}

fn contract_suite(vector: &Vector) -> Result<Answer, Unanswered> {
    let cases: &RawValue = needed(vector, "cases")?;
    let suite = match parse("vector.golden.json", cases.get())? {
        Ok(suite) => suite,
        Err(refused) => return Ok(Answer::Refused(refused)),
    };
    let recorded: BTreeMap<String, Recorded> = needed(vector, "recorded")?;
    let strict = vector.given("strict")?.unwrap_or(false);
    let judged = judge(&suite, &recorded, &data(vector)?, Measured::default(), ToolMode::Live, strict)?;
    let answer = json!({ "summary": judged.summary, "cases": judged.cases, "consoleTotals": judged.console_totals });
    Ok(fields(&answer, &warnings(&suite)))
}

fn contract_file(vector: &Vector) -> Result<Answer, Unanswered> {
    let text: String = needed(vector, "text")?;
    Ok(match parse("vector.golden.json", &text)? {
        Ok(suite) => {
            let metadata = suite.metadata.as_ref().map_or("null".to_owned(), forge::json::Json::stringify);
            let metadata: Value = serde_json::from_str(&metadata).map_err(|error| format!("metadata: {error}"))?;
            let ids: Vec<&str> = suite.cases.iter().map(|case| case.id.as_str()).collect();
            fields(&json!({ "metadata": metadata, "caseIds": ids }), &warnings(&suite))
        }
        Err(refused) => Answer::Refused(refused),
    })
}

/// Reads a suite. A file that is refused only because something in it is not supported yet is refused for the wrong
/// reason, whatever a vector expects.
fn parse(path: &str, text: &str) -> Result<Result<Suite, String>, Unanswered> {
    match suite::parse(path, text.as_bytes(), &Defaults::default()) {
        Ok(suite) => Ok(Ok(suite)),
        Err(errors) if errors.0.iter().all(|finding| finding.message.contains("supported by this version")) => {
            Err(Unanswered::NotSupported(errors.to_string()))
        }
        Err(errors) => Ok(Err(errors.to_string())),
    }
}

/// What template tokens stand for, byte for byte as the vector has it.
fn data(vector: &Vector) -> Result<Data, Unanswered> {
    let read = |key: &str| -> Result<Option<Json>, String> {
        let text = vector.given.get(key).map(|value| value.get()).filter(|text| *text != "null");
        text.map(Json::parse).transpose().map_err(|error| format!("{key}: {error}"))
    };
    Ok(Data { seed: read("seed")?, snapshot: read("snapshot")? })
}

/// What somebody else measured or estimated of a case.
#[derive(Debug, Clone, Copy, Default)]
struct Measured {
    tokens: Option<u64>,
    cost_usd: Option<f64>,
}

pub(crate) fn needed<'a, T: Deserialize<'a>>(vector: &'a Vector, key: &str) -> Result<T, Unanswered> {
    vector.given(key)?.ok_or_else(|| Unanswered::Invalid(format!("given.{key} is missing")))
}

pub(crate) fn fields(object: &Value, load_warnings: &[String]) -> Answer {
    Answer::Fields { fields: object.as_object().cloned().unwrap_or_default(), load_warnings: load_warnings.to_vec() }
}

pub(crate) fn warnings(suite: &Suite) -> Vec<String> {
    suite.findings().map(ToString::to_string).collect()
}

/// What was recorded of one case.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recorded {
    pub(crate) response: Option<Response>,
    pub(crate) failure: Option<RecordedFailure>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Response {
    #[serde(rename = "response")]
    text: String,
    tool_calls: Vec<Record>,
    duration_ms: Box<RawValue>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Record {
    name: String,
    success: bool,
    duration_ms: Box<RawValue>,
    params: Option<Box<RawValue>>,
    result: Option<Box<RawValue>>,
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RecordedFailure {
    kind: String,
    #[serde(default)]
    message: String,
    duration_ms: Option<Box<RawValue>>,
}

impl Recorded {
    pub(crate) fn exchange(&self) -> Result<Exchange, String> {
        let (transcript, failure) = match (&self.response, &self.failure) {
            (Some(response), None) => (response.transcript()?, None),
            (None, Some(failure)) => {
                let duration = failure.duration_ms.as_deref().map(milliseconds).transpose()?.unwrap_or_default();
                let failure = match failure.kind.as_str() {
                    "timeout" => Failure::Timeout,
                    _ => Failure::Agent(failure.message.clone()),
                };
                (Transcript { duration, ..Transcript::default() }, Some(failure))
            }
            _ => return Err("one of response and failure is needed".to_owned()),
        };
        Ok(Exchange { transcript, failure, ..Exchange::default() })
    }
}

impl Response {
    fn transcript(&self) -> Result<Transcript, String> {
        let tool_calls =
            self.tool_calls.iter().enumerate().map(|(index, record)| record.call(index)).collect::<Result<_, _>>()?;
        let duration = milliseconds(&self.duration_ms)?;
        Ok(Transcript { response: self.text.clone(), tool_calls, duration, ..Transcript::default() })
    }
}

impl Record {
    fn call(&self, index: usize) -> Result<ToolCall, String> {
        let payload = |raw: &Option<Box<RawValue>>| -> Result<Option<MaybeJson>, String> {
            let text = raw.as_deref().map(|raw| JsonText::new(raw.get())).transpose();
            text.map(|text| text.map(MaybeJson::Json)).map_err(|error| format!("{}: {error}", self.name))
        };
        Ok(ToolCall {
            call_id: index.to_string(),
            name: self.name.clone(),
            params: payload(&self.params)?.map_or(Arguments::None, Arguments::Given),
            outcome: Some(if self.success {
                ToolOutcome::Result(payload(&self.result)?)
            } else {
                ToolOutcome::Error(Fault::message(self.error.clone().unwrap_or_default()))
            }),
            duration: Some(milliseconds(&self.duration_ms)?),
            turn: 1,
        })
    }
}

/// A number of milliseconds as written; `str::parse` rounds correctly, which `serde_json` does not promise.
fn milliseconds(raw: &RawValue) -> Result<Duration, String> {
    let millis: f64 = raw.get().parse().map_err(|error| format!("durationMs: {}: {error}", raw.get()))?;
    Duration::try_from_secs_f64(millis / 1000.0).map_err(|error| format!("durationMs: {millis}: {error}"))
}

/// What the report says of a suite.
struct Judged {
    summary: Value,
    cases: Vec<Map<String, Value>>,
    console_totals: String,
}

/// Judges the cases of a suite as the engine does, and takes the answer out of the report.
fn judge(
    suite: &Suite,
    recorded: &BTreeMap<String, Recorded>,
    data: &Data,
    measured: Measured,
    live_mode: ToolMode,
    strict: bool,
) -> Result<Judged, Unanswered> {
    let Measured { tokens, cost_usd } = measured;
    let replies = Replies::new();
    let context = Context {
        dialect: Dialect::Contract,
        timeout: None,
        replies: &replies,
        strict,
        all_assertions: false,
        tool_mode: live_mode,
        schemas: None,
        check_arguments: false,
        data,
        tokens,
        cost_usd,
        replayed: false,
    };
    let path: Arc<str> = suite.path.as_str().into();
    let mut log = Vec::new();
    for case in suite.load_all() {
        let case = &*case.map_err(|error| error.to_string())?;
        let case_ref = CaseRef { suite: Arc::clone(&path), case_id: case.id.as_str().into(), repeat: 1, attempt: 1 };
        let result = judge_case(case, recorded.get(&case.id), context)?;
        let labels = forge::suite::Labels::default();
        log.push(event(&log, &case_ref, event::Payload::CasePlanned { name: case.description.clone(), labels }));
        log.push(event(&log, &case_ref, event::Payload::CaseFinished(Box::new(result))));
    }
    let lines: Vec<Line> = log.chunks(2).filter_map(|pair| Verdict::of(&pair[0], &pair[1])).map(Line::of).collect();
    let run = run_of(suite, strict);
    let report = whole(Format::Json, run, &log, None).map_err(|error| error.to_string())?;
    let mut report: Value = serde_json::from_str(&report).map_err(|error| format!("the report: {error}"))?;
    let cases = report["cases"].as_array().into_iter().flatten().filter_map(Value::as_object).cloned().collect();
    Ok(Judged {
        summary: report["summary"].take(),
        cases,
        console_totals: console::totals(&lines.iter().collect::<Vec<_>>()),
    })
}

fn judge_case(
    case: &Case,
    recorded: Option<&Recorded>,
    context: Context<'_>,
) -> Result<forge::verdict::CaseResult, Unanswered> {
    if case.messages.is_empty() {
        return Ok(check::no_input());
    }
    let recorded = recorded.ok_or_else(|| format!("nothing is recorded for the case {:?}", case.id))?;
    let tool_mode = match &case.mode {
        Mode::Stubbed { .. } => ToolMode::Stub,
        Mode::Single | Mode::Dynamic(_) | Mode::Test(_) => context.tool_mode,
    };
    Ok(check::judge(case, recorded.exchange()?, &Context { tool_mode, ..context }))
}

fn event(log: &[RunEvent], case: &CaseRef, payload: event::Payload) -> RunEvent {
    let at = jiff::Timestamp::UNIX_EPOCH;
    RunEvent { sequence: log.len() as u64 + 1, at, case: Some(case.clone()), turn: 0, payload }
}

/// A run of just this suite; reports want to know about it.
fn run_of(suite: &Suite, strict: bool) -> Run {
    let info = SuiteInfo {
        path: suite.path.clone(),
        tool_name: suite.tool_name.clone(),
        tier: suite.tier,
        eval_file_hash: suite.file_hash.clone(),
        cases: u32::try_from(suite.cases.len()).unwrap_or(u32::MAX),
        warnings: warnings(suite),
        staleness: None,
        comparison: None,
    };
    let spec = RunSpec { strict, ..RunSpec::new("agent", vec![suite.path.clone()]) };
    Run {
        run_id: "run".to_owned(),
        spec: Arc::new(spec),
        state: State::Passed,
        totals: Totals::default(),
        created_at: jiff::Timestamp::UNIX_EPOCH,
        finished_at: None,
        last_sequence: 0,
        error: None,
        warnings: Vec::new(),
        agent: None,
        agent_endpoint: String::new(),
        paused: false,
        concurrency: None,
        gate: None,
        suites: vec![info],
    }
}
