//! Design 2: copy-on-write shards of plain hash tables.
//! Some bits of an item's hash select its shard. A shard is an `Arc` of hashbrown's `HashTable`. A write to a shard that a snapshot shares copies the
//! whole shard. The number of shards doubles when the shards have `FULL` items on average. There are at most `MOST` shards, because the first write
//! after a snapshot copies the vector of shards. Each index is such a set of values, and each value has such a set of records.
//!
//! Not implemented: reducing the number of shards after items have been removed.

use std::sync::Arc;

use hashbrown::HashTable;

use super::grouped::{Family, Grouped, Hashed, Set};

/// The average number of items per shard at which the number of shards doubles.
const FULL: usize = 64;
/// The largest number of shards of one set.
const MOST: usize = 1024;

/// The store.
pub type Design = Grouped<Sharded>;

/// Sets that are sharded.
#[derive(Clone, Debug, Default)]
pub struct Sharded;

impl Family for Sharded {
    type Of<T: Hashed> = Shards<T>;
}

/// A set of items found by hash.
#[derive(Clone, Debug)]
pub struct Shards<T> {
    shards: Arc<Vec<Arc<HashTable<T>>>>,
    len: usize,
}

impl<T: Hashed> Shards<T> {
    /// hashbrown's table uses the top seven bits and the low bits of the hash, so bits between them select the shard.
    fn shard(&self, hash: u64) -> usize {
        (hash >> 40) as usize & (self.shards.len() - 1)
    }

    fn shard_mut(&mut self, hash: u64) -> &mut HashTable<T> {
        let at = self.shard(hash);
        Arc::make_mut(&mut Arc::make_mut(&mut self.shards)[at])
    }

    fn grow(&mut self) {
        let shards = (self.shards.len() * 2).min(MOST);
        let mut grown = vec![HashTable::with_capacity(FULL / 2); shards];
        for item in self.iter() {
            let at = (item.hash() >> 40) as usize & (shards - 1);
            grown[at].insert_unique(item.hash(), item.clone(), Hashed::hash);
        }
        self.shards = Arc::new(grown.into_iter().map(Arc::new).collect());
    }
}

impl<T: Hashed> Set<T> for Shards<T> {
    fn get(&self, hash: u64, eq: impl Fn(&T) -> bool) -> Option<&T> {
        self.shards[self.shard(hash)].find(hash, |item| item.hash() == hash && eq(item))
    }

    fn get_mut(&mut self, hash: u64, eq: impl Fn(&T) -> bool) -> Option<&mut T> {
        self.shard_mut(hash).find_mut(hash, |item| item.hash() == hash && eq(item))
    }

    fn insert(&mut self, item: T, eq: impl Fn(&T) -> bool) -> Option<T> {
        let hash = item.hash();
        if let Some(there) = self.get_mut(hash, eq) {
            return Some(std::mem::replace(there, item));
        }
        if self.len >= FULL * self.shards.len() && self.shards.len() < MOST {
            self.grow();
        }
        self.shard_mut(hash).insert_unique(hash, item, Hashed::hash);
        self.len += 1;
        None
    }

    fn remove(&mut self, hash: u64, eq: impl Fn(&T) -> bool) -> Option<T> {
        self.get(hash, &eq)?;
        let entry = self.shard_mut(hash).find_entry(hash, |item| item.hash() == hash && eq(item));
        let removed = entry.ok()?.remove().0;
        self.len -= 1;
        Some(removed)
    }

    fn iter<'a>(&'a self) -> impl Iterator<Item = &'a T>
    where
        T: 'a,
    {
        self.shards.iter().flat_map(|shard| shard.iter())
    }

    fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T> Default for Shards<T> {
    fn default() -> Self {
        Self { shards: Arc::new(vec![Arc::new(HashTable::new())]), len: 0 }
    }
}
