//! SHELL. A store whose objects expire. The objects are in a [`SharedWriter`] and the deadlines in an `ExpiryQueue`, which have the locks.
//!
//! | | where | |
//! |---|---|---|
//! | an object, its deadline and its ticket | the store, as one [`TtlEntry`] | so every reader sees them together |
//! | the deadlines, in order | `expiry` | so sweeps find expired objects; reads do not use it |
//!
//! # Invariants
//! 1. Reads compare deadlines with the clock. So, unless the clock is set back, the result of a read at a given instant does not depend on evictions.
//! 2. Each write takes a ticket that is greater than all earlier ones, and the ticket is the version of the object. So of two writes of a key, the
//!    later one wins. A list takes its tickets under the lock of the [`SharedWriter`], so they are greater than those of all objects that it replaces.
//!    A sweep deletes only the expired object that it has found, and not an object that was written under the same key since then, because the store
//!    ignores the deletion of a newer object as stale.
//! 3. The deadline of every stored object is in the expiry queue, if the object has one. The deadline is added before the object is published, and
//!    removed when the object is dropped or when a sweep has handled it. A sweep skips objects whose write is not complete.
//!
//! The policy, the clock and the key function run before the object is published, and while no lock is held. The key function runs twice: for the
//! expiry queue and for the store. Index functions run under the lock of the [`SharedWriter`].

mod builder;
mod deadlines;
mod entry;
mod snapshot;
mod sweep;

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use flyball_sync::{Clock, Monotonic, Nanos};

pub use self::builder::TtlStoreBuilder;
use self::deadlines::ExpiryQueue;
pub use self::entry::TtlEntry;
pub use self::snapshot::TtlSnapshot;
use crate::table::record::{Record, cloned};
use crate::{
    AnyIndex, Change, DuplicateIndex, Index, MissingIndex, Observer, Schema, SharedWriter, Subscription,
    Version, WriteOutcome,
};

/// An indexed store in which each object expires after its time to live. This type is a handle: clones share the store.
///
/// An object is visible **until its age exceeds its time to live**; at exactly that age, it is still visible. After that, no read returns it, even if
/// it is not evicted yet. When a key is written again, with the same object or a different one, its time to live starts again.
///
/// There is no background task, and reads do not evict objects. Each [`upsert`](Self::upsert) and [`delete`](Self::delete) evicts up to two expired
/// objects, besides one under its own key. [`evict_expired`](Self::evict_expired), [`replace`](Self::replace), [`subscribe`](Self::subscribe) and
/// [`observe`](Self::observe) evict all of them. When an object is evicted, observers and subscribers receive its deletion. As long as there are
/// writes, expired objects do not accumulate. If writes are rare, call `evict_expired` at [`next_expiry`](Self::next_expiry).
///
/// Use this store for objects that your process owns and that have no version from a source: each write counts as newer than all earlier writes. For
/// objects that have versions from a source, use [`Store`](crate::Store).
///
/// If the clock is set back, objects live longer by the same amount, and expired objects that were not evicted can become visible again. If the clock
/// jumps ahead, objects expire sooner. An object whose deadline would be more than 584 years after the start of the clock never expires.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Index, WriteOutcome, TtlEntry, TtlStore};
/// use flyball_sync::ManualClock;
/// use std::time::Duration;
///
/// struct Session { id: u32, user: &'static str }
///
/// // Functions receive a `TtlEntry`, which derefs to the object.
/// static BY_USER: Index<TtlEntry<Session>, &str> = Index::new("user", |session| session.user);
///
/// let clock = ManualClock::new(); // by default, the machine's clock
/// let sessions = TtlStore::builder(|session: &TtlEntry<Session>| session.id)
///     .ttl(Duration::from_secs(60))
///     .index(&BY_USER)
///     .clock(clock.clone())
///     .build()?;
/// sessions.upsert(Session { id: 1, user: "ann" });
/// sessions.upsert_with_ttl(Session { id: 2, user: "ann" }, None); // never expires
///
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(sessions.by_index(&BY_USER, "ann")?.len(), 2);
/// let view = sessions.snapshot();
///
/// clock.advance(Duration::from_nanos(1));
/// assert!(sessions.get(&1).is_none());
/// assert_eq!(sessions.by_index(&BY_USER, "ann")?.len(), 1);
/// assert_eq!(view.len(), 2, "a snapshot keeps its instant");
///
/// let swept = sessions.evict_expired();
/// assert_eq!(swept.iter().map(|change| *change.key()).collect::<Vec<_>>(), [1]);
/// assert_eq!(sessions.upsert(Session { id: 1, user: "ben" }), WriteOutcome::Added);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TtlStore<K, V, C = Monotonic> {
    store: SharedWriter<K, TtlEntry<V>>,
    shared: Arc<Shared<K, V, C>>,
}

struct Shared<K, V, C> {
    key: fn(&TtlEntry<V>) -> K,
    policy: Box<Policy<V>>,
    clock: C,
    expiry: Arc<ExpiryQueue<K>>,
}

/// A function that returns the time to live of an object; `None` if the object never expires.
type Policy<V> = dyn Fn(&V) -> Option<Duration> + Send + Sync;

// === impl TtlStore: reading ===

impl<K, V> TtlStore<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Creates a builder for a store with this key function. By default, objects never expire.
    pub fn builder(key: fn(&TtlEntry<V>) -> K) -> TtlStoreBuilder<K, V> {
        TtlStoreBuilder::new(key)
    }
}

impl<K, V, C> TtlStore<K, V, C>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    C: Clock,
{
    fn new(
        store: SharedWriter<K, TtlEntry<V>>,
        key: fn(&TtlEntry<V>) -> K,
        policy: Box<Policy<V>>,
        clock: C,
    ) -> Self {
        Self { store, shared: Arc::new(Shared { key, policy, clock, expiry: Arc::default() }) }
    }

    /// Returns the object under a key.
    pub fn get<Q>(&self, key: &Q) -> Option<Arc<V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let found = self.store.get(key)?;
        let object = self.is_alive(&found).then(|| found.object().clone());
        // `found` may be the last reference to an old entry, whose drop may panic. If it were dropped during the return, the result would leak.
        drop(found);
        object
    }

    /// Returns the number of visible objects. This takes O(n) time for n stored objects, because each deadline is checked.
    #[must_use]
    pub fn len(&self) -> usize {
        self.snapshot().len()
    }

    /// Returns whether there is no visible object. This takes O(n) time for n expired objects that have not been evicted yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.snapshot().is_empty()
    }

    /// Returns the number of stored objects, including expired ones that have not been evicted yet.
    #[must_use]
    pub fn stored_len(&self) -> usize {
        self.store.len()
    }

    /// Takes a consistent snapshot in O(1) time. Objects that are visible when the snapshot is taken stay visible in the snapshot, even if they
    /// expire later.
    #[must_use]
    pub fn snapshot(&self) -> TtlSnapshot<K, V> {
        // The clock is read after the snapshot of the store is taken. So the instant that a `TtlSnapshot` reports is never before the write of one of
        // its objects.
        let view = self.store.snapshot();
        TtlSnapshot::new(view, self.shared.clock.now())
    }

    /// Returns the objects that have `value` in an index, in unspecified order; an unknown value has no objects. This takes O(n) time for n stored
    /// objects with this value.
    ///
    /// # Errors
    /// Returns an error if the store has no such index.
    pub fn by_index<IK, Q>(
        &self,
        index: &Index<TtlEntry<V>, IK>,
        value: &Q,
    ) -> Result<Vec<Arc<V>>, MissingIndex>
    where
        IK: Borrow<Q> + 'static,
        Q: Hash + Eq + ?Sized,
    {
        let snapshot = self.snapshot();
        let objects = cloned(snapshot.by_index(index, value)?);
        // The snapshot is dropped here, because its drop may panic. If it were dropped during the return, the result would leak.
        drop(snapshot);
        Ok(objects)
    }

    /// Delivers the stored objects, then every change, as [`Store::subscribe`](crate::Store::subscribe) does. The deletion of an expired object is
    /// delivered when the object is evicted; to react earlier, use the deadline in its [`TtlEntry`]. Objects that expired before the call are not
    /// delivered.
    #[must_use]
    pub fn subscribe(&self) -> Subscription<K, TtlEntry<V>> {
        self.sweep_first(self.shared.clock.now());
        self.store.subscribe()
    }

    /// Calls `f` with the stored objects, then with every change, as [`Store::observe`](crate::Store::observe) does. For an expired object, `f` is
    /// called when the object is evicted, on the thread that evicts it: a writer, or the caller of [`evict_expired`](Self::evict_expired). Objects
    /// that expired before the call are not reported.
    pub fn observe(
        &self,
        f: impl Fn(&Change<K, TtlEntry<V>>) + Send + Sync + 'static,
    ) -> Observer<K, TtlEntry<V>> {
        self.sweep_first(self.shared.clock.now());
        self.store.observe(f)
    }

    /// Checks every invariant, for tests. Reads all objects and indexes. No thread may write to the store during the check.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        self.store.check()?;
        let view = self.store.snapshot();
        let mut expiring = view.objects().filter(|timed| timed.expires_at().is_some());
        match expiring.find(|timed| !self.shared.expiry.is_complete(timed.place())) {
            Some(timed) => Err(format!("{:?} is stored, but not in the expiry queue", timed.place())),
            None => Ok(()),
        }
    }

    fn is_alive(&self, timed: &TtlEntry<V>) -> bool {
        // The clock is read only if the object can expire.
        timed.expires_at().is_none() || timed.is_alive_at(self.shared.clock.now())
    }
}

// === impl TtlStore: writing ===

impl<K, V, C> TtlStore<K, V, C>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    C: Clock,
{
    /// Stores an object with the time to live that the policy returns for it. The outcome is [added](WriteOutcome::Added) if there is no object under
    /// the key or the object there has expired, and [updated](WriteOutcome::Updated) otherwise. In both cases, the time to live starts now.
    ///
    /// The outcome is [stale](WriteOutcome::Stale) only if another thread started a later write of the key and completed it first.
    ///
    /// # Panics
    /// Panics only if the policy, the clock, the key function, or a trait method of a key or an index value panics. In that case, no visible object
    /// is changed. The call may also drop the replaced object. A panic in its destructor propagates after the write is complete. Panics during the
    /// eviction of other objects are ignored.
    pub fn upsert(&self, object: V) -> WriteOutcome {
        let ttl = (self.shared.policy)(&object);
        self.upsert_with_ttl(object, ttl)
    }

    /// Stores an object with the time to live `ttl`, or forever if it is `None`, without calling the policy. Otherwise like [`upsert`](Self::upsert).
    ///
    /// An object with a time to live of zero is visible until the clock advances.
    ///
    /// # Panics
    /// The same as for [`upsert`](Self::upsert).
    pub fn upsert_with_ttl(&self, object: V, ttl: Option<Duration>) -> WriteOutcome {
        let now = self.shared.clock.now();
        let (mut timed, key) = self.timed(object, now, ttl);
        timed.enter(&self.shared.expiry, &key);
        self.take_expired(&*key, now);
        let written = self.shared.expiry.complete_after(timed.place());
        let outcome = self.store.upsert(timed);
        drop(written);
        self.sweep_along(now);
        outcome
    }

    /// Deletes the object under a key, and returns it. Returns `None` if there is no object or if it has expired.
    ///
    /// # Panics
    /// Panics only if the clock or a trait method of a key panics. In that case, no visible object is changed.
    pub fn delete<Q>(&self, key: &Q) -> Option<Arc<V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let now = self.shared.clock.now();
        let mut deleted = None;
        while !self.take_expired(key, now) {
            let Some(found) = self.store.get(key) else { break };
            // If another thread has written the key meanwhile, the deletion is stale, and the loop deletes the new object.
            if self.store.delete(key, Some(found.tombstone())) == WriteOutcome::Deleted {
                deleted = Some(found.object().clone());
                break;
            }
        }
        self.sweep_along(now);
        deleted
    }

    /// Atomically replaces the content of the store by a complete list, and returns the changes. All objects are written at the same instant, each
    /// with the time to live that the policy returns for it. If a key is listed several times, its last object is stored.
    ///
    /// Before the list is stored, expired objects are evicted. So observers and subscribers receive the deletions of the expired objects, even if the
    /// list contains their keys, and these deletions are not among the returned changes.
    ///
    /// # Panics
    /// Panics only if the iterator, the policy, the clock, the key function, or a trait method of a key or an index value panics. In that case, no
    /// object of the list is stored.
    pub fn replace(&self, items: impl IntoIterator<Item = V>) -> Vec<Change<K, TtlEntry<V>>> {
        let now = self.shared.clock.now();
        // The iterator and the policy run before the store is changed.
        let listed: Vec<_> =
            items.into_iter().map(|object| ((self.shared.policy)(&object), object)).collect();
        self.sweep_first(now);
        let expiry = &self.shared.expiry;
        let timed = listed.into_iter().map(|(ttl, object)| self.timed(object, now, ttl));
        let (timed, keys): (Vec<_>, Vec<_>) = timed.unzip();
        let mut written = Vec::with_capacity(keys.len());
        let mut keys_left = keys.iter();
        // Invariant 2. Without the lock, a concurrent `upsert` could take a later ticket and still be replaced by the list. A deletion of its object
        // would then not be stale, and would delete the listed object.
        let stamp = |record: &mut Record<K, TtlEntry<V>>| {
            let timed = Arc::get_mut(&mut record.object).zip(keys_left.next());
            let (timed, key) = timed.expect("each object has a key, and is not shared yet");
            timed.enter(expiry, key);
            record.version = Version::new(timed.place().ticket);
            written.push(expiry.complete_after(timed.place()));
        };
        let changes = self.store.replace_stamped(timed, stamp, || Version::new(expiry.ticket()));
        drop(written);
        // Dropped explicitly, because a panic in a destructor while the function returns would leak the return value.
        drop(keys);
        changes
    }

    /// Adds an index to the store while it is in use, like [`SharedWriter::add_index`].
    ///
    /// # Errors
    /// Returns an error if the store already has an index with this name, even if that index was added during this call.
    ///
    /// # Panics
    /// Panics only if a trait method of the index values (such as `Eq` or `Ord`) panics. In that case, the index is not added, and the store is not
    /// changed.
    pub fn add_index(&self, index: &impl AnyIndex<TtlEntry<V>>) -> Result<(), DuplicateIndex> {
        self.store.add_index(index)
    }

    /// Removes an index from the store while it is in use, like [`SharedWriter::remove_index`].
    ///
    /// # Errors
    /// Returns an error if the store has no index with this name and value type.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Index, TtlEntry, TtlStore};
    ///
    /// static BY_FIRST: Index<TtlEntry<String>, Option<char>> = Index::new("first letter", |word| word.chars().next());
    ///
    /// let words = TtlStore::builder(|word: &TtlEntry<String>| word.len()).build()?;
    /// words.upsert("one".into());
    /// words.add_index(&BY_FIRST)?;
    /// assert_eq!(words.by_index(&BY_FIRST, &Some('o'))?.len(), 1);
    /// words.remove_index(&BY_FIRST)?;
    /// assert!(words.by_index(&BY_FIRST, &Some('o')).is_err());
    /// words.close(); // for subscribers; the store can still be read
    /// assert!(words.get(&3).is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove_index(&self, index: &impl AnyIndex<TtlEntry<V>>) -> Result<(), MissingIndex> {
        self.store.remove_index(index)
    }

    /// Ends every subscription after its pending changes are delivered. The store can still be read and written, but later changes are not reported.
    pub fn close(&self) {
        self.store.close();
    }

    /// Creates the entry of an object, whose deadline is not in the expiry queue yet. Returns the entry and its key.
    fn timed(&self, object: V, now: Nanos, ttl: Option<Duration>) -> (TtlEntry<V>, Arc<K>) {
        let timed = TtlEntry::new(object, now, ttl);
        let key = Arc::new((self.shared.key)(&timed));
        (timed, key)
    }
}

impl<K, V, C> Clone for TtlStore<K, V, C> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), shared: self.shared.clone() }
    }
}

impl<K, V, C> fmt::Debug for TtlStore<K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TtlStore").field("store", &self.store).finish_non_exhaustive()
    }
}

/// Creates the schema of the entries. All objects with the same key count as states of one object, and the ticket of an entry is its version.
fn schema<K, V>(key: fn(&TtlEntry<V>) -> K) -> Schema<K, TtlEntry<V>> {
    Schema::new(key, |timed| Version::new(timed.place().ticket))
}
