//! `forgectl diff`: what came out differently in two runs, and whether that may be chance.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::Args;

use super::client::Client;
use super::follow::Follower;
use super::{CliError, Exit, named, print};
use crate::event::{Payload, Run, SuiteInfo};
use crate::report::repeats;
use crate::stats::{Tally, fisher};
use crate::suite::identity::{Identity, pair};
use crate::text::printable;
use crate::verdict::baseline::AGENTS;
use crate::verdict::gate::{ALPHA, CaseTally, Gate, Rate, judge};
use crate::verdict::{CaseResult, Outcome, Standing};
use crate::wire::control::Detail;

/// Most cases of a list that are named.
const MAX_NAMED: usize = 50;

#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    /// The earlier run: the beginning of its id, last, last~1, last:SUITE, or a label such as branch=main
    #[arg(value_name = "BEFORE")]
    before: String,

    /// The later run, named in the same way
    #[arg(value_name = "NOW")]
    now: String,

    /// The drop of the pass rate that matters: a smaller one may stay unseen
    #[arg(long, value_name = "RATE", value_parser = Rate::parse, default_value = "5%")]
    max_regression: Rate,
}

/// What came of a case, over its repetitions.
#[derive(Debug, Default)]
struct Came {
    passed: u32,
    failed: u32,
    /// Those without a verdict.
    others: u32,
    tally: Tally,
    /// Why the first one did not pass that did not.
    error: Option<String>,
}

impl Came {
    fn add(&mut self, result: &CaseResult) {
        match result.standing() {
            Standing::Passed => self.passed += 1,
            Standing::Failed => self.failed += 1,
            Standing::NotJudged => self.others += 1,
            Standing::LeftOut => return,
        }
        self.tally.add(result.tally());
        if result.outcome != Outcome::Passed {
            self.error = self.error.take().or_else(|| result.error.clone());
        }
    }

    /// Those with a verdict.
    const fn judged(&self) -> u32 {
        self.passed + self.failed
    }

    /// Whether nobody can tell any more what passed before.
    const fn is_lost_since(&self, before: &Self) -> bool {
        self.judged() == 0 && self.others > 0 && before.passed > 0 && before.failed == 0
    }

    /// Whether it came out worse than before: of repetitions more than chance would do.
    fn is_worse_than(&self, before: &Self) -> bool {
        let (all, then) = (self.judged(), before.judged());
        let (one, other) = (u64::from(self.passed) * u64::from(then), u64::from(before.passed) * u64::from(all));
        let tally = |came: &Self| Tally { passed: came.passed, failed: came.failed, uncounted: 0 };
        one < other && ((all == 1 && then == 1) || fisher(tally(before), tally(self)) < ALPHA)
    }

    /// Whether a larger or smaller part passed than before.
    fn differs_from(&self, before: &Self) -> bool {
        u64::from(self.passed) * u64::from(before.judged()) != u64::from(before.passed) * u64::from(self.judged())
    }

    fn words(&self) -> String {
        match (self.judged(), self.passed) {
            (0, _) => "not judged".to_owned(),
            (1, 1) => "passed".to_owned(),
            (1, _) => "did not pass".to_owned(),
            (all, passed) => format!("{passed}/{all} passed"),
        }
    }
}

/// By the path of the suite, as the later run names it, and the id.
type Cases = BTreeMap<(String, String), Came>;

pub(super) async fn diff(daemon: Option<String>, args: DiffArgs) -> Result<Exit, CliError> {
    let client = Client::required(daemon).await?;
    let (before, then) = read(&client, &named::run_id(&client, &args.before).await?).await?;
    let (now, today) = read(&client, &named::run_id(&client, &args.now).await?).await?;
    client.close().await;
    let pairs = paired((&before, &then), (&now, &today));
    let then = then.into_iter().map(|((suite, id), came)| {
        let renamed = pairs.iter().find(|(then, _)| then.path == suite).map(|(_, now)| now.path.clone());
        // One that is gone keeps its name, unless another has it now.
        let is_taken = |suite: &str| pairs.iter().any(|(_, now)| now.path == suite);
        let suite = renamed.unwrap_or_else(|| if is_taken(&suite) { format!("{suite} (before)") } else { suite });
        ((suite, id), came)
    });
    let differences = differences(&before, &now, &pairs);
    let (text, exit) = told((&before, &then.collect()), (&now, &today), &differences, args.max_regression);
    print(&text)?;
    Ok(exit)
}

/// The run, which is waited for, and what came of its cases.
async fn read(client: &Client, run_id: &str) -> Result<(Run, Cases), CliError> {
    let mut follower = Follower::new(client, run_id, Detail::Cases);
    let mut cases = Cases::new();
    while let Some(event) = follower.next().await? {
        match (&event.payload, &event.case) {
            (Payload::CaseFinished(result), Some(case)) => {
                cases.entry((case.suite.to_string(), case.case_id.to_string())).or_default().add(result);
            }
            (Payload::RunFinished(run), _) => return Ok(((**run).clone(), cases)),
            _ => {}
        }
    }
    Err(CliError::new(Exit::CouldNotRun, format!("the log of the run {run_id} ended without its last event")))
}

/// The suites that are in both runs, then and now.
fn paired<'a>(
    (before, then): (&'a Run, &Cases),
    (now, today): (&'a Run, &Cases),
) -> Vec<(&'a SuiteInfo, &'a SuiteInfo)> {
    let pairs = pair(&identities(now, today), &identities(before, then));
    let pairs = now.suites.iter().zip(pairs);
    pairs.filter_map(|(suite, paired)| Some((&before.suites[paired?.0], suite))).collect()
}

fn identities<'a>(run: &'a Run, cases: &'a Cases) -> Vec<Identity<'a>> {
    let ids = |path: &str| cases.keys().filter(|(suite, _)| suite == path).map(|(_, id)| id.as_str()).collect();
    run.suites.iter().map(|suite| suite.identity(ids(&suite.path))).collect()
}

/// What people want to know, and how the command ends: trouble outranks what got worse.
fn told(
    (before, then): (&Run, &Cases),
    (now, today): (&Run, &Cases),
    differences: &[String],
    most: Rate,
) -> (String, Exit) {
    let mut text = String::new();
    for (word, run) in [("before", before), ("now", now)] {
        let agent = printable(&run.spec.agent_id);
        let _ = writeln!(
            text,
            "{word:<7} {}  {}  {}/{} passed  {agent}",
            run.run_id,
            run.state.name(),
            run.totals.passed,
            run.totals.total
        );
    }
    for difference in differences {
        let _ = writeln!(text, "⚠ {}", printable(difference));
    }
    let name = |(suite, case): &(String, String)| printable(&format!("{suite}: {case}"));
    let both = || today.iter().filter_map(|(key, came)| Some((key, then.get(key)?, came)));
    let changed = |is: &dyn Fn(&Came, &Came) -> bool| -> Vec<String> {
        let lines = both().filter(|(_, before, now)| is(before, now)).map(|(key, before, now)| {
            let why = now.error.as_deref().map(|error| format!(": {}", printable(error))).unwrap_or_default();
            format!("{} ({}, now {}){why}", name(key), before.words(), now.words())
        });
        lines.collect()
    };
    let worse = changed(&|before, now| now.is_worse_than(before));
    let lost = changed(&|before, now| now.is_lost_since(before));
    let better = changed(&|before, now| before.is_worse_than(now));
    let maybe =
        changed(&|before, now| now.differs_from(before) && !now.is_worse_than(before) && !before.is_worse_than(now));
    let only =
        |of: &Cases, other: &Cases| of.keys().filter(|key| !other.contains_key(*key)).map(name).collect::<Vec<_>>();
    let lists = [
        ("✗ worse", &worse),
        ("? passed before, not judged now", &lost),
        ("✓ better", &better),
        ("≈ differs, which may be chance", &maybe),
        ("+ only now", &only(today, then)),
        ("- only before", &only(then, today)),
    ];
    for (title, lines) in lists {
        if lines.is_empty() {
            continue;
        }
        let _ = writeln!(text, "{title}: {}", lines.len());
        for line in lines.iter().take(MAX_NAMED) {
            let _ = writeln!(text, "    {line}");
        }
        if lines.len() > MAX_NAMED {
            let _ = writeln!(text, "    and {} more", lines.len() - MAX_NAMED);
        }
    }
    if [&worse, &lost, &better, &maybe].iter().all(|list| list.is_empty()) {
        text.push_str("no case that both have came out differently\n");
    }
    let pairs = both().map(|(key, before, now)| CaseTally {
        suite: key.0.as_str().into(),
        case: name(key),
        tally: now.tally,
        open: 0,
        before: Some(before.tally),
        faults: 0,
    });
    let gate = Gate { max_regression: Some(most), ..Gate::default() };
    for line in repeats::comparisons(&judge(&gate, &pairs.collect::<Vec<_>>())) {
        let _ = writeln!(text, "{}", printable(&line));
    }
    let exit = match (lost.is_empty(), worse.is_empty()) {
        (false, _) => Exit::CouldNotRun,
        (true, false) => Exit::Failed,
        (true, true) => Exit::Passed,
    };
    (text, exit)
}

/// What else was not the same in two runs: it may be the reason for what differs.
fn differences(before: &Run, now: &Run, suites: &[(&SuiteInfo, &SuiteInfo)]) -> Vec<String> {
    let card = |run: &Run| run.agent.clone().unwrap_or_default();
    let (then, today) = (card(before), card(now));
    let repeats = |run: &Run| run.spec.repeats.to_string();
    let evidence = |run: &Run| run.spec.replay.as_ref().map_or(AGENTS, |replay| &replay.run_id).to_owned();
    let edited: Vec<_> = suites.iter().filter(|(then, now)| then.eval_file_hash != now.eval_file_hash).collect();
    let hashes = |of: &dyn Fn(&(&SuiteInfo, &SuiteInfo)) -> String| {
        edited.iter().map(|pair| of(pair)).collect::<Vec<_>>().join(" ")
    };
    let texts = (hashes(&|(then, _)| then.eval_file_hash.clone()), hashes(&|(_, now)| now.eval_file_hash.clone()));
    let mut pairs = vec![
        ("another agent", before.spec.agent_id.clone(), now.spec.agent_id.clone()),
        ("another build of the agent", then.version, today.version),
        ("another model", then.model, today.model),
        ("another text of the suites", texts.0, texts.1),
        ("another number of repetitions", repeats(before), repeats(now)),
        ("other evidence", evidence(before), evidence(now)),
    ];
    pairs.extend(suites.iter().map(|(then, now)| ("another path of a suite", then.path.clone(), now.path.clone())));
    let differ = pairs.into_iter().filter(|(_, then, now)| then != now);
    differ.map(|(what, then, now)| format!("{what} ({then}, now {now})")).collect()
}
