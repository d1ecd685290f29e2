//! SHELL. The reconciles in flight, so that a change notifies the reconcile of its key.
//!
//! | guarded by | |
//! |---|---|
//! | a shard of `reconciles` | a lock. No user code runs under it: keys are stored by their hash, and wakers are called after unlocking |
//! | `WorkerSlot::superseded` | a `watch` channel |
//!
//! A reconcile is registered before its function is called. So if a change does not find the reconcile, the reconcile begins after the change was
//! published, and reads the new state. A change looks for the reconcile before it adds the key. So if the reconcile has not ended before the add, its key
//! is leased at the add, and runs again; in the opposite order, the change could find the reconcile that the add has caused.
//!
//! If two keys have the same hash, a change of one key also notifies the reconcile of the other key. This happens with a probability of 2⁻⁶⁴, or if
//! `Hash` of the keys is weak.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use flyball_sync::locks::Mutex;
use tokio::sync::watch;

/// The number of locks, so that workers rarely wait for each other.
const SHARDS: usize = 16;

#[derive(Default)]
pub(crate) struct InFlight {
    hasher: RandomState,
    reconciles: [Mutex<HashMap<u64, Reconciles>>; SHARDS],
}

/// The reconciles of the keys with one hash.
#[derive(Clone)]
pub(crate) enum Reconciles {
    One(Reconcile),
    Many(Vec<Reconcile>),
}

/// The reconcile with this number in the slot of its worker.
#[derive(Clone, Debug)]
pub(crate) struct Reconcile {
    slot: Arc<WorkerSlot>,
    number: u64,
}

/// The slot of a worker, which its reconciles use one after another, so that a reconcile allocates nothing.
#[derive(Debug, Default)]
struct WorkerSlot {
    /// The number of the last reconcile that was superseded.
    superseded: watch::Sender<u64>,
}

impl Reconcile {
    /// Creates the slot of a worker.
    pub(crate) fn new() -> Self {
        Self { slot: Arc::default(), number: 0 }
    }

    /// Begins the next reconcile of the worker.
    pub(crate) fn next(&mut self) {
        self.number += 1;
    }

    pub(crate) fn is_superseded(&self) -> bool {
        *self.slot.superseded.borrow() >= self.number
    }

    /// Waits until the reconcile is superseded.
    pub(crate) async fn superseded(&self) {
        // The wait cannot fail, because `self` holds the sender.
        let _ = self.slot.superseded.subscribe().wait_for(|number| *number >= self.number).await;
    }

    fn supersede(&self) {
        self.slot.superseded.send_if_modified(|number| {
            let newer = *number < self.number;
            *number = self.number.max(*number);
            newer
        });
    }
}

impl InFlight {
    /// Hashes a key, which runs user code.
    pub(crate) fn hash(&self, key: &impl Hash) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Registers a reconcile under these hashes until the returned guard is dropped.
    pub(crate) fn begin<H: AsRef<[u64]>>(&self, reconcile: &Reconcile, hashes: H) -> Registered<'_, H> {
        for hash in hashes.as_ref() {
            let mut reconciles = self.shard(*hash).lock();
            match reconciles.entry(*hash) {
                Entry::Vacant(vacant) => _ = vacant.insert(Reconciles::One(reconcile.clone())),
                Entry::Occupied(mut occupied) => occupied.get_mut().add(reconcile.clone()),
            }
        }
        Registered { in_flight: self, hashes, slot: reconcile.slot.clone() }
    }

    /// Returns the reconciles of the key with this hash, to [supersede](Reconciles::supersede) them after the key is added.
    pub(crate) fn get(&self, hash: u64) -> Option<Reconciles> {
        self.shard(hash).lock().get(&hash).cloned()
    }

    fn shard(&self, hash: u64) -> &Mutex<HashMap<u64, Reconciles>> {
        &self.reconciles[hash as usize % SHARDS]
    }

    fn end(&self, hash: u64, slot: &Arc<WorkerSlot>) {
        let mut reconciles = self.shard(hash).lock();
        let Entry::Occupied(mut occupied) = reconciles.entry(hash) else { return };
        let ended = match occupied.get_mut() {
            Reconciles::One(reconcile) if Arc::ptr_eq(&reconcile.slot, slot) => true,
            Reconciles::One(_) => false,
            Reconciles::Many(reconciles) => {
                reconciles.retain(|reconcile| !Arc::ptr_eq(&reconcile.slot, slot));
                reconciles.is_empty()
            }
        };
        if ended {
            occupied.remove();
        }
    }
}

impl Reconciles {
    /// Notifies the reconciles that the key was added again. Has no effect on those that have ended.
    pub(crate) fn supersede(&self) {
        match self {
            Self::One(reconcile) => reconcile.supersede(),
            Self::Many(reconciles) => reconciles.iter().for_each(Reconcile::supersede),
        }
    }

    fn add(&mut self, reconcile: Reconcile) {
        match self {
            Self::One(first) => *self = Self::Many(vec![first.clone(), reconcile]),
            Self::Many(reconciles) => reconciles.push(reconcile),
        }
    }
}

/// Removes a reconcile when it is dropped.
pub(crate) struct Registered<'a, H: AsRef<[u64]>> {
    in_flight: &'a InFlight,
    hashes: H,
    slot: Arc<WorkerSlot>,
}

impl<H: AsRef<[u64]>> Drop for Registered<'_, H> {
    fn drop(&mut self) {
        self.hashes.as_ref().iter().for_each(|hash| self.in_flight.end(*hash, &self.slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifies_the_reconciles_of_a_hash_and_no_later_ones() {
        let in_flight = InFlight::default();
        let supersede = |hash| in_flight.get(hash).iter().for_each(Reconciles::supersede);
        let (mut one, mut other) = (Reconcile::new(), Reconcile::new());
        one.next();
        other.next();
        let first = in_flight.begin(&one, [7]);
        let both = in_flight.begin(&other, vec![7, 23]);
        supersede(8);
        assert!(!one.is_superseded() && !other.is_superseded());
        drop(first);
        supersede(7);
        assert!(!one.is_superseded() && other.is_superseded(), "the first reconcile has ended");
        drop(both);
        let before = other.clone();
        other.next();
        let both = in_flight.begin(&other, vec![7, 23]);
        assert!(before.is_superseded() && !other.is_superseded(), "a new reconcile of the same worker");
        let _again = in_flight.begin(&one, [23]);
        supersede(23);
        assert!(one.is_superseded() && other.is_superseded(), "the keys have the same hash");
        drop((both, _again));
        assert!(in_flight.reconciles.iter().all(|shard| shard.lock().is_empty()));
    }
}
