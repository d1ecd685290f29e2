//! PURE. A quota in exact integers, with time counted in parts of a nanosecond.
//!
//! A nanosecond has as many *parts* as a period has tokens, and a token costs as many parts as the period has nanoseconds; both are divided by their
//! greatest common divisor, so that the numbers stay small. Only two values are rounded, and both are rounded up: a result in nanoseconds, and,
//! when a quota changes, the number of parts that the bucket lacks until it is full. So no fraction of a token is ever gained. A bucket is in *debt*
//! while tokens are taken that have not arrived yet.

use std::num::NonZeroU32;

use flyball_sync::Nanos;

use crate::bucket::quota::Quota;
use crate::bucket::reservation::Reservation;
use crate::error::NotYet;

/// A quota in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FixedPointRate {
    /// The cost of a token, in parts.
    token: u64,
    /// Parts per nanosecond.
    rate: u32,
    /// The maximum number of tokens that are granted together.
    burst: u32,
}

impl FixedPointRate {
    pub(crate) const fn new(quota: Quota) -> Self {
        let (tokens, period) = (quota.tokens().get(), quota.period_nanos());
        let (mut common, mut rest) = (period, tokens as u64);
        while rest != 0 {
            (common, rest) = (rest, common % rest);
        }
        Self { token: period / common, rate: tokens / common as u32, burst: quota.burst_size().get() }
    }

    pub(crate) const fn rate(&self) -> u32 {
        self.rate
    }

    pub(crate) const fn token(&self) -> u64 {
        self.token
    }

    /// Converts a time to parts. The result is below 2^96.
    pub(crate) fn parts(&self, now: Nanos) -> u128 {
        u128::from(now.get()) * u128::from(self.rate)
    }

    /// The cost of `tokens` tokens; `u32::MAX` of them cost less than 2^96.
    pub(crate) fn cost(&self, tokens: u64) -> u128 {
        u128::from(self.token) * u128::from(tokens)
    }

    /// The capacity of a full bucket, in parts.
    pub(crate) fn capacity(&self) -> u128 {
        self.cost(self.burst.into())
    }

    /// The maximum value of `full_at`. With this value, the last token of the debt is due at [`Nanos::MAX`]. Below 2^97.
    pub(crate) fn horizon(&self) -> u128 {
        self.parts(Nanos::MAX) + self.capacity()
    }

    /// Returns the new `full_at` of a bucket from which `cost` more parts are taken.
    ///
    /// Time does not fill the bucket above the burst, and the debt is limited to the horizon.
    pub(crate) fn after(&self, full_at: u128, now: Nanos, cost: u128) -> u128 {
        full_at.max(self.parts(now)).saturating_add(cost).min(self.horizon())
    }

    /// Returns when the last token of a debt is due. This time is `full_at` minus the capacity, rounded up to a whole nanosecond, but no earlier than
    /// `now`.
    pub(crate) fn due(&self, full_at: u128, now: Nanos) -> Nanos {
        let after_now = full_at.saturating_sub(self.parts(now) + self.capacity());
        if after_now == 0 {
            return now;
        }
        // A division of 128 bits is the most expensive step, and only very large debts need it. At the usual rates, with a whole
        // number of nanoseconds per token, no debt that fits into 64 bits needs a division.
        let wait = match u64::try_from(after_now) {
            Ok(near) if self.rate == 1 => near,
            Ok(near) => near.div_ceil(self.rate.into()),
            // The horizon keeps the sum within 64 bits.
            Err(_) => after_now.div_ceil(self.rate.into()) as u64,
        };
        Nanos::new(now.get().saturating_add(wait))
    }

    /// Takes tokens, which may be due later. Returns the new `full_at`, and when the tokens are due.
    pub(crate) fn reserve(&self, full_at: u128, now: Nanos, count: NonZeroU32) -> (u128, Nanos) {
        let full_at = self.after(full_at, now, self.cost(count.get().into()));
        (full_at, self.due(full_at, now))
    }

    /// Takes tokens if they are available. Returns the new `full_at`.
    pub(crate) fn try_acquire(&self, full_at: u128, now: Nanos, count: NonZeroU32) -> Result<u128, NotYet> {
        let (full_at, due) = self.reserve(full_at, now, count);
        if due > now { Err(NotYet::new(due, now)) } else { Ok(full_at) }
    }

    /// Gives back a reservation. Returns the new `full_at`, or `None` if later reservations depend on this one.
    ///
    /// If no other reservation is due later, the tokens of this reservation are interchangeable with the tokens that were taken last, so those are
    /// removed.
    pub(crate) fn cancel(&self, full_at: u128, now: Nanos, reservation: &Reservation) -> Option<u128> {
        let last = self.due(full_at, now);
        let cost = self.cost(reservation.count().get().into());
        (reservation.due() >= last).then(|| full_at.saturating_sub(cost))
    }

    /// The number of tokens that could be taken now.
    pub(crate) fn available(&self, full_at: u128, now: Nanos) -> u32 {
        let missing = full_at.saturating_sub(self.parts(now));
        // At most `burst` tokens fit into the capacity.
        (self.capacity().saturating_sub(missing) / u128::from(self.token)) as u32
    }

    /// Returns the `full_at` under the quota `new`: available tokens stay available, up to the new burst; a bucket in
    /// debt owes as many tokens as before; a larger burst fills up at the new rate.
    pub(crate) fn carry(&self, full_at: u128, now: Nanos, new: &Self) -> u128 {
        let missing = full_at.saturating_sub(self.parts(now));
        let (old_token, new_token) = (u128::from(self.token), u128::from(new.token));
        let (whole, rest) = (missing / old_token, missing % old_token);
        let missing = whole.saturating_mul(new_token).saturating_add((rest * new_token).div_ceil(old_token));
        let missing = missing.saturating_add(new.capacity()).saturating_sub(new.cost(self.burst.into()));
        new.parts(now).saturating_add(missing).min(new.horizon())
    }
}
