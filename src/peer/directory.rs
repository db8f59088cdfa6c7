//! The agents that a daemon knows by name, and how a name of a run becomes an [`Agent`].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};

use super::agent::Agent;
use super::attach::{Hub, Instance, is_name};
use super::bent::{AllBent, Rule};
use super::target::{ATTACHED_SCHEME, AllowedTargets, Target, TargetError};
use crate::conversation::Description;
use crate::limits::{DESCRIPTIONS_BYTES, LIST_BYTES};

/// Most agents that may be registered at the same time.
const MAX_AGENTS: usize = 1_000;

/// Knows agents by name.
#[derive(Debug)]
pub struct Directory {
    allowed: AllowedTargets,
    agents: Mutex<BTreeMap<String, Known>>,
    attached: Arc<Hub>,
    bent: AllBent,
}

/// An agent in the directory. Clones share its description.
#[derive(Debug, Clone)]
pub struct Known {
    /// The agent, ready to be called.
    pub agent: Agent,
    /// Whether it stands in the daemon's configuration, and so cannot be replaced or removed by a client.
    pub configured: bool,
    /// What it said about itself when it was last asked; `None`: it never did, or that is forgotten, because the
    /// descriptions of all agents together are limited.
    pub description: Option<Arc<Description>>,
    /// Whether it answered when it was last asked.
    pub healthy: bool,
    /// When it last answered.
    pub last_seen: Option<Timestamp>,
    /// Labels that the client which registered it gave.
    pub labels: Vec<(String, String)>,
    /// The processes that are attached under its name. Empty for one with an address.
    pub instances: Vec<Instance>,
    /// Why the last of them went, if none is attached now.
    pub detached_because: Option<String>,
    /// When a process that was attached went without saying so the last time, and why.
    pub lost: Option<(Timestamp, String)>,
    /// Bytes that the description takes in memory, about.
    described: usize,
}

impl Known {
    /// Bytes that it takes in memory, about.
    #[must_use]
    pub fn weight(&self) -> usize {
        let labels = self.labels.iter().map(|(key, value)| size_of::<(String, String)>() + key.len() + value.len());
        let instances = self.instances.len() * size_of::<Instance>();
        size_of::<Self>()
            + self.agent.name.len()
            + self.agent.url.len()
            + labels.sum::<usize>()
            + self.described
            + instances
    }
}

/// Why an agent cannot be named or added.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// Nobody of that name.
    #[error("there is no agent {name:?}; {}", known_names(.known))]
    Unknown {
        /// The name.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// The address makes no sense.
    #[error(transparent)]
    Address(#[from] TargetError),
    /// The address cannot be dialled.
    #[error("the address {url} cannot be dialled")]
    Dial {
        /// The address.
        url: String,
        /// Why.
        #[source]
        source: tonic::transport::Error,
    },
    /// The daemon's configuration forbids the address.
    #[error("{url} is not among the daemon's allowed targets")]
    NotAllowed {
        /// The address.
        url: String,
    },
    /// The name is not usable.
    #[error("{0:?} is no name for an agent: use letters, digits, '.', '_' and '-'")]
    BadName(String),
    /// The agent stands in the daemon's configuration.
    #[error("{0:?} stands in the daemon's configuration and can only be changed there")]
    Configured(String),
    /// Agents of that name dialled us.
    #[error("{0:?} is attached: it comes and goes by itself")]
    Attached(String),
    /// Too many agents.
    #[error("{MAX_AGENTS} agents are registered, which is the most there can be")]
    Full,
}

fn known_names(known: &[String]) -> String {
    if known.is_empty() { "none is known".to_owned() } else { format!("known are {}", known.join(", ")) }
}

impl Directory {
    /// A directory of the agents of the daemon's configuration; clients may add those at `allowed` addresses.
    ///
    /// # Errors
    /// When a name or address of the configuration makes no sense.
    pub fn new(configured: &BTreeMap<String, String>, allowed: AllowedTargets) -> Result<Self, DirectoryError> {
        let mut agents = BTreeMap::new();
        for (name, url) in configured {
            agents.insert(name.clone(), Known { configured: true, ..known(name, &url.parse()?, Vec::new())? });
        }
        Ok(Self { allowed, agents: Mutex::new(agents), attached: Arc::default(), bent: AllBent::default() })
    }

    /// Adds an agent, or replaces one that a client added.
    ///
    /// # Errors
    /// When the name or address cannot be taken.
    pub fn register(&self, name: &str, url: &str, labels: Vec<(String, String)>) -> Result<Known, DirectoryError> {
        let target = self.allowed_target(url)?;
        let entry = known(name, &target, labels)?;
        if self.attached.is_attached(name) {
            return Err(DirectoryError::Attached(name.to_owned()));
        }
        let mut agents = self.lock();
        match agents.get(name) {
            Some(existing) if existing.configured => return Err(DirectoryError::Configured(name.to_owned())),
            None if agents.len() >= MAX_AGENTS => return Err(DirectoryError::Full),
            _ => agents.insert(name.to_owned(), entry.clone()),
        };
        Ok(entry)
    }

    /// Removes an agent that a client added.
    ///
    /// # Errors
    /// When there is none of that name, or it stands in the configuration.
    pub fn remove(&self, name: &str) -> Result<(), DirectoryError> {
        let mut agents = self.lock();
        match agents.get(name) {
            None if self.attached.is_attached(name) => Err(DirectoryError::Attached(name.to_owned())),
            None => Err(unknown(name, &agents, &self.attached)),
            Some(existing) if existing.configured => Err(DirectoryError::Configured(name.to_owned())),
            Some(_) => {
                agents.remove(name);
                Ok(())
            }
        }
    }

    /// The agents behind a name, by name: at most `most`, and no more than [`LIST_BYTES`] hold, one of them
    /// besides. And whether there are more behind them.
    #[must_use]
    pub fn page(&self, after: &str, most: usize) -> (Vec<Known>, bool) {
        let agents = self.lock();
        let dialled = agents.range::<str, _>((Bound::Excluded(after), Bound::Unbounded)).map(|(name, _)| name.clone());
        let attached = self.attached.names().into_iter().filter(|name| name.as_str() > after);
        // No more names than are looked at, each once.
        let names: BTreeSet<String> = dialled.take(most + 1).chain(attached).collect();
        let mut names = names.into_iter();
        let (mut page, mut bytes) = (Vec::new(), 0);
        while page.len() < most && bytes <= LIST_BYTES {
            let Some(name) = names.next() else { return (page, false) };
            // One that has an address is called there.
            let known = agents.get(&name).cloned().unwrap_or_else(|| self.attached_one(&name));
            bytes += known.weight();
            page.push(known);
        }
        (page, names.next().is_some())
    }

    /// The agent of that name: one of the run's own `targets`, else one of the directory.
    ///
    /// # Errors
    /// When there is none, or the run's address for it cannot be taken.
    pub fn find(&self, name: &str, targets: &[(String, String)]) -> Result<Agent, DirectoryError> {
        let mut agent = self.found(name, targets)?;
        // However it is named: its authors are the same.
        agent.bent = self.bent.of(&agent.url);
        Ok(agent)
    }

    /// The rules that an agent bent or broke in runs since the daemon's start.
    #[must_use]
    pub fn bent(&self, agent: &Agent) -> Vec<Rule> {
        self.bent.rules(&agent.url)
    }

    fn found(&self, name: &str, targets: &[(String, String)]) -> Result<Agent, DirectoryError> {
        if let Some((_, url)) = targets.iter().find(|(id, _)| id == name) {
            // Attached or not: it may be about to come back.
            if let Some(attached) = url.strip_prefix(ATTACHED_SCHEME) {
                let is_good = is_name(attached);
                return if is_good {
                    Ok(Agent::attached(name, attached, &self.attached))
                } else {
                    Err(DirectoryError::BadName(attached.to_owned()))
                };
            }
            let target = self.allowed_target(url)?;
            return Agent::at(name, &target).map_err(|source| DirectoryError::Dial { url: url.clone(), source });
        }
        let agents = self.lock();
        if let Some(known) = agents.get(name) {
            return Ok(known.agent.clone());
        }
        if self.attached.knows(name) {
            return Ok(Agent::attached(name, name, &self.attached));
        }
        Err(unknown(name, &agents, &self.attached))
    }

    /// The agents that dialled us.
    #[must_use]
    pub const fn attached(&self) -> &Arc<Hub> {
        &self.attached
    }

    /// Whether an agent of that name has an address here.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.lock().contains_key(name)
    }

    /// Keeps what came of asking an agent to describe itself. When the descriptions of all agents take more than
    /// [`DESCRIPTIONS_BYTES`], that of the agent that was seen longest ago is forgotten.
    pub fn note(&self, name: &str, description: Option<Description>) {
        let described = description.as_ref().map_or(0, Description::weight);
        // What is forgotten ends behind the lock.
        let mut forgotten = Vec::new();
        let mut agents = self.lock();
        let Some(known) = agents.get_mut(name) else { return };
        known.healthy = description.is_some();
        let Some(description) = description else { return };
        forgotten.extend(known.description.replace(Arc::new(description)));
        known.described = described;
        known.last_seen = Some(Timestamp::now());
        let mut held: usize = agents.values().map(|known| known.described).sum();
        while held > DESCRIPTIONS_BYTES {
            let with_one = agents.values_mut().filter(|known| known.description.is_some());
            let Some(oldest) = with_one.min_by_key(|known| known.last_seen) else { return };
            held -= std::mem::take(&mut oldest.described);
            forgotten.extend(oldest.description.take());
        }
    }

    /// What is known about an agent.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn get(&self, name: &str) -> Result<Known, DirectoryError> {
        let agents = self.lock();
        if let Some(known) = agents.get(name) {
            return Ok(known.clone());
        }
        if self.attached.knows(name) {
            return Ok(self.attached_one(name));
        }
        Err(unknown(name, &agents, &self.attached))
    }

    /// What is known of an agent that is attached, or was.
    fn attached_one(&self, name: &str) -> Known {
        let (instances, gone) = self.attached.instances(name);
        let description = self.attached.description(name);
        Known {
            agent: Agent::attached(name, name, &self.attached),
            configured: false,
            described: description.as_deref().map_or(0, Description::weight),
            healthy: !instances.is_empty(),
            last_seen: gone.as_ref().map_or_else(|| Some(Timestamp::now()), |(at, _)| Some(*at)),
            labels: Vec::new(),
            description,
            instances,
            detached_because: gone.map(|(_, why)| why),
            lost: self.attached.lost(name),
        }
    }

    fn allowed_target(&self, url: &str) -> Result<Target, DirectoryError> {
        let target: Target = url.parse()?;
        if self.allowed.allow(&target) { Ok(target) } else { Err(DirectoryError::NotAllowed { url: url.to_owned() }) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        // Nothing panics while the lock is held, and a directory is whole after every statement.
        self.agents.lock()
    }
}

fn known(name: &str, target: &Target, labels: Vec<(String, String)>) -> Result<Known, DirectoryError> {
    if !is_name(name) {
        return Err(DirectoryError::BadName(name.to_owned()));
    }
    let url = target.to_string();
    let agent = Agent::at(name, target).map_err(|source| DirectoryError::Dial { url, source })?;
    Ok(Known {
        agent,
        configured: false,
        description: None,
        healthy: false,
        last_seen: None,
        labels,
        instances: Vec::new(),
        detached_because: None,
        lost: None,
        described: 0,
    })
}

fn unknown(name: &str, agents: &BTreeMap<String, Known>, attached: &Hub) -> DirectoryError {
    let mut known: Vec<String> = agents.keys().cloned().chain(attached.names()).take(20).collect();
    known.sort();
    DirectoryError::Unknown { name: name.to_owned(), known }
}
