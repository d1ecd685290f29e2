//! PURE. What a state of a store takes.

use crate::Snapshot;

/// The memory of one state of a store, in bytes; returned by [`Store::memory_usage`](crate::Store::memory_usage) and [`Snapshot::memory_usage`].
///
/// What allocators add is not counted, nor what keys and index values own beyond themselves, as a `String` does. Parts that other states share
/// are counted in each of them.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Index, IndexMemoryUsage, MemoryUsage, Schema, Store, Version};
///
/// static BY_LENGTH: Index<String, usize> = Index::new("length", |word| word.len());
///
/// let mut store = Store::builder(Schema::new(String::clone, |_| Version::ZERO)).index(&BY_LENGTH).build()?;
/// store.replace(["one", "two", "three"].map(String::from), Version::new(1));
///
/// let usage: MemoryUsage = store.memory_usage(|_, word| size_of::<String>() + word.capacity());
/// assert_eq!(usage.objects, 3);
/// assert!(usage.total() > usage.object_bytes);
/// let by_length: &IndexMemoryUsage = &usage.indexes[0];
/// assert_eq!((by_length.name, by_length.values), ("length", 2));
/// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryUsage {
    /// The number of objects.
    pub objects: usize,
    /// What the weigher said of all of them.
    pub object_bytes: usize,
    /// What the store keeps for them besides indexes: the way from keys to objects, keys and versions.
    pub store_bytes: usize,
    /// What each index takes.
    pub indexes: Vec<IndexMemoryUsage>,
}

/// The memory of one index; see [`MemoryUsage`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexMemoryUsage {
    /// The name of the index.
    pub name: &'static str,
    /// The number of values in use.
    pub values: usize,
    /// What it takes, in bytes.
    pub bytes: usize,
}

impl MemoryUsage {
    /// Everything together, in bytes.
    #[must_use]
    pub fn total(&self) -> usize {
        self.object_bytes + self.store_bytes + self.indexes.iter().map(|index| index.bytes).sum::<usize>()
    }
}

impl<K, V> Snapshot<K, V> {
    /// The memory of this state; `weigh` returns how many bytes an object takes. O(objects).
    pub fn memory_usage(&self, weigh: impl Fn(&K, &V) -> usize) -> MemoryUsage {
        let indexes = self.columns().map(|(name, column)| IndexMemoryUsage {
            name,
            values: column.len(),
            bytes: column.bytes(),
        });
        MemoryUsage {
            objects: self.len(),
            object_bytes: self.iter().map(|(key, object)| weigh(key, object)).sum(),
            store_bytes: self.table.bytes(),
            indexes: indexes.collect(),
        }
    }
}
