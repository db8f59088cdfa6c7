//! Who is attached, and whose turn it is to get a call.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tonic::Status;

use super::session::{Identity, Offer, Outgoing, Session, Slot};
use super::windows::Sizes;
use crate::conversation::Description;
use crate::limits::{ATTACHED, DESCRIPTIONS_BYTES};
use crate::wire::attach::{AttachResponse, Kind};

/// Most names of agents that are gone which are remembered; those that went first are forgotten first.
const MAX_GONE: usize = 1_000;

/// Knows all attached streams.
#[derive(Debug, Default)]
pub struct Hub {
    inner: Mutex<Inner>,
    /// Told when a slot gets free, or somebody comes or goes.
    freed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Inner {
    sessions: Vec<Arc<Session>>,
    /// Agents that were attached and are not now: since when, and why.
    gone: BTreeMap<String, (Timestamp, String)>,
    /// Agents of which a process went without saying so: when the last one did, and why.
    lost: BTreeMap<String, (Timestamp, String)>,
}

/// Why a process cannot attach.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Entry {
    /// It is attached already.
    #[error("instance {0:?} is attached already, and previous_session_id is not that of its session")]
    Claimed(String),
    /// Too many are.
    #[error("{ATTACHED} processes are attached, which is the most there can be")]
    Full,
}

/// An instance of an agent, as it is now.
#[derive(Debug, Clone)]
pub struct Instance {
    /// The id of the process.
    pub instance_id: String,
    /// Its address.
    pub address: String,
    /// What it says of its version.
    pub version: String,
    /// Since when it is attached.
    pub since: Timestamp,
    /// Invocations that it takes at a time.
    pub slots: usize,
    /// Those that it would take now.
    pub free: usize,
    /// Whether it is about to leave.
    pub is_draining: bool,
}

impl Hub {
    /// Takes a process in, and sends it its `welcome`. One that comes back with the name of its last session replaces
    /// that.
    ///
    /// # Errors
    /// Why it cannot attach.
    pub fn enter(
        &self,
        mut who: Identity,
        previous: &str,
        theirs: Sizes,
        frames: &Outgoing,
        welcome: impl FnOnce(&Session) -> Result<AttachResponse, Status>,
    ) -> Result<Arc<Session>, Entry> {
        let mut inner = self.lock();
        let same = inner.sessions.iter().position(|session| session.who.instance_id == who.instance_id);
        let replaced = match same {
            Some(place) if inner.sessions.get(place).is_some_and(|session| session.id == previous) => {
                Some(inner.sessions.remove(place))
            }
            Some(_) => return Err(Entry::Claimed(who.instance_id)),
            None if inner.sessions.len() >= ATTACHED => return Err(Entry::Full),
            None => None,
        };
        let held = |offers: &[Offer]| -> usize {
            let descriptions = offers.iter().filter_map(|offer| offer.description.as_deref());
            descriptions.map(Description::weight).sum()
        };
        let mut all: usize = inner.sessions.iter().map(|session| held(&session.who.offers)).sum();
        for offer in &mut who.offers {
            inner.gone.remove(&offer.agent_id);
            all += held(std::slice::from_ref(offer));
            if all > DESCRIPTIONS_BYTES {
                offer.description = None;
            }
        }
        let session = Arc::new(Session::new(who, theirs, frames.clone(), Arc::clone(&self.freed)));
        // Before anybody can call it. An agent that has gone needs no welcome.
        let _ = frames.send(welcome(&session));
        inner.sessions.push(Arc::clone(&session));
        drop(inner);
        if let Some(replaced) = replaced {
            replaced.end("the instance attached again");
        }
        self.freed.notify_waiters();
        Ok(session)
    }

    /// Forgets a session that is over.
    pub fn leave(&self, session: &Session) {
        let mut inner = self.lock();
        inner.sessions.retain(|other| other.id != session.id);
        let remembered: &[Offer] = if session.who.is_temporary { &[] } else { &session.who.offers };
        for offer in remembered {
            if !inner.sessions.iter().any(|other| place(other, &offer.agent_id).is_some()) {
                inner.gone.insert(offer.agent_id.clone(), (Timestamp::now(), session.why()));
            }
        }
        for offer in remembered.iter().filter(|_| !session.is_draining()) {
            inner.lost.insert(offer.agent_id.clone(), (Timestamp::now(), session.why()));
        }
        let Inner { gone, lost, .. } = &mut *inner;
        for remembered in [gone, lost] {
            while remembered.len() > MAX_GONE {
                let first = remembered.iter().min_by_key(|(_, (at, _))| *at).map(|(name, _)| name.clone());
                let Some(first) = first else { break };
                remembered.remove(&first);
            }
        }
    }

    /// When a process of an agent went without saying so the last time, and why.
    #[must_use]
    pub fn lost(&self, name: &str) -> Option<(Timestamp, String)> {
        self.lock().lost.get(name).cloned()
    }

    /// How many processes serve each agent now, of at most `most` agents; and how many others there are. Names for one
    /// run are among those.
    #[must_use]
    pub fn counts(&self, most: usize) -> (BTreeMap<String, u64>, u64) {
        let (mut counts, mut others) = (BTreeMap::<String, u64>::new(), 0);
        let inner = self.lock();
        for session in &inner.sessions {
            for offer in &session.who.offers {
                if !session.who.is_temporary && (counts.len() < most || counts.contains_key(&offer.agent_id)) {
                    *counts.entry(offer.agent_id.clone()).or_default() += 1;
                } else {
                    others += 1;
                }
            }
        }
        (counts, others)
    }

    /// Ends all sessions.
    pub fn end(&self, why: &str) {
        let sessions = std::mem::take(&mut self.lock().sessions);
        for session in sessions {
            session.end(why);
        }
    }

    /// Whether an agent of that name is attached, or was.
    #[must_use]
    pub fn knows(&self, name: &str) -> bool {
        self.is_attached(name) || self.lock().gone.contains_key(name)
    }

    /// Whether an agent of that name is attached.
    #[must_use]
    pub fn is_attached(&self, name: &str) -> bool {
        self.lock().sessions.iter().any(|session| place(session, name).is_some())
    }

    /// The names of all agents that are attached, or were, in order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let inner = self.lock();
        let attached = inner.sessions.iter().flat_map(|session| &session.who.offers).map(|offer| &offer.agent_id);
        let names: std::collections::BTreeSet<&String> = attached.chain(inner.gone.keys()).collect();
        names.into_iter().cloned().collect()
    }

    /// The instances of an agent, the first that came first; and, where there is none, when and why the last one went.
    #[must_use]
    pub fn instances(&self, name: &str) -> (Vec<Instance>, Option<(Timestamp, String)>) {
        let inner = self.lock();
        let instances = inner.sessions.iter().filter_map(|session| {
            let agent = place(session, name)?;
            let offer = session.who.offers.get(agent)?;
            Some(Instance {
                instance_id: session.who.instance_id.clone(),
                address: session.who.address.clone(),
                version: offer.version.clone(),
                since: session.since,
                slots: session.slots(agent),
                free: session.free(agent, Kind::Invoke).unwrap_or_default(),
                is_draining: session.is_draining(),
            })
        });
        (instances.collect(), inner.gone.get(name).cloned())
    }

    /// What the instance that came first says of the agent.
    #[must_use]
    pub fn description(&self, name: &str) -> Option<Arc<Description>> {
        let inner = self.lock();
        inner.sessions.iter().find_map(|session| {
            let offer = session.who.offers.get(place(session, name)?)?;
            offer.description.clone()
        })
    }

    /// Invocations that all instances of an agent take at a time.
    #[must_use]
    pub fn slots(&self, name: &str) -> usize {
        let inner = self.lock();
        inner.sessions.iter().filter_map(|session| Some(session.slots(place(session, name)?))).sum()
    }

    /// Takes a place for a call at the instance with the most free slots, as soon as there is one; `None`: nobody
    /// serves the agent. Waits without end: the caller sets the deadline.
    pub(super) async fn reserve(&self, name: &str, kind: Kind) -> Option<Slot> {
        loop {
            let freed = self.freed.notified();
            {
                let inner = self.lock();
                let with_room = inner.sessions.iter().filter_map(|session| {
                    let agent = place(session, name)?;
                    Some((session, agent, session.free(agent, kind)?))
                });
                let (session, agent, _) = with_room.max_by_key(|(.., free)| *free)?;
                if let Some(slot) = session.reserve(agent, kind) {
                    return Some(slot);
                }
            }
            freed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

fn place(session: &Session, name: &str) -> Option<usize> {
    session.who.offers.iter().position(|offer| offer.agent_id == name)
}

/// Whether an agent can have this name.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !name.is_empty() && name.len() <= 200 && name.chars().all(is_plain)
}
