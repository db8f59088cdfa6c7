//! Finds the result files of a run in the folder of results.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use uuid::Uuid;

use super::named::{Name, is_suite};

/// Most files that are looked through, newest first.
const MOST_FILES: usize = 1_000;

/// Result files of a folder, newest first.
pub(super) fn newest_first(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == "json") {
            let changed = entry.metadata().and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
            files.push((changed, path));
        }
    }
    files.sort();
    files.into_iter().rev().take(MOST_FILES).map(|(_, path)| path).collect()
}

/// The files of the run that a name means, by the ids in their own names, oldest first. Empty: there are none, or
/// several runs are meant.
pub(super) fn of_run(folder: &Path, name: Name<'_>) -> Vec<PathBuf> {
    let mut runs: Vec<(String, Vec<PathBuf>)> = Vec::new();
    for path in newest_first(folder) {
        let Some(id) = run_of(&path) else { continue };
        match runs.iter_mut().find(|(other, _)| *other == id) {
            Some((_, files)) => files.insert(0, path),
            None => runs.push((id, vec![path])),
        }
    }
    let mut meant = runs.into_iter().filter(|(id, files)| match name {
        Name::Last(_, suite) => suite.is_empty() || files.iter().any(|file| is_of(file, suite)),
        Name::Id(start) => id.starts_with(start),
        Name::Label(..) => false,
    });
    let found = match name {
        Name::Last(back, _) => meant.nth(back),
        Name::Id(_) | Name::Label(..) => meant.next().filter(|_| meant.next().is_none()),
    };
    let (_, mut files) = found.unwrap_or_default();
    if let Name::Last(_, suite) = name {
        files.retain(|file| suite.is_empty() || is_of(file, suite));
    }
    files
}

/// The id of a run in the name of a file, as in `faq.golden.01a2….json`.
pub(super) fn run_of(file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    name.split('.').rev().find(|part| Uuid::parse_str(part).is_ok()).map(str::to_owned)
}

/// Whether the result is of a suite, by the name of the file.
fn is_of(file: &Path, suite: &str) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let suite = suite.rsplit('/').next().unwrap_or(suite);
    let stem = [".jsonl", ".json", ".ts", ".js"].iter().find_map(|ending| suite.strip_suffix(ending)).unwrap_or(suite);
    is_suite(name, stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_the_run_in_their_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let ids = ["01a22c99-7052-75bc-91e5-0cc14000ba9f", "01a22c99-8052-75bc-91e5-0cc14000ba9f"];
        let names = [
            format!("faq.golden.{}.json", ids[0]),
            format!("faq.golden.{}.json", ids[1]),
            format!("b.{}.json", ids[1]),
        ];
        for (second, name) in names.iter().enumerate() {
            let file = std::fs::File::create(folder.path().join(name)).expect("a file");
            file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(second as u64)).expect("a time");
        }
        std::fs::write(folder.path().join("other.json"), "{}").expect("a file");
        let found = |name: Name<'_>| -> Vec<usize> {
            let files = of_run(folder.path(), name);
            let place = |file: &PathBuf| names.iter().position(|name| *file == folder.path().join(name)).expect("ours");
            files.iter().map(place).collect()
        };
        assert_eq!(found(Name::Last(0, "")), [1, 2]);
        assert_eq!(found(Name::Last(1, "")), [0]);
        assert_eq!(found(Name::Last(1, "faq")), [0]);
        assert_eq!(found(Name::Last(0, "evals/b.jsonl")), [2]);
        assert_eq!(found(Name::Id("01a22c99-8")), [1, 2]);
        assert!(found(Name::Id("01a22c99")).is_empty(), "two runs begin so");
        assert!(found(Name::Last(2, "")).is_empty() && found(Name::Label("a", "b")).is_empty());
    }
}
