//! Which rules of a stream an agent bent or broke, in all runs since the daemon's start.
//!
//! A run tells each rule once, and of the agent under test alone. This is for its authors: how often, and where last.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::wire::value::shorten;

/// Most agents whose rules are remembered; those that were quiet for longest are forgotten first.
const MAX_AGENTS: usize = 1_000;

/// A rule that an agent bent or broke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its name, as the checks of agents name it: `st/accepted-first`.
    pub name: &'static str,
    /// What to tell the agent's authors, as of the last time.
    pub message: String,
    /// In how many calls.
    pub calls: u64,
    /// The run of the last one.
    pub run_id: String,
    /// When that was.
    pub at: Timestamp,
}

/// The rules that one agent bent or broke. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Bent(Arc<Mutex<BTreeMap<&'static str, Rule>>>);

impl Bent {
    /// Counts a call of a run, in which the agent bent or broke these rules.
    pub fn count(&self, rules: impl Iterator<Item = (&'static str, String)>, run_id: &str) {
        let at = Timestamp::now();
        for (name, message) in rules {
            let mut bent = self.0.lock();
            let rule = bent.entry(name).or_insert_with(|| Rule {
                name,
                message: String::new(),
                calls: 0,
                run_id: String::new(),
                at,
            });
            rule.calls += 1;
            rule.message = shorten(&message);
            run_id.clone_into(&mut rule.run_id);
            rule.at = at;
        }
    }

    /// All of them, by name.
    #[must_use]
    pub fn rules(&self) -> Vec<Rule> {
        self.0.lock().values().cloned().collect()
    }

    fn last(&self) -> Option<Timestamp> {
        self.0.lock().values().map(|rule| rule.at).max()
    }
}

/// The rules of all agents, by where they are reached.
#[derive(Debug, Default)]
pub(super) struct AllBent(Mutex<BTreeMap<String, Bent>>);

impl AllBent {
    /// Those of the agent that is reached there.
    pub(super) fn of(&self, url: &str) -> Bent {
        let mut all = self.0.lock();
        if let Some(bent) = all.get(url) {
            return bent.clone();
        }
        while all.len() >= MAX_AGENTS {
            let quiet = all.iter().min_by_key(|(_, bent)| bent.last()).map(|(url, _)| url.clone());
            let Some(quiet) = quiet else { break };
            all.remove(&quiet);
        }
        all.entry(url.to_owned()).or_default().clone()
    }

    /// What is known of the agent that is reached there.
    pub(super) fn rules(&self, url: &str) -> Vec<Rule> {
        self.0.lock().get(url).map(Bent::rules).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_counted_by_agent_and_the_quietest_agent_is_forgotten() {
        let all = AllBent::default();
        let say = |text: &str| [("st/accepted-first", text.to_owned())].into_iter();
        all.of("a").count(say("once"), "1");
        all.of("a").count(say("twice").chain([("tl/pairs", "open".to_owned())]), "2");
        let found = all.rules("a");
        let found: Vec<_> =
            found.iter().map(|rule| (rule.name, rule.message.as_str(), rule.calls, rule.run_id.as_str())).collect();
        assert_eq!(found, [("st/accepted-first", "twice", 2, "2"), ("tl/pairs", "open", 1, "2")]);
        assert!(all.rules("b").is_empty());
        for n in 0..MAX_AGENTS {
            all.of(&n.to_string());
        }
        assert_eq!(all.0.lock().len(), MAX_AGENTS);
        assert_eq!(all.rules("a").len(), 2, "one that bent nothing goes first");
    }
}
