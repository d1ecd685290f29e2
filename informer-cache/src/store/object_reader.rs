//! PURE. How a store reads an object: but for [`Table::values`](crate::table::Table::values) the one place that runs the owner's functions.
//!
//! All of it happens under no lock of the store and before anything changes, so a function may panic, block or read the store.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use crate::table::record::Record;
use crate::table::seed::Seed;
use crate::{Schema, Version};

/// How a store reads an object; never changes.
pub(crate) struct ObjectReader<K, V> {
    pub(crate) schema: Schema<K, V>,
    pub(crate) seed: Seed,
}

/// Changes an object before it is stored.
pub(crate) type Transform<V> = Arc<dyn Fn(V) -> V + Send + Sync>;

/// An object as it is to be stored.
pub(crate) fn transformed<V>(object: V, transform: Option<&Transform<V>>) -> Arc<V> {
    Arc::new(match transform {
        Some(transform) => transform(object),
        None => object,
    })
}

// Not derived: functions and a number.

impl<K, V> Copy for ObjectReader<K, V> {}

impl<K, V> Clone for ObjectReader<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Hash, V> ObjectReader<K, V> {
    /// The key of an object, and its hash.
    pub(crate) fn name(&self, object: &V) -> (u64, K) {
        let key = self.schema.key(object);
        (self.seed.hash_one(&key), key)
    }

    /// Reads the rest of an object.
    pub(crate) fn read_named(
        &self,
        hash: u64,
        key: K,
        object: V,
        transform: Option<&Transform<V>>,
    ) -> ParsedObject<K, V> {
        let version = self.schema.version(&object);
        ParsedObject { hash, key, version, object: transformed(object, transform) }
    }
}

/// An object as it was read, before anybody looked for what is stored under its key.
pub(crate) struct ParsedObject<K, V> {
    pub(crate) hash: u64,
    pub(crate) key: K,
    version: Version,
    object: Arc<V>,
}

impl<K, V> ParsedObject<K, V> {
    /// As a record, after the one with this key if there is one; and the key, where that has one already.
    pub(crate) fn after(self, old: Option<&Record<K, V>>) -> (Record<K, V>, Option<K>) {
        let Self { hash, key, version, object } = self;
        match old {
            Some(old) => (old.next(version, object), Some(key)),
            None => (Record::new(hash, key, version, object), None),
        }
    }
}
