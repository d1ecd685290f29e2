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
use std::collections::VecDeque;
use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;

use flyball_sync::locks::{AtomicUsize, Mutex, Ordering, thread_number};

use super::effects::Effects;
use super::indexes::IndexBuild;
use super::object_reader::ParsedObject;
use super::publication::{Publication, Stage};
use super::relist::{RelistDraft, Unlisted};
use super::write::WriterCore;
use crate::table::record::Record;
use crate::{
    AnyIndex, Change, DuplicateIndex, MissingIndex, Store, Version, WatchEvent, WriteOutcome, Writer,
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
/// pods.bookmark(Version::new(9));
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

/// A list that replaces the content of the store. What is left of it is dropped after `turn` is released, even if user code panics under `turn`.
struct Replacement<K, V> {
    /// The objects that are not listed yet.
    items: VecDeque<ParsedObject<K, V>>,
    draft: Option<RelistDraft<K, V>>,
    unlisted: Unlisted<K, V>,
    list: Option<Publication<K, V>>,
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

    /// Like [`Writer::upsert`].
    ///
    /// # Panics
    /// Panics like [`Writer::upsert`]. Also panics if user code that runs under the lock of this writer calls it; nothing is changed in that case,
    /// either.
    pub fn upsert(&self, object: V) -> WriteOutcome {
        let mut arrived = Some(self.inner.read(object));
        self.write(|core, effects| core.upsert(&mut arrived, effects))
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
        let (hash, last, version) = self.deletion(key, last);
        self.write(|core, effects| core.delete((hash, key), last.as_ref(), version, effects))
    }

    /// Like [`Writer::bookmark`].
    ///
    /// # Panics
    /// The same as for [`upsert`](Self::upsert).
    pub fn bookmark(&self, version: Version) {
        self.write(|core, effects| core.bookmark(version, effects));
    }

    /// Like [`Writer::replace`]. Reads the keys and versions of all `items`, and transforms them, before it takes the lock; the objects that are not
    /// kept, because they are stored already or listed a second time, are dropped after the lock is released.
    ///
    /// # Panics
    /// The same as for [`upsert`](Self::upsert).
    pub fn replace(&self, items: impl IntoIterator<Item = V>, version: Version) -> Vec<Change<K, V>> {
        self.replace_stamped(items, |_| {}, || version)
    }

    /// Like [`replace`](Self::replace), with versions that are chosen under `turn`, so that they are greater than those of earlier writes. Calls
    /// `stamp` with each object, in the order of the list, to set its version, and then `version` for the version of the list.
    pub(crate) fn replace_stamped(
        &self,
        items: impl IntoIterator<Item = V>,
        mut stamp: impl FnMut(&mut Record<K, V>),
        version: impl FnOnce() -> Version,
    ) -> Vec<Change<K, V>> {
        let items = items.into_iter().map(|item| self.inner.read(item)).collect();
        let mut replacement = Replacement { items, draft: None, unlisted: Unlisted::default(), list: None };
        self.turn(&mut replacement, |core, Replacement { items, draft, unlisted, list }| {
            core.release_table();
            let listing = draft.insert(RelistDraft::new(&core.store));
            while listing.insert_next(items, &mut stamp, unlisted) {}
            if let Some(draft) = draft.take() {
                list.insert(Publication::of_list(&core.store, draft, version())).run_to(Stage::Reporting);
            }
        });
        let Replacement { list, unlisted, .. } = replacement;
        let mut list = list.expect("the list was published above");
        list.run_to(Stage::Done);
        let changes = list.into_changes();
        // Dropped explicitly, because a panic in a destructor while the function returns would leak the return value.
        drop(unlisted);
        changes
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
        let mut build = IndexBuild::new(index.define(), self)?;
        // Each round after the first indexes the objects that were written during the previous round.
        for _ in 0..ROUNDS {
            build.catch_up(self.inner.table());
        }
        self.write(|core, _| {
            build.catch_up(core.table());
            build.install(core)
        })
    }

    /// Like [`Writer::remove_index`].
    ///
    /// # Errors
    /// Returns an error if the store has no index with this name and this type of values.
    ///
    /// # Panics
    /// The same as for [`upsert`](Self::upsert).
    pub fn remove_index(&self, index: &impl AnyIndex<V>) -> Result<(), MissingIndex> {
        let index = index.define();
        let removed = self.write(|core, effects| core.remove_index(&index, effects));
        drop(removed?);
        Ok(())
    }

    /// Like [`Writer::close`].
    ///
    /// # Panics
    /// The same as for [`upsert`](Self::upsert).
    pub fn close(&self) {
        self.write(|core, effects| core.close(effects));
    }

    /// Commits the list of an informer. While an informer runs, nothing else writes objects to its store; only indexes may be added or removed.
    pub(crate) fn commit(&self, list: &mut Publication<K, V>) {
        self.turn(list, |core, list| {
            core.release_table();
            list.commit();
        });
    }

    pub(super) fn write<R>(&self, write: impl FnOnce(&mut WriterCore<K, V>, &mut Effects<K, V>) -> R) -> R {
        let mut effects = Effects::default();
        let written = self.turn(&mut effects, write);
        effects.finish(&self.inner);
        // `effects` is dropped explicitly, because a panic in a destructor while the function returns would leak the return value.
        drop(effects);
        written
    }

    /// Runs `write` under `turn`. `write` puts the work that must run without `turn` into `after`, which the caller drops after `turn` is released,
    /// even if `write` panics.
    fn turn<E, R>(&self, after: &mut E, write: impl FnOnce(&mut WriterCore<K, V>, &mut E) -> R) -> R {
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

/// The number of rounds in which a new index is updated while other threads can write. One more round follows, which blocks other writers.
const ROUNDS: usize = 3;

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
