//! PURE. A token bucket in exact integers.
//!
//! Virtual scheduling, one of the two forms of the generic cell rate algorithm (ITU-T Recommendation I.371): instead
//! of a level and the time it was taken, the bucket is **one number**, the time at which it would be full again, in the
//! parts of [`FixedPointRate`].
//!
//! # Invariants
//! 1. `full_at` never lies beyond the horizon, the fullest debt whose last token is due at [`Nanos::MAX`] (never).
//!    That is below 2^97, so no sum here can wrap.
//! 2. Between two changes of the quota, of any tokens granted and not given back, at most `burst` + rate × (b − a) are
//!    due in the nanoseconds a ≤ t < b. Proof: a reservation moves `full_at` up by its tokens and never below *now*. Let
//!    the first of the span be n tokens due at a. If they were there, `full_at` is at least a + n tokens; if they had to
//!    be waited for, it is a + burst, and n ≤ burst. The last of the span leaves `full_at` at no more than b + burst. So
//!    the tokens after the first n cost no more than b − a + burst − n tokens, or b − a.
//! 3. A token is due no earlier than it is reserved, and no later than needed for 2.
//! 4. What is given back can have been waited for by nobody: see [`TokenBucket::cancel`].
//!
//! Rejected: a level and a time (x/time/rate, in floating point) is two numbers to keep in step, and drifts.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::bucket::fixed_point::FixedPointRate;
use crate::{InsufficientCapacity, Nanos, NotYet, Policy, Quota, Reservation, TryAcquireError};

/// A token bucket: a steady rate, and a burst after a rest.
///
/// It starts full. Tokens may be reserved ahead of time: a debt that grows by one token's time with each, without a
/// bound, so that those who reserve are served in the order of their calls. As a [`Policy`] it is one budget shared by
/// all keys, and counts nothing per key.
///
/// The rate is exact: of the tokens granted and not given back, no span of `d` nanoseconds ever holds more than
/// `burst` + rate × `d`. A clock that jumps back makes tokens late by the jump, and never early, but for what
/// [`cancel`](Self::cancel) says. (Once a clock shows [`Nanos::MAX`], after 584 years, all that was never due is.)
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
/// assert!(bucket.cancel(third, now)); // nobody has reserved after it
/// assert_eq!(bucket.try_acquire(now).unwrap_err().due(), now + Duration::from_millis(500));
/// ```
#[derive(Debug)]
#[doc(alias = "BucketRateLimiter")]
pub struct TokenBucket {
    quota: Quota,
    scale: FixedPointRate,
    /// When the bucket would be full if nothing more was taken, in parts.
    full_at: u128,
    /// How often the quota has changed, or tokens came back that were granted; a reservation remembers after which it was made.
    change: u64,
}

// === impl TokenBucket ===

impl TokenBucket {
    /// A full bucket.
    #[must_use]
    pub const fn new(quota: Quota) -> Self {
        Self { quota, scale: FixedPointRate::new(quota), full_at: 0, change: 0 }
    }

    /// Takes the next token that nobody has reserved, at once or ahead of time.
    pub fn reserve(&mut self, now: Nanos) -> Reservation {
        self.reserve_fitting(NonZeroU32::MIN, now)
    }

    /// Takes the next `count` tokens that nobody has reserved, all of them due when the last one is.
    ///
    /// # Errors
    /// [`InsufficientCapacity`] for more than the burst: nothing is reserved then.
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
    /// assert_eq!(bucket.reserve_many(six, Nanos::ZERO).unwrap_err().requested(), six);
    /// ```
    pub fn reserve_many(
        &mut self,
        count: NonZeroU32,
        now: Nanos,
    ) -> Result<Reservation, InsufficientCapacity> {
        self.fits(count)?;
        Ok(self.reserve_fitting(count, now))
    }

    /// Takes a token if one is there now.
    ///
    /// # Errors
    /// [`NotYet`] with the time of the next token when all are taken; nothing is reserved then.
    pub fn try_acquire(&mut self, now: Nanos) -> Result<(), NotYet> {
        self.try_acquire_fitting(NonZeroU32::MIN, now)
    }

    /// Takes `count` tokens if all of them are there now; else none.
    ///
    /// # Errors
    /// [`TryAcquireError::NotYet`] with the time at which they will be there, if nobody else takes one; [`TryAcquireError::InsufficientCapacity`] for
    /// more than the burst. Nothing is reserved then.
    pub fn try_acquire_many(&mut self, count: NonZeroU32, now: Nanos) -> Result<(), TryAcquireError> {
        self.fits(count)?;
        Ok(self.try_acquire_fitting(count, now)?)
    }

    /// Gives back tokens that were not used, and says whether that made a difference.
    ///
    /// It does not when their time has passed, when others are reserved for a later time (those keep their
    /// place, and the gap before them can be used by nobody), when they are due at [`Nanos::MAX`], which is never, or when
    /// the quota has been changed since. Else all is as if they had never been reserved. Golang's x/time/rate
    /// has the same rule.
    ///
    /// Due times are whole nanoseconds: at rates above one token a nanosecond, a token given back within the nanosecond it is due
    /// in may let one more through in that nanosecond. So may a token that was there at once, given back after the clock was later
    /// and has jumped back: one number does not record that the bucket has been full in between.
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
    /// What is available stays available, up to the new burst; a larger burst fills up at the new rate. Debts stay
    /// debts of as many tokens, to be paid at the new rate. Tokens reserved before keep their times.
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

    /// The quota in force.
    #[must_use]
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// How many tokens could be taken at once.
    #[must_use]
    pub fn available_tokens(&self, now: Nanos) -> u32 {
        self.scale.available(self.full_at, now)
    }

    /// Walks the invariants.
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

    /// Was, and always had been, fuller by so much: tokens were granted that nobody used.
    ///
    /// Earlier reservations keep their times, which `full_at` no longer determines. So none of them can be cancelled from now on: the
    /// last of them would count as later than all others, be taken out before one that is used later, and at that one's time the bucket
    /// would count as full although it is not.
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

/// One budget for all keys: a key waits for the next free token.
impl<K: ?Sized> Policy<K> for TokenBucket {
    type Reservation = Reservation;

    const COUNTS_FAILURES: bool = false;

    fn record_failure(&mut self, _: &K, now: Nanos, _: u64) -> (Duration, Reservation) {
        let reservation = self.reserve(now);
        (reservation.delay(now), reservation)
    }

    fn forget(&mut self, _: &K) {}

    fn num_requeues(&self, _: &K) -> u32 {
        0
    }

    fn cancel(&mut self, reservation: Reservation, now: Nanos) -> bool {
        TokenBucket::cancel(self, reservation, now)
    }

    fn tracked_keys(&self) -> usize {
        0
    }
}
