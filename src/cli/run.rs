//! `forgectl run`: pack, upload, follow, tell.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use uuid::Uuid;

use super::agents::key_value;
use super::client::Client;
use super::follow::Follower;
use super::inputs::Inputs;
use super::lines::Lines;
use super::seed::NamedSeed;
use super::{CliError, Exit, look, note, print};
use crate::bundle::Role;
use crate::conversation::ToolMode;
use crate::daemon::status::BUNDLE_MISSING;
use crate::event::{Payload, Run};
use crate::peer::target::{Target, speaks_http};
use crate::plan::{MAX_REPEATS, MAX_RETRIES, PlanError, PlannedCase, Replay, RunSpec, plan};
use crate::report::console::Look;
use crate::report::{Tracing, repeats, summary};
use crate::sidecar::http::address::RequestHeader;
use crate::sidecar::http::endpoint::Endpoint;
use crate::suite::script::{Hooks, ScriptRef};
use crate::suite::source::Source;
use crate::suite::template::Data;
use crate::suite::timeout::Timeout;
use crate::suite::{Defaults, Tier};
use crate::text::{chain, printable, printable_json};
use crate::trace::{captures_content, check_template};
use crate::usage::Prices;
use crate::verdict::gate::{Gate, Rate, Undecided};
use crate::wire::control as pb;
use crate::wire::run::run_from_proto;
use crate::wire::spec::spec_to_proto;

mod answers;
mod baseline;
pub(super) mod config;
mod config_agents;
mod earlier;
mod generate;
mod http_agent;
mod interrupts;
pub(super) mod outputs;
mod previous;
mod progress;
pub(super) mod regrade;
mod snapshot;
mod trace;
mod verbose;

use answers::Answered;
use http_agent::{HttpAgents, NamedEndpoint};
use interrupts::Interrupts;
use outputs::{check_outputs, check_overwrites, write_results, write_whole};
use progress::Progress;
use verbose::Verbose;

/// Where results are written when nothing is said.
const OUTPUT_DIR: &str = "evals/results";
/// Bytes of a bundle that are sent at a time.
const CHUNK: usize = 256 << 10;
/// Time for a bundle on its way.
const UPLOAD: Duration = Duration::from_mins(30);
/// Time that a daemon may be away when nothing is said: it is being restarted.
const WAIT: Duration = Duration::from_mins(1);
/// Time for a daemon to read the suites and accept a run.
const CREATE: Duration = Duration::from_mins(2);

#[derive(Debug, Args, Default)]
pub(super) struct RunArgs {
    /// Eval files, folders or glob patterns
    #[arg(value_name = "PATH")]
    paths: Vec<String>,

    /// A path as above, a message to send as it is, the tests of a script such as scripts.expense.setup, or a generator such
    /// as "agents:ID?count=10&focus=edge-cases" or "scripts:tests.gen?count=5"; may be given several times
    #[arg(short, long = "input", visible_alias = "eval", value_name = "SOURCE")]
    input: Vec<String>,

    /// Agent to test: a name that the daemon knows, an address such as grpc://127.0.0.1:50051, or without a daemon that
    /// of an HTTP chat endpoint such as http://127.0.0.1:3000/chat
    #[arg(short, long, value_name = "AGENT", env = "FORGE_AGENT")]
    name: Option<String>,

    /// Settings of the project [default: forge.config.json here or above, if there is one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// An agent for this run only, such as weather=grpc://127.0.0.1:50051; may be given several times
    #[arg(long, value_name = "ID=URL", value_parser = key_value)]
    agent: Vec<(String, String)>,

    /// How an HTTP endpoint is spoken to that is tested
    #[command(flatten)]
    endpoint: Endpoint,

    /// Run a daemon inside this process even if FORGE_DAEMON is set
    #[arg(long, conflicts_with = "detach", help_heading = "Daemon")]
    daemon_free: bool,

    /// Wait so long for a daemon that goes away while the run is followed; it goes on with its runs when it is back
    /// [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = Timeout::parse, help_heading = "Daemon")]
    wait: Option<Timeout>,

    /// Cases at the same time [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    parallel: Option<u32>,

    /// Time for one case, such as 500ms, 30s or 2m [default: 60s; of .jsonl files 5m]
    #[arg(long, value_name = "TIME", value_parser = Timeout::parse)]
    timeout: Option<Timeout>,

    /// Who plays the user in dynamic cases that name nobody: a name that the daemon knows, or one given with --agent
    #[arg(long, value_name = "AGENT")]
    simulator: Option<String>,

    /// Let cases send files from outside the folder of their suite
    #[arg(long)]
    allow_outside: bool,

    /// The connector that the agent is told, in place of that of the cases
    #[arg(short, long, value_name = "NAME")]
    connector: Option<String>,

    /// Stop at the first case that does not pass; cases in flight are cancelled, and the rest is skipped
    #[arg(long)]
    fail_fast: bool,

    /// Run each case so many times; every repetition counts
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_REPEATS)))]
    runs: Option<u32>,

    /// Pass if this part of all executions passes, such as 95%, instead of all
    #[arg(long, value_name = "RATE", value_parser = Rate::parse, conflicts_with = "fail_fast", help_heading = "Gate")]
    min_pass_rate: Option<Rate>,

    /// Pass if of each case this part of its repetitions passes, such as 80%
    #[arg(long, value_name = "RATE", value_parser = Rate::parse, conflicts_with = "fail_fast", help_heading = "Gate")]
    min_case_pass_rate: Option<Rate>,

    /// Pass if an exact test sees no drop of the pass rate against --baseline that is larger than this, such as 5%, neither
    /// of the whole nor of a suite; too little to tell is no pass, see --undecided
    #[arg(long, value_name = "RATE", value_parser = Rate::parse, conflicts_with = "fail_fast", help_heading = "Gate")]
    max_regression: Option<Rate>,

    /// What it counts as that nobody can tell whether the gate was passed, because too little is known: pass (exit code 0) or
    /// fail (1) [default: neither, exit code 3]
    #[arg(long, value_name = "pass|fail", value_parser = Undecided::parse, help_heading = "Gate")]
    undecided: Option<Undecided>,

    /// Run all cases, also when nothing that is left can change what comes of the gate
    #[arg(long, help_heading = "Gate")]
    to_the_end: bool,

    /// End the run when nobody answers at the agent's address for so long, once it was reached [default: what the daemon
    /// says, 10s unless it says otherwise]
    #[arg(long, value_name = "TIME", value_parser = Timeout::parse)]
    agent_gone_after: Option<Timeout>,

    /// Try a case so many times again that could not be judged, for trouble with the connection, the simulator or a
    /// validator
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=i64::from(MAX_RETRIES)))]
    retries: u32,

    /// Try a case so many times again that failed; if it passes then, it counts as passed and is reported as flaky
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=i64::from(MAX_RETRIES)))]
    retry_failed: u32,

    /// Store the answers of cases with `snapshot` assertions, instead of comparing them with what is stored now
    #[arg(long, conflicts_with_all = ["detach", "dry_run"])]
    update_snapshots: bool,

    /// Read everything and print the cases that would run, one JSON line each, without running them
    #[arg(long)]
    dry_run: bool,

    /// Show messages, tool calls and answers as they happen; of dialogues turn by turn, with the checkpoints
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,

    /// Fail cases that checked nothing instead of warning about them
    #[arg(long)]
    strict: bool,

    /// Evaluate all assertions of a case instead of stopping at the first that does not hold
    #[arg(long)]
    all_assertions: bool,

    /// Fail cases whose tool calls have arguments that do not fit the tool's declared schema, instead of warning
    #[arg(long)]
    check_arguments: bool,

    /// What happens to the tools of cases without stubs [default: live]
    #[arg(long, value_enum, value_name = "MODE")]
    tools: Option<Tools>,

    /// Run only cases in whose id this regular expression matches
    #[arg(long, value_name = "REGEX")]
    run: Option<String>,

    /// Run only suites of this tier; may be given several times
    #[arg(long, value_name = "TIER", value_parser = tiers())]
    tier: Vec<Tier>,

    /// Run only cases of this difficulty, such as edge; may be given several times
    #[arg(long, value_name = "WORD")]
    difficulty: Vec<String>,

    /// Run only cases with this tag; may be given several times
    #[arg(long, value_name = "WORD")]
    tag: Vec<String>,

    /// Run only the cases that did not pass before: id of a run that the daemon keeps, or a result file
    #[arg(long, value_name = "RUN")]
    failed: Option<String>,

    /// Values for {{seed:…}} tokens [default: seed-manifest.json or evals/seed-manifest.json in the folder of the suite or above
    /// it, up to the root of the project]
    #[arg(long, value_name = "FILE")]
    seed_manifest: Option<PathBuf>,

    /// The tools of today, to see whether suites are stale: a JSON file, an MCP tools/list result, or a TypeScript
    /// barrel [default: the tools that the agent declares]
    #[arg(long, value_name = "FILE")]
    registry: Option<PathBuf>,

    /// Values for {{snapshot:…}} tokens, captured before the run
    #[arg(long, value_name = "FILE", group = "snapshots")]
    snapshot: Option<PathBuf>,

    /// A command whose output is JSON with the values for {{snapshot:…}} tokens; it is run here, right before the run
    #[arg(long, value_name = "COMMAND", group = "snapshots")]
    snapshot_command: Option<String>,

    /// An address that answers GET with JSON that holds the values for {{snapshot:…}} tokens; it is asked right before the
    /// run
    #[arg(long, value_name = "URL", group = "snapshots")]
    snapshot_url: Option<String>,

    /// A header for --snapshot-url, whose value stands in an environment variable, such as Authorization=TOKEN; may be
    /// given several times
    #[arg(long, value_name = "NAME=VARIABLE")]
    snapshot_header: Vec<RequestHeader>,

    /// An agent that is asked for the values of {{snapshot:…}} tokens right before the run: a name that the daemon
    /// knows, or an address; it implements SnapshotProvider
    #[arg(long, value_name = "AGENT", group = "snapshots")]
    snapshot_agent: Option<String>,

    /// A function of a script to call before the first case, such as scripts:tests.env.BeforeAll; no case is run if it fails
    #[arg(long, value_name = "SCRIPT", value_parser = ScriptRef::of_hook)]
    before: Option<ScriptRef>,

    /// A function of a script to call after the last case, whatever came of the run
    #[arg(long, value_name = "SCRIPT", value_parser = ScriptRef::of_hook)]
    after: Option<ScriptRef>,

    /// Compare with an earlier result: the id of a run, `last` (same suites, same agent), or a result file
    #[arg(long, value_name = "RUN")]
    baseline: Option<String>,

    /// Directory for the results, one JSON file an eval file [default: evals/results]
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,

    /// Write the result to this file too; its ending says the format: .json, .jsonl, .xml for JUnit, .md for a comment on a
    /// pull request, .html for a browser; to a folder, which is there or ends in /, the result of each suite, .json of eval
    /// files and .jsonl of test files; may be given several times
    #[arg(short, long, value_name = "FILE")]
    output: Vec<PathBuf>,

    /// Play back what agents and simulators answered in this run of the daemon, instead of calling them: what they were never asked
    /// cannot be judged
    #[arg(long, value_name = "RUN", help_heading = "Replay")]
    replay: Option<String>,

    /// With --replay: ask validators anew, instead of taking what they said then
    #[arg(long, requires = "replay", help_heading = "Replay")]
    validators: bool,

    /// Write the traces of the run to this file, as OTLP in JSON, a request a line
    #[arg(long, value_name = "FILE", conflicts_with = "detach", help_heading = "Traces")]
    otlp_file: Option<PathBuf>,

    /// A link to the trace of each case, such as `https://traces.example/trace/{trace_id}?span={span_id}`
    #[arg(long, value_name = "URL", value_parser = trace_url, help_heading = "Traces")]
    trace_url: Option<String>,

    /// Put into the traces what was said, and what tools were given and gave; so does
    /// OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true
    #[arg(long, help_heading = "Traces")]
    capture_content: bool,

    /// A label to find the run again by, such as branch=main; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    label: Vec<(String, String)>,

    /// Start the run, print its id, and do not wait for it
    #[arg(long)]
    detach: bool,

    /// Print nothing but the summary
    #[arg(short, long)]
    quiet: bool,

    /// Whether the settings of the project say nothing about snapshots: the values of then are those of the recorded run
    #[arg(skip)]
    takes_no_snapshot: bool,

    /// What models cost; a setting without a flag
    #[arg(skip)]
    prices: Prices,

    /// As `undecided`; of a run without a gate it means nothing
    #[arg(skip)]
    undecided_by_settings: Option<Undecided>,

    /// The run that is judged again, whose cases these are; a flag of nobody
    #[arg(skip)]
    recorded: Option<Box<Run>>,

    /// Time for one case of the Eval Runner Contract, where `timeout` says nothing; a setting without a flag
    #[arg(skip)]
    contract_timeout: Option<Timeout>,

    /// As `seed_manifest`; it need not be there as long as no case asks for it
    #[arg(skip)]
    seed_manifest_by_settings: Option<PathBuf>,

    /// Agents of the settings that are HTTP endpoints
    #[arg(skip)]
    endpoints: Vec<NamedEndpoint>,

    /// The folder of the project's settings, if it has some
    #[arg(skip)]
    settings: Option<PathBuf>,
}

/// The names of the tiers, each read as its tier.
fn tiers() -> impl TypedValueParser<Value = Tier> {
    let names = [Tier::Golden, Tier::Labeled, Tier::Regression].map(Tier::name);
    PossibleValuesParser::new(names).map(|name| Tier::named(&name).unwrap_or(Tier::Golden))
}

/// See [`RunArgs::trace_url`].
fn trace_url(text: &str) -> Result<String, String> {
    check_template(text).map(|()| text.to_owned())
}

/// See [`RunArgs::tools`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Tools {
    /// The agent runs its real tools
    Live,
    /// The agent says which tools it would call, and none is run
    RoutingOnly,
}

impl RunArgs {
    /// Sorted, as a daemon has them; of two with the same key the last holds.
    fn labels(&self) -> Vec<(String, String)> {
        let labels: std::collections::BTreeMap<_, _> = self.label.iter().cloned().collect();
        labels.into_iter().collect()
    }

    /// Arguments for a run that asks the same of the same agents as an earlier one.
    pub(super) fn like(paths: Vec<String>, run: Run) -> Self {
        let spec = &run.spec;
        // Those that are only an address are added again.
        let agent = spec.targets.iter().filter(|(id, url)| id != url).cloned().collect();
        Self {
            paths,
            name: Some(spec.agent_id.clone()),
            agent,
            simulator: spec.simulator.clone(),
            connector: spec.connector.clone(),
            timeout: spec.case_timeout.clone(),
            contract_timeout: spec.contract_timeout.clone(),
            runs: Some(spec.repeats),
            tools: Some(match spec.tool_mode {
                ToolMode::RoutingOnly => Tools::RoutingOnly,
                ToolMode::Live | ToolMode::Stub => Tools::Live,
            }),
            snapshot_agent: spec.snapshot_agent.clone(),
            run: spec.case_patterns.first().cloned(),
            tier: spec.tiers.clone(),
            difficulty: spec.difficulties.clone(),
            tag: spec.tags.clone(),
            takes_no_snapshot: true,
            prices: spec.prices.clone(),
            recorded: Some(Box::new(run)),
            ..Self::default()
        }
    }

    fn hooks(&self) -> Hooks {
        Hooks { before: self.before.clone(), after: self.after.clone() }
    }

    fn gate(&self) -> Gate {
        Gate {
            min_pass_rate: self.min_pass_rate,
            min_case_pass_rate: self.min_case_pass_rate,
            max_regression: self.max_regression,
            to_the_end: self.to_the_end,
            undecided: self.undecided.or(self.undecided_by_settings),
        }
    }

    fn output_dir(&self) -> &Path {
        self.output_dir.as_deref().unwrap_or(Path::new(OUTPUT_DIR))
    }

    /// The agent to test, which is checked to be there before anything else is done.
    fn agent_name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }
}

pub(super) async fn run(daemon: Option<String>, mut args: RunArgs) -> Result<Exit, CliError> {
    let sources: Vec<String> = args.paths.iter().chain(&args.input).cloned().collect();
    if sources.is_empty() {
        return Err(CliError::new(Exit::Usage, "nothing to run: name an eval file, a folder or a glob pattern")
            .hint("as in `forgectl run evals/weather.golden.json -n grpc://127.0.0.1:50051`"));
    }
    // CI sets variables to nothing to say that they are not set.
    args.name = args.name.take().filter(|name| !name.is_empty());
    if let Some(config) = config::Config::find(args.config.as_deref())? {
        config.fill(&mut args)?;
    }
    if args.name.is_none() && !(args.dry_run && only_reads(&sources)) {
        return Err(no_agent());
    }
    if args.max_regression.is_some() && args.baseline.is_none() {
        return Err(CliError::new(Exit::Usage, "--max-regression compares with an earlier result, and there is none")
            .hint("name one with --baseline: the id of a run, `last`, or a result file"));
    }
    if args.max_regression.is_some_and(|most| most.millionths() == 0) {
        let message = "--max-regression 0%: no number of repetitions could show that nothing was lost at all";
        return Err(CliError::new(Exit::Usage, message).hint("say how large a drop matters, such as 2%"));
    }
    let about_gate = [("--to-the-end", args.to_the_end), ("--undecided", args.undecided.is_some())];
    if let Some((flag, _)) = about_gate.iter().find(|(_, is_given)| *is_given && args.gate().is_open()) {
        return Err(CliError::new(Exit::Usage, format!("{flag} is about a gate, and there is none"))
            .hint("set one with --min-pass-rate, --min-case-pass-rate or --max-regression"));
    }
    let daemon = daemon.filter(|_| !args.daemon_free);
    if args.replay.is_some() && daemon.is_none() {
        return Err(CliError::new(
            Exit::Usage,
            "--replay plays back a run that a daemon keeps, and no daemon is given",
        )
        .hint("give its address with --daemon URL or FORGE_DAEMON"));
    }
    check_outputs(&args)?;
    if let Some((id, _)) = args.agent.iter().enumerate().find_map(|(n, a)| args.agent[..n].iter().find(|b| b.0 == a.0))
    {
        return Err(CliError::new(Exit::Usage, format!("--agent {id}=… is given twice")));
    }
    let http = HttpAgents::start(&mut args, daemon.as_deref()).await?;
    let defaults = Defaults { simulator: args.simulator.clone(), files_outside: args.allow_outside };
    let mut inputs = Inputs::read(&args.paths, &args.input, &defaults)?;
    if args.strict {
        inputs.refuse_doubtful()?;
    }
    inputs.add_hooks(&args.hooks())?;
    let about_seed = inputs.add_seed(&NamedSeed {
        flag: args.seed_manifest.as_deref(),
        setting: args.seed_manifest_by_settings.clone(),
        settings: args.settings.as_deref(),
    })?;
    // A dry run asks nobody for values that nobody compares with.
    let captured = if args.dry_run { None } else { snapshot::capture(&args).await? };
    check_overwrites(&args, &inputs)?;
    if let Some((name, bytes)) = captured {
        inputs.add_file(&name, Role::Snapshot, bytes)?;
    }
    let unread = args.registry.as_deref().map(|path| inputs.add_registry(path)).transpose()?.unwrap_or_default();
    let say = |text: &str| {
        if !args.quiet {
            note(text);
        }
    };
    for text in &inputs.not_run {
        say(text);
    }
    for warning in inputs.findings().chain(&unread) {
        say(&format!("⚠ {warning}"));
    }
    if let Some(text) = &about_seed {
        say(text);
    }
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
    if client.is_embedded() {
        say("no daemon given: running one inside this process");
    }
    http.lines().for_each(|line| say(&line));
    // Apart: what it holds is large, and moved about.
    let result = Box::pin(run_on(&client, &args, inputs, &interrupts)).await;
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

/// Whether everything is in files, and nobody is asked for it.
fn only_reads(sources: &[String]) -> bool {
    sources.iter().all(|source| !matches!(Source::parse(source), Source::Agent { .. } | Source::Script { .. }))
}

/// Says how to name the agent under test.
fn no_agent() -> CliError {
    let ways = [
        "-n AGENT               as in -n grpc://127.0.0.1:50051, -n http://127.0.0.1:3000/chat or -n assistants.expense",
        "FORGE_AGENT=AGENT      the same, in the environment",
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
        let text = baseline::find(client, args, name, &inputs.suites).await?;
        inputs.add_file(Path::new("baseline.json"), Role::Baseline, text)?;
    }
    let cases = match &args.failed {
        None => args.recorded.as_deref().map(|run| previous::same(run, &inputs.suites)).unwrap_or_default(),
        Some(run) => previous::not_passed(client, run, &inputs.suites).await?,
    };
    // In a file: a bundle may be larger than memory.
    let mut packed = tempfile::tempfile()
        .map_err(|error| CliError::new(Exit::CouldNotRun, format!("cannot make a file for the bundle: {error}")))?;
    let (bundle, bundle_size) = inputs
        .bundle
        .pack(std::io::BufWriter::with_capacity(1 << 20, &mut packed))
        .map_err(|error| CliError::new(Exit::Usage, chain(&error)))?;
    let parties: Vec<&String> = args.snapshot_agent.iter().chain(&args.simulator).collect();
    let targets = targets(args, &parties);
    let name = args.agent_name();
    let spec = RunSpec {
        bundle,
        bundle_size,
        case_patterns: args.run.clone().into_iter().collect(),
        cases,
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
    };
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
    let inputs = Some(inputs).filter(|_| args.update_snapshots || args.verbose);
    let verbose = inputs.as_ref().filter(|_| args.verbose).map(|inputs| Verbose::new(&inputs.suites));
    let lines = Lines::with_answers_of(messages);
    let Ended { run, lines, answered } = follow(client, args, &run, interrupts, verbose, lines).await?;
    // First what people wait for, then the files, whatever became of the other.
    let told = tell(args, &run, &given, &lines);
    drop(lines);
    let written = match write_results(client, args, &run).await {
        // What came of the run is known and kept.
        Err(error) if (error.is_away || error.is_busy) && !client.is_embedded() => {
            error
                .hint(format!("`forgectl runs report {} -o FILE` writes the results at any later time", run.run_id))
                .tell();
            Ok(())
        }
        written => written,
    };
    let stored = inputs.filter(|_| args.update_snapshots);
    let stored = stored.map_or(Ok(()), |inputs| answered.store(&inputs.homes, &inputs.suites, args.quiet));
    match told {
        Err(error) if error.exit != Exit::Passed => return Err(error),
        Ok(()) | Err(_) => written.and(stored)?,
    }
    Ok(Exit::of_run(run.exit_code()))
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

/// Prints the cases that would run, one JSON line each: those of files in short, those of generators whole, as a file would
/// hold them.
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

/// Creates the run, and uploads the bundle if the daemon does not have it yet.
async fn create(client: &Client, spec: &RunSpec, packed: File) -> Result<Run, CliError> {
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
pub(super) fn read_run(run: Option<pb::Run>) -> Result<Run, CliError> {
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

/// A run that is over, and what the console shows of it.
struct Ended {
    run: Run,
    /// What is shown of it.
    lines: Lines,
    /// What is to be stored of it.
    answered: Answered,
}

/// Follows the run to its end, and cancels it when the user asks for it.
async fn follow(
    client: &Client,
    args: &RunArgs,
    run: &Run,
    interrupts: &Interrupts,
    verbose: Option<Verbose<'_>>,
    mut lines: Lines,
) -> Result<Ended, CliError> {
    let detail = if verbose.is_some() { pb::Detail::Calls } else { pb::Detail::Cases };
    let mut progress = Progress::new(run.totals.total, args.quiet, verbose);
    let mut follower = Follower::new(client, &run.run_id, detail);
    let mut answered = Answered::default();
    let mut cancelled = false;
    let ended = loop {
        let event = tokio::select! {
            event = follower.next() => event?,
            () = interrupts.first(), if !cancelled => {
                cancelled = true;
                progress.note("cancelling the run; press Ctrl-C again to leave at once");
                cancel(client, &run.run_id, &progress).await;
                continue;
            }
        };
        let Some(event) = event else {
            return Err(CliError::new(Exit::CouldNotRun, "the log of the run ended without its last event"));
        };
        progress.take(&event);
        lines.take(&event);
        match (&event.payload, &event.case) {
            (Payload::CaseFinished(result), Some(case)) if args.update_snapshots => answered.take(case, result),
            (Payload::RunFinished(run), _) => break (**run).clone(),
            _ => {}
        }
    };
    progress.finish();
    Ok(Ended { lines, run: ended, answered })
}

async fn cancel(client: &Client, run_id: &str, progress: &Progress<'_>) {
    let request = pb::CancelRunRequest { run_id: run_id.to_owned(), reason: "interrupted".to_owned() };
    if let Err(error) = client.ask("cancelling the run", client.runs().cancel_run(request)).await {
        progress.note(&error.to_string());
    }
}

/// Prints the summary of each suite that was run at least in part, and says what kept the run from going on.
fn tell(args: &RunArgs, run: &Run, given: &HashMap<String, String>, lines: &Lines) -> Result<(), CliError> {
    if run.error.is_none() || run.has_run_any() {
        summarise(args, run, given, lines)?;
    }
    let Some(trouble) = run.trouble() else { return Ok(()) };
    let error = CliError::new(Exit::CouldNotRun, trouble);
    Err(match run.error.as_ref().map(|fault| fault.reason.as_str()) {
        Some("AGENT_UNREACHABLE") if run.has_run_any() => {
            error.hint("did it stop? --agent-gone-after TIME waits longer for one that comes back")
        }
        Some("AGENT_UNREACHABLE") => error.hint("is it running, and is this its address?"),
        _ => error,
    })
}

fn summarise(args: &RunArgs, run: &Run, given: &HashMap<String, String>, lines: &Lines) -> Result<(), CliError> {
    let look: Look = look();
    // What is said of the run as a whole stands with the last suite of which anything is shown.
    let last = run.suites.iter().rposition(|suite| !lines.of_suite(&suite.path).is_empty());
    for (index, suite) in run.suites.iter().enumerate() {
        let shown = lines.of_suite(&suite.path);
        if shown.is_empty() {
            continue;
        }
        // Those of the file were told before the run, unless nothing was.
        let of_suite = suite.warnings.iter().filter(|_| args.quiet);
        let of_run = run.warnings.iter().filter(|_| Some(index) == last);
        let warnings: Vec<String> = of_suite.chain(of_run).cloned().collect();
        let input = given.get(&suite.path).unwrap_or(&suite.path);
        print(&summary(run, suite, input, &shown, &warnings, look))?;
        let of_suite = lines.repeats_of(&suite.path);
        if !of_suite.cases.is_empty() {
            print(&repeats::summary(&of_suite, look))?;
        }
    }
    if let Some(gate) = &run.gate {
        print(&repeats::gate(gate, look))?;
    }
    if run.spec.trace_url.is_some() {
        print(&format!("Trace: {}\n", printable(Tracing::of(run).run().shown())))?;
    }
    Ok(())
}
