//! PURE. A consistent view of a store. You can hold it for any length of time.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use crate::store::object_reader::ObjectReader;
use crate::table::definition::{IndexId, typed};
use crate::table::record::Record;
use crate::table::{Column, RowNumbers, Table};
use crate::{Change, ChangeKind, Index, IndexError, Lister, MissingIndex, Version};

mod order;

pub use order::RangeIter;

/// A consistent view of a store at one point in time: its objects, all its indexes and its version.
///
/// Taking or cloning a snapshot is O(1). A snapshot does not block readers or writers, and they do not block it. While you hold a snapshot, the data
/// that later writes replace stays in memory. Unless documented otherwise, objects are returned in unspecified order.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Schema, Store, Version};
///
/// let mut store = Store::builder(Schema::new(|word: &&str| word.len(), |_| Version::ZERO)).build()?;
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
///
/// More ways to query an index:
/// ```
/// use flyball_informer_cache::{Index, Schema, Snapshot, Store, Version};
///
/// type Pod = (&'static str, &'static str, u64);
/// static BY_NODE: Index<Pod, &str> = Index::new("node", |pod| pod.1);
/// static BY_UID: Index<Pod, u64> = Index::new("uid", |pod: &Pod| pod.2).unique();
///
/// let schema = Schema::new(|pod: &Pod| pod.0, |_| Version::ZERO);
/// let mut store = Store::builder(schema).index(&BY_NODE).index(&BY_UID).build()?;
/// store.replace([("a", "n1", 70), ("b", "n1", 71), ("c", "n2", 72)], Version::new(1));
/// let view: Snapshot<&str, Pod> = store.snapshot();
///
/// assert!(view.contains_key("a") && view.keys().count() == 3);
/// assert!(view.iter().all(|(name, pod)| *name == pod.0));
/// assert_eq!(view.lister().by_index(&BY_NODE, "n1")?.by_index(&BY_UID, &72)?.iter().count(), 0);
/// assert_eq!(view.keys_by_index(&BY_NODE, "n2")?.collect::<Vec<_>>(), [&"c"]);
/// assert_eq!(view.index_values(&BY_NODE)?.map(|(_, pods)| pods).max(), Some(2)); // the fullest node
/// assert_eq!(view.by_index(&BY_UID, &71)?.next().map(|pod| pod.0), Some("b")); // at most one, as the index is unique
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Snapshot<K, V> {
    pub(crate) table: Arc<Table<K, V>>,
    pub(crate) reader: ObjectReader<K, V>,
}

impl<K, V> Snapshot<K, V> {
    /// Returns the number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.rows.len()
    }

    /// Returns whether the snapshot is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.rows.is_empty()
    }

    /// Returns the version that the store had when the snapshot was taken; [`Version::ZERO`] before the first list or event.
    #[must_use]
    pub fn version(&self) -> Version {
        self.table.version
    }

    /// Returns an iterator over all objects with their keys.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&K, &Arc<V>)> {
        self.table.rows.iter().map(|(_, record)| (record.key(), &*record.object))
    }

    /// Returns an iterator over all objects.
    pub fn objects(&self) -> impl ExactSizeIterator<Item = &Arc<V>> {
        self.table.rows.iter().map(|(_, record)| &*record.object)
    }

    /// Returns an iterator over all keys.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &K> {
        self.table.rows.iter().map(|(_, record)| record.key())
    }

    /// Returns all objects as [initial](ChangeKind::Initial) changes, like those that a new observer receives. Use this to process every object again
    /// (a resync), in pieces if you like. Each change takes one allocation; the key and the object are shared, not cloned.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{ChangeKind, Schema, Store, Version};
    ///
    /// let mut store = Store::builder(Schema::new(|word: &&str| word.len(), |_| Version::ZERO)).build()?;
    /// store.replace(["one"], Version::new(7));
    /// let view = store.snapshot();
    /// let changes: Vec<_> = view.initial_changes().collect();
    /// assert_eq!((*changes[0].key(), changes[0].kind()), (3, ChangeKind::Initial));
    /// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
    /// ```
    pub fn initial_changes(&self) -> impl ExactSizeIterator<Item = Change<K, V>> {
        self.table.rows.iter().map(|(_, record)| initial(record))
    }

    /// Like [`initial_changes`](Self::initial_changes), but returns `None` in place of each object whose key `wanted` rejects, without an allocation.
    /// For the resync of the controller, which looks at every object once for each part of a period.
    #[doc(hidden)]
    pub fn initial_changes_where(
        &self,
        mut wanted: impl FnMut(&K) -> bool,
    ) -> impl Iterator<Item = Option<Change<K, V>>> {
        self.table.rows.iter().map(move |(_, record)| wanted(record.key()).then(|| initial(record)))
    }

    /// Returns the errors of index functions: for each object on which an index function failed, the key of the object, the name of the index, and
    /// the error.
    ///
    /// These objects are stored like any other object, but that index does not contain them. O(failures).
    pub fn index_errors(&self) -> impl Iterator<Item = (&K, &'static str, &Arc<IndexError>)> {
        let columns = self.columns();
        columns.flat_map(|(name, column)| {
            let key = |row| self.table.rows.get(row).map(|record| record.key());
            column.failures().filter_map(move |(row, error)| Some((key(row)?, name, error)))
        })
    }

    /// Returns each column with the name of its index.
    pub(crate) fn columns(&self) -> impl Iterator<Item = (&'static str, &Column)> + Clone {
        let columns = self.table.columns.iter().zip(&self.table.index_set.indexes);
        columns.map(|(column, index)| (index.id.name, &**column))
    }
}

impl<K: Eq + Hash, V: 'static> Snapshot<K, V> {
    /// Returns the object with this key.
    pub fn get<Q>(&self, key: &Q) -> Option<&Arc<V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.reader.seed.hash_one(key);
        self.table.record(hash, |known| known.borrow() == key).map(|record| &*record.object)
    }

    /// Returns whether there is an object with this key.
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.get(key).is_some()
    }

    /// Returns the objects that have `value` in an index, or no objects if the value is unknown.
    ///
    /// # Errors
    /// Returns an error if the store has no index with this name and of this [kind](Index).
    pub fn by_index<IK, Q>(
        &self,
        index: &Index<V, IK>,
        value: &Q,
    ) -> Result<impl ExactSizeIterator<Item = &Arc<V>> + use<'_, K, V, IK, Q>, MissingIndex>
    where
        IK: Borrow<Q> + 'static,
        Q: Hash + Eq + ?Sized,
    {
        Ok(self.with_value(index, value)?.map(|record| &*record.object))
    }

    /// Returns the keys of the objects that have `value` in an index, or no keys if the value is unknown.
    ///
    /// # Errors
    /// Returns an error if the store has no such index.
    pub fn keys_by_index<IK, Q>(
        &self,
        index: &Index<V, IK>,
        value: &Q,
    ) -> Result<impl ExactSizeIterator<Item = &K> + use<'_, K, V, IK, Q>, MissingIndex>
    where
        IK: Borrow<Q> + 'static,
        Q: Hash + Eq + ?Sized,
    {
        Ok(self.with_value(index, value)?.map(|record| record.key()))
    }

    /// Returns every value that at least one object has in an index, with the number of objects that have it.
    ///
    /// # Errors
    /// Returns an error if the store has no such index.
    pub fn index_values<IK: 'static>(
        &self,
        index: &Index<V, IK>,
    ) -> Result<impl ExactSizeIterator<Item = (&IK, usize)> + use<'_, K, V, IK>, MissingIndex> {
        let column = self.column(index)?;
        Ok(column.groups().map(|group| (typed::<IK>(&group.value), group.rows.len())))
    }

    /// For a [unique](Index::unique) index, returns each value that several objects have, together with these objects. O(violations).
    ///
    /// # Errors
    /// Returns an error if the store has no such index, or if the index is not unique.
    pub fn unique_violations<IK: 'static>(
        &self,
        index: &Index<V, IK>,
    ) -> Result<
        impl Iterator<Item = (&IK, impl ExactSizeIterator<Item = (&K, &Arc<V>)> + use<'_, K, V, IK>)>
        + use<'_, K, V, IK>,
        MissingIndex,
    > {
        let column = self.column(index)?;
        let violated = column.violated().ok_or(MissingIndex::not_unique(index.name()))?;
        let groups = violated.iter().filter_map(|number| column.group(number));
        Ok(groups.map(|group| {
            let hits = Hits { table: &self.table, rows: group.rows.iter() };
            (typed::<IK>(&group.value), hits.map(|record| (record.key(), &*record.object)))
        }))
    }

    /// Creates a [`Lister`], which lists the objects that satisfy conditions, such as a namespace and a label selector.
    pub fn lister(&self) -> Lister<'_, K, V> {
        Lister::new(self)
    }

    pub(crate) fn column<IK: 'static>(&self, index: &Index<V, IK>) -> Result<&Column, MissingIndex> {
        self.column_of(index.id())
    }

    pub(crate) fn column_of(&self, id: IndexId) -> Result<&Column, MissingIndex> {
        Ok(&self.table.columns[self.table.index_set.find(id)?])
    }

    fn with_value<IK, Q>(&self, index: &Index<V, IK>, value: &Q) -> Result<Hits<'_, K, V>, MissingIndex>
    where
        IK: Borrow<Q> + 'static,
        Q: Hash + Eq + ?Sized,
    {
        let column = self.column(index)?;
        let hash = self.reader.seed.hash_one(value);
        let group = column.find(hash, |known| typed::<IK>(known).borrow() == value);
        let rows = group.and_then(|number| column.group(number)).map(|group| group.rows.iter());
        Ok(Hits { table: &self.table, rows: rows.unwrap_or(RowNumbers::One(None)) })
    }

    /// Checks every invariant; used by tests.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        self.table.check(|key| self.reader.seed.hash_one(key))
    }
}

fn initial<K, V>(record: &Record<K, V>) -> Change<K, V> {
    Change::of(record.name.clone(), ChangeKind::Initial, None, record.object.clone())
}

/// An iterator over the records of some rows.
pub(crate) struct Hits<'a, K, V> {
    pub(crate) table: &'a Table<K, V>,
    pub(crate) rows: RowNumbers<'a>,
}

impl<'a, K, V> Iterator for Hits<'a, K, V> {
    type Item = &'a Record<K, V>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        // Column invariant 2: every row has a record.
        self.table.rows.get(self.rows.next()?)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rows.size_hint()
    }

    #[inline]
    fn fold<B, F: FnMut(B, Self::Item) -> B>(self, init: B, mut f: F) -> B {
        let records = &self.table.rows;
        // Column invariant 2: every row has a record.
        self.rows.fold(init, |folded, row| match records.get(row) {
            Some(record) => f(folded, record),
            None => folded,
        })
    }
}

impl<K, V> ExactSizeIterator for Hits<'_, K, V> {}

/// Takes O(1), because the clone shares the table.
impl<K, V> Clone for Snapshot<K, V> {
    fn clone(&self) -> Self {
        Self { table: self.table.clone(), reader: self.reader }
    }
}

impl<K, V> fmt::Debug for Snapshot<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("len", &self.len()).field("version", &self.version()).finish()
    }
}
