//! Places for connections, requests and their bytes. One address may hold three quarters of them. When all are taken,
//! the holder that was silent longest gives way, so that a request that never ends keeps nobody out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Nobody gives way who said something so recently.
const RECENT: Duration = Duration::from_secs(1);

/// A number of places, each for a connection, a request or a byte.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_peer: HashMap<IpAddr, usize>,
    holders: HashMap<u64, Holder>,
    next: u64,
}

#[derive(Debug)]
struct Holder {
    peer: IpAddr,
    held: usize,
    /// When something was heard of it last.
    heard: Instant,
    /// How much is done for it now; it does not give way meanwhile.
    busy: usize,
    gone: CancellationToken,
}

/// Places that are taken until this is dropped, or gave way.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    id: u64,
    gone: CancellationToken,
}

/// Something that is done for the holder of a place, which keeps it meanwhile.
#[derive(Debug)]
pub(super) struct Busy(Arc<Place>);

impl Places {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::default() })
    }

    /// Takes `count` places; `None`: fewer are free, and nobody gives way.
    pub(super) fn take(self: &Arc<Self>, peer: IpAddr, count: usize) -> Option<Place> {
        let gone = CancellationToken::new();
        let mut taken = self.lock();
        let id = taken.next;
        taken.next += 1;
        let holder = Holder { peer, held: 0, heard: Instant::now(), busy: 0, gone: gone.clone() };
        taken.holders.insert(id, holder);
        let is_taken = self.grow(&mut taken, id, count);
        drop(taken);
        // Dropped, it leaves nothing behind.
        let place = Place { places: Arc::clone(self), id, gone };
        is_taken.then_some(place)
    }

    /// Most of the places that one peer may have: three quarters, and one at least.
    fn share(&self) -> usize {
        (self.most - self.most / 4).max(1)
    }

    /// Gives the holder `id` `count` more places, if need be those of others.
    fn grow(&self, taken: &mut Taken, id: u64, count: usize) -> bool {
        let Some(peer) = taken.holders.get(&id).map(|holder| holder.peer) else { return false };
        loop {
            let of_peer = taken.by_peer.get(&peer).copied().unwrap_or_default();
            let of_whom = if of_peer.saturating_add(count) > self.share() {
                Some(peer)
            } else if taken.all.saturating_add(count) > self.most {
                None
            } else {
                taken.all += count;
                *taken.by_peer.entry(peer).or_default() += count;
                if let Some(holder) = taken.holders.get_mut(&id) {
                    holder.held += count;
                }
                return true;
            };
            let Some(silent) = taken.most_silent(id, of_whom) else { return false };
            if let Some(holder) = taken.remove(silent) {
                holder.gone.cancel();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock()
    }
}

impl Taken {
    /// Who was silent for longest, and gives way to `id`: of all, or of those that come from one address.
    fn most_silent(&self, id: u64, peer: Option<IpAddr>) -> Option<u64> {
        let now = Instant::now();
        let is_silent = |holder: &Holder| holder.busy == 0 && holder.held > 0 && now > holder.heard + RECENT;
        let of_peer = |holder: &Holder| peer.is_none_or(|peer| holder.peer == peer);
        let silent = self.holders.iter().filter(|(of, holder)| **of != id && is_silent(holder) && of_peer(holder));
        silent.min_by_key(|(_, holder)| holder.heard).map(|(of, _)| *of)
    }

    fn remove(&mut self, id: u64) -> Option<Holder> {
        let holder = self.holders.remove(&id)?;
        self.all -= holder.held;
        if let Some(of_peer) = self.by_peer.get_mut(&holder.peer) {
            *of_peer -= holder.held;
            if *of_peer == 0 {
                self.by_peer.remove(&holder.peer);
            }
        }
        Some(holder)
    }
}

impl Place {
    /// Takes `count` more places; false: fewer are left, or it gave way.
    pub(super) fn grow(&self, count: usize) -> bool {
        self.places.grow(&mut self.places.lock(), self.id, count)
    }

    /// Its number, which no other of these places has.
    pub(super) const fn id(&self) -> u64 {
        self.id
    }

    /// Notes that something was heard.
    pub(super) fn heard(&self) {
        self.change(|holder| holder.heard = Instant::now());
    }

    /// Keeps the place while something is done.
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        self.change(|holder| holder.busy += 1);
        Busy(Arc::clone(self))
    }

    /// Cancelled when it gave way.
    pub(super) fn gone(&self) -> &CancellationToken {
        &self.gone
    }

    fn change(&self, change: impl FnOnce(&mut Holder)) {
        if let Some(holder) = self.places.lock().holders.get_mut(&self.id) {
            change(holder);
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.change(|holder| {
            holder.busy -= 1;
            holder.heard = Instant::now();
        });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().remove(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_who_takes_all_leaves_some_to_the_others() {
        let places = Places::new(8);
        let (greedy, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let taken: Vec<Place> = (0..100).map_while(|_| places.take(greedy, 1)).collect();
        assert_eq!(taken.len(), 6);
        let others = places.take(other, 1).expect("a place");
        assert!(others.grow(1) && !others.grow(1), "all are taken");
        drop(taken);
        assert!(places.take(greedy, 6).is_some() && others.grow(4));
        drop(others);
        let left = places.lock();
        assert_eq!((left.all, left.by_peer.len(), left.holders.len()), (0, 0, 0));
        assert!(Places::new(1).take(greedy, 1).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_silent_gives_way() {
        let places = Places::new(4);
        let (greedy, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let taken: Vec<Arc<Place>> = (0..3).map_while(|_| places.take(greedy, 1).map(Arc::new)).collect();
        assert!(places.take(greedy, 1).is_none(), "all have just come");
        let working = taken[0].busy();
        tokio::time::sleep(Duration::from_secs(2)).await;
        taken[1].heard();
        let (third, other) = (places.take(greedy, 1).expect("a place"), places.take(other, 1).expect("a place"));
        let gone: Vec<bool> = taken.iter().map(|place| place.gone().is_cancelled()).collect();
        assert_eq!(gone, [false, false, true], "one works, and one was heard");
        assert!(!taken[2].grow(1), "it has no place any more");
        drop((working, taken, third, other));
        let left = places.lock();
        assert_eq!((left.all, left.holders.len()), (0, 0));
    }
}
