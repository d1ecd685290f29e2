//! PURE. The buckets of some keys. Each bucket is stored as one number, `full_at`; a full bucket is not stored.
//!
//! # Invariants
//! 1. Each slot has exactly one index entry, which is stored under the slot's hash.
//! 2. There are at most `most` slots.
//! 3. The `full_at` of a key accounts for every reservation that was made at the current value of `change` and is not due yet. A change of the quota,
//!    and an eviction because there is no room, increment `change`, so that older reservations can no longer be cancelled. The eviction of a full
//!    bucket by the clock hand does not increment it, because a full bucket has no outstanding tokens.
//! 4. User code (`Eq`, `Clone`) runs before the first change of an operation, so a panic in it leaves 1 to 3 intact.
//!    Growing the index calls no `Hash`, because slots store their hash.
//!
//! A clock hand moves over the slots: for each new key, it checks two slots and evicts each bucket that is full again. Rejected: a list in the order
//! of last use (each token taken would change the list, and the list would keep a nearly full bucket as long as an empty one), and a heap of the
//! times at which buckets are full (its cost is logarithmic).

use std::num::NonZeroU32;

use hashbrown::HashTable;

use crate::bucket::fixed_point::FixedPointRate;
use crate::{InsufficientCapacity, Nanos, Quota, Reservation, TryAcquireError};

/// A new key replaces the fullest bucket among this many slots.
const CANDIDATES: usize = 8;
/// The number of slots that are checked for each new key.
const SWEPT: usize = 2;

pub(crate) struct Shard<K> {
    index: HashTable<u32>,
    /// The slots, without gaps: when a slot is removed, the last slot moves into its position.
    slots: Vec<Slot<K>>,
    hand: usize,
    most: usize,
    quota: Quota,
    scale: FixedPointRate,
    /// The number of changes of the quota, and of evictions because the shard was full. A reservation stores the value of this count at the time of
    /// the reservation.
    change: u64,
}

struct Slot<K> {
    key: K,
    hash: u64,
    full_at: u128,
}

/// Evicted keys, to be dropped outside the lock.
pub(crate) type Evicted<K> = [Option<K>; SWEPT + 1];

impl<K> Shard<K> {
    pub(crate) fn new(quota: Quota, most: usize) -> Self {
        let scale = FixedPointRate::new(quota);
        Self { index: HashTable::new(), slots: Vec::new(), hand: 0, most, quota, scale, change: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) const fn quota(&self) -> Quota {
        self.quota
    }

    /// Evicts the buckets that are full, because they are full under any quota, and changes the quota of the others. Returns the evicted keys.
    ///
    /// O(keys).
    pub(crate) fn set_quota(&mut self, quota: Quota, now: Nanos) -> Vec<K> {
        let mut evicted = Vec::new();
        if quota == self.quota {
            return evicted;
        }
        let (old, new) = (self.scale, FixedPointRate::new(quota));
        for slot in (0..self.slots.len()).rev() {
            if self.slots[slot].full_at <= old.parts(now) {
                evicted.push(self.remove(slot));
            } else {
                self.slots[slot].full_at = old.carry(self.slots[slot].full_at, now, &new);
            }
        }
        self.quota = quota;
        self.scale = new;
        self.change += 1;
        evicted
    }

    fn fits(&self, count: NonZeroU32) -> Result<(), InsufficientCapacity> {
        let burst = self.quota.burst_size();
        if count > burst { Err(InsufficientCapacity::new(count, burst)) } else { Ok(()) }
    }

    /// Evicts up to two full buckets, and one more bucket if there is no room.
    fn make_room(&mut self, now: Nanos, evicted: &mut Evicted<K>) {
        let present = self.scale.parts(now);
        for evicted in &mut evicted[..SWEPT] {
            if self.slots.is_empty() {
                return;
            }
            self.hand %= self.slots.len();
            if self.slots[self.hand].full_at <= present {
                *evicted = Some(self.remove(self.hand));
            } else {
                self.hand += 1;
            }
        }
        if self.slots.len() >= self.most {
            let len = self.slots.len();
            let round = (self.hand..self.hand + CANDIDATES.min(len)).map(|slot| slot % len);
            let fullest = round.min_by_key(|&slot| self.slots[slot].full_at);
            evicted[SWEPT] = fullest.map(|slot| self.remove(slot));
            // Invariant 3. Rejected: a count in each slot, which would increase the memory for all keys by half.
            self.change += 1;
        }
    }

    fn remove(&mut self, slot: usize) -> K {
        let removed = self.slots.swap_remove(slot);
        // Invariant 1.
        if let Ok(entry) = self.index.find_entry(removed.hash, |&other| other as usize == slot) {
            entry.remove();
        }
        if let Some(moved) = self.slots.get(slot) {
            let last = self.slots.len();
            if let Some(entry) = self.index.find_mut(moved.hash, |&other| other as usize == last) {
                *entry = slot as u32;
            }
        }
        removed.key
    }

    /// Checks the invariants.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.slots.len() > self.most || self.index.len() != self.slots.len() {
            let (slots, index, most) = (self.slots.len(), self.index.len(), self.most);
            return Err(format!("invariants 1, 2: {slots} slots, {index} entries, at most {most}"));
        }
        for (slot, Slot { hash, .. }) in self.slots.iter().enumerate() {
            if self.index.find(*hash, |&other| other as usize == slot).is_none() {
                return Err(format!("invariant 1: slot {slot} is not in the index"));
            }
        }
        Ok(())
    }
}

impl<K: Eq + Clone> Shard<K> {
    pub(crate) fn try_acquire(
        &mut self,
        hash: u64,
        key: &K,
        count: NonZeroU32,
        now: Nanos,
        evicted: &mut Evicted<K>,
    ) -> Result<(), TryAcquireError> {
        self.fits(count)?;
        let scale = self.scale;
        self.change_slot(hash, key, now, evicted, |full_at| {
            *full_at = scale.try_acquire(*full_at, now, count)?;
            Ok(())
        })
    }

    /// Takes tokens, which may be due later.
    pub(crate) fn reserve(
        &mut self,
        hash: u64,
        key: &K,
        count: NonZeroU32,
        now: Nanos,
        evicted: &mut Evicted<K>,
    ) -> Result<Reservation, InsufficientCapacity> {
        self.fits(count)?;
        let scale = self.scale;
        let due = self.change_slot(hash, key, now, evicted, |full_at| {
            let due;
            (*full_at, due) = scale.reserve(*full_at, now, count);
            Ok::<_, InsufficientCapacity>(due)
        })?;
        // Uses the current value of `change`, because making room for the key may have incremented it.
        Ok(Reservation::new(count, due, self.change))
    }

    /// Gives back a reservation, and returns whether this had an effect.
    pub(crate) fn cancel(&mut self, hash: u64, key: &K, reservation: &Reservation, now: Nanos) -> bool {
        if !reservation.is_open(self.change, now) {
            return false;
        }
        // If the key is absent, its full bucket was evicted before the clock jumped back.
        let Some(slot) = self.find(hash, key) else { return false };
        let without = self.scale.cancel(self.slots[slot].full_at, now, reservation);
        self.slots[slot].full_at = without.unwrap_or(self.slots[slot].full_at);
        without.is_some()
    }

    /// Changes the `full_at` of a key, and adds the key if it is absent. If `change` returns an error, nothing is changed.
    fn change_slot<R, E>(
        &mut self,
        hash: u64,
        key: &K,
        now: Nanos,
        evicted: &mut Evicted<K>,
        change: impl FnOnce(&mut u128) -> Result<R, E>,
    ) -> Result<R, E> {
        if let Some(slot) = self.find(hash, key) {
            return change(&mut self.slots[slot].full_at);
        }
        let mut full_at = 0;
        let result = change(&mut full_at)?;
        // Invariant 4: this is the last step that may panic.
        let key = key.clone();
        self.make_room(now, evicted);
        // Invariant 2 keeps the index below 2^32.
        let slot = self.slots.len() as u32;
        self.slots.push(Slot { key, hash, full_at });
        let slots = &self.slots;
        self.index.insert_unique(hash, slot, |&other| slots[other as usize].hash);
        Ok(result)
    }

    pub(crate) fn available(&self, hash: u64, key: &K, now: Nanos) -> u32 {
        let full_at = self.find(hash, key).map_or(0, |slot| self.slots[slot].full_at);
        self.scale.available(full_at, now)
    }

    fn find(&self, hash: u64, key: &K) -> Option<usize> {
        self.index.find(hash, |&slot| self.slots[slot as usize].key == *key).map(|&slot| slot as usize)
    }
}
