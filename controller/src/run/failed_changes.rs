//! PURE. The changes at which a mapper panicked. The changes of an object are mapped again after a backoff of that object.
//!
//! A change is kept for a limited time, and the number of changes is limited, for each object and in total. While an object is deleted, the next attempt
//! of each of its changes is the last one, except for deletions.
//!
//! # Invariants
//! 1. `objects` and `order` contain the same objects, and `objects` maps each object to its key in `order`.
//! 2. Each object has 1 to `MAX_CHANGES_OF_OBJECT` changes, oldest first.
//! 3. `len` is the number of changes, and at most `MAX_CHANGES`.
//!
//! If `Hash`, `Eq` or `Clone` of a key panics, a key may stay in `objects` without changes in `order`; `add` overwrites it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use flyball_informer_cache::Change;
use flyball_sync::panics;

/// The first and the longest wait before the changes of an object are mapped again; each wait is twice as long as the previous one.
const WAITS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(60)];

/// How long a change is mapped again, from its first failure. About twenty attempts.
const MAX_AGE: Duration = Duration::from_secs(600);

/// The maximum number of failed changes that are kept for an object.
const MAX_CHANGES_OF_OBJECT: usize = 16;

/// The maximum number of failed changes that are kept for a watch.
pub(crate) const MAX_CHANGES: usize = 10_000;

pub(crate) struct FailedChanges<OK, V> {
    objects: HashMap<OK, RetryKey>,
    /// The objects, sorted by the time at which they are mapped again.
    order: BTreeMap<RetryKey, FailedObject<OK, V>>,
    tickets: u64,
    len: usize,
}

/// The key in `order`: the deadline, and a ticket, which distinguishes objects that are due at the same time.
pub(crate) type RetryKey = (Duration, u64);

/// The failed changes of an object.
pub(crate) struct FailedObject<OK, V> {
    changes: VecDeque<FailedChange<OK, V>>,
    /// The duration of the current wait; the next wait is twice as long.
    wait: Duration,
}

pub(crate) struct FailedChange<OK, V> {
    change: Change<OK, V>,
    /// The next attempt at or after this time is the last one.
    until: Duration,
}

impl<OK: Clone + Eq + Hash, V> FailedChanges<OK, V> {
    pub(crate) fn new() -> Self {
        Self { objects: HashMap::new(), order: BTreeMap::new(), tickets: 0, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the time at which the next object must be mapped again.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.order.first_key_value().map(|(key, _)| key.0)
    }

    /// Adds a change behind the other changes of the same object. Returns the changes that are given up to make room, so that the caller drops them
    /// after unlocking.
    ///
    /// If `Hash`, `Eq` or `Clone` of the key panics, the change is lost.
    pub(crate) fn add(&mut self, change: Change<OK, V>, now: Duration) -> VecDeque<FailedChange<OK, V>> {
        let retry_key = match self.objects.get(change.key()) {
            Some(retry_key) => *retry_key,
            None => {
                self.tickets += 1;
                let retry_key = (now + WAITS[0], self.tickets);
                self.objects.insert(change.key().clone(), retry_key);
                retry_key
            }
        };
        let fresh = || FailedObject { changes: VecDeque::new(), wait: WAITS[0] };
        let object = self.order.entry(retry_key).or_insert_with(fresh);
        object.changes.push_back(FailedChange { change, until: now.saturating_add(MAX_AGE) });
        self.len += 1;
        // Gives up the oldest change. The remaining changes still yield the keys of the newest state and of the state before it.
        if object.changes.len() > MAX_CHANGES_OF_OBJECT {
            self.len -= 1;
            return object.changes.pop_front().into_iter().collect();
        }
        if self.len > MAX_CHANGES { self.give_up_last() } else { VecDeque::new() }
    }

    /// Gives up the object whose next attempt is the latest: nearly always one that has failed many times. Returns its changes.
    fn give_up_last(&mut self) -> VecDeque<FailedChange<OK, V>> {
        let Some((_, object)) = self.order.pop_last() else { return VecDeque::new() };
        self.take_out(&object);
        object.changes
    }

    /// Removes and returns the first object that is due.
    pub(crate) fn take_due(&mut self, now: Duration) -> Option<FailedObject<OK, V>> {
        let first = *self.order.first_key_value()?.0;
        if first.0 <= now { self.take(first) } else { None }
    }

    /// Returns the keys of all objects in `order`.
    pub(crate) fn retry_keys(&self) -> Vec<RetryKey> {
        self.order.keys().copied().collect()
    }

    /// Removes and returns the object with this key in `order`.
    pub(crate) fn take(&mut self, retry_key: RetryKey) -> Option<FailedObject<OK, V>> {
        let object = self.order.remove(&retry_key)?;
        self.take_out(&object);
        Some(object)
    }

    /// Updates `objects` and `len` for an object that was removed from `order`.
    fn take_out(&mut self, object: &FailedObject<OK, V>) {
        self.len -= object.changes.len();
        if let Some(key) = object.key() {
            panics::caught(|| self.objects.remove(key));
        }
    }

    /// Puts an object back, and doubles its wait.
    pub(crate) fn put_back(&mut self, mut object: FailedObject<OK, V>, now: Duration) {
        let Some(key) = object.key() else { return };
        let wait = object.wait.saturating_mul(2).min(WAITS[1]);
        self.tickets += 1;
        let retry_key = (now.saturating_add(wait), self.tickets);
        panics::caught(|| self.objects.insert(key.clone(), retry_key));
        object.wait = wait;
        self.len += object.changes.len();
        self.order.insert(retry_key, object);
    }
}

impl<OK, V> FailedObject<OK, V> {
    /// Returns the key of the object.
    pub(crate) fn key(&self) -> Option<&OK> {
        Some(self.changes.front()?.change.key())
    }

    /// Maps each change again, and keeps those at which `maps` returns false. Returns the number of changes that are given up, because this was their
    /// last attempt.
    pub(crate) fn remap(
        &mut self,
        now: Duration,
        is_deleted: bool,
        maps: impl Fn(&Change<OK, V>) -> bool,
    ) -> usize {
        let mut given_up = 0;
        for failed in std::mem::take(&mut self.changes) {
            let ends = now >= failed.until || (is_deleted && !failed.change.kind().is_deletion());
            match maps(&failed.change) {
                false if !ends => self.changes.push_back(failed),
                mapped => {
                    given_up += usize::from(!mapped);
                    discard(failed);
                }
            }
        }
        given_up
    }
}

impl<OK, V> Drop for FailedChanges<OK, V> {
    fn drop(&mut self) {
        // A panic in one drop must affect neither the other drops nor the caller.
        let changes = std::mem::take(&mut self.order).into_values().flat_map(|object| object.changes);
        changes.for_each(discard);
        std::mem::take(&mut self.objects).into_keys().for_each(discard);
    }
}

/// Drops a value that contains user types, and catches a panic in the drop.
pub(crate) fn discard<T>(what: T) {
    panics::caught(|| drop(what));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    impl<OK: Clone + Eq + Hash, V> FailedChanges<OK, V> {
        fn check(&self) {
            assert_eq!(self.objects.len(), self.order.len(), "1");
            for (retry_key, object) in &self.order {
                assert!((1..=MAX_CHANGES_OF_OBJECT).contains(&object.changes.len()), "2");
                assert!(
                    object.changes.iter().all(|failed| self.objects[failed.change.key()] == *retry_key),
                    "1"
                );
            }
            assert_eq!(self.len, self.order.values().map(|object| object.changes.len()).sum::<usize>(), "3");
            assert!(self.len <= MAX_CHANGES, "3");
        }
    }

    /// Every change is mapped, kept, or given up, and none is kept for longer than its time.
    #[test]
    fn every_change_is_mapped_kept_or_given_up() {
        let mut random = 1_u64;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % bound
        };
        let mut seen = BTreeSet::new();
        for _ in 0..200 {
            let (mut failed, mut now) = (FailedChanges::new(), Duration::ZERO);
            let (mut added, mut mapped, mut given_up) = (0, 0, 0);
            for _ in 0..100 {
                match below(5) {
                    0..3 => {
                        let (key, object) = (below(4), Arc::new(()));
                        let change = match below(3) {
                            0 => Change::deleted(key, object, false),
                            _ => Change::added(key, object, false),
                        };
                        (added, given_up) = (added + 1, given_up + failed.add(change, now).len());
                        seen.insert("add");
                    }
                    3 => now += Duration::from_millis(below(200_000)),
                    _ => {
                        while let Some(mut object) = failed.take_due(now) {
                            let (all, works) = (object.changes.len(), below(2) == 0);
                            let is_deleted = below(4) == 0;
                            let lost = object.remap(now, is_deleted, |_| works);
                            let kept = |failed: &FailedChange<_, _>| failed.change.kind().is_deletion();
                            assert!(!is_deleted || object.changes.iter().all(kept));
                            assert!(!works || lost == 0);
                            mapped += all - object.changes.len() - lost;
                            given_up += lost;
                            seen.insert(if lost > 0 { "give up" } else { "remap" });
                            failed.put_back(object, now);
                        }
                        assert!(failed.next_due().is_none_or(|due| due > now && due <= now + WAITS[1]));
                    }
                }
                failed.check();
                assert_eq!(added, mapped + given_up + failed.len());
            }
            now += MAX_AGE + 2 * WAITS[1];
            while let Some(mut object) = failed.take_due(now) {
                object.remap(now, false, |_| false);
                assert!(object.changes.is_empty(), "their time is over");
            }
        }
        assert_eq!(seen.len(), 3, "{seen:?}");
    }

    /// If there are too many, the objects that have failed most often make room for a new one.
    #[test]
    fn new_failures_replace_those_that_have_failed_for_long() {
        let mut failed = FailedChanges::new();
        let change = |key: usize| Change::added(key, Arc::new(()), false);
        (0..MAX_CHANGES).for_each(|key| assert_eq!(failed.add(change(key), Duration::ZERO).len(), 0));
        let mut now = SECOND;
        while let Some(mut object) = failed.take_due(now) {
            object.remap(now, false, |_| false);
            failed.put_back(object, now);
        }
        now += SECOND / 20;
        assert_eq!(failed.add(change(MAX_CHANGES), now).len(), 1);
        failed.check();
        assert_eq!(failed.next_due(), Some(now + WAITS[0]), "the new change is kept");
        assert!(
            failed.objects.contains_key(&MAX_CHANGES) && !failed.objects.contains_key(&(MAX_CHANGES - 1))
        );
    }
}
