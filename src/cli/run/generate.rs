//! Cases from generators: asked for through the daemon, which reaches agents that a laptop may not, and packed like a
//! file.

use std::time::Duration;

use super::interrupts::Interrupts;
use super::{RunArgs, targets, write_whole};
use crate::cli::client::Client;
use crate::cli::inputs::{GENERATED_ENDING, Generated, Generator, Inputs, Writer};
use crate::cli::{CliError, Exit, note, print, scripts};
use crate::plan::Plan;
use crate::suite::Defaults;
use crate::text::printable_json;
use crate::wire::agent as agent_pb;
use crate::wire::agent::json::Form;
use crate::wire::control as pb;
use crate::wire::control::generate_cases_response::Item;
use crate::wire::value::duration_to_proto;

/// Time for all cases of a generator when `--timeout` says nothing.
const BUDGET: Duration = Duration::from_mins(5);
/// Time that the daemon gets to say that this one is over.
const GRACE: Duration = Duration::from_secs(5);
/// Most ids that a generator is told are taken.
const MAX_EXISTING: usize = 10_000;

/// Asks all generators, and adds their cases to the inputs.
///
/// # Errors
/// When one of them fails, or none of its cases can be used.
pub(super) async fn generate(
    client: &Client,
    args: &RunArgs,
    inputs: &mut Inputs,
    interrupts: &Interrupts,
) -> Result<(), CliError> {
    let defaults = Defaults { simulator: args.simulator.clone(), files_outside: false };
    for generator in std::mem::take(&mut inputs.generators) {
        let ask = async {
            match &generator.writer {
                Writer::Agent(id) => ask(client, args, id, &generator, inputs).await,
                Writer::Script(name) => {
                    scripts::generate(name, &generator, args.agent_name(), existing(inputs), budget(args)).await
                }
            }
        };
        let texts = tokio::select! {
            texts = ask => texts?,
            () = interrupts.first() => {
                return Err(CliError::new(Exit::Interrupted, "interrupted while cases were generated"));
            }
        };
        for text in inputs.add_generated(&generator, texts, &defaults, args.strict)? {
            if !args.quiet {
                note(&format!("⚠ {text}"));
            }
        }
    }
    Ok(())
}

fn budget(args: &RunArgs) -> Duration {
    args.timeout.as_ref().map_or(BUDGET, |timeout| timeout.duration)
}

/// Ids that are taken, or many of them.
fn existing(inputs: &Inputs) -> Vec<String> {
    inputs.suites.iter().flat_map(|suite| &suite.cases).map(|case| case.id.clone()).take(MAX_EXISTING).collect()
}

async fn ask(
    client: &Client,
    args: &RunArgs,
    id: &String,
    generator: &Generator,
    inputs: &Inputs,
) -> Result<Vec<String>, CliError> {
    let budget = budget(args);
    let json = |text: &String| agent_pb::Json { form: Some(Form::Raw(text.clone().into_bytes())) };
    let targets = targets(args, &[id]);
    let request = pb::GenerateCasesRequest {
        generator_id: id.clone(),
        agent_id: args.agent_name().to_owned(),
        targets: targets.into_iter().map(|(agent_id, url)| pb::Target { agent_id, url }).collect(),
        count: generator.count,
        focus: generator.focus.clone(),
        params: generator.params.iter().map(|(key, text)| (key.clone(), json(text))).collect(),
        existing_case_ids: existing(inputs),
        budget: Some(duration_to_proto(budget)),
    };
    let doing = "generating cases";
    let deadline = tokio::time::Instant::now() + budget + GRACE;
    let left = || deadline.saturating_duration_since(tokio::time::Instant::now());
    let mut items = client.ask_within(left(), doing, client.runs().generate_cases(request)).await?;
    let mut texts = Vec::new();
    loop {
        let next = async { items.message().await.map(tonic::Response::new) };
        match client.ask_within(left(), doing, next).await?.map(|response| response.item) {
            Some(Some(Item::Case(text))) => texts.push(text),
            Some(Some(Item::Summary(_))) => return Ok(texts),
            Some(None) => {}
            None => {
                let message = format!("{doing}: the daemon ended the answer without its summary");
                return Err(CliError::new(Exit::CouldNotRun, message));
            }
        }
    }
}

/// Writes the generated cases of a plan to stdout, and to the files of `-o`.
pub(super) fn show(args: &RunArgs, generated: &[Generated], plan: &Plan) -> Result<(), CliError> {
    let selected = |suite: &Generated, id: &str| {
        plan.cases.iter().any(|planned| planned.suite.path == suite.path && planned.head().id == id)
    };
    let lines: String = generated
        .iter()
        .flat_map(|suite| suite.cases.iter().filter(move |(id, _)| selected(suite, id)))
        .flat_map(|(_, text)| [text.as_str(), "\n"])
        .collect();
    print(&printable_json(&lines))?;
    for file in &args.output {
        write_whole(file, &lines)?;
    }
    Ok(())
}

/// Keeps the generated cases beside the results of their run, so that they can be run again.
pub(super) fn keep(args: &RunArgs, generated: &[Generated], run_id: &str) -> Result<(), CliError> {
    for suite in generated {
        let stem = suite.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".jsonl");
        let file = args.output_dir().join(format!("{stem}.{run_id}{GENERATED_ENDING}"));
        let lines: String = suite.cases.iter().flat_map(|(_, text)| [text.as_str(), "\n"]).collect();
        write_whole(&file, &lines)?;
    }
    Ok(())
}
