//! SHELL. Reads of a store: each is one critical section, or goes to a snapshot.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use crate::{
    Index, IndexError, LabelIndex, Lister, MissingIndex, Schema, Snapshot, Store, StoreBuilder, Version,
};

impl<K, V> Store<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// A builder of a store whose objects have the keys and identities of this schema.
    pub fn builder(schema: Schema<K, V>) -> StoreBuilder<K, V> {
        StoreBuilder::new(schema)
    }

    /// The object of a key.
    pub fn get<Q>(&self, key: &Q) -> Option<Arc<V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.inner.reader.seed.hash_one(key);
        self.inner.published.look(|table| table.object(hash, |known| known.borrow() == key))
    }

    /// The version of the object of a key.
    pub(crate) fn stored_version(&self, key: &K) -> Option<Version> {
        let hash = self.inner.reader.seed.hash_one(key);
        self.inner.published.look(|table| Some(table.record(hash, |known| known == key)?.version))
    }

    /// An index of another store that this one does not have.
    pub(crate) fn index_lacking(&self, other: &Self) -> Option<&'static str> {
        self.inner.table().index_set.lacks(&other.inner.table().index_set.indexes)
    }

    /// The number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.published.look(|table| table.rows.len())
    }

    /// Whether there is no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The newest version of any list or event; [`Version::ZERO`] before the first list or event.
    ///
    /// It grows with events and bookmarks, and is set by a relist, which may take it back. Where events come in the order of versions, as they do from
    /// one watch of a Kubernetes API server, everything up to it is stored. Where they do not, that holds at the version of a list or a bookmark; in between, an
    /// older event of another object may still be on its way.
    #[must_use]
    pub fn version(&self) -> Version {
        self.inner.published.look(|table| table.version)
    }

    /// A consistent view of everything, in O(1).
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<K, V> {
        self.inner.snapshot()
    }

    /// The objects that have `value` in an index; none for a value that nothing has. O(hits), in no promised order.
    ///
    /// To look at them without collecting, or at several values at one instant, take a [snapshot](Self::snapshot).
    ///
    /// # Errors
    /// When the store has no such index: none of this name, or one with values of another type.
    pub fn by_index<IK, Q>(&self, index: &Index<V, IK>, value: &Q) -> Result<Vec<Arc<V>>, MissingIndex>
    where
        IK: Borrow<Q> + 'static,
        Q: Hash + Eq + ?Sized,
    {
        let snapshot = self.snapshot();
        let objects = snapshot.by_index(index, value)?.cloned().collect();
        // Here, because the last view of old objects may drop them, and a panic while returning would leak the result.
        drop(snapshot);
        Ok(objects)
    }

    /// Lists objects by a scope, their namespace say, and by their labels.
    pub fn lister<S: 'static>(&self, scope: &Index<V, S>, labels: &LabelIndex<V>) -> Lister<K, V, S> {
        Lister::new(self.clone(), *scope, *labels)
    }

    /// The objects that an index function failed on: key, name of the index, error. O(failures).
    #[must_use]
    pub fn index_errors(&self) -> Vec<(K, &'static str, Arc<IndexError>)> {
        let snapshot = self.snapshot();
        let errors = snapshot.index_errors();
        let errors = errors.map(|(key, index, error)| (key.clone(), index, error.clone())).collect();
        drop(snapshot);
        errors
    }

    /// Walks every invariant; for tests. O(everything).
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        self.inner.check()
    }
}
