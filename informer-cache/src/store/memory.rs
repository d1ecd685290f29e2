//! PURE. Computes the memory usage of one state of a store.

use crate::Snapshot;

/// The memory usage of one state of a store, in bytes, as returned by [`Store::memory_usage`](crate::Store::memory_usage) and
/// [`Snapshot::memory_usage`].
///
/// The numbers include neither the overhead of the allocator nor the heap memory that keys and index values own, such as the buffer of a `String`.
/// Memory that several states share is counted in each of them.
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
    /// The sum of the sizes that the caller's `weigh` function returned.
    pub object_bytes: usize,
    /// The memory of the store without its objects and indexes: the hash table of the keys, the keys, and the versions.
    pub store_bytes: usize,
    /// The memory usage of each index.
    pub indexes: Vec<IndexMemoryUsage>,
}

/// The memory usage of one index; see [`MemoryUsage`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexMemoryUsage {
    /// The name of the index.
    pub name: &'static str,
    /// The number of distinct values that at least one object has.
    pub values: usize,
    /// The memory of the index, in bytes.
    pub bytes: usize,
}

impl MemoryUsage {
    /// Returns the memory of the objects, the store and all indexes, in bytes.
    #[must_use]
    pub fn total(&self) -> usize {
        self.object_bytes + self.store_bytes + self.indexes.iter().map(|index| index.bytes).sum::<usize>()
    }
}

impl<K, V> Snapshot<K, V> {
    /// Returns the memory usage of this state; `weigh` returns the size of an object in bytes. O(objects).
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
