//! Where the seed manifest is, when nobody names it.
//!
//! By convention it is `evals/seed-manifest.json` in the project (Eval Runner Contract, "Seed Manifest"). A command may
//! be typed anywhere in the project or outside of it, so the search begins where the suite is: in its folder and those
//! above, up to the root of the project, `seed-manifest.json` and `evals/seed-manifest.json`. The nearest counts.
//! Behind that come the folder of the settings, and the current one.

use std::path::{Path, PathBuf};

use super::inputs::Inputs;
use super::{CliError, Exit};
use crate::json::Json;
use crate::suite;
use crate::suite::template::Source;

/// Its name, and where it is by convention.
const NAME: &str = "seed-manifest.json";
const CONVENTION: &str = "evals/seed-manifest.json";
/// What stands in the root of a project.
const ROOT_MARKS: [&str; 2] = ["forge.config.json", ".git"];

/// What was found of the values that suites use.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Search {
    /// The manifest, as it is shown to people.
    pub(super) file: Option<PathBuf>,
    /// What is to be said about the search.
    pub(super) remark: Option<String>,
}

/// Who names the manifest.
#[derive(Debug, Default)]
pub(super) struct NamedSeed<'a> {
    /// The file that a flag or a setting names.
    pub(super) file: Option<&'a Path>,
    /// Whether it is a setting.
    pub(super) is_setting: bool,
    /// The folder of these settings.
    pub(super) settings: Option<&'a Path>,
}

impl NamedSeed<'_> {
    /// The manifest of the suites: the one that is named, else the one that is found.
    ///
    /// # Errors
    /// When suites have different manifests, or some have one and some have none: one run has one for all.
    pub(super) fn search(&self, inputs: &Inputs) -> Result<Search, CliError> {
        let named = |file: &Path| Ok(Search { file: Some(file.to_owned()), remark: None });
        let is_used =
            || inputs.suites.iter().any(|suite| suite.tokens().any(|(_, token)| token.source == Source::Seed));
        match self.file {
            // Settings may name one long before there is anything to put into it.
            Some(file) if self.is_setting && !file.exists() && !is_used() => Ok(Search::default()),
            Some(file) => named(file),
            None => search(inputs, self.settings),
        }
    }
}

/// Looks for the manifest of the suites that use tokens for it. `settings`: the folder of the project's settings.
fn search(inputs: &Inputs, settings: Option<&Path>) -> Result<Search, CliError> {
    let current = std::env::current_dir().unwrap_or_default();
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    let mut without: Option<(String, Vec<PathBuf>)> = None;
    for (file, suite) in inputs.of_files() {
        let Some((case, _)) = suite.tokens().find(|(_, token)| token.source == Source::Seed) else { continue };
        let places = places(file, settings, &current);
        match places.iter().find(|place| place.is_file()) {
            Some(place) => found.push((file.display().to_string(), place.clone())),
            None => without = without.or_else(|| Some((format!("{}, case {:?}", file.display(), case.id), places))),
        }
    }
    let shown = |path: &Path| path.strip_prefix(&current).unwrap_or(path).display().to_string();
    if let Some((_, one)) = found.first()
        && found.iter().any(|(_, other)| other != one)
    {
        let each = found.iter().map(|(suite, manifest)| format!("{suite}: {}", shown(manifest)));
        return Err(CliError::new(Exit::Usage, "these suites have different seed manifests, and a run has one")
            .details(each)
            .hint("run them one by one, or name the manifest of all with --seed-manifest"));
    }
    if let (Some((_, manifest)), Some((case, _))) = (found.first(), &without) {
        let one = format!("{} is not above {case}, which has {{{{seed:…}}}} tokens, too", shown(manifest));
        return Err(CliError::new(Exit::Usage, "not all of these suites have a seed manifest, and a run has one")
            .details([one])
            .hint("run them one by one, or name the manifest of all with --seed-manifest"));
    }
    if let Some((_, manifest)) = found.pop() {
        let is_plain = manifest == current.join(CONVENTION);
        let remark = (!is_plain).then(|| format!("seed manifest: {}", shown(&manifest)));
        return Ok(Search { file: Some(manifest), remark });
    }
    let Some((case, places)) = without else { return Ok(Search::default()) };
    let places: Vec<String> = places.iter().map(|place| shown(place)).collect();
    let places = places.join(", ");
    let remark = format!("⚠ {case}: it has {{{{seed:…}}}} tokens, and no seed manifest was found; looked for {places}");
    Ok(Search { file: None, remark: Some(remark) })
}

/// The bytes of a manifest, and what they say.
///
/// # Errors
/// When it cannot be read, or is no object of values.
pub(super) fn read(file: &Path) -> Result<(Vec<u8>, Json), CliError> {
    let bytes = std::fs::read(file)
        .map_err(|error| CliError::new(Exit::Usage, format!("cannot read {}: {error}", file.display())))?;
    let values = suite::parse_data(&file.display().to_string(), &bytes)
        .map_err(|errors| CliError::new(Exit::Usage, format!("the seed manifest: {errors}")))?;
    Ok((bytes, values))
}

/// Where the manifest of a suite may be, the nearest first.
fn places(file: &Path, settings: Option<&Path>, current: &Path) -> Vec<PathBuf> {
    let full = file.canonicalize().unwrap_or_else(|_| current.join(file));
    let folder = full.parent().unwrap_or(current);
    let mut places: Vec<PathBuf> = Vec::new();
    let mut add = |place: PathBuf| {
        if !places.contains(&place) {
            places.push(place);
        }
    };
    for folder in up_to_root(folder, current) {
        add(folder.join(NAME));
        add(folder.join(CONVENTION));
    }
    for folder in settings.into_iter().chain([current]) {
        add(current.join(folder).join(CONVENTION));
    }
    places
}

/// A folder and those above it, up to the root of its project; without one up to the current folder, if it is there
/// below.
fn up_to_root<'a>(folder: &'a Path, current: &Path) -> Vec<&'a Path> {
    let is_root = |folder: &&Path| ROOT_MARKS.iter().any(|mark| folder.join(mark).exists());
    let above: Vec<&Path> = folder.ancestors().collect();
    let root = above.iter().position(is_root);
    let last = root.or_else(|| above.iter().position(|folder| *folder == current)).unwrap_or(0);
    above[..=last].to_vec()
}
