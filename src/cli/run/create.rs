//! The daemon is asked for a run, and sent the bundle if it does not have it.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use uuid::Uuid;

use crate::cli::client::Client;
use crate::cli::{CliError, Exit};
use crate::daemon::status::BUNDLE_MISSING;
use crate::event::Run;
use crate::plan::RunSpec;
use crate::wire::control as pb;
use crate::wire::run::run_from_proto;
use crate::wire::spec::spec_to_proto;

/// Bytes of a bundle that are sent at a time.
const CHUNK: usize = 256 << 10;
/// Time for a bundle on its way.
const UPLOAD: Duration = Duration::from_mins(30);
/// Time for a daemon to read the suites and accept a run.
const CREATE: Duration = Duration::from_mins(2);

/// Creates the run, and uploads the bundle if the daemon does not have it yet.
pub(super) async fn create(client: &Client, spec: &RunSpec, packed: File) -> Result<Run, CliError> {
    let request = pb::CreateRunRequest {
        // The same id both times: should the first answer get lost, there is still only one run.
        request_id: Uuid::new_v4().to_string(),
        spec: Some(spec_to_proto(spec)),
        validate_only: false,
    };
    let create = async || {
        let mut runs = client.runs();
        client.ask_within(CREATE, "starting the run", runs.create_run(request.clone())).await
    };
    // The daemon has the bundle if the same was sent before; asking is cheaper than sending.
    let packed = std::sync::Arc::new(packed);
    let created = client.again(async || match create().await {
        Err(error) if error.reason == BUNDLE_MISSING => {
            upload(client, spec, &packed).await?;
            create().await
        }
        created => created,
    });
    let created = created.await?;
    read_run(created.run)
}

/// Reads a run that a daemon answered.
pub(in crate::cli) fn read_run(run: Option<pb::Run>) -> Result<Run, CliError> {
    let unreadable =
        |why: String| CliError::new(Exit::CouldNotRun, format!("the daemon's answer cannot be read: {why}"));
    run_from_proto(run.ok_or_else(|| unreadable("it holds no run".to_owned()))?)
        .map_err(|error| unreadable(error.to_string()))
}

async fn upload(client: &Client, spec: &RunSpec, packed: &std::sync::Arc<File>) -> Result<(), CliError> {
    use pb::upload_bundle_request::Frame;
    let bundle = spec_to_proto(spec).bundle.unwrap_or_default();
    // Read as the daemon takes it. What cannot be read ends the stream, and the daemon says that bytes are missing.
    let (packed, mut position) = (std::sync::Arc::clone(packed), 0);
    let chunks = std::iter::from_fn(move || {
        let mut chunk = vec![0; CHUNK];
        let read = packed.read_at(&mut chunk, position).ok()?;
        chunk.truncate(read);
        position += read as u64;
        (read > 0).then_some(Frame::Chunk(chunk))
    });
    let frames = std::iter::once(Frame::Header(bundle)).chain(chunks);
    let frames = tokio_stream::iter(frames.map(|frame| pb::UploadBundleRequest { frame: Some(frame) }));
    client.ask_within(UPLOAD, "uploading the suite", client.runs().upload_bundle(frames)).await.map(|_| ())
}
