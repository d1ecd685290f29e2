//! PURE. A vector that stores each new item under the lowest free number.
//!
//! Free numbers are not stored. A bit for each branch of the vector states whether a number of the branch is free, and the branch and its leaves
//! count their items. So the memory of a slab depends on the leaves that have an item, and not on the number of items that it once had (0060).
//!
//! # Invariants
//! 1. `end` is the highest number that has an item, plus one; 0 if the slab is empty.
//! 2. The bit of a branch is set if, and only if, a number below `end` in this branch has no item. No other bit is set.

use super::vector::PER_BRANCH;
use super::{Items, Vector};

/// A vector that assigns a number to each item; see the [module](self).
#[derive(Clone)]
pub(crate) struct Slab<T> {
    items: Vector<T>,
    /// One bit for each branch of `items`; missing words have no bit set.
    open: Vec<u64>,
    end: u32,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { items: Vector::new(), open: Vec::new(), end: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.items.get(number)
    }

    /// Prefetches what a change of an item reads; see [`Vector::prefetch_to_change`].
    #[inline]
    pub(crate) fn prefetch_to_change(&self, number: u32) {
        self.items.prefetch_to_change(number);
    }

    /// Returns the items with their numbers, in ascending order.
    pub(crate) fn iter(&self) -> Items<'_, T> {
        self.items.iter()
    }

    pub(crate) fn items(&self) -> &Vector<T> {
        &self.items
    }

    /// Like [`Vector::free`].
    pub(crate) fn free(&mut self, most: usize) -> usize {
        self.items.free(most)
    }

    /// Returns the memory of the slab in bytes, without the memory to which its items point.
    pub(crate) fn bytes(&self) -> usize {
        self.items.bytes() + self.open.capacity() * size_of::<u64>()
    }

    /// Returns the lowest number below `end` that has no item. O(end / 2¹⁷) to find the branch.
    fn lowest_free(&self) -> Option<u32> {
        if self.items.len() == self.end as usize {
            return None;
        }
        let word = self.open.iter().position(|word| *word != 0)?;
        let branch = word * WORD + self.open[word].trailing_zeros() as usize;
        Some(self.items.lowest_free(branch))
    }

    /// Sets or clears the bit of a branch, as invariant 2 requires.
    fn update_open(&mut self, branch: usize) {
        let numbers = (self.end as usize).saturating_sub(branch * PER_BRANCH).min(PER_BRANCH);
        let (word, bit) = (branch / WORD, 1 << (branch % WORD));
        let is_open = self.items.used(branch) < numbers;
        if is_open && self.open.len() <= word {
            self.open.resize(word + 1, 0);
        }
        if let Some(word) = self.open.get_mut(word) {
            *word = if is_open { *word | bit } else { *word & !bit };
        }
    }
}

/// The number of bits in a word of `open`.
const WORD: usize = u64::BITS as usize;

impl<T: Clone> Slab<T> {
    /// Inserts an item. Returns its number.
    ///
    /// # Panics
    /// Panics if all 2³² − 1 numbers are in use.
    pub(crate) fn insert(&mut self, item: T) -> u32 {
        let free = self.lowest_free();
        let number = free.unwrap_or_else(|| {
            self.end = self.end.checked_add(1).expect("less than 2³² items");
            self.end - 1
        });
        self.items.set(number, item);
        // A number at the end leaves no number free.
        if free.is_some() {
            self.update_open(number as usize / PER_BRANCH);
        }
        number
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.items.get_mut(number)
    }

    /// Removes an item, and makes its number free again.
    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let removed = self.items.remove(number)?;
        if number + 1 == self.end {
            self.end = self.items.end();
            let branches = (self.end as usize).div_ceil(PER_BRANCH);
            self.open.truncate(branches.div_ceil(WORD));
            if let (Some(last), used @ 1..) = (self.open.get_mut(branches / WORD), branches % WORD) {
                *last &= (1 << used) - 1;
            }
            self.update_open(branches.saturating_sub(1));
        } else {
            self.update_open(number as usize / PER_BRANCH);
        }
        Some(removed)
    }

    /// Checks the invariants.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.items.check()?;
        if self.end != self.items.end() {
            return Err(format!("slab invariant 1: the end is {}, and not {}", self.end, self.items.end()));
        }
        for branch in 0..self.open.len().max(self.end as usize / PER_BRANCH / WORD + 1) * WORD {
            let numbers = (self.end as usize).saturating_sub(branch * PER_BRANCH).min(PER_BRANCH);
            let is_open = self.open.get(branch / WORD).is_some_and(|word| word >> (branch % WORD) & 1 == 1);
            if is_open != (self.items.used(branch) < numbers) {
                return Err(format!("slab invariant 2: the bit of branch {branch} is {is_open}"));
            }
        }
        Ok(())
    }
}
