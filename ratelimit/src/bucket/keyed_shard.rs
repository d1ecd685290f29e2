//! PURE. The buckets of some keys. Each bucket is stored as one number, `full_at`; a full bucket is not stored.
//!
//! # Invariants
//! 1. Each slot has exactly one index entry, which is stored under the slot's hash.
//! 2. There are at most `most` slots.
//! 3. Consider the bucket that a key would have if it were never evicted. Its `full_at` is at most that of the key's slot or, if the key has no slot,
//!    at most `floor`, unless that bucket is full. So no key gets more tokens than from a bucket of its own: a larger `full_at` is the state of a bucket
//!    from which more tokens were taken, and this also applies to the tokens that `cancel` gives back. When a bucket that is not full loses its slot,
//!    or is not given one, `floor` is raised to its `full_at`.
//! 4. The `full_at` of a slot accounts for every reservation of its key that was made at the current value of `change` and is not due yet.
//! 5. User code (`Eq`, `Clone`) runs before the first change of an operation, so a panic in it leaves 1 to 4 intact.
//!    Growing the index calls no `Hash`, because slots store their hash.
//!
//! A clock hand moves down over the slots, so that the slot that moves into a gap is one that the hand has passed: for each new key, it checks two slots
//! and evicts each bucket that is full again. If there is still no room, it checks a few more. If none of these is full, the fullest of them and of the
//! new bucket is not stored. So one call raises `floor` by at most its own tokens, and a large debt of a stored key does not affect other keys.
//!
//! Rejected: a list in the order of last use (each token taken would change the list, and the list would keep a nearly full bucket as long as an empty
//! one), a heap of the times at which buckets are full (its cost is logarithmic), giving an evicted key a full bucket (two keys that evict each other
//! have no limit), and refusing new keys while there is no room (a few tokens of many keys would lock out all others).

use std::mem::needs_drop;
use std::num::NonZeroU32;

use flyball_sync::Nanos;
use flyball_sync::panics::drop_each;
use hashbrown::HashTable;

use crate::bucket::fixed_point::FixedPointRate;
use crate::bucket::quota::Quota;
use crate::bucket::reservation::Reservation;
use crate::error::{InsufficientCapacity, TryAcquireError};
use crate::shrink::shrink;

/// If there is no room, the number of further slots that are checked for each new key.
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
    /// The `full_at` of all keys without a slot, unless they are full (invariant 3).
    floor: u128,
    /// The number of changes of the quota. A reservation stores the value of this count at the time of the reservation.
    change: u64,
}

struct Slot<K> {
    key: K,
    hash: u64,
    full_at: u128,
}

/// Evicted keys, to be dropped outside the lock, each by itself: two that panic would otherwise abort the process.
///
/// Rejected: the same for all keys of a [`Shard`], because keys that are references would then have to outlive the limiter.
pub(crate) struct Evicted<K>([Option<K>; SWEPT + 1]);

impl<K> Evicted<K> {
    pub(crate) const fn new() -> Self {
        Self([const { None }; SWEPT + 1])
    }
}

impl<K> Drop for Evicted<K> {
    #[inline]
    fn drop(&mut self) {
        if needs_drop::<K>() {
            drop_each(self.0.iter_mut().filter_map(Option::take));
        }
    }
}

impl<K> Shard<K> {
    pub(crate) fn new(quota: Quota, most: usize) -> Self {
        let scale = FixedPointRate::new(quota);
        Self { index: HashTable::new(), slots: Vec::new(), hand: 0, most, quota, scale, floor: 0, change: 0 }
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
        let present = old.parts(now);
        self.floor = if self.floor <= present { 0 } else { old.carry(self.floor, now, &new) };
        for slot in (0..self.slots.len()).rev() {
            if self.slots[slot].full_at <= present {
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

    /// Evicts up to two full buckets. If there is still no room for a bucket with this `full_at`, evicts one more bucket, or returns false if the new
    /// bucket is not to be stored.
    fn make_room(&mut self, full_at: u128, now: Nanos, evicted: &mut Evicted<K>) -> bool {
        let present = self.scale.parts(now);
        for evicted in &mut evicted.0[..SWEPT] {
            if self.slots.is_empty() {
                return true;
            }
            self.hand = self.below_hand(1);
            if self.slots[self.hand].full_at <= present {
                *evicted = Some(self.remove(self.hand));
            }
        }
        if self.slots.len() < self.most {
            return true;
        }
        let candidates = CANDIDATES.min(self.slots.len());
        let fullest = (1..=candidates)
            .map(|below| self.below_hand(below))
            .min_by_key(|&slot| self.slots[slot].full_at)
            .filter(|&slot| self.slots[slot].full_at < full_at);
        let lost = fullest.map_or(full_at, |slot| self.slots[slot].full_at);
        // Invariant 3. A full bucket does not raise the floor: the clock readings of several threads are not ordered, and a thread with a slightly
        // earlier reading would find that a new key is not full.
        if lost > present {
            self.floor = self.floor.max(lost);
        }
        self.hand = self.below_hand(candidates);
        evicted.0[SWEPT] = fullest.map(|slot| self.remove(slot));
        fullest.is_some()
    }

    /// Returns the slot that is `below` slots below the hand; below slot 0 is the last one. There must be slots, at least `below`.
    fn below_hand(&self, below: usize) -> usize {
        let len = self.slots.len();
        (self.hand.min(len) + len - below) % len
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
        shrink(&mut self.slots, &mut self.index, |slot| slot.hash);
        removed.key
    }

    /// Checks the invariants.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.slots.len() > self.most || self.index.len() != self.slots.len() {
            let (slots, index, most) = (self.slots.len(), self.index.len(), self.most);
            return Err(format!("invariants 1, 2: {slots} slots, {index} entries, at most {most}"));
        }
        if self.floor > self.scale.horizon() {
            return Err(format!("invariant 3: the floor {} is beyond {}", self.floor, self.scale.horizon()));
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
        Ok(Reservation::new(count, due, self.change))
    }

    /// Gives back a reservation, and returns whether this had an effect.
    pub(crate) fn cancel(&mut self, hash: u64, key: &K, reservation: &Reservation, now: Nanos) -> bool {
        if !reservation.is_open(self.change, now) {
            return false;
        }
        // If the key has no slot, its state is merged into the floor, so its tokens count as used.
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
        // Invariant 3.
        let mut full_at = self.floor;
        let result = change(&mut full_at)?;
        // Invariant 5: this is the last step that may panic.
        let key = key.clone();
        if self.make_room(full_at, now, evicted) {
            // Invariant 2 keeps the index below 2^32.
            let slot = self.slots.len() as u32;
            self.slots.push(Slot { key, hash, full_at });
            let slots = &self.slots;
            self.index.insert_unique(hash, slot, |&other| slots[other as usize].hash);
        } else {
            evicted.0[SWEPT] = Some(key);
        }
        Ok(result)
    }

    pub(crate) fn available(&self, hash: u64, key: &K, now: Nanos) -> u32 {
        let full_at = self.find(hash, key).map_or(self.floor, |slot| self.slots[slot].full_at);
        self.scale.available(full_at, now)
    }

    fn find(&self, hash: u64, key: &K) -> Option<usize> {
        self.index.find(hash, |&slot| self.slots[slot as usize].key == *key).map(|&slot| slot as usize)
    }
}
