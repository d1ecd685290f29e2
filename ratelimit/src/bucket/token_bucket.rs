//! PURE. A token bucket in exact integers.
//!
//! The algorithm is virtual scheduling, one of the two forms of the generic cell rate algorithm (ITU-T Recommendation
//! I.371): instead of a level and the time of its measurement, the bucket is **one number**, the time at which it would be
//! full again, in the parts of [`FixedPointRate`].
//!
//! # Invariants
//! 1. `full_at` never exceeds the horizon: the value with the largest debt, whose last token is due at [`Nanos::MAX`], which means never. The horizon
//!    is below 2^97, so no sum here can wrap.
//! 2. Between two changes of the quota, at most `burst` + rate × (b − a) of the tokens granted and not given back are due in the nanoseconds a ≤ t <
//!    b. Proof: a reservation sets `full_at` to at least *now*, and then raises it by its tokens. Suppose that n tokens are due at a, the start of
//!    the span. If they were available when they were taken, `full_at` is then at least a + n tokens; otherwise it is then a + burst, and n ≤ burst.
//!    After the last tokens of the span are taken, `full_at` is at most b + burst. So the tokens after the first n cost no more than b − a + burst −
//!    n tokens, or b − a.
//! 3. A token is due no earlier than it is reserved, and no later than invariant 2 requires.
//! 4. Tokens are given back only if no reservation depends on them: see [`TokenBucket::cancel`].
//!
//! Rejected: a level and a time (x/time/rate, in floating point), because those are two numbers to keep consistent, and
//! they drift.

use std::num::NonZeroU32;

use flyball_sync::Nanos;

use crate::bucket::fixed_point::FixedPointRate;
use crate::bucket::quota::Quota;
use crate::bucket::reservation::Reservation;
use crate::error::{InsufficientCapacity, NotYet, TryAcquireError};
use crate::failure::Failure;
use crate::policy::Policy;

/// A token bucket: a steady rate, and a burst after an idle time.
///
/// The bucket starts full. Tokens can be reserved ahead of time: there is no limit on their number, and reservations
/// become due in the order of the calls. As a [`Policy`], the bucket is one budget shared by all keys, and stores
/// nothing per key.
///
/// The rate is exact: any span of `d` nanoseconds contains at most `burst` + rate × `d` tokens that are granted and not
/// given back. If a clock jumps back, tokens are late by the jump, and never early, except as described at
/// [`cancel`](Self::cancel). (Once a clock shows [`Nanos::MAX`], after 584 years, all tokens are due, even those that
/// were never due before.)
///
/// # Examples
/// ```
/// use flyball_ratelimit::{Nanos, Quota, TokenBucket};
/// use std::num::NonZeroU32;
/// use std::time::Duration;
///
/// let mut bucket = TokenBucket::new(Quota::per_second(NonZeroU32::new(2).unwrap()));
/// let now = Nanos::ZERO;
/// assert_eq!(bucket.reserve(now).due(), now);
/// assert_eq!(bucket.reserve(now).due(), now);
/// let third = bucket.reserve(now);
/// assert_eq!(third.due(), now + Duration::from_millis(500));
/// assert!(bucket.cancel(third, now)); // no later reservation depends on it
/// assert_eq!(bucket.try_acquire(now).unwrap_err().retry_after(), Duration::from_millis(500));
/// ```
#[derive(Debug)]
#[doc(alias = "BucketRateLimiter")]
pub struct TokenBucket {
    quota: Quota,
    scale: FixedPointRate,
    /// The time, in parts, at which the bucket would be full if nothing more were taken.
    full_at: u128,
    /// The number of quota changes and of refunds of granted tokens; each reservation stores the value of this number at the time of the reservation.
    change: u64,
}

// === impl TokenBucket ===

impl TokenBucket {
    /// Creates a full bucket.
    #[must_use]
    pub const fn new(quota: Quota) -> Self {
        Self { quota, scale: FixedPointRate::new(quota), full_at: 0, change: 0 }
    }

    /// Takes the next token that is not reserved, which may be due later.
    pub fn reserve(&mut self, now: Nanos) -> Reservation {
        self.reserve_fitting(NonZeroU32::MIN, now)
    }

    /// Takes the next `count` tokens that are not reserved. All of them are due at the due time of the last one.
    ///
    /// # Errors
    /// Returns [`InsufficientCapacity`] for more tokens than the burst; nothing is reserved in that case.
    ///
    /// # Examples
    /// ```
    /// # use flyball_ratelimit::{Nanos, Quota, TokenBucket};
    /// # use std::{num::NonZeroU32, time::Duration};
    /// let five = NonZeroU32::new(5).unwrap();
    /// let mut bucket = TokenBucket::new(Quota::per_second(five));
    /// assert_eq!(bucket.reserve_many(five, Nanos::ZERO).unwrap().due(), Nanos::ZERO);
    /// assert_eq!(bucket.reserve_many(five, Nanos::ZERO).unwrap().due(), Nanos::ZERO + Duration::from_secs(1));
    /// let six = NonZeroU32::new(6).unwrap();
    /// assert!(bucket.reserve_many(six, Nanos::ZERO).is_err()); // above the burst
    /// ```
    pub fn reserve_many(
        &mut self,
        count: NonZeroU32,
        now: Nanos,
    ) -> Result<Reservation, InsufficientCapacity> {
        self.fits(count)?;
        Ok(self.reserve_fitting(count, now))
    }

    /// Takes a token if one is available now.
    ///
    /// # Errors
    /// Returns [`NotYet`] with the time of the next token if all are taken; nothing is reserved in that case.
    pub fn try_acquire(&mut self, now: Nanos) -> Result<(), NotYet> {
        self.try_acquire_fitting(NonZeroU32::MIN, now)
    }

    /// Takes `count` tokens if all of them are available now; otherwise takes none.
    ///
    /// # Errors
    /// Returns [`TryAcquireError::NotYet`] with the time at which the tokens will be available if no other call takes
    /// one, or [`TryAcquireError::InsufficientCapacity`] for more tokens than the burst. Nothing is reserved in either
    /// case.
    pub fn try_acquire_many(&mut self, count: NonZeroU32, now: Nanos) -> Result<(), TryAcquireError> {
        self.fits(count)?;
        Ok(self.try_acquire_fitting(count, now)?)
    }

    /// Returns when `count` tokens are available together, if no other call takes or reserves one: now, or later.
    ///
    /// # Errors
    /// Returns [`InsufficientCapacity`] for more tokens than the burst.
    ///
    /// # Examples
    /// ```
    /// # use flyball_ratelimit::{Nanos, Quota, TokenBucket};
    /// # use std::{num::NonZeroU32, time::Duration};
    /// let two = NonZeroU32::new(2).unwrap();
    /// let mut bucket = TokenBucket::new(Quota::per_second(two));
    /// bucket.try_acquire(Nanos::ZERO)?;
    /// assert_eq!(bucket.available_at(NonZeroU32::MIN, Nanos::ZERO), Ok(Nanos::ZERO));
    /// assert_eq!(bucket.available_at(two, Nanos::ZERO), Ok(Nanos::ZERO + Duration::from_millis(500)));
    /// # Ok::<(), flyball_ratelimit::NotYet>(())
    /// ```
    pub fn available_at(&self, count: NonZeroU32, now: Nanos) -> Result<Nanos, InsufficientCapacity> {
        self.fits(count)?;
        Ok(self.scale.reserve(self.full_at, now, count).1)
    }

    /// Gives back tokens that were not used, and returns whether this had an effect.
    ///
    /// It has no effect in four cases: the due time of the tokens has passed; other tokens are reserved for a later time (those keep their due time,
    /// and the gap before them would stay unused); the tokens are due at [`Nanos::MAX`], which is never; or the quota has been changed since.
    /// Otherwise the bucket is as if the tokens had never been reserved. Go's `x/time/rate` has the same rule.
    ///
    /// Due times are whole nanoseconds: at rates above one token per nanosecond, a token that is given back within the
    /// nanosecond in which it is due may let one more token through in that nanosecond. The same applies to a token that was due immediately and is
    /// given back after the clock has advanced and jumped back: one number does not record that the bucket was full in between.
    pub fn cancel(&mut self, reservation: Reservation, now: Nanos) -> bool {
        // Invariant 4.
        if !reservation.is_open(self.change, now) {
            return false;
        }
        let without = self.scale.cancel(self.full_at, now, &reservation);
        self.full_at = without.unwrap_or(self.full_at);
        without.is_some()
    }

    /// Changes rate and burst from `now` on.
    ///
    /// Available tokens stay available, up to the new burst; a larger burst fills up at the new rate. A bucket from
    /// which tokens were reserved ahead still owes as many tokens, which then arrive at the new rate. The reservations
    /// themselves keep their times.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::{Nanos, Quota, TokenBucket};
    /// use std::num::NonZeroU32;
    ///
    /// let (ten, hundred) = (NonZeroU32::new(10).unwrap(), NonZeroU32::new(100).unwrap());
    /// let mut bucket = TokenBucket::new(Quota::per_second(ten));
    /// bucket.try_acquire_many(NonZeroU32::new(4).unwrap(), Nanos::ZERO)?;
    /// bucket.set_quota(Quota::per_second(hundred), Nanos::ZERO);
    /// assert_eq!(bucket.quota(), Quota::per_second(hundred));
    /// assert_eq!(bucket.available_tokens(Nanos::ZERO), 6); // the larger burst fills up at the new rate
    /// # Ok::<(), flyball_ratelimit::TryAcquireError>(())
    /// ```
    pub fn set_quota(&mut self, quota: Quota, now: Nanos) {
        if quota == self.quota {
            return;
        }
        let scale = FixedPointRate::new(quota);
        self.full_at = self.scale.carry(self.full_at, now, &scale);
        self.quota = quota;
        self.scale = scale;
        self.change += 1;
    }

    /// The current quota.
    #[must_use]
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// The number of tokens that could be taken now.
    #[must_use]
    pub fn available_tokens(&self, now: Nanos) -> u32 {
        self.scale.available(self.full_at, now)
    }

    /// Checks the invariants.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        if self.full_at > self.scale.horizon() {
            return Err(format!("invariant 1: full at {}, beyond {}", self.full_at, self.scale.horizon()));
        }
        Ok(())
    }

    pub(crate) const fn scale(&self) -> &FixedPointRate {
        &self.scale
    }

    pub(crate) const fn full_at(&self) -> u128 {
        self.full_at
    }

    pub(crate) const fn set_full_at(&mut self, full_at: u128) {
        self.full_at = full_at;
    }

    /// Gives back `back` parts of granted tokens that were not used. The bucket becomes fuller by that amount, as if these
    /// parts had never been taken.
    ///
    /// Earlier reservations keep their times, which `full_at` no longer determines. So they can no longer be cancelled: otherwise `cancel` could
    /// mistake one of them for the latest reservation although a different one is due later, and the bucket would count as full at that later time
    /// although it is not.
    pub(crate) fn refund(&mut self, back: u128) {
        self.full_at -= back;
        self.change += u64::from(back > 0);
    }

    pub(crate) fn fits(&self, count: NonZeroU32) -> Result<(), InsufficientCapacity> {
        let burst = self.quota.burst_size();
        if count > burst { Err(InsufficientCapacity::new(count, burst)) } else { Ok(()) }
    }

    pub(crate) fn reserve_fitting(&mut self, count: NonZeroU32, now: Nanos) -> Reservation {
        // Invariants 2 and 3.
        let (full_at, due) = self.scale.reserve(self.full_at, now, count);
        self.full_at = full_at;
        Reservation::new(count, due, self.change)
    }

    pub(crate) fn try_acquire_fitting(&mut self, count: NonZeroU32, now: Nanos) -> Result<(), NotYet> {
        self.full_at = self.scale.try_acquire(self.full_at, now, count)?;
        Ok(())
    }
}

/// One budget for all keys: a failed key waits for the next free token.
impl<K: ?Sized> Policy<K> for TokenBucket {
    const COUNTS_FAILURES: bool = false;

    fn record_failure(&mut self, _: &K, now: Nanos, _: u64, _: &mut dyn FnMut(&K) -> bool) -> Failure {
        Failure { wait: self.reserve(now).delay(now), counted: true }
    }

    fn forget(&mut self, _: &K) {}

    fn num_requeues(&self, _: &K) -> u32 {
        0
    }

    fn tracked_keys(&self) -> usize {
        0
    }
}
