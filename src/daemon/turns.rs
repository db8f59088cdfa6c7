//! Turns at what is scarce: places for runs, room for open bundles. One client, and one agent, may have three
//! quarters of it at most, so runs that hang never take all. When some of it becomes free, the next is the run
//! whose client and agent have least.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::plan::RunSpec;

/// Something that is taken in turn.
#[derive(Debug)]
pub(super) struct Turns {
    most: usize,
    line: Mutex<Line>,
}

/// A client or an agent: what it has is counted over all its runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Party {
    /// A client on another machine, by its address.
    Address(IpAddr),
    /// A client on this machine, by the number of its connection.
    Connection(u64),
    /// The agent that is tested: its URL, or the name that the daemon knows it by.
    Agent(String),
}

impl Party {
    /// The parties of a run. Nobody knows the client of a run that an earlier daemon accepted.
    pub(super) fn of_run(client: Option<Self>, spec: &RunSpec) -> Arc<[Self]> {
        let target = spec.targets.iter().find(|(name, _)| *name == spec.agent_id);
        let agent = Self::Agent(target.map_or(&spec.agent_id, |(_, url)| url).clone());
        client.into_iter().chain([agent]).collect()
    }
}

/// Those who have something, and those who wait for it, in the order in which they came.
#[derive(Debug, Default)]
struct Line {
    taken: usize,
    by_party: HashMap<Party, usize>,
    holders: BTreeMap<u64, Holder>,
    next: u64,
}

#[derive(Debug)]
struct Holder {
    parties: Arc<[Party]>,
    count: usize,
    /// Told when it is its turn; `None`: it was.
    waits: Option<oneshot::Sender<()>>,
}

/// What somebody has until this is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Arc<Turns>,
    id: u64,
}

impl Turns {
    /// Turns at `most` of something, at least 1.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, line: Mutex::default() })
    }

    /// Most of it that one party may have: three quarters, but not all.
    fn share(&self) -> usize {
        (self.most - (self.most / 4).max(1)).max(1)
    }

    /// Waits for `count` of it, or for a whole share if `count` is more than one.
    pub(super) async fn take(self: &Arc<Self>, parties: &Arc<[Party]>, count: usize) -> Turn {
        let (turn, granted) = self.stand_in_line(parties, count);
        // The sender lives as long as the turn, so this cannot fail.
        let _ = granted.await;
        turn
    }

    /// Takes `count` of it; `None`: it would have to wait.
    pub(super) fn try_take(self: &Arc<Self>, parties: &Arc<[Party]>, count: usize) -> Option<Turn> {
        let (turn, mut granted) = self.stand_in_line(parties, count);
        granted.try_recv().is_ok().then_some(turn)
    }

    fn stand_in_line(self: &Arc<Self>, parties: &Arc<[Party]>, count: usize) -> (Turn, oneshot::Receiver<()>) {
        let (waits, granted) = oneshot::channel();
        let holder = Holder { parties: Arc::clone(parties), count: count.min(self.share()), waits: Some(waits) };
        let mut line = self.line.lock();
        let id = line.next;
        line.next += 1;
        line.holders.insert(id, holder);
        self.advance(&mut line);
        (Turn { turns: Arc::clone(self), id }, granted)
    }

    /// Gives what is free to those whose turn it is.
    fn advance(&self, line: &mut Line) {
        let share = self.share();
        loop {
            let Line { taken, by_party, holders, .. } = &mut *line;
            let has = |holder: &Holder| {
                holder.parties.iter().filter_map(|party| by_party.get(party)).copied().max().unwrap_or_default()
            };
            let waiting = holders.values_mut().filter(|holder| holder.waits.is_some());
            let next = waiting.filter(|holder| has(holder) + holder.count <= share).min_by_key(|holder| has(holder));
            // A holder that needs much keeps its turn: those behind it that need little do not pass it.
            let Some(next) = next.filter(|holder| *taken + holder.count <= self.most) else { return };
            *taken += next.count;
            for party in next.parties.iter() {
                *by_party.entry(party.clone()).or_default() += next.count;
            }
            if let Some(waits) = next.waits.take() {
                // Nobody listens when it is dropped just now, which gives all of it back.
                let _ = waits.send(());
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut line = self.turns.line.lock();
        let Some(holder) = line.holders.remove(&self.id) else { return };
        if holder.waits.is_none() {
            line.taken -= holder.count;
            for party in holder.parties.iter() {
                if let Some(has) = line.by_party.get_mut(party) {
                    *has -= holder.count;
                    if *has == 0 {
                        line.by_party.remove(party);
                    }
                }
            }
        }
        self.turns.advance(&mut line);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn run(client: u8, agent: &str) -> Arc<[Party]> {
        [Party::Address([10, 0, 0, client].into()), Party::Agent(agent.to_owned())].into()
    }

    #[test]
    fn one_client_or_agent_does_not_take_all() {
        let turns = Turns::new(4);
        let taken: Vec<Turn> = (0..9).map_while(|_| turns.try_take(&run(1, "a"), 1)).collect();
        assert_eq!(taken.len(), 3);
        assert!(turns.try_take(&run(1, "c"), 1).is_none(), "of this client");
        assert!(turns.try_take(&run(3, "a"), 1).is_none(), "of this agent");
        let last = turns.try_take(&run(2, "b"), 1).expect("one is kept for others");
        assert!(turns.try_take(&run(3, "c"), 1).is_none(), "all are taken");
        drop((taken, last));
        let line = turns.line.lock();
        assert_eq!((line.taken, line.by_party.len(), line.holders.len()), (0, 0, 0));
        let single = Turns::new(1);
        assert!(single.try_take(&run(1, "a"), 1).is_some());
    }

    #[tokio::test]
    async fn the_owner_that_has_least_is_next() {
        let turns = Turns::new(4);
        let (greedy, other, third) = (run(1, "a"), run(2, "b"), run(3, "c"));
        let mut taken: Vec<Turn> = (0..3).map_while(|_| turns.try_take(&greedy, 1)).collect();
        taken.push(turns.try_take(&other, 1).expect("a place"));
        let mut of_greedy = Box::pin(turns.take(&greedy, 1));
        let mut of_third = Box::pin(turns.take(&third, 1));
        assert!(of_greedy.as_mut().now_or_never().is_none() && of_third.as_mut().now_or_never().is_none());
        taken.remove(0);
        assert!(of_greedy.as_mut().now_or_never().is_none(), "it came first, and has two");
        let third = of_third.now_or_never().expect("it has none");
        drop(third);
        assert!(of_greedy.now_or_never().is_some());
    }

    #[tokio::test]
    async fn much_is_not_passed_over_by_little() {
        let turns = Turns::new(100);
        let (other, third) = (run(2, "b"), run(3, "c"));
        let half = turns.try_take(&run(1, "a"), 50).expect("half");
        let mut much = Box::pin(turns.take(&other, 70));
        assert!(much.as_mut().now_or_never().is_none());
        assert!(turns.try_take(&third, 10).is_none(), "the one that waits comes first");
        drop(half);
        let much = much.now_or_never().expect("there is room");
        assert!(turns.try_take(&third, 1_000).is_none(), "a share of 75 has no room beside it");
        let gave_up = Box::pin(turns.take(&third, 1_000));
        drop((gave_up, much));
        assert!(turns.try_take(&third, 1_000).is_some());
    }
}
