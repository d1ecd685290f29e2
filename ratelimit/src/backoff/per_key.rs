//! PURE. State per key that is bounded and expires by itself.
//!
//! # Invariants
//! 1. Each slot has exactly one index entry, which is stored under the slot's hash.
//! 2. The list from `oldest` to `newest` holds every slot once; its links agree in both directions.
//! 3. There are at most `most` slots, plus one for each key that was added although the map was still full after the checks for eviction.
//! 4. A key does not expire before the longest wait has passed since it was last touched, nor while it is in use.
//! 5. User code (`Hash`, `Eq`, `Clone`) runs before the first change of an operation, and `in_use` is called for a key
//!    before that key is changed, so a panic leaves invariants 1 to 4 intact. Growing the index calls no `Hash`, because
//!    slots store their hash.
//!
//! Hence every operation is O(1), amortised over the growth and the shrinking of the table, and a key that is never forgotten leaks nothing: an operation
//! that may add one key also evicts up to two expired keys. The one operation in which the table shrinks moves the keys that are left, at most an eighth
//! of the slots; growing moves all of them.
//!
//! Rejected: a periodic sweep over the whole map (a pause under the owner's lock that grows with the map), and a heap
//! of deadlines (a second structure with logarithmic cost, for an exact expiry that is not needed).

use std::hash::{BuildHasher, Hash};
use std::mem::take;
use std::num::NonZeroU32;
use std::time::Duration;

use flyball_sync::Nanos;
use flyball_sync::panics::drop_each;
use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::shrink::shrink;

/// A map from keys to values that evicts the least recently touched keys.
pub(crate) struct PerKey<K, V> {
    hasher: RandomState,
    index: HashTable<u32>,
    /// The slots, without gaps: when a slot is removed, the last slot moves into its position.
    slots: Vec<Slot<K, V>>,
    oldest: u32,
    newest: u32,
    most: NonZeroU32,
    /// The number of keys that were added although the map was still full after the checks for eviction.
    beyond: usize,
    longest_wait: Duration,
    /// How long a key may be idle. Stored as a number of nanoseconds, not as a `Duration`, because it is read twice in each call.
    idle: u64,
    /// The evicted keys, until the caller takes them, or the next `touch` or `remove` drops them.
    evicted: Vec<K>,
}

struct Slot<K, V> {
    key: K,
    hash: u64,
    touched: Nanos,
    older: u32,
    newer: u32,
    value: V,
}

/// Drops each key by itself: two that panic would otherwise abort the process.
impl<K, V> Drop for PerKey<K, V> {
    fn drop(&mut self) {
        let slots = take(&mut self.slots).into_iter().map(|slot| slot.key);
        drop_each(slots.chain(take(&mut self.evicted)));
    }
}

impl<K, V> PerKey<K, V> {
    /// Creates a map for waits of up to `longest_wait`. An idle key is kept for `longest_wait`, plus the longer of
    /// `longest_wait` and `SHORTEST_DEFAULT_REST`.
    pub(crate) fn new(longest_wait: Duration) -> Self {
        let rest = longest_wait.max(SHORTEST_DEFAULT_REST);
        Self {
            hasher: RandomState::default(),
            index: HashTable::new(),
            slots: Vec::new(),
            oldest: NONE,
            newest: NONE,
            most: DEFAULT_MAX_KEYS,
            beyond: 0,
            longest_wait,
            idle: Nanos::from_duration(longest_wait.saturating_add(rest)).get(),
            evicted: Vec::new(),
        }
    }

    /// Sets how long an idle key is kept after the longest wait.
    pub(crate) fn forget_after(mut self, rest: Duration) -> Self {
        self.idle = Nanos::from_duration(self.longest_wait.saturating_add(rest)).get();
        self
    }

    /// Sets the maximum number of keys.
    pub(crate) fn max_keys(mut self, most: NonZeroU32) -> Self {
        self.most = most;
        while self.slots.len() > most.get() as usize {
            self.evict(self.oldest);
        }
        self
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Drops the evicted keys that the caller has not taken.
    #[inline]
    fn drop_evicted(&mut self) {
        if !self.evicted.is_empty() {
            drop_each(self.evicted.drain(..));
        }
    }

    /// Moves the evicted keys to `evicted`.
    #[inline]
    pub(crate) fn take_evicted(&mut self, evicted: &mut Vec<K>) {
        // Checked first, because the list of evicted keys is nearly always empty.
        if !self.evicted.is_empty() {
            evicted.append(&mut self.evicted);
        }
    }
}

impl<K: Hash + Eq, V> PerKey<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        let slot = self.find(self.hasher.hash_one(key), key)?;
        Some(&self.slots[slot as usize].value)
    }

    /// Removes a key. Returns whether the key was present.
    pub(crate) fn remove(&mut self, key: &K) -> bool {
        let Some(slot) = self.find(self.hasher.hash_one(key), key) else { return false };
        self.drop_evicted();
        self.evict(slot);
        true
    }

    fn find(&self, hash: u64, key: &K) -> Option<u32> {
        self.index.find(hash, |&slot| self.slots[slot as usize].key == *key).copied()
    }
}

impl<K: Hash + Eq + Clone, V: Default> PerKey<K, V> {
    /// Marks `key` as touched at `now`, and returns its value: a default value if the key is new or had expired.
    ///
    /// Also evicts up to two expired keys, the longest idle first. If there is still no room for a new key, evicts the key that has been idle
    /// longest. Keys for which `in_use` returns true are not evicted.
    pub(crate) fn touch(&mut self, key: &K, now: Nanos, mut in_use: impl FnMut(&K) -> bool) -> &mut V {
        let hash = self.hasher.hash_one(key);
        let slot = match self.find(hash, key) {
            Some(slot) => {
                let over = self.expired(slot, now) && !in_use(key);
                self.drop_evicted();
                if over {
                    self.slots[slot as usize].value = V::default();
                }
                self.renew(slot, now);
                self.sweep(now, slot, in_use)
            }
            None => {
                self.drop_evicted();
                let key = key.clone();
                self.sweep(now, NONE, &mut in_use);
                self.make_room(now, in_use);
                self.insert(key, hash, now)
            }
        };
        &mut self.slots[slot as usize].value
    }

    fn insert(&mut self, key: K, hash: u64, now: Nanos) -> u32 {
        // By invariant 3, the slot number is below `NONE`.
        let slot = self.slots.len() as u32;
        self.slots.push(Slot { key, hash, touched: now, older: NONE, newer: NONE, value: V::default() });
        let slots = &self.slots;
        self.index.insert_unique(hash, slot, |&other| slots[other as usize].hash);
        self.link_newest(slot, now);
        slot
    }
}

// === without user code ===

impl<K, V> PerKey<K, V> {
    fn expired(&self, slot: u32, now: Nanos) -> bool {
        now.get().saturating_sub(self.slots[slot as usize].touched.get()) > self.idle
    }

    /// Checks the two oldest keys: evicts a key if `over` returns true for its value, and otherwise makes the key the newest. Use this for maps whose
    /// idle keys do not expire. Successive calls check all keys in turn, so a key that is kept does not prevent checks of the keys after it.
    pub(crate) fn evict_oldest(&mut self, over: impl Fn(&V) -> bool) {
        for _ in 0..2 {
            let slot = self.oldest;
            match self.slots.get(slot as usize) {
                None => return,
                Some(entry) if over(&entry.value) => self.evict(slot),
                Some(&Slot { touched, .. }) => self.renew(slot, touched),
            }
        }
    }

    /// Evicts up to two expired keys, unless they are in use. `slot` must be `NONE`, or the slot of a key that is not expired. An eviction may move
    /// this slot: returns its new number.
    fn sweep(&mut self, now: Nanos, mut slot: u32, mut in_use: impl FnMut(&K) -> bool) -> u32 {
        for _ in 0..2 {
            let oldest = self.oldest;
            if oldest == NONE || !self.expired(oldest, now) {
                break;
            }
            self.evict_unless_in_use(now, &mut in_use);
            // If `slot` was the last slot, the eviction has moved it into the gap.
            if slot as usize == self.slots.len() {
                slot = oldest;
            }
        }
        slot
    }

    /// Evicts the key that has been idle longest if the map is full, unless the key is in use.
    ///
    /// Checks up to two keys for each new key, so the map can shrink again when many keys are no longer in use.
    fn make_room(&mut self, now: Nanos, mut in_use: impl FnMut(&K) -> bool) {
        for _ in 0..2 {
            if self.slots.len() < self.most.get() as usize {
                return;
            }
            self.evict_unless_in_use(now, &mut in_use);
        }
        self.beyond += usize::from(self.slots.len() >= self.most.get() as usize);
    }

    /// If the oldest key is in use, makes it the newest; otherwise evicts it.
    fn evict_unless_in_use(&mut self, now: Nanos, in_use: impl FnOnce(&K) -> bool) {
        let slot = self.oldest;
        if in_use(&self.slots[slot as usize].key) {
            self.renew(slot, now);
        } else {
            self.evict(slot);
        }
    }

    fn renew(&mut self, slot: u32, now: Nanos) {
        self.unlink(slot);
        self.link_newest(slot, now);
    }

    /// Removes a slot and moves its key to `evicted`, to be dropped later.
    fn evict(&mut self, slot: u32) {
        self.unlink(slot);
        let hash = self.slots[slot as usize].hash;
        self.erase(hash, slot);
        let removed = self.slots.swap_remove(slot as usize);
        let moved = self.slots.len() as u32;
        if moved != slot {
            self.renumber(moved, slot);
        }
        shrink(&mut self.slots, &mut self.index, |slot| slot.hash);
        self.evicted.push(removed.key);
    }

    fn erase(&mut self, hash: u64, slot: u32) {
        // Invariant 1: the entry exists.
        if let Ok(entry) = self.index.find_entry(hash, |&other| other == slot) {
            entry.remove();
        }
    }

    /// Updates all references to the last slot, which has moved into a gap.
    fn renumber(&mut self, from: u32, to: u32) {
        let Slot { hash, older, newer, .. } = self.slots[to as usize];
        if let Some(entry) = self.index.find_mut(hash, |&other| other == from) {
            *entry = to;
        }
        self.set_newer(older, to);
        self.set_older(newer, to);
    }

    fn unlink(&mut self, slot: u32) {
        let Slot { older, newer, .. } = self.slots[slot as usize];
        self.set_newer(older, newer);
        self.set_older(newer, older);
    }

    fn link_newest(&mut self, slot: u32, now: Nanos) {
        let older = self.newest;
        let entry = &mut self.slots[slot as usize];
        (entry.touched, entry.older, entry.newer) = (now, older, NONE);
        self.set_newer(older, slot);
        self.newest = slot;
    }

    /// Sets the slot after `slot` in the list; if `slot` is `NONE`, sets the first slot.
    fn set_newer(&mut self, slot: u32, newer: u32) {
        match slot {
            NONE => self.oldest = newer,
            _ => self.slots[slot as usize].newer = newer,
        }
    }

    /// Sets the slot before `slot` in the list; if `slot` is `NONE`, sets the last slot.
    fn set_older(&mut self, slot: u32, older: u32) {
        match slot {
            NONE => self.newest = older,
            _ => self.slots[slot as usize].older = older,
        }
    }

    /// Checks the invariants.
    pub(crate) fn check(&self) -> Result<(), String> {
        let count = self.slots.len();
        if self.index.len() != count {
            return Err(format!("invariant 1: {} entries for {count} slots", self.index.len()));
        }
        let (mut slot, mut older, mut seen) = (self.oldest, NONE, 0);
        while slot != NONE && seen <= count {
            let Some(entry) = self.slots.get(slot as usize) else {
                return Err(format!("invariant 2: slot {slot} of {count} is linked"));
            };
            if entry.older != older {
                return Err(format!(
                    "invariant 2: slot {slot} follows {older}, but links back to {}",
                    entry.older
                ));
            }
            if self.index.find(entry.hash, |&other| other == slot).is_none() {
                return Err(format!("invariant 1: slot {slot} is not under its hash"));
            }
            (older, slot, seen) = (slot, entry.newer, seen + 1);
        }
        if seen != count || self.newest != older {
            return Err(format!("invariant 2: the list holds {seen} of {count} slots, the last is {older}"));
        }
        if count > self.beyond + self.most.get() as usize {
            return Err(format!("invariant 3: {count} slots, at most {} and {}", self.most, self.beyond));
        }
        if self.idle < Nanos::from_duration(self.longest_wait).get() {
            return Err(format!(
                "invariant 4: keys are kept for {} ns, less than the longest wait of {:?}",
                self.idle, self.longest_wait
            ));
        }
        Ok(())
    }
}

/// The slot number that means no slot, at either end of the list.
const NONE: u32 = u32::MAX;

/// Limits the memory to about 50 MB besides the keys; more keys are unlikely to be failing at the same time.
const DEFAULT_MAX_KEYS: NonZeroU32 = NonZeroU32::new(1 << 20).unwrap();

/// By default, failures are kept for at least this time, even after short waits, because the next attempt may take much longer than the waits.
const SHORTEST_DEFAULT_REST: Duration = Duration::from_secs(600);
