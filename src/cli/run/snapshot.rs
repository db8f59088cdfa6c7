//! Where the values for `{{snapshot:…}}` tokens come from: a file, a command whose output they are, or an address that
//! answers with them.
//!
//! Captured by the client, right before the run: the daemon runs no command and asks no address that a client names.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use reqwest::Method;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::RunArgs;
use crate::cli::{CliError, Exit};
use crate::peer::target::without_user;
use crate::sidecar::http::address::{HttpUrl, RequestHeader};
use crate::sidecar::http::client::{ClientError, HttpClient};
use crate::suite;
use crate::trace::TraceHeaders;

/// Time for the command, and for an answer.
const PATIENCE: Duration = Duration::from_mins(1);
/// Most bytes that they may hold.
const MAX_BYTES: usize = 64 << 20;

/// The captured values as a file of the bundle: its name and bytes. `None` when no capture is configured.
///
/// # Errors
/// When the capture fails; then no case runs.
pub(super) async fn capture(args: &RunArgs) -> Result<Option<(PathBuf, Vec<u8>)>, CliError> {
    if !args.snapshot_header.is_empty() && args.snapshot_url.is_none() {
        return Err(CliError::new(
            Exit::Usage,
            format!("{} goes with --snapshot-url, and there is none", args.said("snapshot_header")),
        ));
    }
    let (name, bytes) = match (&args.snapshot, &args.snapshot_command, &args.snapshot_url) {
        (None, None, None) => return Ok(None),
        (Some(file), _, _) => {
            let bytes = std::fs::read(file)
                .map_err(|error| CliError::new(Exit::Usage, format!("cannot read {}: {error}", file.display())))?;
            (file.clone(), bytes)
        }
        (None, Some(command), _) => (PathBuf::from("snapshot.json"), run(command).await?),
        (None, None, Some(url)) => (PathBuf::from("snapshot.json"), get(url, &args.snapshot_header).await?),
    };
    suite::parse_data(&name.display().to_string(), &bytes)
        .map_err(|errors| failed(args, &format!("what was captured is no object of values: {errors}")))?;
    Ok(Some((name, bytes)))
}

/// A file that is wrong is wrong usage; a command or an address that fails is trouble.
fn failed(args: &RunArgs, why: &str) -> CliError {
    let exit = if args.snapshot.is_some() { Exit::Usage } else { Exit::CouldNotRun };
    let of = args.snapshot_url.as_ref().map(|url| format!(" of {url}")).unwrap_or_default();
    CliError::new(exit, format!("the snapshot{of}: {why}"))
}

async fn get(url: &str, headers: &[RequestHeader]) -> Result<Vec<u8>, CliError> {
    let target: HttpUrl = url.parse().map_err(|error| {
        CliError::new(Exit::Usage, format!("{:?} is no address of a snapshot: {error}", without_user(url)))
    })?;
    let failed = |why: String| CliError::new(Exit::CouldNotRun, format!("the snapshot: {why}"));
    let client = HttpClient::new(target, headers).map_err(|error| match error {
        ClientError::Header(error) => CliError::new(Exit::Usage, error.to_string()),
        ClientError::Tls(_) => failed(error.to_string()),
    })?;
    let connected = CancellationToken::new();
    let untraced = TraceHeaders::default();
    let asked = client.exchange(Method::GET, None, &untraced, MAX_BYTES, &connected);
    let reply = tokio::time::timeout(PATIENCE, asked).await;
    let reply = reply.map_err(|_| failed(format!("{url} gave no answer within {} s", PATIENCE.as_secs())))?;
    let reply = reply.map_err(|trouble| failed(trouble.to_string()))?;
    if reply.status.is_success() { Ok(reply.body) } else { Err(failed(client.refusal(&reply))) }
}

async fn run(command: &str) -> Result<Vec<u8>, CliError> {
    let failed = |why: String| CliError::new(Exit::CouldNotRun, format!("the snapshot command {command:?} {why}"));
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(format!("cannot be started: {error}")))?;
    let stdout = child.stdout.take();
    let written = async {
        let mut bytes = Vec::new();
        if let Some(stdout) = stdout {
            // One more than it may write: then it is ended.
            stdout.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).await?;
        }
        let status = if bytes.len() > MAX_BYTES { None } else { Some(child.wait().await?) };
        Ok::<_, std::io::Error>((bytes, status))
    };
    let written = tokio::time::timeout(PATIENCE, written).await;
    let written = written.map_err(|_| failed(format!("did not end within {} s", PATIENCE.as_secs())))?;
    match written.map_err(|error| failed(format!("cannot be read: {error}")))? {
        (_, None) => Err(failed(format!("wrote more than {MAX_BYTES} bytes"))),
        (bytes, Some(status)) if status.success() => Ok(bytes),
        (_, Some(status)) => Err(failed(format!("ended with {status}"))),
    }
}
