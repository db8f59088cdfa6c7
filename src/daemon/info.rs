//! Says what this daemon is.

use tonic::{Request, Response, Status};

use crate::bundle::MAX_BUNDLE_BYTES;
use crate::wire::control::info_service_server::InfoService;
use crate::wire::control::{GetInfoRequest, GetInfoResponse};
use crate::wire::{MAX_REVISION, MIN_REVISION};

/// Largest message that the daemon takes.
pub(super) const MAX_MESSAGE_BYTES: usize = 32 << 20;

pub(super) struct Info;

#[tonic::async_trait]
impl InfoService for Info {
    async fn get_info(&self, _: Request<GetInfoRequest>) -> Result<Response<GetInfoResponse>, Status> {
        Ok(Response::new(GetInfoResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            min_revision: MIN_REVISION,
            max_revision: MAX_REVISION,
            features: vec!["suites.contract".to_owned(), "tools.stub".to_owned()],
            max_message_bytes: i64::try_from(MAX_MESSAGE_BYTES).unwrap_or(i64::MAX),
            max_bundle_bytes: i64::try_from(MAX_BUNDLE_BYTES).unwrap_or(i64::MAX),
        }))
    }
}
