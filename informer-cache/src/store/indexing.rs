//! SHELL. Indexes of a running store, and what a store costs.

use std::hash::Hash;

use crate::{AnyIndex, DuplicateIndex, HeldSnapshots, Memory, MissingIndex, Store};

impl<K, V> Store<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Adds an index to the store as it runs.
    ///
    /// Its function is run for every object here, outside every lock, and the index is filled by a few objects at a time: neither readers nor
    /// writers wait longer for it than for that. It is asked only when it is complete, which it is when this returns. O(objects).
    ///
    /// # Errors
    /// When there is an index of this name, or one is being added.
    ///
    /// # Panics
    /// Only as functions of the index and its values do; then it is not added, and nothing else has changed.
    pub fn add_index(&self, index: &impl AnyIndex<V>) -> Result<(), DuplicateIndex> {
        self.inner.add_index(index.define())
    }

    /// Takes an index from the store as it runs. O(1) for everybody else; its memory is freed here, or with the last snapshot that knows it.
    ///
    /// # Errors
    /// When there is no index of this name and kind of values.
    pub fn remove_index(&self, index: &impl AnyIndex<V>) -> Result<(), MissingIndex> {
        self.inner.remove_index(&index.define())
    }

    /// What is still held of earlier states, by snapshots and by stages that were not published yet. O(states held).
    #[must_use]
    pub fn held_snapshots(&self) -> HeldSnapshots {
        self.inner.held_snapshots()
    }

    /// The memory of the present state; `weigh` tells how many bytes an object takes. O(objects), and nobody waits for it.
    pub fn memory(&self, weigh: impl Fn(&K, &V) -> usize) -> Memory {
        self.snapshot().memory(weigh)
    }
}
