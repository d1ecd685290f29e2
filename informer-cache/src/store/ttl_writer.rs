//! SHELL. A writer whose objects expire: a [`SharedWriter`], and the deadlines of the rows of its table.
//!
//! | | guarded by |
//! |---|---|
//! | the store | the lock `turn` of the [`SharedWriter`] |
//! | `deadlines`: the deadlines, and the waker of the sweeper | its own lock, which is taken after `turn`, and under which no user code runs |
//! | `SWEEPS` | nothing: it is thread-local |
//!
//! # Invariants
//! 1. Outside of `turn`, a row has a deadline if and only if it has an object that expires. A write and a sweep set it in the turn in which they change
//!    the object. So a sweep never deletes an object that was written since its deadline was found to be over.
//! 2. The sweeper reads the earliest deadline and stores its waker in one critical section. So it is woken for every earlier one that is set afterwards.
//!
//! The timer is called, and the functions of the schema run, while no lock is held. A `TtlWriter` is the only handle that writes to its store, so no list
//! moves an object to another row.

mod deadlines;
mod sweeper;

use std::borrow::Borrow;
use std::cell::Cell;
use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use flyball_sync::locks::{Mutex, thread_local};
use flyball_sync::panics::{DropContained, caught, keep_first, raise};
use flyball_sync::{Nanos, Timer};

use self::deadlines::Deadlines;
use self::sweeper::Sweeper;
use super::effects::Effects;
use super::write::WriterCore;
use crate::table::record::allocated;
use crate::{SharedWriter, Store, WriteOutcome, Writer};

/// A writer whose objects expire. `TtlWriter` is a handle: clones share the writer, and dropping the last clone closes the store.
///
/// The readers of the store use an ordinary [`Store`]. An object expires when its time to live has passed since its last write. It stays in the store
/// until a **sweep** deletes it; then observers and subscribers receive its deletion. Until then, every read returns it, and a write of its key is an
/// update. A reader that must not accept an expired object compares a time that is stored in the object.
///
/// Expired objects are swept by the future that [`new`](Self::new) returns, at each deadline; by [`sweep`](Self::sweep); and by each write, which
/// deletes up to two of them. So as long as there are writes, expired objects do not accumulate, even if the future is dropped. (A write by an observer of
/// the deletion of an expired object may delete no other one.)
///
/// If the clock is set back, objects live longer by the same time; if it jumps ahead, they expire sooner. An object whose deadline would be more than 584
/// years after the start of the clock never expires.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{ManualClock, Schema, Store, TtlWriter, Version};
/// use std::time::Duration;
///
/// struct Session { id: u32, user: &'static str }
///
/// let clock = ManualClock::new();
/// let writer = Store::builder(Schema::new(|session: &Session| session.id, |_| Version::ZERO)).build()?;
/// let (sessions, _sweeper) = TtlWriter::new(writer, clock.timer()); // a program spawns the sweeper
/// sessions.upsert(Session { id: 1, user: "ann" }, Some(Duration::from_secs(60)));
/// sessions.upsert(Session { id: 2, user: "ben" }, None); // never expires
///
/// let readers: Store<u32, Session> = sessions.store();
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(readers.get(&1).unwrap().user, "ann"); // not swept yet
/// assert_eq!(sessions.sweep(), 1);
/// assert!(readers.get(&1).is_none());
/// assert!(sessions.delete(&2, None).is_change());
/// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
/// ```
pub struct TtlWriter<K, V> {
    shared: Arc<Shared<K, V>>,
}

struct Shared<K, V> {
    writer: SharedWriter<K, V>,
    deadlines: Mutex<Deadlines>,
    timer: DropContained<Box<dyn Timer>>,
}

/// The maximum number of expired objects that a write deletes. A write adds at most one object that can expire, so expired objects do not accumulate.
const SWEPT_BY_WRITE: usize = 2;

/// A write that an observer or a destructor makes in a sweep sweeps, too, unless this many sweeps are nested on its thread. Without this limit, an observer
/// that stores each expired object again would nest as many sweeps as there are expired objects, which overflows the stack.
const NESTED: usize = 2;

thread_local! {
    /// How many sweeps are nested on this thread.
    #[allow(clippy::missing_const_for_thread_local, reason = "loom's macro takes no `const` block")]
    static SWEEPS: Cell<usize> = Cell::new(0);
}

/// A guard: until it is dropped, the current thread is marked as sweeping.
struct SweepGuard;

impl SweepGuard {
    fn begin() -> Self {
        SWEEPS.with(|sweeps| sweeps.set(sweeps.get() + 1));
        Self
    }
}

impl Drop for SweepGuard {
    fn drop(&mut self) {
        SWEEPS.with(|sweeps| sweeps.set(sweeps.get() - 1));
    }
}

/// An object whose deletion panicked expires again after this time, so that it does not keep a sweep from the other objects.
const RETRY: Duration = Duration::from_secs(1);

impl<K, V> TtlWriter<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Creates a writer from the writer of a store, and the **sweeper** of its expired objects. The objects that the store has already never expire,
    /// unless they are written again.
    ///
    /// The sweeper is a future, to be spawned as a task. It deletes each object at its deadline on the clock of `timer`, and ends when the last
    /// `TtlWriter` is dropped. It deletes up to 64 objects at a time, and then yields to other tasks.
    ///
    /// # Cancel safety
    /// The sweeper can be dropped at any time. Expired objects are then deleted only by writes and by [`sweep`](Self::sweep).
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{ManualClock, Schema, Store, TtlWriter, Version, block_on_timeout};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let writer = Store::builder(Schema::new(|word: &&str| *word, |_| Version::ZERO)).build()?;
    /// let (words, mut sweeper) = TtlWriter::new(writer, clock.timer()); // in a program, for example, `TokioTimer::current()`
    /// words.upsert("one", Some(Duration::from_secs(60)));
    /// assert!(block_on_timeout(&mut sweeper, Duration::ZERO).is_none()); // in a program, `spawn(sweeper)`
    ///
    /// clock.advance(Duration::from_secs(60));
    /// assert!(block_on_timeout(&mut sweeper, Duration::ZERO).is_none());
    /// assert!(words.is_empty());
    /// drop(words);
    /// assert!(block_on_timeout(&mut sweeper, Duration::ZERO).is_some()); // the end
    /// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
    /// ```
    pub fn new(
        writer: Writer<K, V>,
        timer: impl Timer,
    ) -> (Self, impl Future<Output = ()> + Send + Unpin + 'static) {
        let timer: Box<dyn Timer> = Box::new(timer);
        let (deadlines, timer) = (Mutex::new(Deadlines::default()), DropContained::new(timer));
        let shared = Arc::new(Shared { writer: writer.into_shared(), deadlines, timer });
        let sweeper = Sweeper::new(&shared);
        (Self { shared }, sweeper)
    }

    /// Returns a handle for readers.
    #[must_use]
    pub fn store(&self) -> Store<K, V> {
        self.shared.writer.store()
    }

    /// Stores an object, like [`Writer::upsert`]. It expires when `ttl` has passed; `None` means never. A write of an object that has expired, but is not
    /// swept yet, is an update. If the write is stale, the stored object keeps its deadline.
    ///
    /// # Panics
    /// Panics like [`SharedWriter::upsert`]. Also panics if the clock panics; nothing is changed in that case. A panic while other objects are swept is
    /// ignored.
    pub fn upsert(&self, object: V, ttl: Option<Duration>) -> WriteOutcome {
        let object = allocated(object);
        let Shared { writer, deadlines, timer } = &*self.shared;
        let now = timer.now();
        let mut arrived = Some(writer.inner.read(object));
        let outcome = writer.access().write(|core, effects| {
            let outcome = core.upsert(&mut arrived, effects);
            if let Some(row) = effects.row {
                let waker = deadlines.lock().set(row, ttl.map(|ttl| now + ttl));
                effects.wakers.extend(waker);
            }
            outcome
        });
        self.shared.sweep_along(now);
        outcome
    }

    /// Deletes the object with this key, like [`Writer::delete`]. An object that has expired, but is not swept yet, is deleted like any other.
    ///
    /// # Panics
    /// The same as for [`upsert`](Self::upsert).
    pub fn delete<Q>(&self, key: &Q, last: Option<V>) -> WriteOutcome
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let last = last.map(allocated);
        let Shared { writer, deadlines, timer } = &*self.shared;
        let now = timer.now();
        let (hash, last, version) = writer.deletion(key, last);
        let outcome = writer.access().write(|core, effects| {
            let outcome = core.delete((hash, key), last.as_ref(), version, effects);
            if let Some(row) = effects.row {
                deadlines.lock().set(row, None);
            }
            outcome
        });
        self.shared.sweep_along(now);
        outcome
    }

    /// Deletes all expired objects, in the order of their deadlines, and returns their number. The time is proportional to this number, but no lock is
    /// held for more than one object. Deletes at most as many objects as can expire when the call begins, so it ends even if an observer stores each of
    /// them again.
    ///
    /// # Panics
    /// Panics only if the clock panics, or if user code panics as described for [`Writer::delete`]. In the latter case, all other expired objects are
    /// deleted first. An object whose deletion panicked before it was complete expires again after a second.
    pub fn sweep(&self) -> usize {
        let now = self.shared.timer.now();
        let (mut swept, mut first) = (0, Ok(()));
        // An observer may store each object again, with a time to live of zero. Without this limit, the sweep would then never end.
        let most = self.shared.deadlines.lock().len();
        for _ in 0..most {
            match catch_unwind(AssertUnwindSafe(|| self.shared.sweep_next(now))) {
                Ok(false) => break,
                Ok(true) => swept += 1,
                Err(panic) => keep_first(&mut first, Err(panic)),
            }
        }
        raise(first);
        swept
    }

    /// Returns the earliest deadline; for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.shared.deadlines.lock().first()
    }

    /// Checks every invariant, for tests. No thread may write to the store during the check.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        let store = &self.shared.writer;
        Store::check(store)?;
        let table = store.inner.table();
        self.shared.deadlines.lock().check(|row| table.rows.get(row).is_some())
    }
}

impl<K, V> Shared<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Deletes the object with the earliest deadline if it has expired. Returns whether there was one.
    fn sweep_next(&self, now: Nanos) -> bool {
        // Most writes find that nothing has expired, so they do not take `turn` again.
        let is_due = self.deadlines.lock().first().is_some_and(|first| first <= now);
        let _guard = SweepGuard::begin();
        is_due && self.writer.access().write(|core, effects| self.sweep_in_turn(now, core, effects))
    }

    fn sweep_in_turn(&self, now: Nanos, core: &mut WriterCore<K, V>, effects: &mut Effects<K, V>) -> bool {
        let Some(row) = self.deadlines.lock().postpone_expired(now, now + RETRY) else { return false };
        core.delete_row(row, effects);
        self.deadlines.lock().set(row, None);
        true
    }

    /// Sweeps after a write. A panic is caught, so that the write still returns its outcome.
    fn sweep_along(&self, now: Nanos) {
        if SWEEPS.with(Cell::get) < NESTED {
            for _ in 0..SWEPT_BY_WRITE {
                caught(|| self.sweep_next(now));
            }
        }
    }
}

impl<K, V> Clone for TtlWriter<K, V> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K, V> Deref for TtlWriter<K, V> {
    type Target = Store<K, V>;

    fn deref(&self) -> &Store<K, V> {
        &self.shared.writer
    }
}

/// Wakes the sweeper, which ends.
impl<K, V> Drop for Shared<K, V> {
    fn drop(&mut self) {
        let waker = self.deadlines.lock().sleep(None);
        caught(|| waker.map(|waker| waker.wake()));
    }
}

impl<K, V> fmt::Debug for TtlWriter<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TtlWriter").field("store", &**self).finish_non_exhaustive()
    }
}
