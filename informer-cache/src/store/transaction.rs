//! SHELL. Several writes that are published together.
//!
//! This module guards no data: the owner collects the writes, and the commit compares them with the stored objects and publishes them like a relist.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use hashbrown::HashTable;

use super::access::Access;
use super::object_reader::ObjectReader;
use super::write::{compare_event, deletion, is_stale_deletion};
use crate::table::record::Record;
use crate::table::relist::ListedState;
use crate::table::{KeyWrite, Table};
use crate::{Change, ChangeKind, Schema, Version};

/// Writes of several objects that are published together; made by [`Writer::transaction`](crate::Writer::transaction) and
/// [`SharedWriter::transaction`](crate::SharedWriter::transaction).
///
/// Readers see none of the writes before [`commit`](Self::commit). Dropping the transaction discards its writes. If a transaction writes a key
/// several times, the last write counts, unless it is stale: older than an earlier write of the transaction, or a repetition of it. The commit compares each write with the stored object by the rules of
/// [`Writer::upsert`](crate::Writer::upsert) and [`Writer::delete`](crate::Writer::delete), and ignores stale writes.
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
    writes: Vec<Write<K, V>>,
    /// For each key, the position of its write in `writes`.
    places: HashTable<usize>,
    version: Version,
}

enum Write<K, V> {
    Upsert(Record<K, V>),
    Delete { hash: u64, key: K, last: Option<Arc<V>>, version: Version },
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

    /// Returns whether this write would be stale if the earlier write of the same key had been committed.
    fn is_stale(&self, schema: &Schema<K, V>, earlier: &Self) -> bool {
        match (earlier, self) {
            (Self::Upsert(earlier), Self::Upsert(new)) => {
                compare_event(schema, earlier, new) == ListedState::Unchanged
            }
            (Self::Upsert(earlier), Self::Delete { last, version, .. }) => {
                is_stale_deletion(schema, earlier, last.as_deref(), *version)
            }
            // Like the store, a transaction keeps no record of a deleted object.
            (Self::Delete { .. }, _) => false,
        }
    }
}

impl<'a, K, V> Transaction<'a, K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    pub(super) fn new(writer: Access<'a, K, V>) -> Self {
        Self { writer, writes: Vec::new(), places: HashTable::new(), version: Version::ZERO }
    }

    /// Adds to the transaction a write that stores this object.
    pub fn upsert(&mut self, object: V) {
        let (new, _) = self.writer.store().inner.read(object).after(None);
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
        let (hash, last, version) = self.writer.store().deletion(&key, last);
        self.put(Write::Delete { hash, key, last, version });
        self.version = self.version.max(version);
    }

    fn put(&mut self, write: Write<K, V>) {
        let schema = self.writer.store().inner.reader.schema;
        let (writes, places) = (&mut self.writes, &mut self.places);
        let hash = write.hash();
        let known = places.find(hash, |&at| writes[at].hash() == hash && writes[at].key() == write.key());
        match known {
            Some(&at) if write.is_stale(&schema, &writes[at]) => {}
            Some(&at) => drop(std::mem::replace(&mut writes[at], write)),
            None => {
                writes.push(write);
                places.insert_unique(hash, writes.len() - 1, |&at| writes[at].hash());
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
        let Self { writer, writes, version, .. } = self;
        let reader = writer.store().inner.reader;
        let changes = writer.commit(version, |table| Self::compare(&reader, &writes, table));
        // `writes` is dropped explicitly, because a panic in a destructor while the function returns would leak the return value.
        drop(writes);
        changes
    }

    /// Compares each write with the stored object, and returns the writes that have an effect, deletions first.
    fn compare(
        reader: &ObjectReader<K, V>,
        writes: &[Write<K, V>],
        table: &Table<K, V>,
    ) -> Vec<KeyWrite<K, V>> {
        let (mut gone, mut rest) = (Vec::new(), Vec::new());
        for write in writes {
            let row = table.find(write.hash(), |key| key == write.key());
            let old = row.and_then(|row| Some((row, table.rows.get(row)?)));
            match write {
                Write::Upsert(new) => {
                    let (kind, record) =
                        match old.map(|(_, old)| (old, compare_event(&reader.schema, old, new))) {
                            Some((_, ListedState::Unchanged)) => continue,
                            Some((old, ListedState::Updated)) => {
                                (ChangeKind::Updated, old.next(new.version, new.object.clone()))
                            }
                            Some((old, ListedState::Replaced)) => {
                                (ChangeKind::Replaced, old.next(new.version, new.object.clone()))
                            }
                            None => (ChangeKind::Added, new.clone()),
                        };
                    let values = table.lasting_values(row, &record.object, &reader.seed);
                    rest.push(KeyWrite { kind, row, record, values });
                }
                Write::Delete { last, version, .. } => {
                    let is_stale = |old| is_stale_deletion(&reader.schema, old, last.as_deref(), *version);
                    if let Some((row, old)) = old.filter(|(_, old)| !is_stale(old)) {
                        gone.push(deletion(&reader.schema, row, old, last.as_ref()));
                    }
                }
            }
        }
        gone.append(&mut rest);
        gone
    }
}

impl<K, V> fmt::Debug for Transaction<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("len", &self.writes.len()).finish_non_exhaustive()
    }
}
