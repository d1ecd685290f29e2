//! PURE. The entries of all keys in one allocation, addressed by slot, and the lists and maps of slots.

use flyball_sync::panics::drop_each;
use flyball_sync::{Nanos, steps};
use hashbrown::HashTable;

/// The value of a link that refers to no slot, at the end of a list.
pub(crate) const NIL: u32 = u32::MAX;

/// The entry of a key, from its first add until it leaves the queue.
///
/// Besides the key, an entry takes 24 bytes (up to 8 more for a key type without a niche, such as an integer). Data that only few keys have, namely a
/// wait while leased and the limit of a debounced wait, is in side tables of `QueueState`; in the entry, this data would cost 16 bytes for every key.
#[derive(Debug)]
pub(crate) struct Entry<K> {
    /// `None` exactly when vacant.
    pub(crate) key: Option<K>,
    /// If waiting, the deadline. If Ready or leased, the time at which that state began, according to the last reading of the clock. Otherwise
    /// meaningless.
    pub(crate) at: Nanos,
    /// The hash of the key. The add that created the entry computed it, so that the queue need not hash the key again when a lease ends. (A limiter
    /// that forgets or counts failures does hash the key.)
    pub(crate) hash: u32,
    /// Incremented each time the slot is vacated, so that a stale lease id has no effect.
    pub(crate) generation: u16,
    pub(crate) state: State,
    pub(crate) flags: Flags,
    /// If Ready or leased, the neighbours in the list. If waiting, the position in the heap. If vacant, the next free slot.
    pub(crate) links: [u32; 2],
}

/// The state of an entry, which also determines the meaning of its links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The entry is in the free list, and not in the key table.
    Vacant,
    /// The entry is in a heap of deadlines.
    Waiting,
    /// The entry is in a line of the order.
    Ready,
    /// The entry is in a list of leases.
    Leased,
    /// Like `Leased`, but the key becomes Ready when the lease ends.
    LeasedDirty,
    /// Like `Leased`, but the key becomes Waiting when the lease ends. The wait is in `QueueState::postponed`.
    LeasedWaiting,
}

impl State {
    #[inline]
    pub(crate) fn is_leased(self) -> bool {
        matches!(self, Self::Leased | Self::LeasedDirty | Self::LeasedWaiting)
    }
}

/// Flags that are set for only a few entries. The first two describe a wait, the others a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    /// The wait is a backoff.
    pub(crate) const BACKOFF: Self = Self(1);
    /// The wait has a limit, beyond which no add moves its deadline. The limit is in `QueueState::limits`.
    pub(crate) const LIMITED: Self = Self(2);
    /// The lease was detached: it has no `Lease` guard, and a caller ends it by passing the key.
    pub(crate) const DETACHED: Self = Self(4);
    /// The lease has been reported as overdue.
    pub(crate) const REPORTED: Self = Self(8);

    #[inline]
    pub(crate) fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }

    #[inline]
    pub(crate) fn set(&mut self, flag: Self, on: bool) {
        if on {
            self.0 |= flag.0;
        } else {
            self.0 &= !flag.0;
        }
    }
}

/// The number of slots that an empty slab keeps in any case.
pub(crate) const KEPT: usize = 1024;

/// All entries, with the vacant ones in a free list.
///
/// # Invariants
/// 1. A slot is in the free list exactly when it is `Vacant`.
/// 2. `live` is the number of slots that are not vacant.
/// 3. `peak` is the largest number of live slots since the slab was last empty while it had more than [`KEPT`] slots.
#[derive(Debug)]
pub struct Slab<K> {
    entries: Vec<Entry<K>>,
    free: u32,
    live: usize,
    peak: usize,
    /// The first generation of each slot. It changes when the memory is replaced, so that a stale lease id has no effect even then.
    first_generation: u16,
}

/// Drops each key by itself: two that panic would otherwise abort the process.
impl<K> Drop for Slab<K> {
    fn drop(&mut self) {
        drop_each(std::mem::take(&mut self.entries).into_iter());
    }
}

impl<K> Slab<K> {
    pub(crate) fn new() -> Self {
        Self { entries: Vec::new(), free: NIL, live: 0, peak: 0, first_generation: 0 }
    }

    /// Returns the number of keys.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// Stores `key` in a slot, and returns the slot, which is not linked. The caller must set the state of the slot before any other operation.
    ///
    /// # Panics
    /// Panics if the slab holds 2³²−1 keys already.
    #[inline]
    pub(crate) fn insert(&mut self, key: K, hash: u32) -> u32 {
        let slot = self.free;
        if slot != NIL {
            let entry = &mut self.entries[slot as usize];
            self.free = entry.links[0];
            entry.key = Some(key);
            entry.hash = hash;
            entry.state = State::Leased;
            self.count_live();
            return slot;
        }
        let slot = self.entries.len();
        assert!(slot < NIL as usize, "a queue holds at most 2^32 - 1 keys");
        self.entries.push(Entry {
            key: Some(key),
            at: Nanos::ZERO,
            hash,
            generation: self.first_generation,
            state: State::Leased,
            flags: Flags::default(),
            links: [NIL, NIL],
        });
        self.count_live();
        slot as u32
    }

    #[inline]
    fn count_live(&mut self) {
        self.live += 1;
        if self.live > self.peak {
            self.peak = self.live;
        }
    }

    /// Returns whether the slab has more slots than it keeps in any case.
    #[inline]
    pub(crate) fn is_large(&self) -> bool {
        self.entries.len() > KEPT
    }

    /// Called when the slab has become empty. Returns whether it has room for more than four times as many keys as it held since it was last empty.
    pub(crate) fn is_oversized(&mut self) -> bool {
        let peak = std::mem::take(&mut self.peak);
        self.is_large() && self.entries.capacity() > peak.saturating_mul(4)
    }

    /// Moves the memory out of an empty slab.
    pub(crate) fn take_memory(&mut self) -> Self {
        let mut empty = Self::new();
        empty.first_generation = self.first_generation.wrapping_add(1);
        std::mem::replace(self, empty)
    }

    /// Vacates a slot that is no longer linked, and returns its key, which the caller must drop outside every lock.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) -> Option<K> {
        let entry = &mut self.entries[slot as usize];
        let key = entry.key.take();
        entry.state = State::Vacant;
        entry.flags = Flags::default();
        entry.links[0] = self.free;
        entry.generation = entry.generation.wrapping_add(1);
        self.free = slot;
        self.live -= 1;
        key
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> &Entry<K> {
        steps::count();
        &self.entries[slot as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut Entry<K> {
        steps::count();
        &mut self.entries[slot as usize]
    }

    /// Returns the live entries with their slots. O(slots).
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Entry<K>)> {
        let slots = self.entries.iter().enumerate().map(|(slot, entry)| (slot as u32, entry));
        slots.filter(|(_, entry)| entry.state != State::Vacant)
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let mut vacant = 0;
        let mut slot = self.free;
        while slot != NIL {
            let entry = self.get(slot);
            if entry.state != State::Vacant || entry.key.is_some() {
                return Err(format!("slab 1: slot {slot} is free but {:?}", entry.state));
            }
            vacant += 1;
            if vacant > self.entries.len() {
                return Err("slab 1: the free list has a cycle".into());
            }
            slot = entry.links[0];
        }
        if self.iter().any(|(_, entry)| entry.key.is_none()) {
            return Err("slab 1: a live slot without a key".into());
        }
        let live = self.iter().count();
        if live != self.live || live + vacant != self.entries.len() {
            return Err(format!("slab 2: {live} live and {vacant} free of {}", self.entries.len()));
        }
        if self.peak < live {
            return Err(format!("slab 3: {live} live, {} at most", self.peak));
        }
        Ok(())
    }
}

/// A list of slots in the order in which they were pushed. Removing a slot from the middle is O(1).
///
/// # Invariants
/// 1. The second link of a slot leads to the next slot, the first link to the previous one. From `head` the second links lead through `len` slots to
///    `tail`, and the first links lead back through the same slots.
#[derive(Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
    len: usize,
}

impl Default for List {
    fn default() -> Self {
        Self { head: NIL, tail: NIL, len: 0 }
    }
}

impl List {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<u32> {
        (self.head != NIL).then_some(self.head)
    }

    #[inline]
    pub(crate) fn push<K>(&mut self, slab: &mut Slab<K>, slot: u32) {
        slab.get_mut(slot).links = [self.tail, NIL];
        match self.tail {
            NIL => self.head = slot,
            tail => slab.get_mut(tail).links[1] = slot,
        }
        self.tail = slot;
        self.len += 1;
    }

    #[inline]
    pub(crate) fn unlink<K>(&mut self, slab: &mut Slab<K>, slot: u32) {
        let [prev, next] = slab.get(slot).links;
        match prev {
            NIL => self.head = next,
            prev => slab.get_mut(prev).links[1] = next,
        }
        match next {
            NIL => self.tail = prev,
            next => slab.get_mut(next).links[0] = prev,
        }
        self.len -= 1;
    }

    /// Returns all slots, from head to tail. If the list is corrupt, the iteration ends early.
    pub(crate) fn iter<'a, K>(&self, slab: &'a Slab<K>) -> impl Iterator<Item = u32> + use<'a, K> {
        let mut slot = self.head;
        let mut left = self.len + 1;
        std::iter::from_fn(move || {
            let here = slot;
            left = left.checked_sub(1)?;
            (here != NIL).then(|| {
                slot = slab.get(here).links[1];
                here
            })
        })
    }

    pub(crate) fn check<K>(&self, slab: &Slab<K>) -> Result<(), String> {
        let mut before = NIL;
        let mut count = 0;
        for slot in self.iter(slab) {
            if slab.get(slot).links[0] != before {
                return Err(format!("list 1: slot {slot} has a wrong back link"));
            }
            before = slot;
            count += 1;
        }
        if count != self.len || before != self.tail {
            return Err(format!("list 1: {count} of {} slots are linked", self.len));
        }
        Ok(())
    }
}

/// Maps some of the slots to a value. The map does not free memory when values are removed, so that repeated inserts and removals do not allocate.
#[derive(Debug)]
pub(crate) struct SparseMap<V> {
    values: HashTable<(u32, V)>,
}

impl<V> Default for SparseMap<V> {
    fn default() -> Self {
        Self { values: HashTable::new() }
    }
}

impl<V: Copy> SparseMap<V> {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn get(&self, slot: u32) -> Option<V> {
        self.values.find(spread(slot), |(own, _)| *own == slot).map(|(_, value)| *value)
    }

    pub(crate) fn set(&mut self, slot: u32, value: V) {
        match self.values.find_mut(spread(slot), |(own, _)| *own == slot) {
            Some((_, old)) => *old = value,
            None => {
                self.values.insert_unique(spread(slot), (slot, value), |(slot, _)| spread(*slot));
            }
        }
    }

    pub(crate) fn take(&mut self, slot: u32) -> Option<V> {
        let found = self.values.find_entry(spread(slot), |(own, _)| *own == slot).ok()?;
        Some(found.remove().0.1)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, V)> {
        self.values.iter().copied()
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = (u32, &mut V)> {
        self.values.iter_mut().map(|(slot, value)| (*slot, value))
    }
}

/// Reduces a 64-bit hash to 32 bits, which depend on all of the 64 bits.
#[inline]
pub(crate) fn fold(hash: u64) -> u32 {
    (hash ^ (hash >> 32)) as u32
}

/// Spreads a 32-bit hash over 64 bits for the hash table, which takes the bucket from the low bits and a tag from the high bits. The factor is odd,
/// so the low 32 bits of the products of different hashes are different. This is Fibonacci hashing (Knuth 1973, 6.4).
#[inline]
pub(crate) fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
