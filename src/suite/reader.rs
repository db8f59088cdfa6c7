//! Collects what is found in a suite file while it is walked.

use std::fmt;

use super::automaton::Pool;
use super::error::{Finding, SuiteErrors, did_you_mean, meant_or_all};
use crate::json::{Json, Value};

/// Errors and warnings of one file, each with its place.
pub(super) struct Reader<'a> {
    file: &'a str,
    /// Id of the case that is being read.
    pub(super) case: Option<String>,
    /// The line that stands in every finding, where a dialect names the line on which a case starts.
    pub(super) line: Option<u32>,
    /// Whether cases may send files from outside the folder of the file.
    pub(super) files_outside: bool,
    /// What the patterns of the file may take.
    pub(super) pool: Pool,
    /// Assertions that cannot be evaluated.
    pub(super) broken: Vec<Finding>,
    pub(super) errors: Vec<Finding>,
    pub(super) warnings: Vec<Finding>,
    /// What can hardly have been meant: a warning, and an error of a strict run.
    pub(super) doubtful: Vec<Finding>,
    /// Errors, warnings, broken assertions and doubtful texts that were too many.
    left_out: [usize; 4],
}

/// Most findings of a kind in one file.
const MAX_FINDINGS: usize = 500;

impl<'a> Reader<'a> {
    pub(super) fn new(file: &'a str) -> Self {
        Self {
            file,
            case: None,
            line: None,
            files_outside: false,
            pool: Pool::default(),
            broken: Vec::new(),
            errors: Vec::new(),
            warnings: Vec::new(),
            doubtful: Vec::new(),
            left_out: [0; 4],
        }
    }

    pub(super) fn finding(&self, line: u32, field: Option<String>, message: String, hint: Option<String>) -> Finding {
        let line = self.line.unwrap_or(line);
        Finding { file: self.file.to_owned(), line, case: self.case.clone(), field, message, hint }
    }

    /// An error that is about no field.
    pub(super) fn push_error(&mut self, line: u32, field: Option<String>, message: String, hint: Option<String>) {
        let finding = self.finding(line, field, message, hint);
        Self::bounded(&mut self.errors, &mut self.left_out[0], finding);
    }

    pub(super) fn error(&mut self, line: u32, field: impl fmt::Display, message: String, hint: Option<String>) {
        self.push_error(line, Some(field.to_string()), message, hint);
    }

    /// What is told of a kind of finding when there are very many: the first of them, and how many more there are.
    fn bounded(findings: &mut Vec<Finding>, left_out: &mut usize, finding: Finding) {
        if findings.len() < MAX_FINDINGS {
            findings.push(finding);
        } else {
            *left_out += 1;
        }
    }

    /// Says how many findings were left out.
    pub(super) fn close(&mut self) {
        (self.case, self.line) = (None, None);
        for (kind, left_out) in std::mem::take(&mut self.left_out).into_iter().enumerate() {
            if left_out > 0 {
                let finding = self.finding(0, None, format!("{left_out} more of this kind are not shown"), None);
                let kinds = [&mut self.errors, &mut self.warnings, &mut self.broken, &mut self.doubtful];
                kinds[kind].push(finding);
            }
        }
    }

    pub(super) fn broken_one(&mut self, line: u32, field: impl fmt::Display, message: String) {
        let finding = self.finding(line, Some(field.to_string()), message, None);
        Self::bounded(&mut self.broken, &mut self.left_out[2], finding);
    }

    pub(super) fn warn(&mut self, line: u32, field: impl fmt::Display, message: &str, hint: Option<String>) {
        let finding = self.finding(line, Some(field.to_string()), message.to_owned(), hint);
        Self::bounded(&mut self.warnings, &mut self.left_out[1], finding);
    }

    /// A warning that is an error of a strict run.
    pub(super) fn doubt(&mut self, line: u32, field: impl fmt::Display, message: String, hint: Option<String>) {
        let finding = self.finding(line, Some(field.to_string()), message, hint);
        Self::bounded(&mut self.doubtful, &mut self.left_out[3], finding);
    }

    /// A text for people, or none; what is no text is left out with a warning, because it changes no verdict.
    pub(super) fn label(&mut self, object: &Json, place: &str, key: &str) -> String {
        match object.get(key).map(|value| (value, &value.value)) {
            None | Some((_, Value::Null)) => String::new(),
            Some((_, Value::String(text))) => text.clone(),
            Some((value, _)) => {
                self.warn(value.line, format_args!("{place}{key}"), "must be a text, ignored", None);
                String::new()
            }
        }
    }

    pub(super) fn warn_unknown(&mut self, object: &Json, prefix: &str, known: &[&str]) {
        for (key, value) in object.members() {
            if !known.contains(&key.as_str()) {
                self.warn(value.line, format_args!("{prefix}{key}"), "unknown key, ignored", did_you_mean(key, known));
            }
        }
    }

    /// The errors, if there are any.
    pub(super) fn refuse(&mut self) -> Result<(), SuiteErrors> {
        if self.errors.is_empty() { Ok(()) } else { Err(SuiteErrors(std::mem::take(&mut self.errors))) }
    }
}

/// Whether an object has no other keys than these; one that it has is an error.
pub(super) fn no_other_keys(
    reader: &mut Reader<'_>,
    place: &dyn fmt::Display,
    object: &Json,
    allowed: &[&str],
    what: &str,
) -> bool {
    let mut is_right = true;
    for (key, value) in object.members().iter().filter(|(key, _)| !allowed.contains(&key.as_str())) {
        let message = format!("{what} has no such key");
        reader.error(value.line, format_args!("{place}.{key}"), message, meant_or_all(key, allowed));
        is_right = false;
    }
    is_right
}

/// A member that is there and not null.
pub(super) fn given<'a>(json: &'a Json, key: &str) -> Option<&'a Json> {
    json.get(key).filter(|value| !matches!(value.value, Value::Null))
}

/// What a value should have been, in words.
pub(super) fn must_be(wanted: &str, value: &Json) -> String {
    format!("must be {wanted}, not {}", value.kind())
}

/// A value in a message: its JSON, or the beginning of it.
pub(super) fn short(value: &Json) -> String {
    const MOST: usize = 100;
    let text = value.stringify();
    match text.char_indices().nth(MOST) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
