//! `GetHistory`: a dialogue of a run as cases without a simulator.

use std::fs::File;
use std::sync::Arc;

use tonic::Status;

use super::manager::Manager;
use super::open::read_suite;
use super::status::{of_create, of_store, of_wire};
use super::turns::Party;
use crate::bundle::Bundle;
use crate::event::{Run, RunEvent};
use crate::report::history::History;
use crate::script::reading::ScriptReader;
use crate::store::{Cursor, Stored};
use crate::suite::automaton::Pool;
use crate::suite::{Case, Defaults};
use crate::wire::control as pb;
use crate::wire::record::{Kind, Record};
use crate::wire::value::WireError;

type Lines = Box<dyn Iterator<Item = Result<pb::GetHistoryResponse, Status>> + Send>;

pub(super) type Responses = tokio_stream::Iter<Lines>;

/// Looks up what was said, and what the suite asserts, and gives the cases as they are read.
pub(super) async fn history(
    manager: &Manager,
    client: Option<Party>,
    request: pb::GetHistoryRequest,
) -> Result<Responses, Status> {
    let run = manager.store().run(&request.run_id).await.map_err(|error| of_store(&error))?;
    let (suite, verdict) = verdict(manager, &request).await?;
    let case = case(manager, client, &run, suite, request.case_id.clone()).await?;
    let history = History::new(case, verdict).ok_or_else(|| {
        let problem = format!("{:?} is no dialogue: it already is a case with its history", request.case_id);
        of_wire(&WireError::new("case_id", problem))
    })?;
    let lines = history.map(|case| Ok(pb::GetHistoryResponse { case }));
    Ok(tokio_stream::iter(Box::new(lines) as Lines))
}

/// The verdict on the case, and its suite.
async fn verdict(manager: &Manager, request: &pb::GetHistoryRequest) -> Result<(Arc<str>, Arc<RunEvent>), Status> {
    let mut found: Option<(Arc<str>, Arc<RunEvent>)> = None;
    let log = Cursor::new(manager.store(), &request.run_id, 0).await;
    let mut log = log.map_err(|error| of_store(&error))?;
    let is_verdict =
        |record: &Record| record.kind == Kind::CaseFinished && record.case_id() == Some(request.case_id.as_str());
    while let Some(events) = log.events(is_verdict).await.map_err(|error| of_store(&error))? {
        for Stored { event, .. } in &events {
            let Some(case) = &event.case else { continue };
            let is_wanted =
                case.repeat == request.repeat.max(1) && (request.suite.is_empty() || *case.suite == *request.suite);
            if !is_wanted {
                continue;
            }
            if let Some((other, _)) = &found {
                let problem = format!("both {other} and {} have a case {:?}: name one", case.suite, request.case_id);
                return Err(of_wire(&WireError::new("suite", problem)));
            }
            found = Some((Arc::clone(&case.suite), Arc::clone(event)));
        }
    }
    found.ok_or_else(|| {
        let problem = format!("the run has no verdict on a case {:?}", request.case_id);
        of_wire(&WireError::new("case_id", problem))
    })
}

/// The case as its suite has it: the bundle of the run is kept as long as the run.
async fn case(
    manager: &Manager,
    client: Option<Party>,
    run: &Run,
    suite: Arc<str>,
    id: String,
) -> Result<Case, Status> {
    let defaults = Defaults { simulator: run.spec.simulator.clone(), files_outside: true };
    let find = move |packed: &Arc<File>| {
        let bundle = Bundle::open(packed).ok()?;
        let read = read_suite(
            &suite,
            bundle.text(&suite)?,
            &bundle,
            &defaults,
            &mut Pool::default(),
            &mut ScriptReader::default(),
        )
        .ok()?;
        let position = read.cases.iter().position(|case| case.id == id)?;
        read.load(position).ok().map(Arc::unwrap_or_clone)
    };
    let found = manager.read_in_bundle(client, &run.spec, find).await.map_err(|error| of_create(&error))?;
    found.ok_or_else(|| Status::internal("the bundle of the run does not hold the case any more"))
}
