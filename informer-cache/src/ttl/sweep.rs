//! SHELL. Eviction of expired objects. This module has no lock. The results of reads depend on it only if the clock is set back.

use std::borrow::Borrow;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use flyball_sync::panics::caught;
use flyball_sync::{Clock, Nanos};

use crate::table::record::Name;
use crate::{Change, ChangeKind, TtlEntry, TtlStore, WriteOutcome};

/// The maximum number of expired objects that an `upsert` or `delete` evicts, besides an expired object under its own key. An `upsert` adds at most
/// one object that can expire, and evicts up to two. So expired objects do not accumulate.
const SWEPT_BY_WRITE: usize = 2;

/// The maximum number of deadlines in one step of a complete sweep.
const STEP: usize = 64;

impl<K, V, C> TtlStore<K, V, C>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    C: Clock,
{
    /// Evicts all expired objects, and returns their deletions, ordered by deadline. The time is proportional to their number.
    pub fn evict_expired(&self) -> Vec<Change<K, TtlEntry<V>>> {
        self.sweep_at(self.shared.clock.now())
    }

    /// Returns the earliest instant at which a stored object may have expired. This is the instant at which to call
    /// [`evict_expired`](Self::evict_expired). Returns `None` if no stored object expires.
    ///
    /// The instant may be too early: it may be the expiry of an object that has been replaced by a later write and that only a snapshot or a change
    /// still holds.
    ///
    /// # Examples
    /// A task that evicts the expired objects of a store with few writes:
    /// ```
    /// use flyball_informer_cache::{Clock, ManualClock, TtlEntry, TtlStore};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let words = TtlStore::builder(|word: &TtlEntry<&str>| word.len())
    ///     .ttl(Duration::from_secs(60))
    ///     .clock(clock.clone())
    ///     .build()?;
    /// words.upsert("one");
    ///
    /// let wait = words.next_expiry().expect("an object that expires").since(clock.now());
    /// clock.advance(wait); // a real task sleeps
    /// assert_eq!((words.len(), words.stored_len()), (0, 1));
    /// assert_eq!(words.evict_expired().len(), 1);
    /// assert_eq!((words.stored_len(), words.next_expiry()), (0, None));
    /// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
    /// ```
    #[must_use]
    pub fn next_expiry(&self) -> Option<Nanos> {
        self.shared.expiry.first().map(|deadline| deadline + Duration::from_nanos(1))
    }

    /// Deletes the object under a key if it has expired. Returns `true` if it had expired, even if another thread has deleted it first.
    pub(super) fn take_expired<Q>(&self, key: &Q, now: Nanos) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        match self.store.get(key) {
            Some(found) if !found.is_alive_at(now) => {
                self.store.delete(key, Some(found.tombstone()));
                // The expired object comes from an earlier write, so the caller must not receive a panic of the object's drop.
                caught(|| drop(found));
                true
            }
            _ => false,
        }
    }

    /// Sweeps after a write. A panic is caught, so that the write still returns its outcome.
    pub(super) fn sweep_along(&self, now: Nanos) {
        caught(|| drop(self.sweep_some(now, SWEPT_BY_WRITE)));
    }

    /// Evicts all expired objects, as the first step of another operation. If the drop of an object panics, the panic is ignored and the operation
    /// continues.
    pub(super) fn sweep_first(&self, now: Nanos) {
        let swept = self.sweep_at(now);
        caught(|| drop(swept));
    }

    fn sweep_at(&self, now: Nanos) -> Vec<Change<K, TtlEntry<V>>> {
        let mut changes = Vec::new();
        while let Some(some) = self.sweep_some(now, STEP) {
            changes.extend(some);
        }
        changes
    }

    /// Performs one step of a sweep, which handles at most `most` deadlines. Returns the deletions, or `None` if no deadline has passed.
    fn sweep_some(&self, now: Nanos, most: usize) -> Option<Vec<Change<K, TtlEntry<V>>>> {
        let due = self.shared.expiry.due(now, most);
        if due.is_empty() {
            return None;
        }
        let mut changes = Vec::new();
        for (place, key) in due {
            let found = self.store.get(&*key).filter(|found| found.place() == place);
            if let Some(found) = found {
                // The key is cloned before the object is deleted, because the clone may panic.
                let told = K::clone(&key);
                if self.store.delete(&*key, Some(found.tombstone())) == WriteOutcome::Deleted {
                    let name = Arc::new(Name { hash: 0, key: told });
                    changes.push(Change::of(name, ChangeKind::Deleted, Some(found.clone()), found));
                }
            }
            // The deadline is removed only after the object was handled. So if there is a panic, the next sweep finds the deadline again. It is also
            // removed if its object was replaced and only a snapshot or a change still holds the object.
            self.shared.expiry.leave(place);
        }
        Some(changes)
    }
}
