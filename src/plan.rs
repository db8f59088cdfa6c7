//! What will run: the request for a run, and the cases selected for it in the order in which they start.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use regex::{RegexBuilder, RegexSet, RegexSetBuilder};

use crate::case::CaseKey;
use crate::conversation::ToolMode;
use crate::limits::{CASE_PATTERN_BYTES, CASE_PATTERNS};
use crate::suite::cases::{Head, LoadError};
use crate::suite::script::Hooks;
use crate::suite::template::Data;
use crate::suite::timeout::Timeout;
use crate::suite::{Case, Dialect, Suite, Tier};
use crate::trace::TraceParent;
use crate::usage::Prices;
use crate::verdict::gate::Gate;

/// Times for one case when nobody names one: the contract's `timeoutMs`, and the framework's default.
const CONTRACT_TIMEOUT: (Duration, &str) = (Duration::from_mins(1), "60s");
const FRAMEWORK_TIMEOUT: (Duration, &str) = (Duration::from_mins(5), "5m");
/// Most cases at the same time.
pub const MAX_CONCURRENCY: u32 = 10_000;

/// Most repetitions of a case.
pub const MAX_REPEATS: u32 = 1_000;
/// Most times that a case is tried again.
pub const MAX_RETRIES: u32 = 100;
/// Most executions of a run.
const MAX_EXECUTIONS: usize = 10_000_000;

/// How long an agent may be away during a run when nothing else is said: longer than a restart, and less than a case.
pub const AGENT_GONE_AFTER: Duration = Duration::from_secs(10);

/// The request for a run, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSpec {
    /// SHA-256 of the bundle that holds the suites.
    pub bundle: [u8; 32],
    /// Size of the bundle in bytes.
    pub bundle_size: u64,
    /// Id of the agent under test; a URL for one that the daemon does not know by name.
    pub agent_id: String,
    /// Regular expressions; a case runs when its id matches one of them. Empty: no restriction.
    pub case_patterns: Vec<String>,
    /// Exactly these cases, by suite path and id. Empty: no restriction.
    pub cases: Vec<(String, String)>,
    /// Only suites of one of these tiers. Empty: no restriction.
    pub tiers: Vec<Tier>,
    /// Only cases of one of these difficulties. Empty: no restriction.
    pub difficulties: Vec<String>,
    /// Only cases with one of these tags. Empty: no restriction.
    pub tags: Vec<String>,
    /// Cases at the same time, at least 1.
    pub concurrency: u32,
    /// Time for one case that sets none itself; `None`: what its dialect says.
    pub case_timeout: Option<Timeout>,
    /// The same for cases of the Eval Runner Contract only, if `case_timeout` says nothing: its setting `timeoutMs`.
    pub contract_timeout: Option<Timeout>,
    /// Who plays the user in dynamic cases that name nobody.
    pub simulator: Option<String>,
    /// The connector that the agent is told, in place of that of the cases.
    pub connector: Option<String>,
    /// The run ends with the first case that does not pass.
    pub fail_fast: bool,
    /// How often each case is run, at least 1.
    pub repeats: u32,
    /// How often a case is tried again that could not be judged for trouble that may pass.
    pub retries: u32,
    /// How often a case is tried again that failed.
    pub retry_failed: u32,
    /// The answers of cases that are compared with stored ones are going to be stored: nothing is compared.
    pub update_snapshots: bool,
    /// Suites to run, by their paths in the bundle, in order.
    pub suites: Vec<String>,
    /// Agents that exist for this run only: id and URL.
    pub targets: Vec<(String, String)>,
    /// Cases that checked nothing fail.
    pub strict: bool,
    /// All assertions of a case are evaluated, not only those up to the first that does not hold.
    pub all_assertions: bool,
    /// What happens to the tools of cases without stubs.
    pub tool_mode: ToolMode,
    /// Arguments that do not fit the schema of their tool fail the case instead of warning.
    pub check_arguments: bool,
    /// The agent that is asked for the values of snapshot tokens before the first case.
    pub snapshot_agent: Option<String>,
    /// What models cost, for agents that do not tell what they cost.
    pub prices: Prices,
    /// What runs before the first case and after the last.
    pub hooks: Hooks,
    /// What its owner calls the run, sorted by key.
    pub labels: Vec<(String, String)>,
    /// What the run has to reach, if not every case has to pass.
    pub gate: Gate,
    /// The run whose recorded answers are played back in place of agents.
    pub replay: Option<Replay>,
    /// What the run hangs below in somebody's trace.
    pub trace_parent: Option<TraceParent>,
    /// A link to the trace of a case, with `{trace_id}` in it.
    pub trace_url: Option<String>,
    /// Traces hold what was said, and what tools were given and gave.
    pub capture_content: bool,
    /// How long nobody may answer at the agent's address, once it was reached, before the run ends; `None`: what
    /// the daemon says.
    pub agent_gone_after: Option<Duration>,
}

/// Recorded answers in place of agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// The run that holds them.
    pub run_id: String,
    /// Whether validators are asked anew.
    pub asks_validators: bool,
}

impl RunSpec {
    /// A request with nothing chosen but what has to be.
    #[must_use]
    pub fn new(agent_id: impl Into<String>, suites: Vec<String>) -> Self {
        Self {
            bundle: [0; 32],
            bundle_size: 0,
            agent_id: agent_id.into(),
            case_patterns: Vec::new(),
            cases: Vec::new(),
            tiers: Vec::new(),
            difficulties: Vec::new(),
            tags: Vec::new(),
            concurrency: 1,
            case_timeout: None,
            contract_timeout: None,
            simulator: None,
            connector: None,
            fail_fast: false,
            repeats: 1,
            retries: 0,
            retry_failed: 0,
            update_snapshots: false,
            suites,
            targets: Vec::new(),
            strict: false,
            all_assertions: false,
            tool_mode: ToolMode::Live,
            check_arguments: false,
            snapshot_agent: None,
            prices: Prices::default(),
            hooks: Hooks::default(),
            labels: Vec::new(),
            gate: Gate::default(),
            replay: None,
            trace_parent: None,
            trace_url: None,
            capture_content: false,
            agent_gone_after: None,
        }
    }

    /// The time for a case: its own, else that of the run, else that of its dialect.
    #[must_use]
    pub fn timeout_of(&self, case: &Case, dialect: Dialect) -> Timeout {
        let (setting, (duration, written)) = match dialect {
            Dialect::Contract => (self.contract_timeout.as_ref(), CONTRACT_TIMEOUT),
            Dialect::Framework => (None, FRAMEWORK_TIMEOUT),
        };
        let said = case.timeout.as_ref().or(self.case_timeout.as_ref()).or(setting);
        said.cloned().unwrap_or_else(|| Timeout { duration, written: written.to_owned() })
    }

    /// Whether only some cases of the suites may be selected.
    #[must_use]
    pub fn is_selective(&self) -> bool {
        let Self { case_patterns, cases, tiers, difficulties, tags, .. } = self;
        !(case_patterns.is_empty()
            && cases.is_empty()
            && tiers.is_empty()
            && difficulties.is_empty()
            && tags.is_empty())
    }
}

/// The cases of a run in the order in which they start.
#[derive(Debug, Clone)]
pub struct Plan {
    /// All suites of the run, also those of which no case was selected.
    pub suites: Vec<Arc<Suite>>,
    /// The selected cases, in the order of the suites and of each file.
    pub cases: Vec<PlannedCase>,
    /// What template tokens stand for.
    pub data: Arc<Data>,
}

/// One selected case.
#[derive(Debug, Clone)]
pub struct PlannedCase {
    /// The suite it stands in.
    pub suite: Arc<Suite>,
    /// Its position there.
    pub index: usize,
    /// Which repetition, from 1.
    pub repeat: u32,
}

impl PlannedCase {
    /// What is at hand of the case.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.suite.cases[self.index]
    }

    /// Names it.
    #[must_use]
    pub fn key(&self) -> CaseKey {
        let (suite, case_id) = (self.suite.path.as_str().into(), self.head().id.as_str().into());
        CaseKey { suite, case_id, repeat: self.repeat }
    }

    /// The whole case; see [`Suite::load`].
    ///
    /// # Errors
    /// When it cannot be read again.
    pub fn load(&self) -> Result<Arc<Case>, LoadError> {
        self.suite.load(self.index)
    }
}

/// Why there is nothing to run.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A pattern is no regular expression.
    #[error("{pattern:?} is no regular expression: {}", first_line(source))]
    Pattern {
        /// The pattern as given.
        pattern: String,
        /// What is wrong with it.
        source: Box<regex::Error>,
    },
    /// There are too many patterns.
    #[error("{count} patterns of {bytes} bytes; {CASE_PATTERNS} of {CASE_PATTERN_BYTES} bytes together are allowed")]
    Patterns {
        /// How many there are.
        count: usize,
        /// Their text together.
        bytes: usize,
    },
    /// The suites hold no case, or the selection leaves none.
    #[error("nothing selected: {0}")]
    NothingSelected(String),
    /// The cases with their repetitions are too many.
    #[error("cases times repetitions are more than {MAX_EXECUTIONS}, which is the most of a run")]
    TooMany,
}

fn first_line(error: &regex::Error) -> String {
    let text = error.to_string();
    text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// Selects the cases of a run.
///
/// # Errors
/// When a pattern is invalid, or nothing is left to run: a run of nothing would be green without having checked
/// anything.
pub fn plan(suites: Vec<Suite>, data: Data, spec: &RunSpec) -> Result<Plan, PlanError> {
    let patterns = CasePatterns::read(&spec.case_patterns)?;
    let tags: HashSet<&str> = spec.tags.iter().map(String::as_str).collect();
    let difficulties: HashSet<&str> = spec.difficulties.iter().map(String::as_str).collect();
    let exact: HashSet<(&str, &str)> = spec.cases.iter().map(|(suite, id)| (suite.as_str(), id.as_str())).collect();
    let suites: Vec<Arc<Suite>> = suites.into_iter().map(Arc::new).collect();
    let selected = |suite: &Suite, case: &Head| {
        (spec.tiers.is_empty() || spec.tiers.contains(&suite.tier))
            && (difficulties.is_empty()
                || case.labels.difficulty.as_ref().is_some_and(|d| difficulties.contains(d.as_str())))
            && (tags.is_empty() || case.labels.tags.iter().any(|tag| tags.contains(tag.as_str())))
            && patterns.select(&case.id)
            && (exact.is_empty() || exact.contains(&(suite.path.as_str(), case.id.as_str())))
    };
    if let Some(empty) = suites.iter().find(|suite| spec.strict && suite.cases.is_empty()) {
        return Err(PlanError::NothingSelected(format!("{} holds no cases, and the run is strict", empty.path)));
    }
    let mut cases = Vec::new();
    for suite in &suites {
        for (index, case) in suite.cases.iter().enumerate() {
            if selected(suite, case) {
                let repeats = 1..=spec.repeats.max(1);
                cases.extend(repeats.map(|repeat| PlannedCase { suite: Arc::clone(suite), index, repeat }));
                if cases.len() > MAX_EXECUTIONS {
                    return Err(PlanError::TooMany);
                }
            }
        }
    }
    if cases.is_empty() {
        let all: usize = suites.iter().map(|suite| suite.cases.len()).sum();
        return Err(PlanError::NothingSelected(match all {
            0 => "the suite holds no cases".to_owned(),
            1 => "the one case does not match the selection".to_owned(),
            n => format!("none of the {n} cases matches the selection"),
        }));
    }
    Ok(Plan { suites, cases, data: Arc::new(data) })
}

/// What patterns may become, in bytes.
const MAX_COMPILED: usize = 1 << 20;

/// Patterns that select cases by their ids: one of them has to match. They come from clients, so what they become is
/// bounded; making it still takes a while, and does not belong on a runtime thread.
#[derive(Debug, Default)]
pub struct CasePatterns(Option<RegexSet>);

impl CasePatterns {
    /// Reads patterns; none select every case.
    ///
    /// # Errors
    /// When one is no regular expression, or they are too many or too large.
    pub fn read(patterns: &[String]) -> Result<Self, PlanError> {
        let bytes: usize = patterns.iter().map(String::len).sum();
        if patterns.len() > CASE_PATTERNS || bytes > CASE_PATTERN_BYTES {
            return Err(PlanError::Patterns { count: patterns.len(), bytes });
        }
        if patterns.is_empty() {
            return Ok(Self::default());
        }
        let set = RegexSetBuilder::new(patterns).size_limit(MAX_COMPILED).dfa_size_limit(MAX_COMPILED).build();
        let bad = |error: &regex::Error| {
            // Which it is that does not work, if it is one.
            let alone = |pattern: &&String| RegexBuilder::new(pattern).size_limit(MAX_COMPILED).build().is_err();
            let pattern = patterns.iter().find(alone).cloned().unwrap_or_else(|| patterns.join(", "));
            PlanError::Pattern { pattern, source: Box::new(error.clone()) }
        };
        set.map(|set| Self(Some(set))).map_err(|error| bad(&error))
    }

    /// Whether the case with this id is selected.
    #[must_use]
    pub fn select(&self, id: &str) -> bool {
        self.0.as_ref().is_none_or(|set| set.is_match(id))
    }
}
