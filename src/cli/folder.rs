//! The eval files in a folder, and what in it looks like some and is not run.
//!
//! A file whose name is nearly that of an eval file would never be run, and nobody would see that: so it is told.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use walkdir::{DirEntry, WalkDir};

use super::inputs::GENERATED_ENDING;
use super::{CliError, Exit};
use crate::suite::Tier;

/// Endings of the files that are taken from a folder; other JSON files there are something else.
const SUITE_ENDINGS: &[&str] = &[".golden.json", ".labeled.json", ".regression.json", ".jsonl"];
/// The same for people.
pub(super) const SUITE_NAMES: &str = "*.golden.json, *.labeled.json, *.regression.json or *.jsonl";
/// Other files of ours: they are no suites, whatever their names.
const OURS: &[&str] = &[".snapshots.json", "seed-manifest.json", "forge.config.json"];
/// Words behind which people put the ending of files with cases.
const CASE_WORDS: &[&str] = &["eval", "evals", "test", "tests", "case", "cases", "suite", "suites"];
/// Endings that somebody may have put behind a right name, to no longer run the file, or by mistake.
const PUT_BEHIND: &[&str] = &["txt", "yaml", "yml", "bak", "old", "orig", "off", "disabled", "skip", "tmp"];
/// Most files of a folder whose text is looked at, and most of it.
const MAX_LOOKS: usize = 1_000;
const LOOK_BYTES: u64 = 64 << 10;
/// Most files, and most linked folders, that are told by name.
const MAX_TOLD: usize = 20;

/// What a folder holds.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Its eval files and those of the folders below, by name.
    pub(super) suites: Vec<PathBuf>,
    /// Files that look like eval files and are none by their names, by name.
    lookalikes: Vec<PathBuf>,
    /// Folders that are only linked, by name.
    links: Vec<PathBuf>,
}

impl Contents {
    /// Reads a folder and those below it.
    ///
    /// # Errors
    /// When one of them cannot be read: it may hold suites.
    pub(super) fn read(folder: &Path) -> Result<Self, CliError> {
        let mut contents = Self::default();
        let mut looks = 0;
        let is_hidden = |entry: &DirEntry| entry.file_name().to_string_lossy().starts_with('.');
        // Links are not followed: one that leads upwards never ends. Hidden things are somebody else's; a file that is
        // named like a suite is one all the same.
        let entries = WalkDir::new(folder).min_depth(1).sort_by_file_name().into_iter();
        let is_ours = |entry: &DirEntry| entry.depth() == 0 || !entry.file_type().is_dir() || !is_hidden(entry);
        for entry in entries.filter_entry(is_ours) {
            let entry = entry.map_err(|error| {
                let message = format!("cannot read the folder {}", error.path().unwrap_or(folder).display());
                match error.into_io_error() {
                    Some(error) => CliError::new(Exit::Usage, format!("{message}: {error}")),
                    None => CliError::new(Exit::Usage, message),
                }
            })?;
            let (name, kind, path) = (entry.file_name().to_string_lossy(), entry.file_type(), entry.path());
            if kind.is_dir() {
                continue;
            }
            if kind.is_symlink() && path.is_dir() {
                contents.links.extend((!is_hidden(&entry)).then(|| path.to_owned()));
            } else if is_suite(&name) {
                contents.suites.push(path.to_owned());
            } else if !is_hidden(&entry) && (resembles_suite(&name) || holds_cases(path, &name, &mut looks)) {
                contents.lookalikes.push(path.to_owned());
            }
        }
        contents.suites.sort();
        contents.lookalikes.sort();
        contents.links.sort();
        Ok(contents)
    }

    /// What is not run and perhaps should be, for people; `named`: files that are run all the same.
    pub(super) fn not_run(&self, named: &[PathBuf]) -> Vec<String> {
        let lookalikes: Vec<&PathBuf> = self.lookalikes.iter().filter(|path| !named.contains(path)).collect();
        let mut told = Vec::new();
        if !lookalikes.is_empty() {
            let are = if lookalikes.len() == 1 { "this file is" } else { "these files are" };
            told.push(format!("⚠ {are} not run, because eval files in a folder are named {SUITE_NAMES}:"));
        }
        tell(&mut told, &lookalikes, |path| format!("    {}", path.display()), "files");
        let links: Vec<&PathBuf> = self.links.iter().collect();
        let of_link = |path: &Path| {
            format!("⚠ {} is a linked folder, which is not followed; name it to run what is in it", path.display())
        };
        tell(&mut told, &links, of_link, "linked folders");
        told
    }
}

/// Tells the first few of many.
fn tell(told: &mut Vec<String>, paths: &[&PathBuf], line: impl Fn(&Path) -> String, what: &str) {
    told.extend(paths.iter().take(MAX_TOLD).map(|path| line(path)));
    let more = paths.len().saturating_sub(MAX_TOLD);
    if more > 0 {
        told.push(format!("    … and {more} more {what}"));
    }
}

/// What a generator once wrote, and results, are no part of the suites.
fn is_suite(name: &str) -> bool {
    !name.ends_with(GENERATED_ENDING) && !is_result(name) && SUITE_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Whether a name is nearly that of an eval file.
fn resembles_suite(name: &str) -> bool {
    if name.ends_with(GENERATED_ENDING) || OURS.iter().any(|ours| name.ends_with(ours)) || is_result(name) {
        return false;
    }
    let lower = name.to_lowercase();
    let words: Vec<&str> = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let Some((ending, words)) = words.split_last() else { return false };
    let is_tier = |word: &&str| {
        let tiers = [Tier::Golden, Tier::Labeled, Tier::Regression];
        tiers.iter().any(|tier| is_one_slip(word, tier.name()) || is_one_slip(word, &format!("{}s", tier.name())))
    };
    let is_json = ending.ends_with("json")
        || (ending.starts_with('j') && strsim::osa_distance(ending, "json") <= 2 && *ending != "js");
    let is_lines = ["ndjson", "ldjson", "jsonlines"].contains(ending)
        || (is_one_slip(ending, "jsonl") && !["json", "json5", "jsonc"].contains(ending));
    let is_put_behind = PUT_BEHIND.contains(ending) || lower.ends_with('~');
    let has_case_word = words.last().is_some_and(|word| CASE_WORDS.contains(word)) && words[0] != "tsconfig";
    let is_suite_below = is_put_behind && SUITE_ENDINGS.iter().any(|suite| lower.contains(suite));
    is_lines
        || (is_tier(ending) && !words.is_empty())
        || is_suite_below
        || ((is_json || is_put_behind) && words.iter().any(is_tier))
        || (is_json && has_case_word)
}

/// Whether a name is that of a result: the file of a suite, and the id of a run.
fn is_result(name: &str) -> bool {
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    stem.rsplit('.').take(2).any(|part| uuid::Uuid::try_parse(part).is_ok())
}

/// Whether a JSON file without the name of an eval file begins like one. Results do not, and neither does anything very
/// large.
fn holds_cases(path: &Path, name: &str, looks: &mut usize) -> bool {
    if path.extension().is_none_or(|ending| ending != "json")
        || OURS.iter().any(|ours| name.ends_with(ours))
        || is_result(name)
        || *looks >= MAX_LOOKS
    {
        return false;
    }
    *looks += 1;
    // Looked at before it is opened: opening a pipe waits until a program writes into it.
    if !std::fs::metadata(path).is_ok_and(|about| about.is_file()) {
        return false;
    }
    let Ok(file) = std::fs::File::open(path) else { return false };
    let mut bytes = Vec::new();
    // What cannot be read says nothing; it is not going to be run either way.
    let _ = file.take(LOOK_BYTES).read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let has = |key: &str| text.contains(key);
    has("\"expect\"") && has("\"input\"") && !has("\"runId\"")
}

/// Whether a word is another, but for one slip.
fn is_one_slip(word: &str, other: &str) -> bool {
    strsim::osa_distance(word, other) <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_nearly_right_are_told_from_others() {
        for name in [
            "refunds.gloden.json",
            "refunds.golden.jsn",
            "refunds-golden.json",
            "refunds_golden.json",
            "golden.json",
            "refunds.Golden.json",
            "REFUNDS.GOLDEN.JSON",
            "refunds.golden.JSON",
            "refunds.goldens.json",
            "refunds.labelled.json",
            "refunds.labled.json",
            "refunds.regresion.json",
            "refunds.golden.json.txt",
            "refunds.golden.json.bak",
            "refunds.golden.json~",
            "refunds.golden (1).json",
            "refunds.golden.yaml",
            "refunds.golden",
            "refunds.eval.json",
            "refunds.evals.json",
            "refunds.test.json",
            "test-cases.json",
            "refunds.ndjson",
            "refunds.jsnol",
            "refunds.jsonlines",
            "refunds.jsonl.txt",
            "refunds.JSONL",
            "refunds.json1",
        ] {
            assert!(resembles_suite(name) && !is_suite(name), "{name}");
        }
        for name in [
            "package.json",
            "tsconfig.json",
            "tsconfig.test.json",
            "labels.json",
            "folder.json",
            "seed-manifest.json",
            "golden.snapshots.json",
            "forge.config.json",
            "weather.golden.0198c0de-7a3b-7c4d-8e5f-0123456789ab.json",
            "weather.golden.0198c0de-7a3b-7c4d-8e5f-0123456789ab.2.json",
            "expense.0198c0de-7a3b-7c4d-8e5f-0123456789ab.jsonl",
            "generated-x.0198c0de-7a3b-7c4d-8e5f-0123456789ab.cases.jsonl",
            "golden.png",
            "golden.md",
            "golden.ts",
            "index.js",
            "data.json",
            "data.json5",
            "data.csv",
            "libgolden.so",
            "README.md",
            "notes.txt",
            "Makefile",
        ] {
            assert!(!resembles_suite(name) && !is_suite(name), "{name}");
        }
    }
}
