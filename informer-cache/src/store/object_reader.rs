//! PURE. Reads the key and the version of an object, and transforms the object. The user provides the functions for this.
//!
//! These functions run while no lock of the store is held, and before the write changes anything. So they may panic, block, or read the store.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use flyball_sync::panics::DropContained;

use crate::table::record::{Object, Record, allocated};
use crate::table::seed::Seed;
use crate::{Schema, Version};

/// The schema of a store and the seed of its hasher. Neither of them changes.
pub(crate) struct ObjectReader<K, V> {
    pub(crate) schema: Schema<K, V>,
    pub(crate) seed: Seed,
}

/// The function that changes an object before it is stored.
pub(crate) type Transform<V> = DropContained<Arc<dyn Fn(V) -> V + Send + Sync>>;

/// Applies the transformation to an object, if there is one.
#[inline]
pub(crate) fn transformed<V>(object: Object<V>, transform: Option<&Transform<V>>) -> Object<V> {
    match transform {
        Some(transform) => {
            let object = Arc::into_inner(object.into_inner()).expect("an object that arrives is not shared");
            allocated(transform(object))
        }
        None => object,
    }
}

// `Copy` and `Clone` are not derived, because a derive would require `K: Copy` and `V: Copy`; the fields are function pointers and a number.

impl<K, V> Copy for ObjectReader<K, V> {}

impl<K, V> Clone for ObjectReader<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Hash, V> ObjectReader<K, V> {
    /// Returns the key of an object, and its hash.
    #[inline]
    pub(crate) fn name(&self, object: &V) -> (u64, DropContained<K>) {
        let key = DropContained::new(self.schema.key(object));
        (self.seed.hash_one(&*key), key)
    }

    /// Reads the version of an object, and transforms it.
    #[inline]
    pub(crate) fn read_named(
        &self,
        hash: u64,
        key: DropContained<K>,
        object: Object<V>,
        transform: Option<&Transform<V>>,
    ) -> ParsedObject<K, V> {
        let version = self.schema.version(&object);
        ParsedObject { hash, key, version, object: transformed(object, transform) }
    }
}

/// An object whose key and version have been read, and whose key has not been looked up in the store yet.
pub(crate) struct ParsedObject<K, V> {
    pub(crate) hash: u64,
    pub(crate) key: DropContained<K>,
    version: Version,
    object: Object<V>,
}

impl<K, V> ParsedObject<K, V> {
    /// Converts the object to a record. If the store has a record with this key, the new record shares the key of that record, and the key that was
    /// read is returned as unused.
    #[inline]
    pub(crate) fn after(self, old: Option<&Record<K, V>>) -> (Record<K, V>, Option<DropContained<K>>) {
        let Self { hash, key, version, object } = self;
        match old {
            Some(old) => (old.next(version, object), Some(key)),
            None => (Record::new(hash, key, version, object), None),
        }
    }
}
