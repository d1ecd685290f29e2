//! EDGE. Who says of which class a failure is, and when a key is tried again, beside the limiter.
//!
//! Cancel safety: nothing here waits.

use std::ops::RangeInclusive;
use std::time::Duration;

use flyball_ratelimit::{Exponential, Limiter, OncePerBackoff, Policy};
use flyball_sync::{Clock, Nanos};
use flyball_workqueue::{Key, Order, Queue, SupportsDelays};

use crate::{FailureClass, ReconcileError};

/// Who says for how long at least a key waits after a failure.
type LeastWait<K> = dyn Fn(&K, &ReconcileError) -> Option<Duration> + Send + Sync;

/// Who says of which class a failure is.
type Classify = dyn Fn(&ReconcileError) -> FailureClass + Send + Sync;

pub(crate) struct FailurePolicy<K> {
    /// Without one all are transient, and the schedule is not used.
    pub(crate) of: Option<Box<Classify>>,
    pub(crate) conflicts: Box<dyn Schedule<K>>,
    /// Of those that are transient.
    pub(crate) least: Option<Box<LeastWait<K>>>,
}

/// A limiter, its policy and its clock out of sight.
pub(crate) trait Schedule<K>: Send + Sync {
    /// Counts a conflict of the key, and says how long it waits.
    fn next(&self, key: &K) -> Duration;

    /// Forgets the conflicts of the key, and says how many there were.
    fn forget(&self, key: &K) -> u32;
}

impl<K: Key> FailurePolicy<K> {
    /// With this backoff after conflicts.
    pub(crate) fn new(conflicts: RangeInclusive<Duration>, clock: impl Clock) -> Self {
        Self { of: None, conflicts: schedule(Exponential::new(conflicts), clock), least: None }
    }

    pub(crate) fn of(&self, failure: &ReconcileError) -> FailureClass {
        self.of.as_ref().map_or(FailureClass::Transient, |of| of(failure))
    }

    /// For how long at least the key waits after it; zero leaves that to the limiter.
    pub(crate) fn least_wait(&self, key: &K, failure: &ReconcileError) -> Duration {
        self.least.as_ref().and_then(|least| least(key, failure)).unwrap_or_default()
    }

    /// Whether there may be conflicts to forget.
    pub(crate) fn counts(&self) -> bool {
        self.of.is_some()
    }

    /// Forgets the conflicts of a key that is done with, and says how many there were.
    pub(crate) fn forget(&self, key: &K) -> u32 {
        self.of.as_ref().map_or(0, |_| self.conflicts.forget(key))
    }
}

/// A schedule that counts a conflict once for each wait, as the queue does with failures: a key that runs before its wait is over,
/// because it was added, and conflicts again waits for the rest of it. Otherwise a burst of changes would drive the wait up.
pub(crate) fn schedule<K: Key>(
    policy: impl Policy<K> + Send + 'static,
    clock: impl Clock,
) -> Box<dyn Schedule<K>> {
    Box::new(Limiter::with_clock(OncePerBackoff::new(policy), clock))
}

/// The clock of a queue: on any other one, a wait would not be over when the key comes back.
pub(crate) struct QueueClock<K, O: Order<K>, L, T>(pub(crate) Queue<K, O, L, T>);

impl<K, O, L, T> Clock for QueueClock<K, O, L, T>
where
    K: Key,
    O: Order<K>,
    L: Policy<K> + Send + 'static,
    T: SupportsDelays,
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
