//! PURE. A few quick retries, then slow ones.
//!
//! # Invariants
//! 1. The wait is `fast` for the first `fast_attempts` failures of a key, and `slow` for all others.
//!
//! The invariants of the state per key (`per_key.rs`) hold, too.

use std::fmt;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::time::Duration;

use flyball_sync::Nanos;

use crate::backoff::per_key::PerKey;
use crate::failure::Failure;
use crate::policy::Policy;

/// A few quick retries, then slow ones: a key waits `fast` after each of its first failures, and `slow` after all others.
///
/// Like [`Exponential`](crate::Exponential), its state is bounded, and failures expire by themselves.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{FastSlow, Nanos, Policy};
/// use std::time::Duration;
///
/// let (fast, slow) = (Duration::from_millis(5), Duration::from_secs(10));
/// let mut policy = FastSlow::new(fast, slow, 2);
/// let mut wait = || policy.record_failure(&"a", Nanos::ZERO, 0, &mut |_| false).wait;
/// assert_eq!([wait(), wait(), wait()], [fast, fast, slow]);
/// ```
#[doc(alias = "ItemFastSlowRateLimiter")]
pub struct FastSlow<K> {
    fast: Duration,
    slow: Duration,
    fast_attempts: u32,
    failures: PerKey<K, u32>,
}

/// The longest wait.
const LONGEST: Duration = Duration::from_nanos(u64::MAX);

// === impl FastSlow ===

impl<K> FastSlow<K> {
    /// Creates a policy in which a key waits `fast` after each of its first `fast_attempts` failures, and `slow` after all
    /// others. If `fast_attempts` is 0, every wait is `slow`. A wait is at most 2⁶⁴ − 1 ns, which is 584 years: with `slow` at [`Duration::MAX`], a key
    /// waits until it is added again.
    #[must_use]
    pub fn new(fast: Duration, slow: Duration, fast_attempts: u32) -> Self {
        // `Duration::MAX` would give the key up, see `Failure::wait`.
        let (fast, slow) = (fast.min(LONGEST), slow.min(LONGEST));
        Self { fast, slow, fast_attempts, failures: PerKey::new(fast.max(slow)) }
    }

    /// Sets how long the failures of a key are kept, in addition to the longer of `fast` and `slow`. The default is the longest of
    /// `fast`, `slow` and ten minutes. While a key is in a queue, its failures do not expire.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::{FastSlow, Nanos, Policy};
    /// use std::time::Duration;
    ///
    /// let secs = Duration::from_secs;
    /// let mut policy = FastSlow::new(secs(1), secs(60), 1).forget_after(secs(10));
    /// let mut wait = |at| policy.record_failure(&"a", Nanos::ZERO + secs(at), 0, &mut |_| false).wait;
    /// assert_eq!([wait(0), wait(5)], [secs(1), secs(60)]);
    /// assert_eq!(wait(100), secs(1)); // starts anew
    /// ```
    #[must_use]
    pub fn forget_after(self, rest: Duration) -> Self {
        Self { failures: self.failures.forget_after(rest), ..self }
    }

    /// Limits the number of keys whose failures are kept: 2²⁰ by default. Beyond that, a new key replaces the key whose
    /// last failure is the oldest; if the replaced key fails again, it starts from zero failures. So set the limit higher than the number of keys that
    /// can be failing at the same time. If a queue uses this policy, the failures of keys in the queue are not evicted, even if
    /// these keys are more than the limit.
    #[must_use]
    pub fn max_keys(self, most: NonZeroU32) -> Self {
        Self { failures: self.failures.max_keys(most), ..self }
    }

    /// Checks the invariants.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        self.failures.check()
    }
}

impl<K: Hash + Eq + Clone> Policy<K> for FastSlow<K> {
    fn record_failure(&mut self, key: &K, now: Nanos, _: u64, in_use: &mut dyn FnMut(&K) -> bool) -> Failure {
        let failures = self.failures.touch(key, now, in_use);
        let before = *failures;
        *failures = before.saturating_add(1);
        let wait = if before < self.fast_attempts { self.fast } else { self.slow };
        Failure { wait, counted: true }
    }

    fn restore_failures(&mut self, key: &K, failures: u32, now: Nanos, in_use: &mut dyn FnMut(&K) -> bool) {
        let own = self.failures.touch(key, now, in_use);
        *own = failures.max(*own);
    }

    fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.failures.get(key).copied().unwrap_or(0)
    }

    fn tracked_keys(&self) -> usize {
        self.failures.len()
    }

    fn take_evicted(&mut self, evicted: &mut Vec<K>) {
        self.failures.take_evicted(evicted);
    }
}

impl<K> fmt::Debug for FastSlow<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FastSlow")
            .field("fast", &self.fast)
            .field("slow", &self.slow)
            .field("fast_attempts", &self.fast_attempts)
            .field("tracked", &self.failures.len())
            .finish_non_exhaustive()
    }
}
