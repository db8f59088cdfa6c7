//! `GenerateCases`: asks a generator for cases and passes them on as they come.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::manager::Manager;
use super::status::{of_directory, of_generator, of_wire};
use super::turns::Turn;
use crate::case::CaseRef;
use crate::conversation::MaybeJson;
use crate::peer::agent::Agent;
use crate::peer::generator::Wanted;
use crate::peer::output::Outputs;
use crate::peer::party::{Belongs, Silence};
use crate::suite::timeout::MAX_TIMEOUT;
use crate::trace::TraceHeaders;
use crate::wire::control as pb;
use crate::wire::control::generate_cases_response::Item;
use crate::wire::value::{WireError, duration_from_proto, json_from_proto};

/// Most cases of one call.
const MAX_CASES: u32 = 10_000;
/// Most ids that are named as taken, and most parameters.
const MAX_NAMED: usize = 10_000;
/// Time for all cases when the client says nothing.
const BUDGET: Duration = Duration::from_mins(5);
/// Time to ask the agent under test what it is, for the generator's sake; it need not be there.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time for a client to take what is left when the time is over.
const GRACE: Duration = Duration::from_secs(10);
/// Cases that wait for the client; the generator waits when there are more.
const WAITING: usize = 16;

pub(super) type Responses = ReceiverStream<Result<pb::GenerateCasesResponse, Status>>;

/// Checks the request and asks the generator, in a task that ends with the client.
pub(super) fn generate(
    manager: &Manager,
    outputs: &Outputs,
    turn: Turn,
    request: pb::GenerateCasesRequest,
) -> Result<Responses, Status> {
    let targets: Vec<(String, String)> =
        request.targets.iter().map(|target| (target.agent_id.clone(), target.url.clone())).collect();
    let find = |name: &str| manager.directory().find(name, &targets).map_err(|error| of_directory(&error));
    let (generator, target) = (find(&request.generator_id)?, find(&request.agent_id)?);
    let (wanted, budget) = read(request).map_err(|error| of_wire(&error))?;
    let (sender, responses) = mpsc::channel(WAITING);
    let (name, outputs) = (generator.name.clone(), outputs.clone());
    manager.spawn(async move {
        let asking = Box::pin(ask(generator, target, wanted, budget, outputs, sender.clone()));
        if AssertUnwindSafe(asking).catch_unwind().await.is_err() {
            tracing::error!(generator = ?name, "asking a generator panicked");
            // Else the client would take what came for everything.
            let failed = of_generator(&name, "the daemon failed while it asked");
            let _ = tokio::time::timeout(GRACE, sender.send(Err(failed))).await;
        }
        drop(turn);
    });
    Ok(ReceiverStream::new(responses))
}

fn read(request: pb::GenerateCasesRequest) -> Result<(Wanted, Duration), WireError> {
    if !(1..=MAX_CASES).contains(&request.count) {
        return Err(WireError::new("count", format!("is {}, and must be from 1 to {MAX_CASES}", request.count)));
    }
    if request.existing_case_ids.len() > MAX_NAMED || request.params.len() > MAX_NAMED {
        return Err(WireError::new(
            "existing_case_ids",
            format!("at most {MAX_NAMED} are allowed, and at most {MAX_NAMED} params"),
        ));
    }
    let budget = match request.budget {
        None => BUDGET,
        Some(budget) => duration_from_proto(budget)
            .filter(|budget| !budget.is_zero() && *budget <= MAX_TIMEOUT)
            .ok_or_else(|| WireError::new("budget", "must be more than 0 and at most a day"))?,
    };
    let mut params = Vec::new();
    for (key, value) in request.params {
        match json_from_proto(Some(value)) {
            Some(MaybeJson::Json(value)) => params.push((key, value.parse())),
            Some(MaybeJson::Malformed(_)) | None => {
                return Err(WireError::new("params", format!("the value of {key:?} is no JSON")));
            }
        }
    }
    params.sort_by(|one, other| one.0.cmp(&other.0));
    let wanted = Wanted {
        count: request.count,
        focus: request.focus,
        target_agent: request.agent_id,
        target: None,
        params,
        existing: request.existing_case_ids,
    };
    Ok((wanted, budget))
}

async fn ask(
    generator: Agent,
    target: Agent,
    wanted: Wanted,
    budget: Duration,
    outputs: Outputs,
    responses: mpsc::Sender<Result<pb::GenerateCasesResponse, Status>>,
) {
    let deadline = Instant::now() + budget;
    let described = tokio::time::timeout(PATIENCE, target.describe(Duration::ZERO)).await;
    let card = described.ok().and_then(Result::ok).map(|(description, _)| description.card);
    let wanted = Wanted { target: card, ..wanted };
    let belongs = Belongs {
        run_id: String::new(),
        // It is no case that asks.
        case: CaseRef { suite: "".into(), case_id: "".into(), repeat: 1, attempt: 1 },
        turn: 0,
        deadline,
        request_id: uuid::Uuid::new_v4().to_string(),
        trace: TraceHeaders::default(),
        outputs,
    };
    let respond = |item| Ok(pb::GenerateCasesResponse { item: Some(item) });
    let (sender, mut cases) = mpsc::channel(1);
    let generate = async {
        let ended = generator.generate(&belongs, &wanted, &sender).await;
        drop(sender);
        ended
    };
    let pass_on = async {
        while let Some(case) = cases.recv().await {
            if responses.send(respond(Item::Case(case))).await.is_err() {
                break;
            }
        }
        // Dropped here: a generator whose cases nobody takes is told so.
        drop(cases);
    };
    let both = tokio::time::timeout_at(deadline + GRACE, async { tokio::join!(generate, pass_on) });
    let ended = tokio::select! {
        // A client that does not read has had its time, too.
        ended = both => match ended {
            Ok((ended, ())) => ended,
            Err(_) => return,
        },
        () = responses.closed() => return,
    };
    let last = match ended {
        Ok(ended) => {
            respond(Item::Summary(pb::GeneratedCases { produced: ended.produced, discarded: ended.discarded }))
        }
        Err(Silence::Timeout) => Err(of_generator(&generator.name, &format!("it did not end within {budget:?}"))),
        Err(Silence::Failed(why)) => Err(of_generator(&generator.name, &why)),
    };
    // Nobody to tell is nobody to care.
    let _ = tokio::time::timeout(GRACE, responses.send(last)).await;
}
