//! EDGE. The classes of failures, and the waits that the queue's limiter does not determine: the backoff after conflicts, and minimum waits.
//!
//! Cancel safety: this module has no await point.

use std::ops::RangeInclusive;
use std::time::Duration;

use flyball_ratelimit::{Exponential, Limiter, OncePerBackoff};
use flyball_sync::{Clock, Nanos};
use flyball_workqueue::{Key, Order, Queue, QueueLimiter, Timer};

use crate::{FailureClass, ReconcileError};

/// A function that returns the minimum time for which a key must wait after a failure.
type MinimumWait<K> = dyn Fn(&K, &ReconcileError) -> Option<Duration> + Send + Sync;

/// A function that returns the class of a failure.
type Classify = dyn Fn(&ReconcileError) -> FailureClass + Send + Sync;

/// The user's functions that decide about failures.
pub(crate) struct FailurePolicy<K> {
    /// If `None`, all failures are transient, and no conflicts are counted.
    pub(crate) classify: Option<Box<Classify>>,
    /// The minimum wait after transient failures.
    pub(crate) minimum_wait: Option<Box<MinimumWait<K>>>,
}

impl<K> Default for FailurePolicy<K> {
    fn default() -> Self {
        Self { classify: None, minimum_wait: None }
    }
}

impl<K> FailurePolicy<K> {
    pub(crate) fn of(&self, failure: &ReconcileError) -> FailureClass {
        self.classify.as_ref().map_or(FailureClass::Transient, |classify| classify(failure))
    }

    /// Returns the minimum wait of the key after this failure; zero if there is no minimum.
    pub(crate) fn minimum_wait_of(&self, key: &K, failure: &ReconcileError) -> Duration {
        self.minimum_wait.as_ref().and_then(|minimum| minimum(key, failure)).unwrap_or_default()
    }

    /// Returns whether conflicts are counted, which requires a classification.
    pub(crate) fn counts(&self) -> bool {
        self.classify.is_some()
    }
}

type ConflictBackoff<K> = OncePerBackoff<K, Exponential<K>>;

/// Counts the consecutive conflicts of each key, but at most one conflict per wait, as the queue's limiter counts at most one failure per wait. If a key
/// is added again, runs before its wait is over, and conflicts once more, it waits only for the rest of that wait. If each conflict were counted, a burst
/// of changes would increase the wait.
pub(crate) struct Conflicts<K, O: Order<K>, L, T>(Limiter<K, ConflictBackoff<K>, QueueClock<K, O, L, T>>);

impl<K, O, L, T> Conflicts<K, O, L, T>
where
    K: Key,
    O: Order<K>,
    L: QueueLimiter<K>,
    T: Timer,
{
    pub(crate) fn new(waits: RangeInclusive<Duration>, queue: Queue<K, O, L, T>) -> Self {
        // The queue does not report that a waiting key was cancelled, so a series of conflicts ends by itself. Without this limit, a key that is added
        // again within a minute would wait as long as before it was cancelled.
        let longest = *waits.end();
        let policy = Exponential::new(waits).forget_after(longest);
        Self(Limiter::with_clock(OncePerBackoff::new(policy), QueueClock(queue)))
    }

    /// Counts a conflict of the key, and returns how long the key must wait.
    pub(crate) fn next(&self, key: &K) -> Duration {
        self.0.record_failure(key)
    }

    /// Forgets the conflicts of the key, and returns how many there were.
    pub(crate) fn forget(&self, key: &K) -> u32 {
        let conflicts = self.0.num_requeues(key);
        self.0.forget(key);
        conflicts
    }
}

/// The clock of the queue, for the conflict limiter. If that limiter had a different clock, a wait could be over by the queue's clock but not by the
/// limiter's clock.
struct QueueClock<K, O: Order<K>, L, T>(Queue<K, O, L, T>);

impl<K, O, L, T> Clock for QueueClock<K, O, L, T>
where
    K: Key,
    O: Order<K>,
    L: QueueLimiter<K>,
    T: Timer,
{
    fn now(&self) -> Nanos {
        self.0.now()
    }
}
