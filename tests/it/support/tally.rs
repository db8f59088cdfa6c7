//! Counts what passed, tells what did not, and decides whether that is all right.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use super::gaps::Gaps;

/// One vector, or one scenario, that was run.
#[derive(Debug)]
pub(crate) struct Item {
    /// Name by which the list of known gaps knows it: an area of vectors, or a scenario.
    pub(crate) gap: String,
    /// Id, for people.
    pub(crate) id: String,
    /// The rule it is about, for people.
    pub(crate) why: String,
    /// What came of it.
    pub(crate) verdict: Verdict,
}

/// What came of an item.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Everything is as expected.
    Passed,
    /// Something is not; one entry for each difference. A known gap excuses it.
    Failed(Vec<String>),
    /// The item itself cannot be understood, which nothing excuses.
    Invalid(Vec<String>),
}

/// What kind of items they are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    /// Word for them in the summary.
    pub(crate) name: &'static str,
    /// What their names in the list of known gaps begin with.
    pub(crate) prefixes: &'static [&'static str],
}

/// Writes what failed although it should not, and the summary line at the end. True when all is well: every failure
/// is a known gap and, in the project's own folder, every known gap fails.
///
/// libtest captures what `println!` prints, so callers hand over stdout itself.
pub(crate) fn conclude(
    kind: Kind,
    items: &[Item],
    gaps: &Gaps,
    is_own_folder: bool,
    out: &mut dyn Write,
) -> io::Result<bool> {
    // libtest may have begun a line: `test NAME ... `.
    writeln!(out)?;
    let (mut passed, mut excused, mut unexpected) = (0, 0, 0);
    let mut failing: BTreeMap<&str, usize> = BTreeMap::new();
    for item in items {
        let (label, texts) = match &item.verdict {
            Verdict::Passed => {
                passed += 1;
                continue;
            }
            Verdict::Failed(texts) => ("FAILED", texts),
            Verdict::Invalid(texts) => ("INVALID", texts),
        };
        *failing.entry(&item.gap).or_default() += 1;
        let is_excused = matches!(item.verdict, Verdict::Failed(_)) && gaps.contains(&item.gap);
        if is_excused {
            excused += 1;
        } else {
            unexpected += 1;
        }
        // To work on a gap, people want to see what is missing.
        if !is_excused || std::env::var_os("FORGE_SHOW_GAPS").is_some() {
            let label = if is_excused { "known gap" } else { label };
            writeln!(out, "{label} {} ({})", item.id, item.gap)?;
            for text in texts {
                writeln!(out, "  {}", text.replace('\n', "\n    "))?;
            }
            writeln!(out, "  why: {}", item.why)?;
        }
    }
    let mut problems = gaps.problems.clone();
    if is_own_folder {
        let known: BTreeSet<&str> = items.iter().map(|item| item.gap.as_str()).collect();
        for (line, name) in gaps.beginning(kind.prefixes) {
            if !known.contains(name) {
                problems.push(format!("line {line}: {name}: listed, but there is no such thing"));
            } else if !failing.contains_key(name) {
                problems.push(format!("line {line}: {name}: listed, but passes: remove it from the list"));
            }
        }
    }
    if items.is_empty() {
        problems.push(format!("there are no {}", kind.name));
    }
    for problem in &problems {
        writeln!(out, "known_gaps.txt: {problem}")?;
    }
    if excused > 0 {
        let areas = failing.keys().filter(|name| gaps.contains(name)).count();
        writeln!(
            out,
            "{excused} failures are in {areas} known gaps (tests/known_gaps.txt; FORGE_SHOW_GAPS=1 shows them), \
             {unexpected} are not"
        )?;
    }
    writeln!(out, "{}: {passed} passed, {} failed", kind.name, items.len() - passed)?;
    out.flush()?;
    Ok(unexpected == 0 && problems.is_empty())
}
