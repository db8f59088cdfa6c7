//! The cases of a suite: what is always at hand of them, and the rest, which of a large file is read again when it
//! is needed.

use std::io;
use std::sync::Arc;

use super::answers::Answers;
use super::claim::{Claim, ClaimKind, Stored};
use super::error::{Finding, SuiteErrors};
use super::script::ScriptRef;
use super::{Case, Labels, Mode, Suite, framework};
use crate::conversation::{Blob, Content, Part, Source};

/// A case as far as it is needed to choose and to name it.
#[derive(Debug, Clone)]
pub struct Head {
    /// Id, unique in its file.
    pub id: String,
    /// Line of the file on which the case starts.
    pub line: u32,
    /// What the case is about, for people; may be empty.
    pub description: String,
    /// What its author noted beside it.
    pub labels: Labels,
    /// Ids of the agents that play the user in the case, or judge it.
    pub parties: Vec<String>,
    /// The functions of scripts that judge it, stand before and after it, or are it.
    pub scripts: Vec<ScriptRef>,
    /// Paths of the files that it sends, from the folder of the suite.
    pub files: Vec<String>,
    /// Addresses that it sends and that may have been meant as paths of files: they have no scheme.
    pub paths_as_addresses: Vec<String>,
    /// Whether the answer is compared with a stored one.
    pub has_snapshot: bool,
    /// Whether anything is asserted.
    pub is_checked: bool,
    body: Body,
}

#[derive(Debug, Clone)]
enum Body {
    Held(Arc<Case>),
    /// Where the text of the case stands in that of the suite.
    Stored {
        start: u64,
        bytes: usize,
    },
}

/// What a suite knows besides its own text, and its cases need.
#[derive(Debug, Clone, Default)]
pub struct Extras {
    /// The content of files, by path from the folder of the suite.
    files: std::collections::HashMap<String, Content>,
    answers: Comparison,
}

/// What answers are compared with.
#[derive(Debug, Clone, Default)]
pub enum Comparison {
    /// Nothing is stored.
    #[default]
    Nothing,
    /// With what is stored.
    Stored(Answers),
    /// They are going to be stored anew.
    Renewed,
}

/// Why a case cannot be read again.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("the text of the case cannot be read again: {0}")]
    Io(#[from] io::Error),
    /// The file is not what it was.
    #[error("the text of the case is not what it was: {0}")]
    Changed(SuiteErrors),
}

impl Head {
    pub(super) fn new(case: Case, place: Option<(u64, usize)>) -> Self {
        let checkpoints = match &case.mode {
            Mode::Dynamic(dialogue) => dialogue.checkpoints.as_slice(),
            Mode::Single | Mode::Stubbed { .. } | Mode::Test(_) => &[],
        };
        let (simulator, test) = match &case.mode {
            Mode::Dynamic(dialogue) => (Some(dialogue.simulator.agent.clone()), None),
            Mode::Test(test) => (None, Some(test.clone())),
            Mode::Single | Mode::Stubbed { .. } => (None, None),
        };
        let claims = || case.claims.iter().chain(checkpoints.iter().flat_map(|checkpoint| &checkpoint.claims));
        let validators = claims().filter_map(|claim| match &claim.kind {
            ClaimKind::Agent { agent, .. } => Some(agent.clone()),
            _ => None,
        });
        let judges = claims().filter_map(|claim| match &claim.kind {
            ClaimKind::Script { script, .. } => Some(ScriptRef { script: script.clone(), function: None }),
            _ => None,
        });
        let hooks = [&case.hooks.before, &case.hooks.after].into_iter().flatten().cloned();
        let is_test = test.is_some();
        let compares = |claim: &Claim| matches!(claim.kind, ClaimKind::Snapshot { .. });
        Self {
            id: case.id.clone(),
            line: case.line,
            description: case.description.clone(),
            labels: case.labels.clone(),
            parties: simulator.into_iter().chain(validators).collect(),
            scripts: judges.chain(hooks).chain(test).collect(),
            files: files_of(&case).map(str::to_owned).collect(),
            paths_as_addresses: paths_as_addresses(&case).map(str::to_owned).collect(),
            has_snapshot: case.claims.iter().any(compares),
            is_checked: is_test
                || claims().next().is_some()
                || !case.assertions.iter().all(super::assertion::Assertion::is_empty),
            body: match place {
                None => Body::Held(Arc::new(case)),
                Some((start, bytes)) => Body::Stored { start, bytes },
            },
        }
    }

    /// The case, if it need not be read again.
    #[must_use]
    pub fn held(&self) -> Option<&Arc<Case>> {
        match &self.body {
            Body::Held(case) => Some(case),
            Body::Stored { .. } => None,
        }
    }
}

fn paths_as_addresses(case: &Case) -> impl Iterator<Item = &str> {
    let parts = case.messages.iter().flat_map(|message| &message.parts);
    parts.filter_map(|part| match part {
        Part::Blob(Blob { source: Source::Uri(text), .. }) if !has_scheme(text) => Some(text.as_str()),
        _ => None,
    })
}

/// Whether an address begins as addresses do, with a scheme such as `https:` or `data:`.
fn has_scheme(address: &str) -> bool {
    let scheme = address.split_once(':').map(|(scheme, _)| scheme).unwrap_or_default();
    let is_part = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    // One letter is a drive of Windows.
    scheme.len() > 1 && scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(is_part)
}

fn files_of(case: &Case) -> impl Iterator<Item = &str> {
    let parts = case.messages.iter().flat_map(|message| &message.parts);
    parts.filter_map(|part| match part {
        Part::Blob(Blob { source: Source::File(path), .. }) => Some(path.as_str()),
        _ => None,
    })
}

impl Suite {
    /// The whole case at a position, with the files that it sends and the answer that is stored for it. Of a large
    /// file it is read from where it stands, which may wait for a disk.
    ///
    /// # Errors
    /// When it cannot be read again.
    pub fn load(&self, position: usize) -> Result<Arc<Case>, LoadError> {
        let head = &self.cases[position];
        let case = match &head.body {
            Body::Held(case) => Arc::clone(case),
            Body::Stored { start, bytes } => Arc::new(self.read_again(head.line, *start, *bytes)?),
        };
        if head.files.is_empty() && !head.has_snapshot {
            return Ok(case);
        }
        let mut case = Arc::unwrap_or_clone(case);
        self.extras.add_to(&mut case);
        Ok(Arc::new(case))
    }

    fn read_again(&self, line: u32, start: u64, bytes: usize) -> Result<Case, LoadError> {
        let text = self.text.as_ref().ok_or(io::ErrorKind::NotFound).map_err(io::Error::from)?;
        framework::read_case(&self.path, &text.read(start, bytes)?, line, &self.defaults).map_err(LoadError::Changed)
    }

    /// All cases, one after the other.
    pub fn load_all(&self) -> impl Iterator<Item = Result<Arc<Case>, LoadError>> + '_ {
        (0..self.cases.len()).map(|position| self.load(position))
    }

    /// Takes the content of the files that the cases send.
    ///
    /// # Errors
    /// The files that `look_up` does not know.
    pub fn attach(&mut self, look_up: &dyn Fn(&str) -> Option<Content>) -> Result<(), SuiteErrors> {
        let mut errors = Vec::new();
        for head in &self.cases {
            for file in &head.files {
                if self.extras.files.contains_key(file) {
                    continue;
                }
                match look_up(&Self::file_beside(&self.path, file)) {
                    Some(content) => drop(self.extras.files.insert(file.clone(), content)),
                    None => errors.push(Finding {
                        file: self.path.clone(),
                        line: head.line,
                        case: Some(head.id.clone()),
                        field: None,
                        message: format!("the bundle does not hold the file {file:?} that the case sends"),
                        hint: None,
                    }),
                }
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(SuiteErrors(errors)) }
    }

    /// Says what the answers of cases are compared with.
    pub fn compare_with(&mut self, answers: Comparison) {
        self.extras.answers = answers;
    }
}

impl Extras {
    fn add_to(&self, case: &mut Case) {
        for part in case.messages.iter_mut().flat_map(|message| &mut message.parts) {
            let Part::Blob(blob) = part else { continue };
            let Source::File(file) = &blob.source else { continue };
            if let Some(content) = self.files.get(file) {
                blob.source = Source::Content(content.clone());
            }
        }
        for claim in &mut case.claims {
            let ClaimKind::Snapshot { stored, .. } = &mut claim.kind else { continue };
            *stored = match &self.answers {
                Comparison::Nothing => Stored::Missing,
                Comparison::Renewed => Stored::Renewed,
                Comparison::Stored(answers) => match answers.0.get(&case.id) {
                    Some(answer) => Stored::Answer(Arc::clone(answer)),
                    None => Stored::Missing,
                },
            };
        }
    }
}
