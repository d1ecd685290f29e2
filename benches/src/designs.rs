//! Designs of the store's data structure behind one trait. Each is complete enough to be measured.
//!
//! All store the same data: objects by key, two indexes with one value per object, and a `Clone` that takes a
//! snapshot. Data that no snapshot shares is changed in place. The `store_designs` program in `benches/peers/rust`
//! measures them.
//!
//! The designs omit parts of a store that would be the same in all of them: versions, index functions that fail or
//! return several values, transactions, the changes of a relist. User code runs under the lock.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;

pub mod btree;
pub mod grouped;
pub mod rows;
pub mod shards;
pub mod trie;

/// The number of indexes.
pub const INDEXES: usize = 2;

/// An object.
#[derive(Debug)]
pub struct Pod {
    /// Thirty bytes.
    pub key: Arc<str>,
    /// Changes with every update.
    pub version: u64,
    /// The index values: one for each index.
    pub values: [Arc<str>; INDEXES],
}

/// An object and the hash of its key. The hash is computed while no lock is held.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The hash of the key.
    pub hash: u64,
    /// The object.
    pub pod: Arc<Pod>,
}

impl Entry {
    /// Hashes the key.
    #[must_use]
    pub fn new(pod: Arc<Pod>) -> Self {
        Self { hash: hash(&pod.key), pod }
    }
}

/// The hash of a key or an index value.
#[must_use]
pub fn hash(text: &str) -> u64 {
    FixedState::with_seed(1).hash_one(text)
}

/// A store's data structure. `clone` takes a snapshot, which is cheap, immutable and `Send`.
pub trait Design: Clone + Default + Send + Sync {
    /// The replaced object, which the caller drops outside of the lock.
    type Old: Send;

    /// Adds or replaces the object of a key.
    fn upsert(&mut self, new: Entry) -> Option<Self::Old>;

    /// Removes the object of a key.
    fn remove(&mut self, hash: u64, key: &str) -> Option<Self::Old>;

    /// The object of a key.
    fn get(&self, hash: u64, key: &str) -> Option<&Arc<Pod>>;

    /// The objects with a value of an index.
    fn by_index<'a>(&'a self, index: usize, value: &str) -> impl Iterator<Item = &'a Arc<Pod>>;

    /// All objects.
    fn iter(&self) -> impl Iterator<Item = &Arc<Pod>>;
}

#[cfg(test)]
mod tests;
