//! The files that a run writes: checked before it, written after it, each whole or not at all.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::{RunArgs, read_run};
use crate::cli::client::Client;
use crate::cli::inputs::Inputs;
use crate::cli::{CliError, Exit, print, print_bytes};
use crate::event::{Run, RunEvent, SuiteInfo};
use crate::report::{Format, whole_of};
use crate::suite::Dialect;
use crate::wire::control as pb;

/// The artifact with the traces of a run.
const OTLP: &str = "otlp";

/// Only formats that exist, and only folders that can be written to: a run may take hours, and its results are not lost
/// for a typing mistake.
pub(super) fn check_outputs(args: &RunArgs) -> Result<(), CliError> {
    if args.dry_run {
        // The only thing that a dry run writes is cases.
        let other = args.output.iter().find(|file| format_of(file) != Some(Format::Jsonl));
        return other.map_or(Ok(()), |file| {
            Err(CliError::new(Exit::Usage, format!("-o {}: --dry-run writes generated cases", file.display()))
                .hint("name a file that ends in .jsonl"))
        });
    }
    check_formats(&args.output, args.format)?;
    if args.json && takes_stdout(&args.output) {
        return Err(CliError::new(Exit::Usage, "-o - and --json both want stdout").hint("name a file for one of them"));
    }
    if args.detach {
        return Ok(());
    }
    let of_output = |output| if is_folder(output) { output } else { folder_of(output) };
    let files = args.output.iter().filter(|output| !is_stdout(output));
    let folders = files.map(|output| of_output(output.as_path()));
    let folders = folders.chain(args.otlp_file.iter().map(|file| folder_of(file))).chain([args.output_dir()]);
    for folder in folders {
        std::fs::create_dir_all(folder).and_then(|()| tempfile::tempfile_in(folder)).map_err(|error| {
            CliError::new(Exit::Usage, format!("results cannot be written to {}: {error}", folder.display()))
                .hint("choose other places with --output-dir DIR and -o FILE")
        })?;
    }
    Ok(())
}

/// The ending of a file says its format, `--format` that of stdout; a folder has that of each suite.
fn check_formats(outputs: &[PathBuf], format: Option<Format>) -> Result<(), CliError> {
    let times = outputs.iter().filter(|output| is_stdout(output)).count();
    if times > 1 {
        return Err(CliError::new(Exit::Usage, "-o - is given twice, and there is one stdout"));
    }
    if format.is_some() && times == 0 {
        let message = "--format says the format of -o -, which is not given";
        return Err(CliError::new(Exit::Usage, message).hint("the ending of a file says its format"));
    }
    let is_known = |output: &PathBuf| is_stdout(output) || is_folder(output) || format_of(output).is_some();
    let unknown = outputs.iter().find(|output| !is_known(output));
    unknown.map_or(Ok(()), |file| {
        Err(CliError::new(Exit::Usage, format!("-o {}: the ending says no known format", file.display())).hint(
            "results are written as .json, .jsonl, .xml (JUnit), .md (Markdown) or .html; a new folder ends in /; - is stdout",
        ))
    })
}

/// The format that a user names.
///
/// # Errors
/// When there is none of that name.
pub(in crate::cli) fn format_named(name: &str) -> Result<Format, String> {
    let of_ending = || Format::ALL.into_iter().find(|format| format.ending() == name);
    let names = || Format::ALL.map(Format::name).join(", ");
    Format::named(name).or_else(of_ending).ok_or_else(|| format!("there are {}", names()))
}

/// Whether stdout holds a report, and nothing else may stand there.
pub(in crate::cli) fn takes_stdout(outputs: &[PathBuf]) -> bool {
    outputs.iter().any(|output| is_stdout(output))
}

fn is_stdout(output: &Path) -> bool {
    output.as_os_str() == "-"
}

/// Whether a folder is meant: one that is there, or a path that ends like one.
fn is_folder(output: &Path) -> bool {
    output.as_os_str().as_encoded_bytes().ends_with(b"/") || output.is_dir()
}

/// Writes results of a run that is over.
pub(in crate::cli) async fn report(
    client: &Client,
    run_id: &str,
    outputs: &[PathBuf],
    format: Option<Format>,
    traces: Option<&Path>,
) -> Result<(), CliError> {
    check_formats(outputs, format)?;
    let suites = if outputs.iter().any(|output| is_folder(output)) {
        let request = pb::GetRunRequest { run_id: run_id.to_owned() };
        read_run(client.ask("asking for the run", client.runs().get_run(request)).await?.run)?.suites
    } else {
        Vec::new()
    };
    write_outputs(client, run_id, &suites, outputs, format, traces).await
}

/// Writes results of a run that was read from result files.
pub(in crate::cli) fn write_stored(
    run: &Run,
    log: &[RunEvent],
    outputs: &[PathBuf],
    format: Option<Format>,
) -> Result<(), CliError> {
    check_formats(outputs, format)?;
    let page = page(outputs);
    let made = |format: Format, only| {
        whole_of(format.report(Some(&page)), run.clone(), log, only)
            .map_err(|error| CliError::new(Exit::CouldNotRun, error.to_string()))
    };
    for output in outputs {
        if is_stdout(output) {
            print(&made(format.unwrap_or(Format::Json), None)?)?;
        } else if is_folder(output) {
            for (index, name) in names(&run.suites, &run.run_id, of_dialect).iter().enumerate() {
                write_whole(&output.join(name), &made(of_dialect(&run.suites[index]), Some(index))?)?;
            }
        } else {
            write_whole(output, &made(format_of(output).unwrap_or(Format::Json), None)?)?;
        }
    }
    Ok(())
}

/// Writes what was asked for: files with everything, folders with a file a suite.
async fn write_outputs(
    client: &Client,
    run_id: &str,
    suites: &[SuiteInfo],
    outputs: &[PathBuf],
    format: Option<Format>,
    traces: Option<&Path>,
) -> Result<(), CliError> {
    for output in outputs {
        if is_stdout(output) {
            let name = format.unwrap_or(Format::Json).name();
            let request = pb::FetchArtifactRequest { attachment: page(outputs), ..artifact(run_id, name, "") };
            // It cannot be begun again when something of it is written.
            copy(client, request, print_bytes).await?;
        } else if is_folder(output) {
            write_suites(client, run_id, suites, output, of_dialect).await?;
        } else {
            let name = format_of(output).unwrap_or(Format::Json).name();
            let request = pb::FetchArtifactRequest { attachment: page(outputs), ..artifact(run_id, name, "") };
            client.again(async || fetch(client, request.clone(), output).await).await?;
        }
    }
    if let Some(file) = traces {
        client.again(async || fetch(client, artifact(run_id, OTLP, ""), file).await).await?;
    }
    Ok(())
}

/// The format of results that a document names for its suites: `EvalSuiteResult`, or a line a case.
fn of_dialect(suite: &SuiteInfo) -> Format {
    match Dialect::of(&suite.path) {
        Dialect::Contract => Format::Json,
        Dialect::Framework => Format::Jsonl,
    }
}

/// Results must not take the place of what they are about; and a dry run has nothing to write but cases.
pub(super) fn check_overwrites(args: &RunArgs, inputs: &Inputs) -> Result<(), CliError> {
    if args.dry_run && inputs.generators.is_empty() && !args.output.is_empty() {
        let message = "-o with --dry-run writes the cases of a generator, and there is none";
        return Err(CliError::new(Exit::Usage, message));
    }
    let same = |one: &Path, other: &Path| {
        one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
    };
    let clash = args.output.iter().find(|output| inputs.files.iter().any(|input| same(output, input)));
    clash.map_or(Ok(()), |file| {
        Err(CliError::new(Exit::Usage, format!("-o {}: that is a file of cases, which would be lost", file.display())))
    })
}

/// Writes one file an eval file into the output directory, and what `-o` asks for.
pub(super) async fn write_results(client: &Client, args: &RunArgs, run: &Run) -> Result<(), CliError> {
    write_suites(client, &run.run_id, &run.suites, args.output_dir(), |_| Format::Json).await?;
    write_outputs(client, &run.run_id, &run.suites, &args.output, args.format, args.otlp_file.as_deref()).await
}

/// Writes a file for each suite into a folder.
async fn write_suites(
    client: &Client,
    run_id: &str,
    suites: &[SuiteInfo],
    folder: &Path,
    format: fn(&SuiteInfo) -> Format,
) -> Result<(), CliError> {
    for (suite, name) in suites.iter().zip(names(suites, run_id, format)) {
        let request = artifact(run_id, format(suite).name(), &suite.path);
        let file = folder.join(name);
        client.again(async || fetch(client, request.clone(), &file).await).await?;
    }
    Ok(())
}

/// The name of a file for each suite.
fn names(suites: &[SuiteInfo], run_id: &str, format: fn(&SuiteInfo) -> Format) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for suite in suites {
        // Named after file and run, both of which are ours; never after what stands in a file.
        let file = suite.path.rsplit('/').next().unwrap_or_default();
        let ending = [".jsonl", ".json", ".ts", ".js"].into_iter().find_map(|ending| file.strip_suffix(ending));
        let (stem, ending) = (ending.unwrap_or(file), format(suite).ending());
        let mut name = format!("{stem}.{run_id}.{ending}");
        let mut number = 2;
        // Some file systems do not tell letter cases apart.
        while names.iter().any(|other| other.to_lowercase() == name.to_lowercase()) {
            name = format!("{stem}.{run_id}.{number}.{ending}");
            number += 1;
        }
        names.push(name);
    }
    names
}

/// Fetches an artifact into a file, which is there whole or not at all.
async fn fetch(client: &Client, request: pb::FetchArtifactRequest, file: &Path) -> Result<(), CliError> {
    let failed = |error| cannot_write(file, &error);
    let mut temp = temp_for(file).map_err(failed)?;
    copy(client, request, |chunk| temp.write_all(chunk).map_err(failed)).await?;
    temp.persist(file).map_err(|error| failed(error.error))?;
    Ok(())
}

/// A report on a whole run, held: for those that are small.
pub(super) async fn held(client: &Client, run_id: &str, format: Format) -> Result<Vec<u8>, CliError> {
    let mut text = Vec::new();
    let take = |chunk: &[u8]| {
        text.extend_from_slice(chunk);
        Ok(())
    };
    copy(client, artifact(run_id, format.name(), ""), take).await?;
    Ok(text)
}

fn artifact(run_id: &str, format: &str, suite: &str) -> pb::FetchArtifactRequest {
    let (run_id, format, suite) = (run_id.to_owned(), format.to_owned(), suite.to_owned());
    pb::FetchArtifactRequest { run_id, format, suite, attachment: String::new() }
}

/// The page among the files that are written, as the reader of the others finds it: from the folder of the project,
/// where GitLab names that. Empty: there is none.
fn page(outputs: &[PathBuf]) -> String {
    let Some(page) = outputs.iter().find(|output| format_of(output) == Some(Format::Html)) else {
        return String::new();
    };
    let project = std::env::var_os("CI_PROJECT_DIR").map(PathBuf::from);
    let inside = || Some(std::path::absolute(page).ok()?.strip_prefix(project?).ok()?.to_owned());
    inside().as_ref().unwrap_or(page).display().to_string()
}

/// Fetches an artifact, and gives it piece by piece.
async fn copy(
    client: &Client,
    request: pb::FetchArtifactRequest,
    mut take: impl FnMut(&[u8]) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let doing = "fetching the result";
    let mut chunks = client.ask(doing, client.runs().fetch_artifact(request)).await?;
    loop {
        let next = async { chunks.message().await.map(tonic::Response::new) };
        let Some(chunk) = client.ask(doing, next).await? else { return Ok(()) };
        take(&chunk.chunk)?;
    }
}

/// Writes a file that is there whole or not at all, in a folder that is made if need be.
pub(super) fn write_whole(file: &Path, text: &str) -> Result<(), CliError> {
    let failed = |error| cannot_write(file, &error);
    let mut temp = temp_for(file).map_err(failed)?;
    temp.write_all(text.as_bytes()).map_err(failed)?;
    temp.persist(file).map(drop).map_err(|error| failed(error.error))
}

/// A file that takes the place of `file` when it is whole, in a folder that is made if need be.
fn temp_for(file: &Path) -> io::Result<NamedTempFile> {
    let folder = folder_of(file);
    std::fs::create_dir_all(folder)?;
    tempfile::Builder::new().prefix(".forge-").permissions(permissions()).tempfile_in(folder)
}

fn cannot_write(file: &Path, error: &io::Error) -> CliError {
    CliError::new(Exit::CouldNotRun, format!("cannot write {}: {error}", file.display()))
}

/// The format that the ending of a file says.
fn format_of(file: &Path) -> Option<Format> {
    let ending = file.extension()?;
    Format::ALL.into_iter().find(|format| ending == format.ending())
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Results are for everybody who may read the directory, which temporary files are not.
fn permissions() -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o644)
}
