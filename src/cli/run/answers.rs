//! Stores the answers that `snapshot` assertions compare with: `--update-snapshots`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::super::inputs::Home;
use crate::case::CaseRef;
use crate::cli::{CliError, note};
use crate::suite::Suite;
use crate::suite::answers::Answers;
use crate::verdict::{CaseResult, Outcome};

/// The answers of a run, as far as they may be stored.
#[derive(Debug, Default)]
pub(super) struct Answered {
    /// By suite and case: the answer, `None` of cases that did not pass.
    answers: HashMap<(String, String), Option<Arc<str>>>,
}

impl Answered {
    /// Takes the verdict on a case. Of repetitions the first counts: they are of one case, and one answer is stored.
    pub(super) fn take(&mut self, case: &CaseRef, result: &CaseResult) {
        if case.repeat > 1 || result.outcome == Outcome::Skipped {
            return;
        }
        let answer = (result.outcome == Outcome::Passed).then(|| Arc::from(result.transcript.response.as_str()));
        self.answers.insert((case.suite.to_string(), case.case_id.to_string()), answer);
    }

    /// Writes the files. The answers of cases that were not run, or did not pass, stay as they are; those of cases that
    /// are gone go.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(super) fn store(&self, homes: &[Home], suites: &[Suite], quiet: bool) -> Result<(), CliError> {
        for home in homes {
            let Some(suite) = suites.iter().find(|suite| suite.path == home.suite) else { continue };
            let mut fresh = BTreeMap::new();
            let (mut new, mut changed, mut same, mut not_passed) = (0, 0, 0, 0);
            for id in suite.snapshot_cases() {
                let before = home.answers.0.get(id);
                let now = self.answers.get(&(home.suite.clone(), id.to_owned()));
                let kept = match (before, now) {
                    (None, Some(Some(now))) => {
                        new += 1;
                        Some(now)
                    }
                    (Some(before), Some(Some(now))) if before != now => {
                        changed += 1;
                        Some(now)
                    }
                    (before, now) => {
                        not_passed += usize::from(matches!(now, Some(None)));
                        same += usize::from(before.is_some());
                        before
                    }
                };
                fresh.extend(kept.map(|answer| (id.to_owned(), Arc::clone(answer))));
            }
            let removed = home.answers.0.keys().filter(|id| !fresh.contains_key(*id)).count();
            let answers = Answers(fresh);
            if answers != home.answers {
                super::write_whole(&home.file, &answers.write())?;
            }
            if !quiet {
                let file = home.file.display();
                note(&format!("{file}: {new} answers new, {changed} changed, {same} as before, {removed} removed"));
                if not_passed > 0 {
                    note(&format!("⚠ {file}: {not_passed} not stored, because their cases did not pass"));
                }
            }
        }
        Ok(())
    }
}
