//! SHELL. The owner of a store's contents.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::ops::Deref;
use std::sync::Arc;

use super::effects::Effects;
use super::indexes::IndexBuild;
use super::publication::{Publication, Stage};
use super::relist::RelistDraft;
use super::write::{VersionAdvance, WriterCore};
use crate::store::object_reader::transformed;
use crate::table::{KeyWrite, Table};
use crate::{
    AnyIndex, Change, DuplicateIndex, MissingIndex, Relist, SharedWriter, Store, Transaction, Version,
    WatchEvent, WriteOutcome,
};

/// The only writer of a store; made by [`StoreBuilder::build`](crate::StoreBuilder::build).
///
/// When a call returns, every [`Store`] handle shows the write, and the change is pending in every subscription. A writer derefs to [`Store`] for
/// reading; [`store`](Self::store) returns a handle for others. Dropping the writer [closes](Self::close) the store.
///
/// There is no concurrent writer, so the results of its lookups are still valid when it writes. The functions of the schema and of indexes run in its
/// calls, under no lock. To write from several threads, use a [`SharedWriter`].
///
/// # Examples
/// ```
/// use flyball_informer_cache::{WriteOutcome, Schema, Store, Version};
///
/// let mut pods = Store::builder(Schema::new(|pod: &(&str, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
/// let readers = pods.store(); // clone it as often as you like
/// assert_eq!(pods.upsert(("a", 7)), WriteOutcome::Added);
/// assert_eq!(pods.upsert(("a", 6)), WriteOutcome::Stale { stored: Version::new(7) });
/// assert_eq!(readers.get("a").map(|pod| pod.1), Some(7));
/// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
/// ```
pub struct Writer<K, V> {
    pub(super) core: WriterCore<K, V>,
}

impl<K, V> Writer<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    pub(crate) fn new(store: Store<K, V>) -> Self {
        Self { core: WriterCore::new(store) }
    }

    /// Returns a handle for readers.
    #[must_use]
    pub fn store(&self) -> Store<K, V> {
        self.core.store.clone()
    }

    /// Converts the writer to a [`SharedWriter`] for several threads. A lock serialises their calls.
    #[must_use]
    pub fn into_shared(self) -> SharedWriter<K, V> {
        SharedWriter::new(self)
    }

    /// Applies a watch event. `Added` and `Modified` have the same effect: the stored version decides whether the object is new.
    pub fn apply(&mut self, event: WatchEvent<V>) -> WriteOutcome {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => self.upsert(object),
            WatchEvent::Deleted(object) => {
                let key = self.inner.reader.schema.key(&object);
                self.delete(&key, Some(object))
            }
            WatchEvent::Bookmark(version) | WatchEvent::InitialListEnd(version) => {
                self.bookmark(version);
                WriteOutcome::Bookmarked
            }
        }
    }

    /// Stores a new or newer object.
    ///
    /// An older state never overwrites a newer one: if the same object is stored at this version or a newer one, the write is
    /// [stale](WriteOutcome::Stale), unless one of the two has no version. An object with another identity (see
    /// [`Schema::with_identity`](crate::Schema::with_identity)) replaces the stored object, unless its version is older. The store's version rises to
    /// that of the object, even if the write is stale.
    ///
    /// Events of different objects may arrive in any order. The store keeps no record of a deleted object, so a late event of that object adds it
    /// again. (An [`Informer`](crate::Informer) remembers deletions and ignores such an event.)
    ///
    /// # Panics
    /// Panics only if the transformation, a function of the schema, or a trait method of a key or an index value panics; nothing is changed in that
    /// case. This call may also drop the replaced object: a panic of that drop propagates after the write is complete.
    pub fn upsert(&mut self, object: V) -> WriteOutcome {
        let arrived = self.inner.read(object);
        self.write(|core, effects| core.upsert(arrived, effects))
    }

    /// Deletes the object under a key. `last` is its last state, if known. Without it, the change carries the stored state and has the kind
    /// [`Missed`](crate::ChangeKind::Missed), because the store may have missed later states.
    ///
    /// A `last` that is older than the stored object is [stale](WriteOutcome::Stale). The store's version rises to that of `last` in any case.
    ///
    /// # Panics
    /// Panics only if the transformation, a function of the schema, or a trait method of a key panics; nothing is changed in that case. As with
    /// [`upsert`](Self::upsert), a panic in the drop of the stored object propagates after the write is complete.
    pub fn delete<Q>(&mut self, key: &Q, last: Option<V>) -> WriteOutcome
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let (hash, last, version) = self.deletion(key, last);
        self.write(|core, effects| core.delete((hash, key), last.as_ref(), version, effects))
    }

    /// Raises the store's version, because the source has delivered every change up to `version`. Never lowers it.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Schema, Store, Version};
    ///
    /// let mut pods = Store::builder(Schema::new(|pod: &(&str, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
    /// pods.upsert(("a", 7));
    /// pods.bookmark(Version::new(9));
    /// pods.bookmark(Version::new(8));
    /// assert_eq!(pods.version(), Version::new(9));
    /// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
    /// ```
    pub fn bookmark(&mut self, version: Version) {
        self.write(|core, effects| core.bookmark(version, effects));
    }

    /// Replaces the store's content by a complete list, at once, and returns the changes: deletions first, with the last known state, then updates and
    /// additions. Like a [`relist`](Self::relist) in one call; see [`Relist::publish`].
    ///
    /// # Panics
    /// The same as for [`Relist::publish`].
    pub fn replace(&mut self, items: impl IntoIterator<Item = V>, version: Version) -> Vec<Change<K, V>> {
        let mut list = self.relist();
        items.into_iter().for_each(|item| list.insert(item));
        list.publish(version)
    }

    /// Begins a complete list that arrives in pages.
    pub fn relist(&mut self) -> Relist<'_, K, V> {
        Relist::new(self)
    }

    /// Begins a transaction: several writes that are published at once or not at all.
    #[must_use = "a transaction that is dropped has written nothing"]
    pub fn transaction(&mut self) -> Transaction<'_, K, V> {
        Transaction::new(self)
    }

    /// Adds an index to the running store.
    ///
    /// Runs the index function for every object within this call. Readers do not wait for it, and can query the index when it returns. O(objects).
    ///
    /// # Errors
    /// Returns an error if the store has an index of this name.
    ///
    /// # Panics
    /// Panics only if a trait method of the index values (such as `Eq` or `Ord`) panics. In that case the index is not added, and nothing else is
    /// changed.
    pub fn add_index(&mut self, index: &impl AnyIndex<V>) -> Result<(), DuplicateIndex> {
        let mut build = IndexBuild::new(index.define(), &self.core.store)?;
        build.catch_up(self.inner.table());
        self.write(|core, _| build.install(core))
    }

    /// Removes an index from the running store. O(1) for readers; the memory of the index is freed by this call, or with the last snapshot that has
    /// the index. Subscriptions to a value of the index end.
    ///
    /// # Errors
    /// Returns an error if the store has no index of this name and type of values.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Index, Schema, Store, Version};
    ///
    /// static BY_LENGTH: Index<&str, usize> = Index::new("length", |word| word.len());
    ///
    /// let mut words = Store::builder(Schema::new(|word: &&str| *word, |_| Version::ZERO)).build()?;
    /// words.upsert("one");
    /// words.add_index(&BY_LENGTH)?;
    /// let view = words.snapshot();
    /// words.remove_index(&BY_LENGTH)?;
    /// assert!(words.by_index(&BY_LENGTH, &3).is_err());
    /// assert_eq!(view.by_index(&BY_LENGTH, &3)?.len(), 1); // the snapshot keeps the index
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove_index(&mut self, index: &impl AnyIndex<V>) -> Result<(), MissingIndex> {
        let index = index.define();
        let removed = self.write(|core, effects| core.remove_index(&index, effects));
        drop(removed?);
        Ok(())
    }

    /// Ends every subscription once its pending changes are delivered, and ends every wait. Idempotent.
    ///
    /// The store itself stays readable and writable, but writes are not reported to subscriptions or observers. Dropping the writer closes the store, too.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Schema, Store, Version, Writer};
    ///
    /// let mut pods: Writer<&str, _> =
    ///     Store::builder(Schema::new(|pod: &(&str, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
    /// let mut changes = pods.subscribe();
    /// pods.upsert(("a", 1));
    /// pods.close();
    /// pods.upsert(("b", 2)); // stored, but not delivered
    /// assert_eq!(pods.len(), 2);
    /// assert_eq!(changes.blocking_next().map(|change| *change.key()), Some("a"));
    /// assert!(changes.blocking_next().is_none());
    /// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
    /// ```
    pub fn close(&mut self) {
        self.write(|core, effects| core.close(effects));
    }

    pub(super) fn publish(&mut self, draft: RelistDraft<K, V>, version: Version) -> Vec<Change<K, V>> {
        let mut list = Publication::of_list(&self.core.store, draft, version);
        self.core.release_table();
        list.run_to(Stage::Done);
        list.into_changes()
    }

    pub(super) fn commit(
        &mut self,
        table: Arc<Table<K, V>>,
        version: Version,
        writes: Vec<KeyWrite<K, V>>,
    ) -> Vec<Change<K, V>> {
        let mut publication =
            Publication::new(self.core.store.clone(), table, VersionAdvance::Changes(version), writes);
        self.core.release_table();
        publication.run_to(Stage::Done);
        publication.into_changes()
    }

    fn write<R>(&mut self, write: impl FnOnce(&mut WriterCore<K, V>, &mut Effects<K, V>) -> R) -> R {
        let mut effects = Effects::default();
        let written = write(&mut self.core, &mut effects);
        effects.finish(self.core.inner());
        // Dropped here, because a panic in this drop while the function returns would leak the return value.
        drop(effects);
        written
    }
}

impl<K, V> Store<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Returns, for a deletion, the hash of the key, the last state in the form in which it would be stored, and the version.
    pub(super) fn deletion<Q>(&self, key: &Q, last: Option<V>) -> (u64, Option<Arc<V>>, Version)
    where
        Q: Hash + ?Sized,
    {
        let reader = &self.inner.reader;
        let hash = reader.seed.hash_one(key);
        let version = last.as_ref().map_or(Version::ZERO, |last| reader.schema.version(last));
        (hash, last.map(|last| transformed(last, self.inner.transform.as_ref())), version)
    }
}

impl<K, V> Deref for Writer<K, V> {
    type Target = Store<K, V>;

    fn deref(&self) -> &Store<K, V> {
        &self.core.store
    }
}

/// Closes the store, because there will be no more writes.
impl<K, V> Drop for Writer<K, V> {
    fn drop(&mut self) {
        let mut effects = Effects::default();
        self.core.close(&mut effects);
        effects.wakers.wake();
    }
}

impl<K, V> fmt::Debug for Writer<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("store", &self.core.store).finish_non_exhaustive()
    }
}
