//! What GitHub Actions is told of a run: annotations at the lines of cases, and the summary of the step.
//!
//! Annotations go to stderr, which GitHub reads like stdout: that may hold data.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::fail_on::FailOn;
use super::{RunArgs, outputs};
use crate::case::CaseName;
use crate::cli::client::Client;
use crate::cli::inputs::Inputs;
use crate::cli::{CliError, note, tell};
use crate::event::Run;
use crate::report::Format;
use crate::report::github::{Annotation, Annotations, Counts, trouble};
use crate::suite::spot::{Spot, line_of};
use crate::suite::{Dialect, Suite};

/// Most bytes of the summary of a step, everything that is in it already included: of a longer one GitHub takes
/// nothing.
const MAX_SUMMARY: u64 = 1 << 20;
/// Largest file that is read again to find the line of an assertion.
const MAX_FILE: u64 = 16 << 20;

/// When GitHub is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(super) enum When {
    /// Where `GITHUB_ACTIONS` is true
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl When {
    /// Whether it is told now.
    pub(super) fn is_now(self) -> bool {
        match self {
            Self::Auto => std::env::var_os("GITHUB_ACTIONS").is_some_and(|value| value == "true"),
            Self::Always => true,
            Self::Never => false,
        }
    }
}

/// Tells what came of a run that is over.
pub(super) async fn finish(client: &Client, args: &RunArgs, inputs: &Inputs, run: &Run, annotations: Annotations) {
    let places = Places::of(inputs);
    let counts = match args.fail_on.unwrap_or_default() {
        FailOn::Regressed => Counts::Regressed,
        FailOn::Failed => Counts::Failed,
        FailOn::Never => Counts::Nothing,
    };
    annotate(&annotations.finish(run, counts, |case, spot| places.find(case, spot)));
    let Some(file) = std::env::var_os("GITHUB_STEP_SUMMARY").filter(|file| !file.is_empty()) else { return };
    match client.again(async || outputs::held(client, &run.run_id, Format::Markdown).await).await {
        Ok(report) => {
            if let Err(error) = add_to_summary(Path::new(&file), &report) {
                note(&format!("⚠ the summary of the step cannot be written: {error}"));
            }
        }
        Err(error) => note(&format!("⚠ the summary of the step cannot be written: {error}")),
    }
}

/// Tells what kept a run from being one.
pub(super) fn annotate_error(error: &CliError) {
    let (message, details, hint) = error.parts();
    if !message.is_empty() {
        annotate(&[trouble(message, details, hint)]);
    }
}

fn annotate(annotations: &[Annotation]) {
    for annotation in annotations {
        tell(&format!("{annotation}\n"));
    }
}

/// Adds a report to the summary of the step, which earlier commands may have begun.
fn add_to_summary(file: &Path, report: &[u8]) -> io::Result<()> {
    let mut summary = OpenOptions::new().append(true).create(true).open(file)?;
    let room = MAX_SUMMARY.saturating_sub(summary.metadata()?.len());
    let text = [b"\n", report, b"\n"].concat();
    if text.len() as u64 > room {
        return Err(io::Error::other("GitHub takes 1 MiB for a step, and what is in it leaves too little room"));
    }
    summary.write_all(&text)
}

/// Where cases stand in the repository.
struct Places<'a> {
    suites: HashMap<&'a str, Place<'a>>,
    /// The texts of files that were read again; `None`: they cannot be read.
    texts: RefCell<HashMap<&'a str, Option<String>>>,
}

struct Place<'a> {
    file: &'a Path,
    lines: HashMap<&'a str, u32>,
}

impl<'a> Places<'a> {
    fn of(inputs: &'a Inputs) -> Self {
        let place = |(file, suite): (&'a Path, &'a Suite)| {
            let lines = suite.cases.iter().map(|head| (head.id.as_str(), head.line)).collect();
            (suite.path.as_str(), Place { file, lines })
        };
        Self { suites: inputs.of_files().map(place).collect(), texts: RefCell::default() }
    }

    /// File and line; `None`: the case is in no file.
    fn find(&self, case: &CaseName, spot: &Spot) -> Option<(String, u32)> {
        let (path, place) = self.suites.get_key_value(&*case.suite)?;
        let line = *place.lines.get(&*case.case_id)?;
        let line = if *spot == Spot::Case {
            line
        } else {
            let mut texts = self.texts.borrow_mut();
            let text = texts.entry(path).or_insert_with(|| read(place.file).ok());
            let dialect = Dialect::of(path);
            text.as_ref().map_or(line, |text| line_of(text, dialect, &case.case_id, line, spot))
        };
        Some((in_repository(place.file), line))
    }
}

fn read(file: &Path) -> io::Result<String> {
    if File::open(file)?.metadata()?.len() > MAX_FILE {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    std::fs::read_to_string(file)
}

/// The path of a file from the root of the repository, as GitHub wants it.
fn in_repository(file: &Path) -> String {
    let workspace = std::env::var_os("GITHUB_WORKSPACE").map(PathBuf::from);
    let inside = || {
        let (workspace, file) = (workspace?.canonicalize().ok()?, file.canonicalize().ok()?);
        Some(file.strip_prefix(workspace).ok()?.to_owned())
    };
    inside().as_deref().unwrap_or(file).display().to_string()
}
