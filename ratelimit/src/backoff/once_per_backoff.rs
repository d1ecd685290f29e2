//! PURE. A policy that counts at most one failure per backoff.
//!
//! # Invariants
//! 1. `open[key]` is the end of the last wait that was counted for `key`; it is removed when the key is forgotten.
//! 2. The entry of a wait that has not ended is evicted only to make room for a new key when 2²⁰ keys are stored.
//!
//! The invariants of the state per key (`per_key.rs`) hold, too.
//!
//! Each key is looked up twice, here and in the inner policy. Rejected: storing the end of the backoff in the inner policy's entry for the key. Some
//! policies have no such entry (a bucket). Others have several (a `MaxOf`), and each would have to store the end of the longest wait, even if its own
//! wait is shorter.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use flyball_sync::Nanos;

use crate::backoff::per_key::PerKey;
use crate::failure::Failure;
use crate::policy::Policy;

/// Counts at most one failure per backoff: further failures of the key during its backoff are not counted.
///
/// The n-th counted failure of a key opens a backoff, which ends at a deadline D. If the key is added, runs before D and fails again, it waits for
/// the rest of that backoff: neither n nor D changes, and [`Failure::counted`] is false. Only a failure at or after D is passed to the inner policy. So
/// a storm of events cannot lengthen a key's backoff (kubernetes#136853), and failures within one backoff take one token from a shared bucket. This type
/// must be the outermost: a budget around it takes a token for each failure, counted or not. A queue wraps its limiter in this type. The type stores an
/// entry for each open wait and for each finished wait that is not evicted yet: at most 2²⁰ entries, or more if more keys are in the queue.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{Exponential, Nanos, OncePerBackoff, Policy};
/// use std::time::Duration;
///
/// let millis = Duration::from_millis;
/// let mut policy = OncePerBackoff::new(Exponential::new(millis(100)..=millis(1_000)));
/// let mut wait = |at| policy.record_failure(&"a", Nanos::ZERO + millis(at), 0, &mut |_| false).wait;
/// assert_eq!(wait(0), millis(100));
/// assert_eq!(wait(30), millis(70)); // the same wait
/// assert_eq!(wait(100), millis(200)); // the first wait is over: the second wait
/// ```
pub struct OncePerBackoff<K, P> {
    policy: P,
    open: PerKey<K, Nanos>,
}

impl<K, P> OncePerBackoff<K, P> {
    /// Creates a policy that counts failures with `policy`, at most one per backoff.
    #[must_use]
    pub fn new(policy: P) -> Self {
        // Idle entries do not expire: an open wait may have any length, and finished waits are evicted by `evict_oldest`.
        Self { policy, open: PerKey::new(Duration::MAX) }
    }

    /// Returns the inner policy, to change its settings.
    pub fn get_mut(&mut self) -> &mut P {
        &mut self.policy
    }

    /// Checks the invariants.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        self.open.check()
    }
}

/// The latest end of a backoff.
const LAST: Nanos = Nanos::new(u64::MAX - 2);

impl<K: Hash + Eq + Clone, P: Policy<K>> Policy<K> for OncePerBackoff<K, P> {
    const COUNTS_FAILURES: bool = P::COUNTS_FAILURES;
    const LIMITS: bool = P::LIMITS;

    fn record_failure(
        &mut self,
        key: &K,
        now: Nanos,
        random: u64,
        in_use: &mut dyn FnMut(&K) -> bool,
    ) -> Failure {
        // `touch` runs before the inner policy counts the failure, so if cloning the key panics, the failure is not counted. In the opposite order,
        // the inner policy could count a failure for which this type has no entry.
        let until = self.open.touch(key, now, &mut *in_use);
        if now < *until {
            let wait = if *until == Nanos::MAX { Duration::MAX } else { until.since(now) };
            return Failure { wait, counted: false };
        }
        let failure = self.policy.record_failure(key, now, random, in_use);
        // `Nanos::MAX` means that the key was given up. A wait that ends beyond it ends before it.
        *until = if failure.wait == Duration::MAX { Nanos::MAX } else { (now + failure.wait).min(LAST) };
        self.open.evict_oldest(|until| *until <= now);
        failure
    }

    fn restore_failures(&mut self, key: &K, failures: u32, now: Nanos, in_use: &mut dyn FnMut(&K) -> bool) {
        self.policy.restore_failures(key, failures, now, in_use);
    }

    fn forget(&mut self, key: &K) {
        self.open.remove(key);
        self.policy.forget(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.policy.num_requeues(key)
    }

    fn tracked_keys(&self) -> usize {
        self.open.len().max(self.policy.tracked_keys())
    }

    fn take_evicted(&mut self, evicted: &mut Vec<K>) {
        self.open.take_evicted(evicted);
        self.policy.take_evicted(evicted);
    }
}

impl<K, P: fmt::Debug> fmt::Debug for OncePerBackoff<K, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.open.len();
        f.debug_struct("OncePerBackoff").field("policy", &self.policy).field("open", &open).finish()
    }
}
