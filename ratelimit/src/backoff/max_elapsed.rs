//! PURE. A limit on the total time of the retries of a key.
//!
//! # Invariants
//! 1. `first[key]` is the time of the first failure of `key` that was neither forgotten nor expired since.
//!
//! The invariants of the state per key (`per_key.rs`) hold, too.
//!
//! Rejected: the time of the first failure in the entries of `Exponential` and `FastSlow`. It would take eight bytes of every key, also where no limit
//! is set, and would have to be repeated in each policy.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use flyball_sync::Nanos;

use crate::backoff::per_key::PerKey;
use crate::failure::Failure;
use crate::policy::Policy;

/// Gives a key up when its next attempt would start later than a limit after the first failure of the key.
///
/// The returned wait is then [`Duration::MAX`](Failure::wait), which means that the key is not to be tried again: a queue drops the key, as after too
/// many failures. The first failure is the first one since the key was last forgotten, so [forget](Policy::forget) keys that succeed. If a key is not
/// forgotten, its first failure expires when the last failure is longer ago than the limit plus the longer of the limit and ten minutes; while a key is
/// in a queue, it does not expire. Failures are dropped when another key fails, so a key that left a queue without success, and is the only one that
/// fails, keeps them: [forget](Policy::forget) it. If another policy contains this one and makes the wait longer, as [`RetryBudget`](crate::RetryBudget) and
/// [`MaxOf`](crate::MaxOf) do, the limit applies to the wait before that, so let this policy contain the others. Failures that are [restored](Policy::restore_failures) have no time. At most 2²⁰ keys are kept, each with about 55
/// bytes besides the key itself.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{Exponential, MaxElapsed, Nanos, Policy};
/// use std::time::Duration;
///
/// let secs = Duration::from_secs;
/// let mut policy = MaxElapsed::new(Exponential::new(secs(1)..=secs(60)), secs(10));
/// let mut wait = |at| policy.record_failure(&"a", Nanos::ZERO + secs(at), 0, &mut |_| false).wait;
/// assert_eq!([wait(0), wait(1), wait(3)], [secs(1), secs(2), secs(4)]);
/// assert_eq!(wait(7), Duration::MAX); // the next attempt would start after 15 s
/// ```
#[doc(alias = "max_elapsed_time")]
pub struct MaxElapsed<K, P> {
    policy: P,
    limit: Duration,
    first: PerKey<K, Option<Nanos>>,
}

impl<K, P> MaxElapsed<K, P> {
    /// Limits the time from the first failure of a key to the start of its last attempt to `limit`.
    #[must_use]
    pub fn new(policy: P, limit: Duration) -> Self {
        Self { policy, limit, first: PerKey::new(limit) }
    }

    /// Returns the inner policy, to change its settings.
    pub const fn get_mut(&mut self) -> &mut P {
        &mut self.policy
    }
}

impl<K: Hash + Eq + Clone, P: Policy<K>> Policy<K> for MaxElapsed<K, P> {
    const COUNTS_FAILURES: bool = P::COUNTS_FAILURES;
    const LIMITS: bool = P::LIMITS;

    fn record_failure(
        &mut self,
        key: &K,
        now: Nanos,
        random: u64,
        in_use: &mut dyn FnMut(&K) -> bool,
    ) -> Failure {
        // Before the inner policy counts the failure, because cloning the key may panic.
        let first = *self.first.touch(key, now, &mut *in_use).get_or_insert(now);
        let failure = self.policy.record_failure(key, now, random, in_use);
        let is_late = now + failure.wait > first + self.limit;
        Failure { wait: if is_late { Duration::MAX } else { failure.wait }, ..failure }
    }

    fn restore_failures(&mut self, key: &K, failures: u32, now: Nanos, in_use: &mut dyn FnMut(&K) -> bool) {
        self.policy.restore_failures(key, failures, now, in_use);
    }

    fn forget(&mut self, key: &K) {
        self.first.remove(key);
        self.policy.forget(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.policy.num_requeues(key)
    }

    fn tracked_keys(&self) -> usize {
        self.first.len().max(self.policy.tracked_keys())
    }

    fn take_evicted(&mut self, evicted: &mut Vec<K>) {
        self.first.take_evicted(evicted);
        self.policy.take_evicted(evicted);
    }
}

impl<K, P: fmt::Debug> fmt::Debug for MaxElapsed<K, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaxElapsed")
            .field("policy", &self.policy)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
