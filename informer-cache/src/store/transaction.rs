//! SHELL. Several writes that are published together.
//!
//! This module guards no data: the owner collects the writes, and the commit applies them in their order to the stored objects, key by key, and publishes
//! the result like a relist.

use std::fmt;
use std::hash::Hash;
use std::iter::once;

use flyball_sync::panics::DropContained;
use hashbrown::HashTable;

use super::access::Access;
use super::object_reader::ObjectReader;
use super::write::{compare_event, deletion, is_stale_deletion};
use crate::table::record::{Object, Record, allocated, object_of};
use crate::table::relist::ListedState;
use crate::table::{KeyWrite, Table};
use crate::{Change, ChangeKind, Version};

/// Writes of several objects that are published together; made by [`Writer::transaction`](crate::Writer::transaction) and
/// [`SharedWriter::transaction`](crate::SharedWriter::transaction).
///
/// Readers see none of the writes before [`commit`](Self::commit). Dropping the transaction discards its writes. The commit stores what the same calls of
/// [`Writer::upsert`](crate::Writer::upsert) and [`Writer::delete`](crate::Writer::delete), one after the other, would store: stale writes are ignored, and a
/// key may be written several times. Each changed object is reported once, with its stored state before and after the transaction.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Schema, Store, Version};
///
/// let mut store = Store::builder(Schema::new(|account: &(&str, i64)| account.0, |_| Version::ZERO)).build()?;
/// store.upsert(("a", 100));
/// let accounts = store.store(); // a handle for readers
///
/// let mut transfer = store.transaction();
/// transfer.upsert(("a", 70));
/// transfer.upsert(("b", 30));
/// assert_eq!(accounts.len(), 1);
/// assert_eq!(transfer.commit().len(), 2);
/// assert_eq!(accounts.snapshot().objects().map(|account| account.1).sum::<i64>(), 100);
/// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
/// ```
pub struct Transaction<'a, K, V> {
    writer: Access<'a, K, V>,
    /// The writes of each key, in the order in which the keys were first written.
    keys: Vec<KeyWrites<K, V>>,
    /// For each key, the position of its writes in `keys`.
    places: HashTable<usize>,
    version: Version,
}

/// The writes of one key, in their order.
struct KeyWrites<K, V> {
    first: Write<K, V>,
    later: Vec<Write<K, V>>,
}

enum Write<K, V> {
    Upsert(Record<K, V>),
    Delete { hash: u64, key: DropContained<K>, last: Option<Object<V>>, version: Version },
}

impl<K, V> Write<K, V> {
    fn hash(&self) -> u64 {
        match self {
            Self::Upsert(new) => new.hash(),
            Self::Delete { hash, .. } => *hash,
        }
    }

    fn key(&self) -> &K {
        match self {
            Self::Upsert(new) => new.key(),
            Self::Delete { key, .. } => key,
        }
    }
}

impl<'a, K, V> Transaction<'a, K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    pub(super) fn new(writer: Access<'a, K, V>) -> Self {
        Self { writer, keys: Vec::new(), places: HashTable::new(), version: Version::ZERO }
    }

    /// Adds to the transaction a write that stores this object.
    pub fn upsert(&mut self, object: V) {
        let (new, _) = self.writer.store().inner.read(allocated(object)).after(None);
        let version = new.version;
        self.put(Write::Upsert(new));
        self.version = self.version.max(version);
    }

    /// Adds to the transaction a write that deletes the object with this key. `last` is the last state of the object, if known.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Schema, Store, Transaction, Version};
    ///
    /// let mut routes = Store::builder(Schema::new(|route: &(&str, u32)| route.0, |_| Version::ZERO)).build()?;
    /// routes.upsert(("/old", 1));
    /// let mut rename: Transaction<'_, &str, _> = routes.transaction();
    /// rename.delete("/old", None);
    /// rename.upsert(("/new", 1));
    /// let changes = rename.commit();
    /// assert!(changes[0].new().is_none() && *changes[1].key() == "/new");
    /// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
    /// ```
    pub fn delete(&mut self, key: K, last: Option<V>) {
        let key = DropContained::new(key);
        let (hash, last, version) = self.writer.store().deletion(&*key, last.map(allocated));
        self.put(Write::Delete { hash, key, last, version });
        self.version = self.version.max(version);
    }

    fn put(&mut self, write: Write<K, V>) {
        let Self { keys, places, .. } = self;
        let hash = write.hash();
        let is_it = |&at: &usize| {
            let KeyWrites { first, .. } = &keys[at];
            first.hash() == hash && first.key() == write.key()
        };
        match places.find(hash, is_it).copied() {
            Some(at) => keys[at].later.push(write),
            None => {
                keys.push(KeyWrites { first: write, later: Vec::new() });
                places.insert_unique(hash, keys.len() - 1, |&at| keys[at].first.hash());
            }
        }
    }

    /// Publishes all writes together, and returns the changes. Deletions come first, and then the other changes, in the order in which their keys
    /// were first written.
    ///
    /// The store's version rises to the newest version among the written objects, even if the write with that version is stale. Readers see all
    /// writes or none, and wait only for a pointer swap. O(writes).
    ///
    /// # Panics
    /// Panics like [`Relist::publish`](crate::Relist::publish).
    pub fn commit(self) -> Vec<Change<K, V>> {
        let Self { writer, keys, version, .. } = self;
        let reader = writer.store().inner.reader;
        let changes = writer.commit(version, |table| Self::compare(&reader, &keys, table));
        // `keys` is dropped explicitly, because a panic in a destructor while the function returns would leak the return value.
        drop(keys);
        changes
    }

    /// Applies the writes of each key to its stored object, and returns the writes that turn the stored objects into the results, deletions first.
    fn compare(
        reader: &ObjectReader<K, V>,
        keys: &[KeyWrites<K, V>],
        table: &Table<K, V>,
    ) -> Vec<KeyWrite<K, V>> {
        let ObjectReader { schema, seed } = reader;
        let (mut gone, mut rest) = (Vec::new(), Vec::new());
        for KeyWrites { first, later } in keys {
            let stored = table.entry(first.hash(), |key| key == first.key());
            let mut now = stored.map(|(_, old)| old);
            let mut deleted = None;
            for write in once(first).chain(later) {
                match write {
                    Write::Upsert(new) => {
                        let is_stale = |old| compare_event(schema, old, new) == ListedState::Unchanged;
                        if !now.is_some_and(is_stale) {
                            now = Some(new);
                        }
                    }
                    Write::Delete { last, version, .. } => {
                        let is_stale =
                            |old| is_stale_deletion(schema, old, last.as_ref().map(object_of), *version);
                        if now.is_some_and(|old| !is_stale(old)) {
                            now = None;
                            if let Some((row, old)) = stored {
                                let write = deletion(schema, row, old, last.as_ref());
                                // A deletion with a last state of the stored object counts more than one without.
                                if deleted.is_none() || write.kind == ChangeKind::Deleted {
                                    deleted = Some(write);
                                }
                            }
                        }
                    }
                }
            }
            let (kind, row, record) = match (stored, now) {
                (None, None) => continue,
                (Some(_), None) => {
                    gone.extend(deleted);
                    continue;
                }
                (Some((_, old)), Some(new)) if std::ptr::eq(old, new) => continue,
                (Some((row, old)), Some(new)) => {
                    let same = schema.same_identity(&old.object, &new.object);
                    let kind = if same { ChangeKind::Updated } else { ChangeKind::Replaced };
                    (kind, Some(row), old.next(new.version, new.object.clone()))
                }
                (None, Some(new)) => (ChangeKind::Added, None, new.clone()),
            };
            let values = table.lasting_values(row, &record.object, seed);
            rest.push(KeyWrite { kind, row, record, values });
        }
        gone.append(&mut rest);
        gone
    }
}

impl<K, V> fmt::Debug for Transaction<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("len", &self.keys.len()).finish_non_exhaustive()
    }
}
