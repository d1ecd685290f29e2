//! SHELL. The writer of a store.

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::ops::Deref;

use super::access::Access;
use super::effects::Effects;
use super::write::WriterCore;
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
    ///
    /// A bookmark raises the store's version, because the source has delivered every change up to it. It never lowers the version.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Schema, Store, Version, WatchEvent};
    ///
    /// let mut pods = Store::builder(Schema::new(|pod: &(&str, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
    /// pods.apply(WatchEvent::Added(("a", 7)));
    /// pods.apply(WatchEvent::Bookmark(Version::new(9)));
    /// pods.apply(WatchEvent::Bookmark(Version::new(8)));
    /// assert_eq!(pods.version(), Version::new(9));
    /// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
    /// ```
    pub fn apply(&mut self, event: WatchEvent<V>) -> WriteOutcome {
        self.access().apply(event)
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
    /// Panics only if the transformation, a function of the schema, a trait method of a key, or `Eq` of an index value that a subscription selects
    /// panics; nothing is changed in that case. The call may also drop the replaced object. A panic in its destructor propagates after the write is
    /// complete.
    pub fn upsert(&mut self, object: V) -> WriteOutcome {
        self.access().upsert(object)
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
        self.access().delete(key, last)
    }

    /// Replaces the content of the store with a complete list, in one step, and returns the changes. Deletions come first, with the last known state
    /// of each object, and then updates and additions. This is a [`relist`](Self::relist) in one call; see [`Relist::publish`].
    ///
    /// # Panics
    /// Panics like [`Relist::publish`].
    pub fn replace(&mut self, items: impl IntoIterator<Item = V>, version: Version) -> Vec<Change<K, V>> {
        self.access().replace(items, version)
    }

    /// Begins a relist: a complete list of the objects, which may arrive in pages.
    pub fn relist(&mut self) -> Relist<'_, K, V> {
        Relist::new(self)
    }

    /// Begins a transaction: several writes that are published together or not at all.
    #[must_use = "a transaction that is dropped has written nothing"]
    pub fn transaction(&mut self) -> Transaction<'_, K, V> {
        Transaction::new(self.access())
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
        self.access().add_index(index)
    }

    /// Removes an index from the running store. Readers wait only O(1). This call frees the memory of the index, unless snapshots contain the index:
    /// then its memory is freed when the last of them is dropped. Subscriptions that select a value of the index end.
    ///
    /// # Errors
    /// Returns an error if the store has no index with this name and of this [kind](crate::Index).
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
        self.access().remove_index(index)
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
        self.access().close();
    }

    pub(super) fn access(&mut self) -> Access<'_, K, V> {
        Access::Exclusive(&mut self.core)
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
