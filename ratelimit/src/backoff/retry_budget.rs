//! PURE. Extends each key's own wait until a shared budget has a token for the end of the wait.
//!
//! # Invariants
//! 1. No key waits for less than the inner policy requires.
//! 2. The times at which waits end stay within the budget, by the invariants of `schedule.rs`.

use flyball_sync::Nanos;

use crate::backoff::schedule::TokenSchedule;
use crate::bucket::quota::Quota;
use crate::failure::Failure;
use crate::policy::Policy;

/// Spreads the waits of a policy so that the retries after them stay within a budget.
///
/// If a policy and a bucket are combined by [`MaxOf`](crate::MaxOf), a token is taken at the time of the failure, as in client-go. If the key's own
/// wait is longer, the token is not used when it is due, and retries whose waits end at the same time all run together, even if they exceed the
/// burst. This policy takes a token for the time at which the key's own wait ends; if none is free at that time, the key waits for the next token. A
/// long wait delays no other key, because the tokens that are due before its end stay free.
///
/// In any span of `d` nanoseconds, at most `burst` + rate × `d` waits end (rounded up to a whole token). The budget
/// stores the taken tokens as ranges, at most 2²⁰; each failure adds at most one range and removes up to two ranges that have expired. At the limit,
/// ranges are merged, so some free tokens are never used. Counting a failure is O(log ranges).
///
/// # Examples
/// ```
/// use flyball_ratelimit::{Exponential, Nanos, RetryBudget, Policy, Quota};
/// use std::num::NonZeroU32;
/// use std::time::Duration;
///
/// let secs = Duration::from_secs;
/// let mut policy = RetryBudget::new(Exponential::new(secs(5)..=secs(60)), Quota::per_second(NonZeroU32::MIN));
/// let mut wait = |key| policy.record_failure(&key, Nanos::ZERO, 0, &mut |_| false).wait;
/// assert_eq!([wait("a"), wait("b"), wait("c")], [secs(5), secs(6), secs(7)]); // one a second
/// assert_eq!([wait("a"), wait("a")], [secs(10), secs(20)]); // its own wait: a token is free at its end
/// assert_eq!(wait("d"), secs(8)); // the long waits delay no other key
/// ```
#[derive(Debug)]
pub struct RetryBudget<P> {
    policy: P,
    schedule: TokenSchedule,
}

// === impl RetryBudget ===

impl<P> RetryBudget<P> {
    /// Limits the retries after the waits of `policy` to `quota`.
    #[must_use]
    pub const fn new(policy: P, quota: Quota) -> Self {
        Self { policy, schedule: TokenSchedule::new(quota) }
    }

    /// Returns the inner policy, to change its settings.
    pub const fn get_mut(&mut self) -> &mut P {
        &mut self.policy
    }

    /// Changes rate and burst from `now` on; waits that were already returned do not change. O(ranges).
    ///
    /// Available tokens stay available, up to the new burst; a larger burst fills up at the new rate.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::{Exponential, Nanos, Policy, Quota, RetryBudget};
    /// use std::num::NonZeroU32;
    /// use std::time::Duration;
    ///
    /// let secs = Duration::from_secs;
    /// let mut policy = RetryBudget::new(Exponential::new(secs(5)..=secs(60)), Quota::per_second(NonZeroU32::MIN));
    /// policy.set_quota(Quota::per_minute(NonZeroU32::MIN), Nanos::ZERO);
    /// let mut wait = |key| policy.record_failure(&key, Nanos::ZERO, 0, &mut |_| false).wait;
    /// assert_eq!([wait("a"), wait("b"), wait("c")], [secs(5), secs(60), secs(120)]); // one a minute
    /// ```
    pub fn set_quota(&mut self, quota: Quota, now: Nanos) {
        self.schedule.set_quota(quota, now);
    }

    /// Checks the invariants.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        self.schedule.check()
    }
}

impl<K: ?Sized, P: Policy<K>> Policy<K> for RetryBudget<P> {
    const COUNTS_FAILURES: bool = P::COUNTS_FAILURES;

    fn record_failure(
        &mut self,
        key: &K,
        now: Nanos,
        random: u64,
        in_use: &mut dyn FnMut(&K) -> bool,
    ) -> Failure {
        let failure = self.policy.record_failure(key, now, random, in_use);
        let due = self.schedule.take_from(now + failure.wait, now);
        // `now + wait` saturates, so the token may be due before the wait ends. With the maximum of both, a wait that ends after `Nanos::MAX` keeps its
        // length.
        Failure { wait: failure.wait.max(due.since(now)), ..failure }
    }

    fn restore_failures(&mut self, key: &K, failures: u32, now: Nanos, in_use: &mut dyn FnMut(&K) -> bool) {
        self.policy.restore_failures(key, failures, now, in_use);
    }

    fn forget(&mut self, key: &K) {
        self.policy.forget(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.policy.num_requeues(key)
    }

    fn tracked_keys(&self) -> usize {
        self.policy.tracked_keys()
    }

    fn take_evicted(&mut self, evicted: &mut Vec<K>)
    where
        K: Sized,
    {
        self.policy.take_evicted(evicted);
    }
}
