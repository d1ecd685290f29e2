//! PURE. A vector that stores each new item under the lowest free number.
//!
//! # Invariants
//! 1. Each number below `end` either has an item or is in `free`. No other number has an item or is in `free`.
//! 2. In an empty slab, `end` is 0, so the next item gets the number 0.

use super::{Items, Sorted, Vector};

/// A vector that assigns a number to each item; see the [module](self).
#[derive(Clone)]
pub(crate) struct Slab<T> {
    items: Vector<T>,
    free: Sorted,
    end: u32,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { items: Vector::new(), free: Sorted::new(), end: 0 }
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

    /// Returns the highest number that was assigned since the slab was last empty, plus one. Returns 0 for an empty slab.
    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    /// Returns the memory of the slab in bytes, without the memory to which its items point.
    pub(crate) fn bytes(&self) -> usize {
        self.items.bytes() + self.free.bytes()
    }
}

impl<T: Clone> Slab<T> {
    /// Inserts an item. Returns its number.
    ///
    /// # Panics
    /// Panics if all 2³² − 1 numbers are in use.
    pub(crate) fn insert(&mut self, item: T) -> u32 {
        let number = self.free.remove_at(0).unwrap_or_else(|| {
            self.end = self.end.checked_add(1).expect("less than 2³² items");
            self.end - 1
        });
        self.items.set(number, item);
        number
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.items.get_mut(number)
    }

    /// Removes an item, and makes its number free again.
    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let removed = self.items.remove(number)?;
        if self.items.is_empty() {
            (self.free, self.end) = (Sorted::new(), 0);
        } else {
            self.free.insert(number);
        }
        Some(removed)
    }

    /// Checks the invariants.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.items.check()?;
        self.free.check()?;
        let free: Vec<_> = self.free.iter().collect();
        if !free.is_sorted_by(|a, b| a < b) || free.iter().any(|number| self.items.get(*number).is_some()) {
            return Err("slab invariant 1: a number that is free and taken, or free twice".into());
        }
        if self.items.len() + free.len() != self.end as usize || self.is_empty() && self.end > 0 {
            return Err(format!(
                "slab invariants 1 and 2: {} items, {} free of {}",
                self.len(),
                free.len(),
                self.end
            ));
        }
        match free.last().is_none_or(|last| *last < self.end) {
            true => Ok(()),
            false => Err("slab invariant 1: a free number beyond the end".into()),
        }
    }
}
