//! What the console shows of the cases of a run: a line for each, kept instead of its whole verdict.

use std::collections::HashMap;
use std::sync::Arc;

use crate::case::{CaseKey, CaseName};
use crate::event::{Payload, RunEvent};
use crate::report::{Shown, Tracing, Verdict};
use crate::stats::{Repeats, Tally};
use crate::suite::Labels;

/// The lines of a run, in the order of its files whatever order its cases ended in. Fed with the events of its log.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Path of the suite of each case.
    cases: Vec<(Arc<str>, Line)>,
    /// Cases without a verdict: place in `cases`.
    open: HashMap<CaseKey, usize>,
    /// What the repetitions say of cases that have several: place in `repeats`.
    repeated: HashMap<CaseName, usize>,
    repeats: Vec<(Arc<str>, String, Tally)>,
    tracing: Option<Tracing>,
    /// The suites whose answers are shown.
    answers: Vec<String>,
}

/// A case whose verdict came.
pub(super) struct Closed<'a> {
    /// What is shown of it.
    pub(super) shown: &'a Shown,
    /// What it is about.
    pub(super) name: String,
    /// What its author noted beside it.
    pub(super) labels: Labels,
    /// How its trace is found.
    pub(super) tracing: Option<&'a Tracing>,
}

#[derive(Debug)]
enum Line {
    /// What its file says about it.
    Open(String, Labels),
    Shown(Shown),
}

impl Lines {
    /// Lines that show, for these suites, the answer too: somebody asked for nothing else.
    pub(super) fn with_answers_of(suites: Vec<String>) -> Self {
        Self { answers: suites, ..Self::default() }
    }

    /// Takes the next event, and gives the case that ended with it.
    pub(super) fn take(&mut self, event: &RunEvent) -> Option<Closed<'_>> {
        if let Payload::RunStarted(run) = &event.payload {
            self.tracing = Some(Tracing::of(run));
        }
        let case = event.case.as_ref()?;
        match &event.payload {
            Payload::CasePlanned { name, labels } => {
                // Cases of a suite stand together: its path is held once.
                let suite = self.cases.last().map(|(suite, _)| suite).filter(|suite| **suite == case.suite);
                let suite = Arc::clone(suite.unwrap_or(&case.suite));
                if case.repeat == 2 {
                    let name = CaseName { suite: Arc::clone(&suite), ..case.name() };
                    self.repeated.insert(name, self.repeats.len());
                    self.repeats.push((Arc::clone(&suite), case.case_id.to_string(), Tally::default()));
                }
                let key = CaseKey { suite: Arc::clone(&suite), ..case.key() };
                self.open.insert(key, self.cases.len());
                self.cases.push((suite, Line::Open(name.clone(), labels.clone())));
            }
            Payload::CaseFinished(result) => {
                let repeated = self.repeated.get(&case.name());
                if let Some((.., tally)) = repeated.and_then(|place| self.repeats.get_mut(*place)) {
                    tally.add(result.tally());
                }
                let place = self.open.remove(&case.key()).and_then(|place| self.cases.get_mut(place));
                if let Some((_, line)) = place
                    && let Line::Open(name, labels) = line
                {
                    let (name, labels) = (std::mem::take(name), std::mem::take(labels));
                    let tracing = self.tracing.as_ref();
                    let verdict = Verdict { case, name: &name, labels: &labels, result, tracing };
                    let shows_answer = self.answers.iter().any(|suite| **suite == *case.suite);
                    *line = Line::Shown(Shown::of(verdict, shows_answer));
                    if let Line::Shown(shown) = line {
                        return Some(Closed { shown, name, labels, tracing });
                    }
                }
            }
            _ => {}
        }
        None
    }

    /// The lines of a suite, in file order. None: nothing is known of it.
    pub(super) fn of_suite(&self, path: &str) -> Vec<&Shown> {
        let shown = self.cases.iter().filter_map(|(suite, line)| match line {
            Line::Shown(shown) if **suite == *path => Some(shown),
            Line::Shown(_) | Line::Open(..) => None,
        });
        shown.collect()
    }

    /// What the repetitions of a suite say, if it has some.
    pub(super) fn repeats_of(&self, path: &str) -> Repeats {
        let cases = self.repeats.iter().filter(|(suite, ..)| **suite == *path);
        Repeats { cases: cases.map(|(_, case, tally)| (case.clone(), *tally)).collect() }
    }
}
