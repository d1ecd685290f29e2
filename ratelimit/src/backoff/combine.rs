//! PURE. Combinators of policies: the longer of two waits, and a cap on a wait.
//!
//! # Invariants
//! 1. Each inner policy counts each failure, and `forget` is passed to each inner policy.
//! 2. Each inner policy receives a random number of its own, derived from the number that the combination receives.
//!
//! The combinators are generic over the policies that they wrap, so they need no allocation and no dynamic call.

use std::time::Duration;

use flyball_sync::Nanos;
use flyball_sync::random::SplitMix64;

use crate::failure::Failure;
use crate::policy::Policy;

/// A policy that combines two policies: a key waits for the longer of their waits. Nest it to combine more than two.
///
/// Both policies count each failure, whichever wait is longer. So a bucket's token is spent even if the other policy's wait
/// is longer, and the retries after such waits may run in larger bursts than the bucket allows. client-go has the same
/// rule; to avoid such bursts, use [`RetryBudget`](crate::RetryBudget), which takes the token that is due when the key's
/// own wait ends.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{Exponential, FastSlow, MaxOf, Nanos, Policy};
/// use std::time::Duration;
///
/// let millis = Duration::from_millis;
/// let steps = FastSlow::new(millis(5), millis(3_000), 3);
/// let mut policy = MaxOf::new(steps, Exponential::new(millis(1)..=millis(1_000)));
/// assert_eq!(policy.record_failure(&"a", Nanos::ZERO, 0, &mut |_| false).wait, millis(5));
/// ```
#[derive(Debug)]
#[doc(alias = "MaxOfRateLimiter")]
pub struct MaxOf<A, B> {
    first: A,
    second: B,
}

// === impl MaxOf ===

impl<A, B> MaxOf<A, B> {
    /// Combines two policies: a key waits for the longer of their waits.
    #[must_use]
    pub const fn new(first: A, second: B) -> Self {
        Self { first, second }
    }

    /// Returns the two policies, to change their settings.
    pub const fn get_mut(&mut self) -> (&mut A, &mut B) {
        (&mut self.first, &mut self.second)
    }
}

impl<K: ?Sized, A: Policy<K>, B: Policy<K>> Policy<K> for MaxOf<A, B> {
    const COUNTS_FAILURES: bool = A::COUNTS_FAILURES || B::COUNTS_FAILURES;
    const LIMITS: bool = A::LIMITS || B::LIMITS;

    fn record_failure(
        &mut self,
        key: &K,
        now: Nanos,
        random: u64,
        in_use: &mut dyn FnMut(&K) -> bool,
    ) -> Failure {
        // Invariant 2: if both policies received the same number, their jitters would be correlated.
        let mut random = SplitMix64::new(random);
        let first = self.first.record_failure(key, now, random.next(), in_use);
        let second = self.second.record_failure(key, now, random.next(), in_use);
        Failure { wait: first.wait.max(second.wait), counted: first.counted || second.counted }
    }

    fn restore_failures(&mut self, key: &K, failures: u32, now: Nanos, in_use: &mut dyn FnMut(&K) -> bool) {
        self.first.restore_failures(key, failures, now, in_use);
        self.second.restore_failures(key, failures, now, in_use);
    }

    fn forget(&mut self, key: &K) {
        self.first.forget(key);
        self.second.forget(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.first.num_requeues(key).max(self.second.num_requeues(key))
    }

    fn tracked_keys(&self) -> usize {
        self.first.tracked_keys().max(self.second.tracked_keys())
    }

    fn take_evicted(&mut self, evicted: &mut Vec<K>)
    where
        K: Sized,
    {
        self.first.take_evicted(evicted);
        self.second.take_evicted(evicted);
    }
}

/// A policy that limits the waits of another policy to a cap.
///
/// The inner policy counts each failure as if its wait were not capped, so a capped bucket allows more retries than its rate. A wait of
/// [`Duration::MAX`](Failure::wait), which gives the key up, is not capped.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{Capped, FastSlow, Nanos, Policy};
/// use std::time::Duration;
///
/// let secs = Duration::from_secs;
/// let mut policy = Capped::new(FastSlow::new(secs(5), secs(1_000), 0), secs(500));
/// assert_eq!(policy.record_failure(&"a", Nanos::ZERO, 0, &mut |_| false).wait, secs(500));
/// ```
#[derive(Debug)]
#[doc(alias = "WithMaxWaitRateLimiter")]
pub struct Capped<P> {
    inner: P,
    cap: Duration,
}

// === impl Capped ===

impl<P> Capped<P> {
    /// Limits the waits of `inner` to `cap`.
    #[must_use]
    pub const fn new(inner: P, cap: Duration) -> Self {
        Self { inner, cap }
    }

    /// Returns the inner policy, to change its settings.
    pub const fn get_mut(&mut self) -> &mut P {
        &mut self.inner
    }
}

impl<K: ?Sized, P: Policy<K>> Policy<K> for Capped<P> {
    const COUNTS_FAILURES: bool = P::COUNTS_FAILURES;
    const LIMITS: bool = P::LIMITS;

    fn record_failure(
        &mut self,
        key: &K,
        now: Nanos,
        random: u64,
        in_use: &mut dyn FnMut(&K) -> bool,
    ) -> Failure {
        let failure = self.inner.record_failure(key, now, random, in_use);
        match failure.wait {
            Duration::MAX => failure,
            wait => Failure { wait: wait.min(self.cap), ..failure },
        }
    }

    fn restore_failures(&mut self, key: &K, failures: u32, now: Nanos, in_use: &mut dyn FnMut(&K) -> bool) {
        self.inner.restore_failures(key, failures, now, in_use);
    }

    fn forget(&mut self, key: &K) {
        self.inner.forget(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.inner.num_requeues(key)
    }

    fn tracked_keys(&self) -> usize {
        self.inner.tracked_keys()
    }

    fn take_evicted(&mut self, evicted: &mut Vec<K>)
    where
        K: Sized,
    {
        self.inner.take_evicted(evicted);
    }
}
