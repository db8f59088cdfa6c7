//! `forge.config.json`: what a project says once, so that nobody has to type it.
//!
//! It is looked for in the current directory and above. Paths in it are relative to it. What is typed wins, and so does
//! the environment. All of it is checked before anything is started or sent: it may come from anybody.

mod agent;
mod complete;
mod show;
mod table;

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::run::OUTPUT_DIR;
use super::{CliError, Exit};
use crate::json::{Json, Value, without_mark};
use crate::suite::error::did_you_mean;
use crate::usage::{Price, Prices, nano_usd};
pub(super) use complete::{Completed, Origins, complete};
pub(super) use show::show;

const NAME: &str = "forge.config.json";
/// Most bytes of a file with settings: people write it.
const MAX_BYTES: u64 = 1 << 20;
const PRICE_KEYS: &[&str] = &["input", "output", "cacheRead", "cacheWrite"];

/// Settings of a project, as they stand in the file.
#[derive(Debug)]
pub(super) struct Settings {
    /// The file, as people are told of it.
    file: PathBuf,
    /// Its folder, as paths begin that lead there from the current one.
    folder: PathBuf,
    json: Json,
}

impl Settings {
    /// The file that was named, else the one found upward, if there is one.
    ///
    /// # Errors
    /// When it cannot be read, is no JSON object, has a key that is not known, or lies where anybody may have put it.
    pub(super) fn find(named: Option<&Path>) -> Result<Option<Self>, CliError> {
        let file = match named {
            Some(file) => file.to_owned(),
            None => match found()? {
                Some(file) => file,
                None => return Ok(None),
            },
        };
        let refuse = |why: String| CliError::new(Exit::Usage, format!("{}: {why}", file.display()));
        let mut text = String::new();
        std::fs::File::open(&file)
            .and_then(|opened| opened.take(MAX_BYTES + 1).read_to_string(&mut text))
            .map_err(|error| refuse(error.to_string()))?;
        if text.len() as u64 > MAX_BYTES {
            return Err(refuse(format!("it has more than {MAX_BYTES} bytes")));
        }
        Self::of(file, &text).map(Some)
    }

    fn of(file: PathBuf, text: &str) -> Result<Self, CliError> {
        let refuse = |why: String| CliError::new(Exit::Usage, format!("{}{why}", file.display()));
        let json = Json::parse(without_mark(text)).map_err(|error| refuse(format!(", {error}")))?;
        if !matches!(json.value, Value::Object(_)) {
            return Err(refuse(format!(", line {}: settings are an object, not {}", json.line, json.kind())));
        }
        let keys = table::keys();
        if let Some((key, value)) = json.members().iter().find(|(key, _)| !keys.contains(&key.as_str())) {
            let error = refuse(format!(", line {}: there is no setting {key:?}", value.line));
            return Err(
                error.hint(did_you_mean(key, &keys).unwrap_or_else(|| format!("the settings are {}", keys.join(", "))))
            );
        }
        let folder = file.parent().unwrap_or(Path::new("")).to_owned();
        Ok(Self { file, folder, json })
    }

    /// The folder of the file, from the root on.
    pub(super) fn home(&self) -> PathBuf {
        let folder = if self.folder.as_os_str().is_empty() { Path::new(".") } else { &self.folder };
        folder.canonicalize().unwrap_or_else(|_| folder.to_owned())
    }

    /// A setting that is a text.
    ///
    /// # Errors
    /// When it is something else.
    fn text(&self, key: &str) -> Result<Option<String>, CliError> {
        self.get(key).map(|value| self.text_of(key, value)).transpose()
    }

    fn text_of(&self, key: &str, value: &Json) -> Result<String, CliError> {
        let text = value.as_str().filter(|text| !text.is_empty());
        text.map(str::to_owned).ok_or_else(|| self.wrong_kind(key, value, "a text"))
    }

    /// A setting that names a file.
    ///
    /// # Errors
    /// When it is no text.
    fn file(&self, key: &str) -> Result<Option<PathBuf>, CliError> {
        Ok(self.text(key)?.map(|path| self.folder.join(path)))
    }

    /// The daemon of the project.
    pub(super) fn daemon(&self) -> Result<Option<String>, CliError> {
        self.text(table::DAEMON)
    }

    /// The seed manifest.
    pub(super) fn seed_manifest(&self) -> Result<Option<PathBuf>, CliError> {
        self.file("seedManifestPath")
    }

    /// The folder for results: what is not said is where the settings are, not where a command is typed.
    pub(super) fn output_dir(&self) -> Result<PathBuf, CliError> {
        Ok(self.file("outputDir")?.unwrap_or_else(|| self.folder.join(OUTPUT_DIR)))
    }

    /// `"prices": {"gpt-4o*": {"input": 2.5, "output": 10}}`, in US dollars for a million tokens.
    fn prices(&self) -> Result<Prices, CliError> {
        let Some(prices) = self.get(table::PRICES) else { return Ok(Prices::default()) };
        let hint = "as in {\"gpt-4o*\": {\"input\": 2.5, \"output\": 10}}, in US dollars for a million tokens";
        if !matches!(prices.value, Value::Object(_)) {
            return Err(self.wrong_kind(table::PRICES, prices, "an object of models").hint(hint));
        }
        let mut read = Prices::default();
        for (model, entry) in prices.members() {
            let refuse = |at: &Json, key: &str, what: &str| self.refuse(&format!("prices.{model}{key}"), at, what);
            if !matches!(entry.value, Value::Object(_)) {
                return Err(refuse(entry, "", &format!("must be an object, not {}", entry.kind())).hint(hint));
            }
            if let Some((key, value)) = entry.members().iter().find(|(key, _)| !PRICE_KEYS.contains(&key.as_str())) {
                let error = refuse(value, "", &format!("there is no setting {key:?}"));
                return Err(error.hint(did_you_mean(key, PRICE_KEYS).unwrap_or_else(|| hint.to_owned())));
            }
            let amount = |key: &str| match entry.get(key) {
                None => Ok(None),
                Some(value) => value.as_f64().and_then(nano_usd).map(Some).ok_or_else(|| {
                    let what = "must be US dollars for a million tokens, from 0 to 1000000";
                    refuse(value, &format!(".{key}"), what)
                }),
            };
            let (Some(input), Some(output)) = (amount("input")?, amount("output")?) else {
                return Err(refuse(entry, "", "needs input and output").hint(hint));
            };
            let (cache_read, cache_write) = (amount("cacheRead")?, amount("cacheWrite")?);
            read.0.insert(model.clone(), Price { input, output, cache_read, cache_write });
        }
        Ok(read)
    }

    /// The value of a setting; `null` is none.
    fn get(&self, key: &str) -> Option<&Json> {
        self.json.get(key).filter(|value| !matches!(value.value, Value::Null))
    }

    /// Where a value stands, for people.
    fn place(&self, value: &Json) -> String {
        format!("{}, line {}", self.file.display(), value.line)
    }

    fn wrong_kind(&self, key: &str, value: &Json, wanted: &str) -> CliError {
        let found = if value.as_str().is_some_and(str::is_empty) { "an empty one" } else { value.kind() };
        self.refuse(key, value, &format!("must be {wanted}, not {found}"))
    }

    fn refuse(&self, key: &str, value: &Json, problem: &str) -> CliError {
        CliError::new(Exit::Usage, format!("{}: {key}: {problem}", self.place(value)))
    }
}

/// The nearest file with settings, here or above, by the way that leads there.
///
/// # Errors
/// When anybody may have put it there: settings start programs, and a user who works in a folder such as `/tmp` has not
/// asked for those of others.
fn found() -> Result<Option<PathBuf>, CliError> {
    let Ok(here) = std::env::current_dir() else { return Ok(None) };
    let mut way = PathBuf::new();
    for folder in here.ancestors() {
        let file = way.join(NAME);
        if let Ok(about) = std::fs::metadata(&file)
            && about.is_file()
        {
            let mode = std::fs::metadata(folder).map(|folder| folder.mode()).unwrap_or_default();
            let me = rustix::process::geteuid().as_raw();
            if is_doubtful(mode, about.uid(), me) {
                let file = file.display();
                let message = format!(
                    "{file} is of another user, in a folder where everybody may write, and settings start programs"
                );
                return Err(
                    CliError::new(Exit::Usage, message).hint(format!("take it with --config {file}, or remove it"))
                );
            }
            return Ok(Some(file));
        }
        way.push("..");
    }
    Ok(None)
}

/// Whether a file may be anybody's: by the mode of its folder, its owner, and the user. What belongs to root, root has
/// put there.
const fn is_doubtful(folder: u32, owner: u32, user: u32) -> bool {
    folder & 0o002 != 0 && owner != user && owner != 0
}

#[cfg(test)]
mod tests {
    use super::is_doubtful;

    #[test]
    fn whose_settings_are_taken() {
        for (folder, owner, user, doubtful) in [
            (0o40755, 1000, 1000, false),
            (0o40755, 1000, 0, false),
            (0o41777, 1000, 1000, false),
            (0o41777, 0, 1000, false),
            (0o41777, 1001, 1000, true),
            (0o41777, 1001, 0, true),
        ] {
            assert_eq!(is_doubtful(folder, owner, user), doubtful, "{folder:o} {owner} {user}");
        }
    }
}
