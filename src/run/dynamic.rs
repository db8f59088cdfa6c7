//! Drives a dialogue: simulator, agent, checkpoints, and again, under the one deadline of its case.

use tokio::time::Instant;
use uuid::Uuid;

use super::ask::{ask, metadata, with_test_mode};
use super::call::{Call, call};
use super::case::{QUICK_BYTES, Started};
use super::{LogClosed, Shared};
use crate::check::dialogue::{Ending, Progress};
use crate::check::framework::{Replies, evaluate};
use crate::check::{ending_of, judge_dialogue};
use crate::conversation::{Failure, Invocation, Message, Role, Transcript};
use crate::event::{CaseRef, Payload};
use crate::peer::party::{Belongs, Silence};
use crate::plan::PlannedCase;
use crate::suite::claim::Claim;
use crate::suite::{Dialogue, Mode};
use crate::usage::add_cost;
use crate::verdict::{AssertionResult, Blame, CaseResult, Cause, Outcome};
use crate::wire::party::{Input, NextInput};

/// What a dialogue needs to know of its case.
pub(super) struct Drive<'a> {
    pub(super) shared: &'a Shared,
    pub(super) planned: &'a PlannedCase,
    pub(super) case_ref: &'a CaseRef,
    pub(super) dialogue: &'a Dialogue,
    pub(super) started: Started,
}

/// What is recorded of the agent over all turns.
#[derive(Default)]
struct Record {
    transcript: Transcript,
    warnings: Vec<String>,
    began: Option<Instant>,
}

impl Record {
    /// Adds one turn: the last answer counts as the answer, the calls follow each other.
    fn add(&mut self, turn: Transcript, warnings: Vec<String>) {
        self.transcript.response = turn.response;
        self.transcript.tool_calls.extend(turn.tool_calls);
        if let Some(usage) = &turn.usage {
            self.transcript.usage.get_or_insert_default().add(usage);
        }
        self.warnings.extend(warnings);
    }
}

/// Runs the dialogue to its end.
pub(super) async fn run(case: &Drive<'_>) -> Result<CaseResult, LogClosed> {
    let (opening, first) = opening(&case.planned.case().messages);
    let mut progress = Progress::new(case.dialogue, opening);
    let mut record = Record { began: Some(Instant::now()), ..Record::default() };
    let ending = play(case, &mut progress, &mut record, first).await?;
    record.transcript.duration = record.began.map(|began| began.elapsed()).unwrap_or_default();
    Ok(judge_dialogue(progress, ending, record.transcript, record.warnings))
}

/// The messages that the case begins with: what stands before the last one of the user, and that one, which opens the
/// dialogue in place of the simulator.
fn opening(messages: &[Message]) -> (Vec<Message>, Option<Message>) {
    match messages.split_last() {
        Some((last, before)) if last.role == Role::User => (before.to_vec(), Some(last.clone())),
        _ => (messages.to_vec(), None),
    }
}

async fn play(
    case: &Drive<'_>,
    progress: &mut Progress<'_>,
    record: &mut Record,
    mut first: Option<Message>,
) -> Result<Ending, LogClosed> {
    // One conversation, whatever the simulator says.
    let conversation_id = Uuid::new_v4().to_string();
    loop {
        let turn = progress.next_turn();
        let input = match first.take() {
            Some(message) => Input { message: Some(message), is_last: false },
            None => match next_input(case, progress, turn).await {
                Ok(input) => input,
                Err(ending) => return Ok(ending),
            },
        };
        let Some(message) = input.message else {
            if input.is_last {
                return Ok(left(progress));
            }
            return Ok(simulator_error("it said nothing"));
        };
        progress.say(message);
        let answered = invoke(case, progress, turn, &conversation_id).await?;
        let (mut transcript, warnings) = match answered {
            Ok(answered) => answered,
            Err((failure, transcript, warnings)) => {
                record.add(transcript, warnings);
                return Ok(ending_of(failure, Some(&case.started.timeout.written)));
            }
        };
        if let Some(price) = case.shared.price(None) {
            add_cost(&mut transcript, progress.conversation(), price);
        }
        progress.answer(&transcript.response);
        if let Some(said) = progress.last_turn() {
            case.shared.journal.case(case.case_ref, turn, Payload::TurnFinished(said.clone())).await?;
        }
        let checked = checkpoints(case, progress, turn, &transcript).await?;
        record.add(transcript, warnings);
        if let Err(ending) = checked {
            return Ok(ending);
        }
        if let Some(ending) = progress.ending(input.is_last) {
            return Ok(ending);
        }
    }
}

/// The end of a dialogue whose user has nothing more to say. If the agent was never asked, it is not the agent's doing.
fn left(progress: &Progress<'_>) -> Ending {
    match progress.ending(true) {
        Some(Ending::Bad { error, .. }) if progress.last_turn().is_none() => {
            Ending::Bad { outcome: Outcome::Errored, cause: Cause::SimulatorError, blame: Blame::Simulator, error }
        }
        Some(ending) => ending,
        None => progress.missing_ending(),
    }
}

/// Asks the simulator; an error is how the dialogue ends without an input.
async fn next_input(case: &Drive<'_>, progress: &Progress<'_>, turn: u32) -> Result<Input, Ending> {
    let simulator = &case.dialogue.simulator;
    let Some(party) = case.shared.parties.get(&simulator.agent) else {
        return Err(simulator_error("there is no such agent"));
    };
    let options = with_test_mode(simulator.options.as_ref(), "simulator", Some(turn));
    let asked = NextInput {
        persona: metadata(&options, "persona"),
        goal: metadata(&options, "goal"),
        conversation: progress.conversation(),
        turn,
        max_turns: case.dialogue.max_turns,
        checkpoints: progress
            .checkpoints()
            .map(|(checkpoint, reached)| (checkpoint.id.as_str(), checkpoint.description.as_str(), reached))
            .collect(),
        options: &options,
    };
    let belongs = belongs(case, turn);
    let answer = tokio::select! {
        biased;
        () = case.shared.control.cancel.cancelled() => return Err(ending_of(Failure::Cancelled, None)),
        answer = party.next_input(&belongs, &asked) => answer,
    };
    answer.map_err(|silence| match silence {
        Silence::Failed(why) => simulator_error(&why),
        // The time of the case is up, and it is not the agent that used it up.
        Silence::Timeout => Ending::Bad {
            outcome: Outcome::Errored,
            cause: Cause::SimulatorError,
            blame: Blame::Simulator,
            error: format!("timeout after {}", case.started.timeout.written),
        },
    })
}

fn simulator_error(why: &str) -> Ending {
    Ending::Bad {
        outcome: Outcome::Errored,
        cause: Cause::SimulatorError,
        blame: Blame::Simulator,
        error: format!("simulator error: {why}"),
    }
}

fn belongs(case: &Drive<'_>, turn: u32) -> Belongs {
    Belongs {
        run_id: case.shared.run_id.clone(),
        suite: case.planned.suite.path.clone(),
        case_id: case.case_ref.case_id.to_string(),
        turn,
        attempt: case.case_ref.attempt,
        deadline: case.started.deadline,
    }
}

type Answered = Result<(Transcript, Vec<String>), (Failure, Transcript, Vec<String>)>;

/// Calls the agent with everything that was said.
async fn invoke(
    case: &Drive<'_>,
    progress: &Progress<'_>,
    turn: u32,
    conversation_id: &str,
) -> Result<Answered, LogClosed> {
    let shared = case.shared;
    let invocation = Invocation {
        agent_id: shared.agent_id(),
        run_id: shared.run_id.clone(),
        suite: case.planned.suite.path.clone(),
        case_id: case.case_ref.case_id.to_string(),
        attempt: case.case_ref.attempt,
        turn,
        // The first call is the one that the log announced.
        invocation_id: if turn == 1 { case.started.invocation_id.clone() } else { Uuid::new_v4().to_string() },
        conversation_id: conversation_id.to_owned(),
        messages: progress.conversation().to_vec(),
        options: shared.options_for(case.planned.case()),
        tool_mode: case.started.tool_mode,
        max_model_turns: None,
        budget: case.started.timeout.duration,
    };
    let deadline = case.started.deadline;
    let exchange = call(Call { shared, case: case.case_ref, invocation, stubs: None, deadline }).await?;
    Ok(match exchange.failure {
        None => Ok((exchange.transcript, exchange.warnings)),
        Some(failure) => Err((failure, exchange.transcript, exchange.warnings)),
    })
}

/// Looks at the open checkpoints once, in declared order; one that is reached counts at once for those behind it.
async fn checkpoints(
    case: &Drive<'_>,
    progress: &mut Progress<'_>,
    turn: u32,
    transcript: &Transcript,
) -> Result<Result<(), Ending>, LogClosed> {
    let belongs = belongs(case, turn);
    let mut from = 0;
    while let Some(position) = progress.next_open(from) {
        let checkpoint = &case.dialogue.checkpoints[position];
        let before = progress.conversation().split_last().map_or(&[][..], |(_, before)| before);
        let replies = tokio::select! {
            biased;
            () = case.shared.control.cancel.cancelled() => return Ok(Err(ending_of(Failure::Cancelled, None))),
            replies = ask(case.shared, &checkpoint.claims, before, transcript, &belongs) => replies,
        };
        let results = evaluated(case.planned, position, transcript, replies).await;
        match progress.look(position, &results) {
            Err(ending) => return Ok(Err(ending)),
            Ok(true) => {
                let reached = Payload::CheckpointReached { checkpoint: checkpoint.id.clone() };
                case.shared.journal.case(case.case_ref, turn, reached).await?;
            }
            Ok(false) => {}
        }
        from = position + 1;
    }
    Ok(Ok(()))
}

/// What comes of the claims of a checkpoint; patterns, and long answers, take time that is not a runtime thread's to give.
async fn evaluated(
    planned: &PlannedCase,
    position: usize,
    transcript: &Transcript,
    replies: Replies,
) -> Vec<AssertionResult> {
    let claims = match &planned.case().mode {
        Mode::Dynamic(dialogue) => dialogue.checkpoints[position].claims.clone(),
        Mode::Single | Mode::Stubbed { .. } => Vec::new(),
    };
    if !claims.iter().any(Claim::is_slow) && transcript.response.len() <= QUICK_BYTES {
        return evaluate(&claims, transcript, &replies);
    }
    let transcript = transcript.clone();
    let judged = tokio::task::spawn_blocking(move || evaluate(&claims, &transcript, &replies)).await;
    judged.unwrap_or_else(|error| {
        vec![AssertionResult {
            name: "checkpoint".to_owned(),
            outcome: Outcome::Errored,
            reason: format!("the daemon failed while it judged this checkpoint: {error}"),
            unresolved_tokens: Vec::new(),
            blame: Some(Blame::Daemon),
            written: None,
            opinion: None,
        }]
    })
}
