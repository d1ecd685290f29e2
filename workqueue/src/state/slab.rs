//! PURE. The entries of all keys in one allocation, addressed by slot.

use crate::state::entry::{Entry, Flags, NIL, State};

/// All entries, with the vacant ones in a free list.
///
/// # Invariants
/// 1. A slot is in the free list exactly when it is `Vacant`.
/// 2. `live` is the number of slots that are not vacant.
#[derive(Debug)]
pub struct Slab<K> {
    entries: Vec<Entry<K>>,
    free: u32,
    live: usize,
}

impl<K> Slab<K> {
    pub(crate) fn new() -> Self {
        Self { entries: Vec::new(), free: NIL, live: 0 }
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
            self.live += 1;
            let entry = &mut self.entries[slot as usize];
            self.free = entry.links[0];
            entry.key = Some(key);
            entry.hash = hash;
            entry.state = State::Leased;
            return slot;
        }
        let slot = self.entries.len();
        assert!(slot < NIL as usize, "a queue holds at most 2^32 - 1 keys");
        self.live += 1;
        self.entries.push(Entry {
            key: Some(key),
            at: flyball_sync::Nanos::ZERO,
            hash,
            generation: 0,
            state: State::Leased,
            flags: Flags::default(),
            links: [NIL, NIL],
        });
        slot as u32
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
        &self.entries[slot as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut Entry<K> {
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
        Ok(())
    }
}
