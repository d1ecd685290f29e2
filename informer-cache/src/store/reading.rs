//! SHELL. The read operations of a store. Each of them is one critical section, or reads a snapshot.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use flyball_sync::panics::{DropContained, DropEach};

use crate::table::record::cloned;
use crate::{Index, IndexError, MissingIndex, Schema, Snapshot, Store, StoreBuilder, Version};

impl<K, V> Store<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Creates a builder for a store that uses this schema to read the key and the version of each object.
    pub fn builder(schema: Schema<K, V>) -> StoreBuilder<K, V> {
        StoreBuilder::new(schema)
    }

    /// Returns the object with this key.
    pub fn get<Q>(&self, key: &Q) -> Option<Arc<V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.inner.reader.seed.hash_one(key);
        self.inner.published.with_table(|table| table.object(hash, |known| known.borrow() == key))
    }

    /// Returns the version of the stored object with this key.
    pub(crate) fn stored_version(&self, key: &K) -> Option<Version> {
        let hash = self.inner.reader.seed.hash_one(key);
        self.inner.published.with_table(|table| Some(table.record(hash, |known| known == key)?.version))
    }

    /// Returns the name of an index that `other` has and this store lacks.
    pub(crate) fn index_lacking(&self, other: &Self) -> Option<&'static str> {
        self.inner.table().index_set.lacks(&other.inner.table().index_set.indexes)
    }

    /// Returns the number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.published.with_table(|table| table.rows.len())
    }

    /// Returns whether the store is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the version of the store; [`Version::ZERO`] before the first list or event.
    ///
    /// Events and bookmarks raise the version. A relist sets it, possibly to an older version. If events arrive in the order of their versions, as
    /// they do from one watch of a Kubernetes API server, the store contains every change up to its version. If events can arrive in a different
    /// order, this is guaranteed only when the version is that of a list or a bookmark. At any other version, an older event of a different object
    /// may still be missing.
    #[must_use]
    pub fn version(&self) -> Version {
        self.inner.published.with_table(|table| table.version)
    }

    /// Takes a consistent snapshot, in O(1).
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<K, V> {
        self.inner.snapshot()
    }

    /// Returns the objects that have `value` in an index, or no objects if the value is unknown. O(hits), in unspecified order.
    ///
    /// To iterate without collecting the objects into a `Vec`, or to query several values in the same state, take a [snapshot](Self::snapshot).
    ///
    /// # Errors
    /// Returns an error if the store has no index with this name and of this [kind](Index).
    pub fn by_index<IK, Q>(&self, index: &Index<V, IK>, value: &Q) -> Result<Vec<Arc<V>>, MissingIndex>
    where
        IK: Borrow<Q> + 'static,
        Q: Hash + Eq + ?Sized,
    {
        let snapshot = self.snapshot();
        let objects = DropEach::new(cloned(snapshot.by_index(index, value)?));
        // The snapshot is dropped explicitly: it may hold the last references to old objects, and a panic in their destructors while the function
        // returns would leak the result.
        drop(snapshot);
        Ok(objects.into_vec())
    }

    /// Returns the errors of index functions: for each object on which an index function failed, the key of the object, the name of the index, and
    /// the error. O(failures).
    #[must_use]
    pub fn index_errors(&self) -> Vec<(K, &'static str, Arc<IndexError>)> {
        let snapshot = self.snapshot();
        let errors = snapshot.index_errors();
        let clone = |(key, index, error): (&K, _, &Arc<IndexError>)| {
            (DropContained::new(key.clone()), index, error.clone())
        };
        let errors: Vec<_> = errors.map(clone).collect();
        drop(snapshot);
        errors.into_iter().map(|(key, index, error)| (key.into_inner(), index, error)).collect()
    }

    /// Checks every invariant; used by tests. O(everything).
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        self.inner.check()
    }
}
