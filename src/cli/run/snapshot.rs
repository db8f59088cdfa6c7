//! Where the values for `{{snapshot:…}}` tokens come from: a file, or a command whose output they are.
//!
//! Captured by the client, right before the run: the daemon runs no command that a client names.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::RunArgs;
use crate::cli::{CliError, Exit};
use crate::suite;

/// Time for the command.
const PATIENCE: Duration = Duration::from_mins(1);
/// Most bytes that it may write.
const MAX_BYTES: usize = 64 << 20;

/// The captured values as a file of the bundle: its name and bytes. `None` when no capture is configured.
///
/// # Errors
/// When the capture fails; then no case runs.
pub(super) async fn capture(args: &RunArgs) -> Result<Option<(PathBuf, Vec<u8>)>, CliError> {
    let (name, bytes) = match (&args.snapshot, &args.snapshot_command) {
        (None, None) => return Ok(None),
        (Some(file), _) => {
            let bytes = std::fs::read(file)
                .map_err(|error| CliError::new(Exit::Usage, format!("cannot read {}: {error}", file.display())))?;
            (file.clone(), bytes)
        }
        (None, Some(command)) => (PathBuf::from("snapshot.json"), run(command).await?),
    };
    suite::parse_data(&name.display().to_string(), &bytes)
        .map_err(|errors| failed(args, &format!("what was captured is no object of values: {errors}")))?;
    Ok(Some((name, bytes)))
}

/// A file that is wrong is wrong usage; a command that fails is trouble.
fn failed(args: &RunArgs, why: &str) -> CliError {
    let exit = if args.snapshot.is_some() { Exit::Usage } else { Exit::CouldNotRun };
    CliError::new(exit, format!("the snapshot: {why}"))
}

async fn run(command: &str) -> Result<Vec<u8>, CliError> {
    let failed = |why: String| CliError::new(Exit::CouldNotRun, format!("the snapshot command {command:?} {why}"));
    let child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(format!("cannot be started: {error}")))?;
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await;
    let output = output.map_err(|_| failed(format!("did not end within {} s", PATIENCE.as_secs())))?;
    let output = output.map_err(|error| failed(format!("cannot be read: {error}")))?;
    if !output.status.success() {
        return Err(failed(format!("ended with {}", output.status)));
    }
    if output.stdout.len() > MAX_BYTES {
        return Err(failed(format!("wrote more than {MAX_BYTES} bytes")));
    }
    Ok(output.stdout)
}
