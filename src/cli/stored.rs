//! A run wherever it is kept: in result files, in the folder for results, or by a daemon.

use std::path::{Path, PathBuf};

use super::client::Client;
use super::named::{HINT, Name, run_id};
use super::results::{newest_first, of_run, run_of};
use super::run::OUTPUT_DIR;
use super::settings::Settings;
use super::{CliError, Exit};
use crate::event::{Run, RunEvent};
use crate::json::without_mark;
use crate::report::stored::read;

/// Runs that are named where none is meant.
const SHOWN: usize = 3;

/// Where a run was found.
pub(super) enum Found {
    /// In result files: the run, and what came of its cases.
    Files(Box<(Run, Vec<RunEvent>)>),
    /// A daemon keeps it, by this id.
    Daemon(Box<Client>, String),
}

/// Finds the run that is meant: result files, else a run of the daemon that is named, else one in the folder for
/// results.
///
/// # Errors
/// When there is none, or it cannot be read.
pub(super) async fn find(daemon: Option<String>, names: &[String]) -> Result<Found, CliError> {
    // `last:evals/faq.golden.json` names a run, and no file.
    let ends_like_one = |name: &str| [".json", ".jsonl"].iter().any(|ending| name.ends_with(ending));
    let looks_like_a_file = |name: &String| Path::new(name).is_file() || (ends_like_one(name) && !name.contains(':'));
    if names.iter().any(looks_like_a_file) {
        let files: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
        return read_files(&files).map(Found::Files);
    }
    let [name] = names else {
        return Err(CliError::new(Exit::Usage, "name one run, or result files of one run").hint(HINT));
    };
    if let Some(url) = daemon {
        let client = Client::connect(&url).await?;
        let id = run_id(&client, name).await?;
        return Ok(Found::Daemon(Box::new(client), id));
    }
    let folder = folder()?;
    let files = of_run(&folder, Name::parse(name)?);
    if files.is_empty() {
        return Err(none(name, &folder));
    }
    read_files(&files).map(Found::Files)
}

/// The folder for results, as the settings of the project have it.
fn folder() -> Result<PathBuf, CliError> {
    let of_settings = Settings::find(None)?.map(|settings| settings.output_dir()).transpose()?;
    Ok(of_settings.unwrap_or_else(|| PathBuf::from(OUTPUT_DIR)))
}

fn none(name: &str, folder: &Path) -> CliError {
    let mut ids: Vec<String> = Vec::new();
    for id in newest_first(folder).iter().filter_map(|path| run_of(path)) {
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    let newest = match ids.as_slice() {
        [] => "it holds no results".to_owned(),
        ids => format!("the newest: {}", ids[..ids.len().min(SHOWN)].join(", ")),
    };
    let message = format!("there is no result of a run {name:?} in {}; {newest}", folder.display());
    CliError::new(Exit::Usage, message).hint(
        "name a result file, or a run by the beginning of its id, as last, last~1 or last:SUITE; --daemon URL names a daemon that keeps runs",
    )
}

fn read_files(files: &[PathBuf]) -> Result<Box<(Run, Vec<RunEvent>)>, CliError> {
    let mut texts = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).map_err(|error| {
            CliError::new(Exit::Usage, format!("{}: {error}", file.display()))
                .hint("results are in evals/results unless another place was asked for")
        })?;
        texts.push(without_mark(&text).to_owned());
    }
    read(&texts).map(Box::new).map_err(|why| {
        let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        CliError::new(Exit::Usage, format!("{}: {why}", names.join(", ")))
            .hint("results that reports are made from are those that end in .json, as `forgectl run` writes them")
    })
}
