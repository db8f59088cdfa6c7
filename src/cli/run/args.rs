//! The flags of `forgectl run`.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::fail_on::FailOn;
use super::github::When;
use super::http_agent::NamedEndpoint;
use super::outputs;
use crate::cli::agents::key_value;
use crate::cli::settings::Origins;
use crate::conversation::ToolMode;
use crate::event::Run;
use crate::plan::{MAX_REPEATS, MAX_RETRIES};
use crate::report::Format;
use crate::sidecar::http::address::RequestHeader;
use crate::sidecar::http::endpoint::Endpoint;
use crate::suite::Tier;
use crate::suite::script::{Hooks, ScriptRef};
use crate::suite::timeout::Timeout;
use crate::trace::check_template;
use crate::usage::Prices;
use crate::verdict::gate::{Gate, Rate, Undecided};

/// Where results are written when nothing is said.
pub(in crate::cli) const OUTPUT_DIR: &str = "evals/results";

/// Groups of flags in a help. Each flag names its own: those of [`Endpoint`] stand between them.
const WHAT: &str = "What to run";
const AGENTS: &str = "Agents";
const HOW: &str = "How to run";
const JUDGED: &str = "What counts";
const GATE: &str = "Gate";
const VALUES: &str = "Values and files of cases";
const RESULTS: &str = "Results";
const CI: &str = "CI";
const DAEMON: &str = "Daemon";
const SETTINGS: &str = "Settings";
const REPLAY: &str = "Replay";
const TRACES: &str = "Traces";

#[derive(Debug, Args, Default)]
pub(in crate::cli) struct RunArgs {
    /// Eval files, folders or glob patterns
    #[arg(value_name = "PATH")]
    pub(super) paths: Vec<String>,

    /// A path, a message, the tests of a script, or a generator
    ///
    /// Such as evals/faq.golden.json, "Hello, I am Ada", scripts.expense.setup, "agents:ID?count=10&focus=edge-cases"
    /// or "scripts:tests.gen?count=5". May be given several times.
    #[arg(short, long = "input", visible_alias = "eval", value_name = "SOURCE", help_heading = WHAT)]
    pub(super) input: Vec<String>,

    /// Run only cases in whose id this regular expression matches
    #[arg(long, value_name = "REGEX", help_heading = WHAT)]
    pub(super) run: Option<String>,

    /// Run only the cases that did not pass in this run
    ///
    /// The beginning of its id, last, last~1, last:SUITE, a label such as branch=main, or a result file.
    #[arg(long, value_name = "RUN", help_heading = WHAT)]
    pub(super) failed: Option<String>,

    /// Run only suites of this tier
    ///
    /// May be given several times.
    #[arg(long, value_name = "TIER", value_parser = tiers(), help_heading = WHAT, hide_short_help = true)]
    pub(super) tier: Vec<Tier>,

    /// Run only cases of this difficulty, such as edge
    ///
    /// May be given several times.
    #[arg(long, value_name = "WORD", help_heading = WHAT, hide_short_help = true)]
    pub(super) difficulty: Vec<String>,

    /// Run only cases with this tag
    ///
    /// May be given several times.
    #[arg(long, value_name = "WORD", help_heading = WHAT, hide_short_help = true)]
    pub(super) tag: Vec<String>,

    /// Print the cases that would run, and run none
    ///
    /// Everything is read, and each case is a line of JSON.
    #[arg(long, help_heading = WHAT)]
    pub(super) dry_run: bool,

    /// Agent to test: a name, or an address
    ///
    /// A name that the daemon, the settings or --agent knows, an address such as grpc://127.0.0.1:50051, or that of an
    /// HTTP endpoint such as http://127.0.0.1:3000/chat.
    #[arg(short, long, value_name = "AGENT", env = "FORGE_AGENT", hide_env_values = true, help_heading = AGENTS)]
    pub(in crate::cli) name: Option<String>,

    /// Start the agent for this run, and end it with it
    ///
    /// Such as 'python agent.py --listen {listen}': where it is to listen stands in place of {listen}, or its port in
    /// place of {port}. ID=COMMAND starts another agent. May be given several times.
    #[arg(long, value_name = "[ID=]COMMAND", help_heading = AGENTS)]
    pub(super) start: Vec<String>,

    /// Time for an agent that is started to serve [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = Timeout::parse, help_heading = AGENTS, hide_short_help = true)]
    pub(super) start_within: Option<Timeout>,

    /// An agent for this run only, such as weather=grpc://127.0.0.1:50051
    ///
    /// May be given several times.
    #[arg(long, value_name = "ID=URL", value_parser = key_value, help_heading = AGENTS)]
    pub(in crate::cli) agent: Vec<(String, String)>,

    /// Who plays the user in dynamic cases that name nobody
    ///
    /// A name that the daemon, the settings or --agent knows, or an address.
    #[arg(long, value_name = "AGENT", help_heading = AGENTS, hide_short_help = true)]
    pub(super) simulator: Option<String>,

    /// The connector that the agent is told, in place of that of the cases
    #[arg(short, long, value_name = "NAME", help_heading = AGENTS, hide_short_help = true)]
    pub(super) connector: Option<String>,

    /// What happens to the tools of cases without stubs [default: live]
    #[arg(long, value_enum, value_name = "MODE", help_heading = AGENTS, hide_short_help = true)]
    pub(super) tools: Option<Tools>,

    /// End the run when nobody answers at the agent's address for so long
    ///
    /// It counts once the agent was reached. [default: what the daemon says, 10s unless it says otherwise]
    #[arg(long, value_name = "TIME", value_parser = Timeout::parse, help_heading = AGENTS, hide_short_help = true)]
    pub(super) agent_gone_after: Option<Timeout>,

    /// How an HTTP endpoint is spoken to that is tested
    #[command(flatten)]
    pub(super) endpoint: Endpoint,

    /// Cases at the same time [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000), help_heading = HOW)]
    pub(super) parallel: Option<u32>,

    /// Time for one case, such as 30s or 2m [default: 60s; of .jsonl files 5m]
    #[arg(long, value_name = "TIME", value_parser = Timeout::parse, help_heading = HOW)]
    pub(in crate::cli) timeout: Option<Timeout>,

    /// Run each case K times; every repetition counts
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_REPEATS)), help_heading = HOW)]
    pub(super) runs: Option<u32>,

    /// Stop at the first case that does not pass
    ///
    /// Cases in flight are cancelled, and the rest is skipped.
    #[arg(long, help_heading = HOW)]
    pub(super) fail_fast: bool,

    /// Try a case up to N times again that could not be judged
    ///
    /// For trouble with the connection, the simulator or a validator.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, help_heading = HOW, hide_short_help = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=i64::from(MAX_RETRIES)))]
    pub(super) retries: u32,

    /// Try a case up to N times again that failed
    ///
    /// If it passes then, it counts as passed and is reported as flaky.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, help_heading = HOW, hide_short_help = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=i64::from(MAX_RETRIES)))]
    pub(super) retry_failed: u32,

    /// A function of a script to call before the first case
    ///
    /// Such as scripts:tests.env.BeforeAll. No case is run if it fails.
    #[arg(long, value_name = "SCRIPT", value_parser = ScriptRef::of_hook, help_heading = HOW, hide_short_help = true)]
    pub(super) before: Option<ScriptRef>,

    /// A function of a script to call after the last case
    ///
    /// Whatever came of the run.
    #[arg(long, value_name = "SCRIPT", value_parser = ScriptRef::of_hook, help_heading = HOW, hide_short_help = true)]
    pub(super) after: Option<ScriptRef>,

    /// Compare with an earlier result, such as last
    ///
    /// `last` is the newest of the same suites and the same agent. Else the beginning of the id of a run, last~1,
    /// last:SUITE, a label such as branch=main, or a result file.
    #[arg(long, value_name = "RUN", help_heading = JUDGED)]
    pub(in crate::cli) baseline: Option<String>,

    /// Fail cases that checked nothing instead of warning about them
    #[arg(long, help_heading = JUDGED, hide_short_help = true)]
    pub(super) strict: bool,

    /// Evaluate all assertions of a case
    ///
    /// Instead of stopping at the first that does not hold.
    #[arg(long, help_heading = JUDGED, hide_short_help = true)]
    pub(super) all_assertions: bool,

    /// Fail cases whose tool calls do not fit the schema of their tool
    ///
    /// Instead of warning about them.
    #[arg(long, help_heading = JUDGED, hide_short_help = true)]
    pub(super) check_arguments: bool,

    /// Store the answers of cases with `snapshot` assertions
    ///
    /// Instead of comparing them with what is stored now.
    #[arg(long, conflicts_with_all = ["detach", "dry_run"], help_heading = JUDGED, hide_short_help = true)]
    pub(super) update_snapshots: bool,

    /// Pass if this part of all executions passes, such as 95%
    ///
    /// Instead of all.
    #[arg(long, value_name = "RATE", value_parser = Rate::parse, conflicts_with = "fail_fast", help_heading = GATE)]
    pub(super) min_pass_rate: Option<Rate>,

    /// Pass if of each case this part of its repetitions passes, such as 80%
    #[arg(long, value_name = "RATE", value_parser = Rate::parse, conflicts_with = "fail_fast", help_heading = GATE, hide_short_help = true)]
    pub(super) min_case_pass_rate: Option<Rate>,

    /// Pass if the pass rate did not drop by more than this, such as 5%
    ///
    /// Against --baseline, by an exact test, neither of the whole nor of a suite. Too little to tell is no pass, see
    /// --undecided.
    #[arg(long, value_name = "RATE", value_parser = Rate::parse, conflicts_with = "fail_fast", help_heading = GATE, hide_short_help = true)]
    pub(super) max_regression: Option<Rate>,

    /// What it counts as that nobody can tell whether the gate was passed
    ///
    /// Because too little is known: pass (exit code 0) or fail (1). [default: neither, exit code 3]
    #[arg(long, value_name = "pass|fail", value_parser = Undecided::parse, help_heading = GATE, hide_short_help = true)]
    pub(in crate::cli) undecided: Option<Undecided>,

    /// Run all cases, also when nothing can change what comes of the gate
    #[arg(long, help_heading = GATE, hide_short_help = true)]
    pub(super) to_the_end: bool,

    /// Values for {{seed:…}} tokens
    ///
    /// [default: seed-manifest.json or evals/seed-manifest.json in the folder of the suite or above it, up to the root
    /// of the project]
    #[arg(long, value_name = "FILE", help_heading = VALUES, hide_short_help = true)]
    pub(in crate::cli) seed_manifest: Option<PathBuf>,

    /// Values for {{snapshot:…}} tokens, captured before the run
    #[arg(long, value_name = "FILE", group = "snapshots", help_heading = VALUES, hide_short_help = true)]
    pub(super) snapshot: Option<PathBuf>,

    /// A command whose output is JSON with the values of the snapshot
    ///
    /// It is run here, right before the run.
    #[arg(long, value_name = "COMMAND", group = "snapshots", help_heading = VALUES, hide_short_help = true)]
    pub(super) snapshot_command: Option<String>,

    /// An address that answers GET with JSON with the values of the snapshot
    ///
    /// It is asked right before the run.
    #[arg(long, value_name = "URL", group = "snapshots", help_heading = VALUES, hide_short_help = true)]
    pub(super) snapshot_url: Option<String>,

    /// A header for --snapshot-url, such as Authorization=TOKEN
    ///
    /// Its value stands in an environment variable. May be given several times.
    #[arg(long, value_name = "NAME=VARIABLE", help_heading = VALUES, hide_short_help = true)]
    pub(in crate::cli) snapshot_header: Vec<RequestHeader>,

    /// An agent that is asked for the values of the snapshot
    ///
    /// A name that the daemon knows, or an address. It implements SnapshotProvider.
    #[arg(long, value_name = "AGENT", group = "snapshots", help_heading = VALUES, hide_short_help = true)]
    pub(super) snapshot_agent: Option<String>,

    /// The tools of today, to see whether suites are stale
    ///
    /// A JSON file, an MCP tools/list result, or a TypeScript barrel. [default: the tools that the agent declares]
    #[arg(long, value_name = "FILE", help_heading = VALUES, hide_short_help = true)]
    pub(in crate::cli) registry: Option<PathBuf>,

    /// Let cases send files from outside the folder of their suite
    #[arg(long, help_heading = VALUES, hide_short_help = true)]
    pub(super) allow_outside: bool,

    /// Write the result to this file too; its ending says the format
    ///
    /// One of .json, .jsonl, .xml for JUnit, .md for a comment on a pull request, .html for a browser; to a folder,
    /// which is there or ends in /, the result of each suite, .json of eval files and .jsonl of test files; - is
    /// stdout, where nothing else stands then. May be given several times.
    #[arg(short, long, value_name = "FILE", help_heading = RESULTS)]
    pub(super) output: Vec<PathBuf>,

    /// Format of -o - [default: json]
    ///
    /// json, jsonl, junit, markdown or html.
    #[arg(long, value_name = "FORMAT", value_parser = outputs::format_named, help_heading = RESULTS)]
    #[arg(hide_short_help = true)]
    pub(super) format: Option<Format>,

    /// Folder for the results, one JSON file an eval file
    ///
    /// [default: evals/results]
    #[arg(long, value_name = "DIR", help_heading = RESULTS, hide_short_help = true)]
    pub(in crate::cli) output_dir: Option<PathBuf>,

    /// A label to find the run again by, such as branch=main
    ///
    /// May be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value, help_heading = RESULTS, hide_short_help = true)]
    pub(super) label: Vec<(String, String)>,

    /// Show messages, tool calls and answers as they happen
    ///
    /// Of dialogues turn by turn, with the checkpoints.
    #[arg(short, long, conflicts_with = "quiet", help_heading = RESULTS)]
    pub(super) verbose: bool,

    /// Print nothing but the cases that did not pass, and the summary
    #[arg(short, long, help_heading = RESULTS)]
    pub(super) quiet: bool,

    /// Print what happens as lines of JSON
    ///
    /// Each case as soon as it is judged, and a summary at the end; nothing else stands on stdout.
    #[arg(long, conflicts_with_all = ["dry_run", "detach"], help_heading = CI)]
    pub(super) json: bool,

    /// What makes the exit code 1: failed, regressed or never [default: failed]
    ///
    /// `failed` is a case that failed, or a missed gate; `regressed`, only a case that passed in --baseline; `never`,
    /// nothing. What could not be run or judged stays 3.
    #[arg(long, value_enum, value_name = "WHAT", hide_possible_values = true, conflicts_with = "detach")]
    #[arg(help_heading = CI)]
    pub(super) fail_on: Option<FailOn>,

    /// For GitHub Actions: annotate lines of cases, and write a summary
    ///
    /// Of the cases that did not pass, and of the step: always, never or auto, which is where GITHUB_ACTIONS is true.
    /// [default: auto]
    #[arg(long, value_enum, value_name = "WHEN", hide_possible_values = true, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "always", help_heading = CI, hide_short_help = true)]
    pub(super) github: Option<When>,

    /// Run a daemon inside this process, whatever else is said
    ///
    /// Also if FORGE_DAEMON or the settings name one.
    #[arg(long, conflicts_with = "detach", help_heading = DAEMON, hide_short_help = true)]
    pub(super) daemon_free: bool,

    /// Start the run, print its id, and do not wait for it
    #[arg(long, help_heading = DAEMON, hide_short_help = true)]
    pub(super) detach: bool,

    /// Wait so long for a daemon that goes away [default: 60s]
    ///
    /// While the run is followed. It goes on with its runs when it is back.
    #[arg(long, value_name = "TIME", value_parser = Timeout::parse, help_heading = DAEMON, hide_short_help = true)]
    pub(super) wait: Option<Timeout>,

    /// Settings of the project
    ///
    /// [default: forge.config.json here or above, if there is one]
    #[arg(long, value_name = "FILE", help_heading = SETTINGS, hide_short_help = true)]
    pub(super) config: Option<PathBuf>,

    /// Print what holds and who says so, and run nothing
    ///
    /// Flags, environment, settings and defaults.
    #[arg(long, help_heading = SETTINGS)]
    pub(in crate::cli) config_show: bool,

    /// Play back what agents and simulators answered in this run
    ///
    /// A run of the daemon, named as for --failed. Nobody is called; what they were never asked cannot be judged.
    #[arg(long, value_name = "RUN", help_heading = REPLAY, hide_short_help = true)]
    pub(super) replay: Option<String>,

    /// With --replay: ask validators anew
    ///
    /// Instead of taking what they said then.
    #[arg(long, requires = "replay", help_heading = REPLAY, hide_short_help = true)]
    pub(super) validators: bool,

    /// Write the traces of the run to this file
    ///
    /// As OTLP in JSON, a request a line.
    #[arg(long, value_name = "FILE", conflicts_with = "detach", help_heading = TRACES, hide_short_help = true)]
    pub(super) otlp_file: Option<PathBuf>,

    /// A link to the trace of each case
    ///
    /// Such as `https://traces.example/trace/{trace_id}?span={span_id}`.
    #[arg(long, value_name = "URL", value_parser = trace_url, help_heading = TRACES, hide_short_help = true)]
    pub(in crate::cli) trace_url: Option<String>,

    /// Put into the traces what was said, and what tools were given and gave
    ///
    /// So does OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true.
    #[arg(long, help_heading = TRACES, hide_short_help = true)]
    pub(super) capture_content: bool,

    /// What models cost; a setting without a flag
    #[arg(skip)]
    pub(in crate::cli) prices: Prices,

    /// The run that is judged again, whose cases these are; a flag of nobody
    #[arg(skip)]
    pub(super) recorded: Option<Box<Run>>,

    /// Time for one case of the Eval Runner Contract, where `timeout` says nothing; a setting without a flag
    #[arg(skip)]
    pub(in crate::cli) contract_timeout: Option<Timeout>,

    /// Agents of the settings that are started, with their commands
    #[arg(skip)]
    pub(in crate::cli) starts_by_settings: Vec<(String, String)>,

    /// Agents of the settings that are HTTP endpoints
    #[arg(skip)]
    pub(in crate::cli) endpoints: Vec<NamedEndpoint>,

    /// The folder of the project's settings, if it has some
    #[arg(skip)]
    pub(in crate::cli) settings: Option<PathBuf>,

    /// What stands in the settings
    #[arg(skip)]
    pub(in crate::cli) origins: Origins,
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
pub(super) enum Tools {
    /// The agent runs its real tools
    Live,
    /// The agent says which tools it would call, and none is run
    RoutingOnly,
}

impl RunArgs {
    /// Sorted, as a daemon has them; of two with the same key the last holds.
    pub(super) fn labels(&self) -> Vec<(String, String)> {
        let labels: std::collections::BTreeMap<_, _> = self.label.iter().cloned().collect();
        labels.into_iter().collect()
    }

    /// Arguments for a run that asks the same of the same agents as an earlier one.
    pub(in crate::cli) fn like(paths: Vec<String>, run: Run) -> Self {
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
            prices: spec.prices.clone(),
            recorded: Some(Box::new(run)),
            ..Self::default()
        }
    }

    /// How a flag is named to its user: where it stands in the settings, if that is who says it.
    pub(super) fn said(&self, flag: &str) -> String {
        let typed = || if flag == "name" { "-n".to_owned() } else { format!("--{}", flag.replace('_', "-")) };
        self.origins.of(flag).map_or_else(typed, str::to_owned)
    }

    pub(super) fn hooks(&self) -> Hooks {
        Hooks { before: self.before.clone(), after: self.after.clone() }
    }

    pub(in crate::cli) fn gate(&self) -> Gate {
        Gate {
            min_pass_rate: self.min_pass_rate,
            min_case_pass_rate: self.min_case_pass_rate,
            max_regression: self.max_regression,
            to_the_end: self.to_the_end,
            undecided: self.undecided,
        }
    }

    pub(in crate::cli) fn output_dir(&self) -> &Path {
        self.output_dir.as_deref().unwrap_or(Path::new(OUTPUT_DIR))
    }

    /// Whether stdout holds data, and nothing else may stand there.
    pub(super) fn has_data_on_stdout(&self) -> bool {
        self.json || outputs::takes_stdout(&self.output)
    }

    /// The agent to test, which is checked to be there before anything else is done.
    pub(super) fn agent_name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }
}
