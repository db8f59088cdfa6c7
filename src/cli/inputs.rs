//! Paths, folders and globs → suites and their bundle.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

use super::{CliError, Exit};
use crate::bundle::{Bundle, BundleError, Role};
use crate::suite::error::Finding;
use crate::suite::registry::Registry;
use crate::suite::{self, Suite};

/// Endings of the files that are taken from a folder; other JSON files there are something else.
const SUITE_ENDINGS: &[&str] = &[".golden.json", ".labeled.json", ".regression.json"];

/// Eval files that were read and are valid.
pub(super) struct Inputs {
    /// The suites, in the order in which they were named.
    pub(super) suites: Vec<Suite>,
    /// Their files.
    pub(super) bundle: Bundle,
}

impl Inputs {
    /// Reads everything that `sources` name.
    pub(super) fn read(sources: &[String]) -> Result<Self, CliError> {
        let mut bundle = Bundle::default();
        let mut suites = Vec::new();
        let mut errors: Vec<Finding> = Vec::new();
        for path in expand(sources)? {
            let bytes = std::fs::read(&path)
                .map_err(|error| CliError::new(Exit::Usage, format!("cannot read {}: {error}", path.display())))?;
            let name = name_in_bundle(&path, &bundle);
            // Findings name the file as the user wrote it, the run as it stands in the bundle.
            match suite::parse(&path.display().to_string(), &bytes) {
                Ok(suite) => suites.push(Suite { path: name.clone(), ..suite }),
                Err(found) => errors.extend(found.0),
            }
            bundle.add(&name, Role::Suite, bytes).map_err(|error| refused(&path, &error))?;
        }
        if errors.is_empty() {
            return Ok(Self { suites, bundle });
        }
        let count = if errors.len() == 1 { "1 error".to_owned() } else { format!("{} errors", errors.len()) };
        Err(CliError::new(Exit::Usage, format!("the suite is invalid: {count}"))
            .details(errors.iter().map(ToString::to_string)))
    }

    /// Adds the seed manifest: the file that was named, or the one at `convention`, which need not be there.
    pub(super) fn add_seed(&mut self, file: Option<&Path>, convention: &str) -> Result<(), CliError> {
        let path = file.unwrap_or(Path::new(convention));
        if file.is_none() && !path.is_file() {
            return Ok(());
        }
        let bytes = std::fs::read(path)
            .map_err(|error| CliError::new(Exit::Usage, format!("cannot read {}: {error}", path.display())))?;
        suite::parse_data(&path.display().to_string(), &bytes)
            .map_err(|errors| CliError::new(Exit::Usage, format!("the seed manifest: {errors}")))?;
        self.add_file(path, Role::Seed, bytes)
    }

    /// Adds a file of the bundle.
    pub(super) fn add_file(&mut self, path: &Path, role: Role, bytes: Vec<u8>) -> Result<(), CliError> {
        let name = name_in_bundle(path, &self.bundle);
        self.bundle.add(&name, role, bytes).map_err(|error| refused(path, &error))
    }

    /// Adds the tool registry at `path`: a JSON file, an MCP tools/list result, or a TypeScript barrel, which is read
    /// here, where its files are. Returns what could not be read of it.
    pub(super) fn add_registry(&mut self, path: &Path) -> Result<Vec<Finding>, CliError> {
        // However the path is written, a barrel may import from its whole project, and from nowhere else.
        let full = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let root = project_of(&full);
        let name = full.strip_prefix(root).unwrap_or(&full).to_string_lossy().replace('\\', "/");
        let look_up = |name: &str| {
            let path = root.join(name);
            path.is_file().then(|| std::fs::read(path).ok()).flatten()
        };
        let (registry, findings) = Registry::read(&name, &look_up).map_err(|errors| {
            CliError::new(Exit::Usage, "the tool registry cannot be read")
                .details(errors.0.iter().map(ToString::to_string))
        })?;
        self.add_file(Path::new("registry.json"), Role::Registry, registry.to_json().into_bytes())?;
        Ok(findings)
    }

    /// What is odd about the files.
    pub(super) fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.suites.iter().flat_map(Suite::findings)
    }
}

fn refused(path: &Path, error: &BundleError) -> CliError {
    CliError::new(Exit::Usage, format!("cannot take {}: {error}", path.display()))
}

/// The files that `sources` name, each once, in the order in which they are named.
fn expand(sources: &[String]) -> Result<Vec<PathBuf>, CliError> {
    let mut files: Vec<PathBuf> = Vec::new();
    let mut seen: HashSet<PathBuf> = HashSet::new();
    for source in sources {
        let path = Path::new(source);
        let found = if path.is_dir() {
            in_folder(path)?
        } else if path.is_file() {
            vec![path.to_owned()]
        } else if path.exists() {
            return Err(CliError::new(Exit::Usage, format!("{source:?} is neither a file nor a folder")));
        } else if source.contains(['*', '?', '[']) {
            matching(source)?
        } else {
            return Err(CliError::new(Exit::Usage, format!("there is no file or folder {source:?}"))
                .hint("paths are relative to the current directory; quote a pattern such as 'evals/*.golden.json'"));
        };
        if found.is_empty() {
            return Err(CliError::new(
                Exit::NothingSelected,
                format!("nothing selected: {source} holds no eval files"),
            )
            .hint("eval files in a folder are those named *.golden.json, *.labeled.json or *.regression.json"));
        }
        for file in found {
            if seen.insert(file.clone()) {
                files.push(file);
            }
        }
    }
    Ok(files)
}

/// The eval files in a folder and those below it, by name.
fn in_folder(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let unreadable = |path: &Path, error: std::io::Error| {
        CliError::new(Exit::Usage, format!("cannot read the folder {}: {error}", path.display()))
    };
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(|error| unreadable(&folder, error))? {
            let entry = entry.map_err(|error| unreadable(&folder, error))?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            // Links are not followed: one that leads upwards never ends.
            let kind = entry.file_type().map_err(|error| unreadable(&folder, error))?;
            if kind.is_dir() && !name.starts_with('.') {
                folders.push(entry.path());
            } else if SUITE_ENDINGS.iter().any(|ending| name.ends_with(ending)) {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

fn matching(pattern: &str) -> Result<Vec<PathBuf>, CliError> {
    let refuse = |error: &dyn std::fmt::Display| CliError::new(Exit::Usage, format!("{pattern:?}: {error}"));
    let paths = glob::glob(pattern).map_err(|error| refuse(&error))?;
    // A folder that cannot be read may hold suites: leaving it out would be green without them.
    let paths: Vec<PathBuf> = paths.collect::<Result<_, _>>().map_err(|error| refuse(&error))?;
    Ok(paths.into_iter().filter(|path| path.is_file()).collect())
}

/// The folder of the project that a file belongs to: the nearest one above it that looks like one, else the folder above
/// the file's own.
fn project_of(file: &Path) -> &Path {
    let marks = ["package.json", "tsconfig.json", ".git"];
    let folder = file.parent().unwrap_or(file);
    let project = folder.ancestors().find(|folder| marks.iter().any(|mark| folder.join(mark).exists()));
    project.or(folder.parent()).unwrap_or(folder)
}

/// The path of a file in the bundle, which is also what reports call it: as the user wrote it, without what must not
/// stand in a bundle.
fn name_in_bundle(path: &Path, bundle: &Bundle) -> String {
    let relative = std::env::current_dir().ok().and_then(|dir| path.strip_prefix(dir).ok()).unwrap_or(path);
    let parts: Vec<String> = relative
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_string_lossy().replace(['\\', ':'], "_")),
            _ => None,
        })
        .collect();
    let is_outside = relative.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir));
    // Of a path that leads elsewhere only the file's name is the suite's business.
    let name = if is_outside { parts.last().cloned().unwrap_or_default() } else { parts.join("/") };
    let mut unique = name.clone();
    let mut number = 2;
    while bundle.get(&unique).is_some() {
        unique = format!("{number}/{name}");
        number += 1;
    }
    unique
}
