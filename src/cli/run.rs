//! `forgectl run`: pack, upload, follow, tell.

mod answers;
mod args;
mod attached;
mod baseline;
mod create;
mod earlier;
mod fail_on;
mod generate;
mod github;
mod http_agent;
mod interrupts;
pub(super) mod outputs;
mod previous;
mod progress;
pub(super) mod regrade;
mod snapshot;
mod start;
mod tell;
mod trace;
mod until_end;
mod verbose;

use std::path::Path;
use std::time::Duration;

use super::client::Client;
use super::inputs::Inputs;
use super::lines::Lines;
use super::seed::NamedSeed;
use super::{CliError, Exit, named, note, print};
use crate::bundle::Role;
use crate::conversation::ToolMode;
use crate::peer::target::{Target, speaks_http};
use crate::plan::{PlanError, PlannedCase, Replay, RunSpec, plan};
use crate::report::github::Annotations;
use crate::report::stream::{self, Stream};
use crate::suite::Defaults;
use crate::suite::error::meant_or_all;
use crate::suite::source::Source;
use crate::suite::template::Data;
use crate::text::{chain, printable_json};
use crate::trace::captures_content;
use args::Tools;
pub(super) use args::{OUTPUT_DIR, RunArgs};
use attached::AttachedAgents;
use create::create;
pub(super) use create::read_run;
use fail_on::FailOn;
use http_agent::HttpAgents;
pub(super) use http_agent::NamedEndpoint;
use interrupts::Interrupts;
use outputs::{check_outputs, check_overwrites, write_results, write_whole};
use start::Starts;
use tell::tell;
use until_end::{Ended, Others, follow};
use verbose::Verbose;

/// Time that a daemon may be away when nothing is said: it is being restarted.
const WAIT: Duration = Duration::from_mins(1);

pub(super) async fn run(daemon: Option<String>, args: RunArgs) -> Result<Exit, CliError> {
    let (is_json, has_annotations) = (args.json, tells_github(&args));
    let done = run_as_asked(daemon, args).await;
    if let Err(error) = &done {
        tell_programs(error, is_json, has_annotations)?;
    }
    done
}

/// Tells the programs that are told of a run (on stdout, and GitHub) that settings are wrong. `typed`: the arguments
/// without settings.
pub(super) fn tell_of_settings(error: &CliError, typed: &RunArgs) -> Result<(), CliError> {
    tell_programs(error, typed.json, tells_github(typed))
}

fn tell_programs(error: &CliError, is_json: bool, has_annotations: bool) -> Result<(), CliError> {
    if error.is_told {
        return Ok(());
    }
    if is_json {
        let (message, details, hint) = error.parts();
        let line = stream::error(error.exit.code(), message, details, hint);
        print(&line.map_err(|error| CliError::new(Exit::CouldNotRun, error.to_string()))?)?;
    }
    if has_annotations {
        github::annotate_error(error);
    }
    Ok(())
}

fn tells_github(args: &RunArgs) -> bool {
    !args.dry_run && !args.detach && args.github.unwrap_or_default().is_now()
}

async fn run_as_asked(daemon: Option<String>, mut args: RunArgs) -> Result<Exit, CliError> {
    let daemon = daemon.filter(|_| !args.daemon_free);
    let starts = settle(&mut args, daemon.as_deref())?;
    let http = HttpAgents::start(&mut args, daemon.as_deref()).await?;
    let inputs = read_inputs(&args, &starts, daemon.is_some()).await?;
    if daemon.is_none() && args.detach {
        return Err(CliError::new(Exit::Usage, "--detach needs a daemon that goes on when forgectl ends")
            .hint("give its address with --daemon URL or FORGE_DAEMON"));
    }
    // Not before: until here Ctrl-C may simply end the process.
    let interrupts = Interrupts::watch()?;
    let client = match daemon {
        Some(url) => Client::connect(&url).await?,
        None => Client::embed().await?,
    };
    let client = client.waiting(args.wait.as_ref().map_or(WAIT, |wait| wait.duration));
    let say = |text: &str| say(&args, text);
    if client.is_embedded() {
        say("no daemon given: running one inside this process");
    }
    // Those of the current folder are no surprise.
    if let Some(file) = args.origins.file.as_ref().filter(|file| file.components().count() > 1) {
        say(&format!("settings: {}", file.display()));
    }
    http.lines().for_each(|line| say(&line));
    let result = match starts.start(&mut args, &interrupts).await {
        Ok(started) => {
            let result =
                run_attached(&client, &mut args, inputs, &interrupts, http.authorities().chain(started.authorities()))
                    .await;
            started.end().await;
            result
        }
        Err(error) => Err(error),
    };
    client.close().await;
    http.close().await;
    match result {
        Ok(_) if interrupts.any() => Ok(Exit::Interrupted),
        Err(mut error) if interrupts.any() => {
            error.exit = Exit::Interrupted;
            Err(error)
        }
        result => result,
    }
}

/// Runs, with the agents that listen at the `local` addresses attached for as long as that takes where the daemon is
/// another process: it may run on another machine.
async fn run_attached(
    client: &Client,
    args: &mut RunArgs,
    inputs: Inputs,
    interrupts: &Interrupts,
    local: impl Iterator<Item = String>,
) -> Result<Exit, CliError> {
    let local: Vec<String> =
        if client.is_embedded() || args.dry_run && asks_nobody(args) { Vec::new() } else { local.collect() };
    let is_quiet = args.quiet;
    let say = |text: &str| {
        if !is_quiet {
            note(text);
        }
    };
    let attached = AttachedAgents::attach(&client.url, args, local, interrupts, say).await?;
    // Apart: what it holds is large, and moved about.
    let result = Box::pin(run_on(client, args, inputs, interrupts)).await;
    attached.leave().await;
    result
}

/// Refuses what makes no sense together, and says which agents are to be started.
fn settle(args: &mut RunArgs, daemon: Option<&str>) -> Result<Starts, CliError> {
    let sources: Vec<String> = args.paths.iter().chain(&args.input).cloned().collect();
    if sources.is_empty() {
        return Err(CliError::new(Exit::Usage, "nothing to run: name an eval file, a folder or a glob pattern").hint(
            "as in `forgectl run evals/weather.golden.json -n grpc://127.0.0.1:50051`; `suites` in forge.config.json says it for \
             the project",
        ));
    }
    let starts = Starts::of(args)?;
    if args.name.is_none() && !(args.dry_run && only_reads(&sources)) {
        return Err(no_agent());
    }
    let max_regression = args.said("max_regression");
    if args.max_regression.is_some() && args.baseline.is_none() {
        let message = format!("{max_regression} compares with an earlier result, and there is none");
        return Err(CliError::new(Exit::Usage, message)
            .hint("name one with --baseline: the id of a run, `last`, or a result file"));
    }
    if args.max_regression.is_some_and(|most| most.millionths() == 0) {
        let message = format!("{max_regression} 0%: no number of repetitions could show that nothing was lost at all");
        return Err(CliError::new(Exit::Usage, message).hint("say how large a drop matters, such as 2%"));
    }
    // In the settings they are for the runs that have a gate.
    let about_gate = [("to_the_end", args.to_the_end), ("undecided", args.undecided.is_some())];
    let is_said = |(flag, is_given): &&(&str, bool)| *is_given && args.origins.of(flag).is_none();
    if let Some((flag, _)) = about_gate.iter().find(is_said).filter(|_| args.gate().is_open()) {
        return Err(CliError::new(Exit::Usage, format!("{} is about a gate, and there is none", args.said(flag)))
            .hint("set one with --min-pass-rate, --min-case-pass-rate or --max-regression"));
    }
    if args.replay.is_some() && daemon.is_none() {
        return Err(CliError::new(
            Exit::Usage,
            "--replay plays back a run that a daemon keeps, and no daemon is given",
        )
        .hint("give its address with --daemon URL or FORGE_DAEMON"));
    }
    FailOn::check(args)?;
    check_outputs(args)?;
    if let Some((id, _)) = args.agent.iter().enumerate().find_map(|(n, a)| args.agent[..n].iter().find(|b| b.0 == a.0))
    {
        return Err(CliError::new(Exit::Usage, format!("--agent {id}=… is given twice")));
    }
    // Who reads alone asks nobody.
    Ok(if args.dry_run && only_reads(&sources) { Starts::default() } else { starts })
}

/// Refuses names of agents that nobody knows, where no daemon could know them.
fn check_names(args: &RunArgs, starts: &Starts) -> Result<(), CliError> {
    let ids =
        args.agent.iter().map(|(id, _)| id).chain(args.endpoints.iter().map(|named| &named.id)).chain(starts.ids());
    let mut known: Vec<&str> = ids.map(String::as_str).filter(|id| !Target::looks_like_one(id)).collect();
    known.sort_unstable();
    known.dedup();
    let asked = [("name", &args.name), ("simulator", &args.simulator), ("snapshot_agent", &args.snapshot_agent)];
    for (flag, name) in asked {
        let Some(name) = name.as_deref().filter(|name| !Target::looks_like_one(name) && !known.contains(name)) else {
            continue;
        };
        let hint = match meant_or_all(name, &known).filter(|_| !known.is_empty()) {
            Some(hint) => hint,
            None => format!(
                "give its address, as in -n grpc://127.0.0.1:50051 or --agent {name}=grpc://127.0.0.1:50051, or name the daemon that knows it"
            ),
        };
        return Err(CliError::new(Exit::Usage, format!("{}: there is no agent {name:?}", args.said(flag))).hint(hint));
    }
    Ok(())
}

/// Reads everything that a run takes, and tells what is odd about it.
async fn read_inputs(args: &RunArgs, starts: &Starts, has_daemon: bool) -> Result<Inputs, CliError> {
    let defaults = Defaults { simulator: args.simulator.clone(), files_outside: args.allow_outside };
    let mut inputs = Inputs::read(&args.paths, &args.input, &defaults)?;
    if args.strict {
        inputs.refuse_doubtful()?;
    }
    inputs.add_hooks(&args.hooks())?;
    let about_seed = inputs.add_seed(&NamedSeed {
        file: args.seed_manifest.as_deref(),
        is_setting: args.origins.of("seed_manifest").is_some(),
        settings: args.settings.as_deref(),
    })?;
    if !has_daemon && !args.dry_run {
        check_names(args, starts)?;
    }
    // A dry run asks nobody for values that nobody compares with.
    let captured = if args.dry_run { None } else { snapshot::capture(args).await? };
    check_overwrites(args, &inputs)?;
    if let Some((name, bytes)) = captured {
        inputs.add_file(&name, Role::Snapshot, bytes)?;
    }
    let unread = args.registry.as_deref().map(|path| inputs.add_registry(path)).transpose()?.unwrap_or_default();
    for text in &inputs.not_run {
        say(args, text);
    }
    for warning in inputs.findings().chain(&unread) {
        say(args, &format!("⚠ {warning}"));
    }
    if let Some(text) = &about_seed {
        say(args, text);
    }
    Ok(inputs)
}

/// Says something that is no result, unless the user wants those only.
fn say(args: &RunArgs, text: &str) {
    if !args.quiet {
        note(text);
    }
}

/// Whether all cases are in files.
fn asks_nobody(args: &RunArgs) -> bool {
    let sources: Vec<String> = args.paths.iter().chain(&args.input).cloned().collect();
    only_reads(&sources)
}

/// Whether everything is in files, and nobody is asked for it.
fn only_reads(sources: &[String]) -> bool {
    sources.iter().all(|source| !matches!(Source::parse(source), Source::Agent { .. } | Source::Script { .. }))
}

/// Says how to name the agent under test.
fn no_agent() -> CliError {
    let ways = [
        "-n AGENT               as in -n grpc://127.0.0.1:50051, -n http://127.0.0.1:3000/chat or -n assistants.expense",
        "FORGE_AGENT=AGENT      the same, in the environment",
        "--start COMMAND        as in --start 'python agent.py --listen {listen}': it is started for the run",
        "forge.config.json      {\"agentEndpoint\": \"AGENT\"}, here or in a folder above: the settings of the project",
    ];
    CliError::new(Exit::Usage, "no agent to test: name it in one of these ways")
        .details(ways.map(str::to_owned))
        .hint("AGENT is an address, or a name that the daemon knows or --agent NAME=ADDRESS says")
}

async fn run_on(
    client: &Client,
    args: &RunArgs,
    mut inputs: Inputs,
    interrupts: &Interrupts,
) -> Result<Exit, CliError> {
    generate::generate(client, args, &mut inputs, interrupts).await?;
    if let Some(name) = &args.baseline {
        match baseline::find(client, args, name, &inputs.suites).await? {
            Some(text) => inputs.add_file(Path::new("baseline.json"), Role::Baseline, text)?,
            None => say(args, &format!("{} last: the first run has nothing to compare with", args.said("baseline"))),
        }
    }
    let cases = match &args.failed {
        None => args.recorded.as_deref().map(|run| previous::same(run, &inputs.suites)).unwrap_or_default(),
        Some(run) => previous::not_passed(client, run, args.output_dir(), &inputs.suites).await?,
    };
    let mut spec = asked(args, &inputs);
    if let Some(replay) = &mut spec.replay {
        replay.run_id = named::run_id(client, &replay.run_id).await?;
    }
    // In a file: a bundle may be larger than memory.
    let mut packed = tempfile::tempfile()
        .map_err(|error| CliError::new(Exit::CouldNotRun, format!("cannot make a file for the bundle: {error}")))?;
    let (bundle, bundle_size) = inputs
        .bundle
        .pack(std::io::BufWriter::with_capacity(1 << 20, &mut packed))
        .map_err(|error| CliError::new(Exit::Usage, chain(&error)))?;
    let spec = RunSpec { bundle, bundle_size, cases, ..spec };
    if args.dry_run {
        return dry_run(args, inputs, &spec);
    }
    let run = create(client, &spec, packed).await?;
    generate::keep(args, &inputs.generated, &run.run_id)?;
    if args.detach {
        print(&format!("{}\n", run.run_id))?;
        return Ok(Exit::Passed);
    }
    let given = inputs.given.clone();
    // Suites may be large, and who only waits does not need them.
    let messages = std::mem::take(&mut inputs.messages);
    let annotations = tells_github(args).then(Annotations::default);
    let inputs = Some(inputs).filter(|_| args.update_snapshots || args.verbose || annotations.is_some());
    let verbose = inputs.as_ref().filter(|_| args.verbose).map(|inputs| Verbose::new(&inputs.suites));
    let lines = Lines::with_answers_of(messages);
    let mut others = Others { stream: args.json.then(Stream::default), annotations };
    let Ended { run, lines, answered } = follow(client, args, &run, interrupts, verbose, lines, &mut others).await?;
    // First what people wait for, then the files, whatever became of the other.
    let told = tell(args, &run, &given, &lines);
    let fail_on = args.fail_on.unwrap_or_default();
    let exit = fail_on.exit(&run, &lines);
    if let Some(text) = fail_on.note(&run, exit) {
        say(args, &text);
    }
    drop(lines);
    let written = match write_results(client, args, &run).await {
        // What came of the run is known and kept.
        Err(error) if (error.is_away || error.is_busy) && !client.is_embedded() => {
            error
                .hint(format!("`forgectl runs report {} -o FILE` writes the results at any later time", run.run_id))
                .tell();
            Ok(())
        }
        // The reader of stdout has closed it, and the result of the run stays what it is.
        Err(error) if error.exit == Exit::Passed => Ok(()),
        written => written,
    };
    if let (Some(inputs), Some(annotations)) = (&inputs, others.annotations) {
        github::finish(client, args, inputs, &run, annotations).await;
    }
    if written.is_ok() && told.is_ok() {
        say(args, &format!("results: {}", args.output_dir().display()));
    }
    let stored = inputs.filter(|_| args.update_snapshots);
    let stored = stored.map_or(Ok(()), |inputs| answered.store(&inputs.homes, &inputs.suites, args.quiet));
    let done = match told {
        Err(error) if error.exit != Exit::Passed => Err(error),
        Ok(()) | Err(_) => written.and(stored),
    };
    done.map(|()| exit).map_err(CliError::told)
}

/// What the arguments ask for, but for the bundle and the cases that are picked.
fn asked(args: &RunArgs, inputs: &Inputs) -> RunSpec {
    let parties: Vec<&String> = args.snapshot_agent.iter().chain(&args.simulator).collect();
    let targets = targets(args, &parties);
    let name = args.agent_name();
    RunSpec {
        case_patterns: args.run.clone().into_iter().collect(),
        concurrency: args.parallel.unwrap_or(1),
        case_timeout: args.timeout.clone(),
        contract_timeout: args.contract_timeout.clone(),
        simulator: args.simulator.clone(),
        connector: args.connector.clone(),
        fail_fast: args.fail_fast,
        repeats: args.runs.unwrap_or(1),
        retries: args.retries,
        agent_gone_after: args.agent_gone_after.as_ref().map(|time| time.duration),
        retry_failed: args.retry_failed,
        update_snapshots: args.update_snapshots,
        tiers: args.tier.clone(),
        difficulties: args.difficulty.clone(),
        tags: args.tag.clone(),
        targets,
        strict: args.strict,
        all_assertions: args.all_assertions,
        tool_mode: match args.tools.unwrap_or(Tools::Live) {
            Tools::Live => ToolMode::Live,
            Tools::RoutingOnly => ToolMode::RoutingOnly,
        },
        check_arguments: args.check_arguments,
        snapshot_agent: args.snapshot_agent.clone(),
        prices: args.prices.clone(),
        hooks: args.hooks(),
        labels: args.labels(),
        gate: args.gate(),
        replay: args.replay.clone().map(|run_id| Replay { run_id, asks_validators: args.validators }),
        trace_parent: trace::from_environment(args.quiet),
        trace_url: args.trace_url.clone(),
        capture_content: args.capture_content || captures_content().unwrap_or(false),
        ..RunSpec::new(name, inputs.suites.iter().map(|suite| suite.path.clone()).collect())
    }
}

/// The agents that exist for one call of the daemon only: those given with `--agent`, and the agent under test and the
/// `parties` where they are named by their address.
fn targets(args: &RunArgs, parties: &[&String]) -> Vec<(String, String)> {
    let mut targets = args.agent.clone();
    let name = args.name.iter().filter(|name| !speaks_http(name));
    for address in name.chain(parties.iter().copied()).filter(|name| Target::looks_like_one(name)) {
        if !targets.iter().any(|(id, _)| id == address) {
            targets.push((address.clone(), address.clone()));
        }
    }
    targets
}

/// Prints the cases that would run, one JSON line each: those of files in short, those of generators whole, as a file
/// would hold them.
fn dry_run(args: &RunArgs, inputs: Inputs, spec: &RunSpec) -> Result<Exit, CliError> {
    let Inputs { suites, generated, .. } = inputs;
    let plan = plan(suites, Data::default(), spec).map_err(|error| {
        let exit = if matches!(error, PlanError::NothingSelected(_)) { Exit::NothingSelected } else { Exit::Usage };
        CliError::new(exit, error.to_string())
    })?;
    let is_of_file = |planned: &&PlannedCase| generated.iter().all(|suite| suite.path != planned.suite.path);
    for planned in plan.cases.iter().filter(is_of_file) {
        let case = planned.load().map_err(|error| CliError::new(Exit::CouldNotRun, error.to_string()))?;
        let line = serde_json::json!({
            "suite": planned.suite.path,
            "id": case.id,
            "name": case.description,
            "mode": case.mode.kind().name(),
            "messages_count": case.messages.len(),
            "skip": case.skip,
        });
        print(&format!("{}\n", printable_json(&line.to_string())))?;
    }
    generate::show(args, &generated, &plan)?;
    Ok(Exit::Passed)
}
