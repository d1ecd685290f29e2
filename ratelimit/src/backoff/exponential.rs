//! PURE. Exponential backoff: waits that grow with every failure of a key.
//!
//! # Invariants
//! 1. 0 < base ≤ cap.
//! 2. A wait is at most the cap, whatever the number of failures: both the doubling and the count saturate.
//!
//! The invariants of the state per key (`per_key.rs`) hold, too.

use std::fmt;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::time::Duration;

use flyball_sync::Nanos;

use crate::backoff::jitter::Jitter;
use crate::backoff::per_key::PerKey;
use crate::error::InvalidBackoff;
use crate::failure::Failure;
use crate::policy::Policy;

/// Waits that double with every failure of a key: base · 2ⁿ after n earlier failures, up to a cap.
///
/// Waits are whole nanoseconds and saturate at 584 years, so no number of failures causes an overflow. Nothing leaks if you never call
/// [`forget`](Policy::forget) for a key: its failures expire by themselves ([`forget_after`](Self::forget_after)), and the number of keys is bounded
/// ([`max_keys`](Self::max_keys)).
///
/// # Examples
/// ```
/// use flyball_ratelimit::{Exponential, Nanos, Policy};
/// use std::time::Duration;
///
/// let millis = Duration::from_millis;
/// let mut backoff = Exponential::new(millis(5)..=millis(15));
/// let mut wait = |key| backoff.record_failure(&key, Nanos::ZERO, 0, &mut |_| false).wait;
/// assert_eq!([wait("a"), wait("a"), wait("a")], [millis(5), millis(10), millis(15)]);
/// assert_eq!(wait("b"), millis(5)); // keys are independent
/// backoff.forget(&"a");
/// assert_eq!(backoff.num_requeues(&"a"), 0);
/// ```
#[doc(alias = "ItemExponentialFailureRateLimiter")]
pub struct Exponential<K> {
    curve: Curve,
    failures: PerKey<K, Failures>,
}

/// The rule that computes waits from failures.
#[derive(Clone, Copy)]
struct Curve {
    base: u64,
    cap: u64,
    immediate_first: bool,
    jitter: Jitter,
}

#[derive(Clone, Copy, Default)]
struct Failures {
    count: u32,
    /// The last wait; used only by decorrelated jitter.
    last_wait: u64,
}

// === impl Exponential ===

impl<K> Exponential<K> {
    /// Creates a backoff whose waits double from `*waits.start()` to `*waits.end()`.
    ///
    /// # Panics
    /// Panics if the range starts at zero or is empty. For values from outside the program, use
    /// [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub fn new(waits: RangeInclusive<Duration>) -> Self {
        match Self::try_new(waits) {
            Ok(exponential) => exponential,
            Err(invalid) => panic!("{invalid}"),
        }
    }

    /// Creates a backoff whose waits double from `*waits.start()` to `*waits.end()`.
    ///
    /// # Errors
    /// Returns [`InvalidBackoff`] with the range if it starts at zero or is empty.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::{Exponential, InvalidBackoff};
    /// use std::time::Duration;
    ///
    /// fn from_settings(cap: Duration) -> Result<Exponential<String>, InvalidBackoff> {
    ///     Exponential::try_new(Duration::from_millis(5)..=cap)
    /// }
    ///
    /// assert!(from_settings(Duration::from_secs(60)).is_ok());
    /// assert!(from_settings(Duration::from_millis(1)).is_err());
    /// ```
    pub fn try_new(waits: RangeInclusive<Duration>) -> Result<Self, InvalidBackoff> {
        let (base, cap) = (*waits.start(), *waits.end());
        if base.is_zero() || base > cap {
            return Err(InvalidBackoff::new(waits));
        }
        let (base, cap) = (Nanos::from_duration(base).get(), Nanos::from_duration(cap).get());
        let failures = PerKey::new(Duration::from_nanos(cap));
        Ok(Self { curve: Curve { base, cap, immediate_first: false, jitter: Jitter::None }, failures })
    }

    /// Makes the wait after the first failure zero; the wait after the second failure is the base, and so on.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::{Exponential, Nanos, Policy};
    /// use std::time::Duration;
    ///
    /// let secs = Duration::from_secs;
    /// let mut backoff = Exponential::new(secs(1)..=secs(300)).immediate_first();
    /// let waits = [(); 11].map(|()| backoff.record_failure(&"a", Nanos::ZERO, 0, &mut |_| false).wait.as_secs());
    /// assert_eq!(waits, [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
    /// ```
    #[must_use]
    pub fn immediate_first(self) -> Self {
        Self { curve: Curve { immediate_first: true, ..self.curve }, ..self }
    }

    /// Sets the jitter, which spreads the waits so that keys that failed together are not retried together.
    ///
    /// Each wait is drawn from a range that does not extend above the cap. So no wait exceeds the cap, and even the waits of keys that have failed
    /// for a long time are spread.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::{Exponential, Jitter, Nanos, Policy};
    /// use std::time::Duration;
    ///
    /// let (base, cap) = (Duration::from_millis(5), Duration::from_secs(1_000));
    /// let mut backoff = Exponential::new(base..=cap).jitter(Jitter::Decorrelated);
    /// let random = 1 << 63; // a limiter draws it; here it is always the middle
    /// assert_eq!(backoff.record_failure(&"a", Nanos::ZERO, random, &mut |_| false).wait, Duration::from_millis(10)); // range: 5 to 15 ms
    /// assert_eq!(backoff.record_failure(&"a", Nanos::ZERO, random, &mut |_| false).wait, Duration::from_micros(17_500)); // range: 5 to 30 ms
    /// ```
    #[must_use]
    pub fn jitter(self, jitter: Jitter) -> Self {
        Self { curve: Curve { jitter, ..self.curve }, ..self }
    }

    /// Sets how long the failures of a key are kept, in addition to the cap. The default is the longer of the cap and
    /// ten minutes.
    ///
    /// If a key fails again when its last failure is longer ago than the cap plus this time, it starts from zero failures. After that time, a failure
    /// of a different key may remove the state of the key. While a key is in a queue, its failures do not expire.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::{Exponential, Nanos, Policy};
    /// use std::time::Duration;
    ///
    /// let secs = Duration::from_secs;
    /// let mut backoff = Exponential::new(secs(1)..=secs(60)).forget_after(secs(10));
    /// let mut wait = |at| backoff.record_failure(&"a", Nanos::ZERO + secs(at), 0, &mut |_| false).wait;
    /// assert_eq!([wait(0), wait(5)], [secs(1), secs(2)]);
    /// assert_eq!(wait(100), secs(1)); // starts anew
    /// ```
    #[must_use]
    pub fn forget_after(self, rest: Duration) -> Self {
        Self { failures: self.failures.forget_after(rest), ..self }
    }

    /// Limits the number of keys whose failures are kept: 2²⁰ by default, each with about 55 bytes besides the key
    /// itself.
    ///
    /// Beyond that, a new key replaces the key whose last failure is the oldest; if the replaced key fails again, it starts from zero failures. So
    /// set the limit higher than the number of keys that can be failing at the same time. If a queue uses this policy, the failures of keys in the
    /// queue are not evicted, even if these keys are more than the limit.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::{Exponential, Nanos, Policy};
    /// use std::num::NonZeroU32;
    /// use std::time::Duration;
    ///
    /// let secs = Duration::from_secs;
    /// let mut backoff = Exponential::new(secs(1)..=secs(60)).max_keys(NonZeroU32::new(2).unwrap());
    /// for key in ["a", "b", "c"] {
    ///     let _ = backoff.record_failure(&key, Nanos::ZERO, 0, &mut |_| false);
    /// }
    /// assert_eq!(backoff.tracked_keys(), 2);
    /// assert_eq!(backoff.num_requeues(&"a"), 0); // evicted
    /// ```
    #[must_use]
    pub fn max_keys(self, most: NonZeroU32) -> Self {
        Self { failures: self.failures.max_keys(most), ..self }
    }

    /// Checks the invariants.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        let Curve { base, cap, .. } = self.curve;
        if base == 0 || base > cap {
            return Err(format!("invariant 1: base {base}, cap {cap}"));
        }
        self.failures.check()
    }
}

impl Curve {
    /// Returns the wait after a failure that follows the failures in `before`.
    fn wait(&self, before: Failures, random: u64) -> u64 {
        match self.doubled(before.count) {
            Some(doubled) => self.jitter.wait(doubled, before.last_wait, self.base, self.cap, random),
            None => 0,
        }
    }

    /// Returns the wait without jitter after a failure that follows `before` failures; `None` if the next attempt is immediate.
    fn doubled(&self, before: u32) -> Option<u64> {
        let doublings = before.checked_sub(u32::from(self.immediate_first))?;
        // Invariant 2: a result that does not fit into 64 bits is beyond every cap.
        let doubled = if doublings <= self.base.leading_zeros() { self.base << doublings } else { u64::MAX };
        Some(doubled.min(self.cap))
    }
}

impl<K: Hash + Eq + Clone> Policy<K> for Exponential<K> {
    fn record_failure(
        &mut self,
        key: &K,
        now: Nanos,
        random: u64,
        in_use: &mut dyn FnMut(&K) -> bool,
    ) -> Failure {
        let failures = self.failures.touch(key, now, in_use);
        let last_wait = self.curve.wait(*failures, random);
        *failures = Failures { count: failures.count.saturating_add(1), last_wait };
        Failure { wait: Duration::from_nanos(last_wait), counted: true }
    }

    fn restore_failures(&mut self, key: &K, failures: u32, now: Nanos, in_use: &mut dyn FnMut(&K) -> bool) {
        let own = self.failures.touch(key, now, in_use);
        if failures > own.count {
            own.count = failures;
            // The actual last wait is unknown. Without one, decorrelated jitter would begin at the base again.
            own.last_wait = own.last_wait.max(self.curve.doubled(failures - 1).unwrap_or(0));
        }
    }

    fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.failures.get(key).map_or(0, |failures| failures.count)
    }

    fn tracked_keys(&self) -> usize {
        self.failures.len()
    }

    fn take_evicted(&mut self, evicted: &mut Vec<K>) {
        self.failures.take_evicted(evicted);
    }
}

impl<K> fmt::Debug for Exponential<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Curve { base, cap, immediate_first, jitter } = self.curve;
        f.debug_struct("Exponential")
            .field("waits", &(Duration::from_nanos(base)..=Duration::from_nanos(cap)))
            .field("immediate_first", &immediate_first)
            .field("jitter", &jitter)
            .field("tracked", &self.failures.len())
            .finish_non_exhaustive()
    }
}
