//! What is wrong with a suite file, and what is odd about it.
//!
//! A file is read to its end whatever is found, so that its author sees everything at once; each finding names the
//! place as exactly as it is known.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One finding in a suite file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Path of the file as the user knows it.
    pub file: String,
    /// Line, counted from 1; 0 when it is about the whole file.
    pub line: u32,
    /// Id of the case, if it is about one.
    pub case: Option<String>,
    /// The key it is about, such as `expect.responseContainsAny[0]`.
    pub field: Option<String>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ", line {}", self.line)?;
        }
        if let Some(case) = &self.case {
            write!(f, ", case {case:?}")?;
        }
        if let Some(field) = &self.field {
            write!(f, ", {field}")?;
        }
        write!(f, ": {}", self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}

/// All errors of the suite files of a run; there is at least one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct SuiteErrors(pub Vec<Finding>);

/// The known name that `written` was probably meant to be: one that differs in letter case only, or else one that is at
/// most two edits away (insert, delete or replace one letter).
#[must_use]
pub fn nearest<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    if let Some(name) = known.iter().find(|name| name.eq_ignore_ascii_case(written)) {
        return Some(name);
    }
    known.iter().map(|name| (edits(written, name), *name)).filter(|(n, _)| *n <= 2).min().map(|(_, name)| name)
}

/// `did you mean NAME?` for [`nearest`], if there is one.
#[must_use]
pub fn did_you_mean(written: &str, known: &[&str]) -> Option<String> {
    nearest(written, known).map(|name| format!("did you mean {name:?}?"))
}

/// A hint for a name that is not known: the one that was probably meant, else all there are.
#[must_use]
pub fn meant_or_all(written: &str, known: &[&str]) -> Option<String> {
    did_you_mean(written, known).or_else(|| Some(format!("there are {}", known.join(", "))))
}

/// Edit distance in characters, where it may be one of a near miss. A hostile name may be very long.
fn edits(a: &str, b: &str) -> usize {
    let is_near = a.chars().count().abs_diff(b.chars().count()) <= 2;
    if is_near { strsim::levenshtein(a, b) } else { usize::MAX }
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn near_misses() {
        let known = ["responseContains", "responseContainsAny", "maxLatencyMs", "minLength", "maxLength"];
        for (written, meant) in [
            ("responseContain", Some("responseContains")),
            ("RESPONSECONTAINS", Some("responseContains")),
            ("maxLatency", Some("maxLatencyMs")),
            ("maxLat", None),
            ("minLenght", Some("minLength")),
            ("", None),
            ("comment", None),
        ] {
            assert_eq!(nearest(written, &known), meant, "{written}");
        }
    }
}
