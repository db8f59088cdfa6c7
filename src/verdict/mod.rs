//! Verdicts: what came of an assertion, of a case, of a run; what caused it and who is to blame.
//!
//! The lists are closed. "Wrong answer" and "could not be judged" are kept apart to the end: a failed case is a fact
//! about the agent, an errored one is trouble that somebody has to look into, and trouble outranks failure.

pub mod baseline;
pub mod gate;

use std::time::Duration;

use crate::conversation::{JsonText, Message, Transcript, Usage};
use crate::stats::Tally;

/// What came of an assertion, or of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It holds.
    Passed,
    /// It does not hold.
    Failed,
    /// It was not looked at, and there is a reason.
    Skipped,
    /// It could not be evaluated.
    Errored,
}

impl Outcome {
    /// The word used in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Errored => "errored",
        }
    }

    /// The outcome of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Passed, Self::Failed, Self::Skipped, Self::Errored].into_iter().find(|outcome| outcome.name() == name)
    }
}

/// Why a case did not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// An assertion does not hold, or could not be evaluated.
    Assertion,
    /// The time of the case ran out.
    Timeout,
    /// The agent failed, or its connection was lost.
    AgentError,
    /// A dialogue used up its turns.
    MaxTurns,
    /// A dialogue ended with checkpoints open.
    MissingCheckpoints,
    /// The agent broke a rule of the protocol.
    ProtocolViolation,
    /// A strict run, and no assertion was evaluated.
    NothingChecked,
    /// The agent never accepted the call.
    Unreachable,
    /// The simulated user failed.
    SimulatorError,
    /// A validator failed.
    ValidatorError,
    /// A script failed.
    ScriptError,
    /// A checkpoint could not be evaluated.
    CheckpointFailed,
    /// The case has nothing to send.
    NoInput,
    /// Somebody cancelled the run.
    Cancelled,
    /// The case needs something that the agent does not offer.
    Unsupported,
    /// The values of snapshot tokens could not be had, so no case of the run was run.
    SnapshotError,
}

impl Cause {
    /// The word used in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Assertion => "assertion",
            Self::Timeout => "timeout",
            Self::AgentError => "agent_error",
            Self::MaxTurns => "max_turns",
            Self::MissingCheckpoints => "missing_checkpoints",
            Self::ProtocolViolation => "protocol_violation",
            Self::NothingChecked => "nothing_checked",
            Self::Unreachable => "unreachable",
            Self::SimulatorError => "simulator_error",
            Self::ValidatorError => "validator_error",
            Self::ScriptError => "script_error",
            Self::CheckpointFailed => "checkpoint_failed",
            Self::NoInput => "no_input",
            Self::Cancelled => "cancelled",
            Self::Unsupported => "unsupported",
            Self::SnapshotError => "snapshot_error",
        }
    }

    /// The cause of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.name() == name)
    }

    const ALL: [Self; 16] = [
        Self::Assertion,
        Self::Timeout,
        Self::AgentError,
        Self::MaxTurns,
        Self::MissingCheckpoints,
        Self::ProtocolViolation,
        Self::NothingChecked,
        Self::Unreachable,
        Self::SimulatorError,
        Self::ValidatorError,
        Self::ScriptError,
        Self::CheckpointFailed,
        Self::NoInput,
        Self::Cancelled,
        Self::Unsupported,
        Self::SnapshotError,
    ];
}

/// Who is to blame when a case did not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The agent under test.
    Agent,
    /// The simulated user.
    Simulator,
    /// A validator.
    Validator,
    /// A script.
    Script,
    /// The author of the suite.
    Suite,
    /// The daemon, or the operator who stopped it.
    Daemon,
    /// The connection between daemon and agent.
    Network,
}

impl Blame {
    /// The word used in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Simulator => "simulator",
            Self::Validator => "validator",
            Self::Script => "script",
            Self::Suite => "suite",
            Self::Daemon => "daemon",
            Self::Network => "network",
        }
    }

    /// The party of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|blame| blame.name() == name)
    }

    const ALL: [Self; 7] =
        [Self::Agent, Self::Simulator, Self::Validator, Self::Script, Self::Suite, Self::Daemon, Self::Network];
}

/// What came of one assertion; a list in a suite file counts one for each value, or for each group.
#[derive(Debug, Clone, PartialEq)]
pub struct AssertionResult {
    /// The key in `expect`.
    pub name: String,
    /// What came of it.
    pub outcome: Outcome,
    /// Why it does not hold, was skipped or could not be evaluated; empty when it holds.
    pub reason: String,
    /// What was there in place of what was wanted, for people: the nearest part of the answer, the calls of the
    /// tool, the code points in which two texts differ that look the same. Empty: the reason says it all.
    pub hint: String,
    /// Template tokens in it that lead nowhere, as written.
    pub unresolved_tokens: Vec<String>,
    /// Who is to blame when it did not hold or could not be evaluated; `None`: the agent for the one, the suite for the
    /// other.
    pub blame: Option<Blame>,
    /// The assertion as the file has it, where results repeat it.
    pub written: Option<JsonText>,
    /// What a validator or a script said, where one was asked.
    pub opinion: Option<Opinion>,
}

/// What a validator, over all its votes, or a script said about an answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Opinion {
    /// How well the answer does, from 0 to 1: the mean of the votes that say so. `None`: no vote does.
    pub score: Option<f64>,
    /// The replies as they came, one a vote, in order: JSON text of a `Validator`, or whatever a plain agent said.
    /// Long ones are cut.
    pub replies: Vec<String>,
    /// Votes that were asked for and given.
    pub votes: u32,
    /// Votes of the side that won.
    pub agreeing: u32,
    /// What a script wrote to its console, a line each.
    pub console: Vec<String>,
}

/// One turn of a dialogue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Turn {
    /// Its number, from 1. A turn that was not answered is none of the turns, and has one all the same.
    pub number: u32,
    /// What the user said.
    pub input: String,
    /// What the agent answered.
    pub output: String,
    /// What it said before that, between its tool calls.
    pub commentary: String,
    /// Why the simulated user said that, in its own words; empty: it does not say.
    pub reasoning: String,
}

/// What came of a checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckpointResult {
    /// Its id.
    pub id: String,
    /// The turn in which it was reached, from 1; `None`: it was not.
    pub reached_at_turn: Option<u32>,
    /// Whether the dialogue fails without it.
    pub required: bool,
    /// What came of its assertions when they were looked at last: in the turn in which it was reached, or in the
    /// last one in which it could be. Empty: they were never looked at.
    pub assertions: Vec<AssertionResult>,
}

/// An attempt at a case after which the case was tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// What came of it: it failed, or could not be judged.
    pub outcome: Outcome,
    /// Why.
    pub cause: Option<Cause>,
    /// Who was to blame.
    pub blame: Option<Blame>,
    /// The error text.
    pub error: Option<String>,
    /// How long it took.
    pub duration: Duration,
    /// What it used, as far as it was told.
    pub usage: Option<Usage>,
}

impl Attempt {
    /// What is kept of an attempt beside the verdict of a later one; the log has all of it.
    #[must_use]
    pub fn of(result: &CaseResult) -> Self {
        Self {
            outcome: result.outcome,
            cause: result.cause,
            blame: result.blame,
            error: result.error.clone(),
            duration: result.transcript.duration,
            usage: result.transcript.usage,
        }
    }
}

/// What came of one case. Depends on nothing but the plan and the transcript.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseResult {
    /// The verdict.
    pub outcome: Outcome,
    /// Why it did not pass; `None` when it did.
    pub cause: Option<Cause>,
    /// Who is to blame; `None` when it passed.
    pub blame: Option<Blame>,
    /// The error text of the contract; `None` when the case passed.
    pub error: Option<String>,
    /// What was there in place of what was wanted, or what was waited for when the time was up, for people. `None`:
    /// the error says it all.
    pub hint: Option<String>,
    /// The assertion that failed or could not be evaluated.
    pub failed_assertion: Option<String>,
    /// The warning that the case itself carries: that it checked nothing.
    pub warning: Option<String>,
    /// Protocol warnings and other remarks.
    pub warnings: Vec<String>,
    /// The assertions that were evaluated or skipped, in order.
    pub assertions: Vec<AssertionResult>,
    /// What the agent said and did.
    pub transcript: Transcript,
    /// Calls of the agent that were answered.
    pub total_turns: u32,
    /// The turns of a dialogue that were answered, in order; empty for other cases.
    pub turns: Vec<Turn>,
    /// What came of the checkpoints of a dialogue, in declared order.
    pub checkpoints: Vec<CheckpointResult>,
    /// Number of messages that the case itself sends.
    pub messages_count: u32,
    /// The last of them, as logs [keep](crate::conversation::kept) them. Empty: it is a dialogue, whose turns say
    /// it, it was not sent, or the log is of an earlier version.
    pub messages: Vec<Message>,
    /// The attempts before this one, in order.
    pub earlier: Vec<Attempt>,
    /// What the scripts of the case wrote to their consoles, a line each: its hooks, and itself if it is a test.
    pub console: Vec<String>,
    /// Whether what the agent said and did was recorded in an earlier run.
    pub replayed: bool,
}

/// How a case stands in a comparison of two runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It passed.
    Passed,
    /// It failed.
    Failed,
    /// It has no verdict: it could not be judged, could not be run, or is switched off.
    NotJudged,
    /// It was left out, as the run was asked to: nothing is said of it.
    LeftOut,
}

/// Why a case was [left out](CaseResult::left_out).
pub const LEFT_OUT: &str = "not run: it could not have changed what comes of the gate";

impl CaseResult {
    /// A case that ended before anything was asserted.
    #[must_use]
    pub fn without_assertions(
        outcome: Outcome,
        cause: Cause,
        blame: Blame,
        error: impl Into<String>,
        transcript: Transcript,
    ) -> Self {
        Self {
            outcome,
            cause: Some(cause),
            blame: Some(blame),
            error: Some(error.into()),
            hint: None,
            failed_assertion: None,
            warning: None,
            warnings: Vec::new(),
            assertions: Vec::new(),
            transcript,
            total_turns: 0,
            turns: Vec::new(),
            checkpoints: Vec::new(),
            messages_count: 0,
            messages: Vec::new(),
            earlier: Vec::new(),
            console: Vec::new(),
            replayed: false,
        }
    }

    /// A case that was never started because its run could not begin, or ended first.
    #[must_use]
    pub fn not_run(cause: Cause, blame: Blame, reason: &str) -> Self {
        let error = format!("not run: {reason}");
        Self::without_assertions(Outcome::Skipped, cause, blame, error, Transcript::default())
    }

    /// A case that was not run, or not to its end, because another one did not pass and the run is to fail fast.
    /// That is what was asked for, so it is no trouble.
    #[must_use]
    pub fn passed_over(transcript: Transcript) -> Self {
        let error = "not run: another case did not pass (--fail-fast)";
        let result = Self::without_assertions(Outcome::Skipped, Cause::Cancelled, Blame::Daemon, error, transcript);
        Self { cause: None, blame: None, ..result }
    }

    /// A case that was not run because it could not have changed what comes of the gate. That is no trouble.
    #[must_use]
    pub fn left_out() -> Self {
        let transcript = Transcript::default();
        let result = Self::without_assertions(Outcome::Skipped, Cause::Cancelled, Blame::Daemon, LEFT_OUT, transcript);
        Self { cause: None, blame: None, ..result }
    }

    /// Whether it was [left out](Self::left_out).
    #[must_use]
    pub fn is_left_out(&self) -> bool {
        self.outcome == Outcome::Skipped && self.cause.is_none() && self.error.as_deref() == Some(LEFT_OUT)
    }

    /// How it stands in a comparison with another run.
    #[must_use]
    pub fn standing(&self) -> Standing {
        match self.outcome {
            Outcome::Passed => Standing::Passed,
            Outcome::Failed => Standing::Failed,
            // What the run leaves out says why; what its author switched off need not.
            Outcome::Skipped if self.cause.is_none() && self.error.is_some() => Standing::LeftOut,
            Outcome::Errored | Outcome::Skipped => Standing::NotJudged,
        }
    }

    /// Whether it passed only after it had failed: the agent answers now so, now otherwise. An earlier attempt that
    /// could not be judged says nothing about the agent.
    #[must_use]
    pub fn is_flaky(&self) -> bool {
        self.outcome == Outcome::Passed && self.earlier.iter().any(|attempt| attempt.outcome == Outcome::Failed)
    }

    /// What it says about the agent, as the one execution that it is: what came of the first attempt that was
    /// judged. An attempt that was made because one had failed must not make up for it.
    #[must_use]
    pub fn tally(&self) -> Tally {
        if self.replayed {
            return Tally { uncounted: 1, ..Tally::default() };
        }
        let attempts = self.earlier.iter().map(|attempt| (attempt.outcome, attempt.blame));
        let mut attempts = attempts.chain([(self.outcome, self.blame)]);
        let first = attempts.find_map(|attempt| match attempt {
            (Outcome::Passed, _) => Some(Tally { passed: 1, ..Tally::default() }),
            (Outcome::Failed, Some(Blame::Agent)) => Some(Tally { failed: 1, ..Tally::default() }),
            _ => None,
        });
        first.unwrap_or(Tally { uncounted: 1, ..Tally::default() })
    }

    /// The assertion that keeps the case from passing: the first that failed, else the first that could not be
    /// evaluated. A failed one is a fact, whatever else could not be evaluated.
    #[must_use]
    pub fn bad_assertion(&self) -> Option<&AssertionResult> {
        let first = |outcome| self.assertions.iter().find(|assertion| assertion.outcome == outcome);
        first(Outcome::Failed).or_else(|| first(Outcome::Errored))
    }

    /// Makes what came of an assertion the reason why the case did not pass.
    pub fn blame_assertion(&mut self, bad: AssertionResult) {
        self.outcome = bad.outcome;
        self.cause = Some(match bad.blame.filter(|_| bad.outcome == Outcome::Errored) {
            Some(Blame::Validator) => Cause::ValidatorError,
            Some(Blame::Script) => Cause::ScriptError,
            _ => Cause::Assertion,
        });
        let usual = if bad.outcome == Outcome::Failed { Blame::Agent } else { Blame::Suite };
        self.blame = Some(bad.blame.unwrap_or(usual));
        self.error = Some(format!("{}: {}", bad.name, bad.reason));
        self.hint = Some(bad.hint).filter(|hint| !hint.is_empty());
        self.failed_assertion = Some(bad.name);
    }

    /// Number of assertions that were evaluated, the failing one included.
    #[must_use]
    pub fn assertions_run(&self) -> u32 {
        count(&self.assertions, |outcome| outcome != Outcome::Skipped)
    }

    /// Number of assertions that were skipped.
    #[must_use]
    pub fn assertions_skipped(&self) -> u32 {
        count(&self.assertions, |outcome| outcome == Outcome::Skipped)
    }

    /// Each unresolved token as written, in the order of evaluation, repeats included.
    pub fn skipped_tokens(&self) -> impl Iterator<Item = &str> {
        self.assertions.iter().flat_map(|assertion| assertion.unresolved_tokens.iter().map(String::as_str))
    }
}

fn count(assertions: &[AssertionResult], counts: impl Fn(Outcome) -> bool) -> u32 {
    u32::try_from(assertions.iter().filter(|assertion| counts(assertion.outcome)).count()).unwrap_or(u32::MAX)
}

/// Sums over the cases of a run or suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Cases selected to run.
    pub total: u32,
    /// Cases that passed.
    pub passed: u32,
    /// Cases that failed.
    pub failed: u32,
    /// Cases that could not be judged.
    pub errored: u32,
    /// Cases that were not run because that was asked for: by their author, or by failing fast.
    pub skipped: u32,
    /// Cases that were not run because their run could not begin, or ended first.
    pub not_run: u32,
    /// Cases that passed only after they had failed; they are among those that passed.
    pub flaky: u32,
    /// Assertions that were skipped.
    pub skipped_assertions: u32,
    /// Durations of the cases added up, in whole milliseconds each, as the contract's summary shows it.
    pub duration: Duration,
    /// Tokens that the agent reported.
    pub usage: Usage,
}

impl Totals {
    /// Adds one finished case; `total` is the plan's and stays.
    pub fn add(&mut self, result: &CaseResult) {
        match result.outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Failed => self.failed += 1,
            Outcome::Errored => self.errored += 1,
            Outcome::Skipped if result.cause.is_none() => self.skipped += 1,
            Outcome::Skipped => self.not_run += 1,
        }
        self.flaky += u32::from(result.is_flaky());
        self.skipped_assertions += result.assertions_skipped();
        if result.replayed {
            // It took no time, and nothing was paid for it.
            return;
        }
        // What was tried in vain was paid for, too.
        let earlier = result.earlier.iter().filter_map(|attempt| attempt.usage.as_ref());
        for usage in earlier.chain(&result.transcript.usage) {
            self.usage.add(usage);
        }
        self.duration += Duration::from_millis(whole_millis(result.transcript.duration));
    }

    /// Cases that ended one way or another.
    #[must_use]
    pub const fn finished(&self) -> u32 {
        self.passed + self.failed + self.errored + self.skipped + self.not_run
    }

    /// The exit code that tells the truth about these cases: 3 when any could not be judged or was not run, else 1 when
    /// any failed, else 4 when none was run, else 0.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        if self.errored > 0 || self.finished() < self.total || self.not_run > 0 {
            3
        } else if self.failed > 0 {
            1
        } else if self.passed == 0 {
            4
        } else {
            0
        }
    }
}

/// A duration as reports show it: in milliseconds, rounded to the nearest.
#[must_use]
pub fn whole_millis(duration: Duration) -> u64 {
    u64::try_from((duration.as_micros() + 500) / 1000).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::Totals;

    #[test]
    fn trouble_outranks_failure() {
        let totals = |total, passed, failed, errored, not_run| {
            Totals { total, passed, failed, errored, not_run, ..Totals::default() }.exit_code()
        };
        let skipped = |total, passed, skipped| Totals { total, passed, skipped, ..Totals::default() }.exit_code();
        assert_eq!((skipped(2, 1, 1), skipped(1, 0, 1)), (0, 4), "what was to be left out is no trouble");
        assert_eq!(totals(2, 2, 0, 0, 0), 0);
        assert_eq!(totals(2, 1, 1, 0, 0), 1);
        assert_eq!(totals(2, 0, 1, 1, 0), 3);
        assert_eq!(totals(2, 1, 0, 0, 1), 3);
        assert_eq!(totals(2, 1, 0, 0, 0), 3, "a case without a verdict");
        assert_eq!(totals(0, 0, 0, 0, 0), 4);
    }
}
