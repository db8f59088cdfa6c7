//! The `EvalSuiteResult` of the Eval Runner Contract as JSON, written case by case.
//!
//! Keys beyond those of the contract: on a suite and its cases `stale`; on a suite `suite` (its path, which is its name
//! in everything that knows suites), `warnings`, `agentId` (the name under which the agent was asked for), `agent`
//! (what it says about itself), `partial` (only some cases were selected), `labels` of the run, `finishedAt`,
//! `traceParent` and `traceTemplate` (what it hangs below in somebody's trace, and what links to traces are made of),
//! `newCases`, `vanishedCases`, `notJudged` (passed then, and has no verdict now), `baselineDifferences` (what else was
//! not the same then), `exitCode`, `repeats` (what `--runs` says about the agent: rates, intervals, pass@k, pass^k,
//! stability) and `gate` (of the whole run); in its summary `flaky`, `errored`, `notRun` and `skipped` (left out as
//! asked); on a case `difficulty`, `bugRef`, `createdAt` and `tags` as the file has them, and `outcome`, `cause`,
//! `blame`, `assertion`, `warning`, `warnings`, `attempts`, `earlierAttempts`, `flaky`, `repeat`, `assertions`,
//! `messages` (what it sends), `usage`, `toolCalls`, `response`, `totalTurns`, `traceId`, `spanId`, `traceUrl`, and of
//! a dialogue `turns` and `checkpoints`. `passed` is false, and a case counts as failed in the summary, also where it
//! could not be judged, but not where it was not run.

use super::outline::{Outline, Position};
use super::repeats::Repeated;
use super::shape::case::Case;
use super::shape::{Head, Tail};
use super::{Report, Unwritable, Verdict, Written};
use crate::text::printable_json;

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
        let repeats = repeats.as_ref().map(Repeated::of);
        let tail = Tail::of(&outline.run, outline.info(part), outline.parts[part].totals, repeats);
        let tail = serde_json::to_string_pretty(&tail).map_err(Unwritable::of)?;
        Ok(format!("\n  ],{}", printable_json(tail.strip_prefix('{').unwrap_or(&tail))))
    }

    fn end(&mut self, outline: &Outline) -> Written {
        Ok(if Self::is_list(outline) { "\n]\n}\n".to_owned() } else { "\n".to_owned() })
    }
}
