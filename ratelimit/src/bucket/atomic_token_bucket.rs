//! SHELL. A token bucket that threads share, with the time as an argument.
//!
//! | what | guarded by |
//! |---|---|
//! | the time at which the bucket would be full | the atomic word of [`PackedBucket`] |
//! | the quota, and numbers that do not fit into the word | `exact` |
//!
//! No user code runs in this module.

use std::fmt;
use std::num::NonZeroU32;

use flyball_sync::Nanos;
use flyball_sync::locks::Mutex;

use crate::bucket::packed::{LockedBucket, PackedBucket};
use crate::bucket::quota::Quota;
use crate::bucket::reservation::Reservation;
use crate::bucket::token_bucket::TokenBucket;
use crate::error::{InsufficientCapacity, NotYet, TryAcquireError};

/// A token bucket that threads share. Its methods return the same results as those of a [`TokenBucket`], but take `&self`.
///
/// The bucket has no clock and no waiters: [`RateLimiter`](crate::RateLimiter) adds both. Taking tokens is one atomic compare-and-exchange. Reserving
/// ahead, cancelling and changing the quota take a lock. Taking tokens also takes the lock if the numbers do not fit into 64 bits: at rates with a
/// whole number of nanoseconds per token, this happens only if the bucket takes longer than about a century to fill, if tokens are reserved that far
/// ahead, or if the clock jumps that far.
///
/// # Memory ordering
/// Taking a token or giving one back does not synchronise any other memory.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{AtomicTokenBucket, Nanos, Quota};
/// use std::num::NonZeroU32;
/// use std::time::Duration;
///
/// let bucket = AtomicTokenBucket::new(Quota::per_second(NonZeroU32::new(2).unwrap()));
/// let now = Nanos::ZERO;
/// std::thread::scope(|scope| {
///     scope.spawn(|| bucket.try_acquire(now).unwrap());
///     scope.spawn(|| bucket.try_acquire(now).unwrap());
/// });
/// assert_eq!(bucket.try_acquire(now).unwrap_err().due(), now + Duration::from_millis(500));
/// ```
pub struct AtomicTokenBucket {
    cell: PackedBucket,
    exact: Mutex<LockedBucket>,
}

// === impl AtomicTokenBucket ===

impl AtomicTokenBucket {
    /// Creates a full bucket.
    #[must_use]
    pub fn new(quota: Quota) -> Self {
        let cell = PackedBucket::new();
        let mut exact = LockedBucket::new(TokenBucket::new(quota));
        cell.open(&mut exact, Nanos::ZERO);
        Self { cell, exact: Mutex::new(exact) }
    }

    /// Takes a token if one is available now.
    ///
    /// # Errors
    /// Returns [`NotYet`] with the time of the next token if all are taken; nothing is reserved in that case.
    #[inline]
    pub fn try_acquire(&self, now: Nanos) -> Result<(), NotYet> {
        match self.cell.try_acquire(NonZeroU32::MIN, now) {
            Some(acquired) => acquired,
            None => self.locked(now, |bucket| bucket.try_acquire(now)),
        }
    }

    /// Takes `count` tokens if all of them are available now; otherwise takes none.
    ///
    /// # Errors
    /// Like [`TokenBucket::try_acquire_many`].
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::{AtomicTokenBucket, Nanos, Quota};
    /// use std::num::NonZeroU32;
    ///
    /// let (three, five) = (NonZeroU32::new(3).unwrap(), NonZeroU32::new(5).unwrap());
    /// let bucket = AtomicTokenBucket::new(Quota::per_second(five));
    /// assert!(bucket.try_acquire_many(three, Nanos::ZERO).is_ok());
    /// assert!(bucket.try_acquire_many(three, Nanos::ZERO).is_err()); // only two are available: none is taken
    /// assert_eq!(bucket.available_tokens(Nanos::ZERO), 2);
    /// ```
    #[inline]
    pub fn try_acquire_many(&self, count: NonZeroU32, now: Nanos) -> Result<(), TryAcquireError> {
        match self.cell.try_acquire(count, now) {
            Some(acquired) => Ok(acquired?),
            None => self.locked(now, |bucket| bucket.try_acquire_many(count, now)),
        }
    }

    /// Takes the next token that is not reserved, which may be due later.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::{AtomicTokenBucket, Nanos, Quota};
    /// use std::num::NonZeroU32;
    /// use std::time::Duration;
    ///
    /// let [two, three] = [2, 3].map(|n| NonZeroU32::new(n).unwrap());
    /// let bucket = AtomicTokenBucket::new(Quota::per_second(two));
    /// let now = Nanos::ZERO;
    /// assert_eq!(bucket.reserve_many(two, now)?.due(), now); // the burst
    /// assert!(bucket.reserve_many(three, now).is_err()); // more than the burst
    /// let next = bucket.reserve(now);
    /// assert_eq!(next.due(), now + Duration::from_millis(500));
    /// assert!(bucket.cancel(next, now)); // gives the token back, since no later one is reserved
    /// # Ok::<(), flyball_ratelimit::InsufficientCapacity>(())
    /// ```
    pub fn reserve(&self, now: Nanos) -> Reservation {
        self.locked(now, |bucket| bucket.reserve(now))
    }

    /// Takes the next `count` tokens that are not reserved. All of them are due at the due time of the last one.
    ///
    /// # Errors
    /// Returns [`InsufficientCapacity`] for more tokens than the burst; nothing is reserved in that case.
    pub fn reserve_many(&self, count: NonZeroU32, now: Nanos) -> Result<Reservation, InsufficientCapacity> {
        self.locked(now, |bucket| bucket.reserve_many(count, now))
    }

    /// Gives back tokens that were not used, and returns whether this had an effect: see [`TokenBucket::cancel`].
    pub fn cancel(&self, reservation: Reservation, now: Nanos) -> bool {
        self.locked(now, |bucket| bucket.cancel(reservation, now))
    }

    /// Changes rate and burst from `now` on: see [`TokenBucket::set_quota`].
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::{AtomicTokenBucket, Nanos, Quota};
    /// use std::num::NonZeroU32;
    /// use std::time::Duration;
    ///
    /// let (slow, fast) = (Quota::per_minute(NonZeroU32::MIN), Quota::per_second(NonZeroU32::MIN));
    /// let bucket = AtomicTokenBucket::new(slow);
    /// bucket.try_acquire(Nanos::ZERO)?;
    /// bucket.set_quota(fast, Nanos::ZERO);
    /// assert_eq!(bucket.quota(), fast);
    /// assert_eq!(bucket.try_acquire(Nanos::ZERO).unwrap_err().retry_after(), Duration::from_secs(1));
    /// # Ok::<(), flyball_ratelimit::NotYet>(())
    /// ```
    pub fn set_quota(&self, quota: Quota, now: Nanos) {
        self.locked(now, |bucket| bucket.set_quota(quota, now));
    }

    /// The current quota.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.exact.lock().bucket.quota()
    }

    /// The number of tokens that could be taken now.
    #[must_use]
    pub fn available_tokens(&self, now: Nanos) -> u32 {
        self.cell.available(now).unwrap_or_else(|| self.locked(now, |bucket| bucket.available_tokens(now)))
    }

    /// Checks the invariants.
    #[doc(hidden)]
    pub fn check(&self, now: Nanos) -> Result<(), String> {
        self.locked(now, |bucket| bucket.check())
    }

    #[cold]
    fn locked<R>(&self, now: Nanos, work: impl FnOnce(&mut TokenBucket) -> R) -> R {
        let mut exact = self.exact.lock();
        self.cell.close(&mut exact);
        let result = work(&mut exact.bucket);
        self.cell.open(&mut exact, now);
        result
    }
}

impl fmt::Debug for AtomicTokenBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtomicTokenBucket").field("quota", &self.quota()).finish_non_exhaustive()
    }
}
