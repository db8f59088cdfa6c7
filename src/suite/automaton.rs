//! Patterns of linear time that can be stopped.
//!
//! Linear in the text is not fast: at each byte, a large pattern may ask for as much work as it has states, and on a
//! text of some hundred kilobytes that takes minutes. The `regex` crate has no way to stop a search. So its lazy
//! automaton is stepped here, byte by byte, with a look at the CPU clock of the thread every so often.
//!
//! Only whether there is a match is asked for. That takes one pass forwards, and no way back to where the match begins.

use std::time::Duration;

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson::{NFA, WhichCaptures};
use regex_automata::{Input, MatchKind};
use regex_syntax::hir::Hir;

use super::pattern::CPU_LIMIT;
use crate::limits::SUITE_VALUES;
use crate::work::{cpu_time, is_over};

/// Memory for the states of one search, in bytes. What does not fit is forgotten and worked out again. An automaton of
/// which not even a few states fit takes more.
const SEARCH_BYTES: usize = 2 << 20;

/// A search looks at the clock whenever the bytes it read, times the size of its automaton, come to this much. It is
/// work of some milliseconds at most.
const UNWATCHED: usize = 16 << 20;

/// Memory that a pool of patterns may take, in bytes, until no more are compiled for it.
const MAX_POOL_BYTES: usize = 64 << 20;

/// A compiled pattern.
#[derive(Debug)]
pub(crate) struct Automaton {
    dfa: DFA,
    /// Memory that it takes, that of a search left out.
    bytes: usize,
    /// Bytes of text from one look at the clock to the next.
    stride: usize,
}

/// The states that searches with one pattern have worked out. Worth keeping where many short texts are searched.
#[derive(Debug)]
pub(crate) struct Memory(Cache);

impl Memory {
    /// Its size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.memory_usage()
    }
}

/// When a search has to end, on the CPU clock of the thread that made it.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Duration);

impl Deadline {
    /// [`CPU_LIMIT`] from now.
    #[must_use]
    pub fn from_now() -> Self {
        Self(cpu_time().saturating_add(CPU_LIMIT))
    }

    /// Whether it is over, or the work that it belongs to.
    #[must_use]
    pub fn has_passed(&self) -> bool {
        cpu_time() > self.0 || is_over()
    }
}

/// A search was stopped at its deadline.
#[derive(Debug)]
pub(crate) struct Stopped;

impl Automaton {
    /// Compiles a pattern; `None`: it would take more than `most` bytes. Word boundaries must be ASCII's.
    pub(crate) fn new(hir: &Hir, most: usize) -> Option<Self> {
        let config = NFA::config().which_captures(WhichCaptures::None).nfa_size_limit(Some(most));
        let nfa = NFA::compiler().configure(config).build_from_hir(hir).ok()?;
        let bytes = nfa.memory_usage() + size_of::<Self>();
        // All matches, not the leftmost: one that is no match, see below, must not keep the others from being found.
        let config = DFA::config()
            .match_kind(MatchKind::All)
            .cache_capacity(SEARCH_BYTES)
            .skip_cache_capacity_check(true)
            .minimum_cache_clear_count(None);
        let dfa = DFA::builder().configure(config).build_from_nfa(nfa).ok()?;
        Some(Self { dfa, bytes, stride: (UNWATCHED / bytes.max(1)).clamp(8, 64 << 10) })
    }

    /// Memory that it takes, in bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it fits some part of the text. `memory` is of searches with this very automaton, or nothing yet.
    pub(crate) fn is_match(
        &self,
        memory: &mut Option<Memory>,
        text: &str,
        deadline: &Deadline,
    ) -> Result<bool, Stopped> {
        let cache = &mut memory.get_or_insert_with(|| Memory(self.dfa.create_cache())).0;
        // The errors are those of automata that may give up, and of characters that they may not know. This one knows
        // all, and gives up for nothing but time.
        let mut state = self.dfa.start_state_forward(cache, &Input::new(text)).map_err(|_| Stopped)?;
        for (number, part) in text.as_bytes().chunks(self.stride).enumerate() {
            if number > 0 && deadline.has_passed() {
                return Err(Stopped);
            }
            for (offset, byte) in part.iter().enumerate() {
                state = self.dfa.next_state(cache, state, *byte).map_err(|_| Stopped)?;
                if state.is_tagged() {
                    // A state says that there is a match before the byte that led to it. One that ends inside a
                    // character is empty, and no place inside a character is one.
                    if state.is_match() && text.is_char_boundary(number * self.stride + offset) {
                        return Ok(true);
                    }
                    if state.is_dead() {
                        return Ok(false);
                    }
                }
            }
        }
        let end = self.dfa.next_eoi_state(cache, state).map_err(|_| Stopped)?;
        Ok(end.is_match())
    }
}

/// What suites that are kept together may take: [`SUITE_VALUES`] values of JSON, and 64 MiB for patterns. Each
/// pattern takes what it has in memory. One that is refused for its size takes what it was allowed, because that is
/// what was spent on it.
///
/// It bounds the time, too: compiling that much takes some seconds.
#[derive(Debug)]
pub struct Pool {
    left: usize,
    values: usize,
}

impl Default for Pool {
    fn default() -> Self {
        Self::of(MAX_POOL_BYTES)
    }
}

impl Pool {
    /// A pool of `bytes` bytes.
    pub(crate) const fn of(bytes: usize) -> Self {
        Self { left: bytes, values: SUITE_VALUES }
    }

    /// Takes `bytes` bytes; if fewer are left, nothing is left for anybody.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or(0);
        left.is_some()
    }

    /// Takes `values` values of JSON; false: fewer are left.
    pub(super) fn take_values(&mut self, values: usize) -> bool {
        let left = self.values.checked_sub(values);
        self.values = left.unwrap_or(0);
        left.is_some()
    }

    /// Compiles a pattern of at most `most` bytes; it takes `extra` beside those.
    pub(crate) fn compile(&mut self, hir: &Hir, most: usize, extra: usize) -> Result<Automaton, Refused> {
        let most_here = most.min(self.left);
        let compiled = Automaton::new(hir, most_here);
        let taken = compiled.as_ref().map_or(most_here, |automaton| automaton.bytes);
        match compiled {
            Some(automaton) if self.take(taken.saturating_add(extra)) => Ok(automaton),
            None if most_here == most => {
                self.take(taken);
                Err(Refused::TooLarge)
            }
            _ => {
                self.left = 0;
                Err(Refused::Full)
            }
        }
    }
}

/// Why a pattern is not compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It takes too much by itself.
    TooLarge,
    /// Those before it took everything.
    Full,
}
