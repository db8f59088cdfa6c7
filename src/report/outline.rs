//! What a report has to know before its first case: the run, and where its log holds what.
//!
//! A log is in the order in which things happened, a report in the order of the files. So the log is read twice: once
//! for this outline, which keeps a few words of each case, and then event by event as the report gets on. Only one case
//! at a time is held whole.

use std::collections::HashMap;
use std::sync::Arc;

use crate::case::case_label;
use crate::event::{Payload, Run, RunEvent, SuiteInfo};
use crate::stats::{Repeats, Tally};
use crate::verdict::{Outcome, Totals};

/// The outline of a report: the suites that it shows, with their cases in the order of the files.
#[derive(Debug, Clone)]
pub struct Outline {
    /// The run, which is over.
    pub run: Run,
    /// The suites that are shown.
    pub parts: Vec<Part>,
}

/// One suite of a report.
#[derive(Debug, Clone)]
pub struct Part {
    /// Position of the suite in the run.
    pub suite: usize,
    /// Sums over its cases.
    pub totals: Totals,
    /// Those that have a verdict, in the order of the file.
    pub cases: Vec<Entry>,
}

/// One case of a report.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Id of the case.
    pub case_id: Arc<str>,
    /// Which repetition, from 1.
    pub repeat: u32,
    /// What came of it.
    pub outcome: Outcome,
    /// What it says about the agent.
    pub tally: Tally,
    /// Number of the event with what its file says about it.
    pub planned: u64,
    /// Number of the event with the verdict.
    pub finished: u64,
}

impl Entry {
    /// What people call it.
    #[must_use]
    pub fn label(&self) -> String {
        case_label(&self.case_id, self.repeat)
    }
}

impl Outline {
    /// What the log says about a suite that is shown.
    #[must_use]
    pub fn info(&self, part: usize) -> &SuiteInfo {
        &self.run.suites[self.parts[part].suite]
    }

    /// What the repetitions of a part say. `None`: each case was to run once.
    #[must_use]
    pub fn repeats(&self, part: usize) -> Option<Repeats> {
        if self.run.spec.repeats < 2 {
            return None;
        }
        let mut repeats = Repeats::default();
        for entry in &self.parts[part].cases {
            // Those of a case stand together.
            match repeats.cases.last_mut().filter(|(id, _)| **id == *entry.case_id) {
                Some((_, tally)) => tally.add(entry.tally),
                None => repeats.cases.push((entry.case_id.to_string(), entry.tally)),
            }
        }
        Some(repeats)
    }

    /// Whether the report is about some of the suites of its run only.
    #[must_use]
    pub fn is_part(&self) -> bool {
        self.parts.len() < self.run.suites.len()
    }

    /// The outline of a report on one of the suites alone, by its position in the run.
    #[must_use]
    pub fn only(&self, suite: usize) -> Self {
        let parts = self.parts.iter().filter(|part| part.suite == suite).cloned().collect();
        Self { run: self.run.clone(), parts }
    }

    /// What is known of the case at a place.
    #[must_use]
    pub fn entry(&self, place: Position) -> &Entry {
        &self.parts[place.part].cases[place.case]
    }

    /// Number of the cases that stand before a part.
    #[must_use]
    pub fn cases_before(&self, part: usize) -> usize {
        self.parts[..part].iter().map(|part| part.cases.len()).sum()
    }

    /// Sums over everything that is shown.
    #[must_use]
    pub fn totals(&self) -> Totals {
        match &self.parts[..] {
            [part] if self.is_part() => part.totals,
            _ => self.run.totals,
        }
    }
}

/// Makes an outline of a log, which it is told event by event from the first one on.
#[derive(Debug)]
pub struct Outliner {
    outline: Outline,
    /// Position in `parts` by path.
    parts: HashMap<String, usize>,
    /// Case of a part by its id and repetition.
    cases: HashMap<(usize, Arc<str>, u32), usize>,
}

impl Outliner {
    /// Begins the outline of a report on all suites of a run.
    #[must_use]
    pub fn new(run: Run) -> Self {
        let (mut parts, mut positions) = (Vec::new(), HashMap::new());
        for (suite, info) in run.suites.iter().enumerate() {
            positions.insert(info.path.clone(), parts.len());
            let totals = Totals { total: info.cases, ..Totals::default() };
            parts.push(Part { suite, totals, cases: Vec::new() });
        }
        Self { outline: Outline { run, parts }, parts: positions, cases: HashMap::new() }
    }

    /// Takes the next event.
    pub fn take(&mut self, event: &RunEvent) {
        let Some(case) = &event.case else { return };
        let is_planned = matches!(event.payload, Payload::CasePlanned { .. });
        if !is_planned && !matches!(event.payload, Payload::CaseFinished(_)) {
            return;
        }
        let Some(part) = self.parts.get(&*case.suite).copied() else { return };
        let Part { cases, totals, .. } = &mut self.outline.parts[part];
        let key = (part, Arc::clone(&case.case_id), case.repeat);
        if is_planned {
            self.cases.insert(key, cases.len());
            cases.push(Entry {
                case_id: Arc::clone(&case.case_id),
                repeat: case.repeat,
                outcome: Outcome::Skipped,
                tally: Tally::default(),
                planned: event.sequence,
                finished: 0,
            });
        } else if let Payload::CaseFinished(result) = &event.payload
            && let Some(entry) = self.cases.get(&key).and_then(|position| cases.get_mut(*position))
        {
            entry.outcome = result.outcome;
            entry.tally = result.tally();
            entry.finished = event.sequence;
            totals.add(result);
        }
    }

    /// The outline; cases without a verdict are not in it.
    #[must_use]
    pub fn finish(mut self) -> Outline {
        for part in &mut self.outline.parts {
            part.cases.retain(|entry| entry.finished > 0);
        }
        self.outline
    }
}

/// Where a case stands in a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Its part.
    pub part: usize,
    /// Its place there, from 0.
    pub case: usize,
    /// Its place among all cases of the report, from 0.
    pub overall: usize,
}

/// What is written next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// What stands before everything.
    Head,
    /// What stands before the cases of a part.
    Part(usize),
    /// A case.
    Case(Position),
    /// What stands behind the cases of a part.
    PartEnd(usize),
    /// What stands behind everything.
    End,
}

impl Step {
    /// The step after this one.
    #[must_use]
    pub fn next(self, outline: &Outline) -> Option<Self> {
        let part_or_end = |part: usize| if part < outline.parts.len() { Self::Part(part) } else { Self::End };
        let case_or_end = |place: Position| {
            if place.case < outline.parts[place.part].cases.len() {
                Self::Case(place)
            } else {
                Self::PartEnd(place.part)
            }
        };
        match self {
            Self::Head => Some(part_or_end(0)),
            Self::Part(part) => Some(case_or_end(Position { part, case: 0, overall: outline.cases_before(part) })),
            Self::Case(Position { part, case, overall }) => {
                Some(case_or_end(Position { part, case: case + 1, overall: overall + 1 }))
            }
            Self::PartEnd(part) => Some(part_or_end(part + 1)),
            Self::End => None,
        }
    }
}
