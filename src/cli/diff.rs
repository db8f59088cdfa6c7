//! `forgectl diff`: what came out differently in two runs, and whether that may be chance.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::Args;

use super::client::Client;
use super::follow::Follower;
use super::{CliError, Exit, print};
use crate::event::{Payload, Run};
use crate::report::{printable, repeats};
use crate::stats::{Tally, fisher};
use crate::verdict::gate::{ALPHA, CaseTally, Gate, Rate, judge};
use crate::verdict::{CaseResult, Outcome};
use crate::wire::control::Detail;

/// Most cases of a list that are named.
const MAX_NAMED: usize = 50;

#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    /// Id of the earlier run
    #[arg(value_name = "BEFORE")]
    before: String,

    /// Id of the later run
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
    others: u32,
    tally: Tally,
    /// Why the first one did not pass that did not.
    error: Option<String>,
}

impl Came {
    fn add(&mut self, result: &CaseResult) {
        if result.outcome == Outcome::Skipped && result.cause.is_none() {
            // It was left out, as asked.
            return;
        }
        self.tally.add(result.tally());
        if result.outcome == Outcome::Passed {
            self.passed += 1;
        } else {
            self.others += 1;
            self.error = self.error.take().or_else(|| result.error.clone());
        }
    }

    const fn is_good(&self) -> bool {
        self.others == 0
    }

    const fn all(&self) -> u32 {
        self.passed + self.others
    }

    /// Whether it came out worse than before: of repetitions more than chance would do.
    fn is_worse_than(&self, before: &Self) -> bool {
        let (one, other) =
            (u64::from(self.passed) * u64::from(before.all()), u64::from(before.passed) * u64::from(self.all()));
        let tally = |came: &Self| Tally { passed: came.passed, failed: came.others, uncounted: 0 };
        one < other && ((self.all() == 1 && before.all() == 1) || fisher(tally(before), tally(self)) < ALPHA)
    }

    fn words(&self) -> String {
        let all = self.all();
        if all == 1 {
            if self.is_good() { "passed" } else { "did not pass" }.to_owned()
        } else {
            format!("{}/{all} passed", self.passed)
        }
    }
}

type Cases = BTreeMap<(String, String), Came>;

pub(super) async fn diff(daemon: Option<String>, args: DiffArgs) -> Result<Exit, CliError> {
    let client = Client::required(daemon).await?;
    let (before, then) = read(&client, &args.before).await?;
    let (now, today) = read(&client, &args.now).await?;
    client.close().await;
    let (text, regressed) = told((&before, &then), (&now, &today), args.max_regression);
    print(&text)?;
    Ok(if regressed { Exit::Failed } else { Exit::Passed })
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

/// What people want to know, and whether a case got worse.
fn told((before, then): (&Run, &Cases), (now, today): (&Run, &Cases), most: Rate) -> (String, bool) {
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
    for difference in differences(before, now) {
        let _ = writeln!(text, "⚠ {}", printable(&difference));
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
    let better = changed(&|before, now| before.is_worse_than(now));
    let maybe = changed(&|before, now| {
        u64::from(now.passed) * u64::from(before.all()) != u64::from(before.passed) * u64::from(now.all())
            && !now.is_worse_than(before)
            && !before.is_worse_than(now)
    });
    let only =
        |of: &Cases, other: &Cases| of.keys().filter(|key| !other.contains_key(*key)).map(name).collect::<Vec<_>>();
    let lists = [
        ("✗ worse", &worse),
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
    if worse.is_empty() && better.is_empty() && maybe.is_empty() {
        text.push_str("no case that both have came out differently\n");
    }
    let pairs = both().map(|(key, before, now)| CaseTally {
        case: name(key),
        tally: now.tally,
        open: 0,
        before: Some(before.tally),
        faults: 0,
    });
    let gate = Gate { max_regression: Some(most), ..Gate::default() };
    if let Some(comparison) = judge(&gate, &pairs.collect::<Vec<_>>()).comparison {
        let _ = writeln!(text, "{}", repeats::compared(&comparison));
    }
    (text, !worse.is_empty())
}

/// What else was not the same in two runs: it may be the reason for what differs.
fn differences(before: &Run, now: &Run) -> Vec<String> {
    let card = |run: &Run| run.agent.clone().unwrap_or_default();
    let (then, today) = (card(before), card(now));
    let repeats = |run: &Run| run.spec.repeats.to_string();
    let hashes = |run: &Run| run.suites.iter().map(|suite| suite.eval_file_hash.as_str()).collect::<Vec<_>>().join(" ");
    let evidence = |run: &Run| run.spec.replay.as_ref().map_or("agents", |replay| &replay.run_id).to_owned();
    let pairs = [
        ("another agent", before.spec.agent_id.clone(), now.spec.agent_id.clone()),
        ("another build of the agent", then.version, today.version),
        ("another model", then.model, today.model),
        ("another text of the suites", hashes(before), hashes(now)),
        ("another number of repetitions", repeats(before), repeats(now)),
        ("other evidence", evidence(before), evidence(now)),
    ];
    let differ = pairs.into_iter().filter(|(_, then, now)| then != now);
    differ.map(|(what, then, now)| format!("{what} ({then}, now {now})")).collect()
}
