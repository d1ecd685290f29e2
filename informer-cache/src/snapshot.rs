//! PURE. One consistent view of a store, held as long as you like.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use crate::index::typed;
use crate::record::Record;
use crate::table::Table;
use crate::trie::Iter;
use crate::{Index, IndexError, MissingIndex, Version};

/// A consistent view of a store: its objects, all its indexes and its version, at one instant.
///
/// Taken and cloned in O(1). It blocks nobody and nobody blocks it; what it costs is the memory of what has changed
/// since. Everything in it is in the order of hashes, which says nothing.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Schema, Store, Version};
///
/// let store = Store::builder(Schema::new(|word: &&str| word.len(), |_| Version::ZERO)).build()?;
/// store.replace(["one", "three"], Version::new(7));
/// let view = store.snapshot();
/// store.delete(&5, None);
///
/// assert_eq!(view.len(), 2);
/// assert_eq!(view.version(), Version::new(7));
/// assert_eq!(view.get(&5).map(|word| **word), Some("three"));
/// assert_eq!(store.snapshot().len(), 1);
/// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
/// ```
pub struct Snapshot<K, V> {
    pub(crate) table: Arc<Table<K, V>>,
}

impl<K, V> Snapshot<K, V> {
    /// The number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.records.len()
    }

    /// Whether there is no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.records.is_empty()
    }

    /// How far in the source's history this view is; [`Version::ZERO`] before the first list or event.
    #[must_use]
    pub fn version(&self) -> Version {
        self.table.version
    }

    /// All objects with their keys.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&K, &Arc<V>)> {
        self.table.records.iter().map(|record| (&record.key, &record.object))
    }

    /// All objects.
    pub fn objects(&self) -> impl ExactSizeIterator<Item = &Arc<V>> {
        self.table.records.iter().map(|record| &record.object)
    }

    /// All keys.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &K> {
        self.table.records.iter().map(|record| &record.key)
    }

    /// The objects that an index function failed on, each with its key and the name of the index.
    ///
    /// They are stored like any other; only that index does not hold them. O(failures).
    pub fn index_errors(&self) -> impl Iterator<Item = (&K, &'static str, &Arc<IndexError>)> {
        self.table.failed.iter().flat_map(|record| {
            let columns = &self.table.recipe.columns;
            let name = |column: usize| columns[column].name;
            record.failures.iter().map(move |failure| (&record.key, name(failure.column), &failure.error))
        })
    }
}

impl<K: Eq + Hash, V: 'static> Snapshot<K, V> {
    /// The object of a key.
    pub fn get<Q>(&self, key: &Q) -> Option<&Arc<V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.table.recipe.seed.hash_one(key);
        self.table.find(hash, |known| known.borrow() == key).map(|record| &record.object)
    }

    /// Whether there is an object of this key.
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.get(key).is_some()
    }

    /// The objects that have `value` in an index; none for a value that nothing has.
    ///
    /// # Errors
    /// When the store was built without this index: none of this name, or one with values of another type.
    pub fn by_index<IK, Q>(
        &self,
        index: &Index<V, IK>,
        value: &Q,
    ) -> Result<impl ExactSizeIterator<Item = &Arc<V>> + use<'_, K, V, IK, Q>, MissingIndex>
    where
        IK: Borrow<Q> + 'static,
        Q: Hash + Eq + ?Sized,
    {
        Ok(self.with_value(index, value)?.map(|record| &record.object))
    }

    /// The keys of the objects that have `value` in an index; none for a value that nothing has.
    ///
    /// # Errors
    /// When the store was built without this index.
    pub fn keys_by_index<IK, Q>(
        &self,
        index: &Index<V, IK>,
        value: &Q,
    ) -> Result<impl ExactSizeIterator<Item = &K> + use<'_, K, V, IK, Q>, MissingIndex>
    where
        IK: Borrow<Q> + 'static,
        Q: Hash + Eq + ?Sized,
    {
        Ok(self.with_value(index, value)?.map(|record| &record.key))
    }

    /// The values that at least one object has in an index, each with the number of its objects.
    ///
    /// # Errors
    /// When the store was built without this index.
    pub fn index_values<IK: 'static>(
        &self,
        index: &Index<V, IK>,
    ) -> Result<impl ExactSizeIterator<Item = (&IK, usize)> + use<'_, K, V, IK>, MissingIndex> {
        let column = self.table.recipe.column(index)?;
        let groups = self.table.groups[column].iter();
        Ok(groups.map(|group| (typed::<IK>(&group.value), group.records.len())))
    }

    fn with_value<IK, Q>(
        &self,
        index: &Index<V, IK>,
        value: &Q,
    ) -> Result<Iter<'_, Arc<Record<K, V>>>, MissingIndex>
    where
        IK: Borrow<Q> + 'static,
        Q: Hash + Eq + ?Sized,
    {
        let column = self.table.recipe.column(index)?;
        let hash = self.table.recipe.seed.hash_one(value);
        let group = self.table.group(column, hash, |known| typed::<IK>(known).borrow() == value);
        Ok(group.map_or_else(Iter::empty, |group| group.records.iter()))
    }

    /// Walks every invariant; for tests.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        self.table.check()
    }
}

/// O(1): the same view again.
impl<K, V> Clone for Snapshot<K, V> {
    fn clone(&self) -> Self {
        Self { table: self.table.clone() }
    }
}

impl<K, V> fmt::Debug for Snapshot<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("len", &self.len()).field("version", &self.version()).finish()
    }
}
