//! Names for the cases of a run. Ids are unique in a file only, so that a name begins with the suite.
//!
//! [`CaseName`] is a case, [`CaseKey`] is one repetition of it, and [`CaseRef`] one attempt at that. Clones share
//! their texts.

use std::sync::Arc;

/// A case of a suite.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CaseName {
    /// Path of the suite file.
    pub suite: Arc<str>,
    /// Id of the case there.
    pub case_id: Arc<str>,
}

/// A repetition of a case: what a run executes, and gives one verdict.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CaseKey {
    /// Path of the suite file.
    pub suite: Arc<str>,
    /// Id of the case there.
    pub case_id: Arc<str>,
    /// Which repetition of the case, from 1.
    pub repeat: u32,
}

/// An attempt at a repetition of a case: what calls, events and spans belong to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CaseRef {
    /// Path of the suite file.
    pub suite: Arc<str>,
    /// Id of the case there.
    pub case_id: Arc<str>,
    /// Which repetition of the case, from 1.
    pub repeat: u32,
    /// Which attempt this is, from 1.
    pub attempt: u32,
}

impl CaseKey {
    /// The case, whatever the repetition.
    #[must_use]
    pub fn name(&self) -> CaseName {
        CaseName { suite: Arc::clone(&self.suite), case_id: Arc::clone(&self.case_id) }
    }

    /// One of the attempts at it, from 1.
    #[must_use]
    pub fn attempt(self, attempt: u32) -> CaseRef {
        let Self { suite, case_id, repeat } = self;
        CaseRef { suite, case_id, repeat, attempt }
    }
}

impl CaseRef {
    /// The case, whatever the repetition.
    #[must_use]
    pub fn name(&self) -> CaseName {
        CaseName { suite: Arc::clone(&self.suite), case_id: Arc::clone(&self.case_id) }
    }

    /// The repetition, whatever the attempt.
    #[must_use]
    pub fn key(&self) -> CaseKey {
        CaseKey { suite: Arc::clone(&self.suite), case_id: Arc::clone(&self.case_id), repeat: self.repeat }
    }

    /// What people call it: its id, and the repetition from the second on.
    #[must_use]
    pub fn label(&self) -> String {
        case_label(&self.case_id, self.repeat)
    }
}

/// What people call a case: its id, and the repetition from the second on.
#[must_use]
pub fn case_label(case_id: &str, repeat: u32) -> String {
    if repeat > 1 { format!("{case_id} #{repeat}") } else { case_id.to_owned() }
}
