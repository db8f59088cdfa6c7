//! Judges apart from the runtime what may take its time: patterns, large answers, many assertions.

use super::shared::Shared;
use crate::conversation::Transcript;
use crate::limits::JUDGING_CPU;
use crate::suite::assertion::Assertion;
use crate::suite::claim::Claim;
use crate::work::{JSON_MEMORY, QUICK_BYTES, Undecided, Work, off_the_runtime};

/// Most steps of all assertions over an answer and its tool calls that are made on a runtime thread.
const QUICK_STEPS: usize = 4 << 20;
/// How many times a text the memory is that a pattern may take for it.
const PATTERN_MEMORY: usize = 32;

/// What judging some assertions may take.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cost {
    is_slow: bool,
    steps: usize,
    bytes: usize,
}

impl Cost {
    /// That of assertions of the contract.
    pub(super) fn of_assertions(assertions: &[Assertion], transcript: &Transcript) -> Self {
        let is_slow = assertions.iter().any(Assertion::is_slow);
        Self::of(is_slow, assertions.iter().map(Assertion::entries).sum(), transcript)
    }

    /// That of assertions of the framework.
    pub(super) fn of_claims(claims: &[Claim], transcript: &Transcript) -> Self {
        Self::of(claims.iter().any(Claim::is_slow), claims.len(), transcript)
    }

    /// That of reading a text as JSON.
    pub(super) const fn of_text(bytes: usize) -> Self {
        Self { is_slow: false, steps: bytes, bytes }
    }

    fn of(is_slow: bool, entries: usize, transcript: &Transcript) -> Self {
        let bytes = transcript.size();
        let size = bytes + 64 * transcript.tool_calls.len();
        Self { is_slow, steps: entries.saturating_mul(size), bytes }
    }

    /// The same, with what else was said.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            is_slow: self.is_slow || other.is_slow,
            steps: self.steps.saturating_add(other.steps),
            bytes: self.bytes.max(other.bytes),
        }
    }

    /// The same, with `bytes` bytes more to look at for each of `entries` assertions.
    pub(super) fn with_more(self, bytes: usize, entries: usize) -> Self {
        let steps = self.steps.saturating_add(bytes.saturating_mul(entries));
        Self { steps, bytes: self.bytes.max(bytes), ..self }
    }

    /// What takes its time whatever is looked at.
    pub(super) const fn slow_if(self, is_slow: bool) -> Self {
        Self { is_slow: self.is_slow || is_slow, ..self }
    }

    /// Bytes of memory, as far as anybody can tell.
    const fn memory(&self) -> usize {
        self.bytes.saturating_mul(if self.is_slow { PATTERN_MEMORY } else { JSON_MEMORY })
    }
}

/// Judges, on a runtime thread only what takes no time.
///
/// # Errors
/// When nothing came of it: the run was cancelled, or the daemon failed.
pub(super) async fn judged<T: Send + 'static>(
    shared: &Shared,
    cost: Cost,
    judge: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Undecided> {
    if !cost.is_slow && cost.bytes <= QUICK_BYTES && cost.steps <= QUICK_STEPS {
        return Ok(judge());
    }
    let work = Work { owner: &shared.run_id, cpu: JUDGING_CPU, memory: cost.memory() };
    off_the_runtime(work, &shared.control.cancel, judge).await
}
