//! SHELL. The writer of a store.

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
/// When a call returns, every [`Store`] handle shows the write, and the change is pending in every subscription that selects it. A writer derefs to
/// [`Store`], so you can read through it; [`store`](Self::store) returns separate handles for readers. Dropping the writer [closes](Self::close) the
/// store.
///
/// There is no concurrent writer, so what a writer has looked up is still valid when it writes. The methods of the writer call the functions of the
/// schema and of indexes while they hold no lock. To write from several threads, use a [`SharedWriter`].
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

    /// Converts the writer to a [`SharedWriter`], which several threads can use. A lock serialises their calls.
    #[must_use]
    pub fn into_shared(self) -> SharedWriter<K, V> {
        SharedWriter::new(self)
    }

    /// Applies a watch event. `Added` and `Modified` have the same effect: whether the object is added or updated depends only on what is stored.
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

    /// Stores an object, unless the store has the same or a newer state of it.
    ///
    /// An older state never overwrites a newer one: if the same object is stored at this version or a newer one, the write is
    /// [stale](WriteOutcome::Stale). (An object without a version is never stale.) An object with a different identity (see
    /// [`Schema::with_identity`](crate::Schema::with_identity)) replaces the stored object, unless the version of the new object is older. The
    /// store's version rises to the version of the object, even if the write is stale.
    ///
    /// Events of different objects may arrive in any order. The store keeps no record of a deleted object, so a late event for that object adds it
    /// again. (An [`Informer`](crate::Informer) keeps a record of deletions, and ignores such an event.)
    ///
    /// # Panics
    /// Panics only if the transformation, a function of the schema, or a trait method of a key or an index value panics; nothing is changed in that
    /// case. The call may also drop the replaced object. A panic in its destructor propagates after the write is complete.
    pub fn upsert(&mut self, object: V) -> WriteOutcome {
        let (hash, key) = self.inner.reader.name(&object);
        // The cache miss overlaps with moving the object to its allocation.
        self.core.prefetch(hash);
        let mut arrived =
            Some(self.inner.reader.read_named(hash, key, object, self.inner.transform.as_ref()));
        self.write(|core, effects| core.upsert(&mut arrived, effects))
    }

    /// Deletes the object with this key. `last` is the last state of the object, if you have it. If `last` is `None`, the change contains the stored
    /// state and has the kind [`Missed`](crate::ChangeKind::Missed), because the store may have missed later states.
    ///
    /// The deletion is [stale](WriteOutcome::Stale) if `last` is older than the stored object. If `last` is a state of another object (see
    /// [`Schema::with_identity`](crate::Schema::with_identity)), the deletion is also stale if `last` has the version of the stored object: then the
    /// source has created the stored object in the write that deleted the other one. (If `last` has no version, the deletion is never stale.) In any
    /// case, the store's version rises to the version of `last`.
    ///
    /// # Panics
    /// Panics only if the transformation, a function of the schema, or a trait method of a key panics; nothing is changed in that case. As with
    /// [`upsert`](Self::upsert), a panic in the destructor of the stored object propagates after the write is complete.
    pub fn delete<Q>(&mut self, key: &Q, last: Option<V>) -> WriteOutcome
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let (hash, last, version) = self.deletion(key, last);
        self.write(|core, effects| core.delete((hash, key), last.as_ref(), version, effects))
    }

    /// Raises the store's version to `version`, because the source has delivered every change up to it. Never lowers the store's version.
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

    /// Replaces the content of the store with a complete list, in one step, and returns the changes. Deletions come first, with the last known state
    /// of each object, and then updates and additions. This is a [`relist`](Self::relist) in one call; see [`Relist::publish`].
    ///
    /// # Panics
    /// Panics like [`Relist::publish`].
    pub fn replace(&mut self, items: impl IntoIterator<Item = V>, version: Version) -> Vec<Change<K, V>> {
        let mut list = self.relist();
        items.into_iter().for_each(|item| list.insert(item));
        list.publish(version)
    }

    /// Begins a relist: a complete list of the objects, which may arrive in pages.
    pub fn relist(&mut self) -> Relist<'_, K, V> {
        Relist::new(self)
    }

    /// Begins a transaction: several writes that are published together or not at all.
    #[must_use = "a transaction that is dropped has written nothing"]
    pub fn transaction(&mut self) -> Transaction<'_, K, V> {
        Transaction::new(self)
    }

    /// Adds an index to the running store.
    ///
    /// This call runs the index function for every object. Readers do not wait meanwhile, and can query the index when the call returns. O(objects).
    ///
    /// # Errors
    /// Returns an error if the store already has an index with this name.
    ///
    /// # Panics
    /// Panics only if a trait method of the index values (such as `Eq` or `Ord`) panics. In that case the index is not added, and nothing else is
    /// changed.
    pub fn add_index(&mut self, index: &impl AnyIndex<V>) -> Result<(), DuplicateIndex> {
        let mut build = IndexBuild::new(index.define(), &self.core.store)?;
        build.catch_up(self.inner.table());
        self.write(|core, _| build.install(core))
    }

    /// Removes an index from the running store. Readers wait only O(1). This call frees the memory of the index, unless snapshots contain the index:
    /// then its memory is freed when the last of them is dropped. Subscriptions that select a value of the index end.
    ///
    /// # Errors
    /// Returns an error if the store has no index with this name and this type of values.
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

    /// Closes the store: ends every wait, and ends every subscription after its pending changes are delivered. Idempotent.
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
    /// assert_eq!(changes.try_next().map(|change| *change.key()), Some("a"));
    /// assert!(flyball_sync::block_on(changes.next()).is_none()); // the end
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
        self.core.drop_values(std::mem::take(&mut effects.values));
        // `effects` is dropped explicitly, because a panic in a destructor while the function returns would leak the return value.
        drop(effects);
        written
    }
}

impl<K, V> Store<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Prepares a deletion: returns the hash of the key, the last state after the transformation, and the version of the last state.
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
        std::mem::take(&mut effects.wakers).wake();
    }
}

impl<K, V> fmt::Debug for Writer<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("store", &self.core.store).finish_non_exhaustive()
    }
}
