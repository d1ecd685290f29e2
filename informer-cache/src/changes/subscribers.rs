//! PURE. The subscriptions of a store: those to all objects in a list, and those to a selection in a map from the hash of the key or index value.
//!
//! So a write finds the selecting subscriptions that it may concern by the key and the index values of its object, and does no work for the others
//! (0061). The structure is persistent: a writer holds a copy while it works, and adding or removing a selecting subscription changes a few nodes.
//!
//! # Invariants
//! 1. `all` has the subscriptions without a selection, in the order in which they were added.
//! 2. Each number of `selecting` is in `by_hash`, with the hash of its selection.
//! 3. `of_values` is the number of subscriptions that select an index value.

use std::sync::Arc;

use crate::changes::buffer::SubscriptionBuffer;
use crate::changes::selection::{Selection, hash_of_value};
use crate::table::persist::{Hashes, Slab};
use crate::table::record::Values;
use crate::table::{KeyWrite, Table};

type Buffer<K, V> = Arc<SubscriptionBuffer<K, V>>;

/// The subscriptions of a store. Shared, so that a writer clones one reference and not the list.
pub(crate) type SubscriptionBuffers<K, V> = Arc<Subscribers<K, V>>;

/// The subscriptions of a store; see the [module](self).
pub(crate) struct Subscribers<K, V> {
    pub(crate) all: Arc<[Buffer<K, V>]>,
    selecting: Slab<Buffer<K, V>>,
    by_hash: Hashes,
    of_values: usize,
}

impl<K, V> Subscribers<K, V> {
    pub(crate) fn new() -> Self {
        Self { all: Arc::new([]), selecting: Slab::new(), by_hash: Hashes::new(), of_values: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty() && self.selecting.is_empty()
    }

    /// Returns whether any subscription has a selection.
    pub(crate) fn has_selecting(&self) -> bool {
        !self.selecting.is_empty()
    }

    /// Returns the subscriptions with a selection whose number is at least `from`, with their numbers.
    pub(crate) fn selecting(&self, from: u32) -> impl Iterator<Item = (u32, &Buffer<K, V>)> {
        self.selecting.items().iter_from(from)
    }

    /// Returns the subscriptions with a selection that are not in `before`, an earlier state. Skips the nodes that both states share.
    pub(crate) fn selecting_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a Buffer<K, V>> {
        let differing = self.selecting.items().differing(Some(before.selecting.items()));
        differing.filter_map(|(_, old, new)| new.filter(|new| old.is_none_or(|old| !Arc::ptr_eq(old, new))))
    }

    /// Returns all subscriptions.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Buffer<K, V>> {
        self.all.iter().chain(self.selecting.iter().map(|(_, buffer)| buffer))
    }

    /// Adds a subscription, and removes detached ones without a selection. Returns what the caller must drop after it has released its locks. O(1) with
    /// a selection, O(subscriptions without a selection) otherwise.
    pub(crate) fn insert(&mut self, buffer: &Buffer<K, V>) -> impl Sized + use<K, V> {
        if let Some(selection) = buffer.selection() {
            let number = self.selecting.insert(buffer.clone());
            self.by_hash.insert(selection.hash(), number);
            self.of_values += usize::from(selection.is_of_value());
            return None;
        }
        let alive = self.all.iter().filter(|buffer| !buffer.is_detached());
        let all = alive.chain([buffer]).cloned().collect();
        Some(std::mem::replace(&mut self.all, all))
    }

    /// Removes a subscription with a selection, if it is there. Returns what the caller must drop after it has released its locks.
    pub(crate) fn remove(&mut self, buffer: &Buffer<K, V>) -> Option<Buffer<K, V>> {
        let selection = buffer.selection()?;
        let is_it = |number| Arc::ptr_eq(self.selecting.get(number)?, buffer).then_some(number);
        let number = self.by_hash.find(selection.hash(), is_it)?;
        self.by_hash.remove(selection.hash(), number);
        self.of_values -= usize::from(selection.is_of_value());
        self.selecting.remove(number)
    }

    /// Removes the detached subscriptions without a selection, and returns them. The caller drops them after it has released its locks.
    pub(crate) fn remove_detached(&mut self) -> Vec<Buffer<K, V>> {
        let (gone, alive): (Vec<_>, Vec<_>) =
            self.all.iter().cloned().partition(|buffer| buffer.is_detached());
        self.all = alive.into();
        gone
    }

    /// Calls `found` with each selecting subscription that a write may concern, once: those whose selection has the hash of the key, of an index value
    /// that the object had in `table`, or of one that it has now. Compares neither keys nor values.
    pub(crate) fn candidates(
        &self,
        write: &KeyWrite<K, V>,
        table: &Table<K, V>,
        numbers: &mut Vec<u32>,
        mut found: impl FnMut(&Buffer<K, V>),
    ) {
        let mut add = |hash| {
            let found: Option<()> = self.by_hash.find(hash, |number| {
                numbers.push(number);
                None
            });
            debug_assert!(found.is_none(), "every number is visited");
        };
        add(write.record.hash());
        if self.of_values > 0 {
            for (at, (column, index)) in table.columns.iter().zip(&table.index_set.indexes).enumerate() {
                column.values_of(write.row).for_each(|value| add(hash_of_value(index, value)));
                match write.values.get(at) {
                    Some(Values::Known(group)) => {
                        column.group(*group).iter().for_each(|group| add(hash_of_value(index, &group.value)));
                    }
                    values => {
                        let values = values.map_or(&[][..], Values::as_slice);
                        values.iter().for_each(|new| add(hash_of_value(index, &new.value)));
                    }
                }
            }
        }
        // The object may keep a value, and different values may have the same hash.
        numbers.sort_unstable();
        numbers.dedup();
        numbers.drain(..).filter_map(|number| self.selecting.get(number)).for_each(&mut found);
    }

    /// Checks the invariants.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.selecting.check()?;
        let selection = |number| self.selecting.get(number)?.selection().map(Selection::hash);
        self.by_hash.check(selection)?;
        let of_values = self.selecting.iter().filter_map(|(_, buffer)| buffer.selection());
        let of_values = of_values.filter(|selection| selection.is_of_value()).count();
        match self.all.iter().all(|buffer| buffer.selection().is_none()) && of_values == self.of_values {
            true => Ok(()),
            false => Err("subscribers invariants 1 and 3".into()),
        }
    }
}

// Not derived, because a derive would require `K: Clone` and `V: Clone`.
impl<K, V> Clone for Subscribers<K, V> {
    fn clone(&self) -> Self {
        let Self { all, selecting, by_hash, of_values } = self;
        let (all, selecting, by_hash) = (all.clone(), selecting.clone(), by_hash.clone());
        Self { all, selecting, by_hash, of_values: *of_values }
    }
}
