//! The stored answers of a suite, which `snapshot` assertions compare with: a JSON file beside the suite, written by
//! `--update-snapshots` and read by people in reviews.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use super::error::SuiteErrors;
use super::{Suite, of_file, parse_json};
use crate::json::{Json, Value, write_string};

/// The answers by case id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answers(pub BTreeMap<String, Arc<str>>);

impl Answers {
    /// Reads the file.
    ///
    /// # Errors
    /// When it is not what [`Answers::write`] writes.
    pub fn read(path: &str, bytes: &[u8]) -> Result<Self, SuiteErrors> {
        let json = parse_json(path, bytes, Json::parse_file)?;
        let refuse = |line: u32, message: String| {
            let hint = "take it away and run with --update-snapshots to store the answers anew";
            of_file(path, line, message, Some(hint.to_owned()))
        };
        let Some(Json { value: Value::Object(members), .. }) = json.get("answers") else {
            return Err(refuse(json.line, "must be an object with `answers`, an object of texts".to_owned()));
        };
        let mut answers = BTreeMap::new();
        for (id, answer) in members {
            let text = answer.as_str();
            let text =
                text.ok_or_else(|| refuse(answer.line, format!("{id:?} must be a text, not {}", answer.kind())))?;
            answers.insert(id.clone(), Arc::from(text));
        }
        Ok(Self(answers))
    }

    /// The text of the file: sorted by id, an answer a line, so that a change shows in a review as what it is.
    #[must_use]
    pub fn write(&self) -> String {
        let mut out = String::from("{\n  \"answers\": {");
        for (index, (id, answer)) in self.0.iter().enumerate() {
            out.push_str(if index > 0 { ",\n    " } else { "\n    " });
            write_string(id, &mut out);
            out.push_str(": ");
            write_string(answer, &mut out);
        }
        let _ = writeln!(out, "\n  }}\n}}");
        out
    }

    /// What the file is called whose suite is called `path`.
    #[must_use]
    pub fn file_of(path: &str) -> String {
        format!("{}.snapshots.json", path.strip_suffix(".jsonl").unwrap_or(path))
    }
}

impl Suite {
    /// The ids of the cases whose answers are compared with stored ones.
    pub fn snapshot_cases(&self) -> impl Iterator<Item = &str> {
        self.cases.iter().filter(|case| case.has_snapshot).map(|case| case.id.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let pairs = [("b", "two\n\"lines\""), ("a", ""), ("ü", "\u{1b}[0m")];
        let answers = Answers(pairs.into_iter().map(|(id, text)| (id.to_owned(), Arc::from(text))).collect());
        assert_eq!(Answers::read("x", answers.write().as_bytes()), Ok(answers));
        assert_eq!(Answers::read("x", Answers::default().write().as_bytes()), Ok(Answers::default()));
        for (text, why) in
            [("{}", "must be an object with `answers`"), ("{\"answers\": {\"a\": 1}}", "\"a\" must be a text")]
        {
            let errors = Answers::read("x", text.as_bytes()).expect_err(text);
            assert!(errors.to_string().contains(why), "{errors}");
        }
    }
}
