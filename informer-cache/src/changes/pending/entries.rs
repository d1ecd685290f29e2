//! PURE. A hash table that grows and shrinks in small steps.
//!
//! A hash table moves all its entries when it grows, so one insertion under the lock of a subscription may take as long as a million others. This one uses
//! linear hashing, like [`Hashes`](crate::table::persist::Hashes): it consists of small hash tables, the parts. Their number grows and shrinks with the
//! number of entries, and a change splits one part, joins two, or does neither. A table of few entries has one part.
//!
//! # Invariants
//! 1. An entry is in the part that its hash chooses.
//! 2. `len` is the number of entries; [`SPARSE`] × (parts − 1) ≤ `len` ≤ [`FULL`] × parts.

use hashbrown::HashTable;

/// A part is added if the parts hold more than this number of entries on average. A hash table with this capacity has no vacant places.
const FULL: usize = 1792;
/// A part is removed if the parts will hold fewer than this number of entries on average after that.
const SPARSE: usize = FULL / 4;
/// The capacity up to which a part keeps its memory although it has few entries.
const KEPT: usize = 512;

/// An item of the table.
pub(super) trait Hashed {
    /// Returns the hash of the item, which never changes.
    fn hash(&self) -> u64;
}

/// A hash table; see the [module](self).
pub(super) struct Entries<T> {
    /// The part at position 0. It is not in a list, so that a table of few entries needs only one allocation.
    first: HashTable<T>,
    /// The parts from position 1 on.
    more: Vec<HashTable<T>>,
    len: usize,
}

/// Returns the number by which a hash chooses a part. A part itself uses the lowest and the highest bits of the hash.
fn choice(hash: u64) -> usize {
    (hash >> 24) as u32 as usize
}

impl<T: Hashed> Entries<T> {
    pub(super) const fn new() -> Self {
        Self { first: HashTable::new(), more: Vec::new(), len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the position of the part for this hash.
    #[inline]
    fn place(&self, hash: u64) -> usize {
        if self.more.is_empty() {
            return 0;
        }
        let parts = 1 + self.more.len();
        let bits = parts.next_power_of_two();
        let at = choice(hash) & (bits - 1);
        // If the part does not exist yet, its entries are still in the part from which it will be split.
        if at < parts { at } else { at & (bits / 2 - 1) }
    }

    #[inline]
    fn part(&self, at: usize) -> &HashTable<T> {
        if at == 0 { &self.first } else { &self.more[at - 1] }
    }

    #[inline]
    fn part_mut(&mut self, at: usize) -> &mut HashTable<T> {
        if at == 0 { &mut self.first } else { &mut self.more[at - 1] }
    }

    /// Returns the item with this hash that satisfies `eq`.
    #[inline]
    pub(super) fn find(&self, hash: u64, eq: impl FnMut(&T) -> bool) -> Option<&T> {
        self.part(self.place(hash)).find(hash, eq)
    }

    /// Like [`find`](Self::find), to change the item. Its hash must stay the same.
    #[inline]
    pub(super) fn find_mut(&mut self, hash: u64, eq: impl FnMut(&T) -> bool) -> Option<&mut T> {
        self.part_mut(self.place(hash)).find_mut(hash, eq)
    }

    #[inline]
    pub(super) fn insert(&mut self, item: T) {
        let hash = item.hash();
        self.part_mut(self.place(hash)).insert_unique(hash, item, T::hash);
        self.len += 1;
        if self.len > FULL * (1 + self.more.len()) {
            self.split();
        }
    }

    /// Removes the item with this hash that satisfies `eq`. Frees memory that is no longer needed.
    #[inline]
    pub(super) fn remove(&mut self, hash: u64, eq: impl FnMut(&T) -> bool) -> Option<T> {
        let part = self.part_mut(self.place(hash));
        let (item, _) = part.find_entry(hash, eq).ok()?.remove();
        if part.capacity() > KEPT && part.len() < part.capacity() / 8 {
            part.shrink_to(2 * part.len(), T::hash);
        }
        self.len -= 1;
        if self.len < SPARSE * self.more.len() {
            self.join();
        }
        Some(item)
    }

    /// Adds a part, and moves to it the items of one earlier part that belong there now.
    fn split(&mut self) {
        let new = 1 + self.more.len();
        let bits = (new + 1).next_power_of_two();
        let from = new & (bits / 2 - 1);
        let old = std::mem::take(self.part_mut(from));
        let half = || HashTable::with_capacity(old.len() / 2);
        let (mut stay, mut go) = (half(), half());
        for item in old {
            let to = if choice(item.hash()) & (bits - 1) == new { &mut go } else { &mut stay };
            to.insert_unique(item.hash(), item, T::hash);
        }
        *self.part_mut(from) = stay;
        self.more.push(go);
    }

    /// Removes the last part, and moves its items back to the part from which it was split.
    fn join(&mut self) {
        let last = self.more.len();
        let into = last & ((last + 1).next_power_of_two() / 2 - 1);
        for item in self.more.pop().unwrap_or_default() {
            self.part_mut(into).insert_unique(item.hash(), item, T::hash);
        }
    }

    /// Removes all items.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.len = 0;
        self.first.drain().chain(self.more.drain(..).flatten())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.parts().flatten()
    }

    fn parts(&self) -> impl Iterator<Item = &HashTable<T>> {
        std::iter::once(&self.first).chain(&self.more)
    }

    /// Checks the invariants.
    pub(super) fn check(&self) -> Result<(), String> {
        let parts = self.parts().count();
        for (at, part) in self.parts().enumerate() {
            if part.iter().any(|item| self.place(item.hash()) != at) {
                return Err("entries invariant 1: an item in a wrong part".into());
            }
        }
        let len = self.parts().map(HashTable::len).sum::<usize>();
        match len == self.len && (SPARSE * (parts - 1)..=FULL * parts).contains(&len) {
            true => Ok(()),
            false => Err(format!("entries invariant 2: {len} of {} items in {parts} parts", self.len)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;

    use flyball_sync::random::SplitMix64;

    use super::*;

    thread_local! {
        static HASHED: Cell<usize> = const { Cell::new(0) };
    }

    struct Item(u64, u64);

    impl Hashed for Item {
        fn hash(&self) -> u64 {
            HASHED.set(HASHED.get() + 1);
            SplitMix64::new(self.0).next()
        }
    }

    fn hash(key: u64) -> u64 {
        SplitMix64::new(key).next()
    }

    /// Returns the largest number of items that one call of `step` has moved, which is at most the number of calculated hashes.
    fn most_moved(steps: impl Iterator<Item = u64>, mut step: impl FnMut(u64)) -> usize {
        let moved = steps.map(|key| {
            HASHED.set(0);
            step(key);
            HASHED.get()
        });
        moved.max().unwrap_or(0)
    }

    #[test]
    fn a_step_moves_a_bounded_number_of_items() {
        let (many, mut entries) = (200_000, Entries::new());
        let moved = most_moved(0..many, |key| entries.insert(Item(key, key)));
        assert!(moved < 8 * FULL, "an insertion moved {moved} items");
        entries.check().unwrap();
        let mut remove = |key| _ = entries.remove(hash(key), |item: &Item| item.0 == key);
        let moved = most_moved(10..many, &mut remove);
        assert!(moved < 8 * FULL, "a removal moved {moved} items");
        entries.check().unwrap();
        assert_eq!(entries.len(), 10);
        let capacity = entries.parts().map(HashTable::capacity).sum::<usize>();
        assert!(capacity <= 2 * KEPT, "ten items have the memory for {capacity}");
    }

    #[test]
    fn equals_a_map() {
        let (mut entries, mut naive) = (Entries::new(), BTreeMap::new());
        let mut random = SplitMix64::new(7);
        for round in 0..8 {
            for _ in 0..20_000 {
                let (key, value) = (random.next() % 40_000, random.next());
                let is_it = |item: &Item| item.0 == key;
                assert_eq!(entries.find(hash(key), is_it).map(|item| item.1), naive.get(&key).copied());
                // Rounds in which most keys are inserted and rounds in which most are removed take turns.
                if random.next() % 8 >= if round % 2 == 0 { 1 } else { 7 } {
                    match entries.find_mut(hash(key), is_it) {
                        Some(item) => item.1 = value,
                        None => entries.insert(Item(key, value)),
                    }
                    naive.insert(key, value);
                } else {
                    assert_eq!(entries.remove(hash(key), is_it).map(|item| item.1), naive.remove(&key));
                }
            }
            entries.check().unwrap();
            let all: BTreeMap<_, _> = entries.iter().map(|item| (item.0, item.1)).collect();
            assert_eq!((all == naive, entries.len()), (true, naive.len()));
        }
        assert_eq!(entries.drain().count(), naive.len());
        assert_eq!(entries.len(), 0);
    }
}
