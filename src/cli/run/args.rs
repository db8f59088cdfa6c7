//! The flags of `forgectl run`.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::fail_on::FailOn;
use super::github::When;
use super::http_agent::NamedEndpoint;
use super::outputs;
use crate::cli::agents::key_value;
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
pub(super) const OUTPUT_DIR: &str = "evals/results";

#[derive(Debug, Args, Default)]
pub(in crate::cli) struct RunArgs {
    /// Eval files, folders or glob patterns
    #[arg(value_name = "PATH")]
    pub(super) paths: Vec<String>,

    /// A path as above, a message to send as it is, the tests of a script such as scripts.expense.setup, or a generator such
    /// as "agents:ID?count=10&focus=edge-cases" or "scripts:tests.gen?count=5"; may be given several times
    #[arg(short, long = "input", visible_alias = "eval", value_name = "SOURCE")]
    pub(super) input: Vec<String>,

    /// Agent to test: a name that the daemon knows, an address such as grpc://127.0.0.1:50051, or without a daemon that
    /// of an HTTP chat endpoint such as http://127.0.0.1:3000/chat
    #[arg(short, long, value_name = "AGENT", env = "FORGE_AGENT")]
    pub(super) name: Option<String>,

    /// Settings of the project [default: forge.config.json here or above, if there is one]
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,

    /// An agent for this run only, such as weather=grpc://127.0.0.1:50051; may be given several times
    #[arg(long, value_name = "ID=URL", value_parser = key_value)]
    pub(super) agent: Vec<(String, String)>,

    /// Start the agent for this run and end it with it, such as 'python agent.py --listen {listen}': where it is to listen stands in place
    /// of {listen}, or the port of it in place of {port}; ID=COMMAND starts another agent; may be given several times
    #[arg(long, value_name = "[ID=]COMMAND")]
    pub(super) start: Vec<String>,

    /// Time for an agent that is started to serve [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = Timeout::parse)]
    pub(super) start_within: Option<Timeout>,

    /// How an HTTP endpoint is spoken to that is tested
    #[command(flatten)]
    pub(super) endpoint: Endpoint,

    /// Run a daemon inside this process even if FORGE_DAEMON is set
    #[arg(long, conflicts_with = "detach", help_heading = "Daemon")]
    pub(super) daemon_free: bool,

    /// Wait so long for a daemon that goes away while the run is followed; it goes on with its runs when it is back
    /// [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = Timeout::parse, help_heading = "Daemon")]
    pub(super) wait: Option<Timeout>,

    /// Cases at the same time [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) parallel: Option<u32>,

    /// Time for one case, such as 500ms, 30s or 2m [default: 60s; of .jsonl files 5m]
    #[arg(long, value_name = "TIME", value_parser = Timeout::parse)]
    pub(super) timeout: Option<Timeout>,

    /// Who plays the user in dynamic cases that name nobody: a name that the daemon knows, or one given with --agent
    #[arg(long, value_name = "AGENT")]
    pub(super) simulator: Option<String>,

    /// Let cases send files from outside the folder of their suite
    #[arg(long)]
    pub(super) allow_outside: bool,

    /// The connector that the agent is told, in place of that of the cases
    #[arg(short, long, value_name = "NAME")]
    pub(super) connector: Option<String>,

    /// Stop at the first case that does not pass; cases in flight are cancelled, and the rest is skipped
    #[arg(long)]
    pub(super) fail_fast: bool,

    /// Run each case K times; every repetition counts
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_REPEATS)))]
    pub(super) runs: Option<u32>,

    /// Pass if this part of all executions passes, such as 95%, instead of all
    #[arg(long, value_name = "RATE", value_parser = Rate::parse, conflicts_with = "fail_fast", help_heading = "Gate")]
    pub(super) min_pass_rate: Option<Rate>,

    /// Pass if of each case this part of its repetitions passes, such as 80%
    #[arg(long, value_name = "RATE", value_parser = Rate::parse, conflicts_with = "fail_fast", help_heading = "Gate")]
    pub(super) min_case_pass_rate: Option<Rate>,

    /// Pass if an exact test sees no drop of the pass rate against --baseline that is larger than this, such as 5%, neither
    /// of the whole nor of a suite; too little to tell is no pass, see --undecided
    #[arg(long, value_name = "RATE", value_parser = Rate::parse, conflicts_with = "fail_fast", help_heading = "Gate")]
    pub(super) max_regression: Option<Rate>,

    /// What it counts as that nobody can tell whether the gate was passed, because too little is known: pass (exit code 0) or
    /// fail (1) [default: neither, exit code 3]
    #[arg(long, value_name = "pass|fail", value_parser = Undecided::parse, help_heading = "Gate")]
    pub(super) undecided: Option<Undecided>,

    /// Run all cases, also when nothing that is left can change what comes of the gate
    #[arg(long, help_heading = "Gate")]
    pub(super) to_the_end: bool,

    /// End the run when nobody answers at the agent's address for so long, once it was reached [default: what the daemon
    /// says, 10s unless it says otherwise]
    #[arg(long, value_name = "TIME", value_parser = Timeout::parse)]
    pub(super) agent_gone_after: Option<Timeout>,

    /// Try a case up to N times again that could not be judged, for trouble with the connection, the simulator or a
    /// validator
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=i64::from(MAX_RETRIES)))]
    pub(super) retries: u32,

    /// Try a case up to N times again that failed; if it passes then, it counts as passed and is reported as flaky
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=i64::from(MAX_RETRIES)))]
    pub(super) retry_failed: u32,

    /// Store the answers of cases with `snapshot` assertions, instead of comparing them with what is stored now
    #[arg(long, conflicts_with_all = ["detach", "dry_run"])]
    pub(super) update_snapshots: bool,

    /// Read everything and print the cases that would run, one JSON line each, without running them
    #[arg(long)]
    pub(super) dry_run: bool,

    /// Show messages, tool calls and answers as they happen; of dialogues turn by turn, with the checkpoints
    #[arg(short, long, conflicts_with = "quiet")]
    pub(super) verbose: bool,

    /// Fail cases that checked nothing instead of warning about them
    #[arg(long)]
    pub(super) strict: bool,

    /// Evaluate all assertions of a case instead of stopping at the first that does not hold
    #[arg(long)]
    pub(super) all_assertions: bool,

    /// Fail cases whose tool calls have arguments that do not fit the tool's declared schema, instead of warning
    #[arg(long)]
    pub(super) check_arguments: bool,

    /// What happens to the tools of cases without stubs [default: live]
    #[arg(long, value_enum, value_name = "MODE")]
    pub(super) tools: Option<Tools>,

    /// Run only cases in whose id this regular expression matches
    #[arg(long, value_name = "REGEX")]
    pub(super) run: Option<String>,

    /// Run only suites of this tier; may be given several times
    #[arg(long, value_name = "TIER", value_parser = tiers())]
    pub(super) tier: Vec<Tier>,

    /// Run only cases of this difficulty, such as edge; may be given several times
    #[arg(long, value_name = "WORD")]
    pub(super) difficulty: Vec<String>,

    /// Run only cases with this tag; may be given several times
    #[arg(long, value_name = "WORD")]
    pub(super) tag: Vec<String>,

    /// Run only the cases that did not pass in this run: the beginning of its id, last, last~1, last:SUITE, a label such as
    /// branch=main, or a result file
    #[arg(long, value_name = "RUN")]
    pub(super) failed: Option<String>,

    /// Values for {{seed:…}} tokens [default: seed-manifest.json or evals/seed-manifest.json in the folder of the suite or above
    /// it, up to the root of the project]
    #[arg(long, value_name = "FILE")]
    pub(super) seed_manifest: Option<PathBuf>,

    /// The tools of today, to see whether suites are stale: a JSON file, an MCP tools/list result, or a TypeScript
    /// barrel [default: the tools that the agent declares]
    #[arg(long, value_name = "FILE")]
    pub(super) registry: Option<PathBuf>,

    /// Values for {{snapshot:…}} tokens, captured before the run
    #[arg(long, value_name = "FILE", group = "snapshots")]
    pub(super) snapshot: Option<PathBuf>,

    /// A command whose output is JSON with the values for {{snapshot:…}} tokens; it is run here, right before the run
    #[arg(long, value_name = "COMMAND", group = "snapshots")]
    pub(super) snapshot_command: Option<String>,

    /// An address that answers GET with JSON that holds the values for {{snapshot:…}} tokens; it is asked right before the
    /// run
    #[arg(long, value_name = "URL", group = "snapshots")]
    pub(super) snapshot_url: Option<String>,

    /// A header for --snapshot-url, whose value stands in an environment variable, such as Authorization=TOKEN; may be
    /// given several times
    #[arg(long, value_name = "NAME=VARIABLE")]
    pub(super) snapshot_header: Vec<RequestHeader>,

    /// An agent that is asked for the values of {{snapshot:…}} tokens right before the run: a name that the daemon
    /// knows, or an address; it implements SnapshotProvider
    #[arg(long, value_name = "AGENT", group = "snapshots")]
    pub(super) snapshot_agent: Option<String>,

    /// A function of a script to call before the first case, such as scripts:tests.env.BeforeAll; no case is run if it fails
    #[arg(long, value_name = "SCRIPT", value_parser = ScriptRef::of_hook)]
    pub(super) before: Option<ScriptRef>,

    /// A function of a script to call after the last case, whatever came of the run
    #[arg(long, value_name = "SCRIPT", value_parser = ScriptRef::of_hook)]
    pub(super) after: Option<ScriptRef>,

    /// Compare with an earlier result: `last` (same suites, same agent), the beginning of the id of a run, last~1, last:SUITE, a
    /// label such as branch=main, or a result file
    #[arg(long, value_name = "RUN")]
    pub(super) baseline: Option<String>,

    /// Directory for the results, one JSON file an eval file [default: evals/results]
    #[arg(long, value_name = "DIR")]
    pub(super) output_dir: Option<PathBuf>,

    /// Write the result to this file too; its ending says the format: .json, .jsonl, .xml for JUnit, .md for a comment on a
    /// pull request, .html for a browser; to a folder, which is there or ends in /, the result of each suite, .json of eval
    /// files and .jsonl of test files; - is stdout, where nothing else stands then; may be given several times
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Vec<PathBuf>,

    /// Format of -o -: json, jsonl, junit, markdown or html [default: json]
    #[arg(long, value_name = "FORMAT", value_parser = outputs::format_named)]
    pub(super) format: Option<Format>,

    /// Print what happens as lines of JSON, each case as soon as it is judged and a summary at the end, and nothing else to
    /// stdout
    #[arg(long, conflicts_with_all = ["dry_run", "detach"], help_heading = "CI")]
    pub(super) json: bool,

    /// What makes the exit code 1: `failed`, a case that failed, or a missed gate; `regressed`, only a case that passed in
    /// --baseline; `never`, nothing. What could not be run or judged stays 3 [default: failed]
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        hide_possible_values = true,
        conflicts_with = "detach",
        help_heading = "CI"
    )]
    pub(super) fail_on: Option<FailOn>,

    /// Annotate the lines of cases that did not pass, and write a summary of the step, for GitHub Actions: always, never or
    /// auto, which is where GITHUB_ACTIONS is true [default: auto]
    #[arg(long, value_enum, value_name = "WHEN", hide_possible_values = true, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "always", help_heading = "CI")]
    pub(super) github: Option<When>,

    /// Play back what agents and simulators answered in this run of the daemon, instead of calling them: what they were never asked
    /// cannot be judged; named as for --failed
    #[arg(long, value_name = "RUN", help_heading = "Replay")]
    pub(super) replay: Option<String>,

    /// With --replay: ask validators anew, instead of taking what they said then
    #[arg(long, requires = "replay", help_heading = "Replay")]
    pub(super) validators: bool,

    /// Write the traces of the run to this file, as OTLP in JSON, a request a line
    #[arg(long, value_name = "FILE", conflicts_with = "detach", help_heading = "Traces")]
    pub(super) otlp_file: Option<PathBuf>,

    /// A link to the trace of each case, such as `https://traces.example/trace/{trace_id}?span={span_id}`
    #[arg(long, value_name = "URL", value_parser = trace_url, help_heading = "Traces")]
    pub(super) trace_url: Option<String>,

    /// Put into the traces what was said, and what tools were given and gave; so does
    /// OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true
    #[arg(long, help_heading = "Traces")]
    pub(super) capture_content: bool,

    /// A label to find the run again by, such as branch=main; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub(super) label: Vec<(String, String)>,

    /// Start the run, print its id, and do not wait for it
    #[arg(long)]
    pub(super) detach: bool,

    /// Print nothing but the cases that did not pass, and the summary
    #[arg(short, long)]
    pub(super) quiet: bool,

    /// Whether the settings of the project say nothing about snapshots: the values of then are those of the recorded run
    #[arg(skip)]
    pub(super) takes_no_snapshot: bool,

    /// What models cost; a setting without a flag
    #[arg(skip)]
    pub(super) prices: Prices,

    /// As `undecided`; of a run without a gate it means nothing
    #[arg(skip)]
    pub(super) undecided_by_settings: Option<Undecided>,

    /// The run that is judged again, whose cases these are; a flag of nobody
    #[arg(skip)]
    pub(super) recorded: Option<Box<Run>>,

    /// Time for one case of the Eval Runner Contract, where `timeout` says nothing; a setting without a flag
    #[arg(skip)]
    pub(super) contract_timeout: Option<Timeout>,

    /// As `seed_manifest`; it need not be there as long as no case asks for it
    #[arg(skip)]
    pub(super) seed_manifest_by_settings: Option<PathBuf>,

    /// Agents of the settings that are started, with their commands
    #[arg(skip)]
    pub(super) starts_by_settings: Vec<(String, String)>,

    /// Agents of the settings that are HTTP endpoints
    #[arg(skip)]
    pub(super) endpoints: Vec<NamedEndpoint>,

    /// The folder of the project's settings, if it has some
    #[arg(skip)]
    pub(super) settings: Option<PathBuf>,
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
            takes_no_snapshot: true,
            prices: spec.prices.clone(),
            recorded: Some(Box::new(run)),
            ..Self::default()
        }
    }

    /// Whether stdout holds data, and nothing else may stand there.
    pub(super) fn has_data_on_stdout(&self) -> bool {
        self.json || outputs::takes_stdout(&self.output)
    }

    pub(super) fn hooks(&self) -> Hooks {
        Hooks { before: self.before.clone(), after: self.after.clone() }
    }

    pub(super) fn gate(&self) -> Gate {
        Gate {
            min_pass_rate: self.min_pass_rate,
            min_case_pass_rate: self.min_case_pass_rate,
            max_regression: self.max_regression,
            to_the_end: self.to_the_end,
            undecided: self.undecided.or(self.undecided_by_settings),
        }
    }

    pub(in crate::cli) fn output_dir(&self) -> &Path {
        self.output_dir.as_deref().unwrap_or(Path::new(OUTPUT_DIR))
    }

    /// The agent to test, which is checked to be there before anything else is done.
    pub(super) fn agent_name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }
}
