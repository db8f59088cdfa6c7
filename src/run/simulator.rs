//! Asks the simulator, which plays the user of a dialogue.

use tokio::time::Instant;

use super::asking::{Asking, metadata, texts, unless_cancelled, with_test_mode};
use super::loaded::Drive;
use super::shared::NoParty;
use super::traced::for_traces;
use crate::check::dialogue::{Ending, Progress};
use crate::check::ending_of;
use crate::conversation::party::{Input, NextInput};
use crate::conversation::{Failure, Message};
use crate::event::{Asked, PartyRole, Said};
use crate::json::Json;
use crate::peer::digest::digest_of_input;
use crate::peer::party::{Belongs, Silence};
use crate::verdict::{Blame, Cause, Outcome};
use crate::wire::value::shorten;
use crate::work::{JSON_MEMORY, in_place};

/// Asks the simulator; an error is how the dialogue ends without an input.
pub(super) async fn next_input(
    case: &Drive<'_>,
    progress: &Progress<'_>,
    turn: u32,
    deadline: Instant,
) -> Result<Input, Ending> {
    let simulator = &case.dialogue.simulator;
    let bytes = simulator.options.as_ref().map_or(0, Json::size) * JSON_MEMORY;
    let options = in_place(bytes, || with_test_mode(simulator.options.as_ref(), PartyRole::Simulator, Some(turn)));
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
    let digest = in_place(bytes, || digest_of_input(&asked));
    let belongs = case.belongs(turn, deadline).asking(&case.shared.trace);
    let told =
        || Asked { instructions: texts([asked.persona, asked.goal]), messages: for_traces(asked.conversation, None) };
    let party = case.shared.parties.get(&simulator.agent).filter(|_| case.shared.evidence.is_none());
    let asking = Asking::begin(case.shared, PartyRole::Simulator, &simulator.agent, party, &digest, &belongs, told);
    let input = match &case.shared.evidence {
        Some(evidence) => match evidence.said(&simulator.agent, &digest, case.case_ref, turn).await {
            Ok(Said::Input { message, is_last, reasoning }) => Ok(Input { message, is_last, reasoning, usage: None }),
            Ok(Said::Vote { .. } | Said::Silence(_) | Said::Cancelled) => {
                Err(simulator_error("it judged then, and spoke not"))
            }
            Err(why) => Err(simulator_error(&why.to_string())),
        },
        None => live_input(case, &asked, &belongs).await,
    };
    let input = input.and_then(without_files);
    let (said, usage) = match &input {
        Ok(Input { message, is_last, reasoning, usage }) => {
            (Said::Input { message: message.clone(), is_last: *is_last, reasoning: reasoning.clone() }, *usage)
        }
        // That it was cancelled says nothing about the simulator.
        Err(Ending::Bad { cause: Cause::Cancelled, .. } | Ending::Passed) => (Said::Cancelled, None),
        Err(Ending::Bad { error, .. }) => (Said::Silence(error.clone()), None),
    };
    asking.end(case.shared, case.case_ref, turn, said, usage).await;
    input
}

async fn live_input(case: &Drive<'_>, asked: &NextInput<'_>, belongs: &Belongs) -> Result<Input, Ending> {
    let Some(party) = case.shared.parties.get(&case.dialogue.simulator.agent) else {
        return Err(simulator_error(&NoParty::Unknown.to_string()));
    };
    let answer = unless_cancelled(case.shared, Box::pin(party.next_input(belongs, asked))).await;
    let Some(answer) = answer else { return Err(ending_of(Failure::Cancelled, None)) };
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

/// What the simulator said, unless it names a file: what comes from it is handed on to the agent.
fn without_files(input: Input) -> Result<Input, Ending> {
    match input.message.as_ref().and_then(Message::address_of_a_file) {
        None => Ok(input),
        Some(address) => {
            let address = shorten(address);
            Err(simulator_error(&format!("it names a file, which no agent is told to read: {address:?}")))
        }
    }
}

/// The end of a dialogue whose simulator failed.
pub(super) fn simulator_error(why: &str) -> Ending {
    Ending::Bad {
        outcome: Outcome::Errored,
        cause: Cause::SimulatorError,
        blame: Blame::Simulator,
        error: format!("simulator error: {why}"),
    }
}
