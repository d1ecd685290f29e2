//! SHELL. The memory that a store uses.

use std::hash::Hash;

use crate::{MemoryUsage, RetainedSnapshots, Store};

impl<K, V> Store<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Returns how many earlier states are still held, and how old the oldest one is. They are held by snapshots, by relists in progress, and by
    /// subscriptions that have not delivered all objects of the snapshot with which they, or a resync, began. O(held states).
    #[must_use]
    pub fn retained_snapshots(&self) -> RetainedSnapshots {
        let (states, oldest, now) = self
            .inner
            .held
            .oldest(|| self.inner.published.with_table(|table| (table.version, table.revision)));
        RetainedSnapshots {
            states,
            oldest_version: oldest.map(|(version, _)| version),
            changes_behind: oldest.map_or(0, |(_, revision)| now.saturating_sub(revision)),
        }
    }

    /// Returns the memory usage of the current state; `weigh` returns the size of an object in bytes. O(objects). Uses a snapshot, so readers and
    /// writers do not wait.
    pub fn memory_usage(&self, weigh: impl Fn(&K, &V) -> usize) -> MemoryUsage {
        self.snapshot().memory_usage(weigh)
    }
}
