//! Reports: a run's log → bytes.
//!
//! Cases stand in the order of their files whatever order they ended in, and everything that an agent or a suite wrote
//! is treated as hostile: see [`printable`].

pub mod console;
pub mod suite_result;

use std::collections::HashMap;
use std::sync::Arc;

use crate::event::{CaseRef, Payload, RunEvent};
use crate::suite::Labels;
use crate::verdict::CaseResult;

/// The cases of a run with their verdicts, in the order of the plan. Fed with the events of a log, in any part of it.
#[derive(Debug, Default)]
pub struct Verdicts {
    cases: Vec<Entry>,
    /// Position in `cases` by suite and case id.
    positions: HashMap<(Arc<str>, Arc<str>), usize>,
}

#[derive(Debug)]
struct Entry {
    planned: Arc<RunEvent>,
    finished: Option<Arc<RunEvent>>,
}

/// One case that has a verdict.
#[derive(Debug, Clone, Copy)]
pub struct Verdict<'a> {
    /// The case, and which attempt the verdict is about.
    pub case: &'a CaseRef,
    /// What the case is about.
    pub name: &'a str,
    /// What its author noted beside it.
    pub labels: &'a Labels,
    /// The verdict.
    pub result: &'a CaseResult,
}

impl Verdicts {
    /// Takes an event; those that are no verdicts are ignored.
    pub fn take(&mut self, event: &Arc<RunEvent>) {
        let Some(case) = &event.case else { return };
        let key = (Arc::clone(&case.suite), Arc::clone(&case.case_id));
        match &event.payload {
            Payload::CasePlanned { .. } => {
                self.positions.insert(key, self.cases.len());
                self.cases.push(Entry { planned: Arc::clone(event), finished: None });
            }
            Payload::CaseFinished(_) => {
                if let Some(entry) = self.positions.get(&key).and_then(|position| self.cases.get_mut(*position)) {
                    entry.finished = Some(Arc::clone(event));
                }
            }
            _ => {}
        }
    }

    /// The verdicts on the cases of one suite, in file order.
    pub fn of_suite<'a>(&'a self, suite: &'a str) -> impl Iterator<Item = Verdict<'a>> + 'a {
        self.all().filter(move |verdict| &*verdict.case.suite == suite)
    }

    /// All verdicts, in the order of the plan.
    pub fn all(&self) -> impl Iterator<Item = Verdict<'_>> {
        (0..self.cases.len()).filter_map(|position| self.get(position))
    }

    /// Number of planned cases.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cases.len()
    }

    /// Whether no case was planned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cases.is_empty()
    }

    /// The verdict on the case at a position of the plan, if there is one.
    #[must_use]
    pub fn get(&self, position: usize) -> Option<Verdict<'_>> {
        let entry = self.cases.get(position)?;
        let event = entry.finished.as_deref()?;
        match (&entry.planned.payload, &event.payload) {
            (Payload::CasePlanned { name, labels }, Payload::CaseFinished(result)) => {
                Some(Verdict { case: event.case.as_ref()?, name, labels, result })
            }
            _ => None,
        }
    }
}

/// Somebody else's text, safe to show on a terminal: control characters and those that turn the direction of writing
/// are written as escapes.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                out.extend(c.escape_unicode());
            }
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}
