//! What the console shows of the cases of a run: a line for each, kept instead of its whole verdict.

use std::collections::HashMap;
use std::sync::Arc;

use crate::event::{Payload, Run, RunEvent};
use crate::report::{Shown, Verdict};
use crate::suite::Labels;

/// The lines of a run, in the order of its files whatever order its cases ended in. Fed with the events of its log.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Path of the suite of each case.
    cases: Vec<(Arc<str>, Line)>,
    /// Cases without a verdict: place in `cases` by suite, id and repetition.
    open: HashMap<(Arc<str>, Arc<str>, u32), usize>,
}

#[derive(Debug)]
enum Line {
    /// What its file says about it.
    Open(String, Labels),
    Shown(Shown),
}

impl Lines {
    /// Takes the next event.
    pub(super) fn take(&mut self, event: &RunEvent) {
        let Some(case) = &event.case else { return };
        match &event.payload {
            Payload::CasePlanned { name, labels } => {
                // Cases of a suite stand together: its path is held once.
                let suite = self.cases.last().map(|(suite, _)| suite).filter(|suite| **suite == case.suite);
                let suite = Arc::clone(suite.unwrap_or(&case.suite));
                let key = (Arc::clone(&suite), Arc::clone(&case.case_id), case.repeat);
                self.open.insert(key, self.cases.len());
                self.cases.push((suite, Line::Open(name.clone(), labels.clone())));
            }
            Payload::CaseFinished(result) => {
                let key = (Arc::clone(&case.suite), Arc::clone(&case.case_id), case.repeat);
                let place = self.open.remove(&key).and_then(|place| self.cases.get_mut(place));
                if let Some((_, line)) = place
                    && let Line::Open(name, labels) = line
                {
                    *line = Line::Shown(Shown::of(Verdict { case, name, labels, result }));
                }
            }
            _ => {}
        }
    }

    /// The lines of each suite of the run, which is over. A suite of which nothing is known has none.
    pub(super) fn by_suite(self, run: &Run) -> Vec<Vec<Shown>> {
        let places: HashMap<&str, usize> =
            (0..).zip(&run.suites).map(|(at, suite)| (suite.path.as_str(), at)).collect();
        let mut lines: Vec<Vec<Shown>> = run.suites.iter().map(|_| Vec::new()).collect();
        for (suite, line) in self.cases {
            if let (Some(place), Line::Shown(shown)) = (places.get(&*suite), line) {
                lines[*place].push(shown);
            }
        }
        lines
    }
}
