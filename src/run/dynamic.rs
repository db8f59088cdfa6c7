//! Drives a dialogue: simulator, agent, checkpoints, and again, under the one deadline of its case.

use std::sync::Arc;

use tokio::time::Instant;
use uuid::Uuid;

use super::ask::ask;
use super::call::{Call, call};
use super::clock::{Clock, fairly};
use super::judging::{Cost, judged};
use super::loaded::Drive;
use super::shared::Shared;
use super::simulator::{next_input, simulator_error};
use crate::check::dialogue::{Ending, Progress};
use crate::check::framework::{Question, Replies, Reply, evaluate, evaluate_dialogue, questions};
use crate::check::{Remarks, ending_of, judge_dialogue, remarks_on_arguments};
use crate::conversation::party::Input;
use crate::conversation::{Exchange, Failure, Invocation, Message, Part, Role, Source, Transcript};
use crate::event::Payload;
use crate::limits::SIMULATOR_BYTES;
use crate::usage::{add_cost, must_estimate};
use crate::verdict::{AssertionResult, Blame, CaseResult, Cause, Outcome};
use crate::work::Undecided;

/// Most bytes that are recorded of the agent over all turns.
pub(super) const MAX_RECORD: usize = 48 << 20;

/// What is recorded over all turns.
struct Record {
    transcript: Transcript,
    warnings: Vec<String>,
    began: Instant,
    /// Bytes of the agent's answers and tool calls.
    bytes: usize,
    /// Bytes that the simulator said.
    said: usize,
    clock: Clock,
    /// When the time of the case is up: spans that were waited for are nobody's time.
    deadline: Instant,
}

impl Record {
    /// Adds one turn: the last answer counts as the answer, the calls follow each other.
    fn add(&mut self, turn: Transcript, warnings: Vec<String>) {
        self.transcript.response = turn.response;
        self.transcript.commentary = turn.commentary;
        self.transcript.open_end = self.transcript.open_end.take().or(turn.open_end);
        self.transcript.tool_calls.extend(turn.tool_calls);
        if let Some(usage) = &turn.usage {
            self.transcript.usage.get_or_insert_default().add(usage);
        }
        // Most of what is said of one turn could be said of every other.
        for warning in warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }
}

/// Runs the dialogue to its end.
pub(super) async fn run(case: &Drive<'_>) -> CaseResult {
    let (opening, first) = opening(&case.loaded.case.messages);
    let mut progress = Progress::new(case.dialogue, opening);
    let mut record = Record {
        transcript: Transcript::default(),
        warnings: Vec::new(),
        began: Instant::now(),
        bytes: 0,
        said: 0,
        clock: Clock::default(),
        deadline: case.started.deadline,
    };
    let mut ending = play(case, &mut progress, &mut record, first).await;
    record.transcript.duration = record.began.elapsed();
    let replies = match replies(case, &progress, &mut record, &ending).await {
        Ok(replies) => replies,
        Err(other) => {
            ending = other;
            Replies::new()
        }
    };
    if Instant::now() >= record.deadline {
        ending = fairly(ending, &record.clock, &case.started.timeout.written);
    }
    record.transcript.duration = record.began.elapsed();
    let assertions = match assertions(case, &progress, &record, &ending, replies).await {
        Ok(assertions) => assertions,
        Err(Undecided::Stopped) => {
            ending = ending_of(Failure::Cancelled, None);
            Vec::new()
        }
        Err(why) => vec![not_judged(&why)],
    };
    let remarks = remarks(case.shared, &record.transcript).await;
    let strict = case.shared.spec.strict;
    judge_dialogue(progress, ending, record.transcript, record.warnings, assertions, remarks, strict)
}

/// What others say to the assertions of the case itself, which are about the dialogue as a whole. They are asked in
/// the time that it has left; an error is how the dialogue ends instead.
async fn replies(
    case: &Drive<'_>,
    progress: &Progress<'_>,
    record: &mut Record,
    ending: &Ending,
) -> Result<Replies, Ending> {
    let claims = &case.loaded.case.claims;
    if ending.is_cut_short() || questions(claims).next().is_none() {
        return Ok(Replies::new());
    }
    let belongs = case.belongs(progress.next_turn() - 1, record.deadline);
    let before = progress.conversation().split_last().map_or(&[][..], |(_, before)| before);
    let asked = ask(case.shared, claims, before, &record.transcript, &belongs, &mut record.clock);
    let replies = Box::pin(asked).await.ok_or_else(|| ending_of(Failure::Cancelled, None))?;
    record.deadline += record.clock.take_waited();
    let silent = questions(claims).find(|(position, _)| matches!(replies.get(position), Some(Reply::Failed { .. })));
    let holder = match silent {
        Some((_, Question::Validator { .. })) => Blame::Validator,
        Some((_, Question::Script { .. })) => Blame::Script,
        None => return Ok(replies),
    };
    // The party that was asked last had what the others left of the time.
    let culprit = record.clock.culprit(holder);
    let is_late = *ending == Ending::Passed && Instant::now() >= record.deadline;
    if is_late && matches!(culprit, Blame::Agent | Blame::Simulator) {
        let error = String::new();
        let late = Ending::Bad { outcome: Outcome::Errored, cause: Cause::ValidatorError, blame: holder, error };
        return Err(fairly(late, &record.clock, &case.started.timeout.written));
    }
    Ok(replies)
}

/// What comes of the assertions of the case itself, over the whole dialogue.
async fn assertions(
    case: &Drive<'_>,
    progress: &Progress<'_>,
    record: &Record,
    ending: &Ending,
    replies: Replies,
) -> Result<Vec<AssertionResult>, Undecided> {
    let claims = &case.loaded.case.claims;
    if claims.is_empty() {
        return Ok(Vec::new());
    }
    let cut_short = ending.is_cut_short();
    let said: usize = progress.turns().iter().map(|turn| turn.output.len()).sum();
    let cost = Cost::of_claims(claims, &record.transcript).with_more(said, claims.len());
    let (loaded, transcript, turns) = (case.loaded.clone(), record.transcript.clone(), progress.turns().to_vec());
    let judge = move || evaluate_dialogue(&loaded.case.claims, &transcript, &turns, &replies, cut_short);
    judged(case.shared, cost, judge).await
}

/// What is to be said of the arguments of all tool calls.
async fn remarks(shared: &Shared, transcript: &Transcript) -> Remarks {
    let (schemas, fails) = (Arc::clone(&shared.schemas), shared.spec.check_arguments);
    if !schemas.know_any(&transcript.tool_calls) {
        return Remarks::default();
    }
    let calls = transcript.tool_calls.clone();
    let cost = Cost::of_claims(&[], transcript).slow_if(schemas.is_slow(&calls));
    let looked = judged(shared, cost, move || remarks_on_arguments(&calls, &schemas, fails)).await;
    looked.unwrap_or_else(|why| Remarks {
        assertion: fails.then(|| not_judged(&why)),
        warnings: vec![format!("arguments: they were not looked at: {why}")],
    })
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
) -> Ending {
    // One conversation, whatever the simulator says.
    let conversation_id = Uuid::new_v4().to_string();
    loop {
        let turn = progress.next_turn();
        let asked = Instant::now();
        let is_first = first.is_some();
        let input = match first.take() {
            Some(message) => {
                Ok(Input { message: Some(message), is_last: false, reasoning: String::new(), usage: None })
            }
            None => next_input(case, progress, turn, record.deadline).await,
        };
        record.clock.add(Blame::Simulator, asked.elapsed());
        let input = match input {
            Ok(input) => input,
            Err(ending) => return ending,
        };
        let Some(message) = input.message else {
            if input.is_last {
                if !input.reasoning.is_empty() {
                    record.warnings.push(format!("the simulated user ended the dialogue: {}", input.reasoning));
                }
                return left(progress);
            }
            return simulator_error("it said nothing");
        };
        // What the case itself begins with was bounded when it was packed.
        record.said += if is_first { 0 } else { size_of(&message) };
        if record.said > SIMULATOR_BYTES {
            return simulator_error(&format!("it said more than {SIMULATOR_BYTES} bytes"));
        }
        progress.say(message);
        let asked = Instant::now();
        let Exchange { transcript, failure, warnings, model, waited, .. } =
            invoke(case, progress, turn, &conversation_id, record.deadline).await;
        record.deadline += waited;
        record.clock.add(Blame::Agent, asked.elapsed().saturating_sub(waited));
        record.bytes += transcript.size();
        let too_long = format!("its answers and tool calls have more than {MAX_RECORD} bytes in all turns");
        if let Some(failure) = failure.or_else(|| (record.bytes > MAX_RECORD).then_some(Failure::Protocol(too_long))) {
            if record.bytes <= MAX_RECORD {
                record.add(transcript, warnings);
            }
            return ending_of(failure, Some(&case.started.timeout.written));
        }
        let transcript = priced(case.shared, transcript, model.as_deref(), progress).await;
        progress.answer(&transcript.response, &transcript.commentary, input.reasoning);
        if let Some(said) = progress.last_turn() {
            case.shared.journal.case(case.case_ref, turn, Payload::TurnFinished(said.clone())).await;
        }
        let checked = checkpoints(case, progress, turn, &transcript, record).await;
        record.add(transcript, warnings);
        if let Err(ending) = checked {
            return ending;
        }
        if let Some(ending) = progress.ending(input.is_last) {
            return ending;
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

/// The turn with what it cost, if the agent does not say; an estimate takes time that is not a runtime thread's to
/// give.
async fn priced(
    shared: &Shared,
    mut transcript: Transcript,
    model: Option<&str>,
    progress: &Progress<'_>,
) -> Transcript {
    let Some(price) = shared.price(model) else { return transcript };
    if !must_estimate(&transcript) {
        add_cost(&mut transcript, progress.conversation(), price);
        return transcript;
    }
    let (conversation, mut estimated) = (progress.conversation().to_vec(), transcript.clone());
    let cost = Cost::of_claims(&[], &transcript).slow_if(true);
    let added = judged(shared, cost, move || {
        add_cost(&mut estimated, &conversation, price);
        estimated
    });
    // An estimate that died is none.
    added.await.unwrap_or(transcript)
}

/// Bytes of a message.
fn size_of(message: &Message) -> usize {
    let size = |part: &Part| match part {
        Part::Text(text) | Part::Reasoning(text) => text.len(),
        Part::Data(json) => json.as_str().len(),
        Part::Blob(blob) => match &blob.source {
            Source::Content(content) => content.bytes.len(),
            Source::Uri(text) | Source::File(text) => text.len(),
        },
    };
    message.parts.iter().map(size).sum()
}

/// Calls the agent with everything that was said.
async fn invoke(
    case: &Drive<'_>,
    progress: &Progress<'_>,
    turn: u32,
    conversation_id: &str,
    deadline: Instant,
) -> Exchange {
    let shared = case.shared;
    let invocation = Invocation {
        agent_id: shared.callee.agent_id(),
        run_id: shared.run_id.clone(),
        case: case.case_ref.clone(),
        turn,
        // The first call is the one that the log announced.
        invocation_id: if turn == 1 { case.started.invocation_id.clone() } else { Uuid::new_v4().to_string() },
        conversation_id: conversation_id.to_owned(),
        messages: progress.conversation().to_vec(),
        options: shared.options_for(&case.loaded.case),
        tool_mode: case.started.tool_mode,
        max_model_turns: None,
        budget: case.started.timeout.duration,
    };
    call(Call { shared, callee: &shared.callee, case: case.case_ref, invocation, stubs: None, deadline }).await
}

/// Looks at the open checkpoints once, in declared order; one that is reached counts at once for those behind it.
async fn checkpoints(
    case: &Drive<'_>,
    progress: &mut Progress<'_>,
    turn: u32,
    transcript: &Transcript,
    record: &mut Record,
) -> Result<(), Ending> {
    let mut belongs = case.belongs(turn, record.deadline);
    let mut from = 0;
    while let Some(position) = progress.next_open(from) {
        let checkpoint = &case.dialogue.checkpoints[position];
        let before = progress.conversation().split_last().map_or(&[][..], |(_, before)| before);
        let asked = ask(case.shared, &checkpoint.claims, before, transcript, &belongs, &mut record.clock);
        let Some(replies) = asked.await else { return Err(ending_of(Failure::Cancelled, None)) };
        let waited = record.clock.take_waited();
        record.deadline += waited;
        belongs.deadline += waited;
        let results = match evaluated(case, position, transcript, replies).await {
            Ok(results) => results,
            Err(Undecided::Stopped) => return Err(ending_of(Failure::Cancelled, None)),
            Err(why) => vec![not_judged(&why)],
        };
        match progress.look(position, results) {
            Err(ending) => return Err(ending),
            Ok(true) => {
                let reached = Payload::CheckpointReached { checkpoint: checkpoint.id.clone() };
                case.shared.journal.case(case.case_ref, turn, reached).await;
            }
            Ok(false) => {}
        }
        from = position + 1;
    }
    Ok(())
}

/// What comes of the claims of a checkpoint; patterns, and long answers, take time that is not a runtime thread's
/// to give.
async fn evaluated(
    case: &Drive<'_>,
    position: usize,
    transcript: &Transcript,
    replies: Replies,
) -> Result<Vec<AssertionResult>, Undecided> {
    let claims = case.dialogue.checkpoints[position].claims.clone();
    let (cost, transcript) = (Cost::of_claims(&claims, transcript), transcript.clone());
    judged(case.shared, cost, move || evaluate(&claims, &transcript, &replies)).await
}

/// What comes of assertions that nobody judged.
fn not_judged(why: &Undecided) -> AssertionResult {
    AssertionResult {
        name: "assertions".to_owned(),
        outcome: Outcome::Errored,
        reason: format!("they were not judged: {why}"),
        hint: String::new(),
        unresolved_tokens: Vec::new(),
        blame: Some(Blame::Daemon),
        written: None,
        opinion: None,
    }
}
