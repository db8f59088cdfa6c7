//! The `EvalSuiteResult` of the Eval Runner Contract as JSON, written case by case.
//!
//! Keys beyond those of the contract: on a suite and its cases `stale`; on a suite `suite` (its path, which is its name in everything
//! that knows suites), `warnings`, `agentId` (the name under which the agent was asked for),
//! `agent` (what it says about itself), `partial` (only some cases were selected), `newCases`, `vanishedCases`, `notJudged` (passed then, and has no verdict now), `baselineDifferences` (what else was not the same then), `exitCode`, `repeats` (what `--runs` says about the agent: rates, intervals, pass@k, pass^k, stability) and `gate` (of the whole run); in its summary `flaky`, `errored`, `notRun` and `skipped` (left out as asked);
//! on a case `difficulty`, `bugRef`, `createdAt` and `tags` as the file has them, and `outcome`, `cause`, `blame`, `assertion`, `warning`, `warnings`, `attempts`, `earlierAttempts`, `flaky`, `repeat`, `assertions`, `messages` (what it sends), `usage`, `toolCalls`, `response`,
//! `totalTurns`, `traceId`, `spanId`, `traceUrl`, and of a dialogue `turns` and `checkpoints`. `passed` is false, and a case counts as failed in the summary, also where it could not be judged.

use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;

use super::jsonl::Assertion;
use super::outline::{Outline, Position};
use super::repeats::{Gated, Repeated};
use super::{Report, Unwritable, Verdict, Written};
use crate::conversation::{Arguments, Blob, Cost, MaybeJson, Message, Part, Source, ToolCall, ToolOutcome, Usage};
use crate::event::{Run, SuiteInfo};
use crate::text::printable_json;
use crate::verdict::baseline::Comparison;
use crate::verdict::{Attempt, Blame, Cause, Outcome, Totals, Turn, whole_millis};

/// The result of a run as JSON text: one suite as the contract's object, several as
/// `{"runId", "exitCode", "suites": […]}`.
#[derive(Debug, Clone, Copy)]
pub struct Json;

impl Json {
    fn is_list(outline: &Outline) -> bool {
        outline.parts.len() != 1
    }
}

impl Report for Json {
    fn head(&mut self, outline: &Outline) -> Written {
        if !Self::is_list(outline) {
            return Ok(String::new());
        }
        let id = serde_json::to_string(&outline.run.run_id).map_err(Unwritable::of)?;
        Ok(format!("{{\n\"runId\": {id},\n\"exitCode\": {},\n\"suites\": [\n", outline.run.exit_code()))
    }

    /// The contract's keys in the contract's order, with the long list written as it comes.
    fn part(&mut self, outline: &Outline, part: usize) -> Written {
        let head = Head::of(&outline.run, outline.info(part));
        let head = serde_json::to_string_pretty(&head).map_err(Unwritable::of)?;
        let comma = if part > 0 { ",\n" } else { "" };
        Ok(format!("{comma}{},\n  \"cases\": [", printable_json(head.strip_suffix("\n}").unwrap_or(&head))))
    }

    fn case(&mut self, outline: &Outline, place: Position, verdict: Verdict<'_>) -> Written {
        let case = Case::of(verdict, outline.info(place.part));
        let case = serde_json::to_string_pretty(&case).map_err(Unwritable::of)?;
        let comma = if place.case > 0 { "," } else { "" };
        Ok(format!("{comma}\n    {}", printable_json(&case).replace('\n', "\n    ")))
    }

    fn part_end(&mut self, outline: &Outline, part: usize) -> Written {
        let repeats = outline.repeats(part);
        let tail = Tail {
            repeats: repeats.as_ref().map(Repeated::of),
            ..Tail::of(&outline.run, outline.info(part), outline.parts[part].totals)
        };
        let tail = serde_json::to_string_pretty(&tail).map_err(Unwritable::of)?;
        Ok(format!("\n  ],{}", printable_json(tail.strip_prefix('{').unwrap_or(&tail))))
    }

    fn end(&mut self, outline: &Outline) -> Written {
        Ok(if Self::is_list(outline) { "\n]\n}\n".to_owned() } else { "\n".to_owned() })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Head<'a> {
    run_id: &'a str,
    timestamp: String,
    suite: &'a str,
    tier: &'static str,
    tool_name: &'a str,
    agent_endpoint: &'a str,
    agent_id: &'a str,
    /// Whether only some cases were selected.
    partial: bool,
    /// The run whose recorded answers were judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    replay_of: Option<&'a str>,
    metadata: Metadata<'a>,
    staleness_warnings: Vec<&'a str>,
    stale: bool,
    warnings: Vec<&'a str>,
    agent: Option<Agent<'a>>,
}

/// The current values of what an eval file's metadata records.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    tool_version: Option<&'a str>,
    description_hash: Option<&'a str>,
    registry_size: Option<usize>,
    eval_file_hash: &'a str,
}

#[derive(Serialize)]
struct Agent<'a> {
    id: &'a str,
    name: &'a str,
    version: &'a str,
    model: &'a str,
}

impl<'a> Head<'a> {
    fn of(run: &'a Run, suite: &'a SuiteInfo) -> Self {
        let today = suite.staleness.as_ref();
        Self {
            run_id: &run.run_id,
            timestamp: run.created_at.to_string(),
            suite: &suite.path,
            tier: suite.tier.name(),
            tool_name: &suite.tool_name,
            agent_endpoint: &run.agent_endpoint,
            agent_id: &run.spec.agent_id,
            partial: run.spec.is_selective(),
            replay_of: run.spec.replay.as_ref().map(|replay| replay.run_id.as_str()),
            metadata: Metadata::of(suite),
            staleness_warnings: today
                .iter()
                .flat_map(|today| &today.warnings)
                .map(|warning| warning.text.as_str())
                .collect(),
            stale: today.is_some_and(|today| today.stale),
            warnings: suite.warnings.iter().chain(&run.warnings).map(String::as_str).collect(),
            agent: run.agent.as_ref().map(|card| Agent {
                id: &card.agent_id,
                name: &card.name,
                version: &card.version,
                model: &card.model,
            }),
        }
    }
}

impl<'a> Metadata<'a> {
    fn of(suite: &'a SuiteInfo) -> Self {
        let today = suite.staleness.as_ref();
        Self {
            tool_version: today.and_then(|today| today.tool_version.as_deref()),
            description_hash: today.and_then(|today| today.description_hash.as_deref()),
            registry_size: today.map(|today| today.registry_size),
            eval_file_hash: &suite.eval_file_hash,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tail<'a> {
    summary: Summary,
    baseline_run_id: Option<&'a str>,
    regressions: &'a [String],
    new_passes: &'a [String],
    new_cases: &'a [String],
    vanished_cases: &'a [String],
    not_judged: &'a [String],
    baseline_differences: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    repeats: Option<Repeated<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gate: Option<Gated<'a>>,
    exit_code: u8,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    total_cases: u32,
    passed: u32,
    failed: u32,
    errored: u32,
    not_run: u32,
    skipped: u32,
    skipped_assertions: u32,
    flaky: u32,
    total_duration_ms: u64,
    estimated_cost_usd: Option<f64>,
}

impl<'a> Tail<'a> {
    fn of(run: &'a Run, suite: &'a SuiteInfo, totals: Totals) -> Self {
        let compared = suite.comparison.as_ref();
        let ids =
            |of: fn(&Comparison) -> &Vec<String>| compared.map(|compared| of(compared).as_slice()).unwrap_or_default();
        Self {
            summary: Summary {
                total_cases: totals.total,
                passed: totals.passed,
                failed: totals.total.saturating_sub(totals.passed + totals.skipped),
                errored: totals.errored,
                not_run: totals.not_run,
                skipped: totals.skipped,
                skipped_assertions: totals.skipped_assertions,
                flaky: totals.flaky,
                total_duration_ms: whole_millis(totals.duration),
                estimated_cost_usd: totals.usage.cost.map(Cost::usd),
            },
            baseline_run_id: compared.map(|compared| compared.baseline_run_id.as_str()),
            regressions: ids(|compared| &compared.regressions),
            new_passes: ids(|compared| &compared.new_passes),
            new_cases: ids(|compared| &compared.new_cases),
            vanished_cases: ids(|compared| &compared.vanished_cases),
            not_judged: ids(|compared| &compared.not_judged),
            baseline_differences: ids(|compared| &compared.differences),
            repeats: None,
            gate: run.gate.as_ref().map(Gated::of),
            exit_code: run.exit_code(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Case<'a> {
    id: &'a str,
    description: &'a str,
    passed: bool,
    duration_ms: u64,
    assertions_run: u32,
    assertions_skipped: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
    details: Details<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    difficulty: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bug_ref: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    tags: &'a [String],
    outcome: &'static str,
    cause: Option<&'static str>,
    blame: Option<&'static str>,
    assertion: Option<&'a str>,
    warning: Option<&'a str>,
    warnings: &'a [String],
    stale: bool,
    attempts: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    earlier_attempts: Vec<Earlier<'a>>,
    flaky: bool,
    repeat: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    assertions: Vec<Assertion<'a>>,
    /// What the case itself sends: the last messages, if it has many. Not there: a dialogue, whose turns say it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    messages: Vec<Asked<'a>>,
    total_turns: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    turns: Vec<Said<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    checkpoints: Vec<Checkpoint<'a>>,
    usage: Option<Used>,
    tool_calls: Vec<Call<'a>>,
    response: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    commentary: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    console: &'a [String],
    #[serde(skip_serializing_if = "is_false")]
    replayed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    span_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_url: Option<String>,
}

/// An attempt after which the case was tried again.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Earlier<'a> {
    outcome: &'static str,
    cause: Option<&'static str>,
    blame: Option<&'static str>,
    error: Option<&'a str>,
    duration_ms: u64,
}

impl<'a> Earlier<'a> {
    fn of(attempt: &'a Attempt) -> Self {
        Self {
            outcome: attempt.outcome.name(),
            cause: attempt.cause.map(Cause::name),
            blame: attempt.blame.map(Blame::name),
            error: attempt.error.as_deref(),
            duration_ms: whole_millis(attempt.duration),
        }
    }
}

/// A message that a case sends, as test files write it: its text, or a list of its parts; of files only what they are.
#[derive(Serialize)]
pub(super) struct Asked<'a> {
    role: &'static str,
    content: Content<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(&'a str),
    Parts(Vec<Piece<'a>>),
}

/// A part of a message.
#[derive(Serialize)]
struct Piece<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'a str>,
}

impl<'a> Asked<'a> {
    pub(super) fn of(message: &'a Message) -> Self {
        let content = match message.parts.as_slice() {
            [] => Content::Text(""),
            [Part::Text(text)] => Content::Text(text),
            parts => Content::Parts(parts.iter().map(Piece::of).collect()),
        };
        Self { role: message.role.name(), content }
    }
}

impl<'a> Piece<'a> {
    fn of(part: &'a Part) -> Self {
        let of_text = |kind, text| Self { kind, text: Some(text), name: None, source: None };
        match part {
            Part::Text(text) => of_text("text", text),
            Part::Reasoning(text) => of_text("reasoning", text),
            Part::Data(json) => of_text("data", json.as_str()),
            Part::Blob(Blob { media_type, name, source, .. }) => Self {
                kind: media_type,
                text: None,
                name: Some(name.as_str()).filter(|name| !name.is_empty()),
                source: match source {
                    Source::Uri(uri) => Some(uri),
                    Source::File(_) | Source::Content(_) => None,
                },
            },
        }
    }
}

/// One turn of a dialogue, under keys of one word, which both formats of results have.
#[derive(Serialize)]
pub(super) struct Said<'a> {
    turn: u32,
    input: &'a str,
    output: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    commentary: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reasoning: &'a str,
}

impl<'a> Said<'a> {
    pub(super) fn of(turn: &'a Turn) -> Self {
        let Turn { number, input, output, commentary, reasoning } = turn;
        Self { turn: *number, input, output, commentary, reasoning }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Checkpoint<'a> {
    id: &'a str,
    passed: bool,
    reached_at_turn: Option<u32>,
    required: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    assertions: Vec<Assertion<'a>>,
}

/// What a case used, as far as it was told. `costEstimated` says that the cost comes from a price list.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Used {
    input_tokens: Option<i64>,
    output_tokens: Option<i64>,
    cache_read_tokens: Option<i64>,
    cache_write_tokens: Option<i64>,
    reasoning_tokens: Option<i64>,
    cost_usd: Option<f64>,
    cost_estimated: Option<bool>,
}

impl From<Usage> for Used {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cache_read_tokens: usage.cache_read_tokens,
            cache_write_tokens: usage.cache_write_tokens,
            reasoning_tokens: usage.reasoning_tokens,
            cost_usd: usage.cost.map(Cost::usd),
            cost_estimated: usage.cost.map(|cost| cost.estimated),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details<'a> {
    tools_called: Vec<&'a str>,
    /// In UTF-16 code units, as JavaScript counts.
    response_length: usize,
    skipped_tokens: Vec<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Call<'a> {
    name: &'a str,
    /// Not there: nobody ran it, as the mode wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    success: Option<bool>,
    /// The turn in which it was called; logs of earlier versions do not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    turn: Option<u32>,
    duration_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    malformed_params: Option<&'a str>,
    /// Why nobody knows with what it was called.
    #[serde(skip_serializing_if = "Option::is_none")]
    params_unknown: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

impl<'a> Case<'a> {
    fn of(verdict: Verdict<'a>, suite: &SuiteInfo) -> Self {
        let traced = verdict.traced();
        let result = verdict.result;
        let transcript = &result.transcript;
        Self {
            id: &verdict.case.case_id,
            description: verdict.name,
            passed: result.outcome == Outcome::Passed,
            duration_ms: whole_millis(transcript.duration),
            assertions_run: result.assertions_run(),
            assertions_skipped: result.assertions_skipped(),
            error: result.error.as_deref(),
            hint: result.hint.as_deref(),
            details: Details {
                tools_called: transcript.tool_calls.iter().map(|call| call.name.as_str()).collect(),
                response_length: transcript.response.encode_utf16().count(),
                skipped_tokens: result.skipped_tokens().collect(),
            },
            difficulty: verdict.labels.difficulty.as_deref(),
            bug_ref: verdict.labels.bug_ref.as_deref(),
            created_at: verdict.labels.created_at.as_deref(),
            tags: &verdict.labels.tags,
            outcome: result.outcome.name(),
            cause: result.cause.map(Cause::name),
            blame: result.blame.map(Blame::name),
            assertion: result.failed_assertion.as_deref(),
            warning: result.warning.as_deref(),
            warnings: &result.warnings,
            stale: suite.staleness.as_ref().is_some_and(|today| today.stale),
            attempts: verdict.case.attempt,
            earlier_attempts: result.earlier.iter().map(Earlier::of).collect(),
            flaky: result.is_flaky(),
            repeat: verdict.case.repeat,
            assertions: result.assertions.iter().map(Assertion::of).collect(),
            messages: result.messages.iter().map(Asked::of).collect(),
            total_turns: result.total_turns,
            turns: result.turns.iter().map(Said::of).collect(),
            checkpoints: result
                .checkpoints
                .iter()
                .map(|checkpoint| Checkpoint {
                    id: &checkpoint.id,
                    passed: checkpoint.reached_at_turn.is_some(),
                    reached_at_turn: checkpoint.reached_at_turn,
                    required: checkpoint.required,
                    assertions: checkpoint.assertions.iter().map(Assertion::of).collect(),
                })
                .collect(),
            usage: transcript.usage.map(Used::from),
            tool_calls: transcript.tool_calls.iter().map(Call::of).collect(),
            response: &transcript.response,
            commentary: &transcript.commentary,
            console: &result.console,
            replayed: result.replayed,
            trace_id: traced.as_ref().map(|traced| traced.trace_id.clone()),
            span_id: traced.as_ref().map(|traced| traced.span_id.clone()),
            trace_url: traced.and_then(|traced| traced.url),
        }
    }
}

impl<'a> Call<'a> {
    fn of(call: &'a ToolCall) -> Self {
        let Recorded { name, success, turn, duration_ms, params, malformed_params, params_unknown, result, error } =
            Recorded::of(call);
        Self { name, success, turn, duration_ms, params, malformed_params, params_unknown, result, error }
    }
}

/// A tool call as results tell it; the formats differ in how they write the keys.
pub(super) struct Recorded<'a> {
    pub(super) name: &'a str,
    pub(super) success: Option<bool>,
    pub(super) turn: Option<u32>,
    pub(super) duration_ms: Option<f64>,
    pub(super) params: Option<Box<RawValue>>,
    pub(super) malformed_params: Option<&'a str>,
    pub(super) params_unknown: Option<&'a str>,
    pub(super) result: Option<Box<RawValue>>,
    pub(super) error: Option<&'a str>,
}

impl<'a> Recorded<'a> {
    pub(super) fn of(call: &'a ToolCall) -> Self {
        let (params, malformed_params, params_unknown) = match &call.params {
            Arguments::None => (None, None, None),
            Arguments::Given(MaybeJson::Malformed(text)) => (None, Some(text.as_str()), None),
            Arguments::Given(given @ MaybeJson::Json(_)) => (raw(Some(given)), None, None),
            Arguments::Unknown(why) => (None, None, Some(why.as_str())),
        };
        let (result, error) = match &call.outcome {
            Some(ToolOutcome::Result(result)) => (raw(result.as_ref()), None),
            Some(ToolOutcome::Error(fault)) => (None, Some(fault.message.as_str())),
            Some(ToolOutcome::NotRun) | None => (None, None),
        };
        let duration_ms = call.duration.map(|duration| duration.div_duration_f64(Duration::from_millis(1)));
        let (name, success) = (call.name.as_str(), call.success());
        let turn = Some(call.turn).filter(|turn| *turn > 0);
        Self { name, success, turn, duration_ms, params, malformed_params, params_unknown, result, error }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
pub(super) const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// JSON with every byte as the agent sent it.
fn raw(payload: Option<&MaybeJson>) -> Option<Box<RawValue>> {
    match payload? {
        MaybeJson::Json(text) => RawValue::from_string(text.as_str().to_owned()).ok(),
        MaybeJson::Malformed(_) => None,
    }
}
