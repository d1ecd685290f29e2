//! SHELL. A writer shared by several threads: `turn` serialises the writes.
//!
//! | | guarded by |
//! |---|---|
//! | the writer | `turn`, held during a write, but not during its effects |
//! | `holder` | no lock: an atomic with the number of the thread that holds `turn`; a thread only checks whether it is the thread's own number |
//!
//! Lock order: `turn` before every lock of the store. Observers are called, tasks are woken, and replaced objects are dropped after `turn` is
//! released, so all of this user code may write. So may the key, version and transformation functions, which run before `turn` is taken. User code
//! that runs under `turn` must not write: identity, content and index functions; `Hash`, `Eq`, `Ord` and `Clone` of keys and index values; and the
//! destructors of index values that are not stored. A write from such code panics, because it would deadlock otherwise.

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;

use flyball_sync::locks::{AtomicUsize, Mutex, Ordering, thread_number};

use super::access::Access;
use super::publication::Publication;
use super::write::WriterCore;
use crate::{
    AnyIndex, Change, DuplicateIndex, MissingIndex, Store, Transaction, Version, WatchEvent, WriteOutcome,
    Writer,
};

/// A [`Writer`] that several threads, tasks and observers can use; made by [`Writer::into_shared`]. `SharedWriter` is a handle: clones share the
/// writer, and dropping the last clone closes the store.
///
/// A lock serialises the writes. The key, version and transformation functions run before the lock is taken, and observers are called after it is
/// released. So these functions and the observers may run on several threads concurrently, and may write to this store. All other user code runs
/// under the lock: the schema's identity and content functions, the index functions, the trait methods of keys and index values, and the destructors of
/// index values that are not stored, for example because an equal value is. It must not write to this store; a write panics.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Schema, Store, Version};
///
/// let mut pods = Store::builder(Schema::new(|pod: &(u64, u64)| pod.0, |pod| Version::new(pod.1))).build()?.into_shared();
/// let threads: Vec<_> = (0..4)
///     .map(|key| {
///         let pods = pods.clone();
///         std::thread::spawn(move || pods.upsert((key, 1)))
///     })
///     .collect();
/// threads.into_iter().for_each(|thread| assert!(thread.join().unwrap().is_change()));
/// assert_eq!(pods.len(), 4);
/// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
/// ```
///
/// An observer that writes, and a handwritten watch loop:
/// ```
/// use flyball_informer_cache::{Index, Schema, SharedWriter, Store, Version, WatchEvent};
///
/// type Pod = (&'static str, u64);
/// static BY_LENGTH: Index<Pod, usize> = Index::new("length", |pod| pod.0.len());
///
/// let schema = Schema::new(|pod: &Pod| pod.0, |pod| Version::new(pod.1));
/// let pods: SharedWriter<_, Pod> = Store::builder(schema).build()?.into_shared();
/// let names = Store::builder(Schema::new(|name: &&str| *name, |_| Version::ZERO)).build()?.into_shared();
/// let written = names.clone();
/// let observer = pods.observe(move |change| drop(written.upsert(*change.key())));
///
/// pods.apply(WatchEvent::Added(("a", 7)));
/// pods.apply(WatchEvent::Bookmark(Version::new(9)));
/// assert_eq!((pods.version(), names.len()), (Version::new(9), 1));
///
/// pods.add_index(&BY_LENGTH)?;
/// assert_eq!(pods.by_index(&BY_LENGTH, &1)?.len(), 1);
/// pods.remove_index(&BY_LENGTH)?;
/// pods.close(); // or drop the last handle
/// # drop(observer);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SharedWriter<K, V> {
    shared: Arc<Shared<K, V>>,
}

struct Shared<K, V> {
    store: Store<K, V>,
    turn: Mutex<Writer<K, V>>,
    holder: AtomicUsize,
}

/// A guard that resets `holder` when it is dropped, because the current thread no longer holds `turn`.
struct Holding<'a>(&'a AtomicUsize);

/// The value of `holder` while no thread holds `turn`.
const NO_HOLDER: usize = usize::MAX;

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        // Ordering: Relaxed, because only the thread that stored a number acts on it.
        self.0.store(NO_HOLDER, Ordering::Relaxed);
    }
}

impl<K, V> SharedWriter<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    pub(super) fn new(writer: Writer<K, V>) -> Self {
        let store = writer.store();
        let holder = AtomicUsize::new(NO_HOLDER);
        Self { shared: Arc::new(Shared { store, turn: Mutex::new(writer), holder }) }
    }

    /// Returns a handle for readers.
    #[must_use]
    pub fn store(&self) -> Store<K, V> {
        self.shared.store.clone()
    }

    /// Like [`Writer::apply`].
    ///
    /// # Panics
    /// The same as for [`upsert`](Self::upsert).
    pub fn apply(&self, event: WatchEvent<V>) -> WriteOutcome {
        self.access().apply(event)
    }

    /// Like [`Writer::upsert`].
    ///
    /// # Panics
    /// Panics like [`Writer::upsert`]. Also panics if user code that runs under the lock of this writer calls it; nothing is changed in that case,
    /// either.
    pub fn upsert(&self, object: V) -> WriteOutcome {
        self.access().upsert(object)
    }

    /// Like [`Writer::delete`].
    ///
    /// # Panics
    /// The same as for [`upsert`](Self::upsert).
    pub fn delete<Q>(&self, key: &Q, last: Option<V>) -> WriteOutcome
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.access().delete(key, last)
    }

    /// Like [`Writer::replace`]. Reads the keys and versions of all `items`, and transforms them, before it takes the lock; the objects that are not
    /// kept, because they are stored already or listed a second time, are dropped after the lock is released.
    ///
    /// # Panics
    /// The same as for [`upsert`](Self::upsert).
    pub fn replace(&self, items: impl IntoIterator<Item = V>, version: Version) -> Vec<Change<K, V>> {
        self.access().replace(items, version)
    }

    /// Begins a transaction, like [`Writer::transaction`]. Other threads may write before its commit, which takes the lock and compares each write with
    /// the objects that are stored then.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Schema, Store, Version, WriteOutcome};
    ///
    /// let routes = Store::builder(Schema::new(|route: &(&str, u32)| route.0, |_| Version::ZERO)).build()?.into_shared();
    /// routes.upsert(("/old", 1));
    /// let mut rename = routes.transaction();
    /// rename.delete("/old", None);
    /// rename.upsert(("/new", 1));
    /// assert_eq!(routes.upsert(("/other", 2)), WriteOutcome::Added); // by any thread
    /// assert_eq!(rename.commit().len(), 2);
    /// assert!(routes.get("/old").is_none() && routes.len() == 2);
    /// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
    /// ```
    #[must_use = "a transaction that is dropped has written nothing"]
    pub fn transaction(&self) -> Transaction<'_, K, V> {
        Transaction::new(self.access())
    }

    /// Like [`Writer::add_index`]. Runs the index function without the lock first, and then under the lock for objects that were written in the
    /// meantime.
    ///
    /// # Errors
    /// Returns an error if the store already has an index with this name, even if that index was added during this call.
    ///
    /// # Panics
    /// The same as for [`upsert`](Self::upsert).
    pub fn add_index(&self, index: &impl AnyIndex<V>) -> Result<(), DuplicateIndex> {
        self.access().add_index(index)
    }

    /// Like [`Writer::remove_index`].
    ///
    /// # Errors
    /// Returns an error if the store has no index with this name and of this [kind](crate::Index).
    ///
    /// # Panics
    /// The same as for [`upsert`](Self::upsert).
    pub fn remove_index(&self, index: &impl AnyIndex<V>) -> Result<(), MissingIndex> {
        self.access().remove_index(index)
    }

    /// Like [`Writer::close`].
    ///
    /// # Panics
    /// The same as for [`upsert`](Self::upsert).
    pub fn close(&self) {
        self.access().close();
    }

    pub(super) fn access(&self) -> Access<'_, K, V> {
        Access::Locked(self)
    }

    /// Commits the list of an informer. While an informer runs, nothing else writes objects to its store; only indexes may be added or removed.
    pub(crate) fn commit(&self, list: &mut Publication<K, V>) {
        self.turn(list, |core, list| {
            core.release_table();
            list.commit();
        });
    }

    /// Runs `write` under `turn`. `write` puts the work that must run without `turn` into `after`, which the caller drops after `turn` is released,
    /// even if `write` panics.
    pub(super) fn turn<E, R>(
        &self,
        after: &mut E,
        write: impl FnOnce(&mut WriterCore<K, V>, &mut E) -> R,
    ) -> R {
        let Shared { turn, holder, .. } = &*self.shared;
        let me = thread_number();
        // Ordering: Relaxed, because a thread reads its own number only if it stored that number itself.
        let within = holder.load(Ordering::Relaxed) == me;
        assert!(!within, "a function that runs in the turn of a write must not write the store");
        let mut writer = turn.lock();
        // Ordering: as above.
        holder.store(me, Ordering::Relaxed);
        // This guard is dropped before `turn` is released, so that it cannot overwrite the number of the next holder.
        let _holding = Holding(holder);
        write(&mut writer.core, after)
    }
}

impl<K, V> Clone for SharedWriter<K, V> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K, V> Deref for SharedWriter<K, V> {
    type Target = Store<K, V>;

    fn deref(&self) -> &Store<K, V> {
        &self.shared.store
    }
}

impl<K, V> fmt::Debug for SharedWriter<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedWriter").field("store", &self.shared.store).finish_non_exhaustive()
    }
}
