//! `RunService`: bundles in, runs and their logs out.

use std::sync::Arc;
use std::time::Duration;

use tonic::{Code, Request, Response, Status, Streaming};

use super::artifact::{self, Artifacts};
use super::door::files;
use super::intake::{client_of, peer_of};
use super::manager::Manager;
use super::outbox::Ticket;
use super::places::Places;
use super::status::{BUSY, of_bundles, of_create, of_memory, of_store, of_wire, with_reason};
use super::turns::Turns;
use super::watch::{self, Watch};
use super::{generate, history};
use crate::bundle::MAX_BUNDLE_BYTES;
use crate::event::Run;
use crate::limits::{GENERATORS, UPLOAD_RATE, UPLOADS};
use crate::peer::output::Outputs;
use crate::plan::MAX_CONCURRENCY;
use crate::store::{CaseRow, Filter};
use crate::wire::control as pb;
use crate::wire::control::run_service_server::RunService;
use crate::wire::run::{run_to_proto, states_from_proto, time_from_proto, time_to_proto};
use crate::wire::spec::{bundle_from_proto, few_labels, spec_from_proto};
use crate::wire::value::{WireError, duration_to_proto, some_text};
use crate::wire::verdict::{blame_to_proto, cause_to_proto, outcome_to_proto};

/// Runs on a page when the client does not say how many.
const DEFAULT_PAGE: usize = 50;
/// Bytes of a bundle that count as a sign of life.
const UPLOAD_NEWS: usize = 64 << 10;
/// Most runs on a page.
const MAX_PAGE: usize = 500;

pub(super) struct Runs {
    manager: Arc<Manager>,
    artifacts: Artifacts,
    /// For bundles that come in.
    uploads: Arc<Places>,
    /// What comes of generators that are asked now.
    generated: Outputs,
    /// For generators that are asked.
    generating: Arc<Turns>,
}

impl Runs {
    pub(super) fn new(manager: Arc<Manager>) -> Self {
        let uploads = Places::new(UPLOADS.min(files() / 16).max(1));
        let (generated, generating) = (Outputs::default(), Turns::new(GENERATORS));
        Self { manager, artifacts: Artifacts::default(), uploads, generated, generating }
    }

    async fn run(&self, run_id: &str) -> Result<Run, Status> {
        self.manager.store().run(run_id).await.map_err(|error| of_store(&error))
    }
}

#[tonic::async_trait]
impl RunService for Runs {
    async fn upload_bundle(
        &self,
        request: Request<Streaming<pb::UploadBundleRequest>>,
    ) -> Result<Response<pb::UploadBundleResponse>, Status> {
        use pb::upload_bundle_request::Frame;
        let Some(place) = self.uploads.take(peer_of(request.extensions()), 1) else {
            return Err(Status::resource_exhausted("too many bundles come in at the same time; try again"));
        };
        let mut frames = request.into_inner();
        let Some(Frame::Header(header)) = frames.message().await?.and_then(|first| first.frame) else {
            return Err(of_wire(&WireError::new("header", "must be the first frame")));
        };
        let (digest, size) = bundle_from_proto(&header).map_err(|error| of_wire(&error))?;
        if size > MAX_BUNDLE_BYTES {
            let problem = format!("is {size}, {MAX_BUNDLE_BYTES} are allowed");
            return Err(of_wire(&WireError::new("header.size_bytes", problem)));
        }
        let bundles = self.manager.bundles();
        if bundles.contains(&digest).await {
            return Ok(Response::new(pb::UploadBundleResponse { bundle: Some(header), already_present: true }));
        }
        self.manager.has_memory().map_err(of_memory)?;
        let mut incoming = bundles.receive(digest, size).map_err(|error| of_bundles(&error))?;
        let receive = async {
            let mut news = 0;
            while let Some(message) = frames.message().await? {
                match message.frame {
                    Some(Frame::Chunk(chunk)) => {
                        news += chunk.len();
                        if news >= UPLOAD_NEWS {
                            news = 0;
                            place.heard();
                        }
                        incoming.write(&chunk).await.map_err(|error| of_bundles(&error))?;
                    }
                    Some(Frame::Header(_)) => return Err(of_wire(&WireError::new("header", "came twice"))),
                    None => {}
                }
            }
            Ok(())
        };
        let time = Duration::from_mins(1) + Duration::from_secs(size / UPLOAD_RATE);
        tokio::select! {
            received = tokio::time::timeout(time, receive) => {
                received.unwrap_or_else(|_| Err(Status::deadline_exceeded("the bundle comes in too slowly")))?;
            }
            () = place.gone().cancelled() => {
                return Err(Status::resource_exhausted("the bundle did not come on, and others wait; try again"));
            }
        }
        incoming.finish().await.map_err(|error| of_bundles(&error))?;
        let used = self.manager.store().used_bundles().await;
        let mut used = used.map_err(|error| of_store(&error))?;
        used.insert(digest);
        bundles.prune(used).await;
        Ok(Response::new(pb::UploadBundleResponse { bundle: Some(header), already_present: false }))
    }

    async fn create_run(
        &self,
        request: Request<pb::CreateRunRequest>,
    ) -> Result<Response<pb::CreateRunResponse>, Status> {
        let client = client_of(request.extensions());
        let request = request.into_inner();
        let spec = request.spec.ok_or_else(|| of_wire(&WireError::new("spec", "is not set")))?;
        let spec = spec_from_proto(spec).map_err(|error| of_wire(&error))?;
        let manager = Arc::clone(&self.manager);
        let create = async move { manager.create(client, &request.request_id, spec, request.validate_only).await };
        let (run, deduplicated) = to_its_end(create).await?.map_err(|error| of_create(&error))?;
        Ok(Response::new(pb::CreateRunResponse { run: Some(run_to_proto(&run)), deduplicated }))
    }

    type WatchRunStream = watch::Responses;

    async fn watch_run(&self, request: Request<pb::WatchRunRequest>) -> Result<Response<Self::WatchRunStream>, Status> {
        let ticket = Ticket::of(&request);
        let watch = Watch::new(self.manager.store(), ticket, request.into_inner()).await?;
        Ok(Response::new(watch.responses()))
    }

    async fn get_run(&self, request: Request<pb::GetRunRequest>) -> Result<Response<pb::GetRunResponse>, Status> {
        let run = self.run(&request.into_inner().run_id).await?;
        Ok(Response::new(pb::GetRunResponse { run: Some(run_to_proto(&run)) }))
    }

    async fn list_runs(&self, request: Request<pb::ListRunsRequest>) -> Result<Response<pb::ListRunsResponse>, Status> {
        let request = request.into_inner();
        let size = page_size(request.page_size, DEFAULT_PAGE, MAX_PAGE)?;
        let filter = Filter {
            states: states_from_proto(&request.states).map_err(|error| of_wire(&error))?,
            before: some_text(request.page_token),
            agent: some_text(request.agent_id),
            suite: some_text(request.suite),
            labels: few_labels("labels", request.labels).map_err(|error| of_wire(&error))?,
            since: request.since.map(|at| time_from_proto(Some(at), "since")).transpose().map_err(|e| of_wire(&e))?,
            until: request.until.map(|at| time_from_proto(Some(at), "until")).transpose().map_err(|e| of_wire(&e))?,
        };
        let (runs, oldest) = self.manager.store().heads(&filter, size).await.map_err(|error| of_store(&error))?;
        Ok(Response::new(pb::ListRunsResponse { runs, next_page_token: oldest.unwrap_or_default() }))
    }

    async fn cancel_run(
        &self,
        request: Request<pb::CancelRunRequest>,
    ) -> Result<Response<pb::CancelRunResponse>, Status> {
        let request = request.into_inner();
        let (manager, run_id) = (Arc::clone(&self.manager), request.run_id.clone());
        let cancelled = to_its_end(async move { manager.cancel(&run_id).await }).await?;
        let run = cancelled.map_err(|error| of_store(&error))?;
        // With `?`, because the reason is a client's text and a log is read on terminals.
        tracing::info!(run = %run.run_id, reason = ?request.reason, "cancel asked for");
        Ok(Response::new(pb::CancelRunResponse { run: Some(run_to_proto(&run)) }))
    }

    async fn update_run(
        &self,
        request: Request<pb::UpdateRunRequest>,
    ) -> Result<Response<pb::UpdateRunResponse>, Status> {
        let pb::UpdateRunRequest { run_id, paused, concurrency } = request.into_inner();
        if concurrency.is_some_and(|most| !(1..=MAX_CONCURRENCY).contains(&most)) {
            let problem = format!("must be from 1 to {MAX_CONCURRENCY}");
            return Err(of_wire(&WireError::new("concurrency", problem)));
        }
        let manager = Arc::clone(&self.manager);
        let paced = to_its_end(async move { manager.pace(&run_id, paused, concurrency).await }).await?;
        let run = paced.map_err(|error| of_store(&error))?;
        Ok(Response::new(pb::UpdateRunResponse { run: Some(run_to_proto(&run)) }))
    }

    async fn delete_run(
        &self,
        request: Request<pb::DeleteRunRequest>,
    ) -> Result<Response<pb::DeleteRunResponse>, Status> {
        let run_id = request.into_inner().run_id;
        self.manager.store().remove(&run_id).await.map_err(|error| of_store(&error))?;
        tracing::info!(run = ?run_id, "a run was removed");
        Ok(Response::new(pb::DeleteRunResponse {}))
    }

    async fn list_verdicts(
        &self,
        request: Request<pb::ListVerdictsRequest>,
    ) -> Result<Response<pb::ListVerdictsResponse>, Status> {
        let request = request.into_inner();
        let size = page_size(request.page_size, DEFAULT_PAGE, MAX_PAGE)?;
        let suite = some_text(request.suite);
        let rows = self.manager.store().history(&request.case_id, suite.as_deref(), size).await;
        let rows = rows.map_err(|error| of_store(&error))?;
        Ok(Response::new(pb::ListVerdictsResponse { verdicts: rows.iter().map(verdict_to_proto).collect() }))
    }

    type GetHistoryStream = history::Responses;

    async fn get_history(
        &self,
        request: Request<pb::GetHistoryRequest>,
    ) -> Result<Response<Self::GetHistoryStream>, Status> {
        let client = client_of(request.extensions());
        history::history(&self.manager, client, request.into_inner()).await.map(Response::new)
    }

    type GenerateCasesStream = generate::Responses;

    async fn generate_cases(
        &self,
        request: Request<pb::GenerateCasesRequest>,
    ) -> Result<Response<Self::GenerateCasesStream>, Status> {
        let turn = self.generating.try_take(Ticket::of(&request).client(), 1);
        let busy = || {
            format!("no more generators are asked now: {GENERATORS} at most, of one client three quarters; try again")
        };
        let turn = turn.ok_or_else(|| with_reason(Code::ResourceExhausted, BUSY, busy()))?;
        generate::generate(&self.manager, &self.generated, turn, request.into_inner()).map(Response::new)
    }

    type FetchArtifactStream = artifact::Responses;

    async fn fetch_artifact(
        &self,
        request: Request<pb::FetchArtifactRequest>,
    ) -> Result<Response<Self::FetchArtifactStream>, Status> {
        let grouper = |run: &Run| self.manager.grouper(run);
        let ticket = Ticket::of(&request);
        self.artifacts.fetch(self.manager.store(), ticket, request.into_inner(), grouper).await.map(Response::new)
    }
}

/// Does something that must not be left half done, also when the client that asked for it is gone meanwhile.
async fn to_its_end<T: Send + 'static>(act: impl Future<Output = T> + Send + 'static) -> Result<T, Status> {
    tokio::spawn(act).await.map_err(|_| Status::internal("the daemon failed while it did this"))
}

/// Entries of a page: what the client asked for, at most `most`; `default` if it asked for none.
pub(super) fn page_size(asked: i32, default: usize, most: usize) -> Result<usize, Status> {
    match usize::try_from(asked) {
        Ok(0) => Ok(default),
        Ok(size) => Ok(size.min(most)),
        Err(_) => Err(of_wire(&WireError::new("page_size", "must not be negative"))),
    }
}

/// What is stored of a verdict.
fn verdict_to_proto(row: &CaseRow) -> pb::CaseVerdict {
    pb::CaseVerdict {
        run_id: row.run_id.clone(),
        case: Some(pb::CaseRef {
            suite: row.suite.clone(),
            case_id: row.case_id.clone(),
            repeat: row.repeat,
            attempt: row.attempt,
        }),
        outcome: outcome_to_proto(row.outcome).into(),
        cause: row.cause.map_or(pb::Cause::Unspecified, cause_to_proto).into(),
        blame: row.blame.map_or(pb::Blame::Unspecified, blame_to_proto).into(),
        flaky: row.flaky,
        duration: Some(duration_to_proto(std::time::Duration::from_millis(row.duration_ms))),
        at: Some(time_to_proto(row.at)),
    }
}
