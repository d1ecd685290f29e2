//! EDGE. The classes of failures, and the waits that the queue's limiter does not determine: the backoff after conflicts, and minimum waits.
//!
//! Cancel safety: this module has no await point.

use std::ops::RangeInclusive;
use std::time::Duration;

use flyball_ratelimit::{Exponential, Limiter, OncePerBackoff, Policy};
use flyball_sync::{Clock, Nanos};
use flyball_workqueue::{Key, Order, Queue, Timer};

use crate::{FailureClass, ReconcileError};

/// A function that returns the minimum time for which a key must wait after a failure.
type MinimumWait<K> = dyn Fn(&K, &ReconcileError) -> Option<Duration> + Send + Sync;

/// A function that returns the class of a failure.
type Classify = dyn Fn(&ReconcileError) -> FailureClass + Send + Sync;

pub(crate) struct FailurePolicy<K> {
    /// If `None`, all failures are transient, and the conflict schedule is not used.
    pub(crate) classify: Option<Box<Classify>>,
    pub(crate) conflicts: Box<dyn Schedule<K>>,
    /// The minimum wait after transient failures.
    pub(crate) minimum_wait: Option<Box<MinimumWait<K>>>,
}

/// A [`Limiter`] of conflicts, type-erased because its policy and its clock are generic.
pub(crate) trait Schedule<K>: Send + Sync {
    /// Counts a conflict of the key, and returns how long the key must wait.
    fn next(&self, key: &K) -> Duration;

    /// Forgets the conflicts of the key, and returns how many there were.
    fn forget(&self, key: &K) -> u32;
}

impl<K: Key> FailurePolicy<K> {
    /// Creates a policy that classifies all failures as transient, with this backoff after conflicts.
    pub(crate) fn new(conflicts: RangeInclusive<Duration>, clock: impl Clock) -> Self {
        Self { classify: None, conflicts: schedule(Exponential::new(conflicts), clock), minimum_wait: None }
    }

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

    /// Forgets the conflicts of a key that succeeded or was given up, and returns how many there were.
    pub(crate) fn forget(&self, key: &K) -> u32 {
        self.classify.as_ref().map_or(0, |_| self.conflicts.forget(key))
    }
}

/// Creates a schedule that counts at most one conflict per wait, as the queue's limiter counts at most one failure per wait. If a key is added again,
/// runs before its wait is over, and conflicts once more, it waits only for the rest of that wait. If each conflict were counted, a burst of changes
/// would increase the wait.
pub(crate) fn schedule<K: Key>(
    policy: impl Policy<K> + Send + 'static,
    clock: impl Clock,
) -> Box<dyn Schedule<K>> {
    Box::new(Limiter::with_clock(OncePerBackoff::new(policy), clock))
}

/// The clock of the queue, for the conflict limiter. If that limiter had a different clock, a wait could be over by the queue's clock but not by the
/// limiter's clock.
pub(crate) struct QueueClock<K, O: Order<K>, L, T>(pub(crate) Queue<K, O, L, T>);

impl<K, O, L, T> Clock for QueueClock<K, O, L, T>
where
    K: Key,
    O: Order<K>,
    L: Policy<K> + Send + 'static,
    T: Timer,
{
    fn now(&self) -> Nanos {
        self.0.now()
    }
}

impl<K, P: Policy<K> + Send, C: Clock> Schedule<K> for Limiter<K, P, C> {
    fn next(&self, key: &K) -> Duration {
        self.record_failure(key)
    }

    fn forget(&self, key: &K) -> u32 {
        let conflicts = self.num_requeues(key);
        Limiter::forget(self, key);
        conflicts
    }
}
