//! `tests/known_gaps.txt`: what is known not to work yet.
//!
//! What is listed is still run: its passing is news, and the list has to say so.

/// The list of known gaps.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    /// Line and name.
    names: Vec<(usize, String)>,
    /// What is wrong with the list.
    pub(crate) problems: Vec<String>,
}

/// What a name in the list may begin with, over all runners.
const PREFIXES: &[&str] = &["contract/", "framework/", "scenario/", "report/"];

impl Gaps {
    /// Reads the list: one name a line, `#` starts a comment.
    pub(crate) fn parse(text: &str) -> Self {
        let mut gaps = Self::default();
        for (index, line) in text.lines().enumerate() {
            let name = line.split('#').next().unwrap_or_default().trim();
            if name.is_empty() {
                continue;
            }
            if !PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
                let expected = PREFIXES.join(", ");
                gaps.problems.push(format!("line {}: {name}: does not begin with one of {expected}", index + 1));
            } else if gaps.contains(name) {
                gaps.problems.push(format!("line {}: {name}: listed twice", index + 1));
            } else {
                gaps.names.push((index + 1, name.to_owned()));
            }
        }
        gaps
    }

    /// Reads the project's list.
    pub(crate) fn of_project() -> Self {
        match std::fs::read_to_string(super::project("tests/known_gaps.txt")) {
            Ok(text) => Self::parse(&text),
            Err(error) => Self { names: Vec::new(), problems: vec![format!("cannot be read: {error}")] },
        }
    }

    /// Whether `name` is listed.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.names.iter().any(|(_, listed)| listed == name)
    }

    /// Line and name of what begins with one of `prefixes`.
    pub(crate) fn beginning<'a>(&'a self, prefixes: &'a [&str]) -> impl Iterator<Item = (usize, &'a str)> {
        self.names
            .iter()
            .filter(|(_, name)| prefixes.iter().any(|prefix| name.starts_with(prefix)))
            .map(|(line, name)| (*line, name.as_str()))
    }
}
