//! PURE. The trait of all backoff policies.

use flyball_sync::Nanos;

use crate::failure::Failure;

/// A backoff policy: decides how long a failed key waits.
///
/// A policy is a pure state machine: the time and a random number are arguments, so a run is reproducible. The owner of
/// a policy (`Limiter`, a queue) holds the lock, the clock and the randomness; a policy must not call its owner.
///
/// # Examples
/// A policy with the same wait after each failure, for all keys:
/// ```
/// use flyball_ratelimit::{Failure, Limiter, Nanos, Policy};
/// use std::time::Duration;
///
/// struct Fixed(Duration);
///
/// impl<K: ?Sized> Policy<K> for Fixed {
///     const COUNTS_FAILURES: bool = false;
///
///     fn record_failure(&mut self, _: &K, _: Nanos, _: u64, _: &mut dyn FnMut(&K) -> bool) -> Failure {
///         Failure { wait: self.0, counted: true }
///     }
///     fn forget(&mut self, _: &K) {}
///     fn num_requeues(&self, _: &K) -> u32 { 0 }
///     fn tracked_keys(&self) -> usize { 0 }
/// }
///
/// let limiter = Limiter::new(Fixed(Duration::from_secs(5)));
/// assert_eq!(limiter.record_failure(&"a"), Duration::from_secs(5));
/// ```
///
/// A rate limiter that threads and tasks wait for is not a policy:
/// ```compile_fail,E0277
/// use flyball_ratelimit::{Limiter, Quota, RateLimiter};
/// use std::num::NonZeroU32;
///
/// let limiter = Limiter::<&str, _>::new(RateLimiter::new(Quota::per_second(NonZeroU32::MIN))); // not `TokenBucket::new(..)`
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a backoff policy for keys of type `{K}`",
    note = "policies are `Exponential`, `FastSlow`, `TokenBucket`, and `MaxOf`, `Capped`, `MaxElapsed` and `RetryBudget` of them",
    note = "a limiter that threads and tasks wait for, such as `RateLimiter`, is not a policy"
)]
pub trait Policy<K: ?Sized> {
    /// Whether failures are counted, so that [`num_requeues`](Self::num_requeues) is more than 0 after a failure.
    ///
    /// Options that give up on a key after a number of failures do not compile with a policy that counts none, such as a
    /// token bucket.
    const COUNTS_FAILURES: bool = true;

    /// Whether failed keys wait at all: `false` for the policy of a queue without a limiter, and for combinations of such policies that add no wait.
    ///
    /// Owners that retry failed keys by themselves, such as a controller, do not compile with a policy that never waits: a key that keeps failing would
    /// occupy a processor.
    const LIMITS: bool = true;

    /// Counts a failure of `key` at `now`, and returns how long the key waits from `now`.
    ///
    /// `random` is uniform over all of `u64`; only jitter uses it.
    ///
    /// The failures of every key for which `in_use` returns true are kept: they do not expire, and failures of other keys do not evict them. This is
    /// for owners that store keys, such as a queue: a key that waits there for a long time is not idle. A policy calls `in_use` only before it evicts
    /// a key, so the calls are rare; a policy that combines others passes `in_use` to them. Without such an owner, pass `&mut |_| false`.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::{Exponential, Nanos, Policy};
    /// use std::num::NonZeroU32;
    /// use std::time::Duration;
    ///
    /// let secs = Duration::from_secs;
    /// let mut backoff = Exponential::new(secs(1)..=secs(60)).max_keys(NonZeroU32::MIN);
    /// let mut in_use = |key: &&str| *key == "a";
    /// let first = backoff.record_failure(&"a", Nanos::ZERO, 0, &mut in_use);
    /// assert_eq!((first.wait, first.counted), (secs(1), true));
    /// let _ = backoff.record_failure(&"b", Nanos::ZERO, 0, &mut in_use); // does not evict "a"
    /// assert_eq!(backoff.num_requeues(&"a"), 1);
    /// ```
    fn record_failure(
        &mut self,
        key: &K,
        now: Nanos,
        random: u64,
        in_use: &mut dyn FnMut(&K) -> bool,
    ) -> Failure;

    /// Raises the number of failures of `key` to `failures`, without a wait: for an owner that stores the failures of keys itself, and starts again.
    /// Has no effect if the key has that many already.
    ///
    /// The next failure counts from there: with `failures` of 3, it is the fourth. `now` and `in_use` are as in
    /// [`record_failure`](Self::record_failure). The default does nothing, for policies that count no failures.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::{Exponential, Nanos, Policy};
    /// use std::time::Duration;
    ///
    /// let secs = Duration::from_secs;
    /// let mut backoff = Exponential::new(secs(1)..=secs(60));
    /// backoff.restore_failures(&"a", 3, Nanos::ZERO, &mut |_| false);
    /// assert_eq!(backoff.num_requeues(&"a"), 3);
    /// assert_eq!(backoff.record_failure(&"a", Nanos::ZERO, 0, &mut |_| false).wait, secs(8));
    /// ```
    fn restore_failures(&mut self, key: &K, failures: u32, now: Nanos, in_use: &mut dyn FnMut(&K) -> bool) {
        let _ = (key, failures, now, in_use);
    }

    /// Forgets the failures of `key`. Has no effect for an unknown key.
    fn forget(&mut self, key: &K);

    /// The number of failures counted for `key` and not forgotten; 0 for an unknown key.
    fn num_requeues(&self, key: &K) -> u32;

    /// The number of keys with stored state. If it is zero, [`forget`](Self::forget) has no effect, and [`num_requeues`](Self::num_requeues) is 0 for
    /// every key: a [`Limiter`](crate::Limiter) then calls neither.
    fn tracked_keys(&self) -> usize;

    /// Moves the keys whose state the policy has dropped (forgotten, expired or evicted) to the end of `evicted`.
    ///
    /// The owner calls this under its lock after [`record_failure`](Self::record_failure) and [`forget`](Self::forget), and drops `evicted` after
    /// unlocking, so that no key's `Drop` runs under a lock. If the owner does not take the keys, the policy drops them in a later call, so an owner
    /// that never calls this method leaks nothing. A policy that stores no keys need not implement this method.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::{Exponential, Nanos, Policy};
    /// use std::time::Duration;
    ///
    /// let mut backoff = Exponential::new(Duration::from_secs(1)..=Duration::from_secs(60));
    /// let _ = backoff.record_failure(&"a", Nanos::ZERO, 0, &mut |_| false);
    /// backoff.forget(&"a");
    /// let mut evicted = Vec::new();
    /// backoff.take_evicted(&mut evicted);
    /// assert_eq!(evicted.len(), 1); // to be dropped where no lock is held
    /// ```
    fn take_evicted(&mut self, evicted: &mut Vec<K>)
    where
        K: Sized,
    {
        let _ = evicted;
    }
}
